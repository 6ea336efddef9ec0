/* SPDX-License-Identifier: MIT
 * Finds how a table repeats. Requires its rows for three lengths, n, n + 1 and n + 2, n so large that most of
 * them repeat. Rows are compared by their keys: where a run of q keys is repeated at least n/2 times is a
 * loop of q rows. In it each word is taken for a number that moves on by the same in each turn, or for a
 * slot that goes round a cycle, as it is in the middle; turns at its ends for which some word is not are no
 * turns of it. What is between loops is there once. All words must move with n in the same way from the first
 * length to the second as from there to the third. A few lengths prove nothing for others: the caller compares.
 *
 * note [cycles]: slots.c takes the slot that was given back last, so it does the same in every turn but for
 * the names of the slots: what turn k + 1 does to them is what turn k does, renamed by a permutation, the same
 * for all turns. The cycles of that permutation are those that are found here, and after n turns more what
 * stands behind the loop uses slots that are n places further round. Linear in the rows times q. */
#include <string.h>

#include "roll.h"

typedef struct Loop {
  uint32_t start, rows; /* in table 0; of a turn */
  uint32_t turns[3];    /* in each table */
  uint32_t begin[3];    /* row at which it begins in each */
} Loop;

typedef struct Form { /* of a word in turn k: base + by_turn * k + by_n * n, of a cycle or not */
  uint32_t base, cycle, tag;
  int32_t by_turn, by_n;
} Form;

typedef struct Roll {
  Sched *s;
  Cycles *c;
  uint32_t rank;
  int64_t n;
  const Rows *t;
  uint32_t words;
} Roll;

/* ---- loops ---- */

typedef VEC(Loop) Loops;

static void find_loops(Sched *s, const Rows *t, uint32_t least, Loops *out) {
  for (uint32_t at = 0; at < t->n;) {
    uint32_t q = 1, turns = 0;
    if (!work_take(s->opt->work, 1 + (t->n - at) / least / 4, s->parsed->def->name_at))
      return; /* and none is found */
    for (; q <= (t->n - at) / least; q++) {
      uint32_t i = at;
      if (t->key[at] != t->key[at + q * (least - 1)] || t->key[at] != t->key[at + q])
        continue;
      while (i + q < t->n && t->key[i] == t->key[i + q])
        i++;
      turns = (i - at) / q + 1;
      if (turns >= least)
        break;
    }
    if (q > (t->n - at) / least) {
      at++;
      continue;
    }
    *vec_push(s->arena, out) = (Loop){.start = at, .rows = q, .turns = {turns}};
    at += q * turns;
  }
}

/* The loops of all three tables; false: they are not the same. */
static bool match_loops(Roll *x, Loops *out) {
  uint32_t least = x->n / 2 > 4 ? (uint32_t)(x->n / 2) : 4, end[3] = {0};
  Loops l[3] = {{0}};
  for (int j = 0; j < 3; j++) {
    find_loops(x->s, &x->t[j], least, &l[j]);
    if (l[j].n != l[0].n)
      return false;
  }
  for (uint32_t i = 0; i < l[0].n; i++) {
    Loop k = l[0].at[i];
    for (int j = 0; j < 3; j++) {
      const Loop *o = &l[j].at[i];
      if (o->rows != k.rows || o->start - end[j] != k.start - end[0])
        return false;
      k.turns[j] = o->turns[0], k.begin[j] = o->start;
    }
    for (int j = 0; j < 3; j++)
      end[j] = k.begin[j] + k.rows * k.turns[j];
    if (k.turns[1] <= k.turns[0] || k.turns[2] - k.turns[1] != k.turns[1] - k.turns[0])
      return false;
    *vec_push(x->s->arena, out) = k;
  }
  for (int j = 0; j < 3; j++)
    if (x->t[j].n - end[j] != x->t[0].n - end[0])
      return false;
  return true;
}

/* ---- cycles ---- */

static uint32_t *cycle(const Cycles *c, uint32_t at) { return c->at.at + at; }

/* Where v stands in a cycle; NONE: nowhere. */
static uint32_t place(const Cycles *c, uint32_t at, uint32_t v) {
  const uint32_t *k = cycle(c, at);
  for (uint32_t i = 0; i < k[0]; i++)
    if (k[1 + i] == v)
      return i;
  return NONE;
}

/* The cycle of these values, which begins with its smallest; NONE: one is there twice. */
static uint32_t add_cycle(Roll *x, const uint32_t *v, uint32_t n, uint32_t tag) {
  uint32_t least = 0;
  for (uint32_t i = 0; i < n; i++) {
    least = v[i] < v[least] ? i : least;
    for (uint32_t j = 0; j < i; j++)
      if (v[i] == v[j])
        return NONE;
  }
  for (uint32_t k = 0; k < x->c->of.n; k++) {
    CycleOf o = x->c->of.at[k];
    if (o.rank != x->rank || o.tag != tag || cycle(x->c, o.at)[0] != n)
      continue;
    uint32_t i = 0;
    while (i < n && cycle(x->c, o.at)[1 + i] == v[(least + i) % n])
      i++;
    if (i == n)
      return o.at;
  }
  uint32_t at = x->c->at.n;
  *vec_push(x->s->arena, &x->c->of) = (CycleOf){at, x->rank, tag};
  *vec_push(x->s->arena, &x->c->at) = n;
  for (uint32_t i = 0; i < n; i++)
    *vec_push(x->s->arena, &x->c->at) = v[(least + i) % n];
  return at;
}

/* A cycle that goes through these three values with equal steps. */
static bool round_cycle(Roll *x, uint32_t tag, const uint32_t v[3], Form *f) {
  for (uint32_t k = 0; k < x->c->of.n; k++) {
    CycleOf o = x->c->of.at[k];
    if (o.rank != x->rank || o.tag != tag)
      continue;
    uint32_t n = cycle(x->c, o.at)[0], a = place(x->c, o.at, v[0]), b = place(x->c, o.at, v[1]),
             c = place(x->c, o.at, v[2]);
    if (a == NONE || b == NONE || c == NONE || (b + n - a) % n != (c + n - b) % n)
      continue;
    f->cycle = o.at;
    f->by_n = (int32_t)((b + n - a) % n);
    f->base = a;
    return true;
  }
  return false;
}

/* ---- words ---- */

static uint32_t value(const Roll *x, const Form *f, int64_t k, int64_t n) {
  int64_t v = (int64_t)f->by_turn * k + (int64_t)f->by_n * n;
  if (f->cycle == NONE)
    return f->base + (uint32_t)v;
  const uint32_t *c = cycle(x->c, f->cycle);
  v = (v + f->base) % c[0];
  return c[1 + (v < 0 ? v + c[0] : v)];
}

/* Makes base, which is the value at k and n, that at 0 and 0. */
static void to_origin(const Roll *x, Form *f, int64_t k, int64_t n) {
  int64_t v = (int64_t)f->base - f->by_turn * k - f->by_n * n;
  if (f->cycle != NONE) {
    int64_t m = cycle(x->c, f->cycle)[0];
    v %= m;
    v += v < 0 ? m : 0;
  }
  f->base = (uint32_t)v;
}

/* A word with these values for the three lengths, one turn. */
static bool fit_once(Roll *x, const uint32_t v[3], uint32_t tag, Form *f) {
  *f = (Form){.base = v[0], .cycle = NONE, .tag = tag};
  if (v[0] == v[1] && v[1] == v[2])
    return true;
  if (tag == NONE || !round_cycle(x, tag, v, f)) {
    if (v[1] - v[0] != v[2] - v[1])
      return false;
    f->by_n = (int32_t)(v[1] - v[0]);
  }
  to_origin(x, f, 0, x->n);
  return true;
}

static uint32_t at_turn(const Roll *x, const Loop *l, int j, uint32_t k, uint32_t row,
                        uint32_t word) {
  return x->t[j].w[((size_t)l->begin[j] + (size_t)k * l->rows + row) * x->words + word];
}

/* The word as it is in the middle turns. */
static bool fit_turns(Roll *x, const Loop *l, uint32_t row, uint32_t word, Form *f) {
  uint32_t a = l->turns[0] / 4, b = l->turns[0] - a, first = at_turn(x, l, 0, a, row, word),
           step = at_turn(x, l, 0, a + 1, row, word) - first;
  uint32_t tag = x->t[0].tag[((size_t)l->begin[0] + (size_t)a * l->rows + row) * x->words + word];
  const uint32_t v[3] = {first, at_turn(x, l, 1, a, row, word), at_turn(x, l, 2, a, row, word)};
  bool even = true;
  for (uint32_t k = a; k + 1 < b && even; k++)
    even = at_turn(x, l, 0, k + 1, row, word) - at_turn(x, l, 0, k, row, word) == step;
  if (even && step == 0)
    return fit_once(x, v, tag, f);
  *f = (Form){.base = first, .cycle = NONE, .tag = tag, .by_turn = (int32_t)step};
  if (!even) { /* round the cycle of what stands here turn after turn */
    uint32_t n = 1;
    while (a + n < b && at_turn(x, l, 0, a + n, row, word) != first)
      n++;
    if (2 * n > b - a)
      return false;
    uint32_t *round = arena_alloc(x->s->arena, n * sizeof *round);
    for (uint32_t k = 0; k < n; k++)
      round[k] = at_turn(x, l, 0, a + k, row, word);
    f->cycle = add_cycle(x, round, n, tag);
    uint32_t p[3];
    for (int j = 0; j < 3 && f->cycle != NONE; j++)
      if ((p[j] = place(x->c, f->cycle, v[j])) == NONE)
        return false;
    if (f->cycle == NONE || (p[1] + n - p[0]) % n != (p[2] + n - p[1]) % n)
      return false;
    f->base = p[0], f->by_turn = 1, f->by_n = (int32_t)((p[1] + n - p[0]) % n);
  } else {
    if (v[1] - v[0] != v[2] - v[1])
      return false;
    f->by_n = (int32_t)(v[1] - v[0]);
  }
  to_origin(x, f, a, x->n);
  return true;
}

/* ---- segments ---- */

static void put_word(Roll *x, Segments *out, const Form *f, uint32_t row, uint32_t word) {
  *vec_push(x->s->arena, &out->row) = f->base;
  if (f->by_turn || f->by_n || f->cycle != NONE || (f->tag != NONE && f->tag != ROLL_EVENTS))
    *vec_push(x->s->arena, &out->vary) = (PipeVary){
        row, word, f->by_turn, f->by_n, f->cycle, f->tag == ROLL_EVENTS ? NONE : f->tag};
}

/* Rows that are there once, from row `at` of each table on. */
static bool once(Roll *x, const uint32_t at[3], uint32_t rows, Segments *out) {
  PipeSegment g = {.row0 = out->row.n / x->words, .nrow = rows, .vary0 = out->vary.n, .turns = 1};
  for (uint32_t i = 0; i < rows; i++)
    for (uint32_t w = 0; w < x->words; w++) {
      uint32_t v[3];
      size_t of[3];
      Form f;
      for (int j = 0; j < 3; j++)
        of[j] = ((size_t)at[j] + i) * x->words + w, v[j] = x->t[j].w[of[j]];
      uint32_t tag = x->t[0].tag[of[0]];
      if (tag != x->t[1].tag[of[1]] || tag != x->t[2].tag[of[2]] || !fit_once(x, v, tag, &f))
        return false;
      put_word(x, out, &f, i, w);
    }
  g.nvary = out->vary.n - g.vary0;
  if (rows)
    *vec_push(x->s->arena, &out->segment) = g;
  return true;
}

/* First turn of those around the middle in which all words have their form, and one past the last. */
static void turns_that_fit(const Roll *x, const Loop *l, const Form *form, int j, uint32_t *from,
                           uint32_t *to) {
  *from = 0, *to = l->turns[j];
  uint32_t mid = l->turns[0] / 2;
  for (uint32_t i = 0; i < l->rows * x->words; i++) {
    const Form *f = &form[i];
    for (int up = 0; up < 2; up++)
      for (uint32_t k = mid; k >= *from && k < *to; k += up ? 1 : UINT32_MAX) {
        size_t at = ((size_t)l->begin[j] + (size_t)k * l->rows) * x->words + i;
        if (x->t[j].tag[at] == f->tag && value(x, f, k, x->n + j) == x->t[j].w[at])
          continue;
        *(up ? to : from) = up ? k : k + 1;
        break;
      }
  }
}

static bool fit_loop(Roll *x, const Loop *l, Form *form, uint32_t *head, uint32_t *tail) {
  for (uint32_t i = 0; i < l->rows; i++)
    for (uint32_t w = 0; w < x->words; w++)
      if (!fit_turns(x, l, i, w, &form[i * x->words + w]))
        return false;
  for (int j = 0; j < 3; j++) {
    uint32_t from, to;
    turns_that_fit(x, l, form, j, &from, &to);
    if (to <= from || from > l->turns[0] / 2 ||
        (j > 0 && (from != *head || l->turns[j] - to != *tail)))
      return false;
    *head = from, *tail = l->turns[j] - to;
  }
  return true;
}

bool roll(Sched *s, Cycles *c, uint32_t rank, int64_t n, const Rows t[3], Segments *out) {
  Roll x = {s, c, rank, n, t, t[0].words};
  Loops loops = {0};
  *out = (Segments){0};
  if (!match_loops(&x, &loops))
    return false;
  Form **form = NEW_ARRAY(s->arena, Form *, loops.n + 1);
  uint32_t *head = NEW_ARRAY(s->arena, uint32_t, loops.n + 1),
           *tail = NEW_ARRAY(s->arena, uint32_t, loops.n + 1);
  for (uint32_t i = 0; i < loops.n; i++) { /* first, for their cycles */
    form[i] = NEW_ARRAY(s->arena, Form, (size_t)loops.at[i].rows * x.words);
    if (!fit_loop(&x, &loops.at[i], form[i], &head[i], &tail[i]))
      return false;
  }
  uint32_t at[3] = {0};
  for (uint32_t i = 0; i <= loops.n; i++) {
    const Loop *l = i < loops.n ? &loops.at[i] : NULL;
    if (!once(&x, at, (l ? l->start + head[i] * l->rows : t[0].n) - at[0], out))
      return false;
    if (!l)
      break;
    uint32_t turns = l->turns[0] - head[i] - tail[i], by_n = l->turns[1] - l->turns[0];
    PipeSegment g = {
        out->row.n / x.words, l->rows, out->vary.n, 0, (int32_t)((int64_t)turns - by_n * n), by_n};
    for (uint32_t r = 0; r < l->rows; r++)
      for (uint32_t w = 0; w < x.words; w++) {
        Form *f = &form[i][r * x.words + w];
        f->base = f->cycle == NONE
                      ? value(&x, f, head[i], 0)
                      : (f->base + (uint32_t)f->by_turn * head[i]) % cycle(c, f->cycle)[0];
        put_word(&x, out, f, r, w);
      }
    g.nvary = out->vary.n - g.vary0;
    *vec_push(s->arena, &out->segment) = g;
    for (int j = 0; j < 3; j++)
      at[j] = l->begin[j] + (l->turns[j] - tail[i]) * l->rows;
  }
  return true;
}

void roll_rebase(Segments *g, const Cycles *c, uint32_t words, int64_t by) {
  for (uint32_t i = 0; i < g->segment.n; i++) {
    PipeSegment *k = &g->segment.at[i];
    k->turns += (int32_t)(k->by_n * by);
    for (uint32_t j = k->vary0; j < k->vary0 + k->nvary; j++) {
      const PipeVary *v = &g->vary.at[j];
      uint32_t *w = &g->row.at[((size_t)k->row0 + v->row) * words + v->word];
      *w += (uint32_t)(v->by_n * by);
      if (v->cycle != NONE)
        *w %= c->at.at[v->cycle];
    }
  }
}
