/* SPDX-License-Identifier: MIT
 * Counts the steps that proofs for every M may take (work.h), and shows the progress. */
#include "work.h"

#include <time.h>

static uint64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void work_begin(Work *w, uint64_t steps, FILE *progress) {
  *w = (Work){.left = steps, .of = steps, .at = NO_SPAN, .progress = progress};
  if (progress)
    w->tick = steps - steps / 200, w->begin = now_ms();
}

void work_end(Work *w) {
  if (w->told)
    fprintf(w->progress, "\r%*s\r", 60, "");
  w->told = false;
}

bool work_more(Work *w, uint64_t steps, Span at) {
  enum { QUIET_MS = 1000 };
  if (w->left <= steps) {
    if (!w->spent)
      w->at = at;
    w->spent = true;
    w->left = w->tick = 0;
    return false;
  }
  w->left -= steps;
  w->tick = w->left > w->of / 200 ? w->left - w->of / 200 : 0;
  if (now_ms() - w->begin > QUIET_MS) {
    fprintf(w->progress, "\rproof for every value: %u %% of its step budget used ",
            (unsigned)((w->of - w->left) / (w->of / 100)));
    w->told = true;
  }
  return true;
}
