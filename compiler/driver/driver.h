/* SPDX-License-Identifier: MIT
 * The door of driver/: the pass list, options, and the commands --compare, --list, --fmt, --man. */
#ifndef PIPEC_DRIVER_H
#define PIPEC_DRIVER_H

#include "pipec.h"

/* ---- driver.c: the pass list ---- */
bool compile(Sched *s);
bool compile_only(Sched *s);  /* the same without output, for tests, fuzzers and benches */
bool compare(Sched *s);       /* compare.c: of opt->compare; needs no pass, s stays empty */
bool for_all_range(Sched *s); /* for_all_range.c: of opt->range; the same */
bool is_pass(const char *name);
const char *pass_names(Sched *s);
/* ---- read_options.c ---- */
typedef enum CommandKind {
  COMMAND_COMPILE, COMMAND_COMPARE, COMMAND_PLAN, COMMAND_BEST, COMMAND_RANGE, COMMAND_FORMAT,
  COMMAND_LIST, COMMAND_EXPLAIN, COMMAND_COMPLETION, COMMAND_MANUAL, COMMAND_HELP, COMMAND_VERSION
} CommandKind;
typedef struct Command {
  CommandKind kind;
  int shell;        /* COMMAND_COMPLETION */
  const char *name; /* COMMAND_EXPLAIN: which; NULL: all */
} Command;
/* Fills s->opt, and says what is to be done. With opt->input already set, a caller of the library
 * has named what is compiled: an option of the program only is refused, and so is another file.
 * False: reported. */
bool read_options(Sched *s, int n, const char *const *word, Command *todo);
/* ---- library.c ---- */
/* The directory of the standard library; NULL: unknown. */
const char *library_dir(Sched *s);
/* The rest requires opt->stdlib. */
/* The path that argument `name` means (lang/spec.md 9.5). */
const char *library_find(Sched *s, const char *name);
/* Prints a line for each schedule of the library. False: reported. */
bool library_list(Sched *s, FILE *f);
/* ---- format_files.c: --fmt of opt->format. Prints; replaces with opt->format_write; compares with
 * opt->check_only. False: reported ---- */
bool format_files(Sched *s);

#endif
