/* SPDX-License-Identifier: MIT
 * The configuration of the model: what ./dev demo trains, the options that change it, and what it
 * must satisfy. */
#include "model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const GptConfig gpt_default = {.layers = 8,
                               .d = 128,
                               .heads = 4,
                               .seq = 64,
                               .batch = 2,
                               .seed = 1,
                               .lr = 3e-3,
                               .decay = 0.1,
                               .warmup = 20,
                               .steps = 500,
                               .slices = 1};

const char gpt_options[] =
    "  --layers N --d N --heads N   the model\n"
    "  --seq N --batch N            tokens of a row, rows of a microbatch\n"
    "  --slices N                   parts of a row that go through one by one (the trainer: the schedule's)\n"
    "  --lr X --decay X --warmup N  AdamW: peak rate, weight decay, steps to the peak\n"
    "  --steps N --seed N           optimizer steps; seed of weights and of data\n";

const char *gpt_config_error(const GptConfig *g, uint32_t nstage) {
  if (g->layers < nstage)
    return "fewer layers than stages";
  if (g->d % g->heads)
    return "--d is not a multiple of --heads";
  if (g->slices > GPT_MAX_SLICES || (g->slices > 1 && g->seq % g->slices))
    return "more than 64 slices, or a number of them that does not divide --seq";
  if ((uint64_t)g->batch * g->seq > 1u << 20 || g->d > 1u << 14)
    return "a microbatch of over a million tokens or a width over 16384";
  return NULL;
}

int gpt_number(const char *value, uint64_t least, uint64_t most, uint64_t *to) {
  char *end = NULL;
  errno = 0;
  unsigned long long n = strtoull(value, &end, 10);
  if (*end || end == value)
    return -1;
  if (errno == ERANGE || strchr(value, '-') || n < least || n > most)
    return -2;
  *to = n;
  return 1;
}

const char *gpt_number_error(int result) {
  return result == -2 ? "number out of range: " : "needs a number: ";
}

int gpt_finish(const char *program) {
  errno = 0;
  if (fflush(stdout) == 0 && !ferror(stdout))
    return 0;
  fprintf(stderr, "%s: cannot write standard output: %s\n", program,
          errno ? strerror(errno) : "some of it is lost");
  return 1;
}

int gpt_config_option(GptConfig *g, const char *name, const char *value) {
  const struct {
    const char *name;
    uint32_t *to;
  } count[] = {{"--layers", &g->layers}, {"--d", &g->d},         {"--heads", &g->heads},
               {"--seq", &g->seq},       {"--batch", &g->batch}, {"--slices", &g->slices}};
  const struct {
    const char *name;
    uint64_t *to;
    uint64_t least, most;
  } large[] = {{"--warmup", &g->warmup, 0, UINT32_MAX},
               {"--steps", &g->steps, 1, UINT32_MAX},
               {"--seed", &g->seed, 0, UINT64_MAX}};
  const struct {
    const char *name;
    double *to;
  } rate[] = {{"--lr", &g->lr}, {"--decay", &g->decay}};
  char *end = NULL;
  for (size_t i = 0; i < sizeof count / sizeof *count; i++)
    if (!strcmp(name, count[i].name)) {
      uint64_t n = 0;
      int done = gpt_number(value, 1, 1u << 20, &n);
      *count[i].to = (uint32_t)n;
      return done;
    }
  for (size_t i = 0; i < sizeof large / sizeof *large; i++)
    if (!strcmp(name, large[i].name))
      return gpt_number(value, large[i].least, large[i].most, large[i].to);
  for (size_t i = 0; i < sizeof rate / sizeof *rate; i++)
    if (!strcmp(name, rate[i].name)) {
      *rate[i].to = strtod(value, &end);
      return *end || end == value ? -1 : *rate[i].to >= 0 && *rate[i].to < HUGE_VAL ? 1 : -2;
    }
  return 0;
}
