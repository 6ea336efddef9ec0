/* SPDX-License-Identifier: MIT
 * A compiled program as the emitted one would be: its lists as rows (pipe_rows.h). */
#ifndef TEST_AS_ROWS_H
#define TEST_AS_ROWS_H

#include "arena.h"
#include "pipe_instr.h"

/* All of it but the lists is that of p; it lives as long as the arena and p do. */
PipeProgram *as_rows(Arena *a, const PipeProgram *p);

#endif
