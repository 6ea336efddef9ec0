/* SPDX-License-Identifier: MIT
 * note [looped]: the program for M microbatches is found again in a table that does not grow with M. Requires
 * check_all_m; ensures looped, unless nothing is found that repeats.
 * More than 800 lines: every part works on the classes and samples of one search.
 *
 * The values of M are taken in classes modulo T, a multiple of what all ranks repeat after. For each class the
 * programs of three large values that follow each other are rolled (roll.c): one table of warmup, kernel and
 * flush, with slots that go round cycles. It is unrolled again for all smaller values of the class, down to
 * the first for which it is not, bit for bit, what pipec makes of that value itself, and for some larger
 * ones. So m0, from which on the table holds, is found and not guessed. The three are values that the proof, if there
 * is one, speaks of: below these the orders can be others, which repeat as well.
 *
 * Where check_all_m has proved the orders for every M, or for the multiples of a number, and nothing else depends on M
 * (rest_of_m.c), the argument for values beyond those that were tried is this. The ops of each rank go on repeating, as is
 * proved. The predicted times of the last turns of every loop are those of the turn before plus one number, the same on all ranks
 * (times_repeat), over more turns than any instruction looks back; a time is the greatest of some times that it looks back to
 * plus a cost, so this goes on for ever. So do the times on an idle network, by which transfers and copies are put in order. The
 * merged lists follow from the times, slots from the lists (roll.c, note [cycles]), and how many there are from note [lines]. A
 * step of n is as many M as the counts of microbatches repeat after, and as many microbatches as what clauses say of each; n
 * counts from where every rank has come to what repeats. And what completes at these times is free of deadlocks.
 *
 * Else nothing is claimed of them: MOST_TRIED further values and three far ones of each class are compared with what the text
 * makes of them, and Looped.tried says up to where. Linear in what is compiled, at most MOST_WORK, and MOST_SHORT_ROWS below. */
#include <inttypes.h>
#include <string.h>

#include "hints.h"
#include "lists_of_m.h"
#include "looped.h"
#include "lower.h"
#include "orders.h"
#include "quasi.h"
#include "roll.h"
#include "timing.h"

enum {
  MOST_CLASSES = 64,
  MOST_LOOPS = 8,  /* of a rank */
  MOST_TRIED = 64, /* values of a class, and a few larger ones, where the orders are not proved */
  MOST_TURNS = 1 << 10,      /* of the samples */
  MOST_SHORT = 256,          /* values below the first one of a class */
  MOST_SHORT_ROWS = 1 << 16, /* instructions of these programs together */
  MOST_WORK = 1 << 24,       /* instructions that are compiled to find the table */
  INSTR_WORDS = sizeof(PipeInstr) / 4,
  WEIGHT_WORDS = sizeof(PipeWeights) / 4
};

/* A program that was compiled for some n of a class. */
typedef struct Sample {
  Arena arena;
  Diag diag;
  Options opt;
  Sched s;
} Sample;

typedef struct Loops {
  Sched *s;
  const char *name;
  int64_t T, residue;
  const PipeLooped *rules; /* formulas: what is required */
  bool proved;             /* for all M: nothing has to be tried beyond what the table is made of */
  int64_t tried; /* the largest value that was compared, of the class of which it is least */
  bool
      sure; /* of the class at hand, too: its times on an idle network repeat, and what takes the most slots stays that */
  int64_t every; /* microbatches after which what clauses say repeats, if proved */
  uint64_t work;
  const char *why;
} Loops;

static int64_t value_of(const Loops *x, int64_t n) { return x->residue + x->T * n; }

static bool admits(const Loops *x, int64_t n) {
  return pipe_loop_refused(x->rules, value_of(x, n)) == NULL;
}

static bool sample(Loops *x, int64_t n, Sample *out) {
  bool ok = compile_at(x->s, &out->s, &out->arena, &out->diag, &out->opt, x->name, value_of(x, n),
                       !admits(x, n));
  for (uint32_t r = 0; ok && r < out->s.model->nrank; r++)
    x->work += out->s.prog->rank[r].ninstr;
  return ok;
}

/* ---- programs as rows ---- */

static uint64_t mix(uint64_t h, uint64_t v) {
  h = (h * 0xff51afd7ed558ccdu ^ v) * 0x9e3779b97f4a7c15u; /* not the same the other way round */
  return h ^ h >> 29;
}

static uint64_t instr_key(const PipeInstr *i) {
  uint64_t h = mix(i->op | i->phase << 8 | (uint64_t)i->group << 16, i->stage);
  return mix(mix(h, i->peer), i->site);
}

static Rows new_rows(Arena *a, uint32_t n, uint32_t words) {
  size_t all = (size_t)n * words;
  Rows t = {words, n, arena_alloc(a, all * 4 + 1), arena_alloc(a, all * 4 + 1),
            arena_zalloc(a, n + (size_t)1, sizeof *t.key)};
  memset(t.tag, 0xff, all * 4);
  return t;
}

/* A word is a slot: counted from the first one of its pool. */
static void tag_slot(const PipeRank *k, Rows *t, size_t at) {
  for (uint32_t p = 0; p < k->npool && t->w[at] != PIPE_NONE; p++)
    if (t->w[at] >= k->pool[p].first && t->w[at] - k->pool[p].first < k->pool[p].count) {
      t->w[at] -= k->pool[p].first;
      t->tag[at] = p;
      return;
    }
}

#define WORD(field)        (offsetof(PipeInstr, field) / 4)
#define WEIGHT_WORD(field) (INSTR_WORDS + offsetof(PipeWeights, field) / 4)

/* Several tensors: in and out are places in PipeRank.list. */
static bool many(const PipeProgram *p, const PipeInstr *i, bool in) {
  return i->op != PIPE_U && pipe_fields(&p->stage[i->stage], i->op, in) > 1;
}

static Rows instr_rows(Arena *a, const PipeProgram *p, const PipeRank *k) {
  uint32_t words = INSTR_WORDS + (k->weights ? WEIGHT_WORDS : 0);
  Rows t = new_rows(a, k->ninstr, words);
  for (uint32_t i = 0; i < k->ninstr; i++) {
    const PipeInstr *in = &k->instr[i];
    size_t at = (size_t)i * words;
    memcpy(&t.w[at], in, sizeof *in);
    t.key[i] = instr_key(in);
    tag_slot(k, &t, at + WORD(act));
    if (in->op == PIPE_I || in->op == PIPE_W)
      tag_slot(k, &t, at + WORD(gout));
    if (in->op == PIPE_F || in->op == PIPE_R ||
        ((in->op == PIPE_OFF || in->op == PIPE_LOAD) && in->peer == PIPE_NONE))
      tag_slot(k, &t, at + WORD(keep));
    if (!many(p, in, true))
      tag_slot(k, &t, at + WORD(in));
    if (!many(p, in, false))
      tag_slot(k, &t, at + WORD(out));
    if (!k->weights)
      continue;
    memcpy(&t.w[at + INSTR_WORDS], &k->weights[i], sizeof *k->weights);
    tag_slot(k, &t, at + WEIGHT_WORD(slot));
    tag_slot(k, &t, at + WEIGHT_WORD(out));
    tag_slot(k, &t, at + WEIGHT_WORD(guess));
  }
  return t;
}

/* The slots of ops with several tensors: their keys are those of the ops. */
static Rows list_rows(Arena *a, const PipeProgram *p, const PipeRank *k) {
  Rows t = new_rows(a, k->nlist, 1);
  for (uint32_t i = 0; i < k->nlist; i++) {
    t.w[i] = k->list[i];
    tag_slot(k, &t, i);
  }
  for (uint32_t i = 0; i < k->ninstr; i++)
    for (int in = 0; in < 2; in++) {
      const PipeInstr *c = &k->instr[i];
      uint32_t first = in ? c->in : c->out, n = pipe_fields(&p->stage[c->stage], c->op, in);
      for (uint32_t j = 0; many(p, c, in) && j < n && first + j < k->nlist; j++)
        t.key[first + j] = mix(instr_key(c), j * 2 + (uint32_t)in);
    }
  return t;
}

static Rows sync_rows(Arena *a, const PipeRank *k) {
  Rows t = new_rows(a, k->nsync, sizeof(PipeSync) / 4);
  for (uint32_t i = 0; i < k->nsync; i++) {
    const PipeSync *y = &k->sync[i];
    memcpy(&t.w[(size_t)i * t.words], y, sizeof *y);
    t.tag[(size_t)i * t.words + 2] = ROLL_EVENTS;
    t.key[i] = mix(y->after < k->ninstr ? instr_key(&k->instr[y->after]) : 1,
                   y->before < k->ninstr ? instr_key(&k->instr[y->before]) : 2);
  }
  return t;
}

/* A table of so many rows for every n. */
static Rows fixed_rows(Arena *a, const void *rows, uint32_t n, size_t each) {
  Rows t = new_rows(a, n, (uint32_t)each / 4);
  if (n) /* rows may be NULL else */
    memcpy(t.w, rows, n * each);
  for (uint32_t i = 0; i < n; i++)
    t.key[i] = i + 1; /* no loops */
  return t;
}

/* ---- one class ---- */

static bool no(Loops *x, const char *why) {
  x->why = why;
  return false;
}

static bool fit_number(PipeLinear *l, int64_t n, uint64_t a, uint64_t b, uint64_t c) {
  l->by = (int64_t)(b - a);
  l->at = (int64_t)a - l->by * n;
  return b - a == c - b;
}

#define FIT(l, what) fit_number(l, n, p[0]->what, p[1]->what, p[2]->what)

static PipeRolled rolled(const Segments *g) {
  return (PipeRolled){g->segment.at, g->vary.at, g->segment.n, 0};
}

/* "P=4 M=8": names and values. */
static bool fit_params(Loops *x, int64_t n, const PipeProgram *const p[3], PipeLooped *l,
                       PipeLinear *value) {
  const char *at[3] = {p[0]->params, p[1]->params, p[2]->params};
  const char **name = arena_alloc(x->s->arena, (strlen(at[0]) + 1) * sizeof *name);
  l->nparam = 0;
  while (*at[0]) {
    size_t len = strcspn(at[0], "=");
    long long v[3];
    for (int j = 0; j < 3; j++) {
      char *end;
      v[j] = strtoll(at[j] + len + 1, &end, 10);
      name[l->nparam] = arena_strndup(x->s->arena, at[j], len);
      at[j] = *end ? end + 1 : end;
    }
    value[l->nparam] = (PipeLinear){0, 0};
    if (l->value[l->nparam].nterm == 0 &&
        !fit_number(&value[l->nparam], n, (uint64_t)v[0], (uint64_t)v[1], (uint64_t)v[2]))
      return no(x, "a parameter does not grow evenly with it");
    if (strcmp(name[l->nparam], x->name) == 0)
      l->open = l->nparam;
    l->nparam++;
  }
  l->param = name;
  return true;
}

static bool roll_rank(Loops *x, Cycles *c, uint32_t r, int64_t n, const PipeProgram *const p[3],
                      PipeRank *to, PipeLoopRank *out, Segments g[4]) {
  Arena tmp = {.oom = x->s->arena->oom};
  Rows t[4][3];
  bool ok = true;
  for (int j = 0; j < 3; j++) {
    const PipeRank *k = &p[j]->rank[r];
    t[0][j] = instr_rows(&tmp, p[j], k);
    t[1][j] = list_rows(&tmp, p[j], k);
    t[2][j] = sync_rows(&tmp, k);
    t[3][j] = fixed_rows(&tmp, k->pool, k->npool, sizeof *k->pool);
    ok &= k->npool == p[0]->rank[r].npool && k->group == p[0]->rank[r].group;
  }
  for (int i = 0; ok && i < 4; i++)
    ok = roll(x->s, c, r, n, t[i], &g[i]);
  arena_free(&tmp);
  if (!ok)
    return no(x, "the instructions of a rank do not come to repeat");
  *to = p[0]->rank[r];
  *out = (PipeLoopRank){
      .instr = rolled(&g[0]), .list = rolled(&g[1]), .sync = rolled(&g[2]), .pool = rolled(&g[3])};
  return (FIT(&out->nslot, rank[r].nslot) && FIT(&out->inflight, rank[r].inflight) &&
          FIT(&out->nevent, rank[r].nevent) && FIT(&out->bytes, rank[r].bytes) &&
          FIT(&out->host, rank[r].host)) ||
         no(x, "the memory of a rank does not grow evenly with it");
}

static void *copy_rows(Sched *s, const Segments *g) {
  void *to = arena_alloc(s->arena, g->row.n * sizeof *g->row.at + 1);
  if (g->row.n) /* at is NULL else */
    memcpy(to, g->row.at, g->row.n * sizeof *g->row.at);
  return to;
}

typedef struct Pace { /* by loop of a rank: how much later what stands behind it is, for n + 1 */
  uint64_t by[MOST_LOOPS];
  uint32_t known, loops; /* loops: of the last rank looked at */
} Pace;

/* note [looped]: each instruction of the last half of a loop starts so much later than in the turn before, in
 * the first, second, ... loop of all ranks alike, and what stands behind loops as much later than in the program
 * for n as all these loops together have become longer. */
static bool turns_keep_time(const Segments *g, int64_t n, const uint64_t *const start[2], Pace *p) {
  size_t at[2] = {0, 0};
  uint64_t later = 0;
  uint32_t loop = 0;
  for (uint32_t i = 0; i < g->segment.n; i++) {
    const PipeSegment *k = &g->segment.at[i];
    int64_t turns = k->turns + (int64_t)k->by_n * n;
    const uint64_t *a = start[0] + at[0], *b = start[1] + at[1];
    for (size_t row = 0; row < k->nrow * (size_t)turns; row++)
      if ((loop > 0 || k->by_n == 0) && b[row] - a[row] != later)
        return false;
    at[0] += (size_t)turns * k->nrow;
    at[1] += (size_t)(turns + k->by_n) * k->nrow;
    if (k->by_n == 0)
      continue;
    if (loop == MOST_LOOPS)
      return false;
    for (size_t row = (size_t)(turns / 2 + 1) * k->nrow; row < k->nrow * (size_t)turns; row++) {
      uint64_t by = (a[row] - a[row - k->nrow]) * k->by_n;
      if (p->known == loop)
        p->by[p->known++] = by;
      if (by != p->by[loop])
        return false;
    }
    later += p->by[loop++];
  }
  p->loops = loop;
  return true;
}

/* Are half the turns of each loop more than any instruction looks back: by the slots of a channel, or to a
 * rank whose loop begins so much earlier? */
static bool long_enough(const Sched *s, Segments (*g)[4], int64_t n) {
  uint64_t slots = 0, head = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    for (uint32_t k = 0; k < s->prog->rank[r].npool; k++) {
      const PipePool *p = &s->prog->rank[r].pool[k];
      if ((p->cls == PIPE_OUT || p->cls == PIPE_IN) && p->count > slots)
        slots = p->count;
    }
    uint64_t rows = 0;
    for (uint32_t i = 0; i < g[r][0].segment.n; i++) {
      const PipeSegment *k = &g[r][0].segment.at[i];
      if (k->by_n && rows / k->nrow > head)
        head = rows / k->nrow;
      rows = k->by_n ? 0 : rows + k->nrow;
    }
  }
  for (uint32_t r = 0; r < s->model->nrank; r++)
    for (uint32_t i = 0; i < g[r][0].segment.n; i++) {
      const PipeSegment *k = &g[r][0].segment.at[i];
      if (k->by_n && (uint64_t)(k->turns + (int64_t)k->by_n * n) / 2 <= slots + head + 1)
        return false;
    }
  return true;
}

/* On an idle network, on which the order of transfers and copies goes: when the op has ended that stands last before each
 * instruction, or is it; of a copy, when that starts. */
static uint64_t **idle_times(Sched *s) {
  const PipeProgram *prog = s->prog;
  const Orders *o = s->orders;
  OrderRun run = {.stage = s->model->stage,
                  .end = arena_alloc(s->arena, o->nop * sizeof *run.end + 1),
                  .head = NEW_ARRAY(s->arena, uint32_t, s->model->nrank)};
  uint64_t **time = NEW_ARRAY(s->arena, uint64_t *, s->model->nrank);
  if (!order_run(s, &run))
    return NULL;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    uint32_t op = o->rank_op0[r], copy = o->ncopy ? o->rank_copy0[r] : 0;
    uint64_t at = 0;
    time[r] = arena_alloc(s->arena, prog->rank[r].ninstr * sizeof **time + 1);
    for (uint32_t i = 0; i < prog->rank[r].ninstr; i++) {
      uint8_t kind = prog->rank[r].instr[i].op;
      bool copies = kind == PIPE_OFF || kind == PIPE_LOAD;
      if (pipe_op_info[kind].stream == PIPE_COMPUTE && op < o->rank_op0[r + 1])
        at = run.end[op++];
      time[r][i] = copies && o->ncopy && copy < o->rank_copy0[r + 1] ? o->copy[copy++].plan : at;
    }
  }
  return time;
}

/* The same of what three samples say. */
static bool pace_kept(Loops *x, Segments (*g)[4], int64_t n, uint64_t **const time[3]) {
  Pace pace = {.known = 0};
  bool ok = true;
  uint32_t loops = 0;
  for (uint32_t r = 0; r < x->s->model->nrank && ok; r++)
    for (int j = 0; j < 2 && ok; j++) {
      const uint64_t *const two[] = {time[j][r], time[j + 1][r]};
      ok = turns_keep_time(&g[r][0], n + j, two, &pace);
      x->sure &= !ok || r == 0 ||
                 pace.loops == loops; /* else what grows on one rank may overtake another */
      loops = pace.loops;
    }
  return ok;
}

static bool times_repeat(Loops *x, Segments (*g)[4], int64_t n, Sample p[3]) {
  uint64_t **start[3], **idle[3], **end;
  bool ok = long_enough(&p[0].s, g, n),
       grows = p[1].s.lowered->channel_slots > p[0].s.lowered->channel_slots;
  if (!ok)
    return no(x, grows ? "its channels need more slots the more microbatches there are"
                       : "its loops are too short for what its ranks wait for");
  for (int j = 0; j < 3; j++) {
    start[j] = predict(&p[j].s, &end);
    idle[j] = idle_times(&p[j].s);
    x->sure &= idle[j] != NULL;
  }
  ok = pace_kept(x, g, n, start);
  x->sure = x->sure && pace_kept(x, g, n, idle);
  for (int j = 0; j < 3; j++)
    free(*start[j]);
  return ok || no(x, "its ranks do not come to keep one pace");
}

/* Each pipe has so many more microbatches as what clauses say of them repeats after. */
static bool clauses_repeat(Loops *x, const Sample p[3]) {
  for (uint32_t k = 0; x->proved && k < x->s->model->npipe; k++)
    if ((p[1].s.model->pipe[k].nmb - p[0].s.model->pipe[k].nmb) %
            (uint64_t)(x->every * x->s->model->slices) !=
        0)
      return no(x, "what its clauses say repeats after more microbatches");
  return true;
}

/* The rows of the segments as the tables of the program, once they are final. */
static void split_rows(Sched *s, const Segments *g, bool weights, PipeRank *to) {
  uint32_t words = INSTR_WORDS + (weights ? WEIGHT_WORDS : 0), n = g[0].row.n / words;
  PipeInstr *instr = arena_alloc(s->arena, n * sizeof *instr + 1);
  PipeWeights *w = weights ? arena_alloc(s->arena, n * sizeof *w + 1) : NULL;
  for (uint32_t i = 0; i < n; i++) {
    memcpy(&instr[i], &g[0].row.at[(size_t)i * words], sizeof *instr);
    if (w)
      memcpy(&w[i], &g[0].row.at[(size_t)i * words + INSTR_WORDS], sizeof *w);
  }
  to->instr = instr, to->ninstr = n, to->weights = w;
  to->list = g[1].row.at, to->nlist = g[1].row.n;
  to->sync = copy_rows(s, &g[2]), to->nsync = g[2].row.n / (sizeof *to->sync / 4);
  to->pool = copy_rows(s, &g[3]);
}

typedef struct Class { /* one that is being made */
  PipeLoopClass *out;
  PipeProgram *p;
  PipeRank *rank;
  PipeLoopRank *loop;
  Segments (*g)[4], stage;
  Cycles cycles;
  PipeLinear *param;
} Class;

/* The table of the class from the programs for n, n + 1 and n + 2; n counts from 0. `like`: one whose
 * tables stay. */
static bool make_class(Loops *x, int64_t n, const PipeProgram *const p[3], const PipeProgram *like,
                       PipeLooped *l, Class *k) {
  Sched *s = x->s;
  k->rank = NEW_ARRAY(s->arena, PipeRank, s->model->nrank);
  k->loop = NEW_ARRAY(s->arena, PipeLoopRank, s->model->nrank);
  k->g = arena_zalloc(s->arena, s->model->nrank, sizeof *k->g);
  k->param = NEW_ARRAY(s->arena, PipeLinear, strlen(p[0]->params) + 1);
  k->p = NEW(s->arena, PipeProgram);
  *k->p = *like;
  k->p->row = NULL; /* pipe_unroll fills it */
  k->cycles = (Cycles){0};
  for (uint32_t r = 0; r < s->model->nrank; r++)
    if (!roll_rank(x, &k->cycles, r, n, p, &k->rank[r], &k->loop[r], k->g[r]))
      return false;
  Rows stage[3];
  for (int j = 0; j < 3; j++)
    stage[j] = fixed_rows(s->arena, p[j]->stage, p[j]->nstage, sizeof *p[j]->stage);
  PipeLoopClass *c = k->out;
  if (p[0]->nstage != p[1]->nstage || p[0]->nstage != p[2]->nstage ||
      !roll(s, &k->cycles, NONE, n, stage, &k->stage))
    return no(x, "the stages do not grow evenly with it");
  *c = (PipeLoopClass){.from = value_of(x, 0),
                       .step = x->T,
                       .p = k->p,
                       .rank = k->loop,
                       .stage = rolled(&k->stage),
                       .param = k->param};
  if (!FIT(&c->nmb, nmb) || !FIT(&c->slots, slots))
    return no(x, "its channels need more slots the more microbatches there are");
  if (!FIT(&c->makespan, makespan) || !FIT(&c->ideal, ideal) || !FIT(&c->busy, busy))
    return no(x, "its times do not come to repeat");
  return fit_params(x, n, p, l, k->param);
}

static void finish_class(Loops *x, Class *k, int64_t by) {
  Sched *s = x->s;
  PipeLoopClass *c = k->out;
  PipeLinear *const of_class[] = {&c->nmb, &c->slots, &c->makespan, &c->ideal, &c->busy};
  for (size_t i = 0; i < sizeof of_class / sizeof *of_class; i++)
    of_class[i]->at += of_class[i]->by * by;
  for (uint32_t i = 0; k->p->params[0] && i < strlen(k->p->params); i++)
    k->param[i].at += k->param[i].by * by;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    PipeLoopRank *l = &k->loop[r];
    PipeLinear *const of_rank[] = {&l->nslot, &l->inflight, &l->nevent, &l->bytes, &l->host};
    for (size_t i = 0; i < sizeof of_rank / sizeof *of_rank; i++)
      of_rank[i]->at += of_rank[i]->by * by;
    const PipeRank *was = &k->rank[r];
    const uint32_t words[4] = {INSTR_WORDS + (was->weights ? WEIGHT_WORDS : 0), 1,
                               sizeof(PipeSync) / 4, sizeof(PipePool) / 4};
    for (int i = 0; i < 4; i++)
      roll_rebase(&k->g[r][i], &k->cycles, words[i], by);
    split_rows(s, k->g[r], was->weights != NULL, &k->rank[r]);
  }
  roll_rebase(&k->stage, &k->cycles, sizeof(PipeStage) / 4, by);
  c->from += c->step * by;
  c->cycle = k->cycles.at.at;
  k->p->rank = k->rank;
  k->p->stage = copy_rows(s, &k->stage);
}

static bool same_program(const PipeProgram *a, const PipeProgram *b) {
  if (a->hash != b->hash || strcmp(a->params, b->params) != 0 || a->nsite != b->nsite ||
      a->nfile != b->nfile || a->nstate != b->nstate || a->ngroup != b->ngroup)
    return false;
  for (uint32_t r = 0; r < a->nrank; r++) {
    const PipeRank *k = &a->rank[r], *m = &b->rank[r];
    if (k->ninstr != m->ninstr || k->nevent != m->nevent)
      return false;
    for (uint32_t i = 0; i < k->ninstr; i++)
      if (k->instr[i].site != m->instr[i].site)
        return false;
  }
  return memcmp(a->site, b->site, a->nsite * sizeof *a->site) == 0;
}

/* Is the table unrolled what pipec makes of n? absolute: of what n is counted from in the table. True of what is not
 * admitted, which has no program. */
static bool holds(Loops *x, const PipeLooped *l, int64_t n) {
  char why[PIPE_LOOP_TEXT];
  Sample p;
  if (!admits(x, n))
    return true;
  bool ok = sample(x, n, &p);
  PipeProgram *q = ok ? pipe_unroll(l, value_of(x, n), why) : NULL;
  ok = q && same_program(q, p.s.prog);
  pipe_unroll_free(q);
  arena_free(&p.arena);
  return ok;
}

/* Are no values from n on admitted, as far as can be seen, by what the schedule requires and by what it uses? */
static bool admits_none(Loops *x, int64_t n) {
  enum { TRIED = 1 << 12, COMPILED = 16 };
  int compiled = 0;
  bool none = true;
  for (int64_t i = 0; i < TRIED && compiled < COMPILED && none; i++) {
    Sample p;
    if (!admits(x, n + i))
      continue;
    none = !sample(x, n + i, &p) && p.diag.first == DIAG_REQUIRES;
    arena_free(&p.arena);
    compiled++;
  }
  return none;
}

/* note [lines]: how many slots are taken at a place of the program is at least 0 and moves on by a whole number with n; the most of
 * them is the greatest of such lines. One that overtakes that of n, n + 1 and n + 2 grows by 1 more at least, so it does
 * before n has grown by as many as there are slots at n. There the table is looked at once more. False: it does not
 * hold; x->sure becomes false if that is too far. */
static bool lines_hold(Loops *x, const PipeLooped *one, int64_t n, const PipeProgram *p) {
  enum { MOST_FAR = 1 << 21 }; /* instructions there */
  uint64_t most = 0, all = 0;
  for (uint32_t r = 0; r < p->nrank; r++) {
    uint64_t slots = 0;
    for (uint32_t k = 0; k < p->rank[r].npool; k++)
      slots += p->rank[r].pool[k].count;
    most = slots > most ? slots : most;
    all += p->rank[r].ninstr;
  }
  int64_t far = n + 3 + (int64_t)most;
  while (!admits(x, far) && far < n + 3 + 2 * (int64_t)most)
    far++;
  if (!admits(x, far) || all * (uint64_t)far / (uint64_t)n > MOST_FAR)
    return x->sure = false, true;
  return holds(x, one, far) || no(x, arena_printf(x->s->arena, "what repeats ends at %s = %lld",
                                                  x->name, (long long)value_of(x, far)));
}

/* Tries to roll the class at n, n + 1, n + 2. *never: the schedule does not admit the values of the class. */
static bool try_class(Loops *x, int64_t n, PipeLooped *l, PipeLoopClass *out, Sched **of,
                      bool *never) {
  Sample p[3];
  uint32_t made = 0;
  bool ok = true;
  *never = false;
  for (; made < 3 && ok; made++) {
    ok = sample(x, n + made, &p[made]);
    if (!ok && work_spent(x->s->opt->work))
      continue; /* it says nothing */
    if (ok && (p[made].s.model->nrank != x->s->model->nrank ||
               p[made].s.model->nstage != x->s->model->nstage)) {
      ok = no(x, "the number of its ranks, or stages, depends on it");
      continue;
    }
    *never |= !ok && (!admits(x, n + made) || p[made].diag.first == DIAG_REQUIRES);
    if (!ok)
      no(x, arena_printf(x->s->arena, "it is refuted at %s = %lld [%s]", x->name,
                         (long long)value_of(x, n + made), diag_name(p[made].diag.first)));
  }
  Class k = {.out = out};
  const PipeProgram *const q[3] = {p[0].s.prog, p[1].s.prog, p[2].s.prog};
  Sample *like = ok ? arena_zalloc(x->s->arena, 1, sizeof *like) : NULL;
  *never = *never && admits_none(x, n);
  if (ok) /* its tables live as long as s */
    ok = compile_at(x->s, &like->s, x->s->arena, &like->diag, &like->opt, x->name, value_of(x, n),
                    !admits(x, n));
  x->sure = x->proved && !shares_links(x->s);
  ok = ok && clauses_repeat(x, p) && make_class(x, n, q, like->s.prog, l, &k) &&
       times_repeat(x, k.g, n, p);
  if (ok)
    finish_class(x, &k, 0);
  PipeLooped one = *l;
  one.cls = out, one.nclass = 1;
  int64_t next = n + 3;
  while (!admits(x, next) && next < n + MOST_TRIED)
    next++;
  ok = ok && (holds(x, &one, next) || no(x, "it does not go on repeating"));
  for (uint32_t i = 0; i < made; i++)
    arena_free(&p[i].arena);
  if (!ok)
    return false;
  if (x->sure && !lines_hold(x, &one, n, like->s.prog))
    return false;
  /* What no proof says is at least tried. */
  int64_t most = n + 3, tried = 0;
  uint64_t work = x->work;
  for (int i = 0; i < MOST_TRIED + 3 && !x->sure; i++) {
    most = i < MOST_TRIED ? most + 1 : 2 * most + 1;
    if (!holds(x, &one, most))
      return no(x, arena_printf(x->s->arena, "what repeats ends at %s = %lld", x->name,
                                (long long)value_of(x, most)));
    tried = admits(x, most) ? most : tried;
  }
  x->work = work;
  if (!x->sure && (value_of(x, tried) < x->tried || x->tried == 0))
    x->tried = value_of(x, tried);
  int64_t least = n; /* one that is admitted, if there is one */
  while (least < n + MOST_TRIED && !admits(x, least))
    least++;
  for (int64_t v = n - 1; v >= 0 && value_of(x, v) >= 1 && holds(x, &one, v); v--)
    least = admits(x, v) ? v : least;
  finish_class(x, &k, least);
  like->s.prog = k.p;
  like->s.work = like->opt.work = NULL; /* it is emitted */
  *of = &like->s;
  return true;
}

/* From where on a class is sampled: what is proved from some M on need not be like that below it. */
static int64_t least_n(const Loops *x) {
  const Sched *s = x->s;
  int64_t from = s->all_m.proved ? (int64_t)(s->all_m.from + s->all_m.settled) : 0, n = 8;
  return from <= value_of(x, n) ? n : (from - x->residue + x->T - 1) / x->T;
}

/* Of the class at hand. */
static bool admits_nothing(const Loops *x) {
  enum { TRIED = 1 << 12 };
  int64_t n = 0;
  while (n < TRIED && !admits(x, n))
    n++;
  while (n >= TRIED && n < INT32_MAX && !admits(x, n))
    n *= 2;
  return n >= INT32_MAX;
}

/* budget: instructions that may be compiled for it. */
static bool all_classes(Loops *x, Looped *l, int64_t T, uint64_t budget) {
  Sched *s = x->s;
  PipeLoopClass *cls = NEW_ARRAY(s->arena, PipeLoopClass, (size_t)T + MOST_SHORT);
  l->table.cls = cls, l->table.nclass = 0;
  l->like = NEW_ARRAY(s->arena, Sched *, (size_t)T + MOST_SHORT);
  x->T = T, x->tried = 0;
  budget += x->work;
  for (x->residue = 1; x->residue <= T; x->residue++) {
    bool never = s->all_m.proved && x->residue % (int64_t)s->all_m.multiple != 0, ok = false;
    never = never || admits_nothing(x);
    x->why = never ? x->why : "too much would have to be tried";
    for (int64_t n = least_n(x); !never && !ok && n <= MOST_TURNS && x->work < budget; n *= 2)
      ok = try_class(x, n, &l->table, &cls[l->table.nclass], &l->like[l->table.nclass], &never);
    if (!ok && !never)
      return false;
    l->table.nclass += ok;
  }
  return l->table.nclass > 0;
}

/* One value below those of its class, as a class of its own: no rows repeat. */
static bool add_short(Loops *x, Looped *l, int64_t value, const PipeProgram *p) {
  enum { NO_TURNS = 1 << 20 }; /* less than half as many are no loop */
  char why[PIPE_LOOP_TEXT];
  uint32_t at = l->table.nclass;
  PipeLoopClass *out = (PipeLoopClass *)&l->table.cls[at];
  Sample *like = arena_zalloc(x->s->arena, 1, sizeof *like);
  const PipeProgram *const same[3] = {p, p, p};
  Class k = {.out = out};
  if (!compile_at(x->s, &like->s, x->s->arena, &like->diag, &like->opt, x->name, value, false) ||
      !make_class(x, NO_TURNS, same, like->s.prog, &l->table, &k))
    return false;
  finish_class(x, &k, 0);
  out->from = value, out->step = INT64_MAX;
  like->s.prog = k.p;
  PipeLooped one = l->table;
  one.cls = out, one.nclass = 1;
  PipeProgram *q = pipe_unroll(&one, value, why);
  bool ok = q && same_program(q, p);
  pipe_unroll_free(q);
  like->s.work = like->opt.work = NULL; /* it is emitted */
  l->like[at] = &like->s;
  l->table.nclass += ok, l->nshort += ok;
  return ok;
}

/* Is the value one of these classes? */
static bool has_value(const PipeLooped *l, int64_t value) {
  for (uint32_t i = 0; i < l->nclass; i++)
    if (value >= l->cls[i].from && (value - l->cls[i].from) % l->cls[i].step == 0)
      return true;
  return false;
}

/* The values that the schedule admits below those of the classes, up to where these become too many. */
static void add_shorts(Loops *x, Looped *l) {
  Arena *a = x->s->arena;
  int64_t end = 0, v = 1;
  uint64_t rows = 0;
  VEC(char) lacks = {0};
  const char *said;
  for (uint32_t i = 0; i < l->table.nclass; i++)
    end = l->table.cls[i].from > end ? l->table.cls[i].from : end;
  for (; v < end && rows <= MOST_SHORT_ROWS && l->nshort < MOST_SHORT; v++) {
    Sample p;
    if (has_value(&l->table, v) || pipe_loop_refused(&l->table, v))
      continue;
    bool ok = compile_at(x->s, &p.s, &p.arena, &p.diag, &p.opt, x->name, v, false), left = false;
    for (uint32_t r = 0; ok && r < p.s.model->nrank; r++)
      rows += p.s.prog->rank[r].ninstr;
    if (ok)
      left = !add_short(x, l, v, p.s.prog);
    if (work_spent(x->s->opt->work)) {
      arena_free(&p.arena);
      break;
    }
    if (left || (!ok && p.diag.first != DIAG_REQUIRES))
      for (said = arena_printf(a, "%s %lld [%s]", lacks.n ? "," : "", (long long)v,
                               ok ? "its table is not that of the text" : diag_name(p.diag.first));
           *said; said++)
        *vec_push(a, &lacks) = *said;
    arena_free(&p.arena);
  }
  while (v < end && (has_value(&l->table, v) || pipe_loop_refused(&l->table, v)))
    v++;
  if (v < end)
    for (said = arena_printf(a, "%s those from %lld to %lld that have no loop [too many]",
                             lacks.n ? "," : "", (long long)v, (long long)end - 1);
         *said; said++)
      *vec_push(a, &lacks) = *said;
  *vec_push(a, &lacks) = 0;
  l->lacks = lacks.at;
}

/* The periods to try: of proved orders, multiples of theirs, and of what clauses repeat after; else what ranks or a few
 * microbatches suggest. */
static int64_t period(const Loops *x, uint32_t i) {
  const Sched *s = x->s;
  static const int64_t times[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
  int64_t few[] = {1, 2, 4, s->model->nrank, 2 * (int64_t)s->model->nrank, 3, 6};
  int64_t a = (int64_t)s->all_m.period, b = (int64_t)s->all_m.multiple;
  if (!s->all_m.proved)
    return i < sizeof few / sizeof *few ? few[i] : 0;
  if (i >= sizeof times / sizeof *times)
    return 0;
  int64_t c = (int64_t)s->all_m.step * x->proved + !x->proved, T = a / quasi_gcd(a, b) * b;
  if (c > 1)
    T = T / quasi_gcd(T, c) * c;
  if (x->proved)
    T = T / quasi_gcd(T, x->every) * x->every;
  T *= times[i];
  return T > MOST_CLASSES * b ? 0 : T;
}

bool make_looped(Sched *s) {
  Loops x = {.s = s, .name = s->opt->for_all};
  x.proved = !rest_moves(s, x.name, &x.every) && s->all_m.proved;
  x.why = "what repeats takes too many microbatches";
  if (x.every > MOST_CLASSES)
    x.every = 1, x.proved = false;
  Looped *l = NEW(s->arena, Looped);
  int64_t T = 1;
  const char *why = never_looped(s);
  bool never = why || !formulas_of_m(s, x.name, &l->table);
  l->table.magic = PIPE_LOOP_MAGIC, l->table.abi = PIPE_ABI;
  x.rules = &l->table;
  if (never)
    x.why = why ? why
                : "what the schedule requires, or a parameter that follows from it, is too long";
  Work work;
  work_begin(&work, work_within(s->work, WORK_SEARCH), true);
  s->opt->work = &work;
  for (uint32_t i = 0; !never && !s->looped && !work.spent && (T = period(&x, i)) > 0; i++)
    if ((T <= MOST_CLASSES || s->all_m.proved) &&
        all_classes(&x, l, T, s->opt->looped ? MOST_WORK / 8 : (MOST_WORK / 16 - x.work) / 2))
      s->looped = l, l->tried = x.tried;
  if (work.spent)
    s->looped = NULL, x.why = arena_printf(s->arena, "%s; to try more takes too many steps", x.why);
  if (s->looped && s->opt->looped) {
    work_begin(&work, work_within(s->work, WORK_SEARCH / 2), true);
    add_shorts(&x, l);
  }
  s->opt->work = s->work;
  work_end(&work);
  if (s->looped || !s->opt->looped)
    return true;
  LineCol at = diag_linecol(s->diag, s->all_m.at.file, s->all_m.at.beg);
  if (!s->all_m.proved && !never) /* the cause; the search ended for that */
    x.why = arena_printf(
        s->arena, "%s%s", s->all_m.text,
        s->all_m.at.file == NO_FILE ? "" : arena_printf(s->arena, " (line %u)", at.line));
  diag_error(s->diag, DIAG_LOOPED, s->parsed->def->name_at, "there is no program for every %s: %s",
             x.name, x.why);
  diag_help(s->diag, "give it a value, such as -D %s=64", x.name);
  return false;
}
