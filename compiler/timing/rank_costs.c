/* SPDX-License-Identifier: MIT
 * What each rank sends in a step and its memory by class, as a table: part of --critical-path. Requires prog. */
#include <inttypes.h>

#include "timing.h"
#include "base.h"
#include "graph.h"
#include "lower.h"

/* n messages of so many bytes each, to a row of `sent`. */
static void add_sends(Sched *s, uint32_t row, uint32_t n, uint64_t bytes) {
  uint64_t all, *sum = &s->times->sent_bytes[row];
  s->times->sent[row] += n;
  if (__builtin_mul_overflow(bytes, (uint64_t)n, &all) || __builtin_add_overflow(*sum, all, sum))
    *sum = UINT64_MAX;
}

void count_sends(Sched *s) {
  if (s->times->sent)
    return;
  s->times->sent = NEW_ARRAY(s->arena, uint64_t, (size_t)s->model->nrank + 1);
  s->times->sent_bytes = NEW_ARRAY(s->arena, uint64_t, (size_t)s->model->nrank + 1);
  uint32_t *nmb = link_nmb(s);
  for (uint32_t i = 0; i < nlinks(s); i++) { /* every tensor that crosses ranks is a transfer */
    Link l = link_at(s, i);
    if (!link_crosses(s, l))
      continue;
    for (int back = 0; back < (s->model->forward ? 1 : 2); back++) {
      add_sends(s, s->model->stage[back ? l.to : l.from].rank, nmb[i], link_bytes(s, l));
      add_sends(s, s->model->nrank, nmb[i], link_bytes(s, l));
    }
  }
}

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

/* A line: messages, and of a program with sizes their bytes and the classes that some rank has. */
static void line(Sched *s, FILE *f, uint32_t r, const uint64_t v[PEAK_NREPORTED],
                 const uint64_t sum[PEAK_NREPORTED]) {
  fprintf(f, "  %8" PRIu64, s->times->sent[r]);
  if (s->model->sized)
    fprintf(f, "  %9s", bytes_text(s, s->times->sent_bytes[r]));
  for (int k = 0; k < PEAK_NREPORTED && s->model->sized; k++)
    if (sum[k])
      fprintf(f, "  %9s", bytes_text(s, v[k]));
  fputc('\n', f);
}

void emit_rank_costs(Sched *s, FILE *f) {
  uint64_t sum[PEAK_NREPORTED];
  count_sends(s);
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
