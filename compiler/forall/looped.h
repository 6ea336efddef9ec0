/* SPDX-License-Identifier: MIT
 * The looped program of a schedule: for every number of microbatches, of a size that does not depend on it. */
#ifndef PIPEC_LOOPED_H
#define PIPEC_LOOPED_H

#include "pipe_loop.h"
#include "again.h"

/* The program for every M. */
typedef struct Looped {
  PipeLooped table;
  uint32_t nshort; /* the last of its classes have one value each, below those of the others */
  const char *lacks; /* values below that have no program, each with why: " 3 [deadlock]"; "" */
  int64_t tried; /* not all of it is proved: it was compared with what the text makes up to this value; 0: it is */
  Sched **like;  /* [nclass] a compiled one of each class; its prog is that of the class */
} Looped;

/* rest_of_m.c: a time or size that depends on a parameter; NULL. */
const Entry *moving_cost(const Sched *s, const char *name);
/* A time that depends on the microbatch; NULL. */
const Entry *cost_by_mb(const Sched *s);
/* Why there is no program for every M, whatever it does; NULL. */
const char *never_looped(const Sched *s);
/* One by which the time of transfers may depend on it: a size, over a bandwidth; NULL: none. */
const Entry *moving_transfer(const Sched *s, const char *name);
/* Do times, sizes, or what is recomputed, copied or read depend on it, or does that come to be something else from some
 * microbatch on? Else what a microbatch says repeats after each *every of them. */
bool rest_moves(const Sched *s, const char *name, int64_t *every);
/* Do ranks take turns at links? Loops that do not meet in a program for some M may do so for a larger one. */
bool shares_links(const Sched *s);
/* formulas_of_m.c: what s requires of the parameter, and those that follow from it: ensures value, admit, nadmit. False: they are
 * too long. */
bool formulas_of_m(const Sched *s, const char *name, PipeLooped *l);
/* The pass: requires check_all_m; ensures looped. */
bool make_looped(Sched *s);

#endif
