/* SPDX-License-Identifier: MIT
 * note [lists]: runs the text of an order once for all M = from + step * n. Values are linear in n (affine.h). A
 * loop whose number of turns grows with n is cut where a comparison inside it changes: at a turn that is a
 * function of n. What is left are stretches in which every comparison has one outcome for all n; those whose
 * length does not depend on n are written out, of the others one turn is run, with its number j as a variable,
 * for all its values at once. What ops without index take is part of the state, and must move on by the same in
 * each turn. So each list is a row of segments, and that it is, for every n >= 0, is what has been computed, not
 * seen at examples. `clock` sorts the same segments by their stamps (sort_clock).
 *
 * What `rules` list is found in the same way; in which order it runs, in rules_of_m.c. `use` runs the text that it names (lists_use.c). Not read in this way:
 * W without stamp in a clock. Linear in the rows of the result times the cuts. */
#include <string.h>

#include "lists_text.h"

bool text_no(Text *t, Span at, const char *why) { return affine_no(t->x, at, why); }

/* ---- the state ---- */

State text_save(Sched *s, const State *of) {
  State to = {.wait = {0}, .old = of->old};
  work_take(s->opt->work, s->model->nstage + (uint64_t)of->wait.n, s->parsed->def->name_at);
  for (int i = 0; i < 3 * MOST_LEVELS && of->next[i]; i++) {
    to.next[i] = NEW_ARRAY(s->arena, Affine, s->model->nstage);
    memcpy(to.next[i], of->next[i], s->model->nstage * sizeof *to.next[i]);
  }
  for (uint32_t i = 0; i < of->wait.n; i++)
    *vec_push(s->arena, &to.wait) = of->wait.at[i];
  return to;
}

/* Those values of a state that count, one after the other. NULL: there are no more. */
Affine *text_part(const Text *t, State *st, uint32_t i) {
  uint32_t first = t->s->model->rank_stage0[t->rank],
           held = t->s->model->rank_stage0[t->rank + 1] - first;
  uint32_t levels = t->use ? t->use->level + 1 : 1, n = 3 * levels * held;
  if (i < n)
    return &st->next[i / held][t->s->model->rank_stage[first + i % held]];
  return i - n < st->wait.n ? &st->wait.at[i - n].unit : NULL;
}

/* Are the same I waiting in both, but for their microbatches? */
bool text_alike(const State *a, const State *b) {
  if (a->wait.n != b->wait.n || a->old != b->old)
    return false;
  for (uint32_t i = 0; i < a->wait.n; i++)
    if (a->wait.at[i].stage != b->wait.at[i].stage)
      return false;
  return true;
}

/* ---- rows ---- */

void text_end_straight(Text *t) {
  if (t->out->row.n > t->straight)
    *vec_push(t->s->arena, &t->out->segment) = (ListSegment){
        .row0 = t->straight, .nrow = t->out->row.n - t->straight, .turns = 1};
  t->straight = t->out->row.n;
}

static bool push(Text *t, const OpRef *o, uint8_t kind, uint32_t stage, Affine unit, bool whole,
                 Affine stamp) {
  if (t->out->row.n >= MOST_ROWS)
    return text_no(t, o->at, "its repeated part is too long");
  *vec_push(t->s->arena, &t->out->row) = (ListRow){
      .kind = kind, .whole = whole, .stage = stage, .unit = unit, .at = o->at};
  if (t->clock)
    *vec_push(t->s->arena, &t->stamp) = affine_sum(stamp, t->base, 1);
  if (t->rules)
    rules_row(t);
  return true;
}

/* Is the microbatch of a stage of the model on the rank? */
static bool placed_here(Text *t, const Pipe *p, int64_t model, Affine mb, Span at, bool *here) {
  const Clause *c = p->clause;
  int64_t rank;
  *here = true;
  if (!t->s->model->row_of || !c->mb_var)
    return true;
  affine_bind(t->x, c->slot, affine(model));
  affine_bind(t->x, c->mb_slot, mb);
  if (c->index)
    affine_bind(t->x, c->index_slot, affine(p->index));
  if (!affine_number(t->x, c->place, &rank))
    return text_no(t, at, "the rank of its microbatch is not the same in every turn");
  *here = rank == t->rank;
  return true;
}

/* Does the microbatch exist? */
static bool exists(Text *t, const Pipe *p, Affine mb, Span at, bool *yes) {
  Affine n = t->mbs[p - t->s->model->pipe];
  if (!affine_at_least_0(t->x, at, mb, yes))
    return false;
  return !*yes ||
         affine_at_least_0(t->x, at, affine_sum(affine_sum(n, mb, -1), affine(1), -1), yes);
}

/* An op under `clip` of a stage that the rank does not have with the M at hand; it has none of it with any other M
 * either. mb: NULL, an op without microbatch. */
static bool elsewhere(Text *t, const OpRef *o, const Affine *mb) {
  const Pipe *p;
  int64_t model;
  bool there = true, here = true;
  if (!op_pipe(&t->ex, o, &p) || !affine_number(t->x, o->stage, &model))
    return text_no(t, o->at, "it is of no pipe");
  if (!p->clause->mb_var)
    return true;
  if (mb && !t->use &&
      (!exists(t, p, *mb, o->at, &there) ||
       (there && !placed_here(t, p, model, *mb, o->at, &here))))
    return false;
  return !there || !here || text_no(t, o->at, "its stage is not on the rank");
}

static void drop_wait(Text *t, uint32_t stage, Affine unit) {
  State *st = &t->now;
  for (uint32_t i = 0; i < st->wait.n; i++)
    if (st->wait.at[i].stage == stage && affine_same(st->wait.at[i].unit, unit)) {
      memmove(&st->wait.at[i], &st->wait.at[i + 1], (st->wait.n - i - 1) * sizeof *st->wait.at);
      st->wait.n--;
      st->old -= i < st->old;
      return;
    }
}

static uint32_t level_of(const Text *t) { return t->use ? t->use->level : 0; }

/* The row of State.next of an op of the order at hand. */
static uint32_t next_of(const Text *t, int kind) {
  return 3 * level_of(t) + (kind == PIPE_F ? 0 : kind == PIPE_R ? 1 : 2);
}

/* ---- what ops without index take behind a block ---- */

State text_begin_block(Text *t) {
  t->level = level_of(t), t->dropped = 0;
  State before = text_save(t->s, &t->now);
  t->now.old = t->now.wait.n;
  return before;
}

ListSegment text_segment(const RankList *l, uint32_t i, uint32_t from) {
  return i < l->segment.n ? l->segment.at[i]
                          : (ListSegment){.row0 = from, .nrow = l->row.n - from, .turns = 1};
}

/* The I that waits is that of row o, so many turns before the last one of its segment? */
static bool same_op(const ListRow *o, const ListSegment *g, const Waiting *w, int64_t *before) {
  Affine last = o->unit;
  *before = 0;
  if (o->kind != PIPE_I || o->stage != w->stage)
    return false;
  if (!g->by_n)
    return affine_same(last, w->unit);
  last.a += last.j * (g->turns - 1), last.n += last.j * g->by_n, last.j = 0;
  Affine d = affine_sum(last, w->unit, -1);
  if (o->unit.j == 0 || d.n != 0 || d.j != 0 || d.a % o->unit.j != 0)
    return false;
  *before = d.a / o->unit.j;
  return *before >= 0;
}

/* Behind a clock the I's of its rows wait by their stamps. */
static void sort_waits(Text *t, const RankList *l, uint32_t row0, uint32_t segment0) {
  enum { MOST_SORTED = 64 };
  typedef struct Place {
    uint32_t segment, row;
    int64_t before;
    Waiting wait;
  } Place;
  State *now = &t->now;
  uint32_t n = now->wait.n - now->old, found = 0;
  if (n < 2)
    return;
  Waiting *own = now->wait.at + now->old;
  if (n > MOST_SORTED)
    t->left = true;
  Place at[MOST_SORTED];
  for (uint32_t i = segment0, from = row0; (i < l->segment.n || from < l->row.n) && !t->left; i++) {
    ListSegment g = text_segment(l, i, from);
    for (uint32_t k = from = g.row0; k < g.row0 + g.nrow; k++, from++)
      for (uint32_t w = 0; w < n; w++) {
        Place p = {i, k, 0, own[w]};
        if (!same_op(&l->row.at[k], &g, &own[w], &p.before))
          continue;
        if (found == n) {
          t->left = true;
          continue;
        }
        uint32_t to = found++;
        for (; to > 0 && at[to - 1].segment == i && at[to - 1].before < p.before; to--)
          at[to] = at[to - 1];
        at[to] = p;
      }
  }
  t->left |= found != n;
  for (uint32_t i = 0; i < n && !t->left; i++)
    own[i] = at[i].wait;
}

/* What State.next outside of all is behind a row; highest: behind its highest turn, not the last. False: it is not counted. */
static bool behind_row(const Text *t, const ListRow *o, const ListSegment *g, bool highest,
                       Affine *next) {
  int64_t slices = t->s->model->slices, slice = o->unit.a % slices; /* the same in all turns */
  bool back = o->kind == PIPE_B || o->kind == PIPE_I;
  if (o->whole || (!back && o->kind != PIPE_F && o->kind != PIPE_R))
    return false;
  *next = affine_sum(o->unit, affine((back ? slices - 1 - 2 * slice : 0) + 1), 1);
  if (g->by_n && !(highest && next->j < 0))
    next->a += next->j * (g->turns - 1), next->n += next->j * g->by_n;
  next->j = g->by_n ? 0 : next->j;
  return true;
}

bool text_end_block(Text *t, const Stmt *b, const State *before, const RankList *l, uint32_t row0,
                    uint32_t segment0) {
  Sched *s = t->s;
  bool highest = b->kind == ST_RULES, more;
  bool *seen = NEW_ARRAY(s->arena, bool, 3 * (size_t)s->model->nstage);
  memcpy(t->now.next, before->next,
         sizeof before->next); /* a copy of its own, which nobody else needs */
  for (uint32_t i = segment0, from = row0; i < l->segment.n || from < l->row.n; i++) {
    ListSegment g = text_segment(l, i, from);
    for (uint32_t k = from = g.row0; k < g.row0 + g.nrow; k++, from++) {
      const ListRow *o = &l->row.at[k];
      Affine next;
      if (!behind_row(t, o, &g, highest, &next))
        continue;
      uint32_t kind = next_of(t, o->kind);
      Affine own = affine_sum(next, t->use ? t->use->total : affine(0), -(int64_t)s->model->slices);
      bool *any = &seen[kind % 3 * (size_t)s->model->nstage + o->stage];
      if (highest && *any &&
          !affine_at_least_0(t->x, b->at, affine_sum(own, t->now.next[kind][o->stage], -1), &more))
        return false;
      if (highest && *any && !more)
        continue;
      *any = true;
      t->now.next[kind][o->stage] = own;
      text_use_next(t, kind, o->stage, next);
    }
  }
  t->unsure |= t->dropped;
  if (b->kind == ST_CLOCK)
    sort_waits(t, l, row0, segment0);
  t->now.old = 0;
  return true;
}

static bool emit(Text *t, const OpRef *o, uint32_t stage, Affine mb, int64_t slice, Affine stamp) {
  Sched *s = t->s;
  int64_t slices = s->model->slices;
  const Pipe *p = &s->model->pipe[pipe_of(s, stage)];
  bool here = true, there;
  if (slice < 0 || slice >= slices)
    return text_no(t, o->at, "an op is of no slice");
  bool back = o->op == PIPE_B || o->op == PIPE_I;
  Affine unit = {mb.a * slices + slice, mb.n * slices, mb.j * slices},
         behind = affine((back ? slices - 1 - 2 * slice : 0) + 1); /* the next one */
  bool counts = o->op != PIPE_W && !pipe_is_copy(o->op);
  if (counts)
    t->now.next[next_of(t, o->op)][stage] = affine_sum(unit, behind, 1);
  if (t->use ? !text_use_mb(t, (uint32_t)(p - s->model->pipe), o->at, &mb, &there)
             : !exists(t, p, mb, o->at, &there))
    return false;
  if (there && !placed_here(t, p, s->model->stage[stage].model, mb, o->at, &here))
    return false;
  if (!there || !here) {
    if (counts && (t->clock || t->rules) && t->level == level_of(t))
      t->dropped |= (uint8_t)(1u << next_of(t, o->op) % 3);
    return t->ex.clip || (t->use && !there) ||
           text_no(t, o->at,
                   there ? "its microbatch is placed on another rank"
                         : "an op is of a microbatch that does not exist");
  }
  unit = (Affine){mb.a * slices + slice, mb.n * slices, mb.j * slices};
  bool ran = false;
  if (t->rules && (!rules_ran(t, o->at, (uint8_t)o->op, stage, unit, &ran) || ran))
    return ran;
  if (t->use && counts)
    text_use_next(t, next_of(t, o->op), stage, affine_sum(unit, behind, 1));
  if (o->op == PIPE_I && t->waits && !t->rules)
    *vec_push(s->arena, &t->now.wait) = (Waiting){stage, unit};
  if (o->op == PIPE_W && t->waits)
    drop_wait(t, stage, unit);
  return push(t, o, (uint8_t)o->op, stage, unit, false, stamp);
}

/* What an op without index takes. *none: a W for which there is no I. */
static bool take_next(Text *t, const OpRef *o, uint32_t *stage, Affine *mb, int64_t *slice,
                      bool *none) {
  Sched *s = t->s;
  Affine unit;
  uint32_t held = s->model->rank_stage0[t->rank + 1] - s->model->rank_stage0[t->rank];
  bool any = o->op == PIPE_W && !o->chunk && !o->stage && held > 1, here = false;
  *none = false;
  if (o->op == PIPE_W && (t->block[t->rank] || t->left))
    return text_no(t, o->at, "a W without index takes what rules or a clock have left");
  const Pipe *of = NULL;
  if (any && o->pipe && !op_pipe(&t->ex, o, &of))
    return text_no(t, o->at, "it is of no pipe");
  if (!any && !op_stage(&t->ex, o, stage))
    return text_no(t, o->at, "its stage is not on the rank");
  *none = !any && *stage == NONE;
  if (*none)
    return elsewhere(t, o, NULL);
  if (o->op == PIPE_W) {
    uint32_t i = 0, n = t->now.wait.n;
    for (; i < n; i++) {
      uint32_t at = t->now.wait.at[i].stage;
      if (any ? !of || of == &s->model->pipe[pipe_of(s, at)] : at == *stage)
        break;
    }
    bool clip = t->ex.clip;
    for (const TextUse *u = t->use; u; u = u->outer)
      clip |= u->clip || u->step;
    *none = i == n;
    if (*none)
      return clip || text_no(t, o->at, "no I waits for it");
    unit = t->now.wait.at[i].unit, *stage = t->now.wait.at[i].stage;
    if (t->use)
      unit = affine_sum(unit, t->use->total, -(int64_t)s->model->slices);
    return affine_divide(t->x, unit, s->model->slices, mb, slice);
  }
  const Pipe *p = &s->model->pipe[pipe_of(s, *stage)];
  if (t->unsure & 1u << next_of(t, o->op) % 3)
    return text_no(t, o->at, "an op without index stands behind a block of which ops are left out");
  for (unit = t->now.next[next_of(t, o->op)][*stage]; !here; unit.a += !here) {
    bool there;
    if (!affine_divide(t->x, unit, s->model->slices, mb, slice))
      return false;
    here = true;
    if (s->model->row_of &&
        (!exists(t, p, *mb, o->at, &there) ||
         (there && !placed_here(t, p, s->model->stage[*stage].model, *mb, o->at, &here))))
      return false;
  }
  *slice = o->op == PIPE_B || o->op == PIPE_I ? s->model->slices - 1 - *slice : *slice;
  return true;
}

/* ---- ops ---- */

static bool update(Text *t, const OpRef *o, Affine stamp) {
  Sched *s = t->s;
  uint32_t n = s->model->rank_stage0[t->rank + 1] - s->model->rank_stage0[t->rank], one;
  const uint32_t *row = &s->model->rank_stage[s->model->rank_stage0[t->rank]];
  const Pipe *only = NULL;
  Affine mb = affine(0);
  bool there = true, here = true;
  if (t->use) /* who uses it updates */
    return !o->args || text_no(t, o->at, "what it uses updates by microbatch");
  if (o->args && !affine_eval(t->x, o->args->value, &mb))
    return false;
  if (o->chunk || o->stage) {
    if (!op_stage(&t->ex, o, &one))
      return text_no(t, o->at, "its stage is not on the rank");
    if (one == NONE)
      return elsewhere(t, o, o->args ? &mb : NULL);
    row = &one, n = 1;
  } else if ((o->pipe || o->args) && !op_pipe(&t->ex, o, &only)) {
    return text_no(t, o->at, "it is of no pipe");
  }
  for (uint32_t i = 0; i < n; i++) {
    const Pipe *p = &s->model->pipe[pipe_of(s, row[i])];
    if (only && p != only)
      continue;
    if (o->args && (!exists(t, p, mb, o->at, &there) ||
                    (there && !placed_here(t, p, s->model->stage[row[i]].model, mb, o->at, &here))))
      return false;
    if ((!there || !here) && t->ex.clip)
      continue;
    if (!there || !here)
      return text_no(t, o->at, "an update is of a microbatch that is not here");
    Affine unit = {mb.a * s->model->slices, mb.n * s->model->slices, mb.j * s->model->slices};
    if (!push(t, o, PIPE_U, row[i], unit, !o->args, stamp))
      return false;
  }
  return true;
}

bool text_bind_macros(Text *t, const OpRef **of) {
  const OpRef *o = *of;
  Affine few[8];
  for (; o->op < 0; o = o->def->op) {
    uint32_t n = 0;
    for (const Arg *a = o->args; a; a = a->next)
      if (n == 8 || !affine_eval(t->x, a->value, &few[n++]))
        return text_no(t, o->at, "it has too many arguments");
    n = 0;
    for (const Param *p = o->def->params; p; p = p->next)
      affine_bind(t->x, p->slot, few[n++]);
  }
  *of = o;
  return true;
}

static bool run_ref(Text *t, const OpRef *o, Affine stamp) {
  uint32_t stage;
  Affine mb = affine(0);
  int64_t slice = 0;
  bool none = false;
  if (!text_bind_macros(t, &o))
    return false;
  t->ex.use = o;
  if (!affine_constant(t->x, o->chunk) || !affine_constant(t->x, o->stage) ||
      !affine_constant(t->x, o->pipe_index))
    return false;
  if (o->op == PIPE_U)
    return update(t, o, stamp);
  if (pipe_is_copy(o->op)) {
    const char *why = t->clock                     ? "a clock copies stashes"
                      : t->rules                   ? "its rules copy stashes"
                      : t->s->model->slices > 1    ? "it copies stashes of slices"
                      : t->s->orders->noffload > 0 ? "a clause and the order copy stashes"
                                                   : NULL;
    if (why)
      return text_no(t, o->at, why);
    t->copy = o;
  } else if (o->op != PIPE_F && o->op != PIPE_B && o->op != PIPE_I && o->op != PIPE_W &&
             o->op != PIPE_R) {
    return text_no(t, o->at, "it sums gradients");
  }
  if (!o->args && t->rules && t->joint)
    return rules_any(t, o);
  if (!o->args)
    return take_next(t, o, &stage, &mb, &slice, &none) &&
           (none || emit(t, o, stage, mb, slice, stamp));
  if (!op_stage(&t->ex, o, &stage))
    return text_no(t, o->at, "its stage is not on the rank");
  if (!affine_eval(t->x, o->args->value, &mb) ||
      (o->args->next && !affine_number(t->x, o->args->next->value, &slice)))
    return false;
  return stage == NONE ? elsewhere(t, o, &mb) : emit(t, o, stage, mb, slice, stamp);
}

/* The rows from `first` on are an action: what the recompute clause puts before it. */
bool text_recompute_before(Text *t, uint32_t first) {
  const Clause *c = t->again;
  Sched *s = t->s;
  RankList *l = t->out;
  for (uint32_t i = first, n = l->row.n; c && i < n; i++) {
    ListRow of = l->row.at[i];
    Affine mb;
    int64_t slice;
    bool yes = true;
    if (of.kind == PIPE_R)
      return text_no(t, of.at, "what is recomputed is said in two ways");
    if (of.kind != PIPE_B && of.kind != PIPE_I)
      continue;
    if (!affine_divide(t->x, of.unit, s->model->slices, &mb, &slice))
      return false;
    if (slice + 1 != s->model->slices)
      continue;
    if (c->var)
      affine_bind(t->x, c->slot, affine(s->model->stage[of.stage].model));
    if (c->mb_var)
      affine_bind(t->x, c->mb_slot, mb);
    if (c->when && !affine_truth(t->x, c->when, &yes))
      return false;
    for (int64_t k = 0; yes && k < s->model->slices; k++) {
      ListRow again = {.kind = PIPE_R, .stage = of.stage, .at = c->at};
      again.unit = affine_sum(of.unit, affine(k - slice), 1);
      vec_push(s->arena, &l->row);
      memmove(&l->row.at[first + 1], &l->row.at[first], (l->row.n - 1 - first) * sizeof *l->row.at);
      l->row.at[first++] = again;
      i++, n++;
    }
  }
  return true;
}

void text_join(Text *t, uint32_t first) {
  for (uint32_t i = first; i < t->out->row.n; i++)
    t->out->row.at[i].group = (uint16_t)(t->out->row.n - 1 - i);
}

bool text_run_op(Text *t, const Stmt *b) {
  uint32_t first = t->out->row.n;
  Affine stamp = t->joint_stamp;
  if (t->clock && !t->joint) {
    if (!b->value)
      return text_no(t, b->at, "an op in a clock has no time stamp of its own");
    if (!affine_eval(t->x, b->value, &stamp))
      return false;
  }
  if (t->rules && !t->joint && !rules_stamp(t, b))
    return false;
  return run_ref(t, b->op, stamp) &&
         (t->joint || t->clock || t->rules || text_recompute_before(t, first));
}

/* ---- statements ---- */

static bool run_stmt(Text *t, const Stmt *b) {
  AffineEnv *x = t->x;
  Affine v;
  bool yes, ok;
  if (!work_take(t->s->opt->work, 4 + t->now.wait.n / 4, b->at))
    return text_no(t, b->at, "it takes too many steps");
  switch (b->kind) {
  case ST_OP: return text_run_op(t, b);
  case ST_KERNEL: return text_run_kernel(t, b);
  case ST_CLOCK: return text_run_clock(t, b);
  case ST_DO: return text_run_do(t, b);
  case ST_IF: return affine_truth(x, b->cond, &yes) && text_run_list(t, yes ? b->body : b->orelse);
  case ST_LET:
    if (!affine_eval(x, b->value, &v))
      return false;
    affine_bind(x, b->slot, v);
    return true;
  case ST_PHASE: return text_run_list(t, b->body);
  case ST_CLIP: {
    bool outer = t->ex.clip;
    t->ex.clip = true;
    ok = text_run_list(t, b->body);
    t->ex.clip = outer;
    return ok;
  }
  case ST_OVERLAP: {
    uint32_t first = t->out->row.n;
    if ((t->clock && !affine_eval(x, b->value, &t->joint_stamp)) ||
        (t->rules && !rules_stamp(t, b)))
      return false;
    t->joint = b;
    ok = text_run_list(t, b->body);
    t->joint = NULL;
    if (!ok)
      return false;
    text_join(t, first);
    if (t->rules)
      rules_join(t, first);
    return t->clock || t->rules || text_recompute_before(t, first);
  }
  case ST_RULES: return text_run_rules(t, b);
  case ST_USE: return text_run_use(t, b);
  case ST_OPDEF:
  case ST_FN: break;
  }
  return true;
}

bool text_run_list(Text *t, const Stmt *b) {
  for (; b; b = b->next)
    if (!run_stmt(t, b))
      return false;
  return true;
}

/* Is there a W without index, or may there be one? */
static bool bare_w(const Stmt *b) {
  for (; b; b = b->next) {
    const OpRef *o = b->kind == ST_OP ? b->op : NULL;
    while (o && o->op < 0)
      o = o->def->op;
    if (b->kind == ST_USE || (o && o->op == PIPE_W && !o->args) || bare_w(b->body) ||
        bare_w(b->orelse))
      return true;
  }
  return false;
}

bool lists_of_m(Sched *s, AffineEnv *x, ListsOfM *l) {
  if (!same_model_of_m(x))
    return false;
  l->nrank = s->model->nrank;
  l->rank = NEW_ARRAY(s->arena, RankList, s->model->nrank);
  l->units = NEW_ARRAY(s->arena, Affine, s->model->npipe);
  Affine *mbs = NEW_ARRAY(s->arena, Affine, s->model->npipe);
  for (uint32_t k = 0; k < s->model->npipe; k++) {
    const Clause *c = s->model->pipe[k].clause;
    if (c->index)
      affine_bind(x, c->index_slot, affine(s->model->pipe[k].index));
    if (!affine_eval(x, c->mbs, &mbs[k]))
      return false;
    l->units[k] = affine_sum(affine(0), mbs[k], s->model->slices);
  }
  Text t = {.x = x, .s = s, .l = l, .mbs = mbs, .all_mbs = mbs, .ex = {.s = s}};
  for (const Schedule *sc = s->parsed->def; sc && !t.again; sc = sc->base_def)
    for (const Clause *c = sc->clauses; c; c = c->next)
      if (c->kind == CL_RECOMPUTE)
        t.again = c;
  for (int i = 0; i < 3; i++)
    t.now.next[i] = NEW_ARRAY(s->arena, Affine, s->model->nstage);
  bool rules = false;
  t.block = NEW_ARRAY(s->arena, RulesText *, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    t.out = &l->rank[r];
    t.rank = t.ex.rank = r;
    t.straight = 0, t.ex.clip = t.left = false, t.unsure = 0, t.now.wait.n = 0;
    t.waits = bare_w(s->orders->order_clause[r]->body);
    affine_bind(x, s->orders->order_clause[r]->slot, affine(r));
    if (!text_run_list(&t, s->orders->order_clause[r]->body))
      return false;
    text_end_straight(&t);
    rules |= t.block[r] != NULL;
  }
  if (rules && t.copy)
    return text_no(&t, t.copy->at, "beside rules, an order copies stashes");
  return !rules || rules_fill(&t);
}
