/* SPDX-License-Identifier: MIT
 * The engine of processes, one rank in each; not installed.
 *
 *   processes.c   opening, steps and their ends, closing
 *   streams.c     COMM streams
 *   sums.c        REDUCE and TIE
 *   copies.c      copies to and from other ranks
 *   faults.c      agreeing, and what ranks tell one another of faults
 *   carriers.c    pr_transport: a wire whose messages the program carries (pipe_transport.h)
 *
 * The engine knows which messages go when, and what is done with what has come. A wire carries
 * them: carriers.c, or MPI (transport/mpi). Messages are those of pipe_transport.h.
 *
 * What has messages under way at a time is a job: a COMM stream, the caller's thread, the copier,
 * and each rank that has stashes here. A job goes in rounds. Each round has some messages; when all
 * have come, what they brought is used and the next round begins, until the job is over.
 *
 * The caller's thread runs the COMPUTE stream, in pr_steps. A watcher hears from the group that
 * another rank has failed, has gone or is late, and sees that the step of this one takes too
 * long. */
#ifndef PIPE_PROCESSES_H
#define PIPE_PROCESSES_H

#include "interpret.h"
#include "pipe_transport.h"

#define PROC_SECOND UINT64_C(1000000000)

/* A tag is a number, which tells messages of a kind apart, and the kind. */
typedef enum ProcKind {
  PROC_OF_STREAM, /* pipe_transfer_number */
  PROC_OF_CHECKSUM, /* the same */
  PROC_OF_SUM,      /* row: sums.c */
  PROC_OF_REST,     /* ProcRest */
  PROC_KINDS
} ProcKind;
typedef enum ProcRest { PROC_OFF, PROC_LOAD, PROC_TURN, PROC_ALL } ProcRest;

typedef struct Proc Proc;

typedef struct ProcJob {
  Proc *e;
  /* Of round 0, 1, ...: uses what the round before has brought, and puts the messages of this one
   * in place of those, perhaps none. False: the run has failed, or the job is over, and perhaps
   * begun again. A job that is over has n = 0. */
  bool (*next)(struct ProcJob *j);
  uint64_t round;
  PrMessage *message; /* [n], room for `most` */
  uint32_t n, most;
  bool each; /* proc_come is wanted as soon as a message has come; else with the last one, too */
  char *room; /* bytes that come; NULL: none */
  void *of_wire;
  /* Of who waits for it. */
  sem_t done;
  bool has_done;
  _Atomic bool over;
  /* Of a stream. */
  CommRun *c;      /* NULL: of none */
  uint32_t *part;  /* [most] place in the head of a message's transfer; PIPE_NONE: of a checksum */
  uint64_t *sum;   /* [most] checksums, by that place */
  char *bit;       /* one of its bytes is sent, or arrives, changed: fault.c */
  uint64_t start;  /* of the span */
  void **piece;    /* what is being added up */
  /* Of a rank that has stashes here: its copies to and from guest slots, in its order. */
  PipeInstr *copy; /* [ncopy] */
  uint32_t ncopy, rank;
} ProcJob;

/* What carries messages. */
typedef struct ProcWire {
  /* The jobs are known. Threads, requests. */
  PrStatus (*open)(Proc *e);
  /* Carries out a job, on other threads: proc_next(j, 0); the messages; proc_come for each of them;
   * proc_next(j, 1); and so on until that is false. Never waits for another rank. */
  void (*begin)(ProcJob *j);
  void (*wake)(Proc *e); /* the run has failed; or NULL */
  /* Ends its threads: the run is over, or has failed. False: messages may come for ever. */
  bool (*close)(Proc *e);
} ProcWire;

/* How the ranks that have gradients of a sum share it: sums.c. */
typedef struct ProcSum {
  uint32_t nowner, mine; /* number of this rank; PIPE_NONE: it owns nothing */
  uint32_t *owner;       /* [nowner] ranks */
  char *first;           /* gradient of this rank; NULL: it owns nothing */
  uint64_t bytes, each, rounds;
  uint64_t room;     /* bytes for pieces of other ranks */
  uint32_t messages; /* most at once */
} ProcSum;

/* What an engine fills in before proc_open: run, wire, group, and the three below. */
struct Proc {
  PrRun *run;
  const ProcWire *wire;
  const PrGroup *g;
  uint32_t most_tag;
  bool buffers;   /* a message of no bytes is over without its other side */
  bool one_clock; /* all ranks are on one host */
  bool spin;      /* there is a core for each thread */
  RankRun *k;
  ProcJob *job; /* [njob]: of the streams; the caller's; the copier's; of ranks with stashes here */
  uint32_t njob;
  ProcJob *caller, *copier, *guest; /* of job; guest[nguest] */
  uint32_t nguest;
  uint64_t first; /* step of this call of pr_steps */
  ProcSum *sum;   /* [ncoll] */
  uint32_t *owner; /* of ProcSum.owner */
  pthread_t watcher;
  bool has_watcher;
  _Atomic bool agreed; /* on opening; before, a failure is told by `agree` */
  _Atomic bool told;   /* all know of a failure */
  _Atomic bool shares; /* this rank shares its trace */
  _Atomic bool closing;
  _Atomic uint32_t late_at; /* PrRun.ck_at when this rank said that a checkpoint is late; else 0 */
};

/* Jobs, processes.c. For wires: the messages of a round, counted from 0; message i has come, or
 * gone. */
bool proc_next(ProcJob *j, uint64_t round);
void proc_come(ProcJob *j, uint32_t i);
void proc_put(ProcJob *j, ProcKind kind, uint64_t number, uint32_t peer, bool sends, void *data,
              uint64_t bytes);
/* One more: its messages at a time and bytes of room. NULL: no memory; fails. */
ProcJob *proc_add_job(Proc *e, bool (*next)(ProcJob *j), size_t most, uint64_t room);
void proc_start(ProcJob *j);
bool proc_over(ProcJob *j); /* says to proc_wait that it is; false, for `next` */
/* Until it is over. proc_carry: starts a job of the messages that have been put, and waits. False:
 * the run has failed. */
bool proc_wait(ProcJob *j);
bool proc_carry(ProcJob *j);
bool proc_carries(ProcJob *j); /* `next` of such a job */

/* streams.c */
PrStatus proc_open_stream(Proc *e, CommRun *c);
void proc_begin(PrRun *run, CommRun *c, uint32_t i, CommRun **todo);
void proc_of_stream_come(ProcJob *j, uint32_t i);

/* sums.c: the messages of the next round. *more: there are some; else it is added up. False: the
 * run has failed. */
PrStatus proc_take_sums(Proc *e);
bool proc_next_of_sum(ProcJob *j, const Coll *l, bool *more);

/* copies.c */
PrStatus proc_open_copies(Proc *e);
PrStatus proc_copy(PrRun *run, RankRun *k, const CopyAt *at, uint64_t step);

/* faults.c */
PrStatus proc_agree(PrRun *run, PrStatus st);
bool proc_late(PrRun *run);
void proc_look(PrRun *run); /* a checkpoint has a deadline: the group may wait on */
void proc_wake(PrRun *run);
void *proc_watch(void *arg);                                 /* of Proc */
uint32_t proc_tell_place(void *of, char to[PR_GROUP_PLACE]); /* for the group */
/* Something has come to nothing: waits until the group says what was first, else fails with the
 * text. */
PrStatus proc_fail_in_vain(Proc *e, const char *text);

/* processes.c, of PrEngine. proc_close: false: what messages could touch stays, and with it *e. */
PrStatus proc_open(PrRun *run);
PrStatus proc_steps(PrRun *run, uint64_t n);
void proc_end_step(PrRun *run, RankRun *k, uint64_t step);
PrStatus proc_share(PrRun *run, uint32_t rank, void *data, uint64_t bytes);
bool proc_close(Proc *e);

/* What every engine of processes has; a table adds its name and `join`, `open`, `close`. */
#define PROC_ENGINE                                                                                \
  .steps = proc_steps, .wake = proc_wake, .begin = proc_begin, .copy = proc_copy,                  \
  .end_step = proc_end_step, .agree = proc_agree, .share = proc_share, .late = proc_late,     \
  .look = proc_look

#endif
