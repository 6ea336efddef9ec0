/* SPDX-License-Identifier: MIT
 * Formulas of the lines of `weights` (lang/spec.md 5.14). formula.c turns an expression at an op
 * into terms, which the emitted program evaluates (runtime/include/pipe_formula.h). */
#ifndef PIPEC_FORMULA_H
#define PIPEC_FORMULA_H

#include "formula_names.h"
#include "weights.h"

/* ---- formula.c: requires versions; ensures formula, rule, then of s, Versions.weights[].formula,
 * and the states that each stage keeps. False: reported ---- */
bool formulas(Sched *s, Model *model, Versions *versions);
/* Does update u need the old weights after it has run? */
bool formula_needs_old(const Sched *s, uint32_t u);

#endif
