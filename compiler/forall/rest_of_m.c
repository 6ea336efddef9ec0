/* SPDX-License-Identifier: MIT
 * What depends on M beside the orders: costs, sizes, links, what is recomputed, copied or read, and what is required and
 * expected. No proof of the orders need look at it (all_m.c, lists_of_m.c), but a program needs all of it. So that it has values for every M is asked
 * here, of its text (values_of_m.c); and that it does not change, or come to change from some microbatch on, where a looped
 * program goes by a few M (looped.c). That tables, memory and sums of costs have room is not asked: an M at which they have
 * not is refused as too large, whatever has been proved. Linear in the text, once for each call of a function and each stage. */
#include <string.h>

#include "formula.h"
#include "hints.h"
#include "looped.h"
#include "names.h"
#include "orders.h"
#include "quasi.h"
#include "rest_of_m.h"

bool expr_is_moved(Moved *x, const Expr *e) {
  enum { MOST_STEPS = 1 << 20 }; /* functions that call functions: then take it that it does */
  if (!e)
    return false;
  if (e->kind == EX_NAME && e->builtin != FO_VALUE)
    return e->builtin == FO_N ? x->applied : x->late && e->builtin >= FO_DELAY;
  if (x->steps++ > MOST_STEPS || (e->kind == EX_NAME && e->slot < x->nslot && x->slot[e->slot]) ||
      (e->kind == EX_CALL && e->fn && expr_is_moved(x, e->fn->body)))
    return true;
  for (const Arg *a = e->args; a; a = a->next)
    if (expr_is_moved(x, a->value))
      return true;
  return expr_is_moved(x, e->a) || expr_is_moved(x, e->b) || expr_is_moved(x, e->c);
}

void move_names(Moved *x, const Schedule *sc) {
  const Arg *positional = sc->base_args;
  for (const Param *p = sc->base ? sc->base_def->params : NULL; p; p = p->next) {
    const Param *own;
    const Expr *e = base_value(sc, p, &positional, &own);
    x->slot[p->slot] = expr_is_moved(x, e) || (own && x->slot[own->slot]);
  }
  if (sc->base)
    move_names(x, sc->base_def);
  for (const Clause *c = sc->clauses; c; c = c->next)
    if (c->kind == CL_LET)
      x->slot[c->slot] = expr_is_moved(x, c->value);
    else if (c->kind == CL_TUNE && c->var)
      x->slot[c->slot] = expr_is_moved(x, c->range.lo) || expr_is_moved(x, c->range.hi) ||
                         expr_is_moved(x, c->range.step);
}

Moved moved_by(const Sched *s, const char *name) {
  Moved x = {.slot = NEW_ARRAY(s->arena, bool, s->parsed->nslot + (size_t)1),
             .nslot = s->parsed->nslot,
             .late = s->all_m.late,
             .applied = s->all_m.applied};
  for (const Param *p = s->parsed->def->params; p; p = p->next)
    x.slot[p->slot] = strcmp(p->name, name) == 0 ||
                      (!is_given(s->opt, p) && expr_is_moved(&x, p->init));
  move_names(&x, s->parsed->def);
  return x;
}

bool expr_moves(const Sched *s, const char *name, const Expr *e) {
  Moved x = moved_by(s, name);
  bool moves = expr_is_moved(&x, e);
  return !work_take(s->opt->work, x.steps + s->parsed->nslot, s->parsed->def->name_at) || moves;
}

const Entry *moving_cost(const Sched *s, const char *name) {
  Moved x = moved_by(s, name);
  for (const Schedule *sc = s->parsed->def; sc; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c; c = c->next)
      for (const Entry *e = c->entries; e; e = e->next)
        if (expr_is_moved(&x, e->value))
          return e;
  return NULL;
}

const Entry *cost_by_mb(const Sched *s) {
  for (const Schedule *sc = s->parsed->def; sc; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c; c = c->next)
      for (const Entry *e = c->kind == CL_TIME && c->mb_var ? c->entries : NULL; e; e = e->next)
        if (hint_mentions(e->value, c->mb_var))
          return e;
  return NULL;
}

const char *never_looped(const Sched *s) {
  return s->tuning->clause  ? "its order is tuned for one value"
         : s->all_m.refuted ? arena_printf(s->arena, "it is %s", s->all_m.text)
         : cost_by_mb(s)    ? "times differ by microbatch"
                            : NULL;
}

const Entry *moving_transfer(const Sched *s, const char *name) {
  Moved x = moved_by(s, name);
  bool over = s->opt->profile != NULL; /* it may have bandwidths, too */
  const Entry *size = NULL;
  for (const Schedule *sc = s->parsed->def; sc; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c; c = c->next) {
      over |= c->kind == CL_PROFILE;
      for (const Entry *e = c->entries; e; e = e->next) {
        over |= strcmp(e->key, "bandwidth") == 0;
        if ((strcmp(e->key, "boundary") == 0 || strcmp(e->key, "edge") == 0) &&
            expr_is_moved(&x, e->value))
          size = e;
      }
    }
  return over ? size : NULL;
}

/* ---- does what is compiled beside the orders change with M? ---- */

/* e of a clause, as a function of its microbatch: does it come to be something else from some microbatch on? Else it is the same,
 * or so much more, after some of them, of which *every becomes a multiple. */
static bool turns_over(const Sched *s, const Clause *c, const Expr *e, bool same, int64_t *every) {
  Quasi q;
  Diag none;
  Sched own = quiet(s, &none);
  bool over = false;
  for (uint32_t st = 0; e && c->mb_var && st < s->model->nmodel && !over; st++) {
    AllM x = {.s = &own, .env = NEW_ARRAY(s->arena, Quasi, s->parsed->nslot + (size_t)1)};
    for (uint32_t i = 0; i < s->parsed->nslot; i++)
      x.env[i] = FIXED;
    if (c->var)
      s->eval.env[c->slot] = st;
    x.env[c->mb_slot] = (Quasi){1, 1, false, false, 0};
    over = !quasi(&x, e, &q) || (same && q.s != 0);
    *every = over ? *every : *every / quasi_gcd(*every, q.T) * q.T;
    over |= *every > MOST_PERIOD;
  }
  return over;
}

/* Does what it says depend on M, or come to be something else from some microbatch on? What lists have, they have proved. */
static bool clause_moves(const Sched *s, Moved *x, const Clause *c, int64_t *every) {
  bool moves = false;
  for (const Entry *e = c->entries; e; e = e->next)
    moves |= expr_is_moved(x, e->value);
  for (const WeightLine *l = c->lines; l; l = l->next) {
    moves |= expr_is_moved(x, l->value) || expr_is_moved(x, l->formula) ||
             expr_is_moved(x, l->when) || expr_is_moved(x, l->per) ||
             turns_over(s, c, l->when, true, every) || turns_over(s, c, l->per, false, every);
    if (c->mb_var && l->formula) { /* (of numbers with fractions) */
      Moved by_mb = {.slot = NEW_ARRAY(s->arena, bool, s->parsed->nslot + (size_t)1),
                     .nslot = s->parsed->nslot};
      by_mb.slot[c->mb_slot] = true;
      moves |= expr_is_moved(&by_mb, l->formula);
    }
  }
  if (c->kind == CL_OFFLOAD || (c->kind == CL_RECOMPUTE && !s->all_m.from))
    moves |= turns_over(s, c, c->when, true, every);
  return moves || ((c->kind == CL_RECOMPUTE || c->kind == CL_OFFLOAD || c->kind == CL_EXCLUSIVE ||
                    c->kind == CL_LINK) &&
                   (expr_is_moved(x, c->when) || expr_is_moved(x, c->place) ||
                    expr_is_moved(x, c->lead) || expr_is_moved(x, c->to)));
}

bool rest_moves(const Sched *s, const char *name, int64_t *every) {
  *every = 1;
  Moved x = moved_by(s, name);
  for (const Schedule *sc = s->parsed->def; sc; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c; c = c->next)
      if (clause_moves(s, &x, c, every))
        return true;
  return false;
}

bool shares_links(const Sched *s) {
  for (const Schedule *sc = s->parsed->def; sc; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c; c = c->next)
      if (c->kind == CL_EXCLUSIVE || c->kind == CL_LINK)
        return true;
  return false;
}

/* ---- has it values? ---- */

static const char *const LACKS = "for some M it may have no value";

static bool refuse(Line *l, const Expr *e, bool late, Span *at) {
  const Expr *no = no_value(l, e, late);
  work_take(l->s->opt->work, e ? l->steps : 0, *at);
  *at = no ? no->at : *at;
  return no != NULL;
}

/* The microbatch of a clause moves; that and its stage, or ranks, are not negative. */
static void enter(Line *l, const Clause *c) {
  uint8_t few = 0; /* of a stage, a rank, a slice: M moves none of these numbers */
  while ((l->s->model->nmodel + (uint64_t)l->s->model->nrank + l->s->model->slices) >> few)
    few++;
  if (c->var)
    l->known[c->slot] = false, l->natural[c->slot] = true, l->bits[c->slot] = few;
  if (c->slice_var)
    l->known[c->slice_slot] = false, l->natural[c->slice_slot] = true, l->bits[c->slice_slot] = few;
  if (c->rank_var) { /* a stage may come to other ranks at other M */
    l->known[c->rank_slot] = false, l->natural[c->rank_slot] = true, l->bits[c->rank_slot] = few;
    l->moved.slot[c->rank_slot] = l->s->model->row_of != NULL;
  }
  if (!c->mb_var)
    return;
  l->known[c->mb_slot] = false, l->natural[c->mb_slot] = true, l->bits[c->mb_slot] = few;
  if (c->kind != CL_LINK)
    l->moved.slot[c->mb_slot] = true, l->bits[c->mb_slot] = M_BITS;
}

static bool moves(Line *l, const Expr *e) { return expr_is_moved(&l->moved, e); }

static bool names_state(const Expr *e) {
  bool yes = e && e->kind == EX_NAME && e->builtin == FO_STATE;
  for (const Arg *a = e ? e->args : NULL; a && !yes; a = a->next)
    yes = names_state(a->value);
  return yes || (e && (names_state(e->a) || names_state(e->b) || names_state(e->c)));
}

/* May another line than at the M at hand count for the ops that this one is for? */
static bool line_is_late(Line *l, const WeightLine *w) {
  const Sched *s = l->s;
  bool late = false, states = w->word == WW_THEN;
  for (uint32_t i = 0; i < s->model->nwline; i++) {
    const WeightLine *k = s->model->wline[i];
    bool like = k->word == w->word && k->kind == w->kind && k->state == w->state;
    late |= like && moves(l, k->when);
    if (states && names_state(k->formula)) /* which states there are follows from these */
      late |= moves(l, k->when) || moves(l, k->formula) || moves(l, k->per);
  }
  for (const Schedule *sc = s->parsed->def; sc && w->kind == PIPE_R; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c; c = c->next)
      if (c->kind == CL_RECOMPUTE) {
        enter(l, c);
        late |= moves(l, c->when);
      }
  return late;
}

/* Is e, a condition, false for the stage that is bound, whatever moves? */
static bool never_holds(Line *l, const Expr *e) {
  int64_t v;
  if (e->kind == EX_AND)
    return never_holds(l, e->a) || never_holds(l, e->b);
  return !moves(l, e) && quiet_value(l->s, e, &v) && v == 0;
}

/* Does a line that stands before this one take all ops of the stage that is bound? */
static bool is_passed(Line *l, const WeightLine *w, uint32_t stage) {
  const Sched *s = l->s;
  for (uint32_t i = 0; i < s->model->nwline && s->model->wline[i] != w; i++) {
    const WeightLine *k = s->model->wline[i];
    int64_t v = 1;
    if (k->word != w->word || k->kind != w->kind || k->state != w->state)
      continue;
    if (k->clause->var)
      s->eval.env[k->clause->slot] = stage;
    const Name mb = k->clause->mb_var;
    if (!k->when || (!(mb && hint_mentions(k->when, mb)) && !moves(l, k->when) &&
                     quiet_value(s, k->when, &v) && v))
      return true;
  }
  return false;
}

/* Has e, of a clause of stages, a value for each of them, also where none was computed at the M at hand? */
static bool refuse_each(Line *l, const Clause *c, const Expr *e, Span *at) {
  const Sched *s = l->s;
  for (uint32_t st = 0; e && st < s->model->nmodel; st++) {
    if (c->var)
      l->known[c->slot] = true, s->eval.env[c->slot] = st;
    if (refuse(l, e, true, at))
      return true;
    if (!c->var)
      break;
  }
  return false;
}

/* The formula of a line, at each stage that it can be for. The text: as of clause_lacks. */
static const char *formula_lacks(Line *l, const Clause *c, const WeightLine *w, bool late,
                                 Span *at) {
  const Sched *s = l->s;
  const char *why;
  const Expr *no = NULL;
  if (!w->formula || (!late && !moves(l, w->formula)))
    return NULL;
  for (uint32_t st = 0; st < (c->var ? s->model->nmodel : 1) && !no; st++) {
    if (c->var)
      s->eval.env[c->slot] = st, l->known[c->slot] = true;
    if ((w->when && never_holds(l, w->when)) || (c->var && is_passed(l, w, st)))
      continue;
    no = no_formula(l, w->formula, late, &why);
  }
  if (c->var)
    l->known[c->slot] = false;
  *at = no ? no->at : *at;
  return no ? why : NULL;
}

/* Where a clause copies stashes to, and when it brings them back: asked of each stage, since which ops it is asked of
 * when it is compiled is a matter of conditions, of other clauses and of what is recomputed. */
static const char *copies_lack(Line *l, const Clause *c, Span *at) {
  const Sched *s = l->s;
  for (uint32_t st = 0; st < s->model->nstage; st++) {
    int64_t v;
    if (c->var)
      s->eval.env[c->slot] = s->model->stage[st].model;
    if (c->when && never_holds(l, c->when))
      continue;
    if (c->place && (!quiet_value(s, c->place, &v) || v < 0 || v >= s->model->nrank ||
                     v == s->model->stage[st].rank))
      return *at = c->place->at, "for some M a stash may go to no other rank";
    if (c->lead && (!quiet_value(s, c->lead, &v) || v < 0))
      return *at = c->lead->at, "for some M it may be too small";
  }
  return refuse_each(l, c, c->when, at) ? LACKS : NULL;
}

/* Ranks that come to meet when microbatches are elsewhere: then what is asked of pairs of ranks, or of a stage's rank, is
 * asked of others than at the M at hand. */
static const char *places_lack(const Sched *s, const Clause *c, Span *at) {
  if (c->kind != CL_OFFLOAD && c->kind != CL_EXCLUSIVE && c->kind != CL_LINK)
    return NULL;
  for (uint32_t k = 0; k < s->model->npipe; k++)
    if (s->model->pipe[k].clause->mb_var)
      return *at = c->at, "which ranks it is about follows from the microbatch";
  return NULL;
}

/* What a clause says beside the orders. The text: why it may have no value, with its place. */
static const char *clause_lacks(Line *l, const Clause *c, Span *at) {
  const char *why = places_lack(l->s, c, at);
  if (why)
    return why;
  enter(l, c);
  if (c->kind == CL_OFFLOAD)
    return copies_lack(l, c, at);
  if ((c->kind == CL_RECOMPUTE && refuse_each(l, c, c->when, at)) ||
      ((c->kind == CL_EXCLUSIVE || c->kind == CL_LINK) && refuse(l, c->to, false, at)))
    return LACKS;
  for (const WeightLine *w = c->lines; w; w = w->next) {
    bool late = line_is_late(l, w);
    if (refuse(l, w->when, late, at) || refuse(l, w->per, late, at))
      return LACKS;
    why = formula_lacks(l, c, w, late, at);
    if (why)
      return why;
  }
  for (const Entry *e = c->entries; e; e = e->next) {
    if (refuse(l, e->value, false, at))
      return LACKS;
    if (moves(l, e->value) && (strstr(e->key, "bandwidth") ? !always_positive(l, e->value)
                                                           : !never_negative(l, e->value)))
      return *at = e->value->at, "for some M it may be too small";
    if (moves(l, e->value) && l->s->model->ntie &&
        (strcmp(e->key, "tied") == 0 || strcmp(e->key, "grad") == 0 ||
         strcmp(e->key, "weight") == 0))
      return *at = e->value->at, "for some M stages may not share as much as they have";
  }
  return NULL;
}

static void bound_name(Line *l, uint32_t slot, const Expr *e) {
  uint32_t bits = e && l->moved.slot[slot] ? bits_of(l, e) : LET_BITS;
  l->bits[slot] = bits < LET_BITS ? (uint8_t)bits : LET_BITS;
  l->natural[slot] = e && l->moved.slot[slot] && never_negative(l, e);
}

/* How large the parameters of what sc extends, and the lets of both, can be. */
static void bound_names(Line *l, const Schedule *sc) {
  const Arg *positional = sc->base_args;
  for (const Param *p = sc->base ? sc->base_def->params : NULL; p; p = p->next) {
    const Param *own;
    const Expr *e = base_value(sc, p, &positional, &own);
    bound_name(l, p->slot, e);
    if (own)
      l->bits[p->slot] = l->bits[own->slot], l->natural[p->slot] = l->natural[own->slot];
  }
  if (sc->base)
    bound_names(l, sc->base_def);
  for (const Clause *c = sc->clauses; c; c = c->next)
    if (c->kind == CL_LET)
      bound_name(l, c->slot, c->value);
}

const char *rest_lacks(const Sched *s, const Param *m, Span *at) {
  size_t n = s->parsed->nslot + (size_t)1;
  Line l = {.moved = moved_by(s, m->name),
            .s = s,
            .m = m->slot,
            .known = arena_alloc(s->arena, n),
            .natural = NEW_ARRAY(s->arena, bool, n),
            .bits = arena_alloc(s->arena, n)};
  const char *why = text_lacks(s, m, at);
  memset(l.known, 1, n);
  memset(l.bits, LET_BITS, n);
  l.bits[m->slot] = M_BITS;
  for (const Param *p = s->parsed->def->params; p; p = p->next)
    if (p != m)
      bound_name(&l, p->slot, p->init);
  bound_names(&l, s->parsed->def);
  for (const Schedule *sc = s->parsed->def; sc && !why; sc = sc->base_def) {
    for (const Require *r = sc->requires; r && !why; r = r->next)
      why = refuse(&l, r->cond, false, at) ? LACKS : NULL;
    for (const Require *r = sc->expects; r && !why; r = r->next)
      why = refuse(&l, r->cond, false, at) ? LACKS : NULL;
    for (const Clause *c = sc->clauses; c && !why; c = c->next)
      why = clause_lacks(&l, c, at);
  }
  return why;
}
