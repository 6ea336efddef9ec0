/* SPDX-License-Identifier: MIT
 * The door of base/: files, text of messages, the budget of steps. */
#ifndef PIPEC_BASE_H
#define PIPEC_BASE_H

#include "pipec.h"

/* a picture is what is wanted: of what is over the memory limit, too */
bool draws(const Options *o);
/* ---- files.c ---- */
/* Reads a whole file into the arena; at: where it was asked for. NULL: reported. */
const char *hint_file(Sched *s, const char *path);
char *file_read(Sched *s, const char *path, Span at, uint32_t *len);
/* Where import "path" in file `from` is found, or NULL. */
const char *file_find(Sched *s, const char *path, const char *from);
/* Output to a temporary file beside `path`, renamed by file_close if nothing failed; NULL path:
 * standard output. Errors are reported by file_close, which is false then and leaves no file. */
typedef struct OutFile {
  FILE *f;
  const char *shown, *path; /* as the user wrote it; symbolic links resolved */
  char *tmp;
} OutFile;
bool file_open(Sched *s, OutFile *o, const char *path);
bool file_close(Sched *s, OutFile *o, bool ok);
/* file_open for a file that was read and keeps its permissions. */
bool file_replace(Sched *s, OutFile *o, const char *path);
void files_catch_signals(void); /* a process that is interrupted leaves no temporary file */
const char *copy_text(Sched *s, const Copy *c); /* "2OFF3" */
/* the one that check_deadlock and check_match prove */
bool is_default_model(const ChannelModel *m);
const char *time_text(Sched *s, uint64_t t);   /* report.c: "1.234 ms", or the number of units */
/* ---- explain.c ---- */
/* Letters to change, add, leave out or swap with the next to make b of a; a large number for names
 * of more than 40 letters. */
unsigned name_distance(const char *a, const char *b);
/* Of nth(0), nth(1) ... up to NULL the name that was meant, or NULL: at most a third of its letters
 * are wrong, or it contains what was written. */
const char *name_meant(const char *name, const char *(*nth)(int i));
/* of the first paragraph, on one line of about 100 bytes */
const char *first_sentence(Sched *s, const char *text);
/* ---- util, in dump.c ---- */
#define OP_TEXT PIPE_OP_TEXT
const char *op_text(Sched *s, uint32_t op);          /* "2F0", arena */
/* "44.0 GiB", or with Options.decimal "47.2 GB" */
const char *bytes_text(Sched *s, uint64_t bytes);
/* a name, path or parameter list; arena */
const char *escaped(Sched *s, EscapeFor to, const char *text);
const char *printable(Sched *s, const char *text);             /* for a report */
/* A name or path, for the terminal or in an emitted text; arena. */
const char *escaped(Sched *s, EscapeFor to, const char *text);
static inline const char *shown(Sched *s, const char *text) {
  return escaped(s, ESCAPE_TERMINAL, text);
}
/* Add a row; Orders.ncopy then counts it. */
uint32_t add_site(Sched *s, Orders *orders, Span at);
void add_copy(Sched *s, Orders *orders, Copy copy);
/* The row of Orders.at_f, at_b (B or I), at_w or at_r for a kind and a cell stage * nmb + mb. */
uint32_t *op_row(Sched *s, uint8_t kind, size_t cell);

#endif
