/* SPDX-License-Identifier: MIT
 * A program whose number of microbatches is chosen at run time: what pipec emits where a parameter
 * is left open. Its size does not depend on that number.
 *
 *   char why[PIPE_LOOP_TEXT];
 *   PipeProgram *p = pipe_unroll(&pipe_program, 64, why);   // M = 64
 *   if (!p)
 *     fprintf(stderr, "%s\n", why);
 *   ... pr_open(&run, p, ...); pr_close(run);
 *   pipe_unroll_free(p);
 *
 * Its rows (pipe_rows.h) say with G how their numbers, and the turns of their loops, grow from one
 * value of the parameter to the next; PipeGrow says it of the numbers in other tables. */
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

/* Numbers that may grow: X(table, field). */
#define PIPE_GROWS(X) \
  X(program, nmb) X(program, slots) X(program, makespan) X(program, ideal) X(program, busy) \
  X(rank, ninstr) X(rank, nslot) X(rank, inflight) X(rank, bytes) X(rank, host) X(rank, nlist) \
  X(rank, nevent) X(rank, nsync) X(pool, first) X(pool, count) X(stage, mb0) X(stage, nmb)
typedef enum PipeGrows {
#define X(table, field) PIPE_GROWS_##table##_##field,
  PIPE_GROWS(X)
#undef X
  PIPE_GROWS_formula, /* the constant of term `pool` of that row of PipeProgram.formula */
  PIPE_NGROWS
} PipeGrows;

/* That number, in this row of its table, grows by so much. A pool is row `pool` of rank `row`. */
typedef struct PipeGrow {
  uint32_t what; /* PipeGrows */
  uint32_t row, pool, zero;
  int64_t by;
} PipeGrow;

/* The programs for the values from, from + step, from + 2 * step, ... of the parameter: n = 0, 1,
 * 2, ...; of one value alone step is INT64_MAX. */
typedef struct PipeLoopClass {
  int64_t from, step;
  const PipeProgram *p;    /* for n = 0, its lists as rows; hash 0 */
  const PipeGrow *grow;    /* [ngrow]; what is not there is the same for all n */
  uint32_t ngrow, zero;
  const PipeLinear *param; /* [nparam] */
} PipeLoopClass;

/* A term of a formula of 64-bit integers, which works on a stack of at most PIPE_LOOP_DEPTH values.
 * Overflow, and a division by 0, is no value; / and % round down. Conditions are 0 or 1. */
typedef enum PipeLoopOp {
  PIPE_LOOP_CONST,  /* pushes `value` */
  PIPE_LOOP_OPEN,   /* pushes the parameter that is chosen at run time */
  PIPE_LOOP_PICK,   /* pushes a copy of number `value` from the bottom */
  /* the top takes the place of number `value` from the bottom and of all above it */
  PIPE_LOOP_KEEP,
  PIPE_LOOP_JUMP,   /* goes on at term number `value`, which is a later one */
  PIPE_LOOP_UNLESS, /* pops; goes on there if it was 0 */
  PIPE_LOOP_NEG, PIPE_LOOP_NOT,                                                 /* of the top */
  /* of the two on top, */
  PIPE_LOOP_ADD, PIPE_LOOP_SUB, PIPE_LOOP_MUL, PIPE_LOOP_DIV, PIPE_LOOP_MOD,
  /* which it takes */
  PIPE_LOOP_LT, PIPE_LOOP_LE, PIPE_LOOP_GT, PIPE_LOOP_GE, PIPE_LOOP_EQ, PIPE_LOOP_NE,
  PIPE_LOOP_MIN, PIPE_LOOP_MAX
} PipeLoopOp;
enum { PIPE_LOOP_DEPTH = 256 };
typedef struct PipeLoopTerm { int64_t value; uint32_t op, zero; } PipeLoopTerm;
typedef struct PipeLoopFormula {
  const PipeLoopTerm *term;
  uint32_t nterm, zero;
  const char *text; /* what it says */
} PipeLoopFormula;

typedef struct PipeLooped {
  uint32_t magic, abi;
  uint32_t nclass, nparam, open; /* open: which of the parameters is chosen at run time */
  uint32_t nadmit;
  const PipeLoopClass *cls;   /* [nclass] */
  const char *const *param;   /* [nparam] names */
  /* [nparam] what follows from the open one, evenly or not; no terms: PipeLoopClass.param */
  const PipeLoopFormula *value;
  /* [nadmit] what the schedule requires: of other values there is no program */
  const PipeLoopFormula *admit;
} PipeLooped;

PIPE_STATIC_ASSERT(sizeof(PipeGrow) == 24, "ABI");
PIPE_STATIC_ASSERT(sizeof(PipeLoopTerm) == 16, "ABI");

/* The program for a value of the parameter, with the lists of all ranks written out; its
 * instructions, 48 bytes each, are allocated. NULL: there is none, and why says what the values
 * are, or that there is no memory. The program for every value has to stay where it is. */
PipeProgram *pipe_unroll(const PipeLooped *l, int64_t at, char why[PIPE_LOOP_TEXT]);
void pipe_unroll_free(PipeProgram *p); /* NULL is fine */

/* The value of a formula. Returns 0: it has none. */
int pipe_loop_value(const PipeLoopFormula *f, int64_t open, int64_t *value);
/* The first requirement that a value does not meet; NULL. */
const PipeLoopFormula *pipe_loop_refused(const PipeLooped *l, int64_t value);

/* What PipeProgram.hash is, of a program as rows by what each PipeRank.hash is; needs no valid
 * program. */
uint64_t pipe_program_hash(const PipeProgram *p);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
