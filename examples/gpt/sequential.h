/* SPDX-License-Identifier: MIT
 * A PrModel on one thread and without an engine: stage after stage, microbatch after microbatch.
 * The oracle that pipelined training is compared with, and the bench on which ops are timed and
 * checked.
 *
 * Every buffer of every stage exists once, but one stash for each slice, and one microbatch is in
 * flight at a time. With `strict` each buffer is filled with NaNs before an op that must not count
 * on its contents, and the bytes around it are checked after every op. A model without `update` is
 * only evaluated, whole rows at a time: weights, one stash, the stages' inputs and the workspace
 * are all that it takes. */
#ifndef GPT_SEQUENTIAL_H
#define GPT_SEQUENTIAL_H

#include "pipe_run.h"

/* Everything one stage owns. x is the input of the stage, dx its gradient: the y and dy of the
 * stage before it (both NULL on the first). */
typedef struct SeqStage {
  PrSizes size;
  void *weight, *grad, *opt, *gout, *x, *dx;
  void **acts; /* [slices of the model] */
  void *act;   /* acts[0] */
  void *sum; /* of the gradients of the replicas so far; NULL without replicas */
  int used; /* a B or W has run since the last U */
} SeqStage;

typedef struct Seq {
  PrModel model;
  SeqStage *stage; /* [model.nstage] */
  void *work;      /* of the largest need */
  uint64_t work_bytes, bytes; /* bytes: of all buffers */
  int strict;
  const char *error; /* the first, or NULL */
} Seq;

/* Allocates and initializes all stages. 0, or -1 with s->error set. */
int seq_open(Seq *s, const PrModel *m, int strict);
void seq_close(Seq *s);

/* One op of one stage on its buffers; *loss is written by F of the last stage. 0, or -1 with
 * s->error set. */
int seq_op(Seq *s, PipeOp op, uint32_t stage, uint64_t step, uint32_t mb, uint32_t nmb,
           double *loss);

/* The same of one slice of the microbatch. */
int seq_slice(Seq *s, PipeOp op, uint32_t stage, uint64_t step, uint32_t mb, uint32_t slice,
              uint32_t nmb, double *loss);

/* A whole microbatch: F of all stages, slice after slice; *loss is their sum. And its backward, by
 * B or
 * (`split`) I and W, the last slice first. */
int seq_forward(Seq *s, uint64_t step, uint32_t mb, uint32_t nmb, double *loss);
int seq_backward(Seq *s, uint64_t step, uint32_t mb, uint32_t nmb, int split);

/* A whole training step: for each microbatch F of all stages, then B of all stages (`split`: I and
 * W); at the end U of all. loss[nmb] is written. */
int seq_step(Seq *s, uint64_t step, uint32_t nmb, int split, double *loss);

/* The same as replicas do it, and in another order: the gradients of the microbatches order[0] ..
 * order[end[0] - 1] (NULL: ascending), then those up to end[1] and so on to end[nreplica - 1] =
 * nmb, are summed on their own, one after the other, and their sums then added by `reduce`. */
int seq_step_ordered(Seq *s, uint64_t step, const uint32_t *order, const uint32_t *end,
                     uint32_t nreplica, int split, double *loss);

#endif
