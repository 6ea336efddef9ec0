/* SPDX-License-Identifier: MIT
 * Loops and kernels of an order that is run once for all M (lists_of_m.c, note [lists]): cut where what they do
 * changes; stretches that grow with n are one turn with its number as a variable. */
#include "lists_text.h"
#include "quasi.h"

enum { MOST_CUTS = 48, MOST_TURN = 1 << 12 }; /* of a loop; its turns that are taken as one */

/* ---- loops ---- */

/* Turn `at` of a loop, a function of n and j. */
static bool run_turn(Text *t, const Loop *k, Affine at) {
  if (!work_take(t->s->opt->work, 4, k->b->at) || ++t->steps > 64 * (uint64_t)MOST_ROWS)
    return text_no(t, k->b->at, "its loops run too often");
  Affine i = affine_sum(k->lo, at, k->step);
  if (k->b->name)
    affine_bind(t->x, k->b->slot, i);
  if (k->b->kind == ST_CLOCK && k->b->value) {
    int64_t period;
    if (!affine_number(t->x, k->b->value, &period))
      return false;
    t->base = affine_sum(k->base, i, period);
    enum {
      MOST_PACE = 1 << 30
    }; /* of a stamp: times any M, and so many turns, it does not overflow */
    if (t->base.n > MOST_PACE || t->base.n < -MOST_PACE || t->base.j > MOST_PACE ||
        t->base.j < -MOST_PACE)
      return text_no(t, k->b->at, "its time stamps become too large");
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
      return text_no(t, at, "its ops do not move on at one pace");
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
  State before = text_save(s, &t->now), after;
  uint32_t nrow = t->out->row.n, nsegment = t->out->segment.n, straight = t->straight,
           nstamp = t->stamp.n;
  if (!run_turns(t, k, from, k->turn)) /* what a turn does to the state */
    return false;
  after = t->now;
  if (t->out->segment.n != nsegment)
    return text_no(t, k->b->at, "a loop in it grows with M, too");
  t->now = text_save(s, &before);
  t->out->row.n = nrow, t->straight = straight, t->stamp.n = nstamp;
  Affine *a, *b;
  if (!text_alike(&before, &after))
    return cut(t, affine_sum(from, affine(k->turn), 1));
  for (uint32_t i = 0; (a = text_part(t, &before, i)); i++) {
    b = text_part(t, &after, i);
    if (a->n != b->n)
      return cut(t, affine_sum(from, affine(k->turn), 1));
    text_part(t, &t->now, i)->j = b->a - a->a;
  }
  text_end_straight(t);
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
  if (!text_alike(&before, &t->now))
    return text_no(t, k->b->at, "what its ops without index take does not repeat");
  for (uint32_t i = 0; (a = text_part(t, &before, i)); i++) {
    int64_t by = text_part(t, &after, i)->a - a->a;
    b = text_part(t, &t->now, i);
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
bool text_run_loop(Text *t, Loop k, Affine count) {
  AffineEnv *x = t->x;
  Sched *s = t->s;
  if (affine_fixed(count))
    return run_turns(t, &k, affine(0), count.a);
  if (x->by_n)
    return text_no(t, k.b->at, "a loop in it grows with M, too");
  if (t->joint)
    return text_no(t, k.b->at, "an action has the more ops the larger M is");
  if (count.n < 0)
    return text_no(t, k.b->at, "it is shorter the more microbatches there are");
  Affine end[MOST_CUTS + 1] = {count};
  uint32_t n = 1, nrow = t->out->row.n, nsegment = t->out->segment.n, straight = t->straight,
           nstamp = t->stamp.n;
  State before = text_save(s, &t->now);
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
        return text_no(t, k.b->at, "it cannot be cut into parts that repeat");
      for (j = n++; j > i; j--)
        end[j] = end[j - 1];
      end[i] = t->split;
      if (!affine_at_least_0(x, k.b->at, t->split, &behind) || !behind)
        return text_no(t, k.b->at, "it cannot be cut into parts that repeat");
    } else {
      return x->fail == AFFINE_CROSS || x->fail == AFFINE_TURN
                 ? (x->fail = AFFINE_OK, text_no(t, k.b->at, "it has too many parts that repeat"))
                 : false;
    }
    x->fail = AFFINE_OK;
    t->out->row.n = nrow, t->out->segment.n = nsegment, t->straight = straight;
    t->stamp.n = nstamp;
    t->now = text_save(s, &before);
  }
}

bool text_run_body(Text *t, const Stmt *b) { return text_run_list(t, b->body); }

/* lo .. hi step `step`: how many. */
bool text_turns(Text *t, const Range *r, Affine *lo, int64_t *step, Affine *count) {
  Affine hi;
  int64_t rest;
  bool some;
  *step = 1;
  if (!affine_eval(t->x, r->lo, lo) || !affine_eval(t->x, r->hi, &hi) ||
      (r->step && !affine_number(t->x, r->step, step)))
    return false;
  if (*step == 0)
    return text_no(t, r->step->at, "a step of 0");
  int64_t by = *step > 0 ? *step : -*step;
  Affine span = *step > 0 ? affine_sum(hi, *lo, -1) : affine_sum(*lo, hi, -1);
  if (!affine_at_least_0(t->x, r->hi->at, span, &some))
    return false;
  *count = affine(0);
  return !some || affine_divide(t->x, affine_sum(span, affine(by - 1), 1), by, count, &rest);
}

bool text_run_do(Text *t, const Stmt *b) {
  Loop k = {b, text_run_body, affine(0), 1, 1, affine(0)};
  Affine count;
  bool some;
  if (b->range.lo)
    return text_turns(t, &b->range, &k.lo, &k.step, &count) && text_run_loop(t, k, count);
  if (!affine_eval(t->x, b->cond, &count) || !affine_at_least_0(t->x, b->cond->at, count, &some))
    return false;
  return !some || text_run_loop(t, k, count);
}

/* ---- kernels ---- */

/* Microbatches of the pipes that an op may be of, if they have as many each. */
static bool same_mbs(const Text *t, const OpRef *o, Affine *n) {
  bool any = false;
  for (uint32_t k = 0; k < t->s->model->npipe; k++) {
    const Clause *c = t->ex.in_use ? t->ex.in_use->pipe[k] : t->s->model->pipe[k].clause;
    if (!c || c->name != o->pipe)
      continue;
    if (any && !affine_same(*n, t->mbs[k]))
      return false;
    *n = t->mbs[k], any = true;
  }
  return any;
}

/* The range of the index of an op in it. */
static bool item_range(Text *t, const Stmt *k, const OpRef *o, Affine *lo, Affine *hi) {
  const Pipe *p;
  if (k->range.lo)
    return affine_eval(t->x, k->range.lo, lo) && affine_eval(t->x, k->range.hi, hi);
  const OpRef *op = o;
  while (op->op < 0)
    op = op->def->op;
  *lo = affine(0);
  if (op->pipe_index && same_mbs(t, op, hi))
    return true;
  if (op->pipe_index && !text_bind_macros(t, &o))
    return false;
  t->ex.use = o;
  if (!affine_constant(t->x, op->pipe_index) || !op_pipe(&t->ex, op, &p))
    return text_no(t, op->at, "it is of no pipe");
  *lo = affine(0), *hi = t->mbs[p - t->s->model->pipe];
  return true;
}

static const Expr *index_of(const OpRef *o) {
  const Expr *e = NULL;
  for (const Arg *a = o->args; a; a = a->next)
    e = a->value->depends ? a->value : e;
  return e;
}

/* Runs what is in a loop of a kernel, turn by turn: the same for every index and M. */
static bool inner_turns(Text *t, const Stmt *b, bool (*body)(Text *, const Stmt *, void *),
                        void *of) {
  Affine lo = affine(0), count;
  int64_t step = 1;
  if (b->range.lo ? !text_turns(t, &b->range, &lo, &step, &count)
                  : !affine_eval(t->x, b->cond, &count))
    return false;
  if (lo.n || lo.j || count.n || count.j)
    return text_no(t, b->at, "a loop in its kernel depends on M");
  for (int64_t i = 0; i < count.a; i++, lo.a += step) {
    if (!work_take(t->s->opt->work, 4, b->at) || ++t->steps > 64 * (uint64_t)MOST_ROWS)
      return text_no(t, b->at, "its loops run too often");
    if (b->name)
      affine_bind(t->x, b->slot, lo);
    if (!body(t, b->body, of))
      return false;
  }
  return true;
}

typedef struct Ends {
  const Stmt *k;
  bool any;
  Affine from, to;
} Ends;

static bool kernel_ends(Text *t, const Stmt *b, Ends *e);

static bool ends_of_turn(Text *t, const Stmt *b, void *of) { return kernel_ends(t, b, of); }

/* From where to where it runs: with its variable 0. */
static bool kernel_ends(Text *t, const Stmt *b, Ends *e) {
  AffineEnv *x = t->x;
  for (; b; b = b->next) {
    Affine v, lo, hi;
    int64_t c = 1;
    bool more;
    if (b->kind == ST_IF) {
      bool both = b->cond->depends;
      if ((!both && !affine_number(x, b->cond, &c)) ||
          ((both || c) && !kernel_ends(t, b->body, e)) ||
          ((both || !c) && !kernel_ends(t, b->orelse, e)))
        return false;
    } else if (b->kind == ST_OVERLAP) {
      if (!kernel_ends(t, b->body, e))
        return false;
    } else if (b->kind == ST_DO) {
      if (!inner_turns(t, b, ends_of_turn, e))
        return false;
    } else if (b->kind == ST_LET) {
      if (!b->value->depends) {
        if (!affine_eval(x, b->value, &v))
          return false;
        affine_bind(x, b->slot, v);
      }
    } else if (b->kind == ST_OP) {
      const Expr *index = index_of(b->op);
      if (!index || !affine_eval(x, index, &v) || !item_range(t, e->k, b->op, &lo, &hi))
        return text_no(t, b->at, "it has no index");
      lo = affine_sum(lo, v, -1), hi = affine_sum(hi, v, -1);
      if (e->any && !affine_at_least_0(x, b->at, affine_sum(lo, e->from, -1), &more))
        return false;
      e->from = e->any && more ? e->from : lo;
      if (e->any && !affine_at_least_0(x, b->at, affine_sum(e->to, hi, -1), &more))
        return false;
      e->to = e->any && more ? e->to : hi;
      e->any = true;
    } else if (b->kind != ST_OPDEF && b->kind != ST_FN) {
      return text_no(t, b->at, "it is not an op, an action, a loop or a choice");
    }
  }
  return true;
}

static bool kernel_turn(Text *t, const Stmt *k, const Stmt *b);

static bool inner_turn(Text *t, const Stmt *b, void *k) { return kernel_turn(t, k, b); }

static bool kernel_turn(Text *t, const Stmt *k, const Stmt *b) {
  AffineEnv *x = t->x;
  for (; b; b = b->next) {
    Affine v, lo, hi;
    bool yes;
    uint32_t first = t->out->row.n;
    switch (b->kind) {
    case ST_OP:
      if (!affine_eval(x, index_of(b->op), &v) || !item_range(t, k, b->op, &lo, &hi) ||
          !affine_at_least_0(x, b->at, affine_sum(v, lo, -1), &yes) ||
          (yes &&
           !affine_at_least_0(x, b->at, affine_sum(affine_sum(hi, v, -1), affine(1), -1), &yes)))
        return false;
      if (yes && !text_run_op(t, b))
        return false;
      break;
    case ST_LET:
      if (!affine_eval(x, b->value, &v))
        return false;
      affine_bind(x, b->slot, v);
      break;
    case ST_IF:
      if (!affine_truth(x, b->cond, &yes) || !kernel_turn(t, k, yes ? b->body : b->orelse))
        return false;
      break;
    case ST_DO:
      if (!inner_turns(t, b, inner_turn, (void *)k))
        return false;
      break;
    case ST_OVERLAP:
      t->joint = b;
      yes = kernel_turn(t, k, b->body);
      t->joint = NULL;
      if (!yes)
        return false;
      text_join(t, first);
      if (!text_recompute_before(t, first))
        return false;
      break;
    case ST_OPDEF:
    case ST_FN: break;
    default: return text_no(t, b->at, "it is not an op, an action, a loop or a choice");
    }
  }
  return true;
}

static bool kernel_body(Text *t, const Stmt *b) { return kernel_turn(t, b, b->body); }

bool text_run_kernel(Text *t, const Stmt *b) {
  Ends e = {b, false, affine(0), affine(0)};
  bool some;
  affine_bind(t->x, b->slot, affine(0));
  if (t->clock)
    return text_no(t, b->at, "a kernel stands in a clock");
  if (b->range.lo) {
    Affine lo, hi;
    if (!affine_eval(t->x, b->range.lo, &lo) || !affine_eval(t->x, b->range.hi, &hi) ||
        !affine_at_least_0(t->x, b->at, affine_sum(affine_sum(hi, lo, -1), affine(1), -1), &some))
      return false;
    if (!some) /* what its ops are is asked when it is compiled, and not read here */
      return text_no(t, b->at, "a kernel has no turns");
  }
  if (!kernel_ends(t, b->body, &e))
    return false;
  Affine count = affine_sum(e.to, e.from, -1);
  if (!e.any || !affine_at_least_0(t->x, b->at, count, &some))
    return !e.any;
  return !some || text_run_loop(t, (Loop){b, kernel_body, e.from, 1, 1, affine(0)}, count);
}
