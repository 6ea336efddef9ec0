/* SPDX-License-Identifier: MIT
 * Streams: the part of the validator (validate.h) that checks the other end of a transfer, and
 * channels. */
#include "fields.h"
#include "validate_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- the other end ---- */

PrStatus pr_check_peer(Check *k, const PipeInstr *c) {
  const PipeProgram *p = k->p;
  const PipeStage *g = &p->stage[c->stage];
  bool moves = pipe_is_move(c->op);
  if (c->op == PIPE_OFF || c->op == PIPE_LOAD)
    return PR_OK; /* the rank with its guest slot: validate_slots.c */
  if (!moves) {
    if (c->peer != PIPE_NONE)
      FAIL_AT(k, c, "has peer %u", c->peer);
    if (pipe_is_sum(c->op) && c->edge != PIPE_NONE)
      FAIL_AT(k, c, "has edge %u", c->edge);
    return PR_OK;
  }
  bool down = c->op == PIPE_SEND_F || c->op == PIPE_RECV_B;
  if ((down ? g->nout : g->nin) == 0)
    FAIL_AT(k, c, "stage %u has no stage on that side", c->stage);
  if (p->edge ? c->edge >= p->nedge : c->edge != PIPE_NONE)
    FAIL_AT(k, c, "edge %u of %u", c->edge, p->nedge);
  if (p->edge && (down ? p->edge[c->edge].from : p->edge[c->edge].to) != g->model)
    FAIL_AT(k, c, "edge %u is not of stage %u", c->edge, g->model);
  uint32_t other = pipe_other_end(pipe_graph(p), c);
  if (c->peer == k->rank || c->peer != p->stage[other].rank)
    FAIL_AT(k, c, "peer is rank %u, but stage %u is on rank %u", c->peer, other,
            p->stage[other].rank);
  return PR_OK;
}

/* ---- channels ---- */

PrStatus pr_find_pipes(Check *k) {
  const PipeProgram *p = k->p;
  if (!p->nchannel)
    return PR_OK;
  k->pipe = calloc(p->nmb + (size_t)1, sizeof *k->pipe);
  if (!k->pipe)
    return NO_MEMORY(k);
  for (uint32_t s = 0; s < p->nstage; s++)
    k->pipe[p->stage[s].mb0 + 1] = 1;
  for (uint32_t mb = 0; mb < p->nmb; mb++)
    k->pipe[mb + 1] += k->pipe[mb];
  return PR_OK;
}

/* Checks that COMM instruction c is in a channel of its kind, its ranks and its pipe. */
PrStatus pr_check_channel(Check *k, const PipeInstr *c) {
  const PipeProgram *p = k->p;
  if (p->lowering != PIPE_CHANNELS) {
    if (c->channel != PIPE_NONE)
      FAIL_AT(k, c, "has channel %u, but the program has no channels", c->channel);
    return PR_OK;
  }
  if (c->channel >= p->nchannel)
    FAIL_AT(k, c, "channel %u of %u", c->channel, p->nchannel);
  const PipeChannel *of = &p->channel[c->channel];
  bool send = pipe_is_send(c->op);
  bool moves = send || c->op == PIPE_RECV_F || c->op == PIPE_RECV_B;
  bool forward = c->op == PIPE_SEND_F || c->op == PIPE_RECV_F;
  uint32_t op = pipe_is_sum(c->op) ? PIPE_REDUCE
                : !moves           ? PIPE_SIDE_COMM
                : forward          ? PIPE_SEND_F
                                   : PIPE_SEND_B;
  bool between = moves ? of->from == (send ? k->rank : c->peer) &&
                             of->to == (send ? c->peer : k->rank) &&
                             of->pipe == k->pipe[p->stage[c->stage].mb0]
                 : op == PIPE_REDUCE ? of->from <= k->rank
                                     : of->from == k->rank;
  if (of->op != op || !between)
    FAIL_AT(k, c, "is in channel %u, which is for %s from rank %u to rank %u in pipe %u",
            c->channel, of->op < PIPE_NOPS ? pipe_op_info[of->op].text : "nothing", of->from,
            of->to, of->pipe);
  uint32_t *sum = op == PIPE_REDUCE ? &k->sum_channel[2 * (size_t)c->stage + (c->op == PIPE_TIE)]
                                    : NULL;
  if (sum && *sum && *sum != c->channel + 1)
    FAIL_AT(k, c, "is in channel %u, but other sums of its stage are in channel %u", c->channel,
            *sum - 1);
  if (sum)
    *sum = c->channel + 1;
  k->channel[c->channel] = 1;
  return PR_OK;
}

/* Checks that all members of a sum are in one channel, and that every channel has an
 * instruction. */
PrStatus pr_check_channels_used(Check *k) {
  const PipeProgram *p = k->p;
  for (uint32_t s = 0; s < p->nstage; s++)
    for (uint32_t tie = 0; tie < 2; tie++) {
      uint32_t own = k->sum_channel[2 * (size_t)s + tie];
      uint32_t next = own ? pipe_sum_next(p->stage, tie ? PIPE_TIE : PIPE_REDUCE, s) : s;
      if (own && k->sum_channel[2 * (size_t)next + tie] != own)
        FAIL(k, "program: stages %u and %u add up in channels %u and %u", s, next, own - 1,
             k->sum_channel[2 * (size_t)next + tie] - 1);
    }
  for (uint32_t i = 0; i < p->nchannel; i++)
    if (!k->channel[i])
      FAIL(k, "program: channel %u has no instruction", i);
  return PR_OK;
}
