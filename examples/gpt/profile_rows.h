/* SPDX-License-Identifier: MIT
 * The profile that pipec plans with (lang/spec.md, section 6), as gpt_profile and gpt_profile_cuda
 * print it. */
#ifndef GPT_PROFILE_ROWS_H
#define GPT_PROFILE_ROWS_H

#include "model.h"

enum { PROFILE_MOST_REPS = 64 };

/* Of a stage: ns. */
typedef struct ProfileRow {
  uint64_t F, B, I, W, U, send;
  PrSizes size;
} ProfileRow;

uint64_t profile_median(uint64_t *t, uint32_t n); /* sorts t */

/* The last stage sends gradients back: its `send` is that of the one before. `note`: what follows
 * the options of the model in its name. */
void profile_print(const GptConfig *g, const char *note, const ProfileRow *row, uint32_t nstage);

#endif
