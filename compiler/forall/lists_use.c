/* SPDX-License-Identifier: MIT
 * `use` in an order that is run once for all M (lists_of_m.c, note [lists]): the text of the order that it names runs in
 * its place, as use.c has it. Its parameters are functions of n and of the turn at hand like all values. That its ranks,
 * stages, slices and places are those of this schedule has been checked at n = 0, and must not depend on n or the turn.
 * What ops without index take is counted in each schedule by itself (State.next). Not read in this way: places by
 * microbatch. */
#include <string.h>

#include "lists_text.h"

static bool number(Text *t, const Expr *e) {
  int64_t v;
  return !e || affine_number(t->x, e, &v);
}

/* ---- microbatches ---- */

static bool between(Text *t, Span at, Affine v, Affine lo, Affine hi, bool *yes) {
  if (!affine_at_least_0(t->x, at, affine_sum(v, lo, -1), yes))
    return false;
  return !*yes ||
         affine_at_least_0(t->x, at, affine_sum(affine_sum(hi, v, -1), affine(1), -1), yes);
}

/* Is it one of those that the `use` keeps? */
static bool kept(Text *t, const TextUse *u, Span at, Affine mb, bool *yes) {
  Affine turn;
  int64_t rest, by = u->step < 0 ? -u->step : u->step;
  *yes = true;
  if (u->step == 0)
    return true;
  Affine end = affine_sum(u->hi, affine(1), 1); /* down to it, without it */
  if (!(u->step > 0 ? between(t, at, mb, u->lo, u->hi, yes)
                    : between(t, at, mb, end, affine_sum(u->lo, affine(1), 1), yes)))
    return false;
  if (*yes && by > 1) {
    if (!affine_divide(t->x, affine_sum(mb, u->lo, -1), by, &turn, &rest))
      return false;
    *yes = rest == 0;
  }
  return true;
}

bool text_use_mb(Text *t, uint32_t pipe, Span at, Affine *mb, bool *there) {
  bool clip = t->ex.clip;
  const Affine *mbs = t->mbs;
  for (const TextUse *u = t->use;; u = u->outer) {
    if (!between(t, at, *mb, affine(0), mbs[pipe], there))
      return false;
    if (!*there)
      return clip || text_no(t, at, "an op is of a microbatch that does not exist");
    if (!u)
      return true;
    if (!kept(t, u, at, *mb, there))
      return false;
    if (!*there)
      return true;
    *mb = affine_sum(*mb, u->shift, 1);
    clip = u->clip;
    mbs = u->outer ? u->outer->mbs : t->all_mbs;
  }
}

void text_use_next(Text *t, uint32_t kind, uint32_t stage, Affine next) {
  int64_t slices = t->s->model->slices;
  for (const TextUse *u = t->use; u; u = u->outer, kind -= 3) {
    Affine outside = u->outer ? u->outer->total : affine(0);
    t->now.next[kind - 3][stage] = affine_sum(next, outside, -slices);
  }
}

/* ---- what is used ---- */

static bool bind(Text *t, const Stmt *b) {
  AffineEnv *x = t->x;
  const Arg *positional = b->args;
  VEC(Affine) value = {0};
  VEC(bool) given = {0};
  uint32_t i = 0;
  for (const Param *p = b->used->params; p; p = p->next) { /* all outside, before any is bound */
    Affine v = affine(0);
    const Arg *a = b->args;
    bool has = false;
    while (a && a->key != p->name)
      a = a->next;
    if (positional && !positional->key)
      a = positional, positional = positional->next;
    if (a && !affine_eval(x, a->value, &v))
      return false;
    has = a != NULL;
    for (const Param *own = b->within->params; own && !a; own = own->next)
      if (own->name == p->name)
        v = x->value[own->slot], has = true;
    *vec_push(t->s->arena, &value) = v;
    *vec_push(t->s->arena, &given) = has;
  }
  for (const Param *p = b->used->params; p; p = p->next, i++) {
    if (!given.at[i] && (!p->init || !affine_eval(x, p->init, &value.at[i])))
      return text_no(t, b->at, "a parameter of what it uses has no value");
    affine_bind(x, p->slot, value.at[i]);
  }
  return text_bind_clauses(x, b->used);
}

/* Of what it expects, that it has a value. */
static bool admitted(Text *t, const Stmt *b) {
  bool yes;
  for (const Schedule *sc = b->used; sc; sc = sc->base_def) {
    for (const Require *r = sc->requires; r; r = r->next)
      if (!affine_truth(t->x, r->cond, &yes) ||
          (!yes && !text_no(t, b->at, "what it uses does not admit its values")))
        return false;
    for (const Require *r = sc->expects; r; r = r->next)
      if (!affine_truth(t->x, r->cond, &yes))
        return false;
  }
  return true;
}

/* As far as the microbatches go, for every n: so it comes to its end, 2^31, no sooner than they do. */
static bool is_near(const Text *t, Affine v) {
  enum { MOST = 1 << 20 };
  int64_t by = 0, last = v.n + v.j * t->x->by_n;
  for (uint32_t k = 0; k < t->s->model->npipe; k++)
    by = t->all_mbs[k].n > by ? t->all_mbs[k].n : by;
  return v.a <= MOST && v.a >= -MOST && v.n <= by && v.n >= -by && last <= by && last >= -by;
}

/* One pipe of what is used. */
static bool use_pipe(Text *t, TextUse *u, const Clause *c, int64_t index, uint32_t k) {
  AffineEnv *x = t->x;
  bool some;
  if (c->index)
    affine_bind(x, c->index_slot, affine(index));
  if (k >= t->s->model->npipe || c->mb_var || t->s->model->row_of)
    return text_no(t, c->at, "what it uses has places by microbatch");
  if (!number(t, c->value) || !number(t, c->slices) ||
      !affine_eval(x, c->mbs, (Affine *)&u->mbs[k]) ||
      !affine_at_least_0(x, c->mbs->at, affine_sum(u->mbs[k], affine(1), -1), &some))
    return false;
  if (!some || !is_near(t, u->mbs[k]))
    return text_no(t, c->mbs->at, some ? "it has too many microbatches" : "it has no microbatch");
  for (uint32_t st = 0; st < t->s->model->pipe[k].nstage; st++) {
    affine_bind(x, c->slot, affine(st));
    if (!number(t, c->place))
      return false;
  }
  u->ex.pipe[k] = c;
  ((int64_t *)u->ex.index)[k] = index;
  return true;
}

/* Those of its bases first. */
static bool use_pipes(Text *t, TextUse *u, const Schedule *sc, uint32_t *k) {
  if (sc->base_def && !use_pipes(t, u, sc->base_def, k))
    return false;
  for (const Clause *c = sc->clauses; c; c = c->next) {
    int64_t lo = 0, hi = 1, step = 1;
    if (c->kind == CL_RANKS && !number(t, c->value))
      return false;
    if (c->kind != CL_PIPE)
      continue;
    if (c->index &&
        (!affine_number(t->x, c->range.lo, &lo) || !affine_number(t->x, c->range.hi, &hi) ||
         (c->range.step && !affine_number(t->x, c->range.step, &step))))
      return false;
    for (int64_t i = lo; step > 0 ? i < hi : i > hi; i += step)
      if (!use_pipe(t, u, c, i, (*k)++))
        return false;
  }
  return true;
}

/* The order that it gives the rank at hand: the last one, of what extends before what is extended. */
static bool find_order(Text *t, const Stmt *b, const Clause **order) {
  int64_t r = t->rank;
  *order = NULL;
  for (const Schedule *sc = b->used; sc && !*order; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c; c = c->next) {
      int64_t lo = 0, hi = t->s->model->nrank, step = 1;
      if (c->kind != CL_ORDER)
        continue;
      if (c->range.lo &&
          (!affine_number(t->x, c->range.lo, &lo) || !affine_number(t->x, c->range.hi, &hi) ||
           (c->range.step && !affine_number(t->x, c->range.step, &step))))
        return false;
      if ((step > 0 ? r >= lo && r < hi : r <= lo && r > hi) && (r - lo) % step == 0)
        *order = c;
    }
  return *order || text_no(t, b->at, "what it uses gives the rank no order");
}

static bool run(Text *t, const Stmt *b, TextUse *u) {
  Sched *s = t->s;
  uint32_t k = 0;
  const Clause *order;
  u->mbs = NEW_ARRAY(s->arena, Affine, s->model->npipe);
  u->ex.pipe = NEW_ARRAY(s->arena, const Clause *, s->model->npipe);
  u->ex.index = NEW_ARRAY(s->arena, int64_t, s->model->npipe);
  u->ex.nmb = NEW_ARRAY(s->arena, uint32_t, s->model->npipe);
  if (!bind(t, b) || !admitted(t, b) || !use_pipes(t, u, b->used, &k) || !find_order(t, b, &order))
    return false;
  const TextUse *use = t->use;
  const Use *ex = t->ex.in_use;
  const Affine *mbs = t->mbs;
  bool clip = t->ex.clip;
  State outside = text_save(s, &t->now);
  for (uint32_t i = 3 * u->level; i < 3 * u->level + 3; i++)
    t->now.next[i] = NEW_ARRAY(s->arena, Affine, s->model->nstage);
  t->now.wait.n = t->now.old = 0;
  t->use = u, t->ex.in_use = &u->ex, t->mbs = u->mbs, t->ex.clip = false;
  affine_bind(t->x, order->slot, affine(t->rank));
  bool ok = text_run_list(t, order->body);
  t->use = use, t->ex.in_use = ex, t->mbs = mbs, t->ex.clip = clip;
  for (uint32_t i = 3 * u->level; i < 3 * u->level + 3; i++)
    t->now.next[i] = NULL;
  for (uint32_t i = 0; i < t->now.wait.n; i++) /* a W outside may take what is left, too */
    *vec_push(s->arena, &outside.wait) = t->now.wait.at[i];
  t->now.wait.n = 0, t->now.old = outside.old;
  for (uint32_t i = 0; i < outside.wait.n; i++)
    *vec_push(s->arena, &t->now.wait) = outside.wait.at[i];
  return ok;
}

bool text_run_use(Text *t, const Stmt *b) {
  Sched *s = t->s;
  AffineEnv *x = t->x;
  TextUse u = {.shift = affine(0), .clip = t->ex.clip, .outer = t->use};
  u.level = t->use ? t->use->level + 1 : 1;
  if (u.level == MOST_LEVELS)
    return text_no(t, b->at, "it uses schedules in schedules that are too many");
  if (!work_take(s->opt->work, 20 + s->parsed->nslot / 4 + s->model->nstage, b->at))
    return text_no(t, b->at, "it takes too many steps");
  u.step = b->range.lo != NULL;
  if ((b->value && !affine_eval(x, b->value, &u.shift)) ||
      (b->range.lo &&
       (!affine_eval(x, b->range.lo, &u.lo) || !affine_eval(x, b->range.hi, &u.hi))) ||
      (b->range.step && !affine_number(x, b->range.step, &u.step)))
    return false;
  u.total = affine_sum(u.shift, t->use ? t->use->total : affine(0), 1);
  if (!is_near(t, u.total) &&
      !text_no(t, b->value->at, "it begins too far behind its microbatches"))
    return false;
  u.ex = (Use){.at = b, .outer = t->ex.in_use, .clip = t->ex.clip};
  Affine *value = arena_alloc(s->arena, s->parsed->nslot * sizeof *value + 1);
  int64_t *env = arena_alloc(s->arena, s->parsed->nslot * sizeof *env + 1);
  memcpy(value, x->value, s->parsed->nslot * sizeof *value);
  memcpy(env, s->eval.env, s->parsed->nslot * sizeof *env);
  uint8_t unsure = t->unsure;
  t->unsure = 0; /* of its own ops without index */
  bool ok = run(t, b, &u);
  t->unsure = unsure;
  memcpy(x->value, value, s->parsed->nslot * sizeof *value);
  memcpy(s->eval.env, env, s->parsed->nslot * sizeof *env);
  return ok;
}
