/* SPDX-License-Identifier: MIT
 * Finds the version of its stage's weights that each op reads. Requires sides. Ensures staleness,
 * discrepancy and delay; with a `weights` clause all of Versions.weights but slots and formulas;
 * with a line that has `per`, maker.
 *
 * Proves that a version that is read was made before, on the same rank. Method: all updates of a
 * stage stand on the rank that reads its weights, so the list of this rank decides what an op
 * reads. If `per` of one line has the same value for several ops of a stage, all of them read what
 * the first of them reads. Cost: linear. */
#include <string.h>

#include "weights.h"
#include "base.h"
#include "limit.h"
#include "names.h"
#include "plant.h"
#include "weight_lines.h"

typedef struct Stage { /* state of a row of the stage table */
  uint32_t updates;    /* updates so far: the newest version */
  uint32_t behind;     /* largest `ahead` of an F whose gradient no U has applied yet */
} Stage;

typedef struct Shared {   /* the first of the ops of a row that share a read */
  const WeightLine *line; /* NULL: a free place of the table */
  uint32_t stage, op;
  int64_t value; /* value of `per` */
} Shared;

typedef struct Reads {
  Sched *s;
  Versions *versions;
  Stage *stage;   /* [nstage] */
  uint32_t *read; /* [nop] version; of a U and a W: NONE */
  Shared *shared; /* [cap] open addressing */
  uint32_t nshared, cap;
} Reads;

/* Reports a version that a later update makes, or that no update makes. */
static bool unborn(Reads *v, uint32_t op, const WeightLine *line, int64_t version) {
  Sched *s = v->s;
  uint32_t stage = s->orders->op[op].stage, n = updates_of(s, stage),
           newest = v->stage[stage].updates;
  if (version < 0 || version > n) {
    diag_error(
        s->diag, DIAG_VERSION, s->orders->site[s->orders->op[op].site],
        "rank %u runs %s with version %lld of the weights of stage %u; the versions are 0 to %u",
        op_rank(s, op), op_text(s, op), (long long)version, stage, n);
    weight_note(s, line);
    diag_help(s->diag, version < 0 ? "max(e, 0): version 0 is there from the start"
                                   : "the k-th update, from 0, makes version k+1");
    return false;
  }
  uint32_t u = s->orders->round[s->orders->round0[stage] + version - 1].u;
  diag_error(
      s->diag, DIAG_VERSION, s->orders->site[s->orders->op[op].site],
      "rank %u runs %s with version %lld of the weights of stage %u, which does not exist yet",
      op_rank(s, op), op_text(s, op), (long long)version, stage);
  diag_note(s->diag, s->orders->site[s->orders->op[u].site], "%s makes the version %u ops later",
            op_text(s, u), u - op);
  weight_note(s, line);
  diag_help(s->diag, "version %u is the newest here: read an older one, or run %s after %s", newest,
            op_text(s, op), op_text(s, u));
  return false;
}

static uint32_t place_of(const Reads *v, const WeightLine *l, uint32_t stage, int64_t value) {
  uint64_t h = ((uint64_t)value * 0x9e3779b97f4a7c15u) ^ ((uint64_t)stage << 20) ^ l->at.beg;
  uint32_t i = (uint32_t)((h * 0xff51afd7ed558ccdu) >> 32) & (v->cap - 1);
  while (v->shared[i].line &&
         (v->shared[i].line != l || v->shared[i].stage != stage || v->shared[i].value != value))
    i = (i + 1) & (v->cap - 1);
  return i;
}

static void grow_shared(Reads *v) {
  Shared *old = v->shared;
  uint32_t n = v->cap;
  v->cap = n ? 2 * n : 64;
  v->shared = NEW_ARRAY(v->s->arena, Shared, v->cap);
  for (uint32_t i = 0; i < n; i++)
    if (old[i].line)
      v->shared[place_of(v, old[i].line, old[i].stage, old[i].value)] = old[i];
}

/* Finds the op whose read op shares; op itself if it is the first. False: reported. */
static bool find_maker(Reads *v, const WeightLine *l, uint32_t op, uint32_t *maker) {
  Sched *s = v->s;
  int64_t value;
  if (!weight_per(s, l, op, &value))
    return false;
  if (2 * (v->nshared + 1) > v->cap)
    grow_shared(v);
  Shared *k = &v->shared[place_of(v, l, s->orders->op[op].stage, value)];
  if (!k->line)
    *k = (Shared){l, s->orders->op[op].stage, op, value}, v->nshared++;
  *maker = k->op;
  return true;
}

/* Finds the version that op reads. False: reported. */
static bool find_read(Reads *v, uint32_t op) {
  Sched *s = v->s;
  Versions *versions = v->versions;
  const Op *o = &s->orders->op[op];
  Stage *st = &v->stage[o->stage];
  const WeightLine *l = NULL;
  int64_t version = st->updates;
  if (s->model->weighted && !weight_line(s, WW_READS, op, o->mb, &l))
    return false;
  if (l && l->per) {
    if (!versions->maker) {
      versions->maker = arena_alloc(s->arena, (size_t)s->orders->nop * sizeof *versions->maker + 1);
      memset(versions->maker, 0xff, (size_t)s->orders->nop * sizeof *versions->maker);
    }
    if (!find_maker(v, l, op, &versions->maker[op]))
      return false;
    if (versions->maker[op] != op) {
      v->read[op] = v->read[versions->maker[op]];
      return true;
    }
  }
  if (l && l->source == WS_FORWARD && o->kind != PIPE_F)
    version = v->read[s->orders->at_f[(size_t)o->stage * s->model->nmb + o->mb] - 1];
  else if (l && l->source == WS_VALUE && !weight_value(s, l, op, &version))
    return false;
  if (PLANTED(VERSION_MADE) && version > st->updates)
    version = st->updates;
  if (version < 0 || version > st->updates)
    return unborn(v, op, l, version);
  v->read[op] = (uint32_t)version;
  return true;
}

/* Notes the staleness and discrepancy of the gradient that op, a B or W, adds. */
static void find_distance(Reads *v, uint32_t op, uint32_t *worst, uint32_t *most) {
  Sched *s = v->s;
  Versions *versions = v->versions;
  const Op *o = &s->orders->op[op];
  Stage *st = &v->stage[o->stage];
  uint32_t r = s->model->stage[o->stage].rank;
  size_t cell = (size_t)o->stage * s->model->nmb + o->mb;
  uint32_t f = s->orders->at_f[cell] - 1, b = s->orders->at_b[cell] - 1,
           again = s->orders->at_r[cell];
  uint32_t ahead = PLANTED(STALENESS) ? 0 : st->updates - v->read[f];
  uint32_t apart = v->read[b] > v->read[f] ? v->read[b] - v->read[f] : v->read[f] - v->read[b];
  if (ahead > versions->staleness[r])
    versions->staleness[r] = ahead;
  if (apart > versions->discrepancy[r])
    versions->discrepancy[r] = apart;
  if (ahead > versions->delay[o->stage])
    versions->delay[o->stage] = ahead;
  if (ahead > *most)
    *most = ahead, *worst = op;
  if (!versions->weights)
    return;
  st->behind = ahead > st->behind ? ahead : st->behind;
  uint32_t reader[3] = {f, b, again - 1};
  for (int i = 0; i < (again ? 3 : 2); i++) {
    versions->weights[reader[i]].behind = (int32_t)(v->read[reader[i]] - v->read[f]);
    versions->weights[reader[i]].ahead = st->updates - v->read[reader[i]];
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

/* Warns of stale weights, unless a check or a `weights` line shows that they are intended. */
static void warn_async(Reads *v, uint32_t b, uint32_t updates) {
  Sched *s = v->s;
  uint32_t f =
      s->orders->at_f[(size_t)s->orders->op[b].stage * s->model->nmb + s->orders->op[b].mb] - 1;
  for (uint32_t i = 0; i < s->claims->ncheck; i++)
    if (mentions(s->claims->check[i]->value))
      return;
  if (s->model->nwline > 0)
    return;
  diag_warn(
      s->diag, DIAG_ASYNC, s->orders->site[s->orders->op[b].site],
      "asynchronous: %u update%s of stage %u between %s and %s: the gradient comes from older weights than it updates",
      updates, updates == 1 ? "" : "s", s->orders->op[f].stage, op_text(s, f), op_text(s, b));
  diag_note(s->diag, s->orders->site[s->orders->op[f].site], "%s comes from here", op_text(s, f));
  diag_help(
      s->diag,
      "if intended, name the version with weights { B reads F }, or bound it with check staleness(r) <= %u for r in 0..%u",
      updates, s->model->nrank);
}

static bool find_reads(Reads *v) {
  Sched *s = v->s;
  PipeWeights *weights = v->versions->weights;
  uint32_t worst = NONE, most = 0;
  for (uint32_t i = 0; i < s->orders->nop; i++) {
    const Op *o = &s->orders->op[i];
    Stage *st = &v->stage[o->stage];
    v->read[i] = NONE;
    if (o->kind == PIPE_U) {
      if (weights) {
        weights[i].version = st->updates + 1;
        weights[i].behind = (int32_t)st->behind;
      }
      st->behind = 0;
      st->updates++;
      continue;
    }
    if (o->kind == PIPE_SIDE) { /* a SIDE reads the newest version, which always exists */
      v->read[i] = st->updates;
      if (weights)
        weights[i].version = st->updates;
      continue;
    }
    if (o->kind != PIPE_W && !find_read(v, i))
      return false;
    if (weights && o->kind != PIPE_W)
      weights[i].version = v->read[i];
    if (o->kind == PIPE_B || o->kind == PIPE_W)
      find_distance(v, i, &worst, &most);
  }
  if (most > 0)
    warn_async(v, worst, most);
  return true;
}

bool versions(Sched *s, Versions *versions) {
  versions->staleness = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  versions->discrepancy = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  versions->delay = NEW_ARRAY(s->arena, uint32_t, s->model->nstage);
  bool several = s->model->weighted || s->orders->round0[s->model->nstage] > s->model->nstage;
  if (s->model->forward || !several)
    return true;
  Reads v = {.s = s, .versions = versions};
  v.stage = NEW_ARRAY(s->arena, Stage, s->model->nstage);
  v.read = arena_alloc(s->arena, (size_t)s->orders->nop * sizeof *v.read + 1);
  if (s->model->weighted) {
    versions->weights = arena_alloc(s->arena,
                                    (size_t)s->orders->nop * sizeof *versions->weights + 1);
    for (uint32_t i = 0; i < s->orders->nop; i++)
      versions->weights[i] = pipe_no_weights();
  }
  return find_reads(&v);
}
