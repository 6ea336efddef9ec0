/* SPDX-License-Identifier: MIT
 * pr_mpi: the engine of processes (transport/processes) with MPI as its wire.
 *
 * A thread, the communicator, starts MPI_Isend and MPI_Irecv of the slots and tests all requests in
 * turn, so transfers progress during callbacks. From pr_open to pr_close only this thread calls
 * MPI, without blocking. It tests a few times, then sleeps between tests: up to 100 us, and after a
 * long wait up to 250 us, so that waiting keeps no core busy.
 *
 * The processes meet by MPI and then in a group. The store of the group is the one of pipe-run,
 * else rank 0 serves one and broadcasts its address.
 *
 * After a failure the engine does not finalize MPI, and keeps memory in which a message could
 * arrive. */
#define _GNU_SOURCE /* sem_clockwait */
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "group.h"
#include "pipe_mpi.h"
#include "processes.h"
#include "store.h"

/* A job that is under way. */
typedef struct Under {
  ProcJob *j;
  MPI_Request *r; /* [j->n] */
  uint32_t left;  /* requests that are not complete */
  uint64_t round;
} Under;

typedef struct Mpi {
  Proc e;        /* first */
  MPI_Comm comm; /* a duplicate: messages of the program do not match ours */
  bool synchronous;
  uint32_t looks; /* tests of all requests before the thread sleeps */
  /* Of the communicator. */
  pthread_mutex_t lock;
  pthread_cond_t changed;
  ProcJob **begun; /* [nbegun] jobs that it has not seen yet; under lock */
  uint32_t nbegun;
  Under *under;         /* only the communicator uses it */
  MPI_Request *request; /* memory of Under.r, for all jobs */
  pthread_t communicator;
  bool has_communicator;
  /* The starter ends this process if the others do not come to pr_open within start_s seconds. */
  pthread_t starter;
  sem_t started;
  bool starting;
  double start_s;
  PrGroup *group;
} Mpi;

/* Looking */

static bool is_fine(Mpi *m, int code, const char *what) {
  if (code == MPI_SUCCESS)
    return true;
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int len = 0;
  MPI_Error_string(code, text, &len);
  pr_fail(m->e.run, PR_E_LOST, "rank %u: %s: %s", m->e.run->here, what, text);
  return false;
}

/* Returns the count of a message, and its type: MPI counts in int. */
static int make_type(uint64_t bytes, MPI_Datatype *type) {
  enum { BLOCK = 1 << 20 };
  if (bytes <= INT_MAX)
    return (int)bytes;
  MPI_Datatype part[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
  int len[2] = {(int)(bytes / BLOCK), (int)(bytes % BLOCK)};
  MPI_Aint at[2] = {0, (MPI_Aint)(bytes / BLOCK * BLOCK)};
  MPI_Type_contiguous(BLOCK, MPI_BYTE, &part[0]);
  MPI_Type_create_struct(2, len, at, part, type);
  MPI_Type_commit(type);
  MPI_Type_free(&part[0]);
  return 1;
}

static bool start_message(Mpi *m, const PrMessage *a, MPI_Request *r) {
  MPI_Datatype type = MPI_BYTE;
  const int n = make_type(a->bytes, &type), peer = (int)a->peer, tag = (int)a->tag;
  int code = !a->sends                        ? MPI_Irecv(a->data, n, type, peer, tag, m->comm, r)
             : m->synchronous && a->bytes > 0 ? MPI_Issend(a->data, n, type, peer, tag, m->comm, r)
                                              : MPI_Isend(a->data, n, type, peer, tag, m->comm, r);
  if (type != MPI_BYTE)
    MPI_Type_free(&type); /* takes effect when the message is complete */
  return is_fine(m, code, a->sends ? "MPI_Isend" : "MPI_Irecv");
}

/* Starts the messages of the next round that has any. False: the job is over, or the run has
 * failed. */
static bool go_on(Mpi *m, Under *u) {
  ProcJob *j = u->j;
  do {
    if (!proc_next(j, u->round++))
      return false;
    for (uint32_t i = 0; i < j->n; i++)
      if (!start_message(m, &j->message[i], &u->r[i]))
        return false;
    u->left = j->n;
  } while (u->left == 0);
  return true;
}

/* Tests the requests of a job. *moved: set if one has completed. False as above. MPI_Test tests
 * again after MPI has made progress; MPI_Testsome does not. */
static bool look(Mpi *m, Under *u, bool *moved) {
  ProcJob *j = u->j;
  for (uint32_t i = 0; i < j->n; i++) {
    int done = 0;
    if (u->r[i] == MPI_REQUEST_NULL)
      continue;
    if (!is_fine(m, MPI_Test(&u->r[i], &done, MPI_STATUS_IGNORE), "MPI_Test"))
      return false;
    if (!done && !j->each)
      break;
    if (!done)
      continue;
    proc_come(j, i);
    *moved = true;
    u->left--;
  }
  return u->left > 0 || go_on(m, u);
}

/* Sleeps after the i-th test in vain. Not for long: a large message takes many tests, because MPI
 * makes progress only in them. */
static void back_off(const Mpi *m, uint32_t i) {
  enum { FIRST_NS = 2000, NEXT_NS = 100000, LAST_NS = 250000, SHORT = 48 };
  if (i < m->looks)
    return;
  i -= m->looks;
  uint64_t ns = i < SHORT ? (uint64_t)FIRST_NS << i / 8 : NEXT_NS;
  if (i >= SHORT && m->e.nguest == 0) /* guests may ask for their stashes at any time */
    ns += UINT64_C(1000) * (i - SHORT);
  pr_nap(ns < LAST_NS ? ns : LAST_NS);
}

/* Waits until a job begins. */
static void rest(Mpi *m) {
  while (m->nbegun == 0 && !m->e.run->quit && !pr_failed(m->e.run))
    pthread_cond_wait(&m->changed, &m->lock);
}

static void *communicator(void *arg) {
  Mpi *m = arg;
  Under *under = m->under;
  uint32_t n = 0;
  for (uint32_t vain = 0; !m->e.run->quit && !pr_failed(m->e.run);) {
    bool moved = false;
    const uint32_t known = n;
    back_off(m, vain);
    pthread_mutex_lock(&m->lock);
    if (n == 0)
      rest(m);
    for (; m->nbegun > 0; n++)
      under[n] = (Under){.j = m->begun[--m->nbegun]};
    pthread_mutex_unlock(&m->lock);
    for (uint32_t i = known; i < n; i++)
      under[i].r = under[i].j->of_wire;
    for (uint32_t i = 0; i < n;) {
      bool goes = under[i].round == 0 ? go_on(m, &under[i]) : look(m, &under[i], &moved);
      if (goes)
        i++;
      else
        under[i] = under[--n];
    }
    vain = n == 0 || moved || n > known ? 0 : vain + 1;
  }
  return NULL;
}

/* The wire */

static PrStatus open_wire(Proc *e) {
  Mpi *m = (Mpi *)e;
  size_t all = 0;
  for (uint32_t i = 0; i < e->njob; i++)
    all += e->job[i].most;
  m->begun = malloc(e->njob * sizeof *m->begun);
  m->under = malloc(e->njob * sizeof *m->under);
  m->request = malloc(all * sizeof *m->request);
  if (!m->begun || !m->under || !m->request)
    return pr_fail(e->run, PR_E_MEMORY, "no memory for %zu messages at once", all);
  MPI_Request *r = m->request;
  for (uint32_t i = 0; i < e->njob; r += e->job[i++].most)
    e->job[i].of_wire = r;
  int err = pthread_create(&m->communicator, NULL, communicator, m);
  m->has_communicator = !err;
  return err ? pr_fail(e->run, PR_E_MEMORY, "no thread for rank %u: %s", e->run->here,
                       strerror(err))
             : PR_OK;
}

static void begin(ProcJob *j) {
  Mpi *m = (Mpi *)j->e;
  pthread_mutex_lock(&m->lock);
  m->begun[m->nbegun++] = j;
  pthread_cond_signal(&m->changed);
  pthread_mutex_unlock(&m->lock);
}

static void wake(Proc *e) {
  Mpi *m = (Mpi *)e;
  pthread_mutex_lock(&m->lock);
  pthread_cond_signal(&m->changed);
  pthread_mutex_unlock(&m->lock);
}

static bool close_wire(Proc *e) {
  Mpi *m = (Mpi *)e;
  wake(e); /* PrRun.quit is set */
  if (m->has_communicator)
    pthread_join(m->communicator, NULL);
  return !m->has_communicator || !pr_failed(e->run);
}

static const ProcWire mpi_wire = {
    .open = open_wire, .begin = begin, .wake = wake, .close = close_wire};

/* The start */

static bool we_initialized, never_finalize;

static void finalize(void) {
  int done;
  MPI_Finalized(&done);
  if (!done && !never_finalize)
    MPI_Finalize();
}

/* Exits if other processes do not come: no call of MPI reports that, or can be left. */
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

/* All processes have come, or this run has failed. */
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
    return pr_fail(run, PR_E_ARG, "MPI must be initialized with MPI_THREAD_SERIALIZED or more");
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

/* Rank 0 broadcasts where the store is. */
typedef struct Meet {
  int status; /* PrStatus */
  bool of_rank_0;
  char addr[STORE_ADDR], key[STORE_KEY], why[STORE_TEXT];
} Meet;

/* Finds the store: the one of pipe-run, for the first run on MPI_COMM_WORLD; else this process
 * serves one. */
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
  /* All waits for other ranks have deadlines of their own: the start, a step, a checkpoint. */
  PrStatus st = group_join(&m->group, &shown, &at, server, meet.of_rank_0, m->start_s, 1e9, why);
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
  pthread_cond_init(&m->changed, NULL);
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
  const bool all = proc_close(&m->e); /* no message is under way */
  const int st = atomic_load(&run->status);
  const bool whole = all && st != PR_E_LOST && st != PR_E_DEADLINE; /* no rank is lost */
  pr_group_close(m->group);
  never_finalize = never_finalize || !whole;
  if (!all)
    return;
  if (m->comm != MPI_COMM_NULL && whole)
    MPI_Comm_free(&m->comm);
  pthread_cond_destroy(&m->changed);
  pthread_mutex_destroy(&m->lock);
  free(m->begun);
  free(m->under);
  free(m->request);
  free(m);
}

const PrEngine pr_mpi = {
    .name = "MPI", .join = mpi_join, .open = mpi_open, .close = mpi_close, PROC_ENGINE};
