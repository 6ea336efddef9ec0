/* SPDX-License-Identifier: MIT
 * The verifier of wait cycles (compiler/certify/verify_cycle.c) accepts the wait cycle of every
 * random schedule whose ranks wait for each other, and refuses every forged cycle: the hops of an
 * accepted cycle stand at actions that a plain play of the text never reaches. The play here knows
 * the model by its edges and reads only the op table.
 *
 *   cycle_test PROGRAMS SEED */
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "names.h"
#include "orders.h"
#include "verify.h"

enum { MOST_OPS = 128, RANKS = 3, MBS = 3, STAGES = 3, TEXT = 4096 };

/* Shapes of the pipe: stages beside those of the ranks, edges beside the chain, what is shared. */
typedef struct Shape {
  const char *name, *pipe;
  uint32_t stages, rank_of[6]; /* of the model; one row each, but with replicas */
  uint32_t nedge, edge[3][2];  /* beside those of the chain */
  uint32_t tied[2];            /* stages, or both 0 */
  bool replicas;               /* ranks 1 and 2 share stage 1 */
} Shape;

static const Shape shapes[] = {
    {"chain", "pipe net stages 3 mbs 3 place s -> s", 3, {0, 1, 2}, 0, {{0}}, {0, 0}, false},
    {"v",
     "pipe net stages 6 mbs 3 place s -> s < 3 ? s : 5 - s",
     6,
     {0, 1, 2, 2, 1, 0},
     0,
     {{0}},
     {0, 0},
     false},
    {"skip",
     "pipe net stages 3 mbs 3 place s -> s  edge 0 -> 2",
     3,
     {0, 1, 2},
     1,
     {{0, 2}},
     {0, 0},
     false},
    {"tie",
     "pipe net stages 3 mbs 3 place s -> s  tie 0, 2",
     3,
     {0, 1, 2},
     0,
     {{0}},
     {0, 2},
     false},
    {"replicas",
     "pipe net stages 2 mbs 3 place s, m -> s == 0 ? 0 : 1 + m % 2",
     2,
     {0, 1},
     0,
     {{0}},
     {0, 0},
     true},
};

static uint64_t state;
static uint32_t below(uint32_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((state >> 33) % n);
}

/* ---- a text ---- */

typedef struct Todo {
  char kind;
  uint32_t stage, mb;
} Todo;

/* All forwards, then all backwards, but that some of them have changed places; F still comes before
 * B (or I, W) of its microbatch on its stage. And each U behind some of them. */
static void write_order(char **at, const Shape *shape, uint32_t rank, bool split, uint32_t swaps) {
  Todo all[MOST_OPS];
  uint32_t n = 0, chunk[2], nchunk = 0;
  for (uint32_t st = 0; st < shape->stages; st++)
    if (shape->rank_of[st] == rank || (shape->replicas && st == 1 && rank > 0))
      chunk[nchunk++] = st;
  for (const char *k = split ? "FIW" : "FB"; *k; k++)
    for (uint32_t c = 0; c < nchunk; c++)
      for (uint32_t m = 0; m < MBS; m++) {
        uint32_t st = *k == 'F' ? chunk[c] : chunk[nchunk - 1 - c];
        if (!shape->replicas || st == 0 || m % 2 == rank - 1)
          all[n++] = (Todo){*k, st, m};
      }
  for (uint32_t i = 0; i < swaps; i++) {
    uint32_t a = below(n), b = below(n);
    Todo t = all[a];
    all[a] = all[b], all[b] = t;
  }
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = i + 1; j < n; j++)
      if (all[i].stage == all[j].stage && all[i].mb == all[j].mb &&
          strchr("FBIW", all[i].kind) > strchr("FBIW", all[j].kind)) {
        Todo t = all[i];
        all[i] = all[j], all[j] = t;
      }
  *at += sprintf(*at, "  order r in %u..%u {", rank, rank + 1);
  uint32_t early = shape->replicas || shape->tied[1] || below(3) ? NONE : n / 2 + below(n / 2);
  for (uint32_t i = 0; i < n; i++) {
    bool joined = i + 1 < n && below(5) == 0 && all[i].mb != all[i + 1].mb &&
                  (all[i].kind == 'F') != (all[i + 1].kind == 'F');
    if (joined)
      *at += sprintf(*at, " overlap {");
    for (uint32_t k = 0; k <= joined; k++) {
      uint32_t index = nchunk > 1 && all[i + k].stage == chunk[1];
      *at += nchunk > 1 ? sprintf(*at, " %c[%u](%u)", all[i + k].kind, index, all[i + k].mb)
                        : sprintf(*at, " %c(%u)", all[i + k].kind, all[i + k].mb);
    }
    if (joined)
      *at += sprintf(*at, " }");
    i += joined;
    if (i >= early && i + 1 < n && nchunk == 1) {
      early = NONE;
      *at += sprintf(*at, " U");
    }
  }
  *at += sprintf(*at, " U }\n");
}

static void write_text(char *at, const Shape *shape) {
  bool split = below(2);
  uint32_t swaps = below(5);
  at += sprintf(at, "schedule s() {\n  ranks %d\n  %s\n", RANKS, shape->pipe);
  for (uint32_t r = 0; r < RANKS; r++)
    write_order(&at, shape, r, split, swaps);
  sprintf(at, "}\n");
}

/* ---- the play ---- */

static bool is_gradient(const Op *o) { return o->kind == PIPE_B || o->kind == PIPE_W; }
static bool leads(const Shape *shape, uint32_t from, uint32_t to) {
  bool is = to == from + 1;
  for (uint32_t e = 0; e < shape->nedge; e++)
    is |= shape->edge[e][0] == from && shape->edge[e][1] == to;
  return is;
}
static bool one_sum(const Shape *shape, uint32_t a, uint32_t b) {
  const uint32_t *t = shape->tied;
  return a == b || (t[1] && (a == t[0] || a == t[1]) && (b == t[0] || b == t[1]));
}

static uint32_t updates(const Sched *s, uint32_t row, uint32_t end) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < end; i++)
    n += s->orders->op[i].kind == PIPE_U && s->orders->op[i].stage == row;
  return n;
}

/* Is there anything that op i has to wait for? */
static bool waits(const Sched *s, const Shape *shape, const bool *done, uint32_t i) {
  const Op *a = &s->orders->op[i];
  uint32_t me = s->model->stage[a->stage].model;
  for (uint32_t k = 0; k < s->orders->nop; k++) {
    const Op *b = &s->orders->op[k];
    uint32_t it = s->model->stage[b->stage].model;
    bool back = (a->kind == PIPE_B || a->kind == PIPE_I) &&
                (b->kind == PIPE_B || b->kind == PIPE_I);
    bool needed = a->kind == PIPE_F && b->kind == PIPE_F ? a->mb == b->mb && leads(shape, it, me)
                  : back                                 ? a->mb == b->mb && leads(shape, me, it)
                  : a->kind == PIPE_U && is_gradient(b)
                      ? one_sum(shape, me, it) && updates(s, b->stage, k) == updates(s, a->stage, i)
                      : false;
    if (needed && !done[k])
      return true;
  }
  return false;
}

/* Marks what runs, action by action. */
static void play(const Sched *s, const Shape *shape, bool *done) {
  memset(done, 0, s->orders->nop);
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t r = 0; r < s->model->nrank; r++)
      for (uint32_t i = s->orders->rank_op0[r]; i < s->orders->rank_op0[r + 1];) {
        uint32_t last = i + s->orders->op[i].group;
        bool ready = true;
        for (uint32_t k = i; k <= last; k++)
          ready &= !waits(s, shape, done, k);
        if (!done[i] && !ready)
          break;
        moved |= !done[i];
        for (; i <= last; i++)
          done[i] = true;
      }
  }
}

/* ---- forged cycles ---- */

static uint32_t rank_of(const Sched *s, uint32_t op) {
  return s->model->stage[s->orders->op[op].stage].rank;
}

/* What is accepted stands where nobody comes to. */
static bool judged(const Sched *s, const bool *done, const StallHop *hop, uint32_t n) {
  bool never = true;
  for (uint32_t i = 0; i < n; i++)
    never &= hop[i].at < s->orders->nop && !done[hop[i].at];
  return never || !cycle_holds(s, hop, n);
}

static bool forged(const Sched *s, const bool *done) {
  uint32_t n = s->orders->nop;
  StallHop hop[RANKS];
  for (uint32_t a = 0; a < n; a++)
    for (uint32_t b = 0; b < n; b++) { /* of one hop, and all of two that begin so */
      hop[0] = (StallHop){rank_of(s, a), a, b, NULL};
      if (!judged(s, done, hop, 1))
        return false;
      for (uint32_t c = s->orders->rank_op0[rank_of(s, b)];
           c < s->orders->rank_op0[rank_of(s, b) + 1]; c++) {
        uint32_t r = rank_of(s, a);
        hop[1] = (StallHop){rank_of(s, c), c,
                            s->orders->rank_op0[r] +
                                below(s->orders->rank_op0[r + 1] - s->orders->rank_op0[r]),
                            NULL};
        if (!judged(s, done, hop, 2))
          return false;
      }
    }
  for (uint32_t i = 0; i < 20000;
       i++) { /* of three, near to the truth: the hops lead to each other */
    uint32_t at = below(n), first = at;
    for (uint32_t k = 0; k < RANKS; k++) {
      uint32_t on = k + 1 < RANKS ? below(n) : first;
      uint32_t r = rank_of(s, on), later = s->orders->rank_op0[r + 1] - on;
      on += below(later);
      hop[k] = (StallHop){rank_of(s, at), at, on, NULL};
      at = s->orders->rank_op0[r] + below(s->orders->rank_op0[r + 1] - s->orders->rank_op0[r]);
    }
    if (!judged(s, done, hop, RANKS))
      return false;
  }
  return true;
}

/* And those that differ from a true one in one place, or are a part of it. */
static bool near(const Sched *s, const bool *done) {
  StallHop hop[RANKS];
  uint32_t n = s->ideal->ncycle;
  memcpy(hop, s->ideal->cycle, n * sizeof *hop);
  for (uint32_t i = 0; i < n; i++) {
    for (uint32_t v = 0; v < s->orders->nop + 2; v++) {
      hop[i].at = v;
      if (!judged(s, done, hop, n))
        return false;
      hop[i].at = s->ideal->cycle[i].at, hop[i].on = v;
      if (!judged(s, done, hop, n))
        return false;
      hop[i].on = s->ideal->cycle[i].on;
    }
    hop[i].rank = below(RANKS + 1);
    if (hop[i].rank != s->ideal->cycle[i].rank && cycle_holds(s, hop, n))
      return false;
    hop[i].rank = s->ideal->cycle[i].rank;
  }
  return judged(s, done, hop, n - 1);
}

int main(int argc, char **argv) {
  uint32_t count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 100;
  state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  static char text[TEXT];
  enum { NSHAPES = sizeof shapes / sizeof *shapes };
  uint32_t completes[NSHAPES] = {0}, cycles[NSHAPES] = {0};
  for (uint32_t i = 0; i < count; i++) {
    const Shape *shape = &shapes[i % NSHAPES];
    write_text(text, shape);
    Arena arena = {0};
    Diag diag;
    Options opt = {.input = "cycle.pipe",
                   .text = text,
                   .text_len = strlen(text),
                   .emit = EMIT_NONE,
                   .out = stdout};
    Sched s = {.arena = &arena, .diag = &diag, .opt = &opt};
    FILE *quiet = tmpfile(); /* what is said of it */
    bool done[MOST_OPS], all = true;
    if (!quiet)
      exit(2);
    diag_init(&diag, &arena, quiet);
    bool ok = compile_only(&s);
    if (ok || s.ideal->cycle) {
      play(&s, shape, done);
      for (uint32_t k = 0; k < s.orders->nop; k++)
        all &= done[k];
      completes[i % NSHAPES] += ok, cycles[i % NSHAPES] += !ok;
      const char *wrong = all != ok ? "the play says another thing"
                          : !ok && !cycle_holds(&s, s.ideal->cycle, s.ideal->ncycle)
                              ? "refuses what pipec says"
                          : !forged(&s, done) || (!ok && !near(&s, done))
                              ? "accepts a forged wait cycle"
                              : NULL;
      if (wrong) {
        printf("program %u: %s\n%s", i, wrong, text);
        return 1;
      }
    }
    fclose(quiet);
    arena_free(&arena);
  }
  for (uint32_t k = 0; k < NSHAPES; k++)
    printf("%s: %s complete, %s wait for each other\n", shapes[k].name,
           completes[k] ? "some" : "none", cycles[k] ? "some" : "none");
  fprintf(stderr, "seed %s, per shape:", argc > 2 ? argv[2] : "1");
  for (uint32_t k = 0; k < NSHAPES; k++)
    fprintf(stderr, " %u %u", completes[k], cycles[k]);
  fprintf(stderr, "\n");
  return 0;
}
