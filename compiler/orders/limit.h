/* SPDX-License-Identifier: MIT
 * `limit` clauses (lang/spec.md 7): bounds on sums of counts times numbers. The counts say what ops
 * take of the memory of their rank and give back, in stashes. */
#ifndef PIPEC_LIMIT_H
#define PIPEC_LIMIT_H

#include "pipec.h"

/* Stashes on the device; held microbatches; inputs kept for R; stashes in host memory only. */
enum { LIVE, HELD, KEPT, HOST, NCOUNTS };
int count_of(int builtin); /* the count that a builtin with is_now() reads */

/* An op takes counts when it starts and gives counts back when it ends. */
typedef struct OpCounts {
  int64_t take[NCOUNTS], give[NCOUNTS];
} OpCounts;
OpCounts op_counts(const Sched *s, const Op *o);

/* A comparison of a `limit` clause, for one rank. */
typedef struct Limit {
  const Clause *clause;
  const Expr *compare;
  Span at;
  int64_t index;   /* value of the variable of the clause */
  uint32_t rank;
  int64_t *weight; /* [NCOUNTS * stages of the rank] */
  int64_t most;    /* of the sum */
  int64_t peak;    /* (check_limits) the most that the sum comes to */
} Limit;
/* The claims of the text: `check` and `limit` clauses. Made by expand. */
typedef struct Claims {
  /* To prove at the end; Eval.env still has the values of their names. */
  const Clause **check; uint32_t ncheck;
  const Clause **limit; uint32_t nlimit; /* tune keeps them; they are proved at the end */
  Limit *row; uint32_t nrow, *row0; /* comparisons of counts, by rank; row0[nrank + 2] */
  int64_t *bytes; /* [nrank] the least bound of memory(r); INT64_MAX: none. NULL: of no rank */
} Claims;
extern const char *const count_name[NCOUNTS]; /* "inflight" */

/* Does e mention a count of a moment, such as inflight(r)? */
bool counts_now(const Expr *e);
/* Is it a limit of memory(r)? It is one of the whole program, which check_user proves. */
bool is_byte_limit(const Clause *c);
/* The bytes that stashes may take on rank r by its limit of memory(r), if each transfer has so many
 * slots; INT64_MAX: it has no limit. */
int64_t stash_bytes_room(const Sched *s, uint32_t r, uint32_t slots);
/* Part of expand. Ensures Claims.row, nrow, row0 and bytes. False: reported. */
bool find_limits(Sched *s, Claims *claims);
/* "2*inflight(0) - held(0, 1) <= 16": the comparison in the language, with numbers put in. */
const char *limit_text(Sched *s, const Limit *l);
/* The number of limits of rank r; they are rows of Claims.row from *first on. */
uint32_t limits_of(const Sched *s, uint32_t r, uint32_t *first);
/* What op o adds to the sum at its start, and at its end. */
void limit_change(const Sched *s, const Limit *l, const Op *o, int64_t *start, int64_t *end);
/* The same for the stashes of its rank: their number, or their bytes. */
void stash_change(const Sched *s, const Op *o, bool bytes, int64_t *start, int64_t *end);
/* Does Orders.op, as it is and without copies, keep all limits? */
bool limits_kept(Sched *s);
/* The most stashes that can be alive on rank r by its limits alone; INT64_MAX: no limit says. */
int64_t limits_room(const Sched *s, uint32_t r);
/* Requires prog. Proves all limits; ensures their peaks and limits_hold. */
bool check_limits(Sched *s, Verdict *verdict);
/* The value of a builtin for a message: at the moment Eval.moment. */
bool limit_quantity(Sched *s, const Expr *call, int64_t *value);

#endif
