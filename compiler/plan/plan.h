/* SPDX-License-Identifier: MIT
 * The door of plan/: from layers and a cluster to a schedule. */
#ifndef PIPEC_PLAN_H
#define PIPEC_PLAN_H

#include "pipec.h"

/* Plans opt->profile on opt->cluster by opt->plan_cost and writes the best schedule to opt->output,
 * or to opt->out. Requires s->again; needs no pass. False: reported, and nothing is written. */
bool plan(Sched *s);
/* Finds the schedule with the shortest step for opt->profile within opt->memory_limit_bytes, among
 * opt->compare, or the library if that is empty, and writes it in the same way. Requires s->again
 * and a definition of M. */
bool best(Sched *s);

#endif
