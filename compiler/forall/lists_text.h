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

enum { MOST_LEVELS = 4 }; /* of `use` in `use`, and the schedule itself */

typedef struct State { /* what ops without index take, in the schedule and in each that is being used */
  Affine *next[3 * MOST_LEVELS]; /* [nstage] of F, R, and of B or I; those of the rank count */
  VEC(Waiting) wait;
  uint32_t old;    /* so many of them, the first ones, stand before the clock at hand */
} State;

/* A row of what a block of rules lists; those of an action stand together. */
typedef struct RuleRow {
  const Stmt *stmt;   /* of the op, or of its action */
  Affine key;
  uint64_t guard;     /* rules_hash over the numbers of its condition */
  bool keyed, joint;
  bool any;           /* it names no op: the one that is first in line */
  bool stays;         /* no op of its action is of a microbatch */
  uint8_t kind;       /* of the first row of its action */
  uint32_t stage;
} RuleRow;

/* A block of rules. */
typedef struct RulesText {
  const Stmt *block;
  uint32_t head;      /* rows of the rank before it */
  RankList list;      /* what it lists: the units of a rank, in no order of the rank's */
  VEC(RuleRow) rule;  /* [row] */
  RuleRow at;         /* of the op, or action, that is being listed */
} RulesText;

/* A schedule whose order runs in place of a `use`. */
typedef struct TextUse {
  Use ex;              /* as Ex wants it */
  const Affine *mbs;   /* [npipe] its microbatches */
  Affine shift, total; /* which one its microbatch 0 is outside, and outside of all */
  Affine lo, hi;       /* of its own microbatches these run, by `step`; step 0: all */
  int64_t step;
  bool clip;           /* it stands in `clip` */
  uint32_t level;      /* of State.next */
  const struct TextUse *outer;
} TextUse;

typedef struct Text {
  AffineEnv *x;
  Sched *s;
  ListsOfM *l;
  RankList *out;
  Ex ex; /* to find stages; its clip */
  uint32_t rank;
  bool waits;        /* there are W without index */
  bool left;         /* I without W may be left of a clock */
  uint32_t level;    /* of State.next, of the clock or rules at hand; a bit for each kind of its ops, of which */
  uint8_t dropped;   /*   some are left out: */
  uint8_t unsure;    /*   what an op without index takes is not known */
  uint32_t straight; /* first row that is in no segment yet */
  State now;
  const Affine *mbs;   /* [npipe] microbatches of each pipe, of what is being used if there is one: */
  const TextUse *use;
  const Affine *all_mbs; /* [npipe] of this schedule */
  const Clause *again; /* recompute */
  const Stmt *clock;   /* its ops are being listed; their stamps: */
  VEC(Affine) stamp;   /* by row, from the first of the clock on */
  Affine base;         /* period times index */
  const Stmt *joint;
  Affine joint_stamp; /* the action that is being listed */
  RulesText **block;  /* [nrank] its block of rules, or NULL; of this rank, while it is being listed: */
  RulesText *rules;
  const OpRef *copy;  /* an OFF or LOAD that there is in some order; NULL */
  Affine split;       /* where a loop is to be cut: its index */
  uint64_t steps;
} Text;

typedef bool Body(Text *t, const Stmt *b);
typedef struct Loop {
  const Stmt *b;
  Body *body;
  Affine lo;
  int64_t step, turn; /* turn: so many of its turns are one that repeats */
  Affine base;        /* of a clock: what stamps are counted from */
} Loop;

/* lists_of_m.c. What stands in the way; false. */
bool text_no(Text *t, Span at, const char *why);
State text_save(Sched *s, const State *of);
/* Those values of a state that count, one after the other. NULL: there are no more. */
Affine *text_part(const Text *t, State *st, uint32_t i);
bool text_alike(const State *a, const State *b); /* the same I waiting in both, but for their microbatches */
void text_end_straight(Text *t);                 /* what is in no segment yet is one */
/* The op that a macro stands for, and its parameters' values. */
bool text_bind_macros(Text *t, const OpRef **of);
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

/* lists_use.c: runs the order of another schedule. */
bool text_run_use(Text *t, const Stmt *b);
/* The microbatch mb of what is being used is *mb outside of all; not *there: it is left out. */
bool text_use_mb(Text *t, uint32_t pipe, Span at, Affine *mb, bool *there);
/* An op that has been run is the last of its kind outside, too; kind: a row of State.next. */
void text_use_next(Text *t, uint32_t kind, uint32_t stage, Affine next);

/* Segment i, or what is in none yet: the rows from `from` on, as one turn. */
ListSegment text_segment(const RankList *l, uint32_t i, uint32_t from);
/* A clock, or rules, begins: what ops without index take there. */
State text_begin_block(Text *t);
/* What they take behind it: its rows are those of l from row0 on, in segments from segment0 on or in none yet. */
bool text_end_block(Text *t, const Stmt *b, const State *before, const RankList *l, uint32_t row0, uint32_t segment0);

/* lists_clock.c */
bool text_run_clock(Text *t, const Stmt *b);

/* The rows from row0 on, in segments from segment0 on: with what the recompute clause puts before each action. */
bool text_recompute_rows(Text *t, uint32_t row0, uint32_t segment0);

/* rules_of_m.c: lists a block of rules. */
bool text_run_rules(Text *t, const Stmt *b);
bool rules_stamp(Text *t, const Stmt *b);      /* priority and condition of an op or action: those of the rows that follow */
bool rules_any(Text *t, const OpRef *o);       /* an op without index in an action */
void rules_row(Text *t);                       /* the last row is one of them */
void rules_join(Text *t, uint32_t first);      /* rows from there on are one action */
/* It has run before the block? */
bool rules_ran(Text *t, Span at, uint8_t kind, uint32_t stage, Affine unit, bool *yes);
/* Puts in place of all lists those that the play of the rules makes of them. */
bool rules_fill(Text *t);

/* lists_model.c: parameters of what sc extends, and lets, those of sc last. */
bool text_bind_clauses(AffineEnv *x, const Schedule *sc);
/* lists_model.c: stages, places and edges are the same for all n. */
bool same_model_of_m(AffineEnv *x);

#endif
