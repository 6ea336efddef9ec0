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
#include "queues.h"
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
      if (pipe_stream_of(in->op) != PIPE_COMPUTE)
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

/* The finished lists, played, start each instruction when settle has said. */
static void verify_starts(const Sched *s) {
  const Times *times = s->times;
  Arena own = {0};
  uint64_t **end, **start = program_times(&own, s->prog, &end);
  for (uint32_t r = 0; r < s->prog->nrank; r++) {
    const PipeRank *k = &s->prog->rank[r];
    const uint64_t *next[] = {times->compute_start[r], times->comm_start[r],
                              times->copy_start ? times->copy_start[r] : NULL};
    for (uint32_t i = 0; i < k->ninstr; i++)
      BUG_IF(start[r][i] != *next[pipe_stream_of(k->instr[i].op)]++);
  }
  arena_free(&own);
}

/* Is `in` the transfer of the list at or below *at, in its group? Moves *at past it. */
static bool is_next_move(const List *l, uint32_t *at, const PipeInstr *in) {
  while (*at < l->n && (!pipe_op_info[l->instr[*at].op].comm || l->instr[*at].waits == WAIT_SEND))
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
      if (pipe_stream_of(in->op) != PIPE_COMPUTE)
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
    const PipeQueues queues = queues_of(p, k);
    for (uint32_t i = 0; i < k->nwait; i++) {
      const uint32_t after = pipe_after(&queues, k->wait[i]);
      BUG_IF(after > 0 && k->instr[after - 1].group != 0);
    }
    end_queues(queues);
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
  verify_starts(s);
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
  verify_tables(s->prog);
  return true;
}
