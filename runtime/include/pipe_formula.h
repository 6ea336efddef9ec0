/* SPDX-License-Identifier: MIT
 * Formulas of a program: element-wise real arithmetic over weights, gradients and states, which the
 * engine carries out around the model's own callbacks (delay compensation). Part of pipe_instr.h.
 *
 * A formula is a list of terms in postfix order. Each term pushes one value or replaces the topmost
 * ones by one; one value is left at the end. A value is a number, a double, or an array of one
 * float for each weight of the stage:
 *
 *   CONST, REAL   push a number; ELEM pushes an array
 *   the others    of numbers only: compute in double, and give a number. If an operand is an array:
 *                 numbers are rounded to float first, and the operation is done in float for each
 *                 element, rounded once; the result is an array
 *
 * Comparisons and AND, OR, NOT give 1 or 0; what is not 0, also a NaN, is true. MIN is a < b ? a :
 * b, MAX a > b ? a : b. COND takes the condition below the two values, and evaluates neither less
 * for it. POW, EXP and LOG are those of the C library for double, of arrays rounded to float; all
 * else is exact IEEE arithmetic. No term is contracted with another one, so the bits of a result
 * depend on its operands only. */
#ifndef PIPE_FORMULA_H
#define PIPE_FORMULA_H

#include <stdint.h>

/* X(term, text in .pipe, operands). Those with a name are called as functions. */
#define PIPE_TERMS(X)                                                                             \
  X(CONST, "", 0) X(REAL, "", 0) X(ELEM, "", 0)                                                   \
  X(NEG, "-", 1) X(NOT, "!", 1) X(ABS, "abs", 1) X(SQRT, "sqrt", 1) X(EXP, "exp", 1)              \
  X(LOG, "log", 1) X(FLOOR, "floor", 1)                                                           \
  X(ADD, "+", 2) X(SUB, "-", 2) X(MUL, "*", 2) X(DIV, "/", 2) X(POW, "pow", 2)                    \
  X(MIN, "min", 2) X(MAX, "max", 2)                                                               \
  X(LT, "<", 2) X(LE, "<=", 2) X(GT, ">", 2) X(GE, ">=", 2) X(EQ, "==", 2) X(NE, "!=", 2)         \
  X(AND, "&&", 2) X(OR, "||", 2) X(COND, "?", 3)

typedef enum PipeTermOp {
#define X(term, text, operands) PIPE_TERM_##term,
  PIPE_TERMS(X)
#undef X
  PIPE_NTERMS
} PipeTermOp;

/* Numbers that are known only when the program runs: `arg` of REAL. */
typedef enum PipeReal {
  PIPE_REAL_LR, /* the learning rate that the model would use for the update at hand, or the next */
  PIPE_REAL_K,  /* updates of the stage so far, over all steps */
  PIPE_NREALS
} PipeReal;

/* Arrays: `arg` of ELEM. STATE + i is state i of the program. */
typedef enum PipeElem {
  PIPE_ELEM_W,    /* weights of the version that is read; in `then` of the new one */
  PIPE_ELEM_OLD,  /* `then`: weights before the update */
  PIPE_ELEM_G,    /* gradient that the update applies */
  PIPE_ELEM_V,    /* the optimizer's first moment: velocity of momentum SGD, m of Adam */
  PIPE_ELEM_V2,   /* and the second one: v of Adam */
  PIPE_ELEM_STATE /* the first state */
} PipeElem;

enum { PIPE_FORMULA_TERMS = 1024, PIPE_FORMULA_DEPTH = 32 }; /* most terms, most values at once */

typedef struct PipeTerm {
  uint32_t op, arg; /* PipeTermOp; PipeReal or PipeElem, else 0 */
  double value;     /* of CONST, else 0 */
} PipeTerm;

typedef struct PipeFormula {
  const PipeTerm *term; /* [n] */
  uint32_t n, depth;    /* depth: most values at once */
  uint32_t scalar;      /* 1: the result is a number */
  uint32_t zero;
} PipeFormula;

/* What an update does besides that of the model: rows of the formulas, PIPE_NONE where there is
 * none. */
typedef struct PipeRule {
  uint32_t applies; /* array that takes the place of the gradient */
  uint32_t rate;    /* number that the model multiplies its learning rate with */
  /* states that are set after the update, one after the other: rows of PipeThen */
  uint32_t then0, nthen;
} PipeRule;

typedef struct PipeThen {
  uint32_t state, formula;
} PipeThen;

#endif
