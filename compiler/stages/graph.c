/* SPDX-License-Identifier: MIT
 * The edges between stages, the rows that run a microbatch, and the stages that share weights. Part of
 * expand; requires the rows of the stage table (place.c). Ensures nin, nout, prev, next, tied and tie of
 * every row, s->graph where chains of rows do not say it all, and the tie groups. Linear in edges and
 * links, times microbatches. */
#include <string.h>

#include "expand.h"
#include "graph.h"
#include "names.h"

uint32_t graph_xfer_link(const Sched *s, const Xfer *x) {
  const Op *a = &s->op[x->from];
  const Op *b = &s->op[x->to];
  uint32_t n = op_outputs(s, a);
  for (uint32_t k = 0; k + 1 < n; k++) {
    uint32_t i = output_link(s, a, k);
    if ((a->kind == PIPE_F ? link_at(s, i).to : link_at(s, i).from) == b->stage)
      return i;
  }
  return output_link(s, a, n - 1);
}

uint32_t *link_nmb(Sched *s) {
  uint32_t *nmb = NEW_ARRAY(s->arena, uint32_t, nlinks(s));
  for (size_t i = 0; s->graph && i < (size_t)s->nedge * s->nmb; i++)
    nmb[s->graph->link_at[i]]++;
  for (uint32_t i = 0; !s->graph && i < s->nstage; i++)
    nmb[i] = s->stage[i].nmb;
  return nmb;
}

uint32_t *slot_at(const Sched *s, PipeInstr *c, bool input, uint32_t k) {
  const PipeStage *st = &s->stage[c->stage];
  uint32_t n = pipe_fields(st, c->op, input), *one = input ? &c->in : &c->out;
  return n < 2 ? one : &s->slot_list[st->rank][*one + k];
}

uint64_t row_inputs_bytes(const Sched *s, uint32_t row) {
  uint64_t at = 0, end = 0;
  for (uint32_t k = 0; k < s->stage[row].nin; k++) {
    const PipeEdge *e = s->graph ? &s->graph->edge[input_edge(s, row, true, k)] : NULL;
    const PipeStage *from = &s->stage[e ? e->from : s->stage[row].prev]; /* any row of that stage */
    end = at + (e && e->skip ? from->edge_bytes : from->boundary_bytes);
    at = round64(end);
  }
  return end;
}

PipeGraph sched_graph(const Sched *s) {
  const struct StageGraph *g = s->graph;
  return (PipeGraph){s->stage, g ? g->edge : NULL, g ? g->row : NULL, s->nmb, s->slices, s->side};
}

/* ---- edges ---- */

static bool bad_edge(Sched *s, const Clause *c, int64_t a, int64_t b, const char *why,
                     const char *help) {
  diag_error(s->diag, DIAG_EDGE, c->at, "edge %lld -> %lld: %s", (long long)a, (long long)b, why);
  if (help)
    diag_help(s->diag, "%s", help);
  return false;
}

typedef VEC(PipeEdge) Edges;

static bool add_clause(Ex *x, const Clause *c, Edges *edges) {
  Sched *s = x->s;
  int64_t lo = 0, hi = 1, step = 1, a, b;
  if (c->var && !eval_range(s, &c->range, &lo, &hi, &step))
    return false;
  for (int64_t i = lo; step > 0 ? i < hi : i > hi;) {
    if (c->var)
      s->env[c->slot] = i;
    if (!eval(s, c->value, &a) || !eval(s, c->to, &b))
      return false;
    if (a < 0 || b < 0 || a >= s->nmodel || b >= s->nmodel)
      return bad_edge(s, c, a, b, arena_printf(s->arena, "the stages are 0 to %u", s->nmodel - 1),
                      NULL);
    if (a >= b)
      return bad_edge(
          s, c, a, b, "an edge goes to a later stage",
          "forwards go along it, gradients come back: number the stages in the order of the forwards");
    *vec_push(s->arena, edges) = (PipeEdge){.from = (uint32_t)a, .to = (uint32_t)b, .skip = 1};
    s->nedge = edges->n;
    if ((edges->n & (edges->n - 1)) == 0 && !fits(s, c))
      return false;
    if (__builtin_add_overflow(i, step, &i))
      break;
  }
  return true;
}

static uint32_t *grouped(Sched *s, const Edges *e, uint32_t **first, bool by_to) {
  uint32_t n = s->nmodel, *order = arena_alloc(s->arena, (size_t)e->n * sizeof *order + 1);
  uint32_t *at = *first = NEW_ARRAY(s->arena, uint32_t, (size_t)n + 1);
  uint32_t *fill = NEW_ARRAY(s->arena, uint32_t, (size_t)n);
  for (uint32_t i = 0; i < e->n; i++)
    at[(by_to ? e->at[i].to : e->at[i].from) + 1]++;
  for (uint32_t m = 0; m < n; m++)
    at[m + 1] += at[m];
  for (uint32_t i = 0; i < e->n; i++) {
    uint32_t m = by_to ? e->at[i].to : e->at[i].from;
    order[at[m] + fill[m]++] = i;
  }
  return order;
}

/* The edges of a stage, that of the chain first, then by the other stage: a stable sort by it. */
static uint32_t *sorted(Sched *s, const Edges *e, uint32_t **first, bool by_to) {
  uint32_t *other0, *other = grouped(s, e, &other0, !by_to);
  Edges t = {0};
  uint32_t *id = arena_alloc(s->arena, (size_t)e->n * sizeof *id + 1), n = 0;
  for (int skip = 0; skip < 2; skip++)
    for (uint32_t i = 0; i < e->n; i++)
      if (e->at[other[i]].skip == (uint32_t)skip)
        *vec_push(s->arena, &t) = e->at[other[i]], id[n++] = other[i];
  uint32_t *order = grouped(s, &t, first, by_to);
  for (uint32_t i = 0; i < n; i++)
    order[i] = id[order[i]];
  return order;
}

/* The edges of the model in order, or none if they are a chain. */
static bool find_edges(Ex *x, Edges *edges) {
  Sched *s = x->s;
  bool dag = s->pipe[0].clause->dag;
  const Clause *c0 = NULL;
  for (uint32_t m = 0; !dag && m + 1 < s->nmodel; m++)
    *vec_push(s->arena, edges) = (PipeEdge){.from = m, .to = m + 1};
  for (uint32_t i = 0; i < x->clauses.n; i++) {
    const Clause *c = x->clauses.at[i].clause;
    if (c->kind != CL_EDGE)
      continue;
    c0 = c;
    if (!add_clause(x, c, edges))
      return false;
  }
  uint32_t *first, *order = sorted(s, edges, &first, false);
  PipeEdge *e = arena_alloc(s->arena, (size_t)edges->n * sizeof *e + 1);
  for (uint32_t m = 0; m < s->nmodel; m++)
    for (uint32_t i = first[m]; i < first[m + 1]; i++) {
      e[i] = edges->at[order[i]];
      e[i].out = i - first[m];
      if (i > first[m] && !e[first[m]].skip && e[i].to == e[first[m]].to)
        return bad_edge(s, c0, e[i].from, e[i].to, "the chain of stages has it already",
                        "leave it out, or write 'dag' before 'stages' for no chain at all");
      if (i > first[m] && e[i].to == e[i - 1].to)
        return bad_edge(s, c0, e[i].from, e[i].to, "it is given twice", NULL);
    }
  edges->at = e;
  return true;
}

/* ---- links ---- */

/* One link for each pair of rows that an edge joins for some microbatch. Those of an edge are found in
 * lists, one for each row of its end with more rows; a list is as long as the row has partners. */
static void find_links(Sched *s, struct StageGraph *g) {
  VEC(Link) link = {0};
  VEC(uint32_t) next = {0}; /* [nlink] link + 1 that is next in the list */
  uint32_t *last = NEW_ARRAY(s->arena, uint32_t,
                             s->nstage); /* link + 1 at which the list of a row begins */
  uint32_t *nrow = NEW_ARRAY(s->arena, uint32_t, s->nmodel);
  for (uint32_t i = 0; i < s->nstage; i++)
    nrow[s->stage[i].model]++;
  g->link_at = arena_alloc(s->arena, (size_t)g->nedge * s->nmb * sizeof *g->link_at + 1);
  for (uint32_t e = 0; e < g->nedge; e++) {
    uint32_t begin = link.n, a = g->edge[e].from, b = g->edge[e].to;
    bool by_to = nrow[b] > nrow[a];
    for (uint32_t mb = 0; mb < s->nmb; mb++) {
      uint32_t from = g->row[(size_t)a * s->nmb + mb], to = g->row[(size_t)b * s->nmb + mb];
      uint32_t *list = &last[by_to ? to : from], i = *list;
      while (i > begin && (link.at[i - 1].from != from || link.at[i - 1].to != to))
        i = next.at[i - 1];
      if (i <= begin) {
        *vec_push(s->arena, &next) = *list;
        *vec_push(s->arena, &link) = (Link){from, to, e};
        i = *list = link.n;
      }
      g->link_at[(size_t)e * s->nmb + mb] = i - 1;
    }
  }
  g->link = link.at, g->nlink = link.n;
}

static uint32_t *links_by(Sched *s, const struct StageGraph *g, uint32_t **first, bool to) {
  uint32_t *at = *first = NEW_ARRAY(s->arena, uint32_t, (size_t)s->nstage + 1);
  uint32_t *fill = NEW_ARRAY(s->arena, uint32_t, s->nstage);
  uint32_t *order = arena_alloc(s->arena, (size_t)g->nlink * sizeof *order + 1);
  for (uint32_t i = 0; i < g->nlink; i++)
    at[(to ? g->link[i].to : g->link[i].from) + 1]++;
  for (uint32_t r = 0; r < s->nstage; r++)
    at[r + 1] += at[r];
  for (uint32_t i = 0; i < g->nlink; i++) {
    uint32_t r = to ? g->link[i].to : g->link[i].from;
    order[at[r] + fill[r]++] = i;
  }
  return order;
}

bool find_graph(Ex *x) {
  Sched *s = x->s;
  bool dealt = s->nstage > s->npipe * s->nmodel, edges_given = s->pipe[0].clause->dag;
  for (uint32_t i = 0; i < x->clauses.n; i++)
    edges_given |= x->clauses.at[i].clause->kind == CL_EDGE;
  if (!dealt && !edges_given)
    return true;
  Edges edges = {0};
  if (!find_edges(x, &edges))
    return false;
  s->nedge = edges.n;
  if (!fits(s, s->pipe[0].clause))
    return false;
  uint32_t *row = s->row_of;
  if (!row) { /* every pipe has one row of each stage */
    row = arena_alloc(s->arena, (size_t)s->nmodel * s->nmb * sizeof *row);
    for (uint32_t k = 0; k < s->npipe; k++)
      for (uint32_t m = 0; m < s->nmodel; m++)
        for (uint32_t mb = s->pipe[k].mb0; mb < s->pipe[k].mb0 + s->pipe[k].nmb; mb++)
          row[(size_t)m * s->nmb + mb] = s->pipe[k].first + m;
  }
  join_graph(s, edges.at, edges.n, row);
  return true;
}

void join_graph(Sched *s, PipeEdge *edge, uint32_t nedge, uint32_t *row) {
  struct StageGraph *g = s->graph = NEW(s->arena, struct StageGraph);
  Edges edges = {.at = edge, .n = nedge};
  s->nedge = nedge;
  g->edge = edge, g->nedge = nedge, g->row = row;
  g->in_edge = sorted(s, &edges, &g->in0, true);
  g->out0 = NEW_ARRAY(s->arena, uint32_t, (size_t)s->nmodel + 1);
  for (uint32_t e = 0; e < g->nedge; e++)
    g->out0[g->edge[e].from + 1]++;
  for (uint32_t m = 0; m < s->nmodel; m++) {
    g->out0[m + 1] += g->out0[m];
    for (uint32_t k = g->in0[m]; k < g->in0[m + 1]; k++)
      g->edge[g->in_edge[k]].in = k - g->in0[m];
  }
  find_links(s, g);
  g->out_link = links_by(s, g, &g->out_link0, false);
  g->in_link = links_by(s, g, &g->in_link0, true);
  for (uint32_t i = 0; i < s->nstage; i++) {
    PipeStage *st = &s->stage[i];
    uint32_t nin = row_links(s, i, false), nout = row_links(s, i, true);
    st->nin = g->in0[st->model + 1] - g->in0[st->model];
    st->nout = g->out0[st->model + 1] - g->out0[st->model];
    st->prev = nin == 0 ? NONE : nin == 1 ? g->link[row_link(s, i, false, 0)].from : PIPE_MANY;
    st->next = nout == 0 ? NONE : nout == 1 ? g->link[row_link(s, i, true, 0)].to : PIPE_MANY;
  }
}

/* ---- shared weights ---- */

static bool tie_clause(Sched *s, const Clause *c, uint32_t *group) {
  uint32_t n = 0;
  for (const Arg *a = c->args; a; a = a->next, n++) {
    int64_t v;
    if (!eval(s, a->value, &v))
      return false;
    if (v < 0 || v >= s->nmodel) {
      diag_error(s->diag, DIAG_TIE, a->value->at,
                 "stage %lld does not exist; the stages are 0 to %u", (long long)v, s->nmodel - 1);
      return false;
    }
    if (group[v]) {
      diag_error(s->diag, DIAG_TIE, a->value->at, "stage %lld is tied twice", (long long)v);
      return false;
    }
    group[v] = s->ntie + 1;
  }
  if (n < 2) {
    diag_error(s->diag, DIAG_TIE, c->at, "weights are shared by two stages or more");
    return false;
  }
  s->ntie++;
  return true;
}

bool find_ties(Ex *x) {
  Sched *s = x->s;
  uint32_t *group = NEW_ARRAY(s->arena, uint32_t, s->nmodel); /* of a stage of the model, + 1 */
  for (uint32_t i = 0; i < s->nstage; i++)
    s->stage[i].tied = NONE, s->stage[i].tie = i;
  for (uint32_t i = 0; i < x->clauses.n; i++) {
    const Clause *c = x->clauses.at[i].clause;
    if (c->kind == CL_TIE && !tie_clause(s, c, group))
      return false;
  }
  if (s->forward)
    s->ntie = 0; /* there are no gradients */
  if (s->ntie > 0)
    join_ties(s, group);
  return true;
}

void join_ties(Sched *s, const uint32_t *group) {
  s->tie_of = arena_alloc(s->arena, s->nstage * sizeof *s->tie_of);
  s->tie_row0 = NEW_ARRAY(s->arena, uint32_t, s->ntie + 1);
  s->tie_row = arena_alloc(s->arena, s->nstage * sizeof *s->tie_row);
  uint32_t *fill = NEW_ARRAY(s->arena, uint32_t, s->ntie);
  for (uint32_t i = 0; i < s->nstage; i++) {
    uint32_t k = group[s->stage[i].model];
    s->tie_of[i] = k ? k - 1 : NONE;
    if (k)
      s->tie_row0[k]++;
  }
  for (uint32_t k = 0; k < s->ntie; k++)
    s->tie_row0[k + 1] += s->tie_row0[k];
  for (uint32_t i = 0; i < s->nstage; i++)
    if (s->tie_of[i] != NONE)
      s->tie_row[s->tie_row0[s->tie_of[i]] + fill[s->tie_of[i]]++] = i;
  uint32_t *lead = NEW_ARRAY(s->arena, uint32_t,
                             s->nrank); /* 1 + its first row of the group at hand */
  for (uint32_t k = 0; k < s->ntie; k++) {
    uint32_t last = NONE, first = NONE, begin = s->tie_row0[k];
    for (uint32_t j = begin; j < s->tie_row0[k + 1]; j++)
      lead[s->stage[s->tie_row[j]].rank] = 0;
    for (uint32_t j = begin; j < s->tie_row0[k + 1]; j++) {
      uint32_t i = s->tie_row[j], *of = &lead[s->stage[i].rank];
      if (!*of) {
        *of = i + 1;
        first = first == NONE ? i : first;
        if (last != NONE)
          s->stage[last].tie = i;
        last = i;
      }
      s->stage[i].tied = *of - 1;
    }
    s->stage[last].tie = first;
  }
}
