/* SPDX-License-Identifier: MIT
 * Formulas of the weights on the device. A use is one formula at one instruction. Once, in pr_open,
 * each formula is compiled: a part that is made of numbers only becomes one number, which the host
 * computes for every use before each step, since it may depend on the learning rate and on the
 * updates so far; the rest are terms on the device. The numbers of all uses go there with the
 * number of the step, so that a graph replays with those of its step.
 *
 * Rates go to the callback as they are: a graph would keep those of the step that it was captured
 * in, so with a graph a rate that changes is refused. */
#include <stdlib.h>
#include <string.h>

#include "cuda_engine.h"
#include "evaluate.h"
#include "cuda_formula.h"

/* A formula of the program, compiled. */
typedef struct Code {
  uint32_t term0, nterm;     /* rows of CudaFormulas.term */
  uint32_t number0, nnumber; /* rows of CudaFormulas.part */
} Code;

/* A part that is made of numbers only. */
typedef struct NumberPart {
  PipeFormula formula;
  bool condition; /* 1 if it is not 0, else 0 */
} NumberPart;

typedef struct Use {
  uint32_t formula, stage, first; /* of its numbers in the table of a step */
  uint32_t updates;               /* of its stage above it in a step */
} Use;

struct CudaFormulas {
  Code *code; /* [nformula] */
  NumberPart *part;
  CudaTerm *term;   /* host; */
  CudaTerm *device; /* and device */
  Use *use;
  uint32_t **use_of;      /* [nhere][ninstr] first row of use, of an instruction that has some */
  uint32_t nuse, nnumber; /* of a step */
  float *number,
      *number_from; /* device [nnumber]; host memory that it reads, [2][nnumber] by step & 1 */
};

/* ---- compiling ---- */

/* A value while a formula is walked: where its terms begin in the text, in what is made of them,
 * and its numbers. */
typedef struct Value {
  uint32_t from, term, part;
  bool array;
} Value;

typedef struct Walk {
  CudaTerm term[PIPE_FORMULA_TERMS];
  NumberPart part[PIPE_FORMULA_TERMS];
  uint32_t nterm, npart;
} Walk;

static void compile(const PipeFormula *f, Walk *k) {
  Value value[PIPE_FORMULA_DEPTH];
  uint32_t depth = 0;
  k->nterm = k->npart = 0;
  for (uint32_t i = 0; i < f->n; i++) {
    const PipeTerm *t = &f->term[i];
    uint32_t n = pr_term_operands[t->op];
    Value v = {i, k->nterm, k->npart, t->op == PIPE_TERM_ELEM};
    bool known = n > 0 && !value[depth - n].array; /* its first operand is a number */
    if (n > 0)
      v = value[depth - n];
    for (uint32_t x = 1; x < n; x++)
      v.array |= value[depth - n + x].array;
    if (!v.array) {
      k->nterm = v.term, k->npart = v.part;
      k->part[k->npart] = (NumberPart){{&f->term[v.from], i + 1 - v.from, f->depth, 1, 0}, false};
      k->term[k->nterm++] = (CudaTerm){PIPE_TERM_CONST, k->npart++};
    } else {
      if (t->op == PIPE_TERM_COND && known)
        k->part[k->term[v.term].arg].condition = true;
      k->term[k->nterm++] = (CudaTerm){t->op, t->op == PIPE_TERM_ELEM ? t->arg : 0};
    }
    depth -= n;
    value[depth++] = v;
  }
}

static PrStatus no_memory(PrRun *run) {
  return pr_fail(run, PR_E_MEMORY, "no memory for %u formulas", run->p->nformula);
}

static PrStatus compile_all(PrRun *run, CudaFormulas *c) {
  const PipeProgram *p = run->p;
  Walk *k = malloc(sizeof *k);
  uint32_t nterm = 0, npart = 0;
  size_t most = 0;
  for (uint32_t i = 0; i < p->nformula; i++)
    most += p->formula[i].n;
  c->code = calloc(p->nformula, sizeof *c->code);
  c->part = calloc(most, sizeof *c->part);
  c->term = calloc(most, sizeof *c->term);
  for (uint32_t i = 0; k && c->code && c->part && c->term && i < p->nformula; i++) {
    compile(&p->formula[i], k);
    c->code[i] = (Code){nterm, k->nterm, npart, k->npart};
    memcpy(&c->term[nterm], k->term, k->nterm * sizeof *k->term);
    memcpy(&c->part[npart], k->part, k->npart * sizeof *k->part);
    nterm += k->nterm, npart += k->npart;
  }
  bool ok = k && c->code && c->part && c->term;
  free(k);
  if (!ok || !(c->device = cuda_take(nterm * sizeof *c->device, false)))
    return no_memory(run);
  CUDA_TRY(run, cudaMemcpy(c->device, c->term, nterm * sizeof *c->device, cudaMemcpyHostToDevice));
  return PR_OK;
}

/* ---- uses ---- */

static const PipeWeights *weights_at(const RankRun *k, uint32_t row) {
  const PipeWeights *w = k->t->weights ? &k->t->weights[row] : NULL;
  return w && w->formula != PIPE_NONE ? w : NULL;
}

/* The formulas of an instruction, in the order in which they are used. */
static uint32_t formulas_at(const PipeProgram *p, const PipeInstr *in, const PipeWeights *w,
                            uint32_t *list) {
  if (in->op != PIPE_U) {
    list[0] = w->formula;
    return 1;
  }
  const PipeRule *r = &p->rule[w->formula];
  uint32_t n = 0;
  if (r->applies != PIPE_NONE)
    list[n++] = r->applies;
  for (uint32_t i = 0; i < r->nthen; i++)
    list[n++] = p->then[r->then0 + i].formula;
  return n;
}

static PrStatus find_uses(PrRun *run, CudaFormulas *c) {
  PrCuda *cuda = cuda_of(run);
  uint32_t list[1 + 32], cap = 0;
  c->use_of = calloc(cuda->nhere, sizeof *c->use_of);
  if (!c->use_of)
    return no_memory(run);
  for (uint32_t r = 0; r < cuda->nhere; r++) {
    const RankRun *k = cuda->rank[r].k;
    if (!(c->use_of[r] = calloc((size_t)k->t->ninstr + 1, sizeof **c->use_of)))
      return no_memory(run);
    for (uint32_t i = 0; i < k->ncompute; i++) {
      const ComputeAt *at = &k->compute[i];
      const PipeInstr *in = &k->t->instr[at->index];
      const PipeWeights *w = weights_at(k, at->index);
      uint32_t n = w ? formulas_at(run->p, in, w, list) : 0;
      c->use_of[r][at->index] = c->nuse;
      if (c->nuse + n > cap) {
        Use *more = realloc(c->use, (cap = 2 * cap + 64) * sizeof *c->use);
        if (!more)
          return no_memory(run);
        c->use = more;
      }
      for (uint32_t j = 0; j < n; j++) {
        c->use[c->nuse++] = (Use){list[j], in->stage, c->nnumber, at->updates};
        c->nnumber += c->code[list[j]].nnumber;
      }
    }
  }
  c->number = cuda_take((c->nnumber + 1) * sizeof *c->number, false);
  c->number_from = cuda_take(sizeof *c->number * 2 * (c->nnumber + 1), true);
  return c->number && c->number_from ? PR_OK : no_memory(run);
}

/* A number that may change from step to step? */
static bool changes(const PipeFormula *f) {
  for (uint32_t i = 0; i < f->n; i++)
    if (f->term[i].op == PIPE_TERM_REAL)
      return true;
  return false;
}

PrStatus cuda_formulas_open(PrRun *run) {
  const PipeProgram *p = run->p;
  if (p->nformula == 0)
    return PR_OK;
#ifdef PIPE_NO_NVCC
  return pr_fail(
      run, PR_E_ARG,
      "program: the schedule has formulas of weights, and this engine was built without nvcc, which "
      "their kernel takes");
#else
  CUDA_TRY(run, cuda_formula_load());
#endif
  for (uint32_t i = 0; i < p->nrule && cuda_of(run)->o.graph; i++)
    if (p->rule[i].rate != PIPE_NONE && changes(&p->formula[p->rule[i].rate]))
      return pr_fail(
          run, PR_E_ARG,
          "program: the schedule has a rate that changes from step to step (U rate), which a "
          "graph cannot replay: PrCudaOptions.graph has to be 0");
  CudaFormulas *c = cuda_of(run)->formulas = calloc(1, sizeof *c);
  if (!c)
    return no_memory(run);
  PrStatus st = compile_all(run, c);
  return st ? st : find_uses(run, c);
}

void cuda_formulas_close(PrRun *run) {
  CudaFormulas *c = cuda_of(run)->formulas;
  if (!c)
    return;
  if (c->device)
    cuda_give(run, c->device, false);
  if (c->number)
    cuda_give(run, c->number, false);
  if (c->number_from)
    cuda_give(run, c->number_from, true);
  for (uint32_t r = 0; c->use_of && r < cuda_of(run)->nhere; r++)
    free(c->use_of[r]);
  free(c->use_of), free(c->use), free(c->code), free(c->part), free(c->term);
  free(c);
  cuda_of(run)->formulas = NULL;
}

/* ---- steps ---- */

static double rate_of(const PrRun *run, uint32_t stage, uint64_t updates) {
  return run->m.lr ? run->m.lr(run->m.self, run->p->stage[stage].model, updates) : 0;
}

void cuda_formulas_step(PrRun *run, uint64_t step) {
  CudaFormulas *c = cuda_of(run)->formulas;
  if (!c)
    return;
  float *to = c->number_from + (step & 1) * c->nnumber;
  for (uint32_t i = 0; i < c->nuse; i++) {
    const Use *u = &c->use[i];
    const Code *code = &c->code[u->formula];
    uint64_t updates = pr_updates_before(run, u->stage, step) + u->updates;
    PrFormulaIn in = {.real = {[PIPE_REAL_K] = (double)updates}};
    if (code->nnumber > 0)
      in.real[PIPE_REAL_LR] = rate_of(run, u->stage, updates);
    for (uint32_t k = 0; k < code->nnumber; k++) {
      const NumberPart *part = &c->part[code->number0 + k];
      double value = pr_formula_number(&part->formula, &in);
      to[u->first + k] = part->condition ? (float)(value != 0) : (float)value;
    }
  }
}

PrStatus cuda_formulas_begin(PrRun *run, uint64_t step, cudaStream_t s) {
  CudaFormulas *c = cuda_of(run)->formulas;
  if (c && c->nnumber > 0)
    CUDA_TRY(run, cudaMemcpyAsync(c->number, c->number_from + (step & 1) * c->nnumber,
                                  c->nnumber * sizeof *c->number, cudaMemcpyHostToDevice, s));
  return PR_OK;
}

/* Use number `nth` of an instruction: out = formula. */
static PrStatus put(PrRun *run, CudaRank *d, uint32_t row, uint32_t nth, const float *const *elem,
                    void *out) {
#ifdef PIPE_NO_NVCC
  (void)run, (void)d, (void)row, (void)nth, (void)elem, (void)out;
#else
  CudaFormulas *c = cuda_of(run)->formulas;
  const Use *u = &c->use[c->use_of[d - cuda_of(run)->rank][row] + nth];
  const Code *code = &c->code[u->formula];
  CudaFormula f = {.term = c->device + code->term0,
                   .number = c->number + u->first,
                   .out = out,
                   .len = run->stage[u->stage].size.weight / sizeof(float),
                   .n = code->nterm};
  for (uint32_t i = 0; i < code->nterm; i++) {
    const CudaTerm *t = &c->term[code->term0 + i];
    if (t->op == PIPE_TERM_ELEM)
      f.elem[t->arg] = elem[t->arg];
  }
  CUDA_TRY(run, cuda_formula_launch(&f, d->stream[PIPE_COMPUTE]));
#endif
  return PR_OK;
}

PrStatus cuda_estimate(PrRun *run, CudaRank *d, uint32_t row, PrCall *a) {
  const PipeWeights *w = weights_at(d->k, row);
  const float *elem[PR_ARRAYS] = {NULL};
  if (!w || a->op == PIPE_U)
    return PR_OK;
  pr_find_arrays(run, d->k->t->instr[row].stage, elem);
  elem[PIPE_ELEM_W] = a->weight;
  a->weight = d->k->slot[w->guess];
  return put(run, d, row, 0, elem, a->weight);
}

PrStatus cuda_before_update(PrRun *run, CudaRank *d, uint32_t row, PrCall *a) {
  const PipeWeights *w = weights_at(d->k, row);
  const float *elem[PR_ARRAYS] = {NULL};
  uint32_t stage = d->k->t->instr[row].stage;
  if (!w || a->op != PIPE_U)
    return PR_OK;
  const PipeRule *rule = &run->p->rule[w->formula];
  if (w->guess != PIPE_NONE)
    CUDA_TRY(run, cudaMemcpyAsync(d->k->slot[w->guess], a->newest, run->stage[stage].size.weight,
                                  cudaMemcpyDeviceToDevice, d->stream[PIPE_COMPUTE]));
  if (rule->rate != PIPE_NONE) {
    PrFormulaIn in = {
        .real = {
            [PIPE_REAL_K] = (double)a->updates, [PIPE_REAL_LR] = rate_of(run, stage, a->updates)}};
    a->rate = pr_formula_number(&run->p->formula[rule->rate], &in);
  }
  if (rule->applies == PIPE_NONE)
    return PR_OK;
  pr_find_arrays(run, stage, elem);
  elem[PIPE_ELEM_W] = a->newest;
  elem[PIPE_ELEM_G] = a->grad;
  return put(run, d, row, 0, elem, a->grad);
}

PrStatus cuda_after_update(PrRun *run, CudaRank *d, uint32_t row, const PrCall *a) {
  const PipeWeights *w = weights_at(d->k, row);
  const float *elem[PR_ARRAYS] = {NULL};
  uint32_t stage = d->k->t->instr[row].stage;
  PrStatus st = PR_OK;
  if (!w || a->op != PIPE_U)
    return PR_OK;
  const PipeRule *rule = &run->p->rule[w->formula];
  pr_find_arrays(run, stage, elem);
  elem[PIPE_ELEM_W] = a->weight;
  elem[PIPE_ELEM_OLD] = w->guess != PIPE_NONE ? d->k->slot[w->guess] : a->newest;
  for (uint32_t i = 0; i < rule->nthen && !st; i++)
    st = put(run, d, row, i + (rule->applies != PIPE_NONE), elem,
             pr_state(run, stage, run->p->then[rule->then0 + i].state));
  return st;
}
