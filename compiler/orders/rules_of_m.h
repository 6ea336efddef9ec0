/* SPDX-License-Identifier: MIT
 * What a play of `rules` leaves behind for the proof for every number of microbatches
 * (rules_of_m.c). */
#ifndef PIPEC_RULES_OF_M_H
#define PIPEC_RULES_OF_M_H

#include "pipec.h"

/* The state of a play at a moment, after all earlier events. It holds everything that the rest of
 * the play depends on, relative to the moment and to `front`. Plays with equal words continue in
 * the same way, apart from microbatches and times, until one of them meets the last
 * microbatches. */
typedef struct RuleState {
  uint64_t now;
  int64_t front;    /* number of forwards of stage 0 begun: units count from there */
  int64_t touched;  /* the last unit of which an op has begun or has had an input */
  uint32_t *begun;  /* [nrank] ops that have begun */
  uint64_t hash;
  int64_t *word;
  uint32_t nword;
} RuleState;

/* What a block of rules lists; of an action, each op. */
typedef struct RuleListed {
  uint32_t rank, stage;      /* NONE: of any stage */
  uint32_t file, beg;        /* where its statement is in the text */
  uint32_t cand;             /* its candidate; those of one stand together */
  uint8_t kind;
  bool keyed, joint;
  int64_t unit;              /* -1: none */
  int64_t key;
  /* rules_hash over the numbers of its condition, in the order of the text */
  uint64_t guard;
} RuleListed;

typedef struct RulePlay {
  VEC(RuleState) state; /* ascending */
  VEC(RuleListed) listed;
  uint64_t *start;      /* [nop] when the ops began, rank after rank in the order of the play */
  /* Some ops never began: they stand behind all others of their rules, with start 0. */
  bool rest;
} RulePlay;

static inline uint64_t rules_hash(uint64_t h, int64_t v) {
  h = (h ^ (uint64_t)v) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 29;
}

#endif
