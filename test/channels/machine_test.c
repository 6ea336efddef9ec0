/* SPDX-License-Identifier: MIT
 * The prover of compiler/machine.c against brute force, on random and mutated tiny programs.
 *
 *   machine_test [PROGRAMS [SEED [MODEL [FILE]]]]   MODEL: its number, or `all`
 *   machine_test PROGRAMS SEED refused              a prover with a fault: is all that is wrong refused?
 *   machine_test texts DIRECTORY [PROGRAMS [SEED]]  one .pipe for each that the language can say
 *
 * The oracle below shares only the format with the prover. It carries the lists out step by step, in
 * every order that the rules of machine.h allow: messages lie in channels, a RECV takes the oldest, or
 * with tags its own, buffers are counted as they fill. All orders must end alike, as the prover says. A wait cycle is
 * checked hop by hop against the state in which the oracle stands, its length against a
 * Floyd-Warshall, and the least buffer against trying 0, 1, 2 and so on. The verifier of certificates, machine_verify,
 * accepts what is right, and refuses what is wrong; so it does of what the prover says of other models.
 *
 * A disagreement is shrunk and printed, and said in the language: in FILE, or below it. Where
 * that cannot be, or shows no wrong verdict of the prover, the programs that follow are looked at for one that does.
 * Exit status 0: no disagreement. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <assert.h>
#include <string.h>

#include "machine_program.h"

/* ---- brute force ---- */

/* The rules, looked up once for each program. Sets of instructions are bits. */
typedef struct Flat {
  uint32_t n, rank[MOST], pos[MOST];
  const MachineInstr *in[MOST];
  uint32_t group[MOST];   /* with it: on its queue with nothing but communication between; itself */
  uint32_t before[MOST];  /* must be done before it is posted: earlier in its queue, needed */
  uint32_t like[MOST];    /* its rank, kind and peer */
  uint32_t ends[MOST];    /* SEND: RECVs of the directed pair, and the other way round */
  uint32_t members[MOST]; /* ALL: those of its communicator on other ranks */
  uint32_t order[MOST];   /* with tags: must be posted before it is: those like it above */
  bool grouped;           /* some group has two */
} Flat;
typedef uint32_t State; /* whose transfer, or computation, is over */
typedef enum Verdict { V_DONE, V_STUCK, V_MISPAIRED } Verdict;

static const ChannelModel *model;
static Flat flat;
static uint32_t bit(uint32_t i) { return (uint32_t)1 << i; }
static uint32_t count_bits(uint32_t set) { return (uint32_t)__builtin_popcount(set); }
static uint32_t lowest(uint32_t set) { return set ? (uint32_t)__builtin_ctz(set) : MOST; }

static bool computes(const MachineInstr *in) {
  return in->kind == MACHINE_COMPUTE || in->kind == MACHINE_COPY;
}

static bool same_queue(uint32_t a, uint32_t b) {
  const MachineInstr *x = flat.in[a], *y = flat.in[b];
  if (flat.rank[a] != flat.rank[b])
    return false;
  if (computes(x) || computes(y))
    return x->kind == y->kind;
  if (model->channels == CHANNELS_RANK)
    return true;
  if (x->kind == MACHINE_ALL || y->kind == MACHINE_ALL)
    return x->kind == y->kind && x->peer == y->peer;
  if (model->channels == CHANNELS_PAIR)
    return x->peer == y->peer;
  return model->channels == CHANNELS_EDGE && x->peer == y->peer && x->kind == y->kind;
}

static bool same_group(uint32_t a, uint32_t b) {
  const uint32_t first = a < b ? a : b, last = a < b ? b : a;
  if (a == b || computes(flat.in[a]) || !same_queue(a, b))
    return a == b;
  if (!model->grouped)
    return flat.in[first]->group >= last - first;
  for (uint32_t i = first; i <= last; i++)
    if (flat.in[i]->kind == MACHINE_COMPUTE)
      return false;
  return true;
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
          (own && (x->need[0] == flat.pos[j] || x->need[1] == flat.pos[j])) ||
          (x->far == flat.pos[j] + 1 && x->far_rank == flat.rank[j]))
        flat.before[i] |= bit(j);
      flat.like[i] |= own && x->kind == y->kind && x->peer == y->peer ? bit(j) : 0;
      flat.members[i] |= !own && x->kind == MACHINE_ALL && y->kind == MACHINE_ALL &&
                                 x->peer == y->peer
                             ? bit(j)
                             : 0;
      if (x->peer == flat.rank[j] && y->peer == flat.rank[i] &&
          ((x->kind == MACHINE_SEND && y->kind == MACHINE_RECV) ||
           (x->kind == MACHINE_RECV && y->kind == MACHINE_SEND)))
        flat.ends[i] |= bit(j);
      flat.grouped |= i != j && same_group(i, j);
    }
  for (uint32_t i = 0; i < flat.n && model->channels == CHANNELS_TAGGED; i++)
    if (flat.in[i]->kind == MACHINE_SEND || flat.in[i]->kind == MACHINE_RECV)
      flat.order[i] = flat.like[i] & (bit(i) - 1);
}

static State done(State s) { /* what is over with all of its group */
  State d = s;
  for (uint32_t i = 0; i < flat.n && flat.grouped; i++)
    d &= (flat.group[i] & ~s) ? ~flat.group[i] : d;
  return d;
}

static uint32_t posted(State s) {
  uint32_t set = 0, d = done(s);
  for (uint32_t i = 0; i < flat.n; i++)
    set |= (flat.before[i] & ~d) ? 0 : bit(i);
  for (uint32_t i = 0; i < flat.n; i++)
    set = (flat.order[i] & ~set) ? set & ~bit(i) : set;
  for (uint32_t i = 0; i < flat.n && flat.grouped; i++)
    set = (flat.group[i] & ~set) ? set & ~flat.group[i] : set;
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
static uint32_t nth_like(uint32_t i) {
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

/* With tags: may SEND i put its message into the buffer? Those above it have gone on, or wait for nothing but
 * their RECV's end, which is posted; and it fits beside those that nobody has taken. */
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

static uint64_t states_seen, sampled;

static bool ends_alike(State s, bool bad, bool *have, Verdict *verdict, State *end) {
  Verdict v = s == bit(flat.n) - 1 ? V_DONE : bad ? V_MISPAIRED : V_STUCK;
  bool alike = !*have || (v == *verdict && s == *end);
  *verdict = v, *end = s, *have = true;
  return alike;
}

/* False: two orders end differently. Beyond SET / 2 states a few hundred random orders have to do. */
static bool brute(const Program *p, Verdict *verdict, State *end) {
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

static uint32_t number(MachineAt a) {
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

/* With tags: does SEND i go on once the RECVs of its pair up to and with j are posted, no more? Without j if `before`. */
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

/* Does i, in the end state s, wait for j for the reason given? */
static bool waits(State s, uint32_t i, uint32_t j, MachineWhy why) {
  uint32_t d = done(s), ready = posted(s);
  bool is_posted = ready & bit(i), tagged = model->channels == CHANNELS_TAGGED,
       room = model->buffer > 0 && flat.in[i]->kind == MACHINE_SEND;
  if ((d & bit(i)) || (why != WAIT_NOBODY && j == MOST))
    return false;
  switch (why) {
  case WAIT_NEED:
    return !is_posted && !(d & bit(j)) &&
           ((flat.in[i]->far == flat.pos[j] + 1 && flat.in[i]->far_rank == flat.rank[j]) ||
            (flat.rank[i] == flat.rank[j] &&
             (flat.in[i]->need[0] == flat.pos[j] || flat.in[i]->need[1] == flat.pos[j])));
  case WAIT_ORDER:
    return !is_posted && !(ready & bit(j)) && (flat.order[i] & bit(j)) &&
           nth_of_peer(i) == nth_of_peer(j) + 1;
  case WAIT_PARTNER:
    return is_posted && !(ready & bit(j)) && partners(i, j) &&
           !(room && (tagged ? goes_with(i, j, true) : load_of(bit(i)) <= model->buffer));
  case WAIT_ROOM: { /* j is the first RECV after which what is between it and i fits, or is for another tensor */
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
    for (uint32_t k = 0; k < flat.n; k++)
      if (flat.in[i]->kind != MACHINE_ALL &&
          (room && tagged ? goes_with(i, k, false) : !room && partners(i, k)))
        return false;
    return is_posted;
  }
  }
  return false;
}

/* The first of i's queue that is not done. */
static uint32_t head_of(State s, uint32_t i) {
  for (uint32_t j = 0; j < i; j++)
    if (same_queue(i, j) && !(done(s) & bit(j)))
      return j;
  return i;
}

/* Of the reason given: it is none, it is one, it is one and no circle is shorter. */
enum { HOPS_WRONG, HOPS_LONG, HOPS_RIGHT };
static int check_hops(const MachineResult *r, State s) {
  for (uint32_t k = 0; k < r->nhop; k++) {
    uint32_t i = number(r->hop[k].at), j = number(r->hop[k].on);
    if (i == MOST || !waits(s, i, j, r->hop[k].why) || !same_group(head_of(s, i), i))
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
    for (uint32_t j = 0; j < flat.n && same_group(head_of(s, i), i); j++)
      for (int why = WAIT_NEED; why <= WAIT_ORDER; why++)
        if (waits(s, i, j, (MachineWhy)why))
          d[head_of(s, i)][head_of(s, j)] = 1;
  for (uint32_t k = 0; k < flat.n; k++)
    for (uint32_t i = 0; i < flat.n; i++)
      for (uint32_t j = 0; j < flat.n; j++)
        if (d[i][k] + d[k][j] < d[i][j])
          d[i][j] = d[i][k] + d[k][j];
  for (uint32_t i = 0; i < flat.n; i++)
    best = d[i][i] < best ? d[i][i] : best;
  return r->nhop == best ? HOPS_RIGHT : HOPS_LONG;
}

/* ---- compare ---- */

typedef struct Count {
  uint64_t verdict[3], least;
} Count;
enum { NMODELS = 12 };
static const ChannelModel models[] = {
    {.channels = CHANNELS_RANK},
    {.channels = CHANNELS_PAIR},
    {.channels = CHANNELS_EDGE},
    {.channels = CHANNELS_TAGGED},
    {.channels = CHANNELS_RANK, .buffer = 1},
    {.channels = CHANNELS_PAIR, .buffer = 4, .in_bytes = true},
    {.channels = CHANNELS_EDGE, .buffer = 2},
    {.channels = CHANNELS_TAGGED, .buffer = 1},
    {.channels = CHANNELS_TAGGED, .buffer = 4, .in_bytes = true},
    {.channels = CHANNELS_PAIR, .grouped = true},
    {.channels = CHANNELS_RANK, .buffer = 1, .grouped = true},
    {.channels = CHANNELS_EDGE, .buffer = 4, .in_bytes = true, .grouped = true}};
static const char *const model_name[] = {"rank",
                                         "pair",
                                         "edge",
                                         "tagged",
                                         "rank buffered:1",
                                         "pair buffered:4 bytes",
                                         "edge buffered:2",
                                         "tagged buffered:1",
                                         "tagged buffered:4 bytes",
                                         "pair grouped",
                                         "rank grouped buffered:1",
                                         "edge grouped buffered:4 bytes"};
static_assert(sizeof models / sizeof *models == NMODELS, "one count for each");
static Count count[NMODELS];

static void oom(size_t wanted) {
  fprintf(stderr, "out of memory (wanted %zu bytes)\n", wanted);
  exit(2);
}

static const char *const brute_says[] = {"brute force completes", "brute force is stuck",
                                         "brute force mispairs"};

static const char accepted[] = "the verifier accepts what is wrong";
static uint64_t forged, held, circles, held_circles,
    turn; /* certificates of other models, and those of them that hold here */

/* Certificates of other models, shown for this one, whose verdict is v: accepted only if they are right. Lists that do not
 * complete may both be stuck and meet other tensors. */
static const char *forge(Arena *a, const MachineList *list, uint32_t nrank, Verdict v) {
  for (uint32_t k = 0; k < NMODELS; k++) {
    MachineResult other = machine_run(a, list, nrank, models[k], true);
    const bool accept = !machine_verify(a, list, nrank, *model, &other);
    forged++, held += accept;
    if (accept && (other.status == MACHINE_DONE) != (v == V_DONE))
      return accepted;
  }
  return NULL;
}

/* Each time of a certificate is the earliest that there is: one a little earlier, of a group and all its members, is refused.
 * So is another number, and another verdict. */
static const char *hurry(Arena *a, const MachineList *list, uint32_t nrank,
                         const MachineResult *got) {
  MachineResult other = *got;
  other.done++;
  bool accept = !machine_verify(a, list, nrank, *model, &other);
  other = *got, other.status = got->status == MACHINE_DONE ? MACHINE_STUCK : MACHINE_DONE;
  accept |= !machine_verify(a, list, nrank, *model, &other);
  for (int end = 0; end < 2 && flat.n > 0; end++) {
    uint32_t *time = end ? got->ended : got->posted, i = program_below(flat.n);
    if (time[i] == MACHINE_NONE || time[i] == 0)
      continue;
    for (uint32_t set = flat.group[i]; set; set &= set - 1)
      time[lowest(set)]--;
    accept |= !machine_verify(a, list, nrank, *model, got);
    for (uint32_t set = flat.group[i]; set; set &= set - 1)
      time[lowest(set)]++;
  }
  return accept ? accepted : NULL;
}

static MachineAt place_of(uint32_t i) {
  return i == MOST ? (MachineAt){MACHINE_NONE, MACHINE_NONE}
                   : (MachineAt){flat.rank[i], flat.pos[i]};
}

/* Circles of hops at random, true ones or not, where the lists stand still in state s: accepted only if all of them are,
 * one by one and in a row. */
static const char *other_circles(Arena *a, const MachineList *list, uint32_t nrank,
                                 const MachineResult *got, State s) {
  enum { TRIES = 12, HOPS = 3 };
  MachineHop hop[HOPS], wait[4 * MOST];
  uint32_t nwait = 0;
  for (uint32_t i = 0; i < flat.n; i++)
    for (uint32_t j = 0; j < flat.n; j++)
      for (int why = WAIT_NEED; why <= WAIT_ORDER && nwait < 4 * MOST; why++)
        if (waits(s, i, j, (MachineWhy)why) && same_group(head_of(s, i), i))
          wait[nwait++] = (MachineHop){place_of(i), place_of(j), (MachineWhy)why};
  for (uint32_t k = 0; k < TRIES; k++) {
    MachineResult other = *got;
    other.status = MACHINE_STUCK, other.hop = hop, other.nhop = 1 + program_below(HOPS);
    for (uint32_t h = 0; h < other.nhop; h++)
      if (nwait > 0 && program_below(8))
        hop[h] = wait[program_below(nwait)];
      else
        hop[h] = (MachineHop){place_of(program_below(flat.n)), place_of(program_below(flat.n + 1)),
                              (MachineWhy)program_below(WAIT_NOBODY + 1)};
    for (uint32_t h = 0; h + 1 < other.nhop;
         h++) /* often what comes next is that which is waited for */
      for (uint32_t w = 0; w < nwait && program_below(4); w++)
        if (wait[w].at.rank == hop[h].on.rank && wait[w].at.index <= hop[h].on.index)
          hop[h + 1] = wait[w];
    if (program_below(4) == 0)
      hop[program_below(other.nhop)].on.rank = program_below(nrank);
    const bool accept = !machine_verify(a, list, nrank, *model, &other);
    circles++, held_circles += accept;
    for (uint32_t h = 0; h < other.nhop; h++)
      if (other.hop[h].why == WAIT_NOBODY)
        hop[h].on = place_of(MOST);
    if (accept && check_hops(&other, s) == HOPS_WRONG)
      return accepted;
  }
  return NULL;
}

/* NULL: the prover is right, and the verifier says so. One of brute_says: its verdict is wrong. */
static const char *compare(const Program *p, Count *c, bool least) {
  Arena arena = {.oom = oom};
  MachineList list[RANKS];
  MachineInstr moved[RANKS][PER_RANK];
  const char *wrong = NULL;
  Verdict v = V_STUCK;
  State end = 0;
  for (uint32_t r = 0; r < p->nrank; r++) {
    memcpy(moved[r], p->list[r], sizeof moved[r]);
    for (uint32_t i = 1; i < p->n[r]; i += 2) /* what some need comes as one of `more` */
      if (moved[r][i].need[1] != MACHINE_NONE) {
        moved[r][i].more = &p->list[r][i].need[1], moved[r][i].nmore = 1;
        moved[r][i].need[1] = MACHINE_NONE;
      }
    list[r] = (MachineList){moved[r], p->n[r]};
  }
  if (!brute(p, &v, &end)) {
    wrong = "two orders end differently";
  } else {
    MachineResult got = machine_run(&arena, list, p->nrank, *model, true);
    const char *refused = machine_verify(&arena, list, p->nrank, *model, &got);
    const int hops = got.status == MACHINE_DONE ? HOPS_RIGHT
                     : got.nhop == 0            ? HOPS_WRONG
                                                : check_hops(&got, end);
    if ((Verdict)got.status != v)
      wrong = brute_says[v];
    else if (got.done != count_bits(done(end)))
      wrong = "another number of instructions is done";
    else if (hops == HOPS_WRONG)
      wrong = "the reason given is not one";
    if (wrong ? !refused : refused != NULL)
      wrong = wrong ? accepted : refused;
    else if (hops == HOPS_LONG)
      wrong = wrong ? wrong : "a shorter circle is there";
    else if (!wrong && (!c || turn++ % 4 == 0)) /* when counting, of some */
      wrong = forge(&arena, list, p->nrank, v);
    if (!wrong && (!c || turn % 4 == 1))
      wrong = hurry(&arena, list, p->nrank, &got);
    if (!wrong && v == V_STUCK && (!c || turn % 4 == 1))
      wrong = other_circles(&arena, list, p->nrank, &got, end);
    if (c && !wrong)
      c->verdict[v]++;
  }
  if (!wrong && least && !model->grouped) {
    uint64_t k = 0, most = model->in_bytes ? 12 * MOST : MOST, bound;
    ChannelModel tried = *model;
    const ChannelModel *kept = model;
    model = &tried;
    for (; k <= most; k++) {
      tried.buffer = k;
      if (brute(p, &v, &end) && v == V_DONE)
        break;
    }
    if (machine_least_buffer(oom, list, p->nrank, *kept, &bound) ? bound != k : k <= most)
      wrong = "the least buffer is another";
    model = kept;
    if (c)
      c->least++;
  }
  arena_free(&arena);
  return wrong;
}

/* ---- the loop ---- */

/* 0: the prover is right. More if its verdict is wrong than if something else is, and if the language can say it. */
static uint32_t badness(const Program *p, void *least) {
  const char *wrong = compare(p, NULL, *(bool *)least);
  bool verdict = false;
  for (int v = 0; v < 3; v++)
    verdict |= wrong == brute_says[v];
  return !wrong ? 0 : 1 + 2 * verdict + !program_say(p, model, "", NULL);
}
enum { WORST = 4 }; /* a verdict, and it can be said */

/* The verdict of a machine as pipec words it. */
static const char *verdict_text(uint32_t v) {
  return v == V_DONE ? "completes" : v == V_STUCK ? "deadlock" : "matching";
}

static FILE *open_text(const char *path) {
  FILE *f = fopen(path, "w");
  if (!f) {
    perror(path);
    exit(2);
  }
  return f;
}

/* Shrinks, prints and says one that the prover is wrong about, if that is worse than what was. How bad it is. */
static uint32_t show(Program *p, uint64_t k, uint32_t which, bool least, const char *path,
                     uint32_t worst) {
  char remark[64];
  Verdict v = V_STUCK;
  State end;
  program_shrink(p, badness, &least);
  const uint32_t bad = badness(p, &least);
  if (bad <= worst)
    return worst;
  printf("program %" PRIu64 ", %s: %s\n", k, model_name[which], compare(p, NULL, least));
  program_print(p);
  fflush(stdout); /* a prover that is wrong may crash on what follows */
  snprintf(remark, sizeof remark, "brute force: %s",
           brute(p, &v, &end) ? verdict_text(v) : "it depends");
  const char *why = program_say(p, model, remark, NULL);
  if (why) {
    printf("no schedule: %s\n", why);
    fflush(stdout);
    return bad;
  }
  FILE *f = path ? open_text(path) : stdout;
  program_say(p, model, remark, f);
  if (path && fclose(f) != 0) {
    perror(path);
    exit(2);
  }
  return bad;
}

/* DIRECTORY/K.pipe of each program K that the language can say, with what the prover says of it; of those that complete,
 * which are most, one in eight. */
static int write_texts(const char *directory, uint64_t programs, uint64_t seed) {
  for (uint64_t k = 0; k < programs; k++) {
    Program p;
    char path[4096], remark[128];
    const uint32_t which = (uint32_t)(k / 3 % NMODELS);
    program_make(&p, seed, k);
    if (program_say(&p, &models[which], "", NULL))
      continue;
    Arena arena = {.oom = oom};
    MachineList list[RANKS];
    for (uint32_t r = 0; r < p.nrank; r++)
      list[r] = (MachineList){p.list[r], p.n[r]};
    const MachineStatus v = machine_run(&arena, list, p.nrank, models[which], false).status;
    arena_free(&arena);
    if (v == MACHINE_DONE && k / (3 * NMODELS) % 8 != 0)
      continue;
    snprintf(path, sizeof path, "%s/%" PRIu64 ".pipe", directory, k);
    snprintf(remark, sizeof remark, "the prover: %s; %s", verdict_text(v), model_name[which]);
    FILE *f = open_text(path);
    program_say(&p, &models[which], remark, f);
    if (fclose(f) != 0) {
      perror(path);
      return 2;
    }
  }
  return 0;
}

/* Of a prover with a fault: is whatever it says that is wrong refused by the verifier? */
static int count_refused(uint64_t programs, uint64_t seed) {
  uint64_t wrong = 0;
  for (uint64_t k = 0; k < programs; k++) {
    Program p;
    program_make(&p, seed, k);
    model = &models[k / 3 % NMODELS];
    const char *how = compare(&p, NULL, false);
    wrong += how != NULL;
    if (how == accepted) {
      printf("program %" PRIu64 ", %s: %s\n", k, model_name[k / 3 % NMODELS], how);
      program_print(&p);
      return 1;
    }
  }
  printf("%" PRIu64 " wrong of %" PRIu64 " programs, each time refused\n", wrong, programs);
  return 0;
}

static uint64_t number_or(int argc, char **argv, int i, uint64_t otherwise) {
  return argc > i ? strtoull(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv) {
  if (argc > 2 && strcmp(argv[1], "texts") == 0)
    return write_texts(argv[2], number_or(argc, argv, 3, 1000), number_or(argc, argv, 4, 1));
  const uint64_t programs = number_or(argc, argv, 1, 100000), seed = number_or(argc, argv, 2, 1);
  uint32_t worst = 0, only = NMODELS;
  const bool refuse = argc > 3 && strcmp(argv[3], "refused") == 0;
  if (argc > 3 && strcmp(argv[3], "all") != 0)
    only = (uint32_t)atoi(argv[3]);
  seen_states = calloc(SET, sizeof *seen_states);
  seen_stamp = calloc(SET, sizeof *seen_stamp);
  stack_states = calloc(SET, sizeof *stack_states);
  if (!seen_states || !seen_stamp || !stack_states)
    oom(SET);
  if (refuse)
    return count_refused(programs, seed);
  printf("seed %" PRIu64 "\n", seed);
  for (uint64_t k = 0; k < programs && worst < WORST; k++) {
    Program p;
    program_make(&p, seed, k);
    const uint32_t which = only < NMODELS ? only : (uint32_t)(k / 3 % NMODELS);
    model = &models[which];
    bool least = k / 24 % 8 == 0 && program_size(&p) <= 16;
    if (compare(&p, &count[which], least))
      worst = show(&p, k, which, least, argc > 4 ? argv[4] : NULL, worst);
  }
  if (worst > 0 || !program_times_agree(oom))
    return 1;
  uint64_t least = 0;
  for (uint32_t i = 0; i < NMODELS; i++) {
    if (only == NMODELS || only == i)
      printf("%-29s %7" PRIu64 " complete %7" PRIu64 " stuck %7" PRIu64 " mispaired\n",
             model_name[i], count[i].verdict[V_DONE], count[i].verdict[V_STUCK],
             count[i].verdict[V_MISPAIRED]);
    least += count[i].least;
  }
  printf("%" PRIu64 " programs agree, least buffer of %" PRIu64 "; %" PRIu64 " states, %" PRIu64
         " sampled; %" PRIu64 " certificates of other models, %" PRIu64 " hold; %" PRIu64
         " other circles, %" PRIu64 " are there\n",
         programs, least, states_seen, sampled, forged, held, circles, held_circles);
  return 0;
}
