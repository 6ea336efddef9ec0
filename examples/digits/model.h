/* SPDX-License-Identifier: MIT
 * A classifier of small images, cut into pipeline stages: a linear layer, residual blocks
 * x + W2 relu(W1 x + b1) + b2, a linear layer to ten classes, and cross-entropy. Stage s of S holds
 * the blocks s*L/S .. (s+1)*L/S - 1, the first also the layer before them, the last that behind
 * them and the loss.
 *
 * Every op is a pure function of the bytes that runtime/include/pipe_run.h lets it read, and
 * initial values belong to the weight, not to the stage: the model trains to the same bits however
 * it is cut. */
#ifndef DIGITS_MODEL_H
#define DIGITS_MODEL_H

#include "data.h"
#include "pipe_optim.h"
#include "pipe_run.h"

/* The type of every weight and activation. The gradient check compiles the model in double. */
#ifndef DIGITS_REAL
#define DIGITS_REAL float
#endif
typedef DIGITS_REAL real;

typedef struct DigitsConfig {
  uint32_t blocks, d, hidden; /* d: width of the residual stream; hidden: of the blocks inside */
  uint32_t batch;             /* images of a microbatch */
  uint32_t round; /* microbatches of an update, over which gradients are a mean; 0: the step's */
  uint64_t seed;              /* of the initial weights */
  PrOptim optim;
  double lr;                  /* peak learning rate */
  uint64_t warmup, updates;   /* lr grows linearly for `warmup` updates, then falls as a cosine to a
                                 tenth of its peak at `updates` */
} DigitsConfig;

/* 32 blocks, 137 thousand weights, momentum SGD. */
extern const DigitsConfig digits_default;

typedef struct DigitsModel {
  DigitsConfig config;
  uint32_t nstage;
  const Images *images;
  /* The image in row `row` of microbatch mb; must depend on its arguments only. `arg` is its first
   * one. */
  uint32_t (*pick)(const void *arg, uint64_t step, uint32_t mb, uint32_t row);
  const void *arg;
} DigitsModel;

/* NULL, or what is wrong with the configuration for so many stages. */
const char *digits_config_error(const DigitsConfig *g, uint32_t nstage);

/* The callbacks, with m as their `self`; m must outlive them. */
PrModel digits_model(DigitsModel *m);

/* Number of weights of a stage. Stage after stage they are those of the whole model in one order.
 */
uint64_t digits_weights(const DigitsModel *m, uint32_t stage);

/* Loss and share of right answers on images[first .. end - 1], weights[s] being those of stage s.
 * 0, or -1: out of memory. */
int digits_test(const DigitsModel *m, const void *const *weights, uint32_t first, uint32_t end,
                double *loss, double *right);

#endif
