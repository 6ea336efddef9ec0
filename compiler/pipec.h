/* SPDX-License-Identifier: MIT
 * THE header: read this first. A compile is one Sched, filled by passes in the order of
 * driver/passes.def. Each pass makes a product, or a part of one. The driver owns the products and
 * hands each pass the product that it makes; all other code sees it as const. A product is declared
 * here if a room lower than its maker's (compiler/ROOMS) reads it, otherwise by the door of its
 * room.
 *
 * The pointers of a product are const; the rows behind them are const by agreement. A pass that
 * fills in rows of an earlier product gets that product, too: PipeStage.states (formulas),
 * PipeWeights (slots).
 *
 * A pass is `bool pass(Sched *, product...)`. It returns false if it has reported an error. The
 * comment at the head of its file says what it requires and ensures. A check_* pass proves, and
 * does not change what it proves. All memory comes from the arena. References are row numbers; NONE
 * is none. The door of a room, ROOM/ROOM.h, declares the functions that other rooms call. */
#ifndef PIPEC_H
#define PIPEC_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "arena.h"
#include "ast.h"
#include "channel_model.h"
#include "diag.h"
#include "escape.h"
#include "guard.h"
#include "pipe_instr.h"
#include "times.h"
#include "work.h"

#define TEXT_OF(x) #x
#define DOTTED(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)
#define PIPEC_VERSION DOTTED(PIPE_VERSION_MAJOR, PIPE_VERSION_MINOR, PIPE_VERSION_PATCH)
#define NONE UINT32_MAX

#define MAX_STEPS (UINT64_C(1) << 32) /* of a compile (base/work.h), with all compiles inside it */

enum {
  /* Function calls in one value. With fn f(x) = g(x) + g(x) they double at each step. */
  MAX_CALLS = 1 << 20,
  MAX_RANKS = 1 << 17,     /* a larger number is a typing error; 100,000 take seconds */
  MIN_CHANNEL_SLOTS = 2    /* initial slots at each end of a channel (spec.md 8) */
};

/* A compute op of the text. Transfers exist only as PipeInstr. 16 bytes. */
typedef struct Op {
  uint8_t kind;   /* PipeOp: F B I W R U, SIDE */
  uint8_t phase;  /* PipePhase */
  uint16_t group; /* number of ops of the rank that follow in the same action */
  uint32_t stage; /* row of Model.stage */
  uint32_t mb;    /* unit (Model.slices); U(m): the first unit of m; U: NONE */
  uint32_t site;  /* row of Orders.site */
} Op;

/* When the results of an action may leave its rank (lang/spec.md 5.10). */
typedef enum SendPolicy { SEND_END, SEND_EAGER, NSENDS } SendPolicy;

/* An OFF or LOAD. Copies are not rows of Orders.op: they stand between its rows. */
typedef struct Copy {
  uint8_t kind;     /* PipeOp: OFF LOAD SIDE_COPY */
  uint8_t phase;    /* PipePhase */
  uint16_t zero;
  uint32_t stage, mb, site;
  uint32_t to;      /* rank whose memory takes the stash; NONE: host memory */
  /* row of Orders.op before which the copy stands; at the end: one past the last row of its rank */
  uint32_t at;
  uint32_t free_at; /* OFF (offload): the first op of the rank that may use its ACT slot */
  uint32_t free_by; /* OFF of rules: 1 + the op that needs the slot; 0: none */
  uint32_t use;     /* SIDE_COPY: row of Sides.use */
  uint64_t plan;    /* (offload) its start on an idle network, in time units */
} Copy;

/* An update of a stage: the last op that adds to the gradients it applies, and its U. */
typedef struct Round { uint32_t grad, u; } Round;

/* A hop of a wait cycle: `rank` stands at `at`, which needs `on`, an op of the next hop's rank.
 * Both are rows of Orders.op, or positions in the list of the rank. */
typedef struct StallHop {
  uint32_t rank, at, on;
  const char *text; /* the hop in words; NULL: the ops of the hop say enough */
} StallHop;

/* A counter-example: a refuted order or list (report/stall_picture.c). */
typedef struct Stall {
  const char *what; /* the heading */
  const StallHop *hop; uint32_t nhop;
  /* [nrank] refuted lists; NULL: orders are refuted, and `end` and `head` are set */
  const struct MachineList *list;
  const uint64_t *end;     /* [nop] end of each op that ran */
  const uint32_t *head;    /* [nrank] next op of each rank: the ops below it have run */
} Stall;

/* A transfer: a tensor that crosses ranks, or a sum of gradients. XFER_REDUCE sums over the
 * replicas of a stage, XFER_TIE over the stages tied to it. A sum cannot start before `from`, the
 * last op that adds to any of its gradients. */
typedef struct Xfer {
  uint32_t from; /* the op that makes the tensor: F, B or I; XFER_SIDE: row of Sides.use */
  /* the op that reads the tensor; or XFER_REDUCE, XFER_TIE; or XFER_SIDE: a side op in the COMM
   * stream of its rank */
  uint32_t to;
} Xfer;
#define XFER_REDUCE NONE
#define XFER_TIE (NONE - 1)
#define XFER_SIDE (NONE - 2)
static inline bool xfer_is_sum(const Xfer *x) { return x->to >= XFER_TIE; }
static inline bool xfer_moves(const Xfer *x) { return x->to < XFER_SIDE; } /* it moves a tensor */

/* A side op in the order of its rank (side.c). Ops are rows of Orders.op; NONE: none. */
typedef struct SideUse {
  uint32_t decl, row;   /* rows of Sides.decl and Sides.row */
  uint32_t stage, mb;
  uint32_t at;          /* the op before which it stands; SIDE: the row of the side op itself */
  uint32_t lo, user;    /* first possible value of `at`; op that waits for it */
  uint32_t op, seq;     /* row while it enters the op table; place among the side ops as declared */
  uint32_t in, out;     /* buffers that it gives back and takes: indices in their pools */
  uint32_t in_pool, out_pool;
  /* rows of Sides.use that must have ended: last users, by stream, of `out` (dep[0]) and `in`
   * (dep[1]) */
  uint32_t dep[2][3];
  uint64_t plan;        /* its start on an idle network; sorts its stream */
  uint8_t kind, phase;  /* SIDE, SIDE_COMM or SIDE_COPY */
  bool latest, late;    /* it runs as late as possible; it stands right before its user */
  bool given;           /* another side op has given its buffer back */
} SideUse;
/* A side op in the order of its rank: SideUse.at; is it a SIDE; row of Sides.use; SideUse.plan. */
typedef struct SideTurn { uint32_t at; int compute; uint32_t use; uint64_t plan; } SideTurn;
/* Buffers of one size on a rank: size; stage of the first user; number. */
typedef struct SideBuffers { uint64_t bytes; uint32_t stage, count; } SideBuffers;

/* The instructions of a rank in the order of a compute_comms file, transfers included. Set are op,
 * stage, mb, site and group; of transfers also peer. `waits` is WAIT_SEND for a wait until a SEND
 * is done, and WAIT_ALL for a wait for all transfers above. */
enum { WAIT_SEND = 1, WAIT_ALL = UINT32_MAX };
typedef struct List {
  PipeInstr *instr;
  uint32_t n;
} List;

/* A pipe: rows first .. first + nrow - 1 of the stage table, of which the first nstage are one for
 * each stage; units mb0 .. mb0 + nmb - 1. */
typedef struct Pipe {
  const Clause *clause;
  int64_t index; /* index in an array of pipes */
  uint32_t first, nrow, nstage, mb0, nmb;
} Pipe;

/* The prediction of order_run for one set of costs, on an idle network. In time units. */
typedef struct Timing {
  uint64_t makespan, span, busy; /* busy: summed over ranks */
} Timing;

typedef struct Sched Sched;

/* The state of evaluating an expression. Not a product: any pass writes it. */
typedef struct Eval {
  int64_t *env;         /* [Parsed.nslot] present values of the variables */
  uint32_t calls, depth; /* function calls in the present value; their depth */
  /* Finds the value of a builtin: for `check` (prove/), or for rules and limits while they are
   * played. */
  bool (*quantity)(Sched *, const Expr *call, int64_t *value);
  struct Rules *rules;   /* the play of `rules` while it runs, else NULL */
  struct Played *played; /* (check_user) plays with the uniform costs that `check` names */
  /* for messages on a limit: the counts of the rank at one moment, [NCOUNTS * chunks] */
  const int64_t *moment;
} Eval;

/* What the text says. Made by parse; resolve completes the tree and fills the rest. */
typedef struct Parsed {
  Interner *names;
  Ast *tree;             /* of opt->input */
  Schedule *def;         /* (resolve) the compiled schedule */
  /* (resolve) number of variables of the whole text; each has a fixed slot of Eval.env */
  uint32_t nslot;
  uint32_t nopref;       /* (resolve) the largest OpRef.number */
  /* (resolve) text about other schedules of the file that are not compiled; NULL: none, or
   * --schedule */
  const char *unchecked;
} Parsed;

typedef struct ProfileLink { /* a link of a profile: from any rank of `from` to any rank of `to` */
  const uint32_t *from, *to;
  uint32_t nfrom, nto;
} ProfileLink;

/* What the ops run on: ranks, pipes, stages, their graph, costs and links. Made by expand, or by
 * the import of a file; other passes are named. */
typedef struct Model {
  const char *name, *params;
  /* Counts over all pipes: ranks; rows of `stage`; units. A microbatch has `slices` units. */
  uint32_t nrank, nstage, nmb;
  /* slices of a microbatch; unit u is slice u % slices of microbatch u / slices */
  uint32_t slices;
  uint32_t nmodel;       /* stages of the model; rows from nmodel on are replicas */
  Pipe *pipe; uint32_t npipe;
  PipeStage *stage;      /* [nstage] */
  uint64_t *unit_time; uint32_t nunit_time; /* as in PipeProgram */
  bool forward;          /* forward-only: no backwards */
  bool sized;            /* the text or profile gives bytes */
  /* times are ns: the text gives a unit, or a profile gives times; else abstract units */
  bool timed;
  /* [nmodel * nmb] row that runs it; NULL: no place depends on the microbatch */
  uint32_t *row_of;
  struct StageGraph *graph; /* NULL: every pipe is a chain of rows (graph.h) */
  uint32_t nedge;        /* edges of `graph` */
  /* Rows that share weights. tie_of: [nstage] tie, or NONE. tie_row0: [ntie + 1], where a tie's
   * rows start in tie_row, ascending. NULL: no ties. */
  uint32_t ntie, *tie_of, *tie_row0, *tie_row;
  uint32_t *rank_stage;  /* [nstage] rows, rank after rank, ascending */
  uint32_t *rank_stage0; /* [nrank + 1] where each rank starts in rank_stage */
  /* [nrank] 1 + the link that the copies of a rank share with those of others; 0: none. NULL: no
   * such links. */
  uint32_t *copy_link, ncopy_link;
  uint32_t given;        /* bit k: the text or a profile gives CostKey k (names.h) */
  bool profiled;         /* a profile gives costs */
  const char *layers;    /* how a profile of layers was cut into stages, or NULL */
  const Clause **link_clause; uint32_t nlink_clause; /* the `exclusive a, b` clauses that apply */
  const ProfileLink *profile_link; uint32_t nprofile_link; /* links of the profile */
  PipeShare *share; uint32_t nshare, nlink; /* (links) as in PipeProgram */
  bool weighted;         /* the schedule has a `weights` clause */
  /* the lines that apply; of a kind, the first line whose `when` is true decides */
  const WeightLine **wline; uint32_t nwline;
} Model;

/* The ops of each rank, in order. Made by expand and check_deps, or by the import of a file. Two
 * passes need these orders and add to them: sides the ops of `side` clauses, offload (lower/) the
 * copies of `offload` clauses. */
typedef struct Orders {
  Op *op;                /* [nop] rank after rank, each in program order */
  uint32_t nop;
  uint32_t *rank_op0;    /* [nrank + 1] */
  /* [nstage * nmb] 1 + the op that is F; B or I; W; R. 0: none. */
  uint32_t *at_f, *at_b, *at_w, *at_r;
  Copy *copy;            /* [ncopy] rank after rank, each in the order of its COPY stream */
  uint32_t ncopy, capcopy;
  uint32_t *rank_copy0;  /* [nrank + 1] (offload) */
  uint32_t *at_off, *at_load; /* [nstage * nmb] 1 + copy; 0: none; NULL while ncopy is 0 */
  /* (check_deps) the updates, stage after stage, each in the order of its rank */
  Round *round;
  uint32_t *round0;      /* [nstage + 1] */
  Span *site; uint32_t nsite, capsite; /* places in the text of ops and copies */
  uint32_t *opref_site;  /* [Parsed.nopref + 1] 1 + the row of site of an OpRef; 0: none yet */
  VEC(const Stmt *) descending; /* `do` loops that have run with hi < lo and without a step */
  Span *order_at;        /* [nrank] place of the order clause that a rank follows */
  const Clause **order_clause; /* [nrank] this clause; NULL for a CSV file */
  const Clause **offload; uint32_t noffload; /* clauses that add copies */
  SendPolicy send;
  uint32_t lowering;     /* the requested lowering: PipeLowering, or LOWERING_AUTO (names.h) */
  Span lowering_at;
  /* (read_csv) [nrank] lists of a compute_comms file, whose transfers take the place of derived
   * ones; NULL: none */
  List *lists;
} Orders;

/* Side ops. Made by expand (find_sides) and by sides. order and offload place the side ops that run
 * as late as possible; offload sorts them. */
typedef struct Sides {
  const Clause **decl; uint32_t ndecl; /* `side` clauses that apply */
  uint32_t site0;        /* first row of Orders.site for these clauses */
  PipeSide *row; uint32_t nrow; /* [ndecl * nstage], clause after clause */
  SideUse *use; uint32_t nuse; /* (sides) rank after rank */
  uint32_t *use0;        /* [nrank + 1] */
  uint32_t ncomm;        /* number of rows of `use` in COMM streams */
  SideTurn *turn;        /* [nuse] (offload) rank after rank, in the order of their places */
  SideBuffers **buffers; uint32_t *nbuffers; /* [nrank] */
} Sides;

/* The verdict of the proofs. Made by prove_lists and the check_* passes. */
typedef struct Verdict {
  const Stall *stall;    /* (check_channels) the counter-example, or NULL */
  /* (prove_lists) Orders.lists complete under the requested model, but not under the model of the
   * engines: there is no program. What would happen there, for the report; NULL: there is one */
  const char *only_lists;
  const struct MachineList *machine_list; /* [nrank] (check_channels) the proved lists */
  /* (check_channels) least --sends=buffered that completes the lists; 0: rendezvous suffices */
  uint64_t least_buffer;
  /* (check_memory) 1 + the rank that exceeds the memory limit by the most; 0: none */
  uint32_t over;
  bool limits_hold;      /* (check_user) the limits are proved, and their peaks are set */
} Verdict;

/* Times of a run of the program, in ns (--with). Made by read_trace. */
typedef struct Measured {
  uint32_t nstep;          /* 0: no trace was given */
  uint64_t **start, **end; /* [nstep * nrank][ninstr] by step, then rank */
} Measured;

/* A compile: what every pass needs, and the products. A product is all zero until its pass makes
 * it. */
struct Sched {
  Arena *arena;
  Diag *diag;
  struct Options *opt;
  /* Compiles the same text again in a Sched of the caller, with its options. */
  bool (*again)(Sched *);
  Work *work; /* budget of this compile; shared with the compiles that it asks for */
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
  const PipeProgram *prog; /* the program that emit prints; NULL before lower */
};

/* The index in Model.pipe of the pipe of a row; 0 in a CSV file, which has no pipes. In place.c. */
uint32_t pipe_of(const Sched *s, uint32_t row);

/* ---- options, of driver/read_options.c ---- */
typedef struct Define {
  const char *text;            /* as it was given: "M=1..8:2" */
  const char *name;
  int64_t value;               /* of the point at hand (driver/sweep.h) */
  uint32_t n;                  /* number of values; > 1: only for --check and --compare */
  /* the values are lo + i * step, i < n; list not NULL: list[n] */
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
  COST_STEP, COST_STAGE, COST_STRAIGHT, COST_COMPUTE, COST_ALPA, COST_LATENCY, COST_2BW
} PlanCost;
typedef enum Color { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER } Color;
/* One order that a `tune` clause may take: the value at index `at`; moved: with its ops moved by
 * `tries`. */
typedef struct TuneChoice { uint32_t at; bool moved; } TuneChoice;

typedef struct Options {
  const char *input;           /* path */
  bool named;                  /* a caller of the library has named the input */
  const char *const *word; int nword; /* the words that were read: for messages */
  const char **format; uint32_t nformat; /* inputs of --fmt */
  bool format_write;           /* --fmt writes its inputs in place */
  /* inputs of --compare, or of --emit=html with several; one of them may lack a parameter */
  const char **compare; uint32_t ncompare;
  RankBy by;                   /* sort key of --compare */
  /* standard input, kept by file_read because it can be read only once */
  char *input_text; uint32_t input_len;
  /* the text to compile, whose path is `input`; NULL: read `input` */
  const char *text; size_t text_len;
  bool closed;                 /* read no other file (for fuzzing) */
  bool regular;                /* read regular files only: a call of the library ends */
  const char *output;          /* NULL: standard output */
  const char *depfile;
  const char *counterexample;  /* path of the picture of a counter-example; NULL: none */
  const char *schedule;        /* NULL: the last schedule of the file */
  const TuneChoice *tune;      /* the order that `tune` takes (again.c); NULL: it searches */
  Work *work;                  /* budget of all compiles of a call; NULL: MAX_STEPS each */
  const char *symbol;          /* C name of the program */
  const char *profile;
  const char *cluster;         /* --cluster, for --plan; NULL: none */
  PlanCost plan_cost;
  const char *dump_after;      /* pass name, "all", or NULL */
  Emit emit;
  bool check_only;             /* prove and report; write nothing */
  bool show;                   /* draw the grid in the terminal; write no file */
  bool critical_path;          /* report the critical path and idle time by cause */
  Color color;                 /* colours of `show` */
  bool time_passes;
  bool verify;                 /* second opinions (certify/); default in Debug builds */
  /* --lowering: 1 + the value of Orders.lowering; 0: as the schedule says */
  int lowering;
  ChannelModel model;          /* --channels, --sends: the model that check_channels proves */
  /* ignore shared links; --compare: do not scale to equal work */
  bool no_contention, own_units;
  const char *with;            /* path of the trace of a run; NULL: none */
  int arrows; double figure_px, figure_pt; /* --arrows, --figure: as in SvgOptions */
  /* --torch-lax: read CSV as PyTorch does, with warnings */
  bool torch_lax;
  /* --emit=comms-csv: most stages that are unsharded at once; 0: no UNSHARD */
  uint32_t torch_unshard;
  bool torch_waits;            /* --emit=comms-csv: write WAIT_SEND_x and WAIT_REDUCE_GRAD */
  uint64_t memory_limit_bytes; /* per rank; 0: none */
  /* the limit is in kB, MB, GB or TB; messages then use these units */
  bool decimal;
  uint64_t host_limit_bytes;   /* memory that the compiler may use; 0: the memory of the machine */
  Define *define; uint32_t ndefine;
  const char **include; uint32_t ninclude;
  const char *stdlib;          /* directory */
  FILE *out;                   /* reports and dumps; also the output if `output` is NULL */
  FILE *progress;              /* terminal for the progress of long work; NULL: none */
} Options;

/* The time of the transfer of an output of F, or of B or I. */
static inline uint64_t send_time(const PipeStage *st, uint8_t kind) {
  return st->time[kind == PIPE_F ? PIPE_SEND_F : PIPE_SEND_B];
}
/* The op at whose end the result of `op` may leave and the inputs of `op` are free. */
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
/* Are the gradients of a row summed with the gradients of replicas or of tied stages? */
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
/* The time of op; cost: as in OrderRun. With uniform costs, side ops take no time. */
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

#endif
