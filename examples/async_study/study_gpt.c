/* SPDX-License-Identifier: MIT
 * The GPT in the study: 32 layers of width 32 on rows of 32 bytes of text, AdamW. */
#include "data.h"
#include "model.h"
#include "sequential.h"
#include "study.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HELD = 128 };

typedef struct Self {
  Data data;
  GptModel model, walk;
} Self;

/* Text for sample number `at` of the run. */
static const uint8_t *window(const void *text, uint64_t step, uint32_t mb, uint32_t row) {
  const Study *s = text;
  const Text *t = &((const Self *)s->self)->data.train;
  uint64_t at = (step * s->nmb + mb) * s->c.rows + row;
  return t->byte + mix64(mix64(s->c.seed) ^ at) % (t->len - t->seq);
}

static int held(Study *s, const void *const *weights, double *loss, double *right) {
  Self *self = s->self;
  PrModel model = gpt_model(&self->walk);
  Seq q;
  double sum = 0, one = 0;
  int bad = seq_open(&q, &model, 0);
  for (uint32_t i = 0; !bad && i < model.nstage; i++)
    memcpy(q.stage[i].weight, weights[i], q.stage[i].size.weight);
  uint32_t nmb = HELD / self->walk.config.batch;
  for (uint32_t mb = 0; !bad && mb < nmb; mb++) {
    for (uint32_t i = 0; !bad && i < model.nstage; i++)
      bad = seq_op(&q, PIPE_F, i, 0, mb, nmb, &one);
    sum += one;
  }
  seq_close(&q);
  *loss = sum / nmb;
  *right = NAN;
  return bad;
}

static void close_study(Study *s) {
  Self *self = s->self;
  data_close(&self->data);
  free(self);
}

const char *study_gpt(Study *s, const StudyConfig *c, const char *data, uint32_t nstage) {
  Self *self = calloc(1, sizeof *self);
  *s = (Study){.c = *c, .self = self, .held = held, .close = close_study};
  if (!self)
    return "out of memory";
  GptConfig g = gpt_default;
  g.layers = 32, g.d = 32, g.heads = 2, g.seq = 32;
  g.batch = c->rows, g.round = c->round, g.seed = c->seed;
  g.lr = c->lr, g.steps = c->updates, g.warmup = c->updates / 20 + 1;
  const char *error = gpt_config_error(&g, nstage);
  if (!error)
    error = data_open(&self->data, data, g.seq, g.batch, g.seed, HELD);
  if (error) {
    free(self);
    return error;
  }
  self->model = (GptModel){.config = g, .nstage = nstage, .window = window, .text = s};
  self->walk = (GptModel){
      .config = g, .nstage = nstage, .window = text_walk, .text = &self->data.held};
  s->model = gpt_model(&self->model);
  return NULL;
}
