/* SPDX-License-Identifier: MIT
 * The parser (spec.md, section 2). It builds the tree of ast.h and reports syntax errors. The file
 * has more than 800 lines because the words of an error come from tables that Bison makes static in
 * it.
 *
 * Recovery: after an error the parser skips to a token that can begin or end (';' or '}') a
 * statement, clause or item. It reads the block that follows the error, or skips it as a whole if
 * its content is unknown. It reports no further error until three tokens in a row are good, a block
 * or a ';' ends, or a keyword begins a line. If a word that begins a line can only begin a clause
 * or an item, the parser reports the missing '}' and inserts it before the word.
 *
 * note [depth]: later passes walk the tree by recursion, so the parser bounds its depth:
 *
 * - Brackets nest at most MAX_NESTING deep; they are counted as tokens are read, before they use
 *   the stack of the parser.
 * - A path through one expression or through nested statements has at most MAX_DEPTH nodes, counted
 *   bottom up beside each node (`depth`). This bounds sums of many terms and chains of else-if.
 * - The rest, such as a run of unary signs, ends at YYMAXDEPTH.
 *
 * Each bound gives one `nesting` error; the parser then ignores the rest of the file. Cost: linear
 * in the tokens. */
%require "3.8"
%define api.pure full
%define api.token.prefix {TOK_}
%define api.location.type {Span}
%define parse.error custom
%define parse.lac full
%locations
%expect 0
%param {Parse *ps}

%code requires {
#include "lexer.h"

typedef struct Parse Parse;

/* A value with the depth of its tree, and lists in text order. */
typedef struct ExprVal { Expr *e; uint32_t depth; } ExprVal;
typedef struct ArgList { Arg *first, *last; uint32_t depth; } ArgList;
typedef struct ParamList { Param *first, *last; } ParamList;
typedef struct RequireList { Require *first, *last; } RequireList;
typedef struct EntryList { Entry *first, *last; } EntryList;
typedef struct StmtVal { Stmt *s; uint32_t depth; } StmtVal;
typedef struct StmtList { Stmt *first, *last; uint32_t depth; } StmtList;
typedef struct LineList { WeightLine *first, *last; } LineList;
typedef struct Read { WeightSource kind; Expr *value; } Read;
typedef struct ClauseList { Clause *first, *last; } ClauseList;
typedef struct Binding { Name name; Span at; } Binding;
typedef struct Base { Name name; Span at; Arg *args; bool unchecked; } Base;
typedef struct Array { Binding index; Range range; } Array; /* index.name NULL: no array */
typedef struct OpHead { Binding name; Expr *index; } OpHead;    /* of the part before the dot */

#define YYLLOC_DEFAULT(Cur, Rhs, N)                                \
  do {                                                             \
    (Cur).file = YYRHSLOC(Rhs, (N) ? 1 : 0).file;                  \
    (Cur).beg = (N) ? YYRHSLOC(Rhs, 1).beg : YYRHSLOC(Rhs, 0).end; \
    (Cur).end = YYRHSLOC(Rhs, N).end;                              \
  } while (0)
}

%code {
#include <math.h>
#include <string.h>

#include "habits.h"
#include "pipe_instr.h"

enum { MAX_NESTING = 200, MAX_DEPTH = 1000 };
#define YYMAXDEPTH 10000

struct Parse {
  Lexer lx;
  Ast *ast;
  Item *last;                      /* last of ast->items */
  Span open[MAX_NESTING];          /* open brackets */
  uint32_t nopen;
  Span read;                       /* the last token */
  int kind, kind_before;           /* kinds of the last token and of the one before it */
  Span read_before;                /* the token before the last */
  /* The keyword that begins the current form: without the last token, and including it; 0: none. */
  int word, next_word;
  /* The innermost '(' or '[' that the last token, a '}', left open. */
  Span unclosed;
  /* The first '{' whose '}' begins a line with smaller indentation. */
  Span misfit;
  uint32_t ninsert;                /* '}' to insert before `held`, see insert_closers */
  int before;                      /* the previous token of the text */
  bool in_pipe;                    /* the last token is between 'pipe NAME' and 'stages' */
  bool in_base;                    /* the last token is between 'extends' and '{' */
  uint8_t in_weights;              /* 1: between 'weights' and its '{'; 2: in its braces; else 0 */
  int held;                        /* a token that was read but not yet given to the parser, or 0 */
  TokenValue held_value;
  Span held_at;
  bool by_hand;                    /* a transfer in an order was reported */
  uint32_t errors;                 /* errors before this file */
  bool too_deep;                   /* a nesting error was reported: read no further */
};

static int yylex(YYSTYPE *val, Span *at, Parse *ps);
static void yyerror(Span *at, Parse *ps, const char *msg);
static void too_deep(Parse *ps, const char *what, int limit);
static void by_hand(Parse *ps, Span at);
static void two_words(Parse *ps, Span at);
static void skip_block(Parse *ps);
static bool begins_line(const Parse *ps, Span at);
static bool begins_form(int token);

static Expr *new_expr(Parse *ps, ExprKind kind, Span at) {
  Expr *e = NEW(ps->lx.arena, Expr);
  e->kind = kind;
  e->at = at;
  return e;
}

static uint32_t max2(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* The depth of a node whose children have depth `below` at most, see note [depth]. */
static uint32_t above(Parse *ps, uint32_t below) {
  if (below >= MAX_DEPTH)
    too_deep(ps, "operators or 'else if'", MAX_DEPTH);
  return below + 1;
}

static ExprVal expr3(Parse *ps, ExprKind kind, Span at, ExprVal a, ExprVal b, ExprVal c) {
  Expr *e = new_expr(ps, kind, at);
  e->a = a.e;
  e->b = b.e;
  e->c = c.e;
  return (ExprVal){e, above(ps, max2(a.depth, max2(b.depth, c.depth)))};
}

static ExprVal expr2(Parse *ps, ExprKind kind, Span at, ExprVal a, ExprVal b) {
  return expr3(ps, kind, at, a, b, (ExprVal){NULL, 0});
}

static ArgList new_arg(Parse *ps, Name key, Span key_at, ExprVal value) {
  Arg *arg = NEW(ps->lx.arena, Arg);
  arg->key = key;
  arg->key_at = key_at;
  arg->value = value.e;
  return (ArgList){arg, arg, value.depth};
}

static ArgList more_args(ArgList args, ArgList arg) {
  args.last = args.last->next = arg.first;
  args.depth = max2(args.depth, arg.depth);
  return args;
}

static Param *new_param(Parse *ps, Name name, Span at, Expr *init) {
  Param *param = NEW(ps->lx.arena, Param);
  param->name = name;
  param->at = at;
  param->init = init;
  return param;
}

static Require *new_require(Parse *ps, Expr *cond, const char *text) {
  Require *require = NEW(ps->lx.arena, Require);
  require->cond = cond;
  require->text = text;
  return require;
}

static Fn *new_fn(Parse *ps, Span at, Binding name, Param *params, Expr *body) {
  Fn *fn = NEW(ps->lx.arena, Fn);
  *fn = (Fn){name.name, at, name.at, params, body, 0};
  return fn;
}

static OpDef *new_opdef(Parse *ps, Span at, Binding name, Param *params, OpRef *op) {
  OpDef *def = NEW(ps->lx.arena, OpDef);
  *def = (OpDef){name.name, at, name.at, params, op};
  return def;
}

static OpRef *new_op(Parse *ps, Span at, Binding name) {
  OpRef *op = NEW(ps->lx.arena, OpRef);
  op->at = at;
  op->name = name.name;
  op->name_at = name.at;
  op->pipe_at = NO_SPAN;
  return op;
}

static OpRef *new_pipe_op(Parse *ps, Span at, OpHead pipe, Binding name) {
  OpRef *op = new_op(ps, at, name);
  op->pipe = pipe.name.name;
  op->pipe_at = pipe.name.at;
  op->pipe_index = pipe.index;
  return op;
}

static Entry *new_entry(Parse *ps, Span at, Name key, Span key_at, Expr *value) {
  Entry *entry = NEW(ps->lx.arena, Entry);
  entry->at = at;
  entry->key = key;
  entry->key_at = key_at;
  entry->value = value;
  return entry;
}

static Stmt *new_stmt(Parse *ps, StmtKind kind, Span at) {
  Stmt *s = NEW(ps->lx.arena, Stmt);
  s->kind = kind;
  s->at = at;
  s->name_at = NO_SPAN;
  return s;
}

/* A statement that binds a name: let, do, kernel. */
static Stmt *new_binder(Parse *ps, StmtKind kind, Span at, Binding name) {
  Stmt *s = new_stmt(ps, kind, at);
  s->name = name.name;
  s->name_at = name.at;
  return s;
}

static StmtList one_stmt(StmtVal s) { return (StmtList){s.s, s.s, s.depth}; }

static Clause *new_clause(Parse *ps, ClauseKind kind, Span at, Expr *value) {
  Clause *c = NEW(ps->lx.arena, Clause);
  c->kind = kind;
  c->at = at;
  c->value = value;
  c->name_at = c->var_at = c->index_at = c->mb_var_at = c->slice_var_at = c->rank_var_at = NO_SPAN;
  return c;
}

static Clause *new_costs(Parse *ps, ClauseKind kind, Span at, Binding var, EntryList entries) {
  Clause *c = new_clause(ps, kind, at, NULL);
  c->var = var.name;
  c->var_at = var.at;
  c->entries = entries.first;
  return c;
}

static const char side_form[] =
    "a side op is written 'side NAME(s, m) on STREAM before OP { cost = e  memory = e }', or 'after OP', "
    "'latest before OP'";

static Clause *new_offload(Parse *ps, Span at, Binding stage, Binding mb, Expr *when, Expr *lead) {
  Clause *c = new_clause(ps, CL_OFFLOAD, at, NULL);
  c->var = stage.name;
  c->var_at = stage.at;
  c->mb_var = mb.name;
  c->mb_var_at = mb.at;
  c->when = when;
  c->lead = lead;
  return c;
}

/* The words of a `side` clause that are not read yet. */
typedef struct Words { Parse *ps; const Param *w, *last; } Words;

static Name any_word(Words *k, Span *at) {
  if (!k->w)
    return NULL;
  *at = k->w->at;
  k->last = k->w;
  k->w = k->w->next;
  return k->last->name;
}

static bool word(Words *k, const char *text) {
  Span at;
  return k->w && strcmp(k->w->name, text) == 0 && any_word(k, &at);
}

static void wrong_word(Words *k, const char *want) {
  if (k->w)
    diag_error(k->ps->lx.diag, DIAG_SYNTAX, k->w->at, "expected %s, got '%s'", want, k->w->name);
  else
    diag_error(k->ps->lx.diag, DIAG_SYNTAX, k->last->at, "expected %s after '%s'", want,
               k->last->name);
  diag_help(k->ps->lx.diag, "%s", side_form);
}

/* Reads "on" and a stream, then in any order "after [first|last] OP", "[latest] before [first|last]
 * OP" and "gives NAME". */
static void side_words(Words *k, Side *side) {
  if (!word(k, "on") || !(side->stream = any_word(k, &side->stream_at))) {
    wrong_word(k, k->last ? "the name of a stream" : "'on'");
    return;
  }
  while (k->w) {
    const Param *first = k->w;
    bool latest = word(k, "latest"), gives = !latest && word(k, "gives");
    Anchor *to = gives ? NULL : !latest && word(k, "after") ? &side->after : &side->before;
    if (to == &side->before && !word(k, "before")) {
      wrong_word(k, latest ? "'before'" : "'after', 'before', 'latest before' or 'gives'");
      return;
    }
    if (gives ? side->gives != NULL : to->name != NULL) {
      diag_error(k->ps->lx.diag, DIAG_SYNTAX, first->at, "'%s' is given twice", k->last->name);
      diag_help(k->ps->lx.diag, "%s", side_form);
      return;
    }
    side->latest |= latest;
    if (gives) {
      side->gives = any_word(k, &side->gives_at);
    } else {
      Span at = first->at;
      to->end = word(k, "first") ? -1 : word(k, "last") ? 1 : 0;
      to->name = any_word(k, &to->at);
      to->at.beg = at.beg;
    }
    if (gives ? !side->gives : !to->name) {
      wrong_word(k, gives ? "the side op that took the buffer" : "an op");
      return;
    }
  }
}

static Clause *new_side(Parse *ps, Span at, Binding name, Binding stage, Binding mb,
                        const Param *words) {
  Clause *c = new_clause(ps, CL_SIDE, at, NULL);
  c->name = name.name;
  c->name_at = name.at;
  c->var = stage.name;
  c->var_at = stage.at;
  c->mb_var = mb.name;
  c->mb_var_at = mb.at;
  c->side = NEW(ps->lx.arena, Side);
  c->side->gives_at = NO_SPAN;
  side_words(&(Words){ps, words, NULL}, c->side);
  return c;
}

static Item *new_item(Parse *ps, ItemKind kind, Span at) {
  Item *item = NEW(ps->lx.arena, Item);
  item->kind = kind;
  item->at = at;
  item->name_at = NO_SPAN;
  return item;
}

static const Binding NO_BINDING = {NULL, {NO_FILE, 0, 0}};

static Clause *new_time(Parse *ps, Binding stage, Binding mb, Binding slice, Binding rank) {
  Clause *c = new_clause(ps, CL_TIME, NO_SPAN, NULL);
  c->var = stage.name, c->var_at = stage.at;
  c->mb_var = mb.name, c->mb_var_at = mb.at;
  c->slice_var = slice.name, c->slice_var_at = slice.at;
  c->rank_var = rank.name, c->rank_var_at = rank.at;
  return c;
}

/* Reads "on r". */
static Binding on_rank(Parse *ps, Binding word, Binding rank) {
  if (strcmp(word.name, "on") != 0) {
    diag_error(ps->lx.diag, DIAG_SYNTAX, word.at, "expected 'on', got '%s'", word.name);
    diag_help(ps->lx.diag, "a time is written 'time s', by microbatch 'time s, m', by rank 'time s on r'");
  }
  return rank;
}

/* Makes a line of `weights`; op: NO_BINDING if the line names no op. */
static WeightLine *new_line(Parse *ps, WeightWord word, Span at, Binding op, Expr *formula,
                            Expr *when) {
  WeightLine *l = NEW(ps->lx.arena, WeightLine);
  l->word = word;
  l->at = at;
  l->op = op.name;
  l->op_at = op.at;
  l->formula = formula;
  l->when = when;
  l->source_at = l->state_at = NO_SPAN;
  return l;
}

static Clause *new_recompute(Parse *ps, Span at, Binding stage, Binding mb, Expr *when) {
  Clause *c = new_clause(ps, CL_RECOMPUTE, at, NULL);
  c->var = stage.name;
  c->var_at = stage.at;
  c->mb_var = mb.name;
  c->mb_var_at = mb.at;
  c->when = when;
  return c;
}

#define APPEND(list, node)                                                           \
  do {                                                                               \
    void *n_ = (node);                                                               \
    if (n_)                                                                          \
      (list).last = (list).last ? ((list).last->next = n_) : ((list).first = n_);    \
  } while (0)
}

%union {
  TokenValue token;
  Name name;
  Binding binding;
  ExprVal expr;
  Range range;
  ArgList args;
  Param *param;
  ParamList params;
  Require *require;
  RequireList requires;
  Base base;
  OpRef *op;
  StmtVal stmt;
  StmtList stmts;
  Entry *entry;
  EntryList entries;
  WeightLine *line;
  LineList lines;
  Read reads;
  Fn *fn;
  Clause *clause;
  ClauseList clauses;
  Item *item;
  Array array;
  OpHead head;
  bool flag;
}

%token YYEOF 0 "end of file"
%token <token> NAME "a name" NUMBER "a number" STRING "a string"
%token <token> SEND "'send'" EDGE "'edge'"
%token SCHEDULE "'schedule'" REQUIRES "'requires'" EXTENDS "'extends'" IMPORT "'import'"
%token LET "'let'" FN "'fn'" OP "'op'"
%token REPLICA "'replica'" OF "'of'" DAG "'dag'" TIE "'tie'"
%token RANKS "'ranks'" PIPE "'pipe'" STAGES "'stages'" MBS "'mbs'" PLACE "'place'"
%token ORDER "'order'" TIME "'time'" BYTES "'bytes'" PROFILE "'profile'" CHECK "'check'"
%token LIMIT "'limit'"
%token STEADY "'steady'"
%token DO "'do'" IF "'if'" ELSE "'else'" IN "'in'" STEP "'step'" FOR "'for'" STAGE "'stage'"
%token WITHOUT "'without'" CHECKS "'checks'"
%token RECOMPUTE "'recompute'" FORWARD "'forward'" SLICES "'slices'"
%token OVERLAP "'overlap'"
%token TRANSFERS "'transfers'"
%token OFFLOAD "'offload'" LEAD "'lead'" SIDE "'side'" EXCLUSIVE "'exclusive'"
%token CLIP "'clip'" CLOCK "'clock'" PERIOD "'period'" RULES "'rules'" WHEN "'when'"
%token WEIGHTS "'weights'" READS "'reads'" NEWEST "'newest'" AS "'as'" PER "'per'"
%token APPLIES "'applies'"
%token RATE "'rate'" THEN "'then'" VERSIONS "'versions'" STATE "'state'"
%token TUNE "'tune'" TRIES "'tries'" BY "'by'"
%token ARROW "'->'" DOTDOT "'..'"
%token EQ "'=='" NE "'!='" LE "'<='" GE "'>='" AND "'&&'" OR "'||'"

%right '?' ':'
%left OR
%left AND
%nonassoc '<' LE '>' GE EQ NE
%left '+' '-'
%left '*' '/' '%'
%precedence UNARY

%type <binding> name name_opt replica_opt mb_opt on_opt
%type <array> array_opt for_opt
%type <flag> dag_opt proof
%type <expr> expr init
%type <range> range range_opt
%type <args> arg args args_opt values values_opt
%type <params> names names_opt params params_opt
%type <param> param
%type <require> require
%type <requires> requires requires_opt
%type <base> base_opt
%type <op> opref optarget
%type <head> pipe_head
%type <expr> period_opt at_opt when_opt slices_opt tries_opt lead_opt to_opt as_opt per_opt
%type <stmt> stmt if_stmt do_stmt indexed
%type <stmts> stmts block else_opt clipped
%type <flag> forward_opt without_opt
%type <entry> entry
%type <entries> entries side_block
%type <params> words
%type <line> weight_line
%type <lines> weight_lines
%type <reads> source
%type <fn> fn
%type <clause> clause time_names
%type <clauses> clauses
%type <item> item

%initial-action { @$ = (Span){ps->lx.file, 0, 0}; }

%%

file:
  %empty
| file item semi_opt {
    if (!$2)
      ;
    else if (ps->last)
      ps->last = ps->last->next = $2;
    else
      ps->last = ps->ast->items = $2;
  }
;

semi_opt: %empty | ';' { yyerrok; } ;

item:
  IMPORT ok STRING { $$ = new_item(ps, IT_IMPORT, @$); $$->path = $3.text; }
| LET ok name '=' expr {
    $$ = new_item(ps, IT_LET, @$);
    $$->name = $3.name;
    $$->name_at = $3.at;
    $$->value = $5.e;
  }
| fn { $$ = new_item(ps, IT_FN, @$); $$->fn = $1; }
| SCHEDULE ok name '(' params_opt ')' base_opt requires_opt '{' clauses '}' {
    yyerrok;
    Schedule *s = NEW(ps->lx.arena, Schedule);
    s->name = $3.name;
    s->name_at = $3.at;
    s->at = @$;
    s->params = $5.first;
    s->base = $7.name;
    s->base_at = $7.at;
    s->base_args = $7.args;
    s->unchecked = $7.unchecked;
    s->requires = $8.first;
    s->clauses = $10.first;
    $$ = new_item(ps, IT_SCHEDULE, @$);
    $$->schedule = s;
  }
| SCHEDULE ok error '{' clauses '}' { yyerrok; $$ = NULL; }
| error { $$ = NULL; }
| error skipped { $$ = NULL; }
;

/* A block of unknown content, skipped to its '}'. The action runs before the next token is read. */
skipped: '{' { skip_block(ps); } '}' ;

/* A keyword at the start of a line ends recovery: later errors are new errors. */
ok: %empty { if (begins_line(ps, @0)) yyerrok; } ;

name: NAME { $$ = (Binding){$1.name, @1}; } ;
name_opt: %empty { $$ = NO_BINDING; } | name ;

fn:
  FN ok name '(' names_opt ')' '=' expr { $$ = new_fn(ps, @$, $3, $5.first, $8.e); }
;

names_opt: %empty { $$ = (ParamList){0}; } | names ;
names:
  name {
    Param *p = new_param(ps, $1.name, @1, NULL);
    $$ = (ParamList){p, p};
  }
| names ',' name { $$ = $1; APPEND($$, new_param(ps, $3.name, @3, NULL)); }
;

params_opt: %empty { $$ = (ParamList){0}; } | params ;
params:
  param { $$ = (ParamList){$1, $1}; }
| params ',' param { $$ = $1; APPEND($$, $3); }
;
param: name init { $$ = new_param(ps, $1.name, @1, $2.e); } ;
init: %empty { $$ = (ExprVal){0}; } | '=' expr { $$ = $2; } ;

base_opt:
  %empty { $$ = (Base){NULL, NO_SPAN, NULL, false}; }
| EXTENDS name '(' args_opt ')' without_opt { $$ = (Base){$2.name, @2, $4.first, $6}; }
;
without_opt: %empty { $$ = false; } | WITHOUT CHECKS { $$ = true; } ;

requires_opt: %empty { $$ = (RequireList){0}; } | REQUIRES requires { $$ = $2; } ;
requires:
  require { $$ = (RequireList){$1, $1}; }
| requires ',' require { $$ = $1; APPEND($$, $3); }
;
require:
  expr { $$ = new_require(ps, $1.e, NULL); }
| expr ':' STRING { $$ = new_require(ps, $1.e, $3.text); }
;

clauses:
  %empty { $$ = (ClauseList){0}; }
| clauses clause semi_opt { $$ = $1; APPEND($$, $2); }
;
clause:
  RANKS ok expr { $$ = new_clause(ps, CL_RANKS, @$, $3.e); }
| PIPE ok name array_opt forward_opt dag_opt STAGES expr MBS expr slices_opt PLACE name
  mb_opt ARROW expr replica_opt {
    $$ = new_clause(ps, CL_PIPE, @$, $8.e);
    $$->forward = $5;
    $$->name = $3.name;
    $$->name_at = $3.at;
    $$->index = $4.index.name;
    $$->index_at = $4.index.at;
    $$->range = $4.range;
    $$->dag = $6;
    $$->mbs = $10.e;
    $$->slices = $11.e;
    $$->var = $13.name;
    $$->var_at = $13.at;
    $$->mb_var = $14.name;
    $$->mb_var_at = $14.at;
    $$->place = $16.e;
    $$->root = $17.name;
    $$->root_at = $17.at;
  }
| EDGE ok expr ARROW expr for_opt {
    $$ = new_clause(ps, CL_EDGE, @$, $3.e);
    $$->to = $5.e;
    $$->var = $6.index.name;
    $$->var_at = $6.index.at;
    $$->range = $6.range;
  }
| TIE ok values { $$ = new_clause(ps, CL_TIE, @$, NULL); $$->args = $3.first; }
| ORDER ok name range_opt block {
    $$ = new_clause(ps, CL_ORDER, @$, NULL);
    $$->var = $3.name;
    $$->var_at = $3.at;
    $$->range = $4;
    $$->body = $5.first;
  }
| ORDER ok error block { $$ = NULL; }
| TIME ok time_names '{' entries '}' {
    yyerrok;
    $$ = $3;
    $$->at = @$;
    $$->entries = $5.first;
  }
| BYTES ok name_opt '{' entries '}' { yyerrok; $$ = new_costs(ps, CL_BYTES, @$, $3, $5); }
| PROFILE ok STRING { $$ = new_clause(ps, CL_PROFILE, @$, NULL); $$->path = $3.text; }
| proof expr { $$ = new_clause(ps, $1 ? CL_LIMIT : CL_CHECK, @$, $2.e); }
| proof expr FOR name IN range {
    $$ = new_clause(ps, $1 ? CL_LIMIT : CL_CHECK, @$, $2.e);
    $$->var = $4.name;
    $$->var_at = $4.at;
    $$->range = $6;
  }
| RECOMPUTE ok when_opt { $$ = new_recompute(ps, @$, NO_BINDING, NO_BINDING, $3.e); }
| RECOMPUTE ok NAME when_opt {
    $$ = new_recompute(ps, @$, (Binding){$3.name, @3}, NO_BINDING, $4.e);
  }
| RECOMPUTE ok NAME ',' name when_opt {
    $$ = new_recompute(ps, @$, (Binding){$3.name, @3}, $5, $6.e);
  }
| SEND ok NAME {
    $$ = new_clause(ps, CL_SEND, @$, NULL);
    $$->name = $3.name;
    $$->name_at = @3;
  }
| TRANSFERS ok NAME {
    $$ = new_clause(ps, CL_TRANSFERS, @$, NULL);
    $$->name = $3.name;
    $$->name_at = @3;
  }
| TRANSFERS ok NAME NAME { two_words(ps, (Span){@3.file, @3.beg, @4.end}); $$ = NULL; }
| OFFLOAD ok when_opt lead_opt { $$ = new_offload(ps, @$, NO_BINDING, NO_BINDING, $3.e, $4.e); }
| OFFLOAD ok NAME ',' name to_opt when_opt lead_opt {
    $$ = new_offload(ps, @$, (Binding){$3.name, @3}, $5, $7.e, $8.e);
    $$->place = $6.e;
  }
| EXCLUSIVE ok name ARROW expr {
    $$ = new_clause(ps, CL_EXCLUSIVE, @$, NULL);
    $$->var = $3.name;
    $$->var_at = $3.at;
    $$->to = $5.e;
  }
| EXCLUSIVE ok name ',' name ARROW expr {
    $$ = new_clause(ps, CL_LINK, @$, NULL);
    $$->var = $3.name;
    $$->var_at = $3.at;
    $$->mb_var = $5.name;
    $$->mb_var_at = $5.at;
    $$->to = $7.e;
  }
| SIDE ok name '(' name mb_opt ')' words when_opt side_block {
    $$ = new_side(ps, @$, $3, $5, $6, $8.first);
    $$->when = $9.e;
    $$->entries = $10.first;
  }
| TUNE ok tries_opt BY expr { $$ = new_clause(ps, CL_TUNE, @$, $5.e); $$->tries = $3.e; }
| TUNE ok name IN range tries_opt BY expr {
    $$ = new_clause(ps, CL_TUNE, @$, $8.e);
    $$->var = $3.name;
    $$->var_at = $3.at;
    $$->range = $5;
    $$->tries = $6.e;
  }
| WEIGHTS ok name_opt mb_opt '{' weight_lines '}' {
    yyerrok;
    $$ = new_clause(ps, CL_WEIGHTS, @$, NULL);
    $$->var = $3.name;
    $$->var_at = $3.at;
    $$->mb_var = $4.name;
    $$->mb_var_at = $4.at;
    $$->lines = $6.first;
  }
| LET ok name '=' expr {
    $$ = new_clause(ps, CL_LET, @$, $5.e);
    $$->name = $3.name;
    $$->name_at = $3.at;
  }
| fn { $$ = new_clause(ps, CL_FN, @$, NULL); $$->fn = $1; }
| error { $$ = NULL; }
| error skipped { $$ = NULL; }
;

time_names:
  %empty { $$ = new_time(ps, NO_BINDING, NO_BINDING, NO_BINDING, NO_BINDING); }
| name { $$ = new_time(ps, $1, NO_BINDING, NO_BINDING, NO_BINDING); }
| name name { $$ = new_time(ps, NO_BINDING, NO_BINDING, NO_BINDING, on_rank(ps, $1, $2)); }
| name name name { $$ = new_time(ps, $1, NO_BINDING, NO_BINDING, on_rank(ps, $2, $3)); }
| name ',' name on_opt { $$ = new_time(ps, $1, $3, NO_BINDING, $4); }
| name ',' name ',' name on_opt { $$ = new_time(ps, $1, $3, $5, $6); }
;
on_opt: %empty { $$ = NO_BINDING; } | name name { $$ = on_rank(ps, $1, $2); } ;

entries:
  %empty { $$ = (EntryList){0}; }
| entries entry semi_opt { $$ = $1; APPEND($$, $2); }
;
entry:
  NAME '=' expr { $$ = new_entry(ps, @$, $1.name, @1, $3.e); }
| SEND '=' expr { $$ = new_entry(ps, @$, $1.name, @1, $3.e); }
| EDGE '=' expr { $$ = new_entry(ps, @$, $1.name, @1, $3.e); }
| error { $$ = NULL; }
;

weight_lines:
  %empty { $$ = (LineList){0}; }
| weight_lines weight_line semi_opt { $$ = $1; APPEND($$, $2); }
;
/* These words are keywords only here, see weight_word. */
weight_line:
  name READS source as_opt per_opt when_opt {
    $$ = new_line(ps, WW_READS, @$, $1, $4.e, $6.e);
    $$->per = $5.e;
    $$->source = $3.kind;
    $$->source_at = @3;
    $$->value = $3.value;
  }
| name APPLIES expr when_opt { $$ = new_line(ps, WW_APPLIES, @$, $1, $3.e, $4.e); }
| name RATE expr when_opt { $$ = new_line(ps, WW_RATE, @$, $1, $3.e, $4.e); }
| name THEN name '=' expr when_opt {
    $$ = new_line(ps, WW_THEN, @$, $1, $5.e, $6.e);
    $$->state = $3.name;
    $$->state_at = @3;
  }
| VERSIONS expr { $$ = new_line(ps, WW_VERSIONS, @$, NO_BINDING, NULL, NULL); $$->value = $2.e; }
| STATE name {
    $$ = new_line(ps, WW_STATE, @$, NO_BINDING, NULL, NULL);
    $$->state = $2.name;
    $$->state_at = @2;
  }
| error { $$ = NULL; }
;
source:
  NEWEST { $$ = (Read){WS_NEWEST, NULL}; }
| expr {
    bool op = $1.e->kind == EX_NAME && strcmp($1.e->name, "F") == 0;
    $$ = (Read){op ? WS_FORWARD : WS_VALUE, op ? NULL : $1.e};
  }
;
as_opt: %empty { $$ = (ExprVal){0}; } | AS expr { $$ = $2; } ;
per_opt: %empty { $$ = (ExprVal){0}; } | PER expr { $$ = $2; } ;

side_block: %empty { $$ = (EntryList){0}; } | '{' entries '}' { $$ = $2; } ;
/* Keywords only here; names elsewhere. */
words:
  NAME { Param *p = new_param(ps, $1.name, @1, NULL); $$ = (ParamList){p, p}; }
| words NAME { $$ = $1; APPEND($$, new_param(ps, $2.name, @2, NULL)); }
;

slices_opt: %empty { $$ = (ExprVal){0}; } | SLICES expr { $$ = $2; } ;
forward_opt: %empty { $$ = false; } | FORWARD { $$ = true; } ;

replica_opt:
  %empty { $$ = (Binding){0}; }
| REPLICA OF name { $$ = $3; }
;

array_opt:
  %empty { $$ = (Array){0}; }
| '[' name ']' IN range { $$ = (Array){$2, $5}; }
;
dag_opt: %empty { $$ = false; } | DAG { $$ = true; } ;
mb_opt: %empty { $$ = NO_BINDING; } | ',' name { $$ = $2; } ;
for_opt: %empty { $$ = (Array){0}; } | FOR name IN range { $$ = (Array){$2, $4}; } ;

range_opt: %empty { $$ = (Range){0}; } | IN range { $$ = $2; } ;
range:
  expr DOTDOT expr           { $$ = (Range){$1.e, $3.e, NULL}; }
| expr DOTDOT expr STEP expr { $$ = (Range){$1.e, $3.e, $5.e}; }
;

block: '{' stmts '}' { yyerrok; $$ = $2; } ;
stmts:
  %empty { $$ = (StmtList){0}; }
| stmts stmt semi_opt {
    $$ = $1;
    APPEND($$, $2.s);
    $$.depth = max2($1.depth, $2.depth);
  }
;
stmt:
  opref at_opt when_opt {
    $$ = (StmtVal){new_stmt(ps, ST_OP, @$), 1};
    $$.s->op = $1;
    $$.s->value = $2.e;
    $$.s->cond = $3.e;
  }
| indexed
| CLIP ok clipped {
    $$ = (StmtVal){new_stmt(ps, ST_CLIP, @$), above(ps, $3.depth)};
    $$.s->body = $3.first;
  }
| do_stmt
| if_stmt
| LET ok name '=' expr {
    $$ = (StmtVal){new_binder(ps, ST_LET, @$, $3), 1};
    $$.s->value = $5.e;
  }
| fn { $$ = (StmtVal){new_stmt(ps, ST_FN, @$), 1}; $$.s->fn = $1; }
| OP ok name '(' names_opt ')' '=' opref {
    $$ = (StmtVal){new_stmt(ps, ST_OPDEF, @$), 1};
    $$.s->opdef = new_opdef(ps, @$, $3, $5.first, $8);
  }
| OVERLAP ok block at_opt when_opt {
    $$ = (StmtVal){new_stmt(ps, ST_OVERLAP, @$), above(ps, $3.depth)};
    $$.s->body = $3.first;
    $$.s->value = $4.e;
    $$.s->cond = $5.e;
  }
| SEND ok opref at_opt { by_hand(ps, @1); $$ = (StmtVal){0}; }
| error { $$ = (StmtVal){0}; }
| error block { $$ = (StmtVal){0}; }
;

clipped: block | do_stmt { $$ = one_stmt($1); } | indexed { $$ = one_stmt($1); } ;
at_opt: %empty { $$ = (ExprVal){0}; } | '@' expr { $$ = $2; } ;
when_opt: %empty { $$ = (ExprVal){0}; } | WHEN expr { $$ = $2; } ;
to_opt: %empty { $$ = (ExprVal){0}; } | ARROW expr { $$ = $2; } ;
lead_opt: %empty { $$ = (ExprVal){0}; } | LEAD expr { $$ = $2; } ;
period_opt: %empty { $$ = (ExprVal){0}; } | PERIOD expr { $$ = $2; } ;
proof: CHECK ok { $$ = false; } | LIMIT ok { $$ = true; } ;
tries_opt: %empty { $$ = (ExprVal){0}; } | TRIES expr { $$ = $2; } ;

indexed:
  STEADY ok name range_opt block {
    $$ = (StmtVal){new_binder(ps, ST_KERNEL, @$, $3), above(ps, $5.depth)};
    $$.s->range = $4;
    $$.s->body = $5.first;
  }
| CLOCK ok name range_opt period_opt block {
    $$ = (StmtVal){new_binder(ps, ST_CLOCK, @$, $3), above(ps, $6.depth)};
    $$.s->range = $4;
    $$.s->value = $5.e;
    $$.s->body = $6.first;
  }
| RULES ok name range_opt block {
    $$ = (StmtVal){new_binder(ps, ST_RULES, @$, $3), above(ps, $5.depth)};
    $$.s->range = $4;
    $$.s->body = $5.first;
  }
;

do_stmt:
  DO ok name IN range block {
    $$ = (StmtVal){new_binder(ps, ST_DO, @$, $3), above(ps, $6.depth)};
    $$.s->range = $5;
    $$.s->body = $6.first;
  }
| DO ok expr block {
    $$ = (StmtVal){new_stmt(ps, ST_DO, @$), above(ps, $4.depth)};
    $$.s->cond = $3.e;
    $$.s->body = $4.first;
  }
;

if_stmt:
  IF ok expr block else_opt {
    $$ = (StmtVal){new_stmt(ps, ST_IF, @$), above(ps, max2($4.depth, $5.depth))};
    $$.s->cond = $3.e;
    $$.s->body = $4.first;
    $$.s->orelse = $5.first;
  }
;
else_opt:
  %empty { $$ = (StmtList){0}; }
| ELSE block { $$ = $2; }
| ELSE if_stmt { $$ = one_stmt($2); }
;

opref:
  optarget
| optarget '(' values_opt ')' {
    $$ = $1;
    $$->at = @$;
    $$->args = $3.first;
    $$->parens = true;
  }
;
optarget:
  name { $$ = new_op(ps, @$, $1); }
| name '[' expr ']' { $$ = new_op(ps, @$, $1); $$->chunk = $3.e; }
| name '[' STAGE expr ']' { $$ = new_op(ps, @$, $1); $$->stage = $4.e; }
| pipe_head '.' name { $$ = new_pipe_op(ps, @$, $1, $3); }
| pipe_head '.' name '[' expr ']' { $$ = new_pipe_op(ps, @$, $1, $3); $$->chunk = $5.e; }
| pipe_head '.' name '[' STAGE expr ']' { $$ = new_pipe_op(ps, @$, $1, $3); $$->stage = $6.e; }
;
pipe_head:
  name { $$ = (OpHead){$1, NULL}; }
| name '[' expr ']' { $$ = (OpHead){$1, $3.e}; }
;

values_opt: %empty { $$ = (ArgList){0}; } | values ;
values:
  expr { $$ = new_arg(ps, NULL, NO_SPAN, $1); }
| values ',' expr { $$ = more_args($1, new_arg(ps, NULL, NO_SPAN, $3)); }
;

args_opt: %empty { $$ = (ArgList){0}; } | args ;
args:
  arg
| args ',' arg { $$ = more_args($1, $3); }
;
arg:
  expr { $$ = new_arg(ps, NULL, NO_SPAN, $1); }
| NAME '=' expr { $$ = new_arg(ps, $1.name, @1, $3); }
| SEND '=' expr { $$ = new_arg(ps, $1.name, @1, $3); }
;

expr:
  NUMBER {
    bool real = $1.number.unit == UNIT_REAL;
    $$ = (ExprVal){new_expr(ps, real ? EX_REAL : EX_INT, @$), 1};
    if (real)
      $$.e->real = $1.number.real;
    $$.e->value = $1.number.value;
    $$.e->unit = real ? 0 : $1.number.unit;
  }
| name {
    $$ = (ExprVal){new_expr(ps, EX_NAME, @$), 1};
    $$.e->name = $1.name;
    $$.e->name_at = $1.at;
  }
| name '(' args_opt ')' {
    $$ = (ExprVal){new_expr(ps, EX_CALL, @$), above(ps, $3.depth)};
    $$.e->name = $1.name;
    $$.e->name_at = $1.at;
    $$.e->args = $3.first;
  }
| '(' expr ')' { $$ = $2; }
| '-' expr %prec UNARY { $$ = expr2(ps, EX_NEG, @$, $2, (ExprVal){0}); }
| '!' expr %prec UNARY { $$ = expr2(ps, EX_NOT, @$, $2, (ExprVal){0}); }
| expr '*' expr { $$ = expr2(ps, EX_MUL, @$, $1, $3); }
| expr '/' expr { $$ = expr2(ps, EX_DIV, @$, $1, $3); }
| expr '%' expr { $$ = expr2(ps, EX_MOD, @$, $1, $3); }
| expr '+' expr { $$ = expr2(ps, EX_ADD, @$, $1, $3); }
| expr '-' expr { $$ = expr2(ps, EX_SUB, @$, $1, $3); }
| expr '<' expr { $$ = expr2(ps, EX_LT, @$, $1, $3); }
| expr LE expr { $$ = expr2(ps, EX_LE, @$, $1, $3); }
| expr '>' expr { $$ = expr2(ps, EX_GT, @$, $1, $3); }
| expr GE expr { $$ = expr2(ps, EX_GE, @$, $1, $3); }
| expr EQ expr { $$ = expr2(ps, EX_EQ, @$, $1, $3); }
| expr NE expr { $$ = expr2(ps, EX_NE, @$, $1, $3); }
| expr AND expr { $$ = expr2(ps, EX_AND, @$, $1, $3); }
| expr OR expr { $$ = expr2(ps, EX_OR, @$, $1, $3); }
| expr '?' expr ':' expr { $$ = expr3(ps, EX_COND, @$, $1, $3, $5); }
;

%%

static void too_deep(Parse *ps, const char *what, int limit) {
  if (!ps->too_deep)
    diag_error(ps->lx.diag, DIAG_NESTING, ps->read, "%s nested more than %d deep", what, limit);
  ps->too_deep = true;
}

/* Bison calls it only on exhausted memory: a run of signs, of `? :` or of else-if, see note
 * [depth]. */
static void yyerror(Span *at, Parse *ps, const char *msg) {
  (void)at;
  (void)msg;
  too_deep(ps, "operators or 'else if'", MAX_DEPTH);
}

/* Reports transfers in an order, of version 0.1: only the first one. */
static void by_hand(Parse *ps, Span at) {
  if (ps->by_hand)
    return;
  ps->by_hand = true;
  diag_error(ps->lx.diag, DIAG_REMOVED, at, "an order has no transfers: pipec adds them");
  diag_help(ps->lx.diag, "%s", own_transfers_help);
}

/* Reports `transfers inline grouped` and other clauses of two words, of version 0.1. */
static void two_words(Parse *ps, Span at) {
  diag_error(ps->lx.diag, DIAG_REMOVED, at, "'transfers' takes one word");
  diag_help(ps->lx.diag, "%s", own_transfers_help);
}

static void skip_block(Parse *ps) {
  TokenValue value;
  Span at;
  for (uint32_t depth = 0;;) {
    const char *before = ps->lx.cur;
    int token = lex(&ps->lx, &value, &at);
    if (token == '{') {
      depth++;
    } else if ((token == '}' && depth-- == 0) || token == TOK_YYEOF) {
      ps->lx.cur = before;
      return;
    }
  }
}

static bool begins_line(const Parse *ps, Span at) {
  const char *p = ps->lx.text + at.beg;
  while (p > ps->lx.text && (p[-1] == ' ' || p[-1] == '\t'))
    p--;
  return p == ps->lx.text || p[-1] == '\n';
}

static char opener_at(const Parse *ps, uint32_t i) { return ps->lx.text[ps->open[i].beg]; }

/* Blanks at the start of the line of `at`. */
static uint32_t indent(const Parse *ps, Span at) {
  const char *beg = ps->lx.text + at.beg, *p;
  while (beg > ps->lx.text && beg[-1] != '\n')
    beg--;
  for (p = beg; *p == ' ' || *p == '\t'; p++)
    ;
  return (uint32_t)(p - beg);
}

/* Updates ps->open. False: too many open brackets. */
static bool track_bracket(Parse *ps, int token, Span at) {
  ps->unclosed = NO_SPAN;
  if (token == '(' || token == '[' || token == '{') {
    if (ps->nopen == MAX_NESTING)
      return false;
    ps->open[ps->nopen++] = at;
  } else if (token == ')' || token == ']' || token == '}') {
    /* An unclosed bracket must not hide the one that is closed here. */
    char opener = token == ')' ? '(' : token == ']' ? '[' : '{';
    for (uint32_t i = ps->nopen; i-- > 0;) {
      char open = opener_at(ps, i);
      if (token == '}' && open != '{' && ps->unclosed.file == NO_FILE)
        ps->unclosed = ps->open[i];
      if (open == opener && token == '}' && ps->misfit.file == NO_FILE && begins_line(ps, at)
          && indent(ps, at) < indent(ps, ps->open[i]))
        ps->misfit = ps->open[i];
      if (open == opener)
        ps->nopen = i;
      if (open == opener || open == '{')
        break;
    }
  }
  return true;
}

/* Notes the bracket without a partner: by indentation if that tells, else the innermost one. */
static void note_open(Parse *ps) {
  Span at = ps->misfit.file == NO_FILE ? ps->open[ps->nopen - 1] : ps->misfit;
  diag_note(ps->lx.diag, at, "this '%c' is not closed", ps->lx.text[at.beg]);
}

/* Handles a word that begins a line and can only begin a clause or an item while blocks are open:
 * reports the missing '}' and makes the parser read as many before the word. */
static void insert_closers(Parse *ps, int token, Span at) {
  uint32_t level = 0; /* how many '{' may be open before the word */
  switch (token) {
  case TOK_RANKS: case TOK_PIPE: case TOK_ORDER: case TOK_TIME: case TOK_BYTES: case TOK_PROFILE:
  case TOK_CHECK: case TOK_LIMIT: case TOK_RECOMPUTE: case TOK_TUNE: case TOK_OFFLOAD: case TOK_TIE:
  case TOK_TRANSFERS: case TOK_WEIGHTS: case TOK_SIDE: case TOK_EXCLUSIVE:
    level = 1;
    break;
  case TOK_SCHEDULE: case TOK_IMPORT:
    break;
  default:
    return;
  }
  if (ps->nopen <= level || !begins_line(ps, at))
    return;
  for (uint32_t i = 0; i < ps->nopen; i++)
    if (opener_at(ps, i) != '{')
      return;
  diag_error(ps->lx.diag, DIAG_SYNTAX, at, "expected '}' before '%.*s'", (int)(at.end - at.beg),
             ps->lx.text + at.beg);
  note_open(ps);
  ps->lx.diag->bad_line = NO_SPAN;
  ps->ninsert = ps->nopen - level;
}

/* The syntax of the form that a keyword begins, for errors in its head. */
static const char *form(int token) {
  switch (token) {
  case TOK_SCHEDULE: return "a schedule is written 'schedule s(P = 4, M = 8) { ... }'";
  case TOK_IMPORT: return "an import is written 'import \"file.pipe\"'";
  case TOK_EXTENDS: return "'extends' takes the name of a schedule and arguments: extends s(), or extends s() without checks";
  case TOK_RANKS: return "the number of ranks is written 'ranks P'";
  case TOK_PIPE: return "a pipe is written 'pipe NAME stages S mbs M place s -> e'";
  case TOK_ORDER:
    return "an order is written 'order r { ... }', for some ranks 'order r in a..b { ... }'";
  case TOK_BYTES:
    return "sizes are written 'bytes s { act = e }': a stage has the same sizes for all microbatches";
  case TOK_SIDE: return side_form;
  case TOK_EXCLUSIVE:
    return "ranks whose copies share a link are written 'exclusive r -> e': those with the same e; transfers, by the "
           "ranks at their ends, 'exclusive a, b -> e'";
  case TOK_CHECK: return "a check is written 'check c' or 'check c for r in a..b'";
  case TOK_LIMIT:
    return "a limit is written 'limit inflight(r) <= e' or 'limit inflight(r) <= e for r in a..b'";
  case TOK_WEIGHTS: return "weights are written 'weights s, m { F reads newest  B reads F }'";
  case TOK_STEADY: return "a kernel is written 'steady m { ... }' or 'steady k in a..b { ... }'";
  case TOK_CLOCK: return "a clock is written 'clock m { ... }' or 'clock m period T { ... }'";
  case TOK_RULES: return "rules are written 'rules m { ... }'";
  case TOK_DO: return "a loop is written 'do i in a..b { ... }' or 'do n { ... }'";
  case TOK_IF: return "a block stands in braces: if c { ... }; for one op in 'rules' write 'when c'";
  case TOK_WHEN: return "'@' stands before 'when'";
  case TOK_LET: return "a value gets its name by 'let x = e'";
  case TOK_FN: return "a function is written 'fn f(x) = e'";
  case TOK_OP: return "an op is named by 'op f(k) = F[c](m)'";
  default: return NULL;
  }
}

/* The keyword of `weights { }` that `name` is, else TOK_NAME. `before`: the previous token. */
static int weight_word(int before, Name name) {
  static const struct { const char *text; short token; } verb[] = {
    {"reads", TOK_READS}, {"applies", TOK_APPLIES}, {"rate", TOK_RATE}, {"then", TOK_THEN},
    {"as", TOK_AS}, {"per", TOK_PER},
  };
  bool ends = before == TOK_NAME || before == TOK_NUMBER || before == ')' || before == TOK_NEWEST;
  if (before == TOK_READS && strcmp(name, "newest") == 0)
    return TOK_NEWEST;
  for (size_t i = 0; i < sizeof verb / sizeof *verb && ends; i++)
    if ((before == TOK_NAME || verb[i].token == TOK_AS || verb[i].token == TOK_PER) &&
        strcmp(name, verb[i].text) == 0)
      return verb[i].token;
  if ((ends || before == '{' || before == ';') && strcmp(name, "versions") == 0)
    return TOK_VERSIONS;
  return (ends || before == '{' || before == ';') && strcmp(name, "state") == 0 ? TOK_STATE
                                                                              : TOK_NAME;
}

/* Suggests a replacement for a number with a fraction. */
static void help_fraction(Parse *ps, double v) {
  enum { MOST = 10000 };
  int by = 1;
  while (by < MOST && fabs(v * by - round(v * by)) > 1e-9 * by)
    by++;
  if (by == 1 && v < 1e15)
    diag_help(ps->lx.diag, "values are integers: write %.0f", v);
  else if (by < MOST && v < 1e9)
    diag_help(ps->lx.diag, "values are integers: scale all times by %d, so that this is %.0f, or give it a unit: 1.5ms; "
              "elsewhere write %.0f / %d", by, v * by, v * by, by);
  else
    diag_help(ps->lx.diag, "values are integers: scale all times, or give this one a unit: 1.5ms");
}

static int yylex(YYSTYPE *val, Span *at, Parse *ps) {
  int token = ps->held;
  if (ps->too_deep) {
    token = TOK_YYEOF;
  } else if (token && !ps->ninsert) {
    val->token = ps->held_value;
    *at = ps->held_at;
    ps->held = 0;
  } else if (!token) {
    token = lex(&ps->lx, &val->token, at);
    /* Keywords only where no name can stand: 'pipe NAME forward stages', 'extends NAME() without
     * checks'. */
    bool ends = ps->before == TOK_NAME || ps->before == TOK_NUMBER || ps->before == ')';
    if (token == TOK_NAME && ps->in_pipe && ends && strcmp(val->token.name, "forward") == 0)
      token = TOK_FORWARD;
    if (token == TOK_NAME && ps->before == TOK_WITHOUT && strcmp(val->token.name, "checks") == 0)
      token = TOK_CHECKS;
    if (token == TOK_NAME && ps->in_base && ps->before == ')' &&
        strcmp(val->token.name, "without") == 0)
      token = TOK_WITHOUT;
    ps->in_base = token == TOK_EXTENDS || (ps->in_base && token != '{');
    ps->in_pipe = token == TOK_PIPE || (ps->in_pipe && token != TOK_STAGES);
    if (token == TOK_NUMBER && val->token.number.unit == UNIT_REAL && ps->in_weights != 2) {
      val->token.number.unit = 0;
      diag_error(ps->lx.diag, DIAG_BAD_NUMBER, *at, "a number without a unit cannot have a fraction");
      help_fraction(ps, val->token.number.real);
    }
    if (token == TOK_NAME && ps->in_weights == 2)
      token = weight_word(ps->before, val->token.name);
    ps->in_weights = token == TOK_WEIGHTS                   ? 1
                     : ps->in_weights == 1 && token == '{' ? 2
                     : token == '{' || token == '}'         ? 0
                                                            : ps->in_weights;
    ps->before = token;
    insert_closers(ps, token, *at);
    if (ps->ninsert) {
      ps->held = token;
      ps->held_value = val->token;
      ps->held_at = *at;
    }
  }
  if (ps->ninsert) {
    ps->ninsert--;
    token = '}';
  }
  if (token == TOK_YYEOF || ps->held)
    *at = (Span){ps->lx.file, ps->read.end, ps->read.end};
  ps->read_before = ps->read;
  ps->read = *at;
  ps->kind_before = ps->kind;
  ps->kind = token;
  ps->word = ps->next_word;
  if (token == '{' || token == '}' || form(token) || begins_form(token))
    ps->next_word = form(token) ? token : 0;
  if (!track_bracket(ps, token, *at)) {
    too_deep(ps, "brackets", MAX_NESTING);
    return TOK_YYEOF;
  }
  return token;
}

static const short expr_tokens[] = {TOK_NUMBER, TOK_NAME, '(', '-', '!'};
static const short operator_tokens[] = {
  '*', '/', '%', '+', '-', '<', TOK_LE, '>', TOK_GE, TOK_EQ, TOK_NE, TOK_AND, TOK_OR, '?',
};
static const short stmt_tokens[] = {
  TOK_OP, TOK_NAME, TOK_STEADY, TOK_CLIP, TOK_CLOCK, TOK_RULES,
  TOK_OVERLAP, TOK_DO, TOK_IF, TOK_LET, TOK_FN, TOK_SEND,
};
static const short clause_tokens[] = {
  TOK_RANKS, TOK_PIPE, TOK_ORDER, TOK_TIME, TOK_BYTES, TOK_PROFILE, TOK_CHECK, TOK_LIMIT,
  TOK_SEND, TOK_TRANSFERS, TOK_RECOMPUTE, TOK_TUNE, TOK_OFFLOAD, TOK_SIDE, TOK_EXCLUSIVE,
  TOK_EDGE, TOK_TIE, TOK_WEIGHTS, TOK_LET, TOK_FN,
};
static const short item_tokens[] = {TOK_SCHEDULE, TOK_IMPORT, TOK_LET, TOK_FN};

/* Tokens that a message calls by one word if the first of them is expected. */
typedef struct Group { const char *text; const short *token; size_t n; } Group;
#define GROUP(text, tokens) {(text), (tokens), sizeof(tokens) / sizeof *(tokens)}
static const Group groups[] = {
  GROUP("a statement", stmt_tokens),
  GROUP("a clause", clause_tokens),
  GROUP("an item", item_tokens),
  GROUP("an expression", expr_tokens),
  GROUP("an operator", operator_tokens),
};

typedef struct Expected { bool set[YYNTOKENS]; } Expected;

static bool expects(const Expected *want, int token) { return want->set[YYTRANSLATE(token)]; }

/* Writes "'a', 'b' or an operator": the expected tokens. */
static void name_expected(const Expected *all, char *list, size_t list_bytes) {
  Expected want = *all;
  const char *text[YYNTOKENS + sizeof groups / sizeof *groups + 1];
  uint32_t n = 0, ngroup = 0;
  const char *group[sizeof groups / sizeof *groups + 1];
  for (const Group *g = groups; g < groups + sizeof groups / sizeof *groups; g++) {
    if (!expects(&want, g->token[0]))
      continue;
    /* After a comparison other operators may follow, but no comparison. */
    bool other = g->token == operator_tokens && !expects(all, '<');
    group[ngroup++] = other ? "another operator" : g->text;
    for (size_t i = 0; i < g->n; i++)
      want.set[YYTRANSLATE(g->token[i])] = false;
  }
  if (expects(&want, TOK_EDGE)) {
    group[ngroup++] = "an entry"; /* elsewhere 'edge' begins a clause */
    want.set[YYSYMBOL_NAME] = want.set[YYTRANSLATE(TOK_EDGE)] = false;
  }
  /* Left out: words that are always errors here, an optional end, and tokens that could continue a
   * complete op or name. */
  want.set[YYSYMBOL_SEND] = want.set[YYTRANSLATE(';')] = false;
  if (expects(all, '*') || expects(all, TOK_OP))
    want.set[YYTRANSLATE('(')] = want.set[YYTRANSLATE('[')] = want.set[YYTRANSLATE('.')] = false;
  if (expects(all, TOK_OP))
    want.set[YYSYMBOL_ELSE] = want.set[YYTRANSLATE('@')] = want.set[YYTRANSLATE(TOK_WHEN)] = false;
  want.set[YYTRANSLATE(TOK_FORWARD)] = false; /* between the name of a pipe and 'stages' */
  if (expects(all, TOK_STAGES)) /* the optional parts of a pipe */
    want.set[YYTRANSLATE('[')] = want.set[YYTRANSLATE(TOK_DAG)] = false;
  if (expects(all, TOK_ARROW) && !expects(all, '*'))
    want.set[YYTRANSLATE(',')] = false;
  if (ngroup > 0)
    want.set[YYSYMBOL_YYEOF] = false;
  for (int kind = 0; kind < YYNTOKENS; kind++)
    if (want.set[kind])
      text[n++] = yysymbol_name((yysymbol_kind_t)kind);
  for (uint32_t i = 0; i < ngroup; i++)
    text[n++] = group[i];

  size_t len = 0;
  list[0] = '\0';
  for (uint32_t i = 0; i < n && len < list_bytes; i++)
    len += (size_t)snprintf(list + len, list_bytes - len, "%s%s",
                            i == 0 ? "" : i + 1 < n ? ", " : " or ", text[i]);
}

/* True if a statement, clause or item can begin with the token, and an expression cannot. */
static bool begins_form(int token) {
  Expected any = {{false}};
  for (const Group *g = groups; g < groups + 3; g++)
    for (size_t i = 0; i < g->n; i++)
      any.set[YYTRANSLATE(g->token[i])] = g->token[i] != TOK_NAME;
  return expects(&any, token);
}

/* Was the word [word, end) a keyword of 0.2? It is a free name now. */
static bool was_keyword(const char *word, const char *end) {
  return (end - word == 3 && !memcmp(word, "use", 3))
         || (end - word == 7 && !memcmp(word, "expects", 7));
}

/* Does a name follow behind blanks? */
static bool before_name(const char *p) {
  const char *blank = p;
  while (*p == ' ')
    p++;
  return p > blank && (*p | 32) >= 'a' && (*p | 32) <= 'z';
}

/* Finds a habit among the words of the line, from the end of `at` backwards; skips strings. */
static const char *habit_before(const Parse *ps, Span at) {
  const char *p = ps->lx.text + at.beg, *end = ps->lx.text + at.end, *found = NULL;
  while (p > ps->lx.text && p[-1] != '\n')
    p--;
  for (bool string = false; p < end; p++) {
    const char *word = p;
    string ^= *p == '"';
    while (p < end &&
           (((*p | 32) >= 'a' && (*p | 32) <= 'z') || *p == '_' || (*p >= '0' && *p <= '9')))
      p++;
    const char *help = p > word && !string ? habit(word, (size_t)(p - word), HABIT_FORM) : NULL;
    if (help && was_keyword(word, p))
      help = before_name(p) ? help : NULL;
    found = help ? help : found;
    p -= p > word;
  }
  return found;
}

/* Helps with the expected keyword that the name at `at` may mean: it begins alike, and at most a
 * third of its letters differ. False: there is none. */
static bool help_misspelt(Parse *ps, const Expected *want, Span at) {
  enum { LONGEST = 16 };
  char name[LONGEST], word[LONGEST], meant[LONGEST] = "";
  const uint32_t bytes = at.end - at.beg;
  unsigned least = LONGEST;
  if (ps->kind != TOK_NAME || bytes >= LONGEST)
    return false;
  snprintf(name, sizeof name, "%.*s", (int)bytes, ps->lx.text + at.beg);
  for (int kind = 0; kind < YYNTOKENS; kind++) {
    const char *symbol = yysymbol_name((yysymbol_kind_t)kind);
    if (!want->set[kind] || sscanf(symbol, "'%15[a-z]'", word) != 1)
      continue;
    const unsigned far = name_distance(name, word);
    if (far < least && far <= strlen(word) / 3 && *name == *word) {
      least = far;
      memcpy(meant, word, sizeof meant);
    }
  }
  if (*meant)
    diag_help(ps->lx.diag, "did you mean '%s'", meant);
  return *meant;
}

/* Explains an error that a frequent slip causes. At most one help. */
static void help(Parse *ps, const Expected *want, int got_kind, Span at) {
  const char *text = ps->lx.text + at.beg, *words = habit_before(ps, at);
  const char *before = ps->lx.text + ps->read_before.beg; /* the token before */
  const uint32_t before_bytes = ps->read_before.end - ps->read_before.beg;
  int got = ps->kind, prev = ps->kind_before;
  bool compares = got_kind == YYTRANSLATE('<') || got_kind == YYTRANSLATE('>')
                  || got_kind == YYSYMBOL_LE || got_kind == YYSYMBOL_GE || got_kind == YYSYMBOL_EQ
                  || got_kind == YYSYMBOL_NE;
  bool stmt = expects(want, TOK_OP), clause = expects(want, TOK_RANKS),
       item = expects(want, TOK_SCHEDULE), expr = expects(want, TOK_NUMBER),
       operator = expects(want, '+'), open = stmt || clause || item,
       same_line = !begins_line(ps, at);
  bool binds = ps->word == TOK_LET || ps->word == TOK_FN || ps->word == TOK_OP
               || ps->word == TOK_SCHEDULE;
  bool word = (*text | 32) >= 'a' && (*text | 32) <= 'z';
  bool keyword = prev == TOK_STAGES || prev == TOK_MBS || prev == TOK_PLACE
                 || (prev == ps->word && form(prev));
  const struct { bool is; const char *help; } slips[] = {
    {words != NULL, words},
    {expects(want, TOK_ARROW) && ps->word == TOK_PIPE,
     "a place is written 'place s -> e': stage s is on rank e"},
    {got == '=' && expects(want, TOK_EQ), "'==' compares; '=' only gives a name its value"},
    {got == TOK_EQ && expects(want, '='), "'=' gives a name its value; '==' compares"},
    {compares && operator && !expects(want, '<'), "comparisons do not chain: a < b && b < c"},
    {got == TOK_AS && ps->in_weights == 2, "the formula stands before 'per': F reads newest as e per m/N"},
    {got == TOK_PER, "only a line with 'reads' has 'per': F reads newest as e per m/N"},
    {expects(want, TOK_READS), "a line is written 'F reads newest', 'B reads F' or 'F reads e'"},
    {got == '=' && ps->in_weights == 2 && expr, "the number of versions is written 'versions e'"},
    {expects(want, TOK_DOTDOT), "a range is written 'a..b': from a to b - 1"},
    {got == TOK_FOR && stmt, "a loop is written 'do i in a..b { ... }'"},
    {got == ',' && stmt, "ops follow each other without commas"},
    {got == ',' && expects(want, TOK_SEND) && !clause && !expr,
     "entries follow each other without commas"},
    {got == '/' && prev == '/' && expr, "'/' rounds down; a comment begins with '#'"},
    {got == '/' && (text[1] == '/' || text[1] == '*'), "a comment begins with '#' and ends with its line"},
    {got == '*' && prev == '*' && expr && ps->in_weights == 2, "a power is written pow(x, 2)"},
    {got == '*' && prev == '*' && expr, "there is no power: write the product out"},
    {(got == '<' || got == '>') && prev == got && expr,
     "there is no shift: multiply by the power of two"},
    {got == '+' && (prev == '+' || stmt), "a name keeps its value; 'do i in a..b { ... }' counts"},
    {got == '=' && stmt, "a name gets its value by 'let', once: let x = e"},
    {got == '{' && stmt && prev == TOK_NAME,
     "a block follows do, if, steady, clock, rules, clip or overlap; phases have no labels"},
    {got == '[' && clause && prev == TOK_NAME && ps->word == TOK_PIPE,
     "name the first pipe or array, without an index: replica of p"},
    {got == '[' && expr, "there are no lists: 'c ? a : b' chooses"},
    {got == '[' && stmt, "the chunk stands before the microbatch: F[c](m)"},
    {got == TOK_NUMBER && stmt && prev == TOK_NAME, "the microbatch stands in parentheses: F(0)"},
    {got == TOK_IF && clause && same_line && prev != '}',
     "a value by condition is written 'c ? a : b'"},
    {got == ':' && expects(want, '=') && !expects(want, '('), "a value follows '=': F = 1"},
    {got == TOK_NAME && prev == TOK_NUMBER && at.end - at.beg > 1 && is_unit(text, at.end - at.beg),
     "the unit follows the number without a blank"},
    {expects(want, '=') && prev == TOK_NAME && before_bytes > 1 && is_unit(before, before_bytes),
     "the unit follows the number without a blank"},
    {got == TOK_NAME && prev == '}' && clause && same_line, "the '}' before this name ends the clause"},
    {got == '@' && ps->word == TOK_WHEN, form(TOK_WHEN)},
    {binds && word && got != TOK_NAME && same_line && prev == ps->word,
     "a keyword cannot be a name"},
    {(got == '{' || got == TOK_DO) && prev == TOK_STEADY,
     "a kernel is written 'steady m { ... }'; phases have no labels: they follow from the ops"},
    {ps->word && ps->word != TOK_WHEN && (!expects(want, ')') || ps->word == TOK_SCHEDULE)
         && !expects(want, ']') && !open
         && (!expr || keyword),
     form(ps->word)},
    {item && !operator && got != ';', "an item is a schedule, an import, a let or a fn"},
  };
  for (size_t i = 0; i < sizeof slips / sizeof *slips; i++)
    if (slips[i].is) {
      diag_help(ps->lx.diag, "%s", slips[i].help);
      return;
    }
}

static int yyreport_syntax_error(const yypcontext_t *ctx, Parse *ps) {
  if (ps->too_deep)
    return 0;
  yysymbol_kind_t kinds[YYNTOKENS], got = yypcontext_token(ctx);
  int n = yypcontext_expected_tokens(ctx, kinds, YYNTOKENS);
  if (n < 0)
    return n;
  Span at = *yypcontext_location(ctx);
  const char *text = ps->lx.text + at.beg;
  size_t bytes = at.end - at.beg;
  Expected want = {{false}};
  for (int i = 0; i < n; i++)
    want.set[kinds[i]] = true;
  if (ps->lx.diag->errors > ps->errors && got == YYTRANSLATE('}') && expects(&want, TOK_SCHEDULE))
    return 0; /* an extra '}' was reported at the token after it, or recovery removed one */
  /* the missing part belongs to the end of the previous line */
  if (expects(&want, TOK_DOTDOT) && begins_line(ps, at))
    at = (Span){at.file, ps->read_before.beg, ps->read_before.end};
  char list[512], name[64];
  name_expected(&want, list, sizeof list);
  if (got == YYSYMBOL_NAME || got == YYSYMBOL_NUMBER)
    snprintf(name, sizeof name, "%s '%.*s%s'", got == YYSYMBOL_NAME ? "name" : "number",
             (int)(bytes < 40 ? bytes : 40), text, bytes > 40 ? "..." : "");
  else
    snprintf(name, sizeof name, "%s", yysymbol_name(got));

  diag_error(ps->lx.diag, DIAG_SYNTAX, at, "expected %s, got %s", list, name);
  if (got == YYSYMBOL_YYEOF && ps->nopen > 0)
    note_open(ps);
  if (ps->unclosed.file != NO_FILE && (expects(&want, ')') || expects(&want, ']')))
    diag_note(ps->lx.diag, ps->unclosed, "this '%c' is not closed", ps->lx.text[ps->unclosed.beg]);
  if (begins_line(ps, at) && begins_form(ps->kind))
    ps->lx.diag->bad_line = NO_SPAN; /* the error is before this line */
  if (!help_misspelt(ps, &want, at))
    help(ps, &want, (int)got, at);
  return 0;
}

Ast *parse(Arena *a, Interner *in, Diag *d, uint32_t file) {
  const Source *src = &d->source[file];
  Parse ps = {
    .lx = {a, in, d, file, src->text, src->text + src->len, src->text},
    .ast = NEW(a, Ast),
    .read = {file, 0, 0},
    .misfit = NO_SPAN,
    .errors = d->errors,
  };
  ps.ast->file = file;
  yyparse(&ps);
  return ps.ast;
}
