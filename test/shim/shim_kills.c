/* SPDX-License-Identifier: MIT
 * See shim_plan.h: a rank that gets no memory, or is killed, and what the others say. */
#include <stdlib.h>
#include <string.h>

#include "shim_job.h"
#include "shim_plan.h"

void plan_memory(const char *stdlib, uint64_t seed) {
  static const Sample onef1b = {"1f1b", NULL, 3, 6};
  const Sample *const of[] = {&onef1b,
                              sample_named("bpipe"),
                              sample_named("switched"),
                              sample_named("chimera"),
                              sample_named("copied channels"),
                              &onef1b,
                              sample_named("chunks"),
                              sample_named("switched")};
  enum { PEERS = 5 }; /* from here on by transport peer */
  for (uint32_t i = 0; i < sizeof of / sizeof *of; i++) {
    Program *c = compiled(stdlib, of[i]);
    uint32_t total = 0; /* 0: none fails; 1: there is nothing to tell others by */
    for (uint32_t n = 0; n == 0 || n <= total; n++) {
      Job j = {.p = c->s.prog,
               .processes = true,
               .by = i < PEERS ? BY_NCCL : BY_PEER,
               .checks = true,
               .trace = 2,
               .starve = n,
               .seed = seed + n};
      job_run(&j);
      total = n ? total : j.taken;
      EXPECT(n || job_whole(&j), "%s: %s %s\n", of[i]->name, j.text, j.error[0]);
      for (uint32_t r = 0; r < j.nhost && n > 1; r++)
        EXPECT(j.status[r] && strstr(j.error[r], "memory") && strcmp(j.error[r], j.error[1]) == 0,
               "%s, allocation %u: rank %u: %d %s\n", of[i]->name, n, r, j.status[r], j.error[r]);
    }
    printf("%s%s: %u allocations\n", of[i]->name, i < PEERS ? "" : ", by peer", total);
    arena_free(&c->arena);
    free(c);
  }
}

/* Kills of ranks of one program at calls all over its run; *cut and *named: runs that were cut off,
 * reports that name an instruction. */
static void kill_some(const PipeProgram *p, bool graph, bool peer, uint32_t n, uint64_t seed,
                      uint32_t *cut, uint32_t *named) {
  for (uint32_t i = 0; i < n; i++) {
    Job j = {.p = p,
             .processes = true,
             .by = peer ? BY_PEER : BY_NCCL,
             .cuda = {.graph = graph},
             .seed = seed + i,
             .deadline_s = JOB_DEADLINE_S,
             .kill = i % p->nrank,
             .kill_at = 1 + (i * 37 + (uint32_t)seed) % 800};
    job_run(&j);
    bool done = job_whole(&j);
    const char *first = NULL; /* what the others say */
    *cut += !done;
    for (uint32_t r = 0; r < p->nrank && !done; r++) {
      if (r == j.kill)
        continue;
      bool ok = j.status[r] == PR_E_DEADLINE || j.status[r] == PR_E_LOST || j.status[r] == PR_OK;
      EXPECT(ok && (j.status[r] == PR_OK || j.error[r][0]),
             "%s: kill of rank %u at %u: rank %u: %d %s\n", p->name, j.kill, j.kill_at, r,
             j.status[r], j.error[r]);
      *named += strstr(j.error[r], " (") != NULL;
      char gone[48];
      snprintf(gone, sizeof gone, "lost: the process of rank %u has ended", j.kill);
      EXPECT(j.status[r] == PR_OK || strncmp(j.error[r], gone, strlen(gone)) == 0,
             "%s: kill of rank %u at %u: rank %u: %s\n", p->name, j.kill, j.kill_at, r, j.error[r]);
      first = first || j.status[r] == PR_OK ? first : j.error[r];
      EXPECT(j.status[r] == PR_OK || strcmp(j.error[r], first) == 0,
             "%s: kill of rank %u at %u: %s, and %s\n", p->name, j.kill, j.kill_at, j.error[r],
             first);
    }
  }
}

/* Rank 1 dies in pr_open, at calls all over it: while communicators are made and ranks first meet,
 * too, where a call of NCCL holds its host until another thread aborts it. */
static void kill_start(const PipeProgram *p, const char *name, bool peer, uint64_t seed) {
  enum { APART = 3, MOST = 200 };
  uint32_t cut = 0, n = 0;
  for (bool opens = false; !opens && n < MOST; n++) {
    Job j = {.p = p,
             .processes = true,
             .by = peer ? BY_PEER : BY_NCCL,
             .absent = ABSENT_DEAD,
             .die_at = 1 + n * APART,
             .deadline_s = JOB_DEADLINE_S,
             .seed = seed + n};
    job_run(&j);
    opens = strchr(j.error[0], ';') || job_whole(&j); /* a step waits for it, or has not */
    cut += !opens;
    for (uint32_t r = 0; r < p->nrank && !opens; r++)
      EXPECT(r == 1 || strstr(j.error[r], "lost: the process of rank 1 has ended"),
             "%s: rank 1 dies at call %u of pr_open: rank %u: %d %s %s\n", p->name, j.die_at, r,
             j.status[r], j.error[r], j.text);
    EXPECT(opens || peer || j.errors == 0, "%s: rank 1 dies at call %u of pr_open: %s\n", p->name,
           j.die_at, j.text);
  }
  printf("%s%s: %u deaths in pr_open\n", name, peer ? ", by peer" : "", cut);
}

void plan_kills(const char *stdlib, uint64_t seed) {
  static const Sample onef1b = {"1f1b", NULL, 3, 6};
  const struct {
    const Sample *s;
    uint32_t kills;
    bool graph, peer, starts;
  } of[] = {{&onef1b, 40, false, false, true},
            {sample_named("bpipe"), 40, false, false, false},
            {sample_named("switched"), 40, false, false, false},
            {sample_named("1f1b channels"), 40, false, false, true},
            {sample_named("chimera"), 40, false, false, true},
            {sample_named("chimera"), 12, true, false, false},
            {sample_named("switched"), 12, true, false, false},
            {&onef1b, 40, false, true, false},
            {sample_named("bpipe"), 12, false, true, false},
            {sample_named("1f1b channels"), 12, false, true, false},
            {sample_named("chimera"), 12, true, true, true},
            {sample_named("switched"), 12, true, true, false}};
  for (uint32_t i = 0; i < sizeof of / sizeof *of; i++) {
    Program *c = compiled(stdlib, of[i].s);
    uint32_t named = 0, cut = 0;
    kill_some(c->s.prog, of[i].graph, of[i].peer, of[i].kills, seed, &cut, &named);
    /* a third of those that are left name one */
    EXPECT(cut > of[i].kills / 2 && (of[i].graph || 3 * named > cut * (c->s.prog->nrank - 1)),
           "%s%s%s: %u runs were cut off, %u reports name an instruction\n", of[i].s->name,
           of[i].graph ? ", a graph" : "", of[i].peer ? ", by peer" : "", cut, named);
    if (of[i].starts)
      kill_start(c->s.prog, of[i].s->name, of[i].peer, seed);
    printf("%s%s%s: %u kills\n", of[i].s->name, of[i].graph ? ", a graph" : "",
           of[i].peer ? ", by peer" : "", of[i].kills);
    arena_free(&c->arena);
    free(c);
  }
}
