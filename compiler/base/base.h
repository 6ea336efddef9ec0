/* SPDX-License-Identifier: MIT
 * The door of base/: files, texts of messages, groups of rows. */
#ifndef PIPEC_BASE_H
#define PIPEC_BASE_H

#include "pipec.h"

/* Is the output a picture? If so, a program over the memory limit is still drawn. */
bool draws(const Options *o);
/* ---- files.c ---- */
/* The last part of a path; a pointer into the path. */
const char *file_name(const char *path);
/* The file of the standard library whose name is nearly that of a missing path, or NULL. */
const char *hint_file(Sched *s, const char *path);
/* Reads a whole file of text into the arena. at: the place that names the file. NULL: reported. */
char *file_read(Sched *s, const char *path, Span at, uint32_t *len);
/* Like file_read, for data files, which may be larger than texts. */
char *file_read_data(Sched *s, const char *path, Span at, uint32_t *len);
/* The text to compile: opt->text, or the file opt->input. NULL: reported. */
const char *input_read(Sched *s, uint32_t *len);
/* The names of the .pipe files of the standard library, *n of them, unsorted. */
const char *const *library_files(Sched *s, uint32_t *n);
/* The file that import "path" of file `from` means, or NULL. */
const char *file_find(Sched *s, const char *path, const char *from);
/* An output file. file_open creates a temporary file beside `path`; NULL path: standard output.
 * With ok, file_close renames the temporary file to `path`. Without ok, or if a write fails,
 * file_close removes it. False: !ok, or a write failed, which is reported. */
typedef struct OutFile {
  FILE *f;
  const char *shown, *path; /* the path as the user wrote it; with symbolic links resolved */
  char *tmp;
} OutFile;
bool file_open(Sched *s, OutFile *o, const char *path);
bool file_close(Sched *s, OutFile *o, bool ok);
/* Like file_open, but replaces a file that was read, and keeps its permissions. */
bool file_replace(Sched *s, OutFile *o, const char *path);
void files_catch_signals(void); /* makes an interrupted process remove its temporary files */
void files_remove(void);        /* removes the temporary files of a compile that failed */
/* ---- text.c: texts in the arena ---- */
const char *copy_text(Sched *s, const Copy *c); /* "2OFF3" */
/* Is it the model that check_deadlock and check_match prove? */
bool is_default_model(const ChannelModel *m);
const char *time_text(Sched *s, uint64_t t);   /* "1.234 ms", or the number of units */
/* The name among nth(0), nth(1), ... up to NULL that `name` may mean: it contains `name`, or at
 * most a third of its letters differ. NULL: none. */
const char *name_meant(const char *name, const char *(*nth)(int i));
/* The first sentence of the first paragraph of `text`, on one line, cut at about 100 bytes. */
const char *first_sentence(Sched *s, const char *text);
const char *op_text(Sched *s, uint32_t op);          /* "2F0" */
typedef enum QuantityOf { OF_BYTES, OF_TIME, OF_FLOPS } QuantityOf;
/* Reads a text such as "40GiB", "1.5ms", "312T" or "8", rounded down to whole bytes, ns or FLOP/s.
 * False: the text is no quantity. */
bool read_quantity(const char *text, QuantityOf of, uint64_t *value);
/* "44.0 GiB", or with Options.decimal "47.2 GB" */
const char *bytes_text(Sched *s, uint64_t bytes);
/* A name, path or parameter list, escaped for the terminal or for an emitted text. */
const char *escaped(Sched *s, EscapeFor to, const char *text);
const char *printable(Sched *s, const char *text);             /* for a report */
static inline const char *shown(Sched *s, const char *text) {
  return escaped(s, ESCAPE_TERMINAL, text);
}
/* ---- group.c ---- */
/* Groups rows 0 .. n - 1 by their key, which is below nkey or NONE (left out). Returns the rows, in
 * the arena; the rows of key k, ascending, start at (*first)[k]. */
uint32_t *group_by(Arena *a, const uint32_t *key, uint32_t n, uint32_t nkey, uint32_t **first);
/* ---- text.c ---- */
/* Append a row, and count it in Orders.nsite or Orders.ncopy. */
uint32_t add_site(Sched *s, Orders *orders, Span at);
void add_copy(Sched *s, Orders *orders, Copy copy);
/* The entry of Orders.at_f, at_b (B and I), at_w or at_r for a kind and a cell stage * nmb + mb. */
uint32_t *op_row(Sched *s, uint8_t kind, size_t cell);

#endif
