/* SPDX-License-Identifier: MIT
 * In place of runtime/transport/cuda/cuda_formula.cu: the kernel of formulas, carried out by the
 * CPU in stream order. */
#include "cuda_formula.h"
#include "shim.h"

static void formula_elements(void *arg) {
  const CudaFormula *f = arg;
  for (uint64_t i = 0; i < f->len; i++)
    f->out[i] = cuda_element(f, i);
}

cudaError_t cuda_formula_load(void) { return cudaSuccess; }

cudaError_t cuda_formula_launch(const CudaFormula *f, cudaStream_t s) {
  ShimAccess a[CUDA_ARRAYS + 2];
  uint32_t n = 0;
  for (uint32_t i = 0; i < CUDA_ARRAYS; i++)
    if (f->elem[i])
      a[n++] = (ShimAccess){f->elem[i], false};
  a[n++] = (ShimAccess){f->number, false};
  a[n++] = (ShimAccess){f->out, true};
  return shim_launch(s, formula_elements, f, sizeof *f, a, n);
}
