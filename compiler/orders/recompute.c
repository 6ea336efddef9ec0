/* SPDX-License-Identifier: MIT
 * Adds R by the `recompute` clause (lang/spec.md 5.11): before the first backward of every stage
 * and microbatch for which the condition holds and that has no R. With slices, the R of a
 * microbatch come in order, each before the first op that reads its stash: the R of a later slice,
 * or the first backward. Part of expand, after all orders, including `rules`, are complete. Cost:
 * linear. */
#include <string.h>

#include "base.h"
#include "expand.h"
#include "names.h"

static bool wanted(Sched *s, const Clause *c, const Op *o, bool *yes) {
  const PipeStage *st = &s->model->stage[o->stage];
  int64_t v = 1;
  if (c->var)
    s->eval.env[c->slot] = st->model;
  if (c->mb_var)
    s->eval.env[c->mb_slot] = (o->mb - st->mb0) / s->model->slices;
  if (c->when && !eval(s, c->when, &v))
    return false;
  *yes = v != 0;
  return true;
}

bool insert_recompute(Ex *x) {
  Sched *s = x->s;
  const Clause *c;
  if (!find_only(&x->in, CL_RECOMPUTE, "recompute", &c))
    return false;
  if (!c)
    return true;
  if (s->model->forward) {
    diag_error(s->diag, DIAG_FORWARD_ONLY, c->at,
               "'recompute' in a forward-only schedule: no op reads a stash");
    diag_note(s->diag, s->model->pipe[0].clause->at, "this pipe is 'forward'");
    return false;
  }
  uint32_t site = add_site(s, x->orders, c->at), n = 0, i = 0,
           *place = NEW_ARRAY(s->arena, uint32_t, (size_t)s->orders->nop + 1);
  Op *to = arena_alloc(
      s->arena, (s->orders->nop + (size_t)s->model->nstage * s->model->nmb) * sizeof *to + 1);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    uint32_t end = s->orders->rank_op0[r + 1];
    x->orders->rank_op0[r] = n;
    while (i < end) {
      uint32_t after = i + 1 + s->orders->op[i].group; /* R stands before a whole action */
      place[i] = n;
      for (uint32_t j = i; j < after; j++) {
        const Op *o = &s->orders->op[j];
        uint32_t slice = o->kind == PIPE_U ? 0 : o->mb % s->model->slices;
        bool first = (o->kind == PIPE_B || o->kind == PIPE_I) && slice + 1 == s->model->slices,
             yes = false;
        /* these read the stashes of all slices, or of all earlier slices */
        if (!first && o->kind != PIPE_R)
          continue;
        if (!wanted(s, c, o, &yes))
          return false;
        for (uint32_t mb = o->mb - slice; yes && mb < o->mb + first; mb++) {
          size_t cell = (size_t)o->stage * s->model->nmb + mb;
          if (s->orders->at_r[cell])
            continue;
          to[n++] = (Op){
              .kind = PIPE_R, .phase = o->phase, .stage = o->stage, .mb = mb, .site = site};
          x->orders->at_r[cell] = n;
        }
      }
      for (; i < after; i++) {
        const Op *o = &s->orders->op[i];
        to[n++] = *o;
        if (o->kind != PIPE_U)
          *op_row(s, o->kind, (size_t)o->stage * s->model->nmb + o->mb) = n;
      }
    }
  }
  x->orders->rank_op0[s->model->nrank] = place[i] = n;
  for (uint32_t k = 0; k < s->orders->ncopy; k++) { /* copies stand between ops */
    Copy *copy = &x->orders->copy[k];
    copy->at = place[copy->at];
    copy->free_by = copy->free_by ? place[copy->free_by - 1] + 1 : 0;
  }
  x->orders->op = to, x->orders->nop = n;
  return true;
}
