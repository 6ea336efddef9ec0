/* SPDX-License-Identifier: MIT
 * Opening a run on CUDA devices: memory, streams, events; and closing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_engine.h"
#include "validate.h"

/* ---- memory ---- */

void *cuda_take(uint64_t bytes, bool host) {
  void *p = NULL;
  if ((host ? cudaMallocHost(&p, bytes) : cudaMalloc(&p, bytes)) != cudaSuccess)
    return NULL;
  if (host)
    return memset(p, 0, bytes);
  if (cudaMemset(p, 0, bytes) == cudaSuccess)
    return p;
  cudaFree(p);
  return NULL;
}

void cuda_give(PrRun *run, void *p, bool host) {
  if (cuda_of(run)->stuck)
    return;
  if (host)
    cudaFreeHost(p);
  else
    cudaFree(p);
}

/* True for memory from ncclMemAlloc, which NCCL moves best if both ends have it. Other processes
 * cannot open it (cuda_peers.c). It comes in pieces of 2 MiB, so only tensors lie in it. */
static bool is_of_nccl(const PrRun *run, bool host) {
  return !host && cuda_of(run)->o.group && !cuda_any_lends(run);
}

/* The tensors of a rank. */
static void *take_block(PrRun *run, uint64_t bytes, bool host) {
  void *p = NULL;
  if (!is_of_nccl(run, host))
    return cuda_take(bytes, host);
  if (ncclMemAlloc(&p, bytes) != ncclSuccess)
    return NULL;
  if (cudaMemset(p, 0, bytes) == cudaSuccess)
    return p;
  ncclMemFree(p);
  return NULL;
}

static void give_block(PrRun *run, void *p, bool host) {
  if (!is_of_nccl(run, host))
    cuda_give(run, p, host);
  else if (!cuda_of(run)->stuck)
    ncclMemFree(p);
}

PrStatus cuda_use_device(PrRun *run) {
  CUDA_TRY(run, cudaSetDevice(cuda_of(run)->o.device));
  return PR_OK;
}

static PrStatus fetch(PrRun *run, void *to, const void *from, uint64_t bytes) {
  PrStatus st = cuda_use_device(run);
  if (st)
    return st;
  CUDA_TRY(run, cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
  return PR_OK;
}

static PrStatus store(PrRun *run, void *to, const void *from, uint64_t bytes) {
  PrStatus st = cuda_use_device(run);
  if (st)
    return st;
  CUDA_TRY(run, cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
  CUDA_TRY(run, cudaDeviceSynchronize());
  return PR_OK;
}

static void rewind_to(PrRun *run, uint64_t step) {
  cuda_of(run)->issued_steps = cuda_of(run)->done_steps = step;
  cuda_check_rewind(run, step);
}

/* ---- the group ---- */

/* Fails because rank r did not come to a call that all ranks make. */
static PrStatus vain(PrRun *run, uint32_t r) {
  PrStatus st = cuda_heard(run);
  if (st)
    return st;
  return r == run->here
             ? pr_fail(run, PR_E_LOST, "rank %u: the other processes cannot be reached", r)
             : pr_fail(run, PR_E_LOST, "lost: rank %u got no answer from rank %u", run->here, r);
}

PrStatus cuda_share(PrRun *run, uint32_t rank, void *data, uint64_t bytes) {
  const PrGroup *g = cuda_of(run)->o.group;
  return !g || !g->share(g->arg, rank, data, bytes) ? PR_OK : vain(run, rank);
}

/* What must be equal on all ranks, and the failure of this rank, if any. */
typedef struct CudaCard {
  uint64_t hash;
  uint32_t size, rank;
  int32_t status;
  char text[PR_TEXT];
} Card;

PrStatus cuda_meet(PrRun *run) {
  const PrGroup *g = cuda_of(run)->o.group;
  char here = 0;
  uint32_t missing = g ? g->gather(g->arg, &here, 1, cuda_of(run)->card) : 0;
  return missing ? vain(run, missing - 1) : PR_OK;
}

/* Returns the first card with a failure, or that differs from card 0, which becomes its failure;
 * card 0 if there is none. */
static const Card *judge(Card *card, uint32_t n) {
  for (uint32_t r = 0; r < n; r++) {
    Card *c = &card[r];
    c->text[sizeof c->text - 1] = 0;
    if (c->status)
      return c;
    if (c->hash == card->hash && c->size == card->size)
      continue;
    c->status = PR_E_ARG;
    snprintf(c->text, sizeof c->text,
             "rank %u of %u runs program %016llx, rank 0 of %u program %016llx", r, c->size,
             (unsigned long long)c->hash, card->size, (unsigned long long)card->hash);
    return c;
  }
  return card;
}

static Card card_of(const PrRun *run) {
  const PrGroup *g = cuda_of(run)->o.group;
  return (Card){.hash = run->p ? run->p->hash : 0, .size = g->size, .rank = g->rank};
}

/* Replaces *mine by the card that rank 0 has judged to count for all. */
static PrStatus confer(PrRun *run, Card *mine) {
  PrCuda *c = cuda_of(run);
  const PrGroup *g = c->o.group;
  if (c->missing)
    return vain(run, c->missing - 1);
  uint32_t missing = g->gather(g->arg, mine, sizeof *mine, c->card);
  PrStatus lost = missing ? vain(run, missing - 1) : PR_OK;
  if (lost) { /* tell the others, which wait for rank 0 */
    mine->status = (int32_t)lost;
    snprintf(mine->text, sizeof mine->text, "%s", run->text);
  } else if (g->rank == 0) {
    *mine = *judge(c->card, g->size);
  }
  if (!lost || g->rank == 0)
    lost = cuda_share(run, 0, mine, sizeof *mine);
  return lost;
}

PrStatus cuda_agree(PrRun *run, PrStatus st) {
  if (!cuda_of(run)->o.group)
    return st;
  Card mine = card_of(run);
  mine.status = (int32_t)st;
  snprintf(mine.text, sizeof mine.text, "%s", run->text);
  PrStatus lost = confer(run, &mine);
  if (st || lost)
    return st ? st : lost;
  return mine.status ? pr_fail(run, (PrStatus)mine.status, "%s", mine.text) : PR_OK;
}

PrStatus cuda_ask(PrRun *run, char why[PR_TEXT]) {
  Card mine = card_of(run);
  mine.status = *why != 0;
  snprintf(mine.text, sizeof mine.text, "%s", why);
  PrStatus lost = confer(run, &mine);
  snprintf(why, PR_TEXT, "%s", mine.status ? mine.text : "");
  return lost;
}

/* Finds out if all ranks are on one host and none has chosen NCCL, before memory is taken, which
 * depends on it. A rank that does not come is reported by the next call of confer, because this
 * rank may have a failure of its own to report first. */
static PrStatus find_host(PrRun *run) {
  PrCuda *c = cuda_of(run);
  const PrGroup *g = c->o.group;
  char text[PR_TEXT];
  PrStatus st;
  Card mine = card_of(run);
  mine.hash = c->o.transport == PR_CUDA_NCCL ? ~(uint64_t)g->rank : cuda_where().host;
  const uint32_t missing = g->gather(g->arg, &mine, sizeof mine, c->card);
  if (missing)
    mine = (Card){.status = PR_E_LOST, .rank = missing - 1};
  else if (g->rank == 0)
    mine = *judge(c->card, g->size);
  if ((g->rank == 0 || !missing) && g->share(g->arg, 0, &mine, sizeof mine) && !missing)
    mine = (Card){.status = PR_E_LOST};
  if (mine.status == PR_E_LOST && g->heard(g->arg, &st, text, sizeof text) == 1)
    return pr_fail(run, PR_E_LOST, "%s", text);
  c->missing = mine.status == PR_E_LOST ? mine.rank + 1 : 0;
  c->one_host = g->size > 1 && !mine.status;
  return c->missing || !mine.status || c->o.transport != PR_CUDA_PEER
             ? PR_OK
             : pr_fail(
                   run, PR_E_ARG,
                   "options: transport peer takes all ranks on one host: rank %u is not on that "
                   "of rank 0, or has another transport",
                   mine.rank);
}

static PrStatus join(PrRun *run) {
  PrCuda *c = cuda_of(run);
  const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
  if (blocking && atoi(blocking))
    return pr_fail(run, PR_E_ARG, "CUDA_LAUNCH_BLOCKING=%s: a step needs several launches at once",
                   blocking);
  if ((unsigned)c->o.grad > PR_INT64)
    return pr_fail(run, PR_E_ARG, "options: grad is %d", (int)c->o.grad);
  if ((unsigned)c->o.transport > PR_CUDA_PEER)
    return pr_fail(run, PR_E_ARG, "options: transport is %d", (int)c->o.transport);
  if (c->o.transport == PR_CUDA_NCCL && !c->o.group)
    return pr_fail(run, PR_E_ARG, "options: transport nccl takes a group, of a process a rank");
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  int n = 0;
  cudaError_t e = cudaGetDeviceCount(&n);
  if (e != cudaSuccess)
    return pr_fail(run, PR_E_DEVICE, "device %d: %s", c->o.device, cudaGetErrorString(e));
  if (c->o.device < 0 || c->o.device >= n)
    return pr_fail(run, PR_E_DEVICE, "device %d does not exist; the host has %d", c->o.device, n);
  PrStatus st = cuda_use_device(run);
  return st || !c->o.group ? st : find_host(run);
}

PrStatus cuda_join(PrRun *run) {
  PrCuda *c = calloc(1, sizeof *c);
  static const PrCudaOptions none;
  if (!c)
    return pr_fail(run, PR_E_MEMORY, "no memory");
  run->of_engine = c;
  c->run = run;
  c->o = run->o.engine_options ? *(const PrCudaOptions *)run->o.engine_options : none;
  const PrGroup *g = c->o.group;
  if (g) {
    run->here = g->rank;
    run->nprocess = g->size;
  }
  if (g && (g->size == 0 || g->rank >= g->size || !g->share || !g->tell || !g->heard || !g->gather))
    return pr_fail(run, PR_E_ARG, "options: rank %u of a group of %u", g->rank, g->size);
  c->card = g ? calloc(g->rank ? 1 : g->size, sizeof *c->card) : NULL;
  PrStatus st = g && !c->card ? pr_fail(run, PR_E_MEMORY, "no memory for %u ranks", g->size)
                              : join(run);
  if (st && g && !atomic_exchange(&c->told, true)) /* the others wait for this rank */
    g->tell(g->arg, st, run->text);
  return st;
}

/* ---- streams and events ---- */

uint32_t cuda_nstream(const RankRun *k) {
  return PIPE_NSTREAMS + (k->nstream > 1 ? k->nstream - 1 : 0);
}

void cuda_find_streams(const RankRun *k, uint32_t *on) {
  for (uint32_t i = 0; i < k->t->ninstr; i++)
    on[i] = pipe_stream_of(k->t->instr[i].op);
  for (uint32_t x = 0; x < k->nstream; x++)
    for (uint32_t i = 0; i < k->stream[x].n; i++)
      on[pr_comm_at(&k->stream[x], i)->index] = pr_comm_queue(x);
}

/* Streams for transfers and sums have high priority. */
static PrStatus open_stream(PrRun *run, CudaRank *d, uint32_t x, uint32_t n) {
  PrCuda *c = cuda_of(run);
  int least = 0, greatest = 0;
  uint64_t ahead = (uint64_t)(c->o.ahead ? c->o.ahead : 4) * n / run->p->nmb;
  CUDA_TRY(run, cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CUDA_TRY(run, cudaStreamCreateWithPriority(&d->stream[x], cudaStreamNonBlocking,
                                             cuda_is_comm(x) ? greatest : least));
  d->fence[x].ahead = ahead < 8 ? 8 : ahead > 1 << 16 ? 1 << 16 : (uint32_t)ahead;
  for (int i = 0; i < 2; i++)
    CUDA_TRY(run, cudaEventCreateWithFlags(&d->fence[x].event[i], cudaEventDisableTiming));
  return PR_OK;
}

/* Numbers the events of a rank: one is recorded after each row that a wait names. An event is
 * recorded again once its last wait has been issued. */
static PrStatus number_events(PrRun *run, CudaRank *d) {
  const PipeRank *t = d->k->t;
  const size_t rows = (size_t)t->ninstr + 1;
  uint32_t *last = calloc(2 * rows, sizeof *last); /* at row + 1: the last row that waits for it */
  uint32_t nunused = 0, at = 0;
  d->queues = pipe_queues(run->p, t);
  if (!last || !d->queues.first) {
    free(last);
    return pr_fail(run, PR_E_MEMORY, "no memory for the events of rank %u", d->k->id);
  }
  uint32_t *unused = last + rows;
  for (uint32_t row = 0; row <= t->ninstr; row++)
    for (uint32_t i = pipe_wait0(t, row); i < pipe_wait_end(t, row); i++)
      last[pipe_after(&d->queues, t->wait[i])] = row + 1;
  for (uint32_t i = 0; i <= t->ninstr + 1; i++) { /* i: row + 1 */
    for (; i > 0 && at < pipe_wait_end(t, i - 1); at++) {
      const uint32_t after = pipe_after(&d->queues, t->wait[at]);
      if (last[after] == i) {
        unused[nunused++] = d->record[after] - 1;
        last[after] = 0;
      }
    }
    if (i <= t->ninstr && last[i])
      d->record[i] = 1 + (nunused > 0 ? unused[--nunused] : d->nevent++);
  }
  free(last);
  return PR_OK;
}

static PrStatus open_rank(PrRun *run, CudaRank *d) {
  const RankRun *k = d->k;
  const PipeRank *t = k->t;
  PrStatus st;
  d->nstream = cuda_nstream(k);
  d->stream = calloc(d->nstream, sizeof *d->stream);
  d->fence = calloc(d->nstream, sizeof *d->fence);
  d->on = calloc((size_t)t->ninstr + 1, sizeof *d->on);
  d->event = calloc((size_t)t->nwait + 1, sizeof *d->event);
  d->held = calloc((size_t)t->nwait + 1, sizeof *d->held);
  d->record = calloc((size_t)t->ninstr + 1, sizeof *d->record);
  if (!d->stream || !d->fence || !d->on || !d->event || !d->held || !d->record)
    return pr_fail(run, PR_E_MEMORY, "no memory for the streams and events of rank %u", k->id);
  if ((st = number_events(run, d)))
    return st;
  cuda_find_streams(k, d->on);
  for (uint32_t x = 0; x < d->nstream; x++) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->ninstr; i++)
      n += d->on[i] == x;
    if ((st = open_stream(run, d, x, n)))
      return st;
  }
  CUDA_TRY(run, cudaEventCreateWithFlags(&d->over, cudaEventDisableTiming));
  CUDA_TRY(run, cudaEventCreateWithFlags(&d->ready, cudaEventDisableTiming));
  for (uint32_t i = 0; i < d->nevent; i++)
    CUDA_TRY(run, cudaEventCreateWithFlags(&d->event[i], cudaEventDisableTiming));
  return PR_OK;
}

static PrStatus open_device(PrRun *run) {
  PrCuda *c = cuda_of(run);
  size_t n = (size_t)run->nsink * run->p->nmb;
  for (uint32_t i = 0; i < 2; i++)
    CUDA_TRY(run, cudaEventCreateWithFlags(&c->over[i], cudaEventDisableTiming));
  CUDA_TRY(run, cudaEventCreateWithFlags(&c->begin, cudaEventDisableTiming));
  c->loss = cuda_take((2 * n + c->nhere) * sizeof *c->loss, false);
  c->step_at = cuda_take(sizeof *c->step_at, false);
  c->loss_to = cuda_take(2 * n * sizeof *c->loss_to, true);
  c->step_from = cuda_take(2 * sizeof *c->step_from, true);
  return c->loss && c->step_at && c->loss_to && c->step_from
             ? PR_OK
             : pr_fail(run, PR_E_MEMORY, "the device has no memory left");
}

/* Refuses the group that begins at row i if it is with too many ranks (R5). */
static PrStatus check_group(PrRun *run, uint32_t r, uint32_t i) {
  const PipeInstr *in = &run->rank[r].t->instr[i];
  uint32_t most = cuda_of(run)->o.group_peers, n = 0;
  most = most ? most : 2;
  for (uint32_t j = 0; j <= in->group; j++) {
    bool again = false;
    for (uint32_t k = 0; k < j && !again; k++)
      again = in[k].peer == in[j].peer;
    n += !again;
  }
  char where[PR_WHERE];
  return n <= most
             ? PR_OK
             : pr_fail(run, PR_E_ARG,
                       "program: the group of rank %u at %s has %u peers, and NCCL may split it; "
                       "raise options.group_peers (now %u)",
                       r, pr_where(run, in, where), n, most);
}

static PrStatus open_here(PrRun *run) {
  PrCuda *c = cuda_of(run);
  PrStatus st;
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    const PipeRank *t = run->rank[r].t;
    if (!pr_is_here(run, r))
      continue;
    for (uint32_t i = 0; i < t->ninstr && c->o.group; i++) {
      const PipeInstr *in = &t->instr[i];
      if (pipe_op_info[in->op].comm && in->group > 0 && (st = check_group(run, r, i)))
        return st;
    }
  }
  uint64_t each;
  cuda_type(c, &each);
  for (uint32_t s = 0; s < run->p->nstage && c->o.group; s++) {
    const PipeStage *g = &run->p->stage[s];
    const uint64_t all = g->replica != s ? run->stage[s].size.grad : 0,
                   tied = g->tied != PIPE_NONE ? run->stage[s].size.tied : 0;
    if (all % each || tied % each)
      return pr_fail(run, PR_E_SIZE,
                     "stage %u: %llu bytes of gradients are no whole number of %llu", s,
                     (unsigned long long)(all % each ? all : tied), (unsigned long long)each);
  }
  c->limit_ns = pr_limit(run, run->p->makespan);
  c->opened = pr_now();
  c->nhere = run->here == PIPE_NONE ? run->p->nrank : 1;
  c->rank = calloc(c->nhere, sizeof *c->rank);
  c->partner = calloc(run->p->nrank, sizeof(CudaRank *));
  for (uint32_t r = 0; c->rank && r < c->nhere; r++)
    c->rank[r].k = &run->rank[run->here == PIPE_NONE ? r : run->here];
  if (!c->rank || !c->partner)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u ranks", c->nhere);
  for (uint32_t r = 0; r < c->nhere; r++)
    if ((st = open_rank(run, &c->rank[r])))
      return st;
  if ((st = open_device(run)) || (st = cuda_formulas_open(run)) || (st = cuda_check_open(run)))
    return st;
  CUDA_TRY(run, cudaDeviceSynchronize()); /* memory is zero */
  for (uint32_t r = 0; r < c->nhere; r++)
    if ((st = pr_init_rank(run, c->rank[r].k)))
      return st;
  CUDA_TRY(run, cudaDeviceSynchronize());
  return PR_OK;
}

PrStatus cuda_open(PrRun *run) {
  PrStatus st = cuda_agree(run, open_here(run));
  if (!st)
    st = cuda_peers_open(run);
  if (!st)
    st = cuda_edges_open(run);
  if (!st && cuda_of(run)->o.group)
    st = cuda_agree(run, cuda_open_nccl(run));
  if (!st)
    st = cuda_trace_open(run);
  if (st)
    cuda_abort(run);
  else
    cuda_watch(run, true);
  return st;
}

static void close_rank(CudaRank *d) {
  for (uint32_t x = 0; x < d->nstream; x++) {
    for (int i = 0; d->fence && i < 2; i++)
      if (d->fence[x].event[i])
        cudaEventDestroy(d->fence[x].event[i]);
    if (d->stream && d->stream[x])
      cudaStreamDestroy(d->stream[x]);
  }
  for (uint32_t i = 0; d->event && i < d->nevent; i++)
    if (d->event[i])
      cudaEventDestroy(d->event[i]);
  if (d->over)
    cudaEventDestroy(d->over);
  if (d->ready)
    cudaEventDestroy(d->ready);
  free(d->stream);
  free(d->fence);
  free(d->on);
  free(d->queues.first);
  free(d->event);
  free(d->held);
  free(d->record);
}

void cuda_close(PrRun *run) {
  PrCuda *c = cuda_of(run);
  if (!c)
    return;
  if (c->rank)
    cuda_use_device(run);
  cuda_watch(run, false);
  if (pr_failed(run))
    cuda_close_watchdog(run); /* it may be aborting */
  c->since = 0;               /* no step is waited for any more */
  c->opened = pr_now();
  if (c->rank && c->aborted)
    cuda_run_out(run);
  else if (c->rank)
    cudaDeviceSynchronize();
  cuda_end_graphs(run); /* before their communicators: note [abort] */
  cuda_edges_close(run);
  const bool unused = cuda_peers_close(run);
  cuda_close_nccl(run);
  cuda_close_watchdog(run);
  for (int i = 0; i < 2; i++)
    if (c->over[i])
      cudaEventDestroy(c->over[i]);
  if (c->begin)
    cudaEventDestroy(c->begin);
  if (c->rank)
    cuda_trace_close(run);
  cuda_formulas_close(run);
  cuda_check_close(run);
  for (uint32_t r = 0; c->rank && r < c->nhere; r++)
    if (c->rank[r].k)
      close_rank(&c->rank[r]);
  void *mine[] = {c->loss, c->step_at};
  for (int i = 0; i < 2; i++)
    if (mine[i])
      cuda_give(run, mine[i], false);
  if (c->loss_to)
    cuda_give(run, c->loss_to, true);
  if (c->step_from)
    cuda_give(run, c->step_from, true);
  for (uint32_t r = 0; run->rank && r < run->p->nrank; r++) {
    RankRun *k = &run->rank[r];
    if (k->block && (unused || !cuda_lends(run)))
      give_block(run, k->block, false);
    if (k->host)
      give_block(run, k->host, true);
    k->block = k->host = NULL;
  }
  free(c->rank);
  free(c->partner);
  free(c->card);
  free(c);
  run->of_engine = NULL;
}

const PrEngine pr_cuda = {.name = "cuda",
                          .join = cuda_join,
                          .open = cuda_open,
                          .steps = cuda_steps,
                          .wake = cuda_abort,
                          .close = cuda_close,
                          .agree = cuda_agree,
                          .share = cuda_share,
                          .take = take_block,
                          .give = give_block,
                          .fetch = fetch,
                          .store = store,
                          .rewind = rewind_to,
                          .late = cuda_late,
                          .look = cuda_look};
