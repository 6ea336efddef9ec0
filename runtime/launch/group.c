/* SPDX-License-Identifier: MIT
 * A group over the store (store.h). What is shared number n lies under the name "share/n"; it is
 * emptied once every other rank has been heard in a later one, so that a long run keeps little. */
#define _DEFAULT_SOURCE /* getifaddrs */
#include "group.h"
#include "store.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATIENCE_S = 5 }; /* for the verdict */

typedef struct Owned { /* of this rank, not emptied yet */
  uint64_t *n;
  uint32_t first, count, cap;
} Owned;

typedef struct Group {
  PrGroup g;
  Store *store;
  StoreServer *server;
  uint64_t next;   /* share */
  uint64_t *heard; /* [size] 1 + the last share that came from a rank */
  Owned mine;
  bool of_rank_0; /* a process of the run serves the store */
  pthread_mutex_t lock;
  time_t late_at; /* when this rank said that it is late; 0: it has not */
  bool failed;
  PrStatus status; /* of a rank that has failed, with its text; PR_OK: all have been asked */
  char text[STORE_TEXT];
  StorePlace *at; /* [size] then */
  uint32_t (*place)(void *of, char to[PR_GROUP_PLACE]);
  void *of;
} Group;
_Static_assert((int)PR_GROUP_PLACE <= (int)STORE_PLACE, "a place fits");

static void name_of(char name[STORE_NAME], uint64_t n) {
  snprintf(name, STORE_NAME, "share/%llu", (unsigned long long)n);
}

static bool own(Owned *o, uint64_t n) {
  if (o->first + o->count == o->cap) {
    if (o->first > 0)
      memmove(o->n, o->n + o->first, o->count * sizeof *o->n);
    o->first = 0;
    uint64_t *more = o->count == o->cap ? realloc(o->n, (2 * o->cap + 16) * sizeof *more) : o->n;
    if (!more)
      return false;
    o->cap = o->count == o->cap ? 2 * o->cap + 16 : o->cap;
    o->n = more;
  }
  o->n[o->first + o->count++] = n;
  return true;
}

/* Empties what all others have passed. */
static void empty_old(Group *g) {
  uint64_t passed = UINT64_MAX;
  char name[STORE_NAME];
  for (uint32_t r = 0; r < g->g.size; r++)
    if (r != g->g.rank && g->heard[r] < passed)
      passed = g->heard[r];
  for (; g->mine.count > 0 && g->mine.n[g->mine.first] + 1 < passed;
       g->mine.first++, g->mine.count--) {
    name_of(name, g->mine.n[g->mine.first]);
    store_drop(g->store, name);
  }
}

static int share(void *arg, uint32_t from, void *data, uint64_t bytes) {
  Group *g = arg;
  char name[STORE_NAME];
  uint32_t n = 0;
  name_of(name, g->next);
  if (g->g.size == 1 || bytes == 0)
    return 0;
  if (bytes > STORE_MOST - STORE_NAME)
    return 1;
  if (from == g->g.rank) {
    empty_old(g);
    return !own(&g->mine, g->next++) || !store_put(g->store, name, data, (uint32_t)bytes);
  }
  void *value = store_get(g->store, name, &n, PR_GROUP_PATIENCE_S);
  bool ok = value && n == bytes;
  if (ok)
    memcpy(data, value, bytes);
  free(value);
  g->heard[from] = ++g->next;
  return !ok;
}

static uint32_t gather(void *arg, const void *mine, uint64_t bytes, void *all) {
  Group *g = arg;
  char name[STORE_NAME], *to = all;
  const uint64_t n = g->next++;
  if (g->g.rank > 0) {
    snprintf(name, sizeof name, "gather/%llu/%u", (unsigned long long)n, g->g.rank);
    return store_put(g->store, name, mine, (uint32_t)bytes) ? 0 : 1 + g->g.rank;
  }
  memcpy(to, mine, bytes);
  for (uint32_t r = 1; r < g->g.size; r++) {
    uint32_t got = 0;
    snprintf(name, sizeof name, "gather/%llu/%u", (unsigned long long)n, r);
    void *value = store_get(g->store, name, &got, PR_GROUP_PATIENCE_S);
    const bool ok = value && got == bytes;
    if (ok)
      memcpy(to + r * bytes, value, bytes);
    free(value);
    if (!ok)
      return 1 + r;
    store_drop(g->store, name);
    g->heard[r] = n + 1;
  }
  return 0;
}

static void tell(void *arg, PrStatus st, const char *text) {
  Group *g = arg;
  if (g->store)
    store_failed(g->store, (int32_t)st, text);
}

static time_t now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec;
}

/* Nobody tells any more where the others are? If rank 0 serves the store, it is as the store is,
 * and of the others nothing is known. */
static void notice_silence(Group *g) {
  const bool over = store_is_over(g->store);
  if (!over && (!g->late_at || now_s() - g->late_at <= PATIENCE_S))
    return;
  g->failed = true;
  g->status = over ? PR_E_LOST : PR_E_DEADLINE;
  snprintf(g->text, sizeof g->text, "%s: the store %s", over ? "lost" : "deadline",
           over ? "has ended" : "does not answer");
  if (!g->of_rank_0 || g->g.rank == 0 || !(g->at = calloc(g->g.size, sizeof *g->at)))
    return;
  g->status = PR_OK;
  for (uint32_t r = 0; r < g->g.size; r++)
    g->at[r].condition = r == 0 && over ? STORE_GONE : STORE_SILENT;
}

static int heard(void *arg, PrStatus *st, char *text, uint64_t n) {
  Group *g = arg;
  pthread_mutex_lock(&g->lock);
  if (!g->failed && g->store)
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

/* On a thread of the store. */
static uint32_t asked(void *arg, char to[STORE_PLACE]) {
  Group *g = arg;
  pthread_mutex_lock(&g->lock);
  uint32_t n = g->place ? g->place(g->of, to) : 0;
  pthread_mutex_unlock(&g->lock);
  return n;
}

static void late(void *arg) {
  Group *g = arg;
  pthread_mutex_lock(&g->lock);
  if (!g->late_at)
    g->late_at = now_s();
  pthread_mutex_unlock(&g->lock);
  if (g->store)
    store_late(g->store);
}

static int place(void *arg, uint32_t r, char to[PR_GROUP_PLACE]) {
  const Group *g = arg;
  const StorePlace *p = &g->at[r];
  if (p->condition != STORE_ANSWERS || p->bytes == 0)
    return p->condition == STORE_GONE ? -1 : 0;
  memcpy(to, p->place, PR_GROUP_PLACE);
  return 1;
}

/* On a thread of the store. */
static void verdict(void *arg, const StoreVerdict *v, const StorePlace *at) {
  Group *g = arg;
  pthread_mutex_lock(&g->lock);
  const bool failed = v->cause == STORE_HAS_FAILED;
  if (!failed && v->size == g->g.size && (g->at = malloc(v->size * sizeof *at)))
    memcpy(g->at, at, v->size * sizeof *at);
  g->status = failed ? (PrStatus)v->status : g->at ? PR_OK : PR_E_LOST;
  if (failed)
    snprintf(g->text, sizeof g->text, "%s", v->text);
  else
    snprintf(g->text, sizeof g->text, "rank %u %s", v->rank,
             v->cause == STORE_IS_GONE ? "has gone: its process has ended" : "takes too long");
  g->failed = true;
  pthread_mutex_unlock(&g->lock);
}

/* Does the address say itself that it is of one host alone? */
static bool is_loopback(const char *addr) {
  return !strncmp(addr, "127.", 4) || !strncmp(addr, "[::1]:", 6) ||
         !strncmp(addr, "localhost:", 10);
}

/* Rank 0 serves the store at the port that all know, on all addresses of its host: the name that
 * others know may lead elsewhere here, as Debian has the host's own in /etc/hosts as 127.0.1.1, or
 * be of a service and lead nowhere. PIPE_STORE_BIND narrows that. own: where rank 0 finds it. */
static StoreServer *serve(const PrLaunch *at, char own[STORE_ADDR], char *why) {
  const char *port = strrchr(at->store, ':'), *bind = getenv("PIPE_STORE_BIND");
  char addr[STORE_ADDR], bound[STORE_ADDR], reason[STORE_TEXT];
  const bool one = bind || is_loopback(at->store);
  if (bind)
    snprintf(addr, sizeof addr, "%.255s%.10s", bind, port);
  else
    snprintf(addr, sizeof addr, "%.260s%.10s", one ? at->store : "[::],0.0.0.0", one ? "" : port);
  StoreServer *s = store_serve(addr, at->key, at->size, NULL, bound, reason);
  if (!s) {
    snprintf(why, STORE_TEXT,
             "rank 0 cannot serve the store: %.400s; PIPE_STORE=HOST:PORT names another place",
             reason);
    return NULL;
  }
  fprintf(stderr, "store: rank 0 listens at %s\n", bound);
  snprintf(own, STORE_ADDR, "%.260s%.10s", one ? bound : "127.0.0.1,[::1]", one ? "" : port);
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
  if (of_rank_0 && at->rank == 0 && !(server = serve(at, own.store, why)))
    return PR_E_LOST;
  return group_join(out, p, &own, (PrGroupServer *)server, of_rank_0, timeout_s, why);
}

PrStatus group_join(PrGroup **out, const PipeProgram *p, const PrLaunch *at, PrGroupServer *server,
                    bool of_rank_0, double timeout_s, char why[1024]) {
  *out = NULL;
  Group *g = calloc(1, sizeof *g);
  if (!g || !(g->heard = calloc(at->size, sizeof *g->heard))) {
    free(g);
    pr_group_serve_end(server);
    snprintf(why, 1024, "no memory");
    return PR_E_MEMORY;
  }
  g->g = (PrGroup){at->rank, at->size, share, tell, heard, g, watch, late, place, gather};
  g->of_rank_0 = of_rank_0;
  g->server = (StoreServer *)server;
  pthread_mutex_init(&g->lock, NULL);
  StoreJoin me = {.rank = at->rank, .size = at->size, .hash = p->hash};
  snprintf(me.name, sizeof me.name, "%s %s", p->name, p->params);
  StoreHooks hooks = {.arg = g, .place = asked, .verdict = verdict};
  if (at->size == 1 || (g->store = store_join(at->store, at->key, &me, &hooks, timeout_s, why))) {
    *out = &g->g;
    return PR_OK;
  }
  pr_group_close(&g->g);
  return strncmp(why, "program: ", 9) == 0 ? PR_E_ARG : PR_E_LOST;
}

void pr_group_close(PrGroup *group) {
  Group *g = group ? group->arg : NULL;
  if (!g)
    return;
  store_leave(g->store);
  store_stop(g->server, PATIENCE_S);
  pthread_mutex_destroy(&g->lock);
  free(g->mine.n);
  free(g->heard);
  free(g->at);
  free(g);
}

/* The address of a family that others may reach, or NULL. */
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

/* Appends the addresses of a family that others may reach to all[*len], up to `room`. */
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

/* "[::]:port" becomes "10.0.0.1,192.168.3.4,[fd00::2]:port": all addresses of this host that others
 * may reach, for its name need not be known to them. Those of IPv4, however many, leave room for
 * those of IPv6 if there are any. */
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
  /* On several hosts at addresses of both families; without IPv6, or without IPv4, those that there
   * are. */
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
