/* SPDX-License-Identifier: MIT
 * Fuzz target of --fmt, from memory: any text in which the lexer finds no error is formatted, and that
 * once more to the same; of a text that parses, the tree stays the same. Aborts otherwise; format.c itself
 * aborts when the tokens are not the same.
 *
 * Build with -fsanitize=fuzzer,address,undefined; run with -dict=pipe.dict. */
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "lexer.h"
#include "../format/tree_of.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Arena arena = {0};
  Interner *names = intern_new(&arena);
  Diag quiet;
  Span at;
  TokenValue value;
  char *text = arena_strndup(&arena, (const char *)data, size);
  uint32_t len = (uint32_t)size, n, again_n;
  diag_init(&quiet, &arena, NULL);
  Lexer lx = {&arena, names, &quiet, 0, text, text + len, text};
  while (lex(&lx, &value, &at) != 0)
    continue;
  if (quiet.errors == 0) {
    char *result = format_text(&arena, names, text, len, &n);
    char *again = format_text(&arena, names, result, n, &again_n);
    char *was = tree_of(&arena, text, len), *is = tree_of(&arena, result, n);
    if (n != again_n || memcmp(result, again, n) != 0 || !was != !is ||
        (was && strcmp(was, is) != 0))
      abort();
    free(was);
    free(is);
  }
  arena_free(&arena);
  return 0;
}
