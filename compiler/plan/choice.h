/* SPDX-License-Identifier: MIT
 * A plan: which layers on which ranks, in which order (plan.c). */
#ifndef PIPEC_CHOICE_H
#define PIPEC_CHOICE_H

#include "cluster.h"
#include "states.h"

typedef enum PlanOrder { ORDER_1F1B, ORDER_ZB_H1, ORDER_INTERLEAVED, ORDER_2BW } PlanOrder;

enum { BATCHES_2BW = 4 }; /* that a schedule of ORDER_2BW runs: it has no steps of one batch */

/* Row `from` of States is where the stage before it ends; START: the stage is the first. */
#define START NONE

/* Of a stash between its forward and its backward: in memory, made again, or in host memory. */
typedef enum StashPlace { STASH_KEPT, STASH_MADE_AGAIN, STASH_AT_HOST } StashPlace;

typedef struct PlanStage {
  uint32_t from, to;  /* rows of States: the layers of `to` that `from` lacks */
  uint32_t replicas;  /* which take turns; on consecutive ranks */
  uint32_t stash;     /* StashPlace */
  uint64_t again;     /* bit k: its run k recomputes (recompute.c), and stash is KEPT; LONG_RUNS */
} PlanStage;

typedef struct Choice {
  struct Task *task;
  PlanOrder order;
  PlanStage *stage; /* [nstage] */
  uint32_t nstage, nrank;
  uint32_t early; /* forwards of a rank ahead of those that 1F1B has in flight: hide transfers */
  uint64_t estimate; /* ns; what choices are tried by, the least first */
} Choice;

typedef VEC(Choice) Choices;

/* What plans are made of: one variant of the profile. */
typedef struct Task {
  Sched *s;
  Layers layers;
  States states;
  Cluster cluster; /* whose ranks are each layers.width ranks */
  uint32_t nmb, batch; /* microbatches of a step, and its samples; 0: unknown */
  uint64_t memory; /* bytes of a rank; 0: no limit */
  Choices found;   /* all its plans so far */
} Task;

/* ---- pipedream.c: the plan of PipeDream's optimizer by its own cost. False: reported ---- */
typedef struct PipeDream { bool straight, transfers; } PipeDream; /* transfers: they count */
bool pipedream_choice(Task *t, PipeDream by, Choice *c, double *seconds);

/* ---- alpa.c: the plan of Alpa's search between operators, and its measure ---- */
bool alpa_choice(Task *t, Choice *c, double *ns);
/* ---- dapple.c: the plan of DAPPLE's search, and its latency of a step ---- */
void dapple_choice(Task *t, Choice *c, double *ns);
/* ---- twobw.c: the plan of PipeDream-2BW's planner, its time of a sample. False: reported ---- */
bool twobw_choice(Task *task, uint32_t n, Choice *c, double *ns);
/* ---- search.c: finds plans that may have the shortest step, in no order ---- */
void find_choices(Task *t);
/* With a copy of its stages. False: its task has it. */
bool add_choice(Choice c);
/* ---- recompute.c: which layers of a stage recompute by themselves ---- */
/* A run of layers. saves: bytes of a stash, act, without what enters it. time: of its forward. */
typedef struct Run {
  uint32_t from, to;
  uint64_t act, saves, time;
  uint32_t at; /* among the runs of its stage */
} Run;
enum { MOST_RUNS = 63 };
#define LONG_RUNS ((uint64_t)1 << MOST_RUNS)
/* The short or the longer runs between two states, in order: at most MOST_RUNS, later ones never
 * recompute. Returns their number. */
uint32_t find_runs(const Task *t, uint32_t from, uint32_t to, uint64_t longer, Run run[MOST_RUNS]);
/* PlanStage.again with which so many stashes and the scratch take `bytes` less than with the
 * present one. 0: there is none. */
uint64_t runs_to_save(const Task *t, const PlanStage *p, uint64_t stashes, uint64_t bytes);
/* The runs that recompute: "a, each of c to e, g to h", where the layers g to h are one run. Adds
 * the number of layers. */
const char *again_text(const Task *t, const PlanStage *p, uint32_t *nlayer);
/* A cost of the stage with the runs that recompute. */
uint64_t stage_cost(const Task *t, const PlanStage *p, CostKey k);
/* ---- write_plan.c ---- */
/* The plan as a schedule called `plan`. */
void write_schedule(const Choice *c, FILE *f);
/* "1F1B, 3 stages on 2-1-1 ranks", and its microbatch and width if the profile has them. */
const char *choice_text(const Choice *c);
/* "recomputes block1 to block3", or "": of a stage. */
const char *stash_text(const Task *t, const PlanStage *p);
/* ---- plan_svg.c: the plan as a picture; compiled: its schedule, with its price ---- */
struct Price;
void draw_plan(const Choice *c, Sched *compiled, const struct Price *price, FILE *f);
/* The sum of a cost over the layers of `to` that `from` lacks; WORK: the largest of all of `to`. */
static inline uint64_t range_cost(const States *t, uint32_t from, uint32_t to, CostKey k) {
  return t->sum[to][k] - (from == START || k == KEY_WORK ? 0 : t->sum[from][k]);
}
/* F and backward of the same layers. */
static inline uint64_t range_time(const States *t, uint32_t from, uint32_t to) {
  return t->time[to] - (from == START ? 0 : t->time[from]);
}
/* Bytes of their gradients. */
static inline uint64_t range_grad(const Task *t, uint32_t from, uint32_t to) {
  return range_cost(&t->states, from, to, t->layers.has[KEY_GRAD] ? KEY_GRAD : KEY_WEIGHT);
}
/* The sum of so many bytes over a ring of ranks. */
static inline double ring_time(const Level *l, uint32_t ranks, uint64_t bytes) {
  return 2.0 * (ranks - 1) * (double)message_time(l, bytes / ranks);
}

#endif
