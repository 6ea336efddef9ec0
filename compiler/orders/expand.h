/* SPDX-License-Identifier: MIT
 * The state of the expand pass, for the three ways to order a rank: statements in sequence
 * (expand.c), time stamps (order_clock.c) and priorities (order_rules.c).
 *
 * Inside `clock` and `rules`, ops are not pushed but listed, with the expressions after their `@`
 * and `when`. Later run_clock and run_rules push them in the order that these expressions give. */
#ifndef PIPEC_EXPAND_H
#define PIPEC_EXPAND_H

#include "instance.h"

typedef struct KernelItem { /* an op of a kernel */
  int64_t lag, lo, hi;
  const Expr *index;
  uint32_t stage;      /* fixed: its stage, known after the first turn; else NONE */
  bool fixed;
} KernelItem;

typedef struct Listed { /* an op listed in clock or rules */
  int64_t key;         /* time stamp, or priority */
  uint32_t seq;        /* position in the list */
  int64_t turn;        /* (clock) turn of the outermost block */
  uint32_t stage, mb;
  uint8_t kind;        /* PipeOp, OFF and LOAD included */
  bool keyed;          /* it has a key; false: it fills gaps */
  const OpRef *use;    /* the op as written */
  const Stmt *stmt;
  const Stmt *joint;   /* the overlap that contains it, or NULL */
  /* equal for members of an overlap and, in clock, ops of one U, which share a tick; 0: alone */
  uint32_t joint_first;
  /* (rules) in an overlap: it names no op, but means the op that is first in line */
  bool any;
  /* (rules) `when` with numbers for everything but quantities; NULL: no condition */
  Expr *guard;
} Listed;

typedef struct Later { /* a part of a condition that has no value yet, and may not be needed */
  const Expr *of;
  int64_t *env;        /* [nslot] the variables at the time of listing */
} Later;

/* An op of clock or rules from which ops without an index behind the block count on. */
typedef struct Noted {
  int64_t key;         /* time stamp */
  bool last;           /* it is the last op with this `next` */
  int64_t *next;       /* entry of Ex.next_f, next_b or next_r */
  int64_t place;       /* the value of *next if this op is the last of its kind on its stage */
} Noted;

/* A block of rules: its ops are put in order after all ranks have their ops. */
typedef struct Region {
  /* n ops and ncopy copies of `rank`, from `first` and `copy` on; ncls classes from cls0 on */
  uint32_t rank, first, n, copy, ncopy, cls0, ncls;
  const Stmt *at;
} Region;

/* A candidate: what a rank may take next (rules.h). Rows first .. first + n - 1 of
 * RuleTables.parts. */
typedef struct RuleCand {
  uint32_t cls, first, n;
  /* microbatch of its first named op; NONE: it names no op, and remains after it was taken */
  uint32_t mb;
  uint32_t missing;    /* number of named ops whose inputs are not known */
  uint64_t avail;      /* time at which the known inputs arrive */
  int64_t key;
  Expr *guard;
} RuleCand;
typedef struct RulePart {
  /* row of Orders.op; or Orders.nop (its final value) + row of Orders.copy; NONE: any op of this
   * stage and kind */
  uint32_t op;
  uint32_t stage;
  uint32_t cand, next; /* its candidate; 1 + row of the next part with this op, 0: no more */
  uint8_t kind;
} RulePart;

typedef VEC(uint32_t) CandHeap;

/* The candidates of one statement of `rules` on one stage, in order of priority. */
typedef struct RuleClass {
  const Stmt *stmt;
  uint32_t stage;
  uint8_t kind;
  bool keyed, joint;    /* joint: it is an overlap */
  /* candidates whose inputs have arrived; candidates whose producers have started */
  CandHeap ready, coming;
} RuleClass;

/* The tables of all blocks of `rules`. */
typedef struct RuleTables {
  VEC(Region) regions;
  VEC(RuleCand) cands;
  VEC(RulePart) parts;
  VEC(RuleClass) classes;
  VEC(Later) later;    /* parts of conditions; rows of BI_LATER */
} RuleTables;

typedef struct Ex {
  Sched *s;
  Instance in;
  Orders *orders;      /* the product; s sees it as const */
  Sides *sides;
  Arena scratch;       /* memory until the pass ends */
  uint32_t rank;
  bool clip;           /* inside `clip` */
  uint64_t budget;     /* loop iterations that the rank may still run */
  bool period_said;    /* a wrong period was reported */
  VEC(KernelItem) items;
  const OpRef *use;    /* the op as written in the order, also while its macro is expanded */
  uint32_t op_cap;
  /* [nstage] what an op without an index takes next: 1 + the last unit */
  int64_t *next_f, *next_b, *next_r;
  uint32_t *fresh;     /* [nstage] number of gradient ops since the last U */
  uint32_t *last_u;    /* [nstage] 1 + op; 0: none */
  /* [nstage + nrank] by stage, then by rank: the first op that may be an I without W */
  uint32_t *w_from;

  /* clock and rules */
  const Stmt *list, *list_op; /* the block being listed; its present op statement */
  /* the overlap being listed; its stamp or priority; 1 + its first row */
  const Stmt *joint;
  int64_t joint_key;
  uint32_t joint_first;
  /* (rules) [nstage * (nmb + 1)] 1 + row of U(m); last entry of a stage: of U. NULL: no U so far */
  uint32_t *at_u;
  uint32_t whole;      /* 1 + first row of the U of a whole rank that is being listed */
  int64_t key;
  bool keyed;
  VEC(Listed) listed;
  VEC(Noted) noted;    /* ops of the block */
  RuleTables rules;
} Ex;

/* ---- check_deps.c ---- */
/* Checks that neither of two ops of an action updates the stage of the other. False: reported. */
bool beside_update(Sched *s, uint32_t a, uint32_t b);

/* ---- side.c ---- */
bool find_sides(Ex *x);

/* ---- op_stage.c ---- */
/* The pipe of an op; the number of microbatches of pipe k. */
bool op_pipe(Ex *x, const OpRef *o, const Pipe **pipe);
uint32_t pipe_mbs(const Sched *s, uint32_t k);
/* The number of microbatches of the pipes that o may belong to. False: it differs. */
bool array_mbs(const Sched *s, const OpRef *o, int64_t *n);
/* The stage of an op; NONE: it is on another rank, and `clip` drops the op. */
bool op_stage(Ex *x, const OpRef *o, uint32_t *stage);
/* The rows of the present rank, by chunk. pipe_rows: only the rows of a pipe. */
const uint32_t *rank_rows(const Ex *x, uint32_t *n);
const uint32_t *pipe_rows(const Ex *x, const Pipe *p, uint32_t *n);
/* Reports that the rank cannot run o: `why`, from `at`. */
bool no_stage(Ex *x, const OpRef *o, Span at, const char *why);

/* ---- expand.c ---- */
bool spend(Ex *x, const Stmt *t);
/* Runs the body of loop t for each turn. */
bool do_turns(Ex *x, const Stmt *t, bool (*body)(Ex *, const Stmt *, const void *), const void *of);
bool run_block(Ex *x, const Stmt *b);
/* Evaluates the microbatch and slice in the parentheses of an op; `value` stands for `index`. */
bool op_indices(Ex *x, const OpRef *o, const Expr *index, int64_t value, int64_t *mb,
                int64_t *slice);
bool add_op(Ex *x, const OpRef *o, uint32_t stage, int64_t mb, int64_t slice);
/* Binds the parameters of a macro as o says, with index_value for `index`; run_macro then runs
 * it. */
bool bind_macro(Ex *x, const OpRef *o, const Expr *index, int64_t index_value);
bool run_macro(Ex *x, const OpRef *o, const Expr *index, int64_t index_value);
bool run_update(Ex *x, const OpRef *o, const Expr *index, int64_t mb);

/* ---- next_w.c ---- */
/* Finds what a W without an index takes in the present order. *mb -1: none is left, skip the W.
 * False: reported. */
bool next_w(Ex *x, const OpRef *o, uint32_t *stage, int64_t *mb, int64_t *slice);

/* ---- kernel.c ---- */
bool run_kernel(Ex *x, const Stmt *t);

/* ---- push.c ---- */
/* Adds an op to the rank. False: reported (the op is there already, or a U repeats the last
 * one). */
bool push_op(Ex *x, uint8_t kind, uint32_t stage, uint32_t mb);
/* Adds an OFF or LOAD to the rank. False: reported. */
bool push_copy(Ex *x, uint8_t kind, uint32_t stage, uint32_t mb);


/* ---- transfers_clause.c ---- */
bool find_lowering(Ex *x); /* reads the `transfers` clauses */

/* ---- recompute.c ---- */
/* Adds R by the `recompute` clauses. Requires that every rank has its ops. */
bool insert_recompute(Ex *x);

/* ---- overlap.c ---- */
bool run_overlap(Ex *x, const Stmt *t);
enum { MAX_TOGETHER = 64 };
bool too_many(Ex *x, const Stmt *t, uint32_t n); /* reports more than MAX_TOGETHER */
/* Makes one action of the ops from `first` on, made by the body of t. A single op stays a plain
 * op. */
bool join_ops(Ex *x, const Stmt *t, uint32_t first);
bool find_send(Ex *x); /* reads the `send` clauses */

/* ---- order_clock.c ---- */
bool list_op(Ex *x, uint8_t kind, uint32_t stage, uint32_t mb);
bool list_any(Ex *x, const OpRef *o); /* (rules) lists an op without an index in an overlap */
/* Notes that ops without an index behind the block continue at *next = place. */
void note_listed(Ex *x, int64_t *next, int64_t place);
/* Runs the body of t, an overlap in a clock or rules, whose ops share its time stamp or
 * priority. */
bool list_joint(Ex *x, const Stmt *t);
/* Runs the body of t for each index and leaves its ops in x->listed. Adds `period` to the keys once
 * per index. */
bool list_body(Ex *x, const Stmt *t, int64_t period);
/* Sets the phases of ops a .. b - 1, all of a rank: warmup before the first backward (B or I),
 * flush after the last F, else steady. An action has one phase. */
void set_phases(Orders *orders, uint32_t a, uint32_t b);
bool run_clock(Ex *x, const Stmt *t);

/* ---- order_rules.c ---- */
/* Sets l->guard: `when` with everything but quantities evaluated. False: reported. */
bool rules_guard(Ex *x, Listed *l);
/* Pushes the ops of t in any order and remembers them for play_rules. */
bool run_rules(Ex *x, const Stmt *t);
/* Plays all ranks, and puts the ops of `rules` in order. Requires that every rank has its ops. */
bool play_rules(Ex *x);

/* ---- expand.c ---- */
/* The `tune` clause that applies to the schedule, or NULL. */
const Clause *find_tune(const Schedule *sc);

#endif
