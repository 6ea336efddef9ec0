/* SPDX-License-Identifier: MIT
 * Checks that the model fits the program: its callbacks, its sizes, and what the formulas of the
 * ranks of this process need. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

#define SIZE_LIMIT     (UINT64_C(1) << 56) /* sums of 2^6 such sizes cannot wrap */
#define FAIL(run, ...) return pr_fail(run, PR_E_ARG, __VA_ARGS__)

static PrStatus check_callbacks(PrRun *run) {
  const PipeProgram *p = run->p;
  const PrModel *m = &run->m;
  if (!m->sizes || !m->init || !m->forward || (!m->update && !p->forward))
    FAIL(run, "model: sizes, init, forward and update may not be NULL");
  if (m->identity && strchr(m->identity, '\n'))
    FAIL(run, "model: the identity of the model has more than one line");
  uint32_t nslice = m->nslice > 1 ? m->nslice : 1;
  if (nslice != pipe_slices(p))
    FAIL(run, "model is written for %u slices, the program has %u", nslice, pipe_slices(p));
  if (m->nstage != p->nmodel)
    FAIL(run, "model has %u stages, the program %u", m->nstage, p->nmodel);
  if (p->nmodel < p->nstage && !p->forward && !m->reduce)
    FAIL(run, "model: the program has replicas, so reduce may not be NULL");
  if (p->nside > 0 && !m->side)
    FAIL(run, "model: the program has side ops (%s), so side may not be NULL", p->side[0].name);
  for (uint32_t s = 0; s < p->nstage && !m->tie; s++)
    if (p->stage[s].tied != PIPE_NONE)
      FAIL(run, "model: the program ties stages, so tie may not be NULL");
  if (m->holds_stash && pipe_slices(p) > 1)
    FAIL(
        run,
        "model: the model holds its own stashes, but the ops of a program with slices share a stash");
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; pr_is_here(run, r) && i < p->rank[r].ninstr; i++) {
      const PipeInstr *c = &run->rank[r].t->instr[i];
      char op[PIPE_OP_TEXT];
      if (m->holds_stash && (c->op == PIPE_OFF || c->op == PIPE_LOAD))
        FAIL(run, "model: the model holds its own stashes, but the program moves stashes");
      if ((c->op != PIPE_B || m->backward) && (c->op != PIPE_I || m->backward_input) &&
          (c->op != PIPE_W || m->backward_weight))
        continue;
      pipe_unit_text(op, (PipeOp)c->op, c->stage, c->mb, p->slices);
      FAIL(run, "program: rank %u instruction %u (%s): the model has no callback for %s", r, i, op,
           pipe_op_info[c->op].text);
    }
  return PR_OK;
}

/* Ensures run->stage[].size. */
static PrStatus check_sizes(PrRun *run) {
  static const char *const what[] = {"act", "gout", "boundary", "weight", "grad",
                                     "opt", "work", "edge",     "tied"};
  const PipeProgram *p = run->p;
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    PrSizes z = {0};
    int code = run->m.sizes(run->m.self, g->model, &z);
    if (code)
      return pr_fail(run, PR_E_MODEL, "model: sizes of stage %u returned %d", s, code);
    if (p->forward)
      z.gout = z.grad = z.opt = z.tied = 0;
    run->stage[s].size = z;
    const uint64_t have[] = {z.act, z.gout, z.boundary, z.weight, z.grad,
                             z.opt, z.work, z.edge,     z.tied};
    const uint64_t want[] = {g->act_bytes,    g->gout_bytes, g->boundary_bytes,
                             g->weight_bytes, g->grad_bytes, g->opt_bytes,
                             g->work_bytes,   g->edge_bytes, g->tied_bytes};
    for (size_t i = 0; i < sizeof have / sizeof *have; i++) {
      if (have[i] > SIZE_LIMIT)
        FAIL(run, "model: stage %u asks for %llu bytes of %s", s, (unsigned long long)have[i],
             what[i]);
      if (p->sized && have[i] != want[i])
        return pr_fail(run, PR_E_SIZE,
                       "stage %u: the model has %llu bytes of %s, the program was proved with %llu",
                       s, (unsigned long long)have[i], what[i], (unsigned long long)want[i]);
    }
    if (g->tied != PIPE_NONE && z.tied > z.grad)
      FAIL(run, "model: stage %u shares %llu bytes of %llu of gradients", s,
           (unsigned long long)z.tied, (unsigned long long)z.grad);
  }
  for (uint32_t s = 0; s < p->nstage; s++) { /* stages of a tie share equally many bytes */
    const PipeStage *g = &p->stage[s];
    uint32_t q = g->tied == PIPE_NONE ? s : p->stage[g->tied].tie;
    if (run->stage[s].size.tied != run->stage[q].size.tied && g->tied != PIPE_NONE)
      FAIL(run, "model: stages %u and %u are tied, but share %llu and %llu bytes", s, q,
           (unsigned long long)run->stage[s].size.tied,
           (unsigned long long)run->stage[q].size.tied);
  }
  return PR_OK;
}

/* Checks that no output has 0 bytes. Requires sizes. */
static PrStatus check_outputs(PrRun *run) {
  const PipeProgram *p = run->p;
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    bool next = g->nout > 0 && !p->edge;
    for (uint32_t e = 0; e < p->nedge; e++) {
      bool here = p->edge[e].from == g->model;
      next = next || (here && !p->edge[e].skip);
      if (here && p->edge[e].skip && run->stage[s].size.edge == 0)
        FAIL(run, "model: stage %u has an output for stage %u, of 0 bytes: PrSizes.edge", s,
             p->edge[e].to);
    }
    if (next && run->stage[s].size.boundary == 0)
      FAIL(run, "model: stage %u has an output for stage %u, of 0 bytes: PrSizes.boundary", s,
           g->model + 1);
  }
  return PR_OK;
}

/* Checks what a formula needs of the model: moments, a learning rate, and for arrays that they are
 * float. */
static PrStatus check_formula(PrRun *run, const PipeInstr *c, uint32_t row, bool arrays) {
  const PipeFormula *f = &run->p->formula[row];
  const PrModel *m = &run->m;
  const PipeStage *g = &run->p->stage[c->stage];
  if (arrays && (run->stage[c->stage].size.weight % sizeof(float) || m->elem != sizeof(float)))
    FAIL(
        run,
        "model: the schedule has formulas, so weights and gradients must be arrays of float (PrModel.elem = 4)");
  for (uint32_t i = 0; i < f->n; i++) {
    const PipeTerm *t = &f->term[i];
    if (t->op == PIPE_TERM_REAL && t->arg == PIPE_REAL_LR && !m->lr)
      FAIL(run, "model: lr may not be NULL: the schedule has formulas with the learning rate");
  }
  for (uint32_t i = 0; i < f->n; i++) {
    const PipeTerm *t = &f->term[i];
    bool moment = t->op == PIPE_TERM_ELEM && (t->arg == PIPE_ELEM_V || t->arg == PIPE_ELEM_V2);
    if (moment && (!m->moment || m->moment(m->self, g->model, (int)(t->arg - PIPE_ELEM_V)) < 0))
      FAIL(
          run,
          "model: formulas of the schedule read the %s moment of the optimizer, which this optimizer does not keep",
          t->arg == PIPE_ELEM_V ? "first" : "second");
  }
  return PR_OK;
}

static PrStatus check_formulas(PrRun *run, const PipeInstr *c, const PipeWeights *w) {
  const PipeProgram *p = run->p;
  PrStatus st = PR_OK;
  if (c->op != PIPE_U)
    return check_formula(run, c, w->formula, true);
  const PipeRule *r = &p->rule[w->formula];
  if (r->applies != PIPE_NONE)
    st = check_formula(run, c, r->applies, true);
  if (!st && r->rate != PIPE_NONE)
    st = check_formula(run, c, r->rate, false); /* a number, whatever the type of the weights */
  for (uint32_t i = 0; !st && i < r->nthen; i++)
    st = check_formula(run, c, p->then[r->then0 + i].formula, true);
  return st;
}

PrStatus pr_check_model(PrRun *run) {
  const PipeProgram *p = run->p;
  PrStatus st = check_callbacks(run);
  if (st)
    return st;
  run->stage = calloc(p->nstage, sizeof *run->stage);
  if (!run->stage)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u stages", p->nstage);
  if ((st = check_sizes(run)) || (st = check_outputs(run)) || (st = pr_size_keeps(run)))
    return st;
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeRank *t = run->rank[r].t; /* lists of other processes are rows: no weights */
    for (uint32_t i = 0; t->weights && i < t->ninstr; i++)
      if (t->weights[i].formula != PIPE_NONE &&
          (st = check_formulas(run, &t->instr[i], &t->weights[i])))
        return st;
  }
  return PR_OK;
}
