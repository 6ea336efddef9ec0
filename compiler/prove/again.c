/* SPDX-License-Identifier: MIT
 * Compiles the same text once more, silently:
 *
 *   orders_at      at another M, as far as its orders
 *   compile_at     at another M, all of it
 *   compiles_by    with another lowering
 *   worth_emitted  with another choice of `tune`
 *
 * The steps of a question about every M (work.h) pay for compiles at other M. */
#include <inttypes.h>
#include <string.h>

#include "again.h"
#include "lower.h"
#include "names.h"
#include "orders.h"

static void begin_again(const Sched *s, Sched *other, Arena *arena, Diag *diag, Options *opt) {
  if (arena != s->arena)
    *arena = (Arena){.oom = s->arena->oom};
  *opt = *s->opt;
  *other = (Sched){.arena = arena, .diag = diag, .opt = opt, .work = opt->work, .again = s->again};
  diag_init(diag, arena, NULL);
  opt->emit = EMIT_NONE;
  opt->for_all = opt->counterexample = opt->dump_after = NULL;
  opt->time_passes = opt->check_only = opt->looped = false;
}

/* Takes the steps that reading the text takes. False: there are not as many. */
static bool begin(Sched *s, Sched *other, Arena *arena, Diag *diag, Options *opt, const char *name,
                  int64_t value, bool any) {
  uint64_t bytes = 1000;
  begin_again(s, other, arena, diag, opt);
  opt->define = NEW_ARRAY(arena, Define, opt->ndefine + 1);
  if (opt->ndefine > 0)
    memcpy(opt->define, s->opt->define, opt->ndefine * sizeof *opt->define);
  opt->define[opt->ndefine++] = (Define){.name = name, .value = value, .n = 1};
  if (s->lowered->choice.open) /* the same one, though another may be better there */
    opt->lowering = 1 + (int)s->lowered->lowering;
  opt->any_value = any;
  for (uint32_t i = 0; i < s->diag->nsource; i++)
    bytes += s->diag->source[i].len;
  return work_take(other->work, bytes * WORK_TEXT, s->parsed->def->name_at);
}

bool orders_at(Sched *s, Sched *other, Arena *arena, Diag *diag, Options *opt, const char *name,
               int64_t m, bool any, bool prove) {
  return begin(s, other, arena, diag, opt, name, m, any) &&
         s->again(other, prove ? UNTIL_ORDERS : UNTIL_OPS);
}

bool compile_at(Sched *s, Sched *other, Arena *arena, Diag *diag, Options *opt, const char *name,
                int64_t value, bool any) {
  bool ok = begin(s, other, arena, diag, opt, name, value, any);
  opt->verify = false;
  return ok && s->again(other, UNTIL_END);
}

bool wrong_at(Sched *s, const char *name, int64_t m, DiagName *why, uint64_t *nop) {
  Arena arena;
  Diag diag;
  Options opt;
  Sched other;
  bool ok = orders_at(s, &other, &arena, &diag, &opt, name, m, false, true);
  *nop += other.orders ? other.orders->nop : 0; /* NULL: not begun, for want of steps */
  *why = diag.first;
  arena_free(&arena);
  return !ok && *why != DIAG_REQUIRES;
}

const char *refuted_text(Sched *s, const char *name, int64_t m, DiagName why) {
  enum { STEPS = 100 * 1000 * 1000 };
  Work *own = s->work, work;
  uint64_t nop = 0;
  int64_t v = 1;
  DiagName least = why;
  work_begin(&work, STEPS, false);
  s->work = s->opt->work = &work;
  while (v < m && (!wrong_at(s, name, v, &least, &nop) || work_spent(&work)) && !work_spent(&work))
    v++;
  s->work = s->opt->work = own;
  const bool found = !work_spent(&work);
  return arena_printf(s->arena, "refuted%s at %s = %" PRId64 " [%s]", found ? "" : ", first found",
                      name, found ? v : m, diag_name(found && v < m ? least : why));
}

bool worth_emitted(const Sched *s, TuneChoice choice, int64_t *value) {
  Arena arena;
  Diag diag;
  Options opt;
  Sched other;
  begin_again(s, &other, &arena, &diag, &opt);
  opt.tune = &choice;
  opt.verify = false;
  bool ok = s->again(&other, UNTIL_END) && eval(&other, other.tuning->clause->value, value);
  if (!ok && diag.errors > 0 && diag.first == DIAG_DEADLOCK) {
    *value = INT64_MAX;
    ok = true;
  }
  arena_free(&arena);
  return ok;
}

bool compiles_by(const Sched *s, PipeLowering lowering) {
  Arena arena;
  Diag diag;
  Options opt;
  Sched other;
  begin_again(s, &other, &arena, &diag, &opt);
  opt.lowering = 1 + (int)lowering;
  /* other faults do not matter here */
  bool ok = s->again(&other, UNTIL_END) ||
            (diag.first != DIAG_DEADLOCK && diag.first != DIAG_MATCHING);
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
  const uint64_t makespan = s->again(&other, UNTIL_END) ? other.times->makespan : 0;
  arena_free(&arena);
  return makespan;
}
