/* SPDX-License-Identifier: MIT
 * Chooses the order of transfers where that of the idle network makes the step longer, by list
 * scheduling: because transfers take time, or because a transfer that takes none waits for its slot
 * and holds up those behind it in its queue. A transfer occupies the COMM streams of both its
 * ranks, a sum the streams of all its ranks, and a transfer over shared links also the links. Among
 * the transfers that can start, the transfer with the longest path to the end of the step goes
 * first. Requires comm, and keeps to its slots.
 *
 * The graph has a node for each action of a rank and each transfer. An arc leads to a node from
 * each node that it waits for:
 *
 *   - an op waits for its tensor;
 *   - a transfer waits for the op that makes its tensor, for its slot at the receiver, and for the
 *     transfer before it in its channel;
 *   - the op that makes a tensor waits for the slot at the sender;
 *   - an update waits for its sum.
 *
 * Copies and side ops are not in the graph. For programs that have them the times are estimates,
 * and the caller plays the emitted program.
 *
 * note [repeats]: the choice depends only on differences of times and of paths. Where the orders of
 * the ranks repeat, these differences come to repeat, and so does the order of transfers.
 *
 * note [slower]: an order takes no longer when transfers get shorter, because every start is a
 * maximum over what it waits for. So this file also tries orders found for slower networks: a
 * faster network is never predicted to be much slower.
 *
 * Cost of a round: linear in arcs, and a heap that holds at most one transfer of each channel. */
#include <string.h>

#include "graph.h"
#include "heap.h"
#include "lower.h"
#include "orders.h"

typedef struct NetArc {
  uint32_t from, to;
} NetArc;

/* A transfer that can start at `at`, because everything that it waits for is done. The least key
 * goes first. */
typedef struct Ready {
  int64_t key;
  uint64_t at;
  uint32_t x;
} Ready;

/* How a play chooses. A transfer whose path to the end is longer by d goes first, unless it can
 * start only more than ahead / 8 * d later. slow: the time of a transfer counts slow / OWN times,
 * or with ROUNDED as a multiple of half an action. */
typedef struct Choice {
  uint32_t ahead, slow;
} Choice;
enum { ROUNDED = 0, OWN = 4 };
static const Choice choices[] = {{3, OWN}, {1, OWN}, {4, ROUNDED}, {1, 5}, {14, 5}};
enum { NCHOICES = sizeof choices / sizeof *choices };

/* An action, at the row of its first op; after all ops, the transfers. All that a play reads of a
 * node is in one cache line. */
typedef struct Node {
  uint64_t time;  /* duration */
  uint64_t tail;  /* the longest path from its start to the end of the step */
  uint64_t at;    /* in a play: earliest start */
  uint32_t left;  /* in a play: arcs to it from nodes that have not ended */
  uint32_t needs; /* arcs to it */
  uint32_t arc0;  /* its first row of Net.arc; the next node has its end */
} Node;

typedef struct Net {
  const Sched *s;
  Arena *a;
  uint32_t n, nx;   /* nodes; the last nx are the transfers */
  Node *node;       /* [n + 1] */
  VEC(NetArc) arcs; /* while the net is built */
  uint32_t *arc;    /* the nodes that wait for each node */
  VEC(uint32_t)
  took;            /* by transfer: ranks and nrank + links that it occupies */
  uint32_t *took0; /* [nx + 1] */
  uint64_t *own;   /* [nx] duration of each transfer, by its own costs */
  /* the state of a play */
  uint64_t *now;           /* [nrank] end of the last action */
  uint64_t *free;          /* [nrank + nlink] when each rank and link is free for a transfer */
  uint32_t *head;          /* [nrank] first op of the next action */
  uint32_t *stack, nstack; /* actions that can run */
  uint32_t *topo, ntopo;   /* [n] nodes in the order in which they ended */
  Ready *heap;
  uint32_t nheap, ahead; /* ahead: as in Choice */
} Net;

/* ---- the net ---- */

static void add_arc(Net *net, uint32_t from, uint32_t to) {
  *vec_push(net->a, &net->arcs) = (NetArc){from, to};
}

static void take(Net *net, uint32_t what) { *vec_push(net->a, &net->took) = what; }

/* Adds transfer i, number n of its channel. at: the transfers of this channel. */
static void add_move(Net *net, uint32_t i, const uint32_t *at, uint32_t n, const Channel *ch) {
  const Sched *s = net->s;
  const Xfer *x = &s->lowered->xfer[i];
  uint32_t node = s->orders->nop + i, from = op_action(s, x->from);
  uint32_t a = op_rank(s, x->from), b = op_rank(s, x->to);
  add_arc(net, from, node);
  add_arc(net, node, op_action(s, x->to));
  if (n > 0)
    add_arc(net, s->orders->nop + at[n - 1], node);
  if (n >= ch->out_slots)
    add_arc(net, s->orders->nop + at[n - ch->out_slots], from);
  if (n >= ch->in_slots)
    add_arc(net, op_action(s, s->lowered->xfer[at[n - ch->in_slots]].to), node);
  take(net, a), take(net, b);
  const PipeShare *share = s->model->nshare ? pipe_shares(s->model->share, s->model->nshare, a, b)
                                            : NULL;
  for (; share && share < s->model->share + s->model->nshare && share->from == a && share->to == b;
       share++)
    take(net, s->model->nrank + share->link);
}

/* Iterates over the rows of a sum: the replicas of `first`, or its tie. *j: 0 at first. */
static bool next_row(const Sched *s, bool tie, uint32_t first, uint32_t *j, uint32_t *row) {
  if (tie) {
    const uint32_t *of = &s->model->tie_row0[s->model->tie_of[first]];
    *row = of[0] + *j < of[1] ? s->model->tie_row[of[0] + *j] : NONE;
    return of[0] + (*j)++ < of[1];
  }
  *row = *j == 0 ? first : s->model->stage[*row].replica;
  return (*j)++ == 0 || *row != first;
}

/* Adds sum i. sums: counts so far, by stage of the model, then by tie. reduced: node of the last
 * REDUCE of each stage of the model, or 0. */
static void add_sum(Net *net, uint32_t i, uint32_t *sums, uint32_t *reduced) {
  const Sched *s = net->s;
  const bool tie = s->lowered->xfer[i].to == XFER_TIE;
  uint32_t node = s->orders->nop + i, first = s->orders->op[s->lowered->xfer[i].from].stage;
  uint32_t k =
      sums[tie ? s->model->nmodel + s->model->tie_of[first] : s->model->stage[first].model]++;
  for (uint32_t j = 0, row = 0; next_row(s, tie, first, &j, &row);) {
    const Round *round = &s->orders->round[s->orders->round0[row] + k];
    add_arc(net, op_action(s, round->grad), node);
    add_arc(net, node, op_action(s, round->u));
    if (tie && reduced[s->model->stage[row].model])
      add_arc(net, reduced[s->model->stage[row].model], node);
    take(net, s->model->stage[row].rank);
  }
  if (!tie)
    reduced[s->model->stage[first].model] = node;
}

uint64_t transfer_time(const Sched *s, const Xfer *x) {
  const Op *from = &s->orders->op[x->from];
  if (xfer_is_sum(x)) {
    uint32_t row = x->to == XFER_TIE ? s->model->stage[from->stage].tied : from->stage;
    return s->model->stage[row].time[x->to == XFER_TIE ? PIPE_TIE : PIPE_REDUCE];
  }
  uint32_t edge = s->model->graph ? link_at(s, xfer_link(s, x)).edge : NONE;
  return edge_time(s, edge, from->stage, from->kind == PIPE_F);
}

/* Sorts the arcs by the node that they leave. */
static void sort_arcs(Net *net) {
  net->arc = arena_alloc(net->a, net->arcs.n * sizeof *net->arc + 1);
  for (uint32_t i = 0; i < net->arcs.n; i++) {
    net->node[net->arcs.at[i].from].arc0++;
    net->node[net->arcs.at[i].to].needs++;
  }
  for (uint32_t v = 1; v <= net->n; v++)
    net->node[v].arc0 += net->node[v - 1].arc0;
  for (uint32_t i = net->arcs.n; i-- > 0;)
    net->arc[--net->node[net->arcs.at[i].from].arc0] = net->arcs.at[i].to;
}

/* ---- a play ---- */

static void begin_play(Net *net) {
  const Sched *s = net->s;
  for (uint32_t v = 0; v < net->n; v++)
    net->node[v].at = 0, net->node[v].left = net->node[v].needs;
  memset(net->now, 0, s->model->nrank * sizeof *net->now);
  memset(net->free, 0, ((size_t)s->model->nrank + s->model->nlink) * sizeof *net->free);
  memcpy(net->head, s->orders->rank_op0, s->model->nrank * sizeof *net->head);
  net->nstack = net->nheap = net->ntopo = 0;
  for (uint32_t r = s->model->nrank; r-- > 0;)
    if (s->orders->rank_op0[r] < s->orders->rank_op0[r + 1] &&
        !net->node[s->orders->rank_op0[r]].left)
      net->stack[net->nstack++] = s->orders->rank_op0[r];
}

static bool goes_first(const void *a, const void *b, const void *of) {
  const Ready *x = a, *y = b;
  (void)of;
  return x->key != y->key ? x->key < y->key : x->x < y->x;
}

/* Transfer x can start at `at`. */
static void put(Net *net, uint32_t x, uint64_t at) {
  uint64_t path = net->node[net->s->orders->nop + x].tail;
  Ready r = {(int64_t)at - (int64_t)(path / 8 * net->ahead), at, x};
  heap_put(net->heap, ++net->nheap, sizeof r, &r, goes_first, NULL);
}

static Ready get(Net *net) {
  Ready first = net->heap[0];
  heap_drop(net->heap, net->nheap--, sizeof first, goes_first, NULL);
  return first;
}

/* The earliest start of transfer x: after all it waits for, when its ranks and links are free. */
static uint64_t can_start(const Net *net, uint32_t x) {
  uint64_t at = net->node[net->s->orders->nop + x].at;
  for (uint32_t k = net->took0[x]; k < net->took0[x + 1]; k++) {
    uint64_t free = net->free[net->took.at[k]];
    at = free > at ? free : at;
  }
  return at;
}

/* Ends node v, and releases the nodes that wait only for it. */
static void end_node(Net *net, uint32_t v, uint64_t end) {
  const uint32_t nop = net->s->orders->nop;
  net->topo[net->ntopo++] = v;
  for (uint32_t k = net->node[v].arc0; k < net->node[v + 1].arc0; k++) {
    const uint32_t w = net->arc[k];
    Node *node = &net->node[w];
    node->at = end > node->at ? end : node->at;
    if (--node->left > 0)
      continue;
    if (w >= nop)
      put(net, w - nop, can_start(net, w - nop));
    else if (net->head[op_rank(net->s, w)] == w)
      net->stack[net->nstack++] = w;
  }
}

static void run_actions(Net *net) {
  const Sched *s = net->s;
  while (net->nstack > 0) {
    uint32_t v = net->stack[--net->nstack], r = op_rank(s, v),
             next = v + s->orders->op[v].group + 1;
    uint64_t start = net->now[r] > net->node[v].at ? net->now[r] : net->node[v].at;
    net->now[r] = start + net->node[v].time;
    net->head[r] = next;
    end_node(net, v, net->now[r]);
    if (next < s->orders->rank_op0[r + 1] && net->node[next].left == 0)
      net->stack[net->nstack++] = next;
  }
}

static void run_transfer(Net *net, uint32_t x, uint64_t start) {
  uint64_t end = start + net->node[net->s->orders->nop + x].time;
  for (uint32_t k = net->took0[x]; k < net->took0[x + 1]; k++)
    net->free[net->took.at[k]] = end;
  end_node(net, net->s->orders->nop + x, end);
}

static uint64_t last_end(const Net *net) {
  uint64_t end = 0;
  for (uint32_t r = 0; r < net->s->model->nrank; r++)
    end = net->now[r] > end ? net->now[r] : end;
  return end;
}

/* Plays by longest path. Writes the transfers into order[nx] as they start. Returns the makespan;
 * UINT64_MAX: transfers wait for each other. */
static uint64_t play_by_path(Net *net, uint32_t *order) {
  uint32_t n = 0;
  begin_play(net);
  for (run_actions(net); net->nheap > 0; run_actions(net)) {
    Ready r = get(net);
    uint64_t start = can_start(net, r.x);
    if (start > r.at) {
      put(net, r.x, start);
      continue;
    }
    order[n++] = r.x;
    run_transfer(net, r.x, start);
  }
  return n == net->nx ? last_end(net) : UINT64_MAX;
}

/* Plays the transfers in a given order. Returns as play_by_path. */
static uint64_t play_order(Net *net, const uint32_t *order) {
  begin_play(net);
  run_actions(net);
  for (uint32_t i = 0; i < net->nx; i++) {
    net->nheap = 0; /* the order decides, not the heap */
    if (net->node[net->s->orders->nop + order[i]].left > 0)
      return UINT64_MAX;
    run_transfer(net, order[i], can_start(net, order[i]));
    run_actions(net);
  }
  return last_end(net);
}

/* Computes the tails from the current times. Requires a complete play, with any times. */
static void fill_tails(Net *net) {
  const Sched *s = net->s;
  for (uint32_t i = net->ntopo; i-- > 0;) {
    uint32_t v = net->topo[i], next = v < s->orders->nop ? v + s->orders->op[v].group + 1 : 0;
    uint64_t most = 0;
    if (v < s->orders->nop && next < s->orders->rank_op0[op_rank(s, v) + 1])
      most = net->node[next].tail;
    for (uint32_t k = net->node[v].arc0; k < net->node[v + 1].arc0; k++) {
      const uint64_t tail = net->node[net->arc[k]].tail;
      most = tail > most ? tail : most;
    }
    net->node[v].tail = most + net->node[v].time;
  }
}

static Net *net_of(Sched *s, Arena *a) {
  Net *net = NEW(a, Net);
  uint32_t *first, *list, *sums = NEW_ARRAY(a, uint32_t, s->model->nmodel + (size_t)s->model->ntie),
                          *reduced = NEW_ARRAY(a, uint32_t, s->model->nmodel),
                          *next = NEW_ARRAY(a, uint32_t, 2 * (size_t)nlinks(s));
  *net = (Net){.s = s, .a = a, .n = s->orders->nop + s->ideal->nxfer, .nx = s->ideal->nxfer};
  const size_t n = net->n + (size_t)1, nx = net->nx + (size_t)1;
  net->node = NEW_ARRAY(a, Node, n);
  net->took0 = arena_alloc(a, nx * sizeof *net->took0);
  net->own = arena_alloc(a, nx * sizeof *net->own);
  list = xfers_by_channel(s, a, &first);
  for (uint32_t i = 0; i < net->nx; i++) {
    const Xfer *x = &s->lowered->xfer[i];
    net->took0[i] = net->took.n;
    net->own[i] = transfer_time(s, x);
    if (xfer_is_sum(x)) {
      add_sum(net, i, sums, reduced);
      continue;
    }
    uint32_t c = 2 * xfer_link(s, x) + (s->orders->op[x->from].kind != PIPE_F);
    add_move(net, i, &list[first[c]], next[c]++, &s->lowered->channel[c]);
  }
  net->took0[net->nx] = net->took.n;
  sort_arcs(net);
  for (uint32_t i = 0; i < s->orders->nop; i += s->orders->op[i].group + 1u)
    net->node[i].time = action_time(s, s->model->stage, false, i);
  net->now = arena_alloc(a, s->model->nrank * sizeof *net->now);
  net->free = arena_alloc(a, ((size_t)s->model->nrank + s->model->nlink) * sizeof *net->free);
  net->head = arena_alloc(a, s->model->nrank * sizeof *net->head);
  net->stack = arena_alloc(a, n * sizeof *net->stack);
  net->topo = arena_alloc(a, n * sizeof *net->topo);
  net->heap = arena_alloc(a, nx * sizeof *net->heap);
  return net;
}

/* Half of the shortest action that takes time; at least 1. */
static uint64_t half_action(const Net *net) {
  const Sched *s = net->s;
  uint64_t least = UINT64_MAX;
  for (uint32_t i = 0; i < s->orders->nop; i += s->orders->op[i].group + 1u)
    least = net->node[i].time > 0 && net->node[i].time < least ? net->node[i].time : least;
  return least == UINT64_MAX || least < 2 ? 1 : least / 2;
}

/* Sets the durations of transfers for a choice. unit: half_action. */
static void set_times(Net *net, uint32_t slow, uint64_t unit) {
  Node *node = &net->node[net->s->orders->nop];
  for (uint32_t x = 0; x < net->nx; x++) {
    const uint64_t own = net->own[x], over = own % unit;
    node[x].time = slow == ROUNDED ? own + (over ? unit - over : 0)
                                   : own / OWN * slow + own % OWN * slow / OWN;
  }
}

/* The shortest of the orders that the choices find. False: with these slots transfers wait for each
 * other, or no order takes less than `makespan`. */
static bool find_order(Net *net, uint64_t makespan, uint32_t *best) {
  const Sched *s = net->s;
  const uint64_t unit = half_action(net), ideal = s->ideal->time.makespan;
  uint32_t *order = arena_alloc(net->a, net->nx * sizeof *order + 1);
  uint64_t least = makespan;
  set_times(net, OWN, unit);
  if (play_by_path(net, order) == UINT64_MAX)
    return false;
  for (int i = 0; i < NCHOICES && least > ideal + ideal / 1000; i++) {
    set_times(net, choices[i].slow, unit);
    fill_tails(net);
    net->ahead = choices[i].ahead;
    uint64_t end = play_by_path(net, order);
    if (choices[i].slow != OWN) {
      set_times(net, OWN, unit);
      end = play_order(net, order);
    }
    if (end >= least)
      continue;
    least = end;
    memcpy(best, order, net->nx * sizeof *best);
  }
  return least < makespan;
}

Xfer *reorder_transfers(Sched *s, uint64_t makespan) {
  Arena own = {0};
  Net *net = net_of(s, &own);
  uint32_t *order = arena_alloc(&own, net->nx * sizeof *order + 1);
  Xfer *x = NULL;
  if (find_order(net, makespan, order)) {
    x = arena_alloc(s->arena, net->nx * sizeof *x + 1);
    for (uint32_t i = 0; i < net->nx; i++)
      x[i] = s->lowered->xfer[order[i]];
  }
  arena_free(&own);
  return x;
}
