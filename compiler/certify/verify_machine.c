/* SPDX-License-Identifier: MIT
 * Verifies the verdict of machine.c: a second implementation of the rules of machine.h that shares
 * nothing with the machine.
 *
 * note [proof]: the certificate of lists that complete is a clock: a time posted and a time ended
 * for each instruction. The verifier runs nothing; it compares times. An instruction is posted no
 * earlier than its needs, and the instruction above it in its queue, have ended. It ends later than
 * it and its partners were posted. So the lists, run in the order of the clock, obey the rules.
 *
 * note [room]: how full a buffer can be.
 *
 * Definition: at time t, the buffer of a pair holds the messages that were sent and whose RECV is
 * not posted. RECVs of a pair are posted in list order. So, with k RECVs posted, the buffer holds
 * SENDs whose RECV is number k of the pair or a later one.
 *
 * Lemma: a SEND may go on without its RECV if the SENDs of this kind above it leave it room,
 * whether or not they have gone on. Proof: each of these SENDs has room too, so none of them holds
 * up another instruction.
 *
 * note [wait cycle]: a hop claims two things. First, `at`, and so its group, cannot be posted, or
 * cannot end, before `on` is posted, or has ended. Second, this has not happened. The group of the
 * next hop's `at` has a member at the head of the queue of `on`. So `on` comes no sooner than the
 * next hop allows, and the hops of a wait cycle wait for themselves. */
#include <stdlib.h>
#include <string.h>

#include "machine.h"

#define NONE MACHINE_NONE

typedef struct Row { /* one instruction; the lists of all ranks follow each other */
  const MachineInstr *in;
  uint32_t rank, at;
  uint32_t queue;     /* the number of its queue */
  uint32_t prev;      /* the instruction above it in its queue; NONE */
  uint32_t first;     /* the first of its group, in whichever queue */
  uint32_t pair, nth; /* SEND, RECV: its directed pair; its index there among SENDs, or RECVs */
  uint32_t mate;      /* its other end; ALL: its row of Check.all */
  uint32_t meets;     /* SEND: index of its RECV in the pair; number of RECVs if it has none */
} Row;

typedef struct Pair {
  uint32_t send, nsend, recv, nrecv; /* first row and number of its transfers in `of_pair` */
} Pair;

typedef struct Key {
  uint64_t by[3];
  uint32_t i;
} Key;

typedef struct Check {
  Arena *arena;
  ChannelModel model;
  uint32_t n, npair;
  uint32_t *base; /* [nrank + 1] first row of each list */
  Row *row;
  Pair *pair;
  uint32_t *of_pair;              /* SENDs, then RECVs of each pair, in list order */
  Key *all;                       /* ALLs, sorted by communicator, index on their rank, rank */
  uint32_t nall, *members;        /* [nall] number of ranks of its communicator */
  const uint32_t *posted, *ended; /* the certificate */
} Check;

static int by_key(const void *a, const void *b) {
  const Key *x = a, *y = b;
  for (int k = 0; k < 3; k++)
    if (x->by[k] != y->by[k])
      return x->by[k] < y->by[k] ? -1 : 1;
  return x->i < y->i ? -1 : x->i > y->i;
}

static bool alike(const Key *x, const Key *y, int n) {
  return !memcmp(x->by, y->by, n * sizeof *x->by);
}
static bool moves(const MachineInstr *in) {
  return in->kind == MACHINE_SEND || in->kind == MACHINE_RECV;
}
static uint64_t ends_of(const Row *r) { /* sender << 32 | receiver */
  bool send = r->in->kind == MACHINE_SEND;
  return (uint64_t)(send ? r->rank : r->in->peer) << 32 | (send ? r->in->peer : r->rank);
}

/* ---- queues and groups ---- */

static Key queue_key(const Check *c, uint32_t i) {
  const Row *r = &c->row[i];
  const MachineInstr *in = r->in;
  enum { COMPUTES, COPIES, TRANSFERS, SENDS, RECVS, COLLECTIVES, ALONE };
  if (in->kind == MACHINE_COMPUTE || in->kind == MACHINE_COPY)
    return (Key){{r->rank, in->kind == MACHINE_COPY ? COPIES : COMPUTES, 0}, i};
  if (c->model.channels == CHANNELS_RANK)
    return (Key){{r->rank, TRANSFERS, in->channel}, i};
  if (in->kind == MACHINE_ALL)
    return (Key){{r->rank, COLLECTIVES, in->peer}, i};
  if (c->model.channels == CHANNELS_PAIR)
    return (Key){{r->rank, TRANSFERS, in->peer}, i};
  if (c->model.channels == CHANNELS_EDGE)
    return (Key){{r->rank, in->kind == MACHINE_SEND ? SENDS : RECVS, in->peer}, i};
  return (Key){{r->rank, ALONE, i}, i};
}

static void find_queues(Check *c) {
  Key *key = arena_alloc(c->arena, c->n * sizeof *key + 1);
  for (uint32_t i = 0; i < c->n; i++)
    key[i] = queue_key(c, i);
  qsort(key, c->n, sizeof *key, by_key);
  for (uint32_t k = 0, n = 0; k < c->n; k++) {
    Row *r = &c->row[key[k].i];
    const bool same = k > 0 && alike(&key[k], &key[k - 1], 3);
    r->queue = n += !same;
    r->prev = same ? key[k - 1].i : NONE;
  }
}

/* A group is an instruction and as many followers as its `group` says. */
static void find_groups(Check *c) {
  for (uint32_t i = 0, stop; i < c->n; i = stop)
    for (stop = i; stop <= i + c->row[i].in->group; stop++)
      c->row[stop].first = i;
}

/* ---- partners ---- */

static void find_pairs(Check *c) {
  Key *key = arena_alloc(c->arena, c->n * sizeof *key + 1);
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->n; i++)
    if (moves(c->row[i].in))
      key[n++] = (Key){
          {ends_of(&c->row[i]), c->row[i].in->channel, c->row[i].in->kind == MACHINE_RECV}, i};
  qsort(key, n, sizeof *key, by_key);
  c->pair = NEW_ARRAY(c->arena, Pair, n);
  c->of_pair = arena_alloc(c->arena, n * sizeof *c->of_pair + 1);
  for (uint32_t k = 0; k < n; k++) {
    Row *r = &c->row[key[k].i];
    if (k == 0 || !alike(&key[k], &key[k - 1], 2))
      c->pair[c->npair++] = (Pair){.send = k, .recv = k};
    Pair *p = &c->pair[r->pair = c->npair - 1];
    c->of_pair[k] = key[k].i;
    r->nth = key[k].by[2] ? p->nrecv++ : p->nsend++;
    p->recv += !key[k].by[2];
  }
  /* Partners have equal positions in list order; with tags, in list order within each tensor. A
   * tensor and its ends make one key. */
  const bool tagged = c->model.channels == CHANNELS_TAGGED;
  for (uint32_t k = 0; k < n && tagged; k++)
    key[k].by[1] = c->row[key[k].i].in->tensor;
  qsort(key, n, sizeof *key, by_key);
  for (uint32_t k = 0, stop; k < n; k = stop) {
    uint32_t recv = k;
    for (stop = k; stop < n && alike(&key[k], &key[stop], 2); stop++)
      recv += !key[stop].by[2];
    for (uint32_t s = k, r = recv; s < recv && r < stop; s++, r++) {
      c->row[key[s].i].mate = key[r].i;
      c->row[key[r].i].mate = key[s].i;
    }
  }
  for (uint32_t i = 0; i < c->n; i++)
    if (c->row[i].in->kind == MACHINE_SEND)
      c->row[i].meets = c->row[i].mate == NONE ? c->pair[c->row[i].pair].nrecv
                                               : c->row[c->row[i].mate].nth;
}

static void find_members(Check *c) {
  c->all = arena_alloc(c->arena, c->n * sizeof *c->all + 1);
  for (uint32_t i = 0; i < c->n; i++)
    if (c->row[i].in->kind == MACHINE_ALL)
      c->all[c->nall++] = (Key){{c->row[i].in->peer, c->row[i].rank, 0}, i};
  c->members = arena_alloc(c->arena, c->nall * sizeof *c->members + 1);
  qsort(c->all, c->nall, sizeof *c->all, by_key);
  for (uint32_t k = 0, stop; k < c->nall; k = stop) {
    uint32_t ranks = 0, nth = 0;
    for (stop = k; stop < c->nall && alike(&c->all[k], &c->all[stop], 1); stop++) {
      const bool other = stop == k || c->all[stop].by[1] != c->all[stop - 1].by[1];
      ranks += other;
      c->row[c->all[stop].i].nth = nth = other ? 0 : nth + 1;
    }
    while (k < stop)
      c->row[c->all[k++].i].mate = ranks; /* until they are sorted */
  }
  for (uint32_t k = 0; k < c->nall; k++) {
    const Row *r = &c->row[c->all[k].i];
    c->all[k].by[1] = r->nth, c->all[k].by[2] = r->rank;
  }
  qsort(c->all, c->nall, sizeof *c->all, by_key);
  for (uint32_t k = 0; k < c->nall; k++) {
    Row *r = &c->row[c->all[k].i];
    c->members[k] = r->mate;
    r->mate = k;
  }
}

static uint64_t load(const Check *c, uint32_t send) {
  return c->model.in_bytes ? c->row[send].in->bytes : 1;
}

/* ---- the clock ---- */

/* An instruction that is never posted, or never ends, has time NONE. */
static bool is_before(const uint32_t *time, uint32_t on, uint32_t i_time) {
  return time[on] != NONE && time[on] <= i_time;
}

/* A posted instruction has all its needs and is the head of its queue. */
static const char *check_posted(const Check *c, uint32_t i) {
  const Row *r = &c->row[i];
  const MachineInstr *in = r->in;
  const uint32_t t = c->posted[i], base = c->base[r->rank];
  if (r->first != i && (t != c->posted[r->first] || c->ended[i] != c->ended[r->first]))
    return "a group is not posted, or does not end, at once";
  if (t == NONE)
    return c->ended[i] == NONE ? NULL : "it ends and is not posted";
  for (int k = 0; k < 2; k++)
    if (in->need[k] != NONE && !is_before(c->ended, base + in->need[k], t))
      return "it is posted before what it needs has ended";
  for (uint32_t k = 0; k < in->nmore; k++)
    if (!is_before(c->ended, base + in->more[k], t))
      return "it is posted before what it needs has ended";
  if (r->prev != NONE && c->row[r->prev].first != r->first && !is_before(c->ended, r->prev, t))
    return "it is posted before the one above it in its queue has ended";
  if (c->model.channels == CHANNELS_TAGGED && moves(in) && r->nth > 0) {
    const Pair *p = &c->pair[r->pair];
    uint32_t above = c->of_pair[(in->kind == MACHINE_SEND ? p->send : p->recv) + r->nth - 1];
    if (!is_before(c->posted, above, t))
      return "it is posted before the one above it with the same peer";
  }
  return c->ended[i] == NONE || c->ended[i] > t ? NULL : "it ends no later than it is posted";
}

/* A RECV ends only after its SEND is posted, with the same tensor. */
static const char *check_recv(const Check *c, uint32_t i) {
  const Row *r = &c->row[i];
  if (r->in->kind != MACHINE_RECV || c->ended[i] == NONE)
    return NULL;
  if (r->mate == NONE || !is_before(c->posted, r->mate, c->ended[i] - 1))
    return "a RECV ends before its SEND is posted";
  return r->in->tensor == c->row[r->mate].in->tensor ? NULL : "a RECV ends with another tensor";
}

/* The number of ALLs that belong together, from row k of `all` on. */
static uint32_t members_of(const Check *c, uint32_t k) {
  uint32_t stop = k;
  while (stop < c->nall && alike(&c->all[k], &c->all[stop], 2))
    stop++;
  return stop - k;
}

/* A collective ends only after all members have posted theirs, of one tensor. */
static const char *check_collective(const Check *c, uint32_t first, uint32_t n) {
  uint32_t last = 0, least = NONE;
  for (uint32_t k = first; k < first + n; k++) {
    const uint32_t i = c->all[k].i;
    last = c->posted[i] > last ? c->posted[i] : last; /* NONE: never posted */
    least = c->ended[i] < least ? c->ended[i] : least;
  }
  if (least == NONE)
    return NULL;
  if (n != c->members[first] || least <= last)
    return "a collective ends before each member is posted";
  for (uint32_t k = first; k < first + n; k++)
    if (c->row[c->all[k].i].in->tensor != c->row[c->all[first].i].in->tensor)
      return "a collective ends with another tensor";
  return NULL;
}

/* Suffix sums over 0..n of numbers that are added one by one (a Fenwick tree). */
typedef struct Behind {
  unsigned __int128 *sum;
  uint32_t n;
} Behind;

static void put_behind(Behind *b, uint32_t k, uint64_t add) {
  for (uint32_t x = k + 1; x > 0; x -= x & -x)
    b->sum[x] += add;
}

static unsigned __int128 sum_behind(const Behind *b, uint32_t k) {
  unsigned __int128 sum = 0;
  for (uint32_t x = k + 1; x <= b->n + 1; x += x & -x)
    sum += b->sum[x];
  return sum;
}

/* The first RECV of the pair whose SEND has another tensor; no later RECV ends. NONE: there is
 * none. */
static uint32_t first_crossed(const Check *c, const Pair *p) {
  for (uint32_t k = 0; k < p->nrecv; k++) {
    const Row *r = &c->row[c->of_pair[p->recv + k]];
    if (r->mate != NONE && r->in->tensor != c->row[r->mate].in->tensor)
      return k;
  }
  return NONE;
}

/* note [room]: every SEND of the pair ends with its RECV posted, or with room for it. */
static const char *check_pair(const Check *c, const Pair *p) {
  Arena scratch = {0};
  const bool buffered = c->model.buffer > 0;
  Behind b = {.n = p->nrecv};
  const uint32_t crossed = first_crossed(c, p);
  const char *wrong = NULL;
  if (buffered)
    b.sum = NEW_ARRAY(&scratch, unsigned __int128, b.n + (size_t)2);
  for (uint32_t n = 0; n < p->nsend && !wrong; n++) {
    const uint32_t s = c->of_pair[p->send + n], end = c->ended[s];
    uint32_t low = 0, high = p->nrecv < crossed ? p->nrecv : crossed;
    if (buffered)
      put_behind(&b, c->row[s].meets, load(c, s));
    if (end == NONE)
      continue;
    while (low < high) { /* low: the RECVs that are posted by then */
      const uint32_t middle = low + (high - low) / 2;
      if (is_before(c->posted, c->of_pair[p->recv + middle], end - 1))
        low = middle + 1;
      else
        high = middle;
    }
    if (c->row[s].meets < low)
      continue;
    if (!buffered)
      wrong = "a SEND ends before its RECV is posted";
    else if (sum_behind(&b, low) > c->model.buffer)
      wrong = "a SEND ends without room in the buffer";
  }
  arena_free(&scratch);
  return wrong;
}

static const char *check_clock(const Check *c) {
  const char *wrong = NULL;
  for (uint32_t i = 0; i < c->n && !wrong; i++)
    if (!(wrong = check_posted(c, i)))
      wrong = check_recv(c, i);
  for (uint32_t p = 0; p < c->npair && !wrong; p++)
    wrong = check_pair(c, &c->pair[p]);
  for (uint32_t k = 0, n; k < c->nall && !wrong; k += n)
    wrong = check_collective(c, k, n = members_of(c, k));
  return wrong;
}

/* ---- the wait cycle ---- */

/* note [room]: does SEND s wait at least until RECV number k of its pair is posted? k: up to the
 * number of RECVs, which stands for never. */
static bool is_full_before(const Check *c, uint32_t s, uint32_t k) {
  const Row *r = &c->row[s];
  unsigned __int128 held = 0;
  for (uint32_t n = 0; n <= r->nth; n++) {
    const uint32_t x = c->of_pair[c->pair[r->pair].send + n];
    held += c->row[x].meets >= k ? load(c, x) : 0;
  }
  return r->meets >= k && (c->model.buffer == 0 || held > c->model.buffer);
}

/* Does RECV `recv` of its pair give SEND s room, and none earlier? A RECV of another tensor would
 * give it, if the tensor were right. */
static bool is_room(const Check *c, uint32_t s, const Row *recv) {
  return is_full_before(c, s, recv->nth) && (first_crossed(c, &c->pair[recv->pair]) == recv->nth
                                                 ? load(c, s) <= c->model.buffer
                                                 : !is_full_before(c, s, recv->nth + 1));
}

/* Has every member an ALL that belongs to ALL i? */
static bool is_whole(const Check *c, uint32_t i) {
  uint32_t first = c->row[i].mate;
  while (first > 0 && alike(&c->all[first - 1], &c->all[first], 2))
    first--;
  return members_of(c, first) == c->members[first];
}

static uint32_t number(const Check *c, uint32_t nrank, MachineAt at) {
  return at.rank >= nrank || at.index >= c->base[at.rank + 1] - c->base[at.rank]
             ? NONE
             : c->base[at.rank] + at.index;
}

static bool is_needed(const Check *c, uint32_t i, uint32_t on) {
  const Row *r = &c->row[i];
  const uint32_t at = c->row[on].at;
  bool found = false;
  for (uint32_t k = 0; k < r->in->nmore; k++)
    found |= r->in->more[k] == at;
  found |= r->in->need[0] == at || r->in->need[1] == at;
  return found && r->rank == c->row[on].rank;
}

/* note [wait cycle]: does i wait for `on` for this reason? on: NONE for some reasons. */
static bool is_wait(const Check *c, uint32_t i, uint32_t on, MachineWhy why) {
  const Row *r = &c->row[i], *other = on == NONE ? NULL : &c->row[on];
  const uint32_t kind = r->in->kind;
  const bool all = kind == MACHINE_ALL, meets = moves(r->in) || all;
  if (why == WAIT_NOBODY)
    return all                    ? !is_whole(c, i)
           : kind == MACHINE_SEND ? is_full_before(c, i, c->pair[r->pair].nrecv)
                                  : kind == MACHINE_RECV && r->mate == NONE;
  if (!other)
    return false;
  const bool joins = all && other->in->kind == MACHINE_ALL &&
                     alike(&c->all[r->mate], &c->all[other->mate], 2);
  switch (why) {
  case WAIT_NEED: return is_needed(c, i, on) || (r->prev == on && r->first != other->first);
  case WAIT_ORDER:
    return r->first != other->first && c->model.channels == CHANNELS_TAGGED && moves(r->in) &&
           kind == other->in->kind && r->rank == other->rank && r->pair == other->pair &&
           r->nth == other->nth + 1;
  case WAIT_PARTNER:
    if (kind == MACHINE_SEND && !is_full_before(c, i, r->meets))
      return false;
    return meets && (all ? joins : r->mate == on); /* not its own: it would be posted */
  case WAIT_ROOM:
    return kind == MACHINE_SEND && other->in->kind == MACHINE_RECV && r->pair == other->pair &&
           r->mate != on && is_room(c, i, other);
  case WAIT_OTHER:
    return meets && (all ? joins : r->mate == on) && r->in->tensor != other->in->tensor;
  default: return false;
  }
}

/* Is the reason one for which a posted instruction does not end? Else it is not posted. */
static bool waits_to_end(MachineWhy why) { return why != WAIT_NEED && why != WAIT_ORDER; }

/* Does the clock agree: has i not gone on, and `on` not come? */
static bool stands(const Check *c, uint32_t i, uint32_t on, MachineWhy why) {
  return c->ended[i] == NONE && (c->posted[i] != NONE) == waits_to_end(why) &&
         (why == WAIT_NOBODY || (why == WAIT_NEED    ? c->ended[on] == NONE
                                 : why == WAIT_OTHER ? c->posted[on] != NONE
                                                     : c->posted[on] == NONE));
}

/* Is a member of the group of i at the head of the queue of `on`? */
static bool is_ahead(const Check *c, uint32_t i, uint32_t on) {
  for (uint32_t k = c->row[i].first; k <= c->row[i].first + c->row[c->row[i].first].in->group;
       k++) {
    const Row *r = &c->row[k];
    if (r->queue == c->row[on].queue)
      return r->prev == NONE || c->ended[r->prev] != NONE;
  }
  return false;
}

/* Are both ends of a transfer, or all of a collective, posted with different tensors? */
static bool is_mispaired(const Check *c, uint32_t i) {
  const Row *r = &c->row[i];
  if (r->in->kind == MACHINE_RECV)
    return c->posted[i] != NONE && r->mate != NONE && c->posted[r->mate] != NONE &&
           r->in->tensor != c->row[r->mate].in->tensor;
  if (r->in->kind != MACHINE_ALL ||
      (r->mate > 0 && alike(&c->all[r->mate], &c->all[r->mate - 1], 2)))
    return false;
  const uint32_t n = members_of(c, r->mate);
  bool there = n == c->members[r->mate], same = true;
  for (uint32_t k = r->mate; k < r->mate + n; k++) {
    there &= c->posted[c->all[k].i] != NONE;
    same &= c->row[c->all[k].i].in->tensor == r->in->tensor;
  }
  return there && !same;
}

static const char *check_hops(const Check *c, uint32_t nrank, const MachineResult *got) {
  const bool cycle = got->status == MACHINE_STUCK && got->nhop > 0 &&
                     got->hop[0].why != WAIT_NOBODY;
  if (got->nhop == 0 || (!cycle && got->nhop > 1))
    return "no reason is given";
  for (uint32_t i = 0; i < c->n && got->status == MACHINE_STUCK; i++)
    if (is_mispaired(c, i))
      return "what meets another tensor is not said";
  for (uint32_t k = 0; k < got->nhop; k++) {
    const MachineHop *h = &got->hop[k], *then = &got->hop[(k + 1) % got->nhop];
    const uint32_t i = number(c, nrank, h->at), next = number(c, nrank, then->at),
                   on = h->why == WAIT_NOBODY ? NONE : number(c, nrank, h->on);
    if (i == NONE || next == NONE || !is_wait(c, i, on, h->why) ||
        (h->why == WAIT_OTHER) != (got->status == MACHINE_MISPAIRED))
      return "a hop is no wait";
    if (!stands(c, i, on, h->why))
      return "a hop is not where the lists stand";
    if (!cycle)
      continue;
    if (on == NONE)
      return "nobody is waited for in a circle";
    if (!is_ahead(c, next, on))
      return "the next hop is not at the head of the queue";
  }
  return NULL;
}

/* ---- the verdict ---- */

static void begin(Check *c, const MachineList *list, uint32_t nrank) {
  c->base = NEW_ARRAY(c->arena, uint32_t, nrank + (size_t)1);
  for (uint32_t r = 0; r < nrank; r++)
    c->base[r + 1] = c->base[r] + list[r].n;
  c->n = c->base[nrank];
  c->row = arena_alloc(c->arena, c->n * sizeof *c->row + 1);
  for (uint32_t r = 0; r < nrank; r++)
    for (uint32_t k = 0; k < list[r].n; k++)
      c->row[c->base[r] + k] = (Row){.in = &list[r].instr[k], .rank = r, .at = k, .mate = NONE};
  find_queues(c);
  find_groups(c);
  find_pairs(c);
  find_members(c);
}

const char *machine_verify(Arena *a, const MachineList *list, uint32_t nrank, ChannelModel model,
                           const MachineResult *got) {
  Check c = {.arena = a, .model = model, .posted = got->posted, .ended = got->ended};
  uint64_t done = 0;
  begin(&c, list, nrank);
  for (uint32_t i = 0; i < c.n; i++)
    done += c.ended[i] != NONE;
  if (done != got->done)
    return "another number of instructions ends";
  if ((done == c.n) != (got->status == MACHINE_DONE))
    return "the verdict is another than that of the clock";
  const char *wrong = check_clock(&c);
  return wrong || got->status == MACHINE_DONE ? wrong : check_hops(&c, nrank, got);
}
