/* SPDX-License-Identifier: MIT
 * The kernel of formulas on a device: random formulas over random arrays give the bits that the CPU
 * gives; exp, log and pow may be one unit in the last place off.
 *
 *   gpu_formulas [SEED]     exit status 0 iff all agree */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_formula.h"
#include "evaluate.h"

enum { N = 5000, ARRAYS = PIPE_ELEM_STATE + 1, ROUNDS = 400 };

static uint64_t seed;
static uint32_t draw(uint32_t n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(seed >> 33) % n;
}

/* A formula both ways. Of every operation an operand is an array, so that nothing is folded. */
typedef struct Both {
  PipeTerm term[64];
  CudaTerm device[64];
  float number[64];
  uint32_t n, numbers, library; /* library: uses exp, log or pow */
} Both;

static void put(Both *b, uint32_t op, uint32_t arg, double value) {
  b->term[b->n] = (PipeTerm){op, op == PIPE_TERM_ELEM ? arg : 0, value};
  b->device[b->n++] = (CudaTerm){op, arg};
}

static void array(Both *b) { put(b, PIPE_TERM_ELEM, draw(ARRAYS), 0); }

static void operand(Both *b) {
  if (draw(3)) {
    array(b);
    return;
  }
  float v = (float)draw(64) / 16 - 2;
  b->number[b->numbers] = v;
  put(b, PIPE_TERM_CONST, b->numbers++, (double)v);
}

static void random_formula(Both *b) {
  memset(b, 0, sizeof *b);
  array(b);
  for (uint32_t k = 1 + draw(12); k > 0; k--) {
    uint32_t op = PIPE_TERM_NEG + draw(PIPE_NTERMS - PIPE_TERM_NEG);
    for (uint32_t i = 1; i < pr_term_operands[op]; i++)
      operand(b);
    put(b, op, 0, 0);
    b->library |= op == PIPE_TERM_EXP || op == PIPE_TERM_LOG || op == PIPE_TERM_POW;
  }
}

static int same(float a, float b, int loose) {
  if (memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)))
    return 1;
  return loose && fabsf(a - b) <= 4e-6f * fmaxf(fabsf(a), fabsf(b));
}

#define MUST(call) \
  do { \
    cudaError_t e_ = (call); \
    if (e_ != cudaSuccess) { \
      printf("%s: %s\n", #call, cudaGetErrorString(e_)); \
      return 1; \
    } \
  } while (0)

int main(int argc, char **argv) {
  static float from[ARRAYS][N], want[N], got[N];
  float *elem[ARRAYS], *out, *number;
  CudaTerm *term;
  uint32_t loose = 0;
  seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  printf("seed %llu\n", (unsigned long long)seed);
  for (int a = 0; a < ARRAYS; a++) {
    for (int i = 0; i < N; i++)
      from[a][i] = (float)((int)draw(20001) - 10000) / 3000;
    MUST(cudaMalloc((void **)&elem[a], sizeof *from));
    MUST(cudaMemcpy(elem[a], from[a], sizeof *from, cudaMemcpyHostToDevice));
  }
  MUST(cudaMalloc((void **)&out, sizeof got));
  MUST(cudaMalloc((void **)&number, sizeof((Both *)0)->number));
  MUST(cudaMalloc((void **)&term, sizeof((Both *)0)->device));
  for (int round = 0; round < ROUNDS; round++) {
    const float *host[CUDA_ARRAYS] = {NULL};
    Both b;
    random_formula(&b);
    CudaFormula f = {.term = term, .number = number, .out = out, .len = N, .n = b.n};
    for (int a = 0; a < ARRAYS; a++)
      host[a] = from[a], f.elem[a] = elem[a];
    PipeFormula cpu = {b.term, b.n, 0, 0, 0};
    pr_formula_array(&cpu, &(PrFormulaIn){.elem = host}, want, N);
    MUST(cudaMemcpy(number, b.number, sizeof b.number, cudaMemcpyHostToDevice));
    MUST(cudaMemcpy(term, b.device, sizeof b.device, cudaMemcpyHostToDevice));
    MUST(cuda_formula_launch(&f, NULL));
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
    loose += b.library;
    for (int i = 0; i < N && !b.library; i++)
      if (!same(got[i], want[i], 0)) {
        printf("formula %d, element %d: %a on the device, %a on the CPU\n", round, i,
               (double)got[i], (double)want[i]);
        return 1;
      }
    uint32_t off = 0;
    for (int i = 0; i < N; i++)
      off += !same(got[i], want[i], 1);
    if (off > N / 100) { /* a comparison may turn over a last bit */
      printf("formula %d: %u of %d elements are far off\n", round, off, N);
      return 1;
    }
  }
  printf("%d formulas have the bits of the CPU, %u with exp, log or pow are near\n",
         ROUNDS - (int)loose, loose);
  return 0;
}
