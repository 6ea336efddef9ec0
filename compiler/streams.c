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
 * ones, of an instruction with several, do not imply. So none can be left out. Only what a count asks for is
 * recorded, directly after the instruction that completes it, so one record may serve two waits. The transfers of
 * a group are issued together, and complete together: nothing is waited for or recorded between them.
 *
 * An event is free for the next record once its last wait has been issued (a wait is for the record that
 * was issued last before it). Linear. */
#include "streams.h"

#include <string.h>

/* ---- the streams of a rank ---- */

RankStreams rank_streams(Arena *a, const Sched *s, uint32_t r, const PipeRank *k) {
  RankStreams w = {.k = k, .n = PIPE_NSTREAMS};
  if (s->lowering != PIPE_CHANNELS)
    return w;
  uint32_t first = NONE, *done = NEW_ARRAY(a, uint32_t, s->npipe_channel + (size_t)PIPE_NSTREAMS);
  w.of = NEW_ARRAY(a, uint32_t, s->npipe_channel);
  w.nth = arena_alloc(a, k->ninstr * sizeof *w.nth + 1);
  w.need = row_needs(a, s, r, k);
  for (uint32_t i = 0; i < k->ninstr; i++) {
    const PipeInstr *in = &k->instr[i];
    if (pipe_op_info[in->op].comm && in->gout != first && !w.of[in->gout]) {
      w.of[in->gout] = first == NONE ? (uint32_t)PIPE_COMM : w.n++;
      first = first == NONE ? in->gout : first;
    }
    w.nth[i] = ++done[stream_of_row(&w, in)];
  }
  return w;
}

void clock_needed(const RankStreams *w, uint32_t row, uint32_t *clock) {
  const PipeInstr *in = &w->k->instr[row];
  PipeOn own = (PipeOn)pipe_op_info[in->op].stream;
  memset(clock, 0, w->n * sizeof *clock);
  for (int x = 0; x < PIPE_NSTREAMS; x++)
    if (x != (int)own && (x != PIPE_COMM || !w->of))
      clock[x] = pipe_wait_for(in, (PipeOn)x) + (x == PIPE_COMPUTE);
  for (uint32_t j = w->of ? w->need.first[row] : 0; w->of && j < w->need.first[row + 1]; j++) {
    uint32_t on = w->need.on[j], x = stream_of_row(w, &w->k->instr[on]);
    clock[x] = w->nth[on] > clock[x] ? w->nth[on] : clock[x];
  }
}

/* ---- events ---- */

typedef struct Place {
  Arena *tmp;
  const PipeRank *k;
  RankStreams w;
  uint32_t **row;  /* of each instruction of a stream; COMPUTE from 1 on */
  uint32_t *known; /* [ninstr + 1] clocks: row i + 1: once instruction i is over; 0: the begin */
  uint32_t *now;   /* [streams] clocks: what each stream knows so far */
  uint32_t *on, *after; /* [streams] of the row at hand: streams to wait for, and which row + 1 */
  PipeSync *sync;
  uint32_t nsync, cap;
} Place;

static uint32_t *known(const Place *p, uint32_t row) { return &p->known[(size_t)row * p->w.n]; }
static uint32_t *now(const Place *p, uint32_t stream) { return &p->now[(size_t)stream * p->w.n]; }

/* Row + 1 of the instruction that makes `count` of a stream complete: of a group of transfers the last. */
static uint32_t completes(const Place *p, uint32_t on, uint32_t count) {
  if (on == PIPE_COMPUTE && count == 1)
    return 0;
  uint32_t row = p->row[on][count - 1];
  return row + 1 + (on == PIPE_COMM ? p->k->instr[row].group : 0);
}

static void wait_for(Place *p, uint32_t before, uint32_t of, uint32_t after) {
  if (p->nsync == p->cap)
    vec_grow(p->tmp, (void **)&p->sync, &p->cap, sizeof *p->sync);
  p->sync[p->nsync++] = (PipeSync){after ? after - 1 : NONE, before, NONE};
  clock_join(now(p, of), known(p, after), p->w.n);
}

/* Row `before` of stream `of` needs that these counts of the other streams are over. */
static void place_waits(Place *p, uint32_t before, uint32_t of, const uint32_t *need) {
  uint32_t n = 0, kept = 0;
  for (uint32_t x = 0; x < p->w.n; x++)
    if (x != of && need[x] > now(p, of)[x]) {
      p->on[n] = x;
      p->after[n++] = completes(p, x, need[x]);
    }
  for (uint32_t i = 0; i < n; i++) { /* does one of the others imply it? */
    bool implied = false;
    for (uint32_t j = 0; j < n && !implied; j++)
      implied = (j < kept || j > i) && known(p, p->after[j])[p->on[i]] >= need[p->on[i]];
    if (!implied) {
      p->on[kept] = p->on[i];
      p->after[kept++] = p->after[i];
    }
  }
  for (uint32_t i = 0; i < kept; i++) { /* by `after` */
    uint32_t least = i;
    for (uint32_t j = i + 1; j < kept; j++)
      least = p->after[j] < p->after[least] ? j : least;
    uint32_t after = p->after[least];
    p->after[least] = p->after[i];
    wait_for(p, before, of, after);
  }
}

/* Numbers the events, in issue order: the lowest that is free. */
static uint32_t number_events(Place *p) {
  uint32_t n = p->k->ninstr, nevent = 0, nfree = 0;
  uint32_t *last = NEW_ARRAY(p->tmp, uint32_t,
                             n + 1); /* by row + 1: the last row that waits, + 1 */
  uint32_t *event = NEW_ARRAY(p->tmp, uint32_t, n + 1),
           *free_ = NEW_ARRAY(p->tmp, uint32_t, p->nsync);
  for (uint32_t i = 0; i < p->nsync; i++)
    last[p->sync[i].after + 1] = p->sync[i].before + 1; /* `before` ascends */
  for (uint32_t i = 0, j = 0; i <= n; i++) {            /* i: row + 1 */
    for (; i > 0 && j < p->nsync && p->sync[j].before == i - 1; j++) {
      p->sync[j].event = event[p->sync[j].after + 1];
      if (last[p->sync[j].after + 1] == i)
        free_[nfree++] = p->sync[j].event;
    }
    if (last[i])
      event[i] = nfree > 0 ? free_[--nfree] : nevent++;
  }
  for (uint32_t j = p->nsync; j-- > 0 && p->sync[j].before == n;)
    p->sync[j].event = event[p->sync[j].after + 1];
  return nevent;
}

void place_events(Sched *s, uint32_t r, PipeRank *k) {
  Arena *a = s->arena, tmp = {.oom = a->oom};
  Place p = {.tmp = &tmp, .k = k, .w = rank_streams(&tmp, s, r, k)};
  uint32_t ns = p.w.n, *done = NEW_ARRAY(&tmp, uint32_t, ns), *need = NEW_ARRAY(&tmp, uint32_t, ns);
  uint32_t *size = NEW_ARRAY(&tmp, uint32_t, ns);
  p.known = NEW_ARRAY(&tmp, uint32_t, ((size_t)k->ninstr + 1) * ns);
  p.now = NEW_ARRAY(&tmp, uint32_t, (size_t)ns * ns);
  p.on = NEW_ARRAY(&tmp, uint32_t, ns), p.after = NEW_ARRAY(&tmp, uint32_t, ns);
  p.row = NEW_ARRAY(&tmp, uint32_t *, ns);
  for (uint32_t i = 0; i < k->ninstr; i++)
    size[stream_of_row(&p.w, &k->instr[i])]++;
  for (uint32_t x = 0; x < ns; x++)
    p.row[x] = arena_alloc(&tmp, ((size_t)size[x] + 1) * sizeof **p.row);
  done[PIPE_COMPUTE] = now(&p, PIPE_COMPUTE)[PIPE_COMPUTE] = known(&p, 0)[PIPE_COMPUTE] = 1;
  for (uint32_t i = 0; i < k->ninstr; i++) {
    uint32_t of = stream_of_row(&p.w, &k->instr[i]);
    clock_needed(&p.w, i, need);
    place_waits(&p, i, of, need);
    p.row[of][done[of]] = i;
    now(&p, of)[of] = ++done[of];
    memcpy(known(&p, i + 1), now(&p, of), ns * sizeof *p.known);
  }
  place_waits(&p, k->ninstr, PIPE_COMPUTE, done);
  PipeSync *sync = arena_alloc(a, (size_t)p.nsync * sizeof *sync + 1);
  k->nevent = number_events(&p);
  if (p.nsync)
    memcpy(sync, p.sync, p.nsync * sizeof *sync);
  k->sync = sync, k->nsync = p.nsync;
  arena_free(&tmp);
}
