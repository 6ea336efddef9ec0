/* SPDX-License-Identifier: MIT
 * The same text compiled once more, silently: at another M, with another lowering, or as tuned
 * (again.c). */
#ifndef PIPEC_AGAIN_H
#define PIPEC_AGAIN_H

#include "pipec.h"

/* Runs all passes but the checks and limits of the text, at another value of a parameter.
 * other->arena is `arena`, which must be empty, or the arena of s. */
bool compile_at(Sched *s, Sched *other, Arena *arena, Diag *diag, Options *opt, const char *name,
                int64_t value);
/* True if the schedule has no deadlock with another lowering; every pass is verified. */
bool compiles_by(const Sched *s, PipeLowering lowering);
/* The makespan with another lowering, or LOWERING_AUTO; 0: it does not compile with it. */
uint64_t makespan_by(const Sched *s, uint32_t lowering);
/* The value of `by` of the tune clause as emitted, with a choice of it; INT64_MAX for a deadlock.
 * False: refused for another reason. */
bool worth_emitted(const Sched *s, TuneChoice choice, int64_t *value);

#endif
