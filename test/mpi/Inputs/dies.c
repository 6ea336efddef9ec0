/* SPDX-License-Identifier: MIT
 * Preloaded: rank 1 dies in pr_open where it reads PIPE_DEADLINE, after all ranks have met. A call
 * of MPI that waits for all ranks is told of on stderr: MPI_Finalize, and MPI_Comm_free but the
 * first, which is of another communicator than that of the run. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int MPI_Finalize(void);
int PMPI_Finalize(void);
int MPI_Comm_free(void *comm);
int PMPI_Comm_free(void *comm);

char *getenv(const char *name) {
  char *(*real)(const char *) = (char *(*)(const char *))dlsym(RTLD_NEXT, "getenv");
  const char *rank = strcmp(name, "PIPE_DEADLINE") ? NULL : real("OMPI_COMM_WORLD_RANK");
  if (rank && strcmp(rank, "1") == 0)
    raise(SIGKILL);
  return real(name);
}

int MPI_Finalize(void) {
  fprintf(stderr, "MPI_Finalize\n");
  return PMPI_Finalize();
}

int MPI_Comm_free(void *comm) {
  static int n;
  if (n++ > 0)
    fprintf(stderr, "MPI_Comm_free\n");
  return PMPI_Comm_free(comm);
}
