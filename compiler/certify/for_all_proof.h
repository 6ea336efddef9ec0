/* SPDX-License-Identifier: MIT
 * A program for every M, its certificate, and its verifier (verify_for_all.c).
 *
 * The program is its rows (pipe_rows.h) with G, and the numbers of PipeGrow. The certificate is the
 * notes: further words at the end of each row. A note gives the time of the row in one order of all
 * rows of all ranks. Other notes give, for each slot that the row uses, the state in which the use
 * before has left it.
 *
 * Rows use two more things that have no words of their own: the gradients of a stage (FIELD_GRAD)
 * and a microbatch of a stage (FIELD_UNIT). Their notes begin with NOTE_PREV, which names the row
 * that used the thing last. All notes of a use follow its NOTE_USE; uses have the order of the
 * slots of the row. */
#ifndef PIPEC_FOR_ALL_PROOF_H
#define PIPEC_FOR_ALL_PROOF_H

#include "pipe_loop.h"
#include "pipe_rows.h"
#include "pipec.h"

typedef enum NoteTag {
  NOTE_TIME = PIPE_WORD_AHEAD + 1, /* greater than for the row above on its rank; equal at both ends
                                      of a transfer and in all members of a sum */
  NOTE_PREV,   /* FIELD_GRAD, FIELD_UNIT: distance, in rows of State.op, to the last use; 0: this
                  use is the first */
  NOTE_USE,    /* 2 * State, + 1 if a row below uses it again */
  NOTE_LABEL,  /* 1 + the microbatch, or weight version, that the slot holds; absent: it is empty */
  NOTE_TOUCH0, /* rows of COMPUTE up to the last use; absent: 0. FIELD_UNIT: updates of the stage up
                  to its last use */
  NOTE_TOUCH1, /* rows of COMM up to the last use */
  NOTE_TOUCH2, /* rows of COPY up to the last use */
  NOTE_TURN    /* NOTE_TIME of the turn before (PipeInstr.turn) */
} NoteTag;

enum { FIELD_GRAD = PIPE_NFIELDS, FIELD_UNIT };

/* How a use leaves a slot: all that the validator distinguishes, except numbers that move from turn
 * to turn, such as a microbatch or a version. */
typedef struct State {
  uint32_t prev; /* the state before; NONE if the use fills the slot */
  uint32_t pool; /* of a slot: its pool */
  uint32_t op, field, stage, edge, peer, formula, slice; /* the use; op NONE: no use yet */
} State;

typedef struct ForAllProof {
  const PipeProgram *p; /* for n = 0, its lists written out; valid */
  const PipeLoopClass *cls;
  uint32_t *const *word; /* [nrank] the rows of each rank, with notes */
  const uint32_t *nword; /* [nrank] length of each in words */
  const State *state;
  uint32_t nstate;
} ForAllProof;

/* Proves for every n >= 0: the program has all its ops, in order; it completes; sends and receives
 * match; each slot is full when it is read and free when it is filled. False: *why. Trusts no note,
 * and does not trust that the numbers in a loop belong together; shares no code with their maker.
 * Relies on the validator for n = 0. Cost: linear in words, apart from sorting sets
 * (verify_sets.c). */
bool verify_for_all(Arena *a, const ForAllProof *e, const char **why);

#endif
