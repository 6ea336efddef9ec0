/* SPDX-License-Identifier: MIT
 * The door of base/: files, text of messages, groups of rows. */
#ifndef PIPEC_BASE_H
#define PIPEC_BASE_H

#include "pipec.h"

/* True if the output is a picture; then a program over the memory limit is drawn, too. */
bool draws(const Options *o);
/* ---- files.c ---- */
/* The last part of a path: a pointer into it. */
const char *file_name(const char *path);
/* The file of the standard library that a missing path nearly names, or NULL. */
const char *hint_file(Sched *s, const char *path);
/* Reads a whole file into the arena. at: the place in the text that names it. NULL: reported. */
char *file_read(Sched *s, const char *path, Span at, uint32_t *len);
/* The same of data, which may be larger than a text. */
char *file_read_data(Sched *s, const char *path, Span at, uint32_t *len);
/* The text that is compiled: opt->text, or the file opt->input. NULL: reported. */
const char *input_read(Sched *s, uint32_t *len);
/* The names of the .pipe files of the standard library; *n of them, in no order. */
const char *const *library_files(Sched *s, uint32_t *n);
/* The file that import "path" of file `from` means, or NULL. */
const char *file_find(Sched *s, const char *path, const char *from);
/* An output: a temporary file beside `path`, which file_close renames if nothing failed; NULL path:
 * standard output. file_close reports errors; it then returns false and leaves no file. */
typedef struct OutFile {
  FILE *f;
  const char *shown, *path; /* as the user wrote it; symbolic links resolved */
  char *tmp;
} OutFile;
bool file_open(Sched *s, OutFile *o, const char *path);
bool file_close(Sched *s, OutFile *o, bool ok);
/* The same as file_open, for a file that was read: it keeps its permissions. */
bool file_replace(Sched *s, OutFile *o, const char *path);
void files_catch_signals(void); /* an interrupted process leaves no temporary file */
void files_remove(void);        /* those that there are now, of a compile that does not go on */
/* ---- text.c: texts in the arena ---- */
const char *copy_text(Sched *s, const Copy *c); /* "2OFF3" */
/* True for the model that check_deadlock and check_match prove. */
bool is_default_model(const ChannelModel *m);
const char *time_text(Sched *s, uint64_t t);   /* "1.234 ms", or the number of units */
/* The number of letters to change, add, drop or swap with the next to turn a into b; a large number
 * for names of more than 40 letters. */
unsigned name_distance(const char *a, const char *b);
/* The name among nth(0), nth(1), ... up to NULL that `name` may mean: at most a third of its
 * letters are wrong, or it contains `name`. NULL: none. */
const char *name_meant(const char *name, const char *(*nth)(int i));
/* The first sentence of the first paragraph, on one line of about 100 bytes. */
const char *first_sentence(Sched *s, const char *text);
#define OP_TEXT PIPE_OP_TEXT
const char *op_text(Sched *s, uint32_t op);          /* "2F0" */
typedef enum QuantityOf { OF_BYTES, OF_TIME, OF_FLOPS } QuantityOf;
/* "40GiB", "1.5ms", "312T", "8": rounded down to whole bytes, ns or FLOP/s. False: it is no such
 * text. */
bool read_quantity(const char *text, QuantityOf of, uint64_t *value);
/* "44.0 GiB", or with Options.decimal "47.2 GB" */
const char *bytes_text(Sched *s, uint64_t bytes);
/* A name, path or parameter list, escaped for the terminal or an emitted text. */
const char *escaped(Sched *s, EscapeFor to, const char *text);
const char *printable(Sched *s, const char *text);             /* for a report */
static inline const char *shown(Sched *s, const char *text) {
  return escaped(s, ESCAPE_TERMINAL, text);
}
/* ---- group.c ---- */
/* Rows 0 .. n - 1 by their key, below nkey; those of key k, in order, from (*first)[k] on. Rows of
 * key NONE are left out. In the arena. */
uint32_t *group_by(Arena *a, const uint32_t *key, uint32_t n, uint32_t nkey, uint32_t **first);
/* ---- text.c ---- */
/* Append a row; Orders.nsite or Orders.ncopy then counts it. */
uint32_t add_site(Sched *s, Orders *orders, Span at);
void add_copy(Sched *s, Orders *orders, Copy copy);
/* The entry of Orders.at_f, at_b (B or I), at_w or at_r for a kind and a cell stage * nmb + mb. */
uint32_t *op_row(Sched *s, uint8_t kind, size_t cell);

#endif
