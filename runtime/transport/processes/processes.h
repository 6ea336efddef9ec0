/* SPDX-License-Identifier: MIT
 * The engine of processes, with one rank in each process; not installed.
 *
 *   processes.c   opening, jobs, steps and their ends, closing
 *   streams.c     COMM streams
 *   sums.c        REDUCE and TIE
 *   copies.c      copies to and from other ranks
 *   faults.c      agreement of all ranks, deadlines, reports of failures
 *   carriers.c    pr_transport: a wire whose messages the program carries (pipe_transport.h)
 *
 * The engine decides which messages go when, and uses what they bring. A wire carries messages
 * (PrMessage of pipe_transport.h): carriers.c, or MPI (transport/mpi).
 *
 * Definition: a job is something that has messages under way: a COMM stream, the caller's thread,
 * the copier, and each rank that keeps stashes here. A job runs in rounds. A round has some
 * messages; when all have come, the job uses what they brought and begins the next round.
 *
 * The caller's thread runs the COMPUTE stream, in pr_steps. A thread, the watcher, hears from the
 * group that another rank has failed, has gone or is late, and detects that the step of this rank
 * takes too long. */
#ifndef PIPE_PROCESSES_H
#define PIPE_PROCESSES_H

#include "interpret.h"
#include "pipe_transport.h"

#define PROC_SECOND UINT64_C(1000000000)

/* A tag is number * PROC_KINDS + kind; the number distinguishes messages of one kind. Messages of
 * one tag from one rank to another have the same order on both. */
typedef enum ProcKind {
  PROC_OF_STREAM,   /* proc_number */
  PROC_OF_CHECKSUM, /* proc_number */
  PROC_OF_SUM,      /* row: sums.c */
  PROC_OF_REST,     /* ProcRest */
  PROC_KINDS
} ProcKind;
typedef enum ProcRest { PROC_OFF, PROC_LOAD, PROC_ALL } ProcRest;

typedef struct Proc Proc;

typedef struct ProcJob {
  Proc *e;
  /* Called for round 0, 1, ...: uses what the round before has brought, and replaces its messages
   * by those of this round, perhaps none. False: the run has failed, or the job is over; another
   * thread may have started it again by then. A job that is over has n = 0. */
  bool (*next)(struct ProcJob *j);
  uint64_t round;
  PrMessage *message; /* [n], room for `most` */
  uint32_t n, most;
  bool each; /* the wire calls proc_come as soon as a message has come; else it may do so later */
  char *room; /* bytes that arrive; NULL: none */
  void *of_wire;
  /* For a thread that waits for the job (proc_wait). */
  sem_t done;
  bool has_done;
  _Atomic bool over;
  /* Of a COMM stream. */
  CommRun *c;      /* NULL: the job is of no stream */
  uint32_t *part;  /* [most] place of a message's transfer in the head; PIPE_NONE: a checksum */
  uint64_t *sum;   /* [most] checksums, by place in the head */
  char *bit;       /* a byte that a planted fault has changed; NULL: none */
  uint64_t start;  /* of the span, ns from run->epoch_ns */
  void **piece;    /* pieces of gradients that are being added up */
  /* Of a rank that keeps stashes here: its copies to and from guest slots, in its order. */
  PipeInstr *copy; /* [ncopy] */
  uint32_t ncopy, rank;
} ProcJob;

/* Carries messages. */
typedef struct ProcWire {
  /* Opens threads and requests; all jobs are known. */
  PrStatus (*open)(Proc *e);
  /* Runs a job on other threads: proc_next(j, 0); its messages; proc_come for each of them;
   * proc_next(j, 1); and so on until proc_next returns false. Never waits for another rank. */
  void (*begin)(ProcJob *j);
  void (*wake)(Proc *e); /* called when the run fails; may be NULL */
  /* Ends the threads of a run that is over or has failed. False: messages may still arrive. */
  bool (*close)(Proc *e);
} ProcWire;

/* How the ranks that have gradients of a sum share its work: sums.c. */
typedef struct ProcSum {
  uint32_t nowner, mine; /* mine: number of this rank among the owners; PIPE_NONE: it is none */
  uint32_t *owner;       /* [nowner] ranks */
  char *first;           /* gradient of this rank; NULL: it owns nothing */
  uint64_t bytes, each, rounds; /* of the sum; of a piece at most; until all pieces are added */
  uint64_t room;     /* bytes for pieces of other ranks */
  uint32_t messages; /* at most in one round */
} ProcSum;

/* An engine fills in the fields up to `spin` before proc_open. */
struct Proc {
  PrRun *run;
  const ProcWire *wire;
  const PrGroup *g;
  uint32_t most_tag; /* largest tag that the wire takes; equal on all ranks */
  uint32_t units;    /* proc_units */
  bool buffers;      /* a message of 0 bytes completes without its other side */
  bool one_clock;    /* all ranks are on one host */
  bool spin;      /* there is a core for each thread */
  RankRun *k;
  ProcJob *job; /* [njob]: streams; caller; copier; ranks that keep stashes here */
  uint32_t njob;
  ProcJob *caller, *copier, *guest; /* in `job`; guest[nguest] */
  uint32_t nguest;
  uint64_t first; /* first step of this call of pr_steps */
  ProcSum *sum;   /* [ncoll] */
  uint32_t *owner; /* memory of all ProcSum.owner */
  char *room;      /* of a share that has failed: messages may still arrive in it; or NULL */
  pthread_t watcher;
  bool has_watcher;
  _Atomic bool agreed; /* all ranks have opened; before, `agree` reports a failure to the others */
  _Atomic bool told;   /* the group knows of a failure */
  _Atomic bool shares; /* this rank shares its trace */
  _Atomic bool closing;
  _Atomic uint32_t late_at; /* PrRun.ck_at when this rank reported a late checkpoint; 0: not yet */
};

/* Jobs, processes.c. A wire calls proc_next for each round, from 0, and proc_come when message i
 * has arrived or has been sent. */
bool proc_next(ProcJob *j, uint64_t round);
void proc_come(ProcJob *j, uint32_t i);
void proc_put(ProcJob *j, ProcKind kind, uint64_t number, uint32_t peer, bool sends, void *data,
              uint64_t bytes);
/* Adds a job with at most `most` messages in a round, and `room` bytes. NULL: reported. */
ProcJob *proc_add_job(Proc *e, bool (*next)(ProcJob *j), size_t most, uint64_t room);
void proc_start(ProcJob *j);
bool proc_over(ProcJob *j); /* ends proc_wait; returns false, for `next` */
/* Waits until the job is over. proc_carry first starts it with the messages that have been put.
 * False: the run has failed. */
bool proc_wait(ProcJob *j);
bool proc_carry(ProcJob *j);
bool proc_carries(ProcJob *j); /* `next` of proc_carry's job */

/* streams.c */
/* How many units (microbatches, or slices of them) of a tensor the tags up to most_tag tell apart;
 * further units have their tags again. All of the step if there are tags for them, and never fewer
 * than a group has under way. 0: there are too few tags for the program. */
uint32_t proc_units(const PipeProgram *p, uint32_t most_tag);
/* The number of SEND or RECV c, equal at both ends. */
uint64_t proc_number(const PipeProgram *p, uint32_t units, const PipeInstr *c);
PrStatus proc_open_stream(Proc *e, CommRun *c);
void proc_begin(PrRun *run, CommRun *c, uint32_t i, CommRun **todo);
void proc_of_stream_come(ProcJob *j, uint32_t i);

/* sums.c. proc_next_of_sum puts the messages of the next round; *more: false once the sum is
 * complete. False: the run has failed. */
PrStatus proc_take_sums(Proc *e);
bool proc_next_of_sum(ProcJob *j, const Coll *l, bool *more);

/* copies.c */
PrStatus proc_open_copies(Proc *e);
PrStatus proc_copy(PrRun *run, RankRun *k, const CopyAt *at, uint64_t step);

/* faults.c */
PrStatus proc_agree(PrRun *run, PrStatus st);
bool proc_late(PrRun *run);
void proc_look(PrRun *run); /* extends the patience of the group during a checkpoint */
void proc_wake(PrRun *run);
void *proc_watch(void *arg);                                 /* Proc; the watcher's main */
uint32_t proc_tell_place(void *of, char to[PR_GROUP_PLACE]); /* of PrGroup.watch */
/* Fails because something did not happen: with what the group reports as the first failure within
 * some seconds, else with PR_E_LOST and the text. Returns the status of the run. */
PrStatus proc_fail_in_vain(Proc *e, const char *text);

/* processes.c: functions of PrEngine. proc_close returns false if messages may still arrive: then
 * their memory and *e stay. */
PrStatus proc_open(PrRun *run);
PrStatus proc_steps(PrRun *run, uint64_t n);
void proc_end_step(PrRun *run, RankRun *k, uint64_t step);
PrStatus proc_share(PrRun *run, uint32_t rank, void *data, uint64_t bytes);
bool proc_close(Proc *e);

/* The common part of an engine's table; the engine adds name, `join`, `open` and `close`. */
#define PROC_ENGINE                                                                                \
  .steps = proc_steps, .wake = proc_wake, .begin = proc_begin, .copy = proc_copy,                  \
  .end_step = proc_end_step, .agree = proc_agree, .share = proc_share, .late = proc_late,     \
  .look = proc_look

#endif
