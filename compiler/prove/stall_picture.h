/* SPDX-License-Identifier: MIT
 * The picture of ranks that wait for each other (stall_picture.c). */
#ifndef PIPEC_STALL_PICTURE_H
#define PIPEC_STALL_PICTURE_H

#include "machine.h"
#include "pipec.h"

/* A hop of the circle: a rank stands at `at`, which needs `on`, of the rank of the next hop. Rows of s->op, or
 * positions in the list of that rank. */
struct StallHop {
  uint32_t rank, at, on;
  const char *text; /* the hop in words */
};

/* Both write the picture to opt->counterexample, if there is one; false: reported, or none. */
/* Orders that wait for each other: end[op] of those that ran, which are those below head[rank]. */
bool draw_orders(Sched *s, const uint64_t *end, const uint32_t *head, const StallHop *hop, uint32_t nhop);
/* Lists that do, under the model of s->opt, or of which two transfers meet that are not one; what: the heading. */
bool draw_lists(Sched *s, const MachineList *list, const StallHop *hop, uint32_t nhop, const char *what);

#endif
