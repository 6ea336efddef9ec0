/* SPDX-License-Identifier: MIT
 * What the parts of the resolve pass share: the symbol table, its scopes, and the state of the
 * pass.
 *
 *   resolve.c        clauses, schedules, imports; the pass
 *   resolve_names.c  the table; errors for a name that is unknown, or of another kind
 *   resolve_order.c  expressions, ops and statements */
#ifndef PIPEC_RESOLVE_H
#define PIPEC_RESOLVE_H

#include "names.h"
#include "pipec.h"

typedef enum SymKind { SY_NONE, SY_VAR, SY_FN, SY_OPDEF, SY_SCHEDULE, SY_PIPE, SY_BUILTIN } SymKind;

typedef struct Sym {
  Name name;
  SymKind kind;
  Span at;
  uint32_t slot;
  uint8_t units; /* VAR of a let, FN: of the numbers it is made of */
  bool array;    /* PIPE: several, by index */
  bool depends;  /* VAR: its value depends on the index of the kernel being resolved */
  union {
    Fn *fn;
    OpDef *opdef;
    Schedule *schedule;
    Builtin builtin;
  };
} Sym;

typedef struct Resolver {
  Sched *s;
  Parsed *parsed;
  uint8_t units;                  /* units of the numbers resolved so far, see resolve_units */
  const Entry *with_unit, *plain; /* first times of the schedule with a unit, and without */
  Interner *in;
  Sym *table; /* open addressing by pointer; never iterated */
  uint32_t cap, used;
  VEC(Name) scope; /* names defined, innermost last */
  struct File *files;
  Name op_name[PIPE_NOPS]; /* NULL: not written by users */
  bool sliced;             /* the schedule at hand has slices: ops have two indices */
  bool in_check;           /* quantities are allowed */
  bool in_when;            /* inflight and held are allowed: their present values */
  uint32_t nquantity;      /* number of quantities so far */
  Schedule *schedule;      /* that is being resolved */
  const Stmt *list;        /* the clock or rules that is being resolved, or NULL */
  bool picks;              /* in an overlap of rules: an op without an index is the first in line */
  const Fn *fn;            /* whose body is being resolved, or NULL */
  int depth;               /* of imports */
  const Stmt *kernel;      /* whose index the op being resolved lacks, or NULL */
  uint32_t names;          /* statements around that give a name values, such as loops */
  bool unnamed;            /* the index of an op under none of them is being resolved */
  const Clause *clause;    /* that is being resolved, or NULL */
  const Ast *file;
  VEC(Name) unknown; /* names of the clause that were reported, each once */
  bool incomplete;   /* an import of this file failed: what is unknown may be defined there */
} Resolver;

/* ---- resolve_names.c ---- */
Sym *sym_find(Resolver *r, Name name); /* NULL: it has no meaning here */
/* Gives a name a meaning until the scope ends. Reports and replaces a meaning that it has. */
Sym *sym_define(Resolver *r, Name name, Span at, SymKind kind);
uint32_t sym_define_var(Resolver *r, Name name, Span at); /* its slot of Eval.env */
uint32_t sym_scope_begin(Resolver *r);
void sym_scope_end(Resolver *r, uint32_t mark);
/* "did you mean"; false: nothing like it is visible. */
bool sym_suggest(Resolver *r, Name name);
/* One error: y, or nothing, stands for `wanted`. Helps: the source of y, or a near name. */
void sym_wrong_kind(Resolver *r, const Sym *y, Name name, Span at, const char *wanted);

/* ---- resolve_order.c ---- */
/* Both return whether the value depends on the index of the kernel. */
bool resolve_expr(Resolver *r, Expr *e);
bool resolve_args(Resolver *r, Arg *a);
/* Resolves e, and returns the units of its numbers (Sym.units). */
uint8_t resolve_units(Resolver *r, Expr *e);
/* Warns of a division of two numbers in a cost that leaves a remainder. */
void warn_rounded(Resolver *r, const Expr *e, bool is_time);
void resolve_range(Resolver *r, Range *g);
void resolve_fn(Resolver *r, Fn *f);
/* Resolves the arguments of a schedule that is instantiated; def: NULL if unknown. */
void resolve_bind(Resolver *r, Arg *args, const Schedule *def, Span at);
void resolve_block(Resolver *r, Stmt *b, const Stmt *kernel);

#endif
