/* SPDX-License-Identifier: MIT
 * A rank's side of the store. A thread of its own reads what the server sends: it answers where the
 * rank is and passes on the verdict even while the rank is busy or stuck; answers to requests it
 * hands to who asked. */
#include "escape.h"
#include "store.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct Store {
  int fd;
  StoreHooks hooks;
  pthread_t reader;
  pthread_mutex_t lock; /* of the rest; `sending` of what is written to fd */
  pthread_mutex_t sending;
  pthread_cond_t changed;
  bool welcome, over; /* over: the connection has ended, or was refused */
  bool judged;        /* the verdict has come */
  bool gives_up;      /* this rank has failed, and waits for no value any more */
  char why[STORE_TEXT];
  char *value; /* of a GET, once there */
  uint32_t value_bytes;
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool say(Store *s, StoreType type, const void *a, uint32_t na, const void *b, uint32_t nb) {
  pthread_mutex_lock(&s->sending);
  bool ok = store_send(s->fd, type, a, na, b, nb);
  pthread_mutex_unlock(&s->sending);
  return ok;
}

/* The caller holds `lock`. False: time is over. */
static bool doze(Store *s, double end) {
  struct timespec t = {(time_t)end, (long)((end - (double)(time_t)end) * 1e9)};
  pthread_cond_timedwait(&s->changed, &s->lock, &t);
  return now() < end;
}

/* The places behind a verdict; NULL: that is none, or there is no memory. The caller's. */
static StorePlace *places_of(const StoreVerdict *v, uint32_t bytes) {
  if (bytes < sizeof *v || v->each > STORE_PLACE)
    return NULL;
  const uint64_t row = offsetof(StorePlace, place) + v->each;
  if (bytes != sizeof *v + v->size * row)
    return NULL;
  StorePlace *place = calloc(v->size + (size_t)1, sizeof *place);
  for (uint32_t r = 0; place && r < v->size; r++) {
    memcpy(&place[r], (const char *)(v + 1) + r * row, row);
    place[r].bytes = place[r].bytes < v->each ? place[r].bytes : v->each;
  }
  return place;
}

/* What the server sends. False: nothing comes any more. Takes the payload. */
static bool hear(Store *s, StoreType type, char *payload, uint32_t bytes) {
  bool goes_on = true;
  char place[STORE_PLACE];
  if (type == STORE_ASK)
    say(s, STORE_HERE, place, s->hooks.place ? s->hooks.place(s->hooks.arg, place) : 0, NULL, 0);
  const StoreVerdict *v = (const StoreVerdict *)(void *)payload;
  StorePlace *at = type == STORE_VERDICT && !s->judged ? places_of(v, bytes) : NULL;
  if (at) {
    if (s->hooks.verdict)
      s->hooks.verdict(s->hooks.arg, v, at);
    free(at);
    pthread_mutex_lock(&s->lock);
    s->judged = true; /* who waits for a value gives up below */
    pthread_mutex_unlock(&s->lock);
  }
  pthread_mutex_lock(&s->lock);
  if (type == STORE_WELCOME)
    s->welcome = true;
  if (type == STORE_REFUSED)
    escape_text(s->why, sizeof s->why, ESCAPE_TERMINAL, payload);
  if (type == STORE_REFUSED || type == STORE_BYE)
    goes_on = false;
  if (type == STORE_VALUE) {
    free(s->value);
    s->value = payload;
    s->value_bytes = bytes;
    payload = NULL;
  }
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  free(payload);
  return goes_on;
}

static void *read_on(void *arg) {
  Store *s = arg;
  StoreType type;
  char *payload;
  uint32_t bytes;
  while (store_receive(s->fd, &type, &payload, &bytes))
    if (!hear(s, type, payload, bytes))
      break;
  pthread_mutex_lock(&s->lock);
  s->over = true;
  if (!s->why[0])
    snprintf(s->why, sizeof s->why, "the connection to the store has ended");
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

/* Tries again with longer and longer pauses: the server may not be up yet. Says after some seconds
 * what it waits for. */
static int connect_until(const char *addr, const char *key, double end, char *why) {
  enum { SILENT_S = 10 };
  double tell = now() + SILENT_S;
  for (long ms = 1;; ms = ms < 500 ? 2 * ms : 500) {
    int fd = store_connect(addr, key, why);
    if (fd != -1 || now() >= end)
      return fd;
    if (now() >= tell) {
      fprintf(stderr, "store: %s; trying again for %.0f s\n", why, end - now());
      tell = end;
    }
    nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
  }
}

static void release(Store *s) {
  shutdown(s->fd, SHUT_RDWR);
  pthread_join(s->reader, NULL);
  close(s->fd);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->sending);
  pthread_mutex_destroy(&s->lock);
  free(s->value);
  free(s);
}

Store *store_join(const char *addr, const char *key, const StoreJoin *me, const StoreHooks *hooks,
                  double timeout_s, char *why) {
  enum { PATIENCE_S = 1 };
  double end = now() + timeout_s;
  Store *s = calloc(1, sizeof *s);
  if (!s) {
    snprintf(why, STORE_TEXT, "no memory");
    return NULL;
  }
  if (hooks)
    s->hooks = *hooks;
  s->fd = connect_until(addr, key, end, why);
  if (s->fd < 0) {
    free(s);
    return NULL;
  }
  pthread_mutex_init(&s->lock, NULL);
  pthread_mutex_init(&s->sending, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&s->changed, &attr);
  pthread_condattr_destroy(&attr);
  say(s, STORE_JOIN, me, sizeof *me, NULL, 0);
  if (pthread_create(&s->reader, NULL, read_on, s)) {
    snprintf(why, STORE_TEXT, "no thread for the store");
    close(s->fd);
    free(s);
    return NULL;
  }
  pthread_mutex_lock(&s->lock);
  bool in_time = true;
  while (!s->welcome && !s->over && in_time)
    in_time = doze(s, end);
  if (!in_time)
    say(s, STORE_LATE, NULL, 0, NULL, 0); /* the answer says who has not come */
  while (!s->welcome && !s->over && now() < end + PATIENCE_S)
    doze(s, end + PATIENCE_S);
  bool welcome = s->welcome;
  if (!welcome)
    snprintf(why, STORE_TEXT, s->over ? "%s" : "not all of the ranks came in time to the store %s",
             s->over ? s->why : addr);
  pthread_mutex_unlock(&s->lock);
  if (welcome)
    return s;
  release(s);
  return NULL;
}

bool store_put(Store *s, const char *name, const void *data, uint32_t bytes) {
  char field[STORE_NAME] = "";
  snprintf(field, sizeof field, "%s", name);
  return bytes <= STORE_MOST - STORE_NAME && say(s, STORE_PUT, field, sizeof field, data, bytes);
}

void store_drop(Store *s, const char *name) {
  char field[STORE_NAME] = "";
  snprintf(field, sizeof field, "%s", name);
  say(s, STORE_DROP, field, sizeof field, NULL, 0);
}

void *store_get(Store *s, const char *name, uint32_t *bytes, double timeout_s) {
  char field[STORE_NAME] = "", *value;
  double end = now() + timeout_s;
  snprintf(field, sizeof field, "%s", name);
  if (!say(s, STORE_GET, field, sizeof field, NULL, 0))
    return NULL;
  pthread_mutex_lock(&s->lock);
  bool in_time = true;
  while (!s->value && !s->over && !s->judged && !s->gives_up && in_time)
    in_time = doze(s, end);
  value = s->value;
  *bytes = s->value_bytes;
  s->value = NULL;
  pthread_mutex_unlock(&s->lock);
  return value;
}

bool store_is_over(Store *s) {
  pthread_mutex_lock(&s->lock);
  bool over = s->over;
  pthread_mutex_unlock(&s->lock);
  return over;
}

void store_late(Store *s) { say(s, STORE_LATE, NULL, 0, NULL, 0); }

void store_failed(Store *s, int32_t status, const char *text) {
  pthread_mutex_lock(&s->lock);
  s->gives_up = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  say(s, STORE_FAILED, &status, sizeof status, text, (uint32_t)strlen(text));
}

void store_leave(Store *s) {
  if (!s)
    return;
  double end = now() + 1;
  say(s, STORE_BYE, NULL, 0, NULL, 0);
  pthread_mutex_lock(&s->lock);
  while (!s->over && doze(s, end))
    ;
  pthread_mutex_unlock(&s->lock);
  release(s);
}
