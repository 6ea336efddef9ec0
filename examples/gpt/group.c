/* SPDX-License-Identifier: MIT
 * See group.h. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "group.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 1 << 20, PATIENCE_S = 120 };

struct Group {
  pthread_mutex_t lock;
  pthread_cond_t met;
  uint32_t size, arrived;
  uint64_t round;
  int failed;
  char text[1024];
  char data[CHUNK];
};
static struct Group *group; /* this process's view */

static void locked(void) {
  if (pthread_mutex_lock(&group->lock) == EOWNERDEAD)
    pthread_mutex_consistent(&group->lock);
}

/* Until all have come. 0, or 1: one has failed, or does not come. */
static int meet(void) {
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += PATIENCE_S;
  locked();
  uint64_t round = group->round;
  if (++group->arrived == group->size) {
    group->arrived = 0;
    group->round++;
    pthread_cond_broadcast(&group->met);
  }
  int bad = 0;
  while (!bad && group->round == round && !group->failed)
    bad = pthread_cond_timedwait(&group->met, &group->lock, &end) == ETIMEDOUT;
  bad |= group->round == round;
  pthread_mutex_unlock(&group->lock);
  return bad;
}

static int share(void *arg, uint32_t from, void *data, uint64_t bytes) {
  const PrGroup *me = arg;
  for (uint64_t at = 0; at < bytes || at == 0; at += CHUNK) {
    size_t n = bytes - at < CHUNK ? (size_t)(bytes - at) : CHUNK;
    if (me->rank == from)
      memcpy(group->data, (char *)data + at, n);
    if (meet())
      return 1;
    if (me->rank != from)
      memcpy((char *)data + at, group->data, n);
    if (meet())
      return 1;
  }
  return 0;
}

static void tell(void *arg, const char *text) {
  (void)arg;
  locked();
  if (!group->failed)
    snprintf(group->text, sizeof group->text, "%s", text);
  group->failed = 1;
  pthread_cond_broadcast(&group->met);
  pthread_mutex_unlock(&group->lock);
}

static int heard(void *arg, char *text, uint64_t n) {
  (void)arg;
  if (!*(volatile int *)&group->failed)
    return 0;
  locked();
  snprintf(text, n, "%s", group->text);
  pthread_mutex_unlock(&group->lock);
  return 1;
}

Group *group_fork(uint32_t size, PrGroup *of, int *status) {
  *status = 2;
  group = mmap(NULL, sizeof *group, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (group == MAP_FAILED)
    return NULL;
  pthread_mutexattr_t m;
  pthread_condattr_t c;
  pthread_mutexattr_init(&m);
  pthread_mutexattr_setpshared(&m, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&m, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&group->lock, &m);
  pthread_condattr_init(&c);
  pthread_condattr_setpshared(&c, PTHREAD_PROCESS_SHARED);
  pthread_cond_init(&group->met, &c);
  group->size = size;
  fflush(NULL);
  for (uint32_t r = 0; r < size; r++) {
    pid_t pid = fork();
    if (pid < 0)
      return NULL;
    if (pid == 0) {
      *of = (PrGroup){r, size, share, tell, heard, of};
      *status = 0;
      return group;
    }
  }
  *status = 0;
  for (int one; wait(&one) > 0;) {
    int code = WIFSIGNALED(one) ? 128 + WTERMSIG(one) : WEXITSTATUS(one);
    *status = *status ? *status : code;
  }
  return NULL;
}
