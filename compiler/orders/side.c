/* SPDX-License-Identifier: MIT
 * Places side ops, which `side` clauses declare (lang/spec.md 5.12), in finished orders.
 * names/shapes.c checks their words; lower/side_streams.c makes their instructions.
 *
 *   find_sides    (expand) the clauses that apply, and their costs on each stage: Sides.row
 *   sides         (pass, requires check_deps) the op to which each side op is attached: Sides.use.
 *                 Side ops of the compute stream become ops of Orders.op
 *   side_buffers  (offload) after all have their places: buffers, and the waits that buffers add
 *
 * note [sides cannot stall]: Lemma: with side ops, all waits still point forward in the play of an
 * idle network in which side ops take no time. Proof: a side op has a place in the order of its
 * rank. It waits for ops and side ops before its place, and ops behind its place wait for it. In
 * the COMM stream it stands where the op before it ends on an idle network, behind everything that
 * happens earlier (order.c).
 *
 * Cost: linear in ops times clauses, and sorts of the side ops of a rank. */
#include <string.h>

#include "base.h"
#include "expand.h"
#include "names.h"
#include "orders.h"

/* ---- for expand ---- */

static bool set_entry(Sched *s, const Clause *c, const Entry *e, PipeSide *row) {
  uint64_t most = ((uint64_t)1 << 62) /
                  (8 * (uint64_t)s->sides->ndecl *
                   ((uint64_t)s->model->nstage * s->model->nmb + s->model->nstage));
  for (uint32_t st = 0; st < s->model->nstage; st++) {
    int64_t v;
    s->eval.env[c->slot] = s->model->stage[st].model;
    if (!eval(s, e->value, &v))
      return false;
    if (v < 0 || (uint64_t)v > most) {
      diag_error(s->diag, v < 0 ? DIAG_RANGE : DIAG_TOO_LARGE, e->value->at,
                 "%s of '%s' on stage %u is %lld; it %s", e->key, c->name,
                 s->model->stage[st].model, (long long)v,
                 v < 0 ? "cannot be negative" : "is too large for sums over all ops");
      if (v < 0)
        diag_help(s->diag, "another side op gives memory back: after OP gives NAME");
      return false;
    }
    *(e->key[0] == 'c' ? &row[st].time : &row[st].bytes) = (uint64_t)v;
  }
  return true;
}

/* The side op whose memory side op k gives back; Sides.ndecl: no side op has this name. Requires
 * that k gives. */
static uint32_t given_by(const Sched *s, uint32_t k) {
  const char *name = s->sides->decl[k]->side->gives;
  uint32_t of = 0;
  while (of < s->sides->ndecl && strcmp(s->sides->decl[of]->name, name) != 0)
    of++;
  return of;
}

/* Checks that every buffer that is given back is also taken. False: reported. */
static bool side_givers(Sched *s) {
  uint32_t n = s->sides->ndecl;
  for (uint32_t k = 0; k < n; k++) {
    const Side *side = s->sides->decl[k]->side;
    if (!side->gives)
      continue;
    uint32_t of = given_by(s, k);
    bool takes = false;
    for (uint32_t st = 0; of < n && st < s->model->nstage; st++)
      takes |= s->sides->row[(size_t)of * s->model->nstage + st].bytes > 0;
    if (takes && of != k)
      continue;
    diag_error(s->diag, DIAG_SIDE, side->gives_at,
               of == n ? "'%s' is no side op" : "'%s' takes no memory to give back", side->gives);
    if (of < n)
      diag_note(s->diag, s->sides->decl[of]->at, "declared here");
    diag_help(s->diag, "'gives' names a side op with 'memory = e'");
    return false;
  }
  return true;
}

bool find_sides(Ex *x) {
  Sched *s = x->s;
  const Clause **decl = NEW_ARRAY(s->arena, const Clause *, x->in.clauses.n);
  uint32_t *depth = NEW_ARRAY(s->arena, uint32_t, x->in.clauses.n), n = 0;
  for (uint32_t i = 0; i < x->in.clauses.n; i++) {
    const Bound *b = &x->in.clauses.at[i];
    uint32_t k = 0;
    if (b->clause->kind != CL_SIDE)
      continue;
    while (k < n && decl[k]->name != b->clause->name)
      k++;
    if (k < n && depth[k] == b->depth) {
      diag_error(s->diag, DIAG_REDEFINED, b->clause->name_at, "'%s' is declared twice",
                 b->clause->name);
      diag_note(s->diag, decl[k]->name_at, "also here");
      return false;
    }
    n += k == n; /* else it replaces the side op of a base */
    decl[k] = b->clause;
    depth[k] = b->depth;
  }
  x->sides->decl = decl, x->sides->ndecl = n;
  x->sides->site0 = s->orders->nsite;
  x->sides->nrow = n * s->model->nstage;
  x->sides->row = NEW_ARRAY(s->arena, PipeSide, s->sides->nrow);
  for (uint32_t k = 0; k < n; k++) {
    const Clause *c = decl[k];
    add_site(s, x->orders, c->at);
    PipeSide *row = &s->sides->row[(size_t)k * s->model->nstage];
    for (uint32_t st = 0; st < s->model->nstage; st++)
      row[st] = (PipeSide){.name = c->name, .op = c->side->op, .decl = k, .stage = st};
    for (const Entry *e = c->entries; e; e = e->next)
      if (!set_entry(s, c, e, row))
        return false;
  }
  return side_givers(s);
}

/* ---- the op of each side op ---- */

/* Does an op of `kind` match the anchor? The backward B is B; with split backwards it begins with I
 * and ends with W. */
static bool matches(const Anchor *a, bool after, uint32_t kind) {
  return a->op == (int)kind || (a->op == PIPE_B && kind == (after ? PIPE_W : PIPE_I));
}

const char *side_text(Sched *s, const SideUse *u) {
  char buf[PIPE_OP_TEXT];
  int n = pipe_side_text(buf, s->sides->decl[u->decl]->name, u->stage, u->mb, s->model->slices);
  return arena_strndup(s->arena, buf, (size_t)n);
}

/* Finds the op before which u runs, from `lo` on. False: reported. */
static bool find_user(Sched *s, const SideUse *u, uint32_t anchor, uint32_t lo, uint32_t *user) {
  const Clause *c = s->sides->decl[u->decl];
  const Anchor *a = &c->side->before;
  uint32_t r = s->model->stage[u->stage].rank, found = NONE;
  if (a->end == 0 && u->mb != NONE && a->op != PIPE_U) {
    size_t cell = (size_t)u->stage * s->model->nmb + u->mb;
    uint32_t row = a->op == PIPE_F   ? s->orders->at_f[cell]
                   : a->op == PIPE_W ? s->orders->at_w[cell]
                   : a->op == PIPE_R ? s->orders->at_r[cell]
                                     : s->orders->at_b[cell];
    if (row && matches(a, false, s->orders->op[row - 1].kind))
      found = row - 1;
  } else if (a->end == 0 && a->op == PIPE_U) {
    uint32_t first = s->orders->round0[u->stage], n = s->orders->round0[u->stage + 1] - first;
    while (n > 0) { /* updates are in the order of the rank */
      uint32_t half = n / 2;
      if (s->orders->round[first + half].u < lo)
        first += half + 1, n -= half + 1;
      else
        n = half;
    }
    if (first < s->orders->round0[u->stage + 1])
      found = s->orders->round[first].u;
  } else {
    for (uint32_t i = a->end ? s->orders->rank_op0[r] : lo; i < s->orders->rank_op0[r + 1]; i++)
      if (s->orders->op[i].stage == u->stage && matches(a, false, s->orders->op[i].kind)) {
        found = i;
        if (a->end <= 0)
          break;
      }
  }
  if (found != NONE && op_action(s, found) >= lo) {
    *user = op_action(s, found);
    return true;
  }
  const char *after = op_text(s, anchor);
  if (found == NONE)
    diag_error(s->diag, DIAG_SIDE, a->at,
               "rank %u: %s comes after %s, but before no %s of stage %u", r, side_text(s, u),
               after, a->name, u->stage);
  else
    diag_error(s->diag, DIAG_SIDE, a->at, "rank %u: %s cannot come after %s and before %s", r,
               side_text(s, u), after, op_text(s, found));
  if (found == NONE)
    diag_help(s->diag, "leave out 'before', or name a later op");
  if (found != NONE) {
    diag_note(s->diag, s->orders->site[s->orders->op[found].site], "%s comes from here",
              op_text(s, found));
    diag_help(s->diag, "name a later op after 'before' than after 'after'");
  }
  return false;
}

typedef VEC(SideUse) Uses;

/* Adds the side ops of clause k on rank r. last: [nstage] scratch. */
static bool attach(Sched *s, uint32_t k, uint32_t r, uint32_t *last, Uses *all) {
  const Clause *c = s->sides->decl[k];
  const Side *side = c->side;
  bool after = side->after.name != NULL;
  const Anchor *main_ = after ? &side->after : &side->before;
  for (uint32_t i = s->model->rank_stage0[r]; i < s->model->rank_stage0[r + 1]; i++)
    last[s->model->rank_stage[i]] = NONE;
  for (uint32_t i = s->orders->rank_op0[r]; main_->end && i < s->orders->rank_op0[r + 1]; i++)
    if (matches(main_, after, s->orders->op[i].kind) &&
        (main_->end > 0 || last[s->orders->op[i].stage] == NONE))
      last[s->orders->op[i].stage] = i;
  for (uint32_t i = s->orders->rank_op0[r]; i < s->orders->rank_op0[r + 1]; i++) {
    const Op *o = &s->orders->op[i];
    const PipeStage *st = &s->model->stage[o->stage];
    int64_t yes = 1;
    if (!matches(main_, after, o->kind) || (main_->end && last[o->stage] != i))
      continue;
    s->eval.env[c->slot] = st->model;
    if (c->mb_var)
      s->eval.env[c->mb_slot] = o->mb / s->model->slices - st->mb0 / s->model->slices;
    if (c->when && !eval(s, c->when, &yes))
      return false;
    if (!yes)
      continue;
    SideUse u = {
        .decl = k, .stage = o->stage, .mb = main_->end || o->kind == PIPE_U ? NONE : o->mb};
    u.row = k * s->model->nstage + o->stage;
    u.kind = side->op;
    u.phase = o->phase;
    u.lo = after ? i + o->group + 1 : s->orders->rank_op0[r];
    u.user = after ? NONE : op_action(s, i);
    u.in = u.out = NONE;
    memset(u.dep, 0xff, sizeof u.dep);
    if (after && side->before.name && !find_user(s, &u, i, u.lo, &u.user))
      return false;
    u.latest = side->latest && u.kind != PIPE_SIDE;
    u.late = !after || side->latest; /* it stands right before its user */
    u.at = u.late ? u.user : u.lo;
    *vec_push(s->arena, all) = u;
  }
  return true;
}

static int by_place(const void *a, const void *b) {
  const SideUse *x = a, *y = b;
  if (x->at != y->at)
    return x->at < y->at ? -1 : 1;
  if (x->late != y->late)
    return x->late - y->late;
  return x->decl != y->decl ? (x->decl < y->decl ? -1 : 1) : x->seq < y->seq ? -1 : 1;
}

/* Inserts the side ops of the compute stream into the op table, and moves the rows that uses,
 * copies and rounds refer to. */
static void insert_ops(Sched *s, Orders *orders, Sides *sides, uint32_t ninsert) {
  /* before: first row of the side ops at op i; row: of op i itself */
  uint32_t *before = NEW_ARRAY(s->arena, uint32_t, s->orders->nop + (size_t)1);
  uint32_t *row = NEW_ARRAY(s->arena, uint32_t, s->orders->nop + (size_t)1);
  Op *to = arena_alloc(s->arena, (s->orders->nop + (size_t)ninsert) * sizeof *to + 1);
  uint32_t n = 0, copy = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    uint32_t first = s->orders->rank_op0[r], last = s->orders->rank_op0[r + 1],
             k = s->sides->use0[r], end = s->sides->use0[r + 1];
    orders->rank_op0[r] = n;
    for (uint32_t i = first; i <= last; i++) {
      before[i] = n;
      for (; k < end && s->sides->use[k].at <= i; k++) {
        SideUse *u = &sides->use[k];
        u->op = n; /* other side ops stand before this row */
        if (u->kind != PIPE_SIDE)
          continue;
        to[n++] = (Op){.kind = PIPE_SIDE,
                       .phase = u->phase,
                       .stage = u->stage,
                       .mb = u->mb,
                       .site = s->sides->site0 + u->decl};
      }
      row[i] = n;
      if (i < last) {
        to[n++] = s->orders->op[i];
        const Op *o = &s->orders->op[i];
        if (o->kind != PIPE_U)
          *op_row(s, o->kind, (size_t)o->stage * s->model->nmb + o->mb) = n;
      }
    }
    for (uint32_t i = s->sides->use0[r]; i < end; i++) {
      SideUse *u = &sides->use[i];
      u->at = u->op;
      u->user = u->user == NONE ? NONE : row[u->user];
      u->lo = row[u->lo]; /* behind the side ops inserted there */
    }
    for (; copy < s->orders->ncopy && s->model->stage[s->orders->copy[copy].stage].rank == r;
         copy++) {
      Copy *c = &orders->copy[copy]; /* in the order of the text, rank after rank */
      c->at = before[c->at];
      c->free_by = c->free_by ? row[c->free_by - 1] + 1 : 0;
    }
  }
  orders->rank_op0[s->model->nrank] = n;
  for (uint32_t i = 0; !s->model->forward && i < s->orders->round0[s->model->nstage]; i++) {
    Round *round = &orders->round[i];
    round->u = row[round->u];
    round->grad = row[round->grad];
  }
  orders->op = to, orders->nop = n;
}

bool sides(Sched *s, Orders *orders, Sides *sides) {
  Uses all = {0};
  uint32_t ninsert = 0;
  sides->use0 = NEW_ARRAY(s->arena, uint32_t, (size_t)s->model->nrank + 1);
  if (sides->ndecl == 0)
    return true;
  uint32_t *last = NEW_ARRAY(s->arena, uint32_t, s->model->nstage),
           *uses = NEW_ARRAY(s->arena, uint32_t, sides->ndecl);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    uint32_t first = all.n;
    for (uint32_t k = 0; k < sides->ndecl; k++) {
      uint32_t had = all.n;
      if (!attach(s, k, r, last, &all))
        return false;
      uses[k] += all.n - had;
    }
    for (uint32_t i = first; i < all.n; i++) {
      all.at[i].seq = i;
      ninsert += all.at[i].kind == PIPE_SIDE;
    }
    if (all.n > first)
      qsort(all.at + first, all.n - first, sizeof *all.at, by_place);
    sides->use0[r + 1] = all.n;
  }
  for (uint32_t k = 0; k < sides->ndecl; k++)
    if (uses[k] == 0)
      diag_warn(s->diag, DIAG_SIDE, sides->decl[k]->at, "'%s' never runs: %s", sides->decl[k]->name,
                sides->decl[k]->when ? "its 'when' holds for no op"
                                     : "the order has no op to attach it to");
  sides->use = all.at, sides->nuse = all.n;
  for (uint32_t i = 0; i < all.n; i++)
    sides->ncomm += all.at[i].kind == PIPE_SIDE_COMM;
  if (ninsert > 0)
    insert_ops(s, orders, sides, ninsert);
  return true;
}

/* ---- after all have their places ---- */

uint64_t side_start(const Sched *s, uint32_t rank, const SideUse *u) {
  return u->at > s->orders->rank_op0[rank] ? s->ideal->end[u->at - 1] : 0;
}

/* As late as it still ends in time for its user. */
uint32_t side_latest(const Sched *s, const SideUse *u) {
  uint64_t needed = s->ideal->end[u->user + s->orders->op[u->user].group] -
                    action_time(s, s->model->stage, false, u->user);
  uint64_t time = s->sides->row[u->row].time, from = needed > time ? needed - time : 0;
  uint32_t lo = u->lo, hi = u->user;
  while (lo < hi) {
    uint32_t mid = lo + (hi - lo) / 2;
    if (s->ideal->end[mid] <= from)
      lo = mid + 1;
    else
      hi = mid;
  }
  uint32_t at = op_action(s, lo < u->user ? lo : u->user);
  return at > u->lo ? at : u->lo;
}

/* note [users of a slot]: a side op that takes or gives back a buffer waits for the last user of
 * the buffer in each stream, even if one of these users has waited for another. So an engine need
 * not follow waits through a third stream. */
typedef struct SlotUsers {
  uint32_t last[PIPE_NSTREAMS];
} SlotUsers;

/* Buffers of one size on a rank. */
typedef struct Pool {
  SideBuffers b;
  VEC(SlotUsers) users; /* by slot */
  /* side ops that gave a slot back, in turn; the slots from `next` on are free */
  VEC(uint32_t) given;
  uint32_t next;
} Pool;

typedef VEC(Pool) Pools;

static int by_turn(const void *a, const void *b) {
  const SideTurn *x = a, *y = b;
  if (x->at != y->at)
    return x->at < y->at ? -1 : 1;
  if (x->compute != y->compute)
    return x->compute - y->compute; /* a side op before op `at` comes before it */
  if (x->plan != y->plan)
    return x->plan < y->plan ? -1 : 1;
  return x->use < y->use ? -1 : x->use > y->use;
}

static void use_slot(const SideUse *u, uint32_t self, SlotUsers *slot,
                     uint32_t dep[PIPE_NSTREAMS]) {
  memcpy(dep, slot->last, sizeof slot->last);
  slot->last[pipe_stream_of(u->kind)] = self;
}

static void take(Sched *s, SideUse *u, uint32_t self, Pools *pools) {
  uint64_t bytes = s->sides->row[u->row].bytes;
  uint32_t k = 0;
  if (bytes == 0)
    return;
  while (k < pools->n && pools->at[k].b.bytes != bytes)
    k++;
  if (k == pools->n)
    *vec_push(s->arena, pools) = (Pool){.b = {.bytes = bytes, .stage = u->stage}};
  Pool *p = &pools->at[k];
  u->out_pool = k;
  u->out = p->b.count;
  if (p->next < p->given.n) {
    u->out = s->sides->use[p->given.at[p->next++]].in;
  } else {
    p->b.count++;
    memset(vec_push(s->arena, &p->users), 0xff, sizeof(SlotUsers));
  }
  use_slot(u, self, &p->users.at[u->out], u->dep[0]);
}

/* Gives back the buffer that a side op of the same microbatch took, else the oldest buffer of the
 * stage. */
static bool give(Sched *s, SideUse *u, uint32_t self, Pools *pools, uint32_t *const *taken,
                 uint32_t *oldest, const uint32_t *next) {
  const Side *side = s->sides->decl[u->decl]->side;
  uint32_t of = given_by(s, u->decl), from = NONE;
  uint32_t *first = &oldest[of * s->model->nstage + u->stage];
  while (*first != NONE && s->sides->use[*first].given)
    *first = next[*first];
  if (taken[of] && u->mb != NONE)
    from = taken[of][(size_t)u->stage * s->model->nmb + u->mb] - 1;
  if (from == NONE || s->sides->use[from].given)
    from = *first;
  if (from == NONE) {
    uint32_t r = s->model->stage[u->stage].rank;
    diag_error(s->diag, DIAG_SIDE, side->gives_at,
               "rank %u: %s gives back a buffer, but no '%s' of stage %u has taken one before", r,
               side_text(s, u), side->gives, u->stage);
    diag_note(s->diag, s->sides->decl[of]->at, "'%s' is attached here", side->gives);
    diag_help(s->diag, "take each buffer first, then give it back once");
    return false;
  }
  SideUse *t = &s->sides->use[from];
  t->given = true;
  u->in = t->out;
  u->in_pool = t->out_pool;
  use_slot(u, self, &pools->at[t->out_pool].users.at[u->in], u->dep[1]);
  *vec_push(s->arena, &pools->at[t->out_pool].given) = self;
  return true;
}

/* Allocates tables that find the taker of a buffer by stage and microbatch, for side ops whose
 * buffers others give back. */
static uint32_t **find_taken(Sched *s) {
  uint32_t **taken = NEW_ARRAY(s->arena, uint32_t *, s->sides->ndecl);
  for (uint32_t k = 0; k < s->sides->ndecl; k++) {
    uint32_t of = s->sides->decl[k]->side->gives ? given_by(s, k) : NONE;
    if (of != NONE && !taken[of])
      taken[of] = NEW_ARRAY(s->arena, uint32_t, (size_t)s->model->nstage * s->model->nmb);
  }
  return taken;
}

bool side_buffers(Sched *s, Sides *sides) {
  if (sides->nuse == 0)
    return true;
  uint32_t **taken = find_taken(s), n = sides->nuse;
  uint32_t *oldest = arena_alloc(s->arena, sides->nrow * sizeof *oldest),
           *newest = arena_alloc(s->arena, sides->nrow * sizeof *newest),
           *next = arena_alloc(s->arena, n * sizeof *next);
  memset(oldest, 0xff, sides->nrow * sizeof *oldest);
  memset(next, 0xff, n * sizeof *next);
  sides->turn = arena_alloc(s->arena, n * sizeof *sides->turn);
  sides->buffers = NEW_ARRAY(s->arena, SideBuffers *, s->model->nrank);
  sides->nbuffers = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    Pools pools = {0};
    uint32_t first = sides->use0[r], end = sides->use0[r + 1];
    for (uint32_t i = first; i < end; i++) {
      const SideUse *u = &sides->use[i];
      sides->turn[i] = (SideTurn){u->at, u->kind == PIPE_SIDE, i, u->plan};
    }
    qsort(sides->turn + first, end - first, sizeof *sides->turn, by_turn);
    for (uint32_t i = first; i < end; i++) {
      uint32_t self = sides->turn[i].use;
      SideUse *u = &sides->use[self];
      take(s, u, self, &pools);
      if (sides->decl[u->decl]->side->gives && !give(s, u, self, &pools, taken, oldest, next))
        return false;
      if (u->out == NONE)
        continue;
      uint32_t *head = &oldest[u->row];
      if (*head == NONE)
        *head = self;
      else
        next[newest[u->row]] = self;
      newest[u->row] = self;
      if (taken[u->decl] && u->mb != NONE)
        taken[u->decl][(size_t)u->stage * s->model->nmb + u->mb] = self + 1;
    }
    sides->buffers[r] = NEW_ARRAY(s->arena, SideBuffers, pools.n);
    sides->nbuffers[r] = pools.n;
    for (uint32_t k = 0; k < pools.n; k++)
      sides->buffers[r][k] = pools.at[k].b;
  }
  return true;
}
