/* SPDX-License-Identifier: MIT
 * Explains a name (--explain NAME): a word of lang/words.def, and the page of lang/errors.md for a
 * diagnostic. cmake/embed.cmake makes the pages part of the executable, as errors_md.c. A fenced
 * block is indented, and a comment with options is printed as a command line; everything else is
 * printed as written. */
#include <string.h>

#include "names.h"
#include "base.h"

extern const char errors_md[];

static const struct {
  const char *name, *text;
} words[] = {
#define X(name, text) {name, text},
#include "words.def"
#undef X
};
enum { NWORDS = sizeof words / sizeof *words };

/* The names of the diagnostics, then the words. */
static const char *nth_name(int i) {
  if (i < DIAG_NNAMES)
    return diag_name((DiagName)i);
  return i < DIAG_NNAMES + NWORDS ? words[i - DIAG_NNAMES].name : NULL;
}

static bool is_name(const char *name) {
  for (int i = 0; i < DIAG_NNAMES; i++)
    if (strcmp(diag_name((DiagName)i), name) == 0)
      return true;
  return false;
}

/* Is it an op, such as 2F0, 0SEND_F3 or 1U? */
static bool is_op(const char *name) {
  const size_t stage = strspn(name, "0123456789");
  const size_t kind = strspn(name + stage, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
  const char *rest = name + stage + kind;
  return stage && kind && rest[strspn(rest, "0123456789.")] == 0;
}

/* "in-flight" is "in flight", too. */
static bool is_same_word(const char *word, const char *name) {
  while (*word && (*word == *name || (*word == ' ' && (*name == '-' || *name == '_'))))
    word++, name++;
  return *word == *name;
}

/* The row of `words` for a word, or for any op. NWORDS: none. */
static int word_row(const char *name) {
  int i = 0;
  while (i < NWORDS && !is_same_word(words[i].name, is_op(name) ? "2F0" : name))
    i++;
  return i;
}

static bool begins(const char *line, const char *with) {
  return strncmp(line, with, strlen(with)) == 0;
}

const char *explain_page(const char *name) {
  const char *begin = errors_md;
  size_t n = strlen(name);
  while ((begin = strstr(begin, "\n## "))) {
    begin += 4;
    if (strncmp(begin, name, n) == 0 && strncmp(begin + n, "\n\n", 2) == 0)
      return begin + n + 2;
  }
  return NULL;
}

static void print_page(const char *name, FILE *f) {
  size_t n = strlen(name);
  bool inside = false, fence = false, blank = false;
  for (const char *line = errors_md, *end; *line; line = *end ? end + 1 : end) {
    end = strchr(line, '\n');
    end = end ? end : line + strlen(line);
    int len = (int)(end - line);
    if (!fence && begins(line, "## ")) {
      if (inside)
        return;
      inside = (size_t)len == 3 + n && strncmp(line + 3, name, n) == 0;
      if (inside)
        fprintf(f, "%s\n", name);
      continue;
    }
    if (begins(line, "```")) {
      fence = !fence;
      const char *file = inside && fence ? memchr(line, ' ', (size_t)len) : NULL;
      if (file)
        fprintf(f, "%s    [%.*s]\n", blank ? "\n" : "", (int)(end - file - 1), file + 1),
            blank = false;
    } else if (inside && len == 0) {
      blank = true;
    } else if (inside) {
      const char *options = "<!-- pipec: ";
      if (blank)
        fputc('\n', f);
      blank = false;
      if (!fence && begins(line, options))
        fprintf(f, "    $ pipec %.*s main.pipe\n", len - (int)strlen(options) - 4,
                line + strlen(options));
      else
        fprintf(f, "%s%.*s\n", fence ? "    " : "", len, line);
    }
  }
}

void explain_list(Sched *s, FILE *f) {
  int wide = 0;
  const char *name;
  for (int i = 0; (name = nth_name(i)); i++)
    wide = (int)strlen(name) > wide ? (int)strlen(name) : wide;
  for (int i = 0; (name = nth_name(i)); i++)
    fprintf(f, "%-*s  %s\n", wide, name,
            first_sentence(s, i < DIAG_NNAMES ? explain_page(name) : words[i - DIAG_NNAMES].text));
}

bool explain_name(Sched *s, const char *name, FILE *f) {
  const size_t n = strlen(name);
  const bool bracketed = n > 2 && name[0] == '[' && name[n - 1] == ']'; /* as messages print it */
  if (bracketed)
    name = arena_strndup(s->arena, name + 1, n - 2);
  const int word = bracketed ? NWORDS : word_row(name);
  const bool page = is_name(name);
  if (word < NWORDS)
    fprintf(f, "%s\n%s.\n%s", words[word].name, words[word].text, page ? "\n" : "");
  if (page)
    print_page(name, f);
  if (page || word < NWORDS)
    return true;
  const char *meant = name_meant(name, nth_name);
  diag_error(s->diag, DIAG_USAGE, NO_SPAN, "--explain %s: no diagnostic and no word has this name",
             name);
  if (meant)
    diag_help(s->diag, "did you mean '%s'", meant);
  else
    diag_help(s->diag, "pipec --explain lists the names and words");
  return false;
}
