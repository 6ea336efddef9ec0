/* SPDX-License-Identifier: MIT
 * Trains a small model for some steps and prints the bits of its weights and losses: with the
 * program that is linked, or with -DLOOPED=M with the looped one for M. */
#include <inttypes.h>
#include <math.h>
#include <pipe_loop.h>
#include <pipe_run.h>
#include <stdio.h>
#include <string.h>

typedef struct Weight {
  float a, b;
} Weight;

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  (void)self;
  *out = (PrSizes){sizeof(float[2]),
                   0,
                   stage + 1 < 8 ? sizeof(float) : 0,
                   sizeof(Weight),
                   sizeof(Weight),
                   0,
                   0,
                   0,
                   0};
  return 0;
}
static int init(void *self, uint32_t stage, void *weight, void *opt) {
  Weight w = {0.9f + 0.01f * (float)stage, 0.1f};
  (void)self, (void)opt;
  memcpy(weight, &w, sizeof w);
  return 0;
}
static int forward(void *self, const PrCall *c) {
  const Weight *w = c->weight;
  float *act = c->act, x = c->x ? *(const float *)c->x : sinf((float)(c->mb + 100 * c->step));
  (void)self;
  act[0] = x, act[1] = tanhf(w->a * x + w->b);
  if (c->y)
    *(float *)c->y = act[1];
  else
    *c->loss = (double)act[1] * act[1];
  return 0;
}
static int backward(void *self, const PrCall *c) {
  const Weight *w = c->weight;
  Weight *g = c->grad;
  const float *act = c->act;
  float dz = (c->dy ? *(const float *)c->dy : 2 * act[1]) * (1 - act[1] * act[1]);
  (void)self;
  g->a += dz * act[0], g->b += dz;
  if (c->dx)
    *(float *)c->dx = dz * w->a;
  return 0;
}
static int update(void *self, const PrCall *c) {
  Weight *w = c->weight, *g = c->grad;
  (void)self;
  w->a -= 0.01f * g->a, w->b -= 0.01f * g->b;
  memset(g, 0, sizeof *g);
  return 0;
}

#ifdef LOOPED
extern const PipeLooped looped;
#else
extern const PipeProgram pipe_program;
#endif

int main(void) {
  const PrModel model = {.nstage = 8,
                         .sizes = sizes,
                         .init = init,
                         .forward = forward,
                         .backward = backward,
                         .update = update};
  PrRun *run;
#ifdef LOOPED
  char why[PIPE_LOOP_TEXT];
  PipeProgram *p = pipe_unroll(&looped, LOOPED, why);
#else
  const PipeProgram *p = &pipe_program;
#endif
  if (!p || pr_open(&run, p, &model, NULL) || pr_steps(run, 5))
    return 1;
  for (uint32_t s = 0; s < 8; s++) {
    const Weight *w = pr_weight(run, s);
    printf("stage %" PRIu32 " %a %a\n", s, (double)w->a, (double)w->b);
  }
  printf("loss %a\n", pr_loss(run));
  pr_close(run);
#ifdef LOOPED
  pipe_unroll_free(p);
#endif
  return 0;
}
