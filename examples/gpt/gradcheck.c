/* SPDX-License-Identifier: MIT
 * Checks the hand-written backward of model.c, compiled with GPT_REAL=double, on a model small
 * enough to difference. For 1, 2 and 3 stages, with every buffer poisoned and guarded:
 *
 *   gradients   d loss / d w against central differences for some weights of every tensor. With
 *               step h = 3e-5 the truncation error is of the order h^2 = 1e-9 and the rounding
 *               error loss * eps / h = 4e-11; both are compared with gradients of 1e-3 and up, so
 *               errors of 1e-7 are expected and TOLERANCE leaves a factor of ten, while a wrong
 *               term in a backward is off by far more
 *   split       I then W leaves the gradients of B, to the bit
 *   first_grad  the first gradient of a step is the same whether announced or not
 *   order       several W after all I of the step (as zero-bubble schedules do) equal B by B
 *   cut         loss, gradients and updated weights are the same bits for every number of stages
 *   update      leaves the gradients zero
 *   slices      rows in 2, 5 and 7 slices: B is I and W, and one stage several, to the bit; loss
 *               and gradients are those of whole rows but for rounding
 *
 * Prints one line per check and what it measured; exits 1 if any failed. */
#include "data.h"
#include "model.h"
#include "sequential.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(real) == 8, "compile model.c and this file with -DGPT_REAL=double");

enum { NMB = 2, MAX_STAGES = 3 };
static const double H = 3e-5, TOLERANCE = 1e-6;
static int failed;

static void verdict(int ok, const char *what, uint32_t nstage, const char *detail) {
  printf("%s  %-10s %u stage%s  %s\n", ok ? "ok  " : "FAIL", what, nstage, nstage > 1 ? "s" : " ",
         detail);
  failed |= !ok;
}
static void need(int bad, const Seq *s) {
  if (bad) {
    printf("FAIL  %s\n", s->error ? s->error : "no reason given");
    exit(1);
  }
}

/* Gains and biases start at 1 and 0, where several terms vanish: move every weight. */
static void shake(Seq *s, const GptModel *m) {
  uint64_t key = 7;
  for (uint32_t i = 0; i < m->nstage; i++) {
    real *w = s->stage[i].weight;
    for (uint64_t j = 0; j < gpt_weights(m, i); j++)
      w[j] += 0.2 * ((double)(mix64(key++) >> 11) * 0x1p-53 - 0.5);
  }
}

/* Mean loss of the step, forward only. */
static double step_loss(Seq *s) {
  double sum = 0, loss = 0;
  for (uint32_t mb = 0; mb < NMB; mb++) {
    need(seq_forward(s, 0, mb, NMB, &loss), s);
    sum += loss;
  }
  return sum / NMB;
}

/* Gradients of the step by B, or by I and W right after each other. */
static void step_grad(Seq *s, int split) {
  double loss;
  for (uint32_t mb = 0; mb < NMB; mb++) {
    need(seq_forward(s, 0, mb, NMB, &loss), s);
    need(seq_backward(s, 0, mb, NMB, split), s);
  }
}

/* The gradients, or weights, of all stages one after the other: the order of the whole model. */
static real *gather(const Seq *s, const GptModel *m, int weights, uint64_t *count) {
  *count = 0;
  for (uint32_t i = 0; i < m->nstage; i++)
    *count += gpt_weights(m, i);
  real *all = malloc(*count * sizeof *all), *p = all;
  if (!all)
    exit(2);
  for (uint32_t i = 0; i < m->nstage; p += gpt_weights(m, i++))
    memcpy(p, weights ? s->stage[i].weight : s->stage[i].grad, gpt_weights(m, i) * sizeof *p);
  return all;
}
static void clear_grad(Seq *s) {
  for (uint32_t i = 0; i < s->model.nstage; i++) {
    memset(s->stage[i].grad, 0, s->stage[i].size.grad);
    s->stage[i].used = 0;
  }
}

/* Every STRIDE-th weight of the whole model. No tensor is shorter than STRIDE, so each is hit. */
static void check_gradients(Seq *s, const GptModel *m, const real *grad) {
  enum { STRIDE = 11 };
  double worst = 0;
  uint64_t base = 0, done = 0, worst_at = 0;
  for (uint32_t i = 0; i < m->nstage; base += gpt_weights(m, i++)) {
    real *w = s->stage[i].weight;
    for (uint64_t j = mix64(i) % STRIDE; j < gpt_weights(m, i); j += STRIDE) {
      real was = w[j];
      w[j] = was + H;
      double up = step_loss(s);
      w[j] = was - H;
      double down = step_loss(s);
      w[j] = was;
      double slope = (up - down) / (2 * H), exact = grad[base + j];
      double error = fabs(slope - exact) / fmax(fmax(fabs(slope), fabs(exact)), 1e-3);
      if (!(error <= worst))
        worst = error, worst_at = base + j;
      done++;
    }
  }
  char text[120];
  snprintf(text, sizeof text, "%llu of %llu weights, worst relative error %.1e at weight %llu",
           (unsigned long long)done, (unsigned long long)base, worst, (unsigned long long)worst_at);
  verdict(worst <= TOLERANCE, "gradients", m->nstage, text);
}

/* All I of the step for one stage, each followed later by its W: act and gout of both microbatches
 * are kept by hand. Compared with the sums of B. */
static void check_late_weight(Seq *s, const GptModel *m, const real *grad) {
  double loss;
  int same = 1;
  uint64_t base = 0;
  for (uint32_t i = 0; i < m->nstage; base += gpt_weights(m, i++)) {
    SeqStage *t = &s->stage[i];
    void *act[NMB], *gout[NMB], *act0 = t->act, *gout0 = t->gout;
    for (uint32_t mb = 0; mb < NMB; mb++) {
      for (uint32_t k = 0; k < m->nstage; k++)
        need(seq_op(s, PIPE_F, k, 0, mb, NMB, &loss), s);
      for (uint32_t k = m->nstage; k-- > i;)
        need(seq_op(s, PIPE_I, k, 0, mb, NMB, NULL), s);
      act[mb] = malloc(t->size.act);
      gout[mb] = malloc(t->size.gout);
      if (!act[mb] || !gout[mb])
        exit(2);
      memcpy(act[mb], act0, t->size.act);
      memcpy(gout[mb], gout0, t->size.gout);
    }
    for (uint32_t mb = 0; mb < NMB; mb++) {
      memcpy(act0, act[mb], t->size.act);
      memcpy(gout0, gout[mb], t->size.gout);
      need(seq_op(s, PIPE_W, i, 0, mb, NMB, NULL), s);
      free(act[mb]);
      free(gout[mb]);
    }
    same = same && !memcmp(t->grad, grad + base, gpt_weights(m, i) * sizeof(real));
  }
  verdict(same, "order", m->nstage, "every W after the last I of its stage, same bits");
}

/* One B on zero gradients, announced as the first and not. */
static void check_first_grad(Seq *s, const GptModel *m) {
  double loss;
  uint64_t count;
  real *grad[2];
  for (int said = 0; said < 2; said++) {
    clear_grad(s);
    for (uint32_t i = 0; i < m->nstage; i++)
      s->stage[i].used = !said;
    for (uint32_t i = 0; i < m->nstage; i++)
      need(seq_op(s, PIPE_F, i, 0, 0, NMB, &loss), s);
    for (uint32_t i = m->nstage; i-- > 0;)
      need(seq_op(s, PIPE_B, i, 0, 0, NMB, NULL), s);
    grad[said] = gather(s, m, 0, &count);
  }
  verdict(!memcmp(grad[0], grad[1], count * sizeof(real)), "first_grad", m->nstage,
          "announced or not, same bits");
  free(grad[0]);
  free(grad[1]);
}

/* The same model with its rows in slices: loss0, grad0 are those of whole rows, in one stage. */
static void check_slices(GptConfig config, const Text *text, uint32_t slices, double loss0,
                         const real *grad0) {
  double loss1 = 0, worst = 0;
  real *grad1 = NULL;
  int same = 1;
  config.slices = slices;
  for (uint32_t nstage = 1; nstage <= MAX_STAGES; nstage++) {
    GptModel m = {.config = config, .nstage = nstage, .window = text_draw, .text = text};
    PrModel model = gpt_model(&m);
    Seq s;
    uint64_t count;
    need(seq_open(&s, &model, 1), &s);
    shake(&s, &m);
    double loss = step_loss(&s);
    step_grad(&s, 0);
    real *grad = gather(&s, &m, 0, &count);
    clear_grad(&s);
    step_grad(&s, 1);
    real *again = gather(&s, &m, 0, &count);
    same &= !memcmp(grad, again, count * sizeof(real));
    free(again);
    seq_close(&s);
    if (nstage == 1) {
      loss1 = loss, grad1 = grad;
      worst = fabs(loss - loss0);
      for (uint64_t i = 0; i < count; i++)
        worst = fmax(worst, fabs(grad[i] - grad0[i]));
      continue;
    }
    same &= loss == loss1 && !memcmp(grad, grad1, count * sizeof(real));
    free(grad);
  }
  free(grad1);
  char detail[120];
  snprintf(detail, sizeof detail, "%u of a row: B is I then W, one stage is several, same bits",
           slices);
  verdict(same, "slices", MAX_STAGES, detail);
  snprintf(detail, sizeof detail, "%u of a row: as whole rows, worst difference %.1e", slices,
           worst);
  verdict(worst < 1e-12, "slices", 1, detail);
}

int main(void) {
  static uint8_t bytes[400];
  for (size_t i = 0; i < sizeof bytes; i++)
    bytes[i] = (uint8_t)mix64(i);
  GptConfig config = {.layers = 3,
                      .d = 12,
                      .heads = 3,
                      .seq = 70,
                      .batch = 2,
                      .seed = 3,
                      .lr = 1e-2,
                      .decay = 0.1,
                      .warmup = 2,
                      .steps = 4};
  Text text = {bytes, sizeof bytes, config.seq, 5, 1, config.batch};
  real *grad1 = NULL, *weight1 = NULL; /* of the model in one stage */
  double loss1 = 0;
  for (uint32_t nstage = 1; nstage <= MAX_STAGES; nstage++) {
    GptModel m = {.config = config, .nstage = nstage, .window = text_draw, .text = &text};
    PrModel model = gpt_model(&m);
    Seq s;
    uint64_t count;
    need(seq_open(&s, &model, 1), &s);
    shake(&s, &m);
    double loss = step_loss(&s);
    step_grad(&s, 0);
    real *grad = gather(&s, &m, 0, &count);
    if (nstage == 1)
      check_gradients(&s, &m, grad);

    clear_grad(&s);
    step_grad(&s, 1);
    real *again = gather(&s, &m, 0, &count);
    verdict(!memcmp(grad, again, count * sizeof(real)), "split", nstage,
            "I then W is B, same bits");
    free(again);
    clear_grad(&s);
    check_late_weight(&s, &m, grad);
    check_first_grad(&s, &m);

    clear_grad(&s);
    step_grad(&s, 0);
    int zero = 1;
    for (uint32_t i = 0; i < nstage; i++) {
      need(seq_op(&s, PIPE_U, i, 0, PIPE_NONE, NMB, NULL), &s);
      for (uint64_t j = 0; j < gpt_weights(&m, i); j++)
        zero = zero && ((real *)s.stage[i].grad)[j] == 0;
    }
    verdict(zero, "update", nstage, "leaves the gradients zero");
    real *weight = gather(&s, &m, 1, &count);
    if (nstage == 1) {
      grad1 = grad, weight1 = weight, loss1 = loss;
    } else {
      verdict(loss == loss1 && !memcmp(grad, grad1, count * sizeof(real)) &&
                  !memcmp(weight, weight1, count * sizeof(real)),
              "cut", nstage, "loss, gradients and updated weights as in one stage, same bits");
      free(grad);
      free(weight);
    }
    seq_close(&s);
  }
  check_slices(config, &text, 2, loss1, grad1);
  check_slices(config, &text, 5, loss1, grad1);
  check_slices(config, &text, 7, loss1, grad1);
  free(grad1);
  free(weight1);
  return failed;
}
