/* SPDX-License-Identifier: MIT
 * Which version of its stage's weights each op reads, and where that lies. Requires sides; ensures
 * staleness, discrepancy, delay and, with a `weights` clause, weights and nversion.
 *
 * Proof: a version that is read has been made, on the same rank, before, and a ring of n versions still has
 * it. What an op reads is known from its rank alone, since the updates of a stage stand there.
 *
 * Slots: a version lives from the U that makes it to its last reader, the next U among them, which reads the
 * newest. A U writes where the version that it reads lies, unless an op behind it reads that, too; else it
 * takes the slot that has been free longest, so that in a steady state slots go round. This is interval
 * colouring: as many slots as versions live at once. Version 0 is in slot 0, and so is the last one: no
 * other lives behind the last U, so if the last but one is elsewhere slot 0 is free. Linear. */
#include "weights.h"

typedef struct Stage { /* a row of the stage table, while its rank is walked */
  uint32_t updates;    /* so far: the newest version */
  uint32_t behind;     /* most `ahead` of an F whose gradient no U has applied yet */
  uint32_t ring, need; /* versions that may be kept (NONE: any), that reads need */
  uint32_t nslot, live, most, head, tail; /* slots; versions alive, and most; its queue */
} Stage;

typedef struct Versions {
  Sched *s;
  Stage *stage;          /* [nstage] */
  uint32_t *read;        /* [nop] version; of a U and a W: NONE */
  const WeightLine **by; /* [nop] line that says so, or NULL; NULL without a clause */
  uint32_t *last; /* by version, from at0 of its stage on: 1 + row of the last op that reads it */
  uint32_t *slot_of; /* the same: its slot */
  uint32_t *queue;   /* the same: slots that are free, oldest first */
  uint32_t lost;     /* (ring) first op whose version is overwritten; NONE */
} Versions;

/* Versions 0 to the number of updates of a stage are rows of one table for all. */
static size_t at0(const Sched *s, uint32_t stage) { return (size_t)s->round0[stage] + stage; }

static uint32_t updates_of(const Sched *s, uint32_t stage) {
  return s->round0[stage + 1] - s->round0[stage];
}

static void note_line(Sched *s, const WeightLine *l) {
  if (l)
    diag_note(s->diag, l->at, "this line says which version");
}

/* The version is made by an update that stands below, or by none. */
static bool unborn(Versions *v, uint32_t op, int64_t version) {
  Sched *s = v->s;
  uint32_t stage = s->op[op].stage, n = updates_of(s, stage), newest = v->stage[stage].updates;
  if (version < 0 || version > n) {
    diag_error(
        s->diag, DIAG_VERSION, s->site[s->op[op].site],
        "rank %u runs %s with version %lld of the weights of stage %u, which are versions 0 to %u",
        op_rank(s, op), op_text(s, op), (long long)version, stage, n);
    note_line(s, v->by[op]);
    diag_help(s->diag, version < 0 ? "max(e, 0): version 0 is there from the start"
                                   : "the k-th update, from 0, makes version k+1");
    return false;
  }
  uint32_t u = s->round[s->round0[stage] + version - 1].u;
  diag_error(
      s->diag, DIAG_VERSION, s->site[s->op[op].site],
      "rank %u runs %s with version %lld of the weights of stage %u, which does not exist yet",
      op_rank(s, op), op_text(s, op), (long long)version, stage);
  diag_note(s->diag, s->site[s->op[u].site], "%s makes it, %u ops later", op_text(s, u), u - op);
  note_line(s, v->by[op]);
  diag_help(s->diag, "version %u is the newest here: read an older one, or run %s after %s", newest,
            op_text(s, op), op_text(s, u));
  return false;
}

/* Which version op reads; false: reported. */
static bool find_read(Versions *v, uint32_t op) {
  Sched *s = v->s;
  const Op *o = &s->op[op];
  Stage *st = &v->stage[o->stage];
  const WeightLine *l = NULL;
  int64_t version = st->updates;
  if (s->weighted && !weight_line(s, WW_READS, op, o->mb, &l))
    return false;
  if (v->by)
    v->by[op] = l;
  if (l && l->source == WS_FORWARD && o->kind != PIPE_F)
    version = v->read[s->at_f[(size_t)o->stage * s->nmb + o->mb] - 1];
  else if (l && l->source == WS_VALUE && !weight_value(s, l, op, &version))
    return false;
  if (version < 0 || version > st->updates)
    return unborn(v, op, version);
  v->read[op] = (uint32_t)version;
  uint32_t need = st->updates - (uint32_t)version + 1;
  if (need > st->need)
    st->need = need;
  if (need > st->ring && v->lost == NONE)
    v->lost = op;
  return true;
}

/* The gradient that op, a B or W, adds goes to the newest version: how old are the weights it is of? */
static void find_distance(Versions *v, uint32_t op, uint32_t *worst, uint32_t *most) {
  Sched *s = v->s;
  const Op *o = &s->op[op];
  Stage *st = &v->stage[o->stage];
  uint32_t r = s->stage[o->stage].rank;
  size_t cell = (size_t)o->stage * s->nmb + o->mb;
  uint32_t f = s->at_f[cell] - 1, b = s->at_b[cell] - 1, again = s->at_r[cell];
  uint32_t ahead = st->updates - v->read[f];
  uint32_t apart = v->read[b] > v->read[f] ? v->read[b] - v->read[f] : v->read[f] - v->read[b];
  if (ahead > s->staleness[r])
    s->staleness[r] = ahead;
  if (apart > s->discrepancy[r])
    s->discrepancy[r] = apart;
  if (ahead > s->delay[o->stage])
    s->delay[o->stage] = ahead;
  if (ahead > *most)
    *most = ahead, *worst = op;
  if (!s->weights)
    return;
  st->behind = ahead > st->behind ? ahead : st->behind;
  uint32_t reader[3] = {f, b, again - 1};
  for (int i = 0; i < (again ? 3 : 2); i++) {
    s->weights[reader[i]].behind = (int32_t)(v->read[reader[i]] - v->read[f]);
    s->weights[reader[i]].ahead = st->updates - v->read[reader[i]];
  }
}

/* A version that a ring of the stage has lost, and what would keep all that are read. */
static bool overwritten(Versions *v) {
  Sched *s = v->s;
  uint32_t op = v->lost, stage = s->op[op].stage, r = op_rank(s, op);
  const Stage *st = &v->stage[stage];
  const WeightLine *ring;
  int64_t n;
  uint32_t version = v->read[op], u = s->round[s->round0[stage] + version + st->ring - 1].u;
  diag_error(
      s->diag, DIAG_VERSION, s->site[s->op[op].site],
      "rank %u runs %s with version %u of the weights of stage %u, which has been overwritten", r,
      op_text(s, op), version, stage);
  diag_note(s->diag, s->site[s->op[u].site], "%s puts version %u in its place", op_text(s, u),
            version + st->ring);
  note_line(s, v->by[op]);
  if (weight_ring(s, stage, &ring, &n) && ring)
    diag_note(s->diag, ring->at, "stage %u keeps %u version%s", stage, st->ring,
              st->ring > 1 ? "s" : "");
  diag_help(s->diag, "stage %u needs %u versions", stage, st->need);
  return false;
}

static void give(Versions *v, uint32_t stage, uint32_t slot) {
  Stage *st = &v->stage[stage];
  v->queue[at0(v->s, stage) + st->tail++] = slot;
  st->live--;
}

/* The slot of the version that update u of the stage makes, which is version k+1. */
static uint32_t slot_for(Versions *v, uint32_t u, uint32_t stage, uint32_t k) {
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

/* Walks a rank once more: slots. */
static void find_slots(Versions *v, uint32_t r) {
  Sched *s = v->s;
  for (uint32_t i = s->rank_op0[r]; i < s->rank_op0[r + 1]; i++) {
    const Op *o = &s->op[i];
    Stage *st = &v->stage[o->stage];
    size_t at = at0(s, o->stage);
    PipeWeights *w = &s->weights[i];
    if (o->kind == PIPE_U) {
      uint32_t k = st->updates++;
      w->slot = v->slot_of[at + k];
      w->out = v->slot_of[at + k + 1] = slot_for(v, i, o->stage, k);
      continue;
    }
    if (o->kind == PIPE_W)
      continue;
    uint32_t version = v->read[i];
    w->slot = v->slot_of[at + version];
    if (version < st->updates && v->last[at + version] == i + 1)
      give(v, o->stage, w->slot);
  }
  for (uint32_t k = s->rank_stage0[r]; k < s->rank_stage0[r + 1]; k++) {
    uint32_t stage = s->rank_stage[k];
    const Stage *st = &v->stage[stage];
    BUG_IF(st->live != 1 || st->nslot != st->most || st->updates != updates_of(s, stage));
    s->nversion[stage] = st->nslot;
  }
}

static bool mentions(const Expr *e) {
  if (!e)
    return false;
  if (e->kind == EX_CALL && (e->builtin == BI_STALENESS || e->builtin == BI_DISCREPANCY))
    return true;
  for (const Arg *a = e->args; a; a = a->next)
    if (mentions(a->value))
      return true;
  return mentions(e->a) || mentions(e->b) || mentions(e->c);
}

/* A schedule whose weights are behind says so, in a check or by what its ops read, or is warned of. */
static void warn_async(Versions *v, uint32_t b, uint32_t updates) {
  Sched *s = v->s;
  uint32_t f = s->at_f[(size_t)s->op[b].stage * s->nmb + s->op[b].mb] - 1;
  for (uint32_t i = 0; i < s->ncheck; i++)
    if (mentions(s->check[i]->value))
      return;
  if (s->nwline > 0)
    return;
  diag_warn(
      s->diag, DIAG_ASYNC, s->site[s->op[b].site],
      "asynchronous: %u update%s of stage %u between %s and %s: the gradient is not that of the weights "
      "that it changes",
      updates, updates == 1 ? "" : "s", s->op[f].stage, op_text(s, f), op_text(s, b));
  diag_note(s->diag, s->site[s->op[f].site], "%s comes from here", op_text(s, f));
  diag_help(
      s->diag,
      "if it is meant so, say what they read, weights { B reads F }, or how far: check staleness(r) <= %u "
      "for r in 0..%u",
      updates, s->nrank);
}

/* Walks each rank with its updates counted. */
static bool find_reads(Versions *v) {
  Sched *s = v->s;
  uint32_t worst = NONE, most = 0;
  for (uint32_t i = 0; i < s->nop; i++) {
    const Op *o = &s->op[i];
    Stage *st = &v->stage[o->stage];
    v->read[i] = NONE;
    if (o->kind == PIPE_U) {
      if (s->weights) {
        s->weights[i].version = st->updates + 1;
        s->weights[i].behind = (int32_t)st->behind;
        v->last[at0(s, o->stage) + st->updates] = i + 1;
      }
      st->behind = 0;
      st->updates++;
      continue;
    }
    if (o->kind == PIPE_SIDE) { /* the newest, which is there anyway */
      v->read[i] = st->updates;
      if (s->weights)
        s->weights[i].version = st->updates;
      continue;
    }
    if (o->kind != PIPE_W && !find_read(v, i))
      return false;
    if (s->weights && o->kind != PIPE_W) {
      s->weights[i].version = v->read[i];
      v->last[at0(s, o->stage) + v->read[i]] = i + 1;
    }
    if (o->kind == PIPE_B || o->kind == PIPE_W)
      find_distance(v, i, &worst, &most);
  }
  if (most > 0)
    warn_async(v, worst, most);
  return v->lost == NONE || overwritten(v);
}

bool versions(Sched *s) {
  s->staleness = NEW_ARRAY(s->arena, uint32_t, s->nrank);
  s->discrepancy = NEW_ARRAY(s->arena, uint32_t, s->nrank);
  s->delay = NEW_ARRAY(s->arena, uint32_t, s->nstage);
  bool several = s->weighted || s->round0[s->nstage] > s->nstage;
  if (s->forward || !several)
    return true;
  Versions v = {.s = s, .lost = NONE};
  v.stage = NEW_ARRAY(s->arena, Stage, s->nstage);
  v.read = arena_alloc(s->arena, (size_t)s->nop * sizeof *v.read + 1);
  for (uint32_t st = 0; st < s->nstage; st++)
    v.stage[st].ring = NONE;
  if (s->weighted) {
    size_t n = (size_t)s->round0[s->nstage] + s->nstage;
    v.by = NEW_ARRAY(s->arena, const WeightLine *, s->nop);
    v.last = NEW_ARRAY(s->arena, uint32_t, n);
    v.slot_of = NEW_ARRAY(s->arena, uint32_t, n);
    v.queue = NEW_ARRAY(s->arena, uint32_t, n);
    s->weights = arena_alloc(s->arena, (size_t)s->nop * sizeof *s->weights + 1);
    for (uint32_t i = 0; i < s->nop; i++)
      s->weights[i] = pipe_no_weights();
    s->nversion = NEW_ARRAY(s->arena, uint32_t, s->nstage);
    for (uint32_t st = 0; st < s->nstage; st++) {
      const WeightLine *ring;
      int64_t kept;
      if (!weight_ring(s, st, &ring, &kept))
        return false;
      if (ring && kept < NONE)
        v.stage[st].ring = (uint32_t)kept;
    }
  }
  if (!find_reads(&v))
    return false;
  if (!s->weighted)
    return true;
  for (uint32_t st = 0; st < s->nstage; st++) {
    Stage *g = &v.stage[st];
    g->updates = 0;
    g->nslot = g->live = g->most = 1;
  }
  for (uint32_t r = 0; r < s->nrank; r++)
    find_slots(&v, r);
  return true;
}
