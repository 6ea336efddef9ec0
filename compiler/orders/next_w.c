/* SPDX-License-Identifier: MIT
 * Finds the microbatch for a W without an index (lang/spec.md 5.1): the oldest I of its chunk, or
 * of the rank, that waits for its W. In a block of `rules` the oldest I is known only after the
 * play of all ranks. So a W behind such a block must name its microbatch if the oldest I is in the
 * block, and so must every W in the text of `clock` and `rules`. Cost: linear in the ops of the
 * rank. */
#include "expand.h"
#include "names.h"

/* The first row at or after `i` with an I of the stage (NONE: of any stage) that waits for its W;
 * Orders.nop: none. */
static uint32_t waiting(const Sched *s, uint32_t stage, uint32_t i) {
  for (; i < s->orders->nop; i++) {
    const Op *p = &s->orders->op[i];
    if (p->kind == PIPE_I && (stage == NONE || p->stage == stage) &&
        !s->orders->at_w[(size_t)p->stage * s->model->nmb + p->mb])
      break;
  }
  return i;
}

/* The block of rules that contains row i, or NULL. */
static const Region *region_of(const Ex *x, uint32_t i) {
  uint32_t a = 0, b = x->rules.regions.n; /* the last block that begins at or before i */
  while (a < b) {
    uint32_t mid = a + (b - a) / 2;
    if (x->rules.regions.at[mid].first <= i)
      a = mid + 1;
    else
      b = mid;
  }
  const Region *g = a > 0 ? &x->rules.regions.at[a - 1] : NULL;
  return g && i < g->first + g->n ? g : NULL;
}

static bool say_which(Ex *x, const OpRef *o, const Region *g) {
  Sched *s = x->s;
  diag_error(s->diag, DIAG_REMOVED, x->use->at,
             "rank %u: '%s' has no index, and the order of the I in 'rules %s' is not known yet",
             x->rank, span_text(s, x->use->at), g->at->name);
  diag_note(s->diag, g->at->at, "the I are here");
  diag_help(s->diag, "write the index: do m in 0..M { %s(m) }", span_text(s, o->at));
  return false;
}

static bool none_left(Ex *x, const OpRef *o) {
  Sched *s = x->s;
  diag_error(s->diag, DIAG_BAD_INDEX, x->use->at, "rank %u: no I before '%s' still waits for its W",
             x->rank, span_text(s, x->use->at));
  if (o != x->use)
    diag_note(s->diag, o->at, "the op is defined here");
  return false;
}

bool next_w(Ex *x, const OpRef *o, uint32_t *stage, int64_t *mb, int64_t *slice) {
  Sched *s = x->s;
  const Pipe *p = NULL;
  uint32_t n, row = s->orders->nop, first = s->orders->rank_op0[x->rank],
              *from = &x->w_from[s->model->nstage + x->rank];
  bool any = !o->chunk && !o->stage;
  if (any && o->pipe && !op_pipe(x, o, &p))
    return false;
  const uint32_t *held = p ? pipe_rows(x, p, &n) : rank_rows(x, &n);
  any = any && n > 1;
  if (!any && !op_stage(x, o, stage))
    return false;
  if (!any && *stage == NONE)
    return *mb = -1, true;
  if (!any || p) { /* count by chunk */
    held = any ? held : stage;
    for (uint32_t i = 0; i < (any ? n : 1); i++) {
      uint32_t *at = &x->w_from[held[i]];
      *at = waiting(s, held[i], *at > first ? *at : first);
      from = *at < row ? at : from;
      row = *at < row ? *at : row;
    }
  } else {
    row = *from = waiting(s, NONE, *from > first ? *from : first);
  }
  *mb = -1;
  if (row == s->orders->nop)
    return x->clip || none_left(x, o);
  const Region *g = region_of(x, row);
  if (g)
    return say_which(x, o, g);
  const Op *i = &s->orders->op[row];
  *from = row + 1; /* every I before it has its W, or gets it now */
  *stage = i->stage, *slice = i->mb % s->model->slices;
  *mb = (int64_t)(i->mb - s->model->stage[i->stage].mb0) / s->model->slices;
  return true;
}
