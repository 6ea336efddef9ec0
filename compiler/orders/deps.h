/* SPDX-License-Identifier: MIT
 * The data edges between compute ops, and the times of actions (deps.c). Ops are rows of Orders.op;
 * NONE: there is no such op. Edges require that every op exists; round_of requires Orders.round. */
#ifndef PIPEC_DEPS_H
#define PIPEC_DEPS_H

#include "graph.h"

/* The row that makes input k of o; the row that reads output k of o. */
static inline uint32_t dep_maker(const Sched *s, const Op *o, uint32_t k) {
  Link l = link_at(s, input_link(s, o, k));
  return o->kind == PIPE_F ? l.from : l.to;
}
static inline uint32_t dep_reader(const Sched *s, const Op *o, uint32_t k) {
  Link l = link_at(s, output_link(s, o, k));
  return o->kind == PIPE_F ? l.to : l.from;
}
/* The op of o's direction and microbatch on `row`. */
static inline uint32_t dep_op(const Sched *s, const Op *o, uint32_t row) {
  return *op_at(s, o->kind == PIPE_F, row, o->mb) - 1;
}

/* The k-th op, from 0, whose tensor `op` reads; the k-th op that reads a tensor of `op`. NONE:
 * there are no more. */
uint32_t order_dep(const Sched *s, uint32_t op, uint32_t k);
uint32_t order_user(const Sched *s, uint32_t op, uint32_t k);
/* The ops of the same stage that wait for `op`; NONE: none.
 *
 *   user[0]  the next op of its stage and microbatch
 *   user[1]  the op of its kind on the next slice
 *   user[2]  with recomputed slices, the next R of the microbatch or its first backward */
void order_own_users(const Sched *s, uint32_t op, uint32_t user[3]);
/* Iterates over the rows whose gradients an update of `row` adds up. *at: 0 before the first call.
 * False: no more rows. */
bool order_member(const Sched *s, uint32_t row, uint32_t *at, uint32_t *member);
/* The row of Orders.round for u, a U. */
uint32_t round_of(const Sched *s, uint32_t u);
/* Does `then` need a result of `first`, an op of its rank: a tensor, a stash, an earlier slice, or
 * a gradient of a tied stage? */
bool order_needs(const Sched *s, uint32_t first, uint32_t then);
/* The stashes that F o adds: its own, less the stashes of its microbatch that nothing reads after
 * the last slice has gone forward. */
int64_t order_makes(const Sched *s, const Op *o);
/* The time of the action that begins with op `first`; cost: as in OrderRun. */
uint64_t action_time(const Sched *s, const PipeStage *cost, bool uniform, uint32_t first);
/* The time of an action of these n ops. */
uint64_t together_time(const Sched *s, const PipeStage *cost, bool uniform, const uint32_t *op,
                       uint32_t n);

#endif
