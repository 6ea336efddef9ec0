/* SPDX-License-Identifier: MIT
 * The pass list. */
#include <string.h>
#include <time.h>

#include "emit_formulas.h"
#include "formula.h"
#include "lists_of_m.h"
#include "looped.h"

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static bool pass_parse(Sched *s) {
  uint32_t len = (uint32_t)s->opt->text_len;
  const char *text = s->opt->text ? s->opt->text : file_read(s, s->opt->input, NO_SPAN, &len);
  if (!text)
    return false;
  s->names = intern_new(s->arena);
  s->tree = parse(s->arena, s->names, s->diag, diag_source(s->diag, s->opt->input, text, len));
  return s->diag->errors == 0;
}

static void dump_tree(Sched *s, FILE *f) { ast_dump(f, s->tree); }

bool draws(const Options *o) {
  return !o->check_only && !o->critical_path && !o->dump_after &&
         (o->show || o->emit == EMIT_SVG || o->emit == EMIT_HTML);
}

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
  if (s->opt->emit == EMIT_PROMELA)
    return file_close(s, &out, emit_promela(s, out.f));
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

/* What is compiled: a .pipe text, a CSV file of compute ops, or one with transfers of its own. The
 * last is told from the second once it has been read. Or a JSON file, which once it has been read goes the way of
 * the second. */
enum { PIPE = 1, CSV = 2, LISTS = 4, JSON = 8 };

/* THE list. Each pass requires what those above it ensure. */
static const struct {
  const char *name;
  bool (*run)(Sched *);
  void (*dump)(Sched *, FILE *);
  int what;
  bool (*rank)(Sched *, uint32_t r); /* in place of run: takes one rank after the other */
} passes[] = {
    {"parse", pass_parse, dump_tree, PIPE, NULL},
    {"resolve", resolve, dump_tree, PIPE, NULL},
    {"expand", expand, dump_ops, PIPE, NULL},
    {"read_csv", read_csv, dump_ops, CSV, NULL},
    {"read_json", read_json, dump_ops, JSON, NULL},
    {"check_deps", check_deps, NULL, PIPE | CSV | LISTS, NULL},
    {"sides", sides, dump_ops, PIPE | JSON, NULL},
    {"versions", versions, dump_ops, PIPE | CSV | LISTS, NULL},
    {"formulas", formulas, dump_formulas, PIPE | JSON, NULL},
    {"version_slots", version_slots, dump_ops, PIPE | JSON, NULL},
    {"order", order, NULL, PIPE | CSV | LISTS, NULL},
    {"offload", offload, dump_ops, PIPE | CSV, NULL},
    {"transfers", list_transfers, NULL, PIPE | CSV, NULL},
    {"links", links, NULL, PIPE | CSV, NULL},
    {"comm", comm, dump_streams, PIPE | CSV, NULL},
    {"check_deadlock", check_deadlock, dump_streams, PIPE | CSV, NULL},
    {"slots", NULL, dump_streams, PIPE | CSV, slots},
    {"check_memory", NULL, NULL, PIPE | CSV, check_memory},
    {"lower", NULL, dump_program, PIPE | CSV, lower},
    {"check_streams", NULL, NULL, PIPE | CSV, check_streams},
    {"check_match", NULL, NULL, PIPE | CSV, check_match},
    {"check_channels", check_channels, NULL, PIPE | CSV | LISTS, NULL},
    {"check_user", check_user, NULL, PIPE | CSV, NULL},
    {"check_all_m", check_all_m, dump_all_m, PIPE, NULL},
    {"make_looped", make_looped, NULL, PIPE, NULL},
};
enum { NPASSES = sizeof passes / sizeof *passes };

static void time_line(Sched *s, const char *name, double ms) {
  uint64_t n = s->prog ? (uint64_t)s->nop + 2 * (uint64_t)s->nxfer : s->nop;
  if (n && ms > 0)
    fprintf(stderr, "%-16s %10.3f ms  %8.1f M/s\n", name, ms, (double)n / ms / 1e3);
  else
    fprintf(stderr, "%-16s %10.3f ms\n", name, ms);
}

bool all_ranks(Sched *s, bool (*pass)(Sched *, uint32_t r)) {
  bool ok = true;
  for (uint32_t r = 0; r < s->nrank && ok; r++)
    ok = pass(s, r);
  return ok;
}

bool needs_all_lists(const Sched *s) {
  const Options *o = s->opt;
  return !o->check_only || o->critical_path || o->show || o->dump_after || o->verify ||
         o->counterexample || o->for_all || o->looped || o->emit == EMIT_PROMELA ||
         !is_default_model(&o->model) || s->nlimit || s->nlimits || /* check_user */
         s->lists || s->lowering != PIPE_GLOBAL || s->noffload || s->ncopy || s->nside;
}

/* Passes first .. last, of which more than one only if each takes a rank at a time: all of them, then the next rank.
 * ms: what each has taken. */
static bool run_passes(Sched *s, int first, int last, double *ms) {
  double t0 = now_ms();
  if (passes[first].run) {
    bool ok = passes[first].run(s);
    ms[first] = now_ms() - t0;
    return ok;
  }
  bool ok = true;
  for (uint32_t r = 0; r < s->nrank && ok; r++)
    for (int i = first; i <= last && ok; i++) {
      ok = passes[i].rank(s, r);
      double t1 = now_ms();
      ms[i] += t1 - t0;
      t0 = t1;
    }
  return ok;
}

/* What the exit status says of the proof for every value. asked: by --for-all. Nobody who asks for a proof goes on
 * without one unless told to; a program for every value says in its first line which values it has. */
static bool holds_for_all(const Sched *s, bool asked) {
  const Options *o = s->opt;
  const bool error = o->undecided ? o->undecided == 1 : asked && !o->looped;
  return !o->for_all || is_proved_for_all(s) || (!s->all_m.refuted && !error);
}

static bool run(Sched *s, bool output) {
  const char *dump = s->opt->dump_after;
  bool asked = s->opt->for_all && output; /* for every M, and not only by leaving it open */
  bool all = dump && strcmp(dump, "all") == 0, proved = false; /* the ops are complete */
  double begin = now_ms();
  for (int i = 0; i < NPASSES; i++) {
    int what = s->only_lists ? LISTS : is_csv(s->opt) ? CSV : is_json(s->opt) ? JSON : PIPE;
    int as = what == JSON && passes[i].run != read_csv ? JSON | CSV : what;
    if (!(passes[i].what & as))
      continue;
    if (passes[i].run == check_all_m && !s->opt->for_all && s->opt->check_only)
      s->opt->for_all = open_parameter(s);
    if ((passes[i].run == check_all_m && !s->opt->for_all) ||
        (passes[i].run == check_user && s->over) ||
        (passes[i].run == make_looped && !s->opt->looped && !(asked && !s->all_m.proved)))
      continue;
    bool channels = passes[i].run == check_channels, model = s->opt->emit == EMIT_PROMELA;
    if (channels && !s->only_lists && is_default_model(&s->opt->model) && !model &&
        s->lowering != PIPE_CHANNELS)
      continue; /* check_deadlock and check_match have proved it */
    if (passes[i].run == comm)
      s->all_lists = needs_all_lists(s);
    int first = i;
    while (passes[first].rank && !s->all_lists && i + 1 < NPASSES && passes[i + 1].rank)
      i++;
    double ms[NPASSES] = {0};
    bool ok = work_take(s->work, WORK_PASS * (uint64_t)s->nop, NO_SPAN) &&
              run_passes(s, first, i, ms) && !work_spent(s->work);
    for (int k = first; k <= i && s->opt->time_passes; k++)
      time_line(s, passes[k].name, ms[k]);
    if ((channels || (!ok && passes[i].run == list_transfers)) && model && s->machine_list &&
        output) /* what is refuted can be looked into */
      ok &= emit(s);
    if (s->opt->verify)
      verify_circle(s);
    if (!ok || s->diag->errors > (s->over > 0))
      return false;
    proved |= passes[i].run == check_deps;
    if (s->opt->verify && proved)
      verify_ops(s);
    if (s->opt->verify && s->prog)
      verify_program(s);
    if (all || (dump && strcmp(dump, passes[i].name) == 0)) {
      if (all)
        fprintf(s->opt->dump_out, "== %s%s\n", passes[i].name,
                passes[i].dump ? "" : " (unchanged)");
      if (passes[i].dump)
        passes[i].dump(s, s->opt->dump_out);
      else if (!all)
        fprintf(s->opt->dump_out, "(unchanged)\n");
      if (!all)
        return true;
    }
  }
  if (dump && !all) {
    diag_error(s->diag, DIAG_USAGE, NO_SPAN, "--dump-after=%s: %s does not go through this pass",
               dump, s->opt->input);
    return false;
  }
  if (!output || all)
    return !s->over;
  const bool holds = holds_for_all(s, asked);
  if (!holds && s->opt->looped) {
    diag_error(s->diag, DIAG_LOOPED, s->def->name_at,
               "it is not proved for every %s, which --undecided=error asks for: %s",
               s->opt->for_all,
               s->all_m.text ? s->all_m.text : "some values are too many to compile");
    return false;
  }
  double t0 = now_ms();
  bool ok = (s->opt->emit == EMIT_PROMELA || emit(s)) && !s->over && depfile(s);
  if (s->opt->time_passes) {
    time_line(s, "emit", now_ms() - t0);
    time_line(s, "all", now_ms() - begin);
  }
  return ok && holds;
}

bool compile(Sched *s) { return run(s, true); }
bool compile_orders(Sched *s, bool prove) {
  return pass_parse(s) && resolve(s) && expand(s) &&
         work_take(s->work, (prove ? 2 : 1) * WORK_ORDER * (uint64_t)s->nop, s->def->name_at) &&
         (!prove ||
          (check_deps(s) && versions(s) && (!s->weighted || (formulas(s) && version_slots(s))) &&
           order(s) && (s->ncopy == 0 || offload(s)))) &&
         s->diag->errors == 0 && !work_spent(s->work);
}

bool compile_only(Sched *s) { return run(s, false); }

bool is_pass(const char *name) {
  for (int i = 0; i < NPASSES; i++)
    if (strcmp(passes[i].name, name) == 0)
      return true;
  return strcmp(name, "all") == 0;
}

const char *pass_names(Sched *s) {
  const char *list = "";
  for (int i = 0; i < NPASSES; i++)
    list = arena_printf(s->arena, "%s%s ", list, passes[i].name);
  return list;
}
