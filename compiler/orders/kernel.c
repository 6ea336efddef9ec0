/* SPDX-License-Identifier: MIT
 * Expands kernels (`steady`), whose ops have fixed distances (lags) from the index. Part of expand.
 *
 * note [steady]: a kernel runs for every k from the smallest to the largest at which one of its ops
 * is in range. The range of an op is that of the kernel, or else the microbatches of its pipe. An
 * op at k - lag outside its range is dropped. Warmup and flush are the iterations that drop an op
 * (lang/spec.md 5.2). */
#include "expand.h"
#include "hints.h"
#include "names.h"

/* Does the pipe of an op depend on the index of the kernel, possibly through macro parameters? */
static bool pipe_depends(const OpRef *o, const OpRef *op) {
  bool depends = op->pipe_index->depends;
  const Param *p = o->op < 0 ? o->def->params : NULL;
  for (const Arg *a = p ? o->args : NULL; a && p; a = a->next, p = p->next)
    depends |= a->value->depends && hint_mentions(op->pipe_index, p->name);
  return depends;
}

/* Finds the number of microbatches of the pipe of a kernel's op, macros included. If all pipes of
 * an array have the same number, the index of the pipe does not matter. Otherwise it must be the
 * same at every turn: it must not depend on the kernel's index, and macro parameters are bound at
 * index 0. */
static bool op_mbs(Ex *x, const OpRef *o, int64_t *n) {
  const Pipe *p;
  const OpRef *op = o;
  while (op->op < 0)
    op = op->def->op;
  if (op->pipe_index && array_mbs(x->s, op, n))
    return true;
  /* arguments of the inner op may have no value yet */
  bool nested = o->op < 0 && o->def->op->op < 0;
  if (op->pipe_index && (nested || pipe_depends(o, op))) {
    diag_error(x->s->diag, DIAG_LAG, op->pipe_at,
               "the pipe index of '%s' %s, and the pipes have different numbers of microbatches",
               op->pipe, nested ? "comes from a nested op" : "depends on the index of the kernel");
    diag_help(x->s->diag, "give the kernel a range, 'steady NAME in FROM..TO', or use 'do'");
    return false;
  }
  for (; op->pipe_index && o->op < 0; o = o->def->op)
    if (!bind_macro(x, o, NULL, 0))
      return false;
  if (!op_pipe(x, op, &p))
    return false;
  *n = pipe_mbs(x->s, (uint32_t)(p - x->s->model->pipe));
  return true;
}

typedef struct Kernel {
  const Stmt *t;
  int64_t lo, hi; /* its range; without one hi is set for each op */
  int64_t at;     /* its index; 0 while ops are collected */
  bool inside;    /* inside a loop */
} Kernel;

/* Makes the item of o from the present values. */
static bool item_of(Ex *x, const OpRef *o, const Kernel *k, KernelItem *it) {
  Sched *s = x->s;
  int64_t v;
  *it = (KernelItem){.lo = k->lo, .hi = k->hi};
  for (const Arg *a = o->args; a; a = a->next)
    if (a->value->depends)
      it->index = a->value;
  if (!eval(s, it->index, &v))
    return false;
  if (__builtin_sub_overflow(k->at, v, &it->lag)) {
    diag_error(s->diag, DIAG_OVERFLOW, it->index->at, "a lag overflows a 64-bit integer");
    return false;
  }
  x->use = o;
  if (!k->t->range.lo && !op_mbs(x, o, &it->hi))
    return false;
  it->fixed = o->op >= 0 && o->op != PIPE_U && !(o->chunk && o->chunk->depends) &&
              !(o->stage && o->stage->depends) && !(o->pipe_index && o->pipe_index->depends);
  it->stage = NONE;
  return true;
}

static bool kernel_items(Ex *x, const Stmt *b, const Kernel *k);

static bool items_of_turn(Ex *x, const Stmt *b, const void *of) {
  Kernel in = *(const Kernel *)of;
  in.inside = true;
  return kernel_items(x, b, &in);
}

/* Finds the ops of a kernel and their lags; an op in a loop once for each turn. A `let` that
 * depends on the index has no value yet; resolve has checked that nothing evaluated here uses
 * it. */
static bool kernel_items(Ex *x, const Stmt *b, const Kernel *k) {
  Sched *s = x->s;
  for (; b; b = b->next) {
    if (b->kind == ST_IF) {
      bool both = b->cond->depends;
      int64_t v = 1;
      if (!both && !eval(s, b->cond, &v))
        return false;
      if ((both || v) && !kernel_items(x, b->body, k))
        return false;
      if ((both || !v) && !kernel_items(x, b->orelse, k))
        return false;
    } else if (b->kind == ST_OVERLAP) {
      if (!kernel_items(x, b->body, k))
        return false;
    } else if (b->kind == ST_DO) {
      if (!do_turns(x, b, items_of_turn, k))
        return false;
    } else if (b->kind == ST_LET) {
      if (!b->value->depends && !eval(s, b->value, &s->eval.env[b->slot]))
        return false;
    } else if (b->kind == ST_OP) {
      KernelItem it;
      if (!item_of(x, b->op, k, &it))
        return false;
      b->op->item = k->inside ? NONE : x->items.n;
      *vec_push(s->arena, &x->items) = it;
    }
  }
  return true;
}

static bool kernel_iteration(Ex *x, const Stmt *b, const Kernel *k);

static bool kernel_overlap(Ex *x, const Stmt *t, const Kernel *k) {
  uint32_t first = x->s->orders->nop;
  return kernel_iteration(x, t->body, k) && join_ops(x, t, first);
}

static bool iteration_of_turn(Ex *x, const Stmt *b, const void *of) {
  return kernel_iteration(x, b, of);
}

static bool kernel_op(Ex *x, const OpRef *o, const Kernel *k) {
  KernelItem own; /* item of an op in a loop, for this turn */
  if (o->item == NONE && !item_of(x, o, k, &own))
    return false;
  KernelItem *it = o->item == NONE ? &own : &x->items.at[o->item];
  int64_t i = k->at - it->lag, mb, slice;
  uint32_t stage = it->stage;
  if (i < it->lo || i >= it->hi)
    return true;
  x->use = o;
  if (o->op < 0)
    return run_macro(x, o, it->index, i);
  if (o->op == PIPE_U)
    return run_update(x, o, it->index, i);
  if (stage == NONE && !op_stage(x, o, &stage))
    return false;
  it->stage = it->fixed ? stage : NONE;
  return op_indices(x, o, it->index, i, &mb, &slice) && add_op(x, o, stage, mb, slice);
}

static bool kernel_iteration(Ex *x, const Stmt *b, const Kernel *k) {
  Sched *s = x->s;
  for (; b; b = b->next) {
    int64_t v;
    if (b->kind == ST_OP) {
      if (!kernel_op(x, b->op, k))
        return false;
    } else if (b->kind == ST_DO) {
      if (!do_turns(x, b, iteration_of_turn, k))
        return false;
    } else if (b->kind == ST_LET) {
      if (!eval(s, b->value, &s->eval.env[b->slot]))
        return false;
    } else if (b->kind == ST_IF) {
      if (!eval(s, b->cond, &v) || !kernel_iteration(x, v ? b->body : b->orelse, k))
        return false;
    } else if (b->kind == ST_OVERLAP && !kernel_overlap(x, b, k)) {
      return false;
    }
  }
  return true;
}

bool run_kernel(Ex *x, const Stmt *t) {
  Sched *s = x->s;
  x->list_op = t;
  int64_t step;
  Kernel in = {.t = t};
  if (t->range.lo && !eval_range(s, &t->range, &in.lo, &in.hi, &step))
    return false;
  if (t->range.lo && step != 1) {
    diag_error(s->diag, DIAG_RANGE, t->range.step->at,
               "a kernel takes every index; its range has no step");
    return false;
  }
  x->items.n = 0;
  s->eval.env[t->slot] = 0;
  if (!kernel_items(x, t->body, &in))
    return false;
  if (x->items.n == 0 || (t->range.lo && in.lo >= in.hi))
    return true;
  int64_t from = INT64_MAX, to = INT64_MIN;
  bool over = false;
  for (uint32_t i = 0; i < x->items.n; i++) {
    const KernelItem *item = &x->items.at[i];
    int64_t first, end;
    over |= __builtin_add_overflow(item->lo, item->lag, &first);
    over |= __builtin_add_overflow(item->hi, item->lag, &end);
    from = first < from ? first : from;
    to = end > to ? end : to;
  }
  for (uint32_t i = 0; i < x->items.n; i++) { /* every k - lag below fits */
    int64_t index, lag = x->items.at[i].lag;
    over |= __builtin_sub_overflow(from, lag, &index);
    over |= __builtin_sub_overflow(to, lag, &index);
  }
  if (over) {
    diag_error(s->diag, DIAG_OVERFLOW, t->at, "a lag overflows a 64-bit integer");
    return false;
  }
  bool ok = true;
  for (int64_t k = from; ok && k < to; k++) {
    s->eval.env[t->slot] = in.at = k;
    ok = spend(x, t) && kernel_iteration(x, t->body, &in);
  }
  return ok;
}
