/* SPDX-License-Identifier: MIT
 * Evaluates expressions (lang/spec.md 3) in 64-bit integers. Overflow and division by zero are
 * errors; / and % are floor division and modulo. Variables live in Eval.env, at the slots that
 * resolve.c assigned. No function can be active twice, so a call needs no frame. The parser bounds
 * the depth of the tree, so plain recursion is safe. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "names.h"

static bool overflow(Sched *s, const Expr *e) {
  diag_error(s->diag, DIAG_OVERFLOW, e->at, "'%s' overflows a 64-bit integer", span_text(s, e->at));
  return false;
}

static bool floor_divmod(Sched *s, const Expr *e, int64_t a, int64_t b, int64_t *value) {
  if (b == 0) {
    diag_error(s->diag, DIAG_DIVISION, e->at, "division by zero: '%s' is 0",
               span_text(s, e->b->at));
    return false;
  }
  if (b == -1) {
    if (e->kind == EX_MOD)
      *value = 0;
    else if (__builtin_sub_overflow((int64_t)0, a, value))
      return overflow(s, e);
    return true;
  }
  int64_t q = a / b, r = a % b;
  if (r != 0 && (r < 0) != (b < 0))
    q--, r += b;
  *value = e->kind == EX_DIV ? q : r;
  return true;
}

bool too_many_steps(Sched *s, Span at) {
  if (s->diag->errors > 0)
    return false;
  if (at.file == NO_FILE && s->parsed->def)
    at = s->parsed->def->name_at;
  diag_error(s->diag, DIAG_LOOP, at, "compiling this text takes more than %" PRIu64 " steps",
             MAX_STEPS);
  diag_help(s->diag, "a step is an operator or name, or an op in a pass, a play or a try: shorten "
                     "ranges, or take fewer microbatches, checks or tries");
  return false;
}

/* Counts a call of a function. False: reported. */
static bool count_call(Sched *s, const Expr *e) {
  if (s->eval.depth == 0)
    s->eval.calls = 0;
  if (++s->eval.calls > MAX_CALLS) {
    diag_error(s->diag, DIAG_LOOP, e->at, "this value takes more than %d calls of functions",
               MAX_CALLS);
    return false;
  }
  if (s->eval.calls % 1024 == 0)
    guard_poll();
  return true;
}

static bool eval_call(Sched *s, const Expr *e, int64_t *value) {
  int64_t x;
  switch (e->builtin) {
  case BI_FN: {
    if (!count_call(s, e))
      return false;
    int64_t few[4], *args = few;
    uint32_t n = 0;
    for (const Param *p = e->fn->params; p; p = p->next)
      n++;
    if (n > 4)
      args = arena_alloc(s->arena, n * sizeof *args);
    uint32_t i = 0;
    for (const Arg *a = e->args; a; a = a->next)
      if (!eval(s, a->value, &args[i++]))
        return false;
    i = 0;
    for (const Param *p = e->fn->params; p; p = p->next)
      s->eval.env[p->slot] = args[i++];
    s->eval.depth++;
    bool ok = eval(s, e->fn->body, value);
    s->eval.depth--;
    return ok;
  }
  case BI_MIN:
  case BI_MAX:
    if (!eval(s, e->args->value, value))
      return false;
    for (const Arg *a = e->args->next; a; a = a->next) {
      if (!eval(s, a->value, &x))
        return false;
      if (e->builtin == BI_MIN ? x < *value : x > *value)
        *value = x;
    }
    return true;
  default: BUG_IF(!s->eval.quantity); return s->eval.quantity(s, e, value);
  }
}

/* As eval: most operands are numbers and names, which need no call. */
static inline bool eval_operand(Sched *s, const Expr *e, int64_t *value) {
  if (e->kind != EX_INT && e->kind != EX_NAME)
    return eval(s, e, value);
  *value = e->kind == EX_INT ? e->value : s->eval.env[e->slot];
  return take_steps(s, 1, e->at);
}

bool eval(Sched *s, const Expr *e, int64_t *value) {
  int64_t a, b;
  if (!take_steps(s, 1, e->at))
    return false;
  switch (e->kind) {
  case EX_INT: *value = e->value; return true;
  case EX_NAME: *value = s->eval.env[e->slot]; return true;
  case EX_NOT:
    if (!eval(s, e->a, &a))
      return false;
    *value = !a;
    return true;
  case EX_NEG:
    if (!eval(s, e->a, &a))
      return false;
    return __builtin_sub_overflow((int64_t)0, a, value) ? overflow(s, e) : true;
  case EX_AND:
  case EX_OR:
    if (!eval(s, e->a, &a))
      return false;
    if ((e->kind == EX_AND) == !a) { /* the left side decides */
      *value = e->kind == EX_OR;
      return true;
    }
    if (!eval(s, e->b, &b))
      return false;
    *value = b != 0;
    return true;
  case EX_COND:
    if (!eval(s, e->a, &a))
      return false;
    return eval(s, a ? e->b : e->c, value);
  case EX_CALL: return eval_call(s, e, value);
  default: break;
  }
  if (!eval_operand(s, e->a, &a) || !eval_operand(s, e->b, &b))
    return false;
  switch (e->kind) {
  case EX_ADD: return __builtin_add_overflow(a, b, value) ? overflow(s, e) : true;
  case EX_SUB: return __builtin_sub_overflow(a, b, value) ? overflow(s, e) : true;
  case EX_MUL: return __builtin_mul_overflow(a, b, value) ? overflow(s, e) : true;
  case EX_DIV:
  case EX_MOD: return floor_divmod(s, e, a, b, value);
  case EX_LT: *value = a < b; return true;
  case EX_LE: *value = a <= b; return true;
  case EX_GT: *value = a > b; return true;
  case EX_GE: *value = a >= b; return true;
  case EX_EQ: *value = a == b; return true;
  case EX_NE: *value = a != b; return true;
  default: BUG_IF(true); return false;
  }
}

bool eval_range(Sched *s, const Range *r, int64_t *lo, int64_t *hi, int64_t *step) {
  *step = 1;
  if (!eval(s, r->lo, lo) || !eval(s, r->hi, hi) || (r->step && !eval(s, r->step, step)))
    return false;
  if (*step == 0) {
    diag_error(s->diag, DIAG_RANGE, r->step->at, "the step of a range is 0");
    return false;
  }
  return true;
}

bool eval_lets(Sched *s, Ast *ast) {
  for (Item *it = ast->items; it; it = it->next) {
    if (it->kind == IT_IMPORT && it->imported && !eval_lets(s, it->imported))
      return false;
    if (it->kind == IT_LET && !eval(s, it->value, &s->eval.env[it->slot]))
      return false;
    if (it->kind == IT_IMPORT)
      it->imported = NULL;
  }
  return true;
}

/* ---- text for messages ---- */

const char *params_text(Sched *s, const Schedule *sc) {
  const char *list = "";
  uint32_t n = 0;
  for (const Param *p = sc->params; p && n < 16; p = p->next, n++)
    list = arena_printf(s->arena, "%s%s%s", list, n ? ", " : "", p->name);
  return n == 16 ? arena_printf(s->arena, "%s, ...", list) : list;
}

void help_params(Sched *s, const Schedule *sc) {
  diag_help(s->diag, sc->params ? "the parameters are %s" : "the schedule has no parameters%s",
            params_text(s, sc));
}

const char *span_text(Sched *s, Span at) {
  if (at.file == NO_FILE)
    return "";
  enum { MAX = 80 };
  const char *p = s->diag->source[at.file].text + at.beg,
             *end = s->diag->source[at.file].text + at.end;
  char buf[MAX + 4];
  size_t n = 0;
  for (; p < end && n < MAX; p++) {
    char c = *p == '\n' || *p == '\t' || *p == '\r' ? ' ' : *p;
    if (c == ' ' && n > 0 && buf[n - 1] == ' ')
      continue;
    buf[n++] = c;
  }
  if (p < end)
    memcpy(buf + n, "...", 3), n += 3;
  return arena_strndup(s->arena, buf, n);
}

typedef struct Explain {
  const Expr *seen[16];
  uint32_t n;
  char text[256];
  size_t len;
} Explain;

static void explain(Sched *s, const Expr *e, Explain *x) {
  if (!e)
    return;
  bool show = e->kind == EX_NAME || (e->kind == EX_CALL && e->builtin >= BI_INFLIGHT);
  if (show) {
    const char *text = span_text(s, e->at);
    for (uint32_t i = 0; i < x->n; i++)
      if (strcmp(span_text(s, x->seen[i]->at), text) == 0)
        return;
    int64_t v;
    if (x->n == 16 || !eval(s, e, &v))
      return;
    x->seen[x->n++] = e;
    char item[128];
    int k = snprintf(item, sizeof item, "%s%s = %lld", x->len ? ", " : "", text, (long long)v);
    if (k > 0 && (size_t)k < sizeof item && x->len + (size_t)k < 200)
      memcpy(x->text + x->len, item, (size_t)k + 1), x->len += (size_t)k;
  }
  if (e->kind == EX_CALL)
    for (const Arg *a = e->args; a; a = a->next)
      explain(s, a->value, x);
  explain(s, e->a, x);
  int64_t a = 0;
  bool picks = e->kind == EX_AND || e->kind == EX_OR || e->kind == EX_COND;
  if (picks && !eval(s, e->a, &a))
    return;
  /* Only the parts that the value depends on: the others may have no value. */
  if (!picks || (a != 0) == (e->kind != EX_OR))
    explain(s, e->b, x);
  if (!picks || (!a && e->kind == EX_COND))
    explain(s, e->c, x);
}

const char *eval_explain(Sched *s, const Expr *e) {
  Explain x = {.n = 0};
  explain(s, e, &x);
  return arena_strndup(s->arena, x.text, x.len);
}

bool is_given(const Options *o, const Param *p) {
  for (uint32_t i = 0; i < o->ndefine; i++)
    if (strcmp(o->define[i].name, p->name) == 0)
      return true;
  return false;
}

bool rank_argument(Sched *s, const Expr *call, int64_t *r) {
  if (!eval(s, call->args->value, r))
    return false;
  if (*r < 0 || *r >= s->model->nrank) {
    diag_error(s->diag, DIAG_RANGE, call->args->value->at,
               "'%s' of rank %lld; the ranks are 0 to %u", call->name, (long long)*r,
               s->model->nrank - 1);
    return false;
  }
  return true;
}

Sched quiet(const Sched *s, Diag *none) {
  Sched own = *s;
  diag_init(none, s->arena, NULL);
  none->source = s->diag->source, none->nsource = s->diag->nsource; /* messages quote them */
  own.diag = none;
  return own;
}

bool quiet_value(const Sched *s, const Expr *e, int64_t *v) {
  Diag none;
  Sched own = quiet(s, &none);
  return eval(&own, e, v);
}
