/* SPDX-License-Identifier: MIT
 * shim_plan.c and shim_points.c, of shim_test: what the CUDA engine issues, against the table; what becomes of it without one wait, and with a
 * fault. */
#ifndef SHIM_PLAN_H
#define SHIM_PLAN_H

#include <stdint.h>

/* Calls of a step are those of the table, one by one; what starts does so after all it waits for. */
void plan_logs(const char *stdlib, uint64_t seed);
/* Without any one wait for an event, or for a turn, something is found. */
void plan_events(const char *stdlib, uint64_t seed);
/* PIPE_FAULT at an instruction of every kind, on threads, and on devices in one process and a process a rank: the
 * report names it, the status is the documented one; what is only slow changes nothing. */
void plan_points(const char *stdlib, uint64_t seed);

#endif
