/* SPDX-License-Identifier: MIT
 * Records the states of a play of `rules`, for the proof that the play repeats (rules_of_m.c): the
 * state each time that more forwards of stage 0 have begun, and what the blocks list.
 *
 * note [state]: the words of a state determine everything that the play (rules_play.c) reads later.
 * The words are:
 *
 *   - Of an op that has not run: how many inputs are missing, and when the others arrive. Ops
 *     beyond the last unit for which anything was done are as at the beginning, and are left out.
 *     An arrival at 0 comes first, now and later, and stays 0. What a candidate lacks and when it
 *     arrives follow from its ops; the time of arrival says whether it waits in `ready` or in
 *     `coming`. The state also says whether a candidate in `coming` has run.
 *   - Of a rank: when it is free, what it runs, its counts of stashes. A past moment is 0. What it
 *     awaits follows from what arrives, and is only remembered (rules_play.c, note [awaited]).
 *   - Of updates: which have their gradients and have not run, and since when; how far their stages
 *     are apart. How many gradients a U lacks follows from what has run.
 *   - All events.
 *
 * What has run does not matter otherwise. Copies are not part of the state: orders with copies are
 * not played for this proof. */
#include <string.h>

#include "orders.h"
#include "plant.h"
#include "rules.h"
#include "rules_of_m.h"

enum { MOST_STATES = 1 << 10, MOST_WORDS = 1 << 21 };
#define BEGINNING INT64_MIN

typedef struct Coming {
  uint32_t cand;
  uint64_t at;
} Coming;
typedef VEC(int64_t) Words;

static void put(Rules *q, Words *w, int64_t v) { *vec_push(&q->x->scratch, w) = v; }

static int64_t since(uint64_t at, uint64_t now) {
  return at == 0 ? BEGINNING : (int64_t)(at - now);
}

static int64_t unit_of(const Sched *s, const Op *o) {
  return o->mb == NONE ? -1 : (int64_t)o->mb - s->model->stage[o->stage].mb0;
}

static int by_event(const void *va, const void *vb) {
  const Event *a = va, *b = vb;
  if (a->at != b->at)
    return a->at < b->at ? -1 : 1;
  return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static int by_coming(const void *va, const void *vb) {
  const Coming *a = va, *b = vb;
  if (a->at != b->at)
    return a->at < b->at ? -1 : 1;
  return a->cand < b->cand ? -1 : a->cand > b->cand;
}

static void put_rank(Rules *q, Words *w, uint32_t r, uint64_t now, int64_t front) {
  const Sched *s = q->s;
  put(q, w, rules_region(q, r) != NULL);
  put(q, w, q->free_at[r] > now ? (int64_t)(q->free_at[r] - now) : 0);
  put(q, w, q->wake[r] > now ? (int64_t)(q->wake[r] - now) : 0);
  put(q, w, q->ending[r]);
  for (uint32_t k = q->begun[r]; q->ending[r] && k < q->next[r]; k++) {
    const Op *o = &s->orders->op[q->seq[k]];
    put(q, w, o->kind), put(q, w, o->stage);
    put(q, w, o->mb == NONE ? BEGINNING : unit_of(s, o) - front);
  }
  for (int k = 0; k < NCOUNTS; k++) {
    put(q, w, q->rank_count[k][r]);
    for (uint32_t i = s->model->rank_stage0[r]; i < s->model->rank_stage0[r + 1]; i++)
      put(q, w, q->count[k][s->model->rank_stage[i]]);
  }
}

static void put_rounds(Rules *q, Words *w, uint64_t now, int64_t front) {
  const Sched *s = q->s;
  const Rounds *t = q->rounds;
  for (uint32_t st = 0; t && st < s->model->nstage; st++) {
    for (uint32_t member = st, at = 0; order_member(s, st, &at, &member);)
      put(q, w, (int64_t)t->closed[st] - t->closed[member]);
    put(q, w, (int64_t)t->closed[st] - t->updates[st]);
    for (uint32_t k = t->updates[st]; k < t->closed[st]; k++) {
      const Op *u = &s->orders->op[t->u[t->first[st] + k]];
      put(q, w, u->mb == NONE ? BEGINNING : unit_of(s, u) - front);
      put(q, w, since(t->at[t->first[st] + k], now));
    }
  }
}

/* Candidates that will arrive, those that have run among them. */
static void put_coming(Rules *q, Words *w, uint64_t now, int64_t front) {
  const Sched *s = q->s;
  for (uint32_t k = 0; k < q->x->rules.classes.n; k++) {
    const RuleClass *c = &q->x->rules.classes.at[k];
    Coming *some = arena_alloc(&q->x->scratch, c->coming.n * sizeof *some + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->coming.n; i++) {
      const RuleCand *cand = &q->x->rules.cands.at[c->coming.at[i]];
      if (cand->avail > now)
        some[n++] = (Coming){c->coming.at[i], cand->avail};
    }
    if (n)
      qsort(some, n, sizeof *some, by_coming);
    for (uint32_t i = 0; i < n; i++) {
      const RuleCand *cand = &q->x->rules.cands.at[some[i].cand];
      bool dead = false;
      int64_t unit = BEGINNING; /* of its first op that is of a microbatch */
      for (uint32_t j = 0; j < cand->n; j++) {
        uint32_t op = q->x->rules.parts.at[cand->first + j].op;
        dead |= op != NONE && q->op[op].need == OP_DONE;
        if (op != NONE && unit == BEGINNING && s->orders->op[op].mb != NONE)
          unit = unit_of(s, &s->orders->op[op]) - front;
      }
      put(q, w, k), put(q, w, dead), put(q, w, since(some[i].at, now)), put(q, w, unit);
    }
  }
}

void rules_state(Rules *q, uint64_t now) {
  Sched *s = q->s;
  RulePlay *play = s->orders->play;
  uint32_t nstate = play->state.n;
  int64_t front = q->front;
  if (nstate == MOST_STATES || q->nword > MOST_WORDS || front == 0 ||
      (nstate && play->state.at[nstate - 1].front == front))
    return;
  Words w = {0};
  int64_t touched = -1;
  if (!work_take(s->work, s->orders->nop / 2 + 20 * (uint64_t)s->model->nrank,
                 s->parsed->def->name_at))
    return;
  for (uint32_t i = 0; i < s->orders->nop; i++)
    if (q->op[i].need == OP_DONE || q->op[i].need < q->need0[i])
      touched = unit_of(s, &s->orders->op[i]) > touched ? unit_of(s, &s->orders->op[i]) : touched;
  put(q, &w, touched - front);
  for (uint32_t r = 0; r < s->model->nrank; r++)
    put_rank(q, &w, r, now, front);
  for (uint32_t i = 0; i < s->orders->nop; i++) {
    const Op *o = &s->orders->op[i];
    const RunOp *op = &q->op[i];
    int64_t unit = unit_of(s, o);
    if (op->need == OP_DONE || unit > touched || (unit < 0 && op->need == q->need0[i]))
      continue;
    put(q, &w, o->kind), put(q, &w, o->stage), put(q, &w, unit < 0 ? BEGINNING : unit - front);
    put(q, &w, PLANTED(RULES_STATE) ? 0 : op->need);
    put(q, &w, PLANTED(RULES_STATE) ? 0 : since(op->avail, now));
    if (o->kind == PIPE_U && q->rounds && unit >= 0)
      put(q, &w, q->rounds->left[i]), put(q, &w, since(q->rounds->last[i], now));
  }
  put_rounds(q, &w, now, front);
  put_coming(q, &w, now, front);
  Event *e = arena_alloc(&q->x->scratch, q->nevent * sizeof *e + 1);
  if (q->nevent) {
    memcpy(e, q->event, q->nevent * sizeof *e);
    qsort(e, q->nevent, sizeof *e, by_event);
  }
  for (uint32_t i = 0; i < q->nevent; i++)
    put(q, &w, (int64_t)(e[i].at - now)), put(q, &w, e[i].rank);
  RuleState *to = vec_push(s->arena, &play->state);
  *to = (RuleState){now, front, touched, NULL, 1, NULL, w.n};
  q->nword += w.n;
  to->begun = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  to->word = arena_alloc(s->arena, w.n * sizeof *to->word + 1);
  memcpy(to->word, w.at, w.n * sizeof *to->word);
  for (uint32_t i = 0; i < w.n; i++)
    to->hash = rules_hash(to->hash, w.at[i]);
  for (uint32_t r = 0; r < s->model->nrank; r++)
    to->begun[r] = q->next[r] - s->orders->rank_op0[r];
}

/* The numbers of a condition, into which all but the quantities has been put. */
static uint64_t guard_hash(const Expr *e, uint64_t h) {
  if (!e)
    return h;
  if (e->kind == EX_INT)
    return rules_hash(h, e->value);
  for (const Arg *a = e->args; a; a = a->next)
    h = guard_hash(a->value, h);
  return guard_hash(e->c, guard_hash(e->b, guard_hash(e->a, h)));
}

void rules_begin_play(Rules *q) {
  Sched *s = q->s;
  Ex *x = q->x;
  q->x->orders->play = NEW(s->arena, RulePlay);
  s->orders->play->start = NEW_ARRAY(s->arena, uint64_t, s->orders->nop + (size_t)1);
  q->need0 = arena_alloc(&x->scratch, s->orders->nop * sizeof *q->need0 + 1);
  for (uint32_t i = 0; i < s->orders->nop; i++)
    q->need0[i] = q->op[i].need;
  for (uint32_t i = 0; i < x->rules.regions.n; i++) {
    const Region *g = &x->rules.regions.at[i];
    for (uint32_t k = 0; k < x->rules.cands.n; k++) {
      const RuleCand *cand = &x->rules.cands.at[k];
      const RuleClass *c = &x->rules.classes.at[cand->cls];
      if (cand->cls < g->cls0 || cand->cls >= g->cls0 + g->ncls)
        continue;
      for (uint32_t j = 0; j < cand->n; j++) {
        const RulePart *p = &x->rules.parts.at[cand->first + j];
        int64_t unit = p->op == NONE || p->op >= s->orders->nop ? -1
                                                                : unit_of(s, &s->orders->op[p->op]);
        *vec_push(s->arena, &s->orders->play->listed) = (RuleListed){g->rank,
                                                                     p->stage,
                                                                     c->stmt->at.file,
                                                                     c->stmt->at.beg,
                                                                     k,
                                                                     p->kind,
                                                                     c->keyed,
                                                                     cand->n > 1,
                                                                     unit,
                                                                     c->keyed ? cand->key : 0,
                                                                     guard_hash(cand->guard, 1)};
      }
    }
  }
}
