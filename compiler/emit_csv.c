/* SPDX-License-Identifier: MIT
 * The compute order as PyTorch's `compute_only` CSV: one row per rank, cells like 2F0, 2I0, 2W0, 2B0,
 * no idle cells (order alone counts there), LF ends. The update and R are not part of that format and
 * are left out. Requires expand. */
#include "pipec.h"
#include "text.h"

void emit_csv(Sched *s, FILE *f) {
  Text *t = arena_alloc(s->arena, sizeof *t);
  t->f = f, t->n = 0;
  for (uint32_t r = 0; r < s->nrank; r++) {
    bool first = true;
    for (uint32_t i = s->rank_op0[r]; i < s->rank_op0[r + 1]; i++) {
      const Op *o = &s->op[i];
      if (o->kind == PIPE_U || o->kind == PIPE_R)
        continue;
      text_room(t);
      if (!first)
        text_char(t, ',');
      first = false;
      text_u64(t, o->stage);
      text_lit(t, pipe_op_info[o->kind].text);
      text_u64(t, o->mb);
    }
    text_char(t, '\n');
  }
  text_flush(t);
}
