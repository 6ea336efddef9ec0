/* SPDX-License-Identifier: MIT
 * Versions of the weights, against their definition: one thread, one loop over the microbatches of
 * a step, that keeps every version of every stage and reads the one that a formula written here
 * says. Losses of every step and the weights after the last are those of the engines, bit for bit;
 * so are the numbers that the engine tells the model (version, updates, applied), the losses that
 * on_loss reports, and the bytes.
 *
 *   versions_test STDLIB_DIR SCRATCH [--break|--refused]   exit status 0 iff all agree
 *
 * --break: the definition reads, for the backward of one microbatch, the version after the right
 * one; every run that reads older versions than the newest must then differ. --refused: tables with
 * one wrong entry. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer_model.h"
#include "program.h"
#include "seeded.h"
#include "train.h"

enum { STEPS = 3 };

/* What a schedule says: all in terms of a stage, and of a microbatch of the step. */
typedef struct Rule {
  uint32_t P, M, N,
      w; /* stages, microbatches; microbatches (of a replica) per update; a further parameter */
  uint32_t replicas[8]; /* of each stage: microbatch m is that of replica m % replicas */
  int (*forward)(const struct Rule *, int s, int m);
  int (*backward)(const struct Rule *, int s, int m); /* NULL: as forward */
  bool again; /* the backward makes its stash anew, with its own version */
} Rule;

static int newest(const Rule *r, int s, int m,
                  int lag) { /* updates of the stage by microbatch m - lag */
  int own = m / (int)r->replicas[s] - lag;
  return own < 0 ? 0 : (own + 1) / (int)r->N; /* floor: N at a time */
}

/* The learning rate of a stage grows with its replicas. */
static float rate_of(const Rule *r, uint32_t s) {
  return (float)((double)RATE * ((double)r->replicas[s] / r->replicas[0]));
}

/* ---- the definition ---- */

typedef struct Result {
  double *loss;  /* [STEPS * M] */
  float *weight; /* [P * NW] */
} Result;

static bool breaks;

static Result definition(const Rule *r) {
  uint32_t P = r->P, M = r->M;
  Result out = {calloc((size_t)STEPS * M, sizeof(double)), calloc((size_t)P * NW, sizeof(float))};
  float *w = calloc((size_t)P * (M + 1) * NW,
                    sizeof *w), /* version v of stage s at (s * (M + 1) + v) * NW */
      *grad = calloc((size_t)P * M * NW,
                     sizeof *grad), /* of replica k of stage s at (s * M + k) * NW */
          *momentum = calloc((size_t)P * NW, sizeof *momentum);
  uint32_t *version = calloc(P, sizeof *version);
  float(*x)[N] = calloc(P + 1, sizeof *x);
#define AT(s, v) (&w[((size_t)(s) * (M + 1) + (size_t)(v)) * NW])
  for (uint32_t s = 0; s < P; s++)
    init_weight(s, AT(s, 0));
  for (uint64_t step = 0; step < STEPS; step++) {
    memset(version, 0, P * sizeof *version);
    for (uint32_t m = 0; m < M; m++) {
      float dy[N], dz[N], dx[N], y[N];
      input(step, m, x[0]);
      for (uint32_t s = 0; s < P; s++)
        layer(x[s], AT(s, r->forward(r, (int)s, (int)m)), x[s + 1]);
      out.loss[step * M + m] = loss_of(x[P], M, dy);
      for (uint32_t s = P; s-- > 0;) {
        int v = (r->backward ? r->backward : r->forward)(r, (int)s, (int)m);
        uint32_t n = r->replicas[s], round = m / n / r->N;
        if (breaks && m == M / 2 && (uint32_t)v < version[s])
          v++;
        memcpy(y, x[s + 1], sizeof y);
        if (r->again)
          layer(x[s], AT(s, v), y);
        if (r->again && s + 1 == P) /* the loss is made anew, too */
          loss_of(y, M, dy);
        layer_input(dy, y, AT(s, v), dz, dx);
        layer_weight(x[s], dz, &grad[((size_t)s * M + m % n) * NW]);
        memcpy(dy, dx, sizeof dy);
        bool last = m + 1 == M || (m + 1) / n / r->N > round;
        if (!last)
          continue;
        float *sum = &grad[(size_t)s * M * NW];
        for (uint32_t k = 1; k < n; k++)
          for (int i = 0; i < NW; i++)
            sum[i] += sum[k * NW + i], sum[k * NW + i] = 0;
        update(AT(s, version[s] + 1), AT(s, version[s]), sum, &momentum[s * NW], rate_of(r, s));
        version[s]++;
      }
    }
    for (uint32_t s = 0; s < P; s++) /* the next step begins with the last ones */
      memcpy(AT(s, 0), AT(s, version[s]), NW * sizeof(float));
  }
  for (uint32_t s = 0; s < P; s++)
    memcpy(&out.weight[s * NW], AT(s, 0), NW * sizeof(float));
  free(w), free(grad), free(momentum), free(version), free(x);
  return out;
}

/* ---- the model, which checks what it is told ---- */

typedef struct Told {
  const Rule *rule;
  const Result *want;
  atomic_int wrong, losses;
} Told;

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  *out = model_sizes(((Told *)self)->rule->P, stage);
  return 0;
}

static int init(void *self, uint32_t stage, void *weight, void *opt) {
  (void)self, (void)opt;
  init_weight(stage, weight);
  return 0;
}

static void tell(Told *t, const PrCall *c) {
  const Rule *r = t->rule;
  bool forward = c->op == PIPE_F || !r->backward;
  t->wrong += c->op == PIPE_W && c->weight != NULL;
  if (c->op != PIPE_U && c->op != PIPE_W)
    t->wrong += c->version !=
                (uint32_t)(forward ? r->forward : r->backward)(r, (int)c->stage, (int)c->mb);
  uint32_t per = r->N * r->replicas[c->stage], rounds = (r->M + per - 1) / per;
  if (c->op == PIPE_U) {
    uint32_t k = c->version - 1, rest = r->M - k * per;
    t->wrong += c->applied != (rest < per ? rest : per) || c->updates != c->step * rounds + k;
    t->wrong += c->rate != (double)r->replicas[c->stage] / r->replicas[0] || !c->newest;
  } else {
    t->wrong += c->newest != NULL || c->updates < c->step * rounds + c->version % (rounds + 1);
  }
}

static int forward(void *self, const PrCall *c) { return tell(self, c), model_forward(c); }
static int backward(void *self, const PrCall *c) { return tell(self, c), model_backward(c); }
static int backward_input(void *self, const PrCall *c) {
  return tell(self, c), model_backward_input(c);
}
static int backward_weight(void *self, const PrCall *c) {
  return tell(self, c), model_backward_weight(c);
}

static int apply(void *self, const PrCall *c) {
  tell(self, c);
  update(c->weight, c->newest, c->grad, c->opt, (float)((double)RATE * c->rate));
  return 0;
}

static void on_loss(void *arg, uint64_t step, uint32_t mb, double loss) {
  Told *t = arg;
  t->wrong += memcmp(&loss, &t->want->loss[step * t->rule->M + mb], sizeof loss) != 0;
  t->losses++;
}

static PrModel model_of(Told *t) {
  return (PrModel){.self = t, .nstage = t->rule->P, SPLIT_OPS(apply), .reduce = sum_floats};
}

/* ---- cases ---- */

static int cases, differ,
    older; /* runs; those that differ; those with versions that are not the newest */

static void run_one(const PipeProgram *p, const Rule *rule, const Result *result, PrOptions o,
                    const char *engine) {
  Told told = {.rule = rule, .want = result};
  const PrModel model = model_of(&told);
  const Wanted want = {.steps = STEPS,
                       .nmb = rule->M,
                       .nweight = NW,
                       .loss = result->loss,
                       .weight = result->weight};
  char why[256];
  o.on_loss = breaks ? NULL : on_loss;
  o.arg = &told;
  Trained trained = trains_as(p, &model, o, &want, why);
  if (trained == AS_WANTED && told.wrong) {
    trained = OTHERWISE;
    snprintf(why, sizeof why, "the engine tells the model something wrong");
  }
  if (trained == AS_WANTED && !breaks && !engines_of_processes &&
      told.losses != (int)(STEPS * rule->M)) {
    trained = OTHERWISE;
    snprintf(why, sizeof why, "on_loss was not called once for each microbatch");
  }
  cases += trained != NOT_HERE;
  differ += trained == OTHERWISE;
  if (trained == OTHERWISE && !breaks)
    printf("FAIL %s %s, %s: %s\n", p->name, p->params, engine, why);
}

static const char *dir, *scratch;

/* name: of the library, or with a text of its own. define: its parameters. */
static void one_case(const char *name, const char *text, Define *define, uint32_t ndefine,
                     const Rule *rule, bool sized) {
  if (!engines_case((uint32_t)define[0].value)) /* P */
    return;
  Program program;
  Told told = {.rule = rule};
  const PrModel model = model_of(&told);
  if (sized)
    write_profile(scratch, &model);
  if (!program_open_as(&program, dir, name, text, define, ndefine, sized ? scratch : NULL,
                       (rule->P + 2 * rule->M + rule->N + rule->w) % 3 ? 0 : 1 + PIPE_CHANNELS)) {
    printf("FAIL %s P=%u M=%u N=%u w=%u does not compile\n", name, rule->P, rule->M, rule->N,
           rule->w);
    differ++;
  } else {
    const PipeProgram *p = program.s.prog;
    bool old = false; /* the backward that --break changes does not read the newest */
    for (uint32_t r = 0; r < p->nrank; r++)
      for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
        const PipeInstr *in = &p->rank[r].instr[i];
        const PipeWeights *w = &p->rank[r].weights[i];
        bool b = in->op == PIPE_B || in->op == PIPE_I;
        /* What a first stage sends back, nobody reads. */
        old |= b && p->stage[in->stage].model > 0 && in->mb == rule->M / 2 && w->ahead > 0;
      }
    Result want = definition(rule);
    if (old || !breaks) {
      older += old * 3;
      run_one(p, rule, &want, (PrOptions){.deadline_s = 600}, "threads");
      run_one(p, rule, &want, (PrOptions){.free_running = 1}, "free running");
      run_one(p, rule, &want, (PrOptions){SEEDED(1 + rule->P * 10007u + rule->M * 101u + rule->N)},
              "seeded");
    }
    free(want.loss), free(want.weight);
  }
  program_close(&program);
}

/* E synchronous rounds, and behind them an asynchronous kernel. */
#define WARM \
  "schedule warm(P, M, N, E) { ranks P\n" \
  "  pipe net stages P mbs M place s -> s\n" \
  "  order r {\n" \
  "    do e in 0..E { steady m in e*N..(e+1)*N { F(m)  B(m - (P-1-r)) }  U }\n" \
  "    let w = 2*(P-1-r) + 1\n" \
  "    steady m in E*N..M { overlap { F(m)  B(m - w) }  if (m - w) % N == N-1 { U(m - w) } }\n" \
  "    if M % N != 0 { U } }\n" \
  "  weights { F reads newest  B reads newest } }\n"

/* Which version an F or B reads, by schedule. */
static int as_turns(const Rule *r, int s, int m) { return newest(r, s, m, (int)r->P - s); }
static int as_flow(const Rule *r, int s, int m) {
  return newest(r, s, m, 2 * ((int)r->P - 1 - s) + 2);
}
static int latest(const Rule *r, int s, int m) { return newest(r, s, m, 1); }
static int entry(const Rule *r, int s, int m) {
  (void)s;
  return m < (int)r->P ? 0 : m - ((int)r->P - 1);
}
static int buffered(const Rule *r, int s, int m) {
  (void)s;
  return m / (int)r->N < 1 ? 0 : m / (int)r->N - 1;
}
static int warm(const Rule *r, int s, int m) { /* round robin: as many warmup forwards as there */
  int all = 0, first = 0;
  for (int q = 0; q < (int)r->P; q++) {
    all += (int)r->replicas[q];
    first += q < s ? (int)r->replicas[q] : 0;
  }
  return newest(r, s, m, (all - 1 - first) / (int)r->replicas[s] + 1);
}
static int five(const Rule *r, int s, int m) {
  (void)r, (void)s;
  return m < 5 ? 0 : m - 5;
}
static int three(const Rule *r, int s, int m) {
  (void)r;
  return m < s % 2 + 2 ? 0 : m - s % 2 - 2;
}
static int first_of_three(const Rule *r, int s, int m) { return as_turns(r, s, m - m % 3); }
static int first_of_two(const Rule *r, int s, int m) { return latest(r, s, m - m % 2); }
static int four(const Rule *r, int s, int m) {
  (void)r, (void)s;
  return m < 4 ? 0 : m - 4;
}
static int late_switch(const Rule *r, int s, int m) {
  return m < 6 ? as_turns(r, s, m) : latest(r, s, m);
}
static int warm_newest(const Rule *r, int s, int m, int lag) { /* w rounds are synchronous */
  int n = (int)r->N, done = newest(r, s, m, lag), first = (int)r->w;
  return m < first * n ? m / n : done > first ? done : first;
}
static int warm_flow(const Rule *r, int s, int m) {
  return warm_newest(r, s, m, 2 * ((int)r->P - 1 - s) + 2);
}
static int warm_latest(const Rule *r, int s, int m) { return warm_newest(r, s, m, 1); }
static int chunked(const Rule *r, int s, int m) { /* two stages a rank */
  return newest(r, s, m, (int)r->P / 2 - s / 2);
}

static const char *const own[][2] = {
    /* A general rule of k versions: forward and backward, each its own. */
    {"older",
     "schedule older(P, M) { ranks P\n"
     "  pipe net stages P mbs M place s -> s\n"
     "  order r { steady m { F(m)  B(m - (P-1-r))  U(m - (P-1-r)) } }\n"
     "  weights s, m { F reads max(m - 5, 0)  B reads max(m - s%2 - 2, 0) versions 6 + 0*s } }\n"},
    /* A split backward: W, which reads none, comes after the versions are gone. */
    {"split", "schedule split(P, M) { ranks P\n"
              "  pipe net stages P mbs M place s -> s\n"
              "  order r { let w = P-1-r\n"
              "    steady m { F(m)  I(m - w)  W(m - w)  U(m - w) } }\n"
              "  weights { B reads F } }\n"},
    /* A stash that is made again, with the version that the backward reads. */
    {"again", "schedule again(P, M) { ranks P\n"
              "  pipe net stages P mbs M place s -> s\n"
              "  recompute\n"
              "  order r { steady m { F(m)  B(m - (P-1-r))  U(m - (P-1-r)) } }\n"
              "  weights { F reads newest  B reads F } }\n"},
    {"again-newest", "schedule again_newest(P, M) { ranks P\n"
                     "  pipe net stages P mbs M place s -> s\n"
                     "  recompute\n"
                     "  order r { steady m { F(m)  B(m - (P-1-r))  U(m - (P-1-r)) } }\n"
                     "  weights { B reads newest } }\n"},
    /* Two chunks a rank. */
    {"chunks", "schedule chunks(P, M) { ranks P/2\n"
               "  pipe net stages P mbs M place s -> s/2\n"
               "  order r { let w = P/2-1-r\n"
               "    steady m { F[0](m)  F[1](m)  B[1](m - w)  B[0](m - w)  U(m - w) } }\n"
               "  weights { B reads F } }\n"},
    /* Updates in one action with ops of the other chunk. */
    {"beside",
     "schedule beside(P, M) { ranks P/2\n"
     "  pipe net stages P mbs M place s -> s/2\n"
     "  order r { let w = P/2-1-r\n"
     "    steady m { F[0](m)  F[1](m)  B[1](m - w)  overlap { B[0](m - w)  U[1](m - w) }  U[0](m - w) } }\n"
     "  weights { B reads F } }\n"},
    /* What the first of three, or of two, reads. */
    {"alike", "schedule alike(P, M) { ranks P\n"
              "  pipe net stages P mbs M place s -> s\n"
              "  order r { steady m { F(m)  B(m - (P-1-r))  U(m - (P-1-r)) } }\n"
              "  weights s, m { F reads newest per m/3  B reads F } }\n"},
    {"alike-back",
     "schedule alike_back(P, M) { ranks P\n"
     "  pipe net stages P mbs M place s -> s\n"
     "  recompute\n"
     "  order r { steady m { F(m)  B(m - (P-1-r))  U(m - (P-1-r)) } }\n"
     "  weights s, m { F reads max(m - 4, 0) per m % 2 ? m : 0 - m  B reads newest per m/2 } }\n"},
    /* By rules: an update is ready when its gradient is there. */
    {"ruled", "schedule ruled(P, M) { ranks P\n"
              "  pipe net stages P mbs M place s -> s\n"
              "  order r { rules m { F(m) @ 2 when inflight(r) < P - r  U(m) @ 0  B(m) @ 1 } }\n"
              "  weights { B reads F } }\n"},
    /* A condition. */
    {"when", "schedule when_(P, M) { ranks P\n"
             "  pipe net stages P mbs M place s -> s\n"
             "  order r { steady m { F(m)  B(m - (P-1-r))  U(m - (P-1-r)) } }\n"
             "  weights s, m { B reads F when m < 6  B reads newest } }\n"},
};

/* Opens p, which is not what it should be, and tells the error; 1 if there is none. */
static int refused(const PipeProgram *p, const Rule *rule, const char *what) {
  Told t = {.rule = rule};
  PrModel m = model_of(&t);
  PrRun *run = NULL;
  int accepted = pr_open(&run, p, &m, &(PrOptions){SEEDED(1)}) == PR_OK;
  if (what)
    printf("%s: %s\n", what, accepted ? "accepted" : pr_error(run));
  pr_close(run);
  return accepted;
}

/* Every version, every slot and every distance of a program in turn is another one, and some
 * further slips. */
static int refuse_all(void) {
  Program program;
  const Define d[2] = {{.name = "P", .value = 3}, {.name = "M", .value = 5}};
  Rule rule = {3, 5, 1, 0, {1, 1, 1}, as_turns, NULL, false};
  if (!program_open(&program, dir, "pipedream", NULL, d, 2, NULL))
    return 1;
  PipeProgram p = *program.s.prog;
  PipeRank rank[3];
  PipePool pool[3][16];
  PipeStage stage[3];
  memcpy(rank, p.rank, sizeof rank);
  memcpy(stage, p.stage, sizeof stage);
  p.rank = rank, p.stage = stage;
  int tried = 0, accepted = refused(&p, &rule, "as it is") - 1;
  for (uint32_t r = 0; r < 3; r++) {
    PipeWeights *w = arena_alloc(&program.arena, rank[r].ninstr * sizeof *w);
    memcpy(w, rank[r].weights, rank[r].ninstr * sizeof *w);
    memcpy(pool[r], rank[r].pool, rank[r].npool * sizeof **pool);
    rank[r].weights = w, rank[r].pool = pool[r];
    for (uint32_t i = 0; i < rank[r].ninstr; i++)
      for (int field = 0; field < 6; field++) {
        uint32_t *const fields[] = {&w[i].version, &w[i].slot,  &w[i].out,
                                    &w[i].guess,   &w[i].ahead, (uint32_t *)&w[i].behind};
        uint32_t *at = fields[field], was = *at;
        for (uint32_t v = 0; v <= rank[r].nslot + 1; v++) {
          *at = v > rank[r].nslot ? PIPE_NONE : v;
          if (*at != was)
            tried++, accepted += refused(&p, &rule, NULL);
        }
        *at = was;
      }
  }
  PipeWeights *w = (PipeWeights *)rank[0].weights, *u = w, *f = w;
  while (u->out == PIPE_NONE)
    u++;
  uint32_t slot = f->slot, version = f->version, out = u->out;
  f->slot = 0, refused(&p, &rule, "another class"), f->slot = slot;
  f->version = 1, refused(&p, &rule, "not yet made"), f->version = version;
  u->version = 2, refused(&p, &rule, "left out"), u->version = 1;
  u->out = u->slot, refused(&p, &rule, "in place, still read"), u->out = out;
  f->out = out, refused(&p, &rule, "made by a forward"), f->out = PIPE_NONE;
  f->formula = 0, refused(&p, &rule, "no formulas"), f->formula = PIPE_NONE;
  f->ahead++, refused(&p, &rule, "an F too far"), f->ahead--;
  u->behind++, refused(&p, &rule, "a U too late"), u->behind--;
  rank[0].nslot++, pool[0][rank[0].npool - 1].count++;
  refused(&p, &rule, "a slot more");
  rank[0].nslot--, pool[0][rank[0].npool - 1].count--;
  rank[1].weights = NULL, refused(&p, &rule, "one rank without"),
  rank[1].weights = program.s.prog->rank[1].weights;
  stage[1].states = 1, refused(&p, &rule, "states"), stage[1].states = 0;
  p.nstate = 1, refused(&p, &rule, "no names"), p.nstate = 0;
  for (uint32_t i = 0; i < rank[0].npool; i++)
    if (pool[0][i].cls == PIPE_WEIGHT) {
      pool[0][i].stage = 1, refused(&p, &rule, "of another rank"), pool[0][i].stage = 0;
      pool[0][i].cls = PIPE_GUESS, refused(&p, &rule, "no slots"), pool[0][i].cls = PIPE_WEIGHT;
    }
  const PipeWeights *const keep[3] = {rank[0].weights, rank[1].weights, rank[2].weights};
  for (int r = 0; r < 3; r++)
    rank[r].weights = NULL;
  refused(&p, &rule, "no ranks");
  for (int r = 0; r < 3; r++)
    rank[r].weights = keep[r];
  accepted += refused(&p, &rule, "as it was") - 1;
  printf("%d of %d accepted\n", accepted, tried);
  program_close(&program);
  return accepted != 0;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: versions_test STDLIB_DIR SCRATCH [--break]\n");
    return 2;
  }
  dir = argv[1], scratch = argv[2];
  engines_begin(&scratch);
  breaks = argc > 3 && strcmp(argv[3], "--break") == 0;
  if (argc > 3 && strcmp(argv[3], "--refused") == 0)
    return refuse_all();
  static const uint32_t sizes_P[] = {1, 2, 4, 5}, sizes_M[] = {1, 3, 8, 13};
  for (size_t i = 0; i < 4; i++)
    for (size_t j = 0; j < 4; j++) {
      uint32_t P = sizes_P[i], M = sizes_M[j], sized = (uint32_t)(i + j) % 2;
      Rule one = {P, M, 1, 0, {1, 1, 1, 1, 1, 1, 1, 1}, as_turns, NULL, false};
      Define d[5] = {{.name = "P", .value = P}, {.name = "M", .value = M}};
      Rule naive = one, vsync = one;
      naive.backward = latest;
      vsync.forward = entry;
      one_case("pipedream_naive", NULL, d, 2, &naive, sized);
      one_case("pipedream_vsync", NULL, d, 2, &vsync, sized);
      for (uint32_t N_ = 1; N_ <= 4; N_++)
        for (uint32_t flow = 0; flow < 2; flow++) {
          Rule r = one;
          r.N = N_;
          r.forward = flow ? as_flow : as_turns;
          d[2] = (Define){.name = "N", .value = N_};
          d[3] = (Define){.name = "flow", .value = flow};
          one_case("pipedream", NULL, d, 4, &r, sized);
          r.backward = latest;
          one_case("pipemare", NULL, d, 4, &r, sized);
          r.forward = warm_flow;
          r.backward = warm_latest;
          r.w = M / N_ / 2;
          d[3] = (Define){.name = "E", .value = r.w};
          if (flow)
            one_case("warm", WARM, d, 4, &r, sized);
          r.w = 0;
          r.backward = NULL;
          r.forward = buffered;
          d[2] = (Define){.name = "G", .value = N_};
          d[3] = (Define){.name = "short", .value = 1};
          if (!flow && N_ + 1 >= P)
            one_case("pipedream_2bw", NULL, d, 4, &r, sized);
        }
      for (size_t k = 0; k < sizeof own / sizeof *own; k++) {
        Rule r = one;
        const char *name = own[k][0];
        if (strcmp(name, "older") == 0)
          r.forward = five, r.backward = three;
        r.again = strncmp(name, "again", 5) == 0 || strcmp(name, "alike-back") == 0;
        if (strcmp(name, "alike") == 0)
          r.forward = first_of_three;
        if (strcmp(name, "alike-back") == 0)
          r.forward = four, r.backward = first_of_two;
        if (strcmp(name, "again-newest") == 0)
          r.backward = latest;
        if (strcmp(name, "when") == 0)
          r.backward = late_switch;
        bool chunks = strcmp(name, "chunks") == 0 || strcmp(name, "beside") == 0;
        if (chunks)
          r.forward = chunked;
        if (chunks && P % 2 != 0)
          continue;
        one_case(name, own[k][1], d, 2, &r, sized);
      }
    }
  static const uint32_t uneven[][4] = {
      {2, 2, 1, 1}, {3, 2, 1, 1}, {3, 3, 2, 2}, {4, 2, 3, 1}, {3, 1, 1, 3}};
  for (size_t k = 0; k < sizeof uneven / sizeof *uneven; k++)
    for (uint32_t M = 12; M <= 24; M += 12) {
      uint32_t S = uneven[k][0], A = uneven[k][1], B = uneven[k][2], Z = uneven[k][3];
      Rule r = {S, M, 1, 0, {0}, warm, NULL, false};
      for (uint32_t s = 0; s < S; s++)
        r.replicas[s] = s == 0 ? A : s + 1 == S ? Z : B;
      Define d[5] = {{.name = "P", .value = A + (S - 2) * B + Z},
                     {.name = "A", .value = A},
                     {.name = "B", .value = B},
                     {.name = "Z", .value = Z},
                     {.name = "M", .value = M}};
      one_case("pipedream_rr", NULL, d, 5, &r, k % 2);
    }
  if (breaks)
    printf("%d of %d runs differ\n", differ, cases);
  else
    printf("%d of %d runs differ, %d read old versions\n", differ, cases, older);
  return engines_end(differ) != 0;
}
