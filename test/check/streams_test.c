/* SPDX-License-Identifier: MIT
 * The proof of the events (check_streams) and the runtime's own look at them, on the programs of
 * ../run/samples.h: each passes as it is, and each of these changes, made in every place where it
 * can be made, is found by both (the last one by the proof):
 *
 *   lost     a wait is left out                     early    an event is recorded an instruction
 *            too early
 *   mixed    a wait is for another event            spare    a wait that is there is there a second
 *            time, lower
 *   shared   a transfer uses the slot of another one of its group (the proof; the runtime's is
 *            elsewhere)
 *
 *   streams_test STDLIB_DIR    prints one line per program; exit status 0 iff all is as it should
 *                              be */
#include <string.h>

#include "guard.h"
#include "prove.h"
#include "../run/samples.h"
#include "validate.h"

/* Does the validator take the events of rank r? With channels they are all that says what COMPUTE
 * needs of COMM, so it asks whether they cover every access of a slot. */
static bool runtime_takes(const PipeProgram *p, uint32_t r) {
  char why[256];
  return (p->nchannel ? pipe_validate(p, why, sizeof why)
                      : pipe_validate_events(p, r, why, sizeof why)) == PR_OK;
}

/* What the two say: the proof, and the runtime. */
typedef struct Seen {
  bool proof, runtime;
} Seen;

static void prove(void *of) { check_streams(of); }

/* Did the proof end with the internal error of its own, and not with an assertion? */
static bool is_refusal(const Guard *guard) { return strncmp(guard->why, "rank ", 5) == 0; }

static Seen look(Sched *s, uint32_t r) {
  Arena *arena = s->arena, own = {0}; /* of the guard */
  Guard guard;
  s->arena = &own;
  const GuardEnd end = guard_run(&guard, prove, s);
  guard_release(&guard);
  s->arena = arena;
  if (end != GUARD_DONE && !is_refusal(&guard)) {
    printf("%s\n", guard.why);
    exit(2);
  }
  return (Seen){.proof = end == GUARD_DONE, .runtime = runtime_takes(s->prog, r)};
}

static int bad;
static void expect(const char *name, const char *how, uint32_t r, uint32_t i, bool is, bool want) {
  if (is == want)
    return;
  bad++;
  printf("%s: rank %u, wait %u, %s: %s\n", name, r, i, how, is ? "not found" : "refused");
}

/* Does nothing but its event say what wait i is for? With channels: a side op of COMM that is not
 * the last that is needed. */
static bool only_event(const PipeProgram *p, const PipeRank *k, const PipeSync *y) {
  uint32_t place = 0;
  if (p->nchannel == 0 || y->after == NONE || y->before == k->ninstr ||
      k->instr[y->after].op != PIPE_SIDE_COMM)
    return false;
  for (uint32_t i = 0; i <= y->after; i++)
    place += pipe_op_info[k->instr[i].op].comm;
  return pipe_wait_for(&k->instr[y->before], PIPE_COMM) != place;
}

/* Is event `e` recorded and still to be waited for at some time at which that of wait i is? Or is
 * it that of another wait for the same record, so that there would be two. */
static bool collides(const PipeSync *y, uint32_t n, uint32_t i, uint32_t e) {
  for (uint32_t j = 0; j < n; j++)
    if (j != i &&
        ((y[j].event == e && y[j].after + 1 <= y[i].before && y[i].after + 1 <= y[j].before) ||
         (y[j].after == y[i].after && y[j].event != e)))
      return true;
  return false;
}

static void try_all(Sched *s, const char *name) {
  const PipeProgram *p = s->prog;
  uint32_t nwait = 0, n = 0, ngroup = 0;
  for (uint32_t r = 0; r < p->nrank; r++) {
    PipeRank *k = (PipeRank *)&p->rank[r];
    const PipeSync *whole = k->sync;
    uint32_t nsync = k->nsync;
    PipeSync *cut = arena_alloc(s->arena, (nsync + (size_t)1) * sizeof *cut);
    Seen v = look(s, r);
    expect(name, "as it is", r, 0, v.proof && v.runtime, true);
    nwait += nsync;
    k->sync = cut;
    for (uint32_t i = 0; i < nsync; i++) {
      memcpy(cut, whole, i * sizeof *cut); /* lost */
      memcpy(cut + i, whole + i + 1, (nsync - i - 1) * sizeof *cut);
      k->nsync = nsync - 1;
      uint32_t nevent = k->nevent;
      k->nevent = k->nsync == 0 ? 0 : nevent;
      v = look(s, r);
      expect(name, "lost, proof", r, i, v.proof, false);
      if (!only_event(p, k, &whole[i]))
        expect(name, "lost, runtime", r, i, v.runtime, false);
      k->nsync = nsync, k->nevent = nevent;
      memcpy(cut, whole, nsync * sizeof *cut); /* mixed */
      cut[i].event = (cut[i].event + 1) % nevent;
      if (collides(whole, nsync, i, cut[i].event)) {
        v = look(s, r);
        expect(name, "mixed, proof", r, i, v.proof, false);
        expect(name, "mixed, runtime", r, i, v.runtime, false);
      }
      memcpy(cut, whole, nsync * sizeof *cut); /* early */
      if (cut[i].after != NONE && cut[i].after > 0 &&
          pipe_op_info[k->instr[cut[i].after].op].stream ==
              pipe_op_info[k->instr[cut[i].after - 1].op].stream) {
        for (uint32_t j = 0; j < nsync; j++)
          if (whole[j].after == whole[i].after)
            cut[j].after--;
        v = look(s, r);
        expect(name, "early, proof", r, i, v.proof, false);
        expect(name, "early, runtime", r, i, v.runtime, false);
      }
      memcpy(cut, whole, (i + 1) * sizeof *cut); /* spare: at the next row of the same stream */
      uint32_t row = whole[i].before + 1, end = k->ninstr;
      uint8_t on = whole[i].before < end ? pipe_op_info[k->instr[whole[i].before].op].stream : 0;
      while (row < end && pipe_op_info[k->instr[row].op].stream != on)
        row++;
      uint32_t at = i + 1;
      while (at < nsync && whole[at].before < row)
        cut[at] = whole[at], at++;
      if (row < end && (at == nsync || whole[at].before > row)) {
        cut[at] = whole[i], cut[at].before = row;
        memcpy(cut + at + 1, whole + at, (nsync - at) * sizeof *cut);
        k->nsync = nsync + 1;
        v = look(s, r);
        expect(name, "spare", r, i, v.proof, false);
        if (k->instr[row - 1].group > 0)
          expect(name, "spare, in a group, runtime", r, i, v.runtime, false);
        k->nsync = nsync;
      }
      n++;
    }
    k->sync = whole;
    for (uint32_t i = 0; i + 1 < k->ninstr; i++) { /* shared */
      PipeInstr *c = (PipeInstr *)&k->instr[i], keep = c[1];
      if (!pipe_op_info[c->op].comm || c->group == 0)
        continue;
      *(c[1].in == NONE ? &c[1].out : &c[1].in) = c->in == NONE ? c->out : c->in;
      expect(name, "shared", r, i, look(s, r).proof, false);
      c[1] = keep;
      ngroup++;
    }
  }
  printf("%s: %u waits for events on %u ranks, each needed\n", name, nwait, p->nrank);
  if (n != nwait || nwait == 0 || (strstr(name, "grouped") && ngroup == 0))
    bad++;
}

int main(int argc, char **argv) {
  Program *c = malloc(sizeof *c);
  if (argc != 2 || !c)
    return 2;
  for (uint32_t i = 0; i < nsamples; i++) {
    if (!sample_compile(c, argv[1], &samples[i]))
      bad++;
    else
      try_all(&c->s, samples[i].name);
    arena_free(&c->arena);
  }
  free(c);
  printf("%d wrong\n", bad);
  return bad != 0;
}
