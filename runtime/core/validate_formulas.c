/* SPDX-License-Identifier: MIT
 * The formulas of a program, and where it uses them: the part of validate.c that reads these tables. Every
 * formula reads only arrays that there are where it stands, and the model has what formulas need. Linear. */
#include "evaluate.h"
#include "validate.h"

#define NAMED(elem) (1u << (elem))

PrStatus pr_check_tables(PrRun *run) {
  const PipeProgram *p = run->p;
  for (uint32_t i = 0; i < p->nformula; i++) {
    const char *wrong = pr_formula_check(&p->formula[i], p->nstate, NULL);
    if (wrong)
      return FAIL(run, "program: formula %u: %s", i, wrong);
  }
  for (uint32_t i = 0; i < p->nthen; i++)
    if (p->then[i].state >= p->nstate || p->then[i].formula >= p->nformula)
      return FAIL(run, "program: then %u sets state %u of %u by formula %u of %u", i,
                  p->then[i].state, p->nstate, p->then[i].formula, p->nformula);
  for (uint32_t i = 0; i < p->nrule; i++) {
    const PipeRule *r = &p->rule[i];
    if ((r->applies != PIPE_NONE && r->applies >= p->nformula) ||
        (r->rate != PIPE_NONE && (r->rate >= p->nformula || !p->formula[r->rate].scalar)) ||
        r->then0 > p->nthen || r->nthen > p->nthen - r->then0)
      return FAIL(run, "program: rule %u is out of range, or its rate is no number", i);
  }
  return PR_OK;
}

/* The arrays that formula f names, but for states, which are apart; and whether it names lr. */
static uint32_t named_by(const PipeFormula *f, uint32_t *states, int *lr) {
  uint32_t named = 0;
  for (uint32_t i = 0; i < f->n; i++) {
    const PipeTerm *t = &f->term[i];
    if (t->op == PIPE_TERM_REAL && t->arg == PIPE_REAL_LR)
      *lr = 1;
    if (t->op != PIPE_TERM_ELEM)
      continue;
    if (t->arg >= PIPE_ELEM_STATE)
      *states |= 1u << (t->arg - PIPE_ELEM_STATE);
    else
      named |= NAMED(t->arg);
  }
  return named;
}

/* Formula `row` stands where only the arrays `may` are known. */
static PrStatus check_use(Check *k, const PipeInstr *c, uint32_t row, uint32_t may) {
  const PipeProgram *p = k->p;
  const PrModel *m = &k->run->m;
  uint32_t states = 0, named;
  int lr = 0;
  named = named_by(&p->formula[row], &states, &lr);
  if (named & ~may)
    FAIL_AT(k, c, "formula %u reads an array that is not there", row);
  if (states & ~p->stage[c->stage].states)
    FAIL_AT(k, c, "formula %u reads a state that stage %u does not keep", row, c->stage);
  bool arrays = may != 0; /* a rate is a number, whatever weights are */
  if (arrays && (k->run->stage[c->stage].size.weight % sizeof(float) || m->elem != sizeof(float)))
    return FAIL(
        k->run,
        "model: the schedule has formulas, for which weights and gradients must be arrays of "
        "float (PrModel.elem = 4)");
  if (lr && !m->lr)
    return FAIL(k->run,
                "model: lr may not be NULL: the schedule has formulas with the learning rate");
  for (int which = 0; which < 2; which++)
    if ((named & NAMED(PIPE_ELEM_V + which)) &&
        (!m->moment || m->moment(m->self, p->stage[c->stage].model, which) < 0))
      return FAIL(k->run,
                  "model: its optimizer has no %s moment, which the schedule has formulas with",
                  which ? "second" : "first");
  return PR_OK;
}

PrStatus pr_check_formulas(Check *k, const PipeInstr *c, const PipeWeights *w) {
  const PipeProgram *p = k->p;
  const uint32_t moments = NAMED(PIPE_ELEM_V) | NAMED(PIPE_ELEM_V2), weights = NAMED(PIPE_ELEM_W);
  PrStatus st = PR_OK;
  if (w->formula == PIPE_NONE)
    return PR_OK;
  if (c->op != PIPE_U)
    return check_use(k, c, w->formula, moments | weights);
  const PipeRule *r = &p->rule[w->formula];
  if (r->applies != PIPE_NONE)
    st = check_use(k, c, r->applies, moments | weights | NAMED(PIPE_ELEM_G));
  if (!st && r->rate != PIPE_NONE)
    st = check_use(k, c, r->rate, 0);
  for (uint32_t i = 0; !st && i < r->nthen; i++) {
    const PipeThen *t = &p->then[r->then0 + i];
    bool kept = w->guess != PIPE_NONE || w->slot != w->out;
    if (!(p->stage[c->stage].states >> t->state & 1))
      FAIL_AT(k, c, "sets state %u, which stage %u does not keep", t->state, c->stage);
    st = check_use(k, c, t->formula, moments | weights | (kept ? NAMED(PIPE_ELEM_OLD) : 0));
  }
  return st;
}
