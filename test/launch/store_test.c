/* SPDX-License-Identifier: MIT
 * store_test WHAT: one rank of a test of the store; pipe-run starts as many as are wanted.
 *
 *   values       each puts its rank under a name, and large and empty values; all get all of them,
 *                also those that are not there yet
 *   hash         rank 2 shows another hash; steers: names would change a terminal's colours, too;
 *                twice: two processes say that they are rank 1
 *   size         rank 1 says that there are more ranks
 *   failed       rank 1 says that it has failed; late: rank 0 that its step takes too long
 *   gone         rank 1 ends without a good-bye; silent: it stops, and rank 0, which waits for
 *                that, is late
 *   early        rank 1 never comes
 *   orphan       rank 1 leaves a program behind that it has started, and ends as in `gone`
 *   strangers    rank 0 makes some that come when all are there, and go, some without the key; the
 *                others get their values all the same
 *   noise        rank 0 sends what is no message from many connections; the others get their values
 *
 * Every process prints what it hears, in one line. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pipe_launch.h"
#include "store.h"

static PrLaunch me;
static _Atomic int heard; /* a verdict */

static uint32_t place(void *arg, char to[STORE_PLACE]) {
  (void)arg;
  return (uint32_t)snprintf(to, STORE_PLACE, "place %u", me.rank);
}

static void verdict(void *arg, const StoreVerdict *v, const StorePlace *at) {
  static const char *const cause[] = {"nothing", "late", "gone", "failed"}, *const condition[] = {
                                                                                "answers",
                                                                                "is silent",
                                                                                "is gone"};
  char text[2048];
  int n = snprintf(text, sizeof text, "rank %u hears: %s, rank %u", me.rank, cause[v->cause],
                   v->rank);
  (void)arg;
  if (v->cause == STORE_HAS_FAILED)
    n += snprintf(text + n, sizeof text - (size_t)n, ", status %d, %s", v->status, v->text);
  for (uint32_t r = 0; v->cause != STORE_HAS_FAILED && r < v->size; r++)
    n += snprintf(text + n, sizeof text - (size_t)n, "; %u %s%s%.*s", r, condition[at[r].condition],
                  at[r].bytes ? " at " : "", (int)at[r].bytes, at[r].place);
  puts(text);
  fflush(stdout);
  heard = 1;
}

static void nap(void) { nanosleep(&(struct timespec){0, 5000000}, NULL); }

static int values(Store *s) {
  enum { LARGE = 3000000 };
  char name[STORE_NAME], *large = malloc(LARGE), text[32];
  uint32_t n, right = 0;
  for (int i = 0; large && i < LARGE; i++)
    large[i] = (char)(i * 7 + (int)me.rank);
  if (me.rank == 0) /* the others wait */
    for (int i = 0; i < 20; i++)
      nap();
  snprintf(name, sizeof name, "rank %u", me.rank);
  int len = snprintf(text, sizeof text, "it is %u", me.rank);
  bool ok = store_put(s, name, text, (uint32_t)len);
  snprintf(name, sizeof name, "large %u", me.rank);
  ok = ok && store_put(s, name, large, LARGE) && store_put(s, "empty", NULL, 0);
  for (uint32_t r = 0; r < me.size && ok; r++) {
    snprintf(name, sizeof name, "rank %u", r);
    char *got = store_get(s, name, &n, 600);
    len = snprintf(text, sizeof text, "it is %u", r);
    right += got && n == (uint32_t)len && !memcmp(got, text, n);
    free(got);
    snprintf(name, sizeof name, "large %u", r);
    got = store_get(s, name, &n, 600);
    bool same = got && n == LARGE;
    for (int i = 0; same && i < LARGE; i++)
      same = got[i] == (char)(i * 7 + (int)r);
    right += same;
    free(got);
  }
  char *empty = store_get(s, "empty", &n, 600);
  right += empty && n == 0;
  free(empty);
  right += store_get(s, "never", &n, 0.05) == NULL;
  free(large);
  printf("rank %u: %u of %u values are right\n", me.rank, right, 2 * me.size + 2);
  return 0;
}

static int noise(const char *addr) {
  char why[STORE_TEXT], text[400];
  memset(text, 'x', sizeof text);
  for (int i = 0; i < 40; i++) {
    int fd = store_socket(addr, false, why);
    if (fd < 0)
      continue;
    StoreHead h = {STORE_MAGIC, (uint32_t)(i % 2 ? STORE_PUT : 77), i % 3 ? 8u : 4000000000u, 0};
    if (i % 4 && write(fd, &h, i % 5 ? sizeof h : 3) < 0)
      continue;
    if (write(fd, text, i % 7 ? sizeof text : 1) < 0)
      continue;
    if (i % 2)
      close(fd);
  }
  return 0;
}

/* Processes that have the key and come when all ranks are here, and such as have another version,
 * or no key. */
static void strangers(const StoreJoin *me_too) {
  for (int i = 0; i < 5; i++) {
    char why[STORE_TEXT] = "", *text = NULL;
    StoreJoin j = *me_too;
    StoreHello h = store_hello(i == 4 ? "guessed" : me.key);
    StoreType type = STORE_NTYPES;
    uint32_t n;
    j.rank = 1;
    j.hash += i == 1;
    j.size += i == 2;
    h.version -= i == 3;
    int fd = i < 3 ? store_connect(me.store, me.key, why) : store_socket(me.store, false, why);
    if (fd >= 0 && (i < 3 ? store_send(fd, STORE_JOIN, &j, sizeof j, NULL, 0)
                          : store_send(fd, STORE_HELLO, &h, sizeof h, NULL, 0)))
      store_receive(fd, &type, &text, &n);
    printf("a stranger: %s\n", type == STORE_REFUSED ? text : "not refused");
    free(text);
    if (fd >= 0)
      close(fd);
  }
}

/* Rank 1, which has said what process it is. */
static void wait_until_stopped(Store *s) {
  uint32_t n;
  char path[64], state = 0;
  pid_t *pid = store_get(s, "pid", &n, 600);
  snprintf(path, sizeof path, "/proc/%d/stat", pid ? (int)*pid : 0);
  free(pid);
  while (state != 'T') {
    FILE *in = fopen(path, "r");
    if (!in || fscanf(in, "%*d (%*[^)]) %c", &state) != 1)
      state = 'T';
    if (in)
      fclose(in);
    nap();
  }
}

int main(int argc, char **argv) {
  char why[STORE_TEXT] = "";
  const char *what = argc > 1 ? argv[1] : "";
  if (pr_launch(&me, why) || !me.store[0]) {
    fprintf(stderr, "store_test: %s\n", why);
    return 2;
  }
  if (!strcmp(what, "early") && me.rank == 1)
    return 0;
  if (!strcmp(what, "noise") && me.rank == 0)
    noise(me.store);
  StoreJoin join = {.rank = me.rank, .size = me.size, .hash = 0xabc};
  if ((!strcmp(what, "hash") || !strcmp(what, "steers")) && me.rank == 2)
    join.hash = 0xdef;
  if (!strcmp(what, "twice") && me.rank == 0)
    join.rank = 1;
  if (!strcmp(what, "size") && me.rank == 1)
    join.size++;
  snprintf(join.name, sizeof join.name, "schedule %u%s", me.rank,
           strcmp(what, "steers") ? "" : "\033[31m");
  const StoreHooks hooks = {NULL, place, verdict};
  Store *s = store_join(me.store, me.key, &join, &hooks, !strcmp(what, "early") ? 1 : 600, why);
  if (!s) {
    printf("rank %u: %s\n", me.rank, why);
    return 1;
  }
  if (!strcmp(what, "strangers") && me.rank == 0)
    strangers(&join);
  if (!strcmp(what, "values") || !strcmp(what, "noise") || !strcmp(what, "strangers")) {
    values(s);
  } else {
    if (!strcmp(what, "failed") && me.rank == 1)
      store_failed(s, 4, "the callback returned 9");
    if (!strcmp(what, "orphan") && me.rank == 1 && system("sleep 60 >/dev/null 2>&1 &") != 0)
      return 1;
    if ((!strcmp(what, "gone") || !strcmp(what, "orphan")) && me.rank == 1)
      raise(SIGKILL);
    if (!strcmp(what, "silent") && me.rank == 1) {
      pid_t pid = getpid();
      store_put(s, "pid", &pid, sizeof pid);
      raise(SIGSTOP);
    }
    if (!strcmp(what, "silent") && me.rank == 0)
      wait_until_stopped(s);
    if ((!strcmp(what, "late") || !strcmp(what, "silent")) && me.rank == 0)
      store_late(s);
    while (!heard)
      nap();
  }
  store_leave(s);
  return 0;
}
