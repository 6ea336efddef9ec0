/* SPDX-License-Identifier: MIT
 * Side ops carry data here, so that one that runs too early, too late, twice or in another's buffer
 * changes the result: UNSHARD fills the buffer that F, B and I read the weights from, RESHARD
 * spoils it; EVICT moves a stash into its buffer and spoils the stash, RESTORE brings it back; MASK
 * scrambles the gradients, and U expects that. For schedules of the library, with random costs and
 * streams, all engines train bit for bit as they do without side ops. Every buffer holds its own
 * number from taking to giving.
 *
 * Where ranks share a link for copies, no two of these are predicted at once.
 *
 *   sides_test STDLIB_DIR SCRATCH.pipe SEED CASES [--break]   exit status 0 iff all agree
 *
 * --break lets RESTORE bring back another microbatch's stash if it can: every run that can must
 * differ. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "engines.h"
#include "orders.h"
#include "pipe_sim.h"
#include "run.h"
#include "seeded.h"
#include "test_model.h"
#include "tiny_model.h"

enum { STEPS = 3, WEIGHTS = 40 /* bytes, as tiny_model has */, MASK = 0x5c, MOST = 64 };

static bool breaks;
static _Atomic int broken;
static int pairs; /* of copies on one link that were looked at */

typedef struct Sharded {
  Tiny *tiny;
  PrModel inner;
  uint32_t nmb, nrow; /* of (rank, stage) */
  void **gathered;    /* [nrow] */
  void **act;         /* [nrow * nmb] */
  bool gathers, masks;
} Sharded;

static void *need(void *p) {
  if (!p)
    abort();
  return p;
}

static size_t row_of(const Sharded *d, const PrCall *c) {
  return (size_t)c->rank * d->tiny->nstage + c->stage;
}

static void flip(void *p, size_t n, uint8_t mask) {
  for (size_t i = 0; i < n; i++)
    ((uint8_t *)p)[i] ^= mask;
}

/* The call with weights from the buffer. */
static int with_weights(Sharded *d, const PrCall *c, int (*f)(void *, const PrCall *)) {
  _Alignas(64) uint8_t weight[64];
  PrCall a = *c;
  if (!d->gathers)
    return f(d->inner.self, c);
  const void *from = d->gathered[row_of(d, c)];
  if (!from) {
    broken++;
    return 1;
  }
  memcpy(weight, from, WEIGHTS);
  flip(weight, WEIGHTS, MASK);
  a.weight = weight;
  return f(d->inner.self, &a);
}

static int forward(void *self, const PrCall *c) {
  Sharded *d = self;
  d->act[row_of(d, c) * d->nmb + c->mb] = c->act;
  return with_weights(d, c, d->inner.forward);
}
static int backward(void *self, const PrCall *c) {
  return with_weights(self, c, ((Sharded *)self)->inner.backward);
}
static int backward_input(void *self, const PrCall *c) {
  return with_weights(self, c, ((Sharded *)self)->inner.backward_input);
}
static int backward_weight(void *self, const PrCall *c) {
  return ((Sharded *)self)->inner.backward_weight(((Sharded *)self)->inner.self, c);
}
static int update(void *self, const PrCall *c) {
  Sharded *d = self;
  if (d->masks)
    flip(c->grad, WEIGHTS, MASK);
  return d->inner.update(d->inner.self, c);
}
static int sizes(void *self, uint32_t stage, PrSizes *out) {
  return ((Sharded *)self)->inner.sizes(((Sharded *)self)->inner.self, stage, out);
}
static int init(void *self, uint32_t stage, void *weight, void *opt) {
  return ((Sharded *)self)->inner.init(((Sharded *)self)->inner.self, stage, weight, opt);
}
static int reduce(void *self, uint32_t stage, void *const *grad, uint32_t n, uint64_t bytes) {
  Sharded *d = self;
  return d->inner.reduce(d->inner.self, stage, grad, n, bytes);
}

static int side(void *self, const PrCall *c) {
  Sharded *d = self;
  PrSizes size;
  sizes(self, c->stage, &size);
  size_t row = row_of(d, c), act = (size_t)size.act;
  if (strcmp(c->side, "UNSHARD") == 0) {
    broken += c->taken_bytes < WEIGHTS || d->gathered[row] != NULL;
    memcpy(c->taken, c->weight, WEIGHTS);
    flip(c->taken, WEIGHTS, MASK);
    d->gathered[row] = c->taken;
  } else if (strcmp(c->side, "RESHARD") == 0) {
    broken += d->gathered[row] != c->given || c->mb != PIPE_NONE;
    memset(c->given, 0xa5, WEIGHTS);
    d->gathered[row] = NULL;
  } else if (strcmp(c->side, "EVICT") == 0) {
    void *stash = d->act[row * d->nmb + c->mb];
    broken += c->taken_bytes < act + 4;
    memcpy(c->taken, stash, act);
    memcpy((char *)c->taken + act, &c->mb, 4);
    memset(stash, 0xa5, act);
  } else if (strcmp(c->side, "RESTORE") == 0) {
    uint32_t mb;
    void *stash = d->act[row * d->nmb + c->mb];
    memcpy(&mb, (char *)c->given + act, 4);
    broken += mb != c->mb;
    memcpy(stash, c->given, breaks ? act - 8 : act);
    memset(c->given, 0xa5, act);
  } else if (strcmp(c->side, "MASK") == 0) {
    flip(c->grad, WEIGHTS, MASK);
  } else {
    broken++;
  }
  return 0;
}

/* ---- runs ---- */

typedef struct Result {
  double loss[STEPS * MOST];
  uint8_t *weight; /* [nstage * WEIGHTS] by row */
} Result;

static bool is_copy(const PipeInstr *in) { return pipe_stream_of(in->op) == PIPE_COPY; }

/* Is no copy of rank a predicted beside one of rank b? */
static bool copies_apart(const PipeProgram *p, uint32_t a, uint32_t b, uint64_t *const *start,
                         uint64_t *const *end) {
  for (uint32_t i = 0; i < p->rank[a].ninstr; i++)
    for (uint32_t j = 0; is_copy(&p->rank[a].instr[i]) && j < p->rank[b].ninstr; j++) {
      if (!is_copy(&p->rank[b].instr[j]))
        continue;
      if (start[a][i] < end[a][i] && start[b][j] < end[b][j] && start[a][i] < end[b][j] &&
          start[b][j] < end[a][i]) /* what takes no time needs no link */
        return false;
      pairs++;
    }
  return true;
}

/* Do links carry one copy at a time? */
static bool links_hold(const PipeProgram *p, uint64_t *const *start, uint64_t *const *end) {
  bool hold = true;
  for (uint32_t i = 0; i < p->nshare; i++)
    for (uint32_t j = i + 1; j < p->nshare; j++) {
      const PipeShare *a = &p->share[i], *b = &p->share[j];
      if (a->from == a->to && b->from == b->to && a->link == b->link)
        hold &= copies_apart(p, a->from, b->from, start, end);
    }
  return hold;
}

/* What it trains to; NULL, or why it does not. */
static const char *train(const PipeProgram *p, bool sides, bool masks, PrOptions o, Result *to) {
  Tiny *t = tiny_new(p->nmodel, 1);
  Sharded d = {.tiny = t, .inner = tiny_model(t), .nmb = p->nmb, .gathers = sides, .masks = masks};
  d.nrow = p->nrank * p->nmodel;
  d.gathered = need(calloc(d.nrow, sizeof *d.gathered));
  d.act = need(calloc((size_t)d.nrow * d.nmb, sizeof *d.act));
  t->shake = o.engine != &seeded_engine;
  PrModel m = {.self = &d, .nstage = p->nmodel, SPLIT_OPS(update), .reduce = reduce, .side = side};
  PrRun *run = NULL;
  static char text[1024];
  const char *why = NULL;
  if (pr_open(&run, p, &m, &o))
    why = pr_error(run);
  for (uint64_t step = 0; step < STEPS && !why; step++) {
    if (pr_steps(run, 1))
      why = pr_error(run);
    for (uint32_t mb = 0; mb < p->nmb && !why; mb++)
      to->loss[step * MOST + mb] = pr_loss_mb(run, mb);
  }
  to->weight = need(calloc(p->nstage, WEIGHTS));
  for (uint32_t s = 0; s < p->nstage && !why; s++)
    memcpy(&to->weight[s * WEIGHTS], engines_weight(run, s), WEIGHTS);
  for (uint32_t r = 0; r < p->nrank && !why; r++)
    if (p->sized && pr_bytes(run, r) != p->rank[r].bytes)
      why = "bytes are not those that were proved";
  Arena arena = {0};
  uint64_t **end, **start = pipe_predict(&arena, p, &end, NULL);
  p = why ? p : pr_see_all(run);
  if (!why && !links_hold(p, start, end))
    why = "two copies on one link at once";
  arena_free(&arena);
  if (!why && (broken || atomic_load(&t->broken)))
    why = "a rule is broken";
  if (why) {
    snprintf(text, sizeof text, "%s", why);
    why = text;
  }
  broken = 0;
  pr_close(run);
  tiny_free(t);
  free(d.gathered), free(d.act);
  return why;
}

/* ---- cases ---- */

static uint64_t state;
static uint32_t draw(uint32_t n) { /* 0 .. n-1 */
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % n;
}
static const char *stream(void) {
  static const char *const name[] = {"compute", "copy", "comm"};
  return name[draw(3)];
}
static const char *latest(void) { return draw(2) ? "latest " : ""; }

typedef struct Base {
  const char *file, *name; /* file NULL: `own` */
  uint32_t even, per;      /* P must be even; microbatches are multiples of P * per, 0: any */
} Base;
static const Base bases[] = {{"1f1b", "onef1b", 0, 0},
                             {NULL, "own", 0, 0},
                             {NULL, "own", 0, 0},
                             {"gpipe", "gpipe", 0, 0},
                             {"zb_h1", "zb_h1", 0, 0},
                             {"zb_2p", "zb_2p", 0, 0},
                             {"interleaved", "interleaved", 0, 1},
                             {"dualpipev", "dualpipev", 0, 2},
                             {"v_half", "v_half", 0, 0},
                             {"hanayo", "hanayo", 0, 1},
                             {"chimera", "chimera", 1, 1}};
static const char own[] =
    "schedule own(P, M) {\n  ranks P\n  pipe net stages 2*P mbs M place s -> s % P\n"
    "  order r { do M { F[0] } steady m { F[1](m) B[1](m - 1) } do M { B[0] } U }\n}\n";

static const PipeProgram *compile_text(Arena *arena, const char *dir, const char *path, uint32_t P,
                                       uint32_t M, bool sides) {
  Diag *diag = need(arena_zalloc(arena, 1, sizeof *diag));
  Define *define = arena_zalloc(arena, 2, sizeof *define);
  define[0] = (Define){.name = "P", .value = P};
  define[1] = (Define){.name = "M", .value = M};
  Options *opt = arena_zalloc(arena, 1, sizeof *opt);
  *opt = (Options){.out = stdout,
                   .emit = EMIT_NONE,
                   .verify = true,
                   .stdlib = dir,
                   .define = define,
                   .ndefine = 2,
                   .schedule = sides ? "sided" : "plain",
                   .model = {.channels = CHANNELS_PAIR}, /* proved by machine.c, too */
                   .input = path};
  Sched *s = arena_zalloc(arena, 1, sizeof *s);
  *s = (Sched){.arena = arena, .diag = diag, .opt = opt};
  diag_init(diag, arena, sides ? stderr : NULL);
  return compile_only(s) ? s->prog : NULL;
}

static int runs, differ, refused;

static void one_case(const char *dir, const char *path) {
  Arena arena = {0};
  const Base *b = &bases[draw(sizeof bases / sizeof *bases)];
  uint32_t P = 1 + draw(5), M = 1 + draw(9), k = 2 + draw(3), bytes = draw(2);
  bool off = !b->file, masks = strcmp(b->name, "chimera") != 0; /* MASK and REDUCE know no order */
  P = b->even ? 2 * (1 + draw(2)) : P;
  M = b->per ? b->per * P * (1 + draw(2)) : M;
  FILE *f = need(fopen(path, "w"));
  if (b->file)
    fprintf(f, "import \"%s.pipe\"\n", b->file);
  else
    fputs(own, f);
  fprintf(f, "schedule plain(P, M) extends %s() {\n", b->name);
  fprintf(f, "  time s { F = 10 + s %% 3  I = 10  W = 9  U = %u  send = %u  reduce = 2 }\n",
          draw(3), draw(6));
  if (bytes)
    fprintf(
        f,
        "  bytes { act = 56 gout = 48 boundary = 48 weight = 40 grad = 40 opt = 80 work = 200 }\n");
  fprintf(f, "}\nschedule sided(P, M) extends plain() {\n");
  if (draw(3) == 0)
    fputs("  transfers channels\n", f);
  fprintf(f, "  side UNSHARD(s) on %s %sbefore first F { cost = %u  memory = 64 + s %% 2 * 64 }\n",
          stream(), latest(), draw(12));
  fprintf(f, "  side RESHARD(s) on %s after last B gives UNSHARD { cost = %u }\n", stream(),
          draw(5));
  if (masks)
    fprintf(f, "  side MASK(s) on %s after last B before last U { cost = %u }\n", stream(),
            draw(12));
  fprintf(f, "  side EVICT(s, m) on %s after F when m %% %u == 0 { cost = %u  memory = %u }\n",
          stream(), k, draw(8), draw(2) ? 72 : 128); /* 128: slots of UNSHARD, too */
  fprintf(
      f,
      "  side RESTORE(s, m) on %s after F %sbefore B gives EVICT when m %% %u == 0 { cost = %u }\n",
      stream(), latest(), k, draw(8));
  if (draw(2))
    fprintf(f, "  exclusive r -> r / %u\n", 1 + draw(3));
  if (off)
    fprintf(f, "  offload s, m when m %% %u == 1\n  time { OFF = %u  LOAD = %u }\n", k, draw(6),
            draw(6));
  fprintf(f, "}\n");
  fclose(f);
  if (!engines_case(P)) {
    arena_free(&arena);
    return;
  }
  const PipeProgram *plain = compile_text(&arena, dir, path, P, M, false);
  const PipeProgram *sided = plain ? compile_text(&arena, dir, path, P, M, true) : NULL;
  Result want, got;
  if (!plain) { /* the schedule does not admit this size, or checks its times */
    refused++;
  } else if (!sided) {
    printf("FAIL %s P=%u M=%u does not compile\n", b->name, P, M);
    differ++;
  } else {
    const char *why = train(plain, false, false, (PrOptions){SEEDED(1), .trace_steps = 1}, &want);
    for (int i = 0; i < 3 && !why; i++) {
      const uint64_t seed = i == 2 ? 1 + state : 0;
      PrOptions o = {.deadline_s = 600, .trace_steps = 1, .free_running = i == 1};
      o = seeded_or_threads(o, &seed);
      const PipeProgram *program = sided;
      if (!engines_take(&program, &o))
        continue;
      why = train(program, true, masks, o, &got);
      runs++;
      if (!why && memcmp(want.weight, got.weight, sided->nstage * (size_t)WEIGHTS) != 0)
        why = "weights differ";
      for (uint32_t j = 0; j < STEPS * M && !why; j++)
        if (memcmp(&want.loss[j / M * MOST + j % M], &got.loss[j / M * MOST + j % M], 8) != 0)
          why = "a loss differs";
      free(got.weight);
      differ += why != NULL;
      if (why && !breaks) {
        printf("FAIL %s P=%u M=%u, engine %d: %s\n", b->name, P, M, i, why);
        exit(1); /* the text is still there */
      }
      why = NULL;
    }
    free(want.weight);
  }
  arena_free(&arena);
}

int main(int argc, char **argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: sides_test STDLIB_DIR SCRATCH.pipe SEED CASES [--break]\n");
    return 2;
  }
  const char *path = argv[2];
  engines_begin(&path);
  state = strtoull(argv[3], NULL, 10);
  breaks = argc > 5 && strcmp(argv[5], "--break") == 0;
  printf("seed %s\n", argv[3]);
  for (int i = 0; i < atoi(argv[4]); i++)
    one_case(argv[1], path);
  differ = engines_end(differ);
  printf("%d pairs of copies\n%d of %d runs differ\n", pairs, differ, runs);
  return differ != 0 || 2 * refused > atoi(argv[4]);
}
