/* SPDX-License-Identifier: MIT
 * store_test WHAT: one rank of a test of the store; pipe-run starts as many as are wanted.
 *
 *   values       each shares its rank, a large value and an empty one; all get all of them, also
 *                those that are not there yet; rank 0 gathers some
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

#include "group.h"
#include "store.h"

static PrLaunch me;

static uint32_t place(void *of, char to[PR_GROUP_PLACE]) {
  (void)of;
  return (uint32_t)snprintf(to, PR_GROUP_PLACE, "place %u", me.rank);
}

static void nap(void) { nanosleep(&(struct timespec){0, 5000000}, NULL); }

/* Until it hears something, which it prints. */
static void hear(const PrGroup *g) {
  char why[STORE_TEXT], at[PR_GROUP_PLACE], text[2048];
  PrStatus st = PR_OK;
  int what;
  while (!(what = g->heard(g->arg, &st, why, sizeof why)))
    nap();
  int n = snprintf(text, sizeof text, "rank %u hears: %s", me.rank, why);
  if (what == 1)
    snprintf(text + n, sizeof text - (size_t)n, ", status %d", st);
  for (uint32_t r = 0; what == 2 && r < me.size; r++) {
    const int there = g->place(g->arg, r, at);
    n += snprintf(text + n, sizeof text - (size_t)n, "; %u %s%s", r,
                  there < 0    ? "is gone"
                  : there == 0 ? "is silent"
                               : "answers at ",
                  there > 0 ? at : "");
  }
  puts(text);
  fflush(stdout);
}

static int values(const PrGroup *g) {
  enum { LARGE = 3000000 };
  char *large = malloc(LARGE), text[32], want[32];
  uint32_t right = 0;
  if (me.rank == 0) /* the others wait */
    for (int i = 0; i < 20; i++)
      nap();
  for (uint32_t r = 0; r < me.size && large; r++) {
    memset(text, 0, sizeof text);
    memset(want, 0, sizeof want);
    snprintf(want, sizeof want, "it is %u", r);
    snprintf(text, sizeof text, "it is %u", me.rank);
    right += !g->share(g->arg, r, text, sizeof text) && !memcmp(text, want, sizeof want);
    for (int i = 0; i < LARGE; i++)
      large[i] = (char)(i * 7 + (int)me.rank);
    bool same = !g->share(g->arg, r, large, LARGE);
    for (int i = 0; same && i < LARGE; i++)
      same = large[i] == (char)(i * 7 + (int)r);
    right += same;
  }
  free(large);
  uint32_t all[16] = {0};
  bool same = me.size <= 16 && !g->gather(g->arg, &me.rank, sizeof me.rank, all);
  for (uint32_t r = 0; me.rank == 0 && r < me.size; r++)
    same = same && all[r] == r;
  right += same;
  right += !g->share(g->arg, 0, NULL, 0);
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
    StoreHead h = {STORE_MAGIC, (uint32_t)(i % 2 ? STORE_VALUE : 77), i % 3 ? 8u : 4000000000u, 0};
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
static void strangers(const PipeProgram *p) {
  for (int i = 0; i < 5; i++) {
    char why[STORE_TEXT] = "", *text = NULL;
    StoreJoin j = {.size = me.size, .hash = p->hash};
    snprintf(j.name, sizeof j.name, "%s %s", p->name, p->params);
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

/* Rank 1. */
static void wait_until_stopped(pid_t pid) {
  char path[64], state = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
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
  const bool other = (!strcmp(what, "hash") || !strcmp(what, "steers")) && me.rank == 2;
  char params[32];
  PrLaunch at = me;
  if (!strcmp(what, "twice") && me.rank == 0)
    at.rank = 1;
  if (!strcmp(what, "size") && me.rank == 1)
    at.size++;
  snprintf(params, sizeof params, "%u%s", me.rank, strcmp(what, "steers") ? "" : "\033[31m");
  const PipeProgram p = {.hash = other ? 0xdef : 0xabc, .name = "schedule", .params = params};
  PrGroup *g;
  if (group_join(&g, &p, &at, NULL, false, !strcmp(what, "early") ? 1 : 600, 600, why)) {
    printf("rank %u: %s\n", me.rank, why);
    return 1;
  }
  g->watch(g->arg, place, NULL);
  if (!strcmp(what, "strangers") && me.rank == 0)
    strangers(&p);
  if (!strcmp(what, "values") || !strcmp(what, "noise") || !strcmp(what, "strangers")) {
    values(g);
  } else {
    pid_t pid = getpid(); /* what rank 1 shares; by then all have said where they are found */
    for (uint32_t r = me.size; r-- > 0;) {
      pid_t its = pid;
      g->share(g->arg, r, &its, sizeof its);
      pid = r == 1 && me.rank != 1 ? its : pid;
    }
    if (!strcmp(what, "failed") && me.rank == 1)
      g->tell(g->arg, PR_E_MODEL, "the callback returned 9");
    if (!strcmp(what, "orphan") && me.rank == 1 && system("sleep 60 >/dev/null 2>&1 &") != 0)
      return 1;
    if ((!strcmp(what, "gone") || !strcmp(what, "orphan")) && me.rank == 1)
      raise(SIGKILL);
    if (!strcmp(what, "silent") && me.rank == 1)
      raise(SIGSTOP);
    if (!strcmp(what, "silent") && me.rank == 0)
      wait_until_stopped(pid);
    if ((!strcmp(what, "late") || !strcmp(what, "silent")) && me.rank == 0)
      g->late(g->arg);
    hear(g);
  }
  pr_group_close(g);
  return 0;
}
