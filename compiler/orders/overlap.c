/* SPDX-License-Identifier: MIT
 * Makes actions of several ops, `overlap { ... }` (lang/spec.md 5.10): their expansion, their cost,
 * and the proof that their ops are independent. In the op table the ops of an action are adjacent;
 * each has the number of ops of the action after it. Cost: linear, as an action has at most
 * MAX_TOGETHER ops. */
#include <string.h>

#include "base.h"
#include "expand.h"
#include "graph.h"
#include "names.h"
#include "orders.h"

/* ---- for expand ---- */

bool too_many(Ex *x, const Stmt *t, uint32_t n) {
  if (n <= MAX_TOGETHER)
    return false;
  diag_error(x->s->diag, DIAG_OVERLAP, t->at,
             "rank %u: %u ops in one action; an action has at most %d", x->rank, n, MAX_TOGETHER);
  return true;
}

bool join_ops(Ex *x, const Stmt *t, uint32_t first) {
  Sched *s = x->s;
  uint32_t n = s->orders->nop - first;
  if (too_many(x, t, n))
    return false;
  for (uint32_t i = s->orders->ncopy; i-- > 0 && s->orders->copy[i].at > first;)
    if (s->orders->copy[i].at < s->orders->nop) {
      diag_error(s->diag, DIAG_OVERLAP, s->orders->site[s->orders->copy[i].site],
                 "rank %u: %s stands between ops of one action", x->rank,
                 s->orders->copy[i].kind == PIPE_OFF ? "OFF" : "LOAD");
      diag_help(s->diag, "put it before or after the overlap");
      return false;
    }
  uint8_t phase = PIPE_NPHASES; /* an update without a phase takes that of its action */
  for (uint32_t i = first; i < s->orders->nop; i++) {
    s->orders->op[i].group = (uint16_t)(s->orders->nop - 1 - i);
    phase = s->orders->op[i].phase < PIPE_NPHASES ? s->orders->op[i].phase : phase;
  }
  for (uint32_t i = first; i < s->orders->nop; i++)
    s->orders->op[i].phase = phase;
  return true;
}

bool run_overlap(Ex *x, const Stmt *t) {
  uint32_t first = x->s->orders->nop;
  if (x->list)
    return list_joint(x, t);
  return run_block(x, t->body) && join_ops(x, t, first);
}

bool find_send(Ex *x) {
  const Clause *c;
  if (!find_only(&x->in, CL_SEND, "send", &c))
    return false;
  for (int k = 0; c && k < NSENDS; k++)
    if (strcmp(c->name, send_names[k]) == 0)
      x->orders->send = (SendPolicy)k;
  return true;
}

const char *send_text(const Sched *s) { return send_names[s->orders->send]; }

/* ---- for later passes ---- */

/* The time of an action of one F and one B; 0: another action, or no such time is given. */
static uint64_t fused_time(const Sched *s, const PipeStage *cost, bool uniform, const Op *a,
                           const Op *b) {
  if ((a->kind == PIPE_F) == (b->kind == PIPE_F) || (a->kind != PIPE_B && b->kind != PIPE_B))
    return 0;
  const Op *f = a->kind == PIPE_F ? a : b;
  return uniform ? cost->time_fb : pipe_fused_time(sched_times(s), f->stage, f->mb);
}

uint64_t together_time(const Sched *s, const PipeStage *cost, bool uniform, const uint32_t *op,
                       uint32_t n) {
  uint64_t sum = n == 2 ? fused_time(s, cost, uniform, &s->orders->op[op[0]], &s->orders->op[op[1]])
                        : 0;
  for (uint32_t i = 0, fused = sum > 0; !fused && i < n; i++)
    sum += op_cost(s, cost, uniform, op[i]);
  return sum;
}

uint64_t action_time(const Sched *s, const PipeStage *cost, bool uniform, uint32_t first) {
  const Op *a = &s->orders->op[first];
  uint64_t fused = a->group == 1 ? fused_time(s, cost, uniform, a, a + 1) : 0, sum = 0;
  if (fused > 0)
    return fused;
  for (uint32_t i = 0; i <= a->group; i++)
    sum += op_cost(s, cost, uniform, first + i);
  return sum;
}

/* Of two ops on slices of one microbatch: is one of them an R, and does b wait for a? */
static bool makes_again(const Op *a, const Op *b) {
  bool back = b->kind == PIPE_B || b->kind == PIPE_I;
  return (a->kind == PIPE_F && b->kind == PIPE_R) || (a->kind == PIPE_R && back) ||
         (a->kind == PIPE_R && b->kind == PIPE_R && a->mb < b->mb);
}

/* Does op u update a stage tied to that of `grad`, the last gradient that its sum needs? */
static bool summed_with(const Sched *s, uint32_t grad, uint32_t u) {
  uint32_t a = s->orders->op[grad].stage, b = s->orders->op[u].stage;
  if (s->orders->op[u].kind != PIPE_U || !s->model->tie_of || s->model->tie_of[a] == NONE ||
      s->model->tie_of[a] != s->model->tie_of[b])
    return false;
  uint32_t k = s->orders->round0[a] + round_of(s, u) - s->orders->round0[b];
  return k < s->orders->round0[a + 1] && s->orders->round[k].grad == grad;
}

/* Does `then` need a result of `first`, an op of its rank: a tensor, a stash, or an earlier
 * slice? */
static bool needs(const Sched *s, uint32_t first, uint32_t then) {
  static const uint8_t turn[] = {
      [PIPE_F] = 0, [PIPE_R] = 1, [PIPE_B] = 2, [PIPE_I] = 2, [PIPE_W] = 3, [PIPE_U] = 0};
  const Op *a = &s->orders->op[first], *b = &s->orders->op[then];
  bool forward = a->kind == PIPE_F && b->kind == PIPE_F,
       back = turn[a->kind] == 2 && turn[b->kind] == 2;
  if (s->model->slices > 1 && a->stage == b->stage &&
      a->mb / s->model->slices == b->mb / s->model->slices &&
      ((forward && a->mb + 1 == b->mb) || (back && a->mb == b->mb + 1) || makes_again(a, b)))
    return true;
  if (summed_with(s, first, then))
    return true;
  if (a->mb != b->mb)
    return false;
  if (a->stage == b->stage)
    return turn[a->kind] < turn[b->kind];
  for (uint32_t k = 0, n = op_inputs(s, b); k < n; k++)
    if (order_dep(s, then, k) == first)
      return true;
  return false;
}

bool beside_update(Sched *s, uint32_t a, uint32_t b) {
  uint32_t u = s->orders->op[b].kind == PIPE_U ? b : a, other = u == b ? a : b;
  uint8_t kind = s->orders->op[other].kind;
  if (s->orders->op[u].kind != PIPE_U || s->orders->op[a].stage != s->orders->op[b].stage)
    return true;
  diag_error(s->diag, DIAG_OVERLAP, s->orders->site[s->orders->op[u].site],
             "rank %u: %s stands in one action with %s, %s", op_rank(s, u), op_text(s, u),
             op_text(s, other),
             kind == PIPE_B || kind == PIPE_W ? "whose gradient the update applies"
             : kind == PIPE_U                 ? "an update of the same stage"
                                              : "whose weights the update changes");
  if (s->orders->op[a].site != s->orders->op[b].site)
    diag_note(s->diag, s->orders->site[s->orders->op[other].site], "%s comes from here",
              op_text(s, other));
  diag_help(
      s->diag,
      "write the two ops one after the other: an update may only overlap ops of other stages");
  return false;
}

static bool report_needs(Sched *s, uint32_t a, uint32_t b) {
  diag_error(s->diag, DIAG_OVERLAP, s->orders->site[s->orders->op[b].site],
             "rank %u: %s stands in one action with %s, which must end first", op_rank(s, b),
             op_text(s, b), op_text(s, a));
  if (s->orders->op[a].site != s->orders->op[b].site)
    diag_note(s->diag, s->orders->site[s->orders->op[a].site], "%s comes from here", op_text(s, a));
  diag_help(s->diag, "write the two ops one after the other: ops of an overlap start together");
  return false;
}

bool check_overlap(Sched *s) {
  bool ok = true;
  for (uint32_t first = 0, n; first < s->orders->nop && s->diag->errors <= s->diag->limit;
       first += n) {
    n = 1u + s->orders->op[first].group;
    bool good = true;
    for (uint32_t b = first; n > 1 && b < first + n && good; b++)
      for (uint32_t a = first; a < first + n && good; a++)
        good = (a >= b || beside_update(s, a, b)) && (!needs(s, a, b) || report_needs(s, a, b));
    ok &= good;
  }
  return ok;
}
