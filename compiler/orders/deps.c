/* SPDX-License-Identifier: MIT
 * The data edges between compute ops, and the times of actions: what the players of orders, the
 * proofs and the searches ask. Reads Orders and Model; knows nothing of how an order is written.
 * Cost: constant per edge, but for round_of, a binary search. */
#include "deps.h"

/* ---- tensors ---- */

uint32_t order_dep(const Sched *s, uint32_t op, uint32_t k) {
  const Op *o = &s->orders->op[op];
  return k < op_inputs(s, o) ? dep_op(s, o, dep_maker(s, o, k)) : NONE;
}

uint32_t order_user(const Sched *s, uint32_t op, uint32_t k) {
  const Op *o = &s->orders->op[op];
  return k < op_outputs(s, o) ? dep_op(s, o, dep_reader(s, o, k)) : NONE;
}

/* ---- the ops of one stage ---- */

/* The first R, from `unit` on, of a microbatch in slices; without one, its first backward, for
 * which all its slices wait. NONE: there is neither. */
static uint32_t next_again(const Sched *s, uint32_t stage, uint32_t unit) {
  size_t row = (size_t)stage * s->model->nmb;
  uint32_t last = unit - unit % s->model->slices + s->model->slices - 1;
  for (; unit <= last; unit++)
    if (s->orders->at_r[row + unit])
      return s->orders->at_r[row + unit] - 1;
  return s->orders->at_b[row + last] - 1;
}

void order_own_users(const Sched *s, uint32_t op, uint32_t user[3]) {
  const Op *o = &s->orders->op[op];
  user[0] = user[1] = user[2] = NONE;
  if (o->kind == PIPE_U)
    return;
  size_t cell = (size_t)o->stage * s->model->nmb + o->mb;
  uint32_t slice = o->mb % s->model->slices;
  if (o->kind == PIPE_F && s->orders->at_r[cell])
    user[0] = s->orders->at_r[cell] - 1;
  else if (o->kind == PIPE_F || o->kind == PIPE_R)
    user[0] = s->orders->at_b[cell] - 1;
  else if (o->kind == PIPE_I)
    user[0] = s->orders->at_w[cell] - 1;
  if (o->kind == PIPE_F && slice + 1 < s->model->slices)
    user[1] = s->orders->at_f[cell + 1] - 1;
  else if ((o->kind == PIPE_B || o->kind == PIPE_I) && slice > 0)
    user[1] = s->orders->at_b[cell - 1] - 1;
  if (o->kind == PIPE_F && s->model->slices > 1 && slice + 1 == s->model->slices)
    user[2] = next_again(s, o->stage, o->mb - slice);
  else if (o->kind == PIPE_R && slice + 1 < s->model->slices)
    user[2] = next_again(s, o->stage, o->mb + 1);
  if (user[2] == user[0])
    user[2] = NONE;
}

int64_t order_makes(const Sched *s, const Op *o) {
  int64_t n = 1;
  for (uint32_t q = 0; (o->mb + 1) % s->model->slices == 0 && q < s->model->slices; q++)
    n -= s->model->forward || s->orders->at_r[(size_t)o->stage * s->model->nmb + o->mb - q];
  return n;
}

/* ---- updates ---- */

/* The rows are the replicas of `row`, or all rows of the stages that share its weights. */
bool order_member(const Sched *s, uint32_t row, uint32_t *at, uint32_t *member) {
  if (s->model->stage[row].tied != NONE) {
    uint32_t k = s->model->tie_of[row];
    if (s->model->tie_row0[k] + *at >= s->model->tie_row0[k + 1])
      return false;
    *member = s->model->tie_row[s->model->tie_row0[k] + (*at)++];
    return true;
  }
  *member = *at == 0 ? row : s->model->stage[*member].replica;
  return (*at)++ == 0 || *member != row;
}

uint32_t round_of(const Sched *s, uint32_t u) {
  uint32_t st = s->orders->op[u].stage, a = s->orders->round0[st], b = s->orders->round0[st + 1];
  while (a < b) {
    uint32_t mid = a + (b - a) / 2;
    if (s->orders->round[mid].u < u)
      a = mid + 1;
    else
      b = mid;
  }
  return a;
}

/* ---- ops of one action ---- */

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

bool order_needs(const Sched *s, uint32_t first, uint32_t then) {
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

/* ---- times ---- */

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
