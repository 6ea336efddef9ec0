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
  uint32_t act, gout;
  uint32_t ops;      /* set of SEEN(op) of COMPUTE */
  uint32_t moved[4]; /* transfers, by op - PIPE_SEND_F */
} Seen;

/* A slot, and what is in it: a stash, or the output (gradient) of stage `owner` for `mb`. */
typedef struct Slot {
  const PipePool *pool;
  bool full, gradient;
  uint32_t owner, mb, edge; /* edge: PIPE_NONE in a chain */
  uint32_t changed; /* completed instructions of the stream that last filled or emptied it */
  bool comm;        /* which stream that was */
} Slot;

typedef struct Check {
  PrRun *run;
  const PipeProgram *p;
  Seen *seen; /* [nmodel * nmb], by stage of the model, then microbatch */
  uint32_t *in0, *in_edge,
      *out0;      /* edges by the stage that they reach; the first that leaves a stage */
  uint32_t *left; /* [nstage]: microbatches whose backward has not been seen */
  /* [nstage]: COMPUTE instructions up to its last gradient so far that no U has applied yet, COMM ones
   * up to the REDUCE, and the TIE, for it; 0: none. Updates so far. */
  uint32_t *graded, *reduced, *tied, *updates;
  /* Of the rank at hand. */
  Slot *slot;
  uint32_t rank, index; /* of the instruction */
  uint32_t done[2];     /* instructions above it in the COMPUTE and the COMM stream */
  uint32_t wait[2];     /* most that an instruction of each stream has waited for so far */
} Check;

#define FAIL(run, ...) pr_fail(run, PR_E_ARG, __VA_ARGS__)

/* "program: rank 1 instruction 7 (1SEND_F3): ..." */
#define FAIL_AT(k, c, fmt, ...) \
  do { \
    char op_[PIPE_OP_TEXT]; \
    pipe_op_text(op_, (PipeOp)(c)->op, (c)->stage, (c)->mb); \
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
      (p->nfile && !p->file) || !p->edge != !p->row || (p->nedge && !p->edge))
    return FAIL(run, "program: a table is missing");
  if (p->nrank == 0 || p->nstage == 0 || p->nmb == 0)
    return FAIL(run, "program: %u ranks, %u stages, %u microbatches: none may be 0", p->nrank,
                p->nstage, p->nmb);
  if (p->nmodel == 0 || p->nmodel > p->nstage)
    return FAIL(run, "program: %u stages of the model, %u in all", p->nmodel, p->nstage);
  if (p->nrank > p->nstage)
    return FAIL(run, "program: %u ranks but only %u stages", p->nrank, p->nstage);
  if (p->sized > 1 || p->timed > 1)
    return FAIL(run, "program: sized is %u and timed is %u: each is 0 or 1", p->sized, p->timed);
  for (uint32_t i = 0; i < p->nfile; i++)
    if (!p->file[i])
      return FAIL(run, "program: file %u has no name", i);
  for (uint32_t i = 0; i < p->nsite; i++)
    if (p->site[i].file >= p->nfile)
      return FAIL(run, "program: site %u is in file %u of %u", i, p->site[i].file, p->nfile);
  return PR_OK;
}

static Seen *seen_of(const Check *k, uint32_t stage, uint32_t mb) {
  return &k->seen[(size_t)k->p->stage[stage].model * k->p->nmb + mb];
}

/* Does the row run the microbatch? */
static bool runs(const PipeProgram *p, uint32_t row, uint32_t mb) {
  const PipeStage *g = &p->stage[row];
  return mb >= g->mb0 && mb - g->mb0 < g->nmb &&
         (!p->row || p->row[(size_t)g->model * p->nmb + mb] == row);
}

/* What passes between two rows: tensor number i of those of a row towards later stages (down), or
 * earlier ones. `other`: the row at the other end, `owner`: the row whose output it is or belongs to. */
typedef struct Passage {
  uint32_t other, owner, edge;
} Passage;

static Passage passage(const Check *k, uint32_t row, uint32_t mb, bool down, uint32_t i) {
  const PipeProgram *p = k->p;
  const PipeStage *g = &p->stage[row];
  uint32_t edge = PIPE_NONE, other = down ? g->next : g->prev;
  if (p->edge) {
    edge = down ? k->out0[g->model] + i : k->in_edge[k->in0[g->model] + i];
    other = p->row[(size_t)(down ? p->edge[edge].to : p->edge[edge].from) * p->nmb + mb];
  }
  return (Passage){other, down ? row : other, edge};
}

/* Edges: forward, in order, none twice, those of a stage numbered at both ends. */
static PrStatus check_edges(Check *k) {
  const PipeProgram *p = k->p;
  for (uint32_t e = 0; e < p->nedge; e++) {
    const PipeEdge *g = &p->edge[e];
    if (g->from >= g->to || g->to >= p->nmodel || g->skip > 1 ||
        (e > 0 && (g[-1].from > g->from || (g[-1].from == g->from && g[-1].out >= g->out))))
      return FAIL(k->run, "program: edge %u from stage %u to %u: out of range or order", e, g->from,
                  g->to);
    k->out0[g->from + 1]++, k->in0[g->to + 1]++;
  }
  for (uint32_t m = 0; m < p->nmodel; m++)
    k->out0[m + 1] += k->out0[m], k->in0[m + 1] += k->in0[m];
  memset(k->in_edge, 0xff, p->nedge * sizeof *k->in_edge);
  for (uint32_t e = 0; e < p->nedge; e++) {
    const PipeEdge *g = &p->edge[e];
    uint32_t nin = k->in0[g->to + 1] - k->in0[g->to];
    if (g->out != e - k->out0[g->from] || g->in >= nin ||
        k->in_edge[k->in0[g->to] + g->in] != PIPE_NONE)
      return FAIL(k->run, "program: edge %u is output %u of stage %u and input %u of stage %u", e,
                  g->out, g->from, g->in, g->to);
    k->in_edge[k->in0[g->to] + g->in] = e;
  }
  for (uint32_t m = 0; p->edge && m < p->nmodel; m++)
    for (uint32_t mb = 0; mb < p->nmb; mb++) {
      uint32_t row = p->row[(size_t)m * p->nmb + mb];
      if (row >= p->nstage || p->stage[row].model != m || !runs(p, row, mb))
        return FAIL(k->run, "program: stage %u, microbatch %u: run by row %u", m, mb, row);
      k->left[row]++;
    }
  return PR_OK;
}

/* Rows that share weights: all rows of a stage or none; on each rank the first of them is for all, and
 * these are a circle. */
static PrStatus check_ties(Check *k) {
  const PipeProgram *p = k->p;
  uint32_t *circle = k->reduced,
           *several = k->tied; /* not in use yet: its first row, + 1; of that */
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s], *lead = g->tied < p->nstage ? &p->stage[g->tied] : NULL;
    bool none = g->tied == PIPE_NONE;
    if (none ? p->stage[g->model].tied != PIPE_NONE
             : !lead || g->tied > s || lead->tied != g->tied || lead->rank != g->rank ||
                   p->stage[g->model].tied == PIPE_NONE || g->tie >= p->nstage ||
                   lead->tied_bytes != g->tied_bytes)
      return FAIL(k->run, "program: stage %u is tied to %u and %u", s, g->tied, g->tie);
  }
  for (uint32_t s = 0; s < p->nstage; s++) {
    if (p->stage[s].tied != s || circle[s])
      continue;
    uint32_t q = s, next;
    do { /* rows that rise, and then the first again */
      const PipeStage *g = &p->stage[q];
      next = g->tie;
      if (g->tied != q || g->tied_bytes != p->stage[s].tied_bytes || circle[q] ||
          (next <= q && next != s))
        return FAIL(k->run, "program: the stages tied to stage %u are not a circle", s);
      circle[q] = s + 1;
    } while ((q = next) != s);
  }
  for (uint32_t s = 0; s < p->nstage; s++)
    if (p->stage[s].tied != PIPE_NONE) {
      uint32_t first = circle[p->stage[s].tied] - 1;
      several[first] |= p->stage[s].model != p->stage[first].model;
    }
  for (uint32_t s = 0; s < p->nstage; s++)
    if (circle[s] == s + 1 && !several[s])
      return FAIL(k->run, "program: stage %u is tied to no other", s);
  memset(k->reduced, 0, 2 * (size_t)p->nstage * sizeof *k->reduced);
  return PR_OK;
}

/* Replicas run the same stage of the model on different ranks, and each microbatch is one's. */
static PrStatus check_replicas(Check *k) {
  const PipeProgram *p = k->p;
  uint32_t *last =
      k->graded; /* not in use yet: 1 + last row looked at of a rank; nrank <= nstage */
  uint32_t nrow = 0;
  for (uint32_t m = 0; m < p->nmodel; m++) { /* row m is the first that runs stage m */
    if (p->stage[m].model != m)
      return FAIL(k->run, "program: stage %u runs stage %u of the model", m, p->stage[m].model);
    uint32_t s = m;
    uint64_t mbs = 0;
    do {
      const PipeStage *g = &p->stage[s];
      if (!p->row && g->mb0 != mbs)
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
    if (!p->row && mbs != p->nmb)
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
    bool chain = !p->edge;
    if (chain && ((g->prev != PIPE_NONE && (g->prev >= p->nstage || p->stage[g->prev].next != s)) ||
                  (g->next != PIPE_NONE && (g->next >= p->nstage || p->stage[g->next].prev != s))))
      return FAIL(k->run, "program: stage %u is not linked with its neighbours", s);
    if (g->nmb == 0 || g->mb0 >= p->nmb || g->nmb > p->nmb - g->mb0)
      return FAIL(k->run, "program: stage %u has microbatches %u + %u of %u", s, g->mb0, g->nmb,
                  p->nmb);
    const PipeStage *h = g->next == PIPE_NONE || !chain ? NULL : &p->stage[g->next];
    if (h && (h->mb0 != g->mb0 || h->nmb != g->nmb || h->model != g->model + 1))
      return FAIL(k->run, "program: stages %u and %u are not of one pipe", s, g->next);
    if (g->model >= p->nmodel ||
        (chain && ((g->model == 0) != (g->prev == PIPE_NONE) || (g->model + 1 == p->nmodel) != !h)))
      return FAIL(k->run, "program: stage %u runs stage %u of %u, at the wrong end of a pipe", s,
                  g->model, p->nmodel);
    nchain += g->prev == PIPE_NONE;
    uint32_t nin = chain ? g->prev != PIPE_NONE : k->in0[g->model + 1] - k->in0[g->model],
             nout = chain ? g->next != PIPE_NONE : k->out0[g->model + 1] - k->out0[g->model];
    if (g->nin != nin || g->nout != nout || (!chain && k->left[s] == 0))
      return FAIL(k->run, "program: stage %u has %u inputs and %u outputs, expected %u and %u", s,
                  g->nin, g->nout, nin, nout);
    const uint64_t bytes[] = {g->act_bytes,    g->gout_bytes, g->boundary_bytes,
                              g->weight_bytes, g->grad_bytes, g->opt_bytes,
                              g->work_bytes,   g->edge_bytes, g->tied_bytes};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
      if (bytes[i] > (p->sized ? SIZE_LIMIT : 0))
        return FAIL(k->run, "program: stage %u has a size of %llu bytes", s,
                    (unsigned long long)bytes[i]);
  }
  if (!p->edge && (uint64_t)nchain * p->nmodel != p->nstage)
    return FAIL(k->run, "program: %u stages are not chains of %u", p->nstage, p->nmodel);
  PrStatus st = check_replicas(k);
  if (st || (st = check_ties(k)))
    return st;

  uint32_t *nchunk = k->graded; /* not in use yet; nrank <= nstage */
  for (uint32_t s = 0; s < p->nstage; s++)
    nchunk[p->stage[s].rank]++;
  uint32_t *first = k->reduced,
           *taken = k->tied; /* nor these: where a rank's chunks begin; who has one */
  for (uint32_t r = 0; r + 1 < p->nrank; r++)
    first[r + 1] = first[r] + nchunk[r];
  for (uint32_t s = 0; p->edge && s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    if (g->chunk >= nchunk[g->rank] || taken[first[g->rank] + g->chunk]++)
      return FAIL(k->run, "program: stage %u is chunk %u of the %u of rank %u, or not alone", s,
                  g->chunk, nchunk[g->rank], g->rank);
  }
  if (!p->edge)
    memset(nchunk, 0, p->nrank * sizeof *nchunk);
  for (uint32_t s = 0; !p->edge && s < p->nstage; s++)
    if (p->stage[s].chunk != nchunk[p->stage[s].rank]++)
      return FAIL(k->run, "program: stage %u is chunk %u of rank %u, expected %u", s,
                  p->stage[s].chunk, p->stage[s].rank, nchunk[p->stage[s].rank] - 1);
  for (uint32_t r = 0; r < p->nrank; r++)
    if (nchunk[r] == 0)
      return FAIL(k->run, "program: rank %u has no stage", r);
  memset(k->graded, 0, 3 * (size_t)p->nstage * sizeof *k->graded);
  return PR_OK;
}

static PrStatus check_sizes(PrRun *run) {
  static const char *const what[] = {"act", "gout", "boundary", "weight", "grad",
                                     "opt", "work", "edge",     "tied"};
  const PipeProgram *p = run->p;
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    PrSizes z = run->stage[s].size = run->m.sizes(run->m.self, g->model);
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
  if (!m->sizes || !m->init || !m->forward || !m->update)
    return FAIL(run, "model: sizes, init, forward and update may not be NULL");
  if (m->nstage != run->p->nmodel)
    return FAIL(run, "model has %u stages, the program %u", m->nstage, run->p->nmodel);
  if (run->p->nmodel < run->p->nstage && !m->reduce)
    return FAIL(run, "model: the program has replicas, so reduce may not be NULL");
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
        l->skip > (l->cls >= PIPE_OUT && p->edge))
      return FAIL(k->run, "program: rank %u pool %u: class %u, stage %u: out of range", k->rank, i,
                  l->cls, l->stage);
    if (l->first != next || l->count == 0 || l->count > t->nslot - next)
      return FAIL(k->run, "program: rank %u pool %u: %u slots from %u, expected some from %u of %u",
                  k->rank, i, l->count, l->first, next, t->nslot);
    /* The sizes of the program are the model's, see check_sizes. */
    uint64_t want = p->sized ? pr_class_bytes(&k->run->stage[l->stage].size, l->cls, l->skip) : 0;
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
  uint64_t a = pr_class_bytes(&k->run->stage[l->stage].size, cls, skip);
  uint64_t b = pr_class_bytes(&k->run->stage[stage].size, cls, skip);
  if (a != b)
    FAIL_AT(k, c, "field %s: slot %u has %llu bytes for a tensor of %llu", field, slot,
            (unsigned long long)a, (unsigned long long)b);
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
  if (slot->comm != comm && slot->changed > k->wait[comm])
    FAIL_AT(k, c, "does not wait until slot %u is %s", at, reads ? "full" : "free");
  *slot = (Slot){slot->pool, !reads, gradient, p.owner, c->mb, p.edge, k->done[comm] + 1, comm};
  return PR_OK;
}

/* The tensors in field `in` (reads) or `out`. X and DX belong to the boundary with the stages before, Y
 * and DY to that with the stages after. A transfer has the one of its edge, an op all. */
static PrStatus check_tensors(Check *k, const PipeInstr *c, PipeTensor tensor, bool reads) {
  const char *field = reads ? "in" : "out";
  const PipeStage *g = &k->p->stage[c->stage];
  const PipeRank *t = &k->p->rank[k->rank];
  bool down = tensor == PIPE_T_Y || tensor == PIPE_T_DY;
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
    PrStatus st = check_passage(k, c, passage(k, c->stage, c->mb, down, i),
                                n > 1 ? t->list[at + i] : at, gradient, reads);
    if (st)
      return st;
  }
  return PR_OK;
}

static PrStatus check_peer(Check *k, const PipeInstr *c) {
  const PipeStage *g = &k->p->stage[c->stage];
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
  return PR_OK;
}

/* F, then B, or I and W; each once. Transfers have their order from the slots; here each once. */
static PrStatus check_order(Check *k, const PipeInstr *c) {
  static const uint32_t before[PIPE_NOPS] = {
      [PIPE_B] = SEEN(F), [PIPE_I] = SEEN(F), [PIPE_W] = SEEN(F) | SEEN(I)};
  static const uint32_t never[PIPE_NOPS] = {[PIPE_B] = SEEN(I), [PIPE_I] = SEEN(B)};
  if (c->op == PIPE_REDUCE) {
    if (k->p->stage[c->stage].replica == c->stage)
      FAIL_AT(k, c, "stage %u has no replicas", c->stage);
    if (!k->graded[c->stage] || k->wait[1] < k->graded[c->stage])
      FAIL_AT(k, c, "does not wait for the gradients of stage %u", c->stage);
    if (k->reduced[c->stage])
      FAIL_AT(k, c, "stage %u is reduced twice", c->stage);
    k->reduced[c->stage] = k->done[1] + 1;
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
      if (!k->graded[s] || k->wait[1] < k->graded[s] || (g->replica != s && !k->reduced[s]))
        FAIL_AT(k, c, "does not wait for the gradients of stage %u", s);
      k->tied[s] = k->done[1] + 1;
    }
    return PR_OK;
  }
  if (c->op == PIPE_U) {
    if (k->p->stage[c->stage].tied != PIPE_NONE &&
        (!k->tied[c->stage] || k->wait[0] < k->tied[c->stage]))
      FAIL_AT(k, c, "does not wait for the sum over the stages tied to stage %u", c->stage);
    if (k->p->stage[c->stage].replica != c->stage &&
        (!k->reduced[c->stage] || k->wait[0] < k->reduced[c->stage]))
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
  if ((s->ops & before[c->op]) != before[c->op] || (s->ops & never[c->op]))
    FAIL_AT(k, c, "is out of order with the other ops of stage %u, microbatch %u", c->stage, c->mb);
  s->ops |= 1u << c->op;
  if (c->op == PIPE_B || c->op == PIPE_W) {
    if (k->tied[c->stage])
      FAIL_AT(k, c, "adds to the gradients of stage %u after their sum with those tied to it",
              c->stage);
    if (k->reduced[c->stage])
      FAIL_AT(k, c, "adds to the gradients of stage %u after their sum over the replicas",
              c->stage);
    k->left[c->stage]--;
    k->graded[c->stage] = k->done[0] + 1;
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

static PrStatus check_instr(Check *k, const PipeInstr *c) {
  const PipeProgram *p = k->p;
  if (c->op >= PIPE_NOPS || c->phase >= PIPE_NPHASES || c->group != 0)
    return FAIL(k->run, "program: rank %u instruction %u: op %u, phase %u, zero %u: out of range",
                k->rank, k->index, c->op, c->phase, c->group);
  if (c->stage >= p->nstage || p->stage[c->stage].rank != k->rank)
    FAIL_AT(k, c, "stage %u is not on rank %u", c->stage, k->rank);
  const PipeStage *g = &p->stage[c->stage];
  bool none = pipe_is_sum(c->op) || (c->op == PIPE_U && c->mb == PIPE_NONE);
  if (none ? c->mb != PIPE_NONE : !runs(p, c->stage, c->mb))
    FAIL_AT(k, c, "microbatch %u; the stage has %u from %u on", c->mb, g->nmb, g->mb0);
  if (c->site >= p->nsite)
    FAIL_AT(k, c, "site %u of %u", c->site, p->nsite);

  const PipeOpInfo *o = &pipe_op_info[c->op];
  if (c->wait > k->done[!o->comm])
    FAIL_AT(k, c, "waits for %u %s instructions, but only %u stand above it", c->wait,
            o->comm ? "compute" : "comm", k->done[!o->comm]);
  if (c->wait > k->wait[o->comm])
    k->wait[o->comm] = c->wait;
  PrStatus st;
  if ((st = check_peer(k, c)) || (st = check_order(k, c)) || (st = check_callback(k, c)) ||
      (st = check_tensors(k, c, (PipeTensor)o->in, true)) ||
      (st = check_tensors(k, c, (PipeTensor)o->out, false)))
    return st;
  bool act = c->op == PIPE_F || c->op == PIPE_B || c->op == PIPE_I || c->op == PIPE_W;
  bool gout = c->op == PIPE_I || c->op == PIPE_W;
  if ((st = check_slot(k, c, "act", c->act, PIPE_ACT, act ? c->stage : PIPE_NONE, false)) ||
      (st = check_slot(k, c, "gout", c->gout, PIPE_GOUT, gout ? c->stage : PIPE_NONE, false)))
    return st;
  if (!act)
    return PR_OK;
  Seen *s = seen_of(k, c->stage, c->mb);
  if ((st = check_stash(k, c, "act", c->act, o->act, &s->act)))
    return st;
  return gout ? check_stash(k, c, "gout", c->gout, o->gout, &s->gout) : PR_OK;
}

static PrStatus check_rank(Check *k, uint32_t r) {
  const PipeProgram *p = k->p;
  const PipeRank *t = &p->rank[r];
  PrStatus st = PR_OK;
  k->rank = r;
  if ((t->ninstr && !t->instr) || (t->npool && !t->pool) || (t->nlist && !t->list))
    return FAIL(k->run, "program: rank %u: a table is missing", r);
  if (t->nslot > 4 * (uint64_t)t->ninstr + t->nlist)
    return FAIL(k->run, "program: rank %u has %u slots, more than its instructions can use", r,
                t->nslot);
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
      k->done[pipe_op_info[t->instr[k->index].op].comm]++;
  }
  free(k->slot);
  return st;
}

/* A rank's transfers: one for each tensor that passes to another rank. */
static PrStatus check_complete(Check *k) {
  const PipeProgram *p = k->p;
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    if (k->left[s] > 0 || k->graded[s])
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
      if (moved[PIPE_SEND_F - PIPE_SEND_F] != down || moved[PIPE_RECV_B - PIPE_SEND_F] != down ||
          moved[PIPE_SEND_B - PIPE_SEND_F] != up || moved[PIPE_RECV_F - PIPE_SEND_F] != up)
        return FAIL(k->run, "program: stage %u, microbatch %u: a SEND or RECV is missing", s, m);
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
   * which bounds what is allocated here. */
  uint64_t ninstr = 0, ops = (uint64_t)p->nmodel * p->nmb;
  for (uint32_t r = 0; r < p->nrank; r++)
    ninstr += p->rank[r].ninstr;
  if (ops > ninstr / 2 || p->nstage > ninstr / 3)
    return FAIL(run, "program: %llu instructions are too few for %u stages and %u microbatches",
                (unsigned long long)ninstr, p->nstage, p->nmb);
  Check k = {.run = run, .p = p};
  run->stage = calloc(p->nstage, sizeof *run->stage);
  k.seen = calloc(ops, sizeof *k.seen);
  k.in0 = calloc(2 * ((size_t)p->nmodel + 1) + p->nedge, sizeof *k.in0);
  k.out0 = k.in0 ? k.in0 + p->nmodel + 1 : NULL;
  k.in_edge = k.in0 ? k.out0 + p->nmodel + 1 : NULL;
  k.left = calloc(p->nstage, sizeof *k.left);
  k.graded = calloc(4 * (size_t)p->nstage, sizeof *k.graded);
  k.reduced = k.graded ? k.graded + p->nstage : NULL;
  k.tied = k.graded ? k.reduced + p->nstage : NULL;
  k.updates = k.graded ? k.tied + p->nstage : NULL;
  if (!run->stage || !k.seen || !k.in0 || !k.left || !k.graded)
    st = pr_fail(run, PR_E_MEMORY, "no memory to check the program");
  if (!st && !(st = check_edges(&k)) && !(st = check_stages(&k)))
    st = check_sizes(run);
  for (uint32_t s = 0; !st && !p->edge && s < p->nstage; s++)
    k.left[s] = p->stage[s].nmb;
  for (uint32_t r = 0; !st && r < p->nrank; r++)
    st = check_rank(&k, r);
  if (!st)
    st = check_complete(&k);
  free(k.seen);
  free(k.in0);
  free(k.left);
  free(k.graded);
  return st;
}
