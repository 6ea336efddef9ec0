/* SPDX-License-Identifier: MIT
 * When each instruction ran, as the JSON that Chrome's about:tracing and Perfetto open: a group of
 * tracks (a "process") for each set of times, in it one track per rank and stream, and an arrow
 * from each SEND to its RECV.
 *
 * The runtime writes what it measured with it (pr_write_trace), the compiler predictions
 * (--emit=trace). Needs only the program and the times. Not installed. */
#ifndef PIPE_TRACE_JSON_H
#define PIPE_TRACE_JSON_H

#include <stdio.h>
#include "pipe_instr.h"

/* A group. Instruction i of rank r ran in step n from start[n * nrank + r][i] to end[..][i]. Times
 * are multiplied by `scale` to give ns; in units, a scale of 1000 draws a unit as 1 us. */
typedef struct TraceGroup {
  const char *name;       /* "Predicted" */
  uint64_t *const *start; /* [nstep * nrank][ninstr] */
  uint64_t *const *end;
  uint32_t nstep;
  double scale; /* 1: times are ns, and stay exact */
} TraceGroup;

/* Writes the file. 0, or -1 when `out` took an error. Bytes depend on the arguments alone. Linear
 * in instructions. */
int trace_json(FILE *out, const PipeProgram *p, const TraceGroup *group, int ngroup);

#endif
