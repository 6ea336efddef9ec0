/* SPDX-License-Identifier: MIT
 * The play of `rules` (rules_play.c) and its preparation (order_rules.c). A candidate is what a
 * rank may take: an op, an action of several ops, or a copy of its COPY stream. `parts` lists its
 * ops. An op may belong to several candidates: the first candidate taken runs it, the others are
 * dropped. */
#ifndef PIPEC_RULES_H
#define PIPEC_RULES_H

#include "expand.h"
#include "limit.h"

/* An op of the play; after all ops come the copies. Fields that are used together lie together. */
typedef struct RunOp {
  uint64_t avail;      /* time at which the inputs arrive whose producers have started */
  /* 1 + its first row of RuleTables.parts; 0: it is not part of rules */
  uint32_t part;
  uint32_t need;       /* number of producers that have not started; OP_DONE: it has run */
} RunOp;
#define OP_DONE UINT32_MAX

typedef struct Event {
  uint64_t at;
  uint32_t rank;
} Event;

/* What updates wait for. Exists only if `rules` have a U, or if a U that waits for a sum stands
 * before other ops. Ops are rows of Orders.op. */
typedef struct Rounds {
  uint32_t *left;      /* [nop] number of gradients that a U still lacks */
  uint64_t *last;      /* [nop] time at which the last of its present gradients is made */
  uint32_t *u_of;      /* [nop] the U that is written behind the gradient outside of rules; NONE */
  /* [nop] the U without microbatch in the gradient's block of rules, or in the next block; NONE */
  uint32_t *rest_of;
  uint32_t *u_mb;      /* [nstage * nmb] 1 + U(m) of rules; 0: none */
  uint32_t *first;     /* [nstage + 1] first update of a stage, in u, at and waits */
  uint32_t *u;         /* the U of an update whose gradients are there */
  uint64_t *at;        /* time at which the last of these gradients is made */
  uint32_t *waits;     /* 1 + the first op that waits for the version of the update; 0: none */
  uint32_t *next_wait; /* [nop] 1 + the next op that waits for it; 0: none */
  /* [nstage] number of updates that have their gradients; that have run */
  uint32_t *closed, *updates;
} Rounds;

/* The candidate with a priority for which a rank waits: the rank can take it at `at`, as first in
 * line. */
typedef struct Awaited {
  uint32_t cand;    /* NONE: none */
  /* the op that runs with it where its statement names none; NONE: none; MANY: several */
  uint32_t partner;
  uint64_t at;
} Awaited;
#define MANY (UINT32_MAX - 1)
typedef struct Soon { uint32_t cls, i; } Soon; /* entry i of the `coming` heap of a class */

typedef struct Rules {
  Sched *s;
  Ex *x;
  Arena *arena;        /* memory of this play */
  RunOp *op;           /* [nop + ncopy] */
  uint32_t *seq;       /* [nop] the resulting order: rows of Orders.op */
  uint16_t *group;     /* [nop] number of ops that follow in the same action */
  uint32_t *next;      /* [nrank] index in seq of the next op */
  uint32_t *begun;     /* [nrank] index in seq of the action that began last */
  uint32_t *region;    /* [nrank] region at or after `next`, in RuleTables.regions; NONE */
  uint64_t *free_at;   /* [nrank] time from which the rank is free */
  bool *ending;        /* [nrank] the counts that its last action gives back are still counted */
  /* [nunit] running copy; NONE. Units: ranks, then links of copies. */
  uint32_t *copying;
  uint64_t *copied_at; /* [nunit] end of the running copy */
  /* [nrank], [ncopy] list of OFFs that ended during an action: 1 + copy; 0: end */
  uint32_t *freed, *next_freed;
  VEC(uint32_t) copied; /* copies, in the order in which they began */
  Rounds *rounds;      /* NULL: no op waits for an update */
  /* [nstage], [nrank] stashes; held microbatches; inputs kept for R; stashes in host memory only */
  int64_t *count[NCOUNTS], *rank_count[NCOUNTS];
  VEC(Event) events;   /* heap */
  uint32_t rank;       /* the rank that is deciding */
  Awaited *awaited;    /* [nrank] */
  /* [nrank] time at which it will look at arrivals, if this is in the future */
  uint64_t *wake;
  VEC(Soon) soon;      /* heap of arrivals, while a rank looks ahead */
  uint32_t *line;      /* [nclass] candidate that is first in line at `by`; NONE */
  bool *moved;         /* [nclass] this candidate has just become first */
  uint32_t *fill;      /* [nclass] fillers, while a rank chooses */
  uint64_t by;         /* the moment to which the rank looks ahead; 0: now */
} Rules;

/* ---- rules_play.c ---- */
/* Plays all ranks. False: a condition has no value, reported. */
bool rules_run(Rules *q);
/* The k-th OFF of rules that waits for op, the F of the last slice of its microbatch; k counts
 * slices from the last. NONE: none. */
uint32_t rules_off(const Rules *q, uint32_t op, uint32_t k);
/* The next candidate of a class, or NONE. Drops candidates with an op that has run. */
uint32_t rules_top(Rules *q, RuleClass *c);
/* Finds the ops of the candidate, pick[0..n), among the ops that are ready now, or at q->by. False:
 * a part, *lacks if lacks is not NULL, has no ready op. */
bool rules_pick(Rules *q, const Region *g, uint32_t cand, uint32_t *pick, const RulePart **lacks);
bool rules_holds(Rules *q, uint32_t cand, bool *yes);
/* Does the candidate make a gradient of a stage that must update first? */
bool rules_frozen(const Rules *q, uint32_t cand);
/* The region in which rank r is, or NULL. */
const Region *rules_region(const Rules *q, uint32_t r);

#endif
