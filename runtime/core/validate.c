/* SPDX-License-Identifier: MIT
 * Is this table a program of this ABI, and does this model fit it? What passes here runs without
 * touching memory outside the slots and without a race: every index is in range, every slot has the
 * size of the tensor put into it, each (stage, mb) has its ops in order, and the waits make sure
 * that a slot is full before it is read and has been read before it is filled again. What remains
 * for run time is what two ranks do to each other: a stall, or a mismatched transfer.
 *
 * Only pointers and the lengths of the arrays behind them are taken on trust. Linear in
 * instructions. */
#include "validate.h"

#include <stdlib.h>
#include <string.h>

static PrStatus check_head(PrRun *run) {
  const PipeProgram *p = run->p;
  if (!p)
    return FAIL(run, "no program");
  if (p->magic != PIPE_MAGIC)
    return FAIL(run, "program: magic is 0x%08x, not 0x%08x", p->magic, PIPE_MAGIC);
  if (p->abi != PIPE_ABI)
    return FAIL(run, "program: made for ABI %u, this runtime has %u: recompile the .pipe file",
                p->abi, PIPE_ABI);
  if (!p->name || !p->params || !p->rank || !p->stage || (p->nsite && !p->site) ||
      (p->nfile && !p->file) || (p->nside && !p->side) || !p->edge != !p->row ||
      (p->nedge && !p->edge) || (p->nshare && !p->share) || !p->channel != !p->nchannel)
    return FAIL(run, "program: a table is missing");
  if (p->nrank == 0 || p->nstage == 0 || p->nmb == 0)
    return FAIL(run, "program: %u ranks, %u stages, %u microbatches: none may be 0", p->nrank,
                p->nstage, p->nmb);
  if (p->nmodel == 0 || p->nmodel > p->nstage)
    return FAIL(run, "program: %u stages of the model, %u in all", p->nmodel, p->nstage);
  if (p->nrank > p->nstage)
    return FAIL(run, "program: %u ranks but only %u stages", p->nrank, p->nstage);
  if (p->lowering >= PIPE_NLOWERINGS)
    return FAIL(run, "program: lowering %u of %u", p->lowering, (uint32_t)PIPE_NLOWERINGS);
  if (p->nchannel && p->lowering != PIPE_CHANNELS)
    return FAIL(run, "program: %u channels, and lowering %u has none", p->nchannel, p->lowering);
  for (uint32_t i = 0; i < p->nchannel; i++) {
    const PipeChannel *c = &p->channel[i];
    bool moves = c->op == PIPE_SEND_F || c->op == PIPE_SEND_B;
    if ((!moves && c->op != PIPE_REDUCE && c->op != PIPE_SIDE_COMM) || c->from >= p->nrank ||
        (moves ? c->to >= p->nrank || c->to == c->from : c->to != PIPE_NONE))
      return FAIL(run, "program: channel %u: op %u from rank %u to rank %u", i, c->op, c->from,
                  c->to);
  }
  if (p->sized > 1 || p->timed > 1 || p->forward > 1)
    return FAIL(run, "program: sized is %u, timed is %u, forward is %u: each is 0 or 1", p->sized,
                p->timed, p->forward);
  if (p->nmb % pipe_slices(p))
    return FAIL(run, "program: %u units are not microbatches of %u slices", p->nmb, p->slices);
  for (uint32_t i = 0; i < p->nfile; i++)
    if (!p->file[i])
      return FAIL(run, "program: file %u has no name", i);
  for (uint32_t i = 0; i < p->nside; i++)
    if (!p->side[i].name || !pipe_is_side(p->side[i].op) || p->side[i].stage >= p->nstage ||
        p->side[i].bytes > SIZE_LIMIT)
      return FAIL(run, "program: side %u is of op %u and stage %u, and takes %llu bytes", i,
                  p->side[i].op, p->side[i].stage, (unsigned long long)p->side[i].bytes);
  for (uint32_t i = 0; i < p->nsite; i++)
    if (p->site[i].file >= p->nfile)
      return FAIL(run, "program: site %u is in file %u of %u", i, p->site[i].file, p->nfile);
  return PR_OK;
}

static PrStatus check_sizes(PrRun *run) {
  static const char *const what[] = {"act", "gout", "boundary", "weight", "grad",
                                     "opt", "work", "edge",     "tied"};
  const PipeProgram *p = run->p;
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    PrSizes z = run->m.sizes(run->m.self, g->model);
    if (p->forward)
      z.gout = z.grad = z.opt = z.tied = 0;
    run->stage[s].size = z;
    const uint64_t have[] = {z.act, z.gout, z.boundary, z.weight, z.grad,
                             z.opt, z.work, z.edge,     z.tied};
    const uint64_t want[] = {g->act_bytes,    g->gout_bytes, g->boundary_bytes,
                             g->weight_bytes, g->grad_bytes, g->opt_bytes,
                             g->work_bytes,   g->edge_bytes, g->tied_bytes};
    for (size_t i = 0; i < sizeof have / sizeof *have; i++) {
      if (have[i] > SIZE_LIMIT)
        return FAIL(run, "model: stage %u asks for %llu bytes of %s", s,
                    (unsigned long long)have[i], what[i]);
      if (p->sized && have[i] != want[i])
        return pr_fail(run, PR_E_SIZE,
                       "stage %u: the model has %llu bytes of %s, the program was proved with %llu",
                       s, (unsigned long long)have[i], what[i], (unsigned long long)want[i]);
    }
    if (g->tied != PIPE_NONE && z.tied > z.grad)
      return FAIL(run, "model: stage %u shares %llu bytes of %llu of gradients", s,
                  (unsigned long long)z.tied, (unsigned long long)z.grad);
  }
  for (uint32_t s = 0; s < p->nstage; s++) { /* all that are tied share as much */
    const PipeStage *g = &p->stage[s];
    uint32_t q = g->tied == PIPE_NONE ? s : p->stage[g->tied].tie;
    if (run->stage[s].size.tied != run->stage[q].size.tied && g->tied != PIPE_NONE)
      return FAIL(run, "model: stages %u and %u are tied, but share %llu and %llu bytes", s, q,
                  (unsigned long long)run->stage[s].size.tied,
                  (unsigned long long)run->stage[q].size.tied);
  }
  return PR_OK;
}

static PrStatus check_model(PrRun *run) {
  const PrModel *m = &run->m;
  if (!m->sizes || !m->init || !m->forward || (!m->update && !run->p->forward))
    return FAIL(run, "model: sizes, init, forward and update may not be NULL");
  if (m->identity && strchr(m->identity, '\n'))
    return FAIL(run, "model: its identity has more than one line");
  uint32_t nslice = m->nslice > 1 ? m->nslice : 1;
  if (nslice != pipe_slices(run->p))
    return FAIL(run, "model is written for %u slices, the program has %u", nslice,
                pipe_slices(run->p));
  if (m->nstage != run->p->nmodel)
    return FAIL(run, "model has %u stages, the program %u", m->nstage, run->p->nmodel);
  if (run->p->nmodel < run->p->nstage && !run->p->forward && !m->reduce)
    return FAIL(run, "model: the program has replicas, so reduce may not be NULL");
  if (run->p->nside > 0 && !m->side)
    return FAIL(run, "model: the program has side ops (%s), so side may not be NULL",
                run->p->side[0].name);
  for (uint32_t s = 0; s < run->p->nstage && !m->tie; s++)
    if (run->p->stage[s].tied != PIPE_NONE)
      return FAIL(run, "model: the program ties stages, so tie may not be NULL");
  return PR_OK;
}

static PrStatus check_pools(Check *k, const PipeRank *t) {
  const PipeProgram *p = k->p;
  uint32_t next = 0;
  for (uint32_t i = 0; i < t->npool; i++) {
    const PipePool *l = &t->pool[i];
    if (l->cls >= PIPE_NCLASSES || l->stage >= p->nstage ||
        l->skip > (l->cls >= PIPE_OUT && l->cls <= PIPE_LOCAL && p->edge))
      return FAIL(k->run, "program: rank %u pool %u: class %u, stage %u: out of range", k->rank, i,
                  l->cls, l->stage);
    if (l->first != next || l->count == 0 || l->count > t->nslot - next)
      return FAIL(k->run, "program: rank %u pool %u: %u slots from %u, expected some from %u of %u",
                  k->rank, i, l->count, l->first, next, t->nslot);
    /* The sizes of the program are the model's, see check_sizes. */
    bool buffer = l->cls == PIPE_BUFFER; /* the program alone says its size */
    uint64_t want = p->sized && !buffer ? pr_class_bytes(k->run, l->stage, l->cls, l->skip) : 0;
    if (buffer ? l->bytes > SIZE_LIMIT : l->bytes != want)
      return FAIL(k->run, "program: rank %u pool %u: slots of %llu bytes for tensors of %llu",
                  k->rank, i, (unsigned long long)l->bytes, (unsigned long long)want);
    for (uint32_t j = 0; j < l->count; j++)
      k->slot[next++].pool = l;
  }
  if (next != t->nslot)
    return FAIL(k->run, "program: rank %u has %u slots but pools for %u", k->rank, t->nslot, next);
  return PR_OK;
}

/* `slot` must be of class cls and hold a tensor as `stage` has it, or be PIPE_NONE if there is no
 * such tensor (stage PIPE_NONE). Without sizes in the program the model's decide. */
static PrStatus check_slot(Check *k, const PipeInstr *c, const char *field, uint32_t slot,
                           PipeClass cls, uint32_t stage, bool skip) {
  const PipeRank *t = &k->p->rank[k->rank];
  if (stage == PIPE_NONE) {
    if (slot != PIPE_NONE)
      FAIL_AT(k, c, "field %s is slot %u, but there is nothing to hold", field, slot);
    return PR_OK;
  }
  if (slot >= t->nslot)
    FAIL_AT(k, c, "field %s is slot %u of %u", field, slot, t->nslot);
  const PipePool *l = k->slot[slot].pool;
  if (l->skip != skip)
    FAIL_AT(k, c, "field %s is slot %u, %s", field, slot,
            skip ? "which is for the chain" : "which is not for the chain");
  if (l->cls != (uint32_t)cls)
    FAIL_AT(k, c, "field %s is slot %u of class %s, expected %s", field, slot,
            pipe_class_name[l->cls], pipe_class_name[cls]);
  uint64_t a = pr_class_bytes(k->run, l->stage, cls, skip);
  uint64_t b = pr_class_bytes(k->run, stage, cls, skip);
  if (a != b)
    FAIL_AT(k, c, "field %s: slot %u has %llu bytes for a tensor of %llu", field, slot,
            (unsigned long long)a, (unsigned long long)b);
  return PR_OK;
}

PrStatus pr_check_turn(Check *k, const PipeInstr *c, uint32_t at, bool reads) {
  uint32_t on = pipe_op_info[c->op].stream;
  Slot *slot = &k->slot[at];
  for (uint32_t x = 0; x < PIPE_NSTREAMS; x++)
    if ((x != on || (x == PIPE_COMM && k->events && slot->touched[x] <= k->done[x])) &&
        slot->touched[x] > 0 && !is_over(k, c, (PipeOn)x, slot->touched[x]))
      FAIL_AT(k, c, "does not wait until slot %u is %s", at, reads ? "full" : "free");
  slot->touched[on] = k->done[on] + 1;
  return PR_OK;
}

/* A tensor in slot `at`, of field `in` (reads) or `out`: what passes by p. */
static PrStatus check_passage(Check *k, const PipeInstr *c, Passage p, uint32_t at, bool gradient,
                              bool reads) {
  const char *field = reads ? "in" : "out";
  bool comm = pipe_op_info[c->op].comm, skip = p.edge != PIPE_NONE && k->p->edge[p.edge].skip;
  PipeClass cls = reads == comm ? PIPE_OUT : PIPE_IN; /* SEND reads OUT; F, B and I read IN */
  if (k->p->stage[p.other].rank == k->rank)
    cls = PIPE_LOCAL;
  PrStatus st = check_slot(k, c, field, at, cls, p.owner, skip);
  if (st)
    return st;

  Slot *slot = &k->slot[at];
  if (reads && (!slot->full || slot->gradient != gradient || slot->owner != p.owner ||
                slot->mb != c->mb || slot->edge != p.edge))
    FAIL_AT(k, c, "slot %u does not hold what it reads", at);
  if (!reads && slot->full)
    FAIL_AT(k, c, "fills slot %u, which is in use", at);
  slot->full = !reads, slot->gradient = gradient;
  slot->owner = p.owner, slot->mb = c->mb, slot->edge = p.edge;
  return pr_check_turn(k, c, at, reads);
}

/* A slot that R writes an output to, and that nobody reads. */
static PrStatus check_scratch(Check *k, const PipeInstr *c, uint32_t at, uint32_t edge) {
  bool skip = edge != PIPE_NONE && k->p->edge[edge].skip;
  PrStatus st = check_slot(k, c, "out", at, PIPE_LOCAL, c->stage, skip);
  if (st)
    return st;
  if (k->slot[at].full)
    FAIL_AT(k, c, "fills slot %u, which is in use", at);
  return pr_check_turn(k, c, at, false);
}

/* The tensors in field `in` (reads) or `out`. X and DX belong to the boundary with the stages before, Y
 * and DY to that with the stages after. A transfer has the one of its edge, an op all. */
static PrStatus check_tensors(Check *k, const PipeInstr *c, PipeTensor tensor, bool reads) {
  const char *field = reads ? "in" : "out";
  const PipeStage *g = &k->p->stage[c->stage];
  const PipeRank *t = &k->p->rank[k->rank];
  bool scratch = tensor == PIPE_T_SCRATCH,
       down = tensor == PIPE_T_Y || tensor == PIPE_T_DY || scratch;
  bool gradient = tensor == PIPE_T_DX || tensor == PIPE_T_DY;
  uint32_t at = reads ? c->in : c->out, n = down ? g->nout : g->nin;
  if (tensor == PIPE_T_NONE || n == 0)
    return check_slot(k, c, field, at, PIPE_IN, PIPE_NONE, false);
  if (pipe_op_info[c->op].comm) {
    uint32_t i = !k->p->edge ? 0 : down ? k->p->edge[c->keep].out : k->p->edge[c->keep].in;
    return check_passage(k, c, passage(k, c->stage, c->mb, down, i), at, gradient, reads);
  }
  if (n > 1 && (at > t->nlist || n > t->nlist - at))
    FAIL_AT(k, c, "field %s: %u slots from %u on in a list of %u", field, n, at, t->nlist);
  for (uint32_t i = 0; i < n; i++) {
    Passage p = passage(k, c->stage, c->mb, down, i);
    uint32_t slot = n > 1 ? t->list[at + i] : at;
    PrStatus st = scratch ? check_scratch(k, c, slot, p.edge)
                          : check_passage(k, c, p, slot, gradient, reads);
    if (st)
      return st;
  }
  return PR_OK;
}

static PrStatus check_peer(Check *k, const PipeInstr *c) {
  const PipeStage *g = &k->p->stage[c->stage];
  if (pipe_op_info[c->op].stream == PIPE_COPY)
    return PR_OK; /* see check_guest */
  if (!pipe_op_info[c->op].comm || pipe_is_sum(c->op)) {
    if (c->peer != PIPE_NONE)
      FAIL_AT(k, c, "has peer %u", c->peer);
    return PR_OK;
  }
  bool down = c->op == PIPE_SEND_F || c->op == PIPE_RECV_B;
  if ((down ? g->nout : g->nin) == 0)
    FAIL_AT(k, c, "stage %u has no stage on that side", c->stage);
  if (k->p->edge && c->keep >= k->p->nedge)
    FAIL_AT(k, c, "edge %u of %u", c->keep, k->p->nedge);
  if (k->p->edge && (down ? k->p->edge[c->keep].from : k->p->edge[c->keep].to) != g->model)
    FAIL_AT(k, c, "edge %u is not of stage %u", c->keep, g->model);
  uint32_t other = pipe_other_end(pipe_graph(k->p), c);
  if (c->peer == k->rank || c->peer != k->p->stage[other].rank)
    FAIL_AT(k, c, "peer is rank %u, but stage %u is on rank %u", c->peer, other,
            k->p->stage[other].rank);
  return PR_OK;
}

/* Takes or gives back the stash slot that op does, and checks that it is the one of (stage, mb). */
static PrStatus check_stash(Check *k, const PipeInstr *c, const char *field, uint32_t slot,
                            int effect, uint32_t *held) {
  if (effect > 0) {
    if (k->slot[slot].full)
      FAIL_AT(k, c, "takes %s slot %u, which is in use", field, slot);
    k->slot[slot].full = true;
    *held = slot;
  } else if (slot != *held) {
    FAIL_AT(k, c, "%s slot is %u, but the one taken is %u", field, slot, *held);
  } else if (effect < 0) {
    k->slot[slot].full = false;
  }
  return pr_check_turn(k, c, slot, effect <= 0);
}

/* Does the COMM instruction at hand come after number `count` of COMM in its stream? */
static bool follows(const Check *k, uint32_t count) {
  return !k->events || pr_events_know(k->events, k->index, PIPE_COMM, count);
}

/* F, perhaps R, then B, or I and W; each once; OFF and LOAD between them. Transfers have their order from the slots;
 * here each once. */
static PrStatus check_order(Check *k, const PipeInstr *c) {
  static const uint32_t before[PIPE_NOPS] = {
      [PIPE_B] = SEEN(F), [PIPE_I] = SEEN(F),   [PIPE_W] = SEEN(F) | SEEN(I),
      [PIPE_R] = SEEN(F), [PIPE_OFF] = SEEN(F), [PIPE_LOAD] = SEEN(OFF)};
  static const uint32_t never[PIPE_NOPS] = {[PIPE_B] = SEEN(I),
                                            [PIPE_I] = SEEN(B),
                                            [PIPE_R] = SEEN(B) | SEEN(I),
                                            [PIPE_OFF] = SEEN(B) | SEEN(W)};
  if (k->p->forward && c->op != PIPE_F && c->op != PIPE_SEND_F && c->op != PIPE_RECV_F)
    FAIL_AT(k, c, "stands in a program that only runs forward, stage %u", c->stage);
  if (c->op == PIPE_REDUCE) {
    if (k->p->stage[c->stage].replica == c->stage)
      FAIL_AT(k, c, "stage %u has no replicas", c->stage);
    if (!k->graded[c->stage] || !is_over(k, c, PIPE_COMPUTE, k->graded[c->stage]))
      FAIL_AT(k, c, "does not wait for the gradients of stage %u", c->stage);
    if (k->reduced[c->stage])
      FAIL_AT(k, c, "stage %u is reduced twice", c->stage);
    k->reduced[c->stage] = k->done[PIPE_COMM] + 1;
    return PR_OK;
  }
  if (c->op == PIPE_TIE) {
    if (k->p->stage[c->stage].tied != c->stage)
      FAIL_AT(k, c, "stage %u has no TIE", c->stage);
    for (uint32_t s = c->stage; s < k->p->nstage; s++) {
      const PipeStage *g = &k->p->stage[s];
      if (g->tied != c->stage)
        continue;
      if (k->tied[s])
        FAIL_AT(k, c, "stage %u is tied twice", s);
      if (!k->graded[s] || !is_over(k, c, PIPE_COMPUTE, k->graded[s]) ||
          (g->replica != s && (!k->reduced[s] || !follows(k, k->reduced[s]))))
        FAIL_AT(k, c, "does not wait for the gradients of stage %u", s);
      k->tied[s] = k->done[1] + 1;
    }
    return PR_OK;
  }
  if (c->op == PIPE_U) {
    if (k->p->stage[c->stage].tied != PIPE_NONE &&
        (!k->tied[c->stage] || !is_over(k, c, PIPE_COMM, k->tied[c->stage])))
      FAIL_AT(k, c, "does not wait for the sum over the stages tied to stage %u", c->stage);
    if (k->p->stage[c->stage].replica != c->stage &&
        (!k->reduced[c->stage] || !is_over(k, c, PIPE_COMM, k->reduced[c->stage])))
      FAIL_AT(k, c, "does not wait for the sum over the replicas of stage %u", c->stage);
    if (!k->graded[c->stage])
      FAIL_AT(k, c, "stage %u has no gradient to apply", c->stage);
    if (c->mb != PIPE_NONE && !(seen_of(k, c->stage, c->mb)->ops & (SEEN(B) | SEEN(W))))
      FAIL_AT(k, c, "microbatch %u has no gradient yet", c->mb);
    k->graded[c->stage] = k->reduced[c->stage] = k->tied[c->stage] = 0;
    k->updates[c->stage]++;
    return PR_OK;
  }
  Seen *s = seen_of(k, c->stage, c->mb);
  if (pipe_op_info[c->op].comm) {
    const PipeStage *g = &k->p->stage[c->stage];
    bool down = c->op == PIPE_SEND_F || c->op == PIPE_RECV_B;
    if (s->moved[c->op - PIPE_SEND_F]++ == (down ? g->nout : g->nin))
      FAIL_AT(k, c, "stands there twice on rank %u", k->rank);
    return PR_OK;
  }
  if (s->ops & 1u << c->op)
    FAIL_AT(k, c, "stands there twice on rank %u", k->rank);
  PrStatus st = pr_check_slices(k, c);
  if (st)
    return st;
  if ((s->ops & before[c->op]) != before[c->op] || (s->ops & never[c->op]))
    FAIL_AT(k, c, "is out of order with the other ops of stage %u, microbatch %u", c->stage, c->mb);
  bool compute = pipe_op_info[c->op].stream == PIPE_COMPUTE;
  if (compute && (s->ops & SEEN(OFF)) && !(s->ops & SEEN(LOAD)))
    FAIL_AT(k, c, "the stash of stage %u, microbatch %u is in host memory", c->stage, c->mb);
  s->ops |= 1u << c->op;
  if (c->op == PIPE_F && k->p->forward)
    k->left[c->stage]--;
  if (c->op == PIPE_B || c->op == PIPE_W) {
    if (k->tied[c->stage])
      FAIL_AT(k, c, "adds to the gradients of stage %u after their sum with those tied to it",
              c->stage);
    if (k->reduced[c->stage])
      FAIL_AT(k, c, "adds to the gradients of stage %u after their sum over the replicas",
              c->stage);
    k->left[c->stage]--;
    k->graded[c->stage] = k->done[PIPE_COMPUTE] + 1;
  }
  return PR_OK;
}

/* The slot of another rank that a copy keeps its stash in: of class GUEST, of the right size, and free
 * or full as it should be. Only this rank uses it, whose copies run one after the other. */
static PrStatus check_guest(Check *k, const PipeInstr *c, Seen *s) {
  const PipeProgram *p = k->p;
  if (c->peer >= p->nrank || c->peer == k->rank)
    FAIL_AT(k, c, "peer is rank %u of %u", c->peer, p->nrank);
  Guest *g = k->guest[c->peer];
  if (!g || c->keep >= p->rank[c->peer].nslot || !g[c->keep].pool)
    FAIL_AT(k, c, "field keep is slot %u of rank %u, expected one of class guest", c->keep,
            c->peer);
  g += c->keep;
  uint64_t a = pr_class_bytes(k->run, g->pool->stage, PIPE_GUEST, 0);
  uint64_t b = pr_class_bytes(k->run, c->stage, PIPE_GUEST, 0);
  if (a != b)
    FAIL_AT(k, c, "field keep: slot %u of rank %u has %llu bytes for a stash of %llu", c->keep,
            c->peer, (unsigned long long)a, (unsigned long long)b);
  if (g->owner && g->owner != k->rank + 1)
    FAIL_AT(k, c, "slot %u of rank %u is used by rank %u, too", c->keep, c->peer, g->owner - 1);
  g->owner = k->rank + 1;
  bool off = c->op == PIPE_OFF;
  if (off && g->full)
    FAIL_AT(k, c, "fills slot %u of rank %u, which is in use", c->keep, c->peer);
  if (!off && (!g->full || s->host != c->keep || s->peer != c->peer))
    FAIL_AT(k, c, "slot %u of rank %u does not hold its stash", c->keep, c->peer);
  g->full = off;
  s->host = c->keep, s->peer = c->peer;
  return PR_OK;
}

/* Which slots of which ranks are for guests. No rank has more slots than instructions can use, which
 * bounds what is allocated here and for each rank; `ninstr`: of all ranks. */
static PrStatus find_guests(Check *k, uint64_t ninstr) {
  const PipeProgram *p = k->p;
  k->guest = calloc(p->nrank, sizeof *k->guest);
  if (!k->guest)
    return pr_fail(k->run, PR_E_MEMORY, "no memory to check the program");
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeRank *t = &p->rank[r];
    uint64_t guests = 0;
    for (uint32_t i = 0; t->pool && i < t->npool && guests <= ninstr; i++)
      guests += t->pool[i].cls == PIPE_GUEST ? t->pool[i].count : 0;
    if (guests > ninstr || t->nslot > 6 * (uint64_t)t->ninstr + guests + t->nlist)
      return FAIL(k->run, "program: rank %u has %u slots, more than its instructions can use", r,
                  t->nslot);
    ninstr -= guests;
    for (uint32_t i = 0; t->pool && i < t->npool; i++) {
      const PipePool *l = &t->pool[i];
      uint32_t nslot = t->nslot;
      if (l->cls != PIPE_GUEST || l->stage >= p->nstage || l->first >= nslot ||
          l->count > nslot - l->first)
        continue; /* check_pools refuses what is out of range */
      if (!k->guest[r])
        k->guest[r] = calloc(nslot, sizeof **k->guest);
      if (!k->guest[r])
        return pr_fail(k->run, PR_E_MEMORY, "no memory to check rank %u", r);
      for (uint32_t j = 0; j < l->count; j++)
        k->guest[r][l->first + j].pool = l;
    }
  }
  return PR_OK;
}

/* A slot of class BUFFER, which a side op takes or gives back. */
static PrStatus check_buffer(Check *k, const PipeInstr *c, uint32_t at, bool takes) {
  const PipeRank *t = &k->p->rank[k->rank];
  const char *field = takes ? "out" : "in";
  if (at == PIPE_NONE)
    return PR_OK;
  if (at >= t->nslot || k->slot[at].pool->cls != PIPE_BUFFER)
    FAIL_AT(k, c, "field %s is slot %u of %u, expected one of class buffer", field, at, t->nslot);
  if (takes && k->slot[at].pool->bytes != k->p->side[c->keep].bytes)
    FAIL_AT(k, c, "field %s: slot %u has %llu bytes for a buffer of %llu", field, at,
            (unsigned long long)k->slot[at].pool->bytes,
            (unsigned long long)k->p->side[c->keep].bytes);
  if (takes == k->slot[at].full)
    FAIL_AT(k, c, "%s slot %u, which is %s", takes ? "takes" : "gives back", at,
            takes ? "in use" : "free");
  k->slot[at].full = takes;
  return pr_check_turn(k, c, at, !takes);
}

static PrStatus check_side(Check *k, const PipeInstr *c) {
  const PipeProgram *p = k->p;
  if (c->keep >= p->nside || p->side[c->keep].op != c->op || p->side[c->keep].stage != c->stage)
    FAIL_AT(k, c, "row %u of %u is not of this side op", c->keep, p->nside);
  PrStatus st = c->op == PIPE_SIDE_COMM ? pr_check_channel(k, c) : PR_OK;
  if (st)
    return st;
  if (c->act != PIPE_NONE || (c->gout != PIPE_NONE && c->op == PIPE_SIDE) || c->peer != PIPE_NONE)
    FAIL_AT(k, c, "has slots %u, %u and peer %u", c->act, c->gout, c->peer);
  if ((c->out == PIPE_NONE) != (p->side[c->keep].bytes == 0))
    FAIL_AT(k, c, "takes slot %u, and %llu bytes", c->out,
            (unsigned long long)p->side[c->keep].bytes);
  st = check_buffer(k, c, c->out, true);
  return st ? st : check_buffer(k, c, c->in, false);
}

/* Turns of groups: how many each has. */
static PrStatus count_turns(Check *k, uint64_t ninstr) {
  const PipeProgram *p = k->p;
  if (p->ngroup > p->nrank)
    return FAIL(k->run, "program: %u groups of %u ranks", p->ngroup, p->nrank);
  k->turn0 = calloc(p->ngroup + (size_t)1, sizeof *k->turn0);
  k->turn = calloc(ninstr + 1, 1);
  if (!k->turn0 || !k->turn)
    return pr_fail(k->run, PR_E_MEMORY, "no memory to check the program");
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeRank *t = &p->rank[r];
    if (t->group > p->ngroup)
      return FAIL(k->run, "program: rank %u is in group %u of %u", r, t->group - 1, p->ngroup);
    for (uint32_t i = 0; t->group && t->instr && i < t->ninstr; i++)
      k->turn0[t->group] += t->instr[i].op < PIPE_NOPS &&
                            pipe_op_info[t->instr[i].op].stream == PIPE_COPY;
  }
  for (uint32_t g = 0; g < p->ngroup; g++)
    k->turn0[g + 1] += k->turn0[g];
  return PR_OK;
}

/* A COPY instruction in a group has a turn of its own, later than those above it on its rank. */
static PrStatus check_turns(Check *k, const PipeInstr *c) {
  uint32_t g = k->p->rank[k->rank].group;
  if (pipe_op_info[c->op].stream != PIPE_COPY)
    return PR_OK;
  if (g == 0) {
    if (c->gout != PIPE_NONE)
      FAIL_AT(k, c, "has turn %u, but rank %u is in no group", c->gout, k->rank);
    return PR_OK;
  }
  uint64_t n = k->turn0[g] - k->turn0[g - 1];
  if (c->gout >= n || c->gout < k->next_turn || k->turn[k->turn0[g - 1] + c->gout]++)
    FAIL_AT(k, c, "turn %u of %llu is out of range, another's, or not after those above it",
            c->gout, (unsigned long long)n);
  k->next_turn = c->gout + 1;
  return PR_OK;
}

static PrStatus check_callback(Check *k, const PipeInstr *c) {
  const PrModel *m = &k->run->m;
  if ((c->op == PIPE_B && !m->backward) || (c->op == PIPE_I && !m->backward_input) ||
      (c->op == PIPE_W && !m->backward_weight))
    FAIL_AT(k, c, "the model has no callback for %s", pipe_op_info[c->op].text);
  return PR_OK;
}

/* The ops of an action follow each other, or the transfers of a group; the first waits for all; an update is the
 * only op of its stage; no slot is of
 * two of them, so none can need another. */
static PrStatus check_action(Check *k, const PipeInstr *c) {
  const PipeRank *t = &k->p->rank[k->rank];
  bool later = k->index > 0 && c[-1].group > 0; /* not the first of its action */
  bool move = c->op >= PIPE_SEND_F && c->op <= PIPE_RECV_B;
  if (later && (c->group != c[-1].group - 1 || (c->op > PIPE_U && !move) ||
                pipe_op_info[c[-1].op].comm != move))
    FAIL_AT(k, c, "%u more of its action follow, expected an op of COMPUTE with %u", c->group,
            c[-1].group - 1u);
  if (c->group > 0 &&
      ((move ? k->p->lowering < PIPE_GROUPED : c->op > PIPE_U) || c->group >= t->ninstr - k->index))
    FAIL_AT(k, c, "cannot have %u more ops in its action", c->group);
  if (move && c->group >= PIPE_GROUP_MOST)
    FAIL_AT(k, c, "is of a group of %u transfers; there can be %u", c->group + 1u, PIPE_GROUP_MOST);
  if (c->op > PIPE_U && !move)
    return PR_OK;
  if (!later)
    k->first = k->index;
  else if (c->wait > 0 || c->wait_copy > 0)
    FAIL_AT(k, c, "waits for %u instructions, but only the first op of its action may wait",
            c->wait + c->wait_copy);
  if (c->op <= PIPE_U) { /* of the stage of an update there is no other op */
    uint32_t *acted = &k->acted[c->stage], now = 2 * k->first + 2;
    if (later && (*acted >> 1 == now >> 1) && (c->op == PIPE_U || *acted > now))
      FAIL_AT(k, c, "stands in one action with %s of its stage",
              c->op == PIPE_U ? "an op" : "an update");
    *acted = now + (c->op == PIPE_U);
  }
  const PipeStage *g = &k->p->stage[c->stage];
  bool forward = c->op == PIPE_F, again = c->op == PIPE_R;
  const uint32_t field[] = {c->act, c->gout, move ? PIPE_NONE : c->keep, c->in, c->out};
  const uint32_t tensors[] = {1, 1, 1,
                              again     ? 0
                              : move    ? 1
                              : forward ? g->nin
                                        : g->nout,
                              move               ? 1
                              : forward || again ? g->nout
                                                 : g->nin};
  for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
    uint32_t n = tensors[i];
    if (n > 1 && (field[i] > t->nlist || n > t->nlist - field[i]))
      continue; /* see check_tensors */
    for (uint32_t j = 0; j < n; j++) {
      uint32_t slot = n > 1 ? t->list[field[i] + j] : field[i];
      if (slot >= t->nslot)
        continue;
      if (later && k->slot[slot].action == k->first + 1)
        FAIL_AT(k, c, "slot %u is of another op of its action, too", slot);
      k->slot[slot].action = k->first + 1;
    }
  }
  return PR_OK;
}

static PrStatus check_instr(Check *k, const PipeInstr *c) {
  const PipeProgram *p = k->p;
  if (c->op >= PIPE_NOPS || c->phase >= PIPE_NPHASES)
    return FAIL(k->run, "program: rank %u instruction %u: op %u, phase %u: out of range", k->rank,
                k->index, c->op, c->phase);
  if (c->stage >= p->nstage || p->stage[c->stage].rank != k->rank)
    FAIL_AT(k, c, "stage %u is not on rank %u", c->stage, k->rank);
  const PipeStage *g = &p->stage[c->stage];
  bool none = pipe_is_sum(c->op) ||
              ((c->op == PIPE_U || pipe_is_side(c->op)) && c->mb == PIPE_NONE);
  if (none ? c->mb != PIPE_NONE : !runs(p, c->stage, c->mb))
    FAIL_AT(k, c, "microbatch %u; the stage has %u from %u on", c->mb, g->nmb, g->mb0);
  if (c->site >= p->nsite)
    FAIL_AT(k, c, "site %u of %u", c->site, p->nsite);

  const PipeOpInfo *o = &pipe_op_info[c->op];
  static const char *const stream[PIPE_NSTREAMS] = {"compute", "comm", "copy"};
  for (uint32_t x = 0; x < PIPE_NSTREAMS; x++) {
    uint32_t wait = x == o->stream ? 0 : pipe_wait_for(c, (PipeOn)x);
    if (wait > k->done[x])
      FAIL_AT(k, c, "waits for %u %s instructions, but only %u stand above it", wait, stream[x],
              k->done[x]);
    if (wait > k->wait[o->stream][x])
      k->wait[o->stream][x] = wait;
  }
  PrStatus st = check_turns(k, c);
  if (st)
    return st;
  if (pipe_is_side(c->op))
    return (st = check_action(k, c)) ? st : check_side(k, c);
  if ((st = check_action(k, c)) || (st = check_peer(k, c)) || (st = check_order(k, c)) ||
      (st = check_callback(k, c)) || (st = check_tensors(k, c, (PipeTensor)o->in, true)) ||
      (st = check_tensors(k, c, (PipeTensor)o->out, false)))
    return st;
  bool host = c->op == PIPE_OFF || c->op == PIPE_LOAD;
  bool keep = c->op == PIPE_R || (c->op == PIPE_F && c->keep != PIPE_NONE);
  bool act = host || (c->op != PIPE_U && !o->comm);
  bool gout = c->op == PIPE_I || c->op == PIPE_W;
  if ((st = check_slot(k, c, "act", c->act, PIPE_ACT, act ? c->stage : PIPE_NONE, false)) ||
      (o->comm && (st = pr_check_channel(k, c))) ||
      (!host && !o->comm &&
       (st = check_slot(k, c, "gout", c->gout, PIPE_GOUT, gout ? c->stage : PIPE_NONE, false))) ||
      (host && c->peer == PIPE_NONE &&
       (st = check_slot(k, c, "keep", c->keep, PIPE_HOST, c->stage, false))) ||
      (!host && !pipe_op_info[c->op].comm &&
       (st = check_slot(k, c, "keep", c->keep, PIPE_KEEP, keep ? c->stage : PIPE_NONE, false))))
    return st;
  if (!act)
    return PR_OK;
  Seen *s = seen_of(k, c->stage, c->mb);
  if (c->op != PIPE_R && c->op != PIPE_F && s->keep != PIPE_NONE && !(s->ops & SEEN(R)))
    FAIL_AT(k, c, "the stash that it reads has not been recomputed, keep slot %u", s->keep);
  if (c->op == PIPE_F)
    s->keep = PIPE_NONE;
  if ((st = check_stash(k, c, "act", c->act, o->act, &s->act)))
    return st;
  if (host && s->keep != PIPE_NONE)
    FAIL_AT(k, c, "the stash is made again: it cannot move, act %u", c->act);
  if (host && c->peer != PIPE_NONE)
    return check_guest(k, c, s);
  if (host && c->op == PIPE_OFF)
    s->peer = PIPE_NONE;
  if (host && s->peer != PIPE_NONE)
    FAIL_AT(k, c, "its stash is on rank %u", s->peer);
  if (host)
    return check_stash(k, c, "keep", c->keep, c->op == PIPE_OFF ? 1 : -1, &s->host);
  if (keep && (st = check_stash(k, c, "keep", c->keep, c->op == PIPE_F ? 1 : -1, &s->keep)))
    return st;
  uint32_t slices = pipe_slices(k->p);
  for (uint32_t q = 0; c->op == PIPE_F && (c->mb + 1) % slices == 0 && q < slices; q++) {
    const Seen *other = seen_of(k, c->stage, c->mb - q); /* of slices that nobody reads now */
    if (!k->p->forward && other->keep == PIPE_NONE)
      continue;
    k->slot[other->act].full = false;
    if ((st = pr_check_turn(k, c, other->act, false)))
      return st;
  }
  return gout ? check_stash(k, c, "gout", c->gout, o->gout, &s->gout) : PR_OK;
}

static PrStatus check_rank(Check *k, uint32_t r) {
  const PipeProgram *p = k->p;
  const PipeRank *t = &p->rank[r];
  PrStatus st = PR_OK;
  k->rank = r;
  if ((t->ninstr && !t->instr) || (t->npool && !t->pool) || (t->nlist && !t->list))
    return FAIL(k->run, "program: rank %u: a table is missing", r);
  k->slot = calloc((size_t)t->nslot + 1, sizeof *k->slot);
  if (!k->slot)
    st = pr_fail(k->run, PR_E_MEMORY, "no memory to check rank %u", r);
  else
    st = check_pools(k, t);
  k->next_turn = 0;
  memset(k->done, 0, sizeof k->done);
  memset(k->wait, 0, sizeof k->wait);
  if (!st && p->nchannel)
    st = pr_events_begin(k, &k->events);
  for (k->index = 0; !st && k->index < t->ninstr; k->index++) {
    uint32_t i = k->index;
    if ((k->events && (st = pr_events_row(k->events, i))) || (st = check_instr(k, &t->instr[i])))
      break;
    k->done[pipe_op_info[t->instr[i].op].stream]++;
    st = k->events ? pr_events_done(k->events, i) : PR_OK;
    k->index = i;
  }
  pr_events_end(k->events);
  k->events = NULL;
  if (!st)
    st = pr_check_weights(k, k->newest);
  free(k->slot);
  return st;
}

/* A rank's transfers: one for each tensor that passes to another rank. */
static PrStatus check_complete(Check *k) {
  const PipeProgram *p = k->p;
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    if (p->forward && k->left[s] > 0)
      return FAIL(k->run, "program: stage %u: %u microbatches without a forward", s, k->left[s]);
    if (!p->forward && (k->left[s] > 0 || k->graded[s]))
      return FAIL(k->run, "program: stage %u: %u microbatches without a backward, %s", s,
                  k->left[s], k->graded[s] ? "no update after the last" : "updated");
    if (k->updates[s] != k->updates[g->replica])
      return FAIL(k->run, "program: stages %u and %u are replicas, but have %u and %u updates", s,
                  g->replica, k->updates[s], k->updates[g->replica]);
    uint32_t tied = g->tied == PIPE_NONE ? s : g->tied == s ? g->tie : g->tied;
    if (k->updates[s] != k->updates[tied])
      return FAIL(k->run, "program: stages %u and %u are tied, but have %u and %u updates", s, tied,
                  k->updates[s], k->updates[tied]);
    for (uint32_t m = g->mb0; m < g->mb0 + g->nmb; m++) {
      uint32_t up = 0, down = 0;
      const uint32_t *moved = seen_of(k, s, m)->moved;
      if (!runs(p, s, m))
        continue;
      for (uint32_t i = 0; i < g->nin; i++)
        up += p->stage[passage(k, s, m, false, i).other].rank != g->rank;
      for (uint32_t i = 0; i < g->nout; i++)
        down += p->stage[passage(k, s, m, true, i).other].rank != g->rank;
      uint32_t back_up = p->forward ? 0 : up, back_down = p->forward ? 0 : down;
      if (moved[PIPE_SEND_F - PIPE_SEND_F] != down || moved[PIPE_RECV_F - PIPE_SEND_F] != up ||
          moved[PIPE_RECV_B - PIPE_SEND_F] != back_down ||
          moved[PIPE_SEND_B - PIPE_SEND_F] != back_up)
        return FAIL(k->run, "program: stage %u, microbatch %u: a SEND or RECV is missing", s, m);
      if ((seen_of(k, s, m)->ops & (SEEN(OFF) | SEEN(LOAD))) == SEEN(OFF))
        return FAIL(k->run, "program: stage %u, microbatch %u: its stash is never loaded", s, m);
    }
  }
  return PR_OK;
}

PrStatus pr_validate(PrRun *run) {
  const PipeProgram *p = run->p;
  PrStatus st = check_head(run);
  if (st || (st = check_model(run)))
    return st;
  /* Each stage of the model and microbatch needs at least two instructions, and each stage three,
   * forward-only one, which bounds what is allocated here. */
  uint64_t ninstr = 0, ops = (uint64_t)p->nmodel * p->nmb;
  for (uint32_t r = 0; r < p->nrank; r++)
    ninstr += p->rank[r].ninstr;
  if (ops > ninstr / (p->forward ? 1 : 2) || p->nstage > ninstr / (p->forward ? 1 : 3))
    return FAIL(run, "program: %llu instructions are too few for %u stages and %u microbatches",
                (unsigned long long)ninstr, p->nstage, p->nmb);
  Check k = {.run = run, .p = p};
  run->stage = calloc(p->nstage, sizeof *run->stage);
  k.seen = calloc(ops, sizeof *k.seen);
  k.in0 = calloc(2 * ((size_t)p->nmodel + 1) + p->nedge, sizeof *k.in0);
  k.out0 = k.in0 ? k.in0 + p->nmodel + 1 : NULL;
  k.in_edge = k.in0 ? k.out0 + p->nmodel + 1 : NULL;
  k.left = calloc(p->nstage, sizeof *k.left);
  k.graded = calloc(5 * (size_t)p->nstage, sizeof *k.graded);
  k.reduced = k.graded ? k.graded + p->nstage : NULL;
  k.tied = k.graded ? k.reduced + p->nstage : NULL;
  k.updates = k.graded ? k.tied + p->nstage : NULL;
  k.acted = k.graded ? k.updates + p->nstage : NULL;
  k.newest = malloc(p->nstage * sizeof *k.newest);
  k.sum_channel = calloc(2 * (size_t)p->nstage, sizeof *k.sum_channel);
  for (uint32_t s = 0; k.newest && s < p->nstage; s++)
    k.newest[s] = PIPE_NONE;
  if (!run->stage || !k.seen || !k.in0 || !k.left || !k.graded || !k.newest || !k.sum_channel)
    st = pr_fail(run, PR_E_MEMORY, "no memory to check the program");
  if (!st && !(st = pr_check_stages(&k)) && !(st = pr_check_states(&k)) &&
      !(st = pr_check_tables(run)))
    st = (st = check_sizes(run)) || (st = pr_check_outputs(run)) ? st : pr_size_keeps(run);
  for (uint32_t s = 0; !st && !p->edge && s < p->nstage; s++)
    k.left[s] = p->stage[s].nmb;
  if (!st)
    st = find_guests(&k, ninstr);
  if (!st)
    st = count_turns(&k, ninstr);
  for (uint32_t r = 0; !st && r < p->nrank; r++)
    st = check_rank(&k, r);
  for (uint32_t r = 0; !st && r < p->nrank; r++) /* none: only for engines that need none */
    st = p->rank[r].nsync > 0 && !p->nchannel ? pr_check_events(run, r) : PR_OK;
  if (!st)
    st = check_complete(&k);
  for (uint32_t r = 0; k.guest && r < p->nrank; r++)
    free(k.guest[r]);
  free(k.guest);
  free(k.turn);
  free(k.turn0);
  free(k.seen);
  free(k.in0);
  free(k.left);
  free(k.graded);
  free(k.newest);
  free(k.sum_channel);
  return st;
}
