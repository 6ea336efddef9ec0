/* SPDX-License-Identifier: MIT
 * See shim.h: hosts and their turns, streams, clocks and memory. */
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "shim_run.h"

uint64_t pr_now(void); /* of the runtime */

struct Shim shim = {.lock = PTHREAD_MUTEX_INITIALIZER};
bool (*shim_pairs)(const char *, const char *);
static _Thread_local Host *me;

/* ---- what lives until shim_end ---- */

typedef struct Kept {
  struct Kept *next;
} Kept;
static Kept *kept;

void *shim_new(size_t bytes) {
  Kept *k = calloc(1, sizeof *k + bytes + 16);
  if (!k)
    abort();
  k->next = kept, kept = k;
  return k + 1 + sizeof(void *) / sizeof *k; /* 16-aligned */
}

/* ---- lines of memory ---- */

enum {
  LINE = 8,
  BUCKETS = 1 << 16,
  MOST_LAUNCHES = 256 /* that wait in a stream; 1024 or so on devices */
};
typedef struct Seen {
  uint32_t clock;
  uint64_t time;
  const char *name;
} Seen;
typedef struct Line {
  struct Line *next;
  uintptr_t at;
  Seen wrote, *read;
  uint32_t nread, cap;
} Line;
static Line *lines[BUCKETS];

static Line *line_of(uintptr_t at, bool add) {
  Line **b = &lines[(at * UINT64_C(0x9e3779b97f4a7c15)) >> 48];
  for (Line *l = *b; l; l = l->next)
    if (l->at == at)
      return l;
  if (!add)
    return NULL;
  Line *l = shim_new(sizeof *l);
  l->at = at, l->next = *b;
  return *b = l;
}

static void race(const Seen *a, uint32_t c, const char *how, const char *name) {
  shim_error("race: %s (clock %u) and %s (clock %u) %s the same memory, and nothing orders them",
             a->name, a->clock, name, c, how);
}

void shim_touch(uint32_t c, const Vc *vc, const void *p, size_t bytes, bool write,
                const char *name) {
  if (!p || bytes == 0 || shim.unwatched)
    return;
  uintptr_t end = ((uintptr_t)p + bytes - 1) / LINE;
  for (uintptr_t at = (uintptr_t)p / LINE; at <= end; at++) {
    Line *l = line_of(at, true);
    if (l->wrote.name && l->wrote.clock != c && vc->t[l->wrote.clock] < l->wrote.time)
      race(&l->wrote, c, write ? "write" : "write and read", name);
    Seen now = {c, vc->t[c], name};
    for (uint32_t i = 0; write && i < l->nread; i++)
      if (l->read[i].clock != c && vc->t[l->read[i].clock] < l->read[i].time)
        race(&l->read[i], c, "read and write", name);
    if (write) {
      l->wrote = now, l->nread = 0;
      continue;
    }
    uint32_t i = 0;
    while (i < l->nread && l->read[i].clock != c)
      i++;
    if (i == l->cap) {
      Seen *more = shim_new((l->cap + 4) * sizeof *more);
      if (l->nread)
        memcpy(more, l->read, l->nread * sizeof *more);
      l->read = more, l->cap += 4;
    }
    l->read[i] = now;
    l->nread += i == l->nread;
  }
}

typedef struct Number {
  struct Number *next;
  const void *at;
  Vc vc;
} Number;
static Number *numbers;

Vc *shim_number(const void *p) {
  Number *n = numbers;
  while (n && n->at != p)
    n = n->next;
  if (!n) {
    n = shim_new(sizeof *n);
    n->at = p, n->next = numbers;
    numbers = n;
  }
  return &n->vc;
}

void shim_forget(const void *p, size_t bytes) {
  if (shim.unwatched)
    return;
  for (uintptr_t at = (uintptr_t)p / LINE; bytes && at <= ((uintptr_t)p + bytes - 1) / LINE; at++) {
    Line *l = line_of(at, false);
    if (l)
      l->wrote.name = NULL, l->nread = 0;
  }
}

/* ---- small things ---- */

uint64_t shim_draw(uint64_t n) { /* splitmix64 */
  uint64_t z = shim.random += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return (z ^ z >> 31) % n;
}

void shim_error(const char *fmt, ...) {
  if (shim.errors++ > 0)
    return;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(shim.text, sizeof shim.text, fmt, ap);
  va_end(ap);
}

uint32_t shim_clock(const Host *h) {
  if (shim.nclock == MAX_CLOCKS)
    abort();
  shim.owner[shim.nclock] = (uint8_t)h->id;
  return shim.nclock++;
}

void vc_join(Vc *a, const Vc *b) {
  for (uint32_t i = 0; i < shim.nclock; i++)
    a->t[i] = b->t[i] > a->t[i] ? b->t[i] : a->t[i];
}

void vc_hear(Vc *a, const Vc *b, const Host *h) {
  for (uint32_t i = 0; i < shim.nclock; i++)
    if (shim.owner[i] != h->id && b->t[i] > a->t[i])
      a->t[i] = b->t[i];
}

Host *shim_me(void) { return me; }

static _Thread_local Host *parent; /* of a thread that a host has started */
void shim_start(Host *by) { parent = by; }

const char *shim_range(void) {
  const char *name = me->nname ? me->name[me->nname - 1] : "an unnamed operation";
  char *copy = shim_new(64);
  snprintf(copy, 64, "%s", name);
  return copy;
}

static ShimLog *log_more(void) {
  if (me->nlog == me->caplog) {
    me->caplog = me->caplog ? 2 * me->caplog : 64;
    me->log = realloc(me->log, me->caplog * sizeof *me->log);
    if (!me->log)
      abort();
  }
  return &me->log[me->nlog++];
}

ShimLog *shim_note(ShimCall call, cudaStream_t s) {
  static ShimLog nowhere;
  if (!shim.log)
    return &nowhere;
  ShimLog *l = log_more();
  *l = (ShimLog){.call = call, .stream = s ? s->number : UINT32_MAX};
  snprintf(l->name, sizeof l->name, "%s", me->nname ? me->name[me->nname - 1] : "");
  return l;
}

void shim_note_again(const Capture *c) {
  for (uint32_t i = 0; i < c->nlog; i++) {
    ShimLog *l = log_more();
    *l = c->log[i];
    l->op = l->op ? l->op->launched : NULL;
  }
}

bool shim_after(const ShimLog *l, const ShimLog *other) {
  return l->op && other->op && l->op->over && other->op->over &&
         l->op->at.t[other->op->clock] >= other->op->time;
}
uint32_t shim_log_length(uint32_t host) { return shim.host[host].nlog; }
const ShimLog *shim_log(uint32_t host) { return shim.host[host].log; }
void shim_log_clear(void) {
  for (uint32_t i = 0; i < MAX_HOSTS; i++)
    shim.host[i].nlog = 0;
}
uint32_t shim_errors(void) { return shim.errors; }
const char *shim_error_text(void) { return shim.text; }
uint32_t shim_stuck(void) { return shim.stuck; }
uint32_t shim_hung(void) { return shim.hung; }
const char *shim_hung_text(void) { return shim.hung_text; }
uint32_t shim_aborts(void) { return shim.aborts; }
uint32_t shim_threads(void) { return shim.threads; }
uint32_t shim_transfers(void) { return shim.transfers; }
uint32_t shim_comms(void) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < shim.nhost; i++)
    n += shim.host[i].ncomm;
  return n;
}
bool shim_stalled(void) { return shim.stalled; }
uint64_t shim_most_queued(void) { return shim.most_queued; }
void shim_unwatched(void) { shim.unwatched = true; }
void shim_lazy(void) { shim.lazy = true; }
void shim_deaf(void) { shim.deaf = true; }
void shim_apart(void) { shim.apart = true; }
void shim_alone(void) { shim.alone = true; }
void shim_one_queue(void) { shim.one_queue = true; }
void shim_hasty(void) { shim.hasty = true; }
void shim_break(uint32_t host, uint32_t n) { shim.host[host].broken = n + 1; }
void shim_version(int nccl) { shim.version = nccl; }
void shim_unordered(void) {
  for (uint32_t i = 0; i < MAX_HOSTS; i++)
    shim.host[i].order = ORDER_NONE;
}
void shim_steady(bool on) { shim.steady = on; }
bool shim_was_killed(void) { return (me ? me : parent)->dead; }
bool shim_is_busy(void) {
  bool busy = false;
  pthread_mutex_lock(&shim.lock);
  for (cudaStream_t s = shim.streams; s; s = s->all)
    busy |= s->host == me && s->head;
  pthread_mutex_unlock(&shim.lock);
  return busy;
}
bool shim_is_dead(uint32_t host) {
  pthread_mutex_lock(&shim.lock);
  bool dead = shim.host[host].dead;
  pthread_mutex_unlock(&shim.lock);
  return dead;
}
void shim_hang(uint32_t host, bool all) {
  shim.host[host].hang = HANGS_NEXT;
  shim.host[host].hangs_all = all;
}
void shim_go_on(void) {
  pthread_mutex_lock(&shim.lock);
  for (uint32_t i = 0; i < MAX_HOSTS; i++) {
    shim.late |= shim.host[i].hang == HANGS;
    shim.host[i].hang = HANGS_NOT;
  }
  while (shim.late && shim_one_op()) {
  } /* a run that was only stopped has work in its streams, and no memory */
  pthread_mutex_unlock(&shim.lock);
}
void shim_hold_call(uint32_t host) { shim.host[host].is_held = true; }
void shim_lose(uint32_t host) { shim.host[host].loses = true; }
void shim_skip(uint32_t host, uint32_t n) { shim.host[host].skip = n + 1; }
void shim_overtake(uint32_t host, uint32_t n) { shim.host[host].overtakes = n + 1; }
void shim_forgo(uint32_t host, uint32_t n) { shim.host[host].forgoes = n + 1; }
void shim_kill(uint32_t host, uint64_t calls) {
  shim.host[host].calls_left = calls;
  shim.killed = true;
}

/* ---- streams ---- */

cudaStream_t stream_new(Host *h, uint32_t clock) {
  cudaStream_t s = shim_new(sizeof *s);
  s->host = h, s->clock = clock;
  s->all = shim.streams;
  return shim.streams = s;
}

Op *op_new(Kind kind) {
  Op *op = shim_new(sizeof *op);
  op->kind = kind;
  op->host = me->vc;
  op->name = shim_range();
  me->vc.t[me->clock]++;
  return op;
}

void stream_queue(cudaStream_t s, Op *op) {
  op->next = NULL;
  op->number = s->host->queued++;
  if (s->tail && s->tail->kind == OP_COPY && op->put == PUT_TOO_EARLY) {
    Op **at = &s->head;
    while (*at != s->tail)
      at = &(*at)->next;
    op->next = s->tail;
    *at = op;
  } else {
    if (s->tail)
      s->tail->next = op;
    else
      s->head = op;
    s->tail = op;
  }
  if (++s->queued > shim.most_queued && shim.steady)
    shim.most_queued = s->queued;
  if (s->queued > MOST_LAUNCHES && s->host->hang == HANGS && shim.hung++ == 0)
    snprintf(shim.hung_text, sizeof shim.hung_text,
             "a stream takes no more launches while a kernel hangs");
  shim.progress++;
}

void stream_put(cudaStream_t s, Op *op) {
  Capture *c = s->capture;
  if (shim_device() != s->device)
    shim_error("%s goes into a stream of device %d from a thread whose device is %d", op->name,
               s->device, shim_device());
  if (!c) {
    if (s->host->capturing)
      shim_error("%s goes into a stream outside of the capture at hand", op->name);
    if (op->group)
      group_issued(op->group);
    stream_queue(s, op);
    return;
  }
  if (op->group)
    group_captured(op->group, true);
  if (c->nop == c->cap) {
    Op **more = shim_new((2 * c->cap + 64) * sizeof *more);
    if (c->nop)
      memcpy(more, c->op, c->nop * sizeof *more);
    c->op = more, c->cap = 2 * c->cap + 64;
  }
  op->in = s;
  c->op[c->nop++] = op;
  s->vc.t[s->clock]++;
  shim.progress++;
}

/* In one queue: is all over that its host has issued before? */
static bool is_first(cudaStream_t s, const Op *op) {
  bool first = true;
  for (cudaStream_t x = shim.streams; x && shim.one_queue; x = x->all)
    first = first && (x->host != s->host || !x->head || x->head->number >= op->number);
  return first;
}

static bool can_go(cudaStream_t s) {
  Op *op = s->head;
  if (!op || s->held || s->host->dead || !is_first(s, op) ||
      (s->host->hang == HANGS && (op->hangs || s->host->hangs_all)))
    return false;
  if (op->kind == OP_WAIT)
    return op->record->done;
  if (op->kind == OP_AWAIT)
    return op->value < 0 || (int32_t)(*(const uint32_t *)op->from - (uint32_t)op->value) >= 0;
  if (op->kind == OP_NCCL)
    return group_ready(op->group, s);
  return op->kind != OP_GRAPH || graph_ready(op->run, s);
}

static void carry_out(cudaStream_t s) {
  Op *op = s->head;
  vc_join(&s->vc, &op->host);
  s->vc.t[s->clock]++;
  if (op->kind != OP_NCCL) /* that has started when it was posted */
    op->at = s->vc;
  op->over = true, op->clock = s->clock, op->time = s->vc.t[s->clock];
  switch (op->kind) {
  case OP_KERNEL:
    for (uint32_t i = 0; i < op->naccess; i++)
      shim_touch(s->clock, &s->vc, op->access[i].p, 1, op->access[i].write, op->name);
    if (!shim.late ||
        !op->access) /* what kernels of the test's models read has gone with the run */
      op->fn(op->arg);
    break;
  case OP_COPY:
    if (!shim.deaf || op->bytes != sizeof(uint32_t)) {
      shim_touch(s->clock, &s->vc, op->from, op->bytes, false, op->name);
      shim_touch(s->clock, &s->vc, op->to, op->bytes, true, op->name);
    }
    memmove(op->to, op->from, op->bytes);
    if (op->bytes == sizeof(uint32_t))
      *shim_number(op->to) = s->vc;
    break;
  case OP_AWAIT:
    if (op->value >= 0 && !shim.deaf)
      vc_join(&s->vc, shim_number(op->from));
    break;
  case OP_PUT:
    if (op->put == PUT_NEVER)
      break;
    if (!shim.deaf)
      shim_touch(s->clock, &s->vc, op->to, sizeof(uint32_t), true, op->name);
    memcpy(op->to, &op->value, sizeof(uint32_t));
    *shim_number(op->to) = s->vc;
    break;
  case OP_SET:
    shim_touch(s->clock, &s->vc, op->to, op->bytes, true, op->name);
    memset(op->to, op->value, op->bytes);
    break;
  case OP_RECORD:
    op->record->done = true;
    op->record->vc = s->vc;
    op->record->ms = (double)shim.ticks * 1e-3;
    break;
  case OP_WAIT: vc_join(&s->vc, &op->record->vc); break;
  case OP_GRAPH: graph_over(op->run); break;
  default: break;
  }
  s->head = op->next;
  s->queued--;
  if (!s->head)
    s->tail = NULL;
  shim.progress++;
  shim.ticks++;
}

/* Carries out one operation, picked among those that can go on. False: there is none. */
bool shim_one_op(void) {
  cudaStream_t pick = NULL;
  uint64_t n = 0, before;
  do { /* again if looking has let something begin */
    before = shim.progress;
    for (cudaStream_t s = shim.streams; s; s = s->all)
      if (can_go(s) && shim_draw(++n) == 0)
        pick = s;
  } while (!pick && shim.progress != before);
  if (pick)
    carry_out(pick);
  return pick != NULL;
}

/* ---- turns ---- */

/* Has nothing gone on for so many looks that other hosts' turns change nothing either? */
static bool is_idle(void) {
  enum { MANY = 100 };
  return shim.progress == shim.idle_since && shim.idle > MANY;
}

/* Where nothing goes on, a host looks several times in its turn: a turn costs far more than a look.
 * Signals without the lock, which who is woken takes at once: all hosts are on one processor. */
static void give_turn(void) {
  enum { LOOKS = 16 };
  uint32_t pick = shim.turn;
  if (is_idle() && shim_draw(LOOKS) > 0)
    return;
  uint64_t n = 0;
  for (uint32_t i = 0; i < shim.nhost; i++)
    if (shim.host[i].in && !shim.host[i].gone && shim_draw(++n) == 0)
      pick = i;
  if (pick == shim.turn)
    return;
  shim.turn = pick;
  pthread_mutex_unlock(&shim.lock);
  pthread_cond_broadcast(&shim.host[pick].cond);
  pthread_mutex_lock(&shim.lock);
}

static void take_turn(void) {
  while (shim.turn != me->id)
    pthread_cond_wait(&me->cond, &shim.lock);
}

/* Nothing goes on, and a call holds a host: has the thread that watches it had its time, too? A
 * pause of the whole process counts as one look, whatever the clock says. */
static bool is_left_alone(void) {
  const uint64_t patience_ns = 2000000000, look_ns = 1000000;
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  const uint64_t now = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
  if (shim.held_at != shim.progress)
    shim.held_at = shim.progress, shim.held_ns = 0, shim.looked_ns = now;
  shim.held_ns += now - shim.looked_ns < look_ns ? now - shim.looked_ns : look_ns;
  shim.looked_ns = now;
  return shim.held_ns > patience_ns;
}

static bool all_in_vain(void) {
  for (uint32_t i = 0; i < shim.nhost; i++) {
    const Host *h = &shim.host[i];
    if (!h->in || (!h->gone && (h->seen != shim.progress || !h->again)))
      return false;
    if (!h->gone && h->until && h->until(h->arg)) /* it has come since it looked */
      return false;
  }
  return shim.nheld == 0 || is_left_alone();
}

void shim_in_vain(void) {
  if (shim_one_op())
    return;
  if (me->seen != shim.progress) /* between two looks it may do something, until it sleeps */
    me->again = me->rested = false;
  else
    me->again = me->again || me->until || me->rested;
  me->seen = shim.progress;
  shim.idle = shim.idle_since == shim.progress ? shim.idle + 1 : 0;
  shim.idle_since = shim.progress;
  if (!shim.killed && !shim.alone && all_in_vain() && !shim.stalled) {
    shim.stalled = true;
    shim.progress++;
  }
  give_turn();
  take_turn();
}

bool shim_until(bool (*f)(void *), void *arg) {
  me->until = f, me->arg = arg;
  bool never = false;
  while (!f(arg) && !never) {
    bool alone = false; /* who was killed does not come any more */
    for (uint32_t i = 0; i < shim.nhost; i++)
      alone |= shim.host[i].dead;
    never = shim.stalled || alone;
    if (!never)
      shim_in_vain();
  }
  me->until = NULL;
  shim.progress += !never;
  return !never;
}

bool call_begin(void) {
  if (!me && !parent && !shim.alone)
    abort(); /* shim_enter was not called */
  if (!me)
    me = parent ? parent : &shim.host[0];
  pthread_mutex_lock(&shim.lock);
  take_turn();
  if (me->calls_left != UINT64_MAX && me->calls_left-- == 0)
    me->dead = true, me->calls_left = UINT64_MAX, memory_of_dead(me);
  if (shim.stalled || me->dead) {
    pthread_mutex_unlock(&shim.lock);
    return false;
  }
  for (uint64_t n = shim_draw(3); n > 0 && !shim.lazy && shim_one_op(); n--) {}
  return true;
}

void call_end(void) {
  if (shim_draw(5) == 0) {
    give_turn();
    take_turn();
  }
  pthread_mutex_unlock(&shim.lock);
}

void shim_hold(void) {
  pr_now(); /* time goes on */
  me->rested = true;
  shim.nheld++;
  shim_in_vain();
  pthread_mutex_unlock(&shim.lock);
  sched_yield();
  pthread_mutex_lock(&shim.lock);
  take_turn();
  shim.nheld--;
}

void shim_rest(void) {
  enum { MEANWHILE = 8 };
  pthread_mutex_lock(&shim.lock);
  take_turn();
  for (int i = 0; i < MEANWHILE && !shim.stalled && !me->dead && !shim.lazy; i++)
    shim_one_op();
  me->rested = true;
  give_turn(); /* it may wait for what another host writes into memory */
  take_turn();
  pthread_mutex_unlock(&shim.lock);
  if (parent) /* it may wait for the thread that has started it */
    sched_yield();
}

bool shim_wait(bool (*f)(void *), void *arg) {
  if (!call_begin())
    return false;
  bool ok = shim_until(f, arg);
  call_end();
  return ok;
}

void shim_write_down(const void *p) {
  pthread_mutex_lock(&shim.lock);
  *shim_number(p) = me->vc;
  me->vc.t[me->clock]++;
  pthread_mutex_unlock(&shim.lock);
}
void shim_read(const void *p) {
  pthread_mutex_lock(&shim.lock);
  vc_hear(&me->vc, shim_number(p), me);
  pthread_mutex_unlock(&shim.lock);
}

void shim_enter(uint32_t host) {
  pthread_mutex_lock(&shim.lock);
  me = &shim.host[host];
  me->in = true;
  shim.progress++;
  bool all = true;
  for (uint32_t i = 0; i < shim.nhost; i++)
    all = all && shim.host[i].in;
  if (all) { /* the first turn */
    give_turn();
  }
  take_turn();
  pthread_mutex_unlock(&shim.lock);
}

void shim_leave(void) {
  pthread_mutex_lock(&shim.lock);
  take_turn();
  me->gone = true;
  shim.progress++;
  give_turn();
  me = NULL;
  pthread_mutex_unlock(&shim.lock);
}

void shim_begin(uint64_t seed, uint32_t nhost, bool log) {
  shim.on = true, shim.log = log;
  shim.unwatched = shim.steady = shim.stalled = shim.killed = shim.apart = shim.deaf = shim.lazy =
      shim.late = shim.alone = shim.one_queue = shim.hasty = false;
  shim.random = seed, shim.progress = shim.ticks = shim.most_queued = 0;
  shim.idle = shim.idle_since = 0;
  shim.nheld = 0, shim.held_at = UINT64_MAX;
  shim.version = 0;
  shim.nhost = nhost, shim.nclock = 0, shim.errors = shim.stuck = 0, shim.text[0] = 0;
  shim.hung = shim.aborts = shim.transfers = shim.threads = 0, shim.hung_text[0] = 0;
  shim.streams = NULL;
  shim.turn = UINT32_MAX;
  for (uint32_t i = 0; i < MAX_HOSTS; i++)
    shim.host[i] = (Host){
        .id = i, .calls_left = UINT64_MAX, .seen = UINT64_MAX, .cond = PTHREAD_COND_INITIALIZER};
  for (uint32_t i = 0; i < nhost; i++) {
    shim.host[i].clock = shim_clock(&shim.host[i]);
    shim.host[i].vc.t[shim.host[i].clock] = 1;
  }
}

void shim_end(void) {
  memory_left();
  nccl_reset();
  memset(lines, 0, sizeof lines);
  numbers = NULL;
  for (uint32_t i = 0; i < MAX_HOSTS; i++)
    free(shim.host[i].log);
  for (Kept *k = kept, *next; k; k = next) {
    next = k->next;
    free(k);
  }
  kept = NULL;
  shim.on = false;
}
