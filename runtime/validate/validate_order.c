/* SPDX-License-Identifier: MIT
 * The order of ops: the part of the validator (validate.h) that checks actions, the ops of a
 * (stage, mb), slices, gradients, sums and updates. The order of transfers follows from the slots;
 * this part only counts them. */
#include "fields.h"
#include "validate_parts.h"

/* ---- actions ---- */

/* True if c is not the first of its action. */
static inline bool is_later(const Check *k, const PipeInstr *c) {
  return k->index > 0 && c[-1].group > 0;
}

PrStatus pr_check_own(Check *k, const PipeInstr *c, uint32_t at) {
  const bool later = is_later(k, c);
  if (!later && c->group == 0)
    return PR_OK; /* an action of one op */
  if (later && k->slot[at].action == k->first + 1 && k->slot[at].by != k->index)
    FAIL_AT(k, c, "slot %u is of another op of its action, too", at);
  k->slot[at].action = k->first + 1, k->slot[at].by = k->index;
  return PR_OK;
}

/* Checks that no other member of its action or group uses the slots of an op or transfer. Ignores
 * fields out of range, which pr_check_slots refuses. */
static PrStatus check_apart(Check *k, const PipeInstr *c) {
  const PipeRank *t = k->t;
  for (const Field *field = pipe_field; field->ops && !field->weights; field++) {
    if (!field_is_slot(field) || !field_has(field, c->op))
      continue;
    const uint32_t at = (uint32_t)field_get(field, c, NULL);
    const uint32_t n = field_slots(field, &k->p->stage[c->stage], c->op);
    if (n > 1 && (at > t->nlist || n > t->nlist - at))
      continue;
    for (uint32_t i = 0; i < n; i++) {
      const uint32_t slot = n > 1 ? t->list[at + i] : at;
      PrStatus st = slot < t->nslot ? pr_check_own(k, c, slot) : PR_OK;
      if (st)
        return st;
    }
  }
  return PR_OK;
}

/* Checks that the ops of an action, or the transfers of a group, are consecutive, that the first
 * has the waits of all, and that an update is the only op of its stage. So no member can need
 * another. */
PrStatus pr_check_action(Check *k, const PipeInstr *c) {
  const PipeRank *t = k->t;
  bool later = is_later(k, c);
  bool move = pipe_is_move(c->op);
  if (later && (c->group != c[-1].group - 1 || (c->op > PIPE_U && !move) ||
                pipe_op_info[c[-1].op].comm != move))
    FAIL_AT(k, c, "%u more of its action follow, expected an op of COMPUTE with %u", c->group,
            c[-1].group - 1u);
  if (c->group > 0 && ((move ? k->p->lowering == PIPE_CHANNELS : c->op > PIPE_U) ||
                       c->group >= t->ninstr - k->index))
    FAIL_AT(k, c, "cannot have %u more ops in its action", c->group);
  if (move && c->group >= PIPE_GROUP_MOST)
    FAIL_AT(k, c, "is of a group of %u transfers; there can be %u", c->group + 1u, PIPE_GROUP_MOST);
  if (c->op > PIPE_U && !move)
    return PR_OK;
  if (!later)
    k->first = k->index;
  else if (c->nwait > 0)
    FAIL_AT(k, c, "has %u waits, but only the first op of its action may wait", c->nwait);
  if (!later && c->group == 0)
    return PR_OK; /* an action of one op */
  if (c->op <= PIPE_U) {
    uint32_t *acted = &k->acted[c->stage], now = 2 * k->first + 2;
    if (later && (*acted >> 1 == now >> 1) && (c->op == PIPE_U || *acted > now))
      FAIL_AT(k, c, "stands in one action with %s of its stage",
              c->op == PIPE_U ? "an op" : "an update");
    *acted = now + (c->op == PIPE_U);
  }
  return check_apart(k, c);
}

/* ---- slices ---- */

/* The stash of a slice may move only while no other slice needs it: between the last F of its
 * microbatch and every backward that reads it, or after its own backward. */
static PrStatus check_away(Check *k, const PipeInstr *c, const Seen *first, uint32_t slice,
                           uint32_t slices) {
  uint32_t back = SEEN(B) | SEEN(I);
  if (!(first[slices - 1].ops & SEEN(F)))
    FAIL_AT(k, c, "comes before the forward of slice %u, which reads the stash", slices - 1);
  for (uint32_t i = slice + 1; !(first[slice].ops & back) && i < slices; i++)
    if (first[i].ops & (back | SEEN(R)))
      FAIL_AT(k, c, "comes after slice %u has read the stash, which it reads at its old place", i);
  return PR_OK;
}

/* Checks that slices go forward in order and backward in reverse order, and are recomputed in
 * order, between the last forward and the first backward of their microbatch. Linear in the slices
 * of a microbatch. */
static PrStatus check_slices(Check *k, const PipeInstr *c) {
  uint32_t slices = pipe_slices(k->p), slice = c->mb % slices, back = SEEN(B) | SEEN(I), q = slice;
  if (slices == 1)
    return PR_OK;
  const Seen *first = seen_of(k, c->stage, c->mb - slice);
  bool backward = (1u << c->op & back) != 0;
  if (c->op == PIPE_OFF)
    return check_away(k, c, first, slice, slices);
  for (uint32_t i = 0; (c->op == PIPE_R || backward) && i < slice; i++)
    if ((first[i].ops & (SEEN(OFF) | SEEN(LOAD))) == SEEN(OFF))
      FAIL_AT(k, c, "the stash of slice %u is in host memory", i);
  if (c->op == PIPE_R && !(first[slices - 1].ops & SEEN(F)))
    FAIL_AT(k, c, "comes before the forward of slice %u, which reads the stash", slices - 1);
  if (c->op == PIPE_R || (backward && slice + 1 == slices)) {
    while (q > 0 && first[q - 1].keep == PIPE_NONE)
      q--;
    if (q > 0 && !(first[q - 1].ops & SEEN(R)))
      FAIL_AT(k, c, "comes before slice %u is recomputed, whose stash it reads", q - 1);
  }
  if (c->op == PIPE_R && first[slices - 1].ops & back)
    FAIL_AT(k, c, "comes after the backward of slice %u", slices - 1);
  if (c->op == PIPE_F && slice > 0 && !(first[slice - 1].ops & SEEN(F)))
    FAIL_AT(k, c, "comes before the same op of slice %u", slice - 1);
  if (backward && slice + 1 < slices && !(first[slice + 1].ops & back))
    FAIL_AT(k, c, "comes before the same op of slice %u", slice + 1);
  return PR_OK;
}

/* ---- sums and updates ---- */

static PrStatus check_reduce(Check *k, const PipeInstr *c) {
  if (k->p->stage[c->stage].replica == c->stage)
    FAIL_AT(k, c, "stage %u has no replicas", c->stage);
  if (!k->graded[c->stage] || !is_over(k, k->graded[c->stage]))
    FAIL_AT(k, c, "does not wait for the gradients of stage %u", c->stage);
  if (k->reduced[c->stage])
    FAIL_AT(k, c, "stage %u is reduced twice", c->stage);
  k->reduced[c->stage] = k->index + 1;
  return PR_OK;
}

static PrStatus check_tie(Check *k, const PipeInstr *c) {
  if (k->p->stage[c->stage].tied != c->stage)
    FAIL_AT(k, c, "stage %u has no TIE", c->stage);
  for (uint32_t s = c->stage; s < k->p->nstage; s++) {
    const PipeStage *g = &k->p->stage[s];
    if (g->tied != c->stage)
      continue;
    if (k->tied[s])
      FAIL_AT(k, c, "stage %u is tied twice", s);
    if (!k->graded[s] || !is_over(k, k->graded[s]) ||
        (g->replica != s && (!k->reduced[s] || !is_over(k, k->reduced[s]))))
      FAIL_AT(k, c, "does not wait for the gradients of stage %u", s);
    k->tied[s] = k->index + 1;
  }
  return PR_OK;
}

static bool is_complete(uint32_t ops) {
  const uint32_t all = ops & (SEEN(F) | SEEN(B) | SEEN(I) | SEEN(W));
  return all == (SEEN(F) | SEEN(B)) || all == (SEEN(F) | SEEN(I) | SEEN(W));
}

static PrStatus check_update(Check *k, const PipeInstr *c) {
  const PipeProgram *p = k->p;
  const uint32_t s = c->stage;
  if (p->stage[s].tied != PIPE_NONE && (!k->tied[s] || !is_over(k, k->tied[s])))
    FAIL_AT(k, c, "does not wait for the sum over the stages tied to stage %u", s);
  if (p->stage[s].replica != s && (!k->reduced[s] || !is_over(k, k->reduced[s])))
    FAIL_AT(k, c, "does not wait for the sum over the replicas of stage %u", s);
  if (!k->graded[s])
    FAIL_AT(k, c, "stage %u has no gradient to apply", s);
  for (uint32_t q = 0; c->mb != PIPE_NONE && q < pipe_slices(p); q++) {
    const Seen *seen = runs(p, s, c->mb + q) ? seen_of(k, s, c->mb + q) : NULL;
    if (!seen || !is_complete(seen->ops))
      FAIL_AT(k, c, "microbatch %u has no gradient yet", c->mb + q);
    if (seen->round != k->updates[s])
      FAIL_AT(k, c, "the gradient of microbatch %u has been applied", c->mb + q);
  }
  k->graded[s] = k->reduced[s] = k->tied[s] = 0;
  k->updates[s]++;
  return PR_OK;
}

static PrStatus check_gradient(Check *k, const PipeInstr *c, Seen *seen) {
  if (k->tied[c->stage])
    FAIL_AT(k, c, "adds to the gradients of stage %u after their sum with those tied to it",
            c->stage);
  if (k->reduced[c->stage])
    FAIL_AT(k, c, "adds to the gradients of stage %u after their sum over the replicas", c->stage);
  k->left[c->stage]--;
  k->graded[c->stage] = k->index + 1;
  seen->round = k->updates[c->stage];
  return PR_OK;
}

/* ---- the ops of a (stage, mb) ---- */

/* Checks the order: F, perhaps R, then B, or I and W; each once; OFF and LOAD between them. */
PrStatus pr_check_order(Check *k, const PipeInstr *c) {
  static const uint32_t before[PIPE_NOPS] = {
      [PIPE_B] = SEEN(F), [PIPE_I] = SEEN(F),   [PIPE_W] = SEEN(F) | SEEN(I),
      [PIPE_R] = SEEN(F), [PIPE_OFF] = SEEN(F), [PIPE_LOAD] = SEEN(OFF)};
  static const uint32_t never[PIPE_NOPS] = {[PIPE_B] = SEEN(I),
                                            [PIPE_I] = SEEN(B),
                                            [PIPE_R] = SEEN(B) | SEEN(I),
                                            [PIPE_OFF] = SEEN(B) | SEEN(W)};
  if (k->p->forward && c->op != PIPE_F && c->op != PIPE_SEND_F && c->op != PIPE_RECV_F)
    FAIL_AT(k, c, "stands in a forward-only program, stage %u", c->stage);
  if (c->op == PIPE_REDUCE)
    return check_reduce(k, c);
  if (c->op == PIPE_TIE)
    return check_tie(k, c);
  if (c->op == PIPE_U)
    return check_update(k, c);
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
  PrStatus st = check_slices(k, c);
  if (st)
    return st;
  if ((s->ops & before[c->op]) != before[c->op] || (s->ops & never[c->op]))
    FAIL_AT(k, c, "is out of order with the other ops of stage %u, microbatch %u", c->stage, c->mb);
  bool compute = pipe_stream_of(c->op) == PIPE_COMPUTE;
  if (compute && (s->ops & (SEEN(OFF) | SEEN(LOAD))) == SEEN(OFF))
    FAIL_AT(k, c, "the stash of stage %u, microbatch %u is in host memory", c->stage, c->mb);
  s->ops |= 1u << c->op;
  if (c->op == PIPE_F && k->p->forward)
    k->left[c->stage]--;
  return c->op == PIPE_B || c->op == PIPE_W ? check_gradient(k, c, s) : PR_OK;
}

/* ---- all of them ---- */

/* Checks that no transfer of a (stage, mb) is missing: one per tensor that goes to another rank. */
static PrStatus check_transfers(Check *k, uint32_t s, uint32_t mb) {
  const PipeProgram *p = k->p;
  const PipeStage *g = &p->stage[s];
  const Seen *seen = seen_of(k, s, mb);
  uint32_t up = 0, down = 0;
  for (uint32_t i = 0; i < g->nin; i++)
    up += p->stage[passage(k, s, mb, false, i).other].rank != g->rank;
  for (uint32_t i = 0; i < g->nout; i++)
    down += p->stage[passage(k, s, mb, true, i).other].rank != g->rank;
  const uint32_t want[] = {down, up, p->forward ? 0 : up, p->forward ? 0 : down};
  for (int i = 0; i < 4; i++) /* SEND_F, RECV_F, SEND_B, RECV_B */
    if (seen->moved[i] != want[i])
      FAIL(k, "program: stage %u, microbatch %u: a SEND or RECV is missing", s, mb);
  if ((seen->ops & (SEEN(OFF) | SEEN(LOAD))) == SEEN(OFF))
    FAIL(k, "program: stage %u, microbatch %u: its stash is never loaded", s, mb);
  return PR_OK;
}

PrStatus pr_check_complete(Check *k) {
  const PipeProgram *p = k->p;
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    if (p->forward && k->left[s] > 0)
      FAIL(k, "program: stage %u: %u microbatches without a forward", s, k->left[s]);
    if (!p->forward && (k->left[s] > 0 || k->graded[s]))
      FAIL(k, "program: stage %u: %u microbatches without a backward, %s", s, k->left[s],
           k->graded[s] ? "no update after the last" : "updated");
    if (k->updates[s] != k->updates[g->replica])
      FAIL(k, "program: stages %u and %u are replicas, but have %u and %u updates", s, g->replica,
           k->updates[s], k->updates[g->replica]);
    uint32_t tied = g->tied == PIPE_NONE ? s : g->tied == s ? g->tie : g->tied;
    if (k->updates[s] != k->updates[tied])
      FAIL(k, "program: stages %u and %u are tied, but have %u and %u updates", s, tied,
           k->updates[s], k->updates[tied]);
    for (uint32_t mb = g->mb0; mb < g->mb0 + g->nmb; mb++) {
      PrStatus st = runs(p, s, mb) ? check_transfers(k, s, mb) : PR_OK;
      if (st)
        return st;
    }
  }
  return PR_OK;
}
