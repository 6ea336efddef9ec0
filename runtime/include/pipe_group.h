/* SPDX-License-Identifier: MIT
 * The processes of a run, one rank each, and what they tell one another besides what carries their
 * tensors: for pipe_transport.h and pipe_cuda.h. pr_group_open makes one over TCP, from what a
 * launcher has left in the environment (pipe_launch.h); a program may fill one in itself. */
#ifndef PIPE_GROUP_H
#define PIPE_GROUP_H

#include "pipe_launch.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum {
  PR_GROUP_PLACE = 2048,     /* bytes of what a rank says of where it is */
  /* that others are waited for in `share`, and by NCCL in pr_open: one may load a model */
  PR_GROUP_PATIENCE_S = 600
};

/* The functions return 0, or another number if the others cannot be reached any more. */
typedef struct PrGroup {
  uint32_t rank, size;
  /* `data` of rank `from` to all; all call it alike, and wait for `from`, not for ever: who gives
   * up says so by a number, too. */
  int (*share)(void *arg, uint32_t from, void *data, uint64_t bytes);
  /* Tells the others that this rank has failed with a status other than PR_OK, without waiting for
   * them. It waits for nobody any more: `share` and `gather` end. */
  void (*tell)(void *arg, PrStatus st, const char *text);
  /* 1: another rank has told so, or nobody can tell any more; its status is in *st, the text for it
   * in text[n]. Never waits. 2, with `place`: a step takes too long, or a rank has gone, and all
   * have been asked where they are. */
  int (*heard)(void *arg, PrStatus *st, char *text, uint64_t n);
  void *arg;
  /* So that a report names what was first, and not who noticed; all three, or NULL. From now on
   * until place is NULL the group may ask, on any thread: place(of, to) writes where this rank is,
   * and returns how many bytes. */
  void (*watch)(void *arg, uint32_t (*place)(void *of, char to[PR_GROUP_PLACE]), void *of);
  /* The step of this rank takes too long. Never waits: heard says 2 soon. */
  void (*late)(void *arg);
  /* Then: where rank r was, the same on all ranks; 1, 0: it did not answer, -1: it has gone. */
  int (*place)(void *arg, uint32_t r, char to[PR_GROUP_PLACE]);
  /* `mine` of each rank to all[size * bytes] on rank 0, which waits for them as in `share`; all
   * call it alike, and the others wait for nobody. Returns 0, or 1 + the rank that has not come. */
  uint32_t (*gather)(void *arg, const void *mine, uint64_t bytes, void *all);
} PrGroup;

/* A group over a store at at->store (NULL `at`: what pr_launch says), which rank 0 serves unless
 * pipe-run has started the processes. Waits up to timeout_s for all ranks; one that has another
 * program is refused on all of them, with both hashes, by PR_E_ARG. PR_E_ARG or PR_E_LOST: the
 * reason is in why[1024]. */
PrStatus pr_group_open(PrGroup **out, const PipeProgram *p, const PrLaunch *at, double timeout_s,
                       char why[1024]);
void pr_group_close(PrGroup *g); /* NULL is fine */

/* For who starts the processes itself: serves their store on this machine. *at has all that they
 * need for pr_group_open but their ranks. NULL: the reason is in why[1024]. */
typedef struct PrGroupServer PrGroupServer;
PrGroupServer *pr_group_serve(uint32_t size, PrLaunch *at, char why[1024]);
void pr_group_serve_end(PrGroupServer *s); /* once they have ended */

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
