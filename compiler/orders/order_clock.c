/* SPDX-License-Identifier: MIT
 * Orders a rank by time stamps: `clock` (lang/spec.md 5.5). Lists the ops of the body for every
 * index, puts an op without a stamp on the first free tick after its I, sorts the list by stamp and
 * pushes it. Two ops on one tick are an error. Only the order remains; costs decide when an op
 * starts.
 *
 * With a period T, a tick is free if no op of the block is on it modulo T, and every W of a stage
 * has the same place in every period. Cost: n log n, and T for each stage. */
#include <string.h>

#include "expand.h"
#include "hints.h"
#include "names.h"

void note_listed(Ex *x, int64_t *next, int64_t place) {
  *vec_push(&x->scratch, &x->noted) = (Noted){.key = x->key, .next = next, .place = place};
}

/* Saves what ops without an index take, or restores it. *saved: 3 entries for each row of the
 * rank. */
static void keep_next(Ex *x, int64_t *saved, bool restore) {
  uint32_t n;
  const uint32_t *row = rank_rows(x, &n);
  for (uint32_t i = 0; i < n; i++) {
    int64_t *const next[] = {&x->next_f[row[i]], &x->next_b[row[i]], &x->next_r[row[i]]};
    for (int k = 0; k < 3; k++) {
      if (restore)
        *next[k] = saved[3 * i + k];
      else
        saved[3 * i + k] = *next[k];
    }
  }
}

/* Sets what ops without an index behind the block take. Inside the block they count as listed.
 * Behind a clock they continue after the last op by stamp. Behind `rules`, whose order is not known
 * yet, they continue after the highest op. */
static void count_listed(Ex *x, const Stmt *t, int64_t *before) {
  Noted *l = x->noted.at;
  uint32_t n = x->noted.n;
  keep_next(x, before, true);
  for (uint32_t i = 0; i < n; i++)
    *l[i].next = -1;
  for (uint32_t i = 0; i < n; i++) { /* meanwhile *next is the row of the last op */
    int64_t old = *l[i].next;
    if (old < 0 || (t->kind == ST_RULES ? l[i].place > l[old].place : l[i].key >= l[old].key))
      *l[i].next = i;
  }
  for (uint32_t i = 0; i < n; i++)
    l[i].last = *l[i].next == i;
  for (uint32_t i = 0; i < n; i++)
    if (l[i].last)
      *l[i].next = l[i].place;
}

bool list_op(Ex *x, uint8_t kind, uint32_t stage, uint32_t mb) {
  Listed l = {.key = x->key,
              .seq = x->listed.n,
              .stage = stage,
              .mb = mb,
              .kind = kind,
              .keyed = x->keyed,
              .use = x->use,
              .stmt = x->list_op,
              .joint = x->joint,
              .joint_first = x->joint         ? x->joint_first
                             : kind == PIPE_U ? x->whole
                                              : 0};
  if (x->list->kind == ST_RULES && x->joint)
    l.stmt = x->joint;
  if (x->list->kind == ST_RULES && l.stmt->cond && !rules_guard(x, &l))
    return false;
  *vec_push(&x->scratch, &x->listed) = l;
  return true;
}

bool list_any(Ex *x, const OpRef *o) {
  uint32_t stage;
  if (!op_stage(x, o, &stage))
    return false;
  if (stage == NONE)
    return true;
  if (!list_op(x, (uint8_t)o->op, stage, NONE))
    return false;
  x->listed.at[x->listed.n - 1].any = true;
  return true;
}

bool list_joint(Ex *x, const Stmt *t) {
  int64_t key = 0;
  if (t->value && !eval(x->s, t->value, &key))
    return false;
  x->joint = t, x->joint_key = key, x->joint_first = x->listed.n + 1;
  bool ok = run_block(x, t->body);
  x->joint = NULL;
  return ok;
}

static bool too_far(Ex *x, Span at) {
  diag_error(x->s->diag, DIAG_OVERFLOW, at, "a time stamp overflows a 64-bit integer");
  return false;
}

bool list_body(Ex *x, const Stmt *t, int64_t period) {
  Sched *s = x->s;
  int64_t lo = 0, hi = pipe_mbs(s, 0), step = 1, base;
  if (t->range.lo && !eval_range(s, &t->range, &lo, &hi, &step))
    return false;
  uint32_t nrow;
  rank_rows(x, &nrow);
  int64_t *before = arena_alloc(&x->scratch, (3 * (size_t)nrow + 1) * sizeof *before);
  keep_next(x, before, false);
  x->listed.n = x->noted.n = 0;
  x->list = t;
  bool ok = true;
  for (int64_t i = lo; ok && (step > 0 ? i < hi : i > hi);) {
    s->eval.env[t->slot] = i;
    uint32_t first = x->listed.n, first_noted = x->noted.n;
    ok = spend(x, t) && run_block(x, t->body);
    if (ok && period && __builtin_mul_overflow(period, i, &base))
      ok = too_far(x, t->value->at);
    for (uint32_t k = first; ok && period && k < x->listed.n; k++) {
      x->listed.at[k].turn = i;
      if (__builtin_add_overflow(x->listed.at[k].key, base, &x->listed.at[k].key))
        ok = too_far(x, x->listed.at[k].stmt->at);
    }
    for (uint32_t k = first_noted; ok && period && k < x->noted.n; k++)
      if (__builtin_add_overflow(x->noted.at[k].key, base, &x->noted.at[k].key))
        x->noted.at[k].key = base < 0 ? INT64_MIN : INT64_MAX; /* only an op that `clip` left out */
    if (__builtin_add_overflow(i, step, &i))
      break;
  }
  x->list = NULL;
  if (ok)
    count_listed(x, t, before);
  return ok;
}

void set_phases(Orders *orders, uint32_t a, uint32_t b) {
  uint32_t last = a, first = b;
  for (uint32_t k = a; k < b; k++) {
    const uint8_t kind = orders->op[k].kind;
    if (kind == PIPE_F)
      last = k + 1;
    else if ((kind == PIPE_B || kind == PIPE_I) && first == b)
      first = k;
  }
  for (uint32_t i = a; i < b; i++)
    orders->op[i].phase = i < first ? PIPE_WARMUP : i < last ? PIPE_STEADY : PIPE_FLUSH;
  for (uint32_t i = a, end; i < b; i = end) { /* an action has one phase */
    end = i + orders->op[i].group + 1;
    bool one = true;
    for (uint32_t k = i + 1; k < end; k++)
      one &= orders->op[k].phase == orders->op[i].phase;
    for (uint32_t k = i; k < end && !one; k++)
      orders->op[k].phase = PIPE_STEADY;
  }
}

/* ---- filling ---- */

static int by_key(const void *va, const void *vb) {
  const Listed *a = va, *b = vb;
  if (a->key != b->key)
    return a->key < b->key ? -1 : 1;
  if (a->keyed != b->keyed)
    return a->keyed ? -1 : 1;
  return a->seq < b->seq ? -1 : a->seq > b->seq;
}

static int by_cell(const void *va, const void *vb) { /* every I first, by stage and microbatch */
  const Listed *a = va, *b = vb;
  bool ia = a->kind == PIPE_I && a->keyed, ib = b->kind == PIPE_I && b->keyed;
  if (ia != ib)
    return ia ? -1 : 1;
  if (ia && a->stage != b->stage)
    return a->stage < b->stage ? -1 : 1;
  if (ia && a->mb != b->mb)
    return a->mb < b->mb ? -1 : 1;
  return a->seq < b->seq ? -1 : a->seq > b->seq;
}

/* Gives each op without a stamp the stamp of its I; if the I is not in the block, the first stamp
 * of the block. */
static bool start_of_fill(Ex *x) {
  Listed *l = x->listed.at;
  uint32_t n = x->listed.n, ni = 0;
  int64_t least = INT64_MAX;
  qsort(l, n, sizeof *l, by_cell);
  for (; ni < n && l[ni].kind == PIPE_I && l[ni].keyed; ni++) {}
  for (uint32_t k = 0; k < n; k++)
    if (l[k].keyed && l[k].key < least)
      least = l[k].key;
  for (uint32_t k = ni; k < n; k++) {
    if (l[k].keyed)
      continue;
    if (l[k].kind != PIPE_W) {
      diag_error(x->s->diag, DIAG_CLOCK, l[k].use->at,
                 "'%s' has no time stamp: only W may have no stamp", span_text(x->s, l[k].use->at));
      return false;
    }
    uint32_t a = 0, b = ni;
    while (a < b) {
      uint32_t mid = a + (b - a) / 2;
      bool before = l[mid].stage != l[k].stage ? l[mid].stage < l[k].stage : l[mid].mb < l[k].mb;
      if (before)
        a = mid + 1;
      else
        b = mid;
    }
    bool here = a < ni && l[a].stage == l[k].stage && l[a].mb == l[k].mb;
    l[k].key = here ? l[a].key : least == INT64_MAX ? 0 : least;
  }
  return true;
}

static int64_t residue(int64_t key, int64_t period) {
  int64_t r = key % period;
  return r < 0 ? r + period : r;
}

static bool fill_period(Ex *x, Arena *tmp, int64_t period) {
  Sched *s = x->s;
  Listed *l = x->listed.at;
  uint32_t held = s->model->rank_stage0[x->rank + 1] - s->model->rank_stage0[x->rank];
  bool *taken = NEW_ARRAY(tmp, bool, (size_t)period);
  int64_t *place = NEW_ARRAY(tmp, int64_t, held); /* [chunk] 1 + tick in the period; 0: none yet */
  for (uint32_t k = 0; k < x->listed.n; k++)
    if (l[k].keyed)
      taken[residue(l[k].key, period)] = true;
  for (uint32_t k = 0; k < x->listed.n; k++) {
    if (l[k].keyed)
      continue;
    int64_t from = residue(l[k].key, period), *at = &place[s->model->stage[l[k].stage].chunk],
            i = 1;
    for (; !*at && i <= period; i++)
      if (!taken[(from + i) % period]) {
        *at = (from + i) % period + 1;
        taken[*at - 1] = true;
      }
    if (!*at) {
      char w[PIPE_OP_TEXT];
      pipe_unit_text(w, PIPE_W, l[k].stage, l[k].mb, s->model->slices);
      diag_error(s->diag, DIAG_CLOCK, l[k].use->at,
                 "rank %u: no tick is left for %s: other ops take all %lld ticks of the period",
                 x->rank, w, (long long)period);
      return false;
    }
    if (__builtin_add_overflow(l[k].key, residue(*at - 2 - from, period) + 1, &l[k].key))
      return too_far(x, l[k].stmt->at);
  }
  return true;
}

/* Without a period: fills the gaps between stamps, ascending, with the waiting W, the oldest I
 * first. */
static void fill_gaps(Ex *x, Arena *tmp) {
  Listed *l = x->listed.at;
  uint32_t n = x->listed.n, nfill = 0;
  uint32_t *wait = NEW_ARRAY(tmp, uint32_t, n);
  uint32_t head = 0;
  int64_t tick = INT64_MIN; /* the last tick taken */
  for (uint32_t k = 0; k <= n; k++) {
    if (k < n && !l[k].keyed) { /* sorted behind its I */
      wait[nfill++] = k;
      continue;
    }
    for (; head < nfill; head++) {
      int64_t from = l[wait[head]].key > tick ? l[wait[head]].key : tick;
      if (from == INT64_MAX || (k < n && from + 1 >= l[k].key))
        break;
      l[wait[head]].key = tick = from + 1;
    }
    if (k < n)
      tick = l[k].key;
  }
}

/* ---- the statement ---- */

/* Is it a copy, which takes no tick of the rank? */
static bool beside(const Listed *l) { return l->kind == PIPE_OFF || l->kind == PIPE_LOAD; }

/* Sorts ops before copies, then by key. */
static int by_stream(const void *va, const void *vb) {
  bool a = beside(va), b = beside(vb);
  return a != b ? a - b : by_key(va, vb);
}

/* Do they share a tick? Ops of an overlap do, and the ops of one U. */
static bool together(const Listed *a, const Listed *b) {
  return a->joint_first != 0 && a->joint_first == b->joint_first;
}

static const char *listed_text(Sched *s, const Listed *l) {
  char text[PIPE_OP_TEXT];
  int n = pipe_unit_text(text, (PipeOp)l->kind, l->stage, l->mb, s->model->slices);
  return arena_strndup(s->arena, text, (size_t)n);
}

/* Are two ops, or two copies, on one tick that must not be? l: sorted by_stream. */
static bool same_tick(const Listed *l, uint32_t n) {
  const Listed *last[] = {NULL, NULL};
  for (uint32_t k = 0; k < n; k++) {
    const Listed **before = &last[beside(&l[k])];
    if (*before && (*before)->key == l[k].key && !together(*before, &l[k]))
      return true;
    *before = &l[k];
  }
  return false;
}

/* Gives the n listed ops stamps for `period` instead of `old`, and fills in ops without a stamp.
 * False: it fails, or two meet. */
static bool play_period(Ex *x, Arena *tmp, uint32_t n, int64_t old, int64_t period) {
  int64_t by;
  uint32_t ops = 0;
  for (uint32_t k = 0; k < n; k++) {
    Listed *l = &x->listed.at[k];
    if (__builtin_mul_overflow(period - old, l->turn, &by) ||
        (l->keyed && __builtin_add_overflow(l->key, by, &l->key)))
      return false;
    ops += !beside(l);
  }
  qsort(x->listed.at, n, sizeof *x->listed.at, by_stream);
  x->listed.n = ops;
  bool ok = start_of_fill(x);
  qsort(x->listed.at, ops, sizeof *x->listed.at, by_key);
  ok = ok && fill_period(x, tmp, period);
  x->listed.n = n;
  qsort(x->listed.at, n, sizeof *x->listed.at, by_stream);
  return ok && !same_tick(x->listed.at, n);
}

/* The least longer period in which no two of the n listed ops meet; 0: not found within STEPS. */
static int64_t longer_period(Ex *x, uint32_t n, int64_t period) {
  enum { STEPS = 1 << 20 };
  Diag silent = *x->s->diag, *diag = x->s->diag;
  Arena tmp = {0};
  Listed *own = x->listed.at, *copy = arena_alloc(&tmp, n * sizeof *copy);
  int64_t found = 0;
  silent.out = NULL;
  x->s->diag = &silent, x->listed.at = copy;
  for (int64_t p = period + 1; !found && (p - period) * (n + p) < STEPS; p++) {
    memcpy(copy, own, n * sizeof *copy);
    found = play_period(x, &tmp, n, period, p) ? p : 0;
  }
  x->s->diag = diag, x->listed.at = own, x->listed.n = n;
  arena_free(&tmp);
  return found;
}

/* all: number of listed ops and copies. */
static bool report_tick(Ex *x, const Stmt *t, uint32_t all, const Listed *a, const Listed *b) {
  Sched *s = x->s;
  diag_error(s->diag, DIAG_CLOCK, b->use->at, "rank %u: %s and %s are both on tick %lld", x->rank,
             listed_text(s, a), listed_text(s, b), (long long)b->key);
  if (b->use != a->use)
    diag_note(s->diag, a->use->at, "%s comes from here", listed_text(s, a));
  else if (!t->value && !hint_mentions(b->stmt->value, t->name))
    diag_help(s->diag, "'clock %s period T' adds %s*T to every stamp", t->name, t->name);
  int64_t now = 0, longer = 0;
  if (t->value && a->turn != b->turn && eval(s, t->value, &now))
    longer = longer_period(x, all, now);
  if (longer)
    diag_help(s->diag, "the next longer period without two ops on one tick of rank %u is %lld",
              x->rank, (long long)longer);
  return false;
}

/* Checks that each copy has a stamp, and that no two share a tick. */
static bool check_copies(Ex *x, const Stmt *t, const Listed *l, uint32_t n) {
  for (uint32_t k = 0; k < n; k++) {
    if (!l[k].keyed) {
      diag_error(x->s->diag, DIAG_CLOCK, l[k].use->at,
                 "'%s' has no time stamp: only W may have no stamp", span_text(x->s, l[k].use->at));
      return false;
    }
    if (k > 0 && l[k - 1].key == l[k].key)
      return report_tick(x, t, (uint32_t)(l - x->listed.at) + n, &l[k - 1], &l[k]);
  }
  return true;
}

/* Pushes what is listed, by stamp: l[0..n) are ops, then come `more` copies. */
static bool push_listed(Ex *x, const Stmt *t, const Listed *l, uint32_t n, uint32_t more) {
  const Listed *copy = l + n, *end = copy + more;
  uint32_t action = x->s->orders->nop; /* first row of the present action */
  for (uint32_t k = 0; k <= n; k++) {
    for (; copy < end && (k == n || copy->key <= l[k].key); copy++) {
      x->use = copy->use;
      if (!push_copy(x, copy->kind, copy->stage, copy->mb))
        return false;
    }
    if (k == n)
      break;
    bool joined = k > 0 && together(&l[k - 1], &l[k]);
    if (k > 0 && l[k].key == l[k - 1].key && !joined)
      return report_tick(x, t, n + more, &l[k - 1], &l[k]);
    x->use = l[k].use;
    action = joined ? action : x->s->orders->nop;
    if (!push_op(x, l[k].kind, l[k].stage, l[k].mb))
      return false;
    if (l[k].joint && (k + 1 == n || !together(&l[k], &l[k + 1])) &&
        !join_ops(x, l[k].joint, action))
      return false;
  }
  return true;
}

bool run_clock(Ex *x, const Stmt *t) {
  Sched *s = x->s;
  enum { MAX_PERIOD = 1 << 20 };
  int64_t period = 0;
  if (t->value && !eval(s, t->value, &period))
    return false;
  if (t->value && (period < 1 || period > MAX_PERIOD)) {
    if (!x->period_said)
      diag_error(s->diag, DIAG_RANGE, t->value->at,
                 "a period of %lld ticks; the period may be 1 to %d", (long long)period,
                 MAX_PERIOD);
    x->period_said = true;
    return false;
  }
  if (!list_body(x, t, period))
    return false;
  Listed *l = x->listed.at;
  uint32_t n = x->listed.n, all = n;
  if (n == 0)
    return true;
  qsort(l, all, sizeof *l, by_stream);
  while (n > 0 && beside(&l[n - 1]))
    n--;
  if (!check_copies(x, t, l + n, all - n))
    return false;
  x->listed.n = n; /* without copies */
  if (!start_of_fill(x))
    return false;
  qsort(l, n, sizeof *l, by_key);
  Arena tmp = {0};
  bool ok = true;
  if (!period)
    fill_gaps(x, &tmp);
  else
    ok = fill_period(x, &tmp, period);
  arena_free(&tmp);
  if (!ok)
    return false;
  qsort(l, n, sizeof *l, by_key);
  return push_listed(x, t, l, n, all - n);
}
