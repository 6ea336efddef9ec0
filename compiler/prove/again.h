/* SPDX-License-Identifier: MIT
 * Compiles the same text once more, silently: with another lowering, or with another choice of
 * `tune` (again.c). */
#ifndef PIPEC_AGAIN_H
#define PIPEC_AGAIN_H

#include "pipec.h"

/* The makespan with another lowering or LOWERING_AUTO; 0: it does not compile. */
uint64_t makespan_by(const Sched *s, uint32_t lowering);
/* *value: the `by` of the tune clause, measured on the emitted program of this choice. False: the
 * choice is refused. */
bool worth_emitted(const Sched *s, TuneChoice choice, int64_t *value);

#endif
