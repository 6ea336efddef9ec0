/* SPDX-License-Identifier: MIT
 * A model that holds its stashes itself: one allocation from F or R to B or W.
 *
 *   holds_test SCHEDULE.pipe [FAILS]   prints by rank the bytes counted, what of them is the
 *                                     engine's, and the most stashes that were held at once;
 *                                     FAILS: the callback that fails, "F" or "sizes" */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "run.h"

enum { STAGES = 16, MICROBATCHES = 64, ACT = 192 };

typedef struct Holder {
  uint32_t nstage;
  const char *fails;
  const PipeProgram *p;
  char *stash[STAGES][MICROBATCHES];
  atomic_int held[STAGES], most[STAGES]; /* by rank, whose ops run one after the other */
  atomic_int wrong;
} Holder;

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  const Holder *h = self;
  *out = (PrSizes){
      .act = ACT, .gout = 64, .boundary = stage + 1 < h->nstage ? 64 : 0, .weight = 64, .grad = 64};
  return stage == 1 && !strcmp(h->fails, "sizes") ? 7 : 0;
}

static int init(void *self, uint32_t stage, void *weight, void *opt) {
  (void)self, (void)stage, (void)weight, (void)opt;
  return 0;
}

static void drop(Holder *h, const PrCall *c) {
  char **at = &h->stash[c->stage][c->mb];
  if (!*at || (*at)[ACT - 1] != (char)(c->stage + c->mb))
    h->wrong++;
  free(*at);
  *at = NULL;
  h->held[c->rank]--;
}

static int forward(void *self, const PrCall *c) {
  Holder *h = self;
  char **at = &h->stash[c->stage][c->mb];
  if (c->act || *at || (c->op == PIPE_R && c->recomputed))
    h->wrong++;
  if (!c->recomputed) {
    *at = malloc(ACT);
    (*at)[ACT - 1] = (char)(c->stage + c->mb);
    int now = ++h->held[c->rank];
    if (now > h->most[c->rank])
      h->most[c->rank] = now;
  }
  if (c->loss)
    *c->loss = 1;
  return c->stage == 1 && c->mb == 2 && !strcmp(h->fails, "F") ? 3 : 0;
}

static int backward(void *self, const PrCall *c) {
  drop(self, c);
  return 0;
}

static int input(void *self, const PrCall *c) {
  Holder *h = self;
  if (c->act || c->gout || !h->stash[c->stage][c->mb])
    h->wrong++;
  return 0;
}

static int update(void *self, const PrCall *c) {
  (void)self;
  memset(c->grad, 0, 64);
  return 0;
}

static const char *why(void *self) {
  const Holder *h = self;
  return *h->fails ? "out of patience" : NULL;
}

int main(int argc, char **argv) {
  static Holder h;
  Program program;
  if (argc < 2 || !program_open(&program, NULL, argv[1], NULL, NULL, 0, NULL))
    return 2;
  const PipeProgram *p = program.s.prog;
  if (p->nmodel > STAGES || p->nmb > MICROBATCHES)
    return 1;
  h.fails = argc > 2 ? argv[2] : "";
  h.nstage = p->nmodel, h.p = p;
  PrModel m = {.self = &h,
               .nstage = h.nstage,
               .nslice = pipe_slices(p),
               .sizes = sizes,
               .init = init,
               .forward = forward,
               .backward = backward,
               .backward_input = input,
               .backward_weight = backward,
               .update = update,
               .holds_stash = 1,
               .why = why};
  PrRun *run;
  PrStatus st = pr_open(&run, p, &m, NULL);
  if (!st)
    st = pr_steps(run, 3);
  if (st)
    printf("%s\n", pr_error(run));
  for (uint32_t r = 0; r < p->nrank && !st; r++)
    printf("rank %u: %llu bytes, %llu of the engine, %d stashes\n", r,
           (unsigned long long)pr_bytes(run, r), (unsigned long long)run->rank[r].block_bytes,
           atomic_load(&h.most[r]));
  if (!st && h.wrong)
    printf("%d ops have found another stash than they need\n", h.wrong);
  pr_close(run);
  for (uint32_t i = 0; i < STAGES; i++)
    for (uint32_t j = 0; j < MICROBATCHES; j++) {
      if (!st && h.stash[i][j])
        printf("a stash of stage %u is left\n", i);
      free(h.stash[i][j]);
    }
  program_close(&program);
  return 0;
}
