/* SPDX-License-Identifier: MIT
 * Fuzz target of lexer, parser, diagnostics, dump and --fmt, from memory. Of any text:
 *   - if it has no errors, its dump parses without errors to the same dump; if it has, there are
 *   messages;
 *   - if its tokens are good, it is formatted, a second time to the same, and its tree does not
 *   change.
 * Aborts otherwise; format.c itself aborts when the tokens are not the same.
 *
 * Build with -fsanitize=fuzzer; run with -dict=pipe.dict. */
#include <stdlib.h>
#include <string.h>

#include "ast.h"
#include "format.h"
#include "lexer.h"
#include "../format/tree_of.h"

typedef struct Text {
  char *bytes;
  size_t len;
} Text;

/* The dump of the text, or, if it has errors, bytes == NULL. */
static Text dump_of(const char *bytes, size_t len, FILE *messages) {
  Arena arena = {0};
  Diag diag;
  diag_init(&diag, &arena, messages);
  uint32_t file = diag_source(&diag, "fuzz.pipe", bytes, (uint32_t)len);
  Ast *ast = parse(&arena, intern_new(&arena), &diag, file);
  Text dump = {NULL, 0};
  if (diag.errors == 0) {
    FILE *out = open_memstream(&dump.bytes, &dump.len);
    if (!out)
      abort();
    ast_dump(out, ast);
    fclose(out);
  }
  arena_free(&arena);
  return dump;
}

static void drop_messages(const char *bytes, size_t len) {
  Text messages = {NULL, 0};
  FILE *out = open_memstream(&messages.bytes, &messages.len);
  if (!out)
    abort();
  Text none = dump_of(bytes, len, out);
  fclose(out);
  if (none.bytes || messages.len == 0)
    abort();
  free(messages.bytes);
}

static void dump_again(const char *bytes, size_t size) {
  Text first = dump_of(bytes, size, NULL);
  if (!first.bytes) {
    drop_messages(bytes, size);
    return;
  }
  Text second = dump_of(first.bytes, first.len, NULL);
  if (!second.bytes || second.len != first.len || memcmp(second.bytes, first.bytes, first.len) != 0)
    abort();
  free(second.bytes);
  free(first.bytes);
}

static void format_again(const char *text, uint32_t len) {
  Arena arena = {0};
  Interner *names = intern_new(&arena);
  Diag quiet;
  Span at;
  TokenValue value;
  uint32_t n, again_n;
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
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  if (!text)
    abort();
  if (size)
    memcpy(text, data, size);
  text[size] = '\0';
  dump_again(text, size);
  format_again(text, (uint32_t)size);
  free(text);
  return 0;
}
