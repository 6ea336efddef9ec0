/* SPDX-License-Identifier: MIT
 * `limit` clauses: find_limits makes rows of numbers of them, check_limits proves these over the finished program.
 * Both sides of a comparison must be linear in the counts, so that a row is one sum, which `tune` can keep when it
 * moves ops (justify.c). Cost of a proof: the ops and copies of a rank times its rows times its
 * stages. */
#include "limit.h"

#include <string.h>

#include "plant.h"

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
    c.take[KEPT] = s->at_r[(size_t)o->stage * s->nmb + o->mb] != 0;
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
  uint32_t nchunk = s->rank_stage0[l->rank + 1] - s->rank_stage0[l->rank];
  *start = *end = 0;
  for (int k = 0; k < NCOUNTS; k++) {
    int64_t weight = l->weight[(uint32_t)k * nchunk + s->stage[o->stage].chunk];
    *start += weight * c.take[k];
    *end -= weight * c.give[k];
  }
}

uint32_t limits_of(const Sched *s, uint32_t r, uint32_t *first) {
  *first = s->nlimits ? s->limit0[r] : 0;
  return s->nlimits ? s->limit0[r + 1] - s->limit0[r] : 0;
}

/* Of a row with weights a of a stash and h of one that is held, at least min(a, a + h) of the bound goes to each
 * stash. */
int64_t limits_room(const Sched *s, uint32_t r) {
  uint32_t first, n = limits_of(s, r, &first), nchunk = s->rank_stage0[r + 1] - s->rank_stage0[r];
  int64_t room = INT64_MAX;
  for (const Limit *l = &s->limits[first]; l < &s->limits[first + n]; l++) {
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

/* Adds " + 2*inflight(0)"; chunk: NONE, of all. */
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
  uint32_t nchunk = s->rank_stage0[l->rank + 1] - s->rank_stage0[l->rank];
  const char *text = "";
  for (int k = 0; k < NCOUNTS; k++) {
    const int64_t *weight = &l->weight[(uint32_t)k * nchunk];
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
  int64_t plain; /* the part of the sum without counts */
} Finder;

bool counts_now(const Expr *e) {
  if (!e)
    return false;
  if (e->kind == EX_CALL && is_now(e->builtin))
    return true;
  for (const Arg *a = e->args; a; a = a->next)
    if (counts_now(a->value))
      return true;
  return counts_now(e->a) || counts_now(e->b) || counts_now(e->c);
}

bool weight_fits(const Sched *s, int64_t weight) {
  int64_t most = INT64_MAX / 8 / ((int64_t)s->nop + 1);
  return weight <= most && weight >= -most;
}

static bool too_large(Finder *x, const Expr *e) {
  diag_error(x->s->diag, DIAG_RANGE, e->at,
             "a count times so much could overflow; weights of this limit are at most %lld",
             (long long)(INT64_MAX / 8 / ((int64_t)x->s->nop + 1)));
  return false;
}

static bool not_linear(Finder *x, const Expr *e) {
  diag_error(x->s->diag, DIAG_CLAUSE, e->at,
             "a limit adds up counts times numbers; '%s' is more than that",
             span_text(x->s, e->at));
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
               "a limit is of one rank; here it counts on rank %u and on rank %lld", x->row.rank,
               (long long)r);
    diag_help(s->diag, "what ranks have at one moment depends on times; write a limit for each");
    return false;
  }
  uint32_t nchunk = s->rank_stage0[r + 1] - s->rank_stage0[r];
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

#define MOST_PLAIN (INT64_MAX / 4) /* what the counts and the other side add to it then fits */

/* Adds e, times factor, to the sum. */
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

/* The row that compares; false: reported. */
static bool find_row(Sched *s, const Clause *c, const Expr *e, Limit *row) {
  Finder x = {.s = s, .row = {.clause = c, .compare = e, .at = e->at, .rank = NONE}};
  bool less = e->kind == EX_LT || e->kind == EX_LE, more = e->kind == EX_GT || e->kind == EX_GE;
  if (!counts_now(e)) {
    diag_error(s->diag, DIAG_CLAUSE, e->at,
               "this limit counts nothing; it knows inflight(r) held(r) kept(r) host(r)");
    diag_help(s->diag, "what parameters must be is a 'check', or stands behind 'requires'");
    return false;
  }
  if (!less && !more) {
    diag_error(s->diag, DIAG_CLAUSE, e->at,
               "a limit is one bound: it has <, <=, > or >= between two sums");
    diag_help(s->diag,
              e->kind == EX_AND ? "write a limit for each of the two"
              : e->kind == EX_EQ
                  ? "what is so much at its most is a check; what is never more is a limit with <="
                  : "such as 2*inflight(r) - held(r) <= 4*P");
    return false;
  }
  if (!add_to(&x, e->a, less ? 1 : -1) || !add_to(&x, e->b, less ? -1 : 1))
    return false;
  x.row.index = c->var ? s->env[c->slot] : 0;
  x.row.most = -x.plain - (e->kind == EX_LT || e->kind == EX_GT);
  *row = x.row;
  if (row->rank != NONE)
    return true;
  return not_linear(&x, e); /* all counts are in branches that are not taken */
}

typedef VEC(Limit) Rows;

static bool find_rows(Sched *s, Arena *a, const Clause *c, Rows *rows) {
  int64_t lo = 0, hi = 1, step = 1;
  if (c->var && !eval_range(s, &c->range, &lo, &hi, &step))
    return false;
  if (step > 0 ? lo >= hi : lo <= hi)
    diag_warn(s->diag, DIAG_OVER_LIMIT, c->at,
              "the range of this limit is empty: it limits nothing");
  uint64_t most = 16 * (uint64_t)s->nrank + 1000;
  for (int64_t x = lo; step > 0 ? x < hi : x > hi;) {
    if (c->var)
      s->env[c->slot] = x;
    if (rows->n >= most) {
      diag_error(s->diag, DIAG_LOOP, c->at, "more than %llu limits; a bound of this range is wrong",
                 (unsigned long long)most);
      return false;
    }
    if (!find_row(s, c, c->value, vec_push(a, rows)))
      return false;
    if (__builtin_add_overflow(x, step, &x))
      break;
  }
  return true;
}

void set_limits(Sched *s, const Limit *row, uint32_t n) {
  uint32_t *at = s->limit0 = NEW_ARRAY(s->arena, uint32_t, s->nrank + (size_t)2);
  s->limits = arena_alloc(s->arena, n * sizeof *s->limits + 1);
  s->nlimits = n;
  for (uint32_t i = 0; i < n; i++)
    at[row[i].rank + 2]++;
  for (uint32_t r = 1; r < s->nrank + 2; r++)
    at[r] += at[r - 1];
  for (uint32_t i = 0; i < n; i++)
    s->limits[at[row[i].rank + 1]++] = row[i];
}

bool find_limits(Sched *s) {
  Arena a = {.oom = s->arena->oom};
  Rows rows = {0};
  bool ok = true;
  for (uint32_t i = 0; ok && i < s->nlimit; i++)
    ok = find_rows(s, &a, s->limit[i], &rows);
  if (ok && rows.n > 0)
    set_limits(s, rows.at, rows.n);
  arena_free(&a);
  return ok;
}

/* ---- the proof ---- */

typedef struct Walk {
  Sched *s;
  uint32_t rank, nchunk, first, n; /* first, n: rows of s->limits */
  int64_t *now, *least;            /* [NCOUNTS * nchunk] the most that there may be, the least */
  uint32_t copied, over;           /* copies that have begun, that ops have waited for */
  const PipeInstr **copy;          /* [ncopy] of the rank */
  uint32_t ncopy, *wait_copy;      /* copies that each op waits for */
  uint32_t *
      left; /* [nslot] 1 + stage of what an OFF has copied, if the slot is neither free nor taken again; 0 */
  uint32_t *there;     /* [nslot] of a place on the host: 1 + the OFF that takes it; 0 */
  bool *sure;          /* [nslot] and an op has waited for that OFF */
  uint32_t loading;    /* 1 + a LOAD that may not have ended, whose place on the host is taken; 0 */
  const Limit *broken; /* first limit that does not hold, */
  int64_t excess;      /*   by how much at its worst moment, */
  uint32_t op;         /*   at this op, */
  int64_t *moment;     /*   and what was there */
} Walk;

/* note [when a copy runs]: it begins at its place or later, and is over when an op waits for it. Of a count that stands
 * below the bound with a weight that is positive, the most counts: a stash is on the device until an op waits for its OFF, and on
 * the host from the begin of its OFF until its LOAD is over. Of one with a negative weight the least does: a stash
 * may be gone as its OFF begins, and is back, or on the host, for sure only when an op waits for the copy. */
static void add(const Walk *w, int64_t *counts, int what, uint32_t stage, int64_t change) {
  counts[(uint32_t)what * w->nchunk + w->s->stage[stage].chunk] += change;
}
static void tally(Walk *w, int what, uint32_t stage, int64_t change) {
  add(w, w->now, what, stage, change);
}
static int64_t counted(const Walk *w, const Limit *l, uint32_t i) {
  return l->weight[i] < 0 ? w->least[i] : w->now[i];
}

static void look(Walk *w, uint32_t op) {
  for (Limit *l = &w->s->limits[w->first]; l < &w->s->limits[w->first + w->n]; l++) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < NCOUNTS * w->nchunk; i++)
      sum += l->weight[i] * counted(w, l, i);
    l->peak = sum > l->peak ? sum : l->peak;
    if (sum <= l->most || (w->broken && (w->broken != l || sum - l->most <= w->excess)))
      continue;
    w->broken = l, w->excess = sum - l->most, w->op = op;
    for (uint32_t i = 0; i < NCOUNTS * w->nchunk; i++)
      w->moment[i] = counted(w, l, i);
  }
}

/* An OFF has left its slot: to an op that waits for it, or to a LOAD behind it (slots.c). */
static void leave(Walk *w, uint32_t slot) {
  if (w->left[slot])
    tally(w, LIVE, w->left[slot] - 1, -1);
  w->left[slot] = 0;
}

/* The LOAD under way has ended: another copy begins behind it, or an op has waited for it. */
static void end_load(Walk *w) {
  if (w->loading)
    tally(w, HOST, w->copy[w->loading - 1]->stage, -1);
  w->loading = 0;
}

/* The least there is, as copy x of the rank begins. */
static void least_begun(Walk *w, uint32_t x) {
  const PipeInstr *in = w->copy[x];
  if (in->op == PIPE_OFF)
    add(w, w->least, LIVE, in->stage, -1);
  if (in->peer != NONE)
    return;
  if (in->op == PIPE_LOAD && w->sure[in->keep])
    add(w, w->least, HOST, in->stage, -1);
  if (in->op == PIPE_OFF || in->op == PIPE_LOAD)
    w->there[in->keep] = in->op == PIPE_OFF ? x + 1 : 0, w->sure[in->keep] = false;
}

/* And as an op waits for it. */
static void least_over(Walk *w, uint32_t x) {
  const PipeInstr *in = w->copy[x];
  if (in->op == PIPE_LOAD)
    add(w, w->least, LIVE, in->stage, 1);
  if (in->op == PIPE_OFF && in->peer == NONE && w->there[in->keep] == x + 1)
    add(w, w->least, HOST, in->stage, 1), w->sure[in->keep] = true;
}

/* The copies that stand before op i of the rank, each a moment of its own, and those that it waits for. */
static void copies_before(Walk *w, uint32_t i) {
  const Sched *s = w->s;
  for (; w->copied < w->ncopy && w->copy[w->copied]->wait <= i; w->copied++) {
    const PipeInstr *x = w->copy[w->copied];
    end_load(w);
    least_begun(w, w->copied);
    if (x->op == PIPE_OFF) {
      w->left[x->act] = x->stage + 1;
      if (x->peer == NONE)
        tally(w, HOST, x->stage, 1);
    } else if (x->op == PIPE_LOAD) {
      if (x->peer == NONE)
        w->loading = w->copied + 1;
      leave(w, x->act);
      tally(w, LIVE, x->stage, 1);
    }
    look(w, s->rank_op0[w->rank] + i);
  }
  for (; w->over < w->wait_copy[i]; w->over++) {
    if (w->copy[w->over]->op == PIPE_OFF)
      leave(w, w->copy[w->over]->act);
    least_over(w, w->over);
  }
  if (w->loading <= w->over)
    end_load(w);
}

/* The copies of the rank, and how many of them each op waits for, of its finished list. */
static void find_copies(Walk *w, uint32_t r) {
  Sched *s = w->s;
  const PipeRank *rank = &s->prog->rank[r];
  uint32_t i = 0;
  w->copy = NEW_ARRAY(s->arena, const PipeInstr *, rank->ninstr);
  w->left = NEW_ARRAY(s->arena, uint32_t, rank->nslot);
  w->there = NEW_ARRAY(s->arena, uint32_t, rank->nslot);
  w->sure = NEW_ARRAY(s->arena, bool, rank->nslot);
  w->wait_copy = NEW_ARRAY(s->arena, uint32_t, s->rank_op0[r + 1] - s->rank_op0[r]);
  w->ncopy = 0;
  for (const PipeInstr *in = rank->instr; in < rank->instr + rank->ninstr; in++)
    if (pipe_op_info[in->op].stream == PIPE_COPY)
      w->copy[w->ncopy++] = in;
    else if (pipe_op_info[in->op].stream == PIPE_COMPUTE)
      w->wait_copy[i++] = in->wait_copy;
  BUG_IF(i != s->rank_op0[r + 1] - s->rank_op0[r]);
}

/* Walks one rank; final: with its copies. */
static void walk_rank(Walk *w, uint32_t r, bool final) {
  Sched *s = w->s;
  w->rank = r, w->nchunk = s->rank_stage0[r + 1] - s->rank_stage0[r];
  w->n = limits_of(s, r, &w->first);
  if (w->n == 0)
    return;
  w->now = NEW_ARRAY(s->arena, int64_t, NCOUNTS * (size_t)w->nchunk);
  w->least = NEW_ARRAY(s->arena, int64_t, NCOUNTS * (size_t)w->nchunk);
  w->moment = NEW_ARRAY(s->arena, int64_t, NCOUNTS * (size_t)w->nchunk);
  w->copied = w->over = w->loading = 0;
  bool copies = final && s->ncopy > 0;
  for (uint32_t k = w->first; k < w->first + w->n; k++)
    s->limits[k].peak = INT64_MIN;
  if (copies)
    find_copies(w, r);
  for (uint32_t i = s->rank_op0[r], last; i < s->rank_op0[r + 1]; i = last + 1) {
    last = i + s->op[i].group;
    if (copies)
      copies_before(w, i - s->rank_op0[r]);
    for (int end = 0; end < 2; end++) {
      for (uint32_t m = i; m <= last; m++) {
        OpCounts c = op_counts(s, &s->op[m]);
        for (int k = 0; k < NCOUNTS; k++) {
          tally(w, k, s->op[m].stage, end ? -c.give[k] : c.take[k]);
          add(w, w->least, k, s->op[m].stage, end ? -c.give[k] : c.take[k]);
        }
      }
      look(w, i);
    }
  }
  if (copies) {
    const PipeRank *rank = &s->prog->rank[r];
    arena_forget(s->arena, w->copy, rank->ninstr * sizeof *w->copy);
    arena_forget(s->arena, w->left, rank->nslot * sizeof *w->left);
    arena_forget(s->arena, w->there, rank->nslot * sizeof *w->there);
    arena_forget(s->arena, w->sure, rank->nslot * sizeof *w->sure);
    arena_forget(s->arena, w->wait_copy,
                 (s->rank_op0[r + 1] - s->rank_op0[r]) * sizeof *w->wait_copy);
  }
}

bool limits_kept(Sched *s) {
  Walk w = {.s = s};
  for (uint32_t r = 0; r < s->nrank && !w.broken; r++)
    walk_rank(&w, r, false);
  return !w.broken;
}

bool limit_quantity(Sched *s, const Expr *call, int64_t *value) {
  int64_t r, c = 0;
  if (!eval(s, call->args->value, &r))
    return false;
  uint32_t nchunk = s->rank_stage0[r + 1] - s->rank_stage0[r];
  const Arg *chunk = call->args->next;
  if (chunk && !eval(s, chunk->value, &c))
    return false;
  *value = 0;
  for (uint32_t k = chunk ? (uint32_t)c : 0; k < (chunk ? (uint32_t)c + 1 : nchunk); k++)
    *value += s->moment[(uint32_t)count_of(call->builtin) * nchunk + k];
  return true;
}

/* What is false: "5 <= 4", and why: the numbers that are in it. */
static void report_sides(Sched *s, const Walk *w) {
  static const char *const sign[] = {"<", "<=", ">", ">="};
  const Limit *l = w->broken;
  const Expr *e = l->compare;
  int64_t a = l->most + w->excess, b = l->most;
  if (l->clause && l->clause->var)
    s->env[l->clause->slot] = l->index;
  s->moment = w->moment;
  bool known = !e || (eval(s, e->a, &a) && eval(s, e->b, &b));
  BUG_IF(!known); /* find_row has had the same numbers */
  diag_error(s->diag, DIAG_OVER_LIMIT, l->at, "limit not kept: %lld %s %lld is false at %s",
             (long long)a, sign[e ? e->kind - EX_LT : 1], (long long)b, op_text(s, w->op));
  if (e)
    diag_note(s->diag, NO_SPAN, "with %s", eval_explain(s, e));
  else
    diag_note(s->diag, NO_SPAN, "the limit is %s", limit_text(s, l));
  s->moment = NULL;
}

static void report(Sched *s, const Walk *w) {
  report_sides(s, w);
  diag_note(s->diag, s->site[s->op[w->op].site], "%s comes from here", op_text(s, w->op));
  diag_help(s->diag,
            s->op[w->op].kind == PIPE_F
                ? "let fewer forwards run ahead here, or the B or W that ends a stash run earlier"
                : "let the op run later here, or the B or W that ends a stash earlier");
  if (s->tuned && s->tuned->var && s->ntune > 1 && s->ncopy == 0)
    diag_note(s->diag, s->tuned->at, "no value of '%s' keeps the limits; this is the first",
              s->tuned->var);
  if (w->broken->clause)
    note_extends(s, w->broken->at);
}

bool check_limits(Sched *s) {
  Walk w = {.s = s};
  for (uint32_t r = 0; r < s->nrank && !w.broken; r++)
    walk_rank(&w, r, true);
  s->limits_hold = !w.broken || PLANTED(OVER_LIMIT);
  if (!s->limits_hold)
    report(s, &w);
  return s->limits_hold;
}
