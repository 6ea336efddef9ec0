/* SPDX-License-Identifier: MIT
 * The compute order as PyTorch's `compute_only` CSV: one row per rank, cells like 2F0, 2I0, 2W0, 2B0,
 * no idle cells (order alone counts there), LF ends. The update and R are not part of that format and
 * are left out. An action of one F and one B or I is an OVERLAP_F_B; the format has no other, so the ops of
 * those stand one after the other. Requires expand. */
#include "pipec.h"
#include "text.h"

static void op(Text *t, const Op *o) {
  text_u64(t, o->stage);
  text_lit(t, pipe_op_info[o->kind].text);
  text_u64(t, o->mb);
}

static bool backward(const Op *o) { return o->kind == PIPE_B || o->kind == PIPE_I; }

/* Whether op i begins an action that the format has. */
static bool is_pair(const Sched *s, uint32_t r, uint32_t i) {
  const Op *a = &s->op[i], *b = a + 1;
  return a->group == 1 && (i == s->rank_op0[r] || a[-1].group == 0) &&
         ((a->kind == PIPE_F && backward(b)) || (backward(a) && b->kind == PIPE_F));
}

void emit_csv(Sched *s, FILE *f) {
  Text *t = arena_alloc(s->arena, sizeof *t);
  t->f = f, t->n = 0;
  for (uint32_t r = 0; r < s->nrank; r++) {
    bool first = true;
    for (uint32_t i = s->rank_op0[r]; i < s->rank_op0[r + 1]; i++) {
      const Op *o = &s->op[i];
      if (o->kind >= PIPE_R)
        continue;
      text_room(t);
      if (!first)
        text_char(t, ',');
      first = false;
      if (is_pair(s, r, i)) {
        bool in_order = o->kind == PIPE_F;
        text_char(t, '(');
        op(t, in_order ? o : o + 1);
        text_char(t, ';');
        op(t, in_order ? o + 1 : o);
        text_lit(t, ")OVERLAP_F_B");
        i++;
      } else {
        op(t, o);
      }
    }
    text_char(t, '\n');
  }
  text_flush(t);
}
