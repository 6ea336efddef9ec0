/* SPDX-License-Identifier: MIT
 * Verifies what is alive on each rank at each moment: the stashes and inputs of its list, in the
 * order of the text, with copies. No pool of stashes has more slots than needed, and the limits
 * (lang/spec.md 7.1) hold. Evaluating a clause with counts 0 and 1 shows that the row of its limit
 * is right. Shares only the rows of limits with slots.c and limit.c. Aborts on a mistake of pipec
 * itself.
 *
 * note [moments]: when slots and limits count.
 *
 * Definition: an action is two moments: after all its ops have taken what they take, and after all
 * have given back. A copy is one moment, before the op that its `wait` counts to.
 *
 * Slots: the slot that an OFF leaves is free for a later LOAD at once, and for other ops from the
 * first op that waits for the OFF. The host slot that a LOAD reads is in use until an op waits for
 * the LOAD, or until the next copy begins.
 *
 * Limits: copies count at the worst time at which they may run. At a moment, copies may have run up
 * to any copy between the last that an op has waited for and the last that stands above. A sparse
 * table, the maximum over any 1, 2, 4, ... consecutive copies, gives the most that they add. */
#include <string.h>

#include "limit.h"
#include "names.h"
#include "queues.h"
#include "verify.h"

typedef struct Kept { /* of a forward */
  uint32_t act;       /* its slot */
  bool again;         /* R makes it again: its inputs are kept */
} Kept;

typedef struct Stashes {
  Sched *s;
  const PipeProgram *p;
  const PipeRank *k;
  Kept *kept;            /* [nstage * nmb] */
  uint32_t *pool_of;     /* [nslot] pool of each slot */
  bool *left;            /* [nslot] left by an OFF that no op has waited for */
  uint32_t *full, *most; /* [npool] of class ACT and HOST: slots in use; the most so far */
  uint32_t live, peak;   /* stashes in all pools: now, and the most so far */
  const Limit *limit;
  uint32_t nlimit, nchunk;
  uint32_t *chunks; /* [nrank] stages on each rank */
  int64_t *now;     /* [NCOUNTS * nchunk] counts at this moment */
  int64_t **
      *sums; /* [nlimit][level][] sparse table: added after no copy, as one runs, when it is over */
  uint32_t nover, nplaced; /* copies that ops have waited for; copies that stand above */
  bool *reached;           /* [nlimit] some moment reaches the peak of the limit */
} Stashes;

/* ---- limits ---- */

static void count(Stashes *v, int what, uint32_t chunk, int64_t change) {
  v->now[(uint32_t)what * v->nchunk + chunk] += change;
  BUG_IF(v->now[(uint32_t)what * v->nchunk + chunk] < 0);
}

/* What a copy adds to a limit when it begins (ends: when it ends). */
static int64_t adds(const Stashes *v, const Limit *l, const PipeInstr *in, bool ends) {
  uint32_t chunk = v->p->stage[in->stage].chunk;
  int64_t device = l->weight[LIVE * v->nchunk + chunk],
          host = in->peer == NONE ? l->weight[HOST * v->nchunk + chunk] : 0;
  if (in->op == PIPE_OFF)
    return ends ? -device : host;
  return in->op != PIPE_LOAD ? 0 : ends ? -host : device;
}

static int64_t **table_of(const Stashes *v, const Limit *l, Arena *a) {
  const PipeRank *k = v->k;
  uint32_t n = 1, levels = 1, at = 0;
  for (uint32_t i = 0; i < k->ninstr; i++)
    n += pipe_stream_of(k->instr[i].op) == PIPE_COPY ? 2 : 0;
  while ((uint64_t)1 << levels <= n)
    levels++;
  int64_t **t = NEW_ARRAY(a, int64_t *, levels), sum = 0;
  for (uint32_t j = 0; j < levels; j++)
    t[j] = NEW_ARRAY(a, int64_t, n);
  for (uint32_t i = 0; i < k->ninstr; i++)
    for (int ends = 0; ends < 2 && pipe_stream_of(k->instr[i].op) == PIPE_COPY; ends++)
      t[0][++at] = sum += adds(v, l, &k->instr[i], ends);
  for (uint32_t j = 1; j < levels; j++)
    for (uint32_t i = 0; i < n; i++) {
      uint32_t next = i + ((uint32_t)1 << (j - 1));
      t[j][i] = next < n && t[j - 1][next] > t[j - 1][i] ? t[j - 1][next] : t[j - 1][i];
    }
  return t;
}

static int64_t most_of(int64_t *const *t, uint32_t first, uint32_t last) {
  uint32_t j = 0;
  while ((uint64_t)2 << j <= last - first + 1)
    j++;
  int64_t a = t[j][first], b = t[j][last + 1 - ((uint32_t)1 << j)];
  return a > b ? a : b;
}

static void moment(Stashes *v) {
  v->peak = v->live > v->peak ? v->live : v->peak;
  for (uint32_t i = 0; i < v->nlimit; i++) {
    const Limit *l = &v->limit[i];
    __int128 sum = most_of(v->sums[i], 2 * v->nover, 2 * v->nplaced);
    for (uint32_t c = 0; c < NCOUNTS * v->nchunk; c++)
      sum += (__int128)l->weight[c] * v->now[c];
    BUG_IF(sum > l->most || sum > l->peak);
    v->reached[i] |= sum == l->peak;
  }
}

/* By how much the counts in v->now exceed the limit of the clause. */
static __int128 by_text(const Stashes *v, const Limit *l) {
  int64_t a, b;
  bool more = l->compare->kind == EX_GT || l->compare->kind == EX_GE;
  if (l->clause->var)
    v->s->eval.env[l->clause->slot] = l->index;
  bool (*const outer)(Sched *, const Expr *, int64_t *) = v->s->eval.quantity;
  v->s->eval.moment = v->now, v->s->eval.quantity = limit_quantity;
  bool known = eval(v->s, l->compare->a, &a) && eval(v->s, l->compare->b, &b);
  v->s->eval.moment = NULL, v->s->eval.quantity = outer;
  BUG_IF(!known);
  return more ? (__int128)b - a : (__int128)a - b;
}

/* Both sides are linear: the value without counts, and with one of each, determine the row. */
static void verify_row(Stashes *v, const Limit *l) {
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

/* The first row of `stream` in the list from row i on. */
static uint32_t next_of(const PipeRank *k, uint32_t i, PipeOn stream) {
  while (i < k->ninstr && pipe_stream_of(k->instr[i].op) != stream)
    i++;
  return i;
}

static void change(Stashes *v, uint32_t slot, bool take) {
  uint32_t i = v->pool_of[slot];
  v->full[i] += take ? 1 : UINT32_MAX;
  v->most[i] = v->full[i] > v->most[i] ? v->full[i] : v->most[i];
}

static void taken(Stashes *v, uint32_t slot, bool take) {
  change(v, slot, take);
  v->live += take ? 1 : UINT32_MAX;
}
static void stash(Stashes *v, uint32_t slot, uint32_t chunk, bool take) {
  taken(v, slot, take);
  v->now[LIVE * v->nchunk + chunk] += take ? 1 : -1; /* may fall below 0, where copies have added */
}

/* Frees the slot of an OFF that an op waits for, unless a LOAD has taken it. */
static void leave(Stashes *v, uint32_t slot) {
  if (v->left[slot])
    taken(v, slot, false);
  v->left[slot] = false;
}

/* Carries out a copy at its place. */
static void copy(Stashes *v, const PipeInstr *in) {
  if (in->op == PIPE_SIDE_COPY)
    return;
  if (in->peer == NONE)
    change(v, in->keep, in->op == PIPE_OFF);
  if (in->op == PIPE_OFF) {
    v->left[in->act] = true;
    return;
  }
  leave(v, in->act);
  taken(v, in->act, true);
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

static void walk(Stashes *v, Arena *a) {
  const PipeRank *k = v->k;
  uint32_t begun = next_of(k, 0, PIPE_COPY),
           over = begun; /* copies: the next one; the first that no op has waited for */
  uint32_t done = 0;
  const uint32_t *ops = rows_over(a, v->p, k, PIPE_COMPUTE);
  const uint32_t *copies = rows_over(a, v->p, k, PIPE_COPY);
  v->nover = v->nplaced = 0;
  for (uint32_t i = next_of(k, 0, PIPE_COMPUTE), n; i < k->ninstr;
       i = next_of(k, i + n, PIPE_COMPUTE), done += n) {
    const PipeInstr *in = &k->instr[i];
    n = in->group + 1u;
    for (; begun < k->ninstr && ops[begun] <= done; begun = next_of(k, begun + 1, PIPE_COPY)) {
      copy(v, &k->instr[begun]);
      v->nplaced++;
      moment(v);
    }
    for (; v->nover < copies[i]; v->nover++, over = next_of(k, over + 1, PIPE_COPY))
      if (k->instr[over].op == PIPE_OFF)
        leave(v, k->instr[over].act);
    for (uint32_t j = 0; j < n; j++)
      takes(v, &in[j]);
    moment(v);
    for (uint32_t j = 0; j < n; j++)
      gives(v, &in[j]);
    moment(v);
  }
  while (begun < k->ninstr && k->instr[begun].op == PIPE_SIDE_COPY) /* these stand behind all ops */
    begun = next_of(k, begun + 1, PIPE_COPY);
  BUG_IF(begun < k->ninstr);
  for (; over < k->ninstr; over = next_of(k, over + 1, PIPE_COPY))
    if (k->instr[over].op == PIPE_OFF)
      leave(v, k->instr[over].act);
}

static void verify_rank(Stashes *v, uint32_t r, Arena *a) {
  const PipeRank *k = v->k = &v->p->rank[r];
  v->nchunk = v->chunks[r];
  v->pool_of = NEW_ARRAY(a, uint32_t, k->nslot);
  v->left = NEW_ARRAY(a, bool, k->nslot);
  v->full = NEW_ARRAY(a, uint32_t, k->npool);
  v->most = NEW_ARRAY(a, uint32_t, k->npool);
  v->now = NEW_ARRAY(a, int64_t, NCOUNTS * (size_t)v->nchunk);
  for (uint32_t i = 0; i < k->npool; i++)
    for (uint32_t j = 0; j < k->pool[i].count; j++)
      v->pool_of[k->pool[i].first + j] = i;
  bool proved = v->s->claims->nrow && v->s->verdict->limits_hold;
  v->limit = proved ? &v->s->claims->row[v->s->claims->row0[r]] : NULL;
  v->nlimit = proved ? v->s->claims->row0[r + 1] - v->s->claims->row0[r] : 0;
  v->reached = NEW_ARRAY(a, bool, v->nlimit);
  v->sums = NEW_ARRAY(a, int64_t **, v->nlimit);
  for (uint32_t i = 0; i < v->nlimit; i++) {
    BUG_IF(v->limit[i].rank != r);
    verify_row(v, &v->limit[i]);
    v->sums[i] = table_of(v, &v->limit[i], a);
  }
  v->live = v->peak = 0;
  walk(v, a);
  BUG_IF(k->inflight != v->peak || v->live != 0);
  for (uint32_t i = 0; i < v->nlimit; i++)
    BUG_IF(!v->reached[i]);
  for (uint32_t i = 0; i < k->npool; i++)
    if (k->pool[i].cls == PIPE_ACT || k->pool[i].cls == PIPE_HOST)
      BUG_IF(v->full[i] != 0 || k->pool[i].count != v->most[i]);
}

void verify_stashes(const Sched *s) {
  Arena a = {0};
  Stashes v = {.s = (Sched *)s, .p = s->prog}; /* eval writes the values of variables */
  v.kept = NEW_ARRAY(&a, Kept, (size_t)v.p->nstage * v.p->nmb);
  v.chunks = NEW_ARRAY(&a, uint32_t, v.p->nrank);
  for (uint32_t st = 0; st < v.p->nstage; st++)
    v.chunks[v.p->stage[st].rank]++;
  BUG_IF(s->claims->nrow && s->claims->row0[v.p->nrank] != s->claims->nrow);
  for (uint32_t r = 0; r < v.p->nrank; r++)
    verify_rank(&v, r, &a);
  arena_free(&a);
}
