/* SPDX-License-Identifier: MIT
 * Ranges by name: the shim gives the innermost one to what is logged inside it. */
#ifndef SHIM_NVTX_H
#define SHIM_NVTX_H

int nvtxRangePushA(const char *name);
int nvtxRangePop(void);

#endif
