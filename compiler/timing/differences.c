/* SPDX-License-Identifier: MIT
 * Finds the least solution of a system of differences: longest paths in a graph with cycles
 * (Bellman 1958). Variables are taken in an order in which few arcs go back: the reverse of the
 * order in which a depth-first search leaves them. A round sees a value raised along a forward arc
 * at once. So there are as many rounds as a longest path has back arcs, and one more; for the lists
 * of clock_of_m.c this is a few per loop that the path passes. A cycle of positive weight is found
 * once each of its values was raised by the one before, not only after as many rounds as variables.
 * Cost of a round: linear in variables, and in the arcs of variables that were raised. */
#include "differences.h"

typedef struct Search {
  const Arc **arc;          /* by `from` */
  uint32_t n, *first, *pos; /* [n + 1] of arc, [n] place in the order */
  uint32_t *order;          /* [n] */
} Search;

static void sort_arcs(Arena *a, const Arcs *arcs, Search *x) {
  x->first = NEW_ARRAY(a, uint32_t, x->n + (size_t)2);
  x->arc = arena_alloc(a, arcs->n * sizeof *x->arc + 1);
  for (uint32_t i = 0; i < arcs->n; i++)
    x->first[arcs->at[i].from + 2]++;
  for (uint32_t v = 0; v < x->n; v++)
    x->first[v + 2] += x->first[v + 1];
  for (uint32_t i = 0; i < arcs->n; i++)
    x->arc[x->first[arcs->at[i].from + 1]++] = &arcs->at[i];
}

/* Places from the last on, as the search leaves variables. */
static void sort_variables(Arena *a, Search *x) {
  uint32_t *stack = arena_alloc(a, x->n * sizeof *stack + 1),
           *next = NEW_ARRAY(a, uint32_t, x->n + (size_t)1), left = x->n;
  bool *seen = NEW_ARRAY(a, bool, x->n + (size_t)1);
  x->pos = NEW_ARRAY(a, uint32_t, x->n + (size_t)1);
  x->order = NEW_ARRAY(a, uint32_t, x->n + (size_t)1);
  for (uint32_t root = x->n, depth = 0;
       root-- > 0;) { /* what is added first comes first where that is free */
    if (seen[root])
      continue;
    seen[root] = true, next[root] = x->first[root], stack[depth++] = root;
    while (depth > 0) {
      uint32_t v = stack[depth - 1];
      if (next[v] == x->first[v + 1]) {
        x->order[--left] = v, x->pos[v] = left;
        depth--;
        continue;
      }
      uint32_t to = x->arc[next[v]++]->to;
      if (!seen[to])
        seen[to] = true, next[to] = x->first[to], stack[depth++] = to;
    }
  }
}

/* Do arcs that raised values last close a circle? mark: [n] room. */
static bool circle(const Search *x, const Arc *const *via, uint32_t *mark) {
  for (uint32_t v = 0; v < x->n; v++)
    mark[v] = 0;
  for (uint32_t v = 0; v < x->n; v++) {
    uint32_t u = v;
    while (!mark[u] && via[u])
      mark[u] = v + 1, u = via[u]->from;
    if (via[u] && mark[u] == v + 1)
      return true;
  }
  return false;
}

bool least_values(Arena *a, const Arcs *arcs, uint32_t n, int64_t **value, Work *work) {
  Search x = {.n = n};
  int64_t *at = *value = NEW_ARRAY(a, int64_t, n + (size_t)1);
  const Arc **via = NEW_ARRAY(a, const Arc *, n + (size_t)1);
  bool *raised = NEW_ARRAY(a, bool, n + (size_t)1);
  sort_arcs(a, arcs, &x);
  sort_variables(a, &x);
  uint32_t *mark = arena_alloc(a, n * sizeof *mark + 1);
  for (uint32_t v = 0; v < n; v++)
    raised[v] = true;
  for (bool back = true; back;) {
    back = false;
    if (!work_take(work, arcs->n / 2 + (uint64_t)n, NO_SPAN))
      return false;
    for (uint32_t k = 0; k < n; k++) {
      uint32_t v = x.order[k];
      if (!raised[v])
        continue;
      raised[v] = false;
      for (uint32_t i = x.first[v]; i < x.first[v + 1]; i++) {
        const Arc *e = x.arc[i];
        if (at[v] + e->w <= at[e->to])
          continue;
        at[e->to] = at[v] + e->w, via[e->to] = e, raised[e->to] = true;
        back |= x.pos[e->to] <= k;
      }
    }
    if (back && circle(&x, via, mark))
      return false;
  }
  return true;
}
