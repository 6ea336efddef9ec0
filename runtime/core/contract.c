/* SPDX-License-Identifier: MIT
 * Checks of what a model promises (PrCall in pipe_run.h), with the environment variable
 * PIPE_CHECK_MODEL=1:
 *
 *   - an op writes nothing behind its buffers: a line of known bytes stands behind each of them;
 *   - U leaves grad zero;
 *   - R makes the stash that F has made. Both find known bytes there, so what they leave out is
 *   equal;
 *     with versions of the weights, where R may read another one than F, this is not checked.
 *
 * The first op that breaks one fails the run and is named. Everything is looked at after every op,
 * so ops take longer, and a rank has a line more for each buffer, which pr_bytes does not count.
 * Off it costs one comparison an op. Needs tensors that the host can read: not for engines with
 * memory of their own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checksum.h"
#include "run.h"

enum { KNOWN = 0xa5 };

/* The bytes behind a buffer, up to the next one. */
typedef struct Fence {
  unsigned char *from;
  uint64_t bytes;
  const char *what; /* the buffer */
  uint32_t stage;   /* PIPE_NONE: of the rank */
} Fence;

struct PrContract {
  Fence *fence; /* [nfence] */
  uint32_t nfence;
  /* [stages of the rank * nmb] checksums of what F made; NULL: nothing recomputed, or versions */
  uint64_t *stash;
};

PrStatus pr_take_contract(PrRun *run, RankRun *k) {
  const char *on = getenv("PIPE_CHECK_MODEL");
  bool again = false;
  if (!on || !*on || strcmp(on, "0") == 0)
    return PR_OK;
  if (strcmp(on, "1") != 0)
    return pr_fail(run, PR_E_ARG, "PIPE_CHECK_MODEL is '%s', not 0 or 1", on);
  if (run->engine->take)
    return pr_fail(run, PR_E_ARG, "PIPE_CHECK_MODEL=1: this engine's tensors are not the host's");
  for (uint32_t i = 0; i < k->t->ninstr; i++)
    again = again || k->t->instr[i].op == PIPE_R;
  struct PrContract *c = k->contract = calloc(1, sizeof *c);
  if (c)
    c->fence = calloc(4 * (size_t)k->nstage + 1 + k->t->nslot, sizeof *c->fence);
  if (c && again && !k->t->weights)
    c->stash = calloc((size_t)k->nstage * run->p->nmb, sizeof *c->stash);
  return c && c->fence && (c->stash || !again || k->t->weights)
             ? PR_OK
             : pr_fail(run, PR_E_MEMORY, "no memory for PIPE_CHECK_MODEL=1");
}

void pr_give_contract(RankRun *k) {
  if (k->contract) {
    free(k->contract->fence);
    free(k->contract->stash);
  }
  free(k->contract);
}

uint64_t pr_room(const RankRun *k, char *at, uint64_t bytes, const char *what, uint32_t stage) {
  struct PrContract *c = k->contract;
  uint64_t room = pr_round(bytes) + (c ? PR_LINE : 0);
  if (c && at)
    c->fence[c->nfence++] = (Fence){(unsigned char *)at + bytes, room - bytes, what, stage};
  return room;
}

void pr_fill_fences(const RankRun *k) {
  for (uint32_t i = 0; k->contract && i < k->contract->nfence; i++)
    memset(k->contract->fence[i].from, KNOWN, k->contract->fence[i].bytes);
}

PrStatus pr_check_fences(PrRun *run, const RankRun *k, const char *where) {
  const struct PrContract *c = k->contract;
  for (uint32_t i = 0; c && i < c->nfence; i++)
    for (uint64_t j = 0; j < c->fence[i].bytes; j++)
      if (c->fence[i].from[j] != KNOWN) {
        const Fence *f = &c->fence[i];
        return f->stage == PIPE_NONE
                   ? pr_fail(run, PR_E_MODEL, "model: rank %u, %s: wrote behind the end of '%s'",
                             k->id, where, f->what)
                   : pr_fail(run, PR_E_MODEL,
                             "model: rank %u, %s: wrote behind the end of a '%s' of stage %u",
                             k->id, where, f->what, f->stage);
      }
  return PR_OK;
}

/* The checksum of the stash of an F or R; NULL: there is none. */
static uint64_t *stash_of(const PrRun *run, const RankRun *k, const PipeInstr *c) {
  bool makes = c->op == PIPE_F || c->op == PIPE_R;
  return makes && k->contract->stash && c->act != PIPE_NONE
             ? &k->contract->stash[(size_t)run->p->stage[c->stage].chunk * run->p->nmb + c->mb]
             : NULL;
}

void pr_before_ops(const PrRun *run, const RankRun *k, const PipeInstr *c, uint32_t n) {
  for (uint32_t i = 0; k->contract && i < n; i++)
    if (stash_of(run, k, &c[i]))
      memset(k->slot[c[i].act], KNOWN, run->stage[c[i].stage].size.act);
}

PrStatus pr_after_ops(PrRun *run, const RankRun *k, const PipeInstr *c, uint32_t n, uint64_t step) {
  char where[PR_WHERE], at[PR_WHERE + 40];
  PrStatus st = PR_OK;
  for (uint32_t i = 0; k->contract && !st && i < n; i++) {
    const StageRun *s = &run->stage[c[i].stage];
    snprintf(at, sizeof at, "step %llu, %s", (unsigned long long)step, pr_where(run, &c[i], where));
    st = i == 0 ? pr_check_fences(run, k, at) : PR_OK;
    for (uint64_t j = 0; c[i].op == PIPE_U && !st && j < s->size.grad; j++)
      if (((const unsigned char *)s->grad)[j])
        st = pr_fail(run, PR_E_MODEL, "model: rank %u, %s: left byte %llu of grad not zero", k->id,
                     at, (unsigned long long)j);
    uint64_t *stash = stash_of(run, k, &c[i]), made;
    if (st || !stash)
      continue;
    made = pr_checksum(k->slot[c[i].act], s->size.act);
    if (c[i].op == PIPE_R && made != *stash)
      st = pr_fail(run, PR_E_MODEL, "model: rank %u, %s: made another 'act' than F did", k->id, at);
    *stash = made;
  }
  return st;
}
