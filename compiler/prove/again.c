/* SPDX-License-Identifier: MIT
 * Compiles the same text once more, silently:
 *
 *   makespan_by    with another lowering
 *   worth_emitted  with another choice of `tune`
 */
#include <string.h>

#include "again.h"
#include "lower.h"
#include "names.h"
#include "orders.h"

static void begin_again(const Sched *s, Sched *other, Arena *arena, Diag *diag, Options *opt) {
  if (arena != s->arena)
    *arena = (Arena){0};
  *opt = *s->opt;
  *other = (Sched){.arena = arena, .diag = diag, .opt = opt, .work = s->work, .again = s->again};
  diag_init(diag, arena, NULL);
  opt->emit = EMIT_NONE;
  opt->counterexample = opt->dump_after = NULL;
  opt->time_passes = opt->check_only = false;
}

bool worth_emitted(const Sched *s, TuneChoice choice, int64_t *value) {
  Arena arena;
  Diag diag;
  Options opt;
  Sched other;
  begin_again(s, &other, &arena, &diag, &opt);
  opt.tune = &choice;
  opt.verify = false;
  bool ok = s->again(&other) && eval(&other, other.tuning->clause->value, value);
  arena_free(&arena);
  return ok;
}

uint64_t makespan_by(const Sched *s, uint32_t lowering) {
  Arena arena;
  Diag diag;
  Options opt;
  Sched other;
  begin_again(s, &other, &arena, &diag, &opt);
  opt.lowering = 1 + (int)lowering;
  opt.verify = false;
  const uint64_t makespan = s->again(&other) ? other.times->makespan : 0;
  arena_free(&arena);
  return makespan;
}
