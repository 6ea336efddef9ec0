/* SPDX-License-Identifier: MIT
 * The image classifier in the study: 32 residual blocks on scikit-learn's digits, momentum SGD. */
#include "model.h"
#include "study.h"

#include <stdlib.h>

typedef struct Self {
  Images images;
  DigitsModel model;
} Self;

static uint32_t pick(const void *arg, uint64_t step, uint32_t mb, uint32_t row) {
  const Study *s = arg;
  const Self *self = s->self;
  return images_draw(self->images.ntrain, s->c.seed, (step * s->nmb + mb) * s->c.rows + row);
}

static int held(Study *s, const void *const *weights, double *loss, double *right) {
  Self *self = s->self;
  return digits_test(&self->model, weights, self->images.ntrain, self->images.n, loss, right);
}

static void close_study(Study *s) {
  Self *self = s->self;
  images_close(&self->images);
  free(self);
}

const char *study_digits(Study *s, const StudyConfig *c, const char *data, uint32_t nstage) {
  Self *self = calloc(1, sizeof *self);
  *s = (Study){.c = *c, .self = self, .held = held, .close = close_study};
  if (!self)
    return "out of memory";
  DigitsConfig g = digits_default;
  g.batch = c->rows, g.round = c->round, g.seed = c->seed;
  g.lr = c->lr, g.updates = c->updates, g.warmup = c->updates / 20 + 1;
  const char *error = digits_config_error(&g, nstage);
  if (!error)
    error = images_open(&self->images, data);
  if (error) {
    free(self);
    return error;
  }
  self->model = (DigitsModel){g, nstage, &self->images, pick, s};
  s->model = digits_model(&self->model);
  return NULL;
}
