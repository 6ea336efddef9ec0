/* SPDX-License-Identifier: MIT
 * The door of search/: `tune`, the best of several orders. */
#ifndef PIPEC_SEARCH_H
#define PIPEC_SEARCH_H

#include "orders.h"

/* tune.c: expands a schedule. With `tune`, takes the best of its values. False: reported. */
bool expand_best(Sched *s, Expanded *e);

#endif
