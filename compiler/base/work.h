/* SPDX-License-Identifier: MIT
 * The budget of questions about every M, in steps: one for each evaluated expression, and as many
 * for other work as take as long. All proofs for every M, and programs compiled for them at other
 * M, draw on one Work. Steps are counted, not timed, so the same text always gets the same
 * verdict. */
#ifndef PIPEC_WORK_H
#define PIPEC_WORK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "diag.h"

#define WORK_PROOF ((uint64_t)2000 * 1000 * 1000) /* steps; some seconds */
enum {
  WORK_TEXT = 2, /* steps for a byte of text that is compiled again, */
  WORK_PASS = 4  /*   and for an op in each pass */
};

typedef struct Work {
  uint64_t left;
  /* more was wanted than there was: whatever was found since then counts for nothing */
  bool spent;
  Span at;      /* where */
  uint64_t of;  /* how much there was, for the progress that is shown */
  uint64_t tick, begin;
  FILE *progress;
  bool told;
} Work;

/* A new budget. progress: the terminal that shows how far long work is, or NULL. */
void work_begin(Work *w, uint64_t steps, FILE *progress);
void work_end(Work *w); /* of what is shown */
/* So many steps, or what `outer` has left if that is less; NULL: there is no bound. */
static inline uint64_t work_within(const Work *outer, uint64_t steps) {
  return outer && outer->left < steps ? outer->left : steps;
}
bool work_more(Work *w, uint64_t steps, Span at);

/* Takes `steps` for what stands at `at`. False: fewer are left. NULL: there is no bound. */
static inline bool work_take(Work *w, uint64_t steps, Span at) {
  if (!w)
    return true;
  if (w->left <= steps || w->left <= w->tick)
    return work_more(w, steps, at);
  w->left -= steps;
  return true;
}
static inline bool work_spent(const Work *w) { return w && w->spent; }

#endif
