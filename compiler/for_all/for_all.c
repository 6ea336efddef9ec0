/* SPDX-License-Identifier: MIT
 * The proof for every value of a parameter: a proof of the emitted program, not of the text.
 *
 * Definition: a class is the values from, from + T, from + 2T, ...; its program is one family
 * (family.c).
 *
 * Method: find a class from three consecutive values, compare it with a fourth, and prove it for
 * all its values (verify_for_all). Then move the first value down as long as the text gives this
 * program. Compile the remaining smaller values one by one.
 *
 * Not proved: that the text gives the program of its class for larger values. This is compared, for
 * the values above and for as many more as MOST_COMPARED instructions allow. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "again.h"
#include "family.h"
#include "for_all.h"
#include "lower.h"
#include "orders.h"

enum {
  MOST_T = 96,
  ROUNDS = 7, /* first values that are tried, each twice the one before */
  /* Budgets, in instructions compiled: to find the classes, to compare further values, below the
   * classes. With --check, where nobody asked for every M, 1 / PART_OF_CHECK of each. */
  MOST_ROWS = 1 << 23,
  MOST_COMPARED = 1 << 19,
  MOST_SHORT = 1 << 23,
  PART_OF_CHECK = 32,
  MOST_KEPT = 1 << 17,       /* instructions of members that are kept at a time */
  MOST_SHORT_WORDS = 1 << 14 /* words of rows of small values in the program */
};

typedef struct Search {
  Sched *s;
  const char *name;
  PipeLooped rules; /* parameters and formulas */
  States state;
  VEC(Member *) member;
  uint64_t rows; /* instructions compiled so far */
  uint64_t part; /* divisor of the budgets */
  const char *why;
  Member *wrong; /* the least value found that is refused; NULL */
} Search;

typedef struct Class {
  ForAllProof every;
  Member *like;     /* member of its first value */
  int64_t compared; /* largest value compared */
} Class;

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

static bool no(Search *x, const char *why) {
  x->why = why;
  return false;
}

static bool admits(const Search *x, int64_t value) {
  int64_t v;
  for (uint32_t i = 0; i < x->rules.nparam; i++)
    if (x->rules.value[i].nterm && !pipe_loop_value(&x->rules.value[i], value, &v))
      return false;
  return pipe_loop_refused(&x->rules, value) == NULL;
}

static Member *find_member(Search *x, int64_t value) {
  for (uint32_t i = 0; i < x->member.n; i++)
    if (x->member.at[i]->value == value)
      return x->member.at[i];
  Member *m = NEW(x->s->arena, Member);
  *vec_push(x->s->arena, &x->member) = m;
  m->value = value;
  return m;
}

static Member *member_at(Search *x, int64_t value) {
  Member *m = find_member(x, value);
  if (m->made)
    return m;
  member_make(x->s, x->name, value, false, m);
  x->rows += m->rows;
  const bool refused = !m->ok && m->why != DIAG_REQUIRES && m->why != DIAG_TOO_LARGE &&
                       m->why != DIAG_LOOP && !work_spent(x->s->opt->work);
  if (refused && (!x->wrong || value < x->wrong->value))
    x->wrong = m;
  return m;
}

/* Frees members that no class uses, if members take too much memory. */
static void trim(Search *x) {
  uint64_t rows = 0;
  for (uint32_t i = 0; i < x->member.n; i++)
    rows += x->member.at[i]->rows;
  for (uint32_t i = 0; i < x->member.n && rows > MOST_KEPT; i++)
    if (!x->member.at[i]->kept)
      member_free(x->member.at[i]);
}

/* ---- one class ---- */

/* The member of a value. NULL: it cannot be in a class; x->why. */
static Member *good_at(Search *x, int64_t value) {
  Member *m = member_at(x, value);
  const PipeProgram *p = m->s.prog;
  if (m->ok && (!p->unit_time || p->nunit_time == p->slices))
    return m;
  x->why = m->ok ? "times differ by microbatch"
                 : arena_printf(x->s->arena, "there is no program for %s = %" PRId64 " [%s]",
                                x->name, value, diag_name(m->why));
  return NULL;
}

/* good_at, with notes. */
static Member *noted_at(Search *x, int64_t value) {
  Member *m = good_at(x, value);
  if (!m || member_note(m, &x->state))
    return m;
  x->why = "the lists have no common order";
  return NULL;
}

static const uint64_t *shape_at(Search *x, int64_t value) {
  Member *m = find_member(x, value);
  if (!m->shape)
    m = noted_at(x, value);
  return m ? m->shape : NULL;
}

/* Have the rows of three consecutive values one shape? */
static bool is_one_shape(Search *x, int64_t value, int64_t T) {
  const uint64_t *first = shape_at(x, value);
  for (int j = 1; j < 3 && first; j++) {
    const uint64_t *shape = shape_at(x, value + j * T);
    if (!shape)
      return false;
    for (uint32_t r = 0; r < x->s->model->nrank; r++)
      if (shape[r] != first[r])
        return no(x, arena_printf(x->s->arena, "the list of rank %u does not repeat", r));
  }
  return first != NULL;
}

/* Finds and proves the class of value, value + T, ... False: x->why. */
static bool try_class(Search *x, int64_t value, int64_t T, Class *out) {
  Member *m[4];
  trim(x);
  if (!is_one_shape(x, value, T))
    return false;
  for (int j = 0; j < 4; j++)
    if (!(m[j] = (j < 3 ? noted_at : good_at)(x, value + j * T)))
      return false;
  if (!family_fit(x->s->arena, m, T, &out->every, &x->why))
    return false;
  out->every.state = x->state.all.at, out->every.nstate = x->state.all.n;
  out->like = m[0], out->compared = m[3]->value;
  for (int j = 0; j < 4; j++)
    if (!family_is(x->s->arena, &x->rules, &out->every, m[j]))
      return no(x, "numbers of the program do not grow linearly");
  m[0]->kept = verify_for_all(x->s->arena, &out->every, &x->why);
  return m[0]->kept;
}

/* Moves the first value of a class down, as far as the text gives this program at each value and
 * the program is proved. The lowered program must also equal the old one for the old values. Both
 * grow by equal steps, so comparing one value (c->like) suffices. */
static void lower_class(Search *x, Class *c) {
  const int64_t T = c->every.cls->step, from = c->every.cls->from;
  ForAllProof at;
  int64_t least = from;
  for (int64_t v = from - T; v >= 1; v -= T) {
    Member *m = admits(x, v) ? member_at(x, v) : NULL;
    if (!m)
      continue;
    Arena tmp = {0};
    at = c->every;
    const bool same = m->ok && family_lower(&tmp, &at, (from - v) / T, m) &&
                      family_is(&tmp, &x->rules, &at, m) &&
                      family_is(&tmp, &x->rules, &at, c->like);
    arena_free(&tmp);
    if (!same)
      break;
    least = v;
    trim(x);
  }
  for (; least < from; least += (from - least + 2 * T - 1) / (2 * T) * T) {
    const char *why;
    Member *m = admits(x, least) ? member_at(x, least) : NULL;
    at = c->every;
    if (!m || !family_lower(x->s->arena, &at, (from - least) / T, m) ||
        !verify_for_all(x->s->arena, &at, &why))
      continue;
    c->like->kept = false, m->kept = true;
    c->every = at, c->like = m;
    return;
  }
}

/* Compares the class with what the text gives at v. False: they differ; x->why. */
static bool compare_one(Search *x, const Class *c, int64_t v) {
  Member *m = member_at(x, v);
  if (!work_spent(x->s->opt->work) && (!m->ok || !family_is(x->s->arena, &x->rules, &c->every, m)))
    return no(x, arena_printf(x->s->arena, "the pattern breaks at %s = %" PRId64, x->name, v));
  member_free(m);
  return true;
}

/* Compares a value about twice as large, to see patterns that end soon even if few values follow.
 * Then compares the next values, up to `rows` instructions. False: a value differs; x->why. */
static bool compare_class(Search *x, Class *c, uint64_t rows) {
  const int64_t step = c->every.cls->step;
  int64_t far = c->compared + (c->compared / step + 1) * step;
  while (!admits(x, far) && far < 4 * c->compared)
    far += step;
  if (admits(x, far) && !compare_one(x, c, far))
    return false;
  const uint64_t most = x->rows + rows;
  for (int64_t v = c->compared + step; x->rows < most; v += step) {
    if (!admits(x, v)) {
      if (v > 2 * c->compared)
        break;
      continue;
    }
    if (!compare_one(x, c, v))
      return false;
    if (work_spent(x->s->opt->work))
      break;
    c->compared = v;
  }
  return true;
}

/* ---- all classes ---- */

/* The number of microbatches by which a turn of the longest loop advances, as a common multiple
 * over all ranks. */
static int64_t step_of_loops(Search *x, int64_t value) {
  Member *m = member_at(x, value);
  int64_t all = 1;
  if (!m->ok || !member_note(m, &x->state))
    return 1;
  for (uint32_t r = 0; r < m->s.prog->nrank; r++) {
    uint64_t turns = 0, longest = 0;
    int64_t step = 1;
    uint32_t begin = 0;
    for (uint32_t i = 0; i < m->nword[r]; i++) {
      const uint32_t tag = m->word[r][i] >> 24, n = m->word[r][i] & 0xffffff;
      if (tag == PIPE_WORD_LOOP)
        turns = n, begin = i;
      if (tag != PIPE_WORD_END || turns * (i - begin) <= longest)
        continue;
      longest = turns * (i - begin);
      for (uint32_t k = begin; k + 1 < i; k++)
        if (m->word[r][k] >> 24 == PIPE_WORD_MB && m->word[r][k + 1] >> 24 == PIPE_WORD_STEP)
          step = m->word[r][k + 1] & 0xffffff;
    }
    all = step > 0 && step <= MOST_T ? all / gcd(all, step) * step : all;
    if (all > MOST_T)
      return 1;
  }
  return all;
}

static bool is_tried(int64_t T, int64_t step, uint32_t nrank) {
  static const int64_t few[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
  for (size_t i = 0; i < sizeof few / sizeof *few; i++)
    if (T == few[i])
      return true;
  return T == nrank || T == 2 * (int64_t)nrank || T == step || T == 2 * step;
}

/* Does the schedule admit none of value, value + T, ..., as far as samples show? */
static bool admits_none(const Search *x, int64_t value, int64_t T) {
  enum { TRIED = 1 << 10 };
  for (int64_t k = 0; k < TRIED; k++)
    if (admits(x, value + k * T))
      return false;
  for (int64_t k = TRIED; k < INT32_MAX / T; k *= 2)
    if (admits(x, value + k * T))
      return false;
  return true;
}

/* Finds all classes modulo T from `first` on. Returns their number; 0: x->why. */
static uint32_t try_period(Search *x, int64_t first, int64_t T, Class *out) {
  uint32_t n = 0;
  for (int64_t v = first; v < first + T; v++) {
    if (admits_none(x, v, T))
      continue;
    if (x->rows > MOST_ROWS / x->part || work_spent(x->s->opt->work))
      return no(x, NULL);
    for (int j = 0; j < 4; j++)
      if (!admits(x, v + j * T))
        return no(x, "the schedule admits only some values of a pattern");
    if (try_class(x, v, T, &out[n++]))
      continue;
    while (--n > 0)
      out[n - 1].like->kept = false;
    return 0;
  }
  return n;
}

static uint32_t find_classes(Search *x, Class *out) {
  const uint32_t nrank = x->s->model->nrank;
  const char *first_why = NULL;
  int64_t from = 3 * (int64_t)nrank > 12 ? 3 * (int64_t)nrank : 12;
  for (int round = 0; round < ROUNDS; round++, from *= 2) {
    int64_t first = from;
    while (!admits(x, first) && first < 64 * from)
      first++;
    const int64_t step = step_of_loops(x, first);
    for (int64_t T = 1; T <= MOST_T || T <= 2 * (int64_t)nrank; T++) {
      uint32_t n = is_tried(T, step, nrank) && admits(x, first + T) && admits(x, first + 2 * T)
                       ? try_period(x, first, T, out)
                       : 0;
      for (uint32_t i = 0; i < n; i++)
        if (!compare_class(x, &out[i], MOST_COMPARED / x->part / n))
          n = 0, T = MOST_T + 2 * (int64_t)nrank; /* larger values give another program */
      if (n > 0)
        return n;
      first_why = x->why && !first_why ? x->why : first_why;
      if (x->wrong || work_spent(x->s->opt->work))
        return 0;
      if (x->rows > MOST_ROWS / x->part)
        return no(x,
                  arena_printf(x->s->arena, "no pattern found within the budget%s%s",
                               first_why ? "; first obstacle: " : "", first_why ? first_why : ""));
    }
  }
  x->why = first_why ? first_why : "the schedule admits too few values";
  return 0;
}

/* ---- the verdict ---- */

static bool in_class(const Class *c, uint32_t n, int64_t v) {
  for (uint32_t i = 0; i < n; i++)
    if (v >= c[i].every.cls->from && (v - c[i].every.cls->from) % c[i].every.cls->step == 0)
      return true;
  return false;
}

/* Was some value refused? Then looks for the least, and reports it. */
static bool refuted(Search *x) {
  Sched *s = x->s;
  const uint64_t most = x->rows + MOST_COMPARED / x->part;
  int64_t v = 1;
  if (!x->wrong)
    return false;
  for (; v < x->wrong->value && x->rows < most && !work_spent(s->opt->work); v++)
    if (admits(x, v))
      member_free(member_at(x, v));
  s->for_all.refuted = true, s->for_all.proved = false;
  s->for_all.text = arena_printf(s->arena, "refuted%s at %s = %" PRId64 " [%s]",
                                 v < x->wrong->value ? ", first found" : "", x->name,
                                 x->wrong->value, diag_name(x->wrong->why));
  return true;
}

/* Compiles the values below the classes, one by one. */
static void try_short(Search *x, const Class *c, uint32_t n) {
  ForAll *f = &x->s->for_all;
  const uint64_t most = x->rows + MOST_SHORT / x->part;
  int64_t v = 1;
  for (; v < (int64_t)f->from && !x->wrong; v++) {
    if (in_class(c, n, v) || !admits(x, v))
      continue;
    if (x->rows > most || work_spent(x->s->opt->work))
      break;
    member_free(member_at(x, v));
  }
  f->below = (uint64_t)v;
}

/* Sets what is proved, and for which values. */
static void conclude(Search *x, const Class *c, uint32_t n) {
  ForAll *f = &x->s->for_all;
  const PipeLoopClass *first = c[0].every.cls;
  int64_t by = first->step, from = 0, compared = INT64_MAX;
  for (uint32_t i = 0; i < n; i++) {
    by = gcd(by, c[i].every.cls->from);
    from = c[i].every.cls->from > from ? c[i].every.cls->from : from;
    compared = c[i].compared < compared ? c[i].compared : compared;
  }
  while (from > 1 && (in_class(c, n, from - 1) || !admits(x, from - 1)))
    from--;
  while (from > 1 && !admits(x, from)) /* report a value that the schedule admits */
    from++;
  f->proved = true;
  f->from = (uint64_t)from;
  f->multiple = n == first->step / by ? (uint64_t)by : 1;
  f->compared = (uint64_t)compared;
  for (uint32_t i = 0; i < first->ngrow; i++) {
    if (first->grow[i].what == PIPE_GROWS_program_makespan)
      f->time = (uint64_t)first->grow[i].by;
    if (first->grow[i].what == PIPE_GROWS_program_nmb)
      f->per = (uint64_t)first->grow[i].by / pipe_slices(first->p);
  }
}

/* Makes a small value a class of its own. Returns the words of its rows. */
static uint64_t short_class(Arena *a, Member *m, uint32_t nparam, ForAllProof *out) {
  const uint32_t nrank = m->s.prog->nrank;
  Arena tmp = {0};
  RowMaker *maker = open_rows(&tmp, m->s.prog);
  uint64_t words = 0;
  uint32_t **word = NEW_ARRAY(a, uint32_t *, nrank), *nword = NEW_ARRAY(a, uint32_t, nrank);
  for (uint32_t r = 0; r < nrank; r++) {
    const RankRows rows = make_rows(maker, r);
    word[r] = arena_alloc(a, rows.n * sizeof **word + 1);
    memcpy(word[r], rows.word, rows.n * sizeof **word);
    nword[r] = rows.n, words += rows.n;
  }
  arena_free(&tmp);
  PipeLoopClass *c = NEW(a, PipeLoopClass);
  PipeLinear *param = NEW_ARRAY(a, PipeLinear, nparam + (size_t)1);
  char *p = (char *)(uintptr_t)m->s.prog->params;
  for (uint32_t i = 0; i < nparam; i++) {
    param[i].at = strtoll(p + strcspn(p, "=") + 1, &p, 10);
    p += *p == ' ';
  }
  *c = (PipeLoopClass){.from = m->value, .step = INT64_MAX, .param = param};
  *out = (ForAllProof){.cls = c, .word = word, .nword = nword};
  family_program(a, out, c, m);
  return words;
}

/* Makes the program: the classes, and small values while there is room. */
static void make_program(Search *x, const Class *c, uint32_t n) {
  Sched *s = x->s;
  const uint32_t most = n + (uint32_t)s->for_all.from;
  Looped *l = NEW(s->arena, Looped);
  ForAllProof *every = NEW_ARRAY(s->arena, ForAllProof, most);
  PipeLoopClass *cls = NEW_ARRAY(s->arena, PipeLoopClass, most);
  Sched **like = NEW_ARRAY(s->arena, Sched *, most);
  uint64_t room = MOST_SHORT_WORDS;
  for (uint32_t i = 0; i < n; i++) {
    Member *m = NEW(s->arena, Member);
    member_make(s, x->name, c[i].every.cls->from, true, m);
    if (!m->ok) /* out of steps */
      return;
    every[i] = c[i].every, cls[i] = *c[i].every.cls, like[i] = &m->s;
    family_program(s->arena, &every[i], &cls[i], m);
    every[i].cls = &cls[i];
  }
  l->table = x->rules;
  for (int64_t v = 1; v < (int64_t)s->for_all.below; v++) {
    if (in_class(c, n, v) || !admits(x, v))
      continue;
    Member *m = NEW(s->arena, Member);
    member_make(s, x->name, v, true, m);
    if (!m->ok)
      continue;
    const uint32_t at = n + l->nshort;
    const uint64_t words = short_class(s->arena, m, x->rules.nparam, &every[at]);
    if (words > room)
      break;
    room -= words;
    cls[at] = *every[at].cls, like[at] = &m->s;
    l->nshort++;
  }
  l->table.cls = cls, l->table.nclass = n + l->nshort;
  l->every = every, l->like = like;
  for (uint32_t i = 0; i < l->table.nclass; i++)
    like[i]->work = like[i]->opt->work = NULL; /* they are emitted without budget */
  s->looped = l;
}

/* ---- the pass ---- */

/* Sets the names of the parameters from "P=4 M=8". */
static void name_params(Search *x) {
  const char *t = x->s->model->params;
  VEC(const char *) name = {0};
  for (; *t; t += strcspn(t, " "), t += *t == ' ') {
    const size_t len = strcspn(t, "=");
    if (strlen(x->name) == len && memcmp(t, x->name, len) == 0)
      x->rules.open = name.n;
    *vec_push(x->s->arena, &name) = arena_strndup(x->s->arena, t, len);
  }
  x->rules.param = name.at, x->rules.nparam = name.n;
}

static bool not_decided(Sched *s, const char *why) {
  s->for_all.proved = false;
  s->for_all.text = why;
  return true;
}

/* What rules out a proof from the start; NULL: nothing. */
static const char *obstacle(const Sched *s) {
  return s->tuning->clause ? "the order is tuned for one value"
         : s->sides->ndecl ? "the schedule has side ops"
         : s->lowered->lowering != PIPE_GLOBAL
             ? "the transfers have no global order (--lowering=global)"
             : NULL;
}

static bool search(Search *x) {
  Sched *s = x->s;
  x->rules.magic = PIPE_LOOP_MAGIC, x->rules.abi = PIPE_ABI;
  name_params(x);
  if (!formulas_of_m(s, x->name, &x->rules))
    return not_decided(s, "the requires clauses are too long");
  Class *c = NEW_ARRAY(s->arena, Class, MOST_T + (size_t)s->model->nrank * 2);
  const uint32_t n = find_classes(x, c);
  for (uint32_t i = 0; i < n && !x->wrong; i++)
    lower_class(x, &c[i]);
  if (refuted(x))
    return true;
  if (n == 0)
    return not_decided(s, x->why);
  conclude(x, c, n);
  try_short(x, c, n);
  if (!refuted(x) && s->opt->looped)
    make_program(x, c, n);
  return true;
}

bool check_for_all(Sched *s) {
  Search x = {.s = s,
              .name = s->opt->for_all,
              .state = {.arena = s->arena},
              .part = s->opt->found_open ? PART_OF_CHECK : 1};
  const Param *m = s->parsed->def->params;
  while (m && strcmp(m->name, x.name) != 0)
    m = m->next;
  if (!m) {
    diag_error(s->diag, DIAG_PARAM, s->parsed->def->name_at,
               "schedule '%s' has no parameter '%s' (--for-all)", s->model->name, x.name);
    return false;
  }
  const char *why = obstacle(s);
  Work work, *outer = s->work;
  work_begin(&work, work_within(outer, WORK_PROOF), s->opt->progress);
  s->work = s->opt->work = &work;
  bool ok = why ? not_decided(s, why) : search(&x);
  work_end(&work), s->work = s->opt->work = outer;
  for (uint32_t i = 0; i < x.member.n; i++)
    member_free(x.member.at[i]);
  if (s->for_all.proved ? s->opt->looped && !s->looped : work.spent)
    not_decided(s, "the proof needs more steps than its budget");
  if (s->looped || !s->opt->looped)
    return ok;
  diag_error(s->diag, DIAG_LOOPED, s->parsed->def->name_at, "there is no program for every %s: %s",
             x.name,
             s->for_all.refuted ? arena_printf(s->arena, "the schedule is %s", s->for_all.text)
                                : s->for_all.text);
  diag_help(s->diag, "give a value, such as -D %s=64", x.name);
  return false;
}

bool is_proved_for_all(const Sched *s) {
  return s->for_all.proved && s->for_all.below >= s->for_all.from;
}

void dump_for_all(Sched *s, FILE *f) {
  const ForAll *a = &s->for_all;
  if (!a->proved) {
    fprintf(f, "%s\n", a->text);
    return;
  }
  fprintf(f, "from %" PRIu64 " multiple %" PRIu64 " below %" PRIu64 " compared %" PRIu64 "\n",
          a->from, a->multiple, a->below, a->compared);
}
