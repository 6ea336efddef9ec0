/* SPDX-License-Identifier: MIT
 * Brute force, the oracle of machine_test.c; shares only the format with the prover. It carries the
 * lists out step by step, in every order that the rules of machine.h allow: messages lie in
 * channels, a RECV takes the oldest, or with tags its own, buffers are counted as they fill. */
#include <stdlib.h>
#include <string.h>

#include "guard.h"
#include "machine_brute.h"

const ChannelModel *model;
Flat flat;

static bool computes(const MachineInstr *in) {
  return in->kind == MACHINE_COMPUTE || in->kind == MACHINE_COPY;
}

bool same_queue(uint32_t a, uint32_t b) {
  const MachineInstr *x = flat.in[a], *y = flat.in[b];
  if (flat.rank[a] != flat.rank[b])
    return false;
  if (computes(x) || computes(y))
    return x->kind == y->kind;
  if (model->channels == CHANNELS_RANK)
    return x->channel == y->channel;
  if (x->kind == MACHINE_ALL || y->kind == MACHINE_ALL)
    return x->kind == y->kind && x->peer == y->peer;
  if (model->channels == CHANNELS_PAIR)
    return x->peer == y->peer;
  return model->channels == CHANNELS_EDGE && x->peer == y->peer && x->kind == y->kind;
}

bool same_group(uint32_t a, uint32_t b) {
  const uint32_t first = a < b ? a : b, last = a < b ? b : a;
  return flat.in[first]->group >= last - first;
}

static void flatten(const Program *p) {
  memset(&flat, 0, sizeof flat);
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->n[r]; i++)
      flat.rank[flat.n] = r, flat.pos[flat.n] = i, flat.in[flat.n++] = &p->list[r][i];
  for (uint32_t i = 0; i < flat.n; i++)
    for (uint32_t j = 0; j < flat.n; j++) {
      const MachineInstr *x = flat.in[i], *y = flat.in[j];
      bool own = flat.rank[i] == flat.rank[j];
      flat.group[i] |= same_group(i, j) ? bit(j) : 0;
      if ((j < i && same_queue(i, j) && !same_group(i, j)) ||
          (own && (x->need[0] == flat.pos[j] || x->need[1] == flat.pos[j])))
        flat.before[i] |= bit(j);
      bool channel = x->channel == y->channel;
      flat.like[i] |= own && channel && x->kind == y->kind && x->peer == y->peer ? bit(j) : 0;
      flat.members[i] |= !own && x->kind == MACHINE_ALL && y->kind == MACHINE_ALL &&
                                 x->peer == y->peer
                             ? bit(j)
                             : 0;
      if (channel && x->peer == flat.rank[j] && y->peer == flat.rank[i] &&
          ((x->kind == MACHINE_SEND && y->kind == MACHINE_RECV) ||
           (x->kind == MACHINE_RECV && y->kind == MACHINE_SEND)))
        flat.ends[i] |= bit(j);
      flat.grouped |= i != j && same_group(i, j);
    }
  for (uint32_t i = 0; i < flat.n && model->channels == CHANNELS_TAGGED; i++)
    if (flat.in[i]->kind == MACHINE_SEND || flat.in[i]->kind == MACHINE_RECV)
      flat.order[i] = flat.like[i] & (bit(i) - 1);
}

State done(State s) { /* what is over with all of its group */
  State d = s;
  for (uint32_t i = 0; i < flat.n && flat.grouped; i++)
    d &= (flat.group[i] & ~s) ? ~flat.group[i] : d;
  return d;
}

static uint32_t posted(State s) {
  uint32_t set = 0, d = done(s);
  for (uint32_t i = 0; i < flat.n; i++)
    set |= (flat.before[i] & ~d) ? 0 : bit(i);
  for (uint32_t was = 0; was != set;) {
    was = set;
    for (uint32_t i = 0; i < flat.n; i++)
      set = (flat.order[i] & ~set) ? set & ~flat.group[i] : set;
    for (uint32_t i = 0; i < flat.n && flat.grouped; i++)
      set = (flat.group[i] & ~set) ? set & ~flat.group[i] : set;
  }
  return set;
}

/* The one like i that is not over and comes first. */
static uint32_t oldest(State s, uint32_t i) { return lowest(flat.like[i] & ~s); }

static uint32_t same_tensor(uint32_t set, uint32_t i) {
  for (uint32_t left = set; left; left &= left - 1)
    if (flat.in[lowest(left)]->tensor != flat.in[i]->tensor)
      set &= ~bit(lowest(left));
  return set;
}

/* How many of its rank, kind and peer come before it; with tags, of its tensor. */
uint32_t nth_like(uint32_t i) {
  uint32_t set = flat.like[i] & (bit(i) - 1);
  return count_bits(model->channels == CHANNELS_TAGGED && flat.in[i]->kind != MACHINE_ALL
                        ? same_tensor(set, i)
                        : set);
}

/* Messages of SEND i's directed pair that are sent and not received: all but as many of the oldest
 * as have been received. */
static uint32_t in_buffer(State s, uint32_t i) {
  uint32_t set = flat.like[i] & s;
  for (uint32_t received = count_bits(flat.ends[i] & s); received > 0; received--)
    set &= set - 1;
  return set;
}

static uint64_t load_of(uint32_t set) {
  uint64_t load = 0;
  for (; set; set &= set - 1)
    load += model->in_bytes ? flat.in[lowest(set)]->bytes : 1;
  return load;
}

/* The other end of a transfer, with tags; MOST: there is none. */
static uint32_t tagged_end(uint32_t i) {
  for (uint32_t set = same_tensor(flat.ends[i], i); set; set &= set - 1)
    if (nth_like(i) == nth_like(lowest(set)))
      return lowest(set);
  return MOST;
}

/* With tags: may SEND i put its message into the buffer? Those above it have gone on, or wait for
 * nothing but their RECV's end, which is posted; and it fits beside those that nobody has taken. */
static bool has_room(State s, uint32_t i, uint32_t ready) {
  uint32_t held = 0;
  for (uint32_t above = flat.like[i] & (bit(i) - 1); above; above &= above - 1) {
    uint32_t x = lowest(above), end = tagged_end(x);
    if (!(s & bit(x)) && (end == MOST || !(ready & bit(end))))
      return false;
    if ((s & bit(x)) && (end == MOST || !(s & bit(end))))
      held |= bit(x);
  }
  return load_of(held) + load_of(bit(i)) <= model->buffer;
}

/* Every step from s, into next; *bad: two ends of different tensors face each other. */
static uint32_t steps(State s, State *next, bool *bad) {
  uint32_t n = 0, ready = posted(s);
  bool tagged = model->channels == CHANNELS_TAGGED, buffered = model->buffer > 0;
  *bad = false;
  for (uint32_t left = ready & ~s; left; left &= left - 1) {
    uint32_t i = lowest(left), kind = flat.in[i]->kind;
    if (computes(flat.in[i])) {
      next[n++] = s | bit(i);
    } else if (kind == MACHINE_SEND && tagged) {
      uint32_t j = tagged_end(i);
      if (j != MOST && (ready & bit(j)))
        next[n++] = s | bit(i) | bit(j);
      if (buffered && has_room(s, i, ready))
        next[n++] = s | bit(i);
    } else if (kind == MACHINE_RECV && tagged) {
      uint32_t j = tagged_end(i);
      if (j != MOST && (s & bit(j)))
        next[n++] = s | bit(i);
    } else if (kind == MACHINE_SEND && oldest(s, i) == i) {
      uint64_t load = load_of(bit(i));
      bool small = buffered && load <= model->buffer;
      uint32_t held = buffered ? in_buffer(s, i) : 0, j = lowest(flat.ends[i] & ~s);
      if (small && load_of(held) + load <= model->buffer)
        next[n++] = s | bit(i);
      if (small || held || j == MOST ||
          !(ready & bit(j))) /* through the buffer; behind what is in it */
        continue;
      if (flat.in[j]->tensor != flat.in[i]->tensor)
        *bad = true;
      else
        next[n++] = s | bit(i) | bit(j);
    } else if (kind == MACHINE_RECV && buffered && oldest(s, i) == i && flat.ends[i]) {
      uint32_t first = lowest(in_buffer(s, lowest(flat.ends[i])));
      if (first < MOST && flat.in[first]->tensor != flat.in[i]->tensor)
        *bad = true;
      else if (first < MOST)
        next[n++] = s | bit(i);
    } else if (kind == MACHINE_ALL && oldest(s, i) == i) {
      uint32_t all = bit(i);
      for (uint32_t set = flat.members[i]; set; set &= ~flat.like[lowest(set)])
        all |= oldest(s, lowest(set)) < MOST ? bit(oldest(s, lowest(set))) : ~ready;
      if (all & ~ready)
        continue;
      if (same_tensor(all, i) != all)
        *bad = true;
      else
        next[n++] = s | all;
    }
  }
  return n;
}

enum { SET = 1 << 16 };
static State *seen_states, *stack_states;
static uint32_t *seen_stamp, stamp;

void brute_begin(void) {
  seen_states = calloc(SET, sizeof *seen_states);
  seen_stamp = calloc(SET, sizeof *seen_stamp);
  stack_states = calloc(SET, sizeof *stack_states);
  if (!seen_states || !seen_stamp || !stack_states)
    guard_no_memory(SET);
}

static bool first_visit(State s) {
  for (uint32_t k = s * 0x9E3779B1u >> 16;; k++) {
    k &= SET - 1;
    if (seen_stamp[k] != stamp) {
      seen_stamp[k] = stamp, seen_states[k] = s;
      return true;
    }
    if (seen_states[k] == s)
      return false;
  }
}

uint64_t states_seen, sampled;

static bool ends_alike(State s, bool bad, bool *have, Verdict *verdict, State *end) {
  Verdict v = s == bit(flat.n) - 1 ? V_DONE : bad ? V_MISPAIRED : V_STUCK;
  bool alike = !*have || (v == *verdict && s == *end);
  *verdict = v, *end = s, *have = true;
  return alike;
}

/* Beyond SET / 2 states a few hundred random orders have to do. */
bool brute(const Program *p, Verdict *verdict, State *end) {
  bool have = false, bad;
  State next[3 * MOST];
  uint32_t depth = 0, visits = 0;
  flatten(p);
  stamp++;
  stack_states[depth++] = 0;
  first_visit(0);
  while (depth > 0) {
    State s = stack_states[--depth];
    uint32_t n = steps(s, next, &bad);
    states_seen++;
    if (n == 0 && !ends_alike(s, bad, &have, verdict, end))
      return false;
    for (uint32_t k = 0; k < n; k++)
      if (visits < SET / 2 && first_visit(next[k])) {
        visits++;
        stack_states[depth++] = next[k];
      }
  }
  if (visits < SET / 2)
    return true;
  sampled++;
  for (int walk = 0; walk < 300; walk++) {
    State s = 0;
    for (uint32_t n; (n = steps(s, next, &bad)) > 0;)
      s = next[program_below(n)];
    if (!ends_alike(s, bad, &have, verdict, end))
      return false;
  }
  return true;
}

/* ---- what the prover says about why ---- */

uint32_t number(MachineAt a) {
  for (uint32_t i = 0; i < flat.n; i++)
    if (flat.rank[i] == a.rank && flat.pos[i] == a.index)
      return i;
  return MOST;
}

static uint32_t nth_of_peer(uint32_t i) { return count_bits(flat.like[i] & (bit(i) - 1)); }

static bool partners(uint32_t i, uint32_t j) {
  bool tags = model->channels == CHANNELS_TAGGED && flat.in[i]->kind != MACHINE_ALL;
  return ((flat.ends[i] | flat.members[i]) & bit(j)) && nth_like(i) == nth_like(j) &&
         (!tags || flat.in[i]->tensor == flat.in[j]->tensor);
}

/* With tags: does SEND i go on once the RECVs of its pair up to and with j are posted, no more?
 * Without j if `before`. */
static bool goes_with(uint32_t i, uint32_t j, bool before) {
  uint32_t posted_then = bit(before ? j : j + 1) - 1, held = bit(i), end = tagged_end(i);
  if (end != MOST && (posted_then & bit(end)))
    return true;
  for (uint32_t above = flat.like[i] & (bit(i) - 1); above; above &= above - 1) {
    uint32_t x = lowest(above), to = tagged_end(x);
    held |= to == MOST || !(posted_then & bit(to)) ? bit(x) : 0;
  }
  return load_of(held) <= model->buffer;
}

/* Has each member of ALL i's communicator one that belongs to it? */
static bool is_whole(uint32_t i) {
  uint32_t left = flat.members[i];
  for (uint32_t j = 0; j < flat.n; j++)
    left &= partners(i, j) ? ~flat.like[j] : ~(uint32_t)0;
  return left == 0;
}

static uint32_t next_in_queue(uint32_t i) {
  for (uint32_t j = i + 1; j < flat.n; j++)
    if (same_queue(i, j))
      return j;
  return MOST;
}

/* Does i, in the end state s, wait for j for the reason given? */
bool waits(State s, uint32_t i, uint32_t j, MachineWhy why) {
  uint32_t d = done(s), ready = posted(s);
  bool is_posted = ready & bit(i), tagged = model->channels == CHANNELS_TAGGED,
       room = model->buffer > 0 && flat.in[i]->kind == MACHINE_SEND;
  if ((d & bit(i)) || (why != WAIT_NOBODY && j == MOST))
    return false;
  switch (why) {
  case WAIT_NEED:
    return !is_posted && !(d & bit(j)) &&
           ((flat.rank[i] == flat.rank[j] &&
             (flat.in[i]->need[0] == flat.pos[j] || flat.in[i]->need[1] == flat.pos[j])) ||
            (!same_group(i, j) && next_in_queue(j) == i));
  case WAIT_ORDER:
    return !is_posted && !(ready & bit(j)) && (flat.order[i] & bit(j)) && !same_group(i, j) &&
           nth_of_peer(i) == nth_of_peer(j) + 1;
  case WAIT_PARTNER:
    return is_posted && !(ready & bit(j)) && partners(i, j) &&
           !(room && (tagged ? goes_with(i, j, true) : load_of(bit(i)) <= model->buffer));
  /* j is the first RECV after which what is between it and i fits, or is for another tensor */
  case WAIT_ROOM: {
    if (tagged)
      return room && is_posted && !(ready & bit(j)) && (flat.ends[i] & bit(j)) && !partners(i, j) &&
             goes_with(i, j, false) && !goes_with(i, j, true);
    uint32_t between = flat.like[i] & (bit(i + 1) - 1);
    if (!is_posted || (s & bit(j)) || model->buffer == 0 || flat.in[i]->kind != MACHINE_SEND ||
        !(flat.ends[i] & bit(j)))
      return false;
    for (uint32_t n = nth_like(j); n > 0; n--)
      between &= between - 1;
    uint32_t fits = between & (between - 1);
    return load_of(bit(i)) <= model->buffer && load_of(between) > model->buffer &&
           (load_of(fits) <= model->buffer ||
            flat.in[lowest(between)]->tensor != flat.in[j]->tensor);
  }
  case WAIT_OTHER:
    return is_posted && partners(i, j) && flat.in[i]->tensor != flat.in[j]->tensor &&
           (ready & bit(j));
  case WAIT_NOBODY: {
    if (flat.in[i]->kind == MACHINE_ALL)
      return is_posted && !is_whole(i);
    for (uint32_t k = 0; k < flat.n; k++)
      if (room && tagged ? goes_with(i, k, false) : !room && partners(i, k))
        return false;
    return is_posted;
  }
  }
  return false;
}

/* The first of i's queue that is not done. */
uint32_t head_of(State s, uint32_t i) {
  for (uint32_t j = 0; j < i; j++)
    if (same_queue(i, j) && !(done(s) & bit(j)))
      return j;
  return i;
}

int check_hops(const MachineResult *r, State s) {
  for (uint32_t k = 0; k < r->nhop; k++) {
    uint32_t i = number(r->hop[k].at), j = number(r->hop[k].on);
    if (i == MOST || !waits(s, i, j, r->hop[k].why))
      return HOPS_WRONG;
    if (r->status == MACHINE_STUCK && r->hop[k].why != WAIT_NOBODY) {
      uint32_t next = number(r->hop[(k + 1) % r->nhop].at);
      if (next == MOST || !same_group(head_of(s, j), next))
        return HOPS_WRONG;
    }
  }
  if (r->status != MACHINE_STUCK || r->hop[0].why == WAIT_NOBODY)
    return r->nhop == 1 ? HOPS_RIGHT : HOPS_WRONG;
  uint32_t d[MOST][MOST], best = MOST; /* no cycle of heads is shorter */
  for (uint32_t i = 0; i < flat.n; i++)
    for (uint32_t j = 0; j < flat.n; j++)
      d[i][j] = MOST;
  for (uint32_t i = 0; i < flat.n; i++)
    for (uint32_t j = 0; j < flat.n; j++)
      for (int why = WAIT_NEED; why <= WAIT_ORDER; why++)
        if (waits(s, i, j, (MachineWhy)why))
          d[lowest(flat.group[i])][lowest(flat.group[head_of(s, j)])] = 1;
  for (uint32_t k = 0; k < flat.n; k++)
    for (uint32_t i = 0; i < flat.n; i++)
      for (uint32_t j = 0; j < flat.n; j++)
        if (d[i][k] + d[k][j] < d[i][j])
          d[i][j] = d[i][k] + d[k][j];
  for (uint32_t i = 0; i < flat.n; i++)
    best = d[i][i] < best ? d[i][i] : best;
  return r->nhop == best ? HOPS_RIGHT : HOPS_LONG;
}
