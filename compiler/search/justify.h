/* SPDX-License-Identifier: MIT
 * The state that the two ways to move the ops of a finished order share: justify.c,
 * critical_moves.c. */
#ifndef PIPE_JUSTIFY_H
#define PIPE_JUSTIFY_H

#include "expand.h"

typedef struct Edge { /* from a producer, or to a user */
  uint32_t op;
  uint32_t lag; /* until it is there: row of Just.lag; 0: no time */
} Edge;

/* Tries of a value of `tune` so far, and since the last gain. */
typedef struct Tries { uint32_t n, idle; } Tries;

/* Sums that are bounded on a rank: the number of stashes and their bytes, or its limits. */
typedef struct Sums {
  uint32_t n;
  int64_t **live;  /* [n][nop] beside Just.line: what lives after the op */
  int64_t **delta; /* [n][nop] what an op adds */
  int64_t **over;  /* [n][nop] what there is more while it runs than before it and after it */
  int64_t **most;  /* [n][nrank] */
  int64_t *top;    /* [n] (put) most after a place or later */
} Sums;

typedef struct Just {
  Sched *s;
  Tries *done;
  uint32_t n;
  uint32_t *rank, *ncomp; /* [n]; [nrank] ops of a rank before its updates */
  Edge *in, *out;         /* [width * n] */
  uint32_t width;         /* edges of an op, to each side, at most */
  uint64_t *cost,
      /* [n]; [nlag] of what a forward, and a backward, of each stage sends, or over each edge */
      *lag;
  uint32_t nlag;
  uint64_t *shaken;      /* [n] in place of cost */
  /* [n] rows of Orders.op, rank after rank: the order now, the best so far */
  uint32_t *seq, *best;
  uint64_t *start, *end; /* [n] of seq, played */
  uint32_t *played;      /* [n] in an order that respects the data */
  uint64_t *grad_end;    /* [nstage] */
  uint32_t *work, *queued, *head; /* [nrank] */
  uint64_t *now, *deadline, *after; /* [nrank] */
  Timing t;
  /* of a pass; backward, times run from the end */
  uint64_t *key, *begin, *until;
  uint32_t *list, *spare; /* [n] ops in the order of the pass */
  uint32_t *line, *nline; /* [n] ops of a rank by place; [nrank] */
  Sums sum;
  uint64_t looked; /* at so many places, in all passes */
  bool (*value)(Sched *, Timing, int64_t *); /* of an order; false: reported */
  int64_t *least;                            /* that of `best` */
  Timing best_t, bound; /* bound: of any order with these stashes */
  bool changed; /* best is not the order that was given */
} Just;

/* Times of j->seq; false: the ranks wait for each other. */
bool just_play(Just *j);

/* What is to become shorter. */
typedef enum Within { MAKESPAN, SPAN, BOTH, NWITHIN } Within;

/* Keeps j->seq, which has been played, if it beats the best. False: no value, reported. */
bool just_judge(Just *j);

/* ---- justify.c ---- */
/* Moves ops within the predicted times until there were so many tries, or a few without gain, and
 * keeps the order with the least *value, of equals the shorter; false: value() has reported. Goes
 * on from `done`. Requires check_deps and no obstacle. */
bool justify(Sched *s, Orders *orders, Tries *done, uint32_t tries,
             bool (*value)(Sched *, Timing, int64_t *), int64_t *least);
uint32_t justify_obstacle(const Sched *s); /* an update that stands before another op, or NONE */

/* ---- critical_moves.c ---- */

/* Goes so many steps from j->seq, which has been played: in each one op leaves a critical path of
 * the makespan or span. Every order on the way is judged. seed: of what is picked at random. False:
 * reported. */
bool critical_moves(Just *j, Within what, uint32_t steps, uint64_t seed);

#endif
