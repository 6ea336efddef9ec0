/* SPDX-License-Identifier: MIT
 * A program whose number of microbatches is chosen at run time: pipec emits it if a parameter is
 * left open. Its size does not depend on that number.
 *
 *   char why[PIPE_LOOP_TEXT];
 *   PipeProgram *p = pipe_unroll(&pipe_program, 64, why);   // M = 64
 *   if (!p)
 *     fprintf(stderr, "%s\n", why);
 *   ... pr_open(&run, p, ...); pr_close(run);
 *   pipe_unroll_free(p);
 *
 * In its rows (pipe_rows.h), G says how numbers and loop counts grow from one value of the
 * parameter to the next. PipeGrow does the same for the numbers in other tables. */
#ifndef PIPE_LOOP_H
#define PIPE_LOOP_H

#include "pipe_instr.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define PIPE_LOOP_MAGIC 0x504f4f4cu /* "LOOP", little endian */
enum { PIPE_LOOP_TEXT = 320 };

typedef struct PipeLinear { int64_t at, by; } PipeLinear; /* at + by * n */

/* The numbers that may grow: X(table, field). */
#define PIPE_GROWS(X) \
  X(program, nmb) X(program, slots) X(program, makespan) X(program, ideal) X(program, busy) \
  X(rank, ninstr) X(rank, nslot) X(rank, inflight) X(rank, bytes) X(rank, host) X(rank, nlist) \
  X(rank, nevent) X(rank, nsync) X(pool, first) X(pool, count) X(stage, mb0) X(stage, nmb)
typedef enum PipeGrows {
#define X(table, field) PIPE_GROWS_##table##_##field,
  PIPE_GROWS(X)
#undef X
  PIPE_GROWS_formula, /* the constant of term `pool` of row `row` of PipeProgram.formula */
  PIPE_NGROWS
} PipeGrows;

/* A number that grows: field `what` in row `row` of its table; pools: row `pool` of rank `row`. */
typedef struct PipeGrow {
  uint32_t what; /* PipeGrows */
  uint32_t row, pool, zero; /* row: in its table, or the rank of a pool */
  int64_t by; /* increment per n */
} PipeGrow;

/* The programs for the values from, from + step, from + 2 * step, ... of the parameter: n = 0, 1,
 * 2, ...; step is INT64_MAX for a single value. */
typedef struct PipeLoopClass {
  int64_t from, step;
  const PipeProgram *p;    /* for n = 0, its lists as rows; hash 0 */
  const PipeGrow *grow;    /* [ngrow]; all other numbers are the same for every n */
  uint32_t ngrow, zero;
  const PipeLinear *param; /* [nparam] */
} PipeLoopClass;

/* A term of a formula of 64-bit integers, evaluated on a stack of at most PIPE_LOOP_DEPTH values.
 * Overflow and division by 0 have no value; / and % round down. Conditions are 0 or 1. */
typedef enum PipeLoopOp {
  PIPE_LOOP_CONST,  /* pushes `value` */
  PIPE_LOOP_OPEN,   /* pushes the open parameter, which is chosen at run time */
  PIPE_LOOP_PICK,   /* pushes a copy of stack entry `value`, counted from the bottom */
  /* pops the top; stack entry `value`, from the bottom, and all above it are replaced by it */
  PIPE_LOOP_KEEP,
  PIPE_LOOP_JUMP,   /* continues at term `value`, a later one */
  PIPE_LOOP_UNLESS, /* pops; if it was 0, continues at term `value` */
  PIPE_LOOP_NEG, PIPE_LOOP_NOT, /* replace the top */
  /* the rest replace the two topmost values by one */
  PIPE_LOOP_ADD, PIPE_LOOP_SUB, PIPE_LOOP_MUL, PIPE_LOOP_DIV, PIPE_LOOP_MOD,
  PIPE_LOOP_LT, PIPE_LOOP_LE, PIPE_LOOP_GT, PIPE_LOOP_GE, PIPE_LOOP_EQ, PIPE_LOOP_NE,
  PIPE_LOOP_MIN, PIPE_LOOP_MAX
} PipeLoopOp;
enum { PIPE_LOOP_DEPTH = 256 };
typedef struct PipeLoopTerm { int64_t value; uint32_t op, zero; } PipeLoopTerm;
typedef struct PipeLoopFormula {
  const PipeLoopTerm *term;
  uint32_t nterm, zero;
  const char *text; /* the text of the formula, for messages */
} PipeLoopFormula;

typedef struct PipeLooped {
  uint32_t magic, abi;
  uint32_t nclass, nparam, open; /* open: index of the open parameter */
  uint32_t nadmit;
  const PipeLoopClass *cls;   /* [nclass] */
  const char *const *param;   /* [nparam] names */
  /* [nparam] the parameters that follow from the open one, by a formula; without terms:
   * PipeLoopClass.param */
  const PipeLoopFormula *value;
  /* [nadmit] requirements of the schedule; a value that breaks one has no program */
  const PipeLoopFormula *admit;
} PipeLooped;

PIPE_STATIC_ASSERT(sizeof(PipeGrow) == 24, "ABI");
PIPE_STATIC_ASSERT(sizeof(PipeLoopTerm) == 16, "ABI");

/* Makes the program for value `at` of the parameter, with the lists of all ranks written out (48
 * bytes per instruction). *l must stay valid until pipe_unroll_free. NULL: no memory, or there is
 * no program for this value; why then says which values exist. */
PipeProgram *pipe_unroll(const PipeLooped *l, int64_t at, char why[PIPE_LOOP_TEXT]);
void pipe_unroll_free(PipeProgram *p); /* NULL is fine */

/* Computes the value of a formula. Returns 0 if it has none. */
int pipe_loop_value(const PipeLoopFormula *f, int64_t open, int64_t *value);
/* The first requirement that the value does not meet; NULL: it meets all. */
const PipeLoopFormula *pipe_loop_refused(const PipeLooped *l, int64_t value);

/* The hash of a program, from each PipeRank.hash if its lists are rows; compare with
 * PipeProgram.hash. Accepts programs that are not valid. */
uint64_t pipe_program_hash(const PipeProgram *p);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
