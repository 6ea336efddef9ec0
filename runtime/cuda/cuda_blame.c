/* SPDX-License-Identifier: MIT
 * What was first when a step takes too long or a process is gone, where processes tell one another where they are
 * (PrGroup.place).
 *
 * note [known]: a stream of a device tells nothing by itself. What a rank knows of its own are the events of the
 * program that are over, and with headers which tensors have come; with them all that stands above in the same
 * stream is over. The ranks put together what they know: of a transfer that is over the other end is over, and what
 * an instruction waits for is over once it is. What comes first of the rest, on any rank, is what the step has not come through.
 * An op that nobody waits for may be over unknown; so it is told only if no transfer is to blame. An event is used
 * again, and tells of its last record only: without headers a host that is far ahead knows little, and what is told
 * is the first record that is known not to be over, which may stand below what holds it up. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_engine.h"
#include "pipe_sim.h"

PIPE_STATIC_ASSERT(sizeof(CudaPlace) <= PR_GROUP_PLACE, "a place fits");

/* ---- where this rank is ---- */

/* Which instructions of the step at hand are known to be over, and which not to be, by stream. */
static void find_known(const PrCuda *c, CudaPlace *to) {
  const CudaRank *d = &c->rank[0];
  const PipeRank *t = d->k->t;
  uint32_t last[PIPE_NSTREAMS] = {0}, first[PIPE_NSTREAMS] = {0}; /* row + 1 */
  uint32_t n[PIPE_NSTREAMS] = {0};
  for (uint32_t e = 0; e < t->nevent && !c->o.graph && c->held_step == c->done_steps; e++) {
    uint32_t row = d->held[e];
    cudaError_t is = row == UINT32_MAX || row == 0 ? cudaErrorInvalidValue
                                                   : cudaEventQuery(d->event[e]);
    uint32_t on = is == cudaErrorInvalidValue ? 0 : pipe_op_info[t->instr[row - 1].op].stream;
    if (is == cudaSuccess && row > last[on])
      last[on] = row;
    if (is == cudaErrorNotReady && (first[on] == 0 || row < first[on]))
      first[on] = row;
  }
  uint32_t come = cuda_check_known(d, c->done_steps);
  last[PIPE_COMM] = come > last[PIPE_COMM] ? come : last[PIPE_COMM];
  for (uint32_t i = 0; i < t->ninstr; i++) {
    uint32_t on = pipe_op_info[t->instr[i].op].stream;
    n[on]++;
    to->known[on] = i < last[on] ? n[on] : to->known[on];
    to->open[on] = i + 1 == first[on] ? n[on] : to->open[on];
  }
}

void cuda_note_place(PrRun *run, uint32_t held_up) {
  PrCuda *c = cuda_of(run);
  CudaPlace now = {.step = c->done_steps, .held_up = held_up};
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

/* On a thread of the group. */
static uint32_t tell_place(void *of, char to[PR_GROUP_PLACE]) {
  PrRun *run = of;
  PrCuda *c = cuda_of(run);
  RankRun *k = c->rank[0].k;
  pthread_mutex_lock(&run->lock);
  CudaPlace p = c->place;
  pthread_mutex_unlock(&run->lock);
  uint64_t step = atomic_load(&k->step);
  uint32_t running = atomic_load(&k->running);
  if (p.step != step)
    p = (CudaPlace){.step = step, .issued = k->t->ninstr};
  if (running)
    p.held_up = CUDA_IN_CALLBACK, p.issued = running - 1;
  memcpy(to, &p, sizeof p);
  return sizeof p;
}

void cuda_watch(PrRun *run, bool on) {
  const PrGroup *g = cuda_of(run)->o.group;
  if (g && g->watch)
    g->watch(g->arg, on ? tell_place : NULL, run);
}

/* ---- what all of them know ---- */

typedef struct Look {
  const PrRun *run;
  CudaPlace *at;                 /* [nrank] */
  int *there;                    /* [nrank] 1: answers; 0: does not; -1: has gone */
  uint32_t **pair;               /* of pipe_pair */
  uint32_t **row[PIPE_NSTREAMS]; /* [nrank][] rows of each stream */
  uint32_t **nth;                /* [nrank][ninstr] place of a row in its stream */
  uint64_t step;                 /* the oldest that a rank is in */
  uint32_t *come;                /* [nrank] COMM instructions that a rank itself knows to be over */
  uint32_t lost_rank, lost_row;  /* a RECV whose SEND is over; PIPE_NONE */
} Look;

static bool is_move(const PipeInstr *in) { return in->op >= PIPE_SEND_F && in->op <= PIPE_RECV_B; }

static bool raise(uint32_t *n, uint32_t to) {
  bool more = *n < to;
  *n = more ? to : *n;
  return more;
}

/* How many COPY instructions of rank q come before turn `turn` of its group. */
static uint32_t turns_before(const Look *l, uint32_t q, uint32_t turn) {
  const RankRun *k = &l->run->rank[q];
  uint32_t n = 0;
  while (n < k->ncopy && k->t->instr[k->copy[n].index].gout < turn)
    n++;
  return n;
}

/* The group in which instruction i of rank r takes turns; 0. */
static uint32_t group_of(const Look *l, uint32_t r, const PipeInstr *in) {
  return pipe_op_info[in->op].stream == PIPE_COPY ? l->run->p->rank[r].group : 0;
}

/* note [known] for instruction i of rank r, which is over. */
static bool spread(Look *l, uint32_t r, uint32_t row) {
  const PipeInstr *in = &l->run->p->rank[r].instr[row];
  uint32_t on = pipe_op_info[in->op].stream;
  bool more = false;
  for (uint32_t x = 0; x < PIPE_NSTREAMS; x++)
    if (x != on)
      more |= raise(&l->at[r].known[x], pipe_wait_for(in, (PipeOn)x));
  uint32_t g = group_of(l, r, in);
  for (uint32_t q = 0; g && q < l->run->p->nrank; q++) /* so are all turns before it */
    if (l->run->p->rank[q].group == g)
      more |= raise(&l->at[q].known[PIPE_COPY], turns_before(l, q, in->gout));
  if (!is_move(in))
    return more;
  uint32_t q = in->peer, other = l->pair[r][row], n = l->nth[q][other];
  bool sent = in->op == PIPE_SEND_F || in->op == PIPE_SEND_B;
  if (sent && l->there[q] > 0 && l->at[q].exact && l->at[q].step == l->step && n >= l->come[q]) {
    if (l->lost_row == PIPE_NONE || other < l->lost_row)
      l->lost_rank = q, l->lost_row = other; /* it has not come, whatever the sender says */
    return more;
  }
  return raise(&l->at[q].known[PIPE_COMM], n + 1) || more;
}

static void put_together(Look *l) {
  const PipeProgram *p = l->run->p;
  for (bool more = true; more;) {
    more = false;
    for (uint32_t r = 0; r < p->nrank; r++)
      for (uint32_t x = 0; x < PIPE_NSTREAMS; x++)
        for (uint32_t i = 0; i < l->at[r].known[x]; i++)
          more |= spread(l, r, l->row[x][r][i]);
  }
}

/* Row of the first of stream x of rank r that is not known to be over; PIPE_NONE: there is none, or not in the step. */
static uint32_t first_open(const Look *l, uint32_t r, uint32_t x) {
  const RankRun *k = &l->run->rank[r];
  uint32_t n[] = {k->ncompute, k->ncomm, k->ncopy};
  return l->at[r].known[x] < n[x] && l->at[r].step == l->step ? l->row[x][r][l->at[r].known[x]]
                                                              : PIPE_NONE;
}

/* Row of the first of stream x of rank r that is not known to be over, or of one that says little about itself is
 * known not to be; PIPE_NONE: there is none, or not in the step. */
static uint32_t first_stalled(const Look *l, uint32_t r, uint32_t x) {
  const CudaPlace *p = &l->at[r];
  const RankRun *k = &l->run->rank[r];
  uint32_t n[] = {k->ncompute, k->ncomm, k->ncopy};
  uint32_t i = p->exact ? p->known[x] : p->open[x] - 1; /* 0 - 1: none */
  return i < n[x] && p->step == l->step ? l->row[x][r][i] : PIPE_NONE;
}

/* Is all that it waits for on its rank known to be over? */
static bool is_ready(const Look *l, uint32_t r, uint32_t row) {
  const PipeInstr *in = &l->run->p->rank[r].instr[row];
  for (uint32_t x = 0; x < PIPE_NSTREAMS; x++)
    if (x != pipe_op_info[in->op].stream && pipe_wait_for(in, (PipeOn)x) > l->at[r].known[x])
      return false;
  uint32_t g = group_of(l, r, in);
  for (uint32_t q = 0; g && q < l->run->p->nrank; q++)
    if (l->run->p->rank[q].group == g && turns_before(l, q, in->gout) > l->at[q].known[PIPE_COPY])
      return false;
  return true;
}

/* The transfer that waits for rank q first, by q's list, of *rank; PIPE_NONE. */
static uint32_t first_waiter(const Look *l, uint32_t q, uint32_t *rank) {
  uint32_t best = PIPE_NONE, best_at = PIPE_NONE;
  for (uint32_t r = 0; r < l->run->p->nrank; r++) {
    uint32_t row = r == q || l->there[r] != 1 ? PIPE_NONE : first_open(l, r, PIPE_COMM);
    const PipeInstr *in = row == PIPE_NONE ? NULL : &l->run->p->rank[r].instr[row];
    if (in && is_move(in) && in->peer == q && is_ready(l, r, row) && l->pair[r][row] < best_at)
      best = row, best_at = l->pair[r][row], *rank = r;
  }
  return best;
}

/* How grave: a lower number is told. */
enum { BOTH_ENDS, WAITS, RUNS, ANY, NOTHING };

static int grave(const Look *l, uint32_t r, uint32_t x, uint32_t row) {
  const PipeInstr *in = &l->run->p->rank[r].instr[row];
  if (!is_ready(l, r, row))
    return ANY;
  if (x != PIPE_COMM || !is_move(in))
    return RUNS;
  uint32_t other = first_open(l, in->peer, PIPE_COMM);
  return other == l->pair[r][row] && is_ready(l, in->peer, other) ? BOTH_ENDS : WAITS;
}

/* Writes "rank 2 waits in 2RECV_F1 (x.pipe:7:3) for 1SEND_F1 on rank 1". */
static void tell_waiting(const Look *l, uint32_t r, uint32_t row, char *text, size_t room) {
  const PipeProgram *p = l->run->p;
  const PipeInstr *in = &p->rank[r].instr[row];
  char where[PR_WHERE], other[PIPE_OP_TEXT];
  pipe_instr_text(other, pipe_graph(p), &p->rank[in->peer].instr[l->pair[r][row]]);
  snprintf(text, room, "rank %u waits in %s for %s on rank %u", r, pr_where(l->run, in, where),
           other, in->peer);
}

static void tell(const Look *l, char *text, size_t room) {
  const PipeProgram *p = l->run->p;
  char where[PR_WHERE];
  uint32_t q = PIPE_NONE, stuck = PIPE_NONE, len = 0;
  for (uint32_t r = p->nrank; r-- > 0;) {
    if (l->there[r] != 1 && (q == PIPE_NONE || l->there[r] <= l->there[q]))
      q = r;
    if (l->there[r] == 1 && l->at[r].step == l->step && l->at[r].held_up)
      stuck = r;
  }
  if (q != PIPE_NONE) {
    len = (uint32_t)snprintf(
        text, room, l->there[q] ? "the process of rank %u has ended" : "rank %u does not answer",
        q);
  } else if (stuck != PIPE_NONE) {
    q = stuck;
    len = (uint32_t)snprintf(text, room,
                             l->at[q].held_up == CUDA_IN_CALLBACK ? "rank %u is in %s"
                                                                  : "rank %u does not begin %s",
                             q, pr_where(l->run, &p->rank[q].instr[l->at[q].issued], where));
  } else if (l->lost_row != PIPE_NONE) {
    tell_waiting(l, l->lost_rank, l->lost_row, text, room);
    len = (uint32_t)strlen(text);
    snprintf(text + len, room - len, ", which has been completed there: the message is lost");
    return;
  } else {
    uint32_t best = NOTHING, best_r = 0, best_row = 0;
    double first = 2;
    for (uint32_t r = 0; r < p->nrank; r++)
      for (uint32_t x = 0; x < PIPE_NSTREAMS; x++) {
        uint32_t row = first_stalled(l, r, x);
        if (row == PIPE_NONE)
          continue;
        uint32_t g = l->at[r].exact ? (uint32_t)grave(l, r, x, row) : ANY;
        double at = (double)row / p->rank[r].ninstr;
        if (g < best || (g == best && at < first))
          best = g, first = at, best_r = r, best_row = row;
      }
    const PipeInstr *in = best == NOTHING ? NULL : &p->rank[best_r].instr[best_row];
    char peer[48] = "";
    if (in && is_move(in))
      snprintf(peer, sizeof peer, ", whose peer is rank %u", in->peer);
    snprintf(text, room, "rank %u has not come through %s%s", best_r,
             in ? pr_where(l->run, in, where) : "the step", peer);
    return;
  }
  uint32_t r = 0, row = first_waiter(l, q, &r);
  if (row == PIPE_NONE || len >= room)
    return;
  len += (uint32_t)snprintf(text + len, room - len, "; ");
  tell_waiting(l, r, row, text + len, room - len);
}

/* ---- asking ---- */

static bool open_look(Look *l) {
  const PipeProgram *p = l->run->p;
  size_t total = 0, used = 0;
  for (uint32_t r = 0; r < p->nrank; r++)
    total += p->rank[r].ninstr;
  l->at = calloc(p->nrank, sizeof *l->at);
  l->there = calloc(p->nrank, sizeof *l->there);
  l->come = calloc(p->nrank, sizeof *l->come);
  l->pair = pipe_pair(p);
  l->nth = calloc(4 * (size_t)p->nrank, sizeof *l->nth);
  uint32_t *room = calloc(4 * total + 1, sizeof *room);
  if (!l->at || !l->there || !l->come || !l->pair || !l->nth || !room) {
    free(room);
    return false;
  }
  for (int x = 0; x < PIPE_NSTREAMS; x++)
    l->row[x] = l->nth + (size_t)(x + 1) * p->nrank;
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeRank *t = &p->rank[r];
    uint32_t n[PIPE_NSTREAMS] = {0};
    l->nth[r] = room + used;
    for (uint32_t x = 0; x < PIPE_NSTREAMS; x++)
      l->row[x][r] = room + used + (x + 1) * (size_t)t->ninstr;
    used += 4 * (size_t)t->ninstr;
    for (uint32_t i = 0; i < t->ninstr; i++) {
      uint32_t x = pipe_op_info[t->instr[i].op].stream;
      l->nth[r][i] = n[x];
      l->row[x][r][n[x]++] = i;
    }
  }
  return true;
}

PrStatus cuda_blame(PrRun *run) {
  PrCuda *c = cuda_of(run);
  const PrGroup *g = c->o.group;
  Look l = {.run = run, .step = UINT64_MAX, .lost_row = PIPE_NONE};
  char text[PR_TEXT / 2] = "nobody knows where it is";
  bool lost = false;
  if (open_look(&l)) {
    for (uint32_t r = 0; r < run->p->nrank; r++) {
      char place[PR_GROUP_PLACE];
      l.there[r] = g->place(g->arg, r, place);
      if (l.there[r] > 0)
        memcpy(&l.at[r], place, sizeof l.at[r]);
      lost |= l.there[r] < 0;
      l.step = l.there[r] > 0 && l.at[r].step < l.step ? l.at[r].step : l.step;
    }
    for (uint32_t r = 0; r < run->p->nrank; r++) { /* nothing is known of those that are further */
      const RankRun *k = &run->rank[r];
      bool past = l.there[r] > 0 && l.at[r].step > l.step;
      uint32_t n[] = {k->ncompute, k->ncomm, k->ncopy};
      for (int x = 0; x < PIPE_NSTREAMS; x++)
        l.at[r].known[x] = past || l.at[r].known[x] > n[x] ? n[x] : l.at[r].known[x];
      l.at[r].step = l.there[r] > 0 ? l.at[r].step : l.step;
      if (l.at[r].issued >= run->p->rank[r].ninstr)
        l.at[r].held_up = 0;
      l.come[r] = l.at[r].known[PIPE_COMM];
    }
    put_together(&l);
    tell(&l, text, sizeof text);
  }
  if (l.nth)
    free(l.nth[0]);
  free(l.nth);
  free(l.pair);
  free(l.there);
  free(l.come);
  free(l.at);
  return lost ? pr_fail(run, PR_E_LOST, "lost: %s", text)
              : pr_fail(run, PR_E_DEADLINE, "deadline: step %llu takes longer than %g s; %s",
                        (unsigned long long)l.step, (double)c->limit_ns * 1e-9, text);
}
