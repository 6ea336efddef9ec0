/* SPDX-License-Identifier: MIT
 * Systems of differences: the least values with value[to] >= value[from] + w for every arc. */
#ifndef PIPEC_DIFFERENCES_H
#define PIPEC_DIFFERENCES_H

#include "pipec.h"

typedef struct Arc {
  uint32_t from, to;
  int64_t w;
} Arc; /* value[to] >= value[from] + w */
typedef VEC(Arc) Arcs;

/* The least values >= 0 of n variables, in *value of the arena. False: there are none, because a
 * cycle of arcs adds up to more than 0; or work is spent. */
bool least_values(Arena *a, const Arcs *arcs, uint32_t n, int64_t **value, Work *work);

#endif
