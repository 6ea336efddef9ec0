/* SPDX-License-Identifier: MIT
 * What the parts of a proof for every M share (clock_of_m.c, note [clock]). */
#ifndef PIPEC_CLOCK_OF_M_H
#define PIPEC_CLOCK_OF_M_H

#include "differences.h"
#include "lists_of_m.h"

typedef struct Run { /* the units of a row, or the numbers of its updates */
  uint32_t rank, segment, row;
  Affine of;     /* as a function of the turn */
  Affine lo, hi; /* first and last, ascending */
  int64_t rest;  /* by the pace */
} Run;
typedef VEC(Run) Runs;

typedef struct Spot {
  uint32_t rank, segment, row; /* row NONE: nowhere */
} Spot;

enum { OF_F, OF_R, OF_B, OF_W, OF_OFF, OF_LOAD, NFAMILY };

typedef struct Proof {
  const Sched *s;
  AffineEnv *x;
  ListsOfM *l;
  Arena *a;
  uint32_t *pipe;             /* [nstage] its pipe */
  Runs *family;               /* [npipe * nmodel * NFAMILY], by rest, then ascending */
  Runs *rounds;               /* [nstage] its U, by the number of updates before, ascending */
  uint32_t *node0, *segment0; /* [nrank] */
  Arcs arc, slope;            /* between rows: start; between segments: per_n */
  Affine **updates;           /* [nrank][row] of its stage before this op */
  Spot **gradient;            /* [nrank][row] of a U: the last gradient of its stage before it */
} Proof;

bool proof_no(Proof *p, const ListRow *o, const char *why);
static inline ListRow *row_at(const Proof *p, const Run *r) {
  return &p->l->rank[r->rank].row.at[r->row];
}
/* The runs of a kind of op of the stage of a row; requires that none overlap (complete). */
const Runs *proof_family(const Proof *p, uint32_t stage, int kind);
bool proof_run_of_units(Proof *p, uint32_t rank, uint32_t segment, uint32_t row, Run *to);
typedef struct Serving { /* {0} at first */
  const Run *run; /* it serves units of x: */
  Affine end[2];
  uint32_t next, last;
  bool begun, failed;
} Serving;
/* The next run of a family that, for some n, has units that are `by` less than some of x. False: there are no more, or (failed) that
 * cannot be said. */
bool proof_next(Proof *p, const Runs *f, const Run *x, int64_t by, Serving *k);
/* Updates before the op of a run at a unit. */
Affine proof_updates_at(const Proof *p, const Run *r, Affine unit);

/* versions_of_m.c: versions that are read by number are there, and a ring still has them. */
bool versions_of_m(Proof *p);
/* By how many updates gradients are late, and how many of them an update applies: ensures ListsOfM.late, applied. */
bool delays_of_m(Proof *p);

#endif
