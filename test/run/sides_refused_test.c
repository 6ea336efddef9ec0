/* SPDX-License-Identifier: MIT
 * What validate.c says of side ops: compiles a schedule that has some, plants one fault in its
 * tables, and prints what pr_open says, or pr_steps where the callback fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "list_waits.h"
#include "pipe_run.h"
#include "seeded.h"
#include "tiny_model.h"

static const char *const text =
    "schedule a() { ranks 1 pipe n stages 2 mbs 2 place s -> 0 time { F = 4 }\n"
    "order r { F[0](0) F[0](1) F[1](0) F[1](1) do m in 0..2 { B[1](m) } do m in 0..2 { B[0](m) } U }\n"
    "side UNSHARD(s) on comm before first F { memory = 64 }\n"
    "side RESHARD(s) on compute after last F gives UNSHARD { cost = 1 }\n"
    "side EVICT(s, m) on copy after F when s == 0 { cost = 2 } }\n";

static PipeInstr *find(const PipeProgram *p, PipeOp op, uint32_t stage) {
  PipeInstr *c = (PipeInstr *)p->rank[0].instr;
  while (c->op != op || c->stage != stage)
    c++;
  return c;
}

static int fails(void *self, const PrCall *c) {
  (void)self;
  return strcmp(c->side, "EVICT") == 0 && c->mb == 0 ? 7 : 0;
}

static PrModel model_of(Tiny *t, int (*side)(void *, const PrCall *)) {
  PrModel m = tiny_model(t);
  m.side = side;
  return m;
}

/* What pr_open says of the program, or a step of it: on threads; with a seed if that differs. */
static void tell(const PipeProgram *p, const char *name, int (*side)(void *, const PrCall *),
                 bool step) {
  char threads[1024] = "";
  for (uint64_t seed = 0; seed < 2; seed++) {
    Tiny *t = tiny_new(2, 1);
    PrModel m = model_of(t, side);
    PrOptions o = seeded_or_threads((PrOptions){0}, &seed);
    PrRun *run;
    if (!pr_open(&run, p, &m, &o) && step)
      pr_steps(run, 1);
    if (seed == 0 || strcmp(threads, pr_error(run)) != 0)
      printf("%s: %s\n", name, pr_error(run));
    snprintf(threads, sizeof threads, "%s", pr_error(run));
    pr_close(run);
    tiny_free(t);
  }
}

static PipeProgram *compiled(Arena *arena, const char *of) {
  Diag diag;
  Options opt = {.input = "t.pipe", .text = of, .text_len = strlen(of), .verify = true};
  Sched s = {.arena = arena, .diag = &diag, .opt = &opt};
  diag_init(&diag, arena, stderr);
  if (!compile_only(&s))
    exit(1);
  return (PipeProgram *)s.prog;
}

int main(void) {
  enum { NONE_, NAME, ROW, STAGE, CLASS, LACKS, FREE, TAKEN, WAIT, COPY, MODEL, FAILS, N };
  static const char *const name[N] = {"no fault", "name",  "row",  "stage", "class", "lacks",
                                      "free",     "taken", "wait", "copy",  "model", "fails"};
  for (int i = 0; i < N; i++) {
    Arena arena = {0};
    PipeProgram *p = compiled(&arena, text);
    PipeInstr *take = find(p, PIPE_SIDE_COMM, 0), *give = find(p, PIPE_SIDE, 0),
              *next = find(p, PIPE_SIDE_COMM, 1), *copy = find(p, PIPE_SIDE_COPY, 0);
    switch (i) {
    case NAME: ((PipeSide *)p->side)[0].op = PIPE_F; break;
    case ROW: take->side = 9; break;
    case STAGE: take->side = 1; break;
    case CLASS: take->taken = 0; break;
    case LACKS: take->taken = NONE; break;
    case FREE: {
      take->taken = NONE;
      ((PipeSide *)p->side)[0].bytes = 0;
      break;
    }
    case TAKEN: give->given = NONE; break;
    case WAIT: wait_of(&p->rank[0], next, PIPE_COMPUTE)->count = 0; break;
    case COPY: copy->act = 0; break;
    default: break;
    }
    tell(p, name[i], i == MODEL ? NULL : fails, i == FAILS);
    arena_free(&arena);
  }
  return 0;
}
