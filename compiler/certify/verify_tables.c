/* SPDX-License-Identifier: MIT
 * Our own mistakes in the tables that say which ranks hold which stages, who meets whom and what is
 * shared; part of verify.c. Takes nothing from the passes that made them. Linear in rows, edges and
 * (stage, mb) cells, but that each circle is walked from each of its rows. */
#include "verify.h"

/* Edges: forward, in order, none twice; `in` and `out` number those of a stage, that of the chain first. */
static void verify_edges(VerifyEdges *v, Arena *a) {
  const PipeProgram *p = v->p;
  BUG_IF((p->edge == NULL) != (p->row == NULL) || (!p->edge && p->nedge));
  if (!p->edge)
    return;
  uint32_t *out0 = NEW_ARRAY(a, uint32_t, (size_t)p->nmodel + 1),
           *in0 = NEW_ARRAY(a, uint32_t, (size_t)p->nmodel + 1);
  uint32_t *in_edge = arena_alloc(a, p->nedge * sizeof *in_edge + 1);
  for (uint32_t e = 0; e < p->nedge; e++) {
    const PipeEdge *g = &p->edge[e], *before = e > 0 ? g - 1 : NULL;
    BUG_IF(g->from >= g->to || g->to >= p->nmodel || g->skip > 1 ||
           (!g->skip && g->to != g->from + 1));
    BUG_IF(before && (before->from > g->from || (before->from == g->from && before->skip &&
                                                 (!g->skip || before->to >= g->to))));
    BUG_IF(before && before->from == g->from && before->to == g->to);
    out0[g->from + 1]++, in0[g->to + 1]++;
  }
  for (uint32_t m = 0; m < p->nmodel; m++)
    out0[m + 1] += out0[m], in0[m + 1] += in0[m];
  for (uint32_t e = 0; e < p->nedge; e++)
    in_edge[e] = NONE;
  for (uint32_t e = 0; e < p->nedge; e++) {
    const PipeEdge *g = &p->edge[e];
    BUG_IF(g->out != e - out0[g->from] || g->in >= in0[g->to + 1] - in0[g->to]);
    BUG_IF(in_edge[in0[g->to] + g->in] != NONE);
    in_edge[in0[g->to] + g->in] = e;
  }
  for (uint32_t m = 0; m < p->nmodel; m++)
    for (uint32_t k = in0[m] + 1; k < in0[m + 1]; k++) {
      const PipeEdge *x = &p->edge[in_edge[k - 1]], *y = &p->edge[in_edge[k]];
      BUG_IF(!y->skip || (x->skip && x->from >= y->from));
    }
  v->out0 = out0, v->in0 = in0, v->in_edge = in_edge;
}

/* Shared links, in order, each used; by ranks that have something to send each other. */
static void verify_shares(const PipeProgram *p, Arena *a) {
  uint8_t *used = NEW_ARRAY(a, uint8_t, p->nlink);
  uint32_t nused = 0;
  BUG_IF((p->share == NULL) != (p->nshare == 0) || p->nlink > p->nshare);
  for (uint32_t i = 0; i < p->nshare; i++) {
    const PipeShare *x = &p->share[i], *y = x - 1;
    BUG_IF(x->from >= p->nrank || x->to >= p->nrank || x->from == x->to || x->link >= p->nlink);
    BUG_IF(i > 0 &&
           (y->from > x->from ||
            (y->from == x->from && (y->to > x->to || (y->to == x->to && y->link >= x->link)))));
    nused += !used[x->link];
    used[x->link] = 1;
  }
  BUG_IF(nused != p->nlink);
}

/* Rows that share weights, on each rank one circle with those of other ranks. */
static void verify_ties(const PipeProgram *p, Arena *a) {
  uint32_t *seen = NEW_ARRAY(a, uint32_t, p->nstage), *on = NEW_ARRAY(a, uint32_t, p->nrank);
  uint8_t *tied = NEW_ARRAY(a, uint8_t, p->nmodel);
  for (uint32_t i = 0; i < p->nstage; i++)
    BUG_IF(p->stage[i].tie >= p->nstage);
  for (uint32_t i = 0; i < p->nstage; i++) {
    const PipeStage *st = &p->stage[i];
    tied[st->model] |= st->tied == NONE ? 1 : 2;
    BUG_IF(tied[st->model] == 3);
    BUG_IF(st->tied == NONE && (st->tied_bytes || st->time[PIPE_TIE]));
    BUG_IF(st->tied_bytes > st->grad_bytes);
    if (st->tied == NONE)
      continue;
    const PipeStage *lead = &p->stage[st->tied];
    BUG_IF(st->tied > i || lead->tied != st->tied || lead->rank != st->rank);
    BUG_IF(lead->tied_bytes != st->tied_bytes || lead->time[PIPE_TIE] != st->time[PIPE_TIE]);
    uint32_t q = i;
    for (; st->tied == i && seen[q] != i + 1; q = p->stage[q].tie) {
      seen[q] = i + 1;
      BUG_IF(p->stage[q].tied != q || on[p->stage[q].rank] == i + 1);
      BUG_IF(p->stage[q].tied_bytes != st->tied_bytes);
      on[p->stage[q].rank] = i + 1;
    }
    BUG_IF(q != i);
  }
}

static void verify_stages(const VerifyEdges *v, Arena *a) {
  const PipeProgram *p = v->p;
  uint32_t *nchunk = NEW_ARRAY(a, uint32_t, p->nrank), *most = NEW_ARRAY(a, uint32_t, p->nrank);
  uint32_t nfirst = 0;
  BUG_IF(p->nmodel == 0 || p->nmodel > p->nstage);
  for (uint32_t i = 0; i < p->nstage; i++)
    BUG_IF(p->stage[i].rank >= p->nrank || p->stage[i].model >= p->nmodel ||
           (p->nstate < 32 && p->stage[i].states >> p->nstate));
  for (uint32_t i = 0; i < p->nstage; i++) {
    const PipeStage *st = &p->stage[i];
    BUG_IF(!p->row && st->chunk != nchunk[st->rank]);
    nchunk[st->rank]++;
    most[st->rank] = st->chunk > most[st->rank] ? st->chunk : most[st->rank];
    nfirst += st->prev == NONE;
    BUG_IF(st->mb0 % p->slices != 0 || st->nmb % p->slices != 0);
    BUG_IF(st->nmb == 0 || st->mb0 + (uint64_t)st->nmb > p->nmb);
    if (!p->edge) {
      BUG_IF(st->next != NONE && (st->next >= p->nstage || p->stage[st->next].prev != i));
      BUG_IF(st->prev != NONE && (st->prev >= p->nstage || p->stage[st->prev].next != i));
      BUG_IF((st->prev == NONE) != (st->model == 0) ||
             (st->next == NONE) != (st->model + 1 == p->nmodel));
      BUG_IF(st->next != NONE &&
             (p->stage[st->next].model != st->model + 1 || p->stage[st->next].mb0 != st->mb0 ||
              p->stage[st->next].nmb != st->nmb));
      BUG_IF(st->nin != (st->prev != NONE) || st->nout != (st->next != NONE) || st->edge_bytes);
    } else {
      uint32_t m = st->model;
      BUG_IF(st->nin != v->in0[m + 1] - v->in0[m] || st->nout != v->out0[m + 1] - v->out0[m]);
      BUG_IF((st->prev == NONE) != (st->nin == 0) || (st->next == NONE) != (st->nout == 0));
    }
    BUG_IF(!p->sized && (st->act_bytes || st->gout_bytes || st->boundary_bytes || st->work_bytes ||
                         st->weight_bytes || st->grad_bytes || st->opt_bytes || st->edge_bytes ||
                         st->tied_bytes));
  }
  BUG_IF(!p->edge && (uint64_t)nfirst * p->nmodel != p->nstage);
  /* Replicas: a circle of all rows of a stage of the model, on different ranks, that has every
   * microbatch once. */
  uint32_t *circle = NEW_ARRAY(a, uint32_t, p->nstage), *on = NEW_ARRAY(a, uint32_t, p->nrank);
  for (uint32_t i = 0; i < p->nstage; i++) {
    uint64_t mbs = 0;
    for (uint32_t q = i; circle[q] != i + 1; q = p->stage[q].replica) {
      circle[q] = i + 1;
      BUG_IF(p->stage[q].replica >= p->nstage || p->stage[q].model != p->stage[i].model);
      BUG_IF(on[p->stage[q].rank] == i + 1);
      on[p->stage[q].rank] = i + 1;
      mbs += p->row ? 0 : p->stage[q].nmb;
    }
    BUG_IF(!p->row && mbs != p->nmb);
  }
  for (size_t i = 0; p->row && i < (size_t)p->nmodel * p->nmb; i++) {
    uint32_t row = p->row[i], mb = (uint32_t)(i % p->nmb);
    BUG_IF(row >= p->nstage || p->stage[row].model != i / p->nmb || !verify_runs(p, row, mb));
    BUG_IF(mb % p->slices &&
           p->row[i - 1] != row); /* slices read what those before them left there */
    /* All stages of a microbatch are of one pipe. */
    BUG_IF(p->stage[row].mb0 != p->stage[p->row[mb]].mb0 ||
           p->stage[row].nmb != p->stage[p->row[mb]].nmb);
  }
  for (uint32_t r = 0; r < p->nrank; r++)
    BUG_IF(nchunk[r] == 0 || most[r] + 1 != nchunk[r]);
  /* Chunks: pipe by pipe, stages ascending. */
  uint32_t *first = NEW_ARRAY(a, uint32_t, p->nrank), *at = NEW_ARRAY(a, uint32_t, p->nstage);
  for (uint32_t r = 0; r + 1 < p->nrank; r++)
    first[r + 1] = first[r] + nchunk[r];
  for (uint32_t i = 0; i < p->nstage; i++) {
    uint32_t *of = &at[first[p->stage[i].rank] + p->stage[i].chunk];
    BUG_IF(*of);
    *of = i + 1;
  }
  for (uint32_t i = 1; i < p->nstage; i++) {
    const PipeStage *x = &p->stage[at[i - 1] - 1], *y = &p->stage[at[i] - 1];
    BUG_IF(x->rank == y->rank && (x->mb0 > y->mb0 || (x->mb0 == y->mb0 && x->model >= y->model)));
  }
  verify_shares(p, a);
  verify_ties(p, a);
}

/* prev and next of a row with tables: the only row on that side, or that there are more. */
static void verify_neighbours(const VerifyEdges *v) {
  const PipeProgram *p = v->p;
  for (uint32_t i = 0; p->edge && i < p->nstage; i++)
    for (int down = 0; down < 2; down++) {
      const PipeStage *st = &p->stage[i];
      uint32_t n = down ? st->nout : st->nin, only = NONE;
      for (uint32_t mb = st->mb0; mb < st->mb0 + st->nmb; mb++)
        for (uint32_t k = 0; k < n && verify_runs(p, i, mb); k++) {
          uint32_t other = verify_passage(v, i, mb, down, k).other;
          only = k == 0 && (only == NONE || only == other) ? other : PIPE_MANY;
        }
      BUG_IF((down ? st->next : st->prev) != only);
    }
}

VerifyEdges verify_tables(const PipeProgram *p, Arena *a) {
  VerifyEdges v = {.p = p};
  verify_edges(&v, a);
  verify_stages(&v, a);
  verify_neighbours(&v);
  return v;
}
