/* SPDX-License-Identifier: MIT
 * Runs of the CUDA engine on the device of the shim, for what shim_test does: a host thread for
 * each process, what they tell one another, and what came of it. */
#ifndef SHIM_JOB_H
#define SHIM_JOB_H

#include "../run/samples.h"
#include "../run/seeded.h"
#include "cuda_engine.h"
#include "float_model.h"
#include "shim.h"
#include "word_model.h"

enum { STEPS = 4, MOST_RANKS = 8, MOST_MBS = 48, MOST_ROWS = 32 };
#define JOB_DEADLINE_S 0.5 /* of shim_clock.c, for a step that does not end */

extern int job_bad; /* expectations that failed */

#define EXPECT(cond, ...) \
  do { \
    if (!(cond)) { \
      job_bad++; \
      printf(__VA_ARGS__); \
    } \
  } while (0)

typedef struct Result {
  double loss[STEPS][MOST_MBS];
  uint64_t weight[MOST_ROWS][WORDS];
} Result;

typedef struct Job {
  const PipeProgram *p;
  const PipeProgram *other; /* of the last rank; NULL: the same */
  PrCudaOptions cuda;
  bool processes, joins, no_step, free_running;
  enum { BY_NCCL, BY_PEER, BY_AUTO } by; /* PrCudaOptions.transport, of processes */
  bool alone;   /* the last one has chosen NCCL all the same */
  bool threads; /* those are threads of one process, for all that they know */
  bool floats; /* the float model, not that of words */
  uint32_t trace;
  bool checks; /* PrOptions.checksums */
  int at_once; /* steps in one call; 0: 1 */
  double deadline_s;
  uint64_t seed;
  bool log;
  void (*damage)(void *arg); /* after pr_open, by host 0 while the others wait */
  void *arg;
  /* a folder: a checkpoint after half of the steps, which ends the run; to go on from */
  const char *save, *from;
  void (*on_step)(void *arg, uint64_t step, double loss); /* of all hosts, with `told` */
  void *told;
  uint32_t lose;          /* 1: host 1's first group of NCCL is not carried out; 2: nor host 0's */
  uint32_t starve;        /* host 1's allocation of this number in pr_open fails; 0: none */
  bool lazy;              /* the device does nothing before a host looks in vain */
  bool deaf;              /* what only turns order is not ordered */
  int nccl;               /* its version; 0: one that has all */
  bool apart;             /* each process is on a host of its own */
  bool far;               /* what a rank tells of its failure others hear late */
  bool full;              /* there is no memory that processes share */
  bool closed;            /* processes cannot open each other's memory */
  bool fails;             /* the model, once */
  /* host 1 does not come to pr_open, or has no device; not to pr_copy_weight; dies in pr_open */
  enum { ABSENT_NOT, ABSENT_OPEN, ABSENT_DEVICE, ABSENT_COPY, ABSENT_DEAD } absent;
  uint32_t die_at;        /* ABSENT_DEAD: after so many calls */
  bool one_queue;         /* shim_one_queue */
  bool hasty;             /* shim_hasty */
  bool wanders;           /* the run is on device 1, and its host on device 0 between its calls */
  uint32_t odd;           /* of WordModel */
  uint32_t idle_ms;       /* between the last step and the end of the run */
  uint32_t kill, kill_at; /* host to kill at which call after pr_open; kill_at 0: none */
  /* Results. */
  Result result;
  PrStatus status[MOST_RANKS];
  char error[MOST_RANKS][PR_TEXT];
  uint32_t counted[MOST_RANKS]; /* steps */
  double last[MOST_RANKS][MOST_MBS]; /* losses of the last one, on ranks that know them */
  /* rules of the shim; buffers of side ops; streams that wait for ever */
  uint32_t errors, broken, stuck;
  char text[512];
  bool stalled;
  uint32_t hung, aborts;  /* communicators whose abort never ends; that were aborted */
  uint32_t comms, transfers; /* that were made; sends and receives of NCCL */
  uint64_t most_ahead;
  uint32_t taken; /* allocations of host 1 in pr_open */
  /* Inside. */
  struct Board *board;
  uint32_t nhost, opened, damaged, through;
} Job;

const Sample *sample_named(const char *name); /* of samples[] */
/* the caller's, with its arena; aborts where it is wrong */
Program *compiled(const char *stdlib, const Sample *s);
/* Opens the program of j on all hosts, does STEPS steps, closes it; with j->log the shim is still
 * there, until shim_end. */
void job_run(Job *j);
bool job_whole(const Job *j);                     /* no error, no broken rule */
/* losses, of the steps that ended a call, and weights */
bool job_same(const Job *j, const Result *want);
/* With headers, and PIPE_FAULT=fault: does the report have `want` in it? If not, that is an
 * expectation that failed. */
bool job_blames(const PipeProgram *p, const char *fault, const char *want, uint64_t seed);
/* What the CPU engine makes of the program; floats: as in Job. */
void job_reference(const PipeProgram *p, bool floats, Result *r);
/* A send and a receive of one tensor, in op notation? For shim_pairs. */
bool job_pairs(const char *send, const char *recv);

/* Of the last run with a log: the addresses of the slots of each rank, and the number that the shim
 * gave to the first event of its plan. */
extern void *job_slots[MOST_RANKS][512];
extern uint32_t job_first_event[MOST_RANKS], job_events[MOST_RANKS];

#endif
