/* SPDX-License-Identifier: MIT
 * Evaluates the formulas of pipe_formula.h; not installed. */
#ifndef PIPE_RUN_FORMULA_H
#define PIPE_RUN_FORMULA_H

#include <stdbool.h>

#include "pipe_formula.h"

typedef struct PrFormulaIn {
  /* by PipeElem, states behind; only those that the formula names are read */
  const float *const *elem;
  double real[PIPE_NREALS];
} PrFormulaIn;

/* Whether f is a well-formed formula of so many states: NULL, or what is wrong with it (static
 * text). `*elems`, unless NULL, becomes the set of the arrays that it names, bit PipeElem; states
 * beyond bit 31 are bit 31. */
const char *pr_formula_check(const PipeFormula *f, uint32_t nstate, uint32_t *elems);

/* The number of a checked formula with `scalar` 1. */
double pr_formula_number(const PipeFormula *f, const PrFormulaIn *in);

/* The n elements of a checked formula, of either kind: a number goes to each. `out` may be one of
 * the arrays that are read. Numbers are computed once, elements in blocks. */
void pr_formula_array(const PipeFormula *f, const PrFormulaIn *in, float *out, uint64_t n);

/* Number of operands of a term, its text in .pipe, and what it gives for numbers: what the compiler
 * folds constants with, too. */
extern const uint8_t pr_term_operands[PIPE_NTERMS];
extern const char *const pr_term_text[PIPE_NTERMS];
double pr_term_number(PipeTermOp op, const double *x);

#endif
