/* SPDX-License-Identifier: MIT
 * The `transfers` clause and --lowering: who orders the transfers (lang/spec.md 8.4). */
#include <string.h>

#include "expand.h"

static const char *const lowering_name[PIPE_NLOWERINGS] = {
    [PIPE_GLOBAL] = "global", [PIPE_CHANNELS] = "channels", [PIPE_GROUPED] = "grouped"};

const char *lowering_text(const Sched *s) { return lowering_name[s->lowering]; }

static PipeLowering lowering_of(const Clause *c) {
  PipeLowering l = PIPE_GLOBAL;
  while (l < PIPE_NLOWERINGS && strcmp(c->name, lowering_name[l]) != 0)
    l++;
  return l;
}

void transfers_shape(Sched *s, const Clause *c) {
  if (lowering_of(c) < PIPE_NLOWERINGS)
    return;
  bool in_line = strcmp(c->name, "inline") == 0, manual = strcmp(c->name, "manual") == 0;
  diag_error(s->diag, in_line || manual ? DIAG_REMOVED : DIAG_CLAUSE, c->name_at,
             "'transfers %s': it is global, channels or grouped", c->name);
  if (in_line)
    diag_help(s->diag, "'grouped' puts transfers at their ops, those with nothing computed between "
                       "them as one group");
  else if (manual)
    diag_help(s->diag, "lists with their own transfers are CSV files (lang/spec.md 10)");
}

bool find_lowering(Ex *x) {
  Sched *s = x->s;
  const Clause *clause;
  if (!find_only(x, CL_TRANSFERS, "transfers", &clause))
    return false;
  s->lowering_at = clause && !s->opt->lowering ? clause->at : s->def->name_at;
  s->lowering = s->opt->lowering ? (PipeLowering)(s->opt->lowering - 1)
                : clause         ? lowering_of(clause)
                                 : PIPE_GLOBAL;
  return true;
}
