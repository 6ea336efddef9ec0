/* SPDX-License-Identifier: MIT
 * Finds the lowering, which decides the order of transfers: the `transfers` clause and --lowering
 * (lang/spec.md 8.4). */
#include "expand.h"
#include "names.h"

bool find_lowering(Ex *x) {
  Sched *s = x->s;
  const Clause *clause;
  if (!find_only(&x->in, CL_TRANSFERS, "transfers", &clause))
    return false;
  x->orders->lowering_at = clause && !s->opt->lowering ? clause->at : s->parsed->def->name_at;
  x->orders->lowering = asked_lowering(s, clause ? lowering_of(clause->name) : LOWERING_AUTO);
  return true;
}
