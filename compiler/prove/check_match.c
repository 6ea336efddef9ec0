/* SPDX-License-Identifier: MIT
 * Proves that on every directed pair of ranks the k-th SEND and the k-th RECV have the same tensor.
 * FIFO channels without tags (NCCL) match only in this way. Requires prog; reads only its tables.
 *
 * Method: on each pair, number the SENDs in their order and the RECVs in theirs. The two ends of
 * every tensor have the same number, and no tensor has a third end. Cost: linear, one pass over the
 * program. */
#include "prove.h"
#include "orders.h"
#include "plant.h"
#include "transfers.h"

/* Are the ranks of a transfer those that its tensor must pass between? */
static bool right_ends(const PipeProgram *p, uint32_t r, const PipeInstr *in) {
  uint32_t other = pipe_other_end(pipe_graph(p), in);
  return p->stage[in->stage].rank == r && other != NONE && p->stage[other].rank == in->peer;
}

/* number: by tensor, its number on its pair, from 1; 0: not seen; BOTH: both ends seen. channel: by
 * tensor; NULL without channels. count: by peer, RECVs and SENDs of the current rank; 0 between
 * ranks. peer: those with a count. left: tensors with one end so far. */
enum { BOTH = NONE };
typedef struct Match {
  uint32_t *number, *channel, *count[2], *peer;
  uint64_t left;
} Match;

/* Numbers the ends on rank r. The first end of a tensor sets its number; the other end must have
 * the same. Two SENDs, or two RECVs, of one tensor are on one pair (right_ends), so their numbers
 * differ. NULL, or the first wrong end. */
static const PipeInstr *wrong_end(Sched *s, Match *m, uint32_t r) {
  const PipeProgram *p = s->prog;
  const PipeRank *k = &p->rank[r];
  uint32_t npeer = 0;
  for (uint32_t i = 0; i < k->ninstr; i++) {
    const PipeInstr *in = &k->instr[i];
    if (!pipe_is_move(in->op))
      continue;
    if (!right_ends(p, r, in))
      return in;
    if (m->count[0][in->peer] + m->count[1][in->peer] == 0)
      m->peer[npeer++] = in->peer;
    size_t tensor = tensor_of(s, in);
    uint32_t *n = &m->number[tensor], nth = ++m->count[pipe_is_send(in->op)][in->peer];
    if (*n && *n != nth && !PLANTED(MATCH_NUMBER))
      return in;
    /* FIFO on the pair and one channel at both ends imply FIFO on each channel */
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

/* The instruction that transfer c of rank r meets, by its number on the pair; NULL: none. */
static const PipeInstr *met_by(const PipeProgram *p, uint32_t r, const PipeInstr *c) {
  const PipeRank *own = &p->rank[r], *other = &p->rank[c->peer];
  uint32_t left = 0;
  for (const PipeInstr *in = own->instr; in <= c; in++)
    left += pipe_is_move(in->op) && in->peer == c->peer &&
            pipe_is_send(in->op) == pipe_is_send(c->op);
  for (uint32_t i = 0; i < other->ninstr; i++) {
    const PipeInstr *in = &other->instr[i];
    left -= pipe_is_move(in->op) && in->peer == r && pipe_is_send(in->op) != pipe_is_send(c->op);
    if (left == 0)
      return in;
  }
  return NULL;
}

/* Reports that c, on rank r, does not meet the other end of its tensor. */
static bool report_mismatch(Sched *s, uint32_t r, const PipeInstr *c) {
  const PipeInstr *met = met_by(s->prog, r, c), *const end[] = {pipe_is_send(c->op) ? c : met,
                                                                pipe_is_send(c->op) ? met : c};
  char text[2][PIPE_OP_TEXT] = {"nothing", "nothing"};
  for (int e = 0; e < 2; e++)
    if (end[e])
      pipe_instr_text(text[e], pipe_graph(s->prog), end[e]);
  diag_error(s->diag, DIAG_MATCHING, s->orders->site[(end[0] ? end[0] : c)->site],
             "%s on rank %u meets %s on rank %u", text[0], end[0] == c ? r : c->peer, text[1],
             end[0] == c ? c->peer : r);
  if (met && c->channel != met->channel)
    diag_note(s->diag, s->orders->site[end[1]->site],
              "one is in channel %u, the other in channel %u", end[0]->channel, end[1]->channel);
  else if (met)
    diag_note(s->diag, s->orders->site[end[1]->site], "the receive is for this op");
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
  const PipeInstr *wrong = NULL;
  uint32_t of = 0; /* rank of `wrong` */
  for (uint32_t r = 0; r < p->nrank && !wrong; r++)
    wrong = wrong_end(s, &m, of = r);
  for (uint32_t r = 0; r < p->nrank && !wrong && m.left > 0; r++)
    for (uint32_t i = 0; i < p->rank[r].ninstr && !wrong; i++) {
      const PipeInstr *in = &p->rank[r].instr[i];
      if (pipe_is_move(in->op) && m.number[tensor_of(s, in)] != BOTH)
        wrong = in, of = r;
    }
  arena_free(&own);
  return !wrong || report_mismatch(s, of, wrong);
}
