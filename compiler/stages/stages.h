/* SPDX-License-Identifier: MIT
 * The door of stages/, what the ops run on: ranks, pipes, stages, costs, links. */
#ifndef PIPEC_STAGES_H
#define PIPEC_STAGES_H

#include "pipec.h"
#include "names.h"

/* The same for a check or limit at `at`, with a help on how to leave it out. */
bool help_unchecked(Sched *s, Span at);
/* profile.c: sets the costs that the profile has, those of the network in link[key - NKEYS][stage],
 * and has[NENTRIES] for them. False: reported. */
bool profile_apply(Sched *s, Model *model, const char *path, Span at, uint64_t *const *link,
                   bool *has);
/* Is the file a profile that some schedule can take? Its stages are not read: how many there are is
 * the schedule's. False: reported. */
bool profile_check(Sched *s, const char *path);
extern const CostKey unit_key[PIPE_UNIT_TIMES]; /* by column of PipeProgram.unit_time */
/* ---- costs.c ---- */
/* The field of a cost; for SEND it is SEND_F, and SEND_B follows. */
uint64_t *cost_field(PipeStage *st, CostKey k);
/* Sets defaults for the costs that `has` lacks. */
void cost_defaults(PipeStage *st, const bool has[NKEYS]);
/* The costs that neither text nor profile gives although the schedule has ops or tensors of them,
 * with what they count as: "no send, U: counted as 0; no I, W: half of B each". NULL: there is none.
 * Requires order. */
const char *costs_lacking(Sched *s);
const char *profile_lacks(Sched *s); /* the same; NULL without a profile */
bool has_op(const Sched *s, PipeOp kind); /* requires order */
/* ---- links.c: requires order. Ensures Model.share: for every two ranks that meet, the links that
 * they share with other ranks ---- */
bool links(Sched *s, Model *model);
/* ---- instance.c ---- */
/* The first parameter on which the number of microbatches depends and that has its default, since
 * no -D names it; NULL: none. Requires resolve. A CSV file has none. */
const char *open_parameter(const Sched *s);

#endif
