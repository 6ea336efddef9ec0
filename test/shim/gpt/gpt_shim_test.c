/* SPDX-License-Identifier: MIT
 * The GPT for CUDA on the device of the shim:
 *
 *   gpt_shim_test check ...   gpt_check_cuda with these options
 *   gpt_shim_test train ...   gpt_cuda with these options, in one process
 *   gpt_shim_test profile ... gpt_profile_cuda with these options
 *   gpt_shim_test bench ...   gpt_bench_cuda_P
 *
 * Races are not looked for: what kernels read and write is not told. */
#include <stdlib.h>
#include <string.h>

#include "../shim.h"

int gpt_check(int argc, char **argv);
int gpt_train(int argc, char **argv);
int gpt_profile(int argc, char **argv);
int gpt_bench(int argc, char **argv);

int main(int argc, char **argv) {
  if (argc < 2)
    return 2;
  const char *seed = getenv("PIPE_SEED");
  shim_begin(seed ? strtoull(seed, NULL, 10) : 1, 1, false);
  shim_enter(0);
  shim_unwatched();
  int (*run)(int, char **) = strcmp(argv[1], "check") == 0     ? gpt_check
                             : strcmp(argv[1], "profile") == 0 ? gpt_profile
                             : strcmp(argv[1], "bench") == 0   ? gpt_bench
                                                               : gpt_train;
  int bad = run(argc - 1, argv + 1);
  shim_leave();
  if (shim_errors() || shim_leaks()) {
    fprintf(stderr, "%s; %llu allocations are not given back\n", shim_error_text(),
            (unsigned long long)shim_leaks());
    bad = 1;
  }
  shim_end();
  return bad;
}
