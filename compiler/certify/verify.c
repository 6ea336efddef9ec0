/* SPDX-License-Identifier: MIT
 * Our own mistakes, found before anybody runs them: of the program, after lower. Reads its tables, takes
 * nothing from the passes that made them, and aborts where a table is not what its contract says.
 *
 * note [before]: on one rank, A completes before B starts if A stands above B in their common
 * stream, or they are in different streams and some instruction of B's stream, up to B itself,
 * waits for more instructions than stand above A. (By way of a third stream, too, but no slot is used
 * that relies on it.) Other ranks add nothing: a path that leaves the
 * rank and returns does both in its COMM stream. A list in which every wait points up is one
 * linear extension of this order, so walking it and comparing each access of a slot with the last
 * ones of either stream finds every race.
 *
 * Time and memory are linear in instructions, slots and (stage, mb) cells. */
#include <string.h>

#include "verify.h"

/* What the list has done with a (stage, mb), and where its stashes lie. */
typedef struct Cell {
  uint32_t act, gout; /* slots, valid while the op that took one has been seen */
  uint32_t keep;      /* of a forward that is recomputed, NONE of another */
  uint32_t host, peer;
  uint8_t ops;    /* bit per compute op */
  uint32_t round; /* the update that applies its gradient, once that is there */
  uint8_t away;   /* its stash: 0 never left the device, 1 is in host memory, 2 is back */
  uint32_t sent[2], received[2]; /* transfers, [0] forward, [1] backward */
} Cell;

/* A tensor: the output of `stage` for mb, or the gradient of that output; or their stash. */
typedef struct Content {
  bool full, gradient;
  uint32_t stage, mb;
  uint32_t edge; /* that it passes, NONE in a chain and for stashes */
} Content;

typedef struct Slot {
  uint32_t pool;
  bool used;
  Content holds;
  uint32_t
      touched[3]; /* accesses so far: 1 + position in COMPUTE, COMM, COPY of the last; 0 none */
} Slot;

typedef struct GuestSlot { /* of class GUEST */
  uint32_t owner;          /* rank whose stashes it holds; NONE: nobody has used it */
  bool full;
} GuestSlot;

typedef struct Verify {
  const Sched *s;
  const PipeProgram *p;
  GuestSlot *guest; /* [all slots of all ranks] */
  size_t *slot0;    /* [nrank] where those of a rank begin */
  Cell *cell;       /* [nstage * nmb] */
  uint32_t *left;   /* [nstage] backwards to come */
  uint32_t *fresh;  /* [nstage] gradients that no U has applied yet */
  uint32_t *rounds; /* [nstage] updates so far */
  uint32_t *graded; /* [nstage] COMPUTE instructions up to its last gradient */
  uint32_t *reduced,
      *tied; /* [nstage] COMM instructions up to the REDUCE, the TIE for its next U, 0 before */
  VerifyEdges edges;
  bool *in_channel;       /* [nchannel] something is */
  uint32_t *pipe_at;      /* [nmb + 1] pipes whose microbatches begin before this one */
  uint64_t *fixed, *work; /* [nrank] bytes of weights, gradients, optimizer; of the workspace */
  /* Of the rank at hand. */
  uint32_t r;
  Slot *slot;            /* [nslot] */
  uint32_t *live, *most; /* [npool] full slots, and the most there were */
  uint32_t done[3];      /* instructions above, per stream: the position of the one at hand */
  uint32_t begun;        /* those of COMPUTE above its action */
  uint32_t row;          /* of its list: the one at hand */
  int stream;            /* of the one at hand: 0 COMPUTE, 1 COMM, 2 COPY */
  VerifySync sync;
} Verify;

static uint64_t up64(uint64_t bytes) { return bytes % 64 ? bytes - bytes % 64 + 64 : bytes; }

/* All inputs of a stage, one after the other, each on a line of its own. */
static uint64_t input_bytes(const VerifyEdges *v, uint32_t stage) {
  const PipeStage *st = &v->p->stage[stage];
  uint64_t n = 0;
  for (uint32_t k = 0; k < st->nin; k++) {
    Passage e = verify_passage(v, stage, st->mb0, false, k);
    const PipeStage *from = &v->p->stage[e.owner];
    bool skip = e.edge != NONE && v->p->edge[e.edge].skip;
    n = up64(n) + (skip ? from->edge_bytes : from->boundary_bytes);
  }
  return n;
}

static uint64_t content_bytes(const Verify *v, uint32_t stage, uint32_t cls, bool skip) {
  const PipeStage *st = &v->p->stage[stage];
  switch (cls) {
  case PIPE_KEEP: return input_bytes(&v->edges, stage);
  case PIPE_ACT:
  case PIPE_HOST:
  case PIPE_GUEST: return st->act_bytes;
  case PIPE_WEIGHT:
  case PIPE_GUESS: return st->weight_bytes;
  case PIPE_GOUT: return st->gout_bytes;
  default: return skip ? st->edge_bytes : st->boundary_bytes;
  }
}

/* Nothing below relies on a count of a table that is not that of the passes. */
static void verify_head(const Sched *s) {
  const PipeProgram *p = s->prog;
  BUG_IF(p->magic != PIPE_MAGIC || p->abi != PIPE_ABI);
  BUG_IF(p->nrank != s->nrank || p->nstage != s->nstage || p->nmodel != s->nmodel ||
         p->nmb != s->nmb || p->slices != s->slices || p->nedge != s->nedge);
  BUG_IF(p->sized != s->sized || p->forward != s->forward || p->lowering != s->lowering);
  BUG_IF(p->nchannel != s->npipe_channel || (p->nchannel && p->lowering != PIPE_CHANNELS));
  BUG_IF(p->nformula != s->nformula || p->nrule != s->nrule || p->nthen != s->nthen ||
         p->nstate != (s->nformula ? s->nstate : 0));
  for (uint32_t st = 0; st < p->nstage; st++)
    BUG_IF((p->stage[st].tied != NONE) != (s->tie_of && s->tie_of[st] != NONE));
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeRank *k = &p->rank[r];
    const Streams *t = &s->stream[r];
    uint64_t slots = 0;
    BUG_IF(k->ninstr != t->ncompute + t->ncomm + t->ncopy || k->npool != s->npool[r]);
    for (uint32_t i = 0; i < k->npool; i++)
      slots += k->pool[i].count;
    BUG_IF(k->nslot != slots);
  }
  BUG_IF(p->nrank == 0 || p->nstage < p->nrank || p->nmb == 0);
  BUG_IF(p->slices == 0 || p->nmb % p->slices != 0);
  BUG_IF(p->sized > 1 || p->timed > 1 || p->forward > 1);
  for (uint32_t i = 0; i < p->nsite; i++)
    BUG_IF(p->site[i].file >= p->nfile || p->site[i].line == 0 || p->site[i].col == 0);
}

/* Pools are runs of slots that together are exactly 0..nslot-1. Sums what the rank needs. */
static void verify_pools(Verify *v) {
  const PipeProgram *p = v->p;
  const PipeRank *k = &p->rank[v->r];
  uint32_t n = 0;
  uint64_t bytes = 0, host = 0;
  for (uint32_t i = 0; i < k->npool; i++) {
    const PipePool *q = &k->pool[i];
    BUG_IF(q->cls >= PIPE_NCLASSES || q->stage >= p->nstage || q->count == 0);
    BUG_IF(q->first != n || q->count > k->nslot - n);
    BUG_IF(q->cls != PIPE_BUFFER && q->bytes != content_bytes(v, q->stage, q->cls, q->skip));
    BUG_IF(q->cls != PIPE_OUT && q->cls != PIPE_IN && q->cls != PIPE_GUEST &&
           p->stage[q->stage].rank != v->r);
    BUG_IF(q->skip > 1);
    BUG_IF(q->skip && (q->cls < PIPE_OUT || q->cls > PIPE_LOCAL));
    for (uint32_t j = 0; j < q->count; j++)
      v->slot[n++] = (Slot){.pool = i};
    v->live[i] = v->most[i] = 0;
    *(q->cls == PIPE_HOST ? &host : &bytes) += q->count * up64(q->bytes);
  }
  BUG_IF(n != k->nslot || k->host != host);
  BUG_IF(k->bytes != (p->sized ? bytes + v->fixed[v->r] + v->work[v->r] : 0));
}

static void sum_stages(Verify *v) {
  const PipeProgram *p = v->p;
  for (uint32_t i = 0; i < p->nstage; i++) {
    const PipeStage *st = &p->stage[i];
    uint32_t copies = p->rank[st->rank].weights ? 0 : 1; /* the others are in slots */
    for (uint32_t j = 0; j < 32; j++)
      copies += st->states >> j & 1;
    v->fixed[st->rank] += copies * up64(st->weight_bytes) + up64(st->grad_bytes) +
                          up64(st->opt_bytes);
    if (v->work[st->rank] < up64(st->work_bytes))
      v->work[st->rank] = up64(st->work_bytes);
  }
}

/* note [before]: the access of this slot at `touched` of stream x is over when this one starts. */
static bool is_before(const Verify *v, int x, uint32_t touched) {
  if (x == v->stream && touched == v->done[x] + 1)
    return true; /* an op may take and give back the same slot */
  if (x == v->stream && !(x == 1 && v->sync.channels))
    return touched <= (x ? v->done[x] : v->begun);
  return verify_synced(&v->sync, v->row, x, touched);
}

static bool skips(const Verify *v, uint32_t edge) { return edge != NONE && v->p->edge[edge].skip; }

static Slot *touch_any(Verify *v, uint32_t slot, PipeClass cls) {
  const PipeRank *k = &v->p->rank[v->r];
  BUG_IF(slot >= k->nslot);
  Slot *t = &v->slot[slot];
  BUG_IF(k->pool[t->pool].cls != cls);
  for (int x = 0; x < 3; x++)
    BUG_IF(!is_before(v, x, t->touched[x]));
  t->touched[v->stream] = v->done[v->stream] + 1;
  t->used = true;
  return t;
}

static Slot *touch(Verify *v, uint32_t slot, PipeClass cls, uint32_t stage, uint32_t edge) {
  Slot *t = touch_any(v, slot, cls);
  const PipePool *q = &v->p->rank[v->r].pool[t->pool];
  BUG_IF(q->skip != skips(v, edge) || q->bytes != content_bytes(v, stage, cls, q->skip));
  /* sizes unknown: only its own stage's is the same */
  BUG_IF((!v->p->sized || cls == PIPE_OUT || cls == PIPE_IN) && q->stage != stage);
  return t;
}

/* A COMM instruction is in a channel for its kind, between its ranks, and in its pipe. */
static void verify_channel(Verify *v, const PipeInstr *in) {
  const PipeProgram *p = v->p;
  BUG_IF((in->gout != NONE) != (p->lowering == PIPE_CHANNELS));
  if (in->gout == NONE)
    return;
  BUG_IF(in->gout >= p->nchannel);
  const PipeChannel *c = &p->channel[in->gout];
  v->in_channel[in->gout] = true;
  if (in->op >= PIPE_REDUCE) {
    BUG_IF(c->op != (in->op == PIPE_SIDE_COMM ? PIPE_SIDE_COMM : PIPE_REDUCE) || c->to != NONE ||
           c->pipe != NONE);
    BUG_IF(in->op == PIPE_SIDE_COMM ? c->from != v->r : c->from > v->r);
    return;
  }
  uint32_t pipe = v->pipe_at[p->stage[in->stage].mb0];
  BUG_IF(c->op != (is_forward(in) ? PIPE_SEND_F : PIPE_SEND_B) || c->pipe != pipe);
  BUG_IF(c->from != (is_send(in) ? v->r : in->peer) || c->to != (is_send(in) ? in->peer : v->r));
}

/* A side op: its row, and its buffers. What it is attached to: verify_side.c. */
static void verify_side(Verify *v, const PipeInstr *in) {
  const PipeProgram *p = v->p;
  BUG_IF(in->keep >= p->nside || in->peer != NONE || in->act != NONE);
  BUG_IF(in->gout != NONE && v->stream == 0);
  if (v->stream == 1)
    verify_channel(v, in);
  const PipeSide *side = &p->side[in->keep];
  BUG_IF(side->op != in->op || side->stage != in->stage);
  BUG_IF(in->mb != NONE && !verify_runs(p, in->stage, in->mb));
  BUG_IF((in->out != NONE) != (side->bytes > 0));
  if (in->out != NONE) {
    Slot *t = touch_any(v, in->out, PIPE_BUFFER);
    BUG_IF(t->holds.full || p->rank[v->r].pool[t->pool].bytes != side->bytes);
    t->holds = (Content){true, false, in->stage, in->mb, side->decl};
    if (++v->live[t->pool] > v->most[t->pool])
      v->most[t->pool] = v->live[t->pool];
  }
  Name of = v->s->side_decl[side->decl]->side->gives;
  BUG_IF((in->in != NONE) != (of != NULL) || (of && in->in == in->out));
  if (!of)
    return;
  Slot *t = touch_any(v, in->in, PIPE_BUFFER);
  BUG_IF(!t->holds.full || t->holds.stage != in->stage ||
         strcmp(v->s->side_decl[t->holds.edge]->name, of) != 0);
  for (uint32_t i = 0; t->holds.mb != in->mb && i < p->rank[v->r].nslot; i++) {
    const Slot *other = &v->slot[i]; /* not that of another microbatch while its own is there */
    BUG_IF(p->rank[v->r].pool[other->pool].cls == PIPE_BUFFER && other->holds.full &&
           in->mb != NONE && other->holds.mb == in->mb && other->holds.stage == in->stage &&
           other->holds.edge == t->holds.edge);
  }
  t->holds.full = false;
  v->live[t->pool]--;
}

static void fill(Verify *v, uint32_t slot, PipeClass cls, uint32_t stage, uint32_t mb,
                 bool gradient, uint32_t edge) {
  Slot *t = touch(v, slot, cls, stage, edge);
  BUG_IF(t->holds.full);
  t->holds = (Content){true, gradient, stage, mb, edge};
  if (++v->live[t->pool] > v->most[t->pool])
    v->most[t->pool] = v->live[t->pool];
}

/* Reads the slot; last: nobody reads it after this. */
static void use(Verify *v, uint32_t slot, PipeClass cls, uint32_t stage, uint32_t mb, bool gradient,
                uint32_t edge, bool last) {
  Slot *t = touch(v, slot, cls, stage, edge);
  BUG_IF(!t->holds.full);
  BUG_IF(t->holds.stage != stage || t->holds.mb != mb || t->holds.gradient != gradient ||
         t->holds.edge != edge);
  if (last) {
    t->holds.full = false;
    v->live[t->pool]--;
  }
}

static uint32_t list_at(const PipeRank *k, uint32_t field, uint32_t n, uint32_t i) {
  BUG_IF(n > 1 && (field >= k->nlist || i >= k->nlist - field));
  return n > 1 ? k->list[field + i] : field;
}

/* Places of lists that the two fields of an op have. */
static uint32_t listed(const PipeStage *st, const PipeInstr *in) {
  uint32_t n = in->in != NONE && pipe_fields(st, in->op, true) > 1 ? pipe_fields(st, in->op, true)
                                                                   : 0;
  return n + (in->out != NONE && pipe_fields(st, in->op, false) > 1 ? pipe_fields(st, in->op, false)
                                                                    : 0);
}

/* R: from the inputs that were kept to a stash; its outputs go to slots that nobody reads. */
static void takes_again(Verify *v, const PipeInstr *in, Cell *c) {
  uint32_t n = v->p->stage[in->stage].nout;
  BUG_IF(in->keep == NONE || in->keep != c->keep || (in->out != NONE) != (n > 0));
  c->act = in->act;
  fill(v, in->act, PIPE_ACT, in->stage, in->mb, false, NONE);
  for (uint32_t i = 0; i < n; i++)
    fill(v, list_at(&v->p->rank[v->r], in->out, n, i), PIPE_LOCAL, in->stage, in->mb, false,
         verify_passage(&v->edges, in->stage, in->mb, true, i).edge);
}

static void gives_again(Verify *v, const PipeInstr *in) {
  uint32_t n = v->p->stage[in->stage].nout;
  for (uint32_t i = 0; i < n; i++)
    use(v, list_at(&v->p->rank[v->r], in->out, n, i), PIPE_LOCAL, in->stage, in->mb, false,
        verify_passage(&v->edges, in->stage, in->mb, true, i).edge, true);
  use(v, in->keep, PIPE_KEEP, in->stage, in->mb, false, NONE, true);
}

static void verify_takes(Verify *v, const PipeInstr *in) {
  const PipeProgram *p = v->p;
  const PipeStage *st = &p->stage[in->stage];
  if (in->op == PIPE_SIDE) {
    verify_side(v, in);
    return;
  }
  BUG_IF(in->peer != NONE);
  if (in->op == PIPE_U) {
    BUG_IF(in->act != NONE || in->gout != NONE || in->keep != NONE);
    BUG_IF(in->in != NONE || in->out != NONE);
    BUG_IF(v->fresh[in->stage] == 0);
    for (uint32_t q = 0; in->mb != NONE && q < p->slices; q++) {
      const Cell *named = &v->cell[cell_at(p->nmb, in->stage, in->mb + q)];
      BUG_IF(!verify_runs(p, in->stage, in->mb + q) || !verify_is_complete(named->ops) ||
             named->round != v->rounds[in->stage]);
    }
    BUG_IF(st->replica != in->stage &&
           (!v->reduced[in->stage] || !verify_synced(&v->sync, v->row, 1, v->reduced[in->stage])));
    BUG_IF(st->tied != NONE &&
           (!v->tied[in->stage] || !verify_synced(&v->sync, v->row, 1, v->tied[in->stage])));
    v->fresh[in->stage] = v->reduced[in->stage] = v->tied[in->stage] = 0;
    v->rounds[in->stage]++;
    return;
  }
  BUG_IF(!verify_runs(p, in->stage, in->mb));
  Cell *c = &v->cell[cell_at(p->nmb, in->stage, in->mb)];
  verify_next_op(c->ops, in->op);
  verify_slice(p->slices, in->mb, in->op, &c->ops, sizeof *c);
  c->ops |= (uint8_t)(1u << in->op);
  BUG_IF(c->away == 1);
  for (uint32_t q = in->op == PIPE_W ? 0 : in->mb % p->slices; q > 0;
       q--) { /* stashes that it reads */
    BUG_IF(c[-(ptrdiff_t)q].away == 1);
    touch_any(v, c[-(ptrdiff_t)q].act, PIPE_ACT);
  }
  bool forward = in->op == PIPE_F, boundary = in->op != PIPE_W && in->op != PIPE_R;
  uint32_t nread = !boundary ? 0
                   : forward ? st->nin
                             : st->nout,
           nwrite = !boundary ? 0
                    : forward ? st->nout
                              : st->nin;
  const PipeRank *k = &p->rank[v->r];

  BUG_IF((in->gout != NONE) != (in->op == PIPE_I || in->op == PIPE_W));
  BUG_IF((in->in != NONE) != (nread > 0));
  if (in->op == PIPE_R) {
    takes_again(v, in, c);
    return;
  }
  BUG_IF((in->out != NONE) != (nwrite > 0));
  /* An action takes all that it takes before it gives back: what it writes never lies where it reads. */
  if (forward) {
    c->act = in->act;
    c->keep = in->keep;
    fill(v, in->act, PIPE_ACT, in->stage, in->mb, false, NONE);
    if (in->keep != NONE)
      fill(v, in->keep, PIPE_KEEP, in->stage, in->mb, false, NONE);
  } else {
    BUG_IF(in->act != c->act || in->keep != NONE);
    BUG_IF((c->keep != NONE) != ((c->ops & SEEN(R)) != 0)); /* recomputed iff its input is kept */
  }
  if (in->op == PIPE_I) {
    c->gout = in->gout;
    fill(v, in->gout, PIPE_GOUT, in->stage, in->mb, false, NONE);
  }
  for (uint32_t i = 0; i < nwrite; i++) {
    Passage to = verify_passage(&v->edges, in->stage, in->mb, forward, i);
    fill(v, list_at(k, in->out, nwrite, i), p->stage[to.other].rank == v->r ? PIPE_LOCAL : PIPE_OUT,
         to.owner, in->mb, !forward, to.edge);
  }
}

static void verify_gives(Verify *v, const PipeInstr *in) {
  const PipeProgram *p = v->p;
  const PipeStage *st = &p->stage[in->stage];
  if (in->op == PIPE_U || in->op == PIPE_SIDE)
    return;
  if (in->op == PIPE_R) {
    gives_again(v, in);
    return;
  }
  Cell *c = &v->cell[cell_at(p->nmb, in->stage, in->mb)];
  bool forward = in->op == PIPE_F;
  uint32_t nread = in->op == PIPE_W ? 0 : forward ? st->nin : st->nout;
  for (uint32_t i = 0; i < nread; i++) {
    Passage from = verify_passage(&v->edges, in->stage, in->mb, !forward, i);
    use(v, list_at(&p->rank[v->r], in->in, nread, i),
        p->stage[from.other].rank == v->r ? PIPE_LOCAL : PIPE_IN, from.owner, in->mb, !forward,
        from.edge, true);
  }
  BUG_IF(p->forward && (!forward || in->keep != NONE));
  if (forward && in->mb % p->slices == p->slices - 1) /* what nobody reads now, of all slices */
    for (uint32_t q = 0; q < p->slices; q++)
      if (p->forward || (c - q)->keep != NONE)
        use(v, (c - q)->act, PIPE_ACT, in->stage, in->mb - q, false, NONE, true);
  if (!forward) {
    bool last = in->op == PIPE_B || in->op == PIPE_W;
    use(v, in->act, PIPE_ACT, in->stage, in->mb, false, NONE, last);
    v->left[in->stage] -= last;
    if (last) {
      BUG_IF(v->reduced[in->stage] || v->tied[in->stage]); /* the sum would lack it */
      v->graded[in->stage] = v->done[0] + 1;
      c->round = v->rounds[in->stage];
      v->fresh[in->stage]++;
    }
  }
  if (in->op == PIPE_W) {
    BUG_IF(in->gout != c->gout);
    use(v, in->gout, PIPE_GOUT, in->stage, in->mb, false, NONE, true);
  }
}

static void verify_comm(Verify *v, const PipeInstr *in) {
  const PipeProgram *p = v->p;
  const PipeStage *st = &p->stage[in->stage];
  BUG_IF(in->act != NONE || (pipe_is_sum(in->op) && in->keep != NONE));
  verify_channel(v, in);
  if (in->op == PIPE_TIE) { /* after the gradients, and their sums, of all its rows on the rank */
    BUG_IF(in->mb != NONE || in->in != NONE || in->out != NONE || in->peer != NONE);
    BUG_IF(st->tied != in->stage);
    for (uint32_t q = 0; q < p->nstage; q++)
      if (p->stage[q].rank == v->r && p->stage[q].tied == in->stage) {
        BUG_IF(v->tied[q] || v->fresh[q] == 0 || !verify_synced(&v->sync, v->row, 0, v->graded[q]));
        BUG_IF(p->stage[q].replica != q && !v->reduced[q]);
        v->tied[q] = v->done[1] + 1;
      }
    return;
  }
  if (in->op == PIPE_REDUCE) { /* after its own last gradient, once for each update */
    BUG_IF(in->mb != NONE || in->in != NONE || in->out != NONE || in->peer != NONE);
    BUG_IF(st->replica == in->stage || v->reduced[in->stage] || v->fresh[in->stage] == 0);
    BUG_IF(!verify_synced(&v->sync, v->row, 0, v->graded[in->stage]));
    v->reduced[in->stage] = v->done[1] + 1;
    return;
  }
  BUG_IF(!verify_runs(p, in->stage, in->mb));
  Cell *c = &v->cell[cell_at(p->nmb, in->stage, in->mb)];
  bool send = is_send(in), forward = is_forward(in), down = send == forward;
  BUG_IF((in->keep != NONE) != (p->edge != NULL) || in->keep + 1 > p->nedge);
  BUG_IF((down ? st->nout : st->nin) == 0);
  if (p->edge)
    BUG_IF((down ? p->edge[in->keep].from : p->edge[in->keep].to) != st->model);
  uint32_t k = !p->edge ? 0 : down ? p->edge[in->keep].out : p->edge[in->keep].in;
  Passage e = verify_passage(&v->edges, in->stage, in->mb, down, k);
  BUG_IF(e.other == NONE || in->peer == v->r || in->peer != p->stage[e.other].rank);
  (send ? c->sent : c->received)[!forward]++; /* that each is once is seen at the slots */
  BUG_IF(send ? in->out != NONE : in->in != NONE);
  if (send)
    use(v, in->in, PIPE_OUT, e.owner, in->mb, !forward, e.edge, true);
  else
    fill(v, in->out, PIPE_IN, e.owner, in->mb, !forward, e.edge);
}

/* A slot on another rank: in a pool for guests of this size, used by this rank alone, and free or full as
 * it should be. Copies of a rank run one after the other, so their order in the list is enough. */
static void verify_guest(Verify *v, const PipeInstr *in) {
  BUG_IF(in->peer >= v->p->nrank || in->peer == v->r);
  const PipeRank *k = &v->p->rank[in->peer];
  BUG_IF(in->keep >= k->nslot);
  uint32_t i = 0;
  while (i < k->npool && in->keep - k->pool[i].first >= k->pool[i].count)
    i++;
  BUG_IF(i == k->npool);
  const PipePool *q = &k->pool[i];
  BUG_IF(q->cls != PIPE_GUEST || q->bytes != content_bytes(v, in->stage, PIPE_GUEST, false));
  BUG_IF(!v->p->sized && q->stage != in->stage);
  GuestSlot *g = &v->guest[v->slot0[in->peer] + in->keep];
  BUG_IF(g->owner != NONE && g->owner != v->r);
  g->owner = v->r;
  BUG_IF(g->full != (in->op == PIPE_LOAD));
  g->full = !g->full;
}

/* A stash that goes to host memory, or comes back. */
static void verify_copy(Verify *v, const PipeInstr *in) {
  const PipeStage *st = &v->p->stage[in->stage];
  BUG_IF(in->mb < st->mb0 || in->mb - st->mb0 >= st->nmb);
  BUG_IF(in->in != NONE || in->out != NONE);
  Cell *c = &v->cell[cell_at(v->p->nmb, in->stage, in->mb)];
  if (in->peer != NONE)
    verify_guest(v, in);
  if (in->op == PIPE_OFF) {
    BUG_IF(c->away != 0 || !(c->ops & SEEN(F)) || in->act != c->act);
    const Cell *last = c + (v->p->slices - 1 - in->mb % v->p->slices);
    BUG_IF(!(last->ops & SEEN(F)));
    for (const Cell *d = c + 1; !(c->ops & (SEEN(B) | SEEN(I))) && d <= last; d++)
      BUG_IF(d->ops & (SEEN(B) | SEEN(I) | SEEN(R))); /* it has read the stash where it was */
    c->away = 1, c->host = in->keep, c->peer = in->peer;
    use(v, in->act, PIPE_ACT, in->stage, in->mb, false, NONE, true);
    if (in->peer == NONE)
      fill(v, in->keep, PIPE_HOST, in->stage, in->mb, false, NONE);
  } else {
    BUG_IF(c->away != 1 || in->keep != c->host || in->peer != c->peer);
    c->away = 2, c->act = in->act;
    if (in->peer == NONE)
      use(v, in->keep, PIPE_HOST, in->stage, in->mb, false, NONE, true);
    fill(v, in->act, PIPE_ACT, in->stage, in->mb, false, NONE);
  }
}

static void verify_rank(Verify *v, Arena *a) {
  const PipeProgram *p = v->p;
  const PipeRank *k = &p->rank[v->r];
  uint32_t nlist = 0;
  BUG_IF(k->ninstr == 0);
  v->sync = verify_sync_begin(p, k, a);
  verify_pools(v);
  memset(v->done, 0, sizeof v->done);
  for (uint32_t i = 0; i < k->ninstr; i++) {
    const PipeInstr *in = &k->instr[i];
    BUG_IF(in->phase >= PIPE_NPHASES || in->site >= p->nsite);
    BUG_IF(in->stage >= p->nstage || p->stage[in->stage].rank != v->r);
    v->stream = stream_of(in->op);
    int other[2] = {v->stream == 0, v->stream == 2 ? 1 : 2}; /* of wait, of wait_copy */
    for (int x = 0; x < 2; x++) {
      uint32_t wait = x ? in->wait_copy : in->wait;
      BUG_IF(wait > v->done[other[x]]); /* it would point below itself */
    }
    v->row = i;
    verify_sync_row(&v->sync, i);
    if (v->stream && pipe_is_side(in->op))
      verify_side(v, in);
    else if (v->stream == 2)
      verify_copy(v, in);
    else if (v->stream)
      verify_comm(v, in);
    if (v->stream) {
      if (i > 0 && stream_of(in[-1].op) == 1 && in[-1].group > 0)
        BUG_IF(v->stream != 1 || in->group != in[-1].group - 1 || in->wait || in->wait_copy);
      if (in->group > 0) { /* transfers, none of which uses a slot of another */
        BUG_IF(v->stream != 1 || p->lowering < PIPE_GROUPED || in->group >= k->ninstr - i);
        for (uint32_t j = 0; j <= in->group; j++) {
          BUG_IF(in[j].op < PIPE_SEND_F || in[j].op > PIPE_RECV_B);
          BUG_IF(j > 0 &&
                 (is_send(&in[j]) ? in[j].in : in[j].out) == (is_send(in) ? in->in : in->out));
        }
      }
      v->done[v->stream]++;
      verify_sync_done(&v->sync, i);
      continue;
    }
    /* All ops of the action take, then all give back. */
    uint32_t n = in->group + 1u;
    BUG_IF(n > k->ninstr - i);
    v->begun = v->done[0];
    for (uint32_t j = 0; j < n; j++) {
      const PipeInstr *op = &in[j];
      BUG_IF(op->group != n - 1 - j || (j > 0 && (op->wait != 0 || op->wait_copy != 0)) ||
             stream_of(op->op) != 0);
      BUG_IF(n > 1 && op->op > PIPE_U);
      for (uint32_t x = 0; x < n && op->op == PIPE_U; x++)
        BUG_IF(x != j && in[x].stage == op->stage);
      BUG_IF(op->phase >= PIPE_NPHASES || op->site >= p->nsite);
      BUG_IF(op->stage >= p->nstage || p->stage[op->stage].rank != v->r);
      v->done[0] = v->begun + j;
      nlist += listed(&p->stage[op->stage], op);
      verify_takes(v, op);
    }
    for (uint32_t j = 0; j < n; j++) {
      v->done[0] = v->begun + j;
      verify_gives(v, &in[j]);
    }
    v->done[0] = v->begun + n;
    for (uint32_t j = 0; j < n; j++)
      verify_sync_done(&v->sync, i + j);
    i += n - 1;
  }
  BUG_IF(nlist != k->nlist);
  for (uint32_t i = 0; i < k->npool; i++) {
    uint32_t cls = k->pool[i].cls;
    if (cls == PIPE_GUEST || cls == PIPE_WEIGHT || cls == PIPE_GUESS)
      continue;               /* see verify_guests, verify_weights */
    if (cls == PIPE_BUFFER) { /* some stay; they are counted in the order of the text */
      BUG_IF(k->pool[i].count < v->most[i]);
      continue;
    }
    BUG_IF(v->live[i] != 0); /* something was never consumed */
    BUG_IF(cls != PIPE_OUT && cls != PIPE_IN && cls != PIPE_ACT && cls != PIPE_HOST &&
           k->pool[i].count != v->most[i]); /* see verify_stashes */
  }
  for (uint32_t i = 0; i < k->nslot; i++) {
    uint32_t cls = k->pool[v->slot[i].pool].cls;
    BUG_IF(!v->slot[i].used && cls != PIPE_GUEST && cls != PIPE_WEIGHT && cls != PIPE_GUESS);
  }
}

/* Every slot for guests is used, and empty in the end. */
static void verify_guests(const Verify *v) {
  for (uint32_t r = 0; r < v->p->nrank; r++)
    for (uint32_t i = 0; i < v->p->rank[r].npool; i++) {
      const PipePool *q = &v->p->rank[r].pool[i];
      for (uint32_t j = q->first; q->cls == PIPE_GUEST && j < q->first + q->count; j++)
        BUG_IF(v->guest[v->slot0[r] + j].owner == NONE || v->guest[v->slot0[r] + j].full);
    }
}

/* Every op, every transfer of every boundary between ranks, and no other. */
static void verify_complete(const Verify *v) {
  const PipeProgram *p = v->p;
  for (uint32_t st = 0; st < p->nstage; st++) {
    const PipeStage *g = &p->stage[st];
    BUG_IF((v->left[st] != 0 && !p->forward) || v->fresh[st] != 0 ||
           (v->rounds[st] == 0) != (p->forward == 1) || v->rounds[st] != v->rounds[g->replica]);
    BUG_IF(g->tied != NONE && (v->rounds[st] != v->rounds[g->tied] ||
                               v->rounds[g->tied] != v->rounds[p->stage[g->tied].tie]));
    for (uint32_t mb = g->mb0; mb < g->mb0 + g->nmb; mb++) {
      const Cell *c = &v->cell[cell_at(p->nmb, st, mb)];
      uint32_t up = 0, down = 0;
      if (!verify_runs(p, st, mb)) {
        BUG_IF(c->ops);
        continue;
      }
      for (uint32_t k = 0; k < g->nin; k++)
        up += p->stage[verify_passage(&v->edges, st, mb, false, k).other].rank != g->rank;
      for (uint32_t k = 0; k < g->nout; k++)
        down += p->stage[verify_passage(&v->edges, st, mb, true, k).other].rank != g->rank;
      BUG_IF(p->forward ? c->ops != SEEN(F) : !verify_is_complete(c->ops));
      BUG_IF(c->sent[0] != down || c->sent[1] != (p->forward ? 0 : up));
      BUG_IF(c->received[0] != up || c->received[1] != (p->forward ? 0 : down));
      BUG_IF(c->away == 1);
    }
  }
}

/* The ops of each rank are those of the text, in its order and in its actions. */
static void verify_text(const Sched *s) {
  for (uint32_t r = 0; r < s->nrank; r++) {
    const PipeRank *k = &s->prog->rank[r];
    uint32_t next = s->rank_op0[r];
    for (uint32_t i = 0; i < k->ninstr; i++) {
      const PipeInstr *in = &k->instr[i];
      if (stream_of(in->op) != 0)
        continue;
      const Op *o = &s->op[next++];
      BUG_IF(next > s->rank_op0[r + 1]);
      BUG_IF(in->op != o->kind || in->stage != o->stage || in->mb != o->mb);
      BUG_IF(in->group != o->group || in->phase != o->phase || in->site != o->site);
    }
    BUG_IF(next != s->rank_op0[r + 1]);
  }
}

/* What the other streams wait for ends an action, unless sends are eager. With `send next` an action
 * waits for what the one before it has made. */
static void verify_send(const Sched *s) {
  const PipeProgram *p = s->prog;
  for (uint32_t r = 0; r < p->nrank && s->send != SEND_EAGER && p->lowering <= PIPE_CHANNELS; r++) {
    const PipeRank *k = &p->rank[r];
    uint32_t *row = NEW_ARRAY(s->arena, uint32_t, k->ninstr), ncompute = 0, ncomm = 0, sent = 0,
             waited = 0;
    for (uint32_t i = 0; i < k->ninstr; i++) {
      const PipeInstr *in = &k->instr[i];
      if (stream_of(in->op) == 0) {
        bool first = ncompute == 0 || k->instr[row[ncompute - 1]].group == 0;
        waited = in->wait > waited ? in->wait : waited;
        BUG_IF(first && s->send == SEND_NEXT && waited < sent);
        row[ncompute++] = i;
        continue;
      }
      ncomm += stream_of(in->op) == 1;
      BUG_IF(in->wait > 0 && k->instr[row[in->wait - 1]].group != 0);
      sent = is_send(in) ? ncomm : sent;
    }
  }
}

static const uint64_t *unit_of(const PipeProgram *p, const PipeInstr *in) {
  uint32_t n = p->nunit_time, unit = in->mb - p->stage[in->stage].mb0;
  return &p->unit_time[8 * ((size_t)in->stage * n + unit % n)];
}

/* Of an instruction alone; 0 of one that is no op. */
static uint64_t time_of(const PipeProgram *p, const PipeInstr *in) {
  if (in->op == PIPE_SIDE)
    return p->side[in->keep].time;
  return in->op <= PIPE_R && p->unit_time ? unit_of(p, in)[in->op]
         : in->op <= PIPE_U               ? p->stage[in->stage].time[in->op]
                                          : 0;
}

void verify_program(const Sched *s) {
  const PipeProgram *p = s->prog;
  Arena *a = s->arena;
  uint32_t nslot = 0, npool = 0;
  uint64_t busy = 0;
  Verify v = {.s = s, .p = p};
  verify_head(s);
  verify_side_table(s);
  v.edges = verify_tables(p, a);
  for (uint32_t r = 0; r < p->nrank; r++) {
    nslot = p->rank[r].nslot > nslot ? p->rank[r].nslot : nslot;
    npool = p->rank[r].npool > npool ? p->rank[r].npool : npool;
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
      const PipeInstr *in = &p->rank[r].instr[i];
      BUG_IF(in->op >= PIPE_NOPS || in->stage >= p->nstage);
      BUG_IF(pipe_is_side(in->op) && in->keep >= p->nside);
      busy += time_of(p, in);
      const PipeInstr *f = in->op == PIPE_F ? in : in + 1, *b = in->op == PIPE_F ? in + 1 : in;
      bool pair = in->group == 1 && i + 1 < p->rank[r].ninstr && in[1].stage < p->nstage &&
                  (i == 0 || in[-1].group != 2) && f->op == PIPE_F && b->op == PIPE_B;
      uint64_t fb = !pair ? 0 : p->unit_time ? unit_of(p, f)[7] : p->stage[f->stage].time_fb;
      if (fb)
        busy += fb - time_of(p, f) - time_of(p, b);
    }
  }
  BUG_IF(p->busy != busy || p->makespan < p->ideal || p->busy > p->nrank * p->ideal);
  v.slot0 = NEW_ARRAY(a, size_t, p->nrank + 1);
  for (uint32_t r = 0; r < p->nrank; r++)
    v.slot0[r + 1] = v.slot0[r] + p->rank[r].nslot;
  v.guest = NEW_ARRAY(a, GuestSlot, v.slot0[p->nrank]);
  for (size_t i = 0; i < v.slot0[p->nrank]; i++)
    v.guest[i].owner = NONE;
  v.cell = arena_zalloc(a, (size_t)p->nstage * p->nmb, sizeof *v.cell);
  v.left = NEW_ARRAY(a, uint32_t, p->nstage);
  v.fresh = NEW_ARRAY(a, uint32_t, p->nstage);
  v.rounds = NEW_ARRAY(a, uint32_t, p->nstage);
  v.graded = NEW_ARRAY(a, uint32_t, p->nstage);
  v.reduced = NEW_ARRAY(a, uint32_t, p->nstage);
  v.tied = NEW_ARRAY(a, uint32_t, p->nstage);
  v.slot = NEW_ARRAY(a, Slot, nslot);
  v.live = NEW_ARRAY(a, uint32_t, npool);
  v.most = NEW_ARRAY(a, uint32_t, npool);
  v.fixed = NEW_ARRAY(a, uint64_t, p->nrank);
  v.work = NEW_ARRAY(a, uint64_t, p->nrank);
  v.in_channel = NEW_ARRAY(a, bool, p->nchannel);
  v.pipe_at = NEW_ARRAY(a, uint32_t, (size_t)p->nmb + 1);
  for (uint32_t st = 0; st < p->nstage; st++)
    v.pipe_at[p->stage[st].mb0 + 1] = 1;
  for (uint32_t mb = 0; mb < p->nmb; mb++)
    v.pipe_at[mb + 1] += v.pipe_at[mb];
  sum_stages(&v);
  for (uint32_t st = 0; st < p->nstage; st++)
    for (uint32_t mb = p->stage[st].mb0; mb < p->stage[st].mb0 + p->stage[st].nmb; mb++)
      v.left[st] += verify_runs(p, st, mb);
  for (v.r = 0; v.r < p->nrank; v.r++)
    verify_rank(&v, a);
  for (uint32_t c = 0; c < p->nchannel; c++)
    BUG_IF(!v.in_channel[c]);
  verify_text(s);
  verify_sides(s);
  verify_guests(&v);
  verify_stashes(s);
  verify_weights(s);
  verify_formulas(s);
  verify_complete(&v);
  verify_send(s);
  verify_play(p, &v.edges, a); /* with channels, too: as one stream per rank */
  if (p->lowering == PIPE_CHANNELS)
    verify_play_channels(p, &v.edges, a);
}
