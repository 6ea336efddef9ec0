/* SPDX-License-Identifier: MIT
 * Prints who meets whom in a program: edges, rows, ties, and the slots of every instruction. */
#include <inttypes.h>
#include <stdio.h>

#include "pipe_rows.h"

extern const PipeProgram pipe_program;

static const char *const name[] = {
#define X(op, text, stream, act, gout, in, out) text,
#include "pipe_ops.def"
#undef X
};

static void slots(const char *what, const PipeRank *k, uint32_t at, uint32_t n, int comm) {
  printf(" %s", what);
  for (uint32_t i = 0; at != PIPE_NONE && i < (comm ? 1 : n); i++)
    printf(" %" PRIu32, comm || n < 2 ? at : k->list[at + i]);
}

int main(void) {
  char why[PIPE_EXPAND_TEXT];
  PipeProgram *lists = pipe_is_rows(&pipe_program) ? pipe_expand(&pipe_program, why) : NULL;
  const PipeProgram *p = lists ? lists : &pipe_program;
  for (uint32_t i = 0; i < p->nedge; i++)
    printf("edge %" PRIu32 " -> %" PRIu32 "%s\n", p->edge[i].from, p->edge[i].to,
           p->edge[i].skip ? " skip" : "");
  for (uint32_t m = 0; m < p->nmodel; m++) {
    printf("row %" PRIu32 ":", m);
    for (uint32_t mb = 0; mb < p->nmb; mb++)
      printf(" %" PRIu32, p->row[m * p->nmb + mb]);
    printf("\n");
  }
  for (uint32_t i = 0; i < p->nstage; i++)
    printf("stage %" PRIu32 " model %" PRIu32 " edge %" PRIu64 " tied %d %" PRIu64 "\n", i,
           p->stage[i].model, p->stage[i].edge_bytes, p->stage[i].tied != PIPE_NONE,
           p->stage[i].tied_bytes);
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeRank *k = &p->rank[r];
    for (uint32_t i = 0; i < k->npool; i++)
      printf("pool %" PRIu32 " %" PRIu32 " %" PRIu64 "%s\n", k->pool[i].first, k->pool[i].count,
             k->pool[i].bytes, k->pool[i].skip ? " skip" : "");
    for (uint32_t i = 0; i < k->ninstr; i++) {
      const PipeInstr *c = &k->instr[i];
      const PipeStage *g = &p->stage[c->stage];
      int comm = c->op > PIPE_U, forward = c->op == PIPE_F;
      printf("%" PRIu32 "%s", c->stage, name[c->op]);
      if (c->mb != PIPE_NONE)
        printf("%" PRIu32, c->mb);
      slots("in", k, c->in, forward ? g->nin : g->nout, comm);
      slots("out", k, c->out, forward ? g->nout : g->nin, comm);
      printf("\n");
    }
  }
  pipe_expand_free(lists);
  return 0;
}
