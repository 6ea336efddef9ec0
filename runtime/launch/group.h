/* SPDX-License-Identifier: MIT
 * Groups for processes that do not meet through pr_group_open: one of them serves the store and
 * tells the others its address. Not installed. */
#ifndef PIPE_GROUP_PRIVATE_H
#define PIPE_GROUP_PRIVATE_H

#include <stdbool.h>

#include "pipe_group.h"

/* As pr_group_serve. one_host = 0: listens at addresses that other hosts can reach. */
PrGroupServer *group_serve(uint32_t size, bool one_host, PrLaunch *at, char why[1024]);

/* As pr_group_open, at at->store with at->key. server: the one that this process serves, or NULL;
 * the group takes ownership. of_rank_0: a process of the run serves the store. patience_s: seconds
 * that `share` and `gather` wait for other ranks. */
PrStatus group_join(PrGroup **out, const PipeProgram *p, const PrLaunch *at, PrGroupServer *server,
                    bool of_rank_0, double timeout_s, double patience_s, char why[1024]);

#endif
