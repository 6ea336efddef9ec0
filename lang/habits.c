/* SPDX-License-Identifier: MIT
 * One table: a word of another language, the places where it occurs, and the help. A word that ends
 * in '*' matches every word with this prefix. */
#include "habits.h"

#include <stdbool.h>
#include <string.h>

static const char
    loop[] = "a loop is written 'do i in a..b { ... }' or 'do n { ... }'",
    function[] = "a function is written 'fn f(x) = e'",
    value[] = "a value has no type: 'let x = e' names it, or 'schedule s(P = 4)' a parameter",
    forward[] = "the forward of microbatch m is F(m)",
    backward[] = "the backward of microbatch m is B(m), or I(m) and W(m) in two parts",
    transfer[] = "the compiler adds the transfers; lists with their own transfers are CSV files",
    reduction[] = "leave the reduction out: U includes it", update[] = "the update is U";

static const char label[] = "phases follow from the ops: leave the label out";
static const char another[] =
    "an order runs no other schedule: extend that schedule, or write its ops as loops, a kernel, a "
    "clock or rules";

const char own_transfers_help[] =
    "lists with their own transfers are CSV files: a row for each rank, 0SEND_F1+0RECV_B0 is a "
    "group, WAIT a wait";

static const struct {
  const char *word;
  int places;
  const char *help;
} habits[] = {
    {"while", HABIT_FORM, loop},
    {"loop", HABIT_FORM, loop},
    {"elif", HABIT_FORM, "write 'else if'"},
    {"elsif", HABIT_FORM, "write 'else if'"},
    {"elseif", HABIT_FORM, "write 'else if'"},
    {"def", HABIT_FORM, function},
    {"func", HABIT_FORM, function},
    {"function", HABIT_FORM, function},
    {"lambda", HABIT_FORM, function},
    {"return", HABIT_FORM, function},
    {"int", HABIT_FORM, value},
    {"int64_t", HABIT_FORM, value},
    {"long", HABIT_FORM, value},
    {"unsigned", HABIT_FORM, value},
    {"float", HABIT_FORM, value},
    {"double", HABIT_FORM, value},
    {"const", HABIT_FORM, value},
    {"var", HABIT_FORM, value},
    {"class", HABIT_FORM, "a schedule is written 'schedule s(P = 4, M = 8) { ... }'"},
    {"use", HABIT_FORM | HABIT_OP, another},
    {"expects", HABIT_FORM, "write 'requires'"},
    {"warmup", HABIT_OP, label},
    {"flush", HABIT_OP, label},
    {"recv", HABIT_OP, own_transfers_help},
    {"wait", HABIT_OP, own_transfers_help},
    {"and", HABIT_FORM, "write '&&'"},
    {"or", HABIT_FORM, "write '||'"},
    {"not", HABIT_FORM | HABIT_VALUE, "write '!'"},
    {"True", HABIT_VALUE, "write 1"},
    {"true", HABIT_VALUE, "write 1"},
    {"False", HABIT_VALUE, "write 0"},
    {"false", HABIT_VALUE, "write 0"},
    {"abs", HABIT_VALUE, "write max(x, -x)"},
    {"FORWARD*", HABIT_OP, forward},
    {"forward*", HABIT_OP, forward},
    {"fwd*", HABIT_OP, forward},
    {"BACKWARD_INPUT", HABIT_OP, "the backward of the input of microbatch m is I(m)"},
    {"BACKWARD_WEIGHT", HABIT_OP, "the backward of the weights for microbatch m is W(m)"},
    {"FULL_BACKWARD", HABIT_OP, backward},
    {"backward*", HABIT_OP, backward},
    {"bwd*", HABIT_OP, backward},
    {"BW", HABIT_OP, backward},
    {"SEND_*", HABIT_OP, transfer},
    {"RECV_*", HABIT_OP, transfer},
    {"send_*", HABIT_OP, transfer},
    {"recv_*", HABIT_OP, transfer},
    {"REDUCE*", HABIT_OP, reduction},
    {"TIE", HABIT_OP, reduction},
    {"allreduce", HABIT_OP, reduction},
    {"all_reduce", HABIT_OP, reduction},
    {"optimizer_step", HABIT_OP, update},
    {"update", HABIT_OP, update},
};

const char *habit(const char *word, size_t n, HabitPlace place) {
  for (size_t i = 0; i < sizeof habits / sizeof *habits; i++) {
    const char *w = habits[i].word;
    size_t len = strlen(w);
    bool prefix = w[len - 1] == '*';
    if ((habits[i].places & (int)place) && (prefix ? n >= len - 1 && memcmp(word, w, len - 1) == 0
                                                   : n == len && memcmp(word, w, n) == 0))
      return habits[i].help;
  }
  return NULL;
}

/* Damerau's distance, with optimal alignment. */
unsigned name_distance(const char *a, const char *b) {
  enum { LONGEST = 40 };
  size_t n = strlen(a), m = strlen(b);
  unsigned d[3][LONGEST + 1];
  if (n > LONGEST || m > LONGEST)
    return LONGEST;
  for (size_t j = 0; j <= m; j++)
    d[0][j] = (unsigned)j;
  for (size_t i = 1; i <= n; i++) {
    unsigned *up2 = d[(i + 1) % 3], *up = d[(i + 2) % 3], *row = d[i % 3];
    row[0] = (unsigned)i;
    for (size_t j = 1; j <= m; j++) {
      unsigned best = up[j - 1] + (a[i - 1] != b[j - 1]);
      best = up[j] + 1 < best ? up[j] + 1 : best;
      best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && up2[j - 2] + 1 < best)
        best = up2[j - 2] + 1;
      row[j] = best;
    }
  }
  return d[n % 3][m];
}
