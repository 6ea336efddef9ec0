/* SPDX-License-Identifier: MIT
 * A budget of a compile, in steps, for a caller that sets one, as the fuzz target does: pipec has
 * none. An evaluated expression costs one step; other work costs as many steps as it takes time.
 * Steps are counted, not timed, so a text always gets the same verdict. */
#ifndef PIPEC_WORK_H
#define PIPEC_WORK_H

#include <stdbool.h>
#include <stdint.h>

enum { WORK_PASS = 4 }; /* steps for an op in each pass */

typedef struct Work {
  uint64_t left; /* steps */
  bool spent;    /* more steps were needed than were left: discard all results since then */
} Work;

/* Takes steps. False: fewer are left. work NULL: no bound. */
static inline bool work_take(Work *work, uint64_t steps) {
  if (!work)
    return true;
  work->spent |= work->left <= steps;
  work->left -= work->spent ? work->left : steps;
  return !work->spent;
}
static inline bool work_spent(const Work *work) { return work && work->spent; }

#endif
