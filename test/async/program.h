/* SPDX-License-Identifier: MIT
 * A schedule compiled in the process of a test. */
#ifndef ASYNC_PROGRAM_H
#define ASYNC_PROGRAM_H

#include <string.h>

#include "driver.h"

typedef struct Program {
  Arena arena;
  Diag diag;
  Options opt;
  Define define[8];
  Sched s;
} Program;

/* Schedule `name` of the library in dir, or `text` unless that is NULL; profile: or NULL; lowering:
 * of Options, 0. False: it has said why. To be freed either way. */
static inline bool program_open_as(Program *g, const char *dir, const char *name, const char *text,
                                   const Define *define, uint32_t ndefine, const char *profile,
                                   int lowering) {
  memset(g, 0, sizeof *g);
  if (ndefine)
    memcpy(g->define, define, ndefine * sizeof *define);
  g->opt = (Options){.out = stdout,
                     .emit = EMIT_NONE,
                     .verify = true,
                     .stdlib = dir,
                     .profile = profile,
                     .define = g->define,
                     .ndefine = ndefine,
                     .lowering = lowering};
  g->s.arena = &g->arena, g->s.diag = &g->diag, g->s.opt = &g->opt;
  diag_init(&g->diag, &g->arena, stderr);
  g->opt.input = arena_printf(&g->arena, "%s/%s.pipe", dir, name);
  if (text)
    g->opt.text = text, g->opt.text_len = strlen(text);
  return compile_only(&g->s);
}

static inline bool program_open(Program *g, const char *dir, const char *name, const char *text,
                                const Define *define, uint32_t ndefine, const char *profile) {
  return program_open_as(g, dir, name, text, define, ndefine, profile, 0);
}

static inline void program_close(Program *g) { arena_free(&g->arena); }

#endif
