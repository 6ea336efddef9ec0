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

static void none_or(Text *t, uint32_t v) {
  if (v == NONE)
    text_lit(t, "N");
  else
    text_u64(t, v);
}

void emit_formulas_c(Sched *s, Text *t) {
  static const char *const term[] = {
#define X(name, text, operands) "PIPE_TERM_" #name,
      PIPE_TERMS(X)
#undef X
  };
  if (s->versions->nformula == 0)
    return;
  for (uint32_t i = 0; i < s->versions->nformula; i++) {
    const PipeFormula *f = &s->versions->formula[i];
    text_string(t, arena_printf(s->arena, "\n/* %s */\n", formula_text(s, f)));
    text_table(t, "PipeTerm", arena_printf(s->arena, "formula%u", i));
    text_lit(t, "\n");
    for (uint32_t k = 0; k < f->n; k++)
      text_string(t, arena_printf(s->arena, "  {%s, %u, %s},\n", term[f->term[k].op],
                                  f->term[k].arg, double_text(s, f->term[k].value)));
    text_lit(t, "};");
  }
  text_lit(t, "\n");
  text_table(t, "PipeFormula", "formula");
  text_lit(t, "\n");
  for (uint32_t i = 0; i < s->versions->nformula; i++)
    text_string(t, arena_printf(s->arena, "  {formula%u, %u, %u, %u, 0},\n", i,
                                s->versions->formula[i].n, s->versions->formula[i].depth,
                                s->versions->formula[i].scalar));
  text_lit(t, "};\n");
  if (s->versions->nrule) {
    text_table(t, "PipeRule", "rule");
    text_lit(t, "\n");
    for (uint32_t i = 0; i < s->versions->nrule; i++) {
      text_room(t);
      text_lit(t, "  {");
      none_or(t, s->versions->rule[i].applies), text_char(t, ',');
      none_or(t, s->versions->rule[i].rate), text_char(t, ',');
      text_u64(t, s->versions->rule[i].then0), text_char(t, ',');
      text_u64(t, s->versions->rule[i].nthen), text_lit(t, "},\n");
    }
    text_lit(t, "};\n");
  }
  if (s->versions->nthen) {
    text_table(t, "PipeThen", "then");
    for (uint32_t i = 0; i < s->versions->nthen; i++)
      text_string(t, arena_printf(s->arena, "%s{%u, %u}", i ? ", " : "", s->versions->then[i].state,
                                  s->versions->then[i].formula));
    text_lit(t, "};\n");
  }
  if (s->versions->nstate) {
    text_table(t, "char *const", "state");
    for (uint32_t i = 0; i < s->versions->nstate; i++) {
      text_string(t, i ? ", " : "");
      text_quoted(t, ESCAPE_C, s->versions->state[i]);
    }
    text_lit(t, "};\n");
  }
}

const char *formula_fields(Sched *s) {
  const char *text = "";
  if (s->versions->nformula)
    text = arena_printf(s->arena, "  .formula = formula, .nformula = %u,\n", s->versions->nformula);
  if (s->versions->nrule)
    text = arena_printf(s->arena, "%s  .rule = rule, .nrule = %u,\n", text, s->versions->nrule);
  if (s->versions->nthen)
    text = arena_printf(s->arena, "%s  .then = then, .nthen = %u,\n", text, s->versions->nthen);
  if (s->versions->nstate && s->versions->nformula)
    text = arena_printf(s->arena, "%s  .state = state, .nstate = %u,\n", text, s->versions->nstate);
  return text;
}

/* ---- JSON ---- */

void emit_formulas_json(Sched *s, Text *t) {
  if (s->versions->nformula == 0)
    return;
  text_lit(t, "\"formulas\":[\n");
  for (uint32_t i = 0; i < s->versions->nformula; i++) {
    text_quoted(t, ESCAPE_C, formula_text(s, &s->versions->formula[i]));
    text_lit(t, i + 1 < s->versions->nformula ? ",\n" : "],\n");
  }
  text_lit(t, "\"rules\":[");
  for (uint32_t i = 0; i < s->versions->nrule; i++) {
    const PipeRule *r = &s->versions->rule[i];
    text_lit(t, i ? ",\n{" : "\n{");
    if (r->applies != NONE)
      text_string(t, arena_printf(s->arena, "\"applies\":%u,", r->applies));
    if (r->rate != NONE)
      text_string(t, arena_printf(s->arena, "\"rate\":%u,", r->rate));
    text_lit(t, "\"then\":[");
    for (uint32_t k = 0; k < r->nthen; k++) {
      const PipeThen *n = &s->versions->then[r->then0 + k];
      text_string(t, arena_printf(s->arena, "%s{\"state\":\"%s\",\"formula\":%u}", k ? "," : "",
                                  s->versions->state[n->state], n->formula));
    }
    text_lit(t, "]}");
  }
  text_lit(t, "],\n");
}
