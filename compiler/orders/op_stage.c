/* SPDX-License-Identifier: MIT
 * Finds the pipe and the stage of an op as it is written, such as down.F[1](m), on the present
 * rank. Part of expand. Cost: the number of pipes, and of stages of the rank. */
#include "expand.h"
#include "names.h"

bool no_stage(Ex *x, const OpRef *o, Span at, const char *why) {
  diag_error(x->s->diag, DIAG_FOREIGN, x->use->at, "rank %u cannot run '%s': %s", x->rank,
             span_text(x->s, x->use->at), why);
  if (o != x->use)
    diag_note(x->s->diag, at, "the stage comes from here");
  return false;
}

static Name pipe_name(const Sched *s, uint32_t k) { return s->model->pipe[k].clause->name; }

uint32_t pipe_mbs(const Sched *s, uint32_t k) { return s->model->pipe[k].nmb / s->model->slices; }

bool op_pipe(Ex *x, const OpRef *o, const Pipe **pipe) {
  Sched *s = x->s;
  int64_t index = 0, lo = 0, hi = 0;
  *pipe = &s->model->pipe[0];
  if (!o->pipe && s->model->npipe == 1)
    return true;
  if (o->pipe_index && !eval(s, o->pipe_index, &index))
    return false;
  bool found = false;
  for (uint32_t k = 0; o->pipe && k < s->model->npipe; k++) {
    const Pipe *p = &s->model->pipe[k];
    if (pipe_name(s, k) != o->pipe)
      continue;
    if (!o->pipe_index || p->index == index)
      return *pipe = p, true;
    lo = found ? lo : p->index, hi = p->index, found = true;
  }
  if (found)
    diag_error(s->diag, DIAG_RANGE, o->pipe_at,
               "there is no pipe %s[%lld]; the pipes are %s[%lld] to %s[%lld]", o->pipe,
               (long long)index, o->pipe, (long long)lo, o->pipe, (long long)hi);
  else if (o->pipe)
    diag_error(s->diag, DIAG_CLAUSE, o->pipe_at, "'%s' is not a pipe of this schedule", o->pipe);
  else
    diag_error(s->diag, DIAG_CLAUSE, o->at, "the schedule has several pipes: write %s.%s",
               pipe_name(s, 0), span_text(s, o->at));
  return false;
}

bool array_mbs(const Sched *s, const OpRef *o, int64_t *n) {
  *n = -1;
  for (uint32_t k = 0; k < s->model->npipe; k++) {
    if (pipe_name(s, k) != o->pipe)
      continue;
    if (*n >= 0 && *n != pipe_mbs(s, k))
      return false;
    *n = pipe_mbs(s, k);
  }
  return *n >= 0;
}

const uint32_t *rank_rows(const Ex *x, uint32_t *n) {
  const Model *model = x->s->model;
  *n = model->rank_stage0[x->rank + 1] - model->rank_stage0[x->rank];
  return &model->rank_stage[model->rank_stage0[x->rank]];
}

const uint32_t *pipe_rows(const Ex *x, const Pipe *p, uint32_t *n) {
  uint32_t a = 0, b;
  const uint32_t *row = rank_rows(x, &b);
  if (x->s->model->npipe > 1) {
    while (a < b && row[a] < p->first)
      a++;
    while (b > a && row[b - 1] >= p->first + p->nrow)
      b--;
  }
  *n = b - a;
  return row + a;
}

/* Helps with the list of the rank's stages of the pipe, if they are few. */
static void own_stages(Ex *x, const uint32_t *row, uint32_t n) {
  Sched *s = x->s;
  const char *list = "";
  for (uint32_t i = 0; i < n && n <= 4; i++)
    list = arena_printf(s->arena, "%s%s%u", list,
                        i == 0      ? ""
                        : i + 1 < n ? ", "
                                    : " and ",
                        s->model->stage[row[i]].model);
  if (*list)
    diag_help(s->diag, "the stage%s of rank %u %s %s", n == 1 ? "" : "s", x->rank,
              n == 1 ? "is" : "are", list);
}

bool op_stage(Ex *x, const OpRef *o, uint32_t *stage) {
  Sched *s = x->s;
  const Pipe *p;
  uint32_t n;
  int64_t v;
  if (!op_pipe(x, o, &p))
    return false;
  const uint32_t *row = pipe_rows(x, p, &n);
  if (o->stage) {
    if (!eval(s, o->stage, &v))
      return false;
    if (v < 0 || v >= p->nstage) {
      no_stage(x, o, o->stage->at,
               arena_printf(s->arena, "stage %lld does not exist; the stages are 0 to %u",
                            (long long)v, p->nstage - 1));
      if (v == p->nstage)
        diag_help(s->diag, "stages are counted from 0");
      return false;
    }
    bool dealt = p->nrow > p->nstage;
    for (uint32_t i = 0; dealt && i < n; i++)
      if (s->model->stage[row[i]].model == v)
        return *stage = row[i], true;
    v += p->first;
    if (s->model->stage[v].rank != x->rank) {
      if (x->clip)
        return *stage = NONE, true;
      no_stage(x, o, o->stage->at,
               arena_printf(s->arena, "stage %lld is placed on rank %u%s", (long long)v - p->first,
                            s->model->stage[v].rank, dealt ? ", and here for no microbatch" : ""));
      own_stages(x, row, n);
      return false;
    }
    *stage = (uint32_t)v;
    return true;
  }
  if (n == 0)
    return no_stage(x, o, o->at, "the rank has no stage");
  if (!o->chunk) {
    if (n > 1)
      return no_stage(
          x, o, o->at,
          arena_printf(s->arena, "the rank has %u stages: write %s[chunk](m)", n, o->name));
    *stage = row[0];
    return true;
  }
  if (!eval(s, o->chunk, &v))
    return false;
  if (v < 0 || v >= n) {
    no_stage(x, o, o->chunk->at,
             arena_printf(s->arena, "the rank has no chunk %lld, only chunk%s", (long long)v,
                          n == 1 ? " 0" : arena_printf(s->arena, "s 0 to %u", n - 1)));
    if (n == 1 && !o->parens)
      diag_help(s->diag, "the microbatch stands in parentheses: %s(%s)", o->name,
                span_text(s, o->chunk->at));
    else if (v == n)
      diag_help(s->diag, "chunks are counted from 0");
    return false;
  }
  *stage = row[v];
  return true;
}
