/* SPDX-License-Identifier: MIT
 * The door of driver/: the pass list, options, --check of ranges, and the commands --compare,
 * --list, --fmt, --man. */
#ifndef PIPEC_DRIVER_H
#define PIPEC_DRIVER_H

#include "pipec.h"

/* ---- driver.c: the pass list ---- */
bool compile(Sched *s);
bool compile_only(Sched *s); /* without output: for tests, fuzzers and benches */
bool compare(Sched *s);      /* compare.c: compares opt->compare; needs no pass, s stays empty */
bool check_points(Sched *s); /* check_points.c: proves each point of ranges of -D; likewise */
double now_ms(void); /* of a clock that only goes forward */
bool is_pass(const char *name);
const char *pass_names(Sched *s);
/* ---- read_options.c ---- */
typedef enum CommandKind {
  COMMAND_COMPILE, COMMAND_COMPARE, COMMAND_PLAN, COMMAND_BEST, COMMAND_POINTS, COMMAND_FORMAT,
  COMMAND_LIST, COMMAND_EXPLAIN, COMMAND_COMPLETION, COMMAND_MANUAL, COMMAND_HELP, COMMAND_VERSION
} CommandKind;
typedef struct Command {
  CommandKind kind;
  const char *name;        /* COMMAND_EXPLAIN: its argument; NULL: all */
  const char *const *word; /* COMMAND_LIST: what is looked for */
  uint32_t nword;
} Command;
/* Reads the options into s->opt, and the command into *todo. If opt->input is set, a caller of the
 * library has named the input: then another file, or an option for the program pipec only, is
 * refused. False: reported. */
bool read_options(Sched *s, int n, const char *const *word, Command *todo);
/* ---- library.c ---- */
/* The directory of the standard library; NULL: unknown. */
const char *library_dir(Sched *s);
/* The following require opt->stdlib. */
/* The path of FILE argument `name` (lang/spec.md 9.4). */
const char *library_find(Sched *s, const char *name);
/* Prints a line for each schedule of the library whose line has all words. False: reported. */
bool library_list(Sched *s, FILE *f, const char *const *word, uint32_t nword);
/* ---- format_files.c: --fmt for opt->format. Prints; with opt->format_write replaces; with
 * opt->check_only compares. False: reported ---- */
bool format_files(Sched *s);

#endif
