/* SPDX-License-Identifier: MIT
 * Two proofs are about what the compiler itself makes: that the transfers match (check_match) and
 * that the program with its transfers completes (check_deadlock). No .pipe text can fail them, so
 * here a good program is damaged between the passes, one way per argument, and the proof has to
 * find it. A proof that no file can fail either ends the compile with an internal error.
 *
 *   swap     two receives of one rank change places       peer     a send goes to another rank
 *   lost     a receive becomes a compute op               order    a transfer is put before its
 *            cause
 *   last     the last one does                            edge     two receives of one edge of a
 *            graph change places
 *   channel  a receive is put into another channel
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
  } else if (strcmp(how, "order") == 0) {
    Xfer last =
        s->ideal->xfer[s->ideal->nxfer - 1]; /* 1SEND_B1, which every other transfer leads to */
    memmove(s->ideal->xfer + 1, s->ideal->xfer, (s->ideal->nxfer - 1) * sizeof *s->ideal->xfer);
    s->ideal->xfer[0] = last;
  } else {
    return strcmp(how, "none") == 0;
  }
  return true;
}

/* Options.lowering of the program that is damaged. */
static int lowering_for(const char *how) {
  return strcmp(how, "channel") == 0 ? 1 + PIPE_CHANNELS : 0;
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
  bool match, complete;
} Proofs;

/* Runs the proofs up to the first that ends the compile. */
static void prove(void *of) {
  Proofs *proofs = of;
  Sched *s = proofs->s;
  Verdict verdict = {0};
  proofs->match = check_match(s) && (!proofs->sums || check_channels(s, &verdict));
  proofs->complete = completes_anew(s);
}

int main(int argc, char **argv) {
  const char *how = argc == 2 ? argv[1] : "";
  Arena arena = {0};
  Diag diag;
  const char *of = strcmp(how, "edge") == 0 ? graph : strcmp(how, "sums") == 0 ? sums : text;
  Options opt = {.input = "proofs.pipe",
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
  printf("%s: transfers %s, program %s\n", how, proofs.match ? "match" : "do not match",
         proofs.complete ? "completes" : "does not complete");
  arena_free(&arena);
  return 0;
}
