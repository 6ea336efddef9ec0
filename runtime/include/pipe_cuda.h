/* SPDX-License-Identifier: MIT
 * The engine of CUDA devices, in the library piperun_cuda (pipe::piperun_cuda), which is built if
 * CMake finds the CUDA Toolkit and NCCL.
 *
 *   PrGroup *group;                                  from pr_group_open, or of the program
 *                                                    (pipe_group.h)
 *   PrCudaOptions cuda = {.group = group, .device = local_rank};
 *   PrOptions options = {.engine = &pr_cuda, .engine_options = &cuda};
 *
 * With a group each process runs one rank. Transfers are ncclSend and ncclRecv if the rank has a
 * device of its own, or copies between devices of one host (PrCudaOptions.transport), in the order
 * of the program's list. REDUCE and TIE are ncclAllReduce among the ranks that take part. Without a
 * group this process runs all ranks on one device, each on its own streams; transfers are copies,
 * and the model adds up gradients in the order of the CPU engines.
 *
 * NCCL. A run with a communicator needs NCCL 2.26; pr_open refuses older versions. Their aborts may
 * wait for the device, and they may start kernels of several communicators in any order.
 *
 * Failures. A failed run does not free the memory of its tensors before the process ends if other
 * processes may have it open: with stashes on other ranks, and on one host unless every rank
 * requests NCCL. If the device hangs, the host still leaves the run. It then leaks memory,
 * communicators and an open group of NCCL calls: the thread that closed the run can open no other
 * run with a group, and every call that waits for the device hangs. End the process then.
 *
 * Channels. With lowering CHANNELS each channel is a communicator (ncclCommSplit) and a stream on
 * both sides, and NCCL starts their kernels in list order; pr_open refuses
 * NCCL_LAUNCH_ORDER_IMPLICIT other than 1. Not run on a device yet.
 *
 * Streams. The streams of a rank meet only through the waits of the program (PipeWait); each is an
 * event. One host thread, that of pr_steps, issues everything in list order, a few microbatches
 * ahead of the device. pr_open allocates all memory; a step allocates none.
 *
 * Model. A model for this engine gets device memory and a stream (PrCall.stream; in init, reduce
 * and tie: pr_cuda_stream). Its init must load what it runs: launch each kernel once, call each
 * shape of cuBLAS once. init may wait for the device; the other callbacks must not.
 *
 * Formulas. The device evaluates formulas; each operation on elements is rounded separately. The
 * host computes the parts that have only numbers, before each step. The bits equal those of the CPU
 * engines, except that exp, log and pow of an array may differ in the last bit, where the libraries
 * do. With a graph a rate (U rate) must be the same in every step. An engine built without nvcc
 * refuses formulas. Tests compile their kernel and run it on the CPU; it has not run on a device
 * yet.
 *
 * Checksums. NCCL has no tags. With a group and PrOptions.checksums, a header of 16 bytes precedes
 * each transfer: tensor, step and checksum. A receiver that gets another tensor, or a damaged one,
 * fails the run and names both ends. Each transfer then takes two copies to the host and two host
 * functions: for tests.
 *
 * One host. Stashes on other ranks require that all processes run on one host and that their
 * devices reach each other: the processes open each other's memory (CUDA IPC).
 *
 * Threads. Any thread may call pr_steps and the other functions of a run, one call at a time; each
 * call sets the device of the calling thread. Within a call of pr_steps, PrOptions.on_step runs one
 * step late, while the device already has the next step, free-running or not.
 *
 * Environment. pr_open refuses CUDA_LAUNCH_BLOCKING=1, with which a step cannot end. It sets
 * NCCL_LAUNCH_ORDER_IMPLICIT=1 unless it is set; NCCL reads it at its first use. With fewer than 8
 * queues (CUDA_DEVICE_MAX_CONNECTIONS, CUDA_DEVICE_MAX_COPY_CONNECTIONS) pr_open refuses PEER for
 * programs with groups of transfers. */
#ifndef PIPE_CUDA_H
#define PIPE_CUDA_H

#include "pipe_group.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

extern const PrEngine pr_cuda;

/* The number type of gradients, for ncclAllReduce. */
typedef enum PrNumber { PR_FLOAT32, PR_FLOAT64, PR_FLOAT16, PR_BFLOAT16, PR_INT64 } PrNumber;

/* Moves tensors between processes, for the whole run.
 * - NCCL: kernels, which occupy a part of the device while they wait
 * - PEER: copy engines. All ranks must be on one host, with devices that reach each other (or one
 *   device). A program without sums between ranks makes no communicator
 * - AUTO: PEER if it is possible between all ranks that have transfers and NCCL_P2P_DISABLE does
 *   not forbid it; else NCCL. On one host pr_note gives the reason for NCCL */
typedef enum PrCudaTransport { PR_CUDA_AUTO, PR_CUDA_NCCL, PR_CUDA_PEER } PrCudaTransport;

/* The communicators of transfers, in the terms of ncclConfig_t. Sums have NCCL's own settings. The
 * variables of NCCL, such as NCCL_MAX_CTAS, have precedence. */
typedef struct PrCudaComm {
  /* Thread blocks of a kernel. Each occupies a part of the device while it waits for its peer; NCCL
   * by itself takes up to 16 for two ranks. 0: 4 at most, or min_ctas if that is more */
  int max_ctas, min_ctas;
  int cga_cluster;  /* thread blocks of a kernel that start together; 0: NCCL's choice */
  int net_channels; /* thread blocks to a rank on another host; 0: NCCL's choice; NCCL 2.28 */
} PrCudaComm;

/* PrOptions.engine_options; all zero is the default. */
typedef struct PrCudaOptions {
  const PrGroup *group; /* NULL: all ranks are in this process */
  int device; /* CUDA device of this process, from 0 */
  uint32_t ahead;       /* microbatches that the host issues ahead of the device; 0: 4 */
  /* Most peers of one group of transfers; 0: 2. NCCL may split a larger group into several
   * launches, at different places on each rank. */
  uint32_t group_peers;
  PrCudaComm transfers;
  /* 1: the step is captured once and replayed; a step with an injected fault is not replayed */
  int graph;
  int nvtx;             /* 1: an NVTX range around the calls of each instruction, in op notation */
  PrNumber grad; /* number type of gradients */
  PrCudaTransport transport; /* ignored without a group: transfers are then copies */
} PrCudaOptions;

/* In a callback: the cudaStream_t that the callback must use. NULL: there is none; the callback may
 * wait for the device. */
void *pr_cuda_stream(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
