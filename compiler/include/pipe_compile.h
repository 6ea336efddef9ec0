/* SPDX-License-Identifier: MIT
 * The compiler of pipec as a library: a program compiles its schedule when it starts, once it knows
 * the number of ranks and microbatches. Link with libpipec; libpiperun then carries the program out
 * (pipe_run.h).
 *
 *   const char *option[] = {"-DP=4", "-DM=16"};
 *   PipeCompiled *c;
 *   if (pipe_compile(&c, "line.pipe", NULL, 2, option)) {
 *     fputs(pipe_compiled_messages(c), stderr);
 *     pipe_compiled_free(c);
 *     return 1;
 *   }
 *   pr_open(&run, pipe_compiled_program(c), &model, NULL);
 *
 * A call writes no file, prints nothing and never ends the process. Threads may compile at the same
 * time: there is no state between calls. Several threads may read one PipeCompiled. */
#ifndef PIPE_COMPILE_H
#define PIPE_COMPILE_H

#include <stddef.h>
#include <stdint.h>

#include "pipe_instr.h"

/* 10000 * major + 100 * minor + patch, of this header, and of the library at run time. The minor
 * number changes when a caller has to be compiled again (docs/versions.md). */
#define PIPE_COMPILE_VERSION 200

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

uint32_t pipe_compile_version(void);

typedef enum PipeCompileStatus {
  PIPE_COMPILE_OK,       /* proved, with all checks, limits and memory limits */
  PIPE_COMPILE_REFUSED,  /* the messages say why; wrong options are among the reasons */
  PIPE_COMPILE_NO_MEMORY,
  PIPE_COMPILE_INTERNAL  /* a mistake of the compiler, which its own checks have found */
} PipeCompileStatus;

/* What a call has made. All that it returns is its own, until pipe_compiled_free. */
typedef struct PipeCompiled PipeCompiled;

/* Compiles `text`, a schedule that is called `name` in messages and whose imports are looked up
 * beside `name`. text NULL: reads the file `name`; or the schedule of the standard library that has
 * this name. That library is looked for beside libpipec.so, as ../share/pipe/stdlib, or beside the
 * program that links libpipec.a; the environment's PIPE_STDLIB names another folder.
 *
 * option[0..noption) are words of pipec's command line: "-DP=8", or "-D" and "P=8";
 * "--profile=costs.json", "--memory-limit=40GiB", "--emit=svg", "--check". Options that print about
 * pipec, name an output, or take several files are refused.
 *
 * *out is NULL only if there is no memory for it; the functions below take it then, too. */
PipeCompileStatus pipe_compile(PipeCompiled **out, const char *name, const char *text, int noption,
                               const char *const *option);
void pipe_compiled_free(PipeCompiled *c); /* NULL is fine */

/* The program, for pr_open. NULL: the status is not OK; or only lists of transfers (of a
 * compute_comms CSV file), or a range of values (--for-all=NAME=LO..HI), were proved. */
const PipeProgram *pipe_compiled_program(const PipeCompiled *c);

/* What pipec writes to standard output: with --emit=... the file, with --check, --critical-path or
 * --show the report. *n bytes, and a NUL behind them; "" if no option asks for any. n may be
 * NULL. */
const char *pipe_compiled_output(const PipeCompiled *c, size_t *n);

/* What pipec prints to standard error: each message with its place and the line of the text. */
const char *pipe_compiled_messages(const PipeCompiled *c);

typedef enum PipeSeverity { PIPE_ERROR, PIPE_WARNING, PIPE_NOTE } PipeSeverity;

/* A message. Control characters of the user's texts are escaped, but in `file`. */
typedef struct PipeDiagnostic {
  PipeSeverity severity;  /* a note belongs to the error or warning before it */
  const char *name;       /* "deadlock", as pipec --explain takes it; NULL: it has none */
  const char *file;       /* NULL: no place */
  uint32_t line, column;  /* from 1; column in bytes */
  const char *message;
  const char *help;       /* what to do; NULL: nothing */
} PipeDiagnostic;

/* Message number i, from 0, in the order of the text above; NULL: there are no more. */
const PipeDiagnostic *pipe_compiled_diagnostic(const PipeCompiled *c, uint32_t i);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
