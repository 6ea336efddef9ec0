/* SPDX-License-Identifier: MIT
 * The arena of a compile: a list of blocks, each at least twice as large as the previous one.
 * Allocations are cut from the newest block in order; nothing is freed before arena_free.
 *
 * Ensures: every pointer is aligned to 16 and not NULL, even for zero bytes. Cost: O(1) per
 * allocation; O(log n) calls to the system for n bytes. */
#define _DEFAULT_SOURCE /* mmap, madvise */
#include "arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "guard.h"

enum {
  ALIGN = 16,
  FIRST_BLOCK_BYTES = 64 * 1024,
  MAX_DOUBLE_BYTES = 1 << 30,
  HUGE_BYTES = 2 << 20,
  MIN_MAPPED_BYTES = 2 * HUGE_BYTES
};

struct ArenaBlock {
  Held held; /* first: end_block */
  ArenaBlock *older;
  size_t bytes; /* including this header */
};

/* The header takes a multiple of ALIGN, so the memory after it is aligned like that of malloc. */
enum { HEADER_BYTES = (sizeof(ArenaBlock) + ALIGN - 1) / ALIGN * ALIGN };

/* Allocates a block. Large blocks are mapped: zeroed, and in huge pages if the system has them.
 * NULL: no memory. */
static ArenaBlock *get_block(size_t *bytes) {
  if (*bytes < MIN_MAPPED_BYTES)
    return malloc(*bytes);
  *bytes = (*bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
  char *map = mmap(NULL, *bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
  if (map == MAP_FAILED)
    return NULL;
  size_t skip = (HUGE_BYTES - (uintptr_t)map % HUGE_BYTES) % HUGE_BYTES;
  if (skip)
    munmap(map, skip);
  munmap(map + skip + *bytes, HUGE_BYTES - skip);
#ifdef MADV_HUGEPAGE
  madvise(map + skip, *bytes, MADV_HUGEPAGE); /* advice: failing changes nothing */
#endif
  return (ArenaBlock *)(void *)(map + skip);
}

static void end_block(Held *held) {
  ArenaBlock *block = (ArenaBlock *)held;
  if (block->bytes >= MIN_MAPPED_BYTES)
    munmap(block, block->bytes);
  else
    free(block);
}

static void new_block(Arena *a, size_t bytes) {
  size_t block_bytes = FIRST_BLOCK_BYTES;
  if (a->block)
    block_bytes = a->block->bytes < MAX_DOUBLE_BYTES ? a->block->bytes * 2 : MAX_DOUBLE_BYTES;
  guard_poll();
  if (bytes > SIZE_MAX / 2)
    guard_no_memory(bytes);
  if (block_bytes < bytes + HEADER_BYTES)
    block_bytes = bytes + HEADER_BYTES;
  ArenaBlock *block = get_block(&block_bytes);
  if (!block)
    guard_no_memory(block_bytes);
  block->older = a->block;
  block->bytes = block_bytes;
  block->held.end = end_block;
  guard_hold(&block->held);
  a->block = block;
  a->cur = (char *)block + HEADER_BYTES;
  a->end = (char *)block + block_bytes;
  a->fresh = block_bytes >= MIN_MAPPED_BYTES;
  a->total_bytes += block_bytes;
}

void *arena_alloc(Arena *a, size_t bytes) {
  if (bytes > SIZE_MAX - ALIGN)
    guard_no_memory(bytes);
  bytes = bytes ? (bytes + ALIGN - 1) / ALIGN * ALIGN : ALIGN;
  if (!a->block || bytes > (size_t)(a->end - a->cur))
    new_block(a, bytes);
  void *p = a->cur;
  a->cur += bytes;
  return p;
}

void *arena_zalloc(Arena *a, size_t count, size_t each) {
  if (each && count > SIZE_MAX / each)
    guard_no_memory(SIZE_MAX);
  void *p = arena_alloc(a, count * each);
  if (!a->fresh)
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
  BUG_IF(n < 0);
  char *p = arena_alloc(a, (size_t)n + 1);
  va_start(args, fmt);
  vsnprintf(p, (size_t)n + 1, fmt, args);
  va_end(args);
  return p;
}

void arena_free(Arena *a) {
  for (ArenaBlock *block = a->block, *older; block; block = older) {
    older = block->older;
    guard_drop(&block->held);
    end_block(&block->held);
  }
  *a = (Arena){0};
}

void vec_grow(Arena *a, void **at, uint32_t *cap, size_t each) {
  uint32_t old_cap = *cap;
  uint32_t new_cap = old_cap ? old_cap * 2 : 8;
  if (new_cap < old_cap || new_cap > SIZE_MAX / each)
    guard_no_memory(SIZE_MAX);
  void *grown = arena_alloc(a, new_cap * each);
  if (old_cap)
    memcpy(grown, *at, old_cap * each);
  *at = grown;
  *cap = new_cap;
}
