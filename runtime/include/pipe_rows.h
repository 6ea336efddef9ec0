/* SPDX-License-Identifier: MIT
 * The list of a rank in emitted form: rows and loops of rows, in issue order.
 *
 *   LOOP(56)
 *     RECV_F(3,8) K(1) AT(steady,0) AFTER(3) OUT(2,F,in)
 *     F(3,8) K(1) AT(steady,0) ACT(1,B,act) IN(1,RECV_F,out) OUT(2,SEND_F,in) AFTER(1)
 *     ...
 *   END
 *
 * F(3,8) is 3F8: F of stage 3 and microbatch 8. K(1) adds 1 to the preceding number with each turn
 * of the innermost loop, KK with each turn of the loop around it. A row names other rows by
 * distance, so that it means the same in every turn:
 *
 *   OUT(2,F,in)  it writes the slot in field `in` of the 2nd F above it
 *   NEW(out,4)   it writes slot 4, which no row above uses. NEW(made,4) of the last update of a
 *                stage: the slot of version 0, free by then
 *   AFTER(1)     it waits until the row above it, and so all of its queue above that, is over
 *                (PipeWait)
 *
 * pipe_expand writes the rows out as PipeInstr, PipeWeights, PipeWait and slots of PipeRank.list. A
 * word has its tag in the upper 8 bits and its number in the lower 24; HIGH has the bits above
 * those 24 of the next word. The macros without prefix are for emitted programs, which define
 * PIPE_ROWS. */
#ifndef PIPE_ROWS_H
#define PIPE_ROWS_H

#include "pipe_instr.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* The words of a row: X(word, macro). A tag below PIPE_NOPS begins a row of that op; its number is
 * the stage. */
#define PIPE_WORDS(X) \
  X(LOOP, LOOP)       /* turns: the rows up to its END, repeated this often */ \
  X(END, END) \
  X(STEP, K)          /* signed; added to the preceding word per turn of the innermost loop */ \
  X(OUTER, KK)        /* the same, per turn of the loop around that one; after STEP */ \
  X(HIGH, HIGH)       /* upper bits of the number of the next word */ \
  X(FINISH, FINISH)   /* the end of the step, for which COMPUTE waits; the last row */ \
  X(MB, MB) \
  X(AT, AT)           /* site << 2 | phase */ \
  X(GROUP, GROUP) \
  X(AFTER, AFTER)     /* rows up to the one whose record it waits for; 0: start of the step */ \
  X(PEER, PEER)       /* OFF, LOAD. That of SEND and RECV follows from the stage and the edge */ \
  X(CHANNEL, CHANNEL) \
  X(EDGE, EDGE) \
  X(SIDE, OP) \
  X(INS, INS)         /* number of slots that it reads; they come first in its list */ \
  X(OUTS, OUTS)       /* number of slots that it writes; they follow */ \
  X(VERSION, VERSION) /* VERSION to AHEAD: of PipeWeights */ \
  X(FORMULA, FORMULA) \
  X(BEHIND, BEHIND)   /* signed */ \
  X(AHEAD, AHEAD)
typedef enum PipeWord {
  PIPE_WORD_BEFORE = 31, /* the first word is 32 */
#define X(word, macro) PIPE_WORD_##word,
  PIPE_WORDS(X)
#undef X
  PIPE_WORD_NEW = 64,    /* + PipeField: its slot */
  PIPE_WORD_SAME = 80    /* + PipeField: distance << 10 | PipeOp << 5 | PipeField there */
} PipeWord;

/* Fields that hold slots: of PipeInstr, of PipeWeights, and entries of PipeRank.list, which a row
 * has in the order of its words: X(field, macro). Other rows refer to entry i as PIPE_FIELD_LIST +
 * i. */
#define PIPE_FIELDS(X) \
  X(act, ACT) X(gout, GOUT) X(keep, KEEP) X(in, IN) X(out, OUT) X(weight, WEIGHT) X(made, MADE) \
  X(guess, GUESS) X(LIST, LIST)
typedef enum PipeField {
#define X(field, macro) PIPE_FIELD_##field,
  PIPE_FIELDS(X)
#undef X
  PIPE_NFIELDS = 32
} PipeField;

enum {
  PIPE_DISTANCE = 1 << 10, /* factor of the distance in the number of PIPE_WORD_SAME */
  PIPE_EXPAND_TEXT = 256
};

/* Makes the program with the lists of all ranks written out, in one block; *p must stay valid, and
 * pipe_expand_free frees the result. Requires pipe_is_rows. If the hash of p is 0 (not known yet),
 * the result has the computed one. NULL: no memory, or the rows differ from the proved program; why
 * says where. */
PipeProgram *pipe_expand(const PipeProgram *p, char why[PIPE_EXPAND_TEXT]);
void pipe_expand_free(PipeProgram *p); /* NULL is fine */
/* Writes out the tables of one rank, in one block that begins at out->instr and belongs to the
 * caller. 0: no memory, or the tables do not match PipeRank.hash; why says where. */
int pipe_expand_rank(const PipeProgram *p, uint32_t rank, PipeRank *out,
                     char why[PIPE_EXPAND_TEXT]);
/* The hash of a program, from each PipeRank.hash if its lists are rows; compare with
 * PipeProgram.hash. Accepts programs that are not valid. */
uint64_t pipe_program_hash(const PipeProgram *p);
/* Compares the tables of p with PipeProgram.hash; lists that are rows count by their PipeRank.hash.
 * 0: they differ; why says how. */
int pipe_check_hash(const PipeProgram *p, char why[PIPE_EXPAND_TEXT]);
/* The hash of a rank whose list is written out. */
uint64_t pipe_rank_hash(const PipeRank *k);

/* 1: the lists of p are rows. */
static inline int pipe_is_rows(const PipeProgram *p) {
  return p && p->magic == PIPE_MAGIC && p->abi == PIPE_ABI && p->nrank > 0 && p->rank &&
         p->rank[0].rows;
}

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#ifdef PIPE_ROWS
#define PIPE_WORD(tag, n) (uint32_t)(tag) << 24 | ((uint32_t)(n) & 0xffffffu),
#define PIPE_SAME(field, d, op, f) \
  PIPE_WORD(PIPE_WORD_SAME + PIPE_FIELD_##field, \
            (d) * PIPE_DISTANCE + PIPE_##op * PIPE_NFIELDS + PIPE_FIELD_##f)
#define PIPE_OF(op, stage, mb) PIPE_WORD(PIPE_##op, stage) PIPE_WORD(PIPE_WORD_MB, mb)
#define PIPE_AT_warmup PIPE_WARMUP
#define PIPE_AT_steady PIPE_STEADY
#define PIPE_AT_flush PIPE_FLUSH

#define F(stage, mb) PIPE_OF(F, stage, mb)
#define B(stage, mb) PIPE_OF(B, stage, mb)
#define I(stage, mb) PIPE_OF(I, stage, mb)
#define W(stage, mb) PIPE_OF(W, stage, mb)
#define R(stage, mb) PIPE_OF(R, stage, mb)
#define SEND_F(stage, mb) PIPE_OF(SEND_F, stage, mb)
#define RECV_F(stage, mb) PIPE_OF(RECV_F, stage, mb)
#define SEND_B(stage, mb) PIPE_OF(SEND_B, stage, mb)
#define RECV_B(stage, mb) PIPE_OF(RECV_B, stage, mb)
#define OFF(stage, mb) PIPE_OF(OFF, stage, mb)
#define LOAD(stage, mb) PIPE_OF(LOAD, stage, mb)
#define U(stage) PIPE_WORD(PIPE_U, stage)
#define REDUCE(stage) PIPE_WORD(PIPE_REDUCE, stage)
#define TIE(stage) PIPE_WORD(PIPE_TIE, stage)
#define SIDE(stage) PIPE_WORD(PIPE_SIDE, stage)
#define SIDE_COMM(stage) PIPE_WORD(PIPE_SIDE_COMM, stage)
#define SIDE_COPY(stage) PIPE_WORD(PIPE_SIDE_COPY, stage)

#define ROW(op, stage) PIPE_WORD(PIPE_##op, stage)
#define LOOP(turns) PIPE_WORD(PIPE_WORD_LOOP, turns)
#define END PIPE_WORD(PIPE_WORD_END, 0)
#define FINISH PIPE_WORD(PIPE_WORD_FINISH, 0)
#define K(step) PIPE_WORD(PIPE_WORD_STEP, step)
#define KK(step) PIPE_WORD(PIPE_WORD_OUTER, step)
#define HIGH(n) PIPE_WORD(PIPE_WORD_HIGH, n)
#define AT(phase, site) PIPE_WORD(PIPE_WORD_AT, (uint32_t)(site) << 2 | PIPE_AT_##phase)
#define NEW(field, slot) PIPE_WORD(PIPE_WORD_NEW + PIPE_FIELD_##field, slot)
#define ACT(d, op, f) PIPE_SAME(act, d, op, f)
#define GOUT(d, op, f) PIPE_SAME(gout, d, op, f)
#define KEEP(d, op, f) PIPE_SAME(keep, d, op, f)
#define IN(d, op, f) PIPE_SAME(in, d, op, f)
#define OUT(d, op, f) PIPE_SAME(out, d, op, f)
#define WEIGHT(d, op, f) PIPE_SAME(weight, d, op, f)
#define MADE(d, op, f) PIPE_SAME(made, d, op, f)
#define GUESS(d, op, f) PIPE_SAME(guess, d, op, f)
#define LIST(d, op, f) PIPE_SAME(LIST, d, op, f)
#define MB(n) PIPE_WORD(PIPE_WORD_MB, n)
#define GROUP(n) PIPE_WORD(PIPE_WORD_GROUP, n)
#define AFTER(n) PIPE_WORD(PIPE_WORD_AFTER, n)
#define PEER(n) PIPE_WORD(PIPE_WORD_PEER, n)
#define CHANNEL(n) PIPE_WORD(PIPE_WORD_CHANNEL, n)
#define EDGE(n) PIPE_WORD(PIPE_WORD_EDGE, n)
#define OP(n) PIPE_WORD(PIPE_WORD_SIDE, n)
#define INS(n) PIPE_WORD(PIPE_WORD_INS, n)
#define OUTS(n) PIPE_WORD(PIPE_WORD_OUTS, n)
#define VERSION(n) PIPE_WORD(PIPE_WORD_VERSION, n)
#define FORMULA(n) PIPE_WORD(PIPE_WORD_FORMULA, n)
#define BEHIND(n) PIPE_WORD(PIPE_WORD_BEHIND, n)
#define AHEAD(n) PIPE_WORD(PIPE_WORD_AHEAD, n)
#endif

#endif
