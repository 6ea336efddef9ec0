/* SPDX-License-Identifier: MIT
 * Checks the words of clauses and statements that the grammar leaves open, and where they may
 * stand. Part of resolve. Cost: linear in the text. */
#include <string.h>

#include "habits.h"
#include "names.h"

const char *const send_names[NSENDS] = {[SEND_END] = "end", [SEND_EAGER] = "eager"};

/* ---- overlap, send ---- */

static void only_ops(Sched *s, const Stmt *b, const Stmt *list) {
  for (; b; b = b->next)
    if (b->kind == ST_DO || b->kind == ST_IF) {
      only_ops(s, b->body, list);
      only_ops(s, b->orelse, list);
    } else if (b->kind == ST_OP && b->value && list) {
      bool clock = list->kind == ST_CLOCK;
      diag_error(s->diag, DIAG_CLAUSE, b->value->at, "the ops of an action have one %s",
                 clock ? "time stamp" : "priority");
      diag_help(s->diag, "write '@ e' behind the overlap: overlap { ... } @ e");
    } else if (b->kind == ST_OP && b->cond && list && list->kind == ST_RULES) {
      diag_error(s->diag, DIAG_CLAUSE, b->cond->at, "the ops of an action have one condition");
      diag_help(s->diag, "write the condition behind the overlap: overlap { ... } @ e when ...");
    } else if (b->kind != ST_OP && b->kind != ST_LET && b->kind != ST_OPDEF && b->kind != ST_FN) {
      diag_error(s->diag, DIAG_CLAUSE, b->at,
                 "only ops, do, if, let, op and fn stand in an overlap");
      diag_help(s->diag, b->kind == ST_OVERLAP ? "the ops of an overlap are one action already"
                                               : "put the overlap into this statement instead");
    }
}

void overlap_shape(Sched *s, const Stmt *t, const Stmt *list) {
  bool clock = list && list->kind == ST_CLOCK;
  if (clock && !t->value) {
    diag_error(s->diag, DIAG_CLAUSE, t->at, "an overlap in 'clock %s' needs a time stamp",
               list->name);
    diag_help(s->diag, "write '@ e' behind the overlap: overlap { ... } @ e");
  } else if (!list && t->value) {
    diag_error(s->diag, DIAG_CLAUSE, t->value->at, "a time stamp outside of 'clock'");
  }
  if (t->cond && (!list || clock))
    diag_error(s->diag, DIAG_CLAUSE, t->cond->at,
               "'when' is a condition of 'rules'; here use 'if'");
  only_ops(s, t->body, list);
}

void send_shape(Sched *s, const Clause *c) {
  for (int k = 0; k < NSENDS; k++)
    if (strcmp(c->name, send_names[k]) == 0)
      return;
  bool removed = strcmp(c->name, "next") == 0;
  diag_error(s->diag, removed ? DIAG_REMOVED : DIAG_CLAUSE, c->name_at,
             "'send %s': expected end or eager", c->name);
  if (removed)
    diag_help(s->diag, "%s", own_transfers_help);
}

void refuse_bare_w(Sched *s, Span at, const OpRef *w, const Stmt *list) {
  const char *text = span_text(s, w->at);
  diag_error(s->diag, DIAG_REMOVED, at, "'%s' in '%s %s' has no microbatch", text,
             list->kind == ST_CLOCK ? "clock" : "rules", list->name);
  diag_help(s->diag, "write the index: %s(m)", text);
}

/* ---- side ---- */

typedef struct Stream {
  const char *name;
  uint8_t op;
} Stream;
static const Stream streams[] = {
    {"compute", PIPE_SIDE}, {"comm", PIPE_SIDE_COMM}, {"copy", PIPE_SIDE_COPY}};

enum { LAST_ANCHOR = PIPE_U };

static void anchor_shape(Sched *s, const Clause *c, Anchor *a) {
  if (!a->name)
    return;
  for (a->op = 0; a->op <= LAST_ANCHOR; a->op++)
    if (strcmp(pipe_op_info[a->op].text, a->name) == 0)
      break;
  if (a->op > LAST_ANCHOR) {
    diag_error(s->diag, DIAG_SIDE, a->at, "'%s' is no op for '%s' to be attached to", a->name,
               c->name);
    diag_help(s->diag, "the ops are F B I W R U; B is the backward, whole or split");
  } else if (a->op == PIPE_U && c->mb_var && (a == &c->side->after || !c->side->after.name)) {
    diag_error(s->diag, DIAG_SIDE, a->at, "'%s' depends on the microbatch, but U has none",
               c->name);
    diag_help(s->diag, "write 'side %s(%s)'", c->name, c->var);
  }
}

void side_shape(Sched *s, const Clause *c) {
  Side *side = c->side;
  for (int k = 0; k < PIPE_NOPS; k++)
    if (strcmp(pipe_op_info[k].text, c->name) == 0)
      diag_error(s->diag, DIAG_SIDE, c->name_at, "'%s' is the name of an op of the language",
                 c->name);
  if (strlen(c->name) > LONGEST_SIDE_NAME)
    diag_error(s->diag, DIAG_SIDE, c->name_at, "'%s' is longer than %d letters", c->name,
               LONGEST_SIDE_NAME);
  if (!side->stream)
    return; /* the parser reported an error */
  size_t k = 0;
  while (k < sizeof streams / sizeof *streams && strcmp(streams[k].name, side->stream) != 0)
    k++;
  if (k == sizeof streams / sizeof *streams)
    diag_error(s->diag, DIAG_SIDE, side->stream_at,
               "'%s' is no stream: expected compute, comm or copy", side->stream);
  else
    side->op = streams[k].op;
  if (!side->after.name && !side->before.name) {
    diag_error(s->diag, DIAG_SIDE, c->at, "'%s' is attached to no op", c->name);
    diag_help(s->diag, "write 'before OP', 'latest before OP' or 'after OP' behind the stream");
  }
  anchor_shape(s, c, &side->after);
  anchor_shape(s, c, &side->before);
  for (const Entry *e = c->entries, *f; e; e = e->next) {
    if (strcmp(e->key, "cost") != 0 && strcmp(e->key, "memory") != 0) {
      diag_error(s->diag, DIAG_UNKNOWN_NAME, e->key_at, "unknown key '%s'", e->key);
      diag_help(s->diag, "the keys of a side op are cost and memory");
    }
    for (f = c->entries; f != e && strcmp(f->key, e->key) != 0;)
      f = f->next;
    if (f != e)
      diag_error(s->diag, DIAG_REDEFINED, e->key_at, "'%s' is given twice", e->key);
  }
}

/* ---- transfers ---- */

static const char *const lowering_name[NLOWERINGS] = {
    [PIPE_GLOBAL] = "global", [PIPE_CHANNELS] = "channels", [LOWERING_AUTO] = "auto"};

const char *lowering_text(uint32_t lowering) { return lowering_name[lowering]; }

uint32_t lowering_of(const char *name) {
  uint32_t l = 0;
  while (l < NLOWERINGS && strcmp(name, lowering_name[l]) != 0)
    l++;
  return l;
}

uint32_t asked_lowering(const Sched *s, uint32_t in_text) {
  return s->opt->lowering ? (uint32_t)s->opt->lowering - 1 : in_text;
}

void transfers_shape(Sched *s, const Clause *c) {
  if (lowering_of(c->name) < NLOWERINGS)
    return;
  bool removed = strcmp(c->name, "inline") == 0 || strcmp(c->name, "grouped") == 0 ||
                 strcmp(c->name, "manual") == 0;
  diag_error(s->diag, removed ? DIAG_REMOVED : DIAG_CLAUSE, c->name_at,
             "'transfers %s': expected auto, global or channels", c->name);
  if (removed)
    diag_help(s->diag, "%s", own_transfers_help);
}
