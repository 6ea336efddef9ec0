/* SPDX-License-Identifier: MIT
 * The side of a rank in a group over the store (store.h). A separate thread reads the messages of
 * the server: it answers with the place of the rank and takes the verdict even while the rank is
 * busy or stuck. Values wait, in the order in which each rank sent them, until the rank takes
 * them. */
#define _DEFAULT_SOURCE /* getifaddrs */
#include "escape.h"
#include "group.h"
#include "store.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_S = 5 }; /* seconds, for the verdict, and for the good-byes of other ranks */

typedef struct Value {
  struct Value *next;
  char *payload; /* StoreValue, then the value */
  uint32_t bytes;
} Value;

typedef struct Group {
  PrGroup g;
  int fd; /* -1: a single rank */
  pthread_t reader;
  StoreServer *server;     /* of this process, or NULL */
  bool of_rank_0;          /* a process of the run serves the store */
  double patience_s;       /* seconds to wait for other ranks */
  double end;              /* when the wait at hand gives up; under lock */
  pthread_mutex_t sending; /* protects writes to fd */
  pthread_mutex_t lock;    /* protects the rest */
  pthread_cond_t changed;
  Value **from;       /* [size] values from each rank, oldest first */
  bool welcome, over; /* over: the connection has ended, or was refused */
  bool bye;           /* the store has ended in order, which is no fault */
  bool gives_up;      /* this rank has failed and waits for no more values */
  bool failed;
  PrStatus status; /* status of the rank that failed; PR_OK: all ranks were asked for their place */
  char text[STORE_TEXT];
  StorePlace *at; /* [size] places, in that case */
  double late_at; /* when this rank reported a late step; 0: it has not */
  uint32_t (*place)(void *of, char to[PR_GROUP_PLACE]);
  void *of;
} Group;
_Static_assert((int)PR_GROUP_PLACE <= (int)STORE_PLACE, "a place fits");

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool say(Group *g, StoreType type, const void *a, uint32_t na, const void *b, uint32_t nb) {
  pthread_mutex_lock(&g->sending);
  bool ok = g->fd >= 0 && store_send(g->fd, type, a, na, b, nb);
  pthread_mutex_unlock(&g->sending);
  return ok;
}

/* Waits for a change; the caller holds `lock`. False: time is over. */
static bool doze(Group *g, double end) {
  struct timespec t = {(time_t)end, (long)((end - (double)(time_t)end) * 1e9)};
  pthread_cond_timedwait(&g->changed, &g->lock, &t);
  return now() < end;
}

/* Values */

static int put(Group *g, uint32_t to, const void *data, uint64_t bytes) {
  const StoreValue v = {.rank = to};
  return bytes > STORE_MOST - sizeof v || !say(g, STORE_VALUE, &v, sizeof v, data, (uint32_t)bytes);
}

/* Takes the next value of rank r, of exactly `bytes` bytes. Returns 0; 1: time is over, the store
 * has ended, or this rank or another has failed. */
static int take(Group *g, uint32_t r, void *data, uint64_t bytes) {
  bool in_time = true;
  pthread_mutex_lock(&g->lock);
  g->end = now() + g->patience_s;
  while (!g->from[r] && !g->over && !g->failed && !g->gives_up && in_time)
    in_time = doze(g, g->end) || now() < g->end; /* `extend` may have moved it meanwhile */
  Value *v = g->from[r];
  if (v)
    g->from[r] = v->next;
  pthread_mutex_unlock(&g->lock);
  const bool ok = v && v->bytes == bytes;
  if (ok)
    memcpy(data, v->payload + sizeof(StoreValue), bytes);
  if (v)
    free(v->payload);
  free(v);
  return !ok;
}

static void extend(void *arg) {
  Group *g = arg;
  pthread_mutex_lock(&g->lock);
  g->end = now() + g->patience_s;
  pthread_mutex_unlock(&g->lock);
}

static int share(void *arg, uint32_t from, void *data, uint64_t bytes) {
  Group *g = arg;
  return g->g.size == 1 || bytes == 0 ? 0
         : from == g->g.rank          ? put(g, STORE_ALL, data, bytes)
                                      : take(g, from, data, bytes);
}

static uint32_t gather(void *arg, const void *mine, uint64_t bytes, void *all) {
  Group *g = arg;
  if (g->g.rank > 0)
    return put(g, 0, mine, bytes) ? 1 + g->g.rank : 0;
  memcpy(all, mine, bytes);
  for (uint32_t r = 1; r < g->g.size; r++)
    if (take(g, r, (char *)all + r * bytes, bytes))
      return 1 + r;
  return 0;
}

/* Faults */

static void tell(void *arg, PrStatus st, const char *text) {
  Group *g = arg;
  const int32_t status = (int32_t)st;
  pthread_mutex_lock(&g->lock);
  g->gives_up = true;
  pthread_cond_broadcast(&g->changed);
  pthread_mutex_unlock(&g->lock);
  say(g, STORE_FAILED, &status, sizeof status, text, (uint32_t)strlen(text));
}

/* Decides by itself if the store no longer tells the places of ranks. If rank 0 serves the store,
 * the place of rank 0 is that of the store, and the other places are unknown. */
static void notice_silence(Group *g) {
  if ((!g->over || g->bye) && (g->late_at == 0 || now() - g->late_at <= PATIENCE_S))
    return;
  g->failed = true;
  pthread_cond_broadcast(&g->changed); /* wakes threads that wait for a value */
  g->status = g->over ? PR_E_LOST : PR_E_DEADLINE;
  snprintf(g->text, sizeof g->text, "%s: the store %s", g->over ? "lost" : "deadline",
           g->over ? "has ended" : "does not answer");
  if (!g->of_rank_0 || g->g.rank == 0 || !(g->at = calloc(g->g.size, sizeof *g->at)))
    return;
  g->status = PR_OK;
  for (uint32_t r = 0; r < g->g.size; r++)
    g->at[r].condition = r == 0 && g->over ? STORE_GONE : STORE_SILENT;
}

static int heard(void *arg, PrStatus *st, char *text, uint64_t n) {
  Group *g = arg;
  pthread_mutex_lock(&g->lock);
  if (!g->failed)
    notice_silence(g);
  int what = !g->failed ? 0 : g->status ? 1 : 2;
  if (what == 1)
    *st = g->status;
  if (what)
    snprintf(text, n, "%s", g->text);
  pthread_mutex_unlock(&g->lock);
  return what;
}

static void watch(void *arg, uint32_t (*place)(void *of, char to[PR_GROUP_PLACE]), void *of) {
  Group *g = arg;
  pthread_mutex_lock(&g->lock);
  g->place = place;
  g->of = of;
  pthread_mutex_unlock(&g->lock);
}

static void late(void *arg) {
  Group *g = arg;
  pthread_mutex_lock(&g->lock);
  if (g->late_at == 0)
    g->late_at = now();
  /* a single rank asks itself */
  if (g->fd < 0 && !g->failed && (g->at = calloc(1, sizeof *g->at))) {
    g->at->bytes = g->place ? g->place(g->of, g->at->place) : 0;
    g->failed = true;
  }
  pthread_mutex_unlock(&g->lock);
  say(g, STORE_LATE, NULL, 0, NULL, 0);
}

/* Needs no lock: `heard` has said 2, and nothing writes `at` after that. */
static int place(void *arg, uint32_t r, char to[PR_GROUP_PLACE]) {
  const Group *g = arg;
  const StorePlace *p = &g->at[r];
  if (p->condition != STORE_ANSWERS || p->bytes == 0)
    return p->condition == STORE_GONE ? -1 : 0;
  memcpy(to, p->place, PR_GROUP_PLACE);
  return 1;
}

/* What the server sends */

static void answer(Group *g) {
  char to[STORE_PLACE];
  pthread_mutex_lock(&g->lock);
  uint32_t n = g->place ? g->place(g->of, to) : 0;
  pthread_mutex_unlock(&g->lock);
  say(g, STORE_HERE, to, n, NULL, 0);
}

/* The places after a verdict. */
static StorePlace *places_of(const Group *g, const StoreVerdict *v, uint32_t bytes) {
  const uint64_t row = offsetof(StorePlace, place) + v->each;
  StorePlace *place = v->size == g->g.size && v->each <= STORE_PLACE &&
                              bytes == sizeof *v + v->size * row
                          ? calloc(v->size, sizeof *place)
                          : NULL;
  for (uint32_t r = 0; place && r < v->size; r++) {
    memcpy(&place[r], (const char *)(v + 1) + r * row, row);
    place[r].bytes = place[r].bytes < v->each ? place[r].bytes : v->each;
  }
  return place;
}

/* Takes a verdict; only the first counts. The caller holds `lock`, here and below. */
static void judge(Group *g, const StoreVerdict *v, uint32_t bytes) {
  if (g->failed || bytes < sizeof *v)
    return;
  const bool failed = v->cause == STORE_HAS_FAILED;
  g->at = failed ? NULL : places_of(g, v, bytes);
  const bool known = v->status > PR_OK && v->status <= PR_E_DEVICE && v->status != PR_E_IO;
  g->status = failed && known ? (PrStatus)v->status : g->at ? PR_OK : PR_E_LOST;
  if (failed)
    snprintf(g->text, sizeof g->text, "%.*s", STORE_TEXT - 1, v->text);
  else
    snprintf(g->text, sizeof g->text, "rank %u %s", v->rank,
             v->cause == STORE_IS_GONE ? "has gone: its process has ended" : "takes too long");
  g->failed = true;
}

/* Stores a value and takes ownership of its payload. False: not a value. */
static bool keep(Group *g, char *payload, uint32_t bytes) {
  StoreValue from;
  Value *v = bytes < sizeof from ? NULL : malloc(sizeof *v);
  if (v)
    memcpy(&from, payload, sizeof from);
  if (!v || from.rank >= g->g.size) {
    free(v);
    return false;
  }
  Value **at = &g->from[from.rank];
  while (*at)
    at = &(*at)->next;
  *at = v;
  *v = (Value){NULL, payload, bytes - (uint32_t)sizeof from};
  return true;
}

static void *read_on(void *arg) {
  Group *g = arg;
  StoreType type;
  char *payload;
  uint32_t bytes;
  bool over = false;
  while (!over && store_receive(g->fd, &type, &payload, &bytes)) {
    if (type == STORE_ASK)
      answer(g);
    pthread_mutex_lock(&g->lock);
    g->welcome = g->welcome || type == STORE_WELCOME;
    g->bye = g->bye || type == STORE_BYE;
    over = type == STORE_REFUSED || type == STORE_BYE;
    g->over = over;
    if (type == STORE_REFUSED)
      escape_text(g->text, sizeof g->text, ESCAPE_TERMINAL, payload);
    if (type == STORE_VERDICT)
      judge(g, (const StoreVerdict *)(void *)payload, bytes);
    if (type == STORE_VALUE && keep(g, payload, bytes))
      payload = NULL;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    free(payload);
  }
  pthread_mutex_lock(&g->lock);
  g->over = true;
  pthread_cond_broadcast(&g->changed);
  pthread_mutex_unlock(&g->lock);
  return NULL;
}

/* Joining and leaving */

/* Writes the i-th address where the store may be; at most at->spare. */
static void address_of(const PrLaunch *at, uint32_t i, char to[STORE_ADDR]) {
  const char *port = strrchr(at->store, ':') + 1;
  snprintf(to, STORE_ADDR, "%.*s%lu", (int)(port - at->store), at->store,
           strtoul(port, NULL, 10) + i);
}

/* Tries each address of the store once, as store_connect. At one of several a refusal comes from
 * the store of another run, or from ours with the wrong key: it is the reason in why. */
static int connect_once(const PrLaunch *at, char *why) {
  char addr[STORE_ADDR], reason[STORE_TEXT];
  int fd = store_is_key(at->key, why) ? -1 : -2;
  bool refused = false;
  for (uint32_t i = 0; fd == -1 && i <= at->spare; i++) {
    address_of(at, i, addr);
    fd = store_connect(addr, at->key, reason);
    if (fd < 0 && (i == 0 || (fd == -2 && !refused)))
      snprintf(why, STORE_TEXT, "%s", reason);
    refused |= fd == -2;
    fd = fd == -2 && at->spare > 0 ? -1 : fd;
  }
  return fd;
}

/* Retries with growing pauses, because the server may not be up yet. After some seconds it prints
 * what it waits for. */
static int connect_until(const PrLaunch *at, double end, char *why) {
  enum { SILENT_S = 10 };
  double tell = now() + SILENT_S;
  for (long ms = 1;; ms = ms < 500 ? 2 * ms : 500) {
    int fd = connect_once(at, why);
    if (fd != -1 || now() >= end)
      return fd;
    if (now() >= tell) {
      fprintf(stderr, "store: %s; trying again for %.0f s\n", why, end - now());
      tell = end;
    }
    nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
  }
}

/* Joins and waits for all ranks. False: the reason is in why. */
static bool join(Group *g, const PipeProgram *p, const PrLaunch *at, double timeout_s, char *why) {
  enum { ANSWER_S = 1 };
  const double end = now() + timeout_s;
  StoreJoin me = {.rank = at->rank, .size = at->size, .hash = p->hash};
  snprintf(me.name, sizeof me.name, "%s %s", p->name, p->params);
  int fd = connect_until(at, end, why);
  if (fd < 0)
    return false;
  g->fd = fd;
  say(g, STORE_JOIN, &me, sizeof me, NULL, 0);
  if (pthread_create(&g->reader, NULL, read_on, g)) {
    snprintf(why, STORE_TEXT, "no thread for the store");
    close(fd);
    g->fd = -1;
    return false;
  }
  pthread_mutex_lock(&g->lock);
  bool in_time = true;
  while (!g->welcome && !g->over && in_time)
    in_time = doze(g, end);
  if (!in_time)
    say(g, STORE_LATE, NULL, 0, NULL, 0); /* the answer names the missing rank */
  while (!g->welcome && !g->over && now() < end + ANSWER_S)
    doze(g, end + ANSWER_S);
  const bool welcome = g->welcome;
  if (!welcome && !g->over)
    snprintf(why, STORE_TEXT, "some ranks did not join the store %s in time", at->store);
  else if (!welcome)
    snprintf(why, STORE_TEXT, "%s", g->text[0] ? g->text : "the connection to the store has ended");
  pthread_mutex_unlock(&g->lock);
  return welcome;
}

/* True if the address is obviously limited to one host. */
static bool is_loopback(const char *addr) {
  return !strncmp(addr, "127.", 4) || !strncmp(addr, "[::1]:", 6) ||
         !strncmp(addr, "localhost:", 10);
}

/* Rank 0 serves the store at the known port, on all addresses of its host: the known name may
 * resolve differently here (Debian has the name of the host in /etc/hosts as 127.0.1.1) or belong
 * to a service that is not this host. PIPE_STORE_BIND restricts the addresses. Changes *at to the
 * address for rank 0 itself. */
static StoreServer *serve(PrLaunch *at, char *why) {
  const char *bind = getenv("PIPE_STORE_BIND");
  const bool one = bind || is_loopback(at->store);
  char known[STORE_ADDR], addr[STORE_ADDR], bound[STORE_ADDR], reason[STORE_TEXT];
  StoreServer *s = NULL;
  for (uint32_t i = 0; !s && i <= at->spare; i++) {
    address_of(at, i, known);
    const char *port = strrchr(known, ':');
    if (bind)
      snprintf(addr, sizeof addr, "%.255s%.10s", bind, port);
    else
      snprintf(addr, sizeof addr, "%.260s%.10s", one ? known : "[::],0.0.0.0", one ? "" : port);
    s = store_serve(addr, at->key, at->size, NULL, bound, reason);
  }
  if (!s) {
    snprintf(why, STORE_TEXT,
             "rank 0 cannot serve the store: %.400s; PIPE_STORE=HOST:PORT names another place",
             reason);
    return NULL;
  }
  fprintf(stderr, "store: rank 0 listens at %s\n", bound);
  snprintf(at->store, sizeof at->store, "%.260s%.10s", one ? bound : "127.0.0.1,[::1]",
           one ? "" : strrchr(bound, ':'));
  at->spare = 0;
  return s;
}

PrStatus pr_group_open(PrGroup **out, const PipeProgram *p, const PrLaunch *at, double timeout_s,
                       char why[1024]) {
  PrLaunch found;
  char reason[200] = "";
  *out = NULL;
  PrStatus st = at ? PR_OK : pr_launch(&found, reason);
  at = at ? at : &found;
  if (st) {
    snprintf(why, 1024, "%s", reason);
    return st;
  }
  if (at->size > 1 && !at->store[0]) {
    snprintf(why, 1024, "%s tells no address where %u processes meet: set PIPE_STORE=host:port",
             at->family, at->size);
    return PR_E_ARG;
  }
  if (at->size > 1 && !store_is_address(at->store, why))
    return PR_E_ARG;
  const bool of_rank_0 = at->size > 1 && strcmp(at->family, "pipe-run") != 0;
  PrLaunch own = *at;
  StoreServer *server = NULL;
  if (of_rank_0 && at->rank == 0 && !(server = serve(&own, why)))
    return PR_E_LOST;
  return group_join(out, p, &own, (PrGroupServer *)server, of_rank_0, timeout_s,
                    PR_GROUP_PATIENCE_S, why);
}

PrStatus group_join(PrGroup **out, const PipeProgram *p, const PrLaunch *at, PrGroupServer *server,
                    bool of_rank_0, double timeout_s, double patience_s, char why[1024]) {
  pthread_condattr_t attr;
  *out = NULL;
  Group *g = calloc(1, sizeof *g);
  if (!g || !(g->from = calloc(at->size, sizeof(Value *)))) {
    free(g);
    pr_group_serve_end(server);
    snprintf(why, 1024, "no memory");
    return PR_E_MEMORY;
  }
  g->g = (PrGroup){at->rank, at->size, share, tell, heard, g, watch, late, place, gather, extend};
  g->fd = -1;
  g->of_rank_0 = of_rank_0;
  g->patience_s = patience_s;
  g->server = (StoreServer *)server;
  pthread_mutex_init(&g->lock, NULL);
  pthread_mutex_init(&g->sending, NULL);
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&g->changed, &attr);
  pthread_condattr_destroy(&attr);
  if (at->size == 1 || join(g, p, at, timeout_s, why)) {
    *out = &g->g;
    return PR_OK;
  }
  pr_group_close(&g->g);
  return strncmp(why, "program: ", 9) == 0 ? PR_E_ARG : PR_E_LOST;
}

/* Says good-bye, and waits up to a second for the answer. */
static void leave(Group *g) {
  const double end = now() + 1;
  pthread_mutex_lock(&g->lock);
  const bool welcome = g->welcome;
  pthread_mutex_unlock(&g->lock);
  if (welcome)
    say(g, STORE_BYE, NULL, 0, NULL, 0);
  pthread_mutex_lock(&g->lock);
  while (welcome && !g->over && doze(g, end))
    ;
  pthread_mutex_unlock(&g->lock);
  shutdown(g->fd, SHUT_RDWR);
  pthread_join(g->reader, NULL);
  close(g->fd);
}

void pr_group_close(PrGroup *group) {
  Group *g = group ? group->arg : NULL;
  if (!g)
    return;
  if (g->fd >= 0)
    leave(g);
  store_stop(g->server, PATIENCE_S);
  pthread_cond_destroy(&g->changed);
  pthread_mutex_destroy(&g->sending);
  pthread_mutex_destroy(&g->lock);
  for (uint32_t r = 0; r < g->g.size; r++)
    for (Value *v; (v = g->from[r]); free(v)) {
      g->from[r] = v->next;
      free(v->payload);
    }
  free(g->from);
  free(g->at);
  free(g);
}

/* The address, if it is of this family and other hosts can reach it; else NULL. */
static const void *reachable(const struct sockaddr *a, int family) {
  if (!a || a->sa_family != family)
    return NULL;
  if (family == AF_INET) {
    const struct in_addr *v4 = &((const struct sockaddr_in *)(const void *)a)->sin_addr;
    return ntohl(v4->s_addr) >> 24 == 127 ? NULL : v4;
  }
  const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(v6) || IN6_IS_ADDR_LINKLOCAL(v6) ? NULL : v6;
}

/* Appends the addresses of a family that other hosts can reach to all[*len], up to `room`. */
static void add_addresses(const struct ifaddrs *list, int family, char *all, size_t *len,
                          size_t room) {
  for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
    const void *bytes = reachable(i->ifa_addr, family);
    char text[INET6_ADDRSTRLEN];
    if (!bytes || !inet_ntop(family, bytes, text, sizeof text) ||
        *len + strlen(text) + sizeof ",[]" > room)
      continue;
    *len += (size_t)snprintf(all + *len, room - *len, family == AF_INET ? "%s%s" : "%s[%s]",
                             *len ? "," : "", text);
  }
}

/* Turns "[::]:port" into "10.0.0.1,192.168.3.4,[fd00::2]:port": all addresses of this host that
 * other hosts can reach, because they may not know its name. IPv4 addresses, however many, leave
 * room for IPv6 addresses if there are any. */
static void list_own_addresses(char addr[STORE_ADDR]) {
  enum { SPARE = 100 };
  char port[16], all[STORE_ADDR - 16] = "";
  size_t len = 0;
  struct ifaddrs *list = NULL;
  snprintf(port, sizeof port, "%s", strrchr(addr, ':'));
  if (getifaddrs(&list))
    list = NULL;
  bool both = false;
  for (const struct ifaddrs *i = list; i && !both; i = i->ifa_next)
    both = reachable(i->ifa_addr, AF_INET6) != NULL;
  add_addresses(list, AF_INET, all, &len, sizeof all - (both ? SPARE : 0));
  add_addresses(list, AF_INET6, all, &len, sizeof all);
  freeifaddrs(list);
  snprintf(addr, STORE_ADDR, "%s%s", len ? all : "127.0.0.1", port);
}

PrGroupServer *group_serve(uint32_t size, bool one_host, PrLaunch *at, char why[1024]) {
  /* On several hosts: addresses of both families, or of the family that exists. */
  const char *place = one_host ? "127.0.0.1,[::1]:0" : "[::],0.0.0.0:0";
  *at = (PrLaunch){.family = "pipe-run", .size = size, .local_rank = PIPE_NONE};
  StoreServer *s = store_make_key(at->key, why)
                       ? store_serve(place, at->key, size, NULL, at->store, why)
                       : NULL;
  if (s && !one_host)
    list_own_addresses(at->store);
  return (PrGroupServer *)s;
}

PrGroupServer *pr_group_serve(uint32_t size, PrLaunch *at, char why[1024]) {
  return group_serve(size, true, at, why);
}

void pr_group_serve_end(PrGroupServer *s) { store_stop((StoreServer *)s, 0); }
