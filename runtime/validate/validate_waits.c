/* SPDX-License-Identifier: MIT
 * Waits: the part of the validator (validate.h) that knows what is over when a row starts.
 *
 * note [clocks]: each queue of a rank has a vector clock: for every queue of the rank, how many of
 * its instructions are over. A queue knows its own earlier instructions. By a wait it learns what
 * the other queue knew once the row waited for was over. The clock of COMPUTE counts one more, for
 * the start of the step, which every queue waits for; so device streams begin and end a step on
 * COMPUTE. COMM learns nothing about other ranks: a path that leaves the rank leaves and returns in
 * COMM.
 *
 * Cost: linear in instructions and waits, times the queues of a rank. */
#include "validate_parts.h"

#include <stdlib.h>
#include <string.h>

struct PrClocks {
  const PipeProgram *p;
  char *text;
  size_t room;
  uint32_t rank, index; /* of the current instruction, for FAIL_AT */
  const PipeRank *t;
  uint32_t n;       /* queues that the rank uses */
  uint32_t *number; /* [PIPE_NSTREAMS + nchannel] their numbers; PIPE_NONE: unused */
  uint32_t *of;     /* [ninstr] number of the queue of each row */
  uint32_t *nth;    /* [ninstr] position of each row in its queue, from 1 */
  uint32_t *known;  /* [n][n] what each queue knows */
  uint32_t *done;   /* [n] instructions so far */
  uint32_t *first;  /* [n] row of `clock` of a queue before its instructions */
  uint32_t *clock;  /* [n + ninstr][n] what is known once instruction 1, 2 .. of a queue is over */
  uint32_t next;    /* next row of PipeRank.wait */
};

static uint32_t *known_by(const PrClocks *clocks, uint32_t queue) {
  return &clocks->known[(size_t)queue * clocks->n];
}

/* What is known once `count` instructions of a queue are over. */
static uint32_t *clock_at(const PrClocks *clocks, uint32_t queue, uint32_t count) {
  return &clocks->clock[((size_t)clocks->first[queue] + count) * clocks->n];
}

/* Numbers the queues that the rank uses, and its rows in them. size: [queues], 0. */
static PrStatus find_queues(PrClocks *clocks, uint32_t *size) {
  const PipeProgram *p = clocks->p;
  memset(clocks->number, 0xff, (PIPE_NSTREAMS + (size_t)p->nchannel) * sizeof *clocks->number);
  clocks->number[PIPE_COMPUTE] = clocks->n++;
  for (uint32_t i = 0; i < clocks->t->ninstr; i++) {
    const PipeInstr *c = &clocks->t->instr[i];
    clocks->index = i;
    if (c->op >= PIPE_NOPS)
      FAIL(clocks, "program: rank %u instruction %u: op %u: out of range", clocks->rank, i, c->op);
    if (pipe_op_info[c->op].comm && p->lowering == PIPE_CHANNELS && c->channel >= p->nchannel)
      FAIL_AT(clocks, c, "channel %u of %u", c->channel, p->nchannel);
    uint32_t *number = &clocks->number[pipe_queue(p->lowering, c)];
    *number = *number == PIPE_NONE ? clocks->n++ : *number;
    clocks->of[i] = *number;
    clocks->nth[i] = ++size[*number];
  }
  return PR_OK;
}

PrStatus pr_clocks_begin(const PipeProgram *p, uint32_t rank, char *text, size_t room,
                         PrClocks **out) {
  const PipeRank *t = &p->rank[rank];
  const size_t rows = t->ninstr, nqueue = PIPE_NSTREAMS + (size_t)p->nchannel;
  PrStatus st;
  PrClocks *clocks = *out = calloc(1, sizeof *clocks);
  if (!clocks)
    return pr_refuse(text, room, PR_E_MEMORY, "no memory to check the program");
  *clocks = (PrClocks){.p = p, .text = text, .room = room, .rank = rank, .t = t};
  if (t->nwait > 0 && !t->wait)
    FAIL(clocks, "program: rank %u: a table is missing", rank);
  clocks->number = calloc(2 * nqueue + 2 * rows, sizeof *clocks->number);
  if (!clocks->number)
    return NO_MEMORY(clocks);
  clocks->of = clocks->number + 2 * nqueue;
  clocks->nth = clocks->of + rows;
  uint32_t *size = clocks->number + nqueue;
  if ((st = find_queues(clocks, size)))
    return st;
  clocks->known = calloc(clocks->n * (clocks->n + (size_t)2), sizeof *clocks->known);
  clocks->clock = malloc((clocks->n + rows) * clocks->n * sizeof *clocks->clock);
  if (!clocks->known || !clocks->clock)
    return NO_MEMORY(clocks);
  clocks->done = clocks->known + (size_t)clocks->n * clocks->n;
  clocks->first = clocks->done + clocks->n;
  for (uint32_t q = 1; q < clocks->n; q++)
    clocks->first[q] = clocks->first[q - 1] + size[q - 1] + 1;
  *known_by(clocks, PIPE_COMPUTE) = 1;
  memcpy(clock_at(clocks, PIPE_COMPUTE, 0), known_by(clocks, PIPE_COMPUTE),
         clocks->n * sizeof *clocks->clock);
  return PR_OK;
}

void pr_clocks_end(PrClocks *clocks) {
  if (!clocks)
    return;
  free(clocks->number);
  free(clocks->known);
  free(clocks->clock);
  free(clocks);
}

/* Takes the next n waits, of `row`, for its queue. */
static PrStatus take_waits(PrClocks *clocks, uint32_t row, uint32_t queue, uint32_t n) {
  uint32_t *known = known_by(clocks, queue);
  for (const uint32_t end = clocks->next + n; clocks->next < end; clocks->next++) {
    const PipeWait wait = clocks->t->wait[clocks->next];
    const bool named = wait.queue < PIPE_NSTREAMS + clocks->p->nchannel;
    const uint32_t on = named ? clocks->number[wait.queue] : PIPE_NONE;
    if (on == PIPE_NONE || (wait.count == 0 && on != PIPE_COMPUTE))
      FAIL(clocks, "program: rank %u wait %u: %u instructions of queue %u: out of range",
           clocks->rank, clocks->next, wait.count, wait.queue);
    if (on == queue)
      FAIL(clocks, "program: rank %u wait %u: queue %u waits for itself", clocks->rank,
           clocks->next, wait.queue);
    if (wait.count > clocks->done[on] && row < clocks->t->ninstr)
      FAIL_AT(clocks, &clocks->t->instr[row],
              "waits for %u instructions of queue %u, not all above it", wait.count, wait.queue);
    const uint32_t *clock = wait.count <= clocks->done[on] ? clock_at(clocks, on, wait.count)
                                                           : NULL;
    if (!clock || *clock == PIPE_NONE)
      FAIL(clocks,
           "program: rank %u wait %u: %u instructions of queue %u end inside of a group, or are "
           "not there",
           clocks->rank, clocks->next, wait.count, wait.queue);
    for (uint32_t x = 0; x < clocks->n; x++)
      known[x] = clock[x] > known[x] ? clock[x] : known[x];
  }
  return PR_OK;
}

PrStatus pr_clocks_row(PrClocks *clocks, uint32_t row) {
  const PipeInstr *c = &clocks->t->instr[row];
  clocks->index = row;
  if (c->waits != clocks->next || c->nwait > clocks->t->nwait - clocks->next)
    FAIL_AT(clocks, c, "has %u waits from %u on, expected them from %u of %u on", c->nwait,
            c->waits, clocks->next, clocks->t->nwait);
  PrStatus st = take_waits(clocks, row, clocks->of[row], c->nwait);
  if (!st && known_by(clocks, clocks->of[row])[PIPE_COMPUTE] == 0)
    FAIL_AT(clocks, c, "does not wait for the start of the step");
  return st;
}

bool pr_clocks_over(const PrClocks *clocks, uint32_t row, uint32_t above) {
  const uint32_t of = clocks->of[above];
  return of == clocks->of[row] ||
         known_by(clocks, clocks->of[row])[of] >= clocks->nth[above] + (of == PIPE_COMPUTE);
}

PrStatus pr_clocks_done(PrClocks *clocks, uint32_t row) {
  const PipeInstr *c = &clocks->t->instr[row];
  const uint32_t queue = clocks->of[row];
  uint32_t *known = known_by(clocks, queue),
           *clock = clock_at(clocks, queue, ++clocks->done[queue]);
  known[queue]++;
  memcpy(clock, known, clocks->n * sizeof *clock);
  if (pipe_op_info[c->op].comm && c->group > 0)
    *clock = PIPE_NONE; /* it ends with its group */
  if (row + 1 < clocks->t->ninstr)
    return PR_OK;
  PrStatus st = take_waits(clocks, row + 1, PIPE_COMPUTE, clocks->t->nwait - clocks->next);
  for (uint32_t x = 0; x < clocks->n && !st; x++)
    if (known_by(clocks, PIPE_COMPUTE)[x] < clocks->done[x])
      FAIL(clocks, "program: rank %u: the end of the step does not wait for all instructions",
           clocks->rank);
  return st;
}
