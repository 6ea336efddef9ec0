/* SPDX-License-Identifier: MIT
 * The queues of a rank (pipe_queues), for the compiler: no memory ends the compile. */
#ifndef PIPEC_QUEUES_H
#define PIPEC_QUEUES_H

#include <stdlib.h>

#include "arena.h"
#include "guard.h"
#include "pipe_instr.h"

/* Ends with end_queues. */
static inline PipeQueues queues_of(const PipeProgram *p, const PipeRank *rank) {
  PipeQueues queues = pipe_queues(p, rank);
  if (!queues.first)
    guard_no_memory(0);
  guard_own(queues.first, free);
  return queues;
}
static inline void end_queues(PipeQueues queues) { guard_end(queues.first, free); }

/* [ninstr], in the arena: how many rows of stream `of`, COMPUTE or COPY, are over when a row
 * starts, as far as the waits of the rank say. */
uint32_t *rows_over(Arena *a, const PipeProgram *p, const PipeRank *rank, PipeOn of);

#endif
