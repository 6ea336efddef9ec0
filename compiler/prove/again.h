/* SPDX-License-Identifier: MIT
 * Compiles the same text once more, silently: at another M, with another lowering, or with another
 * choice of `tune` (again.c). */
#ifndef PIPEC_AGAIN_H
#define PIPEC_AGAIN_H

#include "pipec.h"

/* Runs all passes except the checks and limits of the text, with `name` = value. other->arena is
 * `arena`: empty, or the arena of s. False: it does not compile. */
bool compile_at(Sched *s, Sched *other, Arena *arena, Diag *diag, Options *opt, const char *name,
                int64_t value);
/* Does the schedule complete with another lowering? Runs every pass, with opt->verify as in s.
 * Other errors do not count. */
bool compiles_by(const Sched *s, PipeLowering lowering);
/* The makespan with another lowering or LOWERING_AUTO; 0: it does not compile. */
uint64_t makespan_by(const Sched *s, uint32_t lowering);
/* *value: the `by` of the tune clause, measured on the emitted program of this choice; INT64_MAX:
 * deadlock. False: refused for another reason. */
bool worth_emitted(const Sched *s, TuneChoice choice, int64_t *value);

#endif
