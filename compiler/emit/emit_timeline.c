/* SPDX-License-Identifier: MIT
 * Writes the prediction as a picture (runtime/draw/svg.c) and as a trace for Perfetto
 * (runtime/draw/trace_json.c). Requires prog. Plays the machine that check_deadlock proved once
 * more. */
#include "emit.h"
#include "base.h"
#include "lower.h"
#include "prove.h"
#include "report.h"
#include "svg.h"
#include "timing.h"
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

void emit_svg(Sched *s, FILE *f) {
  uint64_t **end, **start = predict(s, &end);
  SvgTrack track = {"Predicted", start, end, s->model->timed, 1};
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
  if (svg_draw(f, s->prog, &track, 1, &o) != 0 && !ferror(f))
    s->arena->oom(0);
  free(*start);
}

void emit_trace(Sched *s, FILE *f) {
  uint64_t **end, **start = predict(s, &end);
  TraceGroup group = {s->model->timed ? "Predicted" : "Predicted (1 unit = 1 us)", start, end, 1,
                      s->model->timed ? 1 : 1000};
  if (trace_json(f, s->prog, &group, 1) != 0 && !ferror(f))
    s->arena->oom(0);
  free(*start);
}
