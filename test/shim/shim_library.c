/* SPDX-License-Identifier: MIT
 * See shim_plan.h: the schedules of the library, and those with formulas of weights. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "../run/program.h"
#include "shim_job.h"
#include "shim_plan.h"

/* ---- formulas ---- */

#define CHAIN \
  "ranks P  pipe net stages P mbs M place s -> s\n" \
  "  order r { let w = P-1-r  steady m { F(m)  B(m - w)  if (m - w) % 2 == 1 { U(m - w) } }  if M % 2 != 0 { U } }\n"
static const struct {
  const char *name, *text;
  Define define[3];
} with_formulas[] = {
    {"pipemare_t2", NULL, {{.name = "P", .value = 3}, {.name = "M", .value = 9}}},
    {"spectrain", NULL, {{.name = "P", .value = 4}, {.name = "M", .value = 9}}},
    {"msnag_adam", NULL, {{.name = "P", .value = 3}, {.name = "M", .value = 8}}},
    {"async_scaled", NULL, {{.name = "P", .value = 3}, {.name = "M", .value = 8}}},
    {"xpipe",
     NULL,
     {{.name = "P", .value = 4}, {.name = "M", .value = 12}, {.name = "N", .value = 3}}},
    {"pipedream_rr",
     NULL,
     {{.name = "P", .value = 4}, {.name = "M", .value = 8}, {.name = "A", .value = 2}}},
    /* Every operation, numbers in every place, two states of which one comes of the other. */
    {"operations",
     "schedule operations(P = 3, M = 7) {\n  fn odd(x) = x % 2\n  " CHAIN
     "  weights s, m {\n    state d\n    state e\n"
     "    F reads newest as w - 0.001 * (k < 4 && lr > 0 ? min(abs(-d), 1) : exp(-abs(d)) + floor(v * 100) / 7)\n"
     "    B reads newest as (v > 0.001 && d <= 1 || w >= 0.5 ? w : max(w, odd(m))) + (d != 0 ? 0.0001 * sqrt(abs(d)) : 0)\n"
     "    U applies g * (delay > 0 ? 0.5 : 1) + (!(g < 1) == 1 ? pow(abs(w) + 1, -2) : log(1 + abs(w)))\n"
     "    U rate 1 / (1 + delay)\n"
     "    U then d = 0.5 * d + (w - old) * lr * 10\n"
     "    U then e = (k > 3 ? d : 2) + e * (lr - 0.001)\n"
     "  }\n}\n",
     {{.name = "P", .value = 3}}}};

void plan_formulas(const char *stdlib, uint64_t seed) {
  uint32_t nrun = 0;
  for (uint32_t i = 0; i < sizeof with_formulas / sizeof *with_formulas; i++) {
    Program *c = malloc(sizeof *c);
    Result *want = malloc(sizeof *want);
    uint32_t n = 0;
    while (n < 3 && with_formulas[i].define[n].name)
      n++;
    if (!c || !want ||
        !program_open(c, stdlib, with_formulas[i].name, with_formulas[i].text,
                      with_formulas[i].define, n, NULL))
      abort();
    const PipeProgram *p = c->s.prog;
    job_reference(p, true, want);
    for (uint32_t k = 0; k < 10; k++) {
      bool graph = k % 5 == 2;
      Job j = {.p = p,
               .floats = true,
               .processes = k < 5,
               .at_once = k % 5 == 1   ? STEPS
                          : k % 5 == 4 ? 2
                                       : 1,
               .trace = k % 5 == 3 ? 3 : 0,
               .cuda = {.graph = graph, .ahead = k % 3},
               .seed = seed * 1000 + 500 + i * 10 + k};
      job_run(&j);
      nrun++;
      if (graph && strcmp(p->name, "pipemare_t2") == 0) { /* T1's rate */
        EXPECT(strstr(j.error[0], "a graph cannot replay"), "%s: %s\n", p->name, j.error[0]);
        continue;
      }
      EXPECT(job_whole(&j), "%s %s %u: %s %s\n", p->name, j.processes ? "processes" : "streams", k,
             j.text, j.error[0]);
      EXPECT(!job_whole(&j) || job_same(&j, want), "%s %s %u: results differ\n", p->name,
             j.processes ? "processes" : "streams", k);
    }
    printf("%s: %u formulas\n", p->name, p->nformula);
    program_close(c);
    free(c);
    free(want);
  }
  printf("%u runs\n", nrun);
}

/* ---- the library ---- */

static int is_schedule(const struct dirent *d) {
  const char *dot = strrchr(d->d_name, '.');
  return dot && strcmp(dot, ".pipe") == 0;
}

void plan_library(const char *stdlib, bool channels, uint64_t seed) {
  struct dirent **file;
  int n = scandir(stdlib, &file, is_schedule, alphasort);
  for (int i = 0; i < n; i++) {
    Program *c = malloc(sizeof *c);
    Result *want = malloc(sizeof *want);
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(strlen(file[i]->d_name) - 5), file[i]->d_name);
    if (!c || !want ||
        !program_open_as(c, stdlib, name, NULL, NULL, 0, NULL, channels ? 1 + PIPE_CHANNELS : 0))
      abort();
    const PipeProgram *p = c->s.prog;
    bool floats = p->nformula > 0, replays = strncmp(name, "pipemare_t", 10) != 0; /* T1's rate */
    if (p->nrank > MOST_RANKS || p->nmb > MOST_MBS * (p->slices ? p->slices : 1) ||
        p->nstage > MOST_ROWS)
      abort();
    job_reference(p, floats, want);
    for (uint32_t k = 0; k < 4; k++) { /* a process a rank, one for all; as it is, from a graph */
      Job j = {.p = p,
               .floats = floats,
               .processes = k < 2,
               .cuda = {.graph = k % 2 && replays},
               .at_once = k % 2 ? STEPS : 1,
               .seed = seed * 1000 + (uint32_t)i * 4 + k};
      job_run(&j);
      EXPECT(job_whole(&j), "%s %u: %s %s\n", name, k, j.text, j.error[0]);
      EXPECT(!job_whole(&j) || job_same(&j, want), "%s %u: results differ\n", name, k);
    }
    program_close(c);
    free(c);
    free(want);
    free(file[i]);
  }
  free(file);
  printf("%d schedules\n", n);
}
