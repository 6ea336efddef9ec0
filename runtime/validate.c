/* SPDX-License-Identifier: MIT
 * Is this table a program of this ABI, and does this model fit it? What passes here runs without
 * touching memory outside the slots and without a race: every index is in range, every slot has the
 * size of the tensor put into it, each (stage, mb) has its ops in order, and the waits make sure
 * that a slot is full before it is read and has been read before it is filled again. What remains
 * for run time is what two ranks do to each other: a stall, or a mismatched transfer.
 *
 * Only pointers and the lengths of the arrays behind them are taken on trust. Linear in
 * instructions. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t SIZE_LIMIT = UINT64_C(1) << 56; /* sums of 2^6 such sizes cannot wrap */

/* What has been seen of a (stage, mb), and where its stashes lie. */
#define SEEN(op) (1u << PIPE_##op)
typedef struct Seen {
  uint32_t act, gout, keep, host, peer;
  uint32_t ops; /* set of SEEN(op) */
} Seen;

/* A slot, and what is in it: a stash, or the output (gradient) of stage `owner` for `mb`. touched: for
 * each stream, how many of its instructions are completed with the last one that uses the slot. */
typedef struct Slot {
  const PipePool *pool;
  bool full, gradient;
  uint32_t owner, mb;
  uint32_t touched[PIPE_NSTREAMS];
  uint32_t action; /* the last action that has touched it: 1 + row of its first instruction */
} Slot;

/* A slot of class GUEST, which belongs to the rank that first uses it. */
typedef struct Guest {
  const PipePool *pool;
  uint32_t owner; /* rank + 1; 0: nobody yet */
  bool full;
} Guest;

typedef struct Check {
  PrRun *run;
  const PipeProgram *p;
  Guest **guest;  /* [nrank][nslot], NULL of a rank without */
  Seen *seen;     /* [nmodel * nmb], by stage, then microbatch */
  size_t *seen0;  /* [nstage]: where those of a stage begin */
  uint32_t *left; /* [nstage]: microbatches whose last op has not been seen */
  /* [nstage]: COMPUTE instructions up to its last gradient so far that no U has applied yet, COMM ones
   * up to the REDUCE for it; 0: none. Updates so far. */
  uint32_t *graded, *reduced, *updates;
  /* Of the rank at hand. */
  Slot *slot;
  uint32_t rank, index;         /* of the instruction */
  uint32_t first;               /* of COMPUTE: the row where its action begins */
  uint32_t done[PIPE_NSTREAMS]; /* instructions above it in each stream */
  /* Most that an instruction of a stream has waited for so far, of each stream. */
  uint32_t wait[PIPE_NSTREAMS][PIPE_NSTREAMS];
} Check;

#define FAIL(run, ...) pr_fail(run, PR_E_ARG, __VA_ARGS__)

/* "program: rank 1 instruction 7 (1SEND_F3): ..." */
#define FAIL_AT(k, c, fmt, ...) \
  do { \
    char op_[PIPE_OP_TEXT]; \
    pipe_unit_text(op_, (PipeOp)(c)->op, (c)->stage, (c)->mb, (k)->p->slices); \
    return FAIL((k)->run, "program: rank %u instruction %u (%s): " fmt, (k)->rank, (k)->index, \
                op_, __VA_ARGS__); \
  } while (0)

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
      (p->nfile && !p->file))
    return FAIL(run, "program: a table is missing");
  if (p->nrank == 0 || p->nstage == 0 || p->nmb == 0)
    return FAIL(run, "program: %u ranks, %u stages, %u microbatches: none may be 0", p->nrank,
                p->nstage, p->nmb);
  if (p->nmodel == 0 || p->nmodel > p->nstage)
    return FAIL(run, "program: %u stages of the model, %u in all", p->nmodel, p->nstage);
  if (p->nrank > p->nstage)
    return FAIL(run, "program: %u ranks but only %u stages", p->nrank, p->nstage);
  if (p->sized > 1 || p->timed > 1 || p->forward > 1)
    return FAIL(run, "program: sized is %u, timed is %u, forward is %u: each is 0 or 1", p->sized,
                p->timed, p->forward);
  if (p->nmb % pipe_slices(p))
    return FAIL(run, "program: %u units are not microbatches of %u slices", p->nmb, p->slices);
  for (uint32_t i = 0; i < p->nfile; i++)
    if (!p->file[i])
      return FAIL(run, "program: file %u has no name", i);
  for (uint32_t i = 0; i < p->nsite; i++)
    if (p->site[i].file >= p->nfile)
      return FAIL(run, "program: site %u is in file %u of %u", i, p->site[i].file, p->nfile);
  return PR_OK;
}

static Seen *seen_of(const Check *k, uint32_t stage, uint32_t mb) {
  return &k->seen[k->seen0[stage] + (mb - k->p->stage[stage].mb0)];
}

/* Replicas run the same stage of the model on different ranks, and each microbatch is one's. */
static PrStatus check_replicas(Check *k) {
  const PipeProgram *p = k->p;
  uint32_t *last = k->left; /* not in use yet: 1 + last row looked at of a rank; nrank <= nstage */
  uint32_t nrow = 0;
  for (uint32_t m = 0; m < p->nmodel; m++) { /* row m is the first that runs stage m */
    if (p->stage[m].model != m)
      return FAIL(k->run, "program: stage %u runs stage %u of the model", m, p->stage[m].model);
    uint32_t s = m;
    uint64_t mbs = 0;
    do {
      const PipeStage *g = &p->stage[s];
      if (g->mb0 != mbs)
        return FAIL(k->run, "program: stage %u has microbatches from %u on, expected %llu", s,
                    g->mb0, (unsigned long long)mbs);
      nrow++, mbs += g->nmb;
      if (g->replica >= p->nstage || p->stage[g->replica].model != m || nrow > p->nstage ||
          (g->replica <= s) != (g->replica == m))
        return FAIL(k->run, "program: the replicas of stage %u are not a circle of rising rows", m);
      uint32_t other = last[g->rank];
      if (other > 0 && p->stage[other - 1].model == m)
        return FAIL(k->run, "program: stages %u and %u are replicas on rank %u", other - 1, s,
                    g->rank);
      last[g->rank] = s + 1;
    } while ((s = p->stage[s].replica) != m);
    if (mbs != p->nmb)
      return FAIL(k->run, "program: stage %u has %llu microbatches in all, expected %u", m,
                  (unsigned long long)mbs, p->nmb);
  }
  if (nrow != p->nstage)
    return FAIL(k->run, "program: %u stages are replicas of none", p->nstage - nrow);
  memset(last, 0, p->nrank * sizeof *last);
  return PR_OK;
}

static PrStatus check_stages(Check *k) {
  const PipeProgram *p = k->p;
  uint32_t nchain = 0;
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    if (g->rank >= p->nrank)
      return FAIL(k->run, "program: stage %u is on rank %u of %u", s, g->rank, p->nrank);
    if ((g->prev != PIPE_NONE && (g->prev >= p->nstage || p->stage[g->prev].next != s)) ||
        (g->next != PIPE_NONE && (g->next >= p->nstage || p->stage[g->next].prev != s)))
      return FAIL(k->run, "program: stage %u is not linked with its neighbours", s);
    if (g->nmb == 0 || g->mb0 >= p->nmb || g->nmb > p->nmb - g->mb0)
      return FAIL(k->run, "program: stage %u has microbatches %u + %u of %u", s, g->mb0, g->nmb,
                  p->nmb);
    if (g->mb0 % pipe_slices(p) || g->nmb % pipe_slices(p))
      return FAIL(k->run, "program: stage %u has units %u + %u, with %u slices", s, g->mb0, g->nmb,
                  p->slices);
    const PipeStage *h = g->next == PIPE_NONE ? NULL : &p->stage[g->next];
    if (h && (h->mb0 != g->mb0 || h->nmb != g->nmb || h->model != g->model + 1))
      return FAIL(k->run, "program: stages %u and %u are not of one pipe", s, g->next);
    if ((g->model == 0) != (g->prev == PIPE_NONE) || (g->model + 1 == p->nmodel) != !h)
      return FAIL(k->run, "program: stage %u runs stage %u of %u, at the wrong end of a pipe", s,
                  g->model, p->nmodel);
    nchain += g->prev == PIPE_NONE;
    const uint64_t bytes[] = {g->act_bytes,  g->gout_bytes, g->boundary_bytes, g->weight_bytes,
                              g->grad_bytes, g->opt_bytes,  g->work_bytes};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
      if (bytes[i] > (p->sized ? SIZE_LIMIT : 0))
        return FAIL(k->run, "program: stage %u has a size of %llu bytes", s,
                    (unsigned long long)bytes[i]);
  }
  if ((uint64_t)nchain * p->nmodel != p->nstage)
    return FAIL(k->run, "program: %u stages are not chains of %u", p->nstage, p->nmodel);
  PrStatus st = check_replicas(k);
  if (st)
    return st;

  uint32_t *nchunk = k->left; /* not in use yet; nrank <= nstage */
  for (uint32_t s = 0; s < p->nstage; s++)
    if (p->stage[s].chunk != nchunk[p->stage[s].rank]++)
      return FAIL(k->run, "program: stage %u is chunk %u of rank %u, expected %u", s,
                  p->stage[s].chunk, p->stage[s].rank, nchunk[p->stage[s].rank] - 1);
  for (uint32_t r = 0; r < p->nrank; r++)
    if (nchunk[r] == 0)
      return FAIL(k->run, "program: rank %u has no stage", r);
  return PR_OK;
}

static PrStatus check_sizes(PrRun *run) {
  static const char *const what[] = {"act", "gout", "boundary", "weight", "grad", "opt", "work"};
  const PipeProgram *p = run->p;
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    PrSizes z = run->m.sizes(run->m.self, g->model);
    if (p->forward)
      z.gout = z.grad = z.opt = 0;
    run->stage[s].size = z;
    const uint64_t have[] = {z.act, z.gout, z.boundary, z.weight, z.grad, z.opt, z.work};
    const uint64_t want[] = {g->act_bytes,  g->gout_bytes, g->boundary_bytes, g->weight_bytes,
                             g->grad_bytes, g->opt_bytes,  g->work_bytes};
    for (size_t i = 0; i < sizeof have / sizeof *have; i++) {
      if (have[i] > SIZE_LIMIT)
        return FAIL(run, "model: stage %u asks for %llu bytes of %s", s,
                    (unsigned long long)have[i], what[i]);
      if (p->sized && have[i] != want[i])
        return pr_fail(run, PR_E_SIZE,
                       "stage %u: the model has %llu bytes of %s, the program was proved with %llu",
                       s, (unsigned long long)have[i], what[i], (unsigned long long)want[i]);
    }
  }
  return PR_OK;
}

static PrStatus check_model(PrRun *run) {
  const PrModel *m = &run->m;
  if (!m->sizes || !m->init || !m->forward || (!m->update && !run->p->forward))
    return FAIL(run, "model: sizes, init, forward and update may not be NULL");
  uint32_t nslice = m->nslice > 1 ? m->nslice : 1;
  if (nslice != pipe_slices(run->p))
    return FAIL(run, "model is written for %u slices, the program has %u", nslice,
                pipe_slices(run->p));
  if (m->nstage != run->p->nmodel)
    return FAIL(run, "model has %u stages, the program %u", m->nstage, run->p->nmodel);
  if (run->p->nmodel < run->p->nstage && !run->p->forward && !m->reduce)
    return FAIL(run, "model: the program has replicas, so reduce may not be NULL");
  return PR_OK;
}

static PrStatus check_pools(Check *k, const PipeRank *t) {
  const PipeProgram *p = k->p;
  uint32_t next = 0;
  for (uint32_t i = 0; i < t->npool; i++) {
    const PipePool *l = &t->pool[i];
    if (l->cls >= PIPE_NCLASSES || l->stage >= p->nstage)
      return FAIL(k->run, "program: rank %u pool %u: class %u, stage %u: out of range", k->rank, i,
                  l->cls, l->stage);
    if (l->first != next || l->count == 0 || l->count > t->nslot - next)
      return FAIL(k->run, "program: rank %u pool %u: %u slots from %u, expected some from %u of %u",
                  k->rank, i, l->count, l->first, next, t->nslot);
    /* The sizes of the program are the model's, see check_sizes. */
    uint64_t want = p->sized ? pr_class_bytes(k->run, l->stage, l->cls) : 0;
    if (l->bytes != want)
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
                           PipeClass cls, uint32_t stage) {
  const PipeRank *t = &k->p->rank[k->rank];
  if (stage == PIPE_NONE) {
    if (slot != PIPE_NONE)
      FAIL_AT(k, c, "field %s is slot %u, but there is nothing to hold", field, slot);
    return PR_OK;
  }
  if (slot >= t->nslot)
    FAIL_AT(k, c, "field %s is slot %u of %u", field, slot, t->nslot);
  const PipePool *l = k->slot[slot].pool;
  if (l->cls != (uint32_t)cls)
    FAIL_AT(k, c, "field %s is slot %u of class %s, expected %s", field, slot,
            pipe_class_name[l->cls], pipe_class_name[cls]);
  uint64_t a = pr_class_bytes(k->run, l->stage, cls);
  uint64_t b = pr_class_bytes(k->run, stage, cls);
  if (a != b)
    FAIL_AT(k, c, "field %s: slot %u has %llu bytes for a tensor of %llu", field, slot,
            (unsigned long long)a, (unsigned long long)b);
  return PR_OK;
}

/* Every use of the slot by other streams so far is over when c starts. */
static PrStatus check_turn(Check *k, const PipeInstr *c, uint32_t at, bool reads) {
  uint32_t on = pipe_op_info[c->op].stream;
  Slot *slot = &k->slot[at];
  for (uint32_t x = 0; x < PIPE_NSTREAMS; x++)
    if (x != on && slot->touched[x] > k->wait[on][x])
      FAIL_AT(k, c, "does not wait until slot %u is %s", at, reads ? "full" : "free");
  slot->touched[on] = k->done[on] + 1;
  return PR_OK;
}

/* The boundary tensor in field `in` (reads) or `out`. X and DX belong to the boundary with the
 * stage before, Y, DY and SCRATCH to that with the stage after. */
static PrStatus check_tensor(Check *k, const PipeInstr *c, PipeTensor tensor, bool reads) {
  const char *field = reads ? "in" : "out";
  const PipeStage *g = &k->p->stage[c->stage];
  bool comm = pipe_op_info[c->op].comm;
  bool before = tensor == PIPE_T_X || tensor == PIPE_T_DX;
  bool gradient = tensor == PIPE_T_DX || tensor == PIPE_T_DY;
  uint32_t other = before ? g->prev : g->next, owner = before ? g->prev : c->stage;
  uint32_t at = reads ? c->in : c->out;
  if (tensor == PIPE_T_NONE || other == PIPE_NONE)
    return check_slot(k, c, field, at, PIPE_IN, PIPE_NONE);
  PipeClass cls = reads == comm ? PIPE_OUT : PIPE_IN; /* SEND reads OUT; F, B and I read IN */
  if (k->p->stage[other].rank == k->rank || tensor == PIPE_T_SCRATCH)
    cls = PIPE_LOCAL;
  PrStatus st = check_slot(k, c, field, at, cls, owner);
  if (st)
    return st;

  Slot *slot = &k->slot[at];
  if (reads &&
      (!slot->full || slot->gradient != gradient || slot->owner != owner || slot->mb != c->mb))
    FAIL_AT(k, c, "slot %u does not hold what it reads", at);
  if (!reads && slot->full)
    FAIL_AT(k, c, "fills slot %u, which is in use", at);
  slot->full = !reads && tensor != PIPE_T_SCRATCH;
  slot->gradient = gradient, slot->owner = owner, slot->mb = c->mb;
  return check_turn(k, c, at, reads);
}

static PrStatus check_peer(Check *k, const PipeInstr *c) {
  const PipeStage *g = &k->p->stage[c->stage];
  if (pipe_op_info[c->op].stream == PIPE_COPY)
    return PR_OK; /* see check_guest */
  if (!pipe_op_info[c->op].comm || c->op == PIPE_REDUCE) {
    if (c->peer != PIPE_NONE)
      FAIL_AT(k, c, "has peer %u", c->peer);
    return PR_OK;
  }
  uint32_t other = c->op == PIPE_SEND_F || c->op == PIPE_RECV_B ? g->next : g->prev;
  if (other == PIPE_NONE)
    FAIL_AT(k, c, "stage %u has no stage on that side", c->stage);
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
  return check_turn(k, c, slot, effect <= 0);
}

/* Slices go forward in order and backward in the reverse; their stashes cannot be made again. */
static PrStatus check_slices(Check *k, const PipeInstr *c) {
  uint32_t slices = pipe_slices(k->p), slice = c->mb % slices, back = SEEN(B) | SEEN(I);
  if (slices == 1)
    return PR_OK;
  if (c->op == PIPE_R)
    FAIL_AT(k, c, "a program with %u slices has no R", slices);
  if (c->op == PIPE_F && slice > 0 && !(seen_of(k, c->stage, c->mb - 1)->ops & SEEN(F)))
    FAIL_AT(k, c, "comes before that of slice %u", slice - 1);
  if ((1u << c->op & back) && slice + 1 < slices && !(seen_of(k, c->stage, c->mb + 1)->ops & back))
    FAIL_AT(k, c, "comes before that of slice %u", slice + 1);
  return PR_OK;
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
    if (!k->graded[c->stage] || k->wait[PIPE_COMM][PIPE_COMPUTE] < k->graded[c->stage])
      FAIL_AT(k, c, "does not wait for the gradients of stage %u", c->stage);
    if (k->reduced[c->stage])
      FAIL_AT(k, c, "stage %u is reduced twice", c->stage);
    k->reduced[c->stage] = k->done[PIPE_COMM] + 1;
    return PR_OK;
  }
  if (c->op == PIPE_U) {
    if (k->p->stage[c->stage].replica != c->stage &&
        (!k->reduced[c->stage] || k->wait[PIPE_COMPUTE][PIPE_COMM] < k->reduced[c->stage]))
      FAIL_AT(k, c, "does not wait for the sum over the replicas of stage %u", c->stage);
    if (!k->graded[c->stage])
      FAIL_AT(k, c, "stage %u has no gradient to apply", c->stage);
    if (c->mb != PIPE_NONE && !(seen_of(k, c->stage, c->mb)->ops & (SEEN(B) | SEEN(W))))
      FAIL_AT(k, c, "microbatch %u has no gradient yet", c->mb);
    k->graded[c->stage] = k->reduced[c->stage] = 0;
    k->updates[c->stage]++;
    return PR_OK;
  }
  Seen *s = seen_of(k, c->stage, c->mb);
  if (s->ops & 1u << c->op)
    FAIL_AT(k, c, "stands there twice on rank %u", k->rank);
  PrStatus st = check_slices(k, c);
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
  uint64_t a = pr_class_bytes(k->run, g->pool->stage, PIPE_GUEST);
  uint64_t b = pr_class_bytes(k->run, c->stage, PIPE_GUEST);
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
    if (guests > ninstr || t->nslot > 4 * (uint64_t)t->ninstr + guests)
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

static PrStatus check_callback(Check *k, const PipeInstr *c) {
  const PrModel *m = &k->run->m;
  if ((c->op == PIPE_B && !m->backward) || (c->op == PIPE_I && !m->backward_input) ||
      (c->op == PIPE_W && !m->backward_weight))
    FAIL_AT(k, c, "the model has no callback for %s", pipe_op_info[c->op].text);
  return PR_OK;
}

/* The ops of an action follow each other; the first waits for all; no slot is of two of them, so none can
 * need another. */
static PrStatus check_action(Check *k, const PipeInstr *c) {
  const PipeRank *t = &k->p->rank[k->rank];
  bool later = k->index > 0 && c[-1].group > 0; /* not the first of its action */
  if (later && (c->group != c[-1].group - 1 || c->op >= PIPE_U))
    FAIL_AT(k, c, "%u more of its action follow, expected an op of COMPUTE with %u", c->group,
            c[-1].group - 1u);
  if (c->group > 0 && (c->op >= PIPE_U || c->group >= t->ninstr - k->index))
    FAIL_AT(k, c, "cannot have %u more ops in its action", c->group);
  if (c->op > PIPE_U)
    return PR_OK;
  if (!later)
    k->first = k->index;
  else if (c->wait > 0 || c->wait_copy > 0)
    FAIL_AT(k, c, "waits for %u instructions, but only the first op of its action may wait",
            c->wait + c->wait_copy);
  const uint32_t slot[] = {c->act, c->gout, c->keep, c->in, c->out};
  for (size_t i = 0; i < sizeof slot / sizeof *slot; i++) {
    if (slot[i] >= t->nslot)
      continue;
    if (later && k->slot[slot[i]].action == k->first + 1)
      FAIL_AT(k, c, "slot %u is of another op of its action, too", slot[i]);
    k->slot[slot[i]].action = k->first + 1;
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
  bool none = c->op == PIPE_REDUCE || (c->op == PIPE_U && c->mb == PIPE_NONE);
  if (none ? c->mb != PIPE_NONE : c->mb < g->mb0 || c->mb - g->mb0 >= g->nmb)
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
  PrStatus st;
  if ((st = check_action(k, c)) || (st = check_peer(k, c)) || (st = check_order(k, c)) ||
      (st = check_callback(k, c)) || (st = check_tensor(k, c, (PipeTensor)o->in, true)) ||
      (st = check_tensor(k, c, (PipeTensor)o->out, false)))
    return st;
  bool host = c->op == PIPE_OFF || c->op == PIPE_LOAD;
  bool keep = c->op == PIPE_R || (c->op == PIPE_F && c->keep != PIPE_NONE);
  bool act = host || (c->op != PIPE_U && !o->comm);
  bool gout = c->op == PIPE_I || c->op == PIPE_W;
  if ((st = check_slot(k, c, "act", c->act, PIPE_ACT, act ? c->stage : PIPE_NONE)) ||
      (st = check_slot(k, c, "gout", c->gout, PIPE_GOUT, gout ? c->stage : PIPE_NONE)) ||
      ((!host || c->peer == PIPE_NONE) &&
       (st = check_slot(k, c, "keep", c->keep, host ? PIPE_HOST : PIPE_KEEP,
                        host || keep ? c->stage : PIPE_NONE))))
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
  if (host && (s->keep != PIPE_NONE || pipe_slices(k->p) > 1))
    FAIL_AT(k, c, "the stash is made again, or read by other slices: it cannot move, act %u",
            c->act);
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
  if (c->op == PIPE_F && keep) /* nobody reads the stash; R takes one again */
    k->slot[c->act].full = false;
  else if (k->p->forward && (c->mb + 1) % slices == 0) /* the last slice: nobody reads them */
    for (uint32_t q = 0; q < slices; q++)
      k->slot[seen_of(k, c->stage, c->mb - q)->act].full = false;
  return gout ? check_stash(k, c, "gout", c->gout, o->gout, &s->gout) : PR_OK;
}

static PrStatus check_rank(Check *k, uint32_t r) {
  const PipeProgram *p = k->p;
  const PipeRank *t = &p->rank[r];
  PrStatus st = PR_OK;
  k->rank = r;
  if ((t->ninstr && !t->instr) || (t->npool && !t->pool))
    return FAIL(k->run, "program: rank %u: a table is missing", r);
  k->slot = calloc((size_t)t->nslot + 1, sizeof *k->slot);
  if (!k->slot)
    st = pr_fail(k->run, PR_E_MEMORY, "no memory to check rank %u", r);
  else
    st = check_pools(k, t);
  memset(k->done, 0, sizeof k->done);
  memset(k->wait, 0, sizeof k->wait);
  for (k->index = 0; !st && k->index < t->ninstr; k->index++) {
    st = check_instr(k, &t->instr[k->index]);
    if (!st)
      k->done[pipe_op_info[t->instr[k->index].op].stream]++;
  }
  free(k->slot);
  return st;
}

/* A rank's transfers: one for each boundary with another rank and microbatch. */
static PrStatus check_complete(Check *k) {
  const PipeProgram *p = k->p;
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    uint32_t want = 0;
    if (g->next != PIPE_NONE && p->stage[g->next].rank != g->rank)
      want |= SEEN(SEND_F) | (p->forward ? 0 : SEEN(RECV_B));
    if (g->prev != PIPE_NONE && p->stage[g->prev].rank != g->rank)
      want |= SEEN(RECV_F) | (p->forward ? 0 : SEEN(SEND_B));
    if (p->forward && k->left[s] > 0)
      return FAIL(k->run, "program: stage %u: %u microbatches without a forward", s, k->left[s]);
    if (!p->forward && (k->left[s] > 0 || k->graded[s]))
      return FAIL(k->run, "program: stage %u: %u microbatches without a backward, %s", s,
                  k->left[s], k->graded[s] ? "no update after the last" : "updated");
    if (k->updates[s] != k->updates[g->replica])
      return FAIL(k->run, "program: stages %u and %u are replicas, but have %u and %u updates", s,
                  g->replica, k->updates[s], k->updates[g->replica]);
    for (uint32_t m = g->mb0; m < g->mb0 + g->nmb; m++) {
      uint32_t comm = SEEN(SEND_F) | SEEN(RECV_F) | SEEN(SEND_B) | SEEN(RECV_B);
      if ((seen_of(k, s, m)->ops & comm) != want)
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
  k.seen0 = calloc(p->nstage, sizeof *k.seen0);
  k.left = calloc(p->nstage, sizeof *k.left);
  k.graded = calloc(3 * (size_t)p->nstage, sizeof *k.graded);
  k.reduced = k.graded ? k.graded + p->nstage : NULL;
  k.updates = k.graded ? k.reduced + p->nstage : NULL;
  if (!run->stage || !k.seen || !k.seen0 || !k.left || !k.graded)
    st = pr_fail(run, PR_E_MEMORY, "no memory to check the program");
  if (!st && !(st = check_stages(&k)))
    st = check_sizes(run);
  for (uint32_t s = 0; !st && s < p->nstage; s++) {
    k.left[s] = p->stage[s].nmb;
    if (s > 0)
      k.seen0[s] = k.seen0[s - 1] + p->stage[s - 1].nmb;
  }
  if (!st)
    st = find_guests(&k, ninstr);
  for (uint32_t r = 0; !st && r < p->nrank; r++)
    st = check_rank(&k, r);
  if (!st)
    st = check_complete(&k);
  for (uint32_t r = 0; k.guest && r < p->nrank; r++)
    free(k.guest[r]);
  free(k.guest);
  free(k.seen);
  free(k.seen0);
  free(k.left);
  free(k.graded);
  return st;
}
