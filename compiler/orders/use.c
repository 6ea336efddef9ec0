/* SPDX-License-Identifier: MIT
 * Runs the order of another schedule as a part of this one: `use` (lang/spec.md 5.7). Binds its
 * parameters for each `use` and restores them afterwards, because this schedule may also extend it.
 * The statements of its order then run in place of the `use`, with three differences: names of
 * pipes mean the pipes at the same positions in this schedule, microbatches count from the one that
 * the `use` names, and U is dropped.
 *
 * The checks of a used schedule hold while its parameters have the same values. Cost: linear in the
 * ops of its order. */
#include <string.h>

#include "expand.h"
#include "names.h"

enum { MAX_USES = 64 };        /* nesting */
enum { MAX_PLACES = 1 << 28 }; /* stages times microbatches */

/* ---- parameters and values of a schedule and its bases ---- */

static void count_slots(const Schedule *sc, uint32_t *slot, uint32_t *n) {
  for (; sc; sc = sc->base_def) {
    for (const Param *p = sc->params; p; p = p->next, ++*n)
      if (slot)
        slot[*n] = p->slot;
    for (const Clause *c = sc->clauses; c; c = c->next)
      if (c->kind == CL_LET || (c->kind == CL_TUNE && c->var)) {
        if (slot)
          slot[*n] = c->slot;
        ++*n;
      }
  }
}

static Fitting *fitting_of(Ex *x, const Schedule *sc) {
  Sched *s = x->s;
  for (uint32_t i = 0; i < x->fitting.n; i++)
    if (x->fitting.at[i].sc == sc)
      return &x->fitting.at[i];
  Fitting f = {.sc = sc, .row = x->fitting.n};
  count_slots(sc, NULL, &f.n);
  f.slot = NEW_ARRAY(s->arena, uint32_t, f.n + 1);
  f.value = NEW_ARRAY(s->arena, int64_t, f.n + 1);
  f.n = 0;
  count_slots(sc, f.slot, &f.n);
  for (const Param *p = sc->params; p; p = p->next)
    f.nparam++;
  f.pipe = NEW_ARRAY(s->arena, const Clause *, s->model->npipe);
  f.nmb = NEW_ARRAY(s->arena, uint32_t, s->model->npipe);
  f.index = NEW_ARRAY(s->arena, int64_t, s->model->npipe);
  f.place = NEW_ARRAY(s->arena, uint32_t *, s->model->npipe);
  f.nplace = NEW_ARRAY(s->arena, uint32_t, s->model->npipe);
  *vec_push(s->arena, &x->fitting) = f;
  return &x->fitting.at[x->fitting.n - 1];
}

/* ---- does it fit ---- */

static bool differs(Sched *s, const Stmt *t, Span at, const char *what) {
  diag_error(s->diag, DIAG_USE, t->at, "'%s' cannot be used here: %s", t->name, what);
  diag_note(s->diag, at, "in schedule '%s'", t->name);
  return false;
}

static bool same_ranks(Ex *x, const Stmt *t, const Fitting *f) {
  Sched *s = x->s;
  const Clause *ranks = NULL;
  int64_t v;
  for (uint32_t i = 0; i < f->clauses.n; i++) /* the clauses of the schedule itself come last */
    if (f->clauses.at[i].clause->kind == CL_RANKS)
      ranks = f->clauses.at[i].clause;
  if (!ranks)
    return differs(s, t, t->used->name_at, "it has no 'ranks' clause");
  if (!eval(s, ranks->value, &v))
    return false;
  return v == s->model->nrank || differs(s, t, ranks->value->at,
                                         arena_printf(s->arena, "it is for %lld ranks, not %u",
                                                      (long long)v, s->model->nrank));
}

/* Evaluates the places of its pipe k, which has nmb microbatches there. run_used compares the
 * places of the microbatches that it runs. */
static bool find_places(Ex *x, const Stmt *t, Fitting *f, const Clause *c, uint32_t k,
                        uint32_t nmb) {
  Sched *s = x->s;
  const Pipe *p = &s->model->pipe[k];
  uint64_t n = (uint64_t)p->nstage * nmb;
  int64_t outside[2] = {s->eval.env[c->slot], c->mb_var ? s->eval.env[c->mb_slot] : 0}, v;
  if (n > MAX_PLACES)
    return differs(s, t, c->mbs->at,
                   arena_printf(s->arena, "its pipe '%s' has %u stages and %u microbatches",
                                c->name, p->nstage, nmb));
  if (n > f->nplace[k]) {
    f->place[k] = arena_alloc(s->arena, (size_t)n * sizeof **f->place);
    f->nplace[k] = (uint32_t)n;
  }
  bool ok = true;
  for (uint64_t i = 0; i < n && ok; i++) {
    s->eval.env[c->slot] = (int64_t)(i / nmb);
    if (c->mb_var)
      s->eval.env[c->mb_slot] = (int64_t)(i % nmb);
    ok = eval(s, c->place, &v);
    if (ok && (v < 0 || v >= s->model->nrank))
      ok = differs(s, t, c->place->at,
                   arena_printf(s->arena, "its pipe '%s' has stage %u on rank %lld", c->name,
                                (unsigned)(i / nmb), (long long)v));
    if (ok)
      f->place[k][i] = (uint32_t)v;
  }
  s->eval.env[c->slot] = outside[0];
  if (c->mb_var)
    s->eval.env[c->mb_slot] = outside[1];
  return ok;
}

static bool same_stages(Ex *x, const Stmt *t, const Clause *c, const Pipe *p) {
  Sched *s = x->s;
  int64_t v;
  return eval(s, c->value, &v) &&
         (v == p->nstage ||
          differs(s, t, c->value->at,
                  arena_printf(s->arena, "its pipe '%s' has %lld stages, '%s' has %u", c->name,
                               (long long)v, p->clause->name, p->nstage)));
}

static bool same_place(Ex *x, const Stmt *t, const Clause *c, const Pipe *p) {
  Sched *s = x->s;
  int64_t v;
  int64_t outside = s->eval.env[c->slot];
  bool ok = true;
  for (uint32_t m = 0; ok && m < p->nstage; m++) {
    s->eval.env[c->slot] = m;
    ok = eval(s, c->place, &v);
    if (ok && v != s->model->stage[p->first + m].rank)
      ok = differs(s, t, c->place->at,
                   arena_printf(s->arena,
                                "its pipe '%s' has stage %u on rank %lld, '%s' on rank %u", c->name,
                                m, (long long)v, p->clause->name,
                                s->model->stage[p->first + m].rank));
  }
  s->eval.env[c->slot] = outside;
  return ok;
}

/* Compares the next pipe of the used schedule with the pipe here: clause c; index: of the pipe in
 * its array, if c makes an array. */
static bool same_pipe(Ex *x, const Stmt *t, Fitting *f, const Clause *c, int64_t index,
                      uint32_t *n) {
  Sched *s = x->s;
  int64_t nmb, slices = 1, outside = c->index ? s->eval.env[c->index_slot] : 0;
  if (*n == s->model->npipe)
    return differs(s, t, c->at, "it has more pipes than this schedule");
  if (c->index)
    s->eval.env[c->index_slot] = index;
  bool ok = same_stages(x, t, c, &s->model->pipe[*n]) && eval(s, c->mbs, &nmb) &&
            (!c->slices || eval(s, c->slices, &slices));
  if (ok && (nmb < 1 || nmb > INT32_MAX))
    ok = differs(
        s, t, c->mbs->at,
        arena_printf(s->arena, "its pipe '%s' has %lld microbatches", c->name, (long long)nmb));
  ok = ok && (f->dealt ? find_places(x, t, f, c, *n, (uint32_t)nmb)
                       : same_place(x, t, c, &s->model->pipe[*n]));
  if (c->index)
    s->eval.env[c->index_slot] = outside;
  if (!ok)
    return false;
  if (slices != s->model->slices)
    return differs(s, t, c->slices ? c->slices->at : c->at,
                   arena_printf(s->arena, "its pipe '%s' has %lld slices, '%s' has %u", c->name,
                                (long long)slices, s->model->pipe[*n].clause->name,
                                s->model->slices));
  if (c->forward != s->model->forward)
    return differs(s, t, c->at, c->forward ? "it is forward-only" : "it is not forward-only");
  f->pipe[*n] = c;
  f->index[*n] = index;
  f->nmb[(*n)++] = (uint32_t)nmb;
  return true;
}

/* Compares the pipes. Fills f->pipe, f->index and f->nmb. */
static bool same_pipes(Ex *x, const Stmt *t, Fitting *f) {
  Sched *s = x->s;
  uint32_t n = 0;
  f->dealt = s->model->row_of != NULL;
  for (uint32_t i = 0; i < f->clauses.n; i++)
    f->dealt |= f->clauses.at[i].clause->kind == CL_PIPE && f->clauses.at[i].clause->mb_var;
  for (uint32_t i = 0; i < f->clauses.n; i++) {
    const Clause *c = f->clauses.at[i].clause;
    int64_t lo = 0, hi = 1, step = 1;
    if (c->kind != CL_PIPE)
      continue;
    if (c->index && !eval_range(s, &c->range, &lo, &hi, &step))
      return false;
    for (int64_t k = lo; step > 0 ? k < hi : k > hi;) {
      if (!same_pipe(x, t, f, c, k, &n))
        return false;
      if (__builtin_add_overflow(k, step, &k))
        break;
    }
  }
  for (uint32_t k = n; k < s->model->npipe; k++)
    f->pipe[k] = NULL;
  return n > 0 || differs(s, t, t->used->name_at, "it has no 'pipe' clause");
}

/* Binds the parameters and values of t->used, and checks them unless they are those of the last
 * use. */
static bool fit(Ex *x, const Stmt *t, Fitting *f) {
  Sched *s = x->s;
  if (!bind_params(s, t->used, t->args, t->within, t->name_at))
    return x->use_told = true, false;
  bool same = f->checked;
  for (uint32_t i = 0; i < f->nparam && same; i++)
    same = f->value[i] == s->eval.env[f->slot[i]];
  if (same) {
    for (uint32_t i = 0; i < f->n; i++)
      s->eval.env[f->slot[i]] = f->value[i];
    return true;
  }
  f->checked = false;
  f->clauses.n = 0;
  if (!instantiate(&x->in, t->used, 0, &f->clauses, true))
    return false;
  for (uint32_t i = 0; i < f->clauses.n; i++) {
    const Clause *c = f->clauses.at[i].clause;
    if (c->kind == CL_LET && !eval(s, c->value, &s->eval.env[c->slot]))
      return false;
    if (c->kind == CL_TUNE && !bind_tune(s, NULL, c, NULL))
      return false;
  }
  if (!same_ranks(x, t, f) || !same_pipes(x, t, f))
    return x->use_told = true, false;
  for (uint32_t i = 0; i < f->n; i++)
    f->value[i] = s->eval.env[f->slot[i]];
  return f->checked = true;
}

/* Finds its order for the present rank. NULL: reported. */
static const Clause *order_of(Ex *x, const Stmt *t, const Fitting *f) {
  Sched *s = x->s;
  const Bound *found = NULL;
  for (uint32_t i = 0; i < f->clauses.n; i++) {
    const Bound *b = &f->clauses.at[i];
    const Clause *c = b->clause;
    int64_t lo = 0, hi = s->model->nrank, step = 1, r = x->rank;
    if (c->kind != CL_ORDER)
      continue;
    if (c->range.lo && !eval_range(s, &c->range, &lo, &hi, &step))
      return NULL;
    unsigned __int128 from = step > 0 ? (unsigned __int128)((__int128)r - lo)
                                      : (unsigned __int128)((__int128)lo - r);
    unsigned __int128 by = (unsigned __int128)(step > 0 ? (__int128)step : -(__int128)step);
    bool in = step > 0 ? r >= lo && r < hi : r <= lo && r > hi;
    if (in && from % by == 0 && (!found || b->depth <= found->depth))
      found = b;
  }
  if (!found)
    x->use_told = true, differs(s, t, t->used->name_at,
                                arena_printf(s->arena, "it gives no order for rank %u", x->rank));
  return found ? found->clause : NULL;
}

/* ---- places by microbatch ---- */

/* The microbatch of the step that microbatch mb of u means; -1: it does not exist or is left
 * out. */
static int64_t step_of(const Sched *s, const Use *u, uint32_t k, int64_t mb) {
  for (; u; mb += u->shift, u = u->outer)
    if (mb < 0 || mb >= u->nmb[k] || use_leaves_out(u, mb))
      return -1;
  return mb < s->model->pipe[k].nmb / s->model->slices ? mb : -1;
}

static uint32_t rank_here(const Sched *s, const Pipe *p, uint32_t m, int64_t mb) {
  size_t unit = p->mb0 + (size_t)mb * s->model->slices;
  return s->model
      ->stage[s->model->row_of ? s->model->row_of[(size_t)m * s->model->nmb + unit] : p->first + m]
      .rank;
}

/* The row of stage m of a pipe on the present rank; NONE. */
static uint32_t row_here(const Ex *x, const Pipe *p, uint32_t m) {
  const Sched *s = x->s;
  for (uint32_t i = s->model->rank_stage0[x->rank]; i < s->model->rank_stage0[x->rank + 1]; i++) {
    uint32_t row = s->model->rank_stage[i];
    if (s->model->stage[row].model == m && row >= p->first && row - p->first < p->nrow)
      return row;
  }
  return NONE;
}

/* Checks that every microbatch that u runs has its stages on the same ranks here. Ensures held and
 * nheld. A chunk whose microbatches are all left out gets a row of another rank. */
static bool same_places(Ex *x, const Stmt *t, Use *u) {
  Sched *s = x->s;
  x->rows.n = 0;
  for (uint32_t k = 0; k < s->model->npipe && u->pipe[k]; k++)
    for (uint32_t m = 0; m < s->model->nmodel; m++) {
      const Pipe *p = &s->model->pipe[k];
      bool runs = false;
      for (uint32_t mb = 0; mb < u->nmb[k]; mb++) {
        uint32_t rank = u->place[k][(size_t)m * u->nmb[k] + mb];
        int64_t at = step_of(s, u, k, mb);
        runs |= rank == x->rank;
        if (at < 0 || rank_here(s, p, m, at) == rank)
          continue;
        differs(
            s, t, u->pipe[k]->place->at,
            arena_printf(
                s->arena,
                "its pipe '%s' has microbatch %u of stage %u on rank %u; in this schedule it is microbatch %lld on rank %u",
                u->pipe[k]->name, mb, m, rank, (long long)at, rank_here(s, p, m, at)));
        diag_help(
            s->diag,
            "start it at another microbatch ('@ e'), or let a parameter of '%s' shift its places",
            t->name);
        return false;
      }
      uint32_t row = runs ? row_here(x, p, m) : NONE;
      if (runs)
        *vec_push(&x->scratch, &x->rows) = row == NONE ? p->first + m : row;
    }
  uint32_t *held = arena_alloc(&x->scratch, x->rows.n * sizeof *held + 1);
  if (x->rows.n > 0)
    memcpy(held, x->rows.at, x->rows.n * sizeof *held);
  u->held = held, u->nheld = x->rows.n, u->own_chunks = NULL;
  return true;
}

/* ---- the statement ---- */

/* Sets what ops without an index take behind these rows. any: rows of `rules`, not yet in order. */
static void count_rows(Ex *x, uint32_t first, uint32_t end, int64_t outside, bool any) {
  const Sched *s = x->s;
  int64_t place, *at;
  for (uint32_t i = first; i < end && any; i++)
    if ((at = next_behind(x, s->orders->op[i].kind, s->orders->op[i].stage, s->orders->op[i].mb,
                          outside, &place)))
      *at = INT64_MIN;
  for (uint32_t i = first; i < end; i++) {
    at = next_behind(x, s->orders->op[i].kind, s->orders->op[i].stage, s->orders->op[i].mb, outside,
                     &place);
    if (at && (!any || place > *at))
      *at = place;
  }
}

/* Sets what an op without an index takes after the used order, which counted from 0: it continues
 * after the ops that ran. */
static void count_on(Ex *x, const Use *u, uint32_t outer) {
  int64_t outside = u->total - u->shift, place, *at;
  pop_next(x, outer, true);
  if (u->list) { /* as listed, without ops that ran before */
    for (uint32_t i = u->listed; i < x->listed.n; i++)
      if ((at = listed_next(x, &x->listed.at[i], outside, &place)))
        *at = place;
    return;
  }
  uint32_t region = x->rules.regions.n, from = u->first;
  while (region > 0 && x->rules.regions.at[region - 1].first >= u->first)
    region--;
  for (; region < x->rules.regions.n; region++) {
    const Region *g = &x->rules.regions.at[region];
    count_rows(x, from, g->first, outside, false);
    from = g->first + g->n;
    count_rows(x, g->first, from, outside, true);
  }
  count_rows(x, from, x->s->orders->nop, outside, false);
}

/* Resets the counts of rows of other ranks that stand for chunks. */
static void reset_foreign(Ex *x, const Use *u) {
  for (uint32_t i = 0; u->held && i < u->nheld; i++) {
    uint32_t st = u->held[i];
    if (x->s->model->stage[st].rank != x->rank)
      x->next_f[st] = x->next_b[st] = x->next_r[st] = 0;
  }
}

static bool use_order(Ex *x, const Stmt *t, const Fitting *f, Use *u) {
  Sched *s = x->s;
  if (f->dealt && !same_places(x, t, u))
    return x->use_told = true, false;
  const Clause *order = order_of(x, t, f);
  if (!order)
    return false;
  for (uint32_t i = s->model->rank_stage0[x->rank]; i < s->model->rank_stage0[x->rank + 1]; i++) {
    uint32_t st = s->model->rank_stage[i];
    x->next_f[st] = x->next_b[st] = x->next_r[st] = 0;
    x->w_from[st] = s->orders->nop;
  }
  x->w_from[s->model->nstage + x->rank] = s->orders->nop;
  x->clip = false;
  x->in_use = u;
  s->eval.env[order->slot] = x->rank;
  reset_foreign(x, u);
  bool ok = run_block(x, order->body);
  reset_foreign(x, u);
  x->in_use = u->outer;
  x->clip = u->clip;
  return ok;
}

static bool run_used(Ex *x, const Stmt *t, const Fitting *f, int64_t shift,
                     const int64_t range[3]) {
  Sched *s = x->s;
  Use u = {.at = t,
           .pipe = f->pipe,
           .nmb = f->nmb,
           .index = f->index,
           .place = f->dealt ? f->place : NULL,
           .shift = shift,
           .lo = range[0],
           .hi = range[1],
           .step = range[2],
           .clip = x->clip,
           .first = s->orders->nop,
           .listed = x->listed.n,
           .list = x->list,
           .outer = x->in_use};
  if (__builtin_add_overflow(shift, x->in_use ? x->in_use->total : 0, &u.total) ||
      u.total > INT32_MAX || u.total < INT32_MIN) {
    diag_error(s->diag, DIAG_RANGE, t->value->at, "'%s' is %lld: no microbatch is there",
               span_text(s, t->value->at), (long long)shift);
    return x->use_told = true, false;
  }
  uint32_t outer = push_next(x);
  bool ok = use_order(x, t, f, &u);
  if (ok)
    count_on(x, &u, outer);
  return ok;
}

bool run_use(Ex *x, const Stmt *t) {
  Sched *s = x->s;
  int64_t shift = 0, range[3] = {0};
  if (!spend(x, t) || (t->value && !eval(s, t->value, &shift)) ||
      (t->range.lo && !eval_range(s, &t->range, &range[0], &range[1], &range[2])))
    return false;
  if (x->use_depth == MAX_USES) {
    diag_error(s->diag, DIAG_NESTING, t->at, "'use' inside 'use' nested more than %d deep",
               MAX_USES);
    return false;
  }
  uint32_t row = (uint32_t)(fitting_of(x, t->used) - x->fitting.at), n = x->fitting.at[row].n;
  const uint32_t *slot = x->fitting.at[row].slot;
  int64_t few[16], *outside = n > 16 ? arena_alloc(s->arena, n * sizeof *outside) : few;
  for (uint32_t i = 0; i < n; i++)
    outside[i] = s->eval.env[slot[i]];
  x->use_depth++;
  x->use_told = false;
  Fitting f = {0};
  bool ok = fit(x, t, &x->fitting.at[row]);
  if (ok)
    f = x->fitting.at[row], ok = run_used(x, t, &f, shift, range);
  x->use_depth--;
  if (!ok && !x->use_told)
    diag_note(s->diag, t->at, "'%s' is used here", t->name);
  for (uint32_t i = 0; i < n; i++)
    s->eval.env[slot[i]] = outside[i];
  return ok;
}
