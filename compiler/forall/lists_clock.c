/* SPDX-License-Identifier: MIT
 * Clocks of an order that is run once for all M (lists_of_m.c, note [lists]). The stamps of a loop move on by one period in
 * a turn; its ops are sorted within windows of a period, and ops of turns that differ meet in one. */
#include <string.h>

#include "lists_text.h"

/* ---- clocks ---- */

typedef struct Stamped { /* rows of an action, or of a U */
  uint32_t row, nrow;
  int64_t window, rest; /* its stamp by the period of the segment: quotient and remainder */
  int64_t turn;         /* of the loop */
  int end; /* 0: counted from the beginning, 1: from the end, 2: of the loop, in its turn 0 */
} Stamped;

static int by_window(const void *va, const void *vb) {
  const Stamped *a = va, *b = vb;
  if (a->window != b->window)
    return a->window < b->window ? -1 : 1;
  return a->rest < b->rest ? -1 : a->rest > b->rest;
}

/* Rows of one U, or one action, share a stamp. */
static bool one_action(const ListRow *a, const ListRow *b) {
  return (a->kind == PIPE_U && b->kind == PIPE_U && a->at.beg == b->at.beg) ||
         a->group == b->group + 1;
}

/* Appends entries in the order of their stamps. Those of the loop in turn `turn` + by_n * n; moves: and so many
 * turns further in each turn of the new one. */
static bool put_entries(Text *t, const Stmt *b, const ListRow *row, Stamped *e, uint32_t n,
                        int64_t by_n, bool moves) {
  if (n)
    qsort(e, n, sizeof *e, by_window);
  for (uint32_t i = 0; i < n; i++) {
    if (i > 0 && by_window(&e[i - 1], &e[i]) == 0)
      return text_no(t, b->at, "two ops are on one tick");
    for (uint32_t k = 0; k < e[i].nrow; k++) {
      ListRow r = row[e[i].row + k];
      if (e[i].end == 2) {
        r.unit.a += r.unit.j * e[i].turn, r.unit.n += r.unit.j * by_n;
        r.unit.j = moves ? r.unit.j : 0;
      }
      *vec_push(t->s->arena, &t->out->row) = r;
    }
  }
  return true;
}

/* Sorts the rows from row0 on, whose stamps are stamp[], by them: head, one loop, tail, as they came; or all
 * straight. */
static bool sort_clock(Text *t, const Stmt *b, uint32_t row0, uint32_t segment0) {
  Sched *s = t->s;
  RankList *l = t->out;
  uint32_t n = l->row.n - row0, loop0 = 0, loop1 = 0;
  ListSegment loop = {0};
  if (n == 0)
    return true;
  for (uint32_t i = segment0; i < l->segment.n; i++)
    if (l->segment.at[i].by_n) {
      if (loop.by_n)
        return text_no(t, b->at, "a clock has two parts that repeat");
      loop = l->segment.at[i];
      loop0 = loop.row0 - row0, loop1 = loop0 + loop.nrow;
    }
  ListRow *row = arena_alloc(s->arena, n * sizeof *row + 1);
  memcpy(row, &l->row.at[row0], n * sizeof *row);
  Stamped *e = NEW_ARRAY(s->arena, Stamped, n);
  int64_t period = 1;
  if (loop.by_n)
    period = t->stamp.at[loop0].j;
  if (period <= 0)
    return text_no(t, b->at, "the stamps of a clock do not ascend from turn to turn");
  uint32_t ne = 0;
  for (uint32_t i = 0; i < n; ne++) {
    Affine v = t->stamp.at[i];
    bool in_loop = i >= loop0 && i < loop1;
    Stamped *to = &e[ne];
    to->row = i;
    to->end = in_loop ? 2 : loop.by_n && i >= loop1 ? 1 : 0;
    if (loop.by_n &&
        (v.j != (in_loop ? period : 0) || v.n != (to->end == 1 ? period * loop.by_n : 0)))
      return text_no(t, b->at, "the stamps of a clock do not ascend at one pace");
    if (!loop.by_n && (v.n != t->stamp.at[0].n || v.j != t->stamp.at[0].j))
      return text_no(t, b->at, "the stamps of a clock do not ascend at one pace");
    to->rest = v.a % period + (v.a % period < 0 ? period : 0);
    to->window = (v.a - to->rest) / period;
    do
      i++, to->nrow++;
    while (i < n && i != loop0 && i != loop1 && one_action(&row[i - 1], &row[i]) &&
           affine_same(t->stamp.at[i], v));
  }
  l->row.n = row0, l->segment.n = segment0, t->straight = row0;
  if (!loop.by_n)
    return put_entries(t, b, row, e, ne, 0, false);
  /* Windows first .. last have the ops of the loop, all of them and no others; last moves with n. */
  int64_t first = INT64_MIN, last = INT64_MAX;
  for (uint32_t i = 0; i < ne; i++) {
    int64_t w = e[i].window;
    if (e[i].end == 2) {
      first = w > first ? w : first;
      last = w + loop.turns - 1 < last ? w + loop.turns - 1 : last;
    } else if (e[i].end == 0) {
      first = w + 1 > first ? w + 1 : first;
    } else {
      last = w - 1 < last ? w - 1 : last;
    }
  }
  if (last - first + 1 < LEAST_TURNS)
    return affine_fail(t->x, AFFINE_BASE, 0);
  for (int part = 0; part < 3; part++) { /* head, loop, tail */
    VEC(Stamped) some = {0};
    for (uint32_t i = 0; i < ne; i++) {
      Stamped one = e[i];
      int64_t j = part == 0   ? 0
                  : part == 1 ? first - e[i].window
                              : last + 1 - e[i].window,
              to = part == 0   ? first - e[i].window
                   : part == 1 ? j + 1
                               : loop.turns;
      if (one.end != 2) {
        if (one.end * 2 == part)
          *vec_push(s->arena, &some) = one;
        continue;
      }
      for (; j < to; j++) {
        one.turn = j, one.window = part == 1 ? 0 : e[i].window + j;
        *vec_push(s->arena, &some) = one;
      }
    }
    uint32_t at = l->row.n;
    if (!put_entries(t, b, row, some.at, some.n, part == 2 ? loop.by_n : 0, part == 1))
      return false;
    if (part == 1)
      *vec_push(s->arena, &l->segment) = (ListSegment){
          .row0 = at, .nrow = l->row.n - at, .turns = last - first + 1, .by_n = loop.by_n};
    else
      text_end_straight(t);
    t->straight = l->row.n;
  }
  return true;
}

/* Rows of a clock, once they are in order: with what is recomputed before each action of them. */
static bool recompute_rows(Text *t, const ListRow *row, uint32_t n) {
  for (uint32_t i = 0; i < n;) {
    uint32_t first = t->out->row.n, end = i + 1 + row[i].group;
    for (; i < end; i++)
      *vec_push(t->s->arena, &t->out->row) = row[i];
    if (!text_recompute_before(t, first))
      return false;
  }
  return true;
}

bool text_recompute_rows(Text *t, uint32_t row0, uint32_t segment0) {
  RankList *l = t->out;
  uint32_t n = l->row.n - row0, done = row0;
  ListRow *row = arena_alloc(t->s->arena, n * sizeof *row + 1);
  if (n > 0)
    memcpy(row, &l->row.at[row0], n * sizeof *row);
  l->row.n = row0;
  for (uint32_t i = segment0; i < l->segment.n; i++) {
    ListSegment *g = &l->segment.at[i];
    uint32_t first = l->row.n;
    if (g->by_n)
      t->x->turns = g->turns, t->x->by_n = g->by_n;
    bool ok = recompute_rows(t, row + (g->row0 - row0), g->nrow);
    if (g->by_n)
      t->x->turns = t->x->by_n = 0;
    if (!ok && t->x->fail == AFFINE_TURN) /* all segments must be so much longer */
      t->l->pace *= t->x->need, t->x->fail = AFFINE_STEP, t->x->need = 1;
    if (!ok && t->x->fail == AFFINE_CROSS)
      t->x->fail = AFFINE_OK, text_no(t, t->again->at, "it changes within a clock");
    if (!ok)
      return false;
    done = g->row0 + g->nrow;
    g->row0 = first, g->nrow = l->row.n - first;
  }
  t->straight = l->segment.n > segment0 ? l->row.n : t->straight;
  return recompute_rows(t, row + (done - row0), n - (done - row0));
}

bool text_run_clock(Text *t, const Stmt *b) {
  Loop k = {b, text_run_body, affine(0), 1, 1, affine(0)};
  Affine count = t->mbs[0];
  if (t->clock || t->rules) { /* of what is used there: its stamps and those outside add up */
    k.base = t->base;
    bool all = (!b->range.lo || text_turns(t, &b->range, &k.lo, &k.step, &count)) &&
               text_run_loop(t, k, count);
    t->base = k.base;
    return all;
  }
  if (b->range.lo && !text_turns(t, &b->range, &k.lo, &k.step, &count))
    return false;
  if (!t->x->by_n)
    text_end_straight(t);
  uint32_t row0 = t->out->row.n, segment0 = t->out->segment.n, straight = t->straight;
  State before = text_begin_block(t);
  t->clock = b, t->stamp.n = 0, t->base = affine(0);
  bool ok = text_run_loop(t, k, count);
  t->clock = NULL, t->base = affine(0);
  if (!ok)
    return false;
  if (!sort_clock(t, b, row0, segment0) || !text_end_block(t, b, &before, t->out, row0, segment0) ||
      (t->again && !text_recompute_rows(t, row0, segment0)))
    return false;
  if (t->x->by_n)
    t->straight = straight;
  return true;
}
