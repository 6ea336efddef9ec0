/* SPDX-License-Identifier: MIT
 * The engine of CUDA devices; of the library piperun_cuda (pipe::piperun_cuda), which is built
 * where the CUDA Toolkit and NCCL are found.
 *
 *   PrGroup *group;                                  pr_group_open, or one of your own
 *                                                    (pipe_group.h)
 *   PrCudaOptions cuda = {.group = group, .device = local_rank};
 *   PrOptions options = {.engine = &pr_cuda, .engine_options = &cuda};
 *
 * With a group each process runs one rank: transfers are, in the order of the program's list,
 * ncclSend and ncclRecv, for which it has a device of its own, or on one host copies
 * (PrCudaOptions.transport); REDUCE and TIE are ncclAllReduce among the ranks that take part.
 * Without one, this process runs all ranks on one device, each on streams of its own;
 * transfers are copies, and sums are made by the model, in the order of the CPU engines.
 *
 * Where it makes a communicator it needs NCCL 2.26: aborts of older ones may wait for the device,
 * and start kernels of several communicators in any order. pr_open refuses them.
 *
 * A run that fails leaves the memory of its tensors to the end of the process where other processes
 * may have it open: with stashes on other ranks, and on one host, unless every rank asks for NCCL.
 * A run that fails while its device hangs is left by its host all the same. It leaves memory,
 * communicators and an open group of NCCL calls: the thread that closed it can open no other run
 * with a group, and whatever waits for the device hangs. End the process then.
 *
 * With lowering channels each channel is a communicator of its own (ncclCommSplit) and a stream on
 * both sides, and NCCL starts what is on them in the order of the list: pr_open refuses
 * NCCL_LAUNCH_ORDER_IMPLICIT other than 1. Not run on a device yet.
 *
 * The streams of a rank meet through the events of the program (PipeSync) and nothing else. One
 * host thread, that of pr_steps, issues everything from the top of the list, ahead of the device by
 * a few microbatches. All memory is taken in pr_open; a step takes none.
 *
 * A model for this engine gets device memory and a stream (PrCall.stream; in init, reduce and tie:
 * pr_cuda_stream). Its init has to load what it runs: each kernel once, each shape of cuBLAS once.
 * init may wait for the device, the others must not.
 *
 * Formulas of a schedule are evaluated on the device, each operation on elements rounded by itself,
 * and what they compute from numbers only on the host, before each step. So they have the bits of
 * the CPU engines, except that the last one of exp, log and pow of an array may differ where the
 * libraries do. With a graph a rate (U rate) has to be the same in every step. An engine that was
 * built without nvcc refuses formulas. Their kernel has been compiled and run on the CPU in tests,
 * not yet on a device.
 *
 * NCCL has no tags. With PrOptions.checksums, and a group, a header of 16 bytes goes ahead of each
 * transfer: which tensor of which step it is, and a checksum. A receiver that gets another one, or
 * a damaged one, fails the run with both ends. It takes two copies to the host and two functions of
 * the host a transfer: for tests.
 *
 * Stashes on other ranks, and COPY streams of several ranks that take turns, take processes on one
 * host, with devices that reach each other: they open each other's memory (CUDA IPC).
 *
 * Any thread may call pr_steps and what else takes a run, one at a time: each sets the device of
 * the thread that calls it. PrOptions.on_step is called one step late within a call of pr_steps,
 * while the device has the next step already; free-running or not.
 *
 * Environment. pr_open refuses CUDA_LAUNCH_BLOCKING=1, with which a step cannot end. Unless it is
 * set, it sets NCCL_LAUNCH_ORDER_IMPLICIT=1, which NCCL reads when it is first used. With fewer
 * than 8 queues (CUDA_DEVICE_MAX_CONNECTIONS, CUDA_DEVICE_MAX_COPY_CONNECTIONS) turns of COPY
 * streams with a group are refused, and so is PEER for programs with groups of transfers. */
#ifndef PIPE_CUDA_H
#define PIPE_CUDA_H

#include "pipe_group.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

extern const PrEngine pr_cuda;

/* The type of the numbers in gradients: what ncclAllReduce adds up. */
typedef enum PrNumber { PR_FLOAT32, PR_FLOAT64, PR_FLOAT16, PR_BFLOAT16, PR_INT64 } PrNumber;

/* What moves tensors between processes, in the whole run. NCCL: its kernels, which hold a part of
 * the device while they wait. PEER: copy engines; all ranks are on one host, with devices that
 * reach each other (or one device), and a program without sums between ranks makes no communicator.
 * AUTO: PEER where that is possible between all ranks that have transfers, and NCCL_P2P_DISABLE
 * does not say otherwise; else NCCL, and pr_note says why on one host. */
typedef enum PrCudaTransport { PR_CUDA_AUTO, PR_CUDA_NCCL, PR_CUDA_PEER } PrCudaTransport;

/* PrOptions.engine_options; all zero is the default. */
typedef struct PrCudaOptions {
  const PrGroup *group; /* NULL: all ranks are in this process */
  int device;
  uint32_t ahead;       /* microbatches that the host issues ahead of the device; 0: 4 */
  /* most ranks that one group of transfers may be with: NCCL may cut a large group into launches of
   * its own, on each rank elsewhere; 0: 2 */
  uint32_t group_peers;
  /* most blocks of threads, each a part of the device while it waits for its other end, that a
   * communicator of transfers may take; 0: 4. NCCL alone takes up to 16 for two ranks. Its own
   * variable NCCL_MAX_CTAS goes before it. Sums take what NCCL wants */
  uint32_t transfer_blocks;
  /* 1: the step is captured once and replayed; one with a fault on request is not */
  int graph;
  int nvtx;             /* 1: a range around what is issued for an instruction, in op notation */
  PrNumber grad;
  PrCudaTransport transport; /* without a group transfers are copies anyway */
} PrCudaOptions;

/* In a callback: the cudaStream_t it has to use. NULL: there is none, it may wait for the
 * device. */
void *pr_cuda_stream(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
