/* SPDX-License-Identifier: MIT
 * What a proof for every M says is held against the text (compiler/forall/all_m_trial.c): here
 * nothing has been proved, it is only said, and the first value that is wrong is found. */
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "lists_of_m.h"

static void oom(size_t wanted) {
  fprintf(stderr, "out of memory (wanted %zu bytes)\n", wanted);
  exit(2);
}

static void held(const char *name, const char *text, uint64_t multiple, uint64_t from) {
  Arena arena = {.oom = oom};
  Diag diag;
  Options opt = {.input = "trial.pipe",
                 .text = text,
                 .text_len = strlen(text),
                 .emit = EMIT_NONE,
                 .dump_out = stdout};
  Sched s = {.arena = &arena, .diag = &diag, .opt = &opt};
  diag_init(&diag, &arena, stdout);
  if (!compile_only(&s))
    exit(1);
  s.all_m.proved = true, s.all_m.multiple = multiple, s.all_m.from = from;
  try_proved(&s, s.parsed->def->params);
  printf("%s: %s\n", name, s.all_m.proved ? "proved" : s.all_m.refuted ? s.all_m.text : "neither");
  arena_free(&arena);
}

#define TEXT(requires, body) \
  "schedule s(M = 8) " requires "{\n" \
                                "  ranks 2\n" \
                                "  pipe net stages 2 mbs M place s -> s\n" \
                                "  order r { " body " U }\n" \
                                "}\n"

int main(void) {
  held("right", TEXT("", "do m in 0..M { F(m) B(m) }"), 1, 0);
  held("from one value on", TEXT("", "do m in 0..M { F(m) B(m == 40 ? 0 : m) }"), 1, 0);
  held("at one value", TEXT("", "do m in 0..M { F(m) B(M == 93 && m == 3 ? 0 : m) }"), 1, 0);
  held("far", TEXT("", "do m in 0..M { F(m) B(m == 1000 ? 0 : m) }"), 1, 0);
  held("of multiples", TEXT("requires M % 4 == 0 ", "do m in 0..M { F(m) B(m == 40 ? 0 : m) }"), 4,
       0);
  held("that is not required",
       TEXT("requires M != 93 ", "do m in 0..M { F(m) B(M == 93 && m == 3 ? 0 : m) }"), 1, 0);
  held("the first, which has been compiled",
       TEXT("", "do m in 0..M { F(m) B(M == 93 && m == 3 ? 0 : m) }"), 1, 93);
  held("where loops end", TEXT("", "do m in 0..M { F(m) B(m) do 200 { } }"), 1, 0);
  return 0;
}
