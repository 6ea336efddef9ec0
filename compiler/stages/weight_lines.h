/* SPDX-License-Identifier: MIT
 * What the lines of the `weights` clauses say of an op (weights.c), for versions.c and
 * formula.c. */
#ifndef PIPEC_WEIGHT_LINES_H
#define PIPEC_WEIGHT_LINES_H

#include "pipec.h"

/* The line of this word that holds for op, a row of Orders.op, or NULL: the first of those for its
 * kind whose `when` is true. mb: the unit that stands for the microbatch in it; of a U that of the
 * last gradient that it applies. I without lines of its own has those of B, R those of the backward
 * of its microbatch. False: reported. */
bool weight_line(Sched *s, WeightWord word, uint32_t op, uint32_t mb, const WeightLine **line);
/* The line for a state, for update u. */
bool weight_then(Sched *s, const char *state, uint32_t u, uint32_t mb, const WeightLine **line);
/* Sets the variables of the line's clause to the stage and microbatch of a row and unit. */
void weight_bind(Sched *s, const WeightLine *l, uint32_t stage, uint32_t mb);
/* Which version it says, of a line with a value. */
bool weight_value(Sched *s, const WeightLine *l, uint32_t op, int64_t *value);
/* What ops that share one estimate, or one version, have in common, of a line with `per`. */
bool weight_per(Sched *s, const WeightLine *l, uint32_t op, int64_t *value);
/* Notes which line says what an op reads; NULL: none does. */
void weight_note(Sched *s, const WeightLine *l);
/* How many weight versions a row may keep, and where the text says so; NULL: all that are read. */
bool weight_ring(Sched *s, uint32_t stage, const WeightLine **line, int64_t *n);

#endif
