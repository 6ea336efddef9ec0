/* SPDX-License-Identifier: MIT
 * The engine of MPI processes: the engine of processes (transport/processes), with MPI as its wire,
 * and how a run starts.
 *
 * A thread, the communicator, starts MPI_Isend and MPI_Irecv of the slots themselves and looks at
 * all that is under way in turn, so that transfers happen during callbacks. From pr_open to
 * pr_close it alone calls MPI, without blocking. It looks a few times, then sleeps between looks,
 * up to 100 us, and once it has waited for long up to 250 us: no core is kept busy by waiting.
 *
 * After a failure MPI is not finalized, and memory in which a message could arrive is kept. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mpi_engine.h"

/* Looking */

/* A job under way. */
typedef struct Under {
  ProcJob *j;
  MPI_Request *r; /* [j->n] */
  uint32_t left;  /* of these that are not over */
  uint64_t round;
} Under;

static bool is_fine(Mpi *m, int code, const char *what) {
  if (code == MPI_SUCCESS)
    return true;
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int len = 0;
  MPI_Error_string(code, text, &len);
  pr_fail(m->e.run, PR_E_LOST, "rank %u: %s: %s", m->e.run->here, what, text);
  return false;
}

/* MPI counts in int: the type and count of a longer message. */
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
    MPI_Type_free(&type); /* once the message is over */
  return is_fine(m, code, a->sends ? "MPI_Isend" : "MPI_Irecv");
}

/* Starts the messages of the next rounds, until there are some that have not come. False: the job
 * is over, or the run has failed. */
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

/* Looks at what is under way of a job. *moved: some has come. False as above. */
static bool look(Mpi *m, Under *u, bool *moved) {
  int n = 0;
  if (!is_fine(m, MPI_Testsome((int)u->j->n, u->r, &n, m->index, MPI_STATUSES_IGNORE),
               "MPI_Testsome"))
    return false;
  for (int i = 0; i < n; i++)
    proc_come(u->j, (uint32_t)m->index[i]);
  *moved = *moved || n > 0;
  u->left -= (uint32_t)n;
  return u->left > 0 || go_on(m, u);
}

/* ns to sleep after the i-th look in vain. Not for long, since a large message takes many looks:
 * MPI moves it on in them alone. */
static uint64_t nap(const Mpi *m, uint32_t i) {
  enum { FIRST_NS = 2000, NEXT_NS = 100000, LAST_NS = 250000, SHORT = 48 };
  if (i < m->looks)
    return 0;
  i -= m->looks;
  uint64_t ns = i < SHORT ? (uint64_t)FIRST_NS << i / 8 : NEXT_NS;
  if (i >= SHORT && m->e.nguest == 0) /* others may ask for their stashes at any time */
    ns += UINT64_C(1000) * (i - SHORT);
  return ns < LAST_NS ? ns : LAST_NS;
}

/* Until a job is begun, for at most so long; with nothing under way until one is. */
static void sleep_for(Mpi *m, uint64_t ns, bool idle) {
  const uint64_t end = pr_now() + ns;
  const struct timespec t = {(time_t)(end / PROC_SECOND), (long)(end % PROC_SECOND)};
  int late = 0;
  while (m->nbegun == 0 && !m->e.run->quit && !pr_failed(m->e.run) && !late && (idle || ns > 0))
    late = idle ? pthread_cond_wait(&m->changed, &m->lock)
                : pthread_cond_timedwait(&m->changed, &m->lock, &t);
}

static void *communicator(void *arg) {
  Mpi *m = arg;
  Under *under = m->under;
  uint32_t n = 0;
  for (uint32_t vain = 0; !m->e.run->quit && !pr_failed(m->e.run);) {
    bool moved = false;
    const uint32_t known = n;
    pthread_mutex_lock(&m->lock);
    sleep_for(m, nap(m, vain), n == 0);
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
    vain = moved || n > known ? 0 : vain + 1;
  }
  return NULL;
}

/* The wire */

static PrStatus open_wire(Proc *e) {
  Mpi *m = (Mpi *)e;
  size_t all = 0, most = 1;
  for (uint32_t i = 0; i < e->njob; i++) {
    all += e->job[i].most;
    most = e->job[i].most > most ? e->job[i].most : most;
  }
  m->begun = malloc(e->njob * sizeof *m->begun);
  m->under = malloc(e->njob * sizeof *m->under);
  m->request = malloc(all * sizeof *m->request);
  m->index = malloc(most * sizeof *m->index);
  if (!m->begun || !m->under || !m->request || !m->index)
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

const ProcWire mpi_wire = {.open = open_wire, .begin = begin, .wake = wake, .close = close_wire};
