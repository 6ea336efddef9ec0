/* SPDX-License-Identifier: MIT
 * The planner of PipeDream-2BW (Narayanan et al., ICML 2021). It tries all numbers of replicas w
 * and of equal stages d on at most w d ranks, each with recomputation and without, and for each the
 * largest microbatch of b samples that fits. The plan has the least t / (w b), where
 *
 *   t = max over stages of max(c T + 2 a / B, S w / M)   or, where d is 1,   c T + S w / M
 *   bytes of a stage = 2 weights + d a + (act, if it recomputes; d act, if not)
 *
 * T is the F and backward of a microbatch on the stage, c is 4/3 if it recomputes and else 1, a are
 * the bytes that enter the stage. S is the sum of its gradients by a ring, 2 (w-1)/w of their
 * bytes, once in the M microbatches of a batch. Replicas are neighbours: B is the link between
 * ranks 0 and w, and the ring passes that between ranks 0 and w - 1. w divides M, and M / w is at
 * least d, as two versions of the weights ask for.
 *
 * Cut s of d is behind the last state with at most s/d of all work, or behind the next one if that
 * is nearer. A depth is left out where two cuts coincide. Of equal plans the first variant, then
 * the fewest replicas, then the fewest stages. Cost: variants ranks log(ranks) (states + ranks). */
#include <math.h>

#include "base.h"
#include "choice.h"

/* Cuts the layers into d equal stages of w replicas. False: two cuts coincide. */
static bool cut(const Task *t, uint32_t w, uint32_t d, bool recompute, PlanStage *stage) {
  const States *st = &t->states;
  const double all = (double)st->time[st->n - 1];
  uint32_t k = 0, from = START;
  for (uint32_t s = 1; s <= d; s++) {
    const double want = all * s / d;
    while (k + 1 < st->n && (double)st->time[k + 1] <= want)
      k++;
    uint32_t to = s == d ? st->n - 1 : k;
    if (s < d && k + 1 < st->n && (double)st->time[k + 1] - want < fabs(want - (double)st->time[k]))
      to = k + 1;
    if (from != START && !is_below(st, from, to))
      return false;
    stage[s - 1] = (PlanStage){from, to, w, recompute, 0};
    from = to;
  }
  return true;
}

/* The time of a sample in ns; INFINITY: there is no such plan, or it does not fit. */
static double sample_time(const Task *t, uint32_t w, uint32_t d, bool recompute, PlanStage *stage) {
  const States *st = &t->states;
  double slowest = 0;
  if (t->nmb % w || t->nmb / w < d || !cut(t, w, d, recompute, stage))
    return INFINITY;
  const double link = d == 1 ? 1 : (double)level_between(&t->cluster, 0, w)->bandwidth,
               ring = (double)level_between(&t->cluster, 0, w - 1)->bandwidth;
  for (uint32_t s = 0; s < d; s++) {
    const uint32_t from = stage[s].from, to = stage[s].to;
    const double in = from == START ? 0 : (double)st->cross[from],
                 act = (double)range_cost(st, from, to, KEY_ACT),
                 weight = (double)range_cost(st, from, to, KEY_WEIGHT);
    if (t->memory > 0 && 2 * weight + d * in + (recompute ? act : d * act) > (double)t->memory)
      return INFINITY;
    const double pass = (recompute ? 4.0 / 3 : 1) * (double)range_time(st, from, to) +
                        2 * in * 1e9 / link,
                 sum = 2.0 * (w - 1) / w * (double)range_grad(t, from, to) * 1e9 / ring * w /
                       t->nmb;
    slowest = fmax(slowest, d == 1 ? pass + sum : fmax(pass, sum));
  }
  return slowest / w / (t->layers.microbatch ? t->layers.microbatch : 1);
}

/* Is there a larger microbatch of the same width with a plan? */
static bool larger_fits(const Task *task, uint32_t n, const Task *t, uint32_t w, uint32_t d,
                        bool recompute, PlanStage *stage) {
  for (uint32_t k = 0; k < n; k++)
    if (task[k].layers.width == t->layers.width &&
        task[k].layers.microbatch > t->layers.microbatch &&
        !isinf(sample_time(&task[k], w, d, recompute, stage)))
      return true;
  return false;
}

bool twobw_choice(Task *task, uint32_t n, Choice *c, double *ns) {
  Sched *s = task->s;
  uint32_t most = 0;
  for (uint32_t k = 0; k < n; k++)
    most = task[k].cluster.nrank > most ? task[k].cluster.nrank : most;
  PlanStage *stage = NEW_ARRAY(s->arena, PlanStage, most);
  *c = (Choice){.order = ORDER_2BW, .stage = NEW_ARRAY(s->arena, PlanStage, most)};
  *ns = INFINITY;
  for (Task *t = task; t < task + n; t++)
    for (uint32_t w = 1; w <= t->cluster.nrank; w++)
      for (uint32_t d = 1; w * d <= t->cluster.nrank && d <= t->states.n; d++)
        for (int again = 0; again < 2; again++) {
          const double time = sample_time(t, w, d, again, stage);
          if (time >= *ns || larger_fits(task, n, t, w, d, again, stage))
            continue;
          *ns = time, c->task = t, c->nstage = d, c->nrank = w * d;
          cut(t, w, d, again, c->stage);
        }
  if (isinf(*ns))
    diag_error(s->diag, DIAG_PLAN, NO_SPAN,
               "no equal stages fit in the memory of a rank, as 2BW's planner counts it, with a "
               "microbatch for each in each batch");
  return !isinf(*ns);
}
