/* SPDX-License-Identifier: MIT
 * The play of `rules` (rules_play.c) and what it plays (order_rules.c). A candidate is what a rank
 * may take: an op, an action of several, or a copy of its COPY stream. `part` lists its ops. An op
 * may be part of several candidates: the first one taken counts, and the others are dropped. */
#ifndef PIPEC_RULES_H
#define PIPEC_RULES_H

#include "expand.h"
#include "limit.h"

/* an op of the play, or behind all ops a copy; what is used together lies together */
typedef struct RunOp {
  uint64_t avail;      /* when the inputs arrive, of the producers that have started */
  /* row + 1 of RuleTables.parts, the first of this op; 0: it is outside of rules */
  uint32_t part;
  uint32_t need;       /* producers that have not started; OP_DONE once it has run */
} RunOp;
#define OP_DONE UINT32_MAX

typedef struct Event {
  uint64_t at;
  uint32_t rank;
} Event;

/* What updates wait for; only if `rules` have a U, or one that is summed stands before other ops.
 * Of the rows of Orders.op, of stages, or of updates. */
typedef struct Rounds {
  uint32_t *left;      /* [nop] gradients that are missing to a U */
  uint64_t *last;      /* [nop] when the last of those that are there is made */
  uint32_t *u_of;      /* [nop] U written behind the gradient, NONE */
  /* [nop] U without microbatch of the block that the gradient is of, or of the next one, NONE */
  uint32_t *rest_of;
  uint32_t *u_mb;      /* [nstage * nmb] U(m) of rules + 1; 0: none */
  uint32_t *first;     /* [nstage + 1] of its updates, rows of u and at: */
  uint32_t *u;         /* U of the k-th update, once its gradients are there */
  uint64_t *at;        /* when the last of these is made */
  uint32_t *waits;     /* of the version that the update makes: op + 1, 0 */
  uint32_t *next_wait; /* [nop] the next op + 1 that waits for the same; 0 */
  uint32_t *closed, *updates; /* [nstage] updates whose gradients are there; that have run */
} Rounds;

/* An op, or action, with a priority: at `at` the rank can take it, as first in line. */
typedef struct Awaited {
  uint32_t cand;    /* NONE: none */
  /* the op that it is taken with, where it names none; NONE; MANY: there are several */
  uint32_t partner;
  uint64_t at;
} Awaited;
#define MANY (UINT32_MAX - 1)
typedef struct Soon { uint32_t cls, i; } Soon; /* candidate i of the heap `coming` of a class */

typedef struct Rules {
  Sched *s;
  Ex *x;
  Arena *arena;        /* of this play */
  RunOp *op;           /* [nop + ncopy] */
  uint32_t *seq;       /* [nop] the order: row of Orders.op that runs there */
  uint16_t *group;     /* [nop] further ops after it that are one action with it */
  uint32_t *next;      /* [nrank] place in the order of the next op */
  uint32_t *begun;     /* [nrank] and of the action that began last */
  uint32_t *region;    /* [nrank] row of RuleTables.regions, the one at or after `next`; NONE */
  uint64_t *free_at;   /* [nrank] */
  bool *ending;        /* [nrank] what its last action ends is still counted */
  /* [nunit] copy that runs, NONE; units: ranks, then groups whose copies take turns */
  uint32_t *copying;
  uint64_t *copied_at; /* [nunit] when it ends */
  /* [nrank], [ncopy] OFFs + 1 that have ended while an action ran; 0 */
  uint32_t *freed, *next_freed;
  VEC(uint32_t) copied; /* copies in the order in which they began */
  Rounds *rounds;      /* NULL: there are none */
  /* [nstage], [nrank] stashes; held microbatches; inputs kept for R; stashes in host memory only */
  int64_t *count[NCOUNTS], *rank_count[NCOUNTS];
  Event *event;
  uint32_t nevent, cap;
  uint32_t rank;       /* that decides now */
  Awaited *awaited;    /* [nrank] */
  /* [nrank] a moment at which it looks at what has arrived, if that is yet to come */
  uint64_t *wake;
  VEC(Soon) soon;      /* heap, while a rank looks at what arrives, and by class: */
  uint32_t *line;      /* [nclass] which is first in line then, NONE */
  bool *moved;         /* [nclass] it has just become so */
  uint32_t *fill;      /* [nclass] candidates that fill, while it chooses */
  uint64_t by;         /* and when that is; 0: now */
  uint32_t *need0;     /* [nop] need at the beginning, if states are kept; NULL */
  uint64_t nword;      /* of states that are kept */
  int64_t front;       /* forwards of stage 0 that have begun, in the first pipe */
} Rules;

/* ---- rules_play.c ---- */
/* Plays all ranks. False: a condition has no value, which is reported. */
bool rules_run(Rules *q);
/* The OFFs of rules that wait for op, the F of the last slice of its microbatch: of slice number k
 * from the last one on; NONE. */
uint32_t rules_off(const Rules *q, uint32_t op, uint32_t k);
/* The candidate of a class that is next, or NONE; drops candidates one of whose ops has run. */
uint32_t rules_top(Rules *q, RuleClass *c);
/* Whether the rows of the candidate's ops are known: pick[0..n). False: lacks, if not NULL, is the
 * part that no ready op is there for. What is ready now, or at q->by. */
bool rules_pick(Rules *q, const Region *g, uint32_t cand, uint32_t *pick, const RulePart **lacks);
bool rules_holds(Rules *q, uint32_t cand, bool *yes);
/* It makes a gradient of a stage, and an update of the stage is due first. */
bool rules_frozen(const Rules *q, uint32_t cand);
bool rules_copies(const RuleClass *c);
/* its gradient is added up with those of other rows */
bool rules_summed(const Sched *s, uint32_t row);
/* The region that rank r is in, or NULL. */
const Region *rules_region(const Rules *q, uint32_t r);

/* ---- rules_states.c: with opt->keep_play; ensures Orders.play ---- */
/* What the blocks list; requires that nothing has run. */
void rules_begin_play(Rules *q);
/* All that happens before `now` has happened. */
void rules_state(Rules *q, uint64_t now);

#endif
