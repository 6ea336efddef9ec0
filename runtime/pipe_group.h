/* SPDX-License-Identifier: MIT
 * The processes of a run, one rank each, and what they tell one another besides what carries their tensors: for
 * engines of devices (pipe_cuda.h). pr_group_open makes one over TCP, from what a launcher has left in the
 * environment (pipe_launch.h); a program may fill one in itself. */
#ifndef PIPE_GROUP_H
#define PIPE_GROUP_H

#include "pipe_launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The functions return 0, or another number if the others cannot be reached any more. */
typedef struct PrGroup {
  uint32_t rank, size;
  /* `data` of rank `from` to all; all call it alike, and wait for `from`. */
  int (*share)(void *arg, uint32_t from, void *data, uint64_t bytes);
  /* Tells the others that this rank has failed, without waiting for them. */
  void (*tell)(void *arg, const char *text);
  /* 1: another rank has told so, or has gone; the text for it is in text[n]. Never waits. */
  int (*heard)(void *arg, char *text, uint64_t n);
  void *arg;
} PrGroup;

/* A group over a store at at->store (NULL `at`: what pr_launch says), which rank 0 serves unless pipe-run has
 * started the processes. Waits up to timeout_s for all ranks; one that has another program is refused on all of
 * them, with both hashes. PR_E_ARG or PR_E_LOST: the reason is in why[1024]. */
PrStatus pr_group_open(PrGroup **out, const PipeProgram *p, const PrLaunch *at, double timeout_s, char why[1024]);
void pr_group_close(PrGroup *g); /* NULL is fine */

#ifdef __cplusplus
}
#endif

#endif
