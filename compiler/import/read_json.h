/* SPDX-License-Identifier: MIT
 * Reading the JSON form: what its files share.
 *
 *   read_json.c    head, stages, orders
 *   read_tables.c  edges, ties, shared links, times of slices and units, versions and formulas
 *   read_beside.c  side ops, transfers by hand, limits */
#ifndef PIPEC_READ_JSON_H
#define PIPEC_READ_JSON_H

#include <jansson.h>

#include "expand.h"

/* A side op of the rank at hand. */
typedef struct SideRead {
  SideUse use;
  Span at;
  uint32_t order, nth; /* as it says, and in the list */
  bool has_order;
} SideRead;

typedef struct Read {
  Sched *s;
  Ex x;
  uint32_t file;
  const char *text;
  VEC(Span) stage_at, side_at, instr_at, rank_at, limit_at; /* of the objects, in the order of the text */
  uint32_t instr;                        /* next of instr_at */
  uint64_t most;                         /* of one cost */
  bool tables;                           /* there are edges */
  VEC(GivenRead) given;                  /* of s->op, if a stage has `versions` */
  bool weighted;
  VEC(SideRead) use;                     /* of the rank at hand */
  VEC(SideUse) uses;                     /* of the ranks before it */
  VEC(Posting) posts, waits;             /* of the rank at hand: of its COMM stream; of compute instructions */
  bool by_hand;                          /* its transfers are those of a text */
  uint64_t group_left;                   /* transfers of the group at hand that are still to come */
} Read;

/* Reports at `at`; false. */
bool read_bad(Read *d, Span at, const char *what);
bool read_keys(Read *d, Span at, json_t *object, const char *what, const char *known);
/* A whole number from `least` to `most`; absent: *v stays, if it may be absent. */
bool read_number(Read *d, Span at, json_t *object, const char *key, bool needed, uint64_t least, uint64_t most,
                 uint64_t *v);
bool read_word(Read *d, Span at, json_t *object, const char *key, const char **v);
/* The stage of an instruction of rank r, which holds it; its microbatch and slice. */
bool read_own_stage(Read *d, Span at, json_t *j, const char *text, uint32_t r, uint64_t *stage);
bool read_unit(Read *d, Span at, json_t *j, uint64_t stage, bool needed, uint64_t *mb, uint64_t *slice);
/* The last of s->copy, which is of rank r, stands where that before it does, or behind. */
bool copy_in_order(Read *d, Span at, uint32_t r);

/* read_tables.c; each is true if there is nothing. False: reported. */
bool read_unit_times(Read *d, json_t *stages); /* requires costs; ensures unit_time */
bool read_edges(Read *d, json_t *root);         /* requires the stages; ensures graph */
bool read_ties(Read *d, json_t *stages);        /* ensures tie_of and so on */
bool read_links(Read *d, json_t *root);         /* ensures share */
bool read_formulas(Read *d, json_t *root, json_t *stages); /* ensures formula, rule, then, state, states of stages */
/* What op, the last of s->op, reads: its instruction is j. */
bool read_weights(Read *d, Span at, json_t *j);

/* read_beside.c */
bool read_sides(Read *d, json_t *root); /* requires the stages; ensures side_decl, side, side_site0, side_use0 */
bool read_side_op(Read *d, uint32_t r, Span at, json_t *j, const char *text, uint8_t phase);
/* Once all of rank r is read; its copies are those from first_copy on. Ensures side_use of the rank. */
bool finish_sides(Read *d, uint32_t r, uint32_t first_copy);
/* A SEND, RECV or sum. */
bool read_post(Read *d, uint32_t r, Span at, json_t *j, const char *text, uint32_t kind);
/* Of what is no transfer, and stands before row s->nop; can: `wait_all` may be there. */
bool read_wait_all(Read *d, uint32_t r, Span at, json_t *j, bool can);
bool finish_posts(Read *d, uint32_t r); /* ensures post of rank r */
bool read_limits(Read *d, json_t *ranks); /* requires all ops; ensures limits, limit0 */

#endif
