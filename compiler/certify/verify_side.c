/* SPDX-License-Identifier: MIT
 * Finds mistakes of pipec itself in the side ops of a program (side.c). Reads the clauses and the
 * finished lists. Each op that a clause names has one side op. The side op waits for the op that it
 * comes after; the op that it comes before waits for it. Takes nothing from the passes. Cost:
 * linear in instructions times clauses, apart from the updates of a stage. */
#include <stdlib.h>
#include <string.h>

#include "validate.h"
#include "names.h"
#include "verify.h"

typedef struct Pair { /* row `above` must end before row `below` starts */
  uint32_t above, below;
} Pair;

typedef struct Lists {
  const Sched *s;
  uint32_t rank;
  const PipeRank *k;
  VEC(Pair) pair; /* the pairs to verify */
} Lists;

static void ends_before(Lists *l, uint32_t above, uint32_t below) {
  BUG_IF(above >= below);
  *vec_push(l->s->arena, &l->pair) = (Pair){above, below};
}

static int by_below(const void *a, const void *b) {
  const Pair *x = a, *y = b;
  return x->below != y->below  ? (x->below < y->below ? -1 : 1)
         : x->above < y->above ? -1
                               : x->above > y->above;
}

/* Verifies all pairs against the waits of the rank. */
static void verify_pairs(Lists *l) {
  const uint32_t n = l->k->ninstr;
  char why[256];
  PrClocks *clocks;
  uint32_t next = 0;
  if (l->pair.n == 0)
    return;
  qsort(l->pair.at, l->pair.n, sizeof *l->pair.at, by_below);
  BUG_IF(pr_clocks_begin(l->s->prog, l->rank, why, sizeof why, &clocks));
  for (uint32_t i = 0; i < n; i++) {
    BUG_IF(pr_clocks_row(clocks, i));
    for (; next < l->pair.n && l->pair.at[next].below == i; next++)
      BUG_IF(!pr_clocks_over(clocks, i, l->pair.at[next].above));
    BUG_IF(pr_clocks_done(clocks, i));
  }
  pr_clocks_end(clocks);
}

static bool named(const Anchor *a, bool after, const PipeInstr *in) {
  static const char letter[] = "FBIWRU";
  char c = in->op <= PIPE_U ? letter[in->op] : 0, want = a->name[0];
  return c && (c == want || (want == 'B' && c == (after ? 'W' : 'I')));
}

/* The op that the side op of op i runs before: the next named op of its stage behind its action; or
 * the first, or the last, of the list (end). NONE: none. */
static uint32_t user_of(const Lists *l, const Side *side, uint32_t i, uint32_t mb) {
  const PipeInstr *at = &l->k->instr[i];
  uint32_t found = NONE;
  for (uint32_t j = side->before.end ? 0 : i + at->group + 1; j < l->k->ninstr; j++) {
    const PipeInstr *in = &l->k->instr[j];
    if (in->stage != at->stage || pipe_stream_of(in->op) != PIPE_COMPUTE ||
        !named(&side->before, false, in) ||
        (mb != NONE && in->op != PIPE_U && in->mb != mb && !side->before.end))
      continue;
    found = j;
    if (side->before.end <= 0)
      break;
  }
  return found;
}

/* The first op of the action of op i. */
static uint32_t first_of(const Lists *l, uint32_t i) {
  while (i > 0 && l->k->instr[i - 1].group > 0)
    i--;
  return i;
}

static bool asked(const Sched *s, const Clause *c, const PipeInstr *in) {
  int64_t yes = 1;
  s->eval.env[c->slot] = s->model->stage[in->stage].model;
  if (c->mb_var)
    s->eval.env[c->mb_slot] = in->mb / s->model->slices -
                              s->model->stage[in->stage].mb0 / s->model->slices;
  BUG_IF(c->when && !eval((Sched *)s, c->when, &yes));
  return yes != 0;
}

/* Verifies the side ops of clause k on the rank. last, first_side: [nstage] scratch; next: [ninstr]
 * scratch. */
static void verify_clause(Lists *l, uint32_t k, uint32_t *last, uint32_t *first_side,
                          uint32_t *next) {
  const Sched *s = l->s;
  const Clause *c = s->sides->decl[k];
  const Side *side = c->side;
  bool after = side->after.name != NULL;
  const Anchor *main_ = after ? &side->after : &side->before;
  for (uint32_t st = 0; st < s->model->nstage; st++)
    first_side[st] = last[st] = NONE;
  for (uint32_t i = l->k->ninstr; i-- > 0;) {
    const PipeInstr *in = &l->k->instr[i];
    if (pipe_is_side(in->op) && s->prog->side[in->keep].decl == k) {
      next[i] = first_side[in->stage]; /* a list of the side ops of a stage, in list order */
      first_side[in->stage] = i;
    } else if (pipe_stream_of(in->op) == PIPE_COMPUTE && named(main_, after, in)) {
      if (main_->end < 0 || last[in->stage] == NONE)
        last[in->stage] = i;
    }
  }
  for (uint32_t i = 0; i < l->k->ninstr; i++) {
    const PipeInstr *in = &l->k->instr[i];
    if (pipe_stream_of(in->op) != PIPE_COMPUTE || !named(main_, after, in) ||
        (main_->end && last[in->stage] != i) || !asked(s, c, in))
      continue;
    uint32_t mb = main_->end || in->op == PIPE_U ? NONE : in->mb, *link = &first_side[in->stage];
    while (*link != NONE && l->k->instr[*link].mb != mb)
      link = &next[*link];
    BUG_IF(*link == NONE); /* the side op is missing */
    uint32_t at = *link;
    *link = next[at];
    if (after)
      ends_before(l, i + in->group, at); /* after the whole action */
    uint32_t user = !after ? i : side->before.name ? user_of(l, side, i, mb) : at;
    BUG_IF(user == NONE);
    if (user != at)
      ends_before(l, at, first_of(l, user));
  }
  for (uint32_t st = 0; st < s->model->nstage; st++)
    BUG_IF(first_side[st] != NONE); /* a side op that no clause asks for */
}

void verify_side_table(const Sched *s) {
  const PipeProgram *p = s->prog;
  BUG_IF((p->nside != 0) != (p->side != NULL) || p->nside != s->sides->ndecl * p->nstage);
  for (uint32_t i = 0; i < p->nside; i++) {
    const PipeSide *k = &p->side[i];
    BUG_IF(k->decl != i / p->nstage || k->stage != i % p->nstage || !pipe_is_side(k->op));
    BUG_IF(strcmp(k->name, s->sides->decl[k->decl]->name) != 0);
  }
}

/* A side op gives back a buffer of its clause, of its stage and, if it has one, of its
 * microbatch. */
static void verify_buffers(const Lists *l) {
  const Sched *s = l->s;
  const PipeInstr **held = arena_zalloc(s->arena, l->k->nslot + (size_t)1, sizeof *held);
  for (uint32_t i = 0; i < l->k->ninstr; i++) {
    const PipeInstr *in = &l->k->instr[i];
    if (!pipe_is_side(in->op))
      continue;
    if (in->out != NONE)
      held[in->out] = in;
    Name of = s->sides->decl[s->prog->side[in->keep].decl]->side->gives;
    BUG_IF((in->in != NONE) != (of != NULL) || (of && in->in == in->out));
    if (!of)
      continue;
    const PipeInstr *by = held[in->in];
    BUG_IF(!by || by->stage != in->stage);
    BUG_IF(strcmp(s->sides->decl[s->prog->side[by->keep].decl]->name, of) != 0);
    for (uint32_t j = 0; by->mb != in->mb && in->mb != NONE && j < l->k->nslot; j++)
      BUG_IF(held[j] && held[j]->mb == in->mb && held[j]->keep == by->keep);
    held[in->in] = NULL;
  }
}

void verify_sides(const Sched *s) {
  const PipeProgram *p = s->prog;
  uint32_t *last = NEW_ARRAY(s->arena, uint32_t, s->model->nstage),
           *first_side = NEW_ARRAY(s->arena, uint32_t, s->model->nstage);
  for (uint32_t r = 0; r < p->nrank; r++) {
    Lists l = {.s = s, .rank = r, .k = &p->rank[r]};
    uint32_t n = l.k->ninstr, *next = arena_alloc(s->arena, (size_t)n * sizeof *next + 1);
    for (uint32_t k = 0; k < s->sides->ndecl; k++)
      verify_clause(&l, k, last, first_side, next);
    for (uint32_t i = 0; i < n && s->sides->ndecl == 0; i++)
      BUG_IF(pipe_is_side(l.k->instr[i].op));
    verify_pairs(&l);
    verify_buffers(&l);
  }
}
