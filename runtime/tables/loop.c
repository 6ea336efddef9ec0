/* SPDX-License-Identifier: MIT
 * pipe_unroll: turns the program for every M (pipe_loop.h) into an ordinary one. Copies the tables
 * with their numbers grown; pipe_expand writes out the lists. Linear in the result. */
#include "pipe_loop.h"
#include "pipe_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* 0: the operation has no value. */
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
    if (b == -1) { /* INT64_MIN / -1 overflows, and % traps */
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

typedef struct Unroll {
  const PipeLooped *l;
  const PipeLoopClass *c;
  int64_t at; /* the value of the parameter */
  uint64_t n; /* its index in the class */
} Unroll;

typedef struct Room {
  char *at; /* NULL: only measure */
  size_t used;
} Room;

static void *take(Room *r, uint64_t count, size_t each) {
  void *p = r->at ? r->at + r->used : NULL;
  r->used += (count * each + 15) & ~(size_t)15;
  return p;
}

/* Copies to the block; NULL if it only measures. */
static void *copy(Room *r, const void *from, uint64_t count, size_t each) {
  void *to = take(r, count, each);
  return to && count ? memcpy(to, from, count * each) : to;
}

/* False: the number is out of range. */
static int grow(const PipeGrow *g, uint64_t n, uint64_t was, int64_t most, uint64_t *to) {
  int64_t v;
  if (__builtin_mul_overflow(g->by, (int64_t)n, &v) ||
      __builtin_add_overflow(v, (int64_t)was, &v) || v < 0 || v > most)
    return 0;
  *to = (uint64_t)v;
  return 1;
}

/* Grows the numbers of the tables, which are copies. */
static int grow_all(const Unroll *u, PipeProgram *p) {
  for (uint32_t i = 0; i < u->c->ngrow; i++) {
    const PipeGrow *g = &u->c->grow[i];
    PipeProgram *program = p;
    PipeRank *rank = (PipeRank *)p->rank + g->row;
    PipeStage *stage = (PipeStage *)p->stage + g->row;
    PipePool *pool = g->what == PIPE_GROWS_pool_first || g->what == PIPE_GROWS_pool_count
                         ? (PipePool *)rank->pool + g->pool
                         : NULL;
    uint64_t v;
    switch (g->what) {
#define X(table, field) \
  case PIPE_GROWS_##table##_##field: \
    if (!grow(g, u->n, table->field, sizeof table->field == 4 ? INT32_MAX : (int64_t)1 << 62, &v)) \
      return 0; \
    table->field = sizeof table->field == 4 ? (uint32_t)v : v; \
    break;
      PIPE_GROWS(X)
#undef X
    case PIPE_GROWS_formula:
      ((PipeTerm *)p->formula[g->row].term)[g->pool].value += (double)g->by * (double)u->n;
      break;
    default: return 0;
    }
  }
  return 1;
}

/* Counts the rows whose range contains microbatch mb of stage m of the model; *one: the last of
 * them. */
static int in_range(const PipeProgram *p, uint32_t m, uint32_t mb, uint32_t *one) {
  int n = 0;
  for (uint32_t i = 0; i < p->nstage; i++)
    if (p->stage[i].model == m && mb - p->stage[i].mb0 < p->stage[i].nmb)
      *one = i, n++;
  return n;
}

/* Fills in the row that runs each stage, by microbatch: by the ranges of the rows. If ranges
 * overlap, the row of the microbatch one period earlier, where a period is the number of
 * microbatches added per n. */
static void fill_rows(const PipeProgram *was, const PipeProgram *p, uint64_t n, uint32_t *row) {
  const uint32_t period = n ? (uint32_t)((p->nmb - was->nmb) / n) : 0;
  for (uint32_t m = 0; m < p->nmodel; m++)
    for (uint32_t mb = 0; mb < p->nmb; mb++) {
      uint32_t *to = &row[(size_t)m * p->nmb + mb];
      if (in_range(p, m, mb, to) == 1)
        continue;
      *to = mb < was->nmb ? was->row[(size_t)m * was->nmb + mb]
            : period      ? to[-(ptrdiff_t)period]
                          : PIPE_NONE;
    }
}

/* Writes "P=4 M=64". */
static void write_params(const Unroll *u, char *text, size_t room) {
  size_t at = 0;
  const PipeLooped *l = u->l;
  for (uint32_t i = 0; i < l->nparam; i++) {
    int64_t v = u->c->param[i].at + u->c->param[i].by * (int64_t)u->n;
    if (l->value && l->value[i].nterm) /* pipe_unroll has checked that it has a value */
      pipe_loop_value(&l->value[i], u->at, &v);
    at += (size_t)snprintf(text + at, room - at, "%s%s=%" PRId64, i ? " " : "", l->param[i], v);
  }
}

/* Copies the tables of the class with grown numbers, after the text of the parameters. NULL: they
 * are too large, or only measured. */
static PipeProgram *tables(const Unroll *u, Room *r) {
  enum { NUMBER = 22 };
  const PipeProgram *was = u->c->p;
  size_t text = 1;
  for (uint32_t i = 0; i < u->l->nparam; i++)
    text += strlen(u->l->param[i]) + 1 + NUMBER;
  char *params = take(r, text, 1); /* first: pipe_unroll_free finds the block by it */
  PipeProgram *p = copy(r, was, 1, sizeof *p);
  PipeRank *rank = copy(r, was->rank, was->nrank, sizeof *rank);
  PipeStage *stage = copy(r, was->stage, was->nstage, sizeof *stage);
  for (uint32_t i = 0; i < was->nrank; i++) {
    PipePool *pool = copy(r, was->rank[i].pool, was->rank[i].npool, sizeof *pool);
    if (rank)
      rank[i].pool = pool;
  }
  PipeFormula *formula = copy(r, was->formula, was->nformula, sizeof *formula);
  for (uint32_t i = 0; i < was->nformula; i++) {
    PipeTerm *term = copy(r, was->formula[i].term, was->formula[i].n, sizeof *term);
    if (formula)
      formula[i].term = term;
  }
  if (p) {
    p->formula = was->nformula ? formula : NULL;
    p->params = params, p->rank = rank, p->stage = stage, p->n = (uint32_t)u->n;
    if (!grow_all(u, p))
      return NULL;
    write_params(u, params, text);
  }
  /* Last: its size depends on grown numbers. */
  uint64_t nmb = p ? p->nmb : was->nmb;
  for (uint32_t i = 0; !p && i < u->c->ngrow; i++)
    if (u->c->grow[i].what == PIPE_GROWS_program_nmb)
      nmb += (uint64_t)u->c->grow[i].by * u->n;
  uint32_t *row = was->row ? take(r, was->nmodel * nmb, sizeof *row) : NULL;
  if (p && row)
    fill_rows(was, p, u->n, row), p->row = row;
  return p;
}

static PipeProgram *refuse(char why[PIPE_LOOP_TEXT], const PipeLooped *l, int64_t value) {
  enum { MOST = 3 };
  const char *name = l->param[l->open];
  int at = snprintf(why, PIPE_LOOP_TEXT, "no program for %s = %" PRId64 "; there are programs for",
                    name, value);
  for (uint32_t i = 0; i < l->nclass && i < MOST; i++) {
    const PipeLoopClass *c = &l->cls[i];
    at += snprintf(why + at, PIPE_LOOP_TEXT - (size_t)at, "%s %" PRId64, i ? ";" : "", c->from);
    if (c->step != INT64_MAX) /* else a single value */
      at += snprintf(why + at, PIPE_LOOP_TEXT - (size_t)at, ", %" PRId64 ", %" PRId64 " and so on",
                     c->from + c->step, c->from + 2 * c->step);
  }
  if (l->nclass > MOST)
    snprintf(why + at, PIPE_LOOP_TEXT - (size_t)at, "; and %" PRIu32 " more", l->nclass - MOST);
  return NULL;
}

/* True if the schedule admits the value. False: why is set. */
static int is_meant(const PipeLooped *l, int64_t at, char why[PIPE_LOOP_TEXT]) {
  const char *open = l->param[l->open];
  for (uint32_t i = 0; l->value && i < l->nparam; i++) {
    int64_t v;
    if (l->value[i].nterm && !pipe_loop_value(&l->value[i], at, &v)) {
      snprintf(why, PIPE_LOOP_TEXT, "no program for %s = %" PRId64 ": %s has no value", open, at,
               l->param[i]);
      return 0;
    }
  }
  const PipeLoopFormula *no = pipe_loop_refused(l, at);
  if (no)
    snprintf(why, PIPE_LOOP_TEXT, "no program for %s = %" PRId64 ": the schedule requires %s", open,
             at, no->text);
  return no == NULL;
}

PipeProgram *pipe_unroll(const PipeLooped *l, int64_t at, char why[PIPE_LOOP_TEXT]) {
  if (!l || l->magic != PIPE_LOOP_MAGIC || l->abi != PIPE_ABI) {
    snprintf(why, PIPE_LOOP_TEXT, "this is no looped program of program format %u", PIPE_ABI);
    return NULL;
  }
  if (!is_meant(l, at, why))
    return NULL;
  const PipeLoopClass *c = NULL;
  for (uint32_t i = 0; i < l->nclass && !c; i++)
    if (at >= l->cls[i].from && (at - l->cls[i].from) % l->cls[i].step == 0)
      c = &l->cls[i];
  if (!c)
    return refuse(why, l, at);
  Unroll u = {.l = l, .c = c, .at = at, .n = (uint64_t)((at - c->from) / c->step)};
  PipeProgram *p = NULL, *out = NULL;
  char *block = NULL;
  if (u.n <= INT32_MAX) {
    Room room = {NULL, 0};
    tables(&u, &room);
    block = room.used <= (size_t)1 << 40 ? malloc(room.used) : NULL;
    room = (Room){block, 0};
    p = block ? tables(&u, &room) : NULL;
  }
  if (!p)
    snprintf(why, PIPE_LOOP_TEXT, "%s = %" PRId64 " makes more than a program can have",
             l->param[l->open], at);
  else
    out = pipe_expand(p, why);
  if (!out)
    free(block);
  return out;
}

void pipe_unroll_free(PipeProgram *p) {
  char *block = p ? (char *)(uintptr_t)p->params : NULL;
  pipe_expand_free(p);
  free(block);
}
