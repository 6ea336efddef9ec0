/* SPDX-License-Identifier: MIT
 * A CUDA device and NCCL in this process, for tests: what the engine calls is carried out by the
 * CPU, in an order that a seed picks among all those that the rules allow, and everything is
 * written down.
 *
 * Host threads (one stands for one process of a run) take turns; each call may hand over to another
 * one, and may carry out work that streams have at their heads. The rules:
 *
 *   streams     in order; an operation is carried out at once when nothing holds it
 *   events      a wait is for the record that was issued last when the wait was issued
 *   memory      every access is checked against clocks of streams and host threads: of two accesses
 *               of a word of 8 bytes, one of them a write, one must be known to the other (a race
 *               is an error whatever the order that was picked). What comes from another host tells
 *               nothing of one's own streams: those have to be ordered where they are
 *   NCCL        SEND and RECV are a rendezvous; the k-th send of a rank to a peer meets the k-th
 *               receive that the peer has for it, without tags; what is in one group makes progress
 *               together; all operations of a communicator on a rank are one after the other,
 *               whatever their streams; sizes must agree; the first contact of two ranks in a
 *               communicator, in one direction, and the first sum of a size, which may take
 *               connections of its own, block the hosts until all are there; memory is registered
 *               at both ends of a transfer or at none: by ncclCommRegister, and in a graph all of
 *               ncclMemAlloc, which takes pieces of many MiB: a host has no more than one of them
 *   room        with NCCL_LAUNCH_ORDER_IMPLICIT=1 operations of several communicators start in the
 *               order of the host, each once the one before it has started, or, on some hosts, is
 *               over; else the device has room for one of them at a time, whichever comes first.
 *               Neither orders accesses of memory
 *   numbers     a stream may wait for a number in memory, which another one sets by a copy of 4
 *               bytes or a write of its own: what was before it is known behind the wait
 *   processes   memory of cudaMalloc may be opened by other hosts, and is given back once they have
 *               closed it. Memory of the host that processes share and register has one address
 *               for devices, which is not one of theirs. A host that is killed writes no more of it
 *   abort       of a communicator ends once what was issued to it is over, which it is without its
 *               other ends, in the order of its streams; those of one group at once. While a graph
 *               has work of it, it is neither aborted nor finalized. No other thread of the host
 *               gets in meanwhile
 *   capture     a stream takes part from the first wait for an event of the capture on, and must be
 *               joined at the end; nothing else is issued, or asked for, meanwhile
 *
 * A run in which nothing can go on is known at once (all hosts wait or look in vain): every call
 * fails then. What is wrong is counted and kept as text. One user at a time: shim_begin ..
 * shim_end. */
#ifndef SHIM_H
#define SHIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "include/cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* nhost threads will call shim_enter; whether the log is kept. */
void shim_begin(uint64_t seed, uint32_t nhost, bool log);
/* accesses are not checked from here on: for large tensors on one stream */
void shim_unwatched(void);
void shim_end(void); /* frees everything */
void shim_enter(uint32_t host); /* this thread is host number `host` from now on */
void shim_leave(void);
/* For what host threads do among themselves: until f(arg), asked whenever it is this thread's turn.
 * False: it never will be. */
bool shim_wait(bool (*f)(void *), void *arg);
/* What this host knows it writes down at p, or reads there. */
void shim_write_down(const void *p);
void shim_read(const void *p);

uint64_t shim_leaks(void);         /* allocations that were not given back */
uint64_t shim_lent(void);          /* and of them those that others could open */
uint32_t shim_errors(void);        /* races, broken rules, leaks */
const char *shim_error_text(void); /* of the first; "" */
bool shim_stalled(void);
uint32_t shim_stuck(void); /* streams that were destroyed while they waited for a number */
uint32_t shim_hung(void);  /* communicators whose abort never ends */
const char *shim_hung_text(void); /* of the first; "" */
uint32_t shim_aborts(void); /* communicators that were aborted */
uint32_t shim_comms(void);  /* that were made */
uint32_t shim_threads(void); /* threads that hosts, and NCCL for them, started in steps */
uint32_t shim_transfers(void); /* sends and receives of NCCL */
/* operations that were ever in one stream at once, since shim_steady */
uint64_t shim_most_queued(void);

/* The step loop has begun: an allocation, or a first contact of two ranks, is an error from here
 * on. */
void shim_steady(bool on);
/* From here on, a run is cut off when host `host` has made `calls` more calls: its thread finds
 * every call to fail, and its work stops where it is. */
void shim_kill(uint32_t host, uint64_t calls);
bool shim_was_killed(void); /* this thread */
bool shim_is_busy(void);    /* a stream of this host has work */
bool shim_is_dead(uint32_t host);

/* Of this thread: allocation number n from here on (from 1) fails, of device memory or, of what is
 * compiled with calloc=shim_calloc, of the host. 0: none does. How many there were since. */
uint32_t shim_starve(uint32_t n);
void *shim_calloc(size_t n, size_t bytes);
void *shim_malloc(size_t bytes);
void *shim_realloc(void *p, size_t bytes);

/* From here on, the n-th wait of the host for a number (from 0) is over at once. */
void shim_skip(uint32_t host, uint32_t n);
/* From here on, the n-th write of a number by the host right behind a copy (from 0) is carried out
 * ahead of it; or its n-th write of a 1 never. */
void shim_overtake(uint32_t host, uint32_t n);
void shim_forgo(uint32_t host, uint32_t n);
void shim_lazy(void);  /* from here on the device does nothing before a host looks for it in vain */
/* from here on a number tells nothing: what only waits for numbers order is not ordered */
void shim_deaf(void);
void shim_version(int nccl); /* what ncclGetVersion says from here on, until shim_end; 0: 2.28.9 */
void shim_unordered(void);   /* from here on as if NCCL_LAUNCH_ORDER_IMPLICIT were not set */
/* from here on, the n-th communicator that the host has made has an error */
void shim_break(uint32_t host, uint32_t n);
void shim_apart(void); /* from here on no host can open memory of the device of another */
/* Before all else, with one host: it is the one process of a run whose others are processes of
 * their own, with devices of their own. Communicators connect nobody: what is on them is over once
 * it has started, and no data comes. Any thread of the process may call. */
void shim_alone(void);
/* From here on the streams of a host have one hardware queue, and nothing starts before all that
 * was issued there before it is over: as CUDA_DEVICE_MAX_CONNECTIONS=1 may do, and more. */
void shim_one_queue(void);
/* From here on ncclCommSplit says that it is through while it is in progress, as NCCL does. */
void shim_hasty(void);

/* The next kernel that the host launches does not end, and with all nothing goes on behind it on
 * the device: memory of it cannot be given back then, nor that of others closed, and a stream takes
 * only so much more. */
void shim_hang(uint32_t host, bool all);
/* if one hangs: it ends after all, once all hosts have left; what is in the streams is carried out
 * */
void shim_go_on(void);

/* The next call of the host on a communicator that blocks returns once that is aborted. */
void shim_hold_call(uint32_t host);
/* The next group that the host issues is not carried out, as if the call were not there. */
void shim_lose(uint32_t host);

/* An access of a kernel: the word at p, or nothing if p is NULL. */
typedef struct ShimAccess { const void *p; bool write; } ShimAccess;
/* A kernel: fn(arg) is carried out in stream order, once for each launch (again for each of a
 * graph's). arg is copied. */
cudaError_t shim_launch(cudaStream_t s, void (*fn)(void *arg), const void *arg, size_t bytes,
                        const ShimAccess *access, uint32_t n);

/* Of the communicator of the last ncclSend; 0: it was not said. */
typedef struct ShimSettings { int max, min, cluster, net; } ShimSettings;
extern ShimSettings shim_settings;

/* The log, call by call as they were issued; host by host. */
typedef enum ShimCall {
  SHIM_KERNEL,
  SHIM_COPY,
  SHIM_SET,
  SHIM_RECORD,
  SHIM_WAIT,
  SHIM_SEND,
  SHIM_RECV,
  SHIM_SUM,
  SHIM_GRAPH,
  SHIM_NUMBER
} ShimCall;
typedef struct ShimLog {
  ShimCall call;
  uint32_t stream; /* number of the stream on its host, in the order of creation */
  uint32_t event;  /* RECORD, WAIT: number of the event on its host, in the order of creation */
  int peer;        /* SEND, RECV */
  const void *p;   /* SEND, RECV, SUM: buffer; COPY, SET: destination */
  size_t bytes;
  char name[48];   /* innermost NVTX range */
  const struct Op *op;
} ShimLog;
/* Of an operation that has been carried out: did it start after `other` was over, by streams,
 * events and hosts alone, whatever the order that was picked? */
bool shim_after(const ShimLog *l, const ShimLog *other);
uint32_t shim_log_length(uint32_t host);
const ShimLog *shim_log(uint32_t host); /* valid until the next call that is logged */
void shim_log_clear(void);
uint32_t shim_event_number(cudaEvent_t e);

/* Asked at every match of a SEND with a RECV for the names of their ranges: false is an error.
 * NULL: not. */
extern bool (*shim_pairs)(const char *send, const char *recv);

#ifdef __cplusplus
}
#endif

#endif
