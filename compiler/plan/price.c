/* SPDX-License-Identifier: MIT
 * What the compiled schedule says of its step. Cost: a compile. */
#include <inttypes.h>

#include "price.h"
#include "base.h"
#include "critical.h"
#include "lower.h"
#include "names.h"
#include "stages.h"
#include "timing.h"

uint64_t fullest_rank(const Sched *s) {
  uint64_t most = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++)
    most = s->lowered->peak[r].bytes[PEAK_total] > most ? s->lowered->peak[r].bytes[PEAK_total]
                                                        : most;
  return most;
}

static void measure(Sched *s, Price *p) {
  const Critical *c = critical(s);
  uint64_t compute = 0;
  *p = (Price){.makespan = s->times->makespan,
               .bound = program_bound(s).makespan,
               .memory = fullest_rank(s)};
  for (uint32_t i = 0; i < c->npath; i++) {
    const PathStep *step = &c->path[i];
    const PipeInstr *in = &s->prog->rank[step->rank].instr[step->instr];
    compute += pipe_stream_of(in->op) == PIPE_COMPUTE ? step->end - step->start : 0;
  }
  p->computes = percent(compute, p->makespan);
  for (uint32_t r = 0; r < s->model->nrank; r++)
    if (c->busy[r] > c->busy[p->busiest])
      p->busiest = r;
  p->busy = percent(c->busy[p->busiest], p->makespan);
}

bool compile_priced(const Sched *s, PricedCompile *x, Price *price) {
  x->s = (Sched){.arena = &x->arena, .diag = &x->diag, .opt = &x->opt, .again = s->again};
  diag_init(&x->diag, &x->arena, NULL);
  x->opt.emit = EMIT_NONE, x->opt.time_passes = false;
  x->opt.ncompare = 0; /* a parameter that the schedule lacks is an error */
  const bool ok = s->again(&x->s) && x->diag.errors == 0 && x->s.prog;
  if (ok || (x->diag.errors > 0 && x->diag.first == DIAG_CHECK)) {
    const char *lacks = costs_lacking(&x->s);
    measure(&x->s, price);
    price->lacks = lacks ? arena_printf(s->arena, "%s", lacks) : NULL;
  }
  return ok;
}

const char *seconds(Sched *s, uint64_t ns) {
  Sched shown = {.arena = s->arena, .model = &(Model){.timed = true}};
  return time_text(&shown, ns);
}

void put_lowering(const Sched *s, FILE *f) {
  if (s->opt->lowering)
    fprintf(f, "  transfers %s\n", lowering_text((uint32_t)s->opt->lowering - 1));
}

void put_price(Sched *s, const Price *p, uint64_t limit, FILE *f) {
  fprintf(f,
          "# step    %" PRIu64 " ns (%s); no order of these stages is shorter than %s (%+.1f %%)\n",
          p->makespan, seconds(s, p->makespan), seconds(s, p->bound),
          percent(p->makespan, p->bound) - 100);
  fprintf(f,
          "# limit   rank %u computes %.1f %% of the step; the critical path computes %.1f %%, "
          "transfers %.1f %%\n",
          p->busiest, p->busy, p->computes, 100 - p->computes);
  fprintf(f, "# memory  %s on the fullest rank%s\n", bytes_text(s, p->memory),
          limit ? arena_printf(s->arena, ", limit %s", bytes_text(s, limit)) : "");
  if (p->lacks)
    fprintf(f, "# profile has %s\n", p->lacks);
}
