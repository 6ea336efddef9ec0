/* SPDX-License-Identifier: MIT
 * What the two files of the MPI engine share; not installed. engine_mpi.c is the wire, mpi_start.c
 * how a run starts and ends. */
#ifndef PIPE_MPI_ENGINE_H
#define PIPE_MPI_ENGINE_H

#include <mpi.h>

#include "pipe_mpi.h"
#include "processes.h"

typedef struct Mpi {
  Proc e; /* first */
  MPI_Comm comm; /* of our own: messages of others do not meet ours */
  bool synchronous;
  uint32_t looks; /* at what is under way, before sleeping */
  /* The communicator. */
  pthread_mutex_t lock;
  pthread_cond_t changed;
  ProcJob **begun; /* [nbegun] what it has not seen yet; of lock */
  uint32_t nbegun;
  struct Under *under; /* its own */
  MPI_Request *request; /* of all jobs */
  int *index;
  pthread_t communicator;
  bool has_communicator;
  /* Ends this process if others do not come to pr_open within start_s seconds: `starting`. */
  pthread_t starter;
  sem_t started;
  bool starting;
  double start_s;
  PrGroup *group;
} Mpi;

extern const ProcWire mpi_wire;

#endif
