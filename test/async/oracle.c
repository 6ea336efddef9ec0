/* SPDX-License-Identifier: MIT
 * The semantic oracle of asynchronous training. A definition says, by formula, for each stage s and
 * microbatch k of a step
 *
 *   which version of the weights of s the forward of k uses, and which one its backward
 *   how many updates of s there have been when they run, whose moments and states an estimate is
 *   made from which microbatches make up an update, and what it does to their gradient, the rate,
 *   and states
 *
 * and a loop over microbatches, in one thread, that keeps every version of everything does exactly
 * that. It knows no ranks, no orders and no slots. For every schedule with a definition, the losses
 * of all microbatches and the final weights of the engines are equal to its, bit for bit, over
 * several steps with hundreds of updates, and the engine takes the bytes that were proved. Compiled
 * with ON_MPI the engine is that of processes (engines.h).
 *
 *   oracle STDLIB_DIR SCRATCH_FILE [--break|--forge]   one line per schedule; exit status 0 iff all
 *                                                      agree
 *
 * SCRATCH_FILE is written: a profile with the model's sizes. --break gives the engine's model
 * another learning rate from update 37 on, and every run must then differ. --forge runs programs
 * with formulas, one op of which has another formula, or one with another operation or constant;
 * every run must differ or be refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../run/layer.h"
#include "../run/program.h"
#include "../run/seeded.h"
#include "../run/train.h"
#include "pipe_optim.h"
#include "pipe_run.h"

enum { STEPS = 3, MOST_STAGES = 16, MOST_UPDATES = 1500, MOST_M = 700 };

static int broken, forged;

/* ---- the optimizers, once more: one weight after the other ---- */

typedef struct Optimizer {
  const char *name;
  PrOptim o;
  double lr;
} Optimizer;

/* The learning rate falls slowly, so that it matters which update this is. */
static double rate_of(const Optimizer *o, uint64_t update) {
  return o->lr / (1 + 0.01 * (double)update);
}

static void optimize(const Optimizer *opt, uint64_t update, double factor, const float *from,
                     const float *g, float *to, float *v, float *v2) {
  const PrOptim *o = &opt->o;
  double lr = rate_of(opt, update) * factor;
  for (int i = 0; i < NW; i++) {
    if (o->kind == PR_SGD) {
      to[i] = from[i] - (float)lr * g[i];
    } else if (o->kind == PR_MOMENTUM) {
      v[i] = (float)o->beta1 * v[i] + g[i];
      to[i] = from[i] - (float)lr * v[i];
    } else {
      double t = (double)update + 1;
      float w = from[i];
      v[i] = (float)o->beta1 * v[i] + (float)(1 - o->beta1) * g[i];
      v2[i] = (float)o->beta2 * v2[i] + (float)(1 - o->beta2) * g[i] * g[i];
      if (o->kind == PR_ADAMW)
        w = (float)(1 - lr * o->decay) * w;
      to[i] = w - (float)(lr / (1 - pow(o->beta1, t))) * v[i] /
                      (sqrtf(v2[i] * (float)(1 / (1 - pow(o->beta2, t)))) + (float)o->eps);
    }
  }
}

/* ---- definitions ---- */

typedef struct Def Def;

/* What a version and the state around it are: of one stage after so many updates. */
typedef struct Version {
  float w[NW], v[NW], v2[NW], d[NW];
} Version;

/* One update of a stage, or one op, as a definition sees it. */
typedef struct Now {
  const Def *def;
  const Optimizer *opt;
  uint32_t s, mb; /* mb: of an update its last */
  uint64_t k;     /* updates of the stage so far, over all steps */
  uint32_t
      /* B: the version it reads less that of its F; an update: of all its microbatches the most */
      behind;
  uint32_t ahead; /* from the version that an op reads to that which its gradient is applied to */
  const Version *at; /* after k updates */
} Now;

struct Def {
  const char *name;
  uint32_t P, M, N; /* stages, microbatches of a step, of an update */
  uint32_t flow;    /* forwards and backwards side by side */
  uint32_t warm;    /* so many microbatches come first, in rounds of N with a flush */
  uint32_t replicas[MOST_STAGES],
      lag[MOST_STAGES]; /* microbatches of a replica between its F and B */
  enum { NEWEST, AT_ENTRY, DOUBLE } f;
  enum { AS_F, LATEST } b;
  bool bellwether; /* all forwards of a minibatch use what the first of them does */
  /* NULL: no such thing. estimate: of weights w for F (b = 0) or B. */
  void (*estimate)(const Now *n, int b, const float *w, float *out);
  void (*applies)(const Now *n, float *g);
  double (*rate)(const Now *n);
  void (*then)(const Now *n, const float *old, const float *w, float *d);
};

static uint32_t late(const Def *d, uint32_t s) { /* the most updates that a gradient is late */
  return (d->lag[s] + d->N - 1) / d->N;
}
static uint32_t updates_at(const Def *d, uint32_t s, uint32_t k, int backward) {
  uint32_t mine = k < d->warm ? k : (k - d->warm) / d->replicas[s], lag = d->lag[s];
  if (k < d->warm)
    return mine / d->N;
  if (!backward)
    mine = mine > lag ? mine - lag : 0;
  return d->warm / d->N + mine / d->N;
}
static uint32_t read_by_f(const Def *d, uint32_t s, uint32_t k) {
  switch (d->f) {
  case AT_ENTRY: return k > d->P - 1 ? k - (d->P - 1) : 0;
  case DOUBLE: return k / d->N > 1 ? k / d->N - 1 : 0;
  default: return updates_at(d, s, k, 0);
  }
}

static double by_replicas(const Now *n) {
  return (double)n->def->replicas[n->s] / n->def->replicas[0];
}

/* T1, T2: K = 100 and D = .135, as the schedules' defaults. */
static double t1(const Now *n) {
  double delay = late(n->def, n->s), k = (double)n->k - n->def->warm / n->def->N;
  if (n->mb < n->def->warm)
    return 1;
  return pow(delay > 1 ? delay : 1, -(1 - (k / 100 < 1 ? k / 100 : 1)));
}
static void t2_estimate(const Now *n, int b, const float *w, float *out) {
  for (int i = 0; i < NW; i++)
    out[i] = b && n->behind ? w[i] - (n->behind == 1 ? n->at->d[i] : (float)n->behind * n->at->d[i])
                            : w[i];
}
static void t2_then(const Now *n, const float *old, const float *w, float *d) {
  uint32_t delay = late(n->def, n->s);
  double gamma = delay ? pow(0.135, 1.0 / delay) : 0;
  for (int i = 0; i < NW && delay; i++)
    d[i] = (float)gamma * d[i] + (float)(1 - gamma) * (w[i] - old[i]);
}
static void spectrain(const Now *n, int b, const float *w, float *out) {
  uint32_t steps = n->s / 2 + (b ? 0 : n->def->P - 1 - n->s);
  double lr = rate_of(n->opt, n->k);
  for (int i = 0; i < NW; i++)
    out[i] = steps ? w[i] - (float)(steps * lr) * n->at->v[i] : w[i];
}
static void xpipe(const Now *n, int b, const float *w, float *out) {
  double k = (double)n->k, scale = n->ahead * rate_of(n->opt, n->k) / (1 - pow(0.9, k));
  for (int i = 0; i < NW; i++)
    out[i] = b || n->ahead == 0 || n->k == 0
                 ? w[i]
                 : w[i] - (float)scale * n->at->v[i] /
                              (sqrtf(n->at->v2[i] / (float)(1 - pow(0.999, k))) + (float)1e-8);
}
static void msnag(const Now *n, int b, const float *w, float *out) {
  double scale = rate_of(n->opt, n->k) * (0.9 - pow(0.9, n->ahead + 1)) / (1 - 0.9);
  for (int i = 0; i < NW; i++)
    out[i] = b || n->ahead == 0 ? w[i] : w[i] - (float)scale * n->at->v[i];
}
static void msnag_adam(const Now *n, int b, const float *w, float *out) {
  double lr = rate_of(n->opt, n->k), k = (double)n->k;
  for (int i = 0; i < NW; i++) {
    float sum = 0;
    for (uint32_t j = 1; j <= n->ahead; j++) {
      float step = (float)(pow(0.9, j) / (1 - pow(0.9, k + j))) * n->at->v[i] /
                   (sqrtf(n->at->v2[i] / (float)(1 - pow(0.999, k + j))) + (float)1e-8);
      sum = j == 1 ? step : sum + step;
    }
    out[i] = b || n->ahead == 0 ? w[i] : w[i] - (float)lr * sum;
  }
}
static void scaled(const Now *n, float *g) {
  for (int i = 0; i < NW && n->behind; i++)
    g[i] = g[i] / (float)(1 + n->behind);
}

/* ---- the definition, carried out ---- */

typedef struct Result {
  double *loss;  /* [STEPS * M] */
  float *weight; /* [P * NW] */
} Result;

static void init_weight(uint32_t stage, float *w) {
  for (int i = 0; i < NW; i++)
    w[i] = 0.4f * noise(1, stage, (uint64_t)i);
}
/* Not 0: microbatch mb of a step of so many is mb of one long step, and so has its input. */
static uint32_t input_period;
static void input(uint64_t step, uint32_t mb, float *x) {
  if (input_period) {
    mb += (uint32_t)step * input_period;
    step = 0;
  }
  for (int i = 0; i < N; i++)
    x[i] = noise(2, step * 1000003 + mb, (uint64_t)i);
}

/* The weights that an op uses. Where the forwards of a minibatch use one estimate that is as of the
 * first of them. */
static void weights_for(const Def *d, const Optimizer *o, const Version *all, uint32_t s,
                        uint32_t k, int b, uint64_t before, float *w) {
  if (d->bellwether && !b)
    k -= k % d->N;
  uint32_t vf = read_by_f(d, s, k), newest = updates_at(d, s, k, b);
  uint32_t v = !b || d->b == AS_F ? vf : newest, applied = updates_at(d, s, k, 1);
  Now n = {d, o, s, k, before + newest, v - vf, applied - v, &all[newest]};
  memcpy(w, all[v].w, sizeof all[v].w);
  if (d->estimate) {
    float out[NW];
    d->estimate(&n, b, w, out);
    memcpy(w, out, sizeof out);
  }
}

static Result carry_out(const Def *d, const Optimizer *o) {
  Result r = {calloc((size_t)STEPS * d->M, sizeof(double)),
              calloc((size_t)d->P * NW, sizeof(float))};
  Version(*all)[MOST_UPDATES] = calloc(d->P, sizeof *all);
  float(*grad)[MOST_STAGES][NW] = calloc(d->P, sizeof *grad); /* of each stage, by replica */
  uint64_t before[MOST_STAGES] = {0};
  if (!r.loss || !r.weight || !all || !grad)
    abort();
  for (uint32_t s = 0; s < d->P; s++)
    init_weight(s, all[s][0].w);
  for (uint64_t step = 0; step < STEPS; step++) {
    uint32_t done[MOST_STAGES] = {0}, most[MOST_STAGES] = {0};
    for (uint32_t k = 0; k < d->M; k++) {
      float x[MOST_STAGES + 1][N], dy[N], dz[N], dx[N], w[NW];
      input(step, k, x[0]);
      for (uint32_t s = 0; s < d->P; s++) {
        weights_for(d, o, all[s], s, k, 0, before[s], w);
        layer(x[s], w, x[s + 1]);
      }
      r.loss[step * d->M + k] = loss_of(x[d->P], d->N, dy);
      for (uint32_t s = d->P; s-- > 0;) {
        uint32_t rep = k < d->warm ? 0 : k % d->replicas[s];
        weights_for(d, o, all[s], s, k, 1, before[s], w);
        layer_input(dy, x[s + 1], w, dz, dx);
        layer_weight(x[s], dz, grad[s][rep]);
        memcpy(dy, dx, sizeof dy);
        uint32_t age = updates_at(d, s, k, 1) - read_by_f(d, s, d->bellwether ? k - k % d->N : k);
        most[s] = age > most[s] ? age : most[s];
        if ((k + 1) % (d->N * d->replicas[s]) != 0 && k + 1 < d->M)
          continue;
        /* An update: version done -> done + 1. */
        Version *from = &all[s][done[s]], *to = from + 1;
        Now n = {d, o, s, k, before[s] + done[s], most[s], 0, from};
        float g[NW];
        for (uint32_t i = 1; i < d->replicas[s]; i++)
          for (int j = 0; j < NW; j++)
            grad[s][0][j] += grad[s][i][j];
        memcpy(g, grad[s][0], sizeof g);
        memset(grad[s], 0, sizeof grad[s]);
        if (d->applies)
          d->applies(&n, g);
        *to = *from;
        optimize(o, n.k, d->rate ? d->rate(&n) : 1, from->w, g, to->w, to->v, to->v2);
        if (d->then)
          d->then(&n, from->w, to->w, to->d);
        done[s]++;
        most[s] = 0;
      }
    }
    for (uint32_t s = 0; s < d->P; s++) {
      before[s] += done[s];
      all[s][0] = all[s][done[s]];
    }
  }
  for (uint32_t s = 0; s < d->P; s++)
    memcpy(&r.weight[s * NW], all[s][0].w, sizeof all[s][0].w);
  free(all), free(grad);
  return r;
}

/* ---- the engine's model ---- */

typedef struct Training {
  uint32_t nstage, n; /* n: microbatches that the loss is divided by */
  const Optimizer *opt;
} Training;

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  const Training *m = self;
  *out = (PrSizes){.act = 3 * N * sizeof(float),
                   .boundary = stage + 1 < m->nstage ? N * sizeof(float) : 0,
                   .weight = NW * sizeof(float),
                   .grad = NW * sizeof(float),
                   .opt = 2 * NW * sizeof(float)};
  return 0;
}
static int init(void *self, uint32_t stage, void *weight, void *opt) {
  (void)self, (void)opt;
  init_weight(stage, weight);
  return 0;
}
/* act: x, y, and of the last stage dy */
static int forward(void *self, const PrCall *c) {
  const Training *m = self;
  float *act = c->act;
  if (c->stage == 0)
    input(c->step, c->mb, act);
  else
    memcpy(act, c->x, N * sizeof(float));
  layer(act, c->weight, act + N);
  if (c->stage + 1 == c->nstage)
    *c->loss = loss_of(act + N, m->n, act + 2 * N);
  else
    memcpy(c->y, act + N, N * sizeof(float));
  return 0;
}
static int backward(void *self, const PrCall *c) {
  const float *act = c->act;
  float dz[N];
  (void)self;
  layer_input(c->stage + 1 == c->nstage ? act + 2 * N : c->dy, act + N, c->weight, dz, c->dx);
  layer_weight(act, dz, c->grad);
  return 0;
}
static double learning_rate(void *self, uint32_t stage, uint64_t update) {
  (void)stage;
  return rate_of(((const Training *)self)->opt, update) * (broken && update > 36 ? 1.01 : 1);
}
static int update_stage(void *self, const PrCall *c) {
  const Training *m = self;
  float *v = c->opt;
  if (c->rate < 0)
    return 1;
  pr_optim(&m->opt->o, c->updates + 1, learning_rate(self, c->stage, c->updates) * c->rate, NW,
           c->newest, c->weight, c->grad, v, v + NW);
  return 0;
}
static int64_t moment(void *self, uint32_t stage, int which) {
  const Training *m = self;
  (void)stage;
  return which < (int)pr_optim_moments(m->opt->o.kind) ? which * NW * (int64_t)sizeof(float) : -1;
}

static PrModel model_of(Training *m) {
  return (PrModel){.self = m,
                   .nstage = m->nstage,
                   WHOLE_OPS(update_stage),
                   .reduce = sum_floats,
                   .elem = 4,
                   .lr = learning_rate,
                   .moment = moment};
}

static int failures, cases;
static const char *dir, *scratch;

static void fail(const Def *d, const Optimizer *o, const char *engine, const char *what) {
  printf("FAIL %s P=%u M=%u N=%u %s %s: %s\n", d->name, d->P, d->M, d->N, o->name, engine, what);
  failures++;
}

static void run_one(const Def *d, const Optimizer *o, const PipeProgram *p, const Result *result,
                    PrOptions options, const char *engine) {
  Training self = {d->P, d->N, o};
  const PrModel model = model_of(&self);
  const Wanted want = {
      .steps = STEPS, .nmb = d->M, .nweight = NW, .loss = result->loss, .weight = result->weight};
  char why[256];
  const Trained trained = trains_as(p, &model, options, &want, why);
  cases += trained != NOT_HERE;
  if (trained == OTHERWISE)
    fail(d, o, engine, why);
}

/* ---- mistakes in the tables ---- */

/* Another last term: the result is another one. */
static void forge_term(const PipeFormula *f) {
  static const uint32_t other[PIPE_NTERMS] = {
      [PIPE_TERM_ADD] = PIPE_TERM_SUB, [PIPE_TERM_SUB] = PIPE_TERM_ADD,
      [PIPE_TERM_MUL] = PIPE_TERM_DIV, [PIPE_TERM_DIV] = PIPE_TERM_MUL,
      [PIPE_TERM_POW] = PIPE_TERM_MUL, [PIPE_TERM_MIN] = PIPE_TERM_MAX};
  PipeTerm *last = (PipeTerm *)&f->term[f->n - 1];
  if (last->op == PIPE_TERM_CONST)
    last->value *= 1.5;
  else
    last->op = other[last->op];
}

/* A formula of an op on which the training depends; PIPE_NONE: none. Nobody reads what the first
 * stage sends back, so its estimates and states do not count. */
static uint32_t effective(const PipeProgram *p, const PipeInstr *in, const PipeWeights *w) {
  const bool first = p->stage[in->stage].model == 0;
  if (w->formula == PIPE_NONE || in->op != PIPE_U)
    return first && in->op == PIPE_B ? PIPE_NONE : w->formula;
  const PipeRule *rule = &p->rule[w->formula];
  if (rule->applies != PIPE_NONE)
    return rule->applies;
  if (rule->rate != PIPE_NONE)
    return rule->rate;
  return first ? PIPE_NONE : p->then[rule->then0].formula;
}

/* Changes the formula of an op in the second half of a list: its row, or the last term. False:
 * there is none. */
static bool forge(const PipeProgram *p, bool row) {
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = p->rank[r].ninstr / 2; p->nformula && i < p->rank[r].ninstr; i++) {
      const PipeInstr *in = &p->rank[r].instr[i];
      PipeWeights *w = (PipeWeights *)&p->rank[r].weights[i];
      uint32_t rows = in->op == PIPE_U ? p->nrule : p->nformula, formula = effective(p, in, w);
      if (formula == PIPE_NONE)
        continue;
      if (row && rows > 1)
        w->formula = (w->formula + 1) % rows;
      else
        forge_term(&p->formula[formula]);
      return true;
    }
  return false;
}

/* ---- one case ---- */

static void one_case(const Def *d, const Optimizer *o, Define *define, uint32_t ndefine) {
  if (!engines_case((uint32_t)define[0].value)) /* P */
    return;
  Program g;
  Training self = {d->P, d->N, o};
  const PrModel model = model_of(&self);
  write_profile(scratch, &model);
  if (!program_open(&g, dir, d->name, NULL, define, ndefine, scratch)) {
    fail(d, o, "pipec", "does not compile");
  } else if (!forged || forge(g.s.prog, (d->P + d->N) % 2)) {
    Result want = carry_out(d, o);
    for (uint32_t i = 0; i < STEPS * d->M; i++)
      if (!isfinite(want.loss[i])) {
        fail(d, o, "definition", "does not stay finite: a test of nothing");
        break;
      }
    run_one(d, o, g.s.prog, &want, (PrOptions){.deadline_s = 600},
            engines_of_processes ? "processes" : "threads");
    run_one(d, o, g.s.prog, &want, (PrOptions){SEEDED(1 + d->P * 1000003u + d->N)}, "seeded");
    free(want.loss), free(want.weight);
  }
  program_close(&g);
}

static const Optimizer sgd = {"sgd", {.kind = PR_SGD}, 0.02},
                       momentum = {"momentum", {.kind = PR_MOMENTUM, .beta1 = 0.9}, 0.004},
                       adam = {"adam", {PR_ADAM, 0.9, 0.999, 1e-8, 0, 0}, 0.002},
                       adamw = {"adamw", {PR_ADAMW, 0.9, 0.999, 1e-8, 0.1, 0}, 0.002};

/* A chain of P stages on as many ranks. interval: of the parameter that the schedule has for N, or
 * NULL. */
static void chain(Def d, const Optimizer *o, const char *interval, bool has_flow) {
  Define define[5] = {{.name = "P", .value = d.P}, {.name = "M", .value = d.M}};
  uint32_t n = 2;
  if (interval)
    define[n++] = (Define){.name = interval, .value = d.N};
  if (has_flow)
    define[n++] = (Define){.name = "flow", .value = d.flow};
  if (d.warm)
    define[n++] = (Define){.name = "S", .value = d.warm};
  for (uint32_t s = 0; s < d.P; s++) {
    d.replicas[s] = 1;
    d.lag[s] = d.flow ? 2 * (d.P - 1 - s) + 1 : d.P - 1 - s;
  }
  one_case(&d, o, define, n);
}

static void report(const char *name, int before) { printf("%s: %d runs\n", name, cases - before); }

/* Over P, N and optimizers. first: of the optimizers; how many of them. */
static void grid(Def d, const char *interval, bool has_flow, const Optimizer *const *opt,
                 uint32_t nopt) {
  static const uint32_t stages[] = {1, 2, 4, 7}, counts[] = {1, 2, 3, 5};
  int before = cases;
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < (interval ? 4 : 1); j++) {
      d.P = stages[i], d.N = counts[j];
      d.M = 100 * d.N;
      if (d.f == DOUBLE && d.N < d.P) /* as it asks for */
        d.N = d.P, d.M = 100 * d.N;
      if (d.M > MOST_M)
        d.M = MOST_M / d.N * d.N;
      d.flow = has_flow ? (uint32_t)(i + j) % 2 : 0;
      d.warm = strcmp(d.name, "pipemare_t3") == 0 ? 4 * d.N : 0;
      chain(d, opt[(uint32_t)(i + j) % nopt], interval, has_flow);
    }
  report(d.name, before);
}

/* Stages on several ranks, which take turns. */
static void replicated(uint32_t S, uint32_t A, uint32_t B, uint32_t Z, uint32_t M,
                       const Optimizer *o) {
  Def d = {.name = "pipedream_rr", .P = S, .M = M, .N = 1, .rate = by_replicas};
  Define define[] = {{.name = "P", .value = A + (S - 2) * B + Z},
                     {.name = "A", .value = A},
                     {.name = "B", .value = B},
                     {.name = "Z", .value = Z},
                     {.name = "M", .value = M}};
  uint32_t behind = 0; /* ranks from the stage on */
  for (uint32_t s = S; s-- > 0;) {
    d.replicas[s] = s == 0 ? A : s == S - 1 ? Z : B;
    behind += d.replicas[s];
    d.lag[s] = (behind - 1) / d.replicas[s];
  }
  one_case(&d, o, define, 5);
}

/* The losses of a step up to microbatch n, of a schedule on 4 stages. */
static void losses_of(const char *name, Define *define, uint32_t ndefine, uint32_t per_update,
                      uint32_t n, double *loss) {
  Program g;
  Training self = {4, per_update, &momentum};
  PrModel model = model_of(&self);
  PrRun *run = NULL;
  uint32_t got = 0;
  bool ok = program_open(&g, dir, name, NULL, define, ndefine, NULL) &&
            !pr_open(&run, g.s.prog, &model, NULL);
  while (ok && got < n && (ok = !pr_steps(run, 1))) {
    for (uint32_t k = 0; k < g.s.prog->nmb && got < n; k++)
      loss[got++] = pr_loss_mb(run, k);
  }
  if (!ok)
    printf("FAIL %s: %s\n", name, run ? pr_error(run) : "does not compile"), failures++;
  pr_close(run);
  program_close(&g);
}

/* The synchronous phase of T3 has the losses of GPipe, step by step, and what follows has not. */
static void synchronous_at_first(void) {
  enum { P_ = 4, PER = 4, SYNC = 24, ALL = 48 };
  double a[ALL], b[ALL];
  Define t3[] = {{.name = "P", .value = P_},
                 {.name = "M", .value = ALL},
                 {.name = "N", .value = PER},
                 {.name = "S", .value = SYNC}};
  Define gpipe[] = {{.name = "P", .value = P_}, {.name = "M", .value = PER}};
  losses_of("pipemare_t3", t3, 4, PER, ALL, a);
  input_period = PER;
  losses_of("gpipe", gpipe, 2, PER, ALL, b);
  input_period = 0;
  uint32_t same = 0;
  while (same < ALL && memcmp(&a[same], &b[same], sizeof *a) == 0)
    same++;
  /* Behind the seam a microbatch of the second minibatch is the first that finds other weights. */
  if (same < SYNC || same >= SYNC + 2 * PER)
    printf("FAIL synchronous phase: the first %u losses are those of gpipe\n", same), failures++;
  else
    printf("synchronous phase: as gpipe\n");
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: oracle STDLIB_DIR SCRATCH_FILE [--break|--forge]\n");
    return 2;
  }
  dir = argv[1], scratch = argv[2];
  engines_begin(&scratch);
  broken = argc > 3 && strcmp(argv[3], "--break") == 0;
  forged = argc > 3 && strcmp(argv[3], "--forge") == 0;
  const Optimizer *const all[] = {&sgd, &momentum, &adam, &adamw}, *const with_v[] = {&momentum},
                         *const with_v2[] = {&adam};
  grid((Def){.name = "pipedream", .f = NEWEST, .b = AS_F}, "N", true, all, 4);
  grid((Def){.name = "pipedream_naive", .f = NEWEST, .b = LATEST}, NULL, false, all, 4);
  grid((Def){.name = "pipedream_vsync", .f = AT_ENTRY, .b = AS_F}, NULL, false, all, 4);
  grid((Def){.name = "pipedream_2bw", .f = DOUBLE, .b = AS_F}, "G", false, all, 4);
  grid((Def){.name = "pipemare", .f = NEWEST, .b = LATEST}, "N", true, all, 4);
  grid((Def){.name = "pipemare_t1", .f = NEWEST, .b = LATEST, .rate = t1}, "N", true, all, 4);
  grid((Def){.name = "pipemare_t2",
             .f = NEWEST,
             .b = LATEST,
             .rate = t1,
             .estimate = t2_estimate,
             .then = t2_then},
       "N", true, all, 4);
  grid((Def){.name = "pipemare_t3",
             .f = NEWEST,
             .b = LATEST,
             .rate = t1,
             .estimate = t2_estimate,
             .then = t2_then},
       "N", true, all, 4);
  grid((Def){.name = "spectrain", .f = NEWEST, .b = LATEST, .estimate = spectrain}, NULL, false,
       with_v, 1);
  grid((Def){.name = "msnag", .f = NEWEST, .b = LATEST, .estimate = msnag}, "N", false, with_v, 1);
  grid((Def){.name = "xpipe", .f = NEWEST, .b = LATEST, .bellwether = true, .estimate = xpipe}, "N",
       false, with_v2, 1);
  grid((Def){.name = "msnag_adam", .f = NEWEST, .b = LATEST, .estimate = msnag_adam}, "N", false,
       with_v2, 1);
  grid((Def){.name = "async_scaled", .f = NEWEST, .b = LATEST, .applies = scaled}, "N", true, all,
       4);
  int before = cases;
  replicated(2, 3, 1, 1, 210, &sgd);
  replicated(2, 7, 1, 1, 490, &momentum);
  replicated(3, 2, 1, 1, 140, &momentum);
  replicated(3, 1, 2, 1, 140, &adam);
  replicated(4, 2, 3, 1, 210, &adamw);
  replicated(4, 4, 2, 2, 280, &sgd);
  report("pipedream_rr", before);
  if (!broken && !forged && !engines_of_processes)
    synchronous_at_first();
  return engines_end(failures) != 0;
}
