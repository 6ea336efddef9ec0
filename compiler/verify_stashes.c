/* SPDX-License-Identifier: MIT
 * Verifies what is alive on each rank at each moment: the stashes and inputs of its list, in the order of the text, with
 * copies. The pools of stashes have no slot more than that needs, and the limits (lang/spec.md 7.1) hold; that these
 * are what their clauses say is seen by putting 0 and 1 into them. Shares nothing with slots.c and limit.c but the
 * rows of limits. Aborts on our own mistakes.
 *
 * note [moments]: an action is two of them: once all its ops have taken what they take, and once all have given back. A
 * copy is one. It stands before the op that its `wait` counts to; what an OFF leaves is free for a LOAD below, and
 * for others from the first op on that waits for the OFF. The place in host memory that a LOAD reads is in use
 * until an op waits for the LOAD, or the copy behind it begins. Where a limit takes a count from its sum, what copies do to
 * it counts as early as it can make it less, and as late as it must have made it more. */
#include <string.h>

#include "limit.h"
#include "verify.h"

typedef struct Kept { /* of a forward */
  uint32_t act;       /* its slot */
  bool again;         /* it is recomputed: its inputs are kept */
} Kept;

typedef struct Stashes {
  Sched *s;
  const PipeProgram *p;
  const PipeRank *k;
  Kept *kept;        /* [nstage * nmb] */
  uint32_t *pool_of; /* [nslot] */
  uint32_t
      *left; /* [nslot] 1 + chunk of the stash that an OFF has copied and no op waits for yet; 0 */
  uint32_t *full, *most; /* [npool] of class ACT, HOST */
  uint32_t live, peak;   /* stashes, all pools together */
  const Limit *limit;
  uint32_t nlimit, nchunk;
  uint32_t *chunks; /* [nrank] stages on it */
  int64_t *now;     /* [NCOUNTS * nchunk] */
  int64_t *
      low; /* [NCOUNTS * nchunk] by how much less there may be, for copies that run when they like */
  uint32_t *sender; /* [nslot] of host memory: row + 1 of the OFF to there, */
  bool *sent;       /*   which an op has waited for; its LOAD has not begun */
  bool *reached;    /* [nlimit] its peak */
} Stashes;

/* ---- limits ---- */

static void count(Stashes *v, int what, uint32_t chunk, int64_t change) {
  v->now[(uint32_t)what * v->nchunk + chunk] += change;
  BUG_IF(v->now[(uint32_t)what * v->nchunk + chunk] < 0);
}

static void moment(Stashes *v) {
  v->peak = v->live > v->peak ? v->live : v->peak;
  for (uint32_t i = 0; i < v->nlimit; i++) {
    const Limit *l = &v->limit[i];
    __int128 sum = 0;
    for (uint32_t c = 0; c < NCOUNTS * v->nchunk; c++)
      sum += (__int128)l->weight[c] * (v->now[c] - (l->weight[c] < 0 ? v->low[c] : 0));
    BUG_IF(sum > l->most || sum > l->peak);
    v->reached[i] |= sum == l->peak;
  }
}

/* How much the greater side of the clause is ahead with the counts in v->now. */
static __int128 by_text(const Stashes *v, const Limit *l) {
  int64_t a, b;
  bool more = l->compare->kind == EX_GT || l->compare->kind == EX_GE;
  if (l->clause->var)
    v->s->env[l->clause->slot] = l->index;
  v->s->moment = v->now;
  bool known = eval(v->s, l->compare->a, &a) && eval(v->s, l->compare->b, &b);
  v->s->moment = NULL;
  BUG_IF(!known);
  return more ? (__int128)b - a : (__int128)a - b;
}

/* Both sides are linear, so a sum is known from what it is without counts, and with one of each. */
static void verify_row(Stashes *v, const Limit *l) {
  if (!l->clause)
    return; /* of a file, which has the numbers themselves */
  bool strict = l->compare->kind == EX_LT || l->compare->kind == EX_GT;
  __int128 plain = by_text(v, l);
  BUG_IF(l->most != -plain - strict);
  for (uint32_t c = 0; c < NCOUNTS * v->nchunk; c++) {
    v->now[c] = 1;
    BUG_IF(by_text(v, l) - plain != l->weight[c]);
    v->now[c] = 0;
  }
}

/* ---- stashes ---- */

/* The first row of the list from i on that is of the stream. */
static uint32_t next_of(const PipeRank *k, uint32_t i, int stream) {
  while (i < k->ninstr && stream_of(k->instr[i].op) != stream)
    i++;
  return i;
}

static void change(Stashes *v, uint32_t slot, bool take) {
  uint32_t i = v->pool_of[slot];
  v->full[i] += take ? 1 : UINT32_MAX;
  v->most[i] = v->full[i] > v->most[i] ? v->full[i] : v->most[i];
}

static void stash(Stashes *v, uint32_t slot, uint32_t chunk, bool take) {
  change(v, slot, take);
  v->live += take ? 1 : UINT32_MAX;
  count(v, LIVE, chunk, take ? 1 : -1);
}

static void unsure(Stashes *v, int what, uint32_t chunk, int64_t change) {
  v->low[(uint32_t)what * v->nchunk + chunk] += change;
  BUG_IF(v->low[(uint32_t)what * v->nchunk + chunk] < 0);
}

/* The slot of an OFF that is waited for; a LOAD may have taken it. */
static void leave(Stashes *v, uint32_t slot) {
  if (v->left[slot]) {
    stash(v, slot, v->left[slot] - 1, false);
    unsure(v, LIVE, v->left[slot] - 1, -1);
  }
  v->left[slot] = 0;
}

/* A copy begins. Of a LOAD from host memory: true. */
static bool copy(Stashes *v, const PipeInstr *in) {
  uint32_t chunk = v->p->stage[in->stage].chunk;
  if (in->op == PIPE_SIDE_COPY)
    return false;
  if (in->op == PIPE_OFF) {
    if (in->peer == NONE) {
      change(v, in->keep, true), count(v, HOST, chunk, 1), unsure(v, HOST, chunk, 1);
      v->sender[in->keep] = (uint32_t)(in - v->k->instr) + 1, v->sent[in->keep] = false;
    }
    v->left[in->act] = chunk + 1;
    unsure(v, LIVE, chunk, 1);
    return false;
  }
  if (in->peer == NONE) {
    change(v, in->keep, false), unsure(v, HOST, chunk, v->sent[in->keep]);
    v->sender[in->keep] = 0, v->sent[in->keep] = false;
  }
  leave(v, in->act);
  stash(v, in->act, chunk, true), unsure(v, LIVE, chunk, 1);
  return in->peer == NONE;
}

static void takes(Stashes *v, const PipeInstr *in) {
  uint32_t chunk = v->p->stage[in->stage].chunk;
  if (in->op == PIPE_F || in->op == PIPE_R)
    stash(v, in->act, chunk, true);
  if (in->op == PIPE_F) {
    v->kept[(size_t)in->stage * v->p->nmb + in->mb] = (Kept){in->act, in->keep != NONE};
    count(v, KEPT, chunk, in->keep != NONE);
  }
  if (in->op == PIPE_I)
    count(v, HELD, chunk, 1);
}

static void gives(Stashes *v, const PipeInstr *in) {
  uint32_t chunk = v->p->stage[in->stage].chunk;
  if (in->op == PIPE_B || in->op == PIPE_W)
    stash(v, in->act, chunk, false);
  if (in->op == PIPE_W)
    count(v, HELD, chunk, -1);
  if (in->op == PIPE_R)
    count(v, KEPT, chunk, -1);
  if (in->op != PIPE_F || in->mb % v->p->slices != v->p->slices - 1)
    return;
  for (uint32_t q = 0; q < v->p->slices; q++) { /* the microbatch has gone forward */
    const Kept *f = &v->kept[(size_t)in->stage * v->p->nmb + in->mb - q];
    if (v->p->forward || f->again)
      stash(v, f->act, chunk, false);
  }
}

/* An op waits for a copy. */
static void awaited(Stashes *v, uint32_t row) {
  const PipeInstr *in = &v->k->instr[row];
  uint32_t chunk = v->p->stage[in->stage].chunk;
  if (in->op == PIPE_OFF)
    leave(v, in->act);
  if (in->op == PIPE_OFF && in->peer == NONE && v->sender[in->keep] == row + 1)
    v->sent[in->keep] = true, unsure(v, HOST, chunk, -1);
  if (in->op == PIPE_LOAD)
    unsure(v, LIVE, chunk, -1);
}

/* A LOAD from the host is over. */
static void from_host(Stashes *v, uint32_t chunk) {
  count(v, HOST, chunk, -1), unsure(v, HOST, chunk, -1);
}

static void walk(Stashes *v) {
  const PipeRank *k = v->k;
  uint32_t begun = next_of(k, 0, 2), nbegun = 0; /* copies: the next one, how many before it */
  uint32_t over = begun, nover = 0;          /* and the next one that an op has not waited for */
  uint32_t done = 0, load = NONE, nload = 0; /* load: chunk of one that may not have ended */
  for (uint32_t i = next_of(k, 0, 0), n; i < k->ninstr; i = next_of(k, i + n, 0), done += n) {
    const PipeInstr *in = &k->instr[i];
    n = in->group + 1u;
    for (; begun < k->ninstr && k->instr[begun].wait <= done; begun = next_of(k, begun + 1, 2)) {
      if (load != NONE)
        from_host(v, load);
      load = copy(v, &k->instr[begun]) ? v->p->stage[k->instr[begun].stage].chunk : NONE;
      nload = ++nbegun;
      moment(v);
    }
    for (; nover < in->wait_copy; nover++, over = next_of(k, over + 1, 2))
      awaited(v, over);
    if (load != NONE && nload <= nover)
      from_host(v, load), load = NONE;
    for (uint32_t j = 0; j < n; j++)
      takes(v, &in[j]);
    moment(v);
    for (uint32_t j = 0; j < n; j++)
      gives(v, &in[j]);
    moment(v);
  }
  while (begun < k->ninstr && k->instr[begun].op == PIPE_SIDE_COPY) /* behind all ops */
    begun = next_of(k, begun + 1, 2);
  BUG_IF(begun < k->ninstr);
  for (; over < k->ninstr; over = next_of(k, over + 1, 2))
    awaited(v, over);
}

static void verify_rank(Stashes *v, uint32_t r, Arena *a) {
  const PipeRank *k = v->k = &v->p->rank[r];
  v->nchunk = v->chunks[r];
  v->pool_of = NEW_ARRAY(a, uint32_t, k->nslot);
  v->left = NEW_ARRAY(a, uint32_t, k->nslot);
  v->full = NEW_ARRAY(a, uint32_t, k->npool);
  v->most = NEW_ARRAY(a, uint32_t, k->npool);
  v->now = NEW_ARRAY(a, int64_t, NCOUNTS * (size_t)v->nchunk);
  v->low = NEW_ARRAY(a, int64_t, NCOUNTS * (size_t)v->nchunk);
  v->sender = NEW_ARRAY(a, uint32_t, k->nslot);
  v->sent = NEW_ARRAY(a, bool, k->nslot);
  for (uint32_t i = 0; i < k->npool; i++)
    for (uint32_t j = 0; j < k->pool[i].count; j++)
      v->pool_of[k->pool[i].first + j] = i;
  bool proved = v->s->nlimits && v->s->limits_hold;
  v->limit = proved ? &v->s->limits[v->s->limit0[r]] : NULL;
  v->nlimit = proved ? v->s->limit0[r + 1] - v->s->limit0[r] : 0;
  v->reached = NEW_ARRAY(a, bool, v->nlimit);
  for (uint32_t i = 0; i < v->nlimit; i++) {
    BUG_IF(v->limit[i].rank != r);
    verify_row(v, &v->limit[i]);
  }
  v->live = v->peak = 0;
  walk(v);
  BUG_IF(k->inflight != v->peak || v->live != 0);
  for (uint32_t i = 0; i < v->nlimit; i++)
    BUG_IF(!v->reached[i]);
  for (uint32_t i = 0; i < k->npool; i++)
    if (k->pool[i].cls == PIPE_ACT || k->pool[i].cls == PIPE_HOST)
      BUG_IF(v->full[i] != 0 || k->pool[i].count != v->most[i]);
}

void verify_stashes(const Sched *s) {
  Arena a = {.oom = s->arena->oom};
  Stashes v = {.s = (Sched *)s, .p = s->prog}; /* eval writes the values of variables */
  v.kept = NEW_ARRAY(&a, Kept, (size_t)v.p->nstage * v.p->nmb);
  v.chunks = NEW_ARRAY(&a, uint32_t, v.p->nrank);
  for (uint32_t st = 0; st < v.p->nstage; st++)
    v.chunks[v.p->stage[st].rank]++;
  BUG_IF(s->nlimits && s->limit0[v.p->nrank] != s->nlimits);
  for (uint32_t r = 0; r < v.p->nrank; r++)
    verify_rank(&v, r, &a);
  arena_free(&a);
}
