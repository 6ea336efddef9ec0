/* SPDX-License-Identifier: MIT
 * The server of the store: one thread that polls all connections and never blocks on one; a partial
 * message stays with its connection. A stranger, which has not shown the key, has STRANGER_S
 * seconds to show it and may send no more than a hello of any version. If there are too many
 * strangers, or this process can open no more connections, the oldest stranger is dropped. */
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

enum { STRANGERS = 64, STRANGER_S = 5, STRANGER_BYTES = 256 };
#define STRANGER UINT32_MAX       /* has not shown the key */
#define KNOWN    (UINT32_MAX - 1) /* has shown it, but is no rank yet */

typedef struct Peer {
  int fd;
  uint32_t rank;  /* or STRANGER, KNOWN */
  double came;    /* when it connected */
  StoreHead head; /* of the message being received */
  char *payload;  /* its payload, once the head is complete; owned */
  size_t got;     /* bytes received of both */
  bool deaf;      /* a message to it timed out, perhaps half sent: no other may follow */
} Peer;

/* A rank that has joined. */
typedef struct Member {
  bool came, left, gone, answered;
  StoreJoin join;
  StorePlace place;
} Member;

struct StoreServer {
  StoreServerHooks hooks;
  StoreHello hello; /* the first message a peer must send */
  uint32_t size, npeer, ncame;
  int listener, wake[2]; /* a double written to `wake`: stop, within this many seconds */
  pthread_t thread;
  Peer *peer; /* [npeer], capacity `room` */
  uint32_t room;
  Member *member;           /* [size] */
  char refusal[STORE_TEXT]; /* not "": all ranks are refused */
  StoreVerdict verdict;     /* cause: not 0 once there is a fault */
  bool asked, told, stopping;
  bool full; /* this process can open no more connections, and no stranger can be dropped */
  double answer_end, stop_end;
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void tell(Peer *p, StoreType type, const void *a, uint32_t na, const void *b, uint32_t nb) {
  p->deaf = p->deaf || !store_send(p->fd, type, a, na, b, nb);
}

static void tell_all(StoreServer *s, StoreType type, const void *a, uint32_t na, const void *b,
                     uint32_t nb) {
  for (uint32_t i = 0; i < s->npeer; i++)
    if (s->peer[i].rank != STRANGER)
      tell(&s->peer[i], type, a, na, b, nb);
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

static void refuse(StoreServer *s, const char *text) {
  if (!s->refusal[0])
    snprintf(s->refusal, sizeof s->refusal, "%s", text);
  tell_all(s, STORE_REFUSED, s->refusal, (uint32_t)strlen(s->refusal), NULL, 0);
}

/* A rank stops waiting for the missing ranks: refuses all, with the name of a missing one. */
static void give_up(StoreServer *s) {
  char text[STORE_TEXT], more[32] = "";
  uint32_t first = s->size;
  for (uint32_t r = s->size; r-- > 0;)
    first = s->member[r].came ? first : r;
  if (s->size - s->ncame > 1)
    snprintf(more, sizeof more, " and %u more", s->size - s->ncame - 1);
  snprintf(text, sizeof text, "store: rank %u%s of %u did not join in time", first, more, s->size);
  refuse(s, text);
}

/* Begins a verdict; only the first fault counts. */
static void accuse(StoreServer *s, StoreCause cause, uint32_t rank, int32_t status,
                   const char *text) {
  enum { PATIENCE_S = 3 };
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

/* True if every rank that is still there has told its place. */
static bool all_answered(const StoreServer *s) {
  for (uint32_t r = 0; r < s->size; r++)
    if (!s->member[r].answered && !s->member[r].gone && !s->member[r].left)
      return false;
  return true;
}

static void refuse_one(Peer *p, const char *text) {
  tell(p, STORE_REFUSED, text, (uint32_t)strlen(text), NULL, 0);
}

static bool is_same_key(const char *a, const char *b) {
  unsigned char differs = 0;
  for (int i = 0; i < STORE_KEY; i++) /* compares all characters, so that timing reveals nothing */
    differs |= (unsigned char)(a[i] ^ b[i]);
  return !differs;
}

/* The first message of a stranger. False: drops it. */
static bool recognise(const StoreServer *s, Peer *p, StoreType type, const char *payload,
                      uint32_t bytes) {
  StoreHello h = {0};
  char text[STORE_TEXT];
  if (type != STORE_HELLO || bytes < sizeof h.version)
    return false;
  memcpy(&h, payload, bytes < sizeof h ? bytes : sizeof h);
  if (h.version == STORE_VERSION && bytes == sizeof h && is_same_key(h.key, s->hello.key)) {
    p->rank = KNOWN;
    tell(p, STORE_HELLO, &s->hello, sizeof s->hello.version, NULL, 0);
    return true;
  }
  if (h.version != STORE_VERSION)
    snprintf(text, sizeof text, "store: a process speaks version %u, this is version %d", h.version,
             STORE_VERSION);
  else
    snprintf(text, sizeof text, "store: PIPE_STORE_KEY is not the key of this run");
  refuse_one(p, text);
  return false;
}

/* Lets a rank join. False: all ranks are here already, so it is a foreign process. */
static bool greet(StoreServer *s, Peer *p, const char *payload, uint32_t bytes) {
  StoreJoin h = {0};
  char text[STORE_TEXT] = "";
  if (bytes != sizeof h)
    return false;
  memcpy(&h, payload, sizeof h);
  h.name[sizeof h.name - 1] = 0;
  if (h.size != s->size || h.rank >= s->size)
    snprintf(text, sizeof text,
             "store: %s joins with %u ranks and rank %u, but this run has %u ranks", h.name, h.size,
             h.rank, s->size);
  for (uint32_t r = 0; !text[0] && r < s->size; r++) {
    const StoreJoin *o = &s->member[r].join;
    const StoreJoin *a = r < h.rank ? o : &h, *b = r < h.rank ? &h : o;
    if (s->member[r].came && o->hash != h.hash)
      snprintf(text, sizeof text,
               "program: rank %u runs %s, hash %016" PRIx64 "; rank %u runs %s, hash %016" PRIx64,
               a->rank, a->name, a->hash, b->rank, b->name, b->hash);
  }
  if (!text[0] && s->member[h.rank].came)
    snprintf(text, sizeof text, "store: two processes say that they are rank %u", h.rank);
  if (s->ncame == s->size) {
    refuse_one(p, text);
    return false;
  }
  p->rank = h.rank < s->size ? h.rank : KNOWN;
  if (text[0] || s->refusal[0]) {
    refuse(s, text);
    return true;
  }
  s->member[h.rank].came = true;
  s->member[h.rank].join = h;
  if (s->hooks.joined)
    s->hooks.joined(s->hooks.arg, h.rank);
  if (++s->ncame == s->size)
    tell_all(s, STORE_WELCOME, NULL, 0, NULL, 0);
  return true;
}

/* Passes on a value of a rank. */
static void relay(StoreServer *s, uint32_t from, const char *payload, uint32_t bytes) {
  StoreValue v;
  if (bytes < sizeof v)
    return;
  memcpy(&v, payload, sizeof v);
  const uint32_t to = v.rank;
  v.rank = from;
  for (uint32_t i = 0; i < s->npeer; i++) {
    Peer *p = &s->peer[i];
    if (p->rank < s->size && (to == STORE_ALL ? p->rank != from : p->rank == to))
      tell(p, STORE_VALUE, &v, sizeof v, payload + sizeof v, bytes - (uint32_t)sizeof v);
  }
}

/* Handles a message. False: close the connection. */
static bool hear(StoreServer *s, Peer *p, StoreType type, const char *payload, uint32_t bytes) {
  if (p->rank == STRANGER)
    return recognise(s, p, type, payload, bytes);
  if (type == STORE_JOIN && p->rank == KNOWN)
    return greet(s, p, payload, bytes);
  if (type == STORE_EXIT && bytes == sizeof(StoreExit)) {
    if (s->hooks.exited)
      s->hooks.exited(s->hooks.arg, (const StoreExit *)(const void *)payload);
    return true;
  }
  if (p->rank == KNOWN)
    return false;
  Member *m = &s->member[p->rank];
  switch (type) {
  case STORE_VALUE: relay(s, p->rank, payload, bytes); break;
  case STORE_LATE:
    if (s->ncame < s->size)
      give_up(s);
    else
      accuse(s, STORE_IS_LATE, p->rank, 0, "");
    break;
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
    tell(p, STORE_BYE, NULL, 0, NULL, 0);
    break;
  default: return false;
  }
  return true;
}

static void drop(StoreServer *s, uint32_t i) {
  Peer p = s->peer[i];
  close(p.fd);
  free(p.payload);
  s->peer[i] = s->peer[--s->npeer];
  if (p.rank >= s->size || s->member[p.rank].left)
    return;
  s->member[p.rank].gone = true;
  if (s->ncame < s->size && s->member[p.rank].came) {
    char text[STORE_TEXT];
    snprintf(text, sizeof text, "store: the process of rank %u has ended before all ranks joined",
             p.rank);
    refuse(s, text);
  }
  accuse(s, STORE_IS_GONE, p.rank, 0, "");
}

/* Drops the oldest stranger if there are at least `least` strangers. False: there are fewer. */
static bool drop_oldest(StoreServer *s, uint32_t least) {
  uint32_t n = 0, oldest = 0;
  for (uint32_t i = 0; i < s->npeer; i++)
    if (s->peer[i].rank == STRANGER && (n++ == 0 || s->peer[i].came < s->peer[oldest].came))
      oldest = i;
  if (n < least)
    return false;
  drop(s, oldest);
  return true;
}

/* Drops strangers whose time is over, and the oldest one if there are too many. */
static void dismiss(StoreServer *s) {
  for (uint32_t i = s->npeer; i-- > 0;)
    if (s->peer[i].rank == STRANGER && now() - s->peer[i].came > STRANGER_S)
      drop(s, i);
  drop_oldest(s, STRANGERS);
}

static void admit(StoreServer *s) {
  int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC), one = 1;
  if (fd < 0) {
    s->full = (errno == EMFILE || errno == ENFILE) && !drop_oldest(s, 1);
    return;
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  struct timeval limit = {5, 0};
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
  s->peer[s->npeer++] = (Peer){.fd = fd, .rank = STRANGER, .came = now()};
}

/* Receives a part of a message of a peer, without waiting. 1: complete; 0: not yet; -1: the
 * connection has ended. */
static int take(Peer *p) {
  const uint32_t most = p->rank == STRANGER ? STRANGER_BYTES : STORE_MOST;
  for (;;) {
    const bool head = p->got < sizeof p->head;
    const size_t end = head ? sizeof p->head : sizeof p->head + p->head.bytes;
    if (!head && !p->payload) {
      if (p->head.magic != STORE_MAGIC || p->head.type >= STORE_NTYPES || p->head.bytes > most ||
          !(p->payload = malloc((size_t)p->head.bytes + 1)))
        return -1;
      p->payload[p->head.bytes] = 0;
    }
    if (p->got == end)
      return 1;
    char *to = head ? (char *)&p->head + p->got : p->payload + (p->got - sizeof p->head);
    ssize_t n = recv(p->fd, to, end - p->got, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : -1;
    p->got += (size_t)n;
  }
}

/* A peer has sent something. False: drop it. */
static bool read_on(StoreServer *s, Peer *p) {
  int whole = take(p);
  if (whole <= 0)
    return whole == 0;
  char *payload = p->payload;
  p->payload = NULL;
  p->got = 0;
  bool goes_on = hear(s, p, (StoreType)p->head.type, payload, p->head.bytes);
  free(payload);
  return goes_on;
}

/* Milliseconds until the next deadline, at most a second. */
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
    anybody = anybody || s->peer[i].rank != STRANGER;
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
    fds[n] = (struct pollfd){.fd = s->full ? -1 : s->listener, .events = POLLIN};
    fds[n + 1] = (struct pollfd){.fd = s->stopping ? -1 : s->wake[0], .events = POLLIN};
    for (uint32_t i = 0; i < n; i++)
      fds[i] = (struct pollfd){.fd = s->peer[i].fd, .events = POLLIN};
    if (poll(fds, n + 2, until_due(s)) < 0 && errno != EINTR)
      break;
    s->full = false;                 /* to be retried */
    for (uint32_t i = n; i-- > 0;) { /* from the end: drop() moves the last */
      if ((fds[i].revents & (POLLIN | POLLHUP | POLLERR)) && !read_on(s, &s->peer[i]))
        drop(s, i);
    }
    dismiss(s);
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
  tell_all(s, STORE_BYE, NULL, 0, NULL, 0); /* an end in order: no fault for the ranks still here */
  free(fds);
  return NULL;
}

static void release(StoreServer *s) {
  for (uint32_t i = 0; i < s->npeer; i++) {
    close(s->peer[i].fd);
    free(s->peer[i].payload);
  }
  close(s->listener);
  close(s->wake[0]);
  close(s->wake[1]);
  free(s->peer);
  free(s->member);
  free(s);
}

/* Writes "host:port" with the port that the system has chosen. */
static void name_bound(int fd, const char *addr, char *bound) {
  struct sockaddr_storage a = {0};
  socklen_t len = sizeof a;
  getsockname(fd, (struct sockaddr *)&a, &len);
  unsigned port = ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                                : ((struct sockaddr_in *)&a)->sin_port);
  snprintf(bound, STORE_ADDR, "%.*s:%u", (int)(strrchr(addr, ':') - addr), addr, port);
}

StoreServer *store_serve(const char *addr, const char *key, uint32_t size,
                         const StoreServerHooks *hooks, char *bound, char *why) {
  if (!store_is_key(key, why))
    return NULL;
  StoreServer *s = calloc(1, sizeof *s);
  if (!s || !(s->member = calloc(size, sizeof *s->member)) || pipe(s->wake)) {
    snprintf(why, STORE_TEXT, "no memory for a store");
    if (s)
      free(s->member);
    free(s);
    return NULL;
  }
  s->size = size;
  s->hello = store_hello(key);
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
