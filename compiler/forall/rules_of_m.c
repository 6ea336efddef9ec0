/* SPDX-License-Identifier: MIT
 * note [rules]: orders of `rules` for every M = from + step * n. Which op a rank takes next is what a play decides
 * (rules_play.c); this is why it decides alike for all n.
 *
 * What the blocks list is known for all n (lists_of_m.c): some ops first, then turn by turn the same ops of later
 * microbatches, `pace` units on from turn to turn and `by_n` turns more for each n, then some ops that lie by `pace * by_n`
 * units further on for each n. Priorities move on by a number of their statement's in a turn; conditions stay as they are.
 * What an op needs is a matter of its microbatch alone. So to move all of it on by D units, a multiple of the pace, changes nothing but names.
 *
 * Let the play at n = 0 be in two states a and b that are equal but for D units and some time (rules_states.c, note
 * [state]), so early that
 * (1) nothing has been done yet for any unit of the last ops, nor for as many of the repeated ones before them as an
 *     action has ops. Only forwards of a first stage, of the first slice, are in line before anything has been done for their unit. Of a
 *     statement that lists some of these ops, each that repeats stands in line by microbatch, and one that repeats
 *     stands before each of the last ones, by its priority in all of its turns (early_alike); of that one there are more
 *     than are looked at, so the last ones are not. A U for all gradients is not in line yet. And the priorities of the first ops and of those that
 *     repeat are the same for all n. So the plays for all n are the same up to b: what they do not share they do not see.
 * (2) In a nothing of the first ops is left, but a U that they list, whose priority stays; so does that of an action
 *     without microbatch (U beside U, any F beside any B), the same in every turn. Of all else that is left the
 *     priorities move on. Those of statements with one
 *     pace keep their distance; of two paces, all of one are before all of the other, and go on to be.
 * Then what is left at b in the play for n + 1 is what is left at a in that for n, D * k units further on, k turns having
 * been put in, and all that the play reads is the same: so it goes on in the same way, to its end. By induction on n
 * the order of each rank is what it ran before a, then what it ran from a to b, for each D units again, and then what it runs
 * from b on at n = 0, with its microbatches moved on by n. That is a row of segments, as of any other order.
 * Ranks without `rules` take part in the play: their lists must repeat at the same pace.
 *
 * Verified by verify_rules.c. Quadratic in the states that are kept, linear in the rows times statements. */
#include "rules_of_m.h"

#include <string.h>

#include "graph.h"
#include "limit.h"
#include "lists_text.h"
#include "plant.h"
#include "quasi.h"

enum { MOST_PACES = 8 };

/* ---- listing ---- */

bool rules_ran(Text *t, Span at, uint8_t kind, uint32_t stage, Affine unit, bool *yes) {
  const RankList *l = &t->l->rank[t->rank];
  int64_t last = -1;
  bool behind;
  for (uint32_t i = 0; i < t->rules->head; i++) {
    const ListRow *o = &l->row.at[i];
    bool same = o->kind == kind ||
                ((kind == PIPE_B || kind == PIPE_I) && (o->kind == PIPE_B || o->kind == PIPE_I));
    if (same && o->stage == stage && !o->whole)
      last = o->unit.a > last ? o->unit.a : last;
  }
  *yes = false;
  if (last < 0)
    return true;
  if (!affine_at_least_0(t->x, at, affine_sum(unit, affine(last + 1), -1), &behind))
    return false;
  for (uint32_t i = 0; i < t->rules->head && !behind; i++) {
    const ListRow *o = &l->row.at[i];
    *yes |= o->kind == kind && o->stage == stage && !o->whole && o->unit.a == unit.a;
  }
  return behind || affine_fixed(unit) ||
         text_no(t, at, "it has run before the rules in some turns");
}

static bool hash_guard(Text *t, const Expr *e, uint64_t *h);

/* A part of a condition. *known: it is the number *v, else its numbers are in *h. */
static bool hash_part(Text *t, const Expr *e, uint64_t *h, bool *known, int64_t *v) {
  *known = !counts_now(e);
  if (*known)
    return affine_number(t->x, e, v);
  if (e->kind == EX_AND || e->kind == EX_OR ||
      e->kind == EX_COND) { /* what is not needed is left out */
    if (!hash_part(t, e->a, h, known, v))
      return false;
    bool yes = *known && *v != 0;
    if (*known && e->kind == EX_COND)
      return hash_part(t, yes ? e->b : e->c, h, known, v);
    if (*known && yes == (e->kind == EX_OR))
      return *v = yes, true;
    *h = *known ? rules_hash(*h, *v) : *h;
    *known = false;
    return hash_guard(t, e->b, h) && hash_guard(t, e->c, h);
  }
  for (const Arg *a = e->args; a; a = a->next)
    if (!hash_guard(t, a->value, h))
      return false;
  return hash_guard(t, e->a, h) && hash_guard(t, e->b, h);
}

/* The numbers in a condition are the same in every turn and for every n. */
static bool hash_guard(Text *t, const Expr *e, uint64_t *h) {
  bool known;
  int64_t v;
  if (!e)
    return true;
  if (!hash_part(t, e, h, &known, &v))
    return false;
  *h = known ? rules_hash(*h, v) : *h;
  return true;
}

bool rules_stamp(Text *t, const Stmt *b) {
  RuleRow *at = &t->rules->at;
  *at = (RuleRow){.stmt = b, .guard = 1, .keyed = b->value != NULL, .stage = NONE};
  if (b->value && !affine_eval(t->x, b->value, &at->key))
    return false;
  at->key = affine_sum(at->key, t->base, at->keyed); /* of a clock that is used */
  return (!b->cond || hash_guard(t, b->cond, &at->guard));
}

void rules_row(Text *t) {
  RulesText *b = t->rules;
  const ListRow *o = &t->out->row.at[t->out->row.n - 1];
  b->rule.n = t->out->row.n - 1; /* those behind it were taken back */
  RuleRow *to = vec_push(t->s->arena, &b->rule);
  *to = b->at;
  to->kind = o->kind, to->stage = o->stage;
}

bool rules_any(Text *t, const OpRef *o) {
  uint32_t stage = NONE;
  if (!op_stage(&t->ex, o, &stage))
    return text_no(t, o->at, "its stage is not on the rank");
  if (stage == NONE)
    return true;
  *vec_push(t->s->arena, &t->out->row) = (ListRow){
      .kind = (uint8_t)o->op, .whole = true, .stage = stage, .at = o->at};
  rules_row(t);
  RuleRow *to = &t->rules->rule.at[t->rules->rule.n - 1];
  to->any = true;
  return true;
}

void rules_join(Text *t, uint32_t first) {
  RuleRow *rule = t->rules->rule.at;
  uint32_t n = t->out->row.n, named = 0;
  for (uint32_t i = first; i < n; i++)
    named += !t->out->row.at[i].whole;
  if (n == first + 1 && rule[first].any)
    t->out->row.n = first; /* what it names is left out */
  for (uint32_t i = first; i < n; i++) {
    rule[i].joint = n > first + 1;
    rule[i].stays = named == 0;
    rule[i].kind = rule[first].kind, rule[i].stage = rule[first].stage;
  }
}

bool text_run_rules(Text *t, const Stmt *b) {
  Sched *s = t->s;
  RankList *rank = t->out;
  ListsOfM own = {.rank = t->l->rank}, *all = t->l;
  if (t->rules) { /* of what is used there */
    Loop k = {b, text_run_body, affine(0), 1, 1, affine(0)};
    Affine count = t->mbs[0];
    return (!b->range.lo || text_turns(t, &b->range, &k.lo, &k.step, &count)) &&
           text_run_loop(t, k, count);
  }
  if (t->clock || t->joint || t->x->by_n)
    return text_no(t, b->at, "its rules stand inside a loop");
  if (t->block[t->rank])
    return text_no(t, b->at, "it has two blocks of rules");
  text_end_straight(t);
  for (uint32_t i = 0; i < rank->segment.n; i++)
    if (rank->segment.at[i].by_n)
      return text_no(t, b->at, "a loop that grows with M stands before its rules");
  RulesText *to = t->block[t->rank] = t->rules = NEW(s->arena, RulesText);
  to->block = b, to->head = rank->row.n;
  State before = text_begin_block(t);
  uint32_t straight = t->straight;
  bool ok = false;
  t->l = &own;
  for (int i = 0; i < MOST_PACES && !ok; i++) {
    Loop k = {b, text_run_body, affine(0), 1, 1, affine(0)};
    Affine count = t->mbs[0];
    t->now = text_save(s, &before);
    t->out = &to->list, t->straight = to->list.row.n = to->list.segment.n = 0;
    ok = (!b->range.lo || text_turns(t, &b->range, &k.lo, &k.step, &count)) &&
         text_run_loop(t, k, count);
    if (!ok && !(t->x->fail == AFFINE_STEP && t->x->need == 1))
      break; /* else its pace has been found */
    if (!ok)
      t->x->fail = AFFINE_OK;
  }
  text_end_straight(t);
  t->l = all, t->out = rank, t->straight = straight, t->rules = NULL;
  if (ok)
    return text_end_block(t, b, &before, &to->list, 0, 0);
  return t->x->fail == AFFINE_OK && text_no(t, b->at, "its ops do not move on at one pace");
}

/* ---- what is left, for all n ---- */

typedef struct Fill {
  Text *t;
  Sched *s;
  const RulePlay *play;
  uint32_t **order, *n; /* [nrank] the ops at n = 0 as the play has them */
  uint32_t *pos;        /* [nop] place in it */
  uint32_t *u_at;       /* [nstage * nmb] U of a microbatch + 1; 0 */
  int64_t pace, by;     /* of all that is listed; units for each n */
  int64_t last;         /* least unit of the last ops at n = 0 */
  int64_t most;         /* ops of an action */
} Fill;

static bool no(Fill *f, Span at, const char *why) { return text_no(f->t, at, why); }
static Span block_at(const Fill *f, uint32_t r) {
  return f->t->block[r] ? f->t->block[r]->block->at : f->s->orders->order_at[r];
}

static void least(int64_t *to, int64_t v) { *to = v < *to ? v : *to; }

static bool one_pace(Fill *f, Span at, int64_t pace, int64_t by) {
  if (f->by && f->by != by)
    return no(f, at, "its ranks do not all have as many more microbatches for a larger M");
  f->by = by;
  f->pace = f->pace ? f->pace / quasi_gcd(f->pace, pace) * pace : pace;
  return true;
}

/* A part that repeats, between rows that stay and rows that move with n. */
static bool shape(Fill *f, uint32_t r, const RankList *l, bool *grows) {
  Span at = block_at(f, r);
  int64_t by = 0;
  *grows = false;
  for (uint32_t i = 0; i < l->segment.n; i++) {
    const ListSegment *g = &l->segment.at[i];
    if (g->by_n && *grows)
      return no(f, at, "what its rules list changes where it repeats");
    for (uint32_t k = g->row0; k < g->row0 + g->nrow; k++) {
      const ListRow *o = &l->row.at[k];
      if (o->whole)
        continue;
      if (g->by_n && (o->unit.j <= 0 || o->unit.n != 0))
        return no(f, o->at, "it does not begin with the first microbatches");
      if (g->by_n && !one_pace(f, o->at, o->unit.j, g->by_n * o->unit.j))
        return false;
      by = g->by_n ? g->by_n * o->unit.j : by;
    }
    *grows |= g->by_n != 0;
  }
  bool behind = false;
  for (uint32_t i = 0; i < l->segment.n; i++) {
    const ListSegment *g = &l->segment.at[i];
    for (uint32_t k = g->row0; k < g->row0 + g->nrow; k++) {
      const ListRow *o = &l->row.at[k];
      if (!o->whole && !g->by_n && o->unit.n != (behind ? by : 0))
        return no(f, o->at, "it is neither of the first microbatches nor of the last");
      if (!o->whole && behind)
        least(&f->last, o->unit.a);
      if (!o->whole && g->by_n)
        least(&f->last, o->unit.a + o->unit.j * g->turns);
    }
    behind |= g->by_n != 0;
  }
  return true;
}

static bool is_first(const Sched *s, uint32_t stage) {
  uint32_t m = s->model->stage[stage].model;
  return s->model->graph ? s->model->graph->in0[m] == s->model->graph->in0[m + 1]
                         : s->model->stage[stage].prev == NONE;
}

/* Is it of the first slice of a microbatch, in every turn, and for every n? `all`: in all of them; else in any. */
static bool first_slice(const Fill *f, Affine unit, bool all) {
  int64_t n = f->s->model->slices;
  bool moves = unit.n % n != 0 || unit.j % n != 0;
  return PLANTED(RULES_SLICE) || (moves ? !all : unit.a % n == 0);
}

/* Whether the action at *k, which is moved behind it, is in line before anything has been done for its units: in all of its
 * turns, or in any. The later slices of a microbatch wait for the one before. */
static bool in_line_early(const Fill *f, const RulesText *b, uint32_t *k, uint32_t end, bool all) {
  bool early = true, named = false, more = true;
  for (; more && *k < end; ++*k) {
    const ListRow *o = &b->list.row.at[*k];
    more = o->group > 0;
    if (b->rule.at[*k].any)
      continue;
    named = true;
    early &= o->kind == PIPE_F && !o->whole && is_first(f->s, o->stage) &&
             first_slice(f, o->unit, all);
  }
  return early && named;
}

static bool same_class(const RuleRow *a, const RuleRow *b) {
  return a->stmt == b->stmt && a->stage == b->stage && a->kind == b->kind && a->joint == b->joint;
}

/* Of the statement of an action, another one in a segment that repeats, in line as early, and each of its turns before
 * that: for all n, since both move on by as much (slope). */
static bool hides(const Fill *f, const RulesText *b, const ListSegment *g, const RuleRow *of) {
  for (uint32_t k = g->row0, end = g->row0 + g->nrow, at; k < end;) {
    at = k;
    const RuleRow *by = &b->rule.at[at];
    if (in_line_early(f, b, &k, end, true) && same_class(by, of) &&
        (!of->keyed || PLANTED(RULES_HIDES) || by->key.a + by->key.j * (g->turns - 1) <= of->key.a))
      return true;
  }
  return false;
}

/* What is looked at before the last microbatches are begun is the same for all n: (1). */
static bool early_alike(Fill *f, const RulesText *b) {
  const ListSegment *grows = NULL;
  for (uint32_t i = 0; i < b->list.segment.n; i++) {
    const ListSegment *g = &b->list.segment.at[i];
    uint32_t end = g->row0 + g->nrow;
    for (uint32_t k = g->row0; k < end && (!grows || g->by_n); k++)
      if (b->rule.at[k].keyed && b->rule.at[k].key.n != 0)
        return no(f, b->rule.at[k].stmt->at,
                  "a priority before its last microbatches depends on M");
    grows = g->by_n ? g : grows;
    for (uint32_t k = g->row0, at; k < end && grows;) {
      at = k;
      const RuleRow *rule = &b->rule.at[at];
      if (in_line_early(f, b, &k, end, false) &&
          (g->by_n ? rule->keyed && rule->key.j < 0 : !hides(f, b, grows, rule)))
        return no(f, b->list.row.at[at].at, "its last microbatches come before the others");
    }
  }
  return true;
}

/* The same of what stands behind a block: it moves with n. */
static bool shape_around(Fill *f, uint32_t r) {
  const RankList *l = &f->t->l->rank[r];
  for (uint32_t i = f->t->block[r]->head; i < l->row.n; i++) {
    const ListRow *o = &l->row.at[i];
    if (!o->whole && (o->unit.n != f->by || o->unit.j != 0))
      return no(f, o->at, "it stands behind rules and is not of the last microbatches");
    if (!o->whole)
      least(&f->last, o->unit.a);
  }
  return true;
}

/* ---- priorities ---- */

typedef struct RulesClass { /* a statement on a stage, as in RuleClass */
  const RuleRow *of;
  bool found;
  int64_t by;          /* of a priority in a turn */
  int64_t least, most; /* of those that are left */
} RulesClass;

static uint32_t op_of(const Fill *f, const ListRow *o, int64_t unit) {
  const Sched *s = f->s;
  size_t cell = (size_t)o->stage * s->model->nmb + s->model->stage[o->stage].mb0 + (size_t)unit;
  uint32_t row = o->kind == PIPE_F   ? s->orders->at_f[cell]
                 : o->kind == PIPE_W ? s->orders->at_w[cell]
                 : o->kind == PIPE_R ? s->orders->at_r[cell]
                 : o->kind == PIPE_U ? f->u_at[cell]
                                     : s->orders->at_b[cell];
  return row - 1; /* NONE: there is none */
}

/* A priority of an op, or action, of a class that is left in state a. */
static void see(RulesClass *c, int64_t key) {
  least(&c->least, key);
  c->most = key > c->most ? key : c->most;
}

/* How priorities of a class move. */
static bool slope(Fill *f, RulesClass *c, const RuleRow *rule, const ListSegment *g, int64_t by_n) {
  Span at = rule->stmt->at;
  int64_t by = g->by_n ? rule->key.j : rule->key.n / by_n;
  if (g->by_n ? rule->key.n != 0 : rule->key.n % by_n != 0)
    return no(f, at, "its priority does not move on with its microbatch");
  if (c->found && c->by != by)
    return PLANTED(RULES_SLOPE) || no(f, at, "its priority does not move on with its microbatch");
  c->found = true, c->by = by;
  return true;
}

/* Those of two paces stay apart. *later: not yet in this state. */
static bool apart(Fill *f, uint32_t r, const RulesClass *c, uint32_t n, bool *later) {
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0; j < n; j++) {
      if (!c[i].found || !c[j].found || c[i].by >= c[j].by || c[i].least > c[i].most ||
          c[j].least > c[j].most)
        continue;
      if (c[i].by > 0 || c[j].by < 0)
        return no(f, block_at(f, r), "the priorities of its rules grow at different rates");
      *later |= c[i].most >= c[j].least;
    }
  return true;
}

/* The ops that a block lists and that are left in state a: (2). *later: not so yet. */
static bool left_over(Fill *f, uint32_t r, const RuleState *a, bool *later) {
  const RulesText *b = f->t->block[r];
  Arena tmp = {.oom = f->s->arena->oom};
  VEC(RulesClass) class = {0};
  int64_t by_n = 0;
  bool behind = false, ok = true;
  for (uint32_t i = 0; i < b->list.segment.n; i++)
    by_n = b->list.segment.at[i].by_n ? b->list.segment.at[i].by_n : by_n;
  for (uint32_t i = 0; i < b->list.segment.n && ok; i++) {
    const ListSegment *g = &b->list.segment.at[i];
    for (uint32_t k = g->row0; k < g->row0 + g->nrow && ok; k++) {
      const RuleRow *rule = &b->rule.at[k];
      const ListRow *o = &b->list.row.at[k];
      uint32_t of = 0;
      while (of < class.n && !same_class(class.at[of].of, rule))
        of++;
      if (of == class.n)
        *vec_push(&tmp, &class) = (RulesClass){.of = rule, .least = INT64_MAX, .most = INT64_MIN};
      RulesClass *c = &class.at[of];
      bool once = o->whole && !rule->joint && !rule->stays; /* a U, as it is listed first */
      if (once && (c->found || !rule->keyed))
        continue;
      if (once && !behind)
        c->found = true;
      else if (rule->keyed && (g->by_n || behind || rule->stays))
        ok = slope(f, c, rule, g, by_n);
      if (rule->keyed && (once || rule->stays))
        see(c, rule->key.a);
      if (ok && rule->keyed && rule->stays && (c->by != 0 || c->least != c->most))
        ok = no(f, o->at, "an action of any ops has priorities that differ");
      for (int64_t j = 0; j < g->turns && ok && !o->whole; j++) {
        uint32_t op = op_of(f, o, o->unit.a + o->unit.j * j);
        if (op == NONE) {
          ok = no(f, o->at, "what was derived of its text is not what it does");
          break;
        }
        if (f->pos[op] < a->begun[r])
          continue;
        *later |= !g->by_n && !behind;
        if (rule->keyed)
          see(c, rule->key.a + rule->key.j * j);
      }
    }
    behind |= g->by_n != 0;
  }
  ok = ok && apart(f, r, class.at, class.n, later);
  arena_free(&tmp);
  return ok;
}

/* States that are D units apart each: the first, the second, and the last of turns + 1. */
typedef struct Chain {
  const RuleState *a, *b, *z;
  int64_t D, turns;
} Chain;

/* A rank without rules is in the part that repeats, in all these states, and so many turns on in each. */
static bool in_turns(Fill *f, uint32_t r, const Chain *c) {
  const RankList *l = &f->t->l->rank[r];
  uint64_t row = 0;
  for (uint32_t i = 0; i < l->segment.n; i++) {
    const ListSegment *g = &l->segment.at[i];
    uint64_t end = row + (uint64_t)g->turns * g->nrow;
    int64_t pace = 0;
    for (uint32_t k = g->row0; g->by_n && k < g->row0 + g->nrow; k++)
      pace = l->row.at[k].whole ? pace : l->row.at[k].unit.j;
    if (g->by_n)
      return pace > 0 && c->a->begun[r] >= row && c->z->begun[r] <= end &&
             (int64_t)(c->b->begun[r] - c->a->begun[r]) * pace == c->D * g->nrow;
    row = end;
  }
  return false;
}

/* ---- the states ---- */

static const RuleState *state_at(const RulePlay *p, int64_t front) {
  for (uint32_t i = 0; i < p->state.n; i++)
    if (p->state.at[i].front == front)
      return &p->state.at[i];
  return NULL;
}

static bool equal(const RuleState *a, const RuleState *b) {
  return a->hash == b->hash && a->nword == b->nword &&
         memcmp(a->word, b->word, a->nword * sizeof *a->word) == 0;
}

/* The chain from states a and b on, as far as (1) goes. False: that is not far. */
static bool chain(const Fill *f, const RuleState *a, const RuleState *b, Chain *c) {
  *c = (Chain){a, b, a, b->front - a->front, 0};
  for (const RuleState *z = b; z && equal(a, z); z = state_at(f->play, z->front + c->D)) {
    if (z->touched + (f->most + 2) * f->pace >= f->last && !PLANTED(RULES_SEEN))
      break;
    c->z = z, c->turns++;
  }
  return c->turns >= LEAST_TURNS;
}

/* That which the proof is about, as early as can be. False: there is none, or it says why not. */
static bool find_chain(Fill *f, Chain *c) {
  const RulePlay *p = f->play;
  for (uint32_t i = 0; i < p->state.n; i++)
    for (uint32_t j = i + 1; j < p->state.n; j++) {
      const RuleState *a = &p->state.at[i], *b = &p->state.at[j];
      bool later = false;
      if ((b->front - a->front) % f->pace != 0 || !equal(a, b) || !chain(f, a, b, c))
        continue;
      for (uint32_t r = 0; r < f->s->model->nrank && !later; r++) {
        later |= a->begun[r] < (f->t->block[r] ? f->t->block[r]->head : 0);
        if (!f->t->block[r])
          later |= !in_turns(f, r, c);
        else if (!left_over(f, r, a, &later))
          return false;
      }
      if (!later || PLANTED(RULES_LEFT))
        return true;
      break; /* a state that comes later */
    }
  return affine_fail(f->t->x, AFFINE_BASE, 0);
}

/* ---- the lists ---- */

static ListRow row_of(const Fill *f, uint32_t op) {
  const Sched *s = f->s;
  const Op *o = &s->orders->op[op];
  return (ListRow){
      .kind = o->kind,
      .whole = o->mb == NONE,
      .group = o->group,
      .stage = o->stage,
      .unit = affine(o->mb == NONE ? 0 : (int64_t)o->mb - s->model->stage[o->stage].mb0),
      .at = s->orders->site[o->site]};
}

static bool fill_rank(Fill *f, uint32_t r, const Chain *c) {
  Sched *s = f->s;
  RankList *l = &f->t->l->rank[r];
  uint32_t a = c->a->begun[r], n = c->b->begun[r] - a, z = c->z->begun[r];
  int64_t D = c->D;
  if (n == 0 || z - a != n * c->turns)
    return no(f, block_at(f, r), "a rank does nothing in what repeats");
  *l = (RankList){0};
  for (uint32_t i = 0; i < f->n[r]; i++) {
    ListRow o = row_of(f, f->order[r][i]);
    if (i >= a + n && i < z) { /* turns of what repeats */
      ListRow as = l->row.at[i - a < n ? i : a + (i - a) % n];
      as.unit.a += D * ((i - a) / n);
      if (o.kind != as.kind || o.stage != as.stage || o.group != as.group || o.whole != as.whole ||
          o.unit.a != as.unit.a)
        return no(f, o.at, "what was derived of its rules is not what they do");
      continue;
    }
    if (!o.whole && i >= z)
      o.unit.n = f->by;
    if (!o.whole && i >= a && i < z)
      o.unit.j = D;
    *vec_push(s->arena, &l->row) = o;
  }
  const ListSegment part[] = {{.row0 = 0, .nrow = a, .turns = 1},
                              {.row0 = a, .nrow = n, .turns = c->turns, .by_n = f->by / D},
                              {.row0 = a + n, .nrow = l->row.n - a - n, .turns = 1}};
  for (int i = 0; i < 3; i++)
    if (part[i].nrow)
      *vec_push(s->arena, &l->segment) = part[i];
  f->t->out = l, f->t->rank = f->t->ex.rank = r;
  return !f->t->again || text_recompute_rows(f->t, 0, 0);
}

/* The ops as the play has them: without those that a recompute clause puts in. */
static bool find_order(Fill *f) {
  Sched *s = f->s;
  Arena *a = s->arena;
  f->order = NEW_ARRAY(a, uint32_t *, s->model->nrank);
  f->n = NEW_ARRAY(a, uint32_t, s->model->nrank);
  f->pos = NEW_ARRAY(a, uint32_t, s->orders->nop + (size_t)1);
  f->u_at = NEW_ARRAY(a, uint32_t, (size_t)s->model->nstage * s->model->nmb);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    uint32_t first = s->orders->rank_op0[r], n = s->orders->rank_op0[r + 1] - first;
    f->order[r] = arena_alloc(a, n * sizeof **f->order + 1);
    for (uint32_t i = first; i < first + n; i++) {
      const Op *o = &s->orders->op[i];
      if (o->kind == PIPE_R && f->t->again)
        continue;
      if (o->kind == PIPE_U && o->mb != NONE)
        f->u_at[(size_t)o->stage * s->model->nmb + o->mb] = i + 1;
      f->pos[i] = f->n[r];
      f->order[r][f->n[r]++] = i;
    }
  }
  for (uint32_t i = 0; i < s->model->nwline; i++)
    for (uint32_t k = 0; k < s->orders->nop && s->model->wline[i]->value; k++)
      if (s->orders->op[k].kind == PIPE_U && f->t->block[op_rank(s, k)])
        return no(f, s->model->wline[i]->at,
                  "ops of rules wait for the versions that they read by number");
  return true;
}

bool rules_fill(Text *t) {
  Sched *s = t->s;
  AffineEnv *x = t->x;
  Fill f = {.t = t, .s = s, .play = s->orders->play, .last = INT64_MAX, .most = 1};
  Chain c = {0};
  bool grows;
  t->l->block = t->block;
  if (!s->orders->play)
    return text_no(t, s->parsed->def->name_at, "what its rules list has run before them");
  if (s->orders->play->rest)
    return text_no(t, s->parsed->def->name_at,
                   "some of what its rules list never comes to run in them");
  if (!find_order(&f))
    return false;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    const RulesText *b = t->block[r];
    if (!shape(&f, r, b ? &b->list : &t->l->rank[r], &grows))
      return false;
    if (!grows)
      return no(&f, block_at(&f, r), "it lists the same microbatches for every M");
    if (b && !PLANTED(RULES_EARLY) && !early_alike(&f, b))
      return false;
    for (uint32_t i = 0; b && i < b->list.row.n; i++)
      f.most = b->list.row.at[i].group >= f.most ? b->list.row.at[i].group + 1 : f.most;
  }
  for (uint32_t r = 0; r < s->model->nrank; r++)
    if (t->block[r] && !shape_around(&f, r))
      return false;
  for (uint32_t k = 0; k < s->model->npipe; k++)
    if (t->l->units[k].n != f.by)
      return text_no(t, s->model->pipe[k].clause->mbs->at,
                     "its pipes do not all grow as its ranks do");
  if (t->l->pace)
    f.pace = f.pace / quasi_gcd(f.pace, t->l->pace) * t->l->pace;
  f.pace = f.pace / quasi_gcd(f.pace, s->model->slices) * s->model->slices;
  if (!find_chain(&f, &c))
    return false;
  t->l->pace = c.D;
  if (f.by % c.D != 0)
    return affine_fail(x, AFFINE_STEP, c.D / quasi_gcd(f.by, c.D));
  for (uint32_t r = 0; r < s->model->nrank; r++)
    if (!fill_rank(&f, r, &c))
      return false;
  return true;
}
