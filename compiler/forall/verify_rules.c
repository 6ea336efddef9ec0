/* SPDX-License-Identifier: MIT
 * Verifies what the orders of `rules` for every M rest on (rules_of_m.c, note [rules]), and shares nothing with what
 * found it. What the blocks list, as functions of n, is unrolled for n = 0, 1 and 2 and compared with what the plays
 * there had before them; before the last ops no priority changes with n. What is in line from the beginning, forwards of
 * first stages, is so for n and n + 1 in the same order as far as it is looked at; and what is left when the turns begin that n + 1 has more
 * is what is left for n, its priorities in the same order, and none nearer to each other. And what the step from n to n + 1 claims is seen at n = 0, 1 and 2, in
 * the plays themselves, with the times at which their ops began: up to the part that repeats both are the same; then it is one turn longer, as every turn is the one
 * before, so much later on all ranks alike; and all that follows is what followed, so much later. A turn runs as many units of
 * each kind on each stage as it moves on, so that what is alive is the same at both of its ends. Aborts on our own
 * mistakes. n log n. */
#include <string.h>

#include "graph.h"
#include "lists_text.h"
#include "rules_of_m.h"

enum { SAMPLES = 3 };

static int by_all(const void *va, const void *vb) {
  const RuleListed *a = va, *b = vb;
  const int64_t x[] = {a->rank, a->file,  a->beg,   a->kind, a->stage,
                       a->unit, a->joint, a->keyed, a->key};
  const int64_t y[] = {b->rank, b->file,  b->beg,   b->kind, b->stage,
                       b->unit, b->joint, b->keyed, b->key};
  for (int i = 0; i < 9; i++)
    if (x[i] != y[i])
      return x[i] < y[i] ? -1 : 1;
  return a->guard < b->guard ? -1 : a->guard > b->guard;
}

/* Sorted; a U for all gradients is there once, however often it is listed. */
static uint32_t in_order(RuleListed *l, uint32_t n) {
  uint32_t to = 0;
  for (uint32_t i = 0; i < n; i++)
    if (l[i].kind == PIPE_U && l[i].unit < 0 && !l[i].joint)
      l[i].file = 0, l[i].beg = 0, l[i].key = 0, l[i].keyed = false, l[i].guard = 0;
  if (n)
    qsort(l, n, sizeof *l, by_all);
  for (uint32_t i = 0; i < n; i++)
    if (!(i > 0 && l[i].kind == PIPE_U && l[i].unit < 0 && !l[i].joint &&
          by_all(&l[i], &l[i - 1]) == 0))
      l[to++] = l[i];
  return to;
}

static void verify_listed(const ListsOfM *l, const Sched *s, int64_t n, Arena *a) {
  VEC(RuleListed) want = {0};
  for (uint32_t r = 0; r < l->nrank; r++) {
    const RulesText *b = l->block[r];
    bool behind = false;
    for (uint32_t i = 0; b && i < b->list.segment.n; i++) {
      const ListSegment *g = &b->list.segment.at[i];
      for (int64_t j = 0; j < g->turns + g->by_n * n; j++)
        for (uint32_t k = g->row0; k < g->row0 + g->nrow; k++) {
          const ListRow *o = &b->list.row.at[k];
          const RuleRow *of = &b->rule.at[k];
          BUG_IF(of->keyed && of->key.n != 0 && !behind);
          int64_t unit = o->unit.a + o->unit.n * n + o->unit.j * j;
          *vec_push(a,
                    &want) = (RuleListed){r,
                                          o->stage,
                                          of->stmt->at.file,
                                          of->stmt->at.beg,
                                          0,
                                          o->kind,
                                          of->keyed,
                                          of->joint,
                                          o->whole ? -1 : unit,
                                          of->keyed ? of->key.a + of->key.n * n + of->key.j * j : 0,
                                          of->guard};
        }
      behind |= g->by_n != 0;
    }
  }
  uint32_t n0 = in_order(want.at, want.n),
           n1 = in_order(s->orders->play->listed.at, s->orders->play->listed.n);
  BUG_IF(n0 != n1);
  for (uint32_t i = 0; i < n0; i++)
    BUG_IF(by_all(&want.at[i], &s->orders->play->listed.at[i]) != 0);
}

/* ---- the step from n to n + 1 ---- */

static bool has_inputs(const Sched *s, uint32_t stage) {
  uint32_t m = s->model->stage[stage].model;
  return s->model->graph ? s->model->graph->in0[m] < s->model->graph->in0[m + 1]
                         : s->model->stage[stage].prev != NONE;
}

/* The ops of a rank as the play has them: without R that a clause has put in. */
typedef struct Played {
  const Sched *s;
  const Op **op;
  const uint64_t *start;
  uint32_t n;
} Played;

static Played played(const Sched *s, uint32_t r, bool again, Arena *a) {
  uint32_t first = s->orders->rank_op0[r], end = s->orders->rank_op0[r + 1], all = 0;
  Played p = {s, NEW_ARRAY(a, const Op *, end - first + (size_t)1), NULL, 0};
  for (uint32_t i = first; i < end; i++)
    if (!again || s->orders->op[i].kind != PIPE_R)
      p.op[p.n++] = &s->orders->op[i];
  for (uint32_t q = 0; q < r; q++)
    for (uint32_t i = s->orders->rank_op0[q]; i < s->orders->rank_op0[q + 1]; i++)
      all += !again || s->orders->op[i].kind != PIPE_R;
  p.start = s->orders->play->start + all;
  return p;
}

/* Op j of q is op i of p, `units` and `time` later. */
static void moved_on(const Played *p, uint32_t i, const Played *q, uint32_t j, int64_t units,
                     uint64_t time) {
  const Op *a = p->op[i], *b = q->op[j];
  BUG_IF(a->kind != b->kind || a->stage != b->stage || a->group != b->group);
  BUG_IF((a->mb == NONE) != (b->mb == NONE));
  BUG_IF(a->mb != NONE && (int64_t)b->mb - q->s->model->stage[b->stage].mb0 -
                                  ((int64_t)a->mb - p->s->model->stage[a->stage].mb0) !=
                              units);
  BUG_IF(q->start[j] - p->start[i] != time);
}

/* ---- what stands in line ---- */

/* An op or action of a block, as the play had it. */
typedef struct Cand {
  uint32_t file, beg, kind, stage; /* its class: its statement, and its first op; joint */
  bool joint, keyed;
  bool
      early; /* all that it names are forwards of a first stage, first slices: in line from the beginning */
  bool begun;        /* one of its ops has */
  int64_t unit, key; /* unit: of the first op that has one; -1 */
} Cand;

typedef VEC(Cand) Cands;

static int by_class(const Cand *a, const Cand *b) {
  const int64_t x[] = {a->file, a->beg, a->kind, a->stage, a->joint};
  const int64_t y[] = {b->file, b->beg, b->kind, b->stage, b->joint};
  for (int i = 0; i < 5; i++)
    if (x[i] != y[i])
      return x[i] < y[i] ? -1 : 1;
  return 0;
}

static int by_line(const void *va, const void *vb) {
  const Cand *a = va, *b = vb;
  int c = by_class(a, b);
  if (c || a->key != b->key)
    return c ? c : a->key < b->key ? -1 : 1;
  return a->unit < b->unit ? -1 : a->unit > b->unit;
}

static int by_unit(const void *va, const void *vb) {
  const Cand *a = va, *b = vb;
  int c = by_class(a, b);
  if (c || a->unit != b->unit)
    return c ? c : a->unit < b->unit ? -1 : 1;
  return a->key < b->key ? -1 : a->key > b->key;
}

static int by_key(const void *va, const void *vb) {
  const int64_t *a = va, *b = vb;
  return a[0] < b[0] ? -1 : a[0] > b[0];
}

/* Those of rank r when its first `ran` ops have begun; *most: ops of one. */
static Cands cands(const Played *p, uint32_t r, uint32_t ran, uint32_t *most, Arena *a) {
  const Sched *s = p->s;
  bool *begun = NEW_ARRAY(a, bool, (size_t)PIPE_NOPS * s->model->nstage * s->model->nmb);
  Cands to = {0};
  uint32_t last = NONE, n = 0;
  for (uint32_t i = 0; i < ran; i++)
    if (p->op[i]->mb != NONE)
      begun[((size_t)p->op[i]->kind * s->model->nstage + p->op[i]->stage) * s->model->nmb +
            p->op[i]->mb] = true;
  for (uint32_t i = 0; i < s->orders->play->listed.n; i++) {
    const RuleListed *l = &s->orders->play->listed.at[i];
    if (l->rank != r)
      continue;
    if (l->cand != last)
      *vec_push(a, &to) = (Cand){l->file,  l->beg, l->kind, l->stage, l->joint,
                                 l->keyed, true,   false,   -1,       l->key};
    Cand *c = &to.at[to.n - 1];
    n = l->cand == last ? n + 1 : 1, last = l->cand;
    *most = n > *most ? n : *most;
    if (l->unit < 0) {
      c->early &= l->kind != PIPE_U;
      continue;
    }
    c->unit = c->unit < 0 ? l->unit : c->unit;
    c->early &= l->kind == PIPE_F && !has_inputs(s, l->stage) && l->unit % s->model->slices == 0;
    c->begun |= begun[((size_t)l->kind * s->model->nstage + l->stage) * s->model->nmb +
                      s->model->stage[l->stage].mb0 + (size_t)l->unit];
  }
  return to;
}

/* Those that are in line from the beginning, in line. */
static void sort_early(Cands *x) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < x->n; i++)
    if (x->at[i].early && x->at[i].unit >= 0)
      x->at[n++] = x->at[i];
  x->n = n;
  if (n)
    qsort(x->at, n, sizeof *x->at, by_line);
}

/* Those of first stages, each statement's in line. p, q: at n and n + 1; ran: ops up to the end of the first turn. What the
 * one does not have, or has elsewhere, stands behind as many as are looked at once. */
static void verify_in_line(const Played *p, const Played *q, uint32_t r, uint32_t ran, Arena *a) {
  uint32_t most = 1, i = 0, j = 0;
  Cands x = cands(p, r, ran, &most, a), y = cands(q, r, ran, &most, a);
  sort_early(&x), sort_early(&y);
  while (j < y.n || i < x.n) {
    uint32_t left = 0, j0 = j;
    BUG_IF(j == y.n || i == x.n || by_class(&x.at[i], &y.at[j]) != 0);
    const Cand *of = &y.at[j0];
    for (; i < x.n && j < y.n && by_line(&x.at[i], &y.at[j]) == 0 && by_class(&x.at[i], of) == 0;
         i++, j++)
      left += !x.at[i].begun;
    bool same = (i == x.n || by_class(&x.at[i], of) != 0) &&
                (j == y.n || by_class(&y.at[j], of) != 0);
    while (i < x.n && by_class(&x.at[i], of) == 0)
      i++;
    while (j < y.n && by_class(&y.at[j], of) == 0)
      j++;
    BUG_IF(!same && left < most);
  }
}

/* Those with a priority that are left when `ran` have begun, by class and unit; of those without unit the first one. */
static Cands left_over(const Played *p, uint32_t r, uint32_t ran, Arena *a) {
  uint32_t most = 0, n = 0;
  Cands x = cands(p, r, ran, &most, a);
  if (x.n)
    qsort(x.at, x.n, sizeof *x.at, by_unit);
  for (uint32_t i = 0; i < x.n; i++)
    if (!x.at[i].begun && x.at[i].keyed &&
        !(n > 0 && x.at[i].unit < 0 && x.at[n - 1].unit < 0 &&
          by_class(&x.at[i], &x.at[n - 1]) == 0))
      x.at[n++] = x.at[i];
  x.n = n;
  return x;
}

/* What is left when the turns begin that are not there for n = 0 is the same for all n, so many units further on, in the same
 * order of priorities: they are linear in n, and none come nearer to each other. Those in line from the beginning do not
 * come nearer to the front. */
static void verify_left(const Played p[SAMPLES], uint32_t r, uint32_t first, uint32_t more,
                        int64_t units, Arena *a) {
  Cands at[SAMPLES];
  for (int n = 0; n < SAMPLES; n++)
    at[n] = left_over(&p[n], r, first + more * (uint32_t)n, a);
  int64_t(*key)[SAMPLES] = arena_zalloc(a, at[0].n + (size_t)1, sizeof *key);
  for (uint32_t i = 0; i < at[0].n; i++) {
    const Cand *c = &at[0].at[i];
    for (int n = 0; n < SAMPLES; n++) {
      const Cand *d = &at[n].at[i];
      BUG_IF(at[n].n != at[0].n || by_class(c, d) != 0 || (c->unit < 0) != (d->unit < 0) ||
             (c->unit >= 0 && d->unit != c->unit + units * n));
      key[i][n] = d->key;
    }
    BUG_IF(key[i][1] - key[i][0] != key[i][2] - key[i][1]);
    BUG_IF(c->early && key[i][1] < key[i][0]);
  }
  if (at[0].n)
    qsort(key, at[0].n, sizeof *key, by_key);
  for (uint32_t i = 1; i < at[0].n; i++) {
    int64_t d0 = key[i][0] - key[i - 1][0], d1 = key[i][1] - key[i - 1][1];
    BUG_IF(d0 == 0 ? d1 != 0 : d1 < d0);
  }
}

/* Where the part that repeats begins, and the rows of a turn, without R of a clause. */
static void repeated(const RankList *l, bool again, uint32_t *first, uint32_t *n) {
  *first = *n = 0;
  for (uint32_t i = 0; i < l->segment.n && *n == 0; i++) {
    const ListSegment *g = &l->segment.at[i];
    for (uint32_t k = g->row0; k < g->row0 + g->nrow; k++)
      *(g->by_n ? n : first) += !again || l->row.at[k].kind != PIPE_R;
  }
}

/* As many units of each kind that is there on a stage; as many backwards as forwards, and W as I. */
static void balanced(const ListsOfM *l, const Sched *s, const Played *p, uint32_t first, uint32_t n,
                     Arena *a) {
  int64_t(*count)[PIPE_NOPS] = arena_zalloc(a, s->model->nstage, sizeof *count);
  for (uint32_t i = first; i < first + n; i++)
    count[p->op[i]->stage][p->op[i]->kind]++;
  for (uint32_t i = first; i < first + n; i++) {
    const int64_t *c = count[p->op[i]->stage];
    BUG_IF(c[PIPE_F] == 0 || c[PIPE_F] > l->pace || c[PIPE_I] != c[PIPE_W] ||
           (!s->model->forward && c[PIPE_F] != c[PIPE_B] + c[PIPE_I]));
  }
}

void verify_rules(const ListsOfM *l, const Sched *const at[SAMPLES]) {
  Arena a = {.oom = at[0]->arena->oom};
  bool again = false;
  for (const Schedule *sc = at[0]->parsed->def; sc; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c; c = c->next)
      again |= c->kind == CL_RECOMPUTE;
  uint64_t turn = 0;
  for (uint32_t r = 0; r < l->nrank; r++) {
    const RankList *k = &l->rank[r];
    uint32_t first, rows;
    repeated(k, again, &first, &rows);
    Played p[SAMPLES];
    for (int n = 0; n < SAMPLES; n++)
      p[n] = played(at[n], r, again, &a);
    BUG_IF(rows == 0 || first + 2 * rows > p[0].n);
    if (r == 0)
      turn = p[0].start[first + rows] - p[0].start[first];
    balanced(l, at[0], &p[0], first, rows, &a);
    const ListSegment *g = k->segment.at;
    while (!g->by_n)
      g++;
    uint32_t more = rows * (uint32_t)g->by_n;
    for (int n = 0; l->block[r] && n + 1 < SAMPLES; n++)
      verify_in_line(&p[n], &p[n + 1], r, first + rows, &a);
    if (l->block[r])
      verify_left(p, r, first, more, l->pace * g->by_n, &a);
    for (uint32_t i = first; i < first + rows * (uint32_t)(g->turns - 1); i++)
      moved_on(&p[0], i, &p[0], i + rows, l->pace, turn);
    for (int n = 0; n + 1 < SAMPLES; n++) {
      BUG_IF(p[n + 1].n != p[n].n + more);
      for (uint32_t i = 0; i < first; i++)
        moved_on(&p[n], i, &p[n + 1], i, 0, 0);
      for (uint32_t i = first; i < p[n].n; i++)
        moved_on(&p[n], i, &p[n + 1], i + more, l->pace * g->by_n, turn * (uint64_t)g->by_n);
    }
  }
  for (int n = 0; n < SAMPLES; n++)
    verify_listed(l, at[n], n, &a);
  arena_free(&a);
}
