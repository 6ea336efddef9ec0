/* SPDX-License-Identifier: MIT
 * Our own mistakes in the events of a rank; part of verify.c, which asks before each access of a slot
 * whether the last ones of other streams are over (verify_synced). Takes nothing from the passes that
 * placed and proved them: here an event is a message that its stream sends when it records, with all
 * that it has heard of by then, and that is read where it is waited for. Linear in instructions and events. */
#include "verify.h"

enum { ROWS = 3 }; /* streams: COMPUTE, COMM, COPY */

VerifySync verify_sync_begin(const PipeRank *k, Arena *a) {
  VerifySync v = {.k = k, .sent = NEW_ARRAY(a, uint32_t, ROWS * (size_t)k->nevent)};
  v.records = NEW_ARRAY(a, uint32_t, (size_t)k->ninstr + 1);
  v.recorded = NEW_ARRAY(a, uint32_t, k->nevent);
  BUG_IF((k->nsync == 0) != (k->nevent == 0));
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
  }
  v.heard[1][0] = v.heard[2][0] = UINT32_MAX; /* not even that the step has begun */
  return v;
}

/* Row + 1 has come to its end on stream `on`, 0 to the begin of the step. */
static void record(VerifySync *v, uint32_t row, int on) {
  uint32_t event = v->records[row];
  if (event == 0)
    return;
  v->recorded[event - 1] = row + 1;
  for (int x = 0; x < ROWS; x++)
    v->sent[ROWS * (event - 1) + (uint32_t)x] = v->heard[on][x];
}

static void hear(VerifySync *v, uint32_t row, int on) {
  for (; v->next < v->k->nsync && v->k->sync[v->next].before == row; v->next++) {
    const PipeSync *y = &v->k->sync[v->next];
    BUG_IF(v->recorded[y->event] != (y->after == NONE ? 1 : y->after + 2));
    for (int x = 0; x < ROWS; x++) {
      uint32_t n = v->sent[ROWS * y->event + (uint32_t)x], *mine = &v->heard[on][x];
      bool less = *mine == UINT32_MAX || (n != UINT32_MAX && n > *mine);
      *mine = less ? n : *mine;
    }
  }
}

bool verify_synced(const VerifySync *v, int on, int other, uint32_t count) {
  uint32_t n = v->heard[on][other];
  return n != UINT32_MAX && n >= count;
}

void verify_sync_row(VerifySync *v, uint32_t row, int on) {
  const PipeInstr *in = &v->k->instr[row];
  if (row == 0)
    record(v, 0, 0);
  hear(v, row, on);
  for (int x = 0; x < ROWS; x++)
    BUG_IF(x != on && !verify_synced(v, on, x, pipe_wait_for(in, (PipeOn)x)));
}

void verify_sync_done(VerifySync *v, uint32_t row, int on) {
  v->heard[on][on]++;
  v->done[on]++;
  record(v, row + 1, on);
  if (row + 1 < v->k->ninstr)
    return;
  hear(v, row + 1, 0);
  BUG_IF(v->next != v->k->nsync);
  for (int x = 1; x < ROWS; x++)
    BUG_IF(!verify_synced(v, 0, x, v->done[x]));
}
