/* SPDX-License-Identifier: MIT
 * The door of forall/, what other rooms call: proofs for every M, and programs for every M. */
#ifndef PIPEC_FORALL_H
#define PIPEC_FORALL_H

#include "pipec.h"

/* ---- all_m.c: with opt->for_all, requires check_user. Proves that the orders agree with the data for
 * every value of that parameter, or says why that is not decided; ensures all_m ---- */
bool check_all_m(Sched *s);
void dump_all_m(Sched *s, FILE *f); /* lists_dump.c */

#endif
