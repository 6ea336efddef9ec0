/* SPDX-License-Identifier: MIT
 * Orders a rank by priorities: `rules` (lang/spec.md 5.6). Lists the statements and pushes their
 * ops in any order. When all ranks have ops, rules_play.c plays them; the order in which they run
 * is the result. Cost: linear, apart from the play. */
#include <string.h>

#include "base.h"
#include "graph.h"
#include "names.h"
#include "orders.h"
#include "rules.h"
#include "weight_lines.h"

/* ---- listing ---- */

static uint32_t class_of(Ex *x, uint32_t first, const Listed *l, bool joint) {
  const Stmt *stmt = joint ? l->joint : l->stmt;
  for (uint32_t k = first; k < x->rules.classes.n; k++) {
    const RuleClass *c = &x->rules.classes.at[k];
    if (c->stmt == stmt && c->stage == l->stage && c->kind == l->kind && c->joint == joint)
      return k;
  }
  *vec_push(&x->scratch, &x->rules.classes) = (RuleClass){
      .stmt = stmt, .stage = l->stage, .kind = l->kind, .keyed = l->keyed, .joint = joint};
  return x->rules.classes.n - 1;
}

static bool is_copy(const Listed *l) { return l->kind == PIPE_OFF || l->kind == PIPE_LOAD; }

/* Adds a candidate of the block; add_part then adds its parts. */
static void add_cand(Ex *x, uint32_t cls, const Listed *l) {
  *vec_push(&x->scratch, &x->rules.cands) = (RuleCand){.cls = cls,
                                                       .first = x->rules.parts.n,
                                                       .mb = NONE,
                                                       .key = l->keyed ? l->key : INT64_MAX,
                                                       .guard = l->guard};
}

/* Adds a part to the last candidate. op: row of Orders.op or of Orders.copy, or NONE. */
static void add_part(Ex *x, const Listed *l, uint32_t op) {
  RuleCand *c = &x->rules.cands.at[x->rules.cands.n - 1];
  *vec_push(&x->scratch, &x->rules.parts) = (RulePart){
      .op = op, .stage = l->stage, .cand = x->rules.cands.n - 1, .kind = l->kind};
  c->n++;
  c->mb = c->mb == NONE && op != NONE ? l->mb : c->mb;
}

/* The entry of x->at_u for an update: 1 + row. The row is of the present block if it is behind
 * g->first. */
static uint32_t *update_row(Ex *x, const Listed *l) {
  const Sched *s = x->s;
  if (!x->at_u)
    x->at_u = NEW_ARRAY(&x->scratch, uint32_t,
                        (size_t)s->model->nstage * ((size_t)s->model->nmb + 1));
  return &x->at_u[(size_t)l->stage * ((size_t)s->model->nmb + 1) +
                  (l->mb == NONE ? s->model->nmb : l->mb)];
}

/* 1 + the row of an op that is pushed already (a U: in this block); 0: none. */
static uint32_t row_of(Ex *x, const Region *g, const Listed *l) {
  Sched *s = x->s;
  if (is_copy(l) || l->any)
    return 0;
  if (l->kind == PIPE_U) {
    uint32_t u = *update_row(x, l);
    return u > g->first && s->orders->op[u - 1].mb == l->mb ? u : 0;
  }
  uint32_t row = *op_row(s, l->kind, (size_t)l->stage * s->model->nmb + l->mb);
  return row && s->orders->op[row - 1].kind == l->kind ? row : 0;
}

/* Is it a U without microbatch that is listed again? One such U applies all gradients of the
 * stage. */
static bool listed_before(Ex *x, const Region *g, const Listed *l) {
  return l->kind == PIPE_U && l->mb == NONE && row_of(x, g, l);
}

/* Pushes a listed op or copy. */
static bool push_rule(Ex *x, const Listed *l) {
  x->use = l->use;
  if (is_copy(l))
    return push_copy(x, l->kind, l->stage, l->mb);
  if (!push_op(x, l->kind, l->stage, l->mb))
    return false;
  if (l->kind == PIPE_U)
    *update_row(x, l) = x->s->orders->nop;
  return true;
}

/* Adds a candidate for an op or copy outside of overlaps. row: 1 + its row; 0: push it first. */
static bool add_single(Ex *x, const Region *g, const Listed *l, uint32_t row) {
  Sched *s = x->s;
  if (!row) {
    if (!push_rule(x, l))
      return false;
    row = is_copy(l) ? s->orders->ncopy : s->orders->nop;
  }
  add_cand(x, class_of(x, g->cls0, l, false), l);
  add_part(x, l, row - 1);
  return true;
}

/* Adds a candidate for the ops of an overlap, l[0..n), without ops that ran before the block; a
 * single op is no overlap. */
static bool add_joint(Ex *x, const Region *g, const Listed *l, uint32_t n) {
  Sched *s = x->s;
  const Listed *left[MAX_TOGETHER];
  uint32_t nleft = 0;
  if (too_many(x, l->joint, n))
    return false;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t row = row_of(x, g, &l[i]);
    if (row && row <= g->first)
      continue;
    if (is_copy(&l[i])) {
      diag_error(s->diag, DIAG_OVERLAP, l[i].use->at,
                 "rank %u: '%s' in an overlap: a copy runs beside the ops in a stream of its own",
                 x->rank, span_text(s, l[i].use->at));
      return false;
    }
    left[nleft++] = &l[i];
  }
  if (nleft == 0 || (nleft == 1 && left[0]->any))
    return true; /* no named op is left */
  if (nleft == 1)
    return add_single(x, g, left[0], row_of(x, g, left[0]));
  for (uint32_t i = 0; i < nleft; i++) /* push first: a part needs the row */
    if (!left[i]->any && !row_of(x, g, left[i]) && !push_rule(x, left[i]))
      return false;
  for (uint32_t i = 0; i < nleft; i++)
    for (uint32_t j = i + 1; j < nleft; j++)
      if (!left[i]->any && !left[j]->any &&
          !beside_update(s, row_of(x, g, left[i]) - 1, row_of(x, g, left[j]) - 1))
        return false;
  add_cand(x, class_of(x, g->cls0, left[0], true), left[0]);
  for (uint32_t i = 0; i < nleft; i++)
    add_part(x, left[i], left[i]->any ? NONE : row_of(x, g, left[i]) - 1);
  return true;
}

/* Pushes what is listed and adds its candidates, in region g. */
static bool add_listed(Ex *x, Region *g) {
  /* single ops first: an overlap may name them again */
  for (uint32_t k = 0; k < x->listed.n; k++) {
    const Listed *l = &x->listed.at[k];
    uint32_t row = l->joint || l->kind == PIPE_U ? 0 : row_of(x, g, l);
    if (l->joint || (row && row <= g->first) || listed_before(x, g, l))
      continue; /* it ran before the block, or is listed already */
    if (!add_single(x, g, l, 0))
      return false;
  }
  for (uint32_t k = 0, n; k < x->listed.n; k += n) {
    const Listed *l = &x->listed.at[k];
    for (n = 1; l->joint && k + n < x->listed.n && l[n].joint_first == l->joint_first; n++) {}
    if (l->joint && !add_joint(x, g, l, n))
      return false;
  }
  return true;
}

bool run_rules(Ex *x, const Stmt *t) {
  Sched *s = x->s;
  if (!list_body(x, t, 0))
    return false;
  Region g = {.rank = x->rank,
              .first = s->orders->nop,
              .copy = s->orders->ncopy,
              .cls0 = x->rules.classes.n,
              .at = t};
  bool ok = add_listed(x, &g);
  g.n = s->orders->nop - g.first;
  g.ncopy = s->orders->ncopy - g.copy;
  g.ncls = x->rules.classes.n - g.cls0;
  if (g.n > 0)
    *vec_push(&x->scratch, &x->rules.regions) = g;
  return ok;
}

/* ---- a stuck play ---- */

/* The quantities of e and the numbers beside them, for messages: "inflight(r) = 4, P - r = 4". */
static const char *explain(Sched *s, const Expr *e, const char *text) {
  int64_t v;
  if (!e || (e->kind == EX_CALL && e->builtin == BI_LATER))
    return text;
  bool quantity_call = e->kind == EX_CALL && e->builtin >= BI_INFLIGHT;
  if ((quantity_call || (e->kind == EX_INT && e->depends)) && strlen(text) < 200 &&
      quiet_value(s, e, &v))
    return arena_printf(s->arena, "%s%s%s = %lld", text, *text ? ", " : "", span_text(s, e->at),
                        (long long)v);
  for (const Arg *a = quantity_call ? NULL : e->args; a; a = a->next)
    text = explain(s, a->value, text);
  return explain(s, e->c, explain(s, e->b, explain(s, e->a, text)));
}

/* Does e mention inflight(r) without a chunk? */
static bool says_inflight(const Expr *e) {
  if (!e)
    return false;
  if (e->kind == EX_CALL && e->builtin == BI_INFLIGHT && e->args && !e->args->next)
    return true;
  return says_inflight(e->a) || says_inflight(e->b) || says_inflight(e->c);
}

static bool runs_backward(const Sched *s, uint32_t r) {
  for (uint32_t i = s->orders->rank_op0[r]; i < s->orders->rank_op0[r + 1]; i++)
    if (s->orders->op[i].kind == PIPE_B || s->orders->op[i].kind == PIPE_I)
      return true;
  return false;
}

/* The number of microbatches of a stage with some slices, but not all, forward: they hold stashes
 * and cannot go backward. */
static uint32_t half_forward(const Rules *q, uint32_t stage) {
  const Sched *s = q->s;
  uint32_t n = 0;
  for (uint32_t mb = 0; mb < s->model->nmb; mb += s->model->slices) {
    uint32_t ran = 0;
    for (uint32_t k = 0; k < s->model->slices; k++) {
      uint32_t f = s->orders->at_f[(size_t)stage * s->model->nmb + mb + k];
      ran += f && q->op[f - 1].need == OP_DONE;
    }
    n += ran > 0 && ran < s->model->slices;
  }
  return n;
}

/* Reports why candidate `cand` of the region, which is first in line and has its inputs, does not
 * run. */
static bool explain_cand(Rules *q, const Region *g, uint32_t cand) {
  Sched *s = q->s;
  const RuleCand *c = &q->x->rules.cands.at[cand];
  const RuleClass *cls = &q->x->rules.classes.at[c->cls];
  const RulePart *p = &q->x->rules.parts.at[c->first], *lacks;
  uint32_t pick[MAX_TOGETHER];
  bool yes;
  const char *name = "an action";
  if (p->op != NONE && p->op < s->orders->nop)
    name = op_text(s, p->op);
  else if (p->op != NONE)
    name = copy_text(s, &s->orders->copy[p->op - s->orders->nop]);
  if (!rules_holds(q, cand, &yes))
    return false;
  if (!yes) {
    const Expr *cond = cls->stmt->cond;
    diag_note(s->diag, cond->at, "%s is ready, but '%s' does not hold: %s", name,
              span_text(s, cond->at), explain(s, c->guard, ""));
    bool inflight = says_inflight(cond);
    uint32_t r = g->rank;
    if (inflight && p->kind == PIPE_F && half_forward(q, p->stage) > 1)
      diag_help(
          s->diag,
          "%u microbatches are partly forward on stage %u: finish one before the next, with a priority that grows with the microbatch",
          half_forward(q, p->stage), p->stage);
    else if (inflight && !runs_backward(s, r))
      diag_note(s->diag, s->orders->order_at[r],
                "rank %u runs no B and no I, so no stash ever ends", r);
    else if (inflight && p->kind == PIPE_F && c->mb == s->model->stage[p->stage].mb0 &&
             s->model->rank_stage0[r + 1] - s->model->rank_stage0[r] > 1)
      diag_help(s->diag, "give each chunk its own limit: inflight(r, c) is that of chunk c");
    return true;
  }
  if (!rules_pick(q, g, cand, pick, &lacks) && c->mb != NONE) {
    diag_note(s->diag, cls->stmt->at, "%s is ready, but no %s of stage %u can run with it", name,
              pipe_op_info[lacks->kind].text, lacks->stage);
    diag_help(s->diag, "if the op may also run alone, list it outside the overlap, too");
  } else if (rules_frozen(q, cand)) {
    diag_note(s->diag, cls->stmt->at, "%s is ready, but an update of its stage comes first", name);
  }
  return true;
}

/* Reports an op that is ready, but only in overlaps with ops that are not. */
static void explain_apart(Rules *q, const Region *g) {
  Sched *s = q->s;
  for (uint32_t op = g->first; op < g->first + g->n; op++)
    for (uint32_t p = q->op[op].need == 0 ? q->op[op].part : 0; p;
         p = q->x->rules.parts.at[p - 1].next) {
      const RuleCand *c = &q->x->rules.cands.at[q->x->rules.parts.at[p - 1].cand];
      for (uint32_t i = 0; i < c->n && c->missing > 0; i++) {
        uint32_t other = q->x->rules.parts.at[c->first + i].op;
        if (other == NONE || q->op[other].need == 0)
          continue;
        diag_note(s->diag, q->x->rules.classes.at[c->cls].stmt->at,
                  "%s is ready, but %s, an op of the same action, %s", op_text(s, op),
                  op_text(s, other),
                  q->op[other].need == OP_DONE ? "has already run" : "is not ready");
        diag_help(s->diag, "if the op may also run alone, list it outside the overlap, too");
        return;
      }
    }
}

/* The oldest microbatch with an op that has its inputs, and that the region holds back; NONE:
 * none. */
static uint32_t held_back(Rules *q, const Region *g) {
  uint32_t mb = NONE;
  for (uint32_t k = g->cls0; k < g->cls0 + g->ncls; k++) {
    uint32_t cand = rules_top(q, &q->x->rules.classes.at[k]);
    if (cand != NONE && q->x->rules.cands.at[cand].mb < mb)
      mb = q->x->rules.cands.at[cand].mb;
  }
  for (uint32_t op = g->first; op < g->first + g->n; op++)
    if (q->op[op].need == 0 && q->s->orders->op[op].mb < mb)
      mb = q->s->orders->op[op].mb;
  return mb;
}

/* Reports an op that reads a version of an update that needs this op first. */
static bool report_version(Rules *q) {
  Sched *s = q->s;
  const Rounds *t = q->rounds;
  const WeightLine *line = NULL;
  for (uint32_t st = 0; t && st < s->model->nstage; st++)
    for (uint32_t k = t->first[st] + t->updates[st]; k < t->first[st + 1]; k++) {
      uint32_t op = t->waits[k] - 1;
      if (!t->waits[k] || !weight_line(s, WW_READS, op, s->orders->op[op].mb, &line))
        continue;
      diag_error(
          s->diag, DIAG_STARVED, line->at,
          "rank %u starves: %s reads version %u, made by update %u of its stage, but only %u of the updates can run first",
          s->model->stage[st].rank, op_text(s, op), k - t->first[st] + 1, k - t->first[st],
          t->updates[st]);
      diag_note(s->diag, s->orders->site[s->orders->op[op].site], "%s comes from here",
                op_text(s, op));
      diag_help(
          s->diag,
          "let the op read an older version: an update needs gradients of forwards that have run");
      return false;
    }
  return true;
}

/* Reports that no rank can proceed. The cause is a condition that holds back an op with its inputs;
 * of several, the one that holds back the oldest microbatch. */
static bool report_starved(Rules *q) {
  Sched *s = q->s;
  const Region *worst = NULL;
  uint32_t least = NONE;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    const Region *g = rules_region(q, r);
    uint32_t mb = g ? held_back(q, g) : NONE;
    if (mb != NONE && mb <= least)
      worst = g, least = mb;
  }
  /* without such an op the data forms a cycle or is never made, which the proofs report */
  if (!worst)
    return report_version(q);
  uint32_t r = q->rank = worst->rank, left = worst->first + worst->n - q->next[r];
  diag_error(s->diag, DIAG_STARVED, worst->at->at,
             "rank %u starves: %u op%s left, and no op can run", r, left,
             left == 1 ? " is" : "s are");
  bool any = false;
  for (uint32_t k = worst->cls0; k < worst->cls0 + worst->ncls; k++) {
    uint32_t cand = rules_top(q, &q->x->rules.classes.at[k]);
    if (cand != NONE && !explain_cand(q, worst, cand))
      return false;
    any |= cand != NONE && q->x->rules.cands.at[cand].mb != NONE;
  }
  if (!any)
    explain_apart(q, worst);
  return false;
}

/* ---- the order ---- */

/* Adds the ops that did not run in a stuck play, so that the proofs report the fault of the order.
 * Overlaps whose ops occur nowhere else stay together. */
static void append_rest(Rules *q, const Region *g, uint32_t done) {
  const Sched *s = q->s;
  uint32_t end = g->first + g->n;
  for (uint32_t k = 0; k < q->x->rules.cands.n && done < end; k++) {
    const RuleCand *c = &q->x->rules.cands.at[k];
    bool only = c->n > 1 && c->cls >= g->cls0 && c->cls < g->cls0 + g->ncls;
    for (uint32_t i = 0; i < c->n && only; i++) {
      const RulePart *p = &q->x->rules.parts.at[c->first + i];
      only = p->op != NONE && q->op[p->op].need != OP_DONE && !p->next &&
             q->op[p->op].part == c->first + i + 1;
    }
    for (uint32_t i = 0; i < c->n && only; i++) {
      uint32_t op = q->x->rules.parts.at[c->first + i].op;
      q->op[op].need = OP_DONE;
      q->group[done] = (uint16_t)(c->n - 1 - i);
      q->seq[done++] = op;
    }
  }
  for (int pass = 0; pass < 5 && done < end; pass++)
    for (uint32_t k = g->first; k < end; k++) {
      uint8_t kind = s->orders->op[k].kind;
      int turn = kind == PIPE_F   ? 0
                 : kind == PIPE_R ? 1
                 : kind == PIPE_W ? 3
                 : kind == PIPE_U ? 4
                                  : 2;
      if (q->op[k].need != OP_DONE && turn == pass)
        q->seq[done++] = k;
    }
}

/* Puts the copies of a region in the order in which they began. */
static void reorder_copies(Rules *q, const Region *g) {
  Sched *s = q->s;
  uint32_t n = g->copy, end = g->first + g->n;
  if (g->ncopy == 0)
    return;
  Copy *to = arena_alloc(q->arena, g->ncopy * sizeof *to + 1);
  for (int begun = 1; begun >= 0; begun--)
    for (uint32_t i = 0, all = begun ? q->copied.n : g->ncopy; i < all; i++) {
      uint32_t k = begun ? q->copied.at[i] : g->copy + i;
      if (k < g->copy || k >= g->copy + g->ncopy ||
          (q->op[s->orders->nop + k].need == OP_DONE) != begun)
        continue;
      Copy c = s->orders->copy[k];
      c.at = begun ? c.at : end;
      to[n++ - g->copy] = c;
    }
  memcpy(&s->orders->copy[g->copy], to, g->ncopy * sizeof *to);
  for (uint32_t k = g->copy; k < g->copy + g->ncopy; k++) {
    const Copy *c = &s->orders->copy[k];
    (c->kind == PIPE_OFF ? s->orders->at_off
                         : s->orders->at_load)[(size_t)c->stage * s->model->nmb + c->mb] = k + 1;
  }
}

static void append_rests(Rules *q) {
  for (uint32_t i = 0; i < q->x->rules.regions.n; i++) {
    const Region *g = &q->x->rules.regions.at[i];
    uint32_t done = q->next[g->rank] > g->first ? q->next[g->rank] : g->first;
    if (done >= g->first + g->n)
      continue;
    append_rest(q, g, done);
  }
}

static void reorder(Rules *q) {
  Sched *s = q->s;
  for (uint32_t i = 0; i < q->x->rules.regions.n; i++) {
    const Region *g = &q->x->rules.regions.at[i];
    uint32_t end = g->first + g->n;
    Op *to = arena_alloc(q->arena, g->n * sizeof *to);
    for (uint32_t k = 0; k < g->n; k++) {
      to[k] = s->orders->op[q->seq[g->first + k]];
      to[k].group = q->group[g->first + k];
    }
    memcpy(&s->orders->op[g->first], to, g->n * sizeof *to);
    for (uint32_t k = g->first; k < end; k++) {
      const Op *o = &s->orders->op[k];
      if (o->kind != PIPE_U)
        *op_row(s, o->kind, (size_t)o->stage * s->model->nmb + o->mb) = k + 1;
    }
    reorder_copies(q, g);
  }
}

/* ---- what waits for what ---- */

static bool of_rules(const Rules *q, uint32_t op) { return q->op[op].part != 0; }

/* Sets rest[stage] to the region's U without microbatch, which applies all gradients up to it. */
static void find_rests(const Rules *q, const Region *g, uint32_t *rest) {
  for (uint32_t i = g->first; i < g->first + g->n; i++) {
    const Op *o = &q->s->orders->op[i];
    if (o->kind == PIPE_U && o->mb == NONE)
      rest[o->stage] = i;
  }
}

static void find_gradients(Rules *q, Rounds *t) {
  Sched *s = q->s;
  uint32_t *behind = arena_alloc(q->arena, s->model->nstage * sizeof *behind + 1),
           *rest = arena_alloc(q->arena, s->model->nstage * sizeof *rest + 1);
  /* the regions from g on end after row i */
  const Region *g = q->x->rules.regions.at + q->x->rules.regions.n;
  memset(rest, 0xff, s->model->nstage * sizeof *rest);
  memset(behind, 0xff, s->model->nstage * sizeof *behind);
  for (uint32_t i = s->orders->nop; i-- > 0;) {
    const Op *o = &s->orders->op[i];
    for (; g > q->x->rules.regions.at && g[-1].first + g[-1].n > i; g--)
      find_rests(q, &g[-1], rest);
    t->u_of[i] = t->rest_of[i] = NONE;
    if (o->kind == PIPE_U && of_rules(q, i)) {
      if (o->mb != NONE)
        t->u_mb[(size_t)o->stage * s->model->nmb + o->mb] = i + 1;
    } else if (o->kind == PIPE_U) {
      behind[o->stage] = i;
      rest[o->stage] = NONE;
    } else if (o->kind == PIPE_B || o->kind == PIPE_W) {
      t->u_of[i] = behind[o->stage];
      t->rest_of[i] = rest[o->stage];
    }
  }
  for (uint32_t i = 0; i < s->orders->nop; i++) {
    const Op *o = &s->orders->op[i];
    if (o->kind != PIPE_B && o->kind != PIPE_W)
      continue;
    uint32_t u = t->u_mb[(size_t)o->stage * s->model->nmb + o->mb - o->mb % s->model->slices];
    if (u)
      t->left[u - 1]++;
    if (t->u_of[i] != NONE)
      t->left[t->u_of[i]]++;
    if (t->rest_of[i] != NONE)
      t->left[t->rest_of[i]]++;
  }
}

/* Makes an op that reads a version of an update of its rank wait for this update. */
static bool find_versions(Rules *q, Rounds *t) {
  Sched *s = q->s;
  for (uint32_t i = 0; i < s->orders->nop; i++) {
    const Op *o = &s->orders->op[i];
    const WeightLine *line;
    int64_t v;
    if (o->kind == PIPE_U || o->kind == PIPE_W ||
        (o->kind == PIPE_R && !s->orders->at_b[(size_t)o->stage * s->model->nmb + o->mb]))
      continue;
    if (!weight_line(s, WW_READS, i, o->mb, &line))
      return false;
    if (!line || line->source != WS_VALUE)
      continue;
    if (!weight_value(s, line, i, &v))
      return false;
    if (v < 1 || v > t->first[o->stage + 1] - t->first[o->stage])
      continue; /* the version exists from the start, or never: see versions.c */
    uint32_t *head = &t->waits[t->first[o->stage] + (uint32_t)v - 1];
    t->next_wait[i] = *head;
    *head = i + 1;
    q->op[i].need++;
  }
  return true;
}

/* Finds what the updates of all ranks wait for. Needed only if rules have a U, or if a U that waits
 * for a sum stands before other ops. False: reported. */
static bool find_rounds(Rules *q) {
  Sched *s = q->s;
  Arena *a = q->arena;
  bool any = false;
  uint32_t nu = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    bool behind = false; /* an op, in rules or not, comes after it */
    for (uint32_t i = s->orders->rank_op0[r + 1]; i-- > s->orders->rank_op0[r];) {
      bool update = s->orders->op[i].kind == PIPE_U;
      any |= update && (of_rules(q, i) || (behind && is_summed(s, s->orders->op[i].stage)));
      behind |= !update;
      nu += update;
    }
  }
  if (!any)
    return true;
  Rounds *t = NEW(a, Rounds);
  *t = (Rounds){.left = NEW_ARRAY(a, uint32_t, s->orders->nop),
                .last = NEW_ARRAY(a, uint64_t, s->orders->nop),
                .u_of = NEW_ARRAY(a, uint32_t, s->orders->nop),
                .rest_of = NEW_ARRAY(a, uint32_t, s->orders->nop),
                .u_mb = NEW_ARRAY(a, uint32_t, (size_t)s->model->nstage * s->model->nmb),
                .first = NEW_ARRAY(a, uint32_t, s->model->nstage + (size_t)1),
                .u = NEW_ARRAY(a, uint32_t, nu),
                .at = NEW_ARRAY(a, uint64_t, nu),
                .waits = NEW_ARRAY(a, uint32_t, nu),
                .next_wait = NEW_ARRAY(a, uint32_t, s->orders->nop),
                .closed = NEW_ARRAY(a, uint32_t, s->model->nstage),
                .updates = NEW_ARRAY(a, uint32_t, s->model->nstage)};
  for (uint32_t i = 0; i < s->orders->nop; i++)
    t->first[s->orders->op[i].stage + 1] += s->orders->op[i].kind == PIPE_U;
  for (uint32_t st = 0; st < s->model->nstage; st++)
    t->first[st + 1] += t->first[st];
  find_gradients(q, t);
  for (uint32_t i = 0; i < s->orders->nop; i++)
    q->op[i].need += s->orders->op[i].kind == PIPE_U && t->left[i] > 0;
  q->rounds = t;
  return find_versions(q, t);
}

static void find_needs(Rules *q) {
  Sched *s = q->s;
  for (uint32_t i = 0; i < s->orders->nop; i++) {
    const Op *o = &s->orders->op[i];
    size_t cell = (size_t)o->stage * s->model->nmb + o->mb;
    uint32_t own[3], off;
    for (uint32_t k = 0, ninput = op_inputs(s, o); k < ninput; k++)
      q->op[i].need += order_dep(s, i, k) != NONE;
    bool first = (o->kind == PIPE_B || o->kind == PIPE_I) && (o->mb + 1) % s->model->slices == 0;
    /* the first backward reads the stashes of all slices */
    for (uint32_t k = 0; first && s->orders->at_load && k < s->model->slices; k++)
      q->op[i].need += s->orders->at_load[cell - k] &&
                       q->op[s->orders->nop + s->orders->at_load[cell - k] - 1].part;
    order_own_users(s, i, own);
    for (int k = 0; k < 3; k++)
      if (own[k] != NONE)
        q->op[own[k]].need++;
    for (uint32_t k = 0; k < s->model->slices; k++)
      if ((off = rules_off(q, i, k)) != NONE)
        q->op[off].need++;
    q->seq[i] = i;
  }
  for (uint32_t k = 0; k < s->orders->ncopy; k++) {
    const Copy *c = &s->orders->copy[k];
    uint32_t off = s->orders->at_off[(size_t)c->stage * s->model->nmb + c->mb];
    if (c->kind == PIPE_LOAD && q->op[s->orders->nop + k].part && off &&
        q->op[s->orders->nop + off - 1].part)
      q->op[s->orders->nop + k].need++;
  }
}

bool play_rules(Ex *x) {
  if (x->rules.regions.n == 0)
    return true;
  Sched *s = x->s;
  size_t n = s->orders->nop;
  Arena own = {0}, *a = &own;
  uint32_t nunit = s->model->nrank + s->model->ncopy_link;
  Rules q = {
      .s = s,
      .x = x,
      .arena = a,
      .op = NEW_ARRAY(a, RunOp, n + s->orders->ncopy),
      .seq = arena_alloc(a, n * sizeof *q.seq + 1),
      .group = NEW_ARRAY(a, uint16_t, n),
      .next = arena_alloc(a, s->model->nrank * sizeof *q.next),
      .begun = NEW_ARRAY(a, uint32_t, s->model->nrank),
      .region = arena_alloc(a, s->model->nrank * sizeof *q.region),
      .free_at = NEW_ARRAY(a, uint64_t, s->model->nrank),
      .ending = NEW_ARRAY(a, bool, s->model->nrank),
      .copying = arena_alloc(a, nunit * sizeof *q.copying),
      .copied_at = NEW_ARRAY(a, uint64_t, nunit),
      .freed = NEW_ARRAY(a, uint32_t, s->model->nrank),
      .next_freed = NEW_ARRAY(a, uint32_t, s->orders->ncopy),
      .awaited = arena_alloc(a, s->model->nrank * sizeof *q.awaited),
      .wake = NEW_ARRAY(a, uint64_t, s->model->nrank),
      .line = NEW_ARRAY(a, uint32_t, x->rules.classes.n),
      .moved = NEW_ARRAY(a, bool, x->rules.classes.n),
      .fill = NEW_ARRAY(a, uint32_t, x->rules.classes.n),
  };
  for (int k = 0; k < NCOUNTS; k++) {
    q.count[k] = NEW_ARRAY(a, int64_t, s->model->nstage);
    q.rank_count[k] = NEW_ARRAY(a, int64_t, s->model->nrank);
  }
  for (uint32_t i = x->rules.parts.n; i-- > 0;) {
    RulePart *p = &x->rules.parts.at[i];
    if (p->op == NONE)
      continue;
    if (p->kind == PIPE_OFF || p->kind == PIPE_LOAD)
      p->op += s->orders->nop; /* copies are numbered after all ops */
    x->rules.cands.at[p->cand].missing++;
    p->next = q.op[p->op].part;
    q.op[p->op].part = i + 1;
  }
  memset(q.region, 0xff, s->model->nrank * sizeof *q.region);
  for (uint32_t i = x->rules.regions.n; i-- > 0;)
    q.region[x->rules.regions.at[i].rank] = i;
  find_needs(&q);
  for (uint32_t r = 0; r < s->model->nrank; r++)
    q.next[r] = q.begun[r] = s->orders->rank_op0[r], q.awaited[r].cand = NONE;
  bool (*const outer)(Sched *, const Expr *, int64_t *) = s->eval.quantity;
  s->eval.rules = &q, s->eval.quantity = rules_quantity;
  bool ok = find_rounds(&q);
  ok = ok && rules_run(&q) && report_starved(&q);
  s->eval.rules = NULL, s->eval.quantity = outer;
  if (ok) {
    append_rests(&q);
    reorder(&q);
  }
  arena_free(a);
  return ok;
}
