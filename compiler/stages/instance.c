/* SPDX-License-Identifier: MIT
 * Makes an instance of a schedule: binds its parameters, checks what it requires of them, collects
 * its clauses and those of its bases, and finds the order that each rank follows. Part of expand.
 * Cost: linear in the text, and in ranks for each order. */
#include <string.h>

#include "instance.h"
#include "hints.h"
#include "stages.h"

static void append_param(Sched *s, Model *model, const char *name, int64_t value, bool first) {
  model->params = arena_printf(s->arena, "%s%s%s=%lld", first ? "" : s->model->params,
                               first ? "" : " ", name, (long long)value);
}

/* Notes where the schedule that contains `at` is extended. False: nowhere. */
static bool note_extends(Sched *s, Span at) {
  const Schedule *sc = s->parsed->def;
  bool inherited = sc->base &&
                   (at.file != sc->at.file || at.beg < sc->at.beg || at.end > sc->at.end);
  if (inherited)
    diag_note(s->diag, sc->base_at,
              "'%s' extends this schedule and takes over its requires, checks and limits",
              sc->name);
  return inherited;
}

bool help_unchecked(Sched *s, Span at) {
  if (!note_extends(s, at))
    return false;
  diag_help(s->diag, "'extends %s(...) without checks' leaves out its checks and limits",
            s->parsed->def->base);
  return true;
}

static bool check_requires(Sched *s, const Schedule *sc) {
  bool ok = true;
  for (const Require *q = sc->requires; q; q = q->next) {
    int64_t v;
    if (!eval(s, q->cond, &v))
      return false;
    if (v)
      continue;
    const char *values = eval_explain(s, q->cond);
    diag_error(s->diag, DIAG_REQUIRES, q->cond->at, "schedule '%s' requires %s%s%s%s%s", sc->name,
               span_text(s, q->cond->at), *values ? ", but " : "", values, q->text ? ": " : "",
               q->text ? q->text : "");
    ok = false;
    note_extends(s, q->cond->at);
  }
  return ok;
}

/* Binds each parameter of the schedule that `within` extends: to its value in the arguments, else
 * to the parameter of `within` with the same name, else to its default. */
static bool bind_base(Sched *s, const Schedule *within) {
  const Schedule *sc = within->base_def;
  const Arg *args = within->base_args, *positional = args;
  /* arguments are values of the outer schedule: evaluate all before binding any */
  uint32_t n = 0;
  for (const Param *p = sc->params; p; p = p->next)
    n++;
  int64_t *value = arena_alloc(s->arena, (n + 1) * sizeof *value);
  bool *given = arena_zalloc(s->arena, n + 1, sizeof *given);
  uint32_t i = 0;
  for (const Param *p = sc->params; p; p = p->next, i++) {
    const Arg *named = args;
    while (named && named->key != p->name)
      named = named->next;
    const Arg *a = positional && !positional->key ? positional : named;
    if (positional && !positional->key)
      positional = positional->next;
    if (a && a != named && named) {
      diag_error(s->diag, DIAG_REDEFINED, named->key_at, "'%s' is given twice", p->name);
      return false;
    }
    if (a) {
      if (!eval(s, a->value, &value[i]))
        return false;
      given[i] = true;
      continue;
    }
    for (const Param *own = within->params; own; own = own->next)
      if (own->name == p->name)
        value[i] = s->eval.env[own->slot], given[i] = true;
  }
  i = 0;
  for (const Param *p = sc->params; p; p = p->next, i++) {
    if (given[i]) {
      s->eval.env[p->slot] = value[i];
    } else if (!p->init) {
      diag_error(s->diag, DIAG_PARAM, within->base_at, "schedule '%s' needs a value for '%s'",
                 sc->name, p->name);
      diag_note(s->diag, p->at, "the parameter has no default");
      return false;
    } else if (!eval(s, p->init, &s->eval.env[p->slot])) {
      return false;
    }
  }
  return true;
}

bool instantiate(Instance *x, const Schedule *sc, uint32_t depth) {
  Sched *s = x->s;
  Clauses *to = &x->clauses;
  if (!check_requires(s, sc))
    return false;
  uint32_t first = to->n;
  if (sc->base && (!bind_base(s, sc) || !instantiate(x, sc->base_def, depth + 1)))
    return false;
  if (sc->unchecked) {
    uint32_t n = first;
    for (uint32_t i = first; i < to->n; i++)
      if (to->at[i].clause->kind != CL_CHECK && to->at[i].clause->kind != CL_LIMIT)
        to->at[n++] = to->at[i];
    to->n = n;
  }
  for (Clause *c = sc->clauses; c; c = c->next)
    *vec_push(s->arena, to) = (Bound){c, depth};
  return true;
}

/* Finds a -D that no parameter has, and that may mean p. NULL: none. */
static Define *misspelt(Sched *s, const Param *p) {
  for (uint32_t i = 0; i < s->opt->ndefine; i++) {
    Define *d = &s->opt->define[i];
    const Param *own = s->parsed->def->params;
    while (own && strcmp(own->name, d->name) != 0)
      own = own->next;
    if (!own && hint_near(d->name, p->name))
      return d;
  }
  return NULL;
}

static void no_parameter(Sched *s, const Define *d, const Param *meant) {
  diag_error(s->diag, DIAG_PARAM, s->parsed->def->name_at,
             "schedule '%s' has no parameter '%s' (-D)", s->parsed->def->name, d->name);
  if (meant)
    diag_help(s->diag, "did you mean '%s'", meant->name);
  else
    help_params(s, s->parsed->def);
}

bool bind_top(Instance *x) {
  Sched *s = x->s;
  Options *o = s->opt;
  Schedule *sc = s->parsed->def;
  bool ok = true, first = true;
  x->model->params = "";
  for (uint32_t i = 0; i < o->ndefine && o->ncompare == 0; i++)
    o->define[i].used = false;
  for (Param *p = sc->params; p; p = p->next) {
    Define *d = NULL;
    for (uint32_t i = 0; i < o->ndefine; i++)
      if (strcmp(o->define[i].name, p->name) == 0)
        d = &o->define[i], d->used = true; /* the last -D wins */
    if (d) {
      s->eval.env[p->slot] = d->value;
    } else if (!p->init && o->ncompare == 0 && (d = misspelt(s, p))) {
      no_parameter(s, d, p);
      d->used = true;
      ok = false;
    } else if (!p->init) {
      diag_error(s->diag, DIAG_PARAM, p->at, "parameter '%s' of schedule '%s' has no value",
                 p->name, sc->name);
      diag_help(s->diag, "give it with -D %s=..., or a default: %s = ...", p->name, p->name);
      ok = false;
    } else if (ok && !eval(s, p->init, &s->eval.env[p->slot])) {
      return false;
    }
    if (ok)
      append_param(s, x->model, p->name, s->eval.env[p->slot], first), first = false;
  }
  for (uint32_t i = 0; i < o->ndefine && o->ncompare == 0; i++)
    if (!o->define[i].used) {
      const Param *meant = sc->params;
      while (meant && !hint_near(o->define[i].name, meant->name))
        meant = meant->next;
      no_parameter(s, &o->define[i], meant);
      ok = false;
    }
  return ok;
}

/* Which parameter without -D a value depends on first; NULL: on none. */
typedef struct Opens {
  const Sched *s;
  const Param **of;        /* of each slot that has a value so far */
  VEC(const Fn *) without; /* functions that depend on none */
} Opens;

static const Param *open_in(Opens *x, const Expr *expr);

static const Param *open_in_fn(Opens *x, const Fn *fn) {
  for (uint32_t i = 0; i < x->without.n; i++)
    if (x->without.at[i] == fn)
      return NULL;
  const Param *found = open_in(x, fn->body);
  if (!found)
    *vec_push(x->s->arena, &x->without) = fn;
  return found;
}

static const Param *open_in(Opens *x, const Expr *expr) {
  if (!expr)
    return NULL;
  if (expr->kind == EX_NAME)
    return x->of[expr->slot];
  const bool divides = expr->kind == EX_DIV ||
                       expr->kind == EX_MOD; /* f in M/(2*f) counts nothing */
  const Expr *const part[] = {expr->a, divides ? NULL : expr->b, expr->c};
  const Param *found = NULL;
  for (const Arg *arg = expr->args; arg && !found; arg = arg->next)
    found = open_in(x, arg->value);
  for (int i = 0; i < 3 && !found; i++)
    found = open_in(x, part[i]);
  return !found && expr->fn ? open_in_fn(x, expr->fn) : found;
}

/* Goes through the parameters of the schedule that `within` extends, as bind_base does. */
static void open_base(Opens *x, const Schedule *within) {
  const Arg *positional = within->base_args;
  for (const Param *p = within->base_def->params; p; p = p->next) {
    const Arg *arg = within->base_args;
    const Param *own = within->params;
    while (arg && arg->key != p->name)
      arg = arg->next;
    while (own && own->name != p->name)
      own = own->next;
    if (positional && !positional->key)
      arg = positional, positional = positional->next;
    const Expr *value = arg ? arg->value : p->init;
    x->of[p->slot] = own && !arg ? x->of[own->slot] : open_in(x, value);
  }
}

const char *open_parameter(const Sched *s) {
  Opens x = {.s = s, .of = arena_zalloc(s->arena, s->parsed->nslot + 1, sizeof *x.of)};
  const Schedule *schedule = s->parsed->def;
  const Param *found = NULL;
  for (const Param *p = schedule ? schedule->params : NULL; p; p = p->next)
    x.of[p->slot] = is_given(s->opt, p) ? NULL : p;
  while (schedule && !found) {
    for (const Clause *clause = schedule->clauses; clause && !found; clause = clause->next) {
      if (clause->kind == CL_LET)
        x.of[clause->slot] = open_in(&x, clause->value);
      if (clause->kind == CL_PIPE)
        found = open_in(&x, clause->mbs);
    }
    if (schedule->base_def)
      open_base(&x, schedule);
    schedule = schedule->base_def;
  }
  return found ? found->name : NULL;
}

/* ---- clauses that may occur once ---- */

bool find_only(Instance *x, ClauseKind kind, const char *word, const Clause **found) {
  uint32_t depth = 0;
  *found = NULL;
  for (uint32_t i = 0; i < x->clauses.n; i++) {
    const Clause *c = x->clauses.at[i].clause;
    if (c->kind != kind)
      continue;
    if (*found && depth == x->clauses.at[i].depth) {
      diag_error(x->s->diag, DIAG_CLAUSE, c->at, "'%s' is given twice", word);
      diag_note(x->s->diag, (*found)->at, "given first here");
      return false;
    }
    *found = c, depth = x->clauses.at[i].depth;
  }
  return true;
}

const Clause **find_clauses(Instance *x, ClauseKind kind, bool own, uint32_t *n) {
  VEC(const Clause *) found = {0};
  uint32_t depth = NONE;
  for (uint32_t i = 0; i < x->clauses.n && own; i++)
    if (x->clauses.at[i].clause->kind == kind && x->clauses.at[i].depth < depth)
      depth = x->clauses.at[i].depth;
  for (uint32_t i = 0; i < x->clauses.n; i++)
    if (x->clauses.at[i].clause->kind == kind && (!own || x->clauses.at[i].depth == depth))
      *vec_push(x->s->arena, &found) = x->clauses.at[i].clause;
  *n = found.n;
  return found.at;
}

/* ---- orders ---- */

bool find_orders(Instance *x, const Clause **order) {
  Sched *s = x->s;
  uint32_t *depth = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  for (uint32_t i = 0; i < x->clauses.n; i++) {
    Clause *c = x->clauses.at[i].clause;
    if (c->kind != CL_ORDER)
      continue;
    int64_t lo = 0, hi = s->model->nrank, step = 1;
    if (c->range.lo && !eval_range(s, &c->range, &lo, &hi, &step))
      return false;
    for (int64_t r = lo; step > 0 ? r < hi : r > hi;) {
      if (r < 0 || r >= s->model->nrank) {
        Span at = {c->range.lo->at.file, c->range.lo->at.beg, c->range.hi->at.end};
        diag_error(s->diag, DIAG_RANGE, at, "an order for rank %lld; the ranks are 0 to %u",
                   (long long)r, s->model->nrank - 1);
        return false;
      }
      if (order[r] && depth[r] == x->clauses.at[i].depth) {
        diag_error(s->diag, DIAG_NO_ORDER, c->at, "rank %lld has two orders", (long long)r);
        diag_note(s->diag, order[r]->at, "the other order");
        return false;
      }
      order[r] = c;
      depth[r] = x->clauses.at[i].depth;
      if (__builtin_add_overflow(r, step, &r))
        break;
    }
  }
  for (uint32_t r = 0; r < s->model->nrank; r++)
    if (!order[r]) {
      diag_error(s->diag, DIAG_NO_ORDER, s->parsed->def->name_at,
                 "schedule '%s' gives no order for rank %u", s->model->name, r);
      bool ranges = false;
      for (uint32_t i = 0; i < x->clauses.n; i++)
        ranges |= x->clauses.at[i].clause->kind == CL_ORDER && x->clauses.at[i].clause->range.lo;
      diag_help(s->diag, "%s'order r { ... }' is the order of every rank",
                ranges ? "a range ends before its second value; " : "");
      return false;
    }
  return true;
}
