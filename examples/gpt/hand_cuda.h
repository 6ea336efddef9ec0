/* SPDX-License-Identifier: MIT
 * A program by hand, without the engine: its callbacks, copies and events in an order that is found
 * beforehand, in a loop, for what measures the engine. All ranks are on the current device, each
 * with a stream for ops and one for transfers; events are those of the program, and a transfer is a
 * copy for which both ranks meet. Programs of F, B, U and transfers, one at a time or in groups, of
 * stages in a chain; others, and failures, end the program. */
#ifndef GPT_HAND_CUDA_H
#define GPT_HAND_CUDA_H

#include "pipe_run.h"

typedef struct Hand Hand;
/* us between two instructions of one stream, in the mean; 0: there are none. */
typedef struct HandGaps {
  double compute, comm;
} HandGaps;

Hand *hand_open(const PipeProgram *p, PrModel *model);
/* Issues a step; marked: with an event before and after each instruction. */
void hand_step(Hand *h, int marked);
HandGaps hand_gaps(Hand *h);         /* of the last marked step, which is over */
/* What PrCall.step_at says from here on, while the device has nothing to do; and the losses of the
 * last step [nmb]. */
void hand_number(Hand *h, uint64_t step);
void hand_losses(Hand *h, double *to);
void hand_close(Hand *h);            /* the device has nothing to do */

/* Is row i the first of its group, or of none? Gaps are between these. */
int hand_is_head(const PipeRank *r, uint32_t i);

#endif
