/* SPDX-License-Identifier: MIT
 * Memory by lifetime: one arena from parse to emit, freed once. Blocks grow geometrically, so a
 * compile of n bytes costs O(log n) calls to malloc. Without memory it ends by guard_no_memory; the
 * guard of the thread holds the blocks of all arenas (guard.h). An arena begins as all zero. */
#ifndef PIPE_ARENA_H
#define PIPE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ArenaBlock ArenaBlock;
typedef struct Arena {
  ArenaBlock *block;  /* newest first */
  char *cur, *end;
  bool fresh;         /* what lies between these is zero, and not yet taken from the system */
  size_t total_bytes; /* taken from the system so far */
} Arena;

void *arena_alloc(Arena *a, size_t bytes);              /* 16-aligned, uninitialised */
/* zeroed; the product is checked. Pages of a large one that nobody writes take no memory */
void *arena_zalloc(Arena *a, size_t count, size_t each);
char *arena_strndup(Arena *a, const char *s, size_t n); /* adds a NUL */
char *arena_printf(Arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_free(Arena *a);                              /* everything; the arena is empty again */

#define NEW(a, T) ((T *)arena_zalloc((a), 1, sizeof(T)))
#define NEW_ARRAY(a, T, n) ((T *)arena_zalloc((a), (n), sizeof(T)))

/* Growable array in an arena: VEC(T) v = {0}; *vec_push(a, &v) = x; use v.at[i], v.n. Growth
 * doubles; the old block stays in the arena (at most as much again). */
#define VEC(T) struct { T *at; uint32_t n, cap; }
#define vec_push(a, v) \
  (((v)->n == (v)->cap ? vec_grow((a), (void **)&(v)->at, &(v)->cap, sizeof *(v)->at) : (void)0), \
   &(v)->at[(v)->n++])
void vec_grow(Arena *a, void **at, uint32_t *cap, size_t each);

#endif
