/* SPDX-License-Identifier: MIT
 * The door of certify/: machine.c, which decides whether lists complete (machine.h), and second
 * opinions on completion, wait cycles, limits and side ops, by code that shares nothing with their
 * maker. */
#ifndef PIPEC_CERTIFY_H
#define PIPEC_CERTIFY_H

#include "pipec.h"

/* ---- verify.c: finds mistakes of pipec itself; shares no code with the passes ---- */
/* Runs after check_user. Asks the validator of the runtime whether the tables are a program: above
 * all, that no slot is filled while it is in use. With opt->verify, the default of debug builds,
 * calls verify_program instead, which needs the limits that check_user proves. */
bool check_tables(Sched *s);
/* Asks the validator, and verifies the order of the text, side ops, limits and completion. Aborts
 * on a mistake. */
void verify_program(const Sched *s);
/* verify_cycle.c: run by the driver, with opt->verify, after order refuted the orders. Aborts on a
 * mistake. */
void verify_cycle(const Sched *s);

#endif
