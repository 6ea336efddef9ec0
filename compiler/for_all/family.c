/* SPDX-License-Identifier: MIT
 * note [family]: finds the program for every M.
 *
 * Definition: compare the rows of the programs of three values, loops and notes included, word for
 * word. The three are one family if words differ only in numbers, and each number grows from the
 * first to the second as from the second to the third. G then holds this growth.
 *
 * This file proves nothing: verify_for_all proves the program for every M, and for_all.c compares
 * it, unrolled, with what the text gives for further values. Cost: linear in words. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "again.h"
#include "family.h"
#include "lower.h"
#include "pipe_rows.h"

/* ---- words ---- */

static uint32_t tag_of(uint32_t word) { return word >> 24; }

/* What a number that may grow is multiplied by in its word: other numbers are below it. */
static uint32_t unit_of(uint32_t tag) { return tag >= PIPE_WORD_SAME ? PIPE_DISTANCE : 1; }

/* The number of a word that may grow. False: it has none. */
static bool number_of(uint32_t word, int64_t *n) {
  const uint32_t tag = tag_of(word);
  *n = (word & 0xffffff) / unit_of(tag);
  if (tag == PIPE_WORD_BEHIND && *n >= 0x800000)
    *n -= 0x1000000;
  return tag != PIPE_WORD_END && tag != PIPE_WORD_FINISH && tag != PIPE_WORD_AT &&
         tag != PIPE_WORD_STEP && tag != PIPE_WORD_OUTER && tag != NOTE_USE &&
         tag != PIPE_WORD_HIGH && !(tag >= PIPE_WORD_NEW && (word & 0xffffff) == 0xffffff);
}

/* A hash of what must be equal in the programs of all values. */
static uint64_t shape_of(const uint32_t *word, uint32_t n) {
  uint64_t h = n;
  for (uint32_t i = 0; i < n; i++) {
    int64_t number;
    const uint32_t tag = tag_of(word[i]), same = number_of(word[i], &number)
                                                     ? tag << 24 | word[i] % unit_of(tag)
                                                     : word[i];
    h = (h ^ same) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
  }
  return h;
}

/* ---- the program of one value ---- */

void member_make(Sched *s, const char *name, int64_t value, bool stays, Member *m) {
  *m = (Member){.value = value, .kept = m->kept, .made = true, .shape = m->shape};
  m->ok = compile_at(s, &m->s, stays ? s->arena : &m->arena, &m->diag, &m->opt, name, value);
  m->why = m->diag.first;
  for (uint32_t r = 0; m->ok && r < m->s.model->nrank; r++)
    m->rows += m->s.prog->rank[r].ninstr;
}

void member_free(Member *m) {
  if (m->made)
    arena_free(&m->arena);
  *m = (Member){.value = m->value, .ok = m->ok, .why = m->why, .shape = m->shape};
}

bool member_note(Member *m, States *state) {
  if (m->word)
    return true;
  const PipeProgram *p = m->s.prog;
  Arena tmp = {0};
  Noter *noter = open_notes(&tmp, p, state);
  RowMaker *maker = open_rows(&tmp, p);
  if (noter) {
    m->word = NEW_ARRAY(&m->arena, uint32_t *, p->nrank);
    m->nword = NEW_ARRAY(&m->arena, uint32_t, p->nrank);
    m->shape = m->shape ? m->shape : NEW_ARRAY(state->arena, uint64_t, p->nrank);
  }
  for (uint32_t r = 0; noter && r < p->nrank; r++) {
    Notes notes = make_notes(noter, r);
    RankRows rows = make_noted_rows(maker, r, notes.note.at, notes.first);
    m->word[r] = arena_alloc(&m->arena, rows.n * sizeof **m->word + 1);
    memcpy(m->word[r], rows.word, rows.n * sizeof **m->word);
    m->nword[r] = rows.n;
    m->shape[r] = shape_of(rows.word, rows.n);
  }
  arena_free(&tmp);
  return noter != NULL;
}

/* ---- words of three programs ---- */

static bool is_step(uint32_t word) {
  return tag_of(word) >= PIPE_WORD_STEP && tag_of(word) <= PIPE_WORD_GROW;
}

/* The words of rank r with G. False: not one family. */
static bool fit_words(Arena *a, Member *const m[3], uint32_t r, uint32_t **out, uint32_t *nout) {
  const uint32_t n = m[0]->nword[r];
  VEC(uint32_t) word = {0};
  int64_t grow = 0;
  if (m[1]->nword[r] != n || m[2]->nword[r] != n)
    return false;
  for (uint32_t i = 0; i <= n; i++) {
    /* G comes after the steps of its word. */
    if (grow && (i == n || !is_step(m[0]->word[r][i]))) {
      *vec_push(a, &word) = (uint32_t)PIPE_WORD_GROW << 24 | ((uint32_t)grow & 0xffffff);
      grow = 0;
    }
    if (i == n)
      break;
    const uint32_t w[] = {m[0]->word[r][i], m[1]->word[r][i], m[2]->word[r][i]};
    *vec_push(a, &word) = w[0];
    if (w[0] == w[1] && w[0] == w[2])
      continue;
    int64_t v[3];
    for (int j = 0; j < 3; j++)
      if (tag_of(w[j]) != tag_of(w[0]) || !number_of(w[j], &v[j]))
        return false;
    grow = v[1] - v[0];
    if (v[2] - v[1] != grow || grow > 0x7fffff || grow < -0x7fffff ||
        ((w[0] ^ w[1]) | (w[0] ^ w[2])) % unit_of(tag_of(w[0])))
      return false;
  }
  *out = word.at, *nout = word.n;
  return true;
}

/* ---- other tables ---- */

typedef struct Grows {
  VEC(PipeGrow) grow;
  bool even;
} Grows;

static void fit_number(Arena *a, Grows *g, PipeGrows what, uint32_t row, uint32_t pool,
                       const uint64_t v[3]) {
  const int64_t by = (int64_t)(v[1] - v[0]);
  g->even &= by == (int64_t)(v[2] - v[1]);
  if (by)
    *vec_push(a, &g->grow) = (PipeGrow){.what = what, .row = row, .pool = pool, .by = by};
}

/* Fits the numbers of one table of three programs: the fields of `table`. */
#define FIT(table, field, of0, of1, of2) \
  if (strcmp(#table, of) == 0) \
    fit_number(a, g, PIPE_GROWS_##table##_##field, row, pool, \
               (const uint64_t[]){(of0)->field, (of1)->field, (of2)->field});

static void fit_table(Arena *a, Grows *g, const char *of, uint32_t row, uint32_t pool,
                      const void *const t[3]) {
  const PipeProgram *const program[] = {t[0], t[1], t[2]};
  const PipeRank *const rank[] = {t[0], t[1], t[2]};
  const PipePool *const pool_[] = {t[0], t[1], t[2]};
  const PipeStage *const stage[] = {t[0], t[1], t[2]};
#define OF_program      program
#define OF_rank         rank
#define OF_pool         pool_
#define OF_stage        stage
#define X(table, field) FIT(table, field, OF_##table[0], OF_##table[1], OF_##table[2])
  PIPE_GROWS(X)
#undef X
}

/* Fits the constants of formulas. */
static bool fit_formulas(Arena *a, const PipeProgram *const p[3], Grows *g) {
  if (p[0]->nformula != p[1]->nformula || p[0]->nformula != p[2]->nformula)
    return false;
  for (uint32_t i = 0; i < p[0]->nformula; i++) {
    const PipeFormula *const f[] = {&p[0]->formula[i], &p[1]->formula[i], &p[2]->formula[i]};
    if (f[0]->n != f[1]->n || f[0]->n != f[2]->n)
      return false;
    for (uint32_t k = 0; k < f[0]->n; k++) {
      const double by = f[1]->term[k].value - f[0]->term[k].value;
      if (by != f[2]->term[k].value - f[1]->term[k].value || by < -1e6 || by > 1e6 ||
          by != (double)(int64_t)by)
        return false;
      if (by != 0)
        *vec_push(a, &g->grow) = (PipeGrow){
            .what = PIPE_GROWS_formula, .row = i, .pool = k, .by = (int64_t)by};
    }
  }
  return true;
}

static bool fit_tables(Arena *a, const PipeProgram *const p[3], Grows *g) {
  g->even = true;
  fit_table(a, g, "program", 0, 0, (const void *const[]){p[0], p[1], p[2]});
  for (uint32_t r = 0; r < p[0]->nrank; r++) {
    const PipeRank *const k[] = {&p[0]->rank[r], &p[1]->rank[r], &p[2]->rank[r]};
    fit_table(a, g, "rank", r, 0, (const void *const[]){k[0], k[1], k[2]});
    if (k[0]->npool != k[1]->npool || k[0]->npool != k[2]->npool)
      return false;
    for (uint32_t i = 0; i < k[0]->npool; i++)
      fit_table(a, g, "pool", r, i,
                (const void *const[]){&k[0]->pool[i], &k[1]->pool[i], &k[2]->pool[i]});
  }
  for (uint32_t i = 0; i < p[0]->nstage; i++)
    fit_table(a, g, "stage", i, 0,
              (const void *const[]){&p[0]->stage[i], &p[1]->stage[i], &p[2]->stage[i]});
  return g->even && fit_formulas(a, p, g);
}

/* Reads the numbers of "P=4 M=8". */
static bool fit_params(Arena *a, const PipeProgram *const p[3], const PipeLinear **out) {
  const char *at[] = {p[0]->params, p[1]->params, p[2]->params};
  VEC(PipeLinear) all = {0};
  while (*at[0]) {
    long long v[3];
    for (int j = 0; j < 3; j++) {
      char *end;
      v[j] = strtoll(at[j] + strcspn(at[j], "=") + 1, &end, 10);
      at[j] = *end ? end + 1 : end;
    }
    /* A parameter that does not grow evenly has a formula (formulas_of_m), or family_is fails. */
    *vec_push(a, &all) = (PipeLinear){v[0], v[1] - v[0]};
  }
  *out = all.at;
  return true;
}

/* ---- the class ---- */

void family_program(Arena *a, ForAllProof *e, PipeLoopClass *c, const Member *m) {
  PipeProgram *p = arena_alloc(a, sizeof *p);
  PipeRank *rank = arena_alloc(a, m->s.prog->nrank * sizeof *rank);
  *p = *m->s.prog;
  p->rank = rank, p->hash = 0;
  for (uint32_t r = 0; r < p->nrank; r++) {
    const RankRows rows = family_rows(a, e, r);
    rank[r] = m->s.prog->rank[r];
    rank[r].weighted = rank[r].weights != NULL;
    rank[r].instr = NULL, rank[r].list = NULL, rank[r].sync = NULL, rank[r].weights = NULL;
    rank[r].rows = rows.word, rank[r].nrows = rows.n;
  }
  e->p = m->s.prog;
  c->p = p;
}

bool family_fit(Arena *a, Member *const m[3], int64_t step, ForAllProof *out, const char **why) {
  const PipeProgram *const p[] = {m[0]->s.prog, m[1]->s.prog, m[2]->s.prog};
  Grows g = {.even = true};
  PipeLoopClass *c = NEW(a, PipeLoopClass);
  *c = (PipeLoopClass){.from = m[0]->value, .step = step};
  *out = (ForAllProof){.cls = c};
  *why = "its ranks, stages or pools depend on it";
  if (p[0]->nrank != p[1]->nrank || p[0]->nrank != p[2]->nrank || p[0]->nstage != p[1]->nstage ||
      p[0]->nstage != p[2]->nstage)
    return false;
  uint32_t **word = NEW_ARRAY(a, uint32_t *, p[0]->nrank),
           *nword = NEW_ARRAY(a, uint32_t, p[0]->nrank);
  for (uint32_t r = 0; r < p[0]->nrank; r++)
    if (!fit_words(a, m, r, &word[r], &nword[r])) {
      *why = arena_printf(a, "the list of rank %u does not come to repeat", r);
      return false;
    }
  *why = "memory or times do not grow linearly";
  if (!fit_tables(a, p, &g) || !fit_params(a, p, &c->param))
    return false;
  c->grow = g.grow.at, c->ngrow = g.grow.n;
  out->word = word, out->nword = nword;
  family_program(a, out, c, m[0]);
  return true;
}

bool family_lower(Arena *a, ForAllProof *e, int64_t steps, const Member *m) {
  uint32_t **word = NEW_ARRAY(a, uint32_t *, e->p->nrank);
  for (uint32_t r = 0; r < e->p->nrank; r++) {
    word[r] = arena_alloc(a, e->nword[r] * sizeof **word + 1);
    uint32_t of = 0; /* the word to which the next G belongs */
    for (uint32_t i = 0; i < e->nword[r]; i++) {
      const uint32_t w = word[r][i] = e->word[r][i];
      if (!is_step(w))
        of = i;
      if (tag_of(w) != PIPE_WORD_GROW)
        continue;
      int64_t by = w & 0xffffff, n;
      by = (by >= 0x800000 ? by - 0x1000000 : by) * steps;
      const uint32_t tag = tag_of(word[r][of]);
      number_of(word[r][of], &n);
      n -= by;
      const int64_t least = tag == PIPE_WORD_LOOP ? 1 : tag == PIPE_WORD_BEHIND ? -0x7fffff : 0;
      const int64_t most = 0x7fffff / unit_of(tag);
      if (n < least || n > most)
        return false;
      word[r][of] = tag << 24 |
                    (((uint32_t)n * unit_of(tag) + word[r][of] % unit_of(tag)) & 0xffffff);
    }
  }
  PipeLoopClass *c = NEW(a, PipeLoopClass);
  uint32_t nparam = 0;
  for (const char *t = m->s.prog->params; *t; t++)
    nparam += *t == '=';
  PipeLinear *param = arena_alloc(a, nparam * sizeof *param + 1);
  *c = *e->cls;
  for (uint32_t i = 0; i < nparam; i++)
    param[i] = (PipeLinear){c->param[i].at - c->param[i].by * steps, c->param[i].by};
  c->param = param;
  c->from -= c->step * steps;
  e->word = word, e->cls = c;
  family_program(a, e, c, m);
  return true;
}

RankRows family_rows(Arena *a, const ForAllProof *e, uint32_t r) {
  uint32_t *word = arena_alloc(a, e->nword[r] * sizeof *word + 1), n = 0;
  bool noted = false;
  for (uint32_t i = 0; i < e->nword[r]; i++) {
    const uint32_t w = e->word[r][i], tag = tag_of(w);
    if (!is_step(w))
      noted = tag >= NOTE_TIME && tag <= NOTE_TURN;
    if (!noted)
      word[n++] = w;
  }
  return (RankRows){word, n};
}

static bool same_sites(const PipeProgram *a, const PipeProgram *b) {
  if (a->nsite != b->nsite || a->nfile != b->nfile ||
      memcmp(a->site, b->site, a->nsite * sizeof *a->site) != 0)
    return false;
  for (uint32_t r = 0; r < a->nrank; r++)
    for (uint32_t i = 0; i < a->rank[r].ninstr; i++)
      if (a->rank[r].instr[i].site != b->rank[r].instr[i].site)
        return false;
  return true;
}

bool family_is(Arena *a, const PipeLooped *l, const ForAllProof *e, const Member *m) {
  char *why = arena_alloc(a, PIPE_LOOP_TEXT);
  PipeLooped one = *l;
  one.cls = e->cls, one.nclass = 1;
  errno = 0;
  PipeProgram *p = pipe_unroll(&one, m->value, why);
  if (!p && errno == ENOMEM)
    guard_no_memory(0);
  const bool ok = p && p->hash == m->s.prog->hash && strcmp(p->params, m->s.prog->params) == 0 &&
                  same_sites(p, m->s.prog);
  pipe_unroll_free(p);
  return ok;
}
