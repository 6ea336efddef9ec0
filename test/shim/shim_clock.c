/* SPDX-License-Identifier: MIT
 * The clock of a run on the shim, and the threads that its hosts start. shim_test is linked with
 * both in place of the machine's (ld --wrap). A look at the clock takes 10 us, a sleep ten times as
 * long as it says, and nothing else takes time. So a deadline is over after the same looks on every
 * machine, and soon: nobody waits for it. */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "shim_run.h"

uint64_t __real_pr_now(void);
int __real_nanosleep(const struct timespec *t, struct timespec *left);
uint64_t __wrap_pr_now(void);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left);

enum { LOOK_NS = 10000, SLEEP = 10 };
static _Atomic uint64_t now_ns = 1000000000;

/* Threads that are no hosts, such as the one that watches a checkpoint, only read it. */
uint64_t __wrap_pr_now(void) {
  return !shim.on ? __real_pr_now() : atomic_fetch_add(&now_ns, shim_me() ? LOOK_NS : 0);
}

int __wrap_nanosleep(const struct timespec *t, struct timespec *left) {
  if (!shim_me())
    return __real_nanosleep(t, left);
  shim_rest();
  atomic_fetch_add(&now_ns, SLEEP * ((uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec));
  return 0;
}

/* A thread that the engine starts, in a step or before. */
typedef struct Start {
  Host *by;
  void *(*run)(void *);
  void *arg;
} Start;
static void *start(void *arg) {
  Start s = *(Start *)arg;
  free(arg);
  shim_start(s.by);
  return s.run(s.arg);
}
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg) {
  Start *s = shim_me() ? malloc(sizeof *s) : NULL;
  if (!s)
    return __real_pthread_create(t, a, f, arg);
  *s = (Start){shim_me(), f, arg};
  shim.threads += shim.steady;
  return __real_pthread_create(t, a, start, s);
}
