/* SPDX-License-Identifier: MIT
 * Opening a program takes time linear in it, also when one rank deals with all others: every even
 * stage of a long chain is on rank 0, every odd one on a rank of its own, one microbatch.
 *
 *   star_test STAGES   opens, runs two steps on the seeded engine, prints the seconds of pr_open;
 *                      exit status 1 if anything fails or the losses are not those of the chain */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "list_waits.h"
#include "pipe_run.h"
#include "seeded.h"
#include "test_model.h"

static void *zeroed(size_t n, size_t size) {
  void *p = calloc(n + 1, size);
  if (!p)
    abort();
  return p;
}

/* Every tensor is a number: stages add 1, so the loss is the number of stages. */
static int sizes(void *self, uint32_t stage, PrSizes *out) {
  (void)self, (void)stage;
  *out = (PrSizes){.act = 8, .boundary = 8, .weight = 8, .grad = 8};
  return 0;
}

static int init(void *self, uint32_t stage, void *weight, void *opt) {
  (void)self, (void)stage, (void)opt;
  *(double *)weight = 1;
  return 0;
}

static int forward(void *self, const PrCall *c) {
  (void)self;
  double y = (c->x ? *(const double *)c->x : 0) + *(const double *)c->weight;
  *(c->loss ? c->loss : (double *)c->y) = y;
  return 0;
}

static int backward(void *self, const PrCall *c) {
  (void)self;
  if (c->dx)
    *(double *)c->dx = c->dy ? *(const double *)c->dy : 1;
  return 0;
}

static int update(void *self, const PrCall *c) {
  (void)self, (void)c;
  return 0;
}

/* A rank's list in the making: strictly serial, each instruction waits for all above it. */
typedef struct List {
  PipeInstr *c;
  RowNeeds *needs;
  uint32_t n, done[2];
} List;

static void add(List *l, PipeOp op, uint32_t stage, uint32_t peer, uint32_t act, uint32_t in,
                uint32_t out) {
  int comm = pipe_op_info[op].comm;
  l->needs[l->n].of[comm ? PIPE_COMPUTE : PIPE_COMM] = l->done[!comm];
  l->c[l->n++] = (PipeInstr){.op = (uint8_t)op,
                             .phase = PIPE_STEADY,
                             .stage = stage,
                             .mb = op == PIPE_U ? PIPE_NONE : 0,
                             .peer = peer,
                             .act = act,
                             .gout = PIPE_NONE,
                             .keep = PIPE_NONE,
                             .in = in,
                             .out = out};
  l->done[comm]++;
}

static uint32_t rank_of(uint32_t stage) { return stage % 2 ? (stage + 1) / 2 : 0; }

/* Adds the pools of a stage, of one slot each: its stash, and what it receives and sends at either
 * end. first: slot of the stash. */
static void add_pools(PipeRank *rank, PipePool *pool, uint32_t nstage, uint32_t s,
                      uint32_t *first) {
  *first = rank->nslot;
  pool[rank->npool++] = (PipePool){PIPE_ACT, s, rank->nslot++, 1, 0, 0, 0};
  for (uint32_t of = s ? s - 1 : s; of <= s && of + 1 < nstage; of++)
    for (uint32_t cls = PIPE_OUT; cls <= PIPE_IN; cls++)
      pool[rank->npool++] = (PipePool){cls, of, rank->nslot++, 1, 0, 0, 0};
}

static void pass(List *list, const uint32_t *first, uint32_t nstage, uint32_t s, int back) {
  uint32_t r = rank_of(s), act = first[s], before = act + 1, after = act + (s ? 3 : 1);
  uint32_t in = 1 + (back ? after : before), out = back ? before : after;
  uint32_t from = back ? (s + 1 < nstage ? s + 1 : PIPE_NONE) : (s ? s - 1 : PIPE_NONE);
  uint32_t to = back ? (s ? s - 1 : PIPE_NONE) : (s + 1 < nstage ? s + 1 : PIPE_NONE);
  if (from != PIPE_NONE)
    add(&list[r], back ? PIPE_RECV_B : PIPE_RECV_F, s, rank_of(from), PIPE_NONE, PIPE_NONE, in);
  add(&list[r], back ? PIPE_B : PIPE_F, s, PIPE_NONE, act, from == PIPE_NONE ? PIPE_NONE : in,
      to == PIPE_NONE ? PIPE_NONE : out);
  if (to != PIPE_NONE)
    add(&list[r], back ? PIPE_SEND_B : PIPE_SEND_F, s, rank_of(to), PIPE_NONE, out, PIPE_NONE);
}

int main(int argc, char **argv) {
  uint32_t nstage = argc == 2 ? (uint32_t)strtoul(argv[1], NULL, 10) / 2 * 2 : 0;
  if (nstage < 2) {
    fprintf(stderr, "usage: star_test STAGES\n");
    return 2;
  }
  uint32_t nrank = 1 + nstage / 2;
  static const char *const file = "star.pipe";
  static const PipeSite site = {0, 1, 1};
  PipeStage *stage = zeroed(nstage, sizeof *stage);
  PipeRank *rank = zeroed(nrank, sizeof *rank);
  PipePool *pool = zeroed(5 * (size_t)nstage, sizeof *pool);
  uint32_t *first = zeroed(nstage, sizeof *first);
  PipeInstr *instr = zeroed(7 * (size_t)nstage, sizeof *instr);
  RowNeeds *needs = zeroed(7 * (size_t)nstage, sizeof *needs);
  List *list = zeroed(nrank, sizeof *list);
  for (uint32_t s = 0; s < nstage; s++)
    stage[s] = (PipeStage){.rank = rank_of(s),
                           .chunk = s % 2 ? 0 : s / 2,
                           .prev = s ? s - 1 : PIPE_NONE,
                           .next = s + 1 < nstage ? s + 1 : PIPE_NONE,
                           .model = s,
                           .replica = s,
                           .nmb = 1,
                           .nin = s > 0,
                           .nout = s + 1 < nstage,
                           .tied = PIPE_NONE};
  for (uint32_t r = 0; r < nrank; r++) {
    uint32_t n = r ? 1 : nstage / 2;
    list[r].c = r ? instr + 7 * ((size_t)n * (nstage / 2) + r - 1) : instr;
    list[r].needs = needs + (list[r].c - instr);
    PipePool *own = &pool[5 * (size_t)(list[r].c - instr) / 7];
    rank[r] = (PipeRank){.instr = list[r].c, .pool = own};
    for (uint32_t i = 0; i < n; i++)
      add_pools(&rank[r], own, nstage, r ? 2 * r - 1 : 2 * i, &first[r ? 2 * r - 1 : 2 * i]);
  }
  for (uint32_t s = 0; s < nstage; s++)
    pass(list, first, nstage, s, 0);
  for (uint32_t s = nstage; s-- > 0;)
    pass(list, first, nstage, s, 1);
  for (uint32_t s = 0; s < nstage; s++)
    add(&list[rank_of(s)], PIPE_U, s, PIPE_NONE, PIPE_NONE, PIPE_NONE, PIPE_NONE);
  for (uint32_t r = 0; r < nrank; r++) {
    rank[r].ninstr = list[r].n;
    list_waits(&rank[r], list[r].needs);
  }
  PipeProgram p = {.magic = PIPE_MAGIC,
                   .abi = PIPE_ABI,
                   .name = "star",
                   .params = "",
                   .nrank = nrank,
                   .nstage = nstage,
                   .nmodel = nstage,
                   .nmb = 1,
                   .nsite = 1,
                   .nfile = 1,
                   .rank = rank,
                   .stage = stage,
                   .site = &site,
                   .file = &file};
  PrModel model = {.nstage = nstage, WHOLE_OPS(update)};
  PrRun *run;
  clock_t start = clock();
  PrStatus st = pr_open(&run, &p, &model, &(PrOptions){SEEDED(1)});
  double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
  if (st || (st = pr_steps(run, 2)))
    fprintf(stderr, "star_test: %s\n", pr_error(run));
  int right = !st && pr_loss(run) == nstage;
  printf("%u stages on %u ranks: pr_open took %.3f s, %s\n", nstage, nrank, seconds,
         right ? "right" : "wrong");
  pr_close(run);
  for (uint32_t r = 0; r < nrank; r++)
    free((void *)(uintptr_t)rank[r].wait);
  free(stage);
  free(rank);
  free(pool);
  free(first);
  free(instr);
  free(needs);
  free(list);
  return !right;
}
