/* SPDX-License-Identifier: MIT
 * What the fuzz targets of the compiler share: one compile from memory. It is compiled or refused without
 * a crash, a sanitizer's report or an internal error; what is compiled passes verify.c and is written out
 * in every form. No file is read (imports and profiles are refused when a text is given), and
 * host_limit_bytes keeps the programs small. Running out of memory leaves by longjmp, as an embedder would. */
#ifndef FUZZ_COMPILE_TEXT_H
#define FUZZ_COMPILE_TEXT_H

#include <setjmp.h>
#include <string.h>

#include "pipec.h"

static jmp_buf out_of_memory;

static void oom(size_t wanted) {
  (void)wanted;
  longjmp(out_of_memory, 1);
}

/* Compiles size bytes of data under opt, whose text, text_len and what limits it are filled in. Messages
 * are made as for a user. */
static void compile_text(Options opt, const uint8_t *data, size_t size) {
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
  opt.text = text;
  opt.text_len = size;
  opt.emit = EMIT_NONE;
  opt.verify = true;
  opt.host_limit_bytes = (uint64_t)1 << 22;
  opt.dump_out = nowhere;
  Sched s = {.arena = &arena, .diag = &diag, .opt = &opt};
  diag_init(&diag, &arena, nowhere);
  if (setjmp(out_of_memory) == 0) {
    bool ok = compile_only(&s);
    if (ok != (diag.errors == 0))
      abort(); /* failed without saying why, or succeeded after an error */
    if (ok) {
      emit_report(&s, nowhere);
      if (!s.lists) { /* a file with its own transfers is proved only */
        emit_json(&s, nowhere);
        emit_c(&s, nowhere);
        emit_csv(&s, nowhere);
      }
    }
  }
  arena_free(&arena);
  free(text);
}

#endif
