/* SPDX-License-Identifier: MIT
 * Checks the promises of a model (PrCall in pipe_run.h), if the environment has PIPE_CHECK_MODEL=1:
 * - an op writes nothing outside its buffers: fences of known bytes surround every buffer. A sum
 *   of processes gets pieces of buffers, and changes nothing behind a piece;
 * - an op does not change what it may only read: its inputs, or the gradients of its outputs, and
 *   the weights; weights are not checked in programs with side ops, which may write them meanwhile;
 * - U leaves grad zero;
 * - R makes the stash that F made. Both start from known bytes, so bytes that they leave out are
 *   equal. If R reads another version of the weights than F, or an estimate, stashes may differ.
 *
 * The first op that breaks a promise fails the run, which names it. Everything is checked after
 * every op, so ops take longer; pr_bytes does not count the fences. Without the variable the cost
 * is one comparison per op. Requires tensors that the host can read: not for engines with memory of
 * their own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checksum.h"
#include "run.h"

enum { KNOWN = 0xa5 };

/* The bytes between the end of a buffer and the next buffer. */
typedef struct Fence {
  unsigned char *from;
  uint64_t bytes;
  const char *what; /* name of the buffer; NULL: the fence before the first */
  uint32_t stage;   /* stage of the buffer; PIPE_NONE: of the rank */
} Fence;

/* A stash: its checksum, and the version of the weights that it was made with; PIPE_NONE: an
 * estimate. */
typedef struct Made {
  uint64_t sum;
  uint32_t version;
} Made;

/* Checksums of the operands that an op only reads. */
typedef struct Read {
  uint64_t in, weight;
} Read;

struct PrContract {
  Fence *fence; /* [nfence] */
  uint32_t nfence;
  Made *stash; /* [stages of the rank * nmb] made by F; NULL: nothing is recomputed */
  Read *read;  /* [ops of the largest action] before the ops */
};

PrStatus pr_take_contract(PrRun *run, RankRun *k) {
  const char *on = getenv("PIPE_CHECK_MODEL");
  bool again = false;
  uint32_t most = 1;
  if (!on || !*on || strcmp(on, "0") == 0)
    return PR_OK;
  if (strcmp(on, "1") != 0)
    return pr_fail(run, PR_E_ARG, "PIPE_CHECK_MODEL is '%s', not 0 or 1", on);
  if (run->engine->take)
    return pr_fail(
        run, PR_E_ARG,
        "PIPE_CHECK_MODEL=1 needs tensors in host memory: this engine keeps its tensors on devices");
  for (uint32_t i = 0; i < k->t->ninstr; i++) {
    again = again || k->t->instr[i].op == PIPE_R;
    most = k->t->instr[i].group + 1u > most ? k->t->instr[i].group + 1u : most;
  }
  struct PrContract *c = k->contract = calloc(1, sizeof *c);
  if (c) {
    c->fence = calloc(4 * (size_t)k->nstage + 2 + k->t->nslot, sizeof *c->fence);
    c->read = calloc(most, sizeof *c->read);
    c->stash = again ? calloc((size_t)k->nstage * run->p->nmb, sizeof *c->stash) : NULL;
  }
  return c && c->fence && c->read && (c->stash || !again)
             ? PR_OK
             : pr_fail(run, PR_E_MEMORY, "no memory for PIPE_CHECK_MODEL=1");
}

void pr_give_contract(RankRun *k) {
  if (k->contract) {
    free(k->contract->fence);
    free(k->contract->stash);
    free(k->contract->read);
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
        if (!f->what)
          return pr_fail(run, PR_E_MODEL, "model: rank %u, %s: wrote in front of its first buffer",
                         k->id, where);
        return f->stage == PIPE_NONE
                   ? pr_fail(run, PR_E_MODEL, "model: rank %u, %s: wrote behind the end of '%s'",
                             k->id, where, f->what)
                   : pr_fail(run, PR_E_MODEL,
                             "model: rank %u, %s: wrote behind the end of a '%s' of stage %u",
                             k->id, where, f->what, f->stage);
      }
  return PR_OK;
}

uint64_t pr_sum_behind(const RankRun *k, const Coll *l, void *const *grad, uint64_t bytes) {
  uint64_t sum = 0;
  for (uint32_t i = 0; k->contract && i < l->ngrad; i++)
    sum = pr_checksum_after(sum, (const char *)grad[i] + bytes, PR_LINE);
  return sum;
}

/* The entry for the stash of an F or R; NULL: none. */
static Made *stash_of(const PrRun *run, const RankRun *k, const PipeInstr *c) {
  bool makes = c->op == PIPE_F || c->op == PIPE_R;
  return makes && !run->m.holds_stash && k->contract->stash && c->act != PIPE_NONE
             ? &k->contract->stash[(size_t)run->p->stage[c->stage].chunk * run->p->nmb + c->mb]
             : NULL;
}

/* The version of the weights that c reads; PIPE_NONE: an estimate. */
static uint32_t version_of(const RankRun *k, const PipeInstr *c) {
  const PipeWeights *w = k->t->weights ? &k->t->weights[c - k->t->instr] : NULL;
  return !w ? 0 : w->formula == PIPE_NONE ? w->version : PIPE_NONE;
}

/* Bytes of output j of a row; its gradient has as many. */
static uint64_t output_bytes(const PrRun *run, uint32_t row, uint32_t j) {
  const PipeProgram *p = run->p;
  const PrSizes *z = &run->stage[row].size;
  for (uint32_t e = 0; e < p->nedge; e++)
    if (p->edge[e].from == p->stage[row].model && p->edge[e].out == j && p->edge[e].skip)
      return z->edge;
  return z->boundary;
}

/* Checksums of the operands that c may read but not write. */
static Read what_is_read(const PrRun *run, const PipeInstr *c, const PrCall *a) {
  const StageRun *s = &run->stage[c->stage];
  const bool forward = c->op == PIPE_F || c->op == PIPE_R;
  const void *const *in = forward ? a->xs : a->dys;
  Read r = {0, 0};
  for (uint32_t j = 0, n = forward ? a->nx : a->ny; in && j < n; j++)
    r.in = pr_checksum_after(r.in, in[j],
                             forward ? s->kept[j].bytes : output_bytes(run, c->stage, j));
  const void *weight = c->op != PIPE_U ? a->weight : a->newest != a->weight ? a->newest : NULL;
  if (weight && run->p->nside == 0)
    r.weight = pr_checksum(weight, s->size.weight);
  return r;
}

void pr_before_ops(const PrRun *run, const RankRun *k, const PipeInstr *c, uint32_t n) {
  for (uint32_t i = 0; k->contract && i < n; i++) {
    if (stash_of(run, k, &c[i]))
      memset(k->slot[c[i].act], KNOWN, run->stage[c[i].stage].size.act);
    k->contract->read[i] = what_is_read(run, &c[i], &k->call[i]);
  }
}

/* Checks that op i of an action, after its call, has not written to the operands that it only
 * reads. */
static PrStatus check_read(PrRun *run, const RankRun *k, const PipeInstr *c, uint32_t i,
                           const char *at) {
  const Read was = k->contract->read[i], is = what_is_read(run, &c[i], &k->call[i]);
  const bool forward = c[i].op == PIPE_F || c[i].op == PIPE_R;
  if (was.in == is.in && was.weight == is.weight)
    return PR_OK;
  return pr_fail(run, PR_E_MODEL, "model: rank %u, %s: wrote to %s, which it may only read", k->id,
                 at,
                 was.in == is.in ? "its weights"
                 : forward       ? "its input"
                                 : "dy");
}

PrStatus pr_after_ops(PrRun *run, const RankRun *k, const PipeInstr *c, uint32_t n, uint64_t step) {
  char where[PR_WHERE], at[PR_WHERE + 40];
  PrStatus st = PR_OK;
  for (uint32_t i = 0; k->contract && !st && i < n; i++) {
    const StageRun *s = &run->stage[c[i].stage];
    snprintf(at, sizeof at, "step %llu, %s", (unsigned long long)step, pr_where(run, &c[i], where));
    st = i == 0 ? pr_check_fences(run, k, at) : PR_OK;
    if (!st && !pipe_is_side(c[i].op)) /* side ops run beside others and were not checked before */
      st = check_read(run, k, c, i, at);
    for (uint64_t j = 0; c[i].op == PIPE_U && !st && j < s->size.grad; j++)
      if (((const unsigned char *)s->grad)[j])
        st = pr_fail(run, PR_E_MODEL, "model: rank %u, %s: left byte %llu of grad not zero", k->id,
                     at, (unsigned long long)j);
    Made *stash = stash_of(run, k, &c[i]);
    if (st || !stash)
      continue;
    const Made made = {pr_checksum(k->slot[c[i].act], s->size.act), version_of(k, &c[i])};
    const bool same = made.version == stash->version && made.version != PIPE_NONE;
    if (c[i].op == PIPE_R && same && made.sum != stash->sum)
      st = pr_fail(run, PR_E_MODEL,
                   "model: rank %u, %s: R made a stash ('act') that differs from the stash of F",
                   k->id, at);
    *stash = made;
  }
  return st;
}
