/* SPDX-License-Identifier: MIT
 * The model of model.cu against that of model.c, op by op and tensor by tensor, on the same weights
 * and text: outputs, loss, gradients of inputs, gradients of weights by B and by I and W, weights
 * after the update. The difference of a tensor is the largest of its numbers, relative to the
 * largest number of the tensor.
 *
 *   gpt_check_cuda [--layers N ...]     one line per kind of tensor, for float and for bf16
 *
 * Exit status 0 iff all are within the limits that it prints, and a second run gives the same bits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sequential.h"
#include "stages_cuda.h"

#ifndef GPT_MAIN /* a test has something to do before */
#define GPT_MAIN main
#endif

enum { NMB = 2 };

typedef struct Check {
  GptModel *m;
  GptCuda *g;
  DeviceStages on;
  int bf16;
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

/* n numbers of the activations' type, or float, from the device. */
static const float *fetch(Check *c, const void *from, uint64_t n, int low) {
  if (cudaMemcpy(low ? c->low : c->host, from, n * (low ? 2 : 4), cudaMemcpyDeviceToHost) !=
      cudaSuccess)
    stages_die("the device fails");
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
  stages_call(&c->on, op, stage, mb);
  stages_wait(&c->on);
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
  for (uint32_t mb = 0; mb < NMB; mb++) { /* B, then I and W: gradients add up */
    for (uint32_t s = 0; s < S; s++) {
      call(c, PIPE_F, s, mb);
      if (seq_op(seq, PIPE_F, s, 0, mb, NMB, &loss))
        stages_die(seq->error);
      if (s + 1 < S)
        compare(c, 0, "y", fetch(c, c->on.stage[s + 1].x, n, c->bf16), seq->stage[s + 1].x, n);
    }
    if (cudaMemcpy(&got, c->on.loss, sizeof got, cudaMemcpyDeviceToHost) != cudaSuccess)
      stages_die("the device fails");
    float one = (float)got;
    real want = (real)loss;
    compare(c, 1, "loss", &one, &want, 1);
    for (uint32_t s = S; s-- > 0;) {
      call(c, mb ? PIPE_I : PIPE_B, s, mb);
      if (mb)
        call(c, PIPE_W, s, mb);
      if (seq_op(seq, mb ? PIPE_I : PIPE_B, s, 0, mb, NMB, &loss) ||
          (mb && seq_op(seq, PIPE_W, s, 0, mb, NMB, &loss)))
        stages_die(seq->error);
      if (s > 0)
        compare(c, 2, "dx", fetch(c, c->on.stage[s].dx, n, c->bf16), seq->stage[s].dx, n);
      compare_tensors(c, 3, s, c->on.stage[s].grad, 0, seq->stage[s].grad);
    }
  }
  for (uint32_t s = 0; s < S; s++) { /* from equal gradients: AdamW's first step is their signs */
    if (cudaMemcpy(c->on.stage[s].grad, seq->stage[s].grad, c->on.stage[s].size.grad,
                   cudaMemcpyHostToDevice) != cudaSuccess)
      stages_die("the device fails");
    call(c, PIPE_U, s, PIPE_NONE);
    if (seq_op(seq, PIPE_U, s, 0, PIPE_NONE, NMB, &loss))
      stages_die(seq->error);
    compare_tensors(c, 4, s, c->on.stage[s].weight, c->bf16, seq->stage[s].weight);
  }
}

static void take(Check *c) {
  uint64_t most = 0;
  stages_open(&c->on, c->m, gpt_cuda_model(c->g), NMB);
  for (uint32_t s = 0; s < c->m->nstage; s++) {
    PrSizes z = c->on.stage[s].size;
    most = z.opt > most ? z.opt : most;
    most = z.boundary > most ? z.boundary : most;
  }
  c->host = malloc(2 * most + 64), c->low = malloc(2 * most + 64);
  if (!c->host || !c->low)
    stages_die("no memory");
}

static void give(Check *c) {
  stages_close(&c->on);
  free(c->host);
  free(c->low);
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
        stages_die(error);
      take(&c);
      if (seq_open(&seq, &host, 0))
        stages_die(seq.error);
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
