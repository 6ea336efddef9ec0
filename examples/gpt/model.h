/* SPDX-License-Identifier: MIT
 * A decoder-only transformer over bytes, cut into pipeline stages: pre-layernorm blocks of causal
 * multi-head attention and a GELU MLP of width 4d, learned positions, untied head, cross-entropy,
 * AdamW. Stage s of S holds the layers s*L/S .. (s+1)*L/S - 1; the first also the embeddings, the
 * last the final layernorm, the head and the loss.
 *
 * Every op is a pure function of the bytes that runtime/include/pipe_run.h lets it read, and
 * initial values belong to the tensor, not to the stage. So a model trains to the same bits however
 * it is cut, on any thread, and with B or with I and W.
 *
 * With slices a row of `seq` tokens goes through in so many equal parts, one after the other:
 * attention of a slice reads the keys and values that the slices before it have left in their
 * stashes, and its backward adds to the gradients of those there. The function is that without
 * slices, the order of its sums another. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include "pipe_run.h"

/* The type of every weight and activation. The gradient check compiles the model in double. */
#ifndef GPT_REAL
#define GPT_REAL float
#endif
typedef GPT_REAL real;

#define GPT_VOCAB 256u /* a token is a byte */
enum { GPT_MAX_SLICES = 64 };

typedef struct GptConfig {
  uint32_t layers, d, heads; /* d: width of the residual stream, a multiple of heads */
  uint32_t seq, batch;       /* tokens of a row, rows of a microbatch */
  uint32_t round; /* microbatches of an update, over which gradients are a mean; 0: the step's */
  uint64_t seed;             /* of the initial weights */
  double lr;                 /* peak learning rate */
  double decay;              /* AdamW weight decay, applied to matrices only */
  uint64_t warmup, steps;    /* lr grows linearly for `warmup` steps, then falls as a cosine to a
                                tenth of its peak at `steps` */
  uint32_t slices;           /* of a row; must divide seq. 0 is 1 */
} GptConfig;

/* What ./dev demo trains: 1.66 million weights. */
extern const GptConfig gpt_default;

/* The text of one row: seq + 1 bytes, input t is byte t and its target byte t + 1. Must depend on
 * its arguments only; is called from several threads. */
typedef const uint8_t *GptWindow(const void *text, uint64_t step, uint32_t mb, uint32_t row);

typedef struct GptModel {
  GptConfig config;
  uint32_t nstage;
  GptWindow *window;
  const void *text; /* first argument of `window`; not owned */
  char identity[96]; /* for checkpoints; gpt_model writes it */
} GptModel;

/* NULL, or what is wrong with the configuration for so many stages. */
const char *gpt_config_error(const GptConfig *g, uint32_t nstage);

/* Reads option `name` ("--layers", "--d", ...) into the configuration: 1 done, 0 not an option of
 * the model, -1 `value` is not a number, -2 it is not in range. gpt_options is the help text of
 * these. */
int gpt_config_option(GptConfig *g, const char *name, const char *value);
extern const char gpt_options[];

/* The same for a whole number from `least` to `most`: 1, -1 or -2. */
int gpt_number(const char *value, uint64_t least, uint64_t most, uint64_t *to);

/* What is wrong with an option for which one of these gave -1 or -2. */
const char *gpt_number_error(int result);

/* The last call of a program that writes results to stdout: flushes it, and tells on stderr if any
 * of it could not be written. 0, or 1 on failure. */
int gpt_finish(const char *program);

/* blas.c. The first call of main: where OpenBLAS has chosen kernels that do not use AVX2 and the
 * processor has it, starts the program again with OPENBLAS_CORETYPE set, unless the user has set
 * it. The other: the kernels in use. */
void gpt_choose_kernels(char **argv);
const char *gpt_kernels(void);

/* The callbacks, with m as their `self`; m must outlive them. */
PrModel gpt_model(GptModel *m);

/* Number of weights of a stage; sizes.weight is this many reals. Stage after stage they are the
 * tensors of the whole model in one order, whatever the number of stages. */
uint64_t gpt_weights(const GptModel *m, uint32_t stage);

/* Tensor i of a stage, in that order: its name, how many reals, and whether it is a matrix, which
 * decays. NULL past the last. */
const char *gpt_tensor(const GptModel *m, uint32_t stage, uint32_t i, uint64_t *elems, int *matrix);

#endif
