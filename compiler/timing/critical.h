/* SPDX-License-Identifier: MIT
 * The critical path of a predicted program, and its idle time by cause (critical.c). */
#ifndef PIPEC_CRITICAL_H
#define PIPEC_CRITICAL_H

#include "pipec.h"

typedef enum IdleCause {
  IDLE_WARMUP, IDLE_PEER, IDLE_TRANSFER, IDLE_SLOT, IDLE_MEMORY, IDLE_COPY, IDLE_FLUSH, IDLE_NCAUSES
} IdleCause;
extern const char *const idle_name[IDLE_NCAUSES]; /* "warmup" ... */
/* Do reports show this cause? `copy` only appears in programs with copies or side ops in COMM. */
static inline bool idle_shown(const Sched *s, int cause) {
  return cause != IDLE_COPY || s->orders->ncopy > 0 || s->sides->ncomm > 0;
}

typedef struct PathStep {
  uint32_t rank, instr; /* row of the list of the rank; a transfer appears as its SEND */
  uint64_t start, end;  /* start: end of the step before; 0 for the first */
} PathStep;

typedef struct Critical {
  PathStep *path;       /* [npath] in time order; the durations add up to the makespan */
  uint32_t npath;
  uint64_t *busy;       /* [nrank] time of compute ops */
  uint64_t (*idle)[IDLE_NCAUSES]; /* [nrank] time by cause; with busy, it adds up to the makespan */
} Critical;

/* Requires prog. The result is in the arena. Cost: linear in instructions. */
const Critical *critical(Sched *s);

#endif
