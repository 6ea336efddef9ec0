/* SPDX-License-Identifier: MIT
 * Writes formulas, rules and states of a program as text, C and JSON. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "evaluate.h"
#include "emit_formulas.h"
#include "weights.h"

static const char *real_name(uint32_t arg) { return arg == PIPE_REAL_LR ? "lr" : "k"; }

/* The shortest text that reads as the same double. */
static const char *double_text(Sched *s, double v) {
  char text[40];
  if (v == floor(v) && fabs(v) < 1e15)
    return arena_printf(s->arena, "%.0f", v);
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, v);
    if (strtod(text, NULL) == v)
      break;
  }
  return arena_printf(s->arena, "%s", text);
}

/* The precedence of an operator; a higher number binds tighter. */
static int binds(uint32_t op) {
  switch (op) {
  case PIPE_TERM_COND: return 0;
  case PIPE_TERM_OR: return 1;
  case PIPE_TERM_AND: return 2;
  case PIPE_TERM_LT:
  case PIPE_TERM_LE:
  case PIPE_TERM_GT:
  case PIPE_TERM_GE:
  case PIPE_TERM_EQ:
  case PIPE_TERM_NE: return 3;
  case PIPE_TERM_ADD:
  case PIPE_TERM_SUB: return 4;
  case PIPE_TERM_MUL:
  case PIPE_TERM_DIV: return 5;
  case PIPE_TERM_NEG:
  case PIPE_TERM_NOT: return 6;
  default: return 7;
  }
}

typedef struct Piece {
  const char *text;
  int binds;
} Piece;

static const char *bracket(Sched *s, Piece p, int least) {
  return p.binds < least ? arena_printf(s->arena, "(%s)", p.text) : p.text;
}

static Piece piece(Sched *s, const PipeTerm *t, const Piece *x) {
  static const char *const elem[] = {"w", "old", "g", "v", "v2"};
  const char *text = pr_term_text[t->op];
  int level = binds(t->op);
  switch (t->op) {
  case PIPE_TERM_CONST: return (Piece){double_text(s, t->value), signbit(t->value) ? 6 : level};
  case PIPE_TERM_REAL: return (Piece){real_name(t->arg), level};
  case PIPE_TERM_ELEM:
    return (Piece){t->arg < PIPE_ELEM_STATE ? elem[t->arg]
                                            : s->versions->state[t->arg - PIPE_ELEM_STATE],
                   level};
  case PIPE_TERM_COND:
    return (Piece){
        arena_printf(s->arena, "%s ? %s : %s", bracket(s, x[0], 1), x[1].text, x[2].text), level};
  default: break;
  }
  if (level == 6)
    return (Piece){arena_printf(s->arena, "%s%s", text, bracket(s, x[0], 7)), level};
  if (level == 7)
    return (Piece){pr_term_operands[t->op] == 1
                       ? arena_printf(s->arena, "%s(%s)", text, x[0].text)
                       : arena_printf(s->arena, "%s(%s, %s)", text, x[0].text, x[1].text),
                   level};
  return (Piece){arena_printf(s->arena, "%s %s %s", bracket(s, x[0], level == 3 ? 4 : level), text,
                              bracket(s, x[1], level + 1)),
                 level};
}

/* The formula as in a .pipe text, with its constants: "w - 3 * d". */
static const char *formula_text(Sched *s, const PipeFormula *f) {
  Piece stack[PIPE_FORMULA_DEPTH + 3] = {{NULL, 0}};
  uint32_t depth = 0;
  for (uint32_t i = 0; i < f->n; i++) {
    depth -= pr_term_operands[f->term[i].op];
    stack[depth] = piece(s, &f->term[i], &stack[depth]);
    depth++;
  }
  return stack[0].text;
}

/* ---- text ---- */

static const char *rule_text(Sched *s, const PipeRule *r) {
  const char *text = "";
  if (r->applies != NONE)
    text = arena_printf(s->arena, " applies %u", r->applies);
  if (r->rate != NONE)
    text = arena_printf(s->arena, "%s rate %u", text, r->rate);
  for (uint32_t i = 0; i < r->nthen; i++) {
    const PipeThen *t = &s->versions->then[r->then0 + i];
    text = arena_printf(s->arena, "%s then %s = %u", text, s->versions->state[t->state],
                        t->formula);
  }
  return text;
}

void dump_formulas(Sched *s, FILE *f) {
  if (s->versions->nformula == 0)
    fputs("no formulas\n", f);
  for (uint32_t i = 0; i < s->versions->nformula; i++)
    fprintf(f, "formula %u: %s\n", i, formula_text(s, &s->versions->formula[i]));
  for (uint32_t i = 0; i < s->versions->nrule; i++)
    fprintf(f, "rule %u:%s\n", i, rule_text(s, &s->versions->rule[i]));
  for (uint32_t st = 0; s->versions->nstate && st < s->model->nstage; st++) {
    fprintf(f, "stage %u keeps", st);
    for (uint32_t j = 0; j < s->versions->nstate; j++)
      if (s->model->stage[st].states >> j & 1)
        fprintf(f, " %s", s->versions->state[j]);
    fputs(s->model->stage[st].states ? "\n" : " no state\n", f);
  }
}

/* ---- C ---- */

void emit_formulas_c(Sched *s, Text *text) {
  static const char *const term[] = {
#define X(name, text, operands) #name,
      PIPE_TERMS(X)
#undef X
  };
  const Versions *versions = s->versions;
  if (versions->nformula == 0)
    return;
  for (uint32_t i = 0; i < versions->nformula; i++) {
    const PipeFormula *formula = &versions->formula[i];
    PUT(text, "\n/* % */\nstatic const PipeTerm formula#[] = {\n", TEXT(formula_text(s, formula)),
        i);
    for (uint32_t k = 0; k < formula->n; k++)
      PUT(text, "  {PIPE_TERM_%, #, %},\n", TEXT(term[formula->term[k].op]), formula->term[k].arg,
          TEXT(double_text(s, formula->term[k].value)));
    PUT(text, "};");
  }
  PUT(text, "\nstatic const PipeFormula formula[] = {\n");
  for (uint32_t i = 0; i < versions->nformula; i++)
    PUT(text, "  {formula#, #, #, #, 0},\n", i, versions->formula[i].n, versions->formula[i].depth,
        versions->formula[i].scalar);
  PUT(text, "};\n");
  if (versions->nrule) {
    PUT(text, "static const PipeRule rule[] = {\n");
    for (uint32_t i = 0; i < versions->nrule; i++)
      PUT(text, "  {?,?,#,#},\n", versions->rule[i].applies, versions->rule[i].rate,
          versions->rule[i].then0, versions->rule[i].nthen);
    PUT(text, "};\n");
  }
  if (versions->nthen) {
    PUT(text, "static const PipeThen then[] = {");
    for (uint32_t i = 0; i < versions->nthen; i++)
      PUT(text, i ? ", {#, #}" : "{#, #}", versions->then[i].state, versions->then[i].formula);
    PUT(text, "};\n");
  }
  if (versions->nstate) {
    PUT(text, "static const char *const state[] = {");
    for (uint32_t i = 0; i < versions->nstate; i++)
      PUT(text, i ? ", $" : "$", TEXT(versions->state[i]));
    PUT(text, "};\n");
  }
}

/* ---- JSON ---- */

void emit_formulas_json(Sched *s, Text *text) {
  const Versions *versions = s->versions;
  if (versions->nformula == 0)
    return;
  PUT(text, ",\n'formulas':[");
  for (uint32_t i = 0; i < versions->nformula; i++)
    PUT(text, i ? ",\n$" : "\n$", TEXT(formula_text(s, &versions->formula[i])));
  PUT(text, "],\n'rules':[");
  for (uint32_t i = 0; i < versions->nrule; i++) {
    const PipeRule *rule = &versions->rule[i];
    PUT(text, i ? ",\n{" : "\n{");
    if (rule->applies != NONE)
      PUT(text, "'applies':#,", rule->applies);
    if (rule->rate != NONE)
      PUT(text, "'rate':#,", rule->rate);
    PUT(text, "'then':[");
    for (uint32_t k = 0; k < rule->nthen; k++) {
      const PipeThen *then = &versions->then[rule->then0 + k];
      PUT(text, k ? ",{'state':$,'formula':#}" : "{'state':$,'formula':#}",
          TEXT(versions->state[then->state]), then->formula);
    }
    PUT(text, "]}");
  }
  PUT(text, "]");
}
