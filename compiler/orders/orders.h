/* SPDX-License-Identifier: MIT
 * The door of orders/: the ops of each rank, in order, from kernels, loops, clock, rules and use;
 * and the proof that they respect the data. */
#ifndef PIPEC_ORDERS_H
#define PIPEC_ORDERS_H

#include "limit.h"

/* The `tune` clause that was followed. Made by expand_best (search/); expand counts the values. */
typedef struct Tuning {
  const Clause *clause;  /* NULL: there is none */
  uint32_t at, n;        /* the value it has settled for, of so many */
  bool kept;             /* the order is as written, since it is better as emitted: */
  int64_t worth[2];      /* what `by` says of both as emitted, [1] tuned */
} Tuning;

/* What expand makes, or the import of a file in its place. */
typedef struct Expanded {
  Model model;
  Orders orders;
  Sides sides;
  Claims claims;
  Tuning tuning;
} Expanded;

/* The orders played on an idle network, with the schedule's own costs. Made by order. */
typedef struct Ideal {
  bool done;             /* the orders agree with the data */
  const Stall *stall;    /* what was refuted; NULL: nothing was */
  /* or ranks that wait for each other, by rows of op; else NULL */
  StallHop *circle; uint32_t ncircle;
  Timing time;
  uint64_t *end;         /* [nop] when what each op made could leave then */
  uint32_t *made;        /* [nop] of OrderRun, with groups */
  Xfer *xfer;            /* [nxfer] transfers between ranks, in the one global order */
  uint32_t nxfer;
} Ideal;

/* ---- expand.c: schedule + parameters -> ops of each rank; proves indices, placement, uniqueness,
 * sizes of everything ---- */
bool expand(Sched *s, Expanded *e);
/* order_rules.c: inflight, held, kept, host now */
bool rules_quantity(Sched *s, const Expr *call, int64_t *value);
const char *send_text(const Sched *s); /* "end" */
/* Proves that no op of an action needs another of it. Part of check_deps. */
bool check_overlap(Sched *s);
/* What the action that begins with op `first` takes; cost: as in OrderRun. */
uint64_t action_time(const Sched *s, const PipeStage *cost, bool uniform, uint32_t first);
/* The same of n ops that are to be one action. */
uint64_t together_time(const Sched *s, const PipeStage *cost, bool uniform, const uint32_t *op,
                       uint32_t n);
/* ---- check_deps.c: each (stage, mb) exactly F and B or I+W, perhaps R, in order on its rank; each
 * gradient is applied by one U. Ensures round ---- */
bool check_deps(Sched *s, Orders *orders);
/* The update of its stage that op u, a U, is: a row of Orders.round. */
uint32_t round_of(const Sched *s, uint32_t u);
/* ---- order.c ---- */
/* Plays the compute ops on an idle network, where a tensor reaches another rank `send` after its
 * producer has ended. False: the orders wait for each other, head[r] is the op at which rank r
 * stands. Linear. */
typedef struct OrderRun {
  const PipeStage *stage; /* costs: of each stage, or stage[0] for all when uniform */
  bool uniform;
  uint64_t *end;          /* [nop], required: when what each op made may leave */
  uint32_t *head;         /* [nrank], required: next op of each rank */
  /* NULL, or [nop] filled: transfers there were once the op was played, with its own */
  uint32_t *made;
  /* NULL, or filled with the transfers in an order that respects the data */
  Xfer *xfer;
  uint32_t nxfer;
  Timing t;
} OrderRun;
bool order_run(Sched *s, OrderRun *run);
/* Of a U that replicas or tied stages hold up: a last gradient op of this update that has not run,
 * given each rank's next op; NONE. */
uint32_t order_late_replica(const Sched *s, uint32_t u, const uint32_t *head);
/* Iterates over the rows whose gradients an update of `row` adds up. *at: 0 at first. */
bool order_member(const Sched *s, uint32_t row, uint32_t *at, uint32_t *member);
/* The k-th op, from 0, whose tensor op reads; the k-th that reads a tensor of op. NONE: no more. */
uint32_t order_dep(const Sched *s, uint32_t op, uint32_t k);
uint32_t order_user(const Sched *s, uint32_t op, uint32_t k);
/* The ops of the same stage that wait for op, NONE for none: the next one of its cell; the op of
 * its kind on the slice that comes after it; and where slices are recomputed the next R of the
 * microbatch, or its first backward. */
void order_own_users(const Sched *s, uint32_t op, uint32_t user[3]);
/* Stashes that are there after an F and were not before: its own, less those of its microbatch that
 * nobody reads once the last slice has gone forward. */
int64_t order_makes(const Sched *s, const Op *f);
/* Requires check_deps. Proves that the compute orders agree with the data under any channel model;
 * ensures xfer, one global order of all transfers (by predicted start), and ideal. */
bool order(Sched *s, Ideal *ideal);
bool sides(Sched *s, Orders *orders, Sides *sides);
const char *side_text(Sched *s, const SideUse *u); /* "2UNSHARD3" */
/* the end of the op before it, on an idle network */
uint64_t side_start(const Sched *s, uint32_t rank, const SideUse *u);
/* `at` of one that runs as late as possible */
uint32_t side_latest(const Sched *s, const SideUse *u);
bool side_buffers(Sched *s, Sides *sides); /* requires their places; false: reported */

#endif
