/* SPDX-License-Identifier: MIT
 * Shared by the parts of the runtime; not installed.
 *
 *   lists.c        the lists of the ranks, written out
 *   run.c          errors, the clock, simple queries of a run
 *   ops.c          one op, one copy, one transfer, one sum
 *   memory.c       the memory of a rank
 *   find_streams.c the streams, channels and sums of a table
 *   interpret.c    the interpreter: the next instruction, and its waits
 *   model.c        whether the model fits the program
 *   loss.c         losses of microbatches
 *   updates.c      number of microbatches that each update applies
 *   weights.c      formulas around the callbacks of the model
 *   kept_inputs.c  inputs that a recomputed forward keeps
 *   contract.c     checks of the promises of a model
 *   trace.c        spans, and measurements from them
 *   blame.c        the first fault, or the wait cycle, when the place of each rank is known
 *   fault.c        injected faults
 *   optim.c        optimizers, for models
 *
 * Counts of completed instructions are absolute: they continue from step to step. The counts of
 * step n of a stream of length len begin at n * len, so no count that another thread may read is
 * ever reset. */
#ifndef PIPE_RUN_PRIVATE_H
#define PIPE_RUN_PRIVATE_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "pipe_run.h"

#if defined(__GNUC__)
#define PR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define PR_PRINTF(fmt, args)
#endif

enum { PR_LINE = 64 }; /* alignment of every tensor; the unit in which bytes are accounted */

/* An instruction of one stream: its index in PipeRank.instr, and data that only its stream
 * needs. */
typedef struct ComputeAt {
  uint32_t index;
  uint32_t first_grad; /* as in PrCall */
  uint32_t applied;    /* as in PrCall */
  uint32_t updates;    /* earlier Us of its stage in the step */
  uint32_t kept;       /* R with several inputs: index of the first in RankRun.listed */
  uint32_t recomputed; /* as in PrCall */
} ComputeAt;

typedef struct CopyAt {
  uint32_t index;
} CopyAt;

typedef struct CommAt {
  uint32_t index;
  uint32_t chan; /* index in PrRun.chan; REDUCE, TIE: in PrRun.coll */
} CommAt;

/* A FIFO of COMM instructions: the COMM stream of a rank or, with lowering CHANNELS, one of its
 * channels. Its head is the first instruction that has not completed, or a whole group. "Owned"
 * fields belong to the thread that advances the stream; see interpret.h. */
typedef struct CommRun {
  /* Written by the thread that completes an instruction of the stream. */
  _Alignas(PR_LINE) _Atomic uint64_t done;
  _Atomic uint32_t posted;    /* 1: the head has begun */
  _Atomic uint64_t awaits;    /* key of the count that the head waits for (interpret.c); 0: none */
  /* Owned. */
  _Alignas(PR_LINE) uint32_t next; /* position of the head; of a group, of its first */
  /* Groups: bit j: transfer j of the head is over while others are not. */
  _Atomic uint64_t group_done;
  /* Instructions of the head that are not over, plus 1 while the engine is still beginning the
   * group. */
  _Atomic uint32_t group_left;
  uint64_t step;
  struct CommRun *todo;
  /* Constant after pr_open. */
  struct RankRun *k;
  const uint32_t *place; /* [n] positions in RankRun.comm */
  uint32_t n, number;    /* number: among the streams of its rank */
} CommRun;

/* A PipeWait, resolved. */
typedef struct Need {
  const _Atomic uint64_t *done; /* completed instructions of the queue */
  uint32_t each;                /* instructions of the queue in a step */
  uint32_t count;               /* how many of them must be complete */
  uint32_t queue;               /* PIPE_COMPUTE, PIPE_COPY, or pr_comm_queue of a COMM stream */
} Need;

/* One side of a transfer that is ready to start. */
typedef struct Post {
  const PipeInstr *c;
  uint32_t rank;
  bool corrupt; /* one bit of the payload arrives flipped: fault.c */
  uint64_t step;
  uint32_t at; /* position in the stream */
  CommRun *stream;
} Post;

/* A directed pair of ranks; with lowering CHANNELS, one channel. Each side has at most one post:
 * streams are FIFO, and if a group has several transfers here, they are posted one after the other.
 * Bit 0 of `state`: the sender has posted; bit 1: the receiver has. */
typedef struct Chan {
  _Alignas(PR_LINE) _Atomic uint32_t state;
  uint32_t src, dst;
  CommRun *end[2]; /* the stream that sends [0], that receives [1] */
  Post post[2];
} Chan;

/* A REDUCE or TIE: its members, and the gradients that it adds up. */
typedef struct Coll {
  _Alignas(PR_LINE) _Atomic uint32_t arrived; /* members whose COMM stream has arrived */
  uint32_t n;
  uint32_t *row;         /* [n] rows of the stage table that take part, ascending */
  CommRun **at;          /* [n] the streams that contain it */
  uint32_t *index;       /* [n] indices of the current instruction in the lists of the members */
  /* [ngrad] gradients: of each replica; TIE: of the first row of each stage. In `grad` and `copy`
   * NULL stands for a row of another process. */
  void **grad;
  uint32_t *stage;       /* [ngrad] stages of the model */
  uint32_t *grad_row;    /* [ngrad] rows of these gradients */
  uint32_t ngrad;
  void **copy;           /* [ncopy] TIE: gradients of the other rows, which get a copy of the sum */
  uint32_t *copy_row;    /* [ncopy] */
  uint32_t ncopy;
  bool tie;
} Coll;

/* A thread of a rank that sleeps until a count is reached. */
typedef struct RankThread {
  /* Key of the count (interpret.c); 0: the thread is awake. Cleared by the thread that wakes it. */
  _Alignas(PR_LINE) _Atomic uint64_t sleep_on;
  sem_t sem;
  pthread_t thread;
  bool has_sem, has_thread;
  /* Looks before sleeping; 0 with fewer cores than ranks. Written by the thread itself. */
  _Alignas(PR_LINE) uint32_t spin;
} RankThread;

/* A rank. */
typedef struct RankRun {
  /* The thread that runs COMPUTE; the copier, which runs COPY. Only ranks with COPY instructions
   * have a copier. */
  RankThread main, copier;
  /* Written by the copier of the rank. */
  _Alignas(PR_LINE) _Atomic uint64_t copy_done;
  /* Written by the thread of the rank. */
  _Alignas(PR_LINE) _Atomic uint64_t compute_done;
  _Atomic uint64_t copy_begun; /* steps whose COPY instructions may start */
  _Atomic uint64_t step;       /* steps finished */
  _Atomic uint64_t step_start; /* ns; UINT64_MAX outside a step */
  _Atomic uint32_t running;    /* 1 + index of the op in a callback; 0: none */
  _Atomic uint64_t running_since; /* ns */
  /* Constant after pr_open. */
  /* Its tables. The list is written out (t->rows is NULL) for ranks of this process, and for all
   * ranks after pr_see_all; the same holds for the counts, streams and positions below. */
  _Alignas(PR_LINE) const PipeRank *t;
  uint32_t id, ncompute, ncomm, ncopy, nstage;
  const uint32_t *stage; /* [nstage] its rows of the stage table, ascending */
  ComputeAt *compute;
  CommAt *comm;   /* in list order */
  CopyAt *copy;
  /* [nstream] The COMM stream, or its channels in the order of their first use. */
  CommRun *stream; uint32_t nstream;
  Need *need;             /* [t->nwait] the rows of PipeRank.wait */
  bool comm_joins;        /* some COMM stream waits for another one */
  uint32_t *place;        /* arrays of CommRun.place */
  char *block;    /* all tensors of the rank except class HOST */
  char *host;     /* tensors of class HOST; NULL: none */
  uint64_t bytes, host_bytes; /* bytes of block and of tensors in the model; bytes of host */
  uint64_t block_bytes;   /* bytes of block alone, with the fences of a contract */
  bool holds;             /* act and gout are in memory of the model, not in block */
  struct PrContract *contract; /* contract.c; NULL: no checks */
  void **slot;    /* [nslot] */
  uint64_t *slot_bytes; /* [nslot] bytes of slots of class BUFFER */
  void **listed;  /* [nlist] the slots of PipeRank.list, then the inputs of each R with several */
  PrCall *call;   /* operands of the ops of one action, the largest */
  void *work;
  double *lost; /* losses that the Rs of an action compute again; discarded */
  PrSpan *span; /* ring of trace_slots steps, [ninstr] each; NULL without trace */
  PrSpan *view; /* trace.c: the kept steps, oldest first */
  PrRun *run;
} RankRun;

typedef struct Kept { uint64_t at, bytes; } Kept;

typedef struct StageRun {
  PrSizes size;
  void *weight, *grad, *opt; /* weight: the newest version between steps */
  /* States of formulas (PipeStage.states), one after the other, each rounded up; NULL: none. */
  void *state;
  /* [nmb] With slices: the stash of each unit, from mb0 on. act: as the forwards of later slices
   * see it; back: as R, B and I see it. */
  void **act, **back;
  uint64_t keep;      /* bytes that a recomputed forward keeps */
  const Kept *kept;   /* [nin] its parts: the inputs */
  uint32_t nupdate; /* updates in a step; of rows of other processes only after ck_see_rows */
  bool left;        /* a step leaves gradients that no update has applied; likewise */
  /* After a resume, which may be from another program: the updates that pr_updates_before adds to
   * those of this program's steps. May wrap. */
  uint64_t resumed;
  /* number among the stages of the model without output; PIPE_NONE: it has outputs */
  uint32_t sink;
} StageRun;

enum { PR_TEXT = 1024 };

/* fault.c: the fault that PIPE_FAULT requests. */
typedef enum PrFaultKind {
  PR_NO_FAULT,
  PR_CRASH,
  PR_HANG,
  PR_SLOW,
  PR_DROP,
  PR_CORRUPT
} PrFaultKind;
typedef enum PrFaultPoint { PR_AT_INSTRUCTION, PR_AT_SAVE, PR_AT_COMMIT } PrFaultPoint;
typedef struct PrFault {
  PrFaultKind kind;
  PrFaultPoint point;
  uint32_t rank, index, ms; /* index: in the list of the rank */
  uint64_t step;
} PrFault;

/* The functions of an engine. All but `steps` may be NULL. */
struct PrEngine {
  const char *name;
  PrStatus (*join)(PrRun *run); /* called first: sets run->here, the rank of this process */
  /* Called once the memory of the ranks of this process exists: initializes ranks (pr_init_rank)
   * and starts threads. */
  PrStatus (*open)(PrRun *run);
  PrStatus (*steps)(PrRun *run, uint64_t n);
  void (*wake)(PrRun *run);     /* the run has failed: wakes every sleeping thread */
  void (*close)(PrRun *run);    /* called after any of the others, even if they failed */
  /* Returns st, or the failure of another process; returns in all processes once the last has
   * called it. */
  PrStatus (*agree)(PrRun *run, PrStatus st);
  /* broadcasts from `rank` */
  PrStatus (*share)(PrRun *run, uint32_t rank, void *data, uint64_t bytes);
  /* Allocates zeroed memory for tensors: of the device of the ranks, or of the host (host = 1)
   * where the device can access it. NULL: tensors are in memory of the process, and give, fetch and
   * store are unused. */
  void *(*take)(PrRun *run, uint64_t bytes, bool host);
  void (*give)(PrRun *run, void *p, bool host);
  /* Copies from such memory to memory of the process. */
  PrStatus (*fetch)(PrRun *run, void *to, const void *from, uint64_t bytes);
  /* Copies from memory of the process to such memory, between steps. */
  PrStatus (*store)(PrRun *run, void *to, const void *from, uint64_t bytes);
  /* Sets the number of the next step; no step has run yet. */
  void (*rewind)(PrRun *run, uint64_t step);
  /* A checkpoint takes too long. True: all processes have been asked for their place and will fail
   * soon (pr_fail_checkpoint). Called on a thread of its own; never waits. */
  bool (*late)(PrRun *run);
  /* Called repeatedly on that thread during a checkpoint: fails the run if another process has
   * failed, or once all have been asked; extends the patience of a wait (PrGroup.extend). NULL:
   * the engine needs neither. */
  void (*look)(PrRun *run);
  /* The rest belongs to engines whose ranks the interpreter executes (interpret.h); else NULL.
   * Begins instruction i of the head of c, which may begin now: moves a tensor, adds up gradients
   * or calls the model, at once or on another thread, and then calls pr_over. Never waits for
   * another rank. */
  void (*begin)(PrRun *run, CommRun *c, uint32_t i, CommRun **todo);
  /* Executes a COPY instruction on the thread of the copier, if pr_copy does not suffice; or
   * NULL. */
  PrStatus (*copy)(PrRun *run, RankRun *k, const CopyAt *at, uint64_t step);
  /* Rank k has executed all instructions of a step: waits as the end of a step requires, reports
   * the step, and counts it (RankRun.step). */
  void (*end_step)(PrRun *run, RankRun *k, uint64_t step);
};

struct PrRun {
  const PrEngine *engine;
  void *of_engine;      /* data of the engine; owned by it */
  uint32_t here;        /* the rank of this process; PIPE_NONE: all ranks */
  uint32_t nprocess;    /* processes of the run; 1 without `join` */
  /* The lists are written out, except in a process of one rank, where they are as emitted;
   * RankRun.t has the known ones. */
  const PipeProgram *p;
  PipeProgram *written_out; /* lists.c: p, or the result of pr_see_all; NULL: none */
  PipeRank own;             /* lists.c: tables of rank `here`; without a list: p has it */
  bool sees_all;            /* the lists and streams of all ranks exist */
  PrModel m;
  PrOptions o;
  StageRun *stage;      /* [nstage] */
  uint32_t *rank_stage; /* [nstage] rows by rank: the arrays of RankRun.stage */
  RankRun *rank;        /* [nrank] */
  Chan *chan; /* if all ranks are in this process; else NULL */
  uint32_t ncoll;
  Coll *coll;           /* [ncoll] REDUCE of each stage of the model [nmodel], then the ties */
  void *coll_block;     /* the arrays of coll */
  uint32_t loss_rank;   /* rank of the last stage */
  uint32_t nsink;       /* stages of the model without output */
  bool free_running;    /* requested and possible */
  double *loss[2];      /* [nsink * nmb] by unit; step n writes loss[n & 1] */
  /* [microbatches] With on_loss: losses of a microbatch that are still missing; step n uses left[n
   * & 1]. */
  _Atomic uint32_t *left[2];
  void **act;           /* with slices: the arrays of StageRun.act and back */
  Kept *kept;           /* the arrays of StageRun.kept */
  uint64_t loss_steps;  /* steps with complete losses */
  PrFault fault;
  uint64_t limit_ns;    /* deadline of a step */
  bool sees_rows;       /* StageRun.nupdate and .left are those of all processes' rows */
  uint64_t first_step;  /* first step that this run executes; > 0 after a resume */
  /* checkpoint.h: folders that this run writes checkpoints to, and their locks. */
  struct CkFolder *ck_folder; uint32_t nck_folder;
  struct CkLock *ck_lock; uint32_t nck_lock;
  _Atomic uint32_t ck_at; /* checkpoint.h */
  uint64_t epoch_ns;    /* time 0 of spans */
  uint64_t trace_slots; /* steps in each ring */
  uint64_t view_end;    /* trace.c: step after the last in the views; 0: no views */

  _Atomic int status; /* PrStatus of the failure that stopped the run */
  _Atomic int has_text;
  pthread_mutex_t lock; /* protects text, idle */
  pthread_cond_t cond;
  char text[PR_TEXT];
  char note[PR_TEXT]; /* text of pr_note */

  /* interpret.c */
  _Atomic uint64_t target; /* steps to be finished */
  uint32_t nthread; /* threads that `live` counts */
  _Atomic bool quit;
  bool idle, opened; /* idle: all threads rest; opened: engine->open has been called */
  _Alignas(PR_LINE) _Atomic uint64_t live; /* threads awake, + 2^32 for each that has finished */
  _Alignas(PR_LINE) _Atomic uint64_t arrived;  /* ranks at the end of a step, over all steps */
  _Alignas(PR_LINE) _Atomic uint64_t released; /* steps that all ranks have finished */
};

/* Bytes accounted for a tensor of n bytes. */
static inline uint64_t pr_round(uint64_t n) { return (n + PR_LINE - 1) / PR_LINE * PR_LINE; }

/* Bytes of a slot of class cls, for a row of the stage table; skip: as in PipePool. */
static inline uint64_t pr_class_bytes(const PrRun *run, uint32_t stage, uint32_t cls,
                                      uint32_t skip) {
  const PrSizes *z = &run->stage[stage].size;
  switch ((PipeClass)cls) {
  case PIPE_ACT:
  case PIPE_HOST:
  case PIPE_GUEST: return z->act;
  case PIPE_GOUT: return z->gout;
  case PIPE_WEIGHT:
  case PIPE_GUESS: return z->weight;
  case PIPE_KEEP: return run->stage[stage].keep;
  default: return skip ? z->edge : z->boundary;
  }
}

/* Records the first error and stops the run; returns st. PR_E_IO does not stop the run. */
PrStatus pr_fail(PrRun *run, PrStatus st, const char *fmt, ...) PR_PRINTF(3, 4);

/* Writes "0SEND_F1 (x.pipe:7:3)". */
enum { PR_WHERE = 160 };
const char *pr_where(const PrRun *run, const PipeInstr *c, char buf[PR_WHERE]);

uint64_t pr_now(void); /* ns, CLOCK_MONOTONIC */
void pr_nap(uint64_t ns);

/* The other side of SEND or RECV c: returns its op, sets its stage (PIPE_NONE at an end of the
 * chain). */
PipeOp pr_partner(const PipeProgram *p, const PipeInstr *c, uint32_t *stage);

/* lists.c. Writes out the lists of the ranks of this process, if they are rows, and validates the
 * program or checks its hash. The caller then sets RankRun.t to run->own if that has a list, else
 * to the row of run->p. */
PrStatus pr_take_lists(PrRun *run);
void pr_give_lists(PrRun *run);
/* Borrows the tables of any rank, with its list; pr_return_list gives them back. */
PrStatus pr_borrow_list(PrRun *run, uint32_t r, PipeRank *out);
void pr_return_list(const PrRun *run, uint32_t r, PipeRank *list);
/* The program with the lists of all ranks, which are then kept: for repeated looks at other ranks,
 * after a failure or at the end of a run. NULL: no memory. */
const PipeProgram *pr_see_all(PrRun *run);

/* model.c: checks the model and fills in run->stage[].size. PR_OK, or PR_E_ARG, PR_E_SIZE or
 * PR_E_MODEL with the text set. */
PrStatus pr_check_model(PrRun *run);

/* Counts the microbatches that each U applies, over all replicas of its stage, and fills in
 * ComputeAt.applied. Requires streams. */
PrStatus pr_count_updates(PrRun *run);
/* Updates of a row of the stage table before a step, over the whole training. */
uint64_t pr_updates_before(const PrRun *run, uint32_t row, uint64_t step);
/* Makes the operands of one op; accesses no tensor. lost: receives the loss of an R. */
PrCall pr_call_of(PrRun *run, RankRun *k, const ComputeAt *at, uint64_t step, double *lost);
/* Calls the model for one op, or for an action of n > 1 ops. */
int pr_call_model(const PrModel *m, const PrCall *a, uint32_t n);
/* kept_inputs.c. pr_size_keeps: how much each row keeps of the inputs of a recomputed forward;
 * requires sizes. pr_count_kept: pointers that the Rs of a rank need, after those of its list.
 * pr_point_kept: sets them; requires slots. pr_keep_inputs: copies the inputs, before the forward
 * is called. */
PrStatus pr_size_keeps(PrRun *run);
uint32_t pr_count_kept(const PrRun *run, const RankRun *k);
void pr_point_kept(PrRun *run, RankRun *k);
void pr_keep_inputs(const PrRun *run, const RankRun *k, const PipeInstr *c, const PrCall *a);

/* Instruction i of a stream. */
static inline CommAt *pr_comm_at(const CommRun *c, uint32_t i) {
  return &c->k->comm[c->place[i]];
}
static inline const PipeInstr *pr_comm_instr(const CommRun *c, uint32_t i) {
  return &c->k->t->instr[pr_comm_at(c, i)->index];
}

/* The queue of COMM stream number i of a rank, among the queues of this rank alone. */
static inline uint32_t pr_comm_queue(uint32_t i) {
  return i == 0 ? (uint32_t)PIPE_COMM : PIPE_NSTREAMS + i - 1;
}

static inline const CommRun *pr_comm_stream(const RankRun *k, uint32_t queue) {
  return &k->stream[queue == PIPE_COMM ? 0 : queue - PIPE_NSTREAMS + 1];
}

/* The count that a wait needs in `step`; whether it has been reached. */
static inline uint64_t pr_needed(const Need *need, uint64_t step) {
  return step * need->each + need->count;
}
static inline bool pr_is_met(const Need *need, uint64_t step) {
  return atomic_load_explicit(need->done, memory_order_acquire) >= pr_needed(need, step);
}
/* True if all waits of a row are met in `step`. */
bool pr_is_ready(const RankRun *k, uint32_t row, uint64_t step);

/* Length of the prefix of COMM, in list order, that has completed; *of: the stream of the
 * instruction after it. */
uint32_t pr_comm_prefix(const RankRun *k, uint64_t step, const CommRun **of);

/* pr_take_streams splits the lists of the ranks of this process into streams and, if these are all
 * ranks, finds the channels. pr_take_sums finds the members of sums, and pr_take_stashes the places
 * of stashes; both require memory. PR_OK or PR_E_MEMORY. */
PrStatus pr_take_streams(PrRun *run);
bool pr_take_streams_of(PrRun *run, RankRun *k); /* of one rank; false: no memory */
void pr_give_streams(RankRun *k);
PrStatus pr_take_sums(PrRun *run);
PrStatus pr_take_stashes(PrRun *run);

/* Executes instruction `at` of COMPUTE, or the whole action if `at` is its first and the model
 * takes whole actions. *n: instructions executed. */
PrStatus pr_compute(PrRun *run, RankRun *k, const ComputeAt *at, uint64_t step, uint32_t *n);

/* weights.c: the arrays that formulas read. pr_state: state j of a row, stored after the lower
 * states of its mask. pr_find_arrays: moments and states of a row by PipeElem, if they exist. */
enum { PR_ARRAYS = PIPE_ELEM_STATE + 32 };
float *pr_state(const PrRun *run, uint32_t stage, uint32_t j);
void pr_find_arrays(const PrRun *run, uint32_t stage, const float *elem[PR_ARRAYS]);
/* weights.c: pr_estimate makes the estimate that an F, B, I or R sees instead of its version; the
 * others evaluate the formulas around a U. */
void pr_estimate(PrRun *run, RankRun *k, const PipeInstr *c, const PipeWeights *w, PrCall *a);
void pr_before_update(PrRun *run, RankRun *k, const PipeInstr *c, const PipeWeights *w, PrCall *a);
void pr_after_update(PrRun *run, RankRun *k, const PipeInstr *c, const PipeWeights *w,
                     const PrCall *a);

/* Executes one instruction of the COPY stream. */
PrStatus pr_copy(PrRun *run, RankRun *k, const CopyAt *at, uint64_t step);

/* Executes a SIDE of a COMM or COPY stream. */
PrStatus pr_side(PrRun *run, RankRun *k, uint32_t index, uint64_t step);

/* Fails the run: RECV c of `rank` received other data than was sent. */
PrStatus pr_damaged(PrRun *run, uint32_t rank, const PipeInstr *c, uint64_t step);

/* pr_mispaired fails the run: SEND a of rank src met RECV b of rank dst, with different tensors.
 * pr_are_ends: true if a and b are the two sides of one transfer. */
PrStatus pr_mispaired(PrRun *run, uint32_t src, const PipeInstr *a, uint64_t src_step, uint32_t dst,
                      const PipeInstr *b, uint64_t dst_step);
bool pr_are_ends(const PipeProgram *p, const PipeInstr *a, const PipeInstr *b);

/* Compares the two posts of a transfer and copies the tensor. */
PrStatus pr_transfer(PrRun *run, const Chan *ch);

/* Executes a REDUCE or TIE of this process that all members have reached; l->index has their
 * instructions. */
PrStatus pr_sum(PrRun *run, const Coll *l, uint64_t step);
/* Adds up `bytes` bytes at grad[0 .. ngrad - 1]: whole gradients, or a piece of each. */
PrStatus pr_add(PrRun *run, const Coll *l, void *const *grad, uint64_t bytes, uint64_t step);

/* The place of a rank: how far it is. A plain value, which processes exchange. */
typedef enum PrCondition { PR_ANSWERS, PR_IS_SILENT, PR_IS_GONE } PrCondition;
typedef struct PrPlace {
  uint64_t step, compute, comm, copy; /* steps finished; instructions completed over all steps */
  uint64_t running_ns;                /* how long the current callback has been running */
  uint32_t running;                   /* as in RankRun */
  uint64_t group_done;                /* as in RankRun */
  uint32_t posted, condition;         /* PrCondition */
  uint32_t checkpoint;                /* PrRun.ck_at */
} PrPlace;

void pr_place(const PrRun *run, uint32_t r, PrPlace *out);

/* Writes the first fault, its peer and their places in the .pipe text. False: unknown. */
bool pr_blame(PrRun *run, const PrPlace *place, char *text, size_t room);

/* As pr_blame, for the ranks of one process, which may still run. */
bool pr_blame_threads(PrRun *run, char *text, size_t room);

/* The words of every report. pr_tell_waiting: transfer or sum c of rank r waits for `other` on rank
 * q; lost: which is over there. pr_tell_absent: rank r has gone, or does not answer. */
int pr_tell_waiting(const PrRun *run, uint32_t r, const PipeInstr *c, uint32_t q,
                    const PipeInstr *other, bool lost, char *text, size_t room);
int pr_tell_absent(PrCondition is, uint32_t r, char *text, size_t room);

/* checkpoint_watch.c: fails with PR_E_DEADLINE, or PR_E_LOST if a process is gone, and names the
 * rank that delays the checkpoint. at[nrank]; NULL: only the state of this process is known.
 * Returns the status. */
PrStatus pr_fail_checkpoint(PrRun *run, const PrPlace *at);

/* Fails with PR_E_STALL and what pr_blame finds. Only the calling thread may be awake. */
PrStatus pr_report_stall(PrRun *run);

/* With on_loss: a forward has written its part of the loss of mb; calls on_loss after the last
 * part. */
void pr_tell_loss(PrRun *run, uint64_t step, uint32_t mb);

/* Every op of the step is done: marks its losses as final and calls on_step. */
void pr_step_done(PrRun *run, uint64_t step);

/* memory.c: allocates all memory of the rank, and frees it. Requires streams. */
PrStatus pr_take_memory(PrRun *run, RankRun *k);
void pr_give_memory(PrRun *run, RankRun *k);

/* Zeroes the memory of the rank and calls PrModel.init for its stages. */
PrStatus pr_init_rank(PrRun *run, RankRun *k);

/* The deadline of a step in ns (PrOptions.deadline_s), from its predicted time. */
uint64_t pr_limit(const PrRun *run, uint64_t predicted_ns);

/* The span of instruction `index` in `step`. Requires k->span. */
static inline PrSpan *pr_span(const PrRun *run, const RankRun *k, uint64_t step, uint32_t index) {
  return &k->span[step % run->trace_slots * k->t->ninstr + index];
}

/* trace.c: broadcasts the spans of all ranks after the steps of a call of pr_steps. Every process
 * calls it. */
PrStatus pr_share_trace(PrRun *run);

/* contract.c: checks of the model if the environment requests them; else k->contract stays NULL and
 * the other functions do nothing. */
PrStatus pr_take_contract(PrRun *run, RankRun *k);
void pr_give_contract(RankRun *k);
/* Bytes of a buffer of the rank: pr_round(bytes) and the fence after it. at: its address; NULL:
 * only count. stage: PIPE_NONE: of the rank. */
uint64_t pr_room(const RankRun *k, char *at, uint64_t bytes, const char *what, uint32_t stage);
void pr_fill_fences(const RankRun *k);
PrStatus pr_check_fences(PrRun *run, const RankRun *k, const char *where);
/* Check the model before and after the n ops c of an action. */
void pr_before_ops(const PrRun *run, const RankRun *k, const PipeInstr *c, uint32_t n);
PrStatus pr_after_ops(PrRun *run, const RankRun *k, const PipeInstr *c, uint32_t n, uint64_t step);
/* The checksum of the PR_LINE bytes behind each operand of a sum, or behind a piece of it; 0
 * without a contract. */
uint64_t pr_sum_behind(const RankRun *k, const Coll *l, void *const *grad, uint64_t bytes);

/* Reads PIPE_FAULT. PR_E_ARG: the fault does not fit this program. */
PrStatus pr_fault_read(PrRun *run);

/* Call it before an instruction begins. Executes crash, hang and slow; returns drop and corrupt to
 * the caller, which executes them. */
PrFaultKind pr_fault_meet(PrRun *run, uint32_t rank, uint32_t index, uint64_t step);
static inline PrFaultKind pr_fault_at(PrRun *run, uint32_t rank, uint32_t index, uint64_t step) {
  return run->fault.kind ? pr_fault_meet(run, rank, index, step) : PR_NO_FAULT;
}
/* True if this fault is planted at this instruction; for drop and corrupt. */
static inline bool pr_fault_is(const PrRun *run, PrFaultKind kind, uint32_t rank, uint32_t index,
                               uint64_t step) {
  const PrFault *f = &run->fault;
  return f->kind == kind && f->point == PR_AT_INSTRUCTION && f->rank == rank && f->index == index &&
         f->step == step;
}
/* Call it when rank `rank` reaches SAVE or COMMIT. */
void pr_fault_meet_point(PrRun *run, PrFaultPoint point, uint32_t rank);

/* True if this process executes rank r. */
static inline bool pr_is_here(const PrRun *run, uint32_t r) {
  return run->here == PIPE_NONE || run->here == r;
}

static inline bool pr_failed(const PrRun *run) { return atomic_load(&run->status) != PR_OK; }

/* Bytes that a SEND or RECV transfers. */
uint64_t pr_moved_bytes(const PrRun *run, const PipeInstr *c);

#endif
