/* SPDX-License-Identifier: MIT
 * The door of report/: reports, dumps and terminal pictures for people. */
#ifndef PIPEC_REPORT_H
#define PIPEC_REPORT_H

#include "pipec.h"

void emit_report(Sched *s, FILE *f);
void emit_show(Sched *s, FILE *f);     /* show.c */
/* COLUMNS, or the width of terminal f in columns; `none` if f is no terminal. */
uint32_t terminal_width(FILE *f, uint32_t none);
/* Prints text, broken between words at column `width`. Begins at column `at`; further lines at
 * `indent`. */
void put_wrapped(FILE *f, const char *text, uint32_t at, uint32_t indent, uint32_t width);
/* stall_picture.c: draws the counter-example of the last refutation to opt->counterexample, if any.
 * False: reported. */
bool draw_stall(Sched *s);
/* Removes the picture that an earlier run has left at opt->counterexample. A file that
 * pipec has not drawn stays. False: reported. */
bool remove_stall(Sched *s);
/* ---- report.c ---- */
double bubble_percent(const Sched *s, uint64_t makespan);
/* percent by which value exceeds bound; 0 if bound is 0 */
double above_percent(uint64_t value, uint64_t bound);
/* "makespan 27, bound 25 (+8.0 %); span 27, bound 22 (+23 %)". Ensures bound. */
const char *bound_text(Sched *s);
/* The means over measured steps from `first` on, in ns. makespan: first start to last end; busy:
 * compute time of all ranks. Requires such a step. */
typedef struct MeasuredMean { double makespan, busy; } MeasuredMean;
MeasuredMean measured_mean(const Sched *s, uint32_t first);
/* ---- dump.c: the state after a pass ---- */
void dump_ops(Sched *s, FILE *f);
void dump_streams(Sched *s, FILE *f);
void dump_program(Sched *s, FILE *f);

#endif
