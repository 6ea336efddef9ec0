/* SPDX-License-Identifier: MIT
 * Do the rows of loops give two equal sets of tuples, for every n?
 *
 * Method: write a tuple v as X^v. A row that gives a, a + s, a + 2s, ... in T turns gives the sum
 * (X^a - X^(a + sT)) / (1 - X^s): only its two corners count. The corners of all rows, each over
 * its step, are a sum of fractions. The sum is 0 if, over one denominator, each corner has a corner
 * of opposite sign. Corners are at + by * n; they cancel for every n if at and by are equal. Cost:
 * sorting; otherwise linear. */
#include <stdlib.h>
#include <string.h>

#include "verify_for_all.h"

enum {
  STEPS = 4,       /* directions of steps with one key */
  MULTIPLE = 4096, /* the largest multiple of the least step of a direction */
  FEW = 64         /* the most turns that are written out */
};

void sets_put(Sets *s, const ForAllPart *part, uint64_t key, const Num *tuple, uint32_t n,
              int sign) {
  Corner c = {.key = key, .sign = sign};
  for (uint32_t i = 0; i < n; i++)
    c.at[i] = tuple[i].at, c.by[i] = tuple[i].by, c.step[i] = tuple[i].turn;
  if (part->by == 0 && part->turns <= FEW) { /* writes out the turns */
    memset(c.step, 0, sizeof c.step);
    for (int64_t u = 0; u < part->turns; u++) {
      *vec_push(s->arena, &s->corner) = c;
      for (uint32_t i = 0; i < n; i++)
        c.at[i] += tuple[i].turn;
    }
    return;
  }
  *vec_push(s->arena, &s->corner) = c;
  for (uint32_t i = 0; i < n; i++)
    c.at[i] += c.step[i] * part->turns, c.by[i] += c.step[i] * part->by;
  c.sign = -sign;
  *vec_push(s->arena, &s->corner) = c;
}

static int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t t = a % b;
    a = b, b = t;
  }
  return a < 0 ? -a : a;
}

static bool is_zero(const int64_t *v) {
  for (int i = 0; i < TUPLE; i++)
    if (v[i])
      return false;
  return true;
}

/* Makes the first nonzero number of a step positive: -1 / (1 - X^s) = X^-s / (1 - X^-s). */
static void turn_round(Corner *c) {
  int i = 0;
  while (i < TUPLE && c->step[i] == 0)
    i++;
  if (i == TUPLE || c->step[i] > 0)
    return;
  for (i = 0; i < TUPLE; i++)
    c->step[i] = -c->step[i], c->at[i] += c->step[i];
  c->sign = -c->sign;
}

static int by_key(const void *a, const void *b) {
  const Corner *x = a, *y = b;
  return x->key < y->key ? -1 : x->key > y->key;
}

static int by_place(const void *a, const void *b) {
  const Corner *x = a, *y = b;
  int c = memcmp(x->at, y->at, sizeof x->at);
  return c ? c : memcmp(x->by, y->by, sizeof x->by);
}

/* A direction with gcd 1, and a multiple of it that every step divides. */
typedef struct Direction {
  int64_t step[TUPLE], times;
} Direction;

static int64_t multiple_of(const int64_t *step) {
  int64_t g = 0;
  for (int i = 0; i < TUPLE; i++)
    g = gcd(g, step[i]);
  return g;
}

static bool find_directions(Corner *c, uint32_t n, Direction *d, uint32_t *nd) {
  *nd = 0;
  for (uint32_t k = 0; k < n; k++) {
    turn_round(&c[k]);
    if (is_zero(c[k].step))
      continue;
    int64_t g = multiple_of(c[k].step), one[TUPLE];
    uint32_t j = 0;
    for (int i = 0; i < TUPLE; i++)
      one[i] = c[k].step[i] / g;
    while (j < *nd && memcmp(d[j].step, one, sizeof one) != 0)
      j++;
    if (j == STEPS)
      return false;
    if (j == *nd) {
      memcpy(d[j].step, one, sizeof one);
      d[(*nd)++].times = 1;
    }
    d[j].times = d[j].times / gcd(d[j].times, g) * g;
    if (d[j].times > MULTIPLE)
      return false;
  }
  return true;
}

/* Adds c * (1 - X^(d[0])) * ... over all directions but `own`. */
static void put_over(Sets *s, Corner c, const Direction *d, uint32_t nd, uint32_t own) {
  if (nd == 0) {
    memset(c.step, 0, sizeof c.step);
    *vec_push(s->arena, &s->corner) = c;
    return;
  }
  put_over(s, c, d + 1, nd - 1, own - 1);
  if (own == 0)
    return;
  for (int i = 0; i < TUPLE; i++)
    c.at[i] += d->step[i] * d->times;
  c.sign = -c.sign;
  put_over(s, c, d + 1, nd - 1, own - 1);
}

/* Adds the corners over one denominator to s. */
static void put_all(Sets *s, const Corner *c, uint32_t n, const Direction *d, uint32_t nd) {
  for (uint32_t k = 0; k < n; k++) {
    int64_t g = multiple_of(c[k].step), one[TUPLE];
    uint32_t own = nd;
    for (int i = 0; i < TUPLE && g; i++)
      one[i] = c[k].step[i] / g;
    for (uint32_t j = 0; j < nd && g; j++)
      if (memcmp(d[j].step, one, sizeof one) == 0)
        own = j;
    if (own == nd) {
      put_over(s, c[k], d, nd, nd);
      continue;
    }
    /* 1 / (1 - X^g) = (1 + X^g + X^2g + ...) / (1 - X^times) */
    for (int64_t i = 0; i < d[own].times / g; i++) {
      Corner m = c[k];
      for (int j = 0; j < TUPLE; j++)
        m.at[j] += m.step[j] * i;
      put_over(s, m, d, nd, own);
    }
  }
}

static bool key_cancels(Sets *s, Corner *first, uint32_t n) {
  Direction d[STEPS];
  uint32_t nd;
  Sets sum = {.arena = s->arena};
  if (!find_directions(first, n, d, &nd))
    return false;
  put_all(&sum, first, n, d, nd);
  Corner *c = sum.corner.at;
  qsort(c, sum.corner.n, sizeof *c, by_place);
  for (uint32_t i = 0; i < sum.corner.n;) {
    int64_t all = 0;
    uint32_t j = i;
    for (; j < sum.corner.n && by_place(&c[i], &c[j]) == 0; j++)
      all += c[j].sign;
    if (all != 0)
      return false;
    i = j;
  }
  return true;
}

bool sets_cancel(Sets *s) {
  bool ok = true;
  Arena own = {0};
  Sets tmp = {.arena = &own};
  if (s->corner.n > 0) /* else `at` is NULL */
    qsort(s->corner.at, s->corner.n, sizeof *s->corner.at, by_key);
  for (uint32_t i = 0, j; i < s->corner.n && ok; i = j) {
    for (j = i; j < s->corner.n && s->corner.at[j].key == s->corner.at[i].key; j++)
      ;
    ok = key_cancels(&tmp, &s->corner.at[i], j - i);
  }
  arena_free(&own);
  s->corner.n = 0;
  return ok;
}
