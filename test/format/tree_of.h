/* SPDX-License-Identifier: MIT
 * The tree of a text, for the tests of the formatter. */
#ifndef TREE_OF_H
#define TREE_OF_H

#include <stdio.h>
#include <stdlib.h>

#include "ast.h"
#include "diag.h"

/* Its dump, which the caller frees, or NULL if the text has errors. */
static inline char *tree_of(Arena *a, const char *text, uint32_t len) {
  Diag diag;
  char *dump = NULL;
  size_t n;
  diag_init(&diag, a, NULL);
  Ast *ast = parse(a, intern_new(a), &diag, diag_source(&diag, "", text, len));
  if (diag.errors)
    return NULL;
  FILE *out = open_memstream(&dump, &n);
  if (!out)
    abort();
  ast_dump(out, ast);
  fclose(out);
  return dump;
}

#endif
