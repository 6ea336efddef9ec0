/* SPDX-License-Identifier: MIT
 * Finds plans that may have the shortest step. For an order of the ops and a longest period t of a
 * stage, the recurrence
 *
 *   A(k, d) = min over j, n of  pass(k, j) + A(j, d - n)   where period(k, j, n) <= t
 *
 * cuts the layers behind state k into stages for the last d ranks, the first stage on n of them:
 * pass is one microbatch through a stage and its links, period the time of a microbatch there, with
 * its transfers, and its share of the sum of gradients. A stage must fit in memory with the stashes
 * that its order keeps; one that does not may run its forwards again, or the share of them whose
 * layers save enough: which layers, only the compiled plan tells (plan.c). The step is about the
 * pass of the first microbatch and M-1 periods, so plans with slower stages but fewer or cheaper
 * cuts are tried by several t. The estimate only sorts plans: each is compiled before it is
 * believed.
 *
 * Of equal plans the first by cut, then by replicas. Cost: states^2 ranks^2 for each t, of at most
 * MOST_CUTS states. */
#include <math.h>
#include <string.h>

#include "choice.h"

enum {
  MOST_CHUNKS = 4, /* stages of a rank with ORDER_INTERLEAVED, from 2 on */
  MOST_CUTS = 256
};

/* What of a stage recomputes. */
typedef enum Again { NOTHING, LAYERS, STAGE } Again;

typedef struct Cell { /* of A */
  double cost;
  uint32_t to, replicas; /* the first stage */
  Again again;
} Cell;

/* Bytes of each stash, and the scratch that this takes (recompute.c). */
typedef struct Saving {
  double stash, scratch;
} Saving;

typedef struct Search {
  Task *t;
  PlanOrder order;
  bool straight;            /* a stage has one rank */
  bool turns;               /* the transfers of a rank go one after the other */
  uint32_t n, ranks, parts; /* states; ranks; stages of one rank times ranks */
  double fastest;           /* speed */
  bool uneven;              /* ranks have different speeds */
  uint32_t *next0, *next;   /* rows of the states that contain a state, from next0[1 + k] on */
  Saving (*layers)[2];      /* for each of next: all runs, or long runs, there recompute */
  Cell *cell;               /* [(parts + 1) * (n + 1)] A: row d, column 1 + k */
  PlanStage *stage;         /* [parts] scratch */
} Search;

static Cell *cell_of(const Search *x, uint32_t d, uint32_t k) {
  return &x->cell[(size_t)d * (x->n + 1) + (uint32_t)(k + 1)]; /* START + 1 is 0 */
}

/* The rank of part `at`, from the first stage on. */
static uint32_t rank_of(const Search *x, uint32_t at) { return at % x->ranks; }

/* A message over the link behind part `at`. */
static double link_time(const Search *x, uint32_t at, uint32_t state) {
  const Cluster *c = &x->t->cluster;
  if (state == START || at + 1 >= x->parts)
    return 0;
  return (double)message_time(level_between(c, rank_of(x, at), rank_of(x, at + 1)),
                              x->t->states.cross[state]);
}

/* The replicas, of m, that each of n replicas of the stage before exchanges microbatches with. */
static uint32_t peers(uint32_t n, uint32_t m) {
  uint32_t a = m, b = n; /* to be their greatest common divisor, in a */
  while (b > 0) {
    const uint32_t rest = a % b;
    a = b, b = rest;
  }
  return m / a;
}

/* Bytes of the stage on part `at`; *stashes: that it keeps. */
static double bytes_of(const Search *x, uint32_t from, uint32_t to, uint32_t at, uint32_t replicas,
                       double *stashes) {
  const Task *t = x->t;
  const States *st = &t->states;
  const uint32_t r = rank_of(x, at), d = x->parts - at, v = x->parts / x->ranks;
  uint32_t live = (d + replicas - 1) / replicas, most = (t->nmb + replicas - 1) / replicas;
  if (x->order == ORDER_ZB_H1)
    live = x->ranks;
  else if (x->order == ORDER_INTERLEAVED)
    live = (2 * (x->ranks - 1 - r) + (v - 1) * x->ranks + v) / v;
  *stashes = live < most ? live : most;
  const double in = from == START ? 0 : (double)st->cross[from], out = (double)st->cross[to];
  double bytes = (double)range_cost(st, from, to, KEY_WEIGHT) + (double)range_grad(t, from, to) +
                 (double)range_cost(st, from, to, KEY_OPT) +
                 4 * (in + out * peers(replicas, cell_of(x, d - replicas, to)->replicas)) +
                 (double)range_cost(st, from, to, KEY_WORK) +
                 *stashes * (double)range_cost(st, from, to, KEY_ACT);
  if (x->order == ORDER_ZB_H1)
    bytes += (r + 1) * (double)range_cost(st, from, to, KEY_GOUT);
  return bytes;
}

/* The share of its forwards that a stage on part `at` runs again to fit, those of layers if they
 * save enough. INFINITY: it does not fit. */
static double share_again(const Search *x, uint32_t from, uint32_t to, const Saving *layers,
                          uint32_t at, uint32_t replicas, Again *again) {
  const States *st = &x->t->states;
  double stashes, over = bytes_of(x, from, to, at, replicas, &stashes);
  *again = NOTHING;
  over -= (double)x->t->memory * x->ranks / x->parts;
  if (x->t->memory == 0 || over <= 0)
    return 0;
  if (x->order == ORDER_ZB_H1)
    return INFINITY;
  double share = INFINITY;
  for (int longer = 0; longer < 2; longer++, layers++)
    share = fmin(share, (over + layers->scratch) / (stashes * layers->stash));
  *again = LAYERS;
  if (share <= 1)
    return share;
  *again = STAGE;
  const double in = from == START ? 0 : (double)st->cross[from],
               stage = (stashes - 1) * (double)range_cost(st, from, to, KEY_ACT) - stashes * in;
  return over <= stage ? 1 : INFINITY;
}

/* The time of a microbatch on the stage; *pass: of one that goes through it alone. INFINITY: the
 * stage does not fit. */
static double period(const Search *x, uint32_t from, uint32_t to, const Saving *layers, uint32_t at,
                     uint32_t replicas, double *pass, Again *again) {
  const Task *t = x->t;
  const States *st = &t->states;
  const double share = share_again(x, from, to, layers, at, replicas, again);
  if (isinf(share))
    return INFINITY;
  const uint32_t last = at + replicas - 1;
  double slow = x->fastest, work = (double)range_time(st, from, to);
  for (uint32_t k = at; x->uneven && k <= last; k++)
    slow = fmin(slow, t->cluster.speed[rank_of(x, k)]);
  if (share > 0)
    work += share * (double)range_cost(st, from, to, t->layers.has[KEY_R] ? KEY_R : KEY_F);
  const double in = at > 0 ? link_time(x, at - 1, from) : 0, out = link_time(x, last, to);
  double once = (double)range_cost(st, from, to, KEY_U) / slow;
  once += ring_time(level_between(&t->cluster, rank_of(x, at), rank_of(x, last)), replicas,
                    range_grad(t, from, to));
  *pass = work / slow + 2 * out;
  if (x->order == ORDER_ZB_H1)
    *pass -= (double)range_cost(st, from, to, KEY_W) / slow;
  const double busy = fmax(work / slow, x->turns ? 2 * (in + out) : fmax(in, out));
  return busy / replicas + once / t->nmb;
}

/* Fills A for periods of at most `most`; with `shortest`, cost is the longest period instead. */
static void solve(const Search *x, double most, bool shortest) {
  for (uint32_t d = 0; d <= x->parts; d++)
    for (uint32_t k = START; k != x->n; k++)
      *cell_of(x, d, k) = (Cell){.cost = d == 0 && k == x->n - 1 ? 0 : INFINITY};
  for (uint32_t d = 1; d <= x->parts; d++)
    for (uint32_t k = START; k != x->n; k++) {
      Cell *best = cell_of(x, d, k);
      const double before = k == START ? 0 : (double)x->t->states.time[k];
      for (uint32_t i = x->next0[k + 1]; i < x->next0[k + 2]; i++) {
        const uint32_t j = x->next[i], least = x->straight ? 1 : d;
        const double work = ((double)x->t->states.time[j] - before) / x->fastest;
        if (work > least * (shortest ? best->cost : most))
          break;
        for (uint32_t n = 1; n <= least && n <= x->t->nmb; n++) {
          const double rest = cell_of(x, d - n, j)->cost;
          double pass;
          Again again;
          if (rest >= best->cost || work > n * most)
            continue;
          const double p = period(x, k, j, x->layers[i], x->parts - d, n, &pass, &again);
          const double cost = shortest ? fmax(p, rest) : pass + rest;
          if (p <= most && cost < best->cost)
            *best = (Cell){cost, j, n, again};
        }
      }
    }
}

bool add_choice(Choice c) {
  Task *t = c.task;
  for (uint32_t i = 0; i < t->found.n; i++) {
    const Choice *o = &t->found.at[i];
    if (o->order == c.order && o->nstage == c.nstage && o->early == c.early &&
        memcmp(o->stage, c.stage, c.nstage * sizeof *c.stage) == 0)
      return false;
  }
  c.stage = memcpy(NEW_ARRAY(t->s->arena, PlanStage, c.nstage), c.stage,
                   c.nstage * sizeof *c.stage);
  *vec_push(t->s->arena, &t->found) = c;
  return true;
}

/* Adds the plan of A for d parts, and the one whose stages recompute as a whole. */
static void add(const Search *x, uint32_t d, double most) {
  const uint32_t chunks = x->parts / x->ranks;
  Choice c = {.task = x->t, .order = x->order, .nrank = x->parts == d ? x->ranks : d};
  double estimate = cell_of(x, d, START)->cost;
  if (isinf(estimate))
    return;
  estimate = estimate / chunks + ((double)x->t->nmb * chunks - 1) * most;
  c.estimate = (uint64_t)estimate;
  c.stage = x->stage;
  for (int whole = 0; whole < 2; whole++) {
    c.nstage = 0;
    for (uint32_t k = START, left = d; k != x->n - 1;) {
      const Cell *cell = cell_of(x, left, k);
      c.stage[c.nstage++] = (PlanStage){k, cell->to, cell->replicas,
                                        cell->again > (whole ? NOTHING : LAYERS), 0};
      left -= cell->replicas, k = cell->to;
    }
    add_choice(c);
  }
}

/* Plans of one kind, by the shortest period and by longer ones. */
static void search(Search *x) {
  static const double longer[] = {1, 1.003, 1.01, 1.02, 1.04, 1.07, 1.1, 1.15, 1.25, 1.4, 1.7};
  x->cell = NEW_ARRAY(x->t->s->arena, Cell, (size_t)(x->parts + 1) * (x->n + 1));
  x->stage = NEW_ARRAY(x->t->s->arena, PlanStage, x->parts);
  solve(x, INFINITY, true);
  const uint32_t fewest = x->order == ORDER_1F1B ? 1 : x->parts; /* parts of a plan */
  double least = INFINITY;
  for (uint32_t d = x->parts; d >= fewest; d--)
    least = fmin(least, cell_of(x, d, START)->cost);
  if (isinf(least))
    return;
  for (size_t i = 0; i < sizeof longer / sizeof *longer; i++) {
    solve(x, least * longer[i], false);
    for (uint32_t d = x->parts; d >= fewest; d--) /* fewer ranks may need fewer transfers */
      add(x, d, least * longer[i]);
  }
}

/* Of many states, those that send the least: one for each of MOST_CUTS equal parts of the work. */
static bool *tried_states(const Task *t) {
  const States *st = &t->states;
  bool *tried = NEW_ARRAY(t->s->arena, bool, st->n);
  const double part = (double)st->time[st->n - 1] / MOST_CUTS;
  uint32_t best = 0;
  for (uint32_t k = 0; k < st->n; k++) {
    if (st->n <= MOST_CUTS || k + 1 == st->n) {
      tried[k] = true;
    } else if (tried[best] &&
               floor((double)st->time[k] / part) == floor((double)st->time[best] / part)) {
      if (st->cross[k] < st->cross[best])
        tried[best] = false, tried[best = k] = true;
    } else {
      tried[best = k] = true;
    }
  }
  return tried;
}

/* What recomputation by layer saves of the stages that may be. */
static void find_savings(Search *x) {
  Arena *a = x->t->s->arena;
  Run run[MOST_RUNS];
  x->layers = arena_zalloc(a, x->next0[x->n + 1], sizeof *x->layers);
  for (uint32_t k = START; k != x->n && x->t->memory > 0; k++)
    for (uint32_t i = x->next0[k + 1]; i < x->next0[k + 2]; i++) {
      for (int longer = 0; longer < 2; longer++) {
        const uint32_t n = find_runs(x->t, k, x->next[i], longer, run);
        Saving s = {0, 0};
        for (uint32_t j = 0; j < n; j++)
          s = (Saving){s.stash + (double)run[j].saves, fmax(s.scratch, (double)run[j].act)};
        x->layers[i][longer] = s;
      }
    }
}

void find_choices(Task *t) {
  const States *st = &t->states;
  const bool *tried = tried_states(t);
  Search x = {.t = t, .n = st->n, .ranks = t->cluster.nrank};
  Arena *a = t->s->arena;
  VEC(uint32_t) next = {0};
  for (uint32_t r = 0; r < x.ranks; r++)
    x.fastest = fmax(x.fastest, t->cluster.speed[r]), x.uneven |= t->cluster.speed[r] != 1;
  x.next0 = NEW_ARRAY(a, uint32_t, (size_t)st->n + 2);
  for (uint32_t k = START; k != st->n; k++) {
    for (uint32_t j = k + 1; (k == START || tried[k]) && j < st->n; j++)
      if (tried[j] && (k == START || is_below(st, k, j)))
        *vec_push(a, &next) = j;
    x.next0[k + 2] = next.n;
  }
  x.next = next.at;
  find_savings(&x);
  const bool split = t->layers.has[KEY_I] && t->layers.has[KEY_W];
  for (int turns = 0; turns < 2; turns++)
    for (int straight = 0; straight < 2; straight++)
      for (int order = 0; order <= ORDER_INTERLEAVED; order++) {
        const bool chunks = order == ORDER_INTERLEAVED;
        x.order = (PlanOrder)order, x.straight = straight, x.turns = turns;
        if (order != ORDER_1F1B && (!straight || x.ranks < 2))
          continue;
        if (chunks ? t->nmb % x.ranks != 0 : order == ORDER_ZB_H1 && !split)
          continue;
        for (uint32_t v = chunks ? 2 : 1; v <= (chunks ? MOST_CHUNKS : 1); v++) {
          x.parts = v * x.ranks;
          search(&x);
        }
      }
}
