/* SPDX-License-Identifier: MIT
 * Words from other languages and systems, misspelt words, and what to write instead. */
#ifndef PIPE_HABITS_H
#define PIPE_HABITS_H

#include <stddef.h>

typedef enum HabitPlace { HABIT_FORM = 1, HABIT_OP = 2, HABIT_VALUE = 4 } HabitPlace;

/* The text of a help for a word that stands where the text is malformed (HABIT_FORM), where an op
 * is expected (HABIT_OP), or where a value or a function is expected (HABIT_VALUE). NULL: none. */
const char *habit(const char *word, size_t n, HabitPlace place);

/* The number of letters to change, add, drop or swap with the next letter to turn a into b. A large
 * number if a name has more than 40 letters. */
unsigned name_distance(const char *a, const char *b);

/* The text of a help for transfers that the text of a schedule places itself. */
extern const char own_transfers_help[];

#endif
