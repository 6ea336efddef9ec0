/* SPDX-License-Identifier: MIT
 * Finds the best value of a `tune` clause (lang/spec.md 5.8): expands the schedule for every value
 * of the variable, lets justify move the ops of each order, and keeps the order with the least
 * `by`. A value without a complete order is skipped silently. If all values are skipped, the first
 * is expanded once more, to report why. Each value gets a few of the tries of justify; only the
 * best gets all.
 *
 * The score is of an idle network. In the emitted program, transfers share streams and wait for
 * slots, so the winner may take longer than the first value as written. Both are compiled to the
 * end, and the better one stays; not for --emit=csv, which has no transfers.
 *
 * Cost: expand, check_deps and justify for each value. All orders stay in the arena. */
#include <string.h>

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

enum { MAX_TRIES = 1000, FIRST_TRIES = 3 };

static bool is_only(Sched *s, const Clause *c) {
  for (const Clause *d = c->next; d; d = d->next)
    if (d->kind == CL_TUNE) {
      diag_error(s->diag, DIAG_CLAUSE, d->at, "'tune' is given twice");
      diag_note(s->diag, c->at, "the first one");
      return false;
    }
  return true;
}

/* What `by` says of an order that takes t. */
static bool worth(Sched *s, Timing t, int64_t *value) {
  Times times = {.makespan = t.makespan, .span = t.span, .busy = t.busy};
  Sched played = *s;
  played.times = &times;
  return eval(&played, s->tuning->clause->value, value);
}

/* The first op of an action of several; NONE. */
static uint32_t joined(const Sched *s) {
  for (uint32_t i = 0; i < s->orders->nop; i++)
    if (s->orders->op[i].group > 0)
      return i;
  return NONE;
}

/* Of an order that tries do not move: an op is not what they take for it, alone on its rank. */
static bool as_written(Sched *s, const Clause *c, uint32_t op, int64_t tries, int64_t *value) {
  if (tries > 0) {
    diag_error(s->diag, DIAG_CLAUSE, c->tries->at, "tries move single ops, and %s",
               op == NONE ? "'send next' holds up what comes after one"
                          : arena_printf(s->arena, "%s is one action with others", op_text(s, op)));
    if (op != NONE)
      diag_note(s->diag, s->orders->site[s->orders->op[op].site], "it comes from here");
    diag_help(s->diag, WITHOUT_TRIES);
    return false;
  }
  OrderRun run = {.stage = s->model->stage};
  run.end = arena_alloc(s->arena, (size_t)s->orders->nop * sizeof *run.end + 1);
  run.head = NEW_ARRAY(s->arena, uint32_t, s->model->nrank);
  BUG_IF(!order_run(s, &run)); /* try_value has */
  return worth(s, run.t, value);
}

/* The first tries of a value, or all of them. */
static bool improve(Sched *s, Expanded *e, Tries *done, bool first, int64_t *value) {
  const Clause *c = s->tuning->clause;
  int64_t tries = 0;
  if (c->tries && !eval(s, c->tries, &tries))
    return false;
  if (tries < 0 || tries > MAX_TRIES) {
    diag_error(s->diag, DIAG_RANGE, c->tries->at, "%lld tries; 0 to %d are possible",
               (long long)tries, MAX_TRIES);
    return false;
  }
  uint32_t together = joined(s), early = justify_obstacle(s);
  if (together != NONE || s->orders->send == SEND_NEXT || (early != NONE && tries == 0))
    return as_written(s, c, together, tries, value);
  if (early != NONE) {
    diag_error(s->diag, DIAG_CLAUSE, s->orders->site[s->orders->op[early].site],
               "rank %u runs %s before %s: 'tries' moves only orders that end with their updates",
               op_rank(s, early), op_text(s, early), op_text(s, early + 1));
    diag_note(s->diag, c->tries->at,
              "tries are asked for here; an op moved past an update would read other weights");
    diag_help(s->diag, WITHOUT_TRIES);
    return false;
  }
  if (tries > 0 && s->orders->ncopy > 0) {
    diag_error(s->diag, DIAG_CLAUSE, s->orders->site[s->orders->copy[0].site],
               "'tries' moves the ops, so OFF and LOAD cannot have a place among them");
    diag_note(s->diag, c->tries->at, "tries are asked for here");
    diag_help(s->diag, "the clause 'offload s, m when ...' adds OFF and LOAD to a finished order");
    return false;
  }
  if (first && c->var && tries > FIRST_TRIES)
    tries = FIRST_TRIES;
  return justify(s, &e->orders, done, (uint32_t)tries, worth, value);
}

/* Expands the schedule for value number `at`. *value: its score; *whole: it is complete and can
 * run, otherwise later passes report it. */
static bool try_value(Sched *s, Expanded *e, Tries *done, uint32_t at, int64_t *value,
                      bool *whole) {
  e->tuning.at = at;
  e->tuning.n = 1;
  *done = (Tries){0};
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
  if (!*whole)
    return true;
  return improve(s, e, done, true, value);
}

/* The schedule for one value, with all of its tries. */
static bool take_value(Sched *s, Expanded *e, uint32_t at) {
  Tries done;
  int64_t value;
  bool whole;
  return try_value(s, e, &done, at, &value, &whole) &&
         (!whole || improve(s, e, &done, false, &value));
}

/* A value that was tried: what was expanded for it, and the variables. */
typedef struct Tried {
  Expanded made;
  int64_t *env;
  Tries done;
} Tried;

static Tried keep(Sched *s, const Expanded *e, Tries done) {
  size_t size = s->parsed->nslot * sizeof(int64_t);
  int64_t *env = arena_alloc(s->arena, size + 1);
  memcpy(env, s->eval.env, size);
  return (Tried){*e, env, done};
}

/* Places in the text that other values have met stay numbered. */
static void restore(Sched *s, Expanded *e, const Tried *t) {
  const Orders now = e->orders;
  *e = t->made;
  e->orders.site = now.site;
  e->orders.nsite = now.nsite;
  e->orders.capsite = now.capsite;
  memcpy(s->eval.env, t->env, s->parsed->nslot * sizeof *t->env);
}

static bool tune(Sched *s, Expanded *e, const Clause *c) {
  if (!is_only(s, c))
    return false;
  Tuning *own = &e->tuning;
  own->clause = c;
  const bool orders_only = s->opt->emit == EMIT_CSV && s->opt->ncompare == 0;
  own->kept = s->opt->tune == TUNE_BETTER && !orders_only &&
              worth_emitted(s, true, &own->worth[1]) && worth_emitted(s, false, &own->worth[0]) &&
              own->worth[0] < own->worth[1];
  if (own->kept || s->opt->tune == TUNE_NONE)
    return expand(s, e);
  if (!c->var)
    return take_value(s, e, 0);
  Tried best = {0};
  Tries done;
  int64_t value, least = 0;
  bool found = false, warned = false, whole;
  for (uint32_t i = 0, n = 1; i < n; i++) {
    Diag said = *s->diag;
    s->diag->out = NULL;
    bool ok = try_value(s, e, &done, i, &value, &whole) && whole;
    bool warns = s->diag->warnings > said.warnings;
    *s->diag = said;
    n = own->n;
    if (ok && (!found || value < least))
      found = true, warned = warns, least = value, best = keep(s, e, done);
  }
  if (!found || warned)
    return take_value(s, e, found ? best.made.tuning.at : 0);
  restore(s, e, &best);
  return improve(s, e, &best.done, false, &value);
}

bool expand_best(Sched *s, Expanded *e) {
  const Clause *c = find_tune(s->parsed->def);
  return c ? tune(s, e, c) : expand(s, e);
}
