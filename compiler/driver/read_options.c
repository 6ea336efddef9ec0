/* SPDX-License-Identifier: MIT
 * Reads the words of a command line, or of a library's caller, into Options: options.def says where
 * each value goes. Options may stand between files, may be abbreviated, and have their value in the
 * same word or in the next, as getopt_long has it; getopt itself keeps state between calls. Wrong
 * words are reported; option_conflicts.c finds the options that do not go together. */
#include <errno.h>
#include <stddef.h>
#include <string.h>
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

/* name: behind the dashes, perhaps with '=' and a value. The beginning of a listed name stands for
 * it if no other begins so. */
static WordKind read_name(Words *w, const char *name) {
  const size_t n = strcspn(name, "=");
  int found = -1, matches = 0;
  for (int id = 0; id < NOPTIONS; id++)
    if (option_row[id].name && strncmp(option_row[id].name, name, n) == 0) {
      const bool exact = option_row[id].name[n] == 0;
      if (!exact && !option_is_listed(&option_row[id]))
        continue;
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

/* NAME=4, or with several values, at most 2^30, NAME=4..64, NAME=4..64:4 and NAME=4,8,16. */
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
      (*at == ':' && !(at = parse_whole(at + 1, &d->step))) || *at || d->step <= 0 || last < d->lo)
    return false;
  const uint64_t steps = ((uint64_t)last - (uint64_t)d->lo) / (uint64_t)d->step;
  d->n = (uint32_t)steps + 1;
  return steps < 1 << 30;
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

bool usage_error(Sched *s, const char *fmt, const char *arg) {
  diag_error(s->diag, DIAG_USAGE, NO_SPAN, fmt, arg);
  diag_help(s->diag, "pipec --help lists the options");
  return false;
}

bool usage_refused(Sched *s, const char *message, const char *help) {
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

/* The caller of the library has named what is compiled. */
static bool for_program(Sched *s, const char *written) {
  return usage_refused(
      s, arena_printf(s->arena, "'%s' is an option of the program pipec only", written),
      "a call of the library compiles one schedule, and writes no file");
}

/* ---- values that need a reader of their own: the column `into` of options.def is READ. False:
 * reported ---- */

/* The index of `value` among the words of option id. */
static bool read_choice(Sched *s, int id, const char *value, int *k) {
  if (option_word(id, value, k))
    return true;
  return usage_error(
      s, arena_printf(s->arena, "--%s=%%s: expected %s", option_row[id].name, option_words(s, id)),
      value);
}

static bool read_output(Sched *s, const char *value) {
  s->opt->output = strcmp(value, "-") == 0 ? NULL : value;
  return true;
}

static bool read_define(Sched *s, const char *value) {
  Options *o = s->opt;
  if (parse_define(s, value, &o->define[o->ndefine++]))
    return true;
  if (strstr(value, ".."))
    return usage_error(s,
                       "-D %s: expected NAME=LO..HI or NAME=LO..HI:STEP, LO not above HI, STEP "
                       "above 0, at most 2^30 values",
                       value);
  if (strchr(value, ','))
    return usage_error(s, "-D %s: expected NAME=A,B,C, each an integer within 64 bits", value);
  return usage_error(s, "-D %s: expected NAME=INTEGER, NAME=LO..HI or NAME=A,B, within 64 bits",
                     value);
}

static bool read_include(Sched *s, const char *value) {
  s->opt->include[s->opt->ninclude++] = value;
  return true;
}

static bool read_warnings(Sched *s, const char *value) {
  if (strcmp(value, "error") != 0)
    return usage_error(s, "unknown option '-W%s'", value);
  s->diag->werror = true;
  return true;
}

static bool read_lowering(Sched *s, const char *value) {
  int k;
  if (strcmp(value, "grouped") == 0)
    return usage_refused(s, "--lowering=grouped is removed", own_transfers_help);
  if (!read_choice(s, O_LOWERING, value, &k))
    return false;
  s->opt->lowering = k + 1;
  return true;
}

static bool read_sends(Sched *s, const char *value) {
  return parse_sends(value, &s->opt->model) ||
         usage_error(s,
                     "--sends=%s: expected rendezvous, or buffered: and messages or a size, such "
                     "as buffered:2 or buffered:4MiB",
                     value);
}

static bool read_figure(Sched *s, const char *value) {
  return parse_figure(value, &s->opt->figure_px, &s->opt->figure_pt) ||
         usage_error(s,
                     "--figure=%s: expected a width from 2in to 20in, such as 3.33in, 85mm or "
                     "240pt; or with the size of its text, 6 to 12 pt, such as 3.33in,9pt, "
                     "and 2in of width for each 7.5 pt",
                     value);
}

static bool read_unshard(Sched *s, const char *value) {
  return parse_count(value, &s->opt->torch_unshard) ||
         usage_error(s, "--torch-unshard=%s: expected a number of stages, such as 3", value);
}

static bool read_memory_limit(Sched *s, const char *value) {
  if (!parse_size(value, &s->opt->memory_limit_bytes))
    return usage_error(s, "--memory-limit=%s: expected a size such as 40GiB", value);
  s->opt->decimal = value[strcspn(value, "kMGT")] && !strchr(value, 'i');
  return true;
}

static bool read_host_memory(Sched *s, const char *value) {
  return parse_size(value, &s->opt->host_limit_bytes) ||
         usage_error(s, "--host-memory=%s: expected a size such as 8GiB", value);
}

static bool read_symbol(Sched *s, const char *value) {
  s->opt->symbol = value;
  return is_symbol(value) ||
         usage_error(s, "--symbol=%s: not a name that the emitted C can use", value);
}

static bool read_pass(Sched *s, const char *value) {
  s->opt->dump_after = value;
  return is_pass(value) ||
         usage_error(s,
                     arena_printf(s->arena, "--dump-after=%%s: no such pass; there are %sand all",
                                  pass_names(s)),
                     value);
}

/* ---- options ---- */

/* Where the value of an option goes. */
typedef enum IntoKind {
  INTO_NOTHING,
  INTO_FLAG,
  INTO_TEXT,
  INTO_CHOICE,
  INTO_OFF,
  INTO_READ
} IntoKind;

typedef struct Into {
  IntoKind kind;
  CommandKind command;                       /* COMMAND_COMPILE: none */
  size_t at;                                 /* of a member of Options */
  bool (*read)(Sched *s, const char *value); /* INTO_READ */
} Into;

/* The forms of the column `into`; options.def explains them. */
#define GIVEN \
  { INTO_NOTHING, COMMAND_COMPILE, 0, NULL }
#define COMMAND(kind) \
  { INTO_NOTHING, COMMAND_##kind, 0, NULL }
#define FLAG(member) \
  { INTO_FLAG, COMMAND_COMPILE, offsetof(Options, member), NULL }
#define VALUE(member) \
  { INTO_TEXT, COMMAND_COMPILE, offsetof(Options, member), NULL }
#define CHOICE(member) \
  { INTO_CHOICE, COMMAND_COMPILE, offsetof(Options, member), NULL }
#define OFF(member) \
  { INTO_OFF, COMMAND_COMPILE, offsetof(Options, member), NULL }
#define READ(what) \
  { INTO_READ, COMMAND_COMPILE, 0, read_##what }

static const Into option_into[NOPTIONS] = {
#define X(id, letter, name, argument, takes, who, into, help) into,
#include "options.def"
#undef X
};

static bool read_option(Sched *s, Given *given, Command *todo, int id, const char *value) {
  const Into *into = &option_into[id];
  char *member = (char *)s->opt + into->at;
  int k = 0;
  given->option[id] = true;
  if (into->kind != INTO_READ && option_row[id].takes == TAKES_WORDS &&
      !read_choice(s, id, value, &k))
    return false;
  if (into->command != COMMAND_COMPILE)
    *todo = (Command){into->command, .name = value};
  switch (into->kind) {
  case INTO_NOTHING: break;
  case INTO_FLAG: *(bool *)member = true; break;
  case INTO_TEXT: *(const char **)(void *)member = value; break;
  case INTO_CHOICE: *(int *)(void *)member = k; break;
  case INTO_OFF: *(bool *)member = k == 1; break;
  case INTO_READ: return into->read(s, value);
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
  const char *first = before[id];
  before[id] = value;
  if (!value || !first || strcmp(first, value) == 0 || id == O_DEFINE || id == O_INCLUDE)
    return false;
  return !usage_refused(
      s, arena_printf(s->arena, "%s is given twice: %s and %s", option_dashed(s, id), first, value),
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
static bool read_words(Sched *s, Words *w, Given *given, Command *todo) {
  const char *before[NOPTIONS] = {NULL};
  for (WordKind kind; !is_last(todo) && (kind = next_word(w)) != W_END;)
    switch (kind) {
    case W_FILE:
      if (s->opt->input)
        return usage_refused(s, arena_printf(s->arena, "'%s' is no option", w->whole),
                             "the file is named beside the options");
      given->file[given->nfile++] = w->whole;
      break;
    case W_OPTION:
      if (s->opt->input && option_row[w->id].who == FOR_PROGRAM)
        return for_program(s, w->whole);
      if (is_other_value(s, before, w->id, w->value) ||
          !read_option(s, given, todo, w->id, w->value))
        return false;
      if (w->id == O_EXPLAIN)
        todo->name = explained(s, w, todo->name);
      break;
    case W_HAS_VALUE:
      if (w->id == O_LIST)
        return usage_refused(
            s, arena_printf(s->arena, "option '%s' takes no value", w->whole),
            arena_printf(s->arena, "words to look for stand behind it: pipec --list %s",
                         strchr(w->whole, '=') + 1));
      return usage_error(s, "option '%s' takes no value", w->whole);
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

bool read_options(Sched *s, int n, const char *const *word, Command *todo) {
  Options *o = s->opt;
  Given given = {.file = NEW_ARRAY(s->arena, const char *, (size_t)n + 1)};
  Words words = {.word = word, .n = n, .letters = ""};
  o->define = NEW_ARRAY(s->arena, Define, (size_t)n);
  o->include = NEW_ARRAY(s->arena, const char *, (size_t)n);
  o->stdlib = library_dir(s);
  o->word = word;
  o->nword = n;
  o->named = o->input != NULL;
#ifndef NDEBUG
  o->verify = !getenv("PIPE_NO_VERIFY"); /* which takes a large program long */
#endif
  *todo = (Command){COMMAND_COMPILE, .name = NULL};
  if (o->input)
    given.file[given.nfile++] = o->input;
  if (!read_words(s, &words, &given, todo))
    return false;
  todo->word = given.file;
  todo->nword = given.nfile;
  if (todo->kind != COMMAND_COMPILE)
    return true;
  for (uint32_t i = 0; i < given.nfile && !o->input; i++)
    if (is_bare_option(s, given.file[i]))
      return false;
  for (uint32_t i = 0; i < given.nfile && !given.option[O_FORMAT] && !o->text; i++)
    given.file[i] = library_find(s, strcmp(given.file[i], "/dev/stdin") ? given.file[i] : "-");
  return check_options(s, &given, todo);
}
