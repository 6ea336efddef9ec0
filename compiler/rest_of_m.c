/* SPDX-License-Identifier: MIT
 * What depends on M beside the orders: costs, sizes, links, and what is recomputed, copied or read. No proof of the
 * orders looks at it (all_m.c, lists_of_m.c), but a program needs all of it. So that it has values for every M is asked
 * here, of its text: what M or a microbatch moves divides by what is positive for every M, is not made of products that
 * grow too fast, and a cost is made of what is not negative. Linear in the text, once for each call of a function. */
#include <string.h>

#include "formula.h"
#include "lists_of_m.h"
#include "looped.h"

/* Names that M moves. */
typedef struct Moved {
  bool *slot; /* [nslot] */
  uint32_t nslot, steps;
} Moved;

static bool moves(Moved *x, const Expr *e) {
  enum { MOST_STEPS = 1 << 20 }; /* functions that call functions: then take it that it does */
  if (!e)
    return false;
  if (x->steps++ > MOST_STEPS || (e->kind == EX_NAME && e->slot < x->nslot && x->slot[e->slot]) ||
      (e->kind == EX_CALL && e->fn && moves(x, e->fn->body)))
    return true;
  for (const Arg *a = e->args; a; a = a->next)
    if (moves(x, a->value))
      return true;
  return moves(x, e->a) || moves(x, e->b) || moves(x, e->c);
}

/* The parameters of what sc extends, and the lets of both. */
static void move_names(Moved *x, const Schedule *sc) {
  const Arg *positional = sc->base_args;
  for (const Param *p = sc->base ? sc->base_def->params : NULL; p; p = p->next) {
    const Param *own;
    const Expr *e = base_value(sc, p, &positional, &own);
    x->slot[p->slot] = moves(x, e) || (own && x->slot[own->slot]);
  }
  if (sc->base)
    move_names(x, sc->base_def);
  for (const Clause *c = sc->clauses; c; c = c->next)
    if (c->kind == CL_LET)
      x->slot[c->slot] = moves(x, c->value);
}

static bool clause_moves(Moved *x, const Clause *c) {
  for (const Entry *e = c->entries; e; e = e->next)
    if (moves(x, e->value))
      return true;
  for (const WeightLine *l = c->lines; l; l = l->next)
    if (moves(x, l->value) || moves(x, l->formula) || moves(x, l->when) || moves(x, l->per))
      return true;
  return (c->kind == CL_RECOMPUTE || c->kind == CL_OFFLOAD || c->kind == CL_EXCLUSIVE ||
          c->kind == CL_LINK) &&
         (moves(x, c->when) || moves(x, c->place) || moves(x, c->lead) || moves(x, c->to));
}

static Moved moved_by(const Sched *s, const char *name) {
  Moved x = {.slot = NEW_ARRAY(s->arena, bool, s->nslot + (size_t)1), .nslot = s->nslot};
  for (const Param *p = s->def->params; p; p = p->next)
    x.slot[p->slot] = strcmp(p->name, name) == 0 || (!is_given(s->opt, p) && moves(&x, p->init));
  move_names(&x, s->def);
  return x;
}

bool expr_moves(const Sched *s, const char *name, const Expr *e) {
  Moved x = moved_by(s, name);
  return moves(&x, e);
}

bool rest_moves(const Sched *s, const char *name) {
  Moved x = moved_by(s, name);
  for (const Schedule *sc = s->def; sc; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c; c = c->next)
      if (clause_moves(&x, c))
        return true;
  return false;
}

bool costs_move(const Sched *s, const char *name) {
  Moved x = moved_by(s, name);
  for (const Schedule *sc = s->def; sc; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c; c = c->next)
      for (const Entry *e = c->entries; e; e = e->next)
        if (moves(&x, e->value))
          return true;
  return false;
}

/* ---- does it have values? ---- */

enum {
  MOST_FACTOR_BITS = 40
}; /* of a number that what moves is multiplied with: times any M that can be compiled */

/* One line of the text: what moves in it, M and its own microbatch. */
typedef struct Line {
  Moved moved;
  const Sched *s;
  uint32_t m; /* slot of M, at least 1 */
} Line;

static bool line_moves(Line *l, const Expr *e) {
  bool formula_name = e->kind == EX_NAME && e->builtin != FO_VALUE;
  return !formula_name && moves(&l->moved, e);
}

static bool is_m(const Line *l, const Expr *e) {
  return e->kind == EX_NAME && e->builtin == FO_VALUE && e->slot == l->m;
}

/* At least 1 for every M. */
static bool positive(Line *l, const Expr *e) {
  if (e->kind == EX_MUL || e->kind == EX_ADD)
    return positive(l, e->a) && positive(l, e->b);
  return e->kind == EX_INT ? e->value > 0 : is_m(l, e);
}

/* At least 0 for every M, if it has a value. */
static bool not_negative(Line *l, const Expr *e) {
  bool all = true;
  switch (e->kind) {
  case EX_INT: return e->value >= 0;
  case EX_NAME: return is_m(l, e) || (!line_moves(l, e) && l->s->env[e->slot] >= 0);
  case EX_ADD:
  case EX_MUL:
  case EX_DIV: return not_negative(l, e->a) && not_negative(l, e->b);
  case EX_MOD: return positive(l, e->b);
  case EX_COND: return not_negative(l, e->b) && not_negative(l, e->c);
  case EX_CALL:
    for (const Arg *a = e->args; a; a = a->next)
      all &= not_negative(l, a->value);
    return all && (e->builtin == BI_MIN || e->builtin == BI_MAX);
  case EX_NEG: return false;
  case EX_SUB: return false;
  default: return true; /* 0 or 1 */
  }
}

/* The first part of e that may have no value for some M; NULL. */
static const Expr *no_value(Line *l, const Expr *e) {
  const Expr *no = NULL;
  if (!e)
    return NULL;
  if ((e->kind == EX_DIV || e->kind == EX_MOD) && line_moves(l, e->b) && !positive(l, e->b))
    return e->b;
  if (e->kind == EX_MUL && line_moves(l, e->a) && line_moves(l, e->b))
    return e;
  if (e->kind == EX_INT && e->value >> MOST_FACTOR_BITS)
    return e;
  if (e->kind == EX_CALL && e->fn && no_value(l, e->fn->body))
    return e;
  for (const Arg *a = e->args; a && !no; a = a->next)
    no = no_value(l, a->value);
  no = no ? no : no_value(l, e->a);
  no = no ? no : no_value(l, e->b);
  return no ? no : no_value(l, e->c);
}

static bool refuse(Line *l, const Expr *e, Span *at) {
  const Expr *no = e && line_moves(l, e) ? no_value(l, e) : NULL;
  *at = no ? no->at : *at;
  return no != NULL;
}

/* What a clause says beside the orders. The text: why it may have no value, with its place. */
static const char *clause_lacks(Line *l, const Clause *c, Span *at) {
  bool lines = c->kind == CL_OFFLOAD || c->kind == CL_RECOMPUTE || c->kind == CL_EXCLUSIVE ||
               c->kind == CL_LINK;
  const Expr *const part[] = {c->when, c->place, c->lead, c->to};
  for (int i = 0; i < 4 && lines; i++)
    if (refuse(l, part[i], at))
      return "for some M it may have no value";
  for (const WeightLine *w = c->lines; w; w = w->next)
    if (refuse(l, w->when, at) || refuse(l, w->per, at) || refuse(l, w->formula, at))
      return "for some M it may have no value";
  for (const Entry *e = c->entries; e; e = e->next) {
    if (refuse(l, e->value, at))
      return "for some M it may have no value";
    if (line_moves(l, e->value) &&
        (strstr(e->key, "bandwidth") ? !positive(l, e->value) : !not_negative(l, e->value)))
      return *at = e->value->at, "for some M it may be too small";
  }
  return NULL;
}

const char *rest_lacks(const Sched *s, const Param *m, Span *at) {
  Line l = {moved_by(s, m->name), s, m->slot};
  const char *why = NULL;
  for (const Schedule *sc = s->def; sc && !why; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c && !why; c = c->next) {
      if (c->mb_var && c->kind != CL_LINK && c->kind != CL_TIME)
        l.moved.slot[c->mb_slot] = true;
      why = clause_lacks(&l, c, at);
    }
  return why;
}
