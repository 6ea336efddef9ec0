/* SPDX-License-Identifier: MIT
 * Proof: on every directed pair of ranks the k-th SEND and the k-th RECV are the same tensor. This is
 * all the matching there is under FIFO channels without tags (NCCL). Requires prog; reads only its
 * tables. Linear, once over the program: on each pair the SENDs have numbers, and the RECVs, in their order; the two
 * ends of every tensor have the same, and no tensor has a third end. Only a message sorts the ends by pair. */
#include "plant.h"
#include "transfers.h"

/* One end of a transfer: instruction `index` of the sender or the receiver. In list order. */
typedef struct End {
  uint32_t src, dst, index;
} End;

/* Stable counting sorts: dst, then src. t: room for as many. */
static void by_pair(Sched *s, End *e, End *t, uint32_t n) {
  uint32_t *count = NEW_ARRAY(s->arena, uint32_t, s->nrank + 1);
  for (int pass = 0; pass < 2; pass++) {
    for (uint32_t r = 0; r <= s->nrank; r++)
      count[r] = 0;
    for (uint32_t i = 0; i < n; i++)
      count[(pass ? e[i].src : e[i].dst) + 1]++;
    for (uint32_t r = 0; r < s->nrank; r++)
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

/* Whichever end of a tensor comes first gives it its number, the other one must come to the same. Two SENDs, or
 * two RECVs, of one tensor are on one pair (right_ends), so their numbers differ. Of each tensor, 0 at first:
 * number: on its pair, from 1; BOTH: its ends have met; channel: NULL without channels. */
static bool all_match(Sched *s, Arena *a, uint32_t *number, uint32_t *channel) {
  enum { BOTH = NONE };
  const PipeProgram *p = s->prog;
  uint32_t *count[2] = {NEW_ARRAY(a, uint32_t, p->nrank), NEW_ARRAY(a, uint32_t, p->nrank)},
           *peer = NEW_ARRAY(a, uint32_t, p->nrank); /* count: of a rank, RECVs and SENDs by peer */
  uint64_t left = 0;
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeRank *k = &p->rank[r];
    uint32_t npeer = 0;
    for (uint32_t i = 0; i < k->ninstr; i++) {
      const PipeInstr *in = &k->instr[i];
      if (!is_move(in))
        continue;
      if (!right_ends(p, r, in))
        return false;
      if (count[0][in->peer] + count[1][in->peer] == 0)
        peer[npeer++] = in->peer;
      uint32_t *n = &number[tensor_of(s, in)], nth = ++count[is_send(in)][in->peer];
      if (*n && *n != nth && !PLANTED(MATCH_NUMBER))
        return false;
      /* FIFO on the pair, and the same channel at both ends: FIFO on each channel */
      if (channel && *n && channel[tensor_of(s, in)] != in->gout && !PLANTED(MATCH_CHANNEL))
        return false;
      if (channel)
        channel[tensor_of(s, in)] = in->gout;
      left += *n ? -1 : 1;
      *n = *n ? BOTH : nth;
    }
    while (npeer > 0)
      npeer--, count[0][peer[npeer]] = count[1][peer[npeer]] = 0;
  }
  return left == 0;
}

static bool report_mismatch(Sched *s) {
  const PipeProgram *p = s->prog;
  uint32_t nsend = 0, nrecv = 0;
  bool edges = p->edge != NULL;
  End *send = arena_alloc(s->arena, (size_t)s->nxfer * sizeof *send + 1);
  End *recv = arena_alloc(s->arena, (size_t)s->nxfer * sizeof *recv + 1);
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
      const PipeInstr *in = &p->rank[r].instr[i];
      if (in->op < PIPE_SEND_F || in->op > PIPE_RECV_B)
        continue;
      bool sends = in->op == PIPE_SEND_F || in->op == PIPE_SEND_B;
      BUG_IF((sends ? nsend : nrecv) >= s->nxfer);
      if (sends)
        send[nsend++] = (End){r, in->peer, i};
      else
        recv[nrecv++] = (End){in->peer, r, i};
    }
  End *room = arena_alloc(s->arena, (size_t)s->nxfer * sizeof *room + 1);
  by_pair(s, send, room, nsend);
  by_pair(s, recv, room, nrecv);
  for (uint32_t i = 0; i < nsend || i < nrecv; i++) {
    const PipeInstr *a = i < nsend ? &p->rank[send[i].src].instr[send[i].index] : NULL;
    const PipeInstr *b = i < nrecv ? &p->rank[recv[i].dst].instr[recv[i].index] : NULL;
    bool same_pair = a && b && send[i].src == recv[i].src && send[i].dst == recv[i].dst;
    bool forward = a && a->op == PIPE_SEND_F;
    if (same_pair && a->mb == b->mb && b->op == (forward ? PIPE_RECV_F : PIPE_RECV_B) &&
        a->gout == b->gout &&
        (edges ? a->keep == b->keep && b->stage == pipe_other_end(pipe_graph(p), a)
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
    diag_error(s->diag, DIAG_MATCHING, s->site[a ? a->site : b->site],
               "%s on rank %u meets %s on rank %u", x, a ? send[i].src : recv[i].src, y,
               b ? recv[i].dst : send[i].dst);
    if (a && b && a->gout != b->gout)
      diag_note(s->diag, s->site[b->site], "one is in channel %u, the other in channel %u", a->gout,
                b->gout);
    else if (a && b)
      diag_note(s->diag, s->site[b->site], "the receive is for this op");
    return false;
  }
  BUG_IF(true); /* all_match has found one */
  return false;
}

bool check_match(Sched *s) {
  Arena a = {.oom = s->arena->oom};
  size_t n = 2 * (size_t)(s->prog->edge ? s->prog->nedge : s->prog->nstage) * s->prog->nmb;
  uint32_t *number = NEW_ARRAY(s->arena, uint32_t, n),
           *channel = s->prog->channel ? NEW_ARRAY(s->arena, uint32_t, n) : NULL;
  bool ok = all_match(s, &a, number, channel);
  arena_forget(s->arena, number, n * sizeof *number);
  if (channel)
    arena_forget(s->arena, channel, n * sizeof *channel);
  arena_free(&a);
  return ok || report_mismatch(s);
}
