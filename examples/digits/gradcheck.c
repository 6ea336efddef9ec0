/* SPDX-License-Identifier: MIT
 * Checks the hand-written backward of model.c, compiled with DIGITS_REAL=double, for 1, 2 and 3
 * stages with every buffer poisoned and guarded:
 *
 *   gradients   d loss / d w against central differences for every 7th weight: of the order of
 *               H^2 = 1e-10 off, where a wrong term is off by far more than TOLERANCE. A relu that
 *               changes sign in between would be, too; with this seed none does
 *   split       I, and at the end of the step all W, leave the gradients of B, to the bit
 *   cut         losses, gradients and updated weights have the same bits for every number of stages
 *   update      leaves the gradients zero
 *
 * Prints one line per check; exits 1 if any failed. */
#include "model.h"
#include "sequential.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(real) == 8, "compile with -DDIGITS_REAL=double");

enum { MICROBATCHES = 3, STAGES = 3 };
static const double H = 1e-5, TOLERANCE = 1e-7;
static int failed;

static uint32_t pick(const void *arg, uint64_t step, uint32_t mb, uint32_t row) {
  const Images *images = arg;
  return images_draw(images->ntrain, 5, (step * MICROBATCHES + mb) * 4 + row);
}

static void verdict(int ok, const char *what, const DigitsModel *m) {
  printf("%s %s, %u stage%s\n", ok ? "ok" : "FAIL", what, m->nstage, m->nstage > 1 ? "s" : "");
  failed |= !ok;
}

/* Forward and, unless only that, the backward of a step. The mean of its losses. */
static double pass(Seq *s, int forward_only, int split) {
  double sum = 0, loss = 0;
  int bad = 0;
  uint32_t n = s->model.nstage;
  for (uint32_t mb = 0; mb < MICROBATCHES; mb++) {
    for (uint32_t i = 0; i < n; i++)
      bad |= seq_op(s, PIPE_F, i, 0, mb, MICROBATCHES, &loss);
    for (uint32_t i = n; !forward_only && i-- > 0;) {
      bad |= seq_op(s, split ? PIPE_I : PIPE_B, i, 0, mb, MICROBATCHES, NULL);
      if (split)
        bad |= seq_op(s, PIPE_W, i, 0, mb, MICROBATCHES, NULL);
    }
    sum += loss;
  }
  if (bad) {
    printf("FAIL %s\n", s->error);
    exit(1);
  }
  return sum / MICROBATCHES;
}

/* All gradients, or weights, into `to`, in the order of the whole model. */
static uint64_t gather(const Seq *s, const DigitsModel *m, int weights, real *to) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < m->nstage; i++) {
    const void *from = weights ? s->stage[i].weight : s->stage[i].grad;
    memcpy(to + total, from, digits_weights(m, i) * sizeof *to);
    total += digits_weights(m, i);
  }
  return total;
}

static int differences_agree(Seq *s, const DigitsModel *m) {
  int ok = 1, some = 0;
  for (uint32_t i = 0; i < m->nstage; i++) {
    real *w = s->stage[i].weight, *g = s->stage[i].grad;
    for (uint64_t j = 0; j < digits_weights(m, i); j += 7) {
      real keep = w[j];
      w[j] = keep + H;
      double up = pass(s, 1, 0);
      w[j] = keep - H;
      double slope = (up - pass(s, 1, 0)) / (2 * H);
      w[j] = keep;
      if (fabs(slope - g[j]) > TOLERANCE) {
        ok = 0;
        printf("stage %u weight %llu: %.10g, by differences %.10g\n", i, (unsigned long long)j,
               g[j], slope);
      }
      some += fabs(slope) > 1e-4;
    }
  }
  return ok && some > 100;
}

int main(void) {
  Images images;
  if (images_random(&images, 3))
    return 1;
  enum { MOST = 1 << 13 };
  static real first[3][MOST],
      now[3][MOST]; /* gradients, weights after the update, gradients of I and W */
  for (uint32_t nstage = 1; nstage <= STAGES; nstage++) {
    DigitsModel m = {{.blocks = 4,
                      .d = 9,
                      .hidden = 11,
                      .batch = 4,
                      .seed = 2,
                      .lr = 0.1,
                      .optim = {PR_ADAMW, 0.9, 0.99, 1e-8, 0.01, 0},
                      .updates = 10},
                     nstage,
                     &images,
                     pick,
                     &images};
    PrModel model = digits_model(&m);
    Seq s;
    uint64_t n = 0;
    if (seq_open(&s, &model, 1))
      return printf("FAIL %s\n", s.error), 1;
    pass(&s, 0, 1);
    n = gather(&s, &m, 0, now[2]);
    for (uint32_t i = 0; i < nstage; i++) {
      memset(s.stage[i].grad, 0, s.stage[i].size.grad);
      s.stage[i].used = 0;
    }
    pass(&s, 0, 0);
    gather(&s, &m, 0, now[0]);
    verdict(!memcmp(now[0], now[2], n * sizeof(real)), "split", &m);
    verdict(differences_agree(&s, &m), "gradients", &m);
    int bad = 0, zero = 1;
    for (uint32_t i = 0; i < nstage; i++) {
      bad |= seq_op(&s, PIPE_U, i, 0, PIPE_NONE, MICROBATCHES, NULL);
      for (uint64_t j = 0; j < digits_weights(&m, i); j++)
        zero &= ((real *)s.stage[i].grad)[j] == 0;
    }
    verdict(!bad && zero, "update", &m);
    gather(&s, &m, 1, now[1]);
    if (nstage == 1)
      memcpy(first, now, sizeof first);
    else
      verdict(!memcmp(first, now, sizeof first), "cut", &m);
    seq_close(&s);
  }
  images_close(&images);
  return failed;
}
