/* SPDX-License-Identifier: MIT
 * What validate.c says of stashes on other ranks: compiles a schedule that lends them, plants one
 * fault in its tables, and prints what pr_open says. Without a fault it opens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipe_run.h"
#include "program.h"
#include "seeded.h"
#include "tiny_model.h"

static const char *const text = "schedule a() { ranks 3 pipe n stages 3 mbs 4 place s -> s\n"
                                "  order r { do m in 0..4 { F(m) } do m in 0..4 { B(m) } U }\n"
                                "  offload s, m -> 1 when s != 1 && m < 2 }\n";

static PipeInstr *find(const PipeProgram *p, PipeOp op, uint32_t rank, uint32_t mb) {
  PipeInstr *c = (PipeInstr *)p->rank[rank].instr;
  while (c->op != op || c->mb != mb)
    c++;
  return c;
}

int main(void) {
  enum { NONE_, PEER, OWN, KEEP, SHARED, FULL, OTHER, HERE, MANY, N };
  static const char *const name[N] = {"no fault", "peer",  "own",  "keep", "shared",
                                      "full",     "other", "here", "many"};
  for (int i = 0; i < N; i++) {
    Program program;
    if (!program_open(&program, NULL, "t.pipe", text, NULL, 0, NULL))
      return 1;
    PipeProgram *p = (PipeProgram *)program.s.prog;
    PipeInstr *off = find(p, PIPE_OFF, 0, 0), *load = find(p, PIPE_LOAD, 0, 0);
    switch (i) {
    case PEER: off->peer = 3; break;
    case OWN: off->peer = 0; break;
    case KEEP: off->away = 0; break;
    case SHARED: find(p, PIPE_OFF, 2, 0)->away = off->away; break;
    case FULL: find(p, PIPE_OFF, 0, 1)->away = off->away; break;
    case OTHER: load->away = find(p, PIPE_LOAD, 0, 1)->away; break;
    case HERE: load->peer = NONE; break;
    case MANY: ((PipeRank *)p->rank)[1].nslot = 1000; break;
    default: break;
    }
    Tiny *t = tiny_new(3, 0);
    PrModel model = tiny_model(t);
    PrRun *run;
    PrStatus st = pr_open(&run, p, &model, &(PrOptions){SEEDED(1)});
    printf("%s: %s\n", name[i], st ? pr_error(run) : "opens");
    pr_close(run);
    tiny_free(t);
    program_close(&program);
  }
  return 0;
}
