/* SPDX-License-Identifier: MIT
 * The processes of one run on one machine, made by fork: for trying programs out, and for tests. */
#ifndef GPT_GROUP_H
#define GPT_GROUP_H

#include "pipe_group.h"

/* Makes `size` processes of this one, before anything has used a device, and returns 1 in each of
 * them: *at is for pr_group_open. In the parent, where their store is served, it returns 0 once all
 * have ended: *status is the first exit status that is not 0 (128 + signal), or 0; how each has
 * ended that has not ended well is told on standard error. */
int group_fork(uint32_t size, PrLaunch *at, int *status);

#endif
