/* SPDX-License-Identifier: MIT
 * A buffered writer of numbers and text for the emitters: no printf in the inner loops. */
#ifndef PIPE_TEXT_H
#define PIPE_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "escape.h"

typedef struct Text {
  FILE *f;
  size_t n;
  char buf[1 << 16];
} Text;

enum { TEXT_SLACK = 512 }; /* bytes that may follow a text_room unchecked */

static inline void text_flush(Text *t) {
  fwrite(t->buf, 1, t->n, t->f);
  t->n = 0;
}

static inline void text_room(Text *t) {
  if (t->n > sizeof t->buf - TEXT_SLACK)
    text_flush(t);
}

static inline void text_char(Text *t, char c) { t->buf[t->n++] = c; }

/* For literals and names shorter than TEXT_SLACK / 4 bytes. */
static inline void text_lit(Text *t, const char *s) {
  while (*s)
    t->buf[t->n++] = *s++;
}

static inline void text_u64(Text *t, uint64_t v) {
  char d[20];
  int n = 0;
  do
    d[n++] = (char)('0' + v % 10);
  while (v /= 10);
  while (n > 0)
    t->buf[t->n++] = d[--n];
}

/* Writes a microbatch, or with slices "3.1": slice 1 of microbatch 3. */
static inline void text_unit(Text *t, uint32_t unit, uint32_t slices) {
  text_u64(t, unit / slices);
  if (slices > 1) {
    text_char(t, '.');
    text_u64(t, unit % slices);
  }
}

/* Writes the unit after the letter of an op; an update is of a whole microbatch. */
static inline void text_op_unit(Text *t, uint8_t op, uint32_t unit, uint32_t slices) {
  if (op == PIPE_U)
    text_u64(t, unit / slices);
  else
    text_unit(t, unit, slices);
}

/* For text of any length. */
static inline void text_string(Text *t, const char *s) {
  for (; *s; s++) {
    text_room(t);
    text_char(t, *s);
  }
}

/* "static const TYPE name[] = {" */
static inline void text_table(Text *t, const char *type, const char *name) {
  text_string(t, "static const ");
  text_string(t, type);
  text_string(t, " ");
  text_string(t, name);
  text_string(t, "[] = {");
}

/* Writes a string in double quotes, escaped for its language. */
static inline void text_quoted(Text *t, EscapeFor to, const char *s) {
  text_char(t, '"');
  for (size_t n = strlen(s), took; n > 0; n -= took, s += took) {
    text_room(t);
    took = escape_one(to, s, n, t->buf + t->n);
    t->n += strlen(t->buf + t->n);
  }
  text_char(t, '"');
}

#endif
