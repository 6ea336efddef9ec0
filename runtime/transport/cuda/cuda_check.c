/* SPDX-License-Identifier: MIT
 * Transfers that say what they are (PrOptions.checksums, with a group of processes). NCCL has no
 * tags: the n-th send of a rank meets the n-th receive of its peer, whatever they are. So a header
 * of 16 bytes goes ahead of each tensor, on the same way: which tensor of which step it is, and a
 * checksum of it; and the receiver compares.
 *
 * Alone, a header is compared before its tensor is received by NCCL; by copies both are there. In
 * a group both are members of it, one behind the other: a group of headers before the group of
 * tensors would wait for more than the group itself does. There a header is compared once the
 * group is over; if it does not end, when the step takes too long.
 *
 * All of this is in the order of the stream of the transfer: copies to and from memory of the host,
 * and functions of the host there, which may not call CUDA. What they find the thread that issues
 * hears when it next waits.
 *
 * A device that does not come to the end of what it has may do so once the run is closed: those
 * functions know of nothing but CudaCheck, CudaWrong and what these point to, which is memory of
 * cuda_take, left to the end of the process then. */
#include <stdlib.h>
#include <string.h>

#include "checksum.h"
#include "cuda_engine.h"

struct CudaCheck {     /* of a row of the rank's list */
  const PipeInstr *in; /* of the thread that issues alone; so is `device` */
  CudaHeader *device, *host;
  CudaWrong *wrong;
  CudaHeader
      /* what its SEND sends, in step 0: written before the first function is issued, and not again
       * */
      is;
  uint32_t row;
  bool known; /* `is` is written */
  _Atomic uint64_t step;
  uint64_t bytes;
  const char *tensor; /* host memory: what was sent, or has come */
};

static CudaHeader header_of(const PipeProgram *p, PipeOp op, const PipeInstr *in, uint32_t stage,
                            uint64_t step) {
  uint32_t edge = p->edge ? in->edge : 0;
  return (CudaHeader){stage, in->mb,
                      (uint32_t)(step & 0xffff) << 16 | (edge & 0x7fff) << 1 | (op == PIPE_SEND_B),
                      0};
}

/* On the thread that issues. */
static void know(const PrRun *run, CudaCheck *k) {
  uint32_t stage = k->in->stage;
  PipeOp op = (PipeOp)k->in->op;
  if (k->known)
    return;
  if (op == PIPE_RECV_F || op == PIPE_RECV_B)
    op = pr_partner(run->p, k->in, &stage);
  k->is = header_of(run->p, op, k->in, stage, 0);
  k->known = true;
}

/* What is sent, or expected, in its step. */
static CudaHeader header_at(const CudaCheck *k, uint64_t step) {
  CudaHeader h = k->is;
  h.what |= (uint32_t)(step & 0xffff) << 16;
  return h;
}

static bool same(CudaHeader a, CudaHeader b) {
  return a.stage == b.stage && a.mb == b.mb && a.what == b.what;
}

static uint32_t sum_of(const CudaCheck *k) { return (uint32_t)pr_checksum(k->tensor, k->bytes); }

/* The first that is wrong counts. */
static void found(CudaCheck *k, bool damaged) {
  CudaWrong *w = k->wrong;
  int none = 0;
  if (!atomic_compare_exchange_strong(&w->state, &none, 1))
    return;
  w->row = k->row;
  w->got = *k->host;
  w->step = k->step;
  w->damaged = damaged;
  atomic_store(&w->state, 2);
}

/* ---- on the stream of the transfer, in its order; of the host ---- */

static void make(void *arg) {
  CudaCheck *k = arg;
  *k->host = header_at(k, k->step++);
  k->host->sum = sum_of(k);
}

static void look(void *arg) {
  CudaCheck *k = arg;
  if (!same(*k->host, header_at(k, k->step)))
    found(k, false);
}

static void look_at_tensor(void *arg) {
  CudaCheck *k = arg;
  if (same(*k->host, header_at(k, k->step)) && k->host->sum != sum_of(k))
    found(k, true);
  atomic_fetch_add(&k->step, 1);
}

/* ---- issuing ---- */

void *cuda_header(const CudaRank *d, uint32_t row, uint64_t *bytes) {
  *bytes = sizeof(CudaHeader);
  return d->check ? d->check[row].device : NULL;
}

/* The tensor of a row to the host's memory. */
static PrStatus fetch_tensor(PrRun *run, CudaRank *d, CudaCheck *k, uint32_t row, uint32_t slot) {
  if (k->bytes > 0)
    CUDA_TRY(run, cudaMemcpyAsync((char *)k->tensor, d->k->slot[slot], k->bytes,
                                  cudaMemcpyDeviceToHost, cuda_stream(d, row)));
  return PR_OK;
}

PrStatus cuda_check_send(PrRun *run, CudaRank *d, uint32_t row) {
  CudaCheck *k = d->check ? &d->check[row] : NULL;
  cudaStream_t s = cuda_stream(d, row);
  PrStatus st = k ? fetch_tensor(run, d, k, row, k->in->in) : PR_OK;
  if (st || !k)
    return st;
  know(run, k);
  CUDA_TRY(run, cudaLaunchHostFunc(s, make, k));
  CUDA_TRY(run, cudaMemcpyAsync(k->device, k->host, sizeof *k->host, cudaMemcpyHostToDevice, s));
  return PR_OK;
}

PrStatus cuda_check_header(PrRun *run, CudaRank *d, uint32_t row) {
  CudaCheck *k = d->check ? &d->check[row] : NULL;
  cudaStream_t s = cuda_stream(d, row);
  if (!k)
    return PR_OK;
  know(run, k);
  CUDA_TRY(run, cudaMemcpyAsync(k->host, k->device, sizeof *k->host, cudaMemcpyDeviceToHost, s));
  CUDA_TRY(run, cudaLaunchHostFunc(s, look, k));
  return PR_OK;
}

PrStatus cuda_check_tensor(PrRun *run, CudaRank *d, uint32_t row) {
  CudaCheck *k = d->check ? &d->check[row] : NULL;
  PrStatus st = k ? fetch_tensor(run, d, k, row, k->in->out) : PR_OK;
  if (st || !k)
    return st;
  CUDA_TRY(run, cudaLaunchHostFunc(cuda_stream(d, row), look_at_tensor, k));
  return PR_OK;
}

/* ---- what came of it ---- */

/* The SEND of the peer that a header is of; NULL: of none. */
static const PipeInstr *sender_of(PrRun *run, uint32_t peer, CudaHeader h) {
  const PipeProgram *p = pr_see_all(run);
  const PipeRank *t = p ? &p->rank[peer] : NULL;
  for (uint32_t i = 0; t && i < t->ninstr; i++) {
    const PipeInstr *c = &t->instr[i];
    if ((pipe_is_send(c->op)) &&
        same(header_of(run->p, (PipeOp)c->op, c, c->stage, h.what >> 16), h))
      return c;
  }
  return NULL;
}

static PrStatus tell(PrRun *run, const CudaCheck *k, CudaHeader got, uint64_t step) {
  const PipeInstr *send = sender_of(run, k->in->peer, got);
  char where[PR_WHERE];
  uint64_t there = step - (uint16_t)(step - (got.what >> 16)); /* not later than this one */
  if (send)
    return pr_mispaired(run, k->in->peer, send, there, run->here, k->in, step);
  return pr_fail(
      run, PR_E_MISMATCH,
      "mismatch: rank %u expects %s of step %llu, and what rank %u sends has no header of "
      "a transfer",
      run->here, pr_where(run, k->in, where), (unsigned long long)step, k->in->peer);
}

PrStatus cuda_check_verdict(PrRun *run) {
  PrCuda *c = cuda_of(run);
  const CudaWrong *w = c->wrong;
  if (!c->rank || !c->rank[0].check || !w || atomic_load(&w->state) != 2)
    return PR_OK;
  const CudaCheck *k = &c->rank[0].check[w->row];
  return w->damaged ? pr_damaged(run, run->here, k->in, w->step) : tell(run, k, w->got, w->step);
}

/* The headers that have come, by a stream of its own: the others are held up. Those of the step at
 * hand that are not what their RECV expects are what it waits for. */
PrStatus cuda_check_late(PrRun *run) {
  PrCuda *c = cuda_of(run);
  CudaRank *d = &c->rank[0];
  PrStatus st = cuda_check_verdict(run);
  if (st || !d->check)
    return st;
  size_t n = d->k->t->ninstr;
  CUDA_TRY(run, cudaMemcpyAsync(c->late, c->headers, n * sizeof *c->late, cudaMemcpyDeviceToHost,
                                c->aside));
  CUDA_TRY(run, cudaEventRecord(c->looked, c->aside));
  for (uint64_t end = pr_now() + UINT64_C(1000000000);
       cudaEventQuery(c->looked) == cudaErrorNotReady;)
    if (pr_now() > end)
      return PR_OK;
  for (uint32_t i = 0; i < n && !st; i++) {
    CudaCheck *k = &d->check[i];
    CudaHeader got = c->late[i];
    if ((k->in->op != PIPE_RECV_F && k->in->op != PIPE_RECV_B) || k->step != c->done_steps ||
        got.what >> 16 != (c->done_steps & 0xffff) || got.stage == PIPE_NONE)
      continue;
    know(run, k);
    if (!same(got, header_at(k, k->step)))
      st = tell(run, k, got, k->step);
  }
  return st;
}

uint32_t cuda_check_known(const CudaRank *d, uint32_t stream, uint64_t step) {
  uint32_t last = 0;
  for (uint32_t i = 0; d->check && i < d->k->t->ninstr; i++) {
    uint8_t op = d->check[i].in->op;
    if ((op == PIPE_RECV_F || op == PIPE_RECV_B) && d->on[i] == stream && d->check[i].step > step)
      last = i + 1;
  }
  return last;
}

void cuda_check_rewind(PrRun *run, uint64_t step) {
  CudaRank *d = cuda_of(run)->rank;
  for (uint32_t i = 0; d && d->check && i < d->k->t->ninstr; i++)
    d->check[i].step = step;
}

/* ---- opening ---- */

PrStatus cuda_check_open(PrRun *run) {
  PrCuda *c = cuda_of(run);
  CudaRank *d = &c->rank[0];
  uint32_t n = d->k->t->ninstr;
  uint64_t most = 0;
  if (!run->o.checksums || !c->o.group)
    return PR_OK;
  d->check = cuda_take(n * sizeof *d->check, true);
  c->wrong = cuda_take(sizeof *c->wrong, true);
  c->headers = cuda_take(n * sizeof *c->headers, false);
  c->late = cuda_take(n * sizeof *c->late, true);
  c->header = cuda_take(n * sizeof *c->header, true);
  for (uint32_t i = 0; i < n; i++) {
    const PipeInstr *in = &d->k->t->instr[i];
    bool moves = pipe_is_move(in->op);
    most = moves && pr_moved_bytes(run, in) > most ? pr_moved_bytes(run, in) : most;
  }
  most = pr_round(most) + PR_LINE;
  c->tensor = cuda_take(most * (d->k->nstream + 1), true);
  if (!d->check || !c->wrong || !c->headers || !c->late || !c->header || !c->tensor)
    return pr_fail(run, PR_E_MEMORY, "no memory for the headers of %u transfers", n);
  CUDA_TRY(run, cudaMemset(c->headers, 0xff, n * sizeof *c->headers)); /* of no stage */
  CUDA_TRY(run, cudaStreamCreateWithPriority(&c->aside, cudaStreamNonBlocking, 0));
  CUDA_TRY(run, cudaEventCreateWithFlags(&c->looked, cudaEventDisableTiming));
  for (uint32_t i = 0; i < n; i++) {
    const PipeInstr *in = &d->k->t->instr[i];
    bool moves = pipe_is_move(in->op);
    uint32_t channel = d->on[i] < PIPE_NSTREAMS ? 0 : d->on[i] - PIPE_NSTREAMS + 1;
    d->check[i] = (CudaCheck){.in = in,
                              .row = i,
                              .wrong = c->wrong,
                              .device = &c->headers[i],
                              .host = &c->header[i],
                              .bytes = moves ? pr_moved_bytes(run, in) : 0,
                              .tensor = c->tensor + most * channel};
  }
  return PR_OK;
}

void cuda_check_close(PrRun *run) {
  PrCuda *c = cuda_of(run);
  if (c->headers)
    cuda_give(run, c->headers, false);
  if (c->late)
    cuda_give(run, c->late, true);
  if (c->header)
    cuda_give(run, c->header, true);
  if (c->tensor)
    cuda_give(run, c->tensor, true);
  if (c->looked)
    cudaEventDestroy(c->looked);
  if (c->aside)
    cudaStreamDestroy(c->aside);
  if (c->wrong)
    cuda_give(run, c->wrong, true);
  if (c->rank && c->rank[0].check)
    cuda_give(run, c->rank[0].check, true);
}
