/* SPDX-License-Identifier: MIT
 * Compiles the schedule that its first word names, with the other words as options, and asks the
 * runtime for the hash of what came out. */
#include <stdio.h>

#include "pipe_compile.h"
#include "pipe_rows.h"

int main(int argc, char **argv) {
  PipeCompiled *c;
  if (argc < 2)
    return 2;
  int status = pipe_compile(&c, argv[1], NULL, argc - 2, (const char *const *)argv + 2);
  const PipeProgram *p = pipe_compiled_program(c);
  fputs(pipe_compiled_messages(c), stderr);
  if (p)
    printf("%s %s: %s\n", p->name, p->params,
           p->hash == pipe_program_hash(p) ? "as proved" : "another hash");
  pipe_compiled_free(c);
  return status;
}
