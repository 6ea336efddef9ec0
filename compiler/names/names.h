/* SPDX-License-Identifier: MIT
 * The door of names/: the declaration that each name means, and the value of each expression. */
#ifndef PIPEC_NAMES_H
#define PIPEC_NAMES_H

#include "pipec.h"

/* ---- resolve.c: requires a parsed tree. Ensures: every name has a slot, a definition or a
 * builtin; imports are loaded; Parsed.def is set ---- */
bool resolve(Sched *s, Parsed *parsed);
typedef enum Builtin { /* EX_CALL.builtin */
  BI_FN, BI_MIN, BI_MAX,
  BI_INFLIGHT, BI_HELD, BI_KEPT, BI_WARMUP, BI_MEMORY, BI_STALENESS, BI_DISCREPANCY, /* of a rank */
  BI_HOST, BI_HOST_MEMORY, BI_GUESTS,          /* of a rank */
  BI_VERSIONS, BI_STASHED,                     /* of a rank, or of all ranks */
  BI_VOLUME, BI_MESSAGES,                      /* of a rank, or of all ranks */
  BI_MAKESPAN, BI_SPAN, BI_IDLE, BI_BUBBLE,    /* of a play with named costs */
  /* not in any text: row EX_CALL.slot of RuleTables.later, in a condition of rules */
  BI_LATER
} Builtin;
/* Can `when` of rules read this quantity? */
static inline bool is_now(int builtin) {
  return (builtin >= BI_INFLIGHT && builtin <= BI_KEPT) || builtin == BI_HOST;
}
/* ---- eval.c ---- */
/* Reports at `at`, without a place at the name of the schedule, that the budget is spent, if
 * nothing is reported yet. Always false. */
bool too_many_steps(Sched *s, Span at);
/* Takes steps from the budget of the compile. False: reported. */
static inline bool take_steps(Sched *s, uint64_t steps, Span at) {
  return work_take(s->work, steps) || too_many_steps(s, at);
}
/* Evaluates e with the variables in Eval.env. False: reported (overflow, division by zero, a rank
 * out of range, too many steps). */
bool eval(Sched *s, const Expr *e, int64_t *value);
/* Evaluates the file-level lets of a resolved tree, imports first. */
bool eval_lets(Sched *s, Ast *ast);
bool eval_range(Sched *s, const Range *r, int64_t *lo, int64_t *hi, int64_t *step);
/* The values of what e mentions, for messages: "P = 4, r = 0, inflight(r) = 5". About 200 bytes at
 * most. */
const char *eval_explain(Sched *s, const Expr *e);
const char *params_text(Sched *s, const Schedule *sc); /* "P, M" */
/* Prints the help "its parameters are P, M". */
void help_params(Sched *s, const Schedule *sc);
const char *span_text(Sched *s, Span at); /* the text at `at`, blanks squeezed, cut at 80 bytes */
typedef enum CostKey { /* keys of time { }, of bytes { } and of a profile */
  KEY_F, KEY_B, KEY_I, KEY_W, KEY_R, KEY_U, KEY_FB, KEY_SEND, KEY_REDUCE, KEY_OFF, KEY_LOAD,
  KEY_ACT, KEY_GOUT, KEY_BOUNDARY, KEY_WEIGHT, KEY_GRAD, KEY_OPT, KEY_WORK, KEY_EDGE, KEY_TIED,
  /* number of times; of the times of makespan(F = 1) */
  NKEYS, NTIMEKEYS = KEY_ACT, NPLAYKEYS = KEY_OFF,
  KEY_LATENCY = NKEYS, KEY_BANDWIDTH, /* time { }: of the link to the next stage */
  KEY_SUM_LATENCY, KEY_SUM_BANDWIDTH, /* time { }: of the ring of ranks that sum gradients */
  NENTRIES
} CostKey;
extern const char *const cost_key[NENTRIES];
/* ---- shapes.c: words that the grammar leaves open. list: the clock or rules around the statement,
 * or NULL ---- */
void overlap_shape(Sched *s, const Stmt *t, const Stmt *list);
void send_shape(Sched *s, const Clause *c);
void side_shape(Sched *s, const Clause *c);
/* ---- eval.c ---- */
bool is_given(const Options *o, const Param *p); /* does -D give its value? */
/* Evaluates the rank that is the first argument of a builtin. False: reported, or there is no such
 * rank. */
bool rank_argument(Sched *s, const Expr *call, int64_t *r);
/* ---- explain.c ---- */
/* Prints a line for each page of lang/errors.md and each word of lang/words.def. */
void explain_list(Sched *s, FILE *f);
/* Prints the text of a word, and the page of a diagnostic; of a name in brackets only the page.
 * False: reported. */
bool explain_name(Sched *s, const char *name, FILE *f);
/* The start of a diagnostic's page in lang/errors.md, behind its heading; NULL: there is no
 * page. */
const char *explain_page(const char *name);
/* ---- eval.c ---- */
/* A copy of s that reports nothing, to evaluate expressions that may have no value. */
Sched quiet(const Sched *s, Diag *none);
/* Evaluates e with the variables in Eval.env, without reports. False: it has no value. */
bool quiet_value(const Sched *s, const Expr *e, int64_t *v);
extern const char *const send_names[NSENDS];
/* ---- shapes.c ---- */
/* The words of --lowering and `transfers`: PipeLowering, and `auto`, which lets pipec choose. */
enum { LOWERING_AUTO = PIPE_NLOWERINGS, NLOWERINGS };
uint32_t lowering_of(const char *name); /* NLOWERINGS: there is no lowering of this name */
/* The lowering that --lowering requests; without this option in_text. */
uint32_t asked_lowering(const Sched *s, uint32_t in_text);
/* Reports at `at` that a W in the text of clock or rules has no index. */
void refuse_bare_w(Sched *s, Span at, const OpRef *w, const Stmt *list);
void transfers_shape(Sched *s, const Clause *c);
const char *lowering_text(uint32_t lowering); /* "channels" */
enum { LONGEST_SIDE_NAME = 16 };

#endif
