/* SPDX-License-Identifier: MIT
 * Prints user errors: place (path, line, column), message, and the source line with the span
 * marked.
 *
 * A shown line is a row of cells: one character of the source and the text that escape.h prints for
 * it on a terminal. Carets count the columns of cells, so they stay below their span; a character
 * outside ASCII counts as one column. A line longer than MAX_COLUMNS is cut to a window around the
 * start of the span. Cost: linear in the line, per message. */
#include "diag.h"

#include <stdlib.h>
#include <string.h>

#include "escape.h"
#include "guard.h"

enum { MAX_COLUMNS = 160, COLUMNS_BEFORE = 40 };

static const char *const diag_names[DIAG_NNAMES] = {
#define X(id, text) [DIAG_##id] = text,
#include "diag.def"
#undef X
};

const char *diag_name(DiagName n) { return diag_names[n]; }

void diag_init(Diag *d, Arena *a, FILE *out) {
  memset(d, 0, sizeof *d);
  d->arena = a;
  d->out = out;
  d->limit = DIAG_LIMIT;
  d->bad_line = NO_SPAN;
}

uint32_t diag_source(Diag *d, const char *path, const char *text, uint32_t len) {
  if (d->nsource == d->capsource)
    vec_grow(d->arena, (void **)&d->source, &d->capsource, sizeof *d->source);
  uint32_t nline = 1;
  for (const char *p = text; (p = memchr(p, '\n', (size_t)(text + len - p))); p++)
    nline++;
  uint32_t *line_beg = NEW_ARRAY(d->arena, uint32_t, nline);
  uint32_t line = 1;
  for (const char *p = text; (p = memchr(p, '\n', (size_t)(text + len - p))); p++)
    line_beg[line++] = (uint32_t)(p + 1 - text);
  d->source[d->nsource] = (Source){
      .path = arena_strndup(d->arena, path, strlen(path)),
      .text = text,
      .len = len,
      .line_beg = line_beg,
      .nline = nline,
  };
  return d->nsource++;
}

/* The line, from 0, that contains `offset`. */
static uint32_t line_of(const Source *src, uint32_t offset) {
  uint32_t lo = 0, hi = src->nline;
  while (hi - lo > 1) {
    uint32_t mid = lo + (hi - lo) / 2;
    if (src->line_beg[mid] <= offset)
      lo = mid;
    else
      hi = mid;
  }
  return lo;
}

LineCol diag_linecol(const Diag *d, uint32_t file, uint32_t offset) {
  if (file >= d->nsource)
    return (LineCol){0, 0};
  const Source *src = &d->source[file];
  uint32_t line = line_of(src, offset);
  return (LineCol){line + 1, offset - src->line_beg[line] + 1};
}

/* A character of the source as it is printed. */
typedef struct Cell {
  char text[ESCAPE_ROOM];
  uint32_t bytes; /* read from the source, at least 1 */
  uint32_t columns;
} Cell;

static Cell cell_at(const char *text, const char *end) {
  Cell cell;
  cell.bytes = (uint32_t)escape_one(ESCAPE_TERMINAL, text, (size_t)(end - text), cell.text);
  cell.columns = cell.bytes > 1 ? 1 : (uint32_t)strlen(cell.text);
  return cell;
}

static void put_line(FILE *out, const Source *src, Span at) {
  uint32_t line = line_of(src, at.beg);
  const char *text = src->text + src->line_beg[line];
  const char *end = line + 1 < src->nline ? src->text + src->line_beg[line + 1] - 1
                                          : src->text + src->len;
  if (end > text && end[-1] == '\r')
    end--;

  /* Columns [mark, mark_end) of the span and the width of the line. */
  const char *span_beg = src->text + at.beg, *span_end = src->text + at.end;
  uint64_t mark = 0, mark_end = 0, width = 0;
  for (const char *p = text; p < end;) {
    Cell cell = cell_at(p, end);
    if (p + cell.bytes <= span_beg)
      mark += cell.columns;
    if (p < span_end)
      mark_end += cell.columns;
    width += cell.columns;
    p += cell.bytes;
  }
  if (mark_end <= mark)
    mark_end = mark + 1;

  uint64_t lo = 0, hi = width;
  if (width > MAX_COLUMNS) {
    lo = mark > COLUMNS_BEFORE ? mark - COLUMNS_BEFORE : 0;
    if (lo > width - MAX_COLUMNS)
      lo = width - MAX_COLUMNS;
    hi = lo + MAX_COLUMNS;
    if (mark_end > hi)
      mark_end = hi > mark ? hi : mark + 1;
  }

  fprintf(out, "%5u | %s", line + 1, lo > 0 ? "..." : "");
  uint64_t column = 0, first = UINT64_MAX;
  for (const char *p = text; p < end && column < hi;) {
    Cell cell = cell_at(p, end);
    if (column >= lo) {
      first = first == UINT64_MAX ? column : first;
      fputs(cell.text, out);
    }
    column += cell.columns;
    p += cell.bytes;
  }
  first = first == UINT64_MAX ? lo : first;
  fprintf(out, "%s\n      | %*s^", hi < width ? "..." : "", (int)(mark - first + (lo > 0 ? 3 : 0)),
          "");
  for (uint64_t i = mark + 1; i < mark_end; i++)
    fputc('~', out);
  fputc('\n', out);
}

/* The error or warning that help belongs to. */
static DiagRow *helped_row(Diag *d) {
  uint32_t i = d->nrow;
  while (i > 0 && d->row[i - 1].severity == SEVERITY_NOTE)
    i--;
  return i > 0 ? &d->row[i - 1] : NULL;
}

static void keep_row(Diag *d, DiagRow row) {
  if (d->nrow == d->caprow)
    vec_grow(d->arena, (void **)&d->row, &d->caprow, sizeof *d->row);
  d->row[d->nrow++] = row;
}

static void put_message(Diag *d, Severity severity, const char *name, Span at, const char *text) {
  static const char *const word[] = {"error", "warning", "note", "help"};
  if (!d->out)
    return;
  if (severity != SEVERITY_HELP)
    keep_row(d, (DiagRow){severity, name, at, text, NULL});
  const Source *src = at.file < d->nsource ? &d->source[at.file] : NULL;
  if (src) {
    at.beg = at.beg < src->len ? at.beg : src->len;
    at.end = at.end < src->len ? at.end : src->len;
    LineCol place = diag_linecol(d, at.file, at.beg);
    escape_put(d->out, ESCAPE_TERMINAL, src->path);
    fprintf(d->out, ":%u:%u: ", place.line, place.col);
  }
  fprintf(d->out, "%s: ", word[severity]);
  escape_put(d->out, ESCAPE_TERMINAL, text);
  if (name)
    fprintf(d->out, " [%s]", name);
  fputc('\n', d->out);
  if (src)
    put_line(d->out, src, at);
}

static const char *format(Diag *d, const char *fmt, va_list args) {
  char small[512];
  va_list again;
  va_copy(again, args);
  int n = vsnprintf(small, sizeof small, fmt, args);
  BUG_IF(n < 0);
  char *text = arena_alloc(d->arena, (size_t)n + 1);
  vsnprintf(text, (size_t)n + 1, fmt, again);
  va_end(again);
  return text;
}

void diag_bad_line(Diag *d, Span at) {
  if (at.file >= d->nsource) /* a text that is only lexed has no source */
    return;
  const Source *src = &d->source[at.file];
  uint32_t line = line_of(src, at.beg);
  d->bad_line = (Span){at.file, src->line_beg[line],
                       line + 1 < src->nline ? src->line_beg[line + 1] : src->len};
}

static bool on_bad_line(Diag *d, DiagName name, Span at) {
  if (name != DIAG_SYNTAX && name != DIAG_BAD_BYTE && name != DIAG_BAD_NUMBER &&
      name != DIAG_BAD_STRING)
    return false;
  if (at.file == d->bad_line.file && at.beg >= d->bad_line.beg && at.beg < d->bad_line.end)
    return true;
  if (name == DIAG_SYNTAX)
    diag_bad_line(d, at);
  return false;
}

/* True for the same message at the same place, up to numbers: one slip affects several ranks,
 * stages or microbatches. Remembers at most `limit` printed messages. */
static bool is_repeat(Diag *d, DiagName name, Span at, const char *text) {
  uint64_t hash = 0xcbf29ce484222325u;
  const uint32_t place[] = {(uint32_t)name, at.file, at.beg, at.end};
  for (size_t i = 0; i < sizeof place; i++)
    hash = (hash ^ ((const unsigned char *)place)[i]) * 0x100000001b3u;
  for (; *text; text++)
    if (*text < '0' || *text > '9')
      hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
  for (uint32_t i = 0; i < d->nsaid; i++)
    if (d->said[i] == hash)
      return true;
  if (d->nsaid < DIAG_LIMIT)
    d->said[d->nsaid++] = hash;
  return false;
}

/* Keeps the first error. */
static void keep_first(Diag *d, DiagName name, Span at, const char *text) {
  if (d->errors > 0)
    return;
  d->first = name;
  d->first_at = at;
  d->first_text = text;
}

/* Counts one error; past the limit, mutes the error and its notes. */
static void count_error(Diag *d) {
  d->errors++;
  d->muted = d->errors > d->limit;
  if (d->out && d->errors == d->limit + 1)
    fprintf(d->out, "note: %u errors shown, stopping here\n", d->limit);
}

void diag_error(Diag *d, DiagName name, Span at, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  if (d->errors > d->limit) { /* past the limit: only count */
    d->errors++;
    d->muted = true;
  } else {
    const char *text = format(d, fmt, args);
    d->muted = on_bad_line(d, name, at) || is_repeat(d, name, at, text);
    keep_first(d, name, at, text);
    if (!d->muted)
      count_error(d);
    if (!d->muted)
      put_message(d, SEVERITY_ERROR, diag_names[name], at, text);
  }
  va_end(args);
}

void diag_warn(Diag *d, DiagName name, Span at, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  const char *text = format(d, fmt, args);
  va_end(args);
  if (d->werror) {
    keep_first(d, name, at, text);
    count_error(d);
  } else {
    d->warnings++;
    d->muted = d->errors > d->limit;
  }
  if (!d->muted)
    put_message(d, d->werror ? SEVERITY_ERROR : SEVERITY_WARNING, diag_names[name], at, text);
}

void diag_note(Diag *d, Span at, const char *fmt, ...) {
  if (d->muted)
    return;
  va_list args;
  va_start(args, fmt);
  put_message(d, SEVERITY_NOTE, NULL, at, format(d, fmt, args));
  va_end(args);
}

void diag_help(Diag *d, const char *fmt, ...) {
  if (d->muted)
    return;
  va_list args;
  va_start(args, fmt);
  const char *text = format(d, fmt, args);
  if (!d->helped || strcmp(text, d->helped) != 0)
    put_message(d, SEVERITY_HELP, NULL, NO_SPAN, text);
  d->helped = text;
  DiagRow *row = helped_row(d);
  if (row)
    row->help = row->help ? arena_printf(d->arena, "%s\n%s", row->help, text) : text;
  va_end(args);
}
