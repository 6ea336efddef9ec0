/* SPDX-License-Identifier: MIT
 * Turns options.def, the one list of options, into --help and the manual page. completion.c makes
 * the shell scripts. */
#include <string.h>

#include "options.h"
#include "base.h"
#include "names.h"

const OptionRow option_row[NOPTIONS] = {
#define X(id, letter, name, argument, takes, who, into, help) \
  {letter, TAKES_##takes, FOR_##who, name, argument, help},
#include "options.def"
#undef X
};

const char *option_each_word(const OptionRow *o, const char *from, size_t *n) {
  from = from ? from : o->argument[0] == '=' ? o->argument + 1 : o->argument;
  from += *from == '|';
  *n = strcspn(from, "|");
  return *n ? from : NULL;
}

bool option_word(int id, const char *word, int *k) {
  const OptionRow *o = &option_row[id];
  size_t n = 0;
  *k = 0;
  for (const char *w = NULL; (w = option_each_word(o, w, &n)); w += n, ++*k)
    if (strlen(word) == n && strncmp(word, w, n) == 0)
      return true;
  return false;
}

const char *option_words(Sched *s, int id) {
  const OptionRow *o = &option_row[id];
  const char *list = "";
  size_t n = 0;
  for (const char *w = NULL; (w = option_each_word(o, w, &n)); w += n)
    list = arena_printf(s->arena, "%s%s%.*s", list, !*list ? "" : w[n] ? ", " : " or ", (int)n, w);
  return list;
}

const char *option_dashed(Sched *s, int id) {
  const OptionRow *row = &option_row[id];
  return row->name ? arena_printf(s->arena, "--%s", row->name)
                   : arena_printf(s->arena, "-%c", row->letter);
}

static const char *nth_name(int i) {
  if (i == NOPTIONS)
    return NULL;
  return option_row[i].name && option_is_listed(&option_row[i]) ? option_row[i].name : "";
}

const char *option_meant(Sched *s, const char *written) {
  const char *name = written + strspn(written, "-");
  return name_meant(arena_strndup(s->arena, name, strcspn(name, "=")), nth_name);
}

/* ---- --help ---- */

static const char head[] = "usage: pipec FILE.pipe|FILE.csv [-o OUT] [-D NAME=VALUE]... [options]\n"
                           "\n"
                           "Proves a pipeline schedule and writes it as C.\n"
                           "A CSV file is one of PyTorch's.\n"
                           "\n";
static const char tail[] =
    "FILE is a path, - for standard input (a .pipe text), or a name that --list prints.\n"
    "Imports are looked up beside the importing file, in each -I, and in the standard library.\n";

enum { HELP_COLUMN = 26 };

void print_help(FILE *f) {
  fputs(head, f);
  for (int i = 0; i < NOPTIONS; i++) {
    const OptionRow *o = &option_row[i];
    if (!option_is_listed(o))
      continue;
    int at = fprintf(f, "  ");
    if (o->letter)
      at += fprintf(f, "-%c%s", o->letter, o->name ? ", " : "");
    if (o->name)
      at += fprintf(f, "--%s", o->name);
    at += fprintf(f, "%s", o->argument);
    if (at >= HELP_COLUMN - 1)
      fputc('\n', f), at = 0;
    for (const char *line = o->help; *line; at = 0) {
      int n = (int)strcspn(line, "\n");
      fprintf(f, "%*s%.*s\n", HELP_COLUMN - at, "", n, line);
      line += n + (line[n] == '\n');
    }
  }
  fprintf(f, "\n%s", tail);
}

/* ---- --man ---- */

/* Prints one character of text. A line must not begin with a roff control character. */
static void roff_char(FILE *f, const char *text, const char *at) {
  if (*at == '\\')
    fputs("\\e", f);
  else if (*at == '-')
    fputs("\\-", f);
  else if ((*at == '.' || *at == '\'') && (at == text || at[-1] == '\n'))
    fprintf(f, "\\&%c", *at);
  else
    fputc(*at, f);
}

static void roff(FILE *f, const char *text, size_t n) {
  for (size_t i = 0; i < n; i++)
    roff_char(f, text, text + i);
}

static void roff_text(FILE *f, const char *text) { roff(f, text, strlen(text)); }

/* Prints words in italics, separators upright. */
static void roff_argument(FILE *f, const char *text) {
  while (*text) {
    size_t word = strcspn(text, "=| :."), sep = strspn(text + word, "=| :.");
    if (word) {
      fputs("\\fI", f);
      roff(f, text, word);
      fputs("\\fR", f);
    }
    roff(f, text + word, sep);
    text += word + sep;
  }
}

/* Prints the first paragraph of the page of a diagnostic. */
static void roff_page(FILE *f, const char *name) {
  const char *page = explain_page(name);
  const char *end = page ? strstr(page, "\n\n") : NULL;
  bool code = false;
  for (const char *p = page; p && p < end; p++)
    if (*p == '`') {
      fputs((code = !code) ? "\\fB" : "\\fR", f);
    } else if (p[0] == ']' && p[1] == '(') { /* of a link only the text */
      p += strcspn(p, ")");
    } else if (*p != '[') {
      roff_char(f, page, p);
    }
  fputc('\n', f);
}

void print_manual(FILE *f) {
  fprintf(
      f,
      ".\\\" SPDX-License-Identifier: MIT\n"
      ".TH PIPEC 1 \"\" \"pipec %s\" \"User Commands\"\n"
      ".SH NAME\n"
      "pipec \\- compile and prove schedules of pipeline\\-parallel training\n"
      ".SH SYNOPSIS\n"
      ".B pipec\n"
      "\\fIFILE.pipe\\fR|\\fIFILE.csv\\fR [\\fB\\-o\\fR \\fIOUT\\fR] [\\fB\\-D\\fR \\fINAME\\fR=\\fIVALUE\\fR]... [options]\n"
      ".br\n.B pipec \\-\\-compare\n\\fIFILE\\fR... [options]\n"
      ".br\n.B pipec \\-\\-fmt\n[\\fB\\-i\\fR|\\fB\\-\\-check\\fR] \\fIFILE.pipe\\fR...\n"
      ".br\n.B pipec \\-\\-explain\n[\\fINAME\\fR]\n"
      ".SH DESCRIPTION\n"
      "A \\fI.pipe\\fR file says in which order each rank of a pipeline runs its forwards, backwards and updates.\n"
      ".B pipec\n"
      "derives the sends and receives, proves that the whole is complete, cannot deadlock and fits in memory,\n"
      "predicts its time, and writes it as constant C tables. A CSV file is one of PyTorch's.\n"
      "A \\fIFILE\\fR is a path, \\- for standard input (a .pipe text), or a name that \\fB\\-\\-list\\fR prints.\n"
      "Imports are looked up beside the importing file, in each \\fB\\-I\\fR, and in the standard library.\n"
      ".SH OPTIONS\n",
      PIPEC_VERSION);
  for (int i = 0; i < NOPTIONS; i++) {
    const OptionRow *o = &option_row[i];
    if (!option_is_listed(o))
      continue;
    fputs(".TP\n", f);
    if (o->letter)
      fprintf(f, "\\fB\\-%c\\fR%s", o->letter, o->name ? ", " : "");
    if (o->name) {
      fputs("\\fB\\-\\-", f);
      roff_text(f, o->name);
      fputs("\\fR", f);
    }
    roff_argument(f, o->argument);
    fputc('\n', f);
    roff_text(f, o->help);
    fputs(".\n", f);
  }
  fputs(
      ".SH EXIT STATUS\n"
      ".TP\n0\nDone, and proved.\n"
      ".TP\n1\nAnything else; standard error says what.\n"
      "A message \\(lqinternal error\\(rq followed by an abort is a mistake of the compiler.\n"
      ".SH ENVIRONMENT\n"
      ".TP\n.B PIPE_STDLIB\nThe directory of the standard library, in place of the one that was installed.\n"
      ".TP\n.B NO_COLOR\nIf set to anything, \\fB\\-\\-color=auto\\fR means never.\n"
      ".TP\n.B COLUMNS\nThe width of \\fB\\-\\-show\\fR and of the table of \\fB\\-\\-compare\\fR, in place of that of the terminal.\n"
      ".SH DIAGNOSTICS\n"
      "The name of an error stands in brackets at the end of its message;\n"
      "\\fBpipec \\-\\-explain\\fR \\fINAME\\fR shows an example and what to change.\n",
      f);
  for (int i = 0; i < DIAG_NNAMES; i++) {
    fputs(".TP\n.B ", f);
    roff_text(f, diag_name((DiagName)i));
    fputc('\n', f);
    roff_page(f, diag_name((DiagName)i));
  }
  fputs(".SH EXAMPLES\n"
        ".nf\npipec \\-\\-check \\-D P=8 \\-D M=32 mine.pipe\n"
        "pipec \\-\\-emit=svg mine.pipe \\-o mine.svg\n"
        "pipec \\-\\-fmt \\-i *.pipe\n.fi\n",
        f);
}
