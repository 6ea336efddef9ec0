/* SPDX-License-Identifier: MIT
 * What the parts of the MPI engine share; not installed.
 *
 *   engine_mpi.c    what the interpreter begins, copies of other ranks, steps
 *   mpi_sums.c      REDUCE and TIE
 *   mpi_message.c   messages, waiting for them, what other ranks ask for and tell
 *   mpi_fault.c     what ranks tell one another of faults, through the store
 *   mpi_open.c      pr_mpi: who takes part in what, opening and closing */
#ifndef PIPE_ENGINE_MPI_H
#define PIPE_ENGINE_MPI_H

#include <mpi.h>

#include "pipe_mpi.h"
#include "interpret.h"
#include "store.h"

/* A tag is four times a number, which tells messages of a kind apart, and the kind. */
typedef enum MpiKind {
  MPI_OF_STREAM, /* number: pipe_transfer_number */
  MPI_OF_SUM,    /* row: exchange in mpi_sums.c */
  MPI_OF_COPY,   /* 0: they are in the order of the table; 1: turns */
  MPI_OF_CONTROL /* number as OF_STREAM: its checksum; before the first step: clocks */
} MpiKind;

/* What a rank tells when it fails. */
typedef struct Failed {
  int status; /* PrStatus */
  char text[PR_TEXT];
} Failed;

/* What must be the same in all processes; and what was the matter, if anything. */
typedef struct Card {
  uint64_t hash;
  uint32_t nrank, abi;
  char name[48], params[80], host[64];
  uint32_t told, zero; /* the text is what all have been told */
  Failed failed;
} Card;

/* The copies that another rank makes to and from guest slots of this one, in the order it makes
 * them. */
typedef struct Guest {
  uint32_t rank; /* whose stashes they are */
  uint32_t n, next;
  PipeInstr *copy; /* [n] */
  MPI_Request request;
  bool answering; /* request is of the stash that goes back */
} Guest;

/* An instruction of COMM from when it begins until it is over. Messages may arrive in it after a
 * failure. */
typedef struct MpiHead {
  CommRun *c;
  uint32_t i; /* place in c */
  uint32_t n; /* requests */
  MPI_Request *r; /* of a sum room for all; else 2: with checksums a message of 8 bytes follows */
  struct MpiHead *next;
  uint64_t start, round; /* round: of a sum */
  void *slot; /* of a transfer, and so below; NULL: the message gets lost */
  uint64_t bytes, sum;
  unsigned char *bit; /* one of its bytes that arrives changed: fault.c */
} MpiHead;

/* How the owners of a sum share it. Each has a piece of `each` bytes in a round, the last one
 * perhaps fewer. */
typedef struct MpiSum {
  uint32_t nowner, mine; /* number of this rank; PIPE_NONE: it owns nothing */
  uint32_t *owner;       /* [nowner] ranks */
  char *first;           /* gradient of this rank; NULL: it owns nothing */
  uint64_t bytes, each, rounds;
  uint64_t room;         /* bytes for pieces of other ranks */
  uint32_t requests;     /* most at once */
} MpiSum;

typedef struct Mpi {
  PrRun *run;
  RankRun *k;
  MPI_Comm comm; /* of our own: messages of others do not meet ours */
  bool synchronous;
  pthread_mutex_t lock; /* of begun, wanted, PrRun.quit, for which the communicator sleeps */
  pthread_cond_t changed;
  pthread_mutex_t call; /* held during every call of MPI */
  pthread_t communicator;
  bool has_communicator, starting;
  /* ends this process if others do not come to pr_open within start_s seconds: `starting` */
  pthread_t starter;
  sem_t started;
  double start_s;
  MpiHead *begun, **begun_end; /* what the communicator has not seen yet */
  MpiHead *under_way;          /* and, with the rest its own, what it looks at */
  uint64_t wanted; /* steps at whose end all are to meet */
  uint64_t met;    /* and have met */
  MPI_Request meeting;
  bool meets;      /* it is under way */
  uint64_t first;  /* step of this call of pr_steps */
  uint32_t nlocal;   /* processes on this host */
  uint32_t spin;     /* looks at a request before sleeping */
  int *number;       /* [ncomm] of the messages of COMM */
  MpiHead *head;     /* of stream x, those of its longest group, from head0[x] on */
  uint32_t *head0;   /* [nstream] */
  MPI_Request *request; /* of all of them */
  uint32_t most_requests; /* of a sum */
  Guest *hosted;     /* [nhosted] */
  uint32_t nhosted;
  MpiSum *sum;            /* [ncoll] */
  uint32_t *owner;        /* of MpiSum.owner */
  void **piece;           /* what is being added up */
  char *staging, **room;  /* pieces of other ranks; [nstream] of these those of a stream */
  Store *store;        /* where ranks tell of faults; NULL: not yet */
  StoreServer *server; /* of the process that serves it */
  bool of_rank_0;      /* a process of the run serves it */
  /* told: the others know; heard: this run has failed with what the store has told all */
  _Atomic bool told, heard;
  _Atomic uint32_t late_at; /* PrRun.ck_at when this rank said that a checkpoint is late; else 0 */
  uint64_t late_step;  /* 1 + step that has been told to take too long */
  uint64_t late_ns;    /* when */
  struct Big {
    uint64_t bytes;
    MPI_Datatype type;
  } big[4]; /* types of messages longer than INT_MAX */
  uint32_t nbig;
} Mpi;

/* mpi_message.c. False, here and below: the run has failed. */

bool mpi_is_fine(Mpi *m, int code, const char *what);

/* Calls MPI; uses a variable `try_code` of the caller. */
#define TRY(m, name, args)                                                                         \
  (pthread_mutex_lock(&(m)->call), try_code = name args, pthread_mutex_unlock(&(m)->call),         \
   mpi_is_fine(m, try_code, #name))

/* The type and count of a message of so many bytes: MPI counts in int. */
int mpi_type_of(const Mpi *m, uint64_t bytes, MPI_Datatype *type);
bool mpi_start_send(Mpi *m, MpiKind kind, int number, const void *from, uint64_t bytes, uint32_t to,
                    MPI_Request *r);
bool mpi_start_recv(Mpi *m, MpiKind kind, int number, void *to, uint64_t bytes, uint32_t from,
                    MPI_Request *r);

/* Between the looks i and i + 1 at a request. */
void mpi_back_off(const Mpi *m, uint32_t i);

/* What the communicator does besides its stream. */
bool mpi_look_around(Mpi *m);

/* Until all n requests are complete, on any thread but the communicator. If the run fails they may
 * be under way for ever. */
bool mpi_finish(Mpi *m, MPI_Request *r, uint32_t n);

/* Tells the store, once, why this rank has failed. */
void mpi_tell_others(Mpi *m);

/* mpi_fault.c. Meets the other ranks at a store: PR_OK, or the run has failed. */
PrStatus mpi_join_store(Mpi *m);
/* Notices that a step takes too long, or that nobody serves the store any more. */
void mpi_watch_step(Mpi *m);
bool mpi_late(PrRun *run);
void mpi_leave_store(Mpi *m);

/* mpi_sums.c. A sum is mpi_sum_rounds + 1 times this: start the messages of a round, in `room` and
 * requests r[*n] of its stream, let them complete, and add up what has come; the last round adds up
 * nothing. */
uint64_t mpi_sum_rounds(const Mpi *m, const Coll *l);
bool mpi_start_round(Mpi *m, const Coll *l, uint64_t round, char *room, MPI_Request *r,
                     uint32_t *n);
bool mpi_add_round(Mpi *m, const Coll *l, uint64_t round, char *room, uint64_t step);
PrStatus mpi_take_sums(Mpi *m);
void mpi_give_sums(Mpi *m);

/* engine_mpi.c. Room for what is under way at once: when sums are known. */
PrStatus mpi_take_heads(Mpi *m);
void *mpi_communicator(void *arg); /* of Mpi */
void mpi_begin(PrRun *run, CommRun *c, uint32_t i, CommRun **todo);
PrStatus mpi_copy(PrRun *run, RankRun *k, const CopyAt *at, uint64_t step);
void mpi_end_step(PrRun *run, RankRun *k, uint64_t step);
PrStatus mpi_steps(PrRun *run, uint64_t n);

#endif
