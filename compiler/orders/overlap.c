/* SPDX-License-Identifier: MIT
 * Expands actions of several ops, `overlap { ... }` (lang/spec.md 5.10). In the op table the ops of
 * an action are adjacent; each has the number of ops of the action after it. deps.c has the time of
 * an action, check_deps.c the proof that its ops do not need each other. Cost: linear. */
#include <string.h>

#include "base.h"
#include "expand.h"
#include "graph.h"
#include "names.h"
#include "orders.h"

bool too_many(Ex *x, const Stmt *t, uint32_t n) {
  if (n <= MAX_TOGETHER)
    return false;
  diag_error(x->s->diag, DIAG_OVERLAP, t->at,
             "rank %u: %u ops in one action; an action has at most %d", x->rank, n, MAX_TOGETHER);
  return true;
}

bool join_ops(Ex *x, const Stmt *t, uint32_t first) {
  Sched *s = x->s;
  Orders *orders = x->orders;
  uint32_t n = orders->nop - first;
  if (too_many(x, t, n))
    return false;
  for (uint32_t i = orders->ncopy; i-- > 0 && orders->copy[i].at > first;)
    if (orders->copy[i].at < orders->nop) {
      diag_error(s->diag, DIAG_OVERLAP, orders->site[orders->copy[i].site],
                 "rank %u: %s stands between ops of one action", x->rank,
                 orders->copy[i].kind == PIPE_OFF ? "OFF" : "LOAD");
      diag_help(s->diag, "put it before or after the overlap");
      return false;
    }
  for (uint32_t i = first; i < orders->nop; i++)
    orders->op[i].group = (uint16_t)(orders->nop - 1 - i);
  return true;
}

bool run_overlap(Ex *x, const Stmt *t) {
  uint32_t first = x->s->orders->nop;
  if (x->list)
    return list_joint(x, t);
  return run_block(x, t->body) && join_ops(x, t, first);
}

bool find_send(Ex *x) {
  const Clause *c;
  if (!find_only(&x->in, CL_SEND, "send", &c))
    return false;
  for (int k = 0; c && k < NSENDS; k++)
    if (strcmp(c->name, send_names[k]) == 0)
      x->orders->send = (SendPolicy)k;
  return true;
}

const char *send_text(const Sched *s) { return send_names[s->orders->send]; }
