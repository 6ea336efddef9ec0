/* SPDX-License-Identifier: MIT
 * Optimizers (runtime/core/optim.c): closed forms, the moments as the sums that they are, in float
 * and double, and to another version of the weights as in place. */
#include "pipe_optim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 37, STEPS = 60 };
static int bad;

static void near(const char *what, double got, double want, double tolerance) {
  if (fabs(got - want) <= tolerance * (1 + fabs(want)))
    return;
  printf("%s: %.17g, not %.17g\n", what, got, want);
  bad = 1;
}

/* Gradient of weight j at update t: no pattern, some of them zero. */
static double gradient(uint64_t t, uint32_t j) {
  uint64_t h = (t * 64 + j) * 0x9e3779b97f4a7c15u;
  h ^= h >> 29;
  return h % 11 == 0 ? 0 : (double)(h % 2001) / 1000 - 1;
}

/* w after STEPS updates, from the sums in the documentation of torch.optim: each moment is a sum
 * over all gradients so far. The gradients include decay times the weights where the optimizer adds
 * it. */
static double by_sums(const PrOptim *o, double lr, uint32_t j, double w) {
  double g[STEPS + 1];
  for (int t = 1; t <= STEPS; t++) {
    double m = 0, v = 0, step;
    g[t] = gradient((uint64_t)t, j) + (o->kind == PR_ADAMW ? 0 : o->decay * w);
    for (int i = 1; i <= t; i++) {
      m += pow(o->beta1, t - i) * g[i];
      v += pow(o->beta2, t - i) * g[i] * g[i];
    }
    switch (o->kind) {
    case PR_SGD: step = g[t]; break;
    case PR_MOMENTUM: step = o->nesterov ? g[t] + o->beta1 * m : m; break;
    default:
      m *= (1 - o->beta1) / (1 - pow(o->beta1, t));
      v *= (1 - o->beta2) / (1 - pow(o->beta2, t));
      step = m / (sqrt(v) + o->eps);
    }
    if (o->kind == PR_ADAMW)
      w -= lr * o->decay * w;
    w -= lr * step;
  }
  return w;
}

static void against_sums(const char *name, const PrOptim *o, double lr) {
  double wd[N], gd[N], vd[N] = {0}, v2d[N] = {0};
  float a[N], b[N], ga[N], gb[N], va[N] = {0}, v2a[N] = {0}, vb[N] = {0}, v2b[N] = {0};
  for (uint32_t j = 0; j < N; j++)
    wd[j] = a[j] = (float)j / 8 - 2;
  for (uint64_t t = 1; t <= STEPS; t++) {
    float before[N];
    for (uint32_t j = 0; j < N; j++)
      gd[j] = gradient(t, j), ga[j] = gb[j] = (float)gd[j];
    memcpy(before, a, sizeof a);
    pr_optim(o, t, lr, N, a, b, gb, vb, v2b);
    if (memcmp(before, a, sizeof a))
      bad = 1, printf("%s: wrote what it reads\n", name);
    pr_optim(o, t, lr, N, a, a, ga, va, v2a);
    if (memcmp(a, b, sizeof a) || memcmp(va, vb, sizeof va) || memcmp(v2a, v2b, sizeof v2a))
      bad = 1, printf("%s: in place differs\n", name);
    pr_optim_double(o, t, lr, N, wd, wd, gd, vd, v2d);
    for (uint32_t j = 0; j < N; j++)
      if (ga[j] != 0 || gb[j] != 0 || gd[j] != 0)
        bad = 1, printf("%s: gradients are left\n", name);
  }
  for (uint32_t j = 0; j < N; j++) {
    double want = by_sums(o, lr, j, (double)j / 8 - 2);
    near(name, wd[j], want, 1e-12);
    near(name, a[j], want, 2e-5);
  }
}

int main(void) {
  PrOptim sgd = {.kind = PR_SGD}, momentum = {.kind = PR_MOMENTUM, .beta1 = 0.9};
  PrOptim adam = {PR_ADAM, 0.9, 0.999, 1e-8, 0, 0};
  double w = 1, g = 0, v = 0, v2 = 0;

  /* f(w) = 3 w^2 / 2: w(t) = (1 - 3 lr)^t. */
  for (uint64_t t = 1; t <= 20; t++) {
    g = 3 * w;
    pr_optim_double(&sgd, t, 0.05, 1, &w, &w, &g, NULL, NULL);
  }
  near("sgd", w, pow(1 - 3 * 0.05, 20), 1e-13);

  /* Constant gradient 2: v(t) = 2 (1 - 0.9^t) / 0.1, and w falls by lr times the sum of these. */
  w = 0, v = 0;
  for (uint64_t t = 1; t <= 20; t++) {
    g = 2;
    pr_optim_double(&momentum, t, 0.05, 1, &w, &w, &g, &v, NULL);
  }
  near("momentum v", v, 20 * (1 - pow(0.9, 20)), 1e-13);
  near("momentum w", w, -0.05 * 20 * (20 - 9 * (1 - pow(0.9, 20))), 1e-13);

  /* Adam takes steps of lr whatever the constant gradient is. */
  w = 1, v = 0, v2 = 0;
  for (uint64_t t = 1; t <= 20; t++) {
    g = -1e-3;
    pr_optim_double(&adam, t, 0.05, 1, &w, &w, &g, &v, &v2);
  }
  near("adam", w, 1 + 20 * 0.05 / (1 + 1e-5), 1e-12);

  /* Without a gradient AdamW shrinks the weights, and Adam's decay is a gradient: a step of lr. */
  PrOptim adamw = adam;
  adamw.kind = PR_ADAMW, adamw.decay = 0.1, adam.decay = 0.1;
  w = 1, v = 0, v2 = 0, g = 0;
  for (uint64_t t = 1; t <= 20; t++)
    pr_optim_double(&adamw, t, 0.05, 1, &w, &w, &g, &v, &v2);
  near("adamw", w, pow(1 - 0.05 * 0.1, 20), 1e-13);
  w = 1, v = 0, v2 = 0, g = 0;
  pr_optim_double(&adam, 1, 0.05, 1, &w, &w, &g, &v, &v2);
  near("adam decay", w, 1 - 0.05 * 0.1 / (0.1 + 1e-8), 1e-13);

  against_sums("sums sgd", &(PrOptim){.kind = PR_SGD, .decay = 0.01}, 0.1);
  against_sums("sums momentum", &(PrOptim){PR_MOMENTUM, 0.9, 0, 0, 0.01, 0}, 0.02);
  against_sums("sums nesterov", &(PrOptim){PR_MOMENTUM, 0.8, 0, 0, 0.01, 1}, 0.02);
  against_sums("sums adam", &(PrOptim){PR_ADAM, 0.9, 0.95, 1e-8, 0.01, 0}, 0.02);
  against_sums("sums adamw", &(PrOptim){PR_ADAMW, 0.9, 0.95, 1e-8, 0.1, 0}, 0.02);
  static const uint32_t moments[] = {0, 1, 2, 2};
  for (int k = PR_SGD; k <= PR_ADAMW; k++)
    if (pr_optim_moments((PrOptimKind)k) != moments[k])
      bad = 1, printf("moments of %d\n", k);
  if (!bad)
    printf("optimizers agree\n");
  return bad;
}
