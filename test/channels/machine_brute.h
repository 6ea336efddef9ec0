/* SPDX-License-Identifier: MIT
 * The oracle of machine_test.c: a program carried out in every order, and what waits for what where
 * it ends. One program at a time, under `model`. */
#ifndef TEST_MACHINE_BRUTE_H
#define TEST_MACHINE_BRUTE_H

#include "machine_program.h"

/* The rules, looked up once for each program. Sets of instructions are bits. */
typedef struct Flat {
  uint32_t n, rank[MOST], pos[MOST];
  const MachineInstr *in[MOST];
  uint32_t group[MOST];   /* with it, whatever their queues; itself */
  uint32_t before[MOST];  /* must be done before it is posted: earlier in its queue, needed */
  uint32_t like[MOST];    /* its rank, kind and peer */
  uint32_t ends[MOST];    /* SEND: RECVs of the directed pair, and the other way round */
  uint32_t members[MOST]; /* ALL: those of its communicator on other ranks */
  uint32_t order[MOST];   /* with tags: must be posted before it is: those like it above */
  bool grouped;           /* some group has two */
} Flat;
typedef uint32_t State; /* whose transfer, or computation, is over */
typedef enum Verdict { V_DONE, V_STUCK, V_MISPAIRED } Verdict;

extern const ChannelModel *model;
extern Flat flat; /* of the program that `brute` was asked for last */
extern uint64_t states_seen, sampled; /* so far; programs with too many states for every order */

static inline uint32_t bit(uint32_t i) { return (uint32_t)1 << i; }
static inline uint32_t count_bits(uint32_t set) { return (uint32_t)__builtin_popcount(set); }
static inline uint32_t lowest(uint32_t set) { return set ? (uint32_t)__builtin_ctz(set) : MOST; }

void brute_begin(void); /* once */
/* How p ends, and where. False: two orders end differently. */
bool brute(const Program *p, Verdict *verdict, State *end);

uint32_t number(MachineAt a); /* MOST: there is none */
/* how many of its rank, kind and peer stand above it; with tags, of its tensor */
uint32_t nth_like(uint32_t i);
bool same_queue(uint32_t a, uint32_t b);
bool same_group(uint32_t a, uint32_t b);
State done(State s); /* what is over with all of its group */
uint32_t head_of(State s, uint32_t i); /* the first of its queue that is not done */
/* Does i, in the end state s, wait for j, MOST: nobody, for the reason given? */
bool waits(State s, uint32_t i, uint32_t j, MachineWhy why);
/* Of the reason given: it is none, it is one, it is one and no circle is shorter. */
enum { HOPS_WRONG, HOPS_LONG, HOPS_RIGHT };
int check_hops(const MachineResult *r, State s);

#endif
