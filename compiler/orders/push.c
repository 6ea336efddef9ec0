/* SPDX-License-Identifier: MIT
 * Adds one op or copy to the order of a rank. Refuses an op that occurs twice, or that a
 * forward-only schedule cannot have. Part of expand. Cost: constant. */
#include "base.h"
#include "expand.h"
#include "hints.h"
#include "names.h"

/* The place of the op in the text: a row of Orders.site. */
static uint32_t op_site(Ex *x, const OpRef *o) {
  uint32_t *site = &x->orders->opref_site[o->number];
  if (!*site)
    *site = 1 + add_site(x->s, x->orders, o->at);
  return *site - 1;
}

static bool duplicate(Ex *x, uint8_t kind, uint32_t old) {
  Sched *s = x->s;
  bool mixed = s->orders->op[old].kind != kind;
  char text[PIPE_OP_TEXT];
  pipe_unit_text(text, (PipeOp)kind, s->orders->op[old].stage, s->orders->op[old].mb,
                 s->model->slices);
  if (mixed)
    diag_error(s->diag, DIAG_MIXED_BACKWARD, x->use->at,
               "rank %u: %s, but %s already is the backward of this microbatch: B = I + W", x->rank,
               text, op_text(s, old));
  else
    diag_error(s->diag, DIAG_DUPLICATE_OP, x->use->at, "rank %u runs %s twice", x->rank, text);
  diag_note(s->diag, s->orders->site[s->orders->op[old].site], "%s is here first", op_text(s, old));
  hint_twice(s, x->rank, x->use, kind, old);
  return false;
}

static void push(Ex *x, uint8_t kind, uint32_t stage, uint32_t mb) {
  Orders *orders = x->orders;
  if (orders->nop == x->op_cap)
    vec_grow(x->s->arena, (void **)&orders->op, &x->op_cap, sizeof *orders->op);
  orders->op[orders->nop++] =
      (Op){.kind = kind, .stage = stage, .mb = mb, .site = op_site(x, x->use)};
}

/* Refuses a U that only repeats the last one, which keeps the number of updates near the number of
 * gradients. check_deps refuses the other updates without gradients. */
static bool push_update(Ex *x, uint32_t stage, uint32_t mb) {
  Sched *s = x->s;
  uint32_t old = x->last_u[stage];
  if (old && x->fresh[stage] == 0 && s->orders->op[old - 1].mb == mb) {
    diag_error(s->diag, DIAG_DUPLICATE_OP, x->use->at, "rank %u runs %s twice", x->rank,
               op_text(s, old - 1));
    diag_note(s->diag, s->orders->site[s->orders->op[old - 1].site], "%s is here first",
              op_text(s, old - 1));
    if (mb == NONE && s->orders->site[s->orders->op[old - 1].site].beg == x->use->at.beg)
      diag_help(s->diag,
                "U runs in every turn: write U(m) for one microbatch, or move U behind the block");
    else
      diag_help(s->diag, "no B or W of this stage runs between the two updates: remove one update");
    return false;
  }
  push(x, PIPE_U, stage, mb);
  x->fresh[stage] = 0;
  x->last_u[stage] = s->orders->nop;
  return true;
}

bool push_op(Ex *x, uint8_t kind, uint32_t stage, uint32_t mb) {
  Sched *s = x->s;
  if (s->model->forward && kind != PIPE_F) {
    diag_error(s->diag, DIAG_FORWARD_ONLY, x->use->at, "rank %u: '%s' in a forward-only schedule",
               x->rank, span_text(s, x->use->at));
    diag_note(s->diag, s->model->pipe[0].clause->at, "this pipe is 'forward'");
    diag_help(s->diag, "leave the op out, or remove 'forward' from the pipe");
    return false;
  }
  if (kind == PIPE_U)
    return push_update(x, stage, mb);
  size_t cell = (size_t)stage * s->model->nmb + mb;
  uint32_t *at = op_row(s, kind, cell);
  if (*at)
    return duplicate(x, kind, *at - 1);
  if (kind == PIPE_W && s->orders->at_b[cell] &&
      s->orders->op[s->orders->at_b[cell] - 1].kind == PIPE_B)
    return duplicate(x, kind, s->orders->at_b[cell] - 1);
  if (kind == PIPE_B && s->orders->at_w[cell])
    return duplicate(x, kind, s->orders->at_w[cell] - 1);
  push(x, kind, stage, mb);
  *at = s->orders->nop;
  x->fresh[stage] += kind == PIPE_B || kind == PIPE_W;
  return true;
}

/* OFF and LOAD are not ops: they stand between ops. */
bool push_copy(Ex *x, uint8_t kind, uint32_t stage, uint32_t mb) {
  Sched *s = x->s;
  if (s->model->forward) {
    diag_error(s->diag, DIAG_OFFLOAD, x->use->at,
               "rank %u: '%s' in a forward-only schedule: no op reads a stash", x->rank,
               span_text(s, x->use->at));
    diag_note(s->diag, s->model->pipe[0].clause->at, "this pipe is 'forward'");
    return false;
  }
  size_t cells = (size_t)s->model->nstage * s->model->nmb,
         cell = (size_t)stage * s->model->nmb + mb;
  if (!s->orders->at_off) {
    x->orders->at_off = NEW_ARRAY(s->arena, uint32_t, cells);
    x->orders->at_load = NEW_ARRAY(s->arena, uint32_t, cells);
  }
  uint32_t *at = kind == PIPE_OFF ? &x->orders->at_off[cell] : &x->orders->at_load[cell];
  if (*at) {
    char text[PIPE_OP_TEXT];
    pipe_unit_text(text, (PipeOp)kind, stage, mb, s->model->slices);
    diag_error(s->diag, DIAG_DUPLICATE_OP, x->use->at, "rank %u runs %s twice", x->rank, text);
    diag_note(s->diag, s->orders->site[s->orders->copy[*at - 1].site], "%s is here first", text);
    return false;
  }
  add_copy(s, x->orders,
           (Copy){.kind = kind,
                  .stage = stage,
                  .mb = mb,
                  .site = op_site(x, x->use),
                  .to = NONE,
                  .at = s->orders->nop});
  *at = s->orders->ncopy;
  return true;
}
