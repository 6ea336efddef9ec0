/* SPDX-License-Identifier: MIT
 * Formulas (runtime/tables/evaluate.c) against an evaluation of random expression trees written
 * from the text of pipe_formula.h, element by element; and tables that are no formulas.
 *
 *   formula_test [SEED]     prints the seed, and what disagrees */
#include "evaluate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NSTATE = 2, NARRAY = PIPE_ELEM_STATE + NSTATE, N = 700, NODES = 40 };

static uint64_t seed;
static uint32_t draw(uint32_t n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(seed >> 33) % n;
}

typedef struct Node {
  uint32_t op, arg;
  double value;
  struct Node *x[3];
} Node;

typedef struct Value {
  int array;
  double number;
  float elem;
} Value;

static float data[NARRAY][N];
static double reals[PIPE_NREALS];

static Node pool[4096];
static uint32_t npool;

static Node *tree(uint32_t budget) {
  Node *n = &pool[npool++];
  *n = (Node){0};
  uint32_t kind = budget == 0 ? draw(3) : 3 + draw(PIPE_NTERMS - 3);
  n->op = kind;
  if (kind == PIPE_TERM_CONST)
    n->value = draw(3) == 0 ? (double)(int)draw(7) - 3 : (double)draw(1000) / 250 - 2;
  else if (kind == PIPE_TERM_REAL)
    n->arg = draw(PIPE_NREALS);
  else if (kind == PIPE_TERM_ELEM)
    n->arg = draw(NARRAY);
  for (uint32_t k = 0; k < pr_term_operands[kind]; k++)
    n->x[k] = tree(draw(budget));
  return n;
}

static double of_numbers(uint32_t op, double a, double b, double c) {
  switch (op) {
  case PIPE_TERM_NEG: return -a;
  case PIPE_TERM_NOT: return a == 0 ? 1 : 0;
  case PIPE_TERM_ABS: return a < 0 || (a == 0 && signbit(a)) ? -a : a;
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
  case PIPE_TERM_LT: return a < b ? 1 : 0;
  case PIPE_TERM_LE: return a <= b ? 1 : 0;
  case PIPE_TERM_GT: return a > b ? 1 : 0;
  case PIPE_TERM_GE: return a >= b ? 1 : 0;
  case PIPE_TERM_EQ: return a == b ? 1 : 0;
  case PIPE_TERM_NE: return a == b ? 0 : 1;
  case PIPE_TERM_AND: return a == 0 || b == 0 ? 0 : 1;
  case PIPE_TERM_OR: return a == 0 && b == 0 ? 0 : 1;
  default: return a == 0 ? c : b;
  }
}
static float of_floats(uint32_t op, float a, float b, float c) {
  switch (op) {
  case PIPE_TERM_NEG: return -a;
  case PIPE_TERM_NOT: return a == 0 ? 1 : 0;
  case PIPE_TERM_ABS: return a < 0 || (a == 0 && signbit(a)) ? -a : a;
  case PIPE_TERM_SQRT: return sqrtf(a);
  case PIPE_TERM_EXP: return (float)exp((double)a);
  case PIPE_TERM_LOG: return (float)log((double)a);
  case PIPE_TERM_FLOOR: return floorf(a);
  case PIPE_TERM_ADD: return a + b;
  case PIPE_TERM_SUB: return a - b;
  case PIPE_TERM_MUL: return a * b;
  case PIPE_TERM_DIV: return a / b;
  case PIPE_TERM_POW: return (float)pow((double)a, (double)b);
  case PIPE_TERM_MIN: return a < b ? a : b;
  case PIPE_TERM_MAX: return a > b ? a : b;
  case PIPE_TERM_LT: return a < b ? 1 : 0;
  case PIPE_TERM_LE: return a <= b ? 1 : 0;
  case PIPE_TERM_GT: return a > b ? 1 : 0;
  case PIPE_TERM_GE: return a >= b ? 1 : 0;
  case PIPE_TERM_EQ: return a == b ? 1 : 0;
  case PIPE_TERM_NE: return a == b ? 0 : 1;
  case PIPE_TERM_AND: return a == 0 || b == 0 ? 0 : 1;
  case PIPE_TERM_OR: return a == 0 && b == 0 ? 0 : 1;
  default: return a == 0 ? c : b;
  }
}

static Value eval(const Node *n, uint32_t j) {
  Value v = {0}, x[3] = {{0}};
  if (n->op == PIPE_TERM_CONST) {
    v.number = n->value;
  } else if (n->op == PIPE_TERM_REAL) {
    v.number = reals[n->arg];
  } else if (n->op == PIPE_TERM_ELEM) {
    v.array = 1;
    v.elem = data[n->arg][j];
  } else {
    for (uint32_t k = 0; k < pr_term_operands[n->op]; k++) {
      x[k] = eval(n->x[k], j);
      v.array |= x[k].array;
    }
    for (uint32_t k = 0; v.array && k < pr_term_operands[n->op]; k++)
      if (!x[k].array)
        x[k].elem = (float)x[k].number;
    if (v.array)
      v.elem = of_floats(n->op, x[0].elem, x[1].elem, x[2].elem);
    else
      v.number = of_numbers(n->op, x[0].number, x[1].number, x[2].number);
  }
  return v;
}

static PipeTerm term[PIPE_FORMULA_TERMS];
static uint32_t nterm, depth, deepest, too_long;

static void postfix(const Node *n) {
  for (uint32_t k = 0; k < pr_term_operands[n->op]; k++)
    postfix(n->x[k]);
  if (nterm == PIPE_FORMULA_TERMS) {
    too_long = 1;
    return;
  }
  term[nterm++] = (PipeTerm){n->op, n->arg, n->value};
  depth += 1 - pr_term_operands[n->op];
  deepest = depth > deepest ? depth : deepest;
}

static int same(float a, float b) { return !memcmp(&a, &b, sizeof a) || (isnan(a) && isnan(b)); }

int main(int argc, char **argv) {
  uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  seed = first;
  printf("seed %llu\n", (unsigned long long)first);
  const float *elem[NARRAY];
  for (uint32_t a = 0; a < NARRAY; a++) {
    elem[a] = data[a];
    for (uint32_t j = 0; j < N; j++)
      data[a][j] = draw(20) == 0 ? (float)(int)draw(5) - 2 : (float)draw(100000) / 25000 - 2;
  }
  uint32_t ran = 0, numbers = 0, seen[PIPE_NTERMS] = {0};
  for (uint32_t round = 0; round < 4000; round++) {
    npool = nterm = depth = deepest = too_long = 0;
    reals[PIPE_REAL_LR] = (double)draw(100) / 1000;
    reals[PIPE_REAL_K] = draw(5);
    Node *root = tree(draw(NODES));
    postfix(root);
    PrFormulaIn in = {elem, {reals[0], reals[1]}};
    PipeFormula f = {term, nterm, deepest, !eval(root, 0).array, 0};
    uint32_t named, want = 0;
    const char *wrong = pr_formula_check(&f, NSTATE, &named);
    if (too_long || deepest > PIPE_FORMULA_DEPTH) {
      if (!wrong)
        return printf("round %u: too large, and accepted\n", round), 1;
      continue;
    }
    for (uint32_t i = 0; i < nterm; i++) {
      seen[term[i].op]++;
      if (term[i].op == PIPE_TERM_ELEM)
        want |= 1u << term[i].arg;
    }
    if (wrong || named != want)
      return printf("round %u: %s, arrays %x, not %x\n", round, wrong ? wrong : "", named, want), 1;
    float got[N];
    uint32_t len = 1 + draw(N);
    pr_formula_array(&f, &in, got, len);
    for (uint32_t j = 0; j < len; j++) {
      Value v = eval(root, j);
      float w = v.array ? v.elem : (float)v.number;
      if (!same(got[j], w))
        return printf("round %u element %u: %a, not %a\n", round, j, got[j], w), 1;
    }
    if (f.scalar) {
      double a = pr_formula_number(&f, &in), b = eval(root, 0).number;
      if (memcmp(&a, &b, sizeof a) && !(isnan(a) && isnan(b)))
        return printf("round %u: %a, not %a\n", round, a, b), 1;
      numbers++;
    } else { /* the result in the place of an array that is read */
      float copy[N];
      memcpy(copy, data[0], sizeof copy);
      elem[0] = copy;
      pr_formula_array(&f, &in, copy, len);
      elem[0] = data[0];
      for (uint32_t j = 0; j < len; j++)
        if (!same(copy[j], got[j]))
          return printf("round %u element %u: in place %a, not %a\n", round, j, copy[j], got[j]), 1;
    }
    ran++;

    /* One thing changed: refused, or it is a formula and can be carried out. */
    uint32_t at = draw(nterm);
    PipeTerm old = term[at];
    switch (draw(6)) {
    case 0: term[at].op = draw(PIPE_NTERMS + 2); break;
    case 1: term[at].arg = draw(12); break;
    case 2: f.n -= draw(nterm); break;
    case 3: f.depth += draw(3); break;
    case 4: f.scalar = draw(3); break;
    default: f.zero = draw(2);
    }
    if (!pr_formula_check(&f, NSTATE, NULL))
      pr_formula_array(&f, &in, got, N);
    term[at] = old;
  }
  for (uint32_t op = 0; op < PIPE_NTERMS; op++)
    if (seen[op] == 0)
      return printf("term %u never came up\n", op), 1;

  static const struct Bad {
    PipeTerm t[3];
    uint32_t n, depth, scalar, zero;
    const char *says;
  } bad[] = {
      {{{0}}, 0, 0, 0, 0, "without terms"},
      {{{PIPE_TERM_ADD, 0, 0}}, 1, 1, 1, 0, "without its operands"},
      {{{PIPE_TERM_CONST, 0, 1}, {PIPE_TERM_CONST, 0, 1}}, 2, 2, 1, 0, "more than one value"},
      {{{PIPE_NTERMS, 0, 0}}, 1, 1, 1, 0, "unknown term"},
      {{{PIPE_TERM_REAL, PIPE_NREALS, 0}}, 1, 1, 1, 0, "unknown number"},
      {{{PIPE_TERM_ELEM, PIPE_ELEM_STATE + NSTATE, 0}}, 1, 1, 0, 0, "does not have"},
      {{{PIPE_TERM_CONST, 1, 0}}, 1, 1, 1, 0, "does not take"},
      {{{PIPE_TERM_CONST, 0, 1}}, 1, 2, 1, 0, "another depth"},
      {{{PIPE_TERM_CONST, 0, 1}}, 1, 1, 0, 0, "another kind"},
      {{{PIPE_TERM_ELEM, 0, 0}}, 1, 1, 1, 0, "another kind"},
      {{{PIPE_TERM_CONST, 0, 1}}, 1, 1, 1, 1, "unknown field"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    PipeFormula f = {bad[i].t, bad[i].n, bad[i].depth, bad[i].scalar, bad[i].zero};
    const char *says = pr_formula_check(&f, NSTATE, NULL);
    if (!says || !strstr(says, bad[i].says))
      return printf("bad formula %zu: '%s', not '%s'\n", i, says ? says : "", bad[i].says), 1;
  }
  printf("%s\n", ran > 3000 && numbers > 100 ? "formulas agree" : "too few formulas");
  return 0;
}
