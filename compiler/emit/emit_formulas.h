/* SPDX-License-Identifier: MIT
 * Formulas of a program as text, for the files that print programs. Requires formulas. */
#ifndef PIPEC_EMIT_FORMULAS_H
#define PIPEC_EMIT_FORMULAS_H

#include "pipec.h"
#include "text.h"

void dump_formulas(Sched *s, FILE *f); /* the part of dumps after `formulas` */
void emit_formulas_c(Sched *s, Text *text);
void emit_formulas_json(Sched *s, Text *text);

#endif
