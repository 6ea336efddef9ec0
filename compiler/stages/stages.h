/* SPDX-License-Identifier: MIT
 * The door of stages/, what the ops run on: ranks, pipes, stages, costs, links. */
#ifndef PIPEC_STAGES_H
#define PIPEC_STAGES_H

#include "pipec.h"
#include "names.h"

/* Reports where a schedule that has what stands at `at` is extended; false: nowhere. */
bool note_extends(Sched *s, Span at);
/* The same of a check or limit, and how to leave it out. */
bool help_unchecked(Sched *s, Span at);
/* profile.c; has[NKEYS] */
bool profile_apply(Sched *s, Model *model, const char *path, Span at, bool *has);
extern const CostKey unit_key[PIPE_UNIT_TIMES]; /* by column of PipeProgram.unit_time */
/* where it is kept (SEND: SEND_F; SEND_B follows) */
uint64_t *cost_field(PipeStage *st, CostKey k);
/* Defaults for what `has` lacks. */
void cost_defaults(PipeStage *st, const bool has[NKEYS]);
/* ---- links.c: requires order. Ensures share: of every two ranks that meet the links that they
 * share with others ---- */
bool links(Sched *s, Model *model);
/* The parameter that counts microbatches, if others were given with -D and it was not: then a
 * verdict for the value it has by default says less than what was asked. NULL. */
const char *open_parameter(const Sched *s);

#endif
