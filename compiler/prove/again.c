/* SPDX-License-Identifier: MIT
 * Compiles the same text once more, silently:
 *
 *   compile_at     at another M
 *   makespan_by    with another lowering
 *   worth_emitted  with another choice of `tune`
 *
 * The budget of a question about every M (work.h) pays for compiles at other M. */
#include <string.h>

#include "again.h"
#include "lower.h"
#include "names.h"
#include "orders.h"

static void begin_again(const Sched *s, Sched *other, Arena *arena, Diag *diag, Options *opt) {
  if (arena != s->arena)
    *arena = (Arena){0};
  *opt = *s->opt;
  *other = (Sched){.arena = arena, .diag = diag, .opt = opt, .work = opt->work, .again = s->again};
  diag_init(diag, arena, NULL);
  opt->emit = EMIT_NONE;
  opt->for_all = opt->counterexample = opt->dump_after = NULL;
  opt->time_passes = opt->check_only = opt->looped = false;
}

bool compile_at(Sched *s, Sched *other, Arena *arena, Diag *diag, Options *opt, const char *name,
                int64_t value) {
  uint64_t bytes = 1000;
  begin_again(s, other, arena, diag, opt);
  opt->define = NEW_ARRAY(arena, Define, opt->ndefine + 1);
  if (opt->ndefine > 0)
    memcpy(opt->define, s->opt->define, opt->ndefine * sizeof *opt->define);
  opt->define[opt->ndefine++] = (Define){.name = name, .value = value, .n = 1};
  if (s->lowered->choice.open) /* keeps the lowering; at this M `auto` might choose another */
    opt->lowering = 1 + (int)s->lowered->lowering;
  opt->verify = false, opt->no_claims = true, opt->memory_limit_bytes = 0;
  for (uint32_t i = 0; i < s->diag->nsource; i++)
    bytes += s->diag->source[i].len;
  return work_take(other->work, bytes * WORK_TEXT, s->parsed->def->name_at) && s->again(other);
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
