/* SPDX-License-Identifier: MIT
 * The model of model.cu against that of model.c, op by op and tensor by tensor, on the same weights and text:
 * outputs, loss, gradients of inputs, gradients of weights by B and by I and W, weights after the update. The
 * difference of a tensor is the largest of its numbers, relative to the largest number of the tensor.
 *
 *   gpt_check_cuda [--layers N ...]     one line per kind of tensor, for float and for bf16
 *
 * Exit status 0 iff all are within the limits that it prints, and a second run gives the same bits. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_cuda.h"
#include "sequential.h"

#ifndef GPT_MAIN /* a test has something to do before */
#define GPT_MAIN main
#endif

enum { NMB = 2 };

typedef struct Stage { /* device memory */
  PrSizes size;
  void *weight, *grad, *opt, *act, *gout, *x, *dx;
} Stage;

typedef struct Check {
  GptModel *m;
  GptCuda *g;
  PrModel model;
  int bf16;
  Stage *stage;
  void *work, *step_at;
  double *loss;
  cudaStream_t stream;
  float *host; /* room for the largest tensor */
  void *low;
  double worst[5]; /* output, loss, gradient of the input, of a weight, weight */
  char worst_name[5][32];
  uint64_t hash;
} Check;

static const char *const kind[] = {"output", "loss", "gradient of the input",
                                   "gradient of a weight", "weight after the update"};
/* Of float: sums are in another order; of bf16: 8 bits a number. */
static const double limit[2][5] = {{2e-5, 1e-5, 1e-4, 1e-4, 2e-5}, {4e-2, 1e-2, 8e-2, 8e-2, 1e-2}};

static int die(const char *what) {
  fprintf(stderr, "gpt_check_cuda: %s\n", what);
  exit(2);
}

static void *device(uint64_t bytes) {
  void *p = NULL;
  if (cudaMalloc(&p, bytes + 256) != cudaSuccess || cudaMemset(p, 0, bytes + 256) != cudaSuccess)
    die("no memory on the device");
  return p;
}

/* n numbers of the activations' type, or float, from the device. */
static const float *fetch(Check *c, const void *from, uint64_t n, int low) {
  if (cudaMemcpy(low ? c->low : c->host, from, n * (low ? 2 : 4), cudaMemcpyDeviceToHost) !=
      cudaSuccess)
    die("the device fails");
  for (uint64_t i = 0; low && i < n; i++) {
    uint32_t bits = (uint32_t)((uint16_t *)c->low)[i] << 16;
    memcpy(&c->host[i], &bits, 4);
  }
  for (uint64_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, &c->host[i], 4);
    c->hash = (c->hash ^ bits) * 0x100000001b3u;
  }
  return c->host;
}

static void compare(Check *c, int k, const char *name, const float *got, const real *want,
                    uint64_t n) {
  double most = 1e-30, off = 0;
  for (uint64_t i = 0; i < n; i++) {
    double d = (double)got[i] - (double)want[i],
           a = want[i] < 0 ? -(double)want[i] : (double)want[i];
    d = d < 0 ? -d : d == d ? d : 1e30;
    most = a > most ? a : most;
    off = d > off ? d : off;
  }
  if (off / most >= c->worst[k]) {
    c->worst[k] = off / most;
    snprintf(c->worst_name[k], sizeof *c->worst_name, "%s", name);
  }
}

static void call(Check *c, PipeOp op, uint32_t stage, uint32_t mb) {
  Stage *s = &c->stage[stage], *next = stage + 1 < c->m->nstage ? s + 1 : NULL;
  PrCall a = {.op = op,
              .stage = stage,
              .nstage = c->m->nstage,
              .mb = mb,
              .nmb = NMB,
              .nslice = 1,
              .weight = s->weight,
              .newest = s->weight,
              .rate = 1,
              .nupdate = 1,
              .grad = s->grad,
              .opt = s->opt,
              .act = s->act,
              .gout = s->gout,
              .work = c->work,
              .stream = c->stream,
              .step_at = c->step_at};
  if (op == PIPE_F) {
    a.x = stage ? s->x : NULL, a.y = next ? next->x : NULL, a.loss = next ? NULL : c->loss;
  } else if (op == PIPE_B || op == PIPE_I) {
    a.dy = next ? next->dx : NULL, a.dx = stage ? s->dx : NULL;
  }
  if (c->model.forward(c->model.self, &a) || cudaDeviceSynchronize() != cudaSuccess)
    die("an op fails");
}

/* The gradients or weights of a stage, tensor by tensor. */
static void compare_tensors(Check *c, int k, uint32_t stage, const void *from, int low,
                            const real *want) {
  uint64_t n, at = 0;
  int matrix;
  const char *name;
  for (uint32_t i = 0; (name = gpt_tensor(c->m, stage, i, &n, &matrix)); i++, at += n)
    compare(c, k, name, fetch(c, (const char *)from + at * (low ? 2 : 4), n, low), want + at, n);
}

static void run(Check *c, Seq *seq) {
  uint32_t S = c->m->nstage;
  uint64_t n = (uint64_t)c->m->config.batch * c->m->config.seq * c->m->config.d;
  double loss = 0, got = 0;
  c->hash = 0xcbf29ce484222325u;
  for (uint32_t s = 0; s < S; s++)
    if (c->model.init(c->model.self, s, c->stage[s].weight, c->stage[s].opt))
      die("init fails");
  for (uint32_t mb = 0; mb < NMB; mb++) { /* B, then I and W: gradients add up */
    for (uint32_t s = 0; s < S; s++) {
      call(c, PIPE_F, s, mb);
      if (seq_op(seq, PIPE_F, s, 0, mb, NMB, &loss))
        die(seq->error);
      if (s + 1 < S)
        compare(c, 0, "y", fetch(c, c->stage[s + 1].x, n, c->bf16), seq->stage[s + 1].x, n);
    }
    if (cudaMemcpy(&got, c->loss, sizeof got, cudaMemcpyDeviceToHost) != cudaSuccess)
      die("the device fails");
    float one = (float)got;
    real want = (real)loss;
    compare(c, 1, "loss", &one, &want, 1);
    for (uint32_t s = S; s-- > 0;) {
      call(c, mb ? PIPE_I : PIPE_B, s, mb);
      if (mb)
        call(c, PIPE_W, s, mb);
      if (seq_op(seq, mb ? PIPE_I : PIPE_B, s, 0, mb, NMB, &loss) ||
          (mb && seq_op(seq, PIPE_W, s, 0, mb, NMB, &loss)))
        die(seq->error);
      if (s > 0)
        compare(c, 2, "dx", fetch(c, c->stage[s].dx, n, c->bf16), seq->stage[s].dx, n);
      compare_tensors(c, 3, s, c->stage[s].grad, 0, seq->stage[s].grad);
    }
  }
  for (uint32_t s = 0; s < S; s++) { /* from equal gradients: AdamW's first step is their signs */
    if (cudaMemcpy(c->stage[s].grad, seq->stage[s].grad, c->stage[s].size.grad,
                   cudaMemcpyHostToDevice) != cudaSuccess)
      die("the device fails");
    call(c, PIPE_U, s, PIPE_NONE);
    if (seq_op(seq, PIPE_U, s, 0, PIPE_NONE, NMB, &loss))
      die(seq->error);
    compare_tensors(c, 4, s, c->stage[s].weight, c->bf16, seq->stage[s].weight);
  }
}

static void take(Check *c) {
  uint64_t work = 0, most = 0;
  c->stage = calloc(c->m->nstage, sizeof *c->stage);
  for (uint32_t s = 0; s < c->m->nstage; s++) {
    Stage *t = &c->stage[s];
    t->size = c->model.sizes(c->model.self, s);
    t->weight = device(t->size.weight), t->grad = device(t->size.grad),
    t->opt = device(t->size.opt);
    t->act = device(t->size.act), t->gout = device(t->size.gout);
    if (s > 0)
      t->x = device(t[-1].size.boundary), t->dx = device(t[-1].size.boundary);
    work = t->size.work > work ? t->size.work : work;
    most = t->size.opt > most ? t->size.opt : most;
    most = t->size.boundary > most ? t->size.boundary : most;
  }
  c->work = device(work), c->step_at = device(8), c->loss = device(8);
  c->host = malloc(2 * most + 64), c->low = malloc(2 * most + 64);
  if (!c->host || !c->low ||
      cudaStreamCreateWithPriority(&c->stream, cudaStreamNonBlocking, 0) != cudaSuccess)
    die("no memory");
}

static void give(Check *c) {
  for (uint32_t s = 0; s < c->m->nstage; s++) {
    Stage *t = &c->stage[s];
    void *p[] = {t->weight, t->grad, t->opt, t->act, t->gout, t->x, t->dx};
    for (int i = 0; i < 7; i++)
      cudaFree(p[i]);
  }
  cudaFree(c->work);
  cudaFree(c->step_at);
  cudaFree(c->loss);
  cudaStreamDestroy(c->stream);
  free(c->host);
  free(c->low);
  free(c->stage);
}

static int check(GptModel *m) {
  int bad = 0;
  for (int bf16 = 0; bf16 < 2; bf16++) {
    const char *error;
    uint64_t hash[2];
    Check c = {.m = m, .bf16 = bf16};
    for (int again = 0; again < 2; again++) {
      PrModel host = gpt_model(m);
      Seq seq = {0};
      memset(c.worst, 0, sizeof c.worst);
      if (!(c.g = gpt_cuda_open(m, bf16, 1, 0, &error)))
        die(error);
      c.model = gpt_cuda_model(c.g);
      take(&c);
      if (seq_open(&seq, &host, 0))
        die(seq.error);
      run(&c, &seq);
      seq_close(&seq);
      give(&c);
      gpt_cuda_close(c.g);
      hash[again] = c.hash;
    }
    for (int k = 0; k < 5; k++) {
      int over = !(c.worst[k] <= limit[bf16][k]);
      bad |= over;
      printf("%u stages, %s: %s: %.1e of %.0e (%s)%s\n", m->nstage, bf16 ? "bf16" : "float",
             kind[k], c.worst[k], limit[bf16][k], c.worst_name[k], over ? ": TOO FAR" : "");
    }
    bad |= hash[0] != hash[1];
    printf("%u stages, %s: %s\n", m->nstage, bf16 ? "bf16" : "float",
           hash[0] == hash[1] ? "a second run gives the same bits" : "A SECOND RUN DIFFERS");
  }
  return bad;
}

static int usage(const char *why, const char *what) {
  fprintf(stderr, "gpt_check_cuda: %s%s\nusage: gpt_check_cuda --data FILE [options]\n%s", why,
          what, gpt_options);
  return 2;
}

int GPT_MAIN(int argc, char **argv) {
  GptConfig g = gpt_default;
  const char *path = NULL, *error;
  for (int i = 1; i < argc; i += 2) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    int done = gpt_config_option(&g, argv[i], value);
    if (done < 0)
      return usage(gpt_number_error(done), argv[i]);
    if (!strcmp(argv[i], "--data"))
      path = value;
    else if (!done)
      return usage("unknown option ", argv[i]);
  }
  Data data;
  if (!path)
    return usage("--data FILE is needed", "");
  if ((error = data_open(&data, path, g.seq, g.batch, g.seed, 8)))
    return usage(path, error);
  int bad = 0;
  for (uint32_t S = 1; S <= 3; S += 2) {
    GptModel m = {.config = g, .nstage = S, .window = text_draw, .text = &data.train};
    if ((error = gpt_config_error(&g, S)))
      return usage(error, "");
    bad |= check(&m);
  }
  data_close(&data);
  return bad;
}
