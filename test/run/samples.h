/* SPDX-License-Identifier: MIT
 * Programs for tests of what goes on between the streams of a rank: schedules of the standard
 * library, and texts with copies, edges, ties, replicas and actions. Compiled in this process. */
#ifndef TEST_SAMPLES_H
#define TEST_SAMPLES_H

#include "pipec.h"

typedef struct Sample {
  /* of a schedule of the library, if there is no text; " channels" behind it: with that lowering */
  const char *name;
  const char *text;
  uint32_t P, M; /* of a schedule of the library */
} Sample;
extern const Sample samples[];
extern const uint32_t nsamples;

typedef struct Compiled {
  Arena arena;
  Diag diag;
  Options opt;
  Define define[2];
  char path[4096];
  Sched s;
} Compiled;

/* False: messages are on standard output. Its tables may be written; the caller frees c->arena. */
bool sample_compile(Compiled *c, const char *stdlib, const Sample *of);

#endif
