/* SPDX-License-Identifier: MIT
 * Formulas: the part of the validator (validate.h) that checks formulas and rules. Ensures that
 * every formula reads only arrays that exist where it is used. Linear. */
#include "evaluate.h"
#include "validate_parts.h"

#define NAMED(elem) (1u << (elem))

PrStatus pr_check_tables(Check *k) {
  const PipeProgram *p = k->p;
  for (uint32_t i = 0; i < p->nformula; i++) {
    const char *wrong = pr_formula_check(&p->formula[i], p->nstate, NULL);
    if (wrong)
      FAIL(k, "program: formula %u: %s", i, wrong);
  }
  for (uint32_t i = 0; i < p->nthen; i++)
    if (p->then[i].state >= p->nstate || p->then[i].formula >= p->nformula)
      FAIL(k, "program: then %u sets state %u of %u by formula %u of %u", i, p->then[i].state,
           p->nstate, p->then[i].formula, p->nformula);
  for (uint32_t i = 0; i < p->nrule; i++) {
    const PipeRule *r = &p->rule[i];
    if ((r->applies != PIPE_NONE && r->applies >= p->nformula) ||
        (r->rate != PIPE_NONE && (r->rate >= p->nformula || !p->formula[r->rate].scalar)) ||
        r->then0 > p->nthen || r->nthen > p->nthen - r->then0)
      FAIL(k, "program: rule %u is out of range, or its rate is no number", i);
  }
  return PR_OK;
}

/* Checks that formula `row`, at its place of use, reads only arrays of the set `may`. */
static PrStatus check_use(Check *k, const PipeInstr *c, uint32_t row, uint32_t may) {
  const PipeFormula *f = &k->p->formula[row];
  for (uint32_t i = 0; i < f->n; i++) {
    const PipeTerm *t = &f->term[i];
    if (t->op != PIPE_TERM_ELEM)
      continue;
    if (t->arg < PIPE_ELEM_STATE && !(may & NAMED(t->arg)))
      FAIL_AT(k, c, "formula %u reads an array that is not there", row);
    if (t->arg >= PIPE_ELEM_STATE &&
        !(k->p->stage[c->stage].states >> (t->arg - PIPE_ELEM_STATE) & 1))
      FAIL_AT(k, c, "formula %u reads a state that stage %u does not keep", row, c->stage);
    if (t->arg >= PIPE_ELEM_STATE)
      k->named[c->stage] |= NAMED(t->arg - PIPE_ELEM_STATE);
  }
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
