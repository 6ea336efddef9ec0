/* SPDX-License-Identifier: MIT
 * The heart of the test suite: a schedule may change when things happen, never what is computed.
 * For every synchronous schedule of the standard library and a grid of sizes, the losses of every
 * step and the final weights of the engine are equal, bit for bit, to those of a plain loop over
 * steps, microbatches and stages in one thread, which knows neither programs nor engines. Where a
 * schedule has replicas, each adds up its share of the microbatches, and the sums are added in
 * their order.
 *
 * Of one that updates within a step, each stage follows a list of its own, written here by formula:
 * an op uses the weights as they are at that point of the list, an update applies what was added
 * since the last.
 *
 *   parity STDLIB_DIR SCRATCH_FILE [--break|--channels|--files FILE...]
 *           one line per schedule; exit status 0 iff all agree
 *
 * SCRATCH_FILE is written: a profile with the model's sizes, so that bytes are proved and measured.
 * --break gives the engine's model another learning rate, and every run must then differ.
 *
 * Programs are compiled in this process and run from memory; that emit_c prints the same tables is
 * tested elsewhere. --files: schedules that are synchronous, chains, and add up in ascending order,
 * each with the parameters that it has by default, and without sizes and with them if it is a CSV
 * file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer_model.h"
#include "program.h"
#include "samples.h"
#include "seeded.h"
#include "train.h"

/* ---- the model: stage s is y = tanh(x A + b), the loss is |y - target|^2 / (2 M) ---- */

enum { STEPS = 4 };

static float engine_rate = RATE;
static _Atomic int actions; /* that the model got as a whole */

typedef struct Tiny {
  uint32_t nstage;
} Tiny;

/* ---- the definition: one thread, one loop ---- */

typedef struct Result {
  double *loss;
  float *weight;
} Result; /* [STEPS * nmb], [nstage * NW] */

/* descending: gradients are summed from the last microbatch to the first, as the schedule defines.
 * */
static Result sequential(uint32_t nstage, uint32_t nmb, uint32_t nreplica, bool descending,
                         float rate) {
  Result r = {calloc((size_t)STEPS * nmb, sizeof(double)),
              calloc((size_t)nstage * NW, sizeof(float))};
  float *grad = calloc((size_t)nstage * NW, sizeof(float)),
        *sum = calloc((size_t)nstage * NW, sizeof(float)),
        *momentum = calloc((size_t)nstage * NW, sizeof(float));
  float(*x)[N] = calloc(nstage + 1, sizeof *x);
  for (uint32_t s = 0; s < nstage; s++)
    init_weight(s, &r.weight[s * NW]);
  for (uint64_t step = 0; step < STEPS; step++) {
    for (uint32_t k = 0; k < nmb; k++) {
      uint32_t mb = descending ? nmb - 1 - k : k;
      float dy[N], dz[N], dx[N];
      input(step, mb, x[0]);
      for (uint32_t s = 0; s < nstage; s++)
        layer(x[s], &r.weight[s * NW], x[s + 1]);
      r.loss[step * nmb + mb] = loss_of(x[nstage], nmb, dy);
      for (uint32_t s = nstage; s-- > 0;) {
        layer_input(dy, x[s + 1], &r.weight[s * NW], dz, dx);
        layer_weight(x[s], dz, &grad[s * NW]);
        memcpy(dy, dx, sizeof dy);
      }
      if ((k + 1) % (nmb / nreplica) == 0) { /* the last of a replica's share */
        for (uint32_t i = 0; i < nstage * NW; i++) {
          sum[i] = k + 1 == nmb / nreplica ? grad[i] : sum[i] + grad[i];
          grad[i] = 0;
        }
      }
    }
    for (uint32_t s = 0; s < nstage; s++)
      update(&r.weight[s * NW], &r.weight[s * NW], &sum[s * NW], &momentum[s * NW], rate);
  }
  free(grad), free(sum), free(momentum), free(x);
  return r;
}

/* ---- updates within a step: one list of ops per stage, each with the newest weights ---- */

/* Stage s of 1F1B with an update after the backward of every `every`-th microbatch and of the last.
 * Returns its length; kind: 'F' 'B' 'U'. */
static uint32_t async_list(uint32_t nstage, uint32_t nmb, uint32_t every, uint32_t s, char *kind,
                           uint32_t *mb) {
  uint32_t warmup = nstage - 1 - s < nmb ? nstage - 1 - s : nmb, f = 0, b = 0, n = 0;
  while (f < warmup)
    kind[n] = 'F', mb[n++] = f++;
  while (b < nmb) {
    if (f < nmb)
      kind[n] = 'F', mb[n++] = f++;
    kind[n] = 'B', mb[n++] = b++;
    if (b % every == 0 || b == nmb)
      kind[n] = 'U', mb[n++] = b - 1;
  }
  return n;
}

/* Goes round the stages and carries out the next op of each whose input is there. */
static Result async(uint32_t nstage, uint32_t nmb, uint32_t every) {
  Result r = {calloc((size_t)STEPS * nmb, sizeof(double)),
              calloc((size_t)nstage * NW, sizeof(float))};
  float *grad = calloc((size_t)nstage * NW, sizeof(float)),
        *momentum = calloc((size_t)nstage * NW, sizeof(float));
  size_t cells = (size_t)(nstage + 1) * nmb;
  float(*x)[N] = calloc(cells, sizeof *x),
  (*dy)[N] = calloc(cells, sizeof *dy); /* at [stage * nmb + mb] */
  uint8_t *has_x = calloc(cells, 1), *has_dy = calloc(cells, 1);
  char *kind = malloc((size_t)nstage * 3 * nmb);
  uint32_t *mb = malloc((size_t)nstage * 3 * nmb * sizeof *mb),
           *len = calloc(2 * (size_t)nstage, sizeof *len), *at = len + nstage;
  for (uint32_t s = 0; s < nstage; s++) {
    init_weight(s, &r.weight[s * NW]);
    len[s] = async_list(nstage, nmb, every, s, &kind[s * 3 * nmb], &mb[s * 3 * nmb]);
  }
  for (uint64_t step = 0; step < STEPS; step++) {
    memset(has_x, 0, cells), memset(has_dy, 0, cells), memset(at, 0, nstage * sizeof *at);
    for (uint32_t m = 0; m < nmb; m++)
      input(step, m, x[m]), has_x[m] = 1;
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t s = 0; s < nstage; s++) {
        if (at[s] == len[s])
          continue;
        char k = kind[s * 3 * nmb + at[s]];
        size_t here = (size_t)s * nmb + mb[s * 3 * nmb + at[s]], next = here + nmb;
        float dz[N], *w = &r.weight[s * NW];
        if (k == 'F' ? !has_x[here] : k == 'B' && !has_dy[next])
          continue;
        if (k == 'F') {
          layer(x[here], w, x[next]);
          has_x[next] = 1;
          if (s + 1 == nstage) {
            r.loss[step * nmb + mb[s * 3 * nmb + at[s]]] = loss_of(x[next], nmb, dy[next]);
            has_dy[next] = 1;
          }
        } else if (k == 'B') {
          layer_input(dy[next], x[next], w, dz, dy[here]);
          layer_weight(x[here], dz, &grad[s * NW]);
          has_dy[here] = 1;
        } else {
          update(w, w, &grad[s * NW], &momentum[s * NW], RATE);
        }
        at[s]++;
        moved = true;
      }
    }
  }
  free(grad), free(momentum), free(x), free(dy), free(has_x), free(has_dy), free(kind), free(mb),
      free(len);
  return r;
}

/* Two replicas that take one microbatch each and then update: a plain loop with an update after
 * every pair. */
static Result pairs(uint32_t nstage, uint32_t nmb) {
  Result r = {calloc((size_t)STEPS * nmb, sizeof(double)),
              calloc((size_t)nstage * NW, sizeof(float))};
  float *grad = calloc(2 * (size_t)nstage * NW, sizeof(float)),
        *momentum = calloc((size_t)nstage * NW, sizeof(float));
  float(*x)[N] = calloc(nstage + 1, sizeof *x);
  for (uint32_t s = 0; s < nstage; s++)
    init_weight(s, &r.weight[s * NW]);
  for (uint64_t step = 0; step < STEPS; step++)
    for (uint32_t k = 0; k < nmb; k++) {
      uint32_t half = k % 2, m = k / 2 + half * (nmb / 2);
      float dy[N], dz[N], dx[N], *g = &grad[half * nstage * NW];
      input(step, m, x[0]);
      for (uint32_t s = 0; s < nstage; s++)
        layer(x[s], &r.weight[s * NW], x[s + 1]);
      r.loss[step * nmb + m] = loss_of(x[nstage], nmb, dy);
      for (uint32_t s = nstage; s-- > 0;) {
        layer_input(dy, x[s + 1], &r.weight[s * NW], dz, dx);
        layer_weight(x[s], dz, &g[s * NW]);
        memcpy(dy, dx, sizeof dy);
      }
      if (half == 0)
        continue;
      for (uint32_t i = 0; i < nstage * NW; i++) {
        grad[i] += g[i];
        g[i] = 0;
      }
      for (uint32_t s = 0; s < nstage; s++)
        update(&r.weight[s * NW], &r.weight[s * NW], &grad[s * NW], &momentum[s * NW], RATE);
    }
  free(grad), free(momentum), free(x);
  return r;
}

/* ---- the same through the callbacks of an engine ---- */

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  *out = model_sizes(((Tiny *)self)->nstage, stage);
  return 0;
}

static int init(void *self, uint32_t stage, void *weight, void *opt) {
  (void)self, (void)opt;
  init_weight(stage, weight);
  if (engine_rate != RATE)
    *(float *)weight += 1e-3f;
  return 0;
}

static int forward(void *self, const PrCall *c) { return (void)self, model_forward(c); }
static int backward(void *self, const PrCall *c) { return (void)self, model_backward(c); }
static int backward_input(void *self, const PrCall *c) {
  return (void)self, model_backward_input(c);
}
static int backward_weight(void *self, const PrCall *c) {
  return (void)self, model_backward_weight(c);
}

static int apply(void *self, const PrCall *c) {
  (void)self;
  update(c->weight, c->newest, c->grad, c->opt, engine_rate);
  return 0;
}

/* The ops of an action, last first: the engine may not depend on an order among them. */
static int overlap(void *self, const PrCall *c, uint32_t n) {
  for (uint32_t i = n; i-- > 0;) {
    bool f = c[i].op == PIPE_F || c[i].op == PIPE_R;
    int code = f                   ? forward(self, &c[i])
               : c[i].op == PIPE_B ? backward(self, &c[i])
               : c[i].op == PIPE_I ? backward_input(self, &c[i])
               : c[i].op == PIPE_U ? apply(self, &c[i])
                                   : backward_weight(self, &c[i]);
    if (code)
      return code;
  }
  actions++;
  return 0;
}

/* ---- one case ---- */

static int failures, cases;

static void fail(const char *name, const PipeProgram *p, const char *what) {
  printf("FAIL %s %s: %s\n", name, p ? p->params : "", what);
  failures++;
}

/* together: the model takes actions as a whole. */
static PrModel model_for(Tiny *tiny, bool forward_only, bool together) {
  PrModel model = {.self = tiny,
                   .nstage = tiny->nstage,
                   SPLIT_OPS(apply),
                   .reduce = sum_floats,
                   .overlap = together ? overlap : NULL};
  if (forward_only)
    model.backward = model.backward_input = model.backward_weight = model.update = NULL;
  return model;
}

static void run_one(const char *name, const PipeProgram *p, const Result *result, PrOptions o,
                    const char *engine, bool together) {
  Tiny tiny = {p->nmodel};
  const PrModel model = model_for(&tiny, p->forward, together);
  const Wanted want = {
      .steps = STEPS, .nmb = p->nmb, .nweight = NW, .loss = result->loss, .weight = result->weight};
  char why[256], text[320];
  const Trained trained = trains_as(p, &model, o, &want, why);
  cases += trained != NOT_HERE;
  snprintf(text, sizeof text, "%s: %s", engine, why);
  if (trained == OTHERWISE)
    fail(name, p, text);
}

static const char *scratch;
static int lowering; /* Options.lowering */
static const char *third =
    "V"; /* name of the third parameter; another one than V is no count of stages */

/* pipedream_2bw with loops, and updates that name no microbatch. */
#define LOOPS \
  "schedule pipedream(P, M, G) {\n" \
  "  ranks P\n" \
  "  pipe net stages P mbs M place s -> s\n" \
  "  order r {\n" \
  "    let w = min(M, P-1-r)\n" \
  "    do m in 0..w { F(m) }\n" \
  "    do m in 0..M { if m + w < M { F(m + w) }  B(m)  if m % G == G-1 || m == M-1 { U } }\n" \
  "  }\n" \
  "  check staleness(r) < P for r in 0..P\n" \
  "}\n"
/* Recomputation before actions of several ops, and in them. */
#define JOINED \
  "schedule joined(P, M) {\n" \
  "  ranks P\n" \
  "  pipe net stages P mbs M place s -> s\n" \
  "  recompute s, m when (s + m) % 3 > 0\n" \
  "  order r {\n" \
  "    let w = min(M, 2*(P-r))\n" \
  "    do m in 0..w { F(m) }\n" \
  "    do m in 0..M-w { overlap { F(m + w)  B(m)  if m % 2 == 0 { R(m + 1) } } }\n" \
  "    do m in M-w..M { B(m) }\n" \
  "    U\n" \
  "  }\n" \
  "}\n"
#define ROUNDS \
  "schedule rounds(P, M) {\n" \
  "  ranks P\n" \
  "  pipe down stages P mbs M/2 place s -> s\n" \
  "  pipe up stages P mbs M/2 place s -> P-1-s replica of down\n" \
  "  order r { do m in 0..M/2 { down.F(m)  down.B(m)  up.F(m)  up.B(m)  U } }\n" \
  "}\n"

/* Updates in one action with ops of other stages; the second chunk's beside the first backwards of
 * the first. */
#define BESIDE \
  "schedule beside(P, M) {\n" \
  "  ranks P\n" \
  "  pipe net stages 2*P mbs M place s -> s < P ? s : 2*P-1-s\n" \
  "  order r {\n" \
  "    do M { F[0] }  do M { F[1] }  do M { B[1] }\n" \
  "    if r % 2 { overlap { U[1]  B[0](0) } } else { overlap { B[0](0)  U[1] } }\n" \
  "    do m in 1..M { B[0](m) }\n" \
  "    U[0]\n" \
  "  }\n" \
  "}\n"
#define BESIDE_RULED \
  "schedule beside(P, M) {\n" \
  "  ranks P\n" \
  "  pipe net stages 2*P mbs M place s -> s < P ? s : 2*P-1-s\n" \
  "  order r {\n" \
  "    rules m {\n" \
  "      if m == M-1 { overlap { U[1]  B[0](m) } @ m  U[0] @ 0 }\n" \
  "      B[1](m) @ m  if m < M-1 { B[0](m) @ m }  F[1](m) @ M  F[0](m) @ M+1 when inflight(r, 0) < 2*P - r\n" \
  "    }\n" \
  "  }\n" \
  "}\n"
#define ROUNDS_BESIDE \
  "schedule rounds(P, M) {\n" \
  "  ranks P\n" \
  "  pipe down stages P mbs M/2 place s -> s\n" \
  "  pipe up stages P mbs M/2 place s -> P-1-s replica of down\n" \
  "  order r {\n" \
  "    down.F(0)\n" \
  "    do m in 0..M/2 {\n" \
  "      down.B(m)  up.F(m)  up.B(m)\n" \
  "      if m % 2 { overlap { U } if m + 1 < M/2 { down.F(m + 1) } }\n" \
  "      else { down.U  overlap { up.U  if m + 1 < M/2 { down.F(m + 1) } } }\n" \
  "    }\n" \
  "  }\n" \
  "}\n"

/* Actions, copies and updates that rules choose. */
#define RULED \
  "schedule ruled(P, M) {\n" \
  "  ranks P\n" \
  "  pipe net stages P mbs M place s -> s\n" \
  "  order r {\n" \
  "    rules m {\n" \
  "      overlap { F(m)  B } @ 0 when inflight(r) < P - r + 2\n" \
  "      B(m) @ 1\n" \
  "      F(m) @ 2 when inflight(r) + host(r) < P - r + 1\n" \
  "      if m % 2 && r < P-1 { OFF(m) @ m  LOAD(m) @ m when inflight(r) < P + 3 }\n" \
  "    }\n" \
  "    U\n" \
  "  }\n" \
  "}\n"
#define RULED_UPDATES \
  "schedule ruled(P, M, G) {\n" \
  "  ranks P\n" \
  "  pipe net stages P mbs M place s -> s\n" \
  "  order r {\n" \
  "    rules m {\n" \
  "      F(m) @ 2 when inflight(r) < P - r\n" \
  "      B(m) @ 0\n" \
  "      if m % G == G-1 || m == M-1 { U(m) @ 1 }\n" \
  "    }\n" \
  "  }\n" \
  "  check staleness(r) < P for r in 0..P\n" \
  "}\n"
/* A forward waits for the version that it reads. */
#define RULED_ROUNDS \
  "schedule ruled(P, M) {\n" \
  "  ranks P\n" \
  "  pipe down stages P mbs M/2 place s -> s\n" \
  "  pipe up stages P mbs M/2 place s -> P-1-s replica of down\n" \
  "  order r { rules m { down.F(m) @ 3  up.F(m) @ 3  down.B(m) @ 2  up.B(m) @ 2  down.U(m) @ 1  up.U(m) @ 1 } }\n" \
  "  weights s, m { F reads m }\n" \
  "}\n"

/* A schedule of the library, and the sizes that it takes besides P and M. */
typedef struct Case {
  const char *name;
  uint32_t chunks;  /* stages per rank; 0: its parameter V */
  bool descending;  /* it sums gradients from the last microbatch to the first */
  uint32_t least_M; /* in units of P */
} Case;

static Define extra;         /* a further parameter of the schedule at hand; without a name: none */
static const char *own_text; /* it, if it is not of the library */

static int actions_of(const PipeProgram *p) { /* of several ops */
  int n = 0;
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++)
      n += p->rank[r].instr[i].op <= PIPE_U && p->rank[r].instr[i].group > 0 &&
           (i == 0 || p->rank[r].instr[i - 1].group == 0);
  return n;
}

/* One that updates within the step. */
typedef struct Updates {
  Case c;
  const char *text; /* of one that is not in the library, or NULL */
  const char
      *every; /* its parameter that says after how many microbatches; NULL: it is that of pairs() */
} Updates;

/* Trains on every engine and compares; u, V: as in one_case. */
static void on_engines(const char *name, const PipeProgram *p, const Case *c, uint32_t V,
                       const Updates *u, uint64_t seed) {
  Result want = u && u->every ? async(p->nmodel, p->nmb, V)
                : u           ? pairs(p->nmodel, p->nmb)
                              : sequential(p->nmodel, p->nmb, p->nstage / p->nmodel, c->descending,
                                 p->forward ? 0 : RATE);
  PrOptions seeded = {SEEDED(seed)};
  run_one(name, p, &want, (PrOptions){.deadline_s = 600}, "threads", false);
  run_one(name, p, &want, (PrOptions){.free_running = 1}, "free running", false);
  run_one(name, p, &want, seeded, "seeded", false);
  int wanted = STEPS * actions_of(p), before = failures;
  if (wanted > 0) {
    int earlier = cases;
    actions = 0;
    run_one(name, p, &want, (PrOptions){.free_running = 1, .trace_steps = 2},
            "free running, actions as a whole", true);
    run_one(name, p, &want, seeded, "seeded, actions as a whole", true);
    if (actions != (cases - earlier) * wanted && failures == before && !engines_of_processes)
      fail(name, p, "the model has not got every action");
  }
  free(want.loss), free(want.weight);
}

/* u: NULL, or what c is part of; then V is its `every`. P 0: c->name is a file, with its own
 * parameters. Returns the stages of the model, 0: it failed. */
static uint32_t one_case(const char *dir, const Case *c, uint32_t P, uint32_t M, uint32_t V,
                         bool sized, const Updates *u) {
  if (!engines_case(P))
    return 0;
  uint32_t nmodel = 0;
  const char *name = c->name;
  Program program;
  Define define[4] = {{.name = "P", .value = P}, {.name = "M", .value = M}};
  uint32_t ndefine = 2;
  if (V)
    define[ndefine++] = (Define){.name = u && u->every ? u->every : third, .value = V};
  if (extra.name)
    define[ndefine++] = extra;
  if (sized) {
    const uint32_t chunks = V && !u && *third == 'V' ? V : c->chunks;
    Tiny tiny = {(P ? P : 1) * chunks};
    write_profile(scratch, &(PrModel){.self = &tiny, .nstage = tiny.nstage, .sizes = sizes});
  }
  if (program_open_as(&program, dir, name, u ? u->text : own_text, define, P ? ndefine : 0,
                      sized ? scratch : NULL, lowering)) {
    nmodel = program.s.prog->nmodel;
    on_engines(name, program.s.prog, c, V, u, 1 + P * 1000003u + M * 1009u + V);
  } else {
    char text[80];
    snprintf(text, sizeof text, "P=%u M=%u V=%u does not compile", P, M, V);
    fail(name, NULL, text);
  }
  program_close(&program);
  return nmodel;
}

static void summary(const Case *c, int before) {
  printf("%s%s%s: %d runs against the sequential one\n", c->name, extra.name ? " " : "",
         extra.name ? extra.name : "", cases - before);
}

/* Over P and M. */
static void fixed_grid(const char *dir, const Case *c) {
  static const uint32_t sizes_P[] = {1, 2, 3, 4, 5, 8}, sizes_M[] = {1, 2, 3, 4, 7, 8, 16, 17};
  int before = cases;
  for (size_t i = 0; i < sizeof sizes_P / sizeof *sizes_P; i++)
    for (size_t j = 0; j < sizeof sizes_M / sizeof *sizes_M; j++)
      if (sizes_M[j] >= c->least_M * sizes_P[i])
        one_case(dir, c, sizes_P[i], sizes_M[j], 0, (i + j) % 2 && !own_text, NULL);
  summary(c, before);
}

/* Over P, M and chunks per rank. */
static void looped_grid(const char *dir, const Case *c) {
  int before = cases;
  for (uint32_t P = 2; P <= 5; P++)
    for (uint32_t V = 2; V <= 4; V++)
      for (uint32_t groups = 1; groups <= 4; groups++) /* the others need not fill the last group */
        one_case(dir, c, P, P * groups - (c->least_M ? 0 : groups % 2), V, groups % 2, NULL);
  summary(c, before);
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr,
            "usage: parity STDLIB_DIR SCRATCH_FILE [--break | --channels | --files FILE...]\n");
    return 2;
  }
  const char *dir = argv[1];
  scratch = argv[2];
  engines_begin(&scratch);
  if (argc > 3 && strcmp(argv[3], "--break") == 0)
    engine_rate = RATE * 1.0001f;
  if (argc > 3 && strcmp(argv[3], "--channels") == 0)
    lowering = 1 + PIPE_CHANNELS;
  if (argc > 3 && strcmp(argv[3], "--files") == 0) {
    for (int i = 4; i < argc; i++) {
      int before = cases;
      Case c = {argv[i], 1, false, 0};
      if ((c.chunks = one_case(dir, &c, 0, 0, 0, false, NULL)) && strstr(argv[i], ".csv"))
        one_case(dir, &c, 0, 0, 0, true, NULL);
      printf("%s: %d runs\n", strrchr(argv[i], '/') + 1, cases - before);
    }
    printf("%d of %d runs differ\n", failures, cases);
    return engines_end(failures) != 0;
  }
  static const Case fixed[] = {
      {"gpipe", 1, false, 0},          {"1f1b", 1, false, 0},
      {"zb_h1", 1, false, 0},          {"naive", 1, false, 0},
      {"gpipe_lifo", 1, true, 0},      {"dapple_pb", 1, false, 0},
      {"varuna", 1, false, 0},         {"zb_h2", 1, false, 0},
      {"zb_1p", 1, false, 0},          {"zb_2p", 1, false, 0},
      {"zb_v", 2, false, 0},           {"v_min", 2, false, 0},
      {"v_half", 2, false, 0},         {"v_half_block", 2, false, 0},
      {"1f1b_v", 2, false, 0},         {"dualpipev", 2, false, 2},
      {"gpipe_recompute", 1, true, 0}, {"varuna_recompute", 1, false, 0},
      {"inference", 1, false, 0},      {"hanayo", 4, false, 0},
      {"v_zb", 2, false, 0},           {"v_min_auto", 2, false, 0},
      {"1f1b_v_auto", 2, false, 0},    {"bpipe", 1, false, 0},
  };
  for (size_t k = 0; k < sizeof fixed / sizeof *fixed; k++)
    fixed_grid(dir, &fixed[k]);
  static const Case looped[] = {
      {"interleaved", 0, false, 1},    {"looped_bfs", 0, true, 0},
      {"interleaved_zb", 0, false, 0}, {"gis", 0, false, 0},
      {"gis_h", 0, false, 0},          {"po_f", 0, false, 0},
      {"po_h", 0, false, 0},           {"interleaved_zb_auto", 0, false, 0},
  };
  for (size_t k = 0; k < sizeof looped / sizeof *looped; k++)
    looped_grid(dir, &looped[k]);
  extra = (Define){.name = "K", .value = 1};
  fixed_grid(dir, &(Case){"gpipe_recompute", 1, true, 0});
  extra = (Define){.name = "N", .value = 1};
  looped_grid(dir, &(Case){"gis", 0, false, 0});
  looped_grid(dir, &(Case){"gis_h", 0, false, 0});
  extra = (Define){.name = NULL};
  own_text = JOINED;
  fixed_grid(dir, &(Case){"R and overlap", 1, false, 0});
  own_text = RULED;
  fixed_grid(dir, &(Case){"actions and copies by rules", 1, false, 0});
  own_text = BESIDE;
  fixed_grid(dir, &(Case){"U in actions", 2, false, 0});
  own_text = BESIDE_RULED;
  fixed_grid(dir, &(Case){"U in actions by rules", 2, false, 0});
  own_text = NULL;
  static const Case gems = {"gems", 1, false, 0};
  int before = cases;
  for (uint32_t P = 2; P <= 8; P += 2)
    for (uint32_t M = 2; M <= 12; M += 2)
      one_case(dir, &gems, P, M, 0, M % 4 == 0, NULL);
  printf("gems: %d runs against the sequential one\n", cases - before);
  static const Case chimera = {"chimera", 1, false, 0};
  before = cases;
  for (uint32_t P = 2; P <= 8; P += 2)
    for (uint32_t units = 1; units <= 4; units++)
      one_case(dir, &chimera, P, P * units, 0, units % 2, NULL);
  printf("chimera: %d runs against the sequential one\n", cases - before);
  before = cases;
  third = "f";
  for (uint32_t P = 4; P <= 12; P += 4) {
    one_case(dir, &chimera, P, P, P / 2, false, NULL);
    one_case(dir, &chimera, P, 2 * P, P / 4, true, NULL);
  }
  printf("chimera of 2f: %d runs against the sequential one\n", cases - before);
  third = "V";
  static const struct {
    Case c;
    uint32_t unit; /* M is a multiple of it */
    bool per_P;    /* times P */
  } both_ways[] = {
      {{"dualpipe", 1, false, 2}, 2, false},
      {{"chimera_doubling", 1, false, 2}, 2, true},
      {{"chimera_halving", 1, false, 1}, 1, true},
  };
  for (size_t k = 0; k < sizeof both_ways / sizeof *both_ways; k++) {
    const Case *c = &both_ways[k].c;
    before = cases;
    for (uint32_t P = 2; P <= 8; P += 2)
      for (uint32_t i = 0; i < 3; i++)
        one_case(dir, c, P, c->least_M * P + i * both_ways[k].unit * (both_ways[k].per_P ? P : 1),
                 0, i % 2, NULL);
    printf("%s: %d runs against the sequential one\n", c->name, cases - before);
  }
  static const Updates updates[] = {
      {{"async_1f1b", 1, false, 0}, NULL, "N"},
      {{"pipemare", 1, false, 0}, NULL, "N"},
      {{"U in loops", 1, false, 0}, LOOPS, "G"},
      {{"U by rules", 1, false, 0}, RULED_UPDATES, "G"},
  };
  for (size_t k = 0; k < sizeof updates / sizeof *updates; k++) {
    before = cases;
    extra = (Define){.name = k == 1 ? "flow" : NULL}; /* ops take turns */
    for (uint32_t P = 1; P <= 5; P++)
      for (uint32_t M = 1; M <= 13; M += 3)
        for (uint32_t every = 1; every <= 5; every += 2)
          one_case(dir, &updates[k].c, P, M, every, M % 2 && !updates[k].text, &updates[k]);
    printf("%s: %d runs against lists of stages\n", updates[k].c.name, cases - before);
  }
  extra = (Define){.name = NULL};
  static const Updates rounds[] = {
      {{"U of replicas", 1, false, 0}, ROUNDS, NULL},
      {{"U of replicas by rules", 1, false, 0}, RULED_ROUNDS, NULL},
      {{"U of replicas in actions", 1, false, 0}, ROUNDS_BESIDE, NULL}};
  for (size_t k = 0; k < sizeof rounds / sizeof *rounds; k++) {
    before = cases;
    for (uint32_t P = 2; P <= 6; P += 2)
      for (uint32_t M = 2; M <= 10; M += 4)
        one_case(dir, &rounds[k].c, P, M, 0, false, &rounds[k]);
    printf("%s: %d runs against pairs of microbatches\n", rounds[k].c.name, cases - before);
  }
  failures = engines_end(failures);
  printf("%d of %d runs differ\n", failures, cases);
  return failures != 0;
}
