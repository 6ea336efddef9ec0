/* SPDX-License-Identifier: MIT
 * pipe_validate: checks the head of a program, then its ranks, one list after the other
 * (validate.h). */
#include "validate_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

PrStatus pr_refuse(char *text, size_t room, PrStatus st, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, room, fmt, ap);
  va_end(ap);
  return st;
}

PrStatus pr_refuse_at(Place at, const PipeInstr *c, const char *fmt, ...) {
  char op[PIPE_OP_TEXT], why[256];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  pipe_unit_text(op, (PipeOp)c->op, c->stage, c->mb, at.p->slices);
  return pr_refuse(at.text, at.room, PR_E_ARG, "program: rank %u instruction %u (%s): %s", at.rank,
                   at.index, op, why);
}

static PrStatus check_head(Check *k) {
  const PipeProgram *p = k->p;
  if (!p)
    FAIL(k, "no program");
  if (p->magic != PIPE_MAGIC)
    FAIL(k, "program: magic is 0x%08x, not 0x%08x", p->magic, PIPE_MAGIC);
  if (p->abi != PIPE_ABI)
    FAIL(k, "program: made for ABI %u, this runtime has %u: recompile the .pipe file", p->abi,
         PIPE_ABI);
  if (!p->name || !p->params || !p->rank || !p->stage || (p->nsite && !p->site) ||
      (p->nfile && !p->file) || (p->nside && !p->side) || !p->edge != !p->row ||
      (p->nedge && !p->edge) || !p->share != !p->nshare || !p->channel != !p->nchannel)
    FAIL(k, "program: a table is missing");
  if (p->nrank == 0 || p->nstage == 0 || p->nmb == 0)
    FAIL(k, "program: %u ranks, %u stages, %u microbatches: none may be 0", p->nrank, p->nstage,
         p->nmb);
  if (p->nmodel == 0 || p->nmodel > p->nstage)
    FAIL(k, "program: %u stages of the model, %u in all", p->nmodel, p->nstage);
  if (p->nrank > p->nstage)
    FAIL(k, "program: %u ranks but only %u stages", p->nrank, p->nstage);
  if (p->lowering >= PIPE_NLOWERINGS)
    FAIL(k, "program: lowering %u of %u", p->lowering, (uint32_t)PIPE_NLOWERINGS);
  if (p->nchannel && p->lowering != PIPE_CHANNELS)
    FAIL(k, "program: %u channels, but lowering %u has no channels", p->nchannel, p->lowering);
  for (uint32_t i = 0; i < p->nchannel; i++) {
    const PipeChannel *c = &p->channel[i];
    bool moves = pipe_is_send(c->op);
    if ((!moves && c->op != PIPE_REDUCE && c->op != PIPE_SIDE_COMM) || c->from >= p->nrank ||
        (moves ? c->to >= p->nrank || c->to == c->from
               : c->to != PIPE_NONE || c->pipe != PIPE_NONE))
      FAIL(k, "program: channel %u: op %u from rank %u to rank %u", i, c->op, c->from, c->to);
  }
  if (p->sized > 1 || p->timed > 1 || p->forward > 1)
    FAIL(k, "program: sized is %u, timed is %u, forward is %u: each is 0 or 1", p->sized, p->timed,
         p->forward);
  if (p->nmb % pipe_slices(p))
    FAIL(k, "program: %u units are not microbatches of %u slices", p->nmb, p->slices);
  for (uint32_t i = 0; i < p->nfile; i++)
    if (!p->file[i])
      FAIL(k, "program: file %u has no name", i);
  for (uint32_t i = 0; i < p->nside; i++)
    if (!p->side[i].name || !pipe_is_side(p->side[i].op) || p->side[i].stage >= p->nstage ||
        p->side[i].bytes > SIZE_LIMIT)
      FAIL(k, "program: side %u is of op %u and stage %u, and takes %llu bytes", i, p->side[i].op,
           p->side[i].stage, (unsigned long long)p->side[i].bytes);
  for (uint32_t i = 0; i < p->nsite; i++)
    if (p->site[i].file >= p->nfile || p->site[i].line == 0 || p->site[i].col == 0)
      FAIL(k, "program: site %u is line %u, column %u of file %u of %u", i, p->site[i].line,
           p->site[i].col, p->site[i].file, p->nfile);
  return PR_OK;
}

static PrStatus check_instr(Check *k, const PipeInstr *c) {
  const PipeProgram *p = k->p;
  if (c->op >= PIPE_NOPS || c->phase >= PIPE_NPHASES)
    FAIL(k, "program: rank %u instruction %u: op %u, phase %u: out of range", k->rank, k->index,
         c->op, c->phase);
  if (c->stage >= p->nstage || p->stage[c->stage].rank != k->rank)
    FAIL_AT(k, c, "stage %u is not on rank %u", c->stage, k->rank);
  const PipeStage *g = &p->stage[c->stage];
  bool none = pipe_is_sum(c->op) ||
              ((c->op == PIPE_U || pipe_is_side(c->op)) && c->mb == PIPE_NONE);
  if (none ? c->mb != PIPE_NONE : !runs(p, c->stage, c->mb))
    FAIL_AT(k, c, "microbatch %u; the stage has %u from %u on", c->mb, g->nmb, g->mb0);
  if (c->site >= p->nsite)
    FAIL_AT(k, c, "site %u of %u", c->site, p->nsite);
  PrStatus st;
  if ((st = pr_check_action(k, c)) || (st = pr_check_peer(k, c)))
    return st;
  bool comm = pipe_op_info[c->op].comm;
  if ((!pipe_is_side(c->op) && (st = pr_check_order(k, c))) ||
      (comm && (st = pr_check_channel(k, c))))
    return st;
  return pr_check_slots(k, c);
}

static PrStatus check_rank(Check *k, uint32_t r) {
  const PipeProgram *p = k->p;
  const PipeRank *t = &p->rank[r];
  PrStatus st;
  k->rank = r, k->t = t;
  if ((t->ninstr && !t->instr) || (t->npool && !t->pool) || (t->nlist && !t->list))
    FAIL(k, "program: rank %u: a table is missing", r);
  k->slot = calloc((size_t)t->nslot + 1, sizeof *k->slot);
  k->pool = calloc((size_t)t->npool + 1, sizeof *k->pool);
  st = k->slot && k->pool ? pr_check_pools(k) : NO_MEMORY(k);
  k->nlist = 0;
  if (!st)
    st = pr_clocks_begin(p, r, k->text, k->room, &k->clocks);
  for (uint32_t i = 0; !st && i < t->ninstr; i++) {
    k->index = i;
    if ((st = pr_clocks_row(k->clocks, i)) || (st = check_instr(k, &t->instr[i])))
      break;
    st = pr_clocks_done(k->clocks, i);
  }
  pr_clocks_end(k->clocks);
  k->clocks = NULL;
  if (!st && k->nlist != t->nlist)
    st = pr_refuse(k->text, k->room, PR_E_ARG,
                   "program: rank %u has a list of %u slots, its ops use %u", r, t->nlist,
                   k->nlist);
  if (!st && !(st = pr_check_left(k)))
    st = pr_check_weights(k);
  free(k->slot);
  free(k->pool);
  return st;
}

/* Allocates the arrays of the check. Each pair of stage of the model and microbatch needs at least
 * two instructions, and each stage three (forward-only: one), which bounds the allocation. */
static PrStatus take_room(Check *k, uint64_t ninstr) {
  const PipeProgram *p = k->p;
  const uint64_t ops = (uint64_t)p->nmodel * p->nmb;
  if (ops > ninstr / (p->forward ? 1 : 2) || p->nstage > ninstr / (p->forward ? 1 : 3))
    FAIL(k, "program: %llu instructions are too few for %u stages and %u microbatches",
         (unsigned long long)ninstr, p->nstage, p->nmb);
  const size_t n = p->nstage;
  k->seen = calloc(ops, sizeof *k->seen);
  k->in0 = calloc(2 * ((size_t)p->nmodel + 1) + p->nedge, sizeof *k->in0);
  k->mark = calloc(13 * n, sizeof *k->mark);
  k->fixed = calloc(2 * (size_t)p->nrank, sizeof *k->fixed);
  k->channel = calloc(p->nchannel + (size_t)1, 1);
  if (!k->seen || !k->in0 || !k->mark || !k->fixed || !k->channel)
    return NO_MEMORY(k);
  k->out0 = k->in0 + p->nmodel + 1;
  k->in_edge = k->out0 + p->nmodel + 1;
  k->left = k->mark + 2 * n;
  k->graded = k->left + n;
  k->reduced = k->graded + n;
  k->tied = k->reduced + n;
  k->updates = k->tied + n;
  k->acted = k->updates + n;
  k->newest = k->acted + n;
  k->late = k->newest + n;
  k->named = k->late + n;
  k->sum_channel = k->named + n;
  k->work = k->fixed + p->nrank;
  memset(k->newest, 0xff, n * sizeof *k->newest);
  return PR_OK;
}

static PrStatus check_program(Check *k) {
  const PipeProgram *p = k->p;
  uint64_t ninstr = 0;
  PrStatus st = check_head(k);
  for (uint32_t r = 0; !st && r < p->nrank; r++)
    ninstr += p->rank[r].ninstr;
  if (st || (st = take_room(k, ninstr)) || (st = pr_check_stages(k)) || (st = pr_check_states(k)) ||
      (st = pr_check_tables(k)) || (st = pr_find_guests(k, ninstr)) || (st = pr_find_pipes(k)))
    return st;
  for (uint32_t s = 0; !p->edge && s < p->nstage; s++)
    k->left[s] = p->stage[s].nmb;
  for (uint32_t r = 0; r < p->nrank; r++)
    if ((st = check_rank(k, r)))
      return st;
  if ((st = pr_check_complete(k)) || (st = pr_check_guests_left(k)))
    return st;
  return pr_check_channels_used(k);
}

PrStatus pipe_validate(const PipeProgram *p, char *text, size_t room) {
  Check k = {.p = p, .text = text, .room = room};
  PrStatus st = check_program(&k);
  for (uint32_t r = 0; k.guest && r < p->nrank; r++)
    free(k.guest[r]);
  free(k.guest);
  free(k.pipe);
  free(k.channel);
  free(k.seen);
  free(k.in0);
  free(k.mark);
  free(k.fixed);
  return st;
}
