/* SPDX-License-Identifier: MIT
 * Writes the list of a rank as loops. First every instruction becomes a row of words in which each
 * reference is a distance: a slot is "the slot of the row of this op, so many of its rows above"; a
 * wait is "until the row so many above is over". So the turns of a loop have equal rows, apart
 * from numbers that grow by a fixed step, whichever slots they use and whatever runs between them.
 *
 * Then rows are folded. A run of q rows that occurs t times in a row, each number with a fixed step
 * from turn to turn, becomes a loop. For each of a few lengths q, a pass from the end of the list
 * finds the runs that leave the fewest rows. The lengths are the distances at which equal rows
 * follow each other most often. The result is folded once more, for loops of loops.
 *
 * Cost: linear in instructions. No proof rests on this file: pipe_expand writes the rows out again,
 * and emit compares the result. */
#include <string.h>

#include "fields.h"
#include "pipec.h"
#include "queues.h"
#include "rows.h"

enum {
  LENGTHS = 8,         /* the most loop lengths that fold tries */
  MOST_STEP = 0x7fffff /* the largest step that a word can hold */
};

/* A word of a row: its number in the lower NUMBER_BITS bits, signed, and its tag above. So the
 * difference of two words of one tag is that of their numbers. The tag is a PipeWord; that of
 * PIPE_WORD_SAME has (op << 5 | field) of the other row << 8. */
typedef uint64_t Word;
enum { NUMBER_BITS = 44 };
static Word word_of(uint32_t tag, int64_t n) { return ((Word)tag << NUMBER_BITS) + (Word)n; }
static int64_t number_of(Word w) {
  return (int64_t)(w << (64 - NUMBER_BITS)) >> (64 - NUMBER_BITS);
}
static uint32_t tag_of(Word w) {
  return (uint32_t)((w + ((Word)1 << (NUMBER_BITS - 1))) >> NUMBER_BITS);
}

/* A row or a loop. The words of a loop are the words of its first turn. */
typedef struct Part {
  uint64_t key;          /* equal for parts that differ only in numbers */
  uint32_t word0, nword; /* rows of Rows.word */
  uint32_t cost;         /* in rows; LOOP and END count as rows */
  uint32_t turns;        /* of a loop; 0: a row */
  const struct Part *body;
  uint32_t nbody;
  uint32_t step0; /* row of Rows.step: [nword] by turn */
} Part;

/* The last use of a slot. */
typedef struct Use {
  uint32_t nth; /* 1 + rows of its op above its row; 0: no use yet */
  uint16_t op, field;
} Use;

/* The fields of an op that rows carry, with NULL behind each list: slots; other fields of PipeInstr
 * and of PipeWeights. */
typedef struct OpFields {
  const Field *slot[PIPE_NFIELD + 1], *number[PIPE_NFIELD + 1], *of_weights[PIPE_NFIELD + 1];
} OpFields;

struct RowMaker {
  Arena *arena; /* of words, rows, steps and codes, which every rank uses again */
  Arena own;    /* of one rank */
  const PipeProgram *p;
  const PipeRank *k;
  PipeQueues queues; /* of k */
  VEC(Word) word;
  VEC(Part) row;
  VEC(int64_t) step;
  VEC(uint32_t) code;
  uint64_t key;              /* of the current row so far */
  Use *use, **use_of;        /* by slot: of this rank; of other ranks, for OFF and LOAD */
  uint32_t *updates;         /* count_updates; NULL: no versions of the weights */
  uint32_t of_op[PIPE_NOPS]; /* rows so far */
  OpFields fields[PIPE_NOPS];
};
typedef RowMaker Rows;

static uint64_t mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 29;
}

/* ---- rows ---- */

static void put(Rows *x, uint32_t tag, int64_t n) {
  const Word w = word_of(tag, n);
  *vec_push(x->arena, &x->word) = w;
  /* a place in the text is equal in all turns of a loop */
  x->key = mix(x->key, tag == PIPE_WORD_AT ? w : tag);
}

/* Writes a slot as the distance to its last use, or by number if it has none. */
static void put_slot(Rows *x, const Use *use, uint32_t field, uint32_t slot) {
  if (slot == NONE || !use[slot].nth)
    put(x, PIPE_WORD_NEW + field, slot);
  else
    put(x,
        (PIPE_WORD_SAME + field) | ((uint32_t)use[slot].op * PIPE_NFIELDS + use[slot].field) << 8,
        x->of_op[use[slot].op] - (int64_t)(use[slot].nth - 1));
}

static void touch(const Rows *x, Use *use, uint32_t op, uint32_t field, uint32_t slot) {
  const uint32_t nth = x->of_op[op] + 1;
  if (slot != NONE && field < PIPE_NFIELDS && !(use[slot].nth == nth && use[slot].op == op))
    use[slot] = (Use){nth, (uint16_t)op, (uint16_t)field};
}

/* The last uses of the slots of another rank. */
static Use *uses_of(Rows *x, uint32_t rank) {
  if (!x->use_of[rank])
    x->use_of[rank] = NEW_ARRAY(&x->own, Use, x->p->rank[rank].nslot + (size_t)1);
  return x->use_of[rank];
}

/* The slots of a row, in the order in which other rows refer to them. */
typedef struct RowSlots {
  uint32_t n;
  struct {
    uint32_t field, slot;
  } at[PIPE_FIELD_LIST];
  const uint32_t *list;
  uint32_t nin, nout; /* the number of listed slots that are inputs, outputs */
  Use *keep;          /* the uses that field `keep` belongs to */
  bool last;          /* last update of its stage: `made` goes by number */
} RowSlots;

static void add_slot(RowSlots *s, uint32_t field, uint32_t slot) {
  if (slot != NONE)
    s->at[s->n].field = field, s->at[s->n++].slot = slot;
}

/* Fills in *s in place: a copy of this struct would stall the processor until all stores are
 * done. */
static void find_slots(Rows *x, const PipeInstr *c, const PipeWeights *w, RowSlots *s) {
  bool copy = c->op == PIPE_OFF || c->op == PIPE_LOAD;
  s->n = s->nin = s->nout = 0;
  s->keep = copy && c->peer != NONE ? uses_of(x, c->peer) : x->use;
  s->last = w && c->op == PIPE_U && w->version == x->updates[c->stage];
  for (const Field *const *at = x->fields[c->op].slot, *field; (field = *at); at++) {
    const uint32_t slot = *(const uint32_t *)field_at(field, c, w),
                   n = field_slots(field, &x->p->stage[c->stage], c->op);
    if (n < 2 || slot == NONE) {
      add_slot(s, field->word - PIPE_WORD_NEW, slot);
      continue;
    }
    if (!s->nin) /* inputs come first, and outputs follow them */
      s->list = &x->k->list[slot];
    *(field->kind == FIELD_INPUTS ? &s->nin : &s->nout) = n;
  }
}

static Use *use_of(const Rows *x, const RowSlots *s, uint32_t field) {
  return field == PIPE_FIELD_keep ? s->keep : x->use;
}

static void put_slots(Rows *x, const RowSlots *s) {
  for (uint32_t i = 0; i < s->n; i++) {
    const uint32_t field = s->at[i].field, slot = s->at[i].slot;
    if (field == PIPE_FIELD_made && s->last)
      put(x, PIPE_WORD_NEW + field, slot);
    else
      put_slot(x, use_of(x, s, field), field, slot);
  }
  for (uint32_t i = 0; i < s->nin + s->nout; i++)
    put_slot(x, x->use, PIPE_FIELD_LIST, s->list[i]);
}

static void touch_slots(const Rows *x, uint32_t op, const RowSlots *s) {
  for (uint32_t i = 0; i < s->n; i++)
    touch(x, use_of(x, s, s->at[i].field), op, s->at[i].field, s->at[i].slot);
  for (uint32_t i = 0; i < s->nin + s->nout; i++)
    touch(x, x->use, op, PIPE_FIELD_LIST + i, s->list[i]);
}

static void put_numbers(Rows *x, const Field *const *at, const PipeInstr *c, const PipeWeights *w) {
  for (const Field *field; (field = *at); at++) {
    const int64_t n = field_get(field, c, w);
    if (n != field->none)
      put(x, field->word, n);
  }
}

/* Writes what PipeInstr has besides slots and waits. */
static void put_plain(Rows *x, const PipeInstr *c) {
  put(x, c->op, c->stage);
  if (c->mb != NONE)
    put(x, PIPE_WORD_MB, c->mb);
  put(x, PIPE_WORD_AT, (int64_t)c->site << 2 | c->phase);
  put_numbers(x, x->fields[c->op].number, c, NULL);
  if (!pipe_is_move(c->op) && c->peer != NONE)
    put(x, PIPE_WORD_PEER, c->peer);
}

static void put_waits(Rows *x, uint32_t row) {
  for (uint32_t at = pipe_wait0(x->k, row); at < pipe_wait_end(x->k, row); at++) {
    const uint32_t after = pipe_after(&x->queues, x->k->wait[at]);
    put(x, PIPE_WORD_AFTER, after == 0 ? 0 : row + 1 - (int64_t)after);
  }
}

static void put_row(Rows *x, uint32_t i) {
  const PipeInstr *c = &x->k->instr[i];
  const PipeWeights *w = x->k->weights ? &x->k->weights[i] : NULL;
  RowSlots slot;
  uint32_t word0 = x->word.n;
  x->key = 0;
  find_slots(x, c, w, &slot);
  put_plain(x, c);
  if (slot.nin)
    put(x, PIPE_WORD_INS, slot.nin);
  if (slot.nout)
    put(x, PIPE_WORD_OUTS, slot.nout);
  put_slots(x, &slot);
  if (w)
    put_numbers(x, x->fields[c->op].of_weights, c, w);
  put_waits(x, i);
  touch_slots(x, c->op, &slot);
  x->of_op[c->op]++;
  *vec_push(x->arena,
            &x->row) = (Part){.key = x->key, .word0 = word0, .nword = x->word.n - word0, .cost = 1};
}

/* ---- loops ---- */

/* The last two parts with a key. */
typedef struct Met {
  uint64_t key;
  uint32_t last, before; /* 1 + part; last is 0 in an empty entry */
} Met;

static Met *met(Met *table, uint64_t mask, uint64_t key) {
  uint64_t at = (key ^ key >> 32) & mask;
  while (table[at].last && table[at].key != key)
    at = (at + 1) & mask;
  table[at].key = key;
  return &table[at];
}

static void meet(Met *m, uint32_t i) { m->before = m->last, m->last = i + 1; }

/* How parts repeat. */
typedef struct Repeats {
  uint64_t *id;    /* [parts] a hash of its key and of how its numbers differ from the part before
                      with its key */
  uint32_t *count; /* [parts] how often such equal parts follow each other at this distance */
} Repeats;

static Repeats find_repeats(Rows *x, const Part *part, uint32_t n) {
  uint64_t size = 2, *id = arena_alloc(&x->own, (n + (size_t)1) * sizeof *id);
  uint32_t *count = NEW_ARRAY(&x->own, uint32_t, n + (size_t)1);
  while (size < 2 * (uint64_t)n)
    size *= 2;
  Arena tables = {0};
  Met *by_key = NEW_ARRAY(&tables, Met, size), *by_id = NEW_ARRAY(&tables, Met, size);
  for (uint32_t i = 0; i < n; i++) {
    Met *m = met(by_key, size - 1, part[i].key);
    uint64_t h = part[i].key;
    const Word *w = &x->word.at[part[i].word0],
               *before = m->last ? &x->word.at[part[m->last - 1].word0] : w;
    for (uint32_t k = 0; m->last && k < part[i].nword; k++)
      h = mix(h, w[k] - before[k]);
    id[i] = h;
    if (m->last)
      count[i - (m->last - 1)]++;
    meet(m, i);
    m = met(by_id, size - 1, h);
    if (m->last)
      count[i - (m->last - 1)] += 2;
    if (m->before)
      count[i - (m->before - 1)]++;
    meet(m, i);
  }
  arena_free(&tables);
  return (Repeats){id, count};
}

/* The lengths with the highest counts. Returns how many there are. */
static uint32_t best_lengths(const uint32_t *count, uint32_t most, uint32_t length[LENGTHS]) {
  uint32_t found = 0;
  for (uint32_t q = 1; q <= most; q++) {
    uint32_t at = found;
    while (at > 0 && count[length[at - 1]] < count[q])
      at--;
    if (count[q] < 3 || at == LENGTHS) /* a loop that saves a row counts at least three */
      continue;
    found += found < LENGTHS;
    for (uint32_t k = found - 1; k > at; k--)
      length[k] = length[k - 1];
    length[at] = q;
  }
  return found;
}

/* The decision for a part: a loop of `turns` turns of `length` parts begins there. 0: no loop. */
typedef struct Choice {
  uint32_t length, turns;
} Choice;

/* Decides for each part, from the end on, what leaves the fewest rows. */
static void choose(const Part *part, uint32_t n, const uint64_t *id, const uint32_t *length,
                   uint32_t nlength, uint64_t *best, Choice *choice) {
  size_t other_key[LENGTHS],
      other_id[LENGTHS];         /* the next part that differs from the part `length` below it */
  uint64_t *cost = best + n + 1; /* of all parts from i on, without loops */
  for (uint32_t l = 0; l < nlength; l++)
    other_key[l] = other_id[l] = n > length[l] ? n - length[l] : 0;
  best[n] = cost[n] = 0;
  for (size_t i = n; i-- > 0;) {
    cost[i] = cost[i + 1] + part[i].cost;
    best[i] = best[i + 1] + part[i].cost;
    choice[i] = (Choice){0, 0};
    const uint64_t key = part[i].key;
    for (uint32_t l = 0; l < nlength; l++) {
      const size_t q = length[l];
      if (i + q >= n)
        continue;
      if (key != part[i + q].key)
        other_key[l] = i;
      if (i + 2 * q < n && id[i + q] != id[i + 2 * q])
        other_id[l] = i + q;
      if (other_key[l] - i < q)
        continue;
      const size_t same = other_id[l] > i + q ? other_id[l] - (i + q) : 0, turns = 2 + same / q;
      const uint64_t left = cost[i] - cost[i + q] + 2 + best[i + q * turns];
      if (left < best[i]) {
        best[i] = left;
        choice[i] = (Choice){(uint32_t)q, (uint32_t)turns};
      }
    }
  }
}

/* The turns of the chosen loop that follow its steps; below 2: no loop. Appends the steps to
 * Rows.step. */
static uint32_t fit_turns(Rows *x, const Part *part, Choice c) {
  const Word *first = &x->word.at[part->word0], *second = &x->word.at[part[c.length].word0];
  uint32_t n = (uint32_t)(second - first), step0 = x->step.n;
  if (x->word.n - part[c.length].word0 < n)
    return 0;
  for (uint32_t i = 0; i < n; i++) {
    int64_t step = (int64_t)(second[i] - first[i]);
    *vec_push(x->arena, &x->step) = step;
    if (step > MOST_STEP || step < -MOST_STEP) /* so are words of two tags */
      return 0;
  }
  if (c.turns == 2)
    return 2;
  /* The ids from the second turn on are equal, so one turn stands for all. */
  const Word *third = &x->word.at[part[2 * (size_t)c.length].word0];
  for (uint32_t i = 0; i < n; i++)
    if ((int64_t)(third[i] - second[i]) != x->step.at[step0 + i])
      return 2;
  return c.turns;
}

/* A part for the loop over the parts at `part`. */
static Part make_loop(const Rows *x, const Part *part, Choice c, uint32_t nword) {
  Part loop = {.word0 = part->word0,
               .nword = nword,
               .cost = 2,
               .turns = c.turns,
               .body = part,
               .nbody = c.length,
               .step0 = x->step.n - nword};
  loop.key = mix(c.turns, c.length);
  for (uint32_t i = 0; i < c.length; i++) {
    loop.key = mix(loop.key, part[i].key);
    loop.cost += part[i].cost;
  }
  for (uint32_t i = 0; i < nword; i++)
    loop.key = mix(loop.key, (uint64_t)x->step.at[loop.step0 + i]);
  return loop;
}

/* Folds part[0 .. n) into loops of at most `most` parts each. Returns the number of parts left. */
static uint32_t fold(Rows *x, const Part *part, uint32_t n, Repeats is, uint32_t most, Part **out) {
  uint32_t length[LENGTHS], left = 0,
                            nlength = best_lengths(is.count, most < n / 2 ? most : n / 2, length);
  uint64_t *best = arena_alloc(&x->own, 2 * (n + (size_t)1) * sizeof *best);
  Choice *choice = arena_alloc(&x->own, (n + (size_t)1) * sizeof *choice);
  choose(part, n, is.id, length, nlength, best, choice);
  *out = arena_alloc(&x->own, (n + (size_t)1) * sizeof **out);
  for (uint32_t i = 0; i < n;) {
    Choice c = choice[i];
    uint32_t nword = c.turns ? part[i + c.length].word0 - part[i].word0 : 0;
    c.turns = c.turns ? fit_turns(x, &part[i], c) : 0;
    if (c.turns > 1) {
      (*out)[left++] = make_loop(x, &part[i], c, nword);
      i += c.turns * c.length;
    } else {
      (*out)[left++] = part[i++];
    }
  }
  return left;
}

/* ---- words ---- */

static void code(Rows *x, uint32_t tag, int64_t n) {
  if (n > 0xffffff || (n == 0xffffff && tag >= PIPE_WORD_NEW))
    *vec_push(x->arena, &x->code) = (uint32_t)PIPE_WORD_HIGH << 24 | (uint32_t)(n >> 24);
  *vec_push(x->arena, &x->code) = tag << 24 | ((uint32_t)n & 0xffffff);
}

static void code_word(Rows *x, Word w) {
  const uint32_t tag = tag_of(w) & 0xff;
  const int64_t n = number_of(w);
  if (tag >= PIPE_WORD_SAME)
    code(x, tag, n * PIPE_DISTANCE + (tag_of(w) >> 8));
  else if (tag >= PIPE_WORD_NEW && n == NONE)
    *vec_push(x->arena, &x->code) = tag << 24 | 0xffffff;
  else
    code(x, tag, n);
}

/* Writes parts inside `loop`, which may be inside `outer`. */
static void code_parts(Rows *x, const Part *part, uint32_t n, const Part *loop, const Part *outer) {
  for (; n > 0; n--, part++) {
    if (part->turns) {
      code(x, PIPE_WORD_LOOP, part->turns);
      code_parts(x, part->body, part->nbody, part, loop);
      code(x, PIPE_WORD_END, 0);
      continue;
    }
    for (uint32_t k = part->word0; k < part->word0 + part->nword; k++) {
      code_word(x, x->word.at[k]);
      int64_t by[2] = {loop ? x->step.at[loop->step0 + k - loop->word0] : 0,
                       outer ? x->step.at[outer->step0 + k - outer->word0] : 0};
      for (int i = 0; i < 2; i++)
        if (by[i])
          *vec_push(x->arena, &x->code) = (uint32_t)(i ? PIPE_WORD_OUTER : PIPE_WORD_STEP) << 24 |
                                          ((uint32_t)by[i] & 0xffffff);
    }
  }
}

typedef struct Folded {
  Part *part;
  uint32_t n;
  uint64_t cost;
} Folded;

/* Loops of at most `most` rows, then loops of any length over the result. */
static Folded fold_twice(Rows *x, Repeats rows, uint32_t most) {
  Part *once;
  Folded f = {NULL, fold(x, x->row.at, x->row.n, rows, most, &once), 0};
  f.n = fold(x, once, f.n, find_repeats(x, once, f.n), UINT32_MAX, &f.part);
  for (uint32_t i = 0; i < f.n; i++)
    f.cost += f.part[i].cost;
  return f;
}

/* The best of two folds. A first pass without limit misses loops in loops where one long loop
 * leaves fewer rows than the short loops in it; so a second fold begins with short loops. */
static Folded fold_all(Rows *x, Repeats rows) {
  enum { FEW = 100, SHORT = 32 };
  Folded best = fold_twice(x, rows, UINT32_MAX);
  if (best.cost > FEW) {
    Folded nested = fold_twice(x, rows, SHORT);
    if (nested.cost < best.cost)
      best = nested;
  }
  return best;
}

uint32_t *count_updates(Arena *a, const PipeProgram *p) {
  uint32_t *n = NEW_ARRAY(a, uint32_t, p->nstage);
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++)
      n[p->rank[r].instr[i].stage] += p->rank[r].instr[i].op == PIPE_U;
  return n;
}

/* *of is zeroed. weighted: the program has PipeWeights. */
static void find_fields(OpFields *of, uint32_t op, bool weighted) {
  const Field **slot = of->slot, **number = of->number, **of_weights = of->of_weights;
  for (const Field *field = pipe_field; field->ops; field++) {
    if (!field_has(field, op) || !field->word || (field->weights && !weighted))
      continue;
    if (field_is_slot(field))
      *slot++ = field;
    else if (field->weights)
      *of_weights++ = field;
    else
      *number++ = field;
  }
}

RowMaker *open_rows(Arena *a, const PipeProgram *p) {
  RowMaker *x = NEW(a, RowMaker);
  x->arena = a, x->p = p;
  x->updates = p->rank[0].weights ? count_updates(a, p) : NULL;
  x->use_of = NEW_ARRAY(a, Use *, p->nrank);
  for (uint32_t op = 0; op < PIPE_NOPS; op++)
    find_fields(&x->fields[op], op, x->updates != NULL);
  return x;
}

RankRows make_rows(RowMaker *x, uint32_t r) {
  x->k = &x->p->rank[r];
  x->word.n = x->row.n = x->step.n = x->code.n = 0;
  memset(x->of_op, 0, sizeof x->of_op);
  memset(x->use_of, 0, x->p->nrank * sizeof *x->use_of);
  x->use = NEW_ARRAY(&x->own, Use, x->k->nslot + (size_t)1);
  x->queues = queues_of(x->p, x->k);
  for (uint32_t i = 0; i < x->k->ninstr; i++)
    put_row(x, i);
  const Repeats rows = find_repeats(x, x->row.at, x->row.n);
  const Folded best = fold_all(x, rows);
  code_parts(x, best.part, best.n, NULL, NULL);
  code(x, PIPE_WORD_FINISH, 0);
  uint32_t end = x->word.n;
  put_waits(x, x->k->ninstr);
  for (uint32_t k = end; k < x->word.n; k++)
    code_word(x, x->word.at[k]);
  end_queues(x->queues);
  arena_free(&x->own);
  return (RankRows){x->code.at, x->code.n};
}
