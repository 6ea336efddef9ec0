/* SPDX-License-Identifier: MIT
 * Finds mistakes of pipec itself in the op table and its maps, after check_deps. Takes nothing from
 * the passes that made them. Cost: linear in ops. */
#include "certify.h"
#include "verify.h"

#define SEEN(op) ((uint8_t)(1u << PIPE_##op)) /* F B I W R in bits 0-4 */
_Static_assert(PIPE_F == 0 && PIPE_B == 1 && PIPE_I == 2 && PIPE_W == 3 && PIPE_R == 4, "bits");

/* Verifies that the op of a unit respects the order of slices: forward, recomputed or backward.
 * seen: ops so far of the units of the stage, from this unit on. */
static void verify_slice(uint32_t slices, uint32_t unit, uint8_t kind, const uint8_t *seen) {
  uint8_t back = SEEN(B) | SEEN(I);
  uint32_t slice = unit % slices;
  const uint8_t *last = seen + (slices - 1 - slice);
  if (kind == PIPE_R) /* no later slice is recomputed yet */
    BUG_IF(!(*last & SEEN(F)) || (*last & back));
  for (uint32_t q = slice + 1; kind == PIPE_R && q < slices; q++)
    BUG_IF(seen[q - slice] & SEEN(R));
  if (kind == PIPE_F && slice > 0)
    BUG_IF(!(seen[-1] & SEEN(F)));
  if ((kind == PIPE_B || kind == PIPE_I) && slice + 1 < slices)
    BUG_IF(!(seen[1] & back));
}

/* Verifies the order of ops of a unit: F, perhaps R, then B, or I and W, and nothing more. */
static void verify_next_op(uint8_t seen, uint8_t kind) {
  switch (kind) {
  case PIPE_F: BUG_IF(seen != 0); break;
  case PIPE_R: BUG_IF(seen != SEEN(F)); break;
  case PIPE_B: BUG_IF((seen & ~SEEN(R)) != SEEN(F)); break;
  case PIPE_I: BUG_IF((seen & ~SEEN(R)) != SEEN(F)); break;
  case PIPE_W: BUG_IF((seen & ~SEEN(R)) != (SEEN(F) | SEEN(I))); break;
  default: BUG_IF("no such compute op");
  }
}

static bool is_complete(uint8_t seen) {
  seen &= (uint8_t)~SEEN(R);
  return seen == (SEEN(F) | SEEN(B)) || seen == (SEEN(F) | SEEN(I) | SEEN(W));
}

/* The action of an update has no other op of its stage. */
static void verify_beside(const Sched *s, uint32_t u) {
  uint32_t first = u;
  while (first > s->orders->rank_op0[op_rank(s, u)] && s->orders->op[first - 1].group > 0)
    first--;
  for (uint32_t i = first; i <= u + s->orders->op[u].group; i++)
    BUG_IF(i != u && s->orders->op[i].stage == s->orders->op[u].stage);
}

void verify_ops(const Sched *s) {
  uint8_t *seen = arena_zalloc(s->arena, s->model->nstage, s->model->nmb);
  uint32_t *left = NEW_ARRAY(s->arena, uint32_t, s->model->nstage); /* backwards to come */
  uint32_t *fresh = NEW_ARRAY(s->arena, uint32_t,
                              s->model->nstage); /* gradients that no U has applied */
  uint32_t *rounds = NEW_ARRAY(s->arena, uint32_t, s->model->nstage),
           *grad = NEW_ARRAY(s->arena, uint32_t, s->model->nstage);
  for (uint32_t st = 0; st < s->model->nstage; st++) {
    BUG_IF(s->model->stage[st].model >= s->model->nmodel ||
           s->model->stage[st].mb0 >= s->model->nmb ||
           s->model->stage[st].nmb > s->model->nmb - s->model->stage[st].mb0);
    for (uint32_t mb = s->model->stage[st].mb0;
         mb < s->model->stage[st].mb0 + s->model->stage[st].nmb; mb++)
      left[st] += !s->model->row_of ||
                  s->model->row_of[(size_t)s->model->stage[st].model * s->model->nmb + mb] == st;
    BUG_IF(s->model->stage[st].rank >= s->model->nrank ||
           s->model->stage[st].replica >= s->model->nstage || left[st] == 0);
  }
  BUG_IF(s->orders->rank_op0[0] != 0 || s->orders->rank_op0[s->model->nrank] != s->orders->nop);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    BUG_IF(s->orders->rank_op0[r] >= s->orders->rank_op0[r + 1]);
    for (uint32_t i = s->orders->rank_op0[r]; i < s->orders->rank_op0[r + 1]; i++) {
      const Op *o = &s->orders->op[i];
      BUG_IF(o->stage >= s->model->nstage || s->model->stage[o->stage].rank != r);
      BUG_IF(o->phase >= PIPE_NPHASES || o->site >= s->orders->nsite);
      BUG_IF(o->group > 0 && (i + 1 >= s->orders->rank_op0[r + 1] || o[1].group != o->group - 1));
      if (o->kind == PIPE_SIDE) {
        BUG_IF(o->group > 0 || (i > s->orders->rank_op0[r] && o[-1].group > 0));
        BUG_IF(o->site - s->sides->site0 >= s->sides->ndecl);
        continue;
      }
      if (o->kind == PIPE_U) {
        verify_beside(s, i);
        uint32_t row = s->orders->round0[o->stage] + rounds[o->stage]++;
        BUG_IF(fresh[o->stage] == 0 || row >= s->orders->round0[o->stage + 1]);
        BUG_IF(s->orders->round[row].u != i || s->orders->round[row].grad != grad[o->stage]);
        BUG_IF(o->mb != NONE && o->mb > s->model->nmb - s->model->slices);
        for (uint32_t q = 0; o->mb != NONE && q < s->model->slices; q++)
          BUG_IF(!is_complete(seen[cell_at(s->model->nmb, o->stage, o->mb + q)]));
        fresh[o->stage] = 0;
        continue;
      }
      BUG_IF(o->mb < s->model->stage[o->stage].mb0 ||
             o->mb - s->model->stage[o->stage].mb0 >= s->model->stage[o->stage].nmb);
      size_t cell = cell_at(s->model->nmb, o->stage, o->mb);
      verify_next_op(seen[cell], o->kind);
      verify_slice(s->model->slices, o->mb, o->kind, &seen[cell]);
      seen[cell] |= (uint8_t)(1u << o->kind);
      const uint32_t *const at[] = {s->orders->at_f, s->orders->at_b, s->orders->at_b,
                                    s->orders->at_w, s->orders->at_r};
      BUG_IF(at[o->kind][cell] != i + 1);
      BUG_IF(o->kind == PIPE_B && s->orders->at_w[cell] != 0);
      BUG_IF(s->model->forward && o->kind != PIPE_F);
      left[o->stage] -= s->model->forward;
      if (o->kind == PIPE_B || o->kind == PIPE_W) {
        left[o->stage]--;
        fresh[o->stage]++;
        grad[o->stage] = i;
      }
    }
  }
  for (uint32_t st = 0; st < s->model->nstage; st++) {
    BUG_IF(left[st] != 0 || fresh[st] != 0 || (rounds[st] == 0) != s->model->forward);
    BUG_IF(rounds[st] != s->orders->round0[st + 1] - s->orders->round0[st] ||
           rounds[st] != rounds[s->model->stage[st].replica]);
  }
}
