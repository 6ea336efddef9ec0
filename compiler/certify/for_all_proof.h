/* SPDX-License-Identifier: MIT
 * A program for every M, its certificate, and who checks it (verify_for_all.c).
 *
 * The program is its rows (pipe_rows.h) with G, and the numbers of PipeGrow. The certificate is
 * words behind those of each row, the notes. A row says by them when it runs, in one order of all
 * rows of all ranks, and of every slot that it uses, how the use before has left the slot. Two
 * further things that ops use have no words of their own: the gradients of a stage (FIELD_GRAD),
 * and a microbatch of a stage (FIELD_UNIT). Of these NOTE_PREV says first which row has used them
 * last.
 * All notes of a use follow its NOTE_USE, uses in the order of the row's slots. */
#ifndef PIPEC_FOR_ALL_PROOF_H
#define PIPEC_FOR_ALL_PROOF_H

#include "pipe_loop.h"
#include "pipe_rows.h"
#include "pipec.h"

typedef enum NoteTag {
  NOTE_TIME = PIPE_WORD_AHEAD + 1, /* a number for each row: higher than above it on its rank, and
                                      the same at both ends of a transfer and in a sum */
  NOTE_PREV,   /* FIELD_GRAD, FIELD_UNIT: rows of State.op up to the one that has used it last; 0:
                  none has */
  NOTE_USE,    /* 2 * State, + 1 if a row below uses it, too */
  NOTE_LABEL,  /* 1 + the microbatch, or version of the weights, that is in it; none: nothing */
  NOTE_TOUCH0, /* rows of COMPUTE up to the last that has used it; none: 0. FIELD_UNIT: updates of
                  the stage up to its last use */
  NOTE_TOUCH1, /* of COMM, */
  NOTE_TOUCH2, /* of COPY */
  NOTE_TURN    /* the NOTE_TIME of the turn before (PipeInstr.turn) */
} NoteTag;

enum { FIELD_GRAD = PIPE_NFIELDS, FIELD_UNIT };

/* How a use leaves what it uses: all that the validator can tell apart, but numbers that move, as a
 * microbatch, or a version. */
typedef struct State {
  uint32_t prev; /* how it was before; NONE if that does not matter, as it is filled */
  uint32_t pool; /* of a slot */
  uint32_t op, field, stage, edge, peer, formula, slice; /* the use; op NONE: there was none yet */
} State;

typedef struct ForAllProof {
  const PipeProgram *p; /* for n = 0, its lists written out; valid */
  const PipeLoopClass *cls;
  uint32_t *const *word; /* [nrank] rows with notes, */
  const uint32_t *nword; /*   so many words */
  const State *state;
  uint32_t nstate;
} ForAllProof;

/* Is the program for every n >= 0 complete, in order, free of deadlocks and matched, and is each of
 * its slots full when it is read, and free when it is filled? False: *why. Believes no note, nor
 * that the numbers in loops belong together; shares no code with who makes them. Relies on the
 * validator for n = 0. Linear in words. */
bool verify_for_all(Arena *a, const ForAllProof *e, const char **why);

#endif
