/* SPDX-License-Identifier: MIT
 * Translates what a schedule requires, and its parameters that follow from M, into formulas of a
 * program for every M (runtime/include/pipe_loop.h). The program evaluates them for its M, as
 * instance.c does for each compile. A formula first pushes the parameters in the order in which
 * pipec evaluates them, then those of the schedules that it extends. Cost: linear in the result,
 * which has at most MOST_TERMS. */
#include <string.h>

#include "for_all.h"
#include "names.h"

enum { MOST_TERMS = 1 << 12 };
#define OPEN (NONE - 1)

typedef struct Build {
  const Sched *s;
  const char *name;
  uint32_t *place; /* [nslot] place on the stack; OPEN: M itself; NONE: the number in Eval.env */
  VEC(PipeLoopTerm) term;
  uint32_t held; /* values on the stack */
  bool ok;       /* it fits so far */
} Build;

/* Appends a term. by: the change of the number of values on the stack. Returns its index. */
static uint32_t term(Build *b, PipeLoopOp op, int64_t value, int by) {
  b->held += (uint32_t)by;
  b->ok &= b->term.n < MOST_TERMS && b->held <= PIPE_LOOP_DEPTH;
  if (b->ok)
    *vec_push(b->s->arena, &b->term) = (PipeLoopTerm){.value = value, .op = op};
  return b->term.n - 1;
}

static void jump_here(Build *b, uint32_t from) {
  if (b->ok)
    b->term.at[from].value = b->term.n;
}

static void push(Build *b, const Expr *e);

static void push_call(Build *b, const Expr *e) {
  uint32_t first = b->held;
  if (e->builtin == BI_FN) { /* evaluates all arguments before it binds any */
    for (const Arg *a = e->args; a; a = a->next)
      push(b, a->value);
    for (const Param *p = e->fn->params; p; p = p->next)
      b->place[p->slot] = first++;
    uint32_t n = b->held;
    push(b, e->fn->body);
    for (const Param *p = e->fn->params; p; p = p->next)
      first--;
    if (first < n)
      term(b, PIPE_LOOP_KEEP, first, (int)first - (int)n);
    return;
  }
  b->ok &= e->builtin == BI_MIN || e->builtin == BI_MAX;
  for (const Arg *a = e->args; a && b->ok; a = a->next) {
    push(b, a->value);
    if (a != e->args)
      term(b, e->builtin == BI_MIN ? PIPE_LOOP_MIN : PIPE_LOOP_MAX, 0, -1);
  }
}

/* Pushes c ? then : other. NULL: 1 for then, 0 for other. */
static void push_choice(Build *b, const Expr *c, const Expr *then, const Expr *other) {
  push(b, c);
  uint32_t no = term(b, PIPE_LOOP_UNLESS, 0, -1);
  const Expr *const side[] = {then, other};
  for (int i = 0; i < 2; i++) {
    if (side[i])
      push(b, side[i]);
    else
      term(b, PIPE_LOOP_CONST, i == 0, 1);
    if (i == 0) {
      uint32_t end = term(b, PIPE_LOOP_JUMP, 0, -1);
      jump_here(b, no);
      no = end;
    }
  }
  jump_here(b, no);
}

static void push(Build *b, const Expr *e) {
  static const uint8_t binary[] = {
      [EX_ADD] = PIPE_LOOP_ADD, [EX_SUB] = PIPE_LOOP_SUB, [EX_MUL] = PIPE_LOOP_MUL,
      [EX_DIV] = PIPE_LOOP_DIV, [EX_MOD] = PIPE_LOOP_MOD, [EX_LT] = PIPE_LOOP_LT,
      [EX_LE] = PIPE_LOOP_LE,   [EX_GT] = PIPE_LOOP_GT,   [EX_GE] = PIPE_LOOP_GE,
      [EX_EQ] = PIPE_LOOP_EQ,   [EX_NE] = PIPE_LOOP_NE};
  if (!b->ok)
    return;
  switch (e->kind) {
  case EX_INT: term(b, PIPE_LOOP_CONST, e->value, 1); return;
  case EX_NAME: {
    uint32_t at = b->place[e->slot];
    term(b,
         at == OPEN   ? PIPE_LOOP_OPEN
         : at == NONE ? PIPE_LOOP_CONST
                      : PIPE_LOOP_PICK,
         at == NONE   ? b->s->eval.env[e->slot]
         : at == OPEN ? 0
                      : at,
         1);
    return;
  }
  case EX_NEG:
  case EX_NOT:
    push(b, e->a);
    term(b, e->kind == EX_NEG ? PIPE_LOOP_NEG : PIPE_LOOP_NOT, 0, 0);
    return;
  case EX_AND:
  case EX_OR:
    push_choice(b, e->a, e->kind == EX_AND ? e->b : NULL, e->kind == EX_AND ? NULL : e->b);
    term(b, PIPE_LOOP_NOT, 0, 0);
    term(b, PIPE_LOOP_NOT, 0, 0);
    return;
  case EX_COND: push_choice(b, e->a, e->b, e->c); return;
  case EX_CALL: push_call(b, e); return;
  case EX_REAL: b->ok = false; return;
  default:
    push(b, e->a);
    push(b, e->b);
    term(b, (PipeLoopOp)binary[e->kind], 0, -1);
  }
}

/* The value of parameter p of the base of sc: an expression, or the value of parameter *own of sc
 * (then NULL). *positional: sc->base_args at first. */
static const Expr *base_value(const Schedule *sc, const Param *p, const Arg **positional,
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

/* Pushes the parameters of the schedule before `end`, which has its own formula; NULL: all. */
static void push_params(Build *b, const Param *end) {
  const Options *o = b->s->opt;
  for (const Param *p = b->s->parsed->def->params; p != end; p = p->next) {
    const Define *d = NULL;
    for (uint32_t i = 0; i < o->ndefine; i++)
      d = strcmp(o->define[i].name, p->name) == 0 ? &o->define[i] : d;
    if (strcmp(p->name, b->name) == 0) {
      b->place[p->slot] = OPEN;
      continue;
    }
    if (d)
      term(b, PIPE_LOOP_CONST, d->value, 1);
    else
      push(b, p->init);
    b->place[p->slot] = b->held - 1;
  }
}

/* Pushes the parameters of the schedule that sc extends. */
static void push_base(Build *b, const Schedule *sc) {
  const Arg *positional = sc->base_args;
  for (const Param *p = sc->base_def->params; p; p = p->next) {
    const Param *own;
    const Expr *e = base_value(sc, p, &positional, &own);
    if (own) {
      b->place[p->slot] = b->place[own->slot];
      continue;
    }
    push(b, e);
    b->place[p->slot] = b->held - 1;
  }
}

static Build build(const Sched *s, const char *name) {
  Build b = {.s = s,
             .name = name,
             .place = NEW_ARRAY(s->arena, uint32_t, s->parsed->nslot + (size_t)1),
             .ok = true};
  for (uint32_t i = 0; i < s->parsed->nslot; i++)
    b.place[i] = NONE;
  return b;
}

static PipeLoopFormula built(const Build *b, Span at) {
  return (PipeLoopFormula){b->term.at, b->term.n, 0, span_text((Sched *)b->s, at)};
}

/* Does the formula depend on M? If not, it is not needed. */
static bool is_open(const Build *b) {
  bool open = !b->ok;
  for (uint32_t i = 0; i < b->term.n; i++)
    open |= b->term.at[i].op == PIPE_LOOP_OPEN;
  return open;
}

bool formulas_of_m(const Sched *s, const char *name, PipeLooped *l) {
  VEC(PipeLoopFormula) admit = {0}, value = {0};
  bool ok = true;
  for (const Param *p = s->parsed->def->params; p && ok; p = p->next) {
    Build b = build(s, name);
    if (strcmp(p->name, name) != 0 && !is_given(s->opt, p)) {
      push_params(&b, p);
      push(&b, p->init);
    }
    if (!is_open(&b))
      b.term.n = 0;
    *vec_push(s->arena, &value) = built(&b, p->at);
    ok = b.ok;
  }
  for (const Schedule *sc = s->parsed->def; sc && ok; sc = sc->base_def)
    for (int soft = 0; soft < 2; soft++)
      for (const Require *r = soft ? sc->expects : sc->requires; r && ok; r = r->next) {
        Build b = build(s, name);
        push_params(&b, NULL);
        for (const Schedule *of = s->parsed->def; of != sc; of = of->base_def)
          push_base(&b, of);
        push(&b, r->cond);
        if (soft) { /* `expects` only warns; but its condition must have a value */
          term(&b, PIPE_LOOP_NOT, 0, 0);
          term(&b, PIPE_LOOP_CONST, 2, 1);
          term(&b, PIPE_LOOP_LT, 0, -1);
        }
        if (is_open(&b))
          *vec_push(s->arena, &admit) = built(&b, r->cond->at);
        ok = b.ok;
      }
  l->value = value.at, l->admit = admit.at, l->nadmit = admit.n;
  return ok;
}
