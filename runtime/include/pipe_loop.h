/* SPDX-License-Identifier: MIT
 * A program whose number of microbatches is chosen at run time: the looped form that pipec emits
 * where a parameter is left open. Its size does not depend on that number.
 *
 *   char why[PIPE_LOOP_TEXT];
 *   PipeProgram *p = pipe_unroll(&pipe_program, 64, why);   // M = 64
 *   if (!p)
 *     fprintf(stderr, "%s\n", why);
 *   ... pr_open(&run, p, ...); pr_close(run);
 *   pipe_unroll_free(p);
 *
 * Each table of a program is a row of segments: warmup, kernel, flush, or more of them. The rows of
 * a segment are there `turns` times, one turn after the other; a row is the same in all turns but
 * for the words that vary, which move on with the turn and with n, by which the program is longer
 * than the shortest one. Words that are slots may go round a cycle. */
#ifndef PIPE_LOOP_H
#define PIPE_LOOP_H

#include "pipe_instr.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PIPE_LOOP_MAGIC 0x504f4f4cu /* "LOOP", little endian */
enum { PIPE_LOOP_TEXT = 320 };

/* Word `word` (of 32 bits) of row `row` of the segment, in turn k, is v = row's word + by_turn * k
 * + by_n * n, modulo 2^32. With a cycle it is element v % length of that instead. With a pool, that
 * many after the first slot of pool number `pool` of the rank. Words from sizeof(PipeInstr) / 4 on
 * are of the row of PipeRank.weights beside an instruction. */
typedef struct PipeVary {
  uint32_t row, word;
  int32_t by_turn, by_n;
  uint32_t cycle; /* begins in PipeLoopClass.cycle there; PIPE_NONE */
  uint32_t pool;  /* PIPE_NONE */
} PipeVary;

typedef struct PipeSegment {
  uint32_t row0, nrow;   /* of the table */
  uint32_t vary0, nvary;
  int32_t turns;         /* turns + by_n * n */
  uint32_t by_n;
} PipeSegment;

typedef struct PipeRolled {
  const PipeSegment *segment;
  const PipeVary *vary;
  uint32_t nsegment, zero;
} PipeRolled;

typedef struct PipeLinear { int64_t at, by; } PipeLinear; /* at + by * n */

typedef struct PipeLoopRank {
  PipeRolled instr, list, sync, pool; /* of the tables of the same rank of PipeLoopClass.p */
  PipeLinear nslot, inflight, nevent, bytes, host;
} PipeLoopRank;

/* The programs for the values from, from + step, from + 2 * step, ... of the parameter: n = 0, 1,
 * 2, ... A step of INT64_MAX: for one value, too few microbatches for the parts that repeat. */
typedef struct PipeLoopClass {
  int64_t from, step;
  /* what is the same for all n; tables of ranks and stages are rows of segments */
  const PipeProgram *p;
  const PipeLoopRank *rank;   /* [p->nrank] */
  PipeRolled stage;
  const uint32_t *cycle;      /* length, then so many values; the next one */
  PipeLinear nmb, slots, makespan, ideal, busy;
  const PipeLinear *param;    /* [nparam] */
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

PIPE_STATIC_ASSERT(sizeof(PipeVary) == 24 && sizeof(PipeSegment) == 24, "ABI");
PIPE_STATIC_ASSERT(sizeof(PipeLoopTerm) == 16, "ABI");

/* The program for a value of the parameter, equal in all to what pipec emits for it; its
 * instructions, 48 bytes each, are allocated. NULL: there is none, and why says what the values
 * are, or that there is no memory. The looped program has to stay where it is. */
PipeProgram *pipe_unroll(const PipeLooped *l, int64_t value, char why[PIPE_LOOP_TEXT]);
void pipe_unroll_free(PipeProgram *p); /* NULL is fine */

/* The value of a formula. Returns 0: it has none. */
int pipe_loop_value(const PipeLoopFormula *f, int64_t open, int64_t *value);
/* The first requirement that a value does not meet; NULL. */
const PipeLoopFormula *pipe_loop_refused(const PipeLooped *l, int64_t value);

/* What PipeProgram.hash is, of a program as rows by what each PipeRank.hash is; needs no valid
 * program. */
uint64_t pipe_program_hash(const PipeProgram *p);

#ifdef __cplusplus
}
#endif

#endif
