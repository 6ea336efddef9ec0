/* SPDX-License-Identifier: MIT
 * Writes forms without printf, because emitted programs are mostly numbers. Cost: linear in the
 * output. */
#include <string.h>

#include "guard.h"
#include "pipe_instr.h"
#include "text.h"

enum { SLACK = 1024 }; /* bytes that a form may write without a call of make_room */

struct Text {
  FILE *file;
  EscapeFor language;
  char plain[256]; /* by character of a form: what it writes; 0: it stands for something else */
  size_t n;
  char buf[1 << 16];
};

Text *text_open(Arena *arena, FILE *file, EscapeFor language) {
  Text *text = arena_alloc(arena, sizeof *text);
  text->file = file;
  text->language = language;
  text->n = 0;
  for (int c = 0; c < 256; c++)
    text->plain[c] = strchr("#?~@$%", c) ? 0 : (char)c;
  text->plain['\''] = '"';
  return text;
}

void text_close(Text *text) {
  fwrite(text->buf, 1, text->n, text->file);
  text->n = 0;
}

/* Makes room for SLACK bytes from `to` on, which is in Text.buf. Returns where they begin. */
static char *make_room(Text *text, char *to) {
  text->n = (size_t)(to - text->buf);
  if (text->n > sizeof text->buf - SLACK)
    text_close(text);
  return text->buf + text->n;
}

static char *as_it_is(Text *text, char *to, const char *word) {
  const size_t n = strlen(word);
  to = make_room(text, to);
  if (n > SLACK / 2) {
    text_close(text);
    fwrite(word, 1, n, text->file);
    return text->buf;
  }
  memcpy(to, word, n);
  return to + n;
}

static char *quoted(Text *text, char *to, const char *word) {
  *to++ = '"';
  for (size_t n = strlen(word), took; n > 0; n -= took, word += took) {
    to = make_room(text, to);
    took = escape_one(text->language, word, n, to);
    to += strlen(to);
  }
  *to++ = '"';
  return to;
}

static char *number(char *to, uint64_t v) {
  char digit[20];
  int n = 0;
  for (; v >= 10; v /= 10)
    digit[n++] = (char)('0' + v % 10);
  *to++ = (char)('0' + v); /* most numbers have one digit */
  while (n > 0)
    *to++ = digit[--n];
  return to;
}

static char *signed_number(char *to, uint64_t v) {
  if ((int64_t)v >= 0)
    return number(to, v);
  *to++ = '-';
  return number(to, -v);
}

static char *hexadecimal(char *to, uint64_t v) {
  for (int shift = 60; shift >= 0; shift -= 4)
    *to++ = "0123456789abcdef"[v >> shift & 15];
  return to;
}

/* Writes that a number is PIPE_NONE or PIPE_MANY. */
static char *no_number(Text *text, char *to, uint64_t v) {
  if (text->language == ESCAPE_C)
    return as_it_is(text, to, v == PIPE_NONE ? "N" : "PIPE_MANY");
  while (*--to != ',') /* takes back ,"name": */
    ;
  return to;
}

void text_member(Text *text, const char *name, int64_t v) {
  char *to = make_room(text, text->buf + text->n);
  *to++ = ',';
  *to++ = '"';
  while (*name)
    *to++ = *name++;
  *to++ = '"';
  *to++ = ':';
  text->n = (size_t)(signed_number(to, (uint64_t)v) - text->buf);
}

void text_form(Text *text, const char *form, const uint64_t *value, size_t n) {
  const uint64_t *const end = value + n;
  char *to = make_room(text, text->buf + text->n);
  for (;;) {
    for (char c; (c = text->plain[(unsigned char)*form]); form++)
      *to++ = c;
    if (!*form)
      break;
    BUG_IF(value == end);
    const uint64_t v = *value++;
    switch (*form++) {
    case '#': to = number(to, v); break;
    case '?': to = v < PIPE_MANY || v > PIPE_NONE ? number(to, v) : no_number(text, to, v); break;
    case '~': to = signed_number(to, v); break;
    case '@': to = hexadecimal(to, v); break;
    case '$': to = quoted(text, to, (const char *)(uintptr_t)v); break;
    default: to = as_it_is(text, to, (const char *)(uintptr_t)v);
    }
  }
  BUG_IF(value != end);
  text->n = (size_t)(to - text->buf);
}
