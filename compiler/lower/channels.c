/* SPDX-License-Identifier: MIT
 * Lays out transfers by channel, for the lowering `channels` (lang/spec.md 8.4). Transfers keep the
 * one global order, but a transfer waits only for earlier transfers of its channel. comm calls this
 * file to lay out transfers, settle to play them, lower to write them.
 *
 * A channel holds the transfers of one kind (forward or backward) of one pipe from one rank to
 * another. The sums over one set of ranks form a channel too. A sum and the sums that need its
 * result share one channel: a TIE waits for the REDUCE of its rows because the REDUCE stands above
 * it there. The side ops in the COMM stream of a rank form a channel.
 *
 * note [channels]: an op can need transfers of several channels; it has a wait for each. After the
 * timed machine has played the program, sort_channels puts the instructions into the order in which
 * the machine started them.
 *
 * Lemma: in this order every instruction stands after every instruction that it waits for. Proof:
 * the machine starts an instruction after everything that it waits for has completed, so after it
 * has started; and it starts both ends of a transfer at once. Hence the lists complete even with
 * one COMM stream per rank. Engines that issue from one thread, and readers that follow list order,
 * rely on this.
 *
 * Cost: linear in instructions, and a sort of all transfers. */
#include <string.h>

#include "lower.h"
#include "graph.h"
#include "orders.h"
#include "plant.h"

/* The ranks of one sum. */
typedef struct Members {
  uint32_t *rank, n, sum; /* rank: ascending, no duplicates; sum: index as in channel_of_sum */
} Members;

static int by_number(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

static int by_members(const void *a, const void *b) {
  const Members *x = a, *y = b;
  if (x->n != y->n)
    return x->n < y->n ? -1 : 1;
  int by = memcmp(x->rank, y->rank, x->n * sizeof *x->rank);
  return by ? by : x->sum < y->sum ? -1 : x->sum > y->sum;
}

static Members members_of(Sched *s, uint32_t sum, const uint32_t *row, uint32_t nrow) {
  Members m = {arena_alloc(s->arena, nrow * sizeof *m.rank + 1), 0, sum};
  for (uint32_t i = 0; i < nrow; i++)
    m.rank[i] = s->model->stage[row[i]].rank;
  qsort(m.rank, nrow, sizeof *m.rank, by_number);
  for (uint32_t i = 0; i < nrow; i++)
    if (i == 0 || m.rank[i] != m.rank[m.n - 1])
      m.rank[m.n++] = m.rank[i];
  return m;
}

uint32_t *find_communicators(Sched *s) {
  uint32_t n = 0, nsum = s->model->nmodel + s->model->ntie,
           *row = arena_alloc(s->arena, s->model->nstage * sizeof *row + 1);
  Members *m = arena_alloc(s->arena, nsum * sizeof *m + 1);
  uint32_t *comm_of = arena_alloc(s->arena, nsum * sizeof *comm_of + 1);
  for (uint32_t i = 0; i < s->model->nmodel; i++) {
    uint32_t k = 0, q = i;
    do
      row[k++] = q;
    while ((q = s->model->stage[q].replica) != i);
    m[n++] = members_of(s, i, row, k);
  }
  for (uint32_t i = 0; i < s->model->ntie; i++)
    m[n++] = members_of(s, s->model->nmodel + i, &s->model->tie_row[s->model->tie_row0[i]],
                        s->model->tie_row0[i + 1] - s->model->tie_row0[i]);
  qsort(m, n, sizeof *m, by_members);
  for (uint32_t i = 0, c = 0; i < n; i++) {
    c += i > 0 &&
         (m[i].n != m[i - 1].n || memcmp(m[i].rank, m[i - 1].rank, m[i].n * sizeof *m->rank));
    comm_of[m[i].sum] = PLANTED(COMMUNICATOR) ? i : c;
  }
  return comm_of;
}

/* ---- channel numbers ---- */

typedef struct Named {
  PipeChannel is;
  uint32_t at; /* row of Lowered.channel_of */
} Named;

static int by_name(const void *a, const void *b) {
  const Named *x = a, *y = b;
  const uint32_t p[] = {x->is.op, x->is.from, x->is.to, x->is.pipe, x->at},
                 q[] = {y->is.op, y->is.from, y->is.to, y->is.pipe, y->at};
  for (size_t i = 0; i < sizeof p / sizeof *p; i++)
    if (p[i] != q[i])
      return p[i] < q[i] ? -1 : 1;
  return 0;
}

/* Union-find over communicators: the sums of one set share a channel. */
static uint32_t root_of(uint32_t *parent, uint32_t c) {
  while (parent[c] != c)
    c = parent[c] = parent[parent[c]];
  return c;
}

static void join_sums(const Sched *s, const uint32_t *comm_of, uint32_t *parent) {
  for (uint32_t t = 0; t < s->model->ntie; t++)
    for (uint32_t j = s->model->tie_row0[t]; j < s->model->tie_row0[t + 1]; j++) {
      uint32_t row = s->model->tie_row[j];
      if (s->model->stage[row].replica != row)
        parent[root_of(parent, comm_of[s->model->stage[row].model])] = root_of(
            parent, comm_of[s->model->nmodel + t]);
    }
}

void find_channels(Sched *s, Lowered *lowered) {
  uint32_t nlink = nlinks(s), nsum = s->model->nmodel + s->model->ntie, n = 0;
  const uint32_t *comm_of = find_communicators(s);
  uint32_t *parent = NEW_ARRAY(s->arena, uint32_t, nsum + (size_t)1);
  for (uint32_t i = 0; i < nsum; i++)
    parent[i] = i;
  join_sums(s, comm_of, parent);
  size_t most = 2 * (size_t)nlink + nsum + s->model->nrank;
  Named *name = arena_alloc(s->arena, most * sizeof *name + 1);
  lowered->channel_of = arena_alloc(s->arena, most * sizeof *lowered->channel_of + 1);
  for (uint32_t i = 0; i < nlink; i++) {
    Link l = link_at(s, i);
    if (!link_crosses(s, l))
      continue;
    uint32_t a = s->model->stage[l.from].rank, b = s->model->stage[l.to].rank,
             pipe = pipe_of(s, l.from);
    for (uint32_t back = 0; back < (s->model->forward ? 1 : 2); back++)
      name[n++] = (Named){{back ? PIPE_SEND_B : PIPE_SEND_F, back ? b : a, back ? a : b, pipe},
                          2 * i + back};
  }
  uint32_t *low = arena_alloc(s->arena, (nsum + (size_t)1) * sizeof *low);
  memset(low, 0xff, (nsum + (size_t)1) * sizeof *low);
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t row = 0; row < s->model->nstage; row++) {
      const PipeStage *st = &s->model->stage[row];
      for (int tie = 0; tie < 2; tie++) {
        uint32_t sum = tie ? s->model->ntie ? s->model->nmodel + s->model->tie_of[row] : NONE
                           : st->model;
        if (tie ? st->tied == NONE : st->replica == row)
          continue;
        uint32_t c = root_of(parent, comm_of[sum]);
        if (!pass)
          low[c] = st->rank < low[c] ? st->rank : low[c];
        else if (tie ? s->model->tie_row[s->model->tie_row0[s->model->tie_of[row]]] == row
                     : st->model == row)
          name[n++] = (Named){{PIPE_REDUCE, low[c], NONE, c}, 2 * nlink + sum};
      }
    }
  for (uint32_t r = 0; s->sides->ncomm > 0 && r < s->model->nrank; r++)
    name[n++] = (Named){{PIPE_SIDE_COMM, r, NONE, NONE}, 2 * nlink + nsum + r};
  qsort(name, n, sizeof *name, by_name);
  lowered->pipe_channel = arena_alloc(s->arena, n * sizeof *lowered->pipe_channel + 1);
  for (uint32_t i = 0; i < n; i++) {
    if (i == 0 || memcmp(&name[i].is, &name[i - 1].is, sizeof name->is) != 0)
      lowered->pipe_channel[lowered->npipe_channel++] = name[i].is;
    lowered->channel_of[name[i].at] = lowered->npipe_channel - 1;
  }
  for (uint32_t i = 0; i < lowered->npipe_channel; i++)
    if (lowered->pipe_channel[i].op == PIPE_REDUCE)
      lowered->pipe_channel[i].pipe = NONE;
}

uint32_t channel_of_link(const Sched *s, uint32_t link, bool forward) {
  return s->lowered->channel_of ? s->lowered->channel_of[2 * (size_t)link + !forward] : NONE;
}

uint32_t channel_of_sum(const Sched *s, uint32_t sum) {
  return s->lowered->channel_of ? s->lowered->channel_of[2 * (size_t)nlinks(s) + sum] : NONE;
}

uint32_t channel_of_sides(const Sched *s, uint32_t rank) {
  return s->lowered->channel_of
             ? s->lowered
                   ->channel_of[2 * (size_t)nlinks(s) + s->model->nmodel + s->model->ntie + rank]
             : NONE;
}

/* ---- list order ---- */

typedef struct Turn {
  uint64_t start;
  uint32_t turn, at;
} Turn;

static int by_turn(const void *a, const void *b) {
  const Turn *x = a, *y = b;
  if (x->start != y->start)
    return x->start < y->start ? -1 : 1;
  return x->turn != y->turn ? (x->turn < y->turn ? -1 : 1) : x->at < y->at ? -1 : x->at > y->at;
}

/* Sorts the COMM stream of rank r. turn: of each of its instructions. */
static void sort_rank(Sched *s, Lowered *lowered, Times *times, uint32_t r, const uint32_t *turn) {
  Streams *t = &lowered->stream[r];
  uint64_t *start = times->comm_start[r];
  Arena tmp = {0};
  Turn *key = arena_alloc(&tmp, t->ncomm * sizeof *key + 1);
  uint32_t *to = arena_alloc(&tmp, t->ncomm * sizeof *to + 1);
  for (uint32_t i = 0; i < t->ncomm; i++)
    key[i] = (Turn){start[i], turn[i], i};
  if (t->ncomm > 1)
    qsort(key, t->ncomm, sizeof *key, by_turn);
  PipeInstr *old = arena_alloc(&tmp, t->ncomm * sizeof *old + 1);
  if (t->ncomm)
    memcpy(old, t->comm, t->ncomm * sizeof *old);
  for (uint32_t i = 0; i < t->ncomm; i++) {
    t->comm[i] = old[key[i].at];
    start[i] = key[i].start;
    to[key[i].at] = i;
  }
  for (uint32_t i = s->sides->nuse ? s->sides->use0[r] : 0;
       s->sides->nuse && i < s->sides->use0[r + 1]; i++)
    if (s->sides->use[i].kind == PIPE_SIDE_COMM)
      lowered->side_pos[i] = to[lowered->side_pos[i] - 1] + 1;
  arena_free(&tmp);
}

/* Puts Lowered.xfer into the same order: a transfer takes the next place in the streams of its
 * ranks. */
static void sort_xfers(Sched *s, Lowered *lowered, uint32_t *const *turn) {
  uint32_t *next = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  Turn *key = arena_alloc(s->arena, (size_t)s->ideal->nxfer * sizeof *key + 1);
  Xfer *to = arena_alloc(s->arena, (size_t)s->ideal->nxfer * sizeof *to + 1);
  for (uint32_t i = 0; i < s->ideal->nxfer; i++) {
    const Xfer *x = &lowered->xfer[i];
    bool side = x->to == XFER_SIDE;
    uint32_t row = side ? s->sides->use[x->from].stage : s->orders->op[x->from].stage;
    row = x->to == XFER_TIE ? s->model->stage[row].tied : row;
    uint32_t r = s->model->stage[row].rank, at = next[r]++;
    key[i] = (Turn){s->times->comm_start[r][at], turn[r][at], i};
    if (xfer_moves(x))
      next[op_rank(s, x->to)]++;
    else if (!side)
      for (uint32_t q =
               pipe_sum_next(s->model->stage, x->to == XFER_TIE ? PIPE_TIE : PIPE_REDUCE, row);
           q != row;
           q = pipe_sum_next(s->model->stage, x->to == XFER_TIE ? PIPE_TIE : PIPE_REDUCE, q))
        next[s->model->stage[q].rank]++;
  }
  if (s->ideal->nxfer > 1)
    qsort(key, s->ideal->nxfer, sizeof *key, by_turn);
  for (uint32_t i = 0; i < s->ideal->nxfer; i++)
    to[i] = lowered->xfer[key[i].at];
  lowered->xfer = to;
}

/* Numbers the channels by their first instruction; drops unused channels. */
static void number_channels(Sched *s, Lowered *lowered, uint32_t *const *turn) {
  Turn *key = arena_alloc(s->arena, lowered->npipe_channel * sizeof *key + 1);
  uint32_t *number = arena_alloc(s->arena, lowered->npipe_channel * sizeof *number + 1), n = 0;
  for (uint32_t c = 0; c < lowered->npipe_channel; c++)
    key[c] = (Turn){UINT64_MAX, NONE, c};
  for (uint32_t r = 0; r < s->model->nrank; r++)
    for (uint32_t i = 0; i < lowered->stream[r].ncomm; i++) {
      uint32_t c = lowered->stream[r].comm[i].channel;
      Turn t = {s->times->comm_start[r][i], turn[r][i], c};
      if (by_turn(&t, &key[c]) < 0)
        key[c] = t;
    }
  qsort(key, lowered->npipe_channel, sizeof *key, by_turn);
  PipeChannel *table = arena_alloc(s->arena, lowered->npipe_channel * sizeof *table + 1);
  for (; n < lowered->npipe_channel && key[n].turn != NONE; n++) { /* the rest are unused */
    number[key[n].at] = n;
    table[n] = lowered->pipe_channel[key[n].at];
  }
  lowered->pipe_channel = table, lowered->npipe_channel = n;
  for (uint32_t r = 0; r < s->model->nrank; r++)
    for (uint32_t i = 0; i < lowered->stream[r].ncomm; i++)
      lowered->stream[r].comm[i].channel = number[lowered->stream[r].comm[i].channel];
  for (uint32_t r = 0; r < s->model->nrank; r++)
    for (uint32_t i = 0; i < lowered->stream[r].nwait; i++) {
      uint32_t *queue = &lowered->stream[r].wait[i].queue;
      *queue = *queue < PIPE_NSTREAMS ? *queue : PIPE_NSTREAMS + number[*queue - PIPE_NSTREAMS];
    }
}

/* Does every transfer take time? Then no transfer waits for a transfer that starts at the same
 * time. */
static bool all_take_time(const Sched *s) {
  for (uint32_t i = 0; i < s->ideal->nxfer; i++)
    if (s->lowered->xfer[i].to == XFER_SIDE || transfer_time(s, &s->lowered->xfer[i]) == 0)
      return false;
  return true;
}

void sort_channels(Sched *s, Lowered *lowered, Times *times, uint32_t *const *turn) {
  /* Transfers that start together then keep the global order, which repeats where the ops
   * repeat. */
  const bool alike = all_take_time(s);
  for (uint32_t r = 0; r < s->model->nrank && alike; r++)
    memset(turn[r], 0, lowered->stream[r].ncomm * sizeof *turn[r]);
  if (lowered->npipe_channel > 0)
    number_channels(s, lowered, turn);
  sort_xfers(s, lowered, turn);
  for (uint32_t r = 0; r < s->model->nrank; r++)
    sort_rank(s, lowered, times, r, turn[r]);
}
