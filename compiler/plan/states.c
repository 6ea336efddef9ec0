/* SPDX-License-Identifier: MIT
 * The states of a model: the sets of layers that one cut can leave before it. They begin with the
 * first layer and grow by a layer that reads one of theirs, with all that it needs. So another
 * layer that reads nothing comes with the first one that reads it, as PipeDream has it. A set is a
 * row of bits, by place in Layers.sorted.
 *
 * Cost: states x layers x the last layers of a state, and states x states for their order. */
#include <string.h>

#include "states.h"

typedef uint64_t Word;

typedef struct Set {
  Word *w;
  uint64_t time; /* F and backward of its layers */
} Set;

typedef struct Sets {
  const Layers *l;
  Arena *a;
  uint32_t n, words; /* layers; words of a set */
  Word *before;      /* [n * words] all that a layer needs, without itself */
  VEC(Set) set;
  uint32_t *slot, nslot; /* hash table of 1 + row */
  uint32_t *place;       /* [layers] place in sorted; NONE: it is gone */
} Sets;

static bool has(const Word *w, uint32_t i) { return w[i / 64] >> i % 64 & 1; }
static void put(Word *w, uint32_t i) { w[i / 64] |= (Word)1 << i % 64; }
static uint32_t size_of(const Word *w, uint32_t words) {
  int n = 0;
  for (uint32_t i = 0; i < words; i++)
    n += __builtin_popcountll(w[i]);
  return (uint32_t)n;
}
static Word *before(const Sets *x, uint32_t i) { return &x->before[(size_t)i * x->words]; }

static uint32_t reader(const Sets *x, uint32_t i, uint32_t k) {
  const Layer *y = &x->l->layer.at[x->l->sorted[i]];
  return x->place[x->l->edge.at[x->l->out[y->first_out + k]].to];
}

static uint32_t nreader(const Sets *x, uint32_t i) { return x->l->layer.at[x->l->sorted[i]].nout; }

static uint64_t time_of(const Sets *x, const Word *w) {
  uint64_t time = 0;
  for (uint32_t i = 0; i < x->n; i++)
    time += has(w, i) ? layer_time(x->l, i) : 0;
  return time;
}

/* Adds the set unless it is there. */
static void add(Sets *x, const Word *w) {
  uint64_t h = 0;
  for (uint32_t i = 0; i < x->words; i++)
    h = (h ^ w[i]) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
  uint32_t at = (uint32_t)h & (x->nslot - 1);
  for (; x->slot[at]; at = (at + 1) & (x->nslot - 1))
    if (memcmp(x->set.at[x->slot[at] - 1].w, w, x->words * sizeof *w) == 0)
      return;
  Word *copy = NEW_ARRAY(x->a, Word, x->words);
  memcpy(copy, w, x->words * sizeof *w);
  *vec_push(x->a, &x->set) = (Set){copy, time_of(x, w)};
  x->slot[at] = x->set.n;
}

static int by_time(const Set *a, const Set *b, uint32_t words) {
  int more = a->time < b->time ? -1 : a->time > b->time;
  if (more == 0)
    more = (int)size_of(a->w, words) - (int)size_of(b->w, words);
  for (uint32_t i = 0; more == 0 && i < words; i++)
    more = a->w[i] < b->w[i] ? 1 : a->w[i] > b->w[i] ? -1 : 0;
  return more;
}

/* Sorts: a small number of rows that are nearly in order. */
static void sort_sets(Sets *x) {
  for (uint32_t i = 1; i < x->set.n; i++) {
    const Set set = x->set.at[i];
    uint32_t k = i;
    for (; k > 0 && by_time(&set, &x->set.at[k - 1], x->words) < 0; k--)
      x->set.at[k] = x->set.at[k - 1];
    x->set.at[k] = set;
  }
}

/* All sets. False: there are more than MOST_STATES, or no edges lead to some layers. */
static bool find_sets(Sets *x) {
  Word *w = NEW_ARRAY(x->a, Word, x->words);
  put(w, 0);
  add(x, w);
  for (uint32_t at = 0; at < x->set.n && x->set.n <= MOST_STATES; at++) {
    const Word *set = x->set.at[at].w;
    for (uint32_t i = 0; i < x->n; i++)
      for (uint32_t j = 0; has(set, i) && j < nreader(x, i); j++) {
        const uint32_t next = reader(x, i, j);
        if (next == NONE || has(set, next))
          continue;
        for (uint32_t k = 0; k < x->words; k++)
          w[k] = set[k] | before(x, next)[k];
        put(w, next);
        add(x, w);
      }
  }
  sort_sets(x);
  return x->set.n <= MOST_STATES && size_of(x->set.at[x->set.n - 1].w, x->words) == x->n;
}

/* The beginnings of Layers.sorted, no more than MOST_STATES, evenly. */
static void one_order(Sets *x) {
  Word *w = NEW_ARRAY(x->a, Word, x->words);
  memset(x->slot, 0, x->nslot * sizeof *x->slot);
  x->set.n = 0;
  const uint32_t step = (x->n + MOST_STATES - 1) / MOST_STATES;
  for (uint32_t i = 0; i < x->n; i++) {
    put(w, i);
    if ((x->n - 1 - i) % step == 0)
      add(x, w);
  }
}

/* What PipeDream keeps of layer i for the layers behind: another one than `top` reads it, which
 * `top` does not need. */
static bool is_kept_beside(const Sets *x, uint32_t i, uint32_t top) {
  for (uint32_t k = 0; has(before(x, top), i) && k < nreader(x, i); k++) {
    const uint32_t to = reader(x, i, k);
    if (to != NONE && to != top && !has(before(x, top), to))
      return true;
  }
  return false;
}

static void fill(const Sets *x, States *t, uint32_t row) {
  const Word *w = x->set.at[row].w;
  const char *last = "";
  uint32_t *top = NEW_ARRAY(x->a, uint32_t, x->n), ntop = 0; /* layers that no other one reads */
  for (uint32_t i = 0; i < x->n; i++) {
    bool leaves = false, read = false;
    for (uint32_t k = 0; has(w, i) && k < nreader(x, i); k++)
      if (reader(x, i, k) != NONE)
        *(has(w, reader(x, i, k)) ? &read : &leaves) = true;
    if (!has(w, i))
      continue;
    const Layer *y = &x->l->layer.at[x->l->sorted[i]];
    for (int k = 0; k < NKEYS; k++)
      t->sum[row][k] = k != KEY_WORK                 ? t->sum[row][k] + y->cost[k]
                       : y->cost[k] > t->sum[row][k] ? y->cost[k]
                                                     : t->sum[row][k];
    t->cross[row] += leaves ? y->cost[KEY_BOUNDARY] : 0;
    if (!read) {
      top[ntop++] = i;
      last = arena_printf(x->a, "%s%s%s", last, *last ? "+" : "", y->name);
    }
  }
  t->last[row] = last;
  for (uint32_t i = 0; i < x->n; i++) {
    bool keeps = false;
    for (uint32_t k = 0; has(w, i) && !keeps && k < ntop; k++)
      keeps = top[k] == i || is_kept_beside(x, i, top[k]);
    t->kept[row] += keeps ? x->l->layer.at[x->l->sorted[i]].cost[KEY_BOUNDARY] : 0;
  }
}

void find_states(const Layers *l, States *t) {
  Arena *a = l->s->arena;
  Sets x = {.l = l, .a = a, .n = l->n, .words = (l->n + 63) / 64, .nslot = 8 * MOST_STATES};
  x.before = NEW_ARRAY(a, Word, (size_t)x.n * x.words);
  x.slot = NEW_ARRAY(a, uint32_t, x.nslot);
  x.place = NEW_ARRAY(a, uint32_t, l->layer.n);
  memset(x.place, 0xff, l->layer.n * sizeof *x.place);
  for (uint32_t i = 0; i < x.n; i++)
    x.place[l->sorted[i]] = i;
  for (uint32_t i = 0; i < x.n; i++)
    for (uint32_t k = 0; k < nreader(&x, i); k++) {
      const uint32_t to = reader(&x, i, k);
      for (uint32_t j = 0; to != NONE && j < x.words; j++)
        before(&x, to)[j] |= before(&x, i)[j];
      if (to != NONE)
        put(before(&x, to), i);
    }
  t->chain = !find_sets(&x);
  if (t->chain)
    one_order(&x);
  t->n = x.set.n;
  t->sum = arena_zalloc(a, t->n, sizeof *t->sum);
  t->cross = NEW_ARRAY(a, uint64_t, t->n), t->kept = NEW_ARRAY(a, uint64_t, t->n);
  t->set = arena_alloc(a, t->n * sizeof *t->set);
  t->time = NEW_ARRAY(a, uint64_t, t->n);
  t->last = NEW_ARRAY(a, const char *, t->n);
  t->below = NEW_ARRAY(a, uint8_t, (size_t)t->n * t->n);
  for (uint32_t i = 0; i < t->n; i++) {
    fill(&x, t, i);
    t->time[i] = x.set.at[i].time;
    t->set[i] = x.set.at[i].w;
    for (uint32_t k = i + 1; k < t->n; k++) {
      Word more = 0;
      for (uint32_t j = 0; j < x.words; j++)
        more |= x.set.at[i].w[j] & ~x.set.at[k].w[j];
      t->below[(size_t)i * t->n + k] = !more;
    }
  }
}

bool is_between(const States *t, uint32_t from, uint32_t to, uint32_t layer) {
  return has(t->set[to], layer) && (from == NONE || !has(t->set[from], layer));
}

uint64_t largest_cost(const Layers *l, const States *t, uint32_t from, uint32_t to, CostKey k) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < l->n; i++) {
    const uint64_t cost = l->layer.at[l->sorted[i]].cost[k];
    if (is_between(t, from, to, i))
      most = cost > most ? cost : most;
  }
  return most;
}
