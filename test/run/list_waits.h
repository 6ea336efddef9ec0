/* SPDX-License-Identifier: MIT
 * Lists of waits for tests: makes them from counts, and changes them. Of a program without
 * channels. */
#ifndef TEST_LIST_WAITS_H
#define TEST_LIST_WAITS_H

#include <stdlib.h>

#include "cut_wait.h"

/* How many instructions of each stream of its rank a row needs. */
typedef struct RowNeeds {
  uint32_t of[PIPE_NSTREAMS];
} RowNeeds;

typedef struct ListedWaits {
  PipeWait *wait;
  uint32_t n;
  RowNeeds known[PIPE_NSTREAMS]; /* what each stream has waited for so far */
} ListedWaits;

static inline void list_needs(ListedWaits *list, uint32_t on, const RowNeeds *needs) {
  for (uint32_t x = 0; x < PIPE_NSTREAMS; x++)
    if (x != on && needs->of[x] > list->known[on].of[x]) {
      list->known[on].of[x] = needs->of[x];
      list->wait[list->n++] = (PipeWait){x, needs->of[x]};
    }
}

/* Makes the waits of a rank from the needs of its rows, [ninstr]. Leaves out what an earlier row of
 * the stream has waited for. The caller frees rank->wait. Aborts when it has no memory. */
static inline void list_waits(PipeRank *rank, const RowNeeds *needs) {
  PipeInstr *instr = (PipeInstr *)(uintptr_t)rank->instr;
  ListedWaits list = {malloc((3 * (size_t)rank->ninstr + 3) * sizeof *list.wait), 0, {{{0}}}};
  RowNeeds all = {{0}};
  if (!list.wait)
    abort();
  for (uint32_t i = 0; i < rank->ninstr; i++) {
    const uint32_t on = pipe_op_info[instr[i].op].stream;
    instr[i].waits = list.n;
    list_needs(&list, on, &needs[i]);
    if (on != PIPE_COMPUTE && all.of[on] == 0 && list.n == instr[i].waits)
      list.wait[list.n++] = (PipeWait){PIPE_COMPUTE, 0};
    instr[i].nwait = list.n - instr[i].waits;
    all.of[on]++;
  }
  list_needs(&list, PIPE_COMPUTE, &all);
  rank->wait = list.wait;
  rank->nwait = list.n;
}

/* The wait of row c for a queue; NULL: it has none. */
static inline PipeWait *wait_of(const PipeRank *rank, const PipeInstr *c, uint32_t queue) {
  PipeWait *wait = (PipeWait *)(uintptr_t)rank->wait;
  for (uint32_t i = c->waits; i < rank->nwait && i - c->waits < c->nwait; i++)
    if (wait[i].queue == queue)
      return &wait[i];
  return NULL;
}

/* Takes out all waits of a row. */
static inline void cut_waits(PipeRank *rank, uint32_t row) {
  while (rank->instr[row].nwait > 0)
    cut_wait(rank, rank->instr[row].waits);
}

/* Rows `row` and `row` + 1 change places, each with its waits, unless a test has damaged those. */
static inline void swap_rows(PipeRank *rank, uint32_t row) {
  PipeInstr *c = (PipeInstr *)(uintptr_t)&rank->instr[row];
  const PipeInstr upper = c[0];
  const uint64_t n = (uint64_t)upper.nwait + c[1].nwait;
  if ((uint64_t)upper.waits + upper.nwait != c[1].waits || upper.waits + n > rank->nwait)
    return;
  PipeWait *wait = (PipeWait *)(uintptr_t)rank->wait + upper.waits;
  for (uint32_t i = 0; i < upper.nwait; i++) {
    const PipeWait first = wait[0];
    memmove(wait, wait + 1, (n - 1) * sizeof *wait);
    wait[n - 1] = first;
  }
  c[0] = c[1];
  c[0].waits = upper.waits;
  c[1] = upper;
  c[1].waits = c[0].waits + c[0].nwait;
}

#endif
