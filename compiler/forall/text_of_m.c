/* SPDX-License-Identifier: MIT
 * What the text of an order must not leave to M. The proofs of orders (all_m.c, lists_of_m.c) read what runs; some parts of a text are
 * evaluated when it is compiled though no op comes of them: steps and periods of empty ranges, lags in the branches
 * that a kernel does not take, the pipes of its ops, the ranges of orders that another one replaces. So that these have a
 * value whatever M is, none may depend on it, and no divisor in a choice of a kernel may. It asks the text of the schedule, of what it
 * extends, and of what these use. Linear in the text, once for each `use`. */
#include "rest_of_m.h"

enum { MOST_DEPTH = 64, MOST_PARAMS = 8, MOST_STEPS = 1 << 20 };

typedef struct Reader {
  Moved moved;
  Moved turn; /* with the index of the kernel at hand */
  const Sched *s;
  uint32_t depth; /* of `use`, macros, functions and blocks */
  bool hidden;    /* in a choice of a kernel */
  const char *why;
  Span at;
} Reader;

static bool no(Reader *x, Span at, const char *why) {
  if (!x->why)
    x->why = why, x->at = at;
  return false;
}

static bool moves(Reader *x, const Expr *e) { return e && expr_is_moved(&x->moved, e); }

static bool still(Reader *x, const Expr *e, const char *why) {
  return !moves(x, e) || no(x, e->at, why);
}

/* No divisor of e depends on M. */
static bool divides(Reader *x, const Expr *e) {
  bool few[MOST_PARAMS];
  uint32_t n = 0;
  if (!e)
    return true;
  if (x->moved.steps++ > MOST_STEPS || x->depth > MOST_DEPTH)
    return no(x, e->at, "it is too long");
  if ((e->kind == EX_DIV || e->kind == EX_MOD) && !still(x, e->b, "a divisor depends on it"))
    return false;
  for (const Arg *a = e->args; a; a = a->next) {
    if (!divides(x, a->value))
      return false;
    if (e->fn && n == MOST_PARAMS)
      return no(x, e->at, "a function has too many arguments");
    if (e->fn)
      few[n++] = moves(x, a->value);
  }
  if (e->fn) {
    n = 0;
    for (const Param *p = e->fn->params; p; p = p->next)
      x->moved.slot[p->slot] = few[n++];
    x->depth++;
    if (!divides(x, e->fn->body))
      return false;
    x->depth--;
  }
  return divides(x, e->a) && divides(x, e->b) && divides(x, e->c);
}

static bool read_op(Reader *x, const OpRef *o, bool kernel) {
  const OpRef *op = o;
  while (op->op < 0)
    op = op->def->op;
  for (uint32_t steps = 0; o->op < 0; o = o->def->op) {
    bool few[MOST_PARAMS], turn[MOST_PARAMS];
    uint32_t n = 0;
    if (steps++ == 1 && kernel &&
        op->pipe_index) /* arguments that are looked at before the turns */
      return no(x, o->at, "an op in an op of a kernel says by number of which pipe it is");
    for (const Arg *a = o->args; a; a = a->next, n++) {
      if (n == MOST_PARAMS)
        return no(x, o->at, "it has too many arguments");
      few[n] = moves(x, a->value), turn[n] = expr_is_moved(&x->turn, a->value);
      if ((x->hidden || (kernel && op->pipe_index)) &&
          !still(x, a->value, "what an op of a kernel is given depends on it"))
        return false;
    }
    n = 0;
    for (const Param *p = o->def->params; p; p = p->next, n++)
      x->moved.slot[p->slot] = few[n], x->turn.slot[p->slot] = turn[n];
  }
  if (kernel && o->pipe_index && /* it is looked at before the turns */
      (!still(x, o->pipe_index, "which pipe an op of a kernel is of depends on it") ||
       (expr_is_moved(&x->turn, o->pipe_index) &&
        !no(x, o->pipe_index->at, "which pipe an op of a kernel is of depends on its index"))))
    return false;
  return !x->hidden || !o->args || divides(x, o->args->value);
}

static bool read_range(Reader *x, const Range *g) {
  return still(x, g->step, "a step depends on it") &&
         (!x->hidden || (divides(x, g->lo) && divides(x, g->hi) && divides(x, g->step)));
}

static bool read_schedule(Reader *x, const Schedule *sc);

/* What is used: its parameters move as what they are given. */
static bool read_use(Reader *x, const Stmt *b) {
  const Arg *positional = b->args;
  for (const Param *p = b->used->params; p; p = p->next) {
    const Arg *a = b->args;
    while (a && a->key != p->name)
      a = a->next;
    if (positional && !positional->key)
      a = positional, positional = positional->next;
    bool is = a ? moves(x, a->value) : moves(x, p->init);
    for (const Param *own = b->within->params; own && !a; own = own->next)
      is |= own->name == p->name && x->moved.slot[own->slot];
    x->moved.slot[p->slot] = is;
  }
  move_names(&x->moved, b->used);
  return read_schedule(x, b->used);
}

static bool read_text(Reader *x, const Stmt *b, bool kernel) {
  bool hidden = x->hidden, ok = true;
  if (b && x->depth > MOST_DEPTH)
    return no(x, b->at, "it is too long");
  x->depth++;
  for (; b && ok; b = b->next) {
    bool list = b->kind == ST_CLOCK || b->kind == ST_RULES;
    bool loop = b->kind == ST_DO || b->kind == ST_KERNEL || list;
    if (x->moved.steps++ > MOST_STEPS)
      return no(x, b->at, "it is too long");
    ok = (b->kind != ST_CLOCK || still(x, b->value, "a period depends on it")) &&
         read_range(x, &b->range) &&
         (!x->hidden || (divides(x, b->cond) && divides(x, b->value))) &&
         (!b->op || read_op(x, b->op, kernel)) && (b->kind != ST_USE || read_use(x, b));
    if (ok && b->kind == ST_LET)
      x->moved.slot[b->slot] = moves(x, b->value),
      x->turn.slot[b->slot] = expr_is_moved(&x->turn, b->value);
    else if (ok && loop && b->name) { /* the turns of a kernel are as its proof has them */
      x->moved.slot[b->slot] = b->kind != ST_KERNEL &&
                               ((list && !b->range.lo) || moves(x, b->range.lo) ||
                                moves(x, b->range.hi));
      x->turn.slot[b->slot] = b->kind == ST_KERNEL;
    }
    x->hidden = hidden || (b->kind == ST_IF && kernel);
    ok = ok && read_text(x, b->body, kernel || b->kind == ST_KERNEL) &&
         read_text(x, b->orelse, kernel);
    x->hidden = hidden;
  }
  x->depth--;
  return ok;
}

static bool read_schedule(Reader *x, const Schedule *sc) {
  if (x->depth++ > MOST_DEPTH)
    return no(x, sc->name_at, "it is too long");
  bool ok = !sc->base_def || read_schedule(x, sc->base_def);
  for (const Clause *c = sc->clauses; c && ok; c = c->next) {
    const Expr *const part[] = {c->range.lo, c->range.hi, c->range.step};
    for (int i = 0; i < 3 && ok && c->kind == CL_ORDER; i++)
      ok = still(x, part[i], "which ranks have an order depends on it");
    ok = ok && (c->kind != CL_ORDER || read_text(x, c->body, false));
  }
  x->depth--;
  return ok;
}

const char *text_lacks(const Sched *s, const Param *m, Span *at) {
  Reader x = {.s = s,
              .moved = moved_by(s, m->name),
              .turn = {.slot = NEW_ARRAY(s->arena, bool, s->parsed->nslot + (size_t)1),
                       .nslot = s->parsed->nslot}};
  if (read_schedule(&x, s->parsed->def))
    return NULL;
  *at = x.at;
  return x.why;
}
