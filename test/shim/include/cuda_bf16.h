/* SPDX-License-Identifier: MIT
 * bf16 on the CPU: the upper half of a float, rounded to nearest, ties to even. */
#ifndef SHIM_BF16_H
#define SHIM_BF16_H

#include <stdint.h>
#include <string.h>

typedef struct __nv_bfloat16 { uint16_t bits; } __nv_bfloat16;

static inline float __bfloat162float(__nv_bfloat16 x) {
  uint32_t bits = (uint32_t)x.bits << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}
static inline __nv_bfloat16 __float2bfloat16(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  __nv_bfloat16 x;
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    x.bits = 0x7fff; /* NaN */
  else
    x.bits = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
  return x;
}

#endif
