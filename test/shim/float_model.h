/* SPDX-License-Identifier: MIT
 * A model of floats, for programs with formulas: weights, gradients and both moments of Adam are
 * arrays. The same callbacks do their work at once, on a CPU engine, or put it on a stream of the
 * shim. */
#ifndef FLOAT_MODEL_H
#define FLOAT_MODEL_H

#include "pipe_run.h"

typedef struct FloatModel {
  uint32_t nstage;
} FloatModel;

PrModel float_model(FloatModel *m, const PipeProgram *p);

#endif
