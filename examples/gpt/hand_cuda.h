/* SPDX-License-Identifier: MIT
 * 1F1B by hand, for what measures the engine: no program, no tables. Stage r is on rank r. The
 * order of a rank is that of Megatron-LM (schedules.py:
 * forward_backward_pipelining_without_interleaving): P - r - 1 forwards, then a forward and a
 * backward in turn, then the backwards that are left. All ranks are on the current device, each
 * with a stream for ops and one for the copies that it receives. Failures end the program. */
#ifndef GPT_HAND_CUDA_H
#define GPT_HAND_CUDA_H

#include "pipe_run.h"

typedef struct Hand Hand;
/* us between two ops, or two copies, of one rank, in the mean; 0: there are none. */
typedef struct HandGaps {
  double compute, comm;
} HandGaps;

Hand *hand_open(PrModel *model, uint32_t nmb);
/* Issues a step; marked: with an event before and after each op and copy. */
void hand_step(Hand *h, int marked);
HandGaps hand_gaps(Hand *h); /* of the last marked step, which is over */
/* What PrCall.step_at says from here on, while the device has nothing to do; and the losses of the
 * last step [nmb]. */
void hand_number(Hand *h, uint64_t step);
void hand_losses(Hand *h, double *to);
void hand_close(Hand *h); /* the device has nothing to do */

#endif
