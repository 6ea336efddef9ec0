/* SPDX-License-Identifier: MIT
 * A group over TCP, each rank a thread here: what one shares all have, in any order of ranks; a
 * rank that fails is heard by all others, and so is one that goes without a word; one that has
 * another program is refused. A wait that is extended outlasts the patience of its rank. Rank 0,
 * which serves the store, leaves first: the others go on, with the store for some seconds and
 * without it after that. A message may come just before a rank leaves: under the thread sanitizer
 * the case `a value is left` finds what the reader of the group and pr_group_close share.
 *
 *   group_test    one line per case; exit status 0 iff all is as it should be */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "group.h"

enum { RANKS = 4, ROUNDS = 200, MOST = 5000 };

typedef enum Case {
  ALL_WELL,
  ONE_FAILS,
  ONE_IS_LATE,
  EXTENDED,
  VALUE_LEFT,
  FIRST_LEAVES,
  OTHER_PROGRAM
} Case;

typedef struct Rank {
  uint32_t id;
  Case what;
  PrLaunch at;
  PrGroupServer *server; /* of rank 0, where a rank serves the store */
  int wrong;
  char text[1024];
} Rank;

static void pause_s(double s) {
  nanosleep(&(struct timespec){(time_t)s, (long)((s - (double)(time_t)s) * 1e9)}, NULL);
}

static uint8_t byte_of(uint32_t round, uint32_t i) {
  return (uint8_t)(round * 31 + i * 7 + i / 251);
}

static void rounds(Rank *r, PrGroup *g) {
  uint8_t *data = malloc(MOST);
  for (uint32_t k = 0; k < ROUNDS; k++) {
    uint32_t from = k * 7 % RANKS, n = 1 + k * 97 % MOST;
    for (uint32_t i = 0; i < n; i++)
      data[i] = g->rank == from ? byte_of(k, i) : 0xee;
    r->wrong += g->share(g->arg, from, data, n) != 0;
    for (uint32_t i = 0; i < n; i++)
      r->wrong += data[i] != byte_of(k, i);
    const uint8_t mine = byte_of(k, r->id);
    if (k % 10 == 0)
      r->wrong += g->gather(g->arg, &mine, 1, data) != 0;
    for (uint32_t i = 0; k % 10 == 0 && g->rank == 0 && i < RANKS; i++)
      r->wrong += data[i] != byte_of(k, i);
  }
  free(data);
}

static uint32_t place(void *of, char to[PR_GROUP_PLACE]) {
  const Rank *r = of;
  return (uint32_t)snprintf(to, PR_GROUP_PLACE, "rank %u is here", r->id);
}

static pthread_barrier_t all_shared;

/* One finds that its step takes too long: all are asked where they are, and hear the same. */
static void ask(Rank *r, PrGroup *g) {
  char text[1024], want[PR_GROUP_PLACE], to[PR_GROUP_PLACE];
  int heard = 0;
  PrStatus st;
  if (r->id != 3) /* which does not say */
    g->watch(g->arg, place, r);
  char byte = 0;
  r->wrong += g->share(g->arg, 0, &byte, 1) != 0; /* all watch by now, or after the next */
  for (uint32_t i = 0; i < RANKS; i++)
    r->wrong += g->share(g->arg, i, &byte, 1) != 0;
  pthread_barrier_wait(&all_shared); /* a verdict ends what is being shared */
  if (r->id == 2)
    g->late(g->arg);
  while (!heard) {
    heard = g->heard(g->arg, &st, text, sizeof text);
    pause_s(0.005);
  }
  r->wrong += heard != 2;
  for (uint32_t i = 0; i < RANKS && heard == 2; i++) {
    int there = g->place(g->arg, i, to);
    snprintf(want, sizeof want, "rank %u is here", i);
    r->wrong += i == 3 ? there != 0 : there != 1 || strcmp(to, want) != 0;
  }
  g->watch(g->arg, NULL, NULL);
}

static void *extend(void *arg) {
  const PrGroup *g = arg;
  for (int i = 0; i < 20; i++, pause_s(0.1))
    g->extend(g->arg);
  return NULL;
}

/* Rank 0 waits twice for longer than its patience of a second; only the first wait is extended. */
static void outlast(Rank *r, PrGroup *g) {
  pthread_t thread;
  char mine = (char)r->id, all[RANKS];
  if (r->id == 0)
    pthread_create(&thread, NULL, extend, g);
  else
    pause_s(1.8);
  r->wrong += g->gather(g->arg, &mine, 1, all) != 0;
  if (r->id == 0)
    pthread_join(thread, NULL);
  else
    pause_s(1.8);
  r->wrong += (g->gather(g->arg, &mine, 1, all) != 0) != (r->id == 0);
}

/* Rank 1 sends a value that nobody takes: only the reader of each group hears of it. */
static void leave_value(Rank *r, PrGroup *g) {
  char byte = 1;
  if (r->id == 1)
    r->wrong += g->share(g->arg, 1, &byte, 1) != 0;
  pause_s(0.1); /* the value has come by then */
}

/* Rank 0 has left. */
static void go_on_alone(Rank *r, PrGroup *g) {
  PrStatus st;
  char text[1024], byte = (char)(r->id == 1);
  pause_s(0.5);
  r->wrong += g->share(g->arg, 1, &byte, 1) != 0 || byte != 1;
  pause_s(r->id == 3 ? 0 : 5.5); /* rank 0 serves for 5 s */
  r->wrong += g->heard(g->arg, &st, text, sizeof text) != 0;
}

static void *rank(void *arg) {
  Rank *r = arg;
  PipeProgram p = {
      .hash = r->what == OTHER_PROGRAM && r->id == 2 ? 2 : 1, .name = "net", .params = "P=4"};
  PrGroup *g;
  PrStatus st = r->what == EXTENDED || r->what == FIRST_LEAVES
                    ? group_join(&g, &p, &r->at, r->server, r->what == FIRST_LEAVES, 600, 1,
                                 r->text)
                    : pr_group_open(&g, &p, &r->at, 600, r->text);
  if (st) {
    r->wrong += r->what != OTHER_PROGRAM;
    return NULL;
  }
  r->wrong += r->what == OTHER_PROGRAM;
  rounds(r, g);
  if (r->what == EXTENDED)
    outlast(r, g);
  if (r->what == VALUE_LEFT)
    leave_value(r, g);
  if (r->what == FIRST_LEAVES && r->id > 0)
    go_on_alone(r, g);
  if (r->what == ONE_FAILS && r->id == 1) {
    pause_s(0.2); /* the others wait by then */
    g->tell(g->arg, PR_E_MODEL, "rank 1 has run out of luck");
  }
  if (r->what == ONE_FAILS &&
      r->id != 1) { /* for what never comes: it hears of the failure meanwhile */
    char byte;
    r->wrong += g->share(g->arg, 1, &byte, 1) == 0;
  }
  if (r->what == ONE_IS_LATE)
    ask(r, g);
  bool heard = false;
  while (r->what == ONE_FAILS && !heard) {
    heard = g->heard(g->arg, &st, r->text, sizeof r->text);
    pause_s(0.005);
  }
  r->wrong += heard != (r->what == ONE_FAILS) || (heard && st != PR_E_MODEL);
  pr_group_close(g);
  return NULL;
}

/* Returns how much is wrong, and what rank 0 heard. */
static int try_case(Case what, char heard[1024]) {
  Rank r[RANKS];
  pthread_t t[RANKS];
  PrLaunch at;
  PrGroupServer *server = pr_group_serve(RANKS, &at, heard);
  if (!server)
    return 1;
  for (uint32_t i = 0; i < RANKS; i++) {
    r[i] = (Rank){.id = i, .what = what, .at = at};
    r[i].server = i == 0 && what == FIRST_LEAVES ? server : NULL;
    r[i].at.rank = i;
    if (pthread_create(&t[i], NULL, rank, &r[i]))
      exit(2);
  }
  int wrong = 0;
  for (uint32_t i = 0; i < RANKS; i++) {
    pthread_join(t[i], NULL);
    wrong += r[i].wrong;
  }
  if (what != FIRST_LEAVES) /* else rank 0 has ended it */
    pr_group_serve_end(server);
  snprintf(heard, 1024, "%s", r[0].text);
  return wrong;
}

int main(void) {
  static const struct {
    const char *name;
    int times; /* the thread sanitizer remembers few accesses, and drops them at random */
  } row[] = {[ALL_WELL] = {"all well", 1},
             [ONE_FAILS] = {"one fails", 1},
             [ONE_IS_LATE] = {"one is late", 1},
             [EXTENDED] = {"a wait is extended", 1},
             [VALUE_LEFT] = {"a value is left", 20},
             [FIRST_LEAVES] = {"rank 0 leaves", 1},
             [OTHER_PROGRAM] = {"another program", 1}};
  int bad = 0;
  pthread_barrier_init(&all_shared, NULL, RANKS);
  for (Case what = ALL_WELL; what <= OTHER_PROGRAM; what++) {
    char heard[1024] = "";
    int wrong = 0;
    for (int i = 0; i < row[what].times; i++)
      wrong += try_case(what, heard);
    printf("%s: %d wrong; %s\n", row[what].name, wrong, heard);
    bad += wrong;
  }
  return bad != 0;
}
