/* SPDX-License-Identifier: MIT
 * Running the text of an order once for all M (lists_of_m.c, note [lists]): what its parts share. */
#ifndef PIPEC_LISTS_TEXT_H
#define PIPEC_LISTS_TEXT_H

#include "expand.h"
#include "lists_of_m.h"

enum { MOST_ROWS = 1 << 17, LEAST_TURNS = 3 }; /* of a rank; of a loop at n = 0 */

typedef struct Waiting {
  uint32_t stage;
  Affine unit;
} Waiting; /* an I whose W has not run */

typedef struct State { /* what ops without index take */
  Affine *next[3];     /* [nstage] of F, R, and of B or I; those of the rank count */
  VEC(Waiting) wait;
} State;

typedef struct Text {
  AffineEnv *x;
  Sched *s;
  ListsOfM *l;
  RankList *out;
  Ex ex; /* to find stages */
  uint32_t rank;
  bool clip, waits;  /* waits: there are W without index */
  uint32_t straight; /* first row that is in no segment yet */
  State now;
  const Affine *mbs;   /* [npipe] microbatches of each pipe */
  const Clause *again; /* recompute */
  const Stmt *clock;   /* its ops are being listed; their stamps: */
  VEC(Affine) stamp;   /* by row, from the first of the clock on */
  Affine base;         /* period times index */
  const Stmt *joint;
  Affine joint_stamp; /* the action that is being listed */
  Affine split;       /* where a loop is to be cut: its index */
  uint64_t steps;
} Text;

typedef bool Body(Text *t, const Stmt *b);
typedef struct Loop {
  const Stmt *b;
  Body *body;
  Affine lo;
  int64_t step, turn; /* turn: so many of its turns are one that repeats */
} Loop;

/* lists_of_m.c. What stands in the way; false. */
bool text_no(Text *t, Span at, const char *why);
State text_save(Sched *s, const State *of);
/* Those values of a state that count, one after the other. NULL: there are no more. */
Affine *text_part(const Text *t, State *st, uint32_t i);
bool text_alike(const State *a, const State *b); /* the same I waiting in both, but for their microbatches */
void text_end_straight(Text *t);                 /* what is in no segment yet is one */
bool text_run_op(Text *t, const Stmt *b);
void text_join(Text *t, uint32_t first);         /* rows from there on are one action */
/* The rows from `first` on are an action: what the recompute clause puts before it. */
bool text_recompute_before(Text *t, uint32_t first);
bool text_run_list(Text *t, const Stmt *b);

/* lists_loops.c: a loop of so many turns; statements. */
bool text_run_loop(Text *t, Loop k, Affine count);
bool text_turns(Text *t, const Range *r, Affine *lo, int64_t *step, Affine *count); /* of lo .. hi step `step` */
bool text_run_body(Text *t, const Stmt *b);
bool text_run_do(Text *t, const Stmt *b);
bool text_run_kernel(Text *t, const Stmt *b);

/* lists_clock.c */
bool text_run_clock(Text *t, const Stmt *b);

/* lists_model.c: stages, places and edges are the same for all n. */
bool same_model_of_m(AffineEnv *x);

#endif
