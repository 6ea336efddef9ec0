/* SPDX-License-Identifier: MIT
 * Decides whether lists complete: the abstract machine of machine.h. A stream is a queue, the
 * compute ops or the copies of a rank; every instruction is in one stream. A stream that cannot go
 * on waits at one instruction, and runs again when this instruction is posted or done. An
 * instruction wakes each waiter at most twice, so the run is linear. The members of a group may be
 * in several streams: the stream of the first member posts and ends the whole group, the others
 * wait.
 *
 * note [marked graph]: streams are FIFO, or tags decide, so the partner of each transfer is fixed
 * before the run. So each group (most have one instruction) waits for a fixed conjunction. Theorem
 * (Commoner, Holt, Even, Pnueli 1971): the machine completes if and only if the graph of these
 * waits has no cycle. A stuck stream waits with the group of its head. What this group waits for is
 * in a stream that is stuck too, at or behind its head. So the cycles of the graph run through
 * stuck heads, and breadth-first searches from the heads find a shortest one.
 *
 * MACHINE_OMIT leaves out one kind of edge. Tests build it so, to see that they notice. */
#include "machine.h"

#include <string.h>

#define NONE MACHINE_NONE

typedef enum Edge {
  EDGE_COMPUTE,
  EDGE_QUEUE,
  EDGE_NEED,
  EDGE_RENDEZVOUS,
  EDGE_ROOM,
  EDGE_ARRIVAL,
  EDGE_ALL,
  EDGE_TENSOR,
  EDGE_GROUP,
  EDGE_ORDER
} Edge;
#ifdef MACHINE_OMIT
#define HAS(edge) ((edge) != MACHINE_OMIT)
#else
#define HAS(edge) true
#endif

/* CROSSED: the other end has another tensor. REACHED: find_rooms takes this RECV as posted. BEHIND:
 * a SEND larger than the buffer, below a crossed message that never leaves the buffer. */
enum { POSTED = 1, DONE = 2, CROSSED = 4, REACHED = 8, BEHIND = 16 };

typedef struct Row { /* one instruction; instructions are numbered through all lists */
  uint32_t rank, stream;
  uint32_t next, prev; /* in its stream */
  uint32_t lead;       /* the first of its group; itself without a group */
  uint32_t chain;      /* next SEND or RECV of its channel; ALL: next of its communicator here */
  uint32_t mate;       /* the other end; ALL: the partner on the next member; NONE: there is none */
  uint32_t room;   /* SEND: the RECV that must be posted; `mate`: its own; FREE: there is room */
  uint32_t waiter; /* first stream that waits for it; NONE */
  uint32_t flags;
} Row;
#define FREE (NONE - 1)

/* Instructions that meet in list order: SENDs and RECVs of a directed pair (with tags: of one
 * tensor), or the ALLs of one communicator on one rank. */
typedef struct Channel {
  uint32_t first[2], last[2]; /* [0] SEND or ALL, [1] RECV */
  uint32_t peer_next;         /* ALL: this communicator on another rank */
} Channel;

typedef struct Entry {
  uint64_t a, b, tensor;
  uint32_t value;
} Entry; /* value: 1 + the number of the key; 0: empty */
typedef struct Table {
  Entry *at;
  uint64_t mask;
  uint32_t n;
} Table;

typedef struct Machine {
  Arena *arena;
  const MachineList *list;
  uint32_t nrank, n;
  ChannelModel model;
  uint32_t *base;   /* [nrank + 1] number of the first instruction of a list */
  Row *row;         /* [n] */
  Channel *channel; /* [nchannel] */
  uint32_t nchannel, npair;
  Channel *pair;       /* [npair] TAGGED: all transfers of a directed pair; else NULL */
  uint32_t *first;     /* [nstream] first instruction */
  uint32_t *head;      /* [nstream] next instruction; NONE: finished */
  uint32_t *wait_next; /* [nstream] next stream that waits for the same instruction */
  uint32_t *above; /* [n] TAGGED: the transfer above with the same peer and direction; else NULL */
  uint32_t nstream;
  uint32_t *posted, *ended; /* [n] times; NULL: no certificate is asked for */
  uint32_t *work;           /* streams that may advance */
  uint32_t nwork;
} Machine;

static const MachineInstr *instr(const Machine *m, uint32_t i) {
  uint32_t r = m->row[i].rank;
  return &m->list[r].instr[i - m->base[r]];
}

static bool is(const Machine *m, uint32_t i, uint32_t flag) {
  return (m->row[i].flags & flag) != 0;
}

/* ---- streams and partners ---- */

static Entry *table_find(Entry *at, uint64_t mask, uint64_t a, uint64_t b, uint64_t tensor) {
  uint64_t h = (a * 0x9E3779B97F4A7C15u ^ b * 0xC2B2AE3D27D4EB4Fu ^ tensor * 0x165667B19E3779F9u);
  h ^= h >> 29;
  while (at[h & mask].value &&
         (at[h & mask].a != a || at[h & mask].b != b || at[h & mask].tensor != tensor))
    h++;
  return &at[h & mask];
}

/* The number of a key; keys are numbered from 0 in order of first use. */
static uint32_t table_get(Arena *arena, Table *t, uint64_t a, uint64_t b, uint64_t tensor) {
  if (2 * (uint64_t)t->n >= t->mask) {
    uint64_t mask = t->mask ? 4 * t->mask + 3 : 63;
    Entry *at = NEW_ARRAY(arena, Entry, mask + 1);
    for (uint64_t i = 0; t->mask && i <= t->mask; i++)
      if (t->at[i].value)
        *table_find(at, mask, t->at[i].a, t->at[i].b, t->at[i].tensor) = t->at[i];
    t->at = at, t->mask = mask;
  }
  Entry *e = table_find(t->at, t->mask, a, b, tensor);
  if (!e->value)
    *e = (Entry){a, b, tensor, ++t->n};
  return e->value - 1;
}

/* The stream number of a SEND, RECV, ALL or COPY; makes a new stream if needed. */
static uint32_t queue_of(Machine *m, Table *t, uint32_t i) {
  const MachineInstr *in = instr(m, i);
  const bool copy = in->kind == MACHINE_COPY;
  const bool own = m->model.channels == CHANNELS_TAGGED && in->kind != MACHINE_ALL && !copy;
  if (own || !HAS(EDGE_QUEUE))
    return t->n++;
  uint64_t r = m->row[i].rank, peer = in->peer;
  if (copy)
    return table_get(m->arena, t, r, UINT64_MAX, 0);
  if (m->model.channels == CHANNELS_RANK)
    peer = in->channel;
  bool directed = m->model.channels == CHANNELS_EDGE ||
                  (in->kind == MACHINE_ALL && m->model.channels != CHANNELS_RANK);
  return table_get(m->arena, t, r, peer, directed ? in->kind : 0);
}

/* Pairs the ends of a channel, and sets what each SEND waits for. */
static void pair_channel(Machine *m, const Channel *c) {
  uint32_t lag_send = c->first[0], lag_recv = c->first[1],
           last_recv = NONE, /* with lag_send: the first message in the buffer */
      crossed = NONE;        /* first RECV that meets another tensor: no later RECV ends */
  const uint64_t limit = m->model.buffer;
  unsigned __int128 in_buffer = 0;
  bool buffered = limit > 0 && m->model.channels != CHANNELS_TAGGED;
  for (uint32_t s = c->first[0], r = c->first[1]; s != NONE || r != NONE;) {
    if (s != NONE) {
      Row *row = &m->row[s];
      uint64_t load = m->model.in_bytes ? instr(m, s)->bytes : 1;
      row->mate = row->room = r;
      if (buffered && load <= limit) {
        for (in_buffer += load; in_buffer > limit; lag_send = m->row[lag_send].chain) {
          in_buffer -= m->model.in_bytes ? instr(m, lag_send)->bytes : 1;
          last_recv = lag_recv;
          lag_recv = lag_recv == NONE ? NONE : m->row[lag_recv].chain;
        }
        row->room = lag_send == c->first[0] || !HAS(EDGE_ROOM)  ? FREE
                    : last_recv != NONE && last_recv >= crossed ? crossed
                                                                : last_recv;
      } else if (buffered) { /* larger than the buffer: until it and all before it are received */
        row->flags |= r != NONE && r > crossed ? BEHIND : 0;
        lag_send = row->chain;
        last_recv = r;
        lag_recv = r == NONE ? NONE : m->row[r].chain;
        in_buffer = 0;
      }
      if (!HAS(EDGE_RENDEZVOUS) && row->room == r)
        row->room = FREE;
    }
    if (r != NONE)
      m->row[r].mate = s;
    if (r != NONE && s != NONE && instr(m, s)->tensor != instr(m, r)->tensor && HAS(EDGE_TENSOR))
      m->row[s].flags |= CROSSED, m->row[r].flags |= CROSSED, crossed = r < crossed ? r : crossed;
    s = s == NONE ? NONE : m->row[s].chain;
    r = r == NONE ? NONE : m->row[r].chain;
  }
}

/* TAGGED, with buffers: sets what each SEND of a directed pair waits for. RECVs are posted in list
 * order. So a SEND waits for its own RECV, or for the first RECV after which the unreceived
 * messages above it leave room for it. The RECV that a SEND waits for does not precede those of the
 * SENDs above it, unless it is its own. So each RECV is reached once. */
static void find_rooms(Machine *m, const Channel *pair) {
  unsigned __int128 held = 0;                  /* by SENDs above whose RECV is not reached */
  uint32_t next = pair->first[1], last = FREE; /* the RECVs to reach next and reached last */
  for (uint32_t s = pair->first[0]; s != NONE; s = m->row[s].chain) {
    Row *row = &m->row[s];
    const uint64_t load = m->model.in_bytes ? instr(m, s)->bytes : 1;
    bool own = row->mate != NONE && is(m, row->mate, REACHED);
    while (!own && held + load > m->model.buffer && last != NONE) {
      last = next;
      if (last == NONE)
        break;
      const uint32_t sent = m->row[last].mate;
      m->row[last].flags |= REACHED;
      if (sent < s)
        held -= m->model.in_bytes ? instr(m, sent)->bytes : 1;
      own = last == row->mate;
      next = m->row[last].chain;
    }
    row->room = own ? row->mate : last;
    if ((row->room != row->mate && !HAS(EDGE_ROOM)) || (own && !HAS(EDGE_RENDEZVOUS)))
      row->room = FREE;
    held += own ? 0 : load;
  }
}

/* TAGGED, after pairing: replaces the chains by tensor with chains by directed pair. Ensures pair
 * and above. */
static void put_in_order(Machine *m) {
  Table pairs = {0};
  VEC(Channel) pair = {0};
  m->above = arena_alloc(m->arena, (size_t)m->n * sizeof *m->above + 1);
  for (uint32_t i = 0; i < m->n; i++) {
    const MachineInstr *in = instr(m, i);
    const int recv = in->kind == MACHINE_RECV;
    m->above[i] = NONE;
    if (!recv && in->kind != MACHINE_SEND)
      continue;
    const uint32_t r = m->row[i].rank,
                   p = table_get(m->arena, &pairs, recv ? in->peer : r, recv ? r : in->peer, 0);
    if (p == pair.n)
      *vec_push(m->arena, &pair) = (Channel){{NONE, NONE}, {NONE, NONE}, NONE};
    m->row[i].chain = NONE;
    if (pair.at[p].first[recv] == NONE)
      pair.at[p].first[recv] = i;
    else
      m->row[m->above[i] = pair.at[p].last[recv]].chain = i;
    pair.at[p].last[recv] = i;
  }
  m->pair = pair.at, m->npair = pair.n;
}

/* Sets what each SEND waits for, given the buffer of the model. */
static void set_rooms(Machine *m) {
  if (m->model.channels != CHANNELS_TAGGED) {
    for (uint32_t c = 0; c < m->nchannel; c++)
      pair_channel(m, &m->channel[c]);
    return;
  }
  for (uint32_t p = 0; p < m->npair; p++) {
    for (uint32_t s = m->pair[p].first[0]; s != NONE; s = m->row[s].chain)
      m->row[s].room = HAS(EDGE_RENDEZVOUS) ? m->row[s].mate : FREE;
    if (m->model.buffer > 0)
      find_rooms(m, &m->pair[p]);
  }
}

/* Links the n-th ALLs of all members of a communicator into a ring; the ring is open if a member
 * has fewer. */
static void pair_members(Machine *m, Channel *channel, uint32_t first) {
  for (bool any = true; any;) {
    uint32_t ring = NONE, last = NONE;
    bool open = false, crossed = false;
    any = false;
    for (uint32_t c = first; c != NONE; c = channel[c].peer_next) {
      uint32_t i = channel[c].first[0];
      if (i == NONE) {
        open = true;
        continue;
      }
      any = true;
      channel[c].first[0] = m->row[i].chain;
      m->row[i].mate = ring;
      crossed |= ring != NONE && instr(m, i)->tensor != instr(m, ring)->tensor;
      ring = i;
      last = last == NONE ? i : last;
    }
    if (!any)
      break;
    for (uint32_t i = ring, next; i != NONE; i = next) {
      next = m->row[i].mate;
      m->row[i].flags |= crossed && HAS(EDGE_TENSOR) ? CROSSED : 0;
      m->row[i].mate = open ? NONE : next;
    }
    if (!open)
      m->row[last].mate = ring;
  }
}

static void build(Machine *m) {
  uint64_t ncomm = 0;
  m->base = NEW_ARRAY(m->arena, uint32_t, (size_t)m->nrank + 1);
  for (uint32_t r = 0; r < m->nrank; r++) {
    m->base[r + 1] = m->base[r] + m->list[r].n;
    for (uint32_t i = 0; i < m->list[r].n; i++)
      ncomm += m->list[r].instr[i].kind != MACHINE_COMPUTE || !HAS(EDGE_COMPUTE);
  }
  m->n = m->base[m->nrank];
  m->row = arena_alloc(m->arena, (size_t)m->n * sizeof *m->row + 1);
  m->first = arena_alloc(m->arena, (m->nrank + ncomm) * sizeof *m->first + 1);
  uint32_t *tail = arena_alloc(m->arena, (m->nrank + ncomm) * sizeof *tail + 1);
  Channel *channel = arena_alloc(m->arena, ncomm * sizeof *channel + 1);
  uint32_t nchannel = 0, *group = arena_alloc(m->arena, ncomm * sizeof *group + 1), ngroup = 0;
  Table queues = {0}, channels = {0}, groups = {0};
  m->nstream = m->nrank;
  for (uint32_t r = 0; r < m->nrank; r++)
    m->first[r] = NONE;
  for (uint32_t r = 0; r < m->nrank; r++)
    for (uint32_t k = 0; k < m->list[r].n; k++) {
      uint32_t i = m->base[r] + k, q = r, c;
      const MachineInstr *in = &m->list[r].instr[k];
      m->row[i] = (Row){.rank = r,
                        .next = NONE,
                        .prev = NONE,
                        .lead = HAS(EDGE_GROUP) && k > 0 && in[-1].group > 0 ? m->row[i - 1].lead
                                                                             : i,
                        .chain = NONE,
                        .mate = NONE,
                        .room = NONE,
                        .waiter = NONE};
      if (in->kind != MACHINE_COMPUTE) {
        q = m->nrank + queue_of(m, &queues, i);
      } else if (!HAS(EDGE_COMPUTE)) {
        q = m->nrank + queues.n++;
      }
      if (in->kind != MACHINE_COMPUTE && in->kind != MACHINE_COPY) {
        int dir = in->kind == MACHINE_RECV;
        if (in->kind == MACHINE_ALL)
          c = table_get(m->arena, &channels, r, in->peer, 1); /* transfers have even keys here */
        else
          c = table_get(
              m->arena, &channels, dir ? in->peer : r, dir ? r : in->peer,
              2 * (m->model.channels == CHANNELS_TAGGED ? in->tensor + 1 : (uint64_t)in->channel));
        if (c == nchannel) {
          channel[nchannel++] = (Channel){{NONE, NONE}, {NONE, NONE}, NONE};
          if (in->kind == MACHINE_ALL) {
            uint32_t g = table_get(m->arena, &groups, in->peer, 0, 0);
            if (g == ngroup)
              group[ngroup++] = NONE;
            channel[c].peer_next = group[g];
            group[g] = c;
          }
        }
        if (channel[c].first[dir] == NONE)
          channel[c].first[dir] = i;
        else
          m->row[channel[c].last[dir]].chain = i;
        channel[c].last[dir] = i;
      }
      m->row[i].stream = q;
      if (q >= m->nstream)
        m->first[m->nstream++] = NONE;
      if (m->first[q] == NONE)
        m->first[q] = i;
      else
        m->row[tail[q]].next = i, m->row[i].prev = tail[q];
      tail[q] = i;
    }
  for (uint32_t g = 0; g < ngroup; g++)
    pair_members(m, channel, group[g]);
  m->channel = channel, m->nchannel = nchannel;
  for (uint32_t c = 0; c < nchannel && m->model.channels == CHANNELS_TAGGED; c++)
    pair_channel(m, &channel[c]);
  if (m->model.channels == CHANNELS_TAGGED)
    put_in_order(m);
  m->head = arena_alloc(m->arena, (size_t)m->nstream * sizeof *m->head + 1);
  m->wait_next = arena_alloc(m->arena, (size_t)m->nstream * sizeof *m->wait_next + 1);
  m->work = arena_alloc(m->arena,
                        (size_t)m->nstream * sizeof *m->work + 1); /* a stream waits in one place */
  set_rooms(m);
}

/* ---- the run ---- */

/* The last member of the group of i; members are consecutive. */
static uint32_t group_end(const Machine *m, uint32_t i) {
  return HAS(EDGE_GROUP) ? i + instr(m, i)->group : i;
}

/* A condition of an instruction: met, or what it waits for and why. */
typedef struct Wait {
  uint32_t on;
  MachineWhy why;
  bool met;
} Wait;

/* The number of conditions for posting: need[0], need[1], one for each of `more`, the queue, and
 * with TAGGED the order. */
static uint32_t nneed(const Machine *m, uint32_t i) {
  return 3 + instr(m, i)->nmore + (m->above != NULL);
}

static bool is_joint(const Machine *m, uint32_t i, uint32_t j) {
  return m->row[i].lead == m->row[j].lead;
}

static Wait need(const Machine *m, uint32_t i, uint32_t k) {
  const MachineInstr *in = instr(m, i);
  if (k == 2 + in->nmore) {
    uint32_t on = m->row[i].prev;
    return on == NONE || is_joint(m, i, on) ? (Wait){NONE, WAIT_NEED, true}
                                            : (Wait){on, WAIT_NEED, is(m, on, DONE)};
  }
  if (k == 3 + in->nmore) {
    uint32_t on = m->above[i];
    return on == NONE || !HAS(EDGE_ORDER) || is_joint(m, i, on)
               ? (Wait){NONE, WAIT_ORDER, true}
               : (Wait){on, WAIT_ORDER, is(m, on, POSTED)};
  }
  uint32_t pos = k < 2 ? in->need[k] : in->more[k - 2];
  if (pos == NONE || !HAS(EDGE_NEED))
    return (Wait){NONE, WAIT_NEED, true};
  uint32_t on = m->base[m->row[i].rank] + pos;
  return (Wait){on, WAIT_NEED, is(m, on, DONE)};
}

/* A condition for ending a posted instruction: the unmet condition after `skip` others. Only an ALL
 * has several, one for each member. */
static Wait completion(const Machine *m, uint32_t i, uint32_t skip) {
  const Row *row = &m->row[i];
  uint32_t kind = instr(m, i)->kind;
  if (kind == MACHINE_COMPUTE || kind == MACHINE_COPY ||
      (kind == MACHINE_SEND && row->room == FREE))
    return (Wait){.met = true};
  if (kind == MACHINE_SEND &&
      row->room != row->mate) /* its own SEND stands above, so it is posted */
    return row->room == NONE ? (Wait){NONE, WAIT_NOBODY, false}
                             : (Wait){row->room, WAIT_ROOM,
                                      is(m, row->room, POSTED) && !is(m, row->room, CROSSED)};
  if ((kind == MACHINE_RECV && !HAS(EDGE_ARRIVAL)) || (kind == MACHINE_ALL && !HAS(EDGE_ALL)))
    return (Wait){.met = true};
  if (row->mate == NONE)
    return (Wait){NONE, WAIT_NOBODY, false};
  uint32_t on = row->mate;
  if (kind == MACHINE_ALL)
    while (on != i && (is(m, on, POSTED) || skip-- > 0))
      on = m->row[on].mate;
  if (on != i && !is(m, on, POSTED))
    return (Wait){on, WAIT_PARTNER, false};
  if (is(m, i, BEHIND)) /* the crossed RECV is posted too: the lists are mispaired */
    return (Wait){NONE, WAIT_ROOM, false};
  return (Wait){row->mate, WAIT_OTHER, !is(m, i, CROSSED)};
}

static void wake(Machine *m, uint32_t i) {
  for (uint32_t q = m->row[i].waiter; q != NONE; q = m->wait_next[q])
    m->work[m->nwork++] = q;
  m->row[i].waiter = NONE;
}

/* Returns whether w is met; if not, stream q waits at its instruction. */
static bool check(Machine *m, uint32_t q, Wait w) {
  if (!w.met && w.on != NONE && w.why != WAIT_OTHER) {
    m->wait_next[q] = m->row[w.on].waiter;
    m->row[w.on].waiter = q;
  }
  return w.met;
}

static void mark(Machine *m, uint32_t first, uint32_t last, uint32_t flag) {
  for (uint32_t i = first; i <= last; i++) {
    m->row[i].flags |= flag;
    wake(m, i);
  }
}

static uint32_t later(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* Dates the group first..last: it is posted when its last need ends. Requires that all needs are
 * met. */
static void note_posted(Machine *m, uint32_t first, uint32_t last) {
  uint32_t t = 0;
  for (uint32_t i = first; i <= last; i++)
    for (uint32_t k = 0; k < nneed(m, i); k++) {
      Wait w = need(m, i, k);
      t = w.on == NONE ? t : later(t, (w.why == WAIT_ORDER ? m->posted : m->ended)[w.on]);
    }
  for (uint32_t i = first; i <= last; i++)
    m->posted[i] = t;
}

static void note_ended(Machine *m, uint32_t first, uint32_t last) {
  uint32_t t = m->posted[first];
  for (uint32_t i = first; i <= last; i++) {
    const Row *row = &m->row[i];
    uint32_t kind = instr(m, i)->kind;
    if (kind == MACHINE_COMPUTE || kind == MACHINE_COPY ||
        (kind == MACHINE_SEND && row->room == FREE))
      continue;
    if (kind == MACHINE_SEND && row->room != row->mate)
      t = later(t, m->posted[row->room]); /* the message leaves before its group has ended */
    else                                  /* NONE only with MACHINE_OMIT */
      for (uint32_t on = row->mate; on != i && on != NONE;
           on = kind == MACHINE_ALL ? m->row[on].mate : i)
        t = later(t, m->posted[on]);
  }
  for (uint32_t i = first; i <= last; i++)
    m->ended[i] = t + 1;
}

static uint64_t advance(Machine *m, uint32_t q) {
  uint64_t done = 0;
  while (m->head[q] != NONE) {
    const uint32_t first = m->row[m->head[q]].lead, last = group_end(m, first);
    if (m->row[first].stream != q) { /* the stream of the first member runs the group */
      check(m, q, (Wait){first, WAIT_NEED, false});
      return done;
    }
    if (!is(m, first, POSTED)) {
      for (uint32_t i = first; i <= last; i++)
        for (uint32_t k = 0; k < nneed(m, i); k++)
          if (!check(m, q, need(m, i, k)))
            return done;
      if (m->ended)
        note_posted(m, first, last);
      mark(m, first, last, POSTED);
    }
    for (uint32_t i = first; i <= last; i++)
      if (!check(m, q, completion(m, i, 0)))
        return done;
    for (uint32_t i = first; i <= last; i++)
      m->head[m->row[i].stream] = m->row[i].next;
    if (m->ended)
      note_ended(m, first, last);
    mark(m, first, last, DONE);
    done += last - first + 1;
  }
  return done;
}

/* ---- the reason for stopping ---- */

static MachineAt at(const Machine *m, uint32_t i) {
  return i == NONE ? (MachineAt){NONE, NONE}
                   : (MachineAt){m->row[i].rank, i - m->base[m->row[i].rank]};
}

static MachineHop hop(const Machine *m, uint32_t i, Wait w) {
  return (MachineHop){at(m, i), at(m, w.on), w.why};
}

/* One stream stands for the group at the head of q; other streams may have it at their heads
 * too. */
static uint32_t standing(const Machine *m, uint32_t q) {
  uint32_t i = m->row[m->head[q]].lead;
  while (m->head[m->row[i].stream] != i)
    i++;
  return m->row[i].stream;
}

/* Iterates over the unmet conditions of the group at the head of q. *i, *k: NONE and 0 at first. */
static bool next_wait(const Machine *m, uint32_t q, uint32_t *i, uint32_t *k, Wait *w) {
  uint32_t first = m->row[m->head[q]].lead, last = group_end(m, first);
  bool posted = is(m, first, POSTED);
  for (*i = *i == NONE ? first : *i; *i <= last; ++*i, *k = 0) {
    bool all = posted && instr(m, *i)->kind == MACHINE_ALL;
    for (uint32_t most = all ? NONE : posted ? 1 : nneed(m, *i); *k < most;) {
      *w = posted ? completion(m, *i, *k) : need(m, *i, *k);
      if (all && (w->met || (*k > 0 && w->why != WAIT_PARTNER)))
        break;
      (*k)++;
      if (!w->met)
        return true;
    }
  }
  return false;
}

/* Finds a shortest cycle of stuck streams, if there is one. Searches from every stuck stream in
 * turn, only as deep as beats the best cycle so far; after EFFORT steps, the best so far is the
 * result. */
static void find_cycle(Machine *m, MachineResult *out) {
  enum { EFFORT = 20000000 };
  uint32_t *seen = NEW_ARRAY(m->arena, uint32_t, m->nstream),
           *queue = arena_alloc(m->arena, (size_t)m->nstream * sizeof *queue + 1);
  uint32_t *from = arena_alloc(m->arena,
                               (size_t)m->nstream * sizeof *from + 1); /* the stream before it */
  uint32_t *depth = arena_alloc(m->arena, (size_t)m->nstream * sizeof *depth + 1);
  MachineHop *by = arena_alloc(m->arena,
                               (size_t)m->nstream * sizeof *by + 1); /* the hop that led to it */
  uint32_t best = NONE;
  uint64_t effort = 0;
  for (uint32_t start = 0; start < m->nstream && best > 1; start++) {
    if (m->head[start] == NONE || standing(m, start) != start)
      continue;
    if (effort > EFFORT && best != NONE) {
      out->shortest = false;
      return;
    }
    uint32_t n = 0;
    queue[n++] = start, seen[start] = start + 1, depth[start] = 0;
    for (uint32_t done = 0; done < n && depth[queue[done]] + 1 < best; done++) {
      uint32_t q = queue[done], i = NONE;
      uint32_t k = 0;
      for (Wait w; next_wait(m, q, &i, &k, &w); effort++) {
        if (w.on == NONE || w.why == WAIT_OTHER)
          continue;
        uint32_t to = m->row[w.on].stream;
        to = m->head[to] == NONE ? to : standing(m, to);
        if (to == start) {
          best = depth[q] + 1;
          out->hop = NEW_ARRAY(m->arena, MachineHop, best);
          out->nhop = best;
          out->hop[best - 1] = hop(m, i, w);
          for (uint32_t p = q; p != start; p = from[p])
            out->hop[depth[p] - 1] = by[p];
          done = n;
          break;
        }
        if (seen[to] == start + 1 || m->head[to] == NONE) /* NONE only with MACHINE_OMIT */
          continue;
        seen[to] = start + 1, depth[to] = depth[q] + 1, from[to] = q, by[to] = hop(m, i, w);
        queue[n++] = to;
      }
    }
  }
}

/* Finds a stuck head that waits for what never comes: an end of another tensor, or no end at
 * all. */
static bool find_never(Machine *m, MachineWhy why, MachineResult *out) {
  for (uint32_t i = 0; i < m->n; i++) {
    if (!is(m, i, POSTED) || is(m, i, DONE))
      continue;
    Wait w = completion(m, i, 0);
    if (w.met || w.why != why)
      continue;
    out->hop = NEW(m->arena, MachineHop);
    out->nhop = 1;
    out->hop[0] = hop(m, i, w);
    if (instr(m, i)->kind == MACHINE_ALL) /* the member with another tensor */
      for (uint32_t x = m->row[i].mate; x != NONE && x != i; x = m->row[x].mate)
        if (instr(m, x)->tensor != instr(m, i)->tensor) {
          out->hop[0].on = at(m, x);
          break;
        }
    return true;
  }
  return false;
}

static uint64_t run(Machine *m) {
  uint64_t done = 0;
  memcpy(m->head, m->first, (size_t)m->nstream * sizeof *m->head);
  for (uint32_t q = m->nstream; q-- > 0;)
    m->work[m->nwork++] = q;
  while (m->nwork > 0)
    done += advance(m, m->work[--m->nwork]);
  return done;
}

uint32_t **machine_times(Arena *a, const MachineList *list, uint32_t nrank, ChannelModel model) {
  Machine m = {.arena = a, .list = list, .nrank = nrank, .model = model};
  uint32_t **end = arena_alloc(a, nrank * sizeof *end + 1);
  build(&m);
  m.posted = NEW_ARRAY(a, uint32_t, m.n);
  m.ended = NEW_ARRAY(a, uint32_t, m.n);
  run(&m);
  for (uint32_t r = 0; r < nrank; r++)
    end[r] = &m.ended[m.base[r]];
  return end;
}

MachineResult machine_run(Arena *a, const MachineList *list, uint32_t nrank, ChannelModel model,
                          bool certify) {
  Machine m = {.arena = a, .list = list, .nrank = nrank, .model = model};
  MachineResult out = {.shortest = true};
  build(&m);
  if (certify) {
    const size_t times = (size_t)m.n * sizeof *m.posted;
    out.posted = m.posted = memset(arena_alloc(a, times + 1), 0xff, times);
    out.ended = m.ended = memset(arena_alloc(a, times + 1), 0xff, times);
  }
  out.done = run(&m);
  uint32_t stuck = 0;
  while (stuck < m.nstream && m.head[stuck] == NONE)
    stuck++;
  if (stuck == m.nstream)
    return out;
  if (find_never(&m, WAIT_OTHER, &out)) {
    out.status = MACHINE_MISPAIRED;
    return out;
  }
  out.status = MACHINE_STUCK;
  if (!find_never(&m, WAIT_NOBODY, &out))
    find_cycle(&m, &out);
  return out;
}

/* Runs the lists from the start with another buffer. */
static bool completes_with(Machine *m, uint64_t buffer) {
  m->model.buffer = buffer;
  for (uint32_t i = 0; i < m->n; i++)
    m->row[i].flags &= CROSSED, m->row[i].waiter = NONE;
  set_rooms(m);
  return run(m) == m->n;
}

bool machine_least_buffer(const MachineList *list, uint32_t nrank, ChannelModel model,
                          uint64_t *buffer) {
  uint64_t low = 0, high = 1; /* low does not suffice, high does */
  for (uint32_t r = 0; r < nrank; r++)
    for (uint32_t i = 0; i < list[r].n; i++) {
      uint64_t load = list[r].instr[i].kind == MACHINE_SEND
                          ? model.in_bytes ? list[r].instr[i].bytes : 1
                          : 0;
      high = high + load < high ? UINT64_MAX : high + load;
    }
  Arena scratch = {0};
  Machine m = {.arena = &scratch, .list = list, .nrank = nrank, .model = model};
  build(&m);
  *buffer = 0;
  bool found = completes_with(&m, 0); /* rendezvous */
  if (!found) {
    *buffer = high;
    found = completes_with(&m, high); /* all messages together fit */
    while (found && high - low > 1) {
      const uint64_t middle = low + (high - low) / 2;
      if (completes_with(&m, middle))
        *buffer = high = middle;
      else
        low = middle;
    }
  }
  arena_free(&scratch);
  return found;
}
