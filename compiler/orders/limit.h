/* SPDX-License-Identifier: MIT
 * `limit` clauses (lang/spec.md 7): bounds on weighted sums of counts. The counts are the stashes
 * that ops take from the memory of their rank and give back. */
#ifndef PIPEC_LIMIT_H
#define PIPEC_LIMIT_H

#include "pipec.h"

/* Counts: stashes on the device; held microbatches; inputs kept for R; stashes in host memory
 * only. */
enum { LIVE, HELD, KEPT, HOST, NCOUNTS };
int count_of(int builtin); /* the count that a builtin reads; requires is_now() */

/* An op takes counts when it starts and gives counts back when it ends. */
typedef struct OpCounts {
  int64_t take[NCOUNTS], give[NCOUNTS];
} OpCounts;
OpCounts op_counts(const Sched *s, const Op *o);

/* A comparison of a `limit` clause, for one rank: weighted sum of counts <= most. */
typedef struct Limit {
  const Clause *clause;
  const Expr *compare;
  Span at;
  int64_t index;   /* value of the clause's variable */
  uint32_t rank;
  int64_t *weight; /* [NCOUNTS * stages of the rank] */
  int64_t most;    /* upper bound of the sum */
  int64_t peak;    /* (check_limits) largest value of the sum */
} Limit;
/* The claims of the text: `check` and `limit` clauses. Made by expand. */
typedef struct Claims {
  /* proved at the end; Eval.env still has the values of their names */
  const Clause **check; uint32_t ncheck;
  const Clause **limit; uint32_t nlimit; /* `tune` keeps them; proved at the end */
  /* comparisons of counts, by rank; those of rank r start at row0[r]; row0[nrank + 2] */
  Limit *row; uint32_t nrow, *row0;
  /* [nrank] least upper bound of memory(r); INT64_MAX: none. NULL: no rank has a bound. */
  int64_t *bytes;
} Claims;
extern const char *const count_name[NCOUNTS]; /* "inflight" */

/* Does e mention a present count, such as inflight(r)? */
bool counts_now(const Expr *e);
/* Is it a limit of memory(r)? Such a limit bounds the whole program, and check_user proves it. */
bool is_byte_limit(const Clause *c);
/* The bytes that stashes may take on rank r by its limit of memory(r), if each transfer has `slots`
 * slots; INT64_MAX: no limit. */
int64_t stash_bytes_room(const Sched *s, uint32_t r, uint32_t slots);
/* Part of expand. Ensures Claims.row, nrow, row0 and bytes. False: reported. */
bool find_limits(Sched *s, Claims *claims);
/* The comparison with numbers for its values: "2*inflight(0) - held(0, 1) <= 16". */
const char *limit_text(Sched *s, const Limit *l);
/* The number of limits of rank r: rows of Claims.row from *first on. */
uint32_t limits_of(const Sched *s, uint32_t r, uint32_t *first);
/* The change of the sum when op o starts, and when it ends. */
void limit_change(const Sched *s, const Limit *l, const Op *o, int64_t *start, int64_t *end);
/* The change of the stashes of o's rank, in number or in bytes, when o starts and when it ends. */
void stash_change(const Sched *s, const Op *o, bool bytes, int64_t *start, int64_t *end);
/* Does Orders.op, without copies, keep all limits? */
bool limits_kept(Sched *s);
/* The most stashes that the limits of rank r allow; INT64_MAX: no limit bounds them. */
int64_t limits_room(const Sched *s, uint32_t r);
/* Requires prog. Proves all limits. Ensures Limit.peak and Verdict.limits_hold. */
bool check_limits(Sched *s, Verdict *verdict);
/* The value of a builtin at Eval.moment, for a message. */
bool limit_quantity(Sched *s, const Expr *call, int64_t *value);

#endif
