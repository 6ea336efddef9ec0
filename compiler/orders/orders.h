/* SPDX-License-Identifier: MIT
 * The door of orders/: the ops of each rank, in order, from kernels, loops, clock, rules and use;
 * and the proof that they respect the data. */
#ifndef PIPEC_ORDERS_H
#define PIPEC_ORDERS_H

#include "limit.h"

/* The choice of a `tune` clause. Made by expand_best (search/). */
typedef struct Tuning {
  const Clause *clause;  /* NULL: no `tune` clause */
  uint32_t at, n;        /* index of the chosen value, and the number of values */
  bool moved;            /* tries have moved the ops */
  bool other;            /* not the best order of an idle network: this one is better as emitted */
  int64_t worth[2];      /* values of `by` as emitted: [0] of this order, [1] of that one */
} Tuning;

/* The products of expand, or of the import of a file in its place. */
typedef struct Expanded {
  Model model;
  Orders orders;
  Sides sides;
  Claims claims;
  Tuning tuning;
} Expanded;

/* The orders played on an idle network, with the schedule's own costs. Made by order. */
typedef struct Ideal {
  bool done;             /* proved: the orders agree with the data */
  const Stall *stall;    /* the counter-example; NULL: nothing is refuted */
  /* The wait cycle, hops by rows of Orders.op; NULL: there is none. */
  StallHop *circle; uint32_t ncircle;
  Timing time;
  uint64_t *end;         /* [nop] when the result of each op could leave */
  uint32_t *made;        /* [nop] of OrderRun, with groups */
  Xfer *xfer;            /* [nxfer] transfers between ranks, in the one global order */
  uint32_t nxfer;
} Ideal;

/* ---- expand.c: expands a schedule with its parameters into the ops of each rank. Proves indices,
 * placement, uniqueness and the sizes of everything ---- */
bool expand(Sched *s, Expanded *e);
/* rules_when.c: inflight, held, kept and host at this moment of the play. */
bool rules_quantity(Sched *s, const Expr *call, int64_t *value);
/* ---- overlap.c ---- */
const char *send_text(const Sched *s); /* "end" */
/* Proves that no op of an action needs another op of it. Part of check_deps. */
bool check_overlap(Sched *s);
/* The time of the action that begins with op `first`; cost: as in OrderRun. */
uint64_t action_time(const Sched *s, const PipeStage *cost, bool uniform, uint32_t first);
/* The same for n ops that are to be one action. */
uint64_t together_time(const Sched *s, const PipeStage *cost, bool uniform, const uint32_t *op,
                       uint32_t n);
/* ---- check_deps.c: proves that each stage and microbatch has one F, then B or I and W, perhaps R,
 * in order on its rank, and that one U applies each gradient. Ensures Orders.round ---- */
bool check_deps(Sched *s, Orders *orders);
/* The row of Orders.round of u, a U. */
uint32_t round_of(const Sched *s, uint32_t u);
/* ---- order.c ---- */
/* Plays the compute ops on an idle network: a tensor reaches another rank `send` after its producer
 * has ended. False: the ranks wait for each other, and head[r] is the op at which rank r stands.
 * Cost: linear. */
typedef struct OrderRun {
  const PipeStage *stage; /* costs: of each stage, or stage[0] for all when uniform */
  bool uniform;
  uint64_t *end;          /* [nop], required: when the result of each op may leave */
  uint32_t *head;         /* [nrank], required: next op of each rank */
  /* NULL, or [nop] filled: the number of transfers once the op was played, its own included. */
  uint32_t *made;
  /* NULL, or filled: the transfers in an order that respects the data. */
  Xfer *xfer;
  uint32_t nxfer;
  Timing t;
} OrderRun;
bool order_run(Sched *s, OrderRun *run);
/* For a U that replicas or tied stages hold up: the last gradient op of this update that has not
 * run, given the next op of each rank; NONE. */
uint32_t order_late_replica(const Sched *s, uint32_t u, const uint32_t *head);
/* Iterates over the rows whose gradients an update of `row` adds up. *at: 0 at first. */
bool order_member(const Sched *s, uint32_t row, uint32_t *at, uint32_t *member);
/* The k-th op, from 0, whose tensor op reads; the k-th that reads a tensor of op. NONE: no more. */
uint32_t order_dep(const Sched *s, uint32_t op, uint32_t k);
uint32_t order_user(const Sched *s, uint32_t op, uint32_t k);
/* The ops of the same stage that wait for op, or NONE: the next op of its cell; the op of its kind
 * on the next slice; with recomputed slices, the next R of the microbatch or its first backward. */
void order_own_users(const Sched *s, uint32_t op, uint32_t user[3]);
/* The number of stashes that F adds: its own, less the stashes of its microbatch that nobody reads
 * once the last slice has gone forward. */
int64_t order_makes(const Sched *s, const Op *o);
/* Requires check_deps. Proves that the compute orders agree with the data, under any channel model.
 * Ensures Ideal: the one global order of transfers (by predicted start), and the times. */
bool order(Sched *s, Ideal *ideal);
/* ---- side.c: side ops. Requires check_deps; ensures Sides.use, and their ops in Orders ---- */
bool sides(Sched *s, Orders *orders, Sides *sides);
const char *side_text(Sched *s, const SideUse *u); /* "2UNSHARD3" */
/* The end of the op before the side op, on an idle network. */
uint64_t side_start(const Sched *s, uint32_t rank, const SideUse *u);
/* The `at` of the side op if it runs as late as possible. */
uint32_t side_latest(const Sched *s, const SideUse *u);
bool side_buffers(Sched *s, Sides *sides); /* requires the places of side ops; false: reported */

#endif
