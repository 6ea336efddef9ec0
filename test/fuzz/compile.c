/* SPDX-License-Identifier: MIT
 * Fuzz target of the whole compiler. An input is a line of letters, each an option (set_option),
 * the text that is compiled, and behind a form feed, if there is one, a profile. The compiler
 * refuses it with a message or compiles it, and writes what the letters ask for. A crash, a
 * sanitizer's report, a failed check of verify.c, an error without a message and a message without
 * an error abort.
 *
 * Bounds, so that an input costs milliseconds: STEPS for everything that is evaluated, HOST_BYTES
 * for the program. The text names no file: imports and profiles in it are refused. Running out of
 * memory ends the compile, as in a library.
 *
 * Build with -fsanitize=fuzzer; run with -dict=pipe.dict on the inputs of seeds.py. */
#define _GNU_SOURCE /* memfd_create */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"
#include "import.h"

enum { STEPS = 300 * 1000, HOST_BYTES = 1 << 21 };

/* THE letters; seeds.py uses them. Others mean nothing. */
static void set_option(Options *o, char letter) {
  static const char *twice[] = {"fuzz.pipe", "fuzz.pipe"};
  switch (letter) {
  case 'v': o->input = "fuzz.csv"; break;
  case 'x': o->torch_lax = true; break;
  case 's': o->emit = EMIT_SVG, o->arrows = 1; break;
  case 'h': o->emit = EMIT_HTML; break;
  case 't': o->emit = EMIT_TRACE; break;
  case 'f': o->emit = EMIT_JSON; break;
  case 'c': o->emit = EMIT_CSV; break;
  case 'm': o->emit = EMIT_COMMS_CSV, o->torch_unshard = 3, o->torch_waits = true; break;
  case 'k': o->check_only = true; break;
  case 'K': o->critical_path = o->show = true; break;
  case 'd': o->dump_after = "all"; break;
  case 'z': o->counterexample = "/dev/null"; break;
  case '=': o->compare = twice, o->ncompare = 2; break;
  case 'n': o->no_contention = true; break;
  case 'l': o->memory_limit_bytes = 4096; break;
  case 'b': o->model.buffer = 1; break;
  case 'B': o->model.buffer = 1024, o->model.in_bytes = true; break;
  case 'E': o->model.channels = CHANNELS_EDGE; break;
  case 'P': o->model.channels = CHANNELS_PAIR; break;
  case 'T': o->model.channels = CHANNELS_TAGGED; break;
  default:
    if (letter >= '1' && letter <= '5')
      o->lowering = (letter - '0') % (PIPE_NLOWERINGS + 1);
  }
}

/* Compiles as main.c does. What it returns agrees with its messages. */
static void run(void *of) {
  Sched *s = of;
  Options *o = s->opt;
  bool ok = o->ncompare && o->emit != EMIT_HTML ? compare(s) : compile(s);
  if (!s->work->spent && ok != (s->diag->errors == 0))
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static FILE *nowhere;
  static int profile; /* a file in memory */
  static char profile_path[32];
  if (!nowhere) {
    nowhere = fopen("/dev/null", "w");
    profile = memfd_create("profile", 0);
    if (!nowhere || profile < 0)
      abort();
    snprintf(profile_path, sizeof profile_path, "/proc/self/fd/%d", profile);
  }
  const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
  if (!line)
    return 0;
  const uint8_t *text = line + 1, *end = data + size,
                *beside = memchr(text, '\f', (size_t)(end - text));
  size_t len = (size_t)((beside ? beside : end) - text);
  char *copy = calloc(1, len + 1);
  if (!copy)
    abort();
  memcpy(copy, text, len);
  Work work = {.left = STEPS};
  Options opt = {.input = "fuzz.pipe",
                 .text = copy,
                 .text_len = len,
                 .closed = true,
                 .output = "/dev/null",
                 .out = nowhere,
                 .verify = true,
                 .host_limit_bytes = HOST_BYTES,
                 .work = &work};
  for (const uint8_t *at = data; at < line; at++)
    set_option(&opt, (char)*at);
  if (beside) {
    if (ftruncate(profile, 0) || pwrite(profile, beside + 1, (size_t)(end - beside) - 1, 0) < 0)
      abort();
    opt.profile = profile_path;
  }
  Arena arena = {0};
  Diag diag;
  Sched s = {.arena = &arena, .diag = &diag, .opt = &opt, .work = &work};
  diag_init(&diag, &arena, nowhere);
  Guard guard;
  if (guard_run(&guard, run, &s) == GUARD_BUG) {
    fprintf(stderr, "internal error: %s\n", guard.why);
    abort();
  }
  guard_release(&guard);
  free(copy);
  return 0;
}
