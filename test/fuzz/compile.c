/* SPDX-License-Identifier: MIT
 * Fuzz target of the whole compiler: any text is a .pipe file; see compile_text.h.
 *
 * Build with -fsanitize=fuzzer,address,undefined; run with -dict=pipe.dict on stdlib/ as corpus. */
#include "compile_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  compile_text((Options){.input = "fuzz.pipe"}, data, size);
  return 0;
}
