/* SPDX-License-Identifier: MIT
 * Cuts the layers of a profile (layers.c) into one run of layers for each stage. If every layer has
 * a stage_id, the stage_ids decide. Otherwise the time of the slowest run is least, and runs are
 * filled from the first on. The cost of a stage is the sum of the costs of its layers, with two
 * exceptions: boundary is all that later stages read of this stage and of earlier stages, and work
 * is the largest of its layers.
 *
 * Cost: linear, times at most 64 steps of a binary search for the time of the slowest stage. */
#include <string.h>

#include "layers.h"
#include "stages.h"

/* Fills runs from the first on: each has at least one layer and takes at most `most`. Returns the
 * number of runs. set: also sets Layer.stage; there are `stages` runs, each with a layer. */
static uint32_t fill_runs(Layers *l, uint64_t most, uint32_t stages, bool set) {
  uint32_t run = 0;
  uint64_t sum = 0;
  for (uint32_t k = 0; k < l->n; k++) {
    uint64_t t = layer_time(l, k);
    bool must = set && l->n - k == stages - 1 - run; /* leave a layer for each later run */
    if (k > 0 && (sum + t > most || must))
      run++, sum = 0;
    sum += t;
    if (set)
      l->layer.at[l->sorted[k]].stage = run;
  }
  return run + 1;
}

static bool cut(Layers *l, uint32_t stages) {
  Sched *s = l->s;
  uint32_t given = 0;
  uint64_t low = 0, high = 0;
  for (uint32_t k = 0; k < l->n; k++) {
    given += l->layer.at[l->sorted[k]].stage != NONE;
    low = layer_time(l, k) > low ? layer_time(l, k) : low;
    high += layer_time(l, k);
  }
  if (l->n < stages) {
    diag_error(s->diag, DIAG_PROFILE, l->at,
               "%s: layers in the profile: %u, stages in the schedule: %u", l->path, l->n, stages);
    return false;
  }
  if (given > 0 && given == l->n) {
    bool *has = NEW_ARRAY(s->arena, bool, stages);
    for (uint32_t k = 0; k < l->n; k++) {
      uint32_t st = l->layer.at[l->sorted[k]].stage;
      if (st >= stages || (k > 0 && st < l->layer.at[l->sorted[k - 1]].stage)) {
        diag_error(s->diag, DIAG_PROFILE, l->at,
                   st >= stages ? "%s: %s has stage_id %u, and the schedule has %u stages"
                                : "%s: %s has stage_id %u, less than a layer before it; %u stages",
                   l->path, l->layer.at[l->sorted[k]].name, st, stages);
        return false;
      }
      has[st] = true;
    }
    for (uint32_t st = 0; st < stages; st++)
      if (!has[st]) {
        diag_error(s->diag, DIAG_PROFILE, l->at, "%s: no layer has stage_id %u, of %u stages",
                   l->path, st, stages);
        return false;
      }
    return true;
  }
  while (low < high) { /* binary search for the least time of the slowest run */
    uint64_t most = low + (high - low) / 2;
    if (fill_runs(l, most, stages, false) <= stages)
      high = most;
    else
      low = most + 1;
  }
  fill_runs(l, low, stages, true);
  return true;
}

static void set(Sched *s, uint32_t st, CostKey k, uint64_t value, bool *has) {
  uint32_t row = st; /* replicas have the same costs */
  do
    *cost_field(&s->model->stage[row], k) = value;
  while ((row = s->model->stage[row].replica) != st);
  has[k] = true;
}

bool cut_layers(Layers *l, Model *model, bool *has) {
  Sched *s = l->s;
  Layer *y = l->layer.at;
  const uint32_t stages = model->nmodel;
  if (!cut(l, stages))
    return false;
  uint64_t(*sum)[NKEYS] = arena_zalloc(s->arena, stages, sizeof *sum);
  /* difference of bytes from one cut to the next */
  uint64_t *cross = NEW_ARRAY(s->arena, uint64_t, (size_t)stages + 1);
  uint64_t bytes = 0;
  const char *cuts = "";
  for (uint32_t k = 0; k < l->n; k++) {
    const Layer *a = &y[l->sorted[k]];
    uint64_t *of = sum[a->stage];
    for (int c = 0; c < NKEYS; c++)
      of[c] = c != KEY_WORK ? of[c] + a->cost[c] : a->cost[c] > of[c] ? a->cost[c] : of[c];
    uint32_t last = a->stage;
    for (uint32_t j = 0; j < a->nout; j++) {
      const Layer *to = &y[l->edge.at[l->out[a->first_out + j]].to];
      last = !to->gone && to->stage > last ? to->stage : last;
    }
    /* its output crosses the cuts between its stage and the last stage that reads it */
    cross[a->stage] += a->cost[KEY_BOUNDARY], cross[last] -= a->cost[KEY_BOUNDARY];
    if (k > 0 && a->stage != y[l->sorted[k - 1]].stage)
      cuts = arena_printf(s->arena, "%s%s%s", cuts, *cuts ? ", " : "", y[l->sorted[k - 1]].name);
  }
  for (uint32_t st = 0; st < stages; st++) {
    sum[st][KEY_BOUNDARY] = bytes += cross[st];
    for (CostKey k = 0; k < NKEYS; k++)
      if (l->has[k])
        set(s, st, k, sum[st][k], has);
  }
  model->layers = arena_printf(s->arena, "%u in %u stages%s%s", l->n, stages,
                               *cuts ? ", cut after " : "", cuts);
  return true;
}
