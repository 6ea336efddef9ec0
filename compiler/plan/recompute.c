/* SPDX-License-Identifier: MIT
 * Recomputation by layer. The layers of a stage form runs, whose stashes have at least KEEPS times
 * the bytes that enter the run. Of such ends a short run takes the first, a long run the one where
 * the bytes that leave it and 1/(2 KEEPS) of its stash are least. Short runs need less scratch,
 * long ones keep less. A run that recomputes keeps only what enters it. Its forward is part of the
 * backward, whose scratch then holds the stashes of the run. The first layer of the model does not
 * recompute, as no profile has the bytes that enter it.
 *
 * Which runs recompute is a knapsack: the least time that saves enough bytes. For each bound of the
 * scratch, runs are taken by the bytes that they save in a ns until they are enough. Then those are
 * given up without which the others are enough, the longest first. Of runs of equal layers no set
 * takes less time; of others none is shorter by a whole run. Cost: runs^3. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "choice.h"

enum { KEEPS = 4 };

uint32_t find_runs(const Task *t, uint32_t from, uint32_t to, uint64_t longer, Run run[MOST_RUNS]) {
  const States *st = &t->states;
  const CostKey again = t->layers.has[KEY_R] ? KEY_R : KEY_F;
  uint32_t n = 0;
  if (!t->layers.has[KEY_B] && !t->layers.has[KEY_I]) /* nothing says how long a backward takes */
    return 0;
  from = from == START ? 0 : from;
  uint32_t end = from; /* of the run, the best so far; `from` itself: there is none */
  double least = INFINITY;
  for (uint32_t k = from + 1; from != to && k <= to && n < MOST_RUNS; k++) {
    if (!is_below(st, from, k) || (k != to && !is_below(st, k, to)))
      continue;
    const uint64_t act = range_cost(st, from, k, KEY_ACT), in = st->cross[from];
    const double more = (double)act / (2 * KEEPS),
                 cost = more + (k == to ? 0 : (double)st->cross[k]);
    if ((act / KEEPS >= in || (k == to && end == from)) && cost < least)
      end = k, least = cost;
    if (k != to && (end == from || (longer && more < least)))
      continue;
    const uint64_t stash = range_cost(st, from, end, KEY_ACT);
    if (stash > in)
      run[n] = (Run){from, end, stash, stash - in, range_cost(st, from, end, again), n}, n++;
    k = from = end, least = INFINITY;
  }
  return n;
}

/* The most bytes for a ns first; of equal ones the first. */
static int by_worth(const void *a, const void *b) {
  const Run *x = a, *y = b;
  const double more = (double)x->saves * (double)y->time, less = (double)y->saves * (double)x->time;
  return more != less ? (more > less ? -1 : 1) : x->to < y->to ? -1 : x->to > y->to;
}

static int by_time(const void *a, const void *b) {
  const Run *x = a, *y = b;
  return x->time != y->time ? (x->time > y->time ? -1 : 1) : by_worth(y, x);
}

/* What the runs of a set cost and save. */
typedef struct Spared {
  uint64_t time, saves, scratch;
} Spared;

static Spared spared_by(const Run *run, uint32_t n, uint64_t set) {
  Spared sum = {0, 0, 0};
  for (uint32_t i = 0; i < n; i++)
    if (set >> run[i].at & 1) {
      sum.time += run[i].time, sum.saves += run[i].saves;
      sum.scratch = run[i].act > sum.scratch ? run[i].act : sum.scratch;
    }
  return sum;
}

static bool is_enough(Spared s, uint64_t stashes, uint64_t bytes) {
  return stashes * s.saves >= bytes + s.scratch;
}

/* The set of runs that saves so many bytes in the least time, which is *time. 0: there is none. */
static uint64_t best_set(const Run *given, uint32_t n, uint64_t stashes, uint64_t bytes,
                         uint64_t *time) {
  Run run[MOST_RUNS], longest[MOST_RUNS];
  uint64_t best = 0;
  memcpy(run, given, n * sizeof *run), memcpy(longest, given, n * sizeof *run);
  qsort(run, n, sizeof *run, by_worth), qsort(longest, n, sizeof *run, by_time);
  for (uint32_t k = 0; k < n; k++) {
    uint64_t set = 0;
    for (uint32_t i = 0; i < n && !is_enough(spared_by(run, n, set), stashes, bytes); i++)
      set |= (uint64_t)(run[i].act <= run[k].act) << run[i].at;
    for (uint32_t i = 0; i < n; i++) {
      const uint64_t without = set & ~((uint64_t)1 << longest[i].at);
      set = is_enough(spared_by(run, n, without), stashes, bytes) ? without : set;
    }
    const Spared s = spared_by(run, n, set);
    if (is_enough(s, stashes, bytes) && (best == 0 || s.time < *time))
      best = set, *time = s.time;
  }
  return best;
}

/* The runs of a stage. Returns their number. */
static uint32_t runs_of(const Task *t, const PlanStage *p, Run run[MOST_RUNS]) {
  return p->again ? find_runs(t, p->from, p->to, p->again & LONG_RUNS, run) : 0;
}

uint64_t runs_to_save(const Task *t, const PlanStage *p, uint64_t stashes, uint64_t bytes) {
  Run run[MOST_RUNS];
  uint64_t best = 0, least = 0, time = 0;
  const Spared now = spared_by(run, runs_of(t, p, run), p->again);
  bytes += stashes * now.saves - now.scratch;
  for (int longer = 0; longer < 2; longer++) {
    const uint64_t set = best_set(run, find_runs(t, p->from, p->to, longer, run), stashes, bytes,
                                  &time);
    if (set && (best == 0 || time < least))
      best = set | (longer ? LONG_RUNS : 0), least = time;
  }
  return best;
}

static const char *layer_name(const Task *t, uint32_t place) {
  return printable(t->s, t->layers.layer.at[t->layers.sorted[place]].name);
}

/* The layers of a run, "a to c", or "a to c+e" where it lacks some between. Adds their number. */
static const char *run_text(const Task *t, const Run *run, uint32_t *nlayer) {
  const char *text = "";
  for (uint32_t i = 0, k; i < t->layers.n; i = k + 1) {
    for (k = i; k < t->layers.n && is_between(&t->states, run->from, run->to, k);)
      k++;
    if (k == i)
      continue;
    text = arena_printf(t->s->arena, k > i + 1 ? "%s%s%s to %s" : "%s%s%s", text, *text ? "+" : "",
                        layer_name(t, i), layer_name(t, k - 1));
    *nlayer += k - i;
  }
  return text;
}

/* The place of the only layer of a run; NONE: it has several. */
static uint32_t only_layer(const Task *t, const Run *run) {
  uint32_t only = NONE;
  for (uint32_t i = 0; i < t->layers.n; i++)
    if (is_between(&t->states, run->from, run->to, i)) {
      if (only != NONE)
        return NONE;
      only = i;
    }
  return only;
}

const char *again_text(const Task *t, const PlanStage *p, uint32_t *nlayer) {
  Run run[MOST_RUNS];
  const uint32_t n = runs_of(t, p, run);
  const char *list = "";
  for (uint32_t i = 0, k; i < n; i = k) {
    k = i + 1;
    if (!(p->again >> i & 1))
      continue;
    const char *text = run_text(t, &run[i], nlayer);
    const uint32_t first = only_layer(t, &run[i]);
    while (first != NONE && k < n && p->again >> k & 1 && only_layer(t, &run[k]) == first + (k - i))
      k++, ++*nlayer;
    if (k > i + 1)
      text = arena_printf(t->s->arena, "each of %s to %s", text,
                          layer_name(t, first + (k - i - 1)));
    list = arena_printf(t->s->arena, "%s%s%s", list, *list ? ", " : "", text);
  }
  return list;
}

uint64_t stage_cost(const Task *t, const PlanStage *p, CostKey k) {
  const States *st = &t->states;
  Run run[MOST_RUNS];
  const uint32_t n = runs_of(t, p, run);
  const Spared s = spared_by(run, n, p->again);
  switch (k) {
  case KEY_BOUNDARY: return st->cross[p->to];
  case KEY_WORK: return largest_cost(&t->layers, st, p->from, p->to, k) + s.scratch;
  case KEY_ACT: return range_cost(st, p->from, p->to, k) - s.saves;
  case KEY_B:
  case KEY_I: return range_cost(st, p->from, p->to, k) + s.time;
  default: return range_cost(st, p->from, p->to, k);
  }
}
