/* SPDX-License-Identifier: MIT
 * `limit` clauses (lang/spec.md 7): bounds on sums of counts times numbers. The counts say what ops
 * take of the memory of their rank and give back, in stashes. */
#ifndef PIPEC_LIMIT_H
#define PIPEC_LIMIT_H

#include "pipec.h"

/* Stashes on the device; held microbatches; inputs kept for R; stashes in host memory only. */
enum { LIVE, HELD, KEPT, HOST, NCOUNTS };
int count_of(int builtin); /* which of them a quantity is: one with is_now() */

typedef struct OpCounts { /* taken when an op starts, given back when it ends */
  int64_t take[NCOUNTS], give[NCOUNTS];
} OpCounts;
OpCounts op_counts(const Sched *s, const Op *o);

/* A comparison of a `limit` clause, for one rank. */
typedef struct Limit {
  const Clause *clause;
  const Expr *compare;
  Span at;
  int64_t index;   /* of the clause's variable */
  uint32_t rank;
  int64_t *weight; /* [NCOUNTS * stages of the rank] */
  int64_t most;    /* of the sum */
  int64_t peak;    /* (check_limits) what it comes to */
} Limit;
/* What the text says that holds: `check` and `limit` clauses. Made by expand. */
typedef struct Claims {
  /* to prove at the end; Eval.env still has what they name */
  const Clause **check; uint32_t ncheck;
  const Clause **limit; uint32_t nlimit; /* to keep, and to prove at the end */
  Limit *row; uint32_t nrow, *row0; /* their comparisons, rank after rank; [nrank + 2] */
} Claims;
extern const char *const count_name[NCOUNTS]; /* "inflight" */

/* e has a count of a moment, inflight(r) and such. */
bool counts_now(const Expr *e);
/* Part of expand: ensures limits, limit0. False: reported. */
bool find_limits(Sched *s, Claims *claims);
/* "2*inflight(0) - held(0, 1) <= 16": as the language has it, with the numbers put in. */
const char *limit_text(Sched *s, const Limit *l);
/* The limits of rank r: rows *first to *first + n - 1 of Claims.row. */
uint32_t limits_of(const Sched *s, uint32_t r, uint32_t *first);
/* What op o adds to the sum when it starts, and when it ends. */
void limit_change(const Sched *s, const Limit *l, const Op *o, int64_t *start, int64_t *end);
/* All are kept by Orders.op as it is, without copies. */
bool limits_kept(Sched *s);
/* No more stashes than these are ever alive on rank r, by its limits alone; INT64_MAX. */
int64_t limits_room(const Sched *s, uint32_t r);
/* Requires prog. Proves all limits; ensures their peaks and limits_hold. */
bool check_limits(Sched *s, Verdict *verdict);
/* Of a builtin while a message is made: at the moment Eval.moment. */
bool limit_quantity(Sched *s, const Expr *call, int64_t *value);

#endif
