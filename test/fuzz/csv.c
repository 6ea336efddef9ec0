/* SPDX-License-Identifier: MIT
 * Fuzz target of the reader of PyTorch's files and of the proofs behind it: any bytes are read as a
 * CSV file, strictly or as PyTorch would, under one of the channel models; see compile_text.h. The first
 * byte chooses model and strictness.
 *
 * Build with -fsanitize=fuzzer,address,undefined. */
#include "compile_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  uint8_t choice = data[0];
  Options opt = {
      .input = "fuzz.csv",
      .check_only = (choice & 1) != 0,
      .torch_lax = (choice & 2) != 0,
      .model = {.channels = (MachineChannels)(choice >> 2 & 3), .buffer = choice >> 4 & 3}};
  compile_text(opt, data + 1, size - 1);
  return 0;
}
