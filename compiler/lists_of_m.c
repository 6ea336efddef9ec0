/* SPDX-License-Identifier: MIT
 * note [lists]: runs the text of an order once for all M = from + step * n. Values are linear in n (affine.h). A
 * loop whose number of turns grows with n is cut where a comparison inside it changes: at a turn that is a
 * function of n. What is left are stretches in which every comparison has one outcome for all n; those whose
 * length does not depend on n are written out, of the others one turn is run, with its number j as a variable,
 * for all its values at once. What ops without index take is part of the state, and must move on by the same in
 * each turn. So each list is a row of segments, and that it is, for every n >= 0, is what has been computed, not
 * seen at examples. `clock` sorts the same segments by their stamps (sort_clock).
 *
 * Not read in this way: `rules`, whose order is that of a simulation, `use`, transfers by hand, W without stamp
 * in a clock. Linear in the rows of the result times the cuts. */
#include "lists_of_m.h"

#include <string.h>

#include "expand.h"
#include "graph.h"
#include "quasi.h"

enum { MOST_CUTS = 48, MOST_ROWS = 1 << 17, MOST_TURN = 1 << 12, LEAST_TURNS = 3 };

typedef struct Waiting {
  uint32_t stage;
  Affine unit;
} Waiting; /* an I whose W has not run */

typedef struct State { /* what ops without index take */
  Affine *next[3];     /* [nstage] of F, R, and of B or I; those of the rank count */
  VEC(Waiting) wait;
} State;

typedef struct Text {
  AffineEnv *x;
  Sched *s;
  ListsOfM *l;
  RankList *out;
  Ex ex; /* to find stages */
  uint32_t rank;
  bool clip, waits;  /* waits: there are W without index */
  uint32_t straight; /* first row that is in no segment yet */
  State now;
  const Affine *mbs;   /* [npipe] microbatches of each pipe */
  const Clause *again; /* recompute */
  const Stmt *clock;   /* its ops are being listed; their stamps: */
  VEC(Affine) stamp;   /* by row, from the first of the clock on */
  Affine base;         /* period times index */
  const Stmt *joint;
  Affine joint_stamp; /* the action that is being listed */
  Affine split;       /* where a loop is to be cut: its index */
  uint64_t steps;
} Text;

static bool no(Text *t, Span at, const char *why) { return affine_no(t->x, at, why); }

/* ---- the state ---- */

static State save(const Text *t) {
  const Sched *s = t->s;
  State to = {.wait = {0}};
  for (int i = 0; i < 3; i++) {
    to.next[i] = NEW_ARRAY(s->arena, Affine, s->nstage);
    memcpy(to.next[i], t->now.next[i], s->nstage * sizeof *to.next[i]);
  }
  for (uint32_t i = 0; i < t->now.wait.n; i++)
    *vec_push(s->arena, &to.wait) = t->now.wait.at[i];
  return to;
}

/* Those values of a state that count, one after the other. NULL: there are no more. */
static Affine *part_of(const Text *t, State *st, uint32_t i) {
  uint32_t first = t->s->rank_stage0[t->rank], held = t->s->rank_stage0[t->rank + 1] - first;
  if (i < 3 * held)
    return &st->next[i / held][t->s->rank_stage[first + i % held]];
  return i - 3 * held < st->wait.n ? &st->wait.at[i - 3 * held].unit : NULL;
}

/* Are the same I waiting in both, but for their microbatches? */
static bool alike(const State *a, const State *b) {
  if (a->wait.n != b->wait.n)
    return false;
  for (uint32_t i = 0; i < a->wait.n; i++)
    if (a->wait.at[i].stage != b->wait.at[i].stage)
      return false;
  return true;
}

/* ---- rows ---- */

static void end_straight(Text *t) {
  if (t->out->row.n > t->straight)
    *vec_push(t->s->arena, &t->out->segment) = (ListSegment){
        .row0 = t->straight, .nrow = t->out->row.n - t->straight, .turns = 1};
  t->straight = t->out->row.n;
}

static bool push(Text *t, const OpRef *o, uint8_t kind, uint32_t stage, Affine unit, bool whole,
                 Affine stamp) {
  if (t->out->row.n >= MOST_ROWS)
    return no(t, o->at, "its repeated part is too long");
  *vec_push(t->s->arena, &t->out->row) = (ListRow){
      .kind = kind, .whole = whole, .stage = stage, .unit = unit, .at = o->at};
  if (t->clock)
    *vec_push(t->s->arena, &t->stamp) = affine_sum(stamp, t->base, 1);
  return true;
}

/* The rank of a stage and microbatch where that depends on the microbatch. */
static bool placed_here(Text *t, const Pipe *p, uint32_t stage, Affine mb, Span at, bool *here) {
  const Clause *c = p->clause;
  int64_t rank;
  *here = true;
  if (!t->s->row_of || !c->mb_var)
    return true;
  affine_bind(t->x, c->slot, affine(t->s->stage[stage].model));
  affine_bind(t->x, c->mb_slot, mb);
  if (c->index)
    affine_bind(t->x, c->index_slot, affine(p->index));
  if (!affine_number(t->x, c->place, &rank))
    return no(t, at, "the rank of its microbatch is not the same in every turn");
  *here = rank == t->rank;
  return true;
}

static const Pipe *pipe_of(const Sched *s, uint32_t stage) {
  uint32_t k = s->npipe - 1;
  while (s->pipe[k].first > stage)
    k--;
  /* rows behind the stages of all pipes: by their microbatches */
  if (s->row_of)
    for (k = 0; k + 1 < s->npipe && s->stage[stage].mb0 >= s->pipe[k + 1].mb0;)
      k++;
  return &s->pipe[k];
}

/* Does the microbatch exist? */
static bool exists(Text *t, const Pipe *p, Affine mb, Span at, bool *yes) {
  Affine n = t->mbs[p - t->s->pipe];
  if (!affine_at_least_0(t->x, at, mb, yes))
    return false;
  return !*yes ||
         affine_at_least_0(t->x, at, affine_sum(affine_sum(n, mb, -1), affine(1), -1), yes);
}

static void drop_wait(Text *t, uint32_t stage, Affine unit) {
  State *st = &t->now;
  for (uint32_t i = 0; i < st->wait.n; i++)
    if (st->wait.at[i].stage == stage && affine_same(st->wait.at[i].unit, unit)) {
      memmove(&st->wait.at[i], &st->wait.at[i + 1], (st->wait.n - i - 1) * sizeof *st->wait.at);
      st->wait.n--;
      return;
    }
}

static int next_of(int kind) { return kind == PIPE_F ? 0 : kind == PIPE_R ? 1 : 2; }

static bool emit(Text *t, const OpRef *o, uint32_t stage, Affine mb, int64_t slice, Affine stamp) {
  Sched *s = t->s;
  int64_t slices = s->slices;
  const Pipe *p = pipe_of(s, stage);
  bool here, there;
  if (slice < 0 || slice >= slices)
    return no(t, o->at, "an op is of no slice");
  bool back = o->op == PIPE_B || o->op == PIPE_I;
  Affine unit = {mb.a * slices + slice, mb.n * slices, mb.j * slices};
  if (o->op != PIPE_W)
    t->now.next[next_of(o->op)][stage] = affine_sum(
        unit, affine((back ? slices - 1 - 2 * slice : 0) + 1), 1);
  if (!exists(t, p, mb, o->at, &there))
    return false;
  if (!there)
    return t->clip || no(t, o->at, "an op is of a microbatch that does not exist");
  if (!placed_here(t, p, stage, mb, o->at, &here) ||
      (!here && !no(t, o->at, "its microbatch is placed on another rank")))
    return false;
  if (o->op == PIPE_I && t->waits)
    *vec_push(s->arena, &t->now.wait) = (Waiting){stage, unit};
  if (o->op == PIPE_W && t->waits)
    drop_wait(t, stage, unit);
  return push(t, o, (uint8_t)o->op, stage, unit, false, stamp);
}

/* What an op without index takes. *none: a W for which there is no I. */
static bool take_next(Text *t, const OpRef *o, uint32_t *stage, Affine *mb, int64_t *slice,
                      bool *none) {
  Sched *s = t->s;
  Affine unit;
  uint32_t held = s->rank_stage0[t->rank + 1] - s->rank_stage0[t->rank];
  bool any = o->op == PIPE_W && !o->chunk && !o->stage && held > 1, here = false;
  *none = false;
  if (!any && !op_stage(&t->ex, o, stage))
    return no(t, o->at, "its stage is not on the rank");
  if (o->op == PIPE_W) {
    uint32_t i = 0;
    while (i < t->now.wait.n && !any && t->now.wait.at[i].stage != *stage)
      i++;
    *none = i == t->now.wait.n;
    if (*none)
      return t->clip || no(t, o->at, "no I waits for it");
    unit = t->now.wait.at[i].unit, *stage = t->now.wait.at[i].stage;
    return affine_divide(t->x, unit, s->slices, mb, slice);
  }
  const Pipe *p = pipe_of(s, *stage);
  for (unit = t->now.next[next_of(o->op)][*stage]; !here; unit.a += !here) {
    bool there;
    if (!affine_divide(t->x, unit, s->slices, mb, slice))
      return false;
    here = true;
    if (s->row_of && (!exists(t, p, *mb, o->at, &there) ||
                      (there && !placed_here(t, p, *stage, *mb, o->at, &here))))
      return false;
  }
  *slice = o->op == PIPE_B || o->op == PIPE_I ? s->slices - 1 - *slice : *slice;
  return true;
}

/* ---- ops ---- */

static bool fixed(Text *t, const Expr *e) {
  int64_t v;
  return !e || affine_number(t->x, e, &v);
}

static bool update(Text *t, const OpRef *o, Affine stamp) {
  Sched *s = t->s;
  uint32_t n = s->rank_stage0[t->rank + 1] - s->rank_stage0[t->rank], one;
  const uint32_t *row = &s->rank_stage[s->rank_stage0[t->rank]];
  const Pipe *only = NULL;
  Affine mb = affine(0);
  bool there = true, here = true;
  if (o->args && !affine_eval(t->x, o->args->value, &mb))
    return false;
  if (o->chunk || o->stage) {
    if (!op_stage(&t->ex, o, &one))
      return no(t, o->at, "its stage is not on the rank");
    row = &one, n = 1;
  } else if ((o->pipe || o->args) && !op_pipe(&t->ex, o, &only)) {
    return no(t, o->at, "it is of no pipe");
  }
  for (uint32_t i = 0; i < n; i++) {
    const Pipe *p = pipe_of(s, row[i]);
    if (only && p != only)
      continue;
    if (o->args && (!exists(t, p, mb, o->at, &there) ||
                    (there && !placed_here(t, p, row[i], mb, o->at, &here))))
      return false;
    if (!there && t->clip)
      continue;
    if (!there || !here)
      return no(t, o->at, "an update is of a microbatch that is not here");
    Affine unit = {mb.a * s->slices, mb.n * s->slices, mb.j * s->slices};
    if (!push(t, o, PIPE_U, row[i], unit, !o->args, stamp))
      return false;
  }
  return true;
}

static bool run_ref(Text *t, const OpRef *o, Affine stamp) {
  uint32_t stage;
  Affine mb = affine(0), few[8];
  int64_t slice = 0;
  bool none = false;
  for (; o->op < 0; o = o->def->op) {
    uint32_t n = 0;
    for (const Arg *a = o->args; a; a = a->next)
      if (n == 8 || !affine_eval(t->x, a->value, &few[n++]))
        return no(t, o->at, "it has too many arguments");
    n = 0;
    for (const Param *p = o->def->params; p; p = p->next)
      affine_bind(t->x, p->slot, few[n++]);
  }
  t->ex.use = o;
  if (!fixed(t, o->chunk) || !fixed(t, o->stage) || !fixed(t, o->pipe_index))
    return false;
  if (o->op == PIPE_U)
    return update(t, o, stamp);
  if (o->op != PIPE_F && o->op != PIPE_B && o->op != PIPE_I && o->op != PIPE_W && o->op != PIPE_R)
    return no(t, o->at, "it copies stashes, or sums gradients");
  if (!o->args)
    return take_next(t, o, &stage, &mb, &slice, &none) &&
           (none || emit(t, o, stage, mb, slice, stamp));
  if (!op_stage(&t->ex, o, &stage))
    return no(t, o->at, "its stage is not on the rank");
  if (!affine_eval(t->x, o->args->value, &mb) ||
      (o->args->next && !affine_number(t->x, o->args->next->value, &slice)))
    return false;
  return emit(t, o, stage, mb, slice, stamp);
}

/* The rows from `first` on are an action: what the recompute clause puts before it. */
static bool recompute_before(Text *t, uint32_t first) {
  const Clause *c = t->again;
  Sched *s = t->s;
  RankList *l = t->out;
  for (uint32_t i = first, n = l->row.n; c && i < n; i++) {
    ListRow of = l->row.at[i];
    Affine mb;
    int64_t slice;
    bool yes = true;
    if (of.kind == PIPE_R)
      return no(t, of.at, "what is recomputed is said in two ways");
    if (of.kind != PIPE_B && of.kind != PIPE_I)
      continue;
    if (!affine_divide(t->x, of.unit, s->slices, &mb, &slice))
      return false;
    if (slice + 1 != s->slices)
      continue;
    if (c->var)
      affine_bind(t->x, c->slot, affine(s->stage[of.stage].model));
    if (c->mb_var)
      affine_bind(t->x, c->mb_slot, mb);
    if (c->when) {
      Affine v;
      bool low, high = true;
      if (!affine_eval(t->x, c->when, &v) || !affine_at_least_0(t->x, c->when->at, v, &low) ||
          (low && !affine_at_least_0(t->x, c->when->at, affine_sum(v, affine(1), -1), &high)))
        return false;
      yes = !low || high;
    }
    for (int64_t k = 0; yes && k < s->slices; k++) {
      ListRow again = {.kind = PIPE_R, .stage = of.stage, .at = c->at};
      again.unit = affine_sum(of.unit, affine(k - slice), 1);
      vec_push(s->arena, &l->row);
      memmove(&l->row.at[first + 1], &l->row.at[first], (l->row.n - 1 - first) * sizeof *l->row.at);
      l->row.at[first++] = again;
      i++, n++;
    }
  }
  return true;
}

static void join(Text *t, uint32_t first) {
  for (uint32_t i = first; i < t->out->row.n; i++)
    t->out->row.at[i].group = (uint16_t)(t->out->row.n - 1 - i);
}

static bool run_one(Text *t, const Stmt *b) {
  uint32_t first = t->out->row.n;
  Affine stamp = t->joint_stamp;
  if (t->clock && !t->joint) {
    if (!b->value)
      return no(t, b->at, "an op in a clock has no time stamp of its own");
    if (!affine_eval(t->x, b->value, &stamp))
      return false;
  }
  return run_ref(t, b->op, stamp) && (t->joint || t->clock || recompute_before(t, first));
}

/* ---- loops ---- */

typedef bool Body(Text *t, const Stmt *b);
typedef struct Loop {
  const Stmt *b;
  Body *body;
  Affine lo;
  int64_t step, turn; /* turn: so many of its turns are one that repeats */
} Loop;

/* Turn `at` of a loop, a function of n and j. */
static bool run_turn(Text *t, const Loop *k, Affine at) {
  if (++t->steps > 64 * (uint64_t)MOST_ROWS)
    return no(t, k->b->at, "its loops run too often");
  Affine i = affine_sum(k->lo, at, k->step);
  if (k->b->name)
    affine_bind(t->x, k->b->slot, i);
  if (k->b->kind == ST_CLOCK && k->b->value) {
    int64_t period;
    if (!affine_number(t->x, k->b->value, &period))
      return false;
    t->base = (Affine){i.a * period, i.n * period, i.j * period};
  }
  return k->body(t, k->b);
}

static bool run_turns(Text *t, const Loop *k, Affine from, int64_t n) {
  for (int64_t i = 0; i < n; i++, from.a++)
    if (!run_turn(t, k, from))
      return false;
  return true;
}

static bool cut(Text *t, Affine at) {
  t->split = at;
  return affine_fail(t->x, AFFINE_CROSS, 0);
}

/* All segments must move on by as much in a turn. */
static bool same_pace(Text *t, Span at, uint32_t first) {
  int64_t *pace = &t->l->pace, own = 0;
  for (uint32_t i = first; i < t->out->row.n; i++) {
    const ListRow *o = &t->out->row.at[i];
    int64_t by = o->unit.j < 0 ? -o->unit.j : o->unit.j;
    if (o->whole)
      continue;
    if (by == 0 || (own && by != own))
      return no(t, at, "its ops do not move on at one pace");
    own = by;
  }
  if (own == 0 || own == *pace)
    return true;
  int64_t all = *pace ? *pace / quasi_gcd(*pace, own) * own : own;
  if (all == *pace || *pace == 0)
    return *pace ? affine_fail(t->x, AFFINE_TURN, all / own) : (*pace = all, true);
  *pace = all; /* and once more */
  return affine_fail(t->x, AFFINE_STEP, 1);
}

/* Turns from .. from + len - 1, len growing with n, in which nothing changes. */
static bool run_stretch(Text *t, const Loop *k, Affine from, Affine len) {
  AffineEnv *x = t->x;
  Sched *s = t->s;
  if (len.n % k->turn != 0)
    return affine_fail(x, AFFINE_STEP, k->turn / quasi_gcd(len.n, k->turn));
  int64_t turns = len.a / k->turn, by_n = len.n / k->turn;
  if (len.a < 0 || turns < LEAST_TURNS)
    return affine_fail(x, AFFINE_BASE, 0);
  State before = save(t), after;
  uint32_t nrow = t->out->row.n, nsegment = t->out->segment.n, straight = t->straight,
           nstamp = t->stamp.n;
  if (!run_turns(t, k, from, k->turn)) /* what a turn does to the state */
    return false;
  after = t->now;
  if (t->out->segment.n != nsegment)
    return no(t, k->b->at, "a loop in it grows with M, too");
  t->now = save(&(Text){.s = s, .now = before});
  t->out->row.n = nrow, t->straight = straight, t->stamp.n = nstamp;
  Affine *a, *b;
  if (!alike(&before, &after))
    return cut(t, affine_sum(from, affine(k->turn), 1));
  for (uint32_t i = 0; (a = part_of(t, &before, i)); i++) {
    b = part_of(t, &after, i);
    if (a->n != b->n)
      return cut(t, affine_sum(from, affine(k->turn), 1));
    part_of(t, &t->now, i)->j = b->a - a->a;
  }
  end_straight(t);
  x->turns = turns, x->by_n = by_n;
  bool ok = true;
  for (int64_t i = 0; i < k->turn && ok; i++) {
    ok = run_turn(t, k, (Affine){from.a + i, from.n, k->turn});
    if (!ok && x->fail == AFFINE_CROSS)
      t->split = affine_sum((Affine){from.a + i, from.n, 0}, x->cross, k->turn);
  }
  x->turns = x->by_n = 0;
  if (!ok || !same_pace(t, k->b->at, nrow))
    return false;
  if (!alike(&before, &t->now))
    return no(t, k->b->at, "what its ops without index take does not repeat");
  for (uint32_t i = 0; (a = part_of(t, &before, i)); i++) {
    int64_t by = part_of(t, &after, i)->a - a->a;
    b = part_of(t, &t->now, i);
    if (b->a != a->a + by || b->n != a->n || b->j != by)
      return cut(t, affine_sum(from, affine(k->turn), 1));
    *b = (Affine){a->a + by * turns, a->n + by * by_n, 0};
  }
  if (t->out->row.n > nrow)
    *vec_push(s->arena, &t->out->segment) = (ListSegment){
        .row0 = nrow, .nrow = t->out->row.n - nrow, .turns = turns, .by_n = by_n};
  t->straight = t->out->row.n;
  from = affine_sum(from, (Affine){turns, by_n, 0}, k->turn);
  return run_turns(t, k, from, len.a % k->turn);
}

/* A loop of so many turns. */
static bool run_loop(Text *t, Loop k, Affine count) {
  AffineEnv *x = t->x;
  Sched *s = t->s;
  if (affine_fixed(count))
    return run_turns(t, &k, affine(0), count.a);
  if (x->by_n)
    return no(t, k.b->at, "a loop in it grows with M, too");
  if (count.n < 0)
    return no(t, k.b->at, "it is shorter the more microbatches there are");
  Affine end[MOST_CUTS + 1] = {count};
  uint32_t n = 1, nrow = t->out->row.n, nsegment = t->out->segment.n, straight = t->straight,
           nstamp = t->stamp.n;
  State before = save(t);
  for (;;) {
    Affine from = affine(0);
    bool ok = true;
    for (uint32_t i = 0; i < n && ok; i++) {
      Affine len = affine_sum(end[i], from, -1);
      ok = len.n ? run_stretch(t, &k, from, len) : run_turns(t, &k, from, len.a);
      from = end[i];
    }
    if (ok)
      return true;
    if (x->fail == AFFINE_TURN && k.turn * x->need <= MOST_TURN) {
      k.turn *= x->need;
    } else if (x->fail == AFFINE_CROSS && n <= MOST_CUTS) {
      uint32_t i = 0, j;
      bool behind = true;
      x->fail = AFFINE_OK;
      for (; i < n && behind; i += behind)
        if (!affine_at_least_0(x, k.b->at, affine_sum(t->split, end[i], -1), &behind))
          return false;
      if (i == n || (i > 0 && affine_same(t->split, end[i - 1])))
        return no(t, k.b->at, "it cannot be cut into parts that repeat");
      for (j = n++; j > i; j--)
        end[j] = end[j - 1];
      end[i] = t->split;
      if (!affine_at_least_0(x, k.b->at, t->split, &behind) || !behind)
        return no(t, k.b->at, "it cannot be cut into parts that repeat");
    } else {
      return x->fail == AFFINE_CROSS || x->fail == AFFINE_TURN
                 ? (x->fail = AFFINE_OK, no(t, k.b->at, "it has too many parts that repeat"))
                 : false;
    }
    x->fail = AFFINE_OK;
    t->out->row.n = nrow, t->out->segment.n = nsegment, t->straight = straight;
    t->stamp.n = nstamp;
    t->now = save(&(Text){.s = s, .now = before});
  }
}

static bool run_list(Text *t, const Stmt *b);
static bool run_body(Text *t, const Stmt *b) { return run_list(t, b->body); }

/* lo .. hi step `step`: how many. */
static bool turns_of(Text *t, const Range *r, Affine *lo, int64_t *step, Affine *count) {
  Affine hi;
  int64_t rest;
  bool some;
  *step = 1;
  if (!affine_eval(t->x, r->lo, lo) || !affine_eval(t->x, r->hi, &hi) ||
      (r->step && !affine_number(t->x, r->step, step)))
    return false;
  if (*step == 0)
    return no(t, r->step->at, "a step of 0");
  int64_t by = *step > 0 ? *step : -*step;
  Affine span = *step > 0 ? affine_sum(hi, *lo, -1) : affine_sum(*lo, hi, -1);
  if (!affine_at_least_0(t->x, r->hi->at, span, &some))
    return false;
  *count = affine(0);
  return !some || affine_divide(t->x, affine_sum(span, affine(by - 1), 1), by, count, &rest);
}

static bool run_do(Text *t, const Stmt *b) {
  Loop k = {b, run_body, affine(0), 1, 1};
  Affine count;
  bool some;
  if (b->range.lo)
    return turns_of(t, &b->range, &k.lo, &k.step, &count) && run_loop(t, k, count);
  if (!affine_eval(t->x, b->cond, &count) || !affine_at_least_0(t->x, b->cond->at, count, &some))
    return false;
  return !some || run_loop(t, k, count);
}

/* ---- kernels ---- */

/* The range of the index of an op in it. */
static bool item_range(Text *t, const Stmt *k, const OpRef *o, Affine *lo, Affine *hi) {
  const Pipe *p;
  if (k->range.lo)
    return affine_eval(t->x, k->range.lo, lo) && affine_eval(t->x, k->range.hi, hi);
  while (o->op < 0)
    o = o->def->op;
  t->ex.use = o;
  if (!fixed(t, o->pipe_index) || !op_pipe(&t->ex, o, &p))
    return no(t, o->at, "it is of no pipe");
  *lo = affine(0), *hi = t->mbs[p - t->s->pipe];
  return true;
}

static const Expr *index_of(const OpRef *o) {
  const Expr *e = NULL;
  for (const Arg *a = o->args; a; a = a->next)
    e = a->value->depends ? a->value : e;
  return e;
}

/* From where to where it runs: with its variable 0. */
static bool kernel_ends(Text *t, const Stmt *b, const Stmt *k, bool *any, Affine *from,
                        Affine *to) {
  AffineEnv *x = t->x;
  for (; b; b = b->next) {
    Affine v, lo, hi;
    int64_t c = 1;
    bool more;
    if (b->kind == ST_IF) {
      bool both = b->cond->depends;
      if ((!both && !affine_number(x, b->cond, &c)) ||
          ((both || c) && !kernel_ends(t, b->body, k, any, from, to)) ||
          ((both || !c) && !kernel_ends(t, b->orelse, k, any, from, to)))
        return false;
    } else if (b->kind == ST_OVERLAP) {
      if (!kernel_ends(t, b->body, k, any, from, to))
        return false;
    } else if (b->kind == ST_LET) {
      if (!b->value->depends) {
        if (!affine_eval(x, b->value, &v))
          return false;
        affine_bind(x, b->slot, v);
      }
    } else if (b->kind == ST_OP) {
      const Expr *index = index_of(b->op);
      if (!index || !affine_eval(x, index, &v) || !item_range(t, k, b->op, &lo, &hi))
        return no(t, b->at, "it has no index");
      lo = affine_sum(lo, v, -1), hi = affine_sum(hi, v, -1);
      if (*any && !affine_at_least_0(x, b->at, affine_sum(lo, *from, -1), &more))
        return false;
      *from = *any && more ? *from : lo;
      if (*any && !affine_at_least_0(x, b->at, affine_sum(*to, hi, -1), &more))
        return false;
      *to = *any && more ? *to : hi;
      *any = true;
    } else if (b->kind != ST_OPDEF && b->kind != ST_FN) {
      return no(t, b->at, "it is not an op, an action or a choice");
    }
  }
  return true;
}

static bool kernel_turn(Text *t, const Stmt *k, const Stmt *b) {
  AffineEnv *x = t->x;
  for (; b; b = b->next) {
    Affine v, lo, hi;
    bool yes, high = true;
    uint32_t first = t->out->row.n;
    switch (b->kind) {
    case ST_OP:
      if (!affine_eval(x, index_of(b->op), &v) || !item_range(t, k, b->op, &lo, &hi) ||
          !affine_at_least_0(x, b->at, affine_sum(v, lo, -1), &yes) ||
          (yes &&
           !affine_at_least_0(x, b->at, affine_sum(affine_sum(hi, v, -1), affine(1), -1), &yes)))
        return false;
      if (yes && !run_one(t, b))
        return false;
      break;
    case ST_LET:
      if (!affine_eval(x, b->value, &v))
        return false;
      affine_bind(x, b->slot, v);
      break;
    case ST_IF:
      if (!affine_eval(x, b->cond, &v) || !affine_at_least_0(x, b->cond->at, v, &yes) ||
          (yes && !affine_at_least_0(x, b->cond->at, affine_sum(v, affine(1), -1), &high)) ||
          !kernel_turn(t, k, !yes || high ? b->body : b->orelse))
        return false;
      break;
    case ST_OVERLAP:
      t->joint = b;
      yes = kernel_turn(t, k, b->body);
      t->joint = NULL;
      if (!yes)
        return false;
      join(t, first);
      if (!recompute_before(t, first))
        return false;
      break;
    case ST_OPDEF:
    case ST_FN: break;
    default: return no(t, b->at, "it is not an op, an action or a choice");
    }
  }
  return true;
}

static bool kernel_body(Text *t, const Stmt *b) { return kernel_turn(t, b, b->body); }

static bool run_kernel_of_m(Text *t, const Stmt *b) {
  Affine from = affine(0), to = affine(0);
  bool any = false, some;
  affine_bind(t->x, b->slot, affine(0));
  if (t->clock)
    return no(t, b->at, "a kernel stands in a clock");
  if (b->range.lo) { /* an empty range runs nothing, whatever the lags */
    Affine lo, hi;
    if (!affine_eval(t->x, b->range.lo, &lo) || !affine_eval(t->x, b->range.hi, &hi) ||
        !affine_at_least_0(t->x, b->at, affine_sum(affine_sum(hi, lo, -1), affine(1), -1), &some))
      return false;
    if (!some)
      return true;
  }
  if (!kernel_ends(t, b->body, b, &any, &from, &to))
    return false;
  Affine count = affine_sum(to, from, -1);
  if (!any || !affine_at_least_0(t->x, b->at, count, &some))
    return !any;
  return !some || run_loop(t, (Loop){b, kernel_body, from, 1, 1}, count);
}

/* ---- clocks ---- */

typedef struct Stamped { /* rows of an action, or of a U */
  uint32_t row, nrow;
  int64_t window, rest; /* its stamp by the period of the segment: quotient and remainder */
  int64_t turn;         /* of the loop */
  int end; /* 0: counted from the beginning, 1: from the end, 2: of the loop, in its turn 0 */
} Stamped;

static int by_window(const void *va, const void *vb) {
  const Stamped *a = va, *b = vb;
  if (a->window != b->window)
    return a->window < b->window ? -1 : 1;
  return a->rest < b->rest ? -1 : a->rest > b->rest;
}

/* Rows of one U, or one action, share a stamp. */
static bool one_action(const ListRow *a, const ListRow *b) {
  return (a->kind == PIPE_U && b->kind == PIPE_U && a->at.beg == b->at.beg) ||
         a->group == b->group + 1;
}

/* Appends entries in the order of their stamps. Those of the loop in turn `turn` + by_n * n; moves: and so many
 * turns further in each turn of the new one. */
static bool put_entries(Text *t, const Stmt *b, const ListRow *row, Stamped *e, uint32_t n,
                        int64_t by_n, bool moves) {
  if (n)
    qsort(e, n, sizeof *e, by_window);
  for (uint32_t i = 0; i < n; i++) {
    if (i > 0 && by_window(&e[i - 1], &e[i]) == 0)
      return no(t, b->at, "two ops are on one tick");
    for (uint32_t k = 0; k < e[i].nrow; k++) {
      ListRow r = row[e[i].row + k];
      if (e[i].end == 2) {
        r.unit.a += r.unit.j * e[i].turn, r.unit.n += r.unit.j * by_n;
        r.unit.j = moves ? r.unit.j : 0;
      }
      *vec_push(t->s->arena, &t->out->row) = r;
    }
  }
  return true;
}

/* Sorts the rows from row0 on, whose stamps are stamp[], by them: head, one loop, tail, as they came; or all
 * straight. */
static bool sort_clock(Text *t, const Stmt *b, uint32_t row0, uint32_t segment0) {
  Sched *s = t->s;
  RankList *l = t->out;
  uint32_t n = l->row.n - row0, loop0 = 0, loop1 = 0;
  ListSegment loop = {0};
  for (uint32_t i = segment0; i < l->segment.n; i++)
    if (l->segment.at[i].by_n) {
      if (loop.by_n)
        return no(t, b->at, "a clock has two parts that repeat");
      loop = l->segment.at[i];
      loop0 = loop.row0 - row0, loop1 = loop0 + loop.nrow;
    }
  ListRow *row = arena_alloc(s->arena, n * sizeof *row + 1);
  memcpy(row, &l->row.at[row0], n * sizeof *row);
  Stamped *e = NEW_ARRAY(s->arena, Stamped, n);
  int64_t period = 1;
  if (loop.by_n)
    period = t->stamp.at[loop0].j;
  if (period <= 0)
    return no(t, b->at, "the stamps of a clock do not ascend from turn to turn");
  uint32_t ne = 0;
  for (uint32_t i = 0; i < n; ne++) {
    Affine v = t->stamp.at[i];
    bool in_loop = i >= loop0 && i < loop1;
    Stamped *to = &e[ne];
    to->row = i;
    to->end = in_loop ? 2 : loop.by_n && i >= loop1 ? 1 : 0;
    if (loop.by_n &&
        (v.j != (in_loop ? period : 0) || v.n != (to->end == 1 ? period * loop.by_n : 0)))
      return no(t, b->at, "the stamps of a clock do not ascend at one pace");
    if (!loop.by_n && (v.n != t->stamp.at[0].n || v.j != t->stamp.at[0].j))
      return no(t, b->at, "the stamps of a clock do not ascend at one pace");
    to->rest = v.a % period + (v.a % period < 0 ? period : 0);
    to->window = (v.a - to->rest) / period;
    do
      i++, to->nrow++;
    while (i < n && i != loop0 && i != loop1 && one_action(&row[i - 1], &row[i]) &&
           affine_same(t->stamp.at[i], v));
  }
  l->row.n = row0, l->segment.n = segment0, t->straight = row0;
  if (!loop.by_n)
    return put_entries(t, b, row, e, ne, 0, false);
  /* Windows first .. last have the ops of the loop, all of them and no others; last moves with n. */
  int64_t first = INT64_MIN, last = INT64_MAX;
  for (uint32_t i = 0; i < ne; i++) {
    int64_t w = e[i].window;
    if (e[i].end == 2) {
      first = w > first ? w : first;
      last = w + loop.turns - 1 < last ? w + loop.turns - 1 : last;
    } else if (e[i].end == 0) {
      first = w + 1 > first ? w + 1 : first;
    } else {
      last = w - 1 < last ? w - 1 : last;
    }
  }
  if (last - first + 1 < LEAST_TURNS)
    return affine_fail(t->x, AFFINE_BASE, 0);
  for (int part = 0; part < 3; part++) { /* head, loop, tail */
    VEC(Stamped) some = {0};
    for (uint32_t i = 0; i < ne; i++) {
      Stamped one = e[i];
      int64_t j = part == 0   ? 0
                  : part == 1 ? first - e[i].window
                              : last + 1 - e[i].window,
              to = part == 0   ? first - e[i].window
                   : part == 1 ? j + 1
                               : loop.turns;
      if (one.end != 2) {
        if (one.end * 2 == part)
          *vec_push(s->arena, &some) = one;
        continue;
      }
      for (; j < to; j++) {
        one.turn = j, one.window = part == 1 ? 0 : e[i].window + j;
        *vec_push(s->arena, &some) = one;
      }
    }
    uint32_t at = l->row.n;
    if (!put_entries(t, b, row, some.at, some.n, part == 2 ? loop.by_n : 0, part == 1))
      return false;
    if (part == 1)
      *vec_push(s->arena, &l->segment) = (ListSegment){
          .row0 = at, .nrow = l->row.n - at, .turns = last - first + 1, .by_n = loop.by_n};
    else
      end_straight(t);
    t->straight = l->row.n;
  }
  return true;
}

/* Rows of a clock, once they are in order: with what is recomputed before each action of them. */
static bool recompute_rows(Text *t, const ListRow *row, uint32_t n) {
  for (uint32_t i = 0; i < n;) {
    uint32_t first = t->out->row.n, end = i + 1 + row[i].group;
    for (; i < end; i++)
      *vec_push(t->s->arena, &t->out->row) = row[i];
    if (!recompute_before(t, first))
      return false;
  }
  return true;
}

static bool recompute_clock(Text *t, uint32_t row0, uint32_t segment0) {
  RankList *l = t->out;
  uint32_t n = l->row.n - row0, done = row0;
  ListRow *row = arena_alloc(t->s->arena, n * sizeof *row + 1);
  memcpy(row, &l->row.at[row0], n * sizeof *row);
  l->row.n = row0;
  for (uint32_t i = segment0; i < l->segment.n; i++) {
    ListSegment *g = &l->segment.at[i];
    uint32_t first = l->row.n;
    if (g->by_n)
      t->x->turns = g->turns, t->x->by_n = g->by_n;
    bool ok = recompute_rows(t, row + (g->row0 - row0), g->nrow);
    if (g->by_n)
      t->x->turns = t->x->by_n = 0;
    if (!ok && t->x->fail == AFFINE_TURN) /* all segments must be so much longer */
      t->l->pace *= t->x->need, t->x->fail = AFFINE_STEP, t->x->need = 1;
    if (!ok && t->x->fail == AFFINE_CROSS)
      t->x->fail = AFFINE_OK, no(t, t->again->at, "it changes within a clock");
    if (!ok)
      return false;
    done = g->row0 + g->nrow;
    g->row0 = first, g->nrow = l->row.n - first;
  }
  t->straight = l->segment.n > segment0 ? l->row.n : t->straight;
  return recompute_rows(t, row + (done - row0), n - (done - row0));
}

static bool run_clock_of_m(Text *t, const Stmt *b) {
  Loop k = {b, run_body, affine(0), 1, 1};
  Affine count = t->mbs[0];
  if (t->clock)
    return no(t, b->at, "a clock stands in a clock");
  if (b->range.lo && !turns_of(t, &b->range, &k.lo, &k.step, &count))
    return false;
  if (!t->x->by_n)
    end_straight(t);
  uint32_t row0 = t->out->row.n, segment0 = t->out->segment.n, straight = t->straight;
  t->clock = b, t->stamp.n = 0, t->base = affine(0);
  bool ok = run_loop(t, k, count);
  t->clock = NULL;
  if (!ok)
    return false;
  if (!sort_clock(t, b, row0, segment0) || (t->again && !recompute_clock(t, row0, segment0)))
    return false;
  if (t->x->by_n)
    t->straight = straight;
  return true;
}

/* ---- statements ---- */

static bool run_stmt(Text *t, const Stmt *b) {
  AffineEnv *x = t->x;
  Affine v;
  bool yes, high = true, ok;
  switch (b->kind) {
  case ST_OP: return run_one(t, b);
  case ST_KERNEL: return run_kernel_of_m(t, b);
  case ST_CLOCK: return run_clock_of_m(t, b);
  case ST_DO: return run_do(t, b);
  case ST_IF:
    return affine_eval(x, b->cond, &v) && affine_at_least_0(x, b->cond->at, v, &yes) &&
           (!yes || affine_at_least_0(x, b->cond->at, affine_sum(v, affine(1), -1), &high)) &&
           run_list(t, !yes || high ? b->body : b->orelse);
  case ST_LET:
    if (!affine_eval(x, b->value, &v))
      return false;
    affine_bind(x, b->slot, v);
    return true;
  case ST_PHASE: return run_list(t, b->body);
  case ST_CLIP: {
    bool outer = t->clip;
    t->clip = true;
    ok = run_list(t, b->body);
    t->clip = outer;
    return ok;
  }
  case ST_OVERLAP: {
    uint32_t first = t->out->row.n;
    if (t->clock && !affine_eval(x, b->value, &t->joint_stamp))
      return false;
    t->joint = b;
    ok = run_list(t, b->body);
    t->joint = NULL;
    if (!ok)
      return false;
    join(t, first);
    return t->clock || recompute_before(t, first);
  }
  case ST_OPDEF:
  case ST_FN: return true;
  case ST_RULES: return no(t, b->at, "its order is that of a simulation (rules)");
  case ST_USE: return no(t, b->at, "it runs the order of another schedule");
  default: return no(t, b->at, "its transfers are written by hand");
  }
}

static bool run_list(Text *t, const Stmt *b) {
  for (; b; b = b->next)
    if (!run_stmt(t, b))
      return false;
  return true;
}

/* Is there a W without index? */
static bool bare_w(const Stmt *b) {
  for (; b; b = b->next) {
    const OpRef *o = b->kind == ST_OP ? b->op : NULL;
    while (o && o->op < 0)
      o = o->def->op;
    if ((o && o->op == PIPE_W && !o->args) || bare_w(b->body) || bare_w(b->orelse))
      return true;
  }
  return false;
}

/* ---- what the schedule says beside its orders ---- */

static bool bind_clauses(AffineEnv *x, const Schedule *sc, const Schedule *from) {
  Affine v;
  if (sc->base) {
    const Arg *positional = sc->base_args;
    for (const Param *p = sc->base_def->params; p; p = p->next) {
      const Arg *a = sc->base_args;
      while (a && a->key != p->name)
        a = a->next;
      if (positional && !positional->key)
        a = positional, positional = positional->next;
      const Expr *e = a ? a->value : NULL;
      bool own = false;
      for (const Param *q = sc->params; q && !e; q = q->next)
        if (q->name == p->name)
          affine_bind(x, p->slot, x->value[q->slot]), own = true;
      e = e || own ? e : p->init;
      if (e) {
        if (!affine_eval(x, e, &v))
          return false;
        affine_bind(x, p->slot, v);
      }
    }
    if (!bind_clauses(x, sc->base_def, from))
      return false;
  }
  for (const Clause *c = sc->clauses; c; c = c->next)
    if (c->kind == CL_LET) {
      if (!affine_eval(x, c->value, &v))
        return false;
      affine_bind(x, c->slot, v);
    }
  return true;
}

bool bind_of_m(AffineEnv *x, uint32_t slot, int64_t from, int64_t step) {
  Sched *s = x->s;
  x->value = NEW_ARRAY(s->arena, Affine, s->nslot + (size_t)1);
  for (uint32_t i = 0; i < s->nslot; i++)
    x->value[i] = affine(s->env[i]);
  for (const Param *p = s->def->params; p; p = p->next) {
    Affine v = affine(s->env[p->slot]);
    bool given = false;
    for (uint32_t i = 0; i < s->opt->ndefine; i++)
      given |= strcmp(s->opt->define[i].name, p->name) == 0;
    if (p->slot == slot)
      v = (Affine){from, step, 0};
    else if (!given && p->init && !affine_eval(x, p->init, &v))
      return false;
    affine_bind(x, p->slot, v);
  }
  return bind_clauses(x, s->def, s->def);
}

bool admits_of_m(AffineEnv *x, bool *yes) {
  *yes = true;
  for (const Schedule *sc = x->s->def; sc && *yes; sc = sc->base_def)
    for (const Require *r = sc->requires; r && *yes; r = r->next) {
      Affine v;
      bool low, high = true;
      if (!affine_eval(x, r->cond, &v) || !affine_at_least_0(x, r->cond->at, v, &low) ||
          (low && !affine_at_least_0(x, r->cond->at, affine_sum(v, affine(1), -1), &high)))
        return false;
      *yes = !low || high;
    }
  return true;
}

/* Stages, places and edges are the same for all n. */
static bool same_model(AffineEnv *x) {
  Sched *s = x->s;
  int64_t v;
  for (uint32_t k = 0; k < s->npipe; k++) {
    const Pipe *p = &s->pipe[k];
    const Clause *c = p->clause;
    if (c->index)
      affine_bind(x, c->index_slot, affine(p->index));
    if (!affine_number(x, c->value, &v) || (c->slices && !affine_number(x, c->slices, &v)))
      return false;
    for (uint32_t st = 0; st < p->nstage && !c->mb_var; st++) {
      affine_bind(x, c->slot, affine(st));
      if (!affine_number(x, c->place, &v))
        return false;
    }
  }
  for (uint32_t i = 0; i < s->noffload; i++) {
    const Clause *c = s->offload[i];
    for (uint32_t st = 0; st < s->nmodel; st++) {
      if (c->var)
        affine_bind(x, c->slot, affine(st));
      if ((c->place && !affine_number(x, c->place, &v)) ||
          (c->lead && !affine_number(x, c->lead, &v)))
        return false;
    }
  }
  for (const Schedule *sc = s->def; sc; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c; c = c->next) {
      if (c->kind == CL_RANKS && !affine_number(x, c->value, &v))
        return false;
      for (const Arg *a = c->kind == CL_TIE ? c->args : NULL; a; a = a->next)
        if (!affine_number(x, a->value, &v))
          return false;
      if (c->kind != CL_EDGE)
        continue;
      int64_t lo = 0, hi = 1, step = 1;
      if (c->var && (!affine_number(x, c->range.lo, &lo) || !affine_number(x, c->range.hi, &hi) ||
                     (c->range.step && !affine_number(x, c->range.step, &step))))
        return false;
      for (int64_t i = lo; step > 0 ? i < hi : i > hi; i += step) {
        if (c->var)
          affine_bind(x, c->slot, affine(i));
        if (!affine_number(x, c->value, &v) || !affine_number(x, c->to, &v))
          return false;
      }
    }
  return true;
}

bool lists_of_m(Sched *s, AffineEnv *x, ListsOfM *l) {
  if (!same_model(x))
    return false;
  l->nrank = s->nrank;
  l->rank = NEW_ARRAY(s->arena, RankList, s->nrank);
  l->units = NEW_ARRAY(s->arena, Affine, s->npipe);
  Affine *mbs = NEW_ARRAY(s->arena, Affine, s->npipe);
  for (uint32_t k = 0; k < s->npipe; k++) {
    const Clause *c = s->pipe[k].clause;
    if (c->index)
      affine_bind(x, c->index_slot, affine(s->pipe[k].index));
    if (!affine_eval(x, c->mbs, &mbs[k]))
      return false;
    l->units[k] = affine_sum(affine(0), mbs[k], s->slices);
  }
  Text t = {.x = x, .s = s, .l = l, .mbs = mbs, .ex = {.s = s}};
  for (const Schedule *sc = s->def; sc && !t.again; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c; c = c->next)
      if (c->kind == CL_RECOMPUTE)
        t.again = c;
  for (int i = 0; i < 3; i++)
    t.now.next[i] = NEW_ARRAY(s->arena, Affine, s->nstage);
  for (uint32_t r = 0; r < s->nrank; r++) {
    t.out = &l->rank[r];
    t.rank = t.ex.rank = r;
    t.straight = 0, t.clip = false, t.now.wait.n = 0;
    t.waits = bare_w(s->order_clause[r]->body);
    affine_bind(x, s->order_clause[r]->slot, affine(r));
    if (!run_list(&t, s->order_clause[r]->body))
      return false;
    end_straight(&t);
  }
  return true;
}
