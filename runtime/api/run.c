/* SPDX-License-Identifier: MIT
 * What every engine needs: opening and closing a run, its memory, one op, one transfer, errors.
 *
 * Memory is taken in pr_open and never again. Each rank has one block (and, if it offloads stashes,
 * a second one for those in host memory), made of its stages' weights,
 * gradients and optimizer states, one workspace, and its slots; every buffer starts on a line of
 * PR_LINE bytes and is accounted as whole lines, so that the sum is PipeRank.bytes of a program
 * with sizes, to the byte. The block is written once, by the rank's thread, before pr_open returns:
 * memory that the operating system cannot provide shows there and not in the middle of a step. */
#include "checkpoint.h"
#include "escape.h"
#include "run.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t pr_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Errors. The first one stays. */

PrStatus pr_fail(PrRun *run, PrStatus st, const char *fmt, ...) {
  pthread_mutex_lock(&run->lock);
  bool first = atomic_load(&run->status) == PR_OK;
  if (first) {
    va_list ap;
    va_start(ap, fmt);
    char text[PR_TEXT];
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    escape_text(run->text, sizeof run->text, ESCAPE_TERMINAL,
                text); /* names, paths, texts of peers */
    atomic_store(&run->has_text, 1);
    if (st != PR_E_IO)
      atomic_store(&run->status, (int)st);
  }
  pthread_mutex_unlock(&run->lock);
  if (first && st != PR_E_IO && run->opened && run->engine->wake)
    run->engine->wake(run);
  return st;
}

const char *pr_error(const PrRun *run) {
  if (!run)
    return "out of memory";
  return atomic_load(&run->has_text) ? run->text : "";
}

const char *pr_note(const PrRun *run) { return run ? run->note : ""; }

const char *pr_where(const PrRun *run, const PipeInstr *c, char buf[PR_WHERE]) {
  char op[PIPE_OP_TEXT];
  const PipeSite *at = &run->p->site[c->site];
  const char *file = run->p->file[at->file];
  size_t len = strlen(file), max = PR_WHERE - PIPE_OP_TEXT - 40;
  pipe_instr_text(op, pipe_graph(run->p), c);
  snprintf(buf, PR_WHERE, "%s (%s:%u:%u)", op, len > max ? file + (len - max) : file, at->line,
           at->col);
  return buf;
}

PipeOp pr_partner(const PipeProgram *p, const PipeInstr *c, uint32_t *stage) {
  *stage = pipe_other_end(pipe_graph(p), c);
  switch (c->op) {
  case PIPE_SEND_F: return PIPE_RECV_F;
  case PIPE_RECV_F: return PIPE_SEND_F;
  case PIPE_SEND_B: return PIPE_RECV_B;
  default: return PIPE_SEND_B;
  }
}

/* The tensors in field `at` of an op that has n of them there. */
static void *const *tensors(const RankRun *k, uint32_t at, uint32_t n) {
  return at == PIPE_NONE ? NULL : n > 1 ? &k->listed[at] : &k->slot[at];
}

/* Instructions */

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
              .rate = 1,
              .version = w && w->version != PIPE_NONE ? w->version : 0,
              .applied = at->applied,
              .updates = step * s->nupdate + at->updates,
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
  if (c->act != PIPE_NONE)
    a.act = k->slot[c->act];
  if (c->gout != PIPE_NONE && !side) /* of a COPY stream: its turn */
    a.gout = k->slot[c->gout];
  if (slices > 1 && c->mb != PIPE_NONE) {
    a.mb = c->mb / slices;
    a.slice = c->mb % slices;
    if (a.slice > 0 && c->op != PIPE_W)
      a.past = &(c->op == PIPE_F ? s->act : s->back)[c->mb - a.slice - g->mb0];
  }

  if (pipe_is_side(c->op)) {
    a.side = run->p->side[c->keep].name;
    a.op = PIPE_SIDE;
    a.weight = w && c->op != PIPE_SIDE ? NULL : weight; /* a U may run meanwhile */
    a.grad = s->grad, a.opt = s->opt;
    a.taken = c->out == PIPE_NONE ? NULL : k->slot[c->out];
    a.given = c->in == PIPE_NONE ? NULL : k->slot[c->in];
    a.taken_bytes = c->out == PIPE_NONE ? 0 : k->slot_bytes[c->out];
    a.given_bytes = c->in == PIPE_NONE ? 0 : k->slot_bytes[c->in];
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
  case PIPE_SIDE: return m->side(m->self, a);
  default: return m->update(m->self, a);
  }
}

static PrStatus model_failed(PrRun *run, const RankRun *k, const PipeInstr *c, uint64_t step,
                             int code) {
  char where[PR_WHERE];
  return pr_fail(run, PR_E_MODEL, "model: rank %u, step %llu, %s: the callback returned %d", k->id,
                 (unsigned long long)step, pr_where(run, c, where), code);
}

/* An update with formulas. */
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
  uint32_t hit = 0; /* which of the ops it meets */
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
  for (uint32_t i = 0; k->span && i < *n; i++) /* side by side */
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
  void *kept = (c->peer == PIPE_NONE ? k : &run->rank[c->peer])->slot[c->keep];
  memcpy(off ? kept : k->slot[c->act], off ? k->slot[c->act] : kept, run->stage[c->stage].size.act);
  if (span)
    span->end_ns = pr_now() - run->epoch_ns;
  return PR_OK;
}

uint64_t pr_moved_bytes(const PrRun *run, const PipeInstr *c) {
  bool down = c->op == PIPE_SEND_F || c->op == PIPE_RECV_B;
  uint32_t owner = down ? c->stage : pipe_other_end(pipe_graph(run->p), c);
  return pr_class_bytes(run, owner, PIPE_OUT, run->p->edge && run->p->edge[c->keep].skip);
}

PrStatus pr_damaged(PrRun *run, uint32_t rank, const PipeInstr *c, uint64_t step) {
  char where[PR_WHERE], partner[PIPE_OP_TEXT];
  PipeInstr other = *c;
  other.op = (uint8_t)pr_partner(run->p, c, &other.stage);
  pipe_instr_text(partner, pipe_graph(run->p), &other);
  return pr_fail(run, PR_E_MISMATCH,
                 "damaged: rank %u, step %llu: what %s has got is not what %s on rank %u has sent",
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
  return op == b->op && stage == b->stage && a->mb == b->mb && a->keep == b->keep;
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
  int code = l->tie ? run->m.tie(run->m.self, l->stage, grad, l->ngrad, bytes)
                    : run->m.reduce(run->m.self, l->stage[0], grad, l->ngrad, bytes);
  char where[PR_WHERE];
  for (uint32_t i = 0; !code && i < l->n; i++) {
    const RankRun *k = &run->rank[run->p->stage[l->row[i]].rank];
    if (k->contract && pr_check_fences(run, k, l->tie ? "tie" : "reduce"))
      return PR_E_MODEL;
  }
  if (!code)
    return PR_OK;
  uint32_t i = 0;
  while (!pr_is_here(run, run->p->stage[l->row[i]].rank))
    i++;
  const RankRun *k = &run->rank[run->p->stage[l->row[i]].rank];
  return pr_fail(run, PR_E_MODEL, "model: step %llu, %s: %s returned %d", (unsigned long long)step,
                 pr_where(run, &k->t->instr[l->index[i]], where), l->tie ? "tie" : "reduce", code);
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

/* Memory */

/* Hands out the slots of host memory, or all others, from at + used on. False: more than 2^60. */
static bool lay_out_slots(PrRun *run, RankRun *k, char *at, bool host, uint64_t *used) {
  const uint64_t limit = UINT64_C(1) << 60;
  for (uint32_t i = 0; i < k->t->npool; i++) {
    const PipePool *l = &k->t->pool[i];
    uint64_t bytes = l->cls == PIPE_BUFFER ? l->bytes
                                           : pr_class_bytes(run, l->stage, l->cls, l->skip);
    uint64_t room = host ? pr_round(bytes) : pr_room(k, NULL, bytes, NULL, 0);
    if ((l->cls == PIPE_HOST) != host)
      continue;
    if (*used > limit || (room && l->count > (limit - *used) / room))
      return false;
    for (uint32_t j = 0; at && j < l->count; j++) {
      k->slot[l->first + j] = at + *used + j * room;
      if (!host)
        pr_room(k, k->slot[l->first + j], bytes, pipe_class_name[l->cls], l->stage);
      k->slot_bytes[l->first + j] = l->bytes;
    }
    if (at && l->cls == PIPE_WEIGHT)
      run->stage[l->stage].weight = k->slot[l->first];
    *used += l->count * room;
  }
  return true;
}

/* Hands out the rank's buffers from `at` on; with at NULL only counts. validate.c limits each size,
 * so that one round of the loop cannot wrap and the test at its end catches a sum too big. */
static bool lay_out(PrRun *run, RankRun *k, char *at, uint64_t *total) {
  const uint64_t limit = UINT64_C(1) << 60;
  uint64_t used = 0, work = 0;
  for (uint32_t i = 0; i < k->nstage; i++) {
    StageRun *g = &run->stage[k->stage[i]];
    uint32_t states = run->p->stage[k->stage[i]].states;
    uint64_t own = k->t->weights ? 0 : g->size.weight; /* versions are in slots */
    const uint64_t bytes[4] = {own, g->size.grad, g->size.opt,
                               (uint64_t)__builtin_popcount(states) * pr_round(g->size.weight)};
    static const char *const what[4] = {"weight", "grad", "opt", "state"};
    void **ptr[4] = {&g->weight, &g->grad, &g->opt, &g->state};
    for (int j = 0; j < 4; j++) {
      if (at)
        *ptr[j] = at + used;
      used += pr_room(k, at ? at + used : NULL, bytes[j], what[j], k->stage[i]);
    }
    work = g->size.work > work ? g->size.work : work;
    if (used > limit)
      return false;
  }
  if (at)
    k->work = at + used;
  used += pr_room(k, at ? at + used : NULL, work, "work", PIPE_NONE);
  *total = 0;
  if (!lay_out_slots(run, k, at, false, &used))
    return false;
  *total = used;
  return true;
}

static void *take(PrRun *run, uint64_t bytes, bool host) {
  return run->engine->take ? run->engine->take(run, bytes, host) : aligned_alloc(PR_LINE, bytes);
}

static void give(PrRun *run, void *p, bool host) {
  if (p && run->engine->take)
    run->engine->give(run, p, host);
  else
    free(p);
}

static PrStatus take_memory(PrRun *run, RankRun *k) {
  const PipeRank *t = k->t;
  if (!lay_out(run, k, NULL, &k->bytes) || !lay_out_slots(run, k, NULL, true, &k->host_bytes))
    return pr_fail(run, PR_E_MEMORY, "rank %u asks for more than 2^60 bytes", k->id);
  if (run->p->sized && k->bytes != t->bytes)
    return pr_fail(run, PR_E_ARG, "program: rank %u needs %llu bytes, but %llu were proved", k->id,
                   (unsigned long long)k->bytes, (unsigned long long)t->bytes);
  if (run->p->sized && k->host_bytes != t->host)
    return pr_fail(run, PR_E_ARG, "program: rank %u needs %llu bytes of host memory, not %llu",
                   k->id, (unsigned long long)k->host_bytes, (unsigned long long)t->host);
  if (run->o.trace_steps) {
    k->span = calloc(run->trace_slots, (t->ninstr + (size_t)1) * sizeof *k->span);
    k->view = calloc(run->o.trace_steps, (t->ninstr + (size_t)1) * sizeof *k->view);
    if (!k->span || !k->view)
      return pr_fail(run, PR_E_MEMORY, "no memory for the trace of rank %u", k->id);
  }
  if (!pr_is_here(run, k->id))
    return PR_OK;
  PrStatus st = pr_take_contract(run, k);
  if (st)
    return st;
  lay_out(run, k, NULL, &k->block_bytes);
  uint32_t most = 1;
  for (uint32_t i = 0; i < t->ninstr; i++)
    most = t->instr[i].group + 1u > most ? t->instr[i].group + 1u : most;
  k->call = calloc(most, sizeof *k->call);
  k->lost = calloc(most, sizeof *k->lost);
  k->slot = calloc((size_t)t->nslot + 1, sizeof *k->slot);
  k->slot_bytes = calloc((size_t)t->nslot + 1, sizeof *k->slot_bytes);
  /* A line more than needed: a buffer of no bytes at the end has an address, too. */
  k->block = take(run, k->block_bytes + PR_LINE, false);
  k->listed = calloc((size_t)t->nlist + pr_count_kept(run, k) + 1, sizeof *k->listed);
  bool ok = k->slot && k->slot_bytes && k->listed && k->block && k->call && k->lost;
  if (k->ncopy > 0) {
    k->host = take(run, k->host_bytes + PR_LINE, true);
    ok = ok && k->host;
  }
  if (!ok)
    return pr_fail(run, PR_E_MEMORY, "no memory for rank %u: %llu bytes of tensors", k->id,
                   (unsigned long long)(k->bytes + k->host_bytes));
  uint64_t total, host = 0;
  lay_out(run, k, k->block, &total);
  lay_out_slots(run, k, k->host, true, &host);
  for (uint32_t i = 0; i < t->nlist; i++)
    k->listed[i] = k->slot[t->list[i]];
  pr_point_kept(run, k);
  return PR_OK;
}

PrStatus pr_init_rank(PrRun *run, RankRun *k) {
  if (!run->engine->take)
    memset(k->block, 0, k->block_bytes + PR_LINE);
  if (k->host && !run->engine->take)
    memset(k->host, 0, k->host_bytes + PR_LINE);
  pr_fill_fences(k);
  for (uint32_t i = 0; i < k->nstage; i++) {
    uint32_t s = k->stage[i];
    int code = run->m.init(run->m.self, run->p->stage[s].model, run->stage[s].weight,
                           run->p->forward ? NULL : run->stage[s].opt);
    if (code)
      return pr_fail(run, PR_E_MODEL, "model: init of stage %u returned %d", s, code);
  }
  return pr_check_fences(run, k, "init");
}

/* Gives each rank its rows of the stage table: stage s is number `chunk` of them. */
static PrStatus take_stages(PrRun *run) {
  const PipeProgram *p = run->p;
  uint32_t *row = run->rank_stage = malloc(p->nstage * sizeof *row);
  if (!row)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u stages", p->nstage);
  for (uint32_t s = 0; s < p->nstage; s++)
    run->rank[p->stage[s].rank].nstage++;
  for (uint32_t r = 0; r < p->nrank; row += run->rank[r++].nstage)
    run->rank[r].stage = row;
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    run->rank_stage[run->rank[g->rank].stage - run->rank_stage + g->chunk] = s;
  }
  return PR_OK;
}

/* Runs */

/* The stages of the model without output, ascending: rows 0 .. nmodel - 1 are the first of each. */
static void find_sinks(PrRun *run) {
  const PipeProgram *p = run->p;
  uint32_t nsource = 0;
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    if (g->nout == 0)
      run->loss_rank = g->rank;
    run->stage[s].sink = g->nout > 0     ? PIPE_NONE
                         : s < p->nmodel ? run->nsink++
                                         : run->stage[g->model].sink;
    nsource += s < p->nmodel && g->nin == 0;
  }
  run->free_running = run->o.free_running && run->nsink == 1 && nsource == 1;
}

uint64_t pr_limit(const PrRun *run, uint64_t predicted_ns) {
  const uint64_t second = 1000000000, least = 30 * second, most = 1000000000 * second;
  if (run->o.deadline_s > 0) {
    double ns = run->o.deadline_s * 1e9;
    return ns < 1 ? 1 : (uint64_t)ns;
  }
  if (!run->p->timed)
    return 600 * second;
  return predicted_ns < least / 10 ? least : predicted_ns > most / 10 ? most : 10 * predicted_ns;
}

/* The prediction, for the cores that there are. */
static uint64_t predicted(const PipeProgram *p) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  uint64_t shared = p->busy / (uint64_t)(cores > 0 ? cores : 1);
  return shared > p->makespan ? shared : p->makespan;
}

/* PIPE_DEADLINE, if the program does not say itself. */
static PrStatus read_deadline(PrRun *run) {
  const char *asked = getenv("PIPE_DEADLINE");
  double *s = &run->o.deadline_s;
  char *end = "";
  if (asked && *s == 0)
    *s = strtod(asked, &end);
  if (*end || (asked && *s == 0))
    return pr_fail(run, PR_E_ARG, "PIPE_DEADLINE is '%.100s', not seconds", asked);
  if (!(*s >= 0) || *s > 1e9)
    return pr_fail(run, PR_E_ARG, "options: deadline_s is %g", *s);
  return PR_OK;
}

/* Checks, and all that does not depend on the engine. */
static PrStatus open_here(PrRun *run) {
  const PipeProgram *p = run->p;
  const PrOptions *o = &run->o;
  PrStatus st;
  if ((st = read_deadline(run)))
    return st;
  if (o->seed && o->engine)
    return pr_fail(run, PR_E_ARG, "options: a seed and an engine");
  if ((st = pr_validate(run)))
    return st;
  if (run->here != PIPE_NONE && run->nprocess != p->nrank)
    return run->nprocess == 1
               ? pr_fail(run, PR_E_ARG,
                         "program: %s %s has %u ranks, but 1 process runs it; start it with mpirun "
                         "-np %u",
                         p->name, p->params, p->nrank, p->nrank)
               : pr_fail(run, PR_E_ARG, "program: %s %s has %u rank%s, but %u processes run it",
                         p->name, p->params, p->nrank, p->nrank == 1 ? "" : "s", run->nprocess);
  if ((st = pr_fault_read(run)))
    return st;
  run->trace_slots = (uint64_t)o->trace_steps +
                     2; /* free-running ranks are up to two steps apart */
  run->rank = aligned_alloc(PR_LINE, p->nrank * sizeof *run->rank);
  find_sinks(run);
  run->loss[0] = calloc((size_t)run->nsink * p->nmb, sizeof(double));
  run->loss[1] = calloc((size_t)run->nsink * p->nmb, sizeof(double));
  if (!run->rank)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u ranks", p->nrank);
  memset(run->rank, 0, p->nrank * sizeof *run->rank);
  bool ok = run->loss[0] && run->loss[1];
  for (int i = 0; i < 2 && o->on_loss && ok; i++) {
    run->left[i] = calloc(p->nmb, sizeof *run->left[i]);
    ok = run->left[i] != NULL;
    for (uint32_t m = 0; ok && m < p->nmb / pipe_slices(p); m++)
      atomic_init(&run->left[i][m], run->nsink * pipe_slices(p));
  }
  if (!ok)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u losses", p->nmb);
  for (uint32_t r = 0; r < p->nrank; r++) {
    RankRun *k = &run->rank[r];
    k->run = run;
    k->t = &p->rank[r];
    k->id = r;
    atomic_init(&k->step_start, UINT64_MAX);
  }
  if ((st = take_stages(run)) || (st = pr_take_streams(run)) || (st = pr_count_updates(run)))
    return st;
  for (uint32_t r = 0; r < p->nrank; r++)
    if ((st = take_memory(run, &run->rank[r])))
      return st;
  if ((st = pr_take_sums(run)) || (st = pr_take_stashes(run)) || (st = pr_take_turns(run)))
    return st;
  run->epoch_ns = pr_now();
  run->limit_ns = pr_limit(run, predicted(p));
  return PR_OK;
}

static PrStatus agree(PrRun *run, PrStatus st) {
  return run->engine->agree ? run->engine->agree(run, st) : st;
}

static PrStatus open_run(PrRun *run) {
  PrStatus st;
  run->engine = run->o.seed ? &pr_seeded : run->o.engine ? run->o.engine : &pr_threads;
  run->here = PIPE_NONE;
  run->nprocess = 1;
  if (run->engine->join && (st = run->engine->join(run)))
    return st;
  if ((st = agree(run, open_here(run))))
    return st;
  run->opened = true;
  return run->engine->open(run);
}

PrStatus pr_open(PrRun **out, const PipeProgram *p, const PrModel *m, const PrOptions *o) {
  PrRun *run = *out = aligned_alloc(PR_LINE, sizeof *run);
  if (!run)
    return PR_E_MEMORY;
  memset(run, 0, sizeof *run);
  pthread_mutex_init(&run->lock, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&run->cond, &attr);
  pthread_condattr_destroy(&attr);
  run->p = p;
  if (m)
    run->m = *m;
  if (o)
    run->o = *o;
  return open_run(run);
}

PrStatus pr_steps(PrRun *run, uint64_t n) {
  if (!run)
    return PR_E_MEMORY;
  PrStatus st = (PrStatus)atomic_load(&run->status);
  if (st || n == 0)
    return st;
  return run->engine->steps(run, n);
}

void *pr_weight(PrRun *run, uint32_t stage) {
  bool fine = run->stage && stage < run->p->nstage && !pr_failed(run);
  return fine ? run->stage[stage].weight : NULL;
}

PrStatus pr_copy_weight(PrRun *run, uint32_t stage, void *to) {
  PrStatus st = (PrStatus)atomic_load(&run->status);
  if (st || !run->stage || stage >= run->p->nstage)
    return st ? st : PR_E_ARG;
  uint64_t bytes = run->stage[stage].size.weight;
  if (run->stage[stage].weight && run->engine->take)
    st = run->engine->fetch(run, to, run->stage[stage].weight, bytes);
  else if (run->stage[stage].weight)
    memcpy(to, run->stage[stage].weight, bytes);
  if (st)
    return st;
  return run->engine->share ? run->engine->share(run, run->p->stage[stage].rank, to, bytes) : PR_OK;
}

uint64_t pr_steps_done(const PrRun *run) { return run->rank ? atomic_load(&run->rank[0].step) : 0; }

int pr_exit_status(PrStatus st) {
  enum { GO_ON_LATER = 75 }; /* EX_TEMPFAIL of sysexits.h */
  bool again = st == PR_E_LOST || st == PR_E_DEADLINE || st == PR_E_STALL || st == PR_E_MISMATCH;
  return again ? GO_ON_LATER : st != PR_OK;
}

uint32_t pr_rank(const PrRun *run) { return run->here; }

int pr_leads(const PrRun *run) { return pr_is_here(run, 0); }

uint64_t pr_bytes(const PrRun *run, uint32_t rank) {
  return run->rank && rank < run->p->nrank ? run->rank[rank].bytes : 0;
}

uint64_t pr_host_bytes(const PrRun *run, uint32_t rank) {
  return run->rank && rank < run->p->nrank ? run->rank[rank].host_bytes : 0;
}

const PipeProgram *pr_program(const PrRun *run) { return run->p; }

void pr_close(PrRun *run) {
  if (!run)
    return;
  if (run->engine->close)
    run->engine->close(run);
  for (uint32_t r = 0; run->rank && r < run->p->nrank; r++) {
    RankRun *k = &run->rank[r];
    free(k->compute);
    free(k->comm);
    free(k->copy);
    free(k->place);
    free(k->need0[0]);
    free(k->need);
    give(run, k->host, true);
    free(k->slot);
    free(k->slot_bytes);
    free(k->listed);
    free(k->call);
    free(k->lost);
    give(run, k->block, false);
    free(k->span);
    free(k->view);
    pr_give_contract(k);
  }
  ck_leave_folders(run);
  free(run->rank);
  free(run->chan);
  free(run->stream);
  free(run->coll);
  free(run->coll_block);
  free(run->turns);
  free(run->turn_rank);
  free(run->act);
  free(run->kept);
  free(run->stage);
  free(run->rank_stage);
  free(run->loss[0]);
  free(run->loss[1]);
  free(run->left[0]);
  free(run->left[1]);
  pthread_cond_destroy(&run->cond);
  pthread_mutex_destroy(&run->lock);
  free(run);
}
