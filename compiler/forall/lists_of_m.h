/* SPDX-License-Identifier: MIT
 * The order of each rank for every number of microbatches at once, as it follows from the text, and a proof that
 * these orders agree with the data (lang/spec.md 8.2). Values are affine.h's. */
#ifndef PIPEC_LISTS_OF_M_H
#define PIPEC_LISTS_OF_M_H

#include "affine.h"

/* An op that is there in every turn of its segment. */
typedef struct ListRow {
  uint8_t kind;    /* PipeOp; OFF and LOAD stand where they are in the order, too */
  bool whole;      /* U without a microbatch: unit says nothing */
  uint16_t group;  /* of Op */
  uint32_t stage;  /* row of Model.stage */
  Affine unit;     /* of its pipe, from 0 */
  Span at;
  /* the clock (clock_of_m.c): start + the pace of its segment */
  int64_t start;
} ListRow;

/* These rows turn by turn: `turns` + by_n * n turns. by_n 0: one turn, whose rows do not move with j. */
typedef struct ListSegment {
  uint32_t row0, nrow;
  int64_t turns, by_n;
  int64_t per_turn, per_n; /* the clock: what a turn, and n + 1, is later */
} ListSegment;

static inline bool pipe_is_copy(int kind) { return kind == PIPE_OFF || kind == PIPE_LOAD; }

typedef struct RankList {
  VEC(ListRow) row;
  VEC(ListSegment) segment;
} RankList;

/* The lists of all ranks for every n >= 0. */
typedef struct ListsOfM {
  uint32_t nrank;
  RankList *rank;     /* [nrank] */
  Affine *units;      /* [npipe] microbatches, or units, of each pipe */
  struct RulesText *const *block; /* [nrank] what its rules list (lists_text.h); NULL: there are none */
  int64_t pace;       /* units by which what repeats moves on in a turn, the same in all segments */
  bool late, applied; /* (clock_of_m) as in Sched.all_m */
} ListsOfM;

/* Binds parameters and lets of the schedule that x->s was compiled from to their values for M = from + step * n, where
 * slot is that of M. */
bool bind_of_m(AffineEnv *x, uint32_t slot, int64_t from, int64_t step);
/* What a parameter of the base of sc is: the value of a parameter of sc itself, *own, or of an expression; NULL: of neither.
 * *positional: sc->base_args at first. */
const Expr *base_value(const Schedule *sc, const Param *p, const Arg **positional, const Param **own);
/* all_m.c: without a gap of values that were too many to compile. */
bool is_proved_for_all(const Sched *s);
/* all_m_trial.c: compiles values of m of which all_m says that they are proved; where one is wrong all_m says that. */
void try_proved(Sched *s, const Param *m);
/* rest_of_m.c: does e depend on the parameter of that name, through others and lets, too? */
bool expr_moves(const Sched *s, const char *name, const Expr *e);
/* Why costs, sizes, links, what is recomputed, copied or read, or what the schedule requires and expects may have no value for
 * some value of parameter m, and where; NULL: they have one for all. */
const char *rest_lacks(const Sched *s, const Param *m, Span *at);
/* text_of_m.c: why a part of the orders' texts of which no op comes may have no value for some value of m, and where; NULL. */
const char *text_lacks(const Sched *s, const Param *m, Span *at);
/* Does it admit them, all or none? */
bool admits_of_m(AffineEnv *x, bool *yes);
/* The lists of the schedule that s was compiled from, at n = 0; requires bind_of_m. False: x says what is to be
 * changed, or why not. l->pace stays from try to try. */
bool lists_of_m(Sched *s, AffineEnv *x, ListsOfM *l);

/* A compiled program of the class and when its ops end if each takes one tick, transfers none. */
typedef struct SampleOfM {
  const Sched *s;
  int64_t n;
  const uint64_t *tick; /* [nop] */
} SampleOfM;
/* Proves the lists complete, in order and free of deadlocks for all n >= 0: ensures the clock. of: a sample so large that
 * what repeats has come to its pace. */
bool clock_of_m(const Sched *s, AffineEnv *x, ListsOfM *l, const SampleOfM *of);
/* lists_dump.c: text of lists for M = from + step * n that were made at `of`, behind that of others; in the arena of s. */
const char *lists_text(Sched *s, const Sched *of, const ListsOfM *l, int64_t from, int64_t step, const char *before);
/* verify_rules.c: what rules list is what the samples have listed, and from n to n + 1 they run a turn more of what repeats,
 * and all that follows so much later. The same samples; aborts. */
void verify_rules(const ListsOfM *l, const Sched *const at[3]);
/* verify_lists.c: the same again, from the lists and their clock alone, and that they are those of the samples, of
 * which there are three, n = 0, 1 and 2; aborts if it is not so. */
void verify_lists(const ListsOfM *l, const Sched *const at[3]);


/* all_m_lists.c: for s->all_m; requires check_deps. */
void prove_by_lists(Sched *s, const Param *m);
/* Of what has been proved: which values it leaves out, and whether there is a steady state. */
void limits_of_m(Sched *s, const Param *m);

#endif
