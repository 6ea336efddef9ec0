/* SPDX-License-Identifier: MIT
 * The kernel of formulas: one thread for each element, or for several. Memory-bound: each array is
 * read once. */
#include "cuda_formula.h"

enum { BLOCK = 256, MOST_BLOCKS = 65535 };

__global__ static void formula_elements(CudaFormula f) {
  for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < f.len;
       i += (uint64_t)gridDim.x * blockDim.x)
    f.out[i] = cuda_element(&f, i);
}

extern "C" cudaError_t cuda_formula_load(void) {
  cudaFuncAttributes is;
  return cudaFuncGetAttributes(&is, formula_elements);
}

extern "C" cudaError_t cuda_formula_launch(const CudaFormula *f, cudaStream_t s) {
  uint64_t blocks = (f->len + BLOCK - 1) / BLOCK;
  if (f->len == 0)
    return cudaSuccess;
  const unsigned grid = (unsigned)(blocks > MOST_BLOCKS ? (uint64_t)MOST_BLOCKS : blocks);
  formula_elements<<<grid, BLOCK, 0, s>>>(*f);
  return cudaPeekAtLastError();
}
