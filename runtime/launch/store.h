/* SPDX-License-Identifier: MIT
 * The store: the processes of a run meet there over TCP, independent of the carrier of their
 * tensors. One process serves it, pipe-run or rank 0; every rank has one connection to it
 * (group.c). Not installed.
 * - Each connection first shows the key of the run, which processes have from their environment
 *   (PIPE_STORE_KEY) or from MPI. Before that it is a stranger: the server reads one small message
 *   from it, within a few seconds, without blocking, and a stranger changes nothing. The key
 *   travels as plain text: it keeps out other users and other runs, but nobody who reads the
 *   packets or answers at the address of the server.
 * - Then each rank shows the hash of its program. When all have arrived and agree, all are welcome;
 *   if two differ, all are refused with both hashes.
 * - Then the store passes on values, from one rank to all others or to one (an NCCL id, a trace).
 * - It tells all ranks, once, about the first fault: a rank that reports a failure, a rank whose
 *   connection ends without a good-bye (its process is gone), or a rank that reports a late step.
 *   In the last two cases it first asks every rank for its place and waits three seconds for the
 *   answers: a silent rank may be the cause. All ranks get the same verdict.
 *
 * A message is a StoreHead and a payload, in the byte order of the machine; all machines must agree
 * on it. */
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
  STORE_HELLO,   /* StoreHello: first message of a connection; also the answer, if accepted */
  STORE_WELCOME, /* all ranks are here */
  STORE_REFUSED, /* text; HELLO, WELCOME and REFUSED are the same in all versions */
  STORE_VALUE,   /* StoreValue, then the value */
  STORE_LATE,    /* a step takes too long; before WELCOME: a rank takes too long to arrive */
  STORE_FAILED,  /* status as int32_t, text */
  STORE_ASK,     /* asks for a place */
  STORE_HERE,    /* a place, at most STORE_PLACE bytes */
  STORE_VERDICT, /* StoreVerdict, then per rank a StorePlace with `each` bytes of its place */
  STORE_BYE,     /* both directions: the connection may now end without a fault */
  STORE_EXIT,    /* StoreExit; from the program that waited for a process */
  STORE_JOIN,    /* StoreJoin; from a rank */
  STORE_NTYPES
} StoreType;

typedef struct StoreHead {
  uint32_t magic, type, bytes, zero; /* bytes: of the payload */
} StoreHead;

typedef struct StoreHello {
  uint32_t version, zero; /* version, zero, key: the same in all versions */
  char key[STORE_KEY];
} StoreHello;

typedef struct StoreJoin {
  uint32_t rank, size;
  uint64_t hash;
  char name[128]; /* of the program, with its parameters */
} StoreJoin;

/* To the server: `rank` is the receiver; from the server: the sender. */
typedef struct StoreValue {
  uint32_t rank, zero; /* STORE_ALL: all other ranks */
} StoreValue;
#define STORE_ALL UINT32_MAX

typedef struct StoreExit {
  uint32_t rank;
  int32_t status; /* of waitpid: the process has ended, was stopped, or continues */
} StoreExit;

typedef enum StoreCause {
  STORE_NO_FAULT,
  STORE_IS_LATE,
  STORE_IS_GONE,
  STORE_HAS_FAILED
} StoreCause;
typedef enum StoreCondition { STORE_ANSWERS, STORE_SILENT, STORE_GONE } StoreCondition;

typedef struct StoreVerdict {
  uint32_t cause, rank; /* StoreCause; rank with the first fault */
  int32_t status;       /* STORE_HAS_FAILED: status of that rank */
  uint32_t size, each;  /* ranks; bytes of the longest place */
  char text[STORE_TEXT];
} StoreVerdict;

typedef struct StorePlace {
  uint32_t condition, bytes;
  char place[STORE_PLACE];
} StorePlace;

/* ---- server: store_server.c ---- */

typedef struct StoreServer StoreServer;

/* Hooks, called on the thread of the server. Each may be NULL. */
typedef struct StoreServerHooks {
  void *arg;
  void (*verdict)(void *arg, const StoreVerdict *v);
  void (*exited)(void *arg, const StoreExit *e);
  void (*joined)(void *arg, uint32_t rank);
} StoreServerHooks;

/* Serves a store for `size` ranks at "host:port" (port 0: any free port) and writes the address to
 * bound[STORE_ADDR]. NULL: the reason is in why[STORE_TEXT]. */
StoreServer *store_serve(const char *addr, const char *key, uint32_t size,
                         const StoreServerHooks *hooks, char *bound, char *why);
/* Stops once all ranks have said good-bye, or after patience_s seconds. s may be NULL. */
void store_stop(StoreServer *s, double patience_s);

/* ---- both sides: store_wire.c ---- */

/* True if addr has the form of store_socket, with a port from 0 to 65535. False: the reason is in
 * why[STORE_TEXT]. */
bool store_is_address(const char *addr, char *why);

/* Makes a key: 128 random bits in hexadecimal. False: the reason is in why[STORE_TEXT]. */
bool store_make_key(char key[STORE_KEY], char *why);
/* True if there is a key. If it is too long, its first STORE_KEY - 1 characters count. False: the
 * reason is in why[STORE_TEXT]. */
bool store_is_key(const char *key, char *why);
StoreHello store_hello(const char *key); /* key may be NULL: none */

/* Returns a socket connected to, or listening at, addr: "host:port", or "host,host,...:port", of
 * which the first host that answers is taken. IPv6 addresses may be in [brackets]; a socket that
 * listens at [::] accepts IPv4 too. Programs that this process executes do not inherit the socket.
 * -1: the reason is in why[STORE_TEXT]. */
int store_socket(const char *addr, bool listens, char *why);
/* Connects and shows the key. -1: nobody answers yet; -2: refused; the reason is in
 * why[STORE_TEXT]. */
int store_connect(const char *addr, const char *key, char *why);
bool store_send(int fd, StoreType type, const void *a, uint32_t na, const void *b, uint32_t nb);
/* Waits for a whole message. The caller owns the payload, which ends with a NUL. False: the
 * connection has ended. */
bool store_receive(int fd, StoreType *type, char **payload, uint32_t *bytes);

#endif
