/* SPDX-License-Identifier: MIT
 * The symbol table, the scopes and the state of the resolve pass, shared by its parts:
 *
 *   resolve.c        clauses, schedules, imports; the pass
 *   resolve_names.c  the table; errors for a name that is unknown or of a wrong kind
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
  uint32_t slot; /* of Eval.env */
  uint8_t units; /* VAR of a let, FN: units of the numbers in its value; bit u for unit u */
  bool array;    /* PIPE: it is an array of pipes */
  bool depends;  /* VAR: its value depends on the index of the enclosing kernel, clock or rules */
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
  /* bits of the units of the numbers resolved so far (resolve_units) */
  uint8_t units;
  const Entry *with_unit, *plain; /* first time of the schedule with a unit; without */
  Interner *in;
  Sym *table; /* open addressing by pointer; never iterated */
  uint32_t cap, used;
  VEC(Name) scope; /* defined names, innermost scope last */
  struct File *files;
  Name op_name[PIPE_NOPS]; /* NULL: users cannot write it */
  bool sliced;             /* the present schedule has slices: its ops have two indices */
  bool in_check;           /* quantities such as makespan() may stand here */
  bool in_when;            /* present values such as inflight(r) may stand here */
  uint32_t nquantity;      /* number of present values resolved so far */
  Schedule *schedule;      /* the schedule being resolved, or NULL */
  const Stmt *list;        /* the clock or rules being resolved, or NULL */
  /* in an overlap of rules: an op without an index means the first in line */
  bool picks;
  const Fn *fn;            /* the function whose body is being resolved, or NULL */
  int depth;               /* depth of imports */
  const Stmt *kernel;      /* the kernel whose index the present op lacks, or NULL */
  /* number of enclosing statements that give values to a name, such as loops */
  uint32_t names;
  bool unnamed;            /* the index of an op is being resolved, and `names` is 0 */
  const Clause *clause;    /* the clause being resolved, or NULL */
  const Ast *file;         /* the file being resolved */
  VEC(Name) unknown; /* unknown names of the clause; each is reported once */
  bool incomplete;   /* an import of this file failed: unknown names may be defined there */
} Resolver;

/* ---- resolve_names.c ---- */
Sym *sym_find(Resolver *r, Name name); /* NULL: it has no meaning here */
/* Gives a name a meaning until the scope ends. If it has one already, reports that and replaces
 * it. */
Sym *sym_define(Resolver *r, Name name, Span at, SymKind kind);
uint32_t sym_define_var(Resolver *r, Name name, Span at); /* returns its slot of Eval.env */
uint32_t sym_scope_begin(Resolver *r);
void sym_scope_end(Resolver *r, uint32_t mark);
/* Prints "did you mean ...". False: no visible name is near. */
bool sym_suggest(Resolver *r, Name name);
/* Reports that y, or nothing if NULL, stands where `wanted` is expected. Helps with the place of y,
 * or with a near name. */
void sym_wrong_kind(Resolver *r, const Sym *y, Name name, Span at, const char *wanted);

/* ---- resolve_order.c ---- */
/* Both return whether the value depends on the index of the kernel. */
bool resolve_expr(Resolver *r, Expr *e);
bool resolve_args(Resolver *r, Arg *a);
/* Resolves e. Returns the units of its numbers (Sym.units). */
uint8_t resolve_units(Resolver *r, Expr *e);
/* Warns if a division of two numbers in a cost leaves a remainder. */
void warn_rounded(Resolver *r, const Expr *e, bool is_time);
void resolve_range(Resolver *r, Range *g);
void resolve_fn(Resolver *r, Fn *f);
/* Resolves the arguments of an instantiated schedule; def: NULL if it is unknown. */
void resolve_bind(Resolver *r, Arg *args, const Schedule *def, Span at);
void resolve_block(Resolver *r, Stmt *b, const Stmt *kernel);

#endif
