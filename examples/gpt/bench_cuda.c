/* SPDX-License-Identifier: MIT
 * What the CUDA engine costs, with a program of one rank: the time of a step by the engine, as it is and replayed
 * from a graph, against the same callbacks in the same order by hand, on one stream, the best of a few rounds that
 * take turns; what the device does nothing for between two instructions, by events around each, in either; and the
 * products of a layer alone, as cuBLAS makes them, against the arithmetic of a step.
 *
 *   gpt_bench_cuda [--bf16] [--rounds N] [options of the model]    on device 0
 *
 * A model so small that the host is what is waited for tells what an instruction costs there. The last line, behind
 * "= ", is for a table. Numbers only, for a person to judge. */
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model_cuda.h"
#include "pipe_cuda.h"

#ifndef GPT_MAIN /* a test has something to do before */
#define GPT_MAIN main
#endif

extern const PipeProgram pipe_program;

enum { WARM = 5, STEPS = 40, TRACED = 4 };
static const double aim = 2; /* per cent over the loop by hand */

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const char *what) {
  fprintf(stderr, "gpt_bench_cuda: %s\n", what);
  exit(1);
}

/* Seconds a step. gap: instead what lies between two instructions on the device, in the mean. */
static double engine(PrModel *model, int graph, int gap) {
  PrCudaOptions cuda = {.graph = graph};
  PrOptions o = {.engine = &pr_cuda, .engine_options = &cuda, .trace_steps = gap ? TRACED : 0};
  PrRun *run;
  if (pr_open(&run, &pipe_program, model, &o) || pr_steps(run, WARM))
    die(pr_error(run));
  double start = now_s();
  if (pr_steps(run, STEPS))
    die(pr_error(run));
  double took = (now_s() - start) / STEPS;
  uint32_t n = pipe_program.rank[0].ninstr;
  for (uint32_t s = 0; gap && s < pr_trace_steps(run); s++) {
    const PrSpan *at = pr_trace(run, s, 0);
    took = s == 0 ? 0 : took;
    for (uint32_t i = 1; i < n; i++)
      took += 1e-9 * ((double)at[i].start_ns - (double)at[i - 1].end_ns) / (n - 1) / TRACED;
  }
  pr_close(run);
  return took;
}

static void *device(uint64_t bytes) {
  void *p = NULL;
  if (cudaMalloc(&p, bytes + 256) != cudaSuccess || cudaMemset(p, 0, bytes + 256) != cudaSuccess)
    die("no memory on the device");
  return p;
}

/* Seconds between events 2i + 1 and 2i + 2, in the mean. */
static double gaps_of(cudaEvent_t *e, uint32_t n) {
  double sum = 0;
  float ms;
  for (uint32_t i = 0; i + 1 < n; i++) {
    if (cudaEventElapsedTime(&ms, e[2 * i + 1], e[2 * i + 2]) != cudaSuccess)
      die("an event fails");
    sum += 1e-3 * (double)ms / (n - 1);
  }
  return sum;
}

/* The instructions of the one rank by hand: as many stashes as it has, one stream, no events but, for gap, those
 * around each in the last step. As engine. */
static double by_hand(PrModel *model, double *host_ns, int gap) {
  const PipeProgram *p = &pipe_program;
  const PipeRank *r = &p->rank[0];
  PrSizes z = model->sizes(model->self, 0);
  void *weight = device(z.weight), *grad = device(z.grad), *opt = device(z.opt),
       *work = device(z.work);
  void *step_at = device(8);
  double *loss = device(8 * p->nmb);
  void **slot = calloc(r->nslot + 1u, sizeof *slot);
  cudaStream_t s;
  cudaEvent_t *e = calloc(2 * (size_t)r->ninstr, sizeof *e);
  for (uint32_t i = 0; i < 2 * r->ninstr; i++)
    if (!e || cudaEventCreateWithFlags(&e[i], cudaEventDefault) != cudaSuccess)
      die("no events");
  for (uint32_t i = 0; i < r->npool; i++)
    for (uint32_t j = 0; j < r->pool[i].count; j++)
      slot[r->pool[i].first + j] = device(r->pool[i].cls == PIPE_GOUT ? z.gout : z.act);
  if (cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, 0) != cudaSuccess ||
      model->init(model->self, 0, weight, opt) || cudaDeviceSynchronize() != cudaSuccess)
    die("the device fails");
  double start = 0, host = 0;
  for (int step = 0; step < WARM + STEPS; step++) {
    if (step == WARM) {
      cudaDeviceSynchronize();
      start = now_s(), host = 0;
    }
    double begun = now_s();
    int mark = gap && step + 1 == WARM + STEPS;
    for (uint32_t i = 0; i < r->ninstr; i++) {
      const PipeInstr *c = &r->instr[i];
      PrCall a = {.op = (PipeOp)c->op,
                  .nstage = 1,
                  .mb = c->mb,
                  .nmb = p->nmb,
                  .nslice = 1,
                  .weight = weight,
                  .newest = weight,
                  .rate = 1,
                  .nupdate = 1,
                  .grad = grad,
                  .opt = opt,
                  .work = work,
                  .stream = s,
                  .step_at = step_at,
                  .act = c->act == PIPE_NONE ? NULL : slot[c->act],
                  .gout = c->gout == PIPE_NONE ? NULL : slot[c->gout],
                  .loss = c->mb == PIPE_NONE ? NULL : loss + c->mb};
      if ((mark && cudaEventRecord(e[2 * i], s) != cudaSuccess) ||
          model->forward(model->self, &a) ||
          (mark && cudaEventRecord(e[2 * i + 1], s) != cudaSuccess))
        die("an op fails");
    }
    host += now_s() - begun;
  }
  cudaDeviceSynchronize();
  double took = gap ? gaps_of(e, r->ninstr) : (now_s() - start) / STEPS;
  *host_ns = host / STEPS / r->ninstr * 1e9;
  for (uint32_t i = 0; i < 2 * r->ninstr; i++)
    cudaEventDestroy(e[i]);
  free(e);
  void *given[] = {weight, grad, opt, work, step_at, loss};
  for (int i = 0; i < 6; i++)
    cudaFree(given[i]);
  for (uint32_t i = 0; i < r->nslot; i++)
    cudaFree(slot[i]);
  free(slot);
  cudaStreamDestroy(s);
  return took;
}

/* The products of a layer's forward, by cuBLAS alone: TFLOP/s. */
static double products(const GptConfig *g, int bf16) {
  int n = (int)(g->batch * g->seq), d = (int)g->d, out[] = {3 * d, d, 4 * d, d},
      in[] = {d, d, d, 4 * d};
  cudaDataType_t t = bf16 ? CUDA_R_16BF : CUDA_R_32F;
  void *x = device(16ull * n * d), *w = device(16ull * d * d), *y = device(16ull * n * d);
  cublasHandle_t h;
  cudaStream_t s;
  float one = 1, zero = 0;
  if (cublasCreate(&h) != CUBLAS_STATUS_SUCCESS ||
      cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, 0) != cudaSuccess)
    die("cuBLAS cannot be opened");
  cublasSetStream(h, s);
  enum { TIMES = 200 };
  double flop = 0, start = 0;
  for (int k = 0; k < TIMES + 20; k++) {
    if (k == 20) {
      cudaDeviceSynchronize();
      start = now_s(), flop = 0;
    }
    for (int i = 0; i < 4; i++) {
      if (cublasGemmStridedBatchedEx(h, CUBLAS_OP_T, CUBLAS_OP_N, out[i], n, in[i], &one, w, t,
                                     in[i], 0, x, t, in[i], 0, &zero, y, t, out[i], 0, 1,
                                     CUBLAS_COMPUTE_32F,
                                     CUBLAS_GEMM_DEFAULT) != CUBLAS_STATUS_SUCCESS)
        die("a product fails");
      flop += 2.0 * n * out[i] * in[i];
    }
  }
  cudaDeviceSynchronize();
  double rate = flop / (now_s() - start) * 1e-12;
  cublasDestroy(h);
  cudaStreamDestroy(s);
  cudaFree(x);
  cudaFree(w);
  cudaFree(y);
  return rate;
}

static double least(double a, double b) { return a < b ? a : b; }

int GPT_MAIN(int argc, char **argv) {
  GptConfig g = gpt_default;
  int bf16 = 0;
  uint64_t rounds = 3;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--bf16")) {
      bf16 = 1;
      continue;
    }
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    int ok = !strcmp(argv[i], "--rounds") ? gpt_number(value, 1, 100, &rounds) >= 0
                                          : gpt_config_option(&g, argv[i], value) == 1;
    if (!ok) {
      fprintf(stderr, "usage: gpt_bench_cuda [--bf16] [--rounds N] [options]\n%s", gpt_options);
      return 2;
    }
    i++;
  }
  const char *error = gpt_config_error(&g, pipe_program.nmodel);
  if (error || pipe_program.nrank != 1 || pipe_program.nmodel != 1)
    die(error ? error : "the program is not of one rank and stage");
  size_t len = (1 << 16) + 4 * (size_t)g.seq;
  uint8_t *noise = malloc(len);
  for (size_t i = 0; i < len; i++)
    noise[i] = (uint8_t)mix64(i);
  Text text = {noise, len, g.seq, g.seed, 1, g.batch};
  GptModel m = {.config = g, .nstage = 1, .window = text_draw, .text = &text};
  GptCuda *gpt = gpt_cuda_open(&m, bf16, 1, 0, &error);
  if (!gpt)
    die(error);
  PrModel model = gpt_cuda_model(gpt);
  uint32_t ninstr = pipe_program.rank[0].ninstr;
  double host = 1e30, hand = 1e30, plain = 1e30, graph = 1e30, one;
  for (uint64_t i = 0; i < rounds; i++) {
    hand = least(hand, by_hand(&model, &one, 0));
    host = least(host, one);
    plain = least(plain, engine(&model, 0, 0));
    graph = least(graph, engine(&model, 1, 0));
  }
  double gap = by_hand(&model, &one, 1), gap_engine = engine(&model, 0, 1),
         gap_graph = engine(&model, 1, 1);
  double n = (double)g.batch * g.seq * pipe_program.nmb, d = g.d;
  double flop = 3 * (n * g.layers * (24 * d * d + 4.0 * g.seq * d) +
                     2 * n * d * GPT_VOCAB); /* backward: twice */
  double peak = products(&g, bf16);
  printf("%s, %u layers, d %u, %u tokens a microbatch, %u microbatches, %u instructions\n",
         bf16 ? "bf16" : "float", g.layers, g.d, g.batch * g.seq, pipe_program.nmb, ninstr);
  printf("by hand    %9.3f ms a step, %.0f ns of the host per instruction\n", 1e3 * hand, host);
  double over = 100 * (plain / hand - 1), each = 1e9 * (plain - hand) / ninstr;
  printf("engine     %9.3f ms a step, %+.2f %%, %+.0f ns per instruction\n", 1e3 * plain, over,
         each);
  printf("graph      %9.3f ms a step, %+.2f %%\n", 1e3 * graph, 100 * (graph / hand - 1));
  printf("gaps       %9.2f us between instructions by hand, %.2f us in the engine, %.2f us in a "
         "graph, with events around each\n",
         1e6 * gap, 1e6 * gap_engine, 1e6 * gap_graph);
  printf("products   %9.2f TFLOP/s by cuBLAS alone, of a layer's forward\n", peak);
  printf("step       %9.2f TFLOP/s by hand, %.0f %% of that\n", flop / hand * 1e-12,
         100 * flop / hand * 1e-12 / peak);
  printf(
      "= %s d %u: engine %+.2f %% (aim %.0f %%: %s), %+.0f ns an instruction (host by hand %.0f), "
      "graph %+.2f %%, gaps %.2f, %.2f, %.2f us; step %.0f %% of %.0f TFLOP/s by cuBLAS\n",
      bf16 ? "bf16" : "float", g.d, over, aim, over <= aim ? "met" : "MISSED", each, host,
      100 * (graph / hand - 1), 1e6 * gap, 1e6 * gap_engine, 1e6 * gap_graph,
      100 * flop / hand * 1e-12 / peak, peak);
  gpt_cuda_close(gpt);
  free(noise);
  return 0;
}
