/* SPDX-License-Identifier: MIT
 * Runs the passes of a compile in order: passes.def is the list. Writes the output, and the depfile
 * for make. */
#include <string.h>
#include <time.h>

#include "base.h"
#include "certify.h"
#include "driver.h"
#include "emit.h"
#include "emit_formulas.h"
#include "limit.h"
#include "formula.h"
#include "import.h"
#include "lower.h"
#include "stages.h"
#include "orders.h"
#include "prove.h"
#include "report.h"
#include "search.h"
#include "timing.h"
#include "weights.h"

double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static bool pass_parse(Sched *s, Parsed *parsed) {
  uint32_t len;
  const char *text = input_read(s, &len);
  if (!text)
    return false;
  const uint32_t file = diag_source(s->diag, s->opt->input, text, len);
  if (*text == '{') {
    diag_error(s->diag, DIAG_REMOVED, (Span){file, 0, 1}, "pipec does not read JSON");
    diag_help(s->diag, "compile the .pipe text that it comes from; other programs write such text");
    return false;
  }
  parsed->names = intern_new(s->arena);
  parsed->tree = parse(s->arena, s->parsed->names, s->diag, file);
  return s->diag->errors == 0;
}

static void dump_tree(Sched *s, FILE *f) { ast_dump(f, s->parsed->tree); }

static bool emit(Sched *s) {
  OutFile out;
  static void (*const emitter[])(Sched *, FILE *) = {
      [EMIT_C] = emit_c,       [EMIT_CSV] = emit_csv, [EMIT_COMMS_CSV] = emit_comms_csv,
      [EMIT_JSON] = emit_json, [EMIT_SVG] = emit_svg, [EMIT_TRACE] = emit_trace};
  if (s->opt->check_only || s->opt->critical_path)
    emit_report(s, s->opt->out);
  if (s->opt->critical_path && s->prog) {
    emit_critical(s, s->opt->out);
    emit_rank_costs(s, s->opt->out);
  }
  if (s->opt->show && s->prog)
    emit_show(s, s->opt->out);
  if (s->opt->check_only || s->opt->critical_path || s->opt->show)
    return true;
  if (s->opt->emit == EMIT_NONE)
    return true;
  if ((s->opt->emit == EMIT_CSV || s->opt->emit == EMIT_COMMS_CSV) && !csv_can(s))
    return false;
  if (s->opt->emit == EMIT_HTML)
    return emit_html(s);
  if (!file_open(s, &out, s->opt->output))
    return false;
  emitter[s->opt->emit](s, out.f);
  return file_close(s, &out, true);
}

/* Does make read the name as one file? make has no escape for control bytes, ';', '|' and '\'. An
 * '=' in the target or the first file makes the line an assignment. A '/' before the '=' makes it
 * harmless, since no variable in use has such a name (so folders like M=8/ work); but "!=" runs a
 * command. False: reported. */
static bool is_for_make(Sched *s, const char *name, bool first) {
  const char *equal = first ? strchr(name, '=') : NULL, *bad = name;
  if (equal && equal > name && equal[-1] != '!' && memchr(name, '/', (size_t)(equal - name)))
    equal = NULL;
  while (*bad && (unsigned char)*bad >= ' ' && *bad != 0x7f && !strchr(";|\\", *bad) &&
         bad != equal)
    bad++;
  if (*bad)
    diag_error(s->diag, DIAG_WRITE, NO_SPAN,
               "cannot write %s: make has no escape for the '%c' in %s", s->opt->depfile, *bad,
               name);
  return !*bad;
}

/* Can the depfile name all files read so far? Called before anything is written, and again by
 * depfile, because a page reads further files. False: reported. */
static bool depfile_can(Sched *s) {
  if (!s->opt->depfile || !s->opt->output)
    return true;
  bool can = is_for_make(s, s->opt->output, true), first = true;
  for (uint32_t i = 0; can && i < s->diag->nsource; i++) {
    const char *path = s->diag->source[i].path;
    if (strcmp(path, "-") != 0)
      can = is_for_make(s, path, first), first = false;
  }
  return can;
}

static bool depfile(Sched *s) {
  OutFile out;
  if (!s->opt->depfile || !s->opt->output)
    return true;
  if (!depfile_can(s) || !file_open(s, &out, s->opt->depfile))
    return false;
  const char *word = s->opt->output;
  for (uint32_t i = 0; i <= s->diag->nsource; i++) {
    for (; *word; word++) {
      if (strchr(" #:", *word))
        fputc('\\', out.f);
      if (*word == '$')
        fputc('$', out.f);
      fputc(*word, out.f);
    }
    fputs(i == 0 ? ":" : "", out.f);
    if (i < s->diag->nsource && strcmp(s->diag->source[i].path, "-") != 0)
      fputs(" ", out.f), word = s->diag->source[i].path;
  }
  fputc('\n', out.f);
  return file_close(s, &out, true);
}

static const char *const pass_name[] = {
#define X(name, when, run, dump) #name,
#include "passes.def"
#undef X
};
enum { NPASSES = sizeof pass_name / sizeof *pass_name };

static void time_line(Sched *s, const char *name, double ms) {
  uint64_t n = s->prog ? (uint64_t)s->orders->nop + 2 * (uint64_t)s->ideal->nxfer : s->orders->nop;
  if (n && ms > 0)
    fprintf(s->diag->out, "%-16s %10.3f ms  %8.1f M/s\n", name, ms, (double)n / ms / 1e3);
  else
    fprintf(s->diag->out, "%-16s %10.3f ms\n", name, ms);
}

/* The products of a compile, writable: each pass gets the one that it makes. */
typedef struct Products {
  Parsed parsed;
  Expanded expanded;
  Ideal ideal;
  Versions versions;
  Lowered lowered;
  Times times;
  Verdict verdict;
  Measured measured;
} Products;

/* One run of the passes. */
typedef struct Run {
  Sched *s;
  Products *made;
  const char *dump; /* --dump-after; NULL */
  bool text;        /* the input is a .pipe text */
  bool stopped;     /* the pass named by `dump` has run */
  double began;     /* start of this pass, ms */
} Run;

/* Takes the steps of a pass from the budget. False: reported. */
static bool begin_pass(Run *x) {
  guard_poll();
  x->began = now_ms();
  const uint64_t ops = (uint64_t)x->s->orders->nop + 2 * (uint64_t)x->s->ideal->nxfer;
  return take_steps(x->s, STEPS_OP * ops, NO_SPAN);
}

/* ok: the result of the pass. False: an error was reported, or `dump` ends the run. */
static bool end_pass(Run *x, const char *name, bool ok, void (*dump)(Sched *, FILE *)) {
  Sched *s = x->s;
  const bool all = x->dump && strcmp(x->dump, "all") == 0;
  if (s->opt->time_passes)
    time_line(s, name, now_ms() - x->began);
  if (s->opt->verify)
    verify_cycle(s);
  if (s->work->spent) /* perhaps in a silent compile inside the pass */
    too_many_steps(s, NO_SPAN);
  if (!ok || s->diag->errors > (s->verdict->over > 0))
    return false;
  x->stopped = x->dump && strcmp(x->dump, name) == 0;
  if (all)
    fprintf(s->opt->out, "== %s%s\n", name, dump ? "" : " (unchanged)");
  if ((all || x->stopped) && dump)
    dump(s, s->opt->out);
  else if (x->stopped)
    fprintf(s->opt->out, "(unchanged)\n");
  return !x->stopped;
}

/* Does check_channels prove more than check_deadlock and check_match? These two prove what the
 * engines need for transfers in one global order. */
static bool other_channels(const Sched *s) {
  return s->lowered->lowering == PIPE_CHANNELS || !is_default_model(&s->opt->model);
}

/* Runs the passes. False: a pass failed, or --dump-after ends the run. */
static bool passes(Run *x) {
  Sched *s = x->s;
  Products *made = x->made;
#define X(name, when, run, dump) \
  if ((when) && !(begin_pass(x) && end_pass(x, #name, run, dump))) \
    return false;
#include "passes.def"
#undef X
  return true;
}

/* Begins a compile: hooks, and empty products, which s sees as const. */
static Products *begin(Sched *s) {
  Products *p = NEW(s->arena, Products);
  if (!s->work)
    s->work = s->opt->work;
  if (!s->work) {
    s->work = NEW(s->arena, Work);
    s->work->left = MAX_STEPS;
  }
  s->again = compile_only;
  s->eval = (Eval){.quantity = quantity};
  s->parsed = &p->parsed;
  s->model = &p->expanded.model;
  s->orders = &p->expanded.orders;
  s->sides = &p->expanded.sides;
  s->claims = &p->expanded.claims;
  s->tuning = &p->expanded.tuning;
  s->ideal = &p->ideal;
  s->versions = &p->versions;
  s->lowered = &p->lowered;
  s->times = &p->times;
  s->verdict = &p->verdict;
  s->measured = &p->measured;
  return p;
}

static bool run(Sched *s, bool output) {
  const Options *o = s->opt;
  const char *dump = o->dump_after;
  const bool all = dump && strcmp(dump, "all") == 0;
  const double t_begin = now_ms();
  Run x = {.s = s, .made = begin(s), .dump = dump, .text = !is_csv(o)};
  if (!passes(&x)) {
    if (!x.stopped)
      draw_stall(s);
    return x.stopped;
  }
  if (dump && !all) {
    diag_error(s->diag, DIAG_USAGE, NO_SPAN, "--dump-after=%s: %s does not go through this pass",
               dump, o->input);
    return false;
  }
  if (!output || all)
    return !s->verdict->over;
  warn_slow_links(s);
  if (s->diag->errors > (s->verdict->over > 0)) /* -W error */
    return false;
  const double t0 = now_ms();
  bool ok = (!o->with || read_trace(s, &x.made->measured)) && depfile_can(s) && emit(s) &&
            !s->verdict->over && depfile(s);
  if (o->time_passes) {
    time_line(s, "emit", now_ms() - t0);
    time_line(s, "all", now_ms() - t_begin);
  }
  return ok;
}

bool compile(Sched *s) { return remove_stall(s) && run(s, true); }

bool compile_only(Sched *s) { return run(s, false); }

bool is_pass(const char *name) {
  for (int i = 0; i < NPASSES; i++)
    if (strcmp(pass_name[i], name) == 0)
      return true;
  return strcmp(name, "all") == 0;
}

const char *pass_names(Sched *s) {
  const char *list = "";
  for (int i = 0; i < NPASSES; i++)
    list = arena_printf(s->arena, "%s%s ", list, pass_name[i]);
  return list;
}
