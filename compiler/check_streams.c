/* SPDX-License-Identifier: MIT
 * Proof: with nothing but streams in order and the events of PipeSync,
 *
 *   covered    an instruction starts only when all that its waits count is over, and the end of the step
 *              when everything is; two accesses of a slot or of a stage's gradients on different streams
 *              are one after the other, whatever the waits say
 *   reused     each wait is for the record that the table means: no later one of the same event has been
 *              issued by then
 *   needed     without any single wait something would not be covered
 *   grouped    nothing is waited for inside of an action or a group, or recorded inside of a group; transfers
 *              of one group share no slot
 *
 * Requires prog; reads only its tables, and takes nothing from streams.c but what a wait means
 * (note [clocks]). Linear in instructions, and in events times the tensors of an instruction. */
#include <string.h>

#include "graph.h"
#include "plant.h"
#include "streams.h"

typedef struct Proof {
  Sched *s;
  const PipeRank *k;
  uint32_t r, row;   /* rank; instruction at hand, ninstr at the end of the step */
  Clock *known;      /* [ninstr + 1] by row + 1, up to the row at hand; 0: the begin of the step */
  uint32_t *records; /* [ninstr + 1] the event that is recorded after row i - 1, + 1; 0: none */
  uint32_t *last;    /* [nevent] row + 1 of its last record, NONE before */
  uint32_t *at[PIPE_NSTREAMS]; /* row of each instruction of a stream; COMPUTE from 1 on */
  uint32_t done[PIPE_NSTREAMS];
  uint32_t group; /* done of COMM at the first of the group at hand */
  Clock *
      touched; /* [nslot + chunks] slots, then gradients: counts with the last access of each stream */
  PipeOn of;
  Clock now[PIPE_NSTREAMS];
} Proof;

static const char *row_text(const Proof *p, uint32_t row) {
  char text[OP_TEXT];
  if (row >= p->k->ninstr)
    return row == NONE ? "the begin of the step" : "the end of the step";
  return arena_strndup(p->s->arena, text,
                       (size_t)pipe_instr_text(text, pipe_graph(p->s->prog), &p->k->instr[row]));
}

static Span row_span(const Proof *p, uint32_t row) {
  return row < p->k->ninstr ? p->s->site[p->k->instr[row].site] : NO_SPAN;
}

static bool too_early(const Proof *p, PipeOn on, uint32_t count) {
  uint32_t other = on == PIPE_COMPUTE && count <= 1 ? NONE : p->at[on][count - 1];
  diag_error(p->s->diag, DIAG_STREAMS, row_span(p, p->row),
             "rank %u: no event keeps %s from starting before %s is over", p->r,
             row_text(p, p->row), row_text(p, other));
  if (other != NONE)
    diag_note(p->s->diag, row_span(p, other), "%s, on another stream, comes from here",
              row_text(p, other));
  return false;
}

static inline bool covers(const Proof *p, const Clock *known, const Clock *need) {
  for (int x = 0; x < PIPE_NSTREAMS; x++)
    if (x != (int)p->of && known->of[x] < need->of[x] && !PLANTED(STREAMS_COVERED))
      return too_early(p, (PipeOn)x, need->of[x]);
  return true;
}

static inline bool touch(Proof *p, uint32_t what) {
  Clock *t = &p->touched[what];
  if (p->of == PIPE_COMM && t->of[PIPE_COMM] > p->group) {
    diag_error(p->s->diag, DIAG_STREAMS, row_span(p, p->row),
               "rank %u: %s and %s use one slot, and are of one group", p->r,
               row_text(p, p->at[PIPE_COMM][t->of[PIPE_COMM] - 1]), row_text(p, p->row));
    return false;
  }
  if (!covers(p, &p->now[p->of], t))
    return false;
  t->of[p->of] = p->done[p->of] + 1;
  return true;
}

static inline bool touch_slots(Proof *p, const PipeInstr *in, uint32_t field, bool input) {
  const PipeStage *st = &p->s->prog->stage[in->stage];
  uint32_t n = pipe_fields(st, in->op, input);
  if (field == NONE)
    return true;
  if (n < 2)
    return touch(p, field);
  for (uint32_t i = 0; i < n; i++)
    if (!touch(p, p->k->list[field + i]))
      return false;
  return true;
}

/* Every access of an instruction: slots of the rank, gradients of its stages. */
static bool touch_all(Proof *p, const PipeInstr *in) {
  const PipeProgram *g = p->s->prog;
  bool guest = pipe_op_info[in->op].stream == PIPE_COPY && in->peer != NONE;
  bool slot = !pipe_op_info[in->op].comm && !guest && !pipe_is_side(in->op);
  uint32_t keep = slot ? in->keep : NONE, grad = p->k->nslot;
  bool gout = in->gout != NONE && pipe_op_info[in->op].stream != PIPE_COPY; /* there: its turn */
  if ((in->act != NONE && !touch(p, in->act)) || (gout && !touch(p, in->gout)) ||
      (keep != NONE && !touch(p, keep)))
    return false;
  if (in->op == PIPE_B || in->op == PIPE_W || in->op == PIPE_U || in->op == PIPE_REDUCE)
    return touch(p, grad + g->stage[in->stage].chunk) && touch_slots(p, in, in->in, true) &&
           touch_slots(p, in, in->out, false);
  for (uint32_t i = p->s->rank_stage0[p->r]; in->op == PIPE_TIE && i < p->s->rank_stage0[p->r + 1];
       i++) {
    const PipeStage *st = &g->stage[p->s->rank_stage[i]];
    if (st->tied == in->stage && !touch(p, grad + st->chunk))
      return false;
  }
  return touch_slots(p, in, in->in, true) && touch_slots(p, in, in->out, false);
}

/* Are the n waits of the row at hand, and the record after it, not in the middle of what is issued at once? */
static bool apart(const Proof *p, uint32_t n, bool records) {
  const PipeInstr *in = p->row < p->k->ninstr ? &p->k->instr[p->row] : NULL;
  bool inside = in && p->row > 0 && in[-1].group > 0;
  if (!(inside && n > 0) && !(in && p->of == PIPE_COMM && in->group > 0 && records))
    return true;
  diag_error(p->s->diag, DIAG_STREAMS, row_span(p, p->row),
             "rank %u: %s is issued at once with others, and an event is %s between them", p->r,
             row_text(p, p->row), inside && n > 0 ? "waited for" : "recorded");
  return false;
}

/* The waits sync[0 .. n - 1] of the row at hand. */
static bool waits(Proof *p, const PipeSync *sync, uint32_t n, const Clock *need) {
  Clock known = p->now[p->of];
  for (uint32_t i = 0; i < n; i++) {
    uint32_t after = sync[i].after + 1;
    if (sync[i].event >= p->k->nevent || after > p->row || p->last[sync[i].event] != after) {
      diag_error(p->s->diag, DIAG_STREAMS, row_span(p, p->row),
                 "rank %u: %s waits for event %u, which %s has not recorded last", p->r,
                 row_text(p, p->row), sync[i].event, row_text(p, sync[i].after));
      return false;
    }
    clock_join(&p->now[p->of], &p->known[after]);
  }
  if (!covers(p, &p->now[p->of], need))
    return false;
  for (uint32_t i = 0; i < n; i++) { /* leave number i out */
    Clock without = known;
    bool missed = false;
    for (uint32_t j = 0; j < n; j++)
      if (j != i)
        clock_join(&without, &p->known[sync[j].after + 1]);
    for (int x = 0; x < PIPE_NSTREAMS; x++)
      missed |= x != (int)p->of && without.of[x] < need->of[x];
    if (!missed) {
      diag_error(p->s->diag, DIAG_STREAMS, row_span(p, p->row),
                 "rank %u: the event from %s to %s is not needed", p->r, row_text(p, sync[i].after),
                 row_text(p, p->row));
      return false;
    }
  }
  return true;
}

static bool check_rank(Proof *p) {
  const PipeRank *k = p->k;
  uint32_t *records = p->records, j = 0;
  for (uint32_t i = 0; i < k->nsync; i++) {
    BUG_IF(k->sync[i].after != NONE && k->sync[i].after >= k->ninstr);
    records[k->sync[i].after + 1] = k->sync[i].event + 1;
  }
  memset(p->now, 0, sizeof p->now);
  memset(p->done, 0, sizeof p->done);
  p->done[PIPE_COMPUTE] = 1;
  p->now[PIPE_COMPUTE].of[PIPE_COMPUTE] = p->known[0].of[PIPE_COMPUTE] = 1;
  for (uint32_t i = 0; i <= k->ninstr; i++) { /* the record after row i - 1, then row i */
    if (records[i] && records[i] <= k->nevent)
      p->last[records[i] - 1] = i;
    const PipeInstr *in = i < k->ninstr ? &k->instr[i] : NULL;
    p->row = i;
    p->of = in ? (PipeOn)pipe_op_info[in->op].stream : PIPE_COMPUTE;
    Clock need = in ? clock_needed(in) : (Clock){{p->done[0], p->done[1], p->done[2]}};
    uint32_t first = j;
    while (j < k->nsync && k->sync[j].before == i)
      j++;
    if (i == 0 || k->instr[i - 1].group == 0)
      p->group = p->done[PIPE_COMM];
    if (!apart(p, j - first, in && records[i + 1]) ||
        !waits(p, &k->sync[first], j - first, &need) || (in && !touch_all(p, in)))
      return false;
    if (!in)
      break;
    p->at[p->of][p->done[p->of]] = i;
    p->now[p->of].of[p->of] = ++p->done[p->of];
    p->known[i + 1] = p->now[p->of];
  }
  BUG_IF(j != k->nsync);
  return true;
}

bool check_streams(Sched *s) {
  const PipeProgram *p = s->prog;
  size_t rows = 1, events = 0, slots = 0; /* the most of a rank */
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeRank *k = &p->rank[r];
    size_t nslot = (size_t)k->nslot + s->rank_stage0[r + 1] - s->rank_stage0[r];
    rows = k->ninstr + (size_t)1 > rows ? k->ninstr + (size_t)1 : rows;
    events = k->nevent > events ? k->nevent : events;
    slots = nslot > slots ? nslot : slots;
  }
  Arena tmp = {.oom = s->arena->oom};
  Proof v = {.s = s,
             .known = arena_alloc(&tmp, rows * sizeof *v.known),
             .records = arena_alloc(&tmp, rows * sizeof *v.records),
             .last = arena_alloc(&tmp, events * sizeof *v.last),
             .touched = arena_alloc(&tmp, slots * sizeof *v.touched)};
  for (int x = 0; x < PIPE_NSTREAMS; x++)
    v.at[x] = arena_alloc(&tmp, (rows + 1) * sizeof **v.at);
  bool ok = true;
  for (v.r = 0; v.r < p->nrank && ok; v.r++) {
    v.k = &p->rank[v.r];
    v.known[0] = (Clock){{0}};
    memset(v.records, 0, ((size_t)v.k->ninstr + 1) * sizeof *v.records);
    memset(v.last, 0xff, v.k->nevent * sizeof *v.last);
    memset(v.touched, 0,
           ((size_t)v.k->nslot + s->rank_stage0[v.r + 1] - s->rank_stage0[v.r]) *
               sizeof *v.touched);
    ok = check_rank(&v);
  }
  arena_free(&tmp);
  return ok;
}
