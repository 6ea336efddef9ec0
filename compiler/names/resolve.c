/* SPDX-License-Identifier: MIT
 * Resolves names: clauses, schedules and imports. Requires a parsed tree. Ensures:
 *
 *   - every variable has its own slot of Eval.env (there is no recursion, so one slot is enough);
 *   - every call has its fn or builtin, every op its kind or macro;
 *   - imports are parsed and resolved, and Parsed.def is the schedule to compile.
 *
 * A name has one visible meaning at a time (resolve_names.c). */
#include <string.h>
#include <sys/stat.h>

#include "base.h"
#include "formula_names.h"
#include "hints.h"
#include "resolve.h"

const char *const cost_key[NENTRIES] = {
    "F",      "B",    "I",    "W",    "R",       "U",         "FB",          "send",
    "reduce", "OFF",  "LOAD", "act",  "gout",    "boundary",  "weight",      "grad",
    "opt",    "work", "edge", "tied", "latency", "bandwidth", "sum_latency", "sum_bandwidth"};

typedef struct File {
  dev_t dev;
  ino_t ino;
  Ast *ast;
  bool done;
  struct File *next;
} File;

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

/* ---- schedules ---- */

/* Checks that bytes are not given in time and times not in bytes. Notes the first time with a unit
 * and the first without, because all times of a schedule have a unit, or none has. */
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

/* Resolves the entries of a side op: cost is a time, memory a size. */
static void resolve_side(Resolver *r, Clause *c) {
  Clause as = {.kind = CL_TIME};
  side_shape(r->s, c);
  for (Entry *e = c->entries; e; e = e->next) {
    as.kind = strcmp(e->key, "cost") == 0 ? CL_TIME : CL_BYTES;
    check_unit(r, &as, e, resolve_units(r, e->value));
  }
}

/* Checks the microbatch, slice and rank that a time depends on. A row of the stage table belongs to
 * one rank; transfers and sums belong to several rows, so they cannot depend on the rank. U applies
 * the gradients of all microbatches, so it cannot depend on one. */
static void check_dependence(Resolver *r, const Clause *c, Entry *e, int k) {
  bool of_op = k <= KEY_R || k == KEY_FB || k == KEY_OFF || k == KEY_LOAD;
  bool by_mb = c->mb_var && hint_mentions(e->value, c->mb_var);
  e->by_unit = by_mb || (c->slice_var && hint_mentions(e->value, c->slice_var));
  bool by_rank = c->rank_var && hint_mentions(e->value, c->rank_var);
  if (c->kind != CL_TIME || (e->by_unit ? of_op : !by_rank || of_op || k == KEY_U))
    return;
  diag_error(r->s->diag, DIAG_CLAUSE, e->key_at, "'%s' cannot depend on the %s", e->key,
             by_mb        ? "microbatch"
             : e->by_unit ? "slice"
                          : "rank");
  diag_help(r->s->diag, "F B I W R FB OFF LOAD can%s",
            !e->by_unit ? ", and U: a transfer and a sum are of several ranks" : "");
}

/* Refuses `time s, q` with slices: the second name is the microbatch, but once was the slice. */
static void check_time_names(Resolver *r, const Clause *c) {
  if (r->sliced && c->mb_var && !c->slice_var) {
    diag_error(r->s->diag, DIAG_CLAUSE, c->mb_var_at,
               "with slices a time has three names: stage, microbatch and slice");
    diag_help(r->s->diag, "write 'time s, m, q { ... }': q is the slice");
  } else if (!r->sliced && c->slice_var) {
    diag_error(r->s->diag, DIAG_CLAUSE, c->slice_var_at,
               "the third name is the slice, but the pipe has no slices");
    diag_help(r->s->diag, "write 'time %s, %s { ... }'", c->var, c->mb_var);
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
               resolve_units(r, e->value));
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
      check_dependence(r, c, e, k);
      warn_rounded(r, e->value, c->kind == CL_TIME && strstr(e->key, "bandwidth") == NULL);
    }
  }
}

/* Finds the op of a line of `weights`. False: reported. */
static bool weight_op(Resolver *r, WeightLine *l) {
  Diag *d = r->s->diag;
  static const char *const word[] = {"reads", "applies", "rate", "then"};
  int op = -1;
  for (int k = 0; k < PIPE_NOPS; k++)
    op = l->op == r->op_name[k] ? k : op;
  l->kind = (int8_t)op;
  if (op == PIPE_F && l->word == WW_READS && l->source == WS_FORWARD) {
    diag_error(d, DIAG_CLAUSE, l->source_at,
               "a forward reads the newest version, or a version by number");
    diag_help(d, "write 'F reads newest' or 'F reads e'; only B, I and R may read F");
    return false;
  }
  if (l->word == WW_READS ? op == PIPE_F || op == PIPE_B || op == PIPE_I || op == PIPE_R
                          : op == PIPE_U)
    return true;
  diag_error(d, DIAG_CLAUSE, l->op_at, "'%s %s' is no line of 'weights'", l->op, word[l->word]);
  diag_help(d,
            l->word != WW_READS ? "only U has '%s'"
            : op == PIPE_W      ? "W reads no weights, only its stash and the gradient from I%.0s"
            : op == PIPE_U      ? "U always reads the newest version and makes the next%.0s"
                                : "F, B, I and R read weights%.0s",
            word[l->word]);
  return false;
}

/* The functions that formula_names.c calls through FormulaScope. */
static void formula_value(void *self, Expr *e) { resolve_expr(self, e); }
static bool formula_visible(void *self, Name name, Span *at) {
  Sym *y = sym_find(self, name);
  if (!y || (y->kind == SY_BUILTIN && y->builtin > BI_MAX))
    return false;
  *at = y->at;
  return true;
}
static uint32_t formula_bind(void *self, Name name, Span at) {
  return sym_define_var(self, name, at);
}
static void formula_unbind(void *self) {
  Resolver *r = self;
  sym_scope_end(r, r->scope.n - 1);
}

/* Reports a `per` with one value for all microbatches, unless an unknown name explains it. */
static void per_what(Resolver *r, const Clause *c, const WeightLine *l) {
  if (r->unknown.n > 0)
    return;
  diag_error(r->s->diag, DIAG_CLAUSE, l->per->at,
             "'per' groups microbatches by value, but '%s' has one value for all microbatches",
             span_text(r->s, l->per->at));
  diag_help(r->s->diag,
            c->mb_var ? "to group N microbatches, write per %s/N"
                      : "to group N microbatches, write weights s, m { ... per m/N }",
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
          "a stage has the same number of versions for all microbatches: leave '%s' out of this value",
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
    uint8_t units = resolve_units(r, c->value);
    c->slot = sym_define_var(r, c->name, c->name_at);
    sym_find(r, c->name)->units = units;
    return;
  }
  if (c->kind == CL_FN) {
    resolve_fn(r, c->fn);
    return;
  }
  if (c->kind == CL_PIPE) {
    Sym *y = c->root ? sym_find(r, c->root) : NULL;
    if (c->root && (!y || y->kind != SY_PIPE)) {
      diag_error(r->s->diag, DIAG_UNKNOWN_NAME, c->root_at, "'%s' is not a pipe", c->root);
      if (!y && c->root == c->name)
        diag_help(
            r->s->diag,
            c->index
                ? "the pipes of an array are replicas of its first pipe: leave 'replica of' out"
                : "a pipe is no replica of itself: leave 'replica of' out");
      else if (!y && !sym_suggest(r, c->root))
        diag_help(r->s->diag, "write the replicated pipe first");
    }
    sym_define(r, c->name, c->name_at, SY_PIPE)->array = c->index != NULL;
    resolve_range(r, &c->range);
  }
  bool late = c->kind == CL_CHECK || c->kind == CL_LIMIT || c->kind == CL_TUNE;
  uint32_t mark = sym_scope_begin(r);
  if (c->index)
    c->index_slot = sym_define_var(r, c->index, c->index_at);
  if (!late && c->kind != CL_EDGE)
    resolve_expr(r, c->value);
  resolve_expr(r, c->mbs);
  resolve_expr(r, c->slices);
  resolve_expr(r, c->tries);
  if (c->kind != CL_PIPE)
    resolve_range(r, &c->range);
  if (c->var)
    c->slot = sym_define_var(r, c->var, c->var_at);
  if (c->kind == CL_EDGE || c->kind == CL_EXCLUSIVE)
    resolve_expr(r, c->value), resolve_expr(r, c->to);
  resolve_args(r, c->args);
  if (c->mb_var)
    c->mb_slot = sym_define_var(r, c->mb_var, c->mb_var_at);
  if (c->slice_var)
    c->slice_slot = sym_define_var(r, c->slice_var, c->slice_var_at);
  if (c->rank_var)
    c->rank_slot = sym_define_var(r, c->rank_var, c->rank_var_at);
  if (c->kind == CL_TIME)
    check_time_names(r, c);
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
  if (c->kind != CL_TUNE) /* the variable of `tune` belongs to the schedule */
    sym_scope_end(r, mark);
}

static void resolve_schedule(Resolver *r, Schedule *sc) {
  Diag *d = r->s->diag;
  r->with_unit = r->plain = NULL;
  r->schedule = sc;
  r->clause = NULL;
  r->unknown.n = 0;
  uint32_t mark = sym_scope_begin(r);
  for (Param *p = sc->params; p; p = p->next) {
    resolve_expr(r, p->init);
    p->slot = sym_define_var(r, p->name, p->at);
  }
  if (sc->base) {
    Sym *y = sym_find(r, sc->base);
    if (!y || y->kind != SY_SCHEDULE) {
      sym_wrong_kind(r, y, sc->base, sc->base_at, "a schedule");
    } else {
      sc->base_def = y->schedule, y->schedule->part = true;
    }
    resolve_bind(r, sc->base_args, sc->base_def, sc->base_at);
  }
  for (Require *q = sc->requires; q; q = q->next)
    resolve_expr(r, q->cond);
  r->sliced = false;
  for (const Schedule *b = sc; b; b = b->base_def)
    for (const Clause *c = b->clauses; c; c = c->next)
      r->sliced |= c->slices != NULL;
  for (Clause *c = sc->clauses; c; c = c->next)
    resolve_clause(r, c);
  sym_scope_end(r, mark);
  r->schedule = NULL;
  r->clause = NULL;
  r->unknown.n = 0;
  sc->timed = r->with_unit != NULL;
  if (r->with_unit && r->plain) {
    diag_error(
        d, DIAG_UNIT, r->plain->value->at,
        "'%s' has no unit of time, but '%s' has one: give all times of a schedule a unit, or no time",
        r->plain->key, r->with_unit->key);
    diag_note(d, r->with_unit->at, "this time has a unit");
  }
  sym_define(r, sc->name, sc->name_at, SY_SCHEDULE)->schedule = sc;
}

/* Lists the other schedules of the file that could be compiled and are not part of another
 * schedule. */
static void find_unchecked(Sched *s, Parsed *parsed, const Ast *ast) {
  enum { SHOWN = 3 };
  const char *names = "";
  uint32_t n = 0;
  for (const Item *it = ast->items; it; it = it->next) {
    const Schedule *sc = it->kind == IT_SCHEDULE ? it->schedule : NULL;
    bool other = sc && sc != s->parsed->def && !sc->part;
    for (const Param *p = other ? sc->params : NULL; p; p = p->next)
      other &= p->init != NULL;
    if (other && n++ < SHOWN)
      names = arena_printf(s->arena, "%s%s%s (--schedule=%s)", names, n > 1 ? ", " : "", sc->name,
                           sc->name);
  }
  if (n > 0)
    parsed->unchecked = arena_printf(
        s->arena, "%u other schedule%s of this file: %s%s", n, n == 1 ? "" : "s", names,
        n > SHOWN ? arena_printf(s->arena, " and %u more", n - SHOWN) : "");
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
    st = (struct stat){0}; /* file_read reports the reason */
  for (File *f = r->files; f; f = f->next)
    if (f->dev == st.st_dev && f->ino == st.st_ino) { /* also under another path */
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
  /* A file sees only itself and its imports, so start with an empty scope. */
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
    Sym *old = sym_find(r, name);
    if (old && old->at.file == at.file && old->at.beg == at.beg)
      continue; /* one definition, imported twice */
    if (old) {
      diag_error(r->s->diag, DIAG_REDEFINED, it->at,
                 "\"%s\" defines '%s', which is already defined", it->path, name);
      diag_note(r->s->diag, at, "the imported definition");
      if (old->kind != SY_BUILTIN)
        diag_note(r->s->diag, old->at, "the other definition");
      continue;
    }
    Sym *y = sym_define(r, name, at,
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
    sym_define(r, intern(r->in, builtins[i].name, strlen(builtins[i].name)), NO_SPAN, SY_BUILTIN)
        ->builtin = builtins[i].b;
  for (Item *it = ast->items; it; it = it->next)
    switch (it->kind) {
    case IT_IMPORT: resolve_import(r, it); break;
    case IT_FN: resolve_fn(r, it->fn); break;
    case IT_SCHEDULE: resolve_schedule(r, it->schedule); break;
    case IT_LET:
      it->units = resolve_units(r, it->value);
      it->slot = sym_define_var(r, it->name, it->name_at);
      sym_find(r, it->name)->units = it->units;
      break;
    }
}

bool resolve(Sched *s, Parsed *parsed) {
  Ast *ast = parsed->tree;
  Resolver r = {.s = s, .parsed = parsed, .in = parsed->names, .cap = 64};
  r.table = NEW_ARRAY(s->arena, Sym, r.cap);
  for (int k = 0; k < PIPE_NOPS; k++)
    r.op_name[k] = pipe_op_info[k].comm || pipe_is_side((uint32_t)k)
                       ? NULL
                       : intern(parsed->names, pipe_op_info[k].text, strlen(pipe_op_info[k].text));
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
  parsed->def = s->opt->schedule ? named : last;
  if (s->diag->errors)
    return false;
  if (!parsed->def && s->opt->schedule) {
    const char *list = "";
    for (Item *it = ast->items; it; it = it->next)
      if (it->kind == IT_SCHEDULE)
        list = arena_printf(s->arena, "%s%s%s", list, *list ? ", " : "", it->schedule->name);
    diag_error(s->diag, DIAG_NO_SCHEDULE, NO_SPAN, "%s has no schedule '%s'", path,
               s->opt->schedule);
    diag_help(s->diag,
              *list ? "the schedules of the file are %s" : "the file defines no schedule%s", list);
  } else if (!parsed->def)
    diag_error(s->diag, DIAG_NO_SCHEDULE, NO_SPAN, "%s defines no schedule", path);
  if (s->diag->errors)
    return false;
  s->eval.env = NEW_ARRAY(s->arena, int64_t, parsed->nslot + 1);
  if (!s->opt->schedule)
    find_unchecked(s, parsed, ast);
  return eval_lets(s, ast);
}
