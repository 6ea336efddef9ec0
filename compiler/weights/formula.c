/* SPDX-License-Identifier: MIT
 * Makes the formula of each op from the lines of `weights`: terms in postfix order
 * (runtime/include/pipe_formula.h), with the values of the schedule and of the op as constants,
 * folded. Requires versions.
 *
 * Folding also removes corrections that change nothing:
 *
 *   0             x * 0, 0 / x
 *   x             x + 0, x - 0, x * 1, x / 1, pow(x, 1)
 *   1             pow(x, 0), pow(1, x)
 *   one branch    a condition that is known; the other branch is not evaluated
 *   the constant  a condition between two equal constants
 *   no formula    `w`; `g` in `applies`; 1 in `rate`
 *
 * The lines of states come last, and only for states that another formula of the stage reads. Ops
 * with equal terms share a row. If a line does not mention the microbatch, an op shares the row of
 * the previous op of its stage, provided that the numbers of both ops are equal. */
#include "formula.h"
#include "base.h"
#include "names.h"
#include "orders.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "evaluate.h"
#include "weight_lines.h"
#include "weights.h"

/* The most parts of all formulas: MOST_PARTS, and PARTS_OF_OP for each op. */
enum { MOST_PARTS = 1 << 25, PARTS_OF_OP = 256 };

/* The values of names at one op. */
typedef struct At {
  uint32_t op, stage, mb; /* mb: unit */
  const WeightLine *line;
  double number[FO_NNAMES]; /* from FO_DELAY on; the others are unused */
} At;

/* A part of an unfinished formula: the terms from `first` to the end. */
typedef struct Part {
  uint32_t first;
  bool known, array; /* a constant; has one element for each weight */
  double value;
} Part;

typedef struct Make {
  Sched *s;
  const At *at;
  PipeTerm term[PIPE_FORMULA_TERMS + 3];
  uint32_t n;
  uint64_t *left; /* Table.left */
} Make;

/* The latest formula of a stage for one line. */
typedef struct Last {
  const WeightLine *line;
  double number[FO_NNAMES];
  uint32_t row, states;
} Last;
/* kinds of ops come first; THEN + state */
enum { APPLIES = PIPE_NOPS, RATE, THEN, SORTS = THEN + 32 };

typedef struct Table {
  Sched *s;
  PipeWeights *weights; /* [nop] Versions.weights */
  VEC(PipeFormula) formula;
  VEC(PipeRule) rule;
  VEC(PipeThen) then;
  uint32_t *hash, *rule_hash; /* 1 + row; open addressing */
  uint32_t cap, rule_cap;
  Last *last;    /* [nstage * SORTS] */
  bool *by_mb;   /* [nwline] the line mentions its microbatch */
  uint64_t left; /* parts of formulas that may still be made: a known sum leaves no terms */
} Table;

/* ---- one formula ---- */

static const char *op_numbers(const Make *k) {
  const double *x = k->at->number;
  return arena_printf(k->s->arena, "%s: delay = %g, behind = %g", op_text(k->s, k->at->op),
                      x[FO_DELAY], x[FO_BEHIND]);
}

static bool fail(const Make *k, const Expr *e, const char *what) {
  diag_error(k->s->diag, DIAG_FORMULA, e->at, "'%s' %s (%s)", span_text(k->s, e->at), what,
             op_numbers(k));
  return false;
}

static bool push(Make *k, const Expr *e, PipeTerm t) {
  if (k->n == PIPE_FORMULA_TERMS) {
    fail(k, e, "has too many terms");
    diag_help(k->s->diag, "a formula has at most %d: numbers, names and operations",
              PIPE_FORMULA_TERMS);
    return false;
  }
  k->term[k->n++] = t;
  return true;
}

/* Replaces the terms from `first` on by a constant. */
static bool constant(Make *k, const Expr *e, uint32_t first, double value, Part *p) {
  if (!isfinite(value)) {
    fail(k, e, isnan(value) ? "is no number" : "is infinite");
    return false;
  }
  *p = (Part){first, true, false, value};
  k->n = first;
  return push(k, e, (PipeTerm){PIPE_TERM_CONST, 0, value});
}

/* Keeps only the terms of `keep`, which end at `end`, of those from p->first on. */
static void keep_part(Make *k, Part *p, const Part *keep, uint32_t end) {
  uint32_t first = p->first, n = end - keep->first;
  memmove(&k->term[first], &k->term[keep->first], n * sizeof *k->term);
  k->n = first + n;
  *p = *keep;
  p->first = first;
}

static bool make(Make *k, const Expr *e, Part *p);

static bool make_name(Make *k, const Expr *e, Part *p) {
  static const uint8_t elem[] = {[FO_W] = PIPE_ELEM_W,
                                 [FO_OLD] = PIPE_ELEM_OLD,
                                 [FO_G] = PIPE_ELEM_G,
                                 [FO_V] = PIPE_ELEM_V,
                                 [FO_V2] = PIPE_ELEM_V2};
  uint32_t first = k->n;
  switch (e->builtin) {
  case FO_VALUE: return constant(k, e, first, (double)k->s->eval.env[e->slot], p);
  case FO_LR:
  case FO_K:
    *p = (Part){.first = first};
    return push(k, e,
                (PipeTerm){PIPE_TERM_REAL, e->builtin == FO_LR ? PIPE_REAL_LR : PIPE_REAL_K, 0});
  case FO_STATE: {
    uint32_t state = 0;
    while (k->s->versions->state[state] != e->name)
      state++;
    *p = (Part){.first = first, .array = true};
    return push(k, e, (PipeTerm){PIPE_TERM_ELEM, PIPE_ELEM_STATE + state, 0});
  }
  case FO_DELAY:
  case FO_BEHIND:
  case FO_AHEAD:
  case FO_N: return constant(k, e, first, k->at->number[e->builtin], p);
  default:
    *p = (Part){.first = first, .array = true};
    return push(k, e, (PipeTerm){PIPE_TERM_ELEM, elem[e->builtin], 0});
  }
}

static bool is(const Part *p, double value) { return p->known && p->value == value; }

/* Applies an operation to two parts; the terms of b are the last. */
static bool make_binary(Make *k, const Expr *e, PipeTermOp op, const Part *a, const Part *b,
                        Part *p) {
  uint32_t end_a = b->first, end_b = k->n;
  *p = (Part){.first = a->first, .array = a->array || b->array};
  if (op == PIPE_TERM_DIV && is(b, 0)) {
    diag_error(k->s->diag, DIAG_DIVISION, e->at, "division by zero: '%s' is 0 (%s)",
               span_text(k->s, e->b->at), op_numbers(k));
    if (k->at->number[FO_DELAY] == 0)
      diag_help(k->s->diag, "for stages without delay write delay > 0 ? ... : %s",
                k->at->line->word == WW_APPLIES ? "g"
                : k->at->line->word == WW_RATE  ? "1"
                : k->at->line->word == WW_THEN  ? "0"
                                                : "w");
    return false;
  }
  if (a->known && b->known)
    return constant(k, e, a->first, pr_term_number(op, (double[]){a->value, b->value}), p);
  if ((op == PIPE_TERM_MUL && (is(a, 0) || is(b, 0))) || (op == PIPE_TERM_DIV && is(a, 0)))
    return constant(k, e, a->first, 0, p);
  if (op == PIPE_TERM_POW && (is(b, 0) || is(a, 1)))
    return constant(k, e, a->first, 1, p);
  if ((op == PIPE_TERM_MUL && is(a, 1)) || (op == PIPE_TERM_ADD && is(a, 0))) {
    keep_part(k, p, b, end_b);
    return true;
  }
  if (((op == PIPE_TERM_MUL || op == PIPE_TERM_DIV || op == PIPE_TERM_POW) && is(b, 1)) ||
      ((op == PIPE_TERM_ADD || op == PIPE_TERM_SUB) && is(b, 0))) {
    keep_part(k, p, a, end_a);
    return true;
  }
  return push(k, e, (PipeTerm){op, 0, 0});
}

static bool make_operator(Make *k, const Expr *e, Part *p) {
  static const uint8_t term[] = {
      [EX_NEG] = PIPE_TERM_NEG, [EX_NOT] = PIPE_TERM_NOT, [EX_ADD] = PIPE_TERM_ADD,
      [EX_SUB] = PIPE_TERM_SUB, [EX_MUL] = PIPE_TERM_MUL, [EX_DIV] = PIPE_TERM_DIV,
      [EX_LT] = PIPE_TERM_LT,   [EX_LE] = PIPE_TERM_LE,   [EX_GT] = PIPE_TERM_GT,
      [EX_GE] = PIPE_TERM_GE,   [EX_EQ] = PIPE_TERM_EQ,   [EX_NE] = PIPE_TERM_NE,
      [EX_AND] = PIPE_TERM_AND, [EX_OR] = PIPE_TERM_OR};
  Part a, b;
  if (!make(k, e->a, &a))
    return false;
  if (!e->b) {
    if (a.known)
      return constant(k, e, a.first, pr_term_number((PipeTermOp)term[e->kind], &a.value), p);
    *p = a;
    return push(k, e, (PipeTerm){term[e->kind], 0, 0});
  }
  if ((e->kind == EX_AND || e->kind == EX_OR) && a.known && (e->kind == EX_AND) == (a.value == 0))
    return constant(k, e, a.first, e->kind == EX_OR, p);
  return make(k, e->b, &b) && make_binary(k, e, (PipeTermOp)term[e->kind], &a, &b, p);
}

static bool make_condition(Make *k, const Expr *e, Part *p) {
  Part c, a, b;
  if (!make(k, e->a, &c))
    return false;
  if (c.known) {
    k->n = c.first;
    return make(k, c.value != 0 ? e->b : e->c, p);
  }
  if (!make(k, e->b, &a) || !make(k, e->c, &b))
    return false;
  if (a.known && is(&b, a.value) && signbit(a.value) == signbit(b.value))
    return constant(k, e, c.first, a.value, p);
  *p = (Part){.first = c.first, .array = c.array || a.array || b.array};
  return push(k, e, (PipeTerm){PIPE_TERM_COND, 0, 0});
}

/* Adds up e for each j from a to b - 1. */
static bool make_sum(Make *k, const Expr *e, Part *p) {
  const Arg *j = e->args, *lo = j->next, *hi = lo->next;
  Part a, b, next;
  if (!make(k, lo->value, &a) || !make(k, hi->value, &b))
    return false;
  if (!a.known || !b.known)
    return fail(k, a.known ? hi->value : lo->value,
                "is known only when the program runs: the ends of a sum are constants");
  if (a.value != floor(a.value) || b.value != floor(b.value))
    return fail(k, a.value != floor(a.value) ? lo->value : hi->value, "is no whole number");
  if (!constant(k, e, a.first, 0, p))
    return false;
  for (double i = a.value; i < b.value; i++) {
    Part sum = *p;
    k->s->eval.env[j->value->slot] = (int64_t)i;
    if (!make(k, hi->next->value, &next) || !make_binary(k, e, PIPE_TERM_ADD, &sum, &next, p))
      return false;
  }
  return true;
}

static bool make_call(Make *k, const Expr *e, Part *p) {
  int64_t value;
  if (e->slot == FORMULA_SUM)
    return make_sum(k, e, p);
  if (e->slot == FORMULA_INTEGER)
    return eval(k->s, e, &value) && constant(k, e, k->n, (double)value, p);
  PipeTermOp op = (PipeTermOp)e->slot;
  if (!make(k, e->args->value, p))
    return false;
  if (pr_term_operands[op] == 1) {
    if (p->known)
      return constant(k, e, p->first, pr_term_number(op, &p->value), p);
    return push(k, e, (PipeTerm){op, 0, 0});
  }
  for (const Arg *a = e->args->next; a; a = a->next) {
    Part so_far = *p, b;
    if (!make(k, a->value, &b) || !make_binary(k, e, op, &so_far, &b, p))
      return false;
  }
  return true;
}

static bool make(Make *k, const Expr *e, Part *p) {
  int64_t value;
  if (*k->left == 0) {
    diag_error(k->s->diag, DIAG_LOOP, e->at, "the formulas take more than %" PRIu64 " steps",
               MOST_PARTS + PARTS_OF_OP * (uint64_t)k->s->orders->nop);
    diag_help(k->s->diag, "shorten the range of a sum");
    return false;
  }
  --*k->left;
  switch (e->kind) {
  case EX_INT: return constant(k, e, k->n, (double)e->value, p);
  case EX_REAL: return constant(k, e, k->n, e->real, p);
  case EX_NAME: return make_name(k, e, p);
  case EX_CALL: return make_call(k, e, p);
  case EX_COND: return make_condition(k, e, p);
  case EX_MOD: return eval(k->s, e, &value) && constant(k, e, k->n, (double)value, p);
  default: return make_operator(k, e, p);
  }
}

/* ---- tables ---- */

static uint32_t hash_of(const void *data, size_t n) {
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < n; i++)
    h = (h ^ ((const uint8_t *)data)[i]) * 16777619u;
  return h;
}

/* Doubles a hash table of n rows with open addressing. */
static uint32_t *grow(Arena *arena, uint32_t *cap, uint32_t n,
                      uint32_t (*hash_row)(const Table *, uint32_t), const Table *t) {
  *cap = *cap ? 2 * *cap : 64;
  uint32_t *table = NEW_ARRAY(arena, uint32_t, *cap);
  for (uint32_t row = 0; row < n; row++) {
    uint32_t i = hash_row(t, row) & (*cap - 1);
    while (table[i])
      i = (i + 1) & (*cap - 1);
    table[i] = row + 1;
  }
  return table;
}

static uint32_t hash_formula(const Table *t, uint32_t row) {
  return hash_of(t->formula.at[row].term, t->formula.at[row].n * sizeof(PipeTerm));
}
/* NULL: the rule has no `then`. */
static const PipeThen *thens(const Table *t, const PipeRule *r) {
  return r->nthen ? &t->then.at[r->then0] : NULL;
}

static uint32_t hash_rule(const Table *t, uint32_t row) {
  const PipeRule *r = &t->rule.at[row];
  return hash_of(thens(t, r), r->nthen * sizeof(PipeThen)) ^ r->applies * 31u ^ r->rate * 17u;
}

static uint32_t formula_row(Table *t, const Make *k) {
  Arena *arena = t->s->arena;
  size_t bytes = k->n * sizeof *k->term;
  if (2 * (t->formula.n + 1) > t->cap)
    t->hash = grow(arena, &t->cap, t->formula.n, hash_formula, t);
  uint32_t i = hash_of(k->term, bytes) & (t->cap - 1);
  for (; t->hash[i]; i = (i + 1) & (t->cap - 1)) {
    const PipeFormula *f = &t->formula.at[t->hash[i] - 1];
    if (f->n == k->n && memcmp(f->term, k->term, bytes) == 0)
      return t->hash[i] - 1;
  }
  PipeTerm *term = arena_alloc(arena, bytes);
  memcpy(term, k->term, bytes);
  uint32_t depth = 0, deepest = 0, array = 0; /* bit d: the value at stack depth d is an array */
  for (uint32_t at = 0; at < k->n; at++) {
    uint32_t nop = pr_term_operands[term[at].op], low = depth - nop;
    bool is_array = term[at].op == PIPE_TERM_ELEM || (array >> low) != 0;
    array = low < 32 ? (array & ((1u << low) - 1)) | (uint32_t)is_array << low : array;
    depth = low + 1;
    deepest = depth > deepest ? depth : deepest;
    if (deepest > PIPE_FORMULA_DEPTH)
      return NONE;
  }
  *vec_push(arena, &t->formula) = (PipeFormula){term, k->n, deepest, !array, 0};
  t->hash[i] = t->formula.n;
  return t->formula.n - 1;
}

static bool same_thens(const PipeThen *a, const PipeThen *b, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (a[i].state != b[i].state || a[i].formula != b[i].formula)
      return false;
  return true;
}

static uint32_t rule_row(Table *t, PipeRule r, const PipeThen *then) {
  Arena *arena = t->s->arena;
  if (2 * (t->rule.n + 1) > t->rule_cap)
    t->rule_hash = grow(arena, &t->rule_cap, t->rule.n, hash_rule, t);
  uint32_t i = (hash_of(then, r.nthen * sizeof *then) ^ r.applies * 31u ^ r.rate * 17u) &
               (t->rule_cap - 1);
  for (; t->rule_hash[i]; i = (i + 1) & (t->rule_cap - 1)) {
    const PipeRule *old = &t->rule.at[t->rule_hash[i] - 1];
    if (old->applies == r.applies && old->rate == r.rate && old->nthen == r.nthen &&
        same_thens(thens(t, old), then, r.nthen))
      return t->rule_hash[i] - 1;
  }
  r.then0 = t->then.n;
  for (uint32_t j = 0; j < r.nthen; j++)
    *vec_push(arena, &t->then) = then[j];
  *vec_push(arena, &t->rule) = r;
  t->rule_hash[i] = t->rule.n;
  return t->rule.n - 1;
}

/* ---- the formula of a line at an op ---- */

/* Sets *row to the formula of a line at an op; NONE: it changes nothing. Adds its states to
 * *states. */
static bool line_row(Table *t, At *at, uint32_t sort, uint32_t *row, uint32_t *states) {
  Sched *s = t->s;
  const WeightLine *l = at->line;
  Last *last = &t->last[(size_t)at->stage * SORTS + sort];
  uint32_t index = 0;
  while (s->model->wline[index] != l)
    index++;
  if (last->line == l && !t->by_mb[index] &&
      memcmp(&last->number[FO_DELAY], &at->number[FO_DELAY],
             (FO_NNAMES - FO_DELAY) * sizeof(double)) == 0) {
    *row = last->row;
    *states |= last->states;
    return true;
  }
  Make k = {.s = s, .at = at, .left = &t->left};
  Part p;
  weight_bind(s, l, at->stage, at->mb);
  if (!make(&k, l->formula, &p))
    return false;
  if (p.known && !isfinite((float)p.value))
    return fail(&k, l->formula, "is infinite as a number of type float");
  PipeTerm nothing = l->word == WW_RATE
                         ? (PipeTerm){PIPE_TERM_CONST, 0, 1}
                         : (PipeTerm){PIPE_TERM_ELEM,
                                      l->word == WW_APPLIES ? PIPE_ELEM_G : PIPE_ELEM_W, 0};
  bool none = l->word != WW_THEN && k.n == 1 && memcmp(&k.term[0], &nothing, sizeof nothing) == 0;
  *row = none ? NONE : formula_row(t, &k);
  if (*row == NONE && !none)
    return fail(&k, l->formula, "needs too many values at once");
  *last = (Last){l, {0}, *row, 0};
  memcpy(last->number, at->number, sizeof last->number);
  for (uint32_t i = 0; i < k.n; i++)
    if (k.term[i].op == PIPE_TERM_ELEM && k.term[i].arg >= PIPE_ELEM_STATE)
      last->states |= 1u << (k.term[i].arg - PIPE_ELEM_STATE);
  *states |= last->states;
  return true;
}

/* [round] The number of microbatches, or slices, whose gradients an update applies, over all
 * replicas. */
static uint32_t *count_gradients(const Sched *s) {
  uint32_t *own = NEW_ARRAY(s->arena, uint32_t, s->orders->round0[s->model->nstage] + 1), *all;
  uint32_t *at = NEW_ARRAY(s->arena, uint32_t, s->model->nstage + 1);
  for (uint32_t i = 0; i < s->orders->nop; i++) {
    const Op *o = &s->orders->op[i];
    uint32_t round = s->orders->round0[o->stage] + at[o->stage];
    if (o->kind == PIPE_U)
      at[o->stage]++;
    else if (o->kind == PIPE_B || o->kind == PIPE_W)
      own[round]++;
  }
  all = NEW_ARRAY(s->arena, uint32_t, s->orders->round0[s->model->nstage] + 1);
  for (uint32_t st = 0; st < s->model->nstage; st++)
    for (uint32_t k = 0; k < updates_of(s, st); k++) {
      uint32_t row = st;
      do {
        all[s->orders->round0[st] + k] += own[s->orders->round0[row] + k];
        row = s->model->stage[row].replica;
      } while (row != st);
    }
  return all;
}

/* The numbers of an op, and the microbatch for its lines; for a U, the microbatch of its last
 * gradient. */
static At at_op(const Sched *s, uint32_t op, const uint32_t *n) {
  const Op *o = &s->orders->op[op];
  At at = {.op = op, .stage = o->stage, .mb = o->mb};
  at.number[FO_DELAY] = s->versions->delay[at.stage];
  at.number[FO_BEHIND] = s->versions->weights[op].behind;
  at.number[FO_AHEAD] = s->versions->weights[op].ahead;
  if (o->kind == PIPE_U) {
    uint32_t round = round_of(s, op);
    at.mb = s->orders->op[s->orders->round[round].grad].mb;
    at.number[FO_N] = n[round];
  }
  return at;
}

/* Makes the formulas of all lines except `then`. rule: by update; NONE where it has no such
 * line. */
static bool first_lines(Table *t, const uint32_t *n, PipeRule *rule, uint32_t *states) {
  Sched *s = t->s;
  for (uint32_t op = 0; op < s->orders->nop; op++) {
    const Op *o = &s->orders->op[op];
    if (o->kind == PIPE_W ||
        (s->versions->maker && s->versions->maker[op] != NONE && s->versions->maker[op] != op))
      continue; /* it reads the estimate of another op */
    At at = at_op(s, op, n);
    uint32_t *named = &states[o->stage];
    if (o->kind != PIPE_U) {
      if (!weight_line(s, WW_READS, op, at.mb, &at.line) ||
          (at.line && at.line->formula &&
           !line_row(t, &at, o->kind, &t->weights[op].formula, named)))
        return false;
      continue;
    }
    PipeRule *r = &rule[round_of(s, op)];
    *r = (PipeRule){PIPE_NONE, PIPE_NONE, 0, 0};
    if (!weight_line(s, WW_APPLIES, op, at.mb, &at.line) ||
        (at.line && !line_row(t, &at, APPLIES, &r->applies, named)) ||
        !weight_line(s, WW_RATE, op, at.mb, &at.line) ||
        (at.line && !line_row(t, &at, RATE, &r->rate, named)))
      return false;
  }
  return true;
}

/* Finds the `then` lines of an update, *n of them, for the states that its stage keeps so far. */
static bool then_lines(Table *t, const At *update, uint32_t *states, PipeThen then[32],
                       uint32_t *n) {
  Sched *s = t->s;
  At at = *update;
  *n = 0;
  for (uint32_t state = 0; state < s->versions->nstate; state++) {
    if (!(*states >> state & 1))
      continue;
    if (!weight_then(s, s->versions->state[state], at.op, at.mb, &at.line))
      return false;
    if (!at.line)
      continue;
    then[*n].state = state;
    if (!line_row(t, &at, THEN + state, &then[*n].formula, states))
      return false;
    ++*n;
  }
  return true;
}

/* Finds the states that each stage keeps: a state may be set from another state, which the stage
 * then keeps, too. */
static bool find_states(Table *t, const uint32_t *n, uint32_t *states) {
  Sched *s = t->s;
  PipeThen then[32];
  for (bool more = true; more;) {
    more = false;
    for (uint32_t op = 0; op < s->orders->nop; op++) {
      uint32_t *mine = &states[s->orders->op[op].stage], before = *mine, count;
      if (s->orders->op[op].kind != PIPE_U || before == 0)
        continue;
      At at = at_op(s, op, n);
      if (!then_lines(t, &at, mine, then, &count))
        return false;
      more |= *mine != before;
    }
  }
  return true;
}

static bool all_rules(Table *t, const uint32_t *n, const PipeRule *rule, uint32_t *states) {
  Sched *s = t->s;
  PipeThen then[32];
  for (uint32_t op = 0; op < s->orders->nop; op++) {
    if (s->orders->op[op].kind != PIPE_U)
      continue;
    At at = at_op(s, op, n);
    PipeRule r = rule[round_of(s, op)];
    if (!then_lines(t, &at, &states[at.stage], then, &r.nthen))
      return false;
    if (r.applies != PIPE_NONE || r.rate != PIPE_NONE || r.nthen > 0)
      t->weights[op].formula = rule_row(t, r, then);
  }
  return true;
}

/* Names the states. Each must be set by a line. */
static bool name_states(Sched *s, Versions *versions) {
  versions->state = NEW_ARRAY(s->arena, const char *, s->model->nwline + 1);
  for (uint32_t i = 0; i < s->model->nwline; i++) {
    const WeightLine *l = s->model->wline[i];
    if (l->word != WW_STATE)
      continue;
    bool set = false;
    for (uint32_t k = 0; k < s->model->nwline && !set; k++)
      set = s->model->wline[k]->word == WW_THEN && s->model->wline[k]->state == l->state;
    if (!set) {
      diag_error(s->diag, DIAG_FORMULA, l->at, "state '%s' is never set: it stays 0", l->state);
      diag_help(s->diag, "U then %s = ... sets it after each update", l->state);
      return false;
    }
    if (versions->nstate == 32) {
      diag_error(s->diag, DIAG_FORMULA, l->at, "more than 32 states");
      return false;
    }
    versions->state[versions->nstate++] = l->state;
  }
  return true;
}

static bool mentions_mb(const Expr *e, uint32_t slot) {
  if (!e)
    return false;
  for (const Arg *a = e->args; a; a = a->next)
    if (mentions_mb(a->value, slot))
      return true;
  return (e->kind == EX_NAME && e->builtin == FO_VALUE && e->slot == slot) ||
         mentions_mb(e->a, slot) || mentions_mb(e->b, slot) || mentions_mb(e->c, slot);
}

bool formulas(Sched *s, Model *model, Versions *versions) {
  if (!s->model->weighted)
    return true;
  Table t = {.s = s,
             .weights = versions->weights,
             .left = MOST_PARTS + PARTS_OF_OP * (uint64_t)s->orders->nop};
  bool some = false;
  t.by_mb = NEW_ARRAY(s->arena, bool, s->model->nwline + 1);
  for (uint32_t i = 0; i < s->model->nwline; i++) {
    const WeightLine *l = s->model->wline[i];
    some |= l->formula != NULL;
    t.by_mb[i] = l->clause->mb_var && mentions_mb(l->formula, l->clause->mb_slot);
  }
  if (!name_states(s, versions))
    return false;
  if (!some)
    return true;
  t.last = NEW_ARRAY(s->arena, Last, (size_t)s->model->nstage * SORTS);
  uint32_t *n = count_gradients(s), *states = NEW_ARRAY(s->arena, uint32_t, s->model->nstage + 1);
  PipeRule *rule = NEW_ARRAY(s->arena, PipeRule, s->orders->round0[s->model->nstage] + 1);
  if (!first_lines(&t, n, rule, states) || !find_states(&t, n, states) ||
      !all_rules(&t, n, rule, states))
    return false;
  for (uint32_t st = 0; st < s->model->nstage; st++)
    model->stage[st].states = states[st];
  versions->formula = t.formula.at;
  versions->nformula = t.formula.n;
  versions->rule = t.rule.at;
  versions->nrule = t.rule.n;
  versions->then = t.then.at;
  versions->nthen = t.then.n;
  return true;
}

bool formula_needs_old(const Sched *s, uint32_t u) {
  uint32_t row = s->versions->weights[u].formula;
  if (row == PIPE_NONE)
    return false;
  const PipeRule *r = &s->versions->rule[row];
  for (uint32_t i = 0; i < r->nthen; i++) {
    const PipeFormula *f = &s->versions->formula[s->versions->then[r->then0 + i].formula];
    for (uint32_t k = 0; k < f->n; k++)
      if (f->term[k].op == PIPE_TERM_ELEM && f->term[k].arg == PIPE_ELEM_OLD)
        return true;
  }
  return false;
}
