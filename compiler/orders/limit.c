/* SPDX-License-Identifier: MIT
 * Turns `limit` clauses into rows of numbers (find_limits) and proves them for the finished program
 * (check_limits). Both sides of a comparison must be linear in the counts. So a row is one sum,
 * which `tune` can keep below its bound while it moves ops (justify.c). Cost of the proof: the ops
 * and copies of a rank, times its rows, times its stages. */
#include "limit.h"
#include "base.h"
#include "graph.h"
#include "stages.h"
#include "orders.h"

#include <string.h>

#include "plant.h"
#include "queues.h"

/* ---- what ops take ---- */

int count_of(int builtin) {
  return builtin == BI_INFLIGHT ? LIVE
         : builtin == BI_HELD   ? HELD
         : builtin == BI_KEPT   ? KEPT
                                : HOST;
}

OpCounts op_counts(const Sched *s, const Op *o) {
  OpCounts c = {{0}, {0}};
  switch (o->kind) {
  case PIPE_F:
    c.take[LIVE] = 1, c.give[LIVE] = 1 - order_makes(s, o);
    c.take[KEPT] = s->orders->at_r[(size_t)o->stage * s->model->nmb + o->mb] != 0;
    break;
  case PIPE_R: c.take[LIVE] = c.give[KEPT] = 1; break;
  case PIPE_B: c.give[LIVE] = 1; break;
  case PIPE_I: c.take[HELD] = 1; break;
  case PIPE_W: c.give[LIVE] = c.give[HELD] = 1; break;
  default: break;
  }
  return c;
}

void limit_change(const Sched *s, const Limit *l, const Op *o, int64_t *start, int64_t *end) {
  OpCounts c = op_counts(s, o);
  uint32_t nchunk = s->model->rank_stage0[l->rank + 1] - s->model->rank_stage0[l->rank];
  *start = *end = 0;
  for (int k = 0; k < NCOUNTS; k++) {
    int64_t weight = l->weight[(uint32_t)k * nchunk + s->model->stage[o->stage].chunk];
    *start += weight * c.take[k];
    *end -= weight * c.give[k];
  }
}

void stash_change(const Sched *s, const Op *o, bool bytes, int64_t *start, int64_t *end) {
  const PipeStage *st = &s->model->stage[o->stage];
  OpCounts c = op_counts(s, o);
  int64_t weight[NCOUNTS] = {[LIVE] = 1};
  if (bytes) {
    weight[LIVE] = (int64_t)round64(st->act_bytes);
    weight[HELD] = (int64_t)round64(st->gout_bytes);
    weight[KEPT] = c.take[KEPT] + c.give[KEPT] ? (int64_t)round64(row_inputs_bytes(s, o->stage))
                                               : 0;
  }
  *start = *end = 0;
  for (int q = 0; q < NCOUNTS; q++)
    *start += weight[q] * c.take[q], *end -= weight[q] * c.give[q];
}

uint32_t limits_of(const Sched *s, uint32_t r, uint32_t *first) {
  *first = s->claims->nrow ? s->claims->row0[r] : 0;
  return s->claims->nrow ? s->claims->row0[r + 1] - s->claims->row0[r] : 0;
}

/* Lemma: let a row have weight a for a stash and h for a held microbatch. Then each stash takes at
 * least min(a, a + h) of the bound. */
int64_t limits_room(const Sched *s, uint32_t r) {
  uint32_t first, n = limits_of(s, r, &first),
                  nchunk = s->model->rank_stage0[r + 1] - s->model->rank_stage0[r];
  int64_t room = INT64_MAX;
  for (const Limit *l = &s->claims->row[first]; l < &s->claims->row[first + n]; l++) {
    int64_t least = INT64_MAX;
    for (uint32_t c = 0; c < nchunk; c++) {
      int64_t live = l->weight[LIVE * nchunk + c], held = l->weight[HELD * nchunk + c];
      live = live + held < live ? live + held : live;
      if (l->weight[KEPT * nchunk + c] < 0 || l->weight[HOST * nchunk + c] < 0)
        live = 0;
      least = live < least ? live : least;
    }
    if (least > 0 && l->most >= 0 && l->most / least < room)
      room = l->most / least;
  }
  return room;
}

const char *const count_name[NCOUNTS] = {
    [LIVE] = "inflight", [HELD] = "held", [KEPT] = "kept", [HOST] = "host"};

/* Adds " + 2*inflight(0)" to a text. chunk: NONE: of all chunks. */
static const char *add_term(Sched *s, const char *text, int64_t weight, int count, uint32_t rank,
                            uint32_t chunk) {
  if (weight == 0)
    return text;
  const char *sign = *text ? weight < 0 ? " - " : " + " : weight < 0 ? "-" : "";
  long long n = weight < 0 ? -(long long)weight : (long long)weight;
  return arena_printf(s->arena, "%s%s%s%s(%u%s)", text, sign,
                      n == 1 ? "" : arena_printf(s->arena, "%lld*", n), count_name[count], rank,
                      chunk == NONE ? "" : arena_printf(s->arena, ", %u", chunk));
}

const char *limit_text(Sched *s, const Limit *l) {
  uint32_t nchunk = s->model->rank_stage0[l->rank + 1] - s->model->rank_stage0[l->rank];
  const char *text = "";
  for (int k = 0; k < NCOUNTS; k++) {
    const int64_t *weight = &l->weight[(size_t)k * nchunk];
    bool all = true;
    for (uint32_t c = 1; c < nchunk; c++)
      all &= weight[c] == weight[0];
    for (uint32_t c = 0; c < (all ? 1 : nchunk); c++)
      text = add_term(s, text, weight[c], k, l->rank, all ? NONE : c);
  }
  return arena_printf(s->arena, "%s <= %lld", *text ? text : "0", (long long)l->most);
}

/* ---- clauses into rows ---- */

typedef struct Finder {
  Sched *s;
  Limit row;
  int64_t plain; /* constant part of the sum */
} Finder;

static bool is_memory(const Expr *e) { return e->kind == EX_CALL && e->builtin == BI_MEMORY; }
static bool is_count(const Expr *e) { return e->kind == EX_CALL && is_now(e->builtin); }

static bool mentions(const Expr *e, bool (*what)(const Expr *)) {
  if (!e)
    return false;
  if (what(e))
    return true;
  for (const Arg *a = e->args; a; a = a->next)
    if (mentions(a->value, what))
      return true;
  return mentions(e->a, what) || mentions(e->b, what) || mentions(e->c, what);
}

bool counts_now(const Expr *e) { return mentions(e, is_count); }

bool is_byte_limit(const Clause *c) { return mentions(c->value, is_memory); }

/* May a count have this weight? The sum over all ops must not overflow. Requires the ops. */
static bool weight_fits(const Sched *s, int64_t weight) {
  int64_t most = INT64_MAX / 8 / ((int64_t)s->orders->nop + 1);
  return weight <= most && weight >= -most;
}

static bool too_large(Finder *x, const Expr *e) {
  diag_error(x->s->diag, DIAG_RANGE, e->at,
             "a count times this weight could overflow; the weights of this limit are at most %lld",
             (long long)(INT64_MAX / 8 / ((int64_t)x->s->orders->nop + 1)));
  return false;
}

static bool not_linear(Finder *x, const Expr *e) {
  diag_error(x->s->diag, DIAG_CLAUSE, e->at,
             "a limit is a sum of counts times numbers; '%s' is not", span_text(x->s, e->at));
  diag_help(x->s->diag, "such as 2*inflight(r) - held(r) <= 4*P");
  return false;
}

static bool add_count(Finder *x, const Expr *call, int64_t factor) {
  Sched *s = x->s;
  int64_t r, c = 0;
  if (!rank_argument(s, call, &r))
    return false;
  if (x->row.rank != NONE && x->row.rank != r) {
    diag_error(s->diag, DIAG_CLAUSE, call->at,
               "a limit counts on one rank; this limit counts on rank %u and on rank %lld",
               x->row.rank, (long long)r);
    diag_help(s->diag,
              "counts of two ranks at one moment depend on times: write one limit per rank");
    return false;
  }
  uint32_t nchunk = s->model->rank_stage0[r + 1] - s->model->rank_stage0[r];
  if (x->row.rank == NONE) {
    x->row.rank = (uint32_t)r;
    x->row.weight = NEW_ARRAY(s->arena, int64_t, NCOUNTS * (size_t)nchunk);
  }
  const Arg *chunk = call->args->next;
  if (chunk && !eval(s, chunk->value, &c))
    return false;
  if (chunk && (c < 0 || c >= nchunk)) {
    diag_error(s->diag, DIAG_RANGE, chunk->value->at,
               "rank %lld has no chunk %lld; its chunks are 0 to %u", (long long)r, (long long)c,
               nchunk - 1);
    return false;
  }
  for (uint32_t k = chunk ? (uint32_t)c : 0; k < (chunk ? (uint32_t)c + 1 : nchunk); k++) {
    int64_t *weight = &x->row.weight[(uint32_t)count_of(call->builtin) * nchunk + k];
    *weight += factor;
    if (!weight_fits(s, *weight))
      return too_large(x, call);
  }
  return true;
}

#define MOST_PLAIN (INT64_MAX / 4) /* leaves room for the counts and the other side */

static bool add_to(Finder *x, const Expr *e, int64_t factor) {
  Sched *s = x->s;
  int64_t v;
  if (!counts_now(e)) {
    if (!eval(s, e, &v))
      return false;
    if (!__builtin_mul_overflow(v, factor, &v) && !__builtin_add_overflow(x->plain, v, &x->plain) &&
        x->plain < MOST_PLAIN && x->plain > -MOST_PLAIN)
      return true;
    diag_error(
        s->diag, DIAG_RANGE, e->at,
        "with '%s' the numbers of this limit add up to more than %lld, or to less than -%lld",
        span_text(s, e->at), (long long)MOST_PLAIN - 1, (long long)MOST_PLAIN - 1);
    return false;
  }
  switch (e->kind) {
  case EX_ADD: return add_to(x, e->a, factor) && add_to(x, e->b, factor);
  case EX_SUB: return add_to(x, e->a, factor) && add_to(x, e->b, -factor);
  case EX_NEG: return add_to(x, e->a, -factor);
  case EX_MUL: {
    const Expr *number = counts_now(e->a) ? e->b : e->a, *rest = number == e->a ? e->b : e->a;
    if (counts_now(number))
      return not_linear(x, e);
    if (!eval(s, number, &v))
      return false;
    return __builtin_mul_overflow(v, factor, &v) || !weight_fits(s, v) ? too_large(x, number)
                                                                       : add_to(x, rest, v);
  }
  case EX_COND:
    if (counts_now(e->a))
      return not_linear(x, e);
    return eval(s, e->a, &v) && add_to(x, v ? e->b : e->c, factor);
  case EX_CALL: return is_now(e->builtin) ? add_count(x, e, factor) : not_linear(x, e);
  default: return not_linear(x, e);
  }
}

/* Makes the row of comparison e. False: reported. */
static bool find_row(Sched *s, const Clause *c, const Expr *e, Limit *row) {
  Finder x = {.s = s, .row = {.clause = c, .compare = e, .at = e->at, .rank = NONE}};
  bool less = e->kind == EX_LT || e->kind == EX_LE, more = e->kind == EX_GT || e->kind == EX_GE;
  if (!counts_now(e)) {
    diag_error(s->diag, DIAG_CLAUSE, e->at,
               "this limit has no count: use memory(r), inflight(r), held(r), kept(r) or host(r)");
    diag_help(s->diag, "put a condition on parameters into 'requires' or a 'check'");
    return false;
  }
  if (!less && !more) {
    diag_error(s->diag, DIAG_CLAUSE, e->at,
               "a limit is one bound: two sums with <, <=, > or >= between them");
    diag_help(s->diag, e->kind == EX_AND ? "write two limits"
                       : e->kind == EX_EQ
                           ? "for an upper bound write <=; for an exact peak write a check"
                           : "such as 2*inflight(r) - held(r) <= 4*P");
    return false;
  }
  if (!add_to(&x, e->a, less ? 1 : -1) || !add_to(&x, e->b, less ? -1 : 1))
    return false;
  x.row.index = c->var ? s->eval.env[c->slot] : 0;
  x.row.most = -x.plain - (e->kind == EX_LT || e->kind == EX_GT);
  *row = x.row;
  if (row->rank != NONE)
    return true;
  return not_linear(&x, e); /* every count is in a branch that is not taken */
}

/* Notes a bound of memory(r) in Claims.bytes. False: reported. */
static bool find_bytes(Sched *s, Claims *claims, const Expr *e) {
  const bool less = e->kind == EX_LT || e->kind == EX_LE,
             more = e->kind == EX_GT || e->kind == EX_GE;
  const Expr *sum = less ? e->a : e->b, *bound = less ? e->b : e->a;
  int64_t r, most;
  if (!(less || more) || !is_memory(sum) || mentions(bound, is_memory) || counts_now(bound)) {
    diag_error(s->diag, DIAG_CLAUSE, e->at, "a limit of bytes has memory(r) alone on one side");
    diag_help(s->diag, "such as memory(r) <= 40GiB");
    return false;
  }
  if (!s->model->sized) {
    diag_error(s->diag, DIAG_NO_SIZES, sum->at, "a limit of bytes needs 'bytes' or a profile");
    return false;
  }
  if (!rank_argument(s, sum, &r) || !eval(s, bound, &most))
    return false;
  if (!claims->bytes) {
    claims->bytes = NEW_ARRAY(s->arena, int64_t, s->model->nrank);
    for (uint32_t i = 0; i < s->model->nrank; i++)
      claims->bytes[i] = INT64_MAX;
  }
  if (most < claims->bytes[r])
    claims->bytes[r] = most;
  return true;
}

int64_t stash_bytes_room(const Sched *s, uint32_t r, uint32_t slots) {
  if (!s->claims->bytes || s->claims->bytes[r] == INT64_MAX)
    return INT64_MAX;
  uint64_t fixed = 0, work = 0;
  for (uint32_t i = s->model->rank_stage0[r]; i < s->model->rank_stage0[r + 1]; i++) {
    const uint32_t row = s->model->rank_stage[i];
    const PipeStage *st = &s->model->stage[row];
    fixed += round64(st->weight_bytes) + round64(st->grad_bytes) + round64(st->opt_bytes);
    work = st->work_bytes > work ? st->work_bytes : work;
    /* receive slots of F, send slots of B */
    if (st->prev < PIPE_MANY && s->model->stage[st->prev].rank != r)
      fixed += (uint64_t)2 * slots * round64(row_inputs_bytes(s, row));
    if (st->next < PIPE_MANY && s->model->stage[st->next].rank != r)
      fixed += (uint64_t)2 * slots * round64(st->boundary_bytes);
  }
  int64_t room;
  return __builtin_sub_overflow(s->claims->bytes[r], fixed + round64(work), &room) ? -1 : room;
}

typedef VEC(Limit) Rows;

static bool find_rows(Sched *s, Claims *claims, Arena *a, const Clause *c, Rows *rows) {
  int64_t lo = 0, hi = 1, step = 1;
  if (c->var && !eval_range(s, &c->range, &lo, &hi, &step))
    return false;
  if (step > 0 ? lo >= hi : lo <= hi)
    diag_warn(s->diag, DIAG_OVER_LIMIT, c->at,
              "the range of this limit is empty: it limits nothing");
  uint64_t turns = 0, most = 16 * (uint64_t)s->model->nrank + 1000;
  for (int64_t x = lo; step > 0 ? x < hi : x > hi;) {
    if (c->var)
      s->eval.env[c->slot] = x;
    if (rows->n >= most || turns++ > most) {
      diag_error(s->diag, DIAG_LOOP, c->at, "more than %llu limits; a bound of this range is wrong",
                 (unsigned long long)most);
      return false;
    }
    if (is_byte_limit(c) ? !find_bytes(s, claims, c->value)
                         : !find_row(s, c, c->value, vec_push(a, rows)))
      return false;
    if (__builtin_add_overflow(x, step, &x))
      break;
  }
  return true;
}

/* Makes Claims.row and row0 from n rows in any order. */
static void set_limits(Sched *s, Claims *claims, const Limit *row, uint32_t n) {
  uint32_t *at = claims->row0 = NEW_ARRAY(s->arena, uint32_t, s->model->nrank + (size_t)2);
  claims->row = arena_alloc(s->arena, n * sizeof *s->claims->row + 1);
  claims->nrow = n;
  for (uint32_t i = 0; i < n; i++)
    at[row[i].rank + 2]++;
  for (uint32_t r = 1; r < s->model->nrank + 2; r++)
    at[r] += at[r - 1];
  for (uint32_t i = 0; i < n; i++)
    s->claims->row[at[row[i].rank + 1]++] = row[i];
}

bool find_limits(Sched *s, Claims *claims) {
  Arena a = {0};
  Rows rows = {0};
  bool ok = true;
  for (uint32_t i = 0; ok && i < s->claims->nlimit; i++)
    ok = find_rows(s, claims, &a, s->claims->limit[i], &rows);
  if (ok && rows.n > 0)
    set_limits(s, claims, rows.at, rows.n);
  arena_free(&a);
  return ok;
}

/* ---- the proof ---- */

/* note [when copies run]: the copies of a rank run one after the other, each from its place on or
 * later. When an op starts, the copies that it waits for have ended. So, before an op, the rank is
 * at some begin or end of a copy: from the end of the last copy that an op has waited for, to the
 * end of the last copy whose place has come. The largest amount that copies add to a row at any of
 * these points counts. A queue of candidates for this maximum has it at its head. */
typedef struct Ends {  /* a row's queue. Point 2 * c: c copies are over; 2 * c + 1: c + 1 begun */
  int64_t sum;         /* sum that copies have added up to the last point so far */
  uint32_t *at;        /* [n] candidate points, ascending; their sums descend */
  int64_t *most;       /* [n] these sums */
  uint32_t first, end; /* ends of the queue */
} Ends;

typedef struct Walk {
  Sched *s;
  uint32_t rank, nchunk, first, n; /* first, n: rows of Claims.row */
  int64_t *now;                    /* [NCOUNTS * nchunk] counts of ops alone */
  uint32_t copied, over;           /* copies whose place has come; that ops have waited for */
  const PipeInstr **copy;          /* [ncopy] copies of the rank */
  uint32_t ncopy, *place;          /* [ncopy] ops of the rank before it */
  uint32_t *copies_over;           /* [op of the rank] copies that are over when it starts */
  Ends *ends;                      /* [n] */
  const Limit *broken;             /* first limit that does not hold */
  int64_t excess;                  /* amount by which its worst moment exceeds it */
  uint32_t op, end;                /* worst moment: this op, and this point of the copies */
  int64_t *moment;                 /* [NCOUNTS * nchunk] counts of ops at the worst moment */
} Walk;

/* What the begin, or the end, of a copy adds to a count. False: nothing. */
static bool copy_adds(const PipeInstr *in, bool end, int *what, int64_t *by) {
  bool off = in->op == PIPE_OFF, device = end == off;
  *what = device ? LIVE : HOST;
  *by = end ? -1 : 1;
  return in->op != PIPE_SIDE_COPY && (device || in->peer == NONE);
}

static size_t cell_of(const Walk *w, int what, uint32_t stage) {
  return (size_t)what * w->nchunk + w->s->model->stage[stage].chunk;
}

static void push_end(Ends *e, uint32_t number, int64_t change) {
  e->sum += change;
  while (e->end > e->first && e->most[e->end - 1] <= e->sum)
    e->end--;
  e->at[e->end] = number, e->most[e->end++] = e->sum;
}

static void look(Walk *w, uint32_t op) {
  for (uint32_t k = 0; k < w->n; k++) {
    Limit *l = &w->s->claims->row[w->first + k];
    const Ends *e = w->ends ? &w->ends[k] : NULL;
    int64_t sum = e ? e->most[e->first] : 0;
    for (uint32_t i = 0; i < NCOUNTS * w->nchunk; i++)
      sum += l->weight[i] * w->now[i];
    l->peak = sum > l->peak ? sum : l->peak;
    if (sum <= l->most || (w->broken && (w->broken != l || sum - l->most <= w->excess)))
      continue;
    w->broken = l, w->excess = sum - l->most, w->op = op, w->end = e ? e->at[e->first] : 0;
    memcpy(w->moment, w->now, NCOUNTS * (size_t)w->nchunk * sizeof *w->now);
  }
}

/* Adds the copies whose place is before op i of the rank, and drops those that op i waits for. */
static void copies_before(Walk *w, uint32_t i) {
  for (; w->copied < w->ncopy && w->place[w->copied] <= i; w->copied++)
    for (int end = 0; end < 2; end++) {
      const PipeInstr *x = w->copy[w->copied];
      int what;
      int64_t by;
      bool adds = copy_adds(x, end, &what, &by);
      for (uint32_t k = 0; k < w->n; k++)
        push_end(&w->ends[k], 2 * w->copied + 1 + (uint32_t)end,
                 adds ? by * w->s->claims->row[w->first + k].weight[cell_of(w, what, x->stage)]
                      : 0);
    }
  look(w, w->s->orders->rank_op0[w->rank] + i);
  w->over = w->copies_over[i];
  for (Ends *e = w->ends; e < w->ends + w->n; e++)
    while (e->at[e->first] < 2 * w->over)
      e->first++;
}

/* Finds the copies of the rank, and how many of them each op waits for, in the finished list. */
static void find_copies(Walk *w, uint32_t r, Arena *a) {
  Sched *s = w->s;
  const PipeRank *rank = &s->prog->rank[r];
  uint32_t i = 0;
  w->copy = NEW_ARRAY(a, const PipeInstr *, rank->ninstr);
  w->place = NEW_ARRAY(a, uint32_t, rank->ninstr);
  w->copies_over = NEW_ARRAY(a, uint32_t, s->orders->rank_op0[r + 1] - s->orders->rank_op0[r]);
  const uint32_t *ops = rows_over(a, s->prog, rank, PIPE_COMPUTE);
  const uint32_t *copies = rows_over(a, s->prog, rank, PIPE_COPY);
  w->ncopy = 0;
  for (const PipeInstr *in = rank->instr; in < rank->instr + rank->ninstr; in++)
    if (pipe_stream_of(in->op) == PIPE_COPY) {
      w->place[w->ncopy] = ops[in - rank->instr];
      w->copy[w->ncopy++] = in;
    } else if (pipe_stream_of(in->op) == PIPE_COMPUTE) {
      w->copies_over[i++] = copies[in - rank->instr];
    }
  BUG_IF(i != s->orders->rank_op0[r + 1] - s->orders->rank_op0[r]);
  w->ends = NEW_ARRAY(a, Ends, w->n);
  for (Ends *e = w->ends; e < w->ends + w->n; e++) {
    e->at = arena_alloc(a, (2 * (size_t)w->ncopy + 1) * sizeof *e->at);
    e->most = arena_alloc(a, (2 * (size_t)w->ncopy + 1) * sizeof *e->most);
    push_end(e, 0, 0);
  }
}

/* Adds what copies have added to the worst moment. */
static void add_copies(Walk *w) {
  for (uint32_t x = 1; x <= w->end; x++) {
    const PipeInstr *in = w->copy[(x - 1) / 2];
    int what;
    int64_t by;
    if (copy_adds(in, x % 2 == 0, &what, &by))
      w->moment[cell_of(w, what, in->stage)] += by;
  }
}

/* Walks the ops of one rank; final: with its copies. */
static void walk_rank(Walk *w, uint32_t r, bool final) {
  Sched *s = w->s;
  w->rank = r, w->nchunk = s->model->rank_stage0[r + 1] - s->model->rank_stage0[r];
  w->n = limits_of(s, r, &w->first);
  if (w->n == 0)
    return;
  Arena own = {0};
  w->now = NEW_ARRAY(&own, int64_t, NCOUNTS * (size_t)w->nchunk);
  w->moment = NEW_ARRAY(s->arena, int64_t, NCOUNTS * (size_t)w->nchunk);
  w->copied = w->over = 0, w->ends = NULL;
  for (uint32_t k = w->first; k < w->first + w->n; k++)
    s->claims->row[k].peak = INT64_MIN;
  if (final && s->orders->ncopy > 0)
    find_copies(w, r, &own);
  for (uint32_t i = s->orders->rank_op0[r], last; i < s->orders->rank_op0[r + 1]; i = last + 1) {
    last = i + s->orders->op[i].group;
    if (w->ends)
      copies_before(w, i - s->orders->rank_op0[r]);
    for (int end = 0; end < 2; end++) {
      for (uint32_t m = i; m <= last; m++) {
        OpCounts c = op_counts(s, &s->orders->op[m]);
        for (int k = 0; k < NCOUNTS; k++)
          w->now[cell_of(w, k, s->orders->op[m].stage)] += end ? -c.give[k] : c.take[k];
      }
      look(w, i);
    }
  }
  if (w->broken && w->ends)
    add_copies(w);
  arena_free(&own);
}

/* Can the stashes of rank r fit? Counts no slots of transfers, which are not known yet. */
static bool bytes_kept(const Sched *s, uint32_t r) {
  const int64_t room = stash_bytes_room(s, r, 0);
  int64_t live = 0, start, end;
  for (uint32_t i = s->orders->rank_op0[r]; room < INT64_MAX && i < s->orders->rank_op0[r + 1];
       i++) {
    stash_change(s, &s->orders->op[i], true, &start, &end);
    if (live + start > room || live + start + end > room)
      return false;
    live += start + end;
  }
  return true;
}

bool limits_kept(Sched *s) {
  Walk w = {.s = s};
  bool kept = true;
  for (uint32_t r = 0; r < s->model->nrank && kept; r++) {
    walk_rank(&w, r, false);
    kept = !w.broken && bytes_kept(s, r);
  }
  return kept;
}

bool limit_quantity(Sched *s, const Expr *call, int64_t *value) {
  int64_t r, c = 0;
  if (!eval(s, call->args->value, &r))
    return false;
  uint32_t nchunk = s->model->rank_stage0[r + 1] - s->model->rank_stage0[r];
  const Arg *chunk = call->args->next;
  if (chunk && !eval(s, chunk->value, &c))
    return false;
  *value = 0;
  for (uint32_t k = chunk ? (uint32_t)c : 0; k < (chunk ? (uint32_t)c + 1 : nchunk); k++)
    *value += s->eval.moment[(uint32_t)count_of(call->builtin) * nchunk + k];
  return true;
}

/* Reports the false comparison, "5 <= 4", and the numbers in it. */
static void report_sides(Sched *s, const Walk *w) {
  static const char *const sign[] = {"<", "<=", ">", ">="};
  const Limit *l = w->broken;
  const Expr *e = l->compare;
  int64_t a = 0, b = 0;
  if (l->clause->var)
    s->eval.env[l->clause->slot] = l->index;
  bool (*const outer)(Sched *, const Expr *, int64_t *) = s->eval.quantity;
  s->eval.moment = w->moment, s->eval.quantity = limit_quantity;
  bool known = eval(s, e->a, &a) && eval(s, e->b, &b);
  BUG_IF(!known); /* find_row has evaluated the same expressions */
  diag_error(s->diag, DIAG_OVER_LIMIT, l->at, "limit not kept: %lld %s %lld is false at %s",
             (long long)a, sign[e->kind - EX_LT], (long long)b, op_text(s, w->op));
  diag_note(s->diag, NO_SPAN, "with %s", eval_explain(s, e));
  s->eval.moment = NULL, s->eval.quantity = outer;
}

static void report(Sched *s, const Walk *w) {
  report_sides(s, w);
  diag_note(s->diag, s->orders->site[s->orders->op[w->op].site], "%s comes from here",
            op_text(s, w->op));
  if (s->tuning->clause && s->tuning->clause->var && s->tuning->n > 1 && s->orders->ncopy == 0)
    diag_note(s->diag, s->tuning->clause->at,
              "no value of '%s' keeps the limits; this message is about the first value",
              s->tuning->clause->var);
  if (!help_unchecked(s, w->broken->at))
    diag_help(s->diag, s->orders->op[w->op].kind == PIPE_F
                           ? "run fewer forwards ahead, or run the B or W that ends a stash earlier"
                           : "run this op later, or run the B or W that ends a stash earlier");
}

bool check_limits(Sched *s, Verdict *verdict) {
  Walk w = {.s = s};
  for (uint32_t r = 0; r < s->model->nrank && !w.broken; r++)
    walk_rank(&w, r, true);
  verdict->limits_hold = !w.broken || PLANTED(OVER_LIMIT);
  if (!verdict->limits_hold)
    report(s, &w);
  return verdict->limits_hold;
}
