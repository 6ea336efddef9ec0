/* SPDX-License-Identifier: MIT
 * The names in the lines of `weights` (lang/spec.md 5.14). Part of resolve. */
#ifndef PIPEC_FORMULA_NAMES_H
#define PIPEC_FORMULA_NAMES_H

#include "pipec.h"

/* A name in a formula: Expr.builtin of an EX_NAME. */
typedef enum FormulaName {
  FO_VALUE, /* an integer of the schedule, in Expr.slot */
  FO_STATE, /* a state of the program, by its name */
  FO_W, FO_OLD, FO_G, FO_V, FO_V2,            /* arrays */
  FO_LR, FO_K,                                /* numbers of the run */
  FO_DELAY, FO_BEHIND, FO_AHEAD, FO_N,        /* numbers of the op */
  FO_NNAMES
} FormulaName;

/* Expr.slot of a call in a formula: a PipeTermOp, FORMULA_SUM, or an integer of the schedule. */
enum { FORMULA_INTEGER = 0, FORMULA_SUM = PIPE_NTERMS };

/* The context in which the names of a formula are resolved. */
typedef struct FormulaScope {
  Sched *s;
  const WeightLine *line;
  const Name *state; uint32_t nstate; /* states declared above the line */
  void *self;                         /* first argument of the functions below */
  void (*value)(void *self, Expr *e); /* resolves an expression of the schedule */
  /* Is the name visible in the schedule? Sets *at to its place. */
  bool (*visible)(void *self, Name name, Span *at);
  uint32_t (*bind)(void *self, Name name, Span at); /* defines a variable; returns its slot */
  void (*unbind)(void *self);                       /* removes the last variable */
} FormulaScope;

/* Resolves the formula of f->line. Reports errors. */
void formula_resolve(const FormulaScope *f);
/* Checks that the name before '=' of a line `U then` is a state. Reports an error otherwise. */
void formula_target(const FormulaScope *f);
/* May a state have this name? False: reported. */
bool formula_state(const FormulaScope *f, Name name, Span at);

#endif
