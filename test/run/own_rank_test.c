/* SPDX-License-Identifier: MIT
 * What a process of one rank knows of a program whose lists are rows: its own list, and of the
 * others what it asks for. On an engine that meets nobody.
 *
 *   own_rank_test STDLIB_DIR
 *
 * Of every sample each rank is opened alone: what it counts of other ranks' updates must
 * be what a process counts that has all ranks, and so must all that it finds when it looks at them.
 * Of a large program it must hold little. A program with a changed word is refused by the process
 * whose list has it, one with a changed table by all, and with PIPE_VALIDATE=1 both are by all. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_rows.h"
#include "run.h"
#include "samples.h"

static uint32_t rank_of_process;

static PrStatus join(PrRun *run) {
  run->here = rank_of_process;
  run->nprocess = run->p->nrank;
  return PR_OK;
}
static PrStatus open_nothing(PrRun *run) { return (PrStatus)atomic_load(&run->status); }
static const PrEngine alone = {.name = "alone", .join = join, .open = open_nothing},
                      together = {.name = "together", .open = open_nothing};

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  const PipeProgram *p = self;
  const PipeStage *s = &p->stage[stage];
  *out = p->sized ? (PrSizes){.act = s->act_bytes,
                              .gout = s->gout_bytes,
                              .boundary = s->boundary_bytes,
                              .weight = s->weight_bytes,
                              .grad = s->grad_bytes,
                              .opt = s->opt_bytes,
                              .work = s->work_bytes,
                              .edge = s->edge_bytes,
                              .tied = s->tied_bytes}
                  : (PrSizes){.act = 64,
                              .gout = 64,
                              .boundary = 64,
                              .weight = 64,
                              .grad = 64,
                              .opt = 64,
                              .work = 64,
                              .edge = 64,
                              .tied = 64};
  return 0;
}

/* None of these but `moment` is called. */
static int init(void *self, uint32_t stage, void *weight, void *opt) {
  (void)self, (void)stage, (void)weight, (void)opt;
  abort();
}
static int op(void *self, const PrCall *c) {
  (void)self, (void)c;
  abort();
}
static int reduce(void *self, uint32_t stage, void *const *grad, uint32_t n, uint64_t bytes) {
  (void)self, (void)stage, (void)grad, (void)n, (void)bytes;
  abort();
}
static int tie(void *self, const uint32_t *stage, void *const *grad, uint32_t n, uint64_t bytes) {
  (void)self, (void)stage, (void)grad, (void)n, (void)bytes;
  abort();
}
static double lr(void *self, uint32_t stage, uint64_t update) {
  (void)self, (void)stage, (void)update;
  abort();
}
static int64_t moment(void *self, uint32_t stage, int which) {
  (void)self, (void)stage, (void)which;
  return 0;
}

static PrRun *open_it(const PipeProgram *p, uint32_t rank) {
  const PrModel m = {.self = (void *)(uintptr_t)p,
                     .nstage = p->nmodel,
                     .nslice = p->slices,
                     .sizes = sizes,
                     .init = init,
                     .forward = op,
                     .backward = op,
                     .backward_input = op,
                     .backward_weight = op,
                     .update = op,
                     .side = op,
                     .reduce = reduce,
                     .tie = tie,
                     .elem = 4,
                     .lr = lr,
                     .moment = moment};
  const PrOptions process = {.engine = &alone}, all = {.engine = &together};
  PrRun *run = NULL;
  rank_of_process = rank;
  if (pr_open(&run, p, &m, rank == PIPE_NONE ? &all : &process) == PR_E_MEMORY)
    exit(1);
  return run;
}

static int differs(const char *what, const char *name, uint32_t rank) {
  printf("FAIL %s: rank %u: other %s\n", name, rank, what);
  return 1;
}

static int same_streams(const RankRun *a, const RankRun *b) {
  bool same = a->ncompute == b->ncompute && a->ncomm == b->ncomm && a->ncopy == b->ncopy &&
              a->nstream == b->nstream;
  for (uint32_t i = 0; same && i < a->ncomm; i++)
    same = a->comm[i].index == b->comm[i].index;
  for (uint32_t i = 0; same && i < a->ncompute; i++)
    same = a->compute[i].index == b->compute[i].index;
  return same && memcmp(a->t->instr, b->t->instr, a->t->ninstr * sizeof *a->t->instr) == 0;
}

/* A rank alone against the run of all. */
static int compare(const char *name, const PipeProgram *rows, const PrRun *all, uint32_t r) {
  PrRun *run = open_it(rows, r);
  int bad = pr_failed(run);
  if (bad)
    printf("FAIL %s: rank %u: %s\n", name, r, pr_error(run));
  const RankRun *a = &run->rank[r], *b = &all->rank[r];
  for (uint32_t i = 0; !bad && i < a->ncompute; i++)
    if (a->compute[i].applied != b->compute[i].applied ||
        a->compute[i].first_grad != b->compute[i].first_grad ||
        a->compute[i].updates != b->compute[i].updates)
      bad = differs("updates", name, r);
  for (uint32_t q = 0; !bad && q < rows->nrank; q++)
    if (q != r && (!run->rank[q].t->rows || run->rank[q].ncomm > 0))
      bad = differs("lists: it has one of another rank", name, r);
  if (!bad && !pr_see_all(run))
    bad = differs("lists: it cannot see those of others", name, r);
  for (uint32_t q = 0; !bad && q < rows->nrank; q++)
    if (!same_streams(&run->rank[q], &all->rank[q]))
      bad = differs("streams", name, q);
  pr_close(run);
  return bad;
}

static void tell(const char *what, const PipeProgram *p, uint32_t rank) {
  PrRun *run = open_it(p, rank);
  printf("%s, rank %u: %s\n", what, rank, pr_failed(run) ? pr_error(run) : "opens");
  pr_close(run);
}

/* What was changed, and what is said of it. */
static void change(const PipeProgram *rows) {
  PipeRank *rank = (PipeRank *)rows->rank;
  PipeStage *stage = (PipeStage *)rows->stage;
  uint32_t *word = (uint32_t *)rank[1].rows;
  for (int i = 0; i < 2; i++) {
    if (i)
      setenv("PIPE_VALIDATE", "1", 1);
    printf("PIPE_VALIDATE %s\n", i ? "is 1" : "is not set");
    tell("nothing", rows, 0);
    word[1]++; /* of the first row: its microbatch */
    tell("a word of rank 1", rows, 0);
    tell("a word of rank 1", rows, 1);
    word[1]--;
    rank[1].hash++;
    tell("the hash of rank 1", rows, 0);
    rank[1].hash--;
    stage[0].mb0++;
    tell("a table", rows, 0);
    stage[0].mb0--;
  }
  setenv("PIPE_VALIDATE", "yes", 1);
  tell("PIPE_VALIDATE is yes", rows, 0);
  unsetenv("PIPE_VALIDATE");
}

int main(int argc, char **argv) {
  static const Sample large = {.name = "1f1b", .P = 64, .M = 256};
  int bad = 0;
  uint32_t ranks = 0;
  Program *c = malloc(sizeof *c);
  if (argc != 2 || !c)
    return 2;
  for (uint32_t i = 0; i < nsamples; i++) {
    if (!sample_compile(c, argv[1], &samples[i]))
      return 1;
    const PipeProgram *rows = as_rows(&c->arena, c->s.prog);
    PrRun *all = open_it(c->s.prog, PIPE_NONE);
    bad += pr_failed(all);
    if (pr_failed(all))
      printf("FAIL %s: %s\n", samples[i].name, pr_error(all));
    for (uint32_t r = 0; r < rows->nrank && !pr_failed(all); r++, ranks++)
      bad += compare(samples[i].name, rows, all, r);
    pr_close(all);
    if (i == 0)
      change(rows);
    arena_free(&c->arena);
  }
  printf("%u ranks, %d wrong\n", ranks, bad);
  if (!sample_compile(c, argv[1], &large))
    return 1;
  const PipeProgram *rows = as_rows(&c->arena, c->s.prog);
  size_t most = 0;
  for (uint32_t r = 0; r < rows->nrank; r += 21) {
    const struct mallinfo2 before = mallinfo2();
    PrRun *run = open_it(rows, r);
    const struct mallinfo2 after = mallinfo2();
    size_t held = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
    most = held > most ? held : most;
    bad += pr_failed(run);
    pr_close(run);
  }
  printf("a rank of 64 holds %s\n", most < (size_t)1 << 20 ? "less than 1 MiB" : "too much");
  arena_free(&c->arena);
  free(c);
  return bad != 0;
}
