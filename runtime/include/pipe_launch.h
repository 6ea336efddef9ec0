/* SPDX-License-Identifier: MIT
 * Finds the rank of this process from the environment that a launcher sets. The first of these
 * families whose rank is set counts; all values come from it, and pr_launch refuses a family
 * without its other values:
 *
 *                    rank                  size                                  rank on the host
 *   pipe-run         PIPE_RANK             PIPE_SIZE                             PIPE_LOCAL_RANK
 *   torchrun         RANK                  WORLD_SIZE                            LOCAL_RANK
 *   Open MPI         OMPI_COMM_WORLD_RANK  OMPI_COMM_WORLD_SIZE    OMPI_COMM_WORLD_LOCAL_RANK
 *   PMIx             PMIX_RANK             SLURM_STEP_NUM_TASKS or SLURM_NTASKS  SLURM_LOCALID
 *   MPICH (PMI)      PMI_RANK              PMI_SIZE                              MPI_LOCALRANKID
 *   Slurm            SLURM_PROCID          SLURM_STEP_NUM_TASKS or SLURM_NTASKS  SLURM_LOCALID
 *
 * Slurm is last because a batch script without srun sees rank 0 everywhere. The rank on the host is
 * PIPE_NONE if the family does not set it. Launchers nest: the families below the one that counts
 * may have any values. A family above it has no rank; if its other variables are set, they must
 * agree with the values found, or pr_launch refuses them.
 *
 * Store. The processes meet at a store, whose address is
 * - PIPE_STORE=host:port, which pipe-run sets; else
 * - MASTER_ADDR and one of the four ports after MASTER_PORT (torchrun itself uses MASTER_PORT, at
 *   most 65534): the first that rank 0 finds free. The others find it by the key; else
 * - in a job of Slurm the first host of SLURM_STEP_NODELIST (under mpirun of Open MPI:
 *   SLURM_JOB_NODELIST) and a port computed from SLURM_JOB_ID and SLURM_STEP_ID; else
 * - "" (unknown).
 *
 * Rank 0 listens at that port on all its addresses, or on PIPE_STORE_BIND.
 *
 * Key. PIPE_STORE_KEY shows that a process belongs to the run: a random text, shared by its
 * processes and secret; the first 63 characters count. pipe-run makes one. Under other launchers
 * set it yourself: PIPE_STORE_KEY=$(openssl rand -hex 16). */
#ifndef PIPE_LAUNCH_H
#define PIPE_LAUNCH_H

#include "pipe_run.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct PrLaunch {
  const char *family; /* "torchrun"; "" if no family is set: rank 0 of 1 */
  uint32_t rank, size, local_rank;
  char store[280]; /* "host:port", or "[IPv6 address]:port" */
  char key[64];    /* key of the store; "" if none is set */
  uint32_t spare;  /* the store may be at so many ports after that of `store` instead */
} PrLaunch;

/* Fills in *out. PR_OK, or PR_E_ARG with the reason in why[200]. */
PrStatus pr_launch(PrLaunch *out, char why[200]);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
