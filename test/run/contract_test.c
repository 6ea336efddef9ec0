/* SPDX-License-Identifier: MIT
 * A model that breaks a promise of PrCall, and what PIPE_CHECK_MODEL=1 says of it; or one whose
 * tensors are not as PrModel.tensor promises, and what a checkpoint says.
 *
 *   contract_test SCHEDULE.pipe MISTAKE [FOLDER]     prints the error of the run, or "fine" */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines.h"
#include "program.h"
#include "test_model.h"

enum { N = 5 }; /* floats of a tensor: not a whole line */

typedef struct Training {
  uint32_t nstage;
  const char *mistake;
} Training;

static bool makes(const Training *m, const char *mistake) { return !strcmp(m->mistake, mistake); }

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  const Training *m = self;
  *out = (PrSizes){
      .act = 4 * N,
      .gout = 4 * N,
      .boundary = stage + 1 == m->nstage || (stage == 1 && makes(m, "boundary")) ? 0 : 4 * N,
      .weight = 4 * N,
      .grad = 4 * N,
      .opt = 4 * N,
      .work = 4 * N};
  return 0;
}

static int init(void *self, uint32_t stage, void *weight, void *opt) {
  memset(weight, 0, stage == 1 && makes(self, "init") ? 4 * N + 1 : 4 * N);
  (void)opt;
  return 0;
}

static int forward(void *self, const PrCall *c) {
  const Training *m = self;
  if (c->stage == 1 && c->mb == 3 && c->op == PIPE_R && makes(m, "input"))
    ((float *)c->x)[1] = 1;
  if (c->stage == 0 && c->mb == 1 && makes(m, "weight"))
    ((float *)c->weight)[N - 1] += 1;
  if (c->stage == 0 && c->mb == 2 && makes(m, "front"))
    ((char *)c->weight)[-3] = 1;
  memset(c->act, c->op == PIPE_R && c->stage == 1 && c->mb == 2 && makes(m, "act"), 4 * N - 8);
  if (c->stage == 2 && c->mb == 1 && makes(m, "work"))
    ((char *)c->work)[70] = 1;
  if (c->y)
    memset(c->y, 0, c->stage == 1 && c->mb == 1 && makes(m, "output") ? 4 * N + 4 : 4 * N);
  else
    *c->loss = 0;
  return 0;
}

static int backward(void *self, const PrCall *c) {
  if (c->dx)
    memset(c->dx, 0, 4 * N);
  if (c->dy)
    ((float *)c->dy)[0] = c->stage == 1 && c->mb == 2 && makes(self, "dy");
  for (int i = 0; i < N; i++)
    ((float *)c->grad)[i] += 1;
  return 0;
}

static int update(void *self, const PrCall *c) {
  memset(c->grad, 0, c->stage == 1 && c->step == 1 && makes(self, "grad") ? 4 * N - 4 : 4 * N);
  return 0;
}

static int reduce(void *self, uint32_t stage, void *const *grad, uint32_t n, uint64_t bytes) {
  if (stage == 1 && makes(self, "sum"))
    ((char *)grad[n - 1])[bytes] = 1;
  return 0;
}

/* Weights and optimizer state of a stage, which have one name. */
static int tensor(void *self, uint32_t stage, uint32_t i, PrTensor *out) {
  const bool opt = i == 1;
  *out = (PrTensor){.of = opt ? PR_OPT : PR_WEIGHT, .dtype = PR_F32, .ndim = 1, .shape = {N}};
  snprintf(out->name, PR_NAME, makes(self, "twice") && opt ? "w" : "w%u", stage);
  if (makes(self, "name"))
    strcpy(out->name, stage == 0 ? "\u00fc \"w\" \n" : "\xff");
  if (makes(self, "metadata"))
    strcpy(out->name, "__metadata__");
  out->at = opt && makes(self, "place") ? 1 : 0;
  out->shape[0] -= opt && makes(self, "bytes");
  out->ndim = makes(self, "dimensions") ? PR_DIMS + 1 : 1;
  out->dtype = makes(self, "dtype") ? (PrDtype)-1 : PR_F32;
  return i > 1;
}

int main(int argc, char **argv) {
  if (argc != 3 && argc != 4)
    return 2;
  Program program;
  if (!program_open(&program, NULL, argv[1], NULL, NULL, 0, NULL))
    return 1;
  const PipeProgram *p = program.s.prog;
  Training self = {p->nmodel, argv[2]};
  PrModel m = {
      .self = &self, .nstage = p->nmodel, WHOLE_OPS(update), .reduce = reduce, .tensor = tensor};
  PrOptions o = {0};
  PrRun *run;
  engines_begin(NULL);
  if (!engines_case(p->nrank) || !engines_take(&p, &o))
    return engines_end(0);
  PrStatus st = pr_open(&run, p, &m, &o);
  if (!st)
    st = pr_steps(run, 2);
  if (!st && argc == 4)
    st = pr_checkpoint(run, argv[3], 0);
  printf("%s: %s\n", argv[2], st ? pr_error(run) : "fine");
  pr_close(run);
  program_close(&program);
  return engines_end(0);
}
