/* SPDX-License-Identifier: MIT
 * What each rank sends in a step and its memory by class, as a table: part of --critical-path. Requires prog. */
#include <inttypes.h>

#include "graph.h"

void count_sends(Sched *s) {
  if (s->sent)
    return;
  s->sent = NEW_ARRAY(s->arena, uint64_t, (size_t)s->nrank + 1);
  s->sent_bytes = NEW_ARRAY(s->arena, uint64_t, (size_t)s->nrank + 1);
  for (uint32_t i = 0; i < s->nxfer; i++) {
    if (!xfer_moves(&s->xfer[i]))
      continue;
    uint32_t r = op_rank(s, s->xfer[i].from), at[2] = {r, s->nrank};
    uint64_t bytes = link_bytes(s, link_at(s, xfer_link(s, &s->xfer[i])));
    for (int k = 0; k < 2; k++) {
      s->sent[at[k]]++;
      uint64_t *sum = &s->sent_bytes[at[k]];
      if (__builtin_add_overflow(*sum, bytes, sum))
        *sum = UINT64_MAX;
    }
  }
}

enum { NCLASSES = 15 };
static const char *const class_name[NCLASSES] = {"weight", "grad",   "opt",   "work",  "act",
                                                 "gout",   "out",    "in",    "local", "keep",
                                                 "guest",  "buffer", "guess", "state", "total"};

static void classes(const Peak *p, uint64_t v[NCLASSES]) {
  const uint64_t of[NCLASSES] = {p->weight, p->grad,   p->opt,   p->work,  p->act,
                                 p->gout,   p->out,    p->in,    p->local, p->keep,
                                 p->guest,  p->buffer, p->guess, p->state, p->total};
  for (int k = 0; k < NCLASSES; k++)
    v[k] = of[k];
}

static uint64_t plus(uint64_t a, uint64_t b) { return a + b < a ? UINT64_MAX : a + b; }

/* A line: messages, and of a program with sizes their bytes and the classes that some rank has. */
static void line(Sched *s, FILE *f, uint32_t r, const uint64_t v[NCLASSES],
                 const uint64_t sum[NCLASSES]) {
  fprintf(f, "  %8" PRIu64, s->sent[r]);
  if (s->sized)
    fprintf(f, "  %9s", bytes_text(s, s->sent_bytes[r]));
  for (int k = 0; k < NCLASSES && s->sized; k++)
    if (sum[k])
      fprintf(f, "  %9s", bytes_text(s, v[k]));
  fputc('\n', f);
}

void emit_rank_costs(Sched *s, FILE *f) {
  uint64_t sum[NCLASSES] = {0}, v[NCLASSES];
  count_sends(s);
  for (uint32_t r = 0; r < s->nrank; r++) {
    classes(&s->peak[r], v);
    for (int k = 0; k < NCLASSES; k++)
      sum[k] = plus(sum[k], v[k]);
  }
  fprintf(f, s->sized
                 ? "\ntensors sent in a step, and peak memory by class\nrank  messages      bytes"
                 : "\ntensors sent in a step\nrank  messages");
  for (int k = 0; k < NCLASSES && s->sized; k++)
    if (sum[k])
      fprintf(f, "  %9s", class_name[k]);
  fputc('\n', f);
  for (uint32_t r = 0; r < s->nrank; r++) {
    fprintf(f, "%4u", r);
    classes(&s->peak[r], v);
    line(s, f, r, v, sum);
  }
  fprintf(f, " all");
  line(s, f, s->nrank, sum, sum);
}
