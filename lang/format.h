/* SPDX-License-Identifier: MIT
 * The canonical form of a text: its tokens and comments unchanged, the blanks between them by rule.
 * Formatting looks at tokens and brackets only, never at the grammar, so a new keyword needs no
 * change here. */
#ifndef PIPE_FORMAT_H
#define PIPE_FORMAT_H

#include "ast.h"

enum { MOST_TEXT_BYTES = 64 << 20 }; /* most bytes of a text that is read or written */

/* Returns the formatted text, with a NUL after *result_len bytes; text[len] must be a NUL too.
 * Requires a text without lexical errors, for example one that parses. Ensures the same tokens and
 * comments (verified here) and that formatting the result again changes nothing. NULL: the result
 * would exceed MOST_TEXT_BYTES. Cost: linear, except for sorting the columns that the author
 * aligned. */
char *format_text(Arena *a, Interner *names, const char *text, uint32_t len, uint32_t *result_len);

#endif
