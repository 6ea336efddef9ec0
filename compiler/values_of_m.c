/* SPDX-License-Identifier: MIT
 * Has an expression a value for every M? What M or a microbatch moves divides by what is positive whatever they are, has at
 * most MOST_BITS with each part of it, and in a formula nothing is made of it that could be infinite. What does not
 * move has been computed at the M at hand, but for what stands behind a condition that moves: of that the same is asked.
 * A number that only the run knows is never a constant of a formula, and what is made of it cannot be refused when it is compiled.
 * Linear in the text, once for each call of a function, times its depth. */
#include <math.h>
#include <string.h>

#include "formula.h"
#include "rest_of_m.h"

enum {
  MOST_FACTOR_BITS =
      40,         /* of a number of the text, for formulas: some of them make nothing infinite */
  MOST_BITS = 62, /* of an integer: at most 2^62 */
  MOST_ARGS = 8,
  MOST_SUM = PIPE_FORMULA_TERMS,
  MOST_STEPS = 1 << 20
};

static bool moves(const Line *l, const Expr *e) { return expr_is_moved((Moved *)&l->moved, e); }
static bool is_value(const Expr *e) { return e->kind == EX_NAME && e->builtin == FO_VALUE; }
static bool is_m(const Line *l, const Expr *e) { return is_value(e) && e->slot == l->m; }
static bool is_known(const Line *l, const Expr *e) {
  return is_value(e) && l->known[e->slot] && !l->moved.slot[e->slot];
}

/* Which of its arguments count: of min and max. */
static int extreme(const Line *l, const Expr *e) {
  bool function = e->kind == EX_CALL && l->formula && e->slot != FORMULA_INTEGER;
  if (function)
    return e->slot == PIPE_TERM_MIN ? -1 : e->slot == PIPE_TERM_MAX;
  return e->builtin == BI_MIN ? -1 : e->builtin == BI_MAX;
}

/* Of min all, of max one is at least that. */
static bool extreme_is(const Line *l, const Expr *e, bool (*is)(const Line *, const Expr *)) {
  int which = extreme(l, e);
  bool all = true, any = false;
  for (const Arg *a = e->args; a && which; a = a->next) {
    bool yes = is(l, a->value);
    all &= yes, any |= yes;
  }
  return which < 0 ? all : which > 0 && any;
}

static bool all_known(const Line *l, const Expr *e) {
  bool all = !e || (e->kind != EX_NAME && !e->fn) || (e->kind == EX_NAME && is_known(l, e));
  for (const Arg *a = e ? e->args : NULL; a && all; a = a->next)
    all = all_known(l, a->value);
  return all && (!e || (all_known(l, e->a) && all_known(l, e->b) && all_known(l, e->c)));
}

bool known_value(const Line *l, const Expr *e, int64_t *v) {
  Diag none;
  Sched own = *l->s;
  if (l->formula || !all_known(l, e))
    return false;
  diag_init(&none, own.arena, NULL);
  none.source = own.diag->source, none.nsource = own.diag->nsource; /* to quote */
  own.diag = &none;
  return eval(&own, e, v);
}

bool always_positive(const Line *l, const Expr *e) {
  int64_t v;
  if (e->kind == EX_SUB && known_value(l, e, &v))
    return v > 0;
  switch (e->kind) {
  case EX_INT: return e->value > 0;
  case EX_REAL: return e->real > 0;
  case EX_NAME:
    return is_m(l, e) || (is_known(l, e) && l->s->env[e->slot] > 0) || e->builtin == FO_N;
  case EX_ADD:
    return (always_positive(l, e->a) && never_negative(l, e->b)) ||
           (never_negative(l, e->a) && always_positive(l, e->b));
  case EX_MUL: return always_positive(l, e->a) && always_positive(l, e->b);
  case EX_DIV: return l->formula && always_positive(l, e->a) && always_positive(l, e->b);
  case EX_COND: return always_positive(l, e->b) && always_positive(l, e->c);
  case EX_CALL: return extreme_is(l, e, always_positive);
  default: return false;
  }
}

bool never_negative(const Line *l, const Expr *e) {
  int64_t v;
  if (e->kind == EX_SUB && known_value(l, e, &v))
    return v >= 0;
  switch (e->kind) {
  case EX_INT: return e->value >= 0;
  case EX_REAL: return e->real >= 0;
  case EX_NAME:
    if (!is_value(e))
      return e->builtin == FO_N || e->builtin == FO_DELAY || e->builtin == FO_AHEAD;
    return is_m(l, e) || (is_known(l, e) && l->s->env[e->slot] >= 0) || l->natural[e->slot];
  case EX_ADD:
  case EX_MUL:
  case EX_DIV: return never_negative(l, e->a) && never_negative(l, e->b);
  case EX_MOD: return always_positive(l, e->b);
  case EX_COND: return never_negative(l, e->b) && never_negative(l, e->c);
  case EX_CALL: return extreme_is(l, e, never_negative);
  case EX_NEG:
  case EX_SUB: return false;
  default: return true; /* 0 or 1 */
  }
}

static uint8_t bits_kept(uint32_t n) { return n > MOST_BITS ? MOST_BITS + 1 : (uint8_t)n; }

/* Binds the parameters of a function of the schedule: they move as the arguments do, each of which is read before the first is
 * bound, since it may call the same function. */
static bool bind_params(Line *l, const Expr *call) {
  struct {
    bool moved, natural;
    uint32_t bits;
  } few[MOST_ARGS];
  uint32_t n = 0;
  for (const Arg *a = call->args; a; a = a->next, n++) {
    if (n == MOST_ARGS)
      return false;
    few[n].moved = moves(l, a->value), few[n].natural = never_negative(l, a->value);
    few[n].bits = bits_of(l, a->value);
  }
  n = 0;
  for (const Param *p = call->fn->params; p; p = p->next, n++) {
    l->moved.slot[p->slot] = few[n].moved, l->natural[p->slot] = few[n].natural;
    l->known[p->slot] = false;
    l->bits[p->slot] = bits_kept(few[n].bits);
  }
  return true;
}

uint32_t bits_of(Line *l, const Expr *e) {
  uint32_t a, b, n = 0;
  if (l->steps++ > MOST_STEPS)
    return MOST_BITS + 1;
  switch (e->kind) {
  case EX_INT:
    while (n < 63 && e->value >> n)
      n++;
    return n;
  case EX_NAME:
    if (!is_known(l, e))
      return l->bits[e->slot];
    while (n < 63 && (l->s->env[e->slot] < 0 ? ~l->s->env[e->slot] : l->s->env[e->slot]) >> n)
      n++;
    return n;
  case EX_CALL:
    if (e->fn)
      return bind_params(l, e) ? bits_of(l, e->fn->body) : MOST_BITS + 1;
    for (const Arg *x = e->args; x; x = x->next)
      n = (a = bits_of(l, x->value)) > n ? a : n;
    return n;
  case EX_NEG: return bits_of(l, e->a);
  case EX_COND: a = bits_of(l, e->b), b = bits_of(l, e->c); return a > b ? a : b;
  case EX_ADD:
  case EX_SUB: a = bits_of(l, e->a), b = bits_of(l, e->b); return (a > b ? a : b) + 1;
  case EX_MUL: return bits_of(l, e->a) + bits_of(l, e->b);
  case EX_DIV: return bits_of(l, e->a) + 1;
  case EX_MOD: return bits_of(l, e->b);
  default: return 1;
  }
}

/* Of a formula: is it certainly not a number that is known when it is compiled? (formula.c says what is folded) */
static bool of_the_run(const Line *l, const Expr *e) {
  bool any = false;
  switch (e->kind) {
  case EX_NAME: return e->builtin != FO_VALUE && e->builtin < FO_DELAY;
  case EX_NEG:
  case EX_NOT: return of_the_run(l, e->a);
  case EX_DIV: return of_the_run(l, e->a);
  case EX_MUL: return of_the_run(l, e->a) && of_the_run(l, e->b);
  case EX_COND: return of_the_run(l, e->b) && of_the_run(l, e->c);
  case EX_CALL:
    if (e->slot == FORMULA_SUM || e->slot == FORMULA_INTEGER)
      return false;
    for (const Arg *a = e->args; a; a = a->next)
      any |= of_the_run(l, a->value);
    return any && e->slot != PIPE_TERM_POW;
  case EX_ADD:
  case EX_SUB:
  case EX_LT:
  case EX_LE:
  case EX_GT:
  case EX_GE:
  case EX_EQ:
  case EX_NE: return of_the_run(l, e->a) || of_the_run(l, e->b);
  default: return false;
  }
}

/* The number of turns of a sum whose ends are numbers of the text; more than fit: they are not. */
static uint32_t turns_of(const Line *l, const Expr *sum) {
  const Expr *end[] = {sum->args->next->value, sum->args->next->next->value};
  int64_t v[2];
  for (int i = 0; i < 2; i++)
    if (end[i]->kind == EX_INT)
      v[i] = end[i]->value;
    else if (is_known(l, end[i]))
      v[i] = l->s->env[end[i]->slot];
    else
      return MOST_SUM;
  return v[1] <= v[0] ? 0 : v[1] - v[0] > MOST_SUM ? MOST_SUM : (uint32_t)(v[1] - v[0]);
}

/* Terms and values at once that a formula may need, whatever is folded in it. */
typedef struct Room {
  uint32_t terms, depth;
} Room;

static Room behind(Room a, Room b, uint32_t held) {
  uint32_t depth = b.depth + held;
  return (Room){a.terms + b.terms > MOST_SUM ? MOST_SUM + 1 : a.terms + b.terms,
                a.depth > depth ? a.depth : depth};
}

static Room room_of(const Line *l, const Expr *e) {
  const Room one = {1, 0};
  Room all = {0, 0};
  uint32_t held = 0;
  if (e->kind == EX_MOD || e->kind == EX_INT || e->kind == EX_REAL || e->kind == EX_NAME ||
      (e->kind == EX_CALL && e->slot == FORMULA_INTEGER))
    return (Room){1, 1};
  if (e->kind == EX_CALL && e->slot == FORMULA_SUM) {
    Room body = behind(behind((Room){1, 1}, room_of(l, e->args->next->next->next->value), 1), one,
                       0);
    uint32_t turns = turns_of(l, e);
    all = behind(room_of(l, e->args->next->value), room_of(l, e->args->next->next->value), 1);
    for (uint32_t i = 0; i < turns && all.terms <= MOST_SUM; i++)
      all = behind(all, body, 0);
    return all;
  }
  const Expr *const part[] = {e->a, e->b, e->c};
  for (int i = 0; i < 3; i++)
    if (part[i])
      all = behind(all, room_of(l, part[i]), held++);
  for (const Arg *a = e->kind == EX_CALL ? e->args : NULL; a; a = a->next)
    all = behind(behind(all, room_of(l, a->value), held), one, 0), held = 1;
  return behind(all, one, 0);
}

static const Expr *call_value(Line *l, const Expr *e, bool late);

static const Expr *part_value(Line *l, const Expr *e, bool late) {
  const Expr *no;
  if (!e)
    return NULL;
  if (l->steps++ > MOST_STEPS)
    return e;
  bool a_moves = e->a && moves(l, e->a), b_moves = e->b && moves(l, e->b);
  switch (e->kind) {
  case EX_INT: return e->value >> MOST_FACTOR_BITS ? e : NULL;
  case EX_REAL:
    return fabs(e->real) > 0x1p40 || (e->real != 0 && fabs(e->real) < 0x1p-40) ? e : NULL;
  case EX_NAME:
    return is_known(l, e) &&
                   (l->s->env[e->slot] >> MOST_FACTOR_BITS) + (l->s->env[e->slot] < 0) != 0
               ? e
               : NULL;
  case EX_CALL: return call_value(l, e, late);
  case EX_AND:
  case EX_OR: no = part_value(l, e->a, late); return no ? no : part_value(l, e->b, late || a_moves);
  case EX_COND:
    no = part_value(l, e->a, late);
    no = no ? no : part_value(l, e->b, late || a_moves);
    return no ? no : part_value(l, e->c, late || a_moves);
  case EX_DIV:
  case EX_MOD:
    if (e->kind == EX_MOD && l->formula) { /* of integers */
      l->formula = false;
      no = part_value(l, e, late);
      l->formula = true;
      return no;
    }
    if ((late || b_moves) && !always_positive(l, e->b) && !(l->formula && of_the_run(l, e->b)))
      return e->b;
    break;
  case EX_MUL:
    if (a_moves && b_moves)
      return e;
    break;
  default: break;
  }
  if ((late || a_moves || b_moves) && !l->formula &&
      (e->kind == EX_MUL || e->kind == EX_ADD || e->kind == EX_SUB) && bits_of(l, e) > MOST_BITS)
    return e;
  no = part_value(l, e->a, late);
  return no ? no : part_value(l, e->b, late);
}

static const Expr *call_value(Line *l, const Expr *e, bool late) {
  bool function = l->formula && e->slot != FORMULA_INTEGER, formula = l->formula, any = false;
  const Expr *no = NULL;
  const Arg *first = e->args;
  if (function && e->slot == FORMULA_SUM) {
    if (moves(l, first->next->value) || moves(l, first->next->next->value))
      return e;
    uint32_t from = bits_of(l, first->next->value), to = bits_of(l, first->next->next->value);
    l->known[first->value->slot] = false;
    l->bits[first->value->slot] = bits_kept(from > to ? from : to);
    first = first->next;
  }
  l->formula = function;
  for (const Arg *a = first; a && !no; a = a->next) {
    no = part_value(l, a->value, late);
    any |= moves(l, a->value);
  }
  if (!no && !function && e->fn)
    no = bind_params(l, e) && !part_value(l, e->fn->body, late) ? NULL : e;
  if (!no && function && (late || any)) {
    const Expr *x = first->value;
    bool run = of_the_run(l, x), fine = true;
    if (e->slot == PIPE_TERM_SQRT)
      fine = run || never_negative(l, x);
    else if (e->slot == PIPE_TERM_LOG)
      fine = run || always_positive(l, x);
    else if (e->slot == PIPE_TERM_EXP)
      fine = run;
    else if (e->slot == PIPE_TERM_POW)
      fine = run || of_the_run(l, first->next->value);
    no = fine ? NULL : e;
  }
  l->formula = formula;
  return no;
}

const Expr *no_value(Line *l, const Expr *e, bool late) {
  if (!e || (!late && !moves(l, e)))
    return NULL;
  l->steps = 0;
  const Expr *no = part_value(l, e, late);
  if (no || !l->formula)
    return no;
  Room r = room_of(l, e);
  return r.terms > PIPE_FORMULA_TERMS || r.depth > PIPE_FORMULA_DEPTH ? e : NULL;
}
