/* SPDX-License-Identifier: MIT
 * The waits of a list as events between streams (PipeSync). Requires a rank's instr and ninstr in issue
 * order; ensures sync and nevent.
 *
 * note [clocks]: what a stream knows is how far each stream of the rank has come: its own instructions
 * in order, and through each event what the other stream knew when it recorded it. Counts of COMPUTE
 * begin with 1 for the begin of the step, which everything has to wait for; the end of the step, which
 * COMPUTE comes to last, waits for all instructions. Of COMM nothing is learnt about other ranks: a way
 * that leaves the rank and returns does both in its COMM stream.
 *
 * An instruction gets an event for each wait that its stream does not know to be over, and that the other
 * one, of an instruction with two, does not imply. So none can be left out. Only what a count asks for is
 * recorded, directly after the instruction that completes it, so one record may serve two waits. The transfers of
 * a group are issued together, and complete together: nothing is waited for or recorded between them.
 *
 * An event is free for the next record once its last wait has been issued (a wait is for the record that
 * was issued last before it). Linear. */
#include "streams.h"

#include <string.h>

typedef struct Place {
  const PipeRank *k;
  EventRoom *
      room; /* row: of each instruction of a stream, COMPUTE from 1 on; known: row i + 1: once instruction i
                      is over, 0: the begin */
  Clock now[PIPE_NSTREAMS]; /* what each stream knows so far */
  uint32_t nsync;           /* of room->sync */
} Place;

EventRoom event_room(Arena *a, uint32_t n) {
  size_t rows = (size_t)n + 1;
  EventRoom e = {.n = n,
                 .known = arena_alloc(a, rows * sizeof *e.known),
                 .sync = arena_alloc(a, 2 * rows * sizeof *e.sync),
                 .last = NEW_ARRAY(a, uint32_t, rows),
                 .event = arena_alloc(a, rows * sizeof *e.event),
                 .free = arena_alloc(a, rows * sizeof *e.free)};
  for (int x = 0; x < PIPE_NSTREAMS; x++)
    e.row[x] = arena_alloc(a, rows * sizeof **e.row);
  return e;
}

void forget_event_room(Arena *a, EventRoom *e) {
  size_t rows = (size_t)e->n + 1;
  arena_forget(a, e->known, rows * sizeof *e->known);
  arena_forget(a, e->sync, 2 * rows * sizeof *e->sync);
  arena_forget(a, e->last, rows * sizeof *e->last);
  arena_forget(a, e->event, rows * sizeof *e->event);
  arena_forget(a, e->free, rows * sizeof *e->free);
  for (int x = 0; x < PIPE_NSTREAMS; x++)
    arena_forget(a, e->row[x], rows * sizeof **e->row);
}

/* Row + 1 of the instruction that makes `count` of a stream complete: of a group of transfers the last. */
static uint32_t completes(const Place *p, PipeOn on, uint32_t count) {
  if (on == PIPE_COMPUTE && count == 1)
    return 0;
  uint32_t row = p->room->row[on][count - 1];
  return row + 1 + (on == PIPE_COMM ? p->k->instr[row].group : 0);
}

static void wait_for(Place *p, uint32_t before, PipeOn of, PipeOn on, uint32_t count) {
  uint32_t after = completes(p, on, count);
  p->room->sync[p->nsync++] = (PipeSync){after ? after - 1 : NONE, before, NONE};
  clock_join(&p->now[of], &p->room->known[after]);
}

/* Row `before` of stream `of` needs that these counts of the other streams are over. */
static void place_waits(Place *p, uint32_t before, PipeOn of, const Clock *need) {
  PipeOn on[2];
  uint32_t n = 0;
  for (int x = 0; x < PIPE_NSTREAMS; x++)
    if (x != (int)of && need->of[x] > p->now[of].of[x])
      on[n++] = (PipeOn)x;
  for (uint32_t i = 0; n == 2 && i < 2; i++) /* does one imply the other? */
    if (p->room->known[completes(p, on[i], need->of[on[i]])].of[on[!i]] >= need->of[on[!i]])
      on[0] = on[i], n = 1;
  if (n == 2 && completes(p, on[0], need->of[on[0]]) > completes(p, on[1], need->of[on[1]])) {
    PipeOn first = on[1]; /* by `after` */
    on[1] = on[0], on[0] = first;
  }
  for (uint32_t i = 0; i < n; i++)
    wait_for(p, before, of, on[i], need->of[on[i]]);
}

/* Numbers the events, in issue order: the lowest that is free. */
static uint32_t number_events(Place *p) {
  uint32_t n = p->k->ninstr, nevent = 0, nfree = 0;
  uint32_t *last = p->room->last,
           *event = p->room->event; /* by row + 1; last: the last row that waits, + 1 */
  PipeSync *sync = p->room->sync;
  for (uint32_t i = 0; i < p->nsync; i++)
    last[sync[i].after + 1] = sync[i].before + 1; /* `before` ascends */
  for (uint32_t i = 0, j = 0; i <= n + 1; i++) {  /* i: row + 1 */
    for (; i > 0 && j < p->nsync && sync[j].before == i - 1; j++) {
      uint32_t after = sync[j].after + 1;
      sync[j].event = event[after];
      if (last[after] == i) {
        p->room->free[nfree++] = sync[j].event;
        last[after] = 0;
      }
    }
    if (i <= n && last[i])
      event[i] = nfree > 0 ? p->room->free[--nfree] : nevent++;
  }
  return nevent;
}

void place_events(Arena *a, EventRoom *room, PipeRank *k) {
  Place p = {.k = k, .room = room};
  uint32_t done[PIPE_NSTREAMS] = {1, 0, 0};
  room->known[0] = (Clock){{0}};
  p.now[PIPE_COMPUTE].of[PIPE_COMPUTE] = room->known[0].of[PIPE_COMPUTE] = 1;
  for (uint32_t i = 0; i < k->ninstr; i++) {
    const PipeInstr *in = &k->instr[i];
    PipeOn of = (PipeOn)pipe_op_info[in->op].stream;
    Clock need = clock_needed(in);
    place_waits(&p, i, of, &need);
    room->row[of][done[of]] = i;
    p.now[of].of[of] = ++done[of];
    room->known[i + 1] = p.now[of];
  }
  Clock all = {{done[0], done[1], done[2]}};
  place_waits(&p, k->ninstr, PIPE_COMPUTE, &all);
  PipeSync *sync = arena_alloc(a, (size_t)p.nsync * sizeof *sync + 1);
  k->nevent = number_events(&p);
  if (p.nsync)
    memcpy(sync, room->sync, p.nsync * sizeof *sync);
  k->sync = sync, k->nsync = p.nsync;
}
