/* SPDX-License-Identifier: MIT
 * Who serves the store: one thread, which waits in poll for all connections. Payloads are small and peers
 * trusted to finish a message that they have begun within a few seconds (SO_RCVTIMEO); one that does not
 * counts as gone. */
#define _GNU_SOURCE /* accept4 */
#include "store.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NOBODY UINT32_MAX

typedef struct Peer {
  int fd;
  uint32_t rank;        /* NOBODY: has not said hello */
  char want[STORE_KEY]; /* of a GET that has no answer yet; "" */
} Peer;

typedef struct Value {
  struct Value *next;
  char key[STORE_KEY];
  char *data;
  uint32_t bytes;
} Value;

/* A rank, from its hello on. */
typedef struct Member {
  bool came, left, gone, answered;
  StoreHello hello;
  StorePlace place;
} Member;

struct StoreServer {
  StoreServerHooks hooks;
  uint32_t size, npeer, ncame;
  int listener, wake[2]; /* a double in `wake`: to stop, after so many seconds at the latest */
  pthread_t thread;
  Peer *peer; /* [npeer], room for `room` */
  uint32_t room;
  Member *member; /* [size] */
  Value *value;
  char refusal[STORE_TEXT]; /* not "": everybody is refused */
  StoreVerdict verdict;     /* cause: being looked for, or told */
  bool asked, told, stopping;
  double answer_end, stop_end;
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void tell_all(StoreServer *s, StoreType type, const void *a, uint32_t na, const void *b,
                     uint32_t nb) {
  for (uint32_t i = 0; i < s->npeer; i++)
    if (s->peer[i].rank != NOBODY)
      store_send(s->peer[i].fd, type, a, na, b, nb);
}

static void pronounce(StoreServer *s) {
  uint32_t each = 0;
  for (uint32_t r = 0; r < s->size; r++)
    each = s->member[r].place.bytes > each ? s->member[r].place.bytes : each;
  const uint32_t row = (uint32_t)offsetof(StorePlace, place) + each;
  char *rows = malloc((size_t)s->size * row);
  for (uint32_t r = 0; rows && r < s->size; r++) {
    Member *m = &s->member[r];
    m->place.condition = m->gone ? STORE_GONE : m->answered ? STORE_ANSWERS : STORE_SILENT;
    memcpy(rows + (size_t)r * row, &m->place, row);
  }
  s->told = true;
  s->verdict.size = rows ? s->size : 0;
  s->verdict.each = each;
  tell_all(s, STORE_VERDICT, &s->verdict, sizeof s->verdict, rows, rows ? s->size * row : 0);
  if (s->hooks.verdict)
    s->hooks.verdict(s->hooks.arg, &s->verdict);
  free(rows);
}

/* The first fault counts. */
static void accuse(StoreServer *s, StoreCause cause, uint32_t rank, int32_t status,
                   const char *text) {
  enum { PATIENCE_S = 1 };
  if (s->verdict.cause || s->ncame < s->size)
    return;
  s->verdict = (StoreVerdict){.cause = cause, .rank = rank, .status = status};
  snprintf(s->verdict.text, sizeof s->verdict.text, "%s", text);
  if (cause == STORE_HAS_FAILED) {
    pronounce(s);
    return;
  }
  s->asked = true;
  s->answer_end = now() + PATIENCE_S;
  tell_all(s, STORE_ASK, NULL, 0, NULL, 0);
}

/* Whether every rank that is there has said where it is. */
static bool all_answered(const StoreServer *s) {
  for (uint32_t r = 0; r < s->size; r++)
    if (!s->member[r].answered && !s->member[r].gone && !s->member[r].left)
      return false;
  return true;
}

static void refuse(StoreServer *s, const char *text) {
  if (!s->refusal[0])
    snprintf(s->refusal, sizeof s->refusal, "%s", text);
  tell_all(s, STORE_REFUSED, s->refusal, (uint32_t)strlen(s->refusal), NULL, 0);
}

/* False: a stranger to a run whose ranks are all here. It is refused, and that is no affair of theirs. */
static bool greet(StoreServer *s, Peer *p, const char *payload, uint32_t bytes) {
  StoreHello h = {0};
  char text[STORE_TEXT] = "";
  if (bytes == sizeof h)
    memcpy(&h, payload, sizeof h);
  h.name[sizeof h.name - 1] = 0;
  if (bytes != sizeof h || h.version != STORE_VERSION)
    snprintf(text, sizeof text, "store: a rank speaks version %u, this is version %d", h.version,
             STORE_VERSION);
  else if (h.size != s->size || h.rank >= s->size)
    snprintf(text, sizeof text, "store: %s is for %u ranks, and one is rank %u; here are %u",
             h.name, h.size, h.rank, s->size);
  for (uint32_t r = 0; !text[0] && r < s->size; r++) {
    const StoreHello *o = &s->member[r].hello;
    const StoreHello *a = r < h.rank ? o : &h, *b = r < h.rank ? &h : o;
    if (s->member[r].came && o->hash != h.hash)
      snprintf(text, sizeof text,
               "program: rank %u runs %s, hash %016" PRIx64 "; rank %u runs %s, hash %016" PRIx64,
               a->rank, a->name, a->hash, b->rank, b->name, b->hash);
  }
  if (!text[0] && s->member[h.rank].came)
    snprintf(text, sizeof text, "store: two processes say that they are rank %u", h.rank);
  if (s->ncame == s->size) {
    store_send(p->fd, STORE_REFUSED, text, (uint32_t)strlen(text), NULL, 0);
    return false;
  }
  p->rank = bytes == sizeof h && h.rank < s->size ? h.rank : s->size;
  if (text[0] || s->refusal[0]) {
    refuse(s, text);
    return true;
  }
  s->member[h.rank].came = true;
  s->member[h.rank].hello = h;
  if (++s->ncame == s->size)
    tell_all(s, STORE_WELCOME, NULL, 0, NULL, 0);
  return true;
}

static const Value *find(const StoreServer *s, const char *key) {
  const Value *v = s->value;
  while (v && strcmp(v->key, key))
    v = v->next;
  return v;
}

/* Takes the value of a key away. */
static void empty(StoreServer *s, const char *key) {
  for (Value **at = &s->value; *at; at = &(*at)->next)
    if (!strcmp((*at)->key, key)) {
      Value *v = *at;
      *at = v->next;
      free(v->data);
      free(v);
      return;
    }
}

/* Keeps a value under its key, in place of one that is there. */
static void keep(StoreServer *s, const char *payload, uint32_t bytes) {
  Value *v = calloc(1, sizeof *v);
  if (!v || bytes < STORE_KEY || !(v->data = malloc(bytes - STORE_KEY + (size_t)1))) {
    free(v);
    return;
  }
  memcpy(v->key, payload, STORE_KEY);
  v->key[STORE_KEY - 1] = 0;
  v->bytes = bytes - STORE_KEY;
  memcpy(v->data, payload + STORE_KEY, v->bytes);
  empty(s, v->key);
  v->next = s->value;
  s->value = v;
  for (uint32_t i = 0; i < s->npeer; i++)
    if (!strcmp(s->peer[i].want, v->key)) {
      s->peer[i].want[0] = 0;
      store_send(s->peer[i].fd, STORE_VALUE, v->data, v->bytes, NULL, 0);
    }
}

/* False: the connection is to be closed. */
static bool hear(StoreServer *s, Peer *p, StoreType type, const char *payload, uint32_t bytes) {
  bool member = p->rank < s->size;
  if (type == STORE_HELLO && p->rank == NOBODY)
    return greet(s, p, payload, bytes);
  if (type == STORE_EXIT && bytes == sizeof(StoreExit)) {
    if (s->hooks.exited)
      s->hooks.exited(s->hooks.arg, (const StoreExit *)(const void *)payload);
    return true;
  }
  if (!member)
    return false;
  Member *m = &s->member[p->rank];
  switch (type) {
  case STORE_PUT: keep(s, payload, bytes); break;
  case STORE_DROP:
    if (bytes == STORE_KEY && payload[STORE_KEY - 1] == 0)
      empty(s, payload);
    break;
  case STORE_GET:
    if (bytes == STORE_KEY && payload[STORE_KEY - 1] == 0) {
      const Value *v = find(s, payload);
      if (v)
        store_send(p->fd, STORE_VALUE, v->data, v->bytes, NULL, 0);
      else
        memcpy(p->want, payload, STORE_KEY);
    }
    break;
  case STORE_LATE: accuse(s, STORE_IS_LATE, p->rank, 0, ""); break;
  case STORE_FAILED:
    if (bytes >= sizeof(int32_t)) {
      int32_t status;
      memcpy(&status, payload, sizeof status);
      accuse(s, STORE_HAS_FAILED, p->rank, status, payload + sizeof status);
    }
    break;
  case STORE_HERE:
    m->answered = true;
    m->place.bytes = bytes < STORE_PLACE ? bytes : STORE_PLACE;
    memcpy(m->place.place, payload, m->place.bytes);
    break;
  case STORE_BYE:
    m->left = true;
    store_send(p->fd, STORE_BYE, NULL, 0, NULL, 0);
    break;
  default: return false;
  }
  return true;
}

static void drop(StoreServer *s, uint32_t i) {
  Peer p = s->peer[i];
  close(p.fd);
  s->peer[i] = s->peer[--s->npeer];
  if (p.rank >= s->size || s->member[p.rank].left)
    return;
  s->member[p.rank].gone = true;
  if (s->ncame < s->size && s->member[p.rank].came) {
    char text[STORE_TEXT];
    snprintf(text, sizeof text,
             "store: the process of rank %u has ended before all ranks were there", p.rank);
    refuse(s, text);
  }
  accuse(s, STORE_IS_GONE, p.rank, 0, "");
}

static void admit(StoreServer *s) {
  int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC), one = 1;
  if (fd < 0)
    return;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  struct timeval limit = {5, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (s->npeer == s->room) {
    uint32_t room = 2 * s->room + 8;
    Peer *peer = realloc(s->peer, room * sizeof *peer);
    if (!peer) {
      close(fd);
      return;
    }
    s->peer = peer;
    s->room = room;
  }
  s->peer[s->npeer++] = (Peer){.fd = fd, .rank = NOBODY};
}

/* Milliseconds until something is due, at most a second. */
static int until_due(const StoreServer *s) {
  double end = now() + 1;
  if (s->asked && !s->told && s->answer_end < end)
    end = s->answer_end;
  if (s->stopping && s->stop_end < end)
    end = s->stop_end;
  double ms = (end - now()) * 1e3 + 1;
  return ms < 0 ? 0 : (int)ms;
}

static bool is_over(StoreServer *s) {
  bool anybody = false;
  for (uint32_t i = 0; i < s->npeer; i++)
    anybody = anybody || s->peer[i].rank != NOBODY;
  return s->stopping && (!anybody || now() >= s->stop_end);
}

static void *serve(void *arg) {
  StoreServer *s = arg;
  struct pollfd *fds = NULL;
  while (!is_over(s)) {
    uint32_t n = s->npeer;
    struct pollfd *more = realloc(fds, (n + (size_t)2) * sizeof *fds);
    if (!more)
      break;
    fds = more;
    fds[n] = (struct pollfd){.fd = s->listener, .events = POLLIN};
    fds[n + 1] = (struct pollfd){.fd = s->stopping ? -1 : s->wake[0], .events = POLLIN};
    for (uint32_t i = 0; i < n; i++)
      fds[i] = (struct pollfd){.fd = s->peer[i].fd, .events = POLLIN};
    if (poll(fds, n + 2, until_due(s)) < 0 && errno != EINTR)
      break;
    for (uint32_t i = n; i-- > 0;) { /* from the end: drop() moves the last */
      StoreType type;
      char *payload;
      uint32_t bytes;
      if (!(fds[i].revents & (POLLIN | POLLHUP | POLLERR)))
        continue;
      bool goes_on = store_receive(fds[i].fd, &type, &payload, &bytes);
      if (goes_on)
        goes_on = hear(s, &s->peer[i], type, payload, bytes);
      free(payload);
      if (!goes_on)
        drop(s, i);
    }
    if (s->asked && !s->told && (all_answered(s) || now() >= s->answer_end))
      pronounce(s);
    if (fds[n].revents & POLLIN)
      admit(s);
    if (fds[n + 1].revents & POLLIN) {
      double patience = 0;
      if (read(s->wake[0], &patience, sizeof patience) < 0)
        patience = 0;
      s->stopping = true;
      s->stop_end = now() + patience;
    }
  }
  free(fds);
  return NULL;
}

static void release(StoreServer *s) {
  for (uint32_t i = 0; i < s->npeer; i++)
    close(s->peer[i].fd);
  while (s->value) {
    Value *v = s->value;
    s->value = v->next;
    free(v->data);
    free(v);
  }
  close(s->listener);
  close(s->wake[0]);
  close(s->wake[1]);
  free(s->peer);
  free(s->member);
  free(s);
}

/* "host:port" with the port that the system has chosen. */
static void name_bound(int fd, const char *addr, char *bound) {
  struct sockaddr_storage a = {0};
  socklen_t len = sizeof a;
  getsockname(fd, (struct sockaddr *)&a, &len);
  unsigned port = ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                                : ((struct sockaddr_in *)&a)->sin_port);
  snprintf(bound, STORE_ADDR, "%.*s:%u", (int)(strrchr(addr, ':') - addr), addr, port);
}

StoreServer *store_serve(const char *addr, uint32_t size, const StoreServerHooks *hooks,
                         char *bound, char *why) {
  StoreServer *s = calloc(1, sizeof *s);
  if (!s || !(s->member = calloc(size, sizeof *s->member)) || pipe(s->wake)) {
    snprintf(why, STORE_TEXT, "no memory for a store");
    if (s)
      free(s->member);
    free(s);
    return NULL;
  }
  s->size = size;
  if (hooks)
    s->hooks = *hooks;
  s->listener = store_socket(addr, true, why);
  if (s->listener < 0) {
    close(s->wake[0]);
    close(s->wake[1]);
    free(s->member);
    free(s);
    return NULL;
  }
  fcntl(s->wake[0], F_SETFD, FD_CLOEXEC);
  fcntl(s->wake[1], F_SETFD, FD_CLOEXEC);
  name_bound(s->listener, addr, bound);
  if (pthread_create(&s->thread, NULL, serve, s)) {
    snprintf(why, STORE_TEXT, "no thread for the store");
    release(s);
    return NULL;
  }
  return s;
}

void store_stop(StoreServer *s, double patience_s) {
  if (!s)
    return;
  while (write(s->wake[1], &patience_s, sizeof patience_s) < 0 && errno == EINTR)
    ;
  pthread_join(s->thread, NULL);
  release(s);
}
