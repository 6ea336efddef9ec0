/* SPDX-License-Identifier: MIT
 * Tests of the runtime on hand-made programs: engine_test CASE. A case prints what it has done and
 * seen, for FileCheck, and exits 1 if a result is wrong. Texts of errors are printed as they are,
 * so that the .test files match them whole. More than 800 lines: the cases share what runs and
 * tells. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "list_waits.h"
#include "make_program.h"
#include "pipe_run.h"
#include "run.h"
#include "seeded.h"
#include "tiny_model.h"

/* A watch for races sees them in few steps, and takes ten times as long. */
#ifdef __SANITIZE_THREAD__
enum { MUTANTS = 2000, STEPS = 500 };
#else
enum { MUTANTS = 20000, STEPS = 4000 };
#endif

static uint64_t random_state = 1;

static uint32_t below(uint32_t n) {
  random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)((random_state >> 33) % n);
}

/* Fills in the sizes of the uniform model. */
static MakeSpec sized(MakeSpec s) {
  Tiny t = {.nstage = 2, .uniform = 1};
  PrSizes z = tiny_sizes(&t, 0);
  s.sized = 1;
  s.act = z.act;
  s.gout = z.gout;
  s.boundary = z.boundary;
  s.weight = z.weight;
  s.grad = z.grad;
  s.opt = z.opt;
  s.work = z.work;
  return s;
}

static bool same_as_reference(PrRun *run, int uniform, uint64_t steps) {
  const PipeProgram *p = pr_program(run);
  TinyRef *ref = tiny_reference(p->nmodel, p->nmb, uniform, steps);
  bool same = true;
  double sum = 0;
  for (uint32_t s = 0; s < p->nstage; s++)
    same = same && !memcmp(pr_weight(run, s), ref->weight[p->stage[s].model], 40);
  for (uint32_t m = 0; m < p->nmb; m++) {
    same = same && pr_loss_mb(run, m) == ref->loss[m];
    sum += ref->loss[m];
  }
  same = same && pr_loss(run) == sum / p->nmb;
  tiny_reference_free(ref);
  return same;
}

/* Runs the program and compares with the oracle: 1 if it is as it should be. */
static bool runs_right(const MakeSpec *spec, const PrOptions *o, uint64_t steps, int shake) {
  Made *m = make(spec);
  Tiny *t = tiny_new(m->p.nmodel, spec->sized);
  t->shake = shake;
  PrModel model = tiny_model(t);
  PrRun *run;
  PrStatus st = pr_open(&run, &m->p, &model, o);
  bool right = !st;
  if (right)
    right = !pr_steps(run, steps / 2) && !pr_steps(run, steps - steps / 2) &&
            same_as_reference(run, spec->sized, steps);
  for (uint32_t r = 0; right && spec->sized && r < m->p.nrank; r++)
    right = pr_bytes(run, r) == m->p.rank[r].bytes && pr_host_bytes(run, r) == m->p.rank[r].host;
  right = right && atomic_load(&t->broken) == 0 && !*pr_error(run);
  if (!right)
    fprintf(stderr, "P=%u M=%u chunks=%u replicas=%u gpipe=%d split=%d sized=%d seed=%llu: %s\n",
            spec->nrank, spec->nmb, spec->chunks, spec->replicas, spec->gpipe, spec->split,
            spec->sized,
            o && o->engine ? (unsigned long long)*(const uint64_t *)o->engine_options : 0,
            *pr_error(run) ? pr_error(run) : "other result");
  pr_close(run);
  tiny_free(t);
  free_made(m);
  return right;
}

/* Every schedule, with and without split backward, sizes, barrier: bit for bit as the oracle. */
static void parity(void) {
  static const struct {
    uint32_t nrank, nmb, chunks, replicas;
    int gpipe;
  } shape[] = {{1, 1, 1, 0, 0}, {1, 5, 1, 0, 0}, {1, 4, 3, 0, 0}, {2, 1, 1, 0, 0},
               {2, 2, 1, 0, 0}, {4, 8, 1, 0, 0}, {4, 3, 1, 0, 0}, {3, 7, 1, 0, 1},
               {2, 4, 2, 0, 0}, {4, 8, 2, 0, 0}, {4, 8, 3, 0, 1}, {2, 2, 1, 2, 0},
               {4, 9, 1, 2, 0}, {3, 7, 1, 3, 1}, {2, 8, 2, 2, 0}, {4, 16, 2, 4, 1}};
  uint32_t n = 0, right = 0;
  for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
    for (int split = 0; split <= 3; split += split ? 2 : 1)
      for (int mode = 0; mode < 8; mode++) {
        MakeSpec s = {.nrank = shape[i].nrank,
                      .nmb = shape[i].nmb,
                      .chunks = shape[i].chunks,
                      .replicas = shape[i].replicas,
                      .gpipe = shape[i].gpipe,
                      .offload = mode >> 2,
                      .split = split};
        s = mode & 1 ? sized(s) : s;
        PrOptions o = {.free_running = mode >> 1 & 1, .trace_steps = mode == 3 ? 2 : 0};
        n++;
        right += runs_right(&s, &o, 5, 0);
      }
  printf("%u of %u runs are bit for bit as the oracle\n", right, n);
  EXPECT(right == n);
}

/* The same with ops of odd durations, so that threads meet in many orders. */
static void shaken(void) {
  uint32_t n = 60, right = 0;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t p = 1 + below(5);
    MakeSpec s = {.nrank = p,
                  .nmb = p * (1 + below(3)),
                  .chunks = 1 + below(2),
                  .replicas = 1 + below(p),
                  .gpipe = below(3) == 0,
                  .offload = (int)below(2),
                  .split = (int)below(3)};
    s.nmb *= s.replicas;
    PrOptions o = {.free_running = (int)below(2), .trace_steps = below(2)};
    right += runs_right(&s, &o, 4, 1);
  }
  printf("%u of %u shaken runs are bit for bit as the oracle\n", right, n);
  EXPECT(right == n);
}

/* One thread, other orders: 200 seeds, all the same result. */
static void seeds(void) {
  uint32_t right = 0;
  for (uint64_t seed = 1; seed <= 200; seed++) {
    MakeSpec s = {.nrank = 1 + below(6), .nmb = 1, .chunks = 1 + below(2), .split = (int)below(3)};
    s.offload = (int)below(2);
    s.replicas = 1 + below(s.nrank);
    s.nmb = s.nrank * s.replicas * (1 + below(3));
    PrOptions o = {SEEDED(seed)};
    right += runs_right(&s, &o, 3, 0);
  }
  printf("%u of 200 seeds give the result of the oracle\n", right);
  EXPECT(right == 200);
}

static void large(void) {
  MakeSpec s = {.nrank = 64, .nmb = 128, .chunks = 1};
  PrOptions o = {0};
  EXPECT(runs_right(&s, &o, 2, 0));
  s.replicas = 16;
  EXPECT(runs_right(&s, &o, 2, 0));
  s = (MakeSpec){.nrank = 4, .nmb = 8, .chunks = 1};
  for (; s.replicas < 4; s.replicas += 2)
    for (o.free_running = 0; o.free_running < 2; o.free_running++)
      EXPECT(runs_right(&s, &o, s.replicas ? STEPS / 4 : STEPS, 0));
  printf("64 ranks, and %d steps with and without a barrier: %s\n", STEPS,
         wrong ? "wrong" : "right");
}

/* Errors */

/* Opens and runs; prints what comes of it. */
static void tell(const char *what, const Made *m, Tiny *t, const PrOptions *o) {
  static const char *const name[] = {"PR_OK",         "PR_E_ARG",      "PR_E_SIZE",
                                     "PR_E_MEMORY",   "PR_E_MODEL",    "PR_E_STALL",
                                     "PR_E_MISMATCH", "PR_E_DEADLINE", "PR_E_IO"};
  PrModel model = tiny_model(t);
  PrRun *run;
  PrStatus st = pr_open(&run, &m->p, &model, o);
  bool opened = !st;
  if (opened)
    st = pr_steps(run, 6);
  printf("%s: %s: %s\n", what, name[st], pr_error(run));
  EXPECT(pr_steps(run, 1) == st); /* a failure stays */
  atomic_store(&t->release, 1);
  pr_close(run);
  EXPECT(atomic_load(&t->broken) == 0);
}

/* Both engines, since each finds its own way into the stall. */
static void tell_both(const char *what, const Made *m, uint32_t nstage) {
  for (uint64_t seed = 0; seed < 2; seed++) {
    Tiny *t = tiny_new(nstage, 0);
    PrOptions o = seeded_or_threads((PrOptions){0}, &seed);
    tell(what, m, t, &o);
    tiny_free(t);
  }
}

/* Each rank takes every microbatch through one stage, then through its next: receive, compute, send
 * with nothing in between. With three ranks and chunks the forward sends close a ring. */
static Made *phases(const MakeSpec *s) {
  uint32_t n = s->nrank * s->chunks;
  MakeList *l = calloc(s->nrank, sizeof *l);
  if (!l)
    abort();
  for (uint32_t pass = 0; pass < 2 * n; pass++) {
    bool back = pass >= n;
    uint32_t stage = back ? 2 * n - 1 - pass : pass;
    MakeList *k = &l[stage % s->nrank];
    for (uint32_t m = 0; m < s->nmb; m++) {
      if (stage != (back ? n - 1 : 0))
        list_add(k, back ? PIPE_RECV_B : PIPE_RECV_F, stage, m);
      list_add(k, back ? PIPE_B : PIPE_F, stage, m);
      if (stage != (back ? 0 : n - 1))
        list_add(k, back ? PIPE_SEND_B : PIPE_SEND_F, stage, m);
    }
  }
  for (uint32_t stage = 0; stage < n; stage++)
    list_add(&l[stage % s->nrank], PIPE_U, stage, PIPE_NONE);
  Made *m = make_program(s, l);
  free_lists(l, s->nrank);
  return m;
}

static void stall(void) {
  const MakeSpec two = {.nrank = 2, .nmb = 2, .chunks = 1};
  /* The unfused exchange of 1F1B: both ranks send first, and each send waits for its receive. */
  const char *const crossed[] = {"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0U",
                                 "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1U"};
  Made *m = make_text(&two, crossed);
  tell_both("crossed sends", m, 2);
  free_made(m);

  /* Rank 1 wants the transfers of two peers in the other order than those want it to. */
  const MakeSpec three = {.nrank = 3, .nmb = 2, .chunks = 1};
  const char *const turned[] = {
      "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0U",
      "1RECV_F0 1F0 1SEND_F0 1RECV_B0 1B0 1SEND_B0 1RECV_F1 1F1 1SEND_F1 1RECV_B1 1B1 1SEND_B1 1U",
      "2RECV_F0 2F0 2RECV_F1 2F1 2B0 2SEND_B0 2B1 2SEND_B1 2U"};
  m = make_text(&three, turned);
  tell_both("three ranks", m, 3);
  free_made(m);

  /* Cycles of three and, cut short in the text, of nine. */
  const MakeSpec ring3 = {.nrank = 3, .nmb = 3, .chunks = 2};
  m = phases(&ring3);
  tell_both("ring of three", m, 6);
  free_made(m);
  const MakeSpec ring9 = {.nrank = 9, .nmb = 9, .chunks = 2};
  m = phases(&ring9);
  tell_both("ring of nine", m, 18);
  free_made(m);

  /* Two replicas on two ranks in opposite directions. The ranks come to their sums in different
   * orders; or one comes to a sum before it sends what the other needs to come there. */
  const MakeSpec replicas = {.nrank = 2, .nmb = 2, .chunks = 1, .replicas = 2};
  const char *const sums[] = {
      "0F0 0SEND_F0 0RECV_B0 0B0 3RECV_F1 3F1 3B1 3SEND_B1 0REDUCE 3REDUCE 0U 3U",
      "1RECV_F0 1F0 1B0 1SEND_B0 2F1 2SEND_F1 2RECV_B1 2B1 1REDUCE 2REDUCE 1U 2U"};
  m = make_text(&replicas, sums);
  tell_both("crossed sums", m, 2);
  free_made(m);
  const char *const early[] = {
      "0F0 0SEND_F0 0RECV_B0 0B0 3RECV_F1 3F1 3B1 0REDUCE 3SEND_B1 3REDUCE 0U 3U",
      "1RECV_F0 1F0 1B0 1SEND_B0 2F1 2SEND_F1 2RECV_B1 2B1 2REDUCE 1REDUCE 1U 2U"};
  m = make_text(&replicas, early);
  tell_both("early sum", m, 2);
  free_made(m);

  /* Rank 1 never sends back what rank 0 waits for: that is seen in the table already. */
  const char *const left_out[] = {"0F0 0SEND_F0 0RECV_B0 0B0 0U", "1RECV_F0 1F0 1B0 1U"};
  const MakeSpec one = {.nrank = 2, .nmb = 1, .chunks = 1};
  m = make_text(&one, left_out);
  tell_both("left out", m, 2);
  free_made(m);
}

/* 1F1B on 64 ranks with one rank's exchange crossed: found at once, not by timeout. */
static void stall_large(void) {
  MakeSpec s = {.nrank = 64, .nmb = 64, .chunks = 1};
  MakeList *l = make_order(&s);
  /* Rank 40: the first SEND_B moves up above the RECV_F before it, in the COMM stream. */
  MakeList *k = &l[40];
  for (uint32_t i = 1; i < k->n; i++)
    if (k->op[i].op == PIPE_SEND_B) {
      uint32_t j = i - 1;
      while (k->op[j].op != PIPE_RECV_F)
        j--;
      MakeOp recv = k->op[j];
      memmove(&k->op[j], &k->op[j + 1], (i - j) * sizeof *k->op);
      k->op[i] = recv;
      break;
    }
  Made *m = make_program(&s, l);
  Tiny *t = tiny_new(64, 0);
  PrOptions o = {0};
  tell("64 ranks", m, t, &o);
  tiny_free(t);
  free_made(m);
  free_lists(l, 64);
}

static void mismatch(void) {
  const MakeSpec two = {.nrank = 2, .nmb = 2, .chunks = 1};
  const char *const swapped[] = {"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0U",
                                 "1RECV_F1 1F1 1RECV_F0 1F0 1B0 1SEND_B0 1B1 1SEND_B1 1U"};
  Made *m = make_text(&two, swapped);
  tell_both("swapped receive", m, 2);
  free_made(m);
}

static void callback(void) {
  MakeSpec s = {.nrank = 4, .nmb = 8, .chunks = 1, .split = 1};
  Made *m = make(&s);
  PrOptions o;
  static const struct {
    PipeOp op;
    uint32_t stage, mb;
  } bad[] = {{PIPE_F, 2, 5}, {PIPE_I, 0, 7}, {PIPE_W, 3, 0}, {PIPE_U, 1, PIPE_NONE}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    for (uint64_t seed = 0; seed < 2; seed++) {
      o = seeded_or_threads((PrOptions){0}, &seed);
      Tiny *t = tiny_new(4, 0);
      t->code = 7 + (int)i;
      t->bad_op = bad[i].op;
      t->bad_stage = bad[i].stage;
      t->bad_mb = bad[i].mb;
      t->bad_step = i;
      tell("callback", m, t, &o);
      tiny_free(t);
    }
  Tiny *t = tiny_new(4, 0);
  t->code = -3;
  t->bad_op = PIPE_NOPS;
  t->bad_stage = 2;
  o = (PrOptions){0};
  tell("init", m, t, &o);
  tiny_free(t);
  free_made(m);

  s.replicas = 2;
  m = make(&s);
  for (uint64_t seed = 0; seed < 2; seed++) {
    o = seeded_or_threads((PrOptions){0}, &seed);
    t = tiny_new(4, 0);
    t->code = 5;
    t->bad_op = PIPE_REDUCE;
    t->bad_stage = 1;
    tell("reduce", m, t, &o);
    tiny_free(t);
  }
  free_made(m);
}

/* Environment: ENGINE_DEADLINE, in seconds. */
static void deadline(void) {
  const char *limit = getenv("ENGINE_DEADLINE");
  if (!limit)
    limit = "2";
  /* What the program says, then what the environment does. */
  const char *const says[] = {NULL, limit, "soon", "0", "-1"};
  MakeSpec s = {.nrank = 3, .nmb = 4, .chunks = 1};
  Made *m = make(&s);
  Tiny *t;
  PrOptions o = {.deadline_s = strtod(limit, NULL)};
  for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
    t = tiny_new(3, 0);
    t->hang = 1;
    t->bad_op = PIPE_B;
    t->bad_stage = 1;
    t->bad_mb = 2;
    t->bad_step = 3;
    if (says[i])
      setenv("PIPE_DEADLINE", says[i], 1);
    tell(says[i] ? says[i] : "deadline", m, t, &o);
    tiny_free(t);
    o.deadline_s = 0;
  }
  unsetenv("PIPE_DEADLINE");
  t = tiny_new(3, 0);
  for (int timed = 0; timed < 2; timed++) {
    PrRun *run;
    PrModel model = tiny_model(t);
    m->p.timed = (uint32_t)timed;
    EXPECT(pr_open(&run, &m->p, &model, &o) == PR_OK);
    printf("by itself: %g s\n", (double)run->limit_ns / 1e9);
    pr_close(run);
  }
  tiny_free(t);
  /* One that is long enough does not get in the way. */
  o.deadline_s = 600;
  EXPECT(runs_right(&s, &o, 20, 1));
  o.free_running = 1;
  EXPECT(runs_right(&s, &o, 20, 1));
  free_made(m);
}

/* What another process says of where it is may be anything: no table is read behind its end. */
static void places(void) {
  MakeSpec s = {.nrank = 4, .nmb = 8, .chunks = 2};
  Made *m = make(&s);
  Tiny *t = tiny_new(m->p.nmodel, 0);
  PrModel model = tiny_model(t);
  PrRun *run;
  EXPECT(pr_open(&run, &m->p, &model, NULL) == PR_OK);
  for (uint32_t n = 0; n < 20000; n++) {
    PrPlace at[4];
    char text[PR_TEXT];
    for (uint32_t *w = (uint32_t *)at; w < (uint32_t *)(at + 4); w++)
      *w = below(4) ? below(40) : (uint32_t)below(UINT32_MAX) << below(2);
    for (uint32_t r = 0; r < 4; r++)
      at[r].condition = below(8) ? PR_ANSWERS : PR_IS_SILENT;
    pr_blame(run, at, text, sizeof text);
    pr_fail_checkpoint(run, at);
  }
  printf("%s\n", pr_failed(run) ? "told" : "not told");
  pr_close(run);
  tiny_free(t);
  free_made(m);
}

static void refused(void) {
  MakeSpec s = sized((MakeSpec){.nrank = 2, .nmb = 2, .chunks = 1});
  Tiny *t = tiny_new(2, 1);
  PrOptions o = {0};
  Made *m = make(&s);
  m->p.magic = 1;
  tell("magic", m, t, &o);
  m->p.magic = PIPE_MAGIC;
  m->p.abi = PIPE_ABI + 1;
  tell("abi", m, t, &o);
  m->p.abi = PIPE_ABI;
  m->p.nunit_time = 2;
  tell("times", m, t, &o);
  m->p.nunit_time = 0;
  wait_of(&m->rank[1], &m->instr[1][1], PIPE_COMM)->count = 2;
  tell("wait", m, t, &o);
  free_made(m);

  s.weight += 8;
  m = make(&s);
  tell("size", m, t, &o);
  free_made(m);
  s.weight -= 8;
  m = make(&s);
  m->rank[1].bytes += 64;
  tell("bound", m, t, &o);
  free_made(m);

  m = make(&s);
  for (uint32_t i = 0; i < m->rank[0].ninstr; i++)
    if (m->instr[0][i].op == PIPE_B)
      cut_waits(&m->rank[0], i);
  tell("missing wait", m, t, &o);
  free_made(m);

  MakeSpec split = {.nrank = 2, .nmb = 2, .chunks = 1, .split = 1};
  m = make(&split);
  PrModel model = tiny_model(t);
  model.backward_weight = NULL;
  PrRun *run;
  EXPECT(pr_open(&run, &m->p, &model, NULL) == PR_E_ARG);
  printf("no W: %s\n", pr_error(run));
  pr_close(run);
  model = tiny_model(t);
  model.identity = "two\nlines";
  EXPECT(pr_open(&run, &m->p, &model, NULL) == PR_E_ARG);
  printf("identity: %s\n", pr_error(run));
  pr_close(run);
  EXPECT(pr_open(&run, NULL, &model, NULL) == PR_E_ARG);
  printf("no program: %s\n", pr_error(run));
  EXPECT(pr_steps(run, 1) == PR_E_ARG && pr_weight(run, 0) == NULL && pr_bytes(run, 0) == 0);
  EXPECT(pr_trace_steps(run) == 0);
  pr_close(run);
  EXPECT(pr_open(&run, &m->p, NULL, NULL) == PR_E_ARG);
  printf("no model: %s\n", pr_error(run));
  pr_close(run);
  pr_close(NULL);
  tiny_free(t);
  free_made(m);
}

/* Ops that are said to be one action; the list that is good runs, the ops one by one and as a
 * whole. */
static void refused_actions(void) {
  static const char *const lists[] = {"0F0 0F1 0SEND_F0 0SEND_F1 0RECV_B1 0B1 0RECV_B0 0B0 0U",
                                      "1RECV_F0 1RECV_F1 1F0 1F1 1B1 1SEND_B1 1B0 1SEND_B0 1U"};
  static const char *const cases[] = {
      "0 0 1 two forwards", "0 0 2 too many",    "0 1 1 with a send",
      "1 1 1 a receive",    "1 2 1 a wait",      "1 3 1 one stash",
      "1 6 1 an update",    "1 8 1 with itself", "0 7 1 with its gradient"};
  const MakeSpec s = {.nrank = 2, .nmb = 2, .chunks = 1};
  PrOptions o = {.free_running = 1};
  Tiny *t = tiny_new(2, 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Made *m = make_text(&s, lists);
    const char *c = cases[i];
    m->instr[c[0] - '0'][c[2] - '0'].group = (uint16_t)(c[4] - '0');
    if (i > 0)
      tell(c + 6, m, t, &o);
    for (int whole = 0; i == 0 && whole < 2; whole++) {
      PrModel model = tiny_model(t);
      model.overlap = whole ? model.overlap : NULL;
      PrRun *run;
      bool st = pr_open(&run, &m->p, &model, &o) || pr_steps(run, 3);
      printf("%s: %s\n", c + 6, st ? pr_error(run) : "good");
      EXPECT(!st && same_as_reference(run, 0, 3));
      pr_close(run);
    }
    free_made(m);
  }
  tiny_free(t);
}

static PipeInstr *find(const Made *m, PipeOp op, uint32_t row) {
  const uint32_t r = m->stage[row].rank;
  PipeInstr *c = m->instr[r];
  while (c->op != op || c->stage != row)
    c++;
  return c;
}

/* What copies add to a table: OFF after each F, LOAD before each B. */
static void refused_copies(void) {
  enum { RACE, LATE, TWICE, LOST, AWAY, KEEP, CLASS, HOST, BELOW, N };
  static const char *const name[N] = {"race", "late",  "twice", "lost", "away",
                                      "keep", "class", "host",  "below"};
  MakeSpec s = sized((MakeSpec){.nrank = 1, .nmb = 2, .chunks = 1, .offload = 1});
  Tiny *t = tiny_new(1, 1);
  PrOptions o = {0};
  for (int i = 0; i < N; i++) {
    Made *m = make(&s);
    PipeInstr *off = find(m, PIPE_OFF, 0), *load = find(m, PIPE_LOAD, 0), *b = find(m, PIPE_B, 0);
    PipeRank *rank = &m->rank[0];
    switch (i) {
    case RACE: wait_of(rank, off, PIPE_COMPUTE)->count = 0; break;
    case LATE: cut_waits(rank, (uint32_t)(b - rank->instr)); break;
    case TWICE: load->op = PIPE_OFF; break;
    case LOST: off->op = PIPE_LOAD; break;
    case AWAY: /* the first microbatch: F OFF LOAD B, now F OFF B LOAD */
      swap_rows(rank, (uint32_t)(load - rank->instr));
      wait_of(rank, load, PIPE_COPY)->count = 1;
      break;
    case KEEP: load->away = load->act; break;
    case CLASS: off->act = off->away; break;
    case HOST: m->rank[0].host += 64; break;
    default: wait_of(rank, off, PIPE_COMPUTE)->count++; break;
    }
    tell(name[i], m, t, &o);
    free_made(m);
  }
  tiny_free(t);
}

/* What replicas add to a table: two of them on two ranks, rows 0 and 1, 2 and 3. */
static void refused_replicas(void) {
  enum {
    NMODEL,
    MODEL,
    SHARE,
    GAP,
    ALONE,
    FALLING,
    SAME,
    NO_WAIT,
    NO_SUM,
    TWICE,
    PEER,
    SLOT,
    MB,
    N
  };
  static const char *const name[N] = {"nmodel",  "model",     "share",   "gap",    "alone",
                                      "falling", "same rank", "no wait", "no sum", "twice",
                                      "peer",    "slot",      "mb"};
  const MakeSpec s = {.nrank = 2, .nmb = 4, .chunks = 1, .replicas = 2};
  PrOptions o = {0};
  Tiny *t = tiny_new(2, 0);
  for (int i = 0; i < N; i++) {
    Made *m = make(&s);
    PipeStage *g = m->stage;
    PipeInstr *c;
    switch (i) {
    case NMODEL: m->p.nmodel = 0; break;
    case MODEL: g[2].model = 1; break;
    case SHARE: g[3].nmb = 1; break;
    case GAP: g[2].mb0 = g[3].mb0 = 3, g[2].nmb = g[3].nmb = 1; break;
    case ALONE: g[0].replica = 0; break;
    case FALLING: g[2].replica = 2; break;
    case SAME: g[2].rank = 0; break;
    case NO_WAIT:
      c = find(m, PIPE_REDUCE, 2);
      wait_of(&m->rank[m->stage[2].rank], c, PIPE_COMPUTE)->count = 0;
      break;
    case NO_SUM:
      for (uint32_t at = 0; at < m->rank[0].ninstr; at++)
        if (m->instr[0][at].op == PIPE_U)
          cut_waits(&m->rank[0], at);
      break;
    case TWICE: find(m, PIPE_REDUCE, 3)->stage = 0; break;
    case PEER: find(m, PIPE_REDUCE, 2)->peer = 0; break;
    case SLOT: find(m, PIPE_REDUCE, 2)->in = 0; break;
    default: find(m, PIPE_F, 2)->mb = 1; break;
    }
    tell(name[i], m, t, &o);
    free_made(m);
  }
  Made *m = make(&s);
  PrModel model = tiny_model(t);
  model.reduce = NULL;
  PrRun *run;
  EXPECT(pr_open(&run, &m->p, &model, NULL) == PR_E_ARG);
  printf("no reduce: %s\n", pr_error(run));
  pr_close(run);
  tiny_free(t);
  free_made(m);
}

/* Updates within the step. The first two are right; the model sees that first_grad comes anew after
 * a U. */
static void refused_updates(void) {
  static const struct {
    const char *name, *text[2];
  } one[] = {{"two updates", {"0F0 0B0 0U0 0F1 0B1 0U"}},
             {"stale", {"0F0 0F1 0B0 0U0 0B1 0U1"}},
             {"no gradient", {"0F0 0B0 0U 0U 0F1 0B1 0U"}},
             {"too early", {"0F0 0U 0B0 0F1 0B1 0U"}},
             {"none after the last", {"0F0 0B0 0U 0F1 0B1"}},
             {"label", {"0F0 0B0 0U1 0F1 0B1 0U"}},
             {"label beyond", {"0F0 0B0 0U2 0F1 0B1 0U"}}},
    two[] = {{"two sums",
              {"0F0 0SEND_F0 3RECV_F2 0RECV_B0 0B0 3F2 3B2 3SEND_B2 0REDUCE 3REDUCE 0U 3U "
               "0F1 0SEND_F1 3RECV_F3 0RECV_B1 0B1 3F3 3B3 3SEND_B3 0REDUCE 3REDUCE 0U 3U",
               "1RECV_F0 2F2 2SEND_F2 1F0 1B0 1SEND_B0 2RECV_B2 2B2 2REDUCE 1REDUCE 1U 2U "
               "1RECV_F1 2F3 2SEND_F3 1F1 1B1 1SEND_B1 2RECV_B3 2B3 2REDUCE 1REDUCE 1U 2U"}},
             {"after the sum",
              {"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0REDUCE 0RECV_B1 0B1 0U "
               "3RECV_F2 3F2 3B2 3SEND_B2 3RECV_F3 3F3 3B3 3SEND_B3 3REDUCE 3U",
               "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1REDUCE 1U "
               "2F2 2SEND_F2 2F3 2SEND_F3 2RECV_B2 2B2 2RECV_B3 2B3 2REDUCE 2U"}},
             {"uneven",
              {"0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE 0U 0F1 0SEND_F1 0RECV_B1 0B1 0REDUCE 0U "
               "3RECV_F2 3F2 3B2 3SEND_B2 3RECV_F3 3F3 3B3 3SEND_B3 3REDUCE 3U",
               "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1REDUCE 1U "
               "2F2 2SEND_F2 2F3 2SEND_F3 2RECV_B2 2B2 2RECV_B3 2B3 2REDUCE 2U"}}};
  const MakeSpec alone = {.nrank = 1, .nmb = 2, .chunks = 1},
                 replicas = {.nrank = 2, .nmb = 4, .chunks = 1, .replicas = 2};
  for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
    Made *m = make_text(&alone, one[i].text);
    tell_both(one[i].name, m, 1);
    free_made(m);
  }
  for (size_t i = 0; i < sizeof two / sizeof *two; i++) {
    Made *m = make_text(&replicas, two[i].text);
    tell_both(two[i].name, m, 2);
    free_made(m);
  }
}

/* Tables with one to three fields changed at random. What is let in must run without touching what
 * it may not (the sanitizers watch), and if it ends well, it must have computed the right thing. */
static void mutants(void) {
  uint32_t n = MUTANTS, refuse = 0, fail = 0, reduce = 0, fine = 0;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t p = 1 + below(3);
    MakeSpec s = {
        .nrank = p, .nmb = p * (1 + below(2)), .chunks = 1 + below(2), .split = (int)below(3)};
    s.replicas = below(2) ? 1 + below(p) : 1;
    s.nmb *= s.replicas;
    s.offload = (int)below(2);
    s = below(2) ? sized(s) : s;
    Made *m = make(&s);
    for (uint32_t k = 1 + below(3); k > 0; k--) {
      uint32_t r = below(p), at = below(m->rank[r].ninstr + 1);
      if (at == m->rank[r].ninstr)
        continue;
      uint32_t word = below(4) ? below(6) : below(UINT32_MAX);
      PipeRank *rank = &m->rank[r];
      PipeWait *wait = (PipeWait *)(uintptr_t)&rank->wait[below(rank->nwait ? rank->nwait : 1)];
      switch (below(15)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        ((uint32_t *)(void *)&m->instr[r][at])[below(sizeof(PipeInstr) / sizeof word)] = word;
        break;
      case 5: wait->count = below(at + 1); break;
      case 13: wait->queue = below(PIPE_NSTREAMS + 1); break;
      case 12: m->instr[r][at].group = (uint16_t)(1 + below(2)); break;
      case 6:
        if (below(2))
          wait->count -= wait->count > 0;
        else if (rank->nwait > 1)
          cut_wait(rank, (uint32_t)(wait - rank->wait));
        break;
      case 14: /* a sum, if there is one */
        while (at + 2 < rank->ninstr && rank->instr[at].op != PIPE_REDUCE)
          at++; /* fall through */
      case 7:
        if (at + 1 < rank->ninstr)
          swap_rows(rank, at);
        break;
      case 8:
        if (m->rank[r].npool)
          ((uint32_t *)(void *)&m->pool[r][below(m->rank[r].npool)])[below(8)] = word;
        break;
      case 9: ((uint32_t *)(void *)&m->stage[below(m->p.nstage)])[below(30)] = word; break;
      case 10: ((uint32_t *)(void *)m->site)[below(3 * m->p.nsite)] = word; break;
      case 11: {
        uint32_t *field[] = {&m->p.nrank, &m->p.nmb,         &m->p.sized,       &m->p.nmodel,
                             &m->p.timed, &m->rank[r].nslot, &m->rank[r].ninstr};
        uint32_t *f = field[below(7)], most = *f;
        if (f == &m->p.nrank || f == &m->rank[r].ninstr)
          *f = below(most + 1); /* lengths of arrays: only shorter */
        else
          *f = word;
        break;
      }
      }
    }
    Tiny *t = tiny_new(p * s.chunks, s.sized);
    PrModel model = tiny_model(t);
    model.overlap = i & 2 ? model.overlap : NULL;
    const uint64_t seed = i % 4 ? 1 + i : 0;
    PrOptions o = seeded_or_threads((PrOptions){.trace_steps = i & 1}, &seed);
    PrRun *run;
    PrStatus st = pr_open(&run, &m->p, &model, &o);
    if (st) {
      refuse++;
      EXPECT(*pr_error(run));
    } else if ((st = pr_steps(run, 2))) {
      fail++;
      reduce += strstr(pr_error(run), "REDUCE") != NULL;
      EXPECT(st == PR_E_STALL || st == PR_E_MISMATCH);
    } else {
      fine++;
      EXPECT(same_as_reference(run, s.sized, 2));
    }
    EXPECT(atomic_load(&t->broken) == 0);
    pr_close(run);
    tiny_free(t);
    m->p.nrank = p;
    free_made(m);
    if (wrong) {
      fprintf(stderr, "mutant %u\n", i);
      break;
    }
  }
  printf("%u mutants: %u refused, %u stalled or mismatched (%u of them in a REDUCE), %u right\n", n,
         refuse, fail, reduce, fine);
  EXPECT(refuse > n / 2 && fail > reduce && reduce > 0 && fine > n / 20);
}

/* Allocation: this program has the C library's functions pass through here, to count the calls and
 * to have the one numbered fail_at fail. Not under a sanitizer, which has its own. */
static atomic_ulong nalloc, fail_at;

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZER
#endif
#endif
#if defined(__GLIBC__) && !defined(SANITIZER) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
static bool refuse_memory(void) {
  unsigned long n = atomic_fetch_add(&nalloc, 1) + 1;
  if (n == atomic_load(&fail_at))
    errno = ENOMEM;
  return n == atomic_load(&fail_at);
}

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n) { return refuse_memory() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return refuse_memory() ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return refuse_memory() ? NULL : __libc_realloc(p, n); }
void *aligned_alloc(size_t align, size_t n) {
  return refuse_memory() ? NULL : __libc_memalign(align, n);
}
#endif

static void allocation(void) {
  MakeSpec s = sized((MakeSpec){.nrank = 4, .nmb = 8, .chunks = 2, .split = 1});
  Made *m = make(&s);
  Tiny *t = tiny_new(8, 1);
  PrModel model = tiny_model(t);
  PrOptions o = {.trace_steps = 3, .deadline_s = 600};
  PrRun *run;
  unsigned long before = atomic_load(&nalloc);
  EXPECT(!pr_open(&run, &m->p, &model, &o));
  unsigned long in_open = atomic_load(&nalloc) - before;
  EXPECT(in_open > 4); /* else nothing is counted */
  before = atomic_load(&nalloc);
  EXPECT(!pr_steps(run, 1) && !pr_steps(run, 200));
  unsigned long in_steps = atomic_load(&nalloc) - before;
  printf("allocations: some in pr_open, %lu in 201 steps\n", in_steps);
  EXPECT(in_steps == 0);
  pr_close(run);
  tiny_free(t);
  free_made(m);
}

/* Each allocation that pr_open makes fails once: it says so, and closes. */
static void memory(void) {
  MakeSpec s = sized((MakeSpec){.nrank = 3, .nmb = 3, .chunks = 2, .split = 1});
  Made *m = make(&s);
  Tiny *t = tiny_new(6, 1);
  PrModel model = tiny_model(t);
  PrOptions o = {.trace_steps = 2};
  PrStatus st = PR_E_MEMORY;
  unsigned failures = 0;
  for (unsigned long k = 1; st && k < 1000; k++) {
    PrRun *run;
    atomic_store(&fail_at, atomic_load(&nalloc) + k);
    st = pr_open(&run, &m->p, &model, &o);
    atomic_store(&fail_at, 0);
    if (st) {
      failures++;
      EXPECT(st == PR_E_MEMORY && *pr_error(run) && pr_steps(run, 1) == PR_E_MEMORY);
    } else {
      EXPECT(!pr_steps(run, 2) && same_as_reference(run, 1, 2));
    }
    pr_close(run);
  }
  printf("memory: refused %u times, then opened: %s\n", failures, wrong || st ? "wrong" : "right");
  EXPECT(!st && failures > 20);
  tiny_free(t);
  free_made(m);
}

/* Trace */

typedef struct Steps {
  uint64_t n, bad;
  PrRun *run;
  double last;
} Steps;

static void on_step(void *arg, uint64_t step, double loss) {
  Steps *s = arg;
  s->bad += step != s->n || loss != pr_loss(s->run);
  s->n++;
  s->last = loss;
}

static void trace(void) {
  for (int free_running = 0; free_running < 2; free_running++) {
    MakeSpec s = {.nrank = 3, .nmb = 6, .chunks = 2, .split = 1};
    Made *m = make(&s);
    Tiny *t = tiny_new(6, 0);
    t->shake = 1;
    PrModel model = tiny_model(t);
    Steps steps = {0};
    PrOptions o = {
        .trace_steps = 3, .free_running = free_running, .on_step = on_step, .arg = &steps};
    PrRun *run;
    EXPECT(!pr_open(&run, &m->p, &model, &o));
    steps.run = run;
    PrMeasure z;
    EXPECT(pr_trace_steps(run) == 0 && pr_measure(run, &z) == PR_E_ARG && !pr_trace(run, 0, 0));
    EXPECT(pr_loss(run) != pr_loss(run)); /* NaN */
    EXPECT(!pr_steps(run, 1) && pr_trace_steps(run) == 1);
    EXPECT(!pr_steps(run, 10) && pr_trace_steps(run) == 3);
    EXPECT(steps.n == 11 && steps.bad == 0 && steps.last == pr_loss(run));
    EXPECT(!pr_trace(run, 3, 0) && !pr_trace(run, 0, 3));
    uint64_t zero = UINT64_MAX;
    double busy = 0, span = 0;
    for (uint32_t k = 0; k < 3; k++) {
      uint64_t first = UINT64_MAX, last = 0;
      for (uint32_t r = 0; r < 3; r++) {
        const PrSpan *a = pr_trace(run, k, r);
        uint64_t end[2][64] = {{0}};
        uint32_t n[2] = {1, 1};
        for (uint32_t i = 0; i < m->rank[r].ninstr; i++) {
          const PipeInstr *c = &m->instr[r][i];
          bool comm = pipe_op_info[c->op].comm;
          EXPECT(a[i].start_ns <= a[i].end_ns);
          EXPECT(a[i].start_ns >= end[comm][n[comm] - 1]);            /* streams are FIFO */
          for (uint32_t w = c->waits; w < c->waits + c->nwait; w++) { /* and waits hold */
            const PipeWait wait = m->rank[r].wait[w];
            EXPECT(a[i].start_ns >= end[wait.queue == PIPE_COMM][wait.count]);
          }
          end[comm][n[comm]++] = a[i].end_ns;
          zero = a[i].start_ns < zero ? a[i].start_ns : zero;
          first = a[i].start_ns < first ? a[i].start_ns : first;
          last = a[i].end_ns > last ? a[i].end_ns : last;
          busy += comm ? 0 : (double)(a[i].end_ns - a[i].start_ns);
          for (uint32_t q = 0, found = 0; comm && q < 3; q++)
            for (uint32_t j = 0; q == c->peer && j < m->rank[q].ninstr && !found; j++) {
              const PipeInstr *d = &m->instr[q][j];
              bool send = pipe_is_send(c->op);
              found = d->op == c->op + (send ? 1 : -1) && d->mb == c->mb &&
                      d->stage == (c->op == PIPE_SEND_F || c->op == PIPE_RECV_B ? c->stage + 1
                                                                                : c->stage - 1);
              if (found) /* both ends of a transfer have one span */
                EXPECT(!memcmp(&pr_trace(run, k, q)[j], &a[i], sizeof *a));
            }
        }
      }
      span += (double)(last - first);
    }
    EXPECT(zero == 0);
    EXPECT(!pr_measure(run, &z));
    EXPECT(z.makespan_ns == span / 3 && z.busy_ns == busy / 3);
    EXPECT(z.bubble > 0 && z.bubble < 1);
    pr_close(run);
    tiny_free(t);
    free_made(m);
  }
  printf("traces of 3 steps, with and without a barrier: %s\n", wrong ? "wrong" : "right");
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } test[] = {{"parity", parity},
              {"shaken", shaken},
              {"seeds", seeds},
              {"large", large},
              {"stall", stall},
              {"stall-large", stall_large},
              {"mismatch", mismatch},
              {"callback", callback},
              {"deadline", deadline},
              {"places", places},
              {"refused", refused},
              {"mutants", mutants},
              {"allocation", allocation},
              {"memory", memory},
              {"trace", trace},
              {"refused-replicas", refused_replicas},
              {"refused-copies", refused_copies},
              {"refused-updates", refused_updates},
              {"refused-actions", refused_actions}};
  size_t i = 0, n = sizeof test / sizeof *test;
  while (argc == 2 && i < n && strcmp(argv[1], test[i].name))
    i++;
  if (argc != 2 || i == n) {
    fprintf(stderr, "usage: engine_test CASE\n");
    return 2;
  }
  test[i].run();
  return wrong;
}
