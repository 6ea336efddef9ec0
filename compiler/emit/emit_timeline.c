/* SPDX-License-Identifier: MIT
 * Writes the prediction, and the measured times, as a picture (draw/svg.c) or as a trace for
 * Perfetto (runtime/tables/trace_json.c). Requires prog. Plays the program on the timed machine
 * again. */
#include "emit.h"
#include "base.h"
#include "lower.h"
#include "prove.h"
#include "pipe_sim.h"
#include "report.h"
#include "svg.h"
#include "trace_json.h"

const PipeInstr *over_limit(const Sched *s) {
  if (!s->verdict->over || s->lowered->peak[s->verdict->over - 1].op == NONE)
    return NULL;
  const PipeRank *k = &s->prog->rank[s->verdict->over - 1];
  const Op *o = &s->orders->op[s->lowered->peak[s->verdict->over - 1].op];
  for (uint32_t i = 0; i < k->ninstr; i++)
    if (k->instr[i].op == o->kind && k->instr[i].stage == o->stage && k->instr[i].mb == o->mb)
      return &k->instr[i];
  return NULL;
}

/* The ns of the picture per unit of the prediction. If the prediction is in abstract units, the
 * factor makes prediction and measurement equally busy, so that they differ only in waiting. */
static double ns_of_unit(const Sched *s) {
  const Measured *m = s->measured;
  const double got = m->nstep ? measured_mean(s, m->nstep - 1).busy : 0;
  return !s->model->timed && got > 0 && s->times->busy > 0 ? got / (double)s->times->busy : 1;
}

void emit_svg(Sched *s, FILE *f) {
  uint64_t **end, **start = program_times(s->arena, s->prog, &end);
  SvgTrack track[2];
  int ntrack = 0;
  const Measured *m = s->measured;
  if (m->nstep) {
    const size_t last = (size_t)(m->nstep - 1) * s->prog->nrank;
    track[ntrack++] = (SvgTrack){"Measured", m->start + last, m->end + last, 1, 1};
  }
  track[ntrack++] = (SvgTrack){"Predicted", start, end, s->model->timed, ns_of_unit(s)};
  const char *said = arena_printf(
      s->arena, "Against the bounds of any order with these places, costs and stashes: %s.",
      bound_text(s));
  if (s->verdict->over)
    said = arena_printf(s->arena, "%s Over the limit: rank %u needs %s at %s.", said,
                        s->verdict->over - 1,
                        bytes_text(s, s->lowered->peak[s->verdict->over - 1].bytes[PEAK_total]),
                        memory_sum(s, s->verdict->over - 1));
  SvgOptions o = {.memory = 1,
                  .limit_bytes = s->opt->memory_limit_bytes,
                  .arrows = s->opt->arrows,
                  .figure = s->opt->figure_px,
                  .figure_pt = s->opt->figure_pt,
                  .over = over_limit(s),
                  .said = said};
  svg_draw(f, s->prog, track, ntrack, &o);
}

void emit_trace(Sched *s, FILE *f) {
  uint64_t **end, **start = program_times(s->arena, s->prog, &end);
  const Measured *m = s->measured;
  const double scale = s->model->timed ? 1 : m->nstep ? ns_of_unit(s) : 1000;
  const char *name = s->model->timed ? "Predicted"
                     : m->nstep
                         ? arena_printf(s->arena, "Predicted (1 unit = %.3f us)", scale / 1e3)
                         : "Predicted (1 unit = 1 us)";
  const TraceGroup group[2] = {{name, start, end, 1, scale},
                               {"Measured", m->start, m->end, m->nstep, 1}};
  trace_json(f, s->prog, group, m->nstep ? 2 : 1);
}
