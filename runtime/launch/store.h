/* SPDX-License-Identifier: MIT
 * The store: where the processes of a run meet over TCP, apart from whatever carries their tensors.
 * One process serves it, pipe-run or rank 0; every rank has one connection to it (group.c). Not
 * installed.
 *
 *   - Each connection first shows the key of the run, which its processes have in their environment
 *     (PIPE_STORE_KEY) or from MPI. Until then it is a stranger: the server reads one small message
 *     from it, for a few seconds, without waiting, and a stranger changes nothing. The key travels
 *     as plain text: it keeps out other users and other runs, not somebody who reads the packets or
 *     answers at the server's address.
 *   - Then each rank shows the hash of its program. When all have come and agree, all are welcome;
 *     if two differ, all are refused with both.
 *   - Then it passes on values, from a rank to all others or to one (an NCCL id, a trace).
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
  STORE_VERSION = 5,
  STORE_KEY = 64,
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
  STORE_VALUE,   /* StoreValue, then the value */
  STORE_LATE,    /* a step takes too long; before all are welcome, to come does */
  STORE_FAILED,  /* status as int32_t, text */
  STORE_ASK,     /* where are you? */
  STORE_HERE,    /* a place, at most STORE_PLACE bytes */
  STORE_VERDICT, /* StoreVerdict, then of each rank a StorePlace with `each` bytes of its place */
  STORE_BYE,     /* either way: no fault if the connection ends now */
  STORE_EXIT,    /* StoreExit; from whoever waited for a process */
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

/* To the server: whom it is for; from it: whose it is. */
typedef struct StoreValue {
  uint32_t rank, zero; /* STORE_ALL: for all others */
} StoreValue;
#define STORE_ALL UINT32_MAX

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
