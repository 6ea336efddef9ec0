/* SPDX-License-Identifier: MIT
 * Which kernels OpenBLAS computes with. It chooses them by the model of the processor when it is
 * loaded, and takes those for SSE3 where it does not know the model: Debian 12's OpenBLAS 0.3.21
 * then trains at a third of the speed. The environment says otherwise only before the library is
 * loaded, so the program starts itself again. */
#define _DEFAULT_SOURCE /* setenv */
#include "model.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char *openblas_get_corename(void) __attribute__((weak)); /* absent from other libraries */

/* The kernels for what this processor can do; NULL: leave it to the library. */
static const char *fitting(void) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512cd"))
    return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return "Haswell";
#endif
  return NULL;
}

const char *gpt_kernels(void) {
  return openblas_get_corename ? openblas_get_corename() : "unknown";
}

void gpt_choose_kernels(char **argv) {
  static const char *const wide[] = {"Haswell", "Zen", "SkylakeX", "Cooperlake", "SapphireRapids"};
  const char *better = fitting();
  if (!openblas_get_corename || getenv("OPENBLAS_CORETYPE") || !better)
    return;
  for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
    if (!strcmp(gpt_kernels(), wide[i]))
      return;
  if (!setenv("OPENBLAS_CORETYPE", better, 1))
    execv("/proc/self/exe",
          argv); /* if it fails, training goes on with the kernels that it has, and says which */
}
