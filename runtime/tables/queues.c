/* SPDX-License-Identifier: MIT
 * Sorts the rows of a rank by queue. */
#include <stdlib.h>

#include "pipe_instr.h"

PipeQueues pipe_queues(const PipeProgram *p, const PipeRank *rank) {
  const size_t nqueue = PIPE_NSTREAMS + (size_t)p->nchannel;
  PipeQueues queues = {calloc(nqueue + 2 + rank->ninstr, sizeof *queues.first), NULL};
  if (!queues.first)
    return queues;
  uint32_t *next = queues.first + 1; /* while filling: the end of each queue so far */
  queues.row = queues.first + nqueue + 2;
  for (uint32_t i = 0; i < rank->ninstr; i++)
    next[pipe_queue(p->lowering, &rank->instr[i]) + 1]++;
  for (size_t q = 1; q <= nqueue; q++)
    next[q] += next[q - 1];
  for (uint32_t i = 0; i < rank->ninstr; i++)
    queues.row[next[pipe_queue(p->lowering, &rank->instr[i])]++] = i;
  return queues;
}
