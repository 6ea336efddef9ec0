/* SPDX-License-Identifier: MIT
 * Prints a table of --critical-path: for each rank, what it sends in a step and its memory by
 * class. Requires prog. */
#include <inttypes.h>

#include "timing.h"
#include "base.h"
#include "graph.h"
#include "lower.h"

#define X(c) [PEAK_##c] = #c,
const char *const peak_class_name[PEAK_NCLASSES] = {PEAK_CLASSES(X)};
#undef X

void peak_sums(const Sched *s, uint64_t v[PEAK_NREPORTED]) {
  for (int k = 0; k < PEAK_NREPORTED; k++)
    v[k] = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++)
    for (int k = 0; k < PEAK_NREPORTED; k++)
      if (__builtin_add_overflow(v[k], s->lowered->peak[r].bytes[k], &v[k]))
        v[k] = UINT64_MAX;
}

/* Prints a line: messages; with sizes, their bytes and each class of memory that some rank uses. */
static void line(Sched *s, FILE *f, uint32_t r, const uint64_t v[PEAK_NREPORTED],
                 const uint64_t sum[PEAK_NREPORTED]) {
  fprintf(f, "  %8" PRIu64, s->lowered->sent[r]);
  if (s->model->sized)
    fprintf(f, "  %9s", bytes_text(s, s->lowered->sent_bytes[r]));
  for (int k = 0; k < PEAK_NREPORTED && s->model->sized; k++)
    if (sum[k])
      fprintf(f, "  %9s", bytes_text(s, v[k]));
  fputc('\n', f);
}

void emit_rank_costs(Sched *s, FILE *f) {
  uint64_t sum[PEAK_NREPORTED];
  peak_sums(s, sum);
  fprintf(f, s->model->sized
                 ? "\ntensors sent in a step, and peak memory by class\nrank  messages      bytes"
                 : "\ntensors sent in a step\nrank  messages");
  for (int k = 0; k < PEAK_NREPORTED && s->model->sized; k++)
    if (sum[k])
      fprintf(f, "  %9s", peak_class_name[k]);
  fputc('\n', f);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    fprintf(f, "%4u", r);
    line(s, f, r, s->lowered->peak[r].bytes, sum);
  }
  fprintf(f, " all");
  line(s, f, s->model->nrank, sum, sum);
}
