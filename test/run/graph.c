/* SPDX-License-Identifier: MIT
 * Parity where stages are more than a chain: edges, DAGs, stages that several ranks hold, shared
 * weights. The losses of every step and the final weights of the engine are equal, bit for bit, to
 * those of a plain loop over steps, microbatches and stages, which is given the edges, who has
 * which microbatch and what is shared as they are meant, and knows neither programs nor engines.
 *
 *   graph [--break]       one line per case; exit status 0 iff all agree
 *   graph --mutants SEED [N]  N damaged tables of each case: each is refused, or stalls, or
 *                             computes the right thing
 *
 * --break gives the engine's model another learning rate, and every run must then differ. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph_model.h"
#include "list_waits.h"
#include "orders.h"
#include "program.h"
#include "seeded.h"
#include "train.h"

/* ---- one program ---- */

static float engine_rate = RATE;
static int failures, cases;
static uint32_t mutants; /* of each program; 0: train it */
static uint64_t seed;
static uint32_t refused, stalled, right;

static void fail(const char *name, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  printf("FAIL %s: ", name);
  vprintf(fmt, ap);
  putchar('\n');
  va_end(ap);
  failures++;
}

static void run_one(const char *name, Meant *g, const PipeProgram *p, const Result *result,
                    PrOptions o) {
  const PrModel model = graph_model(g, engine_rate);
  const char *how = o.engine ? "seeded" : o.free_running ? "free running" : "threads";
  const Wanted want = {.steps = STEPS,
                       .nmb = p->nmb / pipe_slices(p),
                       .mb_stride = MOST_MBS,
                       .nweight = NW,
                       .loss = result->loss[0],
                       .weight = result->weight[0]};
  char why[256];
  const Trained trained = trains_as(p, &model, o, &want, why);
  cases += trained != NOT_HERE;
  if (trained == OTHERWISE)
    fail(name, "%s: %s", how, why);
}

/* ---- damaged tables ---- */

static uint32_t below(uint32_t n) {
  uint64_t z = seed += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return n ? (uint32_t)((z ^ z >> 31) % n) : 0;
}

static void *copy(const void *from, size_t bytes) {
  void *to = malloc(bytes + 1);
  if (!to)
    guard_no_memory(bytes);
  return from ? memcpy(to, from, bytes) : to;
}

static void damage(void *table, size_t bytes, uint32_t most) {
  uint32_t *word = table, n = (uint32_t)(bytes / sizeof *word);
  if (n)
    word[below(n)] = below(6) ? below(most + 2) : UINT32_MAX - below(3);
}

/* With channels: the first transfer of a channel that waits only for the start of the step now
 * waits for the transfer above it, of another channel. The program stays right: the lists are one
 * global order. */
static void link_channels(const PipeProgram *p, const PipeRank *rank) {
  const PipeInstr *above = NULL;
  for (const PipeInstr *c = rank->instr; c < rank->instr + rank->ninstr; c++) {
    if (c->op >= PIPE_NOPS || !pipe_op_info[c->op].comm)
      continue;
    PipeWait *wait = c->nwait == 1 ? wait_of(rank, c, PIPE_COMPUTE) : NULL;
    if (above && wait && wait->count == 0) {
      wait->queue = pipe_queue(p->lowering, above);
      for (const PipeInstr *q = rank->instr; q <= above; q++)
        wait->count += q->op < PIPE_NOPS && pipe_queue(p->lowering, q) == wait->queue;
    }
    above = c;
  }
}

/* Copies a program, damages one to three words of its tables, and runs what is not refused. */
static void mutate(const char *name, Meant *g, const PipeProgram *from, const Result *want) {
  PipeProgram p = *from;
  PipeRank *rank = copy(p.rank, p.nrank * sizeof *rank);
  PipeStage *stage = copy(p.stage, p.nstage * sizeof *stage);
  PipeEdge *edge = copy(p.edge, p.nedge * sizeof *edge);
  uint32_t *row = copy(p.row, (size_t)p.nmodel * p.nmb * sizeof *row), most = p.nstage;
  for (uint32_t r = 0; r < p.nrank; r++) {
    rank[r].instr = copy(rank[r].instr, rank[r].ninstr * sizeof *rank[r].instr);
    rank[r].pool = copy(rank[r].pool, rank[r].npool * sizeof *rank[r].pool);
    rank[r].wait = copy(rank[r].wait, rank[r].nwait * sizeof *rank[r].wait);
    rank[r].list = copy(rank[r].list, rank[r].nlist * sizeof *rank[r].list);
    most = rank[r].nslot > most ? rank[r].nslot : most;
  }
  p.rank = rank, p.stage = stage;
  p.edge = from->edge ? edge : NULL, p.row = from->row ? row : NULL;
  for (uint32_t k = 1 + below(3); k > 0; k--) {
    PipeRank *t = &rank[below(p.nrank)];
    uint32_t at = below(t->ninstr);
    PipeInstr *c = (PipeInstr *)&t->instr[at];
    PipeWait *wait = (PipeWait *)&t->wait[below(t->nwait)];
    switch (below(11)) {
    case 0: damage(c, sizeof *c, most); break;
    case 1: wait->count = below(at + 1); break;
    case 9: damage(wait, sizeof *wait, PIPE_NSTREAMS + p.nchannel); break;
    case 2: damage(&c->edge, sizeof c->edge, p.nedge); break;
    case 3: damage((void *)t->list, t->nlist * sizeof *t->list, t->nslot); break;
    case 4: damage((void *)t->pool, t->npool * sizeof *t->pool, most); break;
    case 5: damage(stage, p.nstage * sizeof *stage, most); break;
    case 6: damage(edge, p.nedge * sizeof *edge, p.nmodel); break;
    case 7: damage(row, p.row ? (size_t)p.nmodel * p.nmb * sizeof *row : 0, p.nstage); break;
    case 10: link_channels(&p, t); break;
    case 8: { /* two neighbours change places; an F that reads other weights is another program */
      if (at + 1 < t->ninstr && c[0].op != PIPE_U && c[1].op != PIPE_U)
        swap_rows(t, at);
    }
    }
  }
  PrModel model = graph_model(g, engine_rate);
  PrOptions o = {SEEDED(1 + below(1000))};
  PrRun *run = NULL;
  PrStatus st = pr_open(&run, &p, &model, &o);
  if (st) {
    refused++;
  } else if ((st = pr_steps(run, STEPS))) {
    stalled++;
    if (st != PR_E_STALL && st != PR_E_MISMATCH)
      fail(name, "%s", pr_error(run));
  } else {
    right++;
    for (uint32_t mb = 0; mb < p.nmb / pipe_slices(&p); mb++)
      if (!(fabs(pr_loss_mb(run, mb) - want->loss[STEPS - 1][mb]) <
            1e-5)) /* gradients in another order */
        fail(name, "a damaged program was accepted, and has another loss of microbatch %u", mb);
  }
  pr_close(run);
  for (uint32_t r = 0; r < p.nrank; r++)
    free((void *)rank[r].instr), free((void *)rank[r].pool), free((void *)rank[r].list),
        free((void *)rank[r].wait);
  free(rank), free(stage), free(edge), free(row);
}

/* Compiles "schedule s() { TEXT }" without and with sizes, each without and with recomputation, and
 * trains on every engine. */
static void train(const char *name, Meant *g, const char *text) {
  static bool channels = true; /* every other program has them */
  channels ^= g->nmb % 2 == 0; /* now those with sizes, now those without */
  Result want;
  graph_sequential(g, &want);
  for (int k = 0; k < (g->forward ? 2 : 4); k++) {
    if (!engines_case(0))
      continue;
    bool sized = k % 2 != 0, again = k > 1;
    Arena arena = {0};
    Program program;
    const char *bytes = "";
    if (sized) {
      char last[512] = "0", edge[512] = "0";
      for (uint32_t s = 0; s < g->nstage;
           s++) { /* boundary and edge of each stage, as nested choices */
        PrSizes z;
        graph_sizes(g, s, &z);
        char *t = arena_printf(&arena, "s == %u ? %d : %s", s, (int)z.boundary, last);
        snprintf(last, sizeof last, "%s", t);
        t = arena_printf(&arena, "s == %u ? %d : %s", s, (int)z.edge, edge);
        snprintf(edge, sizeof edge, "%s", t);
      }
      bytes = arena_printf(
          &arena,
          "bytes s { act = %zu gout = %zu boundary = %s edge = %s weight = %zu opt = %zu "
          "work = %zu tied = %zu }",
          sizeof(Act), N * sizeof(float), last, edge, NW * sizeof(float), NW * sizeof(float),
          N * sizeof(float), TIED * sizeof(float));
    }
    const char *all = arena_printf(&arena, "schedule s() {\n%s\n%s\n%s\n}\n", text, bytes,
                                   again ? "recompute s, m when (s + m) % 3 != 1" : "");
    channels = !channels;
    if (!program_open_as(&program, NULL, name, all, NULL, 0, NULL,
                         channels ? 1 + PIPE_CHANNELS : 0)) {
      fail(name, "it does not compile:\n%s", all);
    } else if (mutants > 0) {
      for (uint32_t i = 0; i < mutants; i++)
        mutate(name, g, program.s.prog, &want);
    } else {
      run_one(name, g, program.s.prog, &want, (PrOptions){.deadline_s = 600});
      run_one(name, g, program.s.prog, &want, (PrOptions){.free_running = 1});
      run_one(name, g, program.s.prog, &want, (PrOptions){SEEDED(1 + g->nmb * 1009u + g->nstage)});
      run_one(name, g, program.s.prog, &want, (PrOptions){SEEDED(77)});
    }
    program_close(&program);
    arena_free(&arena);
  }
}

/* ---- cases ---- */

static void chain(Meant *g, uint32_t nstage, uint32_t nmb) {
  *g = (Meant){.nstage = nstage, .nmb = nmb};
  for (uint32_t s = 0; s + 1 < nstage; s++)
    g->arc[g->narc++] = (Arc){s, s + 1, false};
}

static void skip(Meant *g, uint32_t from, uint32_t to) {
  g->arc[g->narc++] = (Arc){from, to, true};
}

static char text[4096];
#define TEXT(...) snprintf(text, sizeof text, __VA_ARGS__)

/* U-Net: stage s also feeds stage S-1-s. On a line each rank holds one stage, on a V both ends of a
 * skip. */
static void unet(const char *order, bool v) {
  for (uint32_t P = 2; P <= 5; P++)
    for (uint32_t M = 1; M <= 9; M += 4) {
      Meant g;
      uint32_t S = v ? 2 * P : P;
      chain(&g, S, M);
      for (uint32_t s = 0; s + 1 < S / 2 || (S % 2 && s < S / 2); s++)
        skip(&g, s, S - 1 - s);
      TEXT("let P = %u let M = %u let S = %u ranks P\n"
           "pipe net stages S mbs M place s -> %s\n"
           "edge s -> S-1-s for s in 0..(S+1)/2-1\n"
           "order r { %s U }",
           P, M, S, v ? "s < P ? s : S-1-s" : "s", order);
      train(v ? "unet on a v" : "unet on a line", &g, text);
    }
}

/* Stage s on R[s] ranks, microbatches dealt out round robin; all forwards first, or as soon as can
 * be. */
static void round_robin(uint32_t nstage, const uint32_t *R, bool rules, bool skips, bool tied) {
  for (uint32_t M = 4; M <= 9; M += 5) {
    Meant g;
    char place[512] = "0", name[80];
    uint32_t base = 0, len;
    chain(&g, nstage, M);
    if (skips)
      skip(&g, 0, nstage - 1);
    if (tied)
      g.tie[0] = g.tie[nstage - 1] = 1;
    len = (uint32_t)TEXT("let M = %u\n", M);
    for (uint32_t s = 0; s < nstage; s++) {
      char t[sizeof place + 64];
      for (uint32_t m = 0; m < M; m++)
        g.owner[s][m] = m % R[s];
      snprintf(t, sizeof t, "s == %u ? %u + m %% %u : %s", s, base, R[s], place);
      snprintf(place, sizeof place, "%.*s", (int)sizeof place - 1, t);
      if (rules)
        len += (uint32_t)snprintf(
            text + len, sizeof text - len,
            "order r in %u..%u { rules m { if m %% %u == r - %u { B(m) @ 0  F(m) @ 1 "
            "when inflight(r) < %u } } U }\n",
            base, base + R[s], R[s], base, nstage - s);
      else
        len += (uint32_t)snprintf(text + len, sizeof text - len,
                                  "order r in %u..%u { let n = (M - (r - %u) + %u) / %u\n"
                                  "do k in 0..n { F(k * %u + r - %u) } do n { B } U }\n",
                                  base, base + R[s], base, R[s] - 1, R[s], R[s], base);
      base += R[s];
    }
    len += (uint32_t)snprintf(text + len, sizeof text - len,
                              "ranks %u pipe net stages %u mbs M place s, m -> %s\n", base, nstage,
                              place);
    if (skips)
      len += (uint32_t)snprintf(text + len, sizeof text - len, "edge 0 -> %u\n", nstage - 1);
    if (tied)
      snprintf(text + len, sizeof text - len, "tie 0, %u\n", nstage - 1);
    snprintf(name, sizeof name, "round robin on %u ranks", base);
    train(name, &g, text);
  }
}

/* Every rank holds every stage: the stages of a microbatch go round the ranks. */
static void wheel(void) {
  for (uint32_t P = 2; P <= 4; P++) {
    Meant g;
    chain(&g, P, 2 * P);
    for (uint32_t s = 0; s < P; s++)
      for (uint32_t m = 0; m < 2 * P; m++)
        g.owner[s][m] = m % P; /* rank s + m, first met at microbatch m */
    TEXT(
        "let P = %u ranks P pipe net stages P mbs 2*P place s, m -> (s + m) %% P\n"
        "order r { do m in 0..2*P { F[(r - m) %% P](m) } do m in 0..2*P { B[stage (r - m) %% P](m) } U }",
        P);
    train("wheel", &g, text);
  }
}

static void towers(
    void) { /* two towers into one; then one that ends twice; then with a chunk a rank more */
  for (uint32_t M = 1; M <= 6; M += 5) {
    Meant g = {.nstage = 5, .nmb = M};
    skip(&g, 0, 1), skip(&g, 2, 3), skip(&g, 1, 4), skip(&g, 3, 4);
    TEXT("let M = %u ranks 3 pipe net dag stages 5 mbs M place s -> s / 2\n"
         "edge 3 -> 4 edge 0 -> 1 edge 1 -> 4 edge 2 -> 3\n"
         "order r in 0..2 { do m in 0..M { F[0](m) F[1](m) } do m in 0..M { B[1](m) B[0](m) } U }\n"
         "order r in 2..3 { do M { F B } U }",
         M);
    train("two towers", &g, text);
    g = (Meant){.nstage = 6, .nmb = M};
    skip(&g, 0, 1), skip(&g, 0, 2), skip(&g, 0, 4), skip(&g, 1, 3), skip(&g, 2, 3), skip(&g, 2, 5);
    TEXT("let M = %u ranks 6 pipe net dag stages 6 mbs M place s -> s\n"
         "edge 0 -> 1 edge 0 -> x for x in 2..5 step 2 edge 1 -> 3 edge 2 -> 3 edge 2 -> 5\n"
         "order r { do m in 0..M { F(m) } do m in 0..M { I(m) W(m) } U }",
         M);
    train("three ends", &g, text);
  }
}

static void forward_only(void) { /* skips, two ends, a dealt stage, and weights that are shared */
  for (uint32_t M = 1; M <= 7; M += 3) {
    Meant g;
    chain(&g, 4, M);
    g.forward = true;
    skip(&g, 0, 3), skip(&g, 0, 2);
    g.tie[1] = g.tie[2] = 1;
    TEXT(
        "let M = %u ranks 2 pipe net forward stages 4 mbs M place s -> s %% 2 edge 0 -> 3 edge 0 -> 2\n"
        "tie 1, 2 order r { do m in 0..M { F[0](m) } do m in 0..M { F[1](m) } }",
        M);
    train("skips, forward-only", &g, text);
    g = (Meant){.nstage = 4, .nmb = M, .forward = true};
    skip(&g, 0, 1), skip(&g, 0, 2), skip(&g, 2, 3);
    for (uint32_t m = 0; m < M; m++)
      g.owner[0][m] = m % 2;
    TEXT("let M = %u let D = min(M, 2) ranks D + 3 pipe net forward dag stages 4 mbs M\n"
         "place s, m -> s == 0 ? m %% D : s-1 + D edge 0 -> 1 edge 0 -> 2 edge 2 -> 3\n"
         "order r in 0..D { do (M-1-r)/D + 1 { F } } order r in D..D+3 { do M { F } }",
         M);
    train("two ends, forward-only", &g, text);
  }
}

static void slices(void) { /* the tensors of skips are those of one slice */
  for (uint32_t Q = 2; Q <= 4; Q++) {
    Meant g;
    chain(&g, 4, 3 * Q);
    g.slices = Q;
    skip(&g, 0, 3), skip(&g, 0, 2), skip(&g, 1, 3);
    g.tie[1] = g.tie[2] = 1;
    TEXT("let Q = %u ranks 4 pipe net stages 4 mbs 3 slices Q place s -> s\n"
         "edge 0 -> 3 edge 0 -> 2 edge 1 -> 3 tie 1, 2\n"
         "order r { op f(k) = F(k / Q, k %% Q) op b(k) = B(k / Q, Q-1 - k %% Q)\n"
         "steady k in 0..3*Q { f(k) b(k - (Q-1 + 3-r)) } U }",
         Q);
    train("skips and slices", &g, text);
    chain(&g, 3, 3 * Q);
    g.slices = Q;
    skip(&g, 0, 2);
    for (uint32_t u = 0; u < 3 * Q; u++)
      g.owner[0][u] = g.owner[2][u] = u / Q % 2;
    TEXT(
        "let Q = %u ranks 4 pipe net stages 3 mbs 3 slices Q\n"
        "place s, m -> s == 0 ? m %% 2 : s == 1 ? 2 : 3 * (m %% 2) edge 0 -> 2\n"
        "order r in 0..1 { do 2*Q { F[0] } do q in 0..Q { F[stage 2](0, q) } do q in 0..Q { F[stage 2](2, q) }\n"
        "  do 2*Q { B[1] } do 2*Q { B[0] } U }\n"
        "order r in 1..2 { do Q { F } do Q { B } U } order r in 2..3 { do 3*Q { F } do 3*Q { B } U }\n"
        "order r in 3..4 { do Q { F } do Q { B } U }",
        Q);
    train("dealt, with skips and slices", &g, text);
  }
}

static void ties(void) {
  for (uint32_t P = 2; P <= 4; P++) {
    Meant g;
    chain(&g, P, 6);
    g.tie[0] = g.tie[P - 1] = 1;
    TEXT("let P = %u let M = 6 ranks P pipe net stages P mbs M place s -> s tie P-1, 0\n"
         "order r { steady m { F(m) B(m - (P-1-r)) } U }",
         P);
    train("tied ends", &g, text);
    chain(&g, 2 * P, 5);
    g.tie[0] = g.tie[2 * P - 1] = 1, g.tie[1] = g.tie[P] = 2;
    g.tie[P] = P > 2 ? 2 : 0, g.tie[1] = P > 2 ? 2 : 0;
    TEXT("let P = %u let M = 5 ranks P pipe net stages 2*P mbs M place s -> s < P ? s : 2*P-1-s\n"
         "tie 0, 2*P-1 %s\n"
         "order r { do m in 0..M { F[0](m) } do m in 0..M { F[1](m) } do m in 0..M { B[1](m) } "
         "do m in 0..M { I[0](m) } U[1] do M { W[0] } U[0] }",
         P, P > 2 ? "tie P, 1" : "");
    if (P ==
        2) /* both ends on rank 0: an update must not come before the last gradient of the other */
      TEXT(
          "let P = 2 let M = 5 ranks P pipe net stages 2*P mbs M place s -> s < P ? s : 2*P-1-s\n"
          "tie 0, 2*P-1 order r { do m in 0..M { F[0](m) } do m in 0..M { F[1](m) } do m in 0..M { B[1](m) } "
          "do m in 0..M { I[0](m) } do M { W[0] } U }");
    else
      TEXT("let P = %u let M = 5 ranks P pipe net stages 2*P mbs M place s -> s < P ? s : 2*P-1-s\n"
           "tie 0, 2*P-1 tie P, 1\n"
           "order r { do m in 0..M { F[0](m) } do m in 0..M { F[1](m) } do m in 0..M { B[1](m) } "
           "do m in 0..M { I[0](m) } do M { W[0] } U }",
           P);
    train("tied on a v", &g, text);
    chain(&g, 3, 6);
    g.tie[0] = g.tie[1] = g.tie[2] = 1;
    for (uint32_t s = 0; s < 3; s++)
      for (uint32_t m = 0; m < 6; m++)
        g.owner[s][m] = m / (6 / P == 0 ? 1 : P == 4 ? 3 : 6 / P);
    uint32_t n = P == 4 ? 2 : P; /* pipes; they shift by a rank each */
    TEXT(
        "let n = %u ranks 3 pipe p[i] in 0..n stages 3 mbs 6/n place s -> (s + i) %% 3 tie 0, 1, 2\n"
        "order r { do i in 0..n { do m in 0..6/n { do s in 0..3 { if (s + i) %% 3 == r { p[i].F[stage s](m) } } } }\n"
        "do i in 0..n { do m in 0..6/n { do s in 0..3 { if (s + i) %% 3 == r { p[i].B(m) } } } } U }",
        n);
    train("tied replicas", &g, text);
  }
}

/* Several updates in a step: of shared weights on a line, on one rank, and with a stage that is
 * dealt out. */
static void rounds(void) {
  for (uint32_t every = 2; every <= 4; every += 2) {
    static const char *const order =
        "order r { do j in 0..M/n { do i in 0..n { F(j*n + i) } do i in 0..n { B(j*n + i) } U } }";
    Meant g;
    chain(&g, 3, 8);
    g.every = every, g.tie[0] = g.tie[2] = 1;
    TEXT("let M = 8 let n = %u ranks 3 pipe net stages 3 mbs M place s -> s tie 0, 2 %s", every,
         order);
    train("tied, several updates", &g, text);
    TEXT(
        "let M = 8 let n = %u ranks 2 pipe net stages 3 mbs M place s -> s %% 2 tie 0, 2\n"
        "order r in 0..1 { do j in 0..M/n { do i in 0..n { F[0](j*n + i) } do i in 0..n { F[1](j*n + i) }\n"
        "do i in 0..n { B[1](j*n + i) } do i in 0..n { B[0](j*n + i) } U[1] U[0] } }\n"
        "order r in 1..2 { do j in 0..M/n { do i in 0..n { F(j*n + i) } do i in 0..n { I(j*n + i) } do n { W } U } }",
        every);
    train("tied on one rank, several updates", &g, text);
    skip(&g, 0, 2);
    for (uint32_t m = 0; m < 8; m++)
      g.owner[0][m] = m % 2;
    TEXT(
        "let M = 8 let n = %u ranks 4 pipe net stages 3 mbs M place s, m -> s == 0 ? m %% 2 : s + 1\n"
        "tie 0, 2 edge 0 -> 2\n"
        "order r in 0..2 { do j in 0..M/n { do n/2 { F } do n/2 { B } U } }\n"
        "order r in 2..4 { do j in 0..M/n { do n { F } do n { B } U } }",
        every);
    train("dealt and tied, several updates", &g, text);
  }
}

/* Actions of several ops: F and B of a stage with skips, several microbatches of a stage at once,
 * the last gradients of tied rows together, stages that are dealt out; under each policy for sends.
 * */
static void actions(void) {
  static const char *const send[] = {"end", "eager"};
  for (int k = 0; k < 2; k++) {
    Meant g;
    for (uint32_t P = 3; P <= 5; P++) {
      chain(&g, P, 7);
      for (uint32_t s = 0; s < (P - 1) / 2; s++)
        skip(&g, s, P - 1 - s);
      TEXT(
          "let P = %u let M = 7 ranks P pipe net stages P mbs M place s -> s\n"
          "edge s -> P-1-s for s in 0..(P-1)/2 time { F = 2 B = 4 FB = 5 send = 3 } send %s\n"
          "order r { let n = P - r do m in 0..n { F(m) } do m in 0..M-n { overlap { F(m + n) B(m) } }\n"
          "do m in M-n..M { B(m) } U }",
          P, send[k]);
      train("F and B at once, with skips", &g, text);
      TEXT("let P = %u let M = 7 ranks P pipe net stages P mbs M place s -> s\n"
           "edge s -> P-1-s for s in 0..(P-1)/2 time { F = 2 B = 4 send = 3 } send %s\n"
           "order r { let n = P - r do m in 0..n { F(m) }\n"
           "do m in 0..M-n { overlap { F(m + n) R(m) } B(m) } do m in M-n..M { R(m) B(m) } U }",
           P, send[k]);
      train("F and R at once, with skips", &g, text);
      chain(&g, P, 6);
      for (uint32_t s = 2; s < P; s++)
        skip(&g, 0, s);
      TEXT(
          "let P = %u let M = 6 ranks P pipe net stages P mbs M place s -> s edge 0 -> s for s in 2..P\n"
          "send %s order r { do j in 0..2 { overlap { do i in 0..3 { F(3*j + i) } } }\n"
          "do j in 0..2 { overlap { do i in 0..3 { I(3*j + i) } } overlap { do i in 0..3 { W(3*j + i) } } } U }",
          P, send[k]);
      train("three microbatches at once", &g, text);
    }
    for (uint32_t P = 1; P <= 3; P++) {
      chain(&g, 2 * P, 4);
      g.tie[0] = g.tie[2 * P - 1] = 1;
      if (P > 1)
        skip(&g, 0, 2 * P - 1);
      TEXT(
          "let P = %u let M = 4 ranks P pipe net stages 2*P mbs M place s -> s < P ? s : 2*P-1-s\n"
          "tie 0, 2*P-1 %s send %s order r {\n"
          "do m in 0..M { F[0](m) } do m in 0..M { F[1](m) } do m in 0..M { I[1](m) } do m in 0..M { I[0](m) }\n"
          "do m in 0..M { overlap { W[0](m) W[1](m) } } U }",
          P, P > 1 ? "edge 0 -> 2*P-1" : "", send[k]);
      train("tied, last gradients at once", &g, text);
    }
    chain(&g, 3, 8);
    skip(&g, 0, 2);
    for (uint32_t m = 0; m < 8; m++)
      g.owner[1][m] = m % 2;
    TEXT(
        "let M = 8 ranks 4 pipe net stages 3 mbs M place s, m -> s == 1 ? 1 + m %% 2 : s == 0 ? 0 : 3\n"
        "edge 0 -> 2 tie 0, 2 send %s\n"
        "order r in 0..1 { do m in 0..4 { overlap { F(2*m) F(2*m + 1) } } do m in 0..M { B(m) } U }\n"
        "order r in 1..3 { do 2 { overlap { F F } } do 2 { overlap { B B } } U }\n"
        "order r in 3..4 { do M { F } do 2 { overlap { do 4 { B } } } U }",
        send[k]);
    g.tie[0] = g.tie[2] = 1;
    train("dealt, two microbatches at once", &g, text);
  }
}

/* U-nets: stages of the way down feed those of the way up. */
static void unets(void) {
  unet("steady m { F(m) B(m - (P-1-r)) }", false);
  unet("do m in 0..M { F(m) } do m in 0..M { I(m) } do M { W }", false);
  unet(
      "do m in 0..M { F[0](m) } do m in 0..M { F[1](m) } do m in 0..M { B[1](m) } do m in 0..M { B[0](m) }",
      true);
  unet(
      "rules m { I[1](m) @ 0  I[0](m) @ 1  F[1](m) @ 2  F[0](m) @ 3 when inflight(r, 0) < P  W[0](m)  W[1](m) }",
      true);
}

/* Stages that several ranks hold. */
static void dealt(void) {
  for (int rules = 0; rules < 2; rules++) {
    round_robin(3, (uint32_t[]){2, 1, 1}, rules, false, false);
    round_robin(3, (uint32_t[]){1, 3, 2}, rules, false, false);
    round_robin(2, (uint32_t[]){2, 2}, rules, false, true);
    round_robin(4, (uint32_t[]){3, 1, 2, 1}, rules, true, true);
    round_robin(1, (uint32_t[]){4}, rules, false, false);
  }
  wheel();
}

int main(int argc, char **argv) {
  engines_begin(NULL);
  if (argc > 1 && strcmp(argv[1], "--break") == 0)
    engine_rate = RATE * 1.0001f;
  if (argc > 2 && strcmp(argv[1], "--mutants") == 0)
    seed = strtoull(argv[2], NULL, 10), mutants = argc > 3 ? (uint32_t)atoi(argv[3]) : 60;
  static const struct {
    const char *name;
    void (*run)(void);
  } part[] = {
      {"unet", unets},    {"dealt", dealt}, {"dag", towers},     {"forward-only", forward_only},
      {"slices", slices}, {"tied", ties},   {"updates", rounds}, {"actions", actions}};
  for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
    int before = cases;
    part[i].run();
    printf("%s: %d runs against the sequential one\n", part[i].name, cases - before);
  }
  if (mutants > 0)
    printf("mutants of seed %s: %u refused, %u stalled or mismatched, %u right, %d wrong\n",
           argv[2], refused, stalled, right, failures);
  failures = engines_end(failures);
  if (mutants == 0)
    printf("%d of %d runs differ\n", failures, cases);
  return failures != 0;
}
