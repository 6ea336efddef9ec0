/* SPDX-License-Identifier: MIT
 * Programs for tests of the runtime, made without the compiler, so that neither is tested with its
 * own opinion. Two halves: make_order lists each rank's instructions for a well-known schedule;
 * make_program gives any such lists slots and waits. Tests also write lists by hand. */
#ifndef MAKE_PROGRAM_H
#define MAKE_PROGRAM_H

#include "pipe_instr.h"

typedef struct MakeOp {
  PipeOp op;
  uint32_t stage, mb;
} MakeOp;

typedef struct MakeList {
  MakeOp *op;
  uint32_t n, room;
} MakeList;

/* Stage s is on rank s % nrank; each rank has `chunks` stages. With replicas, at most one per rank,
 * pipe k has rows k * nrank * chunks .. of the stage table, its stage s is on rank (s + k) % nrank,
 * and each rank carries out one pipe after the other, then all updates. */
typedef struct MakeSpec {
  uint32_t nrank, nmb, chunks, replicas; /* replicas: 0 is 1; nmb is of all */
  int gpipe; /* all forwards first; else 1F1B, interleaved if chunks > 1 */
  int offload; /* OFF right after each F, LOAD right before the backward */
  int split; /* I and W for B; W stands `split - 1` backwards later than its I */
  int timed, sized;
  uint64_t time[PIPE_NOPS];
  uint64_t act, gout, boundary, weight, grad, opt, work; /* of every stage, if sized */
} MakeSpec;

/* A program whose tables may be changed before it is used. */
typedef struct Made {
  PipeProgram p;
  PipeInstr **instr; /* [nrank] */
  PipePool **pool;   /* [nrank] */
  PipeRank *rank;
  PipeStage *stage;
  PipeSite *site; /* (rank, op): line 10 + rank, column 1 + op, of t.pipe */
} Made;

/* One list per rank, from an array of nrank that the caller frees with free_lists. Interleaving
 * needs the microbatches of each pipe to be a multiple of nrank. Aborts when it has no memory. */
MakeList *make_order(const MakeSpec *spec);
void list_add(MakeList *l, PipeOp op, uint32_t stage, uint32_t mb);
/* From text: "0F0 0SEND_F0 0RECV_B0 0B0 0U". */
void list_parse(MakeList *l, const char *text);
void free_lists(MakeList *l, uint32_t n);

Made *make_program(const MakeSpec *spec, const MakeList *lists);
Made *make(const MakeSpec *spec); /* both */
Made *make_text(const MakeSpec *spec, const char *const *text); /* a list per rank */
void free_made(Made *m);

#endif
