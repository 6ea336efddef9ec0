/* SPDX-License-Identifier: MIT
 * `use warmup of`, `steady of` and `flush of` (lang/spec.md 5.7): one phase of the order that another schedule gives
 * the rank at hand. That order runs as a whole, on a clean slate: what the rank has run before is forgotten meanwhile.
 * Then the ops of the phase, and the copies and transfers by hand that stand among them, are kept.
 *
 * note [alone]: where the order has `rules`, its phases are known once it has been played. It is played by itself: the
 * ops that it gives all ranks, of the microbatches that there are here, with the stages, places and costs that are here.
 * So what is kept does not depend on what stands around it, and all ranks and phases keep parts of one play, which is
 * remembered as long as the parameters have the same values.
 *
 * Linear in the ops that the order has, in all its phases; of `rules` as they are, times one for each set of values. */
#include <string.h>

#include "expand.h"

/* ---- a clean slate ---- */

static Maps maps_of(const Sched *s) {
  return (Maps){{s->at_f, s->at_b, s->at_w, s->at_r, s->at_off, s->at_load}};
}

static void set_maps(Sched *s, const Maps *m) {
  s->at_f = m->at[0], s->at_b = m->at[1], s->at_w = m->at[2], s->at_r = m->at[3];
  s->at_off = m->at[4], s->at_load = m->at[5];
}

Past use_forget(Ex *x) {
  Sched *s = x->s;
  uint32_t a = s->rank_stage0[x->rank], held = s->rank_stage0[x->rank + 1] - a;
  size_t cells = (size_t)s->nstage * s->nmb;
  Past past = {.maps = maps_of(s),
               .fresh = arena_alloc(&x->scratch, held * sizeof *past.fresh + 1),
               .op = s->nop,
               .copy = s->ncopy,
               .post = s->npost,
               .region = x->regions.n,
               .cand = x->cands.n,
               .part = x->parts.n,
               .cls = x->classes.n};
  for (uint32_t i = 0; i < held; i++) {
    past.fresh[i] = x->fresh[s->rank_stage[a + i]];
    x->fresh[s->rank_stage[a + i]] = 0;
  }
  if (x->forgotten == x->clean.n) {
    Maps m = {{0}}; /* those of copies come with the first of them */
    for (int k = 0; k < NMAPS - 2; k++)
      m.at[k] = NEW_ARRAY(&x->scratch, uint32_t, cells);
    *vec_push(&x->scratch, &x->clean) = m;
  }
  set_maps(s, &x->clean.at[x->forgotten++]);
  return past;
}

/* Takes away what has run since. */
static void clear(Ex *x, const Past *past) {
  Sched *s = x->s;
  for (uint32_t i = past->op; i < s->nop; i++)
    *op_row(s, s->op[i].kind, (size_t)s->op[i].stage * s->nmb + s->op[i].mb) = 0;
  for (uint32_t i = past->copy; i < s->ncopy && s->at_off; i++) {
    size_t cell = (size_t)s->copy[i].stage * s->nmb + s->copy[i].mb;
    s->at_off[cell] = s->at_load[cell] = 0;
  }
  s->nop = past->op, s->ncopy = past->copy, s->npost = past->post;
}

void use_remember(Ex *x, const Past *past) {
  Sched *s = x->s;
  uint32_t a = s->rank_stage0[x->rank], held = s->rank_stage0[x->rank + 1] - a;
  clear(x, past);
  x->clean.at[--x->forgotten] = maps_of(s);
  set_maps(s, &past->maps);
  for (uint32_t i = 0; i < held; i++)
    x->fresh[s->rank_stage[a + i]] = past->fresh[i];
}

/* ---- what is kept ---- */

static OpRef ref_of(const Sched *s, uint32_t site) {
  return (OpRef){.at = s->site[site], .place = site + 1};
}

/* The copies, and then the transfers, that stand before op `at` and are of the phase. */
static bool keep_beside(Ex *x, const Copy **copy, const Copy *copies, const Posting **post,
                        const Posting *posts, uint32_t at, uint8_t phase) {
  Sched *s = x->s;
  bool ok = true;
  for (; ok && *copy < copies && (*copy)->at <= at; ++*copy) {
    const OpRef use = ref_of(s, (*copy)->site);
    x->use = &use;
    ok = (*copy)->phase != phase || push_copy(x, (*copy)->kind, (*copy)->stage, (*copy)->mb);
  }
  for (; ok && *post < posts && (*post)->at <= at; ++*post)
    if ((*post)->phase == phase)
      push_posting(x, **post);
  x->use = NULL;
  return ok;
}

/* Of what has run since `past` that of the phase. */
static bool keep_phase(Ex *x, const Past *past, uint8_t phase) {
  Sched *s = x->s;
  uint32_t end = s->nop, ncopy = s->ncopy - past->copy, npost = s->npost - past->post;
  Copy *copies = arena_alloc(&x->scratch, ncopy * sizeof *copies + 1);
  Posting *posts = arena_alloc(&x->scratch, npost * sizeof *posts + 1);
  if (ncopy > 0)
    memcpy(copies, &s->copy[past->copy], ncopy * sizeof *copies);
  if (npost > 0)
    memcpy(posts, &s->post[past->post], npost * sizeof *posts);
  const Copy *copy = copies;
  const Posting *post = posts;
  use_remember(x, past);
  uint32_t action = past->op; /* where that of op i begins */
  for (uint32_t i = past->op; i < end; i++) {
    const Op o = s->op[i]; /* push_op writes at or before it */
    if (!keep_beside(x, &copy, copies + ncopy, &post, posts + npost, i, phase))
      return false;
    const OpRef use = ref_of(s, o.site);
    x->use = &use;
    bool ok = o.phase != phase || push_op(x, o.kind, o.stage, o.mb);
    x->use = NULL;
    if (!ok)
      return false;
    if (o.group > 0)
      continue;
    for (uint32_t k = action; k < s->nop; k++)
      s->op[k].group = (uint16_t)(s->nop - 1 - k);
    action = s->nop;
  }
  return keep_beside(x, &copy, copies + ncopy, &post, posts + npost, end, phase);
}

/* ---- note [alone] ---- */

/* The tables of a play: those of x->s but for what orders fill. */
static void begin_alone(Ex *x, Sched *alone) {
  Sched *s = x->s;
  size_t cells = (size_t)s->nstage * s->nmb;
  *alone = *s;
  alone->at_f = NEW_ARRAY(s->arena, uint32_t, cells);
  alone->at_b = NEW_ARRAY(s->arena, uint32_t, cells);
  alone->at_w = NEW_ARRAY(s->arena, uint32_t, cells);
  alone->at_r = NEW_ARRAY(s->arena, uint32_t, cells);
  alone->at_off = alone->at_load = NULL;
  alone->rank_op0 = NEW_ARRAY(s->arena, uint32_t, s->nrank + 1);
  alone->op = NULL, alone->nop = 0;
  alone->copy = NULL, alone->ncopy = alone->capcopy = 0;
  alone->post = NULL, alone->npost = alone->cappost = 0;
  x->s = alone;
  x->op_cap = 0;
  x->next_f = NEW_ARRAY(s->arena, int64_t, s->nstage);
  x->next_b = NEW_ARRAY(s->arena, int64_t, s->nstage);
  x->next_r = NEW_ARRAY(s->arena, int64_t, s->nstage);
  x->fresh = NEW_ARRAY(s->arena, uint32_t, s->nstage);
  x->last_u = NEW_ARRAY(s->arena, uint32_t, s->nstage);
  x->w_from = NEW_ARRAY(s->arena, uint32_t, (size_t)s->nstage + s->nrank);
  x->at_u = NULL;
  memset(&x->items, 0, sizeof x->items);
  memset(&x->listed, 0, sizeof x->listed);
  memset(&x->regions, 0, sizeof x->regions);
  memset(&x->cands, 0, sizeof x->cands);
  memset(&x->parts, 0, sizeof x->parts);
  memset(&x->classes, 0, sizeof x->classes);
  memset(&x->scans, 0, sizeof x->scans);
  memset(&x->bare, 0, sizeof x->bare);
  x->budget = 16 * (uint64_t)s->nrank * s->nstage * s->nmb + 100000;
}

/* What lives on, whoever runs. */
static void end_alone(Ex *x, const Ex *outside, Sched *s, const Sched *alone) {
  Ex now = *x;
  *x = *outside;
  x->scratch = now.scratch;
  x->fitting = now.fitting;
  x->clean = now.clean;
  x->turns = now.turns;
  x->period_said = now.period_said;
  x->use_told = now.use_told;
  s->site = alone->site, s->nsite = alone->nsite, s->capsite = alone->capsite;
}

static Sched *play_alone(Ex *x, const Stmt *t, const Fitting *f, const Use *used) {
  Sched *s = x->s, *alone = NEW(s->arena, Sched);
  Ex outside = *x;
  bool ok = true;
  begin_alone(x, alone);
  for (uint32_t r = 0; r < s->nrank && ok; r++) {
    Use u = *used;
    u.first = alone->nop;
    x->rank = r;
    x->phase = PIPE_STEADY;
    x->labelled = x->clip = false;
    alone->rank_op0[r] = alone->nop;
    ok = use_order(x, t, f, &u);
  }
  alone->rank_op0[s->nrank] = alone->nop;
  ok = ok && play_rules(x);
  end_alone(x, &outside, s, alone);
  return ok ? alone : NULL;
}

/* Puts what the play gives the rank at hand in place of what has run since `past`. */
static void take_played(Ex *x, const Past *past, const Sched *alone) {
  Sched *s = x->s;
  uint32_t first = alone->rank_op0[x->rank], end = alone->rank_op0[x->rank + 1];
  clear(x, past);
  x->regions.n = past->region, x->cands.n = past->cand;
  x->parts.n = past->part, x->classes.n = past->cls;
  while (x->bare.n && x->bare.at[x->bare.n - 1].row >= past->op)
    x->bare.n--;
  while (s->nop + (end - first) > x->op_cap)
    vec_grow(s->arena, (void **)&s->op, &x->op_cap, sizeof *s->op);
  for (uint32_t i = first; i < end; i++)
    s->op[s->nop++] = alone->op[i];
  for (uint32_t i = 0; i < alone->ncopy; i++)
    if (s->stage[alone->copy[i].stage].rank == x->rank) {
      if (s->ncopy == s->capcopy)
        vec_grow(s->arena, (void **)&s->copy, &s->capcopy, sizeof *s->copy);
      s->copy[s->ncopy] = alone->copy[i];
      s->copy[s->ncopy++].at += past->op - first;
    }
  for (uint32_t i = 0; i < alone->npost; i++)
    if (alone->post[i].rank == x->rank) {
      x->phase = alone->post[i].phase;
      push_posting(x, alone->post[i]);
      s->post[s->npost - 1].at = alone->post[i].at + past->op - first;
    }
}

bool use_keep(Ex *x, const Stmt *t, const Fitting *f, const Use *u, const Past *past) {
  if (x->regions.n > past->region) {
    Alone **kept = &x->fitting.at[f->row].alone,
          key = {u->shift, u->lo, u->hi, u->step, u->clip, NULL};
    Alone *a = u->outer ? NULL : *kept;
    if (!a || a->shift != key.shift || a->lo != key.lo || a->hi != key.hi || a->step != key.step ||
        a->clip != key.clip) {
      uint32_t held = x->s->rank_stage0[x->rank + 1] - x->s->rank_stage0[x->rank];
      uint64_t cost = (uint64_t)held * x->s->nmb / 16; /* against orders that use again and again */
      x->budget -= cost < x->budget ? cost : x->budget;
      key.played = play_alone(x, t, f, u);
      if (!key.played)
        return use_remember(x, past), false;
      a = NEW(x->s->arena, Alone);
      *a = key;
      if (!u->outer)
        x->fitting.at[f->row].alone = a;
    }
    take_played(x, past, a->played);
  }
  uint8_t phase = x->phase;
  x->phase = x->labelled ? phase : t->phase;
  bool ok = keep_phase(x, past, t->phase);
  x->phase = phase;
  return ok;
}
