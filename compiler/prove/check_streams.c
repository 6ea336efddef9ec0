/* SPDX-License-Identifier: MIT
 * Proves that in-order streams and the events of PipeSync suffice, and that no event is redundant:
 *
 *   covered    an instruction starts only when all that its waits count is over, and the end of the
 *              step when everything is over; two accesses of a slot, or of the gradients of a
 *              stage, on different streams are ordered, whatever the waits say
 *   reused     each wait finds the record that the table means: no later record of its event has
 *              been issued by then
 *   needed     without any single wait something would not be covered
 *   grouped    no wait stands inside an action or a group, and no record inside a group; transfers
 *              of one group share no slot
 *
 * No text makes this proof fail: pipec places the events itself, so a wrong event is a mistake of
 * the compiler. Requires prog; reads only its tables, and shares with streams.c only the meaning of
 * a wait: note [clocks]. Cost: linear in instructions, their tensors and waits, times streams
 * (channels may make many). */
#include <string.h>

#include "prove.h"
#include "plant.h"
#include "streams.h"

typedef struct Proof {
  Sched *s;
  const PipeRank *k;
  RankStreams w;
  StreamRoom room;
  uint32_t r, row;   /* rank; current instruction, or ninstr at the end of the step */
  uint32_t *records; /* [ninstr + 1] 1 + the event recorded after row i - 1; 0: none */
  uint32_t *last;    /* [nevent] 1 + row of its last record; NONE: no record yet */
  uint32_t group;    /* COMM instructions done before the current group */
  /* [nslot + chunks] clocks of slots, then of gradients: the last access on each stream */
  uint32_t *touched;
  uint32_t *need, *before; /* scratch clocks */
  uint32_t *alone; /* [streams] the only wait of the current row that covers this stream; NONE */
} Proof;

/* The current row: its stream, its number there, and what the stream knows. Passed by value, so
 * that stores through other pointers cannot change it. */
typedef struct At {
  uint32_t of, nth;
  uint32_t *now; /* clock */
} At;

static const char *row_text(const Proof *p, uint32_t row) {
  char text[PIPE_OP_TEXT];
  if (row >= p->k->ninstr)
    return row == NONE ? "the begin of the step" : "the end of the step";
  return arena_strndup(p->s->arena, text,
                       (size_t)pipe_instr_text(text, pipe_graph(p->s->prog), &p->k->instr[row]));
}

/* The row at which stream `on` completes `count`; for messages. */
static uint32_t row_of(const Proof *p, uint32_t on, uint32_t count) {
  uint32_t n = on == PIPE_COMPUTE, i = 0;
  while (i < p->k->ninstr && ((n += stream_of_row(&p->w, &p->k->instr[i]) == on) < count))
    i++;
  return i;
}

_Noreturn static void too_early(const Proof *p, uint32_t on, uint32_t count) {
  uint32_t other = on == PIPE_COMPUTE && count <= 1 ? NONE : row_of(p, on, count);
  guard_fail(GUARD_BUG, "rank %u: no event keeps %s from starting before %s is over", p->r,
             row_text(p, p->row), row_text(p, other));
}

/* ns is p->w.n, here and below. */
static inline void check_covered(const Proof *p, At at, const uint32_t *need, const uint32_t ns) {
  for (uint32_t x = 0; x < ns; x++)
    if (x != at.of && at.now[x] < need[x] && !PLANTED(STREAMS_COVERED))
      too_early(p, x, need[x]);
}

static inline void touch(const Proof *p, At at, uint32_t what, const uint32_t ns) {
  uint32_t *t = &p->touched[(size_t)what * ns];
  if (at.of == PIPE_COMM && t[PIPE_COMM] > p->group)
    guard_fail(GUARD_BUG, "rank %u: %s and %s are in one group, but use one slot", p->r,
               row_text(p, row_of(p, PIPE_COMM, t[PIPE_COMM])), row_text(p, p->row));
  if (!PLANTED(STREAMS_SLOTS))
    check_covered(p, at, t, ns);
  t[at.of] = at.nth;
}

static inline void touch_slots(const Proof *p, At at, const PipeInstr *in, uint32_t field,
                               bool input, const uint32_t ns) {
  if (field == NONE)
    return;
  uint32_t n = p->k->list ? pipe_fields(&p->s->prog->stage[in->stage], in->op, input) : 1;
  if (n < 2)
    touch(p, at, field, ns);
  for (uint32_t i = 0; i < n && n >= 2; i++)
    touch(p, at, p->k->list[field + i], ns);
}

/* Records every access of an instruction: slots of its rank, gradients of its stages. */
static inline void touch_all(const Proof *p, At at, const PipeInstr *in, const uint32_t ns) {
  const PipeProgram *g = p->s->prog;
  const Model *m = p->s->model;
  const PipeOpInfo *info = &pipe_op_info[in->op];
  uint32_t grad = p->k->nslot;
  if (in->act != NONE)
    touch(p, at, in->act, ns);
  if (info->gout != 0 && in->gout != NONE)
    touch(p, at, in->gout, ns);
  if (info->stream == PIPE_COMPUTE && in->op != PIPE_SIDE && in->keep != NONE)
    touch(p, at, in->keep, ns);
  if ((in->op == PIPE_OFF || in->op == PIPE_LOAD) && in->peer == NONE) /* else on another rank */
    touch(p, at, in->away, ns);
  if (in->op == PIPE_B || in->op == PIPE_W || in->op == PIPE_U || in->op == PIPE_REDUCE)
    touch(p, at, grad + g->stage[in->stage].chunk, ns);
  for (uint32_t i = m->rank_stage0[p->r]; in->op == PIPE_TIE && i < m->rank_stage0[p->r + 1]; i++) {
    const PipeStage *st = &g->stage[m->rank_stage[i]];
    if (st->tied == in->stage)
      touch(p, at, grad + st->chunk, ns);
  }
  touch_slots(p, at, in, in->in, true, ns);
  touch_slots(p, at, in, in->out, false, ns);
}

/* The waits of the current row, and the record after it, stand outside actions and groups. */
static inline void check_apart(const Proof *p, const PipeInstr *in, bool waits, bool records) {
  bool inside = p->row > 0 && in[-1].group > 0;
  if (PLANTED(STREAMS_GROUPED) ||
      (!(inside && waits) && !(pipe_op_info[in->op].comm && in->group > 0 && records)))
    return;
  guard_fail(GUARD_BUG,
             "rank %u: %s begins together with other instructions, but an event is %s between them",
             p->r, row_text(p, p->row), inside && waits ? "waited for" : "recorded");
}

/* Does wait i alone cover a stream? */
static inline bool is_needed(const Proof *p, uint32_t i, const uint32_t ns) {
  bool needed = PLANTED(STREAMS_NEEDED);
  for (uint32_t x = 0; x < ns; x++)
    needed |= p->alone[x] == i;
  return needed;
}

/* Checks the waits sync[0 .. n - 1] of the current row. */
static inline void check_waits(const Proof *p, At at, const PipeSync *sync, uint32_t n,
                               const uint32_t *need, const uint32_t ns) {
  const uint32_t *known = p->room.known;
  if (n == 0) {
    check_covered(p, at, need, ns);
    return;
  }
  clock_copy(p->before, at.now, ns);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t after = sync[i].after + 1;
    if (sync[i].event >= p->k->nevent || after > p->row ||
        (p->last[sync[i].event] != after && !PLANTED(STREAMS_REUSED)))
      guard_fail(GUARD_BUG,
                 "rank %u: %s waits for event %u, but %s is not the last to record the event", p->r,
                 row_text(p, p->row), sync[i].event, row_text(p, sync[i].after));
    clock_join(at.now, &known[(size_t)after * ns], ns);
  }
  check_covered(p, at, need, ns);
  for (uint32_t x = 0; x < ns; x++) {
    bool open = x != at.of && p->before[x] < need[x];
    uint32_t ncover = 0;
    p->alone[x] = NONE;
    for (uint32_t i = 0; i < n && open; i++)
      if (known[(size_t)(sync[i].after + 1) * ns + x] >= need[x])
        p->alone[x] = ncover++ ? NONE : i;
  }
  for (uint32_t i = 0; i < n; i++)
    if (!is_needed(p, i, ns))
      guard_fail(GUARD_BUG, "rank %u: the event from %s to %s is not needed", p->r,
                 row_text(p, sync[i].after), row_text(p, p->row));
}

/* The end of the step waits for everything: sync[0 .. n - 1]. */
static inline void check_end(Proof *p, const PipeSync *sync, uint32_t n, const uint32_t ns) {
  At at = {.of = PIPE_COMPUTE, .now = &p->room.now[(size_t)PIPE_COMPUTE * ns]};
  p->row = p->k->ninstr;
  check_waits(p, at, sync, n, p->room.done, ns);
}

static inline void check_rank(Proof *p, const uint32_t ns) {
  const PipeRank *k = p->k;
  const PipeInstr *const instr = k->instr;
  const PipeSync *sync = k->sync, *const last_sync = sync + k->nsync;
  const uint32_t ninstr = k->ninstr, nevent = k->nevent;
  uint32_t *const done = p->room.done, *const records = p->records, *const last = p->last;
  uint32_t few[PIPE_NSTREAMS], *need = ns <= PIPE_NSTREAMS ? few : p->need;
  for (const PipeSync *y = sync; y < last_sync; y++) {
    BUG_IF(y->after != NONE && y->after >= ninstr);
    records[y->after + 1] = y->event + 1;
  }
  uint32_t event = records[0]; /* 1 + the event recorded before the current row; 0: none */
  for (uint32_t i = 0; i < ninstr; i++) {
    const PipeInstr *in = &instr[i];
    At at = {.of = stream_of_row(&p->w, in)};
    BUG_IF(at.of >= ns);
    at.nth = done[at.of] + 1;
    at.now = &p->room.now[(size_t)at.of * ns];
    p->row = i;
    if (event && event <= nevent)
      last[event - 1] = i;
    event = records[i + 1];
    clock_needed(&p->w, i, need, ns);
    const PipeSync *first = sync;
    while (sync < last_sync && sync->before == i)
      sync++;
    if (i == 0 || in[-1].group == 0)
      p->group = done[PIPE_COMM];
    if (sync > first || event)
      check_apart(p, in, sync > first, event);
    check_waits(p, at, first, (uint32_t)(sync - first), need, ns);
    touch_all(p, at, in, ns);
    at.now[at.of] = done[at.of] = at.nth;
    if (event) /* no wait refers to other rows */
      clock_copy(&p->room.known[(size_t)(i + 1) * ns], at.now, ns);
  }
  if (event && event <= nevent)
    last[event - 1] = ninstr;
  const PipeSync *first = sync;
  while (sync < last_sync && sync->before == ninstr)
    sync++;
  BUG_IF(sync != last_sync);
  check_end(p, first, (uint32_t)(sync - first), ns);
}

/* The number of things that instructions of a rank access: slots, gradients. */
static size_t nslots(const Sched *s, uint32_t r) {
  return (size_t)s->prog->rank[r].nslot + s->model->rank_stage0[r + 1] - s->model->rank_stage0[r];
}

static void check_events(Sched *s, uint32_t r) {
  Arena own = {0};
  Proof v = {.s = s, .r = r, .k = &s->prog->rank[r]};
  v.w = rank_streams(&own, s, r, v.k);
  v.room = stream_room(&own, &v.w);
  v.need = arena_alloc(&own, v.w.n * sizeof *v.need);
  v.before = arena_alloc(&own, v.w.n * sizeof *v.before);
  v.alone = arena_alloc(&own, v.w.n * sizeof *v.alone);
  v.touched = NEW_ARRAY(&own, uint32_t, nslots(s, r) * v.w.n);
  v.records = NEW_ARRAY(&own, uint32_t, (size_t)v.k->ninstr + 1);
  v.last = arena_alloc(&own, v.k->nevent * sizeof *v.last + 1);
  memset(v.last, 0xff, v.k->nevent * sizeof *v.last);
  if (v.w.n == PIPE_COPY)
    check_rank(&v, PIPE_COPY);
  else
    check_rank(&v, v.w.n);
  arena_free(&own);
}

bool check_streams(Sched *s) {
  for (uint32_t r = 0; r < s->model->nrank; r++)
    check_events(s, r);
  return true;
}
