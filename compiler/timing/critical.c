/* SPDX-License-Identifier: MIT
 * Explains why the step takes as long as it does: the critical path, and the idle time of each rank
 * by cause. Requires prog. Exact: all times are integers of the prediction (pipe_predict). The
 * steps of the path add up to the makespan; the causes of a rank add up to the makespan less its
 * busy time.
 *
 * The path. In the timed machine an instruction starts at the latest end of what it waits for. So a
 * walk back from the last end always finds an instruction that ended when the current one started,
 * until time 0: a chain without gaps. If several ended then, the walk prefers the op before on the
 * same rank (the path stays), then the producer, then transfers of the stream.
 *
 * Idle time. Before the first op of a rank it is `warmup`, after the last op `flush`. Between two
 * ops, the cause is the instruction that the second op waited for:
 *
 *   copy      an instruction of the COPY stream
 *   slot      a SEND: a slot had to become free (in the lists of a file the cause is `transfer`)
 *   peer      a RECV or a sum (REDUCE, TIE), until the producer on the other rank had ended
 *   transfer  a RECV or a sum, after that: the tensor was on the wire or behind other transfers
 *   memory    in place of any of these, while the next forward of the rank lacked only a slot for
 *             its stash: an order that lets the rank keep one more stash could run it then
 *
 * A forward behind an update or a side op does not count for `memory`. Where copies move stashes, a
 * slot counts as free if it is free for a part of the gap. */
#include "critical.h"
#include "base.h"
#include "fields.h"
#include "lower.h"
#include "orders.h"
#include "pipe_sim.h"
#include "queues.h"
#include "timing.h"

#include <inttypes.h>

const char *const idle_name[IDLE_NCAUSES] = {"warmup", "peer", "transfer", "slot",
                                             "memory", "copy", "flush"};

/* The fields of an op that hold slots, and NULL. */
typedef struct SlotFields {
  const Field *field[PIPE_NFIELD + 1];
} SlotFields;

typedef struct Walk {
  const PipeProgram *p;
  const Model *model;
  SlotFields *slots; /* [PIPE_NOPS] */
  bool lists;        /* an op waits for the sends that a file names */
  uint64_t **start, **end;
  uint32_t **pair;
  PipeQueues *queues; /* [rank] */
  uint32_t **nth;     /* [rank][row] position in its queue */
  /* [stream][rank][row] of the rows of another stream that a row needs, the last to end; NONE */
  uint32_t **need[PIPE_NSTREAMS];
  WaitRange *const *all; /* Lowered.all_waits, rows of stream[r].wait */
  const Streams *stream;
  bool eager; /* tensors leave as each op of an action ends */
  /* shared links: transfers, sums and copies that took time, sorted by link, then by end */
  PathStep *use;
  size_t *use0; /* [nlink + 1] first row of `use` of each link; NULL: no shared links */
} Walk;

static bool is_comm(const PipeInstr *in) { return pipe_op_info[in->op].comm != 0; }
static bool is_recv(const PipeInstr *in) { return in->op == PIPE_RECV_F || in->op == PIPE_RECV_B; }

static void walk_links(Arena *a, Walk *w);

/* ---- what an instruction needs of other streams ---- */

/* The waits of the program do not say it all: those that follow from others are not there. So the
 * producer of a tensor, or the last user of a slot, is found by the slot. What a text asks for, and
 * no slot needs, is in Lowered.all_waits. */
typedef struct Users {
  const Walk *w;
  const PipeRank *rank;
  uint32_t r, *slot;    /* [nslot] 1 + row of the last instruction that touched it; 0: none */
  uint32_t *grad, *sum; /* [nstage] the same, of gradients and their sums */
} Users;

/* Row `first` needs row `user` - 1, if this is of another stream: of those in one stream, the last
 * to end counts. */
static void note_need(const Users *users, uint32_t first, uint32_t user) {
  const Walk *w = users->w;
  const PipeInstr *in = &users->rank->instr[user ? user - 1 : 0];
  if (user == 0 || pipe_stream_of(in->op) == pipe_stream_of(users->rank->instr[first].op))
    return;
  const uint32_t row = user - 1 +
                       (pipe_stream_of(in->op) == PIPE_COMPUTE && !w->eager ? in->group : 0);
  uint32_t *need = &w->need[pipe_stream_of(in->op)][users->r][first];
  if (*need == NONE || w->end[users->r][row] > w->end[users->r][*need])
    *need = row;
}

/* Row i touches a slot, or what `last` is the last user of. Its action begins at `first`. */
static void touch(const Users *users, uint32_t first, uint32_t i, uint32_t *last) {
  note_need(users, first, *last);
  *last = i + 1;
}

static void touch_slots(const Users *users, uint32_t first, uint32_t i) {
  const PipeInstr *in = &users->rank->instr[i];
  const PipeStage *stage = &users->w->p->stage[in->stage];
  for (const Field *const *of = users->w->slots[in->op].field, *field; (field = *of); of++) {
    const bool away = field->at == offsetof(PipeInstr, away) && field_has(field, PIPE_OFF);
    if (away && in->peer != NONE)
      continue;
    const uint32_t at = (uint32_t)field_get(field, in, NULL), n = field_slots(field, stage, in->op);
    if (n < 2 && at != NONE)
      touch(users, first, i, &users->slot[at]);
    for (uint32_t k = 0; n > 1 && k < n; k++)
      touch(users, first, i, &users->slot[users->rank->list[at + k]]);
  }
}

static void touch_gradients(const Users *users, uint32_t first, uint32_t i) {
  const PipeProgram *p = users->w->p;
  const PipeInstr *in = &users->rank->instr[i];
  if (in->op == PIPE_B || in->op == PIPE_W)
    users->grad[in->stage] = i + 1;
  if (in->op == PIPE_U)
    note_need(users, first, users->sum[in->stage]);
  if (!pipe_is_sum(in->op))
    return;
  const Model *model = users->w->model;
  for (uint32_t k = model->rank_stage0[users->r]; k < model->rank_stage0[users->r + 1]; k++) {
    const uint32_t st = model->rank_stage[k];
    if (in->op == PIPE_REDUCE ? st != in->stage : p->stage[st].tied != in->stage)
      continue;
    note_need(users, first, users->grad[st]);
    users->sum[st] = i + 1;
  }
}

static void walk_needs(const Walk *w, Arena *a, uint32_t r) {
  const PipeProgram *p = w->p;
  Users users = {.w = w, .rank = &p->rank[r], .r = r};
  users.slot = NEW_ARRAY(a, uint32_t, users.rank->nslot + (size_t)1);
  users.grad = NEW_ARRAY(a, uint32_t, p->nstage);
  users.sum = NEW_ARRAY(a, uint32_t, p->nstage);
  for (uint32_t i = 0, first = 0; i < users.rank->ninstr; i++) {
    const PipeInstr *in = &users.rank->instr[i];
    first = i > 0 && in[-1].group > 0 ? first : i;
    for (int stream = 0; stream < PIPE_NSTREAMS; stream++)
      w->need[stream][r][i] = NONE;
    for (uint32_t k = in->waits; k < in->waits + in->nwait; k++)
      note_need(&users, first, pipe_after(&w->queues[r], users.rank->wait[k]));
    const WaitRange all = w->all ? w->all[r][i] : (WaitRange){0, 0};
    for (uint32_t k = all.first; k < all.first + all.n; k++)
      note_need(&users, first, pipe_after(&w->queues[r], w->stream[r].wait[k]));
    touch_slots(&users, first, i);
    touch_gradients(&users, first, i);
  }
}

/* *of is zeroed. */
static void find_slots(SlotFields *of, uint32_t op) {
  const Field **to = of->field;
  for (const Field *field = pipe_field; field->ops && !field->weights; field++)
    if (field_is_slot(field) && field_has(field, op))
      *to++ = field;
}

static Walk walk_open(Sched *s, Arena *a) {
  const PipeProgram *p = s->prog;
  Walk w = {.p = p,
            .model = s->model,
            .lists = s->orders->lists,
            .eager = s->orders->send == SEND_EAGER,
            .all = s->lowered->all_waits,
            .stream = s->lowered->stream};
  w.start = program_times(a, p, &w.end);
  w.pair = pipe_pair(p);
  if (!w.pair)
    guard_no_memory(sizeof(uint32_t) * ((size_t)s->orders->nop + 2 * (size_t)s->ideal->nxfer));
  guard_own(w.pair, free);
  w.slots = NEW_ARRAY(a, SlotFields, PIPE_NOPS);
  for (uint32_t op = 0; op < PIPE_NOPS; op++)
    find_slots(&w.slots[op], op);
  w.queues = NEW_ARRAY(a, PipeQueues, p->nrank);
  w.nth = NEW_ARRAY(a, uint32_t *, p->nrank);
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeQueues queues = w.queues[r] = queues_of(p, &p->rank[r]);
    w.nth[r] = NEW_ARRAY(a, uint32_t, p->rank[r].ninstr);
    for (uint32_t q = 0; q < PIPE_NSTREAMS + p->nchannel; q++)
      for (uint32_t at = queues.first[q]; at < queues.first[q + 1]; at++)
        w.nth[r][queues.row[at]] = at - queues.first[q];
  }
  for (int stream = 0; stream < PIPE_NSTREAMS; stream++) {
    w.need[stream] = NEW_ARRAY(a, uint32_t *, p->nrank);
    for (uint32_t r = 0; r < p->nrank; r++)
      w.need[stream][r] = arena_alloc(a, p->rank[r].ninstr * sizeof **w.need[stream]);
  }
  for (uint32_t r = 0; r < p->nrank; r++)
    walk_needs(&w, a, r);
  walk_links(a, &w);
  return w;
}

/* The last instruction of COMM, for one of COMPUTE, or of COMPUTE, for another one, that row i of
 * rank r needs; NONE. */
static uint32_t awaited(const Walk *w, uint32_t r, uint32_t i) {
  const PipeOn on = pipe_stream_of(w->p->rank[r].instr[i].op);
  return w->need[on == PIPE_COMPUTE ? PIPE_COMM : PIPE_COMPUTE][r][i];
}

/* The same for COPY, and for one of COPY that of COMM. */
static uint32_t copied(const Walk *w, uint32_t r, uint32_t i) {
  const PipeOn on = pipe_stream_of(w->p->rank[r].instr[i].op);
  return w->need[on == PIPE_COPY ? PIPE_COMM : PIPE_COPY][r][i];
}

/* The instruction above row i in its queue; NONE. */
static uint32_t previous(const Walk *w, uint32_t r, uint32_t i) {
  const PipeQueues *queues = &w->queues[r];
  const uint32_t first = queues->first[pipe_queue(w->p->lowering, &w->p->rank[r].instr[i])];
  return w->nth[r][i] ? queues->row[first + w->nth[r][i] - 1] : NONE;
}

/* The rank of the next member of a REDUCE or TIE. */
static uint32_t next_rank(const Walk *w, const PipeInstr *in) {
  return w->p->stage[pipe_sum_next(w->p->stage, in->op, in->stage)].rank;
}

/* The first row of the group of transfer i on rank r. It has the waits of the group. */
static uint32_t group_first(const Walk *w, uint32_t r, uint32_t i) {
  const PipeInstr *in = w->p->rank[r].instr;
  while (i > 0 && is_comm(&in[i]) && is_comm(&in[i - 1]) && in[i - 1].group > 0)
    i--;
  return i;
}

/* The member of the group of row i that ended last, and so ended the group. */
static uint32_t group_last(const Walk *w, uint32_t r, uint32_t i) {
  const PipeInstr *in = w->p->rank[r].instr;
  if (!is_comm(&in[i]) || pipe_is_sum(in[i].op))
    return i;
  uint32_t first = group_first(w, r, i);
  for (uint32_t j = first; j < first + in[first].group; j++) {
    const PipeInstr *send = is_recv(&in[j]) ? &w->p->rank[in[j].peer].instr[w->pair[r][j]] : &in[j];
    if (w->end[r][j] - w->start[r][j] == pipe_send_time(w->p->stage, w->p->edge, send))
      return j;
  }
  return first + in[first].group;
}

/* ---- shared links ---- */

static int by_end(const void *a, const void *b) {
  const PathStep *x = a, *y = b;
  return x->end < y->end ? -1 : x->end > y->end;
}

/* Calls each() for each link that SEND, sum or copy i of rank r passes, until a call returns
 * true. */
static bool each_link(const Walk *w, uint32_t r, uint32_t i,
                      bool (*each)(const Walk *, uint32_t link, void *of), void *of) {
  const PipeProgram *p = w->p;
  const PipeInstr *in = &p->rank[r].instr[i];
  bool sum = pipe_is_sum(in->op);
  uint32_t from = r, row = in->stage;
  do {
    uint32_t next = sum ? pipe_sum_next(p->stage, in->op, row) : row;
    uint32_t to = sum ? p->stage[next].rank : pipe_stream_of(in->op) == PIPE_COPY ? r : in->peer;
    const PipeShare *s = pipe_shares(p->share, p->nshare, from, to);
    for (; s && s < p->share + p->nshare && s->from == from && s->to == to; s++)
      if (each(w, s->link, of))
        return true;
    from = to, row = next;
  } while (sum && row != in->stage);
  return false;
}

/* The end of SEND, sum or copy i of rank r alone, without its group. */
static uint64_t own_end(const Walk *w, uint32_t r, uint32_t i) {
  const PipeInstr *in = &w->p->rank[r].instr[i];
  bool send = pipe_is_send(in->op);
  return send ? w->start[r][i] + pipe_send_time(w->p->stage, w->p->edge, in) : w->end[r][i];
}

static bool count_use(const Walk *w, uint32_t link, void *of) {
  (void)of;
  w->use0[link + 1]++;
  return false;
}

static bool note_use(const Walk *w, uint32_t link, void *of) {
  w->use[w->use0[link]++] = *(const PathStep *)of;
  return false;
}

/* Collects the transfers and copies of each link, sorted by end. A sum appears once for each of its
 * members. */
static void walk_links(Arena *a, Walk *w) {
  const PipeProgram *p = w->p;
  if (p->nshare == 0)
    return;
  w->use0 = NEW_ARRAY(a, size_t, (size_t)p->nlink + 1);
  for (int pass = 0; pass < 2; pass++) {
    for (uint32_t r = 0; r < p->nrank; r++)
      for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
        const PipeInstr *in = &p->rank[r].instr[i];
        PathStep step = {r, i, w->start[r][i], own_end(w, r, i)};
        bool moves = pipe_is_send(in->op) || pipe_is_sum(in->op) ||
                     pipe_stream_of(in->op) == PIPE_COPY;
        if (moves && step.end > step.start)
          each_link(w, r, i, pass ? note_use : count_use, &step);
      }
    for (uint32_t k = 0; k < p->nlink && pass == 0; k++)
      w->use0[k + 1] += w->use0[k];
    if (pass == 0)
      w->use = arena_alloc(a, w->use0[p->nlink] * sizeof *w->use + 1);
  }
  for (uint32_t k = p->nlink; k > 0; k--) /* note_use has moved each to the next link */
    w->use0[k] = w->use0[k - 1];
  w->use0[0] = 0;
  for (uint32_t k = 0; k < p->nlink; k++)
    qsort(w->use + w->use0[k], w->use0[k + 1] - w->use0[k], sizeof *w->use, by_end);
}

/* Finds the use of a link that ended at `end` of the PathStep *of, and stores it there. */
static bool find_use(const Walk *w, uint32_t link, void *of) {
  PathStep *step = of;
  size_t lo = w->use0[link], hi = w->use0[link + 1];
  while (lo < hi) {
    size_t mid = lo + (hi - lo) / 2;
    if (w->use[mid].end < step->end)
      lo = mid + 1;
    else
      hi = mid;
  }
  if (lo == w->use0[link + 1] || w->use[lo].end != step->end)
    return false;
  *step = w->use[lo];
  return true;
}

/* Moves to the transfer that left a link when i of *r took it. False: i waited for no link. */
static bool back_on_link(const Walk *w, uint32_t *r, uint32_t *i) {
  uint32_t q = *r, j = *i;
  PathStep step = {0, 0, 0, w->start[q][j]};
  if (!w->use0)
    return false;
  if (is_recv(&w->p->rank[q].instr[j]))
    q = w->p->rank[*r].instr[*i].peer, j = w->pair[*r][*i];
  if (own_end(w, q, j) == step.end || !each_link(w, q, j, find_use, &step))
    return false;
  *r = step.rank, *i = step.instr;
  return true;
}

/* Moves from *i of *r to what it waited for last. True: it waited for the whole group of the new
 * row; false: for the new row alone. */
static bool back(const Walk *w, uint32_t *r, uint32_t *i) {
  uint64_t t = w->start[*r][*i];
  const PipeInstr *in = &w->p->rank[*r].instr[*i];
  uint32_t rank[6] = {*r, *r, *r},
           from[6] = {previous(w, *r, *i), awaited(w, *r, *i), copied(w, *r, *i)};
  int n = 3;
  if (pipe_is_sum(in->op)) { /* first the last gradient of a member, then the streams of members */
    for (int which = 0; which < 3; which++) {
      uint32_t q = *r, j = *i;
      do {
        uint32_t k = which == 2   ? copied(w, q, j)
                     : which == 1 ? previous(w, q, j)
                                  : awaited(w, q, j);
        if (k != NONE && w->end[q][k] == t) {
          *r = q, *i = k;
          return true;
        }
        uint32_t next = next_rank(w, &w->p->rank[q].instr[j]);
        j = w->pair[q][j], q = next;
      } while (q != *r);
    }
    BUG_IF(!back_on_link(w, r, i));
    return false;
  }
  if (is_comm(in) &&
      in->op != PIPE_SIDE_COMM) { /* the producer, the free slot, then both streams */
    uint32_t q = in->peer, own = is_recv(in) ? 1 : 0, j = group_first(w, q, w->pair[*r][*i]),
             first = group_first(w, *r, *i);
    rank[own] = *r, from[own] = awaited(w, *r, first);
    rank[!own] = q, from[!own] = awaited(w, q, j);
    rank[2 + own] = *r, from[2 + own] = previous(w, *r, first);
    rank[2 + !own] = q, from[2 + !own] = previous(w, q, j);
    rank[4] = *r, from[4] = copied(w, *r, first);
    rank[5] = q, from[5] = copied(w, q, j);
    n = 6;
  }
  for (int k = 0; k < n; k++)
    if (from[k] != NONE && w->end[rank[k]][from[k]] == t) {
      *r = rank[k], *i = from[k];
      return true;
    }
  BUG_IF(pipe_stream_of(in->op) == PIPE_COMPUTE || !back_on_link(w, r, i));
  return false;
}

static void find_path(Sched *s, const Walk *w, Critical *c) {
  const PipeProgram *p = w->p;
  uint32_t r = NONE, i = NONE;
  for (uint32_t q = 0; q < p->nrank; q++) /* the last end; ties: the first row of the lowest rank */
    for (uint32_t j = 0; j < p->rank[q].ninstr; j++)
      if (r == NONE || w->end[q][j] > w->end[r][i])
        r = q, i = j;
  VEC(PathStep) path = {0};
  bool whole = true;
  for (uint64_t until = r == NONE ? 0 : w->end[r][i]; r != NONE;
       until = w->start[r][i], whole = back(w, &r, &i)) {
    i = whole ? group_last(w, r, i) : i;
    const PipeInstr *in = &p->rank[r].instr[i];
    if (is_recv(in)) { /* a transfer appears as its SEND */
      uint32_t q = in->peer;
      i = w->pair[r][i], r = q;
    }
    *vec_push(s->arena, &path) = (PathStep){r, i, w->start[r][i], until};
    if (w->start[r][i] == 0)
      break;
  }
  c->path = path.at, c->npath = path.n;
  for (uint32_t k = 0; k < path.n / 2; k++) {
    PathStep t = path.at[k];
    path.at[k] = path.at[path.n - 1 - k];
    path.at[path.n - 1 - k] = t;
  }
}

/* ---- slots for stashes ---- */

typedef struct Stashes {
  const Sched *s;
  int64_t *live; /* [npool] slots in use on a rank */
  uint32_t
      next; /* the first F from the current op on; NONE: an update or a side op comes before it */
  uint32_t off, load; /* next OFF and LOAD rows to count */
} Stashes;

static uint32_t pool_of(const PipeRank *k, uint32_t slot) {
  uint32_t lo = 0, hi = k->npool - 1;
  while (lo < hi) {
    uint32_t mid = (lo + hi + 1) / 2;
    if (k->pool[mid].first <= slot)
      lo = mid;
    else
      hi = mid - 1;
  }
  return lo;
}

static void count_slot(Stashes *x, const PipeRank *k, uint32_t slot, int change) {
  if (slot != NONE && change)
    x->live[pool_of(k, slot)] += change;
}

/* Counts the slots of op `in`, which has ended. */
static void count_op(Stashes *x, const PipeRank *k, const PipeInstr *in) {
  if (in->op > PIPE_R)
    return;
  bool again = x->s->orders->at_r[(size_t)in->stage * x->s->model->nmb + in->mb] != 0;
  count_slot(x, k, in->act, in->op == PIPE_F && again ? 0 : pipe_op_info[in->op].act);
  count_slot(x, k, in->keep, in->op == PIPE_F ? 1 : -(in->op == PIPE_R));
}

/* Counts stashes that left before `end`, and stashes that came back by `begin`. */
static void count_copies(Stashes *x, const Walk *w, uint32_t r, uint64_t begin, uint64_t end) {
  const PipeRank *k = &w->p->rank[r];
  for (; x->off < k->ninstr; x->off++)
    if (k->instr[x->off].op == PIPE_OFF) {
      if (w->end[r][x->off] >= end)
        break;
      count_slot(x, k, k->instr[x->off].act, -1);
    }
  for (; x->load < k->ninstr; x->load++)
    if (k->instr[x->load].op == PIPE_LOAD) {
      if (w->start[r][x->load] > begin)
        break;
      count_slot(x, k, k->instr[x->load].act, 1);
    }
}

/* Does the search for the next forward end at this op? */
static bool decides(uint32_t op) { return op == PIPE_F || op == PIPE_U || op == PIPE_SIDE; }

/* The time, between a and the start of op i, from which the next F of the rank lacks only a slot
 * for its stash; the start of op i: never. */
static uint64_t out_of_slots(Stashes *x, const Walk *w, uint32_t r, uint32_t i, uint64_t a) {
  const PipeRank *k = &w->p->rank[r];
  const PipeInstr *in = k->instr;
  uint64_t b = w->start[r][i], there = a;
  if (w->p->forward)
    return b;
  for (x->next = x->next < i ? i : x->next; x->next < k->ninstr && !decides(in[x->next].op);)
    x->next++;
  uint32_t f = x->next;
  if (f == k->ninstr || in[f].op != PIPE_F || f == i ||
      (in[i].group > 0 && w->nth[r][f] <= w->nth[r][i] + in[i].group))
    return b;
  count_copies(x, w, r, a, b);
  uint32_t need[] = {awaited(w, r, f), copied(w, r, f)};
  for (int k2 = 0; k2 < 2; k2++)
    if (need[k2] != NONE && w->end[r][need[k2]] > there)
      there = w->end[r][need[k2]];
  bool full = false;
  const uint32_t slot[] = {in[f].act, in[f].keep};
  for (int k2 = 0; k2 < 2; k2++) {
    uint32_t q = slot[k2] == NONE ? NONE : pool_of(k, slot[k2]);
    full |= q != NONE && x->live[q] >= (int64_t)k->pool[q].count;
  }
  return full && there < b ? there : b;
}

/* Splits the idle time from a to the start of op i by cause. From `memory` on the cause is
 * IDLE_MEMORY. */
static void split_gap(const Walk *w, uint32_t r, uint32_t i, uint64_t a, uint64_t memory,
                      uint64_t idle[IDLE_NCAUSES]) {
  uint64_t b = w->start[r][i];
  uint32_t x = awaited(w, r, i), y = copied(w, r, i);
  bool copies = y != NONE && w->end[r][y] == b && (x == NONE || w->end[r][x] != b);
  BUG_IF(!copies && (x == NONE || w->end[r][x] != b));
  idle[IDLE_MEMORY] += b - memory;
  b = memory;
  if (copies) {
    idle[IDLE_COPY] += b - a;
    return;
  }
  x = group_last(w, r, x);
  const PipeInstr *in = &w->p->rank[r].instr[x];
  if (in->op == PIPE_SIDE_COMM) {
    idle[IDLE_COPY] += b - a;
    return;
  }
  if (pipe_is_sum(in->op)) { /* until the last gradient of all members is there */
    uint64_t ready = 0;
    uint32_t q = r, j = x;
    do {
      uint32_t k = awaited(w, q, j);
      ready = k != NONE && w->end[q][k] > ready ? w->end[q][k] : ready;
      uint32_t next = next_rank(w, &w->p->rank[q].instr[j]);
      j = w->pair[q][j], q = next;
    } while (q != r);
    ready = ready < a ? a : ready > b ? b : ready;
    idle[IDLE_PEER] += ready - a;
    idle[IDLE_TRANSFER] += b - ready;
    return;
  }
  if (!is_recv(in)) {
    idle[w->lists ? IDLE_TRANSFER : IDLE_SLOT] += b - a;
    return;
  }
  uint32_t made = awaited(w, in->peer, group_first(w, in->peer, w->pair[r][x]));
  uint64_t ready = made == NONE ? 0 : w->end[in->peer][made];
  ready = ready < a ? a : ready > b ? b : ready;
  idle[IDLE_PEER] += ready - a;
  idle[IDLE_TRANSFER] += b - ready;
}

static void find_idle(const Sched *s, Arena *a, const Walk *w, Critical *c) {
  const PipeProgram *p = w->p;
  uint32_t npool = 1;
  for (uint32_t r = 0; r < p->nrank; r++)
    npool = p->rank[r].npool > npool ? p->rank[r].npool : npool;
  Stashes x = {.s = s, .live = arena_alloc(a, npool * sizeof *x.live)};
  for (uint32_t r = 0; r < p->nrank; r++) {
    uint64_t free = 0, *idle = c->idle[r];
    bool begun = false;
    for (uint32_t k = 0; k < p->rank[r].npool; k++)
      x.live[k] = 0;
    x.next = x.off = x.load = 0;
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
      if (pipe_stream_of(p->rank[r].instr[i].op) != PIPE_COMPUTE)
        continue;
      if (!begun)
        idle[IDLE_WARMUP] = w->start[r][i];
      else if (w->start[r][i] > free)
        split_gap(w, r, i, free, out_of_slots(&x, w, r, i, free), idle);
      begun = true;
      if (!p->forward)
        count_op(&x, &p->rank[r], &p->rank[r].instr[i]);
      free = w->end[r][i];
      c->busy[r] += w->end[r][i] - w->start[r][i];
    }
    BUG_IF(c->busy[r] != s->times->rank_busy[r]);
    idle[IDLE_FLUSH] = p->makespan - free;
    uint64_t sum = c->busy[r];
    for (int k = 0; k < IDLE_NCAUSES; k++)
      sum += idle[k];
    BUG_IF(sum != p->makespan);
  }
}

const Critical *critical(Sched *s) {
  Critical *c = NEW(s->arena, Critical);
  Arena scratch = {0};
  Walk w = walk_open(s, &scratch);
  c->idle = arena_zalloc(s->arena, s->prog->nrank, sizeof *c->idle);
  c->busy = NEW_ARRAY(s->arena, uint64_t, s->prog->nrank);
  find_path(s, &w, c);
  find_idle(s, &scratch, &w, c);
  guard_end(w.pair, free);
  for (uint32_t r = 0; r < w.p->nrank; r++)
    end_queues(w.queues[r]);
  arena_free(&scratch);
  return c;
}

/* Columns for times up to `most`. Times in ns are below 10000 s. */
static int time_width(const Sched *s, uint64_t most, int least) {
  int n = s->model->timed ? 10 : snprintf(NULL, 0, "%" PRIu64, most);
  return n < least ? least : n;
}

static void place(Sched *s, FILE *f, const PipeInstr *in) {
  const PipeSite *at = &s->prog->site[in->site];
  fprintf(f, "%s:%u:%u", printable(s, s->prog->file[at->file]), at->line, at->col);
}

void emit_critical(Sched *s, FILE *f) {
  const PipeProgram *p = s->prog;
  const Critical *c = critical(s);
  uint64_t moving = 0, copying = 0, sum[IDLE_NCAUSES] = {0}, all = 0;
  for (uint32_t k = 0; k < c->npath; k++)
    if (is_comm(&p->rank[c->path[k].rank].instr[c->path[k].instr]))
      moving += c->path[k].end - c->path[k].start;
    else if (pipe_stream_of(p->rank[c->path[k].rank].instr[c->path[k].instr].op) == PIPE_COPY)
      copying += c->path[k].end - c->path[k].start;
  fprintf(
      f,
      "\ncritical path: %s = %s computing + %s in transfers%s, %u step%s, each starting as the one above ends\n",
      time_text(s, p->makespan), time_text(s, p->makespan - moving - copying), time_text(s, moving),
      s->orders->ncopy ? arena_printf(s->arena, " + %s in copies", time_text(s, copying)) : "",
      c->npath, c->npath == 1 ? "" : "s");
  int wide = time_width(s, p->makespan, 5);
  fprintf(f, "%*s  %*s  rank  %-10s  at\n", wide, "start", wide, "time", "op");
  for (uint32_t k = 0; k < c->npath; k++) {
    const PathStep *n = &c->path[k];
    const PipeInstr *in = &p->rank[n->rank].instr[n->instr];
    char op[PIPE_OP_TEXT];
    pipe_instr_text(op, pipe_graph(p), in);
    fprintf(f, "%*s  %*s  %4u  %-10s  ", wide, time_text(s, n->start), wide,
            time_text(s, n->end - n->start), n->rank, op);
    place(s, f, in);
    fputc('\n', f);
  }
  fprintf(
      f,
      "\nidle time by cause: before a rank's first op (warmup), for the op of a peer, for a transfer, for a\n"
      "slot that a transfer still holds, for a free slot for the stash of the next forward (memory),\n"
      "%safter its last op (flush)\n",
      s->sides->nuse     ? "for a copy to or from host memory or a side op, "
      : s->orders->ncopy ? "for a copy to or from host memory, "
                         : "");
  wide = time_width(s, p->makespan * p->nrank, 8);
  fprintf(f, "rank  %*s  %*s", wide, "busy", wide, "idle");
  for (int k = 0; k < IDLE_NCAUSES; k++)
    if (idle_shown(s, k))
      fprintf(f, "  %*s", wide, idle_name[k]);
  fputc('\n', f);
  for (uint32_t r = 0; r < p->nrank; r++) {
    fprintf(f, "%4u  %*s  %*s", r, wide, time_text(s, c->busy[r]), wide,
            time_text(s, p->makespan - c->busy[r]));
    for (int k = 0; k < IDLE_NCAUSES; k++) {
      if (idle_shown(s, k))
        fprintf(f, "  %*s", wide, time_text(s, c->idle[r][k]));
      sum[k] += c->idle[r][k];
      all += c->idle[r][k];
    }
    fputc('\n', f);
  }
  fprintf(f, " all  %*s  %*s", wide, time_text(s, p->busy), wide, time_text(s, all));
  for (int k = 0; k < IDLE_NCAUSES; k++)
    if (idle_shown(s, k))
      fprintf(f, "  %*s", wide, time_text(s, sum[k]));
  double share = p->makespan ? 100 / ((double)p->makespan * p->nrank) : 0;
  fprintf(f, "\n   %%  %*.2f  %*.2f", wide, (double)p->busy * share, wide, (double)all * share);
  for (int k = 0; k < IDLE_NCAUSES; k++)
    if (idle_shown(s, k))
      fprintf(f, "  %*.2f", wide, (double)sum[k] * share);
  fputc('\n', f);
}
