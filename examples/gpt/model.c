/* SPDX-License-Identifier: MIT
 * Forward, hand-written backward and update of the transformer in model.h. Matrix products are
 * CBLAS on one thread; the engine's ranks are the parallelism.
 *
 * A layer is   x1 = x + proj(attention(qkv(ln1(x))))     x2 = x1 + out(gelu(fc(ln2(x1)))).
 * The backward goes down the layers with two functions: layer_input finds the gradients of all
 * activations (I), layer_weight the gradients of all weights (W). I runs the first and keeps what
 * the second reads in `gout`; W runs the second; B runs both, layer by layer, and so needs the gout
 * of one layer only, in its scratch. Either way each tensor goes through the same arithmetic: B is
 * I then W to the bit. Gradients are always added to, so first_grad has no use here.
 *
 * Bytes per token and layer, of reals: act 10 d + heads + 4 (with slices 12 d and so on), gout 9 d.
 * Outputs of layernorms and GELU and the attention matrix are computed again in the backward. */
#include "model.h"
#include "data.h"
#include "kernels.h"
#include "pipe_optim.h"
#include "tensors.h"

#include <stdio.h>

/* The function for the type of `real`. */
#define OPTIM _Generic((real)0, float : pr_optim, double : pr_optim_double)

/* ---- shapes and layouts ---------------------------------------------------------------------- */

typedef enum Kind { ONE, ZERO, NORMAL, RESIDUAL } Kind; /* initial value; the last two: matrices */

/* clang-format off */
#define POINTER(name, kind, rows, columns) real *name;
typedef struct Layer { LAYER_TENSORS(POINTER) } Layer;
typedef struct First { FIRST_TENSORS(POINTER) } First;
typedef struct Last { LAST_TENSORS(POINTER) } Last;
#undef POINTER
/* clang-format on */

/* Sum of the elements of a list of tensors. */
#define PLUS(name, kind, rows, columns) +(rows) * (columns)
static uint64_t layer_elems(uint64_t d) { return 0 LAYER_TENSORS(PLUS); }
static uint64_t first_elems(uint64_t d, uint64_t seq) { return 0 FIRST_TENSORS(PLUS); }
static uint64_t last_elems(uint64_t d) { return 0 LAST_TENSORS(PLUS); }
#undef PLUS

/* What one microbatch leaves behind in one layer. stat: mean and 1/deviation of each row. */
typedef struct Act {
  real *x, *stat1; /* [n][d], [n][2]: input of the layer */
  real *qkv;       /* [n][3d]: queries, keys, values, each head by head */
  real *lse;       /* [n][heads]: log of the softmax's sum */
  real *att;       /* [n][d]: attention's output */
  real *x1, *stat2;
  real *h;   /* [n][4d]: before the GELU */
  real *dkv; /* with slices: [n][2d]: what later slices add to the gradients of keys and values */
} Act;
typedef struct ActTop { /* last stage */
  real *x, *stat;
  real *dlogits; /* [n][vocab]: gradient of the loss, known as soon as the loss is */
} ActTop;

/* Gradients of outputs of linear layers, all that layer_weight needs besides Act. */
typedef struct Gout {
  real *dx2, *dh, *dx1, *dqkv; /* [n][d], [n][4d], [n][d], [n][3d] */
  real *sum1, *sum2;           /* [2d]: gradients of ln1's and ln2's g and b */
  real *gb1, *gb2;             /* [2d]: copies of these g and b: W is not given the weights */
} Gout;
typedef struct GoutTop {
  real *dx0;      /* first stage: [n][d], gradient of the sum of the embeddings */
  real *sum, *gb; /* last stage: [2d] each, as above for lnf */
} GoutTop;

/* A stage of a model: everything that follows from the configuration. */
typedef struct Shape {
  const GptModel *m;
  uint64_t n, d, seq, len; /* len: tokens of a row in a slice; n = batch * len: of all rows */
  uint32_t slices;
  uint32_t heads, layer0; /* layer0: first layer of the stage */
  uint32_t nlayer;        /* > 0 */
  int first, last;
  uint64_t act_bytes, gout_bytes; /* of one layer */
} Shape;

/* The next `elems` reals at base + *used, rounded up to cache lines. base NULL: only counts. */
static real *carve(void *base, uint64_t *used, uint64_t elems) {
  real *p = base ? (real *)((char *)base + *used) : NULL;
  *used += (elems * sizeof(real) + 63) / 64 * 64;
  return p;
}

static Act carve_act(const Shape *s, void *base, uint64_t *used) {
  return (Act){.x = carve(base, used, s->n * s->d),
               .stat1 = carve(base, used, s->n * 2),
               .qkv = carve(base, used, s->n * 3 * s->d),
               .lse = carve(base, used, s->n * s->heads),
               .att = carve(base, used, s->n * s->d),
               .x1 = carve(base, used, s->n * s->d),
               .stat2 = carve(base, used, s->n * 2),
               .h = carve(base, used, s->n * 4 * s->d),
               .dkv = carve(base, used, s->slices > 1 ? s->n * 2 * s->d : 0)};
}

static ActTop carve_top(const Shape *s, void *base, uint64_t *used) {
  return (ActTop){.x = carve(base, used, s->n * s->d),
                  .stat = carve(base, used, s->n * 2),
                  .dlogits = carve(base, used, s->n * GPT_VOCAB)};
}

static Gout carve_gout(const Shape *s, void *base, uint64_t *used) {
  return (Gout){.dx2 = carve(base, used, s->n * s->d),
                .dh = carve(base, used, s->n * 4 * s->d),
                .dx1 = carve(base, used, s->n * s->d),
                .dqkv = carve(base, used, s->n * 3 * s->d),
                .sum1 = carve(base, used, 2 * s->d),
                .sum2 = carve(base, used, 2 * s->d),
                .gb1 = carve(base, used, 2 * s->d),
                .gb2 = carve(base, used, 2 * s->d)};
}

static GoutTop carve_gout_top(const Shape *s, void *base, uint64_t *used) {
  return (GoutTop){.dx0 = s->first ? carve(base, used, s->n * s->d) : NULL,
                   .sum = s->last ? carve(base, used, 2 * s->d) : NULL,
                   .gb = s->last ? carve(base, used, 2 * s->d) : NULL};
}

static Shape shape_of(const GptModel *m, uint32_t stage) {
  const GptConfig *g = &m->config;
  uint64_t beg = (uint64_t)stage * g->layers / m->nstage;
  uint64_t end = (uint64_t)(stage + 1) * g->layers / m->nstage;
  Shape s = {.m = m,
             .d = g->d,
             .seq = g->seq,
             .slices = g->slices > 1 ? g->slices : 1,
             .heads = g->heads,
             .layer0 = (uint32_t)beg,
             .nlayer = (uint32_t)(end - beg),
             .first = stage == 0,
             .last = stage + 1 == m->nstage};
  s.len = s.seq / s.slices;
  s.n = g->batch * s.len;
  carve_act(&s, NULL, &s.act_bytes);
  carve_gout(&s, NULL, &s.gout_bytes);
  return s;
}

static Act act_at(const Shape *s, void *act, uint32_t l) {
  uint64_t used = l * s->act_bytes;
  return carve_act(s, act, &used);
}
static ActTop act_top(const Shape *s, void *act) {
  uint64_t used = s->nlayer * s->act_bytes;
  return carve_top(s, act, &used);
}
static Gout gout_at(const Shape *s, void *gout, uint32_t l) {
  uint64_t used = l * s->gout_bytes;
  return carve_gout(s, gout, &used);
}
static GoutTop gout_top(const Shape *s, void *gout) {
  uint64_t used = s->nlayer * s->gout_bytes;
  return carve_gout_top(s, gout, &used);
}

/* Pointers to the tensors of a layer, in weights or in gradients alike. */
#define SET(name, kind, rows, columns) \
  t.name = p; \
  p += (rows) * (columns);
static Layer layer_at(const Shape *s, void *base, uint32_t l) {
  uint64_t d = s->d;
  real *p = (real *)base + (s->first ? first_elems(d, s->seq) : 0) + l * layer_elems(d);
  Layer t;
  LAYER_TENSORS(SET)
  return t;
}
static First first_at(const Shape *s, void *base) {
  uint64_t d = s->d, seq = s->seq;
  real *p = base;
  First t;
  FIRST_TENSORS(SET)
  return t;
}
static Last last_at(const Shape *s, void *base) {
  uint64_t d = s->d;
  real *p = (real *)base + (s->first ? first_elems(d, s->seq) : 0) + s->nlayer * layer_elems(d);
  Last t;
  LAST_TENSORS(SET)
  return t;
}
#undef SET

static uint64_t weight_elems(const Shape *s) {
  return (s->first ? first_elems(s->d, s->seq) : 0) + s->nlayer * layer_elems(s->d) +
         (s->last ? last_elems(s->d) : 0);
}

/* Tensor i of the stage in memory order; 0 past the last. `ident` names it in the whole model. */
typedef struct Tensor {
  uint64_t elems, columns, ident;
  Kind kind;
  const char *name;
  uint32_t layer; /* PIPE_NONE: of none */
} Tensor;
#define ROW(name, kind, rows, columns) {(rows) * (columns), columns, 0, kind, #name, PIPE_NONE},
static int tensor_at(const Shape *s, uint32_t i, Tensor *t) {
  uint64_t d = s->d, seq = s->seq;
  const Tensor first[] = {FIRST_TENSORS(ROW)}, layer[] = {LAYER_TENSORS(ROW)},
               last[] = {LAST_TENSORS(ROW)};
  enum {
    NFIRST = sizeof first / sizeof *first,
    NLAYER = sizeof layer / sizeof *layer,
    NLAST = sizeof last / sizeof *last
  };
  uint32_t before = s->first ? NFIRST : 0, inside = s->nlayer * NLAYER;
  if (i < before) {
    *t = first[i];
    t->ident = i;
  } else if (i < before + inside) {
    *t = layer[(i - before) % NLAYER];
    t->ident = NFIRST + (uint64_t)s->layer0 * NLAYER + (i - before);
    t->layer = s->layer0 + (i - before) / NLAYER;
  } else if (s->last && i < before + inside + NLAST) {
    *t = last[i - before - inside];
    t->ident = NFIRST + (uint64_t)s->m->config.layers * NLAYER + (i - before - inside);
  } else {
    return 0;
  }
  return 1;
}
#undef ROW

/* ---- attention ------------------------------------------------------------------------------- */

/* Scores are computed for this many rows (queries) of a head at a time, up to the diagonal. */
enum { ROWS = 64 };

/* What the slices before one have left in a layer. */
typedef struct Past {
  uint64_t n;
  Act act[GPT_MAX_SLICES];
} Past;

static Past past_at(const Shape *s, const PrCall *c, uint32_t l) {
  Past past = {.n = s->slices > 1 ? c->slice : 0};
  for (uint64_t i = 0; i < past.n; i++)
    past.act[i] = act_at(s, c->past[i], l);
  return past;
}

/* Keys, and columns of scores, that queries see: those of a slice before, or (block n) of their own
 * up to the last of them. The values lie d after the keys. Gradients go to dk, whose rows are ld_dk
 * apart, and those of values d behind. */
typedef struct Block {
  const real *k;
  real *dk;
  uint64_t keys, col, ld_dk;
} Block;
static Block block_at(const Shape *s, const Act *a, const Past *past, uint64_t i, uint64_t t0,
                      uint64_t head, uint64_t own, real *dqkv) {
  uint64_t d = s->d, at = head * (d / s->heads);
  const Act *of = i < past->n ? &past->act[i] : a;
  Block b = {of->qkv + t0 * 3 * d + at + d, NULL, s->len, i * s->len, 3 * d};
  if (i == past->n)
    b.keys = own;
  if (dqkv && i < past->n)
    b.dk = of->dkv + t0 * 2 * d + at, b.ld_dk = 2 * d;
  else if (dqkv)
    b.dk = dqkv + t0 * 3 * d + at + d;
  return b;
}

/* att, lse from qkv. p: scratch [ROWS][seq]. */
static void attention(const Shape *s, const Act *a, const Past *past, real *p) {
  uint64_t T = s->len, d = s->d, ld = 3 * d, width = d / s->heads, before = past->n * T;
  for (uint64_t bh = 0; bh < s->n / T * s->heads; bh++) {
    uint64_t t0 = bh / s->heads * T, head = bh % s->heads;
    const real *q = a->qkv + t0 * ld + head * width;
    for (uint64_t i0 = 0; i0 < T; i0 += ROWS) {
      uint64_t i1 = i0 + ROWS < T ? i0 + ROWS : T, rows = i1 - i0, all = before + i1;
      for (uint64_t k = 0; k <= past->n; k++) {
        Block b = block_at(s, a, past, k, t0, head, i1, NULL);
        gemm(CblasNoTrans, CblasTrans, rows, b.keys, width, 1 / SQRT((real)width), q + i0 * ld, ld,
             b.k, ld, 0, p + b.col, all);
      }
      for (uint64_t i = i0; i < i1; i++) {
        real *row = p + (i - i0) * all;
        uint64_t seen = before + i + 1;
        real max = row_max(row, seen);
        row_exp(row, max, seen);
        real sum = row_sum(row, seen), inverse = 1 / sum;
        a->lse[(t0 + i) * s->heads + head] = max + (real)log(sum);
        for (uint64_t j = 0; j < seen; j++)
          row[j] *= inverse;
        memset(row + seen, 0, (all - seen) * sizeof *row);
      }
      for (uint64_t k = 0; k <= past->n; k++) {
        Block b = block_at(s, a, past, k, t0, head, i1, NULL);
        gemm(CblasNoTrans, CblasNoTrans, rows, width, b.keys, 1, p + b.col, all, b.k + d, ld, k > 0,
             a->att + (t0 + i0) * d + head * width, d);
      }
    }
  }
}

/* dqkv from datt, and what the slices before have of it. p, dp: scratch [ROWS][seq] each. */
static void attention_input(const Shape *s, const Act *a, const Past *past, const real *datt,
                            real *dqkv, real *p, real *dp) {
  uint64_t T = s->len, d = s->d, ld = 3 * d, width = d / s->heads, before = past->n * T;
  real scale = 1 / SQRT((real)width);
  memset(dqkv, 0, s->n * ld * sizeof *dqkv);
  for (uint64_t t = 0; t < s->n && s->slices > 1; t++) /* from the slices behind, which have run */
    memcpy(dqkv + t * ld + d, a->dkv + t * 2 * d, 2 * d * sizeof *dqkv);
  for (uint64_t bh = 0; bh < s->n / T * s->heads; bh++) {
    uint64_t t0 = bh / s->heads * T, head = bh % s->heads, at = t0 * ld + head * width;
    const real *q = a->qkv + at;
    real *dq = dqkv + at;
    for (uint64_t i0 = 0; i0 < T; i0 += ROWS) {
      uint64_t i1 = i0 + ROWS < T ? i0 + ROWS : T, rows = i1 - i0, all = before + i1;
      const real *out = a->att + (t0 + i0) * d + head * width;
      const real *dout = datt + (t0 + i0) * d + head * width;
      for (uint64_t k = 0; k <= past->n; k++) {
        Block b = block_at(s, a, past, k, t0, head, i1, NULL);
        gemm(CblasNoTrans, CblasTrans, rows, b.keys, width, scale, q + i0 * ld, ld, b.k, ld, 0,
             p + b.col, all);
        gemm(CblasNoTrans, CblasTrans, rows, b.keys, width, 1, dout, d, b.k + d, ld, 0, dp + b.col,
             all);
      }
      for (uint64_t i = 0; i < rows; i++) {
        real *restrict row = p + i * all, *restrict drow = dp + i * all;
        uint64_t seen = before + i0 + i + 1;
        row_exp(row, a->lse[(t0 + i0 + i) * s->heads + head], seen);
        real mean = row_dot(dout + i * d, out + i * d, width);
        for (uint64_t j = 0; j < seen; j++)
          drow[j] = row[j] * (drow[j] - mean) * scale;
        memset(row + seen, 0, (all - seen) * sizeof *row);
        memset(drow + seen, 0, (all - seen) * sizeof *drow);
      }
      for (uint64_t k = 0; k <= past->n; k++) {
        Block b = block_at(s, a, past, k, t0, head, i1, dqkv);
        gemm(CblasTrans, CblasNoTrans, b.keys, width, rows, 1, p + b.col, all, dout, d, 1, b.dk + d,
             b.ld_dk);
        gemm(CblasNoTrans, CblasNoTrans, rows, width, b.keys, 1, dp + b.col, all, b.k, ld, k > 0,
             dq + i0 * ld, ld);
        gemm(CblasTrans, CblasNoTrans, b.keys, width, rows, 1, dp + b.col, all, q + i0 * ld, ld, 1,
             b.dk, b.ld_dk);
      }
    }
  }
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* Scratch of one op: wide [n][4d]; narrow [n][d]; p, dp [ROWS][seq]. */
typedef struct Work {
  real *wide, *narrow, *p, *dp;
} Work;
static Work carve_work(const Shape *s, void *base, uint64_t *used) {
  return (Work){.wide = carve(base, used, s->n * 4 * s->d),
                .narrow = carve(base, used, s->n * s->d),
                .p = carve(base, used, ROWS * s->seq),
                .dp = carve(base, used, ROWS * s->seq)};
}

/* x2 from a->x; keeps the rest of *a. */
static void layer_forward(const Shape *s, const Layer *w, const Act *a, const Past *past, real *x2,
                          const Work *work) {
  uint64_t n = s->n, d = s->d;
  norm_stat(a->stat1, a->x, n, d);
  norm(work->narrow, a->x, a->stat1, w->ln1_g, n, d);
  fill(a->qkv, NULL, w->qkv_b, n, 3 * d);
  linear(a->qkv, work->narrow, w->qkv_w, n, 3 * d, d);
  attention(s, a, past, work->p);
  memset(a->dkv, 0, s->slices > 1 ? s->n * 2 * d * sizeof *a->dkv : 0);
  fill(a->x1, a->x, w->proj_b, n, d);
  linear(a->x1, a->att, w->proj_w, n, d, d);
  norm_stat(a->stat2, a->x1, n, d);
  norm(work->narrow, a->x1, a->stat2, w->ln2_g, n, d);
  fill(a->h, NULL, w->fc_b, n, 4 * d);
  linear(a->h, work->narrow, w->fc_w, n, 4 * d, d);
  gelu(work->wide, a->h, n * 4 * d);
  fill(x2, a->x1, w->out_b, n, d);
  linear(x2, work->wide, w->out_w, n, d, 4 * d);
}

/* dx, and the rest of *g, from g->dx2. */
static void layer_input(const Shape *s, const Layer *w, const Act *a, const Past *past,
                        const Gout *g, real *dx, const Work *work) {
  uint64_t n = s->n, d = s->d;
  linear_input(g->dh, g->dx2, w->out_w, n, d, 4 * d);
  gelu_input(g->dh, a->h, n * 4 * d);
  linear_input(work->narrow, g->dh, w->fc_w, n, 4 * d, d);
  norm_input(g->dx1, g->dx2, work->narrow, a->x1, a->stat2, w->ln2_g, g->sum2, g->gb2, n, d);
  linear_input(work->narrow, g->dx1, w->proj_w, n, d, d);
  attention_input(s, a, past, work->narrow, g->dqkv, work->p, work->dp);
  linear_input(work->narrow, g->dqkv, w->qkv_w, n, 3 * d, d);
  norm_input(dx, g->dx1, work->narrow, a->x, a->stat1, w->ln1_g, g->sum1, g->gb1, n, d);
}

/* Adds to the gradients of one layer, *dw. */
static void layer_weight(const Shape *s, const Layer *dw, const Act *a, const Gout *g,
                         const Work *work) {
  uint64_t n = s->n, d = s->d;
  gelu(work->wide, a->h, n * 4 * d);
  linear_weight(dw->out_w, dw->out_b, g->dx2, work->wide, n, d, 4 * d);
  norm(work->narrow, a->x1, a->stat2, g->gb2, n, d);
  linear_weight(dw->fc_w, dw->fc_b, g->dh, work->narrow, n, 4 * d, d);
  linear_weight(dw->proj_w, dw->proj_b, g->dx1, a->att, n, d, d);
  norm(work->narrow, a->x, a->stat1, g->gb1, n, d);
  linear_weight(dw->qkv_w, dw->qkv_b, g->dqkv, work->narrow, n, 3 * d, d);
  for (uint64_t j = 0; j < 2 * d; j++) {
    dw->ln1_g[j] += g->sum1[j];
    dw->ln2_g[j] += g->sum2[j];
  }
}

/* ---- the ends of the chain ------------------------------------------------------------------- */

/* x = token embedding + position embedding. */
static void embed(const Shape *s, const First *w, const PrCall *c, real *x) {
  uint64_t t0 = c->slice * s->len;
  for (uint32_t row = 0; row < s->n / s->len; row++) {
    const uint8_t *token = s->m->window(s->m->text, c->step, c->mb, row);
    for (uint64_t t = t0; t < t0 + s->len; t++, x += s->d)
      for (uint64_t j = 0; j < s->d; j++)
        x[j] = w->wte[token[t] * s->d + j] + w->wpe[t * s->d + j];
  }
}
static void embed_weight(const Shape *s, const First *dw, const PrCall *c, const real *dx) {
  uint64_t t0 = c->slice * s->len;
  for (uint32_t row = 0; row < s->n / s->len; row++) {
    const uint8_t *token = s->m->window(s->m->text, c->step, c->mb, row);
    for (uint64_t t = t0; t < t0 + s->len; t++, dx += s->d)
      for (uint64_t j = 0; j < s->d; j++) {
        dw->wte[token[t] * s->d + j] += dx[j];
        dw->wpe[t * s->d + j] += dx[j];
      }
  }
}

/* Loss of the microbatch, mean over its tokens (of a slice: its part of that), and its gradient
 * divided by the number of microbatches: summed over them, gradients are those of the mean loss of
 * the step. */
static double head_forward(const Shape *s, const Last *w, const PrCall *c, const ActTop *a,
                           real *normed) {
  uint64_t n = s->n, d = s->d;
  norm_stat(a->stat, a->x, n, d);
  norm(normed, a->x, a->stat, w->lnf_g, n, d);
  memset(a->dlogits, 0, n * GPT_VOCAB * sizeof(real));
  linear(a->dlogits, normed, w->head_w, n, GPT_VOCAB, d);
  double loss = 0, tokens = (double)(n * s->slices);
  real share = (real)(1.0 / (tokens * (s->m->config.round ? s->m->config.round : c->nmb)));
  for (uint64_t i = 0; i < n; i++) {
    const uint8_t *token = s->m->window(s->m->text, c->step, c->mb, (uint32_t)(i / s->len));
    uint8_t target = token[c->slice * s->len + i % s->len + 1];
    real *logit = a->dlogits + i * GPT_VOCAB;
    real max = row_max(logit, GPT_VOCAB), hit = logit[target];
    row_exp(logit, max, GPT_VOCAB);
    real sum = row_sum(logit, GPT_VOCAB);
    loss += log((double)sum) + (double)max - (double)hit;
    for (uint64_t j = 0; j < GPT_VOCAB; j++)
      logit[j] *= share / sum;
    logit[target] -= share;
  }
  return loss / tokens;
}
static void head_input(const Shape *s, const Last *w, const ActTop *a, const GoutTop *g, real *dx,
                       real *narrow) {
  linear_input(narrow, a->dlogits, w->head_w, s->n, GPT_VOCAB, s->d);
  norm_input(dx, NULL, narrow, a->x, a->stat, w->lnf_g, g->sum, g->gb, s->n, s->d);
}
static void head_weight(const Shape *s, const Last *dw, const ActTop *a, const GoutTop *g,
                        real *narrow) {
  norm(narrow, a->x, a->stat, g->gb, s->n, s->d);
  linear_weight(dw->head_w, NULL, a->dlogits, narrow, s->n, GPT_VOCAB, s->d);
  for (uint64_t j = 0; j < 2 * s->d; j++)
    dw->lnf_g[j] += g->sum[j];
}

/* ---- callbacks ------------------------------------------------------------------------------- */

static int forward(void *self, const PrCall *c) {
  Shape s = shape_of(self, c->stage);
  uint64_t used = 0;
  Work work = carve_work(&s, c->work, &used);
  Act a = act_at(&s, c->act, 0);
  if (s.first) {
    First w = first_at(&s, c->weight);
    embed(&s, &w, c, a.x);
  } else {
    memcpy(a.x, c->x, s.n * s.d * sizeof(real));
  }
  ActTop top = s.last ? act_top(&s, c->act) : (ActTop){0};
  for (uint32_t l = 0; l < s.nlayer; l++) {
    Layer w = layer_at(&s, c->weight, l);
    Act above = l + 1 < s.nlayer ? act_at(&s, c->act, l + 1) : (Act){.x = s.last ? top.x : c->y};
    Past past = past_at(&s, c, l);
    layer_forward(&s, &w, &a, &past, above.x, &work);
    a = above;
  }
  if (s.last) {
    Last w = last_at(&s, c->weight);
    *c->loss = head_forward(&s, &w, c, &top, work.narrow);
  }
  return 0;
}

/* Gradient of the output of the stage's top layer. */
static void top_input(const Shape *s, const PrCall *c, const GoutTop *g, real *dx2,
                      const Work *work) {
  if (s->last) {
    Last w = last_at(s, c->weight);
    ActTop top = act_top(s, c->act);
    head_input(s, &w, &top, g, dx2, work->narrow);
  } else {
    memcpy(dx2, c->dy, s->n * s->d * sizeof(real));
  }
}
/* Gradients of the weights around the layers, if the stage has such. */
static void ends_weight(const Shape *s, const PrCall *c, const GoutTop *g, const Work *work) {
  if (s->last) {
    Last dw = last_at(s, c->grad);
    ActTop top = act_top(s, c->act);
    head_weight(s, &dw, &top, g, work->narrow);
  }
  if (s->first) {
    First dw = first_at(s, c->grad);
    embed_weight(s, &dw, c, g->dx0);
  }
}

static int backward_input(void *self, const PrCall *c) {
  Shape s = shape_of(self, c->stage);
  uint64_t used = 0;
  Work work = carve_work(&s, c->work, &used);
  GoutTop top = gout_top(&s, c->gout);
  Gout g = gout_at(&s, c->gout, s.nlayer - 1);
  top_input(&s, c, &top, g.dx2, &work);
  for (uint32_t l = s.nlayer; l-- > 0;) {
    Layer w = layer_at(&s, c->weight, l);
    Act a = act_at(&s, c->act, l);
    Gout below = l ? gout_at(&s, c->gout, l - 1) : (Gout){.dx2 = s.first ? top.dx0 : c->dx};
    Past past = past_at(&s, c, l);
    layer_input(&s, &w, &a, &past, &g, below.dx2, &work);
    g = below;
  }
  return 0;
}

static int backward_weight(void *self, const PrCall *c) {
  Shape s = shape_of(self, c->stage);
  uint64_t used = 0;
  Work work = carve_work(&s, c->work, &used);
  GoutTop top = gout_top(&s, c->gout);
  for (uint32_t l = s.nlayer; l-- > 0;) {
    Layer dw = layer_at(&s, c->grad, l);
    Act a = act_at(&s, c->act, l);
    Gout g = gout_at(&s, c->gout, l);
    layer_weight(&s, &dw, &a, &g, &work);
  }
  ends_weight(&s, c, &top, &work);
  return 0;
}

/* Scratch of B: that of I and W, the gout of one layer and of the ends, and one more dx2. */
typedef struct WorkB {
  Work work;
  Gout g;
  GoutTop top;
  real *spare;
} WorkB;
static WorkB carve_work_b(const Shape *s, void *base, uint64_t *used) {
  return (WorkB){.work = carve_work(s, base, used),
                 .g = carve_gout(s, base, used),
                 .top = carve_gout_top(s, base, used),
                 .spare = carve(base, used, s->n * s->d)};
}

static int backward(void *self, const PrCall *c) {
  Shape s = shape_of(self, c->stage);
  uint64_t used = 0;
  WorkB b = carve_work_b(&s, c->work, &used);
  top_input(&s, c, &b.top, b.g.dx2, &b.work);
  for (uint32_t l = s.nlayer; l-- > 0;) {
    Layer w = layer_at(&s, c->weight, l), dw = layer_at(&s, c->grad, l);
    Act a = act_at(&s, c->act, l);
    real *dx = l ? b.spare : s.first ? b.top.dx0 : c->dx;
    Past past = past_at(&s, c, l);
    layer_input(&s, &w, &a, &past, &b.g, dx, &b.work);
    layer_weight(&s, &dw, &a, &b.g, &b.work);
    b.spare = b.g.dx2;
    b.g.dx2 = dx;
  }
  ends_weight(&s, c, &b.top, &b.work);
  return 0;
}

/* AdamW (Loshchilov and Hutter 2019), beta 0.9 and 0.95. No clipping: a norm over all stages would
 * need an exchange between ranks that the schedules do not have. */
static double learning_rate(void *self, uint32_t stage, uint64_t update) {
  const GptConfig *g = &((const GptModel *)self)->config;
  (void)stage;
  if (update < g->warmup)
    return g->lr * ((double)update + 1) / (double)g->warmup;
  if (update >= g->steps)
    return g->lr * 0.1;
  return g->lr * (0.55 + 0.45 * cos(3.14159265358979323846 * (double)(update - g->warmup) /
                                    (double)(g->steps - g->warmup)));
}

static int update(void *self, const PrCall *c) {
  Shape s = shape_of(self, c->stage);
  const GptConfig *g = &s.m->config;
  double lr = learning_rate(self, c->stage, c->updates) * c->rate;
  uint64_t total = weight_elems(&s);
  real *w = c->weight, *m = c->opt, *v = m + total, *dw = c->grad;
  const real *from = c->newest;
  Tensor tensor;
  for (uint32_t i = 0; tensor_at(&s, i, &tensor); i++) {
    uint64_t n = tensor.elems;
    PrOptim adamw = {PR_ADAMW, 0.9, 0.95, 1e-8, tensor.kind >= NORMAL ? g->decay : 0, 0};
    OPTIM(&adamw, c->updates + 1, lr, n, from, w, dw, m, v);
    w += n, from += n, m += n, v += n, dw += n;
  }
  return 0;
}

/* Normal(0, 0.02); into the residual stream divided by sqrt(2 * layers) (GPT-2). */
static int init(void *self, uint32_t stage, void *weight, void *opt) {
  Shape s = shape_of(self, stage);
  (void)opt;
  real *w = weight;
  Tensor tensor;
  for (uint32_t i = 0; tensor_at(&s, i, &tensor); w += tensor.elems, i++) {
    uint64_t key = mix64(mix64(s.m->config.seed) ^ tensor.ident);
    double dev = tensor.kind == RESIDUAL ? 0.02 / sqrt(2.0 * s.m->config.layers) : 0.02;
    for (uint64_t j = 0; j < tensor.elems; j++) {
      uint64_t h = mix64(key ^ j), k = mix64(h);
      double u = ((double)(h >> 11) + 1) * 0x1p-53, angle = (double)(k >> 11) * 0x1p-53;
      w[j] = tensor.kind < NORMAL
                 ? (real)(tensor.kind == ONE)
                 : (real)(dev * sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * angle));
    }
  }
  return 0;
}

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  Shape s = shape_of(self, stage);
  *out = (PrSizes){.act = s.nlayer * s.act_bytes};
  if (s.last)
    carve_top(&s, NULL, &out->act);
  out->gout = s.nlayer * s.gout_bytes;
  carve_gout_top(&s, NULL, &out->gout);
  out->boundary = s.last ? 0 : s.n * s.d * sizeof(real);
  out->weight = out->grad = weight_elems(&s) * sizeof(real);
  out->opt = 2 * out->weight;
  carve_work_b(&s, NULL, &out->work);
  return 0;
}

uint64_t gpt_weights(const GptModel *m, uint32_t stage) {
  Shape s = shape_of(m, stage);
  return weight_elems(&s);
}

const char *gpt_tensor(const GptModel *m, uint32_t stage, uint32_t i, uint64_t *elems,
                       int *matrix) {
  Shape s = shape_of(m, stage);
  Tensor t;
  if (!tensor_at(&s, i, &t))
    return NULL;
  *elems = t.elems;
  *matrix = t.kind >= NORMAL;
  return t.name;
}

/* For checkpoints: each tensor, and the two moments of each. They do not depend on how the model is
 * cut. */
static int tensor(void *self, uint32_t stage, uint32_t i, PrTensor *out) {
  Shape s = shape_of(self, stage);
  static const char *const part[] = {"", ".m", ".v"};
  uint64_t before = 0, all = weight_elems(&s);
  Tensor t;
  for (uint32_t k = 0; k < i / 3; k++) {
    if (!tensor_at(&s, k, &t))
      return 1;
    before += t.elems;
  }
  if (!tensor_at(&s, i / 3, &t))
    return 1;
  char layer[24] = "";
  if (t.layer != PIPE_NONE)
    snprintf(layer, sizeof layer, "layer%u.", t.layer);
  snprintf(out->name, sizeof out->name, "%s%s%s", layer, t.name, part[i % 3]);
  out->of = i % 3 ? PR_OPT : PR_WEIGHT;
  out->dtype = sizeof(real) == sizeof(float) ? PR_F32 : PR_F64;
  out->at = (before + (i % 3 == 2 ? all : 0)) * sizeof(real);
  out->ndim = t.kind >= NORMAL ? 2 : 1;
  out->shape[0] = t.elems / t.columns;
  out->shape[1] = t.columns;
  return 0;
}

/* The sum of the replicas' gradients, in their order, to each. */
static int reduce(void *self, uint32_t stage, void *const *grad, uint32_t n, uint64_t bytes) {
  (void)self, (void)stage;
  size_t count = bytes / sizeof(real);
  for (uint32_t i = 1; i < n; i++)
    for (size_t j = 0; j < count; j++)
      ((real *)grad[0])[j] += ((const real *)grad[i])[j];
  for (uint32_t i = 1; i < n; i++)
    memcpy(grad[i], grad[0], bytes);
  return 0;
}

/* OpenBLAS only; absent from other libraries. */
extern void openblas_set_num_threads(int) __attribute__((weak));

/* The moments lie one after the other. */
static int64_t moment(void *self, uint32_t stage, int which) {
  PrSizes size;
  sizes(self, stage, &size);
  return which * (int64_t)size.weight;
}

PrModel gpt_model(GptModel *m) {
  if (openblas_set_num_threads)
    openblas_set_num_threads(1);
  const GptConfig *g = &m->config;
  snprintf(m->identity, sizeof m->identity, "gpt layers=%u d=%u heads=%u seq=%u vocab=%u",
           g->layers, g->d, g->heads, g->seq, GPT_VOCAB);
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
                   .nslice = g->slices,
                   .elem = sizeof(real),
                   .lr = learning_rate,
                   .moment = moment,
                   .tensor = tensor,
                   .identity = m->identity};
}
