/* SPDX-License-Identifier: MIT
 * See make_program.h. The order of transfers comes from playing the schedule through, one
 * completed op after the other in order of time, with transfers that take no time: each SEND and
 * its RECV are listed on both ranks at the moment the producer ends. Every dependence then points
 * back in one global order, so the lists cannot stall, whatever slots are given out. */
#include "make_program.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "list_waits.h"

static void *need(void *p) {
  if (!p)
    abort();
  return p;
}

/* Stages of the model, pipes, first microbatch of a pipe; rank of a row of the stage table. */
static uint32_t nmodel(const MakeSpec *s) { return s->nrank * s->chunks; }

static uint32_t npipe(const MakeSpec *s) { return s->replicas ? s->replicas : 1; }

static uint32_t first_mb(const MakeSpec *s, uint32_t pipe) { return s->nmb * pipe / npipe(s); }

static uint32_t rank_of(const MakeSpec *s, uint32_t row) {
  return (row % nmodel(s) + row / nmodel(s)) % s->nrank;
}

static bool is_first(const MakeSpec *s, uint32_t row) { return row % nmodel(s) == 0; }

static bool is_last(const MakeSpec *s, uint32_t row) { return (row + 1) % nmodel(s) == 0; }

static void *zeroed(size_t n, size_t size) { return need(calloc(n + 1, size)); }

void list_add(MakeList *l, PipeOp op, uint32_t stage, uint32_t mb) {
  if (l->n == l->room) {
    l->room = l->room ? 2 * l->room : 16;
    l->op = need(realloc(l->op, l->room * sizeof *l->op));
  }
  l->op[l->n++] = (MakeOp){op, stage, mb};
}

void list_parse(MakeList *l, const char *text) {
  while (*text) {
    char *end, name[16];
    uint32_t stage = (uint32_t)strtoul(text, &end, 10), mb = PIPE_NONE, op;
    size_t len = strspn(end, "FBIWUSENDRCV_OLA");
    snprintf(name, sizeof name, "%.*s", (int)len, end);
    for (op = 0; op < PIPE_NOPS && strcmp(name, pipe_op_info[op].text); op++)
      ;
    if (op == PIPE_NOPS)
      abort();
    text = end + len;
    if (*text >= '0' && *text <= '9') {
      mb = (uint32_t)strtoul(text, &end, 10);
      text = end;
    }
    text += strspn(text, " ");
    list_add(l, (PipeOp)op, stage, mb);
  }
}

void free_lists(MakeList *l, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    free(l[i].op);
  free(l);
}

/* Orders of computation */

static void add_backward(const MakeSpec *s, MakeList *l, MakeList *w, uint32_t stage, uint32_t mb) {
  list_add(l, s->split ? PIPE_I : PIPE_B, stage, mb);
  if (!s->split)
    return;
  list_add(w, PIPE_W, stage, mb);
  if (w->n >= (uint32_t)s->split) {
    MakeOp op = w->op[w->n - (uint32_t)s->split];
    list_add(l, op.op, op.stage, op.mb);
  }
}

/* Megatron's numbering: P microbatches through one chunk, then the same through the next. */
static uint32_t virtual_chunk(const MakeSpec *s, uint32_t k, bool backward) {
  uint32_t c = k % (s->nrank * s->chunks) / s->nrank;
  return backward ? s->chunks - 1 - c : c;
}

static uint32_t virtual_mb(const MakeSpec *s, uint32_t k) {
  return s->chunks == 1 ? k : k / (s->nrank * s->chunks) * s->nrank + k % s->nrank;
}

static void pipe_order(const MakeSpec *s, uint32_t pipe, uint32_t rank, MakeList *l) {
  uint32_t r = (rank + s->nrank - pipe) % s->nrank; /* the place of the rank in this pipe */
  uint32_t row = pipe * nmodel(s) + r, mb = first_mb(s, pipe);
  uint32_t n = (first_mb(s, pipe + 1) - mb) * s->chunks, warm;
  if (s->gpipe)
    warm = n;
  else if (s->chunks > 1)
    warm = 2 * (s->nrank - 1 - r) + (s->chunks - 1) * s->nrank;
  else
    warm = s->nrank - 1 - r;
  MakeList w = {0};
  for (uint32_t k = 0; k < n + warm; k++) {
    if (k < n)
      list_add(l, PIPE_F, virtual_chunk(s, k, false) * s->nrank + row, mb + virtual_mb(s, k));
    if (k >= warm && k - warm < n)
      add_backward(s, l, &w, virtual_chunk(s, k - warm, true) * s->nrank + row,
                   mb + virtual_mb(s, k - warm));
  }
  uint32_t listed = w.n >= (uint32_t)s->split ? w.n - (uint32_t)s->split + 1 : 0;
  for (uint32_t i = s->split ? listed : w.n; i < w.n; i++)
    list_add(l, PIPE_W, w.op[i].stage, w.op[i].mb);
  free(w.op);
}

static void compute_order(const MakeSpec *s, uint32_t r, MakeList *l) {
  for (uint32_t k = 0; k < npipe(s); k++)
    pipe_order(s, k, r, l);
  for (uint32_t row = 0; row < npipe(s) * nmodel(s); row++)
    if (rank_of(s, row) == r)
      list_add(l, PIPE_U, row, PIPE_NONE);
}

static uint64_t op_time(const MakeSpec *s, PipeOp op) {
  static const uint64_t unit[PIPE_NOPS] = {[PIPE_F] = 1, [PIPE_B] = 2, [PIPE_I] = 1, [PIPE_W] = 1};
  return s->timed ? s->time[op] : unit[op];
}

/* Playing it through. arrived[stage * nmb + mb] has bit 0 once x is there, bit 1 once dy is. */
typedef struct Play {
  const MakeSpec *s;
  MakeList *order, *out; /* [nrank] */
  uint32_t *next;        /* [nrank] in order */
  uint64_t *end;         /* [nrank] of the op that runs */
  bool *runs;            /* [nrank] */
  uint8_t *arrived;
  uint32_t *left; /* [nmodel] gradients to come before the sum over the replicas */
} Play;

static void try_start(Play *y, uint32_t r, uint64_t now) {
  const MakeList *l = &y->order[r];
  if (y->runs[r] || y->next[r] == l->n)
    return;
  const MakeOp *o = &l->op[y->next[r]];
  uint8_t bit = o->op == PIPE_F ? 1 : 2;
  bool needs = (o->op == PIPE_F && !is_first(y->s, o->stage)) ||
               ((o->op == PIPE_B || o->op == PIPE_I) && !is_last(y->s, o->stage));
  if (o->op == PIPE_U && y->left[o->stage % nmodel(y->s)] > 0)
    return;
  if (needs && !(y->arrived[(size_t)o->stage * y->s->nmb + o->mb] & bit))
    return;
  if (y->s->offload && (o->op == PIPE_B || o->op == PIPE_I))
    list_add(&y->out[r], PIPE_LOAD, o->stage, o->mb);
  list_add(&y->out[r], o->op, o->stage, o->mb);
  y->runs[r] = true;
  y->end[r] = now + op_time(y->s, o->op);
}

/* The transfer of what op o has made, if it goes to another rank. */
static void send(Play *y, uint32_t r, const MakeOp *o) {
  const MakeSpec *s = y->s;
  bool forward = o->op == PIPE_F, backward = o->op == PIPE_B || o->op == PIPE_I;
  if ((!forward && !backward) || (forward ? is_last(s, o->stage) : is_first(s, o->stage)))
    return;
  uint32_t to = forward ? o->stage + 1 : o->stage - 1, q = rank_of(s, to);
  y->arrived[(size_t)to * s->nmb + o->mb] |= forward ? 1 : 2;
  if (q == r)
    return;
  list_add(&y->out[r], forward ? PIPE_SEND_F : PIPE_SEND_B, o->stage, o->mb);
  list_add(&y->out[q], forward ? PIPE_RECV_F : PIPE_RECV_B, to, o->mb);
}

static void finish(Play *y, uint32_t r) {
  const MakeSpec *s = y->s;
  const MakeOp *o = &y->order[r].op[y->next[r]++];
  uint32_t row = o->stage % nmodel(s);
  y->runs[r] = false;
  send(y, r, o);
  if (s->offload && o->op == PIPE_F)
    list_add(&y->out[r], PIPE_OFF, o->stage, o->mb);
  if ((o->op == PIPE_B || o->op == PIPE_W) && --y->left[row] == 0 && npipe(s) > 1)
    for (uint32_t k = 0; k < npipe(s); k++, row += nmodel(s))
      list_add(&y->out[rank_of(s, row)], PIPE_REDUCE, row, PIPE_NONE);
}

MakeList *make_order(const MakeSpec *s) {
  uint32_t n = s->nrank;
  Play y = {s,
            zeroed(n, sizeof(MakeList)),
            zeroed(n, sizeof(MakeList)),
            zeroed(n, 4),
            zeroed(n, 8),
            zeroed(n, sizeof(bool)),
            zeroed((size_t)npipe(s) * nmodel(s) * s->nmb, 1),
            zeroed(nmodel(s), 4)};
  for (uint32_t i = 0; i < nmodel(s); i++)
    y.left[i] = s->nmb;
  for (uint32_t r = 0; r < n; r++)
    compute_order(s, r, &y.order[r]);
  for (uint32_t r = 0; r < n; r++)
    try_start(&y, r, 0);
  for (;;) {
    uint32_t at = PIPE_NONE;
    for (uint32_t r = 0; r < n; r++)
      if (y.runs[r] && (at == PIPE_NONE || y.end[r] < y.end[at]))
        at = r;
    if (at == PIPE_NONE)
      break;
    uint64_t now = y.end[at];
    finish(&y, at);
    for (uint32_t r = 0; r < n; r++)
      try_start(&y, r, now);
  }
  for (uint32_t r = 0; r < n; r++)
    if (y.next[r] != y.order[r].n)
      abort(); /* not a schedule */
  free_lists(y.order, n);
  free(y.next);
  free(y.end);
  free(y.runs);
  free(y.arrived);
  free(y.left);
  return y.out;
}

/* Slots and waits */

typedef struct Slot {
  uint32_t cls, stage; /* its pool */
  uint32_t owner, mb;
  bool full, gradient;
  uint32_t changed; /* instructions completed in the stream that last filled or emptied it */
  uint32_t number;  /* in the table */
} Slot;

typedef struct Slots {
  Slot *slot;
  uint32_t n, room;
  uint32_t done[PIPE_NSTREAMS]; /* instructions so far by stream */
} Slots;

/* A free slot, or a new one. One that the very last instruction of the other stream emptied counts
 * as taken: waiting for it would hold up a transfer that could go on. */
static Slot *take(Slots *l, PipeClass cls, uint32_t stage, bool gradient, uint32_t owner,
                  uint32_t mb, int frees) {
  Slot *s = NULL;
  for (uint32_t i = 0; i < l->n && !s; i++) {
    Slot *at = &l->slot[i];
    if (at->cls == (uint32_t)cls && at->stage == stage && !at->full &&
        (frees < 0 || at->changed < l->done[frees]))
      s = at;
  }
  if (!s) {
    if (l->n == l->room) {
      l->room = l->room ? 2 * l->room : 16;
      l->slot = need(realloc(l->slot, l->room * sizeof *l->slot));
    }
    s = &l->slot[l->n++];
    *s = (Slot){.cls = cls, .stage = stage};
  }
  s->full = true;
  s->gradient = gradient;
  s->owner = owner;
  s->mb = mb;
  return s;
}

/* PIPE_NONE: it is in no slot, which only a broken list has; the table says so. */
static uint32_t find(const Slots *l, PipeClass cls, bool gradient, uint32_t owner, uint32_t mb) {
  for (uint32_t i = 0; i < l->n; i++) {
    const Slot *s = &l->slot[i];
    if (s->cls == (uint32_t)cls && s->full && s->gradient == gradient && s->owner == owner &&
        s->mb == mb)
      return i;
  }
  return PIPE_NONE;
}

static void raise_to(uint32_t *wait, uint32_t n) {
  if (n > *wait)
    *wait = n;
}

/* A boundary tensor in field in (reads) or out of an op on rank r. */
static uint32_t boundary(const MakeSpec *spec, Slots *l, const MakeOp *o, PipeTensor t, bool reads,
                         uint32_t *wait) {
  bool before = t == PIPE_T_X || t == PIPE_T_DX, comm = pipe_op_info[o->op].comm;
  if (t == PIPE_T_NONE || (before ? is_first(spec, o->stage) : is_last(spec, o->stage)))
    return PIPE_NONE;
  uint32_t owner = before ? o->stage - 1 : o->stage;
  bool gradient = t == PIPE_T_DX || t == PIPE_T_DY;
  PipeClass cls = spec->nrank == 1 ? PIPE_LOCAL : reads == comm ? PIPE_OUT : PIPE_IN;
  if (!reads) {
    Slot *s = take(l, cls, owner, gradient, owner, o->mb, cls == PIPE_LOCAL ? -1 : !comm);
    if (cls != PIPE_LOCAL)
      raise_to(wait, s->changed);
    s->changed = l->done[comm] + 1;
    return (uint32_t)(s - l->slot);
  }
  uint32_t at = find(l, cls, gradient, owner, o->mb);
  if (at == PIPE_NONE)
    return at;
  if (cls != PIPE_LOCAL)
    raise_to(wait, l->slot[at].changed);
  l->slot[at].full = false;
  l->slot[at].changed = l->done[comm] + 1;
  return at;
}

static uint32_t stash(Slots *l, const MakeOp *o, PipeClass cls, int effect) {
  if (effect > 0)
    return (uint32_t)(take(l, cls, o->stage, false, o->stage, o->mb, -1) - l->slot);
  uint32_t at = find(l, cls, false, o->stage, o->mb);
  if (at != PIPE_NONE && effect < 0)
    l->slot[at].full = false;
  return at;
}

static uint64_t class_bytes(const MakeSpec *s, uint32_t cls, uint32_t stage) {
  if (!s->sized)
    return 0;
  if (cls == PIPE_ACT || cls == PIPE_HOST)
    return s->act;
  if (cls == PIPE_GOUT)
    return s->gout;
  return is_last(s, stage) ? 0 : s->boundary;
}

static uint64_t lines(uint64_t bytes) { return (bytes + 63) & ~(uint64_t)63; }

/* Numbers the slots pool by pool and fills in the rank's row. */
static void make_pools(const MakeSpec *spec, Slots *l, Made *m, uint32_t r, uint32_t *inflight) {
  PipePool *pool = m->pool[r] = zeroed(l->n, sizeof *pool);
  uint32_t npool = 0, next = 0, nstage = npipe(spec) * nmodel(spec);
  uint64_t bytes = lines(spec->work) +
                   npipe(spec) * spec->chunks *
                       (lines(spec->weight) + lines(spec->grad) + lines(spec->opt));
  for (uint32_t cls = 0; cls < PIPE_NCLASSES; cls++)
    for (uint32_t s = 0; s < nstage; s++) {
      PipePool q = {cls, s, next, 0, class_bytes(spec, cls, s), 0, 0};
      for (uint32_t i = 0; i < l->n; i++)
        if (l->slot[i].cls == cls && l->slot[i].stage == s) {
          l->slot[i].number = next++;
          q.count++;
        }
      if (q.count > 0)
        pool[npool++] = q;
      *(cls == PIPE_HOST ? &m->rank[r].host : &bytes) += q.count * lines(q.bytes);
    }
  PipeRank *k = &m->rank[r];
  k->instr = m->instr[r];
  k->pool = pool;
  k->npool = npool;
  k->nslot = l->n;
  k->inflight = *inflight;
  k->bytes = spec->sized ? bytes : 0;
}

static uint32_t slot_number(const Slots *l, uint32_t i) {
  return i == PIPE_NONE ? PIPE_NONE : l->slot[i].number;
}

static void make_rank(const MakeSpec *spec, const MakeList *list, Made *m, uint32_t r) {
  Slots l = {0};
  uint32_t live = 0, inflight = 0, nstage = npipe(spec) * nmodel(spec);
  uint32_t *graded = zeroed(nstage, 4), *reduced = zeroed(nstage, 4); /* as in validate.c */
  PipeInstr *instr = m->instr[r] = zeroed(list->n, sizeof *instr);
  RowNeeds *needs = zeroed(list->n, sizeof *needs);
  for (uint32_t i = 0; i < list->n; i++) {
    const MakeOp *o = &list->op[i];
    const PipeOpInfo *info = &pipe_op_info[o->op];
    PipeInstr *c = &instr[i];
    bool b = o->op == PIPE_B || o->op == PIPE_I;
    uint32_t *wait = &needs[i].of[info->comm ? PIPE_COMPUTE : PIPE_COMM]; /* not of COPY */
    c->op = (uint8_t)o->op;
    c->phase = PIPE_STEADY;
    c->stage = o->stage;
    c->mb = o->mb;
    c->peer = c->keep = PIPE_NONE;
    if (o->op == PIPE_SEND_F || o->op == PIPE_RECV_B)
      c->peer = rank_of(spec, o->stage + 1);
    else if (info->comm && o->op != PIPE_REDUCE)
      c->peer = is_first(spec, o->stage) ? PIPE_NONE : rank_of(spec, o->stage - 1);
    c->site = r * PIPE_NOPS + (uint32_t)o->op;
    c->in = boundary(spec, &l, o, (PipeTensor)info->in, true, wait);
    c->out = boundary(spec, &l, o, (PipeTensor)info->out, false, wait);
    c->act = o->op == PIPE_F || b || o->op == PIPE_W ? stash(&l, o, PIPE_ACT, info->act)
                                                     : PIPE_NONE;
    c->gout = o->op == PIPE_I || o->op == PIPE_W ? stash(&l, o, PIPE_GOUT, info->gout) : PIPE_NONE;
    c->keep = PIPE_NONE;
    if (info->stream == PIPE_COPY) { /* after all compute above it, and all of that after it */
      c->act = stash(&l, o, PIPE_ACT, info->act);
      c->keep = stash(&l, o, PIPE_HOST, -info->act);
      needs[i].of[PIPE_COMPUTE] = l.done[PIPE_COMPUTE];
    } else if (c->act != PIPE_NONE) {
      needs[i].of[PIPE_COPY] = l.done[PIPE_COPY];
    }
    if (o->op == PIPE_B || o->op == PIPE_W)
      graded[o->stage] = l.done[0] + 1;
    if (o->op == PIPE_REDUCE)
      reduced[o->stage] = l.done[1] + 1;
    if (o->op == PIPE_REDUCE || o->op == PIPE_U)
      raise_to(wait, o->op == PIPE_U ? reduced[o->stage] : graded[o->stage]);
    l.done[info->stream]++;
    live += (uint32_t)info->act;
    inflight = live > inflight ? live : inflight;
  }
  make_pools(spec, &l, m, r, &inflight);
  m->rank[r].ninstr = list->n;
  list_waits(&m->rank[r], needs);
  free(needs);
  for (uint32_t i = 0; i < list->n; i++) {
    instr[i].in = slot_number(&l, instr[i].in);
    instr[i].out = slot_number(&l, instr[i].out);
    instr[i].act = slot_number(&l, instr[i].act);
    instr[i].gout = slot_number(&l, instr[i].gout);
    instr[i].keep = slot_number(&l, instr[i].keep);
  }
  free(l.slot);
  free(graded);
  free(reduced);
}

Made *make_program(const MakeSpec *spec, const MakeList *lists) {
  static const char *const file[] = {"t.pipe"};
  uint32_t n = spec->nrank, nstage = npipe(spec) * nmodel(spec);
  Made *m = zeroed(1, sizeof *m);
  m->instr = zeroed(n, sizeof *m->instr);
  m->pool = zeroed(n, sizeof *m->pool);
  m->rank = zeroed(n, sizeof *m->rank);
  m->stage = zeroed(nstage, sizeof *m->stage);
  m->site = zeroed((size_t)n * PIPE_NOPS, sizeof *m->site);
  for (uint32_t s = 0; s < nstage; s++) {
    PipeStage *g = &m->stage[s];
    uint32_t pipe = s / nmodel(spec);
    *g = (PipeStage){.rank = rank_of(spec, s),
                     .chunk = s / n,
                     .prev = is_first(spec, s) ? PIPE_NONE : s - 1,
                     .next = is_last(spec, s) ? PIPE_NONE : s + 1,
                     .model = s % nmodel(spec),
                     .replica = (s + nmodel(spec)) % nstage,
                     .mb0 = first_mb(spec, pipe),
                     .nmb = first_mb(spec, pipe + 1) - first_mb(spec, pipe),
                     .nin = !is_first(spec, s),
                     .nout = !is_last(spec, s),
                     .tied = PIPE_NONE};
    for (int op = 0; op < PIPE_NOPS; op++)
      g->time[op] = op_time(spec, (PipeOp)op);
    if (spec->sized) {
      g->act_bytes = spec->act;
      g->gout_bytes = spec->gout;
      g->boundary_bytes = is_last(spec, s) ? 0 : spec->boundary;
      g->weight_bytes = spec->weight;
      g->grad_bytes = spec->grad;
      g->opt_bytes = spec->opt;
      g->work_bytes = spec->work;
    }
  }
  for (uint32_t r = 0; r < n; r++)
    for (uint32_t op = 0; op < PIPE_NOPS; op++)
      m->site[r * PIPE_NOPS + op] = (PipeSite){0, 10 + r, 1 + op};
  for (uint32_t r = 0; r < n; r++)
    make_rank(spec, &lists[r], m, r);
  m->p = (PipeProgram){.magic = PIPE_MAGIC,
                       .abi = PIPE_ABI,
                       .nmodel = nmodel(spec),
                       .name = "made",
                       .params = "",
                       .nrank = n,
                       .nstage = nstage,
                       .nmb = spec->nmb,
                       .nsite = n * PIPE_NOPS,
                       .nfile = 1,
                       .sized = spec->sized ? 1 : 0,
                       .timed = spec->timed ? 1 : 0,
                       .rank = m->rank,
                       .stage = m->stage,
                       .site = m->site,
                       .file = file};
  return m;
}

Made *make(const MakeSpec *spec) {
  MakeList *lists = make_order(spec);
  Made *m = make_program(spec, lists);
  free_lists(lists, spec->nrank);
  return m;
}

Made *make_text(const MakeSpec *spec, const char *const *text) {
  MakeList *l = zeroed(spec->nrank, sizeof *l);
  for (uint32_t r = 0; r < spec->nrank; r++)
    list_parse(&l[r], text[r]);
  Made *m = make_program(spec, l);
  free_lists(l, spec->nrank);
  return m;
}

void free_made(Made *m) {
  for (uint32_t r = 0; r < m->p.nrank; r++) {
    free(m->instr[r]);
    free(m->pool[r]);
    free((void *)(uintptr_t)m->rank[r].wait);
  }
  free(m->instr);
  free(m->pool);
  free(m->rank);
  free(m->stage);
  free(m->site);
  free(m);
}
