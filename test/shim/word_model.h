/* SPDX-License-Identifier: MIT
 * A model of 64-bit words, for any program: every word that an op writes depends on all that it
 * reads, on stage, microbatch, slice and step; gradients are sums of words, so that replicas and
 * ties come to the same bits in every order. The same callbacks do their work at once, on a CPU
 * engine, or put it on a stream of the shim, with what it reads and writes. */
#ifndef WORD_MODEL_H
#define WORD_MODEL_H

#include "pipe_run.h"

enum { WORDS = 9 };

typedef struct WordModel {
  uint32_t nstage, nslice;
  uint8_t tied[64]; /* [nstage] shares its weights */
  int edges;        /* there are some beside the chain */
  int joins;        /* takes actions as a whole */
  int no_step;      /* ops work from `step`, not from `step_at`: wrong under a graph */
  /* bytes that gradients, and what is tied of them, are short of whole words: nothing runs then */
  uint32_t odd;
} WordModel;

extern _Atomic uint32_t word_broken; /* buffers of side ops that did not hold what was put there */

PrModel word_model(WordModel *m, const PipeProgram *p);

#endif
