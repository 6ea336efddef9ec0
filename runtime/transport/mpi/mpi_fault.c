/* SPDX-License-Identifier: MIT
 * Faults of the MPI engine. MPI itself cannot tell that another process is gone, so all ranks also
 * have a connection to a store (store.h), which pipe-run serves or else rank 0. What it says, all
 * ranks hear: then each knows where every rank is, works out what was first (blame.c), and fails
 * with the same text. Who serves it may be what is gone: each rank sees that for itself. */
#define _DEFAULT_SOURCE /* getifaddrs */
#include "engine_mpi.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(PrPlace) <= STORE_PLACE, "a place fits");

static uint32_t place(void *arg, char to[STORE_PLACE]) {
  const Mpi *m = arg;
  PrPlace here;
  pr_place(m->run, m->run->here, &here);
  if (m->late_at) /* what it accuses of, even if that has ended since */
    here.checkpoint = m->late_at;
  memcpy(to, &here, sizeof here);
  return sizeof here;
}

/* The run fails: a process has gone, or else a step takes too long. */
static void fail(Mpi *m, bool gone, const char *text) {
  if (gone)
    pr_fail(m->run, PR_E_LOST, "lost: %.1000s", text);
  else
    pr_fail(m->run, PR_E_DEADLINE, "deadline: step %llu takes longer than %g s; %.900s",
            (unsigned long long)atomic_load(&m->k->step), (double)m->run->limit_ns / 1e9, text);
}

static void verdict(void *arg, const StoreVerdict *v, const StorePlace *places) {
  Mpi *m = arg;
  PrRun *run = m->run;
  char text[PR_TEXT];
  m->told = true;
  m->heard = !pr_failed(run) && (v->cause != STORE_HAS_FAILED || v->rank != run->here);
  if (v->cause == STORE_HAS_FAILED) {
    if (v->rank != run->here)
      pr_fail(run, (PrStatus)v->status, "rank %u: %.900s", v->rank, v->text);
    return;
  }
  PrPlace *at = calloc(run->p->nrank, sizeof *at);
  for (uint32_t r = 0; at && r < run->p->nrank && r < v->size; r++) {
    if (places[r].bytes == sizeof *at)
      memcpy(&at[r], places[r].place, sizeof *at);
    at[r].condition = places[r].condition == STORE_GONE      ? PR_IS_GONE
                      : places[r].condition == STORE_ANSWERS ? PR_ANSWERS
                                                             : PR_IS_SILENT;
  }
  if (at && v->cause == STORE_IS_LATE && v->rank < run->p->nrank && at[v->rank].checkpoint) {
    pr_fail_checkpoint(run, at);
    free(at);
    return;
  }
  bool blamed = at && v->size == run->p->nrank && pr_blame(run, at, text, sizeof text);
  free(at);
  if (!blamed)
    snprintf(text, sizeof text,
             v->cause == STORE_IS_GONE ? "the process of rank %u has ended"
                                       : "rank %u was the first to notice",
             v->rank);
  fail(m, v->cause == STORE_IS_GONE, text);
}

/* Nobody tells any more where the others are; how: what the store has done. If rank 0 serves it,
 * that is blamed, and told who waits for it here, if anybody. */
static void fail_alone(Mpi *m, PrCondition how) {
  PrRun *run = m->run;
  char text[PR_TEXT];
  snprintf(text, sizeof text, "the store %s", how == PR_IS_GONE ? "has ended" : "does not answer");
  PrPlace *at = m->of_rank_0 && run->here > 0 ? calloc(run->p->nrank, sizeof *at) : NULL;
  for (uint32_t r = 0; at && r < run->p->nrank; r++)
    at[r].condition = r == 0 ? how : PR_IS_SILENT;
  if (at) {
    pr_place(run, run->here, &at[run->here]);
    pr_blame(run, at, text, sizeof text);
  }
  free(at);
  fail(m, how == PR_IS_GONE, text);
}

void mpi_watch_step(Mpi *m) {
  const uint64_t patience_ns = UINT64_C(5000000000); /* for the verdict */
  PrRun *run = m->run;
  uint64_t start = atomic_load(&m->k->step_start), step = atomic_load(&m->k->step), now = pr_now();
  if (start > now && !atomic_load(&run->ck_at))
    return;
  if (store_is_over(m->store)) {
    fail_alone(m, PR_IS_GONE);
    return;
  }
  if (start > now || now - start <= run->limit_ns)
    return;
  if (m->late_step != step + 1) {
    m->late_step = step + 1;
    m->late_ns = now;
    store_late(m->store);
  } else if (now - m->late_ns > patience_ns) {
    fail_alone(m, PR_IS_SILENT);
  }
}

bool mpi_late(PrRun *run) {
  Mpi *m = run->of_engine;
  m->late_at = atomic_load(&run->ck_at);
  store_late(m->store);
  return true;
}

void mpi_tell_others(Mpi *m) {
  if (m->told)
    return;
  m->told = true;
  store_failed(m->store, atomic_load(&m->run->status), pr_error(m->run));
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

/* What rank 0 tells the others of the store. */
typedef struct Meet {
  int status; /* PrStatus */
  bool of_rank_0;
  char addr[STORE_ADDR], key[STORE_KEY], why[STORE_TEXT];
} Meet;

/* Where the store is: of pipe-run, for the first run of the whole world; else this process serves
 * one. */
static void choose(Mpi *m, Meet *at) {
  static bool taken;
  const PrMpiOptions *o = m->run->o.engine_options;
  const char *given = getenv("PIPE_STORE");
  if (given && !taken && (!o || !o->comm)) {
    char why[STORE_TEXT];
    taken = true;
    if (!store_is_address(given, why)) {
      at->status = PR_E_ARG;
      snprintf(at->why, sizeof at->why, "PIPE_STORE: %.900s", why);
      return;
    }
    const char *key = getenv("PIPE_STORE_KEY");
    snprintf(at->addr, STORE_ADDR, "%s", given);
    snprintf(at->key, STORE_KEY, "%s", key ? key : "");
    return;
  }
  bool one_host = m->nlocal == m->run->nprocess;
  /* On several hosts at addresses of both families; without IPv6, or without IPv4, those that there
   * are. */
  const char *place = one_host ? "127.0.0.1,[::1]:0" : "[::],0.0.0.0:0";
  if (store_make_key(at->key, at->why))
    m->server = store_serve(place, at->key, m->run->nprocess, NULL, at->addr, at->why);
  at->of_rank_0 = true;
  if (!m->server)
    at->status = PR_E_LOST;
  else if (!one_host)
    list_own_addresses(at->addr);
}

PrStatus mpi_join_store(Mpi *m) {
  PrRun *run = m->run;
  Meet at = {.status = PR_OK};
  char why[STORE_TEXT] = "";
  if (run->here == 0)
    choose(m, &at);
  MPI_Bcast(&at, sizeof at, MPI_BYTE, 0, m->comm);
  if (at.status)
    return pr_fail(run, (PrStatus)at.status, "rank 0 has no store: %.900s", at.why);
  StoreJoin me = {.rank = run->here, .size = run->nprocess, .hash = run->p->hash};
  snprintf(me.name, sizeof me.name, "%.60s %.60s", run->p->name, run->p->params);
  const StoreHooks hooks = {m, place, verdict};
  m->of_rank_0 = at.of_rank_0;
  m->store = store_join(at.addr, at.key, &me, &hooks, m->start_s, why);
  return m->store ? PR_OK : pr_fail(run, PR_E_LOST, "%.1000s", why);
}

void mpi_leave_store(Mpi *m) {
  enum { PATIENCE_S = 5 };
  if (m->store && pr_failed(m->run))
    mpi_tell_others(m);
  store_leave(m->store);
  m->store = NULL;
  store_stop(m->server, PATIENCE_S);
  m->server = NULL;
}
