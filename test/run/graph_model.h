/* SPDX-License-Identifier: MIT
 * A small network whose stages are any DAG: what a plain loop makes of it, and the callbacks of an
 * engine. h = tanh(x A + b); x is a weighted sum of the inputs, each output a part of h, weighted.
 * A stage without output has the loss |h - target|^2 / (2 M). An edge that is no step of the chain
 * carries less of h. */
#ifndef TEST_GRAPH_MODEL_H
#define TEST_GRAPH_MODEL_H

#include <stdbool.h>

#include "layer.h"
#include "pipe_run.h"

enum { PART = 7, TIED = 6, STEPS = 3 };
enum { MOST_STAGES = 16, MOST_EDGES = 64, MOST_MBS = 16, MOST_ROWS = 64 };

typedef struct Arc {
  uint32_t from, to;
  bool skip;
} Arc;

/* What is meant: no more than the definition needs. */
typedef struct Meant {
  uint32_t nstage, nmb, narc;
  Arc arc[MOST_EDGES];
  uint32_t tie[MOST_STAGES];             /* stages with the same number, not 0, share weights */
  uint32_t owner[MOST_STAGES][MOST_MBS]; /* copy of the stage, 0, 1, ..., that has the microbatch */
  uint32_t every;                        /* updates after so many microbatches; 0: at the end */
  bool forward;                          /* nothing is trained */
  /* microbatch m of nmb is slice m % slices of one that is cut; 0: 1. Slices are independent of one
   * another, but their gradients are added from the last one on */
  uint32_t slices;
} Meant;

typedef struct Result {
  double loss[STEPS][MOST_MBS];
  float weight[MOST_STAGES][NW];
} Result;

typedef struct Act {
  float x[N], h[N], dh[N];
} Act;

/* The definition: steps, microbatches, stages in their order; knows neither programs nor engines.
 * */
void graph_sequential(const Meant *g, Result *r);

/* The same for an engine; `rate` is RATE for a model that agrees, also where nothing is trained.
 * Its tensors per stage are graph_sizes. */
PrModel graph_model(Meant *g, float rate);
int graph_sizes(void *self, uint32_t stage, PrSizes *out);

#endif
