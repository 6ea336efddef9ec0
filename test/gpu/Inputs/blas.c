/* SPDX-License-Identifier: MIT
 * See cblas.h. c[m][n] = alpha * a * b + beta * c, by rows of b. */
#include "cblas.h"

#include <stdlib.h>

void cblas_sgemm(CBLAS_ORDER order, CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k,
                 float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                 float *c, int ldc) {
  float *turned = NULL;
  if (order == CblasColMajor) { /* the same of all transposed */
    cblas_sgemm(CblasRowMajor, tb, ta, n, m, k, alpha, b, ldb, a, lda, beta, c, ldc);
    return;
  }
  if (tb == CblasTrans) { /* so that the inner loop runs along rows */
    turned = malloc((size_t)k * (size_t)n * sizeof *turned);
    if (!turned)
      abort();
    for (int j = 0; j < n; j++)
      for (int l = 0; l < k; l++)
        turned[(size_t)l * (size_t)n + (size_t)j] = b[(size_t)j * (size_t)ldb + (size_t)l];
    b = turned, ldb = n;
  }
  for (int i = 0; i < m; i++) {
    float *to = c + (size_t)i * (size_t)ldc;
    for (int j = 0; j < n; j++)
      to[j] = beta == 0 ? 0 : beta * to[j];
    for (int l = 0; l < k; l++) {
      float x = alpha * (ta == CblasTrans ? a[(size_t)l * (size_t)lda + (size_t)i]
                                          : a[(size_t)i * (size_t)lda + (size_t)l]);
      const float *row = b + (size_t)l * (size_t)ldb;
      for (int j = 0; j < n; j++)
        to[j] += x * row[j];
    }
  }
  free(turned);
}
