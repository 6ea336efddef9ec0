/* SPDX-License-Identifier: MIT
 * --for-all=M: proof that the orders of the ranks agree with the data whatever the value of a parameter M,
 * and the time that a microbatch takes in the steady state. Requires a compiled Sched at some M.
 *
 * note [for all M]: let the order of each rank be one clipped kernel, one loop, or one `clock` with a period, in which
 * every index is a quasi-affine function of the loop variable: moving it on by T moves the microbatch on by S and
 * changes nothing else. Then the order of a rank is a sequence without beginning or end, which repeats every S
 * microbatches, of which the program for M is the part whose microbatches exist. A cycle of waits in that part is one
 * in the endless sequence; and one in the endless sequence spans finitely many microbatches, so it is in the program of
 * every large enough M. So the orders agree for all M if the endless sequence has no cycle, and for no large M
 * otherwise. A cycle of ops and instances is a cycle in the graph of one period, where an edge has the distance d, how
 * many periods later its head is: there is none if and only if every cycle of that graph has a distance of at least 1.
 * The slowest cycle, time by distance, is the time of a period (maximum cycle ratio; Reiter 1968, Lawler 1976).
 * That every microbatch is there for all M follows in the same way: the ends of the ranges are quasi-affine in M and
 * move as fast as the microbatches do, so what is left over or lacking at the end is the same for values of M a period
 * apart, and one period of values decides. They are tried without what the schedule requires; of what is right only for
 * some of them, the multiples of a number are claimed, no more. Of small M one thing can be different: that a pipe has
 * no microbatch at all (try_least).
 * What a program of pipec's own then needs to complete are slots, and enough of them always suffice (comm.c, note
 * [enough slots]). So a proof here holds for the emitted program of every M, too. That an action waits for what the one
 * before it has sent (`send next`) changes nothing: in the play of an idle network, of which that note speaks, it
 * starts behind these transfers, which wait for nothing that comes later in it. */
#include <inttypes.h>
#include <string.h>

#include "forall.h"
#include "again.h"
#include "certify.h"
#include "graph.h"
#include "hints.h"
#include "lists_of_m.h"
#include "names.h"
#include "orders.h"
#include "plant.h"
#include "quasi.h"

enum { MOST_VALUES = 64, MOST_OPS = 1 << 22, MOST_NODES = 1 << 17 };

/* ---- what moves with M outside the orders ---- */

/* Parameters and lets of a schedule and of what it extends, as functions of M. */
static bool bind(AllM *x, const Schedule *sc) {
  if (sc->base) {
    const Arg *positional = sc->base_args;
    for (const Param *p = sc->base_def->params; p; p = p->next) {
      const Param *own;
      const Expr *e = base_value(sc, p, &positional, &own);
      x->env[p->slot] = own ? x->env[own->slot] : FIXED;
      if (e && !quasi(x, e, &x->env[p->slot]))
        return false;
    }
    if (!bind(x, sc->base_def))
      return false;
  }
  for (const Clause *c = sc->clauses; c; c = c->next)
    if (c->kind == CL_LET && !quasi(x, c->value, &x->env[c->slot]))
      return false;
  return true;
}

/* Parameters that are not given, by their defaults; then all else. */
static bool bind_all(AllM *x, const Param *m) {
  for (const Param *p = x->s->parsed->def->params; p; p = p->next)
    if (p != m && p->init && !is_given(x->s->opt, p) && !quasi(x, p->init, &x->env[p->slot]))
      return false;
  return bind(x, x->s->parsed->def);
}

static void clear(AllM *x, const Param *m, bool variable) {
  for (uint32_t i = 0; i < x->s->parsed->nslot; i++)
    x->env[i] = FIXED;
  x->env[m->slot] = variable ? (Quasi){1, 1, false, false, 0} : (Quasi){1, 0, true, true, 0};
}

/* M must not move anything in an order but the ends of ranges. */
static bool free_of_m(AllM *x, const Expr *e, const char *text) {
  Quasi q;
  return quasi(x, e, &q) && (!q.other || quasi_no(x, e->at, text));
}

/* Nor in the clauses anything but counts of microbatches, whichever their stage or pipe. */
static bool clause_free_of_m(AllM *x, const Param *m, const Expr *e, const char *text) {
  return !e || !expr_moves(x->s, m->name, e) || quasi_no(x, e->at, text);
}

/* ---- the shape of an order ---- */

typedef struct Shape {
  int64_t T, S; /* of the rank's kernel: T turns move on S microbatches */
  int64_t step; /* of its loop variable in a turn */
  const Stmt *kernel;
} Shape;

/* An op of a kernel or clock: its microbatch moves with the loop variable, all else repeats. */
static bool op_shape(AllM *x, const OpRef *o, Shape *h) {
  Quasi q;
  for (; o->op < 0; o = o->def->op) {
    const Param *p = o->def->params;
    for (const Arg *a = o->args; a; a = a->next, p = p->next) {
      if (!quasi(x, a->value, &q) || (q.other && !quasi_no(x, a->value->at, "it depends on M")))
        return false;
      x->env[p->slot] = q;
      if (q.fixed && !eval(x->s, a->value, &x->s->eval.env[p->slot]))
        return false;
    }
  }
  if (o->pipe_index &&
      (!quasi(x, o->pipe_index, &q) ||
       ((!q.fixed || q.other) && !quasi_no(x, o->pipe_at, "the pipe is not always the same"))))
    return false;
  if (o->op == PIPE_U)
    return quasi_no(x, o->at, "an update stands inside");
  if (o->op == PIPE_OFF || o->op == PIPE_LOAD)
    return quasi_no(x, o->at, "it copies stashes to other memory");
  if (!o->args)
    return quasi_no(x, o->at, "an op without microbatch counts from the beginning");
  if (!quasi(x, o->args->value, &q))
    return false;
  const Expr *const part[] = {o->chunk ? o->chunk : o->stage,
                              o->args->next ? o->args->next->value : NULL};
  for (int i = 0; i < 2; i++) {
    Quasi at = FIXED;
    if (part[i] &&
        (!quasi(x, part[i], &at) ||
         (at.s != 0 && !quasi_no(x, part[i]->at, "the stage, or slice, does not repeat"))))
      return false;
    if (!quasi_join(&q, &at))
      return quasi_no(x, o->at, "its period is too long");
  }
  if (q.other)
    return quasi_no(x, o->at, "it depends on M");
  Quasi all = {h->T, h->S, false, false, 0};
  if (h->S == 0) {
    h->T = q.T, h->S = q.s;
  } else if (!quasi_join(&all, &q) || all.s != q.s) {
    return quasi_no(x, o->at, "its microbatch moves at another pace than the first op's");
  } else {
    h->T = all.T, h->S = all.s;
  }
  return h->S > 0 ? true : quasi_no(x, o->at, "its microbatch does not move on");
}

/* A let of an order; its value, too, if it is one number throughout. */
static bool bind_let(AllM *x, const Stmt *b) {
  Quasi *q = &x->env[b->slot];
  return quasi(x, b->value, q) &&
         (!q->fixed || q->other || eval(x->s, b->value, &x->s->eval.env[b->slot]));
}

static bool body_shape(AllM *x, const Stmt *b, Shape *h);

/* A loop inside: the same turns in every turn of the kernel. */
static bool inner_loop(AllM *x, const Stmt *b, Shape *h) {
  Quasi q;
  int64_t lo = 0, hi, step = 1, turns = 0;
  const Expr *const part[] = {b->range.lo, b->range.hi, b->range.step, b->cond};
  int64_t *const value[] = {&lo, &hi, &step, &hi};
  for (int i = 0; i < 4; i++)
    if (part[i] &&
        (!quasi(x, part[i], &q) || (!quasi_number(x, part[i], &q, value[i]) &&
                                    !quasi_no(x, part[i]->at, "it is not the same in every turn"))))
      return false;
  if (step == 0)
    return quasi_no(x, b->at, "its step is 0");
  for (int64_t i = lo; step > 0 ? i < hi : i > hi; i += step) {
    if (!work_take(x->s->work, WORK_EXPR, b->at))
      return false;
    if (++turns > MOST_PERIOD)
      return quasi_no(x, b->at, "it has too many turns");
    if (b->name)
      x->s->eval.env[b->slot] = i, x->env[b->slot] = FIXED;
    if (!body_shape(x, b->body, h))
      return false;
  }
  return true;
}

static bool body_shape(AllM *x, const Stmt *b, Shape *h) {
  Quasi q;
  for (; b && work_take(x->s->work, WORK_EXPR, b->at); b = b->next)
    switch (b->kind) {
    case ST_OP:
      if (b->value && (!quasi(x, b->value, &q) ||
                       ((q.other || !q.fixed) && !quasi_no(x, b->value->at, "the stamp moves"))))
        return false;
      if (!op_shape(x, b->op, h))
        return false;
      break;
    case ST_LET:
      if (!bind_let(x, b))
        return false;
      break;
    case ST_IF:
      if (!quasi(x, b->cond, &q) ||
          ((q.other || q.s != 0) && !quasi_no(x, b->cond->at, "the condition does not repeat")))
        return false;
      if (q.T > 1) { /* it chooses in turns */
        if (h->S == 0)
          return quasi_no(x, b->cond->at, "an op must stand before it");
        int64_t T = h->T / quasi_gcd(h->T, q.T) * q.T;
        if (T > MOST_PERIOD)
          return quasi_no(x, b->cond->at, "its period is too long");
        h->S *= T / h->T, h->T = T;
      }
      if (!body_shape(x, b->body, h) || !body_shape(x, b->orelse, h))
        return false;
      break;
    case ST_DO:
      if (!inner_loop(x, b, h))
        return false;
      break;
    case ST_PHASE:
      if (!body_shape(x, b->body, h))
        return false;
      break;
    case ST_OPDEF:
    case ST_FN: break;
    case ST_OVERLAP: return quasi_no(x, b->at, "an action has several ops");
    default: return quasi_no(x, b->at, "it is not an op, a loop or a choice");
    }
  return !b;
}

/* An update outside of kernels: of the same stages whatever M, and of no microbatch. */
static bool whole_update(AllM *x, const OpRef *o) {
  const Expr *const part[] = {o->chunk, o->stage, o->pipe_index};
  bool ok = !o->args || quasi_no(x, o->at, "an update of a microbatch stands outside the kernel");
  for (int i = 0; i < 3 && ok; i++)
    ok = !part[i] || free_of_m(x, part[i], "it depends on M");
  return ok;
}

static bool order_shape(AllM *x, const Stmt *b, Shape *h) {
  Quasi q;
  int64_t v;
  for (; b; b = b->next)
    switch (b->kind) {
    case ST_LET:
      if (!bind_let(x, b))
        return false;
      break;
    case ST_OP:
      if (b->op->op != PIPE_U)
        return quasi_no(x, b->at, "an op stands outside the kernel");
      if (!whole_update(x, b->op))
        return false;
      break;
    case ST_IF:
      if (!quasi(x, b->cond, &q) || !quasi_number(x, b->cond, &q, &v))
        return quasi_no(x, b->cond->at, "it depends on M");
      if (!order_shape(x, v ? b->body : b->orelse, h))
        return false;
      break;
    case ST_CLIP:
    case ST_PHASE:
      if (!order_shape(x, b->body, h))
        return false;
      break;
    case ST_DO:
    case ST_KERNEL:
    case ST_CLOCK: {
      int64_t step = 1;
      bool clock = b->kind == ST_CLOCK;
      if (h->kernel)
        return quasi_no(x, b->at, "it has two kernels or loops");
      h->kernel = b;
      if (clock && !b->value)
        return quasi_no(x, b->at, "a clock without a period");
      if (clock && !free_of_m(x, b->value, "the period depends on M"))
        return false;
      if (b->kind == ST_DO && !b->name)
        return quasi_no(x, b->at, "a loop without index");
      if (b->range.step &&
          (!quasi(x, b->range.step, &q) || (!quasi_number(x, b->range.step, &q, &step) &&
                                            !quasi_no(x, b->at, "its step depends on M"))))
        return false;
      if (step <= 0)
        return quasi_no(x, b->at, "it runs backwards");
      if (b->range.lo && (!free_of_m(x, b->range.lo, "the range begins where M says") ||
                          !quasi_index(x, b->range.lo, &q)))
        return false;
      x->env[b->slot] = (Quasi){1, step, false, false, MOST_INDEX};
      h->step = step;
      if (!body_shape(x, b->body, h))
        return false;
      if (clock && h->S != h->T)
        return quasi_no(x, b->at, "the stamps of a microbatch are not a period apart");
      break;
    }
    case ST_OPDEF:
    case ST_FN: break;
    case ST_OVERLAP: return quasi_no(x, b->at, "an action has several ops");
    default:
      return quasi_no(x, b->at, "it is not one kernel, one loop, or one clock with a period");
    }
  return true;
}

/* The ends of ranges move with M, as fast as the microbatches: over which period of M. */
static bool range_ends(AllM *x, const Stmt *b, const Shape *h) {
  Quasi q;
  for (; b; b = b->next) {
    if (b->kind == ST_LET && !bind_let(x, b))
      return false;
    if ((b->kind == ST_KERNEL || b->kind == ST_CLOCK || b->kind == ST_DO) && b->range.lo) {
      if (!quasi_index(x, b->range.hi, &q))
        return false;
      int64_t T = x->value_T / quasi_gcd(x->value_T, q.T) * q.T;
      if (T > MOST_PERIOD)
        return quasi_no(x, b->range.hi->at, "its period is too long");
      if ((__int128)q.s * x->mbs.T * h->S != (__int128)x->mbs.s * q.T * h->T * h->step)
        return quasi_no(x, b->range.hi->at, "the range does not grow as the microbatches do");
      x->value_T = T;
    }
    if ((b->kind == ST_CLIP || b->kind == ST_PHASE || b->kind == ST_IF) &&
        !range_ends(x, b->body, h))
      return false;
    if (b->kind == ST_IF && !range_ends(x, b->orelse, h))
      return false;
  }
  return true;
}

/* ---- the graph of one period ---- */

typedef struct Node {
  uint32_t kind, stage; /* kind: 0 F, 1 B or I, 2 W */
  int64_t mb;           /* of instance 0, of its pipe */
  uint32_t op;          /* of the program at hand: instance 0 */
} Node;
typedef struct Edge {
  uint32_t from, to;
  int64_t d, w;
} Edge;

typedef struct Graph {
  VEC(Node) node;
  VEC(Edge) edge;
  uint32_t *rank0; /* [nrank + 1] first node */
  uint32_t *row;   /* [3 * nstage * S] node + 1 */
  int64_t S;
} Graph;

static uint32_t kind_of(const Op *o) { return o->kind == PIPE_F ? 0 : o->kind == PIPE_W ? 2 : 1; }

static int64_t mb_of(const Sched *s, const Op *o) {
  return (int64_t)o->mb - s->model->stage[o->stage].mb0;
}

/* n ops of rank r in the middle of its order that repeat S microbatches later. NONE: there are none. */
static uint32_t find_period(const Sched *s, uint32_t r, uint32_t n, int64_t S) {
  uint32_t a = s->orders->rank_op0[r], b = s->orders->rank_op0[r + 1];
  while (b > a && s->orders->op[b - 1].kind == PIPE_U)
    b--;
  if (n == 0 || b - a < 4 * n)
    return NONE;
  uint32_t at = a + (b - a) / 2 - n;
  for (uint32_t i = at; i < at + n; i++) {
    const Op *p = &s->orders->op[i], *q = &s->orders->op[i + n];
    if (p->kind != q->kind || p->stage != q->stage || (int64_t)q->mb - p->mb != S)
      return NONE;
  }
  return at;
}

static uint32_t *row_of(const Graph *g, uint32_t kind, uint32_t stage, int64_t mb) {
  int64_t rest = mb % g->S;
  rest += rest < 0 ? g->S : 0;
  return &g->row[((int64_t)stage * 3 + kind) * g->S + rest];
}

static void add_edge(Sched *s, Graph *g, uint32_t from_kind, uint32_t stage, uint32_t to,
                     int64_t w) {
  const Node *v = &g->node.at[to];
  uint32_t u = *row_of(g, from_kind, stage, v->mb);
  if (u--)
    *vec_push(s->arena, &g->edge) = (Edge){u, to, (g->node.at[u].mb - v->mb) / g->S, w};
}

static int64_t op_time(const Sched *s, uint32_t op) {
  return (int64_t)s->model->stage[s->orders->op[op].stage].time[s->orders->op[op].kind];
}

/* How long the op after n waits for what n sends: with `send next` (comm.c). */
static int64_t hold_of(const Sched *s, const Node *n) {
  bool forward = n->kind == 0;
  int64_t most = 0;
  if (s->orders->send != SEND_NEXT || n->kind == 2)
    return 0;
  for (uint32_t k = 0; k < row_links(s, n->stage, forward); k++) {
    Link l = link_at(s, row_link(s, n->stage, forward, k));
    int64_t send = (int64_t)edge_time(s, l.edge, n->stage, forward);
    if (link_crosses(s, l) && send > most)
      most = send;
  }
  return most;
}

/* Costs on an edge are those of its tail, and of the transfer. */
static void add_edges(Sched *into, const Sched *s, Graph *g) {
  for (uint32_t r = 0; r < s->model->nrank; r++)
    for (uint32_t v = g->rank0[r]; v < g->rank0[r + 1]; v++) {
      const Node n = g->node.at[v];
      uint32_t next = v + 1 < g->rank0[r + 1] ? v + 1 : g->rank0[r];
      *vec_push(into->arena, &g->edge) = (Edge){v, next, PLANTED(ALL_RANK) ? 1 : next != v + 1,
                                                op_time(s, n.op) + hold_of(s, &n)};
      uint32_t ninput = n.kind == 2 ? 0 : row_links(s, n.stage, n.kind == 1);
      for (uint32_t k = 0; k < ninput; k++) {
        Link l = link_at(s, row_link(s, n.stage, n.kind == 1, k));
        uint32_t from = n.kind == 0 ? l.from : l.to;
        uint32_t u = *row_of(g, n.kind, from, n.mb);
        int64_t send = s->model->stage[from].rank == r
                           ? 0
                           : (int64_t)edge_time(s, l.edge, from, n.kind == 0);
        if (u && !PLANTED(ALL_DATA))
          add_edge(into, g, n.kind, from, v, op_time(s, g->node.at[u - 1].op) + send);
      }
      if (n.kind > 0) {
        uint32_t u = *row_of(g, n.kind - 1, n.stage, n.mb);
        if (u)
          add_edge(into, g, n.kind - 1, n.stage, v, op_time(s, g->node.at[u - 1].op));
      }
    }
}

/* A cycle with sum of (w * by - d * num) > 0: its edges in cycle, their number; 0: there is none, and at[]
 * solves at[to] >= at[from] + that for every edge. */
static uint32_t positive_cycle(Sched *s, const Graph *g, bool order_only, __int128 num, __int128 by,
                               __int128 *at, uint32_t *cycle) {
  uint32_t n = g->node.n, *via = arena_alloc(s->arena, n * sizeof *via + 1),
           *seen = arena_alloc(s->arena, n * sizeof *seen + 1);
  for (uint32_t v = 0; v < n; v++)
    at[v] = 0, via[v] = NONE;
  for (uint32_t round = 0;; round++) {
    bool moved = false;
    if (!work_take(s->opt->work, g->edge.n + (uint64_t)n, s->parsed->def->name_at))
      return 0;
    for (uint32_t e = 0; e < g->edge.n; e++) {
      const Edge *k = &g->edge.at[e];
      __int128 to = at[k->from] + (order_only ? 1 : k->w) * by - k->d * num;
      if (to > at[k->to])
        at[k->to] = to, via[k->to] = e, moved = true;
    }
    if (!moved)
      return 0;
    memset(seen, 0, n * sizeof *seen);
    for (uint32_t v = 0; v < n; v++) { /* a cycle of what raised what is a positive one */
      uint32_t u = v;
      while (!seen[u] && via[u] != NONE)
        seen[u] = v + 1, u = g->edge.at[via[u]].from;
      if (via[u] == NONE || seen[u] != v + 1)
        continue;
      uint32_t len = 0, end = u;
      do
        cycle[len++] = via[u], u = g->edge.at[via[u]].from;
      while (u != end);
      return len;
    }
  }
}

/* ---- the pass ---- */

static const char *node_text(Sched *s, const Sched *p, const Node *n, int64_t mb) {
  char text[OP_TEXT];
  pipe_op_text(text, (PipeOp)p->orders->op[n->op].kind, n->stage,
               (uint32_t)mb + p->model->stage[n->stage].mb0);
  return arena_printf(s->arena, "%s", text);
}

/* Each op of the cycle waits for the next. The instances shown are the earliest that exist. */
static void report_cycle(Sched *s, const Sched *p, const Graph *g, const uint32_t *cycle,
                         uint32_t n) {
  enum { SHOWN = 12 };
  int64_t turn = 0, least = INT64_MAX;
  for (uint32_t i = 0; i < n; i++) {
    int64_t mb = g->node.at[g->edge.at[cycle[i]].to].mb + turn * g->S;
    least = mb < least ? mb : least;
    turn -= g->edge.at[cycle[i]].d;
  }
  int64_t back = least / g->S;
  const Node *first = &g->node.at[g->edge.at[cycle[0]].to];
  diag_error(s->diag, DIAG_DEADLOCK, p->orders->site[p->orders->op[first->op].site],
             "deadlock for all large %s: a circle of waits comes back to %s; model: any",
             s->opt->for_all,
             turn == 0 ? "where it began" : "an op that comes after the one where it began");
  turn = -back;
  for (uint32_t i = 0; i < n && i < SHOWN; i++) {
    const Edge *e = &g->edge.at[cycle[i]];
    const Node *v = &g->node.at[e->to], *u = &g->node.at[e->from];
    int64_t at = v->mb + turn * g->S, on = u->mb + (turn -= e->d) * g->S;
    diag_note(s->diag, p->orders->site[p->orders->op[v->op].site], "rank %u: %s %s %s",
              p->model->stage[v->stage].rank, node_text(s, p, v, at),
              at == on && (u->stage != v->stage || u->kind < v->kind) ? "needs" : "comes after",
              node_text(s, p, u, on));
  }
  if (n > SHOWN)
    diag_note(s->diag, NO_SPAN, "and so on, %u more", n - SHOWN);
}

/* True: nothing is wrong. */
static bool not_decided(Sched *s, Span at, const char *text) {
  s->all_m.text = text;
  s->all_m.at = at;
  return true;
}

static bool decide(Sched *s, const Sched *p, int64_t S, const uint32_t *per_rank,
                   const uint32_t *first_of) {
  Graph g = {.S = S};
  g.rank0 = NEW_ARRAY(s->arena, uint32_t, s->model->nrank + 1);
  g.row = NEW_ARRAY(s->arena, uint32_t, (size_t)3 * s->model->nstage * (size_t)S);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    g.rank0[r] = g.node.n;
    for (uint32_t i = first_of[r]; i < first_of[r] + per_rank[r]; i++) {
      const Op *o = &p->orders->op[i];
      Node n = {kind_of(o), o->stage, mb_of(p, o), i};
      uint32_t *row = row_of(&g, n.kind, n.stage, n.mb);
      if (*row)
        return not_decided(s, p->orders->site[o->site], "an op comes twice in one period");
      *vec_push(s->arena, &g.node) = n;
      *row = g.node.n;
    }
  }
  g.rank0[s->model->nrank] = g.node.n;
  if (g.node.n > MOST_NODES)
    return not_decided(s, NO_SPAN, "a period has too many ops");
  add_edges(s, p, &g);
  __int128 *at = arena_alloc(s->arena, g.node.n * sizeof *at + 1);
  uint32_t *cycle = arena_alloc(s->arena, g.node.n * sizeof *cycle + 1), n;
  /* Length less distance times more than any length: positive if and only if the distance is not. */
  if ((n = positive_cycle(s, &g, true, g.node.n + 1, 1, at, cycle)) > 0) {
    report_cycle(s, p, &g, cycle, n);
    return false;
  }
  uint64_t num = 0, by = 1; /* Lawler: the ratio of a cycle that is too slow is the next guess */
  while ((n = positive_cycle(s, &g, false, num, by, at, cycle)) > 0) {
    num = by = 0;
    for (uint32_t i = 0; i < n; i++)
      num += (uint64_t)g.edge.at[cycle[i]].w, by += (uint64_t)g.edge.at[cycle[i]].d;
    BUG_IF(by == 0 || by > g.node.n * (uint64_t)MOST_PERIOD);
  }
  if (work_spent(s->work))
    return true;
  uint64_t common = (uint64_t)quasi_gcd((int64_t)num, (int64_t)(by * (uint64_t)S));
  s->all_m.proved = s->all_m.applied = true; /* its updates stand behind all gradients */
  s->all_m.time = num / (common ? common : 1),
  s->all_m.per = by * (uint64_t)S / (common ? common : 1);
  s->all_m.per *= s->model->npipe; /* which have the same microbatches, but for some */
  s->all_m.period = (uint64_t)S;
  verify_clock(p, S, g.node.n, (const uint32_t *)first_of, per_rank, at, num, by);
  return true;
}

/* A pipe can be without a microbatch below some M, of each residue of T another: all values up to where T in turn are
 * right, but those that are not claimed, are tried. 0: all are right; else the first that is not, and why. */
static int64_t try_least(Sched *s, const char *name, int64_t from, int64_t T, int64_t by,
                         DiagName *why) {
  Arena arena;
  Diag diag;
  Options opt;
  Sched p;
  for (int64_t m = by, right = 0; m < from && right < T; m += by) {
    bool ok = orders_at(s, &p, &arena, &diag, &opt, name, m, true, true);
    uint64_t nop = 0;
    arena_free(&arena);
    right = ok ? right + by : 0;
    if (!ok && wrong_at(s, name, m, why, &nop))
      return m;
  }
  return 0;
}

/* One period of values: what is complete there is complete for all. */
static void try_values(Sched *s, const char *name, int64_t from, int64_t T) {
  Arena arena;
  Diag diag;
  Options opt;
  Sched p;
  bool right[MOST_VALUES];
  int64_t wrong = 0; /* the first that is wrong and not excluded by what the schedule requires */
  DiagName why = DIAG_REQUIRES;
  for (int64_t i = 0; i < T; i++) {
    right[i] = orders_at(s, &p, &arena, &diag, &opt, name, from + i, true, true);
    arena_free(&arena);
    uint64_t nop = 0;
    if (!right[i] && !wrong && wrong_at(s, name, from + i, &why, &nop))
      wrong = from + i;
  }
  int64_t by = 1;
  for (bool fits = false; by <= T && !fits; by += !fits) {
    fits = T % by == 0;
    for (int64_t i = 0; i < T && fits; i++)
      fits = right[i] == ((from + i) % by == 0);
  }
  s->all_m.multiple = (uint64_t)by;
  if (!wrong && by <= T)
    wrong = try_least(s, name, from, T, by, &why);
  if (!wrong && by <= T)
    return;
  s->all_m.proved = false;
  s->all_m.refuted = wrong != 0;
  not_decided(
      s, s->parsed->def->name_at,
      wrong ? refuted_text(s, name, wrong, why)
            : arena_printf(s->arena,
                           "it is right for some %s only, which are not the multiples of a number",
                           name));
}

/* What stands in the way of any proof for all M; NULL: nothing. */
static const char *obstacle(const Sched *s, Span *at) {
  if (s->tuning->clause)
    return *at = s->tuning->clause->at, "the order is tuned for them";
  *at = s->orders->lowering_at;
  if (s->orders->lowering == PIPE_GROUPED)
    return "its transfers are not in the order that pipec finds";
  for (uint32_t i = 0; i < s->orders->noffload;
       i++) { /* else it closes no cycle: offload.c, note [copies cannot stall] */
    const Clause *c = s->orders->offload[i];
    const Expr *const part[] = {c->place, c->lead};
    for (int k = 0; k < 2; k++)
      if (part[k] && c->mb_var && hint_mentions(part[k], c->mb_var))
        return *at = part[k]->at, "it depends on the microbatch";
      else if (part[k] && expr_moves(s, s->opt->for_all, part[k]))
        return *at = part[k]->at, "it depends on M";
  }
  if (s->sides->ndecl)
    return *at = s->sides->decl[0]->at, "it has side operations";
  return NULL;
}

/* Orders of one kernel, one loop or one clock with a period, of plain ops. */
static bool prove_kernels(Sched *s, const Param *m) {
  AllM x = {.s = s, .value_T = 1};
  Quasi q;
  if (s->model->slices > 1)
    return not_decided(s, s->model->pipe[0].clause->at, "its microbatches go through in slices");
  for (uint32_t i = 0; i < s->model->nwline; i++)
    if (s->model->wline[i]->value) /* `versions`, or a read by number */
      return not_decided(s, s->model->wline[i]->at,
                         "its ops say by number which versions of the weights they need");
  for (uint32_t i = 0; i < s->orders->nop; i++)
    if (s->orders->op[i].kind == PIPE_R)
      return not_decided(s, s->orders->site[s->orders->op[i].site], "it recomputes");
  for (const Schedule *sc = s->parsed->def; sc; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c; c = c->next)
      if (c->kind == CL_RECOMPUTE && c->when &&
          ((c->mb_var && hint_mentions(c->when, c->mb_var)) || expr_moves(s, m->name, c->when)))
        return not_decided(s, c->at, "for some M it may recompute");
  x.env = NEW_ARRAY(s->arena, Quasi, s->parsed->nslot);
  clear(&x, m, false);
  bool ok = bind_all(&x, m);
  for (uint32_t k = 0; k < s->model->npipe && ok; k++) {
    const Clause *c = s->model->pipe[k].clause;
    ok = clause_free_of_m(&x, m, c->value, "the number of stages depends on it") &&
         clause_free_of_m(&x, m, c->slices, "the number of slices depends on it") &&
         clause_free_of_m(&x, m, c->place, "a place depends on it") &&
         (!c->mb_var || quasi_no(&x, c->place->at, "a place depends on the microbatch"));
  }
  for (const Schedule *sc = s->parsed->def; sc && ok; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c && ok; c = c->next) {
      for (const Entry *e = c->kind == CL_TIME ? c->entries : NULL; e && ok; e = e->next)
        ok = clause_free_of_m(&x, m, e->value, "a cost depends on it");
      const Expr *const part[] = {c->range.lo, c->range.hi, c->range.step, c->value, c->to};
      int n = c->kind == CL_EDGE ? 5 : c->kind == CL_ORDER || c->kind == CL_PIPE ? 3 : 0;
      for (int i = 0; i < n && ok; i++)
        ok = clause_free_of_m(&x, m, part[i],
                              c->kind == CL_EDGE    ? "an edge depends on it"
                              : c->kind == CL_ORDER ? "which ranks have this order depends on it"
                                                    : "which pipes there are depends on it");
      for (const Arg *a = c->kind == CL_TIE ? c->args : NULL; a && ok; a = a->next)
        ok = clause_free_of_m(&x, m, a->value, "what is tied depends on it");
      ok = ok && (c->kind != CL_RANKS ||
                  clause_free_of_m(&x, m, c->value, "the number of ranks depends on it"));
    }
  int64_t S = 1;
  Shape *shape = NEW_ARRAY(s->arena, Shape, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank && ok; r++) {
    Shape *h = &shape[r];
    *h = (Shape){1, 0, 1, NULL};
    s->eval.env[s->orders->order_clause[r]->slot] = r;
    ok = order_shape(&x, s->orders->order_clause[r]->body, h) &&
         (h->kernel || quasi_no(&x, s->orders->order_at[r], "it has no kernel"));
    if (ok)
      S = S / quasi_gcd(S, h->S) * h->S;
    if (S > MOST_PERIOD)
      ok = quasi_no(&x, s->orders->order_at[r], "its period is too long");
  }
  if (ok) { /* the counts, as functions of M */
    clear(&x, m, true);
    ok = bind_all(&x, m);
    for (uint32_t k = 0; k < s->model->npipe && ok; k++) {
      const Clause *c = s->model->pipe[k].clause;
      if (c->index)
        s->eval.env[c->index_slot] = s->model->pipe[k].index;
      ok = quasi(&x, c->mbs, &q) &&
           (q.s >= 0 ||
            quasi_no(&x, c->mbs->at, "there are fewer microbatches the larger it is")) &&
           (k == 0 || q.s * x.mbs.T == x.mbs.s * q.T ||
            quasi_no(&x, c->mbs->at, "it grows at another pace than the first pipe"));
      x.mbs = k == 0 ? q : x.mbs;
      x.value_T = ok ? x.value_T / quasi_gcd(x.value_T, q.T) * q.T : 1;
    }
    for (uint32_t r = 0; r < s->model->nrank && ok; r++) {
      s->eval.env[s->orders->order_clause[r]->slot] = r;
      ok = range_ends(&x, s->orders->order_clause[r]->body, &shape[r]);
    }
    x.value_T = x.value_T / quasi_gcd(x.value_T, S) * S;
    if (ok && x.value_T > MOST_VALUES)
      ok = quasi_no(&x, s->parsed->def->name_at, "too many values of it would have to be tried");
  }
  if (!ok) {
    not_decided(s, x.why.at, x.why.text ? x.why.text : "it has no value");
    return s->diag->errors == 0;
  }
  /* A program in which every rank has its period in the middle. */
  Arena arena;
  Diag diag;
  Options opt;
  Sched p;
  uint32_t *per = NEW_ARRAY(s->arena, uint32_t, s->model->nrank),
           *first = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  bool found = false;
  int64_t value = x.value_T;
  for (; !found; value *= 2) {
    if ((uint64_t)s->model->nstage * (uint64_t)value * 3 > MOST_OPS)
      return not_decided(s, s->parsed->def->name_at, "no rank order that repeats was found");
    found = orders_at(s, &p, &arena, &diag, &opt, m->name, value, true, false);
    for (uint32_t r = 0; r < s->model->nrank && found; r++) {
      uint32_t n = p.orders->rank_op0[r + 1] - p.orders->rank_op0[r], own = 0;
      for (uint32_t i = p.orders->rank_op0[r]; i < p.orders->rank_op0[r + 1]; i++)
        own += p.orders->op[i].kind != PIPE_U;
      uint64_t each = (uint64_t)own * (uint64_t)S / p.model->pipe[0].nmb;
      per[r] = (uint32_t)each;
      found = n > 0 && (uint64_t)own * (uint64_t)S % p.model->pipe[0].nmb == 0 &&
              (first[r] = find_period(&p, r, per[r], S)) != NONE;
    }
    if (found)
      break;
    arena_free(&arena);
  }
  ok = decide(s, &p, S, per, first);
  arena_free(&arena);
  if (ok && s->all_m.proved)
    try_values(s, m->name, value, x.value_T);
  s->all_m.step = (uint64_t)x.value_T, s->all_m.settled = (uint64_t)value;
  return ok;
}

static bool check(Sched *s) {
  const Param *m = s->parsed->def ? s->parsed->def->params : NULL;
  while (m && strcmp(m->name, s->opt->for_all) != 0)
    m = m->next;
  if (!m) {
    diag_error(s->diag, DIAG_PARAM, s->parsed->def ? s->parsed->def->name_at : NO_SPAN,
               "schedule '%s' has no parameter '%s' (--for-all)", s->model->name, s->opt->for_all);
    return false;
  }
  Span at;
  const char *why = obstacle(s, &at);
  if (why)
    return not_decided(s, at, why);
  bool ok = prove_kernels(s, m);
  if (ok && !s->all_m.proved && !s->all_m.refuted)
    prove_by_lists(s, m);
  if (ok && s->all_m.proved && (why = rest_lacks(s, m, &at)))
    s->all_m.proved = !not_decided(s, at, why);
  if (ok && s->all_m.proved)
    limits_of_m(s, m);
  if (ok && s->all_m.proved && s->opt->trial)
    try_proved(s, m);
  return ok;
}

bool check_all_m(Sched *s) {
  if (!s->opt->for_all)
    return true;
  Work work, *outer = s->work;
  work_begin(&work, work_within(outer, WORK_PROOF), true);
  s->work = s->opt->work = &work;
  bool ok = check(s);
  work_end(&work), s->work = s->opt->work = outer;
  if (!work.spent || !ok)
    return ok;
  s->all_m.proved = s->all_m.refuted = false;
  return not_decided(s, work.at, "it takes too many steps");
}

bool is_proved_for_all(const Sched *s) {
  return s->all_m.proved && (s->all_m.from <= 1 || s->all_m.below == s->all_m.from);
}
