/* SPDX-License-Identifier: MIT
 * Assigns slots to stashes and to tensors that stay on their rank, and counts all pools. Requires
 * comm. Ensures
 *
 *   act, gout, keep, local in/out   of every compute and copy instruction
 *   slots of weights                as slots of the rank
 *   pool, npool, nrank_slot         the pools of each rank
 *   peak                            the counts, and the op at which most bytes are alive
 *
 * Method: interval colouring along the compute stream of each rank, which runs in order. The op
 * that fills a slot takes it; the op that reads it last gives it back. A new slot is made only if
 * none is free, so the count of a pool is its peak. A LOAD takes its slot at its place in the list.
 * An OFF leaves its slot. A later LOAD may take a left slot, because copies run one after the
 * other; otherwise the first op that waits for the OFF or for a later copy gives it back. Stages of
 * a rank with equal sizes share a pool; without sizes each stage has its own.
 *
 * Cost: linear, and a sort of the stages of each rank by size. */
#include <string.h>

#include "formula.h"
#include "graph.h"
#include "lower.h"
#include "orders.h"
#include "plant.h"
#include "weight_lines.h"
#include "weights.h"

uint32_t *slot_at(const Sched *s, Lowered *lowered, PipeInstr *c, bool input, uint32_t k) {
  const PipeStage *st = &s->model->stage[c->stage];
  uint32_t n = pipe_fields(st, c->op, input), *one = input ? &c->in : &c->out;
  return n < 2 ? one : &lowered->slot_list[st->rank][*one + k];
}

typedef struct Colour {     /* a pool during colouring */
  VEC(uint32_t) free, left; /* left: slots of OFFs that no op has waited for yet, oldest first */
  uint32_t first_left;
  uint32_t count, live;
  uint32_t stage, first;
  bool skip; /* LOCAL: tensors of edges outside the chain */
  uint64_t bytes;
} Colour;

typedef struct Classes { /* the pools of one class on this rank */
  Colour *pool;
  uint32_t npool;
  uint32_t *of; /* [2 * nstage] pool of a stage of this rank; second half: of its skip tensors */
} Classes;

/* The classes that are coloured, in the order of their pools. */
static const PipeClass coloured[] = {PIPE_ACT,  PIPE_GOUT, PIPE_LOCAL,
                                     PIPE_HOST, PIPE_KEEP, PIPE_GUESS};
enum { NCOLOURED = sizeof coloured / sizeof *coloured };

static uint32_t take(Colour *c) {
  c->live++;
  if (PLANTED(SLOT_FREE) && c->count > 0)
    return c->count - 1;
  return c->free.n > 0 ? c->free.at[--c->free.n] : c->count++;
}

static void give(Sched *s, Colour *c, uint32_t slot) {
  *vec_push(s->arena, &c->free) = slot;
  c->live--;
}

static uint64_t class_bytes(const Sched *s, uint32_t stage, PipeClass cls, bool skip) {
  const PipeStage *st = &s->model->stage[stage];
  if (cls == PIPE_KEEP)
    return row_inputs_bytes(s, stage);
  if (cls == PIPE_GUESS)
    return st->weight_bytes;
  return cls == PIPE_ACT || cls == PIPE_HOST ? st->act_bytes
         : cls == PIPE_GOUT                  ? st->gout_bytes
         : skip                              ? st->edge_bytes
                                             : st->boundary_bytes;
}

typedef struct Key {
  uint64_t bytes;
  uint32_t stage;
  bool skip;
} Key;

static int by_bytes(const void *a, const void *b) {
  const Key *x = a, *y = b;
  return x->bytes != y->bytes  ? (x->bytes < y->bytes ? -1 : 1)
         : x->skip != y->skip  ? x->skip - y->skip
         : x->stage < y->stage ? -1
                               : x->stage > y->stage;
}

static void group(Sched *s, uint32_t r, PipeClass cls, Classes *c, Key *key) {
  uint32_t held = s->model->rank_stage0[r + 1] - s->model->rank_stage0[r], n = held;
  const uint32_t *stages = &s->model->rank_stage[s->model->rank_stage0[r]];
  bool skips = cls == PIPE_LOCAL && s->model->graph;
  for (uint32_t i = 0; i < held; i++) {
    key[i] = (Key){s->model->sized ? class_bytes(s, stages[i], cls, false) : 0, stages[i], false};
    if (skips)
      key[n++] = (Key){s->model->sized ? class_bytes(s, stages[i], cls, true) : 0, stages[i], true};
  }
  if (s->model->sized)
    qsort(key, n, sizeof *key, by_bytes);
  c->npool = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (i == 0 || !s->model->sized || key[i].bytes != key[i - 1].bytes ||
        key[i].skip != key[i - 1].skip) {
      Colour *p = &c->pool[c->npool++];
      p->free.n = p->count = p->live = 0; /* reuses the arrays of the rank before */
      p->left.n = p->first_left = 0;
      p->stage = key[i].stage;
      p->skip = key[i].skip;
      p->bytes = key[i].bytes;
    }
    c->of[key[i].stage + (key[i].skip ? s->model->nstage : 0)] = c->npool - 1;
  }
}

static void add_pool(Lowered *lowered, uint32_t r, PipePool pool) {
  if (pool.count > 0)
    lowered->pool[r][lowered->npool[r]++] = pool;
}

/* Adds the pool of one end of a channel. */
static void add_end(Lowered *lowered, uint32_t r, PipePool pool, PipeClass cls, uint32_t first,
                    uint32_t count) {
  pool.cls = cls;
  pool.first = first;
  pool.count = count;
  add_pool(lowered, r, pool);
}

/* Adds the pools of channels, in the order in which comm numbered their slots. */
static void channel_pools(const Sched *s, Lowered *lowered, uint32_t r) {
  for (uint32_t i = s->model->rank_stage0[r]; i < s->model->rank_stage0[r + 1]; i++)
    for (int out = 1; out >= 0; out--) {
      uint32_t st = s->model->rank_stage[i], nlink = row_links(s, st, out);
      for (uint32_t k = 0; k < nlink; k++) {
        uint32_t link = row_link(s, st, out, k);
        Link l = link_at(s, link);
        const Channel *fwd = &lowered->channel[2 * (size_t)link], *bwd = fwd + 1;
        const PipePool pool = {
            .stage = l.from, .skip = link_skips(s, l), .bytes = link_bytes(s, l)};
        if (!link_crosses(s, l))
          continue;
        if (out) {
          add_end(lowered, r, pool, PIPE_OUT, fwd->out_first, fwd->out_slots);
          add_end(lowered, r, pool, PIPE_IN, bwd->in_first, bwd->in_slots);
        } else {
          add_end(lowered, r, pool, PIPE_IN, fwd->in_first, fwd->in_slots);
          add_end(lowered, r, pool, PIPE_OUT, bwd->out_first, bwd->out_slots);
        }
      }
    }
}

/* The pool for tensors of a link within the rank; NULL: the link crosses ranks. */
static Colour *local_pool(const Sched *s, Classes *loc, uint32_t link) {
  Link l = link_at(s, link);
  return link_crosses(s, l)
             ? NULL
             : &loc->pool[loc->of[l.from + (link_skips(s, l) ? s->model->nstage : 0)]];
}

/* Does a link connect two stages of the rank? */
static bool has_locals(const Sched *s, uint32_t r) {
  for (uint32_t i = s->model->rank_stage0[r]; i < s->model->rank_stage0[r + 1]; i++)
    for (uint32_t k = 0, n = row_links(s, s->model->rank_stage[i], true); k < n; k++)
      if (!link_crosses(s, link_at(s, row_link(s, s->model->rank_stage[i], true, k))))
        return true;
  return false;
}

/* The products that slots fills in, and memory that the ranks share. */
typedef struct Room {
  Lowered *lowered;
  Versions *versions; /* the slots of PipeWeights */
  Classes cls[PIPE_NCLASSES];
  Key *key;
  uint32_t *noff;
} Room;

/* A rank during colouring. */
typedef struct Rank {
  Lowered *lowered;
  PipeWeights *weights; /* [nop] Versions.weights; NULL: none */
  Classes *cls;
  Peak *peak;
  const Streams *stream;
  uint32_t op0; /* row of its first op */
  uint32_t inflight, held, kept, on_host, copied, over;
  uint32_t turn;       /* next row of Sides.turn */
  uint32_t *noff;      /* [pools of ACT] number of OFFs that some op has waited for */
  uint64_t live, most; /* bytes of stashes and local tensors */
  bool locals;         /* has_locals */
} Rank;

static Colour *pool_of(Rank *k, PipeClass cls, uint32_t stage) {
  return &k->cls[cls].pool[k->cls[cls].of[stage]];
}

/* The instruction of `op`, a row of Orders.op on this rank. */
static PipeInstr *instr_of(const Rank *k, uint32_t op) { return &k->stream->compute[op - k->op0]; }

static void more_inflight(Rank *k) {
  if (++k->inflight > k->peak->inflight)
    k->peak->inflight = k->inflight;
}

/* Runs the copies that stand before op i of the rank. */
static void copies(Sched *s, Rank *k, uint32_t i) {
  const Streams *t = k->stream;
  for (; k->copied < t->ncopy && waits_for(t->wait, &t->copy[k->copied], PIPE_COMPUTE) <= i;
       k->copied++) {
    PipeInstr *x = &t->copy[k->copied];
    if (x->op == PIPE_SIDE_COPY)
      continue;
    size_t cell = (size_t)x->stage * s->model->nmb + x->mb;
    Colour *h = pool_of(k, PIPE_HOST, x->stage), *a = pool_of(k, PIPE_ACT, x->stage);
    if (x->op == PIPE_OFF) {
      x->act = instr_of(k, s->orders->at_f[cell] - 1)->act;
      *vec_push(s->arena, &a->left) = x->act;
      if (x->peer == NONE)
        x->away = take(h), k->on_host++;
      k->peak->host = k->on_host > k->peak->host ? k->on_host : k->peak->host;
      continue;
    }
    if (x->peer == NONE) {
      x->away = k->lowered->stream[0].copy[s->orders->at_off[cell] - 1].away;
      give(s, h, x->away), k->on_host--;
    }
    if (a->first_left < a->left.n) {
      x->act = a->left.at[a->first_left++];
      continue;
    }
    x->act = take(a), k->live += a->bytes;
    more_inflight(k);
    if (k->live > k->most)
      k->most = k->live, k->peak->op = k->op0 + i;
  }
}

/* Gives back the slots of the OFFs that instruction `in` waits for. */
static void copied_away(Sched *s, Rank *k, const PipeInstr *in) {
  const uint32_t over = waits_for(k->stream->wait, in, PIPE_COPY);
  for (; k->over < over; k->over++) {
    PipeInstr *x = &k->stream->copy[k->over];
    Colour *a = pool_of(k, PIPE_ACT, x->stage);
    uint32_t *done = &k->noff[k->cls[PIPE_ACT].of[x->stage]];
    if (x->op == PIPE_OFF && (*done)++ == a->first_left)
      give(s, a, a->left.at[a->first_left++]), k->live -= a->bytes, k->inflight--;
  }
}

/* The side ops up to op i of the rank take buffers and give them back. */
static void side_buffers_at(Sched *s, Rank *k, uint32_t r, uint32_t i) {
  for (; s->sides->nuse && k->turn < s->sides->use0[r + 1] &&
         s->sides->turn[k->turn].at <= k->op0 + i;
       k->turn++) {
    const SideUse *u = &s->sides->use[s->sides->turn[k->turn].use];
    if (u->out != NONE)
      k->live += s->sides->buffers[r][u->out_pool].bytes;
    if (k->live > k->most) /* a side op behind all ops counts for the last op */
      k->most = k->live, k->peak->op = k->op0 + (i < k->stream->ncompute ? i : i - 1);
    if (u->in != NONE)
      k->live -= s->sides->buffers[r][u->in_pool].bytes;
  }
}

/* The pool for output j of R. R is no Op with tensors, so local_pool does not serve. */
static Colour *scratch_of(const Sched *s, Rank *k, uint32_t stage, uint32_t j) {
  bool skip = s->model->graph && s->model->graph->edge[input_edge(s, stage, false, j)].skip;
  return pool_of(k, PIPE_LOCAL, stage + (skip ? s->model->nstage : 0));
}

/* Gives back the outputs of R: no op reads them. */
static void drop_outputs(Sched *s, Rank *k, PipeInstr *in) {
  for (uint32_t j = 0; j < s->model->stage[in->stage].nout; j++) {
    Colour *l = scratch_of(s, k, in->stage, j);
    give(s, l, *slot_at(s, k->lowered, in, false, j)), k->live -= l->bytes;
  }
}

/* The pool for the old weights of update u, if u overwrites weights that its formula still needs;
 * NULL: it needs none. */
static Colour *old_of(const Sched *s, Rank *k, uint32_t u) {
  const PipeWeights *w = k->weights ? &k->weights[u] : NULL;
  bool needed = w && w->formula != NONE && w->out == w->slot && formula_needs_old(s, u);
  return needed ? pool_of(k, PIPE_GUESS, s->orders->op[u].stage) : NULL;
}

static void take_old(Sched *s, Rank *k, uint32_t u) {
  Colour *old = old_of(s, k, u);
  if (old)
    k->weights[u].guess = take(old), k->live += old->bytes;
}

static void give_old(Sched *s, Rank *k, uint32_t u) {
  Colour *old = old_of(s, k, u);
  if (old)
    give(s, old, k->weights[u].guess), k->live -= old->bytes;
}

/* The estimate that op reads has a slot from the op that makes it to its last reader. */
static void take_guess(Sched *s, Rank *k, uint32_t op) {
  uint32_t maker = k->weights ? estimate_maker(s, op) : NONE;
  if (maker == NONE)
    return;
  Colour *guess = pool_of(k, PIPE_GUESS, s->orders->op[op].stage);
  if (maker == op)
    k->weights[op].guess = take(guess), k->live += guess->bytes;
  else
    k->weights[op].guess = k->weights[maker].guess;
}

static void give_guess(Sched *s, Rank *k, uint32_t op) {
  uint32_t maker = k->weights ? estimate_maker(s, op) : NONE;
  if (maker == NONE || (s->versions->maker && s->versions->maker[maker] != NONE &&
                        s->versions->last_reader[maker] != op))
    return;
  Colour *guess = pool_of(k, PIPE_GUESS, s->orders->op[op].stage);
  give(s, guess, k->weights[op].guess), k->live -= guess->bytes;
}

static void takes(Sched *s, Rank *k, PipeInstr *in) {
  uint32_t row = k->op0 + (uint32_t)(in - k->stream->compute);
  if (in->op == PIPE_U) {
    take_old(s, k, row);
    return;
  }
  take_guess(s, k, row);
  size_t cell = (size_t)in->stage * s->model->nmb + in->mb;
  Colour *a = pool_of(k, PIPE_ACT, in->stage), *g = pool_of(k, PIPE_GOUT, in->stage),
         *kp = pool_of(k, PIPE_KEEP, in->stage);
  if (pipe_op_info[in->op].act > 0) {
    in->act = take(a), k->live += a->bytes;
    more_inflight(k);
  } else {
    in->act =
        instr_of(k, (s->orders->at_r[cell] ? s->orders->at_r : s->orders->at_f)[cell] - 1)->act;
    if (k->stream->ncopy && s->orders->at_load[cell] &&
        s->orders->copy[s->orders->at_load[cell] - 1].at <= row)
      in->act = k->lowered->stream[0].copy[s->orders->at_load[cell] - 1].act;
  }
  k->peak->warmup += in->op == PIPE_F && in->phase == PIPE_WARMUP;
  if (in->op == PIPE_F && s->orders->at_r[cell]) {
    in->keep = take(kp), k->live += kp->bytes;
    if (++k->kept > k->peak->kept)
      k->peak->kept = k->kept;
  } else if (in->op == PIPE_R) {
    in->keep = instr_of(k, s->orders->at_f[cell] - 1)->keep;
    for (uint32_t j = 0; j < s->model->stage[in->stage].nout; j++) {
      Colour *l = scratch_of(s, k, in->stage, j);
      *slot_at(s, k->lowered, in, false, j) = take(l), k->live += l->bytes;
    }
  }
  if (in->op == PIPE_I) {
    in->gout = take(g), k->live += g->bytes;
    if (++k->held > k->peak->held)
      k->peak->held = k->held;
  } else if (in->op == PIPE_W) {
    in->gout = instr_of(k, s->orders->at_b[cell] - 1)->gout;
  }
  /* Tensors that stay on the rank: y of F for F of a later stage, dx of B for B of an earlier
   * stage. */
  const Op *o = &s->orders->op[row];
  Classes *loc = &k->cls[PIPE_LOCAL];
  for (uint32_t j = 0, n = k->locals ? op_outputs(s, o) : 0; j < n; j++) {
    Colour *l = local_pool(s, loc, output_link(s, o, j));
    if (l)
      *slot_at(s, k->lowered, in, false, j) = take(l), k->live += l->bytes;
  }
  for (uint32_t j = 0, n = k->locals ? op_inputs(s, o) : 0; j < n; j++) {
    uint32_t link = input_link(s, o, j);
    Link l = link_at(s, link);
    if (!link_crosses(s, l))
      *slot_at(s, k->lowered, in, true,
               j) = *slot_at(s, k->lowered, instr_of(k, order_dep(s, row, j)), false,
                             in->op == PIPE_F ? link_out(s, l) : link_in(s, l));
  }
}

static void gives(Sched *s, Rank *k, PipeInstr *in) {
  uint32_t row = k->op0 + (uint32_t)(in - k->stream->compute);
  if (in->op == PIPE_U) {
    give_old(s, k, row);
    return;
  }
  Colour *a = pool_of(k, PIPE_ACT, in->stage), *g = pool_of(k, PIPE_GOUT, in->stage);
  const Op *o = &s->orders->op[row];
  give_guess(s, k, row);
  for (uint32_t j = 0, n = k->locals ? op_inputs(s, o) : 0; j < n; j++) {
    Colour *l = local_pool(s, &k->cls[PIPE_LOCAL], input_link(s, o, j));
    if (l)
      give(s, l, *slot_at(s, k->lowered, in, true, j)), k->live -= l->bytes;
  }
  if (in->op == PIPE_R) {
    Colour *kp = pool_of(k, PIPE_KEEP, in->stage);
    drop_outputs(s, k, in);
    give(s, kp, in->keep), k->live -= kp->bytes, k->kept--;
  }
  size_t cell = (size_t)in->stage * s->model->nmb + in->mb;
  bool last = (in->mb + 1) % s->model->slices ==
              0; /* last slice: no F reads the stashes of the microbatch any more */
  if (pipe_op_info[in->op].act < 0)
    give(s, a, in->act), k->live -= a->bytes, k->inflight--;
  for (uint32_t i = 0; in->op == PIPE_F && last && i < s->model->slices; i++)
    if (s->model->forward || s->orders->at_r[cell - i])
      give(s, a, instr_of(k, s->orders->at_f[cell - i] - 1)->act), k->live -= a->bytes,
          k->inflight--;
  if (pipe_op_info[in->op].gout < 0)
    give(s, g, in->gout), k->live -= g->bytes, k->held--;
}

/* Pools of weight versions, one for each stage. version_slots has numbered the slots of each from
 * 0. */
static void weight_pools(const Sched *s, Lowered *lowered, PipeWeights *weights, uint32_t r,
                         const Classes *guess) {
  uint32_t *first = lowered->weight_first;
  for (uint32_t i = s->model->rank_stage0[r]; i < s->model->rank_stage0[r + 1]; i++) {
    const uint32_t st = s->model->rank_stage[i], n = s->versions->nversion[st];
    first[st] = lowered->nrank_slot[r];
    lowered->nrank_slot[r] += n;
    if (n > lowered->peak[r].versions)
      lowered->peak[r].versions = n;
    add_pool(lowered, r,
             (PipePool){.cls = PIPE_WEIGHT,
                        .stage = st,
                        .first = first[st],
                        .count = n,
                        .bytes = s->model->sized ? s->model->stage[st].weight_bytes : 0});
  }
  for (uint32_t i = s->orders->rank_op0[r]; i < s->orders->rank_op0[r + 1]; i++) {
    PipeWeights *w = &weights[i];
    uint32_t st = s->orders->op[i].stage;
    w->slot += w->slot == NONE ? 0 : first[st];
    w->out += w->out == NONE ? 0 : first[st];
    w->guess += w->guess == NONE ? 0 : guess->pool[guess->of[st]].first;
  }
}

/* Colours one rank, then numbers its slots. All ops of an action take before any op of it gives
 * back. */
static void colour_rank(Sched *s, Room *room, uint32_t r) {
  Lowered *lowered = room->lowered;
  Classes *cls = room->cls;
  Peak *pk = &lowered->peak[r];
  Streams *t = &lowered->stream[r];
  Classes *act = &cls[PIPE_ACT], *loc = &cls[PIPE_LOCAL];
  for (int o = 0; o < NCOLOURED; o++)
    group(s, r, coloured[o], &cls[coloured[o]], room->key);
  *pk = (Peak){.op = NONE, .versions = 1};
  memset(room->noff, 0, act->npool * sizeof *room->noff);
  Rank k = {.lowered = lowered,
            .weights = room->versions->weights,
            .cls = cls,
            .peak = pk,
            .stream = t,
            .op0 = s->orders->rank_op0[r],
            .noff = room->noff,
            .turn = s->sides->nuse ? s->sides->use0[r] : 0,
            .locals = has_locals(s, r)};
  for (uint32_t i = 0, n; i < t->ncompute; i += n) {
    PipeInstr *in = &t->compute[i];
    n = in->group + 1u;
    copies(s, &k, i);
    copied_away(s, &k, in);
    side_buffers_at(s, &k, r, i);
    if (in->op == PIPE_SIDE)
      continue;
    for (uint32_t m = 0; m < n; m++)
      takes(s, &k, &in[m]);
    if (k.live > k.most || pk->op == NONE) {
      k.most = k.live;
      pk->op = s->orders->rank_op0[r] + i;
    }
    for (uint32_t m = 0; m < n; m++)
      gives(s, &k, &in[m]);
  }
  side_buffers_at(s, &k, r, t->ncompute);
  for (uint32_t p = 0; p < act->npool; p++) /* no op waits for these OFFs */
    for (Colour *c = &act->pool[p]; c->first_left < c->left.n; c->first_left++)
      give(s, c, c->left.at[c->first_left]);
  if (!s->model->sized)
    pk->op = NONE;
  /* Channels have the first numbers (comm); these classes follow. */
  uint32_t n = lowered->nrank_slot[r];
  for (int o = 0; o < NCOLOURED; o++)
    for (uint32_t p = 0; p < cls[coloured[o]].npool; p++) {
      Colour *c = &cls[coloured[o]].pool[p];
      BUG_IF(c->live != 0);
      c->first = n;
      n += c->count;
      add_pool(lowered, r,
               (PipePool){.cls = coloured[o],
                          .stage = c->stage,
                          .skip = c->skip,
                          .first = c->first,
                          .count = c->count,
                          .bytes = c->bytes});
    }
  lowered->nrank_slot[r] = n;
  if (k.weights)
    weight_pools(s, lowered, k.weights, r, &cls[PIPE_GUESS]);
  for (uint32_t i = 0; i < t->ncopy; i++) {
    PipeInstr *x = &t->copy[i];
    if (x->op == PIPE_SIDE_COPY)
      continue;
    x->act += pool_of(&k, PIPE_ACT, x->stage)->first;
    if (x->peer == NONE)
      x->away += pool_of(&k, PIPE_HOST, x->stage)->first;
  }
  for (uint32_t i = 0; i < t->ncompute; i++) {
    PipeInstr *in = &t->compute[i];
    if (in->op == PIPE_U || in->op == PIPE_SIDE)
      continue;
    in->act += pool_of(&k, PIPE_ACT, in->stage)->first;
    if (in->gout != NONE)
      in->gout += pool_of(&k, PIPE_GOUT, in->stage)->first;
    if (in->keep != NONE)
      in->keep += pool_of(&k, PIPE_KEEP, in->stage)->first;
    for (uint32_t j = 0; in->op == PIPE_R && j < s->model->stage[in->stage].nout; j++)
      *slot_at(s, lowered, in, false, j) += scratch_of(s, &k, in->stage, j)->first;
    const Op *o = &s->orders->op[s->orders->rank_op0[r] + i];
    for (uint32_t j = 0, noutput = k.locals ? op_outputs(s, o) : 0; j < noutput; j++) {
      Colour *l = local_pool(s, loc, output_link(s, o, j));
      if (l)
        *slot_at(s, lowered, in, false, j) += l->first;
    }
    for (uint32_t j = 0, ninput = k.locals ? op_inputs(s, o) : 0; j < ninput; j++) {
      Colour *l = local_pool(s, loc, input_link(s, o, j));
      if (l)
        *slot_at(s, lowered, in, true, j) += l->first;
    }
  }
}

/* Room for the pools of each rank. Returns the most stages on one rank. */
static uint32_t room_for_pools(Sched *s, Lowered *lowered) {
  lowered->pool = NEW_ARRAY(s->arena, PipePool *, s->model->nrank);
  lowered->npool = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  uint32_t widest = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    uint32_t n = s->model->rank_stage0[r + 1] - s->model->rank_stage0[r];
    size_t most = (s->model->graph ? 8 : 7) * (size_t)n;
    for (uint32_t i = s->model->rank_stage0[r]; i < s->model->rank_stage0[r + 1]; i++)
      most += 2 * ((size_t)row_links(s, s->model->rank_stage[i], true) +
                   row_links(s, s->model->rank_stage[i], false));
    most += s->sides->nuse ? s->sides->nbuffers[r] : 0;
    lowered->pool[r] = NEW_ARRAY(s->arena, PipePool, most);
    widest = n > widest ? n : widest;
  }
  return widest;
}

bool slots(Sched *s, Lowered *lowered, Versions *versions) {
  Room room = {.lowered = lowered, .versions = versions};
  const uint32_t widest = room_for_pools(s, lowered);
  room.noff = NEW_ARRAY(s->arena, uint32_t, widest);
  room.key = NEW_ARRAY(s->arena, Key, 2 * (size_t)widest);
  for (int k = 0; k < NCOLOURED; k++) {
    room.cls[coloured[k]].pool = NEW_ARRAY(s->arena, Colour, 2 * (size_t)widest);
    room.cls[coloured[k]].of = NEW_ARRAY(s->arena, uint32_t, 2 * (size_t)s->model->nstage);
  }
  lowered->peak = NEW_ARRAY(s->arena, Peak, s->model->nrank);
  lowered->weight_first = versions->weights ? NEW_ARRAY(s->arena, uint32_t, s->model->nstage)
                                            : NULL;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    channel_pools(s, lowered, r);
    colour_rank(s, &room, r);
    side_slots(s, lowered, r);
  }
  offload_guests(s, lowered);
  return true;
}
