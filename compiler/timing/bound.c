/* SPDX-License-Identifier: MIT
 * Computes lower bounds of a step. They hold for every order of the ranks with the same ops at the
 * same places and costs, and with no more stashes on a rank than this order has: no such order has
 * a shorter makespan or a shorter span. A B may be split. Requires slots. The bounds ignore
 * streams, slots, and transfers in each other's way, which only slow a program down. Cost: linear
 * in ops, and in rows times microbatches.
 *
 * Definitions: head(x) is the earliest start of op x; tail(x) is the least time from the end of x
 * to the end of the step. Both are longest chains of data dependences. On rank r, F are the
 * forwards and D the backwards for the input; f and d are their times, b is the time of a whole
 * backward, u of the updates.
 *
 *   work       least head(F) + sum(f + b + u), as ops of a rank do not overlap
 *   forwards   least head(F) + sum f + least tail(F): the last forward is followed by its own tail
 *   inputs     least head(F) + sum(f + d) + least tail(D)
 *   backwards  least head(D) + sum(b + u)
 *
 * note [stashes]: idle times that follow from room for L stashes on a rank.
 *
 * Lemma 1: before its first backward the rank idles at least (least head(D)) - L f. Proof: at most
 * L forwards start before the first backward.
 *
 * Lemma 2: after its last forward the rank idles at least (least tail(F)) - L b - u. Proof: at most
 * L stashes are alive then, and all remaining work is theirs.
 *
 * With more than L forwards the two idle times are disjoint, and both add to the work.
 *
 * Lemma 3 (Little's law): the stash of every microbatch lives at least from head(F) to the end of
 * its backward, and at most L live at a time. Source of the argument: Qi et al. 2023 and 2024
 * (arXiv 2401.10241, 2405.15362).
 *
 * note [windows]: the span obeys the same bounds, counted from the first start on the rank. A chain
 * then counts from the first forward of the microbatch on the rank to its backward. This is exact
 * where the ops of a microbatch are one chain; elsewhere only the work counts.
 *
 * note [home]: suppose one rank has the first stages of all pipes. Then every microbatch starts
 * there, and its last gradient ends there. So the span of this rank is at least head(F) + sum(f +
 * d) + least tail(D) of any rank, with tails that end on this rank.
 *
 * note [units]: the ops of a rank, a stage or a microbatch may have different times. f, d and b are
 * the times of each op: a sum adds each of them, a chain is a chain of ops, and L forwards, or L
 * backwards, take at most L times the longest of the rank.
 *
 * note [joined]: an action of one F and one B may take less time than both. Where it does, a chain
 * counts the two with the time of the action, and a sum leaves out what each F can save. */
#include <string.h>

#include "timing.h"
#include "graph.h"
#include "lower.h"
#include "orders.h"

typedef struct Cost {           /* of a row, or of one of its units if these differ */
  uint64_t f, d, b;             /* lengths in chains */
  uint64_t sum_f, sum_b, saved; /* lengths in sums; saved: by an F that shares an action with a B */
  uint64_t after;               /* from the last gradient to the end of its update */
} Cost;

typedef struct Bounds {
  const Sched *s;
  Arena *arena;
  Cost *cost;     /* [nstage], or in the shape of Model.unit_time */
  uint32_t width; /* nmb, or 1: times are the same for all microbatches of a row */
  /* [2][nstage][width] of B and I, of F (time_at); one array: tails first, then heads */
  uint64_t *head, *tail;
  uint64_t *least_tail[2]; /* [nrank] of F; of B and I. UINT64_MAX: the rank has none */
  uint64_t *least_home;    /* [nrank] note [home]: as least_tail[1], for tails that end there */
  uint32_t home;           /* rank where tails end; NONE: any rank */
  bool chain;              /* the ops of each microbatch are one chain */
  uint64_t *first, *last;  /* [nmb] on one rank: least head of an F, latest end of a backward */
  uint32_t *seen;          /* [nmb] 1 + the last rank that set `first` */
} Bounds;

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* n * v; saturates. */
static uint64_t times(uint64_t n, uint64_t v) {
  return v && n > UINT64_MAX / v ? UINT64_MAX : n * v;
}

static const Cost *cost_at(const Bounds *x, uint32_t row, uint32_t mb) {
  const Model *m = x->s->model;
  uint32_t n = m->nunit_time;
  return &x->cost[n ? (size_t)row * n + (mb - m->stage[row].mb0) % n : row];
}

static void fill_costs(Sched *s, Bounds *x) {
  uint64_t joined = UINT64_MAX, most_b = 0;
  uint32_t n = s->model->nunit_time ? s->model->nunit_time : 1;
  PipeTimes of = sched_times(s);
  for (uint32_t i = 0; i < s->model->nstage * n; i++) {
    const PipeStage *p = &s->model->stage[i / n];
    const uint64_t *t = s->model->unit_time ? pipe_unit_times(of, i / n, p->mb0 + i % n) : p->time;
    uint64_t fb = pipe_fused_time(of, i / n, p->mb0 + i % n);
    joined = fb ? least(joined, fb) : joined;
    most_b = most(most_b, t[PIPE_B]);
  }
  x->cost = NEW_ARRAY(x->arena, Cost, (size_t)s->model->nstage * n);
  for (uint32_t i = 0; i < s->model->nstage * n; i++) {
    const PipeStage *p = &s->model->stage[i / n];
    const uint64_t *t = s->model->unit_time ? pipe_unit_times(of, i / n, p->mb0 + i % n) : p->time;
    uint64_t fb = pipe_fused_time(of, i / n, p->mb0 + i % n);
    Cost *c = &x->cost[i];
    fb = fb ? fb : UINT64_MAX;
    c->sum_f = t[PIPE_F], c->sum_b = least(t[PIPE_B], t[PIPE_I] + t[PIPE_W]);
    c->saved = less(t[PIPE_F] + most_b, fb);
    c->f = least(t[PIPE_F], fb);
    c->d = least(least(t[PIPE_B], t[PIPE_I]), joined);
    c->b = least(c->sum_b, joined);
    if (!s->model->forward)
      c->after = p->time[PIPE_U] + (p->replica != i / n ? p->time[PIPE_REDUCE] : 0) +
                 (p->tied != NONE ? p->time[PIPE_TIE] : 0);
  }
}

static uint64_t length(const Bounds *x, uint32_t row, uint32_t mb, bool forward) {
  return forward ? cost_at(x, row, mb)->f : cost_at(x, row, mb)->d;
}

static uint64_t *time_at(const Bounds *x, uint64_t *time, uint32_t row, uint32_t mb, bool forward) {
  return &time[((size_t)x->s->model->nstage * forward + row) * x->width + (x->width > 1 ? mb : 0)];
}

/* With width 1: for any microbatch of the row. */
static bool has_op(const Bounds *x, uint32_t row, uint32_t mb, bool forward) {
  const Model *m = x->s->model;
  if (m->forward && !forward)
    return false;
  return x->width > 1 ? *op_at(x->s, forward, row, mb) > 0 : m->stage[row].nmb > 0;
}

/* The ops of row b need the ops of row a, and start at least `hop` after them. Raises the heads of
 * b (heads), or the tails of a. */
static void join(Bounds *x, bool heads, uint32_t a, bool a_forward, uint32_t b, bool b_forward,
                 uint64_t hop) {
  for (uint32_t mb = 0; mb < x->width; mb++) {
    if (!has_op(x, a, mb, a_forward) || !has_op(x, b, mb, b_forward))
      continue;
    uint64_t *from = time_at(x, heads ? x->head : x->tail, a, mb, a_forward),
             *to = time_at(x, heads ? x->head : x->tail, b, mb, b_forward);
    if (heads)
      *to = most(*to, *from + length(x, a, mb, a_forward) + hop);
    else
      *from = most(*from, hop + length(x, b, mb, b_forward) + *to);
  }
}

/* Raises the heads of the ops that need ops of `row`; or computes the tails of `row`. */
static void fill_row(const Sched *s, Bounds *x, uint32_t row, bool forward, bool heads) {
  const PipeStage *st = &s->model->stage[row];
  const bool ends = !forward && (x->home == NONE || st->rank == x->home);
  for (uint32_t mb = 0; mb < x->width && !heads; mb++) {
    const Cost *c = has_op(x, row, mb, forward) ? cost_at(x, row, mb) : NULL;
    if (c)
      *time_at(x, x->tail, row, mb, forward) = ends ? less(c->b, c->d) + c->after : 0;
  }
  for (uint32_t k = 0, n = row_links(s, row, forward); k < n; k++) {
    const Link l = link_at(s, row_link(s, row, forward, k));
    const uint32_t to = forward ? l.to : l.from;
    const bool crosses = s->model->stage[to].rank != st->rank;
    join(x, heads, row, forward, to, forward, crosses ? edge_time(s, l.edge, row, forward) : 0);
  }
  if (forward && !s->model->forward)
    join(x, heads, row, true, row, false, 0);
}

/* Computes heads, or tails, of F (forward) or of B and I, row by row in the direction of the
 * data. */
static void fill_rows(Sched *s, Bounds *x, bool forward, bool heads) {
  for (uint32_t j = 0; j < s->model->nmodel; j++) {
    uint32_t m = forward == heads ? j : s->model->nmodel - 1 - j, row = m;
    do
      fill_row(s, x, row, forward, heads);
    while ((row = s->model->stage[row].replica) != m);
  }
}

/* The least tail of F (forward), or of B and I, of each rank; UINT64_MAX: the rank has no such
 * op. */
static uint64_t *least_of_ranks(const Sched *s, const Bounds *x, bool forward) {
  const Model *m = s->model;
  uint64_t *of = NEW_ARRAY(x->arena, uint64_t, m->nrank);
  memset(of, 0xff, m->nrank * sizeof *of);
  for (uint32_t row = 0; row < m->nstage; row++)
    for (uint32_t mb = 0; mb < x->width; mb++)
      if (has_op(x, row, mb, forward))
        of[m->stage[row].rank] = least(of[m->stage[row].rank],
                                       *time_at(x, x->tail, row, mb, forward));
  return of;
}

/* The rank of note [home]; NONE: there is none. */
static uint32_t find_home(const Sched *s) {
  uint32_t home = NONE;
  for (uint32_t i = 0; i < s->model->nstage; i++) {
    const PipeStage *p = &s->model->stage[i];
    if (p->prev == NONE && home != NONE && home != p->rank)
      return NONE;
    home = p->prev == NONE ? p->rank : home;
  }
  return s->model->forward || s->model->graph || s->model->unit_time ? NONE : home;
}

/* Computes heads in the direction of the data: F goes up the stages of the model, B and I down, a B
 * comes after its F. Tails go the other way; only the least tail of each rank is kept. */
static void fill_chains(Sched *s, Bounds *x) {
  x->width = s->model->graph || s->model->unit_time ? s->model->nmb : 1;
  const size_t n = 2 * (size_t)s->model->nstage * x->width;
  x->head = x->tail = arena_alloc(x->arena, n * sizeof *x->head);
  x->chain = true;
  for (uint32_t i = 0; i < s->model->nstage; i++)
    x->chain &= s->model->stage[i].nin <= 1 && s->model->stage[i].nout <= 1;
  x->home = find_home(s);
  if (x->home != NONE) {
    fill_rows(s, x, false, false);
    x->least_home = least_of_ranks(s, x, false);
  }
  x->home = NONE;
  if (!s->model->forward)
    fill_rows(s, x, false, false);
  fill_rows(s, x, true, false);
  for (int back = 0; back < 2; back++)
    x->least_tail[back] = least_of_ranks(s, x, !back);
  memset(x->head, 0, n * sizeof *x->head);
  fill_rows(s, x, true, true);
  if (!s->model->forward)
    fill_rows(s, x, false, true);
}

typedef struct RankSums {
  uint64_t f, d, b, u, saved, work;
  uint64_t head_f, tail_f, head_d, tail_d; /* least */
  uint64_t most_f, most_b;                 /* of a single op */
  uint64_t into, out;                      /* note [windows]: to the first D; from the last F */
  unsigned __int128 lives;
  uint32_t nf;
  bool again; /* the rank has R */
} RankSums;

static RankSums sum_rank(const Bounds *x, uint32_t r) {
  const Sched *s = x->s;
  RankSums t = {.head_f = UINT64_MAX,
                .tail_f = x->least_tail[0][r],
                .head_d = UINT64_MAX,
                .tail_d = x->least_tail[1][r],
                .into = UINT64_MAX,
                .out = UINT64_MAX};
  for (uint32_t i = s->orders->rank_op0[r]; i < s->orders->rank_op0[r + 1]; i++) {
    const Op *o = &s->orders->op[i];
    const Cost *c = o->kind == PIPE_U ? NULL : cost_at(x, o->stage, o->mb);
    t.u += o->kind == PIPE_U ? s->model->stage[o->stage].time[PIPE_U] : 0;
    t.again |= o->kind == PIPE_R;
    t.work += o->kind == PIPE_R ? op_cost(s, s->model->stage, false, i) : 0;
    if (!has_tensors(o->kind))
      continue;
    const uint64_t head = *time_at(x, x->head, o->stage, o->mb, o->kind == PIPE_F);
    bool seen = x->seen[o->mb] == r + 1;
    if (!seen)
      x->seen[o->mb] = r + 1, x->first[o->mb] = UINT64_MAX, x->last[o->mb] = 0;
    if (o->kind == PIPE_F) {
      t.nf++;
      t.f += c->f, t.saved += c->saved, t.work += c->sum_f;
      t.most_f = most(t.most_f, c->sum_f);
      t.head_f = least(t.head_f, head);
      x->first[o->mb] = least(x->first[o->mb], head);
    } else {
      t.d += c->d, t.b += c->b, t.work += c->sum_b;
      t.most_b = most(t.most_b, c->sum_b);
      t.head_d = least(t.head_d, head);
      x->last[o->mb] = most(x->last[o->mb], head + c->b + c->after);
      t.lives += head + c->b - *time_at(x, x->head, o->stage, o->mb, true);
    }
  }
  t.work = less(t.work, t.saved) + t.u;
  for (uint32_t i = s->orders->rank_op0[r]; i < s->orders->rank_op0[r + 1] && !s->model->forward;
       i++) {
    const Op *o = &s->orders->op[i];
    if (!has_tensors(o->kind))
      continue;
    const uint64_t head = *time_at(x, x->head, o->stage, o->mb, o->kind == PIPE_F);
    if (o->kind == PIPE_F)
      t.out = least(t.out, x->last[o->mb] - (head + cost_at(x, o->stage, o->mb)->f));
    else
      t.into = least(t.into, head - x->first[o->mb]);
  }
  return t;
}

/* The idle time at both ends that `room` stashes cannot fill. */
static uint64_t forced_idle(const RankSums *t, uint64_t before, uint64_t after, uint64_t room) {
  uint64_t a = less(before, times(room, t->most_f)),
           b = less(less(after, times(room, t->most_b)), t->u);
  return t->nf > room ? a + b : most(a, b);
}

Timing bound_of(Sched *s, Arena *a, const int64_t *room) {
  Bounds x = {.s = s, .arena = a};
  fill_costs(s, &x);
  fill_chains(s, &x);
  x.first = NEW_ARRAY(a, uint64_t, s->model->nmb);
  x.last = NEW_ARRAY(a, uint64_t, s->model->nmb);
  x.seen = NEW_ARRAY(a, uint32_t, s->model->nmb);
  Timing bound = {0};
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    RankSums t = sum_rank(&x, r);
    if (t.nf == 0)
      continue;
    uint64_t window = t.work, all = t.head_f + t.work;
    all = most(all, t.head_f + t.f + t.tail_f);
    if (!s->model->forward) {
      all = most(all, t.head_f + less(t.f + t.d, t.saved) + t.tail_d);
      all = most(all, t.head_d + t.b + t.u);
    }
    if (!s->model->forward && x.chain) {
      window = most(window, t.into + t.b + t.u);
      window = most(window, t.f + t.out);
    }
    if (!s->model->forward && x.chain && !t.again && s->orders->ncopy == 0) {
      window = most(window, t.work + forced_idle(&t, t.into, t.out, (uint64_t)room[r]));
      window = most(window, (uint64_t)((t.lives + (uint64_t)room[r] - 1) / (uint64_t)room[r]));
      all = most(all, t.work + forced_idle(&t, t.head_d, t.tail_f, (uint64_t)room[r]));
    }
    bound.span = most(bound.span, window);
    if (x.least_home)
      bound.span = most(bound.span, t.head_f + less(t.f + t.d, t.saved) + x.least_home[r]);
    bound.makespan = most(bound.makespan, most(all, t.head_f + window));
  }
  return bound;
}

Timing program_bound(Sched *s) {
  int64_t *room = NEW_ARRAY(s->arena, int64_t, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++)
    room[r] = s->lowered->peak[r].inflight;
  Arena own = {0};
  Timing bound = bound_of(s, &own, room);
  arena_free(&own);
  bound.busy = s->times->busy;
  return bound;
}
