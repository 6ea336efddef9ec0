/* SPDX-License-Identifier: MIT
 * Plays `rules` (lang/spec.md 5.6): list scheduling on an idle network, with the costs of the
 * schedule. All ranks are played together, as order.c plays finished orders. A free rank whose ops
 * come from `rules` takes one of the candidates whose inputs have arrived and whose `when` holds:
 * the least key first, then the earliest arrival, then the lowest microbatch. Its copy stream does
 * the same with OFF and LOAD.
 *
 * A candidate without a key is a filler. It runs if no candidate with a key can run now, and none
 * will arrive, and be able to run, before the filler would end. If several fillers qualify, the
 * first in line runs. Of the candidates of one statement on one stage, only the first in line
 * counts.
 *
 * Why not the machine of machine.h: this player decides what runs next by what has run and arrived;
 * the other players carry out given lists.
 *
 * note [awaited]: before a rank takes a filler, it looks at the candidates that arrive while the
 * filler would run, in the order of arrival, up to the first candidate that it could take then. A
 * candidate qualifies if it is first in line by then, its `when` holds now, and its partners are
 * there by then. The rank remembers this candidate while it qualifies. If no candidate qualifies,
 * the filler runs, and the rank does not look at these candidates again. So it looks at each about
 * once, except for actions whose partners arrive later.
 *
 * note [rounds]: a U is ready when the gradients that it applies are made, on all ranks that add
 * them up, and their sum is done. The set of these gradients must not change until the U runs, so
 * the next gradients of the stage wait for the U.
 *
 * Cost: an event is a rank that may have something to do; n log n in events, times the statements
 * of a rank. */
#include <string.h>

#include "graph.h"
#include "heap.h"
#include "names.h"
#include "orders.h"
#include "rules.h"

/* ---- heaps ---- */

static bool ready_before(const Rules *q, uint32_t a, uint32_t b) {
  const RuleCand *x = &q->x->rules.cands.at[a], *y = &q->x->rules.cands.at[b];
  if (x->key != y->key)
    return x->key < y->key;
  if (x->avail != y->avail)
    return x->avail < y->avail;
  return x->mb != y->mb ? x->mb < y->mb : a < b;
}

static bool comes_before(const Rules *q, uint32_t a, uint32_t b) {
  const RuleCand *x = &q->x->rules.cands.at[a], *y = &q->x->rules.cands.at[b];
  return x->avail != y->avail ? x->avail < y->avail : a < b;
}

/* The same orders for heap.h: rows of CandHeaps; of: the Rules. */
static bool is_ready_first(const void *a, const void *b, const void *of) {
  return ready_before(of, *(const uint32_t *)a, *(const uint32_t *)b);
}
static bool comes_first(const void *a, const void *b, const void *of) {
  return comes_before(of, *(const uint32_t *)a, *(const uint32_t *)b);
}

static void push_cand(const Rules *q, CandHeap *h, HeapBefore *before, uint32_t cand) {
  vec_push(&q->x->scratch, h);
  heap_put(h->at, h->n, sizeof cand, &cand, before, q);
}

static uint32_t pop_cand(const Rules *q, CandHeap *h, HeapBefore *before) {
  uint32_t top = h->at[0];
  heap_drop(h->at, h->n--, sizeof top, before, q);
  return top;
}

static bool event_first(const void *a, const void *b, const void *of) {
  const Event *x = a, *y = b;
  (void)of;
  return x->at != y->at ? x->at < y->at : x->rank < y->rank;
}

static void event_push(Rules *q, uint64_t at, uint32_t rank) {
  Event e = {at, rank};
  vec_push(q->arena, &q->events);
  heap_put(q->events.at, q->events.n, sizeof e, &e, event_first, NULL);
}

/* ---- candidates ---- */

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static bool rules_copies(const RuleClass *c) { return c->kind == PIPE_OFF || c->kind == PIPE_LOAD; }

static bool is_dead(const Rules *q, uint32_t cand) {
  const RuleCand *c = &q->x->rules.cands.at[cand];
  for (uint32_t i = 0; i < c->n; i++) {
    uint32_t op = q->x->rules.parts.at[c->first + i].op;
    if (op != NONE && q->op[op].need == OP_DONE)
      return true;
  }
  return false;
}

uint32_t rules_top(Rules *q, RuleClass *c) {
  while (c->ready.n > 0 && is_dead(q, c->ready.at[0]))
    pop_cand(q, &c->ready, is_ready_first);
  return c->ready.n > 0 ? c->ready.at[0] : NONE;
}

static void arrive(Rules *q, RuleClass *c, uint64_t now) {
  while (c->coming.n > 0 && q->x->rules.cands.at[c->coming.at[0]].avail <= now)
    push_cand(q, &c->ready, is_ready_first, pop_cand(q, &c->coming, comes_first));
}

/* Puts a candidate in line: every op that it names is known, and it arrives at its `avail`. */
static void line_up(Rules *q, uint32_t cand, uint64_t now) {
  RuleCand *c = &q->x->rules.cands.at[cand];
  RuleClass *to = &q->x->rules.classes.at[c->cls];
  if (c->avail <= now)
    push_cand(q, &to->ready, is_ready_first, cand);
  else
    push_cand(q, &to->coming, comes_first, cand);
}

/* All producers of op have started, and its inputs arrive at `avail`. A busy rank looks when its
 * present action ends. */
static void known(Rules *q, uint32_t op, uint64_t now) {
  const Sched *s = q->s;
  bool copy = op >= s->orders->nop;
  uint32_t r =
      s->model->stage[copy ? s->orders->copy[op - s->orders->nop].stage : s->orders->op[op].stage]
          .rank;
  for (uint32_t p = q->op[op].part; p; p = q->x->rules.parts.at[p - 1].next) {
    RuleCand *c = &q->x->rules.cands.at[q->x->rules.parts.at[p - 1].cand];
    c->avail = later(c->avail, q->op[op].avail);
    if (--c->missing == 0) {
      uint32_t cand = q->x->rules.parts.at[p - 1].cand;
      Awaited *w = &q->awaited[r];
      line_up(q, cand, now);
      if (w->cand != NONE && c->avail <= w->at) { /* the rank may take another candidate at w->at */
        bool before = q->x->rules.cands.at[w->cand].cls == c->cls && ready_before(q, cand, w->cand);
        w->cand = before ? cand : w->cand;
        if (before || w->partner == MANY)
          event_push(q, now, r);
      }
    }
  }
  if (copy || q->free_at[r] <= now)
    event_push(q, later(q->op[op].avail, now), r);
}

static void feed(Rules *q, uint32_t op, uint64_t arrives, uint64_t now) {
  q->op[op].avail = later(q->op[op].avail, arrives);
  if (--q->op[op].need == 0)
    known(q, op, now);
}

bool rules_holds(Rules *q, uint32_t cand, bool *yes) {
  const Expr *guard = q->x->rules.cands.at[cand].guard;
  int64_t v = 1;
  bool ok = !guard || eval(q->s, guard, &v);
  *yes = v != 0;
  return ok;
}

static bool picked(const uint32_t *pick, uint32_t n, uint32_t op) {
  for (uint32_t i = 0; i < n; i++)
    if (pick[i] == op)
      return true;
  return false;
}

/* The candidate of a class that is first in line now, or at q->by. */
static uint32_t first_in_line(Rules *q, RuleClass *c) {
  return q->by ? q->line[c - q->x->rules.classes.at] : rules_top(q, c);
}

/* The first candidate of a heap that is there at q->by and not picked, or `best` if `best` comes
 * before it. */
static uint32_t first_left(Rules *q, const CandHeap *h, const uint32_t *pick, uint32_t n,
                           uint32_t best) {
  for (uint32_t i = 0; i < h->n; i++) {
    const RuleCand *c = &q->x->rules.cands.at[h->at[i]];
    uint32_t op = q->x->rules.parts.at[c->first].op;
    if (q->op[op].need != OP_DONE && !picked(pick, n, op) && (!q->by || c->avail <= q->by) &&
        (best == NONE || ready_before(q, h->at[i], best)))
      best = h->at[i];
  }
  return best;
}

/* The op that is first in line for a part that names none, among the ops that are not picked. */
static uint32_t partner(Rules *q, const Region *g, const RulePart *p, const uint32_t *pick,
                        uint32_t n) {
  uint32_t best = NONE;
  for (uint32_t k = g->cls0; k < g->cls0 + g->ncls; k++) {
    RuleClass *c = &q->x->rules.classes.at[k];
    if (c->joint || c->kind != p->kind || c->stage != p->stage)
      continue;
    uint32_t top = first_in_line(q, c);
    if (top != NONE && rules_frozen(q, top))
      continue;
    if (top != NONE && picked(pick, n, q->x->rules.parts.at[q->x->rules.cands.at[top].first].op)) {
      top = first_left(q, &c->ready, pick, n, NONE);
      top = q->by ? first_left(q, &c->coming, pick, n, top) : top;
    }
    if (top != NONE && (best == NONE || ready_before(q, top, best)))
      best = top;
  }
  return best == NONE ? NONE : q->x->rules.parts.at[q->x->rules.cands.at[best].first].op;
}

bool rules_pick(Rules *q, const Region *g, uint32_t cand, uint32_t *pick, const RulePart **lacks) {
  const RuleCand *c = &q->x->rules.cands.at[cand];
  for (uint32_t i = 0; i < c->n; i++)
    pick[i] = q->x->rules.parts.at[c->first + i].op;
  for (uint32_t i = 0; i < c->n; i++) {
    const RulePart *p = &q->x->rules.parts.at[c->first + i];
    if (pick[i] == NONE && (pick[i] = partner(q, g, p, pick, c->n)) == NONE) {
      if (lacks)
        *lacks = p;
      return false;
    }
  }
  return true;
}

/* ---- updates, note [rounds] ---- */

static bool frozen_stage(const Rules *q, uint32_t kind, uint32_t stage) {
  return q->rounds && adds_gradient(kind) && stage != NONE &&
         q->rounds->closed[stage] > q->rounds->updates[stage];
}

bool rules_frozen(const Rules *q, uint32_t cand) {
  const RuleCand *c = &q->x->rules.cands.at[cand];
  for (uint32_t i = 0; q->rounds && i < c->n; i++) {
    const RulePart *p = &q->x->rules.parts.at[c->first + i];
    if (frozen_stage(q, p->kind, p->stage))
      return true;
  }
  return false;
}

/* The gradients of update u are complete, the last at rounds->last. Once they are complete on all
 * ranks whose gradients are added up, all of these updates have what they need. */
static void close_round(Rules *q, uint32_t u, uint64_t now) {
  Sched *s = q->s;
  Rounds *t = q->rounds;
  uint32_t row = s->orders->op[u].stage, k = t->closed[row]++, member;
  t->u[t->first[row] + k] = u;
  t->at[t->first[row] + k] = t->last[u];
  if (!is_summed(s, row)) {
    feed(q, u, t->last[u], now);
    return;
  }
  uint64_t end = 0;
  for (uint32_t at = 0; order_member(s, row, &at, &member);) {
    uint64_t there = t->closed[member] > k ? t->at[t->first[member] + k] : UINT64_MAX;
    if (there == UINT64_MAX)
      return;
    if (s->model->stage[member].replica != member)
      there += s->model->stage[member].time[PIPE_REDUCE];
    end = later(end, there);
  }
  for (uint32_t at = 0; order_member(s, row, &at, &member);) {
    bool tied = s->model->stage[member].tied != NONE;
    feed(q, t->u[t->first[member] + k], end + (tied ? s->model->stage[member].time[PIPE_TIE] : 0),
         now);
  }
}

static void gradient_for(Rules *q, uint32_t u, uint64_t end, uint64_t now) {
  Rounds *t = q->rounds;
  t->last[u] = later(t->last[u], end);
  if (--t->left[u] == 0)
    close_round(q, u, now);
}

/* Counts op, a gradient or an update, which starts now and ends at `end`. */
static void count_round(Rules *q, uint32_t op, uint64_t end, uint64_t now) {
  const Sched *s = q->s;
  const Op *o = &s->orders->op[op];
  Rounds *t = q->rounds;
  if (o->kind == PIPE_U) {
    uint32_t k = t->first[o->stage] + t->updates[o->stage]++;
    for (uint32_t i = t->waits[k], next; i; i = next) {
      next = t->next_wait[i - 1];
      feed(q, i - 1, end, now);
    }
    return;
  }
  uint32_t mb = o->mb - o->mb % s->model->slices,
           u = t->u_mb[(size_t)o->stage * s->model->nmb + mb];
  if (u)
    gradient_for(q, u - 1, end, now);
  if (t->rest_of[op] != NONE)
    gradient_for(q, t->rest_of[op], end, now);
  if (t->u_of[op] != NONE)
    gradient_for(q, t->u_of[op], end, now);
}

/* ---- the play ---- */

uint32_t rules_off(const Rules *q, uint32_t op, uint32_t k) {
  const Sched *s = q->s;
  const Op *o = &s->orders->op[op];
  if (o->kind != PIPE_F || !s->orders->at_off || (o->mb + 1) % s->model->slices)
    return NONE;
  uint32_t off = s->orders->at_off[(size_t)o->stage * s->model->nmb + o->mb - k];
  return off && q->op[s->orders->nop + off - 1].part ? s->orders->nop + off - 1 : NONE;
}

static void count(Rules *q, int what, uint32_t stage, int64_t change) {
  q->count[what][stage] += change;
  q->rank_count[what][q->s->model->stage[stage].rank] += change;
}

/* Counts a stash as in host memory only. */
static void leave(Rules *q, const Copy *c) {
  count(q, LIVE, c->stage, -1);
  count(q, HOST, c->stage, 1);
}

/* Counts what op i of an action takes when it starts (end = false), or gives back when it ends. */
static void count_op(Rules *q, uint32_t i, bool end) {
  const Sched *s = q->s;
  OpCounts c = op_counts(s, &s->orders->op[i]);
  for (int k = 0; k < NCOUNTS; k++)
    count(q, k, s->orders->op[i].stage, end ? -c.give[k] : c.take[k]);
}

/* Starts op on rank r; its outputs can leave at `end`. */
static void start_op(Rules *q, uint32_t r, uint32_t op, uint64_t end, uint64_t now) {
  Sched *s = q->s;
  const Op *o = &s->orders->op[op];
  q->seq[q->next[r]++] = op;
  q->op[op].need = OP_DONE;
  count_op(q, op, false);
  uint32_t own[3], off;
  order_own_users(s, op, own);
  for (uint32_t k = 0, n = op_outputs(s, o); k < n; k++) {
    uint32_t user = order_user(s, op, k);
    if (user == NONE)
      continue;
    bool leaves = s->model->stage[s->orders->op[user].stage].rank != r;
    feed(q, user, end + (leaves ? output_time(s, o, k) : 0), now);
  }
  for (int k = 0; k < 3; k++)
    if (own[k] != NONE)
      feed(q, own[k], end, now);
  for (uint32_t k = 0; k < s->model->slices; k++)
    if ((off = rules_off(q, op, k)) != NONE)
      feed(q, off, end, now);
}

static void start(Rules *q, uint32_t r, const uint32_t *op, uint32_t n, uint64_t now) {
  Sched *s = q->s;
  uint64_t end = now + together_time(s, s->model->stage, false, op, n), at = now;
  q->free_at[r] = end; /* busy: it may feed ops of its own rank */
  q->begun[r] = q->next[r];
  q->ending[r] = true;
  for (uint32_t i = 0; i < n; i++) {
    q->group[q->next[r]] = (uint16_t)(n - 1 - i);
    at += op_cost(s, s->model->stage, false, op[i]);
    bool early = s->orders->send == SEND_EAGER && i + 1 < n && at < end;
    start_op(q, r, op[i], early ? at : end, now);
  }
  for (uint32_t i = 0; q->rounds && i < n; i++)
    if (adds_gradient(s->orders->op[op[i]].kind) || s->orders->op[op[i]].kind == PIPE_U)
      count_round(q, op[i], end, now);
  event_push(q, end, r);
  if (s->orders->ncopy > 0)
    event_push(q, now, r); /* a copy may wait for these counts */
}

/* Ends the last action of rank r, and counts the copies that ended during it: their slots are free
 * for the next action. */
static void finish(Rules *q, uint32_t r, uint64_t now) {
  if (!q->ending[r] || now < q->free_at[r])
    return;
  q->ending[r] = false;
  for (uint32_t k = q->begun[r]; k < q->next[r]; k++)
    count_op(q, q->seq[k], true);
  for (; q->freed[r]; q->freed[r] = q->next_freed[q->freed[r] - 1])
    leave(q, &q->s->orders->copy[q->freed[r] - 1]);
}

/* ---- what arrives, note [awaited] ---- */

static const RuleCand *soon_cand(const Rules *q, Soon s, uint32_t *cand) {
  *cand = q->x->rules.classes.at[s.cls].coming.at[s.i];
  return &q->x->rules.cands.at[*cand];
}

static bool comes_sooner(const void *a, const void *b, const void *of) {
  uint32_t x, y;
  soon_cand(of, *(const Soon *)a, &x), soon_cand(of, *(const Soon *)b, &y);
  return comes_before(of, x, y);
}

/* Adds entry i of a class's `coming` heap, if it exists and arrives before `end`. */
static void soon_push(Rules *q, uint32_t cls, uint32_t i, uint64_t end) {
  Soon s = {cls, i};
  uint32_t cand;
  if (i >= q->x->rules.classes.at[cls].coming.n || soon_cand(q, s, &cand)->avail >= end)
    return;
  vec_push(q->arena, &q->soon);
  heap_put(q->soon.at, q->soon.n, sizeof s, &s, comes_sooner, q);
}

/* Takes the first arrival, and adds the two entries below it in its own heap. */
static uint32_t soon_pop(Rules *q, uint64_t end) {
  Soon top = q->soon.at[0];
  uint32_t cand;
  heap_drop(q->soon.at, q->soon.n--, sizeof top, comes_sooner, q);
  soon_cand(q, top, &cand);
  soon_push(q, top.cls, 2 * top.i + 1, end);
  soon_push(q, top.cls, 2 * top.i + 2, end);
  return cand;
}

/* The op among pick[] that the candidate does not name; NONE: it names all; MANY: several. */
static uint32_t partner_of(const Rules *q, uint32_t cand, const uint32_t *pick) {
  const RuleCand *c = &q->x->rules.cands.at[cand];
  uint32_t op = NONE;
  for (uint32_t i = 0; i < c->n; i++)
    if (q->x->rules.parts.at[c->first + i].op == NONE)
      op = op == NONE ? pick[i] : MANY;
  return op;
}

/* Can the awaited candidate still run, with its partner? Whatever else arrives until then, the rank
 * can take this candidate or another. */
static bool still_comes(const Rules *q, const Awaited *w) {
  const RuleCand *c = &q->x->rules.cands.at[w->cand];
  if (w->partner == MANY || is_dead(q, w->cand) || rules_frozen(q, w->cand))
    return false;
  if (w->partner == NONE)
    return true;
  const Op *o = &q->s->orders->op[w->partner];
  for (uint32_t i = 0; i < c->n; i++)
    if (q->x->rules.parts.at[c->first + i].op == w->partner)
      return false;
  return q->op[w->partner].need != OP_DONE && !frozen_stage(q, o->kind, o->stage);
}

/* Could rank r take, at q->by, a candidate that is first in line then? partners: consider also
 * overlaps whose partners may have changed. False: a condition has no value. */
static bool could_take(Rules *q, const Region *g, uint32_t r, bool partners, bool *yes) {
  uint32_t room[MAX_TOGETHER];
  for (uint32_t k = g->cls0; k < g->cls0 + g->ncls; k++) {
    const RuleClass *c = &q->x->rules.classes.at[k];
    uint32_t cand = q->line[k];
    if (!c->keyed || cand == NONE || !(q->moved[k] || (partners && c->joint)) ||
        rules_frozen(q, cand))
      continue;
    if (!rules_holds(q, cand, yes))
      return false;
    *yes = *yes && rules_pick(q, g, cand, room, NULL);
    if (*yes) {
      q->awaited[r] = (Awaited){cand, partner_of(q, cand, room), q->by};
      return true;
    }
  }
  *yes = false;
  return true;
}

/* Does a candidate with a priority arrive at rank r before `end` that the rank could take then?
 * False: a condition has no value. */
static bool awaits(Rules *q, const Region *g, uint32_t r, uint64_t now, uint64_t end, bool *yes) {
  const Awaited *w = &q->awaited[r];
  *yes = false;
  if (w->cand != NONE && w->at > now && w->at < end && still_comes(q, w)) {
    if (!rules_holds(q, w->cand, yes))
      return false;
    if (*yes)
      return true;
  }
  Awaited later = w->cand != NONE && w->at >= end ? *w : (Awaited){.cand = NONE};
  q->awaited[r].cand = NONE;
  q->soon.n = 0;
  for (uint32_t k = g->cls0; k < g->cls0 + g->ncls; k++) {
    RuleClass *c = &q->x->rules.classes.at[k];
    q->line[k] = rules_copies(c) ? NONE : rules_top(q, c);
    q->moved[k] = false;
    if (!rules_copies(c))
      soon_push(q, k, 0, end);
  }
  bool ok = true;
  while (ok && !*yes && q->soon.n > 0) {
    uint32_t cand;
    bool partners = false;
    q->by = soon_cand(q, q->soon.at[0], &cand)->avail;
    do {
      cand = soon_pop(q, end);
      uint32_t k = q->x->rules.cands.at[cand].cls;
      if (!is_dead(q, cand) && (q->line[k] == NONE || ready_before(q, cand, q->line[k])))
        q->line[k] = cand, q->moved[k] = true;
      partners |= !q->x->rules.classes.at[k].joint;
    } while (q->soon.n > 0 && soon_cand(q, q->soon.at[0], &cand)->avail == q->by);
    ok = could_take(q, g, r, partners, yes);
    for (uint32_t k = g->cls0; k < g->cls0 + g->ncls; k++)
      q->moved[k] = false;
  }
  q->by = 0;
  if (ok && !*yes)
    q->awaited[r] = later;
  return ok;
}

/* Finds the first of the fillers q->fill[0..n) during which no awaited candidate arrives; NONE:
 * none. */
static bool choose_filler(Rules *q, const Region *g, uint32_t r, uint64_t now, uint32_t n,
                          uint32_t *best, uint32_t *pick) {
  bool wait = true;
  *best = NONE;
  for (uint32_t i = 0; i < n && wait; i++) {
    for (uint32_t k = i + 1; k < n; k++)
      if (ready_before(q, q->fill[k], q->fill[i])) {
        uint32_t other = q->fill[i];
        q->fill[i] = q->fill[k], q->fill[k] = other;
      }
    uint32_t cand = q->fill[i];
    rules_pick(q, g, cand, pick, NULL);
    uint64_t end = now + together_time(q->s, q->s->model->stage, false, pick,
                                       q->x->rules.cands.at[cand].n);
    if (!awaits(q, g, r, now, end, &wait))
      return false;
    *best = wait ? NONE : cand;
  }
  return true;
}

/* Finds the candidate that rank r takes at `now`, and its ops; NONE: none. False: a condition has
 * no value. */
static bool choose(Rules *q, const Region *g, uint32_t r, uint64_t now, uint32_t *best,
                   uint32_t *pick) {
  uint32_t room[MAX_TOGETHER], nfill = 0;
  bool yes;
  *best = NONE;
  if (!take_steps(q->s, g->ncls, g->at->at))
    return false;
  for (uint32_t k = g->cls0; k < g->cls0 + g->ncls; k++)
    arrive(q, &q->x->rules.classes.at[k], now);
  for (uint32_t k = g->cls0; k < g->cls0 + g->ncls; k++) {
    RuleClass *c = &q->x->rules.classes.at[k];
    uint32_t cand = rules_copies(c) ? NONE : rules_top(q, c);
    if (cand == NONE || rules_frozen(q, cand) ||
        (*best != NONE && !(c->keyed && ready_before(q, cand, *best))))
      continue;
    if (!rules_holds(q, cand, &yes))
      return false;
    if (!yes || !rules_pick(q, g, cand, room, NULL))
      continue;
    if (!c->keyed) {
      q->fill[nfill++] = cand;
      continue;
    }
    *best = cand;
    memcpy(pick, room, q->x->rules.cands.at[cand].n * sizeof *pick);
  }
  return *best != NONE || choose_filler(q, g, r, now, nfill, best, pick);
}

/* The time at which all inputs of the action that begins with `op` are there; UINT64_MAX: not known
 * yet. */
static uint64_t action_arrives(const Rules *q, uint32_t op) {
  uint64_t avail = 0;
  for (uint32_t i = op; i <= op + q->s->orders->op[op].group; i++)
    if (q->op[i].need == 0)
      avail = later(avail, q->op[i].avail);
    else
      return UINT64_MAX;
  return avail;
}

/* The time of the next arrival with which rank r may proceed; UINT64_MAX: none is known. */
static uint64_t next_arrival(const Rules *q, const Region *g, uint32_t r) {
  if (!g)
    return action_arrives(q, q->next[r]);
  uint64_t first = UINT64_MAX;
  for (uint32_t k = g->cls0; k < g->cls0 + g->ncls; k++) {
    const CandHeap *h = &q->x->rules.classes.at[k].coming;
    if (h->n > 0 && q->x->rules.cands.at[h->at[0]].avail < first)
      first = q->x->rules.cands.at[h->at[0]].avail;
  }
  return first;
}

const Region *rules_region(const Rules *q, uint32_t r) {
  const Region *g = q->region[r] == NONE ? NULL : &q->x->rules.regions.at[q->region[r]];
  return g && q->next[r] >= g->first ? g : NULL;
}

static bool step(Rules *q, uint32_t r, uint64_t now) {
  Sched *s = q->s;
  finish(q, r, now);
  if (now < q->free_at[r] || q->next[r] == s->orders->rank_op0[r + 1])
    return true;
  const Region *g = rules_region(q, r);
  uint32_t op = q->next[r], pick[MAX_TOGETHER], n = 0, cand;
  if (g && op == g->first + g->n) {
    uint32_t k = q->region[r] + 1;
    q->region[r] = k < q->x->rules.regions.n && q->x->rules.regions.at[k].rank == r ? k : NONE;
    return step(q, r, now);
  }
  q->rank = r;
  if (!g && action_arrives(q, op) <= now) {
    for (n = 0; n <= s->orders->op[op].group; n++)
      pick[n] = op + n;
  } else if (g) {
    if (!choose(q, g, r, now, &cand, pick))
      return false;
    if (cand != NONE) {
      const RuleCand *c = &q->x->rules.cands.at[cand];
      n = c->n;
      if (c->mb != NONE) /* a candidate without named ops stays */
        pop_cand(q, &q->x->rules.classes.at[c->cls].ready, is_ready_first);
    }
  }
  if (n > 0) {
    start(q, r, pick, n, now);
    return true;
  }
  uint64_t at = next_arrival(q, g, r);
  if (at != UINT64_MAX && (q->wake[r] <= now || at < q->wake[r]))
    event_push(q, q->wake[r] = at, r);
  return true;
}

/* ---- the copy streams ---- */

static uint32_t unit_of(const Sched *s, uint32_t r) {
  return s->model->copy_link && s->model->copy_link[r]
             ? s->model->nrank + s->model->copy_link[r] - 1
             : r;
}

/* Ends the copy of a unit: its slot is free for the ops that start from now on. */
static void end_copy(Rules *q, uint32_t unit) {
  uint32_t row = q->copying[unit], r;
  Copy *c = &q->s->orders->copy[row];
  q->copying[unit] = NONE;
  if (c->kind != PIPE_OFF)
    return;
  r = q->s->model->stage[c->stage].rank;
  c->free_by = q->next[r] + 1;
  if (!q->ending[r]) {
    leave(q, c);
    return;
  }
  q->next_freed[row] = q->freed[r];
  q->freed[r] = row + 1;
}

static void start_copy(Rules *q, uint32_t unit, uint32_t row, uint64_t now) {
  Sched *s = q->s;
  Copy *c = &s->orders->copy[row];
  uint32_t r = s->model->stage[c->stage].rank, user;
  uint64_t end = now + copy_cost(s, c);
  size_t cell = (size_t)c->stage * s->model->nmb + c->mb;
  c->at = q->free_at[r] > now ? q->begun[r] : q->next[r];
  q->op[s->orders->nop + row].need = OP_DONE;
  *vec_push(q->arena, &q->copied) = row;
  q->copying[unit] = row;
  q->copied_at[unit] = end;
  if (c->kind == PIPE_OFF) {
    user = s->orders->at_load[cell] ? s->orders->nop + s->orders->at_load[cell] - 1 : NONE;
    user = user != NONE && q->op[user].part ? user : NONE;
  } else {
    user = s->orders->at_b[cell - c->mb % s->model->slices + s->model->slices - 1] - 1;
    count(q, LIVE, c->stage, 1);
    count(q, HOST, c->stage, -1);
    event_push(q, now, r); /* an op may wait for these counts */
  }
  if (user != NONE)
    feed(q, user, end, now);
  for (uint32_t k = 0; k < s->model->nrank; k++)
    if (k == r || (unit >= s->model->nrank && unit_of(s, k) == unit))
      event_push(q, end, k);
}

/* Finds the copy that a unit takes, among all its ranks that are in a region. */
static bool choose_copy(Rules *q, uint32_t unit, uint64_t now, uint32_t *best) {
  const Sched *s = q->s;
  bool yes;
  *best = NONE;
  for (uint32_t r = unit < s->model->nrank ? unit : 0;
       r < s->model->nrank && (unit >= s->model->nrank || r == unit); r++) {
    const Region *g = unit_of(s, r) == unit ? rules_region(q, r) : NULL;
    for (uint32_t k = g ? g->cls0 : 0; g && k < g->cls0 + g->ncls; k++) {
      RuleClass *c = &q->x->rules.classes.at[k];
      if (!rules_copies(c))
        continue;
      arrive(q, c, now);
      uint32_t cand = rules_top(q, c);
      if (cand == NONE || (*best != NONE && !ready_before(q, cand, *best)))
        continue;
      q->rank = r;
      if (!rules_holds(q, cand, &yes))
        return false;
      *best = yes ? cand : *best;
    }
  }
  return true;
}

static bool copy(Rules *q, uint32_t unit, uint64_t now) {
  for (;;) {
    if (q->copying[unit] != NONE && now >= q->copied_at[unit])
      end_copy(q, unit);
    if (q->copying[unit] != NONE)
      return true;
    uint32_t cand;
    if (!choose_copy(q, unit, now, &cand))
      return false;
    if (cand == NONE)
      return true;
    start_copy(q, unit,
               q->x->rules.parts.at[q->x->rules.cands.at[cand].first].op - q->s->orders->nop, now);
  }
}

bool rules_run(Rules *q) {
  Sched *s = q->s;
  uint32_t nunit = s->model->nrank + s->model->ncopy_link;
  bool copies = false;
  for (uint32_t i = 0; i < s->orders->ncopy && !copies; i++)
    copies = q->op[s->orders->nop + i].part != 0;
  memset(q->copying, 0xff, nunit * sizeof *q->copying);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    event_push(q, 0, r);
    q->free_at[r] = 1; /* keeps `known` from waking it as well */
  }
  for (uint32_t i = 0; i < q->x->rules.cands.n; i++)
    if (q->x->rules.cands.at[i].missing == 0)
      line_up(q, i, 0);
  for (uint32_t i = 0; i < s->orders->nop + s->orders->ncopy; i++)
    if (q->op[i].need == 0)
      known(q, i, 0);
  memset(q->free_at, 0, s->model->nrank * sizeof *q->free_at);
  bool ok = true;
  while (ok && q->events.n > 0) {
    guard_poll();
    Event e = q->events.at[0];
    if (!take_steps(s, STEPS_EVENT,
                    s->orders->site[s->orders->op[s->orders->rank_op0[e.rank]].site]))
      return false;
    heap_drop(q->events.at, q->events.n--, sizeof e, event_first, NULL);
    finish(q, e.rank, e.at);
    ok = (!copies || copy(q, unit_of(s, e.rank), e.at)) && step(q, e.rank, e.at);
  }
  return ok;
}
