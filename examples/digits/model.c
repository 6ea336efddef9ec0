/* SPDX-License-Identifier: MIT
 * Forward, hand-written backward and update of the classifier in model.h.
 *
 * A block keeps its input x and a = relu(W1 x + b1). Its backward needs the gradients of its output
 * and of a before the relu: I finds them for all blocks and keeps them in `gout`, W makes the
 * gradients of the weights of them, and B is I and then W with `work` in the place of `gout`, to
 * the bit.
 *
 * All sums have a fixed order, and loops are written for compilers to vectorize without reordering.
 */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OPTIM _Generic((real)0, float : pr_optim, double : pr_optim_double)

const DigitsConfig digits_default = {.blocks = 32,
                                     .d = 32,
                                     .hidden = 64,
                                     .batch = 32,
                                     .seed = 1,
                                     .optim = {PR_MOMENTUM, 0.9, 0, 0, 0, 0},
                                     .lr = 0.02,
                                     .warmup = 40,
                                     .updates = 1000};

const char *digits_config_error(const DigitsConfig *g, uint32_t nstage) {
  if (g->blocks < nstage || nstage == 0)
    return "each stage needs a block";
  if (g->d == 0 || g->hidden == 0 || g->batch == 0 || g->blocks > 4096 || g->d > 4096 ||
      g->hidden > 4096 || g->batch > 4096)
    return "blocks, widths and images of a microbatch are 1 to 4096";
  return NULL;
}

/* ---- shapes ---- */

/* A linear layer in memory: w[in][out], then b[out]. */
static uint64_t linear_elems(uint64_t in, uint64_t out) { return in * out + out; }

typedef struct Shape {
  const DigitsModel *m;
  uint64_t n, d, hidden; /* n: rows */
  uint32_t block0, nblock;
  int first, last;
} Shape;

static Shape shape_of(const DigitsModel *m, uint32_t stage) {
  const DigitsConfig *g = &m->config;
  uint32_t beg = (uint32_t)((uint64_t)stage * g->blocks / m->nstage);
  uint32_t end = (uint32_t)((uint64_t)(stage + 1) * g->blocks / m->nstage);
  return (Shape){m, g->batch, g->d, g->hidden, beg, end - beg, stage == 0, stage + 1 == m->nstage};
}

static uint64_t weight_elems(const Shape *s) {
  return (s->first ? linear_elems(DIGITS_PIXELS, s->d) : 0) +
         s->nblock * (linear_elems(s->d, s->hidden) + linear_elems(s->hidden, s->d)) +
         (s->last ? linear_elems(s->d, DIGITS_CLASSES) : 0);
}
uint64_t digits_weights(const DigitsModel *m, uint32_t stage) {
  Shape s = shape_of(m, stage);
  return weight_elems(&s);
}

/* Pointers into weights, or gradients, of a stage. */
typedef struct Block {
  real *w1, *b1, *w2, *b2;
} Block;
static Block block_at(const Shape *s, void *base, uint32_t l) {
  real *p = (real *)base + (s->first ? linear_elems(DIGITS_PIXELS, s->d) : 0) +
            l * (linear_elems(s->d, s->hidden) + linear_elems(s->hidden, s->d));
  Block b = {p, p + s->d * s->hidden, p + linear_elems(s->d, s->hidden), NULL};
  b.b2 = b.w2 + s->hidden * s->d;
  return b;
}
static real *head_at(const Shape *s, void *base) { return block_at(s, base, s->nblock).w1; }

/* What a microbatch leaves behind: x and a of each block; of the last stage the input of the head
 * and the gradient of the loss by its output. The same room in `gout`: gradients of a block's
 * output and of a; of the first stage that of its first block's input. */
static uint64_t kept_elems(const Shape *s) { return s->nblock * s->n * (s->d + s->hidden); }
static real *x_at(const Shape *s, void *kept, uint32_t l) {
  return (real *)kept + l * s->n * (s->d + s->hidden);
}
static real *a_at(const Shape *s, void *kept, uint32_t l) { return x_at(s, kept, l) + s->n * s->d; }
static real *top_at(const Shape *s, void *kept) { return (real *)kept + kept_elems(s); }

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  Shape s = shape_of(self, stage);
  uint64_t kept = kept_elems(&s);
  *out = (PrSizes){.act = (kept + (s.last ? s.n * (s.d + DIGITS_CLASSES) : 0)) * sizeof(real),
                   .gout = (kept + (s.first ? s.n * s.d : 0)) * sizeof(real),
                   .boundary = s.last ? 0 : s.n * s.d * sizeof(real),
                   .weight = weight_elems(&s) * sizeof(real)};
  out->grad = out->weight;
  out->opt = pr_optim_moments(s.m->config.optim.kind) * out->weight;
  /* B: gout; F: the ends of its blocks, where they go nowhere, and the images */
  uint64_t forward = s.n * (2 * s.d + DIGITS_PIXELS) * sizeof(real);
  out->work = out->gout + s.n * DIGITS_PIXELS * sizeof(real);
  out->work = out->work > forward ? out->work : forward;
  return 0;
}

/* ---- arithmetic: n rows ---- */

/* y = b + x w */
static void linear(real *restrict y, const real *restrict x, const real *restrict w, uint64_t n,
                   uint64_t in, uint64_t out) {
  const real *b = w + in * out;
  for (uint64_t i = 0; i < n; i++) {
    memcpy(y + i * out, b, out * sizeof *y);
    for (uint64_t k = 0; k < in; k++) {
      real v = x[i * in + k];
      for (uint64_t o = 0; o < out; o++)
        y[i * out + o] += v * w[k * out + o];
    }
  }
}

/* dx = dy w^T, each sum in eight parts. */
static void linear_input(real *restrict dx, const real *restrict dy, const real *restrict w,
                         uint64_t n, uint64_t in, uint64_t out) {
  enum { LANES = 8 };
  uint64_t whole = out / LANES * LANES;
  for (uint64_t i = 0; i < n; i++)
    for (uint64_t k = 0; k < in; k++) {
      real s[LANES] = {0}, sum = 0;
      for (uint64_t o = 0; o < whole; o += LANES)
        for (int j = 0; j < LANES; j++)
          s[j] += dy[i * out + o + j] * w[k * out + o + j];
      for (uint64_t o = whole; o < out; o++)
        s[o - whole] += dy[i * out + o] * w[k * out + o];
      for (int j = 0; j < LANES; j++)
        sum += s[j];
      dx[i * in + k] = sum;
    }
}

/* dw += x^T dy, and the b behind it */
static void linear_weight(real *restrict dw, const real *restrict x, const real *restrict dy,
                          uint64_t n, uint64_t in, uint64_t out) {
  for (uint64_t i = 0; i < n; i++) {
    for (uint64_t k = 0; k < in; k++) {
      real v = x[i * in + k];
      for (uint64_t o = 0; o < out; o++)
        dw[k * out + o] += v * dy[i * out + o];
    }
    for (uint64_t o = 0; o < out; o++)
      dw[in * out + o] += dy[i * out + o];
  }
}

static void block_forward(const Shape *s, const Block *w, const real *x, real *restrict a,
                          real *restrict y) {
  linear(a, x, w->w1, s->n, s->d, s->hidden);
  for (uint64_t j = 0; j < s->n * s->hidden; j++)
    a[j] = a[j] > 0 ? a[j] : 0;
  linear(y, a, w->w2, s->n, s->hidden, s->d);
  for (uint64_t j = 0; j < s->n * s->d; j++)
    y[j] += x[j];
}

/* Cross-entropy of a row of logits; dlogits = its gradient times scale, in their place. */
static double cross_entropy(real *logit, uint32_t label, real scale) {
  real most = logit[0], sum = 0, of_label;
  for (int c = 1; c < DIGITS_CLASSES; c++)
    most = logit[c] > most ? logit[c] : most;
  of_label = logit[label] - most;
  for (int c = 0; c < DIGITS_CLASSES; c++) {
    logit[c] = (real)exp((double)(logit[c] - most));
    sum += logit[c];
  }
  for (int c = 0; c < DIGITS_CLASSES; c++)
    logit[c] = scale * (logit[c] / sum - (real)(c == (int)label));
  return log((double)sum) - (double)of_label;
}

static uint32_t image_of(const DigitsModel *m, const PrCall *c, uint64_t row) {
  return m->pick(m->arg, c->step, c->mb, (uint32_t)row);
}
static void pixels_of(const Shape *s, const PrCall *c, real *pixels) {
  for (uint64_t i = 0; i < s->n; i++) {
    const float *p = s->m->images->pixel[image_of(s->m, c, i)];
    for (int j = 0; j < DIGITS_PIXELS; j++)
      pixels[i * DIGITS_PIXELS + (uint64_t)j] = (real)p[j];
  }
}

/* ---- callbacks ---- */

static int forward(void *self, const PrCall *c) {
  Shape s = shape_of(self, c->stage);
  real *pixels = c->work;
  if (s.first) {
    pixels_of(&s, c, pixels);
    linear(x_at(&s, c->act, 0), pixels, c->weight, s.n, DIGITS_PIXELS, s.d);
  } else {
    memcpy(x_at(&s, c->act, 0), c->x, s.n * s.d * sizeof(real));
  }
  for (uint32_t l = 0; l < s.nblock; l++) {
    Block w = block_at(&s, c->weight, l);
    real *y = l + 1 < s.nblock ? x_at(&s, c->act, l + 1) : s.last ? top_at(&s, c->act) : c->y;
    block_forward(&s, &w, x_at(&s, c->act, l), a_at(&s, c->act, l), y);
  }
  if (s.last) {
    real *x = top_at(&s, c->act), *logit = x + s.n * s.d;
    uint32_t round = s.m->config.round ? s.m->config.round : c->nmb;
    double sum = 0;
    linear(logit, x, head_at(&s, c->weight), s.n, s.d, DIGITS_CLASSES);
    for (uint64_t i = 0; i < s.n; i++)
      sum += cross_entropy(logit + i * DIGITS_CLASSES, s.m->images->label[image_of(s.m, c, i)],
                           (real)(1 / ((double)s.n * round)));
    *c->loss = sum / (double)s.n;
  }
  return 0;
}

/* The gradients that the weights need, from the top to the bottom, into `gout`. */
static void all_inputs(const Shape *s, const PrCall *c, void *gout) {
  real *dy = x_at(s, gout, s->nblock - 1);
  if (s->last)
    linear_input(dy, top_at(s, c->act) + s->n * s->d, head_at(s, c->weight), s->n, s->d,
                 DIGITS_CLASSES);
  else
    memcpy(dy, c->dy, s->n * s->d * sizeof(real));
  for (uint32_t l = s->nblock; l-- > 0;) {
    Block w = block_at(s, c->weight, l);
    real *da = a_at(s, gout, l);
    const real *a = a_at(s, c->act, l);
    real *dx = l > 0 ? x_at(s, gout, l - 1) : s->first ? top_at(s, gout) : c->dx;
    dy = x_at(s, gout, l);
    linear_input(da, dy, w.w2, s->n, s->hidden, s->d);
    for (uint64_t j = 0; j < s->n * s->hidden; j++)
      da[j] = a[j] > 0 ? da[j] : 0;
    linear_input(dx, da, w.w1, s->n, s->d, s->hidden);
    for (uint64_t j = 0; j < s->n * s->d; j++)
      dx[j] += dy[j];
  }
}

/* pixels: room for the images. */
static void all_weights(const Shape *s, const PrCall *c, void *gout, real *pixels) {
  if (s->last)
    linear_weight(head_at(s, c->grad), top_at(s, c->act), top_at(s, c->act) + s->n * s->d, s->n,
                  s->d, DIGITS_CLASSES);
  for (uint32_t l = s->nblock; l-- > 0;) {
    Block dw = block_at(s, c->grad, l);
    linear_weight(dw.w2, a_at(s, c->act, l), x_at(s, gout, l), s->n, s->hidden, s->d);
    linear_weight(dw.w1, x_at(s, c->act, l), a_at(s, gout, l), s->n, s->d, s->hidden);
  }
  if (s->first) {
    pixels_of(s, c, pixels);
    linear_weight(c->grad, pixels, top_at(s, gout), s->n, DIGITS_PIXELS, s->d);
  }
}

static int backward_input(void *self, const PrCall *c) {
  Shape s = shape_of(self, c->stage);
  all_inputs(&s, c, c->gout);
  return 0;
}
static int backward_weight(void *self, const PrCall *c) {
  Shape s = shape_of(self, c->stage);
  all_weights(&s, c, c->gout, c->work);
  return 0;
}
static int backward(void *self, const PrCall *c) {
  Shape s = shape_of(self, c->stage);
  all_inputs(&s, c, c->work);
  all_weights(&s, c, c->work, (real *)c->work + kept_elems(&s) + (s.first ? s.n * s.d : 0));
  return 0;
}

static double learning_rate(void *self, uint32_t stage, uint64_t update) {
  const DigitsConfig *g = &((const DigitsModel *)self)->config;
  (void)stage;
  if (update < g->warmup)
    return g->lr * (double)(update + 1) / (double)g->warmup;
  if (update >= g->updates)
    return g->lr * 0.1;
  return g->lr * (0.55 + 0.45 * cos(3.14159265358979323846 * (double)(update - g->warmup) /
                                    (double)(g->updates - g->warmup)));
}

static int update(void *self, const PrCall *c) {
  Shape s = shape_of(self, c->stage);
  const DigitsConfig *g = &s.m->config;
  uint64_t n = weight_elems(&s);
  real *v = c->opt;
  double lr = learning_rate(self, c->stage, c->updates) * c->rate;
  OPTIM(&g->optim, c->updates + 1, lr, n, c->newest, c->weight, c->grad, v, v ? v + n : NULL);
  return 0;
}

/* Uniform with the variance 1/in, 2/in before a relu; the residual branches end in layers that are
 * smaller by the root of their number. */
static real *init_linear(real *w, uint64_t key, uint64_t in, uint64_t out, double variance) {
  double width = sqrt(3 * variance / (double)in);
  for (uint64_t j = 0; j < in * out; j++) {
    uint64_t h = (key * 0x9e3779b97f4a7c15u + j) * 0xd1342543de82ef95u;
    h = (h ^ (h >> 31)) * 0xbf58476d1ce4e5b9u;
    h ^= h >> 29;
    w[j] = (real)(width * ((double)(h >> 11) * 0x1p-52 - 1));
  }
  memset(w + in * out, 0, out * sizeof *w);
  return w + linear_elems(in, out);
}
static int init(void *self, uint32_t stage, void *weight, void *opt) {
  Shape s = shape_of(self, stage);
  const DigitsConfig *g = &s.m->config;
  uint64_t key = g->seed * 100003;
  real *w = weight;
  (void)opt;
  if (s.first)
    w = init_linear(w, key, DIGITS_PIXELS, s.d, 1);
  for (uint32_t l = s.block0; l < s.block0 + s.nblock; l++) {
    w = init_linear(w, key + 1 + 2 * l, s.d, s.hidden, 2);
    w = init_linear(w, key + 2 + 2 * l, s.hidden, s.d, 1.0 / g->blocks);
  }
  if (s.last)
    init_linear(w, key + 1 + 2 * g->blocks, s.d, DIGITS_CLASSES, 0.1);
  return 0;
}

/* The sum of the replicas' gradients, in their order, to each. */
static int reduce(void *self, uint32_t stage, void *const *grad, uint32_t n, uint64_t bytes) {
  uint64_t count = bytes / sizeof(real);
  real *sum = grad[0];
  (void)self, (void)stage;
  for (uint32_t i = 1; i < n; i++)
    for (uint64_t j = 0; j < count; j++)
      sum[j] += ((const real *)grad[i])[j];
  for (uint32_t i = 1; i < n; i++)
    memcpy(grad[i], sum, bytes);
  return 0;
}

/* The moments lie one after the other. */
static int64_t moment(void *self, uint32_t stage, int which) {
  const DigitsModel *m = self;
  int64_t bytes = (int64_t)(digits_weights(m, stage) * sizeof(real));
  return which < (int)pr_optim_moments(m->config.optim.kind) ? which * bytes : -1;
}

PrModel digits_model(DigitsModel *m) {
  return (PrModel){.self = m,
                   .nstage = m->nstage,
                   .sizes = sizes,
                   .init = init,
                   .forward = forward,
                   .backward = backward,
                   .backward_input = backward_input,
                   .backward_weight = backward_weight,
                   .update = update,
                   .reduce = reduce,
                   .nslice = 1,
                   .elem = sizeof(real),
                   .lr = learning_rate,
                   .moment = moment};
}

/* ---- test ---- */

static uint32_t pick_one(const void *arg, uint64_t step, uint32_t mb, uint32_t row) {
  (void)arg, (void)step, (void)row;
  return mb;
}

int digits_test(const DigitsModel *m, const void *const *weights, uint32_t first, uint32_t end,
                double *loss, double *right) {
  DigitsModel one = *m;
  one.config.batch = 1, one.config.round = 1;
  one.pick = pick_one;
  uint64_t act = 0, work = 0;
  for (uint32_t i = 0; i < m->nstage; i++) {
    PrSizes z;
    sizes(&one, i, &z);
    act = z.act > act ? z.act : act;
    work = z.work > work ? z.work : work;
  }
  /* Two boundaries, to and fro, the stash and the scratch of the largest stage. */
  real *x = calloc(2 * m->config.d, sizeof *x), *kept = malloc(act), *scratch = malloc(work);
  int ok = x && kept && scratch;
  *loss = *right = 0;
  for (uint32_t i = first; ok && i < end; i++) {
    double l = 0;
    for (uint32_t s = 0; s < m->nstage; s++) {
      /* F only reads the weights. */
      PrCall c = {.op = PIPE_F,
                  .stage = s,
                  .nstage = m->nstage,
                  .mb = i,
                  .nmb = 1,
                  .nslice = 1,
                  .x = x + (s & 1) * m->config.d,
                  .y = x + (~s & 1) * m->config.d,
                  .act = kept,
                  .weight = (void *)(uintptr_t)weights[s],
                  .work = scratch,
                  .loss = &l};
      forward(&one, &c);
    }
    /* The gradient by the logits is negative for the label alone. */
    Shape s = shape_of(&one, m->nstage - 1);
    const real *g = top_at(&s, kept) + s.d;
    int best = 0, label = m->images->label[i];
    real p[DIGITS_CLASSES];
    for (int k = 0; k < DIGITS_CLASSES; k++)
      p[k] = g[k] + (k == label);
    for (int k = 1; k < DIGITS_CLASSES; k++)
      best = p[k] > p[best] ? k : best;
    *right += best == label;
    *loss += l;
  }
  *loss /= end - first;
  *right /= end - first;
  free(x), free(kept), free(scratch);
  return ok ? 0 : -1;
}
