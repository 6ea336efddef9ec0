/* SPDX-License-Identifier: MIT
 * The budget of questions about every M, in steps. An evaluated expression costs one step; other
 * work costs as many steps as it takes time. All proofs for every M, and the programs compiled for
 * them at other M, draw on one Work. Steps are counted, not timed, so a text always gets the same
 * verdict. */
#ifndef PIPEC_WORK_H
#define PIPEC_WORK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "diag.h"

#define WORK_PROOF ((uint64_t)2000 * 1000 * 1000) /* steps; some seconds */
enum {
  WORK_TEXT = 2, /* steps for a byte of text that is compiled again */
  WORK_PASS = 4  /* steps for an op in each pass */
};

typedef struct Work {
  uint64_t left; /* steps */
  /* more steps were needed than were left: discard all results since then */
  bool spent;
  Span at;      /* the place whose work did not fit */
  uint64_t of;  /* steps at the start, to show progress */
  uint64_t tick, begin; /* value of `left` at which progress is shown next; start, in ms */
  FILE *progress;
  bool told; /* progress is on the screen */
} Work;

/* Starts a budget. progress: the terminal that shows the progress of long work, or NULL. */
void work_begin(Work *w, uint64_t steps, FILE *progress);
void work_end(Work *w); /* clears the progress line */
/* The smaller of `steps` and what `outer` has left; outer NULL: no bound. */
static inline uint64_t work_within(const Work *outer, uint64_t steps) {
  return outer && outer->left < steps ? outer->left : steps;
}
bool work_more(Work *w, uint64_t steps, Span at); /* The slow path of work_take. */

/* Takes `steps` for work on the text at `at`. False: fewer are left. w NULL: no bound. */
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
