/* SPDX-License-Identifier: MIT
 * The stage table: the part of the validator (validate.h) that checks the ranks of stages, their
 * neighbours, replicas and ties. Linear in rows, edges, and stages times microbatches. */
#include "validate_parts.h"

#include <stdlib.h>
#include <string.h>

/* Two zeroed arrays of [nstage], scratch of one function here; nrank and nmodel are at most
 * nstage. */
typedef struct Marks {
  uint32_t *a, *b;
} Marks;

static Marks marks(Check *k) {
  memset(k->mark, 0, 2 * (size_t)k->p->nstage * sizeof *k->mark);
  return (Marks){k->mark, k->mark + k->p->nstage};
}

/* Checks shared links: sorted by from, to, link, without duplicates; every link has a pair of
 * ranks. */
static PrStatus check_shares(Check *k) {
  const PipeProgram *p = k->p;
  if (p->nlink > p->nshare)
    FAIL(k, "program: %u links, of which %u are shared", p->nlink, p->nshare);
  uint8_t *used = calloc(p->nlink + (size_t)1, 1);
  if (!used)
    return NO_MEMORY(k);
  PrStatus st = PR_OK;
  uint32_t nused = 0;
  for (uint32_t i = 0; i < p->nshare; i++) {
    const PipeShare *s = &p->share[i], *above = i > 0 ? s - 1 : NULL;
    bool ascends = !above || above->from < s->from ||
                   (above->from == s->from &&
                    (above->to < s->to || (above->to == s->to && above->link < s->link)));
    if (!ascends || s->from >= p->nrank || s->to >= p->nrank || s->link >= p->nlink) {
      st = pr_refuse(k->text, k->room, PR_E_ARG,
                     "program: shared link %u from rank %u to %u: out of range or order", s->link,
                     s->from, s->to);
      break;
    }
    nused += !used[s->link];
    used[s->link] = 1;
  }
  free(used);
  if (!st && nused < p->nlink)
    FAIL(k, "program: no pair of ranks shares %u of %u links", p->nlink - nused, p->nlink);
  return st;
}

/* Checks edges: they go forward, each exists once, that of the chain is the first at both ends, and
 * their numbers at each end are 0, 1, ... Ensures in0, in_edge, out0. */
static PrStatus check_edges(Check *k) {
  const PipeProgram *p = k->p;
  for (uint32_t e = 0; e < p->nedge; e++) {
    const PipeEdge *g = &p->edge[e], *above = e > 0 && g[-1].from == g->from ? g - 1 : NULL;
    bool ascends = !above ? e == 0 || g[-1].from < g->from
                          : g->skip && (!above->skip || above->to < g->to) && above->to != g->to;
    if (g->from >= g->to || g->to >= p->nmodel || g->skip > 1 ||
        (!g->skip && g->to != g->from + 1) || !ascends)
      FAIL(k, "program: edge %u from stage %u to %u: out of range or order", e, g->from, g->to);
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
      FAIL(k, "program: edge %u is output %u of stage %u and input %u of stage %u", e, g->out,
           g->from, g->in, g->to);
    k->in_edge[k->in0[g->to] + g->in] = e;
  }
  for (uint32_t m = 0; m < p->nmodel; m++)
    for (uint32_t i = k->in0[m] + 1; i < k->in0[m + 1]; i++) {
      const PipeEdge *x = &p->edge[k->in_edge[i - 1]], *y = &p->edge[k->in_edge[i]];
      if (!y->skip || (x->skip && x->from >= y->from))
        FAIL(k, "program: inputs %u and %u of stage %u are out of order", x->in, y->in, m);
    }
  return PR_OK;
}

/* Checks the row that runs each stage of the model and microbatch: a microbatch stays in one pipe,
 * its slices in one row. Ensures left; requires valid fields of the rows. */
static PrStatus check_rows(Check *k) {
  const PipeProgram *p = k->p;
  for (uint32_t m = 0; p->row && m < p->nmodel; m++)
    for (uint32_t mb = 0; mb < p->nmb; mb++) {
      const uint32_t *at = &p->row[(size_t)m * p->nmb + mb], row = *at;
      if (row >= p->nstage || p->stage[row].model != m || !runs(p, row, mb))
        FAIL(k, "program: stage %u, microbatch %u: run by row %u", m, mb, row);
      if (mb % pipe_slices(p) && at[-1] != row)
        FAIL(k, "program: stage %u: slices of microbatch %u are run by rows %u and %u", m,
             mb / p->slices, at[-1], row);
      const PipeStage *g = &p->stage[row], *h = &p->stage[p->row[mb]];
      if (g->mb0 != h->mb0 || g->nmb != h->nmb)
        FAIL(k, "program: microbatch %u is in the pipes of rows %u and %u", mb, p->row[mb], row);
      k->left[row]++;
    }
  return PR_OK;
}

/* With an edge table: checks that prev and next are the only row on that side for all microbatches,
 * or PIPE_MANY. */
static PrStatus check_neighbours(Check *k) {
  const PipeProgram *p = k->p;
  for (uint32_t s = 0; p->edge && s < p->nstage; s++)
    for (int down = 0; down < 2; down++) {
      const PipeStage *g = &p->stage[s];
      uint32_t n = down ? g->nout : g->nin, only = PIPE_NONE, said = down ? g->next : g->prev;
      for (uint32_t mb = g->mb0; mb < g->mb0 + g->nmb; mb++)
        for (uint32_t i = 0; i < n && runs(p, s, mb); i++) {
          uint32_t other = passage(k, s, mb, down, i).other;
          only = i == 0 && (only == PIPE_NONE || only == other) ? other : PIPE_MANY;
        }
      if (said != only)
        FAIL(k, "program: stage %u: its neighbour is %u, expected %u", s, said, only);
    }
  return PR_OK;
}

/* Checks that replicas run one stage of the model on different ranks and share its microbatches. */
static PrStatus check_replicas(Check *k) {
  const PipeProgram *p = k->p;
  uint32_t *last = marks(k).a; /* by rank: 1 + last row seen there */
  uint32_t nrow = 0;
  for (uint32_t m = 0; m < p->nmodel; m++) { /* row m is the first that runs stage m */
    if (p->stage[m].model != m)
      FAIL(k, "program: stage %u runs stage %u of the model", m, p->stage[m].model);
    uint32_t s = m;
    uint64_t mbs = 0;
    do {
      const PipeStage *g = &p->stage[s];
      if (!p->row && g->mb0 != mbs)
        FAIL(k, "program: stage %u has microbatches from %u on, expected %llu", s, g->mb0,
             (unsigned long long)mbs);
      nrow++, mbs += g->nmb;
      if (g->replica >= p->nstage || p->stage[g->replica].model != m || nrow > p->nstage ||
          (g->replica <= s) != (g->replica == m))
        FAIL(k, "program: the replicas of stage %u are not a cycle of ascending rows", m);
      uint32_t other = last[g->rank];
      if (other > 0 && p->stage[other - 1].model == m)
        FAIL(k, "program: stages %u and %u are replicas on rank %u", other - 1, s, g->rank);
      last[g->rank] = s + 1;
    } while ((s = p->stage[s].replica) != m);
    if (!p->row && mbs != p->nmb)
      FAIL(k, "program: stage %u has %llu microbatches in all, expected %u", m,
           (unsigned long long)mbs, p->nmb);
  }
  if (nrow != p->nstage)
    FAIL(k, "program: %u stages are replicas of no stage", p->nstage - nrow);
  return PR_OK;
}

/* Checks ties: all rows of a stage of the model share weights with other stages, or none does. The
 * first tied row of each rank represents its other rows; these first rows form a cycle over
 * different ranks. */
static PrStatus check_ties(Check *k) {
  const PipeProgram *p = k->p;
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s], *lead = g->tied < p->nstage ? &p->stage[g->tied] : NULL;
    bool none = g->tied == PIPE_NONE, others = p->stage[g->model].tied != PIPE_NONE;
    if (none ? others || g->tied_bytes || g->time[PIPE_TIE]
             : !others || !lead || g->tied > s || lead->tied != g->tied || lead->rank != g->rank ||
                   g->tie >= p->nstage || lead->tied_bytes != g->tied_bytes ||
                   g->tied_bytes > g->grad_bytes || lead->time[PIPE_TIE] != g->time[PIPE_TIE])
      FAIL(k, "program: stage %u is tied to %u and %u", s, g->tied, g->tie);
  }
  Marks m = marks(k);
  /* 1 + the first row of its cycle; by rank: the same, of the last cycle seen there */
  uint32_t *circle = m.a, *on = m.b;
  for (uint32_t s = 0; s < p->nstage; s++) {
    if (p->stage[s].tied != s || circle[s])
      continue;
    uint32_t q = s, next;
    do { /* ascending rows, then the first again */
      const PipeStage *g = &p->stage[q];
      next = g->tie;
      if (g->tied != q || g->tied_bytes != p->stage[s].tied_bytes || circle[q] ||
          (next <= q && next != s) || on[g->rank] == s + 1)
        FAIL(k, "program: the stages tied to stage %u are not a cycle", s);
      circle[q] = on[g->rank] = s + 1;
    } while ((q = next) != s);
  }
  uint32_t *several = m.b;
  memset(several, 0, p->nstage * sizeof *several);
  for (uint32_t s = 0; s < p->nstage; s++)
    if (p->stage[s].tied != PIPE_NONE) {
      uint32_t first = circle[p->stage[s].tied] - 1;
      several[first] |= p->stage[s].model != p->stage[first].model;
    }
  for (uint32_t s = 0; s < p->nstage; s++)
    if (circle[s] == s + 1 && !several[s])
      FAIL(k, "program: stage %u is tied to no other stage", s);
  return PR_OK;
}

/* Checks that every rank has stages and that chunks number them, pipe by pipe, in model order. */
static PrStatus check_chunks(Check *k) {
  const PipeProgram *p = k->p;
  Marks m = marks(k);
  uint32_t *first = m.a, *at = m.b; /* [nrank] start of its chunks; [nstage] 1 + row of a chunk */
  for (uint32_t s = 0; s < p->nstage; s++)
    first[p->stage[s].rank]++;
  for (uint32_t r = 0, sum = 0; r < p->nrank; r++) {
    if (first[r] == 0)
      FAIL(k, "program: rank %u has no stage", r);
    sum += first[r];
    first[r] = sum - first[r];
  }
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    uint32_t n = (g->rank + 1 < p->nrank ? first[g->rank + 1] : p->nstage) - first[g->rank];
    if (g->chunk >= n || at[first[g->rank] + g->chunk])
      FAIL(k, "program: stage %u is chunk %u of the %u of rank %u, or not alone", s, g->chunk, n,
           g->rank);
    at[first[g->rank] + g->chunk] = s + 1;
  }
  for (uint32_t i = 1; i < p->nstage; i++) {
    const PipeStage *x = &p->stage[at[i - 1] - 1], *y = &p->stage[at[i] - 1];
    bool ascends = x->mb0 < y->mb0 || (x->mb0 == y->mb0 && x->model < y->model);
    if (x->rank == y->rank && !ascends)
      FAIL(k, "program: stage %u is chunk %u of rank %u, expected behind stage %u", at[i - 1] - 1,
           x->chunk, x->rank, at[i] - 1);
  }
  return PR_OK;
}

/* Checks a row by itself and, in a chain, with its neighbours. */
static PrStatus check_row(Check *k, uint32_t s) {
  const PipeProgram *p = k->p;
  const PipeStage *g = &p->stage[s];
  bool chain = !p->edge;
  if (g->rank >= p->nrank)
    FAIL(k, "program: stage %u is on rank %u of %u", s, g->rank, p->nrank);
  if (chain && ((g->prev != PIPE_NONE && (g->prev >= p->nstage || p->stage[g->prev].next != s)) ||
                (g->next != PIPE_NONE && (g->next >= p->nstage || p->stage[g->next].prev != s))))
    FAIL(k, "program: stage %u is not linked with its neighbours", s);
  if (g->nmb == 0 || g->mb0 >= p->nmb || g->nmb > p->nmb - g->mb0)
    FAIL(k, "program: stage %u has microbatches %u + %u of %u", s, g->mb0, g->nmb, p->nmb);
  if (g->mb0 % pipe_slices(p) || g->nmb % pipe_slices(p))
    FAIL(k, "program: stage %u has units %u + %u, with %u slices", s, g->mb0, g->nmb, p->slices);
  bool wraps = p->nunit_time != pipe_slices(p) && g->nmb > p->nunit_time;
  if (p->unit_time ? p->nunit_time == 0 || wraps : p->nunit_time != 0)
    FAIL(k, "program: stage %u has %u units, and %u have times", s, g->nmb, p->nunit_time);
  const PipeStage *next = g->next == PIPE_NONE || !chain ? NULL : &p->stage[g->next];
  if (next && (next->mb0 != g->mb0 || next->nmb != g->nmb || next->model != g->model + 1))
    FAIL(k, "program: stages %u and %u are not of one pipe", s, g->next);
  if (g->model >= p->nmodel || (chain && ((g->model == 0) != (g->prev == PIPE_NONE) ||
                                          (g->model + 1 == p->nmodel) != !next)))
    FAIL(k, "program: stage %u runs stage %u of %u, at the wrong end of a pipe", s, g->model,
         p->nmodel);
  uint32_t nin = chain ? g->prev != PIPE_NONE : k->in0[g->model + 1] - k->in0[g->model],
           nout = chain ? g->next != PIPE_NONE : k->out0[g->model + 1] - k->out0[g->model];
  if (g->nin != nin || g->nout != nout)
    FAIL(k, "program: stage %u has %u inputs and %u outputs, expected %u and %u", s, g->nin,
         g->nout, nin, nout);
  const uint64_t bytes[] = {g->act_bytes,    g->gout_bytes, g->boundary_bytes,
                            g->weight_bytes, g->grad_bytes, g->opt_bytes,
                            g->work_bytes,   g->tied_bytes, g->edge_bytes};
  for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
    if (bytes[i] > (p->sized && (i < 8 || !chain) ? SIZE_LIMIT : 0))
      FAIL(k, "program: stage %u has a size of %llu bytes", s, (unsigned long long)bytes[i]);
  return PR_OK;
}

/* Sums the bytes that a rank keeps outside slots: weights with one version, states of formulas,
 * gradients, optimizer state; and finds the largest workspace of its stages. */
static void sum_fixed(Check *k) {
  const PipeProgram *p = k->p;
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    uint64_t copies = p->rank[g->rank].weights ? 0 : 1, work = round64(g->work_bytes);
    for (uint32_t j = 0; j < 32; j++)
      copies += g->states >> j & 1;
    k->fixed[g->rank] += copies * round64(g->weight_bytes) + round64(g->grad_bytes) +
                         round64(g->opt_bytes);
    k->work[g->rank] = work > k->work[g->rank] ? work : k->work[g->rank];
  }
}

PrStatus pr_check_stages(Check *k) {
  const PipeProgram *p = k->p;
  uint32_t nchain = 0;
  PrStatus st;
  if ((st = check_shares(k)) || (st = check_edges(k)))
    return st;
  for (uint32_t s = 0; s < p->nstage; s++) {
    if ((st = check_row(k, s)))
      return st;
    nchain += p->stage[s].prev == PIPE_NONE;
  }
  if (!p->edge && (uint64_t)nchain * p->nmodel != p->nstage)
    FAIL(k, "program: %u stages are not chains of %u", p->nstage, p->nmodel);
  if ((st = check_rows(k)))
    return st;
  for (uint32_t s = 0; p->edge && s < p->nstage; s++)
    if (k->left[s] == 0)
      FAIL(k, "program: stage %u runs no microbatch", s);
  if ((st = check_neighbours(k)) || (st = check_replicas(k)) || (st = check_ties(k)) ||
      (st = check_chunks(k)))
    return st;
  sum_fixed(k);
  return PR_OK;
}
