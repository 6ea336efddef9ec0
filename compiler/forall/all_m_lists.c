/* SPDX-License-Identifier: MIT
 * --for-all=M of orders that are not one kernel, one loop or one clock with a period (all_m.c): the lists of the
 * ranks for every M of a class from + step * n are derived from the text (lists_of_m.c), proved (clock_of_m.c) and
 * verified (verify_lists.c). The step and the least M of each class are found by trying; whatever they are,
 * what they are found to be is proved. Values below are compiled one by one, as far as that is not too much: in all
 * as many cells as the square of the least M times the stages. */
#include <inttypes.h>
#include <string.h>

#include "hints.h"
#include "lists_of_m.h"
#include "looped.h"
#include "names.h"
#include "orders.h"
#include "plant.h"
#include "quasi.h"
#include "rest_of_m.h"

enum {
  MOST_STEP = 64,
  MOST_STEPS = 12,      /* that are tried */
  MOST_WORK = 1 << 21,  /* cells of programs that are compiled */
  MOST_BELOW = 1 << 26, /* of those of values below the classes */
  PACE_TURNS = 24       /* n at which paces are read */
};

typedef struct Tried { /* a compiled program of a class */
  Arena arena;
  Diag diag;
  Options opt;
  Sched s;
  uint64_t *tick;
} Tried;

typedef struct Classes {
  Sched *s;
  const Param *m;
  int64_t step, pace;
  int64_t from[MOST_STEP]; /* of residue i + 1; 0: the schedule does not admit any */
  int64_t ends[MOST_STEP]; /*   from there on; below it may admit some */
  int64_t work;
  const char *why;
  Span at; /* why not, if it cannot be cured */
  bool refuted;
  bool rules; /* they have rules: what is compiled takes much longer, so less is tried in vain, */
  int64_t vain;
  int64_t far; /*   and where one class repeats the others are tried first */
} Classes;

static bool compile_value(Classes *c, int64_t value, Tried *to) {
  c->work += value * c->s->model->nstage;
  return orders_at(c->s, &to->s, &to->arena, &to->diag, &to->opt, c->m->name, value, true, true);
}

/* When each op ends if all take one tick. */
static bool play(Tried *p) {
  Sched *s = &p->s;
  PipeStage one = {.time = {0}};
  for (int i = 0; i <= PIPE_U; i++)
    one.time[i] = 1;
  OrderRun run = {.stage = &one,
                  .uniform = true,
                  .end = NEW_ARRAY(s->arena, uint64_t, s->orders->nop + (size_t)1),
                  .head = NEW_ARRAY(s->arena, uint32_t, s->model->nrank)};
  p->tick = run.end;
  return order_run(s, &run);
}

static bool refuted(Classes *c, int64_t value, DiagName why) {
  c->refuted = true;
  c->at = c->s->parsed->def->name_at;
  c->why = refuted_text(c->s, c->m->name, value, why);
  return false;
}

/* Planted mistakes in a list, for verify_lists. */
static void damage(ListsOfM *l) {
  RankList *k = &l->rank[0];
  for (uint32_t i = 0; i < k->row.n; i++) {
    k->row.at[i].unit.n += PLANTED(LIST_UNIT);
    k->row.at[i].unit.a += PLANTED(LIST_COPY) && pipe_is_copy(k->row.at[i].kind);
  }
  if (PLANTED(LIST_CLOCK))
    k->row.at[0].start += 1 << 20;
  if (PLANTED(LIST_SLOPE))
    k->segment.at[0].per_n += 1 << 20;
}

/* The class from + step * n, n >= 0. `fail` says what to change. */
static bool try_from(Classes *c, int64_t from, AffineFail *fail, int64_t *need, bool *never) {
  Tried p[4];
  uint32_t made = 1;
  AffineEnv x = {.s = &p[0].s};
  ListsOfM l = {.pace = c->pace};
  c->s->opt->keep_play = true; /* at n = 0, 1 and 2 */
  bool right = compile_value(c, from, &p[0]);
  bool ok = p[0].s.eval.env, admits = true;
  *never = false, *fail = AFFINE_NO, c->why = "it has no value";
  ok = ok && bind_of_m(&x, c->m->slot, from, c->step) && admits_of_m(&x, &admits);
  *never = ok && !admits;
  if (ok && admits && !right)
    ok = refuted(c, from, p[0].diag.first);
  ok = ok && admits && lists_of_m(&p[0].s, &x, &l);
  const Entry *cost = ok && l.block ? moving_cost(c->s, c->m->name) : NULL;
  if (cost)
    ok = affine_no(&x, cost->value->at, "its rules go by costs that depend on M");
  const Entry *by_mb = ok && l.block ? cost_by_mb(c->s) : NULL;
  if (by_mb)
    ok = affine_no(&x, by_mb->value->at, "times differ by microbatch, and its rules go by them");
  int64_t far = PACE_TURNS;
  while (far > 3 && (from + far * c->step) * c->s->model->nstage > MOST_WORK / 16)
    far--;
  const int64_t n[] = {0, 1, 2, far};
  for (int i = 1; i < 4 && ok; i++, made++) {
    c->s->opt->keep_play = i < 3;
    right = compile_value(c, from + n[i] * c->step, &p[i]);
    ok = right || refuted(c, from + n[i] * c->step, p[i].diag.first);
  }
  c->s->opt->keep_play = false;
  ok = ok && play(&p[3]) && clock_of_m(&p[0].s, &x, &l, &(SampleOfM){&p[3].s, n[3], p[3].tick});
  ok = ok && !work_spent(c->s->work);
  if (ok) {
    const Sched *const at[3] = {&p[0].s, &p[1].s, &p[2].s};
    damage(&l);
    verify_lists(&l, at);
    if (l.block)
      verify_rules(&l, at);
    if (c->s->opt->dump_after)
      c->s->all_m.lists = lists_text(c->s, &p[0].s, &l, from, c->step, c->s->all_m.lists);
  }
  c->pace = l.pace, c->rules |= l.block != NULL;
  c->s->all_m.late |= ok && l.late, c->s->all_m.applied |= ok && l.applied;
  if (!ok && !c->refuted && x.fail != AFFINE_OK) {
    *fail = x.fail == AFFINE_CROSS || x.fail == AFFINE_TURN ? AFFINE_BASE : x.fail;
    *need = x.need;
    if (x.fail == AFFINE_NO)
      c->why = x.why, c->at = x.at;
  }
  for (uint32_t i = 0; i < made; i++)
    arena_free(&p[i].arena);
  return ok;
}

/* All residues of the step at hand. */
static bool try_step(Classes *c, AffineFail *fail, int64_t *need) {
  c->s->all_m.lists = NULL;
  c->s->all_m.late = c->s->all_m.applied = false;
  for (int64_t residue = 1; residue <= c->step; residue++) {
    int64_t n = c->rules && c->far > residue ? (c->far - residue + c->step - 1) / c->step : 0;
    c->from[residue - 1] = c->ends[residue - 1] = 0;
    for (;;) {
      bool never;
      c->far = c->rules ? residue + n * c->step : 0;
      if (try_from(c, residue + n * c->step, fail, need, &never)) {
        c->from[residue - 1] = residue + n * c->step;
        break;
      }
      if (never) {
        c->ends[residue - 1] = residue + n * c->step;
        break;
      }
      if (c->refuted || *fail != AFFINE_BASE)
        return false;
      c->vain += (residue + n * c->step) * c->s->model->nstage;
      if (c->work > MOST_WORK || (c->rules && c->vain > MOST_WORK / 32)) {
        *fail = AFFINE_NO;
        c->why = arena_printf(
            c->s->arena,
            c->rules ? "the play of its rules has no turn that repeats, as far as %s = %" PRId64
                       " was tried"
                     : "what its ranks do still changes at %s = %" PRId64
                       ", and more would be too much to compile",
            c->m->name, residue + n * c->step);
        c->at = c->s->parsed->def->name_at;
        return false;
      }
      n += 1 + n / 4;
    }
  }
  return true;
}

/* Values below those of the classes, one by one; *end, up to which these go: so far it has come. */
static bool try_below(Classes *c, int64_t *end) {
  int64_t most = c->rules ? MOST_BELOW / 8 : MOST_BELOW;
  bool ok = true;
  for (int64_t v = 1; v < *end && ok; v++) {
    int64_t i = (v - 1) % c->step, from = c->from[i] ? c->from[i] : c->ends[i];
    Tried p;
    if (v >= from)
      continue;
    if ((most -= v * c->s->model->nstage) < 0) {
      *end = v;
      return true;
    }
    ok = compile_value(c, v, &p);
    arena_free(&p.arena);
    DiagName why;
    uint64_t nop = 0;
    ok = ok || !wrong_at(c->s, c->m->name, v, &why, &nop) || refuted(c, v, why);
  }
  return ok;
}

void prove_by_lists(Sched *s, const Param *m) {
  Classes c = {.s = s, .m = m, .step = 1};
  AffineFail fail = AFFINE_NO;
  int64_t need = 1, end = 0;
  bool ok = false;
  for (int i = 0; i < MOST_STEPS && !ok; i++) {
    fail = AFFINE_NO, need = 1;
    ok = try_step(&c, &fail, &need);
    if (!ok && (c.refuted || fail != AFFINE_STEP))
      break;
    if (!ok && (c.step *= need) > MOST_STEP) {
      c.why = "what repeats takes too many microbatches", c.at = s->parsed->def->name_at;
      break;
    }
    if (!ok && i + 1 == MOST_STEPS)
      c.why = "no number of microbatches was found after which all its ranks repeat",
      c.at = s->parsed->def->name_at;
  }
  for (int64_t i = 0; i < c.step && ok; i++)
    end = c.from[i] > end ? c.from[i] : end;
  if (ok && end == 0)
    ok = false, c.why = "it has no value", c.at = s->parsed->def->name_at;
  for (int64_t i = 0; i < c.step && ok; i++)
    end = c.ends[i] > end ? c.ends[i] : end;
  int64_t below = end;
  ok = ok && try_below(&c, &below);
  s->all_m.refuted = c.refuted;
  if (!ok) {
    s->all_m.text = c.why ? c.why : "it has no value", s->all_m.at = c.at;
    return;
  }
  s->all_m.proved = true;
  s->all_m.from = (uint64_t)end, s->all_m.below = (uint64_t)below;
  if (below < end)
    s->all_m.text = "some values are too many to compile", s->all_m.at = s->parsed->def->name_at;
  s->all_m.period = (uint64_t)c.step;
  /* of a step, the residues that there are: those of a multiple, or all */
  s->all_m.multiple = 1;
  for (int64_t by = c.step; by > 1; by--) {
    bool fits = c.step % by == 0;
    for (int64_t i = 0; i < c.step && fits; i++)
      fits = (c.from[i] != 0) == ((i + 1) % by == 0);
    if (fits)
      s->all_m.multiple = (uint64_t)by;
  }
}

/* Is no value from - step * n, n >= 0, admitted, by what the schedule requires, or since a pipe has no microbatch then? AFFINE_OK:
 * *refused says it; else why it is not found, and by how much step is too small. */
static AffineFail refused_from(const Sched *s, const Param *m, int64_t from, int64_t step,
                               bool *refused, int64_t *need) {
  Diag none;
  Sched own = quiet(s, &none);
  AffineEnv x = {.s = &own};
  bool admits = true, some = true;
  own.eval.env = arena_alloc(s->arena, (s->parsed->nslot + (size_t)1) * sizeof *own.eval.env);
  memcpy(own.eval.env, s->eval.env, s->parsed->nslot * sizeof *own.eval.env);
  bool ok = bind_of_m(&x, m->slot, from, -step) && admits_of_m(&x, &admits);
  for (uint32_t k = 0; k < s->model->npipe && ok && admits && some; k++) {
    const Clause *c = s->model->pipe[k].clause;
    Affine v;
    if (c->index)
      affine_bind(&x, c->index_slot, affine(s->model->pipe[k].index));
    ok = affine_eval(&x, c->mbs, &v) &&
         affine_at_least_0(&x, c->mbs->at, affine_sum(v, affine(1), -1), &some);
  }
  *refused = !admits || !some, *need = x.need;
  return ok ? AFFINE_OK : x.fail == AFFINE_OK ? AFFINE_NO : x.fail;
}

/* Has the schedule no value of m below 1? False: it may have. */
static bool only_from_one(const Sched *s, const Param *m) {
  enum {
    ALONE = 64
  }; /* values that are looked at by themselves, until the rest of their class is alike */
  int64_t step = 1, need, alone = 0;
  for (int64_t residue = 0; residue < step; residue++) {
    bool refused = false;
    AffineFail fail;
    for (int64_t from = -residue;; from -= step) {
      fail = refused_from(s, m, from, step, &refused, &need);
      if (fail != AFFINE_BASE || alone++ == ALONE ||
          refused_from(s, m, from, 0, &refused, &need) != AFFINE_OK || !refused)
        break;
    }
    if (fail == AFFINE_STEP && need > 1 && step * need <= MOST_STEP)
      step *= need, residue = -1;
    else if (fail != AFFINE_OK || !refused)
      return false;
  }
  return true;
}

void limits_of_m(Sched *s, const Param *m) {
  const Entry *size = moving_transfer(s, m->name);
  if (size)
    s->all_m.per = 0, s->all_m.at = size->value->at;
  const Entry *by_mb = cost_by_mb(s);
  if (by_mb)
    s->all_m.per = 0, s->all_m.by_mb = true, s->all_m.at = by_mb->value->at;
  s->all_m.below_one = !only_from_one(s, m);
}
