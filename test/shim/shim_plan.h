/* SPDX-License-Identifier: MIT
 * shim_plan.c, shim_points.c, shim_kills.c, shim_waits.c, shim_peer.c and shim_library.c, of
 * shim_test: what the CUDA engine issues, against the table; what becomes of it without one wait,
 * with a fault, without memory, and without one of its processes; transfers by copies; the
 * schedules of the library. */
#ifndef SHIM_PLAN_H
#define SHIM_PLAN_H

#include <stdbool.h>
#include <stdint.h>

/* Calls of a step are those of the table, one by one; what starts does so after all it waits for.
 * */
void plan_logs(const char *stdlib, uint64_t seed);
/* Without any one wait something is found. */
void plan_events(const char *stdlib, uint64_t seed);
/* PIPE_FAULT at an instruction of every kind, on threads, and on devices in one process and a
 * process a rank: the report names it, the status is the documented one; what is only slow changes
 * nothing. */
void plan_points(const char *stdlib, uint64_t seed);
/* Rank 1 gets no memory in some one place while it opens the run: all ranks tell that, in its
 * words. */
void plan_memory(const char *stdlib, uint64_t seed);
/* With one hardware queue for all streams of a device; with a rank that does not come to where
 * others wait for it; with a message lost in one of many channels. */
void plan_waits(const char *stdlib, uint64_t seed);
/* A rank is killed at some call: the others end in time, and say the same. */
void plan_kills(const char *stdlib, uint64_t seed);
/* Transport peer: where it is chosen, and refused; without any one number of its flags something is
 * found; what has failed on one rank no rank takes for a step. */
void plan_peer(const char *stdlib, uint64_t seed);
/* Each schedule of the library, as it is or with lowering channels: the results of the CPU engine,
 * and no rule is broken. */
void plan_library(const char *stdlib, bool channels, uint64_t seed);
/* The same of schedules with formulas of weights, and a model of floats. */
void plan_formulas(const char *stdlib, uint64_t seed);

#endif
