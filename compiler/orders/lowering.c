/* SPDX-License-Identifier: MIT
 * The `transfers` clause and --lowering: who orders the transfers (lang/spec.md 8.4). */
#include "expand.h"
#include "names.h"

bool find_lowering(Ex *x) {
  Sched *s = x->s;
  const Clause *clause;
  if (!find_only(&x->in, CL_TRANSFERS, "transfers", &clause))
    return false;
  x->orders->lowering_at = clause && !s->opt->lowering ? clause->at : s->parsed->def->name_at;
  x->orders->lowering = s->opt->lowering ? (PipeLowering)(s->opt->lowering - 1)
                        : clause         ? lowering_of(clause)
                                         : PIPE_GLOBAL;
  return true;
}
