/* SPDX-License-Identifier: MIT
 * The first part of expand: makes a Model from a schedule with values for its parameters.
 * instance.c binds the parameters and collects the clauses; place.c, graph.c, costs.c and links.c
 * read them. */
#ifndef PIPEC_INSTANCE_H
#define PIPEC_INSTANCE_H

#include "pipec.h"

typedef struct Bound { Clause *clause; uint32_t depth; } Bound; /* depth 0: the schedule itself */
typedef struct Clauses { Bound *at; uint32_t n, cap; } Clauses;

/* A schedule whose parameters are bound. */
typedef struct Instance {
  Sched *s;
  Model *model;    /* the product; s sees it as const */
  Clauses clauses; /* of the schedule and its bases */
} Instance;

/* ---- instance.c ---- */
/* Binds the parameters of the compiled schedule to the values of -D, or to their defaults. */
bool bind_top(Instance *x);
/* Requires bound parameters of sc. Checks what sc and its bases require, binds the parameters of
 * the bases, and adds all clauses, those of sc last. depth: 0, of a base 1 more. */
bool instantiate(Instance *x, const Schedule *sc, uint32_t depth);

/* Finds the clause that applies, of a kind that may occur once: the schedule's before its bases';
 * NULL: none. False: reported. */
bool find_only(Instance *x, ClauseKind kind, const char *word, const Clause **found);
/* The clauses of a kind, *n of them. own: only those of the schedule that is nearest to the
 * compiled one and has any. */
const Clause **find_clauses(Instance *x, ClauseKind kind, bool own, uint32_t *n);

/* Finds the order that each rank follows: order[nrank], all NULL before. */
bool find_orders(Instance *x, const Clause **order);

/* ---- place.c ---- */
bool find_ranks(Instance *x);
bool find_copy_links(Instance *x); /* the `exclusive` clause */
bool find_pipes(Instance *x);
/* Is there memory for the rows and edges so far, with F and B of each unit? c: where to report. */
bool fits(Sched *s, const Clause *c);
bool ops_fit(Sched *s);               /* is there memory for the ops so far? */
bool place_stages(Instance *x);
/* Numbers the rows of each rank from 0, in row order. Ensures PipeStage.chunk, Model.rank_stage and
 * Model.rank_stage0. */
void number_chunks(Sched *s, Model *model);

/* ---- graph.c ---- */
bool find_graph(Instance *x);
bool find_ties(Instance *x);

/* ---- costs.c ---- */
bool set_costs(Instance *x);

/* ---- links.c ---- */
/* Sets the times of transfers and sums that the schedule does not give itself. cost, has, depth,
 * at: by key; cost[key - NKEYS] by stage. most: bound of one time. Requires all other costs.
 * Ensures PipeEdge.send. False: reported. */
bool set_links(Sched *s, uint64_t *const *cost, const bool *has, const uint32_t *depth,
               const Span *at, uint64_t most);

/* ---- weights.c ---- */
bool find_weights(Instance *x); /* finds the lines of the `weights` clauses that apply */

#endif
