/* SPDX-License-Identifier: MIT
 * The door of certify/, the second opinions: each verdict and table is checked by code that shares
 * nothing with its maker. */
#ifndef PIPEC_CERTIFY_H
#define PIPEC_CERTIFY_H

#include "pipec.h"

/* ---- verify.c: internal consistency; aborts with file:line on our own mistakes. Shares no code
 * with the passes. With opt->verify, the default of debug builds, called after every pass that has
 * something to verify. ---- */
void verify_ops(const Sched *s);
void verify_circle(const Sched *s); /* if order has refuted it */
void verify_program(const Sched *s);
/* The clock of all_m.c, (at[node] + num * period) / by, of a program whose node k of rank r is op
 * first[r] + k counted on from rank to rank: every op of it is later than what it waits for. */
void verify_clock(const Sched *s, int64_t S, uint32_t nnode, const uint32_t *first,
                  const uint32_t *per, const __int128 *at, uint64_t num, uint64_t by);

#endif
