/* SPDX-License-Identifier: MIT
 * See stages_cuda.h. */
#include "stages_cuda.h"

#include <stdio.h>
#include <stdlib.h>

void stages_die(const char *what) {
  fprintf(stderr, "gpt on a device: %s\n", what);
  exit(2);
}

void *stages_device(uint64_t bytes) {
  void *p = NULL;
  if (cudaMalloc(&p, bytes + 256) != cudaSuccess || cudaMemset(p, 0, bytes + 256) != cudaSuccess)
    stages_die("no memory on the device");
  return p;
}

void stages_call(DeviceStages *s, PipeOp op, uint32_t stage, uint32_t mb) {
  DeviceStage *t = &s->stage[stage], *next = stage + 1 < s->m->nstage ? t + 1 : NULL;
  PrCall a = {.op = op,
              .stage = stage,
              .nstage = s->m->nstage,
              .mb = mb,
              .nmb = s->nmb,
              .nslice = 1,
              .weight = t->weight,
              .newest = t->weight,
              .rate = 1,
              .nupdate = 1,
              .grad = t->grad,
              .opt = t->opt,
              .act = t->act,
              .gout = t->gout,
              .work = s->work,
              .stream = s->stream,
              .step_at = s->step_at};
  if (op == PIPE_F) {
    a.x = stage ? t->x : NULL, a.y = next ? next->x : NULL, a.loss = next ? NULL : s->loss;
  } else if (op == PIPE_B || op == PIPE_I) {
    a.dy = next ? next->dx : NULL, a.dx = stage ? t->dx : NULL;
  }
  if (s->model.forward(s->model.self, &a))
    stages_die("an op fails");
}

void stages_wait(DeviceStages *s) {
  (void)s;
  if (cudaDeviceSynchronize() != cudaSuccess)
    stages_die("the device fails");
}

void stages_open(DeviceStages *s, GptModel *m, PrModel model, uint32_t nmb) {
  uint64_t work = 0;
  *s = (DeviceStages){.m = m, .model = model, .nmb = nmb};
  s->stage = calloc(m->nstage, sizeof *s->stage);
  if (!s->stage)
    stages_die("no memory");
  for (uint32_t i = 0; i < m->nstage; i++) {
    DeviceStage *t = &s->stage[i];
    if (model.sizes(model.self, i, &t->size))
      stages_die("the model fails");
    t->weight = stages_device(t->size.weight), t->grad = stages_device(t->size.grad),
    t->opt = stages_device(t->size.opt);
    t->act = stages_device(t->size.act), t->gout = stages_device(t->size.gout);
    if (i > 0)
      t->x = stages_device(t[-1].size.boundary), t->dx = stages_device(t[-1].size.boundary);
    work = t->size.work > work ? t->size.work : work;
    if (model.init(model.self, i, t->weight, t->opt))
      stages_die("init fails");
  }
  s->work = stages_device(work), s->step_at = stages_device(8), s->loss = stages_device(8);
  if (cudaStreamCreateWithPriority(&s->stream, cudaStreamNonBlocking, 0) != cudaSuccess)
    stages_die("no stream");
  stages_wait(s);
}

void stages_close(DeviceStages *s) {
  for (uint32_t i = 0; i < s->m->nstage; i++) {
    DeviceStage *t = &s->stage[i];
    void *p[] = {t->weight, t->grad, t->opt, t->act, t->gout, t->x, t->dx};
    for (int j = 0; j < 7; j++)
      cudaFree(p[j]);
  }
  cudaFree(s->work);
  cudaFree(s->step_at);
  cudaFree(s->loss);
  cudaStreamDestroy(s->stream);
  free(s->stage);
}
