/* SPDX-License-Identifier: MIT
 * Helps and notes on a name that is unknown, or on an op that stands where it must not. A hint_ that
 * returns bool prints at most one, and tells whether it did. */
#ifndef PIPEC_HINTS_H
#define PIPEC_HINTS_H

#include "pipec.h"

bool hint_near(const char *a, const char *b); /* one letter apart, or only its case */
bool hint_mentions(const Expr *e, Name name); /* before names are resolved */

bool hint_op(Sched *s, Name name);
/* name is that of the rank in an order of sc, and stands in clause c. */
bool hint_rank(Sched *s, const Schedule *sc, const Clause *c, Name name);
/* Where else the name is defined: further down, in another block, in what sc extends. sc, c: or NULL. */
bool hint_elsewhere(Sched *s, const Ast *file, const Schedule *sc, const Clause *c, Name name, Span at);
bool hint_names(Sched *s, const Clause *c, Name name); /* a stage or microbatch that c does not name */
bool hint_weights(Sched *s, const Clause *c, Name name); /* a value in a line of `weights` */
bool hint_library(Sched *s, Name schedule, Span at);
bool hint_params(Sched *s, const Schedule *sc);

/* Of the ops at[mb] of a kind ("F", "B", "I", "W") on a stage of rank r so many are missing, from `first`. */
void hint_missing(Sched *s, uint32_t stage, const char *kind, const uint32_t *at, uint32_t missing,
                  uint32_t first);
/* Row `later` of Orders.op stands before row `earlier`. */
void hint_order(Sched *s, uint32_t earlier, uint32_t later);
/* `use` is of microbatch mb on rank r, and there are n; list: the clock or rules that it is in, or NULL. */
void hint_index(Sched *s, uint32_t r, const OpRef *use, const Stmt *list, int64_t mb, uint32_t n);
/* `use` runs an op of this kind where row `old` of Orders.op is it already, or the other backward. */
void hint_twice(Sched *s, uint32_t r, const OpRef *use, uint8_t kind, uint32_t old);

#endif
