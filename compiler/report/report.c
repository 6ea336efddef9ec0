/* SPDX-License-Identifier: MIT
 * Prints the report of --check: the verdict, the model it holds under, and a line per rank. */
#include <ctype.h>
#include <inttypes.h>

#include "base.h"
#include "limit.h"
#include "lower.h"
#include "names.h"
#include "orders.h"
#include "prove.h"
#include "report.h"
#include "stages.h"
#include "timing.h"
#include "weights.h"

enum { ROWS = 8 }; /* clauses of one kind that are listed; the report counts the rest */

double bubble_percent(const Sched *s, uint64_t makespan) {
  double all = (double)makespan * s->model->nrank;
  return all > 0 ? 100 * (1 - (double)s->times->busy / all) : 0;
}

MeasuredMean measured_mean(const Sched *s, uint32_t first) {
  const PipeProgram *p = s->prog;
  MeasuredMean sum = {0, 0};
  for (uint32_t k = first; k < s->measured->nstep; k++) {
    uint64_t begin = UINT64_MAX, end = 0;
    for (uint32_t r = 0; r < p->nrank; r++) {
      const uint64_t *from = s->measured->start[(size_t)k * p->nrank + r],
                     *to = s->measured->end[(size_t)k * p->nrank + r];
      for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
        begin = from[i] < begin ? from[i] : begin;
        end = to[i] > end ? to[i] : end;
        if (pipe_stream_of(p->rank[r].instr[i].op) == PIPE_COMPUTE)
          sum.busy += (double)(to[i] - from[i]);
      }
    }
    sum.makespan += end > begin ? (double)(end - begin) : 0;
  }
  const double n = s->measured->nstep - first;
  return (MeasuredMean){sum.makespan / n, sum.busy / n};
}

/* Prints measured against predicted times. Times in units are scaled to equal busy time. */
static void report_measured(Sched *s, FILE *f) {
  const uint32_t n = s->measured->nstep;
  if (n == 0)
    return;
  const MeasuredMean got = measured_mean(s, 0);
  const double all = got.makespan * s->model->nrank;
  double predicted = (double)s->times->makespan;
  if (!s->model->timed && s->times->busy > 0)
    predicted *= got.busy / (double)s->times->busy;
  fprintf(f, "measured  %.3f ms", got.makespan / 1e6);
  if (predicted > 0)
    fprintf(f, ", %.3f times the predicted makespan", got.makespan / predicted);
  fprintf(f, "; bubble %.2f %% (%s %u step%s)\n", all > 0 ? 100 * (1 - got.busy / all) : 0,
          n == 1 ? "of" : "mean of", n, n == 1 ? "" : "s");
}

static void report_buffer(Sched *s, FILE *f) {
  if (s->opt->model.buffer == 0)
    return;
  fprintf(f, "buffer    %s\n",
          s->verdict->least_buffer == 0
              ? "not needed: the lists complete with rendezvous sends, too"
              : arena_printf(s->arena, "at least %s per directed rank pair",
                             buffer_text(s, s->verdict->least_buffer)));
}

/* "9 stages", or "9 stages, 21 copies" if a stage of the model is on several ranks. */
static const char *stages_text(Sched *s) {
  const char *model = arena_printf(s->arena, "%u stage%s", s->model->nmodel,
                                   s->model->nmodel == 1 ? "" : "s");
  return s->model->nstage == s->model->nmodel
             ? model
             : arena_printf(s->arena, "%s, %u copies", model, s->model->nstage);
}

/* The whole report of a file with its own transfers. */
static void report_lists(Sched *s, FILE *f) {
  const uint32_t nupdate = s->model->forward ? 0 : s->model->nstage;
  fprintf(f, "%s: %u rank%s, %s, %u microbatch%s, %u ops, %u transfers of its own\n",
          printable(s, s->model->name), s->model->nrank, s->model->nrank == 1 ? "" : "s",
          stages_text(s), s->model->nmb, s->model->nmb == 1 ? "" : "es", s->orders->nop - nupdate,
          s->ideal->nxfer);
  fprintf(f, "proved    complete, in order, deadlock-free, matched\n");
  fprintf(f, "model     %s\n", model_text(s));
  report_buffer(s, f);
  fprintf(f, "program   none: on the engines (rendezvous, one comm stream per rank) %s\n",
          s->verdict->only_lists);
}

double above_percent(uint64_t value, uint64_t bound) {
  return bound ? 100 * ((double)value / (double)bound - 1) : 0;
}

/* Prints the lowering that `auto` chose, and the makespan of the other. */
static void report_lowering(Sched *s, FILE *f) {
  const struct LoweringChoice *c = &s->lowered->choice;
  const bool global = s->lowered->lowering == PIPE_GLOBAL;
  if (!c->other && global)
    return;
  const char *name = lowering_text(s->lowered->lowering);
  if (!c->other)
    fprintf(f, "lowering  %s\n", name);
  else
    fprintf(f,
            "lowering  %s; %s takes %s (%+.1f %%); channels has up to %u communicators on a rank\n",
            name, global ? "channels" : "global", time_text(s, c->other),
            above_percent(c->other, s->times->makespan), c->communicators);
}

/* Prints updates, if some stage updates more than once in a step. */
static void report_updates(Sched *s, FILE *f) {
  uint32_t most = 1, stale = 0, apart = 0;
  for (uint32_t st = 0; st < s->model->nstage; st++)
    most = updates_of(s, st) > most ? updates_of(s, st) : most;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    stale = s->versions->staleness[r] > stale ? s->versions->staleness[r] : stale;
    apart = s->versions->discrepancy[r] > apart ? s->versions->discrepancy[r] : apart;
  }
  if (most > 1)
    fprintf(f, "updates   up to %u of a stage; %s\n", most,
            stale == 0 ? "synchronous"
                       : arena_printf(s->arena, "asynchronous: staleness %u, discrepancy %u", stale,
                                      apart));
}

/* Prints the limits of stashes as the text has them. */
static void report_limits(Sched *s, FILE *f) {
  for (uint32_t i = 0; i < s->claims->nlimit && i < ROWS; i++) {
    const Clause *c = s->claims->limit[i];
    Span at = c->value->at;
    if (c->var)
      at.end = (c->range.step ? c->range.step : c->range.hi)->at.end;
    fprintf(f, "limit     %s\n", printable(s, span_text(s, at)));
  }
  if (s->claims->nlimit > ROWS)
    fprintf(f, "          and %u more\n", s->claims->nlimit - ROWS);
}

static void report_links(Sched *s, FILE *f) {
  uint64_t most = 0;
  if (s->model->nshare == 0)
    return;
  for (uint32_t i = 0; i < s->model->nlink; i++)
    most = s->times->link_busy[i] > most ? s->times->link_busy[i] : most;
  fprintf(
      f,
      "links     %u shared: the busiest is in use %.2f %% of the time; transfers and copies wait %s for them, summed up\n",
      s->model->nlink, s->times->makespan ? 100 * (double)most / (double)s->times->makespan : 0,
      time_text(s, s->times->link_wait));
}

/* "27, bound 22 (+23 %)" */
static const char *above_text(Sched *s, uint64_t value, uint64_t bound) {
  double above = above_percent(value, bound);
  return arena_printf(s->arena, "%s, bound %s (+%.*f %%)", time_text(s, value), time_text(s, bound),
                      above > 0 && above < 9.95, above);
}

const char *bound_text(Sched *s) {
  const Timing bound = program_bound(s);
  return arena_printf(s->arena, "makespan %s; span %s",
                      above_text(s, s->times->makespan, bound.makespan),
                      above_text(s, s->times->span, bound.span));
}

/* Prints the steady state. */
static void report_steady(Sched *s, FILE *f) {
  if (s->times->steady.per == 0)
    return;
  const char *unit = "";
  double t = (double)s->times->steady.time / (double)s->times->steady.per;
  if (s->model->timed) {
    static const struct {
      double ns;
      const char *unit;
    } row[] = {{1e9, " s"}, {1e6, " ms"}, {1e3, " us"}, {1, " ns"}};
    int k = 0;
    while (k < 3 && t < row[k].ns)
      k++;
    t /= row[k].ns, unit = row[k].unit;
  }
  fprintf(f, "steady    %.3f%s a microbatch\n", t, unit);
}

/* Says which parameter, that of the microbatches, the command did not give. */
static void report_default(Sched *s, FILE *f) {
  const char *open = open_parameter(s);
  if (open)
    fprintf(f, "default   %s has its default; -D %s=1..64 checks each of 64 values\n", open, open);
}

/* Prints why `tune` did not take the best order of an idle network. */
static void report_tune(Sched *s, FILE *f) {
  const Tuning *t = s->tuning;
  const bool written = !t->moved && t->at == 0;
  const char *by = printable(s, span_text(s, t->clause->value->at));
  if (written)
    fprintf(f, "tune      kept the order as written: ");
  else
    fprintf(f, "tune      took %s = %" PRId64 "%s: ", t->clause->var, s->eval.env[t->clause->slot],
            t->moved ? "" : " as written");
  fprintf(f, "%s is %" PRId64 " as emitted, %" PRId64 " %s\n", by, t->worth[0], t->worth[1],
          written ? "if tuned" : "with the best on an idle network");
}

void emit_report(Sched *s, FILE *f) {
  if (s->verdict->only_lists) {
    report_lists(s, f);
    return;
  }
  uint32_t nmb = s->model->nmb / s->model->slices;
  fprintf(f, "%s%s%s: %u rank%s, %s, %u microbatch%s%s, %u ops, %u transfers%s\n",
          printable(s, s->model->name), *s->model->params ? " " : "",
          printable(s, s->model->params), s->model->nrank, s->model->nrank == 1 ? "" : "s",
          stages_text(s), nmb, nmb == 1 ? "" : "es",
          s->model->slices > 1 ? arena_printf(s->arena, " of %u slices", s->model->slices) : "",
          s->orders->nop, s->ideal->nxfer, s->orders->lists ? " of its own" : "");
  fprintf(f, "proved    complete, in order, deadlock-free, matched; %u check%s", s->claims->ncheck,
          s->claims->ncheck == 1 ? "" : "s");
  if (s->claims->nlimit)
    fprintf(f, ", %u limit%s", s->claims->nlimit, s->claims->nlimit == 1 ? "" : "s");
  fputc('\n', f);
  report_limits(s, f);
  report_default(s, f);
  if (s->tuning->other)
    report_tune(s, f);
  if (s->model->layers)
    fprintf(f, "layers    %s\n", printable(s, s->model->layers));
  const char *lacks = profile_lacks(s);
  if (lacks)
    fprintf(f, "profile   has %s\n", lacks);
  report_lowering(s, f);
  fprintf(f, "model     %s, at most %u slots per channel\n", model_text(s),
          s->lowered->channel_slots);
  report_buffer(s, f);
  const Timing bound = program_bound(s);
  fprintf(f, "makespan  %s; bubble %.2f %%%s\n", above_text(s, s->times->makespan, bound.makespan),
          bubble_percent(s, s->times->makespan),
          s->times->makespan == s->ideal->time.makespan
              ? ""
              : arena_printf(s->arena, "; %s on an idle network",
                             time_text(s, s->ideal->time.makespan)));
  report_measured(s, f);
  fprintf(f, "span      %s\n", above_text(s, s->times->span, bound.span));
  report_steady(s, f);
  report_links(s, f);
  report_updates(s, f);
  for (uint32_t k = 0; k < s->model->ntie && k < ROWS; k++) {
    uint32_t nrank = 0;
    fprintf(f, "tied      stages");
    for (uint32_t j = s->model->tie_row0[k]; j < s->model->tie_row0[k + 1]; j++) {
      uint32_t st = s->model->tie_row[j];
      nrank += s->model->stage[st].tied == st;
      if (st == s->model->stage[st].model)
        fprintf(f, " %u", st);
    }
    fprintf(
        f, ": %s%s on %u rank%s before the update\n",
        s->model->sized
            ? bytes_text(s, s->model->stage[s->model->tie_row[s->model->tie_row0[k]]].tied_bytes)
            : "their gradients",
        s->model->sized ? " of gradients, summed" : " are summed", nrank, nrank == 1 ? "" : "s");
  }
  if (s->model->ntie > ROWS)
    fprintf(f, "          and %u more\n", s->model->ntie - ROWS);
  bool kept = false, away = false;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    kept |= s->lowered->peak[r].kept > 0;
    away |= s->lowered->peak[r].host > 0 || s->lowered->peak[r].guests > 0;
  }
  fprintf(f, "rank  utilisation  warmup  in flight  held%s%s%s%s\n", kept ? "  kept" : "",
          s->versions->weights ? "  versions  staleness" : "", away ? "  host  guests" : "",
          s->model->sized ? "  bytes        at" : "");
  enum { SHOWN = 32 };
  for (uint32_t r = 0; r < s->model->nrank && r < SHOWN; r++) {
    const Peak *p = &s->lowered->peak[r];
    fprintf(f, "%4u  %10.1f%%  %6u  %9u  %4u", r,
            s->times->makespan ? 100 * (double)s->times->rank_busy[r] / (double)s->times->makespan
                               : 0,
            p->warmup, p->inflight, p->held);
    if (kept)
      fprintf(f, "  %4u", p->kept);
    if (s->versions->weights)
      fprintf(f, "  %8u  %9u", p->versions, s->versions->staleness[r]);
    if (away)
      fprintf(f, "  %4u  %6u", p->host, p->guests);
    if (s->model->sized)
      fprintf(f, "  %-11s  %s", bytes_text(s, p->bytes[PEAK_total]),
              p->op == NONE ? "" : op_text(s, p->op));
    fputc('\n', f);
  }
  if (s->model->nrank > SHOWN)
    fprintf(f, "      and %u more: --emit=json has all\n", s->model->nrank - SHOWN);
  if (s->parsed->unchecked)
    fprintf(f, "unchecked %s\n", s->parsed->unchecked);
}
