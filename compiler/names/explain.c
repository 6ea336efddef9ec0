/* SPDX-License-Identifier: MIT
 * Prints the page of lang/errors.md for a diagnostic (--explain NAME). cmake/embed.cmake makes the
 * text part of the executable, as errors_md.c. A fenced block is indented, and a comment with
 * options is printed as a command line; everything else is printed as written. */
#include <string.h>

#include "names.h"
#include "base.h"

extern const char errors_md[];

static const char *nth_page(int i) { return i < DIAG_NNAMES ? diag_name((DiagName)i) : NULL; }

static bool is_name(const char *name) {
  for (int i = 0; i < DIAG_NNAMES; i++)
    if (strcmp(diag_name((DiagName)i), name) == 0)
      return true;
  return false;
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
  for (int i = 0; (name = nth_page(i)); i++)
    wide = (int)strlen(name) > wide ? (int)strlen(name) : wide;
  for (int i = 0; (name = nth_page(i)); i++)
    fprintf(f, "%-*s  %s\n", wide, name, first_sentence(s, explain_page(name)));
}

bool explain_name(Sched *s, const char *name, FILE *f) {
  size_t n = strlen(name);
  if (n > 2 && name[0] == '[' && name[n - 1] == ']') /* as messages print it */
    name = arena_strndup(s->arena, name + 1, n - 2);
  if (!is_name(name)) {
    const char *meant = name_meant(name, nth_page);
    diag_error(s->diag, DIAG_USAGE, NO_SPAN, "--explain %s: no diagnostic has this name", name);
    if (meant)
      diag_help(s->diag, "did you mean '%s'", meant);
    else
      diag_help(s->diag, "pipec --explain lists the names");
    return false;
  }
  print_page(name, f);
  return true;
}
