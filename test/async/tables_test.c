/* SPDX-License-Identifier: MIT
 * Programs with formulas whose tables are wrong: with one entry changed, a program is refused with
 * a text, or is a program that can be carried out; and models that lack what formulas need are
 * refused.
 *
 *   tables_test STDLIB_DIR [SEED]     prints the seed, and how many were refused */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../run/program.h"
#include "../run/seeded.h"
#include "pipe_run.h"

enum { NW = 20, P = 3, M = 9, ROUNDS = 1500 };

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  (void)self;
  *out = (PrSizes){.act = 8,
                   .boundary = stage + 1 < P ? 8 : 0,
                   .weight = NW * sizeof(float),
                   .grad = NW * sizeof(float),
                   .opt = 2 * NW * sizeof(float)};
  return 0;
}
static int init(void *self, uint32_t stage, void *weight, void *opt) {
  (void)self, (void)opt;
  for (int i = 0; i < NW; i++)
    ((float *)weight)[i] = (float)(i + (int)stage);
  return 0;
}
static int run_op(void *self, const PrCall *c) {
  (void)self;
  if (c->y)
    memset(c->y, 0, 8);
  if (c->dx)
    memset(c->dx, 0, 8);
  for (int i = 0; c->grad && c->op == PIPE_B && i < NW; i++)
    ((float *)c->grad)[i] += ((const float *)c->weight)[i];
  return 0;
}
static int update(void *self, const PrCall *c) {
  (void)self;
  for (int i = 0; i < NW; i++) {
    ((float *)c->weight)[i] = ((const float *)c->newest)[i] -
                              (float)(0.01 * c->rate) * ((float *)c->grad)[i];
    ((float *)c->grad)[i] = 0;
  }
  return 0;
}
static double learning_rate(void *self, uint32_t stage, uint64_t k) {
  (void)self, (void)stage, (void)k;
  return 0.01;
}
static int64_t moment(void *self, uint32_t stage, int which) {
  (void)self, (void)stage;
  return which * NW * (int64_t)sizeof(float);
}

static uint64_t seed;
static uint32_t draw(uint32_t n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(seed >> 33) % n;
}
/* A number that is sometimes near what it was, sometimes none. */
static uint32_t other(uint32_t old) {
  return draw(3) == 0 ? old + draw(3) - 1 : draw(2) ? draw(12) : PIPE_NONE - draw(3);
}

/* A copy of a table that may be written to. */
static void *copy_of(const void *table, size_t bytes) {
  void *to = malloc(bytes + 1);
  if (!to)
    abort();
  if (bytes > 0)
    memcpy(to, table, bytes);
  return to;
}

static const PrModel model = {.nstage = P,
                              .sizes = sizes,
                              .init = init,
                              .forward = run_op,
                              .backward = run_op,
                              .update = update,
                              .elem = 4,
                              .lr = learning_rate,
                              .moment = moment};

/* 1: it was refused with a text; 0: it ran; -1: neither. */
static int attempt(const PipeProgram *p, const PrModel *m) {
  PrRun *run = NULL;
  PrStatus st = pr_open(&run, p, m, &(PrOptions){SEEDED(1)});
  int got = st ? (*pr_error(run) ? 1 : -1) : pr_steps(run, 1) ? -1 : 0;
  if (got < 0)
    printf("%s\n", run ? pr_error(run) : "no memory");
  pr_close(run);
  return got;
}

static int refused_for(const PipeProgram *p, PrModel m, const char *what) {
  PrRun *run = NULL;
  pr_open(&run, p, &m, NULL);
  int ok = run && strstr(pr_error(run), what) != NULL;
  if (!ok)
    printf("not refused for '%s': %s\n", what, run ? pr_error(run) : "");
  pr_close(run);
  return ok;
}

static int corrupt(const PipeProgram *good) {
  PipeProgram p = *good;
  PipeFormula *formula = copy_of(p.formula, p.nformula * sizeof *formula);
  PipeRule *rule = copy_of(p.rule, p.nrule * sizeof *rule);
  PipeThen *then = copy_of(p.then, p.nthen * sizeof *then);
  PipeStage *stage = copy_of(p.stage, p.nstage * sizeof *stage);
  PipeRank *rank = copy_of(p.rank, p.nrank * sizeof *rank);
  uint32_t r = draw(p.nrank), i = draw(p.rank[r].ninstr), f = draw(p.nformula),
           t = draw(formula[f].n);
  PipeWeights *weights = copy_of(p.rank[r].weights, p.rank[r].ninstr * sizeof *weights);
  PipeTerm *term = copy_of(formula[f].term, formula[f].n * sizeof *term);
  formula[f].term = term, rank[r].weights = weights;
  p.formula = formula, p.rule = rule, p.then = then, p.stage = stage, p.rank = rank;
  uint32_t what = draw(14);
  switch (what >= 5 && what <= 11 && p.nrule == 0 ? 13 : what) {
  case 0: term[t].op = other(term[t].op); break;
  case 1: term[t].arg = other(term[t].arg); break;
  case 2: formula[f].n = draw(formula[f].n + 1); break;
  case 3: formula[f].depth = other(formula[f].depth); break;
  case 4: formula[f].scalar = other(formula[f].scalar); break;
  case 5: rule[draw(p.nrule)].applies = other(f); break;
  case 6: rule[draw(p.nrule)].rate = other(f); break;
  case 7: rule[draw(p.nrule)].then0 = other(draw(p.nthen)); break;
  case 8: rule[draw(p.nrule)].nthen = other(1); break;
  case 9: then[draw(p.nthen)].state = other(0); break;
  case 10: then[draw(p.nthen)].formula = other(f); break;
  case 11: stage[draw(p.nstage)].states = other(1); break;
  case 12: weights[i].formula = other(weights[i].formula); break;
  default: weights[i].guess = other(weights[i].guess);
  }
  int got = attempt(&p, &model);
  free(formula), free(rule), free(then), free(stage), free(rank), free(weights), free(term);
  return got;
}

/* What an op reads of an estimate that another one has made. */
static int estimates(const PipeProgram *good) {
  PipeProgram p = *good;
  PipeRank *rank = copy_of(p.rank, p.nrank * sizeof *rank);
  PipeWeights *w = copy_of(rank[0].weights, rank[0].ninstr * sizeof *w), *first = NULL,
              *other = NULL;
  int ok = 1;
  rank[0].weights = w, p.rank = rank;
  for (uint32_t i = 0; i < rank[0].ninstr; i++)
    if (w[i].version != PIPE_NONE && w[i].slot == PIPE_NONE)
      other = &w[i]; /* the last one */
    else if (w[i].formula != PIPE_NONE && p.rank[0].instr[i].op == PIPE_F && !first)
      first = &w[i];
  if (!first || !other)
    return 0;
  PipeWeights was = *other;
  other->version--, ok &= refused_for(&p, model, "reads an estimate from version"), *other = was;
  other->slot = first->slot, ok &= refused_for(&p, model, "and an estimate in slot"), *other = was;
  other->guess = PIPE_NONE, ok &= refused_for(&p, model, "weights in slot"), *other = was;
  other->guess = first->slot, ok &= refused_for(&p, model, "not one of class guess"), *other = was;
  PipeWeights *update = w, before;
  while (update->out == PIPE_NONE)
    update++;
  before = *update;
  update->guess = first->guess, ok &= refused_for(&p, model, "has no formula that reads them");
  *update = before;
  was = *first;
  first->slot = PIPE_NONE, ok &= refused_for(&p, model, "weights in slot"), *first = was;
  first->formula = PIPE_NONE, first->slot = PIPE_NONE;
  ok &= refused_for(&p, model, "holds no estimate");
  free(rank), free(w);
  return ok;
}

/* A stage that keeps a state which none of its formulas reads. */
static int superfluous_state(const PipeProgram *good) {
  static const char *const name[] = {"d", "e"};
  PipeProgram p = *good;
  PipeStage *stage = copy_of(p.stage, p.nstage * sizeof *stage);
  stage[0].states = 3;
  p.stage = stage, p.state = name, p.nstate = 2;
  int ok = refused_for(&p, model, "stage 0 keeps states 0x3, of which formulas read 0x1");
  free(stage);
  return ok;
}

/* A side op that reads an estimate. */
static int side_estimate(const char *stdlib) {
  static const char text[] = "schedule t() { ranks 1 pipe n stages 1 mbs 2 place s -> s\n"
                             "  side LOOK(s) on compute after last B\n"
                             "  order r { do m in 0..2 { F(m) B(m) U(m) } }\n"
                             "  weights { B reads newest as w * lr } }\n";
  static Program g;
  if (!program_open(&g, stdlib, "t", text, NULL, 0, NULL))
    return 0;
  PipeProgram p = *g.s.prog;
  PipeRank rank = p.rank[0];
  PipeWeights *w = copy_of(rank.weights, rank.ninstr * sizeof *w);
  const PipeWeights *estimate = w;
  while (estimate->formula == PIPE_NONE)
    estimate++;
  for (uint32_t i = 0; i < rank.ninstr; i++)
    if (rank.instr[i].op == PIPE_SIDE) {
      w[i].guess = estimate->guess;
      w[i].formula = estimate->formula;
    }
  rank.weights = w, p.rank = &rank;
  int ok = refused_for(&p, model, "a side op reads the weights");
  free(w);
  program_close(&g);
  return ok;
}

int main(int argc, char **argv) {
  if (argc < 2)
    return 2;
  seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  printf("seed %llu\n", (unsigned long long)seed);
  static const char *const names[] = {"pipemare_t2", "spectrain", "async_scaled", "xpipe"};
  const PipeProgram *prog[4];
  static Program g[4];
  int bad = 0, refused = 0, ran = 0;
  for (int k = 0; k < 4; k++) {
    Define define[] = {
        {.name = "P", .value = P}, {.name = "M", .value = M}, {.name = "N", .value = 2}};
    if (!program_open(&g[k], argv[1], names[k], NULL, define, k == 3 ? 3 : 2, NULL))
      return 1;
    prog[k] = g[k].s.prog;
    if (attempt(prog[k], &model) != 0)
      printf("%s does not run\n", names[k]), bad = 1;
  }
  for (int k = 0; k < ROUNDS && !bad; k++) {
    int got = corrupt(prog[k % 2 ? 3 : 0]);
    bad |= got < 0;
    refused += got == 1, ran += got == 0;
  }
  PrModel less = model;
  less.elem = 0;
  bad |= !refused_for(prog[0], less, "PrModel.elem = 4");
  less = model, less.lr = NULL;
  bad |= !refused_for(prog[1], less, "lr may not be NULL");
  less = model, less.moment = NULL;
  bad |= !refused_for(prog[1], less, "the first moment of the optimizer");
  bad |= !bad && (!estimates(prog[3]) || !superfluous_state(prog[0]) || !side_estimate(argv[1]));
  for (int k = 0; k < 4; k++)
    program_close(&g[k]);
  if (!bad)
    printf("%s\n", refused > ROUNDS / 3 && ran > 10 ? "refused, or run" : "too few of either");
  return bad;
}
