/* SPDX-License-Identifier: MIT
 * Finds the edges between stages, the rows that run each microbatch, and the stages that share
 * weights. Part of expand. Requires the rows of the stage table (place.c). Ensures nin, nout, prev,
 * next, tied and tie of every row, the ties, and Model.graph if chains of rows do not suffice.
 * Cost: linear in edges and links, times microbatches. */
#include <inttypes.h>
#include <string.h>

#include "base.h"
#include "instance.h"
#include "graph.h"
#include "names.h"

uint32_t graph_xfer_link(const Sched *s, const Xfer *x) {
  const Op *a = &s->orders->op[x->from];
  const Op *b = &s->orders->op[x->to];
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
  for (size_t i = 0; s->model->graph && i < (size_t)s->model->nedge * s->model->nmb; i++)
    nmb[s->model->graph->link_at[i]]++;
  for (uint32_t i = 0; !s->model->graph && i < s->model->nstage; i++)
    nmb[i] = s->model->stage[i].nmb;
  return nmb;
}

uint64_t row_inputs_bytes(const Sched *s, uint32_t row) {
  uint64_t at = 0, end = 0;
  for (uint32_t k = 0; k < s->model->stage[row].nin; k++) {
    const PipeEdge *e = s->model->graph ? &s->model->graph->edge[input_edge(s, row, true, k)]
                                        : NULL;
    /* any row of the stage */
    const PipeStage *from = &s->model->stage[e ? e->from : s->model->stage[row].prev];
    end = at + (e && e->skip ? from->edge_bytes : from->boundary_bytes);
    at = round64(end);
  }
  return end;
}

PipeGraph sched_graph(const Sched *s) {
  const struct StageGraph *g = s->model->graph;
  return (PipeGraph){s->model->stage, g ? g->edge : NULL, g ? g->row : NULL,
                     s->model->nmb,   s->model->slices,   s->sides->row};
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

static bool add_clause(Instance *x, const Clause *c, Edges *edges) {
  Sched *s = x->s;
  int64_t lo = 0, hi = 1, step = 1, a, b;
  if (c->var && !eval_range(s, &c->range, &lo, &hi, &step))
    return false;
  for (int64_t i = lo; step > 0 ? i < hi : i > hi;) {
    if (c->var)
      s->eval.env[c->slot] = i;
    if (!eval(s, c->value, &a) || !eval(s, c->to, &b))
      return false;
    if (a < 0 || b < 0 || a >= s->model->nmodel || b >= s->model->nmodel)
      return bad_edge(s, c, a, b,
                      arena_printf(s->arena, "the stages are 0 to %u", s->model->nmodel - 1), NULL);
    if (a >= b)
      return bad_edge(s, c, a, b, "an edge goes to a later stage",
                      "number the stages in the order of their forwards");
    *vec_push(s->arena, edges) = (PipeEdge){.from = (uint32_t)a, .to = (uint32_t)b, .skip = 1};
    x->model->nedge = edges->n;
    const uint64_t most = (uint64_t)s->model->nmodel * (s->model->nmodel - 1) / 2;
    if (edges->n > most + s->model->nmodel) { /* a few double edges have their own message */
      diag_error(s->diag, DIAG_LOOP, c->at,
                 "more edges than the %" PRIu64
                 " that %u stages can have; a bound of this range is wrong",
                 most, s->model->nmodel);
      return false;
    }
    if ((edges->n & (edges->n - 1)) == 0 && !fits(s, c))
      return false;
    if (__builtin_add_overflow(i, step, &i))
      break;
  }
  return true;
}

static uint32_t *grouped(Sched *s, const Edges *e, uint32_t **first, bool by_to) {
  uint32_t *key = arena_alloc(s->arena, e->n * sizeof *key);
  for (uint32_t i = 0; i < e->n; i++)
    key[i] = by_to ? e->at[i].to : e->at[i].from;
  return group_by(s->arena, key, e->n, s->model->nmodel, first);
}

/* Returns rows of e, grouped by stage: the edge of the chain first, then by the other stage. Sorts
 * stably: by the other stage first, then by stage. */
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

/* Finds the edges of the model, sorted by `from`. */
static bool find_edges(Instance *x, Edges *edges) {
  Sched *s = x->s;
  bool dag = s->model->pipe[0].clause->dag;
  const Clause *c0 = NULL;
  for (uint32_t m = 0; !dag && m + 1 < s->model->nmodel; m++)
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
  for (uint32_t m = 0; m < s->model->nmodel; m++)
    for (uint32_t i = first[m]; i < first[m + 1]; i++) {
      e[i] = edges->at[order[i]];
      e[i].out = i - first[m];
      if (i > first[m] && !e[first[m]].skip && e[i].to == e[first[m]].to)
        return bad_edge(s, c0, e[i].from, e[i].to, "the chain of stages already has this edge",
                        "leave the edge out, or write 'dag' before 'stages' for no chain");
      if (i > first[m] && e[i].to == e[i - 1].to)
        return bad_edge(s, c0, e[i].from, e[i].to, "given twice", NULL);
    }
  edges->at = e;
  return true;
}

/* ---- links ---- */

/* Makes one link for each pair of rows that an edge joins for some microbatch. To find the link of
 * a pair again, each row at the end of the edge with more rows has a list of its links; the list is
 * as long as the row has partners. */
static void find_links(Sched *s, struct StageGraph *g) {
  VEC(Link) link = {0};
  VEC(uint32_t) next = {0}; /* [nlink] 1 + the next link of the list */
  /* 1 + the first link of a row's list */
  uint32_t *last = NEW_ARRAY(s->arena, uint32_t, s->model->nstage);
  uint32_t *nrow = NEW_ARRAY(s->arena, uint32_t, s->model->nmodel);
  for (uint32_t i = 0; i < s->model->nstage; i++)
    nrow[s->model->stage[i].model]++;
  g->link_at = arena_alloc(s->arena, (size_t)g->nedge * s->model->nmb * sizeof *g->link_at + 1);
  for (uint32_t e = 0; e < g->nedge; e++) {
    uint32_t begin = link.n, a = g->edge[e].from, b = g->edge[e].to;
    bool by_to = nrow[b] > nrow[a];
    for (uint32_t mb = 0; mb < s->model->nmb; mb++) {
      uint32_t from = g->row[(size_t)a * s->model->nmb + mb],
               to = g->row[(size_t)b * s->model->nmb + mb];
      uint32_t *list = &last[by_to ? to : from], i = *list;
      while (i > begin && (link.at[i - 1].from != from || link.at[i - 1].to != to))
        i = next.at[i - 1];
      if (i <= begin) {
        *vec_push(s->arena, &next) = *list;
        *vec_push(s->arena, &link) = (Link){from, to, e};
        i = *list = link.n;
      }
      g->link_at[(size_t)e * s->model->nmb + mb] = i - 1;
    }
  }
  g->link = link.at, g->nlink = link.n;
}

static uint32_t *links_by(Sched *s, const struct StageGraph *g, uint32_t **first, bool to) {
  uint32_t *key = arena_alloc(s->arena, g->nlink * sizeof *key);
  for (uint32_t i = 0; i < g->nlink; i++)
    key[i] = to ? g->link[i].to : g->link[i].from;
  return group_by(s->arena, key, g->nlink, s->model->nstage, first);
}

/* Makes Model.graph from the edges, ordered by `from`, and row, the rows that run each stage and
 * microbatch ([nmodel * nmb]). Ensures nin, nout, prev and next of every row. */
static void join_graph(Sched *s, Model *model, const Edges *edges, uint32_t *row) {
  struct StageGraph *g = model->graph = NEW(s->arena, struct StageGraph);
  g->edge = edges->at, g->nedge = edges->n, g->row = row;
  g->in_edge = sorted(s, edges, &g->in0, true);
  g->out0 = NEW_ARRAY(s->arena, uint32_t, (size_t)s->model->nmodel + 1);
  for (uint32_t e = 0; e < g->nedge; e++)
    g->out0[g->edge[e].from + 1]++;
  for (uint32_t m = 0; m < s->model->nmodel; m++) {
    g->out0[m + 1] += g->out0[m];
    for (uint32_t k = g->in0[m]; k < g->in0[m + 1]; k++)
      g->edge[g->in_edge[k]].in = k - g->in0[m];
  }
  find_links(s, g);
  g->out_link = links_by(s, g, &g->out_link0, false);
  g->in_link = links_by(s, g, &g->in_link0, true);
  for (uint32_t i = 0; i < s->model->nstage; i++) {
    PipeStage *st = &s->model->stage[i];
    uint32_t nin = row_links(s, i, false), nout = row_links(s, i, true);
    st->nin = g->in0[st->model + 1] - g->in0[st->model];
    st->nout = g->out0[st->model + 1] - g->out0[st->model];
    st->prev = nin == 0 ? NONE : nin == 1 ? g->link[row_link(s, i, false, 0)].from : PIPE_MANY;
    st->next = nout == 0 ? NONE : nout == 1 ? g->link[row_link(s, i, true, 0)].to : PIPE_MANY;
  }
}

bool find_graph(Instance *x) {
  Sched *s = x->s;
  bool dealt = s->model->nstage > s->model->npipe * s->model->nmodel,
       edges_given = s->model->pipe[0].clause->dag;
  for (uint32_t i = 0; i < x->clauses.n; i++)
    edges_given |= x->clauses.at[i].clause->kind == CL_EDGE;
  if (!dealt && !edges_given)
    return true;
  Edges edges = {0};
  if (!find_edges(x, &edges))
    return false;
  x->model->nedge = edges.n;
  if (!fits(s, s->model->pipe[0].clause))
    return false;
  uint32_t *row = s->model->row_of;
  if (!row) { /* every pipe has one row for each stage */
    row = arena_alloc(s->arena, (size_t)s->model->nmodel * s->model->nmb * sizeof *row);
    for (uint32_t k = 0; k < s->model->npipe; k++)
      for (uint32_t m = 0; m < s->model->nmodel; m++)
        for (uint32_t mb = s->model->pipe[k].mb0;
             mb < s->model->pipe[k].mb0 + s->model->pipe[k].nmb; mb++)
          row[(size_t)m * s->model->nmb + mb] = s->model->pipe[k].first + m;
  }
  join_graph(s, x->model, &edges, row);
  return true;
}

/* ---- shared weights ---- */

static bool tie_clause(Sched *s, Model *model, const Clause *c, uint32_t *group) {
  uint32_t n = 0;
  for (const Arg *a = c->args; a; a = a->next, n++) {
    int64_t v;
    if (!eval(s, a->value, &v))
      return false;
    if (v < 0 || v >= s->model->nmodel) {
      diag_error(s->diag, DIAG_TIE, a->value->at,
                 "stage %lld does not exist; the stages are 0 to %u", (long long)v,
                 s->model->nmodel - 1);
      return false;
    }
    if (group[v]) {
      diag_error(s->diag, DIAG_TIE, a->value->at, "stage %lld is tied twice", (long long)v);
      return false;
    }
    group[v] = s->model->ntie + 1;
  }
  if (n < 2) {
    diag_error(s->diag, DIAG_TIE, c->at, "a tie needs two stages or more");
    return false;
  }
  model->ntie++;
  return true;
}

/* group: [nmodel] 1 + the tie of a stage; 0: none. Requires ntie > 0. */
static void join_ties(Sched *s, Model *model, const uint32_t *group) {
  model->tie_of = arena_alloc(s->arena, s->model->nstage * sizeof *s->model->tie_of);
  for (uint32_t i = 0; i < s->model->nstage; i++)
    model->tie_of[i] = group[s->model->stage[i].model] - 1;
  model->tie_row = group_by(s->arena, model->tie_of, model->nstage, model->ntie, &model->tie_row0);
  /* [nrank] 1 + the rank's first row of tie k */
  uint32_t *lead = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  for (uint32_t k = 0; k < s->model->ntie; k++) {
    uint32_t last = NONE, first = NONE, begin = s->model->tie_row0[k];
    for (uint32_t j = begin; j < s->model->tie_row0[k + 1]; j++)
      lead[s->model->stage[s->model->tie_row[j]].rank] = 0;
    for (uint32_t j = begin; j < s->model->tie_row0[k + 1]; j++) {
      uint32_t i = s->model->tie_row[j], *of = &lead[s->model->stage[i].rank];
      if (!*of) {
        *of = i + 1;
        first = first == NONE ? i : first;
        if (last != NONE)
          s->model->stage[last].tie = i;
        last = i;
      }
      s->model->stage[i].tied = *of - 1;
    }
    s->model->stage[last].tie = first;
  }
}

bool find_ties(Instance *x) {
  Sched *s = x->s;
  /* [nmodel] 1 + tie of the stage */
  uint32_t *group = NEW_ARRAY(s->arena, uint32_t, s->model->nmodel);
  for (uint32_t i = 0; i < s->model->nstage; i++)
    s->model->stage[i].tied = NONE, s->model->stage[i].tie = i;
  for (uint32_t i = 0; i < x->clauses.n; i++) {
    const Clause *c = x->clauses.at[i].clause;
    if (c->kind == CL_TIE && !tie_clause(s, x->model, c, group))
      return false;
  }
  if (s->model->forward)
    x->model->ntie = 0; /* no gradients */
  if (s->model->ntie > 0)
    join_ties(s, x->model, group);
  return true;
}
