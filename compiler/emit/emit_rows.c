/* SPDX-License-Identifier: MIT
 * Writes the words of a rank's list as the macros of pipe_rows.h. Reads only the words, which are
 * what was compared with the list. Cost: linear. */
#include "emit_rows.h"

#define X(word, macro) [PIPE_WORD_##word] = #macro,
static const char *const word_name[] = {PIPE_WORDS(X)};
#undef X
#define X(field, macro) #field,
static const char *const field_name[] = {PIPE_FIELDS(X)};
#undef X
#define X(field, macro) #macro,
static const char *const same_name[] = {PIPE_FIELDS(X)};
#undef X

/* Writes a word with its arguments. The field of an entry of the row's list is LIST + its index. */
static void put_word(Text *text, const char *before, uint32_t tag, uint32_t n) {
  static const char *const phase[] = {"warmup", "steady", "flush", "flush"};
  const uint64_t space = TEXT(before);
  if (tag >= PIPE_WORD_SAME) {
    const uint64_t name = TEXT(same_name[tag - PIPE_WORD_SAME]),
                   op = TEXT(pipe_op_info[n % PIPE_DISTANCE / PIPE_NFIELDS].text);
    const uint32_t field = n % PIPE_NFIELDS;
    if (field > PIPE_FIELD_LIST)
      PUT(text, "%%(#,%,LIST + #)", space, name, n / PIPE_DISTANCE, op, field - PIPE_FIELD_LIST);
    else
      PUT(text, "%%(#,%,%)", space, name, n / PIPE_DISTANCE, op, TEXT(field_name[field]));
  } else if (tag >= PIPE_WORD_NEW) {
    PUT(text, "%NEW(%,#)", space, TEXT(field_name[tag - PIPE_WORD_NEW]), n);
  } else if (tag == PIPE_WORD_AT) {
    PUT(text, "%AT(%,#)", space, TEXT(phase[n & 3]), n >> 2);
  } else if (tag == PIPE_WORD_END || tag == PIPE_WORD_FINISH) {
    PUT(text, "%%", space, TEXT(word_name[tag]));
  } else {
    bool negative = n & 0x800000 &&
                    (tag == PIPE_WORD_STEP || tag == PIPE_WORD_OUTER || tag == PIPE_WORD_BEHIND);
    PUT(text, "%%(~)", space, TEXT(word_name[tag]), negative ? n - (uint64_t)0x1000000 : n);
  }
}

/* Has the macro of an op two arguments, stage and microbatch? */
static bool has_mb(uint32_t op) { return op <= PIPE_LOAD && op != PIPE_U && !pipe_is_sum(op); }

/* Writes an op: F(3,8), U(3); or ROW(F,3) if its microbatch is not the next word. */
static void begin_row(Text *text, const RankRows *rows, uint32_t *i) {
  const uint32_t *word = &rows->word[*i], op = word[0] >> 24, stage = word[0] & 0xffffff;
  const uint64_t name = TEXT(pipe_op_info[op].text);
  if (!has_mb(op)) {
    PUT(text, "%(#)", name, stage);
  } else if (*i + 1 < rows->n && word[1] >> 24 == PIPE_WORD_MB) {
    PUT(text, "%(#,#)", name, stage, word[1] & 0xffffff);
    ++*i;
  } else {
    PUT(text, "ROW(%,#)", name, stage);
  }
}

static void new_line(Text *text, int depth) {
  PUT(text, "\n  ");
  for (; depth > 0; depth--)
    PUT(text, "  ");
}

void emit_rows(Text *text, const RankRows *rows) {
  int depth = 0;
  for (uint32_t i = 0; i < rows->n; i++) {
    uint32_t tag = rows->word[i] >> 24, n = rows->word[i] & 0xffffff;
    bool of_row = tag > PIPE_WORD_FINISH || (tag >= PIPE_WORD_STEP && tag <= PIPE_WORD_OUTER);
    bool high = tag == PIPE_WORD_HIGH; /* high bits of the next word's number */
    depth -= tag == PIPE_WORD_END;
    const char *before = "";
    if (of_row || (high && rows->word[i + 1] >> 24 > PIPE_WORD_FINISH))
      before = " ";
    else if (i == 0 || rows->word[i - 1] >> 24 != PIPE_WORD_HIGH)
      new_line(text, depth);
    depth += tag == PIPE_WORD_LOOP;
    if (tag < PIPE_NOPS)
      begin_row(text, rows, &i);
    else
      put_word(text, before, tag, n);
  }
  PUT(text, "\n");
}
