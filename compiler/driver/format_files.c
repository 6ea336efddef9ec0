/* SPDX-License-Identifier: MIT
 * Writes files in canonical form (--fmt). A file with errors is reported and stays unchanged; the
 * other files are formatted. Standard input with errors is printed as it came: an editor that
 * filters its text through pipec keeps the text. */
#include <string.h>

#include "driver.h"
#include "base.h"
#include "format.h"

/* The first byte at which a and b differ. */
static uint32_t first_difference(const char *a, const char *b) {
  uint32_t i = 0;
  while (a[i] == b[i])
    i++;
  return i;
}

/* Ends the formatting of a text that has errors: reported. */
static bool leave(Sched *s, const char *path, const char *text, uint32_t len) {
  if (strcmp(path, "/dev/stdin") == 0 && !s->opt->check_only && !s->opt->format_write)
    fwrite(text, 1, len, s->opt->out);
  return false;
}

static bool format_file(Sched *s, Interner *names, const char *path, bool *differs) {
  uint32_t len, result_len, errors = s->diag->errors;
  const char *text = file_read(s, path, NO_SPAN, &len);
  if (!text)
    return false;
  uint32_t file = diag_source(s->diag, path, text, len);
  parse(s->arena, names, s->diag, file);
  if (s->diag->errors != errors)
    return leave(s, path, text, len);
  const char *result = format_text(s->arena, names, text, len, &result_len);
  if (!result) {
    diag_error(s->diag, DIAG_TOO_LARGE, NO_SPAN, "%s would be longer than 64 MiB", path);
    return leave(s, path, text, len);
  }
  bool same = result_len == len && memcmp(text, result, len) == 0;
  if (s->opt->check_only) {
    uint32_t at = same ? 0 : first_difference(text, result);
    if (!same)
      diag_error(s->diag, DIAG_FORMAT, (Span){file, at, at + 1}, "not in canonical form from here");
    *differs |= !same;
    return same;
  }
  if (!s->opt->format_write)
    return fwrite(result, 1, result_len, s->opt->out) == result_len; /* main reports errors */
  OutFile out;
  if (same)
    return true;
  if (!file_replace(s, &out, path))
    return false;
  fwrite(result, 1, result_len, out.f);
  return file_close(s, &out, true);
}

bool format_files(Sched *s) {
  bool ok = true, differs = false;
  Interner *names = intern_new(s->arena);
  for (uint32_t i = 0; i < s->opt->nformat; i++)
    ok &= format_file(s, names, s->opt->format[i], &differs);
  if (differs)
    diag_help(s->diag, "pipec --fmt --write puts files in that form");
  return ok;
}
