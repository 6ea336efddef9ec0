/* SPDX-License-Identifier: MIT
 * Is there a CUDA device that works? Exit status 0: yes. Decides the lit feature `gpu`. */
#include <cuda_runtime_api.h>
#include <stdio.h>

int main(void) {
  int n = 0;
  void *p = NULL;
  cudaError_t e = cudaGetDeviceCount(&n);
  if (e == cudaSuccess)
    e = cudaMalloc(&p, 256);
  if (e == cudaSuccess)
    e = cudaFree(p);
  printf("%d devices: %s\n", n, cudaGetErrorString(e));
  return e != cudaSuccess || n == 0;
}
