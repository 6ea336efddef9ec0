/* SPDX-License-Identifier: MIT
 * The engine of MPI processes, one rank in each; of the library piperun_mpi (pipe::piperun_mpi).
 *
 *   PrOptions options = {.engine = &pr_mpi};            mpirun -np 4 ./train
 *
 * Rank r of the program is rank r of the communicator, which must have as many processes as the
 * program has ranks. All of them call pr_open, pr_steps and pr_copy_weight alike; a process whose
 * program or number of ranks is another is refused by all, with both named. What holds for threads
 * holds here: same bits, same status, same trace, which every process gets whole, on the clock of
 * rank 0.
 *
 * MPI is initialized by pr_open unless it is already, with MPI_THREAD_SERIALIZED at least, and then
 * finalized when the program exits. A thread of the engine calls it from pr_open to pr_close;
 * meanwhile the program may not, but in on_step and between calls of pr_steps if it has
 * MPI_THREAD_MULTIPLE.
 *
 * A process that waits in pr_open for others longer than PIPE_START_DEADLINE seconds (600) says so
 * on stderr and exits with 75: MPI can neither tell that another process will never come, nor end
 * without it.
 *
 * Open MPI refuses root (OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1) and more
 * processes than cores (mpirun --oversubscribe, and OMPI_MCA_mpi_yield_when_idle=1 while it starts
 * up) unless told otherwise.
 *
 * The ranks of a REDUCE or TIE share the work: each calls `reduce` or `tie` of the model with
 * pieces of its own gradients and copies of pieces of the others. For these copies the engine takes
 * at most 4 MiB for each COMM stream with sums, whatever the sizes and numbers of gradients;
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
  const void *comm; /* const MPI_Comm *, of the processes that take part; NULL: MPI_COMM_WORLD */
  /* 1: no send completes before its receive has begun (MPI_Issend), whatever the size: a transfer
   * is then a rendezvous as the proofs assume */
  int synchronous;
} PrMpiOptions;

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
