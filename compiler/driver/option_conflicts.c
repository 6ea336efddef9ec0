/* SPDX-License-Identifier: MIT
 * Finds which command the options ask for, and options that do not go together. A message names the
 * words and says what to type. */
#include <string.h>
#include <sys/stat.h>

#include "base.h"
#include "driver.h"
#include "import.h"
#include "options.h"
#include "sweep.h"

/* The name of the first option of id[0..n) that was given, with its dashes; NULL: none was. */
static const char *first_given(Sched *s, const Given *given, const uint8_t *id, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (given->option[id[i]])
      return option_dashed(s, id[i]);
  return NULL;
}

#define FIRST_GIVEN(s, given, list) first_given(s, given, list, sizeof list / sizeof *list)

/* ---- --fmt ---- */

static bool check_format(Sched *s, const Given *given) {
  Options *o = s->opt;
  for (int id = 0; id < NOPTIONS; id++)
    if (given->option[id] && id != O_FORMAT && id != O_CHECK && id != O_WRITE)
      return usage_refused(s, "--fmt conflicts with all options but --check and --write",
                           "type pipec --fmt FILE..., with --write to replace the files");
  if (o->check_only && o->format_write)
    return usage_refused(s, "--check and --write conflict: --fmt --check writes no file",
                         "leave out --check to put the files in canonical form");
  o->format = given->file;
  o->nformat = given->nfile;
  for (uint32_t i = 0; i < o->nformat; i++) {
    o->input = o->format[i];
    if (is_csv(o))
      return usage_error(s, "--fmt is for .pipe files, not for %s", o->input);
    if (strcmp(o->format[i], "-") == 0)
      o->format[i] = "/dev/stdin";
  }
  return true;
}

/* ---- --compare ---- */

static bool check_compare(Sched *s, const Given *given) {
  static const uint8_t conflicts[] = {O_CHECK,    O_SHOW,    O_CRITICAL, O_DUMP, O_DEPFILE,
                                      O_SCHEDULE, O_COUNTER, O_SYMBOL,   O_TIME};
  Options *o = s->opt;
  if (o->emit != EMIT_C && o->emit != EMIT_CSV && o->emit != EMIT_SVG)
    return usage_error(s, "%s prints a table, or --emit=csv or --emit=svg", "--compare");
  const char *other = FIRST_GIVEN(s, given, conflicts);
  if (other)
    return usage_refused(
        s,
        arena_printf(s->arena, "--compare and %s conflict: --compare prints a table of all files",
                     other),
        arena_printf(s->arena, "leave out --compare to use %s on one file", other));
  o->compare = given->file;
  o->ncompare = given->nfile;
  return true;
}

/* ---- --plan and --best, which go with few options ---- */

static bool is_same_file(const char *a, const char *b) {
  struct stat x, y;
  return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* What does not go with --plan, or --best; NULL: nothing. */
static const char *plan_conflict(Sched *s, const Given *given) {
  static const uint8_t conflicts[] = {O_CHECK,   O_SHOW,     O_CRITICAL, O_DUMP, O_DEPFILE,
                                      O_COUNTER, O_SCHEDULE, O_SYMBOL,   O_WITH};
  const bool best = given->option[O_BEST];
  if (given->option[O_COMPARE])
    return "--compare";
  if (best && given->option[O_PLAN])
    return "--plan";
  if (given->option[O_EMIT] && (best || s->opt->emit != EMIT_SVG))
    return "--emit";
  const char *other = FIRST_GIVEN(s, given, conflicts);
  if (other)
    return other;
  if (best && s->opt->no_contention)
    return "--contention=off";
  return !best && given->nfile ? given->file[0] : NULL;
}

/* Names what --plan, or --best, cannot do without. */
static bool plan_lacks(Sched *s, const Given *given) {
  const Options *o = s->opt;
  if (given->option[O_BEST] && !o->profile)
    return !usage_error(s, "--best needs %s", "--profile=FILE: the costs of the stages or layers");
  if (given->option[O_PLAN] && !o->profile)
    return !usage_error(s, "--plan needs %s", "--profile=FILE: the layers of the model");
  if (given->option[O_PLAN] && !o->cluster)
    return !usage_error(s, "--plan needs %s",
                        "--cluster=FILE.json: what the layers are trained on");
  return false;
}

/* Has each parameter one value, and M one that fits? */
static bool check_plan_parameters(Sched *s, const Given *given) {
  const Options *o = s->opt;
  const bool plan = given->option[O_PLAN];
  bool has_m = false;
  for (uint32_t i = 0; i < o->ndefine; i++) {
    const Define *define = &o->define[i];
    if (define->n > 1)
      return usage_error(s, "-D %s: --plan and --best take one value", define->text);
    for (uint32_t k = 0; k < i; k++)
      if (strcmp(o->define[k].name, define->name) == 0)
        return usage_error(s, "-D %s is given twice", define->name);
    const bool is_m = strcmp(define->name, "M") == 0 ||
                      (plan && strcmp(define->name, "batch") == 0);
    if (is_m && (define->value < 1 || define->value > 1 << 20))
      return usage_error(s, "-D %s: expected a whole number from 1 to 1048576", define->name);
    has_m |= is_m;
  }
  if (plan && (!has_m || o->ndefine != 1))
    return usage_error(s, "--plan needs %s, or -D batch=N, its samples, and no other parameter",
                       "-D M=N, the microbatches of a step");
  return has_m || usage_error(s, "--best needs %s", "-D M=N, the microbatches of a step");
}

static bool check_plan(Sched *s, const Given *given) {
  Options *o = s->opt;
  const bool best = given->option[O_BEST];
  if (best && (o->cluster || given->option[O_PLAN_COST]))
    return usage_error(s, "%s is for --plan", o->cluster ? "--cluster" : "--plan-cost");
  const char *me = best ? "--best" : "--plan";
  const char *other = plan_conflict(s, given);
  if (other)
    return usage_refused(
        s, arena_printf(s->arena, "%s and %s conflict: %s writes a .pipe file", me, other, me),
        arena_printf(s->arena, "write it with -o %s.pipe, then give it to pipec", me + 2));
  if (plan_lacks(s, given) || !check_plan_parameters(s, given))
    return false;
  for (uint32_t i = 0; i < given->nfile; i++) {
    o->input = given->file[i];
    if (is_csv(o))
      return usage_error(s, "--best extends a schedule; %s has no schedule", o->input);
    if (o->output && is_same_file(o->output, o->input))
      return usage_error(s, "-o would replace %s, which is imported", o->input);
  }
  o->compare = given->file;
  o->ncompare = given->nfile;
  return true;
}

/* ---- one compile, or a range of them ---- */

/* --check of several values of -D, which prints one report. */
static bool check_sweep(Sched *s, const Given *given) {
  static const uint8_t conflicts[] = {O_DUMP, O_SHOW,    O_CRITICAL, O_TIME,
                                      O_WITH, O_DEPFILE, O_EMIT};
  static const char help[] =
      "--check proves each of the values, --compare ranks schedules at each of them";
  const Define *define = s->opt->define;
  while (define->n == 1)
    define++;
  const char *other = FIRST_GIVEN(s, given, conflicts);
  if (other)
    return usage_refused(s,
                         arena_printf(s->arena, "-D %s and %s conflict: %s takes one value",
                                      define->text, other, other),
                         help);
  if (!s->opt->check_only)
    return usage_refused(
        s, arena_printf(s->arena, "-D %s: a program takes one value", define->text), help);
  return !is_csv(s->opt) ||
         usage_error(s, "-D needs a schedule with parameters; %s has no parameters", s->opt->input);
}

static bool two_files(Sched *s, const char *first, const char *second) {
  if (strchr(second, '=') && second[0] != '-')
    return usage_refused(s, arena_printf(s->arena, "'%s' stands where a second file would", second),
                         arena_printf(s->arena, "give a parameter its value with -D %s", second));
  return usage_refused(s,
                       arena_printf(s->arena,
                                    "two files, %s and %s: pipec compiles one file at a time",
                                    first, second),
                       "--compare ranks several, and --emit=html draws several on one page");
}

static const uint8_t reports[] = {O_DUMP, O_SHOW, O_CRITICAL, O_CHECK};

/* Refuses what says where or how to write where only a report or a grid is printed. -o is fine with
 * --depfile, which names it. */
static bool writes_nothing(Sched *s, const Given *given) {
  static const uint8_t writes[] = {O_EMIT, O_SYMBOL};
  const Options *o = s->opt;
  const char *what = FIRST_GIVEN(s, given, reports);
  const char *idle = o->output && !o->depfile ? "-o" : FIRST_GIVEN(s, given, writes);
  return !what || !idle ||
         usage_refused(
             s,
             arena_printf(s->arena, "%s and %s conflict: %s prints a report and writes no file",
                          what, idle, what),
             arena_printf(s->arena, "leave out %s to write the file, or %s to see the report", what,
                          idle));
}

/* Options that say how to do what is not done. */
static bool check_idle(Sched *s, const Given *given) {
  const Options *o = s->opt;
  const bool compares = given->option[O_COMPARE], draws = o->emit == EMIT_SVG && !compares;
  const bool shows_run = o->check_only || o->critical_path || draws || o->emit == EMIT_TRACE;
  if (o->format_write)
    return usage_error(s, "%s goes with --fmt", "--write");
  if ((o->torch_waits || o->torch_unshard) && o->emit != EMIT_COMMS_CSV)
    return usage_error(s, "%s says how to write --emit=comms-csv",
                       o->torch_waits ? "--torch-waits" : "--torch-unshard");
  if (o->cluster || given->option[O_PLAN_COST])
    return usage_error(s, "%s is for --plan", o->cluster ? "--cluster" : "--plan-cost");
  if (given->option[O_BY] && !compares)
    return usage_error(s, "%s says how to rank what --compare compiles", "--by");
  if (given->option[O_EQUAL] && !compares && o->emit != EMIT_HTML)
    return usage_error(
        s, "%s is for schedules side by side: --compare, or --emit=html of several files",
        "--equal-work");
  if (given->option[O_FIGURE] && !draws)
    return usage_error(s, "%s says how to draw the timeline of --emit=svg", "--figure");
  if (given->option[O_ARROWS] && !draws)
    return usage_error(s, "%s says how to draw the timeline of --emit=svg", "--arrows");
  if (o->with && (compares || o->show || o->dump_after || !shows_run))
    return usage_error(s, "%s goes with --emit=svg, --emit=trace or --check of one file", "--with");
  if (given->option[O_COLOR] && !o->show)
    return usage_error(s, "%s is for what --show draws", "--color");
  return true;
}

static bool check_compile(Sched *s, const Given *given) {
  Options *o = s->opt;
  if (o->symbol && o->emit != EMIT_C)
    return usage_error(s, "%s names the program of --emit=c", "--symbol");
  if (given->nfile > 1 && (o->emit != EMIT_HTML || FIRST_GIVEN(s, given, reports)))
    return two_files(s, given->file[0], given->file[1]);
  if (given->nfile > 1) {
    o->compare = given->file;
    o->ncompare = given->nfile;
  }
  if (!writes_nothing(s, given))
    return false;
  if (o->depfile && o->output && strcmp(o->depfile, o->output) == 0)
    return usage_error(s, "--depfile and -o are both %s", o->output);
  if (o->depfile && !o->output)
    return usage_error(s, "--depfile=%s names what -o OUT depends on: it needs -o", o->depfile);
  return !o->torch_lax || is_csv(o) ||
         usage_error(s, "--torch-lax says how to read a CSV file; %s is not a CSV file", o->input);
}

bool check_options(Sched *s, const Given *given, Command *todo) {
  if (given->option[O_PLAN] || given->option[O_BEST]) {
    todo->kind = given->option[O_BEST] ? COMMAND_BEST : COMMAND_PLAN;
    return check_plan(s, given);
  }
  if (given->nfile == 0)
    return usage_error(s, "no %s file", ".pipe or .csv");
  if (given->option[O_FORMAT]) {
    todo->kind = COMMAND_FORMAT;
    return check_format(s, given);
  }
  s->opt->input = given->file[0];
  if (given->option[O_COMPARE]) {
    todo->kind = COMMAND_COMPARE;
    return check_idle(s, given) && check_compare(s, given);
  }
  if (sweep_any(s->opt)) {
    todo->kind = COMMAND_POINTS;
    if (!check_sweep(s, given))
      return false;
  }
  return check_idle(s, given) && check_compile(s, given);
}
