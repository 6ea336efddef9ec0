/* SPDX-License-Identifier: MIT
 * The door of report/, what a person reads: reports, dumps, pictures in the terminal. */
#ifndef PIPEC_REPORT_H
#define PIPEC_REPORT_H

#include "pipec.h"

void emit_report(Sched *s, FILE *f);
void emit_show(Sched *s, FILE *f);     /* show.c */
bool show_wants_colour(const Options *o, FILE *f);
/* COLUMNS, or the columns of the terminal of f; `none` if f is no terminal. */
uint32_t terminal_width(FILE *f, uint32_t none);
/* Wraps text between words to `width`, from column `at`; further lines begin at `indent`. */
void put_wrapped(FILE *f, const char *text, uint32_t at, uint32_t indent, uint32_t width);
/* stall_picture.c: draws the last counter-example to opt->counterexample, or as the page of
 * --emit=html, if either was asked for. False: reported. */
bool draw_stall(Sched *s);
/* ---- report.c ---- */
double bubble_percent(const Sched *s, uint64_t makespan);
/* percent by which value exceeds bound; 0: the bound is 0 */
double above_percent(uint64_t value, uint64_t bound);
/* "makespan 27, bound 25 (+8.0 %); span 27, bound 22 (+23 %)". Ensures bound. */
const char *bound_text(Sched *s);
/* The mean of the measured steps from `first` on: from the first start to the last end, and the
 * time of the compute ops of all ranks, in ns. Requires that there are any. */
typedef struct MeasuredMean { double makespan, busy; } MeasuredMean;
MeasuredMean measured_mean(const Sched *s, uint32_t first);
/* ---- dump.c: what is there after a pass ---- */
void dump_ops(Sched *s, FILE *f);
void dump_streams(Sched *s, FILE *f);
void dump_program(Sched *s, FILE *f);

#endif
