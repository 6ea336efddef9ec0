/* SPDX-License-Identifier: MIT
 * Numbers that look random, from their indices alone. */
#ifndef NOISE_H
#define NOISE_H

#include <stdint.h>

/* In [-1, 1). */
static inline float noise(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t z = a * 0x9e3779b97f4a7c15u + b * 0xbf58476d1ce4e5b9u + c * 0x94d049bb133111ebu + 1;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (float)((double)((z ^ (z >> 31)) >> 11) / 4503599627370496.0 - 1.0);
}

#endif
