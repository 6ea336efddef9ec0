/* SPDX-License-Identifier: MIT
 * The canonical form of a text: its tokens and comments unchanged, the blanks between them by rule.
 * Formatting looks at tokens and brackets only, never at the grammar, so a new keyword needs no
 * change here. */
#ifndef PIPE_FORMAT_H
#define PIPE_FORMAT_H

#include "ast.h"

enum { MOST_TEXT_BYTES = 64 << 20 }; /* of a file that is read, and so of one that is written */

/* The formatted text, with a NUL after *result_len bytes; text[len] is a NUL too. Requires that the
 * lexer finds no error in it; a text that parses has none. Ensures: the same tokens and comments,
 * which is verified here, and formatting the result once more changes nothing. NULL: it would be
 * longer than MOST_TEXT_BYTES. Cost: linear, but for the sorting of columns that the author
 * aligned. */
char *format_text(Arena *a, Interner *names, const char *text, uint32_t len, uint32_t *result_len);

#endif
