/* SPDX-License-Identifier: MIT
 * Programs for tests of what goes on between the streams of a rank: schedules of the standard
 * library, and texts with copies, edges, ties, replicas and actions. Compiled in this process. */
#ifndef TEST_SAMPLES_H
#define TEST_SAMPLES_H

#include "program.h"

typedef struct Sample {
  /* of a schedule of the library, if there is no text; " channels" behind it: with that lowering */
  const char *name;
  const char *text;
  uint32_t P, M; /* of a schedule of the library */
} Sample;
extern const Sample samples[];
extern const uint32_t nsamples;

/* As program_open; its tables may be written. */
bool sample_compile(Program *c, const char *stdlib, const Sample *of);

#endif
