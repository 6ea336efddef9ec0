/* SPDX-License-Identifier: MIT
 * Three proofs are about what the compiler itself makes: that the transfers match (check_match),
 * that the program with its transfers completes (check_deadlock) and that its events do
 * (check_streams). No .pipe text can fail them, so here a good program is damaged between the
 * passes, one way per argument, and the proof has to find it. A proof that no file can fail either
 * ends the compile with an internal error.
 *
 *   swap     two receives of one rank change places       peer     a send goes to another rank
 *   lost     a receive becomes a compute op               order    a transfer is put before its
 *            cause
 *   last     the last one does                            edge     two receives of one edge of a
 *            graph change places
 *   event    a wait for an event is left out              spare    one is there that is not needed
 *   again    a wait is for an event of another record
 *   channel  a receive is put into another channel         need     an op starts before what it
 *            needs of one
 *   slot     a receive takes a slot that is still in use   inside   an event is waited for in the
 *            middle of a group
 *   sums     two sums over the same ranks change places on one rank (check_channels)
 *   none     nothing is damaged: all proofs hold
 *
 * Exit status 0: the proofs said what the messages on standard output say; the test reads them. */
#include <string.h>

#include "driver.h"
#include "guard.h"
#include "lower.h"
#include "orders.h"
#include "prove.h"

static const char text[] = "schedule s(P = 3, M = 2) {\n"
                           "  ranks P\n"
                           "  pipe net stages P mbs M place s -> s\n"
                           "  order r { steady m { F(m) B(m - (P-1-r)) } U }\n"
                           "}\n";

/* For "edge". */
static const char graph[] = "schedule s(P = 3, M = 2) {\n"
                            "  ranks P\n"
                            "  pipe net stages P mbs M place s -> s  edge 0 -> 2\n"
                            "  order r { steady m { F(m) B(m - (P-1-r)) } U }\n"
                            "}\n";

/* For "sums". */
static const char sums[] = "schedule s() {\n"
                           "  ranks 2\n"
                           "  pipe down stages 2 mbs 1 place s -> s\n"
                           "  pipe up stages 2 mbs 1 place s -> 1-s replica of down\n"
                           "  order r { down.F  down.B  up.F  up.B  down.U  up.U }\n"
                           "}\n";

/* For "inside". */
static const char lists[] = "0F0,0SEND_F0,0F1,0SEND_F1+0RECV_B0,0B0,0RECV_B1,0B1\n"
                            "1RECV_F0,1F0,1B0,1SEND_B0+1RECV_F1,1F1,1B1,1SEND_B1\n";

/* The n-th instruction of this kind on a rank. The tables are the arena's: they can be written. */
static PipeInstr *nth(Sched *s, uint32_t rank, PipeOp op, uint32_t n) {
  const PipeRank *k = &s->prog->rank[rank];
  for (uint32_t i = 0; i < k->ninstr; i++)
    if (k->instr[i].op == op && n-- == 0)
      return (PipeInstr *)&k->instr[i];
  fprintf(stderr, "rank %u has no such instruction\n", rank);
  exit(2);
}

static bool damage(Sched *s, const char *how) {
  if (strcmp(how, "sums") == 0) {
    PipeInstr *a = nth(s, 0, PIPE_REDUCE, 0), *b = nth(s, 0, PIPE_REDUCE, 1), t = *a;
    *a = *b, *b = t;
  } else if (strcmp(how, "swap") == 0) {
    PipeInstr *a = nth(s, 1, PIPE_RECV_F, 0), *b = nth(s, 1, PIPE_RECV_F, 1), t = *a;
    *a = *b, *b = t;
  } else if (strcmp(how, "peer") == 0) {
    nth(s, 1, PIPE_SEND_F, 1)->peer = 0;
  } else if (strcmp(how, "lost") == 0) {
    nth(s, 0, PIPE_RECV_B, 1)->op = PIPE_U;
  } else if (strcmp(how, "last") == 0) {
    nth(s, 1, PIPE_RECV_B, 1)->op = PIPE_U;
  } else if (strcmp(how, "edge") == 0) {
    const PipeProgram *p = s->prog;
    PipeInstr *at[2] = {NULL, NULL}, t;
    for (uint32_t i = 0; i < p->rank[2].ninstr; i++) {
      PipeInstr *in = (PipeInstr *)&p->rank[2].instr[i];
      if (in->op == PIPE_RECV_F && !p->edge[in->edge].skip)
        at[at[0] != NULL] = in;
    }
    t = *at[0], *at[0] = *at[1], *at[1] = t;
  } else if (strcmp(how, "channel") == 0) {
    nth(s, 1, PIPE_RECV_F, 1)->channel = nth(s, 1, PIPE_SEND_F, 0)->channel;
  } else if (strcmp(how, "slot") == 0) {
    nth(s, 1, PIPE_RECV_F, 1)->out = nth(s, 1, PIPE_RECV_F, 0)->out;
    nth(s, 1, PIPE_F, 1)->in = nth(s, 1, PIPE_F, 0)->in;
  } else if (strcmp(how, "inside") == 0) {
    for (uint32_t r = 0; r < s->model->nrank; r++)
      for (uint32_t i = 0; i < s->prog->rank[r].nsync; i++) {
        PipeRank *k = (PipeRank *)&s->prog->rank[r];
        uint32_t row = k->sync[i].before;
        if (row == k->ninstr || k->instr[row].op < PIPE_SEND_F || k->instr[row].group == 0)
          continue;
        PipeSync *y = arena_alloc(s->arena, (k->nsync + (size_t)1) * sizeof *y);
        memcpy(y, k->sync, (i + 1) * sizeof *y);
        y[i + 1] = (PipeSync){y[i].after, row + 1, y[i].event};
        memcpy(y + i + 2, k->sync + i + 1, (k->nsync - i - 1) * sizeof *y);
        k->sync = y, k->nsync++;
        return true;
      }
    return false;
  } else if (strcmp(how, "need") == 0) {
    PipeRank *k = (PipeRank *)&s->prog->rank[1];
    PipeSync *y = arena_alloc(s->arena, k->nsync * sizeof *y);
    uint32_t n = 0, before = (uint32_t)(nth(s, 1, PIPE_B, 0) - k->instr);
    for (uint32_t i = 0; i < k->nsync; i++)
      if (k->sync[i].before != before)
        y[n++] = k->sync[i];
    k->sync = y, k->nsync = n;
  } else if (strcmp(how, "order") == 0) {
    Xfer last =
        s->ideal->xfer[s->ideal->nxfer - 1]; /* 1SEND_B1, which every other transfer leads to */
    memmove(s->ideal->xfer + 1, s->ideal->xfer, (s->ideal->nxfer - 1) * sizeof *s->ideal->xfer);
    s->ideal->xfer[0] = last;
  } else if (strcmp(how, "event") == 0 || strcmp(how, "spare") == 0 || strcmp(how, "again") == 0) {
    PipeRank *k = (PipeRank *)&s->prog->rank[1];
    PipeSync *y = arena_alloc(s->arena, (k->nsync + (size_t)1) * sizeof *y);
    uint32_t last = k->nsync - 1;
    memcpy(y, k->sync, k->nsync * sizeof *y);
    k->sync = y;
    if (*how == 'a') {
      y[2].event = 1 - y[2].event;
      return true;
    }
    if (*how == 'e') {
      k->nsync--;
      return true;
    }
    y[last + 1] = y[last]; /* 1U waits for what 1B0 has waited for */
    y[last] = (PipeSync){(uint32_t)(nth(s, 1, PIPE_SEND_F, 1) - k->instr), k->ninstr - 1,
                         k->nevent++};
    k->nsync++;
  } else {
    return strcmp(how, "none") == 0;
  }
  return true;
}

/* Options.lowering of the program that is damaged. */
static int lowering_for(const char *how) {
  bool channels = strcmp(how, "channel") == 0 || strcmp(how, "need") == 0;
  return channels ? 1 + PIPE_CHANNELS : 0;
}

/* comm begins anew: lower has merged its streams. */
static bool completes_anew(Sched *s) {
  static Lowered lowered;
  static Times times;
  lowered.lowering = s->lowered->lowering;
  s->lowered = &lowered, s->times = &times;
  return comm(s, &lowered) && settle(s, &lowered, &times) && check_deadlock(s);
}

typedef struct Proofs {
  Sched *s;
  bool sums; /* the sums, too */
  bool match, complete, synced;
} Proofs;

/* Runs the proofs up to the first that ends the compile. */
static void prove(void *of) {
  Proofs *proofs = of;
  Sched *s = proofs->s;
  Verdict verdict = {0};
  proofs->match = check_match(s) && (!proofs->sums || check_channels(s, &verdict));
  proofs->synced = true;
  proofs->complete = completes_anew(s);
  if (!proofs->match || !proofs->complete)
    return; /* events are about programs that are right so far */
  proofs->synced = false;
  proofs->synced = check_streams(s);
}

int main(int argc, char **argv) {
  const char *how = argc == 2 ? argv[1] : "";
  Arena arena = {0};
  Diag diag;
  const bool inside = strcmp(how, "inside") == 0;
  const char *of = inside                     ? lists
                   : strcmp(how, "edge") == 0 ? graph
                   : strcmp(how, "sums") == 0 ? sums
                                              : text;
  Options opt = {.input = inside ? "proofs.csv" : "proofs.pipe",
                 .text = of,
                 .text_len = strlen(of),
                 .emit = EMIT_NONE,
                 .lowering = lowering_for(how),
                 .out = stdout};
  Sched s = {.arena = &arena, .diag = &diag, .opt = &opt};
  diag_init(&diag, &arena, stdout);
  if (!compile_only(&s) || !damage(&s, how))
    return 2;
  Arena own = {0}; /* of the guard */
  Guard guard;
  Proofs proofs = {.s = &s, .sums = strcmp(how, "sums") == 0};
  s.arena = diag.arena = &own;
  if (guard_run(&guard, prove, &proofs) == GUARD_BUG)
    printf("internal error: %s\n", guard.why);
  guard_release(&guard);
  printf("%s: transfers %s, program %s, %s\n", how, proofs.match ? "match" : "do not match",
         proofs.complete ? "completes" : "does not complete",
         proofs.synced ? "no event is wrong" : "an event is wrong");
  arena_free(&arena);
  return 0;
}
