/* SPDX-License-Identifier: MIT
 * Optimizers for models whose weights are arrays of float. An update callback (PrModel.update)
 * calls them.
 *
 * Each optimizer computes the formula of the torch.optim documentation (with its defaults: no
 * dampening, no amsgrad), for each weight separately, from the version `from` to the version `to`,
 * which may be the same array. t = 1, 2, ... counts the updates of the weights, g is the gradient,
 * lr the learning rate of the update:
 *
 *   SGD       g += decay w    w' = w - lr g
 *   MOMENTUM  g += decay w    v = beta1 v + g    w' = w - lr v
 *                                                (nesterov: - lr (g + beta1 v))
 *   ADAM      g += decay w    v = beta1 v + (1 - beta1) g    v2 = beta2 v2 + (1 - beta2) g^2
 *             w' = w - lr / (1 - beta1^t) v / (sqrt(v2 / (1 - beta2^t)) + eps)
 *   ADAMW     w -= lr decay w, then as ADAM without its decay
 *
 * `from` is the newest version, whichever version the gradient was computed with. Numbers are
 * computed in double and rounded once, elements in float in the order of optim.c: equal operands
 * give equal bits. */
#ifndef PIPE_OPTIM_H
#define PIPE_OPTIM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef enum PrOptimKind { PR_SGD, PR_MOMENTUM, PR_ADAM, PR_ADAMW } PrOptimKind;

typedef struct PrOptim {
  PrOptimKind kind;
  double beta1, beta2; /* MOMENTUM: beta1 is the momentum; SGD: neither */
  double eps;          /* ADAM, ADAMW */
  double decay;
  int nesterov;        /* MOMENTUM */
} PrOptim;

/* Arrays, each as large as the weights, that the optimizer keeps: 0, 1 (v) or 2 (v, v2). They must
 * be zero before the first update. */
uint32_t pr_optim_moments(PrOptimKind kind);

/* Applies update number t, from 1, to n weights and leaves grad zero. v, v2: the arrays that the
 * optimizer keeps; others are not read. */
void pr_optim(const PrOptim *o, uint64_t t, double lr, uint64_t n, const float *from, float *to,
              float *grad, float *v, float *v2);
/* As pr_optim, for models compiled in double. */
void pr_optim_double(const PrOptim *o, uint64_t t, double lr, uint64_t n, const double *from,
                     double *to, double *grad, double *v, double *v2);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
