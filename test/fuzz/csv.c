/* SPDX-License-Identifier: MIT
 * Fuzz target of the reader of PyTorch's files and of the proofs behind it: any bytes are read as a
 * CSV file, strictly or as PyTorch would, under one of the channel models, without a crash, a
 * sanitizer's report or an internal error. The first byte chooses model and strictness.
 *
 * Build with -fsanitize=fuzzer,address,undefined. */
#include <setjmp.h>
#include <string.h>

#include "pipec.h"

static jmp_buf out_of_memory;

static void oom(size_t wanted) {
  (void)wanted;
  longjmp(out_of_memory, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static FILE *nowhere;
  static Arena arena;
  if (!nowhere && !(nowhere = fopen("/dev/null", "w")))
    abort();
  char *text = malloc(size + 1);
  if (!text)
    abort();
  uint8_t choice = size ? data[0] : 0;
  if (size)
    memcpy(text, data + 1, --size);
  text[size] = '\0';

  arena = (Arena){.oom = oom};
  Diag diag;
  Options opt = {
      .input = "fuzz.csv",
      .text = text,
      .text_len = size,
      .emit = EMIT_NONE,
      .check_only = (choice & 1) != 0,
      .torch_lax = (choice & 2) != 0,
      .model = {.channels = (MachineChannels)(choice >> 2 & 3), .buffer = choice >> 4 & 3},
      .verify = true,
      .host_limit_bytes = (uint64_t)1 << 22,
      .dump_out = nowhere};
  Sched s = {.arena = &arena, .diag = &diag, .opt = &opt};
  diag_init(&diag, &arena, nowhere);
  if (setjmp(out_of_memory) == 0) {
    bool ok = compile_only(&s);
    if (ok != (diag.errors == 0))
      abort(); /* failed without saying why, or succeeded after an error */
    if (ok) {
      emit_report(&s, nowhere);
      if (!s.lists) {
        emit_json(&s, nowhere);
        emit_c(&s, nowhere);
        emit_csv(&s, nowhere);
      }
    }
  }
  arena_free(&arena);
  free(text);
  return 0;
}
