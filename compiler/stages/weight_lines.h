/* SPDX-License-Identifier: MIT
 * Finds the lines of the `weights` clauses that apply to an op (weights.c), for versions.c and
 * formula.c. */
#ifndef PIPEC_WEIGHT_LINES_H
#define PIPEC_WEIGHT_LINES_H

#include "pipec.h"

/* Finds the line of this word that applies to op, a row of Orders.op: the first line for its kind
 * whose `when` is true; NULL: none. mb: the unit that the microbatch variable means; for a U, the
 * unit of the last gradient that it applies. Without lines of its own, I takes the lines of B, and
 * R the lines of the backward of its microbatch. False: reported. */
bool weight_line(Sched *s, WeightWord word, uint32_t op, uint32_t mb, const WeightLine **line);
/* Finds the line that sets `state` at update u; NULL: none. False: reported. */
bool weight_then(Sched *s, const char *state, uint32_t u, uint32_t mb, const WeightLine **line);
/* Sets the variables of the line's clause to the stage and microbatch of a row and a unit. */
void weight_bind(Sched *s, const WeightLine *l, uint32_t stage, uint32_t mb);
/* Evaluates the version that a line `reads e` names. False: reported. */
bool weight_value(Sched *s, const WeightLine *l, uint32_t op, int64_t *value);
/* Evaluates `per`, which is equal for ops that share an estimate or a version. False: reported. */
bool weight_per(Sched *s, const WeightLine *l, uint32_t op, int64_t *value);
/* Prints a note at the line that decides what an op reads; NULL: prints nothing. */
void weight_note(Sched *s, const WeightLine *l);
/* Finds how many weight versions a row may keep, and the line that says so; NULL: all that are
 * read. False: reported. */
bool weight_ring(Sched *s, uint32_t stage, const WeightLine **line, int64_t *n);

#endif
