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
 * Updates count in the same way: how many there were of its stage before an op is linear in j and n.
 *
 * Sorts of the rows apart, linear in rows and arcs, times the rounds of differences.c: the runs of an op do not overlap,
 * so those that serve a run are found by bisection. There is an arc for each two runs of which one serves the other, of
 * which there are no more than edges times rows, but for updates: each waits for all stages that it sums over. */
#include "clock_of_m.h"
#include "orders.h"

#include <string.h>

#include "graph.h"
#include "plant.h"
#include "quasi.h"

bool proof_no(Proof *p, const ListRow *o, const char *why) {
  return affine_no(p->x, o ? o->at : p->s->parsed->def->name_at, why);
}

static ListSegment *segment_at(const Proof *p, const Run *r) {
  return &p->l->rank[r->rank].segment.at[r->segment];
}
static bool is_grad(const ListRow *o) { return o->kind == PIPE_B || o->kind == PIPE_W; }

static Runs *family(const Proof *p, uint32_t pipe, uint32_t model, int kind) {
  return &p->family[((size_t)pipe * p->s->model->nmodel + model) * NFAMILY + (uint32_t)kind];
}

const Runs *proof_family(const Proof *p, uint32_t stage, int kind) {
  return family(p, p->pipe[stage], p->s->model->stage[stage].model, kind);
}

static int family_of(uint32_t kind) {
  return kind == PIPE_F      ? OF_F
         : kind == PIPE_R    ? OF_R
         : kind == PIPE_W    ? OF_W
         : kind == PIPE_OFF  ? OF_OFF
         : kind == PIPE_LOAD ? OF_LOAD
                             : OF_B;
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

bool proof_run_of_units(Proof *p, uint32_t rank, uint32_t segment, uint32_t row, Run *to) {
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
      return proof_no(p, row_at(p, r), "an op is there twice");
    *vec_push(p->a, out) = *r;
  }
  return true;
}

static bool same_runs(const Runs *a, const Runs *b) {
  bool same = a->n == b->n;
  for (uint32_t i = 0; i < a->n && same; i++)
    same = a->at[i].rest == b->at[i].rest && affine_same(a->at[i].lo, b->at[i].lo) &&
           affine_same(a->at[i].hi, b->at[i].hi);
  return same;
}

/* Every F and every backward once, a W for each I, a LOAD for each OFF. */
static bool complete(Proof *p) {
  const Sched *s = p->s;
  Runs have = {0}, want = {0};
  int64_t pace = p->l->pace;
  for (uint32_t k = 0; k < s->model->npipe; k++)
    for (uint32_t m = 0; m < s->model->nmodel; m++) {
      Affine units = p->l->units[k];
      if (units.n % pace != 0)
        return affine_fail(p->x, AFFINE_STEP, pace / quasi_gcd(units.n, pace));
      for (int kind = OF_F; kind <= OF_B; kind += OF_B - OF_F) {
        const Runs *f = family(p, k, m, kind);
        if (kind == OF_B && s->model->forward)
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
          return proof_no(p, f->n ? row_at(p, &f->at[0]) : NULL,
                          "its microbatches are not all there in runs that grow with M");
      }
      Runs split = {0};
      const Runs *b = family(p, k, m, OF_B);
      for (uint32_t i = 0; i < b->n; i++)
        if (row_at(p, &b->at[i])->kind == PIPE_I)
          *vec_push(p->a, &split) = b->at[i];
      if (!joined(p, &split, &want) || !joined(p, family(p, k, m, OF_W), &have))
        return false;
      if (!same_runs(&want, &have))
        return proof_no(p, split.n ? row_at(p, &split.at[0]) : NULL, "a W is missing for some M");
      if (!joined(p, family(p, k, m, OF_R), &have) || !joined(p, family(p, k, m, OF_OFF), &want) ||
          !joined(p, family(p, k, m, OF_LOAD), &have))
        return false;
      if (!same_runs(&want, &have))
        return proof_no(p, row_at(p, want.n ? &want.at[0] : &have.at[0]),
                        "an OFF or its LOAD is missing for some M");
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
  return p->s->orders->send == SEND_EAGER ? row : row + l->row.at[row].group;
}

/* Row `to` comes after row `from`, where its clock is ahead by `least`, without starts and per_n. */
static void arc(Proof *p, Spot from, Spot to, Affine least) {
  *vec_push(p->a, &p->arc) = (Arc){node(p, from.rank, from.row), node(p, to.rank, to.row),
                                   1 - least.a};
  if (from.rank != to.rank || from.segment != to.segment || least.n < 0)
    *vec_push(p->a, &p->slope) = (Arc){p->segment0[from.rank] + from.segment,
                                       p->segment0[to.rank] + to.segment, -least.n};
}

/* Is it so for all n? */
static bool below_0(Affine v) { return v.a < 0 && v.n <= 0; }

/* Of r[first .. end), whose lo and hi ascend, and that for all n: those that are not below lo, or above hi, for all n. */
static void bisect(const Run *r, uint32_t *first, uint32_t *end, Affine lo, Affine hi) {
  uint32_t a = *first, b = *end;
  while (a < b) {
    uint32_t mid = a + (b - a) / 2;
    if (below_0(affine_sum(r[mid].hi, lo, -1)))
      a = mid + 1;
    else
      b = mid;
  }
  *first = a, b = *end;
  while (a < b) {
    uint32_t mid = a + (b - a) / 2;
    if (below_0(affine_sum(hi, r[mid].lo, -1)))
      b = mid;
    else
      a = mid + 1;
  }
  *end = a;
}

/* The first run of a family whose rest is not less. */
static uint32_t first_of_rest(const Runs *f, int64_t rest) {
  uint32_t a = 0, b = f->n;
  while (a < b) {
    uint32_t mid = a + (b - a) / 2;
    if (f->at[mid].rest < rest)
      a = mid + 1;
    else
      b = mid;
  }
  return a;
}

/* Of a family: its runs from *first to *end - 1 are all that may have, for some n, a unit that is `by` less than one of x. */
static void candidates(const Proof *p, const Runs *f, const Run *x, int64_t by, uint32_t *first,
                       uint32_t *end) {
  int64_t pace = p->l->pace, rest = ((x->rest - by) % pace + pace) % pace;
  *first = first_of_rest(f, rest), *end = first_of_rest(f, rest + 1);
  bisect(f->at, first, end, affine_sum(x->lo, affine(by), -1), affine_sum(x->hi, affine(by), -1));
}

/* The units of x that y serves, where unit u of x needs u - by of y: from end[0] to end[1]. *some: there are any. */
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

bool proof_next(Proof *p, const Runs *f, const Run *x, int64_t by, Serving *k) {
  bool some;
  if (!k->begun)
    candidates(p, f, x, by, &k->next, &k->last), k->begun = true;
  while (k->next < k->last) {
    if (!work_take(p->s->opt->work, 8, row_at(p, x)->at))
      return k->failed = true, proof_no(p, row_at(p, x), "it takes too many steps");
    k->run = &f->at[k->next++];
    k->failed = !served(p, x, k->run, by, p->l->pace, k->end, &some);
    if (some || k->failed)
      return !k->failed;
  }
  return false;
}

/* Every op of run x needs the op of a family `by` units before its own, where there is one. */
static bool needs(Proof *p, const Run *x, const Runs *f, int64_t by) {
  Serving k = {0};
  while (proof_next(p, f, x, by, &k)) {
    const Run *y = k.run;
    uint32_t from = action_last(p, &p->l->rank[y->rank], y->row),
             to = action_first(&p->l->rank[x->rank], x->row);
    for (int i = 0; i < 2; i++)
      arc(p, (Spot){y->rank, y->segment, from}, (Spot){x->rank, x->segment, to},
          affine_sum(pace_at(p, x, k.end[i]), pace_at(p, y, affine_sum(k.end[i], affine(by), -1)),
                     -1));
  }
  return !k.failed;
}

/* What an op needs by the model: of the stages that are next to its own. */
static bool needs_tensors(Proof *p, const Run *x) {
  const Sched *s = p->s;
  const ListRow *o = row_at(p, x);
  bool forward = o->kind == PIPE_F;
  uint32_t m = s->model->stage[o->stage].model, pipe = p->pipe[o->stage];
  if (!has_tensors(o->kind) || PLANTED(ALL_DATA))
    return true;
  if (!s->model->graph) {
    uint32_t other = forward ? s->model->stage[o->stage].prev : s->model->stage[o->stage].next;
    return other == NONE || needs(p, x, proof_family(p, other, forward ? OF_F : OF_B), 0);
  }
  const struct StageGraph *g = s->model->graph;
  uint32_t first = forward ? g->in0[m] : g->out0[m], end = forward ? g->in0[m + 1] : g->out0[m + 1];
  for (uint32_t k = first; k < end; k++) {
    uint32_t other = forward ? g->edge[g->in_edge[k]].from : g->edge[k].to;
    if (!needs(p, x, family(p, pipe, other, forward ? OF_F : OF_B), 0))
      return false;
  }
  return true;
}

/* At n = 0, and a unit that both have: does run x stand before run y, which is of its rank? */
static bool stands_before(const Run *x, const Run *y, Affine unit) {
  int64_t i = x->of.j ? (unit.a - x->of.a) / x->of.j : 0,
          j = y->of.j ? (unit.a - y->of.a) / y->of.j : 0;
  if (x->segment != y->segment)
    return x->segment < y->segment;
  return i != j ? i < j : x->row < y->row;
}

/* No op of a family is of a unit of x. */
static bool none_of(Proof *p, const Run *x, const Runs *f) {
  Serving k = {0};
  if (proof_next(p, f, x, 0, &k))
    return proof_no(p, row_at(p, x), "a stash is copied and made again");
  return !k.failed;
}

/* An op that reads a stash stands behind its LOAD; an I may stand before its OFF instead, where that waits for a W. */
static bool needs_stash(Proof *p, const Run *x) {
  const ListRow *o = row_at(p, x);
  const Runs *off = proof_family(p, o->stage, OF_OFF), *load = proof_family(p, o->stage, OF_LOAD);
  uint32_t before = 0, behind = 0;
  Serving k = {0};
  while (o->kind == PIPE_I && proof_next(p, off, x, 0, &k)) {
    const Run *y = k.run;
    bool first = stands_before(x, y, k.end[0]);
    before += first, behind += !first;
    for (int i = 0; first && i < 2; i++)
      arc(p, (Spot){x->rank, x->segment, action_last(p, &p->l->rank[x->rank], x->row)},
          (Spot){y->rank, y->segment, y->row},
          affine_sum(pace_at(p, y, k.end[i]), pace_at(p, x, k.end[i]), -1));
  }
  if (k.failed)
    return false;
  if (before && behind)
    return proof_no(p, o, "some of these stashes are copied before it and some behind it");
  return before || needs(p, x, load, 0);
}

/* And of its own stage. */
static bool needs_own(Proof *p, const Run *x) {
  const Sched *s = p->s;
  const ListRow *o = row_at(p, x);
  int64_t slice = x->lo.a % s->model->slices,
          last = s->model->slices - 1 - slice; /* the pace is a multiple */
  const Runs *f = proof_family(p, o->stage, OF_F), *again = proof_family(p, o->stage, OF_R),
             *b = proof_family(p, o->stage, OF_B);
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
    for (int64_t k = 0; k < s->model->slices && ok; k++)
      ok = needs(p, x, again, slice - k);
    return ok;
  case PIPE_W: return needs(p, x, b, 0);
  case PIPE_OFF: return needs(p, x, f, 0) && none_of(p, x, again);
  case PIPE_LOAD: return needs(p, x, proof_family(p, o->stage, OF_OFF), 0);
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

typedef struct Counts {   /* by stage, of the rank at hand */
  int64_t *turn, *before; /* in a turn of the segment at hand, in that turn before this row */
  Affine *sum;            /* in the segments before */
  Spot *gradient;         /* the last one before this row */
} Counts;

/* How many of its stage were before each row of a rank, and the gradient before each U. */
static bool count_updates(Proof *p, uint32_t r, Counts *c) {
  const Sched *s = p->s;
  const RankList *l = &p->l->rank[r];
  Affine *updates = p->updates[r] = NEW_ARRAY(p->a, Affine, l->row.n + (size_t)1);
  Spot *gradient = p->gradient[r] = arena_alloc(p->a, l->row.n * sizeof *gradient + 1);
  for (uint32_t k = s->model->rank_stage0[r]; k < s->model->rank_stage0[r + 1]; k++)
    c->gradient[s->model->rank_stage[k]].row = NONE;
  for (uint32_t i = 0; i < l->segment.n; i++) {
    const ListSegment *g = &l->segment.at[i];
    uint32_t end = g->row0 + g->nrow;
    for (uint32_t k = g->row0; k < end; k++)
      c->turn[l->row.at[k].stage] += l->row.at[k].kind == PIPE_U;
    for (uint32_t k = g->row0; k < end; k++) {
      const ListRow *o = &l->row.at[k];
      Run run;
      updates[k] = affine_sum(c->sum[o->stage], affine(c->before[o->stage]), 1);
      updates[k].j = g->by_n ? c->turn[o->stage] : 0;
      gradient[k] = c->gradient[o->stage];
      if (is_grad(o))
        c->gradient[o->stage] = (Spot){r, i, k};
      if (o->kind != PIPE_U)
        continue;
      c->before[o->stage]++;
      if (!run_of(p, r, i, k, updates[k], 1, &run))
        return false;
      *vec_push(p->a, &p->rounds[o->stage]) = run;
    }
    for (uint32_t k = g->row0; k < end; k++) {
      uint32_t st = l->row.at[k].stage;
      c->sum[st] = affine_sum(c->sum[st], (Affine){g->turns, g->by_n, 0}, c->turn[st]);
      c->turn[st] = c->before[st] = 0;
    }
  }
  return true;
}

Affine proof_updates_at(const Proof *p, const Run *r, Affine unit) {
  Affine n = p->updates[r->rank][r->row], turn = affine_sum(unit, r->of, -1);
  int64_t by = n.j;
  n.j = 0;
  if (r->of.j == 0)
    return n;
  return affine_sum(n, (Affine){turn.a / r->of.j, turn.n / r->of.j, 0}, by);
}

/* U(m) stands behind the gradient of m, or of a slice of it, and no update between them. U(m) names slice 0. */
static bool labelled_of(Proof *p, const Run *x, const Runs *f, int64_t slice) {
  Serving k = {0};
  while (proof_next(p, f, x, -slice, &k))
    for (int i = 0; i < 2 && is_grad(row_at(p, k.run)); i++)
      if (!affine_same(proof_updates_at(p, x, k.end[i]),
                       proof_updates_at(p, k.run, affine_sum(k.end[i], affine(slice), 1))))
        return proof_no(p, row_at(p, x), "for some M another update comes before it");
  return !k.failed && needs(p, x, f, -slice);
}

static bool labelled(Proof *p, const Run *x) {
  bool ok = true;
  for (int kind = OF_B; kind <= OF_W && ok; kind++)
    for (int64_t slice = 0; slice < p->s->model->slices && ok; slice++)
      ok = labelled_of(p, x, proof_family(p, row_at(p, x)->stage, kind), slice);
  return ok;
}

/* An update that is there once needs the last gradient before the U y, which is there in the same way. */
static bool needs_gradient(Proof *p, Spot to, const Run *y) {
  Spot last = p->gradient[y->rank][y->row];
  if (last.row == NONE)
    return proof_no(p, row_at(p, y), "an update stands before all gradients");
  const RankList *of = &p->l->rank[y->rank];
  const ListSegment *g = &of->segment.at[last.segment];
  last.row = action_last(p, of, last.row);
  arc(p, last, to, affine_sum(affine(0), last_turn(g), -g->per_turn));
  return true;
}

/* The updates of a stage and those of its replicas, or of tied stages, with the same numbers. Those in loops that
 * grow with M start at one time by the clock, so that each comes after all gradients. */
static bool needs_sums(Proof *p, uint32_t r, uint32_t segment, uint32_t row) {
  const Sched *s = p->s;
  const ListRow *o = &p->l->rank[r].row.at[row];
  Affine own = p->updates[r][row];
  int64_t pace = own.j ? own.j : 1;
  Spot to = {r, segment, action_first(&p->l->rank[r], row)}; /* it starts when all of it can */
  Run x, y;
  bool alone = s->model->stage[o->stage].replica == o->stage &&
               !(s->model->tie_of && s->model->tie_of[o->stage] != NONE);
  if (alone)
    return true;
  if (!run_of(p, r, segment, row, own, pace, &x))
    return false;
  for (uint32_t at = 0, q = 0; order_member(s, o->stage, &at, &q);) {
    const Runs *f = &p->rounds[q];
    uint32_t i = 0, last = f->n;
    for (bisect(f->at, &i, &last, x.lo, x.hi); i < last; i++) {
      const Run *of = &f->at[i];
      Affine end[2];
      bool some;
      if (!work_take(s->opt->work, 8, o->at))
        return proof_no(p, o, "it takes too many steps");
      if (q == o->stage && of->row == row)
        continue;
      if (of->of.j != 0 && own.j != 0 && of->of.j != pace)
        return proof_no(p, o, "its replicas are not updated at one pace");
      if (!run_of(p, of->rank, of->segment, of->row, of->of, pace, &y) ||
          !served(p, &x, &y, 0, pace, end, &some))
        return false;
      if (some && of->of.j == 0 && own.j == 0) {
        if (!needs_gradient(p, to, &y))
          return false;
        continue;
      }
      Spot from = {y.rank, y.segment, action_first(&p->l->rank[y.rank], y.row)};
      for (int k = 0; some && k < 2; k++)
        arc(p, from, to,
            affine_sum(affine_sum(pace_at(p, &x, end[k]), pace_at(p, &y, end[k]), -1), affine(1),
                       1));
    }
  }
  return true;
}

/* ---- paces, from programs that were played ---- */

/* Rows that are ops, not copies. */
static int64_t ops_of(const RankList *l, const ListSegment *g) {
  int64_t n = 0;
  for (uint32_t k = g->row0; k < g->row0 + g->nrow; k++)
    n += !pipe_is_copy(l->row.at[k].kind);
  return n;
}

/* Where each segment of a rank begins in the op table of a sample; NULL: it has not as many ops as the list says. */
static int64_t *places(const Proof *p, const SampleOfM *of, uint32_t r) {
  const RankList *l = &p->l->rank[r];
  int64_t *at = arena_alloc(p->a, l->segment.n * sizeof *at + 1), n = of->s->orders->rank_op0[r];
  for (uint32_t i = 0; i < l->segment.n; i++) {
    at[i] = n;
    n += ops_of(l, &l->segment.at[i]) * (l->segment.at[i].turns + l->segment.at[i].by_n * of->n);
  }
  return n == (int64_t)of->s->orders->rank_op0[r + 1] ? at : NULL;
}

/* What a turn takes, as num / by: over the fewest turns that take as long as those before them. It has n ops; tick: of the first one. */
static void turn_time(const ListSegment *g, int64_t n, const SampleOfM *of, const uint64_t *tick,
                      int64_t *num, int64_t *by) {
  int64_t end = (g->turns + g->by_n * of->n - 1) * n;
  for (*by = 1; 2 * *by * n <= end && work_take(of->s->opt->work, 2, NO_SPAN); ++*by) {
    bool even = true;
    for (int64_t k = end; k < end + n && even; k++) {
      *num = (int64_t)(tick[k] - tick[k - *by * n]);
      even = tick[k] - tick[k - *by * n] == tick[k - *by * n] - tick[k - 2 * *by * n];
    }
    if (even)
      return;
  }
  *by = end > 0 ? end / n : 1;
  *num = (int64_t)(tick[end] - tick[0]);
}

/* What a turn of each segment takes, in per_turn. */
static bool find_paces(Proof *p, const SampleOfM *of) {
  enum { MOST_SCALE = 1 << 16 };
  int64_t scale = 1, num = 0, by, room = 1;
  for (uint32_t r = 0; r < p->l->nrank;
       r++) { /* for copies: between two ops, which may be of two turns */
    int64_t row = 0;
    for (uint32_t k = 0; k < p->l->rank[r].row.n; k++) {
      row = pipe_is_copy(p->l->rank[r].row.at[k].kind) ? row + 1 : 0;
      room = 2 * row + 1 > room ? 2 * row + 1 : room;
    }
  }
  for (int pass = 0; pass < 2; pass++) /* their scale, and they themselves */
    for (uint32_t r = 0; r < p->l->nrank; r++) {
      const int64_t *at = places(p, of, r);
      if (!at)
        return proof_no(p, NULL, "what was derived of its text is not what it does");
      for (uint32_t i = 0; i < p->l->rank[r].segment.n; i++) {
        ListSegment *g = &p->l->rank[r].segment.at[i];
        g->per_turn = g->per_n = 0;
        if (!g->by_n)
          continue;
        int64_t n = ops_of(&p->l->rank[r], g);
        if (n == 0) { /* copies only */
          g->per_turn = g->nrow;
          continue;
        }
        turn_time(g, n, of, of->tick + at[i], &num, &by);
        if (pass == 1) {
          g->per_turn = num * scale / by * room;
          continue;
        }
        by /= quasi_gcd(num, by);
        scale = scale / quasi_gcd(scale, by) * by;
        if (scale > MOST_SCALE)
          return proof_no(p, NULL, "its ranks do not come to keep one pace");
      }
    }
  return true;
}

/* All segments at the pace of the slowest. */
static void slowest_pace(Proof *p) {
  int64_t most = 0;
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t r = 0; r < p->l->nrank; r++)
      for (uint32_t i = 0; i < p->l->rank[r].segment.n; i++) {
        ListSegment *g = &p->l->rank[r].segment.at[i];
        most = g->per_turn > most ? g->per_turn : most;
        g->per_turn = pass && g->by_n ? most : g->per_turn;
      }
}

/* ---- all of it ---- */

static bool solve_clock(Proof *p, uint32_t nnode, uint32_t nsegment) {
  int64_t *start, *per_n;
  if (!least_values(p->a, &p->slope, nsegment, &per_n, p->s->opt->work) ||
      !least_values(p->a, &p->arc, nnode, &start, p->s->opt->work) || work_spent(p->s->opt->work))
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
        Run run;
        if (o->kind == PIPE_U)
          ok = needs_sums(p, r, i, j) &&
               (o->whole || (proof_run_of_units(p, r, i, j, &run) && labelled(p, &run)));
        else
          ok = proof_run_of_units(p, r, i, j, &run) && needs_own(p, &run) &&
               needs_tensors(p, &run) &&
               ((o->kind != PIPE_B && o->kind != PIPE_I && o->kind != PIPE_W) ||
                needs_stash(p, &run));
      }
  }
  return ok;
}

/* The runs of all ops, and how many updates were before each. */
static bool find_runs(Proof *p) {
  const Sched *s = p->s;
  size_t nfamily = (size_t)s->model->npipe * s->model->nmodel * NFAMILY;
  Counts counts = {
      NEW_ARRAY(p->a, int64_t, s->model->nstage), NEW_ARRAY(p->a, int64_t, s->model->nstage),
      NEW_ARRAY(p->a, Affine, s->model->nstage), NEW_ARRAY(p->a, Spot, s->model->nstage)};
  p->pipe = NEW_ARRAY(p->a, uint32_t, s->model->nstage);
  for (uint32_t st = 0; st < s->model->nstage; st++)
    p->pipe[st] = pipe_of(s, st);
  p->family = NEW_ARRAY(p->a, Runs, nfamily);
  p->rounds = NEW_ARRAY(p->a, Runs, s->model->nstage);
  p->updates = NEW_ARRAY(p->a, Affine *, s->model->nrank);
  p->gradient = NEW_ARRAY(p->a, Spot *, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    const RankList *k = &p->l->rank[r];
    if (!count_updates(p, r, &counts))
      return false;
    for (uint32_t i = 0; i < k->segment.n; i++)
      for (uint32_t j = k->segment.at[i].row0; j < k->segment.at[i].row0 + k->segment.at[i].nrow;
           j++) {
        const ListRow *o = &k->row.at[j];
        Run run;
        if (o->kind == PIPE_U)
          continue;
        if (!proof_run_of_units(p, r, i, j, &run))
          return false;
        *vec_push(p->a, family(p, p->pipe[o->stage], s->model->stage[o->stage].model,
                               family_of(o->kind))) = run;
      }
  }
  for (size_t i = 0; i < nfamily; i++)
    if (p->family[i].n)
      qsort(p->family[i].at, p->family[i].n, sizeof(Run), by_start);
  return true;
}

bool clock_of_m(const Sched *s, AffineEnv *x, ListsOfM *l, const SampleOfM *of) {
  Arena a = {.oom = s->arena->oom};
  Proof p = {.s = s, .x = x, .l = l, .a = &a};
  uint32_t nnode = 0, nsegment = 0;
  l->pace = l->pace ? l->pace : 1;
  bool ok = l->pace % s->model->slices == 0 || affine_fail(x, AFFINE_STEP, 1);
  if (!ok)
    l->pace = l->pace / quasi_gcd(l->pace, s->model->slices) * s->model->slices;
  p.node0 = NEW_ARRAY(&a, uint32_t, s->model->nrank);
  p.segment0 = NEW_ARRAY(&a, uint32_t, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    p.node0[r] = nnode, nnode += l->rank[r].row.n;
    p.segment0[r] = nsegment, nsegment += l->rank[r].segment.n;
  }
  ok = ok && find_runs(&p) && complete(&p) && versions_of_m(&p) && delays_of_m(&p) &&
       find_paces(&p, of);
  bool solved = false;
  for (int all = 0; ok && !solved && all < 2; all++) {
    if (all)
      slowest_pace(&p);
    ok = all_arcs(&p);
    solved = ok && solve_clock(&p, nnode, nsegment);
  }
  if (ok && !solved)
    ok = proof_no(&p, NULL, "no clock was found for its orders");
  arena_free(&a);
  return ok;
}
