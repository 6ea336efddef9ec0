/* SPDX-License-Identifier: MIT
 * The calls of NCCL that the engine makes, as the shim has them (../shim.h), in the form of 2.28.
 * */
#ifndef SHIM_NCCL_H
#define SHIM_NCCL_H

#include "cuda_runtime_api.h"

#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_SPLIT_NOCOLOR -1
typedef struct { char internal[NCCL_UNIQUE_ID_BYTES]; } ncclUniqueId;
typedef struct ncclComm *ncclComm_t;

typedef enum {
  ncclSuccess, ncclUnhandledCudaError, ncclSystemError, ncclInternalError, ncclInvalidArgument,
  ncclInvalidUsage, ncclRemoteError, ncclInProgress, ncclNumResults
} ncclResult_t;
typedef enum { ncclSum } ncclRedOp_t;
typedef enum {
  ncclInt8,
  ncclUint8,
  ncclInt32,
  ncclUint32,
  ncclInt64,
  ncclUint64,
  ncclFloat16,
  ncclFloat32,
  ncclFloat64,
  ncclBfloat16
} ncclDataType_t;
#define ncclChar ncclInt8

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_VERSION(major, minor, patch) ((major) * 10000 + (minor) * 100 + (patch))
#define NCCL_VERSION_CODE NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, 9)

/* 0 is what was not said */
typedef struct {
  size_t size;
  int blocking, splitShare, maxCTAs, minCTAs, cgaClusterSize, nChannelsPerNetPeer;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER { sizeof(ncclConfig_t), 1, 0, 0, 0, 0, 0 }

ncclResult_t ncclGetVersion(int *version);
const char *ncclGetErrorString(ncclResult_t r);
const char *ncclGetLastError(ncclComm_t c);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *c, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config);
ncclResult_t ncclCommFinalize(ncclComm_t c);
ncclResult_t ncclCommDestroy(ncclComm_t c);
ncclResult_t ncclCommAbort(ncclComm_t c);
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *r);
ncclResult_t ncclMemAlloc(void **p, size_t bytes);
ncclResult_t ncclMemFree(void *p);
ncclResult_t ncclCommRegister(const ncclComm_t c, void *p, size_t bytes, void **handle);
ncclResult_t ncclCommDeregister(const ncclComm_t c, void *handle);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(const void *p, size_t n, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t s);
ncclResult_t ncclRecv(void *p, size_t n, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t s);
ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t c, cudaStream_t s);

#endif
