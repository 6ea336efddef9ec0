/* SPDX-License-Identifier: MIT
 * hashes PROGRAM.so LO HI [M ...]: of the program for every M in it, of each M from LO to HI and of
 * those given, "M params hash"; or "M -" and why there is none; or "M wrong" and what the validator
 * says of it, or that its ranks stall. */
#include <dlfcn.h>
#include <inttypes.h>
#include <pipe_loop.h>
#include <pipe_sim.h>
#include <stdio.h>
#include <stdlib.h>

#include "validate.h"

static void one(const PipeLooped *l, int64_t m) {
  char why[PIPE_LOOP_TEXT];
  Arena arena = {0};
  uint64_t **end;
  PipeProgram *p = pipe_unroll(l, m, why);
  if (!p)
    printf("%" PRId64 " - %s\n", m, why);
  else if (pipe_validate(p, why, sizeof why))
    printf("%" PRId64 " wrong: %s\n", m, why);
  else if (!pipe_predict(&arena, p, &end, NULL))
    printf("%" PRId64 " wrong: it does not complete\n", m);
  else
    printf("%" PRId64 " %s %016" PRIx64 "\n", m, p->params, p->hash);
  arena_free(&arena);
  pipe_unroll_free(p);
}

int main(int argc, char **argv) {
  void *so = argc > 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
  const PipeLooped *l = so ? dlsym(so, "looped") : NULL;
  if (!l)
    return fprintf(stderr, "%s\n", so ? "no table" : dlerror()), 1;
  for (int64_t m = atoll(argv[2]); m <= atoll(argv[3]); m++)
    one(l, m);
  for (int i = 4; i < argc; i++)
    one(l, atoll(argv[i]));
  return 0;
}
