/* SPDX-License-Identifier: MIT
 * All stages of the model on one device, one op after the other on one stream, without an engine:
 * for what looks at single ops. Failures end the program. */
#ifndef GPT_STAGES_CUDA_H
#define GPT_STAGES_CUDA_H

#include <cuda_runtime_api.h>

#include "model_cuda.h"

typedef struct DeviceStage { /* device memory */
  PrSizes size;
  void *weight, *grad, *opt, *act, *gout, *x, *dx;
} DeviceStage;

typedef struct DeviceStages {
  GptModel *m;
  PrModel model;
  DeviceStage *stage; /* [m->nstage]; x is what the stage before writes, dx what it reads */
  uint32_t nmb;
  void *work, *step_at;
  double *loss;
  cudaStream_t stream;
} DeviceStages;

/* Memory for all stages, of which the weights are initialised. */
void stages_open(DeviceStages *s, GptModel *m, PrModel model, uint32_t nmb);
void stages_close(DeviceStages *s);
/* Issues an op, and does not wait for it. U: mb is PIPE_NONE. */
void stages_call(DeviceStages *s, PipeOp op, uint32_t stage, uint32_t mb);
void stages_wait(DeviceStages *s);

/* Ends the program with what was the matter. */
void stages_die(const char *what);
void *stages_device(uint64_t bytes); /* zeroed */

#endif
