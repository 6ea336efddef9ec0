/* SPDX-License-Identifier: MIT
 * Do the events of a program (PipeSync) carry its waits? Engines whose streams know counts need none, and
 * a program without any is one for them. What passes here has each wait of each instruction covered by
 * events and the order of the streams, each event recorded in the list before it is waited for, and none
 * recorded again in between; none is waited for inside of an action or group of transfers, or recorded inside of
 * a group. Linear in instructions and events. */
#include "validate.h"

#include <stdlib.h>
#include <string.h>

/* What a stream knows: instructions of each stream that are over; COMPUTE counts the begin of the step. */
typedef struct Known {
  uint32_t n[PIPE_NSTREAMS];
} Known;

typedef struct Events {
  Check k;
  const PipeRank *t;
  uint32_t
      *record; /* [ninstr + 1] event + 1 recorded after a row, at row + 1; at 0 after the begin */
  uint32_t *last; /* [nevent] where it was recorded last; PIPE_NONE: not yet */
  Known *sent;    /* [nevent] what its stream knew then */
  uint32_t next;  /* of sync */
} Events;

static PrStatus find_records(Events *e) {
  const PipeRank *t = e->t;
  for (uint32_t i = 0; i < t->nsync; i++) {
    const PipeSync *y = &t->sync[i];
    uint32_t at = y->after == PIPE_NONE ? 0 : y->after + 1;
    if (y->event >= t->nevent || at > y->before || y->before > t->ninstr ||
        (i > 0 && y->before < y[-1].before))
      return FAIL(e->k.run, "program: rank %u: event %u of %u, from row %u to row %u, is not one",
                  e->k.rank, y->event, t->nevent, at, y->before);
    uint32_t moves = at > 0 && pipe_op_info[t->instr[at - 1].op].comm ? t->instr[at - 1].group : 0;
    if (moves > 0 || (y->before > 0 && t->instr[y->before - 1].group > 0))
      return FAIL(e->k.run,
                  "program: rank %u: event %u, from row %u to row %u, is inside of a group",
                  e->k.rank, y->event, at, y->before);
    if (e->record[at] && e->record[at] != y->event + 1)
      return FAIL(e->k.run, "program: rank %u: two events are recorded after row %u", e->k.rank,
                  at);
    e->record[at] = y->event + 1;
  }
  for (uint32_t i = 0; i < t->nevent; i++)
    e->last[i] = PIPE_NONE;
  return PR_OK;
}

static void record(Events *e, uint32_t at, const Known *k) {
  if (e->record[at]) {
    e->last[e->record[at] - 1] = at;
    e->sent[e->record[at] - 1] = *k;
  }
}

/* The waits of row e->k.index, for a stream that knows k. */
static PrStatus take(Events *e, Known *k) {
  for (; e->next < e->t->nsync && e->t->sync[e->next].before == e->k.index; e->next++) {
    const PipeSync *y = &e->t->sync[e->next];
    if (e->last[y->event] != (y->after == PIPE_NONE ? 0 : y->after + 1))
      return FAIL(e->k.run, "program: rank %u row %u waits for event %u, recorded elsewhere since",
                  e->k.rank, e->k.index, y->event);
    for (int x = 0; x < PIPE_NSTREAMS; x++)
      if (e->sent[y->event].n[x] > k->n[x])
        k->n[x] = e->sent[y->event].n[x];
  }
  return PR_OK;
}

static PrStatus check_events(Events *e) {
  const PipeRank *t = e->t;
  static const char *const name[] = {"COMPUTE", "COMM", "COPY"};
  Known known[PIPE_NSTREAMS] = {{{1, 0, 0}}};
  PrStatus st = find_records(e);
  if (st)
    return st;
  record(e, 0, &known[PIPE_COMPUTE]);
  for (uint32_t i = 0; i < t->ninstr; i++) {
    const PipeInstr *c = &t->instr[i];
    PipeOn on = (PipeOn)pipe_op_info[c->op].stream;
    e->k.index = i;
    if ((st = take(e, &known[on])))
      return st;
    for (int x = 0; x < PIPE_NSTREAMS; x++)
      if (x != (int)on && known[on].n[x] < pipe_wait_for(c, (PipeOn)x) + (x == PIPE_COMPUTE))
        FAIL_AT(&e->k, c, "its wait for %s is covered by no event", name[x]);
    known[on].n[on]++;
    record(e, i + 1, &known[on]);
  }
  e->k.index = t->ninstr;
  if ((st = take(e, &known[PIPE_COMPUTE])))
    return st;
  for (int x = 0; x < PIPE_NSTREAMS; x++)
    if (known[PIPE_COMPUTE].n[x] < known[x].n[x])
      return FAIL(e->k.run, "program: rank %u: the end of the step does not wait for %s", e->k.rank,
                  name[x]);
  if (e->next < t->nsync)
    return FAIL(e->k.run, "program: rank %u: events are not in order", e->k.rank);
  return PR_OK;
}

PrStatus pr_check_events(PrRun *run, uint32_t rank) {
  const PipeRank *t = &run->p->rank[rank];
  Events e = {.k = {.run = run, .p = run->p, .rank = rank}, .t = t};
  if (t->nevent > t->nsync || (t->nsync > 0 && !t->sync))
    return FAIL(run, "program: rank %u has %u events for %u waits", rank, t->nevent, t->nsync);
  e.record = calloc((size_t)t->ninstr + 1, sizeof *e.record);
  e.last = calloc((size_t)t->nevent + 1, sizeof *e.last);
  e.sent = calloc((size_t)t->nevent + 1, sizeof *e.sent);
  PrStatus st = e.record && e.last && e.sent
                    ? check_events(&e)
                    : pr_fail(run, PR_E_MEMORY, "no memory to check the program");
  free(e.record);
  free(e.last);
  free(e.sent);
  return st;
}
