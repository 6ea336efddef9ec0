/* SPDX-License-Identifier: MIT
 * What each rank sends in a step and its memory by class, as a table: part of --critical-path. Requires prog. */
#include <inttypes.h>

#include "graph.h"

/* n messages of so many bytes each, to a row of `sent`. */
static void add_sends(Sched *s, uint32_t row, uint32_t n, uint64_t bytes) {
  uint64_t all, *sum = &s->sent_bytes[row];
  s->sent[row] += n;
  if (__builtin_mul_overflow(bytes, (uint64_t)n, &all) || __builtin_add_overflow(*sum, all, sum))
    *sum = UINT64_MAX;
}

void count_sends(Sched *s) {
  if (s->sent)
    return;
  s->sent = NEW_ARRAY(s->arena, uint64_t, (size_t)s->nrank + 1);
  s->sent_bytes = NEW_ARRAY(s->arena, uint64_t, (size_t)s->nrank + 1);
  uint32_t *nmb = link_nmb(s);
  for (uint32_t i = 0; i < nlinks(s); i++) { /* every tensor that crosses ranks is a transfer */
    Link l = link_at(s, i);
    if (!link_crosses(s, l))
      continue;
    for (int back = 0; back < (s->forward ? 1 : 2); back++) {
      add_sends(s, s->stage[back ? l.to : l.from].rank, nmb[i], link_bytes(s, l));
      add_sends(s, s->nrank, nmb[i], link_bytes(s, l));
    }
  }
}

#define X(c) #c,
const char *const peak_class_name[PEAK_NCLASSES] = {PEAK_CLASSES(X)};
#undef X

void peak_classes(const Peak *p, uint64_t v[PEAK_NCLASSES]) {
#define X(c) v[PEAK_##c] = p->c;
  PEAK_CLASSES(X)
#undef X
}

void peak_sums(const Sched *s, uint64_t v[PEAK_NCLASSES]) {
  uint64_t of[PEAK_NCLASSES];
  for (int k = 0; k < PEAK_NCLASSES; k++)
    v[k] = 0;
  for (uint32_t r = 0; r < s->nrank; r++) {
    peak_classes(&s->peak[r], of);
    for (int k = 0; k < PEAK_NCLASSES; k++)
      if (__builtin_add_overflow(v[k], of[k], &v[k]))
        v[k] = UINT64_MAX;
  }
}

/* A line: messages, and of a program with sizes their bytes and the classes that some rank has. */
static void line(Sched *s, FILE *f, uint32_t r, const uint64_t v[PEAK_NCLASSES],
                 const uint64_t sum[PEAK_NCLASSES]) {
  fprintf(f, "  %8" PRIu64, s->sent[r]);
  if (s->sized)
    fprintf(f, "  %9s", bytes_text(s, s->sent_bytes[r]));
  for (int k = 0; k < PEAK_NCLASSES && s->sized; k++)
    if (sum[k])
      fprintf(f, "  %9s", bytes_text(s, v[k]));
  fputc('\n', f);
}

void emit_rank_costs(Sched *s, FILE *f) {
  uint64_t sum[PEAK_NCLASSES], v[PEAK_NCLASSES];
  count_sends(s);
  peak_sums(s, sum);
  fprintf(f, s->sized
                 ? "\ntensors sent in a step, and peak memory by class\nrank  messages      bytes"
                 : "\ntensors sent in a step\nrank  messages");
  for (int k = 0; k < PEAK_NCLASSES && s->sized; k++)
    if (sum[k])
      fprintf(f, "  %9s", peak_class_name[k]);
  fputc('\n', f);
  for (uint32_t r = 0; r < s->nrank; r++) {
    fprintf(f, "%4u", r);
    peak_classes(&s->peak[r], v);
    line(s, f, r, v, sum);
  }
  fprintf(f, " all");
  line(s, f, s->nrank, sum, sum);
}
