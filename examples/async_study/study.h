/* SPDX-License-Identifier: MIT
 * The models of the study, each behind the same few functions, since both headers are called
 * model.h. */
#ifndef STUDY_H
#define STUDY_H

#include "pipe_run.h"

/* So many units of time are what one device needs for the forward of one sample through the model.
 */
#define STUDY_UNIT 1000000

typedef struct StudyConfig {
  uint32_t rows, round;   /* samples of a microbatch; microbatches of an update */
  uint64_t updates, seed; /* of the run; of its initial weights and of the order of its samples */
  double lr;              /* peak learning rate */
} StudyConfig;

typedef struct Study {
  PrModel model;
  uint32_t nmb; /* microbatches of a step of the program */
  StudyConfig c;
  void *self;
  /* Loss, and share of right answers (NaN: not of this model), on samples that are not trained on,
   * with the weights of each stage. 0, or -1: out of memory. */
  int (*held)(struct Study *s, const void *const *weights, double *loss, double *right);
  void (*close)(struct Study *s);
} Study;

/* NULL, or what is wrong. The study must stay where it is until it is closed. */
const char *study_digits(Study *s, const StudyConfig *c, const char *data, uint32_t nstage);
const char *study_gpt(Study *s, const StudyConfig *c, const char *data, uint32_t nstage);

#endif
