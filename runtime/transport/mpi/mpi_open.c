/* SPDX-License-Identifier: MIT
 * Opening and closing a run of the MPI engine: that all processes mean the same program, tags,
 * copies of other ranks, and one clock. */
#define _GNU_SOURCE /* sem_clockwait */
#include "engine_mpi.h"
#include "pipe_launch.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 1 << 20 }; /* bytes of a unit of messages that are longer than INT_MAX */

static bool we_initialized, never_finalize;

static void finalize(void) {
  int done;
  MPI_Finalized(&done);
  if (!done && !never_finalize)
    MPI_Finalize();
}

static bool make_big_type(Mpi *m, uint64_t bytes) {
  MPI_Datatype known;
  mpi_type_of(m, bytes, &known);
  if (bytes <= INT_MAX || known != MPI_BYTE)
    return true;
  if (m->nbig == sizeof m->big / sizeof *m->big || bytes / BLOCK > INT_MAX)
    return false;
  MPI_Datatype block, part[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
  int len[2] = {(int)(bytes / BLOCK), (int)(bytes % BLOCK)};
  MPI_Aint at[2] = {0, (MPI_Aint)(bytes / BLOCK * BLOCK)};
  MPI_Type_contiguous(BLOCK, MPI_BYTE, &block);
  part[0] = block;
  struct Big *b = &m->big[m->nbig++];
  b->bytes = bytes;
  MPI_Type_create_struct(2, len, at, part, &b->type);
  MPI_Type_commit(&b->type);
  MPI_Type_free(&block);
  return true;
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
    return pr_fail(m->run, PR_E_ARG, "PIPE_START_DEADLINE is '%.100s', not seconds", asked);
  sem_init(&m->started, 0, 0);
  m->starting = !pthread_create(&m->starter, NULL, watch_start, m);
  return m->starting ? PR_OK : pr_fail(m->run, PR_E_MEMORY, "no thread for the start");
}

/* All have come, or this run has failed. */
static void end_start(Mpi *m) {
  if (!m->starting)
    return;
  sem_post(&m->started);
  pthread_join(m->starter, NULL);
  m->starting = false;
}

static PrStatus mpi_join(PrRun *run) {
  const PrMpiOptions *o = run->o.engine_options;
  int is, threads, size = 0, rank = 0;
  Mpi *m = run->of_engine = calloc(1, sizeof *m);
  if (!m)
    return pr_fail(run, PR_E_MEMORY, "no memory for the engine");
  m->run = run;
  m->comm = MPI_COMM_NULL;
  m->synchronous = o && o->synchronous;
  pthread_mutex_init(&m->call, NULL);
  pthread_mutex_init(&m->lock, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&m->changed, &attr);
  pthread_condattr_destroy(&attr);
  PrStatus st = begin_start(m);
  if (st)
    return st;
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
  run->nprocess = (uint32_t)size;
  run->here = (uint32_t)rank;
  return PR_OK;
}

/* Fills in what this process has to show; a program that is none has nothing. */
static void write_card(const PrRun *run, PrStatus st, Card *card) {
  const Mpi *m = run->of_engine;
  const PipeProgram *p = run->p;
  memset(card, 0, sizeof *card);
  int len = 0;
  char host[MPI_MAX_PROCESSOR_NAME];
  MPI_Get_processor_name(host, &len);
  snprintf(card->host, sizeof card->host, "%.*s", len, host);
  card->failed.status = (int)st;
  card->told = m->heard;
  snprintf(card->failed.text, PR_TEXT, "%.*s", PR_TEXT - 1, pr_error(run));
  if (!p || p->magic != PIPE_MAGIC)
    return;
  card->abi = p->abi;
  card->nrank = p->nrank;
  card->hash = p->hash;
  if (p->abi == PIPE_ABI && p->name && p->params) {
    snprintf(card->name, sizeof card->name, "%s", p->name);
    snprintf(card->params, sizeof card->params, "%s", p->params);
  }
}

static PrStatus compare_cards(PrRun *run, const Card *card) {
  for (uint32_t r = 1; r < run->nprocess; r++) {
    const Card *a = &card[0], *b = &card[r];
    if (a->hash != b->hash || a->nrank != b->nrank || a->abi != b->abi)
      return pr_fail(
          run, PR_E_ARG,
          "program: rank 0 runs %s %s, ABI %u, hash %016llx; rank %u runs %s %s, ABI %u, "
          "hash %016llx",
          a->name, a->params, a->abi, (unsigned long long)a->hash, r, b->name, b->params, b->abi,
          (unsigned long long)b->hash);
  }
  for (uint32_t r = 0; r < run->nprocess; r++)
    if (card[r].failed.status)
      return card[r].told ? pr_fail(run, (PrStatus)card[r].failed.status, "%s", card[r].failed.text)
                          : pr_fail(run, (PrStatus)card[r].failed.status, "rank %u: %.900s", r,
                                    card[r].failed.text);
  return PR_OK;
}

static PrStatus mpi_agree(PrRun *run, PrStatus st) {
  Mpi *m = run->of_engine;
  Card *card = calloc((size_t)run->nprocess + 1, sizeof *card);
  MPI_Request r;
  int try_code, done = 0;
  if (!card)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u processes", run->nprocess);
  write_card(run, st, &card[run->nprocess]);
  if (TRY(m, MPI_Iallgather,
          (&card[run->nprocess], (int)sizeof *card, MPI_BYTE, card, (int)sizeof *card, MPI_BYTE,
           m->comm, &r))) {
    for (uint32_t i = 0;; i++) { /* also if this process has failed */
      if (!TRY(m, MPI_Test, (&r, &done, MPI_STATUS_IGNORE)) || done ||
          (m->has_communicator && pr_failed(run)))
        break;
      mpi_back_off(m, i);
    }
  }
  if (!done) /* the cards may still come: their memory stays */
    return (PrStatus)atomic_load(&run->status);
  m->nlocal = 0;
  for (uint32_t i = 0; i < run->nprocess; i++)
    m->nlocal += !strcmp(card[i].host, card[run->here].host);
  PrStatus all = compare_cards(run, card);
  if (!all && pr_failed(run))
    all = (PrStatus)atomic_load(&run->status);
  if (all)
    end_start(m);
  free(card);
  return all;
}

static PrStatus mpi_share(PrRun *run, uint32_t rank, void *data, uint64_t bytes) {
  enum { MOST = 4 << 20 };
  Mpi *m = run->of_engine;
  int try_code;
  /* What is the caller's may go when the run fails. */
  char *room = malloc(bytes < MOST ? bytes + 1 : MOST);
  if (!room)
    return pr_fail(run, PR_E_MEMORY, "no memory for %llu bytes that others have",
                   (unsigned long long)bytes);
  for (uint64_t at = 0, n; at < bytes; at += n) {
    MPI_Request r;
    n = bytes - at < MOST ? bytes - at : MOST;
    if (run->here == rank)
      memcpy(room, (char *)data + at, n);
    if (!TRY(m, MPI_Ibcast, (room, (int)n, MPI_BYTE, (int)rank, m->comm, &r)) ||
        !mpi_finish(m, &r, 1))
      return (PrStatus)atomic_load(&run->status);
    if (run->here != rank)
      memcpy((char *)data + at, room, n);
  }
  free(room);
  return PR_OK;
}

/* The tags of the COMM stream, and types of messages longer than MPI counts. */
static PrStatus take_tags(Mpi *m) {
  PrRun *run = m->run;
  const PipeProgram *p = run->p;
  RankRun *k = m->k;
  int *limit, found;
  int64_t most = 0; /* number */
  m->number = calloc(k->ncomm + (size_t)1, sizeof *m->number);
  if (!m->number)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u transfers", k->ncomm);
  MPI_Comm_get_attr(m->comm, MPI_TAG_UB, &limit, &found);
  bool typed = true;
  for (uint32_t i = 0; i < k->ncomm; i++) {
    const PipeInstr *c = &k->t->instr[k->comm[i].index];
    if (c->op == PIPE_SIDE_COMM || pipe_is_sum(c->op))
      continue;
    int64_t number = (int64_t)pipe_transfer_number(p, c);
    most = number > most ? number : most;
    m->number[i] = (int)number;
    typed = typed && make_big_type(m, pr_moved_bytes(run, c));
  }
  most = p->nstage > most ? p->nstage : most;
  most = 4 * most + 3;
  if (found && most > *limit)
    return pr_fail(run, PR_E_ARG, "program: %lld tags, and MPI here has %d", (long long)most,
                   *limit);
  if (!typed)
    return pr_fail(run, PR_E_ARG, "model: tensors of too many different sizes above 2 GiB");
  return PR_OK;
}

/* The copies of rank r to and from slots of this one. */
static PrStatus take_guest(PrRun *run, uint32_t r, Guest *g) {
  PipeRank list;
  PrStatus st = pr_borrow_list(run, r, &list);
  if (st)
    return st;
  *g = (Guest){.rank = r, .request = MPI_REQUEST_NULL};
  for (int pass = 0; pass < 2 && !st; pass++) {
    g->n = 0;
    for (uint32_t i = 0; i < list.ninstr; i++) {
      const PipeInstr *c = &list.instr[i];
      if (pipe_op_info[c->op].stream != PIPE_COPY || c->peer != run->here)
        continue;
      if (pass)
        g->copy[g->n] = *c;
      g->n++;
    }
    if (!pass && g->n > 0 && !(g->copy = malloc(g->n * sizeof *g->copy)))
      st = pr_fail(run, PR_E_MEMORY, "no memory for %u copies", g->n);
  }
  pr_return_list(run, r, &list);
  return st;
}

/* The copies of other ranks to and from slots of this one. */
static PrStatus take_guests(Mpi *m) {
  PrRun *run = m->run;
  const PipeProgram *p = run->p;
  PrStatus st = PR_OK;
  bool lends = false;
  for (uint32_t i = 0; i < m->k->t->npool; i++)
    lends = lends || m->k->t->pool[i].cls == PIPE_GUEST;
  if (!lends)
    return PR_OK;
  m->hosted = calloc(p->nrank, sizeof *m->hosted);
  if (!m->hosted)
    return pr_fail(run, PR_E_MEMORY, "no memory for the copies of %u ranks", p->nrank);
  for (uint32_t r = 0; r < p->nrank && !st; r++) {
    if (r != run->here)
      st = take_guest(run, r, &m->hosted[m->nhosted]);
    m->nhosted += m->hosted[m->nhosted].n > 0;
  }
  for (uint32_t i = 0; i < m->nhosted && !st; i++) {
    Guest *g = &m->hosted[i];
    const PipeInstr *c = &g->copy[0]; /* an OFF: nothing is there yet */
    if (!mpi_start_recv(m, MPI_OF_COPY, 0, m->k->slot[c->away], run->stage[c->stage].size.act,
                        g->rank, &g->request))
      st = PR_E_LOST;
  }
  return st;
}

/* Counts spans from the same moment on all ranks: each asks rank 0 for its clock, and takes the
 * answer that came back soonest. */
static void align_clocks(Mpi *m) {
  enum { ASKED = 16, tag = MPI_OF_CONTROL };
  PrRun *run = m->run;
  uint64_t best = UINT64_MAX, epoch = run->epoch_ns;
  MPI_Bcast(&epoch, 1, MPI_UINT64_T, 0, m->comm);
  if (m->nlocal == run->nprocess) { /* one host, one clock */
    run->epoch_ns = epoch;
    return;
  }
  for (uint32_t r = 1; r < run->nprocess; r++)
    for (int i = 0; i < ASKED; i++) {
      uint64_t asked = pr_now(), there = 0;
      if (run->here == 0) {
        MPI_Recv(NULL, 0, MPI_BYTE, (int)r, tag, m->comm, MPI_STATUS_IGNORE);
        there = pr_now();
        MPI_Send(&there, 1, MPI_UINT64_T, (int)r, tag, m->comm);
      } else if (run->here == r) {
        MPI_Send(NULL, 0, MPI_BYTE, 0, tag, m->comm);
        MPI_Recv(&there, 1, MPI_UINT64_T, 0, tag, m->comm, MPI_STATUS_IGNORE);
        uint64_t took = pr_now() - asked;
        if (took < best) { /* clocks may be far apart, either way: wraps */
          best = took;
          run->epoch_ns = epoch + (asked + took / 2 - there);
        }
      }
    }
}

static PrStatus open_here(Mpi *m) {
  PrRun *run = m->run;
  PrStatus st;
  if ((st = pr_init_rank(run, m->k)) || (st = take_tags(m)) || (st = mpi_take_sums(m)) ||
      (st = mpi_take_heads(m)))
    return st;
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  m->spin = cores >= 2L * m->nlocal ? 200 : 4;
  return take_guests(m);
}

static PrStatus mpi_open(PrRun *run) {
  Mpi *m = run->of_engine;
  m->k = &run->rank[run->here];
  PrStatus st = mpi_agree(run, open_here(m));
  if (st || (st = mpi_agree(run, mpi_join_store(m))))
    return st;
  if (run->o.trace_steps)
    align_clocks(m);
  end_start(m);
  run->nthread = 2 + (m->k->ncopy > 0); /* the communicator never lies down */
  atomic_store(&run->live, run->nthread);
  if ((st = pr_open_threads(run, m->k, sysconf(_SC_NPROCESSORS_ONLN) >= 2L * m->nlocal, NULL)))
    return st;
  int err = pthread_create(&m->communicator, NULL, mpi_communicator, m);
  m->has_communicator = !err;
  return err ? pr_fail(run, PR_E_MEMORY, "no thread for rank %u: %s", run->here, strerror(err))
             : PR_OK;
}

static void mpi_rewind(PrRun *run, uint64_t step) {
  Mpi *m = run->of_engine;
  pthread_mutex_lock(&m->lock);
  m->wanted = m->met = step;
  pthread_mutex_unlock(&m->lock);
}

static void mpi_wake(PrRun *run) {
  Mpi *m = run->of_engine;
  pthread_mutex_lock(&m->lock);
  pthread_cond_broadcast(&m->changed);
  pthread_mutex_unlock(&m->lock);
  pr_wake_all(run);
}

static void cancel(MPI_Request *r) {
  if (*r == MPI_REQUEST_NULL)
    return;
  MPI_Cancel(r);
  MPI_Wait(r, MPI_STATUS_IGNORE);
}

static void mpi_close(PrRun *run) {
  Mpi *m = run->of_engine;
  if (!m)
    return;
  end_start(m);
  pthread_mutex_lock(&m->lock);
  run->quit = true;
  pthread_cond_broadcast(&m->changed);
  pthread_mutex_unlock(&m->lock);
  if (m->has_communicator)
    pthread_join(m->communicator, NULL);
  if (m->k)
    pr_close_threads(m->k);
  mpi_leave_store(m);
  if (m->has_communicator && pr_failed(run)) {
    never_finalize = true; /* messages are under way, and perhaps nobody is there for them */
    m->k->block = m->k->host = NULL;
    run->loss[0] = run->loss[1] = NULL;
    for (uint32_t r = 0; r < run->p->nrank; r++)
      run->rank[r].span = NULL;
    return;
  }
  for (uint32_t i = 0; i < m->nhosted; i++)
    cancel(&m->hosted[i].request);
  for (uint32_t i = 0; i < m->nbig; i++)
    MPI_Type_free(&m->big[i].type);
  if (m->comm != MPI_COMM_NULL)
    MPI_Comm_free(&m->comm);
  pthread_cond_destroy(&m->changed);
  pthread_mutex_destroy(&m->lock);
  pthread_mutex_destroy(&m->call);
  free(m->number);
  for (uint32_t i = 0; i < m->nhosted; i++)
    free(m->hosted[i].copy);
  free(m->hosted);
  mpi_give_sums(m);
  free(m->head);
  free(m->head0);
  free(m->request);
  free(m);
}

const PrEngine pr_mpi = {.name = "MPI",
                         .join = mpi_join,
                         .open = mpi_open,
                         .steps = mpi_steps,
                         .wake = mpi_wake,
                         .begin = mpi_begin,
                         .copy = mpi_copy,
                         .end_step = mpi_end_step,
                         .close = mpi_close,
                         .agree = mpi_agree,
                         .share = mpi_share,
                         .rewind = mpi_rewind,
                         .late = mpi_late};
