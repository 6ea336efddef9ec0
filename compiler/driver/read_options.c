/* SPDX-License-Identifier: MIT
 * Reads the words of a command line, or of a library's caller, into Options. Options may stand
 * between files, may be abbreviated, and have their value in the same word or in the next, as
 * getopt_long has it; getopt itself keeps state between calls. Wrong words are reported, all
 * conflicts of options are found here. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base.h"
#include "driver.h"
#include "habits.h"
#include "import.h"
#include "options.h"
#include "svg.h"
#include "sweep.h"

/* ---- words ---- */

typedef enum WordKind { W_END, W_FILE, W_OPTION, W_UNKNOWN, W_LACKS_VALUE, W_HAS_VALUE } WordKind;

typedef struct Words {
  const char *const *word;
  int n, at;           /* at: the next one */
  const char *letters; /* what is left of a word of letters, or "" */
  bool files;          /* behind "--" */
  /* What was read: */
  const char *whole, *value; /* the word it stands in; of an option: NULL if it takes none */
  int id;                    /* O_ of W_OPTION and W_LACKS_VALUE */
} Words;

/* Option `id` with the value that stands in its own word, or NULL. */
static WordKind option_read(Words *w, int id, const char *value) {
  const bool takes = option_row[id].takes != TAKES_NOTHING;
  w->id = id;
  if (!takes && value)
    return W_HAS_VALUE;
  if (takes && !value && w->at == w->n)
    return W_LACKS_VALUE;
  w->value = takes && !value ? w->word[w->at++] : value;
  return W_OPTION;
}

static WordKind read_letter(Words *w) {
  const char c = *w->letters++;
  for (int id = 0; id < NOPTIONS; id++)
    if (option_row[id].letter == c) {
      const char *value = option_row[id].takes && *w->letters ? w->letters : NULL;
      w->letters = value ? "" : w->letters;
      return option_read(w, id, value);
    }
  return W_UNKNOWN;
}

/* name: behind the dashes, perhaps with '=' and a value. The beginning of a name stands for it if
 * no other begins so. */
static WordKind read_name(Words *w, const char *name) {
  const size_t n = strcspn(name, "=");
  int found = -1, matches = 0;
  for (int id = 0; id < NOPTIONS; id++)
    if (option_row[id].name && strncmp(option_row[id].name, name, n) == 0) {
      const bool exact = option_row[id].name[n] == 0;
      found = id, matches = exact ? 1 : matches + 1;
      if (exact)
        break;
    }
  if (matches != 1)
    return W_UNKNOWN;
  return option_read(w, found, name[n] ? name + n + 1 : NULL);
}

static WordKind next_word(Words *w) {
  if (*w->letters)
    return read_letter(w);
  if (w->at == w->n)
    return W_END;
  const char *word = w->whole = w->word[w->at++];
  if (!w->files && strcmp(word, "--") == 0) {
    w->files = true;
    return next_word(w);
  }
  if (w->files || word[0] != '-' || !word[1])
    return W_FILE;
  if (word[1] == '-')
    return read_name(w, word + 2);
  w->letters = word + 1;
  return read_letter(w);
}

/* ---- values ---- */

/* Some bytes. */
static bool parse_size(const char *text, uint64_t *bytes) {
  return read_quantity(text, OF_BYTES, bytes) && *bytes > 0;
}

static bool parse_sends(const char *text, ChannelModel *m) {
  static const char buffered[] = "buffered:";
  m->in_bytes = false;
  m->buffer = 0;
  if (strcmp(text, "rendezvous") == 0)
    return true;
  if (strncmp(text, buffered, strlen(buffered)) != 0 ||
      !parse_size(text + strlen(buffered), &m->buffer))
    return false;
  m->in_bytes = text[strlen(text) - 1] == 'B';
  return m->in_bytes || !strchr(text, '.');
}

/* A whole number from 1 that 32 bits hold. */
static bool parse_count(const char *text, uint32_t *n) {
  char *end;
  errno = 0;
  unsigned long long v = strtoull(text, &end, 10);
  *n = (uint32_t)v;
  return *text >= '1' && *text <= '9' && !*end && !errno && v < NONE;
}

/* A length on paper, in px of 1/96 inch, and the size of text: "3.33in", "85mm", "3.33in,9pt". */
static bool parse_figure(const char *text, double *px, double *pt) {
  static const struct {
    const char *unit;
    double px;
  } unit[] = {{"in", 96}, {"cm", 96 / 2.54}, {"mm", 96 / 25.4}, {"pt", 96 / 72.0}};
  char *end;
  double v = strtod(text, &end);
  if (end == text || strspn(text, "0123456789.") != (size_t)(end - text))
    return false;
  size_t i = 0;
  while (i < sizeof unit / sizeof *unit && strncmp(end, unit[i].unit, 2) != 0)
    i++;
  if (i == sizeof unit / sizeof *unit)
    return false;
  *px = v * unit[i].px;
  end += 2;
  *pt = FIGURE_PT;
  if (*end == ',' && strspn(end + 1, "0123456789.") > 0) {
    *pt = strtod(end + 1, &end);
    if (strcmp(end, "pt") != 0)
      return false;
    end += 2;
  }
  return !*end && *pt >= 6 && *pt <= 12 && *px >= 2 * 96 * *pt / FIGURE_PT && *px <= 20 * 96;
}

/* A whole number, and the text behind it; NULL: it is none. */
static const char *parse_whole(const char *text, int64_t *value) {
  char *end;
  errno = 0;
  *value = strtoll(text, &end, 10);
  return errno || !(*text == '-' || (*text >= '0' && *text <= '9')) ? NULL : end;
}

/* NAME=4, or with several values NAME=4..64, NAME=4..64:4 and NAME=4,8,16. */
static bool parse_define(Sched *s, const char *text, Define *d) {
  const char *eq = strchr(text, '='), *at = eq;
  int64_t last = 0;
  if (!eq || eq == text)
    return false;
  d->text = text;
  d->name = arena_strndup(s->arena, text, (size_t)(eq - text));
  if (!(at = parse_whole(eq + 1, &d->lo)))
    return false;
  d->value = d->lo, d->n = 1, d->step = 1;
  if (*at == ',') {
    VEC(int64_t) list = {0};
    *vec_push(s->arena, &list) = d->lo;
    while (at && *at == ',')
      at = parse_whole(at + 1, vec_push(s->arena, &list));
    d->list = list.at, d->n = list.n;
    return at && !*at;
  }
  if (!*at)
    return true;
  if (strncmp(at, "..", 2) != 0 || !(at = parse_whole(at + 2, &last)) ||
      (*at == ':' && !(at = parse_whole(at + 1, &d->step))) || *at || d->step <= 0 ||
      last < d->lo || (uint64_t)last - (uint64_t)d->lo >= 1 << 30)
    return false;
  d->n = (uint32_t)((uint64_t)(last - d->lo) / (uint64_t)d->step) + 1;
  return true;
}

/* A name that the emitted C can give to the program: none of C's words and none of its own. */
static bool is_symbol(const char *s) {
  static const char taken[] =
      " N rank stage site file _Bool auto break case char const continue default do double else enum extern float for"
      " goto if inline int long register restrict return short signed sizeof static struct switch typedef union"
      " unsigned void volatile while NULL asm typeof linux unix ";
  size_t n = strlen(s), own = strncmp(s, "rank", 4) == 0 || strncmp(s, "pool", 4) == 0 ? 4 : 0;
  if (n == 0 || n > 200 || strspn(s, "0123456789") > 0 ||
      strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != n)
    return false;
  char word[256];
  snprintf(word, sizeof word, " %s ", s);
  if (s[0] == '_' || strcmp(s + n - (n > 1 ? 2 : n), "_t") == 0 ||
      (strncmp(s, "pipe_", 5) == 0 && strcmp(s, "pipe_program") != 0))
    return false;
  return !strstr(taken, word) && strncmp(s, "Pipe", 4) != 0 && strncmp(s, "PIPE_", 5) != 0 &&
         (own == 0 || own + strspn(s + own, "0123456789") != n);
}

/* ---- messages ---- */

static bool usage_error(Sched *s, const char *fmt, const char *arg) {
  diag_error(s->diag, DIAG_USAGE, NO_SPAN, fmt, arg);
  diag_help(s->diag, "pipec --help lists the options");
  return false;
}

/* The same with a help that says what to type. */
static bool usage_refused(Sched *s, const char *message, const char *help) {
  diag_error(s->diag, DIAG_USAGE, NO_SPAN, "%s", message);
  diag_help(s->diag, "%s", help);
  return false;
}

static bool unknown_option(Sched *s, const char *written) {
  if (strncmp(written, "--for-all", strlen("--for-all")) == 0)
    return usage_refused(s, "--for-all is removed: a range of values takes its place",
                         "pipec --check -D M=1..1024 proves each value by itself");
  const char *meant = option_meant(s, written);
  if (!meant)
    return usage_error(s, "unknown option '%s'", written);
  return usage_refused(s, arena_printf(s->arena, "unknown option '%s'", written),
                       arena_printf(s->arena, "did you mean '--%s'", meant));
}

/* The index of `value` among the words of option id. */
static bool read_choice(Sched *s, int id, const char *value, int *k) {
  if (option_word(id, value, k))
    return true;
  return usage_error(
      s, arena_printf(s->arena, "--%s=%%s: expected %s", option_row[id].name, option_words(s, id)),
      value);
}

/* --fmt, which goes with few options. */
static bool read_format(Sched *s, const char **file, uint32_t nfile, bool other) {
  Options *o = s->opt;
  if (other || o->ndefine || o->ninclude || o->output || o->emit != EMIT_C || o->schedule)
    return usage_refused(s, "--fmt conflicts with all options but --check and --write",
                         "type pipec --fmt FILE..., with --write to replace the files");
  if (o->check_only && o->format_write)
    return usage_refused(s, "--check and --write conflict: --fmt --check writes no file",
                         "leave out --check to put the files in canonical form");
  o->format = file, o->nformat = nfile;
  for (uint32_t i = 0; i < o->nformat; i++) {
    o->input = o->format[i];
    if (is_csv(o))
      return usage_error(s, "--fmt is for .pipe files, not for %s", o->input);
    if (strcmp(o->format[i], "-") == 0)
      o->format[i] = "/dev/stdin";
  }
  return true;
}

/* The caller of the library has named what is compiled. */
static bool for_program(Sched *s, const char *written) {
  return usage_refused(
      s, arena_printf(s->arena, "'%s' is an option of the program pipec only", written),
      "a call of the library compiles one schedule, and writes no file");
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

/* Refuses what says where or how to write (of --arrows: --emit) where only a report or a grid is
 * printed. -o is fine with --depfile, which names it. */
static bool writes_nothing(Sched *s, bool emits) {
  const Options *o = s->opt;
  const char *what = o->dump_after      ? "--dump-after"
                     : o->show          ? "--show"
                     : o->critical_path ? "--critical-path"
                     : o->check_only    ? "--check"
                                        : NULL;
  const char *idle = o->output && !o->depfile ? "-o"
                     : emits                  ? "--emit"
                     : o->symbol              ? "--symbol"
                                              : NULL;
  if (!what || !idle)
    return true;
  return usage_refused(
      s,
      arena_printf(s->arena, "%s and %s conflict: %s prints a report and writes no file", what,
                   idle, what),
      arena_printf(s->arena, "leave out %s to write the file, or %s to see the report", what,
                   idle));
}

/* What the words have said, beside Options. */
typedef struct Given {
  const char **file;
  uint32_t nfile;
  /* --compare, --fmt, --emit, ... */
  bool many, format, emits, arrows, equal, by, color, plan, best, plan_cost;
} Given;

static bool read_option(Sched *s, Given *g, Command *todo, int id, const char *value) {
  Options *o = s->opt;
  int k = 0;
  switch (id) {
  case O_OUTPUT: o->output = strcmp(value, "-") ? value : NULL; break;
  case O_DEFINE:
    if (!parse_define(s, value, &o->define[o->ndefine++]))
      return usage_error(
          s,
          strstr(value, "..")
              ? "-D %s: expected NAME=LO..HI or NAME=LO..HI:STEP, LO not above HI, STEP above 0"
          : strchr(value, ',') ? "-D %s: expected NAME=A,B,C, each an integer within 64 bits"
                               : "-D %s: expected NAME=INTEGER, within 64 bits",
          value);
    break;
  case O_INCLUDE: o->include[o->ninclude++] = value; break;
  case O_WARNINGS:
    if (strcmp(value, "error"))
      return usage_error(s, "unknown option '-W%s'", value);
    s->diag->werror = true;
    break;
  case O_CHECK: o->check_only = true; break;
  case O_COMPARE: g->many = true; break;
  case O_BY:
    if (!read_choice(s, id, value, &k))
      return false;
    o->by = (RankBy)k, g->by = true;
    break;
  case O_PLAN: g->plan = true; break;
  case O_BEST: g->best = true; break;
  case O_CLUSTER: o->cluster = value; break;
  case O_PLAN_COST:
    if (!read_choice(s, id, value, &k))
      return false;
    o->plan_cost = (PlanCost)k, g->plan_cost = true;
    break;
  case O_EMIT:
    if (!read_choice(s, id, value, &k))
      return false;
    o->emit = (Emit)k, g->emits = true;
    break;
  case O_CRITICAL: o->critical_path = true; break;
  case O_SHOW: o->show = true; break;
  case O_COLOR:
    if (!read_choice(s, id, value, &k))
      return false;
    o->color = (Color)k, g->color = true;
    break;
  case O_FORMAT: g->format = true; break;
  case O_WRITE: o->format_write = true; break;
  case O_COMPLETION:
    if (!read_choice(s, id, value, &k))
      return false;
    todo->kind = COMMAND_COMPLETION;
    break;
  case O_MANUAL: todo->kind = COMMAND_MANUAL; break;
  case O_LIST: todo->kind = COMMAND_LIST; break;
  case O_EXPLAIN: *todo = (Command){COMMAND_EXPLAIN, .name = value}; break;
  case O_CHANNELS:
    if (!read_choice(s, id, value, &k))
      return false;
    o->model.channels = (MachineChannels)k;
    break;
  case O_LOWERING:
    if (strcmp(value, "grouped") == 0)
      return usage_refused(s, "--lowering=grouped is removed", own_transfers_help);
    if (!read_choice(s, id, value, &k))
      return false;
    o->lowering = k + 1;
    break;
  case O_SENDS:
    if (!parse_sends(value, &o->model))
      return usage_error(
          s,
          "--sends=%s: expected rendezvous, or buffered: and messages or a size, such as buffered:2 or buffered:4MiB",
          value);
    break;
  case O_CONTENTION:
    if (!read_choice(s, id, value, &k))
      return false;
    o->no_contention = k == 1;
    break;
  case O_EQUAL:
    if (!read_choice(s, id, value, &k))
      return false;
    o->own_units = k == 1, g->equal = true;
    break;
  case O_WITH: o->with = value; break;
  case O_ARROWS:
    if (!read_choice(s, id, value, &k))
      return false;
    o->arrows = k, g->arrows = true;
    break;
  case O_FIGURE:
    if (!parse_figure(value, &o->figure_px, &o->figure_pt))
      return usage_error(s,
                         "--figure=%s: expected a width from 2in to 20in, such as 3.33in, 85mm or "
                         "240pt; or with the size of its text, 6 to 12 pt, such as 3.33in,9pt, "
                         "and 2in of width for each 7.5 pt",
                         value);
    break;
  case O_LAX: o->torch_lax = true; break;
  case O_WAITS: o->torch_waits = true; break;
  case O_UNSHARD:
    if (!parse_count(value, &o->torch_unshard))
      return usage_error(s, "--torch-unshard=%s: expected a number of stages, such as 3", value);
    break;
  case O_PROFILE: o->profile = value; break;
  case O_LIMIT:
    if (!parse_size(value, &o->memory_limit_bytes))
      return usage_error(s, "--memory-limit=%s: expected a size such as 40GiB", value);
    o->decimal = value[strcspn(value, "kMGT")] && !strchr(value, 'i');
    break;
  case O_HOST:
    if (!parse_size(value, &o->host_limit_bytes))
      return usage_error(s, "--host-memory=%s: expected a size such as 8GiB", value);
    break;
  case O_SCHEDULE: o->schedule = value; break;
  case O_SYMBOL:
    if (!is_symbol(value))
      return usage_error(s, "--symbol=%s: not a name that the emitted C can use", value);
    o->symbol = value;
    break;
  case O_DEPFILE: o->depfile = value; break;
  case O_COUNTER: o->counterexample = value; break;
  case O_DUMP:
    if (!is_pass(value))
      return usage_error(s,
                         arena_printf(s->arena,
                                      "--dump-after=%%s: no such pass; there are %sand all",
                                      pass_names(s)),
                         value);
    o->dump_after = value;
    break;
  case O_TIME: o->time_passes = true; break;
  case O_VERIFY: o->verify = true; break;
  case O_HELP: todo->kind = COMMAND_HELP; break;
  case O_VERSION: todo->kind = COMMAND_VERSION; break;
  }
  return true;
}

/* --explain in flight: the name is all words that are left. */
static const char *explained(Sched *s, Words *w, const char *name) {
  while (w->at < w->n)
    name = arena_printf(s->arena, "%s %s", name, w->word[w->at++]);
  return name;
}

static bool is_last(const Command *todo) { /* the words behind it are not read */
  return todo->kind == COMMAND_HELP || todo->kind == COMMAND_VERSION ||
         todo->kind == COMMAND_EXPLAIN;
}

/* Has an earlier word given option `id` another value? Only one of both would count. -I adds a
 * folder, and the last -D of a parameter counts. before: the value of each option so far, or NULL.
 * Reported. */
static bool is_other_value(Sched *s, const char **before, int id, const char *value) {
  const OptionRow *row = &option_row[id];
  const char *first = before[id];
  before[id] = value;
  if (!value || !first || strcmp(first, value) == 0 || id == O_DEFINE || id == O_INCLUDE)
    return false;
  const char *name = row->name ? arena_printf(s->arena, "--%s", row->name)
                               : arena_printf(s->arena, "-%c", row->letter);
  return !usage_refused(s,
                        arena_printf(s->arena, "%s is given twice: %s and %s", name, first, value),
                        "leave out one of them, or run pipec once for each");
}

/* Is a FILE argument that names no file the name of an option? Reported. */
static bool is_bare_option(Sched *s, const char *word) {
  const char *help = NULL;
  int k;
  if (access(word, F_OK) == 0 || access(library_find(s, word), F_OK) == 0)
    return false;
  for (int id = 0; id < NOPTIONS; id++)
    if (option_row[id].name && strcmp(option_row[id].name, word) == 0)
      help = arena_printf(s->arena, "an option begins with dashes: --%s", word);
  if (option_word(O_EMIT, word, &k))
    help = arena_printf(s->arena, "to write this form, give --emit=%s", word);
  if (strcmp(word, "compile") == 0)
    help = "leave it out: pipec FILE compiles";
  return help && !usage_refused(s, arena_printf(s->arena, "there is no file '%s'", word), help);
}

/* False: reported. */
static bool read_words(Sched *s, Words *w, Given *g, Command *todo) {
  const char *before[NOPTIONS] = {NULL};
  for (WordKind kind; !is_last(todo) && (kind = next_word(w)) != W_END;)
    switch (kind) {
    case W_FILE:
      if (s->opt->input)
        return usage_refused(s, arena_printf(s->arena, "'%s' is no option", w->whole),
                             "the file is named beside the options");
      g->file[g->nfile++] = w->whole;
      break;
    case W_OPTION:
      if (s->opt->input && option_row[w->id].who == FOR_PROGRAM)
        return for_program(s, w->whole);
      if (is_other_value(s, before, w->id, w->value) || !read_option(s, g, todo, w->id, w->value))
        return false;
      if (w->id == O_EXPLAIN)
        todo->name = explained(s, w, todo->name);
      break;
    case W_HAS_VALUE: return usage_error(s, "option '%s' takes no value", w->whole);
    case W_LACKS_VALUE:
      if (w->id != O_EXPLAIN)
        return usage_error(s, "option '%s' needs a value", w->whole);
      *todo = (Command){COMMAND_EXPLAIN, .name = NULL};
      break;
    default:
      if (w->whole[1] != '-' && !option_meant(s, w->whole))
        return usage_error(s, "unknown option '-%s'", (char[]){w->letters[-1], 0});
      return unknown_option(s, w->whole);
    }
  return true;
}

static bool check_compare(Sched *s, const Given *g) {
  Options *o = s->opt;
  if (o->emit != EMIT_C && o->emit != EMIT_CSV && o->emit != EMIT_SVG)
    return usage_error(s, "%s prints a table, or --emit=csv or --emit=svg", "--compare");
  const char *other = o->check_only       ? "--check"
                      : o->show           ? "--show"
                      : o->critical_path  ? "--critical-path"
                      : o->dump_after     ? "--dump-after"
                      : o->depfile        ? "--depfile"
                      : o->schedule       ? "--schedule"
                      : o->counterexample ? "--counterexample"
                      : o->symbol         ? "--symbol"
                      : o->time_passes    ? "--time-passes"
                                          : NULL;
  if (other)
    return usage_refused(
        s,
        arena_printf(s->arena, "--compare and %s conflict: --compare prints a table of all files",
                     other),
        arena_printf(s->arena, "leave out --compare to use %s on one file", other));
  o->compare = g->file, o->ncompare = g->nfile;
  return true;
}

static bool is_same_file(const char *a, const char *b) {
  struct stat x, y;
  return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* --plan and --best, which go with few options. */
static bool check_plan(Sched *s, const Given *g) {
  Options *o = s->opt;
  if (g->best && (o->cluster || g->plan_cost))
    return usage_error(s, "%s is for --plan", o->cluster ? "--cluster" : "--plan-cost");
  const char *me = g->best ? "--best" : "--plan";
  const char *other = g->many                                        ? "--compare"
                      : g->best && g->plan                           ? "--plan"
                      : g->emits && (g->best || o->emit != EMIT_SVG) ? "--emit"
                      : o->check_only                                ? "--check"
                      : o->show                                      ? "--show"
                      : o->critical_path                             ? "--critical-path"
                      : o->dump_after                                ? "--dump-after"
                      : o->depfile                                   ? "--depfile"
                      : o->counterexample                            ? "--counterexample"
                      : o->schedule                                  ? "--schedule"
                      : o->symbol                                    ? "--symbol"
                      : o->with                                      ? "--with"
                      : !g->best && g->nfile                         ? g->file[0]
                                                                     : NULL;
  if (other)
    return usage_refused(
        s, arena_printf(s->arena, "%s and %s conflict: %s writes a .pipe file", me, other, me),
        arena_printf(s->arena, "write it with -o %s.pipe, then give it to pipec", me + 2));
  if (!o->profile || (g->plan && !o->cluster))
    return usage_error(s, g->plan ? "--plan needs %s" : "--best needs %s",
                       o->profile ? "--cluster=FILE.json: what the layers are trained on"
                       : g->plan  ? "--profile=FILE: the layers of the model"
                                  : "--profile=FILE: the costs of the stages or layers");
  bool has_m = false;
  for (uint32_t i = 0; i < o->ndefine; i++) {
    const Define *d = &o->define[i];
    if (d->n > 1)
      return usage_error(s, "-D %s: several values go with --check and --compare", d->text);
    for (uint32_t k = 0; k < i; k++)
      if (strcmp(o->define[k].name, d->name) == 0)
        return usage_error(s, "-D %s is given twice", d->name);
    const bool is_m = strcmp(d->name, "M") == 0 || (g->plan && strcmp(d->name, "batch") == 0);
    if (is_m && (d->value < 1 || d->value > 1 << 20))
      return usage_error(s, "-D %s: expected a whole number from 1 to 1048576", d->name);
    has_m |= is_m;
  }
  if (!has_m || (g->plan && o->ndefine != 1))
    return usage_error(s,
                       g->plan
                           ? "--plan needs %s, or -D batch=N, its samples, and no other parameter"
                           : "--best needs %s",
                       "-D M=N, the microbatches of a step");
  for (uint32_t i = 0; i < g->nfile; i++) {
    o->input = g->file[i];
    if (is_csv(o))
      return usage_error(s, "--best extends a schedule; %s has no schedule", o->input);
    if (o->output && is_same_file(o->output, o->input))
      return usage_error(s, "-o would replace %s, which is imported", o->input);
  }
  o->compare = g->file, o->ncompare = g->nfile;
  return true;
}

/* --check of several values of -D, which prints one report. */
static bool check_sweep(Sched *s, const Given *g) {
  const Options *o = s->opt;
  const struct {
    bool given;
    const char *name;
  } other[] = {{o->dump_after != NULL, "--dump-after"},
               {o->show, "--show"},
               {o->critical_path, "--critical-path"},
               {o->time_passes, "--time-passes"},
               {o->with != NULL, "--with"},
               {g->emits, "--emit"}};
  static const char help[] =
      "--check proves each of the values, --compare ranks schedules at each of them";
  const Define *define = o->define;
  while (define->n == 1)
    define++;
  for (size_t i = 0; i < sizeof other / sizeof *other; i++)
    if (other[i].given)
      return usage_refused(s,
                           arena_printf(s->arena, "-D %s and %s conflict: %s takes one value",
                                        define->text, other[i].name, other[i].name),
                           help);
  if (!o->check_only)
    return usage_refused(
        s, arena_printf(s->arena, "-D %s: a program takes one value", define->text), help);
  if (is_csv(o))
    return usage_error(s, "-D needs a schedule with parameters; %s has no parameters", o->input);
  return true;
}

/* Which options go with which, of a compile or several. */
static bool check_options(Sched *s, const Given *g) {
  Options *o = s->opt;
  if (o->format_write)
    return usage_error(s, "%s goes with --fmt", "--write");
  if (sweep_any(o) && !g->many && !check_sweep(s, g))
    return false;
  if ((o->torch_waits || o->torch_unshard) && o->emit != EMIT_COMMS_CSV)
    return usage_error(s, "%s says how to write --emit=comms-csv",
                       o->torch_waits ? "--torch-waits" : "--torch-unshard");
  if (o->cluster || g->plan_cost)
    return usage_error(s, "%s is for --plan", o->cluster ? "--cluster" : "--plan-cost");
  if (g->by && !g->many)
    return usage_error(s, "%s says how to rank what --compare compiles", "--by");
  if (g->equal && !g->many && o->emit != EMIT_HTML)
    return usage_error(
        s, "%s is for schedules side by side: --compare, or --emit=html of several files",
        "--equal-work");
  if (o->figure_px > 0 && (o->emit != EMIT_SVG || g->many))
    return usage_error(s, "%s says how to draw the timeline of --emit=svg", "--figure");
  if (g->arrows && (o->emit != EMIT_SVG || g->many))
    return usage_error(s, "%s says how to draw the timeline of --emit=svg", "--arrows");
  if (o->with &&
      (g->many || o->show || o->dump_after ||
       !(o->check_only || o->critical_path || o->emit == EMIT_SVG || o->emit == EMIT_TRACE)))
    return usage_error(s, "%s goes with --emit=svg, --emit=trace or --check of one file", "--with");
  if (g->color && !o->show)
    return usage_error(s, "%s is for what --show draws", "--color");
  if (g->many)
    return check_compare(s, g);
  if (o->symbol && o->emit != EMIT_C)
    return usage_error(s, "%s names the program of --emit=c", "--symbol");
  if (g->nfile > 1 && o->emit == EMIT_HTML && !o->check_only && !o->show && !o->critical_path &&
      !o->dump_after)
    o->compare = g->file, o->ncompare = g->nfile;
  else if (g->nfile > 1)
    return two_files(s, g->file[0], g->file[1]);
  if (!writes_nothing(s, g->emits))
    return false;
  if (o->depfile && o->output && strcmp(o->depfile, o->output) == 0)
    return usage_error(s, "--depfile and -o are both %s", o->output);
  if (o->depfile && !o->output)
    return usage_error(s, "--depfile=%s names what -o OUT depends on: it needs -o", o->depfile);
  if (o->torch_lax && !is_csv(o))
    return usage_error(s, "--torch-lax says how to read a CSV file; %s is not a CSV file",
                       o->input);
  return true;
}

bool read_options(Sched *s, int n, const char *const *word, Command *todo) {
  Options *o = s->opt;
  Given g = {.file = NEW_ARRAY(s->arena, const char *, (size_t)n + 1)};
  Words w = {.word = word, .n = n, .letters = ""};
  o->define = NEW_ARRAY(s->arena, Define, (size_t)n);
  o->include = NEW_ARRAY(s->arena, const char *, (size_t)n);
  o->stdlib = library_dir(s);
  o->word = word;
  o->nword = n;
  o->named = o->input != NULL;
#ifndef NDEBUG
  o->verify = !getenv("PIPE_NO_VERIFY"); /* which takes a large program long */
#endif
  *todo = (Command){0};
  if (o->input)
    g.file[g.nfile++] = o->input;
  if (!read_words(s, &w, &g, todo))
    return false;
  todo->word = g.file, todo->nword = g.nfile;
  if (todo->kind != COMMAND_COMPILE)
    return true;
  for (uint32_t i = 0; i < g.nfile && !o->input; i++)
    if (is_bare_option(s, g.file[i]))
      return false;
  for (uint32_t i = 0; i < g.nfile && !g.format && !o->text; i++) /* --fmt: of one's own */
    g.file[i] = library_find(s, strcmp(g.file[i], "/dev/stdin") ? g.file[i] : "-");
  if (g.plan || g.best) {
    todo->kind = g.best ? COMMAND_BEST : COMMAND_PLAN;
    return check_plan(s, &g);
  }
  if (g.nfile == 0)
    return usage_error(s, "no %s file", ".pipe or .csv");
  if (g.format) {
    const bool other = g.emits || g.many || o->critical_path || o->show || o->dump_after ||
                       o->depfile;
    todo->kind = COMMAND_FORMAT;
    return read_format(s, g.file, g.nfile, other);
  }
  o->input = g.file[0];
  todo->kind = g.many ? COMMAND_COMPARE : COMMAND_COMPILE;
  if (!check_options(s, &g))
    return false;
  if (todo->kind == COMMAND_COMPILE && sweep_any(o))
    todo->kind = COMMAND_POINTS;
  return true;
}
