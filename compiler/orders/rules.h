/* SPDX-License-Identifier: MIT
 * The play of `rules` (rules_play.c) and what it plays (order_rules.c). A candidate is what a rank
 * may take: an op, an action of several, or a copy of its COPY stream. `part` lists its ops. An op
 * may be part of several candidates: the first one taken counts, and the others are dropped. */
#ifndef PIPEC_RULES_H
#define PIPEC_RULES_H

#include "expand.h"
#include "limit.h"

/* An op of the play; behind all ops, a copy. Fields that are used together lie together. */
typedef struct RunOp {
  uint64_t avail;      /* when the inputs arrive whose producers have started */
  /* 1 + the row of its first part in RuleTables.parts; 0: it is not part of rules. */
  uint32_t part;
  uint32_t need;       /* number of producers that have not started; OP_DONE: it has run */
} RunOp;
#define OP_DONE UINT32_MAX

typedef struct Event {
  uint64_t at;
  uint32_t rank;
} Event;

/* What updates wait for. Exists only if `rules` have a U, or if a summed U stands before other ops.
 * Ops are rows of Orders.op. */
typedef struct Rounds {
  uint32_t *left;      /* [nop] number of gradients that a U lacks */
  uint64_t *last;      /* [nop] when the last of its present gradients is made */
  uint32_t *u_of;      /* [nop] the U written behind the gradient; NONE */
  /* [nop] The U without microbatch of the block of the gradient, or of the next block; NONE. */
  uint32_t *rest_of;
  uint32_t *u_mb;      /* [nstage * nmb] U(m) of rules + 1; 0: none */
  uint32_t *first;     /* [nstage + 1] the first update of a stage: row of u and at */
  uint32_t *u;         /* the U of the k-th update, once its gradients are there */
  uint64_t *at;        /* when the last of these gradients is made */
  uint32_t *waits;     /* 1 + the first op that waits for the version of the update; 0 */
  uint32_t *next_wait; /* [nop] 1 + the next op that waits for it; 0 */
  /* [nstage] number of updates that have their gradients; that have run */
  uint32_t *closed, *updates;
} Rounds;

/* An op, or action, with a priority: at `at` the rank can take it, as first in line. */
typedef struct Awaited {
  uint32_t cand;    /* NONE: none */
  /* The op that it is taken with, where its statement names none; NONE; MANY: several. */
  uint32_t partner;
  uint64_t at;
} Awaited;
#define MANY (UINT32_MAX - 1)
typedef struct Soon { uint32_t cls, i; } Soon; /* candidate i of `coming` of a class */

typedef struct Rules {
  Sched *s;
  Ex *x;
  Arena *arena;        /* of this play */
  RunOp *op;           /* [nop + ncopy] */
  uint32_t *seq;       /* [nop] the order: rows of Orders.op */
  uint16_t *group;     /* [nop] number of further ops in one action with it */
  uint32_t *next;      /* [nrank] index in seq of the next op */
  uint32_t *begun;     /* [nrank] index of the action that began last */
  uint32_t *region;    /* [nrank] region at or after `next`, in RuleTables.regions; NONE */
  uint64_t *free_at;   /* [nrank] */
  bool *ending;        /* [nrank] what its last action gives back is still counted */
  /* [nunit] The copy that runs; NONE. Units: ranks, then groups whose copies take turns. */
  uint32_t *copying;
  uint64_t *copied_at; /* [nunit] when this copy ends */
  /* [nrank], [ncopy] list of 1 + OFFs that ended while an action ran; 0. */
  uint32_t *freed, *next_freed;
  VEC(uint32_t) copied; /* copies in the order in which they began */
  Rounds *rounds;      /* NULL: there are none */
  /* [nstage], [nrank] stashes; held microbatches; inputs kept for R; stashes in host memory only */
  int64_t *count[NCOUNTS], *rank_count[NCOUNTS];
  VEC(Event) events;   /* heap */
  uint32_t rank;       /* the rank that decides now */
  Awaited *awaited;    /* [nrank] */
  /* [nrank] when it will look at what has arrived, if this is in the future. */
  uint64_t *wake;
  VEC(Soon) soon;      /* heap of arrivals while a rank looks ahead, and by class: */
  uint32_t *line;      /* [nclass] the candidate that is first in line then; NONE */
  bool *moved;         /* [nclass] it has just become first */
  uint32_t *fill;      /* [nclass] fillers, while the rank chooses */
  uint64_t by;         /* the moment of looking ahead; 0: now */
  uint64_t nword;      /* number of words of states kept */
  int64_t front;       /* number of forwards of stage 0 begun, in the first pipe */
} Rules;

/* ---- rules_play.c ---- */
/* Plays all ranks. False: a condition has no value, which is reported. */
bool rules_run(Rules *q);
/* The k-th OFF of rules, by slice from the last, that waits for op, the F of the last slice of its
 * microbatch; NONE. */
uint32_t rules_off(const Rules *q, uint32_t op, uint32_t k);
/* The candidate of a class that is next, or NONE; drops candidates one of whose ops has run. */
uint32_t rules_top(Rules *q, RuleClass *c);
/* Finds the rows of the candidate's ops, pick[0..n), among what is ready now, or at q->by. False: a
 * part has no ready op; it is *lacks if lacks is not NULL. */
bool rules_pick(Rules *q, const Region *g, uint32_t cand, uint32_t *pick, const RulePart **lacks);
bool rules_holds(Rules *q, uint32_t cand, bool *yes);
/* Does the candidate make a gradient of a stage that must update first? */
bool rules_frozen(const Rules *q, uint32_t cand);
bool rules_copies(const RuleClass *c);
/* The region that rank r is in, or NULL. */
const Region *rules_region(const Rules *q, uint32_t r);

#endif
