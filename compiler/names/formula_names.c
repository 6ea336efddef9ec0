/* SPDX-License-Identifier: MIT
 * Resolves the names in formulas: names that every formula knows, states, and values of the
 * schedule. The kind of line decides which arrays exist. */
#include <string.h>

#include "formula_names.h"
#include "hints.h"

static const struct {
  const char *text;
  uint8_t name;
  bool reads, applies, rate, then; /* lines that know it */
  const char *what;
} names[] = {
    {"w", FO_W, true, true, false, true, "the weights"},
    {"old", FO_OLD, false, false, false, true, "the weights before the update"},
    {"g", FO_G, false, true, false, false, "the gradient that the update applies"},
    {"v", FO_V, true, true, false, true, "the optimizer's first moment"},
    {"v2", FO_V2, true, true, false, true, "the optimizer's second moment"},
    {"lr", FO_LR, true, true, true, true, "the model's learning rate"},
    {"k", FO_K, true, true, true, true, "the updates so far"},
    {"delay", FO_DELAY, true, true, true, true, "the staleness of the stage"},
    {"behind", FO_BEHIND, true, true, true, true,
     "updates between the versions of F and of this op"},
    {"ahead", FO_AHEAD, true, false, false, false, "updates up to that of its gradient"},
    {"n", FO_N, false, true, true, true, "the microbatches of the update, or their slices"},
};
enum { NNAMES = sizeof names / sizeof *names };

static int find_name(Name name) {
  for (int i = 0; i < NNAMES; i++)
    if (strcmp(names[i].text, name) == 0)
      return i;
  return -1;
}

static bool known(int i, WeightWord word) {
  return word == WW_READS     ? names[i].reads
         : word == WW_APPLIES ? names[i].applies
         : word == WW_RATE    ? names[i].rate
                              : names[i].then;
}

static bool is_array(uint8_t name) { return name == FO_STATE || (name >= FO_W && name <= FO_V2); }

static bool is_state(const FormulaScope *f, Name name) {
  for (uint32_t i = 0; i < f->nstate; i++)
    if (f->state[i] == name)
      return true;
  return false;
}

/* Lists the names that this line knows, "w old g v v2 lr k delay behind n", then the states. */
static const char *all_names(const FormulaScope *f) {
  const char *list = "";
  for (int i = 0; i < NNAMES; i++)
    if (known(i, f->line->word))
      list = arena_printf(f->s->arena, "%s%s%s", list, *list ? " " : "", names[i].text);
  for (uint32_t i = 0; i < f->nstate && i < 8 && f->line->word != WW_RATE; i++)
    list = arena_printf(f->s->arena, "%s %s", list, f->state[i]);
  return list;
}

static const char *line_word(const FormulaScope *f) {
  switch (f->line->word) {
  case WW_READS: return "what an op reads";
  case WW_APPLIES: return "what U applies";
  case WW_RATE: return "a rate";
  default: return "a state";
  }
}

static void no_array(const FormulaScope *f, const Expr *e) {
  diag_error(f->s->diag, DIAG_FORMULA, e->at,
             "'%s' has an element for each weight, but a rate is one number", e->name);
  diag_help(f->s->diag, "a rate can use %s; 'U applies' scales single elements", all_names(f));
}

static bool declared_below(const FormulaScope *f, Name name, Span at) {
  for (const WeightLine *l = f->line->next; l; l = l->next)
    if (l->word == WW_STATE && l->state == name) {
      diag_error(f->s->diag, DIAG_UNKNOWN_NAME, at, "'%s' is used before it is a state", name);
      diag_note(f->s->diag, l->at, "declared here");
      diag_help(f->s->diag, "move 'state %s' above the lines that use it", name);
      return true;
    }
  return false;
}

/* Resolves a name: of formulas, a state, or a value of the schedule. */
static void resolve_name(const FormulaScope *f, Expr *e) {
  Diag *d = f->s->diag;
  int i = find_name(e->name);
  Span at;
  bool state = is_state(f, e->name);
  if (i < 0 && !state) {
    e->builtin = FO_VALUE;
    if (f->visible(f->self, e->name, &at)) {
      f->value(f->self, e);
      return;
    }
    if (declared_below(f, e->name, e->at))
      return;
    diag_error(d, DIAG_UNKNOWN_NAME, e->at, "unknown name '%s'", e->name);
    for (int k = 0; k < NNAMES; k++)
      if (known(k, f->line->word) && strlen(names[k].text) > 1 &&
          hint_near(e->name, names[k].text)) {
        diag_help(d, "did you mean '%s'", names[k].text);
        return;
      }
    diag_help(
        d,
        "the formula can use %s, and values of the schedule; 'state %s' above this line makes a state",
        all_names(f), e->name);
    return;
  }
  e->builtin = state ? FO_STATE : names[i].name;
  if (f->line->word == WW_RATE && is_array(e->builtin)) {
    no_array(f, e);
  } else if (!state && !known(i, f->line->word)) {
    diag_error(d, DIAG_FORMULA, e->at, "%s cannot depend on '%s', %s", line_word(f), e->name,
               names[i].what);
    diag_help(d, "the formula can use %s", all_names(f));
  } else if (f->visible(f->self, e->name, &at)) {
    diag_error(d, DIAG_REDEFINED, e->at, "'%s' is %s in formulas, and a name of the schedule",
               e->name, state ? "a state" : names[i].what);
    diag_note(d, at, "defined here");
  }
}

static void resolve_part(const FormulaScope *f, Expr *e);

/* Resolves sum(j, a, b, e); j is visible in e only. */
static void resolve_sum(const FormulaScope *f, Expr *e, uint32_t given) {
  Arg *j = e->args;
  e->slot = FORMULA_SUM;
  if (given != 4 || j->value->kind != EX_NAME) {
    diag_error(f->s->diag, DIAG_ARITY, e->at,
               "'sum' takes a new name, two ends and a term: sum(j, 0, delay, e)");
    return;
  }
  resolve_part(f, j->next->value);
  resolve_part(f, j->next->next->value);
  int i = find_name(j->value->name);
  if (i >= 0 || is_state(f, j->value->name)) {
    diag_error(f->s->diag, DIAG_REDEFINED, j->value->at, "'%s' is %s in formulas", j->value->name,
               i >= 0 ? names[i].what : "a state");
    return;
  }
  j->value->slot = f->bind(f->self, j->value->name, j->value->at);
  resolve_part(f, j->next->next->next->value);
  f->unbind(f->self);
}

static void resolve_call(const FormulaScope *f, Expr *e) {
  static const struct {
    const char *text;
    uint8_t term, operands;
  } functions[] = {{"abs", PIPE_TERM_ABS, 1},     {"sqrt", PIPE_TERM_SQRT, 1},
                   {"exp", PIPE_TERM_EXP, 1},     {"log", PIPE_TERM_LOG, 1},
                   {"floor", PIPE_TERM_FLOOR, 1}, {"pow", PIPE_TERM_POW, 2},
                   {"min", PIPE_TERM_MIN, 0},     {"max", PIPE_TERM_MAX, 0}};
  Diag *d = f->s->diag;
  Span at;
  uint32_t given = 0;
  for (Arg *a = e->args; a; a = a->next) {
    given++;
    if (a->key) {
      diag_error(d, DIAG_ARITY, a->key_at, "'%s' takes no named arguments", e->name);
      return;
    }
  }
  if (strcmp(e->name, "sum") == 0) {
    resolve_sum(f, e, given);
    return;
  }
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    if (strcmp(e->name, functions[i].text) != 0)
      continue;
    uint32_t want = functions[i].operands;
    e->slot = functions[i].term;
    for (Arg *a = e->args; a; a = a->next)
      resolve_part(f, a->value);
    if (want ? given != want : given == 0)
      diag_error(d, DIAG_ARITY, e->at, "'%s' takes %u argument%s%s, got %u", e->name,
                 want ? want : 1, want == 2 ? "s" : "", want ? "" : " or more", given);
    return;
  }
  e->slot = FORMULA_INTEGER;
  if (f->visible(f->self, e->name, &at)) {
    f->value(f->self, e);
    return;
  }
  diag_error(d, DIAG_UNKNOWN_NAME, e->name_at, "unknown function '%s'", e->name);
  diag_help(
      d, "a formula can use abs sqrt exp log floor pow min max sum, and functions of the schedule");
}

static void resolve_part(const FormulaScope *f, Expr *e) {
  if (!e)
    return;
  switch (e->kind) {
  case EX_REAL: return;
  case EX_NAME: resolve_name(f, e); return;
  case EX_CALL: resolve_call(f, e); return;
  case EX_MOD: f->value(f->self, e); return; /* % has integers only */
  case EX_INT:
    if (e->unit != 0)
      diag_error(f->s->diag, DIAG_FORMULA, e->at, "a number in a formula has no unit");
    return;
  default:
    resolve_part(f, e->a);
    resolve_part(f, e->b);
    resolve_part(f, e->c);
  }
}

void formula_resolve(const FormulaScope *f) { resolve_part(f, f->line->formula); }

bool formula_state(const FormulaScope *f, Name name, Span at) {
  int i = find_name(name);
  Span first;
  if (i >= 0) {
    diag_error(f->s->diag, DIAG_REDEFINED, at, "'%s' is %s in formulas", name, names[i].what);
  } else if (is_state(f, name)) {
    diag_error(f->s->diag, DIAG_REDEFINED, at, "'%s' is a state already", name);
  } else if (f->visible(f->self, name, &first)) {
    diag_error(f->s->diag, DIAG_REDEFINED, at, "'%s' is already defined", name);
    diag_note(f->s->diag, first, "defined here");
  } else {
    return true;
  }
  return false;
}

void formula_target(const FormulaScope *f) {
  Diag *d = f->s->diag;
  Name name = f->line->state;
  Span at = f->line->state_at;
  if (is_state(f, name) || declared_below(f, name, at))
    return;
  int i = find_name(name);
  if (i >= 0)
    diag_error(d, DIAG_FORMULA, at, "'%s' is %s: 'then' sets states", name, names[i].what);
  else
    diag_error(d, DIAG_UNKNOWN_NAME, at, "'%s' is no state", name);
  diag_help(d, "'state %s' above this line makes one", i >= 0 ? "d" : name);
}
