/* SPDX-License-Identifier: MIT
 * What the parts of the verifier share. */
#ifndef PIPEC_VERIFY_H
#define PIPEC_VERIFY_H

#include "lower.h"
#include "pipec.h"

static inline size_t cell_at(uint32_t nmb, uint32_t stage, uint32_t mb) {
  return (size_t)stage * nmb + mb;
}

/* Does no rank of these ever go on from its op, whatever carries the messages (verify_circle.c)? */
bool circle_holds(const Sched *s, const StallHop *hop, uint32_t nhop);

/* The lists of a program are carried out to their end, whatever the order of events in time, and
 * every SEND meets its own RECV (verify_completes.c). Requires a valid program. */
void verify_completes(const PipeProgram *p);

/* verify_side.c: the table of side ops; every side op that a clause asks for, where it asks for it,
 * and no other; and the buffers that they take and give back. */
void verify_side_table(const Sched *s);
void verify_sides(const Sched *s);
/* The slots of stashes and the limits, in the order of the text (verify_stashes.c). */
void verify_stashes(const Sched *s);
/* The versions of the weights (verify_weights.c), and their formulas (verify_formulas.c). */
void verify_weights(const Sched *s);
void verify_formulas(const Sched *s);

#endif
