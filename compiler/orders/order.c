/* SPDX-License-Identifier: MIT
 * Plays the compute ops on an idle network: each rank in its order, each action as soon as its
 * tensors are there. Requires check_deps. Proves that the orders of the ranks agree with the data;
 * if they do not, the schedule deadlocks under every channel model. Ensures the one global order of
 * transfers, which the lowering `global` gives to every rank: by the time at which a transfer could
 * start. Transfers that could start at one time are ordered
 *
 *   - by turn_of, gradients first, then activations, then sums, if every op takes time, equal for
 *     all microbatches, and no stages are tied (takes_time);
 *   - otherwise in the order of the data;
 *   - with side ops in COMM streams, in the order of the play (by_time).
 *
 * Every dependence points forward in this order, so with enough slots it cannot deadlock.
 *
 * Why not the machine of machine.h: it plays transfers, and there are none yet, because the times
 * found here sort them. Searches also call this player thousands of times.
 *
 * Method: marked graph. There is no choice, so one pass over the ops decides. The sort is a radix
 * sort. Cost: linear. The play moves between ranks too irregularly for the hardware to predict, so
 * it prefetches the data of an op some ops ahead. */
#include <string.h>

#include "base.h"
#include "deps.h"
#include "graph.h"
#include "orders.h"
#include "plant.h"

static bool waits_for_others(const Sched *s, uint32_t row) {
  return !s->model->forward && is_summed(s, row);
}

/* The last gradient op that U u waits for, of a replica or tied stage, and that has not run; NONE:
 * there is none. head: next op of each rank. */
static uint32_t order_late_replica(const Sched *s, uint32_t u, const uint32_t *head) {
  uint32_t st = s->orders->op[u].stage;
  if (!waits_for_others(s, st))
    return NONE;
  uint32_t k = round_of(s, u) - s->orders->round0[st];
  for (uint32_t at = 0, q = 0; order_member(s, st, &at, &q);)
    if (s->orders->round[s->orders->round0[q] + k].grad >= head[s->model->stage[q].rank])
      return s->orders->round[s->orders->round0[q] + k].grad;
  return NONE;
}

/* Op i adds the last gradient to update k of its row. If all replicas then have theirs, the sum can
 * start: returns the op among them that ended last, else NONE. */
static uint32_t last_of_replicas(const Sched *s, const OrderRun *run, uint32_t i, uint32_t k) {
  uint32_t st = s->orders->op[i].stage, last = i;
  if (s->model->stage[st].replica == st)
    return NONE;
  for (uint32_t q = s->model->stage[st].replica; q != st; q = s->model->stage[q].replica) {
    uint32_t g = s->orders->round[s->orders->round0[q] + k].grad;
    if (g >= run->head[s->model->stage[q].rank])
      return NONE;
    if (run->end[g] > run->end[last])
      last = g;
  }
  return last;
}

/* Like last_of_replicas, for all rows of a tie. */
static uint32_t last_of_tie(const Sched *s, const OrderRun *run, uint32_t i, uint32_t turn) {
  uint32_t st = s->orders->op[i].stage, last = i;
  if (s->model->stage[st].tied == NONE)
    return NONE;
  uint32_t k = s->model->tie_of[st];
  for (uint32_t j = s->model->tie_row0[k]; j < s->model->tie_row0[k + 1]; j++) {
    uint32_t g = s->orders->round[s->orders->round0[s->model->tie_row[j]] + turn].grad;
    if (g != i && g >= run->head[s->model->stage[s->model->tie_row[j]].rank])
      return NONE;
    if (run->end[g] > run->end[last])
      last = g;
  }
  return last;
}

/* The time at which the sums for update k of a row end. */
static uint64_t sums_end(const Sched *s, const OrderRun *run, uint32_t row, uint32_t k) {
  const PipeStage *cost = run->stage;
  uint64_t end = 0;
  bool tied = s->model->stage[row].tied != NONE;
  for (uint32_t at = 0, q = 0; order_member(s, row, &at, &q);) {
    uint64_t there = run->end[s->orders->round[s->orders->round0[q] + k].grad];
    if (s->model->stage[q].replica != q)
      there += cost[run->uniform ? 0 : q].time[PIPE_REDUCE];
    end = there > end ? there : end;
  }
  return end + (tied ? cost[run->uniform ? 0 : row].time[PIPE_TIE] : 0);
}

/* Raises *start to the time at which op i, of the action that begins with op `first`, has all that
 * it waits for. turn: updates of its stage so far. False: a rank has not made an input yet. */
static bool arrived(const Sched *s, OrderRun *run, uint32_t r, uint32_t first, uint32_t i,
                    uint32_t turn, uint64_t *start) {
  const Op *o = &s->orders->op[i];
  for (uint32_t k = 0, n = op_inputs(s, o); k < n; k++) {
    uint32_t row = dep_maker(s, o, k), dep = dep_op(s, o, row), q = s->model->stage[row].rank;
    if (dep >= (q == r ? i : run->head[q]) && !PLANTED(ORDER_DATA))
      return false;
    uint64_t send = q == r         ? 0
                    : run->uniform ? send_time(&run->stage[0], o->kind)
                                   : input_time(s, o, k);
    if (run->end[dep] + send > *start)
      *start = run->end[dep] + send;
  }
  if (o->kind == PIPE_U && waits_for_others(s, o->stage)) {
    run->head[r] = first; /* rows of a tie may be on this rank */
    if (order_late_replica(s, i, run->head) != NONE)
      return false;
    uint64_t sum = sums_end(s, run, o->stage, turn);
    *start = sum > *start ? sum : *start;
  }
  return true;
}

/* Plays the action first..last of a rank from `start` on. Sets the times at which the outputs of
 * its ops can leave, and returns its end. */
static uint64_t play_action(const Sched *s, OrderRun *run, uint32_t first, uint32_t last,
                            uint64_t start) {
  const PipeStage *cost = run->stage;
  if (first == last)
    return run->end[first] = start + op_cost(s, cost, run->uniform, first);
  uint64_t end = start + action_time(s, cost, run->uniform, first), at = start;
  for (uint32_t i = first; i <= last; i++) {
    at += op_cost(s, cost, run->uniform, i);
    run->end[i] = s->orders->send == SEND_EAGER && i < last && at < end ? at : end;
  }
  return end;
}

/* Prefetches what the play touches for ops some way below op i of the rank. */
static inline void fetch_ahead(const Sched *s, const OrderRun *run, uint32_t i) {
  enum { AHEAD = 16, OPS_AHEAD = 24 };
  if (i + OPS_AHEAD >= s->orders->nop)
    return;
  __builtin_prefetch(&s->orders->op[i + OPS_AHEAD]);
  __builtin_prefetch(&run->end[i + AHEAD], 1);
  const Op *o = &s->orders->op[i + AHEAD];
  if (op_inputs(s, o) > 0)
    __builtin_prefetch(op_at(s, o->kind == PIPE_F, dep_maker(s, o, 0), o->mb));
  if (op_outputs(s, o) > 0)
    __builtin_prefetch(op_at(s, o->kind == PIPE_F, dep_reader(s, o, 0), o->mb));
}

bool order_run(Sched *s, OrderRun *run) {
  uint32_t *work = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  uint8_t *queued = NEW_ARRAY(s->arena, uint8_t, s->model->nrank);
  uint32_t *updates = NEW_ARRAY(s->arena, uint32_t, s->model->nstage); /* updates that have run */
  uint64_t *now = NEW_ARRAY(s->arena, uint64_t, s->model->nrank),
           *first = NEW_ARRAY(s->arena, uint64_t, s->model->nrank),
           *stop = NEW_ARRAY(s->arena, uint64_t, s->model->nrank); /* end of the last action */
  uint32_t nwork = 0, left = s->orders->nop;
  run->nxfer = 0;
  run->t = (Timing){0, 0, 0};
  for (uint32_t r = s->model->nrank; r-- > 0;) {
    run->head[r] = s->orders->rank_op0[r];
    first[r] = UINT64_MAX;
    work[nwork++] = r;
    queued[r] = 1;
  }
  while (nwork > 0) {
    guard_poll();
    uint32_t r = work[--nwork], i = run->head[r], end = s->orders->rank_op0[r + 1];
    queued[r] = 0;
    while (i < end) {
      uint32_t first_op = i, last_op = i + s->orders->op[i].group;
      uint64_t start = now[r];
      bool ready = true;
      fetch_ahead(s, run, i);
      for (uint32_t m = first_op; m <= last_op && ready; m++)
        ready = arrived(s, run, r, first_op, m, updates[s->orders->op[m].stage], &start);
      if (!ready)
        break;
      now[r] = stop[r] = play_action(s, run, first_op, last_op, start);
      run->t.busy += now[r] - start;
      if (first[r] == UINT64_MAX)
        first[r] = start;
      i = last_op + 1;
      left -= i - first_op;
      for (uint32_t m = first_op; m < i; m++) {
        const Op *o = &s->orders->op[m];
        uint32_t turn = updates[o->stage];
        updates[o->stage] += o->kind == PIPE_U;
        uint32_t last = NONE, all = NONE; /* sums that can start now */
        if (o->kind < PIPE_U && waits_for_others(s, o->stage) &&
            s->orders->round[s->orders->round0[o->stage] + turn].grad == m) {
          run->head[r] = m + 1; /* op m has run, and rows of a tie may be on this rank */
          last = last_of_replicas(s, run, m, turn), all = last_of_tie(s, run, m, turn);
          for (uint32_t at = 0, q = 0;
               (last != NONE || all != NONE) && order_member(s, o->stage, &at, &q);) {
            uint32_t other = s->model->stage[q].rank, h = run->head[other],
                     u = s->orders->round[s->orders->round0[q] + turn].u;
            if (other != r && h <= u && u <= h + s->orders->op[h].group && !queued[other]) {
              queued[other] = 1;
              work[nwork++] = other;
            }
          }
        }
        for (uint32_t k = 0, n = op_outputs(s, o); k < n; k++) {
          uint32_t row = dep_reader(s, o, k), user = dep_op(s, o, row),
                   q = s->model->stage[row].rank;
          if (q == r)
            continue;
          if (run->xfer)
            run->xfer[run->nxfer++] = (Xfer){m, user};
          uint32_t h = run->head[q];
          if (h <= user && user <= h + s->orders->op[h].group && !queued[q]) {
            queued[q] = 1;
            work[nwork++] = q;
          }
        }
        if (run->xfer && last != NONE) /* after the tensors, for which ranks wait */
          run->xfer[run->nxfer++] = (Xfer){last, XFER_REDUCE};
        if (run->xfer && all != NONE)
          run->xfer[run->nxfer++] = (Xfer){all, XFER_TIE};
      }
      for (uint32_t m = first_op; run->made && m < i; m++)
        run->made[m] = run->nxfer;
    }
    run->head[r] = i;
  }
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    if (stop[r] > run->t.makespan)
      run->t.makespan = stop[r];
    if (first[r] != UINT64_MAX && stop[r] - first[r] > run->t.span)
      run->t.span = stop[r] - first[r];
  }
  return left == 0;
}

/* The op for which rank r, stuck at head[r], waits. *at: the op of the action there that needs
 * it. */
static uint32_t blocker(const Sched *s, const uint32_t *head, uint32_t r, uint32_t *at) {
  for (uint32_t h = *at = head[r]; h <= head[r] + s->orders->op[head[r]].group; h++) {
    uint32_t dep = s->orders->op[h].kind == PIPE_U ? order_late_replica(s, h, head) : NONE;
    *at = h;
    if (dep != NONE)
      return dep;
    for (uint32_t k = 0; (dep = order_dep(s, h, k)) != NONE; k++)
      if (dep >= head[op_rank(s, dep)])
        return dep;
  }
  return NONE;
}

/* Follows the waits from each rank and reports the shortest cycle among those found. */
static void report_cycle(Sched *s, Ideal *ideal, const uint64_t *end, const uint32_t *head) {
  uint32_t *mark = NEW_ARRAY(s->arena, uint32_t, s->model->nrank),
           *at = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  uint32_t best = NONE, best_len = NONE, h;
  bool joined = false;
  for (uint32_t r0 = 0; r0 < s->model->nrank; r0++) {
    uint32_t r = r0, step = 1;
    while (head[r] < s->orders->rank_op0[r + 1] && !mark[r]) {
      mark[r] = r0 + 1;
      at[r] = step++;
      uint32_t dep = blocker(s, head, r, &h);
      BUG_IF(dep == NONE);
      r = op_rank(s, dep);
    }
    if (head[r] < s->orders->rank_op0[r + 1] && mark[r] == r0 + 1 && step - at[r] < best_len) {
      best = r;
      best_len = step - at[r];
    }
  }
  BUG_IF(best == NONE);
  uint32_t r = best, dep, q, norder = 0;
  const char *change = "";
  StallHop *hop = ideal->cycle = NEW_ARRAY(s->arena, StallHop, best_len);
  ideal->ncycle = best_len;
  for (uint32_t i = 0; i < best_len; i++, r = q) {
    dep = blocker(s, head, r, &h), q = op_rank(s, dep);
    hop[i] = (StallHop){r, h, PLANTED(ORDER_CYCLE) ? head[q] : dep, NULL};
  }
  dep = hop[0].on, q = op_rank(s, dep), h = hop[0].at;
  if (best_len == 1) {
    diag_error(s->diag, DIAG_OP_ORDER, s->orders->site[s->orders->op[h].site],
               "rank %u runs %s before %s, whose result it needs", r, op_text(s, h),
               op_text(s, dep));
    diag_note(s->diag, s->orders->site[s->orders->op[dep].site], "%s comes from here",
              op_text(s, dep));
    return;
  }
  if (best_len == 2)
    diag_error(s->diag, DIAG_DEADLOCK, s->orders->site[s->orders->op[h].site],
               "deadlock: ranks %u and %u wait for each other; model: any", r, q);
  else
    diag_error(s->diag, DIAG_DEADLOCK, s->orders->site[s->orders->op[h].site],
               "deadlock: wait cycle of %u ranks; model: any", best_len);
  for (uint32_t i = 0; i < best_len; i++) {
    r = hop[i].rank, h = hop[i].at, dep = hop[i].on, q = op_rank(s, dep);
    const char *text = arena_printf(
        s->arena, "rank %u is at %s, which needs %s, %s", r, op_text(s, h), op_text(s, dep),
        dep == head[q]
            ? arena_printf(s->arena, "where rank %u is", q)
            : arena_printf(s->arena, "which rank %u runs only after %s", q, op_text(s, head[q])));
    hop[i].text = text;
    joined |= s->orders->op[head[r]].group > 0;
    if (i < 8 || i == best_len - 1)
      diag_note(s->diag, s->orders->site[s->orders->op[h].site], "%s", text);
    else if (i == 8)
      diag_note(s->diag, NO_SPAN, "and so on, %u more", best_len - 9);
    if (dep != head[q] && norder++ < 2)
      change = arena_printf(s->arena, "%s%srank %u has to run %s before %s", change,
                            norder == 2 ? ", or " : "", q, op_text(s, dep), op_text(s, head[q]));
  }
  if (joined)
    diag_help(s->diag,
              "the ops of an overlap start together: move the awaited op out of the overlap");
  else if (norder <= 2) /* all other waits of the cycle are needs of ops */
    diag_help(s->diag, "%s", change);
  Stall *stall = NEW(s->arena, Stall);
  *stall = (Stall){"deadlock", hop, best_len, NULL, end, head};
  ideal->stall = stall;
}

/* Does every op take time, the same for all microbatches, and are no stages tied? Ops without time
 * pass on tensors at once, so transfers of one time may need each other. */
static bool takes_time(const Sched *s) {
  for (uint32_t i = 0; i < s->model->nstage; i++) {
    const PipeStage *st = &s->model->stage[i];
    if (!st->time[PIPE_F] || !st->time[PIPE_R] ||
        (!s->model->forward && (!st->time[PIPE_B] || !st->time[PIPE_I] || !st->time[PIPE_W])))
      return false;
  }
  return s->model->unit_time == NULL && !s->model->tie_of;
}

/* Orders transfers of one time: gradients first, from the last rank up, then activations, from the
 * first rank down, then sums, for which only updates wait. */
static uint32_t turn_of(const Sched *s, const Xfer *x) {
  uint32_t r = op_rank(s, x->from), turn = s->orders->op[x->from].kind == PIPE_F
                                               ? s->model->nrank + r
                                               : s->model->nrank - 1 - r;
  return xfer_is_sum(x) ? 2 * s->model->nrank + turn : turn;
}

typedef struct Keyed {
  uint64_t key;
  Xfer x;
} Keyed;

/* Sorts x[n] by the times at which they can start; most: the latest time. If takes_time, ties go by
 * turn_of, so that a repeating order has no longer a period than its times. Otherwise ties keep the
 * order of the data. A radix sort. */
static void sort_by_time(const Sched *s, Xfer *x, uint32_t n, const uint64_t *end, uint64_t most) {
  enum { DIGIT = 11, N = 1 << DIGIT };
  uint64_t spread = !takes_time(s)                        ? 1
                    : s->model->nstage > s->model->nmodel ? 4 * (uint64_t)s->model->nrank
                                                          : 2 * (uint64_t)s->model->nrank;
  spread = most > UINT64_MAX / spread - 1 ? 1 : spread;
  Arena own = {0};
  Keyed *from = arena_alloc(&own, n * sizeof *from), *to = arena_alloc(&own, n * sizeof *to);
  for (uint32_t i = 0; i < n; i++)
    from[i] = (Keyed){end[x[i].from] * spread + (spread > 1 ? turn_of(s, &x[i]) : 0), x[i]};
  for (int shift = 0; shift < 64 && ((most + 1) * spread - 1) >> shift; shift += DIGIT) {
    uint32_t first[N + 1] = {0};
    for (uint32_t i = 0; i < n; i++)
      first[(from[i].key >> shift & (N - 1)) + 1]++;
    for (int d = 0; d < N; d++)
      first[d + 1] += first[d];
    for (uint32_t i = 0; i < n; i++)
      to[first[from[i].key >> shift & (N - 1)]++] = from[i];
    Keyed *t = from;
    from = to, to = t;
  }
  for (uint32_t i = 0; i < n; i++)
    x[i] = from[i].x;
  arena_free(&own);
}

/* A transfer, or a side op of a COMM stream, while they are sorted. */
typedef struct Placed {
  uint64_t time;
  uint32_t n;                 /* number of transfers made before it */
  uint32_t late, rank, at, i; /* rank, at: of a side op, else 0 */
  Xfer x;
} Placed;

static int by_time(const void *a, const void *b) {
  const Placed *x = a, *y = b;
  if (x->time != y->time)
    return x->time < y->time ? -1 : 1;
  if (x->n != y->n)
    return x->n < y->n ? -1 : 1;
  if (x->late != y->late)
    return x->late < y->late ? -1 : 1;
  if (x->rank != y->rank)
    return x->rank < y->rank ? -1 : 1;
  return x->at != y->at ? (x->at < y->at ? -1 : 1) : x->i < y->i ? -1 : x->i > y->i;
}

/* Sorts the transfers together with the side ops of COMM streams: a side op goes where the op
 * before it ends. Ties keep the order of the play (side.c, note [sides cannot stall]). */
static void sort_with_sides(Sched *s, Sides *sides, Ideal *ideal, const OrderRun *run) {
  uint32_t n = 0;
  Placed *all = arena_alloc(s->arena, (ideal->nxfer + (size_t)s->sides->ncomm) * sizeof *all);
  Xfer *to = arena_alloc(s->arena, (ideal->nxfer + (size_t)s->sides->ncomm) * sizeof *to);
  for (; n < ideal->nxfer; n++)
    all[n] = (Placed){run->end[ideal->xfer[n].from], n, 1, 0, 0, n, ideal->xfer[n]};
  for (uint32_t r = 0; r < s->model->nrank; r++)
    for (uint32_t i = s->sides->use0[r]; i < s->sides->use0[r + 1]; i++) {
      SideUse *u = &sides->use[i];
      if (u->kind != PIPE_SIDE_COMM)
        continue;
      if (u->latest)
        u->at = side_latest(s, u);
      uint32_t made = u->at > s->orders->rank_op0[r] ? run->made[u->at - 1] : 0;
      all[n++] = (Placed){side_start(s, r, u), made, 0, r, u->at, i, {i, XFER_SIDE}};
    }
  qsort(all, n, sizeof *all, by_time);
  for (uint32_t i = 0; i < n; i++)
    to[i] = all[i].x;
  ideal->xfer = to, ideal->nxfer = n;
}

bool order(Sched *s, Sides *sides, Ideal *ideal) {
  OrderRun run = {.stage = s->model->stage};
  if (s->sides->ncomm > 0 || s->model->copy_link)
    run.made = ideal->made = arena_alloc(s->arena, (size_t)s->orders->nop * sizeof *run.made);
  run.end = arena_alloc(s->arena, (size_t)s->orders->nop * sizeof *run.end);
  run.head = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  size_t most = (size_t)s->orders->nop + 2 * (size_t)s->model->nedge * s->model->nmb +
                (s->model->ntie ? s->orders->nop : 0);
  run.xfer = arena_alloc(s->arena, most * sizeof *run.xfer);
  if (!order_run(s, &run)) {
    report_cycle(s, ideal, run.end, run.head);
    return false;
  }
  ideal->time = run.t;
  ideal->done = true;
  ideal->end = run.end;
  ideal->nxfer = run.nxfer;
  ideal->xfer = run.xfer;
  if (s->sides->ncomm > 0)
    sort_with_sides(s, sides, ideal, &run);
  else
    sort_by_time(s, ideal->xfer, ideal->nxfer, run.end, run.t.makespan);
  return true;
}
