/* SPDX-License-Identifier: MIT
 * Ends a compile that cannot continue, because it has no memory or the compiler has a bug, or that
 * its caller stops.
 * guard_fail jumps back to the guard_run of its thread from any depth. Nothing leaks: the guard
 * holds blocks of arenas, open files and results of libraries until guard_release.
 *
 * A thread has at most one guard at a time. Without a guard, as in tests, guard_fail prints and
 * aborts. */
#ifndef PIPE_GUARD_H
#define PIPE_GUARD_H

#include <setjmp.h>
#include <stdio.h>

typedef enum GuardEnd { GUARD_DONE, GUARD_MEMORY, GUARD_BUG, GUARD_STOPPED } GuardEnd;

/* Header of an object that a guard holds, in a ring; end(header) frees the object. */
typedef struct Held {
  struct Held *older, *newer;
  void (*end)(struct Held *);
} Held;

typedef struct Guard {
  Held ring;
  GuardEnd end;
  char why[512]; /* reason of an end other than GUARD_DONE */
  const volatile int *stop; /* see guard_stop; NULL */
  jmp_buf back;
} Guard;

/* Calls run(arg) and returns how it ended. The objects still held stay valid until guard_release,
 * which any thread may call. */
GuardEnd guard_run(Guard *g, void (*run)(void *arg), void *arg);
void guard_release(Guard *g);

/* Lets any thread end the run of this thread: it sets *stop to a value other than 0. */
void guard_stop(const volatile int *stop);
const volatile int *guard_stopper(void); /* what guard_stop was given; NULL: nothing */
/* Ends the run if *stop is set. Work that can take long calls it every few milliseconds. */
void guard_poll(void);

_Noreturn void guard_fail(GuardEnd end, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
_Noreturn void guard_no_memory(size_t wanted); /* bytes; 0: unknown */

/* Adds `h`, whose `end` is set, to the guard of this thread; does nothing without a guard. */
void guard_hold(Held *h);
void guard_drop(Held *h); /* removes it without calling `end` */

/* As guard_hold, for an object without a header; guard_end frees it early. `what` NULL: no
 * effect. */
void *guard_own(void *what, void (*end)(void *what));
void guard_end(void *what, void (*end)(void *what));
FILE *guard_open(const char *path); /* opens for reading; NULL: see errno */
void guard_close(FILE *f);

/* A file in memory. guard_text_done flushes it: text then has n bytes and a NUL. */
typedef struct GuardText {
  FILE *f;
  char *text;
  size_t n;
} GuardText;
GuardText *guard_text(void);
void guard_text_done(GuardText *t); /* calls guard_fail if there is no memory */
void guard_text_end(GuardText *t);

#define BUG_IF(cond) \
  do { \
    if (cond) \
      guard_fail(GUARD_BUG, "%s:%d: %s", __FILE__, __LINE__, #cond); \
  } while (0)

#endif
