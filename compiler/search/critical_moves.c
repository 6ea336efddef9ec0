/* SPDX-License-Identifier: MIT
 * Moves ops off the critical path, one in each step, within the stashes that the ranks have: tabu
 * search as for job shops (Nowicki and Smutnicki 1996), with the moves and estimates of Balas and
 * Vazacopoulos (1998).
 *
 * A critical path is a list of blocks: ops of one rank without idle time between them. The path
 * gets shorter only if an op of a block moves behind the last op of the block, where the path
 * leaves the rank, or before the first, where it arrives. Each step makes the move with the least
 * estimate of the longest path through the moved ops, even if this estimate exceeds the current
 * path. For some steps afterwards, no move may restore an order that ops have left.
 *
 * Cost of a step: two passes over the ops, and for each candidate move the ops that it passes
 * by. */
#include <string.h>

#include "justify.h"

enum {
  NEAR = 24,     /* candidates at each end of a block */
  PAIR_BITS = 9, /* log2 of the number of forbidden orders that are kept */
  TENURE = 8,
  SPREAD = 8 /* an order is forbidden for TENURE to TENURE + SPREAD - 1 steps */
};

typedef struct Pair {
  uint32_t before, after; /* op `before` must not run before op `after` */
  uint32_t until;         /* the last step for which this holds */
} Pair;

typedef struct Walk {
  Just *j;
  uint64_t *tail;  /* [n] longest path from the end of an op to the end of the measure */
  uint64_t *last;  /* [nrank] the tail of the last op of a rank */
  uint32_t *place; /* [n] index of an op in j->seq */
  uint64_t length; /* of a critical path */
  uint64_t random;
  uint32_t step;
  Pair pair[1 << PAIR_BITS];
} Walk;

typedef struct Move { /* the op at `from` goes to `to` on its rank; the ops between close up */
  uint32_t from, to;
  uint64_t length; /* the estimate */
  bool taboo;
} Move;

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint32_t draw(Walk *w, uint32_t n) {
  w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)((w->random >> 33) * n >> 31);
}

static Pair *pair_of(Walk *w, uint32_t before, uint32_t after) {
  uint64_t h = (before * UINT64_C(0x9e3779b97f4a7c15) + after) * UINT64_C(0xbf58476d1ce4e5b9);
  return &w->pair[h >> (64 - PAIR_BITS)];
}

static bool is_taboo(Walk *w, uint32_t before, uint32_t after) {
  const Pair *p = pair_of(w, before, after);
  return p->before == before && p->after == after && p->until > w->step;
}

static void forbid(Walk *w, uint32_t before, uint32_t after) {
  *pair_of(w, before, after) = (Pair){before, after, w->step + TENURE + draw(w, SPREAD)};
}

/* Computes the tails of j->seq. Requires just_play. */
static void measure(Walk *w, Within what) {
  Just *j = w->j;
  Sched *s = j->s;
  uint32_t n = 0;
  uint64_t begin = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    n += j->ncomp[r];
    if (j->ncomp[r] > 0)
      begin = later(begin, j->start[j->seq[s->orders->rank_op0[r]]]);
  }
  w->length = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    w->last[r] = j->now[r] - j->deadline[r];
    if (j->ncomp[r] == 0)
      continue;
    if (what == SPAN)
      w->last[r] += begin - j->start[j->seq[s->orders->rank_op0[r]]];
    w->length = later(w->length, j->deadline[r] + w->last[r]);
  }
  for (uint32_t i = n; i-- > 0;) {
    uint32_t o = j->played[i], r = j->rank[o], p = w->place[o] + 1;
    uint64_t t = w->last[r];
    if (p < s->orders->rank_op0[r] + j->ncomp[r])
      t = j->cost[j->seq[p]] + w->tail[j->seq[p]];
    const Edge *e = &j->out[j->width * (size_t)o], *end = e + j->width;
    for (; e < end && e->op != NONE; e++)
      t = later(t, j->lag[e->lag] + j->cost[e->op] + w->tail[e->op]);
    w->tail[o] = t;
  }
}

/* The op at place i after move m. */
static uint32_t moved(const Walk *w, const Move *m, uint32_t i) {
  const uint32_t *seq = w->j->seq;
  if (i == m->to)
    return seq[m->from];
  return m->from < m->to ? seq[i >= m->from && i < m->to ? i + 1 : i]
                         : seq[i > m->to && i <= m->from ? i - 1 : i];
}

/* Does the data allow m? By current times, no dependence path leads from the moved op to an op that
 * it passes, or back. */
static bool allowed(const Walk *w, const Move *m) {
  const Just *j = w->j;
  uint32_t o = j->seq[m->from], to = j->seq[m->to];
  const Edge *e = &(m->from < m->to ? j->out : j->in)[j->width * (size_t)o], *end = e + j->width;
  for (; e < end && e->op != NONE; e++) {
    if (j->rank[e->op] == j->rank[o]) {
      if (m->from < m->to ? w->place[e->op] <= m->to : w->place[e->op] >= m->to)
        return false;
    } else if (m->from < m->to ? j->start[to] >= j->end[e->op] : j->start[e->op] >= j->end[to])
      return false;
  }
  return true;
}

/* Does the rank keep its bounds of stashes after m? */
static bool stashes_fit(const Walk *w, const Move *m) {
  const Just *j = w->j;
  uint32_t a = m->from < m->to ? m->from : m->to, b = m->from + m->to - a;
  uint32_t r = j->rank[j->seq[a]];
  for (uint32_t k = 0; k < j->sum.n; k++) {
    int64_t live = a > j->s->orders->rank_op0[r] ? j->sum.live[k][a - 1] : 0;
    for (uint32_t i = a; i <= b; i++) {
      uint32_t o = moved(w, m, i);
      int64_t before = live;
      live += j->sum.delta[k][o];
      if ((before > live ? before : live) + j->sum.over[k][o] > j->sum.most[k][r])
        return false;
    }
  }
  return true;
}

/* Sets m->length: the longest path through the ops that m moves, if nothing else changes. */
static void estimate(Walk *w, Move *m) {
  Just *j = w->j;
  uint32_t a = m->from < m->to ? m->from : m->to, b = m->from + m->to - a;
  uint32_t r = j->rank[j->seq[a]], last = j->s->orders->rank_op0[r] + j->ncomp[r];
  uint64_t at = a > j->s->orders->rank_op0[r] ? j->end[j->seq[a - 1]] : 0;
  uint64_t head[NEAR + 1];
  for (uint32_t i = a; i <= b; i++) {
    uint32_t o = moved(w, m, i);
    const Edge *e = &j->in[j->width * (size_t)o], *end = e + j->width;
    for (; e < end && e->op != NONE; e++)
      if (j->rank[e->op] != r)
        at = later(at, j->end[e->op] + j->lag[e->lag]);
    head[i - a] = at += j->cost[o];
  }
  at = b + 1 < last ? j->cost[j->seq[b + 1]] + w->tail[j->seq[b + 1]] : w->last[r];
  m->length = 0;
  for (uint32_t i = b + 1; i-- > a;) {
    uint32_t o = moved(w, m, i);
    const Edge *e = &j->out[j->width * (size_t)o], *end = e + j->width;
    for (; e < end && e->op != NONE; e++)
      if (j->rank[e->op] != r)
        at = later(at, j->lag[e->lag] + j->cost[e->op] + w->tail[e->op]);
    m->length = later(m->length, head[i - a] + at);
    at += j->cost[o];
  }
}

static bool breaks_taboo(Walk *w, const Move *m) {
  const uint32_t *seq = w->j->seq;
  uint32_t o = seq[m->from];
  for (uint32_t i = m->from; i != m->to;) {
    i += m->from < m->to ? 1 : UINT32_MAX;
    if (m->from < m->to ? is_taboo(w, seq[i], o) : is_taboo(w, o, seq[i]))
      return true;
  }
  return false;
}

/* Estimates a move, and keeps it in *best if it is the best so far. *found: moves equal to *best so
 * far; 0: none. */
static void consider(Walk *w, uint32_t from, uint32_t to, uint64_t least, Move *best,
                     uint32_t *found) {
  Move m = {.from = from, .to = to};
  if (!allowed(w, &m) || !stashes_fit(w, &m))
    return;
  estimate(w, &m);
  m.taboo = m.length >= least && breaks_taboo(w, &m);
  if (*found > 0 && (m.taboo != best->taboo ? m.taboo : m.length > best->length))
    return;
  bool equal = *found > 0 && m.taboo == best->taboo && m.length == best->length;
  *found = equal ? *found + 1 : 1;
  if (draw(w, *found) == 0)
    *best = m;
}

/* Finds the best move of one critical path. False: there is none. */
static bool choose(Walk *w, uint64_t least, Move *best) {
  Just *j = w->j;
  Sched *s = j->s;
  uint32_t r = NONE, found = 0;
  for (uint32_t k = 0, equal = 0; k < s->model->nrank; k++)
    if (j->ncomp[k] > 0 && j->deadline[k] + w->last[k] == w->length && draw(w, ++equal) == 0)
      r = k;
  uint32_t last = s->orders->rank_op0[r] + j->ncomp[r] - 1;
  bool ends = true; /* the block is the last */
  for (;;) {
    uint32_t first = last, from = NONE; /* first op of the block; op from which the path comes */
    for (;; first--) {
      uint32_t o = j->seq[first];
      bool here = first > s->orders->rank_op0[r] && j->end[j->seq[first - 1]] == j->start[o];
      const Edge *e = &j->in[j->width * (size_t)o], *end = e + j->width;
      for (; e < end && e->op != NONE; e++)
        if (j->rank[e->op] != r && j->end[e->op] + j->lag[e->lag] == j->start[o] &&
            (!here || draw(w, 2) == 0))
          from = e->op;
      if (from != NONE || !here)
        break;
    }
    for (uint32_t i = 1; i <= NEAR && i <= last - first; i++) {
      if (!ends)
        consider(w, last - i, last, least, best, &found);
      if (from != NONE)
        consider(w, first + i, first, least, best, &found);
    }
    if (from == NONE)
      return found > 0;
    r = j->rank[from], last = w->place[from], ends = false;
  }
}

static void make(Walk *w, const Move *m) {
  Just *j = w->j;
  uint32_t a = m->from < m->to ? m->from : m->to, b = m->from + m->to - a, o = j->seq[m->from];
  if (m->from < m->to)
    memmove(&j->seq[a], &j->seq[a + 1], (b - a) * sizeof *j->seq);
  else
    memmove(&j->seq[a + 1], &j->seq[a], (b - a) * sizeof *j->seq);
  j->seq[m->to] = o;
  uint32_t first = j->s->orders->rank_op0[j->rank[o]];
  for (uint32_t i = a; i <= b; i++) {
    w->place[j->seq[i]] = i;
    for (uint32_t k = 0; k < j->sum.n; k++)
      j->sum.live[k][i] = (i > first ? j->sum.live[k][i - 1] : 0) + j->sum.delta[k][j->seq[i]];
  }
}

bool critical_moves(Just *j, Within what, uint32_t steps, uint64_t seed) {
  Sched *s = j->s;
  Walk w = {.j = j, .tail = j->key, .place = j->list, .last = j->after, .random = seed};
  for (uint32_t i = 0; i < 1 << PAIR_BITS; i++)
    w.pair[i].before = w.pair[i].after = NONE;
  for (uint32_t r = 0; r < s->model->nrank; r++)
    for (uint32_t i = s->orders->rank_op0[r]; i < s->orders->rank_op0[r] + j->ncomp[r]; i++) {
      w.place[j->seq[i]] = i;
      for (uint32_t k = 0; k < j->sum.n; k++)
        j->sum.live[k][i] = (i > s->orders->rank_op0[r] ? j->sum.live[k][i - 1] : 0) +
                            j->sum.delta[k][j->seq[i]];
    }
  uint64_t least = UINT64_MAX;
  for (w.step = 0; w.step < steps; w.step++) {
    measure(&w, what);
    least = w.length < least ? w.length : least;
    Move m;
    if (!choose(&w, least, &m))
      return true;
    uint32_t o = j->seq[m.from];
    for (uint32_t i = m.from; i != m.to;) {
      i += m.from < m.to ? 1 : UINT32_MAX;
      if (m.from < m.to)
        forbid(&w, o, j->seq[i]);
      else
        forbid(&w, j->seq[i], o);
    }
    make(&w, &m);
    BUG_IF(!just_play(j)); /* the data allows m */
    if (!just_judge(j))
      return false;
  }
  return true;
}
