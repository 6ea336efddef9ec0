/* SPDX-License-Identifier: MIT
 * See shim.h: the calls of the CUDA runtime. */
#define _GNU_SOURCE /* mremap */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "include/cuda.h"
#include "shim_run.h"

#define BEGIN \
  if (!call_begin()) \
  return cudaErrorUnknown
#define END(e) \
  do { \
    cudaError_t end_ = (e); \
    call_end(); \
    return end_; \
  } while (0)

const char *cudaGetErrorString(cudaError_t e) {
  return e == cudaSuccess        ? "no error"
         : e == cudaErrorUnknown ? "the shim has stopped"
                                 : "an error of the shim";
}

cudaError_t cudaGetDeviceCount(int *n) {
  *n = 2;
  return cudaSuccess;
}

static _Thread_local int set_device;

cudaError_t cudaSetDevice(int to) {
  if (to < 0 || to > 1)
    return cudaErrorInvalidDevice;
  set_device = to;
  return cudaSuccess;
}
int shim_device(void) { return set_device; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}

/* ---- memory ---- */

typedef struct Block {
  struct Block *next;
  char *p;
  size_t bytes;
  Host *host;
  bool device, lent; /* lent: it has a handle */
  bool nccl;         /* of ncclMemAlloc */
  uint32_t open;     /* by other hosts, so many times */
} Block;
static Block *blocks;
static Block *given; /* of runs with a kill: what is under way on other devices may still read it */

static _Thread_local uint32_t taken, starves_at;

uint32_t shim_starve(uint32_t n) {
  uint32_t so_far = taken;
  taken = 0, starves_at = n;
  return so_far;
}
static bool starves(void) { return ++taken == starves_at; }

void *shim_calloc(size_t n, size_t bytes) { return starves() ? NULL : calloc(n, bytes); }
void *shim_malloc(size_t bytes) { return starves() ? NULL : malloc(bytes); }
void *shim_realloc(void *p, size_t bytes) { return starves() ? NULL : realloc(p, bytes); }

static cudaError_t take(void **p, size_t bytes, bool device, bool nccl) {
  BEGIN;
  if (starves())
    END(cudaErrorMemoryAllocation);
  if (shim.steady)
    shim_error("%zu bytes of memory are taken while steps run", bytes);
  for (const Block *x = blocks; nccl && x; x = x->next)
    if (x->nccl && x->host == shim_me())
      shim_error("NCCL takes a piece of its own for %zu bytes", bytes);
  Block *b = malloc(sizeof *b);
  *p = aligned_alloc(256, (bytes + 511) / 256 * 256);
  if (!b || !*p)
    abort();
  memset(*p, 0xa5, bytes); /* nobody may rely on zeros */
  *b = (Block){
      .next = blocks, .p = *p, .bytes = bytes, .host = shim_me(), .device = device, .nccl = nccl};
  blocks = b;
  END(cudaSuccess);
}

/* A call that waits for all that is on the device of h. */
static void waits_for(const Host *h, const char *what) {
  if (h->hang == HANGS && shim.hung++ == 0)
    snprintf(shim.hung_text, sizeof shim.hung_text, "%s while a kernel hangs", what);
}

static cudaError_t give(void *p) {
  if (!p)
    return cudaSuccess;
  pthread_mutex_lock(&shim.lock); /* a host that was killed or stalled may give back what it has */
  cudaError_t e = cudaErrorInvalidValue;
  if (shim.steady && !shim.stalled && !shim.killed)
    shim_error("memory is given back while steps run");
  for (Block **b = &blocks; *b; b = &(*b)->next)
    if ((*b)->p == p) {
      Block *gone = *b;
      waits_for(gone->host, "memory is given back");
      if (gone->open && !shim.stalled && !shim.killed)
        shim_error("memory is given back that another process has open");
      *b = gone->next;
      shim_forget(gone->p, gone->bytes);
      if (shim.killed) {
        gone->next = given;
        given = gone;
      } else {
        free(gone->p);
        free(gone);
      }
      e = cudaSuccess;
      break;
    }
  if (e)
    shim_error("memory is given back that was not taken");
  pthread_mutex_unlock(&shim.lock);
  return e;
}

static uint64_t free_all(Block **list) {
  uint64_t n = 0;
  for (Block *next; *list; *list = next, n++) {
    next = (*list)->next;
    free((*list)->p);
    free(*list);
  }
  return n;
}

static void unmap_all(void);

uint64_t memory_left(void) {
  unmap_all();
  free_all(&given);
  return free_all(&blocks);
}
uint64_t shim_leaks(void) {
  uint64_t n = 0;
  for (Block *b = blocks; b; b = b->next)
    n++;
  return n;
}

uint64_t shim_lent(void) {
  uint64_t n = 0;
  for (const Block *b = blocks; b; b = b->next)
    n += b->lent;
  return n;
}

cudaError_t cudaMalloc(void **p, size_t bytes) { return take(p, bytes, true, false); }
cudaError_t memory_of_nccl(void **p, size_t bytes) { return take(p, bytes, true, true); }
cudaError_t cudaMallocHost(void **p, size_t bytes) { return take(p, bytes, false, false); }
cudaError_t cudaFree(void *p) { return give(p); }
cudaError_t cudaFreeHost(void *p) { return give(p); }

bool memory_is(const void *p, size_t bytes, bool nccl) {
  const Block *b = blocks;
  while (b && ((const char *)p < b->p || (const char *)p + bytes > b->p + b->bytes))
    b = b->next;
  return b && b->device && (b->nccl || !nccl);
}

/* ---- memory of other hosts ---- */

static Block *block_at(const void *p) {
  Block *b = blocks;
  while (b && b->p != p)
    b = b->next;
  return b;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p) {
  BEGIN;
  Block *b = block_at(p);
  bool ok = b && b->device && !b->nccl && b->host == shim_me();
  if (ok)
    b->lent = true;
  if (!ok)
    shim_error("a handle of memory that others cannot open");
  memset(h, 0, sizeof *h);
  memcpy(h->reserved, &p, sizeof p);
  END(ok ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned flags) {
  BEGIN;
  memcpy(p, h.reserved, sizeof *p);
  Block *b = block_at(*p);
  bool ok = b && b->host != shim_me() && !shim.apart && flags == cudaIpcMemLazyEnablePeerAccess;
  if (ok)
    b->open++;
  END(ok ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaIpcCloseMemHandle(void *p) {
  pthread_mutex_lock(&shim.lock); /* also of a run that has stopped */
  Block *b = block_at(p);
  waits_for(shim_me(), "memory of another process is closed");
  if (b && b->open)
    b->open--;
  else if (!shim.killed)
    shim_error("memory is closed that is not open");
  pthread_mutex_unlock(&shim.lock);
  return cudaSuccess;
}

/* ---- memory of the host that processes share ---- */

typedef struct Mapped {
  struct Mapped *next;
  Host *host;
  char *at, *device; /* device: a mapping of its own, the same of all that have the file */
  size_t bytes;
  unsigned long file;
} Mapped;
static Mapped *mapped;

/* The file that is mapped at p; 0: there is none. */
static unsigned long file_at(const void *p) {
  FILE *f = fopen("/proc/self/maps", "r");
  char line[512];
  unsigned long from, to, file, found = 0;
  while (f && !found && fgets(line, sizeof line, f))
    if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &from, &to, &file) == 3 &&
        (unsigned long)p >= from && (unsigned long)p < to)
      found = file;
  if (f)
    fclose(f);
  return found;
}

static Mapped *mapping_of(const Host *h, const void *p) {
  Mapped *m = mapped;
  while (m && (m->host != h || m->at != p))
    m = m->next;
  return m;
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags) {
  BEGIN;
  const Mapped *same = mapped;
  const unsigned long file = file_at(p);
  if (starves())
    END(cudaErrorMemoryAllocation);
  if (!file || mapping_of(shim_me(), p) || flags != cudaHostRegisterMapped)
    shim_error("memory is registered that the shim does not know");
  while (same && same->file != file)
    same = same->next;
  Mapped *m = shim_new(sizeof *m);
  *m = (Mapped){.next = mapped, .host = shim_me(), .at = p, .bytes = bytes, .file = file};
  m->device = same ? same->device : mremap(p, 0, bytes, MREMAP_MAYMOVE); /* of the same pages */
  if (m->device == MAP_FAILED)
    abort();
  mapped = m;
  END(cudaSuccess);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *p, unsigned flags) {
  BEGIN;
  const Mapped *m = mapping_of(shim_me(), p);
  *device = m ? m->device : NULL;
  END(m && flags == 0 ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaHostUnregister(void *p) {
  pthread_mutex_lock(&shim.lock); /* also of a run that has stopped */
  Mapped *m = mapping_of(shim_me(), p);
  waits_for(shim_me(), "memory of the host is unregistered");
  if (m)
    m->at = NULL;
  else
    shim_error("memory is unregistered that is not registered");
  pthread_mutex_unlock(&shim.lock);
  return cudaSuccess;
}

static void unmap_all(void) {
  for (Mapped *m = mapped; m; m = m->next) {
    const Mapped *again = m->next;
    while (again && again->device != m->device)
      again = again->next;
    if (!again)
      munmap(m->device, m->bytes);
  }
  mapped = NULL;
}

void memory_of_dead(const Host *h) {
  for (const Mapped *m = mapped; m; m = m->next)
    if (m->host == h && m->at) {
      mmap(m->at, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      memcpy(m->at, m->device, m->bytes);
    }
}

/* Can a stream of h wait for, or write, a number at p? */
static bool is_number(const Host *h, const char *p) {
  const Block *b = blocks;
  const Mapped *m = mapped;
  while (b && (p < b->p || p >= b->p + b->bytes))
    b = b->next;
  while (m && (m->host != h || !m->at || p < m->device || p >= m->device + m->bytes))
    m = m->next;
  return m || (b && b->device && b->host == h);
}

cudaError_t cudaMemset(void *p, int value, size_t bytes) {
  BEGIN;
  Host *h = shim_me();
  shim_touch(h->clock, &h->vc, p, bytes, true, "cudaMemset");
  memset(p, value, bytes);
  END(cudaSuccess);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  (void)kind;
  BEGIN;
  Host *h = shim_me();
  shim_touch(h->clock, &h->vc, from, bytes, false, "cudaMemcpy");
  shim_touch(h->clock, &h->vc, to, bytes, true, "cudaMemcpy");
  memmove(to, from, bytes);
  END(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s) {
  (void)kind;
  BEGIN;
  Op *op = op_new(OP_COPY);
  op->to = to, op->from = from, op->bytes = bytes;
  ShimLog *l = shim_note(SHIM_COPY, s);
  l->p = to, l->bytes = bytes, l->op = op;
  stream_put(s, op);
  END(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s) {
  BEGIN;
  Op *op = op_new(OP_SET);
  op->to = p, op->value = value, op->bytes = bytes;
  ShimLog *l = shim_note(SHIM_SET, s);
  l->p = p, l->bytes = bytes, l->op = op;
  stream_put(s, op);
  END(cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg) {
  BEGIN;
  Op *op = op_new(OP_KERNEL);
  op->fn = fn, op->arg = arg;
  stream_put(s, op);
  END(cudaSuccess);
}

cudaError_t shim_launch(cudaStream_t s, void (*fn)(void *), const void *arg, size_t bytes,
                        const ShimAccess *access, uint32_t n) {
  BEGIN;
  Op *op = op_new(OP_KERNEL);
  op->fn = fn;
  op->arg = shim_new(bytes);
  memcpy(op->arg, arg, bytes);
  op->access = shim_new(n * sizeof *access);
  if (n > 0)
    memcpy(op->access, access, n * sizeof *access);
  op->naccess = n;
  op->hangs = shim_me()->hang == HANGS_NEXT;
  if (op->hangs)
    shim_me()->hang = HANGS;
  shim_note(SHIM_KERNEL, s)->op = op;
  stream_put(s, op);
  END(cudaSuccess);
}

/* ---- streams and events ---- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) {
  (void)priority;
  BEGIN;
  if (flags != cudaStreamNonBlocking)
    shim_error("a stream that synchronizes with the legacy default stream");
  *s = stream_new(shim_me(), shim_clock(shim_me()));
  (*s)->number = shim_me()->nstream++;
  (*s)->device = shim_device();
  END(cudaSuccess);
}

/* Streams that wait for a number: that whose head is op, or those of the graph that this is. */
static uint32_t awaiting(const Op *op) {
  uint32_t n = op->kind == OP_AWAIT;
  for (uint32_t i = 0; op->kind == OP_GRAPH && i < op->run->nstream; i++) {
    const Op *head = op->run->stream[i]->head;
    n += head && head->kind == OP_AWAIT;
  }
  return n;
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
  pthread_mutex_lock(&shim.lock);
  s->gone = true;
  if (s->head && !shim.stalled && !shim.killed)
    shim_error("a stream is destroyed with work in it");
  if (s->head && !shim.killed)
    shim.stuck += awaiting(s->head);
  if (s->host->hang != HANGS) /* what is in it goes on once the kernel ends */
    s->head = s->tail = NULL;
  pthread_mutex_unlock(&shim.lock);
  return cudaSuccess;
}

static bool is_behind_copy(CUstream s) {
  const Capture *c = s->capture;
  const Op *last = c && c->nop > 0 ? c->op[c->nop - 1] : c ? NULL : s->tail;
  return last && last->kind == OP_COPY && (!c || last->in == s);
}

static CUresult batch(CUstream s, unsigned n, CUstreamBatchMemOpParams *op, unsigned flags) {
  if (!call_begin())
    return CUDA_ERROR_UNKNOWN;
  bool ok = flags == 0;
  Host *h = shim_me();
  for (unsigned i = 0; i < n && ok; i++) {
    bool wait = op[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32;
    void *at = (void *)(uintptr_t)op[i].waitValue.address;
    ok = is_number(h, at) && op[i].waitValue.flags == 0 &&
         (wait || op[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_32);
    if (!ok)
      break;
    Op *x = op_new(wait ? OP_AWAIT : OP_PUT);
    x->from = x->to = at;
    x->value = (int)op[i].waitValue.value;
    if (wait && h->skip > 0 && --h->skip == 0)
      x->value = -1;
    if (!wait && is_behind_copy(s) && h->overtakes > 0 && --h->overtakes == 0)
      x->put = PUT_TOO_EARLY;
    if (!wait && x->value && h->forgoes > 0 && --h->forgoes == 0)
      x->put = PUT_NEVER;
    ShimLog *l = shim_note(SHIM_NUMBER, s);
    l->p = at, l->op = x;
    stream_put(s, x);
  }
  if (!ok)
    shim_error("a batch of numbers that the driver would not take");
  call_end();
  return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **fn, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found) {
  CUresult (*call)(CUstream, unsigned, CUstreamBatchMemOpParams *, unsigned) = batch;
  bool is = strcmp(name, "cuStreamBatchMemOp") == 0 && version >= 11070 &&
            flags == cudaEnableDefault;
  *found = is ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  memcpy(fn, &call, sizeof call);
  return cudaSuccess;
}

static void check_captures(void) {
  if (shim_me()->capturing)
    shim_error("the device is asked while a stream is captured");
}

cudaError_t cudaStreamQuery(cudaStream_t s) {
  BEGIN;
  check_captures();
  bool busy = s->head != NULL;
  if (busy)
    shim_in_vain();
  END(busy ? cudaErrorNotReady : cudaSuccess);
}

static bool idle(void *arg) {
  const Host *h = arg;
  for (cudaStream_t s = shim.streams; s; s = s->all)
    if (s->host == h && s->head)
      return false;
  return true;
}

cudaError_t cudaDeviceSynchronize(void) {
  BEGIN;
  Host *h = shim_me();
  bool ok = shim_until(idle, h);
  for (cudaStream_t s = shim.streams; ok && s; s = s->all)
    if (s->host == h)
      vc_join(&h->vc, &s->vc);
  END(ok ? cudaSuccess : cudaErrorUnknown);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
  BEGIN;
  *e = shim_new(sizeof **e);
  (*e)->host = shim_me();
  (*e)->timed = !(flags & cudaEventDisableTiming);
  (*e)->number = shim_me()->nevent++;
  END(cudaSuccess);
}

uint32_t shim_event_number(cudaEvent_t e) { return e ? e->number : 0; }

cudaError_t cudaEventDestroy(cudaEvent_t e) {
  (void)e;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  BEGIN;
  Op *op = op_new(OP_RECORD);
  e->last = op->record = shim_new(sizeof *op->record);
  ShimLog *l = shim_note(SHIM_RECORD, s);
  l->event = e->number;
  op->record->capture = s->capture;
  stream_put(s, op);
  if (s->capture)
    op->record->vc = s->vc;
  END(cudaSuccess);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags) {
  if (!s->capture || flags != cudaEventRecordExternal)
    return cudaEventRecord(e, s);
  BEGIN;
  Op *op = op_new(OP_RECORD);
  op->external = e;
  shim_note(SHIM_RECORD, s)->event = e->number;
  stream_put(s, op);
  END(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
  (void)flags;
  BEGIN;
  ShimLog *l = shim_note(SHIM_WAIT, s);
  l->event = e->number;
  if (!e->last) /* never recorded: no wait at all */
    END(cudaSuccess);
  Op *op = op_new(OP_WAIT);
  Capture *c = e->last->capture;
  op->record = e->last;
  if (c && !c->origin)
    shim_error("a wait for an event of a capture that is over");
  if (s->capture && s->capture != c)
    shim_error("a stream in a capture waits for an event from outside it");
  if (c && c->origin && !s->capture) {
    s->capture = c;
    s->vc.t[s->clock]++; /* it has to be joined even if it does nothing more */
    if (c->nstream == MAX_STREAMS)
      abort();
    c->stream[c->nstream++] = s;
  }
  stream_put(s, op);
  if (s->capture)
    vc_join(&s->vc, &e->last->vc);
  END(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t e) {
  BEGIN;
  check_captures();
  if (e->last && e->last->capture)
    shim_error("an event of a capture is asked for");
  bool done = !e->last || e->last->done;
  if (done && e->last)
    vc_join(&shim_me()->vc, &e->last->vc);
  else if (!done)
    shim_in_vain();
  END(done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
  BEGIN;
  if (!from->timed || !to->timed)
    shim_error("the time of an event without one is asked for");
  bool done = from->last && from->last->done && to->last && to->last->done;
  *ms = done ? (float)(to->last->ms - from->last->ms) : 0;
  END(done ? cudaSuccess : cudaErrorNotReady);
}

/* ---- graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode) {
  (void)mode;
  BEGIN;
  Capture *c = shim_new(sizeof *c);
  c->origin = c->stream[0] = s;
  c->nstream = 1;
  c->first = shim_me()->nlog;
  s->capture = shim_me()->capturing = c;
  END(cudaSuccess);
}

/* Once nothing of it is left, and what was launched is over, communicators are free of it. */
static void let_go(Capture *c) {
  if (c->refs > 0 || c->running > 0)
    return;
  for (uint32_t i = 0; i < c->nop; i++)
    if (c->op[i]->group)
      group_captured(c->op[i]->group, false);
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) {
  BEGIN;
  Capture *c = s->capture;
  bool joined = true;
  if (!c || c->origin != s)
    END(cudaErrorStreamCaptureInvalidated);
  for (uint32_t i = 1; i < c->nstream; i++)
    joined &= s->vc.t[c->stream[i]->clock] >= c->stream[i]->vc.t[c->stream[i]->clock];
  for (uint32_t i = 0; i < c->nstream; i++)
    c->stream[i]->capture = NULL;
  c->origin = NULL;
  Host *h = shim_me();
  h->capturing = NULL;
  c->nlog = h->nlog - c->first, h->nlog = c->first; /* nothing of it has been carried out */
  c->log = shim_new(c->nlog * sizeof *c->log);
  if (c->nlog)
    memcpy(c->log, h->log + c->first, c->nlog * sizeof *c->log);
  if (!joined) {
    shim_error("a stream of a capture is not joined at its end");
    let_go(c);
    *g = NULL;
    END(cudaErrorStreamCaptureUnjoined);
  }
  *g = shim_new(sizeof **g);
  (*g)->c = c;
  c->refs++;
  END(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags) {
  (void)flags;
  BEGIN;
  *x = shim_new(sizeof **x);
  (*x)->c = g->c;
  g->c->refs++;
  for (uint32_t i = 0; i < g->c->nstream; i++)
    (*x)->clock[i] = shim_clock(shim_me());
  END(cudaSuccess);
}

void graph_over(GraphRun *r) {
  r->of->running--;
  let_go(r->of);
}

static cudaError_t destroy(Capture *c) {
  pthread_mutex_lock(&shim.lock); /* also of a run that has stopped */
  c->refs--;
  let_go(c);
  pthread_mutex_unlock(&shim.lock);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) { return destroy(g->c); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) { return destroy(x->c); }

/* Issues a copy of every captured operation, on streams that start when the launch comes to its
 * turn. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) {
  BEGIN;
  Capture *c = x->c;
  GraphRun *r = shim_new(sizeof *r);
  r->of = c;
  c->running++;
  r->stream = shim_new(c->nstream * sizeof *r->stream);
  r->nstream = c->nstream;
  for (uint32_t i = 0; i < c->nstream; i++) {
    r->stream[i] = stream_new(shim_me(), x->clock[i]);
    r->stream[i]->number = c->stream[i]->number;
    r->stream[i]->held = true;
  }
  for (uint32_t i = 0; i < c->nop; i++) {
    const Op *from = c->op[i];
    Op *op = op_new(from->kind);
    uint32_t on = 0;
    *op = (Op){.kind = from->kind,
               .host = op->host,
               .name = from->name,
               .fn = from->fn,
               .arg = from->arg,
               .access = from->access,
               .naccess = from->naccess,
               .to = from->to,
               .from = from->from,
               .bytes = from->bytes,
               .value = from->value,
               .put = from->put};
    c->op[i]->launched = op;
    if (from->external)
      from->external->last = op->record = shim_new(sizeof *op->record);
    else if (from->kind == OP_RECORD)
      from->record->again = shim_new(sizeof *op->record);
    if (from->record) /* one from outside the capture has been found wrong before */
      op->record = from->record->again ? from->record->again : from->record;
    if (from->group) {
      op->group = group_again(from->group);
      group_issued(op->group);
    }
    while (c->stream[on] != from->in)
      on++;
    stream_queue(r->stream[on], op);
  }
  Op *op = op_new(OP_GRAPH);
  op->run = r;
  shim_note(SHIM_GRAPH, s);
  shim_note_again(c);
  stream_put(s, op);
  END(cudaSuccess);
}

bool graph_ready(GraphRun *r, cudaStream_t s) {
  bool over = true;
  for (uint32_t i = 0; i < r->nstream; i++) {
    if (!r->started) {
      r->stream[i]->held = false;
      vc_join(&r->stream[i]->vc, &s->vc);
      vc_join(&r->stream[i]->vc, &s->head->host);
    }
    over &= !r->stream[i]->head;
  }
  if (!r->started)
    shim.progress++;
  r->started = true;
  for (uint32_t i = 0; over && i < r->nstream; i++)
    vc_join(&s->vc, &r->stream[i]->vc);
  return over;
}
