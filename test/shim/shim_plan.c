/* SPDX-License-Identifier: MIT
 * See shim_plan.h. */
#include "shim_plan.h"

#include <stdlib.h>
#include <string.h>

#include "shim_job.h"
#include "../run/cut_wait.h"

/* ---- log ---- */

/* A line of what is expected of a host. */
typedef struct Want {
  ShimCall call;
  uint32_t stream, event;
  int peer;
  const void *p;
  size_t bytes;
} Want;

/* The streams of a rank: COMPUTE, COMM and COPY, then its channels but for the first, which is
 * COMM. on: [ninstr]. Returns how many. */
static uint32_t streams(const PipeProgram *p, uint32_t r, uint32_t *on) {
  const PipeRank *t = &p->rank[r];
  uint32_t of[64] = {0}, n = 0; /* number + 1 */
  for (uint32_t i = 0; i < t->ninstr; i++) {
    const PipeInstr *c = &t->instr[i];
    on[i] = pipe_stream_of(c->op);
    if (p->nchannel == 0 || on[i] != PIPE_COMM)
      continue;
    if (p->nchannel > sizeof of / sizeof *of)
      abort();
    of[c->channel] = of[c->channel] ? of[c->channel] : ++n;
    on[i] = of[c->channel] == 1 ? PIPE_COMM : PIPE_NSTREAMS + of[c->channel] - 2;
  }
  return PIPE_NSTREAMS + (n > 1 ? n - 1 : 0);
}

/* What the table of rank r asks for in a step, call by call. Written from PipeInstr and PipeWait
 * alone; the addresses of slots are those that the run has. Want.event: 1 + the row that is
 * recorded, or waited for; 0: the start. */
static uint32_t expected(const PipeProgram *p, uint32_t r, void *const *slot, Want *w) {
  const PipeRank *t = &p->rank[r];
  const PipeQueues queues = pipe_queues(p, t);
  uint32_t n = 0;
  bool *recorded = calloc(t->ninstr + 1u, sizeof *recorded);
  uint32_t *of = calloc(t->ninstr + 1u, sizeof *of);
  streams(p, r, of); /* the last one is the end: COMPUTE */
  for (uint32_t i = 0; i < t->nwait; i++)
    recorded[pipe_after(&queues, t->wait[i])] = true;
  if (recorded[0])
    w[n++] = (Want){.call = SHIM_RECORD, .stream = PIPE_COMPUTE};
  for (uint32_t i = 0; i <= t->ninstr; i++) {
    const PipeInstr *c = &t->instr[i];
    uint32_t on = of[i];
    for (uint32_t k = pipe_wait0(t, i); k < pipe_wait_end(t, i); k++)
      w[n++] = (Want){.call = SHIM_WAIT, .stream = on, .event = pipe_after(&queues, t->wait[k])};
    if (i == t->ninstr)
      break;
    bool send = pipe_is_send(c->op);
    switch (c->op) {
    case PIPE_SEND_F:
    case PIPE_SEND_B:
    case PIPE_RECV_F:
    case PIPE_RECV_B:
      w[n++] = (Want){.call = send ? SHIM_SEND : SHIM_RECV,
                      .stream = on,
                      .peer = p->nchannel ? send : (int)c->peer,
                      .p = slot[send ? c->in : c->out],
                      .bytes = 8 * WORDS};
      break;
    case PIPE_REDUCE:
    case PIPE_TIE: w[n++] = (Want){.call = SHIM_SUM, .stream = on}; break;
    case PIPE_OFF:
    case PIPE_LOAD:
      w[n++] = (Want){.call = SHIM_COPY,
                      .stream = on,
                      .p = c->op == PIPE_LOAD     ? slot[c->act]
                           : c->peer == PIPE_NONE ? slot[c->away]
                                                  : job_slots[c->peer][c->away],
                      .bytes = 8 * WORDS};
      break;
    default:
      if (c->op == PIPE_F && c->keep != PIPE_NONE && p->stage[c->stage].nin)
        w[n++] = (Want){.call = SHIM_COPY, .stream = on, .p = slot[c->keep], .bytes = 8 * WORDS};
      w[n++] = (Want){.call = SHIM_KERNEL, .stream = on};
    }
    if (recorded[i + 1])
      w[n++] = (Want){.call = SHIM_RECORD, .stream = on, .event = i + 1};
  }
  free(recorded);
  free(of);
  free(queues.first);
  return n;
}

/* The engine's own calls: the number of the step, the losses, how far the device is. */
static bool is_frame(const ShimLog *l, uint32_t r) {
  bool event = l->call == SHIM_RECORD || l->call == SHIM_WAIT;
  return event ? l->event - job_first_event[r] >= job_events[r] : !l->name[0];
}

static void compare_log(const char *name, const Job *j, uint32_t r, bool say) {
  const PipeRank *t = &j->p->rank[r];
  Want *w = calloc(8 * (size_t)t->ninstr + 16, sizeof *w);
  uint32_t *recorded = calloc(job_events[r] + 1u, sizeof *recorded); /* Want.event, by event */
  uint32_t n = expected(j->p, r, job_slots[r], w), at = 0, wrong = 0;
  static const char *const call[] = {"kernel", "copy", "set", "record", "wait",
                                     "send",   "recv", "sum", "graph",  "number"};
  for (uint32_t i = 0; i < shim_log_length(r); i++) {
    const ShimLog *l = &shim_log(r)[i];
    if (is_frame(l, r))
      continue;
    const Want *x = &w[at % n];
    bool ok = l->call == x->call && l->stream == x->stream;
    if (ok && l->call == SHIM_RECORD)
      recorded[l->event - job_first_event[r]] = x->event;
    if (ok && l->call == SHIM_WAIT)
      ok = recorded[l->event - job_first_event[r]] == x->event;
    if (x->p)
      ok &= l->p == x->p && l->bytes == x->bytes;
    if (x->call == SHIM_SEND || x->call == SHIM_RECV)
      ok &= l->peer == x->peer;
    EXPECT(ok || wrong++, "%s: rank %u, call %u (%s %s), the table has %s\n", name, r, at, l->name,
           call[l->call], call[x->call]);
    at++;
  }
  EXPECT(at == n * STEPS, "%s: rank %u: %u calls, the table has %u in %d steps\n", name, r, at, n,
         STEPS);
  if (say)
    printf("%s: rank %u: %u calls\n", name, r, n);
  free(w);
  free(recorded);
}

/* Which log entries carry out row i of rank r in each step: the first and the last. */
typedef struct Done {
  const ShimLog *first, *last;
} Done;

static bool find_rows(const Job *j, uint32_t r, Done *d) {
  const PipeProgram *p = j->p;
  const PipeRank *t = &p->rank[r];
  const ShimLog *l = shim_log(r), *end = l + shim_log_length(r);
  for (uint32_t i = 0; i < t->ninstr * STEPS; i++) {
    char text[PIPE_OP_TEXT];
    pipe_instr_text(text, pipe_graph(p), &t->instr[i % t->ninstr]);
    d[i] = (Done){NULL, NULL};
    for (; l < end; l++) {
      if (!l->name[0] || l->call == SHIM_RECORD || l->call == SHIM_WAIT || l->call == SHIM_NUMBER)
        continue;
      if (strcmp(l->name, text) != 0)
        break;
      d[i].first = d[i].first ? d[i].first : l;
      d[i].last = l;
    }
    if (!d[i].first)
      return false;
  }
  return true;
}

/* Has row i, an op of COMPUTE, started after the side ops of COMM of its stage above it? In these
 * programs all of them are there for what is computed. d: of the step. */
static bool after_side(const PipeRank *t, uint32_t i, const Done *d) {
  bool ok = true;
  for (uint32_t k = 0; k < i && pipe_stream_of(t->instr[i].op) == PIPE_COMPUTE; k++)
    if (t->instr[k].op == PIPE_SIDE_COMM && t->instr[k].stage == t->instr[i].stage)
      ok = ok && shim_after(d[i].first, d[k].last);
  return ok;
}

/* Has each instruction of rank r started after its waits were met, and each step after the one
 * before? By the order that streams and events make, as the shim has seen it. */
static bool in_order(const Job *j, uint32_t r) {
  const PipeRank *t = &j->p->rank[r];
  Done *d = calloc((size_t)t->ninstr * STEPS, sizeof *d);
  uint32_t *on = calloc(t->ninstr + 1u, sizeof *on), n = streams(j->p, r, on);
  uint32_t *last = calloc(n, sizeof *last); /* the last row of each stream, + 1 */
  const PipeQueues queues = pipe_queues(j->p, t);
  bool ok = find_rows(j, r, d);
  for (uint32_t i = 0; i < t->ninstr; i++)
    last[on[i]] = i + 1;
  for (uint32_t s = 0; s < STEPS && ok; s++)
    for (uint32_t i = 0; i < t->ninstr && ok; i++) {
      const Done *step = d + s * t->ninstr;
      for (uint32_t w = pipe_wait0(t, i); w < pipe_wait_end(t, i) && ok; w++) {
        const uint32_t after = pipe_after(&queues, t->wait[w]);
        ok = after == 0 || shim_after(step[i].first, step[after - 1].last);
      }
      ok = ok && after_side(t, i, step);
      for (uint32_t x = 0; x < n && s > 0 && ok; x++)
        ok = last[x] == 0 || shim_after(step[i].first, (step - t->ninstr)[last[x] - 1].last);
    }
  free(queues.first);
  free(last);
  free(on);
  free(d);
  return ok;
}

void plan_logs(const char *stdlib, uint64_t seed) {
  for (uint32_t i = 0; i < nsamples; i++) {
    Program *c = compiled(stdlib, &samples[i]);
    const PipeProgram *p = c->s.prog;
    bool ties = false; /* what a rank does beside the sum of a tie depends on what it holds */
    for (uint32_t s = 0; s < p->nstage; s++)
      ties |= p->stage[s].tied != PIPE_NONE;
    for (uint32_t graph = 0; graph < 2 && !ties; graph++) {
      Job j = {.p = p,
               .processes = true,
               .log = true,
               .at_once = graph ? STEPS : 1,
               .cuda = {.graph = graph},
               .seed = seed * 1000 + i};
      job_run(&j);
      EXPECT(job_whole(&j), "%s: %s %s\n", samples[i].name, j.text, j.error[0]);
      for (uint32_t r = 0; r < p->nrank && job_whole(&j); r++)
        compare_log(samples[i].name, &j, r, !graph);
      for (uint32_t r = 0; r < p->nrank; r++)
        EXPECT(in_order(&j, r), "%s: rank %u: an instruction starts before what it waits for\n",
               samples[i].name, r);
      shim_end();
    }
    arena_free(&c->arena);
    free(c);
  }
}

/* ---- events ---- */

typedef struct Cut {
  PipeRank *rank;
  uint32_t i;
} Cut;

static void damage_wait(void *arg) {
  const Cut *c = arg;
  cut_wait(c->rank, c->i);
}

/* Environment: SHIM_SHARE=n takes every n-th wait. */
static bool is_asked(void) {
  static uint32_t asked;
  const char *share = getenv("SHIM_SHARE");
  return asked++ % (share ? (uint32_t)atoi(share) : 1) == 0;
}

void plan_events(const char *stdlib, uint64_t seed) {
  for (uint32_t i = 0; i < nsamples; i++) {
    Program *c = compiled(stdlib, &samples[i]);
    const PipeProgram *p = c->s.prog;
    uint32_t n = 0, raced = 0, found = 0;
    Job whole = {.p = p,
                 .processes = true,
                 .at_once = STEPS,
                 .free_running = true,
                 .log = true,
                 .deaf = true,
                 .seed = seed * 1000000 + (uint64_t)i * 10000};
    job_run(&whole);
    EXPECT(job_whole(&whole), "%s: %s %s\n", samples[i].name, whole.text, whole.error[0]);
    for (uint32_t r = 0; r < p->nrank; r++)
      EXPECT(in_order(&whole, r), "%s: rank %u: events do not order all\n", samples[i].name, r);
    shim_end();
    for (uint32_t r = 0; r < p->nrank; r++) {
      PipeRank *k = (PipeRank *)&p->rank[r];
      for (uint32_t w = 0; w < k->nwait; w++) {
        const PipeWait keep = k->wait[w];
        uint32_t row = 0;
        while (w >= pipe_wait_end(k, row))
          row++;
        if (!is_asked())
          continue;
        bool is = false, race = false;
        for (uint32_t t = 0; t < 3 && !is; t++) { /* as it is, from a graph, in one process */
          Cut cut = {k, w};
          Job j = {.p = p,
                   .processes = t < 2,
                   .at_once = STEPS,
                   .free_running = true,
                   .cuda = {.graph = t > 0},
                   .log = t == 0,
                   .deaf = t == 0,
                   .damage = damage_wait,
                   .arg = &cut,
                   .seed = seed * 1000000 + (uint64_t)i * 10000 + w * 10 + t};
          job_run(&j);
          put_wait(k, w, row, keep); /* in_order knows all waits */
          race = t == 0 && j.errors > 0;
          is = j.errors > 0 || j.broken > 0 || (t == 0 && !in_order(&j, r));
          if (t == 0)
            shim_end();
        }
        n++;
        found += is;
        raced += race;
        if (!is)
          printf("%s: rank %u: without wait %u (of row %u) nothing is found\n", samples[i].name, r,
                 w, row);
      }
    }
    if (n)
      printf("%s: %u of %u waits, %u by a race\n", samples[i].name, found, n, raced);
    job_bad += (int)(n - found);
    arena_free(&c->arena);
    free(c);
  }
}
