/* SPDX-License-Identifier: MIT
 * Finds the first fault when no rank can proceed, a step takes too long or a process is gone: not
 * the rank that noticed, but the end of its chain of waits.
 *
 * The place of each rank (PrPlace) and its table tell what its streams wait for: another stream of
 * the rank, or the other side of a transfer or sum. Following the waits from any rank leads to a
 * cause or into a wait cycle, which no program of pipec has by itself. Of all causes the gravest is
 * reported, with the instruction of another rank that waits for it first. Linear in the
 * instructions of the ranks examined.
 *
 * Lemma: without a fault, a stall contains a cycle of transfers. Proof: of the heads of the streams
 * of a rank, take the one that is highest in the list. Its waits are met, because waits point up.
 * So it is a transfer whose peer has not arrived, or it would run. The rank that it waits for has
 * instructions left, too.
 *
 * With lowering CHANNELS the place of a rank is the first COMM instruction of its list that has not
 * completed: the lists are one global order, so whatever blocks this instruction came first. */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ascending by gravity; the gravest is reported. */
typedef enum Cause { NONE, CYCLE, STUCK, RUNS, COPIES, NOT_BEGUN, LOST, SILENT, GONE } Cause;

typedef struct Blame {
  Cause cause;
  /* index: in the list of the rank; of NONE the instruction that waits for another rank; PIPE_NONE
   * for CYCLE, GONE and SILENT */
  uint32_t rank, index;
} Blame;

typedef struct Look {
  const PrRun *run;
  const PrPlace *place; /* [nrank] */
} Look;

/* Instructions of a stream that the rank has completed in its step. */
static uint32_t in_step(const PrPlace *at, uint64_t done, uint32_t n) {
  uint64_t before = at->step * n;
  return done <= before ? 0 : done - before < n ? (uint32_t)(done - before) : n;
}
static uint32_t compute_at(const Look *l, uint32_t r) {
  return in_step(&l->place[r], l->place[r].compute, l->run->rank[r].ncompute);
}
static uint32_t comm_at(const Look *l, uint32_t r) {
  return in_step(&l->place[r], l->place[r].comm, l->run->rank[r].ncomm);
}
static uint32_t copy_at(const Look *l, uint32_t r) {
  return in_step(&l->place[r], l->place[r].copy, l->run->rank[r].ncopy);
}

/* Transfers at the head of the COMM stream of rank r: 1, or all of a group; 0: the stream is
 * complete. */
static uint32_t heads(const Look *l, uint32_t r) {
  const RankRun *k = &l->run->rank[r];
  uint32_t i = comm_at(l, r);
  return i < k->ncomm ? k->t->instr[k->comm[i].index].group + 1u : 0;
}

/* Index, in the list of rank r, of transfer j at its head; PIPE_NONE if it is done and others of
 * its group are not. */
static uint32_t head(const Look *l, uint32_t r, uint32_t j) {
  const RankRun *k = &l->run->rank[r];
  return l->place[r].group_done >> j & 1 ? PIPE_NONE : k->comm[comm_at(l, r) + j].index;
}

/* The first transfer at the head that is not done; PIPE_NONE: none. */
static uint32_t comm_head(const Look *l, uint32_t r) {
  uint32_t row = PIPE_NONE, n = heads(l, r);
  for (uint32_t j = 0; j < n && row == PIPE_NONE; j++)
    row = head(l, r, j);
  return row;
}

/* True if the waits of a row of rank r are met. */
static bool is_ready(const Look *l, uint32_t r, uint32_t row) {
  const RankRun *k = &l->run->rank[r];
  for (uint32_t i = pipe_wait0(k->t, row); i < pipe_wait_end(k->t, row); i++) {
    const Need *need = &k->need[i];
    bool met;
    if (need->queue == PIPE_COMPUTE)
      met = need->count <= compute_at(l, r);
    else if (need->queue == PIPE_COPY)
      met = need->count <= copy_at(l, r);
    else
      met = pr_comm_stream(k, need->queue)->place[need->count - 1] < comm_at(l, r);
    if (!met)
      return false;
  }
  return true;
}

/* How far rank q is with instruction i of its COMM stream, in the step of rank r. */
typedef enum Progress { BEFORE, BEGUN, DONE } Progress;
static Progress progress(const Look *l, uint32_t r, uint32_t q, uint32_t i) {
  uint32_t at = comm_at(l, q);
  if (l->place[q].step != l->place[r].step)
    return l->place[q].step < l->place[r].step ? BEFORE : DONE;
  if (i < at)
    return DONE;
  if (i >= at + heads(l, q) || !l->place[q].posted)
    return BEFORE;
  return head(l, q, i - at) == PIPE_NONE ? DONE : BEGUN;
}

/* Position, in the COMM stream of rank q, of the other side of c, an instruction of another
 * rank. */
static uint32_t other_side(const Look *l, const PipeInstr *c, uint32_t q) {
  const PrRun *run = l->run;
  const RankRun *k = &run->rank[q];
  for (uint32_t i = 0; i < k->ncomm; i++) {
    const PipeInstr *d = &k->t->instr[k->comm[i].index];
    if (pipe_is_sum(c->op)) {
      for (uint32_t s = pipe_sum_next(run->p->stage, c->op, c->stage);
           d->op == c->op && s != c->stage; s = pipe_sum_next(run->p->stage, c->op, s))
        if (d->stage == s && d->mb == c->mb)
          return i;
      continue;
    }
    uint32_t stage;
    if (d->op == pr_partner(run->p, c, &stage) && d->stage == stage && d->mb == c->mb &&
        (!run->p->edge || d->edge == c->edge))
      return i;
  }
  return PIPE_NONE;
}

/* The rank that transfer or sum c waits for, which rank r has begun at its head; r: none. */
static uint32_t awaited(const Look *l, uint32_t r, const PipeInstr *c) {
  const PrRun *run = l->run;
  if (c->op == PIPE_SIDE_COMM)
    return r;
  if (!pipe_is_sum(c->op))
    return c->peer;
  for (uint32_t s = pipe_sum_next(run->p->stage, c->op, c->stage); s != c->stage;
       s = pipe_sum_next(run->p->stage, c->op, s)) {
    uint32_t q = run->p->stage[s].rank;
    if (q != r && progress(l, r, q, other_side(l, c, q)) == BEFORE)
      return q;
  }
  return r;
}

/* The cause that blocks rank r; NONE: *next is the rank that it waits for, or r: nothing. */
static Blame keeps(const Look *l, uint32_t r, uint32_t *next) {
  const RankRun *k = &l->run->rank[r];
  const PrPlace *at = &l->place[r];
  uint32_t ci = compute_at(l, r), pi = copy_at(l, r), row = PIPE_NONE;
  *next = r;
  if (at->condition != PR_ANSWERS)
    return (Blame){at->condition == PR_IS_GONE ? GONE : SILENT, r, PIPE_NONE};
  if (at->running && at->running <= k->t->ninstr) /* a peer may send any number */
    return (Blame){RUNS, r, at->running - 1};
  uint32_t head_row = comm_head(l, r);
  /* the thread that must begin it is free */
  if (head_row != PIPE_NONE && !at->posted && is_ready(l, r, head_row))
    return (Blame){NOT_BEGUN, r, head_row};
  if (ci < k->ncompute && is_ready(l, r, k->compute[ci].index))
    return (Blame){NOT_BEGUN, r, k->compute[ci].index};
  if (pi < k->ncopy && is_ready(l, r, k->copy[pi].index))
    return (Blame){COPIES, r, k->copy[pi].index};
  for (uint32_t j = 0, n = at->posted ? heads(l, r) : 0; j < n; j++) {
    uint32_t i = head(l, r, j), q = i == PIPE_NONE ? r : awaited(l, r, &k->t->instr[i]);
    if (i == PIPE_NONE)
      continue;
    if (q == r)
      return (Blame){STUCK, r, i};
    Progress there = l->place[q].condition == PR_ANSWERS
                         ? progress(l, r, q, other_side(l, &k->t->instr[i], q))
                         : BEFORE;
    if (there != BEFORE)
      return (Blame){there == DONE ? LOST : STUCK, r, i};
    if (*next == r)
      *next = q, row = i;
  }
  return (Blame){NONE, r, row};
}

/* Follows the waits from rank r to their cause. walk[nrank]: the walk that passed each rank; 0:
 * none. NONE: no cause, or an earlier walk has found it. */
static Blame follow(const Look *l, uint32_t r, uint32_t *walk, uint32_t this_walk) {
  for (uint32_t next; !walk[r]; r = next) {
    walk[r] = this_walk;
    Blame b = keeps(l, r, &next);
    if (b.cause || next == r)
      return b;
  }
  return (Blame){walk[r] == this_walk ? CYCLE : NONE, r, PIPE_NONE};
}

/* The first rank, in the list order of q, that waits for rank q, and its instruction *row;
 * PIPE_NONE: none. */
static uint32_t first_waiter(const Look *l, uint32_t q, uint32_t *row) {
  uint32_t best = PIPE_NONE, best_at = PIPE_NONE;
  for (uint32_t r = 0; r < l->run->p->nrank; r++) {
    if (r == q || l->place[r].condition != PR_ANSWERS || !l->place[r].posted)
      continue;
    for (uint32_t j = 0, n = heads(l, r); j < n; j++) {
      uint32_t here = head(l, r, j);
      const PipeInstr *c = here == PIPE_NONE ? NULL : &l->run->rank[r].t->instr[here];
      if (!c || awaited(l, r, c) != q)
        continue;
      uint32_t at = other_side(l, c, q);
      if (at < best_at || best == PIPE_NONE)
        best = r, best_at = at, *row = here;
    }
  }
  return best;
}

int pr_tell_waiting(const PrRun *run, uint32_t r, const PipeInstr *c, uint32_t q,
                    const PipeInstr *other, bool lost, char *text, size_t room) {
  char where[PR_WHERE], partner[PIPE_OP_TEXT];
  pipe_instr_text(partner, pipe_graph(run->p), other);
  return snprintf(text, room, "rank %u waits in %s for %s on rank %u%s", r, pr_where(run, c, where),
                  partner, q, lost ? ", which has been completed there: the message is lost" : "");
}

int pr_tell_absent(PrCondition is, uint32_t r, char *text, size_t room) {
  return snprintf(text, room,
                  is == PR_IS_GONE ? "the process of rank %u has ended" : "rank %u does not answer",
                  r);
}

/* As pr_tell_waiting, for the transfer or sum in row `row` of the list of rank r. */
static int tell_waiting(const Look *l, uint32_t r, uint32_t row, bool lost, char *text,
                        size_t room) {
  const PipeInstr *c = &l->run->rank[r].t->instr[row], *other = c;
  const uint32_t q = awaited(l, r, c);
  const RankRun *k = &l->run->rank[q];
  const uint32_t i = other_side(l, c, q);
  if (i != PIPE_NONE)
    other = &k->t->instr[k->comm[i].index];
  return pr_tell_waiting(l->run, r, c, q, other, lost, text, room);
}

/* Writes the waits of the cycle that rank r is in, from its lowest rank on. */
static void tell_cycle(const Look *l, uint32_t r, char *text, size_t room) {
  enum { SHOWN = 6 };
  uint32_t first = r, n = 0, next;
  size_t len = 0;
  keeps(l, r, &next);
  for (uint32_t q = next; q != r; q = next) {
    first = q < first ? q : first;
    keeps(l, q, &next);
  }
  r = first;
  do {
    const Blame b = keeps(l, r, &next);
    if (n > 0 && n < SHOWN && len < room)
      len += (size_t)snprintf(text + len, room - len, "; ");
    if (n++ < SHOWN && len < room)
      len += (size_t)tell_waiting(l, r, b.index, false, text + len, room - len);
    r = next;
  } while (r != first);
  if (n > SHOWN && len < room)
    snprintf(text + len, room - len, "; and %u more ranks", n - SHOWN);
}

/* Writes ", one action with 5B5" if the model executes c together with other ops. */
static int tell_action(const PrRun *run, const PipeInstr *c, char *text, size_t room) {
  size_t len = 0;
  for (uint32_t i = 1; run->m.overlap && i <= c->group && len < room; i++) {
    char op[PIPE_OP_TEXT];
    pipe_instr_text(op, pipe_graph(run->p), &c[i]);
    len += (size_t)snprintf(text + len, room - len, "%s%s", i > 1 ? ", " : ", one action with ",
                            op);
  }
  text[len < room ? len : room - 1] = 0;
  return (int)(len < room ? len : room - 1);
}

/* Writes ", the other side of 1SEND_F0 on rank 1" for transfer c, unless `waiter` waits in that
 * other side, at `row`. */
static int tell_other_side(const Look *l, const PipeInstr *c, uint32_t waiter, uint32_t row,
                           char *text, size_t room) {
  char other[PIPE_OP_TEXT];
  if (!pipe_op_info[c->op].comm || pipe_is_sum(c->op) || c->op == PIPE_SIDE_COMM)
    return 0;
  const RankRun *k = &l->run->rank[c->peer];
  uint32_t i = other_side(l, c, c->peer);
  if (i == PIPE_NONE || (waiter == c->peer && row == k->comm[i].index))
    return 0;
  pipe_instr_text(other, pipe_graph(l->run->p), &k->t->instr[k->comm[i].index]);
  return snprintf(text, room, ", the other side of %s on rank %u", other, c->peer);
}

bool pr_blame(PrRun *run, const PrPlace *place, char *text, size_t room) {
  uint32_t *walk = pr_see_all(run) ? calloc(run->p->nrank, sizeof *walk) : NULL;
  if (!walk)
    return false;
  const Look l = {run, place};
  Blame best = {NONE, 0, PIPE_NONE};
  char where[PR_WHERE] = "";
  int len = 0;
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    Blame b = follow(&l, r, walk, r + 1);
    bool longer = b.cause == RUNS && best.cause == RUNS &&
                  place[b.rank].running_ns > place[best.rank].running_ns;
    if (b.cause > best.cause || longer)
      best = b;
  }
  free(walk);
  const PipeInstr *c = best.index == PIPE_NONE ? NULL : &run->rank[best.rank].t->instr[best.index];
  if (c)
    pr_where(run, c, where);
  switch (best.cause) {
  case GONE:
  case SILENT: len = pr_tell_absent(place[best.rank].condition, best.rank, text, room); break;
  case NOT_BEGUN: len = snprintf(text, room, "rank %u does not begin %s", best.rank, where); break;
  case COPIES: len = snprintf(text, room, "rank %u is in %s", best.rank, where); break;
  case RUNS:
    len = snprintf(text, room, "rank %u is in %s", best.rank, where);
    len += tell_action(run, c, text + len, room - (size_t)len);
    break;
  case CYCLE: tell_cycle(&l, best.rank, text, room); return true;
  case LOST: tell_waiting(&l, best.rank, best.index, true, text, room); return true;
  case STUCK:
    snprintf(text, room,
             "rank %u is in %s and its peer has begun, too, but the message does not arrive",
             best.rank, where);
    return true;
  default: return false;
  }
  uint32_t row = PIPE_NONE, waiter = first_waiter(&l, best.rank, &row);
  if (best.cause == NOT_BEGUN)
    len += tell_other_side(&l, c, waiter, row, text + len, room - (size_t)len);
  if (waiter != PIPE_NONE && (size_t)len + 2 < room) {
    memcpy(text + len, "; ", 3);
    tell_waiting(&l, waiter, row, false, text + len + 2, room - (size_t)len - 2);
  }
  return true;
}

void pr_place(const PrRun *run, uint32_t r, PrPlace *out) {
  const RankRun *k = &run->rank[r];
  memset(out, 0, sizeof *out);
  out->step = atomic_load(&k->step);
  out->compute = atomic_load(&k->compute_done);
  out->copy = atomic_load(&k->copy_done);
  out->running = atomic_load(&k->running);
  if (out->running)
    out->running_ns = pr_now() - atomic_load(&k->running_since);
  const CommRun *c;
  out->comm = out->step * k->ncomm + pr_comm_prefix(k, out->step, &c);
  out->posted = atomic_load(&c->posted);
  out->group_done = atomic_load(&c->group_done);
  out->checkpoint = atomic_load(&run->ck_at);
}

bool pr_blame_threads(PrRun *run, char *text, size_t room) {
  PrPlace *place = calloc(run->p->nrank, sizeof *place);
  for (uint32_t r = 0; place && r < run->p->nrank; r++)
    pr_place(run, r, &place[r]);
  bool told = place && pr_blame(run, place, text, room);
  free(place);
  return told;
}

PrStatus pr_report_stall(PrRun *run) {
  char why[PR_TEXT - 64] = "no rank can go on";
  pr_blame_threads(run, why, sizeof why);
  return pr_fail(run, PR_E_STALL, "stall: %s", why);
}
