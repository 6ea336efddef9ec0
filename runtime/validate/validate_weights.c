/* SPDX-License-Identifier: MIT
 * Versions of the weights: the part of the validator (validate.h) that checks PipeWeights. Ensures
 * that every op finds its version in its slot, that every U makes the next version from the newest,
 * that a step ends with the newest version in the first slot of the pool, that `behind` and `ahead`
 * count the updates between versions, and that no slot and no state is superfluous. Which version
 * an op is to read is not its matter. Linear in instructions and slots. */
#include "validate_parts.h"

PrStatus pr_check_states(Check *k) {
  const PipeProgram *p = k->p;
  uint32_t tables = 0;
  for (uint32_t r = 0; r < p->nrank; r++)
    tables += p->rank[r].weights != NULL;
  if (tables != 0 && tables != p->nrank)
    FAIL(k, "program: %u of %u ranks say which versions of the weights they use", tables, p->nrank);
  if (p->nstate > 32 || (p->nstate && !p->state) || (p->nformula && !p->formula) ||
      (p->nrule && !p->rule) || (p->nthen && !p->then) ||
      (!tables && (p->nstate || p->nformula || p->nrule || p->nthen)))
    FAIL(k, "program: %u states, %u formulas and %u rules: a table is missing", p->nstate,
         p->nformula, p->nrule);
  for (uint32_t j = 0; j < p->nstate; j++)
    if (!p->state[j])
      FAIL(k, "program: state %u has no name", j);
  for (uint32_t s = 0; s < p->nstage; s++)
    if (p->nstate < 32 && p->stage[s].states >> p->nstate)
      FAIL(k, "program: stage %u keeps states 0x%x, but there are %u", s, p->stage[s].states,
           p->nstate);
  return PR_OK;
}

/* Checks that the slot is for weights of the stage of c and, if c reads it, has `version`. */
static PrStatus check_version(Check *k, const PipeInstr *c, uint32_t slot, bool reads,
                              uint32_t version) {
  const PipeRank *t = k->t;
  const PipePool *l = slot < t->nslot ? &t->pool[k->slot[slot].pool] : NULL;
  if (!l || l->cls != PIPE_WEIGHT || l->stage != c->stage)
    FAIL_AT(k, c, "weights in slot %u, which is not one of class weight of its stage", slot);
  if (reads && (version == PIPE_NONE || k->slot[slot].version != version))
    FAIL_AT(k, c, "reads version %u of the weights, but slot %u holds %s", version, slot,
            k->slot[slot].version == PIPE_NONE ? "no version" : "another version");
  return PR_OK;
}

/* Checks the GUESS slot: one that no other op of the action uses, for an estimate or old weights;
 * or one with an estimate of this version, which an earlier op of the stage made. */
static PrStatus check_guess(Check *k, const PipeInstr *c, const PipeWeights *w) {
  const PipeRank *t = k->t;
  if (w->formula != PIPE_NONE && w->formula >= (c->op == PIPE_U ? k->p->nrule : k->p->nformula))
    FAIL_AT(k, c, "formula %u of %u", w->formula, c->op == PIPE_U ? k->p->nrule : k->p->nformula);
  bool shares = c->op != PIPE_U && w->formula == PIPE_NONE;
  if (w->guess == PIPE_NONE) {
    if (c->op != PIPE_U && w->formula != PIPE_NONE)
      FAIL_AT(k, c, "formula %u has no slot for its result", w->formula);
    return PR_OK;
  }
  Slot *slot = w->guess < t->nslot ? &k->slot[w->guess] : NULL;
  const PipePool *l = slot ? &t->pool[slot->pool] : NULL;
  if (!l || l->cls != PIPE_GUESS || l->bytes != k->p->stage[c->stage].weight_bytes ||
      (!k->p->sized && l->stage != c->stage))
    FAIL_AT(k, c,
            "an estimate of weights in slot %u, which is not one of class guess of their size",
            w->guess);
  if (c->op == PIPE_U && w->formula == PIPE_NONE)
    FAIL_AT(k, c, "keeps old weights in slot %u, but has no formula that reads them", w->guess);
  if (shares) {
    if (w->slot != PIPE_NONE)
      FAIL_AT(k, c, "reads weights in slot %u, and an estimate in slot %u", w->slot, w->guess);
    if (slot->guess_stage != c->stage || slot->version != w->version)
      FAIL_AT(k, c, "reads an estimate from version %u of the weights, but slot %u holds %s",
              w->version, w->guess,
              slot->guess_stage == PIPE_NONE ? "no estimate" : "another estimate");
    return PR_OK;
  }
  if (slot->action == k->first + 1)
    FAIL_AT(k, c, "slot %u is of another op of its action, too", w->guess);
  slot->action = k->first + 1;
  slot->guess_stage = c->op == PIPE_U ? PIPE_NONE : c->stage;
  slot->version = w->version;
  return PR_OK;
}

/* Checks `behind` and `ahead` of an instruction; at a gradient, `ahead` of its F. */
static PrStatus check_distances(Check *check, const PipeInstr *instr, const PipeWeights *weights,
                                uint32_t newest) {
  uint32_t *late = &check->late[instr->stage], ahead = 0;
  int32_t behind = 0;
  if (instr->op == PIPE_U) {
    behind = (int32_t)*late;
    *late = 0;
  } else if (instr->op < PIPE_U) {
    Seen *seen = seen_of(check, instr->stage, instr->mb);
    if (instr->op == PIPE_F) {
      seen->version = weights->version;
      seen->applied = weights->version + weights->ahead;
    }
    if (instr->op == PIPE_B || instr->op == PIPE_W) {
      if (seen->applied != newest)
        FAIL_AT(check, instr, "its gradient is applied to version %u of the weights, not %u",
                newest, seen->applied);
      if (newest - seen->version > *late)
        *late = newest - seen->version;
    }
    if (instr->op != PIPE_W) {
      behind = (int32_t)(weights->version - seen->version);
      ahead = seen->applied - weights->version;
    }
  }
  if (weights->behind != behind || weights->ahead != ahead)
    FAIL_AT(check, instr, "is %d updates behind and %u ahead, not %d and %u", (int)behind, ahead,
            (int)weights->behind, weights->ahead);
  return PR_OK;
}

static PrStatus check_instr(Check *k, const PipeInstr *c, const PipeWeights *w, uint32_t *newest) {
  PrStatus st;
  if (!pipe_uses_weights(c->op)) {
    if (w->version != PIPE_NONE || w->slot != PIPE_NONE || w->out != PIPE_NONE ||
        w->guess != PIPE_NONE || w->formula != PIPE_NONE)
      FAIL_AT(k, c, "uses no weights, but version %u", w->version);
    return PR_OK;
  }
  if (k->index == 0 || c[-1].group == 0)
    k->first = k->index;
  if ((st = check_guess(k, c, w)) || (st = pr_check_formulas(k, c, w)))
    return st;
  if (c->op != PIPE_U) {
    if (w->out != PIPE_NONE)
      FAIL_AT(k, c, "makes weights in slot %u", w->out);
    if (c->op == PIPE_SIDE && w->version != *newest)
      FAIL_AT(k, c, "reads version %u of the weights, but the newest is %u", w->version, *newest);
    if (c->op == PIPE_SIDE && w->guess != PIPE_NONE)
      FAIL_AT(k, c, "reads an estimate in slot %u; a side op reads the weights", w->guess);
    if (w->slot == PIPE_NONE && w->guess != PIPE_NONE && w->formula == PIPE_NONE)
      return PR_OK;
    return check_version(k, c, w->slot, true, w->version);
  }
  if ((st = check_version(k, c, w->slot, true, *newest)) ||
      (st = check_version(k, c, w->out, false, 0)))
    return st;
  if (w->version != *newest + 1)
    FAIL_AT(k, c, "makes version %u of the weights, but the newest is %u", w->version, *newest);
  k->slot[w->out].version = ++*newest;
  return PR_OK;
}

/* Checks that every slot for weights is used, and that the newest version ends where it began. */
static PrStatus check_weight_pools(Check *check) {
  const PipeRank *rank = check->t;
  for (uint32_t i = 0; i < rank->npool; i++) {
    const PipePool *pool = &rank->pool[i];
    uint32_t used = 0;
    if (pool->cls != PIPE_WEIGHT && pool->cls != PIPE_GUESS)
      continue;
    for (uint32_t j = 0; j < pool->count; j++)
      used += check->slot[pool->first + j].version != PIPE_NONE;
    if (used != pool->count)
      FAIL(check, "program: rank %u pool %u: %u slots of class %s, but %u are used", check->rank, i,
           pool->count, pipe_class_name[pool->cls], used);
    if (pool->cls == PIPE_WEIGHT && check->slot[pool->first].version != check->newest[pool->stage])
      FAIL(check, "program: stage %u: its newest weights end in another slot than they began in",
           pool->stage);
  }
  return PR_OK;
}

PrStatus pr_check_weights(Check *k) {
  const PipeRank *t = k->t;
  uint32_t *newest = k->newest;
  if (!t->weights) {
    for (uint32_t i = 0; i < t->npool; i++)
      if (t->pool[i].cls == PIPE_WEIGHT || t->pool[i].cls == PIPE_GUESS)
        FAIL(k, "program: rank %u pool %u: class %s, but no op says its version", k->rank, i,
             pipe_class_name[t->pool[i].cls]);
    return PR_OK;
  }
  uint32_t stages = 0;
  for (uint32_t i = 0; i < t->nslot; i++)
    k->slot[i].version = k->slot[i].guess_stage = PIPE_NONE, k->slot[i].action = 0;
  for (uint32_t i = 0; i < t->npool; i++) {
    const PipePool *l = &t->pool[i];
    if (l->cls != PIPE_WEIGHT)
      continue;
    if (k->p->stage[l->stage].rank != k->rank || newest[l->stage] != PIPE_NONE)
      FAIL(k, "program: rank %u pool %u: weights of stage %u, which is not there, or twice",
           k->rank, i, l->stage);
    newest[l->stage] = k->slot[l->first].version = 0;
    stages++;
  }
  for (uint32_t s = 0; s < k->p->nstage; s++)
    stages -= k->p->stage[s].rank == k->rank;
  if (stages != 0)
    FAIL(k, "program: rank %u has stages without slots for their weights", k->rank);
  for (k->index = 0; k->index < t->ninstr; k->index++) {
    const PipeInstr *c = &t->instr[k->index];
    const PipeWeights *w = &t->weights[k->index];
    PrStatus st = check_instr(k, c, w, &newest[c->stage]);
    if (st || (st = check_distances(k, c, w, newest[c->stage])))
      return st;
  }
  for (uint32_t s = 0; s < k->p->nstage; s++)
    if (k->p->stage[s].rank == k->rank && k->p->stage[s].states & ~k->named[s])
      FAIL(k, "program: stage %u keeps states 0x%x, of which formulas read 0x%x", s,
           k->p->stage[s].states, k->named[s]);
  return check_weight_pools(k);
}
