/* SPDX-License-Identifier: MIT
 * Verifies formulas: the table of an op and the text give the same bits, with one number in place
 * of each array. Evaluates the text as it stands, without terms and blocks, by lang/spec.md 5.14: a
 * known value is computed in double and decides which operations are left out; a value that names
 * an array is rounded to float. Cost: linear in instructions times lines and their length. */
#include <math.h>
#include <string.h>

#include "evaluate.h"
#include "formula.h"
#include "names.h"
#include "verify.h"
#include "weights.h"

typedef struct Numbers {
  const Sched *s;
  double name[FO_NNAMES]; /* by FormulaName; an array has one float */
  float elem[PIPE_ELEM_STATE + 32];
} Numbers;

typedef struct Value {
  double v;
  bool known, array; /* known: at compile time; array: v is a float, one element of the array */
} Value;

static Value value(const Numbers *n, const Expr *e);

static Value known(double v) { return (Value){v, true, false}; }

static Value integer(const Numbers *n, const Expr *e) {
  int64_t v = 0;
  BUG_IF(!eval((Sched *)(uintptr_t)n->s, e, &v)); /* eval writes only variables of functions */
  return known((double)v);
}

static double in_double(const Expr *e, double a, double b) {
  switch (e->kind) {
  case EX_NEG: return -a;
  case EX_NOT: return a == 0;
  case EX_ADD: return a + b;
  case EX_SUB: return a - b;
  case EX_MUL: return a * b;
  case EX_DIV: return a / b;
  case EX_LT: return a < b;
  case EX_LE: return a <= b;
  case EX_GT: return a > b;
  case EX_GE: return a >= b;
  case EX_EQ: return a == b;
  case EX_NE: return a != b;
  case EX_AND: return a != 0 && b != 0;
  case EX_OR: return a != 0 || b != 0;
  default: break;
  }
  switch (e->slot) {
  case FORMULA_SUM: return a + b;
  case PIPE_TERM_POW: return pow(a, b);
  case PIPE_TERM_MIN: return a < b ? a : b;
  case PIPE_TERM_MAX: return a > b ? a : b;
  case PIPE_TERM_ABS: return fabs(a);
  case PIPE_TERM_SQRT: return sqrt(a);
  case PIPE_TERM_EXP: return exp(a);
  case PIPE_TERM_LOG: return log(a);
  default: return floor(a);
  }
}

/* An operation on two floats, computed in double and rounded to float, is the float operation: a
 * double has more than twice the bits (Figueroa 1995). `exp`, `log` and `pow` are defined in this
 * way. */
static Value compute(const Expr *e, Value a, Value b) {
  Value r = {0, a.known && b.known, a.array || b.array};
  if (r.array)
    r.v = (double)(float)in_double(e, (double)(float)a.v, (double)(float)b.v);
  else
    r.v = in_double(e, a.v, b.v);
  return r;
}

static bool is(Value a, double v) { return a.known && a.v == v; }

/* Leaves out operations that cannot change the value. */
static Value of_two(const Expr *e, Value a, Value b) {
  bool sum = e->kind == EX_ADD || (e->kind == EX_CALL && e->slot == FORMULA_SUM);
  bool to = e->kind == EX_CALL && e->slot == PIPE_TERM_POW;
  bool times = e->kind == EX_MUL, over = e->kind == EX_DIV;
  if (a.known && b.known)
    return compute(e, a, b);
  if ((times && (is(a, 0) || is(b, 0))) || (over && is(a, 0)))
    return known(0);
  if (to && (is(a, 1) || is(b, 0)))
    return known(1);
  if ((times && is(a, 1)) || (sum && is(a, 0)))
    return b;
  if (((times || over || to) && is(b, 1)) || ((sum || e->kind == EX_SUB) && is(b, 0)))
    return a;
  return compute(e, a, b);
}

static Value call(const Numbers *n, const Expr *e) {
  if (e->slot == FORMULA_INTEGER)
    return integer(n, e);
  if (e->slot == FORMULA_SUM) {
    const Arg *j = e->args, *lo = j->next, *hi = lo->next;
    Value sum = known(0);
    for (double i = value(n, lo->value).v, end = value(n, hi->value).v; i < end; i++) {
      n->s->eval.env[j->value->slot] = (int64_t)i;
      sum = of_two(e, sum, value(n, hi->next->value));
    }
    return sum;
  }
  Value x = value(n, e->args->value);
  if (pr_term_operands[e->slot] == 1)
    return compute(e, x, x);
  for (const Arg *a = e->args->next; a; a = a->next)
    x = of_two(e, x, value(n, a->value));
  return x;
}

static Value choice(const Numbers *n, const Expr *e) {
  Value c = value(n, e->a);
  if (c.known)
    return value(n, c.v != 0 ? e->b : e->c);
  Value a = value(n, e->b), b = value(n, e->c);
  if (a.known && is(b, a.v) && signbit(a.v) == signbit(b.v))
    return a;
  Value r = {c.v != 0 ? a.v : b.v, false, c.array || a.array || b.array};
  r.v = r.array ? (double)(float)r.v : r.v;
  return r;
}

static Value name_value(const Numbers *n, const Expr *e) {
  if (e->builtin == FO_VALUE)
    return known((double)n->s->eval.env[e->slot]);
  for (uint32_t j = 0; e->builtin == FO_STATE && j < n->s->versions->nstate; j++)
    if (strcmp(n->s->versions->state[j], e->name) == 0)
      return (Value){(double)n->elem[PIPE_ELEM_STATE + j], false, true};
  bool of_run = e->builtin == FO_LR || e->builtin == FO_K, of_op = e->builtin >= FO_DELAY;
  return (Value){n->name[e->builtin], of_op, !of_run && !of_op};
}

static Value value(const Numbers *n, const Expr *e) {
  Value a;
  switch (e->kind) {
  case EX_INT: return known((double)e->value);
  case EX_REAL: return known(e->real);
  case EX_MOD: return integer(n, e);
  case EX_CALL: return call(n, e);
  case EX_COND: return choice(n, e);
  case EX_NAME: return name_value(n, e);
  case EX_NEG:
  case EX_NOT: a = value(n, e->a); return compute(e, a, a);
  default: break;
  }
  a = value(n, e->a);
  if ((e->kind == EX_AND && is(a, 0)) || (e->kind == EX_OR && a.known && a.v != 0))
    return known(e->kind == EX_OR);
  return of_two(e, a, value(n, e->b));
}

static bool same_number(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

/* The line of the text for an op of this kind; NULL: none. */
static const WeightLine *line_of(const Sched *s, const Numbers *n, WeightWord word, int kind,
                                 const char *state, uint32_t row, uint32_t mb) {
  const PipeStage *st = &s->prog->stage[row];
  for (uint32_t i = 0; i < s->model->nwline; i++) {
    const WeightLine *l = s->model->wline[i];
    if (l->word != word || l->kind != kind || (state && l->state != state))
      continue;
    if (l->clause->var)
      s->eval.env[l->clause->slot] = st->model;
    if (l->clause->mb_var)
      s->eval.env[l->clause->mb_slot] = (mb - st->mb0) / pipe_slices(s->prog);
    if (!l->when || integer(n, l->when).v != 0)
      return l;
  }
  return NULL;
}

static bool has_lines(const Sched *s, int kind) {
  for (uint32_t i = 0; i < s->model->nwline; i++)
    if (s->model->wline[i]->word == WW_READS && s->model->wline[i]->kind == kind)
      return true;
  return false;
}

/* Verifies that formula `row` computes what the line says. row NONE: the value is `nothing`, or
 * there is no line. */
static void same(const Numbers *n, const WeightLine *l, uint32_t row, double nothing) {
  const Sched *s = n->s;
  BUG_IF(row != NONE && row >= s->versions->nformula);
  if (!l || !l->formula) {
    BUG_IF(row != NONE);
    return;
  }
  Value want = value(n, l->formula);
  double got = nothing;
  if (row != NONE) {
    const PipeFormula *f = &s->versions->formula[row];
    const float *elem[PIPE_ELEM_STATE + 32];
    float out;
    for (uint32_t i = 0; i < PIPE_ELEM_STATE + 32; i++)
      elem[i] = &n->elem[i];
    PrFormulaIn in = {elem, {n->name[FO_LR], n->name[FO_K]}};
    BUG_IF(pr_formula_check(f, s->versions->nstate, NULL) != NULL ||
           (f->scalar != 0) == want.array);
    pr_formula_array(f, &in, &out, 1);
    BUG_IF(!same_number((double)out, (double)(float)want.v));
    got = f->scalar ? pr_formula_number(f, &in) : (double)out;
  }
  BUG_IF(!same_number(got, want.v));
}

/* A row of the stage table so far, in list order. */
typedef struct Row {
  uint32_t mb, own; /* microbatch of the last gradient; gradients since the last update */
  uint32_t updates, delay;
} Row;

static void verify_update(Numbers *n, const PipeInstr *in, const PipeWeights *w, const Row *row,
                          uint32_t applied) {
  static const PipeRule none = {NONE, NONE, 0, 0};
  const Sched *s = n->s;
  BUG_IF(w->formula != NONE && w->formula >= s->versions->nrule);
  const PipeRule *r = w->formula == NONE ? &none : &s->versions->rule[w->formula];
  n->name[FO_N] = applied;
  same(n, line_of(s, n, WW_APPLIES, PIPE_U, NULL, in->stage, row->mb), r->applies, n->name[FO_G]);
  same(n, line_of(s, n, WW_RATE, PIPE_U, NULL, in->stage, row->mb), r->rate, 1);
  uint32_t next = r->then0;
  for (uint32_t j = 0; j < s->versions->nstate; j++) {
    if (!(s->prog->stage[in->stage].states >> j & 1))
      continue;
    const WeightLine *l = line_of(s, n, WW_THEN, PIPE_U, s->versions->state[j], in->stage, row->mb);
    if (!l)
      continue;
    BUG_IF(next >= r->then0 + r->nthen || s->versions->then[next].state != j);
    same(n, l, s->versions->then[next++].formula, 0);
    double now = n->name[FO_OLD], before = value(n, l->formula).v;
    n->name[FO_OLD] = now + 1;
    double other = value(n, l->formula).v;
    bool needs_old = isfinite(before) && isfinite(other) && before != other;
    n->name[FO_OLD] = now;
    BUG_IF(needs_old && w->out == w->slot &&
           w->guess == NONE); /* the old weights would be overwritten */
  }
  BUG_IF(next != r->then0 + r->nthen);
}

static void verify_op(Numbers *n, const PipeInstr *in, const PipeWeights *w, int backward) {
  const Sched *s = n->s;
  const uint32_t *at = in->op == PIPE_F   ? s->orders->at_f
                       : in->op == PIPE_R ? s->orders->at_r
                                          : s->orders->at_b;
  uint32_t op = at[(size_t)in->stage * s->model->nmb + in->mb] - 1;
  if (s->versions->maker && s->versions->maker[op] != NONE && s->versions->maker[op] != op) {
    BUG_IF(w->formula != NONE); /* it reads the estimate of another op: verify_weights */
    return;
  }
  int kind = in->op;
  if (kind == PIPE_R && !has_lines(s, PIPE_R))
    kind = backward;
  if (kind == PIPE_I && !has_lines(s, PIPE_I))
    kind = PIPE_B;
  same(n, line_of(s, n, WW_READS, kind, NULL, in->stage, in->mb), w->formula, n->name[FO_W]);
}

void verify_formulas(const Sched *s) {
  const PipeProgram *p = s->prog;
  if (!s->versions->weights || (s->versions->nformula == 0 && s->versions->nstate == 0))
    return;
  Numbers n = {.s = s,
               .name = {[FO_W] = 1.375,
                        [FO_OLD] = -0.75,
                        [FO_G] = 0.625,
                        [FO_V] = 0.3125,
                        [FO_V2] = 2.25,
                        [FO_LR] = 0.0625,
                        [FO_K] = 7}};
  for (int i = 0; i < 5; i++)
    n.elem[i] = (float)n.name[FO_W + i];
  for (int j = 0; j < 32; j++)
    n.elem[PIPE_ELEM_STATE + j] = 0.25f + 0.125f * (float)j;
  Row *row = NEW_ARRAY(s->arena, Row, p->nstage);
  uint32_t *applied = NEW_ARRAY(s->arena, uint32_t, s->orders->round0[p->nstage] + 1);
  /* First pass: delays, and what each update applies. Second pass: compares. */
  for (int turn = 0; turn < 2; turn++) {
    for (uint32_t st = 0; st < p->nstage; st++)
      row[st].updates = 0, row[st].own = 0;
    for (uint32_t r = 0; r < p->nrank; r++)
      for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
        const PipeInstr *in = &p->rank[r].instr[i];
        const PipeWeights *w = &p->rank[r].weights[i];
        Row *k = &row[in->stage];
        if (in->op == PIPE_B || in->op == PIPE_W)
          k->mb = in->mb, k->own++;
        if (in->op == PIPE_U && turn == 0) {
          k->delay = w->behind > (int32_t)k->delay ? (uint32_t)w->behind : k->delay;
          uint32_t st = in->stage;
          do
            applied[s->orders->round0[st] + k->updates] += k->own;
          while ((st = p->stage[st].replica) != in->stage);
        }
        n.name[FO_DELAY] = k->delay;
        n.name[FO_BEHIND] = w->behind;
        n.name[FO_AHEAD] = w->ahead;
        if (turn == 1 && in->op == PIPE_U)
          verify_update(&n, in, w, k, applied[s->orders->round0[in->stage] + k->updates]);
        else if (turn == 1 && w->version != NONE && in->op <= PIPE_U && in->op != PIPE_W)
          verify_op(
              &n, in, w,
              s->orders->op[s->orders->at_b[(size_t)in->stage * s->model->nmb + in->mb] - 1].kind);
        if (in->op == PIPE_U)
          k->updates++, k->own = 0;
      }
  }
}
