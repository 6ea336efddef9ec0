/* SPDX-License-Identifier: MIT
 * The state of the expand pass, for the three ways to give a rank its order: statements in sequence
 * (expand.c), time stamps (order_clock.c) and priorities (order_rules.c).
 *
 * Inside `clock` and `rules`, ops are not pushed but listed, with the expressions after their `@`
 * and `when`. run_clock and run_rules then decide in which order to push them. */
#ifndef PIPEC_EXPAND_H
#define PIPEC_EXPAND_H

#include "instance.h"

typedef struct KernelItem { /* an op of the kernel being expanded */
  int64_t lag, lo, hi;
  const Expr *index;
  uint32_t stage;      /* if fixed: its stage, once a turn has run; else NONE */
  bool fixed;
} KernelItem;

typedef struct Listed { /* what stands in clock or rules */
  int64_t key;         /* time stamp, or priority */
  uint32_t seq;        /* place in the list */
  int64_t turn;        /* (clock) turn of the outermost block */
  uint32_t stage, mb;
  uint8_t kind;        /* of its op: PipeOp, OFF and LOAD included */
  uint8_t phase;       /* PipePhase of the label around it; PIPE_NPHASES: no label */
  bool keyed;          /* it has a key; else it fills */
  const OpRef *use;    /* as written */
  const Stmt *stmt;
  const Stmt *joint;   /* the overlap or group that it stands in, or NULL */
  /* Equal for all of a joint; (clock) for all of a U or REDUCE, which share a tick; 0: none. */
  uint32_t joint_first;
  bool any;            /* (rules) it names no op: in an overlap, the op that is first in line */
  Expr *guard;         /* (rules) `when`, with all but the quantities put in; or NULL */
} Listed;

typedef struct Later { /* a part of a condition that has no value, and may not be needed */
  const Expr *of;
  int64_t *env;        /* [nslot] the variables where it was listed */
} Later;

/* An op of clock or rules, for ops without an index behind the block. */
typedef struct Noted {
  int64_t key;         /* time stamp */
  bool last;           /* the last op with this `next` */
  int64_t *next;       /* entry of Ex.next_f, next_b or next_r, */
  int64_t place;       /* and its value if this op is the last of its kind on its stage */
} Noted;

typedef struct Region { /* of rules: these ops of a rank are put in order once all are known */
  uint32_t rank, first, n, copy, ncopy, cls0, ncls; /* rows of Orders.op, of Orders.copy; classes */
  const Stmt *at;
} Region;

/* What a rank may take next (rules.h): `n` rows of RuleTables.parts. */
typedef struct RuleCand {
  uint32_t cls, first, n;
  /* The microbatch of the first op that it names; NONE: it names none, and keeps the one it
   * took. */
  uint32_t mb;
  uint32_t missing;    /* number of named ops whose inputs are not known */
  uint64_t avail;      /* when the known inputs arrive */
  int64_t key;
  Expr *guard;
} RuleCand;
typedef struct RulePart {
  /* row of Orders.op, or Orders.nop (at the end) + row of Orders.copy; NONE: any of */
  uint32_t op;
  uint32_t stage;      /*   this stage, */
  uint32_t cand, next; /* whose it is; row + 1 of the next part with this op, 0 */
  uint8_t kind;        /*   and this kind */
} RulePart;

typedef VEC(uint32_t) CandHeap;

/* The candidates of one statement of `rules` on one stage, in order of priority. */
typedef struct RuleClass {
  const Stmt *stmt;
  uint32_t stage;
  uint8_t kind;
  bool keyed, joint;    /* joint: of an overlap */
  CandHeap ready, coming; /* inputs have arrived; producers have started */
} RuleClass;

/* The order of another schedule, while it runs in place of a `use`. */
typedef struct Use {
  const Stmt *at;
  const Clause **pipe; /* [npipe] the clauses of its pipes; NULL: it has none there */
  const uint32_t *nmb; /* [npipe] their microbatches */
  const int64_t *index; /* [npipe] their places in an array of pipes */
  int64_t shift;       /* the microbatch outside that its microbatch 0 means; */
  int64_t total;       /* the same outside of all */
  int64_t lo, hi, step; /* it runs only these of its microbatches; step 0: all */
  bool clip;           /* whether it stands in `clip` */
  uint32_t first;      /* row of its first op, */
  uint32_t listed;     /*   of the first one that it lists */
  /* Where places depend on the microbatch, here or there; else NULL: */
  /* [npipe] the rank of each stage and microbatch of its own, [stage * nmb + mb]. */
  uint32_t *const *place;
  /* [nheld] The rows of the present rank that it runs, by chunk. If a row is of another rank, all
   * microbatches of the chunk are left out. */
  const uint32_t *held;
  uint32_t nheld;
  /* The same as chunks of the rank, -1: of another rank; made when needed (rules_when.c). */
  Arg *own_chunks;
  const Stmt *list;    /* the clock or rules that it stands in, or NULL */
  const struct Use *outer;
} Use;

/* Is microbatch mb, counted as in u, left out of it by `in`? */
static inline bool use_leaves_out(const Use *u, int64_t mb) {
  if (u->step == 0)
    return false;
  return u->step > 0 ? mb < u->lo || mb >= u->hi || (mb - u->lo) % u->step != 0
                     : mb > u->lo || mb <= u->hi || (u->lo - mb) % -u->step != 0;
}

/* A schedule that is used, and the last values with which it was found to fit. */
typedef struct Fitting {
  const Schedule *sc;
  uint32_t *slot;      /* [n] of env: its parameters, then its values and those of its bases */
  int64_t *value;      /* [n] */
  uint32_t n, nparam;
  bool checked;        /* there have been any */
  Clauses clauses;
  const Clause **pipe; /* as in Use */
  uint32_t *nmb;
  int64_t *index;
  uint32_t **place, *nplace; /* [npipe] the same, and how many there is room for */
  bool dealt;          /* there are places that depend on the microbatch, here or there */
  uint32_t row;        /* of Ex.fitting */
} Fitting;

/* What `rules` list. */
typedef struct RuleTables {
  VEC(Region) regions;
  VEC(RuleCand) cands;
  VEC(RulePart) parts;
  VEC(RuleClass) classes;
  VEC(Later) later;    /* of conditions: rows of BI_LATER */
} RuleTables;

typedef struct Ex {
  Sched *s;
  Instance in;
  Orders *orders;      /* what it makes: the same that s sees */
  Sides *sides;
  Arena scratch;       /* memory of clock and rules until the pass ends */
  uint32_t rank;
  uint8_t phase;
  bool labelled;
  bool clip;           /* inside `clip` */
  uint64_t budget;     /* loop iterations left to the rank */
  uint32_t turns;      /* loop iterations of all ranks so far */
  bool period_said;
  VEC(KernelItem) items;
  const OpRef *use;    /* the op as written in the order, while a macro is expanded */
  const Use *in_use;   /* the innermost `use` that is being run, or NULL */
  uint32_t use_depth;
  VEC(int64_t) outer_next; /* of push_next */
  VEC(uint32_t) rows;  /* of one that is being looked at */
  bool use_told;       /* the error that was reported last is at a `use` */
  VEC(Fitting) fitting; /* of each schedule that was used, the last values */
  uint32_t op_cap;
  /* [nstage] What an op without index takes: one past the last. */
  int64_t *next_f, *next_b, *next_r;
  uint32_t *fresh;     /* [nstage] number of gradient ops since the last U */
  uint32_t *last_u;    /* [nstage] op + 1; 0: none */
  /* [nstage + nrank] By stage, then by rank: the first op that may be an I without W. */
  uint32_t *w_from;

  /* clock and rules */
  const Stmt *list, *list_op; /* being listed; its op statement */
  /* The overlap that is being listed, its stamp or priority, and 1 + its first row. */
  const Stmt *joint;
  int64_t joint_key;
  uint32_t joint_first;
  /* (rules) [nstage * (nmb + 1)] row + 1 of U(m); the last of a stage: of U. NULL: there is none */
  uint32_t *at_u;
  uint32_t whole;      /* first row + 1 of the U of a rank that is being listed */
  int64_t key;
  bool keyed;
  VEC(Listed) listed;
  VEC(Noted) noted;    /* of the block */
  RuleTables rules;
} Ex;

/* ---- side.c ---- */
bool find_sides(Ex *x);

/* ---- expand.c ---- */
bool spend(Ex *x, const Stmt *t);
/* Runs the body of loop t, turn by turn. */
bool do_turns(Ex *x, const Stmt *t, bool (*body)(Ex *, const Stmt *, const void *), const void *of);
bool run_block(Ex *x, const Stmt *b);
/* The pipe of an op; its microbatches. */
bool op_pipe(Ex *x, const OpRef *o, const Pipe **pipe);
uint32_t pipe_mbs(const Ex *x, uint32_t k);
/* The number of microbatches of the pipes that o may be of, if it is equal for all. */
bool array_mbs(const Ex *x, const OpRef *o, int64_t *n);
/* The stage of an op; NONE: another rank has it, and `clip` drops the op. */
bool op_stage(Ex *x, const OpRef *o, uint32_t *stage);
/* The rows of the present rank by chunk; of a used order, the rows that it runs. pipe_rows: the
 * rows of a pipe. */
const uint32_t *rank_rows(const Ex *x, uint32_t *n);
const uint32_t *pipe_rows(const Ex *x, const Pipe *p, uint32_t *n);
/* The microbatch and slice in the parentheses of an op; `value` stands for `index`. */
bool op_indices(Ex *x, const OpRef *o, const Expr *index, int64_t value, int64_t *mb,
                int64_t *slice);
bool add_op(Ex *x, const OpRef *o, uint32_t stage, int64_t mb, int64_t slice);
/* The entry of next_f, next_b or next_r that an op counts in, and its value behind the op if
 * `outside` is microbatch 0. NULL: the kind is not counted. */
int64_t *next_behind(Ex *x, uint8_t kind, uint32_t stage, uint32_t mb, int64_t outside,
                     int64_t *place);
/* push_next saves what ops without index take; pop_next restores it, with `w` for W too. Calls
 * nest. */
uint32_t push_next(Ex *x);
void pop_next(Ex *x, uint32_t pushed, bool w);
/* Is the op in the order of the rank already? */
bool has_run(Sched *s, uint8_t kind, uint32_t stage, uint32_t mb);
/* Binds the parameters of a macro as o says, with `value` for `index`, and runs it. */
bool bind_macro(Ex *x, const OpRef *o, const Expr *index, int64_t index_value);
bool run_macro(Ex *x, const OpRef *o, const Expr *index, int64_t index_value);
bool run_update(Ex *x, const OpRef *o, const Expr *index, int64_t mb);

/* ---- next_w.c ---- */
/* What a W without index takes in the order at hand; *mb -1: none is left, skip the W. */
bool next_w(Ex *x, const OpRef *o, uint32_t *stage, int64_t *mb, int64_t *slice);

/* ---- kernel.c ---- */
bool run_kernel(Ex *x, const Stmt *t);

/* ---- push.c ---- */
/* Adds an op to the rank; false: reported (it is there twice, or a U has nothing to apply). */
bool push_op(Ex *x, uint8_t kind, uint32_t stage, uint32_t mb);
/* The same for an OFF or LOAD. */
bool push_copy(Ex *x, uint8_t kind, uint32_t stage, uint32_t mb);

/* Where the op stands in the text: a row of Orders.site. */
uint32_t op_site(Ex *x, const OpRef *o);

/* ---- transfers_clause.c ---- */
bool find_lowering(Ex *x); /* the `transfers` clauses */

/* ---- recompute.c ---- */
/* Adds R by the `recompute` clauses, once every rank has its ops. */
bool insert_recompute(Ex *x);

/* ---- overlap.c ---- */
bool run_overlap(Ex *x, const Stmt *t);
/* Checks that neither of two ops of an action updates the stage of the other. False: reported. */
bool beside_update(Sched *s, uint32_t a, uint32_t b);
enum { MAX_TOGETHER = 64 };
bool too_many(Ex *x, const Stmt *t, uint32_t n); /* reports more than MAX_TOGETHER */
/* Makes one action of the ops from `first` on, from the body of t; one op stays a plain op. */
bool join_ops(Ex *x, const Stmt *t, uint32_t first);
bool find_send(Ex *x); /* the `send` clauses */

/* ---- order_clock.c ---- */
bool list_op(Ex *x, uint8_t kind, uint32_t stage, uint32_t mb);
void no_ticks(Ex *x); /* reports why only a clock can be used in the present clock */
bool list_any(Ex *x, const OpRef *o); /* (rules) an op without index in an overlap */
/* Notes that ops without index behind the block continue at *next = place. */
void note_listed(Ex *x, int64_t *next, int64_t place);
/* next_behind for a listed op; also NULL if it ran before the block. */
int64_t *listed_next(Ex *x, const Listed *l, int64_t outside, int64_t *place);
/* Runs the body of t, an overlap with one time stamp for all its ops, inside a clock. */
bool list_joint(Ex *x, const Stmt *t);
/* Runs the body of t for each index and leaves its ops in x->listed. Adds `period` to the key once
 * for each index. */
bool list_body(Ex *x, const Stmt *t, int64_t period);
/* Sets missing phases of ops a..b: warmup before the first backward, flush after the last F. */
void label_phases(Sched *s, uint32_t a, uint32_t b);
/* The same for all ops a..b. */
void label_again(Sched *s, uint32_t a, uint32_t b);
/* An OFF or LOAD without a phase has the phase of the op after it, or of the last before `end`. */
void label_copy(Sched *s, Copy *c, uint32_t end);
bool run_clock(Ex *x, const Stmt *t);

/* ---- order_rules.c ---- */
/* Puts `when` into l->guard, with all but the quantities evaluated. False: reported. */
bool rules_guard(Ex *x, Listed *l);
/* Pushes the ops of t in any order and remembers them. */
bool run_rules(Ex *x, const Stmt *t);
/* Plays all ranks, once every rank has its ops, and puts the ops of `rules` in order. */
bool play_rules(Ex *x);

/* ---- expand.c ---- */
/* The `tune` clause that holds for the schedule, or NULL. */
const Clause *find_tune(const Schedule *sc);
/* Gives the variable of c the Tuning.at-th value of its range if c is `chosen`, else the first. */
bool bind_tune(Sched *s, struct Tuning *tuning, const Clause *c, const Clause *chosen);

/* ---- use.c ---- */
bool run_use(Ex *x, const Stmt *t);

#endif
