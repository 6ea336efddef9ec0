/* SPDX-License-Identifier: MIT
 * Measures the model that train.c trains and prints the profile that pipec plans with (spec.md,
 * section 6): for each stage the median time of each op in ns, and its bytes, which are exact.
 *
 * Runs everything on one thread, with the buffers of the whole model alive, so that caches are as
 * cold as in training. A transfer is measured as what the thread engine does: one copy of the
 * boundary tensor. The name of the model ends with the kernels of BLAS: times with others are not
 * comparable. The input is noise: the time of no op depends on what the text says. */
#include "data.h"
#include "model.h"
#include "profile_rows.h"
#include "sequential.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int measure(Seq *s, uint32_t nmb, uint32_t reps, ProfileRow *row) {
  static const PipeOp ops[] = {PIPE_F, PIPE_B, PIPE_I, PIPE_W, PIPE_U};
  enum { NOPS = sizeof ops / sizeof *ops };
  uint32_t n = s->model.nstage;
  uint64_t(*t)[NOPS + 1][PROFILE_MOST_REPS] = calloc(n, sizeof *t);
  if (!t) {
    s->error = "out of memory";
    return -1;
  }
  /* One round more than asked for: the first pays for page faults and is not kept. */
  for (uint32_t rep = 0; rep <= reps; rep++) {
    double loss;
    for (uint32_t k = 0; k < NOPS; k++)
      for (uint32_t j = 0; j < n; j++) {
        uint32_t i = ops[k] == PIPE_F || ops[k] == PIPE_U ? j : n - 1 - j;
        /* All slices of a microbatch, one after the other: the mean of them is what one takes. */
        uint32_t Q = ops[k] != PIPE_U && s->model.nslice > 1 ? s->model.nslice : 1;
        uint64_t start = now_ns();
        for (uint32_t q = 0; q < Q; q++)
          if (seq_slice(s, ops[k], i, rep, ops[k] == PIPE_U ? PIPE_NONE : 0,
                        ops[k] == PIPE_F ? q : Q - 1 - q, nmb, &loss)) {
            free(t);
            return -1;
          }
        t[i][k][rep ? rep - 1 : 0] = (now_ns() - start) / Q;
      }
    for (uint32_t i = 0; i + 1 < n; i++) { /* what a transfer is: one copy */
      uint64_t start = now_ns();
      memcpy(s->stage[i + 1].dx, s->stage[i + 1].x, s->stage[i].size.boundary);
      t[i][NOPS][rep ? rep - 1 : 0] = now_ns() - start;
    }
  }
  for (uint32_t i = 0; i < n; i++) {
    uint64_t m[NOPS + 1];
    for (uint32_t k = 0; k <= NOPS; k++)
      m[k] = profile_median(t[i][k], reps);
    row[i] = (ProfileRow){m[0], m[1], m[2], m[3], m[4], m[NOPS], s->stage[i].size};
  }
  free(t);
  return 0;
}

static int usage(const char *why, const char *what) {
  fprintf(stderr, "gpt_profile: %s%s\n", why, what);
  fprintf(
      stderr,
      "usage: gpt_profile -S STAGES -M MICROBATCHES [--reps N] [options of the model]\n"
      "  --reps N                     rounds, at most 64; the median is printed (default 25)\n%s",
      gpt_options);
  return 2;
}

int main(int argc, char **argv) {
  GptConfig g = gpt_default;
  uint64_t nstage = 0, nmb = 0, reps = 25;
  char note[64];
  gpt_choose_kernels(argv);
  signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error like a full disk */
  for (int i = 1; i < argc; i += 2) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    int done = gpt_config_option(&g, argv[i], value);
    uint64_t *to = !strcmp(argv[i], "-S")       ? &nstage
                   : !strcmp(argv[i], "-M")     ? &nmb
                   : !strcmp(argv[i], "--reps") ? &reps
                                                : NULL;
    if (!done && !to)
      return usage("unknown option ", argv[i]);
    if (to)
      done = gpt_number(value, 1, to == &reps ? PROFILE_MOST_REPS : 1u << 20, to);
    if (done < 0)
      return usage(gpt_number_error(done), argv[i]);
  }
  if (!nstage || !nmb)
    return usage("-S and -M are needed", "");
  const char *error = gpt_config_error(&g, (uint32_t)nstage);
  if (error)
    return usage(error, "");

  size_t len = 1 << 16 > 4 * g.seq ? 1 << 16 : 4 * (size_t)g.seq;
  uint8_t *noise = malloc(len);
  ProfileRow *row = calloc(nstage, sizeof *row);
  Seq s = {0};
  GptModel m = {.config = g, .nstage = (uint32_t)nstage, .window = text_draw};
  Text text = {noise, len, g.seq, g.seed, 1, g.batch};
  m.text = &text;
  PrModel model = gpt_model(&m);
  for (size_t i = 0; noise && i < len; i++)
    noise[i] = (uint8_t)mix64(i);
  int bad = !noise || !row || seq_open(&s, &model, 0) ||
            measure(&s, (uint32_t)nmb, (uint32_t)reps, row);
  snprintf(note, sizeof note, " kernels=%s", gpt_kernels());
  if (bad)
    fprintf(stderr, "gpt_profile: %s\n", s.error ? s.error : "out of memory");
  else
    profile_print(&g, note, row, (uint32_t)nstage);
  seq_close(&s);
  free(noise);
  free(row);
  return gpt_finish("gpt_profile") || bad;
}
