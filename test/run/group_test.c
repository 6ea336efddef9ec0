/* SPDX-License-Identifier: MIT
 * A group over TCP, each rank a thread here: what one shares all have, in any order of ranks; a
 * rank that fails is heard by all others, and so is one that goes without a word; one that has
 * another program is refused.
 *
 *   group_test    one line per case; exit status 0 iff all is as it should be */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pipe_group.h"

enum { RANKS = 4, ROUNDS = 200, MOST = 5000 };

typedef enum Case { ALL_WELL, ONE_FAILS, ONE_IS_LATE, OTHER_PROGRAM } Case;

typedef struct Rank {
  uint32_t id;
  Case what;
  PrLaunch at;
  int wrong;
  char text[1024];
} Rank;

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
    nanosleep(&(struct timespec){0, 5000000}, NULL);
  }
  r->wrong += heard != 2;
  for (uint32_t i = 0; i < RANKS && heard == 2; i++) {
    int there = g->place(g->arg, i, to);
    snprintf(want, sizeof want, "rank %u is here", i);
    r->wrong += i == 3 ? there != 0 : there != 1 || strcmp(to, want) != 0;
  }
  g->watch(g->arg, NULL, NULL);
}

static void *rank(void *arg) {
  Rank *r = arg;
  PipeProgram p = {
      .hash = r->what == OTHER_PROGRAM && r->id == 2 ? 2 : 1, .name = "net", .params = "P=4"};
  PrGroup *g;
  PrStatus st = pr_group_open(&g, &p, &r->at, 600, r->text);
  if (st) {
    r->wrong += r->what != OTHER_PROGRAM;
    return NULL;
  }
  r->wrong += r->what == OTHER_PROGRAM;
  rounds(r, g);
  if (r->what == ONE_FAILS && r->id == 1) {
    nanosleep(&(struct timespec){0, 200000000}, NULL); /* the others wait by then */
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
    nanosleep(&(struct timespec){0, 5000000}, NULL);
  }
  r->wrong += heard != (r->what == ONE_FAILS) || (heard && st != PR_E_MODEL);
  pr_group_close(g);
  return NULL;
}

int main(void) {
  static const char *const name[] = {"all well", "one fails", "one is late", "another program"};
  int bad = 0;
  pthread_barrier_init(&all_shared, NULL, RANKS);
  for (Case what = ALL_WELL; what <= OTHER_PROGRAM; what++) {
    Rank r[RANKS];
    pthread_t t[RANKS];
    char why[1024] = "";
    PrLaunch at;
    PrGroupServer *server = pr_group_serve(RANKS, &at, why);
    if (!server) {
      printf("%s\n", why);
      return 2;
    }
    for (uint32_t i = 0; i < RANKS; i++) {
      r[i] = (Rank){.id = i, .what = what, .at = at};
      r[i].at.rank = i;
      if (pthread_create(&t[i], NULL, rank, &r[i]))
        return 2;
    }
    int wrong = 0;
    for (uint32_t i = 0; i < RANKS; i++) {
      pthread_join(t[i], NULL);
      wrong += r[i].wrong;
    }
    pr_group_serve_end(server);
    printf("%s: %d wrong; %s\n", name[what], wrong, r[0].text);
    bad += wrong;
  }
  return bad != 0;
}
