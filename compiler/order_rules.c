/* SPDX-License-Identifier: MIT
 * `rules`: the order of a rank by priorities (lang/spec.md 5.6). All ranks are played on the costs of
 * the schedule, as order.c plays a finished one; where the ops of a rank come from `rules`, a rank
 * that is free takes, of the ops whose inputs have arrived and whose `when` holds, the one with the
 * least key, then the earliest arrival, then the lowest microbatch. The result is the order in which
 * they ran.
 *
 * An op without key fills: it runs if no op with a key may run, and none that may will arrive before
 * it would end. Of the ops of one statement on one stage only the first in line is looked at.
 *
 * An event is a rank that may have something to do: n log n, times the statements of a rank. */
#include <string.h>

#include "expand.h"
#include "graph.h"

typedef struct Event {
  uint64_t at;
  uint32_t rank;
} Event;

typedef struct RunOp { /* an op of the play; what is used together lies together */
  uint64_t avail;      /* when the inputs arrive, of the producers that have started */
  int64_t key;
  uint32_t cls;  /* row of Ex.classes, NONE outside of rules */
  uint32_t need; /* producers that have not started; DONE once it has run */
} RunOp;

typedef struct Rules {
  Sched *s;
  Ex *x;
  RunOp *op;         /* [nop] */
  Expr **guard;      /* [nop] or NULL */
  uint32_t *seq;     /* [nop] the order: row of s->op that runs there */
  uint32_t *next;    /* [nrank] place in the order of the next op */
  uint32_t *region;  /* [nrank] row of Ex.regions, the one at or after `next`; NONE */
  uint64_t *free_at; /* [nrank] */
  /* [nstage], then [nrank]: stashes; microbatches between I and W; inputs kept for R */
  int64_t *count[3], *rank_count[3];
  Event *event;
  uint32_t nevent, cap;
  uint32_t rank; /* that decides now */
} Rules;

#define DONE UINT32_MAX
enum { LIVE = 0, HELD = 1, KEPT = 2 };

/* ---- conditions ---- */

static bool dynamic(const Expr *e) {
  if (!e)
    return false;
  if (e->kind == EX_CALL &&
      (e->builtin == BI_INFLIGHT || e->builtin == BI_HELD || e->builtin == BI_KEPT))
    return true;
  for (const Arg *a = e->args; a; a = a->next)
    if (dynamic(a->value))
      return true;
  return dynamic(e->a) || dynamic(e->b) || dynamic(e->c);
}

/* The chunk of a quantity, counted as in the order that is used, as this rank counts its own. */
static bool used_chunk(Ex *x, const Expr *call) {
  Sched *s = x->s;
  const Use *u = x->in_use;
  Expr *chunk = call->args->next->value;
  int64_t c;
  if (call->builtin != BI_INFLIGHT && call->builtin != BI_HELD && call->builtin != BI_KEPT)
    return true;
  if (!eval(s, chunk, &c))
    return false;
  if (c < 0 || c >= u->nheld) {
    diag_error(s->diag, DIAG_RANGE, chunk->at, "rank %u has no chunk %lld; its chunks are 0 to %u",
               x->rank, (long long)c, u->nheld - 1);
    return false;
  }
  chunk->value = s->stage[u->held[c]].chunk;
  return true;
}

/* A copy of e in which everything without a quantity is a number. NULL: reported. */
static Expr *fold(Ex *x, const Expr *e) {
  Sched *s = x->s;
  Expr *f = NEW(&x->scratch, Expr);
  *f = *e;
  if (!dynamic(e)) {
    f->kind = EX_INT;
    f->depends = e->kind != EX_INT; /* worth a word in a message */
    f->args = NULL;
    f->a = f->b = f->c = NULL;
    return eval(s, e, &f->value) ? f : NULL;
  }
  f->args = NULL;
  Arg **end = &f->args;
  for (const Arg *a = e->args; a; a = a->next) {
    *end = NEW(&x->scratch, Arg);
    **end = *a;
    (*end)->next = NULL;
    if (!((*end)->value = fold(x, a->value)))
      return NULL;
    end = &(*end)->next;
  }
  if (x->in_use && x->in_use->held && f->args && f->args->next && !used_chunk(x, f))
    return NULL;
  const Expr *const from[3] = {e->a, e->b, e->c};
  Expr **const to[3] = {&f->a, &f->b, &f->c};
  for (int i = 0; i < 3; i++)
    if (from[i] && !(*to[i] = fold(x, from[i])))
      return NULL;
  return f;
}

bool rules_guard(Ex *x, Listed *l) {
  const Expr *when = l->stmt->cond;
  for (uint32_t k = x->listed.n; !when->depends && k-- > 0 && k + 64 > x->listed.n;)
    if (x->listed.at[k].stmt == l->stmt &&
        x->listed.at[k].guard) { /* the same for every op of it */
      l->guard = x->listed.at[k].guard;
      return true;
    }
  l->guard = fold(x, when);
  return l->guard != NULL;
}

bool rules_quantity(Sched *s, const Expr *call, int64_t *value) {
  Rules *q = s->rules;
  int64_t r, c;
  if (!eval(s, call->args->value, &r))
    return false;
  if (r != q->rank) {
    diag_error(s->diag, DIAG_RANGE, call->args->value->at,
               "rank %u asks for '%s' of rank %lld; a rank sees only itself", q->rank, call->name,
               (long long)r);
    return false;
  }
  int what = call->builtin == BI_INFLIGHT ? LIVE : call->builtin == BI_HELD ? HELD : KEPT;
  if (!call->args->next) {
    *value = q->rank_count[what][r];
    return true;
  }
  uint32_t first = s->rank_stage0[r], n = s->rank_stage0[r + 1] - first;
  if (!eval(s, call->args->next->value, &c))
    return false;
  if (c < 0 || c >= n) {
    diag_error(s->diag, DIAG_RANGE, call->args->next->value->at,
               "rank %u has no chunk %lld; its chunks are 0 to %u", q->rank, (long long)c, n - 1);
    return false;
  }
  *value = q->count[what][s->rank_stage[first + c]];
  return true;
}

/* ---- listing ---- */

static uint32_t class_of(Ex *x, uint32_t first, const Listed *l) {
  for (uint32_t k = first; k < x->classes.n; k++) {
    const RuleClass *c = &x->classes.at[k];
    if (c->stmt == l->stmt && c->stage == l->stage && c->kind == l->kind)
      return k;
  }
  *vec_push(&x->scratch, &x->classes) = (RuleClass){
      .stmt = l->stmt, .stage = l->stage, .kind = l->kind, .keyed = l->keyed};
  return x->classes.n - 1;
}

bool run_rules(Ex *x, const Stmt *t) {
  Sched *s = x->s;
  if (!list_body(x, t, 0))
    return false;
  Region g = {
      .rank = x->rank, .first = s->nop, .cls0 = x->classes.n, .at = t, .labelled = x->labelled};
  for (uint32_t k = 0; k < x->listed.n; k++) {
    const Listed *l = &x->listed.at[k];
    size_t cell = (size_t)l->stage * s->nmb + l->mb;
    uint32_t at = *op_row(s, l->kind, cell);
    if (at && at <= g.first && s->op[at - 1].kind == l->kind)
      continue; /* it has run before the block */
    *vec_push(&x->scratch, &x->rule) = (RuleOp){s->nop, class_of(x, g.cls0, l), l->key, l->guard};
    x->use = l->use;
    if (!push_op(x, l->kind, l->stage, l->mb))
      return false;
  }
  g.n = s->nop - g.first;
  g.ncls = x->classes.n - g.cls0;
  if (g.n > 0)
    *vec_push(&x->scratch, &x->regions) = g;
  return true;
}

/* ---- heaps ---- */

static bool ready_before(const Rules *q, uint32_t a, uint32_t b) {
  if (q->op[a].key != q->op[b].key)
    return q->op[a].key < q->op[b].key;
  if (q->op[a].avail != q->op[b].avail)
    return q->op[a].avail < q->op[b].avail;
  const Op *oa = &q->s->op[a], *ob = &q->s->op[b];
  return oa->mb != ob->mb ? oa->mb < ob->mb : a < b;
}

static bool comes_before(const Rules *q, uint32_t a, uint32_t b) {
  return q->op[a].avail != q->op[b].avail ? q->op[a].avail < q->op[b].avail : a < b;
}

typedef bool Before(const Rules *q, uint32_t a, uint32_t b);

static void heap_push(const Rules *q, OpHeap *h, Before *before, uint32_t op) {
  if (h->n == h->cap)
    vec_grow(&q->x->scratch, (void **)&h->at, &h->cap, sizeof *h->at);
  uint32_t i = h->n++;
  for (; i > 0 && before(q, op, h->at[(i - 1) / 2]); i = (i - 1) / 2)
    h->at[i] = h->at[(i - 1) / 2];
  h->at[i] = op;
}

static uint32_t heap_pop(const Rules *q, OpHeap *h, Before *before) {
  uint32_t top = h->at[0], last = h->at[--h->n], i = 0;
  for (;;) {
    uint32_t c = 2 * i + 1;
    if (c + 1 < h->n && before(q, h->at[c + 1], h->at[c]))
      c++;
    if (c >= h->n || !before(q, h->at[c], last))
      break;
    h->at[i] = h->at[c];
    i = c;
  }
  h->at[i] = last;
  return top;
}

static bool event_before(Event a, Event b) { return a.at != b.at ? a.at < b.at : a.rank < b.rank; }

static void event_push(Rules *q, uint64_t at, uint32_t rank) {
  if (q->nevent == q->cap)
    vec_grow(&q->x->scratch, (void **)&q->event, &q->cap, sizeof *q->event);
  Event e = {at, rank};
  uint32_t i = q->nevent++;
  for (; i > 0 && event_before(e, q->event[(i - 1) / 2]); i = (i - 1) / 2)
    q->event[i] = q->event[(i - 1) / 2];
  q->event[i] = e;
}

static Event event_pop(Rules *q) {
  Event top = q->event[0], last = q->event[--q->nevent];
  uint32_t i = 0;
  for (;;) {
    uint32_t c = 2 * i + 1;
    if (c + 1 < q->nevent && event_before(q->event[c + 1], q->event[c]))
      c++;
    if (c >= q->nevent || !event_before(q->event[c], last))
      break;
    q->event[i] = q->event[c];
    i = c;
  }
  q->event[i] = last;
  return top;
}

/* ---- the play ---- */

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* All producers of op have started: its inputs arrive at avail. A rank that is busy looks when it ends
 * what it runs. */
static void known(Rules *q, uint32_t op, uint64_t now) {
  uint32_t r = q->s->stage[q->s->op[op].stage].rank;
  if (q->op[op].cls != NONE) {
    RuleClass *c = &q->x->classes.at[q->op[op].cls];
    if (q->op[op].avail <= now)
      heap_push(q, &c->ready, ready_before, op);
    else
      heap_push(q, &c->coming, comes_before, op);
  }
  if (q->free_at[r] <= now)
    event_push(q, later(q->op[op].avail, now), r);
}

static void feed(Rules *q, uint32_t op, uint64_t arrives, uint64_t now) {
  q->op[op].avail = later(q->op[op].avail, arrives);
  if (--q->op[op].need == 0)
    known(q, op, now);
}

/* The first R of a microbatch in slices from `unit` on; where there is none its first backward, which all wait
 * for. NONE: that is not there. */
static uint32_t next_again(const Sched *s, uint32_t stage, uint32_t unit) {
  size_t row = (size_t)stage * s->nmb;
  uint32_t last = unit - unit % s->slices + s->slices - 1;
  for (; unit <= last; unit++)
    if (s->at_r[row + unit])
      return s->at_r[row + unit] - 1;
  return s->at_b[row + last] - 1;
}

/* The ops of the same stage that wait for op, NONE for none: the next one of its cell, the op of its kind on the
 * slice that comes after it, and of slices that are recomputed what next_again says. */
static void own_users(const Sched *s, uint32_t op, uint32_t user[3]) {
  const Op *o = &s->op[op];
  user[0] = user[1] = user[2] = NONE;
  if (o->kind == PIPE_U)
    return;
  size_t cell = (size_t)o->stage * s->nmb + o->mb;
  uint32_t slice = o->mb % s->slices;
  if (o->kind == PIPE_F && s->at_r[cell])
    user[0] = s->at_r[cell] - 1;
  else if (o->kind == PIPE_F || o->kind == PIPE_R)
    user[0] = s->at_b[cell] - 1;
  else if (o->kind == PIPE_I)
    user[0] = s->at_w[cell] - 1;
  if (o->kind == PIPE_F && slice + 1 < s->slices)
    user[1] = s->at_f[cell + 1] - 1;
  else if ((o->kind == PIPE_B || o->kind == PIPE_I) && slice > 0)
    user[1] = s->at_b[cell - 1] - 1;
  if (o->kind == PIPE_F && s->slices > 1 && slice + 1 == s->slices)
    user[2] = next_again(s, o->stage, o->mb - slice);
  else if (o->kind == PIPE_R && slice + 1 < s->slices)
    user[2] = next_again(s, o->stage, o->mb + 1);
}

/* Stashes that are there after an F and were not before: its own, less those of its microbatch that nobody reads
 * once the last slice has gone forward. */
static int64_t makes(const Sched *s, const Op *o) {
  int64_t n = 1;
  for (uint32_t q = 0; (o->mb + 1) % s->slices == 0 && q < s->slices; q++)
    n -= s->forward || s->at_r[(size_t)o->stage * s->nmb + o->mb - q];
  return n;
}

/* Op of rank r, whose outputs can leave at `end`, starts. Returns how long its transfer takes. */
static uint64_t start_op(Rules *q, uint32_t r, uint32_t op, uint64_t end, uint64_t now) {
  Sched *s = q->s;
  const Op *o = &s->op[op];
  q->seq[q->next[r]++] = op;
  q->op[op].need = DONE;
  bool again = o->kind != PIPE_U && s->at_r[(size_t)o->stage * s->nmb + o->mb];
  const int64_t change[3] = {
      [LIVE] = o->kind == PIPE_F ? makes(s, o) : pipe_op_info[o->kind].act,
      [HELD] = pipe_op_info[o->kind].gout,
      [KEPT] = o->kind == PIPE_F ? again : -(o->kind == PIPE_R),
  };
  for (int k = 0; k < 3; k++)
    q->count[k][o->stage] += change[k], q->rank_count[k][r] += change[k];
  uint32_t own[3];
  own_users(s, op, own);
  uint64_t send = 0; /* of what leaves the rank */
  for (uint32_t k = 0, n = op_outputs(s, o); k < n; k++) {
    uint32_t user = order_user(s, op, k);
    if (user == NONE)
      continue;
    bool leaves = s->stage[s->op[user].stage].rank != r;
    uint64_t time = leaves ? output_time(s, o, k) : 0;
    send = time > send ? time : send;
    feed(q, user, end + time, now);
  }
  for (int k = 0; k < 3; k++)
    if (own[k] != NONE)
      feed(q, own[k], end, now);
  return send;
}

/* The action of rank r that begins with `op` starts. */
static void start(Rules *q, uint32_t r, uint32_t op, uint64_t now) {
  Sched *s = q->s;
  uint32_t last = op + s->op[op].group;
  uint64_t end = now + action_time(s, s->stage, false, op), at = now, hold = 0;
  q->free_at[r] = end; /* those it feeds may be its own rank's */
  for (uint32_t i = op; i <= last; i++) {
    at += op_cost(s, s->stage, false, i);
    bool early = s->send == SEND_EAGER && i < last && at < end;
    hold = later(hold, start_op(q, r, i, early ? at : end, now));
  }
  q->free_at[r] = end += s->send == SEND_NEXT ? hold : 0;
  event_push(q, end, r);
}

static bool holds(Rules *q, uint32_t op, bool *yes) {
  int64_t v = 1;
  bool ok = !q->guard[op] || eval(q->s, q->guard[op], &v);
  *yes = v != 0;
  return ok;
}

/* The op that rank r takes at `now`, or NONE. False: a condition has no value. */
static bool choose(Rules *q, const Region *g, uint64_t now, uint32_t *best) {
  const PipeStage *stage = q->s->stage;
  uint32_t filler = NONE;
  bool yes;
  *best = NONE;
  for (uint32_t k = g->cls0; k < g->cls0 + g->ncls; k++) {
    RuleClass *c = &q->x->classes.at[k];
    while (c->coming.n > 0 && q->op[c->coming.at[0]].avail <= now)
      heap_push(q, &c->ready, ready_before, heap_pop(q, &c->coming, comes_before));
    if (c->ready.n == 0)
      continue;
    uint32_t op = c->ready.at[0], *to = c->keyed ? best : &filler;
    if (*to != NONE && !(c->keyed ? ready_before(q, op, *to) : comes_before(q, op, *to)))
      continue;
    if (!holds(q, op, &yes))
      return false;
    if (yes)
      *to = op;
  }
  if (*best != NONE || filler == NONE)
    return true;
  uint64_t end = now + op_cost(q->s, stage, false, filler);
  for (uint32_t k = g->cls0; k < g->cls0 + g->ncls; k++) {
    const RuleClass *c = &q->x->classes.at[k];
    if (!c->keyed || c->coming.n == 0 || q->op[c->coming.at[0]].avail >= end)
      continue;
    if (!holds(q, c->coming.at[0], &yes))
      return false;
    if (yes)
      return true; /* wait for it */
  }
  *best = filler;
  return true;
}

/* When all inputs of the action that begins with `op` are there; UINT64_MAX: not known yet. */
static uint64_t action_arrives(const Rules *q, uint32_t op) {
  uint64_t avail = 0;
  for (uint32_t i = op; i <= op + q->s->op[op].group; i++)
    if (q->op[i].need == 0)
      avail = later(avail, q->op[i].avail);
    else
      return UINT64_MAX;
  return avail;
}

/* When the next op of rank r arrives that may let it go on; UINT64_MAX: none is under way. */
static uint64_t next_arrival(const Rules *q, const Region *g, uint32_t r) {
  if (!g)
    return action_arrives(q, q->next[r]);
  uint64_t first = UINT64_MAX;
  for (uint32_t k = g->cls0; k < g->cls0 + g->ncls; k++) {
    const OpHeap *h = &q->x->classes.at[k].coming;
    if (h->n > 0 && q->op[h->at[0]].avail < first)
      first = q->op[h->at[0]].avail;
  }
  return first;
}

/* The region that rank r is in, or NULL. */
static const Region *region_at(const Rules *q, uint32_t r) {
  const Region *g = q->region[r] == NONE ? NULL : &q->x->regions.at[q->region[r]];
  return g && q->next[r] >= g->first ? g : NULL;
}

static bool step(Rules *q, uint32_t r, uint64_t now) {
  Sched *s = q->s;
  if (now < q->free_at[r] || q->next[r] == s->rank_op0[r + 1])
    return true;
  const Region *g = region_at(q, r);
  uint32_t op = q->next[r];
  if (g && op == g->first + g->n) {
    uint32_t k = q->region[r] + 1;
    q->region[r] = k < q->x->regions.n && q->x->regions.at[k].rank == r ? k : NONE;
    return step(q, r, now);
  }
  q->rank = r;
  if (!g && action_arrives(q, op) > now)
    op = NONE;
  if (g && !choose(q, g, now, &op))
    return false;
  if (op == NONE) {
    uint64_t at = next_arrival(q, g, r);
    if (at != UINT64_MAX)
      event_push(q, at, r);
    return true;
  }
  if (!g) {
    start(q, r, op, now);
    return true;
  }
  RuleClass *c = &q->x->classes.at[q->op[op].cls];
  heap_pop(q, &c->ready, ready_before);
  start(q, r, op, now);
  return true;
}

/* "inflight(r) = 4, P - r = 4": the quantities and the numbers that were put in. */
static const char *explain(Sched *s, const Expr *e, const char *text) {
  int64_t v;
  if (!e)
    return text;
  bool quantity_call = e->kind == EX_CALL && e->builtin >= BI_INFLIGHT;
  if ((quantity_call || (e->kind == EX_INT && e->depends)) && strlen(text) < 200 && eval(s, e, &v))
    return arena_printf(s->arena, "%s%s%s = %lld", text, *text ? ", " : "", span_text(s, e->at),
                        (long long)v);
  for (const Arg *a = e->args; a; a = a->next)
    text = explain(s, a->value, text);
  return explain(s, e->c, explain(s, e->b, explain(s, e->a, text)));
}

/* e mentions inflight(r), that of all chunks. */
static bool says_inflight(const Expr *e) {
  if (!e)
    return false;
  if (e->kind == EX_CALL && e->builtin == BI_INFLIGHT && e->args && !e->args->next)
    return true;
  return says_inflight(e->a) || says_inflight(e->b) || says_inflight(e->c);
}

static bool runs_backward(const Sched *s, uint32_t r) {
  for (uint32_t i = s->rank_op0[r]; i < s->rank_op0[r + 1]; i++)
    if (s->op[i].kind == PIPE_B || s->op[i].kind == PIPE_I)
      return true;
  return false;
}

/* Nothing can go on. The reason is a condition that keeps back an op whose inputs are there; where
 * there are several, the one that keeps back the oldest microbatch. */
static bool report_starved(Rules *q) {
  Sched *s = q->s;
  const Region *worst = NULL;
  uint32_t mb = NONE;
  for (uint32_t r = 0; r < s->nrank; r++) {
    const Region *g = region_at(q, r);
    for (uint32_t k = 0; g && k < g->ncls; k++) {
      const OpHeap *ready = &q->x->classes.at[g->cls0 + k].ready;
      if (ready->n > 0 && s->op[ready->at[0]].mb <= mb)
        worst = g, mb = s->op[ready->at[0]].mb;
    }
  }
  if (!worst)
    return true; /* the data goes round in a circle, or is never made: the proofs say where */
  uint32_t r = q->rank = worst->rank, left = worst->first + worst->n - q->next[r];
  diag_error(s->diag, DIAG_STARVED, worst->at->at,
             "rank %u starves: %u op%s left, and none may run", r, left,
             left == 1 ? " is" : "s are");
  for (uint32_t k = 0; k < worst->ncls; k++) {
    const RuleClass *c = &q->x->classes.at[worst->cls0 + k];
    if (c->ready.n == 0)
      continue;
    uint32_t op = c->ready.at[0];
    diag_note(s->diag, c->stmt->cond->at, "%s is ready, but '%s' does not hold: %s", op_text(s, op),
              span_text(s, c->stmt->cond->at), explain(s, q->guard[op], ""));
    const Op *o = &s->op[op];
    bool inflight = says_inflight(c->stmt->cond);
    if (inflight && !runs_backward(s, r))
      diag_note(s->diag, s->order_at[r], "rank %u has no B and no I, which would end a stash", r);
    else if (inflight && o->kind == PIPE_F && o->mb == s->stage[o->stage].mb0 &&
             s->rank_stage0[r + 1] - s->rank_stage0[r] > 1)
      diag_help(s->diag, "give each chunk its own limit: inflight(r, c) is that of chunk c");
  }
  return false;
}

static void reorder(Rules *q) {
  Sched *s = q->s;
  for (uint32_t i = 0; i < q->x->regions.n; i++) {
    const Region *g = &q->x->regions.at[i];
    uint32_t done = q->next[g->rank] > g->first ? q->next[g->rank] : g->first,
             end = g->first + g->n;
    /* What did not run, in a play that stood still: an order that the proofs can find fault with. */
    for (int pass = 0; pass < 4 && done < end; pass++)
      for (uint32_t k = g->first; k < end; k++) {
        uint8_t kind = s->op[k].kind;
        int turn = kind == PIPE_F ? 0 : kind == PIPE_R ? 1 : kind == PIPE_W ? 3 : 2;
        if (q->op[k].need != DONE && turn == pass)
          q->seq[done++] = k;
      }
    Op *to = arena_alloc(&q->x->scratch, g->n * sizeof *to);
    for (uint32_t k = 0; k < g->n; k++)
      to[k] = s->op[q->seq[g->first + k]];
    memcpy(&s->op[g->first], to, g->n * sizeof *to);
    for (uint32_t k = g->first; k < end; k++) {
      const Op *o = &s->op[k];
      size_t cell = (size_t)o->stage * s->nmb + o->mb;
      *op_row(s, o->kind, cell) = k + 1;
    }
    if (!g->labelled)
      label_phases(s, g->first, end);
  }
}

bool play_rules(Ex *x) {
  Sched *s = x->s;
  if (x->regions.n == 0)
    return true;
  size_t n = s->nop;
  Arena *a = &x->scratch;
  Rules q = {
      .s = s,
      .x = x,
      .op = NEW_ARRAY(a, RunOp, n),
      .guard = NEW_ARRAY(a, Expr *, n),
      .seq = arena_alloc(a, n * sizeof *q.seq + 1),
      .next = arena_alloc(a, s->nrank * sizeof *q.next),
      .region = arena_alloc(a, s->nrank * sizeof *q.region),
      .free_at = NEW_ARRAY(a, uint64_t, s->nrank),
  };
  for (int k = 0; k < 3; k++) {
    q.count[k] = NEW_ARRAY(a, int64_t, s->nstage);
    q.rank_count[k] = NEW_ARRAY(a, int64_t, s->nrank);
  }
  for (uint32_t i = 0; i < n; i++)
    q.op[i].cls = NONE;
  memset(q.region, 0xff, s->nrank * sizeof *q.region);
  for (uint32_t i = x->rule.n; i-- > 0;) {
    const RuleOp *u = &x->rule.at[i];
    q.op[u->op].cls = u->cls, q.op[u->op].key = u->key, q.guard[u->op] = u->guard;
  }
  for (uint32_t i = x->regions.n; i-- > 0;)
    q.region[x->regions.at[i].rank] = i;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t own[3];
    for (uint32_t k = 0, ninput = op_inputs(s, &s->op[i]); k < ninput; k++)
      q.op[i].need += order_dep(s, (uint32_t)i, k) != NONE;
    own_users(s, (uint32_t)i, own);
    for (int k = 0; k < 3; k++)
      if (own[k] != NONE)
        q.op[own[k]].need++;
    q.seq[i] = (uint32_t)i;
  }
  for (uint32_t r = 0; r < s->nrank; r++)
    q.next[r] = s->rank_op0[r];
  s->rules = &q;
  for (uint32_t r = 0; r < s->nrank; r++) {
    event_push(&q, 0, r);
    q.free_at[r] = 1; /* so that `known` does not wake it as well */
  }
  for (uint32_t i = 0; i < n; i++)
    if (q.op[i].need == 0)
      known(&q, i, 0);
  memset(q.free_at, 0, s->nrank * sizeof *q.free_at);
  bool ok = true;
  while (ok && q.nevent > 0) {
    Event e = event_pop(&q);
    ok = step(&q, e.rank, e.at);
  }
  ok = ok && report_starved(&q);
  s->rules = NULL;
  if (ok)
    reorder(&q);
  return ok;
}
