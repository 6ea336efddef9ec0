/* SPDX-License-Identifier: MIT
 * Makes the COPY stream of each rank: stashes that go to host memory, or to another rank, and back.
 * Requires order. Ensures Orders.copy: the copies of the orders and of the `offload` clauses, rank
 * after rank, each rank in stream order, with free_at. Proves that each OFF comes after its F and
 * has a LOAD, and that no op of its stage and microbatch stands between the two.
 *
 * note [copies cannot stall]: copies close no wait cycle. A copy waits for compute ops before it in
 * the order, and an op waits for copies before it. So these waits order the ops of a rank only as
 * the COMPUTE stream does already.
 *
 * note [free_at]: the slot of an OFF is free for the first op that would start, on an idle network,
 * after the OFF has ended. If this op is an F, it waits for the OFF, and so does every later F; on
 * an idle network the wait is short. Costs decide which ops may reuse a slot; the wait that makes
 * the reuse safe does not depend on costs. For an OFF of `rules`, the play sets a latest op
 * (free_by).
 *
 * note [latest]: a LOAD of a clause runs as late as it can. It ends when its backward starts, when
 * the next LOAD must start, or when an OFF starts that would overlap it: whichever is first. Ops
 * and OFFs have their times on an idle network.
 *
 * The ranks of one value of `exclusive` share a link. The plan has their copies one after the
 * other, as one rank with all their copies would: note [turns]. Nothing but times holds the ranks
 * to it.
 *
 * Cost: linear in ops and copies, and a sort of the copies of each rank. A clause looks at every
 * stage and microbatch. */
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "graph.h"
#include "lower.h"
#include "names.h"
#include "orders.h"
#include "plant.h"

/* One past the last op of the action of `op`. Copies stand between actions. */
static uint32_t after(const Sched *s, uint32_t op) { return op + s->orders->op[op].group + 1; }

static uint64_t starts(const Sched *s, uint32_t op) {
  uint32_t first = op_action(s, op);
  return s->ideal->end[after(s, op) - 1] - action_time(s, s->model->stage, false, first);
}

static uint64_t cost(const Sched *s, const Copy *c) {
  return c->kind == PIPE_SIDE_COPY ? s->sides->row[s->sides->use[c->use].row].time
                                   : copy_cost(s, c);
}

static uint32_t rank_of(const Sched *s, const Copy *c) { return s->model->stage[c->stage].rank; }

/* ---- copies of the clauses ---- */

typedef struct Wish {       /* a stash that a clause offloads; times on an idle network */
  uint32_t stage, mb, f, b; /* rows of its F and its first backward */
  uint64_t made, needed;    /* end of its F, start of its backward */
  uint64_t off;             /* start of its OFF */
  uint64_t off_end;
  uint64_t load; /* latest start of its LOAD */
  uint32_t load_at, to;
  const Clause *clause;
} Wish;

typedef VEC(Wish) Wishes;

static int by_forward(const void *a, const void *b) {
  const Wish *x = a, *y = b;
  if (x->made != y->made)
    return x->made < y->made ? -1 : 1;
  return x->f != y->f ? (x->f < y->f ? -1 : 1) : x->mb < y->mb ? -1 : x->mb > y->mb;
}

static int by_backward(const void *a, const void *b) {
  const Wish *x = a, *y = b;
  if (x->needed != y->needed)
    return x->needed < y->needed ? -1 : 1;
  return x->b != y->b ? (x->b < y->b ? -1 : 1) : x->mb < y->mb ? -1 : x->mb > y->mb;
}

/* The number of ops that the clause wants between LOAD and backward; -1: as few as possible. False:
 * reported. */
static bool lead(Sched *s, const Clause *c, int64_t *k) {
  *k = -1;
  if (!c->lead)
    return true;
  if (!eval(s, c->lead, k))
    return false;
  if (*k >= 0)
    return true;
  diag_error(s->diag, DIAG_RANGE, c->lead->at, "a lead of %lld ops; it cannot be negative",
             (long long)*k);
  return false;
}

/* The rank that takes a stash of rank `own`; NONE: host memory. False: reported. */
static bool target(Sched *s, const Clause *c, uint32_t own, uint32_t *to) {
  int64_t r;
  *to = NONE;
  if (!c->place)
    return true;
  if (!eval(s, c->place, &r))
    return false;
  *to = (uint32_t)r;
  if (r >= 0 && r < s->model->nrank && r != own)
    return true;
  if (r == own)
    diag_error(s->diag, DIAG_RANGE, c->place->at, "a stash of rank %u goes to rank %u itself", own,
               own);
  else
    diag_error(s->diag, DIAG_RANGE, c->place->at,
               "a stash of rank %u goes to rank %lld; the ranks are 0 to %u", own, (long long)r,
               s->model->nrank - 1);
  return false;
}

/* The F of the last slice of a microbatch: no later F reads the stashes of its slices. */
static uint32_t last_forward(const Sched *s, uint32_t st, uint32_t mb) {
  return s->orders->at_f[(size_t)st * s->model->nmb + mb - mb % s->model->slices +
                         s->model->slices - 1] -
         1;
}

/* The first op after row `from` that reads the stash of a unit; NONE: there is none. */
static uint32_t next_reader(const Sched *s, uint32_t st, uint32_t mb, uint32_t from) {
  size_t cell = (size_t)st * s->model->nmb + mb;
  uint32_t behind = s->model->slices - 1 - mb % s->model->slices, b;
  for (uint32_t q = 1; q <= behind; q++)
    if (s->orders->at_r[cell + q] > from)
      return s->orders->at_r[cell + q] - 1;
  for (uint32_t q = behind + 1; q-- > 0;)
    if ((b = s->orders->at_b[cell + q]) > from)
      return b - 1;
  return s->orders->at_w[cell] > from ? s->orders->at_w[cell] - 1 : NONE;
}

/* The first op that reads the stash after its LOAD. */
static uint32_t load_reader(const Sched *s, const Copy *c) {
  return next_reader(s, c->stage, c->mb, c->at);
}

/* Adds the copies that a clause asks for to `list`. Adds none if the order itself has a copy of
 * this stash (check_cell refuses a LOAD alone), if R makes it again, or if no op stands between F
 * and backward. */
static bool wished(Sched *s, const Clause *c, uint32_t st, uint32_t mb, Wishes *list) {
  const PipeStage *g = &s->model->stage[st];
  size_t cell = (size_t)st * s->model->nmb + mb;
  int64_t yes = 1, k;
  if ((s->orders->at_off && (s->orders->at_off[cell] || s->orders->at_load[cell])) ||
      s->orders->at_r[cell])
    return true;
  if (c->var) {
    s->eval.env[c->slot] = g->model;
    s->eval.env[c->mb_slot] = (mb - g->mb0) / s->model->slices;
  }
  uint32_t to;
  if (c->when && !eval(s, c->when, &yes))
    return false;
  if (!yes)
    return true;
  if (!lead(s, c, &k) || !target(s, c, g->rank, &to))
    return false;
  Wish w = {.stage = st, .mb = mb, .f = last_forward(s, st, mb), .clause = c};
  w.b = next_reader(s, st, mb, w.f);
  uint32_t from = after(s, w.f), user = op_action(s, w.b);
  w.load_at = k < 0 ? NONE : user - from < k ? from : op_action(s, user - (uint32_t)k);
  w.to = to;
  if (user > from)
    *vec_push(s->arena, list) = w;
  return true;
}

/* The first op of from .. to - 1 that has not ended by time t; `to`: all have ended. */
static uint32_t not_ended(const Sched *s, uint32_t from, uint32_t to, uint64_t t) {
  while (from < to) {
    uint32_t mid = from + (to - from) / 2;
    if (s->ideal->end[mid] <= t)
      from = mid + 1;
    else
      to = mid;
  }
  return from;
}

/* Gives the LOADs of a rank, or of the ranks of a link, their places: note [latest]. Drops a
 * stash that, behind earlier OFFs, has no time to go and come back; a stash of a clause with a lead
 * may be late and stays. Returns the number left. */
static uint32_t place_loads(Sched *s, Wish *w, uint32_t all) {
  uint64_t end = 0;
  uint32_t n = 0;
  Wish *off = arena_alloc(s->arena, (all + 1) * sizeof *off); /* sorted by F, as OFFs run */
  for (uint32_t i = 0; i < all; i++) {
    w[i].made = s->ideal->end[after(s, w[i].f) - 1];
    w[i].needed = starts(s, w[i].b);
  }
  qsort(w, all, sizeof *w, by_forward);
  for (uint32_t i = 0; i < all; i++) {
    Wish *x = &w[i];
    const uint64_t *time = s->model->stage[x->stage].time;
    x->off = x->made > end ? x->made : end;
    x->off_end = x->off + time[PIPE_OFF];
    if (x->load_at == NONE && x->off_end + time[PIPE_LOAD] > x->needed)
      continue;
    end = x->off_end;
    off[n] = w[n] = *x;
    n++;
  }
  qsort(w, n, sizeof *w, by_backward);
  uint64_t next = UINT64_MAX;
  for (uint32_t i = n, o = n; i-- > 0;) {
    Wish *x = &w[i];
    uint64_t time = s->model->stage[x->stage].time[PIPE_LOAD], last = x->needed;
    if (x->load_at != NONE) {
      x->load = x->load_at > s->orders->rank_op0[s->model->stage[x->stage].rank]
                    ? s->ideal->end[x->load_at - 1]
                    : 0;
      x->load = x->load > x->off_end ? x->load : x->off_end;
      continue;
    }
    last = next < last ? next : last;
    x->load = last > time ? last - time : 0;
    while (o > 0 && off[o - 1].off >= last)
      o--;
    for (; o > 0 && off[o - 1].off_end > x->load; o--) {
      last = off[o - 1].off;
      x->load = last > time ? last - time : 0;
    }
    x->load = x->load > x->off_end ? x->load : x->off_end;
    next = x->load;
    x->load_at = op_action(s, not_ended(s, after(s, x->f), op_action(s, x->b), x->load));
  }
  return n;
}

static void add(Sched *s, Orders *orders, PipeOp kind, const Wish *w, uint32_t site) {
  bool off = kind == PIPE_OFF;
  add_copy(s, orders,
           (Copy){.kind = (uint8_t)kind,
                  .phase = orders->op[off ? w->f : w->b].phase,
                  .stage = w->stage,
                  .mb = w->mb,
                  .site = site,
                  .to = w->to,
                  .at = off ? after(s, w->f) : w->load_at,
                  .plan = off ? w->off : w->load});
}

static bool shares_link(const Sched *s, uint32_t r) {
  return s->model->copy_link && s->model->copy_link[r];
}

/* Collects what the clauses offload from rank r. */
static bool wishes_of(Sched *s, uint32_t r, Wishes *list) {
  for (uint32_t k = s->model->rank_stage0[r]; k < s->model->rank_stage0[r + 1]; k++) {
    uint32_t st = s->model->rank_stage[k];
    for (uint32_t mb = s->model->stage[st].mb0;
         mb < s->model->stage[st].mb0 + s->model->stage[st].nmb; mb++)
      for (uint32_t i = 0, had = list->n;
           runs_mb(s, st, mb) && i < s->orders->noffload && list->n == had; i++)
        if (!wished(s, s->orders->offload[i], st, mb, list))
          return false;
  }
  return true;
}

static bool add_clauses(Sched *s, Orders *orders) {
  uint32_t first_site = NONE; /* first row of Orders.site of the clauses */
  for (uint32_t i = 0; i < s->orders->noffload; i++) {
    uint32_t site = add_site(s, orders, s->orders->offload[i]->at);
    first_site = i == 0 ? site : first_site;
  }
  Wishes list = {0};
  for (uint32_t r = 0; r < s->model->nrank && s->orders->noffload; r++) {
    list.n = 0;
    bool first = true;
    for (uint32_t q = 0; q < r && shares_link(s, r) && first; q++)
      first = s->model->copy_link[q] != s->model->copy_link[r];
    if (!first)
      continue; /* handled with the first rank of its link */
    for (uint32_t q = r; q < (shares_link(s, r) ? s->model->nrank : r + 1); q++)
      if ((q == r || s->model->copy_link[q] == s->model->copy_link[r]) && !wishes_of(s, q, &list))
        return false;
    if (list.n == 0)
      continue;
    list.n = place_loads(s, list.at, list.n);
    for (uint32_t i = 0; i < list.n; i++) {
      uint32_t c = 0;
      while (s->orders->offload[c] != list.at[i].clause)
        c++;
      add(s, orders, PIPE_OFF, &list.at[i], first_site + c);
      add(s, orders, PIPE_LOAD, &list.at[i], first_site + c);
    }
  }
  return true;
}

/* Adds the side ops of the COPY streams. Side ops of other streams have their places already. */
static void add_sides(Sched *s, Orders *orders, Sides *sides) {
  for (uint32_t r = 0; r < s->model->nrank && s->sides->nuse; r++)
    for (uint32_t i = s->sides->use0[r]; i < s->sides->use0[r + 1]; i++) {
      SideUse *u = &sides->use[i];
      if (u->latest && u->kind == PIPE_SIDE_COPY)
        u->at = side_latest(s, u);
      u->plan = side_start(s, r, u);
      if (u->kind != PIPE_SIDE_COPY)
        continue;
      add_copy(s, orders,
               (Copy){.kind = u->kind,
                      .phase = u->phase,
                      .stage = u->stage,
                      .mb = u->mb,
                      .site = s->sides->site0 + u->decl,
                      .to = NONE,
                      .use = i,
                      .at = u->at,
                      .plan = u->plan});
    }
}

/* ---- the order of each stream, and its checks ---- */

typedef struct Keyed {
  Copy c;
  uint32_t rank, seq;
} Keyed;

static int by_place(const void *a, const void *b) {
  const Keyed *x = a, *y = b;
  if (x->rank != y->rank)
    return x->rank < y->rank ? -1 : 1;
  if (x->c.at != y->c.at)
    return x->c.at < y->c.at ? -1 : 1;
  if (x->c.plan != y->c.plan)
    return x->c.plan < y->c.plan ? -1 : 1;
  return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static void sort(Sched *s, Orders *orders, uint32_t nwritten) {
  Keyed *key = arena_alloc(s->arena, (s->orders->ncopy + (size_t)1) * sizeof *key);
  for (uint32_t i = 0; i < s->orders->ncopy; i++) {
    Copy *c = &orders->copy[i];
    uint32_t r = rank_of(s, c);
    if (i < nwritten) /* a copy of the order itself: plan is the end of the op before it */
      c->plan = c->at > s->orders->rank_op0[r] ? s->ideal->end[c->at - 1] : 0;
    key[i] = (Keyed){*c, r, i};
  }
  qsort(key, s->orders->ncopy, sizeof *key, by_place);
  size_t cells = (size_t)s->model->nstage * s->model->nmb;
  orders->at_off = NEW_ARRAY(s->arena, uint32_t, cells);
  orders->at_load = NEW_ARRAY(s->arena, uint32_t, cells);
  for (uint32_t i = 0; i < s->orders->ncopy; i++) {
    const Copy *c = &key[i].c;
    orders->copy[i] = *c;
    orders->rank_copy0[key[i].rank + 1]++;
    if (c->kind == PIPE_SIDE_COPY)
      continue;
    (c->kind == PIPE_OFF ? orders->at_off
                         : orders->at_load)[(size_t)c->stage * s->model->nmb + c->mb] = i + 1;
  }
  for (uint32_t r = 0; r < s->model->nrank; r++)
    orders->rank_copy0[r + 1] += s->orders->rank_copy0[r];
}

/* Checks one stash: OFF after F, LOAD after OFF and before the last backward, and no op that reads
 * the stash between OFF and LOAD. */
static bool check_cell(Sched *s, size_t cell) {
  const Copy *off = s->orders->at_off[cell] ? &s->orders->copy[s->orders->at_off[cell] - 1] : NULL,
             *load = s->orders->at_load[cell] ? &s->orders->copy[s->orders->at_load[cell] - 1]
                                              : NULL;
  const Copy *one = off ? off : load;
  if (s->orders->at_r[cell]) {
    uint32_t again = s->orders->at_r[cell] - 1;
    diag_error(s->diag, DIAG_OFFLOAD, s->orders->site[one->site],
               "rank %u runs %s of a stash that %s recomputes", op_rank(s, again),
               copy_text(s, one), op_text(s, again));
    diag_note(s->diag, s->orders->site[s->orders->op[again].site], "%s comes from here",
              op_text(s, again));
    diag_help(s->diag, "a stash is copied or recomputed, not both: drop one");
    return false;
  }
  uint32_t f = last_forward(s, one->stage, one->mb), b = s->orders->at_b[cell] - 1,
           w = s->orders->at_w[cell] ? s->orders->at_w[cell] - 1 : b, r = rank_of(s, one);
  bool own = f == s->orders->at_f[cell] - 1;
  if (!off || !load) {
    Copy other = *one;
    other.kind = off ? PIPE_LOAD : PIPE_OFF;
    diag_error(s->diag, DIAG_OFFLOAD, s->orders->site[one->site], "rank %u runs %s, but never %s",
               r, copy_text(s, one), copy_text(s, &other));
    diag_help(s->diag, off ? "write LOAD(m) before the backward, or drop OFF(m)"
                           : "write OFF(m) after F(m), or drop LOAD(m)");
    return false;
  }
  if (off->at <= f || off->at > w) {
    diag_error(s->diag, DIAG_OFFLOAD, s->orders->site[off->site], "rank %u runs %s %s %s", r,
               copy_text(s, off), off->at <= f ? "before" : "after",
               op_text(s, off->at <= f ? f : w));
    diag_note(s->diag, s->orders->site[s->orders->op[off->at <= f ? f : w].site],
              off->at > f ? "the stash is needed for the last time here"
              : own       ? "the stash is made here"
                          : "the last slice reads the stash here");
    diag_help(s->diag, s->model->slices > 1
                           ? "OFF(m, q) stands between the last F and the first backward of m"
                           : "OFF(m) stands between F(m) and its backward");
    return false;
  }
  uint32_t reader = next_reader(s, one->stage, one->mb, f);
  if (off->at > reader && off->at <= b) {
    diag_error(s->diag, DIAG_OFFLOAD, s->orders->site[off->site],
               "rank %u runs %s between %s and %s, while slices still read the stash", r,
               copy_text(s, off), op_text(s, reader), op_text(s, b));
    diag_note(s->diag, s->orders->site[s->orders->op[reader].site], "%s comes from here",
              op_text(s, reader));
    diag_help(s->diag, "OFF(m, q) stands between the last F and the first backward of m");
    return false;
  }
  if (load < off) {
    diag_error(s->diag, DIAG_OFFLOAD, s->orders->site[load->site], "rank %u runs %s before %s", r,
               copy_text(s, load), copy_text(s, off));
    diag_note(s->diag, s->orders->site[off->site], "the stash leaves here");
    diag_help(s->diag, "OFF(m) comes first, then LOAD(m)");
    return false;
  }
  uint32_t user = next_reader(s, one->stage, one->mb,
                              off->at); /* the first op that needs the stash back */
  if (load->at > user && !PLANTED(COPIES)) {
    diag_error(s->diag, DIAG_OFFLOAD, s->orders->site[s->orders->op[user].site],
               "rank %u runs %s between %s and %s: its stash is in host memory", r,
               op_text(s, user), copy_text(s, off), copy_text(s, load));
    diag_note(s->diag, s->orders->site[load->site], "the stash comes back here");
    diag_help(s->diag, "put LOAD(m) before the op");
    return false;
  }
  return true;
}

/* A copy in the order of its unit: a rank, or the ranks of a link. */
typedef struct Turn {
  uint64_t time;             /* end of the op before it, on an idle network */
  uint32_t unit, made, copy; /* made: OrderRun.made of that op */
} Turn;

static int by_unit(const void *a, const void *b) {
  const Turn *x = a, *y = b;
  if (x->unit != y->unit)
    return x->unit < y->unit ? -1 : 1;
  if (x->time != y->time)
    return x->time < y->time ? -1 : 1;
  if (x->made != y->made)
    return x->made < y->made ? -1 : 1;
  return x->copy < y->copy ? -1 : x->copy > y->copy;
}

/* note [turns]: the copies of a link take turns in the order in which the ops before them end on
 * an idle network; ties in the order of the play. */
static Turn *find_turns(Sched *s) {
  Turn *turn = arena_alloc(s->arena, s->orders->ncopy * sizeof *turn);
  for (uint32_t r = 0; r < s->model->nrank; r++)
    for (uint32_t i = s->orders->rank_copy0[r]; i < s->orders->rank_copy0[r + 1]; i++) {
      bool first = s->orders->copy[i].at == s->orders->rank_op0[r];
      turn[i] = (Turn){.unit = r, .copy = i};
      if (!shares_link(s, r))
        continue;
      turn[i].unit = s->model->nrank + s->model->copy_link[r];
      turn[i].time = first ? 0 : s->ideal->end[s->orders->copy[i].at - 1];
      turn[i].made = first ? 0 : s->ideal->made[s->orders->copy[i].at - 1];
    }
  if (s->model->copy_link)
    qsort(turn, s->orders->ncopy, sizeof *turn, by_unit);
  return turn;
}

/* Plays the COPY streams beside the ops on an idle network. Ensures plan and free_at; see
 * note [free_at]. */
static void play(Sched *s, Orders *orders) {
  const Turn *turn = find_turns(s);
  uint32_t *free_at = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  uint64_t now = 0;
  memcpy(free_at, s->orders->rank_op0, s->model->nrank * sizeof *free_at);
  for (uint32_t i = 0; i < s->orders->ncopy; i++) {
    Copy *c = &orders->copy[turn[i].copy];
    uint32_t r = rank_of(s, c), last = s->orders->rank_op0[r + 1];
    if (i == 0 || turn[i].unit != turn[i - 1].unit)
      now = 0;
    uint64_t from = c->at > s->orders->rank_op0[r] ? s->ideal->end[c->at - 1] : 0;
    c->plan = from > now ? from : now;
    now = c->plan + cost(s, c);
    free_at[r] = c->at > free_at[r] ? c->at : free_at[r];
    uint32_t latest = c->free_by ? c->free_by - 1 : last;
    while (free_at[r] < last && free_at[r] < latest && starts(s, free_at[r]) < now)
      free_at[r]++;
    c->free_at = free_at[r];
  }
}

bool offload(Sched *s, Orders *orders, Sides *sides) {
  if (s->orders->noffload > 0 && s->model->forward) {
    diag_error(s->diag, DIAG_OFFLOAD, s->orders->offload[0]->at,
               "'offload' in a forward-only schedule: no op reads a stash");
    diag_note(s->diag, s->model->pipe[0].clause->at, "this pipe is 'forward'");
    return false;
  }
  uint32_t nwritten = s->orders->ncopy;
  orders->rank_copy0 = NEW_ARRAY(s->arena, uint32_t, s->model->nrank + 1);
  if (!add_clauses(s, orders))
    return false;
  add_sides(s, orders, sides);
  if (s->orders->ncopy == 0)
    return side_buffers(s, sides);
  sort(s, orders, nwritten);
  bool ok = true;
  for (uint32_t i = 0; i < s->orders->ncopy; i++) {
    size_t cell;
    if (s->orders->copy[i].kind == PIPE_SIDE_COPY)
      continue;
    cell = (size_t)s->orders->copy[i].stage * s->model->nmb + s->orders->copy[i].mb;
    if (s->orders->copy[i].kind == PIPE_OFF || !s->orders->at_off[cell])
      ok &= check_cell(s, cell);
    if (s->diag->errors > s->diag->limit)
      return false;
  }
  if (ok)
    play(s, orders);
  return ok && side_buffers(s, sides);
}

void offload_streams(Sched *s, Lowered *lowered) {
  if (s->orders->ncopy == 0)
    return;
  PipeInstr *out = lowered->stream[0].copy; /* by row of Orders.copy */
  if (!out)
    out = arena_alloc(s->arena, s->orders->ncopy * sizeof *out);
  for (uint32_t r = 0; r < s->model->nrank; r++)
    lowered->stream[r].copy = out + s->orders->rank_copy0[r];
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    uint32_t first = s->orders->rank_copy0[r], k = first,
             over = 0; /* copies up to the last OFF whose slot is free: F waits for them */
    for (uint32_t i = first; i < s->orders->rank_copy0[r + 1]; i++) {
      const Copy *c = &s->orders->copy[i];
      PipeInstr *in = &out[i];
      if (c->kind == PIPE_SIDE_COPY) {
        *in = side_instr(s, &s->sides->use[c->use]);
        wait_for(s, lowered, r, in, PIPE_COMPUTE, c->at - s->orders->rank_op0[r]);
        lowered->side_pos[c->use] = i - first + 1;
        continue;
      }
      *in = pipe_instr((PipeOp)c->kind, c->stage, c->mb);
      in->phase = c->phase, in->site = c->site;
      in->peer = c->to;
      wait_for(s, lowered, r, in, PIPE_COMPUTE, c->at - s->orders->rank_op0[r]);
      if (c->kind == PIPE_LOAD)
        wait_for(s, lowered, r, op_instr(s, lowered, r, load_reader(s, c)), PIPE_COPY,
                 i - first + 1);
    }
    for (uint32_t op = s->orders->rank_op0[r]; op < s->orders->rank_op0[r + 1]; op++) {
      for (; k < s->orders->rank_copy0[r + 1] && s->orders->copy[k].free_at <= op; k++)
        over = s->orders->copy[k].kind == PIPE_OFF ? k - first + 1 : over;
      if (s->orders->op[op].kind == PIPE_F)
        wait_for(s, lowered, r, op_instr(s, lowered, r, op), PIPE_COPY, over);
    }
  }
}

/* ---- slots on other ranks ---- */

/* The slots of one size that a rank has in the memory of another. */
typedef struct Guest {
  uint32_t rank, to, stage, first;
  uint64_t bytes;
  uint32_t *free, nfree, cap, count;
} Guest;

/* Assigns GUEST slots by interval colouring. The copies of a rank run one after the other: an OFF
 * takes a slot, and its LOAD frees it for the next OFF. The pools come last on the rank that has
 * the memory, in the order of the ranks that use them. */
void offload_guests(Sched *s, Lowered *lowered) {
  VEC(Guest) all = {0};
  uint32_t *of = arena_alloc(s->arena, (s->orders->ncopy + (size_t)1) *
                                           sizeof *of); /* [ncopy] row of `all` */
  uint32_t *more = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank && s->orders->ncopy; r++) {
    uint32_t first = all.n;
    for (uint32_t i = s->orders->rank_copy0[r]; i < s->orders->rank_copy0[r + 1]; i++) {
      const Copy *c = &s->orders->copy[i];
      const PipeStage *st = &s->model->stage[c->stage];
      PipeInstr *in = &lowered->stream[0].copy[i];
      uint32_t g = first;
      if (c->to == NONE)
        continue;
      while (g < all.n && (all.at[g].to != c->to || all.at[g].bytes != st->act_bytes ||
                           (!s->model->sized && all.at[g].stage != c->stage)))
        g++;
      if (g == all.n) {
        *vec_push(s->arena, &all) = (Guest){r, c->to, c->stage, 0, st->act_bytes, NULL, 0, 0, 0};
        more[c->to]++;
      }
      Guest *q = &all.at[g];
      of[i] = g;
      if (c->kind == PIPE_OFF) {
        in->away = q->nfree > 0 ? q->free[--q->nfree] : q->count++;
        continue;
      }
      in->away = lowered->stream[0]
                     .copy[s->orders->at_off[(size_t)c->stage * s->model->nmb + c->mb] - 1]
                     .away;
      if (q->nfree == q->cap)
        vec_grow(s->arena, (void **)&q->free, &q->cap, sizeof *q->free);
      q->free[q->nfree++] = in->away;
    }
  }
  for (uint32_t r = 0; r < s->model->nrank; r++)
    if (more[r]) {
      PipePool *pool = NEW_ARRAY(s->arena, PipePool, lowered->npool[r] + more[r]);
      memcpy(pool, lowered->pool[r], lowered->npool[r] * sizeof *pool);
      lowered->pool[r] = pool;
    }
  for (uint32_t g = 0; g < all.n; g++) {
    Guest *q = &all.at[g];
    q->first = lowered->nrank_slot[q->to];
    lowered->pool[q->to][lowered->npool[q->to]++] = (PipePool){.cls = PIPE_GUEST,
                                                               .stage = q->stage,
                                                               .first = q->first,
                                                               .count = q->count,
                                                               .bytes = q->bytes};
    lowered->nrank_slot[q->to] += q->count;
    lowered->peak[q->to].guests += q->count;
  }
  for (uint32_t i = 0; i < s->orders->ncopy; i++)
    if (s->orders->copy[i].to != NONE)
      lowered->stream[0].copy[i].away += all.at[of[i]].first;
}
