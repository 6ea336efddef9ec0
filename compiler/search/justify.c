/* SPDX-License-Identifier: MIT
 * Improves the compute orders of a schedule within the stashes that the ranks have, by forward and
 * backward passes over its predicted times (double justification). Requires check_deps, and updates
 * at the end of each rank.
 *
 * A forward pass takes the ops by start, and puts each into the earliest gap of its rank that is
 * long enough, once its inputs are there. A backward pass takes them by end, latest first, and uses
 * the latest gap that its users allow. Invariant: an op can always stay where it is, because the
 * ops before it in the pass have only moved away. So a pair of passes never makes the makespan
 * longer; nor the span, if ranks may not end later than their span allows. No pass lets more
 * stashes live on a rank, in number or in bytes, than its order had at most; a rank with a `limit`
 * keeps its limits instead (limit.c).
 *
 * When passes gain nothing, the search leaves the best order in two ways, in turn:
 *
 * - along critical paths (critical_moves.c);
 * - by shaking: each op takes somewhat longer, some more than others; passes over these times lead
 *   to another order, which needs no more stashes. The number of the try is the seed.
 *
 * An order at the lower bounds of both makespan and span (bound.c) stays as it is.
 *
 * Cost of a round: a radix sort of the ops, and for each op the gaps of its rank from the arrival
 * of its inputs to the end so far. More ranks mean more gaps, so no try begins once passes have
 * looked at a constant times n log n gaps. */
#include <string.h>

#include "base.h"
#include "graph.h"
#include "justify.h"
#include "names.h"
#include "limit.h"
#include "orders.h"
#include "timing.h"

enum {
  IDLE = 4,         /* tries without gain before the search leaves the best order */
  WALK = 1000000,   /* steps of a walk along critical paths, times ops */
  SMALL = 36000,    /* a walk of n ops takes SMALL / n times as many steps, if n is less */
  MOST_STEPS = 400, /* bounds of the steps of a walk */
  LEAST_STEPS = 4,
  LOOKS = 100 /* no try begins after LOOKS * n log n places */
};

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }
static int64_t later_of(int64_t a, int64_t b) { return a > b ? a : b; }

/* Adds an edge. k: which input of `to` it is; NONE: an edge within the stage. */
static void link_ops(Just *j, uint32_t from, uint32_t to, uint32_t k) {
  Edge *in = &j->in[j->width * (size_t)to], *out = &j->out[j->width * (size_t)from];
  uint32_t i = 0, o = 0;
  const Op *a = &j->s->orders->op[from], *b = &j->s->orders->op[to];
  uint32_t l = j->rank[from] == j->rank[to] ? 0
               : j->s->model->graph         ? input_edge(j->s, b->stage, b->kind == PIPE_F, k)
                                            : a->stage;
  l = j->rank[from] == j->rank[to] ? 0 : 2 * l + (a->kind == PIPE_F ? 1 : 2);
  while (i < j->width && in[i].op != NONE)
    i++;
  while (o < j->width && out[o].op != NONE)
    o++;
  BUG_IF(i == j->width || o == j->width);
  in[i] = (Edge){from, l};
  out[o] = (Edge){to, l};
}

static void find_edges(Just *j) {
  Sched *s = j->s;
  for (size_t i = 0; i < j->width * (size_t)j->n; i++)
    j->in[i].op = j->out[i].op = NONE;
  for (uint32_t i = 0; i < j->n; i++) {
    const Op *o = &s->orders->op[i];
    if (o->kind == PIPE_U)
      continue;
    uint32_t dep, own[3];
    for (uint32_t k = 0; (dep = order_dep(s, i, k)) != NONE; k++)
      link_ops(j, dep, i, k);
    order_own_users(s, i, own);
    for (int k = 0; k < 3; k++)
      if (own[k] != NONE)
        link_ops(j, i, own[k], NONE);
  }
}

static void bound_op(Just *j, uint32_t k, uint32_t op, int64_t start, int64_t end) {
  j->sum.delta[k][op] = start + end;
  j->sum.over[k][op] = later_of(later_of(start, start + end), 0) - later_of(start + end, 0);
}

/* The number of bounded sums on rank r: its limits of counts, or else stashes; then bytes. *nlimit:
 * limits of counts. */
static uint32_t rank_sums(const Sched *s, uint32_t r, uint32_t *nlimit) {
  uint32_t first;
  *nlimit = limits_of(s, r, &first);
  const bool bytes = stash_bytes_room(s, r, 2) < INT64_MAX || (*nlimit == 0 && s->model->sized);
  return (*nlimit > 0 ? *nlimit : 1) + bytes;
}

/* Finds what each op adds to the sums, and their bounds. If the text has no limit of stashes and
 * bytes, the bound is the peak of the current order. */
static void find_bounds(Just *j) {
  Sched *s = j->s;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    uint32_t first, nlimit, n = rank_sums(s, r, &nlimit);
    limits_of(s, r, &first);
    const int64_t room = stash_bytes_room(s, r, 2);
    for (uint32_t k = 0; k < j->sum.n; k++) {
      int64_t live = 0, top = 0;
      const bool bytes = k == (nlimit > 0 ? nlimit : 1);
      for (uint32_t i = s->orders->rank_op0[r]; k < n && i < s->orders->rank_op0[r + 1]; i++) {
        int64_t start, end;
        if (k < nlimit)
          limit_change(s, &s->claims->row[first + k], &s->orders->op[i], &start, &end);
        else
          stash_change(s, &s->orders->op[i], bytes, &start, &end);
        bound_op(j, k, i, start, end);
        top = later_of(top, later_of(live, live + j->sum.delta[k][i]) + j->sum.over[k][i]);
        live += j->sum.delta[k][i];
      }
      j->sum.most[k][r] = k >= n              ? 0
                          : k < nlimit        ? s->claims->row[first + k].most
                          : room == INT64_MAX ? top
                          : bytes             ? later_of(top, room)
                                              : s->orders->nop; /* the bytes bound them */
    }
  }
}

/* The most bounded sums on a rank. */
static uint32_t count_bounds(const Sched *s) {
  uint32_t n = 1, nlimit;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    const uint32_t want = rank_sums(s, r, &nlimit);
    n = want > n ? want : n;
  }
  return n;
}

/* [nrank] the stashes that may live on each rank. */
static int64_t *find_room(Just *j, Arena *a) {
  const Sched *s = j->s;
  int64_t *room = NEW_ARRAY(a, int64_t, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    uint32_t first;
    room[r] = limits_of(s, r, &first) ? limits_room(s, r) : j->sum.most[0][r];
    room[r] = room[r] > s->orders->nop ? s->orders->nop : room[r] > 0 ? room[r] : 1;
  }
  return room;
}

bool just_play(Just *j) {
  Sched *s = j->s;
  uint32_t nwork = 0, nplayed = 0, want = 0;
  for (uint32_t i = 0; i < j->n; i++)
    j->end[i] = UINT64_MAX;
  for (uint32_t r = s->model->nrank; r-- > 0;) {
    j->head[r] = s->orders->rank_op0[r];
    j->now[r] = 0;
    j->work[nwork++] = r;
    j->queued[r] = 1;
    want += j->ncomp[r];
  }
  memset(j->grad_end, 0, s->model->nstage * sizeof *j->grad_end);
  while (nwork > 0) {
    guard_poll();
    uint32_t r = j->work[--nwork], last = s->orders->rank_op0[r] + j->ncomp[r];
    j->queued[r] = 0;
    for (; j->head[r] < last; j->head[r]++) {
      uint32_t o = j->seq[j->head[r]];
      uint64_t at = j->now[r];
      bool ready = true;
      const Edge *e = &j->in[j->width * (size_t)o], *end = e + j->width;
      for (; e < end && e->op != NONE; e++) {
        ready &= j->end[e->op] != UINT64_MAX;
        at = ready ? later(at, j->end[e->op] + j->lag[e->lag]) : at;
      }
      if (!ready)
        break;
      const Op *op = &s->orders->op[o];
      j->start[o] = at;
      j->end[o] = j->now[r] = at + j->cost[o];
      j->played[nplayed++] = o;
      if (op->kind == PIPE_B || op->kind == PIPE_W)
        j->grad_end[op->stage] = j->now[r];
      e = &j->out[j->width * (size_t)o], end = e + j->width;
      for (; e < end && e->op != NONE; e++) {
        uint32_t q = j->rank[e->op];
        if (q != r && !j->queued[q] && j->head[q] < s->orders->rank_op0[q] + j->ncomp[q] &&
            j->seq[j->head[q]] == e->op) {
          j->queued[q] = 1;
          j->work[nwork++] = q;
        }
      }
    }
  }
  if (nplayed < want)
    return false;
  j->t.makespan = j->t.span = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    uint32_t first = s->orders->rank_op0[r];
    j->deadline[r] = j->now[r];
    for (uint32_t i = first + j->ncomp[r]; i < s->orders->rank_op0[r + 1]; i++) {
      const PipeStage *st = &s->model->stage[s->orders->op[i].stage];
      for (uint32_t q = st->replica; q != s->orders->op[i].stage; q = s->model->stage[q].replica)
        j->now[r] = later(j->now[r], later(j->grad_end[q], j->grad_end[s->orders->op[i].stage]) +
                                         st->time[PIPE_REDUCE]);
      uint32_t tie = s->model->tie_of ? s->model->tie_of[s->orders->op[i].stage] : NONE;
      for (uint32_t k = tie == NONE ? 0 : s->model->tie_row0[tie];
           tie != NONE && k < s->model->tie_row0[tie + 1]; k++) {
        uint32_t q = s->model->tie_row[k];
        uint64_t sum = s->model->stage[q].replica != q ? s->model->stage[q].time[PIPE_REDUCE] : 0;
        j->now[r] = later(j->now[r], j->grad_end[q] + sum + st->time[PIPE_TIE]);
      }
      j->now[r] += st->time[PIPE_U];
    }
    uint64_t begin = j->ncomp[r] > 0 ? j->start[j->seq[first]] : 0;
    j->t.makespan = later(j->t.makespan, j->now[r]);
    j->t.span = later(j->t.span, j->now[r] - begin);
  }
  return true;
}

/* Sorts j->list by key; a stable radix sort. */
static void sort_list(Just *j, uint32_t n, uint64_t most) {
  enum { BITS = 11, N = 1 << BITS };
  for (int shift = 0; shift < 64 && most >> shift; shift += BITS) {
    uint32_t count[N + 1] = {0}, *t = j->spare;
    for (uint32_t i = 0; i < n; i++)
      count[(j->key[j->list[i]] >> shift & (N - 1)) + 1]++;
    for (int d = 0; d < N; d++)
      count[d + 1] += count[d];
    for (uint32_t i = 0; i < n; i++)
      t[count[j->key[j->list[i]] >> shift & (N - 1)]++] = j->list[i];
    j->spare = j->list;
    j->list = t;
  }
}

/* Puts op into the earliest gap of its rank that begins at `from` or later and fits. sign: -1 in a
 * backward pass. */
static void put(Just *j, uint32_t op, uint64_t from, int sign) {
  Sched *s = j->s;
  uint32_t r = j->rank[op], first = s->orders->rank_op0[r], n = j->nline[r], best = n;
  uint32_t *line = &j->line[first];
  uint64_t cost = j->cost[op];
  uint64_t at = n > 0 ? later(j->until[line[n - 1]], from) : from;
  for (uint32_t k = 0; k < j->sum.n; k++)
    j->sum.top[k] = INT64_MIN;
  for (uint32_t p = n; p-- > 0; j->looked++) {
    /* The gap before line[p]: the op lives beside what lives after line[p - 1] and after all later
     * ops. */
    uint64_t free_from = p > 0 ? j->until[line[p - 1]] : 0;
    if (j->until[line[p]] <= from)
      break;
    bool room = true;
    for (uint32_t k = 0; k < j->sum.n; k++) {
      int64_t *live = &j->sum.live[k][first], add = sign * j->sum.delta[k][op];
      int64_t before = p > 0 ? live[p - 1] : 0;
      j->sum.top[k] = later_of(j->sum.top[k], later_of(before, live[p]) + j->sum.over[k][line[p]]);
      if (add > 0 && j->sum.top[k] + add > j->sum.most[k][r])
        goto found; /* earlier gaps have no room either */
      room &= later_of(before, before + add) + j->sum.over[k][op] <= j->sum.most[k][r];
    }
    uint64_t begin = later(free_from, from);
    if (room && begin + cost <= j->begin[line[p]])
      best = p, at = begin;
  }
found:
  memmove(&line[best + 1], &line[best], (n - best) * sizeof *line);
  line[best] = op;
  j->nline[r]++;
  for (uint32_t k = 0; k < j->sum.n; k++) {
    int64_t *live = &j->sum.live[k][first], add = sign * j->sum.delta[k][op];
    memmove(&live[best + 1], &live[best], (n - best) * sizeof *live);
    live[best] = best > 0 ? live[best - 1] : 0;
    for (uint32_t p = best; add != 0 && p <= n; p++) {
      live[p] += add;
      BUG_IF(add > 0 && live[p] > j->sum.most[k][r]);
    }
  }
  j->begin[op] = at;
  j->until[op] = at + cost;
}

/* Runs a pass; the new order is in j->seq. */
static void pass(Just *j, bool backward, Within within) {
  Sched *s = j->s;
  uint32_t n = 0;
  uint64_t last = 0, most = 0;
  if (backward)
    for (uint32_t r = 0; r < s->model->nrank; r++) {
      uint64_t tail = j->now[r] - j->deadline[r]; /* updates; deadline: end of the last op */
      uint64_t begin = j->ncomp[r] > 0 ? j->start[j->seq[s->orders->rank_op0[r]]] : 0;
      uint64_t by_span = begin + j->t.span - tail, by_makespan = j->t.makespan - tail;
      j->deadline[r] = within == SPAN || (within == BOTH && by_span < by_makespan) ? by_span
                                                                                   : by_makespan;
      last = later(last, j->deadline[r]);
    }
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    j->nline[r] = 0;
    n += j->ncomp[r];
  }
  for (uint32_t i = 0; i < n; i++) {
    uint32_t o = j->played[backward ? n - 1 - i : i];
    j->list[i] = o;
    j->key[o] = backward ? last - j->end[o] : j->start[o];
    most = later(most, j->key[o]);
  }
  sort_list(j, n, most);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t o = j->list[i];
    uint64_t from = backward ? last - j->deadline[j->rank[o]] : 0;
    const Edge *e = &(backward ? j->out : j->in)[j->width * (size_t)o];
    for (uint32_t k = 0; k < j->width && e[k].op != NONE; k++)
      from = later(from, j->until[e[k].op] + j->lag[e[k].lag]);
    put(j, o, from, backward ? -1 : 1);
  }
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    uint32_t first = s->orders->rank_op0[r], m = j->ncomp[r];
    for (uint32_t i = 0; i < m; i++)
      j->seq[first + i] = j->line[first + (backward ? m - 1 - i : i)];
  }
}

/* Derives another order from j->best, in j->seq. Costs are in 1/SHARES; the cost of an op grows by
 * up to 1/8, 1/4, 1/2 or 1 of it. */
static void shake(Just *j, uint32_t try) {
  enum { SHARES = 16 };
  Sched *s = j->s;
  uint64_t *cost = j->cost, z = try * UINT64_C(0x9e3779b97f4a7c15) + 1;
  uint64_t most = UINT64_C(2) << try / IDLE % 4;
  memcpy(j->seq, j->best, s->orders->nop * sizeof *j->seq);
  for (uint32_t i = 0; i < s->orders->nop; i++) {
    z = z * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    j->shaken[i] = SHARES * cost[i] + cost[i] * ((z >> 48) * most >> 8) / 256;
  }
  for (uint32_t i = 0; i < j->nlag; i++)
    j->lag[i] *= SHARES;
  j->cost = j->shaken;
  BUG_IF(!just_play(j)); /* j->best has been played */
  pass(j, true, (Within)(try / (IDLE * 4) % NWITHIN));
  BUG_IF(!just_play(j)); /* the order of a pass respects the data */
  pass(j, false, MAKESPAN);
  for (uint32_t i = 0; i < j->nlag; i++)
    j->lag[i] /= SHARES;
  j->cost = cost;
  BUG_IF(!just_play(j));
}

static void *array(Sched *s, Arena *a, size_t each) {
  return arena_zalloc(a, s->orders->nop + 1, each);
}

/* Gives the ops of one kind on each stage their microbatches in ascending order, if the order as
 * written has them so and all microbatches are alike. note [alike]: in chains, if every stage has
 * the same microbatches, the k-th F of a stage ends no sooner than the k-th F of the stage before
 * it; the same holds for I and W. So the times stay possible; and sums of gradients add in the
 * order of a run one microbatch after the other. */
static void renumber(Just *j) {
  Sched *s = j->s;
  if (s->model->graph || s->model->row_of || s->model->slices > 1 || s->model->unit_time)
    return;
  uint32_t *next = NEW_ARRAY(s->arena, uint32_t, 3 * (size_t)s->model->nstage);
  for (int turn = 0; turn < 2; turn++) {
    memset(next, 0, 3 * (size_t)s->model->nstage * sizeof *next);
    for (uint32_t i = 0; i < s->orders->nop; i++) {
      uint32_t row = turn ? j->best[i] : i;
      const Op *o = &s->orders->op[row];
      if (o->kind == PIPE_U)
        continue;
      int kind = o->kind == PIPE_F ? 0 : o->kind == PIPE_W ? 2 : 1;
      uint32_t mb = s->model->stage[o->stage].mb0 + next[3 * o->stage + (uint32_t)kind]++;
      bool split = s->orders->at_w[(size_t)o->stage * s->model->nmb + o->mb] != 0;
      if (!turn &&
          (o->kind == PIPE_R || o->mb != mb ||
           split !=
               (s->orders->at_w[(size_t)o->stage * s->model->nmb + s->model->stage[o->stage].mb0] !=
                0)))
        return;
      if (turn)
        j->best[i] = *op_row(s, o->kind, (size_t)o->stage * s->model->nmb + mb) - 1;
    }
  }
  memcpy(j->seq, j->best, s->orders->nop * sizeof *j->seq);
  BUG_IF(!just_play(j) || j->t.makespan > j->best_t.makespan); /* note [alike] */
}

/* Puts Orders.op into the order of j->best. */
static void reorder(Just *j, Orders *orders) {
  Sched *s = j->s;
  Op *to = arena_alloc(s->arena, s->orders->nop * sizeof *to);
  for (uint32_t i = 0; i < s->orders->nop; i++) {
    to[i] = s->orders->op[j->best[i]];
    size_t cell = (size_t)to[i].stage * s->model->nmb + to[i].mb;
    if (to[i].kind != PIPE_U)
      *op_row(s, to[i].kind, cell) = i + 1;
  }
  orders->op = to;
  for (uint32_t r = 0; r < s->model->nrank; r++)
    set_phases(orders, s->orders->rank_op0[r], s->orders->rank_op0[r] + j->ncomp[r]);
}

uint32_t justify_obstacle(const Sched *s) {
  for (uint32_t r = 0; r < s->model->nrank; r++)
    for (uint32_t i = s->orders->rank_op0[r]; i + 1 < s->orders->rank_op0[r + 1]; i++)
      if (s->orders->op[i].kind == PIPE_U && s->orders->op[i + 1].kind != PIPE_U)
        return i;
  return NONE;
}

bool just_judge(Just *j) {
  int64_t v;
  if (!j->value(j->s, j->t, &v))
    return false;
  bool less = v < *j->least ||
              (v == *j->least && j->t.makespan + j->t.span < j->best_t.makespan + j->best_t.span);
  if (less) {
    *j->least = v, j->best_t = j->t;
    memcpy(j->best, j->seq, j->n * sizeof *j->best);
    j->changed = true;
    j->done->idle = 0;
  }
  return true;
}

static bool at_bound(const Just *j, Within what) {
  return what == SPAN ? j->best_t.span <= j->bound.span : j->best_t.makespan <= j->bound.makespan;
}

/* The measure to shorten: of makespan and span, the one above its bound that improves the value
 * more. */
static Within weigh(Just *j) {
  Diag said = *j->s->diag;
  int64_t value[2]; /* after a shorter makespan; after a shorter span */
  bool ok = true;
  uint64_t bit = j->best_t.makespan / 1024 + 1;
  for (Within k = MAKESPAN; k <= SPAN; k++) {
    Timing t = j->best_t;
    uint64_t *time = k == MAKESPAN ? &t.makespan : &t.span;
    *time -= *time < bit ? *time : bit;
    j->s->diag->out = NULL; /* no order has these times, so a missing value is no error */
    ok &= j->value(j->s, t, &value[k]);
    *j->s->diag = said;
  }
  bool span = at_bound(j, MAKESPAN) || (ok && !at_bound(j, SPAN) && value[SPAN] < value[MAKESPAN]);
  return span ? SPAN : MAKESPAN;
}

/* Walks from j->best along critical paths of a measure: three turns in four, of the measure of
 * weigh(). False: reported. */
static bool walk(Just *j, uint32_t turn, uint32_t try) {
  uint32_t steps = WALK / (j->n + 1) * (j->n < SMALL ? SMALL / (j->n + 1) : 1);
  steps = steps > MOST_STEPS ? MOST_STEPS : steps < LEAST_STEPS ? LEAST_STEPS : steps;
  Within what = weigh(j);
  if (turn % 4 == 3)
    what = what == SPAN ? MAKESPAN : SPAN;
  memcpy(j->seq, j->best, j->n * sizeof *j->seq);
  BUG_IF(!just_play(j)); /* j->best has been played */
  return critical_moves(j, what, steps, try);
}

bool justify(Sched *s, Orders *orders, Tries *done, uint32_t tries,
             bool (*value)(Sched *, Timing, int64_t *), int64_t *least) {
  Arena a = {0};
  Just j = {.s = s,
            .done = done,
            .n = s->orders->nop,
            .sum.n = count_bounds(s),
            .value = value,
            .least = least};
  j.rank = array(s, &a, sizeof *j.rank);
  j.width = 2;
  for (uint32_t i = 0; i < s->model->nstage;
       i++) { /* its inputs or users, and ops of its own stage */
    const PipeStage *st = &s->model->stage[i];
    uint32_t most = (s->model->slices > 1 ? 3 : 1) + (st->nin > st->nout ? st->nin : st->nout);
    j.width = most > j.width ? most : j.width;
  }
  j.in = array(s, &a, j.width * sizeof *j.in), j.out = array(s, &a, j.width * sizeof *j.out);
  uint32_t **const rows[] = {&j.seq, &j.best, &j.played, &j.list, &j.spare, &j.line};
  uint64_t **const times[] = {&j.start, &j.end, &j.key, &j.begin, &j.until, &j.cost, &j.shaken};
  uint32_t **const ranks[] = {&j.ncomp, &j.work, &j.queued, &j.head, &j.nline};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    *rows[i] = array(s, &a, sizeof **rows[i]);
  for (size_t i = 0; i < sizeof times / sizeof *times; i++)
    *times[i] = array(s, &a, sizeof **times[i]);
  for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
    *ranks[i] = NEW_ARRAY(&a, uint32_t, s->model->nrank);
  int64_t ***const sums[] = {&j.sum.live, &j.sum.delta, &j.sum.over, &j.sum.most};
  for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
    *sums[i] = NEW_ARRAY(&a, int64_t *, j.sum.n);
  for (uint32_t k = 0; k < j.sum.n; k++) {
    j.sum.live[k] = array(s, &a, sizeof *j.sum.live[k]),
    j.sum.delta[k] = array(s, &a, sizeof *j.sum.delta[k]);
    j.sum.over[k] = array(s, &a, sizeof *j.sum.over[k]);
    j.sum.most[k] = NEW_ARRAY(&a, int64_t, s->model->nrank);
  }
  j.sum.top = NEW_ARRAY(&a, int64_t, j.sum.n);
  j.grad_end = NEW_ARRAY(&a, uint64_t, s->model->nstage);
  uint64_t **const at[] = {&j.now, &j.deadline, &j.after};
  for (size_t i = 0; i < sizeof at / sizeof *at; i++)
    *at[i] = NEW_ARRAY(&a, uint64_t, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++)
    for (uint32_t i = s->orders->rank_op0[r]; i < s->orders->rank_op0[r + 1]; i++) {
      j.seq[i] = j.best[i] = i;
      j.rank[i] = r;
      j.ncomp[r] += s->orders->op[i].kind != PIPE_U;
    }
  j.nlag = 2 * (s->model->graph ? s->model->nedge : s->model->nstage) + 1;
  j.lag = NEW_ARRAY(&a, uint64_t, j.nlag);
  for (uint32_t i = 0; 2 * i + 1 < j.nlag; i++)
    for (uint32_t back = 0; back < 2; back++)
      j.lag[2 * i + 1 + back] = edge_time(s, s->model->graph ? i : NONE, i, !back);
  for (uint32_t i = 0; i < s->orders->nop; i++)
    j.t.busy += j.cost[i] = op_cost(s, s->model->stage, false, i);
  find_edges(&j);
  find_bounds(&j);
  bool ok = just_play(&j) && value(s, j.t, least);
  j.best_t = j.t;
  j.bound = bound_of(s, &a, find_room(&j, &a));
  uint64_t looks = LOOKS * (uint64_t)j.n;
  for (uint32_t n = j.n; n > 1; n /= 2)
    looks += LOOKS * (uint64_t)j.n;
  for (;
       ok && done->n < tries && j.looked < looks && !(at_bound(&j, MAKESPAN) && at_bound(&j, SPAN));
       done->n++, done->idle++) {
    if (done->idle % IDLE == IDLE - 1) {
      if (done->idle / IDLE % 2 == 0)
        ok = walk(&j, done->idle / IDLE / 2, done->n);
      else if (j.best_t.makespan >> 57 == 0) /* else shaken times overflow */
        shake(&j, done->n);
    }
    pass(&j, true, (Within)(done->n % NWITHIN));
    BUG_IF(!just_play(&j)); /* the order of a pass respects the data */
    pass(&j, false, MAKESPAN);
    BUG_IF(!just_play(&j));
    ok = ok && just_judge(&j) && take_steps(s, STEPS_TRIED * (uint64_t)j.n, NO_SPAN);
  }
  if (ok && j.changed) {
    renumber(&j);
    reorder(&j, orders);
  }
  arena_free(&a);
  return ok;
}
