/* SPDX-License-Identifier: MIT
 * Implements pipe_optim.h. Compilers can vectorize the loops; with -std=c11 gcc does not contract a
 * product and a sum, nor does clang, because of the pragma. */
#include "pipe_optim.h"

#include <math.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

uint32_t pr_optim_moments(PrOptimKind kind) {
  return kind == PR_SGD ? 0 : kind == PR_MOMENTUM ? 1 : 2;
}

/* The numbers of one update. */
typedef struct Numbers {
  double rate, decay; /* rate: for Adam with its bias correction */
  double shrink;      /* factor of w before the step */
  double keep1, keep2, add1, add2, root, eps;
} Numbers;

static Numbers numbers(const PrOptim *o, uint64_t t, double lr) {
  Numbers k = {lr, o->decay, 1, o->beta1, o->beta2, 1 - o->beta1, 1 - o->beta2, 1, o->eps};
  if (o->kind == PR_ADAMW) {
    k.shrink = 1 - lr * o->decay;
    k.decay = 0;
  }
  if (pr_optim_moments(o->kind) == 2) {
    k.rate = lr / (1 - pow(o->beta1, (double)t));
    k.root = 1 / (1 - pow(o->beta2, (double)t));
  }
  return k;
}

/* Weights are independent of each other, even if from and to are the same array. */
#ifdef __clang__
#define EACH_WEIGHT _Pragma("clang loop vectorize(assume_safety)") for (uint64_t j = 0; j < n; j++)
#elif defined(__GNUC__)
#define EACH_WEIGHT _Pragma("GCC ivdep") for (uint64_t j = 0; j < n; j++)
#else
#define EACH_WEIGHT for (uint64_t j = 0; j < n; j++)
#endif

#define OPTIMIZERS(REAL, SQRT) \
  static void sgd_##REAL(const Numbers *k, uint64_t n, const REAL *from, REAL *to, REAL *grad) { \
    const REAL rate = (REAL)k->rate, decay = (REAL)k->decay; \
    EACH_WEIGHT { \
      REAL g = grad[j] + decay * from[j]; \
      to[j] = from[j] - rate * g; \
      grad[j] = 0; \
    } \
  } \
  static void momentum_##REAL(const Numbers *k, int nesterov, uint64_t n, const REAL *from, \
                              REAL *to, REAL *grad, REAL *v) { \
    const REAL rate = (REAL)k->rate, decay = (REAL)k->decay, keep = (REAL)k->keep1; \
    const REAL ahead = nesterov ? (REAL)k->keep1 : 1, now = nesterov ? 1 : 0; \
    EACH_WEIGHT { \
      REAL g = grad[j] + decay * from[j]; \
      v[j] = keep * v[j] + g; \
      to[j] = from[j] - rate * (now * g + ahead * v[j]); \
      grad[j] = 0; \
    } \
  } \
  static void adam_##REAL(const Numbers *k, uint64_t n, const REAL *from, REAL *to, REAL *grad, \
                          REAL *v, REAL *v2) { \
    const REAL rate = (REAL)k->rate, decay = (REAL)k->decay, shrink = (REAL)k->shrink; \
    const REAL keep1 = (REAL)k->keep1, keep2 = (REAL)k->keep2, add1 = (REAL)k->add1; \
    const REAL add2 = (REAL)k->add2, root = (REAL)k->root, eps = (REAL)k->eps; \
    EACH_WEIGHT { \
      REAL g = grad[j] + decay * from[j]; \
      v[j] = keep1 * v[j] + add1 * g; \
      v2[j] = keep2 * v2[j] + add2 * g * g; \
      to[j] = shrink * from[j] - rate * v[j] / (SQRT(v2[j] * root) + eps); \
      grad[j] = 0; \
    } \
  } \
  static void optim_##REAL(const PrOptim *o, uint64_t t, double lr, uint64_t n, const REAL *from, \
                           REAL *to, REAL *grad, REAL *v, REAL *v2) { \
    Numbers k = numbers(o, t, lr); \
    switch (o->kind) { \
    case PR_SGD: sgd_##REAL(&k, n, from, to, grad); break; \
    case PR_MOMENTUM: momentum_##REAL(&k, o->nesterov, n, from, to, grad, v); break; \
    default: adam_##REAL(&k, n, from, to, grad, v, v2); \
    } \
  }

OPTIMIZERS(float, sqrtf)
OPTIMIZERS(double, sqrt)

void pr_optim(const PrOptim *o, uint64_t t, double lr, uint64_t n, const float *from, float *to,
              float *grad, float *v, float *v2) {
  optim_float(o, t, lr, n, from, to, grad, v, v2);
}

void pr_optim_double(const PrOptim *o, uint64_t t, double lr, uint64_t n, const double *from,
                     double *to, double *grad, double *v, double *v2) {
  optim_double(o, t, lr, n, from, to, grad, v, v2);
}
