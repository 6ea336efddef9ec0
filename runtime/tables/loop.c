/* SPDX-License-Identifier: MIT
 * pipe_unroll: a looped program (pipe_loop.h) as an ordinary one. Linear in the result, which is
 * one allocation: the same steps first measure it, then fill it in. */
#include "pipe_loop.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Room {
  char *at; /* NULL: only measured */
  size_t used;
  int over; /* more than a program can have */
} Room;

typedef struct Unroll {
  Room room;
  int64_t at;
  const PipeLoopClass *c;
  uint64_t n;
  const PipePool *pool; /* of the rank at hand */
} Unroll;

/* ---- formulas ---- */

static int less(int64_t a, int64_t b, uint32_t op) {
  switch (op) {
  case PIPE_LOOP_LT: return a < b;
  case PIPE_LOOP_LE: return a <= b;
  case PIPE_LOOP_GT: return a > b;
  case PIPE_LOOP_GE: return a >= b;
  case PIPE_LOOP_EQ: return a == b;
  default: return a != b;
  }
}

/* 0: it has no value. */
static int combine(int64_t a, int64_t b, uint32_t op, int64_t *to) {
  switch (op) {
  case PIPE_LOOP_ADD: return !__builtin_add_overflow(a, b, to);
  case PIPE_LOOP_SUB: return !__builtin_sub_overflow(a, b, to);
  case PIPE_LOOP_MUL: return !__builtin_mul_overflow(a, b, to);
  case PIPE_LOOP_MIN: *to = a < b ? a : b; return 1;
  case PIPE_LOOP_MAX: *to = a > b ? a : b; return 1;
  case PIPE_LOOP_DIV:
  case PIPE_LOOP_MOD:
    if (b == 0)
      return 0;
    if (b == -1) { /* the least has no quotient, and a remainder that the machine does not know */
      *to = 0;
      return op == PIPE_LOOP_MOD || !__builtin_sub_overflow((int64_t)0, a, to);
    }
    *to = op == PIPE_LOOP_DIV ? a / b - (a % b != 0 && (a < 0) != (b < 0))
                              : a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    return 1;
  default: *to = less(a, b, op); return 1;
  }
}

int pipe_loop_value(const PipeLoopFormula *f, int64_t open, int64_t *value) {
  int64_t stack[PIPE_LOOP_DEPTH + 1], *top = stack; /* one past the top */
  for (uint32_t i = 0; i < f->nterm; i++) {
    const PipeLoopTerm *t = &f->term[i];
    uint64_t n = (uint64_t)t->value, held = (uint64_t)(top - stack);
    if (t->op <= PIPE_LOOP_PICK) {
      if (held == PIPE_LOOP_DEPTH || (t->op == PIPE_LOOP_PICK && n >= held))
        return 0;
      *top++ = t->op == PIPE_LOOP_CONST ? t->value : t->op == PIPE_LOOP_OPEN ? open : stack[n];
      continue;
    }
    if (held < (t->op >= PIPE_LOOP_ADD ? 2u : t->op != PIPE_LOOP_JUMP))
      return 0;
    switch (t->op) {
    case PIPE_LOOP_KEEP:
      if (n >= held)
        return 0;
      stack[n] = top[-1];
      top = stack + n + 1;
      break;
    case PIPE_LOOP_UNLESS:
      if (*--top != 0)
        break;
      /* fall through */
    case PIPE_LOOP_JUMP:
      if (n <= i || n > f->nterm)
        return 0;
      i = (uint32_t)n - 1;
      break;
    case PIPE_LOOP_NEG:
      if (__builtin_sub_overflow((int64_t)0, top[-1], &top[-1]))
        return 0;
      break;
    case PIPE_LOOP_NOT: top[-1] = !top[-1]; break;
    default:
      top--;
      if (!combine(top[-1], top[0], t->op, &top[-1]))
        return 0;
    }
  }
  if (top == stack)
    return 0;
  *value = top[-1];
  return 1;
}

const PipeLoopFormula *pipe_loop_refused(const PipeLooped *l, int64_t value) {
  int64_t v;
  for (uint32_t i = 0; i < l->nadmit; i++)
    if (!pipe_loop_value(&l->admit[i], value, &v) || v == 0)
      return &l->admit[i];
  return NULL;
}

/* ---- tables ---- */

enum { INSTR_WORDS = sizeof(PipeInstr) / 4, WEIGHT_WORDS = sizeof(PipeWeights) / 4 };

static void *take(Room *r, uint64_t count, size_t each) {
  if (count > UINT32_MAX) {
    r->over = 1;
    return NULL;
  }
  void *p = r->at ? r->at + r->used : NULL;
  r->used += (count * each + 15) & ~(size_t)15;
  return p;
}

static int64_t linear(const Unroll *u, PipeLinear l) { return l.at + l.by * (int64_t)u->n; }

static uint64_t turns_of(const Unroll *u, const PipeSegment *s) {
  return (uint64_t)(s->turns + (int64_t)(s->by_n * u->n));
}

static uint64_t count_rows(const Unroll *u, const PipeRolled *t) {
  uint64_t rows = 0;
  for (uint32_t i = 0; i < t->nsegment; i++) {
    if ((int64_t)turns_of(u, &t->segment[i]) < 0)
      return UINT64_MAX;
    rows += t->segment[i].nrow * turns_of(u, &t->segment[i]);
  }
  return rows;
}

static uint32_t value(const Unroll *u, const PipeVary *v, uint32_t word, uint64_t turn) {
  uint64_t x = word + (uint64_t)v->by_turn * turn + (uint64_t)v->by_n * u->n;
  uint32_t y = (uint32_t)x;
  if (v->cycle != PIPE_NONE) {
    const uint32_t *c = u->c->cycle + v->cycle;
    y = c[1 + x % c[0]];
  }
  return v->pool != PIPE_NONE ? y + u->pool[v->pool].first : y;
}

/* Fills a table whose rows have so many words in the first array, and so many in a second one
 * beside it. */
static void fill(const Unroll *u, const PipeRolled *t, void *out, const void *rows, uint32_t words,
                 void *out2, const void *rows2, uint32_t words2) {
  uint32_t *to = out, *to2 = out2;
  for (uint32_t i = 0; i < t->nsegment; i++) {
    const PipeSegment *s = &t->segment[i];
    uint64_t turns = turns_of(u, s);
    for (uint64_t k = 0; k < turns; k++) {
      memcpy(to, (const uint32_t *)rows + (size_t)s->row0 * words, (size_t)s->nrow * words * 4);
      if (out2)
        memcpy(to2, (const uint32_t *)rows2 + (size_t)s->row0 * words2,
               (size_t)s->nrow * words2 * 4);
      for (uint32_t j = s->vary0; j < s->vary0 + s->nvary; j++) {
        const PipeVary *v = &t->vary[j];
        uint32_t *w = v->word < words ? &to[(size_t)v->row * words + v->word]
                                      : &to2[(size_t)v->row * words2 + v->word - words];
        *w = value(u, v, *w, k);
      }
      to += (size_t)s->nrow * words;
      if (out2)
        to2 += (size_t)s->nrow * words2;
    }
  }
}

static void unroll_rank(Unroll *u, uint32_t r, PipeRank *out) {
  const PipeRank *k = &u->c->p->rank[r];
  const PipeLoopRank *l = &u->c->rank[r];
  uint64_t n = count_rows(u, &l->instr), nlist = count_rows(u, &l->list),
           nsync = count_rows(u, &l->sync), npool = count_rows(u, &l->pool);
  PipeInstr *instr = take(&u->room, n, sizeof *instr);
  PipeWeights *weights = k->weights ? take(&u->room, n, sizeof *weights) : NULL;
  uint32_t *list = take(&u->room, nlist, sizeof *list);
  PipeSync *sync = take(&u->room, nsync, sizeof *sync);
  PipePool *pool = take(&u->room, npool, sizeof *pool);
  if (!u->room.at)
    return;
  fill(u, &l->pool, pool, k->pool, sizeof *pool / 4, NULL, NULL, 0);
  u->pool = pool;
  fill(u, &l->instr, instr, k->instr, INSTR_WORDS, weights, k->weights, WEIGHT_WORDS);
  fill(u, &l->list, list, k->list, 1, NULL, NULL, 0);
  fill(u, &l->sync, sync, k->sync, sizeof *sync / 4, NULL, NULL, 0);
  *out = *k;
  out->instr = instr, out->ninstr = (uint32_t)n;
  out->weights = weights;
  out->pool = pool, out->npool = (uint32_t)npool;
  out->list = nlist ? list : NULL, out->nlist = (uint32_t)nlist;
  out->sync = nsync ? sync : NULL, out->nsync = (uint32_t)nsync;
  out->nslot = (uint32_t)linear(u, l->nslot);
  out->inflight = (uint32_t)linear(u, l->inflight);
  out->nevent = (uint32_t)linear(u, l->nevent);
  out->bytes = (uint64_t)linear(u, l->bytes);
  out->host = (uint64_t)linear(u, l->host);
}

/* The rows of the stage table that run each stage, by microbatch. */
static void fill_rows(const PipeProgram *p, uint32_t *row) {
  for (uint32_t i = 0; i < p->nstage; i++)
    for (uint32_t m = p->stage[i].mb0; m < p->stage[i].mb0 + p->stage[i].nmb && m < p->nmb; m++)
      row[(size_t)p->stage[i].model * p->nmb + m] = i;
}

static void unroll(Unroll *u, const PipeLooped *l, PipeProgram *out) {
  enum { NUMBER = 22 };
  const PipeProgram *p = u->c->p;
  size_t text = 1;
  for (uint32_t i = 0; i < l->nparam; i++)
    text += strlen(l->param[i]) + 1 + NUMBER;
  char *params = take(&u->room, text, 1);
  PipeRank *rank = take(&u->room, p->nrank, sizeof *rank);
  PipeStage *stage = take(&u->room, p->nstage, sizeof *stage);
  uint64_t nmb = (uint64_t)linear(u, u->c->nmb);
  uint32_t *row = p->edge ? take(&u->room, p->nmodel * nmb, sizeof *row) : NULL;
  for (uint32_t r = 0; r < p->nrank; r++)
    unroll_rank(u, r, rank ? &rank[r] : NULL);
  if (!u->room.at)
    return;
  fill(u, &u->c->stage, stage, p->stage, sizeof *stage / 4, NULL, NULL, 0);
  *out = *p;
  size_t at = 0;
  for (uint32_t i = 0; i < l->nparam; i++) {
    int64_t v = linear(u, u->c->param[i]);
    if (l->value && l->value[i].nterm) /* (pipe_unroll has asked whether it has one) */
      pipe_loop_value(&l->value[i], u->at, &v);
    at += (size_t)snprintf(params + at, text - at, "%s%s=%" PRId64, i ? " " : "", l->param[i], v);
  }
  out->params = params;
  out->rank = rank;
  out->stage = stage;
  out->nmb = (uint32_t)nmb;
  out->slots = (uint32_t)linear(u, u->c->slots);
  out->makespan = (uint64_t)linear(u, u->c->makespan);
  out->ideal = (uint64_t)linear(u, u->c->ideal);
  out->busy = (uint64_t)linear(u, u->c->busy);
  if (row)
    fill_rows(out, row);
  out->row = row;
  out->hash = pipe_program_hash(out);
}

/* A class of one value: the next one would be too large for any program. */
static int is_short(const PipeLoopClass *c) { return c->step > INT64_MAX / 2; }

static PipeProgram *refuse(char why[PIPE_LOOP_TEXT], const PipeLooped *l, int64_t value) {
  enum { TRIED = 256 };
  const char *name = l->param[l->open];
  int at = snprintf(why, PIPE_LOOP_TEXT, "no program for %s = %" PRId64, name, value);
  uint32_t said = 0, left = 0, ones = 0;
  for (int one = 0; one < 2; one++)
    for (uint32_t i = 0; i < l->nclass; i++) {
      const PipeLoopClass *c = &l->cls[i];
      if (is_short(c) != one)
        continue;
      if (at >= PIPE_LOOP_TEXT - 112 || (!one && said == 3)) {
        left += !one;
        continue;
      }
      if (one) {
        at += snprintf(why + at, PIPE_LOOP_TEXT - (size_t)at, "%s %" PRId64,
                       ones++ ? ","
                       : said ? "; and for"
                              : ", but for",
                       c->from);
        continue;
      }
      int64_t v = c->from;
      int few = 0;
      for (int k = 0; few < 3 && k < TRIED; k++, v += c->step)
        if (!pipe_loop_refused(l, v))
          at += snprintf(why + at, PIPE_LOOP_TEXT - (size_t)at, "%s %" PRId64,
                         few++  ? ","
                         : said ? ";"
                                : ", but for",
                         v);
      if (few == 0)
        continue;
      at += snprintf(why + at, PIPE_LOOP_TEXT - (size_t)at, " and so on");
      said++;
    }
  if (left)
    snprintf(why + at, PIPE_LOOP_TEXT - (size_t)at, ", and %" PRIu32 " more such series", left);
  return NULL;
}

/* Is it more than times may be, 2^62? */
static int is_beyond(PipeLinear l, uint64_t n) {
  int64_t v;
  return __builtin_mul_overflow(l.by, (int64_t)n, &v) || __builtin_add_overflow(v, l.at, &v) ||
         v > (int64_t)1 << 62;
}

PipeProgram *pipe_unroll(const PipeLooped *l, int64_t at, char why[PIPE_LOOP_TEXT]) {
  if (!l || l->magic != PIPE_LOOP_MAGIC || l->abi != PIPE_ABI) {
    snprintf(why, PIPE_LOOP_TEXT, "this is no looped program of program format %u", PIPE_ABI);
    return NULL;
  }
  for (uint32_t i = 0; l->value && i < l->nparam; i++) {
    int64_t v;
    if (l->value[i].nterm && !pipe_loop_value(&l->value[i], at, &v)) {
      snprintf(why, PIPE_LOOP_TEXT, "no program for %s = %" PRId64 ": %s has no value",
               l->param[l->open], at, l->param[i]);
      return NULL;
    }
  }
  const PipeLoopFormula *no = pipe_loop_refused(l, at);
  if (no) {
    snprintf(why, PIPE_LOOP_TEXT, "no program for %s = %" PRId64 ": the schedule requires %s",
             l->param[l->open], at, no->text);
    return NULL;
  }
  const PipeLoopClass *c = NULL;
  for (uint32_t i = 0; i < l->nclass && !c; i++)
    if (at >= l->cls[i].from && (at - l->cls[i].from) % l->cls[i].step == 0)
      c = &l->cls[i]; /* (a step of all values there are: the first one only) */
  if (!c)
    return refuse(why, l, at);
  Unroll u = {.at = at, .c = c, .n = (uint64_t)((at - c->from) / c->step)};
  int64_t nmb;
  if (u.n <= INT32_MAX &&
      (is_beyond(c->makespan, u.n) || is_beyond(c->ideal, u.n) || is_beyond(c->busy, u.n))) {
    snprintf(why, PIPE_LOOP_TEXT, "%s = %" PRId64 " makes sums of times that are too large",
             l->param[l->open], at);
    return NULL;
  }
  if (u.n > INT32_MAX || __builtin_mul_overflow(c->nmb.by, (int64_t)u.n, &nmb) ||
      nmb + c->nmb.at > INT32_MAX)
    u.room.over = 1;
  else
    unroll(&u, l, NULL);
  if (u.room.over) {
    snprintf(why, PIPE_LOOP_TEXT,
             "%s = %" PRId64 " makes more instructions than a program can have", l->param[l->open],
             at);
    return NULL;
  }
  size_t head = (sizeof(PipeProgram) + 15) & ~(size_t)15, bytes = head + u.room.used;
  char *block = malloc(bytes);
  if (!block) {
    snprintf(why, PIPE_LOOP_TEXT, "no memory for the program of %s = %" PRId64 ": %zu bytes",
             l->param[l->open], at, bytes);
    return NULL;
  }
  memset(block, 0, bytes);
  u.room = (Room){.at = block + head};
  unroll(&u, l, (PipeProgram *)block);
  return (PipeProgram *)block;
}

void pipe_unroll_free(PipeProgram *p) { free(p); }
