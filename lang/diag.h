/* SPDX-License-Identifier: MIT
 * Sources, spans and messages. diag.c is the only printer of user errors; nothing in the compiler
 * exits or aborts for a user's mistake.
 *
 *   file:line:col: severity: message [name]
 *      12 |   the line
 *         |       ^~~~
 *
 * A message is an error, warning, note or help; notes and help belong to the error before them. */
#ifndef PIPE_DIAG_H
#define PIPE_DIAG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "arena.h"

/* Bytes [beg, end) of source `file`. file == NO_FILE: no place (command line, whole program). */
#define NO_FILE UINT32_MAX
typedef struct Span {
  uint32_t file, beg, end;
} Span;
static const Span NO_SPAN = {NO_FILE, 0, 0};

typedef struct Source {
  const char *path; /* as given by the user or found by import; printed as it is */
  const char *text; /* `len` bytes and a NUL sentinel; may contain NULs (the lexer reports them) */
  uint32_t len;
  uint32_t *line_beg; /* [nline] offset of the first byte of each line; filled by diag_source */
  uint32_t nline;     /* at least 1 */
} Source;

/* One name per row of diag.def. */
typedef enum DiagName {
#define X(id, text) DIAG_##id,
#include "diag.def"
#undef X
  DIAG_NNAMES
} DiagName;

enum { DIAG_LIMIT = 20 };

typedef enum Severity { SEVERITY_ERROR, SEVERITY_WARNING, SEVERITY_NOTE, SEVERITY_HELP } Severity;

/* A printed message. A help is no row of its own: it belongs to the row of its error or warning. */
typedef struct DiagRow {
  Severity severity;
  const char *name; /* "missing-op"; NULL for a note */
  Span at;
  const char *text, *help; /* help: lines, or NULL */
} DiagRow;

typedef struct Diag {
  Arena *arena;
  Source *source;       /* [nsource] */
  uint32_t nsource, capsource;
  FILE *out;            /* destination of messages; NULL: messages are counted, not printed */
  uint32_t errors, warnings; /* with werror warnings count as errors */
  DiagName first;       /* name of the first error, if errors > 0 */
  const char *first_text; /* text of the first error */
  Span first_at;        /* its place */
  uint32_t limit;       /* most errors printed: DIAG_LIMIT */
  uint64_t said[DIAG_LIMIT]; /* [nsaid] hashes of the printed errors, see diag_error */
  uint32_t nsaid;
  Span bad_line;        /* see diag_bad_line; file NO_FILE: none */
  const char *helped;   /* text of the last help, or NULL */
  DiagRow *row;         /* [nrow] */
  uint32_t nrow, caprow;
  bool muted;           /* the last error was not printed, so its notes are not printed either */
  bool werror;          /* warnings are errors */
} Diag;

void diag_init(Diag *d, Arena *a, FILE *out);

/* Registers text (not copied; path is copied) and returns its file number. */
uint32_t diag_source(Diag *d, const char *path, const char *text, uint32_t len);

#define PRINTF(f, a) __attribute__((format(printf, f, a)))
/* Reports an error. An error that repeats a printed one at the same place, up to numbers, is
 * neither printed nor counted, nor are its notes: one slip affects many ranks. A help equal to the
 * last one is not printed again. Errors past `limit` are counted, not printed; the last printed
 * error says so. Control bytes in an argument or a shown line are printed as \xNN, tabs as one
 * space. */
void diag_error(Diag *d, DiagName name, Span at, const char *fmt, ...) PRINTF(4, 5);
/* Call it after an error that may cause others on its line: later errors of form (syntax, bad-byte,
 * bad-number, bad-string) on this line are neither printed nor counted. Every `syntax` error calls
 * it. */
void diag_bad_line(Diag *d, Span at);
void diag_warn(Diag *d, DiagName name, Span at, const char *fmt, ...) PRINTF(4, 5);
void diag_note(Diag *d, Span at, const char *fmt, ...) PRINTF(3, 4);
void diag_help(Diag *d, const char *fmt, ...) PRINTF(2, 3);

/* Line and column, both from 1, columns in bytes. NO_FILE gives 0, 0. Cost: O(log lines). */
typedef struct LineCol { uint32_t line, col; } LineCol;
LineCol diag_linecol(const Diag *d, uint32_t file, uint32_t offset);

const char *diag_name(DiagName n); /* "missing-op" */

#endif
