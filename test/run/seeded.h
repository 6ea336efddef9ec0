/* SPDX-License-Identifier: MIT
 * An engine for tests, without threads: pr_steps executes one instruction after the other, picked
 * at random among those that can run. Equal seeds give equal orders. Deadlines are ignored, and no
 * fault can hang or drop. */
#ifndef TEST_SEEDED_H
#define TEST_SEEDED_H

#include "pipe_run.h"

extern const PrEngine seeded_engine; /* engine_options: a uint64_t, the seed; read by pr_open */

/* The fields of PrOptions for this engine; valid until the block ends. */
#define SEEDED(seed) .engine = &seeded_engine, .engine_options = &(uint64_t){seed}

/* o for this engine; if *seed is 0, for threads. */
static inline PrOptions seeded_or_threads(PrOptions o, const uint64_t *seed) {
  o.engine = *seed ? &seeded_engine : NULL;
  o.engine_options = seed;
  return o;
}

#endif
