/* SPDX-License-Identifier: MIT
 * See shim_plan.h: the transport peer of the CUDA engine. */
#include <stdlib.h>
#include <string.h>

#include "shim_job.h"
#include "shim_plan.h"

/* A run, what it says, and what has moved its tensors. */
static void show(const char *what, Job *j, const Result *want) {
  job_run(j);
  printf("%s: %s", what, j->status[0] ? j->error[0] : j->transfers ? "by NCCL" : "by copies");
  printf("%s\n", !j->status[0] && j->comms > 0 && !j->transfers ? ", sums by NCCL" : "");
  EXPECT(j->status[0] || (job_whole(j) && job_same(j, want)), "  %s\n", j->text);
  for (uint32_t r = 1; r < j->nhost; r++)
    EXPECT(strcmp(j->error[r], j->error[0]) == 0, "  rank %u: %s\n", r, j->error[r]);
}

/* Where it is possible, and what is said where it is not. */
static void choices(const char *stdlib, uint64_t seed) {
  static const char *const name[] = {"1f1b", "chimera", "chunks"};
  for (uint32_t i = 0; i < sizeof name / sizeof *name; i++) {
    Program *c = compiled(stdlib, sample_named(name[i]));
    const PipeProgram *p = c->s.prog;
    Result *want = malloc(sizeof *want);
    if (!want)
      abort();
    job_reference(p, false, want);
    const Job any = {.p = p, .processes = true, .by = BY_AUTO, .seed = seed + i},
              peer = {.p = p, .processes = true, .by = BY_PEER, .seed = seed + i};
    Job j = any;
    printf("%s\n", name[i]);
    show("  auto", &j, want);
    j = any, j.apart = true;
    show("  auto, each on a host of its own", &j, want);
    j = any, j.closed = true;
    show("  auto, no memory can be opened", &j, want);
    j = any, j.full = true;
    show("  auto, no shared memory", &j, want);
    j = peer, j.full = true;
    show("  peer, no shared memory", &j, want);
    j = peer, j.apart = true;
    show("  peer, each on a host of its own", &j, want);
    j = peer, j.closed = true;
    show("  peer, no memory can be opened", &j, want);
    j = peer, j.threads = true, j.closed = true;
    show("  peer, the same in one process", &j, want);
    j = peer, j.nccl = 22512;
    show("  peer, an old NCCL", &j, want);
    j = peer, j.alone = true;
    show("  peer, and one that has NCCL", &j, want);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "4", 1);
    j = any;
    show("  auto, 4 queues", &j, want);
    j = peer;
    show("  peer, 4 queues", &j, want);
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    arena_free(&c->arena);
    free(c);
    free(want);
  }
}

/* ---- numbers ---- */

typedef struct Number {
  void (*lose)(uint32_t host, uint32_t n);
  uint32_t host, n;
} Number;

static void lose_number(void *arg) {
  const Number *x = arg;
  x->lose(x->host, x->n);
}

/* One after another of the numbers of a rank in its first steps: without the wait for it, or its
 * write, or with a write that is seen ahead of what it tells of, something is found. */
static void numbers(const char *stdlib, uint64_t seed) {
  static const struct {
    const char *what;
    void (*lose)(uint32_t host, uint32_t n);
  } how[] = {{"a wait that is let through", shim_skip},
             {"a write that is lost", shim_forgo},
             {"a write ahead of its copy", shim_overtake}};
  static const char *const name[] = {"1f1b", "chunks", "1f1b channels"};
  for (uint32_t k = 0; k < 3; k++) {
    uint32_t n = 0, found = 0;
    for (uint32_t i = 0; i < 3; i++) {
      Program *c = compiled(stdlib, sample_named(name[i]));
      const PipeProgram *p = c->s.prog;
      for (uint32_t at = 0; at < 12; at++) {
        Number x = {.lose = how[k].lose, .host = at % p->nrank, .n = at};
        Job j = {.p = p,
                 .processes = true,
                 .by = BY_PEER,
                 .lazy = true,
                 .at_once = STEPS,
                 .cuda = {.graph = at % 2},
                 .damage = lose_number,
                 .arg = &x,
                 .kill = 1,
                 .kill_at = 1u << 30, /* never: but a run that stalls goes on to its deadline */
                 .deadline_s = JOB_DEADLINE_S,
                 .seed = seed + 100 * k + 10 * i + at};
        job_run(&j);
        bool is = j.errors > 0 || j.broken > 0 || !job_whole(&j);
        n++;
        found += is;
        EXPECT(is, "%s: %s, %u of rank %u%s: nothing is found\n", name[i], how[k].what, at, x.host,
               at % 2 ? ", a graph" : "");
      }
      arena_free(&c->arena);
      free(c);
    }
    printf("%s: %u of %u\n", how[k].what, found, n);
  }
}

/* ---- failures ---- */

/* Of rank r, that it has counted: no more steps than were begun, and the last with its losses. */
static bool counts_right(const Job *j, uint32_t r, uint32_t most, const Result *want) {
  const uint32_t n = j->counted[r];
  bool right = n <= most;
  for (uint32_t m = 0; right && n > 0 && m < j->p->nmb; m++)
    right = (j->free_running && j->last[r][m] == 0) || j->last[r][m] == want->loss[n - 1][m];
  return right;
}

/* A model that fails on one rank, with the step before under way: every rank says so, no stream is
 * left, and no rank has counted what the streams have moved that were let go. */
static void failures(const char *stdlib, uint64_t seed) {
  static const char *const name[] = {"inference",     "1f1b",     "chunks",
                                     "1f1b channels", "switched", "chimera"};
  uint32_t nrun = 0;
  for (uint32_t i = 0; i < 6; i++) {
    Program *c = compiled(stdlib, sample_named(name[i]));
    Result *want = malloc(sizeof *want);
    if (!want)
      abort();
    job_reference(c->s.prog, false, want);
    for (uint32_t k = 0; k < 20; k++, nrun++) {
      const bool graph = k % 4 == 3;
      Job j = {.p = c->s.prog,
               .processes = true,
               .by = BY_PEER,
               .threads = k / 4 % 2,
               .fails = true,
               .cuda = {.graph = graph, .ahead = 60},
               .free_running = k % 4 == 1,
               .lazy = k % 4 > 0,
               .far = (i < 4), /* a sum of NCCL that is aborted tells others sooner */
               .kill = 1,
               .kill_at = 1u << 30, /* never: what is heard late is no stall */
               .at_once = k % 4 ? STEPS : 1,
               .seed = seed + 100 * i + k};
      job_run(&j);
      for (uint32_t r = 0; r < j.nhost; r++) {
        EXPECT(strstr(j.error[r], "the callback returned 7") && strcmp(j.error[r], j.error[0]) == 0,
               "%s %u: rank %u: %s\n", name[i], k, r, j.error[r]);
        EXPECT(counts_right(&j, r, graph ? 1 : 2, want),
               "%s %u: rank %u has counted %u steps, the last of which is not right\n", name[i], k,
               r, j.counted[r]);
      }
      EXPECT(j.stuck == 0, "%s %u: %u streams wait for ever\n", name[i], k, j.stuck);
    }
    arena_free(&c->arena);
    free(c);
    free(want);
  }
  printf("%u runs that fail\n", nrun);
}

void plan_peer(const char *stdlib, uint64_t seed) {
  choices(stdlib, seed);
  numbers(stdlib, seed);
  failures(stdlib, seed);
}
