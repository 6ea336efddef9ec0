/* SPDX-License-Identifier: MIT
 * Communicators: makes them, and makes all first contacts of ranks before the first step.
 *
 * note [splits]: `root` has all ranks and does not block; all other communicators are split from it
 * and block (cuda_steps.c: note [watchdog]). The first is `comm`, of all ranks, for transfers and
 * losses. The ranks of a REDUCE or TIE have a communicator of their own, in the order of their
 * rows. With lowering CHANNELS the two ranks of each channel of transfers have one, the sender
 * first, and `comm` is for losses alone. One call makes the communicators of all sets that have no
 * rank in common. The table decides which call makes which, first sums and then channels in their
 * order, so all ranks make the same calls. Children share nothing with the parent (splitShare),
 * because shared resources would serialize them.
 *
 * note [launch order]: without channels the COMM stream of a rank is serial, so two communicators
 * never wait for each other. With channels several kernels of NCCL run at once, and each holds a
 * part of its device until its other end is there. If two ranks start two kernels in opposite
 * orders, and the device has no room for both, neither ever ends. NCCL_LAUNCH_ORDER_IMPLICIT=1
 * starts the kernels of all communicators in the order of the host: each once the one before it has
 * started; before CUDA 12.3, and from a graph with a driver before 12.9, once it is over.
 * Lemma: every step ends, even where a device has room for one kernel only. Proof: the lists are
 * one global order of all transfers, and all that a transfer waits for stands above it. Take the
 * first transfer of that order that is not over. On both of its ranks no later kernel of NCCL has
 * started, and the ops that it needs have the device. So it starts and ends.
 *
 * note [prologue]: NCCL connects two ranks at their first call with each other, which holds both
 * hosts until both are there. What it connects depends on the size of the message and on whether
 * its memory is registered. So before the first step each two ranks that the program connects send
 * each other their largest tensors, from and to slots of the step; with channels the two ranks of
 * each channel do. All ranks meet in one order: pairs by their distance d; of these first the pairs
 * whose lower rank divided by d is even, then the others. Two pairs of one kind have no rank in
 * common, so all pairs of a kind meet at once, and a chain of ranks takes two rounds. After that
 * each sum runs once with its size in a step, and so does the sum of losses: NCCL picks an
 * algorithm by the size, and connects it and takes its buffers when it is first picked. All values
 * are zero and stay zero. All ranks meet in the last sum. All of it is on one stream. By transport
 * peer there are only sums, without the sum of losses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_engine.h"

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

static bool of_transfers(const PipeChannel *ch) { return pipe_is_send(ch->op); }

ncclComm_t cuda_comm_of(const PrCuda *c, const PipeInstr *in, int *peer) {
  if (c->run->p->nchannel == 0) {
    *peer = (int)in->peer;
    return c->comm;
  }
  *peer = pipe_is_send(in->op);
  return c->channel_comm[in->channel];
}

/* ---- sets of ranks ---- */

/* Sets of ranks: of the sums, then of the channels. Each set has one communicator. */
typedef struct Set {
  uint32_t at, n; /* Sets.rank[at .. at + n - 1], in their order in the communicator */
  uint32_t as;    /* the first sum with the same ranks; else the set itself */
  uint32_t round; /* the call that makes it, from 1; 0: it needs no communicator */
} Set;
typedef struct Sets {
  Set *set;
  uint32_t *rank;
  uint8_t *busy; /* [nround][nrank] */
  uint32_t n, nround;
} Sets;

static void free_sets(Sets *x) {
  free(x->set);
  free(x->rank);
  free(x->busy);
}

static bool same(const Sets *x, const Set *a, const Set *b) {
  return a->n == b->n && memcmp(x->rank + a->at, x->rank + b->at, a->n * sizeof *x->rank) == 0;
}

static PrStatus find_sets(PrRun *run, Sets *x) {
  const PipeProgram *p = run->p;
  uint32_t ncoll = cuda_of(run)->ncoll;
  size_t room = 2 * (size_t)p->nchannel + 1, at = 0;
  for (uint32_t i = 0; i < ncoll; i++)
    room += run->coll[i].n;
  x->n = ncoll + p->nchannel;
  x->set = calloc(x->n + (size_t)1, sizeof *x->set);
  x->rank = malloc(room * sizeof *x->rank);
  if (!x->set || !x->rank)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u sums and channels", x->n);
  for (uint32_t i = 0; i < x->n; i++) {
    Set *s = &x->set[i];
    *s = (Set){.at = (uint32_t)at, .as = i};
    const PipeChannel *ch = i < ncoll ? NULL : &p->channel[i - ncoll];
    for (uint32_t j = 0; !ch && j < run->coll[i].n; j++)
      x->rank[at + s->n++] = p->stage[run->coll[i].row[j]].rank;
    if (ch && of_transfers(ch) && !cuda_of(run)->edges)
      x->rank[at] = ch->from, x->rank[at + 1] = ch->to, s->n = 2;
    at += s->n;
    for (uint32_t j = 0; !ch && j < i && s->as == i; j++)
      s->as = same(x, &x->set[j], s) ? j : i;
  }
  return PR_OK;
}

/* Gives each set that needs a communicator the first call in which its ranks are free. */
static PrStatus find_rounds(PrRun *run, Sets *x) {
  const size_t nrank = run->p->nrank;
  for (uint32_t i = 0; i < x->n; i++) {
    Set *s = &x->set[i];
    s->round = s->as == i ? 0 : x->set[s->as].round;
    for (uint32_t t = 0; s->n > 1 && s->round == 0; t++) {
      if (t == x->nround) {
        uint8_t *more = realloc(x->busy, (t + 1) * nrank);
        if (!more)
          return pr_fail(run, PR_E_MEMORY, "no memory for %u sums and channels", x->n);
        x->busy = more;
        memset(more + t * nrank, 0, nrank);
        x->nround++;
      }
      bool is_free = true;
      for (uint32_t j = 0; j < s->n; j++)
        is_free = is_free && !x->busy[t * nrank + x->rank[s->at + j]];
      for (uint32_t j = 0; is_free && j < s->n; j++)
        x->busy[t * nrank + x->rank[s->at + j]] = 1;
      s->round = is_free ? t + 1 : 0;
    }
  }
  return PR_OK;
}

/* ---- splits ---- */

static ncclConfig_t config_of(const PrCuda *c, bool blocks, bool transfers) {
  enum { CTAS = 4 };
  const PrCudaComm *o = &c->o.transfers;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocks;
  config.splitShare = 0;
  if (!transfers)
    return config;
  config.maxCTAs = o->max_ctas ? o->max_ctas : o->min_ctas > CTAS ? o->min_ctas : CTAS;
  if (o->min_ctas)
    config.minCTAs = o->min_ctas;
  if (o->cga_cluster)
    config.cgaClusterSize = o->cga_cluster;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
  if (o->net_channels)
    config.nChannelsPerNetPeer = o->net_channels;
#endif
  return config;
}

/* Makes call number c->nsplit, as all ranks do. */
static PrStatus split(PrRun *run, int color, int key, bool transfers) {
  PrCuda *c = cuda_of(run);
  ncclConfig_t config = config_of(c, true, transfers);
  ncclComm_t *to = &c->split[c->nsplit++];
  NCCL_TRY(run, c->root, ncclCommSplit(c->root, color, key, to, &config));
  if (*to)
    NCCL_TRY(run, *to, ncclInProgress); /* the child, too */
  return PR_OK;
}

/* Makes call number t + 1 as all ranks do, and gives its sets their communicators. */
static PrStatus make_round(PrRun *run, const Sets *x, uint32_t t) {
  PrCuda *c = cuda_of(run);
  int color = NCCL_SPLIT_NOCOLOR, key = 0;
  for (uint32_t i = 0; i < x->n; i++)
    for (uint32_t j = 0; x->set[i].round == t + 1 && x->set[i].as == i && j < x->set[i].n; j++)
      if (x->rank[x->set[i].at + j] == run->here)
        color = (int)i, key = (int)j;
  PrStatus st = split(run, color, key, color >= (int)c->ncoll);
  for (uint32_t i = 0; i < x->n && color >= 0; i++)
    if (x->set[i].as == (uint32_t)color && x->set[i].round == t + 1)
      c->coll_comm[i] = c->split[c->nsplit - 1];
  return st;
}

/* note [splits] */
static PrStatus split_all(PrRun *run) {
  PrCuda *c = cuda_of(run);
  Sets x = {0};
  c->ncoll = run->ncoll;
  PrStatus st = find_sets(run, &x);
  if (!st)
    st = find_rounds(run, &x);
  if (!st) {
    c->coll_comm = calloc(x.n + (size_t)1, sizeof *c->coll_comm);
    c->split = calloc(x.nround + (size_t)1, sizeof *c->split);
    if (!c->coll_comm || !c->split)
      st = pr_fail(run, PR_E_MEMORY, "no memory for %u communicators", x.nround);
  }
  if (!st && !c->edges) {
    st = split(run, 0, (int)run->here, true);
    c->comm = c->split[0];
  }
  c->channel_comm = c->coll_comm ? c->coll_comm + c->ncoll : NULL;
  for (uint32_t t = 0; t < x.nround && !st; t++)
    st = make_round(run, &x, t);
  free_sets(&x);
  return st;
}

/* ---- first contacts ---- */

/* The largest tensor in each direction; NULL: there is none. */
typedef struct Edge {
  const PipeInstr *send, *recv;
} Edge;

/* Returns [n] edges, indexed by the other rank, or with channels by channel. NULL: no memory. */
static Edge *find_edges(const PrRun *run, uint32_t n) {
  const PipeRank *t = run->rank[run->here].t;
  Edge *edge = calloc(n, sizeof *edge);
  for (uint32_t i = 0; edge && i < t->ninstr; i++) {
    const PipeInstr *in = &t->instr[i];
    if (!pipe_is_move(in->op))
      continue;
    Edge *e = &edge[run->p->nchannel ? in->channel : in->peer];
    const PipeInstr **at = pipe_is_send(in->op) ? &e->send : &e->recv;
    if (!*at || pr_moved_bytes(run, in) > pr_moved_bytes(run, *at))
      *at = in;
  }
  return edge;
}

static PrStatus touch(PrRun *run, const Edge *e) {
  PrCuda *c = cuda_of(run);
  cudaStream_t s = c->rank[0].stream[PIPE_COMM];
  const PipeInstr *both[2] = {e->send, e->recv};
  ncclComm_t x = NULL;
  ncclResult_t bad = ncclSuccess;
  int peer = 0;
  PrStatus st = e->send || e->recv ? cuda_enter_nccl(run) : PR_OK;
  if (st || (!e->send && !e->recv))
    return st;
  ncclGroupStart();
  for (int i = 0; i < 2; i++) {
    const PipeInstr *in = both[i];
    if (!in)
      continue;
    void *slot = c->rank[0].k->slot[i ? in->out : in->in];
    const uint64_t bytes = pr_moved_bytes(run, in);
    x = cuda_comm_of(c, in, &peer);
    ncclResult_t r = i ? ncclRecv(slot, bytes, ncclChar, peer, x, s)
                       : ncclSend(slot, bytes, ncclChar, peer, x, s);
    bad = r == ncclSuccess || r == ncclInProgress ? bad : r;
  }
  st = cuda_nccl(run, x, "ncclGroupEnd", ncclGroupEnd());
  return st || bad == ncclSuccess
             ? st
             : pr_fail(run, PR_E_DEVICE, "rank %u: the first contact with rank %u: %s", run->here,
                       (e->send ? e->send : e->recv)->peer, ncclGetErrorString(bad));
}

/* note [prologue] */
static PrStatus touch_edges(PrRun *run) {
  const uint32_t here = run->here, nrank = run->p->nrank, nchannel = run->p->nchannel;
  Edge *edge = find_edges(run, nchannel ? nchannel : nrank);
  PrStatus st = edge ? PR_OK : pr_fail(run, PR_E_MEMORY, "no memory for %u ranks", nrank);
  for (uint32_t i = 0; i < nchannel && !st; i++)
    st = touch(run, &edge[i]);
  for (uint32_t d = 1; d < nrank && !nchannel && !st; d++)
    for (uint32_t odd = 0; odd < 2 && !st; odd++) {
      const bool lower = here / d % 2 == odd; /* of its pair of this kind */
      if (lower ? here + d < nrank : here >= d)
        st = touch(run, &edge[lower ? here + d : here - d]);
    }
  free(edge);
  return st;
}

void *cuda_sum_at(const PrRun *run, const Coll *l, uint64_t *bytes) {
  void *at = NULL;
  for (uint32_t i = 0; !l->tie && i < l->n; i++)
    if (run->p->stage[l->row[i]].rank == run->here)
      at = run->stage[l->row[i]].grad;
  for (uint32_t i = 0; l->tie && i < l->ngrad && !at; i++)
    at = l->grad[i];
  for (uint32_t i = 0; l->tie && i < l->ncopy && !at; i++)
    at = l->copy[i];
  *bytes = l->tie ? run->stage[l->row[0]].size.tied : run->stage[l->row[0]].size.grad;
  return at;
}

static PrStatus touch_sums(PrRun *run) {
  PrCuda *c = cuda_of(run);
  cudaStream_t s = c->rank[0].stream[PIPE_COMM];
  uint64_t each, bytes;
  const ncclDataType_t type = cuda_type(c, &each);
  for (uint32_t i = 0; i < c->ncoll; i++) {
    ncclComm_t x = c->coll_comm[i];
    void *at = x ? cuda_sum_at(run, &run->coll[i], &bytes) : NULL;
    if (x)
      NCCL_TRY(run, x, ncclAllReduce(at, at, bytes / each, type, ncclSum, x, s));
  }
  if (!c->edges)
    NCCL_TRY(run, c->comm,
             ncclAllReduce(c->loss, c->loss, (size_t)run->nsink * run->p->nmb, ncclFloat64, ncclSum,
                           c->comm, s));
  return PR_OK;
}

/* note [prologue] */
static PrStatus prologue(PrRun *run) {
  PrCuda *c = cuda_of(run);
  cudaStream_t s = c->rank[0].stream[PIPE_COMM];
  PrStatus st = c->edges ? PR_OK : touch_edges(run);
  if (st || (st = touch_sums(run)))
    return st;
  CUDA_TRY(run, cudaEventRecord(c->rank[0].ready, s));
  return cuda_wait_event(run, c->rank[0].ready);
}

/* ---- opening, closing ---- */

static PrStatus check_nccl(PrRun *run) {
  enum { LEAST = 22600, NET_CHANNELS = 22800 };
  const PrCuda *c = cuda_of(run);
  const PrGroup *g = c->o.group;
  const char *order = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  int v = 0;
  if (!g)
    return PR_OK;
  if (ncclGetVersion(&v) != ncclSuccess || v < LEAST)
    return pr_fail(run, PR_E_DEVICE,
                   "a run with a process per rank takes NCCL 2.26 or later; this is NCCL %d.%d.%d",
                   v / 10000, v / 100 % 100, v % 100);
  if (c->o.transfers.net_channels && (v < NET_CHANNELS || NCCL_VERSION_CODE < NET_CHANNELS))
    return pr_fail(run, PR_E_ARG,
                   "options: net_channels takes NCCL 2.28 or later; this is NCCL %d.%d.%d, and the "
                   "engine was built with %d.%d",
                   v / 10000, v / 100 % 100, v % 100, NCCL_MAJOR, NCCL_MINOR);
#ifdef __aarch64__
  if (v < 22903 && g->rank == 0)
    fprintf(stderr, "warning: NCCL before 2.29.3 may hang on Arm hosts; this is NCCL %d.%d.%d\n",
            v / 10000, v / 100 % 100, v % 100);
#endif
  if (!run->p->nchannel || g->size == 1)
    return PR_OK;
  if (!order || strtol(order, NULL, 0) != 1)
    return pr_fail(run, PR_E_ARG,
                   "NCCL_LAUNCH_ORDER_IMPLICIT=%s: with lowering channels a step may never end; it "
                   "has to be 1, or unset",
                   order ? order : "");
  return PR_OK;
}

/* Registers the slots of this rank with the communicators that move them. */
static PrStatus register_slots(PrRun *run) {
  PrCuda *c = cuda_of(run);
  const RankRun *k = c->rank[0].k;
  uint32_t n = run->p->nchannel ? run->p->nchannel : 1;
  c->registered = calloc(n, sizeof *c->registered);
  if (!c->registered)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u channels", n);
  for (uint32_t i = 0; i < n; i++) {
    bool moves = run->p->nchannel == 0 || of_transfers(&run->p->channel[i]);
    ncclComm_t x = run->p->nchannel ? c->channel_comm[i] : c->comm;
    if (x && moves)
      NCCL_TRY(run, x, ncclCommRegister(x, k->block, k->bytes + PR_LINE, &c->registered[i]));
  }
  return PR_OK;
}

/* True if a sum has several ranks. */
static bool has_sums(const PrRun *run) {
  bool any = false;
  for (uint32_t i = 0; i < run->ncoll; i++)
    for (uint32_t j = 1; j < run->coll[i].n; j++)
      any |= run->p->stage[run->coll[i].row[j]].rank != run->p->stage[run->coll[i].row[0]].rank;
  return any;
}

PrStatus cuda_open_nccl(PrRun *run) {
  PrCuda *c = cuda_of(run);
  ncclUniqueId id = {{0}};
  ncclConfig_t config = config_of(c, false, true);
  const PrGroup *g = c->o.group;
  if (g->size == 1 || (c->edges && !has_sums(run)))
    return PR_OK; /* NCCL has no transfers and no sums */
  PrStatus st = cuda_agree(run, check_nccl(run));
  if (st)
    return st;
  if (g->rank == 0 && ncclGetUniqueId(&id) != ncclSuccess)
    return pr_fail(run, PR_E_DEVICE, "ncclGetUniqueId: %s", ncclGetLastError(NULL));
  if ((st = cuda_share(run, 0, &id, sizeof id)))
    return st;
  if ((st = cuda_open_watchdog(run)) || (st = cuda_enter_nccl(run)))
    return st;
  ncclResult_t r = ncclCommInitRankConfig(&c->root, (int)g->size, id, (int)g->rank, &config);
  if ((st = cuda_nccl(run, c->root, "ncclCommInitRankConfig", r)) || (st = split_all(run)))
    return st;
  if (!cuda_any_lends(run)) /* on all ranks, or on none */
    st = register_slots(run);
  return st ? st : prologue(run);
}

ncclComm_t cuda_split(const PrCuda *c, uint32_t i) {
  return __atomic_load_n(&c->split[i], __ATOMIC_ACQUIRE);
}

void cuda_abort_nccl(PrRun *run, bool (*between)(PrRun *run)) {
  PrCuda *c = cuda_of(run);
  if (!c->root) {
    between(run);
    return;
  }
  ncclGroupStart();
  for (uint32_t i = 0; i < c->nsplit; i++)
    if (cuda_split(c, i))
      ncclCommAbort(cuda_split(c, i));
  ncclCommAbort(c->root);
  if (between(run))
    ncclGroupEnd();
}

/* If *x cannot be finalized, aborts it and all others that are left. */
static void close_comm(PrRun *run, ncclComm_t *x) {
  if (!*x || cuda_of(run)->aborted)
    return;
  if (cuda_enter_nccl(run) || cuda_nccl(run, *x, "ncclCommFinalize", ncclCommFinalize(*x))) {
    cuda_abort(run);
    return;
  }
  ncclCommDestroy(*x);
  *x = NULL;
}

void cuda_close_nccl(PrRun *run) {
  PrCuda *c = cuda_of(run);
  uint32_t n = !c->registered ? 0 : run->p->nchannel ? run->p->nchannel : 1;
  for (uint32_t i = 0; i < n && !c->aborted; i++)
    if (c->registered[i])
      ncclCommDeregister(run->p->nchannel ? c->channel_comm[i] : c->comm, c->registered[i]);
  for (uint32_t i = 0; i < c->nsplit; i++)
    close_comm(run, &c->split[i]);
  close_comm(run, &c->root);
  free(c->registered);
  free(c->coll_comm);
  free(c->split);
}
