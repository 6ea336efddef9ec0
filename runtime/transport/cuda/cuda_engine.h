/* SPDX-License-Identifier: MIT
 * What the parts of the CUDA engine share; not installed.
 *
 *   cuda_open.c    the device, streams, events; memory; closing
 *   cuda_comms.c   communicators, the prologue
 *   cuda_issue.c   instructions
 *   cuda_edges.c   transfers by copy engines, between ranks of one host
 *   cuda_peers.c   memory of other processes: stashes there, turns
 *   cuda_steps.c   steps, waiting, deadlines, failures, graphs
 *   cuda_formula.c formulas around the model's callbacks; cuda_formula.cu: their kernel
 *   cuda_check.c   transfers that say what they are
 *   cuda_blame.c   what was first when a step takes too long
 *   cuda_trace.c   times */
#ifndef PIPE_CUDA_PRIVATE_H
#define PIPE_CUDA_PRIVATE_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "pipe_cuda.h"
#include "run.h"

/* The streams of a rank: COMPUTE, COMM and COPY; with lowering CHANNELS the first of its channels
 * is COMM, and the others come after COPY (streams.h of the compiler has them so, too). */
static inline uint32_t cuda_channel_stream(uint32_t i) {
  return i == 0 ? (uint32_t)PIPE_COMM : PIPE_NSTREAMS + i - 1;
}
static inline bool cuda_is_comm(uint32_t stream) {
  return stream == PIPE_COMM || stream >= PIPE_NSTREAMS;
}

typedef struct CudaFormulas CudaFormulas; /* cuda_formula.c */
struct CudaPeers;                         /* cuda_peers.c */
struct CudaEdges;                         /* cuda_edges.c */

static inline bool cuda_moves(const PipeInstr *in) {
  return in->op >= PIPE_SEND_F && in->op <= PIPE_RECV_B;
}

/* Of a process: its host, and itself; equal only for the same one. */
typedef struct CudaWhere { uint64_t host, process; } CudaWhere;

/* cuda_check.c: a transfer, and its header. */
typedef struct CudaCheck CudaCheck;
typedef struct CudaHeader {
  uint32_t stage, mb; /* of the SEND */
  uint32_t what;      /* bit 0: SEND_B; 1 to 15: its edge; 16 to 31: the step */
  uint32_t sum;
} CudaHeader;
PIPE_STATIC_ASSERT(sizeof(CudaHeader) == 16, "R2");

/* The first transfer that was not what its receiver expects. */
typedef struct CudaWrong {
  _Atomic int state; /* 0: there is none; 1: it is being written; 2: the rest is valid */
  uint32_t row;
  uint64_t step;
  CudaHeader got;
  bool damaged; /* it is the right one, but not what was sent */
} CudaWrong;

/* cuda_blame.c: where a rank is; what processes tell one another. Of further streams nothing is
 * known. */
enum { CUDA_PLACES = 506 };
typedef struct CudaPlace {
  uint64_t step;
  uint32_t issued;     /* rows */
  uint32_t held_up;    /* why the host goes no further: */
  uint16_t exact;      /* 1: headers tell which tensors have come */
  uint16_t accuses;    /* 1: a checkpoint takes too long */
  uint32_t checkpoint; /* PrRun.ck_at; if it accuses, at that time */
  struct CudaStreamAt {
    uint16_t known; /* instructions of the step that are known to be over, at most so many */
    uint16_t open;  /* 1 + the first that is known not to be; 0: none is, or a later one */
  } on[CUDA_PLACES];
} CudaPlace;
enum { CUDA_WAITS, CUDA_IN_CALLBACK, CUDA_BEGINS_NOT };

/* A rank of this process. */
typedef struct CudaRank {
  RankRun *k;
  cudaStream_t *stream; uint32_t nstream;
  uint32_t *on;           /* [ninstr] the stream of a row */
  cudaEvent_t *event;     /* [nevent] of PipeSync */
  /* [ninstr + 1] event + 1 recorded after a row, at row + 1; at 0 at the begin */
  uint32_t *record;
  /* [nevent] 1 + row after which it was recorded last in this step; for reports */
  uint32_t *held;
  struct CudaFence {      /* [nstream] */
    cudaEvent_t event[2]; /* recorded in turn, after every `ahead` instructions of the stream */
    uint32_t ahead;
    uint64_t issued;
  } *fence;
  cudaEvent_t over;       /* the end of the step; of the leader: PrCuda.over */
  cudaEvent_t ready;      /* without group: its COMM stream has come to a transfer or sum */
  /* [trace_slots][2 * ninstr] before and after each instruction; NULL without trace */
  cudaEvent_t *mark;
  CudaCheck *check;       /* [ninstr]; NULL: headers are not sent */
  /* Issuing a step. */
  uint32_t next;          /* row */
  uint32_t sync;          /* row of PipeRank.sync */
  /* without a group of processes: bit i: transfer i at `next` is issued, others are not */
  uint64_t moved;
  uint32_t done[PIPE_NSTREAMS];
} CudaRank;

typedef struct PrCuda {
  PrRun *run;
  PrCudaOptions o;
  CudaRank *rank;       /* [nhere] */
  CudaRank **partner;   /* [nrank] room for those that take part in one sum */
  struct CudaPeers *peers; /* with a group; NULL: no rank opens memory of another */
  struct CudaEdges *edges; /* with a group: of transport peer; NULL: NCCL moves tensors */
  bool one_host;        /* all ranks are, and no rank has chosen NCCL */
  uint32_t missing;     /* 1 + a rank that has not come to cuda_join; 0 */
  char no_peer[PR_TEXT]; /* why this rank cannot open what it sends to; "" */
  cudaEvent_t *turn;    /* without: [ngroup] the last turn of a group of COPY streams; */
  uint32_t *turns;      /* [ngroup] and how many there were in this step */
  struct CudaCard *card; /* with a group, on rank 0 [size]: what cuda_agree, cuda_meet gather */
  uint32_t nhere;
  cudaEvent_t begin;    /* the leader, rank[0], has begun the step */
  /* by step & 1: all of it is over, and its losses are in the host's memory */
  cudaEvent_t over[2];
  double *loss;         /* device [2][nsink * nmb]; then one for each rank here, for R */
  uint64_t *step_at;    /* device */
  uint64_t *step_from;  /* host memory that the device reads, [2] */
  CudaFormulas *formulas; /* NULL: there are none */
  double *loss_to;      /* the same, [2][nsink * nmb] */
  uint64_t issued_steps, done_steps;
  _Atomic bool capturing;
  cudaGraphExec_t graph[2];
  /* all ranks: `root` is the non-blocking communicator that the others are split from, `comm` that
   * of steps, one of `split` */
  ncclComm_t root, comm;
  ncclComm_t *coll_comm;    /* [ncoll] of REDUCE and TIE; NULL: of this rank alone */
  /* [nchannel] those of transfers that this rank has a part in; others: NULL */
  ncclComm_t *channel_comm;
  ncclComm_t *split;        /* [nsplit] each of these once, or NULL; they block */
  uint32_t nsplit, ncoll;
  void **registered;        /* [nchannel], or [1]: with `comm` */
  _Atomic bool aborted;
  _Atomic bool told;
  /* note [watchdog] */
  _Atomic uint64_t in_call; /* ns: since when the host is in a call of NCCL; 0: it is in none */
  _Atomic bool looks;       /* the watchdog looks for the host */
  pthread_t watchdog;
  bool has_watchdog;
  sem_t closing;            /* posted: the watchdog ends */
  /* PrRun.ck_at when this rank said that a checkpoint takes too long; 0: it has not */
  _Atomic uint32_t late_at;
  /* the device hangs: what would wait for it is left to the end of the process */
  bool stuck;
  uint64_t limit_ns;    /* of a step */
  uint64_t opened;      /* when the run was begun to be opened */
  uint64_t since;       /* when the step that is waited for could begin; 0: not one has */
  /* cuda_blame.c */
  CudaPlace place;      /* under run->lock */
  uint64_t held_step;   /* step that CudaRank.held is of; UINT64_MAX: of a graph */
  uint64_t told_late;   /* 1 + step that the group has been told to take too long */
  uint64_t told_ns;     /* when */
  uint32_t held_up;
  /* cuda_check.c */
  /* [ninstr] device, and host memory that the device reads and writes */
  CudaHeader *headers, *header, *late;
  char *tensor;         /* the same, of the largest that is moved: one for each stream that moves */
  cudaStream_t aside;   /* of nothing else */
  cudaEvent_t looked;
  CudaWrong *wrong;
  uint64_t late_step;   /* 1 + step whose headers were looked at because it takes too long */
  /* cuda_trace.c */
  /* [trace_slots] where a step begins on the leader's COMPUTE stream; NULL without trace */
  cudaEvent_t *base;
  /* of the last one that was read, on the clock of rank 0, from run->epoch_ns */
  double base_ns;
} PrCuda;

static inline PrCuda *cuda_of(const PrRun *run) { return run->of_engine; }
/* A call of NCCL holds the host: it is in one for longer than launches take. */
static inline bool cuda_is_held(const PrCuda *c) {
  const uint64_t since = atomic_load(&c->in_call);
  return since && pr_now() - since > UINT64_C(100000000);
}
static inline cudaStream_t cuda_stream(const CudaRank *d, uint32_t row) {
  return d->stream[d->on[row]];
}

/* Fails the run with what was called and what came of it. */
PrStatus cuda_failed(PrRun *run, const char *call, cudaError_t e);
#define CUDA_TRY(run, call) \
  do { \
    cudaError_t e_ = (call); \
    if (e_ != cudaSuccess) \
      return cuda_failed(run, #call, e_); \
  } while (0)

/* Before the first of the calls of NCCL that belong together. Not PR_OK: the run has failed, and no
 * call of NCCL is allowed. */
PrStatus cuda_enter_nccl(PrRun *run);
/* After the last of them: waits until a call on communicator c that gave r is through. */
PrStatus cuda_nccl(PrRun *run, ncclComm_t c, const char *call, ncclResult_t r);
#define NCCL_TRY(run, c, call) \
  do { \
    PrStatus st_ = cuda_enter_nccl(run); \
    st_ = st_ ? st_ : cuda_nccl(run, c, #call, call); \
    if (st_) \
      return st_; \
  } while (0)

/* The number type of sums. */
ncclDataType_t cuda_type(const PrCuda *c, uint64_t *bytes);

/* Between two looks at something that is not there yet: fails after the step's deadline, if another
 * rank has failed, or if a communicator has. looks: how many there were. */
PrStatus cuda_wait_a_little(PrRun *run, uint64_t looks);
PrStatus cuda_wait_event(PrRun *run, cudaEvent_t e);

/* Around what is issued for an instruction: its range of NVTX. */
void cuda_name(const PrRun *run, const PipeInstr *in);
void cuda_unname(const PrRun *run);

/* Issues step number `step` of all ranks here, from the begin to `over`, without waiting for it. */
PrStatus cuda_issue_step(PrRun *run, uint64_t step);
void cuda_set_stream(cudaStream_t s);

/* The device of this run becomes that of the calling thread. */
PrStatus cuda_use_device(PrRun *run);
PrStatus cuda_open(PrRun *run);
/* How many streams a rank has, here or not; which each row of its list is of. */
uint32_t cuda_nstream(const RankRun *k);
void cuda_find_streams(const RankRun *k, uint32_t *on);

/* With a group: communicators, and all first contacts. Closing takes what there is. */
PrStatus cuda_open_nccl(PrRun *run);
void cuda_close_nccl(PrRun *run);
/* All at once; there is none left after. between: once none of them holds anything up, before they
 * are given back. False: they are not. */
void cuda_abort_nccl(PrRun *run, bool (*between)(PrRun *run));
/* A thread of NCCL stores it while ncclCommSplit is in progress. */
ncclComm_t cuda_split(const PrCuda *c, uint32_t i);
/* What a sum adds up on this rank, and has the sum then; bytes: of it. */
void *cuda_sum_at(const PrRun *run, const Coll *l, uint64_t *bytes);
/* The communicator of a SEND or RECV, and the rank of its other end there. */
ncclComm_t cuda_comm_of(const PrCuda *c, const PipeInstr *in, int *peer);
PrStatus cuda_join(PrRun *run);
void cuda_close(PrRun *run);
PrStatus cuda_agree(PrRun *run, PrStatus st);
PrStatus cuda_share(PrRun *run, uint32_t rank, void *data, uint64_t bytes);
/* In why what is the matter here, or "": then what is with the first rank that has something. */
PrStatus cuda_ask(PrRun *run, char why[PR_TEXT]);
/* Writes that CUDA_DEVICE_MAX_CONNECTIONS is too small for `what`, if so. */
void cuda_few_queues(const char *what, char why[PR_TEXT]);
PrStatus cuda_meet(PrRun *run); /* rank 0 waits until all ranks have called it */
void cuda_abort(PrRun *run);
PrStatus cuda_open_watchdog(PrRun *run);
void cuda_close_watchdog(PrRun *run);
void cuda_end_graphs(PrRun *run);
/* Of a run that has failed: until nothing is on the streams of this process. False, and
 * PrCuda.stuck: that takes too long. */
bool cuda_run_out(PrRun *run);
PrStatus cuda_steps(PrRun *run, uint64_t n);
/* Before a step is issued, or replayed: its numbers; on stream s, they go to the device. */
PrStatus cuda_formulas_open(PrRun *run);
void cuda_formulas_close(PrRun *run);
void cuda_formulas_step(PrRun *run, uint64_t step);
PrStatus cuda_formulas_begin(PrRun *run, uint64_t step, cudaStream_t s);
/* As in weights.c, for an instruction that may have formulas. */
PrStatus cuda_estimate(PrRun *run, CudaRank *d, uint32_t row, PrCall *a);
PrStatus cuda_before_update(PrRun *run, CudaRank *d, uint32_t row, PrCall *a);
PrStatus cuda_after_update(PrRun *run, CudaRank *d, uint32_t row, const PrCall *a);
/* Takes down where this rank is, on the thread that issues. */
void cuda_note_place(PrRun *run, uint32_t held_up);
void cuda_watch(PrRun *run, bool on);
/* fails if another process has, or with what was first if all have been asked */
PrStatus cuda_heard(PrRun *run);
bool cuda_late(PrRun *run);      /* PrEngine.late, and look */
void cuda_look(PrRun *run);
/* With headers: row + 1 of the last RECV of a stream whose tensor has come in the step; 0. */
uint32_t cuda_check_known(const CudaRank *d, uint32_t stream, uint64_t step);

/* With a group of processes, all of them alike: opens what they use of each other's memory. */
PrStatus cuda_peers_open(PrRun *run);
bool cuda_lends(const PrRun *run); /* others may open the memory of the rank of this process */
bool cuda_any_lends(const PrRun *run); /* they may that of some rank: the same on all */
void *cuda_peer_slot(const PrRun *run, uint32_t rank, uint32_t slot);
char *cuda_peer_block(const PrRun *run, uint32_t rank); /* of one that this rank sends to */
/* The driver's call for numbers in memory, which has no name in the runtime. */
typedef CUresult (*CudaBatch)(CUstream, unsigned, CUstreamBatchMemOpParams *, unsigned);
bool cuda_find_batch(CudaBatch *to); /* false: the driver has none */
PrStatus cuda_peer_turn(PrRun *run, CudaRank *d);      /* before the next COPY instruction of d */
PrStatus cuda_peer_turn_over(PrRun *run, CudaRank *d); /* and behind it */
/* of a run that has failed: its COPY stream gets the turns that it waits for */
void cuda_peers_release(PrRun *run);
bool cuda_peers_close(PrRun *run);   /* true: nobody has memory of this rank open any more */

/* Transport peer, with a group on one host. Opening decides: PrCuda.edges is the same, NULL or not,
 * on all ranks. */
CudaWhere cuda_where(void);
PrStatus cuda_edges_open(PrRun *run);
void cuda_edges_close(PrRun *run);
/* The n transfers at d->next but for those in `lost` (bit by place), and their checks. */
PrStatus cuda_edges_move(PrRun *run, CudaRank *d, uint32_t n, uint64_t lost);
/* Of a step that is over here: its losses, in PrCuda.loss_to, become those of all ranks. */
PrStatus cuda_edges_finish(PrRun *run, uint64_t step);
void cuda_edges_fail(PrRun *run);    /* the run has: no rank counts a step from here on */
void cuda_edges_release(PrRun *run); /* then: its transfers here wait for nothing */
bool cuda_edges_busy(const PrRun *run);

/* Memory of the device, zero; or of the host that the device reads. NULL: there is none left. */
void *cuda_take(uint64_t bytes, bool host);
/* What the device may still use is left to the end of the process. */
void cuda_give(PrRun *run, void *p, bool host);

/* Around the calls of NCCL for a row, on its COMM stream; nothing if headers are not sent. The
 * header of a row, in memory of the device, goes or comes ahead of its tensor; NULL: there is
 * none. */
void *cuda_header(const CudaRank *d, uint32_t row, uint64_t *bytes);
PrStatus cuda_check_send(PrRun *run, CudaRank *d, uint32_t row);   /* before */
PrStatus cuda_check_header(PrRun *run, CudaRank *d, uint32_t row); /* once the header has come */
PrStatus cuda_check_tensor(PrRun *run, CudaRank *d, uint32_t row); /* once the tensor has */
PrStatus cuda_check_verdict(PrRun *run); /* PR_OK: nothing was wrong so far */
PrStatus cuda_check_late(PrRun *run);    /* the same of a step that does not end */
PrStatus cuda_check_open(PrRun *run);
void cuda_check_rewind(PrRun *run, uint64_t step);
void cuda_check_close(PrRun *run);

/* Which events of CudaRank.mark are of a step: there are two graphs, for even and for odd steps. */
static inline uint64_t cuda_mark_slot(const PrCuda *c, uint64_t step) {
  return c->o.graph ? step & 1 : step % c->run->trace_slots;
}
PrStatus cuda_trace_open(PrRun *run);
PrStatus cuda_trace_step(PrRun *run, uint64_t step); /* reads the times of a step that is over */
void cuda_trace_close(PrRun *run);

#endif
