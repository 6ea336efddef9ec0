/* SPDX-License-Identifier: MIT
 * The same text compiled once more, silently: at another M, with another lowering, or as tuned
 * (again.c). */
#ifndef PIPEC_AGAIN_H
#define PIPEC_AGAIN_H

#include "pipec.h"

/* Compiles the orders at M = m, with proof or without. any: even if the schedule requires another
 * M. */
bool orders_at(Sched *s, Sched *other, Arena *arena, Diag *diag, Options *opt, const char *name,
               int64_t m, bool any, bool prove);
/* Runs all passes at another value of a parameter. other->arena is `arena`, which must be empty, or
 * the arena of s. any: even if the schedule requires another value. */
bool compile_at(Sched *s, Sched *other, Arena *arena, Diag *diag, Options *opt, const char *name,
                int64_t value, bool any);
/* The schedule admits m, and its orders are wrong: *why. Adds how many ops it compiled to *nop. */
bool wrong_at(Sched *s, const char *name, int64_t m, DiagName *why, uint64_t *nop);
/* The verdict for m, or the least value that fails; "first found" if the steps run out first. */
const char *refuted_text(Sched *s, const char *name, int64_t m, DiagName why);
/* True if the schedule has no deadlock with another lowering; every pass is verified. */
bool compiles_by(const Sched *s, PipeLowering lowering);
/* The makespan with another lowering, or LOWERING_AUTO; 0: it does not compile with it. */
uint64_t makespan_by(const Sched *s, uint32_t lowering);
/* The value of `by` of the tune clause as emitted, with a choice of it; INT64_MAX for a deadlock.
 * False: refused for another reason. */
bool worth_emitted(const Sched *s, TuneChoice choice, int64_t *value);

#endif
