/* SPDX-License-Identifier: MIT
 * The waits of the programs of ../run/samples.h: the validator takes each program as it is, and
 * refuses it after each of these changes, wherever one can be made:
 *
 *   lost     a wait is left out
 *   early    a wait is for an instruction less
 *   inside   the second instruction of a group or an action waits in place of the first
 *   shared   a transfer uses the slot of another one of its group
 *
 * So each wait is needed. Left out are those that no slot needs, but the text: of copies and side
 * ops, which may stand further up, and of the lists of a file. prune.test has them, too.
 *
 *   waits_test STDLIB_DIR    prints a line for each program; exit status 0 iff all is as it has to
 *                            be */
#include "certify.h"
#include "guard.h"
#include "orders.h"
#include "../run/cut_wait.h"
#include "../run/samples.h"
#include "validate.h"

static void verify(void *of) { verify_program(of); }

/* Do the tables pass, also the comparison with the text? */
static bool passes(Sched *s) {
  char why[256];
  if (pipe_validate(s->prog, why, sizeof why) != PR_OK)
    return false;
  Arena *arena = s->arena, own = {0}; /* of the guard */
  Guard guard;
  s->arena = &own;
  const GuardEnd end = guard_run(&guard, verify, s);
  guard_release(&guard);
  s->arena = arena;
  return end == GUARD_DONE;
}

typedef struct Tried {
  Sched *s;
  const char *name;
  PipeRank *rank;
  uint32_t r, bad, ngroup;
} Tried;

static void expect(Tried *tried, const char *how, uint32_t i, bool want) {
  if (passes(tried->s) == want)
    return;
  tried->bad++;
  printf("%s: rank %u, wait %u, %s: %s\n", tried->name, tried->r, i, how,
         want ? "refused" : "not found");
}

/* The row that wait i belongs to. */
static uint32_t row_of(const PipeRank *rank, uint32_t i) {
  uint32_t row = 0;
  while (i >= pipe_wait_end(rank, row))
    row++;
  return row;
}

static bool beside(const PipeInstr *in) {
  return pipe_is_side(in->op) || pipe_stream_of(in->op) == PIPE_COPY;
}

/* May the text alone ask for this wait of a row? */
static bool is_of_text(const Tried *tried, uint32_t row, PipeWait wait) {
  const PipeRank *rank = tried->rank;
  const PipeQueues queues = pipe_queues(tried->s->prog, rank);
  const uint32_t after = pipe_after(&queues, wait);
  free(queues.first);
  return tried->s->orders->lists || (row < rank->ninstr && beside(&rank->instr[row])) ||
         (row < rank->ninstr && after > 0 && beside(&rank->instr[after - 1]));
}

static void try_wait(Tried *tried, uint32_t i) {
  PipeRank *rank = tried->rank;
  const uint32_t row = row_of(rank, i);
  PipeInstr *in = (PipeInstr *)(uintptr_t)&rank->instr[row];
  PipeWait *wait = (PipeWait *)(uintptr_t)&rank->wait[i], keep = *wait;
  if (is_of_text(tried, row, keep))
    return;
  cut_wait(rank, i);
  expect(tried, "lost", i, false);
  put_wait(rank, i, row, keep);
  if (keep.count > 0) {
    wait->count--;
    expect(tried, "early", i, false);
    *wait = keep;
  }
  if (row < rank->ninstr && in->group > 0) {
    const PipeInstr one = in[0], two = in[1];
    in[1].waits -= in[0].nwait, in[1].nwait = in[0].nwait;
    in[0].nwait = 0;
    expect(tried, "inside", i, false);
    in[0] = one, in[1] = two;
  }
}

static void try_slots(Tried *tried) {
  for (uint32_t i = 0; i + 1 < tried->rank->ninstr; i++) {
    PipeInstr *c = (PipeInstr *)(uintptr_t)&tried->rank->instr[i], keep = c[1];
    if (!pipe_op_info[c->op].comm || c->group == 0)
      continue;
    *(c[1].in == PIPE_NONE ? &c[1].out : &c[1].in) = c->in == PIPE_NONE ? c->out : c->in;
    expect(tried, "shared", i, false);
    c[1] = keep;
    tried->ngroup++;
  }
}

static uint32_t try_all(Sched *s, const char *name) {
  const PipeProgram *p = s->prog;
  Tried tried = {.s = s, .name = name};
  uint32_t nwait = 0;
  expect(&tried, "as it is", 0, true);
  for (tried.r = 0; tried.r < p->nrank; tried.r++) {
    tried.rank = (PipeRank *)(uintptr_t)&p->rank[tried.r];
    for (uint32_t i = 0; i < tried.rank->nwait; i++)
      try_wait(&tried, i);
    try_slots(&tried);
    nwait += tried.rank->nwait;
  }
  expect(&tried, "as it was", 0, true);
  printf("%s: %u waits on %u ranks, each needed\n", name, nwait, p->nrank);
  return tried.bad + (nwait == 0) + (strstr(name, "grouped") && tried.ngroup == 0);
}

int main(int argc, char **argv) {
  Program *c = malloc(sizeof *c);
  uint32_t bad = 0;
  if (argc != 2 || !c)
    return 2;
  for (uint32_t i = 0; i < nsamples; i++) {
    bad += sample_compile(c, argv[1], &samples[i]) ? try_all(&c->s, samples[i].name) : 1;
    arena_free(&c->arena);
  }
  free(c);
  printf("%u wrong\n", bad);
  return bad != 0;
}
