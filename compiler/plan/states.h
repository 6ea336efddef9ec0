/* SPDX-License-Identifier: MIT
 * Where a model can be cut (states.c). */
#ifndef PIPEC_STATES_H
#define PIPEC_STATES_H

#include "layers.h"

enum { MOST_STATES = 2048 };

/* State k is a set of layers that holds all that its layers read. A stage is the layers of one
 * state that an earlier one lacks. Rows ascend by `time`, and a set stands behind its subsets. */
typedef struct States {
  uint32_t n;
  bool chain;             /* there were too many sets: only those of one order of the layers */
  uint64_t (*sum)[NKEYS]; /* [n] over the layers of the set; WORK: the largest */
  uint64_t *time;         /* [n] F and backward of its layers */
  uint64_t *cross;        /* [n] bytes that leave the set */
  uint64_t *kept;         /* [n] the same as PipeDream counts them */
  const char **last;      /* [n] the layers in it that no other one of it reads */
  const uint64_t **set;   /* [n] the layers, as bits by place in Layers.sorted */
  uint8_t *below;         /* [n * n] row i, column k: set i is a proper subset of set k */
} States;

/* Has state `to` a layer, by place in Layers.sorted, that `from` lacks? NONE lacks all. */
bool is_between(const States *t, uint32_t from, uint32_t to, uint32_t layer);
/* The largest cost of a layer of `to` that `from` lacks; from NONE: of `to`. */
uint64_t largest_cost(const Layers *l, const States *t, uint32_t from, uint32_t to, CostKey k);
void find_states(const Layers *l, States *t);
static inline bool is_below(const States *t, uint32_t i, uint32_t k) {
  return t->below[(size_t)i * t->n + k];
}

#endif
