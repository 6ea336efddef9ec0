/* SPDX-License-Identifier: MIT
 * Lets a test that trains on the engines of one process do the same on MPI: compiled a second time
 * with ON_MPI, and run by mpirun, it carries out the runs that the world of processes is big enough
 * for, each on as many processes as the program has ranks.
 *
 *   engines_begin(scratch)     before anything is printed. scratch: NULL, or a name of a file to
 *                              write, which becomes another one in each process
 *   engines_case(nrank)        false: leave out this case, whose program has so many ranks (0: not
 *                              known yet). Asked once for each case, before it is compiled.
 *   engines_take(&p, &o)       false: this run of a case is not for this process, or not at all. On
 *                              MPI the program becomes the same as rows, until the next call
 *   engines_weight(run, row)   weights of a row, wherever they are; valid until the next call
 *   engines_end(failures)      the most of any process, on rank 0 of the world; the others end here
 *                              with 0: a process that ends otherwise makes mpirun kill rank 0 in
 *                              its last line
 *
 * Environment: ENGINES_SHARE=n takes every n-th case that the world is big enough for. */
#ifndef TEST_ENGINES_H
#define TEST_ENGINES_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipe_run.h"

enum { ENGINES_MOST = 1 << 16 }; /* bytes of the weights of a row */

static inline const void *engines_weight(PrRun *run, uint32_t row) {
  static char weight[ENGINES_MOST];
  if (pr_copy_weight(run, row, weight))
    memset(weight, 0xff, sizeof weight); /* no weights: NaN */
  return weight;
}

#ifdef ON_MPI
#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include "as_rows.h"
#include "pipe_mpi.h"

enum { engines_of_processes = 1 };

static uint32_t engines_world(void) {
  int size;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return (uint32_t)size;
}

/* Only rank 0 of the world writes results; the others to stderr. */
static void engines_begin(const char **scratch) {
  static char name[4096];
  int rank, threads;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &threads);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank > 0)
    dup2(open("/dev/null", O_WRONLY), 1);
  if (scratch) {
    snprintf(name, sizeof name, "%s.%d", *scratch, rank);
    *scratch = name;
  }
}

/* Environment: ENGINES_SYNC=1 sends synchronously. */
static bool engines_take(const PipeProgram **p, PrOptions *o) {
  static Arena arena;
  static MPI_Comm comm = MPI_COMM_NULL;
  static PrMpiOptions options;
  const char *sync = getenv("ENGINES_SYNC");
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (o->engine || (*p)->nrank > engines_world())
    return false;
  if (comm != MPI_COMM_NULL)
    MPI_Comm_free(&comm);
  MPI_Comm_split(MPI_COMM_WORLD, (uint32_t)rank < (*p)->nrank ? 0 : MPI_UNDEFINED, rank, &comm);
  options = (PrMpiOptions){.comm = &comm, .synchronous = sync && *sync == '1'};
  o->engine = &pr_mpi;
  o->engine_options = &options;
  arena_free(&arena);
  *p = as_rows(&arena, *p);
  return comm != MPI_COMM_NULL;
}

static int engines_end(int failures) {
  int all = 0, rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  fflush(stdout);
  MPI_Finalize();
  if (rank > 0)
    exit(0);
  return all;
}
#else
static void engines_begin(const char **scratch) { (void)scratch; }
static bool engines_take(const PipeProgram **p, PrOptions *o) { return *p && o; }
static int engines_end(int failures) { return failures; }
static uint32_t engines_world(void) { return UINT32_MAX; }
enum { engines_of_processes = 0 };
#endif

static bool engines_case(uint32_t nrank) {
  static uint32_t fit;
  const char *share = getenv("ENGINES_SHARE");
  return nrank <= engines_world() && fit++ % (share ? (uint32_t)atoi(share) : 1) == 0;
}

#endif
