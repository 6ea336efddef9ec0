/* SPDX-License-Identifier: MIT
 * What is known exactly about asynchronous training, through the engine: each stage is a weight of
 * its own with a linear gradient, (1 + dl) w_F - dl w_B, where w_F is the weight that the forward
 * of the microbatch has seen and w_B the one that its backward sees; nothing passes between stages
 * but the order.
 *
 *   delay     w(t+1) = w(t) - a w(t-tau) is stable up to a = 2 sin(pi / (4 tau + 2)): found to 1e-6
 *             from the growth of trajectories, in double, for tau = 0 .. 20 on the stages of one
 *             pipeline
 *   t2        the largest a below which all are stable, with and without discrepancy correction:
 *             the table, to 1e-3
 *   drift     with weights that move by the same step at each update T2's estimate becomes the
 *             forward's weight
 *   predict   without further gradients msnag predicts the weight that will be there, and
 *             SpecTrain's prediction is off by the factor s (1-g) / (g (1 - g^s))
 *   t1        the learning rate's factor for delay 7
 *
 *   quadratic STDLIB_DIR     one line for each; exit status 0 iff all hold
 *
 * All this is through the seeded engine. Compiled with ON_MPI, and without what needs more than
 * four ranks, every program, or a share of them, is also carried out by processes (engines.h): what
 * the weights of the stages of a process were, and what was seen of them, has the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../run/engines.h"
#include "../run/program.h"
#include "../run/seeded.h"
#include "../run/test_model.h"
#include "pipe_run.h"

enum {
  MOST_STAGES = 24,
  MOST_UPDATES = 20001,
  MOST_RANKS = engines_of_processes ? 4 : MOST_STAGES
};

static int failures;

/* ---- the model ---- */

typedef struct Probe {
  uint32_t nstage;
  int wide; /* weights are doubles */
  double dl, rate[MOST_STAGES], momentum;
  double constant; /* not NaN: the gradient, whatever the weights are */
  uint32_t last;   /* no gradient from this microbatch on */
  double (*w)[MOST_UPDATES], (*seen_f)[MOST_UPDATES],
      (*seen_b)[MOST_UPDATES];    /* after k updates; by microbatch */
  double (*factor)[MOST_UPDATES]; /* PrCall.rate of update k */
  int here[MOST_STAGES];          /* stages of this process */
  uint64_t updates;               /* of a stage */
} Probe;

static double get(const Probe *p, const void *w) {
  return p->wide ? *(const double *)w : (double)*(const float *)w;
}
static void set(const Probe *p, void *w, double v) {
  if (p->wide)
    *(double *)w = v;
  else
    *(float *)w = (float)v;
}

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  const Probe *p = self;
  uint64_t w = p->wide ? sizeof(double) : sizeof(float);
  *out = (PrSizes){.act = sizeof(double),
                   .boundary = stage + 1 < p->nstage ? 8 : 0,
                   .weight = w,
                   .grad = w,
                   .opt = w};
  return 0;
}
static int init(void *self, uint32_t stage, void *weight, void *opt) {
  Probe *p = self;
  (void)opt;
  p->here[stage] = 1;
  set(p, weight, isnan(p->constant) ? 1 : 0);
  p->w[stage][0] = get(p, weight);
  return 0;
}
static int forward(void *self, const PrCall *c) {
  const Probe *p = self;
  double w = get(p, c->weight);
  memcpy(c->act, &w, sizeof w);
  p->seen_f[c->stage][c->mb] = w;
  if (c->y)
    memset(c->y, 0, 8);
  return 0;
}
static int backward(void *self, const PrCall *c) {
  const Probe *p = self;
  double f, b = get(p, c->weight);
  memcpy(&f, c->act, sizeof f);
  p->seen_b[c->stage][c->mb] = b;
  if (c->dx)
    memset(c->dx, 0, 8);
  if (c->mb < p->last)
    set(p, c->grad,
        get(p, c->grad) + (isnan(p->constant) ? (1 + p->dl) * f - p->dl * b : p->constant));
  return 0;
}
static int update(void *self, const PrCall *c) {
  Probe *p = self;
  p->updates = c->updates + 1 > p->updates ? c->updates + 1 : p->updates;
  double v = p->momentum * get(p, c->opt) + get(p, c->grad);
  set(p, c->opt, v);
  set(p, c->weight, get(p, c->newest) - p->rate[c->stage] * c->rate * v);
  set(p, c->grad, 0);
  p->w[c->stage][c->updates + 1] = get(p, c->weight);
  p->factor[c->stage][c->updates] = c->rate;
  return 0;
}
static double learning_rate(void *self, uint32_t stage, uint64_t k) {
  (void)k;
  return ((const Probe *)self)->rate[stage];
}
static int64_t moment(void *self, uint32_t stage, int which) {
  (void)self, (void)stage;
  return which ? -1 : 0;
}

/* ---- programs ---- */

static const char *dir;

static void compile_it(Program *g, const char *name, const char *text, const Define *define,
                       uint32_t n) {
  if (!program_open(g, dir, name, text, define, n, NULL)) {
    printf("FAIL %s does not compile\n", name);
    exit(1);
  }
}

static void run_on(const PipeProgram *prog, Probe *p, const PrOptions *o) {
  p->nstage = prog->nmodel;
  p->updates = 0;
  PrModel model = {.self = p,
                   .nstage = p->nstage,
                   WHOLE_OPS(update),
                   .elem = p->wide ? 8 : 4,
                   .lr = learning_rate,
                   .moment = moment};
  PrRun *run = NULL;
  if (pr_open(&run, prog, &model, o) || pr_steps(run, 1)) {
    printf("FAIL %s\n", pr_error(run));
    exit(1);
  }
  pr_close(run);
}

static Probe probe(int wide) {
  size_t bytes = MOST_STAGES * MOST_UPDATES * sizeof(double);
  Probe p = {.wide = wide,
             .constant = NAN,
             .last = UINT32_MAX,
             .w = malloc(bytes),
             .seen_f = malloc(bytes),
             .seen_b = malloc(bytes),
             .factor = malloc(bytes)};
  if (!p.w || !p.seen_f || !p.seen_b || !p.factor)
    abort();
  return p;
}
static void probe_free(Probe *p) { free(p->w), free(p->seen_f), free(p->seen_b), free(p->factor); }

static int carried_out; /* by processes */

static int same_bits(double (*a)[MOST_UPDATES], double (*b)[MOST_UPDATES], uint32_t s, uint64_t n) {
  return memcmp(a[s], b[s], n * sizeof(double)) == 0;
}

static void run_it(const Program *g, Probe *p) {
  const PipeProgram *prog = g->s.prog;
  PrOptions o = {.deadline_s = 600};
  run_on(prog, p, &(PrOptions){SEEDED(1)});
  if (!engines_of_processes || !engines_case(prog->nrank) || !engines_take(&prog, &o))
    return;
  Probe q = probe(p->wide), mine = q;
  q = *p;
  q.w = mine.w, q.seen_f = mine.seen_f, q.seen_b = mine.seen_b, q.factor = mine.factor;
  memset(q.here, 0, sizeof q.here);
  run_on(prog, &q, &o);
  for (uint32_t s = 0; s < q.nstage; s++)
    if (q.here[s] && !(same_bits(p->w, q.w, s, p->updates + 1) &&
                       same_bits(p->factor, q.factor, s, p->updates) &&
                       same_bits(p->seen_f, q.seen_f, s, prog->nmb) &&
                       same_bits(p->seen_b, q.seen_b, s, prog->nmb)))
      printf("FAIL stage %u of %s is not as on the seeded engine\n", s, prog->name), failures++;
  carried_out++;
  probe_free(&q);
}

static void expect(int ok, const char *what) {
  if (!ok)
    failures++;
  printf("%s %s\n", ok ? "ok" : "FAIL", what);
}

/* ---- pure delay ---- */

/* |z| of the slowest mode of w, from its last values; a pair of complex roots, or for tau = 0 one
 * real one. */
static double growth(const double *w, uint32_t n, uint32_t tau) {
  const double *x = w + n - 4;
  if (tau == 0)
    return fabs(x[3] / x[2]);
  /* x[i+2] = p x[i+1] - q x[i], q = |z|^2 */
  return sqrt((x[2] * x[2] - x[1] * x[3]) / (x[1] * x[1] - x[0] * x[2]));
}

static void pure_delay(void) {
  enum { STAGES = 21, M = 1500 };
  Program g;
  Probe p = probe(1);
  compile_it(&g, "pipedream_naive", NULL,
             (Define[]){{.name = "P", .value = STAGES}, {.name = "M", .value = M}}, 2);
  double a[2][STAGES], z[2][STAGES], worst = 0;
  for (int turn = 0; turn < 12; turn++) {
    for (uint32_t s = 0; s < STAGES; s++) {
      double start = 2.0 / (STAGES - s); /* of the right order, and no more */
      if (turn < 2)
        p.rate[s] = turn ? a[0][s] * 1.01 : start > 1.5 ? 1.9 : start;
      else if (z[1][s] != z[0][s]) /* to |z| = 1 along the chord */
        p.rate[s] = a[1][s] + (1 - z[1][s]) * (a[1][s] - a[0][s]) / (z[1][s] - z[0][s]);
    }
    run_it(&g, &p);
    for (uint32_t s = 0; s < STAGES; s++) {
      double now = growth(p.w[s], M + 1, STAGES - 1 - s);
      if (turn > 0)
        a[0][s] = a[1][s], z[0][s] = z[1][s];
      if (turn == 0)
        a[0][s] = p.rate[s], z[0][s] = now;
      a[1][s] = p.rate[s], z[1][s] = now;
    }
  }
  for (uint32_t s = 0; s < STAGES; s++) {
    double want = 2 * sin(3.14159265358979323846 / (4.0 * (STAGES - 1 - s) + 2)),
           off = fabs(a[1][s] - want);
    worst = off > worst || isnan(off) ? off : worst;
    if (!(off <= 1e-6))
      printf("delay %u: %.9f, by formula %.9f\n", STAGES - 1 - s, a[1][s], want);
  }
  expect(worst <= 1e-6, "largest stable rates of delays 0 to 20");
  probe_free(&p);
  program_close(&g);
}

/* ---- T2 ---- */

/* Forward tf updates late, backward tb, with the decay as it stands in the text; gamma "": no
 * correction. Where tb is not 0 the correction is that of then: d is handed on from state to state.
 * */
static char *t2_text(uint32_t tf, uint32_t tb, const char *gamma) {
  static char text[4000];
  int n = 0;
#define PUT(...) n += snprintf(text + n, sizeof text - (size_t)n, __VA_ARGS__)
  PUT("schedule t2(M = 8) {\n  ranks 1\n  pipe net stages 1 mbs M place s -> s\n  order r { do m in 0..M { F(m)  B(m)  U(m) } }\n"
      "  weights s, m {\n    F reads max(m - %u, 0)\n",
      tf);
  if (!*gamma) {
    PUT("    B reads max(m - %u, 0)\n", tb);
  } else {
    for (uint32_t i = tb; i > 0; i--)
      PUT("    state e%u\n", i);
    PUT("    state e0\n    B reads max(m - %u, 0) as w - %u * e%u\n", tb, tf - tb, tb);
    for (uint32_t i = tb; i > 0; i--)
      PUT("    U then e%u = e%u\n", i, i - 1);
    PUT("    U then e0 = %s * e0 + (1 - %s) * (w - old)\n", gamma, gamma);
  }
  PUT("  }\n}\n");
#undef PUT
  return text;
}

/* The same in a pipeline, for a backward that is not late: stage 0 of tf + 1. */
static char *t2_pipeline(uint32_t tf, const char *gamma) {
  static char text[2000];
  snprintf(text, sizeof text,
           "schedule t2(M = 8) {\n  ranks %u\n  pipe net stages %u mbs M place s -> s\n"
           "  order r { steady m { F(m)  B(m - (%u-r))  U(m - (%u-r)) } }\n  weights {\n%s",
           tf + 1, tf + 1, tf, tf,
           *gamma ? "    state d\n    B reads newest as w - behind * d\n" : "    B reads newest\n");
  if (*gamma)
    snprintf(text + strlen(text), sizeof text - strlen(text),
             "    U then d = %s * d + (1 - %s) * (w - old)\n", gamma, gamma);
  strcat(text, "  }\n}\n");
  return text;
}

/* Does stage 0 of the program grow with this rate? */
static int grows(const Program *g, Probe *p, double rate, uint32_t m) {
  double early = 0, late = 0;
  for (uint32_t s = 0; s < MOST_STAGES; s++)
    p->rate[s] = s ? 0.001 : rate; /* the other stages stay quiet */
  run_it(g, p);
  const double *w = p->w[0];
  for (uint32_t i = 1; i <= m; i++) {
    if (!isfinite(w[i]) || fabs(w[i]) > 1e30)
      return 1;
    if (i > m / 2 && i <= m / 2 + m / 8)
      early = fmax(early, fabs(w[i]));
    if (i > m - m / 8)
      late = fmax(late, fabs(w[i]));
  }
  return late > early && late > 1e-30;
}

static void t2_table(void) {
  static const struct Row {
    uint32_t tf, tb;
    double dl, rate[5];
  } rows[] = {
      {10, 6, 0, {.1495, .1495, .1495, .1495, .1495}},
      {10, 6, 3, {.0546, .1437, .1451, .0835, .1524}},
      {10, 6, 5, {.0381, .1159, .1139, .0660, .1037}},
      {7, 0, 5, {.0250, .1376, .1390, .0413, .1636}},
      {10, 0, 5, {.0176, .0971, .0976, .0290, .1192}},
      {3, 0, 5, {.0577, .2058, .2015, .0950, .1911}},
  };
  enum { M = 3000 };
  Probe p = probe(0);
  int ok = 1;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int column = 0; column < 5; column++) {
      const struct Row *r = &rows[i];
      uint32_t apart = r->tf - r->tb;
      char gamma[80] = "";
      static const double decay[] = {0, .1353352832366127, 0, .5, .1};
      if (column == 2)
        snprintf(gamma, sizeof gamma, "(1 - 2/(%u + 1))", apart);
      else if (column > 0)
        snprintf(gamma, sizeof gamma, "pow(%.16f, 1/%u)", decay[column], apart);
      Program g;
      compile_it(&g, "t2", r->tb ? t2_text(r->tf, r->tb, gamma) : t2_pipeline(r->tf, gamma),
                 (Define[]){{.name = "M", .value = M}}, 1);
      p.dl = r->dl;
      const double at = r->rate[column], try[] = {at * .5, at * .85, at - 1e-3, at + 1e-3};
      for (int k = 0; k < 4; k++)
        if (grows(&g, &p, try[k], M) != (k == 3)) {
          ok = 0;
          printf("tau %u, %u, sensitivity %g, %s: %s with rate %g\n", r->tf, r->tb, r->dl,
                 *gamma ? gamma : "no T2", k == 3 ? "does not grow" : "grows", try[k]);
        }
      program_close(&g);
    }
  expect(ok, "largest stable rates with discrepancy correction");
  probe_free(&p);
}

/* Weights that rise by 1/64 at each update. */
static void drift(void) {
  enum { P = MOST_RANKS < 8 ? MOST_RANKS : 8, M = 400 };
  Program g;
  Probe p = probe(0);
  compile_it(&g, "pipemare_t2", NULL,
             (Define[]){{.name = "P", .value = P},
                        {.name = "M", .value = M},
                        {.name = "N", .value = 1},
                        {.name = "flow", .value = 0},
                        {.name = "K", .value = 1}},
             5);
  p.constant = -1;
  for (uint32_t s = 0; s < P; s++)
    p.rate[s] = 1.0 / 64;
  run_it(&g, &p);
  int ok = 1;
  double early = 0;
  for (uint32_t s = 0; s < P; s++)
    for (uint32_t k = 0; k < M; k++) {
      double off = fabs(p.seen_b[s][k] - p.seen_f[s][k]), uncorrected = (P - 1 - s) / 64.0;
      early = k < 3 * P ? fmax(early, off) : early;
      if (k >= 200 && off > 1e-5 * (1 + uncorrected)) {
        ok = 0;
        printf("stage %u microbatch %u: %g, not %g\n", s, k, p.seen_b[s][k], p.seen_f[s][k]);
      }
    }
  expect(ok && early > P / 1024.0, "T2 with constant drift");
  probe_free(&p);
  program_close(&g);
}

static void prediction(void) {
  enum { P = MOST_RANKS < 6 ? MOST_RANKS : 6, M = 40, LAST = 12 };
  const double m = 0.9;
  Program g;
  Probe ms = probe(0), spec = probe(0);
  int ok = 1, compared = 0;
  for (int which = 0; which < 2; which++) {
    Probe *p = which ? &spec : &ms;
    p->constant = -1, p->last = LAST, p->momentum = m;
    for (uint32_t s = 0; s < P; s++)
      p->rate[s] = 1.0 / 8;
    compile_it(&g, which ? "spectrain" : "msnag", NULL,
               (Define[]){{.name = "P", .value = P}, {.name = "M", .value = M}}, 2);
    run_it(&g, p);
    program_close(&g);
  }
  for (uint32_t s = 0; s < P; s++)
    for (uint32_t k = LAST + P; k < M; k++) { /* no gradient since the version that F has read */
      uint32_t steps = P - 1 - s, read = k - steps, further = s / 2;
      double then = ms.w[s][k],
             step = ms.w[s][read] - then; /* the gradient of k is applied to version k */
      if (fabs(ms.seen_f[s][k] - then) > 2e-6 * fabs(then))
        ok = 0, printf("msnag, stage %u microbatch %u: %g, not %g\n", s, k, ms.seen_f[s][k], then);
      if (steps == 0 || step == 0)
        continue;
      double n = steps + further, factor = n * (1 - m) / (m * (1 - pow(m, n)));
      double there = spec.w[s][read] - spec.w[s][k + further],
             off = spec.w[s][read] - spec.seen_f[s][k];
      if (k + further > M)
        continue;
      compared++;
      if (fabs(off / there - factor) > 1e-3 * factor)
        ok = 0,
        printf("SpecTrain, stage %u microbatch %u: factor %g, not %g\n", s, k, off / there, factor);
    }
  expect(ok && compared > 10 * (P - 1), "predicted weights without further gradients");
  probe_free(&ms), probe_free(&spec);
}

static void rescheduling(void) {
  enum { K = 40, M = 100 };
  Program g;
  Probe p = probe(0);
  for (uint32_t s = 0; s < 4; s++)
    p.rate[s] = 0.001;
  compile_it(
      &g, "pipemare_t1", NULL,
      (Define[]){{.name = "P", .value = 4}, {.name = "M", .value = M}, {.name = "K", .value = K}},
      3);
  run_it(&g, &p);
  const double *f = p.factor[0]; /* delay 7 */
  int ok = fabs(f[0] - 1.0 / 7) < 1e-12 && fabs(f[K / 2] - 1 / sqrt(7)) < 1e-12 && f[K] == 1 &&
           f[M - 1] == 1;
  for (uint32_t k = 0; k < M; k++)
    ok &= p.factor[3][k] == 1; /* delay 1 */
  expect(ok, "T1's factors for delay 7");
  probe_free(&p);
  program_close(&g);
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: quadratic STDLIB_DIR\n");
    return 2;
  }
  dir = argv[1];
  engines_begin(NULL);
  if (!engines_of_processes) { /* many trajectories, and most of one rank */
    pure_delay();
    t2_table();
  }
  drift();
  prediction();
  rescheduling();
  if (engines_of_processes)
    printf("%d runs of processes\n", carried_out);
  return engines_end(failures) != 0;
}
