/* SPDX-License-Identifier: MIT
 * A schedule compiled in the process of a test. */
#ifndef TEST_PROGRAM_H
#define TEST_PROGRAM_H

#include "pipec.h"

typedef struct Program {
  Arena arena;
  Diag diag;
  Options opt;
  Define define[8];
  Sched s;
} Program;

/* Compiles schedule `name` of the library in dir, or the file `name` if there is a '.' in it, or
 * `text`. dir, text, profile: NULL if there is none; lowering: of Options, 0. False: reported on
 * stderr. The caller calls program_close either way. */
bool program_open_as(Program *g, const char *dir, const char *name, const char *text,
                     const Define *define, uint32_t ndefine, const char *profile, int lowering);
bool program_open(Program *g, const char *dir, const char *name, const char *text,
                  const Define *define, uint32_t ndefine, const char *profile);
void program_close(Program *g);

#endif
