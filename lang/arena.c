/* SPDX-License-Identifier: MIT
 * The arena of a compile: a list of blocks, each at least twice as large as the one before, from
 * which memory is cut off in order. Nothing is given back before arena_free.
 *
 * Requires: `oom`, when set, does not return. Ensures: every pointer is 16-aligned and never NULL,
 * also for zero bytes. Cost: O(1) for each allocation, O(log n) calls to malloc for n bytes. */
#define _DEFAULT_SOURCE /* madvise */
#include "arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 16, FIRST_BLOCK_BYTES = 64 * 1024, MAX_DOUBLE_BYTES = 1 << 30 };

struct ArenaBlock {
  ArenaBlock *older;
  size_t bytes; /* with this header */
};

/* The header takes a whole number of ALIGN units, so what follows it is aligned as malloc is. */
enum { HEADER_BYTES = (sizeof(ArenaBlock) + ALIGN - 1) / ALIGN * ALIGN };

static void out_of_memory(Arena *a, size_t wanted) {
  if (a->oom)
    a->oom(wanted);
  abort();
}

/* Large blocks in huge pages where the system has them: touching a block for the first time is
 * otherwise most of the cost of a large compile. */
static ArenaBlock *get_block(size_t *bytes) {
#ifdef MADV_HUGEPAGE
  enum { HUGE_BYTES = 2 << 20 };
  if (*bytes >= 2 * HUGE_BYTES) {
    *bytes = (*bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    void *block = aligned_alloc(HUGE_BYTES, *bytes);
    if (block)
      madvise(block, *bytes, MADV_HUGEPAGE); /* advice: failing changes nothing */
    return block;
  }
#endif
  return malloc(*bytes);
}

static void new_block(Arena *a, size_t bytes) {
  size_t block_bytes = FIRST_BLOCK_BYTES;
  if (a->block)
    block_bytes = a->block->bytes < MAX_DOUBLE_BYTES ? a->block->bytes * 2 : MAX_DOUBLE_BYTES;
  if (bytes > SIZE_MAX / 2)
    out_of_memory(a, bytes);
  if (block_bytes < bytes + HEADER_BYTES)
    block_bytes = bytes + HEADER_BYTES;
  ArenaBlock *block = get_block(&block_bytes);
  if (!block)
    out_of_memory(a, block_bytes);
  block->older = a->block;
  block->bytes = block_bytes;
  a->block = block;
  a->cur = (char *)block + HEADER_BYTES;
  a->end = (char *)block + block_bytes;
  a->total_bytes += block_bytes;
}

void *arena_alloc(Arena *a, size_t bytes) {
  if (bytes > SIZE_MAX - ALIGN)
    out_of_memory(a, bytes);
  bytes = bytes ? (bytes + ALIGN - 1) / ALIGN * ALIGN : ALIGN;
  if (!a->block || bytes > (size_t)(a->end - a->cur))
    new_block(a, bytes);
  void *p = a->cur;
  a->cur += bytes;
  return p;
}

void *arena_zalloc(Arena *a, size_t count, size_t each) {
  if (each && count > SIZE_MAX / each)
    out_of_memory(a, SIZE_MAX);
  void *p = arena_alloc(a, count * each);
  memset(p, 0, count * each);
  return p;
}

char *arena_strndup(Arena *a, const char *s, size_t n) {
  char *p = arena_alloc(a, n + 1);
  if (n)
    memcpy(p, s, n);
  p[n] = '\0';
  return p;
}

char *arena_printf(Arena *a, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(NULL, 0, fmt, args);
  va_end(args);
  if (n < 0)
    abort();
  char *p = arena_alloc(a, (size_t)n + 1);
  va_start(args, fmt);
  vsnprintf(p, (size_t)n + 1, fmt, args);
  va_end(args);
  return p;
}

void arena_forget(void *p, size_t bytes) {
#ifdef MADV_DONTNEED
  enum { PAGE = 64 * 1024, WORTH = 1 << 20 }; /* a multiple of the system's */
  if (bytes < WORTH)
    return;
  uintptr_t from = ((uintptr_t)p + PAGE - 1) / PAGE * PAGE,
            to = ((uintptr_t)p + bytes) / PAGE * PAGE;
  if (to > from)
    madvise((void *)from, to - from, MADV_DONTNEED); /* advice, too */
#else
  (void)p, (void)bytes;
#endif
}

void arena_free(Arena *a) {
  for (ArenaBlock *block = a->block, *older; block; block = older) {
    older = block->older;
    free(block);
  }
  a->block = NULL;
  a->cur = a->end = NULL;
  a->total_bytes = 0;
}

void vec_grow(Arena *a, void **at, uint32_t *cap, size_t each) {
  uint32_t old_cap = *cap;
  uint32_t new_cap = old_cap ? old_cap * 2 : 8;
  if (new_cap < old_cap || new_cap > SIZE_MAX / each)
    out_of_memory(a, SIZE_MAX);
  void *grown = arena_alloc(a, new_cap * each);
  if (old_cap)
    memcpy(grown, *at, old_cap * each);
  *at = grown;
  *cap = new_cap;
}
