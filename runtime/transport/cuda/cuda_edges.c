/* SPDX-License-Identifier: MIT
 * The transport `peer`: transfers by copy engines, between the ranks of one host.
 *
 * note [boxes]: each directed edge (two ranks, or a channel of lowering CHANNELS) has a box of two
 * flags. What a transfer puts on the streams of its ends:
 *
 *   RECV   ready = 1; wait for sent; sent = 0
 *   SEND   wait for ready; ready = 0; copy into the slot of the RECV; sent = 1
 *
 * This is a rendezvous (R1). The numbers are the same in each step, so a graph can replay them. No
 * multiprocessor takes part. One box serves all transfers of its edge: both ends have them in one
 * order (R2), each after the one before it. So a flag is set only once it has been cleared: the
 * RECV that sets `ready` comes after one whose SEND has cleared `ready` before it set `sent`; the
 * SEND that sets `sent` waits for a RECV that comes after the clearing of `sent`. The n-th SEND of
 * an edge meets its n-th RECV, and hears the place of that RECV's slot when the run is opened.
 *
 * note [groups]: transfers of a group progress together, those of one edge in their order. Those of
 * the first edge go on the stream of the group, those of each other edge on a side stream; the
 * stream of the group waits for all of them.
 *
 * note [map]: boxes are in memory of the host that all processes map and register, because a host
 * can write them whatever its device does: in a run that fails each host sets the flags that its
 * own streams wait for, again and again, until the streams have run out (cuda_steps.c: note
 * [abort]). What such streams move is not what was computed, and other ranks may receive it. So a
 * host that fails first writes that it has, and a rank counts a step only if nobody had written so
 * once its streams were over.
 *
 * note [losses]: hosts, not devices, add up the losses of a step: each writes its own into the map,
 * and waits for those of the others. Two places for each rank are enough: a host that writes those
 * of step s has the losses of all of step s - 1, so all hosts have read those of step s - 2. */
#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda_engine.h"

enum { READY = 0, SENT = PR_LINE, HEADER = SENT + 16, BOX = 2 * PR_LINE, LET_GO = 2 };

/* The driver's call for numbers in memory, which has no name in the runtime. */
typedef CUresult (*Batch)(CUstream, unsigned, CUstreamBatchMemOpParams *, unsigned);

struct CudaEdges {
  char *map, *device;            /* the same memory: for this host, and for its device */
  uint64_t bytes, losses, boxes; /* of it; where they begin */
  uint32_t nedge;
  void **to;          /* [ninstr] of a SEND: the slot of its RECV */
  cudaStream_t *side; /* [nside] */
  cudaEvent_t *over;  /* [nside] */
  cudaEvent_t fork;
  uint32_t nside;
  Batch batch;
};

/* What a rank says of one of its RECVs, in the order of its list. */
typedef struct Receive {
  uint64_t at; /* in the block of the rank */
  uint32_t edge;
} Receive;

/* ---- where this process is ---- */

static uint64_t mix(uint64_t h, const void *p, size_t n) { /* FNV-1a */
  for (size_t i = 0; i < n; i++)
    h = (h ^ ((const unsigned char *)p)[i]) * 0x100000001b3u;
  return h;
}

static uint64_t draw(void) {
  uint64_t n = 0;
  return getrandom(&n, sizeof n, 0) == sizeof n ? n : pr_now();
}

CudaWhere cuda_where(void) {
  static _Atomic uint64_t process;
  uint64_t none = 0;
  const pid_t pid = getpid();
  char boot[64] = "";
  struct stat shared;
  const int f = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  const ssize_t n = f < 0 ? 0 : read(f, boot, sizeof boot);
  if (f >= 0)
    close(f);
  atomic_compare_exchange_strong(&process, &none, draw() | 1);
  CudaWhere w = {.process = mix(atomic_load(&process), &pid, sizeof pid)};
  w.host = n > 0 && stat("/dev/shm", &shared) == 0
               ? mix(mix(1, boot, (size_t)n), &shared.st_dev, sizeof shared.st_dev)
               : draw();
  return w;
}

/* ---- edges ---- */

static uint32_t edge_of(const PrRun *run, uint32_t rank, const PipeInstr *in) {
  return run->p->nchannel       ? in->channel
         : pipe_is_send(in->op) ? rank * run->p->nrank + in->peer
                                : in->peer * run->p->nrank + rank;
}
static uint32_t sender_of(const PrRun *run, uint32_t edge) {
  return run->p->nchannel ? run->p->channel[edge].from : edge / run->p->nrank;
}
static uint32_t receiver_of(const PrRun *run, uint32_t edge) {
  return run->p->nchannel ? run->p->channel[edge].to : edge % run->p->nrank;
}

static _Atomic uint32_t *flag(const struct CudaEdges *x, uint32_t edge, uint32_t at) {
  return (_Atomic uint32_t *)(x->map + x->boxes + (uint64_t)edge * BOX + at);
}
static char *box(const struct CudaEdges *x, uint32_t edge) { /* for the device */
  return x->device + x->boxes + (uint64_t)edge * BOX;
}

static _Atomic uint32_t *failed(const struct CudaEdges *x) { return (_Atomic uint32_t *)x->map; }
/* How many steps have their losses of rank r in the map. */
static _Atomic uint64_t *steps_of(const struct CudaEdges *x, uint32_t r) {
  return (_Atomic uint64_t *)(x->map + (r + (uint64_t)1) * PR_LINE);
}

/* ---- transfers ---- */

typedef struct FlagOp {
  uint32_t at, value;
  bool wait;
} FlagOp;

static PrStatus put_flags(PrRun *run, char *of, const FlagOp *f, uint32_t n, cudaStream_t s) {
  CUstreamBatchMemOpParams op[3];
  memset(op, 0, sizeof op);
  for (uint32_t i = 0; i < n; i++) {
    const CUdeviceptr at = (CUdeviceptr)(of + f[i].at);
    if (f[i].wait) {
      op[i].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
      op[i].waitValue.address = at;
      op[i].waitValue.value = f[i].value;
      op[i].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    } else { /* after all that is ahead of it in the stream, for all who see it */
      op[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
      op[i].writeValue.address = at;
      op[i].writeValue.value = f[i].value;
      op[i].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    }
  }
  const CUresult e = cuda_of(run)->edges->batch(s, n, op, 0);
  return e == CUDA_SUCCESS ? PR_OK : cuda_failed(run, "cuStreamBatchMemOp", (cudaError_t)e);
}

/* note [boxes] */
static PrStatus move(PrRun *run, CudaRank *d, uint32_t row, cudaStream_t s) {
  static const FlagOp begin[] = {{READY, 1, true}, {READY, 0, false}}, end[] = {{SENT, 1, false}},
                      receive[] = {{READY, 1, false}, {SENT, 1, true}, {SENT, 0, false}};
  const struct CudaEdges *x = cuda_of(run)->edges;
  const PipeInstr *in = &d->k->t->instr[row];
  char *b = box(x, edge_of(run, d->k->id, in));
  uint64_t size;
  void *header = cuda_header(d, row, &size);
  if (!pipe_is_send(in->op)) {
    PrStatus st = put_flags(run, b, receive, 3, s);
    if (!st && header)
      CUDA_TRY(run, cudaMemcpyAsync(header, b + HEADER, size, cudaMemcpyDefault, s));
    return st;
  }
  PrStatus st = put_flags(run, b, begin, 2, s);
  if (st)
    return st;
  if (header)
    CUDA_TRY(run, cudaMemcpyAsync(b + HEADER, header, size, cudaMemcpyDefault, s));
  if (pr_moved_bytes(run, in) > 0)
    CUDA_TRY(run, cudaMemcpyAsync(x->to[row], d->k->slot[in->in], pr_moved_bytes(run, in),
                                  cudaMemcpyDefault, s));
  return put_flags(run, b, end, 1, s);
}

/* Of the group at `in`: the first transfer of the edge of transfer i. */
static uint32_t first_of(const PrRun *run, uint32_t rank, const PipeInstr *in, uint32_t i) {
  uint32_t j = 0;
  while (edge_of(run, rank, &in[j]) != edge_of(run, rank, &in[i]))
    j++;
  return j;
}

/* note [groups]: the stream of that edge; 0: that of the group; 1 to nside: a side stream. */
static uint32_t side_of(const PrRun *run, uint32_t rank, const PipeInstr *in, uint32_t i) {
  const uint32_t first = first_of(run, rank, in, i);
  uint32_t n = 0;
  for (uint32_t j = 0; j < first; j++)
    n += first_of(run, rank, in, j) == j;
  return n;
}

PrStatus cuda_edges_move(PrRun *run, CudaRank *d, uint32_t n, uint64_t lost) {
  const struct CudaEdges *x = cuda_of(run)->edges;
  const PipeInstr *in = &d->k->t->instr[d->next];
  cudaStream_t s = cuda_stream(d, d->next);
  uint64_t sides = 0; /* that have something, by number */
  PrStatus st = PR_OK;
  if (n > 1)
    CUDA_TRY(run, cudaEventRecord(x->fork, s));
  for (uint32_t i = 0; i < n && !st; i++) {
    const uint32_t side = n > 1 ? side_of(run, d->k->id, in, i) : 0;
    if (lost >> i & 1)
      continue;
    if (side > 0 && !(sides >> side & 1))
      CUDA_TRY(run, cudaStreamWaitEvent(x->side[side - 1], x->fork, 0));
    sides |= UINT64_C(1) << side;
    cuda_name(run, &in[i]);
    st = move(run, d, d->next + i, side > 0 ? x->side[side - 1] : s);
    cuda_unname(run);
  }
  for (uint32_t side = 1; side <= x->nside && !st; side++) {
    if (!(sides >> side & 1))
      continue;
    CUDA_TRY(run, cudaEventRecord(x->over[side - 1], x->side[side - 1]));
    CUDA_TRY(run, cudaStreamWaitEvent(s, x->over[side - 1], 0));
  }
  for (uint32_t i = 0; i < n && !st; i++)
    if (!pipe_is_send(in[i].op) && !(st = cuda_check_header(run, d, d->next + i)))
      st = cuda_check_tensor(run, d, d->next + i);
  return st;
}

/* ---- the end of a step ---- */

PrStatus cuda_edges_finish(PrRun *run, uint64_t step) {
  PrCuda *c = cuda_of(run);
  const struct CudaEdges *x = c->edges;
  const size_t n = (size_t)run->nsink * run->p->nmb;
  double *sum = c->loss_to + (step & 1) * n;
  double *all = (double *)(x->map + x->losses) + (step & 1) * n * run->p->nrank;
  PrStatus st = PR_OK;
  for (uint64_t looks = 0; !st && atomic_load(failed(x)); looks++) /* note [map] */
    st = cuda_wait_a_little(run, looks);
  if (st || run->free_running)
    return st;
  memcpy(all + run->here * n, sum, n * sizeof *sum);
  atomic_store(steps_of(x, run->here), step + 1);
  memset(sum, 0, n * sizeof *sum);
  for (uint32_t r = 0; r < run->p->nrank; r++) {
    for (uint64_t looks = 0; !st && atomic_load(steps_of(x, r)) < step + 1; looks++)
      st = cuda_wait_a_little(run, looks);
    for (size_t i = 0; i < n && !st; i++)
      sum[i] += all[r * n + i];
  }
  return st;
}

void cuda_edges_fail(PrRun *run) {
  const struct CudaEdges *x = cuda_of(run)->edges;
  if (x && x->map)
    atomic_store(failed(x), 1);
}

void cuda_edges_release(PrRun *run) {
  const struct CudaEdges *x = cuda_of(run)->edges;
  for (uint32_t e = 0; x && x->map && e < x->nedge; e++) {
    if (sender_of(run, e) == run->here)
      atomic_store(flag(x, e, READY), LET_GO);
    if (receiver_of(run, e) == run->here)
      atomic_store(flag(x, e, SENT), LET_GO);
  }
}

bool cuda_edges_busy(const PrRun *run) {
  const struct CudaEdges *x = cuda_of(run)->edges;
  bool busy = false;
  for (uint32_t i = 0; x && x->side && i < x->nside; i++)
    busy |= x->side[i] && cudaStreamQuery(x->side[i]) == cudaErrorNotReady;
  return busy;
}

/* ---- opening ---- */

static bool find_batch(Batch *to) {
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

static void lay_out(const PrRun *run, struct CudaEdges *x) {
  const uint64_t n = (uint64_t)run->nsink * run->p->nmb * run->p->nrank;
  x->nedge = run->p->nchannel ? run->p->nchannel : run->p->nrank * run->p->nrank;
  x->losses = (run->p->nrank + (uint64_t)1) * PR_LINE;
  x->boxes = pr_round(x->losses + 2 * n * sizeof(double));
  x->bytes = x->boxes + (uint64_t)x->nedge * BOX;
}

static uint32_t most_sides(const PrRun *run) {
  const PipeRank *t = run->rank[run->here].t;
  uint32_t most = 0;
  for (uint32_t i = 0; i < t->ninstr; i++)
    for (uint32_t j = 0; pipe_is_move(t->instr[i].op) && j <= t->instr[i].group; j++) {
      const uint32_t side = side_of(run, run->here, &t->instr[i], j);
      most = side > most ? side : most;
    }
  return most;
}

static PrStatus open_sides(PrRun *run, struct CudaEdges *x) {
  int least = 0, greatest = 0;
  x->nside = most_sides(run);
  x->side = calloc(x->nside + (size_t)1, sizeof *x->side);
  x->over = calloc(x->nside + (size_t)1, sizeof *x->over);
  x->to = calloc((size_t)run->rank[run->here].t->ninstr + 1, sizeof *x->to);
  if (!x->side || !x->over || !x->to)
    return pr_fail(run, PR_E_MEMORY, "rank %u: no memory for its transfers", run->here);
  CUDA_TRY(run, cudaEventCreateWithFlags(&x->fork, cudaEventDisableTiming));
  CUDA_TRY(run, cudaDeviceGetStreamPriorityRange(&least, &greatest));
  for (uint32_t i = 0; i < x->nside; i++) {
    CUDA_TRY(run, cudaStreamCreateWithPriority(&x->side[i], cudaStreamNonBlocking, greatest));
    CUDA_TRY(run, cudaEventCreateWithFlags(&x->over[i], cudaEventDisableTiming));
  }
  return PR_OK;
}

/* The map, which rank 0 makes (file >= 0: it has) and the others open by its name. */
static void open_map(const PrRun *run, struct CudaEdges *x, int file, const char *name,
                     char why[PR_TEXT]) {
  cudaError_t e;
  if (run->here != 0 && *name)
    file = shm_open(name, O_RDWR, 0);
  void *p = file < 0 ? MAP_FAILED
                     : mmap(NULL, x->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (p == MAP_FAILED) {
    snprintf(why, PR_TEXT, "rank %u has no memory that it shares with other processes: %s",
             run->here, strerror(errno));
  } else if ((e = cudaHostRegister(p, x->bytes, cudaHostRegisterMapped)) != cudaSuccess) {
    cudaGetLastError(); /* else a model finds it after a launch of its own */
    munmap(p, x->bytes);
    snprintf(why, PR_TEXT, "rank %u: its device cannot reach memory that processes share: %s",
             run->here, cudaGetErrorString(e));
  } else {
    x->map = p;
    if ((e = cudaHostGetDevicePointer((void **)&x->device, p, 0)) != cudaSuccess) {
      cudaGetLastError();
      snprintf(why, PR_TEXT, "rank %u: cudaHostGetDevicePointer: %s", run->here,
               cudaGetErrorString(e));
    }
  }
  if (file >= 0)
    close(file);
}

static int make_map(uint64_t bytes, char *name, size_t room) {
  snprintf(name, room, "/pipe-%016llx", (unsigned long long)draw());
  int file = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
  const int bad = file < 0 ? errno : posix_fallocate(file, 0, (off_t)bytes);
  if (file >= 0 && bad) {
    shm_unlink(name);
    close(file);
  }
  errno = bad;
  return bad ? -1 : file;
}

/* All ranks have the map, or know why one of them has not. */
static PrStatus share_map(PrRun *run, struct CudaEdges *x, char why[PR_TEXT]) {
  char name[32] = "";
  int file = run->here == 0 ? make_map(x->bytes, name, sizeof name) : -1;
  if (run->here == 0 && file < 0) {
    open_map(run, x, file, name, why); /* which says why */
    *name = 0;
  }
  PrStatus st = cuda_share(run, 0, name, sizeof name);
  if (!st && *name && !*why)
    open_map(run, x, file, name, why);
  else if (file >= 0)
    close(file);
  if (!st)
    st = cuda_ask(run, why);
  if (run->here == 0 && *name)
    shm_unlink(name);
  return st;
}

/* The RECVs of rank r: all hear them, and those that are sent from here have their places. next:
 * [nedge] the row from which on the SEND of the next one is. */
static PrStatus hear_receives(PrRun *run, struct CudaEdges *x, uint32_t r, uint32_t *next) {
  const RankRun *k = &run->rank[r];
  const PipeRank *mine = run->rank[run->here].t;
  uint32_t n = 0;
  for (uint32_t i = 0; r == run->here && i < k->t->ninstr; i++)
    n += pipe_is_move(k->t->instr[i].op) && !pipe_is_send(k->t->instr[i].op);
  PrStatus st = cuda_share(run, r, &n, sizeof n);
  Receive *list = st ? NULL : calloc(n + (size_t)1, sizeof *list);
  if (st || !list)
    return st ? st : pr_fail(run, PR_E_MEMORY, "rank %u: no memory for transfers", run->here);
  for (uint32_t i = 0, at = 0; r == run->here && i < k->t->ninstr; i++) {
    const PipeInstr *in = &k->t->instr[i];
    if (pipe_is_move(in->op) && !pipe_is_send(in->op))
      list[at++] = (Receive){.at = (uint64_t)((char *)k->slot[in->out] - (char *)k->block),
                             .edge = edge_of(run, r, in)};
  }
  st = cuda_share(run, r, list, n * sizeof *list);
  for (uint32_t i = 0; i < n && !st; i++) {
    const uint32_t e = list[i].edge;
    uint32_t row = next[e];
    if (sender_of(run, e) != run->here)
      continue;
    while (row < mine->ninstr &&
           !(pipe_is_move(mine->instr[row].op) && pipe_is_send(mine->instr[row].op) &&
             edge_of(run, run->here, &mine->instr[row]) == e))
      row++;
    if (row < mine->ninstr)
      x->to[row] = cuda_peer_block(run, r) + list[i].at;
    next[e] = row + 1;
  }
  free(list);
  return st;
}

static PrStatus hear_all_receives(PrRun *run, struct CudaEdges *x) {
  uint32_t *next = calloc(x->nedge, sizeof *next);
  PrStatus st = next ? PR_OK
                     : pr_fail(run, PR_E_MEMORY, "rank %u: no memory for %u edges", run->here,
                               x->nedge);
  st = cuda_agree(run, st);
  for (uint32_t r = 0; r < run->p->nrank && !st; r++)
    st = hear_receives(run, x, r, next);
  free(next);
  return st;
}

/* Streams that share a hardware queue run in the order of the list, in which an issued step
 * completes. There are two exceptions: transfers of a group may need each other in any order, and a
 * graph has an order of its own. Writes that there are too few queues for groups, if so. */
static void few_queues(char why[PR_TEXT]) {
  enum { QUEUES = 8 }; /* CUDA's default: NCCL has streams, too, and CUDA assigns queues in turn */
  static const char *const name[] = {"CUDA_DEVICE_MAX_CONNECTIONS",
                                     "CUDA_DEVICE_MAX_COPY_CONNECTIONS"};
  for (int i = 0; i < 2 && !*why; i++) {
    const char *queues = getenv(name[i]);
    const int n = queues ? atoi(queues) : 0;
    if (n >= 1 && n < QUEUES)
      snprintf(why, PR_TEXT,
               "%s=%s: groups of transfers by copy engines take streams that are not behind one "
               "another; it has to be %d or more, or unset",
               name[i], queues, QUEUES);
  }
}

PrStatus cuda_edges_open(PrRun *run) {
  PrCuda *c = cuda_of(run);
  char why[PR_TEXT];
  if (!c->one_host)
    return PR_OK;
  struct CudaEdges *x = c->edges = calloc(1, sizeof *x);
  PrStatus st = x ? open_sides(run, x) : pr_fail(run, PR_E_MEMORY, "rank %u: no memory", run->here);
  if ((st = cuda_agree(run, st)))
    return st;
  lay_out(run, x);
  snprintf(why, sizeof why, "%s", c->no_peer);
  if (!*why && !find_batch(&x->batch))
    snprintf(why, sizeof why, "rank %u: its driver has no cuStreamBatchMemOp", run->here);
  if (!*why && x->nside > 0)
    few_queues(why);
  const char *off = getenv("NCCL_P2P_DISABLE");
  if (!*why && c->o.transport == PR_CUDA_AUTO && off && atoi(off))
    snprintf(why, sizeof why, "rank %u: NCCL_P2P_DISABLE=%d", run->here, atoi(off));
  if ((st = share_map(run, x, why)))
    return st;
  if (*why) {
    if (c->o.transport == PR_CUDA_AUTO)
      snprintf(run->note, sizeof run->note, "transfers are NCCL's: %.900s", why);
    cuda_edges_close(run);
    return c->o.transport == PR_CUDA_PEER
               ? pr_fail(run, PR_E_DEVICE, "options: transport peer: %s", why)
               : PR_OK;
  }
  return hear_all_receives(run, x);
}

void cuda_edges_close(PrRun *run) {
  PrCuda *c = cuda_of(run);
  struct CudaEdges *x = c->edges;
  if (!x)
    return;
  for (uint32_t i = 0; i < x->nside; i++) {
    if (x->side && x->side[i])
      cudaStreamDestroy(x->side[i]);
    if (x->over && x->over[i])
      cudaEventDestroy(x->over[i]);
  }
  if (x->fork)
    cudaEventDestroy(x->fork);
  if (x->map && !c->stuck) {
    cudaHostUnregister(x->map);
    munmap(x->map, x->bytes);
  }
  free(x->side);
  free(x->over);
  free(x->to);
  free(x);
  c->edges = NULL;
}
