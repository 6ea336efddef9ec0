/* SPDX-License-Identifier: MIT
 * Verifies the uses of slots, gradients and microbatches in a program for every M
 * (for_all_proof.h).
 *
 * Invariant: what a row claims of the use before is what that use leaves; at most one use follows a
 * use; and each use waits for the use before. A chain of uses begins with NEW, and no two NEWs name
 * the same slot. So all uses of a slot are in one chain, in list order.
 *
 * Exception: the last update of a stage writes, by NEW, the slot that held version 0, so that a
 * step begins as the step before ended. What the slots of this pool hold then does not matter. No
 * row below the update uses them (POOL_OVER). Every use above it is over, because only COMPUTE rows
 * use versions, as the validator has checked for n = 0. */
#include <string.h>

#include "verify_for_all.h"

/* A use, as its notes claim it. */
typedef struct Use {
  const ForAllRow *row;
  uint32_t field, last; /* its first and last field with this slot */
  bool is_new;
  Num slot; /* is_new: the slot */
  Num back; /* else: rows of `op` up to the use before; field `other` there */
  uint32_t op, other;
  uint32_t thing; /* FIELD_GRAD, FIELD_UNIT: the stage */
  uint32_t owner; /* rank of the slot */
  State state;
  uint32_t state_at;
  bool followed;
  Num label, touch[PIPE_NSTREAMS];
} Use;

/* The last few waits. A wait may count less than an earlier wait. */
enum { WAITS = 8 };
typedef struct Waits {
  Num n[WAITS];
  uint32_t count; /* waits so far */
} Waits;

typedef struct Uses {
  ForAllCheck *x;
  uint32_t rank;
  const ForAllPart *part;
  const ForAllRank *k;
  uint32_t *state_of; /* hash table: 1 + row of ForAllProof.state */
  uint32_t size;
  Sets chain, slots;
  /* [waiting stream][stream waited for] waits before the part; in the part above the current row;
   * in the whole part */
  Waits known[PIPE_NSTREAMS][PIPE_NSTREAMS], above[PIPE_NSTREAMS][PIPE_NSTREAMS],
      all[PIPE_NSTREAMS][PIPE_NSTREAMS];
  uint32_t *grads; /* [nstage] number of chains of gradients */
  uint8_t *pool;   /* [npool] PoolAt, on this rank */
} Uses;

/* The progress of a pool of weight versions: not used, in use, last update done. */
typedef enum PoolAt { POOL_NEW, POOL_BEGUN, POOL_OVER } PoolAt;

/* ---- states ---- */

static uint32_t hash_of(const State *s, uint32_t size) {
  uint32_t word[sizeof *s / 4], h = 2166136261u;
  memcpy(word, s, sizeof *s);
  for (size_t i = 0; i < sizeof *s / 4; i++)
    h = (h ^ word[i]) * 16777619u, h ^= h >> 15;
  return h & (size - 1);
}

static void index_states(Uses *u) {
  const ForAllProof *e = u->x->e;
  for (u->size = 16; u->size < 2 * e->nstate + 2; u->size *= 2)
    ;
  u->state_of = NEW_ARRAY(u->x->arena, uint32_t, u->size);
  for (uint32_t i = 0; i < e->nstate; i++) {
    uint32_t at = hash_of(&e->state[i], u->size);
    while (u->state_of[at])
      at = (at + 1) & (u->size - 1);
    u->state_of[at] = i + 1;
  }
}

/* The row of a state; NONE: it is not in the certificate. */
static uint32_t find_state(const Uses *u, const State *s) {
  uint32_t at = hash_of(s, u->size);
  while (u->state_of[at] && memcmp(&u->x->e->state[u->state_of[at] - 1], s, sizeof *s) != 0)
    at = (at + 1) & (u->size - 1);
  return u->state_of[at] - 1;
}

/* The effect of a use: 1 fills, -1 changes in another way, 0 reads. */
static int does(const Uses *u, const ForAllRow *c, uint32_t field) {
  static const int act[PIPE_NOPS] = {
      [PIPE_F] = 1, [PIPE_R] = 1, [PIPE_LOAD] = 1, [PIPE_B] = -1, [PIPE_W] = -1, [PIPE_OFF] = -1};
  const PipeStage *g = &u->x->p->stage[c->stage];
  const bool ahead = c->op == PIPE_F || c->op == PIPE_R;
  uint32_t nin = ahead ? g->nin : g->nout;
  switch (field) {
  case PIPE_FIELD_act: return act[c->op];
  case PIPE_FIELD_gout: return c->op == PIPE_I ? 1 : -1;
  case PIPE_FIELD_keep: return c->op == PIPE_F || c->op == PIPE_OFF ? 1 : -1;
  case PIPE_FIELD_in: return -1;
  case PIPE_FIELD_out:
  case PIPE_FIELD_made: return 1;
  case PIPE_FIELD_weight: return 0;
  case PIPE_FIELD_guess: return c->op == PIPE_U || c->formula != NONE;
  case FIELD_GRAD: return pipe_is_sum(c->op) ? -1 : 1;
  case FIELD_UNIT: return -1;
  default: /* R reads what F kept, not a list of inputs */
    return nin > 1 && c->op != PIPE_R && field - PIPE_FIELD_LIST < nin ? -1 : 1;
  }
}

static bool is_weights(uint32_t field) {
  return field >= PIPE_FIELD_weight && field <= PIPE_FIELD_guess;
}

/* ---- waits ---- */

static void put_wait(Waits *w, Num n) { w->n[w->count++ % WAITS] = n; }

static void take_waits(const Uses *u, const ForAllRow *c, Waits to[PIPE_NSTREAMS][PIPE_NSTREAMS]) {
  for (uint32_t i = c->word0; i < c->word0 + c->nword; i++) {
    const int on = for_all_waits_for(c, &u->k->word[i]);
    if (on >= 0)
      put_wait(&to[c->stream][on], num_sub(c->done[on], u->k->word[i].n));
  }
}

static void begin_part(Uses *u) {
  memset(u->all, 0, sizeof u->all), memset(u->above, 0, sizeof u->above);
  for (uint32_t j = u->part->row0; j < u->part->row0 + u->part->nrow; j++)
    take_waits(u, &u->k->row.at[j], u->all);
}

static void end_part(Uses *u) {
  for (int s = 0; s < PIPE_NSTREAMS; s++)
    for (int on = 0; on < PIPE_NSTREAMS; on++)
      for (uint32_t i = 0; i < WAITS && i < u->all[s][on].count; i++)
        put_wait(&u->known[s][on], num_last(u->all[s][on].n[i], u->part));
}

/* Does a wait of w, in all turns but the first `from`, count at least `count`? before: as of one
 * turn earlier. */
static bool one_is(const Waits *w, bool before, Num count, const ForAllPart *p, int64_t from) {
  for (uint32_t i = 0; i < WAITS && i < w->count; i++)
    if (num_within(num_sub(before ? num_before(w->n[i]) : w->n[i], count), p, from, 0, 0))
      return true;
  return false;
}

/* Does row c know in every turn that `count` rows of stream `on` are over? It knows by a wait above
 * it in this turn, in the turn before, or before the loop. */
static bool knows(const Uses *u, const ForAllRow *c, int on, Num count) {
  const ForAllPart one = {0, 0, 1, 0};
  const Waits *above = &u->above[c->stream][on], *known = &u->known[c->stream][on];
  if (one_is(above, false, count, u->part, 0) || one_is(known, false, count, u->part, 0))
    return true;
  return is_loop(u->part) && one_is(known, false, (Num){count.at, 0, count.by}, &one, 0) &&
         one_is(&u->all[c->stream][on], true, count, u->part, 1);
}

/* ---- uses ---- */

static bool no_use(const Uses *u, const Use *use, const char *why) {
  return for_all_no_at(u->x, u->rank, use->row, why);
}

/* Reads the notes of a use from word *i on; *i moves behind them. */
static bool read_notes(const Uses *u, Use *use, uint32_t *i) {
  const ForAllRow *c = use->row;
  const uint32_t end = c->word0 + c->nword;
  const ForAllProof *e = u->x->e;
  if (*i == end || u->k->word[*i].tag != NOTE_USE || !is_fixed(u->k->word[*i].n))
    return no_use(u, use, "a use without its note");
  const int64_t n = u->k->word[(*i)++].n.at;
  if (n / 2 >= e->nstate)
    return no_use(u, use, "a use in no state");
  use->state_at = (uint32_t)(n / 2), use->state = e->state[n / 2], use->followed = n & 1;
  for (; *i < end; ++*i) {
    const ForAllWord *w = &u->k->word[*i];
    if (w->tag == NOTE_LABEL)
      use->label = w->n;
    else if (w->tag >= NOTE_TOUCH0 && w->tag <= NOTE_TOUCH2)
      use->touch[w->tag - NOTE_TOUCH0] = w->n;
    else
      break;
  }
  return true;
}

/* Checks the first use of a slot: the slot is empty, and in a pool of its owner. */
static bool check_new(Uses *u, const Use *use) {
  const ForAllProof *e = u->x->e;
  const State *s = &use->state;
  if (s->op != NONE || s->prev != NONE || !num_same(use->label, num(0)))
    return no_use(u, use, "a new slot that is full");
  if (use->field == FIELD_GRAD)
    return !is_loop(u->part) && u->grads[use->thing]++ == 0
               ? true
               : no_use(u, use, "gradients are used apart");
  if (use->field == FIELD_UNIT)
    return use->row->op == PIPE_F && use->row->slice == 0
               ? true
               : no_use(u, use, "a microbatch does not begin with its F");
  const PipeRank *k = &e->p->rank[use->owner];
  if (s->pool >= k->npool)
    return no_use(u, use, "a slot of no pool");
  const Num first = for_all_grown(e, PIPE_GROWS_pool_first, use->owner, s->pool,
                                  k->pool[s->pool].first),
            count = for_all_grown(e, PIPE_GROWS_pool_count, use->owner, s->pool,
                                  k->pool[s->pool].count),
            within = num_sub(use->slot, first);
  const bool first_slot = !is_loop(u->part) && num_same(within, num(0));
  if (!num_least(within, u->part, 0) ||
      !num_least(num_sub(num_sub(count, num(1)), within), u->part, 0))
    return no_use(u, use, "a slot of another pool");
  if (use->field == PIPE_FIELD_made && first_slot && u->pool[s->pool] == POOL_BEGUN) {
    u->pool[s->pool] = POOL_OVER;
    return true;
  }
  sets_put(&u->slots, u->part, use->owner, &use->slot, 1, 1);
  if (use->field != PIPE_FIELD_weight)
    return does(u, use->row, use->last) == 1 || no_use(u, use, "a new slot is read");
  u->pool[s->pool] = POOL_BEGUN;
  return first_slot || no_use(u, use, "version 0 does not lie in the first slot");
}

/* The last version of each stage is in the slot that held version 0. */
static bool check_ends(const Uses *u) {
  const PipeRank *k = &u->x->p->rank[u->rank];
  for (uint32_t i = 0; i < k->npool; i++)
    if (u->pool[i] == POOL_BEGUN &&
        !num_same(for_all_grown(u->x->e, PIPE_GROWS_pool_count, u->rank, i, k->pool[i].count),
                  num(1)))
      return for_all_no(u->x, "the last version does not lie where version 0 lay");
  return true;
}

static Num version_of(const Uses *u, const ForAllRow *c) {
  for (uint32_t i = c->word0; i < c->word0 + c->nword; i++)
    if (u->k->word[i].tag == PIPE_WORD_VERSION)
      return u->k->word[i].n;
  return num(-1);
}

/* Does the slot hold what the use reads? */
static bool check_label(const Uses *u, const Use *use) {
  const ForAllRow *c = use->row;
  const Num found = num_sub(use->label, num(1));
  if (use->field == FIELD_GRAD)
    return true;
  if (use->field == FIELD_UNIT) {
    /* With slices the count would be that of the last slice: refused. */
    if (c->op == PIPE_U && (!num_same(use->touch[0], c->updates) || pipe_slices(u->x->p) > 1))
      return no_use(u, use, "a gradient that may have been applied");
    return (use->is_new || num_same(found, num_sub(c->mb, num(c->slice))))
               ? true
               : no_use(u, use, "another microbatch");
  }
  for (uint32_t f = use->field;; f = use->last) {
    const bool first = use->is_new && f == PIPE_FIELD_weight; /* version 0 */
    if (does(u, c, f) < 1 &&
        !(f == PIPE_FIELD_weight && c->op == PIPE_U ? num_same(first ? num(0) : found, c->updates)
          : is_weights(f) ? num_same(first ? num(0) : found, version_of(u, c))
                          : c->has_mb && num_same(found, c->mb)))
      return no_use(u, use,
                    is_weights(f) ? "another version of the weights"
                                  : "a slot that holds something else");
    if (f == use->last)
      return true;
  }
}

/* Adds to the chain how the use leaves the slot. */
static bool leave(Uses *u, const Use *use, uint64_t key) {
  const ForAllRow *c = use->row;
  const int effect = does(u, c, use->last);
  const bool transfer = pipe_is_move(c->op);
  State s = use->state;
  Num label = use->label,
      tuple[] = {c->of_op[c->op], num(0), use->touch[0], use->touch[1], use->touch[2], num(c->op)};
  if (effect != 0)
    s = (State){effect > 0 ? NONE : use->state_at,
                use->state.pool,
                c->op,
                use->last,
                c->stage,
                transfer ? c->edge : NONE,
                c->stream == PIPE_COPY ? c->peer : NONE,
                c->formula,
                c->slice};
  const uint32_t at = effect != 0 ? find_state(u, &s) : use->state_at;
  if (at == NONE)
    return no_use(u, use, "a state that is not there");
  if (use->field == FIELD_GRAD)
    label = num(0);
  else if (use->field == FIELD_UNIT)
    label = num_add(num_sub(c->mb, num(c->slice)), num(1)), tuple[2] = c->updates;
  else if (effect > 0)
    label = num_add(is_weights(use->last) ? version_of(u, c) : c->mb, num(1));
  else if (effect == 0 && use->is_new)
    label = num(1);
  tuple[1] = label;
  if (use->field != FIELD_UNIT)
    tuple[2 + c->stream] = num_add(c->done[c->stream], num(1));
  sets_put(&u->chain, u->part, key | (uint64_t)at << 24, tuple, 6, 1);
  return true;
}

/* The most rows of `op` above row c in its action. At the head of a loop, rows of the turn before
 * may be in it too. */
static int64_t in_action(const Uses *u, const ForAllRow *c, uint32_t op) {
  int64_t n = 0;
  if (is_loop(u->part) && c - &u->k->row.at[u->part->row0] < (ptrdiff_t)c->above)
    return c->above;
  for (uint32_t i = 1; i <= c->above; i++)
    n += c[-(ptrdiff_t)i].op == op;
  return n;
}

static bool check_use(Uses *u, const Use *use) {
  const ForAllRow *c = use->row;
  const uint64_t key = (uint64_t)use->thing << 44 | (uint64_t)u->rank << 8;
  if (is_weights(use->field) && use->state.pool < u->x->p->rank[u->rank].npool &&
      u->pool[use->state.pool] == POOL_OVER)
    return no_use(u, use, "a version is used behind the last update");
  if (use->is_new ? !check_new(u, use) : false)
    return false;
  if (!use->is_new) {
    /* The validator has looked inside actions for n = 0. A distance that moves must not lead into
     * the action itself. */
    if (!num_least(use->back, u->part, is_fixed(use->back) ? 1 : 1 + in_action(u, c, use->op)))
      return no_use(u, use, "a slot of two ops of an action");
    if (pipe_slices(u->x->p) > 1 && use->last == PIPE_FIELD_act && does(u, c, use->last) == 1 &&
        !is_fixed(use->back))
      return no_use(u, use, "a stash of slices that moves");
    const Num tuple[] = {num_sub(c->of_op[use->op], use->back),
                         use->label,
                         use->touch[0],
                         use->touch[1],
                         use->touch[2],
                         num(use->op)};
    sets_put(&u->chain, u->part, key | use->other | (uint64_t)use->state_at << 24, tuple, 6, -1);
  }
  for (int on = 0; on < PIPE_NSTREAMS && use->field != FIELD_UNIT; on++)
    if ((uint32_t)on != c->stream && !num_same(use->touch[on], num(0)) &&
        !knows(u, c, on, use->touch[on]))
      return no_use(u, use, "the row does not wait for the previous use");
  if (!check_label(u, use))
    return false;
  if (!use->followed)
    return use->field != FIELD_GRAD || c->op == PIPE_U
               ? true
               : no_use(u, use, "a gradient that is never applied");
  return leave(u, use, key | use->field);
}

/* Checks the slots of a row with their notes, then its gradients and its microbatch. */
static bool check_row(Uses *u, const ForAllRow *c) {
  const PipeProgram *p = u->x->p;
  const uint32_t end = c->word0 + c->nword;
  uint32_t at = c->word0, entries = 0, i;
  while (at < end && u->k->word[at].tag != NOTE_PREV && u->k->word[at].tag != NOTE_USE)
    at++;
  for (i = c->word0; i < end; i++) {
    const ForAllWord *w = &u->k->word[i];
    if (w->tag < PIPE_WORD_NEW)
      continue;
    const bool is_new = w->tag < PIPE_WORD_SAME;
    uint32_t field = w->tag - (is_new ? PIPE_WORD_NEW : PIPE_WORD_SAME);
    const uint32_t own = field == PIPE_FIELD_LIST ? field + entries++ : field;
    const bool away = field == PIPE_FIELD_keep && c->stream == PIPE_COPY && c->peer != NONE;
    Use use = {.row = c,
               .field = own,
               .last = own,
               .is_new = is_new,
               .slot = w->n,
               .back = w->n,
               .op = w->op,
               .other = w->field,
               .owner = away ? c->peer : u->rank};
    bool again = false; /* an earlier field names the same slot */
    uint32_t others = 0;
    for (uint32_t j = c->word0; j < end && !away; j++) {
      const ForAllWord *v = &u->k->word[j];
      if (v->tag < PIPE_WORD_NEW)
        continue;
      const bool v_new = v->tag < PIPE_WORD_SAME;
      uint32_t f = v->tag - (v_new ? PIPE_WORD_NEW : PIPE_WORD_SAME);
      f = f == PIPE_FIELD_LIST ? f + others++ : f;
      if (j == i || v_new != is_new || !num_same(v->n, w->n) || v->op != w->op ||
          v->field != w->field)
        continue;
      if (!is_weights(f) || !is_weights(own))
        return no_use(u, &use, "two fields with one slot");
      again |= j < i;
      use.last = f > use.last ? f : use.last;
    }
    if (!again && (!read_notes(u, &use, &at) || !check_use(u, &use)))
      return false;
  }
  const bool grad = !p->forward &&
                    (c->op == PIPE_B || c->op == PIPE_W || c->op == PIPE_U || c->op == PIPE_REDUCE),
             unit = c->stream == PIPE_COMPUTE && c->has_mb;
  for (uint32_t s = 0; s <= p->nstage; s++) {
    const bool of_unit = s == p->nstage;
    if (of_unit ? !unit
                : !(c->op == PIPE_TIE ? p->stage[s].tied == c->stage : grad && s == c->stage))
      continue;
    Use use = {
        .row = c, .field = of_unit ? FIELD_UNIT : FIELD_GRAD, .thing = of_unit ? c->stage : s};
    use.last = use.other = use.field;
    if (at == end || u->k->word[at].tag != NOTE_PREV)
      return no_use(u, &use, "a use without its note");
    use.back = u->k->word[at++].n;
    use.is_new = num_same(use.back, num(0));
    if (!read_notes(u, &use, &at))
      return false;
    use.op = use.state.op;
    if (!use.is_new && use.op >= PIPE_NOPS)
      return no_use(u, &use, "a use of nobody before it");
    if (!check_use(u, &use))
      return false;
  }
  return at == end || for_all_no_at(u->x, u->rank, c, "a note too much");
}

/* The slots of the NEWs are all slots of each rank, each once. */
static bool check_slots(Uses *u) {
  const PipeProgram *p = u->x->p;
  const ForAllPart one = {0, 0, 1, 0};
  for (uint32_t r = 0; r < p->nrank; r++) {
    const Num n = for_all_grown(u->x->e, PIPE_GROWS_rank_nslot, r, 0, p->rank[r].nslot),
              slot = {0, 1, 0}, first = num(0);
    if (n.at == 0 && n.by == 0)
      continue;
    if (n.at < 1 || n.by < 0)
      return for_all_no(u->x, "slots do not grow");
    const ForAllPart all = {0, 0, n.at, n.by};
    sets_put(&u->slots, is_loop(&all) ? &all : &one, r, is_loop(&all) ? &slot : &first, 1, -1);
  }
  return sets_cancel(&u->slots) || for_all_no(u->x, "a slot that is two, or none");
}

bool for_all_uses(ForAllCheck *x) {
  Uses u = {.x = x, .chain = {.arena = x->arena}, .slots = {.arena = x->arena}};
  enum { MOST = 1 << 16 }; /* ranks, states: the room in a key */
  if (x->p->nrank > MOST || x->e->nstate > MOST)
    return for_all_no(x, "the program has too many ranks or states of slots");
  u.grads = NEW_ARRAY(x->arena, uint32_t, x->p->nstage);
  index_states(&u);
  for (uint32_t r = 0; r < x->p->nrank; r++) {
    u.rank = r, u.k = &x->rank[r];
    u.pool = NEW_ARRAY(x->arena, uint8_t, x->p->rank[r].npool + (size_t)1);
    memset(u.known, 0, sizeof u.known);
    for (uint32_t i = 0; i < u.k->part.n; i++) {
      u.part = &u.k->part.at[i];
      begin_part(&u);
      for (uint32_t j = u.part->row0; j < u.part->row0 + u.part->nrow; j++) {
        const ForAllRow *c = &u.k->row.at[j];
        take_waits(&u, c, u.above);
        if (!check_row(&u, c))
          return false;
      }
      end_part(&u);
    }
    if (!check_ends(&u))
      return false;
  }
  return (sets_cancel(&u.chain) ||
          for_all_no(x, "a use does not find what the one before it left")) &&
         check_slots(&u);
}
