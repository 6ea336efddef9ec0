/* SPDX-License-Identifier: MIT
 * The first part of expand: a schedule with values for its parameters becomes a Model. instance.c
 * gives the parameters their values and collects the clauses; place.c, graph.c, costs.c and links.c
 * read them. */
#ifndef PIPEC_INSTANCE_H
#define PIPEC_INSTANCE_H

#include "pipec.h"

typedef struct Bound { Clause *clause; uint32_t depth; } Bound; /* depth 0: the schedule itself */
typedef struct Clauses { Bound *at; uint32_t n, cap; } Clauses;

/* A schedule whose parameters are bound. */
typedef struct Instance {
  Sched *s;
  Model *model;    /* the product, which s sees const */
  Clauses clauses; /* of the schedule and its bases */
} Instance;

/* ---- instance.c ---- */
/* Gives the parameters of the compiled schedule the values of -D, or their defaults. */
bool bind_top(Instance *x);
/* Gives the parameters of sc the values of args; otherwise of the parameters of `within` with the
 * same name; otherwise their defaults. at: where to report. */
bool bind_params(Sched *s, const Schedule *sc, const Arg *args, const Schedule *within, Span at);
/* Requires that the parameters of sc are bound. Checks what sc and its bases require, binds the
 * parameters of the bases, and adds all clauses to `to`, those of sc last. */
bool instantiate(Instance *x, const Schedule *sc, uint32_t depth, Clauses *to, bool used);

/* The clause that holds of a kind that may occur once: the schedule's before its bases'; NULL. */
bool find_only(Instance *x, ClauseKind kind, const char *word, const Clause **found);
/* Those of a kind. own: the schedule's stand for its bases'. */
const Clause **find_clauses(Instance *x, ClauseKind kind, bool own, uint32_t *n);

/* Finds the order that each rank follows: order[nrank], all NULL before. */
bool find_orders(Instance *x, const Clause **order);

/* ---- place.c ---- */
bool find_ranks(Instance *x);
/* The clause of a kind that may occur once: the schedule's before its bases'; NULL. False:
 * reported. */
bool only_clause(Instance *x, ClauseKind kind, const char *word, const Clause **clause);
bool find_groups(Instance *x); /* the `exclusive` clause */
bool find_pipes(Instance *x);
/* Is there memory for the rows and edges so far, with F and B? c: where to report. */
bool fits(Sched *s, const Clause *c);
bool ops_fit(Sched *s);               /* the same for the ops so far */
bool place_stages(Instance *x);
/* Numbers the rows of each rank from 0, in row order. Ensures PipeStage.chunk, Model.rank_stage and
 * Model.rank_stage0. */
void number_chunks(Sched *s, Model *model);
void sort_chunks(Sched *s); /* for pipes whose rows are not in pipe order (place.c) */

/* ---- graph.c ---- */
bool find_graph(Instance *x);
bool find_ties(Instance *x);
/* Derives from the edges: their order by `from`, by stage, and their rows ([nmodel * nmb]). */
void join_graph(Sched *s, Model *model, PipeEdge *edge, uint32_t nedge, uint32_t *row);
/* group: [nmodel] 1 + the tie of a stage; 0: none. Requires ntie > 0. */
void join_ties(Sched *s, Model *model, const uint32_t *group);

/* ---- costs.c ---- */
bool set_costs(Instance *x);

/* ---- links.c ---- */
/* Sets the times of transfers and sums that the schedule does not give itself. cost: [NENTRIES -
 * NKEYS] by stage. most: bound of one time. Requires all other costs; ensures PipeEdge.send. False:
 * reported. */
bool set_links(Sched *s, uint64_t *const *cost, const bool *has, const uint32_t *depth,
               const Span *at, uint64_t most);

/* ---- weights.c ---- */
bool find_weights(Instance *x); /* which lines of the `weights` clauses count */

#endif
