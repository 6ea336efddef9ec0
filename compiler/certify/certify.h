/* SPDX-License-Identifier: MIT
 * The door of certify/: machine.c, which decides whether lists complete (machine.h), and the second
 * opinions: each verdict and table is checked by code that shares nothing with its maker. */
#ifndef PIPEC_CERTIFY_H
#define PIPEC_CERTIFY_H

#include "pipec.h"

/* ---- verify.c: finds pipec's own mistakes; shares no code with the passes ---- */
/* Behind check_user, where that runs. The tables are a program, by the validator of the runtime:
 * above all, no slot is filled while it is in use. With opt->verify, the default of debug builds,
 * by verify_program, which also needs what check_user says of limits. */
bool check_tables(Sched *s);
/* Asks the validator, and verifies all that the text says of a program. Aborts on a mistake. */
void verify_program(const Sched *s);
/* With opt->verify, run after every pass that has something to verify. Abort on a mistake. */
void verify_ops(const Sched *s);    /* verify_ops.c */
void verify_circle(const Sched *s); /* verify_circle.c: once order has refuted the orders */

#endif
