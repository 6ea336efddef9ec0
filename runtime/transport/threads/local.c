/* SPDX-License-Identifier: MIT
 * See local.h. */
#include "local.h"

static Chan *post(PrRun *run, CommRun *c, uint32_t i) {
  const CommAt *at = pr_comm_at(c, i);
  Chan *ch = &run->chan[at->chan];
  unsigned side = ch->src == c->k->id ? 0 : 1;
  const bool corrupt = pr_fault_is(run, PR_CORRUPT, c->k->id, at->index, c->step);
  ch->post[side] = (Post){&c->k->t->instr[at->index], c->k->id, corrupt, c->step, i, c};
  return atomic_fetch_or_explicit(&ch->state, 1u << side, memory_order_acq_rel) ? ch : NULL;
}

/* A lost transfer is over as soon as it begins: no transfer of its group waits for it. */
static bool is_lost(const PrRun *run, const CommRun *c, uint32_t i) {
  return pr_fault_is(run, PR_DROP, c->k->id, pr_comm_at(c, i)->index, c->step);
}

Chan *local_post(PrRun *run, CommRun *c, uint32_t i) {
  for (uint32_t j = c->next; j < i; j++)
    if (pr_comm_at(c, j)->chan == pr_comm_at(c, i)->chan && !is_lost(run, c, j))
      return NULL;
  return post(run, c, i);
}

static void over(PrRun *run, CommRun *c, uint32_t i, LocalMet *met, CommRun **todo) {
  const CommAt *at = pr_comm_at(c, i);
  uint32_t left = c->k->t->instr[at->index].group, j = 1;
  while (j <= left && (at[j].chan != at->chan || is_lost(run, c, i + j)))
    j++;
  Chan *ch = j <= left ? post(run, c, i + j) : NULL; /* the next transfer of its channel */
  if (ch)
    met(run, ch, todo);
  pr_over(run, c, i, todo);
}

void local_transfer(PrRun *run, Chan *ch, LocalMet *met, CommRun **todo) {
  const Post side[2] = {ch->post[0], ch->post[1]};
  if (pr_transfer(run, ch))
    return;
  atomic_store_explicit(&ch->state, 0, memory_order_relaxed);
  over(run, side[0].stream, side[0].at, met, todo);
  over(run, side[1].stream, side[1].at, met, todo);
}

bool local_arrive(Coll *l) {
  return atomic_fetch_add_explicit(&l->arrived, 1, memory_order_acq_rel) + 1 == l->n;
}

void local_sum(PrRun *run, Coll *l, CommRun **todo) {
  for (uint32_t i = 0; i < l->n; i++)
    l->index[i] = pr_comm_at(l->at[i], l->at[i]->next)->index;
  if (pr_sum(run, l, l->at[0]->step))
    return;
  atomic_store_explicit(&l->arrived, 0, memory_order_relaxed);
  for (uint32_t i = 0; i < l->n; i++)
    pr_over(run, l->at[i], l->at[i]->next, todo);
}
