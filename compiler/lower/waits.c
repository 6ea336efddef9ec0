/* SPDX-License-Identifier: MIT
 * The waits of instructions: from counts and needs to lists (list_waits), and from these to the
 * lists of the program (prune_waits), without waits that follow from others.
 *
 * note [clocks]: a queue knows how far each queue of its rank has come (vector clocks). It knows
 * its own earlier instructions. By a wait it learns what the other queue knew once the row waited
 * for was over. Counts of COMPUTE are one more here, for the start of the step, which every queue
 * waits for. The end of the step, the last point of COMPUTE, waits for all instructions. COMM
 * learns nothing about other ranks: a path that leaves the rank leaves and returns in COMM.
 *
 * An instruction gets a wait for each queue of which its own does not know enough, unless its other
 * waits imply it. So every wait is necessary. The transfers of a group complete together: a wait
 * for one of them is for all. The validator of the runtime checks the result (validate_waits.c).
 *
 * Cost: linear in instructions times queues (channels may make many), plus the square of the number
 * of queues that one instruction waits for, and a sort of the needs of channels. */
#include <string.h>

#include "lower.h"

/* ---- lists ---- */

void keep_need(Sched *s, Streams *t, const Counts *of, uint32_t count) {
  if (t->nneed == t->capneed)
    vec_grow(s->arena, (void **)&t->need, &t->capneed, sizeof *t->need);
  t->need[t->nneed++] = (Need){(uint32_t)(of - t->counts), count - 1};
}

/* The list of a rank while it is made. */
typedef struct Listing {
  Streams *streams;
  uint32_t *nth;  /* with channels: [ncomm] position in its channel, from 1; else NULL */
  uint32_t *last; /* [channels] 1 + row of Streams.wait for the channel */
} Listing;

static void push_wait(Streams *t, PipeInstr *c, PipeWait wait) {
  t->wait[t->nwait++] = wait;
  c->nwait++;
}

/* Instruction i of all streams, as in Streams.counts. */
static PipeInstr *instr_at(const Streams *t, uint32_t i) {
  if (i < t->ncompute)
    return &t->compute[i];
  i -= t->ncompute;
  return i < t->ncomm ? &t->comm[i] : &t->copy[i - t->ncomm];
}

static int by_need(const void *a, const void *b) {
  const Need *x = a, *y = b;
  return x->of != y->of ? (x->of < y->of ? -1 : 1) : x->on < y->on ? -1 : x->on > y->on;
}

static void sort_needs(Arena *a, const Lowered *lowered, Listing *list) {
  Streams *t = list->streams;
  list->nth = arena_alloc(a, t->ncomm * sizeof *list->nth + 1);
  list->last = NEW_ARRAY(a, uint32_t, lowered->npipe_channel);
  for (uint32_t i = 0; i < t->nneed; i++) /* the first op of an action waits for the whole action */
    while (t->need[i].of > 0 && t->need[i].of < t->ncompute &&
           t->compute[t->need[i].of - 1].group > 0)
      t->need[i].of--;
  if (t->nneed > 1)
    qsort(t->need, t->nneed, sizeof *t->need, by_need);
  for (uint32_t i = 0; i < t->ncomm; i++)
    list->nth[i] = ++list->last[t->comm[i].channel];
  memset(list->last, 0, lowered->npipe_channel * sizeof *list->last);
}

/* Adds the needs of instruction i, from row *at on: of each channel the last. */
static void list_needs(const Listing *list, uint32_t i, uint32_t *at) {
  Streams *t = list->streams;
  PipeInstr *c = instr_at(t, i);
  for (; *at < t->nneed && t->need[*at].of == i; ++*at) {
    const uint32_t on = t->need[*at].on, channel = t->comm[on].channel;
    if (list->last[channel] > c->waits) {
      t->wait[list->last[channel] - 1].count = list->nth[on];
      continue;
    }
    push_wait(t, c, (PipeWait){PIPE_NSTREAMS + channel, list->nth[on]});
    list->last[channel] = t->nwait;
  }
}

/* Is instruction i waiting for a stream, and this not by needs? */
static bool waits_on(const Listing *list, uint32_t i, uint32_t on) {
  return list->streams->counts[i].on[on] > 0 && (on != PIPE_COMM || !list->nth);
}

static void room_for_waits(Arena *a, const Listing *list) {
  Streams *t = list->streams;
  const size_t n = instrs_of(t);
  uint32_t most = list->nth ? t->nneed : 0;
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t on = 0; on < PIPE_NSTREAMS; on++)
      most += waits_on(list, i, on);
  if (most <= t->capwait && t->wait)
    return;
  t->capwait = most;
  t->wait = arena_alloc(a, most * sizeof *t->wait + 1);
}

static void list_rank(const Listing *list) {
  Streams *t = list->streams;
  const size_t n = instrs_of(t);
  t->nwait = 0;
  for (uint32_t i = 0, at = 0; i < n; i++) {
    PipeInstr *c = instr_at(t, i);
    c->waits = t->nwait, c->nwait = 0;
    for (uint32_t on = 0; on < PIPE_NSTREAMS; on++)
      if (waits_on(list, i, on))
        push_wait(t, c, (PipeWait){on, t->counts[i].on[on]});
    if (list->nth)
      list_needs(list, i, &at);
  }
}

void list_waits(Sched *s, Lowered *lowered) {
  Arena own = {0};
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    Listing list = {.streams = &lowered->stream[r]};
    if (lowered->lowering == PIPE_CHANNELS)
      sort_needs(&own, lowered, &list);
    room_for_waits(s->arena, &list);
    list_rank(&list);
  }
  arena_free(&own);
}

/* ---- necessary waits ---- */

typedef struct Prune {
  Arena *arena; /* scratch of this rank */
  const Sched *s;
  const PipeWait *all;
  PipeInstr *instr;
  uint32_t ninstr, n; /* n: queues */
  uint32_t *number;   /* [PIPE_NSTREAMS + channels] of the queues of the rank; NONE */
  uint32_t *queue;    /* [n] */
  uint32_t **row;     /* [n] rows by position in the queue */
  uint32_t *known;    /* [ninstr + 1][n] what is known once row i - 1 is over; row 0: the start */
  uint32_t *now;      /* [n][n] what each queue knows so far */
  uint32_t *done;     /* [n] instructions so far */
  uint32_t *need, *on, *after; /* [n] of the current row: counts; queues, and row + 1 there */
  PipeWait *wait;              /* the result */
  uint32_t nwait;
  WaitRange *range; /* Lowered.all_waits of the rank; NULL: not kept */
} Prune;

static uint32_t number_of(const Prune *p, const PipeInstr *in) {
  return p->number[pipe_queue(p->s->lowered->lowering, in)];
}

/* Row + 1 of the instruction that ends the count of a queue; in a group: of its last transfer. */
static uint32_t row_after(const Prune *p, uint32_t on, uint32_t count) {
  if (on == PIPE_COMPUTE && count == 1)
    return 0;
  const uint32_t row = p->row[on][count - 1];
  return row + 1 + (pipe_op_info[p->instr[row].op].comm ? p->instr[row].group : 0);
}

/* ns, here and below, is p->n: a constant makes faster code. */
static inline const uint32_t *clock_after(const Prune *p, uint32_t after, const uint32_t ns) {
  return &p->known[(size_t)after * ns];
}

static inline void take_wait(Prune *p, uint32_t of, uint32_t on, uint32_t after,
                             const uint32_t ns) {
  const uint32_t *clock = clock_after(p, after, ns);
  uint32_t *now = &p->now[(size_t)of * ns];
  p->wait[p->nwait++] = (PipeWait){p->queue[on], clock[on] - (on == PIPE_COMPUTE)};
  for (uint32_t x = 0; x < ns; x++)
    now[x] = clock[x] > now[x] ? clock[x] : now[x];
}

/* Places the waits of a row of queue `of`, which needs need[x] instructions of each queue x. */
static inline void place_waits(Prune *p, uint32_t of, const uint32_t *need, const uint32_t ns) {
  uint32_t n = 0, kept = 0;
  for (uint32_t x = 0; x < ns; x++)
    if (x != of && need[x] > p->now[(size_t)of * ns + x]) {
      p->on[n] = x;
      p->after[n++] = row_after(p, x, need[x]);
    }
  if (n < 2) {
    if (n == 1)
      take_wait(p, of, p->on[0], p->after[0], ns);
    return;
  }
  for (uint32_t i = 0; i < n; i++) { /* drops waits that another wait implies */
    bool implied = false;
    for (uint32_t j = 0; j < n && !implied; j++)
      implied = (j < kept || j > i) && clock_after(p, p->after[j], ns)[p->on[i]] >= need[p->on[i]];
    if (!implied) {
      p->on[kept] = p->on[i];
      p->after[kept++] = p->after[i];
    }
  }
  for (uint32_t i = 0; i < kept; i++) { /* the others in list order */
    uint32_t least = i;
    for (uint32_t j = i + 1; j < kept; j++)
      least = p->after[j] < p->after[least] ? j : least;
    const uint32_t after = p->after[least], on = p->on[least];
    p->after[least] = p->after[i];
    p->on[least] = p->on[i];
    take_wait(p, of, on, after, ns);
  }
}

static inline void find_needs(const Prune *p, const PipeInstr *in, uint32_t *need,
                              const uint32_t ns) {
  const PipeWait *wait = &p->all[in->waits], *const end = wait + in->nwait;
  for (uint32_t x = 0; x < ns; x++)
    need[x] = 0;
  need[PIPE_COMPUTE] = 1;
  for (; wait < end; wait++)
    need[ns <= PIPE_NSTREAMS ? wait->queue : p->number[wait->queue]] = wait->count + (wait->queue ==
                                                                                      PIPE_COMPUTE);
}

static inline void prune_rank(Prune *p, const uint32_t ns) {
  uint32_t few[PIPE_NSTREAMS], *need = ns <= PIPE_NSTREAMS ? few : p->need;
  uint32_t *known = p->known;
  for (uint32_t i = 0; i < p->ninstr; i++) {
    PipeInstr *in = &p->instr[i];
    const uint32_t of = ns == PIPE_COPY ? pipe_stream_of(in->op) : number_of(p, in);
    uint32_t *now = &p->now[(size_t)of * ns];
    find_needs(p, in, need, ns);
    if (p->range)
      p->range[i] = (WaitRange){in->waits, in->nwait};
    in->waits = p->nwait;
    place_waits(p, of, need, ns);
    in->nwait = p->nwait - in->waits;
    p->row[of][p->done[of]] = i;
    now[of] = ++p->done[of];
    known += ns;
    for (uint32_t x = 0; x < ns; x++)
      known[x] = now[x];
  }
  place_waits(p, PIPE_COMPUTE, p->done, ns);
}

/* Numbers the queues of the rank. Those of a program without channels have the numbers of their
 * streams. */
static void number_queues(Prune *p, const Streams *t) {
  const bool channels = p->s->lowered->lowering == PIPE_CHANNELS;
  const size_t most = PIPE_NSTREAMS + (size_t)p->s->lowered->npipe_channel;
  p->number = arena_alloc(p->arena, most * sizeof *p->number);
  p->queue = arena_alloc(p->arena, most * sizeof *p->queue);
  memset(p->number, 0xff, most * sizeof *p->number);
  for (uint32_t x = 0; x < (t->ncopy || channels ? PIPE_NSTREAMS : PIPE_COPY); x++)
    p->number[x] = x, p->queue[p->n++] = x;
  for (uint32_t i = 0; i < p->ninstr && channels; i++) {
    const uint32_t queue = pipe_queue(PIPE_CHANNELS, &p->instr[i]);
    if (p->number[queue] == NONE)
      p->number[queue] = p->n, p->queue[p->n++] = queue;
  }
}

/* Room for prune_rank. */
static void start_prune(Prune *p, const Streams *t) {
  const size_t rows = p->ninstr + (size_t)1;
  uint32_t *cell = arena_alloc(p->arena, rows * sizeof *cell);
  number_queues(p, t);
  const size_t n = p->n;
  p->known = arena_alloc(p->arena, rows * n * sizeof *p->known);
  p->now = NEW_ARRAY(p->arena, uint32_t, n * n);
  p->done = NEW_ARRAY(p->arena, uint32_t, n);
  p->need = arena_alloc(p->arena, n * sizeof *p->need);
  p->on = arena_alloc(p->arena, n * sizeof *p->on);
  p->after = arena_alloc(p->arena, n * sizeof *p->after);
  p->row = arena_alloc(p->arena, n * sizeof *p->row);
  for (uint32_t i = 0; i < p->ninstr; i++)
    p->done[number_of(p, &p->instr[i])]++;
  for (uint32_t x = 0; x < n; x++) {
    p->row[x] = cell;
    cell += p->done[x] + (x == PIPE_COMPUTE); /* its positions are from 1 on */
    p->done[x] = 0;
  }
  memset(p->known, 0, n * sizeof *p->known);
  p->done[PIPE_COMPUTE] = p->now[PIPE_COMPUTE] = p->known[PIPE_COMPUTE] = 1;
}

void prune_waits(Sched *s, const Streams *t, PipeRank *k, PipeInstr *instr, WaitRange *range) {
  Arena own = {0};
  Prune p = {
      .arena = &own, .s = s, .all = t->wait, .instr = instr, .ninstr = k->ninstr, .range = range};
  start_prune(&p, t);
  /* each queue waits for the start, and the end for each queue */
  p.wait = arena_alloc(s->arena, (t->nwait + 2 * (size_t)p.n) * sizeof *p.wait);
  if (p.n == PIPE_COPY)
    prune_rank(&p, PIPE_COPY);
  else
    prune_rank(&p, p.n);
  k->wait = p.wait, k->nwait = p.nwait;
  arena_free(&own);
}
