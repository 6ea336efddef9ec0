/* SPDX-License-Identifier: MIT
 * Escapes text of users and files (names, paths, parameters, quoted lines) for messages and emitted
 * files. All writers of the compiler and the runtime use it. Not installed. */
#ifndef PIPE_ESCAPE_H
#define PIPE_ESCAPE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A character is shown if it is valid UTF-8, is no control character and does not change the
 * direction of text. Every target keeps shown characters, except those with a meaning of their
 * own. */
typedef enum EscapeFor {
  ESCAPE_TERMINAL, /* messages and reports: \xNN for each byte that is not shown */
  /* inside a string literal of C, which keeps its bytes, or inside a comment of C */
  ESCAPE_C,
  ESCAPE_JSON,     /* inside a string; U+FFFD for a byte that is not UTF-8 */
  ESCAPE_XML,      /* text or attribute; '?' for a character that XML lacks or that is not shown */
  ESCAPE_CSV,      /* inside a quoted cell; otherwise as ESCAPE_TERMINAL */
} EscapeFor;

enum { ESCAPE_ROOM = 8 }; /* longest escape of a character, with its NUL */

/* Writes the first character of text (n > 0 bytes), escaped, with a NUL. Returns the bytes of text
 * consumed, at least 1. */
size_t escape_one(EscapeFor to, const char *text, size_t n, char out[ESCAPE_ROOM]);

/* Decodes the UTF-8 character at the start of text (n > 0 bytes): returns its bytes and sets *code;
 * 0: it is no such character. */
size_t escape_utf8(const char *text, size_t n, uint32_t *code);

/* Write text up to its NUL, escaped: escape_put to f; escape_text to out[room], cut to fit, with a
 * NUL. */
void escape_put(FILE *f, EscapeFor to, const char *text);
void escape_text(char *out, size_t room, EscapeFor to, const char *text);

#endif
