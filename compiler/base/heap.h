/* SPDX-License-Identifier: MIT
 * A binary heap in an array: at[0] goes before all other rows. */
#ifndef PIPEC_HEAP_H
#define PIPEC_HEAP_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Does row a go before row b? Must be a total order. of: passed on by the heap functions. */
typedef bool HeapBefore(const void *a, const void *b, const void *of);

/* Puts *row into a heap that then has n rows of `each` bytes. The array must have room for n
 * rows. */
static inline void heap_put(void *at, uint32_t n, size_t each, const void *row,
                            HeapBefore *before, const void *of) {
  char *const heap = at;
  uint32_t i = n - 1;
  for (uint32_t up; i > 0 && before(row, heap + (up = (i - 1) / 2) * each, of); i = up)
    memcpy(heap + i * each, heap + up * each, each);
  memcpy(heap + i * each, row, each);
}

/* Removes at[0] from a heap of n rows; read it before. */
static inline void heap_drop(void *at, uint32_t n, size_t each, HeapBefore *before,
                             const void *of) {
  char *const heap = at, *const last = heap + (n - 1) * each;
  uint32_t i = 0;
  for (uint32_t k; (k = 2 * i + 1) < n - 1; i = k) {
    k += k + 1 < n - 1 && before(heap + (k + 1) * each, heap + k * each, of);
    if (!before(heap + k * each, last, of))
      break;
    memcpy(heap + i * each, heap + k * each, each);
  }
  memmove(heap + i * each, last, each);
}

#endif
