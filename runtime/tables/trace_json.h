/* SPDX-License-Identifier: MIT
 * Writes when each instruction ran, as JSON for chrome://tracing and Perfetto: one group of tracks
 * (a "process") per set of times, in it one track per rank and stream, and an arrow from each SEND
 * to its RECV.
 *
 * The runtime writes measured times with it (pr_write_trace), the compiler predicted ones
 * (--emit=trace). It needs only the program and the times. Not installed. */
#ifndef PIPE_TRACE_JSON_H
#define PIPE_TRACE_JSON_H

#include <stdio.h>
#include "pipe_instr.h"

/* A group of tracks. Instruction i of rank r ran in step n from start[n * nrank + r][i] to
 * end[..][i]. `scale` converts times to ns; for abstract units a scale of 1000 draws a unit as 1
 * us. */
typedef struct TraceGroup {
  const char *name;       /* "Predicted" */
  uint64_t *const *start; /* [nstep * nrank][ninstr] */
  uint64_t *const *end;
  uint32_t nstep;
  double scale; /* 1: times are ns and stay exact */
} TraceGroup;

/* Writes the file. Returns 0, or -1 after a write error on `out`. The bytes depend only on the
 * arguments. Linear in instructions. */
int trace_json(FILE *out, const PipeProgram *p, const TraceGroup *group, int ngroup);

#endif
