/* SPDX-License-Identifier: MIT
 * What the parts of the shim share: shim.c (hosts, turns, memory, streams), shim_cuda.c,
 * shim_nccl.c (the calls). All of it is read and written only by the thread whose turn it is. */
#ifndef SHIM_RUN_H
#define SHIM_RUN_H

#include <pthread.h>
#include <time.h>

#include "shim.h"

enum { MAX_CLOCKS = 384, MAX_HOSTS = 16, MAX_STREAMS = 128 };

/* How far each host thread and each stream is known to have come. */
typedef struct Vc { uint32_t t[MAX_CLOCKS]; } Vc;

typedef struct Host {
  uint32_t id, clock;
  pthread_cond_t cond; /* it is its turn */
  bool in, gone, dead, loses, is_held;
  enum { HANGS_NOT, HANGS_NEXT, HANGS } hang; /* its next kernel does not end; one does not */
  bool hangs_all;      /* and nothing else on its device goes on then */
  uint64_t seen;       /* progress at its last look in vain */
  uint32_t ncomm, broken; /* communicators; 1 + the one that has an error */
  bool again, rested;  /* and at the one before; it has slept since then */
  bool (*until)(void *); void *arg; /* shim_until; NULL: it is in no such */
  uint32_t skip;       /* waits for a number until that which is over at once, and 1; 0: none is */
  uint32_t overtakes, forgoes; /* the same of writes of a 1 */
  uint64_t calls_left; /* until it is killed; UINT64_MAX: it is not */
  uint32_t nstream, nevent;
  /* Operations of NCCL: how many were issued, have started with all before them, and are over; how
   * they are ordered. */
  uint64_t nccl_issued, nccl_started, nccl_over, queued;
  enum { ORDER_NONE, ORDER_LAUNCH, ORDER_SERIAL } order;
  Vc vc;
  ShimLog *log;
  uint32_t nlog, caplog;
  struct Capture *capturing; /* that this thread has begun; NULL */
  char name[8][48]; /* stack of ranges */
  uint32_t nname;
} Host;

/* One record of an event. */
typedef struct Record {
  bool done;
  double ms;
  Vc vc;
  struct Capture *capture;
  struct Record *again; /* of the graph launch at hand */
} Record;

struct CUevent_st {
  Host *host;
  uint32_t number;
  bool timed;
  Record *last; /* that was issued */
};

typedef enum Kind {
  OP_KERNEL,
  OP_COPY,
  OP_SET,
  OP_RECORD,
  OP_WAIT,
  OP_NCCL,
  OP_GRAPH,
  OP_AWAIT,
  OP_PUT
} Kind;
typedef struct Op {
  struct Op *next;
  Kind kind;
  Vc host; /* what the host knew when it issued it */
  const char *name;
  void (*fn)(void *);
  void *arg;
  ShimAccess *access;
  uint32_t naccess;
  void *to;
  const void *from;
  size_t bytes;
  int value; /* AWAIT, PUT: the number */
  Record *record;
  struct CUevent_st *external; /* RECORD in a capture: each launch records it */
  struct Group *group;
  struct GraphRun *run;
  struct CUstream_st *in; /* captured on */
  struct Op *launched;    /* of one that was captured: in the launch at hand */
  bool over, hangs;
  enum { PUT_AS_IS, PUT_TOO_EARLY, PUT_NEVER } put;
  uint64_t number; /* in its queue: among those of its host */
  Vc at;          /* what its stream knew when it started */
  uint32_t clock;
  uint64_t time;  /* of its stream when it was over */
} Op;

struct CUstream_st {
  struct CUstream_st *all; /* the next of all streams */
  Host *host;
  uint32_t number, clock;
  int device;
  bool held, gone; /* held: of a graph that has not started */
  Op *head, *tail;
  uint64_t queued;
  Vc vc;
  struct Capture *capture;
};

typedef struct Capture {
  struct CUstream_st *origin, *stream[MAX_STREAMS];
  uint32_t nstream;
  Op **op;
  uint32_t nop, cap;
  uint32_t refs, running; /* its graph, and graphs made of that; their launches that are not over */
  ShimLog *log; /* what was logged of it: again for each launch */
  uint32_t first, nlog; /* of its host's */
} Capture;

struct CUgraph_st { Capture *c; };
typedef struct GraphRun {
  Capture *of;
  struct CUstream_st **stream; /* one for each of the capture */
  uint32_t nstream;
  bool started;
} GraphRun;
struct CUgraphExec_st {
  Capture *c;
  uint32_t clock[MAX_STREAMS]; /* of the streams of its runs */
};

/* Operations of NCCL that were issued together. */
typedef struct Group Group;

extern struct Shim {
  pthread_mutex_t lock;
  bool on, log, unwatched, steady, stalled, killed, apart, deaf, lazy, late, alone, one_queue;
  bool hasty;
  uint64_t random, progress, ticks, most_queued;
  uint64_t idle, idle_since; /* looks in vain since progress was idle_since */
  uint32_t nheld;            /* hosts that a call holds */
  uint64_t held_at;          /* progress when nothing went on, ... */
  uint64_t held_ns;          /* ... for how long this process has looked since, ... */
  uint64_t looked_ns;        /* ... and the last look, by the machine's clock */
  uint32_t nhost, turn, nclock, errors, stuck, hung, aborts, transfers, threads;
  int version;
  uint8_t owner[MAX_CLOCKS]; /* host of a clock */
  char text[512], hung_text[256];
  Host host[MAX_HOSTS];
  struct CUstream_st *streams;
} shim;

/* A call begins: the turn is this thread's, or false: it fails. Ends it, perhaps with another's
 * turn. */
bool call_begin(void);
/* In a call that holds its host: others go on meanwhile, also another thread of this host. */
void shim_hold(void);
void shim_start(Host *by); /* this thread, which a host has started, calls as that host */
void shim_rest(void); /* a host sleeps: devices go on meanwhile */
void call_end(void);
/* In a call: carries out one operation that can go on; false: there is none. */
bool shim_one_op(void);
Host *shim_me(void);

void shim_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void *shim_new(size_t bytes); /* zeroed; freed by shim_end */
uint64_t shim_draw(uint64_t n); /* below n */
uint32_t shim_clock(const Host *h);
void vc_join(Vc *a, const Vc *b);
/* the same of others' clocks: a is of h, what comes from elsewhere is b */
void vc_hear(Vc *a, const Vc *b, const Host *h);
const char *shim_range(void); /* innermost range of this host; interned */
ShimLog *shim_note(ShimCall call, struct CUstream_st *s); /* an entry to fill in; never NULL */
void shim_note_again(const Capture *c); /* the entries of a capture, for the launch at hand */

/* Until f(arg), in a call; false: it never will be. */
bool shim_until(bool (*f)(void *), void *arg);
void shim_in_vain(void); /* this thread has looked and not found */

Op *op_new(Kind kind);
void stream_put(struct CUstream_st *s, Op *op); /* issues: into the queue, or the capture */
void stream_queue(struct CUstream_st *s, Op *op); /* into the queue */
struct CUstream_st *stream_new(Host *h, uint32_t clock);
/* An access at the time of clock `c`, whose knowledge is vc. */
void shim_touch(uint32_t c, const Vc *vc, const void *p, size_t bytes, bool write,
                const char *name);
/* What was known where the number at p was set. */
Vc *shim_number(const void *p);
void shim_forget(const void *p, size_t bytes); /* memory was given back */

/* shim_nccl.c */
/* posts it if it may; whether all of it is done */
bool group_ready(Group *g, struct CUstream_st *s);
void group_issued(Group *g);                       /* its place among those of its communicator */
Group *group_again(const Group *g);                /* for another launch of a graph */
void group_captured(Group *g, bool is); /* a graph holds its communicator, or no longer */
void nccl_reset(void);
/* shim_cuda.c */
int shim_device(void); /* of this thread */
bool graph_ready(GraphRun *r, struct CUstream_st *s);
void graph_over(GraphRun *r); /* a launch is */
cudaError_t memory_of_nccl(void **p, size_t bytes);
void memory_of_dead(const Host *h); /* what it shares with others is theirs alone */
bool memory_is(const void *p, size_t bytes, bool nccl); /* of a device, if nccl of ncclMemAlloc */
uint64_t memory_left(void); /* allocations that were not given back; forgets them */

#endif
