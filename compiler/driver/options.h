/* SPDX-License-Identifier: MIT
 * The list of options.def as tables and texts. */
#ifndef PIPE_OPTIONS_H
#define PIPE_OPTIONS_H

#include "driver.h"
#include "pipec.h"

enum { /* rows of option_row */
#define X(id, letter, name, argument, takes, who, into, help) O_##id,
#include "options.def"
#undef X
  NOPTIONS
};

typedef enum Takes {
  TAKES_NOTHING, TAKES_FILES, TAKES_DIRS, TAKES_WORDS, TAKES_PASSES, TAKES_DIAGNOSTICS, TAKES_TEXT
} Takes;

typedef enum OptionFor { FOR_ANY, FOR_PROGRAM } OptionFor;

typedef struct OptionRow { /* the columns of options.def but `into`, which read_options.c has */
  char letter;
  Takes takes;
  OptionFor who;
  const char *name, *argument, *help;
} OptionRow;
extern const OptionRow option_row[NOPTIONS]; /* of O_ */

static inline bool option_is_listed(const OptionRow *row) { return *row->help != 0; }

/* The index of a word in the argument of option id, such as 1 of csv in "=c|csv"; false: none. */
bool option_word(int id, const char *word, int *k);
/* "c, csv or json": the words of option id. */
const char *option_words(Sched *s, int id);

/* The first word of an argument, or with `from` the word after the one that ends there, and its
 * length; NULL: there is none. */
const char *option_each_word(const OptionRow *o, const char *from, size_t *n);

/* "--check", or "-D" of an option that has only a letter. */
const char *option_dashed(Sched *s, int id);

/* The long option that --NAME or --NAME=VALUE means, without dashes; NULL: none is near. */
const char *option_meant(Sched *s, const char *written);

/* What the words of a command line say, beside Options. */
typedef struct Given {
  bool option[NOPTIONS]; /* O_: has a word given it? */
  const char **file;     /* [nfile] */
  uint32_t nfile;
} Given;

/* ---- read_options.c: report an error in the words, and return false ---- */
bool usage_error(Sched *s, const char *fmt, const char *arg); /* fmt has one %s, for arg */
bool usage_refused(Sched *s, const char *message, const char *help); /* help: what to type */

/* ---- option_conflicts.c: the command that the options ask for. False: some do not go together, or
 * one is missing; reported ---- */
bool check_options(Sched *s, const Given *given, Command *todo);

void print_help(FILE *f);
void print_manual(FILE *f);
void print_completion(Sched *s, FILE *f); /* completion.c */

#endif
