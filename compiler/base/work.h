/* SPDX-License-Identifier: MIT
 * The budget of a compile, in steps: an evaluated operator or name costs one, other work some for
 * each op or event. A text can ask for any amount of work, so each compile has a budget: MAX_STEPS
 * are 10 seconds of expressions, or some minutes of tries; the fuzz target sets a smaller one.
 * Steps are counted, not timed: a text always gets one verdict. */
#ifndef PIPEC_WORK_H
#define PIPEC_WORK_H

#include <stdbool.h>
#include <stdint.h>

enum {                   /* steps */
       STEPS_OP = 4,     /* for an op or transfer in each pass */
       STEPS_TURN = 8,   /* for an iteration of a loop */
       STEPS_EVENT = 20, /* for an event of rules */
       STEPS_TRIED = 8,  /* for an op in each of `tries` */
  STEPS_PLAYED = 16 /* for an op that a check plays with costs of its own */
};

typedef struct Work {
  uint64_t left; /* steps */
  bool spent;    /* more steps were needed than were left: discard all results since then */
} Work;

/* Takes steps. False: fewer are left. */
static inline bool work_take(Work *work, uint64_t steps) {
  work->spent |= work->left <= steps;
  work->left -= work->spent ? work->left : steps;
  return !work->spent;
}

#endif
