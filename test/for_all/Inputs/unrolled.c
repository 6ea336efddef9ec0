/* SPDX-License-Identifier: MIT
 * Prints the tables of a program for every M, for one M: tables.c, whose pipe_program is `*the`. */
#undef main
#include <pipe_loop.h>
#include <stdio.h>
#include <stdlib.h>

extern const PipeLooped looped;
extern const PipeProgram *the;
const PipeProgram *the;
int print_tables(void);

int main(int argc, char **argv) {
  char why[PIPE_LOOP_TEXT];
  PipeProgram *p = pipe_unroll(&looped, argc > 1 ? atoll(argv[1]) : 0, why);
  if (!p) {
    fprintf(stderr, "%s\n", why);
    return 1;
  }
  the = p;
  int status = print_tables();
  pipe_unroll_free(p);
  return status;
}
