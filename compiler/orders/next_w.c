/* SPDX-License-Identifier: MIT
 * W without index (lang/spec.md 5.1): it takes the oldest I of its chunk, or of the rank, that waits for its W.
 *
 * note [take]: in which order `rules` run their I is known once they have been played. A W that may take one of several of
 * them takes the first that is listed until then, and is noted. When the play is over, the W noted are given the I that
 * are the oldest as it has run them; if that changes one of them, all ranks are played again. What a W is comes to
 * be seen, by its time and by the gradient that it makes, from the moment on that it runs, and the I before it have run by
 * then: so what a play has right up to some moment it keeps, and each one has the first block of rules right that
 * the one before had not. Linear, for each play. */
#include "expand.h"
#include "rules.h"

static bool may_take(const Sched *s, const WScan *k, uint32_t stage) {
  return k->stage != NONE ? stage == k->stage : k->pipe == NONE || pipe_of(s, stage) == k->pipe;
}

/* The row of the first I at or after `i` that waits; s->nop: there is none. */
static uint32_t waiting(const Sched *s, const WScan *k, uint32_t i) {
  for (; i < s->nop; i++) {
    const Op *p = &s->op[i];
    if (p->kind == PIPE_I && may_take(s, k, p->stage) &&
        !s->at_w[(size_t)p->stage * s->nmb + p->mb])
      break;
  }
  return i;
}

/* The block of rules that row i is of, or NULL. */
static const Region *region_of(const Ex *x, uint32_t i) {
  uint32_t a = 0, b = x->regions.n; /* the last that begins at or before i */
  while (a < b) {
    uint32_t mid = a + (b - a) / 2;
    if (x->regions.at[mid].first <= i)
      a = mid + 1;
    else
      b = mid;
  }
  const Region *g = a > 0 ? &x->regions.at[a - 1] : NULL;
  return g && i < g->first + g->n ? g : NULL;
}

/* The last block of rules of the rank, if it is behind row `from`; NULL. */
static const Region *last_region(const Ex *x, uint32_t from) {
  const Region *g = x->regions.n ? &x->regions.at[x->regions.n - 1] : NULL;
  return g && g->rank == x->rank && g->first + g->n > from ? g : NULL;
}

static bool noted_here(const Ex *x) {
  return x->bare.n && x->bare.at[x->bare.n - 1].row >= x->s->rank_op0[x->rank];
}

/* Is not known yet whether the I of row i is the oldest? */
static bool is_open(const Ex *x, const WScan *k, uint32_t i) {
  if (!last_region(x, k->from))
    return false;
  const Region *g = region_of(x, i);
  return noted_here(x) || (g && waiting(x->s, k, i + 1) < g->first + g->n);
}

static bool say_which(Ex *x, const OpRef *o, const WScan *k) {
  Sched *s = x->s;
  diag_error(s->diag, DIAG_CLAUSE, x->use->at,
             "rank %u: which I '%s' takes is known only once the rules before it have been played",
             x->rank, span_text(s, x->use->at));
  diag_note(s->diag, last_region(x, k->from)->at->at, "they are here");
  diag_help(s->diag, "say which: %s(m)", span_text(s, o->at));
  return false;
}

/* Others that are noted take some of what k may take, and not all alike: how many are left is not known. */
static bool is_mixed(const Ex *x, const WScan *k) {
  for (uint32_t i = x->scans.n; i-- > 0 && x->scans.at[i].from >= x->s->rank_op0[x->rank];) {
    const WScan *o = &x->scans.at[i];
    bool same = o->stage == k->stage && o->pipe == k->pipe,
         apart = (o->stage != NONE && k->stage != NONE) ||
                 (o->pipe != NONE && k->pipe != NONE && o->pipe != k->pipe);
    if (!same && !apart)
      return true;
  }
  return false;
}

static void note(Ex *x, const WScan *k) {
  enum { NEAR = 64 };
  uint32_t i = x->scans.n, end = i > NEAR ? i - NEAR : 0;
  while (i > end && (x->scans.at[i - 1].from != k->from || x->scans.at[i - 1].stage != k->stage ||
                     x->scans.at[i - 1].pipe != k->pipe))
    i--;
  if (i == end) {
    *vec_push(&x->scratch, &x->scans) = *k;
    i = x->scans.n;
  }
  *vec_push(&x->scratch, &x->bare) = (BareW){x->s->nop, i - 1};
  for (uint32_t a = x->s->rank_stage0[x->rank]; a < x->s->rank_stage0[x->rank + 1]; a++)
    x->fresh[x->s->rank_stage[a]] += may_take(x->s, k, x->s->rank_stage[a]); /* perhaps */
}

bool next_w(Ex *x, const OpRef *o, uint32_t *stage, int64_t *mb, int64_t *slice) {
  Sched *s = x->s;
  const Pipe *p = NULL;
  uint32_t n, row = s->nop, first = s->rank_op0[x->rank], *from = &x->w_from[s->nstage + x->rank];
  bool any = !o->chunk && !o->stage;
  if (any && o->pipe && !op_pipe(x, o, &p))
    return false;
  const uint32_t *held = p ? pipe_rows(x, p, &n) : rank_rows(x, &n);
  any = any && n > 1;
  if (!any && !op_stage(x, o, stage))
    return false;
  if (!any && *stage == NONE)
    return *mb = -1, true;
  WScan k = {.from = x->in_use ? x->in_use->first : first,
             .stage = any ? NONE : *stage,
             .pipe = any && p ? (uint32_t)(p - s->pipe) : NONE};
  if (!any || p) { /* each chunk has its own */
    held = any ? held : stage;
    for (uint32_t i = 0; i < (any ? n : 1); i++) {
      WScan one = {.stage = held[i], .pipe = NONE};
      uint32_t *at = &x->w_from[held[i]];
      if (s->stage[held[i]].rank != x->rank)
        continue;
      *at = waiting(s, &one, *at > first ? *at : first);
      from = *at < row ? at : from;
      row = *at < row ? *at : row;
    }
  } else {
    row = *from = waiting(s, &k, *from > first ? *from : first);
  }
  *mb = -1;
  bool clip = x->clip, found = row < s->nop;
  for (const Use *u = x->in_use; u; u = u->outer)
    clip |= u->clip || u->step;
  if (!found && noted_here(x) && last_region(x, k.from) && is_mixed(x, &k))
    return say_which(x, o, &k);
  if (!found && !clip) {
    diag_error(s->diag, DIAG_BAD_INDEX, x->use->at,
               "rank %u: no I before '%s' still waits for its W", x->rank,
               span_text(s, x->use->at));
    if (o != x->use)
      diag_note(s->diag, o->at, "it stands for this");
    if (x->list)
      diag_help(s->diag,
                "inside '%s %s' it takes only an I that stands before the block: say which, W(m)",
                x->list->kind == ST_CLOCK ? "clock" : "rules", x->list->name);
  }
  if (!found)
    return clip;
  if (is_open(x, &k, row)) {
    if (x->list)
      return say_which(x, o, &k);
    note(x, &k);
  }
  const Op *i = &s->op[row];
  *from = row + 1; /* all before it are taken, or run now */
  *stage = i->stage, *slice = i->mb % s->slices;
  *mb = (int64_t)(i->mb - s->stage[i->stage].mb0) / s->slices - (x->in_use ? x->in_use->total : 0);
  return true;
}

/* ---- others that are told by their microbatch ---- */

bool take_other(Ex *x, uint32_t row) {
  Sched *s = x->s;
  uint32_t a = 0, b = x->bare.n;
  while (a < b) {
    uint32_t mid = a + (b - a) / 2;
    if (x->bare.at[mid].row < row)
      a = mid + 1;
    else
      b = mid;
  }
  if (a == x->bare.n || x->bare.at[a].row != row)
    return false;
  const WScan *k = &x->scans.at[x->bare.at[a].scan];
  uint32_t i = waiting(s, k, k->from);
  if (i >= row)
    return false;
  Op *w = &s->op[row];
  s->at_w[(size_t)w->stage * s->nmb + w->mb] = 0;
  w->stage = s->op[i].stage, w->mb = s->op[i].mb;
  s->at_w[(size_t)w->stage * s->nmb + w->mb] = row + 1;
  return true;
}

bool find_open(Ex *x) {
  bool any = false;
  uint32_t last = noted_here(x) ? x->bare.at[x->bare.n - 1].row : 0;
  for (uint32_t i = x->scans.n; last && i-- > 0;) {
    WScan *k = &x->scans.at[i];
    if (k->from < x->s->rank_op0[x->rank])
      break;
    k->open = waiting(x->s, k, k->from) < last;
    any |= k->open;
  }
  return any;
}

bool is_told(Ex *x, const Stmt *block, const Listed *l) {
  Sched *s = x->s;
  uint32_t i = l->kind == PIPE_W && !l->any ? s->at_b[(size_t)l->stage * s->nmb + l->mb] : 0,
           n = x->scans.n;
  for (; i && n > 0 && x->scans.at[n - 1].from >= s->rank_op0[x->rank]; n--) {
    const WScan *k = &x->scans.at[n - 1];
    if (!k->open || !may_take(s, k, l->stage) || i <= k->from || i > x->bare.at[x->bare.n - 1].row)
      continue;
    diag_error(s->diag, DIAG_CLAUSE, l->use->at,
               "rank %u: whether '%s' has run before 'rules %s' is known only once those before it "
               "have been played",
               x->rank, span_text(s, l->use->at), block->name);
    diag_note(s->diag, s->site[s->op[x->bare.at[x->bare.n - 1].row].site],
              "this may have taken its I");
    diag_help(s->diag, "say which: W(m)");
    return false;
  }
  return true;
}

/* ---- note [take] ---- */

static void w_of(Sched *s, const Op *o, uint32_t row) {
  s->at_w[(size_t)o->stage * s->nmb + o->mb] = row;
}

static bool gone(Rules *q, uint32_t row, const Op *i) {
  Sched *s = q->s;
  uint32_t old = i ? s->at_w[(size_t)i->stage * s->nmb + i->mb] : 0;
  Span at = s->site[s->op[row].site];
  if (!i) {
    diag_error(s->diag, DIAG_BAD_INDEX, at, "rank %u: no I before '%s' still waits for its W",
               op_rank(s, row), span_text(s, at));
    return false;
  }
  diag_error(s->diag, DIAG_DUPLICATE_OP, at, "rank %u runs %s twice", op_rank(s, row),
             op_text(s, old - 1));
  diag_note(s->diag, s->site[s->op[old - 1].site], "%s is here, too", op_text(s, old - 1));
  diag_note(s->diag, at, "this takes it, since its I is the oldest as the rules have run");
  return false;
}

bool take_any(const Rules *q) {
  Sched *s = q->s;
  uint32_t row = q->x->bare.at[q->x->bare.n - 1].row;
  Span at = s->site[s->op[row].site];
  diag_error(s->diag, DIAG_CLAUSE, at,
             "rank %u: which I '%s' takes changes each time that the rules are played",
             op_rank(s, row), span_text(s, at));
  diag_help(s->diag, "say which: W(m)");
  return false;
}

bool take_again(Rules *q, bool *changed) {
  Sched *s = q->s;
  Ex *x = q->x;
  *changed = false;
  if (x->bare.n == 0)
    return true;
  bool *taken = NEW_ARRAY(q->arena, bool, s->nop); /* I of a row, by a W so far */
  uint32_t *of = NEW_ARRAY(q->arena, uint32_t, x->bare.n), b = 0;
  for (uint32_t i = 0; i < x->scans.n; i++)
    x->scans.at[i].at = x->scans.at[i].from;
  for (uint32_t place = 0; place < s->nop; place++) {
    const Op *o = &s->op[q->seq[place]];
    uint32_t row;
    if (o->kind != PIPE_W)
      continue;
    if (b == x->bare.n || x->bare.at[b].row != place) {
      row = s->at_b[(size_t)o->stage * s->nmb + o->mb];
      if (row)
        taken[row - 1] = true;
      continue;
    }
    WScan *k = &x->scans.at[x->bare.at[b].scan];
    for (; k->at < place; k->at++) {
      row = q->seq[k->at];
      if (s->op[row].kind == PIPE_I && !taken[row] && may_take(s, k, s->op[row].stage))
        break;
    }
    of[b] = k->at < place ? q->seq[k->at] : NONE;
    if (of[b] != NONE)
      taken[of[b]] = true;
    b++;
  }
  for (b = 0; b < x->bare.n; b++)
    w_of(s, &s->op[x->bare.at[b].row], 0);
  for (b = 0; b < x->bare.n; b++) {
    uint32_t row = x->bare.at[b].row;
    const Op *i = of[b] == NONE ? NULL : &s->op[of[b]];
    if (!i || s->at_w[(size_t)i->stage * s->nmb + i->mb])
      return gone(q, row, i);
    Op *w = &s->op[row];
    *changed |= w->stage != i->stage || w->mb != i->mb;
    w->stage = i->stage, w->mb = i->mb;
    w_of(s, w, row + 1);
  }
  return true;
}
