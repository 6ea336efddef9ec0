/* SPDX-License-Identifier: MIT
 * The state of the local search over a complete order: shared by justify.c and critical_moves.c. */
#ifndef PIPE_JUSTIFY_H
#define PIPE_JUSTIFY_H

#include "expand.h"

typedef struct Edge { /* to a producer, or to a user */
  uint32_t op;
  uint32_t lag; /* row of Just.lag: the time of the transfer; 0: none */
} Edge;

/* Tries for one value of `tune`: all; since the last gain. */
typedef struct Tries { uint32_t n, idle; } Tries;

/* The bounded sums of a rank: stashes by number and by bytes, or its limits. */
typedef struct Sums {
  uint32_t n;
  int64_t **live;  /* [n][nop] by place in Just.line: the sum after the op */
  int64_t **delta; /* [n][nop] what an op adds */
  int64_t **over;  /* [n][nop] excess while an op runs, over the sums before and after it */
  int64_t **most;  /* [n][nrank] bounds */
  int64_t *top;    /* [n] (put) the peak from a place on */
} Sums;

typedef struct Just {
  Sched *s;
  Tries *done;
  uint32_t n;
  uint32_t *rank, *ncomp; /* [n] rank of an op; [nrank] ops of a rank before its updates */
  Edge *in, *out;         /* [width * n] producers; users */
  uint32_t width;         /* the most edges of an op on each side */
  /* [n] time of each op; [nlag] time of the transfers of each kind, by stage or edge */
  uint64_t *cost, *lag;
  uint32_t nlag;
  uint64_t *shaken;      /* [n] in place of cost while shaking */
  /* [n] rows of Orders.op, rank after rank: the current order; the best */
  uint32_t *seq, *best;
  uint64_t *start, *end; /* [n] times of seq */
  uint32_t *played;      /* [n] ops in an order that respects the data */
  uint64_t *grad_end;    /* [nstage] end of the last gradient */
  uint32_t *work, *queued, *head; /* [nrank] scratch of just_play */
  uint64_t *now, *deadline, *after; /* [nrank] end of the rank; end of its last op (pass: latest
                                       end); scratch */
  Timing t;
  /* State of a pass. In a backward pass, times count from the end. */
  uint64_t *key, *begin, *until;
  uint32_t *list, *spare; /* [n] ops in the order of the pass; scratch */
  uint32_t *line, *nline; /* [n] ops of each rank by place; [nrank] their number */
  Sums sum;
  uint64_t looked; /* places looked at in all passes */
  bool (*value)(Sched *, Timing, int64_t *); /* the value of an order; false: reported */
  int64_t *least;                            /* the value of best */
  Timing best_t, bound; /* bound: for every order with these stashes */
  bool changed; /* best differs from the given order */
} Just;

/* Computes the times of j->seq. False: the ranks wait for each other. */
bool just_play(Just *j);

/* The measure to shorten; BOTH in passes only. */
typedef enum Within { MAKESPAN, SPAN, BOTH, NWITHIN } Within;

/* Keeps j->seq if it beats the best. Requires just_play. False: no value, reported. */
bool just_judge(Just *j);

/* ---- justify.c ---- */
/* Moves ops within the predicted times, for up to `tries` tries or a few without gain. Keeps the
 * order with the least *value; among equals, the shorter. Goes on from `done`. Requires check_deps
 * and no obstacle. False: value() has reported. */
bool justify(Sched *s, Orders *orders, Tries *done, uint32_t tries,
             bool (*value)(Sched *, Timing, int64_t *), int64_t *least);
uint32_t justify_obstacle(const Sched *s); /* an update before another op; NONE: there is none */

/* ---- critical_moves.c ---- */

/* Makes `steps` steps from j->seq; each moves an op off a critical path of the measure, and judges
 * the order. seed: for random choices. Requires just_play. False: reported. */
bool critical_moves(Just *j, Within what, uint32_t steps, uint64_t seed);

#endif
