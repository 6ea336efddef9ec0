/* SPDX-License-Identifier: MIT
 * Proves that on every directed pair of ranks the k-th SEND and the k-th RECV are the same tensor.
 * FIFO channels without tags (NCCL) match in no other way. Requires prog; reads only its tables.
 *
 * Method: on each pair the SENDs are numbered in their order, and the RECVs in theirs. The two ends
 * of every tensor have the same number, and no tensor has a third end. Cost: linear, one pass over
 * the program; only a message sorts the ends by pair. */
#include "prove.h"
#include "orders.h"
#include "plant.h"
#include "transfers.h"

/* One end of a transfer: instruction `index` of the sender or the receiver. In list order. */
typedef struct End {
  uint32_t src, dst, index;
} End;

/* Stable counting sorts: dst, then src. t: room for as many. */
static void by_pair(Sched *s, End *e, End *t, uint32_t n) {
  uint32_t *count = NEW_ARRAY(s->arena, uint32_t, s->model->nrank + 1);
  for (int pass = 0; pass < 2; pass++) {
    for (uint32_t r = 0; r <= s->model->nrank; r++)
      count[r] = 0;
    for (uint32_t i = 0; i < n; i++)
      count[(pass ? e[i].src : e[i].dst) + 1]++;
    for (uint32_t r = 0; r < s->model->nrank; r++)
      count[r + 1] += count[r];
    for (uint32_t i = 0; i < n; i++)
      t[count[pass ? e[i].src : e[i].dst]++] = e[i];
    End *swap = e;
    e = t, t = swap;
  } /* two passes: the result is back in e's own memory */
}

static bool is_move(const PipeInstr *in) { return in->op >= PIPE_SEND_F && in->op <= PIPE_RECV_B; }

/* The ranks between which a tensor must pass. */
static bool right_ends(const PipeProgram *p, uint32_t r, const PipeInstr *in) {
  uint32_t other = pipe_other_end(pipe_graph(p), in);
  return p->stage[in->stage].rank == r && other != NONE && p->stage[other].rank == in->peer;
}

/* For each tensor, 0 at first. number: its number on its pair, from 1; BOTH once its ends have met.
 * channel: NULL without channels. count: RECVs and SENDs of the present rank, by peer; 0 between
 * ranks. left: tensors with one end so far. */
enum { BOTH = NONE };
typedef struct Match {
  uint32_t *number, *channel, *count[2], *peer;
  uint64_t left;
} Match;

/* Whichever end of a tensor comes first gives it its number, the other one must come to the same.
 * Two SENDs, or two RECVs, of one tensor are on one pair (right_ends), so their numbers differ.
 * NULL, or the first end of rank r that is not right. */
static const PipeInstr *wrong_end(Sched *s, Match *m, uint32_t r) {
  const PipeProgram *p = s->prog;
  const PipeRank *k = &p->rank[r];
  uint32_t npeer = 0;
  for (uint32_t i = 0; i < k->ninstr; i++) {
    const PipeInstr *in = &k->instr[i];
    if (!is_move(in))
      continue;
    if (!right_ends(p, r, in))
      return in;
    if (m->count[0][in->peer] + m->count[1][in->peer] == 0)
      m->peer[npeer++] = in->peer;
    size_t tensor = tensor_of(s, in);
    uint32_t *n = &m->number[tensor], nth = ++m->count[pipe_is_send(in->op)][in->peer];
    if (*n && *n != nth && !PLANTED(MATCH_NUMBER))
      return in;
    /* FIFO on the pair, and the same channel at both ends: FIFO on each channel */
    if (m->channel && *n && m->channel[tensor] != in->channel && !PLANTED(MATCH_CHANNEL))
      return in;
    if (m->channel)
      m->channel[tensor] = in->channel;
    m->left += *n ? -1 : 1;
    *n = *n ? BOTH : nth;
  }
  while (npeer > 0)
    npeer--, m->count[0][m->peer[npeer]] = m->count[1][m->peer[npeer]] = 0;
  return NULL;
}

static bool report_mismatch(Sched *s) {
  const PipeProgram *p = s->prog;
  uint32_t nsend = 0, nrecv = 0;
  bool edges = p->edge != NULL;
  End *send = arena_alloc(s->arena, (size_t)s->ideal->nxfer * sizeof *send + 1);
  End *recv = arena_alloc(s->arena, (size_t)s->ideal->nxfer * sizeof *recv + 1);
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
      const PipeInstr *in = &p->rank[r].instr[i];
      if (in->op < PIPE_SEND_F || in->op > PIPE_RECV_B)
        continue;
      bool sends = pipe_is_send(in->op);
      BUG_IF((sends ? nsend : nrecv) >= s->ideal->nxfer);
      if (sends)
        send[nsend++] = (End){r, in->peer, i};
      else
        recv[nrecv++] = (End){in->peer, r, i};
    }
  End *room = arena_alloc(s->arena, (size_t)s->ideal->nxfer * sizeof *room + 1);
  by_pair(s, send, room, nsend);
  by_pair(s, recv, room, nrecv);
  for (uint32_t i = 0; i < nsend || i < nrecv; i++) {
    const PipeInstr *a = i < nsend ? &p->rank[send[i].src].instr[send[i].index] : NULL;
    const PipeInstr *b = i < nrecv ? &p->rank[recv[i].dst].instr[recv[i].index] : NULL;
    bool same_pair = a && b && send[i].src == recv[i].src && send[i].dst == recv[i].dst;
    bool forward = a && a->op == PIPE_SEND_F;
    if (same_pair && a->mb == b->mb && b->op == (forward ? PIPE_RECV_F : PIPE_RECV_B) &&
        a->channel == b->channel &&
        (edges ? a->edge == b->edge && b->stage == pipe_other_end(pipe_graph(p), a)
               : b->stage == (forward ? p->stage[a->stage].next : p->stage[a->stage].prev)))
      continue;
    if (a && b && !same_pair) { /* the pair that comes first lacks its other end */
      if (send[i].src < recv[i].src || (send[i].src == recv[i].src && send[i].dst < recv[i].dst))
        b = NULL;
      else
        a = NULL;
    }
    char x[OP_TEXT] = "nothing", y[OP_TEXT] = "nothing";
    if (a)
      pipe_instr_text(x, pipe_graph(p), a);
    if (b)
      pipe_instr_text(y, pipe_graph(p), b);
    diag_error(s->diag, DIAG_MATCHING, s->orders->site[a ? a->site : b->site],
               "%s on rank %u meets %s on rank %u", x, a ? send[i].src : recv[i].src, y,
               b ? recv[i].dst : send[i].dst);
    if (a && b && a->channel != b->channel)
      diag_note(s->diag, s->orders->site[b->site], "one is in channel %u, the other in channel %u",
                a->channel, b->channel);
    else if (a && b)
      diag_note(s->diag, s->orders->site[b->site], "the receive is for this op");
    return false;
  }
  BUG_IF(true); /* the caller has found one */
  return false;
}

bool check_match(Sched *s) {
  const PipeProgram *p = s->prog;
  size_t n = 2 * (size_t)(p->edge ? p->nedge : p->nstage) * p->nmb;
  Arena own = {0};
  Match m = {.number = NEW_ARRAY(&own, uint32_t, n),
             .channel = p->channel ? NEW_ARRAY(&own, uint32_t, n) : NULL,
             .count = {NEW_ARRAY(&own, uint32_t, p->nrank), NEW_ARRAY(&own, uint32_t, p->nrank)},
             .peer = NEW_ARRAY(&own, uint32_t, p->nrank)};
  bool ok = true;
  for (uint32_t r = 0; r < p->nrank && ok; r++)
    ok = !wrong_end(s, &m, r);
  ok = ok && m.left == 0;
  arena_free(&own);
  return ok || report_mismatch(s);
}
