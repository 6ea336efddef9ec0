/* SPDX-License-Identifier: MIT
 * Finds the best candidate of a `tune` clause (lang/spec.md 5.8). A candidate is a value of its
 * variable with the order as written, or with the order after tries have moved its ops (justify.c).
 * The candidate with the least `by` wins. A value without a complete order is skipped silently; if
 * all are skipped, the first is expanded once more, to report why.
 *
 * First every value is expanded and scored on an idle network. In the emitted program transfers
 * share streams and wait for slots. So the best candidates of the idle network are compiled to the
 * end, and the least `by` of their programs wins. The first value as written is always among them.
 * --emit=csv has no transfers: the best candidate of the idle network wins. An order takes no less
 * time than on an idle network, so the search ends when no other candidate can gain.
 *
 * Each value gets a few of the tries; a candidate that is compiled gets all.
 *
 * Cost: expand, check_deps and justify for each value, and MOST_EMITTED compiles. All orders stay
 * in the arena. */
#include <stdlib.h>

#include "search.h"
#include "again.h"
#include "justify.h"
#include "base.h"
#include "expand.h"
#include "limit.h"
#include "lower.h"
#include "names.h"
#include "orders.h"

#define WITHOUT_TRIES "leave out 'tries'; the values of 'tune' are compared all the same"

enum { MAX_TRIES = 1000, FIRST_TRIES = 3, MOST_EMITTED = 8 };

static bool is_only(Sched *s, const Clause *c) {
  for (const Clause *d = c->next; d; d = d->next)
    if (d->kind == CL_TUNE) {
      diag_error(s->diag, DIAG_CLAUSE, d->at, "'tune' is given twice");
      diag_note(s->diag, c->at, "given first here");
      return false;
    }
  return true;
}

/* The value of `by` for an order with times t. False: reported. */
static bool worth(Sched *s, Timing t, int64_t *value) {
  Times times = {.makespan = t.makespan, .span = t.span, .busy = t.busy};
  Sched played = *s;
  played.times = &times;
  return eval(&played, s->tuning->clause->value, value);
}

/* The first op of an action of several ops; NONE. */
static uint32_t joined(const Sched *s) {
  for (uint32_t i = 0; i < s->orders->nop; i++)
    if (s->orders->op[i].group > 0)
      return i;
  return NONE;
}

/* Reports why tries cannot move the ops, if so. False: they can. */
static bool cannot_move(Sched *s, const Clause *c) {
  const uint32_t op = joined(s), early = justify_obstacle(s);
  if (op != NONE) {
    diag_error(s->diag, DIAG_CLAUSE, c->tries->at,
               "tries move single ops, but %s shares an action with other ops", op_text(s, op));
    diag_note(s->diag, s->orders->site[s->orders->op[op].site], "the op comes from here");
    diag_help(s->diag, WITHOUT_TRIES);
  } else if (early != NONE) {
    diag_error(s->diag, DIAG_CLAUSE, s->orders->site[s->orders->op[early].site],
               "rank %u runs %s before %s: 'tries' moves only orders that end with their updates",
               op_rank(s, early), op_text(s, early), op_text(s, early + 1));
    diag_note(s->diag, c->tries->at,
              "here is 'tries'; an op moved past an update would read other weights");
    diag_help(s->diag, WITHOUT_TRIES);
  } else if (s->orders->ncopy > 0) {
    diag_error(s->diag, DIAG_CLAUSE, s->orders->site[s->orders->copy[0].site],
               "'tries' moves ops, so the order cannot contain OFF or LOAD");
    diag_note(s->diag, c->tries->at, "here is 'tries'");
    diag_help(s->diag, "the clause 'offload s, m when ...' adds OFF and LOAD to a finished order");
  } else {
    return false;
  }
  return true;
}

/* Moves the ops of a complete order, by the first tries or by all. *done: tries so far. False:
 * reported. */
static bool move_ops(Sched *s, Expanded *e, Tries *done, bool first, int64_t *value) {
  const Clause *c = s->tuning->clause;
  int64_t tries = 0;
  if (!eval(s, c->tries, &tries))
    return false;
  if (tries < 0 || tries > MAX_TRIES) {
    diag_error(s->diag, DIAG_RANGE, c->tries->at, "%lld tries; expected 0 to %d", (long long)tries,
               MAX_TRIES);
    return false;
  }
  if (tries == 0)
    return true;
  return !cannot_move(s, c) &&
         justify(s, &e->orders, done,
                 (uint32_t)(first && tries > FIRST_TRIES ? FIRST_TRIES : tries), worth, value);
}

/* Expands the schedule for value number `at`. *whole: the order is complete, and takes t. If it is
 * not, later passes report why. False: reported. */
static bool expand_value(Sched *s, Expanded *e, uint32_t at, bool *whole, Timing *t) {
  e->tuning.at = at;
  e->tuning.n = 1;
  *whole = false;
  if (!expand(s, e))
    return false;
  Diag said = *s->diag;
  s->diag->out = NULL;
  OrderRun run = {.stage = s->model->stage};
  bool ok = check_deps(s, &e->orders);
  run.end = ok ? arena_alloc(s->arena, (size_t)s->orders->nop * sizeof *run.end + 1) : NULL;
  run.head = ok ? NEW_ARRAY(s->arena, uint32_t, s->model->nrank) : NULL;
  *whole = ok && order_run(s, &run) && (s->orders->ncopy > 0 || limits_kept(s));
  *s->diag = said;
  *t = run.t;
  return true;
}

/* Expands the schedule for c. False: reported. */
static bool take(Sched *s, Expanded *e, TuneChoice c) {
  Timing t;
  int64_t value;
  bool whole;
  Tries done = {0};
  e->tuning.moved = c.moved;
  return expand_value(s, e, c.at, &whole, &t) &&
         (!whole || (worth(s, t, &value) && (!c.moved || (move_ops(s, e, &done, true, &value) &&
                                                          move_ops(s, e, &done, false, &value)))));
}

/* ---- the search ---- */

typedef struct Candidate {
  TuneChoice choice;
  int64_t idle; /* `by` on an idle network; if moved, after the first tries */
} Candidate;

typedef VEC(Candidate) Candidates;

/* By `by`; among equals, moved orders first, then earlier values. */
static int by_idle(const void *a, const void *b) {
  const Candidate *x = a, *y = b;
  if (x->idle != y->idle)
    return x->idle < y->idle ? -1 : 1;
  return x->choice.moved != y->choice.moved ? y->choice.moved - x->choice.moved
         : x->choice.at < y->choice.at      ? -1
                                            : 1;
}

/* Adds value number `at`, as written and moved, if its order is complete. An incomplete order is no
 * error here. */
static void add_value(Sched *s, Expanded *e, uint32_t at, Candidates *all) {
  const bool moves = s->tuning->clause->tries;
  Tries done = {0};
  Timing t;
  int64_t written, moved;
  bool whole;
  if (!expand_value(s, e, at, &whole, &t) || !whole || !worth(s, t, &written))
    return;
  moved = written;
  if (moves && !move_ops(s, e, &done, true, &moved))
    return;
  *vec_push(s->arena, all) = (Candidate){{at, false}, written};
  if (moves)
    *vec_push(s->arena, all) = (Candidate){{at, true}, moved};
}

/* Sorts the candidates, and puts the first value as written at index 0 or 1. */
static void sort_candidates(Candidates *all) {
  Candidate *c = all->at, first = *c; /* add_value has added it first */
  uint32_t i = 0;
  qsort(c, all->n, sizeof *c, by_idle);
  while (c[i].choice.moved || c[i].choice.at != first.choice.at)
    i++;
  for (; i > 1; i--)
    c[i] = c[i - 1];
  if (i == 1)
    c[1] = first;
}

/* The candidate whose program is best. If the best candidate of the idle network is refused, it is
 * returned, so that its error is reported. */
static uint32_t best_emitted(Sched *s, Tuning *own, const Candidates *all) {
  const Candidate *c = all->at;
  uint32_t best = 0;
  int64_t value;
  if (all->n == 1 || !worth_emitted(s, c[0].choice, &own->worth[1]))
    return 0;
  own->worth[0] = own->worth[1];
  for (uint32_t i = 1; i < all->n && i < MOST_EMITTED; i++) {
    if (i > 1 && c[i].idle >= own->worth[0])
      break;
    if (worth_emitted(s, c[i].choice, &value) && value < own->worth[0])
      own->worth[0] = value, best = i;
  }
  own->other = best > 0;
  return best;
}

static bool tune(Sched *s, Expanded *e, const Clause *c) {
  if (!is_only(s, c))
    return false;
  Tuning *own = &e->tuning;
  own->clause = c;
  if (s->opt->tune)
    return take(s, e, *s->opt->tune);
  Candidates all = {0};
  for (uint32_t i = 0, n = 1; i < n; i++) {
    Diag said = *s->diag;
    s->diag->out = NULL;
    add_value(s, e, i, &all);
    *s->diag = said;
    n = own->n;
    if (s->work->spent)
      return too_many_steps(s, c->at);
  }
  if (all.n == 0)
    return take(s, e, (TuneChoice){.moved = c->tries});
  sort_candidates(&all);
  const bool orders_only = s->opt->emit == EMIT_CSV && s->opt->ncompare == 0;
  return take(s, e, all.at[orders_only ? 0 : best_emitted(s, own, &all)].choice);
}

bool expand_best(Sched *s, Expanded *e) {
  const Clause *c = find_tune(s->parsed->def);
  return c ? tune(s, e, c) : expand(s, e);
}
