/* SPDX-License-Identifier: MIT
 * A model of a few 64-bit words per tensor for tests of the runtime. Every word that an op writes
 * depends on every kind of tensor it may read, on stage, microbatch and step: one tensor lost,
 * swapped or read too early changes all weights from there on. The callbacks also hold the engine
 * to its side of PrCall: which pointers are NULL, alignment, one op per rank at a time, first_grad.
 */
#ifndef TINY_MODEL_H
#define TINY_MODEL_H

#include <stdatomic.h>
#include "pipe_run.h"

typedef struct Tiny {
  uint32_t nstage;
  int uniform;          /* all stages have the sizes of tiny_sized */
  int shake;            /* ops take a time that depends on stage, mb and step, up to ~100 us */
  atomic_uint *in_rank; /* [nstage] ops that run on a rank; NULL: not checked */
  atomic_uint broken;   /* rules of PrCall seen broken; told on stderr */
  /* What op and where shall fail, with `code`; or hang until `release`. Code 0: nothing. */
  int code, hang;
  PipeOp bad_op;
  uint32_t bad_stage, bad_mb;
  uint64_t bad_step;
  atomic_int release;
} Tiny;

Tiny *tiny_new(uint32_t nstage, int uniform);
void tiny_free(Tiny *t);
PrModel tiny_model(Tiny *t);

/* Bytes of a stage, for the program's tables, when `uniform`. */
PrSizes tiny_sizes(const Tiny *t, uint32_t stage);

/* The oracle: every microbatch forward and backward through all stages, one after the other, then
 * all updates; `steps` times. weight[stage] has the stage's weights, loss[mb] the last losses. */
typedef struct TinyRef {
  uint32_t nstage, nmb;
  void **weight;
  double *loss;
} TinyRef;
TinyRef *tiny_reference(uint32_t nstage, uint32_t nmb, int uniform, uint64_t steps);
void tiny_reference_free(TinyRef *r);

#endif
