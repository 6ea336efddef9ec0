/* SPDX-License-Identifier: MIT
 * What the parts of the verifier share. */
#ifndef PIPEC_VERIFY_H
#define PIPEC_VERIFY_H

#include "lower.h"
#include "machine.h"
#include "pipec.h"

static inline size_t cell_at(uint32_t nmb, uint32_t stage, uint32_t mb) {
  return (size_t)stage * nmb + mb;
}

/* Does each rank of the hops wait forever, under any channel model (verify_cycle.c)? */
bool cycle_holds(const Sched *s, const StallHop *hop, uint32_t nhop);

/* Verifies that the lists of a program complete, whatever the timing, and that every SEND meets its
 * RECV (verify_completes.c). Requires a valid program. */
void verify_completes(const PipeProgram *p);
/* The lists that verify_completes runs. channels: each channel is a stream. */
MachineList *emitted_lists(Arena *a, const PipeProgram *p, bool channels);

/* verify_side.c: the table of side ops; that each side op of a clause exists once, in its place,
 * and no other exists; and the buffers that side ops take and give back. */
void verify_side_table(const Sched *s);
void verify_sides(const Sched *s);
/* The slots of stashes, and the limits (verify_stashes.c). */
void verify_stashes(const Sched *s);

#endif
