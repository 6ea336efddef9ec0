/* SPDX-License-Identifier: MIT
 * DAPPLE's planner by its own latency of a step (Fan et al., PPoPP 2021). A microbatch is shared by
 * the replicas of a stage, and a transfer is a stage of its own. With F, B and A the times of
 * forward, backward and sum of gradients of a stage, M microbatches take
 *
 *   sum of F(a) for a <= q  +  (M-1) (F(q) + B(q))  +  the largest over all stages s of
 *   A(s) + (s <= q ? sum of B(a) for s <= a <= q : -sum of B(a) for q <= a <= s)
 *
 * The pivot q is found from the last stage on: s becomes it if (M-1) (F(s) + B(s)) is more than
 * (M-1) (F(q) + B(q)) and the F + B of all stages between the two.
 *
 * For each state k and number of ranks d, the search keeps the stages before k on the first d ranks
 * that are the best if one stage on the other ranks follows, and cuts that stage in all ways; its
 * sum of gradients does not count until then. A plan of three stages or more may be missed. DAPPLE
 * counts that sum and the memory, and may spread the ranks of a stage over nodes; here they are
 * neighbours. Of equal plans the first by d, then by k. Cost: states^2 ranks^2 latencies, without
 * those whose slowest stage alone takes too long. */
#include <math.h>

#include "choice.h"

typedef struct Block {
  double f, b, sum;
} Block; /* a stage or a transfer: F, B and A, in ns */

typedef struct Cell {
  double latency;       /* with one stage behind */
  double kept_by;       /* the same without the sum of that stage, which will be cut */
  uint32_t from, ranks; /* the last stage before it */
} Cell;

typedef struct Search {
  const Task *t;
  uint32_t n, nrank; /* states, ranks */
  Cell *cell;        /* [nrank * (n + 1)] row d, column 1 + k */
  Block *block;      /* [2 * nrank] */
  PlanStage *stage;  /* [nrank] */
} Search;

static Cell *cell_of(const Search *x, uint32_t k, uint32_t d) {
  return &x->cell[(size_t)d * (x->n + 1) + (uint32_t)(k + 1)]; /* START + 1 is 0 */
}

/* Puts the stage between two states on the ranks from d on behind n blocks, with the transfer to
 * it. Returns the number of blocks. */
static uint32_t put_stage(const Search *x, uint32_t n, uint32_t from, uint32_t to, uint32_t d,
                          uint32_t ranks) {
  const Task *t = x->t;
  const Cluster *c = &t->cluster;
  if (from != START) {
    const double time = (double)message_time(level_between(c, d - 1, d), t->states.cross[from]);
    x->block[n++] = (Block){time, time, 0};
  }
  const double f = (double)range_cost(&t->states, from, to, KEY_F),
               all = (double)range_time(&t->states, from, to);
  const Level *l = level_between(c, d, d + ranks - 1);
  x->block[n] = (Block){f / ranks, (all - f) / ranks, ring_time(l, ranks, range_grad(t, from, to))};
  return n + 1;
}

static double latency(const Block *x, uint32_t n, uint32_t nmb) {
  uint32_t q = n - 1;
  double between = 0, before = 0, end = -INFINITY;
  for (uint32_t s = n - 1; s-- > 0;)
    if ((nmb - 1) * (x[s].f + x[s].b) > (nmb - 1) * (x[q].f + x[q].b) + between)
      q = s, between = 0;
    else
      between += x[s].f + x[s].b;
  double back = 0;
  for (uint32_t s = q + 1; s-- > 0;) {
    before += x[s].f, back += x[s].b;
    end = fmax(end, x[s].sum + back);
  }
  back = x[q].b;
  for (uint32_t s = q + 1; s < n; s++) {
    back += x[s].b;
    end = fmax(end, x[s].sum - back);
  }
  return before + (nmb - 1) * (x[q].f + x[q].b) + end;
}

/* The stages before state k on d ranks, in x->stage; returns their number. */
static uint32_t read_stages(const Search *x, uint32_t k, uint32_t d) {
  uint32_t n = 0;
  for (uint32_t at = k, left = d; left > 0; n++) {
    const Cell *cell = cell_of(x, at, left);
    at = cell->from, left -= cell->ranks;
  }
  for (uint32_t i = n; i-- > 0;) {
    const Cell *cell = cell_of(x, k, d);
    x->stage[i] = (PlanStage){.from = cell->from, .to = k, .replicas = cell->ranks};
    k = cell->from, d -= cell->ranks;
  }
  return n;
}

/* Cuts the stage behind state k on all ranks but the first d. */
static void cut_rest(const Search *x, uint32_t k, uint32_t d) {
  const Task *t = x->t;
  const uint32_t nstage = read_stages(x, k, d);
  uint32_t n = 0;
  for (uint32_t i = 0, at = 0; i < nstage; at += x->stage[i++].replicas) {
    const PlanStage *p = &x->stage[i];
    n = put_stage(x, n, p->from, p->to, at, p->replicas);
  }
  for (uint32_t j = k + 1; j + 1 < x->n; j++) {
    if (k != START && !is_below(&t->states, k, j))
      continue;
    const double work = (double)range_time(&t->states, k, j),
                 work_left = (double)range_time(&t->states, j, x->n - 1);
    for (uint32_t m = 1; d + m < x->nrank; m++) {
      const uint32_t left = x->nrank - d - m;
      Cell *cell = cell_of(x, j, d + m);
      if ((t->nmb - 1) * fmax(work / m, work_left / left) >= cell->kept_by)
        continue; /* no latency is less */
      uint32_t end = put_stage(x, n, k, j, d, m);
      end = put_stage(x, end, j, x->n - 1, d + m, left);
      const double ns = latency(x->block, end, t->nmb);
      x->block[end - 1].sum = 0;
      const double kept_by = latency(x->block, end, t->nmb);
      if (kept_by < cell->kept_by)
        *cell = (Cell){ns, kept_by, k, m};
    }
  }
}

void dapple_choice(Task *t, Choice *c, double *ns) {
  Arena *a = t->s->arena;
  const uint32_t n = t->states.n, nrank = t->cluster.nrank;
  Search x = {.t = t, .n = n, .nrank = nrank};
  const size_t ncell = (size_t)nrank * (n + 1);
  x.cell = NEW_ARRAY(a, Cell, ncell), x.block = NEW_ARRAY(a, Block, (size_t)2 * nrank);
  x.stage = NEW_ARRAY(a, PlanStage, nrank);
  for (size_t i = 0; i < ncell; i++)
    x.cell[i].latency = x.cell[i].kept_by = INFINITY;
  cell_of(&x, START, 0)->latency = latency(x.block, put_stage(&x, 0, START, n - 1, 0, nrank),
                                           t->nmb);
  uint32_t best = START, ranks = 0;
  for (uint32_t d = 0; d < nrank; d++)
    for (uint32_t k = START; k != n - 1; k++) {
      if (isinf(cell_of(&x, k, d)->latency))
        continue;
      if (cell_of(&x, k, d)->latency < cell_of(&x, best, ranks)->latency)
        best = k, ranks = d;
      cut_rest(&x, k, d);
    }
  *ns = cell_of(&x, best, ranks)->latency;
  *c = (Choice){
      .task = t, .nrank = nrank, .stage = x.stage, .nstage = read_stages(&x, best, ranks)};
  c->stage[c->nstage++] = (PlanStage){.from = best, .to = n - 1, .replicas = nrank - ranks};
}
