/* SPDX-License-Identifier: MIT
 * The door of weights/: the version of the weights that each op reads, and formulas over
 * versions. */
#ifndef PIPEC_WEIGHTS_H
#define PIPEC_WEIGHTS_H

#include "pipec.h"

/* Weight versions and formulas over them. Made by versions, formulas and version_slots. */
typedef struct Versions {
  /* [nrank] most updates of a stage between the version that an F reads and */
  uint32_t *staleness;
  /* [nrank]   that which its gradient is applied to; between those of F and its B or I */
  uint32_t *discrepancy;
  uint32_t *delay;       /* [nstage] staleness of one row */
  /* [nop] slots (version_slots) from 0 for each row, (slots) of the rank. NULL: not weighted */
  PipeWeights *weights;
  /* [nop] for a line with `per`: the first op that reads alike; NONE. NULL: no line has `per` */
  uint32_t *maker;
  uint32_t *last_reader; /* [nop] (version_slots) of such a first op, the last; NULL with maker */
  /* (formulas) of PipeProgram */
  PipeFormula *formula; PipeRule *rule; PipeThen *then; const char **state;
  uint32_t nformula, nrule, nthen, nstate;
  uint32_t *nversion;    /* [nstage] (version_slots) slots for versions; NULL: not weighted */
} Versions;

/* ---- versions.c: requires sides. Proves that the versions of the weights that are read are there;
 * ensures staleness, discrepancy, delay, weights (but for slots and formulas), maker ---- */
bool versions(Sched *s, Versions *versions);
/* ---- version_slots.c: requires formulas. Proves that versions that are read have not been
 * overwritten; ensures slots of weights, nversion, last_reader ---- */
bool version_slots(Sched *s, Versions *versions);
/* (formulas) The op that makes the estimate that op reads: itself, or the first that shares it.
 * NONE: it reads its version as it is, or is a U. */
uint32_t estimate_maker(const Sched *s, uint32_t op);

#endif
