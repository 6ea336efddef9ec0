/* SPDX-License-Identifier: MIT
 * Helps and notes for an unknown name, or for an op in a wrong place. A hint_ function that returns
 * bool prints at most one message, and returns whether it printed one. */
#ifndef PIPEC_HINTS_H
#define PIPEC_HINTS_H

#include "pipec.h"

/* do the names differ in one letter, or only in case? */
bool hint_near(const char *a, const char *b);
bool hint_mentions(const Expr *e, Name name); /* does e mention `name`? works on unresolved names */

bool hint_op(Sched *s, Name name); /* `name` is nearly an op */
/* `name` is used in clause c; in an order of sc it is the variable of the rank. */
bool hint_rank(Sched *s, const Schedule *sc, const Clause *c, Name name);
/* Notes where else the name is defined: below `at`, in another block, or in a base of sc. sc and c
 * may be NULL. */
bool hint_elsewhere(Sched *s, const Ast *file, const Schedule *sc, const Clause *c, Name name,
                    Span at);
/* `name` looks like a stage or microbatch to which c gives no name. */
bool hint_names(Sched *s, const Clause *c, Name name);
bool hint_weights(Sched *s, const Clause *c, Name name); /* a value in a line of `weights` */
/* a file of the standard library defines it */
bool hint_library(Sched *s, Name schedule, Span at);
/* The unknown schedule has the name of a file, whose schedule has another one. */
bool hint_file_name(Sched *s, Name name, Span at);
bool hint_params(Sched *s, const Schedule *sc);

/* A stage of rank r lacks `missing` ops of a kind ("F", "B", "I", "W"). at: [nmb] 1 + op of the
 * kind, 0: none. first: the first missing microbatch. */
void hint_missing(Sched *s, uint32_t stage, const char *kind, const uint32_t *at, uint32_t missing,
                  uint32_t first);
/* Row `later` of Orders.op must come after row `earlier`, but stands before it. */
void hint_order(Sched *s, uint32_t earlier, uint32_t later);
/* `use` names microbatch mb of n on rank r. list: the clock or rules around `use`, or NULL. */
void hint_index(Sched *s, uint32_t r, const OpRef *use, const Stmt *list, int64_t mb, uint32_t n);
/* `use` runs an op that row `old` of Orders.op already runs, or the backward that excludes it. */
void hint_twice(Sched *s, uint32_t r, const OpRef *use, uint8_t kind, uint32_t old);

#endif
