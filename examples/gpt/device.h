/* SPDX-License-Identifier: MIT
 * What the kernels of the GPT on CUDA are written with, so that they are the same text on a device
 * and in tests without one: there a C++ compiler makes functions of them that one lane runs, on the
 * device and the cuBLAS of test/shim.
 *
 *   KERNEL void k(uint64_t n, ...) { EACH(i, n) ... }      a thread for each i
 *   KERNEL void k(uint64_t n, ...) { EACH_ROW(r, n) ... }  a warp for each r; LANE_OF(j, d) deals
 *                                                          j = 0 .. d - 1 out to its lanes;
 *                                                          lane_sum and lane_max put them together
 *   LAUNCH(k, threads, stream, ...)
 *
 * No shared memory, no barriers, and sums whose order depends on sizes only: a run repeats to the
 * bit. */
#ifndef GPT_DEVICE_H
#define GPT_DEVICE_H

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__

#define KERNEL static __global__
#define DEVICE static __device__ __forceinline__
#define DEVICE_AND_HOST static __host__ __device__ __forceinline__
enum { GPT_BLOCK = 256, GPT_LANES = 32 };
#define EACH(i, n) \
  for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < (n); \
       i += (uint64_t)gridDim.x * blockDim.x)
#define EACH_ROW(r, n) \
  for (uint64_t r = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) / GPT_LANES; r < (n); \
       r += (uint64_t)gridDim.x * blockDim.x / GPT_LANES)
#define LANE_OF(j, d) for (uint64_t j = threadIdx.x % GPT_LANES; j < (d); j += GPT_LANES)
#define FIRST_LANE (threadIdx.x % GPT_LANES == 0)
template <class N> DEVICE N lane_sum(N x) {
  for (int k = GPT_LANES / 2; k > 0; k /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, k);
  return x;
}
DEVICE float lane_max(float x) {
  for (int k = GPT_LANES / 2; k > 0; k /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, k));
  return x;
}
static inline unsigned gpt_blocks(uint64_t threads) {
  uint64_t n = (threads + GPT_BLOCK - 1) / GPT_BLOCK;
  return n == 0 ? 1 : n > 65535 ? 65535 : (unsigned)n;
}
#define LAUNCH(kernel, threads, stream, ...) \
  (kernel<<<gpt_blocks(threads), GPT_BLOCK, 0, stream>>>(__VA_ARGS__), cudaPeekAtLastError())

#else

#include "shim.h"

#define KERNEL static
#define DEVICE static inline
#define DEVICE_AND_HOST static inline
enum { GPT_LANES = 1 };
#define EACH(i, n) for (uint64_t i = 0; i < (n); i++)
#define EACH_ROW(r, n) for (uint64_t r = 0; r < (n); r++)
#define LANE_OF(j, d) for (uint64_t j = 0; j < (d); j++)
#define FIRST_LANE true
template <class N> DEVICE N lane_sum(N x) { return x; }
DEVICE float lane_max(float x) { return x; }
template <class F> static cudaError_t gpt_put(cudaStream_t s, F f) { /* f is copied, byte by byte */
  return shim_launch(s, [](void *p) { (*(F *)p)(); }, &f, sizeof f, NULL, 0);
}
/* Arguments have their values at the launch. */
template <class... P, class... A>
static cudaError_t gpt_launch(cudaStream_t s, void (*kernel)(P...), A... a) {
  return gpt_put(s, [kernel, a...] { kernel(a...); });
}
#define LAUNCH(kernel, threads, stream, ...) \
  ((void)(threads), gpt_launch(stream, kernel, __VA_ARGS__))

#endif

/* Numbers are kept as T, float or bf16, and computed with as float. */
DEVICE float up(float x) { return x; }
DEVICE float up(__nv_bfloat16 x) { return __bfloat162float(x); }
DEVICE void put(float *to, float x) { *to = x; }
DEVICE void put(__nv_bfloat16 *to, float x) { *to = __float2bfloat16(x); }

#endif
