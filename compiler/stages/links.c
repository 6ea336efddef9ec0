/* SPDX-License-Identifier: MIT
 * Computes the cost of the network (lang/spec.md 6): the time of transfers and sums from `latency`
 * and `bandwidth`, and the links that several transfers share. Part of expand, apart from the pass
 * `links`. */
#include <string.h>

#include "instance.h"
#include "graph.h"
#include "stages.h"

/* ---- times ---- */

/* The time of `bytes` over a link, rounded up. bandwidth: bytes per second if times are ns, else
 * bytes per unit; 0: unknown, takes no time. */
static uint64_t over(const Sched *s, unsigned __int128 bytes, uint64_t bandwidth) {
  if (bandwidth == 0)
    return 0;
  unsigned __int128 t = (bytes * (s->model->timed ? 1000000000u : 1u) + bandwidth - 1) / bandwidth;
  return t > UINT64_MAX / 2 ? UINT64_MAX / 2 : (uint64_t)t;
}

/* The time of a sum over n rows in a ring: 2(n-1) messages, each of an n-th of the bytes, one after
 * the other. */
static uint64_t ring_sum(const Sched *s, uint64_t latency, uint64_t bandwidth, uint32_t n,
                         uint64_t bytes) {
  if (n < 2)
    return 0;
  uint64_t steps = 2 * (uint64_t)(n - 1);
  uint64_t wire = over(s, (unsigned __int128)steps * ((bytes + n - 1) / n), bandwidth);
  unsigned __int128 t = (unsigned __int128)steps * latency + wire;
  return t > UINT64_MAX / 2 ? UINT64_MAX / 2 : (uint64_t)t;
}

static bool too_long(Sched *s, Span at, uint32_t stage, uint64_t time, uint64_t most) {
  if (time <= most)
    return false;
  diag_error(
      s->diag, DIAG_TOO_LARGE, at,
      "a transfer or sum of stage %u would take %llu: the sum over all ops could exceed 2^62",
      stage, (unsigned long long)time);
  return true;
}

/* Sets the times of transfers for rows and edges. first: a row of each stage. */
static bool set_sends(Sched *s, uint64_t *const *cost, const uint32_t *first, Span at,
                      uint64_t most) {
  const uint64_t *latency = cost[KEY_LATENCY - NKEYS], *bandwidth = cost[KEY_BANDWIDTH - NKEYS];
  for (uint32_t i = 0; i < s->model->nstage; i++) {
    PipeStage *st = &s->model->stage[i];
    uint32_t before = st->model ? first[st->model - 1] : NONE;
    st->time[PIPE_SEND_F] = st->next == NONE
                                ? 0
                                : latency[i] + over(s, st->boundary_bytes, bandwidth[i]);
    st->time[PIPE_SEND_B] = st->prev == NONE || before == NONE
                                ? 0
                                : latency[before] + over(s, s->model->stage[before].boundary_bytes,
                                                         bandwidth[before]);
    if (too_long(s, at, st->model, st->time[PIPE_SEND_F], most))
      return false;
  }
  for (uint32_t e = 0; s->model->graph && e < s->model->graph->nedge; e++) {
    PipeEdge *g = &s->model->graph->edge[e];
    const PipeStage *st = &s->model->stage[first[g->from]];
    uint64_t bytes = g->skip ? st->edge_bytes : st->boundary_bytes;
    g->send[0] = g->send[1] = latency[first[g->from]] + over(s, bytes, bandwidth[first[g->from]]);
    if (too_long(s, at, g->from, g->send[0], most))
      return false;
  }
  return true;
}

bool set_links(Sched *s, uint64_t *const *cost, const bool *has, const uint32_t *depth,
               const Span *at, uint64_t most) {
  int key = has[KEY_LATENCY] ? KEY_LATENCY : KEY_BANDWIDTH,
      ring = has[KEY_SUM_LATENCY]     ? KEY_SUM_LATENCY
             : has[KEY_SUM_BANDWIDTH] ? KEY_SUM_BANDWIDTH
                                      : key;
  bool link = has[KEY_LATENCY] || has[KEY_BANDWIDTH];
  bool send = link && has[KEY_SEND] && depth[KEY_SEND] < depth[key],
       sum = has[KEY_REDUCE] && depth[KEY_REDUCE] <= depth[ring];
  uint32_t *first = NEW_ARRAY(s->arena, uint32_t, s->model->nmodel);
  for (uint32_t i = s->model->nstage; i-- > 0;)
    first[s->model->stage[i].model] = i;
  for (uint32_t e = 0; s->model->graph && e < s->model->graph->nedge; e++) {
    PipeEdge *g = &s->model->graph->edge[e];
    g->send[0] = s->model->stage[first[g->from]].time[PIPE_SEND_F];
    g->send[1] = s->model->stage[first[g->to]].time[PIPE_SEND_B];
  }
  if (link && has[KEY_SEND] && depth[KEY_SEND] == depth[key]) {
    diag_error(s->diag, DIAG_REDEFINED, at[KEY_SEND],
               "'send' and '%s' both say how long a transfer takes", cost_key[key]);
    diag_note(s->diag, at[key], "also here");
    return false;
  }
  if (has[KEY_REDUCE] && ring != key && depth[KEY_REDUCE] == depth[ring]) {
    diag_error(s->diag, DIAG_REDEFINED, at[KEY_REDUCE],
               "'reduce' and '%s' both say how long a sum takes", cost_key[ring]);
    diag_note(s->diag, at[ring], "also here");
    return false;
  }
  for (int k = KEY_BANDWIDTH; k <= KEY_SUM_BANDWIDTH; k += KEY_SUM_BANDWIDTH - KEY_BANDWIDTH) {
    CostKey size = k == KEY_BANDWIDTH ? KEY_BOUNDARY : KEY_WEIGHT;
    if (has[k] && !has[size] && !(size == KEY_WEIGHT && has[KEY_GRAD])) {
      diag_error(s->diag, DIAG_NO_SIZES, at[k],
                 "a bandwidth needs the size of messages: 'bytes { %s = e }' or a profile",
                 cost_key[size]);
      return false;
    }
  }
  if (link && !send && !set_sends(s, cost, first, at[key], most))
    return false;
  if (sum || s->model->forward || (!link && ring == key))
    return true;
  const uint64_t *latency = cost[(has[KEY_SUM_LATENCY] ? KEY_SUM_LATENCY : KEY_LATENCY) - NKEYS],
                 *bandwidth =
                     cost[(has[KEY_SUM_BANDWIDTH] ? KEY_SUM_BANDWIDTH : KEY_BANDWIDTH) - NKEYS];
  for (uint32_t i = 0; i < s->model->nstage; i++) {
    PipeStage *st = &s->model->stage[i];
    uint32_t n = 1, tied = 0;
    for (uint32_t q = st->replica; q != i; q = s->model->stage[q].replica)
      n++;
    if (st->tied != NONE)
      tied = s->model->tie_row0[s->model->tie_of[i] + 1] - s->model->tie_row0[s->model->tie_of[i]];
    st->time[PIPE_REDUCE] = ring_sum(s, latency[i], bandwidth[i], n, st->grad_bytes);
    st->time[PIPE_TIE] = ring_sum(s, latency[i], bandwidth[i], tied, st->tied_bytes);
    if (too_long(s, at[ring], st->model, st->time[PIPE_REDUCE], most) ||
        too_long(s, at[ring], st->model, st->time[PIPE_TIE], most))
      return false;
  }
  return true;
}

/* ---- shared links ---- */

typedef struct Pair {
  uint32_t from, to; /* ranks */
  uint64_t time;     /* longest transfer or sum between them */
} Pair;

/* A pair of ranks that uses a shared link: the link with value `value` of the clause or profile
 * entry `source`. */
typedef struct Passed {
  Pair pair;
  uint32_t source;
  int64_t value;
} Passed;

typedef VEC(Pair) Pairs;

static int by_pair(const void *a, const void *b) {
  const Pair *x = a, *y = b;
  return x->from != y->from ? (x->from < y->from ? -1 : 1)
         : x->to != y->to   ? (x->to < y->to ? -1 : 1)
                            : 0;
}
static int by_source(const void *a, const void *b) {
  const Passed *x = a, *y = b;
  if (x->source != y->source)
    return x->source < y->source ? -1 : 1;
  return x->value != y->value ? (x->value < y->value ? -1 : 1) : by_pair(&x->pair, &y->pair);
}
static int by_share(const void *a, const void *b) {
  const PipeShare *x = a, *y = b;
  int c = by_pair(&(Pair){x->from, x->to, 0}, &(Pair){y->from, y->to, 0});
  return c ? c : x->link < y->link ? -1 : x->link > y->link;
}

static void add_pair(Arena *a, Pairs *to, uint32_t from, uint32_t rank, uint64_t time) {
  *vec_push(a, to) = (Pair){from, rank, time};
}

/* Lists each pair of ranks that exchange tensors or are neighbours in the ring of a sum, once. */
static Pair *pairs_that_meet(Sched *s, Arena *a, uint32_t *n) {
  Pairs pair = {0};
  for (uint32_t i = 0; i < nlinks(s); i++) {
    Link l = link_at(s, i);
    if (!link_crosses(s, l))
      continue;
    uint32_t from = s->model->stage[l.from].rank, to = s->model->stage[l.to].rank;
    add_pair(a, &pair, from, to, edge_time(s, l.edge, l.from, true));
    if (!s->model->forward)
      add_pair(a, &pair, to, from, edge_time(s, l.edge, l.to, false));
  }
  for (uint32_t i = 0; !s->model->forward && i < s->model->nstage; i++) {
    const PipeStage *st = &s->model->stage[i];
    const uint32_t next[] = {st->replica, st->tied == i ? st->tie : i};
    for (int k = 0; k < 2; k++)
      if (s->model->stage[next[k]].rank != st->rank)
        add_pair(a, &pair, st->rank, s->model->stage[next[k]].rank,
                 st->time[k ? PIPE_TIE : PIPE_REDUCE]);
  }
  if (pair.n > 1)
    qsort(pair.at, pair.n, sizeof *pair.at, by_pair);
  *n = 0;
  for (uint32_t i = 0; i < pair.n; i++)
    if (*n == 0 || by_pair(&pair.at[*n - 1], &pair.at[i]) != 0)
      pair.at[(*n)++] = pair.at[i];
    else if (pair.at[i].time > pair.at[*n - 1].time)
      pair.at[*n - 1].time = pair.at[i].time;
  return pair.at;
}

/* Warns of an `exclusive` clause if no transfer on its links takes time. */
static void warn_free(Sched *s, const Passed *passed, uint32_t n) {
  for (uint32_t k = 0, i = 0; k < s->model->nlink_clause; k++) {
    uint32_t first = i;
    uint64_t time = 0;
    for (; i < n && passed[i].source == k; i++)
      time = passed[i].pair.time > time ? passed[i].pair.time : time;
    if (i == first || time > 0)
      continue;
    diag_warn(s->diag, DIAG_FREE_LINK, s->model->link_clause[k]->at,
              "no transfer on these links takes time, so the links change nothing");
    diag_help(s->diag, "give transfers a time: 'time { send = e }', or latency and bandwidth");
  }
}

static bool has_rank(const uint32_t *list, uint32_t n, uint32_t rank) {
  for (uint32_t i = 0; i < n; i++)
    if (list[i] == rank)
      return true;
  return false;
}

/* Adds the links of copies. */
static void share_copies(const Sched *s, Model *model) {
  for (uint32_t r = 0; r < s->model->nrank && s->model->copy_link && s->orders->ncopy; r++)
    if (s->model->copy_link[r])
      model->share[model->nshare++] = (PipeShare){r, r, model->nlink + s->model->copy_link[r] - 1};
  model->nlink += s->orders->ncopy ? s->model->ncopy_link : 0;
}

bool links(Sched *s, Model *model) {
  uint32_t nsource = s->model->nprofile_link ? s->model->nprofile_link : s->model->nlink_clause,
           npair;
  model->share = NULL, model->nshare = model->nlink = 0;
  if (s->opt->no_contention)
    return true;
  Arena scratch = {0};
  VEC(Passed) passed = {0};
  Pair *pair = pairs_that_meet(s, &scratch, &npair);
  bool ok = true;
  for (uint32_t k = 0; ok && k < nsource; k++)
    for (uint32_t i = 0; ok && i < npair; i++) {
      const ProfileLink *p = s->model->nprofile_link ? &s->model->profile_link[k] : NULL;
      int64_t value = 0;
      if (p) {
        value = has_rank(p->from, p->nfrom, pair[i].from) && has_rank(p->to, p->nto, pair[i].to)
                    ? 0
                    : -1;
      } else {
        s->eval.env[s->model->link_clause[k]->slot] = pair[i].from;
        s->eval.env[s->model->link_clause[k]->mb_slot] = pair[i].to;
        ok = eval(s, s->model->link_clause[k]->to, &value);
      }
      if (ok && value >= 0)
        *vec_push(&scratch, &passed) = (Passed){pair[i], k, value};
    }
  if (ok) {
    if (passed.n > 1)
      qsort(passed.at, passed.n, sizeof *passed.at, by_source);
    if (!s->model->nprofile_link)
      warn_free(s, passed.at, passed.n);
    const size_t most = passed.n + (size_t)(s->model->copy_link ? s->model->nrank : 0);
    model->share = most ? NEW_ARRAY(s->arena, PipeShare, most) : NULL;
    for (uint32_t i = 0; i < passed.n; i++) {
      const Passed *p = &passed.at[i];
      model->nlink += i == 0 || p[-1].source != p->source || p[-1].value != p->value;
      model->share[model->nshare++] = (PipeShare){p->pair.from, p->pair.to, model->nlink - 1};
    }
    share_copies(s, model);
    if (model->nshare > 1)
      qsort(model->share, model->nshare, sizeof *model->share, by_share);
    model->share = model->nshare ? model->share : NULL;
  }
  arena_free(&scratch);
  return ok;
}
