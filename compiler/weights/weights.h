/* SPDX-License-Identifier: MIT
 * The door of weights/: the version of the weights that each op reads, and formulas over
 * versions. */
#ifndef PIPEC_WEIGHTS_H
#define PIPEC_WEIGHTS_H

#include "pipec.h"

/* Weight versions and formulas over them. Made by versions, formulas and version_slots. */
typedef struct Versions {
  /* [nrank] most updates of one stage between the version that an F reads and the version that its
   * gradient updates */
  uint32_t *staleness;
  /* [nrank] most updates between the versions that an F and its B or I read */
  uint32_t *discrepancy;
  uint32_t *delay;       /* [nstage] staleness of the row */
  /* [nop] slots: numbered from 0 for each row after version_slots, within the rank after slots.
   * NULL: no `weights` clause. */
  PipeWeights *weights;
  /* [nop] for a line with `per`: the first op that shares the read; NONE. NULL: no line has
   * `per`. */
  uint32_t *maker;
  uint32_t *last_reader; /* [nop] (version_slots) last reader of the maker; NULL like maker */
  /* (formulas) as in PipeProgram */
  PipeFormula *formula; PipeRule *rule; PipeThen *then; const char **state;
  uint32_t nformula, nrule, nthen, nstate;
  /* [nstage] (version_slots) number of slots for versions; NULL: no `weights` clause */
  uint32_t *nversion;
} Versions;

/* ---- versions.c: requires sides. Proves that every version that is read exists. Ensures
 * staleness, discrepancy, delay, maker, and weights apart from slots and formulas ---- */
bool versions(Sched *s, Versions *versions);
/* ---- version_slots.c: requires formulas. Proves that no version is overwritten before its last
 * reader. Ensures the slots of weights, nversion, last_reader ---- */
bool version_slots(Sched *s, Versions *versions);
/* (formulas) The op that makes the estimate that `op` reads: op itself, or the first op that shares
 * it. NONE: op reads its version unchanged, or is a U. */
uint32_t estimate_maker(const Sched *s, uint32_t op);

#endif
