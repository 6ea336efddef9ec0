/* SPDX-License-Identifier: MIT
 * Draws timelines of programs made here, by a generator and a clock that share nothing with the
 * compiler or with pipe_sim.c, so that a test of the picture fails only because of the picture.
 *
 *   svg_test KIND P M V [measured] [timed] [sized] [send=N] [file=TEXT] > out.svg
 *
 * KIND: 1f1b, gpipe, zb (ZB-H1, backward split), interleaved (V chunks a rank). F = 2, B = 4,
 * I = W = 2 units; `timed` makes a unit a millisecond; `measured` draws on top a panel in ns whose
 * times are the same with a deterministic jitter of up to 12 %. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "svg.h"

typedef struct Gen {
  uint32_t P, M, V;
  bool split;
  PipeInstr **list; /* [P] compute ops in order */
  uint32_t *n;      /* [P] */
} Gen;

static void *need(void *p) {
  if (!p)
    exit(2);
  return p;
}

static void add(Gen *g, uint32_t r, PipeOp op, uint32_t chunk, uint32_t mb, PipePhase phase) {
  g->list[r][g->n[r]++] = (PipeInstr){.op = (uint8_t)op,
                                      .phase = (uint8_t)phase,
                                      .stage = chunk * g->P + r,
                                      .mb = mb,
                                      .peer = PIPE_NONE,
                                      .site = (uint32_t)op};
}

/* Index k of the interleaved order: rounds of P microbatches through all chunks. */
static void virtual_op(Gen *g, uint32_t r, PipeOp op, uint32_t k, PipePhase phase) {
  uint32_t round = k / (g->P * g->V), chunk = k / g->P % g->V, mb = round * g->P + k % g->P;
  add(g, r, op, op == PIPE_F ? chunk : g->V - 1 - chunk, mb, phase);
}

static void make_order(Gen *g, const char *kind, uint32_t r) {
  uint32_t M = g->M, total = M * g->V, warm = g->P - 1 - r;
  PipeOp back = g->split ? PIPE_I : PIPE_B;
  if (!strcmp(kind, "gpipe"))
    warm = M;
  else if (g->V > 1)
    warm = 2 * (g->P - r - 1) + (g->V - 1) * g->P;
  warm = warm < total ? warm : total;
  uint32_t w = 0;
  for (uint32_t k = 0; k < warm; k++)
    virtual_op(g, r, PIPE_F, k, PIPE_WARMUP);
  for (uint32_t k = 0; k < total; k++) {
    PipePhase phase = k + warm < total ? PIPE_STEADY : PIPE_FLUSH;
    if (phase == PIPE_STEADY)
      virtual_op(g, r, PIPE_F, k + warm, phase);
    virtual_op(g, r, back, k, phase);
    for (; g->split && w + r <= k; w++) /* ZB-H1: rank r keeps r weight gradients back */
      virtual_op(g, r, PIPE_W, w, phase);
  }
  for (; g->split && w < total; w++)
    virtual_op(g, r, PIPE_W, w, PIPE_FLUSH);
  for (uint32_t c = 0; c < g->V; c++)
    add(g, r, PIPE_U, c, PIPE_NONE, PIPE_STEADY);
}

static uint64_t rng = 88172645463325252u;
static uint64_t jitter(uint64_t t, bool on) {
  rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
  return on ? t + t * (rng % 1201) / 10000 : t;
}

typedef struct Times {
  PipeRank *rank;
  uint64_t **start, **end;
  uint64_t makespan;
} Times;

/* Runs the orders with each op as soon as its rank and its input allow; SEND and RECV take `send`
 * right after their producer. Lists hold the compute ops in order, each SEND after its producer. */
static Times run_clock(const Gen *g, const PipeStage *stage, uint64_t unit, uint64_t send,
                       bool noisy) {
  uint32_t S = g->P * g->V, M = g->M;
  uint64_t *fwd = need(malloc(8 * S * M)), *bwd = need(malloc(8 * S * M));
  uint64_t *free_at = need(calloc(g->P, 8));
  uint32_t *next = need(calloc(g->P, 4));
  Times t = {need(calloc(g->P, sizeof *t.rank)), need(calloc(g->P, 8)), need(calloc(g->P, 8)), 0};
  memset(fwd, 0xff, 8 * S * M);
  memset(bwd, 0xff, 8 * S * M);
  for (uint32_t r = 0; r < g->P; r++) {
    t.rank[r].instr = need(malloc(sizeof(PipeInstr) * (3 * g->n[r] + 1)));
    t.start[r] = need(malloc(8 * (3 * g->n[r] + 1)));
    t.end[r] = need(malloc(8 * (3 * g->n[r] + 1)));
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t r = 0; r < g->P; r++)
      while (next[r] < g->n[r]) {
        PipeInstr in = g->list[r][next[r]];
        uint64_t ready = 0, dur = jitter(stage[in.stage].time[in.op] * unit, noisy);
        uint32_t s = in.stage, at = in.mb == PIPE_NONE ? 0 : in.mb, to = PIPE_NONE;
        if (in.op == PIPE_F && s > 0)
          ready = fwd[(s - 1) * M + at];
        if ((in.op == PIPE_B || in.op == PIPE_I) && s + 1 < S)
          ready = bwd[(s + 1) * M + at];
        if (ready == UINT64_MAX)
          break;
        uint64_t a = ready > free_at[r] ? ready : free_at[r], b = a + dur;
        if (in.op == PIPE_F && s + 1 < S)
          to = stage[s + 1].rank;
        if ((in.op == PIPE_B || in.op == PIPE_I) && s > 0)
          to = stage[s - 1].rank;
        PipeRank *k = &t.rank[r];
        PipeInstr *out = (PipeInstr *)k->instr;
        t.start[r][k->ninstr] = a, t.end[r][k->ninstr] = b, out[k->ninstr++] = in;
        uint64_t arrived = b;
        if (to != PIPE_NONE && to != r) {
          arrived = b + send * unit;
          in.op = in.op == PIPE_F ? PIPE_SEND_F : PIPE_SEND_B, in.peer = to;
          t.start[r][k->ninstr] = b, t.end[r][k->ninstr] = arrived, out[k->ninstr++] = in;
          in.op = g->list[r][next[r]].op;
        }
        if (in.op == PIPE_F)
          fwd[s * M + at] = arrived;
        else if (in.op != PIPE_W && in.op != PIPE_U)
          bwd[s * M + at] = arrived;
        t.makespan = b > t.makespan ? b : t.makespan;
        free_at[r] = b;
        next[r]++;
        moved = true;
      }
  }
  for (uint32_t r = 0; r < g->P; r++)
    if (next[r] < g->n[r]) {
      fprintf(stderr, "svg_test: the order of rank %u cannot run\n", r);
      exit(2);
    }
  free(fwd), free(bwd), free(free_at), free(next);
  return t;
}

static void free_times(Times *t, uint32_t P) {
  for (uint32_t r = 0; r < P; r++)
    free((void *)t->rank[r].instr), free(t->start[r]), free(t->end[r]);
  free(t->rank), free(t->start), free(t->end);
}

int main(int argc, char **argv) {
  bool measured = false, timed = false, sized = false;
  uint64_t send = 0;
  const char *file = "onef1b.pipe";
  if (argc < 5)
    return 2;
  for (int i = 5; i < argc; i++) {
    measured |= !strcmp(argv[i], "measured");
    timed |= !strcmp(argv[i], "timed");
    sized |= !strcmp(argv[i], "sized");
    if (!strncmp(argv[i], "send=", 5))
      send = strtoull(argv[i] + 5, NULL, 10);
    if (!strncmp(argv[i], "file=", 5))
      file = argv[i] + 5;
  }
  Gen g = {(uint32_t)atoi(argv[2]),
           (uint32_t)atoi(argv[3]),
           (uint32_t)atoi(argv[4]),
           !strcmp(argv[1], "zb"),
           NULL,
           NULL};
  uint32_t S = g.P * g.V;
  PipeStage *stage = need(calloc(S, sizeof *stage));
  g.list = need(calloc(g.P, sizeof *g.list));
  g.n = need(calloc(g.P, sizeof *g.n));
  for (uint32_t s = 0; s < S; s++) {
    stage[s] = (PipeStage){.rank = s % g.P,
                           .chunk = s / g.P,
                           .prev = s ? s - 1 : PIPE_NONE,
                           .next = s + 1 < S ? s + 1 : PIPE_NONE,
                           .model = s,
                           .replica = s,
                           .nmb = g.M,
                           .nin = s > 0,
                           .nout = s + 1 < S,
                           .tied = PIPE_NONE};
    stage[s].time[PIPE_F] = stage[s].time[PIPE_I] = stage[s].time[PIPE_W] = 2;
    stage[s].time[PIPE_B] = 4;
  }
  for (uint32_t r = 0; r < g.P; r++) {
    g.list[r] = need(malloc(sizeof(PipeInstr) * g.V * (3 * g.M + 1)));
    make_order(&g, argv[1], r);
  }
  Times want = run_clock(&g, stage, timed ? 1000000 : 1, send, false), got = {0};
  for (uint32_t r = 0; r < g.P; r++) {
    uint32_t live = 0;
    for (uint32_t i = 0; i < g.n[r]; i++) {
      live += g.list[r][i].op == PIPE_F;
      want.rank[r].inflight = live > want.rank[r].inflight ? live : want.rank[r].inflight;
      live -= g.list[r][i].op == (g.split ? PIPE_W : PIPE_B);
    }
    want.rank[r].bytes = sized ? 3221225472u + want.rank[r].inflight * 402653184ull : 0;
  }
  PipeSite site[PIPE_NOPS];
  for (uint32_t i = 0; i < PIPE_NOPS; i++)
    site[i] = (PipeSite){0, 7, 14 + 6 * i};
  char params[64];
  snprintf(params, sizeof params, "P=%u M=%u", g.P, g.M);
  PipeProgram p = {.magic = PIPE_MAGIC,
                   .abi = PIPE_ABI,
                   .name = argv[1],
                   .params = params,
                   .nrank = g.P,
                   .nstage = S,
                   .nmodel = S,
                   .nmb = g.M,
                   .nsite = PIPE_NOPS,
                   .nfile = 1,
                   .sized = sized,
                   .timed = timed,
                   .makespan = want.makespan,
                   .rank = want.rank,
                   .stage = stage,
                   .site = site,
                   .file = &file};
  SvgTrack track[2] = {{"Predicted", want.start, want.end, timed, 1}};
  int ntrack = 1;
  if (measured) {
    got = run_clock(&g, stage, 1000000, send, true);
    track[1] = track[0];
    track[1].scale = timed ? 1 : 1060000;
    track[0] = (SvgTrack){"Measured", got.start, got.end, 1, 1};
    ntrack = 2;
  }
  svg_draw(stdout, &p, track, ntrack, &(SvgOptions){0});
  int bad = fflush(stdout);
  if (measured)
    free_times(&got, g.P);
  free_times(&want, g.P);
  for (uint32_t r = 0; r < g.P; r++)
    free(g.list[r]);
  free(g.list), free(g.n), free(stage);
  return bad ? 1 : 0;
}
