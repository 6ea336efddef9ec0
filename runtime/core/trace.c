/* SPDX-License-Identifier: MIT
 * Spans of the last steps, and measurements from them.
 *
 * Each rank records into a ring of trace_steps + 2 steps: if ranks do not wait for one another at
 * the end of a step, a rank may be in the second step after the last one that all have finished.
 * The caller sees a copy of the kept steps, in order; its time 0 is the first start in the oldest.
 * The copy is made at the first request, between two calls of pr_steps. */
#include "run.h"

#include <string.h>

/* The kept steps are *first .. *first + n - 1; returns n. */
static uint32_t kept(const PrRun *run, uint64_t *first) {
  if (!run->rank || !run->o.trace_steps)
    return 0;
  uint64_t done = UINT64_MAX, begun = 0;
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    uint64_t n = atomic_load_explicit(&run->rank[r].step, memory_order_relaxed);
    done = n < done ? n : done;
    begun = n + 1 > begun ? n + 1 : begun;
  }
  uint64_t from = done > run->o.trace_steps ? done - run->o.trace_steps : 0;
  from = from < run->first_step ? run->first_step : from;
  if (begun > run->trace_slots && begun - run->trace_slots > from)
    /* a rank that was ahead at a failure has overwritten the rest */
    from = begun - run->trace_slots;
  *first = from;
  return done > from ? (uint32_t)(done - from) : 0;
}

PrStatus pr_share_trace(PrRun *run) {
  PrStatus st = PR_OK;
  for (uint32_t r = 0; run->o.trace_steps && r < run->p->nrank && !st; r++)
    st = run->engine->share(run, r, run->rank[r].span,
                            run->trace_slots * run->p->rank[r].ninstr * sizeof(PrSpan));
  return st;
}

static void make_view(PrRun *run, uint64_t first, uint32_t n) {
  uint64_t zero = UINT64_MAX;
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    const RankRun *k = &run->rank[r];
    for (uint32_t i = 0; i < k->t->ninstr; i++) {
      uint64_t start = pr_span(run, k, first, i)->start_ns;
      zero = start < zero ? start : zero;
    }
  }
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    const RankRun *k = &run->rank[r];
    PrSpan *to = k->view;
    for (uint32_t s = 0; s < n; s++)
      for (uint32_t i = 0; i < k->t->ninstr; i++) {
        const PrSpan *span = pr_span(run, k, first + s, i);
        *to++ = (PrSpan){span->start_ns - zero, span->end_ns - zero};
      }
  }
  run->view_end = first + n;
}

uint32_t pr_trace_steps(const PrRun *run) {
  uint64_t first;
  return kept(run, &first);
}

/* The copy belongs to a run that pr_open made, so casting the const away is safe. */
const PrSpan *pr_trace(const PrRun *run, uint32_t step, uint32_t rank) {
  uint64_t first;
  uint32_t n = kept(run, &first);
  if (step >= n || rank >= run->p->nrank)
    return NULL;
  if (run->view_end != first + n)
    make_view((PrRun *)run, first, n);
  return run->rank[rank].view + (size_t)step * run->p->rank[rank].ninstr;
}

PrStatus pr_measure(const PrRun *run, PrMeasure *out) {
  memset(out, 0, sizeof *out);
  uint32_t n = pr_trace_steps(run);
  if (n == 0)
    return PR_E_ARG;
  const PipeProgram *p = pr_see_all((PrRun *)run);
  if (!p)
    return PR_E_MEMORY;
  double makespan = 0, busy = 0;
  for (uint32_t s = 0; s < n; s++) {
    uint64_t first = UINT64_MAX, last = 0;
    for (uint32_t r = 0; r < run->p->nrank; r++) {
      const PipeRank *t = &p->rank[r];
      const PrSpan *span = pr_trace(run, s, r);
      for (uint32_t i = 0; i < t->ninstr; i++) {
        first = span[i].start_ns < first ? span[i].start_ns : first;
        last = span[i].end_ns > last ? span[i].end_ns : last;
        if (pipe_stream_of(t->instr[i].op) == PIPE_COMPUTE)
          busy += (double)(span[i].end_ns - span[i].start_ns);
      }
    }
    makespan += (double)(last - first);
  }
  out->makespan_ns = makespan / n;
  out->busy_ns = busy / n;
  if (makespan > 0)
    out->bubble = 1 - busy / (run->p->nrank * makespan);
  return PR_OK;
}
