/* SPDX-License-Identifier: MIT
 * Finds mistakes of pipec itself in the emitted program, before anybody runs it.
 *
 * - In every compile, the validator of the runtime (runtime/validate) reads the tables.
 * - With opt->verify, the machine of machine.h runs them; verify_completes.c checks its
 *   certificate.
 * - Then this file, verify_side.c and verify_stashes.c compare the tables with the text: every op
 *   stands where the text has it, side ops and limits are those of their clauses.
 *
 * They take nothing from the passes that made the tables, and abort on a mistake. Whether versions
 * of weights and formulas are those of the text, test/oracle finds. Cost: linear, apart from the
 * certificate. */
#include <string.h>

#include "certify.h"
#include "validate.h"
#include "verify.h"
#include "weights.h"

/* The counts of the tables are the counts of the passes. Runs first: the other checks rely on
 * them. */
static void verify_head(const Sched *s) {
  const PipeProgram *p = s->prog;
  BUG_IF(p->nrank != s->model->nrank || p->nstage != s->model->nstage ||
         p->nmodel != s->model->nmodel || p->nmb != s->model->nmb ||
         p->slices != s->model->slices || p->nedge != s->model->nedge);
  BUG_IF(p->sized != s->model->sized || p->forward != s->model->forward ||
         p->lowering != s->lowered->lowering);
  BUG_IF(p->nchannel != s->lowered->npipe_channel || (p->nchannel && p->lowering != PIPE_CHANNELS));
  BUG_IF(p->nformula != s->versions->nformula || p->nrule != s->versions->nrule ||
         p->nthen != s->versions->nthen ||
         p->nstate != (s->versions->nformula ? s->versions->nstate : 0));
  for (uint32_t st = 0; st < p->nstage; st++)
    BUG_IF((p->stage[st].tied != NONE) != (s->model->tie_of && s->model->tie_of[st] != NONE));
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeRank *k = &p->rank[r];
    const Streams *t = &s->lowered->stream[r];
    uint64_t slots = 0;
    BUG_IF(k->ninstr != t->ncompute + t->ncomm + t->ncopy || k->npool != s->lowered->npool[r]);
    for (uint32_t i = 0; i < k->npool; i++)
      slots += k->pool[i].count;
    BUG_IF(k->nslot != slots || (k->weights != NULL) != s->model->weighted);
    BUG_IF(t->ncomm + t->ncopy > 0 && k->nsync == 0); /* whichever engine runs the program */
  }
}

/* Verifies busy, the sum of the times of all compute ops, and what follows from it. Requires valid
 * tables. */
static void verify_times(const PipeProgram *p) {
  const PipeTimes t = {p->stage, p->side, p->unit_time, p->nunit_time};
  uint64_t busy = 0;
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
      const PipeInstr *in = &p->rank[r].instr[i], *next = in + 1;
      if (pipe_op_info[in->op].stream != PIPE_COMPUTE)
        continue;
      busy += pipe_time(t, in);
      if (in->group != 1 || (i > 0 && in[-1].group == 2) ||
          !((in->op == PIPE_F && next->op == PIPE_B) || (in->op == PIPE_B && next->op == PIPE_F)))
        continue;
      const PipeInstr *f = in->op == PIPE_F ? in : next;
      uint64_t both = pipe_fused_time(t, f->stage, f->mb);
      busy += both ? both - pipe_time(t, in) - pipe_time(t, next) : 0;
    }
  BUG_IF(p->busy != busy);
  BUG_IF(p->makespan < p->ideal || p->busy > p->nrank * p->ideal);
}

/* Is `in` the transfer of the list at or below *at, in its group? Moves *at past it. */
static bool is_next_move(const List *l, uint32_t *at, const PipeInstr *in) {
  while (*at < l->n && (!pipe_op_info[l->instr[*at].op].comm || l->instr[*at].wait == WAIT_SEND))
    ++*at;
  const PipeInstr *of = &l->instr[*at];
  return (*at)++ < l->n && of->op == in->op && of->stage == in->stage && of->mb == in->mb &&
         of->group == in->group;
}

/* The ops of each rank are those of the text, in its order and in its actions. Transfers stand in
 * groups only in the lists of a file; then they are those of the file, in its order. */
static void verify_text(const Sched *s) {
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    const PipeRank *k = &s->prog->rank[r];
    uint32_t next = s->orders->rank_op0[r], move = 0;
    for (uint32_t i = 0; i < k->ninstr; i++) {
      const PipeInstr *in = &k->instr[i];
      if (pipe_op_info[in->op].comm && !s->orders->lists)
        BUG_IF(in->group != 0);
      else if (pipe_op_info[in->op].comm)
        BUG_IF(!is_next_move(&s->orders->lists[r], &move, in));
      if (pipe_op_info[in->op].stream != PIPE_COMPUTE)
        continue;
      const Op *o = &s->orders->op[next++];
      BUG_IF(next > s->orders->rank_op0[r + 1]);
      BUG_IF(in->op != o->kind || in->stage != o->stage || in->mb != o->mb);
      BUG_IF(in->group != o->group || in->phase != o->phase || in->site != o->site);
    }
    BUG_IF(next != s->orders->rank_op0[r + 1]);
  }
}

/* Unless sends are eager, other streams wait only for the last op of an action. */
static void verify_send(const Sched *s) {
  const PipeProgram *p = s->prog;
  for (uint32_t r = 0; r < p->nrank && s->orders->send != SEND_EAGER && !s->orders->lists; r++) {
    const PipeRank *k = &p->rank[r];
    uint32_t *row = NEW_ARRAY(s->arena, uint32_t, k->ninstr), ncompute = 0;
    for (uint32_t i = 0; i < k->ninstr; i++) {
      const PipeInstr *in = &k->instr[i];
      if (pipe_op_info[in->op].stream == PIPE_COMPUTE)
        row[ncompute++] = i;
      else
        BUG_IF(in->wait > 0 && k->instr[row[in->wait - 1]].group != 0);
    }
  }
}

static void verify_tables(const PipeProgram *p) {
  char why[512];
  PrStatus st = pipe_validate(p, why, sizeof why);
  if (st == PR_E_MEMORY)
    guard_no_memory(0);
  if (st)
    guard_fail(GUARD_BUG, "the emitted tables: %s", why);
}

void verify_program(const Sched *s) {
  verify_head(s);
  verify_side_table(s);
  verify_tables(s->prog);
  verify_times(s->prog);
  verify_text(s);
  verify_sides(s);
  verify_stashes(s);
  verify_send(s);
  verify_completes(s->prog);
}

bool check_tables(Sched *s) {
  if (s->opt->verify) {
    verify_program(s);
    return true;
  }
  /* Without channels, check_streams has proved the events, and the slots do not depend on them. */
  PipeProgram p = *s->prog;
  PipeRank *rank = arena_alloc(s->arena, p.nrank * sizeof *rank);
  memcpy(rank, p.rank, p.nrank * sizeof *rank);
  for (uint32_t r = 0; r < p.nrank && p.nchannel == 0; r++)
    rank[r].nsync = rank[r].nevent = 0;
  p.rank = rank;
  verify_tables(&p);
  return true;
}
