/* SPDX-License-Identifier: MIT
 * Processes of one run on one machine, made by fork, that tell one another what pipe_cuda.h's PrGroup asks for
 * through memory that they share: for trying programs out, and for tests. */
#ifndef GPT_GROUP_H
#define GPT_GROUP_H

#include "pipe_cuda.h"

typedef struct Group Group;

/* Makes `size` processes of this one, before anything has used a device, and returns in each of them: *of is its
 * group. In the parent it returns once all have ended: NULL, and *status is the first exit status that is not 0
 * (128 + signal), or 0. */
Group *group_fork(uint32_t size, PrGroup *of, int *status);

#endif
