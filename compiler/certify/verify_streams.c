/* SPDX-License-Identifier: MIT
 * Our own mistakes in the events of a rank; part of verify.c, which asks before each access of a slot
 * whether the last ones of other streams are over (verify_synced). Takes nothing from the passes that
 * placed and proved them: here an event is a message that its stream sends when it records, with all
 * that it has heard of by then, and that is read where it is waited for. Linear in instructions and events. */
#include <string.h>

#include "verify.h"

enum { CLASSES = 3 }; /* COMPUTE, COMM, COPY */

/* Which stream each row is of. */
static void find_streams(const PipeProgram *p, VerifySync *v, Arena *a) {
  const PipeRank *k = v->k;
  uint32_t *of = NEW_ARRAY(a, uint32_t, p->nchannel), ncomm = 0;
  v->n = CLASSES, v->channels = p->lowering == PIPE_CHANNELS;
  v->stream = NEW_ARRAY(a, uint32_t, k->ninstr);
  v->comm = NEW_ARRAY(a, uint32_t, k->ninstr);
  for (uint32_t i = 0; i < k->ninstr; i++) {
    int on = stream_of(k->instr[i].op);
    v->stream[i] = (uint32_t)on;
    if (on != 1)
      continue;
    v->comm[ncomm++] = i;
    if (!v->channels)
      continue;
    uint32_t c = k->instr[i].gout;
    BUG_IF(c >= p->nchannel);
    of[c] = of[c] ? of[c] : v->n++;
    v->stream[i] = of[c];
  }
}

VerifySync verify_sync_begin(const PipeProgram *p, const PipeRank *k, Arena *a) {
  VerifySync v = {.k = k};
  uint32_t used = 0; /* events */
  BUG_IF((k->nsync == 0) != (k->nevent == 0) || k->nevent > k->nsync);
  find_streams(p, &v, a);
  v.nth = NEW_ARRAY(a, uint32_t, k->ninstr);
  v.sent = NEW_ARRAY(a, uint32_t, v.n * (size_t)k->nevent);
  v.heard = NEW_ARRAY(a, uint32_t, v.n * (size_t)v.n);
  v.done = NEW_ARRAY(a, uint32_t, v.n);
  v.waited = NEW_ARRAY(a, uint32_t, v.n * (size_t)CLASSES);
  v.records = NEW_ARRAY(a, uint32_t, (size_t)k->ninstr + 1);
  v.recorded = NEW_ARRAY(a, uint32_t, k->nevent);
  for (uint32_t i = 0; i < k->nsync; i++) {
    const PipeSync *y = &k->sync[i], *last = i > 0 ? y - 1 : y;
    uint32_t row = y->after == NONE ? 0 : y->after + 1;
    BUG_IF(y->event >= k->nevent || row > y->before || y->before > k->ninstr);
    BUG_IF(y->before < last->before ||
           (i > 0 && y->before == last->before && last->after != NONE && last->after >= y->after));
    BUG_IF(v.records[row] && v.records[row] != y->event + 1);
    /* an action begins, and a group of transfers begins and ends, at once */
    BUG_IF(y->before > 0 && k->instr[y->before - 1].group > 0);
    BUG_IF(row > 0 && k->instr[row - 1].group > 0 && k->instr[row - 1].op >= PIPE_SEND_F);
    v.records[row] = y->event + 1;
    used += v.recorded[y->event] == 0;
    v.recorded[y->event] = 1;
  }
  BUG_IF(used != k->nevent);
  memset(v.recorded, 0, k->nevent * sizeof *v.recorded);
  for (uint32_t x = 1; x < v.n; x++)
    v.heard[x * (size_t)v.n] = UINT32_MAX; /* not even that the step has begun */
  return v;
}

/* Row + 1 has come to its end on stream `on`, 0 to the begin of the step. */
static void record(VerifySync *v, uint32_t row, uint32_t on) {
  uint32_t event = v->records[row];
  if (event == 0)
    return;
  v->recorded[event - 1] = row + 1;
  for (uint32_t x = 0; x < v->n; x++)
    v->sent[v->n * (size_t)(event - 1) + x] = v->heard[on * (size_t)v->n + x];
}

static void hear(VerifySync *v, uint32_t row, uint32_t on) {
  for (; v->next < v->k->nsync && v->k->sync[v->next].before == row; v->next++) {
    const PipeSync *y = &v->k->sync[v->next];
    BUG_IF(v->recorded[y->event] != (y->after == NONE ? 1 : y->after + 2));
    for (uint32_t x = 0; x < v->n; x++) {
      uint32_t n = v->sent[v->n * (size_t)y->event + x], *mine = &v->heard[on * (size_t)v->n + x];
      bool less = *mine == UINT32_MAX || (n != UINT32_MAX && n > *mine);
      *mine = less ? n : *mine;
    }
  }
}

static bool heard(const VerifySync *v, uint32_t on, uint32_t other, uint32_t count) {
  uint32_t n = v->heard[on * (size_t)v->n + other];
  return n != UINT32_MAX && n >= count;
}

bool verify_synced(const VerifySync *v, uint32_t row, int other, uint32_t count) {
  uint32_t on = v->stream[row];
  if (!v->channels || other != 1) /* engines without events go by counts */
    return v->waited[on * CLASSES + (uint32_t)other] >= count &&
           heard(v, on, (uint32_t)other, count);
  if (count == 0)
    return heard(v, on, 0,
                 0); /* and that is all that one stream can know of one that has not begun */
  if (on < CLASSES && v->waited[on * CLASSES + 1] < count)
    return false;
  uint32_t last = v->comm[count - 1];
  return last < row && (v->stream[last] == on || heard(v, on, v->stream[last], v->nth[last]));
}

void verify_sync_row(VerifySync *v, uint32_t row) {
  const PipeInstr *in = &v->k->instr[row];
  uint32_t on = v->stream[row];
  int class = stream_of(in->op);
  if (row == 0)
    record(v, 0, 0);
  hear(v, row, on);
  for (int x = 0; x < CLASSES; x++) {
    uint32_t wait = x == class ? 0 : pipe_wait_for(in, (PipeOn)x),
             *most = &v->waited[on * CLASSES + (uint32_t)x];
    *most = wait > *most ? wait : *most;
    BUG_IF(x != class && !verify_synced(v, row, x, wait));
  }
}

void verify_sync_done(VerifySync *v, uint32_t row) {
  uint32_t on = v->stream[row];
  v->heard[on * (size_t)v->n + on]++;
  v->nth[row] = ++v->done[on];
  record(v, row + 1, on);
  if (row + 1 < v->k->ninstr)
    return;
  hear(v, row + 1, 0);
  BUG_IF(v->next != v->k->nsync);
  for (uint32_t x = 1; x < v->n; x++)
    BUG_IF(!heard(v, 0, x, v->done[x]));
}
