/* SPDX-License-Identifier: MIT
 * Text of users and files (names, paths, parameters, quoted lines) on its way into a message or an
 * emitted file. All writers of the compiler and the runtime escape such text here. Not
 * installed. */
#ifndef PIPE_ESCAPE_H
#define PIPE_ESCAPE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A character is shown if it is valid UTF-8, no control character, and does not steer the direction
 * of text. Every language keeps shown characters, except those with a meaning of their own. */
typedef enum EscapeFor {
  ESCAPE_TERMINAL, /* messages and reports: \xNN for each byte that is not shown */
  /* inside a string literal, which then has the same bytes, or inside a comment of C */
  ESCAPE_C,
  ESCAPE_JSON,     /* inside a string; U+FFFD for a byte that is not UTF-8 */
  ESCAPE_XML,      /* text or attribute; '?' for what XML has not or what is not shown */
  ESCAPE_CSV,      /* inside a quoted cell; the rest as on the terminal */
} EscapeFor;

enum { ESCAPE_ROOM = 8 }; /* longest escape of one character, with its NUL */

/* Writes the first character of text, n > 0 bytes, to out as the language needs it, and a NUL.
 * Returns how many bytes of text it took, at least 1. */
size_t escape_one(EscapeFor to, const char *text, size_t n, char out[ESCAPE_ROOM]);

/* Bytes of the UTF-8 character that text, n > 0 bytes, begins with, and its code; 0: it is none. */
size_t escape_utf8(const char *text, size_t n, uint32_t *code);

/* Writes text up to its NUL: to f, or to out, which has room bytes, cut to fit, with a NUL. */
void escape_put(FILE *f, EscapeFor to, const char *text);
void escape_text(char *out, size_t room, EscapeFor to, const char *text);

#endif
