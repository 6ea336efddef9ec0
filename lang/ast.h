/* SPDX-License-Identifier: MIT
 * The tree. Every node has the span of its whole text; names have spans of their own. Nodes live in
 * the arena of the compile; lists are linked by `next`, in text order. The parser fills in every
 * field that is not marked (sema) or (expand). Deterministic: nothing is hashed by address. */
#ifndef PIPE_AST_H
#define PIPE_AST_H

#include "arena.h"
#include "diag.h"

typedef struct Expr Expr;
typedef struct Stmt Stmt;
typedef struct Clause Clause;
typedef struct Item Item;

/* An interned name: equal text, equal pointer (intern). */
typedef const char *Name;

typedef enum ExprKind {
  EX_INT,     /* value; `unit` tells 0 plain, 1 bytes, 2 time (ns) */
  EX_REAL,    /* real: a number with a fraction and no unit; only in formulas */
  EX_NAME,    /* name */
  EX_NEG, EX_NOT,                                  /* a */
  EX_ADD, EX_SUB, EX_MUL, EX_DIV, EX_MOD,          /* a b; floor division and modulo */
  EX_LT, EX_LE, EX_GT, EX_GE, EX_EQ, EX_NE,        /* a b; 0 or 1 */
  EX_AND, EX_OR,                                   /* a b; short circuit; 0 or 1 */
  EX_COND,    /* a ? b : c */
  EX_CALL     /* name, args: min, max, a fn, or in `check` a quantity such as makespan(F = 1) */
} ExprKind;

typedef struct Arg {  /* of a call: positional, or `key = value` */
  struct Arg *next;
  Name key;           /* NULL when positional */
  Span key_at;
  Expr *value;
} Arg;

struct Expr {
  ExprKind kind;
  uint8_t unit;       /* EX_INT */
  uint8_t builtin;    /* (sema) EX_CALL: which builtin; EX_NAME in a formula: which (formula.h) */
  uint8_t depends;    /* (sema) scratch */
  Span at;
  int64_t value;      /* EX_INT */
  double real;        /* EX_REAL */
  Name name;          /* EX_NAME, EX_CALL */
  Span name_at;
  /* (sema) EX_NAME: slot of its value; EX_CALL in a formula: see formula_names.h */
  uint32_t slot;
  struct Fn *fn;      /* (sema) EX_CALL of a fn */
  Expr *a, *b, *c;
  Arg *args;
};

/* An op in an order: F(m)  F(m, q)  F[c](m)  F[stage s](m)  down.F(m)  U  or a macro f(k). */
typedef struct OpRef {
  Span at;
  Name pipe;          /* before the dot, or NULL */
  Span pipe_at;
  Expr *pipe_index;   /* of an array of pipes: p[e].F(m); NULL: none written */
  Name name;          /* "F" "B" "I" "W" "R" "U" or of an `op` macro */
  Span name_at;
  Expr *chunk;        /* [c], or NULL */
  Expr *stage;        /* [stage s], or NULL */
  Arg *args;          /* positional; NULL: none written */
  bool parens;        /* "()" was written, even if empty */
  int8_t op;          /* (sema) PipeOp, or -1 for a macro */
  struct OpDef *def;  /* (sema) macro */
  uint32_t number;    /* (sema) from 1, in all texts of a compile */
  /* (expand) its row among the items of the kernel being expanded; NONE: it is in a loop */
  uint32_t item;
} OpRef;

/* lo..hi [step s]. step NULL: 1; lo NULL: no range */
typedef struct Range { Expr *lo, *hi, *step; } Range;

typedef enum StmtKind {
  ST_OP,      /* op [@ value] [when cond]; the last two in clock and rules */
  ST_KERNEL,  /* steady NAME [in range] { body }: the clipped kernel */
  ST_DO,      /* do NAME in range { body }, or do count { body } (range.lo NULL, count in `cond`) */
  ST_IF,      /* if cond { body } [else { orelse }] */
  ST_LET,     /* let name = value */
  ST_OPDEF,   /* op name(params) = op */
  ST_FN,      /* fn name(params) = expr */
  ST_CLIP,    /* clip statement-or-block: leaves out ops on microbatches that do not exist */
  ST_CLOCK,   /* clock NAME [in range] [period value] { body }: ops in the order of their stamps */
  ST_RULES,   /* rules NAME [in range] { body }: ops by priority, in a simulation */
  ST_OVERLAP  /* overlap { body } [@ value] [when cond]: its ops are one action */
} StmtKind;

struct Stmt {
  Stmt *next;
  StmtKind kind;
  Span at;
  Name name;          /* loop variable, let */
  Span name_at;
  uint32_t slot;      /* (sema) of `name` */
  /* cond: of ST_IF, the count of ST_DO, `when` of ST_OP and ST_OVERLAP. value: of ST_LET, the
   * period, `@` of the others */
  Expr *cond, *value;
  Range range;
  OpRef *op;
  struct OpDef *opdef;
  struct Fn *fn;
  Stmt *body, *orelse;
};

typedef struct Param { /* of a fn, macro or schedule */
  struct Param *next;
  Name name;
  Span at;
  Expr *init;         /* default, or NULL; schedules only */
  uint32_t slot;      /* (sema) */
} Param;

typedef struct Fn {
  Name name;
  Span at, name_at;
  Param *params;
  Expr *body;
  uint8_t units;      /* (sema) units of the numbers in it: or of 1 << EX_INT.unit */
} Fn;
typedef struct OpDef { Name name; Span at, name_at; Param *params; OpRef *op; } OpDef;

typedef struct Entry { /* key = value in time { } and bytes { } */
  struct Entry *next;
  Name key;
  Span at, key_at;
  Expr *value;
  bool by_unit;       /* (sema) the value depends on the microbatch or the slice */
} Entry;

/* A line of `weights { }`. */
typedef enum WeightWord {
  WW_READS,    /* op reads newest|F|value [as formula] [per e] [when e] */
  WW_APPLIES,  /* U applies formula [when e] */
  WW_RATE,     /* U rate formula [when e] */
  WW_THEN,     /* U then state = formula [when e] */
  WW_VERSIONS, /* versions value */
  WW_STATE     /* state NAME */
} WeightWord;
typedef enum WeightSource { WS_NEWEST, WS_FORWARD, WS_VALUE } WeightSource; /* newest, F, value */

typedef struct WeightLine {
  struct WeightLine *next;
  WeightWord word;
  Span at;
  Name op;            /* before `reads`, `applies`, `rate` and `then`, or NULL */
  Span op_at;
  int8_t kind;        /* (sema) PipeOp */
  WeightSource source; /* WW_READS */
  Span source_at;
  Expr *value;        /* WW_READS of a version; WW_VERSIONS */
  Expr *formula, *when; /* or NULL */
  /* WW_READS: ops of a stage with equal values read the version that the first of them reads; or
   * NULL */
  Expr *per;
  Name state;         /* WW_STATE, WW_THEN */
  Span state_at;
  const struct Clause *clause; /* (sema) the clause that contains it */
} WeightLine;

typedef enum ClauseKind {
  CL_RANKS,   /* ranks value */
  CL_PIPE,    /* pipe name [[index] in range] [forward] [dag] stages value mbs mbs [slices slices]
                 place var [, mb] -> place [replica of root] */
  CL_EDGE,    /* edge value -> to [for var in range] */
  CL_TIE,     /* tie args */
  CL_ORDER,   /* order var [in range] { body } */
  CL_TIME,    /* time [var [, mb_var [, slice_var]]] [on rank_var] { entries } */
  CL_BYTES,   /* bytes [var] { entries } */
  CL_PROFILE, /* profile "path" */
  CL_CHECK,   /* check value [for var in range] */
  CL_LIMIT,   /* limit value [for var in range] */
  CL_RECOMPUTE, /* recompute [var [, mb_var]] [when when] */
  CL_SEND,    /* send name: when the outputs of an action may leave */
  CL_TRANSFERS,    /* transfers name: how transfers are lowered */
  CL_TUNE,    /* tune [var in range] [tries tries] by value */
  CL_OFFLOAD, /* offload [var, mb_var [-> place]] [when] [lead] */
  CL_EXCLUSIVE, /* exclusive var -> to */
  CL_LINK,      /* exclusive var, mb_var -> to: ranks that send and receive */
  CL_SIDE,    /* side name(var [, mb_var]) ... [when] [{ entries }] */
  CL_WEIGHTS, /* weights [var [, mb_var]] { lines } */
  CL_LET, CL_FN
} ClauseKind;

/* The anchor of a side op: an op of its stage; each, or only the first or last (end). */
typedef struct Anchor {
  Name name;          /* "F", or NULL: none */
  Span at;
  int8_t end;         /* -1 first, 1 last, 0 each */
  int8_t op;          /* (sema) PipeOp */
} Anchor;

typedef struct Side { /* of CL_SIDE: on stream [after ..] [[latest] before ..] [gives ..] */
  Name stream;
  Span stream_at;
  Anchor after, before;
  bool latest;
  Name gives;         /* the side op whose buffer it gives back, or NULL */
  Span gives_at;
  uint8_t op;         /* (sema) PipeOp: SIDE, SIDE_COMM or SIDE_COPY */
} Side;

struct Clause {
  Clause *next;
  ClauseKind kind;
  Span at;
  Name name;          /* pipe, let, send, transfers */
  Span name_at;
  Name var;           /* bound variable, or NULL */
  Span var_at;
  uint32_t slot;      /* (sema) of var, or of the name of a let */
  Expr *value, *mbs, *slices, *place, *to, *tries; /* slices: NULL without */
  bool forward;       /* CL_PIPE: the pipe runs only forward */
  Name index;         /* CL_PIPE: index of an array of pipes, over `range`; NULL: one pipe */
  Span index_at;
  uint32_t index_slot; /* (sema) */
  bool dag;           /* CL_PIPE: only edges connect its stages */
  Arg *args;          /* CL_TIE: the stages */
  Name root;          /* CL_PIPE: the pipe that it replicates, or NULL */
  Span root_at;
  Range range;
  Stmt *body;
  Entry *entries;
  WeightLine *lines;  /* CL_WEIGHTS */
  Fn *fn;
  const char *path;   /* CL_PROFILE, unescaped */
  /* CL_OFFLOAD RECOMPUTE PIPE WEIGHTS TIME: name of the microbatch, or NULL; `var` is the stage */
  Name mb_var;
  Span mb_var_at;
  uint32_t mb_slot;   /* (sema) */
  Name slice_var, rank_var; /* CL_TIME, or NULL */
  Span slice_var_at, rank_var_at;
  uint32_t slice_slot, rank_slot; /* (sema) */
  Expr *when, *lead;  /* when: CL_OFFLOAD, CL_RECOMPUTE, CL_SIDE; lead: CL_OFFLOAD; or NULL */
  Side *side;         /* CL_SIDE */
};

/* A condition; text: of its message, or NULL. */
typedef struct Require { struct Require *next; Expr *cond; const char *text; } Require;

typedef struct Schedule {
  Name name;
  Span at, name_at;
  Param *params;
  Require *requires;
  Name base;          /* extends base(args), or NULL */
  Span base_at;
  Arg *base_args;
  bool unchecked;     /* drops the checks and limits of the schedule that it extends */
  struct Schedule *base_def; /* (sema) */
  bool timed;         /* (sema) it contains a number with a time unit */
  bool part;          /* (sema) another schedule extends it */
  Clause *clauses;
} Schedule;

typedef enum ItemKind { IT_IMPORT, IT_LET, IT_FN, IT_SCHEDULE } ItemKind;
struct Item {
  Item *next;
  ItemKind kind;
  Span at;
  Name name;          /* let */
  Span name_at;
  uint32_t slot;      /* (sema) let */
  uint8_t units;      /* (sema) let: as in Fn */
  Expr *value;
  Fn *fn;
  Schedule *schedule;
  const char *path;   /* import, unescaped */
  struct Ast *imported; /* (sema) */
};

typedef struct Ast { uint32_t file; Item *items; } Ast;

/* The table of names of one compile. */
typedef struct Interner Interner;
Interner *intern_new(Arena *a);
Name intern(Interner *in, const char *s, size_t n);

/* Parses source `file` of d and reports every syntax error that it can recover from. Returns the
 * tree of the readable parts, never NULL; the caller checks d->errors. */
Ast *parse(Arena *a, Interner *in, Diag *d, uint32_t file);

/* Prints the tree as canonical text: parsing that text gives the same dump again. */
void ast_dump(FILE *out, const Ast *ast);
void ast_dump_expr(FILE *out, const Expr *e);

#endif
