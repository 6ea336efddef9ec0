/* SPDX-License-Identifier: MIT
 * The model of model.h for the CUDA engine: matrix products by cuBLAS, the rest by kernels of its
 * own, all on the stream of PrCall, for the ranks of one process. With `bf16` activations and the
 * weights that products read are bf16; the optimizer keeps the weights as float, gradients are
 * float. Initial weights and the windows that a microbatch gets are those of model.c. */
#ifndef GPT_MODEL_CUDA_H
#define GPT_MODEL_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "data.h"
#include "model.h"

typedef struct GptCuda GptCuda;

/* m: with text_draw and a Text, outlives it. nrank: of the program; device: where this process
 * works. NULL: the reason is in *error. Loads the kernels and makes each product once. */
GptCuda *gpt_cuda_open(GptModel *m, int bf16, uint32_t nrank, int device, const char **error);
void gpt_cuda_close(GptCuda *g);
PrModel gpt_cuda_model(GptCuda *g);


/* The weights of a stage as float, from what pr_copy_weight gives. */
void gpt_cuda_weights(const GptCuda *g, uint32_t stage, const void *weight, float *to);

#ifdef __cplusplus
}
#endif

#endif
