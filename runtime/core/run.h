/* SPDX-License-Identifier: MIT
 * What the parts of the runtime share; not installed.
 *
 *   lists.c        the lists of the ranks, written out
 *   run.c          errors, the clock, what anybody may ask of a run
 *   ops.c          one op, one copy, one transfer, one sum
 *   memory.c       the memory of a rank
 *   find_streams.c the streams, channels and sums of a table
 *   interpret.c    the interpreter: what is next, and what it waits for
 *   model.c        whether the model fits the program
 *   loss.c         losses of microbatches
 *   updates.c      how many microbatches each update applies
 *   weights.c      formulas around the model's callbacks
 *   kept_inputs.c  what a forward that is recomputed keeps
 *   turns.c        COPY streams that take turns
 *   contract.c     checks of what a model promises
 *   trace.c        spans, and what is measured from them
 *   stall.c        why no rank can go on: the wait cycle
 *   blame.c        what was first, where each rank is known
 *   fault.c        faults on request
 *   optim.c        optimizers, for models
 *
 * Counts of completed instructions are absolute: they go on from step to step. Those of step n of a
 * stream of length len begin at n * len, so nothing is reset that another thread may look at. */
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

enum { PR_LINE = 64 }; /* alignment of every tensor; bytes are accounted in these units */

/* An instruction of one stream: its row of PipeRank.instr, and what only that stream needs. */
typedef struct ComputeAt {
  uint32_t index;
  uint32_t first_grad; /* of PrCall */
  uint32_t applied;    /* the same */
  uint32_t updates;    /* U of its stage above it */
  uint32_t kept;       /* R of several inputs: where they begin in RankRun.listed */
  uint32_t recomputed; /* of PrCall */
} ComputeAt;

typedef struct CopyAt {
  uint32_t index;
} CopyAt;

typedef struct CommAt {
  uint32_t index;
  uint32_t chan; /* row of PrRun.chan; REDUCE, TIE: of PrRun.coll */
} CommAt;

/* A FIFO of COMM instructions: the COMM stream of a rank, or, with lowering CHANNELS, one of its
 * channels. The fields "owned" belong to whoever advances it; see interpret.h. */
typedef struct CommRun {
  /* Written by whoever completes an instruction of it. */
  _Alignas(PR_LINE) _Atomic uint64_t done;
  _Atomic uint32_t posted;    /* 1: the head has begun */
  _Atomic uint64_t wait;      /* compute_done that the head waits for; 0: it does not */
  _Atomic uint64_t wait_copy; /* the same of copy_done */
  /* Owned. */
  _Alignas(PR_LINE) uint32_t next; /* of a group the first */
  /* bit j: transfer j of the head is done while others of its group are not */
  _Atomic uint64_t group_done;
  /* instructions of the head that are not over, and 1 while some of a group are being begun */
  _Atomic uint32_t group_left;
  bool active; /* has instructions of this step left */
  uint64_t step;
  struct CommRun *todo;
  /* Constant after pr_open. */
  struct RankRun *k;
  const uint32_t *place; /* [n] places in RankRun.comm; NULL: it is all of that */
  uint32_t n, number;    /* of those of its rank */
} CommRun;

/* `count` instructions of stream number `stream` of the rank must be completed. */
typedef struct CommNeed {
  uint32_t stream, count;
} CommNeed;

/* One side of a transfer, ready to start. */
typedef struct Post {
  const PipeInstr *c;
  uint32_t rank;
  bool corrupt; /* one bit of the payload arrives changed: fault.c */
  uint64_t step;
  uint32_t at; /* place in the stream */
  CommRun *stream;
} Post;

/* A directed pair of ranks; with lowering CHANNELS a channel of it. Each side has at most one post:
 * streams are FIFO, and of a group that has several transfers there one is posted after the other.
 * `state` has bit 0 set once the sender has posted and bit 1 once the receiver has. */
typedef struct Chan {
  _Alignas(PR_LINE) _Atomic uint32_t state;
  uint32_t src, dst;
  CommRun *end[2]; /* streams that send, that receive */
  Post post[2];
} Chan;

/* A REDUCE or TIE: the rows whose ranks take part, and the gradients that it adds up. */
typedef struct Coll {
  _Alignas(PR_LINE) _Atomic uint32_t arrived; /* members whose COMM stream has come to it */
  uint32_t n;
  uint32_t *row;         /* [n] rows of the stage table, ascending */
  CommRun **at;          /* [n] the streams that it is in */
  uint32_t *index;       /* [n] the one at hand: rows of their ranks' lists */
  /* [ngrad] of the replicas; of a tie that of the first row of each stage. NULL: in another
   * process, and so in `copy` */
  void **grad;
  uint32_t *stage;       /* [ngrad] of the model */
  uint32_t *grad_row;    /* [ngrad] whose gradient it is */
  uint32_t ngrad;
  void **copy;           /* [ncopy] of a tie: of its other rows */
  uint32_t *copy_row;    /* [ncopy] */
  uint32_t ncopy;
  bool tie;
} Coll;

/* Ranks whose COPY streams take turns. Turns are counted on from step to step. */
typedef struct Turns {
  _Alignas(PR_LINE) _Atomic uint64_t done;
  uint32_t n;     /* of a step */
  uint32_t *rank; /* [n] whose each turn is; its own */
} Turns;

/* A rank. */
typedef struct RankRun {
  /* Written by whoever completes a transfer of this rank. */
  /* what the rank's thread sleeps for, 0 when it does not */
  _Alignas(PR_LINE) _Atomic uint64_t sleep_on;
  /* Written by the rank's copier, a thread that only ranks with COPY instructions have. */
  _Alignas(PR_LINE) _Atomic uint64_t copy_done;
  _Atomic uint64_t copy_needs[4]; /* what the copier needs before it goes on: steps begun,
                                     instructions done of COMPUTE and COMM, turns done */
  /* Written by whoever wakes the copier, or it wakes itself. */
  _Atomic uint32_t copy_sleeps;
  /* Written by the rank's own thread. */
  _Alignas(PR_LINE) _Atomic uint64_t compute_done;
  _Atomic uint64_t copy_begun; /* steps whose COPY instructions may start */
  _Atomic uint64_t step;       /* steps finished */
  _Atomic uint64_t step_start; /* ns; UINT64_MAX when in no step */
  _Atomic uint32_t running;    /* 1 + row of the op that is in a callback, 0 when none is */
  _Atomic uint64_t running_since; /* ns */
  uint32_t spin; /* how often to look before sleeping; 0 with fewer cores than ranks */
  /* Constant after pr_open. */
  /* its tables; the list is there (t->rows is NULL) of ranks of this process, and of all after
   * pr_see_all. So are the counts, streams and places below */
  _Alignas(PR_LINE) const PipeRank *t;
  uint32_t id, ncompute, ncomm, ncopy, nstage;
  Turns *turns;          /* of its group; NULL: it is in none */
  const uint32_t *stage; /* [nstage] its rows of the stage table, ascending */
  ComputeAt *compute;
  CommAt *comm;   /* in list order */
  CopyAt *copy;
  /* what carries out comm: one, or its channels in the order of their first use */
  CommRun *stream; uint32_t nstream;
  /* with lowering CHANNELS: what instruction i of COMPUTE, of COPY needs is need[need0[x][i]] ..
   * need[need0[x][i + 1] - 1]; else NULL, and its wait says it */
  uint32_t *need0[2]; CommNeed *need;
  uint32_t side_stream;   /* number of the one that has its side ops; PIPE_NONE: there is none */
  uint32_t *place;        /* of CommRun.place */
  char *block;    /* every tensor of the rank but those of class HOST */
  char *host;     /* those; NULL: none */
  uint64_t bytes, host_bytes; /* of block and what the model holds; of host */
  uint64_t block_bytes;   /* of block alone, with the fences of a contract */
  bool holds;             /* the model holds act and gout: they have no room in block */
  struct PrContract *contract; /* contract.c; NULL: not checked */
  void **slot;    /* [nslot] */
  uint64_t *slot_bytes; /* [nslot] of class BUFFER */
  void **listed;  /* [nlist] those of PipeRank.list; then the inputs of each R that has several */
  PrCall *call;   /* room for those of the largest action */
  void *work;
  double *lost; /* the losses that the Rs of an action compute again */
  PrSpan *span; /* ring of trace_slots steps, [ninstr] each; NULL without trace */
  PrSpan *view; /* trace.c: the steps kept, oldest first */
  PrRun *run;
  sem_t sem, copy_sem;
  pthread_t thread, copier;
  bool has_sem, has_thread, has_copy_sem, has_copier;
} RankRun;

typedef struct Kept { uint64_t at, bytes; } Kept;

typedef struct StageRun {
  PrSizes size;
  void *weight, *grad, *opt; /* weight: where the newest version is between steps */
  void *state;           /* of PipeStage.states, one after the other, each rounded up; NULL: none */
  /* [nmb] with slices: the stash of each unit, from mb0 on, as the forward of those behind it reads
   * it, and as R, B and I do */
  void **act, **back;
  uint64_t keep;      /* bytes of what a forward that is recomputed keeps */
  const Kept *kept;   /* [nin] of these its inputs */
  uint32_t nupdate; /* in a step; of rows here, */
  bool left;        /* as well: a step leaves gradients that no update has applied */
  uint32_t sink; /* number among the stages of the model without output; PIPE_NONE */
} StageRun;

enum { PR_TEXT = 1024 };

/* fault.c: the fault that PIPE_FAULT asks for. */
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
  uint32_t rank, index, ms; /* index: of its list */
  uint64_t step;
} PrFault;

/* The engines. All but `steps` may be NULL. */
struct PrEngine {
  const char *name;
  PrStatus (*join)(PrRun *run); /* before all else: of which rank is this process (run->here)? */
  PrStatus (*open)(PrRun *run); /* the memory of the ranks here is there: pr_init_rank, threads */
  PrStatus (*steps)(PrRun *run, uint64_t n);
  void (*wake)(PrRun *run);     /* the run has failed: nobody may sleep on */
  void (*close)(PrRun *run);    /* after any of the others, also if they failed */
  /* st, or the failure of another process; all return at once when the last has come. */
  PrStatus (*agree)(PrRun *run, PrStatus st);
  PrStatus (*share)(PrRun *run, uint32_t rank, void *data, uint64_t bytes); /* from rank to all */
  /* The memory of tensors, all zero: that of the ranks' device, or of the host where a device
   * reaches it. take is NULL: the process's own, of which nothing below is asked. */
  void *(*take)(PrRun *run, uint64_t bytes, bool host);
  void (*give)(PrRun *run, void *p, bool host);
  /* to memory of the process */
  PrStatus (*fetch)(PrRun *run, void *to, const void *from, uint64_t bytes);
  /* and from it, between steps */
  PrStatus (*store)(PrRun *run, void *to, const void *from, uint64_t bytes);
  void (*rewind)(PrRun *run, uint64_t step); /* no step has been run: the next one is `step` */
  /* A checkpoint takes too long. True: all processes are asked where they are, and fail soon
   * (pr_fail_checkpoint). On a thread of its own; never waits. */
  bool (*late)(PrRun *run);
  /* On the same thread, again and again while there is a checkpoint: if another process has failed,
   * or all have been asked, the run fails. NULL: it does so by itself. */
  void (*look)(PrRun *run);
  /* The rest is of an engine whose ranks the interpreter carries out (interpret.h), else NULL.
   * Number i of the head of c can begin: it moves a tensor, adds up gradients or calls the model,
   * at once or on another thread, and then calls pr_over. Never waits for another rank. */
  void (*begin)(PrRun *run, CommRun *c, uint32_t i, CommRun **todo);
  /* An instruction of COPY, on the thread of the copier, where it takes more than pr_copy; NULL. */
  PrStatus (*copy)(PrRun *run, RankRun *k, const CopyAt *at, uint64_t step);
  /* Rank k has done all of a step: waits for what it waits for at its end, tells of it, and counts
   * it (RankRun.step). */
  void (*end_step)(PrRun *run, RankRun *k, uint64_t step);
};

struct PrRun {
  const PrEngine *engine;
  void *of_engine;      /* what it keeps; its own */
  uint32_t here;        /* the rank of this process, PIPE_NONE: all are here */
  uint32_t nprocess;    /* 1 without `join` */
  /* the lists are written out, but in a process of one rank: there they are as emitted, and each
   * RankRun.t has those that are known */
  const PipeProgram *p;
  PipeProgram *written_out; /* lists.c: p, or for pr_see_all; NULL */
  PipeRank own;             /* lists.c: of rank `here`; no list: p has it */
  bool sees_all;            /* the lists and streams of all ranks are there */
  PrModel m;
  PrOptions o;
  StageRun *stage;      /* [nstage] */
  uint32_t *rank_stage; /* [nstage] all rows, by rank: of RankRun.stage */
  RankRun *rank;        /* [nrank] */
  Chan *chan; /* where all ranks are here; else NULL */
  uint32_t ncoll;
  Coll *coll;           /* [ncoll]: [nmodel] REDUCE of each stage; then the ties */
  void *coll_block;     /* of their arrays */
  Turns *turns;         /* [ngroup]; of groups without a rank here n is 0 */
  uint32_t loss_rank;   /* has the last stage */
  uint32_t nsink;       /* stages without output */
  bool free_running;    /* as asked for, and possible */
  double *loss[2];      /* [nsink * nmb], by unit; step n writes loss[n & 1] */
  /* with on_loss, [microbatches]: of these losses of a microbatch, still to come */
  _Atomic uint32_t *left[2];
  void **act;           /* with slices: of StageRun.act and back */
  Kept *kept;           /* of StageRun.kept */
  uint64_t loss_steps;  /* steps whose losses are complete */
  PrFault fault;
  uint64_t limit_ns;    /* of a step */
  uint64_t first_step;  /* that this run carries out: not 0 once it has resumed */
  /* those that this run writes checkpoints to: checkpoint.h */
  struct CkFolder *ck_folder; uint32_t nck_folder;
  struct CkLock *ck_lock; uint32_t nck_lock;
  _Atomic uint32_t ck_at; /* checkpoint.h */
  uint64_t epoch_ns;    /* what spans count from */
  uint64_t trace_slots; /* of each ring */
  uint64_t view_end;    /* trace.c: step after the last in the views; 0 for none */

  _Atomic int status; /* PrStatus of the failure that stops the run */
  _Atomic int has_text;
  pthread_mutex_t lock; /* text, idle */
  pthread_cond_t cond;
  char text[PR_TEXT];
  char note[PR_TEXT]; /* pr_note */

  /* interpret.c */
  _Atomic uint64_t target; /* steps that are to be finished */
  uint32_t nthread; /* those of live */
  _Atomic bool quit;
  bool idle, opened; /* idle: all threads rest; opened: engine->open has been called */
  _Alignas(PR_LINE) _Atomic uint64_t live;     /* threads awake, + 2^32 for each that is done */
  _Alignas(PR_LINE) _Atomic uint64_t arrived;  /* at the end of a step, over all steps */
  _Alignas(PR_LINE) _Atomic uint64_t released; /* steps that all ranks have finished */
};

/* Bytes that a tensor of n bytes is accounted with. */
static inline uint64_t pr_round(uint64_t n) { return (n + PR_LINE - 1) / PR_LINE * PR_LINE; }

/* Bytes of what a slot of class cls holds, for a row of the stage table; skip: of PipePool. */
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

/* Records the first error and stops the run; returns st. PR_E_IO leaves the run usable. */
PrStatus pr_fail(PrRun *run, PrStatus st, const char *fmt, ...) PR_PRINTF(3, 4);

/* Writes "0SEND_F1 (x.pipe:7:3)". */
enum { PR_WHERE = 160 };
const char *pr_where(const PrRun *run, const PipeInstr *c, char buf[PR_WHERE]);

uint64_t pr_now(void); /* ns, CLOCK_MONOTONIC */
void pr_nap(uint64_t ns);

/* The partner of SEND or RECV c: its op and stage, PIPE_NONE at an end of the chain. */
PipeOp pr_partner(const PipeProgram *p, const PipeInstr *c, uint32_t *stage);

/* lists.c. The lists of the ranks of this process, of a program that is one: RankRun.t is to be set
 * to run->own, or to the row of run->p. */
PrStatus pr_take_lists(PrRun *run);
void pr_give_lists(PrRun *run);
/* The tables of any rank, with its list, until they are returned. */
PrStatus pr_borrow_list(PrRun *run, uint32_t r, PipeRank *out);
void pr_return_list(const PrRun *run, uint32_t r, PipeRank *list);
/* The program with the lists of all ranks, which then stay: for what looks at others again and
 * again, when something has failed, or once a run has ended. NULL: no memory. */
const PipeProgram *pr_see_all(PrRun *run);

/* model.c: PR_OK, or PR_E_ARG or PR_E_SIZE with the text set. Fills in run->stage[].size. */
PrStatus pr_check_model(PrRun *run);

/* Once the streams are there: how many microbatches each U applies; the n-th of all replicas of a
 * stage are one. Fills in ComputeAt.applied. */
PrStatus pr_count_updates(PrRun *run);
/* What the callback of one op gets; touches no tensor. lost: where R puts its loss. */
PrCall pr_call_of(PrRun *run, RankRun *k, const ComputeAt *at, uint64_t step, double *lost);
/* Calls the model for one op, or an action of n > 1. */
int pr_call_model(const PrModel *m, const PrCall *a, uint32_t n);
/* kept_inputs.c: how much each row keeps of the inputs of a forward that is recomputed, once sizes
 * are known; how many pointers the Rs of a rank need, behind those of its list, and once there are
 * slots where they point; and the copy, before the call of its forward. */
PrStatus pr_size_keeps(PrRun *run);
uint32_t pr_count_kept(const PrRun *run, const RankRun *k);
void pr_point_kept(PrRun *run, RankRun *k);
void pr_keep_inputs(const PrRun *run, const RankRun *k, const PipeInstr *c, const PrCall *a);

/* The i-th instruction of a stream. */
static inline CommAt *pr_comm_at(const CommRun *c, uint32_t i) {
  return &c->k->comm[c->place ? c->place[i] : i];
}
static inline const PipeInstr *pr_comm_instr(const CommRun *c, uint32_t i) {
  return &c->k->t->instr[pr_comm_at(c, i)->index];
}

/* What instruction i of COMPUTE (copy 0) or COPY (1) needs of COMM; `wait`: that it has for it.
 * one: room. */
static inline const CommNeed *pr_needs(const RankRun *k, int copy, uint32_t i, uint32_t wait,
                                       CommNeed *one, uint32_t *n) {
  if (k->need) {
    *n = k->need0[copy][i + 1] - k->need0[copy][i];
    return &k->need[k->need0[copy][i]];
  }
  *n = wait > 0;
  *one = (CommNeed){0, wait};
  return one;
}

/* Are these completed in `step`? */
bool pr_has_comm(const RankRun *k, int copy, uint32_t i, uint32_t wait, uint64_t step);

/* How many instructions of COMM, in list order, are completed with all before them; *of: the stream
 * of the next. */
uint32_t pr_comm_prefix(const RankRun *k, uint64_t step, const CommRun **of);

/* Splits the lists of the ranks of this process into their streams, and if these are all finds the
 * channels; then, once memory has addresses, who takes part in the sums, and where stashes lie.
 * PR_OK or PR_E_MEMORY. */
PrStatus pr_take_streams(PrRun *run);
bool pr_take_streams_of(PrRun *run, RankRun *k); /* of one rank; false: no memory */
void pr_give_streams(RankRun *k);
PrStatus pr_take_sums(PrRun *run);
PrStatus pr_take_stashes(PrRun *run);

/* Carries out the instruction `at` of the COMPUTE stream; the first of an action and a model that
 * takes actions as a whole: all of them. *n: how many. */
PrStatus pr_compute(PrRun *run, RankRun *k, const ComputeAt *at, uint64_t step, uint32_t *n);

/* What formulas read, weights.c: state j of a row, which keeps those of its mask one after the
 * other; by PipeElem the moments and states of a row, where there are some. */
enum { PR_ARRAYS = PIPE_ELEM_STATE + 32 };
float *pr_state(const PrRun *run, uint32_t stage, uint32_t j);
void pr_find_arrays(const PrRun *run, uint32_t stage, const float *elem[PR_ARRAYS]);
/* Formulas, weights.c. The estimate that an F, B, I or R sees in place of its version; what
 * surrounds a U. */
void pr_estimate(PrRun *run, RankRun *k, const PipeInstr *c, const PipeWeights *w, PrCall *a);
void pr_before_update(PrRun *run, RankRun *k, const PipeInstr *c, const PipeWeights *w, PrCall *a);
void pr_after_update(PrRun *run, RankRun *k, const PipeInstr *c, const PipeWeights *w,
                     const PrCall *a);

/* Carries out one instruction of the COPY stream. */
PrStatus pr_copy(PrRun *run, RankRun *k, const CopyAt *at, uint64_t step);

/* Carries out a SIDE of a COMM or COPY stream. */
PrStatus pr_side(PrRun *run, RankRun *k, uint32_t index, uint64_t step);

/* What RECV c of `rank` has got is not what was sent. */
PrStatus pr_damaged(PrRun *run, uint32_t rank, const PipeInstr *c, uint64_t step);

/* SEND a of rank src meets RECV b of rank dst, and they are of two tensors; are they of one? */
PrStatus pr_mispaired(PrRun *run, uint32_t src, const PipeInstr *a, uint64_t src_step, uint32_t dst,
                      const PipeInstr *b, uint64_t dst_step);
bool pr_are_ends(const PipeProgram *p, const PipeInstr *a, const PipeInstr *b);

/* Both sides have posted: compares them and copies. */
PrStatus pr_transfer(PrRun *run, const Chan *ch);

/* All members have come to their REDUCE or TIE, which l->index says, in this process. */
PrStatus pr_sum(PrRun *run, const Coll *l, uint64_t step);
/* Adds up so many bytes at grad[0 .. ngrad - 1], all of its gradients or a piece of them. */
PrStatus pr_add(PrRun *run, const Coll *l, void *const *grad, uint64_t bytes, uint64_t step);

/* Where a rank is. A plain value, which processes send one another. */
typedef enum PrCondition { PR_ANSWERS, PR_IS_SILENT, PR_IS_GONE } PrCondition;
typedef struct PrPlace {
  uint64_t step, compute, comm, copy; /* finished; instructions completed over all steps */
  uint64_t running_ns;                /* how long the callback has been running */
  uint32_t running;                   /* as in RankRun */
  uint64_t group_done;                /* as in RankRun */
  uint32_t posted, condition;         /* PrCondition */
  uint32_t checkpoint;                /* PrRun.ck_at */
} PrPlace;

void pr_place(const PrRun *run, uint32_t r, PrPlace *out);

/* Writes what came first, with its peer and their places in the .pipe text. False: it cannot
 * tell. */
bool pr_blame(PrRun *run, const PrPlace *place, char *text, size_t room);

/* The same of the ranks of one process, which may go on meanwhile. */
bool pr_blame_threads(PrRun *run, char *text, size_t room);

/* checkpoint_watch.c: fails with PR_E_DEADLINE, or PR_E_LOST if a process has gone, and says which
 * rank of at[nrank] keeps the others from a checkpoint. NULL: all that is known is what this
 * process does. Returns that status. */
PrStatus pr_fail_checkpoint(PrRun *run, const PrPlace *at);

/* Fails with PR_E_STALL and the cycle. No thread but the caller's may be awake. */
PrStatus pr_report_stall(PrRun *run);

/* turns.c: fills in run->turns, once streams are known. */
PrStatus pr_take_turns(PrRun *run);
void pr_give_turns(PrRun *run);
/* Writes "; rank 1 has the next turn of its link, 1OFF2 (x.pipe:3:9)" of the first group that has
 * not had all of a step, or nothing. */
void pr_tell_turn(PrRun *run, char *text, size_t room);

/* With on_loss: a forward has left its part of the loss of mb; calls it if that was the last
 * one. */
void pr_tell_loss(PrRun *run, uint64_t step, uint32_t mb);

/* Every op of the step has been done: losses are final, on_step is called. */
void pr_step_done(PrRun *run, uint64_t step);

/* memory.c: takes all that the rank needs, once its streams are known, and gives it back. */
PrStatus pr_take_memory(PrRun *run, RankRun *k);
void pr_give_memory(PrRun *run, RankRun *k);

/* Zeroes the rank's memory and lets the model fill in weights. */
PrStatus pr_init_rank(PrRun *run, RankRun *k);

/* ns that a step may take (PrOptions.deadline_s), where such a time is predicted. */
uint64_t pr_limit(const PrRun *run, uint64_t predicted_ns);

/* Where the span of instruction `index` in `step` goes. Only if k->span. */
static inline PrSpan *pr_span(const PrRun *run, const RankRun *k, uint64_t step, uint32_t index) {
  return &k->span[step % run->trace_slots * k->t->ninstr + index];
}

/* contract.c: checks of the model, if the environment asks for them; else k->contract stays NULL
 * and the rest does nothing. */
PrStatus pr_take_contract(PrRun *run, RankRun *k);
void pr_give_contract(RankRun *k);
/* The room of a buffer of the rank: pr_round(bytes), and the fence behind it. at: where it is laid
 * out; NULL: it is only counted. stage: PIPE_NONE: of the rank. */
uint64_t pr_room(const RankRun *k, char *at, uint64_t bytes, const char *what, uint32_t stage);
void pr_fill_fences(const RankRun *k);
PrStatus pr_check_fences(PrRun *run, const RankRun *k, const char *where);
/* Before and after the n ops c of an action. */
void pr_before_ops(const PrRun *run, const RankRun *k, const PipeInstr *c, uint32_t n);
PrStatus pr_after_ops(PrRun *run, const RankRun *k, const PipeInstr *c, uint32_t n, uint64_t step);

/* Reads PIPE_FAULT; PR_E_ARG: it makes no sense for this program. */
PrStatus pr_fault_read(PrRun *run);

/* An instruction is about to begin: crash, hang and slow happen here, drop and corrupt are the
 * caller's. */
PrFaultKind pr_fault_meet(PrRun *run, uint32_t rank, uint32_t index, uint64_t step);
static inline PrFaultKind pr_fault_at(PrRun *run, uint32_t rank, uint32_t index, uint64_t step) {
  return run->fault.kind ? pr_fault_meet(run, rank, index, step) : PR_NO_FAULT;
}
/* Whether that fault is planted there: of drop and corrupt, which the caller carries out. */
static inline bool pr_fault_is(const PrRun *run, PrFaultKind kind, uint32_t rank, uint32_t index,
                               uint64_t step) {
  const PrFault *f = &run->fault;
  return f->kind == kind && f->point == PR_AT_INSTRUCTION && f->rank == rank && f->index == index &&
         f->step == step;
}
/* Rank `rank` has come to SAVE or COMMIT. */
void pr_fault_meet_point(PrRun *run, PrFaultPoint point, uint32_t rank);

/* Whether rank r is carried out by this process. */
static inline bool pr_is_here(const PrRun *run, uint32_t r) {
  return run->here == PIPE_NONE || run->here == r;
}

static inline bool pr_failed(const PrRun *run) { return atomic_load(&run->status) != PR_OK; }

/* Bytes that a SEND or RECV moves. */
uint64_t pr_moved_bytes(const PrRun *run, const PipeInstr *c);

extern const PrEngine pr_seeded;

#endif
