/* SPDX-License-Identifier: MIT
 * See shim.h: the calls of NCCL, and of NVTX. On a communicator that does not block, a call may
 * give ncclInProgress, and what it asks for is issued only when the communicator is asked again
 * (ncclCommGetAsyncError) and all that it takes is there; each group takes a thread. On one that
 * blocks, a call returns when what it asks for is issued, or once another thread of the host aborts
 * the communicator. Communicators are aborted in a group, which gives them back at its end: by then
 * their host is in no call on them. */
#include <stdlib.h>
#include <string.h>

#include "include/nccl.h"
#include "include/nvtx3/nvToolsExt.h"
#include "shim_run.h"

enum { MAX_RANKS = 16, MAX_MEMBERS = 128, MAX_SPLITS = 64, MAX_SIZES = 32 };

typedef enum What { SEND, RECV, SUM } What;
typedef struct Member { /* of a group */
  What what;
  int peer;
  void *to;
  const void *from;
  size_t n;
  ncclDataType_t type;
  const char *name; /* of its range */
  uint32_t logged;  /* row + 1 in its host's log */
  bool posted, done;
  Group *group;
} Member;

struct Group {
  ncclComm_t comm;
  cudaStream_t stream;
  Member member[MAX_MEMBERS];
  uint32_t n;
  uint64_t turn;   /* among those of its communicator on its rank */
  uint64_t launch; /* among those of all communicators there */
  bool over;
  bool replayed;    /* of a graph */
  Vc at;            /* of its stream when it was posted */
  Vc got;           /* what came with what it has received: known once all of it is done */
  const char *name; /* of its first member */
};

typedef struct Queue { /* of one direction between two ranks */
  Member **at;
  uint64_t n, cap, matched;
} Queue;

typedef struct World { /* what the ranks of a communicator share */
  struct World *next;
  char id[NCCL_UNIQUE_ID_BYTES];
  int n;
  bool joined[MAX_RANKS];
  ncclComm_t comm[MAX_RANKS];
  /* [a][b]: the host of a has come to send to b; to receive from it: messages of so many lines */
  size_t contact[MAX_RANKS][MAX_RANKS][2];
  struct Size { /* of sums: each may take connections of its own */
    size_t bytes;
    bool contact[MAX_RANKS];
  } size[MAX_SIZES];
  uint32_t nsize;
  Queue queue[MAX_RANKS][MAX_RANKS][2];
  Queue sums[MAX_RANKS];
  struct Split {
    int color[MAX_RANKS], key[MAX_RANKS];
    bool came[MAX_RANKS];
    ncclConfig_t config[MAX_RANKS];
  } split[MAX_SPLITS];
  uint32_t nsplit;
} World;

struct ncclComm {
  World *world;
  int rank;
  uint32_t number; /* of those of its host */
  Host *host;
  uint64_t issued, done;        /* groups */
  uint32_t captured;            /* groups of graphs */
  bool aborted, gone, blocking; /* gone: given back */
  uint32_t inside;              /* calls on it that have not returned */
  ncclConfig_t config;
  /* In progress: */
  Group *pending;
  bool joining, late;
  ncclComm_t *split_to;
  uint32_t nsplit;
  uint64_t finalizing; /* looks until it is finalized */
  struct Range {       /* that is registered with it */
    struct Range *next;
    const char *p;
    size_t bytes;
  } * range;
};

ShimSettings shim_settings;
static World *worlds;
static uint64_t ids;
static _Thread_local Group *open_group;
static _Thread_local uint32_t depth;
static _Thread_local ncclComm_t aborted[MAX_SPLITS + 1]; /* in the group at hand */
static _Thread_local uint32_t naborted;

void nccl_reset(void) { worlds = NULL, ids = 0; }

ncclResult_t ncclGetVersion(int *version) {
  *version = shim.version ? shim.version : NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t r) {
  return r == ncclSuccess ? "no error" : "an error of the shim";
}
const char *ncclGetLastError(ncclComm_t c) {
  (void)c;
  return shim.text;
}

static size_t size_of(ncclDataType_t t) {
  static const size_t size[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return size[t];
}

/* ---- communicators ---- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "shim %llu", (unsigned long long)++ids);
  return ncclSuccess;
}

static ncclComm_t comm_new(World *w, int rank) {
  ncclComm_t c = shim_new(sizeof *c);
  c->world = w, c->rank = rank, c->host = shim_me();
  c->number = c->host->ncomm++;
  w->joined[rank] = true;
  w->comm[rank] = c;
  return c;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *c, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  if (!call_begin())
    return ncclSystemError;
  World *w = worlds;
  while (w && memcmp(w->id, id.internal, sizeof w->id) != 0)
    w = w->next;
  if (!w) {
    w = shim_new(sizeof *w);
    memcpy(w->id, id.internal, sizeof w->id);
    w->n = n, w->next = worlds;
    worlds = w;
  }
  if (w->n != n || rank < 0 || rank >= n || w->joined[rank])
    shim_error("rank %d of %d joins a communicator of %d", rank, n, w->n);
  if (config->blocking && n > 1)
    shim_error("a communicator that blocks its host");
  *c = comm_new(w, rank);
  (*c)->blocking = config->blocking;
  (*c)->config = *config;
  (*c)->joining = !config->blocking;
  const char *order = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  shim_me()->order = !order || strtol(order, NULL, 0) != 1 ? ORDER_NONE
                     : shim_draw(2)                        ? ORDER_LAUNCH
                                                           : ORDER_SERIAL;
  shim.progress++;
  call_end();
  return config->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out,
                           ncclConfig_t *config) {
  if (!call_begin())
    return ncclSystemError;
  World *w = c->world;
  if (c->nsplit == MAX_SPLITS)
    abort();
  struct Split *s = &w->split[c->nsplit];
  if (config->splitShare)
    shim_error("a communicator that shares its parent's stream");
  if (c->pending || c->split_to || c->joining)
    shim_error("a call of NCCL while the communicator is in progress");
  s->color[c->rank] = color, s->key[c->rank] = key, s->config[c->rank] = *config;
  s->came[c->rank] = true;
  *out = NULL;
  c->split_to = out;
  c->nsplit++;
  shim.progress++;
  call_end();
  return shim.hasty ? ncclSuccess : ncclInProgress;
}

/* All ranks have come to split number k: this one's part of it. */
static void finish_split(ncclComm_t c) {
  World *w = c->world;
  uint32_t k = c->nsplit - 1;
  const struct Split *s = &w->split[k];
  int color = s->color[c->rank], rank = 0, n = 0;
  char id[NCCL_UNIQUE_ID_BYTES] = {0};
  if (color == NCCL_SPLIT_NOCOLOR)
    return;
  for (int r = 0; r < w->n; r++) {
    if (s->color[r] != color || !s->came[r])
      continue;
    n++;
    rank += s->key[r] < s->key[c->rank] || (s->key[r] == s->key[c->rank] && r < c->rank);
  }
  snprintf(id, sizeof id, "%.60s/%u.%d", w->id, k, color);
  World *v = worlds;
  while (v && memcmp(v->id, id, sizeof id) != 0)
    v = v->next;
  if (!v) {
    v = shim_new(sizeof *v);
    memcpy(v->id, id, sizeof id);
    v->n = n, v->next = worlds;
    worlds = v;
  }
  *c->split_to = comm_new(v, rank);
  (*c->split_to)->config = s->config[c->rank];
  (*c->split_to)->blocking = s->config[c->rank].blocking;
}

/* ---- groups ---- */

static bool *met_for_sums(World *w, const Member *m) {
  const size_t bytes = m->n * size_of(m->type);
  uint32_t i = 0;
  while (i < w->nsize && w->size[i].bytes != bytes)
    i++;
  if (i == MAX_SIZES)
    abort();
  if (i == w->nsize)
    w->size[w->nsize++].bytes = bytes;
  return w->size[i].contact;
}

/* What a first contact with a peer is good for: messages of up to so many lines of 64 bytes. */
static size_t lines_of(const Member *m) { return m->n * size_of(m->type) / 64 + 1; }

/* Have all the hosts that the group meets for the first time come, too? */
static bool met(const Group *g) {
  World *w = g->comm->world;
  int me = g->comm->rank;
  for (uint32_t i = 0; i < g->n && !shim.alone; i++) {
    const Member *m = &g->member[i];
    if (m->what != SUM && w->contact[m->peer][me][m->what == SEND] < lines_of(m))
      return false;
    for (int r = 0; m->what == SUM && r < w->n; r++)
      if (!met_for_sums(w, m)[r])
        return false;
  }
  return true;
}

static void come(Group *g) {
  World *w = g->comm->world;
  int me = g->comm->rank;
  for (uint32_t i = 0; i < g->n; i++) {
    const Member *m = &g->member[i];
    bool *sum = m->what == SUM ? &met_for_sums(w, m)[me] : NULL;
    size_t *at = sum ? NULL : &w->contact[me][m->peer][m->what == RECV];
    if (sum ? *sum : *at >= lines_of(m))
      continue;
    if (shim.steady)
      shim_error("%s: the first contact of rank %d with %s is in a step", g->name, me,
                 sum ? "its group" : "its peer");
    if (sum)
      *sum = true;
    else
      *at = lines_of(m);
    shim.progress++;
  }
}

static void issue(Group *g) {
  Op *op = op_new(OP_NCCL);
  op->group = g, op->name = g->name;
  for (uint32_t i = 0; i < g->n; i++)
    if (g->member[i].logged && g->member[i].logged <= g->comm->host->nlog)
      g->comm->host->log[g->member[i].logged - 1].op = op;
  stream_put(g->stream, op);
}

/* Members of a group have no order among them. */
static void check_apart(const Group *g) {
  for (uint32_t i = 0; i < g->n; i++)
    for (uint32_t j = 0; j < i; j++) {
      const Member *a = &g->member[i], *b = &g->member[j];
      const char *p = a->to ? a->to : a->from, *q = b->to ? b->to : b->from;
      if ((a->to || b->to) && p < q + b->n * size_of(b->type) && q < p + a->n * size_of(a->type))
        shim_error("%s and %s of one group use the same memory", b->name, a->name);
    }
}

static ncclResult_t end_group(Group *g) {
  ncclComm_t c = g->comm;
  if (c->pending || c->joining || c->split_to)
    shim_error("%s: a call of NCCL while the communicator is in progress", g->name);
  for (uint32_t i = 0; i < g->n; i++) {
    Member *m = &g->member[i];
    m->group = g;
    if (m->what != SUM && !shim.alone &&
        (m->peer < 0 || m->peer >= c->world->n || (m->peer == c->rank && c->world->n > 1)))
      shim_error("%s: a transfer of rank %d of %d with rank %d", g->name, c->rank, c->world->n,
                 m->peer);
  }
  check_apart(g);
  if (c->host->loses) {
    c->host->loses = false;
    return ncclSuccess;
  }
  come(g);
  shim.threads += shim.steady && !c->blocking;
  c->inside++;
  while (c->blocking && (c->host->is_held || !met(g)) && !c->aborted && !shim.stalled &&
         !c->host->dead)
    shim_hold();
  c->inside--;
  if (c->aborted || (c->blocking && !met(g)))
    return ncclSystemError;
  if (met(g) && (c->blocking || shim_draw(2))) {
    issue(g);
    return ncclSuccess;
  }
  c->pending = g;
  return ncclInProgress;
}

/* Until what was issued to an aborted communicator is over, and no graph holds it. It gives back
 * memory, with which the driver may keep all other threads of the host out: if nothing can go on by
 * itself, it never ends. */
static void reclaim(ncclComm_t c) {
  if (c->inside)
    shim_error("a communicator is given back while its host is in a call on it");
  c->gone = true;
  while ((c->issued != c->done || c->captured) && !shim.stalled && !c->host->dead) {
    if (shim_one_op())
      continue;
    if (shim.hung++ == 0)
      snprintf(shim.hung_text, sizeof shim.hung_text,
               "the abort of communicator %u of rank %d never ends: %s", c->number, c->rank,
               c->issued != c->done ? "what is in it is held up" : "a graph holds it");
    return;
  }
}

ncclResult_t ncclGroupStart(void) {
  depth++;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  if (--depth > 0 || (!open_group && !naborted))
    return ncclSuccess;
  uint32_t n = naborted;
  Group *g = open_group;
  naborted = 0;
  open_group = NULL;
  if (!call_begin())
    return ncclSystemError;
  ncclResult_t r = g ? end_group(g) : ncclSuccess;
  for (uint32_t i = 0; i < n; i++)
    reclaim(aborted[i]);
  call_end();
  return r;
}

static ncclResult_t add(Member m, ncclComm_t c, cudaStream_t s) {
  if (!call_begin())
    return ncclSystemError;
  ShimLog *l = shim_note(m.what == SEND ? SHIM_SEND : m.what == RECV ? SHIM_RECV : SHIM_SUM, s);
  l->peer = m.peer, l->p = m.to ? m.to : m.from, l->bytes = m.n * size_of(m.type);
  ncclResult_t r = ncclSuccess;
  if (c->gone)
    shim_error("a call on a communicator that has been given back");
  shim.transfers += m.what != SUM;
  if (m.what != SUM && c->world->n > 1 && c->config.maxCTAs == 0)
    shim_error("a transfer that may take all of the device while it waits");
  if (m.what == SEND)
    shim_settings = (ShimSettings){c->config.maxCTAs, c->config.minCTAs, c->config.cgaClusterSize,
                                   c->config.nChannelsPerNetPeer};
  if (!open_group) {
    open_group = shim_new(sizeof *open_group);
    open_group->comm = c, open_group->stream = s, open_group->name = shim_range();
  }
  m.name = shim_range();
  m.logged = shim.log ? shim_me()->nlog : 0;
  Group *g = open_group;
  if (g->comm != c || g->stream != s || g->n == MAX_MEMBERS)
    shim_error("%s: one group of several communicators or streams", g->name);
  else
    g->member[g->n++] = m;
  if (depth == 0) {
    open_group = NULL;
    r = end_group(g);
  }
  call_end();
  return r;
}

ncclResult_t ncclSend(const void *p, size_t n, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t s) {
  return add((Member){.what = SEND, .peer = peer, .from = p, .n = n, .type = type}, c, s);
}
ncclResult_t ncclRecv(void *p, size_t n, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t s) {
  return add((Member){.what = RECV, .peer = peer, .to = p, .n = n, .type = type}, c, s);
}
ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
  (void)op;
  return add((Member){.what = SUM, .peer = -1, .from = from, .to = to, .n = n, .type = type}, c, s);
}

void group_captured(Group *g, bool is) { is ? g->comm->captured++ : g->comm->captured--; }

void group_issued(Group *g) {
  g->turn = g->comm->issued++;
  g->launch = g->comm->host->nccl_issued++;
}

/* Does the device start it, with what else is on it of NCCL? */
static bool has_room(const Group *g) {
  const Host *h = g->comm->host;
  if (h->order == ORDER_NONE)
    return h->nccl_started == h->nccl_over;
  return g->launch == h->nccl_started && (h->order == ORDER_LAUNCH || g->launch == h->nccl_over);
}

Group *group_again(const Group *g) {
  Group *n = shim_new(sizeof *n);
  *n = *g;
  n->over = false;
  n->replayed = true;
  for (uint32_t i = 0; i < n->n; i++)
    n->member[i].posted = n->member[i].done = false, n->member[i].group = n;
  return n;
}

static void put(Queue *q, Member *m) {
  if (q->n == q->cap) {
    Member **more = shim_new((2 * q->cap + 64) * sizeof *more);
    if (q->n)
      memcpy(more, q->at, q->n * sizeof *more);
    q->at = more, q->cap = 2 * q->cap + 64;
  }
  q->at[q->n++] = m;
}

/* An access of a group is over once its stream is past it, which other ranks do not learn from what
 * they get. */
static void touch(const Group *g, const Vc *at, const void *p, size_t bytes, bool write,
                  const char *name) {
  Vc over = *at;
  over.t[g->stream->clock]++;
  shim_touch(g->stream->clock, &over, p, bytes, write, name);
}

/* Does one of the two ends use its memory itself, and not buffers of NCCL? In a graph memory of
 * NCCL is registered without being asked for. */
static bool is_registered(const Group *g, const void *p, size_t bytes) {
  const struct Range *x = g->comm->range;
  while (x && ((const char *)p < x->p || (const char *)p + bytes > x->p + x->bytes))
    x = x->next;
  return x || (g->replayed && memory_is(p, bytes, true));
}

static void match(Member *send, Member *recv) {
  Group *a = send->group, *b = recv->group;
  size_t bytes = send->n * size_of(send->type), room = recv->n * size_of(recv->type);
  if (a->comm->aborted || b->comm->aborted) /* one end has gone */
    return;
  if (bytes != room || send->type != recv->type)
    shim_error("%s sends %zu bytes where %s expects %zu", send->name, bytes, recv->name, room);
  if (is_registered(a, send->from, bytes) != is_registered(b, recv->to, room))
    shim_error("%s and %s: the memory of one end is registered, that of the other is not",
               send->name, recv->name);
  if (shim_pairs && !shim_pairs(send->name, recv->name))
    shim_error("%s of rank %d meets %s of rank %d", send->name, a->comm->rank, recv->name,
               b->comm->rank);
  Vc both = b->at;
  vc_hear(&both, &a->at, b->comm->host);
  vc_hear(&b->got, &a->at, b->comm->host);
  touch(a, &a->at, send->from, bytes, false, send->name);
  touch(b, &both, recv->to, room, true, recv->name);
  memcpy(recv->to, send->from, bytes < room ? bytes : room);
  send->done = recv->done = true;
}

static void add_up(const World *w, Member **m) {
  size_t n = m[0]->n;
  char *sum = shim_new(n * 8 + 8);
  for (int r = 0; r < w->n; r++) {
    if (m[r]->n != n || m[r]->type != m[0]->type)
      shim_error("%s sums %zu numbers where %s sums %zu", m[r]->group->name, m[r]->n,
                 m[0]->group->name, n);
    touch(m[r]->group, &m[r]->group->at, m[r]->from, n * size_of(m[r]->type), false,
          m[r]->group->name);
    for (size_t i = 0; i < n; i++)
      switch (m[0]->type) {
      case ncclFloat32:
        ((float *)sum)[i] = r ? ((float *)sum)[i] + ((const float *)m[r]->from)[i]
                              : ((const float *)m[r]->from)[i];
        break;
      case ncclFloat64: ((double *)sum)[i] += ((const double *)m[r]->from)[i]; break;
      case ncclUint64:
      case ncclInt64: ((uint64_t *)sum)[i] += ((const uint64_t *)m[r]->from)[i]; break;
      case ncclInt8:
      case ncclUint8: sum[i] = (char)(sum[i] + ((const char *)m[r]->from)[i]); break;
      default: shim_error("%s: a sum of a type that the shim does not have", m[0]->group->name);
      }
  }
  for (int r = 0; r < w->n; r++)
    for (int q = 0; q < w->n; q++)
      vc_hear(&m[r]->group->at, &m[q]->group->at, m[r]->group->comm->host);
  for (int r = 0; r < w->n; r++) {
    touch(m[r]->group, &m[r]->group->at, m[r]->to, n * size_of(m[r]->type), true,
          m[r]->group->name);
    memcpy(m[r]->to, sum, n * size_of(m[0]->type));
    m[r]->done = true;
  }
}

static void post(Group *g) {
  World *w = g->comm->world;
  int me = g->comm->rank;
  for (uint32_t i = 0; i < g->n; i++) {
    Member *m = &g->member[i];
    if (shim.alone) {
      m->done = true;
      continue;
    }
    bool send = m->what == SEND;
    if (m->what == SUM) {
      put(&w->sums[me], m);
    } else {
      Queue *mine = &w->queue[send ? me : m->peer][send ? m->peer : me][!send],
            *theirs = &w->queue[send ? me : m->peer][send ? m->peer : me][send];
      put(mine, m);
      if (theirs->n >= mine->n)
        match(send ? m : theirs->at[mine->n - 1], send ? theirs->at[mine->n - 1] : m);
      continue;
    }
    Member *all[MAX_RANKS];
    uint64_t k = w->sums[me].n - 1;
    bool there = true;
    for (int r = 0; r < w->n && there; r++) {
      there = w->sums[r].n > k && !w->comm[r]->aborted;
      all[r] = there ? w->sums[r].at[k] : NULL;
    }
    if (there)
      add_up(w, all);
  }
}

bool group_ready(Group *g, cudaStream_t s) {
  bool done = true;
  if (g->over)
    return true;
  if (g->comm->done != g->turn || (!g->member[0].posted && !has_room(g)))
    return false;
  if (!g->member[0].posted) {
    g->comm->host->nccl_started++;
    vc_join(&s->vc, &s->head->host);
    s->vc.t[s->clock]++;
    g->at = s->head->at = s->vc;
    memset(&g->got, 0, sizeof g->got);
    g->stream = s; /* of the graph, if it is one of a graph */
    for (uint32_t i = 0; i < g->n; i++)
      g->member[i].posted = true;
    if (!g->comm->aborted) /* else it is over as soon as it has started */
      post(g);
    shim.progress++;
  }
  for (uint32_t i = 0; i < g->n; i++)
    done &= g->member[i].done || g->comm->aborted;
  if (done) {
    g->comm->done++;
    g->comm->host->nccl_over++;
    vc_join(&s->vc, &g->at);
    vc_join(&s->vc, &g->got);
    g->over = true;
  }
  return done;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *r) {
  if (!call_begin())
    return ncclSystemError;
  World *w = c->world;
  bool there = true;
  if (c->gone)
    shim_error("a communicator that has been given back is asked");
  if (c->joining) {
    for (int i = 0; i < w->n; i++)
      there &= w->joined[i] || shim.alone;
    c->joining = !there;
  } else if (c->split_to) {
    for (int i = 0; i < w->n; i++)
      there &= w->split[c->nsplit - 1].came[i] || shim.alone;
    if (there) {
      finish_split(c);
      c->split_to = NULL;
    }
  } else if (c->pending) {
    there = met(c->pending);
    if (there && c->host->capturing && shim_draw(2)) { /* it takes its time */
      there = false;
      shim.progress++;
    }
    if (there) {
      issue(c->pending);
      c->pending = NULL;
    }
  } else if (c->finalizing) {
    there = --c->finalizing == 0;
    shim.progress++;
  }
  if (!there)
    shim_in_vain();
  *r = c->aborted                         ? ncclInvalidUsage
       : c->host->broken == c->number + 1 ? ncclRemoteError
       : there                            ? ncclSuccess
                                          : ncclInProgress;
  call_end();
  return shim.stalled ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
  if (!call_begin())
    return ncclSystemError;
  if (c->issued != c->done)
    shim_error("a communicator is finalized with work in it");
  if (c->captured)
    shim_error("a communicator is finalized while a graph holds it: that never ends");
  c->finalizing = !c->blocking && shim_draw(4) ? 8 + shim_draw(8) : 0;
  ncclResult_t r = c->finalizing ? ncclInProgress : ncclSuccess;
  call_end();
  return r;
}
ncclResult_t ncclCommDestroy(ncclComm_t c) {
  (void)c;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t c) {
  const bool goes_on = call_begin();
  if (!goes_on)
    pthread_mutex_lock(&shim.lock);
  shim.aborts += !c->aborted;
  c->aborted = true;
  c->pending = NULL;
  shim.progress++;
  if (!goes_on)
    pthread_mutex_unlock(&shim.lock);
  if (!goes_on)
    return ncclSuccess;
  if (depth == 0) /* it waits where it is called */
    reclaim(c);
  else if (naborted < sizeof aborted / sizeof *aborted)
    aborted[naborted++] = c;
  else
    abort();
  call_end();
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void **p, size_t bytes) {
  return memory_of_nccl(p, bytes) ? ncclSystemError : ncclSuccess;
}
ncclResult_t ncclMemFree(void *p) { return cudaFree(p) ? ncclSystemError : ncclSuccess; }
ncclResult_t ncclCommRegister(const ncclComm_t c, void *p, size_t bytes, void **handle) {
  if (!call_begin())
    return ncclSystemError;
  struct Range *x = shim_new(sizeof *x);
  *x = (struct Range){c->range, p, bytes};
  if (!memory_is(p, bytes, false))
    shim_error("%zu bytes are registered that are not all of one piece of memory", bytes);
  *handle = c->range = x;
  call_end();
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t c, void *handle) {
  if (!call_begin())
    return ncclSystemError;
  struct Range **x = &c->range;
  while (*x && *x != handle)
    x = &(*x)->next;
  if (*x)
    *x = (*x)->next;
  else
    shim_error("memory that is not registered is given up");
  call_end();
  return ncclSuccess;
}

/* ---- ranges ---- */

int nvtxRangePushA(const char *name) {
  Host *h = shim_me();
  if (h->nname == sizeof h->name / sizeof *h->name)
    abort();
  snprintf(h->name[h->nname++], sizeof *h->name, "%s", name);
  return (int)h->nname;
}
int nvtxRangePop(void) { return (int)--shim_me()->nname; }
