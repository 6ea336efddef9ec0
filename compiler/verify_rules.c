/* SPDX-License-Identifier: MIT
 * Verifies what the orders of `rules` for every M rest on (rules_of_m.c, note [rules]), and shares nothing with what
 * found it. What the blocks list, as functions of n, is unrolled for n = 0, 1 and 2 and compared with what the plays
 * there had before them; before the last ops no priority changes with n, and a statement that lists last forwards of a first
 * stage lists more of them for a larger n. And what the step from n to n + 1 claims is seen at n = 0, 1 and 2, in
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
  const int64_t x[] = {a->rank, a->beg, a->kind, a->stage, a->unit, a->joint, a->keyed, a->key};
  const int64_t y[] = {b->rank, b->beg, b->kind, b->stage, b->unit, b->joint, b->keyed, b->key};
  for (int i = 0; i < 8; i++)
    if (x[i] != y[i])
      return x[i] < y[i] ? -1 : 1;
  return a->guard < b->guard ? -1 : a->guard > b->guard;
}

/* Sorted; a U for all gradients is there once, however often it is listed. */
static uint32_t in_order(RuleListed *l, uint32_t n) {
  uint32_t to = 0;
  for (uint32_t i = 0; i < n; i++)
    if (l[i].kind == PIPE_U && l[i].unit < 0 && !l[i].joint)
      l[i].beg = 0, l[i].key = 0, l[i].keyed = false, l[i].guard = 0;
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
                                          of->stmt->at.beg,
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
  uint32_t n0 = in_order(want.at, want.n), n1 = in_order(s->play->listed.at, s->play->listed.n);
  BUG_IF(n0 != n1);
  for (uint32_t i = 0; i < n0; i++)
    BUG_IF(by_all(&want.at[i], &s->play->listed.at[i]) != 0);
}

/* ---- the step from n to n + 1 ---- */

static bool has_inputs(const Sched *s, uint32_t stage) {
  uint32_t m = s->stage[stage].model;
  return s->graph ? s->graph->in0[m] < s->graph->in0[m + 1] : s->stage[stage].prev != NONE;
}

/* The next run of forwards of one statement on a first stage, from *i on: *i to *end. */
static bool next_forwards(const Sched *s, const RuleListed *l, uint32_t n, uint32_t *i,
                          uint32_t *end) {
  while (*i < n && (l[*i].kind != PIPE_F || l[*i].joint || has_inputs(s, l[*i].stage)))
    ++*i;
  for (*end = *i; *end < n && l[*end].rank == l[*i].rank && l[*end].beg == l[*i].beg &&
                  l[*end].kind == PIPE_F && l[*end].stage == l[*i].stage;)
    ++*end;
  return *i < n;
}

/* Forwards of a first stage are in line from the beginning. A statement that lists others for a larger n lists more, and no
 * less of the first: those of the last microbatches are not alone. Listed: in order. */
static void verify_in_line(const Sched *s, const Sched *more) {
  const RuleListed *a = s->play->listed.at, *b = more->play->listed.at;
  uint32_t na = s->play->listed.n, nb = more->play->listed.n, i = 0, j = 0, enda, endb;
  for (; next_forwards(more, b, nb, &j, &endb); j = endb) {
    bool there = next_forwards(s, a, na, &i, &enda);
    BUG_IF(!there || a[i].rank != b[j].rank || a[i].beg != b[j].beg || a[i].stage != b[j].stage);
    uint32_t had = enda - i, has = endb - j;
    for (uint32_t k = 0; k < had; k++)
      BUG_IF(has <= had && (k >= has || a[i + k].unit != b[j + k].unit));
    i = enda;
  }
}

/* The ops of a rank as the play has them: without R that a clause has put in. */
typedef struct Played {
  const Sched *s;
  const Op **op;
  const uint64_t *start;
  uint32_t n;
} Played;

static Played played(const Sched *s, uint32_t r, bool again, Arena *a) {
  uint32_t first = s->rank_op0[r], end = s->rank_op0[r + 1], all = 0;
  Played p = {s, NEW_ARRAY(a, const Op *, end - first + (size_t)1), NULL, 0};
  for (uint32_t i = first; i < end; i++)
    if (!again || s->op[i].kind != PIPE_R)
      p.op[p.n++] = &s->op[i];
  for (uint32_t q = 0; q < r; q++)
    for (uint32_t i = s->rank_op0[q]; i < s->rank_op0[q + 1]; i++)
      all += !again || s->op[i].kind != PIPE_R;
  p.start = s->play->start + all;
  return p;
}

/* Op j of q is op i of p, `units` and `time` later. */
static void moved_on(const Played *p, uint32_t i, const Played *q, uint32_t j, int64_t units,
                     uint64_t time) {
  const Op *a = p->op[i], *b = q->op[j];
  BUG_IF(a->kind != b->kind || a->stage != b->stage || a->group != b->group);
  BUG_IF((a->mb == NONE) != (b->mb == NONE));
  BUG_IF(a->mb != NONE && (int64_t)b->mb - q->s->stage[b->stage].mb0 -
                                  ((int64_t)a->mb - p->s->stage[a->stage].mb0) !=
                              units);
  BUG_IF(q->start[j] - p->start[i] != time);
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
  int64_t(*count)[PIPE_NOPS] = arena_zalloc(a, s->nstage, sizeof *count);
  for (uint32_t i = first; i < first + n; i++)
    count[p->op[i]->stage][p->op[i]->kind]++;
  for (uint32_t i = first; i < first + n; i++) {
    const int64_t *c = count[p->op[i]->stage];
    BUG_IF(c[PIPE_F] == 0 || c[PIPE_F] > l->pace || c[PIPE_I] != c[PIPE_W] ||
           (!s->forward && c[PIPE_F] != c[PIPE_B] + c[PIPE_I]));
  }
}

void verify_rules(const ListsOfM *l, const Sched *const at[SAMPLES]) {
  Arena a = {.oom = at[0]->arena->oom};
  bool again = false;
  for (const Schedule *sc = at[0]->def; sc; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c; c = c->next)
      again |= c->kind == CL_RECOMPUTE;
  for (int n = 0; n < SAMPLES; n++)
    verify_listed(l, at[n], n, &a);
  for (int n = 0; n + 1 < SAMPLES; n++)
    verify_in_line(at[n], at[n + 1]);
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
  arena_free(&a);
}
