/* SPDX-License-Identifier: MIT
 * Helps and notes on an unknown name, or on an op in a wrong place. A hint_ function that returns
 * bool prints at most one message, and returns whether it did. */
#ifndef PIPEC_HINTS_H
#define PIPEC_HINTS_H

#include "pipec.h"

bool hint_near(const char *a, const char *b); /* one letter apart, or only its case */
bool hint_mentions(const Expr *e, Name name); /* before names are resolved */

bool hint_op(Sched *s, Name name);
/* `name` stands in clause c for the variable of the rank in an order of sc. */
bool hint_rank(Sched *s, const Schedule *sc, const Clause *c, Name name);
/* Tells where else a name is defined: below, in another block, in a base of sc. sc, c: or NULL. */
bool hint_elsewhere(Sched *s, const Ast *file, const Schedule *sc, const Clause *c, Name name,
                    Span at);
/* `name` looks like a stage or microbatch that c does not name. */
bool hint_names(Sched *s, const Clause *c, Name name);
bool hint_weights(Sched *s, const Clause *c, Name name); /* a value in a line of `weights` */
bool hint_library(Sched *s, Name schedule, Span at);
bool hint_params(Sched *s, const Schedule *sc);

/* So many ops at[mb] of a kind ("F", "B", "I", "W") on a stage of rank r are missing: `first`,
 * ... */
void hint_missing(Sched *s, uint32_t stage, const char *kind, const uint32_t *at, uint32_t missing,
                  uint32_t first);
/* Row `later` of Orders.op stands before row `earlier`. */
void hint_order(Sched *s, uint32_t earlier, uint32_t later);
/* `use` names microbatch mb on rank r, of n; list: the clock or rules around it, or NULL. */
void hint_index(Sched *s, uint32_t r, const OpRef *use, const Stmt *list, int64_t mb, uint32_t n);
/* `use` runs an op that row `old` of Orders.op already runs, or the other backward of it. */
void hint_twice(Sched *s, uint32_t r, const OpRef *use, uint8_t kind, uint32_t old);

#endif
