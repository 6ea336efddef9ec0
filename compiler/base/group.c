/* SPDX-License-Identifier: MIT
 * Groups rows by a number: a counting sort. Linear. */
#include <string.h>

#include "base.h"

uint32_t *group_by(Arena *a, const uint32_t *key, uint32_t n, uint32_t nkey, uint32_t **first) {
  uint32_t *at = *first = NEW_ARRAY(a, uint32_t, nkey + (size_t)1);
  for (uint32_t i = 0; i < n; i++)
    if (key[i] != NONE)
      at[key[i] + 1]++;
  for (uint32_t k = 0; k < nkey; k++)
    at[k + 1] += at[k];
  uint32_t *row = arena_alloc(a, at[nkey] * sizeof *row);
  for (uint32_t i = 0; i < n; i++)
    if (key[i] != NONE)
      row[at[key[i]]++] = i;
  memmove(at + 1, at, nkey * sizeof *at); /* at[k] is now where key k + 1 starts */
  at[0] = 0;
  return row;
}
