/* SPDX-License-Identifier: MIT
 * What the files that read the JSON form share:
 *
 *   read_json.c    head, stages, orders
 *   read_tables.c  edges, ties, shared links, times of slices and units */
#ifndef PIPEC_READ_JSON_H
#define PIPEC_READ_JSON_H

#include "expand.h"
#include "json_text.h"
#include "lower.h"
#include "orders.h"

typedef struct Read {
  Sched *s;
  Ex x;
  uint32_t file;
  const char *text;
  VEC(Span) stage_at, instr_at, rank_at; /* of the objects, in the order of the text */
  uint32_t instr;                        /* next of instr_at */
  uint64_t most;                         /* of one cost */
  bool tables;                           /* there are edges */
} Read;

/* Reports at `at`; false. */
bool read_bad(Read *d, Span at, const char *what);
bool read_keys(Read *d, Span at, json_t *object, const char *what, const char *known);
/* A whole number from `least` to `most`; absent: *v stays, if it may be absent. */
bool read_number(Read *d, Span at, json_t *object, const char *key, bool needed, uint64_t least,
                 uint64_t most, uint64_t *v);
/* read_tables.c; each is true if there is nothing. False: reported. */
bool read_unit_times(Read *d, json_t *stages); /* requires costs; ensures unit_time */
bool read_edges(Read *d, json_t *root);         /* requires the stages; ensures graph */
bool read_ties(Read *d, json_t *stages);        /* ensures tie_of and so on */
bool read_links(Read *d, json_t *root);         /* ensures share */

#endif
