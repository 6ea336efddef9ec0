/* SPDX-License-Identifier: MIT
 * What the tests that train have in common: a run is compared, bit for bit, with the definition
 * that the test wrote; profiles and schedules are written to scratch files. */
#ifndef TEST_TRAIN_H
#define TEST_TRAIN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines.h"
#include "pipe_run.h"
#include "test_model.h"

/* The result of a definition. */
typedef struct Wanted {
  uint32_t steps, nmb;  /* microbatches of a step: whole ones, not slices */
  uint32_t mb_stride;   /* of `loss`; 0: nmb */
  uint32_t nweight;     /* floats of a stage */
  const double *loss;   /* [steps * mb_stride] */
  const float *weight;  /* [p->nmodel * nweight] */
} Wanted;

/* NOT_HERE: the run belongs to other processes, or to none (engines_take). */
typedef enum Trained { AS_WANTED, OTHERWISE, NOT_HERE } Trained;

/* Opens p with the model, trains, and compares the losses of each step, their mean, the last
 * weights, and the bytes that the program proves. OTHERWISE: `why` says what differs. */
static Trained trains_as(const PipeProgram *p, const PrModel *model, PrOptions o,
                         const Wanted *want, char why[256]) {
  PrRun *run = NULL;
  const uint32_t stride = want->mb_stride ? want->mb_stride : want->nmb;
  *why = '\0';
  if (!engines_take(&p, &o))
    return NOT_HERE;
  if (pr_open(&run, p, model, &o))
    snprintf(why, 256, "%s", run ? pr_error(run) : "no memory");
  for (uint32_t step = 0; step < want->steps && !*why; step++) {
    double sum = 0;
    if (pr_steps(run, 1))
      snprintf(why, 256, "%s", pr_error(run));
    for (uint32_t mb = 0; mb < want->nmb && !*why; mb++) {
      const double got = pr_loss_mb(run, mb), loss = want->loss[step * stride + mb];
      sum += got;
      if (memcmp(&got, &loss, sizeof got) != 0)
        snprintf(why, 256, "step %u, microbatch %u: loss %a, by definition %a", step, mb, got,
                 loss);
    }
    if (!*why && pr_loss(run) != sum / want->nmb)
      snprintf(why, 256, "step %u: the loss is not the mean", step);
  }
  for (uint32_t s = 0; s < p->nstage && !*why; s++)
    if (memcmp(engines_weight(run, s), &want->weight[p->stage[s].model * want->nweight],
               want->nweight * sizeof(float)) != 0)
      snprintf(why, 256, "weights of stage %u differ", s);
  for (uint32_t r = 0; r < p->nrank && p->sized && !*why; r++)
    if (pr_bytes(run, r) != p->rank[r].bytes || pr_host_bytes(run, r) != p->rank[r].host)
      snprintf(why, 256, "rank %u took %llu bytes, proved %llu", r,
               (unsigned long long)pr_bytes(run, r), (unsigned long long)p->rank[r].bytes);
  pr_close(run);
  return *why ? OTHERWISE : AS_WANTED;
}

static inline void *need(void *p) {
  if (!p)
    abort();
  return p;
}

static inline FILE *open_file(const char *path) {
  FILE *f = fopen(path, "w");
  if (!f) {
    perror(path);
    exit(1);
  }
  return f;
}

/* Writes the sizes of a model as pipec reads them. */
static inline void write_profile(const char *path, const PrModel *model) {
  FILE *f = open_file(path);
  fprintf(f, "{\"pipe_profile\": 1, \"stages\": [");
  for (uint32_t s = 0; s < model->nstage; s++) {
    PrSizes z = {0};
    model->sizes(model->self, s, &z);
    fprintf(f, "%s{\"act\": %d, \"gout\": %d, \"boundary\": %d", s ? ", " : "", (int)z.act,
            (int)z.gout, (int)z.boundary);
    fprintf(f, ", \"weight\": %d, \"grad\": %d, \"opt\": %d, \"work\": %d}", (int)z.weight,
            (int)z.grad, (int)z.opt, (int)z.work);
  }
  fprintf(f, "]}\n");
  fclose(f);
}

#endif
