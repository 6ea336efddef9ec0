/* SPDX-License-Identifier: MIT
 * See profile_rows.h. */
#include "profile_rows.h"

#include <stdio.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

uint64_t profile_median(uint64_t *t, uint32_t n) {
  qsort(t, n, sizeof *t, ascending);
  return n % 2 ? t[n / 2] : (t[n / 2 - 1] + t[n / 2]) / 2;
}

void profile_print(const GptConfig *g, const char *note, const ProfileRow *row, uint32_t nstage) {
  printf(
      "{\"pipe_profile\": 1,\n \"measured\": \"gpt layers=%u d=%u heads=%u seq=%u batch=%u slices=%u%s\",\n"
      " \"stages\": [\n",
      g->layers, g->d, g->heads, g->seq, g->batch, g->slices, note);
  for (uint32_t i = 0; i < nstage; i++) {
    const ProfileRow *r = &row[i];
    const PrSizes z = r->size;
    uint64_t send = i + 1 < nstage || i == 0 ? r->send : r[-1].send;
#define N(x) ((unsigned long long)(x))
    printf("  {\"F\": %llu, \"B\": %llu, \"I\": %llu, \"W\": %llu, \"U\": %llu, \"send\": %llu,\n"
           "   \"act\": %llu, \"gout\": %llu, \"boundary\": %llu, \"weight\": %llu, \"grad\": %llu,"
           " \"opt\": %llu, \"work\": %llu}%s\n",
           N(r->F), N(r->B), N(r->I), N(r->W), N(r->U), N(send), N(z.act), N(z.gout), N(z.boundary),
           N(z.weight), N(z.grad), N(z.opt), N(z.work), i + 1 < nstage ? "," : "");
#undef N
  }
  printf(" ]}\n");
}
