/* SPDX-License-Identifier: MIT
 * Which process of how many is this? Read from the environment that a launcher leaves, the first of
 * these families whose rank is set; all values are of that family, and one without its other values
 * is refused:
 *
 *                    rank                  size                                  rank on the host
 *   pipe-run         PIPE_RANK             PIPE_SIZE                             PIPE_LOCAL_RANK
 *   torchrun         RANK                  WORLD_SIZE                            LOCAL_RANK
 *   Open MPI         OMPI_COMM_WORLD_RANK  OMPI_COMM_WORLD_SIZE    OMPI_COMM_WORLD_LOCAL_RANK
 *   PMIx             PMIX_RANK             SLURM_STEP_NUM_TASKS or SLURM_NTASKS  SLURM_LOCALID
 *   MPICH (PMI)      PMI_RANK              PMI_SIZE                              MPI_LOCALRANKID
 *   Slurm            SLURM_PROCID          SLURM_STEP_NUM_TASKS or SLURM_NTASKS  SLURM_LOCALID
 *
 * Slurm comes last: in a batch script that does not use srun its rank is 0 everywhere. The rank on
 * the host is PIPE_NONE where the family does not tell it. A launcher may run under another one, so
 * those further down may say what they like; one further up without its rank is refused, unless
 * what is set of it is the same.
 *
 * Where the processes meet, the address of a store: PIPE_STORE=host:port, which pipe-run sets; or
 * MASTER_ADDR and MASTER_PORT + 1 (torchrun has MASTER_PORT for itself; at most 65534); or, in a
 * job of Slurm, the first host of SLURM_STEP_NODELIST (under Open MPI's mpirun of
 * SLURM_JOB_NODELIST) and a port from SLURM_JOB_ID and SLURM_STEP_ID. "" if nothing tells. Rank 0
 * listens at that port on all its addresses, or at PIPE_STORE_BIND.
 *
 * What shows that a process is of the run: PIPE_STORE_KEY, a random text that all have and nobody
 * else, of which the first 63 characters count. pipe-run makes one; under other launchers set it
 * yourself, as by PIPE_STORE_KEY=$(openssl rand -hex 16). */
#ifndef PIPE_LAUNCH_H
#define PIPE_LAUNCH_H

#include "pipe_run.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct PrLaunch {
  const char *family; /* "torchrun"; "" if no family is there: rank 0 of 1 */
  uint32_t rank, size, local_rank;
  char store[280]; /* "host:port", or "[IPv6 address]:port" */
  char key[64];    /* of the store; "" if nothing tells */
} PrLaunch;

/* PR_OK, or PR_E_ARG with what is wrong in why[200]. */
PrStatus pr_launch(PrLaunch *out, char why[200]);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
