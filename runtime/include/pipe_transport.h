/* SPDX-License-Identifier: MIT
 * The engine of processes, one rank in each, whose messages the program carries itself: by the
 * process groups of PyTorch, by UCX, by what it has.
 *
 *   PrTransport transport = {.group = group, .carry = carry};      (pr_group_open: pipe_group.h)
 *   PrOptions options = {.engine = &pr_transport, .engine_options = &transport};
 *
 * Rank r of the program is rank r of the group. All processes call pr_open, pr_steps and pr_close
 * alike, and with it pr_checkpoint, pr_resume, pr_load_weights and pr_copy_weight. The bits are
 * those of threads. A rank that fails, whose process ends, or whose step takes too long fails all,
 * with one text. Tensors are in the memory of the process.
 *
 * It refuses copies that take turns. The ranks of a REDUCE or TIE share the work, as those of
 * pipe_mpi.h, and with the same memory. */
#ifndef PIPE_TRANSPORT_H
#define PIPE_TRANSPORT_H

#include "pipe_group.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* One side of a message: `bytes` at `data`, which stay where they are until it is over, to or from
 * rank `peer`. It meets the other side of the same tag. The messages of one tag from one rank to
 * another are in the same order on both. */
typedef struct PrMessage {
  uint32_t peer, tag; /* tag < 2^31 */
  int sends;
  void *data;
  uint64_t bytes; /* > 0 */
} PrMessage;

/* `engine_options`, which lives until pr_close. */
typedef struct PrTransport {
  const PrGroup *group; /* the same */
  void *arg;
  /* Begins n messages, in any order, and returns when all are over: none may wait for another one
   * of them to be over. Returns 0, or another number: the run fails. Called from several threads at
   * once, each with other messages. When the run has failed it should return soon; if it does not,
   * pr_close leaves its thread, and the memory in which a message could arrive, as they are; then
   * `arg` stays, too. */
  int (*carry)(void *arg, const PrMessage *m, uint32_t n);
  /* What `carry`, which has just failed on this thread, has to say; NULL, here or returned:
   * nothing. */
  const char *(*why)(void *arg);
} PrTransport;

extern const PrEngine pr_transport;

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
