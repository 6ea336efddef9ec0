/* SPDX-License-Identifier: MIT
 * The timed machine (pipe_sim.h); predict.c plays finished programs with it.
 *
 * The machine visits a rank once at first, and again whenever a peer has completed a transfer with
 * it. A visit runs the streams of the rank as far as they go. Each condition of a head instruction
 * becomes true by progress of its own rank or in a visit to its peer. When the last condition of a
 * transfer becomes true, the other side is ready, so the transfer runs at once. Hence nothing is
 * polled: each visit but the first is paid for by an instruction. pipe_sim.h has the exceptions to
 * linear cost.
 *
 * With shared links, a copy, or a transfer that is ready on both sides, waits in a heap until
 * nothing else can run.
 *
 * The start of an instruction depends only on the ends of earlier ones, never on the order of
 * visits. Sums of times saturate at UINT64_MAX. */
#include "pipe_sim.h"

#include <string.h>

#include "arena.h"
#include "heap.h"
#include "times.h"

/* A FIFO of COMM instructions: the COMM stream of a rank (then its index is the rank), or one
 * channel of a rank. */
typedef struct Queue {
  uint32_t rank, n, done;
  VEC(uint32_t) at; /* positions in the COMM stream of the rank; empty: all */
  uint64_t free;
  bool held; /* its head is in Machine.heap */
  /* With groups: the state of the group at the head, once it has started. */
  bool posted;
  uint8_t *paired; /* [n] the other end has arrived */
  uint32_t left;   /* members whose other end has not arrived */
  uint64_t post, group_end;
} Queue;

/* The streams of a rank: next positions, end of the last instruction, and all ends so far, as a
 * wait may refer to any of them. */
typedef struct Rank {
  uint32_t ncompute, ncomm, ncopy; /* ncomm: number done */
  uint32_t queue0, nqueue;
  uint64_t compute_free, copy_free;
  uint64_t *compute_end, *comm_end, *copy_end;
  uint8_t *over;                 /* [comm] with channels: the instruction is done */
  uint64_t begin, compute_begin; /* first start: of all streams, of COMPUTE; UINT64_MAX: none yet */
  bool queued, copy_held;        /* copy_held: the head of COPY is in Machine.heap */
} Rank;

/* A transfer, sum or copy that is ready and waits for shared links. */
typedef struct Waiting {
  uint64_t ready, time;
  uint32_t from, at;  /* queue of the sender, or of the lowest row of the sum; position there */
  uint32_t to, to_at; /* the other end; PIPE_NONE: a sum; COPIES: a copy, and `from` is its rank */
} Waiting;
#define COPIES (PIPE_NONE - 1) /* Waiting.to of a copy */

typedef struct Machine {
  Arena arena; /* freed after the play */
  const PipeSimIn *in;
  /* [nrank] as PipeSimIn.wait; the queue of a channel is PIPE_NSTREAMS + its row of `queue` */
  const PipeWait **wait;
  uint64_t *link_free; /* [nlink] when each link becomes free */
  VEC(Waiting) heap;   /* first to start at the top */
  PipeSimOut *out;
  Rank *rank;
  Queue *queue;
  uint32_t *mate;   /* [nqueue] with channels: the queue of the other ends */
  uint32_t *sum[2]; /* [nstage] with channels: the queue of the REDUCE, of the TIE of a row */
  uint32_t turn;    /* COMM instructions done */
  bool groups;      /* some transfers stand in a group; then COMM has nothing but transfers */
  uint32_t *ready;  /* ring of nrank entries: ranks to visit, each at most once */
  uint32_t first, nqueued;
} Machine;

static const PipeInstr *stream_at(const PipeStream *s, uint32_t i) {
  return &s->instr[s->index ? s->index[i] : i];
}

/* Prefetches what a stream needs a few instructions on. A visit runs only an op or two, and the
 * hardware cannot follow as many streams as there are ranks. p: address of position i; the result
 * may lie beyond the array, where nothing is read. */
static inline void fetch_ahead(const void *p, size_t size, int write) {
  enum { AHEAD = 8 };
  const char *at = (const char *)((uintptr_t)p + AHEAD * size);
  if (write)
    __builtin_prefetch(at, 1);
  else
    __builtin_prefetch(at);
}

static uint64_t add(uint64_t a, uint64_t b) { return a + b < a ? UINT64_MAX : a + b; }

static PipeTimes times(const Machine *m) {
  return (PipeTimes){m->in->stage, m->in->side, m->in->unit_time, m->in->nunit_time};
}

static uint64_t time_of(const Machine *m, const PipeInstr *c) { return pipe_time(times(m), c); }

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void enqueue(Machine *m, uint32_t r) {
  if (m->rank[r].queued)
    return;
  uint32_t at = m->first + m->nqueued++;
  m->ready[at < m->in->nrank ? at : at - m->in->nrank] = r;
  m->rank[r].queued = true;
}

/* Times the action of n > 1 ops from i on, from `start`. Its ops run one after the other in list
 * order and end with the action at the latest; the last ends with it. Returns the end. */
static uint64_t run_action(Machine *m, uint32_t r, uint32_t i, uint32_t n, uint64_t start) {
  const PipeStream *s = &m->in->compute[r];
  const PipeInstr *a = stream_at(s, i), *b = stream_at(s, i + 1);
  uint64_t time = 0, at = start, end;
  for (uint32_t j = i; j < i + n; j++)
    time = add(time, time_of(m, stream_at(s, j)));
  if (n == 2 && ((a->op == PIPE_F && b->op == PIPE_B) || (a->op == PIPE_B && b->op == PIPE_F))) {
    const PipeInstr *f = a->op == PIPE_F ? a : b;
    uint64_t fused = pipe_fused_time(times(m), f->stage, f->mb);
    time = fused > 0 ? fused : time;
  }
  end = add(start, time);
  for (uint32_t j = i; j < i + n; j++) {
    const PipeInstr *c = stream_at(s, j);
    if (m->out->compute_start)
      m->out->compute_start[r][j] = at;
    at = add(at, time_of(m, c));
    at = j + 1 == i + n || at > end ? end : at;
    m->rank[r].compute_end[j] = at;
  }
  return end;
}

/* Are the waits of an instruction of rank r over? Raises *start to their ends. */
static inline bool waits_over(const Machine *m, uint32_t r, const PipeInstr *c, uint64_t *start) {
  const Rank *k = &m->rank[r];
  if (c->nwait == 0)
    return true;
  const PipeWait *wait = &m->wait[r][c->waits], *end = wait + c->nwait;
  for (; wait < end; wait++) {
    const Queue *channel = NULL;
    const uint32_t n = wait->count;
    uint64_t over = 0;
    switch (wait->queue) {
    case PIPE_COMPUTE:
      if (n > k->ncompute)
        return false;
      over = n > 0 ? k->compute_end[n - 1] : 0;
      break;
    case PIPE_COMM:
      if (n > k->ncomm)
        return false;
      over = k->comm_end[n - 1];
      break;
    case PIPE_COPY:
      if (n > k->ncopy)
        return false;
      over = k->copy_end[n - 1];
      break;
    default:
      channel = &m->queue[wait->queue - PIPE_NSTREAMS];
      if (n > channel->done)
        return false;
      over = k->comm_end[channel->at.at[n - 1]];
    }
    *start = later(*start, over);
  }
  return true;
}

static void run_compute(Machine *m, uint32_t r) {
  const PipeStream *s = &m->in->compute[r];
  Rank *k = &m->rank[r];
  uint64_t *starts = m->out->compute_start ? m->out->compute_start[r] : NULL;
  uint64_t busy = 0;
  uint32_t i = k->ncompute;
  for (; i < s->n; i++) {
    const PipeInstr *c = stream_at(s, i);
    uint64_t start = k->compute_free;
    if (!waits_over(m, r, c, &start))
      break;
    fetch_ahead(c, sizeof *c, 0);
    fetch_ahead(&k->compute_end[i], sizeof *k->compute_end, 1);
    if (starts)
      fetch_ahead(&starts[i], sizeof *starts, 1);
    if (start < k->compute_begin)
      k->compute_begin = start;
    if (c->group > 0 && c->group < s->n - i) {
      k->compute_free = run_action(m, r, i, c->group + 1u, start);
      i += c->group;
    } else {
      if (starts)
        starts[i] = start;
      k->compute_end[i] = k->compute_free = add(start, time_of(m, c));
    }
    busy = add(busy, k->compute_free - start);
  }
  k->ncompute = i;
  m->out->busy = add(m->out->busy, busy);
  if (m->out->rank_busy)
    m->out->rank_busy[r] = add(m->out->rank_busy[r], busy);
}

/* The instruction at position i of queue q. */
static const PipeInstr *queue_at(const Machine *m, uint32_t q, uint32_t i) {
  const Queue *x = &m->queue[q];
  return stream_at(&m->in->comm[x->rank], x->at.n ? x->at.at[i] : i);
}

/* The head of queue q if its waits are over; else NULL. */
static const PipeInstr *comm_ready(const Machine *m, uint32_t q) {
  const Queue *x = &m->queue[q];
  uint64_t start = 0;
  if (x->done == x->n || x->held)
    return NULL;
  const PipeInstr *c = queue_at(m, q, x->done);
  return waits_over(m, x->rank, c, &start) ? c : NULL;
}

/* The queue of the REDUCE or TIE of row `row`. */
static uint32_t sum_queue(const Machine *m, uint32_t op, uint32_t row) {
  return m->sum[0] ? m->sum[op == PIPE_TIE][row] : m->in->stage[row].rank;
}

/* The queue of the other end of transfer c, in queue q; PIPE_NONE: there is none. */
static uint32_t mate_of(const Machine *m, uint32_t q, const PipeInstr *c) {
  if (m->mate)
    return m->mate[q] != PIPE_NONE && m->queue[m->mate[q]].rank == c->peer ? m->mate[q] : PIPE_NONE;
  return c->peer < m->in->nrank && c->peer != q ? c->peer : PIPE_NONE;
}

static bool same_transfer(const Machine *m, const PipeInstr *send, const PipeInstr *recv) {
  const PipeSimIn *in = m->in;
  if (send->mb != recv->mb)
    return false;
  const PipeStage *s = &in->stage[send->stage];
  if (!in->edge)
    return send->op == PIPE_SEND_F ? recv->op == PIPE_RECV_F && recv->stage == s->next
                                   : recv->op == PIPE_RECV_B && recv->stage == s->prev;
  return recv->op == (send->op == PIPE_SEND_F ? PIPE_RECV_F : PIPE_RECV_B) &&
         send->edge == recv->edge &&
         recv->stage ==
             pipe_other_end((PipeGraph){in->stage, in->edge, in->row, in->nmb, 1, NULL}, send);
}

/* Marks position i of queue q as done at `end`. */
static void carried_out(Machine *m, uint32_t q, uint32_t i, uint64_t end) {
  const Queue *x = &m->queue[q];
  Rank *k = &m->rank[x->rank];
  uint32_t at = x->at.n ? x->at.at[i] : i;
  fetch_ahead(stream_at(&m->in->comm[x->rank], at), sizeof(PipeInstr), 0);
  fetch_ahead(&k->comm_end[at], sizeof *k->comm_end, 1);
  k->comm_end[at] = end;
  if (k->over)
    k->over[at] = 1;
  if (m->out->comm_turn)
    m->out->comm_turn[x->rank][at] = m->turn;
  k->ncomm++;
}

static void started(Machine *m, uint32_t q, uint32_t i, uint64_t start) {
  const Queue *x = &m->queue[q];
  if (m->out->comm_start) {
    uint64_t *at = &m->out->comm_start[x->rank][x->at.n ? x->at.at[i] : i];
    fetch_ahead(at, sizeof *at, 1);
    *at = start;
  }
  if (start < m->rank[x->rank].begin)
    m->rank[x->rank].begin = start;
}

static void complete_comm(Machine *m, uint32_t q, uint64_t start, uint64_t end) {
  Queue *x = &m->queue[q];
  started(m, q, x->done, start);
  carried_out(m, q, x->done++, end);
  x->free = end;
}

/* The earliest start of c, the head of queue q, as far as its own rank decides. Requires its
 * waits. */
static uint64_t comm_from(const Machine *m, uint32_t q, const PipeInstr *c) {
  uint64_t from = m->queue[q].free;
  waits_over(m, m->queue[q].rank, c, &from);
  return from;
}

/* ---- shared links ---- */

static bool goes_first(const void *a, const void *b, const void *of) {
  const Waiting *x = a, *y = b;
  (void)of;
  return x->ready != y->ready ? x->ready < y->ready
         : x->from != y->from ? x->from < y->from
                              : x->at < y->at;
}

static void hold(Machine *m, Waiting w) {
  vec_push(&m->arena, &m->heap);
  heap_put(m->heap.at, m->heap.n, sizeof w, &w, goes_first, NULL);
}

static Waiting release(Machine *m) {
  Waiting first = m->heap.at[0];
  heap_drop(m->heap.at, m->heap.n--, sizeof first, goes_first, NULL);
  return first;
}

/* The lowest row of a sum. */
static uint32_t lowest_row(const PipeStage *stage, uint32_t op, uint32_t row) {
  uint32_t low = row;
  for (uint32_t s = pipe_sum_next(stage, op, row); s != row; s = pipe_sum_next(stage, op, s))
    low = s < low ? s : low;
  return low;
}

static bool sum_shares(const Machine *m, uint32_t op, uint32_t first) {
  const PipeStage *stage = m->in->stage;
  uint32_t s = first;
  do {
    uint32_t next = pipe_sum_next(stage, op, s);
    if (pipe_shares(m->in->share, m->in->nshare, stage[s].rank, stage[next].rank))
      return true;
    s = next;
  } while (s != first);
  return false;
}

/* Calls take() for each link of w, first with `at`, then with the result of the call before. A ring
 * can pass a link more than once. */
static uint64_t each_link(Machine *m, const Waiting *w, uint64_t at,
                          uint64_t (*take)(Machine *, const Waiting *, uint32_t, uint64_t)) {
  const PipeSimIn *in = m->in;
  const bool copy = w->to == COPIES, sum = w->to == PIPE_NONE;
  const PipeInstr *c = sum ? queue_at(m, w->from, w->at) : NULL;
  uint32_t from = copy ? w->from : m->queue[w->from].rank, row = sum ? c->stage : 0;
  const uint32_t first = row;
  do {
    uint32_t next = sum ? pipe_sum_next(in->stage, c->op, row) : row;
    uint32_t to = sum ? in->stage[next].rank : copy ? from : m->queue[w->to].rank;
    const PipeShare *s = pipe_shares(in->share, in->nshare, from, to);
    for (; s && s < in->share + in->nshare && s->from == from && s->to == to; s++)
      at = take(m, w, s->link, at);
    from = to, row = next;
  } while (sum && row != first);
  return at;
}

static uint64_t when_free(Machine *m, const Waiting *w, uint32_t link, uint64_t at) {
  (void)w;
  return later(at, m->link_free[link]);
}

/* Occupies a link until `end`. A link that w already has counts once. */
static uint64_t occupy(Machine *m, const Waiting *w, uint32_t link, uint64_t end) {
  if (m->out->link_busy && m->link_free[link] < end)
    m->out->link_busy[link] = add(m->out->link_busy[link], w->time);
  m->link_free[link] = end;
  return end;
}

/* Completes the REDUCE or TIE of row `first` for all its members. */
static void complete_sum(Machine *m, uint8_t op, uint32_t first, uint64_t start) {
  const PipeStage *stage = m->in->stage;
  uint64_t end = add(start, stage[first].time[op]);
  uint32_t s = first;
  do {
    uint32_t q = sum_queue(m, op, s);
    m->queue[q].held = false;
    complete_comm(m, q, start, end);
    enqueue(m, stage[s].rank);
  } while ((s = pipe_sum_next(stage, op, s)) != first);
  m->turn++;
}

/* Runs a REDUCE or TIE if all its members are ready; it may go into the heap for links. */
static bool run_sum(Machine *m, uint8_t op, uint32_t first) {
  const PipeStage *stage = m->in->stage;
  uint64_t start = 0;
  uint32_t s = first;
  do {
    uint32_t q = sum_queue(m, op, s);
    const PipeInstr *c = q == PIPE_NONE ? NULL : comm_ready(m, q);
    if (!c || c->op != op || c->stage != s)
      return false;
    start = later(start, comm_from(m, q, c));
  } while ((s = pipe_sum_next(stage, op, s)) != first);
  if (m->in->nshare && stage[first].time[op] && sum_shares(m, op, first)) {
    uint32_t q = sum_queue(m, op, lowest_row(stage, op, first));
    hold(m, (Waiting){start, stage[first].time[op], q, m->queue[q].done, PIPE_NONE, 0});
    do
      m->queue[sum_queue(m, op, s)].held = true;
    while ((s = pipe_sum_next(stage, op, s)) != first);
    return false;
  }
  complete_sum(m, op, first, start);
  return true;
}

/* Does a transfer between these ranks need a shared link? */
static bool takes_turn(const Machine *m, uint32_t from, uint32_t to, uint64_t time) {
  return m->in->nshare && time && pipe_shares(m->in->share, m->in->nshare, from, to);
}

static void complete_copy(Machine *m, uint32_t r, uint64_t start) {
  Rank *k = &m->rank[r];
  if (m->out->copy_start)
    m->out->copy_start[r][k->ncopy] = start;
  if (start < k->begin)
    k->begin = start;
  k->copy_free = add(start, time_of(m, stream_at(&m->in->copy[r], k->ncopy)));
  k->copy_end[k->ncopy++] = k->copy_free;
}

/* Runs the COPY stream. True: it advanced. */
static bool run_copy(Machine *m, uint32_t r) {
  const PipeStream *s = m->in->copy ? &m->in->copy[r] : NULL;
  Rank *k = &m->rank[r];
  const uint32_t first = k->ncopy;
  while (s && k->ncopy < s->n && !k->copy_held) {
    const PipeInstr *c = stream_at(s, k->ncopy);
    uint64_t start = k->copy_free, time = time_of(m, c);
    if (!waits_over(m, r, c, &start))
      break;
    if (!takes_turn(m, r, r, time)) {
      complete_copy(m, r, start);
      continue;
    }
    hold(m, (Waiting){start, time, r, k->ncopy, COPIES, 0});
    k->copy_held = true;
  }
  return k->ncopy > first;
}

/* Runs a side op at the head of queue q. */
static bool run_beside(Machine *m, uint32_t q, const PipeInstr *c) {
  if (c->op != PIPE_SIDE_COMM)
    return false;
  uint64_t start = comm_from(m, q, c);
  complete_comm(m, q, start, add(start, time_of(m, c)));
  m->turn++;
  return true;
}

/* Runs transfers of queue q until one is not ready on both sides. Returns 1 if any ran, 0 if none,
 * -1 if a SEND met a RECV of another tensor. */
static int run_comm(Machine *m, uint32_t q) {
  int any = 0;
  for (const PipeInstr *c; (c = comm_ready(m, q)); any = 1) {
    if (pipe_is_sum(c->op)) {
      if (!run_sum(m, c->op, c->stage))
        break;
      continue;
    }
    if (run_beside(m, q, c))
      continue;
    uint32_t o = mate_of(m, q, c), r = m->queue[q].rank;
    if (o == PIPE_NONE)
      break;
    const PipeInstr *d = comm_ready(m, o);
    if (!d || pipe_is_sum(d->op) || d->op == PIPE_SIDE_COMM || d->peer != r ||
        pipe_is_send(c->op) == pipe_is_send(d->op))
      break;
    const PipeInstr *send = pipe_is_send(c->op) ? c : d, *recv = pipe_is_send(c->op) ? d : c;
    if (!same_transfer(m, send, recv))
      return -1;
    uint64_t start = later(comm_from(m, q, c), comm_from(m, o, d));
    uint64_t time = pipe_send_time(m->in->stage, m->in->edge, send);
    uint32_t from = send == c ? q : o, to = send == c ? o : q;
    if (takes_turn(m, m->queue[from].rank, m->queue[to].rank, time)) {
      hold(m, (Waiting){start, time, from, m->queue[from].done, to, m->queue[to].done});
      m->queue[q].held = m->queue[o].held = true;
      break;
    }
    complete_comm(m, q, start, add(start, time));
    complete_comm(m, o, start, add(start, time));
    m->turn++;
    enqueue(m, m->queue[o].rank);
  }
  return any;
}

/* Starts the group at the head of rank r, if it can start. With groups there are no channels, so r
 * is also its queue. */
static bool post_group(Machine *m, uint32_t r) {
  Queue *k = &m->queue[r];
  const PipeInstr *c = comm_ready(m, r);
  if (!c)
    return false;
  if (k->posted)
    return true;
  k->posted = true;
  k->left = c->group + 1u;
  k->post = k->group_end = comm_from(m, r, c);
  if (k->post < m->rank[r].begin)
    m->rank[r].begin = k->post;
  return true;
}

/* The first member of the group at the head of r that exchanges with `peer` in this direction and
 * whose other end has not arrived; PIPE_NONE. */
static uint32_t group_member(const Machine *m, uint32_t r, uint32_t peer, bool send) {
  const Queue *k = &m->queue[r];
  const PipeStream *s = &m->in->comm[r];
  uint32_t n = stream_at(s, k->done)->group + 1u;
  for (uint32_t i = k->done; i < k->done + n && i < s->n; i++)
    if (!k->paired[i] && stream_at(s, i)->peer == peer && pipe_is_send(stream_at(s, i)->op) == send)
      return i;
  return PIPE_NONE;
}

/* Member i of the group at the head of r is done; the last one completes the group. */
static void pair_member(Machine *m, uint32_t r, uint32_t i, uint64_t start, uint64_t end) {
  Queue *k = &m->queue[r];
  k->paired[i] = 1;
  if (m->out->comm_start)
    m->out->comm_start[r][i] = start;
  k->group_end = later(k->group_end, end);
  if (--k->left > 0)
    return;
  for (uint32_t n = stream_at(&m->in->comm[r], k->done)->group + 1u; n > 0; n--)
    carried_out(m, r, k->done++, k->group_end);
  k->free = k->group_end;
  k->posted = false;
}

/* As run_comm, where transfers may have groups. */
static int run_groups(Machine *m, uint32_t r) {
  const PipeStream *s = &m->in->comm[r];
  Queue *k = &m->queue[r];
  int any = 0;
  for (bool moved = true; moved;) {
    const PipeInstr *head = comm_ready(m, r);
    moved = false;
    const uint32_t first = k->done;
    for (uint32_t i = first;
         !moved && post_group(m, r) && k->done == first && i <= first + head->group; i++) {
      const PipeInstr *c = i < s->n ? stream_at(s, i) : head;
      uint32_t q = c->peer;
      if (k->paired[i] || q >= m->in->nrank || q == r ||
          group_member(m, r, q, pipe_is_send(c->op)) != i || !post_group(m, q))
        continue;
      uint32_t j = group_member(m, q, r, !pipe_is_send(c->op));
      if (j == PIPE_NONE)
        continue;
      const PipeInstr *d = stream_at(&m->in->comm[q], j), *send = pipe_is_send(c->op) ? c : d;
      if (!same_transfer(m, send, pipe_is_send(c->op) ? d : c))
        return -1;
      uint64_t start = later(k->post, m->queue[q].post);
      uint64_t time = pipe_send_time(m->in->stage, m->in->edge, send);
      uint32_t from = send == c ? r : q, to = send == c ? q : r;
      if (takes_turn(m, from, to, time)) {
        k->paired[i] = m->queue[q].paired[j] = 1;
        hold(m, (Waiting){start, time, from, send == c ? i : j, to, send == c ? j : i});
        continue;
      }
      pair_member(m, q, j, start, add(start, time));
      pair_member(m, r, i, start, add(start, time));
      enqueue(m, q);
      moved = true;
    }
    any |= moved;
  }
  return any;
}

/* Starts the transfer, sum or copy that waited longest for links, as soon as they are free.
 * Requires that nothing else can run: so no later arrival is ready earlier. */
static void run_waiting(Machine *m) {
  Waiting w = release(m);
  uint64_t start = each_link(m, &w, w.ready, when_free), end = add(start, w.time);
  each_link(m, &w, end, occupy);
  m->out->link_wait = add(m->out->link_wait, start - w.ready);
  if (w.to == COPIES) {
    m->rank[w.from].copy_held = false;
    complete_copy(m, w.from, start);
    enqueue(m, w.from);
    return;
  }
  if (w.to == PIPE_NONE) {
    const PipeInstr *c = queue_at(m, w.from, w.at);
    complete_sum(m, c->op, c->stage, start);
    return;
  }
  for (int other = 0; other < 2; other++) {
    uint32_t q = other ? w.to : w.from, i = other ? w.to_at : w.at;
    m->queue[q].held = false;
    if (m->groups)
      pair_member(m, q, i, start, end);
    else
      complete_comm(m, q, start, end);
    enqueue(m, m->queue[q].rank);
  }
  m->turn++;
}

/* run_comm for all queues of rank r. */
static int run_queues(Machine *m, uint32_t r) {
  int any = 0;
  for (uint32_t q = m->rank[r].queue0; q < m->rank[r].queue0 + m->rank[r].nqueue; q++) {
    int moved = m->groups ? run_groups(m, q) : run_comm(m, q);
    if (moved < 0)
      return -1;
    any |= moved;
  }
  return any;
}

static PipeSimStatus run(Machine *m, uint32_t *at) {
  for (uint32_t r = 0; r < m->in->nrank; r++)
    enqueue(m, r);
  for (; m->nqueued > 0 || m->heap.n > 0;) {
    if (m->nqueued == 0)
      run_waiting(m);
    /* the last to come: its instructions are in the cache. For comm_turn, the first: turns break
     * ties */
    uint32_t next = m->out->comm_turn ? m->first++ : m->first + m->nqueued - 1;
    uint32_t r = m->ready[next < m->in->nrank ? next : next - m->in->nrank];
    m->first = m->first < m->in->nrank ? m->first : 0;
    m->nqueued--, m->rank[r].queued = false;
    int moved;
    do {
      do
        run_compute(m, r);
      while (run_copy(m, r));
      moved = run_queues(m, r);
    } while (moved > 0);
    if (moved < 0) {
      if (at)
        *at = r;
      return PIPE_SIM_MISMATCH;
    }
  }
  for (uint32_t r = 0; r < m->in->nrank; r++)
    if (m->rank[r].ncompute < m->in->compute[r].n || m->rank[r].ncomm < m->in->comm[r].n ||
        (m->in->copy && m->rank[r].ncopy < m->in->copy[r].n)) {
      if (at)
        *at = r;
      return PIPE_SIM_STUCK;
    }
  return PIPE_SIM_DONE;
}

/* [n] queue numbers, all PIPE_NONE. */
static uint32_t *no_queues(Machine *m, uint32_t n) {
  uint32_t *of = arena_alloc(&m->arena, n * sizeof *of + 1);
  return memset(of, 0xff, n * sizeof *of);
}

/* The waits of rank r by rows of `queue`. own: by channel of the rank. */
static const PipeWait *number_waits(Machine *m, uint32_t r, const uint32_t *own) {
  const uint32_t n = m->in->nwait[r];
  PipeWait *wait = arena_alloc(&m->arena, n * sizeof *wait + 1);
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t queue = m->in->wait[r][i].queue;
    wait[i] = m->in->wait[r][i];
    if (queue >= PIPE_NSTREAMS)
      wait[i].queue = PIPE_NSTREAMS + own[queue - PIPE_NSTREAMS];
  }
  return wait;
}

/* Makes a queue for each channel of each rank. */
static void find_queues(Machine *m) {
  const PipeSimIn *in = m->in;
  VEC(Queue) queue = {0};
  uint32_t *own = no_queues(m, in->nchannel), /* by channel: queue on the last rank that has it */
      *end[2] = {no_queues(m, in->nchannel), no_queues(m, in->nchannel)}; /* of RECVs, SENDs */
  m->sum[0] = no_queues(m, in->nstage), m->sum[1] = no_queues(m, in->nstage);
  for (uint32_t r = 0; r < in->nrank; r++) {
    const uint32_t first = queue.n;
    for (uint32_t i = 0; i < in->comm[r].n; i++) {
      const PipeInstr *c = stream_at(&in->comm[r], i);
      uint32_t *q = &own[c->channel];
      if (*q == PIPE_NONE || *q < first) {
        *q = queue.n;
        *vec_push(&m->arena, &queue) = (Queue){.rank = r};
      }
      *vec_push(&m->arena, &queue.at[*q].at) = i;
      queue.at[*q].n++;
      if (pipe_is_sum(c->op))
        m->sum[c->op == PIPE_TIE][c->stage] = *q;
      else if (c->op != PIPE_SIDE_COMM)
        end[pipe_is_send(c->op)][c->channel] = *q;
    }
    m->rank[r].queue0 = first, m->rank[r].nqueue = queue.n - first;
    m->wait[r] = number_waits(m, r, own);
  }
  m->queue = queue.at;
  m->mate = no_queues(m, queue.n);
  for (uint32_t c = 0; c < in->nchannel; c++)
    if (end[0][c] != PIPE_NONE && end[1][c] != PIPE_NONE)
      m->mate[end[0][c]] = end[1][c], m->mate[end[1][c]] = end[0][c];
}

/* Makes the streams of each rank; without channels its COMM stream is one queue. */
static void find_ranks(Machine *m) {
  const PipeSimIn *in = m->in;
  const PipeSimOut *out = m->out;
  Arena *a = &m->arena;
  for (uint32_t r = 0; r < in->nrank; r++) {
    Rank *k = &m->rank[r];
    const uint32_t ncompute = in->compute[r].n, ncomm = in->comm[r].n,
                   ncopy = in->copy ? in->copy[r].n : 0;
    k->begin = k->compute_begin = UINT64_MAX;
    k->compute_end = out->compute_end ? out->compute_end[r]
                                      : arena_alloc(a, ncompute * sizeof *k->compute_end);
    k->comm_end = out->comm_end ? out->comm_end[r] : arena_alloc(a, ncomm * sizeof *k->comm_end);
    k->copy_end = out->copy_end ? out->copy_end[r] : arena_alloc(a, ncopy * sizeof *k->copy_end);
    if (in->nchannel) {
      k->over = NEW_ARRAY(a, uint8_t, ncomm);
      continue;
    }
    k->queue0 = r, k->nqueue = 1;
    m->queue[r] = (Queue){.rank = r, .n = ncomm};
    for (uint32_t i = 0; i < ncomm && !m->groups; i++)
      m->groups = stream_at(&in->comm[r], i)->group > 0;
  }
}

/* Fills in how far each rank came, and the begin and end of the step. */
static void read_ends(const Machine *m) {
  const PipeSimIn *in = m->in;
  PipeSimOut *out = m->out;
  uint64_t first = UINT64_MAX, last = 0;
  for (uint32_t r = 0; r < in->nrank; r++) {
    const Rank *k = &m->rank[r];
    last = later(last, later(k->compute_free, k->copy_free));
    for (uint32_t q = k->queue0; q < k->queue0 + k->nqueue; q++)
      last = later(last, m->queue[q].free);
    out->compute_done[r] = k->ncompute;
    out->comm_done[r] = k->over ? 0 : k->ncomm;
    while (k->over && out->comm_done[r] < in->comm[r].n && k->over[out->comm_done[r]])
      out->comm_done[r]++;
    if (out->copy_done)
      out->copy_done[r] = k->ncopy;
    if (out->rank_window)
      out->rank_window[r] = k->ncompute ? k->compute_free - k->compute_begin : 0;
    uint64_t begin = k->begin < k->compute_begin ? k->begin : k->compute_begin;
    first = begin < first ? begin : first;
  }
  out->makespan = first == UINT64_MAX ? 0 : last - first;
}

PipeSimStatus pipe_sim(const PipeSimIn *in, PipeSimOut *out, uint32_t *rank) {
  Machine m = {.in = in, .out = out};
  Arena *a = &m.arena;
  m.rank = NEW_ARRAY(a, Rank, in->nrank);
  m.ready = NEW_ARRAY(a, uint32_t, in->nrank);
  m.link_free = NEW_ARRAY(a, uint64_t, in->nlink);
  m.wait = NEW_ARRAY(a, const PipeWait *, in->nrank);
  for (uint32_t r = 0; r < in->nrank; r++)
    m.wait[r] = in->wait[r];
  if (in->nchannel)
    find_queues(&m);
  else
    m.queue = NEW_ARRAY(a, Queue, in->nrank);
  find_ranks(&m);
  for (uint32_t r = 0; m.groups && r < in->nrank; r++)
    m.queue[r].paired = NEW_ARRAY(a, uint8_t, in->comm[r].n);
  out->busy = out->link_wait = 0;
  for (uint32_t r = 0; out->rank_busy && r < in->nrank; r++)
    out->rank_busy[r] = 0;
  for (uint32_t i = 0; out->link_busy && i < in->nlink; i++)
    out->link_busy[i] = 0;
  PipeSimStatus status = run(&m, rank);
  read_ends(&m);
  arena_free(a);
  return status;
}
