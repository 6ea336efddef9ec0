/* SPDX-License-Identifier: MIT
 * Transfers in the text of an order: send, recv, group, wait, REDUCE and TIE (lang/spec.md 8.4). Their shape,
 * for resolve, and their expansion: rows of Sched.post, each with the op of its rank before which it stands.
 * Whether they are used is find_lowering's to say, whether they are right transfers.c's. Linear. */
#include <string.h>

#include "expand.h"
#include "graph.h"

static const char *const lowering_name[PIPE_NLOWERINGS] = {[PIPE_GLOBAL] = "global",
                                                           [PIPE_CHANNELS] = "channels",
                                                           [PIPE_INLINE] = "inline",
                                                           [PIPE_GROUPED] = "inline grouped",
                                                           [PIPE_MANUAL] = "manual"};

const char *lowering_text(const Sched *s) { return lowering_name[s->lowering]; }

/* ---- for resolve ---- */

static bool lowering_of(const Clause *c, PipeLowering *l) {
  for (int k = 0; k < PIPE_NLOWERINGS; k++) {
    size_t n = strcspn(lowering_name[k], " ");
    const char *second = lowering_name[k][n] ? lowering_name[k] + n + 1 : NULL;
    if (strlen(c->name) == n && strncmp(c->name, lowering_name[k], n) == 0 && !second == !c->root &&
        (!second || strcmp(second, c->root) == 0))
      return *l = (PipeLowering)k, true;
  }
  return false;
}

void transfers_shape(Sched *s, const Clause *c) {
  PipeLowering l;
  if (!lowering_of(c, &l))
    diag_error(s->diag, DIAG_CLAUSE, c->root ? c->root_at : c->name_at,
               "'%s': it is global, channels, inline, inline grouped or manual",
               span_text(s, c->at));
}

/* What stands in a group, of a clock. */
static void only_moves(Sched *s, const Stmt *b, bool clock) {
  for (; b; b = b->next)
    if (b->kind == ST_DO || b->kind == ST_IF) {
      only_moves(s, b->body, clock);
      only_moves(s, b->orelse, clock);
    } else if (b->kind != ST_MOVE && b->kind != ST_LET && b->kind != ST_OPDEF && b->kind != ST_FN) {
      diag_error(s->diag, DIAG_CLAUSE, b->at,
                 "only send, recv, do, if, let, op and fn stand in a group");
      diag_help(s->diag, b->kind == ST_GROUP ? "its transfers are one already"
                                             : "a group is of transfers with nothing between them: "
                                               "put this before or after it");
    } else if (b->kind == ST_MOVE && b->value && clock) {
      diag_error(s->diag, DIAG_CLAUSE, b->value->at, "the transfers of a group begin together");
      diag_help(s->diag, "one time stamp stands behind it: group { ... } @ e");
    }
}

void by_hand_shape(Sched *s, const Stmt *t, const Stmt *list) {
  static const char *const word[] = {[ST_MOVE] = "send", [ST_WAIT] = "wait", [ST_GROUP] = "group"};
  if (list && list->kind == ST_RULES) {
    diag_error(s->diag, DIAG_CLAUSE, t->at,
               "'%s' cannot stand inside 'rules %s': both ends of a transfer take it up, and here "
               "each rank chooses for itself",
               t->receives ? "recv" : word[t->kind], list->name);
    diag_help(s->diag, "'transfers inline' puts transfers at their ops whatever way the order was "
                       "made; by hand they stand in 'do', 'steady' and 'clock'");
  } else if (list && t->kind == ST_GROUP && !t->value) {
    diag_error(s->diag, DIAG_CLAUSE, t->at, "a group in 'clock %s' needs a time stamp", list->name);
    diag_help(s->diag, "it stands behind the group: group { ... } @ e");
  } else if (!list && t->value) {
    diag_error(s->diag, DIAG_CLAUSE, t->value->at, "a time stamp outside of 'clock'");
  }
  if (t->kind == ST_GROUP)
    only_moves(s, t->body, list && list->kind == ST_CLOCK);
  const OpRef *o = t->op;
  while (t->kind == ST_MOVE && o->op < 0 && o->def)
    o = o->def->op;
  if (t->kind == ST_MOVE && o->op >= 0 && o->op != PIPE_F && o->op != PIPE_B && o->op != PIPE_I)
    diag_error(s->diag, DIAG_CLAUSE, t->at, "'%s' has no tensor that passes between stages",
               span_text(s, t->at));
}

/* ---- for expand ---- */

bool find_lowering(Ex *x) {
  Sched *s = x->s;
  const Clause *old;
  if (!find_only(x, CL_TRANSFERS, "transfers", &old))
    return false;
  s->lowering_at = old && !s->opt->lowering ? old->at : s->def->name_at;
  s->lowering = PIPE_GLOBAL;
  s->lowering_given = old != NULL;
  if (old)
    lowering_of(old, &s->lowering);
  if (s->opt->lowering)
    s->lowering = (PipeLowering)(s->opt->lowering - 1), s->lowering_given = true;
  return true;
}

void push_posting(Ex *x, Posting p) {
  Sched *s = x->s;
  if (s->npost == s->cappost)
    vec_grow(s->arena, (void **)&s->post, &s->cappost, sizeof *s->post);
  p.at = s->nop, p.rank = x->rank, p.phase = x->phase;
  s->post[s->npost++] = p;
  if (!s->lowering_given)
    s->lowering = PIPE_MANUAL;
}

/* kind: PipeOp, or PIPE_NOPS of a wait. */
static void push_post(Ex *x, uint8_t kind, uint32_t stage, uint32_t mb, uint32_t site) {
  push_posting(x, (Posting){.kind = kind, .stage = stage, .mb = mb, .edge = NONE, .site = site});
}

bool push_move(Ex *x, uint8_t kind, uint32_t stage, uint32_t mb) {
  bool forward = kind == PIPE_F;
  push_post(x,
            x->move->receives ? forward ? PIPE_RECV_F : PIPE_RECV_B
            : forward         ? PIPE_SEND_F
                              : PIPE_SEND_B,
            stage, mb, op_site(x->s, x->use));
  return true;
}

bool push_sum(Ex *x, uint8_t kind, uint32_t stage) {
  const Sched *s = x->s;
  const PipeStage *st = &s->stage[stage];
  if (kind == PIPE_TIE ? st->tied == NONE : st->replica == stage) {
    diag_error(s->diag, DIAG_TRANSFER, x->use->at, "rank %u: '%s' of stage %u, which %s", x->rank,
               span_text(x->s, x->use->at), stage,
               kind == PIPE_TIE ? "shares no weights" : "has no replicas");
    return false;
  }
  push_post(x, kind, kind == PIPE_TIE ? st->tied : stage, NONE, op_site(x->s, x->use));
  return true;
}

void run_wait(Ex *x, const Stmt *t) {
  Sched *s = x->s;
  if (s->nsite == s->capsite)
    vec_grow(s->arena, (void **)&s->site, &s->capsite, sizeof *s->site);
  if (!t->slot) /* its place in the text, once */
    s->site[s->nsite++] = t->at, ((Stmt *)t)->slot = s->nsite;
  push_post(x, PIPE_NOPS, 0, NONE, t->slot - 1);
}

bool too_many_in_group(Sched *s, Span at, uint32_t rank, uint32_t n) {
  diag_error(s->diag, DIAG_TRANSFER, at, "rank %u: %u transfers in one group; there can be %u",
             rank, n, PIPE_GROUP_MOST);
  return false;
}

bool join_posts(Ex *x, const Stmt *t, uint32_t first) {
  Sched *s = x->s;
  uint32_t n = s->npost - first;
  if (n > PIPE_GROUP_MOST)
    return too_many_in_group(s, t->at, x->rank, n);
  for (uint32_t i = first; i < s->npost; i++)
    s->post[i].joint = true, s->post[i].group = (uint16_t)(s->npost - 1 - i);
  return true;
}
