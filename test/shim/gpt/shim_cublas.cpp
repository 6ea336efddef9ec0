/* SPDX-License-Identifier: MIT
 * The products of cuBLAS that the GPT makes, for the device that the CPU plays (shim.h): by CBLAS, in float. */
#include <cblas.h>
#include <stdlib.h>

#include "../include/cublas_v2.h"
#include "../include/cuda_bf16.h"
#include "../shim.h"

struct cublasContext {
  cudaStream_t stream;
};

cublasStatus_t cublasCreate(cublasHandle_t *h) {
  *h = (cublasHandle_t)calloc(1, sizeof **h);
  return *h ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}
cublasStatus_t cublasDestroy(cublasHandle_t h) {
  free(h);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t s) {
  h->stream = s;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t, void *, size_t) { return CUBLAS_STATUS_SUCCESS; }

struct Product {
  cublasOperation_t ta, tb;
  int m, n, k, lda, ldb, ldc, batch;
  float alpha, beta;
  const void *a, *b;
  void *c;
  cudaDataType_t type_a, type_b, type_c;
  long long step_a, step_b, step_c;
};

static float *unpack(const void *from, cudaDataType_t type, long long at, int rows, int cols, int ld) {
  float *to = (float *)malloc((size_t)ld * cols * sizeof *to);
  for (int j = 0; to && j < cols; j++)
    for (int i = 0; i < rows; i++)
      to[(size_t)j * ld + i] = type == CUDA_R_32F ? ((const float *)from)[at + (long long)j * ld + i]
                                                  : __bfloat162float(((const __nv_bfloat16 *)from)[at + (long long)j * ld + i]);
  return to;
}

static void carry_out(void *arg) {
  const Product *p = (const Product *)arg;
  for (int q = 0; q < p->batch; q++) {
    bool ta = p->ta == CUBLAS_OP_T, tb = p->tb == CUBLAS_OP_T;
    float *a = unpack(p->a, p->type_a, q * p->step_a, ta ? p->k : p->m, ta ? p->m : p->k, p->lda);
    float *b = unpack(p->b, p->type_b, q * p->step_b, tb ? p->n : p->k, tb ? p->k : p->n, p->ldb);
    float *c = unpack(p->c, p->type_c, q * p->step_c, p->m, p->n, p->ldc);
    if (!a || !b || !c)
      abort();
    for (int j = 0; p->beta == 0 && j < p->n; j++) /* whatever is there, NaNs as well, does not count */
      for (int i = 0; i < p->m; i++)
        c[(size_t)j * p->ldc + i] = 0;
    cblas_sgemm(CblasColMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, p->m, p->n, p->k,
                p->alpha, a, p->lda, b, p->ldb, p->beta, c, p->ldc);
    for (int j = 0; j < p->n; j++)
      for (int i = 0; i < p->m; i++) {
        size_t at = (size_t)(q * p->step_c) + (size_t)j * p->ldc + i;
        if (p->type_c == CUDA_R_32F)
          ((float *)p->c)[at] = c[(size_t)j * p->ldc + i];
        else
          ((__nv_bfloat16 *)p->c)[at] = __float2bfloat16(c[(size_t)j * p->ldc + i]);
      }
    free(a);
    free(b);
    free(c);
  }
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                                          const void *alpha, const void *a, cudaDataType_t type_a, int lda,
                                          long long step_a, const void *b, cudaDataType_t type_b, int ldb,
                                          long long step_b, const void *beta, void *c, cudaDataType_t type_c, int ldc,
                                          long long step_c, int batch, cublasComputeType_t, cublasGemmAlgo_t) {
  Product p = {ta, tb, m, n, k, lda, ldb, ldc, batch, *(const float *)alpha, *(const float *)beta, a, b, c,
               type_a, type_b, type_c, step_a, step_b, step_c};
  return shim_launch(h->stream, carry_out, &p, sizeof p, NULL, 0) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                                : CUBLAS_STATUS_EXECUTION_FAILED;
}
