/* SPDX-License-Identifier: MIT
 * The prover of compiler/certify/machine.c against brute force, on random and mutated tiny
 * programs.
 *
 *   machine_test [PROGRAMS [SEED [MODEL]]]   MODEL: its number
 *   machine_test PROGRAMS SEED refused       a prover with a fault: is all that is wrong refused?
 *
 * The oracle is machine_brute.c: all its orders must end alike, as the prover says. A wait cycle is
 * checked hop by hop against the state in which the oracle stands, its length against a
 * Floyd-Warshall, and the least buffer against trying 0, 1, 2 and so on. The verifier of
 * certificates, machine_verify, accepts what is right, and refuses what is wrong; so it does of
 * what the prover says of other models.
 *
 * A disagreement is shrunk and printed. If its verdict is right all the same, the programs that
 * follow are searched for a wrong verdict. Exit status 0: no disagreement. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <assert.h>
#include <string.h>

#include "machine_brute.h"
/* ---- compare ---- */

typedef struct Count {
  uint64_t verdict[3], least;
} Count;
enum { NMODELS = 10 };
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
    {.channels = CHANNELS_EDGE, .buffer = 2, .in_bytes = true}}; /* less than a message */
static const char *const model_name[] = {"rank",
                                         "pair",
                                         "edge",
                                         "tagged",
                                         "rank buffered:1",
                                         "pair buffered:4 bytes",
                                         "edge buffered:2",
                                         "tagged buffered:1",
                                         "tagged buffered:4 bytes",
                                         "edge buffered:2 bytes"};
static_assert(sizeof models / sizeof *models == NMODELS, "one count for each");
static Count count[NMODELS];

static const char *const brute_says[] = {"brute force completes", "brute force is stuck",
                                         "brute force mispairs"};

static const char accepted[] = "the verifier accepts what is wrong";
static uint64_t forged, held, cycles, held_cycles, completed,
    turn; /* certificates of other models, and those of them that hold here */

/* Certificates of other models, shown for this one, whose verdict is v: accepted only if they are
 * right. Lists that do not complete may both be stuck and meet other tensors. */
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

/* Each time of a certificate is the earliest that there is: one a little earlier, of a group and
 * all its members, is refused. So is another number, and another verdict. */
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

/* The certificate of the lists with the ALLs that members lack at their ends, shown for the lists
 * without: they are not done then, as what is done in state s shows. */
static const char *complete_collectives(Arena *a, const MachineList *list, uint32_t nrank,
                                        State s) {
  MachineInstr more[RANKS][PER_RANK + MOST];
  MachineList whole[RANKS];
  uint32_t at = 0, added = 0;
  for (uint32_t r = 0; r < nrank; r++) {
    for (uint32_t k = 0; k < list[r].n; k++)
      more[r][k] = list[r].instr[k];
    whole[r] = (MachineList){more[r], list[r].n};
  }
  for (uint32_t i = 0; i < flat.n; i++)
    for (uint32_t r = 0; r < nrank && flat.in[i]->kind == MACHINE_ALL; r++) {
      uint32_t has = 0;
      for (uint32_t k = 0; k < whole[r].n; k++)
        has += more[r][k].kind == MACHINE_ALL && more[r][k].peer == flat.in[i]->peer;
      if (has == 0 || has > nth_like(i))
        continue;
      MachineInstr *last = &more[r][whole[r].n++];
      *last = program_instr(MACHINE_ALL);
      last->peer = flat.in[i]->peer, last->tensor = flat.in[i]->tensor, added++;
    }
  if (added == 0)
    return NULL;
  const MachineResult got = machine_run(a, whole, nrank, *model, true);
  MachineResult other = got;
  other.posted = NEW_ARRAY(a, uint32_t, flat.n), other.ended = NEW_ARRAY(a, uint32_t, flat.n);
  other.done = 0;
  for (uint32_t r = 0, i = 0; r < nrank; at += whole[r++].n)
    for (uint32_t k = 0; k < list[r].n; k++, i++) {
      other.posted[i] = got.posted[at + k], other.ended[i] = got.ended[at + k];
      other.done += other.ended[i] != MACHINE_NONE;
    }
  if (other.done == flat.n)
    other.status = MACHINE_DONE;
  completed++;
  return !machine_verify(a, list, nrank, *model, &other) && other.done > count_bits(done(s))
             ? accepted
             : NULL;
}

static MachineAt place_of(uint32_t i) {
  return i == MOST ? (MachineAt){MACHINE_NONE, MACHINE_NONE}
                   : (MachineAt){flat.rank[i], flat.pos[i]};
}

/* Shows the verifier a wait cycle where the lists stand still in state s, with verdict v. It may
 * accept the cycle only if each hop is a wait and the next hop stands behind it, and, if the
 * verdict is "stuck", no message meets another tensor. */
static bool holds_up(Arena *a, const MachineList *list, uint32_t nrank, MachineResult *other,
                     Verdict v, State s) {
  const bool accept = !machine_verify(a, list, nrank, *model, other);
  cycles++, held_cycles += accept;
  for (uint32_t h = 0; h < other->nhop; h++)
    if (other->hop[h].why == WAIT_NOBODY)
      other->hop[h].on = place_of(MOST);
  return !accept ||
         ((other->status != MACHINE_STUCK || v == V_STUCK) && check_hops(other, s) != HOPS_WRONG);
}

/* Are a and b of one queue, or the same? */
static bool in_line(uint32_t a, uint32_t b) { return a == b || same_queue(a, b); }

/* Every hop that there could be, alone, and with each wait that closes a cycle with it. */
static bool each_hop(Arena *a, const MachineList *list, uint32_t nrank, const MachineResult *got,
                     Verdict v, State s, const MachineHop *wait, uint32_t nwait) {
  MachineHop hop[2];
  MachineResult other = *got;
  other.hop = hop;
  for (uint32_t i = 0; i < flat.n; i++)
    for (uint32_t j = 0; j <= flat.n; j++)
      for (int why = WAIT_NEED; why <= WAIT_OTHER; why++) {
        const bool alone = why >= WAIT_NOBODY;
        const MachineHop it = {place_of(i), place_of(j == flat.n ? MOST : j), (MachineWhy)why};
        other.status = why == WAIT_OTHER ? MACHINE_MISPAIRED : MACHINE_STUCK, other.nhop = 1;
        hop[0] = it;
        if ((alone || (j < flat.n && in_line(i, j))) && !holds_up(a, list, nrank, &other, v, s))
          return false;
        other.nhop = 2;
        for (uint32_t w = 0; w < nwait && !alone && j < flat.n; w++) {
          hop[0] = it, hop[1] = wait[w];
          if (in_line(j, number(wait[w].at)) && in_line(i, number(wait[w].on)) &&
              !holds_up(a, list, nrank, &other, v, s))
            return false;
        }
      }
  return true;
}

/* Circles of hops, true ones or not, where the lists stand still in state s: of small programs
 * each_hop, and some at random. */
static const char *other_cycles(Arena *a, const MachineList *list, uint32_t nrank,
                                 const MachineResult *got, Verdict v, State s) {
  enum { TRIES = 12, HOPS = 3, SMALL = 10 };
  MachineHop hop[HOPS], wait[4 * MOST];
  uint32_t nwait = 0;
  for (uint32_t i = 0; i < flat.n; i++)
    for (uint32_t j = 0; j < flat.n; j++)
      for (int why = WAIT_NEED; why <= WAIT_ORDER && nwait < 4 * MOST; why++)
        if (waits(s, i, j, (MachineWhy)why))
          wait[nwait++] = (MachineHop){place_of(i), place_of(j), (MachineWhy)why};
  if (flat.n <= SMALL && !each_hop(a, list, nrank, got, v, s, wait, nwait))
    return accepted;
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
    if (!holds_up(a, list, nrank, &other, v, s))
      return accepted;
  }
  return NULL;
}

static uint64_t draws; /* what compare draws at random follows from it */

/* NULL: the prover is right, and the verifier says so. One of brute_says: its verdict is wrong. */
static const char *compare(const Program *p, Count *c, bool least) {
  Arena arena = {0};
  MachineList list[RANKS];
  MachineInstr moved[RANKS][PER_RANK];
  const char *wrong = NULL;
  Verdict v = V_STUCK;
  State end = 0;
  program_draw_from(draws);
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
      wrong = wrong ? wrong : "a shorter cycle is there";
    else if (!wrong && (!c || turn++ % 4 == 0)) /* when counting, of some */
      wrong = forge(&arena, list, p->nrank, v);
    if (!wrong && (!c || turn % 4 == 1))
      wrong = hurry(&arena, list, p->nrank, &got);
    if (!wrong && (!c || turn % 4 == 1))
      wrong = complete_collectives(&arena, list, p->nrank, end);
    if (!wrong && v != V_DONE && (!c || turn % 4 == 1))
      wrong = other_cycles(&arena, list, p->nrank, &got, v, end);
    if (c && !wrong)
      c->verdict[v]++;
  }
  if (!wrong && least) {
    uint64_t k = 0, most = model->in_bytes ? 12 * MOST : MOST, bound;
    ChannelModel tried = *model;
    const ChannelModel *kept = model;
    model = &tried;
    for (; k <= most; k++) {
      tried.buffer = k;
      if (brute(p, &v, &end) && v == V_DONE)
        break;
    }
    if (machine_least_buffer(list, p->nrank, *kept, &bound) ? bound != k : k <= most)
      wrong = "the least buffer is another";
    model = kept;
    if (c)
      c->least++;
  }
  arena_free(&arena);
  return wrong;
}

/* ---- the loop ---- */

/* 0: the prover is right. More if its verdict is wrong than if something else is. */
static uint32_t badness(const Program *p, void *least) {
  const char *wrong = compare(p, NULL, *(bool *)least);
  bool verdict = false;
  for (int v = 0; v < 3; v++)
    verdict |= wrong == brute_says[v];
  return !wrong ? 0 : 1u + verdict;
}
enum { WORST = 2 };

/* Shrinks and prints a program on which the prover is wrong, if it is the first one, or worse than
 * those before. How bad it is, at least 1. */
static uint32_t show(Program *p, uint64_t k, uint32_t which, bool least, uint32_t worst,
                     const char *wrong) {
  program_shrink(p, badness, &least);
  const uint32_t bad = badness(p, &least);
  if (worst > 0 && bad <= worst)
    return worst;
  printf("program %" PRIu64 ", %s: %s\n", k, model_name[which],
         bad > 0 ? compare(p, NULL, least) : wrong);
  program_print(p);
  fflush(stdout); /* a prover that is wrong may crash on what follows */
  return bad > 0 ? bad : 1;
}

/* Of a prover with a fault: is whatever it says that is wrong refused by the verifier? */
static int count_refused(uint64_t programs, uint64_t seed) {
  uint64_t wrong = 0;
  for (uint64_t k = 0; k < programs; k++) {
    Program p;
    program_make(&p, seed, k);
    model = &models[k / 3 % NMODELS];
    if (model->channels == CHANNELS_RANK && k % 2)
      program_split(&p);
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
  const uint64_t programs = number_or(argc, argv, 1, 100000), seed = number_or(argc, argv, 2, 1);
  uint32_t worst = 0, only = NMODELS;
  const bool refuse = argc > 3 && strcmp(argv[3], "refused") == 0;
  if (argc > 3)
    only = (uint32_t)atoi(argv[3]);
  brute_begin();
  if (refuse)
    return count_refused(programs, seed);
  printf("seed %" PRIu64 "\n", seed);
  for (uint64_t k = 0; k < programs && worst < WORST; k++) {
    Program p;
    program_make(&p, seed, k);
    const uint32_t which = only < NMODELS ? only : (uint32_t)(k / 3 % NMODELS);
    model = &models[which];
    if (model->channels == CHANNELS_RANK && k % 2)
      program_split(&p);
    bool least = k / 24 % 8 == 0 && program_size(&p) <= 16;
    draws = seed + k;
    const char *wrong = compare(&p, &count[which], least);
    if (wrong)
      worst = show(&p, k, which, least, worst, wrong);
  }
  if (worst > 0 || !program_times_agree())
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
         " other cycles, %" PRIu64 " are there; %" PRIu64 " with collectives completed\n",
         programs, least, states_seen, sampled, forged, held, cycles, held_cycles, completed);
  return 0;
}
