/* SPDX-License-Identifier: MIT
 * The door of plan/: from layers and a cluster to a schedule. */
#ifndef PIPEC_PLAN_H
#define PIPEC_PLAN_H

#include "pipec.h"

/* Plans opt->profile on opt->cluster by opt->plan_cost and writes the best schedule to opt->output,
 * or to opt->out. Requires s->again; needs no pass. False: reported, and nothing is written. */
bool plan(Sched *s);

#endif
