/* SPDX-License-Identifier: MIT
 * Memory of other processes on this host: where stashes are kept on other ranks, and what transfers
 * by copies go to (cuda_edges.c).
 *
 * note [guests]: a GUEST slot is used by the COPY stream of one other rank and by nothing else,
 * from an OFF to its LOAD (runtime/validate/validate_slots.c). So that rank opens the memory of its
 * host by CUDA IPC and copies; the host does nothing, and nobody has to meet. Memory of
 * ncclMemAlloc cannot be opened in this way: where a rank keeps stashes for others, all ranks have
 * their memory from cudaMalloc, and none registers it: NCCL moves a tensor in other pieces if it is
 * registered, and does not look whether the other end is, too.
 *
 * In a run that fails, memory that others may have open is left to the end of the process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_engine.h"

struct CudaPeers {
  void **block;        /* [nrank] that other ranks lend; NULL */
  uint64_t **at;       /* [nrank] places of their slots */
  struct Offer *offer; /* [nrank] */
  bool told;           /* others have what this rank offers */
};

/* What a rank tells the others. */
typedef struct Offer {
  cudaIpcMemHandle_t block;
  uint64_t process; /* in which it is: another rank there takes its addresses as they are */
  void *block_at;
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
    if (pipe_stream_of(t->instr[i].op) == PIPE_COPY && t->instr[i].peer == r)
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

/* ---- opening ---- */

void *cuda_peer_slot(const PrRun *run, uint32_t r, uint32_t slot) {
  struct CudaPeers *x = cuda_of(run)->peers;
  return x ? (char *)x->block[r] + x->at[r][slot] : run->rank[r].slot[slot];
}

char *cuda_peer_block(const PrRun *run, uint32_t r) { return cuda_of(run)->peers->block[r]; }

/* All that is taken of the host. */
static PrStatus take_room(PrRun *run, struct CudaPeers *x) {
  uint32_t n = run->p->nrank;
  x->offer = calloc(n, sizeof *x->offer);
  x->block = calloc(n, sizeof *x->block);
  x->at = calloc(n, sizeof *x->at);
  bool ok = x->offer && x->block && x->at;
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

static PrStatus cannot_open(PrRun *run, uint32_t r, cudaError_t e) {
  return pr_fail(run, PR_E_DEVICE,
                 "rank %u keeps stashes on rank %u, whose memory it cannot open: %s; it takes one "
                 "host, and devices that reach each other",
                 run->here, r, cudaGetErrorString(e));
}

/* That this rank cannot send by copies is no failure yet (cuda_edges_open). */
static void no_peer(PrRun *run, uint32_t r, cudaError_t e) {
  snprintf(cuda_of(run)->no_peer, PR_TEXT, "rank %u cannot open the memory of rank %u: %s",
           run->here, r, cudaGetErrorString(e));
  cudaGetLastError(); /* else a model finds it after a launch of its own */
}

static PrStatus make_offer(PrRun *run, Offer *to) {
  cudaError_t e;
  to->process = cuda_where().process;
  to->block_at = run->rank[run->here].block;
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
    if (r == run->here)
      continue;
    if (guest || (sends_to(run, r) && !*cuda_of(run)->no_peer))
      e = open_memory(run, r, o->block, o->block_at, &x->block[r]);
    if (e && guest)
      return cannot_open(run, r, e);
    if (e)
      no_peer(run, r, e);
  }
  return st;
}

/* Each part on all ranks, or on none: what fails on one before others wait for it, all are told. */
PrStatus cuda_peers_open(PrRun *run) {
  PrCuda *c = cuda_of(run);
  if (!c->o.group || !cuda_any_lends(run))
    return PR_OK;
  struct CudaPeers *x = c->peers = calloc(1, sizeof *x);
  PrStatus st = x ? take_room(run, x) : pr_fail(run, PR_E_MEMORY, "rank %u: no memory", run->here);
  if (!st)
    st = make_offer(run, &x->offer[run->here]);
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
    free(x->at ? x->at[r] : NULL);
  }
  if (!c->aborted) { /* all have closed what they had open, and know it */
    all = !cuda_meet(run);
    free_all = !cuda_share(run, 0, &all, 1) && all;
  }
  free(x->block);
  free(x->at);
  free(x->offer);
  free(x);
  c->peers = NULL;
  return free_all;
}
