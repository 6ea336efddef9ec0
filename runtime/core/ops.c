/* SPDX-License-Identifier: MIT
 * One op, one copy, one transfer, one sum, as every engine of the host executes them, and the
 * messages when one fails. */
#include "checksum.h"
#include "run.h"

#include <stdio.h>
#include <string.h>

PipeOp pr_partner(const PipeProgram *p, const PipeInstr *c, uint32_t *stage) {
  *stage = pipe_other_end(pipe_graph(p), c);
  switch (c->op) {
  case PIPE_SEND_F: return PIPE_RECV_F;
  case PIPE_RECV_F: return PIPE_SEND_F;
  case PIPE_SEND_B: return PIPE_RECV_B;
  default: return PIPE_SEND_B;
  }
}

/* The n tensors in field `at` of an op. */
static void *const *tensors(const RankRun *k, uint32_t at, uint32_t n) {
  return at == PIPE_NONE ? NULL : n > 1 ? &k->listed[at] : &k->slot[at];
}

PrCall pr_call_of(PrRun *run, RankRun *k, const ComputeAt *at, uint64_t step, double *lost) {
  const PipeInstr *c = &k->t->instr[at->index];
  const StageRun *s = &run->stage[c->stage];
  const PipeStage *g = &run->p->stage[c->stage];
  const PipeWeights *w = k->t->weights ? &k->t->weights[at->index] : NULL;
  void *weight = w && w->slot != PIPE_NONE    ? k->slot[w->slot]
                 : w && w->guess != PIPE_NONE ? k->slot[w->guess]
                                              : s->weight;
  uint32_t slices = pipe_slices(run->p);
  PrCall a = {.op = (PipeOp)c->op,
              .rank = k->id,
              .stage = g->model,
              .nstage = run->p->nmodel,
              .mb = c->mb,
              .nmb = run->p->nmb / slices,
              .nslice = slices,
              .step = step,
              .work = k->work,
              .first_grad = (int)at->first_grad,
              .recomputed = (int)at->recomputed,
              .rate = 1,
              .version = w && w->version != PIPE_NONE ? w->version : 0,
              .applied = at->applied,
              .updates = pr_updates_before(run, c->stage, step) + at->updates,
              .nx = g->nin,
              .ny = g->nout};
  bool forward = c->op == PIPE_F || c->op == PIPE_R;
  bool side = pipe_is_side(c->op);
  uint32_t nin = side      ? 0
                 : forward ? g->nin
                           : g->nout,
           nout = side      ? 0
                  : forward ? g->nout
                            : g->nin;
  void *const *ins = tensors(k, c->in, nin), *const *outs = tensors(k, c->out, nout);
  const void *in = ins ? ins[0] : NULL;
  void *out = outs ? outs[0] : NULL;
  if (c->act != PIPE_NONE && !run->m.holds_stash)
    a.act = k->slot[c->act];
  if (!side && c->gout != PIPE_NONE && !run->m.holds_stash)
    a.gout = k->slot[c->gout];
  if (slices > 1 && c->mb != PIPE_NONE) {
    a.mb = c->mb / slices;
    a.slice = c->mb % slices;
    if (a.slice > 0 && c->op != PIPE_W)
      a.past = &(c->op == PIPE_F ? s->act : s->back)[c->mb - a.slice - g->mb0];
  }

  if (pipe_is_side(c->op)) {
    a.side = run->p->side[c->side].name;
    a.op = PIPE_SIDE;
    a.weight = w && c->op != PIPE_SIDE ? NULL : weight; /* a U may run meanwhile */
    a.grad = s->grad, a.opt = s->opt;
    a.taken = c->taken == PIPE_NONE ? NULL : k->slot[c->taken];
    a.given = c->given == PIPE_NONE ? NULL : k->slot[c->given];
    a.taken_bytes = c->taken == PIPE_NONE ? 0 : k->slot_bytes[c->taken];
    a.given_bytes = c->given == PIPE_NONE ? 0 : k->slot_bytes[c->given];
    a.nx = a.ny = 0;
    a.work = NULL;
    return a;
  }
  switch ((PipeOp)c->op) {
  case PIPE_F:
    a.x = in;
    a.y = out;
    a.xs = (const void *const *)ins;
    a.ys = outs;
    a.weight = weight;
    if (s->sink != PIPE_NONE)
      a.loss = &run->loss[step & 1][(size_t)s->sink * run->p->nmb + c->mb];
    break;
  case PIPE_R:
    a.xs = g->nin == 0
               ? NULL
               : (const void *const *)(g->nin > 1 ? &k->listed[at->kept] : &k->slot[c->keep]);
    a.x = g->nin ? *a.xs : NULL;
    a.y = out;
    a.ys = outs;
    a.weight = weight;
    if (g->nout == 0)
      a.loss = lost;
    break;
  case PIPE_B:
    a.dy = in;
    a.dx = out;
    a.dys = (const void *const *)ins;
    a.dxs = outs;
    a.weight = weight;
    a.grad = s->grad;
    break;
  case PIPE_I:
    a.dy = in;
    a.dx = out;
    a.dys = (const void *const *)ins;
    a.dxs = outs;
    a.weight = weight;
    break;
  case PIPE_W: a.grad = s->grad; break;
  case PIPE_U:
    a.newest = weight;
    a.weight = w ? k->slot[w->out] : weight;
    a.grad = s->grad;
    a.opt = s->opt;
    break;
  default: break;
  }
  return a;
}

int pr_call_model(const PrModel *m, const PrCall *a, uint32_t n) {
  if (n > 1)
    return m->overlap(m->self, a, n);
  switch (a->op) {
  case PIPE_F:
  case PIPE_R: return m->forward(m->self, a);
  case PIPE_B: return m->backward(m->self, a);
  case PIPE_I: return m->backward_input(m->self, a);
  case PIPE_W: return m->backward_weight(m->self, a);
  case PIPE_U: return m->update(m->self, a);
  case PIPE_SIDE: return m->side(m->self, a);
  default: return -1; /* not an op of COMPUTE: pipe_validate has refused it */
  }
}

static PrStatus model_failed(PrRun *run, const RankRun *k, const PipeInstr *c, uint64_t step,
                             int code) {
  char where[PR_WHERE];
  return pr_fail(run, PR_E_MODEL, "model: rank %u, step %llu, %s: the callback returned %d", k->id,
                 (unsigned long long)step, pr_where(run, c, where), code);
}

/* True if the instruction is an update with formulas. */
static bool has_rule(const RankRun *k, uint32_t index) {
  return k->t->weights && k->t->instr[index].op == PIPE_U &&
         k->t->weights[index].formula != PIPE_NONE;
}

PrStatus pr_compute(PrRun *run, RankRun *k, const ComputeAt *at, uint64_t step, uint32_t *n) {
  const PipeInstr *c = &k->t->instr[at->index];
  *n = run->m.overlap && c->group > 0 ? c->group + 1u : 1;
  for (uint32_t i = 0; i < *n; i++) {
    PrCall *a = &k->call[i];
    *a = pr_call_of(run, k, &at[i], step, &k->lost[i]);
    if (a->op == PIPE_F && a->loss)
      *a->loss = 0;
    if (a->op == PIPE_F && c[i].keep != PIPE_NONE)
      pr_keep_inputs(run, k, &c[i], a);
    const PipeWeights *read = k->t->weights ? &k->t->weights[at[i].index] : NULL;
    if (read && read->formula != PIPE_NONE && a->op != PIPE_U)
      pr_estimate(run, k, &c[i], read, a);
  }
  PrFaultKind fault = PR_NO_FAULT;
  uint32_t hit = 0; /* index of the op that the fault hits */
  for (uint32_t i = 0; !fault && i < *n; i++)
    fault = pr_fault_at(run, k->id, at[hit = i].index, step);
  if (fault == PR_HANG && pr_failed(run))
    return (PrStatus)atomic_load(&run->status);
  uint64_t start = k->span ? pr_now() - run->epoch_ns : 0;
  for (uint32_t i = 0; i < *n; i++)
    if (has_rule(k, at[i].index))
      pr_before_update(run, k, &c[i], &k->t->weights[at[i].index], &k->call[i]);
  pr_before_ops(run, k, c, *n);
  int code = pr_call_model(&run->m, k->call, *n);
  for (uint32_t i = 0; i < *n && !code; i++)
    if (has_rule(k, at[i].index))
      pr_after_update(run, k, &c[i], &k->t->weights[at[i].index], &k->call[i]);
  uint64_t took = k->span ? pr_now() - run->epoch_ns - start : 0;
  for (uint32_t i = 0; k->span && i < *n; i++) /* the ops share the measured time */
    *pr_span(run, k, step, at[i].index) = (PrSpan){start + took * i / *n,
                                                   start + took * (i + 1) / *n};
  if (code)
    return model_failed(run, k, c, step, code);
  PrStatus st = pr_after_ops(run, k, c, *n, step);
  if (st)
    return st;
  if (fault == PR_CORRUPT)
    *(unsigned char *)(k->call[hit].y ? k->call[hit].y : k->call[hit].dx) ^= 1;
  for (uint32_t i = 0; run->o.on_loss && i < *n; i++)
    if (k->call[i].op == PIPE_F && k->call[i].loss)
      pr_tell_loss(run, step, k->call[i].mb);
  return PR_OK;
}

PrStatus pr_side(PrRun *run, RankRun *k, uint32_t index, uint64_t step) {
  const ComputeAt at = {.index = index};
  PrCall a = pr_call_of(run, k, &at, step, NULL);
  uint64_t start = k->span ? pr_now() - run->epoch_ns : 0;
  int code = run->m.side(run->m.self, &a);
  if (k->span)
    *pr_span(run, k, step, index) = (PrSpan){start, pr_now() - run->epoch_ns};
  return code ? model_failed(run, k, &k->t->instr[index], step, code)
              : pr_after_ops(run, k, &k->t->instr[index], 1, step);
}

PrStatus pr_copy(PrRun *run, RankRun *k, const CopyAt *at, uint64_t step) {
  const PipeInstr *c = &k->t->instr[at->index];
  if (c->op == PIPE_SIDE_COPY)
    return pr_side(run, k, at->index, step);
  bool off = c->op == PIPE_OFF;
  PrSpan *span = k->span ? pr_span(run, k, step, at->index) : NULL;
  if (span)
    span->start_ns = pr_now() - run->epoch_ns;
  void *kept = (c->peer == PIPE_NONE ? k : &run->rank[c->peer])->slot[c->away];
  memcpy(off ? kept : k->slot[c->act], off ? k->slot[c->act] : kept, run->stage[c->stage].size.act);
  if (span)
    span->end_ns = pr_now() - run->epoch_ns;
  return PR_OK;
}

uint64_t pr_moved_bytes(const PrRun *run, const PipeInstr *c) {
  bool down = c->op == PIPE_SEND_F || c->op == PIPE_RECV_B;
  uint32_t owner = down ? c->stage : pipe_other_end(pipe_graph(run->p), c);
  return pr_class_bytes(run, owner, PIPE_OUT, run->p->edge && run->p->edge[c->edge].skip);
}

PrStatus pr_damaged(PrRun *run, uint32_t rank, const PipeInstr *c, uint64_t step) {
  char where[PR_WHERE], partner[PIPE_OP_TEXT];
  PipeInstr other = *c;
  other.op = (uint8_t)pr_partner(run->p, c, &other.stage);
  pipe_instr_text(partner, pipe_graph(run->p), &other);
  return pr_fail(
      run, PR_E_MISMATCH,
      "damaged: rank %u, step %llu: the data of %s differs from the data that %s on rank %u sent",
      rank, (unsigned long long)step, pr_where(run, c, where), partner, c->peer);
}

PrStatus pr_mispaired(PrRun *run, uint32_t src, const PipeInstr *a, uint64_t src_step, uint32_t dst,
                      const PipeInstr *b, uint64_t dst_step) {
  char from[PR_WHERE], to[PR_WHERE];
  return pr_fail(run, PR_E_MISMATCH,
                 "mismatch: rank %u sends %s of step %llu where rank %u expects %s of step %llu",
                 src, pr_where(run, a, from), (unsigned long long)src_step, dst,
                 pr_where(run, b, to), (unsigned long long)dst_step);
}

bool pr_are_ends(const PipeProgram *p, const PipeInstr *a, const PipeInstr *b) {
  uint32_t stage;
  PipeOp op = pr_partner(p, a, &stage);
  return op == b->op && stage == b->stage && a->mb == b->mb && a->edge == b->edge;
}

PrStatus pr_transfer(PrRun *run, const Chan *ch) {
  const Post *send = &ch->post[0], *recv = &ch->post[1];
  const PipeInstr *a = send->c, *b = recv->c;
  if (!pr_are_ends(run->p, a, b) || send->step != recv->step)
    return pr_mispaired(run, send->rank, a, send->step, recv->rank, b, recv->step);
  RankRun *src = &run->rank[send->rank], *dst = &run->rank[recv->rank];
  bool trace = src->span || dst->span;
  uint64_t start = trace ? pr_now() - run->epoch_ns : 0;
  uint64_t bytes = pr_moved_bytes(run, a);
  memcpy(dst->slot[b->out], src->slot[a->in], bytes);
  if (send->corrupt && bytes > 0)
    *(unsigned char *)dst->slot[b->out] ^= 1;
  if (run->o.checksums &&
      pr_checksum(src->slot[a->in], bytes) != pr_checksum(dst->slot[b->out], bytes))
    return pr_damaged(run, recv->rank, b, recv->step);
  if (trace) {
    PrSpan span = {start, pr_now() - run->epoch_ns};
    *pr_span(run, src, send->step, (uint32_t)(a - src->t->instr)) = span;
    *pr_span(run, dst, recv->step, (uint32_t)(b - dst->t->instr)) = span;
  }
  return PR_OK;
}

PrStatus pr_add(PrRun *run, const Coll *l, void *const *grad, uint64_t bytes, uint64_t step) {
  uint32_t own = 0; /* a member of this process */
  while (!pr_is_here(run, run->p->stage[l->row[own]].rank))
    own++;
  const RankRun *here = &run->rank[run->p->stage[l->row[own]].rank];
  const uint64_t behind = pr_sum_behind(here, l, grad, bytes);
  int code = l->tie ? run->m.tie(run->m.self, l->stage, grad, l->ngrad, bytes)
                    : run->m.reduce(run->m.self, l->stage[0], grad, l->ngrad, bytes);
  char where[PR_WHERE], at[PR_WHERE + 40];
  for (uint32_t i = 0; !code && i < l->n; i++) {
    const RankRun *k = &run->rank[run->p->stage[l->row[i]].rank];
    if (!k->contract)
      continue;
    snprintf(at, sizeof at, "step %llu, %s", (unsigned long long)step,
             pr_where(run, &k->t->instr[l->index[i]], where));
    if (pr_check_fences(run, k, at))
      return PR_E_MODEL;
  }
  pr_where(run, &here->t->instr[l->index[own]], where);
  if (code)
    return pr_fail(run, PR_E_MODEL, "model: step %llu, %s: %s returned %d",
                   (unsigned long long)step, where, l->tie ? "tie" : "reduce", code);
  if (behind != pr_sum_behind(here, l, grad, bytes))
    return pr_fail(run, PR_E_MODEL,
                   "model: rank %u, step %llu, %s: wrote behind the end of a piece of a 'grad'",
                   here->id, (unsigned long long)step, where);
  return PR_OK;
}

PrStatus pr_sum(PrRun *run, const Coll *l, uint64_t step) {
  const PipeStage *stage = run->p->stage;
  const PrSizes *size = &run->stage[l->row[0]].size;
  uint64_t bytes = l->tie ? size->tied : size->grad, start = pr_now() - run->epoch_ns;
  PrStatus st = pr_add(run, l, l->grad, bytes, step);
  if (st)
    return st;
  for (uint32_t i = 0; i < l->ncopy; i++)
    memcpy(l->copy[i], l->grad[0], bytes);
  PrSpan span = {start, pr_now() - run->epoch_ns};
  for (uint32_t i = 0; i < l->n; i++) {
    RankRun *k = &run->rank[stage[l->row[i]].rank];
    if (k->span)
      *pr_span(run, k, step, l->index[i]) = span;
  }
  return PR_OK;
}

void pr_step_done(PrRun *run, uint64_t step) {
  run->loss_steps = step + 1;
  if (run->o.on_step)
    run->o.on_step(run->o.arg, step, pr_loss(run));
}
