/* SPDX-License-Identifier: MIT
 * Checksums of tensors and files: XXH3 with 64 bits. Not installed. */
#ifndef PIPE_CHECKSUM_H
#define PIPE_CHECKSUM_H

#include <stdint.h>

uint64_t pr_checksum(const void *data, uint64_t bytes);
/* Continues a checksum: the result covers the data of `before`, then `data`. */
uint64_t pr_checksum_after(uint64_t before, const void *data, uint64_t bytes);

#endif
