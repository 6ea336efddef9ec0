/* SPDX-License-Identifier: MIT
 * A compile that ends early leaks nothing and says why. Allocation number n fails, alone or with
 * all that follow, for the first DENSE n and then fewer, until the compile ends as it should. Each
 * time the memory and the open files of the process are then as before.
 *
 *   memory_test STDLIB DENSE */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "arena.h"
#include "guard.h"
#include "pipe_compile.h"

/* ---- allocation that fails, by ld --wrap; a range has several threads ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows */

static uint64_t count, fail_from, fail_to; /* allocations [fail_from, fail_to) fail; from 1 */

/* What there is now: blocks, bytes from the system, texts in memory, and open files. */
typedef struct State {
  uint64_t blocks, mapped, texts, files;
} State;
static State now;

/* The blocks, by address; open addressing. */
enum { ROOM = 1 << 16 };
static void *block[ROOM];

static void **place_of(void *p) {
  uint32_t k = (uint32_t)((uintptr_t)p >> 4) * 0x9E3779B1u >> 16;
  while (block[k] && block[k] != p)
    k = (k + 1) % ROOM;
  return &block[k];
}

static void *add(void *p) {
  pthread_mutex_lock(&lock);
  if (p)
    *place_of(p) = p, now.blocks++;
  pthread_mutex_unlock(&lock);
  return p;
}

/* Takes a block out, and puts what lies behind it where it is looked for. */
static void drop_block(void *p) {
  void **at = p ? place_of(p) : NULL;
  if (!at || !*at) /* of libc */
    return;
  *at = NULL, now.blocks--;
  for (uint32_t k = (uint32_t)(at - block + 1) % ROOM; block[k]; k = (k + 1) % ROOM) {
    void *other = block[k];
    block[k] = NULL;
    *place_of(other) = other;
  }
}

static void drop(void *p) {
  pthread_mutex_lock(&lock);
  drop_block(p);
  pthread_mutex_unlock(&lock);
}

static int fails(void) {
  pthread_mutex_lock(&lock);
  count++;
  const int fail = count >= fail_from && count < fail_to;
  pthread_mutex_unlock(&lock);
  if (fail)
    errno = ENOMEM;
  return fail;
}

/* Adds to a number of `now`. */
static void add_to(uint64_t *number, uint64_t n) {
  pthread_mutex_lock(&lock);
  *number += n;
  pthread_mutex_unlock(&lock);
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t each);
void __real_free(void *p);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t from);
int __real_munmap(void *at, size_t n);
FILE *__real_open_memstream(char **text, size_t *n);
FILE *__real_fopen(const char *path, const char *mode);
int __real_fclose(FILE *f);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t each);
void __wrap_free(void *p);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t from);
int __wrap_munmap(void *at, size_t n);
FILE *__wrap_open_memstream(char **text, size_t *n);
FILE *__wrap_fopen(const char *path, const char *mode);
int __wrap_fclose(FILE *f);

void *__wrap_malloc(size_t n) { return fails() ? NULL : add(__real_malloc(n)); }
void *__wrap_calloc(size_t n, size_t each) { return fails() ? NULL : add(__real_calloc(n, each)); }
void __wrap_free(void *p) {
  drop(p);
  __real_free(p);
}
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t from) {
  void *p = fails() ? MAP_FAILED : __real_mmap(at, n, prot, flags, fd, from);
  add_to(&now.mapped, p == MAP_FAILED ? 0 : n);
  return p;
}
int __wrap_munmap(void *at, size_t n) {
  add_to(&now.mapped, -(uint64_t)n);
  return __real_munmap(at, n);
}
FILE *__wrap_open_memstream(char **text, size_t *n) {
  FILE *f = fails() ? NULL : __real_open_memstream(text, n);
  add_to(&now.texts, f != NULL);
  return f;
}
FILE *__wrap_fopen(const char *path, const char *mode) {
  FILE *f = __real_fopen(path, mode);
  add_to(&now.texts, f != NULL);
  return f;
}
int __wrap_fclose(FILE *f) {
  add_to(&now.texts, UINT64_MAX);
  return __real_fclose(f);
}

static State state(void) {
  now.files = 0;
  DIR *dir = opendir("/proc/self/fd");
  while (dir && readdir(dir))
    now.files++;
  closedir(dir);
  return now;
}

/* ---- compiles ---- */

static const char stuck[] = "schedule stuck(P = 2, M = 2) {\n"
                            "  ranks P\n"
                            "  pipe net stages P mbs M place s -> s\n"
                            "  order r {\n"
                            "    if r == 0 { F(0) B(0) F(1) B(1) } else { F(1) F(0) B(0) B(1) }\n"
                            "    U\n"
                            "  }\n"
                            "}\n";
static const struct {
  const char *name, *text;
  const char *option[4];
} call[] = {
    {"1f1b", NULL, {"-DP=4", "-DM=8"}},
    {"1f1b", NULL, {"-DP=8", "-DM=512", "--emit=c"}},
    {"zb_v", NULL, {"--emit=svg"}},
    {"interleaved", NULL, {"--emit=html", "--lowering=channels"}},
    {"bpipe", NULL, {"--emit=json"}},
    {"chimera", NULL, {"--critical-path"}},
    {"zb_auto", NULL, {"--show"}},
    {"gpipe", NULL, {"--check", "-DM=4..8"}},
    {"pipedream_2bw", NULL, {"--emit=trace", "--verify"}},
    {"no_such_schedule", NULL, {NULL}},
    {"stuck.pipe", stuck, {NULL}},
    {"bad.json", "{\"pipec\": [1, 2", {NULL}},
};
enum { NCALLS = sizeof call / sizeof *call };

static PipeCompileStatus compile_call(size_t i, PipeCompiled **c) {
  int n = 0;
  while (n < 4 && call[i].option[n])
    n++;
  return pipe_compile(c, call[i].name, call[i].text, n, call[i].option);
}

static int failed;
static uint64_t tried;

/* False: n is behind the last allocation. */
static int try_from(size_t i, uint64_t n, uint64_t to, PipeCompileStatus whole, const char *output,
                    State before) {
  PipeCompiled *c;
  count = 0, fail_from = n, fail_to = to;
  PipeCompileStatus status = compile_call(i, &c);
  fail_from = fail_to = 0;
  const int hit = count >= n;
  if (status == whole
          ? strcmp(pipe_compiled_output(c, NULL), output) != 0
          : status != PIPE_COMPILE_NO_MEMORY || !strstr(pipe_compiled_messages(c), "memory"))
    failed = 1, printf("%s %s: allocation %llu: status %d: %s\n", call[i].name,
                       call[i].option[0] ? call[i].option[0] : "", (unsigned long long)n, status,
                       pipe_compiled_messages(c));
  pipe_compiled_free(c);
  State after = state();
  if (memcmp(&before, &after, sizeof after) != 0) {
    failed = 1;
    printf("%s %s: allocation %llu: %lld blocks, %lld bytes, %lld texts, %lld files are left\n",
           call[i].name, call[i].option[0] ? call[i].option[0] : "", (unsigned long long)n,
           (long long)(after.blocks - before.blocks), (long long)(after.mapped - before.mapped),
           (long long)(after.texts - before.texts), (long long)(after.files - before.files));
  }
  tried += (uint64_t)hit;
  return hit;
}

/* ---- a mistake of the compiler ---- */

static int ended;

static void end_one(void *of) { ended += *(const int *)of; }

static void mistaken(void *of) {
  Arena arena = {0};
  guard_own(of, end_one);
  BUG_IF(arena_strndup(&arena, "x", 1)[0] == 'x');
}

static void mistake(void) {
  Guard g;
  int one = 1;
  if (guard_run(&g, mistaken, &one) != GUARD_BUG || !strstr(g.why, "memory_test.c:") || ended)
    failed = 1, printf("a mistake: %s\n", g.why);
  guard_release(&g);
  if (ended != 1)
    failed = 1, printf("a mistake: %d things ended\n", ended);
}

int main(int argc, char **argv) {
  if (argc < 3)
    return 2;
  const uint64_t dense = (uint64_t)atoi(argv[2]);
  setenv("PIPE_STDLIB", argv[1], 1);
  mistake();
  for (size_t i = 0; i < NCALLS; i++) {
    PipeCompiled *c;
    State before = {0};
    char *output = NULL;
    PipeCompileStatus whole = PIPE_COMPILE_OK;
    for (int warm = 0; warm < 2; warm++) { /* libc keeps what it has once made */
      free(output);
      whole = compile_call(i, &c);
      output = strdup(pipe_compiled_output(c, NULL));
      pipe_compiled_free(c);
      before = state();
    }
    for (uint64_t n = 1; try_from(i, n, n + 1, whole, output, before); n += 1 + n / dense)
      try_from(i, n, UINT64_MAX, whole, output, before);
    free(output);
  }
  printf("%d compiles, %llu allocations failed\n", (int)NCALLS, (unsigned long long)tried);
  return failed;
}
