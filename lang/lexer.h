/* SPDX-License-Identifier: MIT
 * Turns bytes into tokens. The lexer reports malformed bytes, numbers and strings itself and
 * continues. After a bad byte or an unterminated string it returns TOK_YYerror, on which the parser
 * recovers without a second message. It returns every other malformed token as if it were
 * well-formed. */
#ifndef PIPE_LEXER_H
#define PIPE_LEXER_H

#include "ast.h"

typedef struct Lexer {
  Arena *arena;
  Interner *names;
  Diag *diag;
  uint32_t file;
  const char *text, *text_end; /* *text_end is the NUL sentinel */
  const char *cur;             /* next byte to read */
} Lexer;

/* The value of a token, besides its kind and span. */
typedef union TokenValue {
  Name name;                                     /* names; send, edge */
  const char *text;                              /* strings, unescaped */
  /* `unit` as in Expr: 0 plain, 1 bytes, 2 time; or UNIT_REAL: `real`, with a fraction and no
   * unit. */
  struct { int64_t value; double real; uint8_t unit; } number;
} TokenValue;
enum { UNIT_REAL = 3 };

bool is_unit(const char *text, size_t n);

/* Reads one token; returns 0 (TOK_YYEOF) at the end, also when called again. */
int lex(Lexer *lx, TokenValue *value, Span *at);

#endif
