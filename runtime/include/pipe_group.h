/* SPDX-License-Identifier: MIT
 * A group: the processes of a run, one rank each, and what they exchange besides tensors. The
 * engines of pipe_transport.h and pipe_cuda.h use it. pr_group_open makes a group over TCP, from
 * the environment that a launcher sets (pipe_launch.h); a program may also fill in a PrGroup
 * itself. */
#ifndef PIPE_GROUP_H
#define PIPE_GROUP_H

#include "pipe_launch.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum {
  PR_GROUP_PLACE = 2048,     /* most bytes of one place report (PrGroup.place) */
  /* seconds that `share`, and NCCL in pr_open, wait for other ranks: one may be loading a model */
  PR_GROUP_PATIENCE_S = 600
};

/* Unless noted, functions return 0, or another number if the other ranks cannot be reached any
 * more. */
typedef struct PrGroup {
  uint32_t rank, size; /* of this process; size: ranks of the group */
  /* Broadcasts `data` from rank `from`. All ranks call it alike and wait for `from`; a rank that
   * has waited too long returns a number other than 0, too. */
  int (*share)(void *arg, uint32_t from, void *data, uint64_t bytes);
  /* Tells the other ranks that this rank has failed with st (not PR_OK), without waiting for them.
   * From then on `share` and `gather` of this rank end without waiting. */
  void (*tell)(void *arg, PrStatus st, const char *text);
  /* Returns 1 if another rank has called `tell`, or if no rank can any more; *st and text[n] then
   * have the status and its text. Returns 2, only with `place`, if a step takes too long or a rank
   * is gone and all ranks have been asked for their place. Else 0. Never waits. */
  int (*heard)(void *arg, PrStatus *st, char *text, uint64_t n);
  void *arg;
  /* watch, late and place find the rank that failed first instead of the one that noticed; all
   * three, or NULL. watch registers a function: until watch is called with place = NULL the group
   * may call place(of, to) on any thread. It writes the position of this rank to `to` and returns
   * its bytes. */
  void (*watch)(void *arg, uint32_t (*place)(void *of, char to[PR_GROUP_PLACE]), void *of);
  /* Reports that the step of this rank takes too long. Never waits; `heard` soon returns 2. */
  void (*late)(void *arg);
  /* After `heard` has returned 2: copies the place of rank r, equal on all ranks. Returns 1; 0: the
   * rank did not answer; -1: the rank is gone. */
  int (*place)(void *arg, uint32_t r, char to[PR_GROUP_PLACE]);
  /* Gathers `mine` of each rank in all[size * bytes] on rank 0, which waits for the ranks as in
   * `share`; the other ranks wait for nobody. All call it alike. Returns 0, or 1 + the rank that
   * did not come. */
  uint32_t (*gather)(void *arg, const void *mine, uint64_t bytes, void *all);
  /* Called on another thread while this rank waits for something that has a deadline of its own:
   * the patience of `share` and `gather` begins again. NULL: the group has none. */
  void (*extend)(void *arg);
} PrGroup;

/* Opens a group over the store at at->store (`at` NULL: as pr_launch says). Rank 0 serves the store
 * unless pipe-run has started the processes. Waits up to timeout_s seconds for all ranks. If a rank
 * has another program, all ranks fail with PR_E_ARG and both hashes. PR_E_ARG, PR_E_LOST: the
 * reason is in why[1024]. */
PrStatus pr_group_open(PrGroup **out, const PipeProgram *p, const PrLaunch *at, double timeout_s,
                       char why[1024]);
void pr_group_close(PrGroup *g); /* NULL is fine */

/* For a program that starts the processes itself: serves their store on this machine. *at receives
 * everything that pr_group_open needs except the rank. NULL: the reason is in why[1024]. */
typedef struct PrGroupServer PrGroupServer;
PrGroupServer *pr_group_serve(uint32_t size, PrLaunch *at, char why[1024]);
void pr_group_serve_end(PrGroupServer *s); /* call it once the processes have ended */

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
