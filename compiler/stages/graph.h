/* SPDX-License-Identifier: MIT
 * Finds the op that makes, or reads, a tensor of an op. A schedule whose pipes are chains, each
 * stage on one rank, has no tables: prev and next link the rows of a pipe. Other schedules (`edge`,
 * `dag`, a place that depends on the microbatch) have the tables of StageGraph. All passes use
 * these functions.
 *
 * An op has inputs 0, 1, ... and outputs 0, 1, ... The inputs of F are the edges that reach its
 * stage, its outputs the edges that leave it; for B and I the reverse. Both are in the order of
 * PipeEdge.in and .out. A link is an edge between two rows: it carries what one row sends to the
 * other. Its channels are 2 * link forward and 2 * link + 1 backward. Without tables, link i leads
 * from row i to its next row. */
#ifndef PIPEC_GRAPH_H
#define PIPEC_GRAPH_H

#include "pipec.h"

typedef struct Link {
  uint32_t from, to; /* rows */
  uint32_t edge;
} Link;

struct StageGraph {
  PipeEdge *edge; uint32_t nedge; /* by `from`, then `out` */
  uint32_t *out0;    /* [nmodel + 1] where the edges that leave a stage start in edge */
  uint32_t *in0;     /* [nmodel + 1] where the edges that reach a stage start in in_edge */
  uint32_t *in_edge; /* [nedge] rows of edge, sorted by `to`, then `in` */
  uint32_t *row;     /* [nmodel * nmb] the row that runs the stage for the microbatch */
  uint32_t *link_at; /* [nedge * nmb] the link that carries the tensor of an edge */
  Link *link; uint32_t nlink;
  /* [nstage + 1], [nlink] the links that leave a row, by edge, then `to` */
  uint32_t *out_link0, *out_link;
  uint32_t *in_link0, *in_link;   /* the links that reach a row, in the same form */
};

static inline uint32_t *op_at(const Sched *s, bool forward, uint32_t row, uint32_t mb) {
  return &(forward ? s->orders->at_f : s->orders->at_b)[(size_t)row * s->model->nmb + mb];
}

/* Does the op pass tensors to other stages? F, B and I do. */
static inline bool has_tensors(uint32_t op) { return op == PIPE_F || op == PIPE_B || op == PIPE_I; }

/* Does the row run this microbatch of its pipe? */
static inline bool runs_mb(const Sched *s, uint32_t row, uint32_t mb) {
  const Model *m = s->model;
  return !m->graph || m->graph->row[(size_t)m->stage[row].model * m->nmb + mb] == row;
}

static inline uint32_t op_inputs(const Sched *s, const Op *o) {
  const Model *m = s->model;
  return !has_tensors(o->kind) ? 0
         : o->kind == PIPE_F   ? m->stage[o->stage].nin
                               : m->stage[o->stage].nout;
}
static inline uint32_t op_outputs(const Sched *s, const Op *o) {
  const Model *m = s->model;
  return !has_tensors(o->kind) ? 0
         : o->kind == PIPE_F   ? m->stage[o->stage].nout
                               : m->stage[o->stage].nin;
}

/* The number of tensors that an op writes. F, B, I: their outputs. R: the outputs, which nothing
 * reads the second time. */
static inline uint32_t op_written(const Sched *s, const Op *o) {
  return o->kind == PIPE_R ? s->model->stage[o->stage].nout : op_outputs(s, o);
}

/* The edge of input k of a forward (else: of a backward) of this row. Requires tables. */
static inline uint32_t input_edge(const Sched *s, uint32_t row, bool forward, uint32_t k) {
  const Model *model = s->model;
  const struct StageGraph *g = model->graph;
  uint32_t m = model->stage[row].model;
  return forward ? g->in_edge[g->in0[m] + k] : g->out0[m] + k;
}

/* The link that carries output k of op o. */
static inline uint32_t output_link(const Sched *s, const Op *o, uint32_t k) {
  const Model *m = s->model;
  bool forward = o->kind == PIPE_F;
  if (!m->graph)
    return forward ? o->stage : m->stage[o->stage].prev;
  return m->graph->link_at[(size_t)input_edge(s, o->stage, !forward, k) * m->nmb + o->mb];
}

/* The link that carries input k of op o. */
static inline uint32_t input_link(const Sched *s, const Op *o, uint32_t k) {
  const Model *m = s->model;
  bool forward = o->kind == PIPE_F;
  if (!m->graph)
    return forward ? m->stage[o->stage].prev : o->stage;
  return m->graph->link_at[(size_t)input_edge(s, o->stage, forward, k) * m->nmb + o->mb];
}

static inline Link link_at(const Sched *s, uint32_t link) {
  const Model *m = s->model;
  return m->graph ? m->graph->link[link] : (Link){link, m->stage[link].next, NONE};
}

/* The number of links, unused ones included. */
static inline uint32_t nlinks(const Sched *s) {
  const Model *m = s->model;
  return m->graph ? m->graph->nlink : m->nstage;
}

/* The links that leave (out) or reach a row: their number, and the k-th of them. */
static inline uint32_t row_links(const Sched *s, uint32_t row, bool out) {
  const Model *m = s->model;
  const struct StageGraph *g = m->graph;
  if (!g)
    return (out ? m->stage[row].next : m->stage[row].prev) != NONE;
  const uint32_t *first = out ? g->out_link0 : g->in_link0;
  return first[row + 1] - first[row];
}
static inline uint32_t row_link(const Sched *s, uint32_t row, bool out, uint32_t k) {
  const Model *m = s->model;
  const struct StageGraph *g = m->graph;
  if (!g)
    return out ? row : m->stage[row].prev;
  return out ? g->out_link[g->out_link0[row] + k] : g->in_link[g->in_link0[row] + k];
}

static inline bool link_crosses(const Sched *s, Link l) {
  const Model *m = s->model;
  return l.to != NONE && m->stage[l.from].rank != m->stage[l.to].rank;
}
static inline bool link_skips(const Sched *s, Link l) {
  return l.edge != NONE && s->model->graph->edge[l.edge].skip;
}
static inline uint64_t link_bytes(const Sched *s, Link l) {
  const PipeStage *st = &s->model->stage[l.from];
  return link_skips(s, l) ? st->edge_bytes : st->boundary_bytes;
}

/* The time in which `edge` carries the output of a forward, or of a backward, of `row`. edge: NONE
 * without tables. */
static inline uint64_t edge_time(const Sched *s, uint32_t edge, uint32_t row, bool forward) {
  const Model *m = s->model;
  return edge == NONE ? send_time(&m->stage[row], forward ? PIPE_F : PIPE_B)
                      : m->graph->edge[edge].send[!forward];
}

/* The transfer time of input k of op o, and of its output k. */
static inline uint64_t input_time(const Sched *s, const Op *o, uint32_t k) {
  const Model *m = s->model;
  bool forward = o->kind == PIPE_F;
  if (!m->graph)
    return edge_time(s, NONE, forward ? m->stage[o->stage].prev : m->stage[o->stage].next, forward);
  return edge_time(s, input_edge(s, o->stage, forward, k), NONE, forward);
}
static inline uint64_t output_time(const Sched *s, const Op *o, uint32_t k) {
  const Model *m = s->model;
  bool forward = o->kind == PIPE_F;
  return edge_time(s, m->graph ? input_edge(s, o->stage, !forward, k) : NONE, o->stage, forward);
}

/* [nlinks] the number of microbatches whose tensors each link carries. */
uint32_t *link_nmb(Sched *s);

/* The index of the link among the inputs of row `to`, or the outputs of row `from`. */
static inline uint32_t link_in(const Sched *s, Link l) {
  const Model *m = s->model;
  return l.edge == NONE ? 0 : m->graph->edge[l.edge].in;
}
static inline uint32_t link_out(const Sched *s, Link l) {
  const Model *m = s->model;
  return l.edge == NONE ? 0 : m->graph->edge[l.edge].out;
}

/* The link of a transfer between two ops. */
uint32_t graph_xfer_link(const Sched *s, const Xfer *x);
static inline uint32_t xfer_link(const Sched *s, const Xfer *x) {
  return s->model->graph ? graph_xfer_link(s, x) : output_link(s, &s->orders->op[x->from], 0);
}

/* The bytes of all inputs of a forward of the row, each rounded up to a multiple of 64. */
uint64_t row_inputs_bytes(const Sched *s, uint32_t row);

PipeGraph sched_graph(const Sched *s);

#endif
