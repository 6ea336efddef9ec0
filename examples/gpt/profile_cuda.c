/* SPDX-License-Identifier: MIT
 * Measures the model that train_cuda.c trains, on device 0, and prints the profile that pipec plans
 * with: for each stage the median time of each op in ns, between two events around it on its
 * stream, and its bytes. A transfer is measured as what the engine does with all ranks in one
 * process, a copy on the device; between devices it is what
 * --gbps says: bytes over that many GB/s. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile_rows.h"
#include "stages_cuda.h"

#ifndef GPT_MAIN /* a test has something to do before */
#define GPT_MAIN main
#endif

static const PipeOp op_of[] = {PIPE_F, PIPE_B, PIPE_F, PIPE_I, PIPE_W, PIPE_U};
enum {
  NOPS = sizeof op_of / sizeof *op_of,
  F_AGAIN = 2
}; /* I and W follow a forward of their own */

static void must(cudaError_t e) {
  if (e != cudaSuccess)
    stages_die(cudaGetErrorString(e));
}

/* One round of all ops of all stages, in the order of a step; in t[stage][op] the ns of each, last
 * of a transfer. */
static void round_of_ops(DeviceStages *s, cudaEvent_t *mark, uint64_t (*t)[NOPS + 1]) {
  uint32_t n = s->m->nstage, k = 0;
  for (uint32_t op = 0; op < NOPS; op++)
    for (uint32_t j = 0; j < n; j++) {
      uint32_t i = op_of[op] == PIPE_F || op_of[op] == PIPE_U ? j : n - 1 - j;
      must(cudaEventRecord(mark[k++], s->stream));
      stages_call(s, op_of[op], i, op_of[op] == PIPE_U ? PIPE_NONE : 0);
      must(cudaEventRecord(mark[k++], s->stream));
    }
  for (uint32_t i = 0; i + 1 < n; i++) {
    must(cudaEventRecord(mark[k++], s->stream));
    must(cudaMemcpyAsync(s->stage[i + 1].dx, s->stage[i + 1].x, s->stage[i].size.boundary,
                         cudaMemcpyDeviceToDevice, s->stream));
    must(cudaEventRecord(mark[k++], s->stream));
  }
  stages_wait(s);
  k = 0;
  for (uint32_t op = 0; op <= NOPS; op++)
    for (uint32_t j = 0; j < (op < NOPS ? n : n - 1); j++, k += 2) {
      uint32_t i = op == NOPS || op_of[op] == PIPE_F || op_of[op] == PIPE_U ? j : n - 1 - j;
      float ms = 0;
      must(cudaEventElapsedTime(&ms, mark[k], mark[k + 1]));
      t[i][op] = (uint64_t)(1e6 * (double)ms + 0.5);
    }
}

static void measure(DeviceStages *s, uint32_t reps, double gbps, ProfileRow *row) {
  enum { WARM = 2 };
  uint32_t n = s->m->nstage, nmark = 2 * (NOPS + 1) * n;
  uint64_t(*t)[NOPS + 1] = calloc((size_t)n * (reps + WARM), sizeof *t);
  cudaEvent_t *mark = calloc(nmark, sizeof *mark);
  if (!t || !mark)
    stages_die("no memory");
  for (uint32_t i = 0; i < nmark; i++)
    must(cudaEventCreateWithFlags(&mark[i], cudaEventDefault));
  for (uint32_t rep = 0; rep < reps + WARM; rep++)
    round_of_ops(s, mark, &t[rep * n]);
  for (uint32_t i = 0; i < n; i++) {
    uint64_t one[NOPS + 1][PROFILE_MOST_REPS];
    uint64_t m[NOPS + 1];
    for (uint32_t op = 0; op <= NOPS; op++) {
      for (uint32_t rep = 0; rep < reps; rep++)
        one[op][rep] = t[(rep + WARM) * n + i][op];
      m[op] = profile_median(one[op], reps);
    }
    PrSizes z = s->stage[i].size;
    row[i] = (ProfileRow){m[0], m[1], m[3], m[4], m[5], m[NOPS], z};
    if (gbps > 0)
      row[i].send = (uint64_t)((double)z.boundary / gbps);
  }
  for (uint32_t i = 0; i < nmark; i++)
    cudaEventDestroy(mark[i]);
  free(mark);
  free(t);
}

static int usage(const char *why, const char *what) {
  fprintf(stderr, "gpt_profile_cuda: %s%s\n", why, what);
  fprintf(
      stderr,
      "usage: gpt_profile_cuda -S STAGES -M MICROBATCHES [--bf16] [--reps N] [--gbps X] [options of the model]\n"
      "  --reps N                     rounds, at most 64; the median is printed (default 25)\n"
      "  --gbps X                     a transfer takes its bytes over X GB/s\n%s",
      gpt_options);
  return 2;
}

static int profile(const GptConfig *g, uint32_t nstage, uint32_t nmb, int bf16, uint32_t reps,
                   double gbps) {
  size_t len = 1 << 16 > 4 * g->seq ? 1 << 16 : 4 * (size_t)g->seq;
  uint8_t *noise = malloc(len);
  ProfileRow *row = calloc(nstage, sizeof *row);
  Text text = {noise, len, g->seq, g->seed, 1, g->batch};
  GptModel m = {.config = *g, .nstage = nstage, .window = text_draw, .text = &text};
  const char *error;
  if (!noise || !row)
    stages_die("no memory");
  for (size_t i = 0; i < len; i++)
    noise[i] = (uint8_t)mix64(i);
  GptCuda *c = gpt_cuda_open(&m, bf16, 1, 0, &error);
  if (!c) {
    fprintf(stderr, "gpt_profile_cuda: %s\n", error);
    return 1;
  }
  DeviceStages s;
  stages_open(&s, &m, gpt_cuda_model(c), nmb);
  measure(&s, reps, gbps, row);
  profile_print(g, bf16 ? " cuda bf16" : " cuda", row, nstage);
  stages_close(&s);
  gpt_cuda_close(c);
  free(noise);
  free(row);
  return gpt_finish("gpt_profile_cuda");
}

int GPT_MAIN(int argc, char **argv) {
  GptConfig g = gpt_default;
  uint64_t nstage = 0, nmb = 0, reps = 25;
  int bf16 = 0;
  double gbps = 0;
  signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error like a full disk */
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    if (!strcmp(argv[i], "--bf16")) {
      bf16 = 1;
      continue;
    }
    int done = gpt_config_option(&g, argv[i], value);
    uint64_t *to = !strcmp(argv[i], "-S")       ? &nstage
                   : !strcmp(argv[i], "-M")     ? &nmb
                   : !strcmp(argv[i], "--reps") ? &reps
                                                : NULL;
    if (!strcmp(argv[i], "--gbps")) {
      char *end;
      gbps = strtod(value, &end);
      if (end == value || *end || !(gbps > 0))
        return usage("not a number above 0: ", argv[i]);
    } else if (to) {
      done = gpt_number(value, 1, to == &reps ? PROFILE_MOST_REPS : 1u << 20, to);
      if (done < 0)
        return usage(gpt_number_error(done), argv[i]);
    } else if (done < 0) {
      return usage(gpt_number_error(done), argv[i]);
    } else if (!done) {
      return usage("unknown option ", argv[i]);
    }
    i++;
  }
  if (!nstage || !nmb)
    return usage("-S and -M are needed", "");
  if (g.slices > 1)
    return usage("the model for devices has no slices", "");
  const char *error = gpt_config_error(&g, (uint32_t)nstage);
  if (error)
    return usage(error, "");
  return profile(&g, (uint32_t)nstage, (uint32_t)nmb, bf16, (uint32_t)reps, gbps);
}
