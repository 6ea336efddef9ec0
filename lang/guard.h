/* SPDX-License-Identifier: MIT
 * How a compile ends that cannot go on: it has no memory, or the compiler has a mistake. guard_fail
 * jumps back to the guard_run of its thread, from wherever it is called. What the compile holds is
 * not lost: blocks of arenas, open files and results of libraries hang on the guard until
 * guard_release.
 *
 * A thread has at most one guard at a time. Without one, as in tests, guard_fail prints and
 * aborts. */
#ifndef PIPE_GUARD_H
#define PIPE_GUARD_H

#include <setjmp.h>
#include <stdio.h>

typedef enum GuardEnd { GUARD_DONE, GUARD_MEMORY, GUARD_BUG } GuardEnd;

/* The head of something that a guard holds, in a ring; end gives it back, with this head. */
typedef struct Held {
  struct Held *older, *newer;
  void (*end)(struct Held *);
} Held;

typedef struct Guard {
  Held ring;
  GuardEnd end;
  char why[512]; /* of an end other than GUARD_DONE */
  jmp_buf back;
} Guard;

/* Calls run(arg). Returns how it ended; what it has left held stays so until guard_release, which
 * any thread may call. */
GuardEnd guard_run(Guard *g, void (*run)(void *arg), void *arg);
void guard_release(Guard *g);

_Noreturn void guard_fail(GuardEnd end, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
_Noreturn void guard_no_memory(size_t wanted); /* bytes; 0: unknown */

/* Hangs `h`, whose end is set, on the guard of this thread; without one, on nothing. */
void guard_hold(Held *h);
void guard_drop(Held *h); /* takes it off, without ending it */

/* The same for what has no head; guard_end gives it back early. NULL is nothing. */
void *guard_own(void *what, void (*end)(void *what));
void guard_end(void *what, void (*end)(void *what));
FILE *guard_open(const char *path); /* for reading; NULL: errno */
void guard_close(FILE *f);

/* A file in memory. guard_text_done writes out what is buffered: text then has n bytes, and a
 * NUL. */
typedef struct GuardText {
  FILE *f;
  char *text;
  size_t n;
} GuardText;
GuardText *guard_text(void);
void guard_text_done(GuardText *t); /* fails without memory */
void guard_text_end(GuardText *t);

#define BUG_IF(cond) \
  do { \
    if (cond) \
      guard_fail(GUARD_BUG, "%s:%d: %s", __FILE__, __LINE__, #cond); \
  } while (0)

#endif
