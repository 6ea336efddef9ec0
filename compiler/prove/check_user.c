/* SPDX-License-Identifier: MIT
 * Proves the `check` clauses of the user: evaluates each one over the results of other passes.
 * Requires check_memory and lower. A quantity with costs plays the compute ops with them. The
 * latest results are kept: a check over all ranks names few sets of costs, and plays each of them
 * once. The cost of a check is linear in its values, and bounded. */
#include <string.h>

#include "base.h"
#include "limit.h"
#include "lower.h"
#include "stages.h"
#include "orders.h"
#include "plant.h"
#include "prove.h"
#include "timing.h"
#include "weights.h"

enum { MOST_KEPT = 64 }; /* results of plays that are looked at */

typedef struct Played { /* a set of uniform costs, and its result */
  struct Played *next;
  uint64_t time[PIPE_NOPS], fb;
  Timing t;
} Played;

/* Are these the costs of the schedule itself? Then order has played them. */
static bool own_costs(const Sched *s, const PipeStage *uniform) {
  bool same = !s->model->graph && !s->model->unit_time && s->sides->nuse == 0;
  for (uint32_t i = 0; i < s->model->nstage && same; i++)
    same = s->model->stage[i].time_fb == uniform->time_fb &&
           memcmp(s->model->stage[i].time, uniform->time, sizeof uniform->time) == 0;
  return same;
}

/* Plays the ops with the costs that the call names; defaults as for `time`. False: reported. */
static bool play(Sched *s, const Expr *call, Timing *t) {
  PipeStage uniform = {0};
  bool has[NKEYS] = {false};
  for (const Arg *a = call->args; a; a = a->next) {
    int64_t v;
    int k = 0;
    while (strcmp(cost_key[k], a->key) != 0)
      k++;
    if (!eval(s, a->value, &v))
      return false;
    if (v < 0 || v > (int64_t)1 << 24) {
      diag_error(s->diag, DIAG_RANGE, a->value->at, "%s = %lld: a uniform cost is 0 to 2^24",
                 a->key, (long long)v);
      return false;
    }
    has[k] = true;
    *cost_field(&uniform, (CostKey)k) = (uint64_t)v;
  }
  cost_defaults(&uniform, has);
  uint32_t seen = 0;
  for (Played *p = s->eval.played; p && seen < MOST_KEPT; p = p->next, seen++)
    if (p->fb == uniform.time_fb && memcmp(p->time, uniform.time, sizeof p->time) == 0)
      return *t = p->t, true;
  if (s->ideal->done && own_costs(s, &uniform))
    return *t = s->ideal->time, true;
  const uint64_t edges = s->model->graph ? s->model->nedge : 0;
  if (!take_steps(s, STEPS_PLAYED * (s->orders->nop + edges * s->model->nmb), call->at))
    return false;
  Arena scratch = {0};
  OrderRun run = {.stage = &uniform,
                  .uniform = true,
                  .end = arena_alloc(&scratch, (size_t)s->orders->nop * sizeof *run.end + 1),
                  .head = NEW_ARRAY(&scratch, uint32_t, s->model->nrank)};
  BUG_IF(!order_run(s, &run)); /* costs cannot make a deadlock */
  arena_free(&scratch);
  Played *p = NEW(s->arena, Played);
  memcpy(p->time, uniform.time, sizeof p->time);
  p->fb = uniform.time_fb;
  p->t = run.t;
  p->next = s->eval.played;
  s->eval.played = p;
  *t = run.t;
  return true;
}

/* *value for rank r; for all ranks: r = nrank. False: reported. */
static bool sent_quantity(Sched *s, const Expr *call, uint32_t r, int64_t *value) {
  uint64_t v = (call->builtin == BI_VOLUME ? s->lowered->sent_bytes : s->lowered->sent)[r];
  *value = (int64_t)v;
  if (v <= INT64_MAX)
    return true;
  diag_error(s->diag, DIAG_OVERFLOW, call->at, "'%s' overflows a 64-bit integer",
             span_text(s, call->at));
  return false;
}

static bool no_sizes(Sched *s, const Expr *call) {
  if (s->model->sized)
    return false;
  diag_error(s->diag, DIAG_NO_SIZES, call->at,
             "'%s' needs sizes: schedule '%s' has no 'bytes' and no profile", call->name,
             s->model->name);
  return true;
}

/* The number of weight versions on all ranks. */
static int64_t all_versions(const Sched *s) {
  int64_t n = 0;
  for (uint32_t st = 0; st < s->model->nstage; st++)
    n += s->versions->nversion ? s->versions->nversion[st] : 1;
  return n;
}

bool quantity(Sched *s, const Expr *call, int64_t *value) {
  if (!s->lowered->peak && (call->builtin < BI_MAKESPAN || call->args)) { /* in a tune clause */
    diag_error(s->diag, DIAG_CLAUSE, call->at,
               "'%s' has no value yet; a tune clause can use makespan() span() idle() bubble()",
               span_text(s, call->at));
    return false;
  }
  if (call->builtin >= BI_MAKESPAN) {
    Timing t = {.makespan = s->times->makespan, .span = s->times->span, .busy = s->times->busy};
    if (call->args && !play(s, call, &t))
      return false;
    unsigned __int128 v = call->builtin == BI_MAKESPAN ? t.makespan
                          : call->builtin == BI_SPAN
                              ? t.span
                              : (unsigned __int128)t.makespan * s->model->nrank - t.busy;
    if (call->builtin == BI_BUBBLE) {
      unsigned __int128 all = (unsigned __int128)t.makespan * s->model->nrank;
      v = all ? v * 10000 / all : 0;
    }
    *value = (int64_t)v;
    if (v <= INT64_MAX)
      return true;
    diag_error(s->diag, DIAG_OVERFLOW, call->at, "'%s' overflows a 64-bit integer",
               span_text(s, call->at));
    return false;
  }
  int64_t r;
  if (!call->args && (call->builtin == BI_VERSIONS || call->builtin == BI_STASHED)) {
    *value = all_versions(s) - (call->builtin == BI_STASHED ? (int64_t)s->model->nstage : 0);
    return true;
  }
  if (!call->args) /* of all ranks */
    return !(call->builtin == BI_VOLUME && no_sizes(s, call)) &&
           sent_quantity(s, call, s->model->nrank, value);
  if (!rank_argument(s, call, &r))
    return false;
  const Peak *p = &s->lowered->peak[r];
  bool bytes = call->builtin == BI_MEMORY || call->builtin == BI_HOST_MEMORY ||
               call->builtin == BI_VOLUME;
  if (bytes && no_sizes(s, call))
    return false;
  switch (call->builtin) {
  case BI_INFLIGHT: *value = p->inflight; break;
  case BI_HELD: *value = p->held; break;
  case BI_KEPT: *value = p->kept; break;
  case BI_WARMUP: *value = p->warmup; break;
  case BI_STALENESS: *value = s->versions->staleness[r]; break;
  case BI_DISCREPANCY: *value = s->versions->discrepancy[r]; break;
  case BI_HOST: *value = p->host; break;
  case BI_GUESTS: *value = p->guests; break;
  case BI_HOST_MEMORY: *value = (int64_t)p->bytes[PEAK_host]; break;
  case BI_VERSIONS: *value = p->versions; break;
  case BI_STASHED: *value = p->versions - 1; break; /* the newest version is not stashed */
  case BI_VOLUME:
  case BI_MESSAGES: return sent_quantity(s, call, (uint32_t)r, value);
  default: *value = (int64_t)p->bytes[PEAK_total];
  }
  return true;
}

/* Does e contain a time under the costs of the schedule itself? */
static bool own_time(const Expr *e) {
  return e &&
         ((e->kind == EX_CALL && e->builtin >= BI_MAKESPAN && e->builtin <= BI_IDLE && !e->args) ||
          own_time(e->a) || own_time(e->b) || own_time(e->c));
}

static bool comparison(const Expr *e) { return e->kind >= EX_LT && e->kind <= EX_NE; }

/* Is e the bytes of a rank, or of all ranks? */
static bool is_bytes(const Expr *e) {
  return e->kind == EX_CALL &&
         (e->builtin == BI_MEMORY || e->builtin == BI_HOST_MEMORY || e->builtin == BI_VOLUME);
}

/* The part of e, which is false, that explains it: the first false part of `a && b`, the last of `a
 * || b`, since earlier parts exclude cases. */
static const Expr *claim(Sched *s, const Expr *e) {
  int64_t v = 0;
  for (;;) {
    bool chosen = e->kind == EX_AND || e->kind == EX_COND;
    if (!chosen && e->kind != EX_OR)
      return e;
    if (chosen && !eval(s, e->a, &v))
      return e;
    e = e->kind == EX_AND && !v ? e->a : e->kind == EX_COND && !v ? e->c : e->b;
  }
}

static void report(Sched *s, const Expr *whole, DiagName name) {
  const char *values = eval_explain(s, whole);
  const Expr *e = claim(s, whole);
  int64_t a = 0, b = 0;
  if (comparison(e) && eval(s, e->a, &a) && eval(s, e->b, &b)) {
    static const char *const sign[] = {"<", "<=", ">", ">=", "==", "!="};
    const char *text[2] = {arena_printf(s->arena, "%lld", (long long)a),
                           arena_printf(s->arena, "%lld", (long long)b)};
    if ((is_bytes(e->a) || is_bytes(e->b)) && a >= 0 && b >= 0)
      bytes_texts(s, (uint64_t)a, (uint64_t)b, text);
    diag_error(s->diag, name, e->at, "%s: %s %s %s is false",
               name == DIAG_CHECK ? "check failed" : "limit not kept", text[0],
               sign[e->kind - EX_LT], text[1]);
    const Expr *sum = e->a->kind == EX_CALL && e->a->builtin == BI_MEMORY   ? e->a
                      : e->b->kind == EX_CALL && e->b->builtin == BI_MEMORY ? e->b
                                                                            : NULL;
    int64_t r;
    if (sum && rank_argument(s, sum, &r))
      diag_note(s->diag, NO_SPAN, "rank %lld needs %s at %s", (long long)r,
                bytes_text(s, s->lowered->peak[r].bytes[PEAK_total]), memory_sum(s, (uint32_t)r));
  } else {
    diag_error(s->diag, DIAG_CHECK, whole->at, "check failed");
  }
  if (*values)
    diag_note(s->diag, NO_SPAN, "with %s", values);
  if (s->model->timed && own_time(whole))
    diag_note(s->diag, NO_SPAN,
              "the times of this schedule are ns: makespan(F = 1, B = 2) is in units");
  help_unchecked(s, e->at);
}

/* Proves a check, or a limit in bytes, for all values of its variable. False: reported. */
static bool check_clause(Sched *s, const Clause *c, DiagName name) {
  int64_t lo = 0, hi = 1, step = 1, v;
  if (c->var && !eval_range(s, &c->range, &lo, &hi, &step))
    return false;
  if (name == DIAG_CHECK && (step > 0 ? lo >= hi : lo <= hi))
    diag_warn(s->diag, DIAG_CHECK, c->at, "the range of this check is empty: it proves nothing");
  uint64_t turns = 0, most = 4 * ((uint64_t)s->orders->nop + s->model->nrank) + 100000;
  for (int64_t x = lo; step > 0 ? x < hi : x > hi;) {
    if (c->var)
      s->eval.env[c->slot] = x;
    if (++turns > most) {
      diag_error(s->diag, DIAG_LOOP, c->at,
                 "a check over more than %llu values; a bound of its range is wrong",
                 (unsigned long long)most);
      return false;
    }
    if (!eval(s, c->value, &v))
      return false;
    if (!v && !PLANTED(USER_CHECK)) {
      report(s, c->value, name); /* one failing value is enough */
      return false;
    }
    if (__builtin_add_overflow(x, step, &x))
      break;
  }
  return true;
}

bool check_user(Sched *s, Verdict *verdict) {
  bool ok = check_limits(s, verdict);
  for (uint32_t i = 0; i < s->claims->nlimit; i++)
    if (is_byte_limit(s->claims->limit[i]))
      ok &= check_clause(s, s->claims->limit[i], DIAG_OVER_LIMIT);
  for (uint32_t i = 0; i < s->claims->ncheck; i++)
    ok &= check_clause(s, s->claims->check[i], DIAG_CHECK);
  return ok;
}
