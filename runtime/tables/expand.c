/* SPDX-License-Identifier: MIT
 * pipe_expand: turns rows and loops (pipe_rows.h) into the tables of PipeRank. It reads the words
 * of a list once, then executes them, those of a loop once for each turn. Linear in its output. It
 * trusts nothing in a list: it checks every number against the table that it refers to. */
#include "fields.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 2 }; /* most nested loops */

/* A word with the HIGH before it and the steps after it. */
typedef struct Word {
  int64_t n;              /* its number, before any turn */
  int32_t step[DEPTH];    /* added to n by turn of the innermost loop, of the loop around it */
  uint32_t at;            /* word of the list */
  uint8_t tag, op, field; /* op, field: of the other row, for PIPE_WORD_SAME */
} Word;

typedef struct Loop {
  const Word *begin; /* first word after LOOP */
  uint32_t turns;
  uint32_t row; /* first row of the current turn */
} Loop;

/* The rows of an op so far; other rows name them by distance. */
typedef struct OpRows {
  uint32_t *row, n, room;
} OpRows;

/* Memory that every rank reuses. */
typedef struct Scratch {
  uint32_t *nth;  /* [most rows of a rank] position of each row in its queue, from 1 */
  uint32_t *done; /* [queues] rows so far */
  Word *word;     /* [most words of a rank + 1] */
  OpRows of[PIPE_NOPS];
  const Field *field[PIPE_WORD_SAME]; /* that a word writes, or the slot that it names; or NULL */
} Scratch;

typedef struct Expand {
  const PipeProgram *p;
  uint32_t rank, at; /* at: word of the list, for messages */
  uint32_t nword;
  const Word *word; /* [nword], then one of no row */
  PipeRank *to;
  PipeInstr *instr;
  PipeWeights *weights; /* NULL: none */
  uint32_t *list;
  PipeWait *wait;
  uint32_t nrow, nlist, nwait;
  Loop loop[DEPTH];
  uint32_t turn[DEPTH]; /* of the innermost loop, of the loop around it; 0: no loop */
  uint32_t depth;
  Scratch *scratch;
  char *why;
} Expand;

static int refuse(const Expand *x, const char *fmt, ...) {
  char text[PIPE_EXPAND_TEXT - 80];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  snprintf(x->why, PIPE_EXPAND_TEXT, "program: rank %u, word %u, row %u: %s", x->rank, x->at,
           x->nrow, text);
  return 0;
}

static uint32_t tag_of(uint32_t word) { return word >> 24; }
static int64_t number_of(uint32_t word) { return word & 0xffffff; }
static int32_t signed_of(uint32_t word) {
  return (int32_t)((word & 0xffffff) ^ 0x800000) - 0x800000;
}

/* Reads the steps (STEP, OUTER) of a word, which stands in `depth` loops, and moves *at past
 * them. */
static int read_steps(const Expand *x, uint32_t *at, uint32_t depth, Word *w) {
  const PipeRank *k = &x->p->rank[x->rank];
  for (uint32_t tag = PIPE_WORD_STEP; tag <= PIPE_WORD_OUTER && *at < k->nrows; tag++) {
    const uint32_t level = tag - PIPE_WORD_STEP;
    if (tag_of(k->rows[*at]) != tag)
      continue;
    const int32_t step = signed_of(k->rows[(*at)++]);
    if (depth <= level)
      return refuse(x, "a step by turn, and no loop");
    w->step[level] = step;
  }
  return 1;
}

/* Reads the words of the list into x->word. */
static int read_words(Expand *x, Word *out) {
  const PipeRank *k = &x->p->rank[x->rank];
  uint32_t depth = 0;
  x->word = out;
  for (uint32_t at = 0; at < k->nrows; out++, x->nword++) {
    x->at = at;
    const int large = tag_of(k->rows[at]) == PIPE_WORD_HIGH;
    const int64_t high = large ? number_of(k->rows[at++]) << 24 : 0;
    if (at == k->nrows)
      return refuse(x, "the list has no end");
    const uint32_t word = k->rows[at++];
    *out = (Word){.tag = (uint8_t)tag_of(word), .at = x->at, .n = number_of(word) | high};
    if (out->tag == PIPE_WORD_BEHIND)
      out->n = signed_of(word);
    if (out->tag >= PIPE_WORD_SAME) {
      out->field = (uint8_t)(out->n % PIPE_NFIELDS);
      out->op = (uint8_t)(out->n % PIPE_DISTANCE / PIPE_NFIELDS);
      out->n /= PIPE_DISTANCE;
    } else if (out->tag >= PIPE_WORD_NEW && number_of(word) == 0xffffff && !large) {
      out->n = PIPE_NONE; /* an empty entry of a list */
    }
    if (!read_steps(x, &at, depth, out))
      return 0;
    depth += out->tag == PIPE_WORD_LOOP;
    depth -= out->tag == PIPE_WORD_END && depth > 0;
  }
  *out = (Word){.tag = PIPE_WORD_END, .at = k->nrows};
  return 1;
}

/* Gives the number of a word in the current turns. */
static inline int number(Expand *x, const Word *w, int64_t *n) {
  *n = w->n + w->step[0] * (int64_t)x->turn[0] + w->step[1] * (int64_t)x->turn[1];
  if ((uint64_t)*n <= UINT32_MAX || (w->tag == PIPE_WORD_BEHIND && *n < 0 && *n >= INT32_MIN))
    return 1;
  return refuse(x, "the number %lld is out of range", (long long)*n);
}

/* ---- rows ---- */

/* The address of entry i of the list of a row; NULL: none. */
static uint32_t *list_entry(Expand *x, uint32_t row, uint32_t i) {
  const PipeInstr *c = &x->instr[row];
  const PipeStage *st = &x->p->stage[c->stage];
  if (pipe_stream_of(c->op) != PIPE_COMPUTE || c->op == PIPE_SIDE || c->op == PIPE_U)
    return NULL;
  uint32_t nin = c->in != PIPE_NONE ? pipe_fields(st, c->op, 1) : 0,
           nout = c->out != PIPE_NONE ? pipe_fields(st, c->op, 0) : 0;
  uint32_t first = nin > 1 ? c->in_list : c->out_list;
  uint32_t n = (nin > 1 ? nin : 0) + (nout > 1 ? nout : 0);
  return i < n && first < x->nlist && i < x->nlist - first ? &x->list[first + i] : NULL;
}

/* The address of the field of a row to which a word belongs; NULL: there is none. */
static uint32_t *field_of(Expand *x, uint32_t row, uint32_t word) {
  const Field *field = x->scratch->field[word];
  if (!field || (field->weights && !x->weights))
    return NULL;
  const PipeWeights *weights = field->weights ? &x->weights[row] : NULL;
  return (uint32_t *)(uintptr_t)field_at(field, &x->instr[row], weights);
}

/* The address of a field that holds a slot; NULL: the row has no such field. */
static uint32_t *slot_of(Expand *x, uint32_t row, uint32_t field) {
  return field < PIPE_FIELD_LIST ? field_of(x, row, PIPE_WORD_NEW + field)
                                 : list_entry(x, row, field - PIPE_FIELD_LIST);
}

static int put_slot(Expand *x, uint32_t field, uint32_t slot) {
  if (field == PIPE_FIELD_LIST) {
    if (x->nlist == x->to->nlist)
      return refuse(x, "more slots in lists than the %u of the rank", x->to->nlist);
    x->list[x->nlist++] = slot;
    return 1;
  }
  uint32_t *to = field < PIPE_FIELD_LIST ? slot_of(x, x->nrow, field) : NULL;
  if (!to)
    return refuse(x, "field %u is no slot", field);
  *to = slot;
  return 1;
}

static int same_slot(Expand *x, const Word *w, int64_t n) {
  const OpRows *of = w->op < PIPE_NOPS ? &x->scratch->of[w->op] : NULL;
  uint32_t *from = of && n > 0 && n <= of->n ? slot_of(x, of->row[of->n - (uint32_t)n], w->field)
                                             : NULL;
  if (!from || *from == PIPE_NONE)
    return refuse(x, "op %u has no slot in field %u, %lld above", w->op, w->field, (long long)n);
  return put_slot(x, w->tag - PIPE_WORD_SAME, *from);
}

/* The wait for the row `back` rows above; 0: for the start of the step. */
static int put_wait(Expand *x, int64_t back) {
  if (back > x->nrow || x->nwait == x->to->nwait)
    return refuse(x, "wait %u of %u, for the row %lld above", x->nwait, x->to->nwait,
                  (long long)back);
  const uint32_t row = x->nrow - (uint32_t)back;
  x->wait[x->nwait++] = back ? (PipeWait){pipe_queue(x->p->lowering, &x->instr[row]),
                                          x->scratch->nth[row]}
                             : (PipeWait){PIPE_COMPUTE, 0};
  return 1;
}

/* Numbers the current row in its queue. */
static int put_in_queue(Expand *x, const PipeInstr *c) {
  if (pipe_op_info[c->op].comm && x->p->lowering == PIPE_CHANNELS && c->channel >= x->p->nchannel)
    return refuse(x, "channel %u of %u", c->channel, x->p->nchannel);
  x->scratch->nth[x->nrow] = ++x->scratch->done[pipe_queue(x->p->lowering, c)];
  return 1;
}

/* Executes one word of a row, whose number is n. */
static int put_word(Expand *x, PipeInstr *c, const Word *w, int64_t n) {
  const uint32_t tag = w->tag;
  uint32_t *to;
  if (tag >= PIPE_WORD_SAME)
    return same_slot(x, w, n);
  if (tag >= PIPE_WORD_NEW)
    return put_slot(x, tag - PIPE_WORD_NEW, (uint32_t)n);
  switch (tag) {
  case PIPE_WORD_MB: c->mb = (uint32_t)n; return 1;
  case PIPE_WORD_AT: c->phase = n & 3, c->site = (uint32_t)(n >> 2); return 1;
  case PIPE_WORD_GROUP: c->group = (uint16_t)n; return 1;
  case PIPE_WORD_AFTER: c->nwait++; return put_wait(x, n);
  case PIPE_WORD_PEER: c->peer = (uint32_t)n; return 1;
  case PIPE_WORD_INS: c->in_list = x->nlist; return 1;
  case PIPE_WORD_OUTS:
    c->out_list = x->nlist +
                  (c->in == x->nlist ? pipe_fields(&x->p->stage[c->stage], c->op, 1) : 0);
    return 1;
  default:
    if (!(to = field_of(x, x->nrow, tag)))
      return refuse(x, "a word of kind %u inside of a row", tag);
    *to = (uint32_t)n;
    return 1;
  }
}

/* Finds the other rank of a SEND or RECV. */
static int find_peer(Expand *x, PipeInstr *c) {
  const PipeProgram *p = x->p;
  if (!pipe_is_move(c->op))
    return 1;
  if (p->edge && (c->edge >= p->nedge || c->mb >= p->nmb || !p->row))
    return refuse(x, "edge %u, microbatch %u", c->edge, c->mb);
  uint32_t other = pipe_other_end(pipe_graph(p), c);
  if (other >= p->nstage)
    return refuse(x, "nothing is at the other end");
  c->peer = p->stage[other].rank;
  return 1;
}

static int add_op_row(Expand *x, OpRows *of) {
  if (of->n == of->room) {
    const uint32_t room = of->room ? 2 * of->room : 64;
    uint32_t *row = realloc(of->row, room * sizeof *row);
    if (!row)
      return refuse(x, "no memory");
    of->row = row, of->room = room;
  }
  of->row[of->n++] = x->nrow;
  return 1;
}

/* Writes the row that begins with word w. Returns the word after it; NULL: why is set. */
static const Word *put_row(Expand *x, const Word *w, int64_t stage) {
  if (x->nrow == x->to->ninstr || stage >= x->p->nstage) {
    refuse(x, "more than %u rows, or stage %lld of %u", x->to->ninstr, (long long)stage,
           x->p->nstage);
    return NULL;
  }
  PipeInstr *c = &x->instr[x->nrow];
  *c = pipe_instr((PipeOp)w->tag, (uint32_t)stage, PIPE_NONE);
  c->waits = x->nwait;
  if (x->weights)
    x->weights[x->nrow] = pipe_no_weights();
  while ((++w)->tag > PIPE_WORD_FINISH) {
    int64_t n;
    if (!number(x, w, &n) || !put_word(x, c, w, n))
      return NULL;
  }
  if (!find_peer(x, c) || !put_in_queue(x, c) || !add_op_row(x, &x->scratch->of[c->op]))
    return NULL;
  x->nrow++;
  return w;
}

/* ---- loops ---- */

static const Word *begin_loop(Expand *x, const Word *w, uint32_t turns) {
  if (x->depth == DEPTH || turns == 0) {
    refuse(x, "a loop of %u turns, %u around it", turns, x->depth);
    return NULL;
  }
  x->loop[x->depth++] = (Loop){w + 1, turns, x->nrow};
  x->turn[1] = x->turn[0], x->turn[0] = 0;
  return w + 1;
}

static const Word *end_turn(Expand *x, const Word *w) {
  Loop *l = x->depth ? &x->loop[x->depth - 1] : NULL;
  if (!l || l->row == x->nrow) {
    refuse(x, "the end of a loop that is none, or has no row");
    return NULL;
  }
  l->row = x->nrow;
  if (++x->turn[0] < l->turns)
    return l->begin;
  x->depth--;
  x->turn[0] = x->turn[1], x->turn[1] = 0;
  return w + 1;
}

/* w: FINISH. */
static int end_list(Expand *x, const Word *w) {
  while ((++w)->tag > PIPE_WORD_FINISH) {
    int64_t n;
    if (!number(x, w, &n))
      return 0;
    if (w->tag != PIPE_WORD_AFTER)
      return refuse(x, "a word of kind %u at the end of the step", w->tag);
    if (!put_wait(x, n))
      return 0;
  }
  if (x->depth || x->nrow != x->to->ninstr || x->nlist != x->to->nlist ||
      x->nwait != x->to->nwait || w != x->word + x->nword)
    return refuse(x, "%u rows of %u, %u slots in lists of %u, %u waits of %u", x->nrow,
                  x->to->ninstr, x->nlist, x->to->nlist, x->nwait, x->to->nwait);
  return 1;
}

static int expand_rank(Expand *x) {
  for (const Word *w = x->word; w < x->word + x->nword;) {
    int64_t n;
    x->at = w->at;
    if (!number(x, w, &n))
      return 0;
    if (w->tag == PIPE_WORD_FINISH)
      return end_list(x, w);
    if (w->tag == PIPE_WORD_LOOP)
      w = begin_loop(x, w, (uint32_t)n);
    else if (w->tag == PIPE_WORD_END)
      w = end_turn(x, w);
    else if (w->tag < PIPE_NOPS)
      w = put_row(x, w, n);
    else
      return refuse(x, "a word of kind %u, and no row", w->tag);
    if (!w)
      return 0;
  }
  return refuse(x, "the list has no end");
}

/* ---- the block ---- */

typedef struct Room {
  char *at; /* NULL: only count */
  size_t used;
} Room;

static void *take(Room *r, uint64_t n, size_t each) {
  void *p = r->at ? r->at + r->used : NULL;
  r->used += (n * each + 15) & ~(size_t)15;
  return p;
}

/* The tables of rank r with addresses in the block. */
static PipeRank lay_out(const PipeProgram *p, uint32_t r, Room *room) {
  PipeRank k = p->rank[r];
  k.instr = take(room, k.ninstr, sizeof *k.instr);
  k.weights = k.weighted ? take(room, k.ninstr, sizeof *k.weights) : NULL;
  k.list = k.nlist ? take(room, k.nlist, sizeof *k.list) : NULL;
  k.wait = take(room, k.nwait, sizeof *k.wait);
  k.rows = NULL, k.nrows = 0;
  return k;
}

/* Fills in the tables of k, which have addresses. */
static int fill_in(const PipeProgram *p, uint32_t r, PipeRank *k, Scratch *scratch, char *why) {
  Expand x = {.p = p, .rank = r, .to = k, .scratch = scratch, .why = why};
  for (int op = 0; op < PIPE_NOPS; op++)
    scratch->of[op].n = 0;
  memset(scratch->done, 0, (PIPE_NSTREAMS + (size_t)p->nchannel) * sizeof *scratch->done);
  x.instr = (PipeInstr *)k->instr, x.weights = (PipeWeights *)k->weights;
  x.list = (uint32_t *)k->list, x.wait = (PipeWait *)k->wait;
  if (!p->rank[r].rows)
    return refuse(&x, "there are no rows");
  if (!read_words(&x, scratch->word) || !expand_rank(&x))
    return 0;
  const uint64_t hash = pipe_rank_hash(k);
  if (p->hash == 0)
    k->hash = hash;
  return hash == k->hash || refuse(&x, "the rows differ from the proved program");
}

/* Writes out ranks from .. from + n - 1 in one block, after `head` bytes. NULL: why is set. */
static char *expand(const PipeProgram *p, uint32_t from, uint32_t n, size_t head, PipeRank *rank,
                    char *why) {
  Room count = {NULL, head};
  size_t most = 0, words = 0;
  for (uint32_t r = from; r < from + n; r++) {
    most = p->rank[r].ninstr > most ? p->rank[r].ninstr : most;
    words = p->rank[r].nrows > words ? p->rank[r].nrows : words;
    lay_out(p, r, &count);
  }
  Scratch scratch = {.nth = malloc((most + 1) * sizeof *scratch.nth),
                     .done = malloc((PIPE_NSTREAMS + (size_t)p->nchannel) * sizeof *scratch.done),
                     .word = malloc((words + 1) * sizeof *scratch.word)};
  Room block = {malloc(count.used + 1), head}; /* fill_in leaves no byte of a table unwritten */
  int ok = scratch.nth && scratch.done && scratch.word && block.at;
  for (const Field *field = pipe_field; field->ops; field++)
    scratch.field[field->word] = field;
  if (!ok)
    snprintf(why, PIPE_EXPAND_TEXT, "no memory for the lists of %u ranks: %zu bytes", n,
             count.used);
  for (uint32_t r = 0; ok && r < n; r++) {
    PipeRank *to = rank ? &rank[r] : &((PipeRank *)(void *)block.at)[r];
    *to = lay_out(p, from + r, &block);
    ok = fill_in(p, from + r, to, &scratch, why);
  }
  free(scratch.nth);
  free(scratch.done);
  free(scratch.word);
  for (int op = 0; op < PIPE_NOPS; op++)
    free(scratch.of[op].row);
  if (!ok)
    free(block.at);
  return ok ? block.at : NULL;
}

int pipe_check_hash(const PipeProgram *p, char why[PIPE_EXPAND_TEXT]) {
  snprintf(why, PIPE_EXPAND_TEXT,
           "program: the tables differ from the proved program: the hash differs");
  return pipe_program_hash(p) == p->hash;
}

int pipe_expand_rank(const PipeProgram *p, uint32_t r, PipeRank *out, char why[PIPE_EXPAND_TEXT]) {
  return expand(p, r, 1, 0, out, why) != NULL;
}

PipeProgram *pipe_expand(const PipeProgram *p, char why[PIPE_EXPAND_TEXT]) {
  snprintf(why, PIPE_EXPAND_TEXT, "program: the program has no rows to write out");
  if (!pipe_is_rows(p) || !p->stage)
    return NULL;
  size_t ranks = p->nrank * sizeof(PipeRank), head = (ranks + sizeof *p + 15) & ~(size_t)15;
  if (p->hash != 0 && !pipe_check_hash(p, why))
    return NULL;
  char *block = expand(p, 0, p->nrank, head, NULL, why);
  if (!block)
    return NULL;
  PipeProgram *out = (PipeProgram *)(void *)(block + ranks);
  *out = *p;
  out->rank = (PipeRank *)(void *)block;
  if (p->hash == 0)
    out->hash = pipe_program_hash(out);
  return out;
}

void pipe_expand_free(PipeProgram *p) {
  if (p)
    free((void *)(uintptr_t)p->rank);
}
