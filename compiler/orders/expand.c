/* SPDX-License-Identifier: MIT
 * Expands a schedule with its parameters into the compute ops of each rank. Requires resolve.
 * Ensures nrank, nstage, nmb, stage (placement, sizes, times), op with its maps at_f at_b at_w
 * at_r, site and check. Every op is on a stage of its rank, its microbatch exists, and it occurs
 * once.
 *
 * Cost: linear in ops plus iterations; a budget stops loops that make no ops. */
#include <stdlib.h>
#include <string.h>

#include "orders.h"
#include "expand.h"
#include "base.h"
#include "graph.h"
#include "hints.h"
#include "limit.h"
#include "names.h"

/* ---- ops ---- */

/* Backwards go from the last slice of a microbatch to the first. */
static bool is_back(const OpRef *o) { return o->op == PIPE_B || o->op == PIPE_I; }

/* Is the unit that an op without an index takes next placed on another rank? */
static bool elsewhere(const Ex *x, uint32_t row, int64_t unit) {
  const Sched *s = x->s;
  const PipeStage *st = &s->model->stage[row];
  if (unit < 0) /* it follows a microbatch that was left out */
    return false;
  return s->model->row_of && unit < st->nmb && !runs_mb(s, row, st->mb0 + (uint32_t)unit);
}

/* Finds the microbatch and slice of an op without an index. F, R, B and I continue after the last
 * op of their kind on the stage; for W see next_w.c. mb -1: there is no W left. */
static bool next_mb(Ex *x, const OpRef *o, uint32_t *stage, int64_t *mb, int64_t *slice) {
  Sched *s = x->s;
  int64_t slices = s->model->slices;
  if (o->op == PIPE_W)
    return next_w(x, o, stage, mb, slice);
  if (!op_stage(x, o, stage))
    return false;
  if (*stage == NONE)
    return true;
  int64_t place = o->op == PIPE_F   ? x->next_f[*stage]
                  : o->op == PIPE_R ? x->next_r[*stage]
                                    : x->next_b[*stage];
  while (elsewhere(x, *stage, place))
    ++place; /* all slices of a microbatch are on one rank */
  int64_t q = (place % slices + slices) % slices;
  *mb = (place - q) / slices;
  *slice = is_back(o) ? slices - 1 - q : q;
  return true;
}

/* Finds the first unit of microbatch mb of the stage's pipe. NONE: `clip` leaves it out. False: it
 * does not exist, reported. */
static bool step_mb(Ex *x, const OpRef *o, uint32_t stage, int64_t mb, uint32_t *out) {
  Sched *s = x->s;
  const PipeStage *st = &s->model->stage[stage];
  uint32_t n = st->nmb / s->model->slices;
  bool exists = mb >= 0 && mb < n;
  *out = exists ? st->mb0 + (uint32_t)mb * s->model->slices : NONE;
  if (exists || x->clip)
    return true;
  diag_error(s->diag, DIAG_BAD_INDEX, x->use->at,
             "rank %u: '%s' is microbatch %lld; the microbatches are 0 to %u", x->rank,
             span_text(s, x->use->at), (long long)mb, n - 1);
  if (o != x->use)
    diag_note(s->diag, o->at, "the op is defined here");
  hint_index(s, x->rank, x->use, x->list, mb, n);
  return false;
}

/* Reports that microbatch mb of the pipe, whose first unit is `at`, is placed on another rank. */
static bool not_here(Ex *x, const OpRef *o, uint32_t stage, int64_t mb, uint32_t at) {
  const Sched *s = x->s;
  uint32_t model = s->model->stage[stage].model;
  no_stage(x, o, o->at,
           arena_printf(
               s->arena, "microbatch %lld of stage %u is placed on rank %u", (long long)mb, model,
               s->model->stage[s->model->row_of[(size_t)model * s->model->nmb + at]].rank));
  /* its ops need an index */
  bool by_index = x->list || (x->list_op && x->list_op->kind == ST_KERNEL);
  if (by_index && o->op != PIPE_U)
    diag_help(s->diag, "'clip' around the op drops microbatches of other ranks");
  else if (o->op != PIPE_W && o->op != PIPE_U)
    diag_help(s->diag, "'%s' without a microbatch takes the next microbatch of this rank", o->name);
  return false;
}

static int64_t *next_of(Ex *x, int kind, uint32_t stage) {
  return kind == PIPE_F                     ? &x->next_f[stage]
         : kind == PIPE_R                   ? &x->next_r[stage]
         : kind == PIPE_B || kind == PIPE_I ? &x->next_b[stage]
                                            : NULL;
}

static bool has_run(Sched *s, uint8_t kind, uint32_t stage, uint32_t mb) {
  uint32_t row = *op_row(s, kind, (size_t)stage * s->model->nmb + mb);
  return row && s->orders->op[row - 1].kind == kind;
}

/* Sets the unit from which the next op of this kind on the stage counts, and returns its entry.
 * NULL: the kind is not counted. */
static int64_t *note_next(Ex *x, const OpRef *o, uint32_t stage, int64_t mb, int64_t slice) {
  int64_t slices = x->s->model->slices, place, *next = next_of(x, o->op, stage);
  if (!next || __builtin_mul_overflow(mb, slices, &place) ||
      __builtin_add_overflow(place, (is_back(o) ? slices - 1 - slice : slice) + 1, &place))
    return NULL;
  *next = place;
  return next;
}

bool add_op(Ex *x, const OpRef *o, uint32_t stage, int64_t mb, int64_t slice) {
  Sched *s = x->s;
  bool copy = o->op == PIPE_OFF || o->op == PIPE_LOAD;
  uint32_t at;
  if (stage == NONE)
    return true;
  if (slice < 0 || slice >= s->model->slices) {
    diag_error(s->diag, DIAG_BAD_INDEX, x->use->at,
               "rank %u: '%s' is slice %lld; the slices are 0 to %u", x->rank,
               span_text(s, x->use->at), (long long)slice, s->model->slices - 1);
    if (o != x->use)
      diag_note(s->diag, o->at, "the op is defined here");
    return false;
  }
  int64_t *next = note_next(x, o, stage, mb, slice);
  if (!step_mb(x, o, stage, mb, &at))
    return false;
  if (next && x->list && (at == NONE || !has_run(s, (uint8_t)o->op, stage, at + (uint32_t)slice)))
    note_listed(x, next, *next);
  if (at != NONE && !runs_mb(x->s, stage, at))
    return x->clip || not_here(x, o, stage, mb, at);
  if (at == NONE)
    return true;
  at += (uint32_t)slice;
  return (x->list ? list_op : copy ? push_copy : push_op)(x, (uint8_t)o->op, stage, at);
}

/* `value` stands for `index`. */
bool op_indices(Ex *x, const OpRef *o, const Expr *index, int64_t value, int64_t *mb,
                int64_t *slice) {
  Sched *s = x->s;
  int64_t *to[2] = {mb, slice};
  *slice = 0;
  int k = 0;
  for (const Arg *a = o->args; a; a = a->next, k++) {
    if (a->value == index)
      *to[k] = value;
    else if (!eval(s, a->value, to[k]))
      return false;
  }
  return true;
}

static bool run_opref(Ex *x, const OpRef *o);

bool bind_macro(Ex *x, const OpRef *o, const Expr *index, int64_t index_value) {
  Sched *s = x->s;
  int64_t few[4], *value = few;
  uint32_t n = 0, i = 0;
  for (const Arg *a = o->args; a; a = a->next)
    n++;
  if (n > 4)
    value = arena_alloc(s->arena, n * sizeof *value);
  for (const Arg *a = o->args; a; a = a->next, i++) {
    if (a->value == index)
      value[i] = index_value;
    else if (!eval(s, a->value, &value[i]))
      return false;
  }
  i = 0;
  for (const Param *p = o->def->params; p; p = p->next)
    s->eval.env[p->slot] = value[i++];
  return true;
}

bool run_macro(Ex *x, const OpRef *o, const Expr *index, int64_t index_value) {
  return bind_macro(x, o, index, index_value) && run_opref(x, o->def->op);
}

/* Runs U or U(m) of one stage, of all stages of a pipe, or of the rank. */
bool run_update(Ex *x, const OpRef *o, const Expr *index, int64_t mb) {
  Sched *s = x->s;
  uint32_t n, one;
  const uint32_t *row = rank_rows(x, &n);
  const Pipe *p;
  x->whole = x->listed.n + 1;
  if (o->chunk || o->stage) {
    if (!op_stage(x, o, &one))
      return false;
    if (one == NONE)
      return true;
    row = &one, n = 1;
  } else if (o->pipe || index) {
    if (!op_pipe(x, o, &p))
      return false;
    row = pipe_rows(x, p, &n);
  }
  if (n == 0)
    return no_stage(x, o, o->at, "the rank has no stage");
  for (uint32_t i = 0; i < n; i++) {
    uint32_t stage = row[i], at = NONE;
    if (index && !step_mb(x, o, stage, mb, &at))
      return false;
    bool here = at == NONE || runs_mb(s, stage, at);
    if (!here && !x->clip)
      return not_here(x, o, stage, mb, at);
    if (!here || (index && at == NONE))
      continue;
    if (!(x->list ? list_op : push_op)(x, PIPE_U, stage, at))
      return false;
  }
  return true;
}

static bool run_opref(Ex *x, const OpRef *o) {
  Sched *s = x->s;
  uint32_t stage;
  int64_t mb = 0, slice = 0;
  if (o->op < 0)
    return run_macro(x, o, NULL, 0);
  if (x->joint && x->list->kind == ST_RULES && !o->args && o->op != PIPE_U)
    return list_any(x, o);
  if (o->op == PIPE_U)
    return (!o->args || eval(s, o->args->value, &mb)) &&
           run_update(x, o, o->args ? o->args->value : NULL, mb);
  if (!o->args)
    return next_mb(x, o, &stage, &mb, &slice) &&
           ((o->op == PIPE_W && mb < 0) || add_op(x, o, stage, mb, slice));
  return op_stage(x, o, &stage) && op_indices(x, o, NULL, 0, &mb, &slice) &&
         add_op(x, o, stage, mb, slice);
}

bool spend(Ex *x, const Stmt *t) {
  guard_poll();
  if (!take_steps(x->s, STEPS_TURN, t->at))
    return false;
  if (x->budget-- > 0)
    return true;
  diag_error(x->s->diag, DIAG_LOOP, t->at,
             "rank %u: the loops have run %llu times; there are only %u stages x %u microbatches",
             x->rank, 16 * (unsigned long long)x->s->model->nstage * x->s->model->nmb + 100000,
             x->s->model->nstage, x->s->model->nmb);
  return false;
}

/* ---- statements ---- */

/* Notes, for a help, that a loop has run no turn because its range descends. */
static void note_descending(Ex *x, const Stmt *loop) {
  Orders *orders = x->orders;
  for (uint32_t i = 0; i < orders->descending.n; i++)
    if (orders->descending.at[i] == loop)
      return;
  *vec_push(x->s->arena, &orders->descending) = loop;
}

bool do_turns(Ex *x, const Stmt *t, bool (*body)(Ex *, const Stmt *, const void *),
              const void *of) {
  Sched *s = x->s;
  int64_t lo = 0, hi, step = 1;
  if (t->range.lo ? !eval_range(s, &t->range, &lo, &hi, &step) : !eval(s, t->cond, &hi))
    return false;
  if (t->kind == ST_DO && t->range.lo && !t->range.step && hi < lo)
    note_descending(x, t);
  for (int64_t i = lo; step > 0 ? i < hi : i > hi;) {
    if (t->name)
      s->eval.env[t->slot] = i;
    if (!spend(x, t) || !body(x, t->body, of))
      return false;
    if (__builtin_add_overflow(i, step, &i))
      break;
  }
  return true;
}

static bool run_body(Ex *x, const Stmt *b, const void *of) {
  (void)of;
  return run_block(x, b);
}

/* Sets the time stamp or priority of what t lists. */
static bool set_stamp(Ex *x, const Stmt *t) {
  x->list_op = t;
  x->keyed = x->joint ? x->joint->value != NULL : t->value != NULL;
  x->key = x->joint ? x->joint_key : 0;
  return !t->value || eval(x->s, t->value, &x->key);
}

static bool run_stmt(Ex *x, const Stmt *t) {
  Sched *s = x->s;
  int64_t v;
  switch (t->kind) {
  case ST_OP: x->use = t->op; return set_stamp(x, t) && run_opref(x, t->op);
  case ST_KERNEL: return run_kernel(x, t);
  case ST_DO: return do_turns(x, t, run_body, NULL);
  case ST_IF: return eval(s, t->cond, &v) && run_block(x, v ? t->body : t->orelse);
  case ST_LET: return eval(s, t->value, &s->eval.env[t->slot]);
  case ST_OPDEF:
  case ST_FN: return true;
  case ST_CLOCK: return run_clock(x, t);
  case ST_RULES: return run_rules(x, t);
  case ST_OVERLAP: return run_overlap(x, t);
  case ST_CLIP: {
    bool outer = x->clip;
    x->clip = true;
    bool ok = run_block(x, t->body);
    x->clip = outer;
    return ok;
  }
  }
  return true;
}

bool run_block(Ex *x, const Stmt *b) {
  for (; b; b = b->next)
    if (!run_stmt(x, b))
      return false;
  return true;
}

/* ---- orders ---- */

/* Gives an OFF or LOAD the phase of the op after it, or of the last op. */
static void label_copy(Ex *x, Copy *copy) {
  const Orders *orders = x->orders;
  const uint32_t end = orders->rank_op0[x->s->model->stage[copy->stage].rank + 1];
  copy->phase = orders->op[copy->at < end ? copy->at : end - 1].phase;
}

static bool run_orders(Ex *x) {
  Sched *s = x->s;
  const Clause **order = NEW_ARRAY(s->arena, const Clause *, s->model->nrank);
  if (!find_orders(&x->in, order))
    return false;
  x->orders->order_clause = order;
  x->orders->order_at = NEW_ARRAY(s->arena, Span, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++)
    x->orders->order_at[r] = order[r]->at;
  size_t cells = (size_t)s->model->nstage * s->model->nmb;
  x->orders->at_f = NEW_ARRAY(s->arena, uint32_t, cells);
  x->orders->at_b = NEW_ARRAY(s->arena, uint32_t, cells);
  x->orders->at_w = NEW_ARRAY(s->arena, uint32_t, cells);
  x->orders->at_r = NEW_ARRAY(s->arena, uint32_t, cells);
  x->fresh = NEW_ARRAY(s->arena, uint32_t, s->model->nstage);
  x->last_u = NEW_ARRAY(s->arena, uint32_t, s->model->nstage);
  x->orders->rank_op0 = NEW_ARRAY(s->arena, uint32_t, s->model->nrank + 1);
  x->next_f = NEW_ARRAY(s->arena, int64_t, s->model->nstage);
  x->next_b = NEW_ARRAY(s->arena, int64_t, s->model->nstage);
  x->next_r = NEW_ARRAY(s->arena, int64_t, s->model->nstage);
  x->w_from = NEW_ARRAY(s->arena, uint32_t, (size_t)s->model->nstage + s->model->nrank);
  x->op_cap = (uint32_t)(2 * cells + s->model->nstage);
  x->orders->op = arena_alloc(s->arena, x->op_cap * sizeof *s->orders->op);
  bool ok = true;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    uint32_t held = s->model->rank_stage0[r + 1] - s->model->rank_stage0[r];
    x->rank = r;
    x->clip = false;
    x->list = NULL;
    x->budget = 16 * (uint64_t)s->model->nstage * s->model->nmb + 100000;
    s->eval.env[order[r]->slot] = r;
    x->orders->rank_op0[r] = s->orders->nop;
    uint32_t errors = s->diag->errors;
    if (!run_block(x, order[r]->body)) {
      ok = false;
      if (s->diag->errors > s->diag->limit)
        break;
      continue;
    }
    if (s->orders->nop == s->orders->rank_op0[r] && s->diag->errors == errors) {
      diag_error(s->diag, DIAG_EMPTY_RANK, order[r]->at, "rank %u has no ops%s", r,
                 held ? "" : ": the rank has no stage");
      ok = false;
    }
  }
  x->orders->rank_op0[s->model->nrank] = s->orders->nop;
  if (!ok || !play_rules(x))
    return false;
  for (uint32_t r = 0; r < s->model->nrank; r++)
    set_phases(x->orders, s->orders->rank_op0[r], s->orders->rank_op0[r + 1]);
  for (uint32_t i = 0; i < s->orders->ncopy; i++)
    label_copy(x, &x->orders->copy[i]);
  return insert_recompute(x);
}

/* ---- tune ---- */

const Clause *find_tune(const Schedule *sc) {
  for (; sc; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c; c = c->next)
      if (c->kind == CL_TUNE)
        return c;
  return NULL;
}

/* Gives the variable of c a value of its range: if c is `chosen` the one at index Tuning.at, else
 * the first. */
static bool bind_tune(Sched *s, Tuning *tuning, const Clause *c, const Clause *chosen) {
  if (!c->var)
    return true;
  enum { MAX_VALUES = 1000 };
  int64_t lo, hi, step;
  if (!eval_range(s, &c->range, &lo, &hi, &step))
    return false;
  int64_t left = step > 0 ? (lo < hi) : (lo > hi), v = lo;
  uint32_t n = 0;
  for (; left && n <= MAX_VALUES; n++) {
    if (c == chosen && n == tuning->at)
      s->eval.env[c->slot] = v;
    left = !__builtin_add_overflow(v, step, &v) && (step > 0 ? v < hi : v > hi);
  }
  if (n == 0 || n > MAX_VALUES) {
    Span at = {c->range.lo->at.file, c->range.lo->at.beg, c->range.hi->at.end};
    diag_error(s->diag, DIAG_RANGE, at, "'tune %s' goes over %s values; the range may have 1 to %d",
               c->var, n == 0 ? "no" : "too many", MAX_VALUES);
    return false;
  }
  if (c == chosen)
    tuning->n = n;
  else
    s->eval.env[c->slot] = lo;
  return true;
}

/* ---- the pass ---- */

/* Drops what an expansion for another value of `tune` has made, but keeps Orders.site. */
static void begin(Sched *s, Expanded *e) {
  const Orders before = e->orders;
  *e = (Expanded){.tuning = e->tuning};
  e->orders.site = before.site;
  e->orders.nsite = before.nsite;
  e->orders.capsite = before.capsite;
  e->orders.opref_site = before.opref_site;
  if (!before.opref_site)
    e->orders.opref_site = NEW_ARRAY(s->arena, uint32_t, (size_t)s->parsed->nopref + 1);
}

bool expand(Sched *s, Expanded *e) {
  begin(s, e);
  Ex x = {.s = s,
          .in = {.s = s, .model = &e->model},
          .orders = &e->orders,
          .sides = &e->sides,
          .scratch = {0}};
  const Clause *chosen = find_tune(s->parsed->def);
  e->model.name = s->parsed->def->name;
  for (const Schedule *sc = s->parsed->def; sc; sc = sc->base_def)
    e->model.timed |= sc->timed;
  if (!bind_top(&x.in) || !instantiate(&x.in, s->parsed->def, 0))
    return false;
  for (uint32_t i = 0; i < x.in.clauses.n; i++) {
    Clause *c = x.in.clauses.at[i].clause;
    if (c->kind == CL_LET && !eval(s, c->value, &s->eval.env[c->slot]))
      return false;
    if (c->kind == CL_TUNE && !bind_tune(s, &e->tuning, c, chosen))
      return false;
  }
  e->orders.offload = find_clauses(&x.in, CL_OFFLOAD, true, &e->orders.noffload);
  e->model.link_clause = find_clauses(&x.in, CL_LINK, true, &e->model.nlink_clause);
  e->claims.check = find_clauses(&x.in, CL_CHECK, false, &e->claims.ncheck);
  e->claims.limit = find_clauses(&x.in, CL_LIMIT, false, &e->claims.nlimit);
  if (!find_ranks(&x.in) || !find_pipes(&x.in))
    return false;
  bool ok = find_send(&x) && find_lowering(&x) && find_weights(&x.in) &&
            fits(s, s->model->pipe[0].clause) && place_stages(&x.in) && set_costs(&x.in) &&
            find_copy_links(&x.in) && find_sides(&x) && run_orders(&x) && ops_fit(s) &&
            find_limits(s, &e->claims);
  arena_free(&x.scratch);
  return ok;
}
