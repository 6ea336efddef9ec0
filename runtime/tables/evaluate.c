/* SPDX-License-Identifier: MIT
 * Implements evaluate.h. First reduces a formula for the current numbers: every part that has only
 * numbers becomes one constant. The rest runs over blocks of elements; each term is a loop over one
 * block, which compilers vectorize. A loop contains one operation, so nothing can be contracted. */
#include "evaluate.h"

#include <math.h>
#include <string.h>

#define X(term, text, operands) operands,
const uint8_t pr_term_operands[PIPE_NTERMS] = {PIPE_TERMS(X)};
#undef X
#define X(term, text, operands) text,
const char *const pr_term_text[PIPE_NTERMS] = {PIPE_TERMS(X)};
#undef X

const char *pr_formula_check(const PipeFormula *f, uint32_t nstate, uint32_t *elems) {
  bool array[PIPE_FORMULA_DEPTH]; /* the values on the stack */
  uint32_t depth = 0, peak = 0, named = 0;
  if (!f->term || f->n == 0)
    return "a formula without terms";
  if (f->n > PIPE_FORMULA_TERMS)
    return "a formula of too many terms";
  if (f->zero != 0 || f->scalar > 1)
    return "a formula with an unknown field";
  for (uint32_t i = 0; i < f->n; i++) {
    const PipeTerm *t = &f->term[i];
    if (t->op >= PIPE_NTERMS)
      return "an unknown term";
    if (t->arg != 0 && t->op != PIPE_TERM_REAL && t->op != PIPE_TERM_ELEM)
      return "a term with an argument that it does not take";
    if (t->op == PIPE_TERM_REAL && t->arg >= PIPE_NREALS)
      return "an unknown number";
    if (t->op == PIPE_TERM_ELEM && t->arg >= PIPE_ELEM_STATE && t->arg - PIPE_ELEM_STATE >= nstate)
      return "a state that the program does not have";
    uint32_t n = pr_term_operands[t->op];
    if (depth < n)
      return "a term without its operands";
    bool is_array = t->op == PIPE_TERM_ELEM;
    for (uint32_t k = 0; k < n; k++)
      is_array |= array[--depth];
    if (depth == PIPE_FORMULA_DEPTH)
      return "a formula that needs too many values at once";
    array[depth++] = is_array;
    peak = depth > peak ? depth : peak;
    if (t->op == PIPE_TERM_ELEM)
      named |= 1u << (t->arg < 31 ? t->arg : 31);
  }
  if (depth != 1)
    return "a formula that leaves more than one value";
  if (f->depth != peak)
    return "a formula of another depth than it says";
  if (f->scalar == array[0])
    return "a formula of another kind than it says";
  if (elems)
    *elems = named;
  return NULL;
}

double pr_term_number(PipeTermOp op, const double *x) {
  double a = x[0], b = pr_term_operands[op] > 1 ? x[1] : 0;
  switch (op) {
  case PIPE_TERM_NEG: return -a;
  case PIPE_TERM_NOT: return a == 0;
  case PIPE_TERM_ABS: return fabs(a);
  case PIPE_TERM_SQRT: return sqrt(a);
  case PIPE_TERM_EXP: return exp(a);
  case PIPE_TERM_LOG: return log(a);
  case PIPE_TERM_FLOOR: return floor(a);
  case PIPE_TERM_ADD: return a + b;
  case PIPE_TERM_SUB: return a - b;
  case PIPE_TERM_MUL: return a * b;
  case PIPE_TERM_DIV: return a / b;
  case PIPE_TERM_POW: return pow(a, b);
  case PIPE_TERM_MIN: return a < b ? a : b;
  case PIPE_TERM_MAX: return a > b ? a : b;
  case PIPE_TERM_LT: return a < b;
  case PIPE_TERM_LE: return a <= b;
  case PIPE_TERM_GT: return a > b;
  case PIPE_TERM_GE: return a >= b;
  case PIPE_TERM_EQ: return a == b;
  case PIPE_TERM_NE: return a != b;
  case PIPE_TERM_AND: return a != 0 && b != 0;
  case PIPE_TERM_OR: return a != 0 || b != 0;
  case PIPE_TERM_COND: return a != 0 ? b : x[2];
  default: return NAN; /* CONST, REAL, ELEM have no operands */
  }
}

enum { BLOCK = 256 };

/* A formula for given numbers: terms that are CONST, ELEM, or have an array operand. */
typedef struct Reduced {
  PipeTerm term[PIPE_FORMULA_TERMS];
  uint32_t n;
} Reduced;

/* A value during the reduction; its terms begin at `first`. */
typedef struct Part {
  uint32_t first;
  bool array;
} Part;

static void reduce(const PipeFormula *f, const PrFormulaIn *in, Reduced *r) {
  Part part[PIPE_FORMULA_DEPTH];
  uint32_t depth = 0;
  r->n = 0;
  for (uint32_t i = 0; i < f->n; i++) {
    PipeTerm t = f->term[i];
    uint32_t nop = pr_term_operands[t.op], first = r->n;
    bool array = t.op == PIPE_TERM_ELEM;
    double x[3];
    for (uint32_t k = nop; k-- > 0;) {
      const Part *p = &part[--depth];
      array |= p->array;
      first = p->first;
      x[k] = p->array ? 0 : r->term[p->first].value;
    }
    const Part *operand = &part[depth];
    if (!array) {
      double value = t.op == PIPE_TERM_CONST  ? t.value
                     : t.op == PIPE_TERM_REAL ? in->real[t.arg]
                                              : pr_term_number((PipeTermOp)t.op, x);
      r->n = first;
      t = (PipeTerm){PIPE_TERM_CONST, 0, value};
    } else if (t.op == PIPE_TERM_COND && !operand[0].array) {
      /* The condition is a number: only the terms of the chosen value remain. */
      uint32_t from = operand[x[0] != 0 ? 1 : 2].first, end = x[0] != 0 ? operand[2].first : r->n;
      memmove(&r->term[first], &r->term[from], (end - from) * sizeof *r->term);
      r->n = first + (end - from);
      part[depth++] = (Part){first, true};
      continue;
    }
    r->term[r->n++] = t;
    part[depth++] = (Part){first, array};
  }
}

#define EACH(value) \
  for (uint32_t j = 0; j < n; j++) \
    to[j] = (value); \
  break;

/* Evaluates one term for n <= BLOCK elements. `to` is the first operand and the result, b and c are
 * the other operands. */
static void term_block(PipeTermOp op, float *restrict to, const float *restrict b,
                       const float *restrict c, uint32_t n) {
  switch (op) {
  case PIPE_TERM_NEG: EACH(-to[j])
  case PIPE_TERM_NOT: EACH((float)(to[j] == 0))
  case PIPE_TERM_ABS: EACH(fabsf(to[j]))
  case PIPE_TERM_SQRT: EACH(sqrtf(to[j]))
  case PIPE_TERM_EXP: EACH((float)exp((double)to[j]))
  case PIPE_TERM_LOG: EACH((float)log((double)to[j]))
  case PIPE_TERM_FLOOR: EACH(floorf(to[j]))
  case PIPE_TERM_ADD: EACH(to[j] + b[j])
  case PIPE_TERM_SUB: EACH(to[j] - b[j])
  case PIPE_TERM_MUL: EACH(to[j] * b[j])
  case PIPE_TERM_DIV: EACH(to[j] / b[j])
  case PIPE_TERM_POW: EACH((float)pow((double)to[j], (double)b[j]))
  case PIPE_TERM_MIN: EACH(to[j] < b[j] ? to[j] : b[j])
  case PIPE_TERM_MAX: EACH(to[j] > b[j] ? to[j] : b[j])
  case PIPE_TERM_LT: EACH((float)(to[j] < b[j]))
  case PIPE_TERM_LE: EACH((float)(to[j] <= b[j]))
  case PIPE_TERM_GT: EACH((float)(to[j] > b[j]))
  case PIPE_TERM_GE: EACH((float)(to[j] >= b[j]))
  case PIPE_TERM_EQ: EACH((float)(to[j] == b[j]))
  case PIPE_TERM_NE: EACH((float)(to[j] != b[j]))
  case PIPE_TERM_AND: EACH((float)((to[j] != 0) & (b[j] != 0)))
  case PIPE_TERM_OR: EACH((float)((to[j] != 0) | (b[j] != 0)))
  case PIPE_TERM_COND: EACH(to[j] != 0 ? b[j] : c[j])
  default: break; /* CONST, REAL, ELEM: the caller pushes them */
  }
}

double pr_formula_number(const PipeFormula *f, const PrFormulaIn *in) {
  Reduced r;
  reduce(f, in, &r);
  return r.term[0].value;
}

void pr_formula_array(const PipeFormula *f, const PrFormulaIn *in, float *out, uint64_t n) {
  Reduced r;
  float stack[PIPE_FORMULA_DEPTH][BLOCK];
  reduce(f, in, &r);
  for (uint64_t at = 0; at < n; at += BLOCK) {
    uint32_t len = n - at < BLOCK ? (uint32_t)(n - at) : BLOCK, depth = 0;
    for (uint32_t i = 0; i < r.n; i++) {
      const PipeTerm *t = &r.term[i];
      if (t->op == PIPE_TERM_ELEM) {
        memcpy(stack[depth++], in->elem[t->arg] + at, len * sizeof(float));
      } else if (t->op == PIPE_TERM_CONST) {
        for (uint32_t j = 0; j < len; j++)
          stack[depth][j] = (float)t->value;
        depth++;
      } else {
        depth -= pr_term_operands[t->op] - 1u;
        float *to = stack[depth - 1];
        /* Operands that the term does not have are not read; any address does. */
        term_block((PipeTermOp)t->op, to, stack[depth < PIPE_FORMULA_DEPTH ? depth : 0],
                   stack[depth + 1 < PIPE_FORMULA_DEPTH ? depth + 1 : 0], len);
      }
    }
    memcpy(out + at, stack[0], len * sizeof(float));
  }
}
