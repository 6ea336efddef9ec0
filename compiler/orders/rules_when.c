/* SPDX-License-Identifier: MIT
 * Evaluates the conditions of `rules` (lang/spec.md 5.6). Each listed op has its own copy of its
 * condition, with numbers for everything but the quantities. The play evaluates the copy. Cost:
 * linear in the text of the condition. */
#include <string.h>

#include "orders.h"
#include "expand.h"
#include "limit.h"
#include "names.h"
#include "rules.h"

/* Evaluates a part of a condition without quantities. sure: the value is needed. A part that is
 * perhaps not needed, and has no value now, is evaluated in the play with the present variables.
 * NULL: reported. */
static Expr *fold_number(Ex *x, const Expr *e, bool sure) {
  Sched *s = x->s;
  Expr *f = NEW(&x->scratch, Expr);
  *f = (Expr){.kind = EX_INT, .at = e->at, .depends = e->kind != EX_INT};
  sure |= e->kind == EX_INT || e->kind == EX_NAME; /* they always have a value */
  if (sure ? eval(s, e, &f->value) : quiet_value(s, e, &f->value))
    return f;
  if (sure || !take_steps(s, s->parsed->nslot, e->at))
    return NULL;
  int64_t *env = arena_alloc(&x->scratch, s->parsed->nslot * sizeof *env + 1);
  memcpy(env, s->eval.env, s->parsed->nslot * sizeof *env);
  f->kind = EX_CALL, f->builtin = BI_LATER, f->depends = 0;
  f->slot = x->rules.later.n;
  *vec_push(&x->scratch, &x->rules.later) = (Later){e, env};
  return f;
}

/* Copies e, with a number in place of every part without quantities. Drops operands that cannot
 * matter. NULL: reported. */
static Expr *fold(Ex *x, const Expr *e, bool sure) {
  if (!counts_now(e))
    return fold_number(x, e, sure);
  Expr *f = NEW(&x->scratch, Expr);
  *f = *e;
  bool picks = e->kind == EX_AND || e->kind == EX_OR || e->kind == EX_COND;
  if (picks) {
    if (!(f->a = fold(x, e->a, sure)))
      return NULL;
    bool known = f->a->kind == EX_INT, yes = known && f->a->value != 0;
    if (known && e->kind == EX_COND)
      return fold(x, yes ? e->b : e->c, sure);
    if (known && yes == (e->kind == EX_OR)) {
      f->a->value = yes;
      return f->a;
    }
    sure = sure && known;
    if (!(f->b = fold(x, e->b, sure)) || (e->c && !(f->c = fold(x, e->c, sure))))
      return NULL;
    return f;
  }
  f->args = NULL;
  Arg **end = &f->args;
  for (const Arg *a = e->args; a; a = a->next) {
    *end = NEW(&x->scratch, Arg);
    **end = *a;
    (*end)->next = NULL;
    if (!((*end)->value = fold(x, a->value, sure)))
      return NULL;
    end = &(*end)->next;
  }
  const Expr *const from[2] = {e->a, e->b};
  Expr **const to[2] = {&f->a, &f->b};
  for (int i = 0; i < 2; i++)
    if (from[i] && !(*to[i] = fold(x, from[i], sure)))
      return NULL;
  return f;
}

bool rules_guard(Ex *x, Listed *l) {
  const Expr *when = l->stmt->cond; /* the condition of an op or of its overlap */
  /* the ops of one statement share a condition that does not depend on the index */
  for (uint32_t k = x->listed.n; !when->depends && k-- > 0 && k + 64 > x->listed.n;)
    if (x->listed.at[k].stmt == l->stmt && x->listed.at[k].guard) {
      l->guard = x->listed.at[k].guard;
      return true;
    }
  l->guard = fold(x, when, true);
  return l->guard != NULL;
}

/* Evaluates a part that fold_number has left for the play. */
static bool later_value(Sched *s, const Later *l, int64_t *value) {
  int64_t *env = s->eval.env;
  s->eval.env = l->env;
  bool ok = eval(s, l->of, value);
  s->eval.env = env;
  return ok;
}

bool rules_quantity(Sched *s, const Expr *call, int64_t *value) {
  Rules *q = s->eval.rules;
  int64_t r, c;
  if (call->builtin == BI_LATER)
    return later_value(s, &q->x->rules.later.at[call->slot], value);
  if (!eval(s, call->args->value, &r))
    return false;
  if (r != q->rank) {
    diag_error(s->diag, DIAG_RANGE, call->args->value->at,
               "rank %u cannot know '%s' of rank %lld at that moment, only its own", q->rank,
               call->name, (long long)r);
    diag_help(s->diag, "the variable of the order is the rank's own number: %s(r) in 'order r'",
              call->name);
    return false;
  }
  int what = count_of(call->builtin);
  if (!call->args->next) {
    *value = q->rank_count[what][r];
    return true;
  }
  uint32_t first = s->model->rank_stage0[r], n = s->model->rank_stage0[r + 1] - first;
  if (!eval(s, call->args->next->value, &c))
    return false;
  if (c < 0 || c >= n) {
    diag_error(s->diag, DIAG_RANGE, call->args->next->value->at,
               "rank %u has no chunk %lld; its chunks are 0 to %u", q->rank, (long long)c, n - 1);
    return false;
  }
  *value = q->count[what][s->model->rank_stage[first + c]];
  return true;
}
