/* SPDX-License-Identifier: MIT
 * The door of orders/: the ops of each rank, in order, from kernels, loops, clock, rules and use;
 * and the proof that these orders respect the data. deps.h and limit.h are parts of it. */
#ifndef PIPEC_ORDERS_H
#define PIPEC_ORDERS_H

#include "deps.h"
#include "limit.h"

/* The choice that a `tune` clause made. Made by expand_best (search/). */
typedef struct Tuning {
  const Clause *clause;  /* NULL: no `tune` clause */
  uint32_t at, n;        /* index of the chosen value; number of values */
  bool moved;            /* `tries` moved ops */
  /* this order is better as emitted than the best order of an idle network */
  bool other;
  /* values of `by` as emitted: [0] of this order, [1] of the best order of an idle network */
  int64_t worth[2];
} Tuning;

/* The products of expand, or of the import of a file instead. */
typedef struct Expanded {
  Model model;
  Orders orders;
  Sides sides;
  Claims claims;
  Tuning tuning;
} Expanded;

/* The play of the orders on an idle network, with the schedule's own costs. Made by order. */
typedef struct Ideal {
  bool done;             /* proved: the orders agree with the data */
  const Stall *stall;    /* the counter-example; NULL: no order is refuted */
  /* the wait cycle, in rows of Orders.op; NULL: there is none */
  StallHop *cycle; uint32_t ncycle;
  Timing time;
  uint64_t *end;         /* [nop] time at which the result of each op can leave */
  /* [nop] as in OrderRun; only with groups or side ops in COMM streams, else NULL */
  uint32_t *made;
  /* [nxfer] transfers, sums and side ops of COMM streams, in the one global order */
  Xfer *xfer;
  uint32_t nxfer;
} Ideal;

/* ---- expand.c: expands a schedule with its parameters into the ops of each rank. Proves that
 * indices, places and sizes are valid, and that no op occurs twice ---- */
bool expand(Sched *s, Expanded *e);
/* rules_when.c: inflight, held, kept and host at the present moment of the play. */
bool rules_quantity(Sched *s, const Expr *call, int64_t *value);
/* ---- overlap.c ---- */
const char *send_text(const Sched *s); /* "end" */
/* ---- check_deps.c: proves for each stage and microbatch: there is one F, then B or I and W,
 * perhaps R, in order on its rank, and one U applies each gradient. Ensures Orders.round ---- */
bool check_deps(Sched *s, Orders *orders);
/* ---- order.c ---- */
/* Plays the compute ops on an idle network: a tensor reaches another rank `send` after its producer
 * ends. False: the ranks wait for each other, and rank r is stuck at op head[r]. Cost: linear. */
typedef struct OrderRun {
  const PipeStage *stage; /* costs by stage; uniform: stage[0] has the costs of all */
  bool uniform;
  uint64_t *end;          /* [nop], required: time at which the result of each op can leave */
  uint32_t *head;         /* [nrank], required: next op of each rank */
  /* NULL, or [nop], filled in: number of transfers made when the op was played, its own included */
  uint32_t *made;
  /* NULL, or filled in: the transfers, in an order that respects the data */
  Xfer *xfer;
  uint32_t nxfer;
  Timing t;
} OrderRun;
bool order_run(Sched *s, OrderRun *run);
/* Requires check_deps. Proves that the compute orders agree with the data, under any channel model.
 * Ensures Ideal: the one global order of transfers, by predicted start, and the times. */
bool order(Sched *s, Sides *sides, Ideal *ideal);
/* ---- side.c. Requires check_deps. Ensures Sides.use, and its compute ops in Orders ---- */
bool sides(Sched *s, Orders *orders, Sides *sides);
const char *side_text(Sched *s, const SideUse *u); /* "2UNSHARD3" */
/* The end, on an idle network, of the op before the side op. */
uint64_t side_start(const Sched *s, uint32_t rank, const SideUse *u);
/* The value of SideUse.at if the side op runs as late as possible. */
uint32_t side_latest(const Sched *s, const SideUse *u);
bool side_buffers(Sched *s, Sides *sides); /* requires the places of side ops; false: reported */

#endif
