/* SPDX-License-Identifier: MIT
 * Streams: the part of the validator (validate.h) that checks waits, turns, channels and events.
 *
 * Events carry the waits of a rank for engines whose streams cannot wait for counts. Ensures:
 * events and the order of streams cover each wait; each event is recorded above its wait, not
 * recorded again in between, and not inside an action or group. With channels only events say what
 * COMPUTE and COPY need of COMM; every access of a slot is then checked against them. Linear in
 * instructions, and in events times streams. */
#include "fields.h"
#include "validate_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- the other end, turns ---- */

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

PrStatus pr_count_turns(Check *k, uint64_t ninstr) {
  const PipeProgram *p = k->p;
  if (p->ngroup > p->nrank)
    FAIL(k, "program: %u groups of %u ranks", p->ngroup, p->nrank);
  k->turn0 = calloc(p->ngroup + (size_t)1, sizeof *k->turn0);
  k->turn = calloc(ninstr + 1, 1);
  if (!k->turn0 || !k->turn)
    return NO_MEMORY(k);
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeRank *t = &p->rank[r];
    if (t->group > p->ngroup)
      FAIL(k, "program: rank %u is in group %u of %u", r, t->group - 1, p->ngroup);
    for (uint32_t i = 0; t->group && t->instr && i < t->ninstr; i++)
      k->turn0[t->group] += t->instr[i].op < PIPE_NOPS &&
                            pipe_op_info[t->instr[i].op].stream == PIPE_COPY;
  }
  for (uint32_t g = 0; g < p->ngroup; g++)
    k->turn0[g + 1] += k->turn0[g];
  return PR_OK;
}

/* Checks the turn of a COPY instruction in a group: its own, and later than those above on its
 * rank. */
static PrStatus check_turn(Check *k, const PipeInstr *c) {
  uint32_t g = k->t->group;
  if (pipe_op_info[c->op].stream != PIPE_COPY)
    return PR_OK;
  if (g == 0) {
    if (c->turn != PIPE_NONE)
      FAIL_AT(k, c, "has turn %u, but rank %u is in no group", c->turn, k->rank);
    return PR_OK;
  }
  uint64_t n = k->turn0[g] - k->turn0[g - 1];
  if (c->turn >= n || c->turn < k->next_turn || k->turn[k->turn0[g - 1] + c->turn]++)
    FAIL_AT(k, c, "turn %u of %llu is out of range, another's, or not after those above it",
            c->turn, (unsigned long long)n);
  k->next_turn = c->turn + 1;
  return PR_OK;
}

PrStatus pr_check_waits(Check *k, const PipeInstr *c) {
  const uint32_t on = pipe_op_info[c->op].stream;
  for (uint32_t x = 0; x < PIPE_NSTREAMS; x++) {
    uint32_t wait = x == on ? 0 : pipe_wait_for(c, (PipeOn)x);
    if (wait > k->done[x])
      FAIL_AT(k, c, "waits for %u %s instructions, but only %u stand above it", wait,
              pipe_stream_name[x], k->done[x]);
    if (wait > k->wait[on][x])
      k->wait[on][x] = wait;
  }
  return check_turn(k, c);
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

/* ---- events ---- */

/* Streams of a rank: COMPUTE, COMM, COPY. With channels COMM is empty and each channel of the rank
 * is a further stream. */
struct PrEvents {
  const PipeProgram *p;
  char *text;
  size_t room;
  uint32_t rank, index; /* of the current instruction, for FAIL_AT */
  const PipeRank *t;
  uint32_t n;
  uint32_t *stream; /* [ninstr] stream of each row */
  uint32_t *nth;    /* [ninstr] position of each row in its stream, from 1 */
  uint32_t *comm;   /* rows of all COMM instructions */
  /* [n][n] instructions of each stream that a stream knows to be over; for COMPUTE plus 1, for the
   * start of the step */
  uint32_t *known;
  /* [n][3] most instructions of COMPUTE, COMM, COPY that the instructions of a stream have waited
   * for */
  uint32_t *waited;
  uint32_t *done; /* [n] instructions so far */
  /* [ninstr + 1] at row + 1: 1 + event recorded after the row; at 0: at the start; 0: none */
  uint32_t *record;
  uint32_t *last; /* [nevent] row + 1 of the last record, 0: the start; PIPE_NONE: none yet */
  uint32_t *sent; /* [nevent][n] what the recording stream knew at that time */
  uint32_t next;  /* next row of sync */
};

static PrStatus find_records(PrEvents *e) {
  const PipeRank *t = e->t;
  uint32_t used = 0;
  memset(e->last, 0xff, t->nevent * sizeof *e->last);
  for (uint32_t i = 0; i < t->nsync; i++) {
    const PipeSync *y = &t->sync[i];
    uint32_t at = y->after == PIPE_NONE ? 0 : y->after + 1;
    uint32_t above = i == 0 || y[-1].after == PIPE_NONE ? 0 : y[-1].after + 1;
    if (y->event >= t->nevent || at > y->before || y->before > t->ninstr ||
        (i > 0 && (y->before < y[-1].before || (y->before == y[-1].before && at <= above))))
      FAIL(
          e,
          "program: rank %u: event %u of %u, from row %u to row %u, is out of range or out of order",
          e->rank, y->event, t->nevent, at, y->before);
    uint32_t moves = at > 0 && pipe_op_info[t->instr[at - 1].op].comm ? t->instr[at - 1].group : 0;
    if (moves > 0 || (y->before > 0 && t->instr[y->before - 1].group > 0))
      FAIL(e, "program: rank %u: event %u, from row %u to row %u, is inside of a group", e->rank,
           y->event, at, y->before);
    if (e->record[at] && e->record[at] != y->event + 1)
      FAIL(e, "program: rank %u: two events are recorded after row %u", e->rank, at);
    e->record[at] = y->event + 1;
    used += e->last[y->event] == PIPE_NONE;
    e->last[y->event] = 0;
  }
  if (used != t->nevent)
    FAIL(e, "program: rank %u: %u of %u events are waited for", e->rank, used, t->nevent);
  memset(e->last, 0xff, t->nevent * sizeof *e->last);
  return PR_OK;
}

static void record(PrEvents *e, uint32_t at, uint32_t stream) {
  if (!e->record[at])
    return;
  e->last[e->record[at] - 1] = at;
  memcpy(&e->sent[(size_t)(e->record[at] - 1) * e->n], &e->known[(size_t)stream * e->n],
         e->n * sizeof *e->sent);
}

/* Finds the stream of each row. of: [nchannel], 0. */
static PrStatus find_streams(PrEvents *e, uint32_t *of) {
  uint32_t ncomm = 0;
  e->n = PIPE_NSTREAMS;
  for (uint32_t i = 0; i < e->t->ninstr; i++) {
    const PipeInstr *c = &e->t->instr[i];
    e->index = i;
    if (c->op >= PIPE_NOPS)
      FAIL(e, "program: rank %u instruction %u: op %u: out of range", e->rank, i, c->op);
    e->stream[i] = pipe_op_info[c->op].stream;
    if (e->stream[i] != PIPE_COMM)
      continue;
    e->comm[ncomm++] = i;
    if (!e->p->nchannel)
      continue;
    if (c->channel >= e->p->nchannel)
      FAIL_AT(e, c, "channel %u of %u", c->channel, e->p->nchannel);
    of[c->channel] = of[c->channel] ? of[c->channel] : e->n++;
    e->stream[i] = of[c->channel];
  }
  return PR_OK;
}

PrStatus pr_events_begin(const PipeProgram *p, uint32_t rank, char *text, size_t room,
                         PrEvents **out) {
  const PipeRank *t = &p->rank[rank];
  PrEvents *e = *out = calloc(1, sizeof *e);
  if (!e)
    return pr_refuse(text, room, PR_E_MEMORY, "no memory to check the program");
  *e = (PrEvents){.p = p, .text = text, .room = room, .rank = rank, .t = t};
  if (t->nevent > t->nsync || (t->nsync > 0 && !t->sync))
    FAIL(e, "program: rank %u has %u events for %u waits", rank, t->nevent, t->nsync);
  e->stream = calloc(4 * ((size_t)t->ninstr + 1), sizeof *e->stream);
  uint32_t *of = calloc(p->nchannel + (size_t)1, sizeof *of);
  PrStatus st = PR_E_MEMORY;
  if (e->stream && of) {
    e->nth = e->stream + t->ninstr + 1;
    e->comm = e->nth + t->ninstr + 1;
    e->record = e->comm + t->ninstr + 1;
    st = find_streams(e, of);
    size_t n = e->n;
    e->known = st ? NULL : calloc(n * n + 4 * n + (n + 1) * t->nevent, sizeof *e->known);
  }
  free(of);
  if (!e->known)
    return st == PR_E_ARG ? st : NO_MEMORY(e);
  e->waited = e->known + (size_t)e->n * e->n;
  e->done = e->waited + PIPE_NSTREAMS * (size_t)e->n;
  e->last = e->done + e->n;
  e->sent = e->last + t->nevent;
  e->known[PIPE_COMPUTE] = 1;
  if ((st = find_records(e)))
    return st;
  record(e, 0, PIPE_COMPUTE);
  return PR_OK;
}

void pr_events_end(PrEvents *e) {
  if (!e)
    return;
  free(e->stream);
  free(e->known);
  free(e);
}

/* Executes the waits for events before `row`, for its stream. */
static PrStatus take(PrEvents *e, uint32_t row, uint32_t stream) {
  uint32_t *known = &e->known[(size_t)stream * e->n];
  for (; e->next < e->t->nsync && e->t->sync[e->next].before == row; e->next++) {
    const PipeSync *y = &e->t->sync[e->next];
    if (e->last[y->event] != (y->after == PIPE_NONE ? 0 : y->after + 1))
      FAIL(e, "program: rank %u row %u waits for event %u, recorded elsewhere since", e->rank, row,
           y->event);
    for (uint32_t x = 0; x < e->n; x++)
      if (e->sent[(size_t)y->event * e->n + x] > known[x])
        known[x] = e->sent[(size_t)y->event * e->n + x];
    uint32_t after = y->after;
    if (e->p->nchannel && stream == PIPE_COPY && row < e->t->ninstr && after != PIPE_NONE &&
        pipe_op_info[e->t->instr[after].op].comm && e->t->instr[after].op != PIPE_SIDE_COMM)
      FAIL_AT(e, &e->t->instr[row], "waits for row %u, a transfer", after);
  }
  return PR_OK;
}

/* As pr_events_know, from events alone. */
static inline bool covered(const PrEvents *e, uint32_t row, uint32_t stream, PipeOn on,
                           uint32_t count) {
  const uint32_t *known = &e->known[(size_t)stream * e->n];
  if (on != PIPE_COMM || !e->p->nchannel)
    return known[on] >= count + (on == PIPE_COMPUTE);
  if (count == 0)
    return true;
  uint32_t last = e->comm[count - 1];
  return last < row && (e->stream[last] == stream || known[e->stream[last]] >= e->nth[last]);
}

bool pr_events_know(const PrEvents *e, uint32_t row, PipeOn on, uint32_t count) {
  uint32_t stream = e->stream[row];
  bool channel = stream >= PIPE_NSTREAMS;
  if (!(channel && on == PIPE_COMM) && e->waited[PIPE_NSTREAMS * (size_t)stream + on] < count)
    return false; /* engines without events rely on counts */
  return covered(e, row, stream, on, count);
}

PrStatus pr_events_row(PrEvents *e, uint32_t row) {
  static const char *const name[] = {"COMPUTE", "COMM", "COPY"};
  const PipeInstr *c = &e->t->instr[row];
  const uint32_t on = pipe_op_info[c->op].stream, stream = e->stream[row];
  e->index = row;
  PrStatus st = take(e, row, stream);
  for (uint32_t x = 0; !st && x < PIPE_NSTREAMS; x++) {
    if (x == on)
      continue;
    uint32_t wait = pipe_wait_for(c, (PipeOn)x),
             *most = &e->waited[PIPE_NSTREAMS * (size_t)stream + x];
    *most = wait > *most ? wait : *most;
    if (x == PIPE_COMM && wait > 0 && e->p->nchannel && (wait > row || e->comm[wait - 1] >= row))
      FAIL_AT(e, c, "waits for %u of %s, which are not all above it", wait, name[x]);
    if (!covered(e, row, stream, (PipeOn)x, wait))
      FAIL_AT(e, c, "its wait for %s is covered by no event", name[x]);
  }
  return st;
}

PrStatus pr_events_done(PrEvents *e, uint32_t row) {
  uint32_t stream = e->stream[row];
  PrStatus st;
  e->known[(size_t)stream * e->n + stream]++;
  e->nth[row] = ++e->done[stream];
  record(e, row + 1, stream);
  if (row + 1 < e->t->ninstr)
    return PR_OK;
  e->index = row + 1;
  if ((st = take(e, row + 1, PIPE_COMPUTE)))
    return st;
  for (uint32_t x = 1; x < e->n; x++)
    if (e->known[x] < e->done[x])
      FAIL(e, "program: rank %u: the end of the step does not wait for %s", e->rank,
           x == PIPE_COPY ? "COPY" : "COMM");
  if (e->next < e->t->nsync)
    FAIL(e, "program: rank %u: events are not in order", e->rank);
  return PR_OK;
}

PrStatus pipe_validate_events(const PipeProgram *p, uint32_t rank, char *text, size_t room) {
  PrEvents *e = NULL;
  PrStatus st = pr_events_begin(p, rank, text, room, &e);
  for (uint32_t i = 0; !st && i < p->rank[rank].ninstr; i++)
    if (!(st = pr_events_row(e, i)))
      st = pr_events_done(e, i);
  pr_events_end(e);
  return st;
}
