/* SPDX-License-Identifier: MIT
 * Times of instructions: an event with a time before and after each, read once the step is over.
 * Times count from an event at the begin of the step, and that event counts from the one of the
 * previous step, back to an event whose time on the host's clock is known. So no float holds more
 * than the time of a step.
 *
 * A graph records the same events at each launch; the engine reads them before the next launch.
 *
 * With a group all times are on the clock of rank 0: when the run is opened, a rank hears that
 * clock several times and uses the fastest message, which is late by at most its own time on the
 * way. */
#include <stdlib.h>

#include "cuda_engine.h"

static PrStatus hear_clock(PrRun *run, int64_t *ahead) {
  enum { TIMES = 16 };
  *ahead = INT64_MAX;
  for (int i = 0; i < TIMES; i++) {
    uint64_t theirs = 0;
    PrStatus st = cuda_meet(run); /* all wait by now */
    theirs = pr_now();
    if (!st)
      st = cuda_share(run, 0, &theirs, sizeof theirs);
    if (st)
      return st;
    int64_t late = (int64_t)(pr_now() - theirs);
    *ahead = late < *ahead ? late : *ahead;
  }
  if (run->here == 0)
    *ahead = 0;
  return PR_OK;
}

PrStatus cuda_trace_open(PrRun *run) {
  PrCuda *c = cuda_of(run);
  PrStatus st = PR_OK;
  int64_t ahead = 0;
  if (!run->o.trace_steps)
    return PR_OK;
  if (c->o.group && (st = hear_clock(run, &ahead)))
    return st;
  if (!(c->base = calloc(run->trace_slots, sizeof *c->base)))
    return pr_fail(run, PR_E_MEMORY, "no memory for the trace");
  for (uint64_t i = 0; i < run->trace_slots; i++)
    CUDA_TRY(run, cudaEventCreateWithFlags(&c->base[i], cudaEventDefault));
  for (uint32_t r = 0; r < c->nhere; r++) {
    CudaRank *d = &c->rank[r];
    size_t n = 2 * run->trace_slots * (size_t)d->k->t->ninstr;
    if (!(d->mark = calloc(n, sizeof *d->mark)))
      return pr_fail(run, PR_E_MEMORY, "no memory for the trace of rank %u", d->k->id);
    for (size_t i = 0; i < n; i++)
      CUDA_TRY(run, cudaEventCreateWithFlags(&d->mark[i], cudaEventDefault));
  }
  cudaEvent_t first = c->base[run->trace_slots - 1]; /* as of the step before the first */
  CUDA_TRY(run, cudaEventRecord(first, c->rank[0].stream[PIPE_COMPUTE]));
  if ((st = cuda_wait_event(run, first)))
    return st;
  uint64_t now = pr_now();
  run->epoch_ns = now;
  if (c->o.group && (st = cuda_share(run, 0, &run->epoch_ns, sizeof run->epoch_ns)))
    return st;
  c->base_ns = (double)((int64_t)(now - run->epoch_ns) - ahead);
  return PR_OK;
}

static PrStatus elapsed(PrRun *run, cudaEvent_t from, cudaEvent_t to, double *ns) {
  float ms = 0;
  CUDA_TRY(run, cudaEventElapsedTime(&ms, from, to));
  *ns = 1e6 * (double)ms;
  return PR_OK;
}

PrStatus cuda_trace_step(PrRun *run, uint64_t step) {
  PrCuda *c = cuda_of(run);
  uint64_t slots = run->trace_slots;
  cudaEvent_t base = c->base[step % slots];
  double ns = 0;
  PrStatus st = elapsed(run, c->base[(step + slots - 1) % slots], base, &ns);
  if (st)
    return st;
  c->base_ns += ns;
  for (uint32_t r = 0; r < c->nhere; r++) {
    CudaRank *d = &c->rank[r];
    for (uint32_t i = 0; i < d->k->t->ninstr; i++) {
      const PipeInstr *in = &d->k->t->instr[i];
      bool later = i > 0 && pipe_op_info[in->op].comm && in[-1].group > 0;
      if (later) { /* a group begins and ends at once */
        *pr_span(run, d->k, step, i) = *pr_span(run, d->k, step, i - 1);
        continue;
      }
      uint32_t last = i + (pipe_op_info[in->op].comm ? in->group : 0);
      cudaEvent_t *m = &d->mark[(cuda_mark_slot(c, step) * d->k->t->ninstr + i) * 2];
      double at[2];
      for (uint32_t j = 0; j < 2; j++) {
        if ((st = elapsed(run, base, m[j ? 2 * (last - i) + 1 : 0], &at[j])))
          return st;
        at[j] = c->base_ns + at[j] > 0 ? c->base_ns + at[j] : 0;
      }
      *pr_span(run, d->k, step, i) = (PrSpan){(uint64_t)at[0], (uint64_t)at[1]};
    }
  }
  return PR_OK;
}

void cuda_trace_close(PrRun *run) {
  PrCuda *c = cuda_of(run);
  for (uint64_t i = 0; c->base && i < run->trace_slots; i++)
    if (c->base[i])
      cudaEventDestroy(c->base[i]);
  for (uint32_t r = 0; r < c->nhere; r++) {
    CudaRank *d = &c->rank[r];
    size_t n = 2 * run->trace_slots * (size_t)d->k->t->ninstr;
    for (size_t i = 0; d->mark && i < n; i++)
      if (d->mark[i])
        cudaEventDestroy(d->mark[i]);
    free(d->mark);
  }
  free(c->base);
}
