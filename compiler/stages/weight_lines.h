/* SPDX-License-Identifier: MIT
 * What the lines of the `weights` clauses say of an op (weights.c), for versions.c and
 * formula.c. */
#ifndef PIPEC_WEIGHT_LINES_H
#define PIPEC_WEIGHT_LINES_H

#include "pipec.h"

/* The line of this word that holds for op, a row of Orders.op, or NULL: the first line for the kind
 * of op whose `when` is true. mb: the unit that the microbatch variable means; for a U, the unit of
 * the last gradient it applies. I without lines has the lines of B; R has the lines of the backward
 * of its microbatch. False: reported. */
bool weight_line(Sched *s, WeightWord word, uint32_t op, uint32_t mb, const WeightLine **line);
/* The same for a state, at update u. */
bool weight_then(Sched *s, const char *state, uint32_t u, uint32_t mb, const WeightLine **line);
/* Sets the variables of the line's clause to the stage and microbatch of a row and unit. */
void weight_bind(Sched *s, const WeightLine *l, uint32_t stage, uint32_t mb);
/* The version that a line with a value names. */
bool weight_value(Sched *s, const WeightLine *l, uint32_t op, int64_t *value);
/* The value of `per`, which is equal for ops that share an estimate or a version. */
bool weight_per(Sched *s, const WeightLine *l, uint32_t op, int64_t *value);
/* Prints a note on the line that says what an op reads; NULL: no line does. */
void weight_note(Sched *s, const WeightLine *l);
/* How many weight versions a row may keep, and where the text says so; NULL: all that are read. */
bool weight_ring(Sched *s, uint32_t stage, const WeightLine **line, int64_t *n);

#endif
