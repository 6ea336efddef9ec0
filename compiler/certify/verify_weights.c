/* SPDX-License-Identifier: MIT
 * Verifies the weight versions: the content of each slot follows from the list alone, and must be
 * the version that each op reads by its row of PipeWeights. Cost: linear in instructions and
 * slots. */
#include <string.h>

#include "names.h"
#include "verify.h"
#include "weights.h"

typedef struct Spot {      /* a slot of class WEIGHT or GUESS */
  uint32_t stage, version; /* WEIGHT; version NONE: empty */
  uint32_t left;           /* reads of this version to come */
  uint32_t used;           /* 1 + the action that uses it as GUESS; 0: none */
  uint32_t maker;          /* GUESS: the row whose estimate it holds; NONE */
} Spot;

typedef struct Alike { /* ops of a row that share what they read: one line, one `per` */
  const WeightLine *line;
  int64_t value;
  uint32_t stage, maker,
      next; /* maker: row of the list; next: row of Groups; NONE: the first group of the row */
} Alike;
typedef VEC(Alike) Groups;

typedef struct Row { /* a row of the stage table so far */
  uint32_t newest, live, most, updates;
  uint32_t behind; /* the largest `ahead` of an F whose gradient no U has applied */
} Row;

/* Counts the reads of each version of each stage, including reads of U. The versions of a row begin
 * at base. Proves versions and slots in range: later checks rely on it. */
static void count_reads(const PipeProgram *p, uint32_t r, const size_t *base, uint32_t *reads) {
  const PipeRank *k = &p->rank[r];
  for (uint32_t i = 0; i < k->ninstr; i++) {
    const PipeInstr *in = &k->instr[i];
    const PipeWeights *w = &k->weights[i];
    bool update = in->op == PIPE_U;
    if (!pipe_uses_weights(in->op)) {
      BUG_IF(w->version != NONE || w->slot != NONE || w->out != NONE || w->guess != NONE ||
             w->formula != NONE || w->behind || w->ahead);
      continue;
    }
    BUG_IF(w->version - update >= base[in->stage + 1] - base[in->stage]);
    BUG_IF(w->formula != NONE && w->formula >= (update ? p->nrule : p->nformula));
    BUG_IF(w->slot >= k->nslot && (w->slot != NONE || update || in->op == PIPE_SIDE));
    if (w->slot != NONE)
      reads[base[in->stage] + w->version - update]++;
  }
}

/* The line of the text that says what an op reads; NULL: no line. */
static const WeightLine *line_for(const Sched *s, const PipeInstr *in, uint32_t backward) {
  const PipeStage *st = &s->prog->stage[in->stage];
  bool has[PIPE_NOPS] = {false};
  for (uint32_t i = 0; i < s->model->nwline; i++)
    if (s->model->wline[i]->word == WW_READS)
      has[s->model->wline[i]->kind] = true;
  uint32_t kind = in->op;
  if (kind == PIPE_R && !has[PIPE_R])
    kind = backward;
  if (kind == PIPE_I && !has[PIPE_I])
    kind = PIPE_B;
  for (uint32_t i = 0; i < s->model->nwline; i++) {
    const WeightLine *l = s->model->wline[i];
    int64_t holds = 1;
    if (l->word != WW_READS || (uint32_t)l->kind != kind)
      continue;
    if (l->clause->var)
      s->eval.env[l->clause->slot] = st->model;
    if (l->clause->mb_var)
      s->eval.env[l->clause->mb_slot] = (in->mb - st->mb0) / pipe_slices(s->prog);
    BUG_IF(l->when && !eval((Sched *)(uintptr_t)s, l->when, &holds));
    if (holds)
      return l;
  }
  return NULL;
}

/* The row whose reading row i shares; i itself if it is the first or shares none. The groups of a
 * stage are a list, latest first: ops that share are mostly close together. */
static uint32_t verify_alike(const Sched *s, uint32_t r, uint32_t i, Groups *groups,
                             uint32_t *first) {
  const PipeInstr *in = &s->prog->rank[r].instr[i];
  if (!s->versions->maker)
    return i;
  const WeightLine *l = line_for(
      s, in, s->orders->op[s->orders->at_b[(size_t)in->stage * s->model->nmb + in->mb] - 1].kind);
  int64_t value;
  if (!l || !l->per)
    return i;
  BUG_IF(!eval((Sched *)(uintptr_t)s, l->per, &value));
  for (uint32_t g = first[in->stage]; g != NONE; g = groups->at[g].next)
    if (groups->at[g].line == l && groups->at[g].value == value)
      return groups->at[g].maker;
  *vec_push(s->arena, groups) = (Alike){l, value, in->stage, i, first[in->stage]};
  first[in->stage] = groups->n - 1;
  return i;
}

/* A GUESS slot belongs to one op of an action; or it holds the estimate of op `maker`. */
static void verify_guess(const PipeProgram *p, uint32_t r, uint32_t row, uint32_t maker, Spot *slot,
                         uint32_t action) {
  const PipeRank *k = &p->rank[r];
  const PipeInstr *in = &k->instr[row];
  const PipeWeights *w = &k->weights[row], *made = &k->weights[maker];
  BUG_IF((w->slot == NONE) != (maker != row && made->formula != NONE));
  if (maker != row) {
    BUG_IF(w->formula != NONE || w->version != made->version || w->guess != made->guess);
    BUG_IF(w->guess != NONE && slot[w->guess].maker != maker);
    return;
  }
  if (w->guess == NONE) {
    BUG_IF(in->op != PIPE_U && w->formula != NONE);
    return;
  }
  uint32_t i = 0;
  while (i < k->npool && w->guess - k->pool[i].first >= k->pool[i].count)
    i++;
  BUG_IF(i == k->npool || k->pool[i].cls != PIPE_GUESS || w->formula == NONE);
  BUG_IF(k->pool[i].bytes != p->stage[in->stage].weight_bytes);
  BUG_IF(!p->sized && k->pool[i].stage != in->stage);
  BUG_IF(slot[w->guess].used == action);
  slot[w->guess].used = action;
  slot[w->guess].maker = in->op == PIPE_U ? NONE : row;
}

/* Verifies the reading of one op. alike: it reads an estimate that another op has made. cell: [nmb]
 * version that the F of each unit read. */
static void verify_read(const Sched *s, const PipeInstr *in, const PipeWeights *w, const Row *row,
                        Spot *slot, const uint32_t *cell, Row *rows, bool alike) {
  BUG_IF(w->version > row->newest || w->out != NONE);
  BUG_IF(w->behind != (int32_t)(w->version - cell[in->mb]));
  if (w->slot != NONE) {
    Spot *c = &slot[w->slot];
    BUG_IF(c->stage != in->stage || c->version != w->version || c->left == 0);
    if (--c->left == 0 && c->version != row->newest)
      rows[in->stage].live--;
  }
  if (alike)
    return;
  for (uint32_t i = 0; i < s->model->nwline; i++) { /* lines without a condition */
    const WeightLine *l = s->model->wline[i];
    if (l->word != WW_READS || l->kind != in->op)
      continue;
    if (l->when || l->source == WS_VALUE)
      break;
    bool forward = l->source == WS_FORWARD && in->op != PIPE_F;
    BUG_IF(w->version != (forward ? cell[in->mb] : row->newest));
    break;
  }
}

/* first: [nstage] first group of each row; NONE: none yet. */
static void verify_rank_weights(const Sched *s, uint32_t r, const size_t *base,
                                const uint32_t *reads, Row *rows, Spot *slot, uint32_t *first,
                                uint32_t **cells) {
  const PipeProgram *p = s->prog;
  const PipeRank *k = &p->rank[r];
  uint32_t action = 1;
  Groups groups = {0};
  for (uint32_t i = 0; i < k->nslot; i++)
    slot[i] = (Spot){NONE, NONE, 0, 0, NONE};
  for (uint32_t i = 0; i < k->npool; i++) {
    const PipePool *q = &k->pool[i];
    if (q->cls != PIPE_WEIGHT)
      continue;
    BUG_IF(p->stage[q->stage].rank != r || rows[q->stage].live != 0);
    BUG_IF(q->bytes != p->stage[q->stage].weight_bytes);
    for (uint32_t j = 0; j < q->count; j++)
      slot[q->first + j].stage = q->stage;
    slot[q->first].version = 0;
    slot[q->first].left = reads[base[q->stage]];
    rows[q->stage].live = rows[q->stage].most = 1;
  }
  for (uint32_t i = 0; i < k->ninstr; i++) {
    const PipeInstr *in = &k->instr[i];
    const PipeWeights *w = &k->weights[i];
    Row *row = &rows[in->stage];
    if (!pipe_uses_weights(in->op))
      continue;
    action += i == 0 || in[-1].group == 0;
    bool may_share = in->op != PIPE_U && in->op != PIPE_SIDE;
    uint32_t maker = may_share ? verify_alike(s, r, i, &groups, first) : i;
    BUG_IF(row->live == 0);
    verify_guess(p, r, i, maker, slot, action);
    if (in->op == PIPE_F)
      cells[in->stage][in->mb] = w->version;
    if (in->op == PIPE_SIDE) {
      BUG_IF(w->version != row->newest || w->behind || w->ahead || w->out != NONE ||
             w->guess != NONE || w->formula != NONE);
      BUG_IF(slot[w->slot].stage != in->stage || slot[w->slot].version != row->newest);
      slot[w->slot].left--;
      continue;
    }
    if (in->op != PIPE_U) {
      verify_read(s, in, w, row, slot, cells[in->stage], rows, maker != i);
      continue;
    }
    BUG_IF(w->out >= k->nslot);
    Spot *from = &slot[w->slot], *to = &slot[w->out];
    BUG_IF(from->stage != in->stage || to->stage != in->stage);
    BUG_IF(from->version != row->newest || w->version != row->newest + 1);
    BUG_IF(--from->left > 0 && from == to);
    BUG_IF(from != to && to->version != NONE && to->left > 0);
    bool last = ++row->updates == s->orders->round0[in->stage + 1] - s->orders->round0[in->stage];
    row->live += from != to && from->left > 0;
    row->most = row->live > row->most ? row->live : row->most;
    row->newest++;
    to->version = row->newest;
    to->left = reads[base[in->stage] + row->newest];
    BUG_IF(last && row->live != 1); /* side ops may still read it */
  }
  for (uint32_t i = 0; i < k->npool; i++) {
    const PipePool *q = &k->pool[i];
    BUG_IF(q->cls == PIPE_WEIGHT && q->count != rows[q->stage].most);
    BUG_IF(q->cls == PIPE_WEIGHT && slot[q->first].version != rows[q->stage].newest);
    for (uint32_t j = q->first; q->cls == PIPE_WEIGHT && j < q->first + q->count; j++)
      BUG_IF(slot[j].left != 0);
    for (uint32_t j = q->first; q->cls == PIPE_GUESS && j < q->first + q->count; j++)
      BUG_IF(slot[j].used == 0);
  }
}

/* Verifies `ahead`: the updates from the version that an F read, and its B, to the U that applies
 * the gradient. at: [3 * nstage * nmb] 1 + row of F, of B or I, of R in the list; 0: not seen. */
static void verify_ahead(const Sched *s, uint32_t r, Row *rows, uint32_t *at) {
  const PipeProgram *p = s->prog;
  const PipeRank *k = &p->rank[r];
  uint32_t stale = 0;
  for (uint32_t i = 0; i < k->ninstr; i++) {
    const PipeInstr *in = &k->instr[i];
    const PipeWeights *w = &k->weights[i];
    Row *row = &rows[in->stage];
    if (in->op == PIPE_U) {
      BUG_IF(w->behind != (int32_t)row->behind || w->ahead != 0);
      row->behind = 0, row->updates++;
    }
    if (in->op >= PIPE_U) /* includes SIDE */
      continue;
    uint32_t *cell = &at[3 * ((size_t)in->stage * p->nmb + in->mb)];
    if (in->op != PIPE_W)
      cell[in->op == PIPE_F ? 0 : in->op == PIPE_R ? 2 : 1] = i + 1;
    if (in->op != PIPE_B && in->op != PIPE_W)
      continue;
    for (int j = 0; j < 3; j++) {
      const PipeWeights *of = cell[j] ? &k->weights[cell[j] - 1] : NULL;
      BUG_IF(of && of->ahead != row->updates - of->version);
      if (j == 0 && of->ahead > row->behind)
        row->behind = of->ahead;
      if (j == 0 && of->ahead > stale)
        stale = of->ahead;
    }
  }
  BUG_IF(s->versions->staleness[r] != stale);
}

void verify_weights(const Sched *s) {
  const PipeProgram *p = s->prog;
  uint32_t nslot = 0, tables = 0;
  for (uint32_t r = 0; r < p->nrank; r++) {
    nslot = p->rank[r].nslot > nslot ? p->rank[r].nslot : nslot;
    tables += p->rank[r].weights != NULL;
  }
  BUG_IF(tables != (s->model->weighted ? p->nrank : 0));
  if (!tables)
    return;
  size_t *base = arena_zalloc(s->arena, p->nstage + (size_t)1, sizeof *base);
  for (uint32_t st = 0; st < p->nstage; st++)
    base[st + 1] = base[st] + (s->orders->round0[st + 1] - s->orders->round0[st]) + 1;
  uint32_t *reads = arena_zalloc(s->arena, base[p->nstage], sizeof *reads);
  Row *rows = arena_zalloc(s->arena, p->nstage, sizeof *rows);
  Spot *slot = arena_zalloc(s->arena, nslot, sizeof *slot);
  uint32_t *first = arena_zalloc(s->arena, p->nstage, sizeof *first);
  memset(first, 0xff, p->nstage * sizeof *first);
  uint32_t **cells = arena_zalloc(s->arena, p->nstage, sizeof *cells);
  for (uint32_t st = 0; st < p->nstage; st++)
    cells[st] = arena_zalloc(s->arena, p->nmb, sizeof *cells[st]);
  for (uint32_t r = 0; r < p->nrank; r++) {
    count_reads(p, r, base, reads);
    verify_rank_weights(s, r, base, reads, rows, slot, first, cells);
  }
  for (uint32_t st = 0; st < p->nstage; st++) {
    BUG_IF(rows[st].newest != s->orders->round0[st + 1] - s->orders->round0[st]);
    rows[st].updates = 0;
  }
  uint32_t *at = arena_zalloc(s->arena, 3 * (size_t)p->nstage * p->nmb, sizeof *at);
  for (uint32_t r = 0; r < p->nrank; r++)
    verify_ahead(s, r, rows, at);
}
