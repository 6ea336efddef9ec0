/* SPDX-License-Identifier: MIT
 * What the parts of the CUDA engine share; not installed.
 *
 *   cuda_open.c    the device, streams, events; memory; closing
 *   cuda_comms.c   communicators, the prologue
 *   cuda_issue.c   instructions
 *   cuda_edges.c   transfers by copy engines, between ranks of one host
 *   cuda_peers.c   memory of other processes: stashes there
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

/* The streams of a rank: COMPUTE, COMM and COPY. With lowering CHANNELS the first of its channels
 * is COMM, and the others come after COPY (pr_comm_queue in run.h). */
static inline bool cuda_is_comm(uint32_t stream) {
  return stream == PIPE_COMM || stream >= PIPE_NSTREAMS;
}

typedef struct CudaFormulas CudaFormulas; /* cuda_formula.c */
struct CudaPeers;                         /* cuda_peers.c */
struct CudaEdges;                         /* cuda_edges.c */

/* Identifies a host and a process on it. */
typedef struct CudaWhere { uint64_t host, process; } CudaWhere;

/* cuda_check.c: a transfer, and its header. */
typedef struct CudaCheck CudaCheck;
typedef struct CudaHeader {
  uint32_t stage, mb; /* of the SEND */
  uint32_t what;      /* bit 0: SEND_B; 1 to 15: its edge; 16 to 31: the step */
  uint32_t sum;
} CudaHeader;
PIPE_STATIC_ASSERT(sizeof(CudaHeader) == 16, "R2");

/* The first transfer that was not the one its receiver expects. */
typedef struct CudaWrong {
  _Atomic int state; /* 0: there is none; 1: it is being written; 2: the rest is valid */
  uint32_t row;
  uint64_t step;
  CudaHeader got;
  bool damaged; /* the right transfer, but with other bytes than were sent */
} CudaWrong;

/* cuda_blame.c: where a rank is, as processes tell one another. It covers the first CUDA_PLACES
 * streams. */
enum { CUDA_PLACES = 506 };
typedef struct CudaPlace {
  uint64_t step;
  uint32_t issued;     /* rows */
  uint32_t held_up;    /* why the host does not go further: CUDA_WAITS, ... */
  uint16_t exact;      /* 1: headers tell which tensors have come */
  uint16_t accuses;    /* 1: this rank reports a late checkpoint */
  uint32_t checkpoint; /* PrRun.ck_at; if it accuses, at the time of the report */
  struct CudaStreamAt {
    uint16_t known; /* how many instructions of the step are known to be over, at most 65535 */
    uint16_t open;  /* 1 + the first that is known not to be over; 0: none, or beyond 65535 */
  } on[CUDA_PLACES];
} CudaPlace;
enum { CUDA_WAITS, CUDA_IN_CALLBACK, CUDA_BEGINS_NOT };

/* A rank of this process. */
typedef struct CudaRank {
  RankRun *k;
  cudaStream_t *stream; uint32_t nstream;
  uint32_t *on;           /* [ninstr] the stream of a row */
  cudaEvent_t *event;     /* [nevent] */
  uint32_t nevent;
  PipeQueues queues;
  /* [ninstr + 1] event + 1 recorded after a row, at row + 1; at 0 at the begin */
  uint32_t *record;
  /* [nevent] 1 + row after which it was recorded last in this step; for reports */
  uint32_t *held;
  struct CudaFence {      /* [nstream] */
    cudaEvent_t event[2]; /* recorded in turn, after every `ahead` instructions of the stream */
    uint32_t ahead;
    uint64_t issued;
  } *fence;
  cudaEvent_t over;       /* its COMPUTE stream has reached the end of the step */
  /* without group: its COMM stream has reached a transfer or sum; of a capture: the losses */
  cudaEvent_t ready;
  /* [trace_slots][2 * ninstr] before and after each instruction; NULL without trace */
  cudaEvent_t *mark;
  CudaCheck *check;       /* [ninstr]; NULL: headers are not sent */
  /* Issuing a step. */
  uint32_t next;          /* row */
  /* without a group: bit i: transfer i at `next` is issued while others are not */
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
  bool one_host;        /* all ranks are on one host, and no rank has chosen NCCL */
  uint32_t missing;     /* 1 + a rank that has not come to cuda_join; 0 */
  char no_peer[PR_TEXT]; /* why this rank cannot open the memory that it sends to; "" */
  struct CudaCard *card; /* with a group, on rank 0 [size]: what cuda_agree, cuda_meet gather */
  uint32_t nhere;
  cudaEvent_t begin;    /* the leader, rank[0], has begun the step */
  /* by step & 1: the step is over, and its losses are in the host's memory */
  cudaEvent_t over[2];
  double *loss;         /* device [2][nsink * nmb]; then one loss for each rank here, for R */
  uint64_t *step_at;    /* device */
  uint64_t *step_from;  /* host memory that the device reads, [2] */
  CudaFormulas *formulas; /* NULL: there are none */
  double *loss_to;      /* host memory that the device writes, [2][nsink * nmb] */
  uint64_t issued_steps, done_steps;
  _Atomic bool capturing;
  cudaGraphExec_t graph[2];
  /* all ranks: `root` is the non-blocking communicator that the others are split from, `comm` that
   * of steps, one of `split` */
  ncclComm_t root, comm;
  ncclComm_t *coll_comm;    /* [ncoll] of REDUCE and TIE; NULL: of this rank alone */
  /* [nchannel] of the channels of transfers that this rank takes part in; others: NULL */
  ncclComm_t *channel_comm;
  ncclComm_t *split;        /* [nsplit] each of these communicators once, or NULL; they block */
  uint32_t nsplit, ncoll;
  void **registered;        /* handles of the slots: [nchannel], or [1] for `comm` */
  _Atomic bool aborted;
  _Atomic bool told;
  /* note [watchdog] */
  _Atomic uint64_t in_call; /* ns: since when the host is in a call of NCCL; 0: it is in none */
  _Atomic bool looks;       /* the watchdog looks for the host */
  pthread_t watchdog;
  bool has_watchdog;
  sem_t closing;            /* posted: the watchdog ends */
  /* PrRun.ck_at when this rank reported a late checkpoint; 0: not yet */
  _Atomic uint32_t late_at;
  /* the device hangs: the engine leaves all that would wait for it to the end of the process */
  bool stuck;
  uint64_t limit_ns;    /* of a step */
  uint64_t opened;      /* ns: when opening, or closing, began */
  uint64_t since;       /* ns: when the oldest step that is not over could begin; 0: no step yet */
  /* cuda_blame.c */
  CudaPlace place;      /* under run->lock */
  uint64_t held_step;   /* step that CudaRank.held is of; UINT64_MAX: of a graph */
  uint64_t told_late;   /* 1 + the step that was reported late to the group */
  uint64_t told_ns;     /* when it was */
  uint32_t held_up;
  /* cuda_check.c */
  /* [ninstr] device, and host memory that the device reads and writes */
  CudaHeader *headers, *header, *late;
  char *tensor;         /* the same, room for the largest tensor for each stream that moves any */
  cudaStream_t aside;   /* for looks at headers alone */
  cudaEvent_t looked;
  CudaWrong *wrong;
  uint64_t late_step;   /* 1 + the late step whose headers were looked at */
  /* cuda_trace.c */
  /* [trace_slots] where a step begins on the leader's COMPUTE stream; NULL without trace */
  cudaEvent_t *base;
  /* of the last base that was read, on the clock of rank 0, from run->epoch_ns */
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

/* Fails the run with the call and its error. */
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

/* Called between two looks of a wait: fails after the step's deadline, or if another rank or a
 * communicator has failed. looks: how many looks there were. */
PrStatus cuda_wait_a_little(PrRun *run, uint64_t looks);
PrStatus cuda_wait_event(PrRun *run, cudaEvent_t e);

/* The NVTX range around all that is issued for an instruction. */
void cuda_name(const PrRun *run, const PipeInstr *in);
void cuda_unname(const PrRun *run);

/* Issues step number `step` of all ranks here, from the begin to `over`, without waiting for it. */
PrStatus cuda_issue_step(PrRun *run, uint64_t step);

/* Makes the device of this run the calling thread's. */
PrStatus cuda_use_device(PrRun *run);
PrStatus cuda_open(PrRun *run);
/* How many streams a rank has, here or elsewhere; the stream of each row of its list. */
uint32_t cuda_nstream(const RankRun *k);
void cuda_find_streams(const RankRun *k, uint32_t *on);

/* With a group: makes communicators and all first contacts. Closing takes a part of them, too. */
PrStatus cuda_open_nccl(PrRun *run);
void cuda_close_nccl(PrRun *run);
/* Aborts all communicators. Calls `between` once their flags are set, before they are given back;
 * if it returns false, they are not given back. */
void cuda_abort_nccl(PrRun *run, bool (*between)(PrRun *run));
/* Split i, which a thread of NCCL stores while ncclCommSplit is in progress. */
ncclComm_t cuda_split(const PrCuda *c, uint32_t i);
/* The buffer that a sum adds up on this rank, and that holds the result; *bytes: its size. */
void *cuda_sum_at(const PrRun *run, const Coll *l, uint64_t *bytes);
/* The communicator of a SEND or RECV, and the rank of its other end there. */
ncclComm_t cuda_comm_of(const PrCuda *c, const PipeInstr *in, int *peer);
PrStatus cuda_join(PrRun *run);
void cuda_close(PrRun *run);
PrStatus cuda_agree(PrRun *run, PrStatus st);
PrStatus cuda_share(PrRun *run, uint32_t rank, void *data, uint64_t bytes);
/* why: a reason of this rank, or ""; becomes the reason of the first rank that has one. */
PrStatus cuda_ask(PrRun *run, char why[PR_TEXT]);
PrStatus cuda_meet(PrRun *run); /* rank 0 waits until all ranks have called it */
void cuda_abort(PrRun *run);
PrStatus cuda_open_watchdog(PrRun *run);
void cuda_close_watchdog(PrRun *run);
void cuda_end_graphs(PrRun *run);
/* Of a run that has failed: waits until the streams of this process are empty. False, and
 * PrCuda.stuck: it takes too long. */
bool cuda_run_out(PrRun *run);
PrStatus cuda_steps(PrRun *run, uint64_t n);
/* Formulas. cuda_formulas_step: the numbers of a step, before it is issued or replayed;
 * cuda_formulas_begin copies them to the device on stream s. */
PrStatus cuda_formulas_open(PrRun *run);
void cuda_formulas_close(PrRun *run);
void cuda_formulas_step(PrRun *run, uint64_t step);
PrStatus cuda_formulas_begin(PrRun *run, uint64_t step, cudaStream_t s);
/* As in weights.c, for an instruction that may have formulas. */
PrStatus cuda_estimate(PrRun *run, CudaRank *d, uint32_t row, PrCall *a);
PrStatus cuda_before_update(PrRun *run, CudaRank *d, uint32_t row, PrCall *a);
PrStatus cuda_after_update(PrRun *run, CudaRank *d, uint32_t row, const PrCall *a);
/* Notes where this rank is, on the thread that issues. */
void cuda_note_place(PrRun *run);
void cuda_watch(PrRun *run, bool on);
/* fails if another process has failed, or with the first cause if the group has all places */
PrStatus cuda_heard(PrRun *run);
bool cuda_late(PrRun *run);      /* PrEngine.late, and look */
void cuda_look(PrRun *run);
/* With headers: 1 + the last RECV row of a stream whose tensor has come in the step; 0: none. */
uint32_t cuda_check_known(const CudaRank *d, uint32_t stream, uint64_t step);

/* With a group: opens the memory of other processes that this one uses. All ranks call it. */
PrStatus cuda_peers_open(PrRun *run);
bool cuda_lends(const PrRun *run); /* others may open the memory of the rank of this process */
bool cuda_any_lends(const PrRun *run); /* the same of any rank; equal on all ranks */
void *cuda_peer_slot(const PrRun *run, uint32_t rank, uint32_t slot);
char *cuda_peer_block(const PrRun *run, uint32_t rank); /* of one that this rank sends to */
bool cuda_peers_close(PrRun *run);   /* true: nobody has memory of this rank open any more */

/* Transport peer, with a group on one host. Opening decides: PrCuda.edges is the same, NULL or not,
 * on all ranks. */
CudaWhere cuda_where(void);
PrStatus cuda_edges_open(PrRun *run);
void cuda_edges_close(PrRun *run);
/* The n transfers at d->next but for those in `lost` (bit by place), and their checks. */
PrStatus cuda_edges_move(PrRun *run, CudaRank *d, uint32_t n, uint64_t lost);
/* Of a step that is over here: adds the losses of all ranks to those in PrCuda.loss_to. */
PrStatus cuda_edges_finish(PrRun *run, uint64_t step);
void cuda_edges_fail(PrRun *run);    /* the run has failed: no rank counts a step from here on */
void cuda_edges_release(PrRun *run); /* after that: lets the transfers of this rank through */
bool cuda_edges_busy(const PrRun *run);

/* Memory of the device, or of the host that the device reads; all zero. NULL: none is left. */
void *cuda_take(uint64_t bytes, bool host);
/* Gives memory back, unless the device may still use it: then it stays to the process's end. */
void cuda_give(PrRun *run, void *p, bool host);

/* Around the calls of NCCL for a row, on its COMM stream; nothing if headers are not sent. The
 * header of a row, in memory of the device, goes or comes ahead of its tensor; NULL: there is
 * none. */
void *cuda_header(const CudaRank *d, uint32_t row, uint64_t *bytes);
PrStatus cuda_check_send(PrRun *run, CudaRank *d, uint32_t row);   /* before */
PrStatus cuda_check_header(PrRun *run, CudaRank *d, uint32_t row); /* once the header has come */
PrStatus cuda_check_tensor(PrRun *run, CudaRank *d, uint32_t row); /* once the tensor has */
PrStatus cuda_check_verdict(PrRun *run); /* PR_OK: no transfer was wrong so far */
PrStatus cuda_check_late(PrRun *run);    /* the same for a step that does not end */
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
