/* SPDX-License-Identifier: MIT
 * Opening a run on CUDA devices: memory, streams, events, communicators, the prologue; and closing.
 *
 * note [prologue]: NCCL connects two ranks when they first meet in a call, and that blocks their hosts until
 * both are there. So before the first step, all ranks meet in one order of all pairs that the program
 * connects, a byte in each direction, and after that once in each communicator of a sum and in that of all.
 *
 * note [splits]: the ranks of a REDUCE or TIE are a communicator of their own, split from that of all, in the
 * order of their rows. Sets without a rank in common are made by one call. No stream of its own: the COMM
 * stream of a rank runs one after the other, so two communicators never wait for each other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_engine.h"

/* ---- memory ---- */

/* NCCL moves what is in its own memory best; others can open what is not (cuda_peers.c). */
static bool is_of_nccl(const PrRun *run) { return cuda_of(run)->o.group && !cuda_lends(run); }

void *cuda_take(PrRun *run, uint64_t bytes, bool host) {
  void *p = NULL;
  if (host              ? cudaMallocHost(&p, bytes) != cudaSuccess
      : is_of_nccl(run) ? ncclMemAlloc(&p, bytes) != ncclSuccess
                        : cudaMalloc(&p, bytes) != cudaSuccess)
    return NULL;
  if (!host && cudaMemset(p, 0, bytes) != cudaSuccess) {
    cuda_give(run, p, false);
    return NULL;
  }
  if (host)
    memset(p, 0, bytes);
  return p;
}

void cuda_give(PrRun *run, void *p, bool host) {
  if (host)
    cudaFreeHost(p);
  else if (is_of_nccl(run))
    ncclMemFree(p);
  else
    cudaFree(p);
}

static PrStatus fetch(PrRun *run, void *to, const void *from, uint64_t bytes) {
  CUDA_TRY(run, cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
  return PR_OK;
}

static PrStatus store(PrRun *run, void *to, const void *from, uint64_t bytes) {
  CUDA_TRY(run, cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
  CUDA_TRY(run, cudaDeviceSynchronize());
  return PR_OK;
}

static void rewind_to(PrRun *run, uint64_t step) {
  cuda_of(run)->issued_steps = cuda_of(run)->done_steps = step;
  cuda_check_rewind(run, step);
}

/* ---- the group ---- */

PrStatus cuda_share(PrRun *run, uint32_t rank, void *data, uint64_t bytes) {
  const PrGroup *g = cuda_of(run)->o.group;
  char text[PR_TEXT];
  if (!g || !g->share(g->arg, rank, data, bytes))
    return PR_OK;
  int heard = g->heard(g->arg, text, sizeof text);
  if (heard == 2 && cuda_of(run)->since)
    return cuda_blame(run);
  if (heard)
    return pr_fail(run, PR_E_LOST, "%s", text);
  return pr_fail(run, PR_E_LOST, "rank %u: the other processes cannot be reached", g->rank);
}

/* What must be the same everywhere, and what was the matter, if anything. */
typedef struct Card {
  uint64_t hash;
  uint32_t size;
  int32_t status;
  char text[PR_TEXT];
} Card;

PrStatus cuda_agree(PrRun *run, PrStatus st) {
  const PrGroup *g = cuda_of(run)->o.group;
  Card mine = {.hash = run->p ? run->p->hash : 0, .size = g ? g->size : 1, .status = (int32_t)st},
       first = {0};
  PrStatus all = st;
  snprintf(mine.text, sizeof mine.text, "%s", run->text);
  for (uint32_t r = 0; g && r < g->size; r++) {
    Card card = mine;
    PrStatus lost = cuda_share(run, r, &card, sizeof card);
    if (lost)
      return st ? st : lost;
    card.text[sizeof card.text - 1] = 0;
    first = r == 0 ? card : first;
    if (!all && card.status)
      all = pr_fail(run, (PrStatus)card.status, "%s", card.text);
    if (!all && (card.hash != first.hash || card.size != first.size))
      all = pr_fail(
          run, PR_E_ARG, "rank %u of %u runs program %016llx, rank 0 of %u program %016llx", r,
          card.size, (unsigned long long)card.hash, first.size, (unsigned long long)first.hash);
  }
  return all;
}

PrStatus cuda_join(PrRun *run) {
  PrCuda *c = calloc(1, sizeof *c);
  static const PrCudaOptions none;
  const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
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
  if (g && (g->size == 0 || g->rank >= g->size || !g->share || !g->tell || !g->heard))
    return pr_fail(run, PR_E_ARG, "options: rank %u of a group of %u", g->rank, g->size);
  if (blocking && atoi(blocking))
    return pr_fail(run, PR_E_ARG, "CUDA_LAUNCH_BLOCKING=%s: a step needs several launches at once",
                   blocking);
  if ((unsigned)c->o.grad > PR_INT64)
    return pr_fail(run, PR_E_ARG, "options: grad is %d", (int)c->o.grad);
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  int n = 0;
  cudaError_t e = cudaGetDeviceCount(&n);
  if (e != cudaSuccess || c->o.device < 0 || c->o.device >= n)
    return pr_fail(run, PR_E_DEVICE, "device %d: %s", c->o.device,
                   e ? cudaGetErrorString(e) : "there are not so many");
  CUDA_TRY(run, cudaSetDevice(c->o.device));
  return PR_OK;
}

/* ---- communicators ---- */

ncclDataType_t cuda_type(const PrCuda *c, uint64_t *bytes) {
  static const struct {
    ncclDataType_t type;
    uint64_t bytes;
  } of[] = {[PR_FLOAT32] = {ncclFloat32, 4},
            [PR_FLOAT64] = {ncclFloat64, 8},
            [PR_FLOAT16] = {ncclFloat16, 2},
            [PR_BFLOAT16] = {ncclBfloat16, 2},
            [PR_INT64] = {ncclInt64, 8}};
  *bytes = of[c->o.grad].bytes;
  return of[c->o.grad].type;
}

static PrStatus split(PrRun *run, int color, int key, ncclComm_t *to) {
  PrCuda *c = cuda_of(run);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 0;
  *to = NULL;
  NCCL_TRY(run, c->comm, ncclCommSplit(c->comm, color, key, to, &config));
  if (*to)
    NCCL_TRY(run, *to, ncclInProgress); /* itself */
  return PR_OK;
}

static uint32_t rank_of(const PrRun *run, uint32_t row) { return run->p->stage[row].rank; }

static bool meets(const PrRun *run, const Coll *a, const Coll *b) {
  for (uint32_t i = 0; i < a->n; i++)
    for (uint32_t j = 0; j < b->n; j++)
      if (rank_of(run, a->row[i]) == rank_of(run, b->row[j]))
        return true;
  return false;
}

static bool same(const PrRun *run, const Coll *a, const Coll *b) {
  bool is = a->n == b->n;
  for (uint32_t i = 0; is && i < a->n; i++)
    is = rank_of(run, a->row[i]) == rank_of(run, b->row[i]);
  return is;
}

/* note [splits] */
static PrStatus split_sums(PrRun *run) {
  PrCuda *c = cuda_of(run);
  const PipeProgram *p = run->p;
  uint32_t n = p->nmodel, *round;
  for (uint32_t s = 0; s < p->nstage; s++)
    for (uint32_t i = 0; p->stage[s].tied == s && i < run->rank[rank_of(run, s)].ncomm; i++) {
      const RankRun *k = &run->rank[rank_of(run, s)];
      n = k->comm[i].chan + 1 > n && k->t->instr[k->comm[i].index].op == PIPE_TIE
              ? k->comm[i].chan + 1
              : n;
    }
  c->ncoll = n;
  c->coll_comm = calloc(n, sizeof(ncclComm_t));
  round = calloc(n, sizeof *round); /* + 1; 0: it needs none */
  if (!c->coll_comm || !round) {
    free(round);
    return pr_fail(run, PR_E_MEMORY, "no memory for %u sums", n);
  }
  uint32_t nround = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (run->coll[i].n < 2)
      continue;
    for (uint32_t t = 1; !round[i];
         t++) { /* the first round in which its ranks are free, or that has it */
      round[i] = t;
      for (uint32_t j = 0; j < i && round[i]; j++)
        if (round[j] == t && meets(run, &run->coll[i], &run->coll[j]) &&
            !same(run, &run->coll[i], &run->coll[j]))
          round[i] = 0;
      nround = round[i] > nround ? round[i] : nround;
    }
  }
  PrStatus st = nround > CUDA_MOST_SPLITS
                    ? pr_fail(
                          run, PR_E_ARG,
                          "program: its sums need %u communicators of a rank; the engine has %d",
                          nround, CUDA_MOST_SPLITS)
                    : PR_OK;
  for (uint32_t t = 1; t <= nround && !st; t++) {
    int color = NCCL_SPLIT_NOCOLOR, key = 0;
    for (uint32_t i = 0; i < n && color < 0; i++)
      for (uint32_t j = 0; round[i] == t && j < run->coll[i].n; j++)
        if (rank_of(run, run->coll[i].row[j]) == run->here)
          color = (int)i, key = (int)j;
    for (uint32_t i = 0; color >= 0 && i < (uint32_t)color;
         i++) /* the first of those that are the same */
      if (round[i] == t && same(run, &run->coll[i], &run->coll[color]))
        color = (int)i;
    ncclComm_t *to = &c->split[c->nsplit++];
    st = split(run, color, key, to);
    for (uint32_t i = 0; i < n && *to; i++)
      if (round[i] == t && same(run, &run->coll[i], &run->coll[color]))
        c->coll_comm[i] = *to;
  }
  free(round);
  return st;
}

/* Marks who meets whom in transfers: pair[a * nrank + b], a < b. */
static uint8_t *find_pairs(const PipeProgram *p) {
  uint8_t *pair = calloc((size_t)p->nrank * p->nrank, 1);
  for (uint32_t r = 0; pair && r < p->nrank; r++)
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
      const PipeInstr *in = &p->rank[r].instr[i];
      if (pipe_op_info[in->op].comm && in->peer != PIPE_NONE && r < in->peer)
        pair[(size_t)r * p->nrank + in->peer] = 1;
    }
  return pair;
}

static PrStatus touch(PrRun *run, uint32_t peer) {
  PrCuda *c = cuda_of(run);
  cudaStream_t s = c->rank[0].stream[PIPE_COMM];
  if (ncclGroupStart() != ncclSuccess)
    return pr_fail(run, PR_E_DEVICE, "ncclGroupStart fails");
  ncclResult_t a = ncclSend(c->contact, 1, ncclChar, (int)peer, c->comm, s),
               b = ncclRecv(c->contact + PR_LINE, 1, ncclChar, (int)peer, c->comm, s);
  NCCL_TRY(run, c->comm, ncclGroupEnd());
  if ((a != ncclSuccess && a != ncclInProgress) || (b != ncclSuccess && b != ncclInProgress))
    return pr_fail(run, PR_E_DEVICE, "rank %u: the first contact with rank %u: %s", run->here, peer,
                   ncclGetErrorString(a != ncclSuccess ? a : b));
  return PR_OK;
}

/* note [prologue] */
static PrStatus prologue(PrRun *run) {
  PrCuda *c = cuda_of(run);
  const PipeProgram *p = run->p;
  cudaStream_t s = c->rank[0].stream[PIPE_COMM];
  uint8_t *pair = find_pairs(p);
  PrStatus st = pair ? PR_OK : pr_fail(run, PR_E_MEMORY, "no memory for %u ranks", p->nrank);
  for (uint32_t a = 0; a < p->nrank && !st; a++)
    for (uint32_t b = a + 1; b < p->nrank && !st; b++)
      if (pair[(size_t)a * p->nrank + b] && (a == run->here || b == run->here))
        st = touch(run, a == run->here ? b : a);
  free(pair);
  for (uint32_t i = 0; i <= c->nsplit && !st; i++) {
    ncclComm_t x = i < c->nsplit ? c->split[i] : c->comm;
    if (x)
      st = cuda_nccl(run, x, "ncclAllReduce",
                     ncclAllReduce(c->contact, c->contact, 1, ncclChar, ncclSum, x, s));
  }
  if (st)
    return st;
  CUDA_TRY(run, cudaEventRecord(c->rank[0].ready, s));
  return cuda_wait_event(run, c->rank[0].ready);
}

static PrStatus open_nccl(PrRun *run) {
  PrCuda *c = cuda_of(run);
  ncclUniqueId id = {{0}};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  const PrGroup *g = c->o.group;
  config.blocking = 0;
  if (g->size == 1)
    return PR_OK; /* no transfers, no sums */
  if (g->rank == 0 && ncclGetUniqueId(&id) != ncclSuccess)
    return pr_fail(run, PR_E_DEVICE, "ncclGetUniqueId: %s", ncclGetLastError(NULL));
  PrStatus st = cuda_share(run, 0, &id, sizeof id);
  if (st)
    return st;
  ncclResult_t r = ncclCommInitRankConfig(&c->comm, (int)g->size, id, (int)g->rank, &config);
  if ((st = cuda_nccl(run, c->comm, "ncclCommInitRankConfig", r)) || (st = split_sums(run)) ||
      (st = prologue(run)))
    return st;
  RankRun *k = c->rank[0].k;
  if (!is_of_nccl(run))
    return PR_OK;
  NCCL_TRY(run, c->comm, ncclCommRegister(c->comm, k->block, k->bytes + PR_LINE, &c->registered));
  return PR_OK;
}

/* ---- streams and events ---- */

static PrStatus open_rank(PrRun *run, CudaRank *d) {
  PrCuda *c = cuda_of(run);
  const PipeRank *t = d->k->t;
  int least = 0, greatest = 0;
  uint32_t n[PIPE_NSTREAMS] = {d->k->ncompute, d->k->ncomm, d->k->ncopy};
  CUDA_TRY(run, cudaDeviceGetStreamPriorityRange(&least, &greatest));
  for (int x = 0; x < PIPE_NSTREAMS; x++) {
    uint64_t ahead = (uint64_t)(c->o.ahead ? c->o.ahead : 4) * n[x] / run->p->nmb;
    d->ahead[x] = ahead < 8 ? 8 : ahead > 1 << 16 ? 1 << 16 : (uint32_t)ahead;
    CUDA_TRY(run, cudaStreamCreateWithPriority(&d->stream[x], cudaStreamNonBlocking,
                                               x == PIPE_COMM ? greatest : least));
    for (int i = 0; i < 2; i++)
      CUDA_TRY(run, cudaEventCreateWithFlags(&d->fence[x][i], cudaEventDisableTiming));
  }
  CUDA_TRY(run, cudaEventCreateWithFlags(&d->over, cudaEventDisableTiming));
  CUDA_TRY(run, cudaEventCreateWithFlags(&d->ready, cudaEventDisableTiming));
  d->event = calloc((size_t)t->nevent + 1, sizeof *d->event);
  d->held = calloc((size_t)t->nevent + 1, sizeof *d->held);
  d->record = calloc((size_t)t->ninstr + 1, sizeof *d->record);
  if (!d->event || !d->held || !d->record)
    return pr_fail(run, PR_E_MEMORY, "no memory for the events of rank %u", d->k->id);
  for (uint32_t i = 0; i < t->nevent; i++)
    CUDA_TRY(run, cudaEventCreateWithFlags(&d->event[i], cudaEventDisableTiming));
  for (uint32_t i = 0; i < t->nsync; i++)
    d->record[t->sync[i].after + 1] = t->sync[i].event + 1;
  return PR_OK;
}

static PrStatus open_device(PrRun *run) {
  PrCuda *c = cuda_of(run);
  size_t n = (size_t)run->nsink * run->p->nmb;
  for (uint32_t i = 0; i < 2; i++)
    CUDA_TRY(run, cudaEventCreateWithFlags(&c->over[i], cudaEventDisableTiming));
  CUDA_TRY(run, cudaEventCreateWithFlags(&c->begin, cudaEventDisableTiming));
  c->turn = calloc(run->p->ngroup + 1, sizeof *c->turn);
  c->turns = calloc(run->p->ngroup + 1, sizeof *c->turns);
  if (!c->turn || !c->turns)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u groups", run->p->ngroup);
  for (uint32_t i = 0; i < run->p->ngroup; i++)
    CUDA_TRY(run, cudaEventCreateWithFlags(&c->turn[i], cudaEventDisableTiming));
  c->loss = cuda_take(run, (2 * n + c->nhere) * sizeof *c->loss, false);
  c->step_at = cuda_take(run, sizeof *c->step_at, false);
  c->contact = cuda_take(run, 2 * PR_LINE, false);
  c->loss_to = cuda_take(run, 2 * n * sizeof *c->loss_to, true);
  c->step_from = cuda_take(run, 2 * sizeof *c->step_from, true);
  return c->loss && c->step_at && c->contact && c->loss_to && c->step_from
             ? PR_OK
             : pr_fail(run, PR_E_MEMORY, "the device has no memory left");
}

/* Groups of transfers are small (R5): how many ranks the one that begins at row i is with. */
static PrStatus check_group(PrRun *run, uint32_t r, uint32_t i) {
  const PipeInstr *in = &run->p->rank[r].instr[i];
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
                       "program: the group of rank %u at %s is with %u ranks, and NCCL may cut it: "
                       "options.group_peers allows %u",
                       r, pr_where(run, in, where), n, most);
}

/* ns that a step may take, 0: any: the prediction is of one step without any delay. */
static uint64_t deadline_of(const PrRun *run) {
  const double least = 30e9, most = 1e18;
  double ns = 10.0 * (double)run->p->makespan;
  if (run->o.deadline_s > 0)
    return (uint64_t)(run->o.deadline_s * 1e9);
  return !run->p->timed ? 0 : (uint64_t)(ns < least ? least : ns > most ? most : ns);
}

static PrStatus open_here(PrRun *run) {
  PrCuda *c = cuda_of(run);
  PrStatus st;
  if (run->p->nchannel)
    return pr_fail(
        run, PR_E_ARG,
        "program: lowering channels: this engine has one comm stream per rank; compile with --lowering=global");
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    const PipeRank *t = &run->p->rank[r];
    if ((st = pr_check_events(run, r)))
      return st;
    for (uint32_t i = 0; i < t->ninstr && c->o.group; i++) {
      const PipeInstr *in = &t->instr[i];
      if (pipe_op_info[in->op].comm && in->group > 0 && (st = check_group(run, r, i)))
        return st;
    }
  }
  uint64_t each;
  cuda_type(c, &each);
  for (uint32_t s = 0; s < run->p->nstage && c->o.group; s++)
    if (run->p->stage[s].replica != s && run->stage[s].size.grad % each)
      return pr_fail(run, PR_E_SIZE,
                     "stage %u: %llu bytes of gradients are no whole number of %llu", s,
                     (unsigned long long)run->stage[s].size.grad, (unsigned long long)each);
  c->limit_ns = deadline_of(run);
  c->opened = pr_now();
  c->nhere = run->here == PIPE_NONE ? run->p->nrank : 1;
  c->rank = calloc(c->nhere, sizeof *c->rank);
  c->partner = calloc(run->p->nrank, sizeof(CudaRank *));
  if (!c->rank || !c->partner)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u ranks", c->nhere);
  for (uint32_t r = 0; r < c->nhere; r++) {
    c->rank[r].k = &run->rank[run->here == PIPE_NONE ? r : run->here];
    if ((st = open_rank(run, &c->rank[r])))
      return st;
  }
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
  if (!st && cuda_of(run)->o.group)
    st = cuda_agree(run, open_nccl(run));
  if (!st)
    st = cuda_trace_open(run);
  if (st)
    cuda_abort(run);
  else
    cuda_watch(run, true);
  return st;
}

static void close_rank(CudaRank *d) {
  for (int x = 0; x < PIPE_NSTREAMS; x++) {
    for (int i = 0; i < 2; i++)
      if (d->fence[x][i])
        cudaEventDestroy(d->fence[x][i]);
    if (d->stream[x])
      cudaStreamDestroy(d->stream[x]);
  }
  for (uint32_t i = 0; d->event && i < d->k->t->nevent; i++)
    if (d->event[i])
      cudaEventDestroy(d->event[i]);
  if (d->over)
    cudaEventDestroy(d->over);
  if (d->ready)
    cudaEventDestroy(d->ready);
  free(d->event);
  free(d->held);
  free(d->record);
}

static void close_comm(PrRun *run, ncclComm_t x) {
  if (x && !cuda_of(run)->aborted &&
      cuda_nccl(run, x, "ncclCommFinalize", ncclCommFinalize(x)) == PR_OK)
    ncclCommDestroy(x);
}

void cuda_close(PrRun *run) {
  PrCuda *c = cuda_of(run);
  if (!c)
    return;
  cuda_watch(run, false);
  if (c->rank && !c->aborted)
    cudaDeviceSynchronize();
  const bool unused = cuda_peers_close(run);
  if (c->registered && !c->aborted)
    ncclCommDeregister(c->comm, c->registered);
  for (uint32_t i = 0; i < c->nsplit; i++)
    close_comm(run, c->split[i]);
  close_comm(run, c->comm);
  for (int i = 0; i < 2; i++) {
    if (c->graph[i])
      cudaGraphExecDestroy(c->graph[i]);
    if (c->over[i])
      cudaEventDestroy(c->over[i]);
  }
  if (c->begin)
    cudaEventDestroy(c->begin);
  for (uint32_t i = 0; c->turn && run->p && i < run->p->ngroup; i++)
    if (c->turn[i])
      cudaEventDestroy(c->turn[i]);
  free(c->turn);
  free(c->turns);
  if (c->rank)
    cuda_trace_close(run);
  cuda_formulas_close(run);
  cuda_check_close(run);
  for (uint32_t r = 0; c->rank && r < c->nhere; r++)
    if (c->rank[r].k)
      close_rank(&c->rank[r]);
  void *mine[] = {c->loss, c->step_at, c->contact};
  for (int i = 0; i < 3; i++)
    if (mine[i])
      cuda_give(run, mine[i], false);
  if (c->loss_to)
    cuda_give(run, c->loss_to, true);
  if (c->step_from)
    cuda_give(run, c->step_from, true);
  for (uint32_t r = 0; run->rank && r < run->p->nrank; r++) {
    RankRun *k = &run->rank[r];
    if (k->block && (unused || !cuda_lends(run)))
      cuda_give(run, k->block, false);
    if (k->host)
      cuda_give(run, k->host, true);
    k->block = k->host = NULL;
  }
  free(c->rank);
  free(c->partner);
  free(c->coll_comm);
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
                          .take = cuda_take,
                          .give = cuda_give,
                          .fetch = fetch,
                          .store = store,
                          .rewind = rewind_to};
