/* SPDX-License-Identifier: MIT
 * hashes PROGRAM.so LO HI [M ...]: of each value from LO to HI and of those given "M params hash",
 * or "M -" and why there is none, of the looped program in it. */
#include <dlfcn.h>
#include <inttypes.h>
#include <pipe_loop.h>
#include <stdio.h>
#include <stdlib.h>

static void one(const PipeLooped *l, int64_t m) {
  char why[PIPE_LOOP_TEXT];
  PipeProgram *p = pipe_unroll(l, m, why);
  if (p)
    printf("%" PRId64 " %s %016" PRIx64 "\n", m, p->params, p->hash);
  else
    printf("%" PRId64 " - %s\n", m, why);
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
