/* SPDX-License-Identifier: MIT
 * Issues instructions: each row of a list once, from the top, on the stream of its op, between the
 * waits of PipeRank.wait and their records.
 *
 * note [host order]: with a group, the host of a rank waits for its own device, to stay at most a
 * few microbatches ahead, and never for other hosts: the prologue has made the first contacts of
 * NCCL. Lemma: a host always gets further. Proof: the lists follow one order of the whole program,
 * by predicted starts. What a host waits for on its device needs only rows that stand above it in
 * that order, and their hosts issue these without waiting for any row below. Without a group one
 * host issues all lists in turn, each up to a transfer or sum that another rank has not reached, so
 * an issued row never waits for one that is not issued. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_engine.h"
#include "nvtx3/nvToolsExt.h"

static _Thread_local cudaStream_t stream_now;

void *pr_cuda_stream(void) { return stream_now; }

void cuda_name(const PrRun *run, const PipeInstr *in) {
  char text[PIPE_OP_TEXT];
  if (!cuda_of(run)->o.nvtx)
    return;
  pipe_instr_text(text, pipe_graph(run->p), in);
  nvtxRangePushA(text);
}
void cuda_unname(const PrRun *run) {
  if (cuda_of(run)->o.nvtx)
    nvtxRangePop();
}

/* ---- COMPUTE and COPY ---- */

static PrStatus compute(PrRun *run, CudaRank *d, uint64_t step, uint32_t n) {
  PrCuda *c = cuda_of(run);
  RankRun *k = d->k;
  const ComputeAt *at = &k->compute[d->done[PIPE_COMPUTE]];
  const PipeInstr *in = &k->t->instr[at->index];
  for (uint32_t i = 0; i < n; i++) {
    PrCall *a = &k->call[i];
    double *lost = c->loss + 2 * (size_t)run->nsink * run->p->nmb + (d - c->rank);
    *a = pr_call_of(run, k, &at[i], step, lost);
    a->stream = d->stream[PIPE_COMPUTE];
    a->step_at = c->step_at;
    a->nupdate = run->stage[in[i].stage].nupdate;
    if (a->loss && a->loss != lost)
      a->loss = c->loss + (step & 1) * run->nsink * run->p->nmb + (a->loss - run->loss[step & 1]);
    const Kept *part = run->stage[in[i].stage].kept;
    for (uint32_t j = 0; a->op == PIPE_F && in[i].keep != PIPE_NONE && j < a->nx; j++)
      CUDA_TRY(run,
               cudaMemcpyAsync((char *)k->slot[in[i].keep] + part[j].at, a->xs[j], part[j].bytes,
                               cudaMemcpyDeviceToDevice, d->stream[PIPE_COMPUTE]));
    PrStatus st = cuda_estimate(run, d, at[i].index, a);
    if (st)
      return st;
  }
  for (uint32_t i = 0; i < n; i++) {
    PrStatus st = cuda_before_update(run, d, at[i].index, &k->call[i]);
    if (st)
      return st;
  }
  atomic_store(&k->running, at->index + 1);
  int code = pr_call_model(&run->m, k->call, n);
  atomic_store(&k->running, 0);
  if (code) {
    char where[PR_WHERE];
    return pr_fail(run, PR_E_MODEL, "model: rank %u, step %llu, %s: the callback returned %d",
                   k->id, (unsigned long long)step, pr_where(run, in, where), code);
  }
  PrStatus st = PR_OK;
  for (uint32_t i = 0; i < n && !st; i++)
    st = cuda_after_update(run, d, at[i].index, &k->call[i]);
  return st;
}

static PrStatus copy(PrRun *run, CudaRank *d, const PipeInstr *in) {
  RankRun *k = d->k;
  void *kept = in->peer == PIPE_NONE ? k->slot[in->away] : cuda_peer_slot(run, in->peer, in->away);
  bool off = in->op == PIPE_OFF;
  CUDA_TRY(run, cudaMemcpyAsync(off ? kept : k->slot[in->act], off ? k->slot[in->act] : kept,
                                run->stage[in->stage].size.act, cudaMemcpyDefault,
                                d->stream[PIPE_COPY]));
  return PR_OK;
}

/* A side op in the COMM or COPY stream. */
static PrStatus side(PrRun *run, CudaRank *d, uint64_t step) {
  const ComputeAt at = {.index = d->next};
  PrCall a = pr_call_of(run, d->k, &at, step, NULL);
  a.stream = cuda_stream(d, d->next);
  a.step_at = cuda_of(run)->step_at;
  int code = run->m.side(run->m.self, &a);
  char where[PR_WHERE];
  return code ? pr_fail(run, PR_E_MODEL, "model: rank %u, step %llu, %s: the callback returned %d",
                        d->k->id, (unsigned long long)step,
                        pr_where(run, &d->k->t->instr[d->next], where), code)
              : PR_OK;
}

/* ---- COMM ---- */

/* One call of NCCL: for the slot of a transfer, or for the header ahead of it. */
static ncclResult_t call_nccl(PrRun *run, CudaRank *d, const PipeInstr *in, bool header) {
  uint32_t row = (uint32_t)(in - d->k->t->instr);
  uint64_t bytes = pr_moved_bytes(run, in);
  void *p = d->k->slot[pipe_is_send(in->op) ? in->in : in->out];
  int peer;
  ncclComm_t comm = cuda_comm_of(cuda_of(run), in, &peer);
  if (header)
    p = cuda_header(d, row, &bytes);
  return pipe_is_send(in->op) ? ncclSend(p, bytes, ncclChar, peer, comm, cuda_stream(d, row))
                              : ncclRecv(p, bytes, ncclChar, peer, comm, cuda_stream(d, row));
}

static PrStatus one_call(PrRun *run, CudaRank *d, const PipeInstr *in, bool header) {
  int peer;
  ncclComm_t comm = cuda_comm_of(cuda_of(run), in, &peer);
  PrStatus st = cuda_enter_nccl(run);
  return st ? st
            : cuda_nccl(run, comm, pipe_is_send(in->op) ? "ncclSend" : "ncclRecv",
                        call_nccl(run, d, in, header));
}

/* A transfer alone. */
static PrStatus one_transfer(PrRun *run, CudaRank *d, const PipeInstr *in) {
  uint32_t row = (uint32_t)(in - d->k->t->instr);
  PrStatus st = d->check ? one_call(run, d, in, true) : PR_OK;
  if (!st && !pipe_is_send(in->op))
    st = cuda_check_header(run, d, row);
  if (!st)
    st = one_call(run, d, in, false);
  return st || pipe_is_send(in->op) ? st : cuda_check_tensor(run, d, row);
}

/* In a group a call reports only its own arguments; the end of the group reports the rest. */
static PrStatus add_to_group(PrRun *run, CudaRank *d, const PipeInstr *in) {
  ncclResult_t r = d->check ? call_nccl(run, d, in, true) : ncclSuccess;
  if (r == ncclSuccess || r == ncclInProgress)
    r = call_nccl(run, d, in, false);
  char where[PR_WHERE];
  return r == ncclSuccess || r == ncclInProgress
             ? PR_OK
             : pr_fail(run, PR_E_DEVICE, "rank %u: %s: %s: %s", d->k->id, pr_where(run, in, where),
                       ncclGetErrorString(r), ncclGetLastError(cuda_of(run)->comm));
}

/* Issues the n transfers at d->next in one group, except those in `lost` (bit by place). */
static PrStatus group_of_transfers(PrRun *run, CudaRank *d, uint32_t n, uint64_t lost) {
  PrCuda *c = cuda_of(run);
  const PipeInstr *in = &d->k->t->instr[d->next];
  PrStatus st = cuda_enter_nccl(run);
  if (st)
    return st;
  ncclGroupStart(); /* it only counts */
  for (uint32_t i = 0; i < n && !st; i++) {
    if (lost >> i & 1)
      continue;
    cuda_name(run, &in[i]);
    st = add_to_group(run, d, &in[i]);
    cuda_unname(run);
  }
  PrStatus end = cuda_nccl(run, c->comm, "ncclGroupEnd", ncclGroupEnd());
  st = st ? st : end;
  for (uint32_t i = 0; i < n && !st && d->check; i++)
    if (!pipe_is_send(in[i].op) && !(st = cuda_check_header(run, d, d->next + i)))
      st = cuda_check_tensor(run, d, d->next + i);
  return st;
}

/* Changes the first byte of each tensor in `which` (bit by place) that is sent or was computed. */
static PrStatus corrupt_slots(PrRun *run, CudaRank *d, PipeOn on, uint64_t which) {
  for (uint32_t i = 0; i < 64; i++) {
    if (!(which >> i & 1))
      continue;
    const PipeInstr *in = &d->k->t->instr[d->next + i];
    void *tensor = on == PIPE_COMM   ? d->k->slot[in->in]
                   : d->k->call[i].y ? d->k->call[i].y
                                     : d->k->call[i].dx;
    CUDA_TRY(run, cudaMemsetAsync(tensor, 0x5a, 1, cuda_stream(d, d->next + i)));
  }
  return PR_OK;
}

/* Issues the n transfers at d->next, with faults by place. */
static PrStatus transfers(PrRun *run, CudaRank *d, uint32_t n, uint64_t lost, uint64_t corrupt) {
  const PipeInstr *in = &d->k->t->instr[d->next];
  PrStatus st = PR_OK;
  for (uint32_t i = 0; i < n && !st; i++)
    st = pipe_is_send(in[i].op) && !(lost >> i & 1) ? cuda_check_send(run, d, d->next + i) : PR_OK;
  if (!st)
    st = corrupt_slots(run, d, PIPE_COMM, corrupt);
  if (st)
    return st;
  if (cuda_of(run)->edges)
    return cuda_edges_move(run, d, n, lost);
  return n > 1 ? group_of_transfers(run, d, n, lost) : lost ? PR_OK : one_transfer(run, d, in);
}

static Coll *coll_of(PrRun *run, const CudaRank *d) {
  return &run->coll[d->k->comm[d->done[PIPE_COMM]].chan];
}

/* A sum with other processes. Each stage of a TIE counts once: the rows here add up what they hold,
 * zeros if they hold nothing, and the result goes to all rows. */
static PrStatus sum_apart(PrRun *run, CudaRank *d) {
  PrCuda *c = cuda_of(run);
  Coll *l = coll_of(run, d);
  ncclComm_t comm = c->root ? c->coll_comm[l - run->coll] : NULL;
  cudaStream_t s = cuda_stream(d, d->next);
  uint64_t each, bytes;
  ncclDataType_t type = cuda_type(c, &each);
  void *mine[2] = {NULL, NULL}, *to = cuda_sum_at(run, l, &bytes);
  uint32_t stage[2] = {0, 0}, n = 0;
  for (uint32_t i = 0; l->tie && i < l->ngrad; i++) {
    if (!l->grad[i])
      continue;
    mine[n > 0] = l->grad[i], stage[n > 0] = l->stage[i];
    if (n++ > 0 &&
        run->m.tie(run->m.self, stage, mine, 2, bytes)) /* the first has the sum so far */
      return pr_fail(run, PR_E_MODEL, "model: tie failed");
  }
  if (l->tie && n == 0)
    CUDA_TRY(run, cudaMemsetAsync(to, 0, bytes, s));
  if (comm) /* other ranks take part */
    NCCL_TRY(run, comm, ncclAllReduce(to, to, bytes / each, type, ncclSum, comm, s));
  for (uint32_t i = 0; l->tie && i < l->ngrad; i++)
    if (l->grad[i] && l->grad[i] != to)
      CUDA_TRY(run, cudaMemcpyAsync(l->grad[i], to, bytes, cudaMemcpyDeviceToDevice, s));
  for (uint32_t i = 0; l->tie && i < l->ncopy; i++)
    if (l->copy[i] && l->copy[i] != to)
      CUDA_TRY(run, cudaMemcpyAsync(l->copy[i], to, bytes, cudaMemcpyDeviceToDevice, s));
  return PR_OK;
}

/* Without a group: the stream of d's next row waits until the streams of q[n] have reached their
 * present place. `back`: those streams wait for d's. */
static PrStatus meet(PrRun *run, CudaRank *d, CudaRank *const *q, uint32_t n, bool back) {
  cudaStream_t s = cuda_stream(d, d->next);
  if (back)
    CUDA_TRY(run, cudaEventRecord(d->ready, s));
  for (uint32_t i = 0; i < n; i++) {
    cudaStream_t other = cuda_stream(q[i], q[i]->next);
    if (q[i] == d)
      continue;
    if (!back)
      CUDA_TRY(run, cudaEventRecord(q[i]->ready, other));
    CUDA_TRY(run, cudaStreamWaitEvent(back ? other : s, (back ? d : q[i])->ready, 0));
  }
  return PR_OK;
}

static PrStatus sum_here(PrRun *run, CudaRank *d, CudaRank *const *q, uint32_t n) {
  Coll *l = coll_of(run, d);
  cudaStream_t s = cuda_stream(d, d->next);
  PrStatus st = meet(run, d, q, n, false);
  if (st)
    return st;
  stream_now = s;
  int code = l->tie ? run->m.tie(run->m.self, l->stage, l->grad, l->ngrad,
                                 run->stage[l->row[0]].size.tied)
                    : run->m.reduce(run->m.self, l->stage[0], l->grad, l->ngrad,
                                    run->stage[l->row[0]].size.grad);
  if (code)
    return pr_fail(run, PR_E_MODEL, "model: %s returned %d", l->tie ? "tie" : "reduce", code);
  for (uint32_t i = 0; i < l->ncopy; i++)
    CUDA_TRY(run, cudaMemcpyAsync(l->copy[i], l->grad[0], run->stage[l->row[0]].size.tied,
                                  cudaMemcpyDeviceToDevice, s));
  return meet(run, d, q, n, true);
}

/* Transfer x of rank a with y of rank b, one of which is the SEND. */
static PrStatus transfer_here(PrRun *run, CudaRank *a, const PipeInstr *x, CudaRank *b,
                              const PipeInstr *y) {
  if (!pipe_is_send(x->op))
    return transfer_here(run, b, y, a, x);
  PrStatus st = meet(run, b, &a, 1, false);
  if (st)
    return st;
  CUDA_TRY(run, cudaMemcpyAsync(b->k->slot[y->out], a->k->slot[x->in], pr_moved_bytes(run, x),
                                cudaMemcpyDeviceToDevice, cuda_stream(b, b->next)));
  return meet(run, b, &a, 1, true);
}

/* ---- around a row ---- */

static PrStatus mark(PrRun *run, CudaRank *d, uint64_t step, uint32_t row, bool after) {
  const PrCuda *c = cuda_of(run);
  if (d->mark)
    CUDA_TRY(run, cudaEventRecordWithFlags(
                      d->mark[(cuda_mark_slot(c, step) * d->k->t->ninstr + row) * 2 + after],
                      cuda_stream(d, row),
                      c->capturing ? cudaEventRecordExternal : cudaEventRecordDefault));
  return PR_OK;
}

/* Issues the waits of row d->next. */
static PrStatus waits(PrRun *run, CudaRank *d, cudaStream_t s) {
  const PipeRank *t = d->k->t;
  for (uint32_t i = pipe_wait0(t, d->next); i < pipe_wait_end(t, d->next); i++) {
    const uint32_t record = d->record[pipe_after(&d->queues, t->wait[i])];
    CUDA_TRY(run, cudaStreamWaitEvent(s, d->event[record - 1], 0));
  }
  return PR_OK;
}

/* Issues the record after `row` on stream s; PIPE_NONE: at the begin of the step. */
static PrStatus record(PrRun *run, CudaRank *d, uint32_t row, cudaStream_t s) {
  uint32_t e = d->record[row + 1];
  if (e == 0)
    return PR_OK;
  d->held[e - 1] = row + 1;
  CUDA_TRY(run, cudaEventRecord(d->event[e - 1], s));
  return PR_OK;
}

/* Keeps the host at most `ahead` microbatches ahead of the device. */
static PrStatus fence(PrRun *run, CudaRank *d, uint32_t stream) {
  struct CudaFence *f = &d->fence[stream];
  uint64_t n = ++f->issued;
  if (cuda_of(run)->capturing || n % f->ahead != 0)
    return PR_OK;
  cudaEvent_t e = f->event[n / f->ahead & 1];
  PrStatus st = n / f->ahead > 2 ? cuda_wait_event(run, e) : PR_OK;
  if (st)
    return st;
  CUDA_TRY(run, cudaEventRecord(e, d->stream[stream]));
  return PR_OK;
}

/* Passes row d->next and n - 1 more, which are issued. */
static PrStatus pass(PrRun *run, CudaRank *d, uint64_t step, uint32_t n) {
  PipeOn on = pipe_stream_of(d->k->t->instr[d->next].op);
  for (uint32_t i = 0; i < n; i++) {
    PrStatus st = mark(run, d, step, d->next + i, true);
    if (!st)
      st = record(run, d, d->next + i, cuda_stream(d, d->next + i));
    if (!st)
      st = fence(run, d, d->on[d->next + i]);
    if (st)
      return st;
  }
  d->next += n;
  d->done[on] += n;
  return PR_OK;
}

/* ---- COMM without a group of processes ---- */

/* True if a planted fault makes rank d hang at its head. The other lists continue. */
static bool hangs(const PrRun *run, const CudaRank *d, uint64_t step) {
  const PrFault *f = &run->fault;
  const PipeInstr *in = &d->k->t->instr[d->next];
  uint32_t n = pipe_stream_of(in->op) == PIPE_COMM ? in->group + 1u : 1;
  return f->kind == PR_HANG && f->point == PR_AT_INSTRUCTION && f->rank == d->k->id &&
         f->step == step && f->index >= d->next && f->index < d->next + n;
}

/* The ranks of the sum at d->next go to q. Returns how many; 0: not all have reached it. */
static uint32_t partners(PrRun *run, CudaRank *d, uint64_t step, CudaRank **q) {
  PrCuda *c = cuda_of(run);
  const PipeInstr *in = &d->k->t->instr[d->next];
  const Coll *l = coll_of(run, d);
  for (uint32_t i = 0; i < l->n; i++) {
    q[i] = &c->rank[run->p->stage[l->row[i]].rank];
    const PipeRank *t = q[i]->k->t;
    if (q[i]->next >= t->ninstr || t->instr[q[i]->next].op != in->op ||
        t->instr[q[i]->next].stage != l->row[i] || hangs(run, q[i], step))
      return 0;
  }
  return l->n;
}

/* Issues the sum at d->next for all its ranks. *moved: false if not all have reached it. */
static PrStatus sum_when_all(PrRun *run, CudaRank *d, uint64_t step, CudaRank **q, bool *moved) {
  uint32_t n = partners(run, d, step, q);
  PrStatus st = PR_OK;
  *moved = n > 0;
  for (uint32_t i = 0; i < n && !st; i++)
    if (!(st = waits(run, q[i], cuda_stream(q[i], q[i]->next))))
      st = mark(run, q[i], step, q[i]->next, false);
  if (n > 0 && !st)
    st = sum_here(run, q[0], q, n);
  for (uint32_t i = 0; i < n && !st; i++)
    st = pass(run, q[i], step, 1);
  return st;
}

/* The first transfer at the head of d, by its place there, that is not done and is with rank peer,
 * a SEND or not, in the channel of `of` if it is in one; PIPE_NONE. Those between two ranks in one
 * direction keep their order. */
static uint32_t find_transfer(const CudaRank *d, const PipeInstr *of, uint32_t peer, bool send) {
  const PipeRank *t = d->k->t;
  const PipeInstr *in = &t->instr[d->next];
  if (d->next >= t->ninstr || pipe_stream_of(in->op) != PIPE_COMM || pipe_is_sum(in->op) ||
      pipe_is_side(in->op))
    return PIPE_NONE;
  for (uint32_t i = 0; i <= in->group; i++)
    if (!(d->moved >> i & 1) && in[i].peer == peer && pipe_is_send(in[i].op) == send &&
        in[i].channel == of->channel)
      return i;
  return PIPE_NONE;
}

/* Begins the transfers at the head of d, unless some of them have begun. */
static PrStatus begin_transfers(PrRun *run, CudaRank *d, uint64_t step) {
  uint32_t n = d->k->t->instr[d->next].group + 1u;
  PrStatus st = d->moved ? PR_OK : waits(run, d, cuda_stream(d, d->next));
  for (uint32_t i = 0; i < n && !st && !d->moved; i++)
    st = mark(run, d, step, d->next + i, false);
  for (uint32_t i = 0; i < n && !st && !d->moved; i++)
    if (pr_fault_at(run, d->k->id, d->next + i, step) == PR_CORRUPT)
      st = corrupt_slots(run, d, PIPE_COMM, UINT64_C(1) << i);
  return st;
}

/* Transfer i at the head of d is issued. Passes the head after its last transfer. */
static PrStatus end_transfer(PrRun *run, CudaRank *d, uint64_t step, uint32_t i) {
  uint32_t n = d->k->t->instr[d->next].group + 1u;
  d->moved |= UINT64_C(1) << i;
  if (d->moved != UINT64_MAX >> (64 - n))
    return PR_OK;
  d->moved = 0;
  return pass(run, d, step, n);
}

/* Drops the SEND at the head of d that a planted fault names. */
static PrStatus lose_transfers(PrRun *run, CudaRank *d, uint64_t step, bool *moved) {
  const PrFault *f = &run->fault;
  uint32_t head = d->next, n = d->k->t->instr[head].group + 1u;
  if (f->kind != PR_DROP || f->rank != d->k->id || f->step != step || f->index < head ||
      f->index >= head + n || d->moved >> (f->index - head) & 1)
    return PR_OK;
  PrStatus st = begin_transfers(run, d, step);
  *moved = true;
  return st ? st : end_transfer(run, d, step, f->index - head);
}

/* Issues the transfers at the head of d whose other end has been reached. *moved: there was one. */
static PrStatus transfers_here(PrRun *run, CudaRank *d, uint64_t step, bool *moved) {
  PrCuda *c = cuda_of(run);
  const PipeInstr *in = &d->k->t->instr[d->next];
  uint32_t n = in->group + 1u, head = d->next;
  *moved = false;
  PrStatus st = lose_transfers(run, d, step, moved);
  for (uint32_t i = 0; i < n && !st && d->next == head; i++) {
    CudaRank *q = &c->rank[in[i].peer];
    if (q->next < q->k->t->ninstr && hangs(run, q, step))
      continue;
    uint32_t j = find_transfer(d, &in[i], q->k->id, pipe_is_send(in[i].op)) == i
                     ? find_transfer(q, &in[i], d->k->id, !pipe_is_send(in[i].op))
                     : PIPE_NONE;
    if (j == PIPE_NONE)
      continue;
    const PipeInstr *y = &q->k->t->instr[q->next + j];
    *moved = true;
    if (!pr_are_ends(run->p, &in[i], y)) {
      bool send = pipe_is_send(in[i].op);
      return pr_mispaired(run, send ? d->k->id : q->k->id, send ? &in[i] : y, step,
                          send ? q->k->id : d->k->id, send ? y : &in[i], step);
    }
    if ((st = begin_transfers(run, d, step)) || (st = begin_transfers(run, q, step)) ||
        (st = transfer_here(run, d, &in[i], q, y)) || (st = end_transfer(run, q, step, j)))
      break;
    st = end_transfer(run, d, step, i);
  }
  return st;
}

/* ---- a row ---- */

/* Faults on request (fault.c) at a row and those of its group, for the caller what they do not do
 * themselves: bits by place. Without a group of processes a host that hangs for one rank goes on
 * for the others (hangs). */
static PrStatus meet_faults(PrRun *run, CudaRank *d, uint64_t step, uint32_t n, uint64_t *lost,
                            uint64_t *corrupt) {
  const PrFault *f = &run->fault;
  PrStatus st = PR_OK;
  if (!f->kind)
    return PR_OK;
  for (uint32_t i = 0; i < n && i < 64; i++) {
    if (f->kind != PR_HANG) {
      PrFaultKind what = pr_fault_at(run, d->k->id, d->next + i, step);
      *lost |= (uint64_t)(what == PR_DROP) << i;
      *corrupt |= (uint64_t)(what == PR_CORRUPT) << i;
      continue;
    }
    bool here = f->point == PR_AT_INSTRUCTION && f->rank == d->k->id && f->index == d->next + i &&
                f->step == step;
    cuda_of(run)->held_up = here ? CUDA_BEGINS_NOT : CUDA_WAITS;
    for (uint64_t looks = 0; here && !st; looks++)
      st = cuda_wait_a_little(run, looks);
  }
  return st;
}

static PrStatus issue(PrRun *run, CudaRank *d, uint64_t step, CudaRank **q, bool *moved) {
  PrCuda *c = cuda_of(run);
  const PipeInstr *in = &d->k->t->instr[d->next];
  PipeOn on = pipe_stream_of(in->op);
  uint32_t n = on == PIPE_COMM || (on == PIPE_COMPUTE && run->m.overlap) ? in->group + 1u : 1;
  uint64_t lost = 0, corrupt = 0;
  *moved = true;
  stream_now = cuda_stream(d, d->next);
  if (!c->o.group && hangs(run, d, step)) {
    *moved = false;
    return PR_OK;
  }
  if (on == PIPE_COMM && !c->o.group && !pipe_is_side(in->op))
    return pipe_is_sum(in->op) ? sum_when_all(run, d, step, q, moved)
                               : transfers_here(run, d, step, moved);
  PrStatus st = meet_faults(run, d, step, n, &lost, &corrupt);
  if (st)
    return st;
  st = waits(run, d, cuda_stream(d, d->next));
  for (uint32_t i = 0; i < n && !st; i++)
    st = mark(run, d, step, d->next + i, false);
  if (!st)
    st = on == PIPE_COMPUTE     ? compute(run, d, step, n)
         : pipe_is_side(in->op) ? side(run, d, step)
         : on == PIPE_COPY      ? copy(run, d, in)
         : pipe_is_sum(in->op)  ? sum_apart(run, d)
                                : transfers(run, d, n, lost, corrupt);
  if (!st && on == PIPE_COMPUTE)
    st = corrupt_slots(run, d, on, corrupt);
  return st ? st : pass(run, d, step, n);
}

/* Reports why a list is not at its end: a row that does not begin, or a lost message. PR_OK: all
 * lists are at their ends. */
static PrStatus stalled(PrRun *run, uint64_t step) {
  PrCuda *c = cuda_of(run);
  uint32_t **pair = NULL;
  const CudaRank *in = NULL; /* one that waits for others */
  char where[PR_WHERE], text[PR_TEXT / 2];
  PrStatus st = PR_OK;
  for (uint32_t r = 0; r < c->nhere && !st; r++) {
    const CudaRank *d = &c->rank[r];
    if (d->next >= d->k->t->ninstr)
      continue;
    if (hangs(run, d, step))
      st = pr_fail(run, PR_E_STALL, "stall: rank %u does not begin %s", d->k->id,
                   pr_where(run, &d->k->t->instr[run->fault.index], where));
    in = in ? in : d;
  }
  for (uint32_t r = 0; in && !st && r < c->nhere && (pair || (pair = pipe_pair(run->p))); r++) {
    const CudaRank *d = &c->rank[r];
    const PipeInstr *head = &d->k->t->instr[d->next];
    for (uint32_t i = 0; d->next < d->k->t->ninstr && !st && i <= head->group; i++) {
      const PipeInstr *x = &head[i];
      if (!pipe_is_move(x->op) || d->moved >> i & 1)
        continue;
      const CudaRank *q = &c->rank[x->peer];
      uint32_t other = pair[r][d->next + i];
      if (other >= q->next && !(other - q->next < 64 && q->moved >> (other - q->next) & 1))
        continue;
      pr_tell_waiting(run, d->k->id, x, q->k->id, &q->k->t->instr[other], true, text, sizeof text);
      st = pr_fail(run, PR_E_STALL, "stall: %s", text);
    }
  }
  free(pair);
  if (in && !st)
    st = pr_fail(run, PR_E_STALL, "stall: rank %u is in %s, which its partners do not come to",
                 in->k->id, pr_where(run, &in->k->t->instr[in->next], where));
  return st;
}

/* Issues all lists in turn, each as far as it gets, to their ends. */
static PrStatus issue_lists(PrRun *run, uint64_t step) {
  PrCuda *c = cuda_of(run);
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t r = 0; r < c->nhere; r++) {
      CudaRank *d = &c->rank[r];
      for (bool on = true; on && d->next < d->k->t->ninstr;) {
        cuda_name(run, &d->k->t->instr[d->next]);
        PrStatus st = issue(run, d, step, c->partner, &on);
        cuda_unname(run);
        stream_now = NULL;
        if (st)
          return st;
        moved |= on;
      }
    }
  }
  return stalled(run, step);
}

/* Ends the step: sends its losses from all ranks to all, and to the host. COMM waits for the other
 * ranks, so COMPUTE goes on with the next step; but all of a captured step is over before the next
 * one begins. Free-running ranks do not meet. */
static PrStatus gather_losses(PrRun *run, uint64_t step) {
  PrCuda *c = cuda_of(run);
  size_t n = (size_t)run->nsink * run->p->nmb;
  CudaRank *d = &c->rank[0];
  const bool meets = c->o.group && c->o.group->size > 1 && !c->edges && !run->free_running;
  cudaStream_t s = d->stream[PIPE_COMPUTE], x = meets ? d->stream[PIPE_COMM] : s;
  double *loss = c->loss + (step & 1) * n;
  for (uint32_t r = 1; r < c->nhere; r++) {
    CUDA_TRY(run, cudaEventRecord(c->rank[r].over, c->rank[r].stream[PIPE_COMPUTE]));
    CUDA_TRY(run, cudaStreamWaitEvent(s, c->rank[r].over, 0));
  }
  CUDA_TRY(run, cudaEventRecord(d->over, s));
  CUDA_TRY(run, cudaStreamWaitEvent(x, d->over, 0));
  if (meets)
    NCCL_TRY(run, c->comm, ncclAllReduce(loss, loss, n, ncclFloat64, ncclSum, c->comm, x));
  CUDA_TRY(run, cudaMemcpyAsync(c->loss_to + (step & 1) * n, loss, n * sizeof *loss,
                                cudaMemcpyDeviceToHost, x));
  CUDA_TRY(run, cudaEventRecord(c->capturing ? d->ready : c->over[step & 1], x));
  if (c->capturing)
    CUDA_TRY(run, cudaStreamWaitEvent(s, d->ready, 0));
  return PR_OK;
}

PrStatus cuda_issue_step(PrRun *run, uint64_t step) {
  PrCuda *c = cuda_of(run);
  size_t n = (size_t)run->nsink * run->p->nmb;
  cudaStream_t s = c->rank[0].stream[PIPE_COMPUTE];
  PrStatus st = PR_OK;
  if (c->base && !c->capturing)
    CUDA_TRY(run, cudaEventRecord(c->base[step % run->trace_slots], s));
  CUDA_TRY(run, cudaMemcpyAsync(c->step_at, &c->step_from[step & 1], sizeof *c->step_at,
                                cudaMemcpyHostToDevice, s));
  if ((st = cuda_formulas_begin(run, step, s)))
    return st;
  CUDA_TRY(run, cudaMemsetAsync(c->loss + (step & 1) * n, 0, n * sizeof *c->loss, s));
  if (c->nhere > 1)
    CUDA_TRY(run, cudaEventRecord(c->begin, s));
  c->held_step = c->capturing ? UINT64_MAX : step;
  for (uint32_t r = 0; r < c->nhere && !st; r++) {
    CudaRank *d = &c->rank[r];
    d->next = 0;
    d->moved = 0;
    memset(d->done, 0, sizeof d->done);
    memset(d->held, 0xff, d->nevent * sizeof *d->held);
    if (r > 0)
      CUDA_TRY(run, cudaStreamWaitEvent(d->stream[PIPE_COMPUTE], c->begin, 0));
    st = record(run, d, PIPE_NONE, d->stream[PIPE_COMPUTE]);
  }
  if (st || (st = issue_lists(run, step)))
    return st;
  for (uint32_t r = 0; r < c->nhere && !st; r++)
    st = waits(run, &c->rank[r], c->rank[r].stream[PIPE_COMPUTE]);
  return st ? st : gather_losses(run, step);
}
