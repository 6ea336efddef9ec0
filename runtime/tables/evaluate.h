/* SPDX-License-Identifier: MIT
 * Evaluates the formulas of pipe_formula.h; not installed. */
#ifndef PIPE_RUN_FORMULA_H
#define PIPE_RUN_FORMULA_H

#include <stdbool.h>

#include "pipe_formula.h"

typedef struct PrFormulaIn {
  /* Indexed by PipeElem, then states; only arrays that the formula names are read. */
  const float *const *elem;
  double real[PIPE_NREALS];
} PrFormulaIn;

/* Checks that f is a well-formed formula with nstate states: NULL, or the reason (static text).
 * `*elems`, unless NULL, receives the set of arrays that f names: bit PipeElem; bit 31 also stands
 * for all later states. */
const char *pr_formula_check(const PipeFormula *f, uint32_t nstate, uint32_t *elems);

/* The value of a checked formula with `scalar` 1. */
double pr_formula_number(const PipeFormula *f, const PrFormulaIn *in);

/* Computes n elements of a checked formula; if its value is a number, all elements are equal. `out`
 * may be one of the arrays that the formula reads. Numbers are computed once, elements in
 * blocks. */
void pr_formula_array(const PipeFormula *f, const PrFormulaIn *in, float *out, uint64_t n);

/* Operands of a term, its text in .pipe, and its value for numbers; the compiler folds constants
 * with them too. */
extern const uint8_t pr_term_operands[PIPE_NTERMS];
extern const char *const pr_term_text[PIPE_NTERMS];
double pr_term_number(PipeTermOp op, const double *x);

#endif
