/* SPDX-License-Identifier: MIT
 * What a schedule costs, by compiling it. */
#ifndef PIPEC_PRICE_H
#define PIPEC_PRICE_H

#include <stdio.h>

#include "pipec.h"

typedef struct Price {
  uint64_t makespan, bound, memory; /* memory: bytes of the fullest rank */
  double computes;  /* percent of the critical path; the rest are transfers */
  uint32_t busiest; /* rank, */
  double busy;      /*   and how many percent of the step it computes */
  const char *lacks; /* as costs_lacking */
} Price;

typedef struct PricedCompile { Arena arena; Options opt; Diag diag; Sched s; } PricedCompile;

/* Compiles x->opt silently; the rest of x is empty before, and its arena is the caller's to free.
 * False: diag has the first error, or it is no program of ours. A failed check is the only error of
 * its compile, and *price is set. */
bool compile_priced(const Sched *s, PricedCompile *x, Price *price);
/* Bytes. Requires check_memory. */
uint64_t fullest_rank(const Sched *s);
/* The price as lines of a comment; limit: of memory, 0: none. */
void put_price(Sched *s, const Price *price, uint64_t limit, FILE *f);
/* The clause of a written schedule that says what --lowering says. */
void put_lowering(const Sched *s, FILE *f);
/* ns: "1.5 s" */
const char *seconds(Sched *s, uint64_t ns);
static inline double percent(uint64_t part, uint64_t whole) {
  return whole > 0 ? 100 * (double)part / (double)whole : 100;
}

#endif
