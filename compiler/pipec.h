/* SPDX-License-Identifier: MIT
 * THE header: read this first. A compile is one Sched. Its passes run one after the other, in the
 * order of driver/passes.def. Each makes a product, or a part of one, which is const for everybody
 * else: the driver owns the products and hands each pass the one that it makes. A product is
 * declared here if rooms below its maker read it, else by the door of its room.
 *
 * The pointers of a product are const, the rows behind them are so by agreement. Later passes fill
 * in PipeStage.states (formulas), PipeWeights (slots), SideUse and SideBuffers (comm, slots).
 *
 * A pass is `bool pass(Sched *, product...)`; it returns false if it has reported an error. The
 * comment at the head of its file says what it requires and ensures. A check_* pass proves, and
 * changes nothing that it proves. All memory is from the arena. References are indices; NONE is
 * none. The door of a room, ROOM/ROOM.h, declares what other rooms call. */
#ifndef PIPEC_H
#define PIPEC_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "arena.h"
#include "ast.h"
#include "diag.h"
#include "escape.h"
#include "guard.h"
#include "machine.h"
#include "pipe_instr.h"
#include "work.h"

#define PIPEC_VERSION "0.2.0"
#define NONE UINT32_MAX

enum {
  /* Calls of functions in one value: fn f(x) = g(x) + g(x) doubles at each step. */
  MAX_CALLS = 1 << 20,
  MAX_TURNS = 1 << 30,     /* turns of loops, all ranks together */
  MAX_RANKS = 1 << 20,     /* more is a typing error */
  MIN_CHANNEL_SLOTS = 2    /* slots at each end of a channel, to begin with (spec.md 8) */
};

/* A compute op of the text. Transfers exist only as PipeInstr. 16 bytes. */
typedef struct Op {
  uint8_t kind;   /* PipeOp: F B I W R U, SIDE */
  uint8_t phase;  /* PipePhase */
  uint16_t group; /* number of further ops of the rank in one action with it */
  uint32_t stage; /* row of Model.stage */
  uint32_t mb;    /* unit (Model.slices); of U(m) the first unit of m; of U NONE */
  uint32_t site;  /* row of Orders.site */
} Op;

/* When the results of an action may leave its rank (lang/spec.md 5.10). */
typedef enum SendPolicy { SEND_END, SEND_EAGER, SEND_NEXT } SendPolicy;

/* An OFF or LOAD of the text. Copies are not in Orders.op: they stand between its rows. */
typedef struct Copy {
  uint8_t kind;     /* PipeOp: OFF LOAD SIDE_COPY */
  uint8_t phase;    /* PipePhase */
  uint16_t zero;
  uint32_t stage, mb, site;
  uint32_t to;      /* rank whose memory takes the stash; NONE: host memory */
  /* The row of Orders.op before which it stands; at the end one past the last row of its rank. */
  uint32_t at;
  uint32_t free_at; /* OFF (offload): the first op of the rank for which its ACT slot is free */
  uint32_t free_by; /* OFF of rules: 1 + the op for which the slot must be free; 0: none */
  uint32_t use;     /* SIDE_COPY: row of Sides.use */
  uint32_t turn;    /* (offload) its turn in its group */
  uint64_t plan;    /* (offload) its start on an idle network */
} Copy;

/* An update of a stage: the last op that adds to the gradients it applies, and its U. */
typedef struct Round { uint32_t grad, u; } Round;

/* A hop of a wait cycle: a rank stands at `at`, which needs `on` of the rank of the next hop. Both
 * are rows of Orders.op, or positions in the list of the rank. */
typedef struct StallHop {
  uint32_t rank, at, on;
  const char *text; /* the hop in words; NULL: its ops say it all */
} StallHop;

/* A counter-example: a refuted order or list (report/stall_picture.c). */
typedef struct Stall {
  const char *what; /* the heading */
  const StallHop *hop; uint32_t nhop;
  const MachineList *list; /* [nrank]; NULL: orders are refuted. Then */
  const uint64_t *end;     /* [nop] end of each op that ran, */
  const uint32_t *head;    /* [nrank] and these are the ops below head[rank] */
} Stall;

/* A transfer: a tensor that crosses ranks; or a sum. A sum cannot start before `from`, the last op
 * that adds to any of its gradients. XFER_REDUCE sums over the replicas of the stage, XFER_TIE over
 * the stages tied to it. */
typedef struct Xfer {
  uint32_t from; /* the op that makes the tensor: F, B or I */
  /* the op that reads it, or which sum. XFER_SIDE: a side op in the COMM stream of its rank, row
   * `from` of Sides.use */
  uint32_t to;
} Xfer;
#define XFER_REDUCE NONE
#define XFER_TIE (NONE - 1)
#define XFER_SIDE (NONE - 2)
static inline bool xfer_is_sum(const Xfer *x) { return x->to >= XFER_TIE; }
static inline bool xfer_moves(const Xfer *x) { return x->to < XFER_SIDE; } /* a tensor */

/* A side op in the order of its rank (side.c). Ops are rows of Orders.op; NONE: none. */
typedef struct SideUse {
  uint32_t decl, row;   /* rows of Sides.decl and Sides.row */
  uint32_t stage, mb;
  uint32_t at;          /* the op before which it stands; SIDE: its own op */
  uint32_t lo, user;    /* it cannot stand before lo; user waits for it */
  uint32_t op, seq;     /* row while it enters the op table; place among the clauses */
  uint32_t in, out;     /* buffers it gives back and takes: index in their pools */
  uint32_t in_pool, out_pool;
  /* Rows of Sides.use that must have ended: the last of each stream that used `out`; the same of
   * `in`. */
  uint32_t dep[2][3];
  uint32_t pos;         /* (comm) 1 + position in its stream */
  uint64_t plan;        /* its start on an idle network: the order in its stream */
  uint8_t kind, phase;  /* SIDE, SIDE_COMM or SIDE_COPY */
  bool latest, late;    /* runs as late as possible; stands before its user */
  bool given;
} SideUse;
typedef struct SideTurn { uint32_t at; int compute; uint32_t use; uint64_t plan; } SideTurn;
typedef struct SideBuffers { uint64_t bytes; uint32_t stage, count, first; } SideBuffers;

/* The instructions of a rank in the order of the text, with transfers: of a compute_comms file, or
 * of a lowering with transfers at their ops. They have op, stage, mb, site, group and, after
 * transfers, peer and edge. `wait` is WAIT_SEND for a wait until a SEND is done, and WAIT_ALL for a
 * wait for all transfers above. */
enum { WAIT_SEND = 1, WAIT_ALL = UINT32_MAX };
typedef struct List {
  PipeInstr *instr;
  uint32_t n;
} List;

/* A pipe: rows first .. first + nrow - 1 of the stage table, the first nstage of them one for each
 * stage; units mb0 .. mb0 + nmb - 1. */
typedef struct Pipe {
  const Clause *clause;
  int64_t index; /* in an array of pipes */
  uint32_t first, nrow, nstage, mb0, nmb;
} Pipe;

/* The prediction of order_run for one set of costs, on an idle network. */
typedef struct Timing {
  uint64_t makespan, span, busy; /* busy: summed over ranks */
} Timing;

typedef struct Sched Sched;

/* The state of evaluating an expression. Not a product: any pass writes it. */
typedef struct Eval {
  int64_t *env;         /* [Parsed.nslot] current values of the variables */
  uint32_t calls, depth; /* calls of functions in the present value, and their depth */
  /* The value of a builtin: as `check` (prove/) has it, or rules and limits while they run. */
  bool (*quantity)(Sched *, const Expr *call, int64_t *value);
  struct Rules *rules;   /* the play of `rules` while it runs, else NULL */
  struct Played *played; /* (check_user) plays by the sets of uniform costs in `check` */
  /* For a message on a limit: the counts of the rank at that moment, [NCOUNTS * chunks]. */
  const int64_t *moment;
} Eval;

/* What the text says. Made by parse and resolve, which completes the tree, too. */
typedef struct Parsed {
  Interner *names;
  Ast *tree;             /* of opt->input */
  Schedule *def;         /* (resolve) the schedule that is compiled */
  /* (resolve) the number of variables of the whole text; each has a fixed slot of Eval.env */
  uint32_t nslot;
  /* (resolve) other schedules of the file that are not compiled; NULL: none, or --schedule names
   * one. */
  const char *unchecked;
} Parsed;

typedef struct ProfileLink { /* a link of a profile: any of `from` to any of `to` */
  const uint32_t *from, *to;
  uint32_t nfrom, nto;
} ProfileLink;

/* What the ops run on: ranks, pipes, stages, their graph, costs and links. Made by expand, or by
 * the import of a file, where no other pass is named. */
typedef struct Model {
  const char *name, *params;
  /* Counts over all pipes. Ranks; rows of stage; units: a microbatch has `slices` units. */
  uint32_t nrank, nstage, nmb;
  /* slices of a microbatch; unit u is slice u % slices of microbatch u / slices */
  uint32_t slices;
  uint32_t nmodel;       /* stages of the model; further rows are replicas */
  Pipe *pipe; uint32_t npipe;
  PipeStage *stage;      /* [nstage] */
  uint64_t *unit_time; uint32_t nunit_time; /* of PipeProgram */
  bool forward;          /* forward-only: there are no backwards */
  bool sized;            /* bytes were given */
  bool timed;            /* times are ns: the text gives one with a unit, or a profile */
  uint32_t *row_of;      /* [nmodel * nmb] row; NULL: no place depends on the microbatch */
  struct StageGraph *graph; /* NULL: every pipe is a chain of rows (graph.h) */
  uint32_t nedge;        /* of it */
  /* Rows that share weights: [nstage] group or NONE; [ntie + 1]; rows ascending. NULL: no ties. */
  uint32_t ntie, *tie_of, *tie_row0, *tie_row;
  uint32_t *rank_stage;  /* [nstage] rows by rank, ascending; those of rank r start at */
  uint32_t *rank_stage0; /* [nrank + 1] */
  /* [nrank] 1 + group of ranks whose copies take turns; 0: no group. NULL: there are no groups. */
  uint32_t *group, ngroup;
  /* Keys that neither profile nor schedule gives; NULL: no profile, or all are given. */
  const char *profile_lacks;
  const char *layers;    /* how a profile of layers was cut into stages, or NULL */
  const Clause **link_clause; uint32_t nlink_clause; /* `exclusive a, b` that count */
  const ProfileLink *profile_link; uint32_t nprofile_link; /* the same of a profile */
  PipeShare *share; uint32_t nshare, nlink; /* (links) of PipeProgram */
  bool weighted;         /* there is a `weights` clause, with */
  const WeightLine **wline; uint32_t nwline; /* the lines that count, by kind in order */
} Model;

/* The ops of each rank, in order. Made by expand and check_deps, or by the import of a file. sides
 * adds the ops of `side` clauses, and offload (lower/) the copies of `offload` clauses, because
 * both need the orders without them. */
typedef struct Orders {
  Op *op;                /* [nop], rank after rank, each in program order */
  uint32_t nop;
  uint32_t *rank_op0;    /* [nrank + 1] */
  /* [nstage * nmb] 1 + the op that is F; B or I; W; R. 0: none. */
  uint32_t *at_f, *at_b, *at_w, *at_r;
  Copy *copy;            /* [ncopy], rank after rank, each in the order of its COPY stream */
  uint32_t ncopy, capcopy;
  uint32_t *rank_copy0;  /* [nrank + 1] (offload) */
  uint32_t *at_off, *at_load; /* [nstage * nmb] 1 + copy; 0: none; NULL while ncopy is 0 */
  /* (check_deps) The updates, stage after stage, each in the order of its rank. */
  Round *round;
  uint32_t *round0;      /* [nstage + 1] */
  Span *site; uint32_t nsite, capsite; /* places in the text of ops and copies */
  Span *order_at;        /* [nrank] the order clause that a rank follows: its place */
  const Clause **order_clause; /* [nrank] and the clause; NULL for a CSV file */
  const Clause **offload; uint32_t noffload; /* clauses that add copies */
  SendPolicy send;
  uint32_t lowering;     /* the lowering asked for: PipeLowering, or LOWERING_AUTO (names.h) */
  Span lowering_at;
  /* [nrank] the lists of a compute_comms file (read_csv) or of the lowering (transfers); or
   * NULL. */
  List *lists;
  /* (read_csv) The lists are proved as they stand; there is no program. */
  bool only_lists;
} Orders;

/* Side ops. Made by expand (find_sides) and by sides; order and offload give those that run as late
 * as possible their places, and offload sorts them. */
typedef struct Sides {
  const Clause **decl; uint32_t ndecl; /* `side` clauses */
  uint32_t site0;        /* the first row of Orders.site of the clauses */
  PipeSide *row; uint32_t nrow; /* [ndecl * nstage] */
  SideUse *use; uint32_t nuse; /* (sides) rank after rank */
  uint32_t *use0;        /* [nrank + 1] */
  uint32_t ncomm;        /* number of uses in COMM streams */
  SideTurn *turn;        /* [nuse] (offload) rank after rank, in the order of their places */
  SideBuffers **buffers; uint32_t *nbuffers; /* [nrank] */
} Sides;

/* The verdict of the proofs. Made by prove_transfers and the check_* passes. */
typedef struct Verdict {
  const Stall *stall;    /* (check_channels) the counter-example, or NULL */
  /* (prove_transfers) Orders.lists complete under the model that was asked for, but not under the
   * model of the engines: there is no program. */
  bool only_lists;
  const MachineList *machine_list; /* [nrank] (check_channels) the lists that were proved */
  /* (check_channels) The least --sends=buffered with which the lists complete; 0: rendezvous is
   * enough. */
  uint64_t least_buffer;
  /* (check_memory) 1 + the rank over the memory limit that needs the most; 0: none. */
  uint32_t over;
  bool limits_hold;      /* (check_user) the limits are proved and have peaks */
} Verdict;

/* What is proved for every value of a parameter. Made by check_for_all. */
typedef struct ForAll {
  bool proved, refuted;
  const char *text;    /* not proved: what stands in the way; refuted: at which value */
  uint64_t from;       /* proved from there on at once, */
  uint64_t multiple;   /*   for the multiples of this; 1: for all that the schedule admits; */
  uint64_t below;      /*   those below this one by one; from: all of them */
  uint64_t compared;   /* up to here the text was compared with the program */
  uint64_t time, per;  /* predicted: so many microbatches more take so much longer */
} ForAll;

/* What a run of the program measured, in ns (--with). Made by read_trace. */
typedef struct Measured {
  uint32_t nstep;          /* 0: nothing was given */
  uint64_t **start, **end; /* [nstep * nrank][ninstr], by step, then rank */
} Measured;

/* A compile: what every pass needs, and the products. A product is all zero until a pass makes
 * it. */
struct Sched {
  Arena *arena;
  Diag *diag;
  struct Options *opt;
  /* Compiles the same text once more, with options of the caller. */
  bool (*again)(Sched *);
  /* The budget of a question about every M (work.h); NULL: no bound. */
  Work *work;
  Eval eval;
  const Parsed *parsed;
  const Model *model;
  const Orders *orders;
  const Sides *sides;
  const struct Claims *claims;     /* orders/limit.h */
  const struct Tuning *tuning;     /* orders/orders.h */
  const struct Ideal *ideal;       /* orders/orders.h */
  const struct Versions *versions; /* weights/weights.h */
  const struct Lowered *lowered;   /* lower/lower.h */
  const struct Times *times;       /* lower/lower.h */
  const Verdict *verdict;
  const Measured *measured;
  const PipeProgram *prog; /* the program, whose tables emit prints; NULL before lower */
  ForAll for_all;
  /* the program for every M, if one was asked for (for_all/for_all.h); NULL */
  struct Looped *looped;
};

/* Are only lists proved? Then there is no program. */
static inline bool only_lists(const Sched *s) {
  return s->orders->only_lists || s->verdict->only_lists;
}
/* The index in Model.pipe of the pipe of a row; imported files have no pipes. In place.c. */
uint32_t pipe_of(const Sched *s, uint32_t row);

/* ---- options, of driver/read_options.c ---- */
typedef struct Define {
  const char *name;
  int64_t value;
  /* --compare: the number of values, and the index of `value` */
  uint32_t n, at;
  /* values are lo + at * step or, if not NULL, list[n] */
  int64_t lo, step; const int64_t *list;
  bool used;
} Define;
/* In the order of the words of --emit in driver/options.def. */
typedef enum Emit {
  EMIT_C, EMIT_CSV, EMIT_COMMS_CSV, EMIT_JSON, EMIT_SVG, EMIT_TRACE, EMIT_HTML, EMIT_NONE
} Emit;
typedef enum RankBy {
  BY_WORK, BY_MAKESPAN, BY_SPAN, BY_BUBBLE, BY_MEMORY, BY_VOLUME, BY_VERSIONS, BY_STALENESS
} RankBy;
/* In the order of the words of --plan-cost in driver/options.def. */
typedef enum PlanCost {
  COST_STEP, COST_STAGE, COST_STRAIGHT, COST_COMPUTE, COST_ALPA, COST_LATENCY
} PlanCost;
typedef enum Color { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER } Color;
/* One order that a `tune` clause may take: of value number `at`, as written or moved by tries. */
typedef struct TuneChoice { uint32_t at; bool moved; } TuneChoice;

typedef struct Options {
  const char *input;           /* path */
  const char **format; uint32_t nformat; /* --fmt: the inputs */
  bool format_write;           /* in place */
  /* The inputs of --compare, or of --emit=html with several. An input may lack a parameter. */
  const char **compare; uint32_t ncompare;
  RankBy by;                   /* what --compare sorts by */
  /* standard input, kept by file_read: it can be read once */
  char *input_text; uint32_t input_len;
  /* not NULL: compile this text, whose path is `input` */
  const char *text; size_t text_len;
  bool closed;                 /* read no other file (fuzzing) */
  const char *output;          /* NULL: standard output */
  const char *depfile;
  const char *counterexample;  /* where to draw a counter-example; NULL: nowhere */
  const char *schedule;        /* NULL: the last of the file */
  const TuneChoice *tune;      /* what `tune` takes (again.c); NULL: it searches */
  const char *for_all;         /* --for-all: the parameter for all values of which to prove */
  Define range;                /* --for-all=NAME=LO..HI: n values; 0: it was not given */
  int undecided;               /* --undecided: 1 error, 2 ok; 0: not given */
  bool no_claims;              /* prove no check, limit or memory limit */
  bool found_open;             /* that was not asked for: --check found it without a value */
  Work *work;                  /* what that may take, of programs that are compiled for it */
  bool looped;                 /* write the program for all of them */
  const char *symbol;          /* C name of the program */
  const char *profile;
  const char *cluster;         /* --cluster of --plan; NULL: none */
  PlanCost plan_cost;
  const char *dump_after;      /* pass name, "all", or NULL */
  Emit emit;
  bool check_only;             /* prove and report; write nothing */
  bool show;                   /* draw the grid in the terminal; write nothing */
  bool critical_path;          /* report the critical path and idle time by cause */
  Color color;                 /* of show */
  bool time_passes;
  bool verify;                 /* second opinions, certify/; of a Debug build the default */
  /* --lowering: 1 + what Orders.lowering will be; 0: what the schedule says */
  int lowering;
  ChannelModel model;          /* --channels, --sends: what check_channels proves for */
  /* ignore shared links; do not scale --compare to equal work */
  bool no_contention, own_units;
  const char *with;            /* the trace of a run; NULL: none */
  int arrows; double figure_px, figure_pt; /* --arrows, --figure: as in SvgOptions */
  bool torch_lax;              /* CSV as PyTorch reads it, with warnings */
  /* --emit=comms-csv: UNSHARD of at most so many stages at once; 0: none */
  uint32_t torch_unshard;
  bool torch_waits;            /* and with WAIT_SEND_x and WAIT_REDUCE_GRAD */
  uint64_t memory_limit_bytes; /* per rank; 0: none */
  /* the limit is in kB, MB, GB or TB; messages then use them, too */
  bool decimal;
  uint64_t host_limit_bytes;   /* memory the compiler may use; 0: the memory of the machine */
  Define *define; uint32_t ndefine;
  const char **include; uint32_t ninclude;
  const char *stdlib;          /* directory */
  FILE *out;                   /* reports, dumps, and the output that `output` does not name */
  FILE *progress;              /* the terminal that shows how far long work is; NULL: none */
} Options;

/* The time of the transfer that F, or B or I, sends. */
static inline uint64_t send_time(const PipeStage *st, uint8_t kind) {
  return st->time[kind == PIPE_F ? PIPE_SEND_F : PIPE_SEND_B];
}
/* The op at whose end the result of `op` may leave and its inputs are free. */
static inline uint32_t op_release(const Sched *s, uint32_t op) {
  return s->orders->send == SEND_EAGER ? op : op + s->orders->op[op].group;
}
/* The first op of the action of an op. */
static inline uint32_t op_action(const Sched *s, uint32_t op) {
  while (op > 0 && s->orders->op[op - 1].group > 0)
    op--;
  return op;
}
/* The number of updates of a row of stages. */
static inline uint32_t updates_of(const Sched *s, uint32_t row) {
  return s->orders->round0[row + 1] - s->orders->round0[row];
}
static inline bool adds_gradient(uint32_t kind) { return kind == PIPE_B || kind == PIPE_W; }
/* Are the gradients of a row summed with those of other rows, its replicas or of tied stages? */
static inline bool is_summed(const Sched *s, uint32_t row) {
  return s->model->stage[row].replica != row || s->model->stage[row].tied != NONE;
}
static inline PipeTimes sched_times(const Sched *s) {
  return (PipeTimes){s->model->stage, s->sides->row, s->model->unit_time, s->model->nunit_time};
}
/* The row of a SIDE. */
static inline const PipeSide *side_of(const Sched *s, const Op *o) {
  return &s->sides->row[(o->site - s->sides->site0) * s->model->nstage + o->stage];
}
/* The time of op; cost: as in OrderRun. By uniform costs, side ops take no time. */
static inline uint64_t op_cost(const Sched *s, const PipeStage *cost, bool uniform, uint32_t op) {
  const Op *o = &s->orders->op[op];
  if (o->kind == PIPE_SIDE)
    return uniform ? 0 : side_of(s, o)->time;
  if (s->model->unit_time && !uniform && o->kind <= PIPE_R)
    return pipe_unit_times(sched_times(s), o->stage, o->mb)[o->kind];
  return cost[uniform ? 0 : o->stage].time[o->kind];
}
/* The time of an OFF or LOAD. */
static inline uint64_t copy_cost(const Sched *s, const Copy *c) {
  return s->model->unit_time
             ? pipe_unit_times(sched_times(s), c->stage, c->mb)[pipe_unit_column(c->kind)]
             : s->model->stage[c->stage].time[c->kind];
}
static inline uint32_t op_rank(const Sched *s, uint32_t op) {
  return s->model->stage[s->orders->op[op].stage].rank;
}
static inline uint64_t round64(uint64_t bytes) { return (bytes + 63) & ~(uint64_t)63; }
#define OP_TEXT PIPE_OP_TEXT

#endif
