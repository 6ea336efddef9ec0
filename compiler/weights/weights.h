/* SPDX-License-Identifier: MIT
 * The door of weights/, what other rooms call: the version of the weights that each op reads, and formulas over versions. */
#ifndef PIPEC_WEIGHTS_H
#define PIPEC_WEIGHTS_H

#include "pipec.h"

/* The versions of the weights, and what is computed of them. Made by versions, formulas and version_slots. */
typedef struct Versions {
  uint32_t *staleness;   /* [nrank] most updates of a stage between the version that an F reads and */
  uint32_t *discrepancy; /* [nrank]   that which its gradient is applied to; between those of F and its B or I */
  uint32_t *delay;       /* [nstage] staleness of one row */
  PipeWeights *weights;  /* [nop] slots (version_slots) from 0 for each row, (slots) of the rank. NULL: not weighted */
  uint32_t *maker;       /* [nop] of an op whose line has `per`, the first of those that read alike; NONE.
                            NULL: no line has */
  uint32_t *last_reader; /* [nop] (version_slots) of such a first op, the last; NULL with maker */
  PipeFormula *formula; PipeRule *rule; PipeThen *then; const char **state; /* (formulas) of PipeProgram */
  uint32_t nformula, nrule, nthen, nstate;
  uint32_t *nversion;    /* [nstage] (version_slots) slots for versions; NULL: not weighted */
} Versions;

/* ---- versions.c: requires sides. Proves that the versions of the weights that are read are there;
 * ensures staleness, discrepancy, delay, weights (but for slots and formulas), maker ---- */
bool versions(Sched *s, Versions *versions);
/* ---- version_slots.c: requires formulas. Proves that versions that are read have not been overwritten; ensures slots
 * of weights, nversion, last_reader ---- */
bool version_slots(Sched *s, Versions *versions);
/* (formulas) The op that makes the estimate that op reads: itself, or the first that shares it. NONE: it reads its
 * version as it is, or is a U. */
uint32_t estimate_maker(const Sched *s, uint32_t op);

#endif
