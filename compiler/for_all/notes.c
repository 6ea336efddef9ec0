/* SPDX-License-Identifier: MIT
 * Makes the notes of a program (notes.h). Plays its ranks against each other for the times; then
 * walks each list once and keeps the last use of each slot, gradient and microbatch. Cost:
 * linear. */
#include <string.h>

#include "notes.h"

/* The last use of a thing. */
typedef struct Used {
  uint32_t row, state; /* 1 + row; 0: no use yet */
  uint32_t op, nth;    /* op of the row; rows of this op above it */
  uint32_t note;       /* index of its NOTE_USE */
  int64_t label;       /* -1: none */
  uint32_t touch[PIPE_NSTREAMS];
} Used;

struct Noter {
  Arena *arena;
  const PipeProgram *p;
  States *state;
  uint32_t **time;                  /* [nrank][ninstr] NOTE_TIME */
  uint32_t **turn_time;             /* [ngroup][turn] NOTE_TIME of each turn */
  Used *slot, **away, *grad, *unit; /* away: slots of other ranks; unit: by stage and microbatch */
  uint32_t *updates, *all_updates;  /* [nstage] so far; in all */
  uint32_t done[PIPE_NSTREAMS], of_op[PIPE_NOPS]; /* rows of the rank so far */
  Notes notes;
};

/* ---- times ---- */

typedef struct Play {
  const PipeProgram *p;
  uint32_t **time;
  uint32_t *at, *now;     /* [nrank] current row; time of the row above it */
  uint32_t **turn, *next; /* [ngroup] time of each turn; next turn */
  uint32_t *met, nmet;    /* [nrank] ranks whose rows end together */
} Play;

static const PipeInstr *head(const Play *y, uint32_t r) {
  return y->at[r] < y->p->rank[r].ninstr ? &y->p->rank[r].instr[y->at[r]] : NULL;
}

/* Adds rank r to y->met and returns its row; NULL: it is not at a row of this op and stage. Raises
 * *last to its time. */
static const PipeInstr *meet(Play *y, uint32_t r, uint32_t op, uint32_t stage, uint32_t *last) {
  const PipeInstr *c = r < y->p->nrank ? head(y, r) : NULL;
  if (!c || c->op != op || (stage != NONE && c->stage != stage))
    return NULL;
  *last = y->now[r] > *last ? y->now[r] : *last;
  y->met[y->nmet++] = r;
  return c;
}

static bool play_row(Play *y, uint32_t r) {
  const PipeInstr *c = head(y, r), *d;
  const uint32_t g = y->p->rank[r].group;
  if (!c)
    return false;
  uint32_t last = y->now[r], s = c->stage;
  y->nmet = 0;
  if (pipe_is_move(c->op)) /* op ^ 1 is the other end */
    if (!(d = meet(y, c->peer, c->op ^ 1, NONE, &last)) || d->peer != r)
      return false;
  while (pipe_is_sum(c->op) && (s = pipe_sum_next(y->p->stage, c->op, s)) != c->stage)
    if (!meet(y, y->p->stage[s].rank, c->op, s, &last))
      return false;
  if (pipe_op_info[c->op].stream == PIPE_COPY && g) {
    if (c->turn != y->next[g - 1])
      return false;
    if (c->turn > 0 && y->turn[g - 1][c->turn - 1] > last)
      last = y->turn[g - 1][c->turn - 1];
    y->turn[g - 1][c->turn] = last + 1;
    y->next[g - 1]++;
  }
  for (y->met[y->nmet++] = r; y->nmet > 0;) {
    const uint32_t q = y->met[--y->nmet];
    y->time[q][y->at[q]++] = y->now[q] = last + 1;
  }
  return true;
}

static bool play(Play *y) {
  bool moved = true, over = true;
  while (moved) {
    moved = false;
    for (uint32_t r = 0; r < y->p->nrank; r++)
      while (play_row(y, r))
        moved = true;
  }
  for (uint32_t r = 0; r < y->p->nrank; r++)
    over &= y->at[r] == y->p->rank[r].ninstr;
  return over;
}

/* ---- states ---- */

static uint32_t *place_of(States *t, const State *s) {
  const uint32_t *word = (const uint32_t *)s;
  uint64_t h = 0;
  for (size_t i = 0; i < sizeof *s / sizeof *word; i++)
    h = (h ^ word[i]) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
  uint32_t at = (uint32_t)h & (t->size - 1);
  while (t->at[at] && memcmp(&t->all.at[t->at[at] - 1], s, sizeof *s) != 0)
    at = (at + 1) & (t->size - 1);
  return &t->at[at];
}

static uint32_t intern_state(Noter *x, State s) {
  States *t = x->state;
  if (2 * (t->all.n + 1) > t->size) {
    t->size = t->size ? 2 * t->size : 256;
    t->at = NEW_ARRAY(t->arena, uint32_t, t->size);
    for (uint32_t i = 0; i < t->all.n; i++)
      *place_of(t, &t->all.at[i]) = i + 1;
  }
  uint32_t *at = place_of(t, &s);
  if (*at == 0) {
    *vec_push(t->arena, &t->all) = s;
    *at = t->all.n;
  }
  return *at - 1;
}

typedef enum Effect { READS, FILLS, EMPTIES } Effect;

static Effect effect(const PipeProgram *p, const PipeInstr *c, const PipeWeights *w,
                     uint32_t field) {
  const PipeOpInfo *o = &pipe_op_info[c->op];
  switch (field) {
  case PIPE_FIELD_act: return o->act > 0 ? FILLS : o->act < 0 ? EMPTIES : READS;
  case PIPE_FIELD_gout: return o->gout > 0 ? FILLS : EMPTIES;
  case PIPE_FIELD_keep: return c->op == PIPE_F || c->op == PIPE_OFF ? FILLS : EMPTIES;
  case PIPE_FIELD_in: return EMPTIES;
  case PIPE_FIELD_out:
  case PIPE_FIELD_made: return FILLS;
  case PIPE_FIELD_weight: return READS;
  case PIPE_FIELD_guess: return c->op == PIPE_U || w->formula != NONE ? FILLS : READS;
  case FIELD_GRAD: return pipe_is_sum(c->op) ? EMPTIES : FILLS;
  case FIELD_UNIT: return EMPTIES;
  default: {
    uint32_t nin = c->in != NONE ? pipe_fields(&p->stage[c->stage], c->op, true) : 0;
    return field - PIPE_FIELD_LIST < (nin > 1 ? nin : 0) ? EMPTIES : FILLS;
  }
  }
}

/* ---- rows ---- */

static void note(Noter *x, uint32_t tag, bool same, int64_t n) {
  *vec_push(x->arena, &x->notes.note) = (Note){tag, same, n};
}

/* Notes a use by row i. last: of the fields with this slot, the last; it decides the new state. */
static void use(Noter *x, uint32_t rank, uint32_t i, Used *u, uint32_t field, uint32_t last,
                uint32_t pool) {
  const PipeRank *k = &x->p->rank[rank];
  const PipeInstr *c = &k->instr[i];
  const PipeWeights *w = k->weights ? &k->weights[i] : NULL;
  const uint32_t on = pipe_op_info[c->op].stream, slices = pipe_slices(x->p);
  if (field >= PIPE_NFIELDS)
    note(x, NOTE_PREV, false, u->row ? x->of_op[u->op] - (int64_t)u->nth : 0);
  if (u->row == 0) {
    u->state = intern_state(x, (State){NONE, pool, NONE, 0, 0, 0, 0, 0, 0});
    u->label = -1;
  } else {
    x->notes.note.at[u->note].n |= 1;
  }
  const uint32_t at = x->notes.note.n;
  note(x, NOTE_USE, true, 2 * (int64_t)u->state);
  if (u->label >= 0)
    note(x, NOTE_LABEL, false, u->label + 1);
  for (uint32_t s = 0; s < PIPE_NSTREAMS; s++)
    if (u->touch[s])
      note(x, NOTE_TOUCH0 + s, false, u->touch[s]);
  Effect does = effect(x->p, c, w, last);
  const bool version = last >= PIPE_FIELD_weight && last <= PIPE_FIELD_guess;
  if (does != READS) {
    const bool transfer = pipe_op_info[c->op].comm && !pipe_is_sum(c->op);
    const bool copy = pipe_op_info[c->op].stream == PIPE_COPY;
    u->state = intern_state(x,
                            (State){does == FILLS ? NONE : u->state, pool, c->op, last, c->stage,
                                    transfer && x->p->edge ? c->edge : NONE, copy ? c->peer : NONE,
                                    w ? w->formula : NONE, c->mb == NONE ? 0 : c->mb % slices});
    if (does == FILLS)
      u->label = version ? (int64_t)w->version : c->mb == NONE ? -1 : (int64_t)c->mb;
  } else if (last == PIPE_FIELD_weight && u->row == 0) {
    u->label = 0; /* version 0 is there when a step starts */
  }
  if (field == FIELD_GRAD)
    u->label = -1;
  if (field == FIELD_UNIT) {
    u->label = c->mb - c->mb % slices;
    u->touch[0] = x->updates[c->stage];
  } else {
    u->touch[on] = x->done[on] + 1;
  }
  u->row = i + 1, u->note = at;
  u->op = c->op, u->nth = x->of_op[c->op];
}

/* The pool of a slot. */
static uint32_t pool_of(const PipeRank *k, uint32_t slot) {
  uint32_t lo = 0, hi = k->npool;
  while (hi - lo > 1) {
    uint32_t mid = (lo + hi) / 2;
    *(k->pool[mid].first <= slot ? &lo : &hi) = mid;
  }
  return lo;
}

static void use_slots(Noter *x, uint32_t rank, uint32_t i) {
  const PipeProgram *p = x->p;
  const PipeRank *k = &p->rank[rank];
  const PipeInstr *c = &k->instr[i];
  const PipeWeights *w = k->weights ? &k->weights[i] : NULL;
  const bool compute = pipe_op_info[c->op].stream == PIPE_COMPUTE,
             copy = pipe_op_info[c->op].stream == PIPE_COPY;
  const uint32_t nin = compute && c->op != PIPE_U && c->in != NONE
                           ? pipe_fields(&p->stage[c->stage], c->op, true)
                           : 0,
                 nout = compute && c->op != PIPE_U && c->out != NONE
                            ? pipe_fields(&p->stage[c->stage], c->op, false)
                            : 0;
  uint32_t slot[PIPE_NFIELDS] = {c->act,
                                 compute ? c->gout : NONE,
                                 compute || copy ? c->keep : NONE,
                                 nin > 1 ? NONE : c->in,
                                 nout > 1 ? NONE : c->out,
                                 w ? w->slot : NONE,
                                 w ? w->out : NONE,
                                 w ? w->guess : NONE};
  /* Slots outside the chain of this rank: of another rank; or the slot of version 0. */
  const bool away = copy && c->peer != NONE,
             last_update = w && c->op == PIPE_U && w->version == x->all_updates[c->stage];
  const uint32_t apart = away ? 1u << PIPE_FIELD_keep : last_update ? 1u << PIPE_FIELD_made : 0;
  uint32_t n = PIPE_FIELD_LIST;
  for (uint32_t j = 0; nin > 1 && j < nin && n < PIPE_NFIELDS; j++)
    slot[n++] = k->list[c->in_list + j];
  for (uint32_t j = 0; nout > 1 && j < nout && n < PIPE_NFIELDS; j++)
    slot[n++] = k->list[c->out_list + j];
  for (uint32_t f = 0; f < n; f++) {
    if (slot[f] == NONE)
      continue;
    if (f == PIPE_FIELD_made && last_update) {
      use(x, rank, i, &(Used){0}, f, f, pool_of(k, slot[f]));
      continue;
    }
    if (f == PIPE_FIELD_keep && away) {
      if (!x->away[c->peer])
        x->away[c->peer] = NEW_ARRAY(x->arena, Used, p->rank[c->peer].nslot + (size_t)1);
      use(x, rank, i, &x->away[c->peer][slot[f]], f, f, pool_of(&p->rank[c->peer], slot[f]));
      continue;
    }
    uint32_t last = f;
    bool again = false;
    for (uint32_t g = 0; g < n; g++)
      if (slot[g] == slot[f] && !(apart >> g & 1)) {
        last = g > last ? g : last;
        again |= g < f;
      }
    if (!again)
      use(x, rank, i, &x->slot[slot[f]], f, last, pool_of(k, slot[f]));
  }
}

/* Notes the uses of gradients and microbatches. */
static void use_rest(Noter *x, uint32_t rank, uint32_t i) {
  const PipeProgram *p = x->p;
  const PipeInstr *c = &p->rank[rank].instr[i];
  if (p->forward == 0 &&
      (c->op == PIPE_B || c->op == PIPE_W || c->op == PIPE_U || c->op == PIPE_REDUCE))
    use(x, rank, i, &x->grad[c->stage], FIELD_GRAD, FIELD_GRAD, NONE);
  for (uint32_t s = 0; c->op == PIPE_TIE && s < p->nstage; s++)
    if (p->stage[s].tied == c->stage)
      use(x, rank, i, &x->grad[s], FIELD_GRAD, FIELD_GRAD, NONE);
  if (pipe_op_info[c->op].stream == PIPE_COMPUTE && c->op != PIPE_SIDE && c->mb != NONE)
    use(x, rank, i, &x->unit[(size_t)c->stage * p->nmb + c->mb / pipe_slices(p)], FIELD_UNIT,
        FIELD_UNIT, NONE);
  if (c->op == PIPE_U)
    x->updates[c->stage]++;
}

Notes make_notes(Noter *x, uint32_t rank) {
  const PipeProgram *p = x->p;
  const PipeRank *k = &p->rank[rank];
  x->notes.note.n = 0;
  x->notes.first = arena_alloc(x->arena, (k->ninstr + (size_t)1) * sizeof *x->notes.first);
  x->slot = NEW_ARRAY(x->arena, Used, k->nslot + (size_t)1);
  x->away = NEW_ARRAY(x->arena, Used *, p->nrank);
  memset(x->done, 0, sizeof x->done), memset(x->of_op, 0, sizeof x->of_op);
  for (uint32_t i = 0; i < k->ninstr; i++) {
    const PipeInstr *c = &k->instr[i];
    const uint32_t on = pipe_op_info[c->op].stream;
    x->notes.first[i] = x->notes.note.n;
    note(x, NOTE_TIME, false, x->time[rank][i]);
    if (on == PIPE_COPY && k->group && c->turn > 0)
      note(x, NOTE_TURN, false, x->turn_time[k->group - 1][c->turn - 1]);
    use_slots(x, rank, i);
    use_rest(x, rank, i);
    x->done[on]++, x->of_op[c->op]++;
  }
  x->notes.first[k->ninstr] = x->notes.note.n;
  return x->notes;
}

Noter *open_notes(Arena *a, const PipeProgram *p, States *state) {
  Play y = {.p = p};
  Noter *x = NEW(a, Noter);
  uint32_t ncopy = 0;
  y.time = NEW_ARRAY(a, uint32_t *, p->nrank);
  y.at = NEW_ARRAY(a, uint32_t, p->nrank);
  y.now = NEW_ARRAY(a, uint32_t, p->nrank);
  y.met = NEW_ARRAY(a, uint32_t, p->nrank);
  for (uint32_t r = 0; r < p->nrank; r++) {
    y.time[r] = NEW_ARRAY(a, uint32_t, p->rank[r].ninstr + (size_t)1);
    for (uint32_t i = 0; p->ngroup && i < p->rank[r].ninstr; i++)
      ncopy += pipe_op_info[p->rank[r].instr[i].op].stream == PIPE_COPY;
  }
  y.turn = NEW_ARRAY(a, uint32_t *, p->ngroup + (size_t)1);
  y.next = NEW_ARRAY(a, uint32_t, p->ngroup + (size_t)1);
  for (uint32_t g = 0; g < p->ngroup; g++)
    y.turn[g] = NEW_ARRAY(a, uint32_t, ncopy + (size_t)1);
  if (!play(&y))
    return NULL;
  *x = (Noter){.arena = a, .p = p, .state = state, .time = y.time, .turn_time = y.turn};
  x->grad = NEW_ARRAY(a, Used, p->nstage);
  x->unit = NEW_ARRAY(a, Used, (size_t)p->nstage * p->nmb);
  x->updates = NEW_ARRAY(a, uint32_t, p->nstage);
  x->all_updates = count_updates(a, p);
  return x;
}
