/* SPDX-License-Identifier: MIT
 * The name table, and the text form of the tree.
 *
 * ast_dump writes `.pipe` text with one statement, clause or entry per line and only the brackets
 * that precedence needs; a number with a unit is written in bytes or ns. Parsing this text gives a
 * tree with the same dump (test/fuzz/text.c checks it), because nothing in it nests deeper than in
 * its source. Cost: linear in the output. */
#include "ast.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "pipe_instr.h"

/* Open addressing; the number of slots is a power of two, and at most half are used. */
typedef struct Slot {
  Name name;
  size_t len;
  uint32_t hash;
} Slot;
struct Interner {
  Arena *arena;
  Slot *slot;
  uint32_t nslot, nused;
};

Interner *intern_new(Arena *a) {
  Interner *in = NEW(a, Interner);
  in->arena = a;
  in->nslot = 256;
  in->slot = NEW_ARRAY(a, Slot, in->nslot);
  return in;
}

static Slot *find_slot(Slot *slot, uint32_t nslot, const char *s, size_t n, uint32_t hash) {
  uint32_t i = hash & (nslot - 1);
  while (slot[i].name &&
         (slot[i].hash != hash || slot[i].len != n || memcmp(slot[i].name, s, n) != 0))
    i = (i + 1) & (nslot - 1);
  return &slot[i];
}

Name intern(Interner *in, const char *s, size_t n) {
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (size_t i = 0; i < n; i++)
    hash = (hash ^ (unsigned char)s[i]) * 16777619u;
  Slot *found = find_slot(in->slot, in->nslot, s, n, hash);
  if (found->name)
    return found->name;
  if (in->nused >= in->nslot / 2) {
    uint32_t nslot = in->nslot * 2;
    Slot *slot = NEW_ARRAY(in->arena, Slot, nslot);
    for (uint32_t i = 0; i < in->nslot; i++)
      if (in->slot[i].name)
        *find_slot(slot, nslot, in->slot[i].name, in->slot[i].len, in->slot[i].hash) = in->slot[i];
    in->slot = slot;
    in->nslot = nslot;
    found = find_slot(slot, nslot, s, n, hash);
  }
  *found = (Slot){arena_strndup(in->arena, s, n), n, hash};
  in->nused++;
  return found->name;
}

/* How tightly an expression binds, as in the grammar. An operand that binds less tightly than its
 * place requires is written in parentheses. */
typedef enum Bind {
  BIND_COND,
  BIND_OR,
  BIND_AND,
  BIND_CMP,
  BIND_SUM,
  BIND_PRODUCT,
  BIND_UNARY,
  BIND_PRIMARY
} Bind;

typedef struct OperatorText {
  const char *text;
  Bind bind;
} OperatorText;
static const OperatorText operators[] = {
    [EX_INT] = {"", BIND_PRIMARY},  [EX_REAL] = {"", BIND_PRIMARY}, [EX_NAME] = {"", BIND_PRIMARY},
    [EX_CALL] = {"", BIND_PRIMARY}, [EX_NEG] = {"-", BIND_UNARY},   [EX_NOT] = {"!", BIND_UNARY},
    [EX_MUL] = {"*", BIND_PRODUCT}, [EX_DIV] = {"/", BIND_PRODUCT}, [EX_MOD] = {"%", BIND_PRODUCT},
    [EX_ADD] = {"+", BIND_SUM},     [EX_SUB] = {"-", BIND_SUM},     [EX_LT] = {"<", BIND_CMP},
    [EX_LE] = {"<=", BIND_CMP},     [EX_GT] = {">", BIND_CMP},      [EX_GE] = {">=", BIND_CMP},
    [EX_EQ] = {"==", BIND_CMP},     [EX_NE] = {"!=", BIND_CMP},     [EX_AND] = {"&&", BIND_AND},
    [EX_OR] = {"||", BIND_OR},      [EX_COND] = {"?", BIND_COND},
};

static void put_expr(FILE *out, const Expr *e, Bind least);

static void put_args(FILE *out, const Arg *args) {
  fputc('(', out);
  for (const Arg *arg = args; arg; arg = arg->next) {
    if (arg != args)
      fputs(", ", out);
    if (arg->key)
      fprintf(out, "%s = ", arg->key);
    put_expr(out, arg->value, BIND_COND);
  }
  fputc(')', out);
}

/* Writes 17 digits, which read back to the same number, without an exponent, which the language
 * lacks. */
static void put_real(FILE *out, double value) {
  int exponent = value > 0 ? (int)floor(log10(value)) : 0;
  if (exponent >= -4 && exponent < 17)
    fprintf(out, "%.17g", value);
  else
    fprintf(out, "%.*f", exponent < 0 ? 17 - exponent : 1, value);
}

static void put_expr(FILE *out, const Expr *e, Bind least) {
  const OperatorText *op = &operators[e->kind];
  Bind bind = op->bind;
  if (bind < least)
    fputc('(', out);
  switch (e->kind) {
  case EX_INT:
    fprintf(out, "%" PRId64 "%s", e->value, e->unit == 1 ? "B" : e->unit == 2 ? "ns" : "");
    break;
  case EX_REAL: put_real(out, e->real); break;
  case EX_NAME: fputs(e->name, out); break;
  case EX_CALL:
    fputs(e->name, out);
    put_args(out, e->args);
    break;
  case EX_NEG:
  case EX_NOT:
    fputs(op->text, out);
    put_expr(out, e->a, BIND_UNARY);
    break;
  case EX_COND:
    put_expr(out, e->a, BIND_OR);
    fputs(" ? ", out);
    put_expr(out, e->b, BIND_COND);
    fputs(" : ", out);
    put_expr(out, e->c, BIND_COND);
    break;
  default: /* binary: left-associative; comparisons do not chain */
    put_expr(out, e->a, bind == BIND_CMP ? bind + 1 : bind);
    fprintf(out, " %s ", op->text);
    put_expr(out, e->b, bind + 1);
  }
  if (bind < least)
    fputc(')', out);
}

void ast_dump_expr(FILE *out, const Expr *e) { put_expr(out, e, BIND_COND); }

static void put_string(FILE *out, const char *s) {
  fputc('"', out);
  for (; *s; s++) {
    if (*s == '"' || *s == '\\')
      fputc('\\', out);
    fputc(*s, out);
  }
  fputc('"', out);
}

static void put_indent(FILE *out, int indent) { fprintf(out, "%*s", 2 * indent, ""); }

/* Writes " in lo..hi step s", or nothing without a range. */
static void put_range(FILE *out, const Range *range) {
  if (!range->lo)
    return;
  fputs(" in ", out);
  ast_dump_expr(out, range->lo);
  fputs("..", out);
  ast_dump_expr(out, range->hi);
  if (range->step) {
    fputs(" step ", out);
    ast_dump_expr(out, range->step);
  }
}

static void put_params(FILE *out, const Param *params) {
  fputc('(', out);
  for (const Param *p = params; p; p = p->next) {
    fprintf(out, "%s%s", p == params ? "" : ", ", p->name);
    if (p->init) {
      fputs(" = ", out);
      ast_dump_expr(out, p->init);
    }
  }
  fputc(')', out);
}

static void put_let(FILE *out, Name name, const Expr *value) {
  fprintf(out, "let %s = ", name);
  ast_dump_expr(out, value);
}

static void put_fn(FILE *out, const Fn *fn) {
  fprintf(out, "fn %s", fn->name);
  put_params(out, fn->params);
  fputs(" = ", out);
  ast_dump_expr(out, fn->body);
}

static void put_op(FILE *out, const OpRef *op) {
  if (op->pipe && op->pipe_index) {
    fprintf(out, "%s[", op->pipe);
    ast_dump_expr(out, op->pipe_index);
    fputs("].", out);
  } else if (op->pipe) {
    fprintf(out, "%s.", op->pipe);
  }
  fputs(op->name, out);
  if (op->chunk || op->stage) {
    fputs(op->stage ? "[stage " : "[", out);
    ast_dump_expr(out, op->stage ? op->stage : op->chunk);
    fputc(']', out);
  }
  if (op->parens)
    put_args(out, op->args);
}

static void put_block(FILE *out, const Stmt *body, int indent);

static bool binds_index(const Stmt *s) {
  return s->kind == ST_KERNEL || s->kind == ST_CLOCK || s->kind == ST_RULES;
}

static void put_stamp(FILE *out, const Stmt *s) {
  if (!s->value)
    return;
  fputs(" @ ", out);
  ast_dump_expr(out, s->value);
}

static void put_when(FILE *out, const Stmt *s) {
  if (!s->cond)
    return;
  fputs(" when ", out);
  ast_dump_expr(out, s->cond);
}

/* Prints a statement, without the indentation before it and the line end after it. */
static void put_stmt(FILE *out, const Stmt *s, int indent) {
  switch (s->kind) {
  case ST_OP:
    put_op(out, s->op);
    put_stamp(out, s);
    put_when(out, s);
    break;
  case ST_KERNEL:
  case ST_CLOCK:
  case ST_RULES:
    fprintf(out, "%s %s",
            s->kind == ST_KERNEL  ? "steady"
            : s->kind == ST_CLOCK ? "clock"
                                  : "rules",
            s->name);
    put_range(out, &s->range);
    if (s->value) {
      fputs(" period ", out);
      ast_dump_expr(out, s->value);
    }
    fputc(' ', out);
    put_block(out, s->body, indent);
    break;
  case ST_DO:
    fputs("do ", out);
    if (s->name) {
      fputs(s->name, out);
      put_range(out, &s->range);
    } else {
      ast_dump_expr(out, s->cond);
    }
    fputc(' ', out);
    put_block(out, s->body, indent);
    break;
  case ST_IF:
    for (;; s = s->orelse) {
      fputs("if ", out);
      ast_dump_expr(out, s->cond);
      fputc(' ', out);
      put_block(out, s->body, indent);
      if (!s->orelse)
        break;
      fputs(" else ", out);
      if (s->orelse->kind != ST_IF || s->orelse->next) {
        put_block(out, s->orelse, indent);
        break;
      }
    }
    break;
  case ST_LET: put_let(out, s->name, s->value); break;
  case ST_OPDEF:
    fprintf(out, "op %s", s->opdef->name);
    put_params(out, s->opdef->params);
    fputs(" = ", out);
    put_op(out, s->opdef->op);
    break;
  case ST_FN: put_fn(out, s->fn); break;
  case ST_OVERLAP:
    fputs("overlap ", out);
    put_block(out, s->body, indent);
    put_stamp(out, s);
    put_when(out, s);
    break;
  case ST_CLIP:
    fputs("clip ", out);
    if (s->body && !s->body->next && (s->body->kind == ST_DO || binds_index(s->body)))
      put_stmt(out, s->body, indent);
    else
      put_block(out, s->body, indent);
    break;
  }
}

static void put_block(FILE *out, const Stmt *body, int indent) {
  fputs("{\n", out);
  for (const Stmt *s = body; s; s = s->next) {
    put_indent(out, indent + 1);
    put_stmt(out, s, indent + 1);
    fputc('\n', out);
  }
  put_indent(out, indent);
  fputc('}', out);
}

static void put_entries(FILE *out, const Clause *c) {
  fputs(" {\n", out);
  for (const Entry *e = c->entries; e; e = e->next) {
    fprintf(out, "    %s = ", e->key);
    ast_dump_expr(out, e->value);
    fputc('\n', out);
  }
  fputs("  }", out);
}

static void put_optional(FILE *out, const char *word, const Expr *e) {
  if (!e)
    return;
  fprintf(out, " %s ", word);
  ast_dump_expr(out, e);
}

static void put_weights(FILE *out, const Clause *c) {
  static const char *const word[] = {"reads", "applies", "rate", "then", "versions", "state"};
  fprintf(out, "weights%s%s%s%s {\n", c->var ? " " : "", c->var ? c->var : "",
          c->mb_var ? ", " : "", c->mb_var ? c->mb_var : "");
  for (const WeightLine *l = c->lines; l; l = l->next) {
    fprintf(out, "    %s%s%s", l->op ? l->op : "", l->op ? " " : "", word[l->word]);
    if (l->word == WW_READS && l->source != WS_VALUE)
      fputs(l->source == WS_NEWEST ? " newest" : " F", out);
    if (l->state)
      fprintf(out, " %s", l->state);
    if (l->value) { /* parentheses keep the name `newest` from being the keyword */
      bool word_too = l->value->kind == EX_NAME && strcmp(l->value->name, "newest") == 0;
      fputs(word_too ? " (" : " ", out);
      ast_dump_expr(out, l->value);
      fputs(word_too ? ")" : "", out);
    }
    if (l->word == WW_READS || l->word == WW_THEN)
      put_optional(out, l->word == WW_READS ? "as" : "=", l->formula);
    else if (l->formula) {
      fputc(' ', out);
      ast_dump_expr(out, l->formula);
    }
    put_optional(out, "per", l->per);
    put_optional(out, "when", l->when);
    fputc('\n', out);
  }
  fputs("  }", out);
}

static void put_costs(FILE *out, const char *keyword, const Clause *c) {
  fputs(keyword, out);
  if (c->var)
    fprintf(out, " %s", c->var);
  if (c->mb_var)
    fprintf(out, ", %s", c->mb_var);
  if (c->slice_var)
    fprintf(out, ", %s", c->slice_var);
  if (c->rank_var)
    fprintf(out, " on %s", c->rank_var);
  put_entries(out, c);
}

static void put_anchor(FILE *out, const char *word, const Anchor *a) {
  if (a->name)
    fprintf(out, " %s%s %s", word, a->end < 0 ? " first" : a->end > 0 ? " last" : "", a->name);
}

static void put_clause(FILE *out, const Clause *c) {
  switch (c->kind) {
  case CL_RANKS:
    fputs("ranks ", out);
    ast_dump_expr(out, c->value);
    break;
  case CL_PIPE:
    fprintf(out, "pipe %s", c->name);
    if (c->index) {
      fprintf(out, "[%s]", c->index);
      put_range(out, &c->range);
    }
    fprintf(out, "%s%s stages ", c->forward ? " forward" : "", c->dag ? " dag" : "");
    ast_dump_expr(out, c->value);
    fputs(" mbs ", out);
    ast_dump_expr(out, c->mbs);
    if (c->slices) {
      fputs(" slices ", out);
      ast_dump_expr(out, c->slices);
    }
    fprintf(out, " place %s%s%s -> ", c->var, c->mb_var ? ", " : "", c->mb_var ? c->mb_var : "");
    ast_dump_expr(out, c->place);
    if (c->root)
      fprintf(out, " replica of %s", c->root);
    break;
  case CL_EDGE:
    fputs("edge ", out);
    ast_dump_expr(out, c->value);
    fputs(" -> ", out);
    ast_dump_expr(out, c->to);
    if (c->var) {
      fprintf(out, " for %s", c->var);
      put_range(out, &c->range);
    }
    break;
  case CL_TIE:
    fputs("tie ", out);
    for (const Arg *a = c->args; a; a = a->next) {
      fputs(a == c->args ? "" : ", ", out);
      ast_dump_expr(out, a->value);
    }
    break;
  case CL_ORDER:
    fprintf(out, "order %s", c->var);
    put_range(out, &c->range);
    fputc(' ', out);
    put_block(out, c->body, 1);
    break;
  case CL_TIME: put_costs(out, "time", c); break;
  case CL_BYTES: put_costs(out, "bytes", c); break;
  case CL_PROFILE:
    fputs("profile ", out);
    put_string(out, c->path);
    break;
  case CL_SEND: fprintf(out, "send %s", c->name); break;
  case CL_TRANSFERS: fprintf(out, "transfers %s", c->name); break;
  case CL_CHECK:
  case CL_LIMIT:
    fputs(c->kind == CL_CHECK ? "check " : "limit ", out);
    ast_dump_expr(out, c->value);
    if (c->var) {
      fprintf(out, " for %s", c->var);
      put_range(out, &c->range);
    }
    break;
  case CL_RECOMPUTE:
    fputs("recompute", out);
    if (c->var)
      fprintf(out, " %s", c->var);
    if (c->mb_var)
      fprintf(out, ", %s", c->mb_var);
    if (c->when) {
      fputs(" when ", out);
      ast_dump_expr(out, c->when);
    }
    break;
  case CL_OFFLOAD:
    fputs("offload", out);
    if (c->var)
      fprintf(out, " %s, %s", c->var, c->mb_var);
    if (c->place) {
      fputs(" -> ", out);
      ast_dump_expr(out, c->place);
    }
    if (c->when) {
      fputs(" when ", out);
      ast_dump_expr(out, c->when);
    }
    if (c->lead) {
      fputs(" lead ", out);
      ast_dump_expr(out, c->lead);
    }
    break;
  case CL_EXCLUSIVE:
    fprintf(out, "exclusive %s -> ", c->var);
    ast_dump_expr(out, c->to);
    break;
  case CL_LINK:
    fprintf(out, "exclusive %s, %s -> ", c->var, c->mb_var);
    ast_dump_expr(out, c->to);
    break;
  case CL_SIDE:
    fprintf(out, "side %s(%s", c->name, c->var);
    if (c->mb_var)
      fprintf(out, ", %s", c->mb_var);
    fprintf(out, ") on %s", c->side->stream);
    put_anchor(out, "after", &c->side->after);
    put_anchor(out, c->side->latest ? "latest before" : "before", &c->side->before);
    if (c->side->gives)
      fprintf(out, " gives %s", c->side->gives);
    if (c->when) {
      fputs(" when ", out);
      ast_dump_expr(out, c->when);
    }
    put_entries(out, c);
    break;
  case CL_TUNE:
    fputs("tune", out);
    if (c->var) {
      fprintf(out, " %s", c->var);
      put_range(out, &c->range);
    }
    if (c->tries) {
      fputs(" tries ", out);
      ast_dump_expr(out, c->tries);
    }
    fputs(" by ", out);
    ast_dump_expr(out, c->value);
    break;
  case CL_WEIGHTS: put_weights(out, c); break;
  case CL_LET: put_let(out, c->name, c->value); break;
  case CL_FN: put_fn(out, c->fn); break;
  }
}

static void put_requires(FILE *out, const Require *first) {
  for (const Require *r = first; r; r = r->next) {
    fputs(r == first ? " requires " : ", ", out);
    ast_dump_expr(out, r->cond);
    if (r->text) {
      fputs(" : ", out);
      put_string(out, r->text);
    }
  }
}

static void put_schedule(FILE *out, const Schedule *s) {
  fprintf(out, "schedule %s", s->name);
  put_params(out, s->params);
  if (s->base) {
    fprintf(out, " extends %s", s->base);
    put_args(out, s->base_args);
    fputs(s->unchecked ? " without checks" : "", out);
  }
  put_requires(out, s->requires);
  fputs(" {\n", out);
  for (const Clause *c = s->clauses; c; c = c->next) {
    fputs("  ", out);
    put_clause(out, c);
    fputc('\n', out);
  }
  fputc('}', out);
}

void ast_dump(FILE *out, const Ast *ast) {
  for (const Item *item = ast->items; item; item = item->next) {
    switch (item->kind) {
    case IT_IMPORT:
      fputs("import ", out);
      put_string(out, item->path);
      break;
    case IT_LET: put_let(out, item->name, item->value); break;
    case IT_FN: put_fn(out, item->fn); break;
    case IT_SCHEDULE: put_schedule(out, item->schedule); break;
    }
    fputc('\n', out);
  }
}
