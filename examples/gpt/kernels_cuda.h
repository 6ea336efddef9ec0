/* SPDX-License-Identifier: MIT
 * The kernels of model.cu, for numbers of type T (device.h); what they compute is in kernels.h and
 * model.c. */
#ifndef GPT_KERNELS_CUDA_H
#define GPT_KERNELS_CUDA_H

#include "device.h"

/* y = x as another type. */
template <class A, class B> KERNEL void k_convert(uint64_t n, B *y, const A *x) {
  EACH(i, n) put(&y[i], up(x[i]));
}
/* y[n][out] = b, or res + b. */
template <class T> KERNEL void k_fill(uint64_t n, uint64_t out, T *y, const T *res, const T *b) {
  EACH(i, n * out) put(&y[i], (res ? up(res[i]) : 0.0f) + up(b[i % out]));
}
/* Sums over the n rows of a matrix are made in two turns: of strips of rows, a thread for each
 * column of a strip, and of what comes of these. Their order depends on n alone. */
enum { GPT_STRIP = 64, GPT_STRIPS = 128 }; /* rows of a strip at least; strips at most */
DEVICE_AND_HOST uint64_t strip_of(uint64_t n) { /* rows */
  uint64_t rows = (n + GPT_STRIPS - 1) / GPT_STRIPS;
  return rows < GPT_STRIP ? (uint64_t)GPT_STRIP : rows;
}
DEVICE_AND_HOST uint64_t strips_of(uint64_t n) { return (n + strip_of(n) - 1) / strip_of(n); }

/* part[strips][out] = column sums of each strip of dy[n][out]. */
template <class T> KERNEL void k_column_strips(uint64_t n, uint64_t out, float *part, const T *dy) {
  const uint64_t rows = strip_of(n);
  EACH(k, strips_of(n) * out) {
    const uint64_t j = k % out, from = k / out * rows, to = from + rows < n ? from + rows : n;
    float sum = 0;
    for (uint64_t i = from; i < to; i++)
      sum += up(dy[i * out + j]);
    part[k] = sum;
  }
}
/* db[out] += the sums of all strips. */
KERNEL void k_column_sums(uint64_t n, uint64_t out, float *db, const float *part) {
  EACH(j, out) {
    float sum = 0;
    for (uint64_t k = 0; k < strips_of(n); k++)
      sum += part[k * out + j];
    db[j] += sum;
  }
}
KERNEL void k_add(uint64_t n, float *y, const float *x) {
  EACH(i, n) y[i] += x[i];
}

/* stat[n][2] = mean and 1/deviation of the rows of x; y = the layernorm (NULL: not). fresh: stat is
 * made here. */
template <class T>
KERNEL void k_norm(uint64_t n, uint64_t d, T *y, float *stat, const T *x, const T *g, const T *b,
                   int fresh) {
  EACH_ROW(r, n) {
    const T *row = x + r * d;
    float mean, rdev;
    if (fresh) {
      float sum = 0, square = 0;
      LANE_OF(j, d) sum += up(row[j]);
      mean = lane_sum(sum) / (float)d;
      LANE_OF(j, d) square += (up(row[j]) - mean) * (up(row[j]) - mean);
      rdev = 1 / sqrtf(lane_sum(square) / (float)d + 1e-5f);
      if (FIRST_LANE)
        stat[2 * r] = mean, stat[2 * r + 1] = rdev;
    } else {
      mean = stat[2 * r], rdev = stat[2 * r + 1];
    }
    if (y)
      LANE_OF(j, d) put(&y[r * d + j], (up(row[j]) - mean) * rdev * up(g[j]) + up(b[j]));
  }
}
/* part[strips][2d] = what each strip of rows adds to the gradients of g and b. */
template <class T>
KERNEL void k_norm_strips(uint64_t n, uint64_t d, float *part, const T *dy, const T *x,
                          const float *stat) {
  const uint64_t rows = strip_of(n);
  EACH(k, strips_of(n) * d) {
    const uint64_t j = k % d, strip = k / d, from = strip * rows,
                   to = from + rows < n ? from + rows : n;
    float a = 0, b = 0;
    for (uint64_t i = from; i < to; i++) {
      float dn = up(dy[i * d + j]);
      a += dn * (up(x[i * d + j]) - stat[2 * i]) * stat[2 * i + 1];
      b += dn;
    }
    part[strip * 2 * d + j] = a, part[strip * 2 * d + d + j] = b;
  }
}
/* sum[2d] = the gradients of g and b; kept[2d] = g and b. */
template <class T>
KERNEL void k_norm_sums(uint64_t n, uint64_t d, float *sum, T *kept, const float *part,
                        const T *gb) {
  EACH(j, 2 * d) {
    float all = 0;
    for (uint64_t k = 0; k < strips_of(n); k++)
      all += part[k * 2 * d + j];
    sum[j] = all;
    kept[j] = gb[j];
  }
}
/* dx = res + the gradient through the layernorm of dy (res NULL: 0). */
template <class T>
KERNEL void k_norm_input(uint64_t n, uint64_t d, T *dx, const T *res, const T *dy, const T *x,
                         const float *stat, const T *g) {
  EACH_ROW(r, n) {
    float mean = stat[2 * r], rdev = stat[2 * r + 1], a = 0, b = 0;
    LANE_OF(j, d) {
      float dn = up(dy[r * d + j]) * up(g[j]);
      a += dn;
      b += dn * (up(x[r * d + j]) - mean) * rdev;
    }
    a = lane_sum(a) / (float)d, b = lane_sum(b) / (float)d;
    LANE_OF(j, d) {
      float hat = (up(x[r * d + j]) - mean) * rdev;
      float v = rdev * (up(dy[r * d + j]) * up(g[j]) - a - hat * b);
      put(&dx[r * d + j], v + (res ? up(res[r * d + j]) : 0.0f));
    }
  }
}

/* GELU in its tanh form is u * sigmoid(2z), z = sqrt(2/pi) (u + 0.044715 u^3). */
#define GELU_2A 1.5957691216057308f
#define GELU_3 0.044715f
template <class T> KERNEL void k_gelu(uint64_t n, T *y, const T *u) {
  EACH(i, n) {
    float v = up(u[i]);
    put(&y[i], v / (1 + expf(-GELU_2A * v * (1 + GELU_3 * v * v))));
  }
}
/* dy *= gelu'(u) */
template <class T> KERNEL void k_gelu_input(uint64_t n, T *dy, const T *u) {
  EACH(i, n) {
    float v = up(u[i]), s = 1 / (1 + expf(-GELU_2A * v * (1 + GELU_3 * v * v)));
    put(&dy[i], up(dy[i]) * (s + v * s * (1 - s) * GELU_2A * (1 + 3 * GELU_3 * v * v)));
  }
}

/* Rows p[head][i][0 .. seq) of scores become those of the causal softmax. lse[(i * heads) + head]:
 * written if fresh, else read. */
template <class T>
KERNEL void k_softmax(uint64_t seq, uint64_t heads, T *p, float *lse, int fresh) {
  EACH_ROW(r, seq * heads) {
    uint64_t i = r % seq;
    T *row = p + r * seq;
    float *at = &lse[i * heads + r / seq], l = *at;
    if (fresh) {
      float most = -INFINITY, sum = 0;
      LANE_OF(j, i + 1) most = fmaxf(most, up(row[j]));
      most = lane_max(most);
      LANE_OF(j, i + 1) sum += expf(up(row[j]) - most);
      l = most + logf(lane_sum(sum));
      if (FIRST_LANE)
        *at = l;
    }
    LANE_OF(j, seq) put(&row[j], j <= i ? expf(up(row[j]) - l) : 0.0f);
  }
}
/* dp becomes the gradient of the scores (without their scale): p (dp - mean), mean = dout . out of
 * the row. out and dout: [seq][heads * width]. */
template <class T>
KERNEL void k_softmax_input(uint64_t seq, uint64_t heads, uint64_t width, T *dp, const T *p,
                            const T *out, const T *dout) {
  EACH_ROW(r, seq * heads) {
    uint64_t i = r % seq, at = (i * heads + r / seq) * width;
    float mean = 0;
    LANE_OF(j, width) mean += up(out[at + j]) * up(dout[at + j]);
    mean = lane_sum(mean);
    LANE_OF(j, seq)
      put(&dp[r * seq + j], j <= i ? up(p[r * seq + j]) * (up(dp[r * seq + j]) - mean) : 0.0f);
  }
}

/* ---- tokens ---- */

/* The text on the device, and which window of it a row gets: data.c's text_draw. */
typedef struct DeviceText {
  const uint8_t *byte;
  uint64_t len, seq, seed;
} DeviceText;

DEVICE uint64_t mix_of(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
DEVICE const uint8_t *window_of(const DeviceText *t, uint64_t step, uint32_t mb, uint64_t row) {
  uint64_t h = mix_of(mix_of(mix_of(t->seed) ^ step) ^ ((uint64_t)mb << 32 | row));
  return t->byte + h % (t->len - t->seq);
}

template <class T>
KERNEL void k_embed(uint64_t n, uint64_t d, T *x, const T *wte, const T *wpe, DeviceText text,
                    const uint64_t *step, uint32_t mb) {
  EACH(i, n * d) {
    uint64_t token = i / d, t = token % text.seq;
    const uint8_t *w = window_of(&text, *step, mb, token / text.seq);
    put(&x[i], up(wte[w[t] * d + i % d]) + up(wpe[t * d + i % d]));
  }
}
/* hot[n][vocab] = 1 at its token in each row, else 0: the gradient of the embedding of tokens is
 * its product with dx. */
template <class T>
KERNEL void k_one_hot(uint64_t n, uint64_t vocab, T *hot, DeviceText text, const uint64_t *step,
                      uint32_t mb) {
  EACH(i, n * vocab) {
    const uint64_t token = i / vocab;
    const uint8_t *w = window_of(&text, *step, mb, token / text.seq);
    put(&hot[i], w[token % text.seq] == i % vocab ? 1.0f : 0.0f);
  }
}
/* The gradient of the embedding of places, seq of them: a thread for each number. */
template <class T>
KERNEL void k_embed_places(uint64_t n, uint64_t d, uint64_t seq, float *wpe, const T *dx) {
  EACH(i, seq * d) {
    float sum = 0;
    for (uint64_t row = 0; row < n / seq; row++)
      sum += up(dx[row * seq * d + i]);
    wpe[i] += sum;
  }
}

/* Logits become the gradient of the mean loss of the step; each[n] = the losses of the tokens. */
template <class T>
KERNEL void k_head(uint64_t n, uint64_t vocab, T *logits, float *each, DeviceText text,
                   const uint64_t *step, uint32_t mb, float share) {
  EACH_ROW(r, n) {
    T *row = logits + r * vocab;
    uint64_t target = window_of(&text, *step, mb, r / text.seq)[r % text.seq + 1];
    float most = -INFINITY, sum = 0, hit = up(row[target]);
    LANE_OF(j, vocab) most = fmaxf(most, up(row[j]));
    most = lane_max(most);
    LANE_OF(j, vocab) sum += expf(up(row[j]) - most);
    sum = lane_sum(sum);
    if (FIRST_LANE)
      each[r] = logf(sum) + most - hit;
    LANE_OF(j, vocab)
      put(&row[j], expf(up(row[j]) - most) * (share / sum) - (j == target ? share : 0.0f));
  }
}
KERNEL void k_loss(uint64_t n, double *loss, const float *each) {
  EACH_ROW(r, 1) {
    double sum = 0;
    LANE_OF(k, n) sum += (double)each[k];
    sum = lane_sum(sum);
    if (FIRST_LANE)
      loss[r] = sum / (double)n;
  }
}

/* ---- AdamW ---- */

typedef struct Rates {
  double lr, warmup, steps, rate; /* rate: a factor */
} Rates;
/* to[0] = lr / (1 - beta1^t), to[1] = 1 / (1 - beta2^t), to[2] = lr of update number t, from 1,
 * which is one of `each` in a step, `ahead` further on than its first (model.c, pr_optim). */
KERNEL void k_rates(uint64_t, float *to, Rates r, const uint64_t *step, double each, double ahead) {
  EACH(i, 1) {
    double s = (double)*step, t = s * each + ahead + 1, lr = r.lr;
    if (s < r.warmup)
      lr *= (s + 1) / r.warmup;
    else if (s < r.steps)
      lr *= 0.55 + 0.45 * cos(3.14159265358979323846 * (s - r.warmup) / (r.steps - r.warmup));
    else
      lr *= 0.1;
    lr *= r.rate;
    to[0] = (float)(lr / (1 - pow(0.9, t)));
    to[1] = (float)(1 / (1 - pow(0.95, t)));
    to[2] = (float)lr;
  }
}
/* from, to: the weights as float, which may be one; w: the new ones as T, NULL if that is the same.
 * Leaves the gradient zero. */
template <class T>
KERNEL void k_adamw(uint64_t n, T *w, const float *from, float *to, float *m, float *v, float *grad,
                    const float *rate, float decay) {
  EACH(i, n) {
    float g = grad[i], x = from[i] * (1 - rate[2] * decay);
    m[i] = 0.9f * m[i] + (1 - 0.9f) * g;
    v[i] = 0.95f * v[i] + (1 - 0.95f) * g * g;
    x -= rate[0] * m[i] / (sqrtf(v[i] * rate[1]) + 1e-8f);
    to[i] = x;
    if (w)
      put(&w[i], x);
    grad[i] = 0;
  }
}

#endif
