/* SPDX-License-Identifier: MIT
 * The engine of processes whose messages the program carries (pipe_transport.h).
 *
 * The caller's thread runs the COMPUTE stream, in pr_steps. Each COMM stream has a carrier, a
 * thread that carries out its head: all messages of a group at once, or a sum piece by piece. One
 * carrier more has the meeting at the end of a step. So the caller's thread returns when the run
 * fails, whatever a carrier is stuck in.
 *
 * A watcher hears from the group that another rank has failed, has gone or is late, and sees that
 * the step of this one takes too long. */
#include "interpret.h"
#include "pipe_transport.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 4 << 20 }; /* bytes of a sum's pieces of other ranks; pipe_transport.h promises it */
#define SECOND   UINT64_C(1000000000)
#define PATIENCE (5 * SECOND) /* that the group says what was first */

/* A tag is a number, which tells messages of a kind apart, and the kind. */
typedef enum Kind { OF_STREAM, OF_SUM, OF_MEETING, KINDS } Kind;

typedef struct Carrier {
  struct Outside *o;
  CommRun *c; /* NULL: that of the meeting */
  pthread_t thread;
  sem_t sem;
  bool has_sem, has_thread;
  bool busy;          /* in PrTransport.carry. Of Outside.lock */
  PrMessage *message; /* room for the most at once */
  void **piece;       /* what is being added up */
  char *room;         /* pieces of other ranks; of the meeting of rank 0, their losses */
} Carrier;

typedef struct Outside {
  PrRun *run;
  RankRun *k;
  const PrTransport *t;
  const PrGroup *g;
  Carrier *carrier; /* [ncarrier] of the streams; the last one of the meeting */
  uint32_t ncarrier;
  uint64_t step; /* whose meeting is due */
  pthread_t watcher;
  bool has_watcher;
  _Atomic bool agreed; /* on opening; before, a failure is told by `agree` */
  _Atomic bool told;   /* all know of a failure */
  _Atomic bool closing;
  _Atomic uint32_t late_at; /* PrRun.ck_at when this rank said that a checkpoint is late; else 0 */
  pthread_mutex_t lock;
  bool left; /* a carrier is busy for ever: all it could touch stays, but the run. Of `lock` */
} Outside;

/* Something has come to nothing: waits until the group says what was first, else fails with the
 * text. */
static PrStatus fail_in_vain(Outside *o, const char *text) {
  char first[PR_TEXT];
  for (uint64_t end = pr_now() + PATIENCE; pr_now() < end && !pr_failed(o->run);
       pr_nap(SECOND / 50))
    if (!o->has_watcher && o->g->heard(o->g->arg, first, sizeof first)) {
      o->told = true;
      return pr_fail(o->run, PR_E_LOST, "%.1000s", first);
    }
  return pr_fail(o->run, PR_E_LOST, "lost: %.1000s", text);
}

/* Carries out w->message[n], of instruction c or, NULL, of a meeting. False, here and below: the
 * run has failed, or is no more. */
static bool carry(Carrier *w, const PipeInstr *c, uint32_t n) {
  Outside *o = w->o;
  char where[PR_WHERE] = "the end of a step", text[PR_TEXT];
  pthread_mutex_lock(&o->lock);
  w->busy = n > 0 && !o->closing;
  bool goes = w->busy;
  pthread_mutex_unlock(&o->lock);
  if (!goes)
    return n == 0;
  int code = o->t->carry(o->t->arg, w->message, n);
  pthread_mutex_lock(&o->lock);
  w->busy = false;
  bool left = o->left;
  pthread_mutex_unlock(&o->lock);
  if (left || !code)
    return !left && !pr_failed(o->run);
  const char *why = o->t->why ? o->t->why(o->t->arg) : NULL;
  if (c)
    pr_where(o->run, c, where);
  snprintf(text, sizeof text, "%s: a message was not carried, code %d%s%.700s", where, code,
           why ? ": " : "", why ? why : "");
  fail_in_vain(o, text);
  return false;
}

static PrMessage message(Kind kind, uint64_t number, uint32_t peer, bool sends, void *data,
                         uint64_t bytes) {
  return (PrMessage){peer, (uint32_t)(number * KINDS + kind), sends, data, bytes};
}

/* Transfers */

/* A group of n transfers, from place `first` of the stream on. */
static bool transfer(Carrier *w, uint32_t first, uint32_t n) {
  Outside *o = w->o;
  PrRun *run = o->run;
  uint32_t count = 0;
  char *bit = NULL; /* one of its bytes is sent changed: fault.c */
  for (uint32_t i = first; i < first + n; i++) {
    uint32_t index = pr_comm_at(w->c, i)->index;
    const PipeInstr *c = &o->k->t->instr[index];
    void *slot = o->k->slot[pipe_is_send(c->op) ? c->in : c->out];
    if (pr_fault_is(run, PR_DROP, run->here, index, w->c->step))
      continue;
    if (pr_fault_is(run, PR_CORRUPT, run->here, index, w->c->step))
      *(bit = slot) ^= 1;
    w->message[count++] = message(OF_STREAM, pipe_transfer_number(run->p, c), c->peer,
                                  pipe_is_send(c->op), slot, pr_moved_bytes(run, c));
  }
  if (!carry(w, pr_comm_instr(w->c, first), count))
    return false;
  if (bit) /* what stays here is right */
    *bit ^= 1;
  return true;
}

/* Sums: each rank that takes part gets a piece of all gradients and adds them up in the order of
 * the threads engine. */

/* Row i of a sum: gradients, then copies. */
static uint32_t rank_of(const Outside *o, const Coll *l, uint32_t i) {
  uint32_t row = i < l->ngrad ? l->grad_row[i] : l->copy_row[i - l->ngrad];
  return o->run->p->stage[row].rank;
}

/* Is row i the first one of a rank elsewhere? */
static bool is_other(const Outside *o, const Coll *l, uint32_t i) {
  uint32_t rank = rank_of(o, l, i);
  for (uint32_t j = 0; j < i; j++)
    if (rank_of(o, l, j) == rank)
      return false;
  return rank != o->run->here;
}

/* The messages of the piece from byte `at` on. Returns how many. */
static uint32_t exchange(Carrier *w, const Coll *l, uint64_t at, uint64_t bytes) {
  uint32_t n = 0;
  char *room = w->room;
  for (uint32_t i = 0; i < l->ngrad; i++) {
    if (!l->grad[i]) {
      w->piece[i] = room;
      w->message[n++] = message(OF_SUM, l->grad_row[i], rank_of(w->o, l, i), false, room, bytes);
      room += pr_round(bytes);
      continue;
    }
    w->piece[i] = (char *)l->grad[i] + at;
    for (uint32_t j = 0; j < l->ngrad + l->ncopy; j++)
      if (is_other(w->o, l, j))
        w->message[n++] = message(OF_SUM, l->grad_row[i], rank_of(w->o, l, j), true, w->piece[i],
                                  bytes);
  }
  return n;
}

static bool sum(Carrier *w, uint32_t place) {
  PrRun *run = w->o->run;
  const CommAt *is = pr_comm_at(w->c, place);
  Coll *l = &run->coll[is->chan];
  const PrSizes *size = &run->stage[l->row[0]].size;
  const uint64_t all = l->tie ? size->tied : size->grad;
  const uint64_t each = (uint64_t)ROOM / l->ngrad / PR_LINE * PR_LINE;
  for (uint32_t i = 0; i < l->n; i++)
    l->index[i] = is->index; /* only that of this rank counts */
  for (uint64_t at = 0; at < all; at += each) {
    uint64_t bytes = all - at < each ? all - at : each;
    if (!carry(w, pr_comm_instr(w->c, place), exchange(w, l, at, bytes)) ||
        pr_add(run, l, w->piece, bytes, w->c->step))
      return false;
    for (uint32_t i = 0; i < l->ncopy; i++)
      if (l->copy[i])
        memcpy((char *)l->copy[i] + at, w->piece[0], bytes);
  }
  return true;
}

/* The end of a step: rank 0 puts the losses of all together, by bits, for each has zeros where
 * another one has the loss. */
static bool meet(Carrier *w) {
  Outside *o = w->o;
  PrRun *run = o->run;
  const uint32_t here = run->here;
  const uint64_t bytes = (uint64_t)run->nsink * run->p->nmb * sizeof(double);
  const uint64_t step = o->step; /* of the caller's thread again, once it is told */
  char *loss = (char *)run->loss[step & 1];
  for (int back = 0; back < 2; back++) {
    uint32_t n = 0;
    for (uint32_t r = 1; r < run->nprocess; r++)
      if (here == 0 || here == r)
        w->message[n++] = message(OF_MEETING, 0, here == 0 ? r : 0, back == (here == 0),
                                  here == 0 && !back ? w->room + (r - 1) * bytes : loss, bytes);
    if (!carry(w, NULL, n))
      return false;
    for (uint64_t i = 0; here == 0 && !back && i < n * bytes; i++)
      loss[i % bytes] |= w->room[i];
  }
  atomic_store(&run->released, step + 1);
  pr_tell_released(run, o->k, step + 1);
  return true;
}

/* Carriers */

static void begin(PrRun *run, CommRun *c, uint32_t i, CommRun **todo) {
  Outside *o = run->of_engine;
  (void)todo;
  if (i == c->next + pr_comm_instr(c, c->next)->group) /* the last one of its group */
    sem_post(&o->carrier[c->number].sem);
}

static void carry_head(Carrier *w) {
  PrRun *run = w->o->run;
  const PipeInstr *head = pr_comm_instr(w->c, w->c->next);
  const uint32_t first = w->c->next, n = head->group + 1u;
  CommRun *todo = NULL;
  if (head->op == PIPE_SIDE_COMM) {
    if (pr_side(run, w->o->k, pr_comm_at(w->c, first)->index, w->c->step))
      return;
  } else if (!(pipe_is_sum(head->op) ? sum(w, first) : transfer(w, first, n))) {
    return;
  }
  for (uint32_t i = first; i < first + n; i++)
    pr_over(run, w->c, i, &todo);
  pr_advance(run, todo);
}

static void *carrier_thread(void *arg) {
  Carrier *w = arg;
  for (;;) {
    while (sem_wait(&w->sem) && errno == EINTR)
      ;
    if (atomic_load(&w->o->closing))
      return NULL;
    if (w->c)
      carry_head(w);
    else
      meet(w);
    if (atomic_load(&w->o->closing))
      return NULL;
  }
}

/* Steps, on the caller's thread */

static void end_step(PrRun *run, RankRun *k, uint64_t step) {
  Outside *o = run->of_engine;
  o->step = step;
  sem_post(&o->carrier[o->ncarrier - 1].sem);
  pr_wait_released(run, k, step + 1);
  atomic_store(&k->step_start, UINT64_MAX); /* not of on_step */
  if (pr_failed(run))
    return;
  pr_step_done(run, step);
  for (uint32_t r = 0; r < run->p->nrank; r++)
    atomic_store(&run->rank[r].step, step + 1);
}

static PrStatus steps(PrRun *run, uint64_t n) {
  Outside *o = run->of_engine;
  uint64_t step = atomic_load(&o->k->step);
  atomic_store(&run->target, step + n);
  if (o->k->has_copier)
    pr_start_copier(o->k);
  for (; step < run->target && !pr_failed(run); step++) {
    memset(run->loss[step & 1], 0, (size_t)run->nsink * run->p->nmb * sizeof(double));
    pr_run_step(run, o->k);
  }
  atomic_store(&o->k->step_start, UINT64_MAX);
  return (PrStatus)atomic_load(&run->status);
}

/* What ranks tell one another of faults */

typedef struct Place {
  PrPlace is;
  uint32_t accuses; /* a checkpoint */
} Place;
_Static_assert(sizeof(Place) <= PR_GROUP_PLACE, "a place fits");

/* On a thread of the group. */
static uint32_t tell_place(void *of, char to[PR_GROUP_PLACE]) {
  Outside *o = of;
  Place here = {.accuses = o->late_at};
  pr_place(o->run, o->run->here, &here.is);
  if (here.accuses) /* even if that has ended since */
    here.is.checkpoint = here.accuses;
  memcpy(to, &here, sizeof here);
  return sizeof here;
}

/* All have been asked where they are: says what was first. */
static void blame(Outside *o) {
  PrRun *run = o->run;
  char text[PR_TEXT] = "nobody knows where it is", place[PR_GROUP_PLACE];
  bool lost = false, accused = false;
  PrPlace *at = calloc(run->p->nrank, sizeof *at);
  for (uint32_t r = 0; at && r < run->p->nrank; r++) {
    int there = o->g->place(o->g->arg, r, place);
    Place is = {.accuses = 0};
    if (there > 0)
      memcpy(&is, place, sizeof is);
    at[r] = is.is;
    at[r].condition = there < 0 ? PR_IS_GONE : there > 0 ? PR_ANSWERS : PR_IS_SILENT;
    lost = lost || there < 0;
    accused = accused || is.accuses;
  }
  if (accused)
    pr_fail_checkpoint(run, at);
  else if (at)
    pr_blame(run, at, text, sizeof text);
  free(at);
  if (lost)
    pr_fail(run, PR_E_LOST, "lost: %.1000s", text);
  else
    pr_fail(run, PR_E_DEADLINE, "deadline: step %llu takes longer than %g s; %.900s",
            (unsigned long long)atomic_load(&o->k->step), (double)run->limit_ns / 1e9, text);
}

static void *watch(void *arg) {
  Outside *o = arg;
  PrRun *run = o->run;
  char text[PR_TEXT];
  uint64_t late_step = 0, late_ns = 0; /* 1 + step that has been told to take too long; when */
  while (!atomic_load(&o->closing) && !pr_failed(run)) {
    pr_nap(SECOND / 50);
    int heard = o->g->heard(o->g->arg, text, sizeof text);
    if (heard) {
      o->told = true;
      if (heard == 2)
        blame(o);
      else
        pr_fail(run, PR_E_LOST, "%.1000s", text);
    }
    uint64_t start = atomic_load(&o->k->step_start), step = atomic_load(&o->k->step);
    uint64_t now = pr_now();
    if (start > now || now - start <= run->limit_ns)
      continue;
    if (late_step != step + 1 && o->g->late) {
      late_step = step + 1, late_ns = now;
      o->g->late(o->g->arg);
    } else if (now - late_ns > PATIENCE) {
      pr_fail(run, PR_E_DEADLINE, "deadline: step %llu takes longer than %g s",
              (unsigned long long)step, (double)run->limit_ns / 1e9);
    }
  }
  return NULL;
}

static bool late(PrRun *run) {
  Outside *o = run->of_engine;
  if (!o->g->late)
    return false;
  o->late_at = atomic_load(&run->ck_at);
  o->g->late(o->g->arg);
  return true;
}

static void wake(PrRun *run) {
  Outside *o = run->of_engine;
  char text[PR_TEXT + 32];
  if (o->agreed && !atomic_exchange(&o->told, true)) {
    snprintf(text, sizeof text, "rank %u: %s", run->here, run->text);
    o->g->tell(o->g->arg, text);
  }
  pr_wake_all(run);
}

/* What a process has to say of itself. */
typedef struct Card {
  int32_t status; /* PrStatus */
  char text[PR_TEXT];
} Card;

static PrStatus agree(PrRun *run, PrStatus st) {
  Outside *o = run->of_engine;
  Card mine = {.status = (int32_t)st}, *all = NULL;
  snprintf(mine.text, sizeof mine.text, "%s", pr_error(run));
  if (run->here == 0 && !(all = calloc(run->nprocess, sizeof *all)))
    return pr_fail(run, PR_E_MEMORY, "no memory for %u processes", run->nprocess);
  uint32_t missing = o->g->gather(o->g->arg, &mine, sizeof mine, all);
  for (uint32_t r = 0; all && !missing && r < run->nprocess && !mine.status; r++) {
    mine.status = all[r].status;
    if (mine.status)
      snprintf(mine.text, sizeof mine.text, "rank %u: %.900s", r, all[r].text);
  }
  free(all);
  bool lost = missing || o->g->share(o->g->arg, 0, &mine, sizeof mine);
  if (st || pr_failed(run))
    return st ? st : (PrStatus)atomic_load(&run->status);
  if (lost)
    return fail_in_vain(o, "the others do not come to agree");
  if (mine.status)
    o->told = true;
  return mine.status ? pr_fail(run, (PrStatus)mine.status, "%s", mine.text) : PR_OK;
}

static PrStatus share(PrRun *run, uint32_t rank, void *data, uint64_t bytes) {
  const uint64_t most = 64 << 20;
  Outside *o = run->of_engine;
  for (uint64_t at = 0; at < bytes; at += most)
    if (o->g->share(o->g->arg, rank, (char *)data + at, bytes - at < most ? bytes - at : most))
      return fail_in_vain(o, "what a rank has for all does not come");
  return PR_OK;
}

/* Opening and closing */

static PrStatus join(PrRun *run) {
  const PrTransport *t = run->o.engine_options;
  const PrGroup *g = t ? t->group : NULL;
  if (!t || !t->carry || !g || g->rank >= g->size)
    return pr_fail(run, PR_E_ARG, "options: the engine takes a transport with a group and `carry`");
  Outside *o = run->of_engine = calloc(1, sizeof *o);
  if (!o)
    return pr_fail(run, PR_E_MEMORY, "no memory for the engine");
  o->run = run, o->t = t, o->g = g;
  pthread_mutex_init(&o->lock, NULL);
  run->here = g->rank;
  run->nprocess = g->size;
  return PR_OK;
}

/* What the engine does not do. */
static PrStatus refuse(const Outside *o) {
  const PipeRank *t = o->k->t;
  bool lends = false;
  for (uint32_t i = 0; i < t->npool; i++)
    lends = lends || t->pool[i].cls == PIPE_GUEST;
  for (uint32_t i = 0; i < o->k->ncopy; i++)
    lends = lends || t->instr[o->k->copy[i].index].peer != PIPE_NONE;
  const char *what = o->run->o.checksums     ? "options: checksums"
                     : o->run->o.trace_steps ? "options: trace_steps"
                     : lends                 ? "program: stashes on other ranks"
                     : o->k->turns           ? "program: copies that take turns"
                                             : NULL;
  return what ? pr_fail(o->run, PR_E_ARG, "%s: the engine of outside transports lacks that", what)
              : PR_OK;
}

/* Room for the heads of its stream. */
static bool take_room(Carrier *w, uint32_t *most_piece) {
  const Outside *o = w->o;
  const PrRun *run = o->run;
  size_t most = run->nprocess, pieces = 0;
  uint64_t room = w->c || run->here > 0 ? 0 : run->nprocess * (uint64_t)run->nsink * run->p->nmb;
  room *= sizeof(double);
  for (uint32_t i = 0; w->c && i < w->c->n; i++) {
    const PipeInstr *c = pr_comm_instr(w->c, i);
    const Coll *l = pipe_is_sum(c->op) ? &run->coll[pr_comm_at(w->c, i)->chan] : NULL;
    size_t n = l ? l->ngrad * ((size_t)l->ngrad + l->ncopy) : c->group + (size_t)1;
    most = n > most ? n : most;
    pieces = l && l->ngrad > pieces ? l->ngrad : pieces;
    room = l ? ROOM : room;
  }
  *most_piece = pieces > *most_piece ? (uint32_t)pieces : *most_piece;
  w->message = malloc(most * sizeof *w->message);
  w->piece = malloc((pieces + 1) * sizeof *w->piece);
  w->room = aligned_alloc(PR_LINE, pr_round(room + 1));
  return w->message && w->piece && w->room;
}

static PrStatus open_here(Outside *o) {
  PrRun *run = o->run;
  const PipeProgram *p = run->p;
  PrStatus st = refuse(o);
  if (st || (st = pr_init_rank(run, o->k)))
    return st;
  const uint32_t most = p->nedge > p->nstage ? p->nedge : p->nstage;
  if ((uint64_t)most * p->nmb > (UINT32_C(1) << 31) / KINDS / 2 - 1)
    return pr_fail(run, PR_E_ARG, "program: more than 2^31 tags");
  o->carrier = calloc(o->k->nstream + (size_t)1, sizeof *o->carrier);
  if (!o->carrier)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u streams", o->k->nstream);
  uint32_t most_piece = 1;
  for (uint32_t i = 0; i <= o->k->nstream; i++) {
    Carrier *w = &o->carrier[o->ncarrier++];
    w->o = o;
    w->c = i < o->k->nstream ? &o->k->stream[i] : NULL;
    if (!take_room(w, &most_piece) || sem_init(&w->sem, 0, 0))
      return pr_fail(run, PR_E_MEMORY, "no memory for the messages of a stream");
    w->has_sem = true;
  }
  if (most_piece > ROOM / PR_LINE)
    return pr_fail(run, PR_E_ARG, "program: a sum of %u gradients", most_piece);
  return PR_OK;
}

static PrStatus open_threads(Outside *o) {
  PrRun *run = o->run;
  run->nthread = 2 + (o->k->ncopy > 0); /* the carriers never lie down */
  atomic_store(&run->live, run->nthread);
  PrStatus st = pr_open_threads(run, o->k, false, NULL);
  if (st)
    return st;
  int err = 0;
  for (uint32_t i = 0; i < o->ncarrier && !err; i++) {
    Carrier *w = &o->carrier[i];
    err = pthread_create(&w->thread, NULL, carrier_thread, w);
    w->has_thread = !err;
  }
  if (!err) {
    if (o->g->watch)
      o->g->watch(o->g->arg, tell_place, o);
    err = pthread_create(&o->watcher, NULL, watch, o);
    o->has_watcher = !err;
  }
  return err ? pr_fail(run, PR_E_MEMORY, "no thread for rank %u: %s", run->here, strerror(err))
             : PR_OK;
}

static PrStatus open(PrRun *run) {
  Outside *o = run->of_engine;
  o->k = &run->rank[run->here];
  run->free_running = false;
  PrStatus st = agree(run, open_here(o));
  o->agreed = !st;
  return st ? st : open_threads(o);
}

/* Ends the carriers. False: one is busy, and is left as it is. */
static bool end_carriers(Outside *o) {
  bool left = false;
  for (uint32_t i = 0; i < o->ncarrier; i++) {
    Carrier *w = &o->carrier[i];
    if (!w->has_thread)
      continue;
    sem_post(&w->sem);
    bool busy = true;
    for (uint64_t end = pr_now() + SECOND; busy;) {
      pthread_mutex_lock(&o->lock);
      busy = w->busy;
      left = o->left = o->left || (busy && pr_now() > end);
      pthread_mutex_unlock(&o->lock);
      if (busy && left)
        break;
      if (busy)
        pr_nap(SECOND / 100);
    }
    if (busy)
      pthread_detach(w->thread);
    else
      pthread_join(w->thread, NULL);
  }
  return !left;
}

static void close(PrRun *run) {
  Outside *o = run->of_engine;
  if (!o)
    return;
  atomic_store(&o->closing, true);
  run->quit = true;
  if (o->has_watcher)
    pthread_join(o->watcher, NULL);
  if (o->k)
    pr_close_threads(o->k);
  if (o->has_watcher && o->g->watch)
    o->g->watch(o->g->arg, NULL, NULL);
  if (!end_carriers(o)) { /* messages may arrive for ever */
    o->k->block = o->k->host = NULL;
    run->loss[0] = run->loss[1] = NULL;
    return;
  }
  for (uint32_t i = 0; i < o->ncarrier; i++) {
    if (o->carrier[i].has_sem)
      sem_destroy(&o->carrier[i].sem);
    free(o->carrier[i].message);
    free(o->carrier[i].piece);
    free(o->carrier[i].room);
  }
  pthread_mutex_destroy(&o->lock);
  free(o->carrier);
  free(o);
}

const PrEngine pr_transport = {.name = "transport",
                               .join = join,
                               .open = open,
                               .steps = steps,
                               .wake = wake,
                               .begin = begin,
                               .end_step = end_step,
                               .close = close,
                               .agree = agree,
                               .share = share,
                               .late = late};
