/* SPDX-License-Identifier: MIT
 * note [clock]: the lists of lists_of_m.c agree with the data for all n >= 0 if there is a clock: a number for each op,
 * start + per_turn * j + per_n * n, that is greater for each op than for the op before it on its rank and for those
 * whose results it needs. Which op makes what an op of row x needs is a matter of microbatches: those of a row are a
 * run, from lo to hi in steps of `pace`, lo and hi linear in n; so the part of it that row y serves is a run, too.
 * Along it the difference of both clocks is linear, so it is least at one of its two ends, and there it is linear in n:
 * it is at least 1 for all n if it is for n = 0 and does not fall. That leaves, for each
 * end, one inequality between the starts of x and y, and one between the per_n of their segments; Bellman's algorithm
 * solves both once per_turn is known. That is read off a program that was played with one tick an op, or is the
 * slowest of these for all. What is complete follows from the runs alone: those of a kind and a stage meet end to end.
 *
 * Updates count in the same way: how many there were of its stage before an op is linear in j and n. */
#include <string.h>

#include "graph.h"
#include "lists_of_m.h"
#include "plant.h"
#include "quasi.h"

typedef struct Run { /* the units of a row, or the numbers of its updates */
  uint32_t rank, segment, row;
  Affine of;     /* as a function of the turn */
  Affine lo, hi; /* first and last, ascending */
  int64_t rest;  /* by the pace */
} Run;
typedef VEC(Run) Runs;

typedef struct Arc {
  uint32_t from, to;
  int64_t w;
} Arc; /* value[to] >= value[from] + w */
typedef VEC(Arc) Arcs;
typedef struct Spot {
  uint32_t rank, segment, row;
} Spot;

enum { OF_F, OF_R, OF_B, OF_W, NFAMILY };

typedef struct Proof {
  const Sched *s;
  AffineEnv *x;
  ListsOfM *l;
  Arena *a;
  Runs *family;               /* [npipe * nmodel * NFAMILY] */
  uint32_t *node0, *segment0; /* [nrank] */
  Arcs arc, slope;            /* between rows: start; between segments: per_n */
  Affine **updates;           /* [nrank][row] of its stage before this op */
} Proof;

static bool no(Proof *p, const ListRow *o, const char *why) {
  return affine_no(p->x, o ? o->at : p->s->def->name_at, why);
}

static ListRow *row_at(const Proof *p, const Run *r) { return &p->l->rank[r->rank].row.at[r->row]; }
static ListSegment *segment_at(const Proof *p, const Run *r) {
  return &p->l->rank[r->rank].segment.at[r->segment];
}
static bool is_grad(const ListRow *o) { return o->kind == PIPE_B || o->kind == PIPE_W; }

static Runs *family(const Proof *p, uint32_t pipe, uint32_t model, int kind) {
  return &p->family[((size_t)pipe * p->s->nmodel + model) * NFAMILY + (uint32_t)kind];
}

static int family_of(uint32_t kind) {
  return kind == PIPE_F ? OF_F : kind == PIPE_R ? OF_R : kind == PIPE_W ? OF_W : OF_B;
}

/* The last turn, counted from 0. */
static Affine last_turn(const ListSegment *g) { return (Affine){g->turns - 1, g->by_n, 0}; }

static bool run_of(Proof *p, uint32_t rank, uint32_t segment, uint32_t row, Affine of, int64_t pace,
                   Run *to) {
  const ListSegment *g = &p->l->rank[rank].segment.at[segment];
  Affine at = {of.a, of.n, 0}, end = affine_sum(at, last_turn(g), of.j);
  if (at.n % pace != 0)
    return affine_fail(p->x, AFFINE_STEP, pace / quasi_gcd(at.n, pace));
  int64_t rest = at.a % pace;
  *to = (Run){rank,
              segment,
              row,
              of,
              of.j < 0 ? end : at,
              of.j < 0 ? at : end,
              rest < 0 ? rest + pace : rest};
  return true;
}

static bool run_of_units(Proof *p, uint32_t rank, uint32_t segment, uint32_t row, Run *to) {
  return run_of(p, rank, segment, row, p->l->rank[rank].row.at[row].unit, p->l->pace, to);
}

static int by_start(const void *va, const void *vb) {
  const Run *a = va, *b = vb;
  if (a->rest != b->rest)
    return a->rest < b->rest ? -1 : 1;
  return a->lo.a < b->lo.a ? -1 : a->lo.a > b->lo.a;
}

/* The runs of a family in rows that meet end to end: `out` gets one run for each of these. False: two overlap. */
static bool joined(Proof *p, const Runs *f, Runs *out) {
  out->n = 0;
  for (uint32_t i = 0; i < f->n; i++) {
    const Run *r = &f->at[i];
    Run *last = out->n ? &out->at[out->n - 1] : NULL;
    bool apart;
    if (!last || last->rest != r->rest) {
      *vec_push(p->a, out) = *r;
      continue;
    }
    Affine gap = affine_sum(affine_sum(r->lo, last->hi, -1), affine(p->l->pace), -1);
    if (gap.a == 0 && gap.n == 0) {
      last->hi = r->hi;
      continue;
    }
    if (!affine_at_least_0(p->x, row_at(p, r)->at, affine_sum(gap, affine(1), -1), &apart))
      return false;
    if (!apart)
      return no(p, row_at(p, r), "an op is there twice");
    *vec_push(p->a, out) = *r;
  }
  return true;
}

/* Every F and every backward once, a W for each I. */
static bool complete(Proof *p) {
  const Sched *s = p->s;
  Runs have = {0}, want = {0};
  int64_t pace = p->l->pace;
  for (uint32_t k = 0; k < s->npipe; k++)
    for (uint32_t m = 0; m < s->nmodel; m++) {
      Affine units = p->l->units[k];
      if (units.n % pace != 0)
        return affine_fail(p->x, AFFINE_STEP, pace / quasi_gcd(units.n, pace));
      for (int kind = OF_F; kind <= OF_B; kind += OF_B - OF_F) {
        const Runs *f = family(p, k, m, kind);
        if (kind == OF_B && s->forward)
          continue;
        if (!joined(p, f, &have))
          return false;
        int64_t classes = units.n > 0 || units.a >= pace ? pace : units.a;
        bool all = have.n == classes;
        for (uint32_t i = 0; i < have.n && all; i++) {
          Affine end = affine_sum(units, have.at[i].hi, -1); /* 1 .. pace units behind it */
          all = have.at[i].lo.n == 0 && have.at[i].lo.a == have.at[i].rest && end.n == 0 &&
                end.a >= 1 && end.a <= pace;
        }
        if (!all)
          return no(p, f->n ? row_at(p, &f->at[0]) : NULL,
                    "its microbatches are not all there in runs that grow with M");
      }
      Runs split = {0};
      const Runs *b = family(p, k, m, OF_B);
      for (uint32_t i = 0; i < b->n; i++)
        if (row_at(p, &b->at[i])->kind == PIPE_I)
          *vec_push(p->a, &split) = b->at[i];
      if (!joined(p, &split, &want) || !joined(p, family(p, k, m, OF_W), &have))
        return false;
      bool same = want.n == have.n;
      for (uint32_t i = 0; i < want.n && same; i++)
        same = want.at[i].rest == have.at[i].rest && affine_same(want.at[i].lo, have.at[i].lo) &&
               affine_same(want.at[i].hi, have.at[i].hi);
      if (!same)
        return no(p, split.n ? row_at(p, &split.at[0]) : NULL, "a W is missing for some M");
      if (!joined(p, family(p, k, m, OF_R), &have))
        return false;
    }
  return true;
}

/* ---- the clock ---- */

static uint32_t node(const Proof *p, uint32_t rank, uint32_t row) { return p->node0[rank] + row; }

/* The clock of a run's row at a unit of it, less the start of the row and what per_n says. */
static Affine pace_at(const Proof *p, const Run *r, Affine unit) {
  if (r->of.j == 0)
    return affine(0);
  Affine turn = affine_sum(unit, (Affine){r->of.a, r->of.n, 0}, -1);
  turn.a /= r->of.j, turn.n /= r->of.j; /* both are multiples */
  return affine_sum(affine(0), turn, segment_at(p, r)->per_turn);
}

/* The first row of the action of a row; the last. */
static uint32_t action_first(const RankList *l, uint32_t row) {
  while (row > 0 && l->row.at[row - 1].group == l->row.at[row].group + 1)
    row--;
  return row;
}
static uint32_t action_last(const Proof *p, const RankList *l, uint32_t row) {
  return p->s->send == SEND_EAGER ? row : row + l->row.at[row].group;
}

/* Row `to` comes after row `from`, where its clock is ahead by `least`, without starts and per_n. */
static void arc(Proof *p, Spot from, Spot to, Affine least) {
  *vec_push(p->a, &p->arc) = (Arc){node(p, from.rank, from.row), node(p, to.rank, to.row),
                                   1 - least.a};
  if (from.rank != to.rank || from.segment != to.segment || least.n < 0)
    *vec_push(p->a, &p->slope) = (Arc){p->segment0[from.rank] + from.segment,
                                       p->segment0[to.rank] + to.segment, -least.n};
}

/* The units of x that y serves, where unit u of x needs u - by of y. *some: there are any. */
static bool served(Proof *p, const Run *x, const Run *y, int64_t by, int64_t pace, Affine end[2],
                   bool *some) {
  int64_t rest = (y->rest + by) % pace;
  bool later;
  *some = (rest + pace) % pace == x->rest;
  if (!*some)
    return true;
  Affine lo = affine_sum(y->lo, affine(by), 1), hi = affine_sum(y->hi, affine(by), 1);
  Span at = row_at(p, x)->at;
  if (!affine_at_least_0(p->x, at, affine_sum(x->lo, lo, -1), &later))
    return false;
  end[0] = later ? x->lo : lo;
  if (!affine_at_least_0(p->x, at, affine_sum(hi, x->hi, -1), &later))
    return false;
  end[1] = later ? x->hi : hi;
  return affine_at_least_0(p->x, at, affine_sum(end[1], end[0], -1), some);
}

/* Every op of run x needs the op of a family `by` units before its own, where there is one. */
static bool needs(Proof *p, const Run *x, const Runs *f, int64_t by) {
  for (uint32_t i = 0; i < f->n; i++) {
    const Run *y = &f->at[i];
    Affine end[2];
    bool some;
    if (!served(p, x, y, by, p->l->pace, end, &some))
      return false;
    uint32_t from = action_last(p, &p->l->rank[y->rank], y->row),
             to = action_first(&p->l->rank[x->rank], x->row);
    for (int k = 0; some && k < 2; k++)
      arc(p, (Spot){y->rank, y->segment, from}, (Spot){x->rank, x->segment, to},
          affine_sum(pace_at(p, x, end[k]), pace_at(p, y, affine_sum(end[k], affine(by), -1)), -1));
  }
  return true;
}

/* What an op needs by the model: of the stages that are next to its own. */
static bool needs_tensors(Proof *p, const Run *x, uint32_t pipe) {
  const Sched *s = p->s;
  const ListRow *o = row_at(p, x);
  bool forward = o->kind == PIPE_F;
  uint32_t m = s->stage[o->stage].model;
  if (!has_tensors(o->kind) || PLANTED(ALL_DATA))
    return true;
  if (!s->graph) {
    uint32_t other = forward ? s->stage[o->stage].prev : s->stage[o->stage].next;
    return other == NONE ||
           needs(p, x, family(p, pipe, s->stage[other].model, forward ? OF_F : OF_B), 0);
  }
  const struct StageGraph *g = s->graph;
  uint32_t first = forward ? g->in0[m] : g->out0[m], end = forward ? g->in0[m + 1] : g->out0[m + 1];
  for (uint32_t k = first; k < end; k++) {
    uint32_t other = forward ? g->edge[g->in_edge[k]].from : g->edge[k].to;
    if (!needs(p, x, family(p, pipe, other, forward ? OF_F : OF_B), 0))
      return false;
  }
  return true;
}

/* And of its own stage. */
static bool needs_own(Proof *p, const Run *x, uint32_t pipe) {
  const Sched *s = p->s;
  const ListRow *o = row_at(p, x);
  uint32_t m = s->stage[o->stage].model;
  int64_t slice = x->lo.a % s->slices, last = s->slices - 1 - slice; /* the pace is a multiple */
  const Runs *f = family(p, pipe, m, OF_F), *again = family(p, pipe, m, OF_R),
             *b = family(p, pipe, m, OF_B);
  bool ok = true;
  switch (o->kind) {
  case PIPE_F: return slice == 0 || needs(p, x, f, 1);
  case PIPE_R:
    ok = needs(p, x, f, -last);
    for (int64_t k = 1; k <= slice && ok; k++)
      ok = needs(p, x, again, k);
    return ok;
  case PIPE_B:
  case PIPE_I:
    ok = needs(p, x, f, 0) && (last == 0 || needs(p, x, b, -1));
    for (int64_t k = 0; k < s->slices && ok; k++)
      ok = needs(p, x, again, slice - k);
    return ok;
  case PIPE_W: return needs(p, x, b, 0);
  default: return true;
  }
}

static void list_arcs(Proof *p, uint32_t r) {
  const RankList *l = &p->l->rank[r];
  for (uint32_t i = 0; i < l->segment.n; i++) {
    const ListSegment *g = &l->segment.at[i], *next = g + 1;
    Spot last = {r, i, g->row0 + g->nrow - 1};
    for (uint32_t k = g->row0; k < last.row; k++)
      arc(p, (Spot){r, i, k}, (Spot){r, i, k + 1}, affine(0));
    if (g->by_n && !PLANTED(ALL_RANK))
      arc(p, last, (Spot){r, i, g->row0}, affine(g->per_turn));
    if (i + 1 < l->segment.n)
      arc(p, last, (Spot){r, i + 1, next->row0}, affine_sum(affine(0), last_turn(g), -g->per_turn));
  }
}

/* ---- updates ---- */

/* How many of each stage of a rank were before each row. */
static void count_updates(Proof *p, uint32_t r) {
  const Sched *s = p->s;
  const RankList *l = &p->l->rank[r];
  Affine *sum = NEW_ARRAY(p->a, Affine, s->nstage);
  p->updates[r] = NEW_ARRAY(p->a, Affine, l->row.n + (size_t)1);
  for (uint32_t i = 0; i < l->segment.n; i++) {
    const ListSegment *g = &l->segment.at[i];
    for (uint32_t k = g->row0; k < g->row0 + g->nrow; k++) {
      const ListRow *o = &l->row.at[k];
      Affine *to = &p->updates[r][k];
      int64_t turn = 0;
      *to = sum[o->stage];
      for (uint32_t j = g->row0; j < g->row0 + g->nrow; j++) {
        bool u = l->row.at[j].kind == PIPE_U && l->row.at[j].stage == o->stage;
        to->a += u && j < k;
        turn += u;
      }
      to->j = g->by_n ? turn : 0;
    }
    for (uint32_t k = g->row0; k < g->row0 + g->nrow; k++)
      if (l->row.at[k].kind == PIPE_U)
        sum[l->row.at[k].stage] = affine_sum(sum[l->row.at[k].stage],
                                             (Affine){g->turns, g->by_n, 0}, 1);
  }
}

/* Updates before the op of a run at a unit. */
static Affine updates_at(const Proof *p, const Run *r, Affine unit) {
  Affine n = p->updates[r->rank][r->row], turn = affine_sum(unit, r->of, -1);
  int64_t by = n.j;
  n.j = 0;
  if (r->of.j == 0)
    return n;
  return affine_sum(n, (Affine){turn.a / r->of.j, turn.n / r->of.j, 0}, by);
}

/* U(m) stands behind the gradient of m, and no update between them. */
static bool labelled(Proof *p, const Run *x, uint32_t pipe) {
  const Sched *s = p->s;
  uint32_t m = s->stage[row_at(p, x)->stage].model;
  for (int kind = OF_B; kind <= OF_W; kind++) {
    const Runs *f = family(p, pipe, m, kind);
    for (uint32_t i = 0; i < f->n; i++) {
      const Run *y = &f->at[i];
      Affine end[2];
      bool some;
      if (!is_grad(row_at(p, y)))
        continue;
      /* U(m) names the first slice; its gradient is the last that is made */
      if (!served(p, x, y, 0, p->l->pace, end, &some))
        return false;
      for (int k = 0; some && k < 2; k++)
        if (!affine_same(updates_at(p, x, end[k]), updates_at(p, y, end[k])))
          return no(p, row_at(p, x), "for some M another update comes before it");
    }
    if (!needs(p, x, f, 0))
      return false;
  }
  return true;
}

/* An update that is there once needs the last gradient before the update of row `u` on rank t, where it is in the
 * same way. */
static void needs_gradient(Proof *p, Spot to, uint32_t t, uint32_t u) {
  const RankList *of = &p->l->rank[t];
  uint32_t last = u, i = 0;
  while (last > 0 && (of->row.at[last].stage != of->row.at[u].stage || !is_grad(&of->row.at[last])))
    last--;
  while (i + 1 < of->segment.n && of->segment.at[i + 1].row0 <= last)
    i++;
  const ListSegment *g = &of->segment.at[i];
  arc(p, (Spot){t, i, action_last(p, of, last)}, to,
      affine_sum(affine(0), last_turn(g), -g->per_turn));
}

/* The updates of a stage and those of its replicas, or of tied stages, with the same numbers. Those in loops that
 * grow with M are at one time by the clock, so that each comes after all gradients. */
static bool needs_sums(Proof *p, uint32_t r, uint32_t segment, uint32_t row) {
  const Sched *s = p->s;
  const ListRow *o = &p->l->rank[r].row.at[row];
  int64_t pace = p->updates[r][row].j ? p->updates[r][row].j : 1;
  Run x, y;
  bool alone = s->stage[o->stage].replica == o->stage &&
               !(s->tie_of && s->tie_of[o->stage] != NONE);
  if (alone)
    return true;
  if (!run_of(p, r, segment, row, p->updates[r][row], pace, &x))
    return false;
  for (uint32_t at = 0, q = 0; order_member(s, o->stage, &at, &q);) {
    uint32_t t = s->stage[q].rank;
    const RankList *of = &p->l->rank[t];
    for (uint32_t i = 0; i < of->segment.n; i++)
      for (uint32_t j = of->segment.at[i].row0; j < of->segment.at[i].row0 + of->segment.at[i].nrow;
           j++) {
        Affine end[2];
        bool some;
        if (of->row.at[j].kind != PIPE_U || of->row.at[j].stage != q || (q == o->stage && j == row))
          continue;
        if (p->updates[t][j].j != 0 && p->updates[r][row].j != 0 && p->updates[t][j].j != pace)
          return no(p, o, "its replicas are not updated at one pace");
        if (!run_of(p, t, i, j, p->updates[t][j], pace, &y) ||
            !served(p, &x, &y, 0, pace, end, &some))
          return false;
        if (some && p->updates[t][j].j == 0 && p->updates[r][row].j == 0) {
          needs_gradient(p, (Spot){r, segment, row}, t, j);
          continue;
        }
        for (int k = 0; some && k < 2; k++)
          arc(p, (Spot){t, i, j}, (Spot){r, segment, row},
              affine_sum(affine_sum(pace_at(p, &x, end[k]), pace_at(p, &y, end[k]), -1), affine(1),
                         1));
      }
  }
  return true;
}

/* ---- versions of the weights that are read by number ---- */

/* The line that says what an op of a row of that kind reads at this microbatch, bound to it; NULL: none. */
static bool reading_line(Proof *p, const ListRow *o, int kind, Affine mb, const WeightLine **line) {
  const Sched *s = p->s;
  bool of_r = false, of_i = false;
  *line = NULL;
  for (uint32_t i = 0; i < s->nwline; i++) {
    of_r |= s->wline[i]->word == WW_READS && s->wline[i]->kind == PIPE_R;
    of_i |= s->wline[i]->word == WW_READS && s->wline[i]->kind == PIPE_I;
  }
  if (kind == PIPE_R && !of_r) { /* as its backward does (weights.c) */
    if (of_i)
      return no(p, o, "what R reads depends on whether a B or an I comes after it");
    kind = PIPE_B;
  }
  if (kind == PIPE_I && !of_i)
    kind = PIPE_B;
  for (uint32_t i = 0; i < s->nwline && !*line; i++) {
    const WeightLine *l = s->wline[i];
    bool holds = true;
    if (l->word != WW_READS || l->kind != kind)
      continue;
    if (l->clause->var)
      affine_bind(p->x, l->clause->slot, affine(s->stage[o->stage].model));
    if (l->clause->mb_var)
      affine_bind(p->x, l->clause->mb_slot, mb);
    if (l->when && !affine_truth(p->x, l->when, &holds))
      return false;
    if (holds)
      *line = l;
  }
  return true;
}

static bool must(Proof *p, const ListRow *o, Affine v) {
  bool yes;
  return affine_at_least_0(p->x, o->at, v, &yes) &&
         (yes || no(p, o, "for some M it reads a version that is not there"));
}

/* Of turns j of a row, before which there were so many updates and whose version is given by number, or by that of its F: they are
 * there, and a ring of so many versions has not lost them. */
static bool reads_version(Proof *p, const ListRow *o, Affine unit, Affine updates, int64_t ring) {
  const WeightLine *l;
  Affine mb, version;
  int64_t slice;
  if (!affine_divide(p->x, unit, p->s->slices, &mb, &slice) || !reading_line(p, o, o->kind, mb, &l))
    return false;
  if (l && l->source == WS_FORWARD && o->kind != PIPE_F && !reading_line(p, o, PIPE_F, mb, &l))
    return false;
  if (!l || l->source != WS_VALUE)
    return true; /* the newest; or that of its F, see reads_as_forward */
  if (!affine_eval(p->x, l->value, &version))
    return false;
  return must(p, o, version) && must(p, o, affine_sum(updates, version, -1)) &&
         (ring == 0 ||
          must(p, o, affine_sum(affine_sum(version, updates, -1), affine(ring - 1), 1)));
}

/* The same of all turns from .. from + turns + by_n * n - 1, in parts where the choices that they make differ. */
static bool reads_in_turns(Proof *p, const ListRow *o, Affine had, int64_t ring, Affine from,
                           Affine turns, int depth) {
  AffineEnv *x = p->x;
  Affine unit = affine_sum(o->unit, from, o->unit.j), updates = affine_sum(had, from, had.j);
  if (turns.n == 0) {
    for (int64_t j = 0; j < turns.a; j++)
      if (!reads_version(p, o, (Affine){unit.a + unit.j * j, unit.n, 0},
                         (Affine){updates.a + updates.j * j, updates.n, 0}, ring))
        return false;
    return true;
  }
  if (turns.a < 1)
    return affine_fail(x, AFFINE_BASE, 0);
  x->turns = turns.a, x->by_n = turns.n;
  bool ok = reads_version(p, o, unit, updates, ring);
  x->turns = x->by_n = 0;
  if (ok || x->fail != AFFINE_CROSS)
    return ok;
  Affine at = x->cross;
  if (depth == 0)
    return false;
  x->fail = AFFINE_OK;
  return must(p, o, at) && must(p, o, affine_sum(turns, at, -1)) &&
         reads_in_turns(p, o, had, ring, from, at, depth - 1) &&
         reads_in_turns(p, o, had, ring, affine_sum(from, at, 1), affine_sum(turns, at, -1),
                        depth - 1);
}

/* A ring keeps the newest version that an F has read until its backward has read it, too. */
static bool reads_as_forward(Proof *p, const Run *x, uint32_t pipe, int64_t ring) {
  const Runs *f = family(p, pipe, p->s->stage[row_at(p, x)->stage].model, OF_F);
  for (uint32_t i = 0; i < f->n; i++) {
    Affine end[2];
    bool some;
    if (!served(p, x, &f->at[i], 0, p->l->pace, end, &some))
      return false;
    for (int k = 0; some && k < 2; k++)
      if (!must(
              p, row_at(p, x),
              affine_sum(affine_sum(updates_at(p, &f->at[i], end[k]), updates_at(p, x, end[k]), -1),
                         affine(ring - 1), 1)))
        return false;
  }
  return true;
}

static bool versions_are_there(Proof *p) {
  enum { MOST_PARTS = 8 };
  const Sched *s = p->s;
  bool numbers = false, per = false;
  const WeightLine *kept = NULL;
  for (uint32_t i = 0; i < s->nwline; i++) {
    numbers |= s->wline[i]->value != NULL;
    per |= s->wline[i]->per != NULL;
    if (s->wline[i]->word == WW_VERSIONS && !kept)
      kept = s->wline[i];
  }
  if (!numbers)
    return true;
  if (per)
    return no(p, NULL, "its ops share what they read (per)");
  for (uint32_t r = 0; r < p->l->nrank; r++)
    for (uint32_t i = 0; i < p->l->rank[r].segment.n; i++) {
      const ListSegment *g = &p->l->rank[r].segment.at[i];
      for (uint32_t k = g->row0; k < g->row0 + g->nrow; k++) {
        const ListRow *o = &p->l->rank[r].row.at[k];
        uint32_t pipe = pipe_of(s, o->stage);
        int64_t ring = 0;
        Run run;
        if (o->kind == PIPE_U || o->kind == PIPE_W)
          continue;
        if (kept && kept->clause->var)
          affine_bind(p->x, kept->clause->slot, affine(s->stage[o->stage].model));
        if (kept && !affine_number(p->x, kept->value, &ring))
          return false;
        bool ok = reads_in_turns(p, o, p->updates[r][k], ring, affine(0),
                                 (Affine){g->turns, g->by_n, 0}, MOST_PARTS) &&
                  (!ring || o->kind == PIPE_F ||
                   (run_of_units(p, r, i, k, &run) && reads_as_forward(p, &run, pipe, ring)));
        if (!ok) {
          if (p->x->fail == AFFINE_TURN) /* all segments must be so much longer */
            p->l->pace *= p->x->need, p->x->fail = AFFINE_STEP, p->x->need = 1;
          return false;
        }
      }
    }
  return true;
}

/* ---- paces, from programs that were played ---- */

/* Where row `row` of a segment is in the op table of a sample, in turn j. */
static uint64_t tick_of(const Proof *p, const SampleOfM *of, uint32_t r, uint32_t segment,
                        uint32_t row, int64_t j) {
  const RankList *l = &p->l->rank[r];
  int64_t at = of->s->rank_op0[r];
  for (uint32_t i = 0; i < segment; i++)
    at += l->segment.at[i].nrow * (l->segment.at[i].turns + l->segment.at[i].by_n * of->n);
  const ListSegment *g = &l->segment.at[segment];
  return of->tick[at + g->nrow * j + (row - g->row0)];
}

/* The samples have as many ops as the lists say. */
static bool same_length(const Proof *p, const SampleOfM *of) {
  for (uint32_t r = 0; r < p->l->nrank; r++) {
    int64_t n = 0;
    const RankList *l = &p->l->rank[r];
    for (uint32_t i = 0; i < l->segment.n; i++)
      n += l->segment.at[i].nrow * (l->segment.at[i].turns + l->segment.at[i].by_n * of->n);
    if (n != (int64_t)of->s->rank_op0[r + 1] - of->s->rank_op0[r])
      return false;
  }
  return true;
}

/* What a turn takes, as num / by: over the fewest turns that take as long as those before them. */
static void turn_time(const Proof *p, const SampleOfM *of, uint32_t r, uint32_t segment,
                      int64_t *num, int64_t *by) {
  const ListSegment *g = &p->l->rank[r].segment.at[segment];
  int64_t end = g->turns + g->by_n * of->n - 1;
  for (*by = 1; 2 * *by <= end; ++*by) {
    bool even = true;
    for (uint32_t k = g->row0; k < g->row0 + g->nrow && even; k++) {
      uint64_t a = tick_of(p, of, r, segment, k, end), b = tick_of(p, of, r, segment, k, end - *by),
               c = tick_of(p, of, r, segment, k, end - 2 * *by);
      *num = (int64_t)(a - b);
      even = a - b == b - c;
    }
    if (even)
      return;
  }
  *by = end > 0 ? end : 1;
  *num = end > 0 ? (int64_t)(tick_of(p, of, r, segment, g->row0, end) -
                             tick_of(p, of, r, segment, g->row0, 0))
                 : 0;
}

/* What a turn of each segment takes; all: of the slowest. */
static bool find_paces(Proof *p, const SampleOfM *of, bool all) {
  enum { MOST_SCALE = 1 << 16 };
  int64_t scale = 1, num, by, most = 0;
  for (uint32_t r = 0; r < p->l->nrank; r++)
    for (uint32_t i = 0; i < p->l->rank[r].segment.n; i++)
      if (p->l->rank[r].segment.at[i].by_n) {
        turn_time(p, of, r, i, &num, &by);
        by /= quasi_gcd(num, by);
        scale = scale / quasi_gcd(scale, by) * by;
        if (scale > MOST_SCALE)
          return no(p, NULL, "its ranks do not come to keep one pace");
      }
  for (int again = 0; again < (all ? 2 : 1); again++)
    for (uint32_t r = 0; r < p->l->nrank; r++)
      for (uint32_t i = 0; i < p->l->rank[r].segment.n; i++) {
        ListSegment *g = &p->l->rank[r].segment.at[i];
        g->per_turn = g->per_n = 0;
        if (!g->by_n)
          continue;
        turn_time(p, of, r, i, &num, &by);
        g->per_turn = again ? most : num * scale / by;
        most = g->per_turn > most ? g->per_turn : most;
      }
  return true;
}

/* ---- all of it ---- */

/* The least values, from 0 on. False: there are none. */
static bool solve(Proof *p, const Arcs *arcs, uint32_t n, int64_t **value) {
  int64_t *at = NEW_ARRAY(p->a, int64_t, n + (size_t)1);
  bool moved = true;
  *value = at;
  for (uint32_t round = 0; moved && round <= n; round++) {
    moved = false;
    for (uint32_t i = 0; i < arcs->n; i++) {
      const Arc *e = &arcs->at[i];
      if (at[e->from] + e->w > at[e->to])
        at[e->to] = at[e->from] + e->w, moved = true;
    }
  }
  return !moved;
}

static bool solve_clock(Proof *p, uint32_t nnode, uint32_t nsegment) {
  int64_t *start, *per_n;
  if (!solve(p, &p->slope, nsegment, &per_n) || !solve(p, &p->arc, nnode, &start))
    return false;
  for (uint32_t r = 0; r < p->l->nrank; r++) {
    RankList *k = &p->l->rank[r];
    for (uint32_t i = 0; i < k->row.n; i++)
      k->row.at[i].start = start[node(p, r, i)];
    for (uint32_t i = 0; i < k->segment.n; i++)
      k->segment.at[i].per_n = per_n[p->segment0[r] + i];
  }
  return true;
}

/* Everything that an op waits for. */
static bool all_arcs(Proof *p) {
  bool ok = true;
  p->arc.n = p->slope.n = 0;
  for (uint32_t r = 0; r < p->l->nrank && ok; r++) {
    const RankList *k = &p->l->rank[r];
    list_arcs(p, r);
    for (uint32_t i = 0; i < k->segment.n && ok; i++)
      for (uint32_t j = k->segment.at[i].row0;
           j < k->segment.at[i].row0 + k->segment.at[i].nrow && ok; j++) {
        const ListRow *o = &k->row.at[j];
        uint32_t pipe = pipe_of(p->s, o->stage);
        Run run;
        if (o->kind == PIPE_U)
          ok = needs_sums(p, r, i, j) &&
               (o->whole || (run_of_units(p, r, i, j, &run) && labelled(p, &run, pipe)));
        else
          ok = run_of_units(p, r, i, j, &run) && needs_own(p, &run, pipe) &&
               needs_tensors(p, &run, pipe);
      }
  }
  return ok;
}

bool clock_of_m(const Sched *s, AffineEnv *x, ListsOfM *l, const SampleOfM *of) {
  Arena a = {.oom = s->arena->oom};
  Proof p = {.s = s, .x = x, .l = l, .a = &a};
  uint32_t nnode = 0, nsegment = 0;
  size_t nfamily = (size_t)s->npipe * s->nmodel * NFAMILY;
  l->pace = l->pace ? l->pace : 1;
  bool ok = l->pace % s->slices == 0 || affine_fail(x, AFFINE_STEP, 1);
  if (!ok)
    l->pace = l->pace / quasi_gcd(l->pace, s->slices) * s->slices;
  p.family = arena_zalloc(&a, nfamily, sizeof *p.family);
  p.node0 = NEW_ARRAY(&a, uint32_t, s->nrank);
  p.segment0 = NEW_ARRAY(&a, uint32_t, s->nrank);
  p.updates = NEW_ARRAY(&a, Affine *, s->nrank);
  for (uint32_t r = 0; r < s->nrank && ok; r++) {
    const RankList *k = &l->rank[r];
    p.node0[r] = nnode, nnode += k->row.n;
    p.segment0[r] = nsegment, nsegment += k->segment.n;
    count_updates(&p, r);
    for (uint32_t i = 0; i < k->segment.n && ok; i++)
      for (uint32_t j = k->segment.at[i].row0;
           j < k->segment.at[i].row0 + k->segment.at[i].nrow && ok; j++) {
        const ListRow *o = &k->row.at[j];
        Run run;
        if (o->kind != PIPE_U && (ok = run_of_units(&p, r, i, j, &run)))
          *vec_push(&a, family(&p, pipe_of(s, o->stage), s->stage[o->stage].model,
                               family_of(o->kind))) = run;
      }
  }
  for (size_t i = 0; i < nfamily; i++)
    if (p.family[i].n)
      qsort(p.family[i].at, p.family[i].n, sizeof(Run), by_start);
  ok = ok && complete(&p) && versions_are_there(&p);
  if (ok && !same_length(&p, of))
    ok = no(&p, NULL, "what was derived of its text is not what it does");
  bool solved = false;
  for (int all = 0; ok && !solved && all < 2; all++) {
    ok = find_paces(&p, of, all) && all_arcs(&p);
    solved = ok && solve_clock(&p, nnode, nsegment);
  }
  if (ok && !solved)
    ok = no(&p, NULL, "no clock was found for its orders");
  arena_free(&a);
  return ok;
}
