/* SPDX-License-Identifier: MIT
 * The arithmetic of model.c: matrix products by CBLAS, and the row and element functions around
 * them, each with the function that takes its gradient backward (_input, _weight).
 *
 * All sums have a fixed order that depends on sizes only, and the loops are written for compilers
 * to vectorize without being allowed to reorder floating point. */
#ifndef GPT_KERNELS_H
#define GPT_KERNELS_H

#include "model.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

/* The functions for the type of `real`. */
/* clang-format off */
#define GEMM _Generic((real)0, float: cblas_sgemm, double: cblas_dgemm)
#define EXP _Generic((real)0, float: exp_float, double: exp)
#define SQRT _Generic((real)0, float: sqrtf, double: sqrt)
/* clang-format on */

/* alpha * op(a) op(b) + beta * c, row-major. */
static inline void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, uint64_t rows, uint64_t cols,
                        uint64_t inner, real alpha, const real *a, uint64_t lda, const real *b,
                        uint64_t ldb, real beta, real *c, uint64_t ldc) {
  GEMM(CblasRowMajor, ta, tb, (int)rows, (int)cols, (int)inner, alpha, a, (int)lda, b, (int)ldb,
       beta, c, (int)ldc);
}

/* y[n][out] += x[n][in] w^T */
static inline void linear(real *y, const real *x, const real *w, uint64_t n, uint64_t out,
                          uint64_t in) {
  gemm(CblasNoTrans, CblasTrans, n, out, in, 1, x, in, w, in, 1, y, out);
}
/* dx[n][in] = dy[n][out] w */
static inline void linear_input(real *dx, const real *dy, const real *w, uint64_t n, uint64_t out,
                                uint64_t in) {
  gemm(CblasNoTrans, CblasNoTrans, n, in, out, 1, dy, out, w, in, 0, dx, in);
}
/* dw += dy^T x,  db += column sums of dy (db NULL: no bias) */
static inline void linear_weight(real *restrict dw, real *restrict db, const real *dy,
                                 const real *x, uint64_t n, uint64_t out, uint64_t in) {
  gemm(CblasTrans, CblasNoTrans, out, in, n, 1, dy, out, x, in, 1, dw, in);
  for (uint64_t i = 0; db && i < n; i++)
    for (uint64_t j = 0; j < out; j++)
      db[j] += dy[i * out + j];
}

/* y[n][out] = b, or res + b */
static inline void fill(real *restrict y, const real *restrict res, const real *restrict b,
                        uint64_t n, uint64_t out) {
  for (uint64_t i = 0; i < n; i++) {
    if (res)
      for (uint64_t j = 0; j < out; j++)
        y[i * out + j] = res[i * out + j] + b[j];
    else
      memcpy(y + i * out, b, out * sizeof *y);
  }
}

/* e^x by range reduction and the polynomial of Cephes' expf: relative error below 2e-7. |x| counts
 * as at most 87, also that of a NaN; it is cut off in integers, because compilers vectorize loops
 * over that but not over comparisons of floats, which may trap. */
static inline float exp_float(float x) {
  const int32_t limit = 0x42ae0000; /* 87.0f */
  int32_t whole, size;
  memcpy(&whole, &x, sizeof whole);
  size = whole & 0x7fffffff;
  size = size < limit ? size : limit;
  whole = (int32_t)(((uint32_t)whole & 0x80000000u) | (uint32_t)size);
  memcpy(&x, &whole, sizeof x);
  float t = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to an integer in the low bits */
  float k = t - 12582912.0f;
  float r = x - k * 0.693359375f + k * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  uint32_t bits;
  memcpy(&bits, &t, sizeof bits);
  bits = (bits << 23) + (127u << 23);
  float scale;
  memcpy(&scale, &bits, sizeof scale);
  return p * scale;
}

/* Sums go into LANES partial sums, a fixed order that a vector unit can follow. */
enum { LANES = 16 };
static inline real lanes_sum(const real *s) {
  real a = 0;
  for (int k = 0; k < LANES; k++)
    a += s[k];
  return a;
}
static inline real row_dot(const real *restrict a, const real *restrict b, uint64_t n) {
  real s[LANES] = {0};
  uint64_t j = 0, whole = n / LANES * LANES;
  for (; j < whole; j += LANES)
    for (int k = 0; k < LANES; k++)
      s[k] += a[j + k] * b[j + k];
  for (; j < n; j++)
    s[j % LANES] += a[j] * b[j];
  return lanes_sum(s);
}
static inline real row_sum(const real *a, uint64_t n) {
  real s[LANES] = {0};
  uint64_t j = 0, whole = n / LANES * LANES;
  for (; j < whole; j += LANES)
    for (int k = 0; k < LANES; k++)
      s[k] += a[j + k];
  for (; j < n; j++)
    s[j % LANES] += a[j];
  return lanes_sum(s);
}
static inline real row_max(const real *a, uint64_t n) {
  real m = a[0];
  for (uint64_t j = 1; j < n; j++)
    m = a[j] > m ? a[j] : m;
  return m;
}
/* y = e^(y - shift) */
static inline void row_exp(real *y, real shift, uint64_t n) {
  for (uint64_t j = 0; j < n; j++)
    y[j] = EXP(y[j] - shift);
}

/* stat[n][2] = mean and 1/deviation of the rows of x. */
static inline void norm_stat(real *stat, const real *x, uint64_t n, uint64_t d) {
  for (uint64_t i = 0; i < n; i++) {
    const real *row = x + i * d;
    real mean = row_sum(row, d) / (real)d;
    real s[LANES] = {0};
    uint64_t j = 0, whole = d / LANES * LANES;
    for (; j < whole; j += LANES)
      for (int k = 0; k < LANES; k++)
        s[k] += (row[j + k] - mean) * (row[j + k] - mean);
    for (; j < d; j++)
      s[j % LANES] += (row[j] - mean) * (row[j] - mean);
    stat[2 * i] = mean;
    stat[2 * i + 1] = 1 / SQRT(lanes_sum(s) / (real)d + (real)1e-5);
  }
}
/* y = (x - mean) / deviation * g + b, with g at gb and b at gb + d: as they lie in a layer. */
static inline void norm(real *restrict y, const real *restrict x, const real *stat, const real *gb,
                        uint64_t n, uint64_t d) {
  const real *restrict g = gb, *restrict b = gb + d;
  for (uint64_t i = 0; i < n; i++) {
    real mean = stat[2 * i], rdev = stat[2 * i + 1];
    for (uint64_t j = 0; j < d; j++)
      y[i * d + j] = (x[i * d + j] - mean) * rdev * g[j] + b[j];
  }
}
/* dx = res + the gradient through the layernorm of dy, which is overwritten (res NULL: 0);
 * sum = the gradients of gb; kept = gb. */
static inline void norm_input(real *restrict dx, const real *restrict res, real *restrict dy,
                              const real *restrict x, const real *stat, const real *restrict gb,
                              real *restrict sum, real *restrict kept, uint64_t n, uint64_t d) {
  memcpy(kept, gb, 2 * d * sizeof *kept);
  memset(sum, 0, 2 * d * sizeof *sum);
  for (uint64_t i = 0; i < n; i++) {
    real mean = stat[2 * i], rdev = stat[2 * i + 1];
    real *restrict out = dx + i * d, *restrict dn = dy + i * d;
    const real *restrict row = x + i * d;
    for (uint64_t j = 0; j < d; j++) {
      real hat = (row[j] - mean) * rdev;
      sum[j] += dn[j] * hat;
      sum[d + j] += dn[j];
      dn[j] *= gb[j];
      out[j] = hat;
    }
    real a = row_sum(dn, d) / (real)d, b = row_dot(dn, out, d) / (real)d;
    for (uint64_t j = 0; j < d; j++)
      out[j] = rdev * (dn[j] - a - out[j] * b);
    if (res)
      for (uint64_t j = 0; j < d; j++)
        out[j] += res[i * d + j];
  }
}

/* GELU in its tanh form is u * sigmoid(2z), z = sqrt(2/pi) (u + 0.044715 u^3). */
static const real GELU_A = (real)1.5957691216057308, GELU_B = (real)0.044715;
static inline void gelu(real *restrict y, const real *restrict u, uint64_t n) {
  for (uint64_t j = 0; j < n; j++)
    y[j] = u[j] / (1 + EXP(-GELU_A * u[j] * (1 + GELU_B * u[j] * u[j])));
}
/* dy *= gelu'(u) */
static inline void gelu_input(real *restrict dy, const real *restrict u, uint64_t n) {
  for (uint64_t j = 0; j < n; j++) {
    real v = u[j], s = 1 / (1 + EXP(-GELU_A * v * (1 + GELU_B * v * v)));
    dy[j] *= s + v * s * (1 - s) * GELU_A * (1 + 3 * GELU_B * v * v);
  }
}

#endif
