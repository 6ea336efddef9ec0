/* SPDX-License-Identifier: MIT
 * PipeDream's optimizer by its own cost (msr-fiddle/pipedream, optimizer_graph_hierarchical.py), in
 * seconds a microbatch. On one level of n groups over links of bandwidth B, with T(i, j) the time
 * of the layers between states i and j within a group, and w and a the bytes of their weights and
 * outputs:
 *
 *   A(i, j, m) = min of  (T(i, j) + 4 (m-1) w / (B m) / groups) / m             one stage, and
 *                        max(A(i, k, m-m'), (T(k, j) + 4 (m'-1) w / (B m')) / m',
 *                            2 a(k) / (B m'), 2 a(j) / (B m'))                  over k, m'
 *
 * where the last line counts if transfers do. T of the next level is A(i, j, n); `groups` are those
 * of the level below. With a memory limit a stage of m replicas needs its bytes for ceil((n-m)/m)
 * microbatches, here n - m as that code has it. Of equal plans: fewest stages, then the first cut,
 * then the fewest replicas behind it.
 *
 * Ranges of states that do not contain each other are left out; that code gives them the difference
 * of their times. Cost: states^3 n^2 for each level but the last one, which takes states^2 n^2. */
#include <math.h>
#include <string.h>

#include "base.h"
#include "choice.h"

typedef struct Cell { /* of A: its value, and the last stage of the plan */
  double value;
  uint32_t cut, replicas; /* cut: state before that stage; START: it is the only one */
} Cell;

typedef struct Search {
  const Task *t;
  PipeDream by;
  const Level *level;
  uint32_t n, ngroup; /* states; groups of the level below */
  const double *time; /* [(n + 1) * n] T: row 1 + i, 0 for START */
  Cell *cell;         /* [level->count * n] row m-1 of A(start, ., m) */
  uint32_t *between;  /* [n] scratch */
} Search;

static bool follows(const States *t, uint32_t i, uint32_t k) {
  return i == START || is_below(t, i, k);
}

static double time_of(const Search *x, uint32_t i, uint32_t k) {
  return x->time[(size_t)(i + 1) * x->n + k]; /* START + 1 is 0 */
}

static double bytes_of(const Search *x, uint32_t i, uint32_t k, CostKey key) {
  return (double)range_cost(&x->t->states, i, k, key);
}

/* The time of a stage that m replicas take turns in. */
static double stage_time(const Search *x, uint32_t i, uint32_t k, uint32_t m, double groups) {
  const double w = bytes_of(x, i, k, KEY_WEIGHT), b = (double)x->level->bandwidth;
  return (time_of(x, i, k) + 4.0 * (m - 1) * w / (b * m) / groups) / m;
}

static bool fits(const Search *x, uint32_t i, uint32_t k, uint32_t behind, uint32_t m) {
  const double bytes = bytes_of(x, i, k, KEY_ACT) + bytes_of(x, i, k, KEY_WEIGHT);
  return x->t->memory == 0 || ceil((double)behind / m) * bytes <= (double)x->t->memory;
}

static double transfer(const Search *x, uint32_t k, uint32_t m) {
  return 2.0 * (double)x->t->states.kept[k] / ((double)x->level->bandwidth * m);
}

/* The best last stage behind each cut in between, for m groups of the level, m2 of them in it. */
static void try_cuts(const Search *x, uint32_t nbetween, uint32_t j, uint32_t m, uint32_t m2,
                     Cell *best) {
  const Cell *row = &x->cell[(size_t)(m - m2 - 1) * x->n];
  const uint32_t behind = x->level->count - m;
  const double out = x->by.transfers && j + 1 < x->n ? transfer(x, j, m2) : 0;
  for (uint32_t at = 0; at < nbetween && out < best->value; at++) {
    const uint32_t k = x->between[at];
    double value = fmax(row[k].value, out);
    if (value >= best->value)
      continue;
    value = fmax(value, stage_time(x, k, j, m2, 1));
    if (x->by.transfers)
      value = fmax(value, transfer(x, k, m2));
    if (value < best->value && fits(x, k, j, behind, m2))
      *best = (Cell){value, k, m2};
  }
}

/* Fills x->cell for plans that begin at state `start`. */
static void solve(const Search *x, uint32_t start) {
  const States *t = &x->t->states;
  const uint32_t count = x->level->count;
  for (uint32_t j = 0; j < x->n; j++) {
    const bool ranges = follows(t, start, j);
    uint32_t nbetween = 0;
    for (uint32_t k = start + 1; ranges && k < j; k++)
      if (follows(t, start, k) && is_below(t, k, j))
        x->between[nbetween++] = k;
    for (uint32_t m = 1; m <= count; m++) {
      Cell best = {INFINITY, START, m};
      if (ranges && (m == 1 || !x->by.straight) && fits(x, start, j, count - m, m))
        best.value = stage_time(x, start, j, m, x->ngroup);
      for (uint32_t m2 = 1; m2 < m && (m2 == 1 || !x->by.straight); m2++)
        try_cuts(x, nbetween, j, m, m2, &best);
      x->cell[(size_t)(m - 1) * x->n + j] = best;
    }
  }
}

/* Adds the stages of the plan for the layers between two states, each on `copies` groups. */
static void add_stages(Search *x, double *const *times, uint32_t level, uint32_t from, uint32_t to,
                       uint32_t copies, Choice *c) {
  const Cluster *cluster = &x->t->cluster;
  const uint32_t n = x->n, count = cluster->level[level].count;
  uint32_t nstage = 0, end = to, m = count;
  x->level = &cluster->level[level], x->time = times[level];
  x->ngroup = level > 0 ? cluster->level[level - 1].count : 1;
  x->cell = NEW_ARRAY(x->t->s->arena, Cell, (size_t)count * n);
  solve(x, from);
  PlanStage *stage = NEW_ARRAY(x->t->s->arena, PlanStage, count); /* the last one first */
  do {
    const Cell *cell = &x->cell[(size_t)(m - 1) * n + end];
    const uint32_t cut = cell->cut == START ? from : cell->cut;
    stage[nstage++] = (PlanStage){.from = cut, .to = end, .replicas = copies * cell->replicas};
    m -= cell->replicas, end = cut;
  } while (end != from);
  while (nstage-- > 0)
    if (level > 0)
      add_stages(x, times, level - 1, stage[nstage].from, stage[nstage].to, stage[nstage].replicas,
                 c);
    else
      c->stage[c->nstage++] = stage[nstage];
}

bool pipedream_choice(Task *t, PipeDream by, Choice *c, double *seconds) {
  const States *states = &t->states;
  const uint32_t n = states->n, nlevel = t->cluster.nlevel;
  Arena *a = t->s->arena;
  Search x = {.t = t, .by = by, .n = n, .between = NEW_ARRAY(a, uint32_t, n)};
  double *times[MOST_LEVELS];
  times[0] = arena_alloc(a, ((size_t)n + 1) * n * sizeof(double));
  for (uint32_t i = START; i != n; i++)
    for (uint32_t k = 0; k < n; k++)
      times[0][(size_t)(i + 1) * n + k] = (double)range_time(states, i, k) / 1e9;
  for (uint32_t level = 0; level < nlevel; level++) {
    const bool last = level + 1 == nlevel;
    const uint32_t count = t->cluster.level[level].count;
    double *next = last ? NULL : arena_alloc(a, ((size_t)n + 1) * n * sizeof(double));
    x.level = &t->cluster.level[level], x.time = times[level];
    x.ngroup = level > 0 ? t->cluster.level[level - 1].count : 1;
    x.cell = NEW_ARRAY(a, Cell, (size_t)count * n);
    for (uint32_t i = START; last ? i == START : i != n; i++) {
      solve(&x, i);
      for (uint32_t k = 0; next && k < n; k++)
        next[(size_t)(i + 1) * n + k] = x.cell[(size_t)(count - 1) * n + k].value;
    }
    if (!last)
      times[level + 1] = next;
  }
  *seconds = x.cell[(size_t)t->cluster.level[nlevel - 1].count * n - 1].value;
  if (!isfinite(*seconds)) {
    diag_error(t->s->diag, DIAG_PLAN, NO_SPAN,
               "no cut of %u states fits in the memory of a rank, as PipeDream counts it", n);
    return false;
  }
  *c = (Choice){.task = t, .nrank = t->cluster.nrank};
  c->stage = NEW_ARRAY(a, PlanStage, t->cluster.nrank);
  add_stages(&x, times, nlevel - 1, START, n - 1, 1, c);
  return true;
}
