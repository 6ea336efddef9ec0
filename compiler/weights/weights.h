/* SPDX-License-Identifier: MIT
 * The door of weights/, what other rooms call: the version of the weights that each op reads, and formulas over versions. */
#ifndef PIPEC_WEIGHTS_H
#define PIPEC_WEIGHTS_H

#include "pipec.h"

/* ---- versions.c: requires sides. Proves that the versions of the weights that are read are there;
 * ensures staleness, discrepancy, delay, weights (but for slots and formulas), maker ---- */
bool versions(Sched *s);
/* ---- version_slots.c: requires formulas. Proves that versions that are read have not been overwritten; ensures slots
 * of weights, nversion, last_reader ---- */
bool version_slots(Sched *s);

#endif
