/* SPDX-License-Identifier: MIT
 * Evaluates the formulas of a program around the callbacks of a model (pipe_formula.h): estimates
 * of weights before F, B, I and R, and the formulas around an update. Requires pr_check_model. Runs
 * on the thread of the rank, reads and writes only data of the current stage, and allocates
 * nothing. */
#include "evaluate.h"
#include "run.h"

#include <string.h>

/* The operands of the formulas of one op. */
typedef struct Reads {
  const float *elem[PR_ARRAYS];
  PrFormulaIn in;
} Reads;

static uint64_t weights_of(const PrRun *run, uint32_t stage) {
  return run->stage[stage].size.weight / sizeof(float);
}

float *pr_state(const PrRun *run, uint32_t stage, uint32_t j) {
  uint32_t below = run->p->stage[stage].states & ((1u << j) - 1), rank = 0;
  for (; below; below &= below - 1)
    rank++;
  return (float *)((char *)run->stage[stage].state +
                   rank * pr_round(run->stage[stage].size.weight));
}

void pr_find_arrays(const PrRun *run, uint32_t stage, const float *elem[PR_ARRAYS]) {
  const PrModel *m = &run->m;
  const StageRun *s = &run->stage[stage];
  for (int which = 0; m->moment && s->opt && which < 2; which++) {
    int64_t at = m->moment(m->self, run->p->stage[stage].model, which);
    elem[PIPE_ELEM_V + which] = at < 0 ? NULL : (const float *)((const char *)s->opt + at);
  }
  for (uint32_t j = 0; j < run->p->nstate; j++)
    if (run->p->stage[stage].states >> j & 1)
      elem[PIPE_ELEM_STATE + j] = pr_state(run, stage, j);
}

static void find_reads(const PrRun *run, uint32_t stage, const PrCall *a, Reads *r) {
  const PrModel *m = &run->m;
  memset(r, 0, sizeof *r);
  r->in.elem = r->elem;
  pr_find_arrays(run, stage, r->elem);
  r->in.real[PIPE_REAL_K] = (double)a->updates;
  if (m->lr)
    r->in.real[PIPE_REAL_LR] = m->lr(m->self, a->stage, a->updates);
}

void pr_estimate(PrRun *run, RankRun *k, const PipeInstr *c, const PipeWeights *w, PrCall *a) {
  Reads r;
  find_reads(run, c->stage, a, &r);
  r.elem[PIPE_ELEM_W] = a->weight;
  pr_formula_array(&run->p->formula[w->formula], &r.in, k->slot[w->guess],
                   weights_of(run, c->stage));
  a->weight = k->slot[w->guess];
}

void pr_before_update(PrRun *run, RankRun *k, const PipeInstr *c, const PipeWeights *w, PrCall *a) {
  const PipeRule *rule = &run->p->rule[w->formula];
  Reads r;
  find_reads(run, c->stage, a, &r);
  r.elem[PIPE_ELEM_W] = a->newest;
  r.elem[PIPE_ELEM_G] = a->grad;
  if (w->guess != PIPE_NONE)
    memcpy(k->slot[w->guess], a->newest, run->stage[c->stage].size.weight);
  if (rule->applies != PIPE_NONE)
    pr_formula_array(&run->p->formula[rule->applies], &r.in, a->grad, weights_of(run, c->stage));
  if (rule->rate != PIPE_NONE)
    a->rate = pr_formula_number(&run->p->formula[rule->rate], &r.in);
}

void pr_after_update(PrRun *run, RankRun *k, const PipeInstr *c, const PipeWeights *w,
                     const PrCall *a) {
  const PipeProgram *p = run->p;
  const PipeRule *rule = &p->rule[w->formula];
  Reads r;
  find_reads(run, c->stage, a, &r);
  r.elem[PIPE_ELEM_W] = a->weight;
  r.elem[PIPE_ELEM_OLD] = w->guess != PIPE_NONE ? k->slot[w->guess] : a->newest;
  for (uint32_t i = 0; i < rule->nthen; i++) {
    const PipeThen *t = &p->then[rule->then0 + i];
    pr_formula_array(&p->formula[t->formula], &r.in, pr_state(run, c->stage, t->state),
                     weights_of(run, c->stage));
  }
}
