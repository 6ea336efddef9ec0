/* SPDX-License-Identifier: MIT
 * The memory of the ranks of a run: allocated in pr_open, never later.
 *
 * Each rank has one block, and a second one in host memory if it offloads stashes. The block
 * consists of the weights, gradients and optimizer states of its stages, one workspace, and its
 * slots. Every buffer starts at a multiple of PR_LINE bytes and counts as whole lines, so the sum
 * equals PipeRank.bytes of a program with sizes exactly. The thread of the rank writes the block
 * once before pr_open returns: memory that the operating system cannot provide fails there and not
 * during a step. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

/* Places the slots of host memory, or all others, from at + used. False: more than 2^60 bytes. */
static bool lay_out_slots(PrRun *run, RankRun *k, char *at, bool host, uint64_t *used) {
  const uint64_t limit = UINT64_C(1) << 60;
  for (uint32_t i = 0; i < k->t->npool; i++) {
    const PipePool *l = &k->t->pool[i];
    uint64_t bytes = l->cls == PIPE_BUFFER ? l->bytes
                                           : pr_class_bytes(run, l->stage, l->cls, l->skip);
    if ((l->cls == PIPE_ACT || l->cls == PIPE_GOUT) && k->holds)
      bytes = 0;
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

/* Places the buffers of the rank from `at`; at NULL: only counts. The validator limits each size,
 * so one round of the loop cannot overflow, and the test at its end detects a sum that is too
 * large. */
static bool lay_out(PrRun *run, RankRun *k, char *at, uint64_t *total) {
  const uint64_t limit = UINT64_C(1) << 60;
  uint64_t used = pr_room(k, at, 0, NULL, PIPE_NONE), work = 0;
  for (uint32_t i = 0; i < k->nstage; i++) {
    StageRun *g = &run->stage[k->stage[i]];
    uint32_t states = run->p->stage[k->stage[i]].states;
    bool versions = k->t->weights || k->t->weighted; /* weights with versions are in slots */
    uint64_t own = versions ? 0 : g->size.weight;
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

PrStatus pr_take_memory(PrRun *run, RankRun *k) {
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
  k->holds = run->m.holds_stash;
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
  /* One line more than needed: an empty buffer at the end has an address too. */
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

void pr_give_memory(PrRun *run, RankRun *k) {
  give(run, k->host, true);
  give(run, k->block, false);
  free(k->slot);
  free(k->slot_bytes);
  free(k->listed);
  free(k->call);
  free(k->lost);
  free(k->span);
  free(k->view);
  pr_give_contract(k);
}
