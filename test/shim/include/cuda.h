/* SPDX-License-Identifier: MIT
 * What the engine uses of the CUDA driver, as the shim has it (../shim.h). Names, types and values
 * are those of the real header. */
#ifndef SHIM_CUDA_H
#define SHIM_CUDA_H

#include <stdint.h>

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_UNKNOWN = 999 } CUresult;
typedef struct CUstream_st *CUstream;
typedef unsigned long long CUdeviceptr;

enum { CU_STREAM_WAIT_VALUE_GEQ = 0, CU_STREAM_WRITE_VALUE_DEFAULT = 0 };
typedef enum {
  CU_STREAM_MEM_OP_WAIT_VALUE_32 = 1,
  CU_STREAM_MEM_OP_WRITE_VALUE_32 = 2
} CUstreamBatchMemOpType;
typedef union CUstreamBatchMemOpParams {
  CUstreamBatchMemOpType operation;
  struct {
    CUstreamBatchMemOpType operation;
    CUdeviceptr address;
    union { uint32_t value; uint64_t value64; };
    unsigned flags;
    CUdeviceptr alias;
  } waitValue, writeValue;
  uint64_t pad[6];
} CUstreamBatchMemOpParams;

#ifdef __cplusplus
}
#endif

#endif
