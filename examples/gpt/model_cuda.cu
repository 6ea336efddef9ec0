/* SPDX-License-Identifier: MIT
 * See model_cuda.h. The same functions as in model.c, one after the other on a stream; `norm` and
 * so on are in kernels_cuda.h. T is the type of activations.
 *
 * Bytes per token and layer: act (10 d T + heads + 4 floats), gout 9 d T. Scores of attention are
 * computed again in the backward, for all heads of one row of the microbatch at a time, in the
 * workspace.
 *
 * A rank has a cuBLAS handle of its own, with a workspace of its own: ranks in one process work
 * side by side. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels_cuda.h"
#include "model_cuda.h"
#include "pipe_cuda.h"
#include "tensors.h"

enum { CUBLAS_WORK = 32 << 20 }; /* what NVIDIA advises for Hopper */

struct GptCuda {
  GptModel *m;
  bool bf16;
  int device;
  uint32_t nrank;
  cublasHandle_t *blas; /* [nrank] */
  void **blas_work;     /* [nrank] */
  DeviceText text;
};

/* First failure of the calls of an op; none is looked at before. */
typedef struct Op {
  cublasHandle_t blas;
  cudaStream_t stream;
  int code; /* 0; 1: a kernel, 2: cuBLAS, 3: a copy */
} Op;
#define RUN(op, kernel, threads, ...) \
  ((op)->code |= LAUNCH(kernel, threads, (op)->stream, __VA_ARGS__) ? 1 : 0)
/* A warp a row. */
#define RUN_ROWS(op, kernel, rows, ...) RUN(op, kernel, (rows) * GPT_LANES, __VA_ARGS__)

static cudaDataType_t type_of(const float *) { return CUDA_R_32F; }
static cudaDataType_t type_of(const __nv_bfloat16 *) { return CUDA_R_16BF; }

/* c[batch][rows][cols] = alpha op(a) op(b) + beta c, row-major, `batch` times, each so many numbers
 * further on. */
template <class T, class C>
static void products(Op *op, bool ta, bool tb, uint64_t rows, uint64_t cols, uint64_t inner,
                     float alpha, const T *a, uint64_t lda, const T *b, uint64_t ldb, float beta,
                     C *c, uint64_t ldc, int batch = 1, uint64_t step_a = 0, uint64_t step_b = 0,
                     uint64_t step_c = 0) {
  /* cuBLAS is column-major: it computes the transpose, c^T = op(b)^T op(a)^T. */
  if (cublasGemmStridedBatchedEx(
          op->blas, tb ? CUBLAS_OP_T : CUBLAS_OP_N, ta ? CUBLAS_OP_T : CUBLAS_OP_N, (int)cols,
          (int)rows, (int)inner, &alpha, b, type_of(b), (int)ldb, (long long)step_b, a, type_of(a),
          (int)lda, (long long)step_a, &beta, c, type_of(c), (int)ldc, (long long)step_c, batch,
          CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) != CUBLAS_STATUS_SUCCESS)
    op->code |= 2;
}

template <class T> struct Net {
  /* ---- layouts ---- */

#define POINTER(name, kind, rows, columns) E *name;
  template <class E> struct LayerOf { LAYER_TENSORS(POINTER) };
  template <class E> struct FirstOf { FIRST_TENSORS(POINTER) };
  template <class E> struct LastOf { LAST_TENSORS(POINTER) };
#undef POINTER
  typedef LayerOf<T> Layer;
  typedef LayerOf<float> LayerGrad;

  struct Act {
    T *x, *qkv, *att, *x1, *h;
    float *stat1, *lse, *stat2;
  };
  struct ActTop {
    T *x, *dlogits;
    float *stat;
  };
  struct Gout {
    T *dx2, *dh, *dx1, *dqkv, *gb1, *gb2;
    float *sum1, *sum2;
  };
  struct GoutTop {
    T *dx0, *gb;
    float *sum;
  };
  /* wide [n][4d, GPT_VOCAB at least], narrow [n][d]; p, dp [heads][seq][seq]; each [n]; part
   * [strips][4d]: kernels_cuda.h */
  struct Work {
    T *wide, *narrow, *p, *dp;
    float *each, *rate, *part;
  };
  struct WorkB {
    Work w;
    Gout g;
    GoutTop top;
    T *spare;
  };

  struct Shape {
    uint64_t n, d, seq, heads;
    uint32_t nlayer;
    bool first, last;
    uint64_t act_bytes, gout_bytes;
  };

  template <class E> static void take(E **p, void *base, uint64_t *used, uint64_t elems) {
    *p = base ? (E *)((char *)base + *used) : NULL;
    *used += (elems * sizeof(E) + 255) / 256 * 256;
  }
  static Act act(const Shape &s, void *base, uint64_t *used) {
    Act a;
    take(&a.x, base, used, s.n * s.d);
    take(&a.stat1, base, used, s.n * 2);
    take(&a.qkv, base, used, s.n * 3 * s.d);
    take(&a.lse, base, used, s.n * s.heads);
    take(&a.att, base, used, s.n * s.d);
    take(&a.x1, base, used, s.n * s.d);
    take(&a.stat2, base, used, s.n * 2);
    take(&a.h, base, used, s.n * 4 * s.d);
    return a;
  }
  static ActTop act_top(const Shape &s, void *base, uint64_t *used) {
    ActTop a;
    take(&a.x, base, used, s.n * s.d);
    take(&a.stat, base, used, s.n * 2);
    take(&a.dlogits, base, used, s.n * GPT_VOCAB);
    return a;
  }
  static Gout gout(const Shape &s, void *base, uint64_t *used) {
    Gout g;
    take(&g.dx2, base, used, s.n * s.d);
    take(&g.dh, base, used, s.n * 4 * s.d);
    take(&g.dx1, base, used, s.n * s.d);
    take(&g.dqkv, base, used, s.n * 3 * s.d);
    take(&g.sum1, base, used, 2 * s.d);
    take(&g.sum2, base, used, 2 * s.d);
    take(&g.gb1, base, used, 2 * s.d);
    take(&g.gb2, base, used, 2 * s.d);
    return g;
  }
  static GoutTop gout_top(const Shape &s, void *base, uint64_t *used) {
    GoutTop g = {NULL, NULL, NULL};
    if (s.first)
      take(&g.dx0, base, used, s.n * s.d);
    if (s.last) {
      take(&g.sum, base, used, 2 * s.d);
      take(&g.gb, base, used, 2 * s.d);
    }
    return g;
  }
  static Work work(const Shape &s, void *base, uint64_t *used) {
    Work w;
    take(&w.wide, base, used, s.n * (4 * s.d > GPT_VOCAB ? 4 * s.d : GPT_VOCAB));
    take(&w.narrow, base, used, s.n * s.d);
    take(&w.p, base, used, s.heads * s.seq * s.seq);
    take(&w.dp, base, used, s.heads * s.seq * s.seq);
    take(&w.each, base, used, s.n);
    take(&w.rate, base, used, 4);
    take(&w.part, base, used, strips_of(s.n) * 4 * s.d);
    return w;
  }
  static WorkB work_b(const Shape &s, void *base, uint64_t *used) {
    WorkB b;
    b.w = work(s, base, used);
    b.g = gout(s, base, used);
    b.top = gout_top(s, base, used);
    take(&b.spare, base, used, s.n * s.d);
    return b;
  }

  static Shape shape_of(const GptCuda *g, uint32_t stage) {
    const GptConfig *c = &g->m->config;
    uint32_t from = (uint32_t)((uint64_t)stage * c->layers / g->m->nstage),
             to = (uint32_t)((uint64_t)(stage + 1) * c->layers / g->m->nstage);
    Shape s = {(uint64_t)c->batch * c->seq, c->d, c->seq, c->heads, to - from, stage == 0,
               stage + 1 == g->m->nstage, 0, 0};
    act(s, NULL, &s.act_bytes);
    gout(s, NULL, &s.gout_bytes);
    return s;
  }
  static Act act_at(const Shape &s, void *base, uint32_t l) {
    uint64_t used = l * s.act_bytes;
    return act(s, base, &used);
  }
  static ActTop top_at(const Shape &s, void *base) {
    uint64_t used = s.nlayer * s.act_bytes;
    return act_top(s, base, &used);
  }
  static Gout gout_at(const Shape &s, void *base, uint32_t l) {
    uint64_t used = l * s.gout_bytes;
    return gout(s, base, &used);
  }
  static GoutTop gout_top_at(const Shape &s, void *base) {
    uint64_t used = s.nlayer * s.gout_bytes;
    return gout_top(s, base, &used);
  }

#define PLUS(name, kind, rows, columns) +(rows) * (columns)
  static uint64_t first_elems(uint64_t d, uint64_t seq) { return 0 FIRST_TENSORS(PLUS); }
  static uint64_t layer_elems(uint64_t d) { return 0 LAYER_TENSORS(PLUS); }
#undef PLUS
#define SET(name, kind, rows, columns) \
  t.name = p; \
  p += (rows) * (columns);
  template <class E> static LayerOf<E> layer_at(const Shape &s, void *base, uint32_t l) {
    uint64_t d = s.d;
    E *p = (E *)base + (s.first ? first_elems(d, s.seq) : 0) + l * layer_elems(d);
    LayerOf<E> t;
    LAYER_TENSORS(SET)
    return t;
  }
  template <class E> static FirstOf<E> first_at(const Shape &s, void *base) {
    uint64_t d = s.d, seq = s.seq;
    E *p = (E *)base;
    FirstOf<E> t;
    FIRST_TENSORS(SET)
    return t;
  }
  template <class E> static LastOf<E> last_at(const Shape &s, void *base) {
    uint64_t d = s.d;
    E *p = (E *)base + (s.first ? first_elems(d, s.seq) : 0) + s.nlayer * layer_elems(d);
    LastOf<E> t;
    LAST_TENSORS(SET)
    return t;
  }
#undef SET

  /* ---- layers ---- */

  /* y[n][out] = x w^T + b, or + b + res */
  static void linear(Op *op, T *y, const T *x, const T *w, const T *res, const T *b, uint64_t n,
                     uint64_t out, uint64_t in) {
    RUN(op, k_fill<T>, n * out, n, out, y, res, b);
    products(op, false, true, n, out, in, 1, x, in, w, in, 1, y, out);
  }
  static void linear_input(Op *op, T *dx, const T *dy, const T *w, uint64_t n, uint64_t out,
                           uint64_t in) {
    products(op, false, false, n, in, out, 1, dy, out, w, in, 0, dx, in);
  }
  /* dw += dy^T x, db += column sums of dy (NULL: not); part: Work.part */
  static void linear_weight(Op *op, float *dw, float *db, float *part, const T *dy, const T *x,
                            uint64_t n, uint64_t out, uint64_t in) {
    products(op, true, false, out, in, n, 1, dy, out, x, in, 1, dw, in);
    if (!db)
      return;
    RUN(op, k_column_strips<T>, strips_of(n) * out, n, out, part, dy);
    RUN(op, k_column_sums, out, n, out, db, part);
  }
  static void norm(Op *op, T *y, float *stat, const T *x, const T *gb, uint64_t n, uint64_t d,
                   bool fresh) {
    RUN_ROWS(op, k_norm<T>, n, n, d, y, stat, x, gb, gb + d, (int)fresh);
  }
  static void norm_input(Op *op, T *dx, const T *res, const T *dy, const T *x, const float *stat,
                         const T *gb, float *sum, T *kept, float *part, uint64_t n, uint64_t d) {
    RUN(op, k_norm_strips<T>, strips_of(n) * d, n, d, part, dy, x, stat);
    RUN(op, k_norm_sums<T>, 2 * d, n, d, sum, kept, part, gb);
    RUN_ROWS(op, k_norm_input<T>, n, n, d, dx, res, dy, x, stat, gb);
  }

  /* The softmax of row `row` of the microbatch, all heads, in w.p. */
  static void softmax(Op *op, const Shape &s, const Act &a, const Work &w, uint64_t row,
                      bool fresh) {
    uint64_t ld = 3 * s.d, width = s.d / s.heads, square = s.seq * s.seq;
    const T *q = a.qkv + row * s.seq * ld, *k = q + s.d;
    products(op, false, true, s.seq, s.seq, width, 1 / sqrtf((float)width), q, ld, k, ld, 0, w.p,
             s.seq, (int)s.heads, width, width, square);
    RUN_ROWS(op, k_softmax<T>, s.seq * s.heads, s.seq, s.heads, w.p, a.lse + row * s.seq * s.heads,
             (int)fresh);
  }
  static void attention(Op *op, const Shape &s, const Act &a, const Work &w) {
    uint64_t ld = 3 * s.d, width = s.d / s.heads, square = s.seq * s.seq;
    for (uint64_t row = 0; row < s.n / s.seq; row++) {
      const T *v = a.qkv + row * s.seq * ld + 2 * s.d;
      softmax(op, s, a, w, row, true);
      products(op, false, false, s.seq, width, s.seq, 1, w.p, s.seq, v, ld, 0,
               a.att + row * s.seq * s.d, s.d, (int)s.heads, square, width, width);
    }
  }
  static void attention_input(Op *op, const Shape &s, const Act &a, const T *datt, T *dqkv,
                              const Work &w) {
    uint64_t ld = 3 * s.d, width = s.d / s.heads, square = s.seq * s.seq;
    float scale = 1 / sqrtf((float)width);
    int heads = (int)s.heads;
    for (uint64_t row = 0; row < s.n / s.seq; row++) {
      uint64_t at = row * s.seq * ld, to = row * s.seq * s.d;
      const T *q = a.qkv + at, *k = q + s.d, *v = k + s.d, *dout = datt + to;
      T *dq = dqkv + at, *dk = dq + s.d, *dv = dk + s.d;
      softmax(op, s, a, w, row, false);
      products(op, true, false, s.seq, width, s.seq, 1, w.p, s.seq, dout, s.d, 0, dv, ld, heads,
               square, width, width);
      products(op, false, true, s.seq, s.seq, width, 1, dout, s.d, v, ld, 0, w.dp, s.seq, heads,
               width, width, square);
      RUN_ROWS(op, k_softmax_input<T>, s.seq * s.heads, s.seq, s.heads, width, w.dp, w.p,
               a.att + to, dout);
      products(op, false, false, s.seq, width, s.seq, scale, w.dp, s.seq, k, ld, 0, dq, ld, heads,
               square, width, width);
      products(op, true, false, s.seq, width, s.seq, scale, w.dp, s.seq, q, ld, 0, dk, ld, heads,
               square, width, width);
    }
  }

  static void layer_forward(Op *op, const Shape &s, const Layer &w, const Act &a, T *x2,
                            const Work &k) {
    uint64_t n = s.n, d = s.d;
    norm(op, k.narrow, a.stat1, a.x, w.ln1_g, n, d, true);
    linear(op, a.qkv, k.narrow, w.qkv_w, NULL, w.qkv_b, n, 3 * d, d);
    attention(op, s, a, k);
    linear(op, a.x1, a.att, w.proj_w, a.x, w.proj_b, n, d, d);
    norm(op, k.narrow, a.stat2, a.x1, w.ln2_g, n, d, true);
    linear(op, a.h, k.narrow, w.fc_w, NULL, w.fc_b, n, 4 * d, d);
    RUN(op, k_gelu<T>, n * 4 * d, n * 4 * d, k.wide, a.h);
    linear(op, x2, k.wide, w.out_w, a.x1, w.out_b, n, d, 4 * d);
  }
  static void layer_input(Op *op, const Shape &s, const Layer &w, const Act &a, const Gout &g,
                          T *dx, const Work &k) {
    uint64_t n = s.n, d = s.d;
    linear_input(op, g.dh, g.dx2, w.out_w, n, d, 4 * d);
    RUN(op, k_gelu_input<T>, n * 4 * d, n * 4 * d, g.dh, a.h);
    linear_input(op, k.narrow, g.dh, w.fc_w, n, 4 * d, d);
    norm_input(op, g.dx1, g.dx2, k.narrow, a.x1, a.stat2, w.ln2_g, g.sum2, g.gb2, k.part, n, d);
    linear_input(op, k.narrow, g.dx1, w.proj_w, n, d, d);
    attention_input(op, s, a, k.narrow, g.dqkv, k);
    linear_input(op, k.narrow, g.dqkv, w.qkv_w, n, 3 * d, d);
    norm_input(op, dx, g.dx1, k.narrow, a.x, a.stat1, w.ln1_g, g.sum1, g.gb1, k.part, n, d);
  }
  static void layer_weight(Op *op, const Shape &s, const LayerGrad &dw, const Act &a, const Gout &g,
                           const Work &k) {
    uint64_t n = s.n, d = s.d;
    RUN(op, k_gelu<T>, n * 4 * d, n * 4 * d, k.wide, a.h);
    linear_weight(op, dw.out_w, dw.out_b, k.part, g.dx2, k.wide, n, d, 4 * d);
    norm(op, k.narrow, a.stat2, a.x1, g.gb2, n, d, false);
    linear_weight(op, dw.fc_w, dw.fc_b, k.part, g.dh, k.narrow, n, 4 * d, d);
    linear_weight(op, dw.proj_w, dw.proj_b, k.part, g.dx1, a.att, n, d, d);
    norm(op, k.narrow, a.stat1, a.x, g.gb1, n, d, false);
    linear_weight(op, dw.qkv_w, dw.qkv_b, k.part, g.dqkv, k.narrow, n, 3 * d, d);
    RUN(op, k_add, 2 * d, 2 * d, dw.ln1_g, g.sum1);
    RUN(op, k_add, 2 * d, 2 * d, dw.ln2_g, g.sum2);
  }

  /* ---- callbacks ---- */

  static void copy(Op *op, void *to, const void *from, uint64_t bytes) {
    if (cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, op->stream) != cudaSuccess)
      op->code |= 3;
  }

  static void forward(const GptCuda *g, Op *op, const PrCall *c) {
    Shape s = shape_of(g, c->stage);
    uint64_t used = 0;
    Work w = work(s, c->work, &used);
    Act a = act_at(s, c->act, 0);
    if (s.first) {
      FirstOf<T> f = first_at<T>(s, c->weight);
      RUN(op, k_embed<T>, s.n * s.d, s.n, s.d, a.x, f.wte, f.wpe, g->text, c->step_at, c->mb);
    } else {
      copy(op, a.x, c->x, s.n * s.d * sizeof(T));
    }
    ActTop top = {NULL, NULL, NULL};
    if (s.last)
      top = top_at(s, c->act);
    for (uint32_t l = 0; l < s.nlayer; l++) {
      Act above = a;
      if (l + 1 < s.nlayer)
        above = act_at(s, c->act, l + 1);
      else
        above.x = s.last ? top.x : (T *)c->y;
      layer_forward(op, s, layer_at<T>(s, c->weight, l), a, above.x, w);
      a = above;
    }
    if (!s.last)
      return;
    LastOf<T> f = last_at<T>(s, c->weight);
    norm(op, w.narrow, top.stat, top.x, f.lnf_g, s.n, s.d, true);
    products(op, false, true, s.n, GPT_VOCAB, s.d, 1, w.narrow, s.d, f.head_w, s.d, 0, top.dlogits,
             GPT_VOCAB);
    RUN_ROWS(op, k_head<T>, s.n, s.n, (uint64_t)GPT_VOCAB, top.dlogits, w.each, g->text, c->step_at,
             c->mb, (float)(1.0 / ((double)s.n * c->nmb)));
    RUN_ROWS(op, k_loss, 1, s.n, c->loss, w.each);
  }

  static void top_input(Op *op, const Shape &s, const PrCall *c, const GoutTop &g, T *dx2,
                        const Work &w) {
    if (!s.last) {
      copy(op, dx2, c->dy, s.n * s.d * sizeof(T));
      return;
    }
    LastOf<T> f = last_at<T>(s, c->weight);
    ActTop top = top_at(s, c->act);
    linear_input(op, w.narrow, top.dlogits, f.head_w, s.n, GPT_VOCAB, s.d);
    norm_input(op, dx2, NULL, w.narrow, top.x, top.stat, f.lnf_g, g.sum, g.gb, w.part, s.n, s.d);
  }
  static void ends_weight(const GptCuda *m, Op *op, const Shape &s, const PrCall *c,
                          const GoutTop &g, const Work &w) {
    if (s.last) {
      LastOf<float> dw = last_at<float>(s, c->grad);
      ActTop top = top_at(s, c->act);
      norm(op, w.narrow, top.stat, top.x, g.gb, s.n, s.d, false);
      linear_weight(op, dw.head_w, NULL, NULL, top.dlogits, w.narrow, s.n, GPT_VOCAB, s.d);
      RUN(op, k_add, 2 * s.d, 2 * s.d, dw.lnf_g, g.sum);
    }
    if (s.first) {
      FirstOf<float> dw = first_at<float>(s, c->grad);
      RUN(op, k_one_hot<T>, s.n * GPT_VOCAB, s.n, (uint64_t)GPT_VOCAB, w.wide, m->text, c->step_at,
          c->mb);
      products(op, true, false, GPT_VOCAB, s.d, s.n, 1, w.wide, GPT_VOCAB, g.dx0, s.d, 1, dw.wte,
               s.d);
      RUN(op, k_embed_places<T>, s.seq * s.d, s.n, s.d, s.seq, dw.wpe, g.dx0);
    }
  }
  static void backward_input(const GptCuda *, Op *op, const PrCall *c, const Shape &s) {
    uint64_t used = 0;
    Work w = work(s, c->work, &used);
    GoutTop top = gout_top_at(s, c->gout);
    Gout g = gout_at(s, c->gout, s.nlayer - 1);
    top_input(op, s, c, top, g.dx2, w);
    for (uint32_t l = s.nlayer; l-- > 0;) {
      Gout below = g;
      if (l > 0)
        below = gout_at(s, c->gout, l - 1);
      else
        below.dx2 = s.first ? top.dx0 : (T *)c->dx;
      layer_input(op, s, layer_at<T>(s, c->weight, l), act_at(s, c->act, l), g, below.dx2, w);
      g = below;
    }
  }
  static void backward_weight(const GptCuda *m, Op *op, const PrCall *c, const Shape &s) {
    uint64_t used = 0;
    Work w = work(s, c->work, &used);
    for (uint32_t l = s.nlayer; l-- > 0;)
      layer_weight(op, s, layer_at<float>(s, c->grad, l), act_at(s, c->act, l),
                   gout_at(s, c->gout, l), w);
    ends_weight(m, op, s, c, gout_top_at(s, c->gout), w);
  }
  static void backward(const GptCuda *m, Op *op, const PrCall *c, const Shape &s) {
    uint64_t used = 0;
    WorkB b = work_b(s, c->work, &used);
    top_input(op, s, c, b.top, b.g.dx2, b.w);
    for (uint32_t l = s.nlayer; l-- > 0;) {
      Act a = act_at(s, c->act, l);
      T *dx = l ? b.spare : s.first ? b.top.dx0 : (T *)c->dx;
      layer_input(op, s, layer_at<T>(s, c->weight, l), a, b.g, dx, b.w);
      layer_weight(op, s, layer_at<float>(s, c->grad, l), a, b.g, b.w);
      b.spare = b.g.dx2;
      b.g.dx2 = dx;
    }
    ends_weight(m, op, s, c, b.top, b.w);
  }

  static void update(const GptCuda *g, Op *op, const PrCall *c, const Shape &s) {
    const GptConfig *o = &g->m->config;
    uint64_t total = gpt_weights(g->m, c->stage), used = 0, n, at = 0;
    float *opt = (float *)c->opt, *to = g->bf16 ? opt + 2 * total : (float *)c->weight;
    const float *from = g->bf16 ? to : (const float *)c->newest;
    Work w = work(s, c->work, &used);
    Rates r = {o->lr, (double)o->warmup, (double)o->steps, c->rate};
    RUN(op, k_rates, 1, (uint64_t)1, w.rate, r, c->step_at, (double)c->nupdate,
        (double)c->updates - (double)c->step * c->nupdate);
    int matrix;
    for (uint32_t i = 0; gpt_tensor(g->m, c->stage, i, &n, &matrix); i++, at += n)
      RUN(op, k_adamw<T>, n, n, g->bf16 ? (T *)c->weight + at : (T *)NULL, from + at, to + at,
          opt + at, opt + total + at, (float *)c->grad + at, w.rate,
          matrix ? (float)o->decay : 0.0f);
  }

  static PrSizes sizes(const GptCuda *g, uint32_t stage) {
    Shape s = shape_of(g, stage);
    uint64_t n = gpt_weights(g->m, stage);
    PrSizes z;
    memset(&z, 0, sizeof z);
    z.act = s.nlayer * s.act_bytes;
    if (s.last)
      act_top(s, NULL, &z.act);
    z.gout = s.nlayer * s.gout_bytes;
    gout_top(s, NULL, &z.gout);
    z.boundary = s.last ? 0 : s.n * s.d * sizeof(T);
    z.weight = n * sizeof(T);
    z.grad = n * sizeof(float);
    z.opt = (g->bf16 ? 3 : 2) * n * sizeof(float);
    work_b(s, NULL, &z.work);
    return z;
  }

  static int call(GptCuda *g, const PrCall *c) {
    Op op = {g->blas[c->rank], (cudaStream_t)c->stream, 0};
    Shape s = shape_of(g, c->stage);
    if (cublasSetStream(op.blas, op.stream) != CUBLAS_STATUS_SUCCESS ||
        cublasSetWorkspace(op.blas, g->blas_work[c->rank], CUBLAS_WORK) != CUBLAS_STATUS_SUCCESS)
      return 2;
    switch (c->op) {
    case PIPE_F:
    case PIPE_R: forward(g, &op, c); break;
    case PIPE_B: backward(g, &op, c, s); break;
    case PIPE_I: backward_input(g, &op, c, s); break;
    case PIPE_W: backward_weight(g, &op, c, s); break;
    default: update(g, &op, c, s);
    }
    return op.code;
  }
};

static int call(void *self, const PrCall *c) {
  GptCuda *g = (GptCuda *)self;
  return g->bf16 ? Net<__nv_bfloat16>::call(g, c) : Net<float>::call(g, c);
}

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  const GptCuda *g = (const GptCuda *)self;
  *out = g->bf16 ? Net<__nv_bfloat16>::sizes(g, stage) : Net<float>::sizes(g, stage);
  return 0;
}

/* The weights of model.c. */
static int init(void *self, uint32_t stage, void *weight, void *opt) {
  GptCuda *g = (GptCuda *)self;
  uint64_t n = gpt_weights(g->m, stage);
  float *w = (float *)malloc(n * sizeof *w);
  __nv_bfloat16 *low = (__nv_bfloat16 *)malloc(n * sizeof *low);
  PrModel host = gpt_model(g->m);
  int code = w && low ? host.init(g->m, stage, w, NULL) : 1;
  for (uint64_t i = 0; !code && g->bf16 && i < n; i++)
    low[i] = __float2bfloat16(w[i]);
  if (!code)
    code = cudaMemcpy(weight, g->bf16 ? (const void *)low : w,
                      n * (g->bf16 ? sizeof *low : sizeof *w),
                      cudaMemcpyHostToDevice) != cudaSuccess;
  if (!code && g->bf16 && opt)
    code = cudaMemcpy((float *)opt + 2 * n, w, n * sizeof *w, cudaMemcpyHostToDevice) !=
           cudaSuccess;
  free(w);
  free(low);
  return code;
}

/* The sum of the replicas' gradients, in their order, to each: of ranks in one process. */
static int reduce(void *self, uint32_t stage, void *const *grad, uint32_t n, uint64_t bytes) {
  (void)self, (void)stage;
  uint64_t count = bytes / sizeof(float);
  Op op = {NULL, (cudaStream_t)pr_cuda_stream(), 0};
  for (uint32_t i = 1; i < n; i++)
    RUN(&op, k_add, count, count, (float *)grad[0], (const float *)grad[i]);
  for (uint32_t i = 1; i < n; i++)
    Net<float>::copy(&op, grad[i], grad[0], bytes);
  return op.code;
}

void gpt_cuda_weights(const GptCuda *g, uint32_t stage, const void *weight, float *to) {
  for (uint64_t i = 0, n = gpt_weights(g->m, stage); i < n; i++)
    to[i] = g->bf16 ? __bfloat162float(((const __nv_bfloat16 *)weight)[i])
                    : ((const float *)weight)[i];
}

/* ---- opening ---- */

/* Each op of each stage once, on memory that is given back: kernels are loaded, products have
 * chosen theirs. */
static const char *warm_up(GptCuda *g) {
  const char *error = NULL;
  cudaStream_t stream = NULL;
  PrSizes most;
  memset(&most, 0, sizeof most);
  for (uint32_t s = 0; s < g->m->nstage; s++) {
    PrSizes z;
    sizes(g, s, &z);
    const uint64_t *from = (const uint64_t *)&z;
    for (size_t i = 0; i < sizeof z / sizeof *from; i++)
      ((uint64_t *)&most)[i] = from[i] > ((uint64_t *)&most)[i] ? from[i] : ((uint64_t *)&most)[i];
  }
  const uint64_t bytes[] = {most.act,
                            most.gout,
                            most.boundary,
                            most.boundary,
                            most.boundary,
                            most.boundary,
                            most.weight,
                            most.grad,
                            most.opt,
                            most.work,
                            64,
                            64};
  enum { N = sizeof bytes / sizeof *bytes };
  char *p[N] = {NULL};
  if (cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0) != cudaSuccess)
    return "no stream";
  for (int i = 0; i < N && !error; i++)
    if (cudaMalloc((void **)&p[i], bytes[i] + 256) != cudaSuccess ||
        cudaMemset(p[i], 0, bytes[i] + 256) != cudaSuccess)
      error = "not enough memory on the device";
  if (!error && cudaDeviceSynchronize() != cudaSuccess)
    error = "the device fails";
  for (uint32_t r = 0; r < g->nrank && !error; r++)
    for (uint32_t s = 0; s < g->m->nstage && !error; s++) {
      static const PipeOp op[] = {PIPE_F, PIPE_B, PIPE_I, PIPE_W, PIPE_U};
      for (int k = 0; k < 5 && !error; k++) {
        PrCall c;
        memset(&c, 0, sizeof c);
        c.op = op[k], c.rank = r, c.stage = s, c.nstage = g->m->nstage, c.nmb = 1;
        c.act = p[0], c.gout = p[1], c.x = p[2], c.y = p[3], c.dx = p[4], c.dy = p[5];
        c.rate = 1, c.nupdate = 1;
        c.weight = p[6], c.newest = p[6], c.grad = p[7], c.opt = p[8], c.work = p[9];
        c.loss = (double *)p[10], c.step_at = (const uint64_t *)p[11], c.stream = stream;
        if (call(g, &c))
          error = "a kernel or a product fails";
      }
    }
  if (!error && cudaDeviceSynchronize() != cudaSuccess)
    error = "a kernel or a product fails";
  for (int i = 0; i < N; i++)
    cudaFree(p[i]);
  cudaStreamDestroy(stream);
  return error;
}

GptCuda *gpt_cuda_open(GptModel *m, int bf16, uint32_t nrank, int device, const char **error) {
  GptCuda *g = (GptCuda *)calloc(1, sizeof *g);
  const Text *t = (const Text *)m->text;
  void *byte = NULL;
  *error = NULL;
  if (!g) {
    *error = "no memory";
    return NULL;
  }
  g->m = m, g->bf16 = bf16 != 0, g->nrank = nrank, g->device = device;
  g->blas = (cublasHandle_t *)calloc(nrank, sizeof *g->blas);
  g->blas_work = (void **)calloc(nrank, sizeof *g->blas_work);
  if (m->window != text_draw)
    *error = "the windows are not drawn (text_draw)";
  else if (cudaError_t e = cudaSetDevice(device))
    *error = e == cudaErrorInvalidDevice ? "no such device" : cudaGetErrorString(e);
  else if (!g->blas || !g->blas_work || cudaMalloc(&byte, t->len) != cudaSuccess ||
           cudaMemcpy(byte, t->byte, t->len, cudaMemcpyHostToDevice) != cudaSuccess)
    *error = "no memory for the text on the device";
  g->text.byte = (const uint8_t *)byte, g->text.len = t->len, g->text.seq = t->seq,
  g->text.seed = t->seed;
  for (uint32_t r = 0; r < nrank && !*error; r++)
    if (cublasCreate(&g->blas[r]) != CUBLAS_STATUS_SUCCESS ||
        cudaMalloc(&g->blas_work[r], CUBLAS_WORK) != cudaSuccess)
      *error = "cuBLAS cannot be opened";
  if (!*error)
    *error = warm_up(g);
  if (!*error)
    return g;
  gpt_cuda_close(g);
  return NULL;
}

void gpt_cuda_close(GptCuda *g) {
  if (!g)
    return;
  for (uint32_t r = 0; r < g->nrank; r++) {
    if (g->blas && g->blas[r])
      cublasDestroy(g->blas[r]);
    if (g->blas_work && g->blas_work[r])
      cudaFree(g->blas_work[r]);
  }
  cudaFree((void *)g->text.byte);
  free(g->blas);
  free(g->blas_work);
  free(g);
}

PrModel gpt_cuda_model(GptCuda *g) {
  PrModel m;
  memset(&m, 0, sizeof m);
  m.self = g;
  m.nstage = g->m->nstage;
  m.sizes = sizes;
  m.init = init;
  m.forward = m.backward = m.backward_input = m.backward_weight = m.update = call;
  m.reduce = reduce;
  m.nslice = 1;
  return m;
}
