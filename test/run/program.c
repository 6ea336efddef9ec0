/* SPDX-License-Identifier: MIT
 * See program.h. */
#include "program.h"

#include <string.h>

#include "driver.h"

bool program_open_as(Program *g, const char *dir, const char *name, const char *text,
                     const Define *define, uint32_t ndefine, const char *profile, int lowering) {
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
  g->s = (Sched){.arena = &g->arena, .diag = &g->diag, .opt = &g->opt};
  diag_init(&g->diag, &g->arena, stderr);
  const bool library = dir && !strchr(name, '.');
  g->opt.input = library ? arena_printf(&g->arena, "%s/%s.pipe", dir, name)
                         : arena_printf(&g->arena, "%s", name);
  if (text) {
    g->opt.text = text;
    g->opt.text_len = strlen(text);
  }
  return compile_only(&g->s);
}

bool program_open(Program *g, const char *dir, const char *name, const char *text,
                  const Define *define, uint32_t ndefine, const char *profile) {
  return program_open_as(g, dir, name, text, define, ndefine, profile, 0);
}

void program_close(Program *g) { arena_free(&g->arena); }
