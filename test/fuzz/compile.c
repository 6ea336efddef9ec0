/* SPDX-License-Identifier: MIT
 * Fuzz target of the whole compiler, from memory: any text is compiled or refused without a crash,
 * a sanitizer's report, or an internal error; what is compiled passes verify.c and is written out.
 * No file is read (imports and profiles are refused when a text is given), and host_limit_bytes
 * keeps the programs small. Running out of memory leaves by longjmp, as an embedder would.
 *
 * Build with -fsanitize=fuzzer,address,undefined; run with -dict=pipe.dict on stdlib/ as corpus. */
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
  if (size)
    memcpy(text, data, size);
  text[size] = '\0';

  arena = (Arena){.oom = oom};
  Diag diag;
  Options opt = {.input = "fuzz.pipe",
                 .text = text,
                 .text_len = size,
                 .emit = EMIT_NONE,
                 .verify = true,
                 .host_limit_bytes = (uint64_t)1 << 22,
                 .dump_out = nowhere};
  Sched s = {.arena = &arena, .diag = &diag, .opt = &opt};
  diag_init(&diag, &arena, nowhere); /* messages are made as for a user */
  if (setjmp(out_of_memory) == 0) {
    bool ok = compile_only(&s);
    if (ok != (diag.errors == 0))
      abort(); /* failed without saying why, or succeeded after an error */
    if (ok) {
      emit_json(&s, nowhere);
      emit_c(&s, nowhere);
      emit_csv(&s, nowhere);
      emit_report(&s, nowhere);
    }
  }
  arena_free(&arena);
  free(text);
  return 0;
}
