/* SPDX-License-Identifier: MIT
 * The tiny programs of machine_test.c: instruction lists of a few ranks, how they are shrunk and
 * printed. */
#ifndef TEST_MACHINE_PROGRAM_H
#define TEST_MACHINE_PROGRAM_H

#include <stdio.h>

#include "machine.h"

enum { RANKS = 3, MOST = 28, PER_RANK = 24 };

typedef struct Program {
  uint32_t nrank;
  uint32_t n[RANKS];
  MachineInstr list[RANKS][PER_RANK]; /* not `more` */
} Program;

/* Of this kind, needing nothing, of one byte. */
static inline MachineInstr program_instr(uint32_t kind) {
  return (MachineInstr){.kind = kind, .need = {MACHINE_NONE, MACHINE_NONE}, .bytes = 1};
}

/* Program k of a seed. */
void program_make(Program *p, uint64_t seed, uint64_t k);
/* Communication of a rank becomes that of two channels, by tensor and communicator. */
void program_split(Program *p);
uint32_t program_below(uint32_t n); /* random, from 0 */
void program_draw_from(uint64_t seed); /* what program_below says from now on follows from it */
uint32_t program_size(const Program *p); /* instructions */

void program_print(const Program *p);

/* Leaves out what is not needed to keep badness(p, arg) where it is, or above: whole messages and
 * collectives, then single instructions, then what instructions need, until nothing more can go.
 * badness is 0 of a program that shows nothing. */
void program_shrink(Program *p, uint32_t (*badness)(const Program *, void *), void *arg);

/* Does machine_times say of a few lists what was worked out by hand? Else it prints the first that
 * differs. */
bool program_times_agree(void);

#endif
