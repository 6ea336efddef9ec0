/* SPDX-License-Identifier: MIT
 * Memory by lifetime: one arena serves a compile from parse to emit and is freed once. Blocks grow
 * geometrically: a compile of n bytes calls malloc O(log n) times. If there is no memory, the
 * functions call guard_no_memory instead of returning. The guard of the thread holds the blocks of
 * all arenas (guard.h). A zeroed Arena is empty. */
#ifndef PIPE_ARENA_H
#define PIPE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ArenaBlock ArenaBlock;
typedef struct Arena {
  ArenaBlock *block;  /* newest first */
  char *cur, *end;
  bool fresh;         /* [cur, end) is zero: its pages are not taken from the system yet */
  size_t total_bytes; /* taken from the system so far */
} Arena;

void *arena_alloc(Arena *a, size_t bytes);              /* aligned to 16, uninitialized */
/* Zeroed; count * each is checked for overflow. Pages of a large block take no memory until
 * written. */
void *arena_zalloc(Arena *a, size_t count, size_t each);
char *arena_strndup(Arena *a, const char *s, size_t n); /* adds a NUL */
char *arena_printf(Arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_free(Arena *a); /* frees everything; the arena is then empty */

#define NEW(a, T) ((T *)arena_zalloc((a), 1, sizeof(T)))
#define NEW_ARRAY(a, T, n) ((T *)arena_zalloc((a), (n), sizeof(T)))

/* Growable array in an arena: VEC(T) v = {0}; *vec_push(a, &v) = x; then v.at[i], v.n. Growth
 * doubles the block; old blocks stay in the arena (together at most as large as the new one). */
#define VEC(T) struct { T *at; uint32_t n, cap; }
#define vec_push(a, v) \
  (((v)->n == (v)->cap ? vec_grow((a), (void **)&(v)->at, &(v)->cap, sizeof *(v)->at) : (void)0), \
   &(v)->at[(v)->n++])
void vec_grow(Arena *a, void **at, uint32_t *cap, size_t each);

#endif
