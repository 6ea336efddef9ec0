/* SPDX-License-Identifier: MIT
 * Groups for processes that come together in another way than pr_group_open: the first of them
 * serves the store, and tells the others where. Not installed. */
#ifndef PIPE_GROUP_PRIVATE_H
#define PIPE_GROUP_PRIVATE_H

#include <stdbool.h>

#include "pipe_group.h"

/* As pr_group_serve; unless all are on this host, at addresses that others may reach. */
PrGroupServer *group_serve(uint32_t size, bool one_host, PrLaunch *at, char why[1024]);

/* As pr_group_open, at at->store with at->key. server: that this process serves, or NULL; the
 * group's from now on. of_rank_0: a process of the run serves it. patience_s: how long others are
 * waited for in `share` and `gather`. */
PrStatus group_join(PrGroup **out, const PipeProgram *p, const PrLaunch *at, PrGroupServer *server,
                    bool of_rank_0, double timeout_s, double patience_s, char why[1024]);

#endif
