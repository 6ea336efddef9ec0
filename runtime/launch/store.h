/* SPDX-License-Identifier: MIT
 * The store: where the processes of a run meet over TCP, apart from whatever carries their tensors.
 * One process serves it, pipe-run or rank 0; every rank has one connection to it. Not installed.
 *
 *   - Each connection first shows the key of the run, which its processes have in their environment
 *     (PIPE_STORE_KEY) or from MPI. Until then it is a stranger: the server reads one small message
 *     from it, for a few seconds, without waiting, and a stranger changes nothing. The key travels
 *     as plain text: it keeps out other users and other runs, not somebody who reads the packets or
 *     answers at the server's address.
 *   - Then each rank shows the hash of its program. When all have come and agree, all are welcome;
 *     if two differ, all are refused with both.
 *   - Then it keeps named values, for what one rank has and others need (an NCCL id, a trace).
 *   - It tells all ranks, once, of the first fault: a rank that says it has failed, a rank whose
 *     connection ends without a good-bye (its process is gone), or a rank that says its step takes
 *     too long. For the last two it asks every rank first where it is, and gives those three
 *     seconds that do not answer, for they may be what all wait for. The verdict is the same for
 *     all.
 *
 * Messages are a StoreHead and a payload, in the byte order of the machine, which must be one. */
#ifndef PIPE_STORE_H
#define PIPE_STORE_H

#include <stdbool.h>
#include <stdint.h>

enum {
  STORE_VERSION = 4,
  STORE_KEY = 64,
  STORE_NAME = 128,
  STORE_TEXT = 1024,
  STORE_PLACE = 2048,
  STORE_ADDR = 280
};
#define STORE_MAGIC 0x53504950u /* "PIPS" */
#define STORE_MOST  (1u << 30)  /* bytes of a payload */

typedef enum StoreType {
  STORE_HELLO,   /* StoreHello: the first message of a connection; and the answer, if all is well */
  STORE_WELCOME, /* all are here */
  STORE_REFUSED, /* text; these first three are the same in all versions */
  STORE_PUT,     /* name[STORE_NAME], value */
  STORE_GET,     /* name[STORE_NAME] */
  STORE_VALUE,   /* value: answer to the last GET, when it is there */
  STORE_LATE,    /* a step takes too long; before all are welcome, to come does */
  STORE_FAILED,  /* status as int32_t, text */
  STORE_ASK,     /* where are you? */
  STORE_HERE,    /* a place, at most STORE_PLACE bytes */
  STORE_VERDICT, /* StoreVerdict, then of each rank a StorePlace with `each` bytes of its place */
  STORE_BYE,     /* either way: no fault if the connection ends now */
  STORE_EXIT,    /* StoreExit; from whoever waited for a process */
  STORE_DROP,    /* name[STORE_NAME]: its value is asked for no more */
  STORE_JOIN,    /* StoreJoin; from a rank */
  STORE_NTYPES
} StoreType;

typedef struct StoreHead {
  uint32_t magic, type, bytes, zero; /* of the payload */
} StoreHead;

typedef struct StoreHello {
  uint32_t version, zero; /* these are the same in all versions, too */
  char key[STORE_KEY];
} StoreHello;

typedef struct StoreJoin {
  uint32_t rank, size;
  uint64_t hash;
  char name[128]; /* of the program, with its parameters */
} StoreJoin;

typedef struct StoreExit {
  uint32_t rank;
  int32_t status; /* of waitpid: its process has ended, is stopped, or goes on */
} StoreExit;

typedef enum StoreCause {
  STORE_NO_FAULT,
  STORE_IS_LATE,
  STORE_IS_GONE,
  STORE_HAS_FAILED
} StoreCause;
typedef enum StoreCondition { STORE_ANSWERS, STORE_SILENT, STORE_GONE } StoreCondition;

typedef struct StoreVerdict {
  uint32_t cause, rank; /* StoreCause; who was the first */
  int32_t status;       /* STORE_HAS_FAILED: its own */
  uint32_t size, each;  /* ranks; bytes of the longest place */
  char text[STORE_TEXT];
} StoreVerdict;

typedef struct StorePlace {
  uint32_t condition, bytes;
  char place[STORE_PLACE];
} StorePlace;

/* ---- a rank's side: store.c ---- */

typedef struct Store Store;

/* Called on a thread of the store. */
typedef struct StoreHooks {
  void *arg;
  uint32_t (*place)(void *arg, char to[STORE_PLACE]); /* where this rank is; returns bytes */
  void (*verdict)(void *arg, const StoreVerdict *v, const StorePlace *place); /* [v->size]; once */
} StoreHooks;

/* Connects to "host:port" (or several hosts: store_socket), trying again for timeout_s seconds, and
 * waits so long until all ranks are there. NULL with the reason in why[STORE_TEXT]. hooks is
 * copied. */
Store *store_join(const char *addr, const char *key, const StoreJoin *me, const StoreHooks *hooks,
                  double timeout_s, char *why);
bool store_put(Store *s, const char *name, const void *data, uint32_t bytes);
void store_drop(Store *s, const char *name); /* nobody asks for it any more */
/* Waits until it is there. The caller frees it; NULL: time is over, the store is, or a fault has
 * been told of, by this rank (store_failed) or to it. */
void *store_get(Store *s, const char *name, uint32_t *bytes, double timeout_s);
bool store_is_over(Store *s); /* nothing comes from it any more */
void store_late(Store *s);
void store_failed(Store *s, int32_t status, const char *text);
void store_leave(Store *s); /* says good-bye, waits for the answer up to a second; NULL is fine */

/* ---- who serves: store_server.c ---- */

typedef struct StoreServer StoreServer;

/* Called on the thread of the server. Any may be NULL. */
typedef struct StoreServerHooks {
  void *arg;
  void (*verdict)(void *arg, const StoreVerdict *v);
  void (*exited)(void *arg, const StoreExit *e);
  void (*joined)(void *arg, uint32_t rank);
} StoreServerHooks;

/* Listens at "host:port", port 0: any that is free; the address goes to bound[STORE_ADDR]. size:
 * ranks. */
StoreServer *store_serve(const char *addr, const char *key, uint32_t size,
                         const StoreServerHooks *hooks, char *bound, char *why);
/* Ends once all ranks have said good-bye, or after so many seconds. NULL is fine. */
void store_stop(StoreServer *s, double patience_s);

/* ---- both: store_wire.c ---- */

/* Is addr as store_socket has it, with a port of 0 to 65535? False with the reason in
 * why[STORE_TEXT]. */
bool store_is_address(const char *addr, char *why);

/* A new key, 128 random bits in hexadecimal. False with the reason in why[STORE_TEXT]. */
bool store_make_key(char key[STORE_KEY], char *why);
/* Is there one? Of a longer one the first STORE_KEY - 1 characters count. False with the reason in
 * why[STORE_TEXT]. */
bool store_is_key(const char *key, char *why);
StoreHello store_hello(const char *key); /* key: NULL is none */

/* A socket connected to (or listening at) addr, "host:port" or "host,host,...:port", of which the
 * first that answers is taken; IPv6 addresses may stand in [brackets]. Who listens at [::] hears
 * IPv4, too. No program that this process executes has it. -1 with the reason in
 * why[STORE_TEXT]. */
int store_socket(const char *addr, bool listens, char *why);
/* Connects and shows the key. -1: nobody answers (yet); -2: refused; with the reason in
 * why[STORE_TEXT]. */
int store_connect(const char *addr, const char *key, char *why);
bool store_send(int fd, StoreType type, const void *a, uint32_t na, const void *b, uint32_t nb);
/* Waits for a whole message; the payload, with a NUL behind it, is the caller's. False: the
 * connection ends. */
bool store_receive(int fd, StoreType *type, char **payload, uint32_t *bytes);

#endif
