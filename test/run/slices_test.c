/* SPDX-License-Identifier: MIT
 * Training in slices of the sequence, with a real dependence between them: each slice adds up what
 * the slices before it have made, and backward gives each of them its share. For a grid of
 * schedules and sizes the losses of every step and the final weights of all engines are equal, bit
 * for bit, to those of a loop over steps, microbatches, slices and stages in one thread.
 *
 *   slices_test STDLIB_DIR SCRATCH [--break]   exit status 0 iff all agree
 *
 * SCRATCH and SCRATCH.pipe are written: a profile with the model's sizes, so that bytes are proved
 * and measured, and the schedules that are not in the library.
 * --break lets a slice forget the gradient of those behind it, and every run of more than one must
 * differ. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "list_waits.h"
#include "noise.h"
#include "orders.h"
#include "pipe_run.h"
#include "program.h"
#include "seeded.h"
#include "train.h"

/* ---- the model. Slice q: v = x A, z = v + c * (sum of v of the slices before), y = tanh(z + b)
 * ---- */

enum { D = 4, NW = D * D + D, STEPS = 3 };
#define RATE  0.05f
#define CARRY 0.5f

static bool forget; /* --break */

typedef struct Act {
  float x[D], y[D], v[D], dv[D],
      dy[D]; /* dv: of v, from slices behind; dy: of the loss, last stage */
} Act;

static void init_weight(uint32_t stage, float *w) {
  for (int i = 0; i < NW; i++)
    w[i] = 0.5f * noise(1, stage, (uint64_t)i);
}

static void input(uint64_t step, uint32_t mb, uint32_t slice, float *x) {
  for (int i = 0; i < D; i++)
    x[i] = noise(2, step * 1000003 + mb, (uint64_t)slice * D + (uint64_t)i);
}

/* past: the slices before this one. */
static void slice_forward(const float *w, Act *a, void *const *past, uint32_t npast) {
  for (int j = 0; j < D; j++) {
    a->v[j] = 0;
    for (int i = 0; i < D; i++)
      a->v[j] += a->x[i] * w[i * D + j];
    float sum = 0;
    for (uint32_t q = 0; q < npast; q++)
      sum += ((const Act *)past[q])->v[j];
    a->y[j] = tanhf(a->v[j] + CARRY * sum + w[D * D + j]);
    a->dv[j] = 0;
  }
}

/* gout: gradients of z and of v. dx may be NULL. */
static void slice_input(const float *w, const Act *a, void *const *past, uint32_t npast,
                        const float *dy, float *gout, float *dx) {
  float *dz = gout, *dv = gout + D;
  for (int j = 0; j < D; j++) {
    dz[j] = dy[j] * (1 - a->y[j] * a->y[j]);
    dv[j] = a->dv[j] + dz[j];
    for (uint32_t q = 0; q < npast; q++)
      ((Act *)past[q])->dv[j] += CARRY * dz[j];
  }
  for (int i = 0; dx && i < D; i++) {
    dx[i] = 0;
    for (int j = 0; j < D; j++)
      dx[i] += dv[j] * w[i * D + j];
  }
}

static void slice_weight(const Act *a, const float *gout, float *grad) {
  for (int i = 0; i < D; i++)
    for (int j = 0; j < D; j++)
      grad[i * D + j] += a->x[i] * gout[D + j];
  for (int j = 0; j < D; j++)
    grad[D * D + j] += gout[j];
}

static double loss_of(Act *a, uint32_t nmb) {
  double loss = 0;
  for (int i = 0; i < D; i++) {
    float e = a->y[i] - 0.25f * (float)(i % 3);
    loss += 0.5 * (double)e * (double)e;
    a->dy[i] = e / (float)nmb;
  }
  return loss;
}

static void update(float *w, float *grad) {
  for (int i = 0; i < NW; i++) {
    w[i] -= RATE * grad[i];
    grad[i] = 0;
  }
}

/* ---- the definition ---- */

typedef struct Result {
  double *loss;  /* [STEPS * nmb] */
  float *weight; /* [nstage * NW] */
} Result;

/* Which copy of a stage has a microbatch: their gradients are added up one by one, then to one
 * another. */
typedef enum Owner { ONE, FIRST_DEALT, ALL_DEALT, WHEEL, HALVES } Owner;
enum { COPIES = 5 };

static uint32_t owner_of(Owner how, uint32_t nstage, uint32_t nmb, uint32_t stage, uint32_t mb) {
  switch (how) {
  case FIRST_DEALT: return stage == 0 ? mb % 2 : 0;
  case ALL_DEALT: return mb % 3;
  case WHEEL: return mb % nstage;
  case HALVES: return mb >= (nmb + 1) / 2;
  default: return 0;
  }
}

static Result sequential(uint32_t nstage, uint32_t nmb, uint32_t nslice, bool descending,
                         bool trained, Owner how) {
  Result r = {need(calloc((size_t)STEPS * nmb, sizeof(double))),
              need(calloc((size_t)nstage * NW, sizeof(float)))};
  float *grad = need(calloc((size_t)COPIES * nstage * NW, sizeof(float)));
  Act *act = need(calloc((size_t)nstage * nslice, sizeof *act));
  void **past = need(calloc((size_t)nstage * nslice, sizeof *past));
  for (uint32_t i = 0; i < nstage * nslice; i++)
    past[i] = &act[i];
  for (uint32_t s = 0; s < nstage; s++)
    init_weight(s, &r.weight[s * NW]);
  for (uint64_t step = 0; step < STEPS; step++) {
    for (uint32_t k = 0; k < nmb; k++) {
      uint32_t mb = descending ? nmb - 1 - k : k;
      double *loss = &r.loss[step * nmb + mb];
      for (uint32_t q = 0; q < nslice; q++) {
        for (uint32_t s = 0; s < nstage; s++) {
          Act *a = &act[s * nslice + q];
          if (s == 0)
            input(step, mb, q, a->x);
          else
            memcpy(a->x, act[(s - 1) * nslice + q].y, sizeof a->x);
          slice_forward(&r.weight[s * NW], a, &past[s * nslice], q);
        }
        double part = loss_of(&act[(nstage - 1) * nslice + q], nmb);
        *loss = q == 0 ? part : *loss + part;
      }
      for (uint32_t q = nslice; q-- > 0 && trained;) {
        float dy[D], dx[D], gout[2 * D];
        memcpy(dy, act[(nstage - 1) * nslice + q].dy, sizeof dy);
        for (uint32_t s = nstage; s-- > 0;) {
          Act *a = &act[s * nslice + q];
          slice_input(&r.weight[s * NW], a, &past[s * nslice], q, dy, gout, dx);
          slice_weight(a, gout, &grad[(owner_of(how, nstage, nmb, s, mb) * nstage + s) * NW]);
          memcpy(dy, dx, sizeof dy);
        }
      }
    }
    for (uint32_t s = 0; s < nstage && trained; s++) {
      uint32_t most = 0;
      for (uint32_t m = 0; m < nmb; m++) {
        uint32_t k = owner_of(how, nstage, nmb, s, m);
        most = k > most ? k : most;
      }
      for (uint32_t k = 1; k <= most; k++)
        for (uint32_t i = 0; i < NW; i++) {
          grad[s * NW + i] += grad[(k * nstage + s) * NW + i];
          grad[(k * nstage + s) * NW + i] = 0;
        }
      update(&r.weight[s * NW], &grad[s * NW]);
    }
  }
  free(grad), free(act), free(past);
  return r;
}

/* ---- the same through the callbacks of an engine ---- */

static _Atomic int broken; /* rules of PrCall */

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  *out = (PrSizes){.act = sizeof(Act),
                   .gout = 2 * D * sizeof(float),
                   .boundary = stage + 1 < *(uint32_t *)self ? D * sizeof(float) : 0,
                   .weight = NW * sizeof(float),
                   .grad = NW * sizeof(float),
                   .work = 2 * D * sizeof(float)};
  return 0;
}

static int init(void *self, uint32_t stage, void *weight, void *opt) {
  (void)self, (void)opt;
  init_weight(stage, weight);
  return 0;
}

static int forward(void *self, const PrCall *c) {
  Act *a = c->act;
  broken += c->slice >= c->nslice || (c->past != NULL) != (c->slice > 0);
  if (c->stage == 0)
    input(c->step, c->mb, c->slice, a->x);
  else
    memcpy(a->x, c->x, sizeof a->x);
  slice_forward(c->weight, a, c->past, c->slice);
  if (c->stage + 1 == *(uint32_t *)self)
    *c->loss = loss_of(a, c->nmb);
  else
    memcpy(c->y, a->y, sizeof a->y);
  return 0;
}

static void input_gradient(void *self, const PrCall *c, float *gout) {
  bool last = c->stage + 1 == *(uint32_t *)self;
  slice_input(c->weight, c->act, c->past, forget ? 0 : c->slice, last ? ((Act *)c->act)->dy : c->dy,
              gout, c->dx);
}

static int backward(void *self, const PrCall *c) {
  input_gradient(self, c, c->work);
  slice_weight(c->act, c->work, c->grad);
  return 0;
}

static int backward_input(void *self, const PrCall *c) {
  input_gradient(self, c, c->gout);
  return 0;
}

static int backward_weight(void *self, const PrCall *c) {
  (void)self;
  broken += c->past != NULL;
  slice_weight(c->act, c->gout, c->grad);
  return 0;
}

static int apply(void *self, const PrCall *c) {
  (void)self;
  broken += c->past != NULL;
  update(c->weight, c->grad);
  return 0;
}

/* ---- the cases ---- */

static int cases, differ;

static PrModel model_of(uint32_t *nstage, uint32_t nslice) {
  return (PrModel){
      .self = nstage, .nstage = *nstage, .nslice = nslice, SPLIT_OPS(apply), .reduce = sum_floats};
}

static void run_one(const PipeProgram *p, const Result *result, PrOptions o, const char *engine) {
  uint32_t nstage = p->nmodel;
  PrModel model = model_of(&nstage, p->slices);
  if (p->forward)
    model.backward = model.backward_input = model.backward_weight = model.update = NULL;
  const Wanted want = {.steps = STEPS,
                       .nmb = p->nmb / p->slices,
                       .nweight = NW,
                       .loss = result->loss,
                       .weight = result->weight};
  char why[256];
  Trained trained = trains_as(p, &model, o, &want, why);
  if (trained == AS_WANTED && broken) {
    trained = OTHERWISE;
    snprintf(why, sizeof why, "a rule of PrCall is broken");
  }
  cases += trained != NOT_HERE;
  differ += trained == OTHERWISE;
  if (trained == OTHERWISE && !forget)
    printf("FAIL %s %s, %s: %s\n", p->name, p->params, engine, why);
}

/* Schedules that are not in the library: a split backward, two chunks a rank, priorities,
 * recomputation (all, some slices by hand beside the clause, by priority), stages that are dealt
 * out (the first one; all, round the ranks, in a loop and by priority), two pipes, inference. */
static const struct {
  const char *name, *text;
  Owner owner;
} texts[] = {
    {"split",
     "schedule split(P, M, Q) { ranks P\n"
     "  pipe net stages P mbs M slices Q place s -> s\n"
     "  order r {\n"
     "    op f(k) = F(k/Q, k%Q)  op i(k) = I(k/Q, Q-1 - k%Q)  op w(k) = W(k/Q, Q-1 - k%Q)\n"
     "    steady k in 0..M*Q { f(k) i(k - (P-1-r + Q-1)) w(k - (P + 2*Q)) } U } }\n",
     ONE},
    {"looped",
     "schedule looped(P, M, Q) { ranks P\n"
     "  pipe net stages 2*P mbs M slices Q place s -> s % P\n"
     "  order r { do M*Q { F[0] } do M*Q { F[1] } do M*Q { B[1] } do M*Q { B[0] } U } }\n",
     ONE},
    {"rules",
     "schedule rule(P, M, Q) { ranks P\n"
     "  pipe net stages P mbs M slices Q place s -> s\n"
     "  order r { rules m { do q in 0..Q {\n"
     "    I(m, q) @ 0  F(m, q) @ 1 + m when inflight(r) < P-r + Q-1  W(m, q) } } U } }\n",
     ONE},
    {"again",
     "schedule again(P, M, Q) { ranks P\n"
     "  pipe net stages P mbs M slices Q place s -> s\n"
     "  recompute\n"
     "  order r { op f(k) = F(k/Q, k%Q)  op b(k) = B(k/Q, Q-1 - k%Q)\n"
     "    steady k in 0..M*Q { f(k) b(k - (P-1-r + Q-1)) } U }\n"
     "  check inflight(r) <= 2*Q + P for r in 0..P }\n",
     ONE},
    {"some",
     "schedule some(P, M, Q) { ranks P\n"
     "  pipe net stages 2*P mbs M slices Q place s -> s < P ? s : 2*P-1-s\n"
     "  order r { do M*Q { F[0] } do M*Q { F[1] }\n"
     "    do m in 0..M { do c in 0..2 { let d = 1 - c\n"
     "      do q in 0..Q { if (q + m + r) % 2 == c { R[d](m, q) } } } \n"
     "      do Q { I[1] W } } do M*Q { B[0] } U }\n"
     "  recompute s, m when s < P && m > 0 }\n",
     ONE},
    {"ranked",
     "schedule ranked(P, M, Q) { ranks P\n"
     "  pipe net stages P mbs M slices Q place s -> s\n"
     "  order r { rules m { do q in 0..Q {\n"
     "    B(m, q) @ 0  if q != 1 || r == 0 { R(m, q) @ 1 }\n"
     "    F(m, q) @ 2 + m when inflight(r) < P-r + 2*Q } } U } }\n",
     ONE},
    {"away",
     "schedule away(P, M, Q) { ranks P\n"
     "  pipe net stages P mbs M slices Q place s -> s\n"
     "  time { F = 2 B = 4 OFF = 1 }\n"
     "  offload s, m when m % 3 != 2\n"
     "  recompute s, m when m % 3 == 2 && s != 0\n"
     "  order r { do M*Q { F } do m in M-1..-1 step -1 { do q in Q-1..-1 step -1 { B(m, q) } } U } }\n",
     ONE},
    {"away by hand",
     "schedule hand(P, M, Q) { ranks P\n"
     "  pipe net stages P mbs M slices Q place s -> s\n"
     "  time { F = 2 B = 4 OFF = 1 }\n"
     "  order r {\n"
     "    do m in 0..M { do q in 0..Q { F(m, q) } do q in 0..Q step 2 { OFF(m, q) } }\n"
     "    do m in 0..M { do q in 0..Q step 2 { LOAD(m, q) } do q in Q-1..-1 step -1 { I(m, q) }\n"
     "      do q in 0..Q { if q % 2 { OFF(m, q) } } do q in Q-1..-1 step -1 { if q % 2 { LOAD(m, q) } W(m, q) } } U } }\n",
     ONE},
    {"away by rules",
     "schedule ruled(P, M, Q) { ranks P\n"
     "  pipe net stages P mbs M slices Q place s -> s\n"
     "  time { F = 2 B = 4 OFF = 1 }\n"
     "  order r { rules m { do q in 0..Q { B(m, q) @ 0  F(m, q) @ 1 + m when inflight(r) < P-r + 2*Q\n"
     "    if q % 2 == 0 { OFF(m, q) @ 0  LOAD(m, q) @ 1 + m } } } U } }\n",
     ONE},
    {"dealt",
     "schedule dealt(P, M, Q) { let D = min(M, 2) ranks P-1 + D\n"
     "  pipe net stages P mbs M slices Q place s, m -> s == 0 ? m % D : s-1 + D\n"
     "  recompute s, m when s != 1 && m % 3 == 0\n"
     "  order r in 0..D { let n = (M-1-r)/D + 1  do n*Q { F } do n { do q in 0..Q { I } do Q { W } } U }\n"
     "  order r in D..P-1 + D { do m in 0..M { do Q { F } do Q { B } } U } }\n",
     FIRST_DEALT},
    {"wheel",
     "schedule wheel(P, M, Q) { ranks P\n"
     "  pipe net stages P mbs M slices Q place s, m -> (s + m) % P\n"
     "  order r { do m in 0..M { do s in 0..P { if (s + m) % P == r { do q in 0..Q { F[stage s](m, q) } } } }\n"
     "    do m in 0..M { do s in 0..P { if (s + m) % P == r { do Q { B[stage s] } } } } U } }\n",
     WHEEL},
    {"all dealt",
     "schedule dealt(P, M, Q) { let D = min(M, 3) ranks P*D\n"
     "  pipe net stages P mbs M slices Q place s, m -> s*D + m % D\n"
     "  order r { let n = (M-1-r%D)/D + 1\n"
     "    op f(k) = F(k/Q*D + r%D, k%Q)  op b(k) = B(k/Q*D + r%D, Q-1 - k%Q)\n"
     "    steady k in 0..n*Q { f(k) b(k - (P-1-r/D + Q-1)) } U } }\n",
     ALL_DEALT},
    {"dealt rules",
     "schedule dealt(P, M, Q) { let D = min(M, 3) ranks P*D\n"
     "  pipe net stages P mbs M slices Q place s, m -> s*D + m % D\n"
     "  order r { rules m { if m % D == r % D { do q in 0..Q { B(m, q) @ 0  if m % 2 { R(m, q) @ 1 }\n"
     "    F(m, q) @ 2 + m when inflight(r) < P - r/D + 2*Q } } } U } }\n",
     ALL_DEALT},
    {"pipes",
     "schedule pipes(P, M, Q) { ranks 2*P\n"
     "  pipe a stages P mbs (M+1)/2 slices Q place s -> s\n"
     "  pipe b stages P mbs max(M/2, 1) slices Q place s -> 2*P-1-s replica of a\n"
     "  recompute s when s > 0\n"
     "  order r in 0..P { do (M+1)/2 { do Q { a.F } } do (M+1)/2 { do Q { a.B } } U }\n"
     "  order r in P..2*P { do max(M/2, 1) { do Q { b.F } } do max(M/2, 1) { do Q { b.B } } U } }\n",
     HALVES},
    {"infer",
     "schedule infer(P, M, Q) { ranks P\n"
     "  pipe net forward stages P mbs M slices Q place s -> s\n"
     "  order r { do M*Q { F } }\n"
     "  check inflight(r) == Q for r in 0..P }\n",
     ONE},
};

#define AGAIN "do 3 { F } do 2 { R } do 3 { B }"
#define AWAY  "do 3 { F } OFF(0, 0) LOAD(0, 0) do 3 { B }"
#define LATE  "do 3 { F } do 3 { I } OFF(0, 0) LOAD(0, 0) do 3 { W }"

/* Two instructions of a program change places, with waits that fit: what a slice needs is not
 * there, and the engine says so. */
static int refuses(void) {
  static const struct {
    const char *order;
    uint32_t at;
    const char *says;
  } cases_[] = {
      {AGAIN, 2, "(0R0.0): comes before the forward of slice 2, which reads the stash"},
      {AGAIN, 3, "(0R0.1): comes before slice 0 is recomputed, whose stash it reads"},
      {AGAIN, 4, "(0B0.2): comes before slice 1 is recomputed, whose stash it reads"},
      {AWAY, 2, "(0OFF0.0): comes before the forward of slice 2, which reads the stash"},
      {AWAY, 4, "(0B0.2): the stash of slice 0 is in host memory"},
      {LATE, 5,
       "(0OFF0.0): comes after slice 1 has read the stash, which it reads at its old place"}};
  int wrong = 0;
  for (size_t i = 0; i < sizeof cases_ / sizeof *cases_; i++) {
    Program program;
    char text[200];
    snprintf(text, sizeof text,
             "schedule one() { ranks 1  pipe net stages 1 mbs 1 slices 3 place s -> 0\n"
             "  order r { %s U } }\n",
             cases_[i].order);
    if (!program_open(&program, NULL, "one.pipe", text, NULL, 0, NULL))
      return 1;
    uint32_t one = 1;
    const PrModel m = model_of(&one, 3);
    const PipeProgram *p = program.s.prog;
    PipeRank *rank = (PipeRank *)p->rank;
    const PipeInstr *c = &rank->instr[cases_[i].at];
    swap_rows(rank, cases_[i].at);
    PipeWait *wait = wait_of(rank, &c[0], pipe_queue(p->lowering, &c[1]));
    if (wait)
      wait->count--;
    PrRun *run = NULL;
    PrStatus st = pr_open(&run, p, &m, NULL);
    if (st != PR_E_ARG || !strstr(pr_error(run), cases_[i].says)) {
      printf("FAIL not refused as '%s': %s\n", cases_[i].says, pr_error(run));
      wrong++;
    }
    pr_close(run);
    program_close(&program);
  }
  return wrong;
}

/* text NULL: of the library in dir. */
static void one_case(const char *dir, const char *scratch, const char *name, const char *text,
                     Owner owner, uint32_t P, uint32_t M, uint32_t Q) {
  if (!engines_case(P))
    return;
  Program program;
  const Define define[3] = {
      {.name = "P", .value = P}, {.name = "M", .value = M}, {.name = "Q", .value = Q}};
  const bool looped = strcmp(name, "looped") == 0 || strcmp(name, "some") == 0,
             descending = strcmp(name, "terapipe") == 0 || strcmp(name, "away") == 0,
             sized = (P + M + Q) % 2;
  uint32_t nstage = looped ? 2 * P : P;
  const PrModel model = model_of(&nstage, Q);
  if (sized)
    write_profile(scratch, &model);
  if (!program_open_as(&program, dir, name, text, define, 3, sized ? scratch : NULL,
                       (P + 2 * M + Q) % 3 ? 0 : 1 + PIPE_CHANNELS)) {
    printf("FAIL %s P=%u M=%u Q=%u does not compile\n", name, P, M, Q);
    differ++;
  } else {
    const PipeProgram *p = program.s.prog;
    Result want = sequential(p->nmodel, p->nmb / Q, Q, descending, !p->forward, owner);
    run_one(p, &want, (PrOptions){.deadline_s = 600}, "threads");
    run_one(p, &want, (PrOptions){.free_running = 1}, "free running");
    run_one(p, &want, (PrOptions){SEEDED(1 + P * 10007u + M * 101u + Q)}, "seeded");
    free(want.loss), free(want.weight);
  }
  program_close(&program);
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: slices_test STDLIB_DIR SCRATCH [--break]\n");
    return 2;
  }
  const char *scratch = argv[2];
  engines_begin(&scratch);
  forget = argc > 3 && strcmp(argv[3], "--break") == 0;
  static const uint32_t sizes_P[] = {1, 2, 3, 5}, sizes_M[] = {1, 2, 5}, sizes_Q[] = {1, 2, 3, 7};
  for (size_t k = 0; k < 2 + sizeof texts / sizeof *texts; k++) {
    const char *name = k == 0 ? "seq1f1b" : k == 1 ? "terapipe" : texts[k - 2].name;
    bool trained = strcmp(name, "infer") != 0;
    if (forget && !trained)
      continue;
    for (size_t i = 0; i < 4; i++)
      for (size_t j = 0; j < 3 && (i < 3 || k < 2 || texts[k - 2].owner == ONE); j++)
        for (size_t q = forget; q < 4; q++)
          one_case(argv[1], scratch, name, k < 2 ? NULL : texts[k - 2].text,
                   k < 2 ? ONE : texts[k - 2].owner, sizes_P[i], sizes_M[j], sizes_Q[q]);
  }
  int wrong = forget ? 0 : refuses();
  differ = engines_end(differ);
  printf("%d of %d runs differ\n", differ, cases);
  return differ != 0 || wrong != 0;
}
