/* SPDX-License-Identifier: MIT
 * Names. Requires a parsed tree. Ensures: every variable has its own slot of s->env (there is no
 * recursion, so one slot is enough), every call its fn or builtin, every op its kind or macro,
 * imports are parsed and resolved, s->def is the schedule to compile.
 *
 * One visible meaning per name: a table from interned name to symbol, with an undo list per scope.
 * Linear in the text. More than 800 lines: one table and its scopes serve everything that is named. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "habits.h"
#include "formula.h"
#include "hints.h"
#include "pipec.h"

typedef enum SymKind { SY_NONE, SY_VAR, SY_FN, SY_OPDEF, SY_SCHEDULE, SY_PIPE, SY_BUILTIN } SymKind;

typedef struct Sym {
  Name name;
  SymKind kind;
  Span at;
  uint32_t slot;
  uint8_t units; /* VAR of a let, FN: of the numbers it is made of */
  bool array;    /* PIPE: several, by index */
  bool depends;  /* VAR: its value depends on the index of the kernel being resolved */
  union {
    Fn *fn;
    OpDef *opdef;
    Schedule *schedule;
    Builtin builtin;
  };
} Sym;

typedef struct File {
  dev_t dev;
  ino_t ino;
  Ast *ast;
  bool done;
  struct File *next;
} File;

typedef struct Resolver {
  Sched *s;
  uint8_t units;                  /* of the numbers resolved so far, see units_of */
  const Entry *with_unit, *plain; /* first times of the schedule with a unit, and without */
  Interner *in;
  Sym *table; /* open addressing by pointer; never iterated */
  uint32_t cap, used;
  VEC(Name) scope; /* names defined, innermost last */
  File *files;
  Name op_name[PIPE_NOPS]; /* NULL: not written by users */
  bool sliced;             /* the schedule at hand has slices: ops have two indices */
  bool in_check;           /* quantities are allowed */
  bool in_when;            /* inflight and held are, as they are now */
  uint32_t nquantity;      /* of those, so far */
  Schedule *schedule;      /* that is being resolved */
  const Stmt *list;        /* the clock or rules that is being resolved, or NULL */
  const Fn *fn;            /* whose body is being resolved, or NULL */
  int depth;               /* of imports */
  const Stmt *kernel;      /* whose index the op being resolved lacks, or NULL */
  const Clause *clause;    /* that is being resolved, or NULL */
  const Ast *file;
  VEC(Name) unknown; /* names of the clause that were reported, each once */
  bool incomplete;   /* an import of this file failed: what is unknown may be defined there */
} Resolver;

static const struct {
  const char *name;
  Builtin b;
} builtins[] = {
    {"min", BI_MIN},
    {"max", BI_MAX},
    {"inflight", BI_INFLIGHT},
    {"held", BI_HELD},
    {"kept", BI_KEPT},
    {"warmup_depth", BI_WARMUP},
    {"memory", BI_MEMORY},
    {"staleness", BI_STALENESS},
    {"discrepancy", BI_DISCREPANCY},
    {"versions", BI_VERSIONS},
    {"stashed", BI_STASHED},
    {"volume", BI_VOLUME},
    {"messages", BI_MESSAGES},
    {"host", BI_HOST},
    {"host_memory", BI_HOST_MEMORY},
    {"guests", BI_GUESTS},
    {"makespan", BI_MAKESPAN},
    {"span", BI_SPAN},
    {"idle", BI_IDLE},
    {"bubble", BI_BUBBLE},
};

static Sym *slot_of(Sym *table, uint32_t cap, Name name) {
  uint64_t h = (uint64_t)(uintptr_t)name * 0x9e3779b97f4a7c15u;
  for (uint32_t i = (uint32_t)(h >> 32) & (cap - 1);; i = (i + 1) & (cap - 1))
    if (table[i].name == name || !table[i].name)
      return &table[i];
}

static Sym *find(Resolver *r, Name name) {
  Sym *y = slot_of(r->table, r->cap, name);
  return y->name && y->kind != SY_NONE ? y : NULL;
}

static Sym *define(Resolver *r, Name name, Span at, SymKind kind) {
  Sym *old = find(r, name);
  if (old) {
    diag_error(r->s->diag, DIAG_REDEFINED, at, "'%s' is already defined%s", name,
               old->kind == SY_BUILTIN ? " by the language" : "");
    if (old->kind != SY_BUILTIN)
      diag_note(r->s->diag, old->at, "it was defined here");
    /* Keep going with the new meaning, so that one slip is one error. */
    old->at = at;
    old->kind = kind;
    return old;
  }
  if ((r->used + 1) * 2 > r->cap) {
    uint32_t cap = r->cap * 2;
    Sym *table = NEW_ARRAY(r->s->arena, Sym, cap);
    for (uint32_t i = 0; i < r->cap; i++)
      if (r->table[i].name)
        *slot_of(table, cap, r->table[i].name) = r->table[i];
    r->table = table;
    r->cap = cap;
  }
  Sym *y = slot_of(r->table, r->cap, name);
  if (!y->name)
    r->used++;
  *y = (Sym){.name = name, .kind = kind, .at = at};
  *vec_push(r->s->arena, &r->scope) = name;
  return y;
}

static uint32_t define_var(Resolver *r, Name name, Span at) {
  Sym *y = define(r, name, at, SY_VAR);
  y->depends = false;
  return y->slot = r->s->nslot++;
}

static uint32_t scope_begin(Resolver *r) { return r->scope.n; }

static void scope_end(Resolver *r, uint32_t mark) {
  while (r->scope.n > mark)
    slot_of(r->table, r->cap, r->scope.at[--r->scope.n])->kind = SY_NONE;
}

/* ---- did you mean ---- */

/* False: nothing like it is visible. */
static bool suggest(Resolver *r, Name name) {
  if (r->s->diag->muted)
    return true; /* not printed: keep many errors linear */
  for (uint32_t i = r->scope.n; i-- > 0;) {
    Sym *y = find(r, r->scope.at[i]);
    if (y && hint_near(name, y->name)) {
      diag_help(r->s->diag, "did you mean '%s'", y->name);
      return true;
    }
  }
  return false;
}

/* The one help or note on a name that is unknown. */
static void explain_unknown(Resolver *r, Name name, Span at, const char *wanted) {
  Sched *s = r->s;
  const Schedule *sc = r->schedule;
  bool value = strcmp(wanted, "a value") == 0, op = strcmp(wanted, "an op") == 0;
  if (s->diag->muted)
    return;
  if (r->fn && r->fn->name == name) {
    diag_help(s->diag, "a function sees only what is defined before it, so it cannot call itself");
    return;
  }
  if (strcmp(wanted, "a schedule") == 0 && sc && sc->name == name) {
    diag_help(s->diag, "a schedule sees only what is defined before it, so it cannot use itself");
    return;
  }
  for (const Clause *c = op && sc ? sc->clauses : NULL; c; c = c->next)
    if (c->kind == CL_SIDE && c->name == name) {
      diag_help(s->diag, "the clause 'side %s' says where it runs: leave it out of the order",
                name);
      return;
    }
  if (op && hint_op(s, name))
    return;
  if (value && r->clause && r->clause->kind == CL_WEIGHTS && hint_weights(s, r->clause, name))
    return;
  const char *text = habit(name, strlen(name), op ? HABIT_OP : HABIT_VALUE);
  if (text)
    diag_help(s->diag, "%s", text);
  else if (value && sc && r->clause && hint_rank(s, sc, r->clause, name))
    return;
  else if (r->kernel && value)
    diag_help(s->diag, "the index of this kernel is '%s'", r->kernel->name);
  else if (suggest(r, name) || hint_elsewhere(s, r->file, sc, r->clause, name, at))
    return;
  else if (strcmp(wanted, "a schedule") == 0 && hint_library(s, name, at))
    return;
  else if (op)
    diag_help(s->diag, "the ops are F, B, I, W, R, U, OFF and LOAD; 'op %s(m) = ...' defines one",
              name);
  else if (r->in_check && strstr(wanted, "function"))
    diag_help(
        s->diag,
        "a check knows inflight(r) held(r) kept(r) warmup_depth(r) memory(r) staleness(r) discrepancy(r) "
        "versions(r) stashed(r) host(r) host_memory(r) guests(r) volume(r) messages(r) makespan() span() idle() bubble()");
  else if (value && sc)
    hint_params(s, sc);
}

static const char *kind_text(const Sym *y) {
  switch (y->kind) {
  case SY_VAR: return "a value";
  case SY_OPDEF: return "an op";
  case SY_SCHEDULE: return "a schedule";
  case SY_PIPE: return "a pipe";
  default: return "a function";
  }
}

/* y, or nothing, stands where `wanted` should: one error, with where y comes from or a near name. */
static void wrong_kind(Resolver *r, const Sym *y, Name name, Span at, const char *wanted) {
  Diag *d = r->s->diag;
  if (y) {
    diag_error(d, DIAG_UNKNOWN_NAME, at, "'%s' is %s, not %s", name, kind_text(y), wanted);
    if (y->kind != SY_BUILTIN)
      diag_note(d, y->at, "it was defined here");
    else if (r->clause && r->clause->kind == CL_WEIGHTS && hint_weights(r->s, r->clause, name))
      return;
    else if (strcmp(wanted, "a value") == 0 && y->builtin >= BI_INFLIGHT &&
             y->builtin < BI_MAKESPAN)
      diag_help(d, "it is of a rank: %s(r)", name);
    return;
  }
  if (r->incomplete)
    return;
  for (uint32_t i = 0; i < r->unknown.n; i++)
    if (r->unknown.at[i] == name)
      return;
  if (r->unknown.n < DIAG_LIMIT)
    *vec_push(r->s->arena, &r->unknown) = name;
  diag_error(d, DIAG_UNKNOWN_NAME, at, "unknown %s '%s'",
             strcmp(wanted, "a value") == 0 ? "name" : strchr(wanted, ' ') + 1, name);
  explain_unknown(r, name, at, wanted);
}

/* ---- expressions; the result tells whether the value depends on the kernel's index ---- */

static bool resolve_expr(Resolver *r, Expr *e);

static bool resolve_args(Resolver *r, Arg *a) {
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
  Sym *y = find(r, e->name);
  uint32_t before = r->nquantity;
  bool depends = resolve_args(r, e->args);
  uint32_t given = 0, want = 0;
  for (Arg *a = e->args; a; a = a->next)
    given++;
  e->builtin = BI_MIN;
  if (!y || (y->kind != SY_FN && y->kind != SY_BUILTIN)) {
    wrong_kind(r, y, e->name, e->name_at, "a function");
    return depends;
  }
  bool costs = false;
  if (y->kind == SY_FN) {
    e->builtin = BI_FN;
    e->fn = y->fn;
    r->units |= y->fn->units;
    if (r->in_when && r->nquantity > before)
      diag_error(d, DIAG_CLAUSE, e->at, "'%s' cannot take a quantity, whose value changes",
                 e->name);
    for (Param *p = y->fn->params; p; p = p->next)
      want++;
  } else {
    e->builtin = (uint8_t)y->builtin;
    bool now = r->in_when && is_now(y->builtin);
    r->nquantity += now;
    if (y->builtin >= BI_INFLIGHT && r->clause && r->clause->kind == CL_LIMIT && !now) {
      diag_error(d, DIAG_CLAUSE, e->at,
                 "'%s' is not counted at each moment, so no limit can have it", e->name);
      diag_help(d, "a limit knows inflight(r) held(r) kept(r) host(r); '%s' can stand in a check",
                e->name);
    } else if (y->builtin >= BI_INFLIGHT && !r->in_check && !now)
      diag_error(d, DIAG_CLAUSE, e->at,
                 "'%s' is known only once the schedule is; it can stand only in a check", e->name);
    if (y->builtin == BI_MIN || y->builtin == BI_MAX)
      want = given ? given : 1;
    else
      costs = y->builtin >= BI_MAKESPAN, want = costs ? given : now && given == 2 ? 2 : 1;
    if ((y->builtin == BI_VOLUME || y->builtin == BI_MESSAGES || y->builtin == BI_VERSIONS ||
         y->builtin == BI_STASHED) &&
        given == 0)
      want = 0; /* of all ranks */
  }
  for (Arg *a = e->args; a; a = a->next) {
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
      diag_note(d, y->at, "it was defined here");
    else if (given == 0 && want == 1 && y->builtin >= BI_INFLIGHT)
      diag_help(d, "it is of a rank: %s(r)", e->name);
  }
  return depends;
}

static bool resolve_expr(Resolver *r, Expr *e) {
  if (!e)
    return false;
  bool depends = false;
  if (e->kind == EX_REAL) {
    diag_error(r->s->diag, DIAG_BAD_NUMBER, e->at,
               "a number without a unit cannot have a fraction");
    diag_help(r->s->diag, "only formulas have such numbers; here values are integers");
  } else if (e->kind == EX_INT) {
    r->units |= (uint8_t)(1u << e->unit);
  } else if (e->kind == EX_NAME) {
    Sym *y = find(r, e->name);
    if (!y || y->kind != SY_VAR) {
      wrong_kind(r, y, e->name, e->at, "a value");
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

/* Resolves e and tells which units its numbers have, names and functions included. */
static uint8_t units_of(Resolver *r, Expr *e) {
  uint8_t outer = r->units;
  r->units = 0;
  resolve_expr(r, e);
  uint8_t units = r->units;
  r->units |= outer;
  return units;
}

static void resolve_range(Resolver *r, Range *g) {
  resolve_expr(r, g->lo);
  resolve_expr(r, g->hi);
  resolve_expr(r, g->step);
}

/* ---- ops and statements ---- */

/* The index of an op in a kernel: k, or k plus or minus something without k. Cuts it to the lag: the
 * expression is left as it is, `depends` tells expand which side of it holds k. */
static bool is_index(const Expr *e, uint32_t k) {
  if (e->kind == EX_NAME)
    return e->slot == k;
  if (e->kind == EX_ADD)
    return (is_index(e->a, k) && !e->b->depends) || (!e->a->depends && is_index(e->b, k));
  return e->kind == EX_SUB && is_index(e->a, k) && !e->b->depends;
}

static void resolve_opref(Resolver *r, OpRef *o, const Stmt *kernel) {
  Diag *d = r->s->diag;
  uint32_t nargs = 0, unknown = r->unknown.n;
  r->kernel = kernel;
  for (const Arg *a = o->args; a && r->kernel; a = a->next)
    if (hint_mentions(a->value, kernel->name))
      r->kernel = NULL;
  for (Arg *a = o->args; a; a = a->next, nargs++)
    resolve_expr(r, a->value);
  r->kernel = NULL;
  resolve_expr(r, o->chunk);
  resolve_expr(r, o->stage);
  o->op = -1;
  if (o->pipe) {
    Sym *y = find(r, o->pipe);
    if (!y || y->kind != SY_PIPE)
      wrong_kind(r, y, o->pipe, o->pipe_at, "a pipe");
    else if (y->array != (o->pipe_index != NULL))
      diag_error(d, DIAG_CLAUSE, o->pipe_at,
                 y->array ? "'%s' is several pipes: say which, %s[i].F(m)"
                          : "'%s' is one pipe: no index stands after it",
                 o->pipe, o->pipe);
    resolve_expr(r, o->pipe_index);
  }
  for (int k = 0; k < PIPE_NOPS; k++)
    if (o->name == r->op_name[k])
      o->op = (int8_t)k;
  bool whole = o->op == PIPE_U || pipe_is_sum((uint32_t)o->op); /* of a stage */
  uint32_t want = !o->parens && !kernel && o->op < PIPE_OFF ? 0 : 1;
  if (whole && nargs == 0)
    want = 0;
  if (o->op < 0) {
    Sym *y = find(r, o->name);
    if (!y || y->kind != SY_OPDEF) {
      wrong_kind(r, y, o->name, o->name_at, "an op");
      return;
    }
    o->def = y->opdef;
    want = 0;
    for (Param *p = o->def->params; p; p = p->next)
      want++;
    if (o->chunk || o->stage)
      diag_error(d, DIAG_ARITY, o->at, "'%s' already says which stage it is on", o->name);
  }
  if (o->op >= 0 && !whole && want == 1 && r->sliced)
    want = 2;
  if (nargs != want) {
    diag_error(d, DIAG_ARITY, o->at, "op '%s' takes %s, got %u", o->name,
               o->op < 0   ? arena_printf(r->s->arena, "%u argument%s", want, want == 1 ? "" : "s")
               : whole     ? "one microbatch or none"
               : r->sliced ? "a microbatch and a slice"
                           : "one microbatch",
               nargs);
    if (o->op >= 0 && nargs > want)
      diag_help(d, "a chunk stands in brackets, %s[c](m), and the rank is that of the order",
                o->name);
    else if (kernel && !r->sliced && o->op >= 0 && !o->chunk && !o->stage)
      diag_help(d, "write %s(%s)", o->name, kernel->name);
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
                      : "an op without %s stands before or after the kernel",
              kernel->name);
  }
}

static void resolve_params(Resolver *r, Param *p) {
  for (; p; p = p->next)
    p->slot = define_var(r, p->name, p->at);
}

static void resolve_fn(Resolver *r, Fn *f) {
  uint32_t mark = scope_begin(r);
  resolve_params(r, f->params);
  r->fn = f;
  f->units = units_of(r, f->body);
  r->fn = NULL;
  scope_end(r, mark);
  define(r, f->name, f->name_at, SY_FN)->fn = f;
}

static void resolve_block(Resolver *r, Stmt *b, const Stmt *kernel);

static const char *list_word(const Stmt *t) { return t->kind == ST_CLOCK ? "clock" : "rules"; }

/* clock and rules. `depends` then tells what may differ between the instances of one statement. */
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
  uint32_t mark = scope_begin(r);
  t->slot = define_var(r, t->name, t->name_at);
  if (find(r, t->name))
    find(r, t->name)->depends = true;
  const Stmt *outer = r->list;
  r->list = t;
  resolve_block(r, t->body, NULL);
  r->list = outer;
  scope_end(r, mark);
}

/* The arguments of a schedule that is instantiated; def: NULL if unknown. */
static void resolve_bind(Resolver *r, Arg *args, const Schedule *def, Span at) {
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

static void resolve_use(Resolver *r, Stmt *t, const Stmt *kernel) {
  if (kernel)
    diag_error(r->s->diag, DIAG_CLAUSE, t->at, "'use' cannot stand inside 'steady %s'",
               kernel->name);
  Sym *y = find(r, t->name);
  if (y && y->kind == SY_SCHEDULE)
    t->used = y->schedule;
  else
    wrong_kind(r, y, t->name, t->name_at, "a schedule");
  t->within = r->schedule;
  resolve_bind(r, t->args, t->used, t->name_at);
  resolve_range(r, &t->range);
  resolve_expr(r, t->value);
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
    uint8_t units = units_of(r, t->value);
    bool depends = t->value->depends;
    Sym *y = define(r, t->name, t->name_at, SY_VAR);
    y->units = units;
    y->depends = depends;
    t->slot = y->slot = r->s->nslot++;
    return;
  }
  case ST_FN: resolve_fn(r, t->fn); return;
  case ST_PHASE:
    if (kernel)
      diag_error(r->s->diag, DIAG_CLAUSE, t->at,
                 "a phase label cannot stand inside 'steady %s'; its phases follow from its lags",
                 kernel->name);
    resolve_block(r, t->body, kernel);
    return;
  case ST_CLIP:
    if (kernel)
      diag_error(r->s->diag, DIAG_CLAUSE, t->at,
                 "'clip' cannot stand inside 'steady %s', only around it", kernel->name);
    resolve_block(r, t->body, kernel);
    return;
  case ST_CLOCK:
  case ST_RULES: resolve_list(r, t, kernel); return;
  case ST_USE: resolve_use(r, t, kernel); return;
  case ST_MOVE:
    resolve_opref(r, t->op, kernel);
    resolve_expr(r, t->value);
    by_hand_shape(r->s, t, r->list);
    return;
  case ST_WAIT:
    resolve_expr(r, t->value);
    by_hand_shape(r->s, t, r->list);
    return;
  case ST_GROUP:
    resolve_expr(r, t->value);
    by_hand_shape(r->s, t, r->list);
    resolve_block(r, t->body, kernel);
    return;
  case ST_OVERLAP:
    overlap_shape(r->s, t, r->list);
    resolve_expr(r, t->value);
    r->in_when = r->list && r->list->kind == ST_RULES;
    resolve_expr(r, r->in_when ? t->cond : NULL);
    r->in_when = false;
    resolve_block(r, t->body, kernel);
    return;
  case ST_OPDEF:
    mark = scope_begin(r);
    resolve_params(r, t->opdef->params);
    resolve_opref(r, t->opdef->op, NULL);
    scope_end(r, mark);
    define(r, t->opdef->name, t->opdef->name_at, SY_OPDEF)->opdef = t->opdef;
    return;
  case ST_KERNEL:
  case ST_DO:
    if (kernel) {
      diag_error(r->s->diag, DIAG_CLAUSE, t->at, "a loop cannot stand inside 'steady %s'",
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
    mark = scope_begin(r);
    if (t->name)
      t->slot = define_var(r, t->name, t->name_at);
    if ((t->kind == ST_KERNEL || r->list) && t->name && find(r, t->name))
      find(r, t->name)->depends = true;
    resolve_block(r, t->body, t->kind == ST_KERNEL ? t : NULL);
    scope_end(r, mark);
    return;
  }
}

static void resolve_block(Resolver *r, Stmt *b, const Stmt *kernel) {
  uint32_t mark = scope_begin(r);
  for (; b; b = b->next)
    resolve_stmt(r, b, kernel);
  scope_end(r, mark);
}

/* ---- schedules ---- */

/* Bytes are bytes, times are times; and all times of a schedule have a unit, or none. */
static void check_unit(Resolver *r, const Clause *c, const Entry *e, uint8_t units) {
  enum { BYTES = 1 << 1, TIME = 1 << 2 };
  if (units & (c->kind == CL_TIME ? BYTES : TIME)) {
    diag_error(r->s->diag, DIAG_UNIT, e->value->at, "'%s' is a number of %s, given in %s", e->key,
               c->kind == CL_TIME ? "ns" : "bytes", c->kind == CL_TIME ? "bytes" : "time");
    return;
  }
  if (c->kind != CL_TIME)
    return;
  if (units & TIME)
    r->with_unit = r->with_unit ? r->with_unit : e;
  else if (e->value->kind == EX_INT && e->value->value != 0)
    r->plain = r->plain ? r->plain : e;
}

/* Those of a side op, which are a time and a size. */
static void resolve_side(Resolver *r, Clause *c) {
  Clause as = {.kind = CL_TIME};
  side_shape(r->s, c);
  for (Entry *e = c->entries; e; e = e->next) {
    as.kind = strcmp(e->key, "cost") == 0 ? CL_TIME : CL_BYTES;
    check_unit(r, &as, e, units_of(r, e->value));
  }
}

static void resolve_entries(Resolver *r, Clause *c) {
  int lo = c->kind == CL_TIME ? 0 : NTIMEKEYS, hi = c->kind == CL_TIME ? NTIMEKEYS : NKEYS;
  bool seen[NENTRIES] = {false};
  Clause sizes = {.kind = CL_BYTES};
  for (Entry *e = c->entries; e; e = e->next) {
    int k = lo;
    while (k < hi && strcmp(e->key, cost_key[k]) != 0)
      k++;
    for (int j = NKEYS; c->kind == CL_TIME && k == hi && j < NENTRIES; j++)
      k = strcmp(e->key, cost_key[j]) == 0 ? j : k;
    check_unit(r, k == KEY_BANDWIDTH || k == KEY_SUM_BANDWIDTH ? &sizes : c, e,
               units_of(r, e->value));
    if (k == hi) {
      diag_error(r->s->diag, DIAG_UNKNOWN_NAME, e->key_at, "unknown key '%s'", e->key);
      diag_help(
          r->s->diag,
          c->kind == CL_TIME
              ? "the keys of time are F B I W R U FB send reduce OFF LOAD latency bandwidth sum_latency sum_bandwidth"
              : "the keys of bytes are act gout boundary weight grad opt work edge tied");
    } else if (seen[k]) {
      diag_error(r->s->diag, DIAG_REDEFINED, e->key_at, "'%s' is given twice", e->key);
    } else {
      seen[k] = true;
    }
  }
}

/* Which op a line of `weights` is about; false: reported. */
static bool weight_op(Resolver *r, WeightLine *l) {
  Diag *d = r->s->diag;
  static const char *const word[] = {"reads", "applies", "rate", "then"};
  int op = -1;
  for (int k = 0; k < PIPE_NOPS; k++)
    op = l->op == r->op_name[k] ? k : op;
  l->kind = (int8_t)op;
  if (op == PIPE_F && l->word == WW_READS && l->source == WS_FORWARD) {
    diag_error(d, DIAG_CLAUSE, l->source_at,
               "a forward reads the newest version, or one by its number");
    diag_help(d, "write 'F reads newest', or 'F reads e'; 'B reads F' is what F has read");
    return false;
  }
  if (l->word == WW_READS ? op == PIPE_F || op == PIPE_B || op == PIPE_I || op == PIPE_R
                          : op == PIPE_U)
    return true;
  diag_error(d, DIAG_CLAUSE, l->op_at, "'%s %s' is no line of 'weights'", l->op, word[l->word]);
  diag_help(d,
            l->word != WW_READS ? "only an update, U, %s something"
            : op == PIPE_W      ? "W reads no weights: its stash and what I has left are enough%.0s"
            : op == PIPE_U      ? "U reads the newest version always, and makes the next one%.0s"
                                : "F, B, I and R read weights%.0s",
            word[l->word]);
  return false;
}

/* What formula_names.c asks of the resolver. */
static void formula_value(void *self, Expr *e) { resolve_expr(self, e); }
static bool formula_visible(void *self, Name name, Span *at) {
  Sym *y = find(self, name);
  if (!y || (y->kind == SY_BUILTIN && y->builtin > BI_MAX))
    return false;
  *at = y->at;
  return true;
}
static uint32_t formula_bind(void *self, Name name, Span at) { return define_var(self, name, at); }
static void formula_unbind(void *self) {
  Resolver *r = self;
  scope_end(r, r->scope.n - 1);
}

/* A `per` that has one value for all microbatches, unless a name in it is unknown anyway. */
static void per_what(Resolver *r, const Clause *c, const WeightLine *l) {
  if (r->unknown.n > 0)
    return;
  diag_error(r->s->diag, DIAG_CLAUSE, l->per->at,
             "microbatches that share what they read have the same value: '%s' is the same for all",
             span_text(r->s, l->per->at));
  diag_help(r->s->diag,
            c->mb_var ? "for N at a time: per %s/N"
                      : "for N at a time: weights s, m { ... per m/N }",
            c->mb_var);
}

static void resolve_weights(Resolver *r, Clause *c) {
  Diag *d = r->s->diag;
  VEC(Name) state = {0};
  for (WeightLine *l = c->lines; l; l = l->next) {
    l->clause = c;
    if (l->op)
      weight_op(r, l);
    resolve_expr(r, l->value);
    resolve_expr(r, l->per);
    if (l->per && !(c->mb_var && hint_mentions(l->per, c->mb_var)))
      per_what(r, c, l);
    resolve_expr(r, l->when);
    if (l->word == WW_VERSIONS && c->mb_var && hint_mentions(l->value, c->mb_var))
      diag_error(
          d, DIAG_CLAUSE, l->value->at,
          "a stage has the same number of versions for all microbatches: '%s' cannot stand here",
          c->mb_var);
    FormulaScope scope = {
        r->s,          l, state.at, state.n, r, formula_value, formula_visible, formula_bind,
        formula_unbind};
    if (l->word == WW_STATE && formula_state(&scope, l->state, l->state_at))
      *vec_push(r->s->arena, &state) = l->state;
    if (l->formula)
      formula_resolve(&scope);
    if (l->word == WW_THEN)
      formula_target(&scope);
  }
}

static void resolve_clause(Resolver *r, Clause *c) {
  r->clause = c;
  r->unknown.n = 0;
  if (c->kind == CL_SEND)
    send_shape(r->s, c);
  if (c->kind == CL_TRANSFERS)
    transfers_shape(r->s, c);
  if (c->kind == CL_LET) {
    uint8_t units = units_of(r, c->value);
    c->slot = define_var(r, c->name, c->name_at);
    find(r, c->name)->units = units;
    return;
  }
  if (c->kind == CL_FN) {
    resolve_fn(r, c->fn);
    return;
  }
  if (c->kind == CL_PIPE) {
    Sym *y = c->root ? find(r, c->root) : NULL;
    if (c->root && (!y || y->kind != SY_PIPE)) {
      diag_error(r->s->diag, DIAG_UNKNOWN_NAME, c->root_at, "'%s' is not a pipe", c->root);
      if (!y && !suggest(r, c->root))
        diag_help(r->s->diag, "the pipe that is replicated stands first");
    }
    define(r, c->name, c->name_at, SY_PIPE)->array = c->index != NULL;
    resolve_range(r, &c->range);
  }
  bool late = c->kind == CL_CHECK || c->kind == CL_LIMIT || c->kind == CL_TUNE;
  uint32_t mark = scope_begin(r);
  if (c->index)
    c->index_slot = define_var(r, c->index, c->index_at);
  if (!late && c->kind != CL_EDGE)
    resolve_expr(r, c->value);
  resolve_expr(r, c->mbs);
  resolve_expr(r, c->slices);
  resolve_expr(r, c->tries);
  if (c->kind != CL_PIPE)
    resolve_range(r, &c->range);
  if (c->var)
    c->slot = define_var(r, c->var, c->var_at);
  if (c->kind == CL_EDGE || c->kind == CL_EXCLUSIVE)
    resolve_expr(r, c->value), resolve_expr(r, c->to);
  resolve_args(r, c->args);
  if (c->mb_var)
    c->mb_slot = define_var(r, c->mb_var, c->mb_var_at);
  if (c->kind == CL_LINK)
    resolve_expr(r, c->to);
  resolve_expr(r, c->when);
  resolve_expr(r, c->lead);
  resolve_expr(r, c->place);
  r->in_when = c->kind == CL_LIMIT;
  r->in_check = late && !r->in_when;
  resolve_expr(r, late ? c->value : NULL);
  r->in_check = r->in_when = false;
  if (c->kind == CL_SIDE)
    resolve_side(r, c);
  else
    resolve_entries(r, c);
  resolve_weights(r, c);
  resolve_block(r, c->body, NULL);
  if (c->kind != CL_TUNE) /* its variable is one of the schedule */
    scope_end(r, mark);
}

static void resolve_schedule(Resolver *r, Schedule *sc) {
  Diag *d = r->s->diag;
  r->with_unit = r->plain = NULL;
  r->schedule = sc;
  r->clause = NULL;
  r->unknown.n = 0;
  uint32_t mark = scope_begin(r);
  for (Param *p = sc->params; p; p = p->next) {
    resolve_expr(r, p->init);
    p->slot = define_var(r, p->name, p->at);
  }
  if (sc->base) {
    Sym *y = find(r, sc->base);
    if (!y || y->kind != SY_SCHEDULE) {
      wrong_kind(r, y, sc->base, sc->base_at, "a schedule");
    } else {
      sc->base_def = y->schedule;
    }
    resolve_bind(r, sc->base_args, sc->base_def, sc->base_at);
  }
  for (Require *q = sc->requires; q; q = q->next)
    resolve_expr(r, q->cond);
  r->sliced = false;
  for (const Schedule *b = sc; b; b = b->base_def)
    for (const Clause *c = b->clauses; c; c = c->next)
      r->sliced |= c->slices != NULL;
  for (Require *q = sc->expects; q; q = q->next)
    resolve_expr(r, q->cond);
  for (Clause *c = sc->clauses; c; c = c->next)
    resolve_clause(r, c);
  scope_end(r, mark);
  r->schedule = NULL;
  r->clause = NULL;
  r->unknown.n = 0;
  sc->timed = r->with_unit != NULL;
  if (r->with_unit && r->plain) {
    diag_error(
        d, DIAG_UNIT, r->plain->value->at,
        "'%s' has no unit of time, but '%s' has: all times of a schedule are ns, or all are plain",
        r->plain->key, r->with_unit->key);
    diag_note(d, r->with_unit->at, "the one with a unit");
  }
  define(r, sc->name, sc->name_at, SY_SCHEDULE)->schedule = sc;
}

/* ---- files ---- */

static void resolve_file(Resolver *r, Ast *ast);

static File *load(Resolver *r, Item *it) {
  Sched *s = r->s;
  const char *path = file_find(s, it->path, s->diag->source[it->at.file].path);
  if (!path) {
    diag_error(s->diag, DIAG_IMPORT, it->at, "cannot find \"%s\"", it->path);
    const char *suffixed = arena_printf(s->arena, "%s.pipe", it->path),
               *near = file_find(s, suffixed, s->diag->source[it->at.file].path)
                           ? suffixed
                           : hint_file(s, it->path);
    if (near)
      diag_help(s->diag, "did you mean \"%s\"", near);
    else
      diag_help(s->diag,
                "looked beside this file, in each -I directory and in the standard library");
    return NULL;
  }
  struct stat st;
  if (stat(path, &st) != 0)
    st = (struct stat){0}; /* file_read says why */
  for (File *f = r->files; f; f = f->next)
    if (f->dev == st.st_dev && f->ino == st.st_ino) { /* however it is spelt */
      if (f->done)
        return f->ast ? f : NULL;
      diag_error(
          s->diag, DIAG_IMPORT_LOOP, it->at,
          "\"%s\" is being imported already: a file cannot import itself, directly or through others",
          it->path);
      return NULL;
    }
  uint32_t len;
  char *text = file_read(s, path, it->at, &len);
  if (!text)
    return NULL;
  File *f = NEW(s->arena, File);
  f->dev = st.st_dev, f->ino = st.st_ino;
  f->next = r->files;
  r->files = f;
  uint32_t errors = s->diag->errors;
  f->ast = parse(s->arena, r->in, s->diag, diag_source(s->diag, path, text, len));
  if (s->diag->errors > errors) {
    f->ast = NULL, f->done = true; /* reported once */
    return NULL;
  }
  /* A file sees only itself and what it imports: start from an empty scope. */
  Resolver own = *r;
  own.cap = 64, own.used = 0, own.scope.at = NULL, own.scope.n = own.scope.cap = 0;
  own.table = NEW_ARRAY(s->arena, Sym, own.cap);
  own.depth = r->depth + 1, own.incomplete = false;
  own.unknown.at = NULL, own.unknown.n = own.unknown.cap = 0;
  if (own.depth > 64) {
    diag_error(s->diag, DIAG_IMPORT, it->at, "imports nest deeper than 64 files");
    return NULL;
  }
  resolve_file(&own, f->ast);
  r->files = own.files;
  f->done = true;
  return f;
}

static void resolve_import(Resolver *r, Item *it) {
  File *f = load(r, it);
  if (!f) {
    r->incomplete = true;
    return;
  }
  for (Item *e = f->ast->items; e; e = e->next) {
    Name name = e->kind == IT_LET        ? e->name
                : e->kind == IT_FN       ? e->fn->name
                : e->kind == IT_SCHEDULE ? e->schedule->name
                                         : NULL;
    if (!name)
      continue;
    Span at = e->kind == IT_LET  ? e->name_at
              : e->kind == IT_FN ? e->fn->name_at
                                 : e->schedule->name_at;
    Sym *old = find(r, name);
    if (old && old->at.file == at.file && old->at.beg == at.beg)
      continue; /* the same file twice */
    if (old) {
      diag_error(r->s->diag, DIAG_REDEFINED, it->at,
                 "\"%s\" defines '%s', which is already defined", it->path, name);
      diag_note(r->s->diag, at, "the imported one");
      if (old->kind != SY_BUILTIN)
        diag_note(r->s->diag, old->at, "the other one");
      continue;
    }
    Sym *y = define(r, name, at,
                    e->kind == IT_LET  ? SY_VAR
                    : e->kind == IT_FN ? SY_FN
                                       : SY_SCHEDULE);
    if (e->kind == IT_LET)
      y->slot = e->slot, y->units = e->units;
    else if (e->kind == IT_FN)
      y->fn = e->fn;
    else
      y->schedule = e->schedule;
  }
  it->imported = f->ast;
}

static void resolve_file(Resolver *r, Ast *ast) {
  r->file = ast;
  for (uint32_t i = 0; i < sizeof builtins / sizeof *builtins; i++)
    define(r, intern(r->in, builtins[i].name, strlen(builtins[i].name)), NO_SPAN, SY_BUILTIN)
        ->builtin = builtins[i].b;
  for (Item *it = ast->items; it; it = it->next)
    switch (it->kind) {
    case IT_IMPORT: resolve_import(r, it); break;
    case IT_FN: resolve_fn(r, it->fn); break;
    case IT_SCHEDULE: resolve_schedule(r, it->schedule); break;
    case IT_LET:
      it->units = units_of(r, it->value);
      it->slot = define_var(r, it->name, it->name_at);
      find(r, it->name)->units = it->units;
      break;
    }
}

bool resolve(Sched *s) {
  Ast *ast = s->tree;
  Resolver r = {.s = s, .in = s->names, .cap = 64};
  r.table = NEW_ARRAY(s->arena, Sym, r.cap);
  for (int k = 0; k < PIPE_NOPS; k++)
    r.op_name[k] = (pipe_op_info[k].comm && !pipe_is_sum((uint32_t)k)) || pipe_is_side((uint32_t)k)
                       ? NULL
                       : intern(s->names, pipe_op_info[k].text, strlen(pipe_op_info[k].text));
  const char *path = s->diag->source[ast->file].path;
  struct stat st;
  File main_file = {.ast = ast};
  if (!s->opt->text && stat(path, &st) == 0)
    main_file.dev = st.st_dev, main_file.ino = st.st_ino;
  r.files = &main_file;
  resolve_file(&r, ast);
  Schedule *last = NULL, *named = NULL;
  for (Item *it = ast->items; it; it = it->next)
    if (it->kind == IT_SCHEDULE) {
      last = it->schedule;
      if (s->opt->schedule && strcmp(last->name, s->opt->schedule) == 0)
        named = last;
    }
  s->def = s->opt->schedule ? named : last;
  if (s->diag->errors)
    return false;
  if (!s->def && s->opt->schedule) {
    const char *list = "";
    for (Item *it = ast->items; it; it = it->next)
      if (it->kind == IT_SCHEDULE)
        list = arena_printf(s->arena, "%s%s%s", list, *list ? ", " : "", it->schedule->name);
    diag_error(s->diag, DIAG_NO_SCHEDULE, NO_SPAN, "%s has no schedule '%s'", path,
               s->opt->schedule);
    diag_help(s->diag, *list ? "its own schedules are %s" : "it has none of its own%s", list);
  } else if (!s->def)
    diag_error(s->diag, DIAG_NO_SCHEDULE, NO_SPAN, "%s defines no schedule", path);
  if (s->diag->errors)
    return false;
  for (const Schedule *sc = s->def; sc; sc = sc->base_def)
    s->timed |= sc->timed;
  s->env = NEW_ARRAY(s->arena, int64_t, s->nslot + 1);
  return eval_lets(s, ast);
}
