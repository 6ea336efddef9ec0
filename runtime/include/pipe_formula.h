/* SPDX-License-Identifier: MIT
 * Formulas of a program: element-wise real arithmetic over weights, gradients and states. The
 * engine evaluates them before and after the callbacks of the model (for example delay
 * compensation). Part of pipe_instr.h.
 *
 * A formula is a list of terms in postfix order. Each term pushes one value, or replaces the
 * topmost values by one; one value remains at the end. A value is a number (double) or an array
 * with one float per weight of the stage:
 *
 *   CONST, REAL   push a number; ELEM pushes an array
 *   others        with numbers only: compute in double; the result is a number. If an operand is an
 *                 array: round numbers to float, then compute each element in float, rounded once;
 *                 the result is an array
 *
 * Comparisons and AND, OR, NOT result in 1 or 0; any operand other than 0, including NaN, is true.
 * MIN is a < b ? a : b, MAX is a > b ? a : b. The operands of COND are the condition, then the two
 * values; both values are always evaluated. POW, EXP and LOG are the functions of the C library for
 * double, rounded to float for arrays; all other operations are exact IEEE arithmetic. No two
 * operations are contracted, so the bits of a result depend only on its operands. */
#ifndef PIPE_FORMULA_H
#define PIPE_FORMULA_H

#include <stdint.h>

/* X(term, text in .pipe, operands). Terms whose text is a name are written as function calls. */
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

/* Numbers known only at run time: `arg` of REAL. */
typedef enum PipeReal {
  PIPE_REAL_LR, /* the learning rate that the model would use for this update, or the next one */
  PIPE_REAL_K,  /* earlier updates of the stage, over all steps */
  PIPE_NREALS
} PipeReal;

/* Arrays: `arg` of ELEM. PIPE_ELEM_STATE + i is state i of the program. */
typedef enum PipeElem {
  PIPE_ELEM_W,    /* weights of the version that the op reads; in `then`, of the new version */
  PIPE_ELEM_OLD,  /* in `then`: weights before the update */
  PIPE_ELEM_G,    /* gradient to apply */
  PIPE_ELEM_V,    /* first moment of the optimizer: velocity of momentum SGD, m of Adam */
  PIPE_ELEM_V2,   /* second moment: v of Adam */
  PIPE_ELEM_STATE /* the first state */
} PipeElem;

/* most terms of a formula, most values on its stack */
enum { PIPE_FORMULA_TERMS = 1024, PIPE_FORMULA_DEPTH = 32 };

typedef struct PipeTerm {
  uint32_t op, arg; /* PipeTermOp; arg: PipeReal or PipeElem, else 0 */
  double value;     /* of CONST, else 0 */
} PipeTerm;

typedef struct PipeFormula {
  const PipeTerm *term; /* [n] */
  uint32_t n, depth;    /* depth: most values on the stack */
  uint32_t scalar;      /* 1: the result is a number */
  uint32_t zero;
} PipeFormula;

/* The formulas around an update of the model: rows of PipeProgram.formula; PIPE_NONE: none. */
typedef struct PipeRule {
  uint32_t applies; /* array that replaces the gradient */
  uint32_t rate;    /* number by which the model multiplies its learning rate */
  /* States to set after the update, in order: rows of PipeThen. */
  uint32_t then0, nthen;
} PipeRule;

typedef struct PipeThen {
  uint32_t state, formula;
} PipeThen;

#endif
