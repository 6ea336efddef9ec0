/* SPDX-License-Identifier: MIT
 * What read_json.c (head, stages, orders) and read_tables.c (edges, ties, shared links, times of
 * slices and units) share. */
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
  VEC(Span) stage_at, instr_at, rank_at; /* places of the objects, in text order */
  uint32_t instr;                        /* next row of instr_at */
  uint64_t most;                         /* the largest cost allowed */
  bool tables;                           /* the form has edges */
} Read;

/* Reports `what` at `at`. Returns false. */
bool read_bad(Read *d, Span at, const char *what);
bool read_keys(Read *d, Span at, json_t *object, const char *what, const char *known);
/* Reads a whole number from `least` to `most`. If it is absent and not needed, *v stays. False:
 * reported. */
bool read_number(Read *d, Span at, json_t *object, const char *key, bool needed, uint64_t least,
                 uint64_t most, uint64_t *v);
/* read_tables.c. True if the part is absent. False: reported. */
bool read_unit_times(Read *d, json_t *stages); /* requires costs; ensures unit_time */
bool read_edges(Read *d, json_t *root);         /* requires stages; ensures graph */
bool read_ties(Read *d, json_t *stages);        /* ensures tie_of, tie_row0, tie_row */
bool read_links(Read *d, json_t *root);         /* ensures share */

#endif
