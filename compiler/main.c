/* SPDX-License-Identifier: MIT
 * The command line of pipec. Exit status: 0 done and proved, 1 anything else. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "pipec.h"

static const char usage[] =
    "usage: pipec FILE.pipe|FILE.csv [-o OUT] [-D NAME=VALUE]... [options]\n"
    "\n"
    "Proves a pipeline schedule and writes it as C. A CSV file is one of PyTorch's.\n"
    "\n"
    "  -o OUT                  write to OUT (whole or not at all); default: standard output\n"
    "  -D NAME=VALUE           value of a parameter, such as -D P=4 -D M=8\n"
    "  --check                 prove and report, write nothing else\n"
    "  --for-all=NAME          --check for every value of a parameter, such as M, and the steady state\n"
    "  --critical-path         --check, with the critical path op by op and idle time by cause\n"
    "  --compare FILE...       compile each and rank them by time; -D NAME=LO..HI:STEP sweeps a\n"
    "                          parameter; --emit=csv, or --emit=svg for time against memory\n"
    "  --show                  draw the prediction in the terminal, write nothing else\n"
    "  --color=auto|always|never   of --show; auto: on a terminal, unless NO_COLOR is set\n"
    "  --emit=c|csv|json|svg|trace|promela\n"
    "                          what to write: C tables (default), PyTorch's compute_only CSV,\n"
    "                          everything that is known, the predicted timeline as a picture,\n"
    "                          or as a trace for Perfetto and chrome://tracing\n"
    "  --channels=MODEL        what is in order on the network: rank (all transfers of a rank, the\n"
    "                          default), pair (of a rank pair), edge (of a directed pair), tagged\n"
    "  --sends=rendezvous      a send waits for its receive (default), or buffered:N messages, or\n"
    "                          buffered:SIZE such as buffered:4MiB, per directed rank pair\n"
    "  --torch-lax             read a CSV file as PyTorch does, with a warning for each oddity\n"
    "  --profile=FILE.json     measured times and sizes per stage\n"
    "  --memory-limit=SIZE     fail if a rank needs more, such as 40GiB\n"
    "  --schedule=NAME         which schedule of the file; default: the last\n"
    "  --symbol=NAME           C name of the program; default: pipe_program\n"
    "  -I DIR                  look for imports in DIR\n"
    "  --depfile=FILE          write the files that were read, for make and ninja\n"
    "  --dump-after=PASS       print what a pass left, and stop; PASS may be all\n"
    "  --time-passes           time and rate of each pass on standard error\n"
    "  --host-memory=SIZE      refuse programs that need more to compile; default: all of it\n"
    "  --verify                check the compiler's own tables once more\n"
    "  -Werror                 warnings are errors\n"
    "  --explain NAME          why [NAME] at the end of a message is an error, and what to change\n"
    "  --help, --version\n"
    "\n"
    "Imports are looked up beside the importing file, in each -I, and in the standard library.\n";

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

/* NAME=4, or for --compare NAME=4..64 and NAME=4..64:4. */
static bool parse_define(Sched *s, const char *text, Define *d) {
  const char *eq = strchr(text, '=');
  if (!eq || eq == text)
    return false;
  d->name = arena_strndup(s->arena, text, (size_t)(eq - text));
  d->step = 1;
  const char *at = eq + 1;
  int64_t *const value[] = {&d->lo, &d->hi, &d->step};
  static const char *const before[] = {"", "..", ":"};
  for (int i = 0; i < 3 && (i == 0 || *at); i++) {
    size_t n = strlen(before[i]);
    char *end;
    if (strncmp(at, before[i], n) != 0)
      return false;
    at += n;
    errno = 0;
    *value[i] = strtoll(at, &end, 10);
    if (end == at || errno || !(*at == '-' || (*at >= '0' && *at <= '9')))
      return false;
    at = end;
    if (i == 0)
      d->hi = d->lo;
  }
  d->value = d->lo;
  return !*at && d->step > 0 && d->hi >= d->lo && (uint64_t)d->hi - (uint64_t)d->lo < 1 << 30;
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

enum {
  O_CHECK = 256,
  O_COMPARE,
  O_FOR_ALL,
  O_EMIT,
  O_CHANNELS,
  O_SENDS,
  O_LAX,
  O_PROFILE,
  O_LIMIT,
  O_SCHEDULE,
  O_SYMBOL,
  O_DEPFILE,
  O_DUMP,
  O_TIME,
  O_HOST,
  O_CRITICAL,
  O_SHOW,
  O_COLOR,
  O_EXPLAIN,
  O_VERIFY,
  O_HELP,
  O_VERSION
};

static const struct option longopts[] = {{"check", no_argument, NULL, O_CHECK},
                                         {"compare", no_argument, NULL, O_COMPARE},
                                         {"for-all", required_argument, NULL, O_FOR_ALL},
                                         {"emit", required_argument, NULL, O_EMIT},
                                         {"channels", required_argument, NULL, O_CHANNELS},
                                         {"sends", required_argument, NULL, O_SENDS},
                                         {"torch-lax", no_argument, NULL, O_LAX},
                                         {"profile", required_argument, NULL, O_PROFILE},
                                         {"memory-limit", required_argument, NULL, O_LIMIT},
                                         {"schedule", required_argument, NULL, O_SCHEDULE},
                                         {"symbol", required_argument, NULL, O_SYMBOL},
                                         {"depfile", required_argument, NULL, O_DEPFILE},
                                         {"dump-after", required_argument, NULL, O_DUMP},
                                         {"time-passes", no_argument, NULL, O_TIME},
                                         {"host-memory", required_argument, NULL, O_HOST},
                                         {"verify", no_argument, NULL, O_VERIFY},
                                         {"help", no_argument, NULL, O_HELP},
                                         {"critical-path", no_argument, NULL, O_CRITICAL},
                                         {"show", no_argument, NULL, O_SHOW},
                                         {"color", required_argument, NULL, O_COLOR},
                                         {"explain", required_argument, NULL, O_EXPLAIN},
                                         {"version", no_argument, NULL, O_VERSION},
                                         {NULL, 0, NULL, 0}};

static bool usage_error(Sched *s, const char *fmt, const char *arg) {
  diag_error(s->diag, DIAG_USAGE, NO_SPAN, fmt, arg);
  diag_help(s->diag, "pipec --help lists the options");
  return false;
}

/* The place of a word in a list that ends with NULL. */
static bool word_of(const char *word, const char *const *list, int *k) {
  for (*k = 0; list[*k]; ++*k)
    if (strcmp(word, list[*k]) == 0)
      return true;
  return false;
}

/* False: reported. *done: nothing is left to do. */
static bool read_options(Sched *s, int argc, char **argv, bool *done) {
  Options *o = s->opt;
  o->define = NEW_ARRAY(s->arena, Define, (size_t)argc);
  o->include = NEW_ARRAY(s->arena, const char *, (size_t)argc);
  opterr = 0;
  int k = 0;
  bool many = false;
  for (int c; (c = getopt_long(argc, argv, ":o:D:I:W:", longopts, NULL)) != -1;)
    switch (c) {
    case 'o': o->output = strcmp(optarg, "-") ? optarg : NULL; break;
    case 'D':
      if (!parse_define(s, optarg, &o->define[o->ndefine++]))
        return usage_error(s, "-D %s: expected NAME=INTEGER, within 64 bits", optarg);
      break;
    case 'I': o->include[o->ninclude++] = optarg; break;
    case 'W':
      if (strcmp(optarg, "error"))
        return usage_error(s, "unknown option '-W%s'", optarg);
      s->diag->werror = true;
      break;
    case O_CHECK: o->check_only = true; break;
    case O_COMPARE: many = true; break;
    case O_FOR_ALL: o->for_all = optarg; break;
    case O_EMIT:
      if (!word_of(optarg,
                   (const char *const[]){"c", "csv", "json", "svg", "trace", "promela", NULL}, &k))
        return usage_error(s, "--emit=%s: expected c, csv, json, svg, trace or promela", optarg);
      o->emit = (Emit)k;
      break;
    case O_CRITICAL: o->critical_path = true; break;
    case O_SHOW: o->show = true; break;
    case O_COLOR:
      if (!word_of(optarg, (const char *const[]){"auto", "always", "never", NULL}, &k))
        return usage_error(s, "--color=%s: expected auto, always or never", optarg);
      o->color = (Color)k;
      break;
    case O_EXPLAIN: *done = true; return explain_name(s, optarg, stdout);
    case O_CHANNELS:
      if (!word_of(optarg, (const char *const[]){"rank", "pair", "edge", "tagged", NULL}, &k))
        return usage_error(s, "--channels=%s: expected rank, pair, edge or tagged", optarg);
      o->model.channels = (MachineChannels)k;
      break;
    case O_SENDS:
      if (!parse_sends(optarg, &o->model))
        return usage_error(
            s,
            "--sends=%s: expected rendezvous, or buffered: and messages or a size, such as buffered:2 or buffered:4MiB",
            optarg);
      break;
    case O_LAX: o->torch_lax = true; break;
    case O_PROFILE: o->profile = optarg; break;
    case O_LIMIT:
      if (!parse_size(optarg, &o->memory_limit_bytes))
        return usage_error(s, "--memory-limit=%s: expected a size such as 40GiB", optarg);
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
      fputs(usage, stdout);
      *done = true;
      return true;
    case O_VERSION:
      printf("pipec %s (ABI %u)\n", PIPEC_VERSION, PIPE_ABI);
      *done = true;
      return true;
    case ':': return usage_error(s, "option '%s' needs a value", argv[optind - 1]);
    default:
      if (optopt > 0 && optopt < 256) /* a letter, perhaps one of several in a word */
        return usage_error(s, "unknown option '-%s'", (char[]){(char)optopt, 0});
      if (optopt) /* one of longopts */
        return usage_error(s, "option '%s' takes no value", argv[optind - 1]);
      return usage_error(s, "unknown option '%s'", argv[optind - 1]);
    }
  if (optind == argc)
    return usage_error(s, "no %s file", ".pipe or .csv");
  for (uint32_t i = 0; i < o->ndefine && !many; i++)
    if (o->define[i].hi != o->define[i].lo)
      return usage_error(s, "-D %s: a range of values is for --compare", o->define[i].name);
  if (many) {
    if (o->emit != EMIT_C && o->emit != EMIT_CSV && o->emit != EMIT_SVG)
      return usage_error(s, "%s prints a table, or --emit=csv or --emit=svg", "--compare");
    if (o->check_only || o->show || o->critical_path || o->dump_after || o->depfile || o->schedule)
      return usage_error(s, "%s goes with -D, -o, --emit and what costs, limits and models need",
                         "--compare");
    o->compare = (const char **)argv + optind, o->ncompare = (uint32_t)(argc - optind);
    return true;
  }
  if (o->for_all)
    o->check_only = true;
  if (optind + 1 < argc)
    return usage_error(s, "one file at a time; '%s' is another", argv[optind + 1]);
  if (o->depfile && o->output && strcmp(o->depfile, o->output) == 0)
    return usage_error(s, "--depfile and -o are both %s", o->output);
  if (o->depfile && !o->output)
    return usage_error(s, "--depfile=%s names what -o OUT depends on: it needs -o", o->depfile);
  o->input = argv[optind];
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
  opt.verify = true;
#endif
  bool ok = read_options(&s, argc, argv, &done);
  if (ok && !done) {
    opt.stdlib = find_stdlib(&s);
    ok = (opt.ncompare ? compare(&s) : compile(&s)) && diag.errors == 0;
  }
  errno = 0;
  if ((fflush(stdout) != 0 || ferror(stdout)) && ok) {
    diag_error(&diag, DIAG_WRITE, NO_SPAN, "cannot write standard output: %s",
               strerror(errno ? errno : EIO));
    ok = false;
  }
  arena_free(&arena);
  return ok ? 0 : 1;
}
