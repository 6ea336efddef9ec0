/* SPDX-License-Identifier: MIT
 * Resolves the names in expressions, ops and statements (resolve.h). Checks their shape: how many
 * indices an op has, and which statement may stand in which. */
#include <string.h>

#include "hints.h"
#include "resolve.h"

/* ---- expressions; the result tells whether the value depends on the kernel's index ---- */

bool resolve_args(Resolver *r, Arg *a) {
  bool depends = false;
  for (; a; a = a->next)
    depends |= resolve_expr(r, a->value);
  return depends;
}

static bool is_cost(Name key) {
  for (int k = 0; k < NPLAYKEYS; k++)
    if (strcmp(key, cost_key[k]) == 0)
      return true;
  return false;
}

static bool resolve_call(Resolver *r, Expr *e) {
  Diag *d = r->s->diag;
  Sym *y = sym_find(r, e->name);
  uint32_t before = r->nquantity;
  bool depends = resolve_args(r, e->args);
  uint32_t given = 0, want = 0;
  for (Arg *a = e->args; a; a = a->next)
    given++;
  e->builtin = BI_MIN;
  if (!y || (y->kind != SY_FN && y->kind != SY_BUILTIN)) {
    sym_wrong_kind(r, y, e->name, e->name_at, "a function");
    return depends;
  }
  bool costs = false;
  if (y->kind == SY_FN) {
    e->builtin = BI_FN;
    e->fn = y->fn;
    depends |= y->fn->body && y->fn->body->depends; /* its body may read the index */
    r->units |= y->fn->units;
    if (r->in_when && r->nquantity > before)
      diag_error(d, DIAG_CLAUSE, e->at,
                 "a function cannot take a count of the moment: write '%s' out", e->name);
    for (Param *p = y->fn->params; p; p = p->next)
      want++;
  } else {
    e->builtin = (uint8_t)y->builtin;
    const bool limit = r->clause && r->clause->kind == CL_LIMIT,
               now = r->in_when && (is_now(y->builtin) || (limit && y->builtin == BI_MEMORY));
    r->nquantity += now;
    if (y->builtin >= BI_INFLIGHT && limit && !now) {
      diag_error(d, DIAG_CLAUSE, e->at,
                 "'%s' has no value at each moment, so a limit cannot use it", e->name);
      diag_help(
          d, "a limit can use memory(r) inflight(r) held(r) kept(r) host(r); a check can use '%s'",
          e->name);
    } else if (y->builtin >= BI_INFLIGHT && !r->in_check && !now)
      diag_error(d, DIAG_CLAUSE, e->at,
                 "'%s' has no value before the order is complete: only a check can use it",
                 e->name);
    if (y->builtin == BI_MIN || y->builtin == BI_MAX)
      want = given ? given : 1;
    else
      costs = y->builtin >= BI_MAKESPAN, want = costs                                     ? given
                                                : is_now(y->builtin) && now && given == 2 ? 2
                                                                                          : 1;
    if ((y->builtin == BI_VOLUME || y->builtin == BI_MESSAGES || y->builtin == BI_VERSIONS ||
         y->builtin == BI_STASHED) &&
        given == 0)
      want = 0; /* without a rank: of all ranks */
  }
  for (Arg *a = e->args; a; a = a->next) {
    if (costs)
      warn_rounded(r, a->value, true);
    if (costs && (!a->key || !is_cost(a->key))) {
      diag_error(d, DIAG_ARITY, a->key ? a->key_at : a->value->at,
                 "'%s' takes costs by name: F B I W R U FB send reduce, such as %s(F = 1, B = 2)",
                 e->name, e->name);
      break;
    }
    if (!costs && a->key)
      diag_error(d, DIAG_ARITY, a->key_at, "'%s' takes no named arguments", e->name);
    for (Arg *b = e->args; costs && a->key && b != a; b = b->next)
      if (b->key == a->key)
        diag_error(d, DIAG_ARITY, a->key_at, "'%s' is given twice", a->key);
  }
  if (given != want) {
    diag_error(d, DIAG_ARITY, e->at, "'%s' takes %u argument%s%s, got %u", e->name, want,
               want == 1 ? "" : "s", e->builtin == BI_MIN || e->builtin == BI_MAX ? " or more" : "",
               given);
    if (y->kind == SY_FN)
      diag_note(d, y->at, "defined here");
    else if (given == 0 && want == 1 && y->builtin >= BI_INFLIGHT)
      diag_help(d, "name the rank: %s(r)", e->name);
  }
  return depends;
}

void warn_rounded(Resolver *r, const Expr *e, bool is_time) {
  if (!e)
    return;
  if (e->kind == EX_DIV && e->a->kind == EX_INT && e->b->kind == EX_INT && e->b->value != 0 &&
      e->a->value % e->b->value != 0) {
    int64_t a = e->a->value, b = e->b->value, n = b;
    for (int64_t rest = a; rest;) {
      int64_t t = n % rest;
      n = rest, rest = t;
    }
    diag_warn(r->s->diag, DIAG_ROUNDED, e->at, "'%s' is %lld: a division drops its remainder",
              span_text(r->s, e->at), (long long)(a / b));
    if (is_time)
      diag_help(r->s->diag, "scale all times by %lld, so that this is %lld", (long long)(b / n),
                (long long)(a / n));
    else
      diag_help(r->s->diag, "write %lld, or %lld to round up", (long long)(a / b),
                (long long)(a / b + 1));
  }
  for (const Arg *a = e->args; a; a = a->next)
    warn_rounded(r, a->value, is_time);
  warn_rounded(r, e->a, is_time);
  warn_rounded(r, e->b, is_time);
  warn_rounded(r, e->c, is_time);
}

bool resolve_expr(Resolver *r, Expr *e) {
  if (!e)
    return false;
  bool depends = false;
  if (e->kind == EX_REAL) {
    diag_error(r->s->diag, DIAG_BAD_NUMBER, e->at,
               "a number without a unit cannot have a fraction");
    diag_help(r->s->diag, "values are integers here; only formulas have fractions");
  } else if (e->kind == EX_INT) {
    r->units |= (uint8_t)(1u << e->unit);
  } else if (e->kind == EX_NAME) {
    Sym *y = sym_find(r, e->name);
    if (!y || y->kind != SY_VAR) {
      sym_wrong_kind(r, y, e->name, e->at, "a value");
    } else {
      e->slot = y->slot;
      depends = y->depends;
      r->units |= y->units;
    }
  } else if (e->kind == EX_CALL) {
    depends = resolve_call(r, e);
  } else {
    depends |= resolve_expr(r, e->a);
    depends |= resolve_expr(r, e->b);
    depends |= resolve_expr(r, e->c);
  }
  e->depends = depends;
  return depends;
}

/* Names and functions count with the units of their values. */
uint8_t resolve_units(Resolver *r, Expr *e) {
  uint8_t outer = r->units;
  r->units = 0;
  resolve_expr(r, e);
  uint8_t units = r->units;
  r->units |= outer;
  return units;
}

void resolve_range(Resolver *r, Range *g) {
  resolve_expr(r, g->lo);
  resolve_expr(r, g->hi);
  resolve_expr(r, g->step);
}

/* ---- ops and statements ---- */

/* Is e the index of an op in a kernel: k, or k plus or minus a term without k? `depends` tells
 * expand which side holds k; the other side is the lag. */
static bool is_index(const Expr *e, uint32_t k) {
  if (e->kind == EX_NAME)
    return e->slot == k;
  if (e->kind == EX_ADD)
    return (is_index(e->a, k) && !e->b->depends) || (!e->a->depends && is_index(e->b, k));
  return e->kind == EX_SUB && is_index(e->a, k) && !e->b->depends;
}

/* The W without an index that o is or stands for, or NULL. */
static const OpRef *bare_w(const OpRef *o) {
  while (o->op < 0 && o->def)
    o = o->def->op;
  return o->op == PIPE_W && !o->args && !o->parens ? o : NULL;
}

static void resolve_opref(Resolver *r, OpRef *o, const Stmt *kernel) {
  Diag *d = r->s->diag;
  uint32_t nargs = 0, unknown = r->unknown.n;
  o->number = ++r->parsed->nopref;
  r->kernel = kernel;
  for (const Arg *a = o->args; a && r->kernel; a = a->next)
    if (hint_mentions(a->value, kernel->name))
      r->kernel = NULL;
  r->unnamed = r->names == 0;
  for (Arg *a = o->args; a; a = a->next, nargs++)
    resolve_expr(r, a->value);
  r->unnamed = false;
  r->kernel = NULL;
  resolve_expr(r, o->chunk);
  resolve_expr(r, o->stage);
  o->op = -1;
  if (o->pipe) {
    Sym *y = sym_find(r, o->pipe);
    if (!y || y->kind != SY_PIPE)
      sym_wrong_kind(r, y, o->pipe, o->pipe_at, "a pipe");
    else if (y->array != (o->pipe_index != NULL))
      diag_error(d, DIAG_CLAUSE, o->pipe_at,
                 y->array ? "'%s' is an array of pipes: write %s[i].F(m)"
                          : "'%s' is one pipe: leave its index out",
                 o->pipe, o->pipe);
    resolve_expr(r, o->pipe_index);
  }
  for (int k = 0; k < PIPE_NOPS; k++)
    if (o->name == r->op_name[k])
      o->op = (int8_t)k;
  bool whole = o->op == PIPE_U; /* an update of a stage */
  uint32_t want = !o->parens && !kernel && o->op < PIPE_OFF ? 0 : 1;
  if (whole && nargs == 0)
    want = 0;
  if (o->op < 0) {
    Sym *y = sym_find(r, o->name);
    if (!y || y->kind != SY_OPDEF) {
      sym_wrong_kind(r, y, o->name, o->name_at, "an op");
      return;
    }
    o->def = y->opdef;
    want = 0;
    for (Param *p = o->def->params; p; p = p->next)
      want++;
    if (o->chunk || o->stage)
      diag_error(d, DIAG_ARITY, o->at, "'%s' has its stage already", o->name);
  }
  if (o->op >= 0 && !whole && want == 1 && r->sliced)
    want = 2;
  if (r->list && !r->picks && bare_w(o)) {
    refuse_bare_w(r->s, o->at, bare_w(o), r->list);
    return;
  }
  if (nargs != want) {
    diag_error(d, DIAG_ARITY, o->at, "op '%s' takes %s, got %u", o->name,
               o->op < 0   ? arena_printf(r->s->arena, "%u argument%s", want, want == 1 ? "" : "s")
               : whole     ? "at most one microbatch"
               : r->sliced ? "a microbatch and a slice"
                           : "one microbatch",
               nargs);
    if (o->op >= 0 && nargs > want)
      diag_help(d, "write the chunk in brackets, %s[c](m); the order gives the rank", o->name);
    else if (kernel && o->chunk && !o->parens && hint_mentions(o->chunk, kernel->name))
      diag_help(d, "brackets hold the chunk, parentheses the microbatch: %s(%s)", o->name,
                span_text(r->s, o->chunk->at));
    else if (kernel && !r->sliced && o->op >= 0)
      diag_help(d, "write %s(%s)", o->parens ? o->name : span_text(r->s, o->at), kernel->name);
    return;
  }
  if (!kernel || r->unknown.n > unknown)
    return;
  uint32_t indices = 0;
  for (Arg *a = o->args; a; a = a->next) {
    if (!a->value->depends)
      continue;
    indices++;
    if (!is_index(a->value, kernel->slot)) {
      diag_error(d, DIAG_LAG, a->value->at,
                 "the index of an op in 'steady %s' must be %s, plus or minus a lag without %s",
                 kernel->name, kernel->name, kernel->name);
      diag_help(d, "name the rest with 'op f(k) = ...' and write f(%s - lag), or use 'do'",
                kernel->name);
      return;
    }
  }
  if (indices != 1) {
    diag_error(d, DIAG_LAG, o->at,
               "an op in 'steady %s' needs one index that is %s, plus or minus a lag", kernel->name,
               kernel->name);
    diag_help(d,
              indices ? "name the rest with 'op f(k) = ...' and write f(%s - lag)"
              : o->op == PIPE_U
                  ? "U(%s - lag) is an update behind the backward of that microbatch; "
                    "write an update for all microbatches after the kernel"
                  : "an op without %s stands before or after the kernel",
              kernel->name);
  }
}

/* Checks that the turns of a loop in a kernel do not depend on the kernel's index, because its ops
 * have fixed lags. */
static void same_turns(Resolver *r, const Stmt *t, const Stmt *kernel) {
  const Expr *const part[] = {t->range.lo, t->range.hi, t->range.step, t->cond};
  for (uint32_t i = 0; i < sizeof part / sizeof *part; i++)
    if (part[i] && part[i]->depends) {
      diag_error(r->s->diag, DIAG_LAG, part[i]->at,
                 "a loop in 'steady %s' has the same turns for every %s", kernel->name,
                 kernel->name);
      diag_help(r->s->diag, "let the loop run over all values, and leave ops out with 'if'");
      return;
    }
}

/* fn: the function, or NULL: an op. */
static void resolve_params(Resolver *r, Param *p, const Fn *fn) {
  const Clause *c = r->clause;
  for (; p; p = p->next) {
    const Sym *hidden = sym_find(r, p->name);
    const bool taken = hidden && hidden->kind != SY_BUILTIN;
    p->slot = sym_define_var(r, p->name, p->at);
    if (taken && fn && c && c->kind == CL_ORDER && c->var == p->name)
      diag_help(r->s->diag, "define '%s' before 'order %s', or give the parameter another name",
                fn->name, c->var);
    else if (taken)
      diag_help(r->s->diag, "give the parameter another name");
  }
}

void resolve_fn(Resolver *r, Fn *f) {
  uint32_t mark = sym_scope_begin(r);
  resolve_params(r, f->params, f);
  r->fn = f;
  f->units = resolve_units(r, f->body);
  r->fn = NULL;
  sym_scope_end(r, mark);
  sym_define(r, f->name, f->name_at, SY_FN)->fn = f;
}

static const char *list_word(const Stmt *t) { return t->kind == ST_CLOCK ? "clock" : "rules"; }

/* Resolves clock or rules. In its body, `depends` marks values that may differ between the
 * instances of one statement. */
static void resolve_list(Resolver *r, Stmt *t, const Stmt *kernel) {
  if (kernel)
    diag_error(r->s->diag, DIAG_CLAUSE, t->at,
               "'%s' cannot stand inside 'steady %s': each gives an order of its own", list_word(t),
               kernel->name);
  else if (r->list)
    diag_error(r->s->diag, DIAG_CLAUSE, t->at,
               "'%s' cannot stand inside '%s %s': each gives an order of its own", list_word(t),
               list_word(r->list), r->list->name);
  resolve_range(r, &t->range);
  resolve_expr(r, t->value);
  uint32_t mark = sym_scope_begin(r);
  t->slot = sym_define_var(r, t->name, t->name_at);
  if (sym_find(r, t->name))
    sym_find(r, t->name)->depends = true;
  const Stmt *outer = r->list;
  r->list = t;
  r->names++;
  resolve_block(r, t->body, NULL);
  r->names--;
  r->list = outer;
  sym_scope_end(r, mark);
}

void resolve_bind(Resolver *r, Arg *args, const Schedule *def, Span at) {
  Diag *d = r->s->diag;
  uint32_t given = 0, want = 0;
  bool named = false;
  for (Arg *a = args; a; a = a->next, given++) {
    resolve_expr(r, a->value);
    if (named && !a->key)
      diag_error(d, DIAG_ARITY, a->value->at, "a positional argument after a named one");
    named |= a->key != NULL;
    if (!a->key || !def)
      continue;
    Param *p = def->params;
    while (p && p->name != a->key)
      p = p->next;
    if (!p) {
      diag_error(d, DIAG_PARAM, a->key_at, "schedule '%s' has no parameter '%s'", def->name,
                 a->key);
      help_params(r->s, def);
    }
    for (Arg *b = args; b != a; b = b->next)
      if (b->key == a->key)
        diag_error(d, DIAG_REDEFINED, a->key_at, "'%s' is given twice", a->key);
  }
  if (!def)
    return;
  for (Param *p = def->params; p; p = p->next)
    want++;
  if (given > want)
    diag_error(d, DIAG_ARITY, at, "schedule '%s' takes %u arguments, got %u", def->name, want,
               given);
}

static void resolve_stmt(Resolver *r, Stmt *t, const Stmt *kernel) {
  uint32_t mark;
  switch (t->kind) {
  case ST_OP:
    resolve_opref(r, t->op, kernel);
    resolve_expr(r, t->value);
    r->in_when = r->list && r->list->kind == ST_RULES;
    resolve_expr(r, r->in_when ? t->cond : NULL);
    if (t->value && !r->list)
      diag_error(
          r->s->diag, DIAG_CLAUSE, t->value->at,
          "'@' gives an op its place in 'clock' or 'rules'; here ops follow as they are written");
    else if (t->cond && !r->in_when)
      diag_error(r->s->diag, DIAG_CLAUSE, t->cond->at, "'when' is a condition of 'rules'; here %s",
                 hint_mentions(t->cond, intern(r->in, "inflight", 8)) ||
                         hint_mentions(t->cond, intern(r->in, "held", 4))
                     ? "the order is fixed"
                     : "use 'if'");
    r->in_when = false;
    return;
  case ST_IF:
    resolve_expr(r, t->cond);
    resolve_block(r, t->body, kernel);
    resolve_block(r, t->orelse, kernel);
    return;
  case ST_LET: {
    uint8_t units = resolve_units(r, t->value);
    bool depends = t->value->depends;
    Sym *y = sym_define(r, t->name, t->name_at, SY_VAR);
    y->units = units;
    y->depends = depends;
    t->slot = y->slot = r->parsed->nslot++;
    return;
  }
  case ST_FN: resolve_fn(r, t->fn); return;
  case ST_CLIP:
    if (kernel)
      diag_error(r->s->diag, DIAG_CLAUSE, t->at,
                 "'clip' cannot stand inside 'steady %s', only around it", kernel->name);
    resolve_block(r, t->body, kernel);
    return;
  case ST_CLOCK:
  case ST_RULES: resolve_list(r, t, kernel); return;
  case ST_OVERLAP:
    overlap_shape(r->s, t, r->list);
    resolve_expr(r, t->value);
    r->picks = r->in_when = r->list && r->list->kind == ST_RULES;
    resolve_expr(r, r->in_when ? t->cond : NULL);
    r->in_when = false;
    resolve_block(r, t->body, kernel);
    r->picks = false;
    return;
  case ST_OPDEF:
    mark = sym_scope_begin(r);
    resolve_params(r, t->opdef->params, NULL);
    r->names++;
    resolve_opref(r, t->opdef->op, NULL);
    r->names--;
    sym_scope_end(r, mark);
    sym_define(r, t->opdef->name, t->opdef->name_at, SY_OPDEF)->opdef = t->opdef;
    return;
  case ST_KERNEL:
  case ST_DO:
    if (kernel && t->kind == ST_KERNEL) {
      diag_error(r->s->diag, DIAG_CLAUSE, t->at, "a kernel cannot stand inside 'steady %s'",
                 kernel->name);
      diag_help(
          r->s->diag,
          "let %s run over all the ops and name them with 'op f(%s) = ...', or use 'do' for both",
          kernel->name, kernel->name);
    } else if (r->list && t->kind == ST_KERNEL) {
      diag_error(r->s->diag, DIAG_CLAUSE, t->at,
                 "a kernel cannot stand inside '%s %s': each gives an order of its own",
                 list_word(r->list), r->list->name);
    }
    resolve_range(r, &t->range);
    resolve_expr(r, t->cond);
    if (kernel && t->kind == ST_DO)
      same_turns(r, t, kernel);
    mark = sym_scope_begin(r);
    if (t->name)
      t->slot = sym_define_var(r, t->name, t->name_at);
    if ((t->kind == ST_KERNEL || r->list) && t->name && sym_find(r, t->name))
      sym_find(r, t->name)->depends = true;
    r->names += t->name != NULL;
    resolve_block(r, t->body, t->kind == ST_KERNEL ? t : kernel);
    r->names -= t->name != NULL;
    sym_scope_end(r, mark);
    return;
  }
}

/* Does an unknown word stand before the name of a schedule, as in `use other(P, M)`? Its error
 * tells all. */
static bool calls_schedule(Resolver *r, const Stmt *t) {
  bool ops = t->kind == ST_OP && t->next && t->next->kind == ST_OP;
  if (!ops || t->op->op >= 0 || t->op->def)
    return false;
  const Sym *y = sym_find(r, t->next->op->name);
  return y && y->kind == SY_SCHEDULE;
}

void resolve_block(Resolver *r, Stmt *b, const Stmt *kernel) {
  uint32_t mark = sym_scope_begin(r);
  for (; b; b = b->next) {
    resolve_stmt(r, b, kernel);
    if (calls_schedule(r, b))
      b = b->next;
  }
  sym_scope_end(r, mark);
}
