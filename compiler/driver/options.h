/* SPDX-License-Identifier: MIT
 * The list of options.def as tables and texts. */
#ifndef PIPE_OPTIONS_H
#define PIPE_OPTIONS_H

#include "pipec.h"

enum { /* rows of option_row */
#define X(id, letter, name, argument, takes, who, help) O_##id,
#include "options.def"
#undef X
  NOPTIONS
};

typedef enum Takes {
  TAKES_NOTHING, TAKES_FILES, TAKES_DIRS, TAKES_WORDS, TAKES_PASSES, TAKES_DIAGNOSTICS, TAKES_TEXT
} Takes;

typedef enum OptionFor { FOR_ANY, FOR_PROGRAM } OptionFor;

typedef struct OptionRow { /* the columns of options.def */
  char letter;
  Takes takes;
  OptionFor who;
  const char *name, *argument, *help;
} OptionRow;
extern const OptionRow option_row[NOPTIONS]; /* of O_ */

/* The index of a word in the argument of option id, such as 1 of csv in "=c|csv"; false: none. */
bool option_word(int id, const char *word, int *k);
/* "c, csv or json": the words of option id. */
const char *option_words(Sched *s, int id);

/* The first word of an argument, or with `from` the word after the one that ends there, and its
 * length; NULL: there is none. */
const char *option_each_word(const OptionRow *o, const char *from, size_t *n);

/* The long option that --NAME or --NAME=VALUE means, without dashes; NULL: none is near. */
const char *option_meant(Sched *s, const char *written);

void print_help(FILE *f);
void print_manual(FILE *f);
void print_completion(Sched *s, FILE *f); /* completion.c */

#endif
