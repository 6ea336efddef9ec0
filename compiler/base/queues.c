/* SPDX-License-Identifier: MIT
 * See queues.h. */
#include "queues.h"

static uint32_t later(uint32_t a, uint32_t b) { return a > b ? a : b; }

uint32_t *rows_over(Arena *a, const PipeProgram *p, const PipeRank *rank, PipeOn of) {
  const PipeQueues queues = queues_of(p, rank);
  const size_t nqueue = PIPE_NSTREAMS + (size_t)p->nchannel;
  uint32_t *start = arena_alloc(a, rank->ninstr * sizeof *start);
  uint32_t *end = arena_alloc(a, rank->ninstr * sizeof *end); /* what is known once a row is over */
  uint32_t *known = NEW_ARRAY(a, uint32_t, nqueue), n = 0;
  for (uint32_t i = 0; i < rank->ninstr; i++) {
    const PipeInstr *in = &rank->instr[i];
    uint32_t *own = &known[pipe_queue(p->lowering, in)];
    for (uint32_t at = in->waits; at < in->waits + in->nwait; at++) {
      const uint32_t after = pipe_after(&queues, rank->wait[at]);
      *own = later(*own, after > 0 ? end[after - 1] : 0);
    }
    start[i] = *own;
    if (pipe_stream_of(in->op) == of)
      *own = ++n;
    end[i] = *own;
  }
  end_queues(queues);
  return start;
}
