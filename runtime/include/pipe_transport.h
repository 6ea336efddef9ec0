/* SPDX-License-Identifier: MIT
 * The engine of processes, one rank in each, whose messages the program itself carries: with the
 * process groups of PyTorch, with UCX, or with another library.
 *
 *   PrTransport transport = {.group = group, .carry = carry};      (pr_group_open: pipe_group.h)
 *   PrOptions options = {.engine = &pr_transport, .engine_options = &transport};
 *
 * Rank r of the program is rank r of the group. All processes call pr_open, pr_steps, pr_close,
 * pr_checkpoint, pr_resume, pr_load_weights and pr_copy_weight alike. Results are those of threads,
 * bit for bit. If a rank fails, its process ends or its step takes too long, all ranks fail with
 * one text. Tensors are in the memory of the process.
 *
 * The ranks of a REDUCE or TIE share the work as in pipe_mpi.h, with the same extra memory. */
#ifndef PIPE_TRANSPORT_H
#define PIPE_TRANSPORT_H

#include "pipe_group.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* One side of a message: `bytes` bytes at `data`, which stay in place until the message is over, to
 * or from rank `peer`. It matches the other side with the same tag. The messages of one tag from
 * one rank to another have the same order on both. */
typedef struct PrMessage {
  uint32_t peer, tag; /* tag < 2^31 */
  int sends; /* 1: this side sends; 0: it receives */
  void *data;
  uint64_t bytes; /* > 0 */
} PrMessage;

/* PrOptions.engine_options; must live until pr_close. */
typedef struct PrTransport {
  const PrGroup *group; /* of the processes of the run */
  void *arg;
  /* Starts n messages, in any order, and returns when all are over; no message may wait for another
   * of them to end. Returns 0, or another number: the run fails. Several threads call it at once,
   * with different messages. After the run has failed, it should return soon. If it does not,
   * pr_close leaves its thread and the memory in which a message could still arrive; `arg` must
   * then stay valid, too. */
  int (*carry)(void *arg, const PrMessage *m, uint32_t n);
  /* Explains the `carry` that just failed on this thread. May be NULL and may return NULL: no
   * explanation. */
  const char *(*why)(void *arg);
} PrTransport;

extern const PrEngine pr_transport;

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
