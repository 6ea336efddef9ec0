/* SPDX-License-Identifier: MIT
 * A formula on the device: what cuda_formula.c hands to the kernel, and the value of one element. C
 * and C++; under the shim it runs on the CPU.
 *
 * What a formula computes from numbers only the host computes, as pr_formula_array does, and passes
 * on as floats. Each operation on elements is rounded to float by itself: nothing is contracted.
 * exp, log and pow are computed in double and rounded once, as on the CPU: where the two libraries
 * differ in double, a last bit may. */
#ifndef PIPE_CUDA_FORMULA_H
#define PIPE_CUDA_FORMULA_H

#include <cuda_runtime_api.h>
#include <math.h>

#include "pipe_formula.h"

enum { CUDA_ARRAYS = PIPE_ELEM_STATE + 32 };

typedef struct CudaTerm {
  uint32_t op, arg; /* PipeTermOp; CONST: number `arg` of the formula; ELEM: array `arg` */
} CudaTerm;

typedef struct CudaFormula {
  const CudaTerm *term;   /* [n], device */
  const float *number;    /* device */
  const float *elem[CUDA_ARRAYS]; /* device; by PipeElem, NULL: not read */
  float *out;             /* device, [len]; may be one of the arrays */
  uint64_t len;
  uint32_t n, zero;
} CudaFormula;

/* cuda_formula.cu; under the shim shim_formula.c: puts out = f for all elements on stream s. */
#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_formula_load(void); /* the kernel, before it is first launched in a step */
cudaError_t cuda_formula_launch(const CudaFormula *f, cudaStream_t s);
#ifdef __cplusplus
}
#endif

#ifdef __CUDACC__
#define CUDA_ON __device__ static inline
#define CUDA_ADD(a, b) __fadd_rn(a, b)
#define CUDA_SUB(a, b) __fsub_rn(a, b)
#define CUDA_MUL(a, b) __fmul_rn(a, b)
#define CUDA_DIV(a, b) __fdiv_rn(a, b)
#define CUDA_SQRT(a) __fsqrt_rn(a)
#else
#define CUDA_ON static inline
#define CUDA_ADD(a, b) ((a) + (b))
#define CUDA_SUB(a, b) ((a) - (b))
#define CUDA_MUL(a, b) ((a) * (b))
#define CUDA_DIV(a, b) ((a) / (b))
#define CUDA_SQRT(a) sqrtf(a)
#endif

/* An operation on a and, if it has them, b and c. */
CUDA_ON float cuda_term(uint32_t op, float a, float b, float c) {
  switch (op) {
  case PIPE_TERM_NEG: return -a;
  case PIPE_TERM_NOT: return (float)(a == 0);
  case PIPE_TERM_ABS: return fabsf(a);
  case PIPE_TERM_SQRT: return CUDA_SQRT(a);
  case PIPE_TERM_EXP: return (float)exp((double)a);
  case PIPE_TERM_LOG: return (float)log((double)a);
  case PIPE_TERM_FLOOR: return floorf(a);
  case PIPE_TERM_ADD: return CUDA_ADD(a, b);
  case PIPE_TERM_SUB: return CUDA_SUB(a, b);
  case PIPE_TERM_MUL: return CUDA_MUL(a, b);
  case PIPE_TERM_DIV: return CUDA_DIV(a, b);
  case PIPE_TERM_POW: return (float)pow((double)a, (double)b);
  case PIPE_TERM_MIN: return a < b ? a : b;
  case PIPE_TERM_MAX: return a > b ? a : b;
  case PIPE_TERM_LT: return (float)(a < b);
  case PIPE_TERM_LE: return (float)(a <= b);
  case PIPE_TERM_GT: return (float)(a > b);
  case PIPE_TERM_GE: return (float)(a >= b);
  case PIPE_TERM_EQ: return (float)(a == b);
  case PIPE_TERM_NE: return (float)(a != b);
  case PIPE_TERM_AND: return (float)(a != 0 && b != 0);
  case PIPE_TERM_OR: return (float)(a != 0 || b != 0);
  default: return a != 0 ? b : c; /* COND */
  }
}

CUDA_ON uint32_t cuda_operands(uint32_t op) {
  return op == PIPE_TERM_COND ? 3 : op >= PIPE_TERM_ADD ? 2 : 1;
}

CUDA_ON float cuda_element(const CudaFormula *f, uint64_t i) {
  float stack[PIPE_FORMULA_DEPTH] = {0};
  uint32_t depth = 0;
  for (uint32_t k = 0; k < f->n; k++) {
    const CudaTerm t = f->term[k];
    if (t.op == PIPE_TERM_ELEM) {
      stack[depth++] = f->elem[t.arg][i];
    } else if (t.op == PIPE_TERM_CONST) {
      stack[depth++] = f->number[t.arg];
    } else {
      uint32_t n = cuda_operands(t.op);
      depth -= n - 1;
      stack[depth - 1] = cuda_term(t.op, stack[depth - 1], n > 1 ? stack[depth] : 0,
                                   n > 2 ? stack[depth + 1] : 0);
    }
  }
  return stack[0];
}

#endif
