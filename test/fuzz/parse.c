/* SPDX-License-Identifier: MIT
 * Fuzz target of lexer, parser, diagnostics and dump, from memory. Any text must be read without a
 * crash; if it has no errors, its dump must parse without errors to the same dump; if it has, the
 * messages are printed to memory. Aborts otherwise.
 *
 * Build with -fsanitize=fuzzer,address,undefined; run with -dict=pipe.dict. */
#include <stdlib.h>
#include <string.h>

#include "ast.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *bytes = malloc(size + 1);
  if (!bytes)
    abort();
  if (size)
    memcpy(bytes, data, size);
  bytes[size] = '\0';

  Text first = dump_of(bytes, size, NULL);
  if (first.bytes) {
    Text second = dump_of(first.bytes, first.len, NULL);
    if (!second.bytes || second.len != first.len ||
        memcmp(second.bytes, first.bytes, first.len) != 0)
      abort();
    free(second.bytes);
    free(first.bytes);
  } else {
    drop_messages(bytes, size);
  }
  free(bytes);
  return 0;
}
