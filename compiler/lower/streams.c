/* SPDX-License-Identifier: MIT
 * Turns the waits of a list into events between streams (PipeSync). Requires the complete list of a
 * rank in issue order; ensures sync and nevent.
 *
 * note [clocks]: a stream knows how far each stream of its rank has come (vector clocks). It knows
 * its own earlier instructions. Through each event it also knows what the other stream knew when it
 * recorded the event. Counts of COMPUTE start at 1, for the begin of the step, which every stream
 * waits for. The end of the step, the last point of COMPUTE, waits for all instructions. COMM
 * learns nothing about other ranks: a path that leaves the rank leaves and returns in the COMM
 * stream.
 *
 * An instruction gets an event for each wait that its stream does not know to be over and that its
 * other waits do not imply. So every event is necessary. A record stands directly after the
 * instruction that completes a count, so one record may serve two waits. The transfers of a group
 * are issued together and complete together: no wait and no record stands between them. A wait
 * refers to the latest record of its event, so an event may be recorded again once its last wait
 * has been issued.
 *
 * Cost: linear in instructions times streams (channels may make many), plus the square of the
 * number of streams that one instruction waits for. */
#include "streams.h"
#include "lower.h"

#include "pipe_rows.h"

#include <string.h>

/* ---- the streams of a rank ---- */

RankStreams rank_streams(Arena *a, const Sched *s, uint32_t r, const PipeRank *k) {
  bool channels = s->lowered->lowering == PIPE_CHANNELS;
  RankStreams w = {.k = k, .n = s->orders->ncopy || channels ? PIPE_NSTREAMS : PIPE_COPY};
  w.count = NEW_ARRAY(a, uint32_t, s->lowered->npipe_channel + (size_t)PIPE_NSTREAMS);
  if (!channels) {
    const Streams *t = &s->lowered->stream[r];
    w.count[PIPE_COMPUTE] = t->ncompute, w.count[PIPE_COMM] = t->ncomm;
    w.count[PIPE_COPY] = t->ncopy;
    return w;
  }
  uint32_t first = NONE;
  w.of = NEW_ARRAY(a, uint32_t, s->lowered->npipe_channel);
  w.nth = arena_alloc(a, k->ninstr * sizeof *w.nth + 1);
  w.need = row_needs(a, s, r, k);
  for (uint32_t i = 0; i < k->ninstr; i++) {
    const PipeInstr *in = &k->instr[i];
    if (pipe_op_info[in->op].comm && in->channel != first && !w.of[in->channel]) {
      w.of[in->channel] = first == NONE ? (uint32_t)PIPE_COMM : w.n++;
      first = first == NONE ? in->channel : first;
    }
    w.nth[i] = ++w.count[stream_of_row(&w, in)];
  }
  return w;
}

StreamRoom stream_room(Arena *a, const RankStreams *w) {
  size_t n = w->n;
  StreamRoom e = {arena_alloc(a, (w->k->ninstr + (size_t)1) * n * sizeof *e.known),
                  NEW_ARRAY(a, uint32_t, n * n), NEW_ARRAY(a, uint32_t, n)};
  memset(e.known, 0, n * sizeof *e.known);
  e.done[PIPE_COMPUTE] = e.now[PIPE_COMPUTE] = e.known[PIPE_COMPUTE] = 1;
  return e;
}

/* ---- events ---- */

typedef struct Place {
  Arena *arena; /* of this rank */
  const PipeRank *k;
  RankStreams w;
  StreamRoom room;
  uint32_t **row;       /* [streams] rows of the list by position; COMPUTE: from position 1 */
  uint32_t *need;       /* clock */
  uint32_t *on, *after; /* [streams] of the current row: streams to wait for; row + 1 there */
  VEC(PipeSync) sync;
  uint32_t *events; /* room for pipe_number_events */
} Place;

/* Row + 1 of the instruction that completes `count` of stream `on`; in a group: of its last
 * transfer. */
static uint32_t completes(const Place *p, uint32_t on, uint32_t count) {
  if (on == PIPE_COMPUTE && count == 1)
    return 0;
  uint32_t row = p->row[on][count - 1];
  return row + 1 + (on == PIPE_COMM ? p->k->instr[row].group : 0);
}

/* ns is always p->w.n: a parameter, so that callers can pass a constant. */
static inline const uint32_t *known(const Place *p, uint32_t row, const uint32_t ns) {
  return &p->room.known[(size_t)row * ns];
}

static inline void wait_for(Place *p, uint32_t before, uint32_t of, uint32_t after,
                            const uint32_t ns) {
  *vec_push(p->arena, &p->sync) = (PipeSync){after ? after - 1 : NONE, before, NONE};
  clock_join(&p->room.now[(size_t)of * ns], known(p, after, ns), ns);
}

/* Places the waits of row `before`, in stream `of`: need[x] instructions of each other stream x. */
static inline void place_waits(Place *p, uint32_t before, uint32_t of, const uint32_t *need,
                               const uint32_t ns) {
  uint32_t n = 0, kept = 0;
  for (uint32_t x = 0; x < ns; x++)
    if (x != of && need[x] > p->room.now[(size_t)of * ns + x]) {
      p->on[n] = x;
      p->after[n++] = completes(p, x, need[x]);
    }
  if (n < 2) {
    if (n == 1)
      wait_for(p, before, of, p->after[0], ns);
    return;
  }
  for (uint32_t i = 0; i < n; i++) { /* drops waits that another wait implies */
    bool implied = false;
    for (uint32_t j = 0; j < n && !implied; j++)
      implied = (j < kept || j > i) && known(p, p->after[j], ns)[p->on[i]] >= need[p->on[i]];
    if (!implied) {
      p->on[kept] = p->on[i];
      p->after[kept++] = p->after[i];
    }
  }
  for (uint32_t i = 0; i < kept; i++) { /* the others in list order */
    uint32_t least = i;
    for (uint32_t j = i + 1; j < kept; j++)
      least = p->after[j] < p->after[least] ? j : least;
    uint32_t after = p->after[least];
    p->after[least] = p->after[i];
    wait_for(p, before, of, after, ns);
  }
}

static inline void place_rank(Place *p, const uint32_t ns) {
  const PipeInstr *const instr = p->k->instr;
  const uint32_t ninstr = p->k->ninstr;
  uint32_t *const done = p->room.done, *known_now = p->room.known, *const *const row = p->row;
  uint32_t few[PIPE_NSTREAMS], *need = ns <= PIPE_NSTREAMS ? few : p->need;
  for (uint32_t i = 0; i < ninstr; i++) {
    uint32_t of = stream_of_row(&p->w, &instr[i]), *now = &p->room.now[(size_t)of * ns];
    clock_needed(&p->w, i, need, ns);
    place_waits(p, i, of, need, ns);
    row[of][done[of]] = i;
    now[of] = ++done[of];
    clock_copy(known_now += ns, now, ns);
  }
  place_waits(p, ninstr, PIPE_COMPUTE, done, ns);
}

/* Room for place_rank. */
static Place start_place(Arena *a, const Sched *s, uint32_t r, const PipeRank *k) {
  size_t rows = k->ninstr + (size_t)1;
  Place p = {.arena = a, .k = k, .w = rank_streams(a, s, r, k)};
  uint32_t n = p.w.n, *cell = arena_alloc(a, rows * sizeof *cell);
  p.room = stream_room(a, &p.w);
  p.row = arena_alloc(a, n * sizeof *p.row);
  for (uint32_t x = 0; x < n; x++) {
    p.row[x] = cell;
    cell += p.w.count[x] + (x == PIPE_COMPUTE);
  }
  p.need = arena_alloc(a, n * sizeof *p.need);
  p.on = arena_alloc(a, n * sizeof *p.on), p.after = arena_alloc(a, n * sizeof *p.after);
  p.events = arena_alloc(a, 3 * rows * sizeof *p.events);
  return p;
}

void place_events(Sched *s, PipeRank *k, uint32_t r) {
  Arena own = {0};
  Place p = start_place(&own, s, r, k);
  if (p.w.n == PIPE_COPY)
    place_rank(&p, PIPE_COPY);
  else
    place_rank(&p, p.w.n);
  k->nevent = pipe_number_events(p.sync.at, p.sync.n, k->ninstr, p.events);
  PipeSync *sync = arena_alloc(s->arena, p.sync.n * sizeof *sync);
  if (p.sync.n)
    memcpy(sync, p.sync.at, p.sync.n * sizeof *sync);
  k->sync = sync, k->nsync = p.sync.n;
  arena_free(&own);
}
