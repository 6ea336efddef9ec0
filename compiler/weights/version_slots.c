/* SPDX-License-Identifier: MIT
 * Assigns a slot to each weight version, and proves that a ring of n versions still has each
 * version that is read. Requires versions and formulas. With a `weights` clause, ensures slot and
 * out of Versions.weights and, with maker, last_reader.
 *
 * Definition: a version lives from the U that makes it to its last reader. The next U, which reads
 * the newest version, is one of its readers. An op that shares an estimate reads the estimate and
 * no version.
 *
 * Method: interval colouring, with as many slots as versions live at once. A U writes into the slot
 * of the version that it reads, unless a later op reads that version too. Otherwise it takes the
 * slot that has been free longest, so that slots rotate in a steady state.
 *
 * Lemma: version 0 and the last version can both have slot 0. Proof: no other version lives after
 * the last U. So slot 0 is free then, unless it holds the version before the last, which the last U
 * overwrites.
 *
 * Cost: linear. */
#include "weights.h"
#include "base.h"
#include "plant.h"
#include "weight_lines.h"

typedef struct Stage { /* state of a row of the stage table */
  uint32_t updates;    /* updates so far: the newest version */
  uint32_t ring, need; /* versions that may be kept (NONE: any number); versions that reads need */
  /* slots; versions alive now; at most; ends of its queue */
  uint32_t nslot, live, most, head, tail;
} Stage;

typedef struct Slots {
  Sched *s;
  Versions *versions;
  Stage *stage;      /* [nstage] */
  uint32_t *last;    /* by version, from at0 of the stage on: 1 + the last op that reads it */
  uint32_t *slot_of; /* by version: its slot */
  uint32_t *queue;   /* from at0 of the stage on: free slots, oldest first */
  uint32_t lost;     /* first op whose version a ring has overwritten; NONE */
} Slots;

uint32_t estimate_maker(const Sched *s, uint32_t op) {
  uint32_t maker = s->versions->maker && s->versions->maker[op] != NONE ? s->versions->maker[op]
                                                                        : op;
  return s->versions->weights[maker].formula == NONE || s->orders->op[maker].kind == PIPE_U ? NONE
                                                                                            : maker;
}

/* The first version of a stage in tables by version; a stage has 1 + updates versions. */
static size_t at0(const Sched *s, uint32_t stage) {
  return (size_t)s->orders->round0[stage] + stage;
}

/* Does op, which is no U, read its version, and not an estimate that another op made of it? */
static bool reads_version(const Sched *s, uint32_t op) {
  uint32_t maker = estimate_maker(s, op);
  return s->versions->weights[op].version != NONE && (maker == NONE || maker == op);
}

/* Reports the version that a ring of the stage has lost, and how many versions the stage needs. */
static bool overwritten(Slots *v) {
  Sched *s = v->s;
  uint32_t op = v->lost, stage = s->orders->op[op].stage, r = op_rank(s, op);
  const Stage *st = &v->stage[stage];
  const WeightLine *ring, *line;
  int64_t n;
  uint32_t version = s->versions->weights[op].version,
           u = s->orders->round[s->orders->round0[stage] + version + st->ring - 1].u;
  diag_error(
      s->diag, DIAG_VERSION, s->orders->site[s->orders->op[op].site],
      "rank %u runs %s with version %u of the weights of stage %u, which has been overwritten", r,
      op_text(s, op), version, stage);
  diag_note(s->diag, s->orders->site[s->orders->op[u].site],
            "%s writes version %u into the same slot", op_text(s, u), version + st->ring);
  if (weight_line(s, WW_READS, op, s->orders->op[op].mb, &line))
    weight_note(s, line);
  if (weight_ring(s, stage, &ring, &n) && ring)
    diag_note(s->diag, ring->at, "stage %u keeps %u version%s", stage, st->ring,
              st->ring > 1 ? "s" : "");
  diag_help(s->diag, "stage %u needs %u versions", stage, st->need);
  return false;
}

/* Finds the last reader of each version. False: a ring has lost a version, reported. */
static bool find_last(Slots *v) {
  Sched *s = v->s;
  for (uint32_t i = 0; i < s->orders->nop; i++) {
    const Op *o = &s->orders->op[i];
    Stage *st = &v->stage[o->stage];
    uint32_t version = s->versions->weights[i].version;
    if (o->kind == PIPE_U) {
      v->last[at0(s, o->stage) + st->updates++] = i + 1;
      continue;
    }
    if (!reads_version(s, i))
      continue;
    if (o->kind != PIPE_SIDE) /* a SIDE reads the newest version, which always exists */
      v->last[at0(s, o->stage) + version] = i + 1;
    uint32_t need = st->updates - version + 1;
    if (need > st->need)
      st->need = need;
    if (need > st->ring && v->lost == NONE && !PLANTED(VERSION_KEPT))
      v->lost = i;
  }
  return v->lost == NONE || overwritten(v);
}

static void give(Slots *v, uint32_t stage, uint32_t slot) {
  Stage *st = &v->stage[stage];
  v->queue[at0(v->s, stage) + st->tail++] = slot;
  st->live--;
}

/* The slot of version k + 1, which update u of the stage makes. */
static uint32_t slot_for(Slots *v, uint32_t u, uint32_t stage, uint32_t k) {
  Sched *s = v->s;
  Stage *st = &v->stage[stage];
  size_t at = at0(s, stage);
  uint32_t old = v->slot_of[at + k];
  bool final = k + 1 == updates_of(s, stage), in_place = v->last[at + k] == u + 1;
  BUG_IF(final && (!in_place || st->live != 1));
  if (final || in_place)
    return final ? 0 : old;
  if (++st->live > st->most)
    st->most = st->live;
  return st->head < st->tail ? v->queue[at + st->head++] : st->nslot++;
}

static void find_slots(Slots *v, uint32_t r) {
  Sched *s = v->s;
  for (uint32_t i = s->orders->rank_op0[r]; i < s->orders->rank_op0[r + 1]; i++) {
    const Op *o = &s->orders->op[i];
    Stage *st = &v->stage[o->stage];
    size_t at = at0(s, o->stage);
    PipeWeights *w = &v->versions->weights[i];
    if (o->kind == PIPE_U) {
      uint32_t k = st->updates++;
      w->slot = v->slot_of[at + k];
      w->out = v->slot_of[at + k + 1] = slot_for(v, i, o->stage, k);
      continue;
    }
    if (!reads_version(s, i))
      continue;
    uint32_t version = w->version;
    w->slot = v->slot_of[at + version];
    if (version < st->updates && v->last[at + version] == i + 1)
      give(v, o->stage, w->slot);
  }
  for (uint32_t k = s->model->rank_stage0[r]; k < s->model->rank_stage0[r + 1]; k++) {
    uint32_t stage = s->model->rank_stage[k];
    const Stage *st = &v->stage[stage];
    BUG_IF(st->live != 1 || st->nslot != st->most || st->updates != updates_of(s, stage));
    v->versions->nversion[stage] = st->nslot;
  }
}

/* Finds the last op that reads each shared estimate, by its maker. */
static void find_readers(Sched *s, Versions *versions) {
  versions->last_reader = arena_alloc(s->arena,
                                      (size_t)s->orders->nop * sizeof *versions->last_reader + 1);
  for (uint32_t i = 0; i < s->orders->nop; i++)
    if (versions->maker[i] != NONE)
      versions->last_reader[versions->maker[i]] = i;
}

bool version_slots(Sched *s, Versions *versions) {
  if (!versions->weights)
    return true;
  Slots v = {.s = s, .versions = versions, .lost = NONE};
  size_t n = (size_t)s->orders->round0[s->model->nstage] + s->model->nstage;
  v.stage = NEW_ARRAY(s->arena, Stage, s->model->nstage);
  v.last = NEW_ARRAY(s->arena, uint32_t, n);
  v.slot_of = NEW_ARRAY(s->arena, uint32_t, n);
  v.queue = NEW_ARRAY(s->arena, uint32_t, n);
  versions->nversion = NEW_ARRAY(s->arena, uint32_t, s->model->nstage);
  for (uint32_t st = 0; st < s->model->nstage; st++) {
    const WeightLine *ring;
    int64_t kept;
    if (!weight_ring(s, st, &ring, &kept))
      return false;
    v.stage[st].ring = ring && kept < NONE ? (uint32_t)kept : NONE;
  }
  if (!find_last(&v))
    return false;
  for (uint32_t st = 0; st < s->model->nstage; st++) {
    Stage *g = &v.stage[st];
    g->updates = 0;
    g->nslot = g->live = g->most = 1;
  }
  for (uint32_t r = 0; r < s->model->nrank; r++)
    find_slots(&v, r);
  if (versions->maker)
    find_readers(s, versions);
  return true;
}
