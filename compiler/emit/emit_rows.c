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

static void signed_number(Text *t, uint32_t n) {
  if (n & 0x800000)
    text_char(t, '-');
  text_u64(t, n & 0x800000 ? 0x1000000 - n : n);
}

/* Writes the name of a field; for an entry of the row's list, LIST + its index. */
static void field(Text *t, uint32_t f) {
  text_lit(t, field_name[f < PIPE_FIELD_LIST ? f : PIPE_FIELD_LIST]);
  if (f <= PIPE_FIELD_LIST)
    return;
  text_lit(t, " + ");
  text_u64(t, f - PIPE_FIELD_LIST);
}

static void number(Text *t, uint32_t tag, uint32_t n) {
  static const char *const phase[] = {"warmup", "steady", "flush", "flush"};
  text_char(t, '(');
  if (tag >= PIPE_WORD_SAME) {
    text_u64(t, n / PIPE_DISTANCE);
    text_char(t, ',');
    text_lit(t, pipe_op_info[n % PIPE_DISTANCE / PIPE_NFIELDS].text);
    text_char(t, ',');
    field(t, n % PIPE_NFIELDS);
  } else if (tag >= PIPE_WORD_NEW) {
    text_lit(t, field_name[tag - PIPE_WORD_NEW]);
    text_char(t, ',');
    text_u64(t, n);
  } else if (tag == PIPE_WORD_AT) {
    text_lit(t, phase[n & 3]);
    text_char(t, ',');
    text_u64(t, n >> 2);
  } else if ((tag >= PIPE_WORD_STEP && tag <= PIPE_WORD_OUTER) || tag == PIPE_WORD_BEHIND) {
    signed_number(t, n);
  } else {
    text_u64(t, n);
  }
  text_char(t, ')');
}

/* Has the macro of an op two arguments, stage and microbatch? */
static bool has_mb(uint32_t op) { return op <= PIPE_LOAD && op != PIPE_U && !pipe_is_sum(op); }

/* Writes an op: F(3,8), U(3); or ROW(F,3) if its microbatch is not the next word. */
static void begin_row(Text *t, const RankRows *rows, uint32_t *i) {
  uint32_t op = rows->word[*i] >> 24, next = *i + 1 < rows->n ? rows->word[*i + 1] : 0;
  bool mb = has_mb(op) && next >> 24 == PIPE_WORD_MB, plain = has_mb(op) && !mb;
  text_lit(t, plain ? "ROW(" : "");
  text_lit(t, pipe_op_info[op].text);
  text_char(t, plain ? ',' : '(');
  text_u64(t, rows->word[*i] & 0xffffff);
  if (mb) {
    text_char(t, ',');
    text_u64(t, next & 0xffffff);
    ++*i;
  }
  text_char(t, ')');
}

static void new_line(Text *t, int depth) {
  text_room(t);
  text_lit(t, "\n  ");
  for (; depth > 0; depth--)
    text_lit(t, "  ");
}

void emit_rows(Text *t, const RankRows *rows) {
  int depth = 0;
  for (uint32_t i = 0; i < rows->n; i++) {
    uint32_t tag = rows->word[i] >> 24, n = rows->word[i] & 0xffffff;
    bool of_row = tag > PIPE_WORD_FINISH || (tag >= PIPE_WORD_STEP && tag <= PIPE_WORD_OUTER);
    bool high = tag == PIPE_WORD_HIGH; /* high bits of the next word's number */
    depth -= tag == PIPE_WORD_END;
    text_room(t);
    if (of_row || (high && rows->word[i + 1] >> 24 > PIPE_WORD_FINISH))
      text_char(t, ' ');
    else if (i == 0 || rows->word[i - 1] >> 24 != PIPE_WORD_HIGH)
      new_line(t, depth);
    depth += tag == PIPE_WORD_LOOP;
    if (tag < PIPE_NOPS) {
      begin_row(t, rows, &i);
      continue;
    }
    text_lit(t, tag >= PIPE_WORD_SAME  ? same_name[tag - PIPE_WORD_SAME]
                : tag >= PIPE_WORD_NEW ? "NEW"
                                       : word_name[tag]);
    if (tag != PIPE_WORD_END && tag != PIPE_WORD_FINISH)
      number(t, tag, n);
  }
  text_lit(t, "\n");
}
