/* SPDX-License-Identifier: MIT
 * What a schedule says beside its orders, for all M (lists_of_m.h): its parameters and lets, what it requires, and that
 * its ranks, pipes, stages, places and edges, and which order a rank has, do not depend on M. */
#include <string.h>

#include "expand.h"
#include "lists_text.h"
#include "names.h"

const Expr *base_value(const Schedule *sc, const Param *p, const Arg **positional,
                       const Param **own) {
  const Arg *a = sc->base_args;
  while (a && a->key != p->name)
    a = a->next;
  if (*positional && !(*positional)->key)
    a = *positional, *positional = (*positional)->next;
  *own = NULL;
  for (const Param *q = sc->params; q && !a; q = q->next)
    if (q->name == p->name)
      *own = q;
  return a ? a->value : *own ? NULL : p->init;
}

/* What is used is not tuned: the first value, of at least one (tune.c). */
static bool bind_tuned(AffineEnv *x, const Clause *c) {
  enum { MOST_VALUES = 1000 };
  Affine lo, hi;
  int64_t step = 1;
  bool some, few;
  if (!affine_eval(x, c->range.lo, &lo) || !affine_eval(x, c->range.hi, &hi) ||
      (c->range.step && !affine_number(x, c->range.step, &step)))
    return false;
  Affine span = step > 0 ? affine_sum(hi, lo, -1) : affine_sum(lo, hi, -1);
  int64_t by = step > 0 ? step : -step;
  if (!affine_at_least_0(x, c->at, affine_sum(span, affine(1), -1), &some) ||
      !affine_at_least_0(x, c->at, affine_sum(affine(MOST_VALUES * by), span, -1), &few))
    return false;
  affine_bind(x, c->slot, lo);
  return (some && few && step) ||
         affine_no(x, c->at, "what it uses is tuned over no values, or too many");
}

bool text_bind_clauses(AffineEnv *x, const Schedule *sc) {
  Affine v;
  if (sc->base) {
    const Arg *positional = sc->base_args;
    for (const Param *p = sc->base_def->params; p; p = p->next) {
      const Param *own;
      const Expr *e = base_value(sc, p, &positional, &own);
      if (own)
        affine_bind(x, p->slot, x->value[own->slot]);
      if (e && !affine_eval(x, e, &v))
        return false;
      if (e)
        affine_bind(x, p->slot, v);
    }
    if (!text_bind_clauses(x, sc->base_def))
      return false;
  }
  for (const Clause *c = sc->clauses; c; c = c->next) {
    if (c->kind == CL_TUNE && c->var && !bind_tuned(x, c))
      return false;
    if (c->kind != CL_LET)
      continue;
    if (!affine_eval(x, c->value, &v))
      return false;
    affine_bind(x, c->slot, v);
  }
  return true;
}

bool bind_of_m(AffineEnv *x, uint32_t slot, int64_t from, int64_t step) {
  Sched *s = x->s;
  x->value = NEW_ARRAY(s->arena, Affine, s->parsed->nslot + (size_t)1);
  for (uint32_t i = 0; i < s->parsed->nslot; i++)
    x->value[i] = affine(s->eval.env[i]);
  for (const Param *p = s->parsed->def->params; p; p = p->next) {
    Affine v = affine(s->eval.env[p->slot]);
    if (p->slot == slot)
      v = (Affine){from, step, 0};
    else if (!is_given(s->opt, p) && p->init && !affine_eval(x, p->init, &v))
      return false;
    affine_bind(x, p->slot, v);
  }
  return text_bind_clauses(x, s->parsed->def);
}

bool admits_of_m(AffineEnv *x, bool *yes) {
  *yes = true;
  for (const Schedule *sc = x->s->parsed->def; sc && *yes; sc = sc->base_def)
    for (const Require *r = sc->requires; r && *yes; r = r->next)
      if (!affine_truth(x, r->cond, yes))
        return false;
  return true;
}

/* Stages, places, edges, and which ranks have which order, are the same for all n. */
bool same_model_of_m(AffineEnv *x) {
  Sched *s = x->s;
  int64_t v;
  for (uint32_t k = 0; k < s->model->npipe; k++) {
    const Pipe *p = &s->model->pipe[k];
    const Clause *c = p->clause;
    if (c->index)
      affine_bind(x, c->index_slot, affine(p->index));
    if (!affine_number(x, c->value, &v) || !affine_constant(x, c->slices))
      return false;
    for (uint32_t st = 0; st < p->nstage && !c->mb_var; st++) {
      affine_bind(x, c->slot, affine(st));
      if (!affine_number(x, c->place, &v))
        return false;
    }
  }
  for (const Schedule *sc = s->parsed->def; sc; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c; c = c->next) {
      if (c->kind == CL_RANKS && !affine_constant(x, c->value))
        return false;
      if ((c->kind == CL_ORDER || c->kind == CL_PIPE) &&
          (!affine_constant(x, c->range.lo) || !affine_constant(x, c->range.hi) ||
           !affine_constant(x, c->range.step)))
        return false;
      for (const Arg *a = c->kind == CL_TIE ? c->args : NULL; a; a = a->next)
        if (!affine_number(x, a->value, &v))
          return false;
      if (c->kind != CL_EDGE)
        continue;
      int64_t lo = 0, hi = 1, step = 1;
      if (c->var && (!affine_number(x, c->range.lo, &lo) || !affine_number(x, c->range.hi, &hi) ||
                     (c->range.step && !affine_number(x, c->range.step, &step))))
        return false;
      for (int64_t i = lo; step > 0 ? i < hi : i > hi; i += step) {
        if (c->var)
          affine_bind(x, c->slot, affine(i));
        if (!affine_number(x, c->value, &v) || !affine_number(x, c->to, &v))
          return false;
      }
    }
  return true;
}
