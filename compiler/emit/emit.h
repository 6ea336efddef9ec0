/* SPDX-License-Identifier: MIT
 * The door of emit/: outputs that a program reads: C, CSV, JSON, pictures. */
#ifndef PIPEC_EMIT_H
#define PIPEC_EMIT_H

#include "pipec.h"

/* ---- emit_*.c: require prog; write to f ---- */
void emit_c(Sched *s, FILE *f);
bool csv_can(Sched *s); /* emit_csv.c: warns of what the format cannot say; false: reported */
void emit_csv(Sched *s, FILE *f);
void emit_comms_csv(Sched *s, FILE *f);
void emit_json(Sched *s, FILE *f);
void emit_svg(Sched *s, FILE *f);
void emit_trace(Sched *s, FILE *f);
/* Opens its output itself. Compiles the inputs after the first. False: reported. */
bool emit_html(Sched *s);
/* The op at which a rank exceeds the memory limit, or NULL. */
const PipeInstr *over_limit(const Sched *s);

#endif
