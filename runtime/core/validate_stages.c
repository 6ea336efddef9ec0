/* SPDX-License-Identifier: MIT
 * Which ranks hold which stages, who meets whom and what is shared: the part of validate.c that reads the
 * stage table, the edges and the rows. Linear in rows, edges, and stages times microbatches. */
#include "validate.h"

#include <string.h>

/* Edges: forward, in order, none twice, those of a stage numbered at both ends. */
static PrStatus check_shares(Check *k) {
  const PipeProgram *p = k->p;
  for (uint32_t i = 0; i < p->nshare; i++) {
    const PipeShare *a = &p->share[i], *b = a - 1;
    bool above = i == 0 || b->from < a->from ||
                 (b->from == a->from && (b->to < a->to || (b->to == a->to && b->link < a->link)));
    if (!above || a->from >= p->nrank || a->to >= p->nrank || a->from == a->to ||
        a->link >= p->nlink)
      return FAIL(k->run, "program: shared link %u from rank %u to %u: out of range or order",
                  a->link, a->from, a->to);
  }
  return PR_OK;
}

static PrStatus check_edges(Check *k) {
  const PipeProgram *p = k->p;
  for (uint32_t e = 0; e < p->nedge; e++) {
    const PipeEdge *g = &p->edge[e];
    if (g->from >= g->to || g->to >= p->nmodel || g->skip > 1 ||
        (e > 0 && (g[-1].from > g->from || (g[-1].from == g->from && g[-1].out >= g->out))))
      return FAIL(k->run, "program: edge %u from stage %u to %u: out of range or order", e, g->from,
                  g->to);
    k->out0[g->from + 1]++, k->in0[g->to + 1]++;
  }
  for (uint32_t m = 0; m < p->nmodel; m++)
    k->out0[m + 1] += k->out0[m], k->in0[m + 1] += k->in0[m];
  memset(k->in_edge, 0xff, p->nedge * sizeof *k->in_edge);
  for (uint32_t e = 0; e < p->nedge; e++) {
    const PipeEdge *g = &p->edge[e];
    uint32_t nin = k->in0[g->to + 1] - k->in0[g->to];
    if (g->out != e - k->out0[g->from] || g->in >= nin ||
        k->in_edge[k->in0[g->to] + g->in] != PIPE_NONE)
      return FAIL(k->run, "program: edge %u is output %u of stage %u and input %u of stage %u", e,
                  g->out, g->from, g->in, g->to);
    k->in_edge[k->in0[g->to] + g->in] = e;
  }
  for (uint32_t m = 0; p->edge && m < p->nmodel; m++)
    for (uint32_t mb = 0; mb < p->nmb; mb++) {
      uint32_t row = p->row[(size_t)m * p->nmb + mb];
      if (row >= p->nstage || p->stage[row].model != m || !runs(p, row, mb))
        return FAIL(k->run, "program: stage %u, microbatch %u: run by row %u", m, mb, row);
      if (mb % pipe_slices(p) && p->row[(size_t)m * p->nmb + mb - 1] != row)
        return FAIL(k->run, "program: stage %u: slices of microbatch %u are run by rows %u and %u",
                    m, mb / p->slices, p->row[(size_t)m * p->nmb + mb - 1], row);
      k->left[row]++;
    }
  return PR_OK;
}

/* Rows that share weights: all rows of a stage or none; on each rank the first of them is for all, and
 * these are a circle. */
static PrStatus check_ties(Check *k) {
  const PipeProgram *p = k->p;
  uint32_t *circle = k->reduced,
           *several = k->tied; /* not in use yet: its first row, + 1; of that */
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s], *lead = g->tied < p->nstage ? &p->stage[g->tied] : NULL;
    bool none = g->tied == PIPE_NONE;
    if (none ? p->stage[g->model].tied != PIPE_NONE
             : !lead || g->tied > s || lead->tied != g->tied || lead->rank != g->rank ||
                   p->stage[g->model].tied == PIPE_NONE || g->tie >= p->nstage ||
                   lead->tied_bytes != g->tied_bytes)
      return FAIL(k->run, "program: stage %u is tied to %u and %u", s, g->tied, g->tie);
  }
  for (uint32_t s = 0; s < p->nstage; s++) {
    if (p->stage[s].tied != s || circle[s])
      continue;
    uint32_t q = s, next;
    do { /* rows that rise, and then the first again */
      const PipeStage *g = &p->stage[q];
      next = g->tie;
      if (g->tied != q || g->tied_bytes != p->stage[s].tied_bytes || circle[q] ||
          (next <= q && next != s))
        return FAIL(k->run, "program: the stages tied to stage %u are not a circle", s);
      circle[q] = s + 1;
    } while ((q = next) != s);
  }
  for (uint32_t s = 0; s < p->nstage; s++)
    if (p->stage[s].tied != PIPE_NONE) {
      uint32_t first = circle[p->stage[s].tied] - 1;
      several[first] |= p->stage[s].model != p->stage[first].model;
    }
  for (uint32_t s = 0; s < p->nstage; s++)
    if (circle[s] == s + 1 && !several[s])
      return FAIL(k->run, "program: stage %u is tied to no other", s);
  memset(k->reduced, 0, 2 * (size_t)p->nstage * sizeof *k->reduced);
  return PR_OK;
}

/* Replicas run the same stage of the model on different ranks, and each microbatch is one's. */
static PrStatus check_replicas(Check *k) {
  const PipeProgram *p = k->p;
  uint32_t *last =
      k->graded; /* not in use yet: 1 + last row looked at of a rank; nrank <= nstage */
  uint32_t nrow = 0;
  for (uint32_t m = 0; m < p->nmodel; m++) { /* row m is the first that runs stage m */
    if (p->stage[m].model != m)
      return FAIL(k->run, "program: stage %u runs stage %u of the model", m, p->stage[m].model);
    uint32_t s = m;
    uint64_t mbs = 0;
    do {
      const PipeStage *g = &p->stage[s];
      if (!p->row && g->mb0 != mbs)
        return FAIL(k->run, "program: stage %u has microbatches from %u on, expected %llu", s,
                    g->mb0, (unsigned long long)mbs);
      nrow++, mbs += g->nmb;
      if (g->replica >= p->nstage || p->stage[g->replica].model != m || nrow > p->nstage ||
          (g->replica <= s) != (g->replica == m))
        return FAIL(k->run, "program: the replicas of stage %u are not a circle of rising rows", m);
      uint32_t other = last[g->rank];
      if (other > 0 && p->stage[other - 1].model == m)
        return FAIL(k->run, "program: stages %u and %u are replicas on rank %u", other - 1, s,
                    g->rank);
      last[g->rank] = s + 1;
    } while ((s = p->stage[s].replica) != m);
    if (!p->row && mbs != p->nmb)
      return FAIL(k->run, "program: stage %u has %llu microbatches in all, expected %u", m,
                  (unsigned long long)mbs, p->nmb);
  }
  if (nrow != p->nstage)
    return FAIL(k->run, "program: %u stages are replicas of none", p->nstage - nrow);
  memset(last, 0, p->nrank * sizeof *last);
  return PR_OK;
}

PrStatus pr_check_stages(Check *k) {
  const PipeProgram *p = k->p;
  PrStatus st = check_shares(k);
  if (!st)
    st = check_edges(k);
  if (st)
    return st;
  uint32_t nchain = 0;
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    if (g->rank >= p->nrank)
      return FAIL(k->run, "program: stage %u is on rank %u of %u", s, g->rank, p->nrank);
    bool chain = !p->edge;
    if (chain && ((g->prev != PIPE_NONE && (g->prev >= p->nstage || p->stage[g->prev].next != s)) ||
                  (g->next != PIPE_NONE && (g->next >= p->nstage || p->stage[g->next].prev != s))))
      return FAIL(k->run, "program: stage %u is not linked with its neighbours", s);
    if (g->nmb == 0 || g->mb0 >= p->nmb || g->nmb > p->nmb - g->mb0)
      return FAIL(k->run, "program: stage %u has microbatches %u + %u of %u", s, g->mb0, g->nmb,
                  p->nmb);
    if (g->mb0 % pipe_slices(p) || g->nmb % pipe_slices(p))
      return FAIL(k->run, "program: stage %u has units %u + %u, with %u slices", s, g->mb0, g->nmb,
                  p->slices);
    bool wraps = p->nunit_time != pipe_slices(p) && g->nmb > p->nunit_time;
    if (p->unit_time ? p->nunit_time == 0 || wraps : p->nunit_time != 0)
      return FAIL(k->run, "program: stage %u has %u units, and %u have times", s, g->nmb,
                  p->nunit_time);
    const PipeStage *h = g->next == PIPE_NONE || !chain ? NULL : &p->stage[g->next];
    if (h && (h->mb0 != g->mb0 || h->nmb != g->nmb || h->model != g->model + 1))
      return FAIL(k->run, "program: stages %u and %u are not of one pipe", s, g->next);
    if (g->model >= p->nmodel ||
        (chain && ((g->model == 0) != (g->prev == PIPE_NONE) || (g->model + 1 == p->nmodel) != !h)))
      return FAIL(k->run, "program: stage %u runs stage %u of %u, at the wrong end of a pipe", s,
                  g->model, p->nmodel);
    nchain += g->prev == PIPE_NONE;
    uint32_t nin = chain ? g->prev != PIPE_NONE : k->in0[g->model + 1] - k->in0[g->model],
             nout = chain ? g->next != PIPE_NONE : k->out0[g->model + 1] - k->out0[g->model];
    if (g->nin != nin || g->nout != nout || (!chain && k->left[s] == 0))
      return FAIL(k->run, "program: stage %u has %u inputs and %u outputs, expected %u and %u", s,
                  g->nin, g->nout, nin, nout);
    const uint64_t bytes[] = {g->act_bytes,    g->gout_bytes, g->boundary_bytes,
                              g->weight_bytes, g->grad_bytes, g->opt_bytes,
                              g->work_bytes,   g->edge_bytes, g->tied_bytes};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
      if (bytes[i] > (p->sized ? SIZE_LIMIT : 0))
        return FAIL(k->run, "program: stage %u has a size of %llu bytes", s,
                    (unsigned long long)bytes[i]);
  }
  if (!p->edge && (uint64_t)nchain * p->nmodel != p->nstage)
    return FAIL(k->run, "program: %u stages are not chains of %u", p->nstage, p->nmodel);
  if ((st = check_replicas(k)) || (st = check_ties(k)))
    return st;

  uint32_t *nchunk = k->graded; /* not in use yet; nrank <= nstage */
  for (uint32_t s = 0; s < p->nstage; s++)
    nchunk[p->stage[s].rank]++;
  uint32_t *first = k->reduced,
           *taken = k->tied; /* nor these: where a rank's chunks begin; who has one */
  for (uint32_t r = 0; r + 1 < p->nrank; r++)
    first[r + 1] = first[r] + nchunk[r];
  for (uint32_t s = 0; p->edge && s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    if (g->chunk >= nchunk[g->rank] || taken[first[g->rank] + g->chunk]++)
      return FAIL(k->run, "program: stage %u is chunk %u of the %u of rank %u, or not alone", s,
                  g->chunk, nchunk[g->rank], g->rank);
  }
  if (!p->edge)
    memset(nchunk, 0, p->nrank * sizeof *nchunk);
  for (uint32_t s = 0; !p->edge && s < p->nstage; s++)
    if (p->stage[s].chunk != nchunk[p->stage[s].rank]++)
      return FAIL(k->run, "program: stage %u is chunk %u of rank %u, expected %u", s,
                  p->stage[s].chunk, p->stage[s].rank, nchunk[p->stage[s].rank] - 1);
  for (uint32_t r = 0; r < p->nrank; r++)
    if (nchunk[r] == 0)
      return FAIL(k->run, "program: rank %u has no stage", r);
  memset(k->graded, 0, 3 * (size_t)p->nstage * sizeof *k->graded);
  return PR_OK;
}

PrStatus pr_check_outputs(PrRun *run) {
  const PipeProgram *p = run->p;
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    bool next = g->nout > 0 && !p->edge;
    for (uint32_t e = 0; e < p->nedge; e++) {
      bool here = p->edge[e].from == g->model;
      next = next || (here && !p->edge[e].skip);
      if (here && p->edge[e].skip && run->stage[s].size.edge == 0)
        return FAIL(run, "model: stage %u has an output for stage %u, of 0 bytes: PrSizes.edge", s,
                    p->edge[e].to);
    }
    if (next && run->stage[s].size.boundary == 0)
      return FAIL(run, "model: stage %u has an output for stage %u, of 0 bytes: PrSizes.boundary",
                  s, g->model + 1);
  }
  return PR_OK;
}
