/* SPDX-License-Identifier: MIT
 * Alpa's inter-operator search (alpa-projects/alpa): the cut of the layers into stages with the
 * least sum of t_i + (M-1) max t_i, where all ranks are used. A stage has 1, 2, 4, ... ranks of a
 * node, which is the innermost level of the cluster, or whole nodes. Its time t_i is here its share
 * of a microbatch when its ranks take turns, and the share of a microbatch in the sum of their
 * gradients. With s stages behind it a stage keeps s + 1 stashes, which have to fit in memory.
 *
 * For a longest time `most`, f(s, d, k) is the least sum of the last s stages, for the layers
 * behind state k on d ranks. Each answer has a longest time of its own, and only a shorter one can
 * make up for a larger sum: so the next `most` is that time, until the sum alone is too large. That
 * is exact. Without a memory limit s does not matter and is left out.
 *
 * Of equal plans the one with the first cuts, then with the fewest ranks in the first stages. Cost
 * of one f: states^2 ranks nodes, with a memory limit times stages. */
#include <math.h>

#include "base.h"
#include "choice.h"

typedef struct Cell { /* of f; to: where its first stage ends */
  double sum;
  uint32_t to, ranks;
} Cell;

typedef struct Search {
  Task *t;
  uint32_t n, nrank, depth; /* states, ranks; values of s that are told apart */
  Cell *cell;               /* [(n + 1) * (depth + 1) * (nrank + 1)] row 0 is START */
} Search;

static Cell *cell_of(const Search *x, uint32_t s, uint32_t d, uint32_t k) {
  s = s < x->depth ? s : x->depth;
  return &x->cell[((size_t)(uint32_t)(k + 1) * (x->depth + 1) + s) * (x->nrank + 1) + d];
}

/* The next number of ranks that a stage may have. */
static uint32_t next_size(const Search *x, uint32_t ranks) {
  const uint32_t node = x->t->cluster.level[0].ranks;
  return ranks >= node ? ranks + node : 2 * ranks < node ? 2 * ranks : node;
}

static double stage_time(const Search *x, uint32_t from, uint32_t to, uint32_t ranks) {
  const Task *t = x->t;
  const Level *l = level_between(&t->cluster, 0, ranks - 1);
  return (double)range_time(&t->states, from, to) / ranks +
         ring_time(l, ranks, range_grad(t, from, to)) / t->nmb;
}

/* The most stashes with which the stage fits; UINT32_MAX: any number. */
static uint32_t most_stashes(const Search *x, uint32_t from, uint32_t to) {
  const Task *t = x->t;
  const States *st = &t->states;
  const uint64_t act = range_cost(st, from, to, KEY_ACT),
                 bytes = range_cost(st, from, to, KEY_WEIGHT) + range_grad(t, from, to) +
                         range_cost(st, from, to, KEY_OPT) + range_cost(st, from, to, KEY_WORK);
  if (t->memory == 0)
    return UINT32_MAX;
  if (bytes > t->memory)
    return 0;
  const uint64_t most = act ? (t->memory - bytes) / act : UINT32_MAX;
  return most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}

/* Tries the stage between two states on n ranks at the head of f(s, d, from) for all s and d.
 * longest: f is the least longest time in place of the sum. */
static void try_stage(const Search *x, uint32_t from, uint32_t to, uint32_t n, double time,
                      uint32_t stashes, bool longest) {
  const uint32_t depth = x->depth ? x->depth : 1;
  for (uint32_t s = 1; s <= depth && s <= stashes; s++) {
    Cell *f = cell_of(x, s, n, from);
    const Cell *rest = cell_of(x, s - 1, 0, to);
    for (uint32_t d = 0; d <= x->nrank - n; d++) {
      const double sum = longest ? fmax(time, rest[d].sum) : time + rest[d].sum;
      if (sum < f[d].sum)
        f[d] = (Cell){sum, to, n};
    }
  }
}

/* Fills f for stages shorter than `most`. Returns the s of the best plan of all layers; 0: there is
 * none. */
static uint32_t solve(const Search *x, double most, bool longest) {
  const States *st = &x->t->states;
  const size_t ncell = ((size_t)x->n + 1) * (x->depth + 1) * (x->nrank + 1);
  uint32_t best = 0;
  for (size_t i = 0; i < ncell; i++)
    x->cell[i] = (Cell){.sum = INFINITY};
  cell_of(x, 0, 0, x->n - 1)->sum = 0;
  for (uint32_t k = x->n - 2; k != START - 1; k--) {
    const double begin = k == START ? 0 : (double)st->time[k];
    for (uint32_t j = k + 1; j < x->n; j++) {
      if (((double)st->time[j] - begin) / x->nrank >= most)
        break;
      if (k != START && !is_below(st, k, j))
        continue;
      const uint32_t stashes = most_stashes(x, k, j);
      for (uint32_t n = 1; n <= x->nrank; n = next_size(x, n)) {
        const double time = stage_time(x, k, j, n);
        if (time < most)
          try_stage(x, k, j, n, time, stashes, longest);
      }
    }
  }
  for (uint32_t s = 1; s <= (x->depth ? x->depth : 1); s++)
    if (cell_of(x, s, x->nrank, START)->sum <
        (best ? cell_of(x, best, x->nrank, START)->sum : INFINITY))
      best = s;
  return best;
}

/* The plan that f has; returns its longest time. */
static double read_plan(const Search *x, uint32_t s, Choice *c) {
  double longest = 0;
  *c = (Choice){.task = x->t, .nrank = x->nrank};
  c->stage = NEW_ARRAY(x->t->s->arena, PlanStage, x->nrank);
  for (uint32_t k = START, d = x->nrank; k != x->n - 1; s--) {
    const Cell *cell = cell_of(x, s, d, k);
    c->stage[c->nstage++] = (PlanStage){.from = k, .to = cell->to, .replicas = cell->ranks};
    longest = fmax(longest, stage_time(x, k, cell->to, cell->ranks));
    k = cell->to, d -= cell->ranks;
  }
  return longest;
}

bool alpa_choice(Task *t, Choice *c, double *ns) {
  const uint32_t n = t->states.n, nrank = t->cluster.nrank;
  Search x = {.t = t, .n = n, .nrank = nrank};
  x.depth = t->memory == 0 ? 0 : nrank < n ? nrank : n;
  x.cell = NEW_ARRAY(t->s->arena, Cell, ((size_t)x.depth + 1) * (nrank + 1) * (n + 1));
  uint32_t s = solve(&x, INFINITY, true);
  *ns = INFINITY;
  if (s == 0) {
    diag_error(t->s->diag, DIAG_PLAN, NO_SPAN, "no cut of %u states fits in the memory of a rank",
               n);
    return false;
  }
  const double least = cell_of(&x, s, nrank, START)->sum;
  for (double most = INFINITY; (s = solve(&x, most, false)) > 0;) {
    Choice next;
    const double sum = cell_of(&x, s, nrank, START)->sum;
    most = read_plan(&x, s, &next);
    if (sum + (t->nmb - 1) * least >= *ns)
      break;
    if (sum + (t->nmb - 1) * most < *ns) {
      *ns = sum + (t->nmb - 1) * most;
      *c = next;
    }
  }
  return true;
}
