/* SPDX-License-Identifier: MIT
 * Finds the lines of the `weights` clauses (lang/spec.md 5.13) that apply to a schedule and to an
 * op. Cost: linear in the square of the lines, and in lines for each op. */
#include "instance.h"
#include "hints.h"
#include "names.h"
#include "weight_lines.h"

static bool same_kind(const WeightLine *a, const WeightLine *b) {
  return a->word == b->word && a->op == b->op && a->state == b->state;
}

static const char *line_text(Sched *s, const WeightLine *l) {
  static const char *const word[] = {"reads", "applies", "rate", "then", "versions", "state"};
  return l->op ? arena_printf(s->arena, "%s %s%s%s", l->op, word[l->word], l->state ? " " : "",
                              l->state ? l->state : "")
               : arena_printf(s->arena, "%s%s%s", word[l->word], l->state ? " " : "",
                              l->state ? l->state : "");
}

/* Reports a line that follows an unconditional line of its kind, in one schedule. */
static bool never_holds(Sched *s, const WeightLine *l, const WeightLine *first) {
  if (first->when)
    return true;
  diag_error(s->diag, DIAG_CLAUSE, l->at, "'%s' is given twice", line_text(s, l));
  diag_note(s->diag, first->at, "the first line, which always holds");
  if (l->when)
    diag_help(s->diag,
              "the first line whose 'when' holds counts: write the line without 'when' last");
  return false;
}

bool find_weights(Instance *x) {
  Sched *s = x->s;
  VEC(const WeightLine *) line = {0};
  VEC(uint32_t) depth = {0};
  const Clause *clause = NULL;
  for (uint32_t i = 0; i < x->clauses.n; i++)
    if (x->clauses.at[i].clause->kind == CL_WEIGHTS)
      clause = x->clauses.at[i].clause;
  if (!clause)
    return true;
  if (s->model->forward) {
    diag_error(s->diag, DIAG_FORWARD_ONLY, clause->at,
               "'weights' in a forward-only schedule: there is no update");
    diag_note(s->diag, s->model->pipe[0].clause->at, "this pipe is 'forward'");
    return false;
  }
  /* from the schedule itself to its last base; the lines of each in the order of the text */
  for (uint32_t hi = x->clauses.n; hi > 0;) {
    uint32_t lo = hi - 1, d = x->clauses.at[lo].depth;
    while (lo > 0 && x->clauses.at[lo - 1].depth == d)
      lo--;
    for (uint32_t i = lo; i < hi; i++) {
      if (x->clauses.at[i].clause->kind != CL_WEIGHTS)
        continue;
      for (const WeightLine *l = x->clauses.at[i].clause->lines; l; l = l->next) {
        bool replaced = false;
        for (uint32_t k = 0; k < line.n && !replaced; k++) {
          if (!same_kind(l, line.at[k]))
            continue;
          replaced = depth.at[k] != d;
          if (!replaced && !never_holds(s, l, line.at[k]))
            return false;
        }
        if (replaced)
          continue;
        *vec_push(s->arena, &line) = l;
        *vec_push(s->arena, &depth) = d;
      }
    }
    hi = lo;
  }
  x->model->wline = line.at;
  x->model->nwline = line.n;
  x->model->weighted = true;
  return true;
}

void weight_bind(Sched *s, const WeightLine *l, uint32_t stage, uint32_t mb) {
  const PipeStage *st = &s->model->stage[stage];
  if (l->clause->var)
    s->eval.env[l->clause->slot] = st->model;
  if (l->clause->mb_var)
    s->eval.env[l->clause->mb_slot] = (mb - st->mb0) / s->model->slices;
}

static bool value_of(Sched *s, const WeightLine *l, const Expr *e, uint32_t stage, uint32_t mb,
                     int64_t *value) {
  weight_bind(s, l, stage, mb);
  return eval(s, e, value);
}

static bool has_lines(const Sched *s, WeightWord word, int kind) {
  for (uint32_t i = 0; i < s->model->nwline; i++)
    if (s->model->wline[i]->word == word && s->model->wline[i]->kind == kind)
      return true;
  return false;
}

/* Finds the first line of a word, kind and state (NULL: none) whose `when` is true. False:
 * reported. */
static bool find_line(Sched *s, WeightWord word, int kind, Name state, uint32_t stage, uint32_t mb,
                      const WeightLine **line) {
  *line = NULL;
  for (uint32_t i = 0; i < s->model->nwline && !*line; i++) {
    const WeightLine *l = s->model->wline[i];
    int64_t holds = 1;
    if (l->word != word || l->kind != kind || l->state != state)
      continue;
    if (l->when && !value_of(s, l, l->when, stage, mb, &holds))
      return false;
    if (holds)
      *line = l;
  }
  return true;
}

bool weight_line(Sched *s, WeightWord word, uint32_t op, uint32_t mb, const WeightLine **line) {
  const Op *o = &s->orders->op[op];
  int kind = o->kind;
  /* R makes a stash for the backward, so it reads the version of the backward */
  if (word == WW_READS) {
    size_t cell = (size_t)o->stage * s->model->nmb + o->mb;
    if (kind == PIPE_R && !has_lines(s, word, PIPE_R))
      kind = s->orders->op[s->orders->at_b[cell] - 1].kind;
    if (kind == PIPE_I && !has_lines(s, word, PIPE_I))
      kind = PIPE_B;
  }
  return find_line(s, word, kind, NULL, o->stage, mb, line);
}

bool weight_then(Sched *s, const char *state, uint32_t u, uint32_t mb, const WeightLine **line) {
  return find_line(s, WW_THEN, PIPE_U, state, s->orders->op[u].stage, mb, line);
}

bool weight_value(Sched *s, const WeightLine *l, uint32_t op, int64_t *value) {
  return value_of(s, l, l->value, s->orders->op[op].stage, s->orders->op[op].mb, value);
}

bool weight_per(Sched *s, const WeightLine *l, uint32_t op, int64_t *value) {
  return value_of(s, l, l->per, s->orders->op[op].stage, s->orders->op[op].mb, value);
}

void weight_note(Sched *s, const WeightLine *l) {
  if (l)
    diag_note(s->diag, l->at, "this line gives the version");
}

bool weight_ring(Sched *s, uint32_t stage, const WeightLine **line, int64_t *n) {
  *line = NULL;
  for (uint32_t i = 0; i < s->model->nwline && !*line; i++)
    if (s->model->wline[i]->word == WW_VERSIONS)
      *line = s->model->wline[i];
  if (!*line)
    return true;
  if (!value_of(s, *line, (*line)->value, stage, s->model->stage[stage].mb0, n))
    return false;
  if (*n >= 1)
    return true;
  diag_error(s->diag, DIAG_RANGE, (*line)->value->at, "stage %u has %lld versions of its weights",
             s->model->stage[stage].model, (long long)*n);
  diag_help(s->diag, "write at least 1, the newest version alone");
  return false;
}
