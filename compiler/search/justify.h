/* SPDX-License-Identifier: MIT
 * The state that the two ways to move the ops of a finished order share: justify.c,
 * critical_moves.c. */
#ifndef PIPE_JUSTIFY_H
#define PIPE_JUSTIFY_H

#include "expand.h"

typedef struct Edge { /* from a producer, or to a user */
  uint32_t op;
  uint32_t lag; /* the time until the tensor is there: row of Just.lag; 0: no time */
} Edge;

/* The tries of a value of `tune` so far, and those since the last gain. */
typedef struct Tries { uint32_t n, idle; } Tries;

/* The sums that are bounded on a rank: stashes by number and bytes, or its limits. */
typedef struct Sums {
  uint32_t n;
  int64_t **live;  /* [n][nop] beside Just.line: what is alive after the op */
  int64_t **delta; /* [n][nop] what an op adds */
  int64_t **over;  /* [n][nop] the excess while it runs over before and after it */
  int64_t **most;  /* [n][nrank] */
  int64_t *top;    /* [n] (put) the most at a place or later */
} Sums;

typedef struct Just {
  Sched *s;
  Tries *done;
  uint32_t n;
  uint32_t *rank, *ncomp; /* [n]; [nrank] number of ops of a rank before its updates */
  Edge *in, *out;         /* [width * n] */
  uint32_t width;         /* the most edges of an op on each side */
  /* [n] time of each op; [nlag] time of what a forward, and a backward, of a stage sends, or over
   * an edge */
  uint64_t *cost, *lag;
  uint32_t nlag;
  uint64_t *shaken;      /* [n] in place of cost */
  /* [n] rows of Orders.op, rank after rank: the present order, and the best. */
  uint32_t *seq, *best;
  uint64_t *start, *end; /* [n] of seq, played */
  uint32_t *played;      /* [n] in an order that respects the data */
  uint64_t *grad_end;    /* [nstage] */
  uint32_t *work, *queued, *head; /* [nrank] */
  uint64_t *now, *deadline, *after; /* [nrank] */
  Timing t;
  /* A pass; in a backward pass, times count from the end. */
  uint64_t *key, *begin, *until;
  uint32_t *list, *spare; /* [n] ops in the order of the pass */
  uint32_t *line, *nline; /* [n] ops of a rank by place; [nrank] */
  Sums sum;
  uint64_t looked; /* places looked at, in all passes */
  bool (*value)(Sched *, Timing, int64_t *); /* value of an order; false: reported */
  int64_t *least;                            /* the value of best */
  Timing best_t, bound; /* bound: for any order with these stashes */
  bool changed; /* best is not the order that was given */
} Just;

/* Computes the times of j->seq. False: the ranks wait for each other. */
bool just_play(Just *j);

/* The measure to shorten. */
typedef enum Within { MAKESPAN, SPAN, BOTH, NWITHIN } Within;

/* Keeps j->seq, which has been played, if it beats the best. False: no value, reported. */
bool just_judge(Just *j);

/* ---- justify.c ---- */
/* Moves ops within the predicted times, up to `tries` tries or a few without gain. Keeps the order
 * with the least *value, among equals the shorter. Goes on from `done`. Requires check_deps and no
 * obstacle. False: value() has reported. */
bool justify(Sched *s, Orders *orders, Tries *done, uint32_t tries,
             bool (*value)(Sched *, Timing, int64_t *), int64_t *least);
uint32_t justify_obstacle(const Sched *s); /* an update before another op, or NONE */

/* ---- critical_moves.c ---- */

/* Makes `steps` steps from j->seq, which has been played; each moves an op off a critical path of
 * the makespan or span. Every order on the way is judged. seed: of random choices. False:
 * reported. */
bool critical_moves(Just *j, Within what, uint32_t steps, uint64_t seed);

#endif
