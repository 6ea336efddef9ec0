/* SPDX-License-Identifier: MIT
 * The door of for_all/: the program for every M, and its proof. */
#ifndef PIPEC_FOR_ALL_H
#define PIPEC_FOR_ALL_H

#include "for_all_proof.h"
#include "pipec.h"
#include "rows.h"

/* The program for every M. */
typedef struct Looped {
  PipeLooped table;
  const ForAllProof *every; /* [table.nclass] certificates; classes of one value have no notes */
  Sched **like;       /* [table.nclass] the compile of the first value of each class */
  uint32_t nshort;    /* the last nshort classes have one value each, below those of the others */
} Looped;

/* ---- for_all.c: with opt->for_all, requires check_tables. Finds the program for every value of
 * this parameter and proves it, or says why it could not. Ensures for_all, and looped if there is a
 * program ---- */
bool check_for_all(Sched *s);
/* Is every value that the schedule admits proved? */
bool is_proved_for_all(const Sched *s);
void dump_for_all(Sched *s, FILE *f);

/* ---- formulas.c: what s requires of the parameter, and the parameters that follow from it.
 * Ensures value, admit, nadmit. False: a formula is too long ---- */
bool formulas_of_m(const Sched *s, const char *name, PipeLooped *l);

/* ---- family.c: the rows of rank r of a class, without notes ---- */
RankRows family_rows(Arena *a, const ForAllProof *e, uint32_t r);

#endif
