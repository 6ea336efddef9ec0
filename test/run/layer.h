/* SPDX-License-Identifier: MIT
 * The toy layer that tests of the engines train and that the definitions they are held against use.
 * x and y are ROWS rows of D numbers, y = tanh(x A + b), the weights A row by row, then b: NW
 * numbers. */
#ifndef LAYER_H
#define LAYER_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "noise.h"

enum { ROWS = 3, D = 5, N = ROWS * D, NW = D * D + D };
#define RATE 0.05f

/* y of x. */
static inline void layer(const float *x, const float *w, float *y) {
  for (int r = 0; r < ROWS; r++)
    for (int j = 0; j < D; j++) {
      float z = w[D * D + j];
      for (int i = 0; i < D; i++)
        z += x[r * D + i] * w[i * D + j];
      y[r * D + j] = tanhf(z);
    }
}

/* dz [N] = dy (1 - y^2); dx = dz A^T (unless NULL). */
static inline void layer_input(const float *dy, const float *y, const float *w, float *dz,
                               float *dx) {
  for (int i = 0; i < N; i++)
    dz[i] = dy[i] * (1 - y[i] * y[i]);
  for (int r = 0; dx && r < ROWS; r++)
    for (int i = 0; i < D; i++) {
      float g = 0;
      for (int j = 0; j < D; j++)
        g += dz[r * D + j] * w[i * D + j];
      dx[r * D + i] = g;
    }
}

/* Adds to grad [NW]. */
static inline void layer_weight(const float *x, const float *dz, float *grad) {
  for (int i = 0; i < D; i++)
    for (int j = 0; j < D; j++)
      for (int r = 0; r < ROWS; r++)
        grad[i * D + j] += x[r * D + i] * dz[r * D + j];
  for (int j = 0; j < D; j++)
    for (int r = 0; r < ROWS; r++)
      grad[D * D + j] += dz[r * D + j];
}

/* Of the last y: |y - target|^2 / 2, and dy, its gradient by the number of microbatches. The target
 * is a sawtooth of the index, far enough from 0 that the loss cannot vanish. */
static inline double loss_of(const float *y, uint32_t nmb, float *dy) {
  double loss = 0;
  for (int i = 0; i < N; i++) {
    float e = y[i] - 0.25f * (float)(i % 4);
    loss += 0.5 * (double)e * (double)e;
    dy[i] = e / (float)nmb;
  }
  return loss;
}

/* w of newest, which may be w. Momentum 0.9; grad is zero then. */
static inline void update(float *w, const float *newest, float *grad, float *momentum, float rate) {
  for (int i = 0; i < NW; i++) {
    momentum[i] = 0.9f * momentum[i] + grad[i];
    w[i] = newest[i] - rate * momentum[i];
    grad[i] = 0;
  }
}

#endif
