/* SPDX-License-Identifier: MIT
 * pr_mpi: how the processes of a run come together, by MPI and then by a group. The store of the
 * group is that of pipe-run, else rank 0 serves one and tells the others where. */
#define _GNU_SOURCE /* sem_clockwait */
#include "group.h"
#include "mpi_engine.h"
#include "store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool we_initialized, never_finalize;

static void finalize(void) {
  int done;
  MPI_Finalized(&done);
  if (!done && !never_finalize)
    MPI_Finalize();
}

/* Other processes may never come; no call of MPI says so, or can be left, not even to end well. */
static void *watch_start(void *arg) {
  Mpi *m = arg;
  PrLaunch at;
  char why[200], rank[32] = "";
  struct timespec end;
  clock_gettime(CLOCK_MONOTONIC, &end);
  end.tv_sec += (time_t)m->start_s + 1;
  while (sem_clockwait(&m->started, CLOCK_MONOTONIC, &end)) {
    if (errno != ETIMEDOUT)
      continue;
    if (!pr_launch(&at, why) && *at.family)
      snprintf(rank, sizeof rank, "rank %u: ", at.rank);
    fprintf(stderr, "%sstart: not all processes came to pr_open within %g s\n", rank, m->start_s);
    _exit(pr_exit_status(PR_E_DEADLINE));
  }
  return NULL;
}

static PrStatus begin_start(Mpi *m) {
  const char *asked = getenv("PIPE_START_DEADLINE");
  char *end = "";
  m->start_s = asked ? strtod(asked, &end) : 600;
  if (*end || !(m->start_s > 0 && m->start_s <= 1e9))
    return pr_fail(m->e.run, PR_E_ARG, "PIPE_START_DEADLINE is '%.100s', not seconds", asked);
  sem_init(&m->started, 0, 0);
  m->starting = !pthread_create(&m->starter, NULL, watch_start, m);
  return m->starting ? PR_OK : pr_fail(m->e.run, PR_E_MEMORY, "no thread for the start");
}

/* All have come, or this run has failed. */
static void end_start(Mpi *m) {
  if (!m->starting)
    return;
  sem_post(&m->started);
  pthread_join(m->starter, NULL);
  m->starting = false;
}

static PrStatus join_mpi(Mpi *m) {
  PrRun *run = m->e.run;
  const PrMpiOptions *o = run->o.engine_options;
  int is, threads, size = 0, rank = 0, local = 1, found, *limit;
  MPI_Initialized(&is);
  if (!is) {
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &threads))
      return pr_fail(run, PR_E_LOST, "MPI cannot be initialized");
    we_initialized = true;
    atexit(finalize);
  }
  MPI_Finalized(&is);
  if (is)
    return pr_fail(run, PR_E_ARG, "MPI has been finalized");
  MPI_Query_thread(&threads);
  if (threads < MPI_THREAD_SERIALIZED)
    return pr_fail(run, PR_E_ARG,
                   "MPI was initialized without MPI_THREAD_SERIALIZED, or has it not: the engine "
                   "calls it from several threads");
  if (MPI_Comm_dup(o && o->comm ? *(const MPI_Comm *)o->comm : MPI_COMM_WORLD, &m->comm))
    return pr_fail(run, PR_E_LOST, "MPI_Comm_dup fails");
  MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
  MPI_Comm_size(m->comm, &size);
  MPI_Comm_rank(m->comm, &rank);
  MPI_Comm_get_attr(m->comm, MPI_TAG_UB, &limit, &found);
  MPI_Comm host;
  if (!MPI_Comm_split_type(m->comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host)) {
    MPI_Comm_size(host, &local);
    MPI_Comm_free(&host);
  }
  run->nprocess = (uint32_t)size;
  run->here = (uint32_t)rank;
  m->e.most_tag = found ? (uint32_t)*limit : 32767;
  m->e.buffers = true;
  m->e.one_clock = local == size;
  m->e.spin = sysconf(_SC_NPROCESSORS_ONLN) >= 2L * local;
  m->looks = m->e.spin ? 200 : 4;
  return PR_OK;
}

/* What rank 0 tells the others of the store. */
typedef struct Meet {
  int status; /* PrStatus */
  bool of_rank_0;
  char addr[STORE_ADDR], key[STORE_KEY], why[STORE_TEXT];
} Meet;

/* Where the store is: of pipe-run, for the first run of the whole world; else this process serves
 * one. */
static PrGroupServer *choose(const Mpi *m, Meet *at) {
  static bool taken;
  const PrMpiOptions *o = m->e.run->o.engine_options;
  const char *given = getenv("PIPE_STORE"), *key = getenv("PIPE_STORE_KEY");
  char why[STORE_TEXT];
  PrGroupServer *server = NULL;
  PrLaunch launch = {.family = ""};
  if (given && !taken && (!o || !o->comm)) {
    taken = true;
    at->status = store_is_address(given, why) ? PR_OK : PR_E_ARG;
    snprintf(launch.store, sizeof launch.store, "%s", given);
    snprintf(launch.key, sizeof launch.key, "%s", key ? key : "");
    if (at->status)
      snprintf(at->why, sizeof at->why, "PIPE_STORE: %.900s", why);
  } else {
    server = group_serve(m->e.run->nprocess, m->e.one_clock, &launch, at->why);
    at->of_rank_0 = true;
    at->status = server ? PR_OK : PR_E_LOST;
  }
  snprintf(at->addr, sizeof at->addr, "%s", launch.store);
  snprintf(at->key, sizeof at->key, "%s", launch.key);
  return server;
}

static PrStatus join_group(Mpi *m) {
  PrRun *run = m->e.run;
  const PipeProgram *p = run->p;
  const bool known = p && p->magic == PIPE_MAGIC;
  const bool named = known && p->abi == PIPE_ABI && p->name && p->params;
  Meet meet = {.status = PR_OK};
  PrGroupServer *server = run->here == 0 ? choose(m, &meet) : NULL;
  MPI_Bcast(&meet, sizeof meet, MPI_BYTE, 0, m->comm);
  if (meet.status)
    return pr_fail(run, (PrStatus)meet.status, "rank 0 has no store: %.900s", meet.why);
  char params[80], why[STORE_TEXT] = "";
  snprintf(params, sizeof params, "%.60s, ABI %u", named ? p->params : "", known ? p->abi : 0);
  const PipeProgram shown = {
      .hash = known ? p->hash : 0, .name = named ? p->name : "", .params = params};
  PrLaunch at = {.family = "MPI", .rank = run->here, .size = run->nprocess};
  snprintf(at.store, sizeof at.store, "%s", meet.addr);
  snprintf(at.key, sizeof at.key, "%s", meet.key);
  PrStatus st = group_join(&m->group, &shown, &at, server, meet.of_rank_0, m->start_s, why);
  m->e.g = m->group;
  return st ? pr_fail(run, st, "%.1000s", why) : PR_OK;
}

static PrStatus mpi_join(PrRun *run) {
  const PrMpiOptions *o = run->o.engine_options;
  Mpi *m = run->of_engine = calloc(1, sizeof *m);
  if (!m)
    return pr_fail(run, PR_E_MEMORY, "no memory for the engine");
  m->e = (Proc){.run = run, .wire = &mpi_wire};
  m->comm = MPI_COMM_NULL;
  m->synchronous = o && o->synchronous;
  pthread_mutex_init(&m->lock, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&m->changed, &attr);
  pthread_condattr_destroy(&attr);
  PrStatus st;
  return (st = begin_start(m)) || (st = join_mpi(m)) ? st : join_group(m);
}

static PrStatus mpi_open(PrRun *run) {
  PrStatus st = proc_open(run);
  end_start(run->of_engine);
  return st;
}

static void mpi_close(PrRun *run) {
  Mpi *m = run->of_engine;
  if (!m)
    return;
  end_start(m);
  const bool all = proc_close(&m->e);
  pr_group_close(m->group);
  never_finalize = never_finalize || !all; /* messages are under way, perhaps to nobody */
  if (!all)
    return;
  if (m->comm != MPI_COMM_NULL)
    MPI_Comm_free(&m->comm);
  pthread_cond_destroy(&m->changed);
  pthread_mutex_destroy(&m->lock);
  free(m->begun);
  free(m->under);
  free(m->request);
  free(m->index);
  free(m);
}

const PrEngine pr_mpi = {
    .name = "MPI", .join = mpi_join, .open = mpi_open, .close = mpi_close, PROC_ENGINE};
