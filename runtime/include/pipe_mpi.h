/* SPDX-License-Identifier: MIT
 * The engine of MPI processes, one rank in each, in the library piperun_mpi (pipe::piperun_mpi).
 *
 *   PrOptions options = {.engine = &pr_mpi};            mpirun -np 4 ./train
 *
 * Rank r of the program is rank r of the communicator, which must have as many processes as the
 * program has ranks. All processes call pr_open, pr_steps and pr_copy_weight alike. If a process
 * has another program or another number of ranks, all refuse to start and name both. Bits, statuses
 * and traces are those of threads; every process gets the whole trace, on the clock of rank 0.
 *
 * pr_open initializes MPI unless the program has, with at least MPI_THREAD_SERIALIZED; MPI is then
 * finalized when the program exits. From pr_open to pr_close a thread of the engine calls MPI. The
 * program may call MPI meanwhile only in on_step and between calls of pr_steps, and only with
 * MPI_THREAD_MULTIPLE.
 *
 * A process that waits in pr_open longer than PIPE_START_DEADLINE seconds (default 600) for the
 * others says so on stderr and exits with 75: MPI cannot tell that another process will never come,
 * and cannot end without it.
 *
 * Open MPI refuses to run as root (unless OMPI_ALLOW_RUN_AS_ROOT=1 and
 * OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1) and to run more processes than cores (unless mpirun
 * --oversubscribe; add OMPI_MCA_mpi_yield_when_idle=1 while it starts up).
 *
 * The ranks of a REDUCE or TIE share the work: each calls `reduce` or `tie` of the model with
 * pieces of its own gradients and copies of the same pieces of the others. For the copies the
 * engine takes at most 4 MiB per COMM stream with sums, whatever the sizes and number of gradients;
 * pr_bytes does not count them. */
#ifndef PIPE_MPI_H
#define PIPE_MPI_H

#include "pipe_run.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

extern const PrEngine pr_mpi;

/* PrOptions.engine_options; all zero is the default. */
typedef struct PrMpiOptions {
  const void *comm; /* const MPI_Comm *: the processes that take part; NULL: MPI_COMM_WORLD */
  /* 1: no send completes before its receive has begun (MPI_Issend), whatever its size: every
   * transfer is then a rendezvous, as in the proofs */
  int synchronous;
} PrMpiOptions;

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
