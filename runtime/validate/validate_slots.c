/* SPDX-License-Identifier: MIT
 * Slots: the part of the validator (validate.h) that tracks the contents of each slot of a rank.
 * Every tensor goes into a free slot of its class and size and is read while it is there; every use
 * of a slot comes after all earlier uses by other streams. An op takes its slots before it gives
 * any back, so no op writes where it reads. */
#include "validate_parts.h"

#include <stdlib.h>

/* ---- pools ---- */

static uint64_t add(uint64_t sum, uint64_t n, uint64_t each) {
  uint64_t all;
  return __builtin_mul_overflow(n, each, &all) || __builtin_add_overflow(sum, all, &sum)
             ? UINT64_MAX
             : sum;
}

/* Bytes of all inputs of a row, one after the other, each at a multiple of 64. */
static uint64_t input_bytes(const Check *k, uint32_t row) {
  const PipeStage *g = &k->p->stage[row];
  uint64_t n = 0;
  for (uint32_t i = 0; i < g->nin; i++) {
    Passage x = passage(k, row, g->mb0, false, i);
    const PipeStage *from = &k->p->stage[x.owner];
    n = round64(n) +
        (x.edge != PIPE_NONE && k->p->edge[x.edge].skip ? from->edge_bytes : from->boundary_bytes);
  }
  return n;
}

/* Bytes of a slot of class cls for a row of the stage table; skip: as in PipePool. */
static uint64_t slot_bytes(const Check *k, uint32_t stage, uint32_t cls, uint32_t skip) {
  const PipeStage *g = &k->p->stage[stage];
  switch ((PipeClass)cls) {
  case PIPE_ACT:
  case PIPE_HOST:
  case PIPE_GUEST: return g->act_bytes;
  case PIPE_GOUT: return g->gout_bytes;
  case PIPE_WEIGHT:
  case PIPE_GUESS: return g->weight_bytes;
  case PIPE_KEEP: return input_bytes(k, stage);
  default: return skip ? g->edge_bytes : g->boundary_bytes;
  }
}

PrStatus pr_check_pools(Check *k) {
  const PipeProgram *p = k->p;
  const PipeRank *t = k->t;
  uint64_t bytes = add(k->fixed[k->rank], 1, k->work[k->rank]), host = 0;
  uint32_t next = 0;
  for (uint32_t i = 0; i < t->npool; i++) {
    const PipePool *l = &t->pool[i];
    bool elsewhere = l->cls == PIPE_OUT || l->cls == PIPE_IN || l->cls == PIPE_GUEST;
    if (l->cls >= PIPE_NCLASSES || l->stage >= p->nstage ||
        l->skip > (l->cls >= PIPE_OUT && l->cls <= PIPE_LOCAL && p->edge))
      FAIL(k, "program: rank %u pool %u: class %u, stage %u: out of range", k->rank, i, l->cls,
           l->stage);
    if (!elsewhere && p->stage[l->stage].rank != k->rank)
      FAIL(k, "program: rank %u pool %u: class %s of stage %u, which is on rank %u", k->rank, i,
           pipe_class_name[l->cls], l->stage, p->stage[l->stage].rank);
    if (l->first != next || l->count == 0 || l->count > t->nslot - next)
      FAIL(k, "program: rank %u pool %u: %u slots from %u, expected some from %u of %u", k->rank, i,
           l->count, l->first, next, t->nslot);
    bool buffer = l->cls == PIPE_BUFFER; /* only the program knows its size */
    uint64_t want = buffer ? SIZE_LIMIT : slot_bytes(k, l->stage, l->cls, l->skip);
    if (buffer ? l->bytes > want : l->bytes != want)
      FAIL(k, "program: rank %u pool %u: slots of %llu bytes for tensors of %llu", k->rank, i,
           (unsigned long long)l->bytes, (unsigned long long)want);
    for (uint32_t j = 0; j < l->count; j++)
      k->slot[next++].pool = i;
    *(l->cls == PIPE_HOST ? &host : &bytes) = add(l->cls == PIPE_HOST ? host : bytes, l->count,
                                                  round64(l->bytes));
  }
  if (next != t->nslot)
    FAIL(k, "program: rank %u has %u slots but pools for %u", k->rank, t->nslot, next);
  if (t->bytes != (p->sized ? bytes : 0))
    FAIL(k, "program: rank %u needs %llu bytes, but %llu were proved", k->rank,
         (unsigned long long)(p->sized ? bytes : 0), (unsigned long long)t->bytes);
  if (t->host != host)
    FAIL(k, "program: rank %u needs %llu bytes of host memory, not %llu", k->rank,
         (unsigned long long)host, (unsigned long long)t->host);
  return PR_OK;
}

/* No rank may have more slots than its instructions, and its guests, can use. This bounds the
 * allocations here and for each rank. */
PrStatus pr_find_guests(Check *k, uint64_t ninstr) {
  const PipeProgram *p = k->p;
  k->guest = calloc(p->nrank, sizeof *k->guest);
  if (!k->guest)
    return NO_MEMORY(k);
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeRank *t = &p->rank[r];
    uint64_t guests = 0;
    for (uint32_t i = 0; t->pool && i < t->npool && guests <= ninstr; i++)
      guests += t->pool[i].cls == PIPE_GUEST ? t->pool[i].count : 0;
    if (guests > ninstr || t->nslot > 6 * (uint64_t)t->ninstr + guests + t->nlist)
      FAIL(k, "program: rank %u has %u slots, more than its instructions can use", r, t->nslot);
    ninstr -= guests;
    for (uint32_t i = 0; t->pool && i < t->npool; i++) {
      const PipePool *l = &t->pool[i];
      if (l->cls != PIPE_GUEST || l->stage >= p->nstage || l->first >= t->nslot ||
          l->count > t->nslot - l->first)
        continue; /* pr_check_pools refuses pools out of range */
      if (!k->guest[r])
        k->guest[r] = calloc(t->nslot, sizeof **k->guest);
      if (!k->guest[r])
        return NO_MEMORY(k);
      for (uint32_t j = 0; j < l->count; j++)
        k->guest[r][l->first + j].pool = l;
    }
  }
  return PR_OK;
}

/* ---- one slot ---- */

/* Checks that every earlier use of the slot is over when the current row starts. Each use comes
 * after the one before it, so the last one is enough. */
static inline PrStatus check_turn(Check *k, const PipeInstr *c, uint32_t at, bool reads) {
  Slot *slot = &k->slot[at];
  if (slot->touched > 0 && !is_over(k, slot->touched))
    FAIL_AT(k, c, "does not wait until slot %u is %s", at, reads ? "full" : "free");
  slot->touched = k->index + 1;
  return PR_OK;
}

/* Subtracts the slots that the previous action has given back. */
static inline void settle(const Check *k, Pool *pool) {
  if (pool->late == 0 || pool->action == k->first + 1)
    return;
  pool->live -= pool->late;
  pool->late = 0;
}

static inline PrStatus fill(Check *k, const PipeInstr *c, uint32_t at) {
  Slot *slot = &k->slot[at];
  Pool *pool = &k->pool[slot->pool];
  if (slot->full)
    FAIL_AT(k, c, "fills slot %u, which is in use", at);
  slot->full = true;
  settle(k, pool);
  pool->most = ++pool->live > pool->most ? pool->live : pool->most;
  return check_turn(k, c, at, false);
}

static inline PrStatus empty(Check *k, const PipeInstr *c, uint32_t at) {
  Slot *slot = &k->slot[at];
  Pool *pool = &k->pool[slot->pool];
  if (!slot->full)
    FAIL_AT(k, c, "gives back slot %u, which is free", at);
  slot->full = false;
  settle(k, pool);
  if (c->group > 0)
    pool->late++, pool->action = k->first + 1;
  else
    pool->live--;
  return check_turn(k, c, at, true);
}

/* True if a tensor fits a pool. Slots of one class and size are interchangeable; but without sizes,
 * and at the ends of a transfer, a slot belongs to one row. */
static bool fits(const Check *k, const PipePool *l, uint32_t stage, uint32_t cls, bool skip) {
  bool one = !k->p->sized || cls == PIPE_OUT || cls == PIPE_IN;
  return l->stage == stage ||
         (!one && slot_bytes(k, l->stage, cls, skip) == slot_bytes(k, stage, cls, skip));
}

/* Checks that `slot` is of class cls and fits a tensor of `stage`. PIPE_NONE as stage: there is no
 * such tensor, and `slot` must be PIPE_NONE. */
static inline PrStatus check_slot(Check *k, const PipeInstr *c, const char *field, uint32_t slot,
                                  PipeClass cls, uint32_t stage, bool skip) {
  const PipeRank *t = k->t;
  if (stage == PIPE_NONE) {
    if (slot != PIPE_NONE)
      FAIL_AT(k, c, "field %s is slot %u, but there is nothing to hold", field, slot);
    return PR_OK;
  }
  if (slot >= t->nslot)
    FAIL_AT(k, c, "field %s is slot %u of %u", field, slot, t->nslot);
  const PipePool *l = &t->pool[k->slot[slot].pool];
  if (l->skip != skip)
    FAIL_AT(k, c, "field %s is slot %u, %s", field, slot,
            skip ? "which is for the chain" : "which is not for the chain");
  if (l->cls != (uint32_t)cls)
    FAIL_AT(k, c, "field %s is slot %u of class %s, expected %s", field, slot,
            pipe_class_name[l->cls], pipe_class_name[cls]);
  if (!fits(k, l, stage, cls, skip))
    FAIL_AT(k, c,
            "field %s: slot %u has %llu bytes, for stage %u; the tensor has %llu, of stage %u",
            field, slot, (unsigned long long)l->bytes, l->stage,
            (unsigned long long)slot_bytes(k, stage, cls, skip), stage);
  return PR_OK;
}

/* ---- boundary tensors ---- */

/* Checks the tensor of passage x in slot `at`, of field `in` (reads) or `out`. */
static inline PrStatus check_passage(Check *k, const PipeInstr *c, Passage x, uint32_t at,
                                     bool gradient, bool reads) {
  const char *field = reads ? "in" : "out";
  bool comm = pipe_op_info[c->op].comm, skip = x.edge != PIPE_NONE && k->p->edge[x.edge].skip;
  PipeClass cls = reads == comm ? PIPE_OUT : PIPE_IN; /* SEND reads OUT; F, B and I read IN */
  if (k->p->stage[x.other].rank == k->rank)
    cls = PIPE_LOCAL;
  PrStatus st = check_slot(k, c, field, at, cls, x.owner, skip);
  if (st)
    return st;
  Slot *slot = &k->slot[at];
  if (reads) {
    if (!slot->full || slot->gradient != gradient || slot->owner != x.owner || slot->mb != c->mb ||
        slot->edge != x.edge)
      FAIL_AT(k, c, "slot %u does not hold what it reads", at);
    return empty(k, c, at);
  }
  if ((st = fill(k, c, at)))
    return st;
  slot->gradient = gradient, slot->owner = x.owner, slot->mb = c->mb, slot->edge = x.edge;
  return PR_OK;
}

/* True if the tensor passes between the stage and later stages. */
static bool is_down(PipeTensor tensor) {
  return tensor == PIPE_T_Y || tensor == PIPE_T_DY || tensor == PIPE_T_SCRATCH;
}

/* Checks the slots of SCRATCH tensors, which nothing reads: c takes all, then gives all back. */
static PrStatus check_scratch(Check *k, const PipeInstr *c, const uint32_t *slot, uint32_t n) {
  PrStatus st;
  for (uint32_t i = 0; i < n; i++) {
    Passage x = passage(k, c->stage, c->mb, true, i);
    bool skip = x.edge != PIPE_NONE && k->p->edge[x.edge].skip;
    if ((st = check_slot(k, c, "out", slot[i], PIPE_LOCAL, c->stage, skip)) ||
        (st = fill(k, c, slot[i])))
      return st;
  }
  for (uint32_t i = 0; i < n; i++)
    if ((st = empty(k, c, slot[i])))
      return st;
  return PR_OK;
}

/* Checks the slot of SEND and RECV, whose stage and edge pr_check_peer has checked. */
static PrStatus check_transfer(Check *k, const PipeInstr *c) {
  const bool send = pipe_is_send(c->op), down = c->op == PIPE_SEND_F || c->op == PIPE_RECV_B;
  const bool gradient = c->op == PIPE_SEND_B || c->op == PIPE_RECV_B;
  const uint32_t i = !k->p->edge ? 0 : down ? k->p->edge[c->edge].out : k->p->edge[c->edge].in;
  const uint32_t none = send ? c->out : c->in;
  PrStatus st;
  if ((st = check_slot(k, c, "act", c->act, PIPE_ACT, PIPE_NONE, false)) ||
      (st = check_slot(k, c, send ? "out" : "in", none, PIPE_IN, PIPE_NONE, false)))
    return st;
  return check_passage(k, c, passage(k, c->stage, c->mb, down, i), send ? c->in : c->out, gradient,
                       send);
}

/* Checks the n tensors, at least one, in field `in` (reads) or `out` of an op. */
static PrStatus check_some(Check *k, const PipeInstr *c, PipeTensor tensor, bool reads,
                           uint32_t n) {
  const PipeRank *t = k->t;
  const bool down = is_down(tensor), gradient = tensor == PIPE_T_DX || tensor == PIPE_T_DY;
  const uint32_t at = reads ? c->in : c->out;
  if (n > 1 && (at > t->nlist || n > t->nlist - at))
    FAIL_AT(k, c, "field %s: %u slots from %u on in a list of %u", reads ? "in" : "out", n, at,
            t->nlist);
  const uint32_t *slot = n > 1 ? &t->list[at] : &at;
  k->nlist += n > 1 ? n : 0;
  if (tensor == PIPE_T_SCRATCH)
    return check_scratch(k, c, slot, n);
  for (uint32_t i = 0; i < n; i++) {
    PrStatus st = check_passage(k, c, passage(k, c->stage, c->mb, down, i), slot[i], gradient,
                                reads);
    if (st)
      return st;
  }
  return PR_OK;
}

/* Checks the tensors in field `in` (reads) or `out`. */
static inline PrStatus check_tensors(Check *k, const PipeInstr *c, PipeTensor tensor, bool reads) {
  const PipeStage *g = &k->p->stage[c->stage];
  const uint32_t n = tensor == PIPE_T_NONE ? 0 : is_down(tensor) ? g->nout : g->nin;
  if (n > 0)
    return check_some(k, c, tensor, reads, n);
  return check_slot(k, c, reads ? "in" : "out", reads ? c->in : c->out, PIPE_IN, PIPE_NONE, false);
}

/* ---- stashes ---- */

/* Takes (effect > 0), reads (0) or gives back (< 0) a stash slot; *held is that of the (stage,
 * mb). */
static PrStatus check_stash(Check *k, const PipeInstr *c, const char *field, uint32_t slot,
                            int effect, uint32_t *held) {
  if (effect > 0) {
    *held = slot;
    return fill(k, c, slot);
  }
  if (slot != *held)
    FAIL_AT(k, c, "%s slot is %u, but the one taken is %u", field, slot, *held);
  return effect < 0 ? empty(k, c, slot) : check_turn(k, c, slot, true);
}

/* Checks the slot of another rank that a copy uses: of class GUEST, of the right size, and free or
 * full as required. Only this rank uses it, and its copies run one after the other. */
static PrStatus check_guest(Check *k, const PipeInstr *c, Seen *s) {
  const PipeProgram *p = k->p;
  if (c->peer >= p->nrank || c->peer == k->rank)
    FAIL_AT(k, c, "peer is rank %u of %u", c->peer, p->nrank);
  Guest *g = k->guest[c->peer];
  if (!g || c->away >= p->rank[c->peer].nslot || !g[c->away].pool)
    FAIL_AT(k, c, "field keep is slot %u of rank %u, expected one of class guest", c->away,
            c->peer);
  g += c->away;
  if (g->owner && g->owner != k->rank + 1)
    FAIL_AT(k, c, "slot %u of rank %u is used by rank %u, too", c->away, c->peer, g->owner - 1);
  if (!fits(k, g->pool, c->stage, PIPE_GUEST, false))
    FAIL_AT(k, c, "field keep: slot %u of rank %u has %llu bytes, for stage %u; the stash has %llu",
            c->away, c->peer, (unsigned long long)g->pool->bytes, g->pool->stage,
            (unsigned long long)p->stage[c->stage].act_bytes);
  g->owner = k->rank + 1;
  bool off = c->op == PIPE_OFF;
  if (off && g->full)
    FAIL_AT(k, c, "fills slot %u of rank %u, which is in use", c->away, c->peer);
  if (!off && (!g->full || s->host != c->away || s->peer != c->peer))
    FAIL_AT(k, c, "slot %u of rank %u does not hold its stash", c->away, c->peer);
  g->full = off;
  s->host = c->away, s->peer = c->peer;
  return PR_OK;
}

/* Checks OFF and LOAD: the stash moves from its ACT slot to a HOST slot, or one of another rank, or
 * back. */
static PrStatus check_copy(Check *k, const PipeInstr *c, Seen *s) {
  PrStatus st = PR_OK;
  if (c->gout != PIPE_NONE)
    FAIL_AT(k, c, "has slot %u for a gradient", c->gout);
  if ((c->peer == PIPE_NONE &&
       (st = check_slot(k, c, "keep", c->away, PIPE_HOST, c->stage, false))) ||
      (st = check_stash(k, c, "act", c->act, pipe_op_info[c->op].act, &s->act)))
    return st;
  if (s->keep != PIPE_NONE)
    FAIL_AT(k, c, "the stash is made again: it cannot move, act %u", c->act);
  if (c->peer != PIPE_NONE)
    return check_guest(k, c, s);
  if (c->op == PIPE_OFF)
    s->peer = PIPE_NONE;
  if (s->peer != PIPE_NONE)
    FAIL_AT(k, c, "its stash is on rank %u", s->peer);
  return check_stash(k, c, "keep", c->away, c->op == PIPE_OFF ? 1 : -1, &s->host);
}

/* Gives back the stashes of a microbatch that nothing reads after its last slice has gone
 * forward. */
static PrStatus end_forward(Check *k, const PipeInstr *c) {
  uint32_t slices = pipe_slices(k->p);
  for (uint32_t q = 0; q < slices; q++) {
    const Seen *s = seen_of(k, c->stage, c->mb - q);
    PrStatus st;
    if (!k->p->forward && s->keep == PIPE_NONE)
      continue;
    if ((q > 0 && (st = pr_check_own(k, c, s->act))) || (st = empty(k, c, s->act)))
      return st;
  }
  return PR_OK;
}

/* Checks that F, B, I and R may read the stashes of the earlier slices of their microbatch. */
static PrStatus read_slices(Check *k, const PipeInstr *c) {
  for (uint32_t q = c->op == PIPE_W ? 0 : c->mb % pipe_slices(k->p); q > 0; q--) {
    uint32_t at = seen_of(k, c->stage, c->mb - q)->act;
    PrStatus st;
    if ((st = pr_check_own(k, c, at)) || (st = check_turn(k, c, at, true)))
      return st;
  }
  return PR_OK;
}

/* ---- side ops ---- */

/* Checks a slot of class BUFFER that a side op takes or gives back. */
static PrStatus check_buffer(Check *k, const PipeInstr *c, uint32_t at, bool takes) {
  const PipeRank *t = k->t;
  const char *field = takes ? "out" : "in";
  if (at == PIPE_NONE)
    return PR_OK;
  const PipePool *l = at < t->nslot ? &t->pool[k->slot[at].pool] : NULL;
  if (!l || l->cls != PIPE_BUFFER)
    FAIL_AT(k, c, "field %s is slot %u of %u, expected one of class buffer", field, at, t->nslot);
  if (takes && l->bytes != k->p->side[c->side].bytes)
    FAIL_AT(k, c, "field %s: slot %u has %llu bytes for a buffer of %llu", field, at,
            (unsigned long long)l->bytes, (unsigned long long)k->p->side[c->side].bytes);
  return takes ? fill(k, c, at) : empty(k, c, at);
}

static PrStatus check_side(Check *k, const PipeInstr *c) {
  const PipeProgram *p = k->p;
  if (c->side >= p->nside || p->side[c->side].op != c->op || p->side[c->side].stage != c->stage)
    FAIL_AT(k, c, "row %u of %u is not of this side op", c->side, p->nside);
  if (c->act != PIPE_NONE || (c->gout != PIPE_NONE && c->op != PIPE_SIDE_COMM))
    FAIL_AT(k, c, "has slots %u and %u", c->act, c->gout);
  if ((c->taken == PIPE_NONE) != (p->side[c->side].bytes == 0))
    FAIL_AT(k, c, "takes slot %u, and %llu bytes", c->taken,
            (unsigned long long)p->side[c->side].bytes);
  PrStatus st = check_buffer(k, c, c->taken, true);
  return st ? st : check_buffer(k, c, c->given, false);
}

/* ---- all slots of an instruction ---- */

static PrStatus take_all(Check *k, const PipeInstr *c, Seen *s) {
  const PipeOpInfo *o = &pipe_op_info[c->op];
  PrStatus st;
  if (c->op == PIPE_F)
    s->keep = PIPE_NONE;
  if ((o->act > 0 && (st = check_stash(k, c, "act", c->act, 1, &s->act))) ||
      (o->gout > 0 && (st = check_stash(k, c, "gout", c->gout, 1, &s->gout))) ||
      (c->op == PIPE_F && c->keep != PIPE_NONE &&
       (st = check_stash(k, c, "keep", c->keep, 1, &s->keep))) ||
      (st = read_slices(k, c)))
    return st;
  return check_tensors(k, c, (PipeTensor)o->out, false);
}

static PrStatus give_all(Check *k, const PipeInstr *c, Seen *s) {
  const PipeOpInfo *o = &pipe_op_info[c->op];
  PrStatus st;
  if ((st = check_tensors(k, c, (PipeTensor)o->in, true)))
    return st;
  if ((o->act <= 0 && (st = check_stash(k, c, "act", c->act, o->act, &s->act))) ||
      (o->gout < 0 && (st = check_stash(k, c, "gout", c->gout, o->gout, &s->gout))) ||
      (c->op == PIPE_R && (st = check_stash(k, c, "keep", c->keep, -1, &s->keep))))
    return st;
  return c->op == PIPE_F && (c->mb + 1) % pipe_slices(k->p) == 0 ? end_forward(k, c) : PR_OK;
}

PrStatus pr_check_slots(Check *k, const PipeInstr *c) {
  const PipeOpInfo *o = &pipe_op_info[c->op];
  if (pipe_is_side(c->op))
    return check_side(k, c);
  if (c->op >= PIPE_SEND_F && c->op <= PIPE_RECV_B)
    return check_transfer(k, c);
  const bool host = o->stream == PIPE_COPY, act = o->act || c->op == PIPE_I;
  const bool gout = o->gout != 0,
             keep = c->op == PIPE_R || (c->op == PIPE_F && c->keep != PIPE_NONE);
  PrStatus st;
  if ((st = check_slot(k, c, "act", c->act, PIPE_ACT, act ? c->stage : PIPE_NONE, false)) ||
      (!host && !o->comm &&
       ((st = check_slot(k, c, "gout", c->gout, PIPE_GOUT, gout ? c->stage : PIPE_NONE, false)) ||
        (st = check_slot(k, c, "keep", c->keep, PIPE_KEEP, keep ? c->stage : PIPE_NONE, false)))))
    return st;
  if (!act) {
    st = check_tensors(k, c, (PipeTensor)o->out, false);
    return st ? st : check_tensors(k, c, (PipeTensor)o->in, true);
  }
  Seen *s = seen_of(k, c->stage, c->mb);
  if (host) {
    if (c->in != PIPE_NONE || c->out != PIPE_NONE)
      FAIL_AT(k, c, "has slots %u and %u", c->in, c->out);
    return check_copy(k, c, s);
  }
  if (c->op != PIPE_R && c->op != PIPE_F && s->keep != PIPE_NONE && !(s->ops & SEEN(R)))
    FAIL_AT(k, c, "the stash that it reads has not been recomputed, keep slot %u", s->keep);
  return (st = take_all(k, c, s)) ? st : give_all(k, c, s);
}

/* ---- the end of a rank ---- */

/* Checks the counts of pools. That slots are empty follows from pr_check_complete: no op is
 * missing. */
PrStatus pr_check_left(Check *k) {
  const PipeRank *t = k->t;
  for (uint32_t i = 0; i < t->nslot; i++) {
    k->pool[k->slot[i].pool].used += k->slot[i].touched > 0;
  }
  for (uint32_t i = 0; i < t->npool; i++) {
    const PipePool *l = &t->pool[i];
    const Pool *pool = &k->pool[i];
    if (l->cls == PIPE_GUEST || l->cls == PIPE_WEIGHT || l->cls == PIPE_GUESS)
      continue; /* see pr_check_guests_left, pr_check_weights */
    bool exact = l->cls == PIPE_GOUT || l->cls == PIPE_LOCAL || l->cls == PIPE_KEEP;
    if (pool->used != l->count || (exact && pool->most < l->count))
      FAIL(k, "program: rank %u pool %u: %u slots of class %s, but %u are used and %u at once",
           k->rank, i, l->count, pipe_class_name[l->cls], pool->used, pool->most);
  }
  return PR_OK;
}

PrStatus pr_check_guests_left(Check *k) {
  const PipeProgram *p = k->p;
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; k->guest[r] && i < p->rank[r].nslot; i++) {
      const Guest *g = &k->guest[r][i];
      if (g->pool && (!g->owner || g->full))
        FAIL(k, "program: rank %u: guest slot %u is %s", r, i,
             g->full ? "full at the end" : "never used");
    }
  return PR_OK;
}
