/* SPDX-License-Identifier: MIT
 * The pass list. */
#include <string.h>
#include <time.h>

#include "base.h"
#include "certify.h"
#include "driver.h"
#include "emit.h"
#include "emit_formulas.h"
#include "forall.h"
#include "limit.h"
#include "formula.h"
#include "import.h"
#include "lists_of_m.h"
#include "looped.h"
#include "lower.h"
#include "stages.h"
#include "orders.h"
#include "prove.h"
#include "report.h"
#include "search.h"
#include "timing.h"
#include "weights.h"

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static bool pass_parse(Sched *s, Parsed *parsed) {
  uint32_t len = (uint32_t)s->opt->text_len;
  const char *text = s->opt->text ? s->opt->text : file_read(s, s->opt->input, NO_SPAN, &len);
  if (!text)
    return false;
  parsed->names = intern_new(s->arena);
  parsed->tree = parse(s->arena, s->parsed->names, s->diag,
                       diag_source(s->diag, s->opt->input, text, len));
  return s->diag->errors == 0;
}

static void dump_tree(Sched *s, FILE *f) { ast_dump(f, s->parsed->tree); }

static bool emit(Sched *s) {
  OutFile out;
  static void (*const emitter[])(Sched *, FILE *) = {
      [EMIT_C] = emit_c,       [EMIT_CSV] = emit_csv, [EMIT_COMMS_CSV] = emit_comms_csv,
      [EMIT_JSON] = emit_json, [EMIT_SVG] = emit_svg, [EMIT_TRACE] = emit_trace};
  if (s->opt->check_only || s->opt->critical_path)
    emit_report(s, s->opt->dump_out);
  if (s->opt->critical_path && s->prog) {
    emit_critical(s, s->opt->dump_out);
    emit_rank_costs(s, s->opt->dump_out);
  }
  if (s->opt->show && s->prog)
    emit_show(s, s->opt->dump_out);
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
  if (s->looped)
    emit_looped(s, out.f);
  else
    emitter[s->opt->emit](s, out.f);
  return file_close(s, &out, true);
}

static bool depfile(Sched *s) {
  OutFile out;
  if (!s->opt->depfile || !s->opt->output)
    return true;
  if (!file_open(s, &out, s->opt->depfile))
    return false;
  const char *word = s->opt->output;
  for (uint32_t i = 0; i <= s->diag->nsource; i++) {
    for (; *word; word++) {
      if (strchr(" #\\", *word))
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

/* What --dump-after shows after a pass; NULL: the pass only proves. In the order of passes(). */
static const struct {
  const char *name;
  void (*dump)(Sched *, FILE *);
} pass[] = {
    {"parse", dump_tree},
    {"resolve", dump_tree},
    {"expand", dump_ops},
    {"read_csv", dump_ops},
    {"read_json", dump_ops},
    {"check_deps", NULL},
    {"sides", dump_ops},
    {"versions", dump_ops},
    {"formulas", dump_formulas},
    {"version_slots", dump_ops},
    {"order", NULL},
    {"offload", dump_ops},
    {"transfers", NULL},
    {"links", NULL},
    {"comm", dump_streams},
    {"check_deadlock", dump_streams},
    {"slots", dump_streams},
    {"check_memory", NULL},
    {"lower", dump_program},
    {"check_streams", NULL},
    {"check_match", NULL},
    {"check_channels", NULL},
    {"check_user", NULL},
    {"check_all_m", dump_all_m},
    {"make_looped", NULL},
};
enum { NPASSES = sizeof pass / sizeof *pass };

static void time_line(Sched *s, const char *name, double ms) {
  uint64_t n = s->prog ? (uint64_t)s->orders->nop + 2 * (uint64_t)s->ideal->nxfer : s->orders->nop;
  if (n && ms > 0)
    fprintf(stderr, "%-16s %10.3f ms  %8.1f M/s\n", name, ms, (double)n / ms / 1e3);
  else
    fprintf(stderr, "%-16s %10.3f ms\n", name, ms);
}

/* The products of a compile, as the passes that make them see them. */
typedef struct Products {
  Parsed parsed;
  Expanded expanded;
  Ideal ideal;
  Versions versions;
  Lowered lowered;
  Times times;
  Verdict verdict;
} Products;

/* One way through the passes. */
typedef struct Run {
  Sched *s;
  Products *made;
  const char *dump; /* --dump-after */
  bool output;      /* of compile, not of compile_only */
  bool complete;    /* check_deps passes: the ops can be verified */
  bool stopped;     /* the pass that `dump` names has run */
  double began;     /* this pass, ms */
} Run;

/* Takes the steps of a pass. False: there are not as many left. */
static bool begin_pass(Run *x) {
  x->began = now_ms();
  return work_take(x->s->work, WORK_PASS * (uint64_t)x->s->orders->nop, NO_SPAN);
}

/* ok: what the pass has returned. False: an error was reported, or no pass follows. */
static bool end_pass(Run *x, const char *name, bool ok) {
  Sched *s = x->s;
  const bool all = x->dump && strcmp(x->dump, "all") == 0;
  int i = 0;
  while (strcmp(pass[i].name, name) != 0)
    i++;
  if (s->opt->time_passes)
    time_line(s, name, now_ms() - x->began);
  if (s->opt->verify)
    verify_circle(s);
  if (!ok || work_spent(s->work) || s->diag->errors > (s->verdict->over > 0))
    return false;
  if (s->opt->verify && x->complete)
    verify_ops(s);
  if (s->opt->verify && s->prog)
    verify_program(s);
  x->stopped = x->dump && strcmp(x->dump, name) == 0;
  if (all)
    fprintf(s->opt->dump_out, "== %s%s\n", name, pass[i].dump ? "" : " (unchanged)");
  if ((all || x->stopped) && pass[i].dump)
    pass[i].dump(s, s->opt->dump_out);
  else if (x->stopped)
    fprintf(s->opt->dump_out, "(unchanged)\n");
  return !x->stopped;
}

/* Runs a pass. The function that has it returns false if the pass fails, or if --dump-after stops
 * there. */
#define PASS(name, run_pass) \
  do { \
    if (!begin_pass(x) || !end_pass(x, name, (run_pass))) \
      return false; \
  } while (0)

/* Has check_channels to prove anything that check_deadlock and check_match have not proved? They
 * prove what the engines demand of transfers in one global order. */
static bool other_channels(const Sched *s) {
  return s->lowered->lowering == PIPE_CHANNELS || !is_default_model(&s->opt->model);
}

/* Is the proof for every value of a parameter wanted? A --check looks for one that is open. */
static bool for_all(Sched *s) {
  Options *o = s->opt;
  if (!o->for_all && o->check_only)
    o->for_all = open_parameter(s);
  return o->for_all;
}

/* THE list. Each pass requires what those above it ensure. */
static bool passes(Run *x) {
  Sched *s = x->s;
  Products *p = x->made;
  const Options *o = s->opt;
  const bool text = !is_csv(o) && !is_json(o);
  const bool asked = o->for_all && x->output; /* for every M, and not only by leaving it open */
  if (is_csv(o)) {
    PASS("read_csv", read_csv(s, &p->expanded));
  } else if (is_json(o)) {
    PASS("read_json", read_json(s, &p->expanded));
  } else {
    PASS("parse", pass_parse(s, &p->parsed));
    PASS("resolve", resolve(s, &p->parsed));
    PASS("expand", expand_best(s, &p->expanded)); /* of a schedule with `tune`, several times */
  }
  x->complete = true;
  PASS("check_deps", check_deps(s, &p->expanded.orders));
  PASS("sides", sides(s, &p->expanded.orders, &p->expanded.sides));
  PASS("versions", versions(s, &p->versions));
  PASS("formulas", formulas(s, &p->versions));
  PASS("version_slots", version_slots(s, &p->versions));
  PASS("order", order(s, &p->ideal));
  if (!s->orders->only_lists) { /* the file has no transfers of its own */
    PASS("offload", offload(s, &p->expanded.orders, &p->expanded.sides));
    PASS("transfers",
         list_transfers(s, &p->expanded.orders, &p->lowered) && prove_transfers(s, &p->verdict));
  }
  if (only_lists(s)) { /* of the file, or for other channels than the engines have: no program */
    PASS("check_channels", check_channels(s, &p->verdict));
    return true;
  }
  PASS("links", links(s, &p->expanded.model));
  PASS("comm", comm(s, &p->lowered));
  /* runs comm again while too few channel slots close a wait cycle */
  PASS("check_deadlock", check_deadlock(s, &p->lowered, &p->times));
  PASS("slots", slots(s, &p->lowered));
  PASS("check_memory", check_memory(s, &p->verdict));
  PASS("lower", lower(s, &p->lowered));
  PASS("check_streams", check_streams(s));
  PASS("check_match", check_match(s));
  if (other_channels(s))
    PASS("check_channels", check_channels(s, &p->verdict));
  if (!s->verdict->over) /* else it is only drawn */
    PASS("check_user", check_user(s, &p->verdict));
  if (text && for_all(s))
    PASS("check_all_m", check_all_m(s));
  if (text && (o->looped || (asked && !s->all_m.proved)))
    PASS("make_looped", make_looped(s));
  return true;
}

/* What the exit status says of the proof for every value. asked: by --for-all. Nobody who asks for
 * a proof goes on without one unless told to; a program for every value says in its first line
 * which values it has. */
static bool holds_for_all(const Sched *s, bool asked) {
  const Options *o = s->opt;
  const bool error = o->undecided ? o->undecided == 1 : asked && !o->looped;
  return !o->for_all || is_proved_for_all(s) || (!s->all_m.refuted && !error);
}

static Products *begin(Sched *s);

static bool run(Sched *s, bool output) {
  const Options *o = s->opt;
  const char *dump = o->dump_after;
  const bool asked = o->for_all && output, all = dump && strcmp(dump, "all") == 0;
  const double t_begin = now_ms();
  Run x = {.s = s, .made = begin(s), .dump = dump, .output = output};
  if (!passes(&x))
    return x.stopped || (draw_stall(s), false);
  if (dump && !all) {
    diag_error(s->diag, DIAG_USAGE, NO_SPAN, "--dump-after=%s: %s does not go through this pass",
               dump, o->input);
    return false;
  }
  if (!output || all)
    return !s->verdict->over;
  const bool holds = holds_for_all(s, asked);
  if (!holds && o->looped) {
    diag_error(s->diag, DIAG_LOOPED, s->parsed->def->name_at,
               "it is not proved for every %s, which --undecided=error asks for: %s", o->for_all,
               s->all_m.text ? s->all_m.text : "some values are too many to compile");
    return false;
  }
  const double t0 = now_ms();
  bool ok = emit(s) && !s->verdict->over && depfile(s);
  if (o->time_passes) {
    time_line(s, "emit", now_ms() - t0);
    time_line(s, "all", now_ms() - t_begin);
  }
  return ok && holds;
}

bool compile(Sched *s) { return run(s, true); }

static bool compile_orders(Sched *s, bool prove) {
  Products *p = begin(s);
  return pass_parse(s, &p->parsed) && resolve(s, &p->parsed) && expand_best(s, &p->expanded) &&
         work_take(s->work, (prove ? 2 : 1) * WORK_ORDER * (uint64_t)s->orders->nop,
                   s->parsed->def->name_at) &&
         (!prove ||
          (check_deps(s, &p->expanded.orders) && versions(s, &p->versions) &&
           (!s->model->weighted || (formulas(s, &p->versions) && version_slots(s, &p->versions))) &&
           order(s, &p->ideal) &&
           (s->orders->ncopy == 0 || offload(s, &p->expanded.orders, &p->expanded.sides)))) &&
         s->diag->errors == 0 && !work_spent(s->work);
}

bool compile_only(Sched *s) { return run(s, false); }

static bool again(Sched *s, Until until) {
  return until == UNTIL_END ? compile_only(s) : compile_orders(s, until == UNTIL_ORDERS);
}

/* A new compile: hooks and empty products, const in s. The pass that makes one writes it. */
static Products *begin(Sched *s) {
  Products *p = NEW(s->arena, Products);
  s->again = again;
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
  return p;
}

bool is_pass(const char *name) {
  for (int i = 0; i < NPASSES; i++)
    if (strcmp(pass[i].name, name) == 0)
      return true;
  return strcmp(name, "all") == 0;
}

const char *pass_names(Sched *s) {
  const char *list = "";
  for (int i = 0; i < NPASSES; i++)
    list = arena_printf(s->arena, "%s%s ", list, pass[i].name);
  return list;
}
