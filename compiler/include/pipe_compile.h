/* SPDX-License-Identifier: MIT
 * The compiler of pipec as a library: a program compiles its schedule when it starts, once it knows
 * the number of ranks and microbatches. Link with libpipec; libpiperun then runs the program
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
 * A call writes no file, prints nothing and never ends the process. It reads regular files only, so
 * it never waits for the other end of a pipe. Threads may compile at the same
 * time: calls share no state. Several threads may read one PipeCompiled. */
#ifndef PIPE_COMPILE_H
#define PIPE_COMPILE_H

#include <stddef.h>
#include <stdint.h>

#include "pipe_instr.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

uint32_t pipe_compile_version(void); /* PIPE_VERSION of the library */

typedef enum PipeCompileStatus {
  PIPE_COMPILE_OK,       /* proved, with all checks, limits and memory limits */
  PIPE_COMPILE_REFUSED,  /* the messages say why; wrong options are one reason */
  PIPE_COMPILE_NO_MEMORY,
  PIPE_COMPILE_INTERNAL, /* a bug of the compiler, found by its own checks */
  PIPE_COMPILE_STOPPED   /* by the caller: pipe_compile_until */
} PipeCompileStatus;

/* The results of a call. It owns all that the functions below return, until pipe_compiled_free. */
typedef struct PipeCompiled PipeCompiled;

/* Compiles `text`, a schedule that messages call `name`. Imports are looked up beside `name`. text
 * NULL: reads the file `name`, or the schedule of the standard library with this name. The standard
 * library is looked up as ../share/pipe/stdlib beside libpipec.so, or beside the program that links
 * libpipec.a; the environment variable PIPE_STDLIB names another folder.
 *
 * option[0..noption) are words of pipec's command line: "-DP=8", or "-D" and "P=8";
 * "--profile=costs.json", "--memory-limit=40GiB", "--emit=svg", "--check". Refused are options that
 * print a text about pipec, name an output, or take several files.
 *
 * *out is NULL only if there is no memory for it; the functions below accept NULL. */
PipeCompileStatus pipe_compile(PipeCompiled **out, const char *name, const char *text, int noption,
                               const char *const *option);

/* As pipe_compile, but another thread, or a signal handler, can end the call: once it has set *stop
 * to a value other than 0, the call soon returns PIPE_COMPILE_STOPPED, with its memory in *out. */
PipeCompileStatus pipe_compile_until(PipeCompiled **out, const char *name, const char *text,
                                     int noption, const char *const *option,
                                     const volatile int *stop);
void pipe_compiled_free(PipeCompiled *c); /* NULL is fine */

/* The program, for pr_open. NULL: the status is not OK, or there is no program because lists of
 * transfers (a compute_comms CSV file) complete only on the network of --channels and --sends, or
 * because a range of values (-D M=1..8) was proved. */
const PipeProgram *pipe_compiled_program(const PipeCompiled *c);

/* What pipec writes to standard output: the file of --emit=..., or the report of --check,
 * --critical-path or --show; "" without such an option. *n bytes, then a NUL; n may be NULL. */
const char *pipe_compiled_output(const PipeCompiled *c, size_t *n);

/* What pipec prints to standard error: each message with its place and the line of the text. */
const char *pipe_compiled_messages(const PipeCompiled *c);

typedef enum PipeSeverity { PIPE_ERROR, PIPE_WARNING, PIPE_NOTE } PipeSeverity;

/* A message. Control characters in the user's texts are escaped, except in `file`. */
typedef struct PipeDiagnostic {
  PipeSeverity severity;  /* a note belongs to the error or warning before it */
  const char *name;       /* name for pipec --explain, such as "deadlock"; NULL: none */
  const char *file;       /* NULL: the message has no place */
  uint32_t line, column;  /* from 1; column in bytes */
  const char *message;
  const char *help;       /* what to do; NULL: no help */
} PipeDiagnostic;

/* Message i, from 0, in the order of pipe_compiled_messages; NULL: there are no more. */
const PipeDiagnostic *pipe_compiled_diagnostic(const PipeCompiled *c, uint32_t i);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
