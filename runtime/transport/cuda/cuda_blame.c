/* SPDX-License-Identifier: MIT
 * Finds the first cause when a step takes too long or a process has gone, from the places that
 * processes send one another (PrGroup.place).
 *
 * note [known]: a stream of a device reports nothing by itself. A rank knows which of its events
 * are over, and with headers which tensors have arrived; all rows above them in the same stream are
 * over, too. The ranks combine what they know: if one end of a transfer is over, so is the other
 * end; if an instruction is over, so is all that it waits for. The report names the first of the
 * rest, on any rank. An op that no row waits for may be over without being known; so the report
 * names it only if no transfer is to blame. An event is reused and reports its last record only.
 * So without headers a host that is far ahead knows little, and the report names the first record
 * that is known not to be over, which may stand below the row that holds it up. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_engine.h"

PIPE_STATIC_ASSERT(sizeof(CudaPlace) <= PR_GROUP_PLACE, "a place fits");

/* ---- where this rank is ---- */

/* Finds, by stream, which instructions of the current step are known to be over, and which not. */
static void find_known(const PrCuda *c, CudaPlace *to) {
  const CudaRank *d = &c->rank[0];
  const PipeRank *t = d->k->t;
  const uint32_t most = d->nstream < CUDA_PLACES ? d->nstream : CUDA_PLACES;
  uint32_t last[CUDA_PLACES] = {0}, first[CUDA_PLACES] = {0}, n[CUDA_PLACES] = {0}; /* row + 1 */
  for (uint32_t e = 0; e < d->nevent && c->held_step == c->done_steps; e++) {
    uint32_t row = d->held[e], on = row == UINT32_MAX || row == 0 ? most : d->on[row - 1];
    cudaError_t is = on >= most ? cudaErrorInvalidValue : cudaEventQuery(d->event[e]);
    if (is == cudaSuccess && row > last[on])
      last[on] = row;
    if (is == cudaErrorNotReady && (first[on] == 0 || row < first[on]))
      first[on] = row;
  }
  for (uint32_t x = 0; x < most; x++) {
    uint32_t come = cuda_check_known(d, x, c->done_steps);
    last[x] = come > last[x] ? come : last[x];
  }
  for (uint32_t i = 0; i < t->ninstr; i++) {
    uint32_t on = d->on[i];
    if (on >= most)
      continue;
    n[on]++;
    if (i < last[on])
      to->on[on].known = (uint16_t)(n[on] < UINT16_MAX ? n[on] : UINT16_MAX);
    if (i + 1 == first[on])
      to->on[on].open = (uint16_t)(n[on] <= UINT16_MAX ? n[on] : 0);
  }
}

void cuda_note_place(PrRun *run) {
  PrCuda *c = cuda_of(run);
  CudaPlace now = {.step = c->done_steps, .held_up = c->held_up};
  if (!c->o.group || !c->o.group->place || c->capturing)
    return;
  find_known(c, &now);
  const CudaRank *d = &c->rank[0];
  now.exact = d->check != NULL;
  now.issued = c->held_step == c->done_steps && c->issued_steps == c->done_steps ? d->next
                                                                                 : d->k->t->ninstr;
  pthread_mutex_lock(&run->lock);
  c->place = now;
  pthread_mutex_unlock(&run->lock);
}

/* Writes the place of this rank; called on a thread of the group. */
static uint32_t tell_place(void *of, char to[PR_GROUP_PLACE]) {
  PrRun *run = of;
  PrCuda *c = cuda_of(run);
  RankRun *k = c->rank[0].k;
  pthread_mutex_lock(&run->lock);
  CudaPlace p = c->place;
  pthread_mutex_unlock(&run->lock);
  uint64_t step = atomic_load(&k->step);
  uint32_t running = atomic_load(&k->running), late_at = atomic_load(&c->late_at);
  if (p.step != step)
    p = (CudaPlace){.step = step, .issued = k->t->ninstr};
  if (running)
    p.held_up = CUDA_IN_CALLBACK, p.issued = running - 1;
  else if (cuda_is_held(c) && c->issued_steps == step)
    p.held_up = CUDA_BEGINS_NOT, p.issued = c->rank[0].next;
  p.accuses = late_at != 0;
  p.checkpoint = late_at ? late_at : atomic_load(&run->ck_at);
  const uint32_t n = c->rank[0].nstream < CUDA_PLACES ? c->rank[0].nstream : CUDA_PLACES;
  memcpy(to, &p, sizeof p);
  return (uint32_t)(offsetof(CudaPlace, on) + n * sizeof p.on[0]);
}

void cuda_watch(PrRun *run, bool on) {
  const PrGroup *g = cuda_of(run)->o.group;
  if (g && g->watch)
    g->watch(g->arg, on ? tell_place : NULL, run);
}

/* ---- what all ranks know ---- */

/* A rank, by its streams. */
typedef struct Place {
  CudaPlace at; /* what the rank reports */
  PrCondition is;
  uint32_t n;      /* streams */
  uint32_t *on;    /* [ninstr] stream of a row */
  uint32_t *nth;   /* [ninstr] place of a row in its stream */
  uint32_t **row;  /* [n] rows of each stream */
  uint32_t *len;   /* [n] of them */
  uint32_t *known; /* [n] how many of each stream are known to be over */
  uint32_t *come;  /* [n] how many of these the rank itself knows */
} Place;

typedef struct Look {
  const PrRun *run;
  const PipeProgram *p;         /* with all lists */
  Place *of;                    /* [nrank] */
  uint32_t **pair;              /* of pipe_pair */
  uint64_t step;                /* the oldest that a rank is in */
  uint32_t lost_rank, lost_row; /* a RECV whose SEND is over; PIPE_NONE */
} Look;

static const PipeInstr *instr(const Look *l, uint32_t r, uint32_t row) {
  return &l->p->rank[r].instr[row];
}

static bool raise(uint32_t *n, uint32_t to) {
  bool more = *n < to;
  *n = more ? to : *n;
  return more;
}

/* How many instructions of stream x row `row` of rank r waits for. */
static uint32_t waits_for(const Look *l, uint32_t r, uint32_t row, uint32_t x) {
  const RankRun *k = &l->run->rank[r];
  uint32_t most = 0;
  for (uint32_t i = pipe_wait0(k->t, row); i < pipe_wait_end(k->t, row); i++)
    if (k->need[i].queue == x && k->need[i].count > most)
      most = k->need[i].count;
  return most;
}

/* Applies note [known] to row `row` of rank r, which is over. True: more is known. */
static bool spread(Look *l, uint32_t r, uint32_t row) {
  const PipeInstr *in = instr(l, r, row);
  Place *me = &l->of[r];
  bool more = false;
  for (uint32_t x = 0; x < me->n; x++)
    more |= raise(&me->known[x], waits_for(l, r, row, x));
  if (!pipe_is_move(in->op))
    return more;
  Place *peer = &l->of[in->peer];
  uint32_t other = l->pair[r][row], n = peer->nth[other], x = peer->on[other];
  bool sent = pipe_is_send(in->op);
  if (sent && peer->is == PR_ANSWERS && peer->at.exact && peer->at.step == l->step &&
      x < CUDA_PLACES && n >= peer->come[x]) {
    if (l->lost_row == PIPE_NONE || other < l->lost_row)
      l->lost_rank = in->peer, l->lost_row = other; /* it has not come, whatever the sender says */
    return more;
  }
  return raise(&peer->known[x], n + 1) || more;
}

static void put_together(Look *l) {
  for (bool more = true; more;) {
    more = false;
    for (uint32_t r = 0; r < l->run->p->nrank; r++)
      for (uint32_t x = 0; x < l->of[r].n; x++)
        for (uint32_t i = 0; i < l->of[r].known[x]; i++)
          more |= spread(l, r, l->of[r].row[x][i]);
  }
}

/* Row of the first of stream x of rank r that is not known to be over; PIPE_NONE: there is none, or
 * not in the step, or the rank cannot tell. */
static uint32_t first_open(const Look *l, uint32_t r, uint32_t x) {
  const Place *p = &l->of[r];
  return x < CUDA_PLACES && p->known[x] < p->len[x] && p->at.step == l->step
             ? p->row[x][p->known[x]]
             : PIPE_NONE;
}

/* Row of the first of stream x of rank r that is not known to be over, or of one that says little
 * about itself is known not to be; PIPE_NONE as above. */
static uint32_t first_stalled(const Look *l, uint32_t r, uint32_t x) {
  const Place *p = &l->of[r];
  uint32_t i = x >= CUDA_PLACES ? PIPE_NONE
               : p->at.exact    ? p->known[x]
                                : p->at.on[x].open - 1u; /* 0 - 1: none */
  return i < p->len[x] && p->at.step == l->step ? p->row[x][i] : PIPE_NONE;
}

/* True if all that the row waits for on its rank is known to be over. */
static bool is_ready(const Look *l, uint32_t r, uint32_t row) {
  for (uint32_t x = 0; x < l->of[r].n; x++)
    if (waits_for(l, r, row, x) > l->of[r].known[x])
      return false;
  return true;
}

/* The transfer that waits for rank q first, by q's list, of *rank; PIPE_NONE. */
static uint32_t first_waiter(const Look *l, uint32_t q, uint32_t *rank) {
  uint32_t best = PIPE_NONE, best_at = PIPE_NONE;
  for (uint32_t r = 0; r < l->run->p->nrank; r++)
    for (uint32_t x = 0; r != q && l->of[r].is == PR_ANSWERS && x < l->of[r].n; x++) {
      uint32_t row = cuda_is_comm(x) ? first_open(l, r, x) : PIPE_NONE;
      const PipeInstr *in = row == PIPE_NONE ? NULL : instr(l, r, row);
      if (in && pipe_is_move(in->op) && in->peer == q && is_ready(l, r, row) &&
          l->pair[r][row] < best_at)
        best = row, best_at = l->pair[r][row], *rank = r;
    }
  return best;
}

/* How grave a cause is; the lowest is reported. NEXT: a transfer whose other end is the next row of
 * its rank, which is not ready; WAITS: that rank has another row before, which may be to blame. */
enum { BOTH_ENDS, NEXT, WAITS, RUNS, ANY, NOTHING };

static int grave(const Look *l, uint32_t r, uint32_t row) {
  const PipeInstr *in = instr(l, r, row);
  if (!is_ready(l, r, row))
    return ANY;
  if (!pipe_is_move(in->op))
    return RUNS;
  uint32_t pair = l->pair[r][row], other = first_open(l, in->peer, l->of[in->peer].on[pair]);
  return other != pair ? WAITS : is_ready(l, in->peer, other) ? BOTH_ENDS : NEXT;
}

static void tell_waiting(const Look *l, uint32_t r, uint32_t row, bool lost, char *text,
                         size_t room) {
  const PipeInstr *in = instr(l, r, row);
  pr_tell_waiting(l->run, r, in, in->peer, instr(l, in->peer, l->pair[r][row]), lost, text, room);
}

static void tell(const Look *l, char *text, size_t room) {
  const PipeProgram *p = l->p;
  char where[PR_WHERE];
  uint32_t q = PIPE_NONE, stuck = PIPE_NONE, len = 0;
  for (uint32_t r = p->nrank; r-- > 0;) {
    const Place *me = &l->of[r];
    if (me->is != PR_ANSWERS && (q == PIPE_NONE || me->is >= l->of[q].is))
      q = r;
    if (me->is == PR_ANSWERS && me->at.step == l->step && me->at.held_up)
      stuck = r;
  }
  if (q != PIPE_NONE) {
    len = (uint32_t)pr_tell_absent(l->of[q].is, q, text, room);
  } else if (stuck != PIPE_NONE) {
    q = stuck;
    len = (uint32_t)snprintf(text, room,
                             l->of[q].at.held_up == CUDA_IN_CALLBACK ? "rank %u is in %s"
                                                                     : "rank %u does not begin %s",
                             q, pr_where(l->run, &p->rank[q].instr[l->of[q].at.issued], where));
  } else if (l->lost_row != PIPE_NONE) {
    tell_waiting(l, l->lost_rank, l->lost_row, true, text, room);
    return;
  } else {
    uint32_t best = NOTHING, best_r = 0, best_row = 0;
    double first = 2;
    for (uint32_t r = 0; r < p->nrank; r++)
      for (uint32_t x = 0; x < l->of[r].n; x++) {
        uint32_t row = first_stalled(l, r, x);
        if (row == PIPE_NONE)
          continue;
        uint32_t g = l->of[r].at.exact ? (uint32_t)grave(l, r, row) : ANY;
        double at = (double)row / p->rank[r].ninstr;
        if (g < best || (g == best && at < first))
          best = g, first = at, best_r = r, best_row = row;
      }
    const PipeInstr *in = best == NOTHING ? NULL : &p->rank[best_r].instr[best_row];
    char peer[48] = "";
    if (in && pipe_is_move(in->op))
      snprintf(peer, sizeof peer, ", whose peer is rank %u", in->peer);
    snprintf(text, room, "rank %u has not completed %s%s", best_r,
             in ? pr_where(l->run, in, where) : "the step", peer);
    return;
  }
  uint32_t r = 0, row = first_waiter(l, q, &r);
  if (row == PIPE_NONE || len >= room)
    return;
  len += (uint32_t)snprintf(text + len, room - len, "; ");
  tell_waiting(l, r, row, false, text + len, room - len);
}

/* ---- asking ---- */

/* The streams of rank r. */
static bool open_place(const PrRun *run, uint32_t r, Place *p) {
  const RankRun *k = &run->rank[r];
  const uint32_t rows = k->t->ninstr;
  p->n = cuda_nstream(k);
  p->on = calloc(3 * (size_t)rows + 3 * (size_t)p->n, sizeof *p->on);
  p->row = calloc(p->n, sizeof *p->row);
  if (!p->on || !p->row)
    return false;
  p->nth = p->on + rows;
  p->len = p->nth + 2 * (size_t)rows;
  p->known = p->len + p->n, p->come = p->known + p->n;
  cuda_find_streams(k, p->on);
  for (uint32_t i = 0; i < rows; i++)
    p->nth[i] = p->len[p->on[i]]++;
  uint32_t *at = p->nth + rows;
  for (uint32_t x = 0; x < p->n; at += p->len[x++])
    p->row[x] = at;
  for (uint32_t i = 0; i < rows; i++)
    p->row[p->on[i]][p->nth[i]] = i;
  return true;
}

static bool open_look(Look *l) {
  const PipeProgram *p = l->p;
  if (!p)
    return false;
  l->of = calloc(p->nrank, sizeof *l->of);
  l->pair = pipe_pair(p);
  bool ok = l->of && l->pair;
  for (uint32_t r = 0; ok && r < p->nrank; r++)
    ok = open_place(l->run, r, &l->of[r]);
  return ok;
}

static void close_look(Look *l) {
  for (uint32_t r = 0; l->of && r < l->run->p->nrank; r++) {
    free(l->of[r].on);
    free(l->of[r].row);
  }
  free(l->of);
  free(l->pair);
}

/* If a rank accuses others of a checkpoint that takes too long: what each of them does of it. The
 * caller's; NULL: none does. */
static PrPlace *find_checkpoint(const Look *l) {
  const uint32_t n = l->run->p->nrank;
  bool accused = false, answers = false;
  for (uint32_t r = 0; r < n; r++) {
    answers |= l->of[r].is == PR_ANSWERS;
    accused |= l->of[r].at.accuses != 0; /* 0 of those that do not answer */
  }
  if (!answers) /* nobody has been asked: this rank knows of itself */
    accused = atomic_load(&cuda_of(l->run)->late_at) || atomic_load(&l->run->ck_at);
  PrPlace *at = accused ? calloc(n, sizeof *at) : NULL;
  for (uint32_t r = 0; at && r < n; r++) {
    const Place *p = &l->of[r];
    at[r].condition = p->is;
    at[r].checkpoint = p->at.checkpoint;
  }
  return at;
}

static PrStatus blame(PrRun *run) {
  PrCuda *c = cuda_of(run);
  const PrGroup *g = c->o.group;
  Look l = {.run = run, .p = pr_see_all(run), .step = UINT64_MAX, .lost_row = PIPE_NONE};
  char text[PR_TEXT / 2] = "nobody knows where it is";
  PrPlace *checkpoint = NULL;
  bool lost = false;
  if (open_look(&l)) {
    for (uint32_t r = 0; r < run->p->nrank; r++) {
      Place *p = &l.of[r];
      char place[PR_GROUP_PLACE];
      const int there = g->place(g->arg, r, place);
      p->is = there < 0 ? PR_IS_GONE : there > 0 ? PR_ANSWERS : PR_IS_SILENT;
      if (there > 0)
        memcpy(&p->at, place, sizeof p->at);
      lost |= there < 0;
      l.step = there > 0 && p->at.step < l.step ? p->at.step : l.step;
    }
    checkpoint = find_checkpoint(&l);
    for (uint32_t r = 0; r < run->p->nrank; r++) { /* nothing is known of those that are further */
      Place *p = &l.of[r];
      bool past = p->is == PR_ANSWERS && p->at.step > l.step;
      for (uint32_t x = 0; x < p->n; x++) {
        uint32_t known = x < CUDA_PLACES ? p->at.on[x].known : 0;
        p->known[x] = p->come[x] = past || known > p->len[x] ? p->len[x] : known;
      }
      p->at.step = p->is == PR_ANSWERS ? p->at.step : l.step;
      if (p->at.issued >= run->p->rank[r].ninstr)
        p->at.held_up = 0;
    }
    put_together(&l);
    tell(&l, text, sizeof text);
  }
  close_look(&l);
  if (checkpoint) {
    PrStatus st = pr_fail_checkpoint(run, checkpoint);
    free(checkpoint);
    return st;
  }
  return lost ? pr_fail(run, PR_E_LOST, "lost: %s", text)
              : pr_fail(run, PR_E_DEADLINE, "deadline: step %llu takes longer than %g s; %s",
                        (unsigned long long)l.step, (double)c->limit_ns * 1e-9, text);
}

PrStatus cuda_heard(PrRun *run) {
  PrCuda *c = cuda_of(run);
  const PrGroup *g = c->o.group;
  char text[PR_TEXT];
  PrStatus st; /* not passed on: pipe-run tells by it who was first */
  const int heard = g ? g->heard(g->arg, &st, text, sizeof text) : 0;
  if (!heard)
    return PR_OK;
  atomic_store(&c->told, true); /* everybody knows */
  /* What is to be looked at may not be there yet. */
  if (pr_failed(run))
    return (PrStatus)atomic_load(&run->status);
  return heard == 2 ? blame(run) : pr_fail(run, PR_E_LOST, "%s", text);
}

bool cuda_late(PrRun *run) {
  PrCuda *c = cuda_of(run);
  const PrGroup *g = c->o.group;
  if (!g || !g->place)
    return false;
  atomic_store(&c->late_at, atomic_load(&run->ck_at));
  g->late(g->arg);
  return true;
}

void cuda_look(PrRun *run) {
  const PrGroup *g = cuda_of(run)->o.group;
  cuda_heard(run);
  if (g && g->extend)
    g->extend(g->arg);
}
