/* SPDX-License-Identifier: MIT
 * Fuzz target of the reader of the JSON form and of the proofs behind it: any bytes are read as a program that
 * --emit=json has written; see compile_text.h.
 *
 * Build with -fsanitize=fuzzer,address,undefined. */
#include "compile_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  compile_text((Options){.input = "fuzz.json", .check_only = true}, data, size);
  return 0;
}
