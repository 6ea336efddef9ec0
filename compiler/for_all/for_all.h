/* SPDX-License-Identifier: MIT
 * The door of for_all/, what other rooms call: the program for every M, and its proof. */
#ifndef PIPEC_FOR_ALL_H
#define PIPEC_FOR_ALL_H

#include "for_all_proof.h"
#include "pipec.h"
#include "rows.h"

/* The program for every M. */
typedef struct Looped {
  PipeLooped table;
  const ForAllProof *every; /* [table.nclass]; those of one value have no notes */
  Sched **like;       /* [table.nclass] compiled for the first value of each class */
  uint32_t nshort;    /* the last classes have one value each, below those of the others */
} Looped;

/* ---- for_all.c: with opt->for_all, requires check_tables. Finds the program for every value of
 * that parameter and proves it, or says why that is not decided; ensures for_all, and looped if
 * there is one ---- */
bool check_for_all(Sched *s);
/* Every value that the schedule admits is proved. */
bool is_proved_for_all(const Sched *s);
void dump_for_all(Sched *s, FILE *f);

/* ---- formulas.c: what s requires of the parameter, and those that follow from it: ensures value,
 * admit, nadmit. False: they are too long ---- */
bool formulas_of_m(const Sched *s, const char *name, PipeLooped *l);

/* ---- family.c: the rows of a rank of a class, without notes ---- */
RankRows family_rows(Arena *a, const ForAllProof *e, uint32_t r);

#endif
