/* SPDX-License-Identifier: MIT
 * What the models of the tests have in common: the functions that a test names as the fields of
 * PrModel are named, and the sums of floats. */
#ifndef TEST_MODEL_H
#define TEST_MODEL_H

#include <string.h>

#include "pipe_run.h"

/* Fields of a PrModel whose backward is whole, or whole and split; `update` has a name of its own
 * where the test's definition updates, too. */
#define WHOLE_OPS(u) \
  .sizes = sizes, .init = init, .forward = forward, .backward = backward, .update = u
#define SPLIT_OPS(u) \
  WHOLE_OPS(u), .backward_input = backward_input, .backward_weight = backward_weight

/* PrModel.reduce of floats: the sum, in the order of the rows. */
static inline int sum_floats(void *self, uint32_t stage, void *const *grad, uint32_t n,
                             uint64_t bytes) {
  (void)self, (void)stage;
  float *sum = grad[0];
  for (uint32_t k = 1; k < n; k++)
    for (uint64_t i = 0; i < bytes / sizeof *sum; i++)
      sum[i] += ((float *)grad[k])[i];
  for (uint32_t k = 1; k < n; k++)
    memcpy(grad[k], sum, bytes);
  return 0;
}

/* PrModel.tie of floats. */
static inline int tie_floats(void *self, const uint32_t *stage, void *const *grad, uint32_t n,
                             uint64_t bytes) {
  return sum_floats(self, *stage, grad, n, bytes);
}

#endif
