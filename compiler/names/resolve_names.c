/* SPDX-License-Identifier: MIT
 * The symbol table of resolve: maps an interned name to its symbol, with an undo list for each
 * scope. Reports names that are unknown or of a wrong kind where they stand. Cost: linear in the
 * text. */
#include <string.h>

#include "habits.h"
#include "hints.h"
#include "resolve.h"

static Sym *slot_of(Sym *table, uint32_t cap, Name name) {
  uint64_t h = (uint64_t)(uintptr_t)name * 0x9e3779b97f4a7c15u;
  for (uint32_t i = (uint32_t)(h >> 32) & (cap - 1);; i = (i + 1) & (cap - 1))
    if (table[i].name == name || !table[i].name)
      return &table[i];
}

Sym *sym_find(Resolver *r, Name name) {
  Sym *y = slot_of(r->table, r->cap, name);
  return y->name && y->kind != SY_NONE ? y : NULL;
}

Sym *sym_define(Resolver *r, Name name, Span at, SymKind kind) {
  Sym *old = sym_find(r, name);
  if (old) {
    diag_error(r->s->diag, DIAG_REDEFINED, at, "'%s' is already defined%s", name,
               old->kind == SY_BUILTIN ? " by the language" : "");
    if (old->kind != SY_BUILTIN)
      diag_note(r->s->diag, old->at, "defined here");
    /* Continue with the new meaning, so that one mistake is one error. */
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

uint32_t sym_define_var(Resolver *r, Name name, Span at) {
  Sym *y = sym_define(r, name, at, SY_VAR);
  y->depends = false;
  return y->slot = r->parsed->nslot++;
}

uint32_t sym_scope_begin(Resolver *r) { return r->scope.n; }

void sym_scope_end(Resolver *r, uint32_t mark) {
  while (r->scope.n > mark)
    slot_of(r->table, r->cap, r->scope.at[--r->scope.n])->kind = SY_NONE;
}

/* ---- did you mean ---- */

bool sym_suggest(Resolver *r, Name name) {
  if (r->s->diag->muted)
    return true; /* it would not be printed; skipping it keeps many errors linear */
  for (uint32_t i = r->scope.n; i-- > 0;) {
    Sym *y = sym_find(r, r->scope.at[i]);
    if (y && hint_near(name, y->name)) {
      diag_help(r->s->diag, "did you mean '%s'", y->name);
      return true;
    }
  }
  return false;
}

/* Prints the one help or note for an unknown name. */
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
    diag_help(s->diag,
              "a schedule sees only what is defined before it, so it cannot extend itself");
    return;
  }
  if (strcmp(wanted, "a schedule") == 0 && hint_file_name(s, name, at))
    return;
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
  else if (value && sc && r->clause &&
           (hint_rank(s, sc, r->clause, name) || hint_names(s, r->clause, name)))
    return;
  else if (r->kernel && value)
    diag_help(s->diag, "the index of this kernel is '%s'", r->kernel->name);
  else if (r->unnamed && value && strlen(name) <= 2 &&
           !hint_elsewhere(s, r->file, sc, r->clause, name, at))
    diag_help(s->diag, "'do %s in a..b { ... }' or 'steady %s { ... }' around it gives '%s' values",
              name, name, name);
  else if (r->unnamed && value && strlen(name) <= 2)
    return;
  else if (sym_suggest(r, name) || hint_elsewhere(s, r->file, sc, r->clause, name, at))
    return;
  else if (strcmp(wanted, "a schedule") == 0 && hint_library(s, name, at))
    return;
  else if (op)
    diag_help(s->diag, "the ops are F, B, I, W, R, U, OFF and LOAD; 'op %s(m) = ...' defines one",
              name);
  else if (r->in_check && strstr(wanted, "function"))
    diag_help(
        s->diag,
        "a check can use inflight(r) held(r) kept(r) warmup_depth(r) memory(r) staleness(r) discrepancy(r) "
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

void sym_wrong_kind(Resolver *r, const Sym *y, Name name, Span at, const char *wanted) {
  Diag *d = r->s->diag;
  if (y) {
    diag_error(d, DIAG_UNKNOWN_NAME, at, "'%s' is %s, not %s", name, kind_text(y), wanted);
    if (y->kind != SY_BUILTIN)
      diag_note(d, y->at, "defined here");
    else if (r->clause && r->clause->kind == CL_WEIGHTS && hint_weights(r->s, r->clause, name))
      return;
    else if (strcmp(wanted, "a value") == 0 && y->builtin >= BI_INFLIGHT &&
             y->builtin < BI_MAKESPAN)
      diag_help(d, "name the rank: %s(r)", name);
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
