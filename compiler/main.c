/* SPDX-License-Identifier: MIT
 * The command line of pipec. The exit status is 0 if all is done and proved, 1 otherwise. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base.h"
#include "driver.h"
#include "import.h"
#include "names.h"
#include "options.h"
#include "svg.h"

static void oom(size_t wanted) {
  fprintf(stderr, "pipec: out of memory (wanted %zu bytes)\n", wanted);
  exit(1);
}

/* "40GiB", "1.5MB", "8": a whole number of bytes. */
static bool parse_size(const char *text, uint64_t *bytes) {
  static const struct {
    const char *unit;
    uint64_t by;
  } unit[] = {{"", 1},
              {"B", 1},
              {"kB", 1000},
              {"MB", 1000000},
              {"GB", 1000000000},
              {"TB", 1000000000000},
              {"KiB", 1ull << 10},
              {"MiB", 1ull << 20},
              {"GiB", 1ull << 30},
              {"TiB", 1ull << 40}};
  char *end;
  errno = 0;
  double v = strtod(text, &end);
  if (end == text || errno || !(v >= 0) || strspn(text, "0123456789.") != (size_t)(end - text))
    return false;
  for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
    if (strcmp(end, unit[i].unit) == 0 && v * (double)unit[i].by < 9e18) {
      *bytes = (uint64_t)(v * (double)unit[i].by);
      return *bytes > 0;
    }
  return false;
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

/* NAME=4, or for --compare NAME=4..64, NAME=4..64:4 and NAME=4,8,16. */
static bool parse_define(Sched *s, const char *text, Define *d) {
  const char *eq = strchr(text, '='), *at = eq;
  int64_t last = 0;
  if (!eq || eq == text)
    return false;
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

/* Beside the executable: bin/pipec and share/pipe/stdlib. */
static const char *find_stdlib(Sched *s) {
  const char *env = getenv("PIPE_STDLIB");
  if (env && *env)
    return env;
  char self[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0)
    return NULL;
  self[n] = 0;
  for (int up = 0; up < 2; up++) {
    char *slash = strrchr(self, '/');
    if (!slash)
      return NULL;
    *slash = 0;
  }
  return arena_printf(s->arena, "%s/share/pipe/stdlib", self);
}

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
  const char *meant = option_meant(s, written);
  if (!meant)
    return usage_error(s, "unknown option '%s'", written);
  return usage_refused(s, arena_printf(s->arena, "unknown option '%s'", written),
                       arena_printf(s->arena, "did you mean '--%s'", meant));
}

/* Reads the word that option id was given. */
static bool read_word(Sched *s, int id, const char *option, int *k) {
  if (option_word(id, optarg, k))
    return true;
  return usage_error(s, arena_printf(s->arena, "%s%%s: expected %s", option, option_words(s, id)),
                     optarg);
}

/* A text that the compiler has about itself, where -o says. */
static bool print_about(Sched *s, int id, int shell) {
  OutFile out;
  if (!file_open(s, &out, s->opt->output))
    return false;
  bool ok = true;
  if (id == O_COMPLETION)
    print_completion(s, shell, out.f);
  else if (id == O_LIST)
    ok = library_list(s, out.f);
  else
    print_manual(out.f);
  return file_close(s, &out, ok);
}

/* --fmt, which goes with few options. */
static bool read_format(Sched *s, int argc, char **argv, bool other) {
  Options *o = s->opt;
  if (other || o->ndefine || o->ninclude || o->output || o->emit != EMIT_C || o->schedule)
    return usage_refused(s, "--fmt conflicts with all options but --check and --write",
                         "type pipec --fmt FILE..., with --write to replace the files");
  if (o->check_only && o->format_write)
    return usage_refused(s, "--check and --write conflict: --fmt --check writes no file",
                         "leave out --check to put the files in canonical form");
  o->format = (const char **)argv + optind, o->nformat = (uint32_t)(argc - optind);
  for (uint32_t i = 0; i < o->nformat; i++) {
    o->input = o->format[i];
    if (is_csv(o) || is_json(o))
      return usage_error(s, "--fmt is for .pipe files, not for %s", o->input);
    if (strcmp(o->format[i], "-") == 0)
      o->format[i] = "/dev/stdin";
  }
  return true;
}

static bool two_files(Sched *s, const char *first, const char *second) {
  if (strchr(second, '=') && second[0] != '-')
    return usage_refused(s, arena_printf(s->arena, "'%s' stands where a second file would", second),
                         arena_printf(s->arena, "a parameter gets its value by -D %s", second));
  return usage_refused(
      s, arena_printf(s->arena, "two files, %s and %s: one is compiled at a time", first, second),
      "--compare ranks several, and --emit=html draws several on one page");
}

/* Refuses what says where or how to write (of --arrows: --emit) where only a report or a grid is
 * printed. -o is fine with --depfile, which names it. */
static bool writes_nothing(Sched *s, bool emits) {
  const Options *o = s->opt;
  const char *what = o->dump_after                          ? "--dump-after"
                     : o->show                              ? "--show"
                     : o->critical_path                     ? "--critical-path"
                     : o->every.n || (o->for_all && !emits) ? "--for-all"
                     : o->check_only                        ? "--check"
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
      strcmp(what, "--for-all") == 0
          ? "with --emit=c, --for-all writes one program for all values"
          : arena_printf(s->arena, "leave out %s to write the file, or %s to see the report", what,
                         idle));
}

/* False: reported. *done: nothing is left to do. */
static bool read_options(Sched *s, int argc, char **argv, bool *done) {
  Options *o = s->opt;
  o->define = NEW_ARRAY(s->arena, Define, (size_t)argc);
  o->include = NEW_ARRAY(s->arena, const char *, (size_t)argc);
  opterr = 0;
  int k = 0, about = 0, shell = 0;
  bool many = false, format = false, what = false; /* what: an option says what to do */
  bool emits = false, arrows = false, equal = false, by = false,
       color = false; /* --emit, --arrows, --by, --color */
  for (int c; (c = option_next(argc, argv)) != -1;)
    switch (c) {
    case O_OUTPUT: o->output = strcmp(optarg, "-") ? optarg : NULL; break;
    case O_DEFINE:
      if (!parse_define(s, optarg, &o->define[o->ndefine++]))
        return usage_error(
            s,
            strstr(optarg, "..")
                ? "-D %s: expected NAME=LO..HI or NAME=LO..HI:STEP, LO not above HI, STEP above 0"
            : strchr(optarg, ',') ? "-D %s: expected NAME=A,B,C, each an integer within 64 bits"
                                  : "-D %s: expected NAME=INTEGER, within 64 bits",
            optarg);
      break;
    case O_INCLUDE: o->include[o->ninclude++] = optarg; break;
    case O_WARNINGS:
      if (strcmp(optarg, "error"))
        return usage_error(s, "unknown option '-W%s'", optarg);
      s->diag->werror = true;
      break;
    case O_CHECK: o->check_only = true; break;
    case O_COMPARE: many = true; break;
    case O_BY:
      if (!read_word(s, c, "--by=", &k))
        return false;
      o->by = (RankBy)k, by = true;
      break;
    case O_FOR_ALL:
      o->for_all = strchr(optarg, '=') ? NULL : optarg;
      if (!o->for_all && !parse_define(s, optarg, &o->every))
        return usage_error(s, "--for-all=%s: expected NAME, NAME=LO..HI or NAME=LO..HI:STEP",
                           optarg);
      break;
    case O_UNDECIDED:
      if (!read_word(s, c, "--undecided=", &k))
        return false;
      o->undecided = 1 + k;
      break;
    case O_EMIT:
      if (!read_word(s, c, "--emit=", &k))
        return false;
      o->emit = (Emit)k, what = emits = true;
      break;
    case O_CRITICAL: o->critical_path = true; break;
    case O_SHOW: o->show = true; break;
    case O_COLOR:
      if (!read_word(s, c, "--color=", &k))
        return false;
      o->color = (Color)k, color = true;
      break;
    case O_FORMAT: format = true; break;
    case O_WRITE: o->format_write = true; break;
    case O_COMPLETION:
      if (!read_word(s, c, "--completion=", &k))
        return false;
      about = c, shell = k;
      break;
    case O_MANUAL: about = c; break;
    case O_LIST: about = c; break;
    case O_EXPLAIN: *done = true; return explain_name(s, optarg, stdout);
    case O_CHANNELS:
      if (!read_word(s, c, "--channels=", &k))
        return false;
      o->model.channels = (MachineChannels)k;
      break;
    case O_LOWERING:
      if (!read_word(s, c, "--lowering=", &k))
        return false;
      o->lowering = k + 1;
      break;
    case O_SENDS:
      if (!parse_sends(optarg, &o->model))
        return usage_error(
            s,
            "--sends=%s: expected rendezvous, or buffered: and messages or a size, such as buffered:2 or buffered:4MiB",
            optarg);
      break;
    case O_CONTENTION:
      if (!read_word(s, c, "--contention=", &k))
        return false;
      o->no_contention = k == 1;
      break;
    case O_EQUAL:
      if (!read_word(s, c, "--equal-work=", &k))
        return false;
      o->own_units = k == 1, equal = true;
      break;
    case O_WITH: o->with = optarg; break;
    case O_ARROWS:
      if (!read_word(s, c, "--arrows=", &k))
        return false;
      o->arrows = k, arrows = true;
      break;
    case O_FIGURE:
      if (!parse_figure(optarg, &o->figure_px, &o->figure_pt))
        return usage_error(
            s,
            "--figure=%s: expected a width from 2in to 20in, such as 3.33in, 85mm or "
            "240pt; or with the size of its text, 6 to 12 pt, such as 3.33in,9pt, "
            "and 2in of width for each 7.5 pt",
            optarg);
      break;
    case O_LAX: o->torch_lax = true; break;
    case O_WAITS: o->torch_waits = true; break;
    case O_UNSHARD:
      if (!parse_count(optarg, &o->torch_unshard))
        return usage_error(s, "--torch-unshard=%s: expected a number of stages, such as 3", optarg);
      break;
    case O_PROFILE: o->profile = optarg; break;
    case O_LIMIT:
      if (!parse_size(optarg, &o->memory_limit_bytes))
        return usage_error(s, "--memory-limit=%s: expected a size such as 40GiB", optarg);
      o->decimal = optarg[strcspn(optarg, "kMGT")] && !strchr(optarg, 'i');
      break;
    case O_HOST:
      if (!parse_size(optarg, &o->host_limit_bytes))
        return usage_error(s, "--host-memory=%s: expected a size such as 8GiB", optarg);
      break;
    case O_SCHEDULE: o->schedule = optarg; break;
    case O_SYMBOL:
      if (!is_symbol(optarg))
        return usage_error(s, "--symbol=%s: not a name that the emitted C can use", optarg);
      o->symbol = optarg;
      break;
    case O_DEPFILE: o->depfile = optarg; break;
    case O_COUNTER: o->counterexample = optarg; break;
    case O_DUMP:
      if (!is_pass(optarg))
        return usage_error(s,
                           arena_printf(s->arena,
                                        "--dump-after=%%s: no such pass; there are %sand all",
                                        pass_names(s)),
                           optarg);
      o->dump_after = optarg;
      break;
    case O_TIME: o->time_passes = true; break;
    case O_VERIFY: o->verify = true; break;
    case O_HELP:
      print_help(stdout);
      *done = true;
      return true;
    case O_VERSION:
      printf("pipec %s (ABI %u)\n", PIPEC_VERSION, PIPE_ABI);
      *done = true;
      return true;
    case ':':
      if (optopt == O_EXPLAIN) {
        explain_list(s, stdout);
        *done = true;
        return true;
      }
      return usage_error(s, "option '%s' needs a value", argv[optind - 1]);
    default:
      if (optopt > 0 && optopt < 256) /* a letter, perhaps one of several in a word */
        return usage_error(s, "unknown option '-%s'", (char[]){(char)optopt, 0});
      if (optopt) /* one of longopts */
        return usage_error(s, "option '%s' takes no value", argv[optind - 1]);
      return unknown_option(s, argv[optind - 1]);
    }
  if (about) {
    *done = true;
    return print_about(s, about, shell);
  }
  for (int i = optind; i < argc && !format; i++) /* --fmt is for files of one's own */
    argv[i] = (char *)library_find(s, strcmp(argv[i], "/dev/stdin") ? argv[i] : "-");
  if (optind == argc)
    return usage_error(s, "no %s file", ".pipe, .csv or .json");
  what |= o->critical_path || o->show || o->for_all || o->every.n || o->dump_after || o->depfile;
  if (format)
    return read_format(s, argc, argv, what || many);
  if (o->format_write)
    return usage_error(s, "%s goes with --fmt", "--write");
  for (uint32_t i = 0; i < o->ndefine && !many; i++)
    if (o->define[i].n > 1)
      return usage_error(s, "-D %s: several values are for --compare", o->define[i].name);
  if ((o->torch_waits || o->torch_unshard) && o->emit != EMIT_COMMS_CSV)
    return usage_error(s, "%s says how to write --emit=comms-csv",
                       o->torch_waits ? "--torch-waits" : "--torch-unshard");
  if (by && !many)
    return usage_error(s, "%s says how to rank what --compare compiles", "--by");
  if (equal && !many && o->emit != EMIT_HTML)
    return usage_error(
        s, "%s is for schedules side by side: --compare, or --emit=html of several files",
        "--equal-work");
  if (o->figure_px > 0 && (o->emit != EMIT_SVG || many))
    return usage_error(s, "%s says how to draw the timeline of --emit=svg", "--figure");
  if (arrows && (o->emit != EMIT_SVG || many))
    return usage_error(s, "%s says how to draw the timeline of --emit=svg", "--arrows");
  if (o->with &&
      (many || o->every.n || o->show || o->dump_after ||
       !(o->check_only || o->critical_path || o->emit == EMIT_SVG || o->emit == EMIT_TRACE)))
    return usage_error(s, "%s goes with --emit=svg, --emit=trace or --check of one file", "--with");
  if (color && !o->show)
    return usage_error(s, "%s is for what --show draws", "--color");
  if (many) {
    if (o->emit != EMIT_C && o->emit != EMIT_CSV && o->emit != EMIT_SVG)
      return usage_error(s, "%s prints a table, or --emit=csv or --emit=svg", "--compare");
    const char *other = o->check_only              ? "--check"
                        : o->show                  ? "--show"
                        : o->critical_path         ? "--critical-path"
                        : o->dump_after            ? "--dump-after"
                        : o->depfile               ? "--depfile"
                        : o->schedule              ? "--schedule"
                        : o->counterexample        ? "--counterexample"
                        : o->symbol                ? "--symbol"
                        : o->for_all || o->every.n ? "--for-all"
                        : o->time_passes           ? "--time-passes"
                                                   : NULL;
    if (other)
      return usage_refused(
          s,
          arena_printf(s->arena, "--compare and %s conflict: --compare prints a table of all files",
                       other),
          arena_printf(s->arena, "leave out --compare to use %s on one file", other));
    o->compare = (const char **)argv + optind, o->ncompare = (uint32_t)(argc - optind);
    return true;
  }
  for (uint32_t i = 0; i < o->ndefine && o->every.n; i++)
    if (strcmp(o->define[i].name, o->every.name) == 0)
      return usage_error(s, "-D %s: --for-all gives it its values", o->every.name);
  if (o->every.n && (o->critical_path || o->show || o->dump_after || o->counterexample))
    return usage_error(s, "%s compiles many values and prints one report of them", "--for-all");
  if (o->for_all && emits && o->emit != EMIT_C)
    return usage_error(s, "%s goes with --check, or --emit=c", "--for-all");
  if (o->symbol && o->emit != EMIT_C)
    return usage_error(s, "%s names the program of --emit=c", "--symbol");
  o->looped = o->for_all && emits && o->emit == EMIT_C && !o->check_only;
  if (o->for_all && !o->looped)
    o->check_only = true;
  if (optind + 1 < argc && o->emit == EMIT_HTML && !o->check_only && !o->show &&
      !o->critical_path && !o->dump_after)
    o->compare = (const char **)argv + optind, o->ncompare = (uint32_t)(argc - optind);
  else if (optind + 1 < argc)
    return two_files(s, argv[optind], argv[optind + 1]);
  if (!writes_nothing(s, emits))
    return false;
  if (o->depfile && o->output && strcmp(o->depfile, o->output) == 0)
    return usage_error(s, "--depfile and -o are both %s", o->output);
  if (o->depfile && !o->output)
    return usage_error(s, "--depfile=%s names what -o OUT depends on: it needs -o", o->depfile);
  o->input = argv[optind];
  if ((o->for_all || o->every.n) && (is_csv(o) || is_json(o)))
    return usage_error(s, "--for-all is for schedules with parameters, which %s has not", o->input);
  if (o->torch_lax && !is_csv(o))
    return usage_error(s, "--torch-lax says how to read a CSV file, and %s is none", o->input);
  return true;
}

int main(int argc, char **argv) {
  Arena arena = {.oom = oom};
  Diag diag;
  Options opt = {.dump_out = stdout};
  Sched s = {.arena = &arena, .diag = &diag, .opt = &opt};
  bool done = false;
  signal(SIGXFSZ, SIG_IGN); /* a write past the limit then fails like any other */
  signal(SIGPIPE, SIG_IGN);
  files_catch_signals();
  diag_init(&diag, &arena, stderr);
#ifndef NDEBUG
  opt.verify = !getenv("PIPE_NO_VERIFY"); /* which takes a large program long */
#endif
  opt.stdlib = find_stdlib(&s);
  bool ok = read_options(&s, argc, argv, &done);
  if (ok && !done) {
    bool one = !opt.ncompare || opt.emit == EMIT_HTML;
    ok = (opt.nformat   ? format_files(&s)
          : !one        ? compare(&s)
          : opt.every.n ? every_value(&s)
                        : compile(&s)) &&
         diag.errors == 0;
  }
  errno = ferror(stdout) ? errno : 0; /* of the write that failed */
  if ((fflush(stdout) != 0 || ferror(stdout)) && ok) {
    diag_error(&diag, DIAG_WRITE, NO_SPAN, "cannot write standard output: %s",
               strerror(errno ? errno : EIO));
    ok = false;
  }
  arena_free(&arena);
  return ok ? 0 : 1;
}
