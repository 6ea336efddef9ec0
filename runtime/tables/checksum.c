/* SPDX-License-Identifier: MIT
 * See checksum.h. */
#include "checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t pr_checksum_after(uint64_t before, const void *data, uint64_t bytes) {
  return XXH3_64bits_withSeed(data, bytes, before);
}

uint64_t pr_checksum(const void *data, uint64_t bytes) { return pr_checksum_after(0, data, bytes); }
