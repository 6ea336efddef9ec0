/* SPDX-License-Identifier: MIT
 * Memory of other processes on this host: where stashes are kept on other ranks, turns of COPY
 * streams, and what transfers by copies go to (cuda_edges.c).
 *
 * note [guests]: a GUEST slot is used by the COPY stream of one other rank and by nothing else,
 * from an OFF to its LOAD (runtime/validate/validate_slots.c). So that rank opens the memory of its
 * host by CUDA IPC and copies; the host does nothing, and nobody has to meet. Memory of
 * ncclMemAlloc cannot be opened in this way: where a rank keeps stashes for others, all ranks have
 * their memory from cudaMalloc, and none registers it: NCCL moves a tensor in other pieces if it is
 * registered, and does not look whether the other end is, too.
 *
 * note [turns]: an event of another process counts when it was recorded last, which a host cannot
 * know. So each turn has a flag in memory of its rank: the COPY stream waits until it is set and
 * clears it, and sets that of the next turn, wherever that is, by a copy of one number. After the
 * last turn of a step comes the first of the next step: a flag is set again only once it has been
 * cleared. Hosts wait for nothing: a stream does, with nothing on the device that others could
 * need.
 *
 * In a run that fails, the flags of this rank are set, again and again, so that what is on its COPY
 * stream, or in its graph, runs out (cuda_steps.c: note [abort]). Memory that others may have open
 * is then left to the end of the process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_engine.h"

enum { FLAG = 16 }; /* bytes from one flag to the next */

typedef struct Next { /* after a turn of this rank */
  uint32_t rank, nth; /* whose turn that is, and which of its */
} Next;

struct CudaPeers {
  void **block;        /* [nrank] that other ranks lend; NULL */
  uint64_t **at;       /* [nrank] places of their slots */
  char **flag_of;      /* [nrank] flags of those that take turns with this one; of itself: flag */
  Next *next;          /* [ncopy] */
  struct Offer *offer; /* [nrank] */
  char *flag;          /* device memory: one for each turn of this rank; then the number 1 */
  CudaBatch batch;
  cudaStream_t aside;
  uint32_t nturn; /* of this rank */
  bool told;      /* others have what this rank offers */
};

/* What a rank tells the others. */
typedef struct Offer {
  cudaIpcMemHandle_t block, flag;
  uint64_t process; /* in which it is: another rank there takes its addresses as they are */
  void *block_at, *flag_at;
} Offer;

static bool lends(const PrRun *run, uint32_t r) {
  for (uint32_t i = 0; i < run->p->rank[r].npool; i++)
    if (run->p->rank[r].pool[i].cls == PIPE_GUEST)
      return true;
  return false;
}

bool cuda_lends(const PrRun *run) {
  const PrCuda *c = cuda_of(run);
  return c->o.group && run->p && (c->one_host || lends(run, run->here));
}

bool cuda_any_lends(const PrRun *run) {
  bool any = cuda_of(run)->one_host;
  for (uint32_t r = 0; cuda_of(run)->o.group && run->p && r < run->p->nrank && !any; r++)
    any = lends(run, r);
  return any;
}

static bool is_guest_of(const PrRun *run, uint32_t r) {
  const PipeRank *t = run->rank[run->here].t;
  for (uint32_t i = 0; i < t->ninstr; i++)
    if (pipe_op_info[t->instr[i].op].stream == PIPE_COPY && t->instr[i].peer == r)
      return true;
  return false;
}

static bool sends_to(const PrRun *run, uint32_t r) {
  const PipeRank *t = run->rank[run->here].t;
  bool any = false;
  for (uint32_t i = 0; i < t->ninstr && cuda_of(run)->one_host && !any; i++)
    any = pipe_is_move(t->instr[i].op) && pipe_is_send(t->instr[i].op) && t->instr[i].peer == r;
  return any;
}

static bool takes_turns(const PrRun *run, uint32_t r) {
  const Turns *t = run->rank[run->here].turns;
  bool any = false;
  for (uint32_t i = 0; t && i < t->n && !any; i++)
    any = t->rank[i] == r;
  return any;
}

/* ---- turns ---- */

PrStatus cuda_peer_turn(PrRun *run, CudaRank *d) {
  struct CudaPeers *x = cuda_of(run)->peers;
  CUdeviceptr flag = (CUdeviceptr)(x->flag + (size_t)d->done[PIPE_COPY] * FLAG);
  CUstreamBatchMemOpParams op[2];
  memset(op, 0, sizeof op);
  op[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  op[0].waitValue.address = flag;
  op[0].waitValue.value = 1;
  op[0].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  op[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  op[1].writeValue.address = flag;
  CUresult e = x->batch(d->stream[PIPE_COPY], 2, op, 0);
  return e == CUDA_SUCCESS ? PR_OK : cuda_failed(run, "cuStreamBatchMemOp", (cudaError_t)e);
}

PrStatus cuda_peer_turn_over(PrRun *run, CudaRank *d) {
  struct CudaPeers *x = cuda_of(run)->peers;
  const Next *n = &x->next[d->done[PIPE_COPY]];
  CUDA_TRY(run, cudaMemcpyAsync(x->flag_of[n->rank] + (size_t)n->nth * FLAG,
                                x->flag + (size_t)x->nturn * FLAG, sizeof(uint32_t),
                                cudaMemcpyDefault, d->stream[PIPE_COPY]));
  return PR_OK;
}

static void find_next(const PrRun *run, struct CudaPeers *x) {
  const RankRun *k = &run->rank[run->here];
  for (uint32_t i = 0; i < k->ncopy; i++) {
    uint32_t turn = (k->t->instr[k->copy[i].index].turn + 1) % k->turns->n;
    Next *n = &x->next[i];
    *n = (Next){.rank = k->turns->rank[turn]};
    for (uint32_t before = 0; before < turn; before++)
      n->nth += k->turns->rank[before] == n->rank;
  }
}

bool cuda_find_batch(CudaBatch *to) {
  void *fn = NULL;
  enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  cudaError_t e = cudaGetDriverEntryPointByVersion("cuStreamBatchMemOp", &fn, 12000,
                                                   cudaEnableDefault, &found);
#else
  cudaError_t e = cudaGetDriverEntryPoint("cuStreamBatchMemOp", &fn, cudaEnableDefault, &found);
#endif
  *(void **)to = fn;
  if (e != cudaSuccess)
    cudaGetLastError(); /* else a model finds it after a launch of its own */
  return e == cudaSuccess && found == cudaDriverEntryPointSuccess && fn;
}

static PrStatus open_turns(PrRun *run, struct CudaPeers *x) {
  const RankRun *k = &run->rank[run->here];
  const uint32_t one = 1;
  if (!cuda_find_batch(&x->batch))
    return pr_fail(run, PR_E_DEVICE,
                   "rank %u: this driver has no cuStreamBatchMemOp, which turns take", run->here);
  if (cudaMalloc((void **)&x->flag, (x->nturn + 1) * (size_t)FLAG))
    return pr_fail(run, PR_E_MEMORY, "rank %u: the device has no memory for %u turns", run->here,
                   x->nturn);
  find_next(run, x);
  CUDA_TRY(run, cudaMemset(x->flag, 0, (x->nturn + 1) * (size_t)FLAG));
  CUDA_TRY(run, cudaMemcpy(x->flag + (size_t)x->nturn * FLAG, &one, sizeof one, cudaMemcpyDefault));
  if (k->t->instr[k->copy[0].index].turn == 0) /* the first of all */
    CUDA_TRY(run, cudaMemcpy(x->flag, &one, sizeof one, cudaMemcpyDefault));
  CUDA_TRY(run, cudaStreamCreateWithPriority(&x->aside, cudaStreamNonBlocking, 0));
  CUDA_TRY(run, cudaDeviceSynchronize());
  return PR_OK;
}

void cuda_peers_release(PrRun *run) {
  struct CudaPeers *x = cuda_of(run)->peers;
  /* One at a time: a stream that does not go on takes about a thousand, and the next one holds the
   * host. */
  if (x && x->aside && cudaStreamQuery(x->aside) == cudaSuccess)
    cudaMemsetAsync(x->flag, 1, x->nturn * (size_t)FLAG, x->aside);
}

/* ---- opening ---- */

void *cuda_peer_slot(const PrRun *run, uint32_t r, uint32_t slot) {
  struct CudaPeers *x = cuda_of(run)->peers;
  return x ? (char *)x->block[r] + x->at[r][slot] : run->rank[r].slot[slot];
}

char *cuda_peer_block(const PrRun *run, uint32_t r) { return cuda_of(run)->peers->block[r]; }

/* All that is taken of the host. */
static PrStatus take_room(PrRun *run, struct CudaPeers *x) {
  uint32_t n = run->p->nrank;
  x->nturn = takes_turns(run, run->here) ? run->rank[run->here].ncopy : 0;
  x->next = calloc(x->nturn + (size_t)1, sizeof *x->next);
  x->offer = calloc(n, sizeof *x->offer);
  x->block = calloc(n, sizeof *x->block);
  x->at = calloc(n, sizeof *x->at);
  x->flag_of = calloc(n, sizeof *x->flag_of);
  bool ok = x->next && x->offer && x->block && x->at && x->flag_of;
  for (uint32_t r = 0; r < n && ok; r++)
    ok = !lends(run, r) || (x->at[r] = calloc(run->p->rank[r].nslot, sizeof *x->at[r]));
  return ok ? PR_OK
            : pr_fail(run, PR_E_MEMORY, "rank %u: no memory for what %u ranks lend", run->here, n);
}

/* Memory of rank r, here: `at` is its address there. */
static cudaError_t open_memory(const PrRun *run, uint32_t r, cudaIpcMemHandle_t handle, void *at,
                               void **to) {
  const struct CudaPeers *x = cuda_of(run)->peers;
  const bool same = x->offer[r].process == x->offer[run->here].process;
  *to = at;
  cudaError_t e = same ? cudaSuccess
                       : cudaIpcOpenMemHandle(to, handle, cudaIpcMemLazyEnablePeerAccess);
  if (e)
    *to = NULL;
  return e;
}

static void close_memory(const PrRun *run, uint32_t r, void *p) {
  const struct CudaPeers *x = cuda_of(run)->peers;
  if (p && x->offer[r].process != x->offer[run->here].process && !cuda_of(run)->stuck)
    cudaIpcCloseMemHandle(p);
}

static PrStatus cannot_open(PrRun *run, const char *what, uint32_t r, cudaError_t e) {
  return pr_fail(run, PR_E_DEVICE,
                 "rank %u %s rank %u, whose memory it cannot open: %s; it takes one host, and "
                 "devices that reach each other",
                 run->here, what, r, cudaGetErrorString(e));
}

/* That this rank cannot send by copies is no failure yet (cuda_edges_open). */
static void no_peer(PrRun *run, uint32_t r, cudaError_t e) {
  snprintf(cuda_of(run)->no_peer, PR_TEXT, "rank %u cannot open the memory of rank %u: %s",
           run->here, r, cudaGetErrorString(e));
  cudaGetLastError(); /* else a model finds it after a launch of its own */
}

static PrStatus make_offer(PrRun *run, struct CudaPeers *x, Offer *to) {
  PrStatus st = x->nturn ? open_turns(run, x) : PR_OK;
  cudaError_t e;
  if (st)
    return st;
  to->process = cuda_where().process;
  to->flag_at = x->flag, to->block_at = run->rank[run->here].block;
  if (x->flag)
    CUDA_TRY(run, cudaIpcGetMemHandle(&to->flag, x->flag));
  if (lends(run, run->here))
    CUDA_TRY(run, cudaIpcGetMemHandle(&to->block, to->block_at));
  else if (cuda_of(run)->one_host &&
           (e = cudaIpcGetMemHandle(&to->block, to->block_at)) != cudaSuccess)
    no_peer(run, run->here, e);
  return PR_OK;
}

/* What rank r offers, and where its slots are: all hear it, whether they need it or not. */
static PrStatus hear_offer(PrRun *run, struct CudaPeers *x, uint32_t r) {
  const PipeRank *t = &run->p->rank[r];
  const RankRun *k = &run->rank[r];
  PrStatus st = cuda_share(run, r, &x->offer[r], sizeof x->offer[r]);
  if (st || !lends(run, r))
    return st;
  for (uint32_t i = 0; r == run->here && i < t->npool; i++)
    for (uint32_t j = t->pool[i].first; j < t->pool[i].first + t->pool[i].count; j++)
      if (t->pool[i].cls == PIPE_GUEST)
        x->at[r][j] = (uint64_t)((char *)k->slot[j] - (char *)k->block);
  return cuda_share(run, r, x->at[r], t->nslot * sizeof *x->at[r]);
}

static PrStatus open_offers(PrRun *run, struct CudaPeers *x) {
  PrStatus st = PR_OK;
  for (uint32_t r = 0; r < run->p->nrank && !st; r++)
    st = hear_offer(run, x, r);
  for (uint32_t r = 0; r < run->p->nrank && !st; r++) {
    const Offer *o = &x->offer[r];
    cudaError_t e = cudaSuccess;
    const bool guest = is_guest_of(run, r);
    if (r == run->here) {
      x->flag_of[r] = x->flag;
      continue;
    }
    if (guest || (sends_to(run, r) && !*cuda_of(run)->no_peer))
      e = open_memory(run, r, o->block, o->block_at, &x->block[r]);
    if (e && guest)
      return cannot_open(run, "keeps stashes on", r, e);
    if (e)
      no_peer(run, r, e);
    if (takes_turns(run, r) &&
        (e = open_memory(run, r, o->flag, o->flag_at, (void **)&x->flag_of[r])))
      return cannot_open(run, "takes turns with", r, e);
  }
  return st;
}

/* Each part on all ranks, or on none: what fails on one before others wait for it, all are told. */
PrStatus cuda_peers_open(PrRun *run) {
  PrCuda *c = cuda_of(run);
  if (!c->o.group || (run->p->ngroup == 0 && !cuda_any_lends(run)))
    return PR_OK;
  struct CudaPeers *x = c->peers = calloc(1, sizeof *x);
  PrStatus st = x ? take_room(run, x) : pr_fail(run, PR_E_MEMORY, "rank %u: no memory", run->here);
  if (!st)
    st = make_offer(run, x, &x->offer[run->here]);
  if ((st = cuda_agree(run, st)))
    return st;
  x->told = true;
  return cuda_agree(run, open_offers(run, x));
}

bool cuda_peers_close(PrRun *run) {
  PrCuda *c = cuda_of(run);
  struct CudaPeers *x = c->peers;
  char all = 0;
  if (!x)
    return true;
  bool free_all = !x->told;
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    if (x->block)
      close_memory(run, r, x->block[r]);
    if (x->flag_of && r != run->here)
      close_memory(run, r, x->flag_of[r]);
    free(x->at ? x->at[r] : NULL);
  }
  if (!c->aborted) { /* all have closed what they had open, and know it */
    all = !cuda_meet(run);
    free_all = !cuda_share(run, 0, &all, 1) && all;
  }
  if (x->aside)
    cudaStreamDestroy(x->aside);
  if (x->flag && free_all)
    cudaFree(x->flag);
  free(x->block);
  free(x->at);
  free(x->flag_of);
  free(x->next);
  free(x->offer);
  free(x);
  c->peers = NULL;
  return free_all;
}
