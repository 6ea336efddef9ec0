/* SPDX-License-Identifier: MIT
 * What the streams and hosts of the CUDA engine wait for, where that is more than events
 * (shim_plan.h). */
#include <stdlib.h>
#include <string.h>

#include "shim_job.h"
#include "shim_plan.h"

/* CUDA_DEVICE_MAX_CONNECTIONS=1: a step completes, in the order in which it is issued. */
static void one_queue(const char *stdlib, uint64_t seed) {
  static const char *const name[] = {"1f1b",  "interleaved", "zb_v",          "chimera",
                                     "bpipe", "skips",       "1f1b channels", "chimera channels"};
  uint32_t nrun = 0;
  for (uint32_t i = 0; i < sizeof name / sizeof *name; i++) {
    Program *c = compiled(stdlib, sample_named(name[i]));
    Result *want = malloc(sizeof *want);
    if (!want)
      abort();
    job_reference(c->s.prog, false, want);
    for (uint32_t k = 0; k < 5; k++) {
      Job j = {.p = c->s.prog,
               .processes = k != 3,
               .by = k < 4 ? BY_NCCL : BY_AUTO,
               .checks = k == 1,
               .at_once = k == 2 ? STEPS : 1,
               .one_queue = true,
               .cuda = {.ahead = k},
               .seed = seed + 10 * i + k};
      job_run(&j);
      nrun++;
      EXPECT(job_whole(&j) && job_same(&j, want), "%s in one queue, %u: %s %s\n", name[i], k,
             j.text, j.error[0]);
    }
    arena_free(&c->arena);
    free(c);
    free(want);
  }
  printf("one queue: %u runs\n", nrun);
}

static void show(const char *what, const Job *j) {
  printf("%s: %s\n", what, j->status[0] ? j->error[0] : "no error");
  for (uint32_t r = 1; r < j->nhost; r++)
    if (r != 1 || !j->absent || j->absent == ABSENT_DEVICE)
      EXPECT(strcmp(j->error[r], j->error[0]) == 0, "  rank %u: %s\n", r, j->error[r]);
}

/* One rank does not come: the others name it; or what is the matter with themselves, as early as
 * that may be. */
static void absent(const char *stdlib, uint64_t seed) {
  Program *c = compiled(stdlib, sample_named("1f1b"));
  static const char *const what[] = {"",          "not in pr_open",
                                     "no device", "not in pr_copy_weight",
                                     "dead",      "dead, and a wrong fault"};
  for (int i = ABSENT_OPEN; i <= ABSENT_DEAD + 1; i++) {
    Job j = {.p = c->s.prog, .processes = true, .seed = seed};
    j.absent = i > ABSENT_DEAD ? ABSENT_DEAD : i;
    if (i > ABSENT_DEAD)
      setenv("PIPE_FAULT", "garbage", 1);
    job_run(&j);
    unsetenv("PIPE_FAULT");
    for (uint32_t r = 0; r < j.nhost; r++)
      if (r != 1 || i == ABSENT_DEVICE)
        printf("%s, rank %u: %s\n", what[i], r, j.status[r] ? j.error[r] : "no error");
  }
  arena_free(&c->arena);
  free(c);
}

/* A rank with 28 channels: the first message of every other one that goes to it lost, there and
 * back in turn, and named with its instruction. */
static void wheel(const char *stdlib, uint64_t seed) {
  static const char text[] =
      "schedule wheel(M = 1) { ranks 8\n"
      "  pipe net stages 15 mbs M place s -> s % 2 * ((s + 1) / 2)\n"
      "  order r in 0..1 { do m in 0..M { do c in 0..8 { F[c](m) } do c in 0..8 { B[7 - c](m) } } U }\n"
      "  order r in 1..8 { do M { F } do M { B } U } }\n";
  static const Sample of = {"wheel channels", text, 0, 0};
  Program *c = compiled(stdlib, &of);
  uint32_t named = 0, n = 0;
  for (uint32_t s = 1; s < 14; s += 2, n++) {
    char fault[32], want[96];
    bool back = n % 2;
    snprintf(fault, sizeof fault, "%uSEND_%c0:%u:1:drop", s, back ? 'B' : 'F', (s + 1) / 2);
    snprintf(want, sizeof want, "rank 0 waits in %uRECV_%c0 (wheel channels:", back ? s - 1 : s + 1,
             back ? 'B' : 'F');
    named += job_blames(c->s.prog, fault, want, seed + n);
  }
  printf("%u of %u messages to a rank with %u channels named\n", named, n, c->s.prog->nchannel);
  arena_free(&c->arena);
  free(c);
}

/* The kernel of this name in a step of a rank, by the log. */
static const ShimLog *kernel_of(uint32_t rank, const char *name, uint32_t step) {
  const ShimLog *l = shim_log(rank), *end = l + shim_log_length(rank);
  while (l < end && (l->call != SHIM_KERNEL || strcmp(l->name, name) != 0 || step-- > 0))
    l++;
  if (l == end)
    abort();
  return l;
}

/* The first op of a step waits for the ops of its rank and the data that it needs, not for the
 * losses: on rank 0 it may start before the last op of another rank in the step before is over. */
static void losses(const char *stdlib, uint64_t seed) {
  Program *c = compiled(stdlib, sample_named("1f1b"));
  const PipeProgram *p = c->s.prog;
  char last[16];
  Job j = {.p = p, .processes = true, .log = true, .at_once = STEPS, .seed = seed};
  job_run(&j);
  EXPECT(job_whole(&j), "losses: %s %s\n", j.text, j.error[0]);
  for (uint32_t r = 1; r < p->nrank; r++)
    for (uint32_t s = 1; s < STEPS; s++) {
      snprintf(last, sizeof last, "%uU", r);
      EXPECT(!shim_after(kernel_of(0, "0F0", s), kernel_of(r, last, s - 1)),
             "step %u of rank 0 waits for the end of rank %u in the step before\n", s, r);
    }
  shim_end();
  arena_free(&c->arena);
  free(c);
}

static void look(void *arg, uint64_t step, double loss) {
  _Atomic uint32_t *busy = arg;
  (void)loss;
  *busy += step + 1 < STEPS && shim_is_busy();
}

/* on_step is called while the device has the next step: it is never drained between two steps,
 * though it does nothing before a host waits for it. */
static void on_step(const char *stdlib, uint64_t seed) {
  Program *c = compiled(stdlib, sample_named("1f1b"));
  const uint32_t nrank = c->s.prog->nrank;
  for (uint32_t k = 0; k < 8; k++) {
    const bool free_running = k & 4;
    _Atomic uint32_t busy = 0;
    Job j = {.p = c->s.prog,
             .processes = true,
             .lazy = true,
             .at_once = STEPS,
             .by = k & 1 ? BY_PEER : BY_NCCL,
             .cuda = {.graph = k >> 1 & 1},
             .free_running = free_running,
             .on_step = look,
             .told = (void *)&busy,
             .seed = seed + k};
    job_run(&j);
    EXPECT(job_whole(&j) && busy == (STEPS - 1) * (free_running ? 1 : nrank),
           "on_step %u: %s %s; %u times a device had the next step\n", k, j.text, j.error[0],
           (unsigned)busy);
  }
  arena_free(&c->arena);
  free(c);
}

/* How much of a device transfers hold while they wait: what the options say reaches NCCL. */
static void settings(const char *stdlib, uint64_t seed) {
  static const struct Case {
    PrCudaComm option;
    ShimSettings want;
  } of[] = {{{0}, {.max = 4}},
            {{.min_ctas = 8}, {.max = 8, .min = 8}},
            {{.max_ctas = 2, .min_ctas = 1, .cga_cluster = 1, .net_channels = 3}, {2, 1, 1, 3}}};
  for (uint32_t i = 0; i < 2 * sizeof of / sizeof *of; i++) {
    Program *c = compiled(stdlib, sample_named(i % 2 ? "1f1b channels" : "1f1b"));
    const struct Case *k = &of[i / 2];
    Job j = {.p = c->s.prog, .processes = true, .cuda = {.transfers = k->option}, .seed = seed + i};
    job_run(&j);
    EXPECT(job_whole(&j) && memcmp(&shim_settings, &k->want, sizeof k->want) == 0,
           "settings %u: %s %s; at most %d, at least %d, in clusters of %d, to other hosts %d\n", i,
           j.text, j.error[0], shim_settings.max, shim_settings.min, shim_settings.cluster,
           shim_settings.net);
    j.nccl = 22703;
    job_run(&j);
    if (k->option.net_channels)
      show("NCCL 2.27", &j);
    arena_free(&c->arena);
    free(c);
  }
}

void plan_waits(const char *stdlib, uint64_t seed) {
  one_queue(stdlib, seed);
  absent(stdlib, seed);
  wheel(stdlib, seed);
  settings(stdlib, seed);
  losses(stdlib, seed);
  on_step(stdlib, seed);
}
