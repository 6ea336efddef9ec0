/* SPDX-License-Identifier: MIT
 * What the CUDA engine costs under 1F1B: the time of a step by the engine, as it is and replayed
 * from a graph, against a loop by hand (hand_cuda.h), the best of a few rounds that take turns; the
 * gaps between instructions, by events around each, in either; and the products of a layer alone,
 * as cuBLAS makes them, against the arithmetic of a step.
 *
 *   gpt_bench_cuda_P [--bf16] [--rounds N] [--times N] [options of the model]    on device 0
 *
 * A model so small that the host is what is waited for tells what an instruction costs there. The
 * last line, behind "= ", is for a table. Numbers only, for a person to judge. */
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hand_cuda.h"
#include "model_cuda.h"
#include "pipe_cuda.h"
#include "stages_cuda.h"

#ifndef GPT_MAIN /* a test has something to do before */
#define GPT_MAIN main
#endif

extern const PipeProgram pipe_program;

enum { WARM = 5, TRACED = 4 };
static uint64_t times = 40;                  /* steps that are measured */
static const double aim = 2, graph_aim = .5; /* per cent over the loop by hand */

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double count(void) { /* instructions of a step */
  double n = 0;
  for (uint32_t r = 0; r < pipe_program.nrank; r++)
    n += pipe_program.rank[r].ninstr;
  return n;
}

static void die(const char *what) {
  fprintf(stderr, "gpt_bench_cuda_%u: %s\n", pipe_program.nrank, what);
  exit(1);
}

/* Between two instructions of one stream, in the steps that were traced. */
static HandGaps gaps_of(PrRun *run) {
  const PipeProgram *p = pr_program(run);
  double sum[2] = {0, 0};
  uint64_t n[2] = {0, 0};
  for (uint32_t s = 0; s < pr_trace_steps(run); s++)
    for (uint32_t r = 0; r < p->nrank; r++) {
      const PrSpan *at = pr_trace(run, s, r), *last[2] = {NULL, NULL};
      for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
        const int comm = pipe_op_info[p->rank[r].instr[i].op].comm;
        if (last[comm])
          sum[comm] += 1e-3 * ((double)at[i].start_ns - (double)last[comm]->end_ns), n[comm]++;
        last[comm] = &at[i];
      }
    }
  return (HandGaps){n[0] ? sum[0] / (double)n[0] : 0, n[1] ? sum[1] / (double)n[1] : 0};
}

/* Seconds a step. gaps: what lies between instructions instead, of a traced run; NULL: not. */
static double engine(PrModel *model, int graph, HandGaps *gaps) {
  PrCudaOptions cuda = {.graph = graph};
  PrOptions o = {.engine = &pr_cuda, .engine_options = &cuda, .trace_steps = gaps ? TRACED : 0};
  PrRun *run;
  if (pr_open(&run, &pipe_program, model, &o) || pr_steps(run, WARM))
    die(pr_error(run));
  double start = now_s();
  if (pr_steps(run, times))
    die(pr_error(run));
  double took = (now_s() - start) / (double)times;
  if (gaps)
    *gaps = gaps_of(run);
  pr_close(run);
  return took;
}

/* The same by hand; host_ns: of the host, an instruction. */
static double by_hand(PrModel *model, double *host_ns, HandGaps *gaps) {
  Hand *h = hand_open(model, pipe_program.nmb);
  double start = 0, host = 0;
  for (uint64_t step = 0; step < WARM + times; step++) {
    if (step == WARM) {
      cudaDeviceSynchronize();
      start = now_s(), host = 0;
    }
    double begun = now_s();
    hand_step(h, gaps && step + 1 == WARM + times);
    host += now_s() - begun;
  }
  if (cudaDeviceSynchronize() != cudaSuccess)
    die("the device fails");
  double took = (now_s() - start) / (double)times;
  *host_ns = host / (double)times / count() * 1e9;
  if (gaps)
    *gaps = hand_gaps(h);
  hand_close(h);
  return took;
}

/* That both do the same work: two steps by hand have the losses of the engine. */
static int does_the_same(PrModel *model) {
  PrOptions o = {.engine = &pr_cuda};
  PrRun *run;
  const uint32_t n = pipe_program.nmb;
  double *want = calloc(3 * (size_t)n, sizeof *want), *got = want + 2 * (size_t)n;
  if (!want)
    die("no memory");
  if (pr_open(&run, &pipe_program, model, &o))
    die(pr_error(run));
  for (uint64_t step = 0; step < 2; step++) {
    if (pr_steps(run, 1))
      die(pr_error(run));
    for (uint32_t m = 0; m < n; m++)
      want[step * n + m] = pr_loss_mb(run, m);
  }
  pr_close(run);
  Hand *h = hand_open(model, pipe_program.nmb);
  int same = 1;
  for (uint64_t step = 0; step < 2; step++) {
    hand_number(h, step);
    hand_step(h, 0);
    hand_losses(h, got);
    same = same && memcmp(got, want + step * n, n * sizeof *got) == 0;
  }
  hand_close(h);
  free(want);
  return same;
}

/* ---- what single calls cost the host ---- */

enum { AT_ONCE = 20 }; /* before the device has caught up, which is not counted */

typedef struct Calls {
  cudaStream_t a, b;
  cudaEvent_t e;
  char *memory;
  uint64_t bytes;
  ncclComm_t comm;
} Calls;

/* Until a call on the communicator that gave r is through, as the engine does. */
static void through(const Calls *c, ncclResult_t r) {
  while (r == ncclInProgress)
    if (ncclCommGetAsyncError(c->comm, &r) != ncclSuccess)
      die("NCCL fails");
  if (r != ncclSuccess)
    die(ncclGetErrorString(r));
}

static void meet_once(const Calls *c) { /* what both sides of a transfer within a process take */
  if (cudaEventRecord(c->e, c->a) != cudaSuccess ||
      cudaStreamWaitEvent(c->b, c->e, 0) != cudaSuccess)
    die("an event fails");
}
static void copy_once(const Calls *c) {
  if (cudaMemcpyAsync(c->memory + c->bytes, c->memory, c->bytes, cudaMemcpyDeviceToDevice, c->a) !=
      cudaSuccess)
    die("a copy fails");
}
/* A SEND and a RECV in one group, of a communicator of this rank alone: no other process, no
 * network. */
static void transfer_once(const Calls *c) {
  if (ncclGroupStart() != ncclSuccess)
    die("NCCL fails");
  ncclResult_t s = ncclSend(c->memory, c->bytes, ncclChar, 0, c->comm, c->a),
               r = ncclRecv(c->memory + c->bytes, c->bytes, ncclChar, 0, c->comm, c->a);
  if ((s != ncclSuccess && s != ncclInProgress) || (r != ncclSuccess && r != ncclInProgress))
    die("NCCL fails");
  through(c, ncclGroupEnd());
}

/* ns of the host a call. */
static double cost_of(const Calls *c, void (*call)(const Calls *)) {
  double sum = 0;
  const uint64_t n = 10 * times;
  for (uint64_t i = 0; i < n + AT_ONCE; i++) {
    if (i % AT_ONCE == 0 && cudaDeviceSynchronize() != cudaSuccess)
      die("the device fails");
    sum = i == AT_ONCE ? 0 : sum;
    double begun = now_s();
    call(c);
    sum += now_s() - begun;
  }
  return sum / (double)n * 1e9;
}

static double cost_of_nccl(Calls *c, int blocking) {
  ncclUniqueId id;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking;
  c->comm = NULL;
  if (ncclGetUniqueId(&id) != ncclSuccess)
    die("NCCL fails");
  through(c, ncclCommInitRankConfig(&c->comm, 1, id, 0, &config));
  const double ns = cost_of(c, transfer_once);
  if (cudaDeviceSynchronize() != cudaSuccess)
    die("the device fails");
  through(c, ncclCommFinalize(c->comm));
  ncclCommDestroy(c->comm);
  return ns;
}

static void calls(const GptConfig *g, int bf16, char *line, size_t room) {
  const double size = bf16 ? 2 : 4;
  Calls c = {.bytes = (uint64_t)(size * g->batch * g->seq * g->d)};
  c.memory = stages_device(2 * c.bytes);
  if (cudaStreamCreateWithPriority(&c.a, cudaStreamNonBlocking, 0) != cudaSuccess ||
      cudaStreamCreateWithPriority(&c.b, cudaStreamNonBlocking, 0) != cudaSuccess ||
      cudaEventCreateWithFlags(&c.e, cudaEventDisableTiming) != cudaSuccess)
    die("no streams");
  const double meets = cost_of(&c, meet_once), copies = cost_of(&c, copy_once),
               nccl = cost_of_nccl(&c, 0), blocks = cost_of_nccl(&c, 1);
  printf("calls      %9.0f ns of the host for a send and a receive of NCCL (%.0f of a communicator "
         "that blocks), %.0f for a copy, %.0f for an event and a wait, of %llu bytes\n",
         nccl, blocks, copies, meets, (unsigned long long)c.bytes);
  snprintf(line, room, "; host a call: NCCL %.0f ns (blocking %.0f), copy %.0f, event %.0f", nccl,
           blocks, copies, meets);
  cudaEventDestroy(c.e);
  cudaStreamDestroy(c.a);
  cudaStreamDestroy(c.b);
  cudaFree(c.memory);
}

/* Numbers from -1 to 1 in device memory: a device is faster with zeros than with any others. */
static void *random_numbers(uint64_t bytes, int bf16) {
  static uint8_t some[1 << 20];
  char *p = stages_device(bytes);
  for (uint64_t i = 0; i < sizeof some / 4; i++) {
    float a = (float)(int64_t)mix64(2 * i) * 0x1p-63f,
          b = (float)(int64_t)mix64(2 * i + 1) * 0x1p-63f;
    uint32_t both[2];
    memcpy(&both[0], &a, 4);
    memcpy(&both[1], &b, 4);
    both[0] = bf16 ? both[0] >> 16 | (both[1] & 0xffff0000u) : both[0]; /* the upper half of each */
    memcpy(some + 4 * i, &both[0], 4);
  }
  for (uint64_t at = 0; at < bytes; at += sizeof some)
    if (cudaMemcpy(p + at, some, bytes - at < sizeof some ? bytes - at : sizeof some,
                   cudaMemcpyHostToDevice) != cudaSuccess)
      die("no copy to the device");
  return p;
}

/* The products of a layer's forward, by cuBLAS alone: TFLOP/s. */
static double products(const GptConfig *g, int bf16) {
  int n = (int)(g->batch * g->seq), d = (int)g->d, out[] = {3 * d, d, 4 * d, d},
      in[] = {d, d, d, 4 * d};
  cudaDataType_t t = bf16 ? CUDA_R_16BF : CUDA_R_32F;
  void *x = random_numbers(16ull * n * d, bf16), *w = random_numbers(16ull * d * d, bf16),
       *y = stages_device(16ull * n * d);
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
    int ok = !strcmp(argv[i], "--rounds")  ? gpt_number(value, 1, 100, &rounds) >= 0
             : !strcmp(argv[i], "--times") ? gpt_number(value, 4, 100000, &times) >= 0
                                           : gpt_config_option(&g, argv[i], value) == 1;
    if (!ok) {
      fprintf(stderr, "usage: gpt_bench_cuda_%u [--bf16] [--rounds N] [--times N] [options]\n%s",
              pipe_program.nrank, gpt_options);
      return 2;
    }
    i++;
  }
  const char *error = gpt_config_error(&g, pipe_program.nmodel);
  if (error)
    die(error);
  size_t len = (1 << 16) + 4 * (size_t)g.seq;
  uint8_t *noise = malloc(len);
  for (size_t i = 0; i < len; i++)
    noise[i] = (uint8_t)mix64(i);
  Text text = {noise, len, g.seq, g.seed, 1, g.batch};
  GptModel m = {.config = g, .nstage = pipe_program.nmodel, .window = text_draw, .text = &text};
  GptCuda *gpt = gpt_cuda_open(&m, bf16, pipe_program.nrank, 0, &error);
  if (!gpt)
    die(error);
  PrModel model = gpt_cuda_model(gpt);
  const int same = does_the_same(&model);
  double host = 1e30, hand = 1e30, plain = 1e30, graph = 1e30, one;
  for (uint64_t i = 0; i < rounds; i++) {
    hand = least(hand, by_hand(&model, &one, NULL));
    host = least(host, one);
    plain = least(plain, engine(&model, 0, NULL));
    graph = least(graph, engine(&model, 1, NULL));
  }
  HandGaps gap, gap_engine, gap_graph;
  by_hand(&model, &one, &gap);
  engine(&model, 0, &gap_engine);
  engine(&model, 1, &gap_graph);
  double n = (double)g.batch * g.seq * pipe_program.nmb, d = g.d;
  double flop = 3 * (n * g.layers * (24 * d * d + 4.0 * g.seq * d) +
                     2 * n * d * GPT_VOCAB); /* backward: twice */
  double peak = products(&g, bf16);
  printf("%s, %u layers, d %u, %u tokens a microbatch, %u microbatches, %u ranks, %.0f "
         "instructions\n",
         bf16 ? "bf16" : "float", g.layers, g.d, g.batch * g.seq, pipe_program.nmb,
         pipe_program.nrank, count());
  printf("by hand    %9.3f ms a step, %.0f ns of the host per instruction\n", 1e3 * hand, host);
  const double over = 100 * (plain / hand - 1), over_graph = 100 * (graph / hand - 1),
               each = 1e9 * (plain - hand) / count();
  printf("engine     %9.3f ms a step, %+.2f %%, %+.0f ns per instruction\n", 1e3 * plain, over,
         each);
  printf("graph      %9.3f ms a step, %+.2f %%\n", 1e3 * graph, over_graph);
  printf("gaps       %9.2f us between ops by hand, %.2f us in the engine, %.2f us in a graph, with "
         "events around each\n",
         gap.compute, gap_engine.compute, gap_graph.compute);
  char line[160] = "";
  if (pipe_program.nrank > 1) {
    printf("transfers  %9.2f us between two by hand, %.2f us in the engine, %.2f us in a graph; "
           "they wait for one another and for ops\n",
           gap.comm, gap_engine.comm, gap_graph.comm);
    calls(&g, bf16, line, sizeof line);
  }
  printf("products   %9.2f TFLOP/s by cuBLAS alone, of a layer's forward\n", peak);
  printf("step       %9.2f TFLOP/s by hand, %.0f %% of that\n", flop / hand * 1e-12,
         100 * flop / hand * 1e-12 / peak);
  printf("= %s d %u, %u ranks: engine %+.2f %% (aim %g %%: %s), %+.0f ns an instruction (host by "
         "hand %.0f), graph %+.2f %% (aim %g %%: %s), gaps %.2f, %.2f, %.2f us%s; step %.0f %% of "
         "%.0f TFLOP/s by cuBLAS\n",
         bf16 ? "bf16" : "float", g.d, pipe_program.nrank, over, aim,
         over <= aim ? "met" : "MISSED", each, host, over_graph, graph_aim,
         over_graph <= graph_aim ? "met" : "MISSED", gap.compute, gap_engine.compute,
         gap_graph.compute, line, 100 * flop / hand * 1e-12 / peak, peak);
  gpt_cuda_close(gpt);
  free(noise);
  if (!same)
    fprintf(stderr, "gpt_bench_cuda_%u: by hand there are other losses than by the engine\n",
            pipe_program.nrank);
  return !same;
}
