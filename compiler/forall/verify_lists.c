/* SPDX-License-Identifier: MIT
 * Verifies the lists and the clock that prove a schedule for every M (lists_of_m.h), and shares nothing with what made
 * them, but which rows have one sum (order_member) and which of its updates a U is (round_of). Everything in them is
 * linear in n, and what is linear is known from two values: so it is unrolled for n = 0, 1 and 2, compared with the
 * programs that were compiled there, and each inequality must hold at both ends of each run and not become tighter from
 * n to n + 1. Aborts on our own mistakes. Linear in the ops of these programs and what they wait for, but for sorts. */
#include <string.h>

#include "graph.h"
#include "lists_of_m.h"
#include "names.h"
#include "orders.h"
#include "weights.h"

enum { SAMPLES = 3 };

typedef struct Place {
  uint32_t row, turn;
} Place; /* of an op: row counted over all ranks */

/* What a row gives to another one, of an action that ends with row y to one that begins with row x: where that begins and ends,
 * in turns of x, and how much later x is there. */
typedef struct Pair {
  uint32_t x, y, from, to;
  int64_t turn[2], slack[2];
} Pair;
typedef VEC(Pair) Pairs;

typedef struct Unrolled {
  const Sched *s;
  Place *place;   /* [nop + ncopy], the copies behind the ops */
  int64_t *clock; /* the same */
  uint32_t *edge0[2],
      *edge
          [2]; /* of an F, of a backward: [nmodel + 1], [nedge] edges that reach the stage of a model from
                                   the side that it reads from */
  Pairs pair;
} Unrolled;

static int64_t at(Affine v, int64_t n, int64_t j) { return v.a + v.n * n + v.j * j; }

/* The ops of the sample are those of the lists; their clock. */
static void unroll(const ListsOfM *l, const Sched *s, int64_t n, Arena *a, Unrolled *u) {
  uint32_t op = 0, row0 = 0, copy = 0;
  *u = (Unrolled){.s = s};
  u->place = arena_alloc(a, (s->orders->nop + (size_t)s->orders->ncopy) * sizeof *u->place + 1);
  u->clock = arena_alloc(a, (s->orders->nop + (size_t)s->orders->ncopy) * sizeof *u->clock + 1);
  BUG_IF(l->nrank != s->model->nrank);
  for (uint32_t r = 0; r < l->nrank; row0 += l->rank[r++].row.n) {
    BUG_IF(op != s->orders->rank_op0[r]);
    for (uint32_t i = 0; i < l->rank[r].segment.n; i++) {
      const ListSegment *g = &l->rank[r].segment.at[i];
      for (int64_t j = 0; j < g->turns + g->by_n * n; j++)
        for (uint32_t k = g->row0; k < g->row0 + g->nrow; k++) {
          const ListRow *row = &l->rank[r].row.at[k];
          uint32_t self = op;
          if (row->kind == PIPE_OFF || row->kind == PIPE_LOAD) {
            const Copy *c = &s->orders->copy[copy];
            self = s->orders->nop + copy++;
            BUG_IF(copy > s->orders->ncopy || c->kind != row->kind || c->stage != row->stage ||
                   row->group || c->at != op || s->model->stage[row->stage].rank != r ||
                   c->mb != s->model->stage[row->stage].mb0 + at(row->unit, n, j));
            u->place[self] = (Place){row0 + k, (uint32_t)j};
            u->clock[self] = row->start + g->per_turn * j + g->per_n * n;
            continue;
          }
          BUG_IF(op >= s->orders->nop || s->orders->op[op].kind != row->kind ||
                 s->orders->op[op].stage != row->stage || s->orders->op[op].group != row->group ||
                 s->model->stage[row->stage].rank != r);
          BUG_IF(row->whole ? s->orders->op[op].mb != NONE
                            : s->orders->op[op].mb !=
                                  s->model->stage[row->stage].mb0 + at(row->unit, n, j));
          u->place[self] = (Place){row0 + k, (uint32_t)j};
          u->clock[self] = row->start + g->per_turn * j + g->per_n * n;
          op++;
        }
    }
  }
  BUG_IF(op != s->orders->nop || copy != s->orders->ncopy);
}

/* The edges of the model by the stage that reads them. */
static void sort_edges(Unrolled *u, Arena *a) {
  const Sched *s = u->s;
  for (int back = 0; s->model->graph && back < 2; back++) {
    uint32_t n = s->model->graph->nedge,
             *first = NEW_ARRAY(a, uint32_t, s->model->nmodel + (size_t)2);
    u->edge[back] = arena_alloc(a, n * sizeof *u->edge[back] + 1);
    u->edge0[back] = first;
    for (uint32_t e = 0; e < n; e++)
      first[(back ? s->model->graph->edge[e].from : s->model->graph->edge[e].to) + 2]++;
    for (uint32_t m = 0; m < s->model->nmodel; m++)
      first[m + 2] += first[m + 1];
    for (uint32_t e = 0; e < n; e++)
      u->edge[back]
             [first[(back ? s->model->graph->edge[e].from : s->model->graph->edge[e].to) + 1]++] =
          e;
  }
}

/* Op y must be over before the action of x begins. A copy is no action, and numbers behind the ops are copies. */
static void later(Unrolled *u, Arena *a, uint32_t x, uint32_t y) {
  const Sched *s = u->s;
  uint32_t own = x, from = u->place[y].row;
  while (own < s->orders->nop && own > s->orders->rank_op0[op_rank(s, x)] &&
         s->orders->op[own - 1].group == s->orders->op[own].group + 1)
    own--;
  y = s->orders->send == SEND_EAGER || y >= s->orders->nop ? y : y + s->orders->op[y].group;
  *vec_push(a, &u->pair) = (Pair){u->place[own].row,
                                  u->place[y].row,
                                  from,
                                  u->place[x].row,
                                  {u->place[own].turn, u->place[y].turn},
                                  {u->clock[own] - u->clock[y], 0}};
}

/* A stash leaves once it is made, comes back, and meanwhile nobody reads it: of microbatches that are not in slices. */
static void copied(Unrolled *u, Arena *a, uint32_t copy) {
  const Sched *s = u->s;
  const Copy *c = &s->orders->copy[copy];
  size_t cell = (size_t)c->stage * s->model->nmb + c->mb;
  uint32_t off = s->orders->at_off[cell] - 1, load = s->orders->at_load[cell] - 1,
           b = s->orders->at_b[cell] - 1;
  BUG_IF(s->model->slices > 1 || s->orders->at_r[cell]);
  if (c->kind == PIPE_LOAD)
    return;
  BUG_IF(off != copy || load == NONE);
  later(u, a, s->orders->nop + off, s->orders->at_f[cell] - 1);
  later(u, a, s->orders->nop + load, s->orders->nop + off);
  if (s->orders->at_w[cell])
    later(u, a, s->orders->at_w[cell] - 1, s->orders->nop + load);
  if (s->orders->at_w[cell] && s->orders->copy[off].at > b)
    later(u, a, s->orders->nop + off, b);
  else
    later(u, a, b, s->orders->nop + load);
}

/* What op x waits for: from the model, not from what the passes made of it. */
static void waits(Unrolled *u, Arena *a, uint32_t x) {
  const Sched *s = u->s;
  const Op *o = &s->orders->op[x];
  const PipeStage *st = &s->model->stage[o->stage];
  if (o->kind == PIPE_U) {
    for (uint32_t k = 0; o->mb != NONE && k < s->model->slices; k++) {
      size_t cell = (size_t)o->stage * s->model->nmb + o->mb + k;
      later(u, a, x, (s->orders->at_w[cell] ? s->orders->at_w[cell] : s->orders->at_b[cell]) - 1);
    }
    uint32_t q = 0, number = round_of(s, x) - s->orders->round0[o->stage];
    for (uint32_t k = 0; order_member(s, o->stage, &k, &q);)
      later(u, a, x, s->orders->round[s->orders->round0[q] + number].grad);
    return;
  }
  size_t cell = (size_t)o->stage * s->model->nmb + o->mb, first = cell - o->mb % s->model->slices;
  bool forward = o->kind == PIPE_F, backward = o->kind == PIPE_B || o->kind == PIPE_I;
  uint32_t slice = o->mb % s->model->slices;
  if (o->kind == PIPE_W)
    later(u, a, x, s->orders->at_b[cell] - 1);
  if (o->kind == PIPE_R) {
    later(u, a, x, s->orders->at_f[first + s->model->slices - 1] - 1);
    for (uint32_t k = 0; k < slice; k++)
      if (s->orders->at_r[first + k])
        later(u, a, x, s->orders->at_r[first + k] - 1);
  }
  if (backward) {
    later(u, a, x, s->orders->at_f[cell] - 1);
    for (uint32_t k = 0; k < s->model->slices; k++)
      if (s->orders->at_r[first + k])
        later(u, a, x, s->orders->at_r[first + k] - 1);
    if (slice + 1 < s->model->slices)
      later(u, a, x, s->orders->at_b[cell + 1] - 1);
  }
  if (forward && slice > 0)
    later(u, a, x, s->orders->at_f[cell - 1] - 1);
  if (!forward && !backward)
    return;
  const uint32_t *edge0 = u->edge0[backward], *edge = u->edge[backward];
  for (uint32_t k = s->model->graph ? edge0[st->model] : 0;
       s->model->graph && k < edge0[st->model + 1]; k++) {
    const PipeEdge *g = &s->model->graph->edge[edge[k]];
    uint32_t other = forward ? g->from : g->to;
    size_t at_other = (size_t)s->model->graph->row[(size_t)other * s->model->nmb + o->mb] *
                          s->model->nmb +
                      o->mb;
    later(u, a, x, (forward ? s->orders->at_f : s->orders->at_b)[at_other] - 1);
  }
  uint32_t other = forward ? st->prev : st->next;
  if (!s->model->graph && other != PIPE_NONE)
    later(u, a, x,
          (forward ? s->orders->at_f : s->orders->at_b)[(size_t)other * s->model->nmb + o->mb] - 1);
}

static int by_rows(const void *va, const void *vb) {
  const Pair *a = va, *b = vb;
  if (a->x != b->x)
    return a->x < b->x ? -1 : 1;
  if (a->y != b->y)
    return a->y < b->y ? -1 : 1;
  if (a->from != b->from)
    return a->from < b->from ? -1 : 1;
  if (a->to != b->to)
    return a->to < b->to ? -1 : 1;
  if (a->turn[0] != b->turn[0])
    return a->turn[0] < b->turn[0] ? -1 : 1;
  return a->turn[1] < b->turn[1] ? -1 : a->turn[1] > b->turn[1];
}

static bool same_rows(const Pair *a, const Pair *b) {
  return a->x == b->x && a->y == b->y && a->from == b->from && a->to == b->to;
}

/* One pair for the same rows, with what it is at its first turn and at its last. */
static void collect(Unrolled *u) {
  uint32_t n = 0;
  if (u->pair.n)
    qsort(u->pair.at, u->pair.n, sizeof *u->pair.at, by_rows);
  for (uint32_t i = 0; i < u->pair.n; i++) {
    Pair p = u->pair.at[i], *last = n ? &u->pair.at[n - 1] : NULL;
    BUG_IF(p.slack[0] < 1);
    if (last && same_rows(last, &p)) {
      last->turn[1] = p.turn[0], last->slack[1] = p.slack[0];
      continue;
    }
    u->pair.at[n++] = (Pair){
        p.x, p.y, p.from, p.to, {p.turn[0], p.turn[0]}, {p.slack[0], p.slack[0]}};
  }
  u->pair.n = n;
}

/* Values for n = 0, 1 and 2 of what is linear, and at least `least` for all n. */
static void linear(int64_t a, int64_t b, int64_t c, int64_t least) {
  BUG_IF(b - a != c - b || a < least || b < a);
}

static int64_t slack_in_list(const ListSegment *g, const ListRow *row, const ListSegment *next,
                             const ListRow *of, int64_t n) {
  return of->start + next->per_n * n -
         (row->start + g->per_turn * (g->turns + g->by_n * n - 1) + g->per_n * n);
}

/* The clock goes on from row to row, from turn to turn and from segment to segment. */
static void verify_rank(const RankList *l) {
  for (uint32_t i = 0; i < l->segment.n; i++) {
    const ListSegment *g = &l->segment.at[i], *next = g + 1;
    const ListRow *row = &l->row.at[g->row0], *last = row + g->nrow - 1;
    BUG_IF(g->turns < 1 || g->by_n < 0 || (g->by_n == 0 && g->turns != 1));
    for (const ListRow *k = row; k < last; k++)
      BUG_IF(k[1].start <= k->start);
    BUG_IF(g->by_n && row->start + g->per_turn <= last->start);
    if (i + 1 < l->segment.n) {
      const ListRow *of = &l->row.at[next->row0];
      linear(slack_in_list(g, last, next, of, 0), slack_in_list(g, last, next, of, 1),
             slack_in_list(g, last, next, of, 2), 1);
    }
  }
}

typedef struct Stretch { /* the units of a row, for n = 0 and 1 */
  uint32_t stage, kind;  /* kind: 0 F, 1 B or I, 2 W, 3 R, 4 U(m), 5 U, 6 OFF, 7 LOAD */
  int64_t rest, lo[2], hi[2];
} Stretch;

static int by_unit(const void *va, const void *vb) {
  const Stretch *a = va, *b = vb;
  if (a->stage != b->stage)
    return a->stage < b->stage ? -1 : 1;
  if (a->kind != b->kind)
    return a->kind < b->kind ? -1 : 1;
  if (a->rest != b->rest)
    return a->rest < b->rest ? -1 : 1;
  return a->lo[0] < b->lo[0] ? -1 : a->lo[0] > b->lo[0];
}

/* A difference that never changes its sign after n = 0 and 1. */
static void stable(int64_t d0, int64_t d1) {
  BUG_IF(d0 == 0 ? d1 != 0 : d0 > 0 ? d1 < d0 : d1 > d0);
}

/* The runs of each kind and stage keep their order and their gaps for all n, so that what was found complete for
 * n = 0 and 1 is so for all; and those that meet go on to meet at the same ends. */
static void verify_runs(const ListsOfM *l, const Sched *s, const Pairs *pair, Arena *a) {
  VEC(Stretch) run = {0};
  uint32_t *pipe_of_stage = NEW_ARRAY(a, uint32_t, s->model->nstage);
  for (uint32_t st = 0; st < s->model->nstage; st++)
    while (pipe_of_stage[st] + 1 < s->model->npipe &&
           s->model->stage[st].mb0 >= s->model->pipe[pipe_of_stage[st] + 1].mb0)
      pipe_of_stage[st]++;
  for (uint32_t r = 0; r < l->nrank; r++)
    for (uint32_t i = 0; i < l->rank[r].segment.n; i++) {
      const ListSegment *g = &l->rank[r].segment.at[i];
      for (uint32_t k = g->row0; k < g->row0 + g->nrow; k++) {
        const ListRow *o = &l->rank[r].row.at[k];
        uint32_t st = o->stage, pipe = pipe_of_stage[st];
        BUG_IF(g->by_n && !o->whole && o->unit.j != l->pace && o->unit.j != -l->pace);
        Stretch to = {.stage = pipe * s->model->nmodel + s->model->stage[st].model,
                      .kind = o->kind == PIPE_F      ? 0
                              : o->kind == PIPE_W    ? 2
                              : o->kind == PIPE_R    ? 3
                              : o->kind == PIPE_U    ? (o->whole ? 5u : 4u)
                              : o->kind == PIPE_OFF  ? 6
                              : o->kind == PIPE_LOAD ? 7
                                                     : 1};
        for (int64_t n = 0; n < 2; n++) {
          int64_t from = at(o->unit, n, 0), end = at(o->unit, n, g->turns + g->by_n * n - 1);
          to.lo[n] = from < end ? from : end, to.hi[n] = from < end ? end : from;
        }
        to.rest = to.lo[0] % l->pace;
        BUG_IF(o->whole ? to.lo[0] != 0
                        : to.lo[0] < 0 || to.lo[1] % l->pace != to.rest || to.lo[1] < to.lo[0] ||
                              to.hi[1] < to.hi[0]);
        *vec_push(a, &run) = to;
      }
    }
  for (uint32_t i = 0; i < pair->n; i++) {
    const Stretch *b = &run.at[pair->at[i].to], *c = &run.at[pair->at[i].from];
    if (b->kind == 4 || b->kind == 5)
      continue;
    BUG_IF(b->rest / s->model->slices != c->rest / s->model->slices);
    stable(b->lo[0] / s->model->slices - c->lo[0] / s->model->slices,
           b->lo[1] / s->model->slices - c->lo[1] / s->model->slices);
    stable(b->hi[0] / s->model->slices - c->hi[0] / s->model->slices,
           b->hi[1] / s->model->slices - c->hi[1] / s->model->slices);
  }
  if (run.n)
    qsort(run.at, run.n, sizeof *run.at, by_unit);
  for (uint32_t i = 1; i < run.n; i++) {
    const Stretch *b = &run.at[i], *c = b - 1;
    bool same = b->stage == c->stage && b->kind == c->kind && b->rest == c->rest && b->kind != 5;
    if (!same)
      continue;
    int64_t gap0 = b->lo[0] - c->hi[0] - l->pace, gap1 = b->lo[1] - c->hi[1] - l->pace;
    BUG_IF(gap0 < 0 || gap1 < gap0 || (b->kind < 2 && gap1 != 0));
  }
}

/* ---- versions of the weights ---- */

/* Do all ops of this kind say by number which version they read? Those that read the newest, or what an F has found
 * there, may fall back by however much. */
static bool by_number(const Sched *s, int kind) {
  bool some = false, always = false, number = true, own = false;
  for (uint32_t i = 0; i < s->model->nwline; i++)
    own |= s->model->wline[i]->word == WW_READS && s->model->wline[i]->kind == kind;
  if (kind == PIPE_R && !own)
    return false;
  kind = kind == PIPE_I && !own ? PIPE_B : kind;
  for (uint32_t i = 0; i < s->model->nwline; i++) {
    const WeightLine *w = s->model->wline[i];
    if (w->word != WW_READS || w->kind != kind)
      continue;
    some = true, always |= !w->when;
    number &= w->source == WS_VALUE ||
              (w->source == WS_FORWARD && kind != PIPE_F && by_number(s, PIPE_F));
  }
  return some && always && number;
}

/* What is least in each row: updates less versions that are read, and what a ring has left of them. */
typedef struct Kept {
  int64_t least, ring;
} Kept;

static Kept *kept(const Sched *s, const Unrolled *u, Arena *a, uint32_t nrow) {
  Kept *to = arena_alloc(a, nrow * sizeof *to + 1);
  int64_t *had = NEW_ARRAY(a, int64_t, s->model->nstage);
  const WeightLine *ring = NULL;
  Sched own = *s; /* for its diag: no value can fail that had one */
  for (uint32_t i = 0; i < nrow; i++)
    to[i] = (Kept){INT64_MAX, INT64_MAX};
  for (uint32_t i = 0; i < s->model->nwline; i++)
    ring = s->model->wline[i]->word == WW_VERSIONS ? s->model->wline[i] : ring;
  for (uint32_t x = 0; x < s->orders->nop; x++) {
    const Op *o = &s->orders->op[x];
    Kept *k = &to[u->place[x].row];
    int64_t n = INT64_MAX, back = had[o->stage] - s->versions->weights[x].version;
    had[o->stage] += o->kind == PIPE_U;
    if (o->kind == PIPE_U || o->kind == PIPE_W)
      continue;
    BUG_IF(back < 0);
    if (ring && ring->clause->var)
      s->eval.env[ring->clause->slot] = s->model->stage[o->stage].model;
    BUG_IF(ring && !eval(&own, ring->value, &n));
    BUG_IF(back >= n);
    k->least = back < k->least ? back : k->least;
    if (ring) /* else all that are read are kept */
      k->ring = n - 1 - back < k->ring ? n - 1 - back : k->ring;
  }
  return to;
}

/* Versions that ops read by number have been made and not been overwritten, and get no nearer to either from n to n + 1. */
static void verify_versions(const ListsOfM *l, const Unrolled u[SAMPLES], Arena *a) {
  const Sched *s = u[0].s;
  Kept *at[SAMPLES];
  bool number[PIPE_NOPS], any = false;
  uint32_t nrow = 0, row = 0;
  for (int kind = 0; kind < PIPE_NOPS; kind++)
    any |= number[kind] = kind != PIPE_U && kind != PIPE_W && by_number(s, kind);
  if (!any)
    return;
  for (uint32_t r = 0; r < l->nrank; r++)
    nrow += l->rank[r].row.n;
  for (int n = 0; n < SAMPLES; n++)
    at[n] = kept(u[n].s, &u[n], a, nrow);
  for (uint32_t r = 0; r < l->nrank; r++)
    for (uint32_t k = 0; k < l->rank[r].row.n; k++, row++)
      for (int n = 0; n + 1 < SAMPLES && number[l->rank[r].row.at[k].kind]; n++)
        BUG_IF(at[n + 1][row].least < at[n][row].least || at[n + 1][row].ring < at[n][row].ring);
}

void verify_lists(const ListsOfM *l, const Sched *const sample[SAMPLES]) {
  Arena a = {.oom = sample[0]->arena->oom};
  Unrolled u[SAMPLES];
  for (int n = 0; n < SAMPLES; n++) {
    unroll(l, sample[n], n, &a, &u[n]);
    sort_edges(&u[n], &a);
    for (uint32_t x = 0; x < sample[n]->orders->nop; x++)
      waits(&u[n], &a, x);
    for (uint32_t x = 0; x < sample[n]->orders->ncopy; x++)
      copied(&u[n], &a, x);
    collect(&u[n]);
    BUG_IF(u[n].pair.n != u[0].pair.n);
  }
  for (uint32_t r = 0; r < l->nrank; r++)
    verify_rank(&l->rank[r]);
  for (uint32_t i = 0; i < u[0].pair.n; i++) {
    const Pair *p = &u[0].pair.at[i], *q = &u[1].pair.at[i], *o = &u[2].pair.at[i];
    BUG_IF(!same_rows(p, q) || !same_rows(p, o));
    for (int k = 0; k < 2; k++) {
      linear(p->turn[k], q->turn[k], o->turn[k], 0);
      linear(p->slack[k], q->slack[k], o->slack[k], 1);
    }
  }
  verify_runs(l, sample[0], &u[0].pair, &a);
  verify_versions(l, u, &a);
  arena_free(&a);
}
