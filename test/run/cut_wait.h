/* SPDX-License-Identifier: MIT
 * Takes a wait out of a list, for tests. */
#ifndef TEST_CUT_WAIT_H
#define TEST_CUT_WAIT_H

#include <string.h>

#include "pipe_instr.h"

/* Takes out wait i of a rank, whose tables may be written. */
static inline void cut_wait(PipeRank *rank, uint32_t i) {
  PipeWait *wait = (PipeWait *)(uintptr_t)rank->wait;
  PipeInstr *instr = (PipeInstr *)(uintptr_t)rank->instr;
  rank->nwait--;
  memmove(wait + i, wait + i + 1, (rank->nwait - i) * sizeof *wait);
  for (uint32_t row = 0; row < rank->ninstr; row++) {
    instr[row].nwait -= instr[row].waits <= i && i - instr[row].waits < instr[row].nwait;
    instr[row].waits -= instr[row].waits > i;
  }
}

/* Puts it back. */
static inline void put_wait(PipeRank *rank, uint32_t i, uint32_t row, PipeWait back) {
  PipeWait *wait = (PipeWait *)(uintptr_t)rank->wait;
  PipeInstr *instr = (PipeInstr *)(uintptr_t)rank->instr;
  memmove(wait + i + 1, wait + i, (rank->nwait - i) * sizeof *wait);
  wait[i] = back;
  rank->nwait++;
  for (uint32_t at = row + 1; at < rank->ninstr; at++)
    instr[at].waits++;
  if (row < rank->ninstr)
    instr[row].nwait++;
}

#endif
