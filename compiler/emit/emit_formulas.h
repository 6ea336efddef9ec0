/* SPDX-License-Identifier: MIT
 * Formulas of a program as text, for the files that print programs. Requires formulas. */
#ifndef PIPEC_EMIT_FORMULAS_H
#define PIPEC_EMIT_FORMULAS_H

#include "pipec.h"
#include "rows.h"
#include "text.h"

void dump_formulas(Sched *s, FILE *f); /* the part of dumps after `formulas` */
void emit_formulas_c(Sched *s, Text *t);
const char *formula_fields(Sched *s, const char *prefix); /* initializers of the program's fields */
void emit_formulas_json(Sched *s, Text *t);

/* emit_c.c: writes the tables of s->prog, and the program; all names begin with t->prefix. given:
 * rows of each rank for a program for every M; NULL: rows of the lists of s->prog. */
void emit_c_tables(Sched *s, Text *t, const char *symbol, const RankRows *given);

#endif
