/* SPDX-License-Identifier: MIT
 * Do the events of a program (PipeSync) carry its waits? Engines whose streams know counts need none, and
 * a program without any is one for them. What passes here has each wait of each instruction covered by
 * events and the order of the streams, each event recorded in the list before it is waited for, and none
 * recorded again in between; none is waited for inside of an action or group of transfers, or recorded inside of
 * a group. With channels these events are all that says what is needed of COMM: then validate.c asks for each access of
 * a slot what they say. Linear in instructions and events times streams. */
#include "validate.h"

#include <stdlib.h>
#include <string.h>

/* The streams of a rank: COMPUTE, COMM, COPY; with channels COMM has none, and each of them is one behind these. */
struct Events {
  Check *k;
  const PipeRank *t;
  uint32_t n;
  uint32_t *stream; /* [ninstr] */
  uint32_t *nth;    /* [ninstr] how manieth of its stream, from 1 */
  uint32_t *comm;   /* rows of all of COMM */
  uint32_t *
      known; /* [n][n] what a stream knows: instructions of each stream that are over; COMPUTE counts the begin
                        of the step */
  uint32_t *waited; /* [n][3] most that its instructions have waited for, of COMPUTE and COPY */
  uint32_t *done;   /* [n] */
  uint32_t
      *record; /* [ninstr + 1] event + 1 recorded after a row, at row + 1; at 0 after the begin */
  uint32_t *last; /* [nevent] where it was recorded last; PIPE_NONE: not yet */
  uint32_t *sent; /* [nevent][n] what its stream knew then */
  uint32_t next;  /* of sync */
};

static PrStatus find_records(Events *e) {
  const PipeRank *t = e->t;
  PrRun *run = e->k->run;
  for (uint32_t i = 0; i < t->nsync; i++) {
    const PipeSync *y = &t->sync[i];
    uint32_t at = y->after == PIPE_NONE ? 0 : y->after + 1;
    if (y->event >= t->nevent || at > y->before || y->before > t->ninstr ||
        (i > 0 && y->before < y[-1].before))
      return FAIL(run, "program: rank %u: event %u of %u, from row %u to row %u, is not one",
                  e->k->rank, y->event, t->nevent, at, y->before);
    uint32_t moves = at > 0 && pipe_op_info[t->instr[at - 1].op].comm ? t->instr[at - 1].group : 0;
    if (moves > 0 || (y->before > 0 && t->instr[y->before - 1].group > 0))
      return FAIL(run, "program: rank %u: event %u, from row %u to row %u, is inside of a group",
                  e->k->rank, y->event, at, y->before);
    if (e->record[at] && e->record[at] != y->event + 1)
      return FAIL(run, "program: rank %u: two events are recorded after row %u", e->k->rank, at);
    e->record[at] = y->event + 1;
  }
  for (uint32_t i = 0; i < t->nevent; i++)
    e->last[i] = PIPE_NONE;
  return PR_OK;
}

static void record(Events *e, uint32_t at, uint32_t stream) {
  if (!e->record[at])
    return;
  e->last[e->record[at] - 1] = at;
  memcpy(&e->sent[(size_t)(e->record[at] - 1) * e->n], &e->known[(size_t)stream * e->n],
         e->n * sizeof *e->sent);
}

/* Which stream each row is of. of: [nchannel], 0. */
static PrStatus find_streams(Events *e, uint32_t *of) {
  const PipeProgram *p = e->k->p;
  uint32_t ncomm = 0;
  e->n = PIPE_NSTREAMS;
  for (uint32_t i = 0; i < e->t->ninstr; i++) {
    const PipeInstr *c = &e->t->instr[i];
    if (c->op >= PIPE_NOPS)
      return FAIL(e->k->run, "program: rank %u instruction %u: op %u: out of range", e->k->rank, i,
                  c->op);
    e->stream[i] = pipe_op_info[c->op].stream;
    if (e->stream[i] != PIPE_COMM)
      continue;
    e->comm[ncomm++] = i;
    if (!p->nchannel)
      continue;
    e->k->index = i;
    if (c->gout >= p->nchannel)
      FAIL_AT(e->k, c, "channel %u of %u", c->gout, p->nchannel);
    of[c->gout] = of[c->gout] ? of[c->gout] : e->n++;
    e->stream[i] = of[c->gout];
  }
  return PR_OK;
}

PrStatus pr_events_begin(Check *k, Events **out) {
  const PipeRank *t = &k->p->rank[k->rank];
  if (t->nevent > t->nsync || (t->nsync > 0 && !t->sync))
    return FAIL(k->run, "program: rank %u has %u events for %u waits", k->rank, t->nevent,
                t->nsync);
  Events *e = *out = calloc(1, sizeof *e);
  uint32_t *of = calloc(k->p->nchannel + (size_t)1, sizeof *of);
  PrStatus st = PR_OK;
  if (e) {
    e->k = k, e->t = t;
    e->stream = calloc(4 * ((size_t)t->ninstr + 1), sizeof *e->stream);
  }
  if (e && e->stream && of) {
    e->nth = e->stream + t->ninstr + 1;
    e->comm = e->nth + t->ninstr + 1;
    e->record = e->comm + t->ninstr + 1;
    st = find_streams(e, of);
    size_t n = e->n;
    e->known = st ? NULL : calloc(n * n + 4 * n + (n + 1) * t->nevent, sizeof *e->known);
  }
  free(of);
  if (st)
    return st;
  if (!e || !e->known)
    return pr_fail(k->run, PR_E_MEMORY, "no memory to check the program");
  e->waited = e->known + (size_t)e->n * e->n;
  e->done = e->waited + 3 * (size_t)e->n;
  e->last = e->done + e->n;
  e->sent = e->last + t->nevent;
  e->known[0] = 1;
  if ((st = find_records(e)))
    return st;
  record(e, 0, PIPE_COMPUTE);
  return PR_OK;
}

void pr_events_end(Events *e) {
  if (!e)
    return;
  free(e->stream);
  free(e->known);
  free(e);
}

/* The waits of row `row`, for a stream. */
static PrStatus take(Events *e, uint32_t row, uint32_t stream) {
  uint32_t *known = &e->known[(size_t)stream * e->n];
  for (; e->next < e->t->nsync && e->t->sync[e->next].before == row; e->next++) {
    const PipeSync *y = &e->t->sync[e->next];
    if (e->last[y->event] != (y->after == PIPE_NONE ? 0 : y->after + 1))
      return FAIL(e->k->run, "program: rank %u row %u waits for event %u, recorded elsewhere since",
                  e->k->rank, row, y->event);
    for (uint32_t x = 0; x < e->n; x++)
      if (e->sent[(size_t)y->event * e->n + x] > known[x])
        known[x] = e->sent[(size_t)y->event * e->n + x];
    uint32_t after = y->after;
    if (e->k->p->nchannel && stream == PIPE_COPY && row < e->t->ninstr && after != PIPE_NONE &&
        pipe_op_info[e->t->instr[after].op].comm && e->t->instr[after].op != PIPE_SIDE_COMM)
      FAIL_AT(e->k, &e->t->instr[row], "waits for row %u, a transfer", after);
  }
  return PR_OK;
}

bool pr_events_know(const Events *e, uint32_t row, PipeOn on, uint32_t count) {
  uint32_t stream = e->stream[row];
  const uint32_t *known = &e->known[(size_t)stream * e->n];
  if (on != PIPE_COMM || !e->k->p->nchannel)
    return known[on] >= count + (on == PIPE_COMPUTE) &&
           (!e->k->p->nchannel || e->waited[3 * (size_t)stream + on] >= count);
  if (count == 0)
    return true;
  uint32_t last = e->comm[count - 1];
  return last < row && (e->stream[last] == stream || known[e->stream[last]] >= e->nth[last]);
}

PrStatus pr_events_row(Events *e, uint32_t row) {
  static const char *const name[] = {"COMPUTE", "COMM", "COPY"};
  const PipeInstr *c = &e->t->instr[row];
  uint32_t on = pipe_op_info[c->op].stream;
  e->k->index = row;
  PrStatus st = take(e, row, e->stream[row]);
  for (uint32_t x = 0; !st && x < PIPE_NSTREAMS; x++) {
    uint32_t wait = x == on ? 0 : pipe_wait_for(c, (PipeOn)x),
             *most = &e->waited[3 * (size_t)e->stream[row] + x];
    *most = wait > *most ? wait : *most;
    if (x == PIPE_COMM && x != on && wait > 0 && e->k->p->nchannel &&
        (wait > row || e->comm[wait - 1] >= row))
      FAIL_AT(e->k, c, "waits for %u of %s, which are not all above it", wait, name[x]);
    if (x != on && !pr_events_know(e, row, (PipeOn)x, wait))
      FAIL_AT(e->k, c, "its wait for %s is covered by no event", name[x]);
  }
  return st;
}

PrStatus pr_events_done(Events *e, uint32_t row) {
  uint32_t stream = e->stream[row];
  PrStatus st;
  e->known[(size_t)stream * e->n + stream]++;
  e->nth[row] = ++e->done[stream];
  record(e, row + 1, stream);
  if (row + 1 < e->t->ninstr)
    return PR_OK;
  e->k->index = row + 1;
  if ((st = take(e, row + 1, PIPE_COMPUTE)))
    return st;
  for (uint32_t x = 1; x < e->n; x++)
    if (e->known[x] < e->done[x])
      return FAIL(e->k->run, "program: rank %u: the end of the step does not wait for %s",
                  e->k->rank, x == PIPE_COPY ? "COPY" : "COMM");
  if (e->next < e->t->nsync)
    return FAIL(e->k->run, "program: rank %u: events are not in order", e->k->rank);
  return PR_OK;
}

PrStatus pr_check_events(PrRun *run, uint32_t rank) {
  Check k = {.run = run, .p = run->p, .rank = rank};
  Events *e = NULL;
  PrStatus st = pr_events_begin(&k, &e);
  for (uint32_t i = 0; !st && i < e->t->ninstr; i++)
    if (!(st = pr_events_row(e, i)))
      st = pr_events_done(e, i);
  pr_events_end(e);
  return st;
}

/* Is COMM instruction c in a channel for it? */
PrStatus pr_check_channel(Check *k, const PipeInstr *c) {
  const PipeProgram *p = k->p;
  if (!p->nchannel) {
    if (c->gout != PIPE_NONE)
      FAIL_AT(k, c, "has channel %u, and there are none", c->gout);
    return PR_OK;
  }
  const PipeChannel *of = &p->channel[c->gout];
  bool send = c->op == PIPE_SEND_F || c->op == PIPE_SEND_B;
  uint32_t op = pipe_is_sum(c->op)        ? PIPE_REDUCE
                : c->op == PIPE_SIDE_COMM ? PIPE_SIDE_COMM
                : c->op == PIPE_RECV_F    ? PIPE_SEND_F
                : c->op == PIPE_RECV_B    ? PIPE_SEND_B
                                          : c->op;
  bool moves = op == PIPE_SEND_F || op == PIPE_SEND_B;
  if (of->op != op ||
      (moves && (of->from != (send ? k->rank : c->peer) || of->to != (send ? c->peer : k->rank))))
    FAIL_AT(k, c, "is in channel %u, which is for %s from rank %u to rank %u", c->gout,
            of->op < PIPE_NOPS ? pipe_op_info[of->op].text : "nothing", of->from, of->to);
  uint32_t *sum = pipe_is_sum(c->op) ? &k->sum_channel[2 * (size_t)c->stage + (c->op == PIPE_TIE)]
                                     : NULL;
  if (sum && *sum && *sum != c->gout + 1)
    FAIL_AT(k, c, "is in channel %u, and others of its stage are in channel %u", c->gout, *sum - 1);
  if (sum)
    *sum = c->gout + 1;
  return PR_OK;
}
