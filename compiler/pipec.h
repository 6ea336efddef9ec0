/* SPDX-License-Identifier: MIT
 * THE header: read this first. A compile is one Sched that the passes of driver.c fill in turn:
 *
 *   parse > resolve > expand > check_deps > sides > versions > formulas > version_slots > order > offload > transfers > links > comm > check_deadlock
 *         > slots > check_memory > lower > check_streams > check_match > check_channels > check_user > check_all_m
 *         > make_looped > emit
 *
 * A CSV file of PyTorch's comes in by read_csv in place of the first three. One that has its own
 * transfers (compute_comms) is proved and not emitted: read_csv > check_deps > order > check_channels.
 *
 * Each pass is `bool pass(Sched *)`; false means that errors were reported. Its comment says what
 * it requires and ensures; check_* passes prove and change nothing that they prove. All memory is
 * the arena's. References are indices, NONE where there is nothing. More than 800 lines: what passes leave for each
 * other stands in one place. */
#ifndef PIPEC_H
#define PIPEC_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "arena.h"
#include "ast.h"
#include "diag.h"
#include "escape.h"
#include "machine.h"
#include "pipe_instr.h"
#include "pipe_sim.h"
#include "work.h"

#define PIPEC_VERSION "0.1.0"
#define NONE UINT32_MAX

enum {
  MAX_CALLS = 1 << 20,     /* of functions in one value: fn f(x) = g(x) + g(x) doubles at each step */
  MAX_TURNS = 1 << 30,     /* of loops, all ranks together */
  MAX_RANKS = 1 << 20,     /* more is a typing error */
  MIN_CHANNEL_SLOTS = 2    /* receive and send slots of a channel to start from (lang/spec.md 8) */
};

/* One compute op of the user's program. Comm ops exist only as PipeInstr. 16 bytes. */
typedef struct Op {
  uint8_t kind;   /* PipeOp: F B I W R U, SIDE */
  uint8_t phase;  /* PipePhase */
  uint16_t group; /* further ops of the rank after this one that are one action with it; 0 */
  uint32_t stage; /* row of Sched.stage */
  uint32_t mb;    /* unit (Sched.slices); U: the first of the microbatch of a U(m), or NONE */
  uint32_t site;  /* row of Sched.site */
} Op;

/* When what an action has made may leave its rank (lang/spec.md 5.10). */
typedef enum SendPolicy { SEND_END, SEND_EAGER, SEND_NEXT } SendPolicy;

/* An OFF or LOAD of the user's program. They are no ops of Sched.op: they stand between those. */
typedef struct Copy {
  uint8_t kind;     /* PipeOp: OFF LOAD SIDE_COPY */
  uint8_t phase;    /* PipePhase */
  uint16_t zero;
  uint32_t stage, mb, site;
  uint32_t to;      /* rank whose memory takes the stash; NONE: the host's */
  uint32_t at;      /* row of Sched.op before which it stands, one past the last of its rank at the end */
  uint32_t free_at; /* OFF (offload): its ACT slot is free for this op of the rank and later ones */
  uint32_t free_by; /* OFF of rules: 1 + the op for which it is free at the latest; 0 */
  uint32_t use;     /* SIDE_COPY: row of Sched.side_use */
  uint32_t turn;    /* (offload) in its group */
  uint64_t plan;    /* (offload) when it starts on an idle network */
} Copy;

/* An update of a stage: the last op that adds to the gradients that it applies, and the U. */
typedef struct Round { uint32_t grad, u; } Round;

typedef struct StallHop StallHop; /* stall_picture.h */

/* A tensor that crosses ranks; or a sum, which cannot start before `from`, the last op that adds to any
 * of its gradients: XFER_REDUCE over the replicas of the stage, XFER_TIE over the stages tied to it. */
typedef struct Xfer {
  uint32_t from; /* producing op: F, or B/I */
  uint32_t to;   /* consuming op, or which sum; XFER_SIDE: no transfer, but row `from` of Sched.side_use,
                    in the COMM stream of its rank */
} Xfer;
#define XFER_REDUCE NONE
#define XFER_TIE (NONE - 1)
#define XFER_SIDE (NONE - 2)
static inline bool xfer_is_sum(const Xfer *x) { return x->to >= XFER_TIE; }
static inline bool xfer_moves(const Xfer *x) { return x->to < XFER_SIDE; } /* a tensor */

/* A side op in the order of its rank (side.c). Rows of Sched.op; NONE where there is nothing. */
typedef struct SideUse {
  uint32_t decl, row;   /* of Sched.side_decl, of Sched.side */
  uint32_t stage, mb;
  uint32_t at;          /* it stands before this op; SIDE: is that op */
  uint32_t lo, user;    /* it cannot stand before; the op that waits for it */
  uint32_t op, seq;     /* row while it is put into the op table; order of the clauses */
  uint32_t in, out;     /* buffers: number in its pool; given back, taken */
  uint32_t in_pool, out_pool;
  uint32_t dep[2][3];   /* rows of side_use that must have ended: the last of each stream that used `out`; `in` */
  uint32_t pos;         /* (comm) 1 + position in its stream */
  uint64_t plan;        /* when it starts on an idle network, for the order in its stream */
  uint8_t kind, phase;  /* SIDE, SIDE_COMM or SIDE_COPY */
  bool latest, late;    /* as late as can be; stands before its user */
  bool given;
} SideUse;
typedef struct SideTurn { uint32_t at; int compute; uint32_t use; uint64_t plan; } SideTurn;
typedef struct SideBuffers { uint64_t bytes; uint32_t stage, count, first; } SideBuffers;

/* A channel: the transfers of one kind over one link, in their order. Index 2*link + (backward). */
typedef struct Channel {
  uint32_t out_slots, in_slots; /* at the sender, at the receiver; 0 if no transfer uses it */
  uint32_t out_first, in_first; /* (slots) first slot number on the rank */
} Channel;

/* With lowering CHANNELS: an instruction of COMPUTE, or number ncompute + i of COPY, needs that at position `on` of
 * COMM. */
typedef struct Need { uint32_t of, on; } Need;

/* The instructions of a rank before they are merged into one list, which takes the place of compute and comm:
 * list[ncopy + ncompute + ncomm], at its end compute and behind it comm. copy is elsewhere. */
typedef struct Streams {
  PipeInstr *list, *compute, *comm, *copy;
  uint32_t ncompute, ncomm, ncopy;
  Need *need; uint32_t nneed, capneed;
} Streams;

/* A rank's instructions in the order of the text, transfers included: of a compute_comms file, or of a
 * lowering that has the transfers at their ops. Op, stage, mb, site, group and (once transfers has seen it)
 * peer and edge; `wait` is WAIT_SEND where a file does not send, but waits until it is sent, and WAIT_ALL: not
 * before all transfers above are done. */
enum { WAIT_SEND = 1, WAIT_ALL = UINT32_MAX };
typedef struct List {
  PipeInstr *instr;
  uint32_t n;
} List;

/* The kinds of memory of a rank, in the order of reports. Those before `total` add up to it: what
 * stages have, then slots by PipeClass, and `state`, what their policy keeps. `host` lies in host
 * memory, in no total. */
#define PEAK_CLASSES(X) \
  X(weight) X(grad) X(opt) X(work) X(act) X(gout) X(out) X(in) X(local) X(keep) X(guest) \
  X(buffer) X(guess) X(state) X(total) X(host)
#define X(c) PEAK_##c,
enum { PEAK_CLASSES(X) PEAK_NCLASSES, PEAK_NREPORTED = PEAK_host };
#undef X

/* What a rank needs at its worst moment. */
typedef struct Peak {
  uint32_t inflight, held, kept; /* most live ACT, GOUT and KEEP slots (slots) */
  uint32_t host;           /* and HOST slots */
  uint32_t guests;         /* GUEST slots (slots) */
  uint32_t warmup;         /* forwards before the first backward */
  uint32_t versions;       /* most slots that a stage has for its weights (slots) */
  uint32_t op;             /* op at which act + gout + local + buffer bytes are most; NONE when unsized */
  uint64_t bytes[PEAK_NCLASSES]; /* (check_memory) each buffer rounded up to 64 */
} Peak;

/* A pipe: rows first .. first + nrow - 1 of the stage table, of these the first nstage one for each
 * stage; units mb0 .. mb0 + nmb - 1. */
typedef struct Pipe {
  const Clause *clause;
  int64_t index; /* in an array of pipes */
  uint32_t first, nrow, nstage, mb0, nmb;
} Pipe;

/* Idle-network prediction of a program for one set of costs: from order_run. */
typedef struct Timing {
  uint64_t makespan, span, busy; /* busy: summed over ranks */
} Timing;

typedef struct Sched {
  Arena *arena;
  Diag *diag;
  struct Options *opt;
  Work *work;            /* what it may take, for a question about every M (work.h); NULL: as much as it takes */

  /* parse */
  Interner *names;
  Ast *tree;             /* of opt->input */

  /* resolve */
  Schedule *def;         /* the schedule that is compiled */
  uint32_t nslot;        /* variables of the whole text; each has a fixed place in env */
  int64_t *env;          /* [nslot] current values */
  uint32_t calls, call_depth; /* of functions, in the value being computed */

  /* expand */
  const char *name, *params;
  uint32_t nrank, nstage, nmb; /* of all pipes together; nmb counts units, as everything below does */
  uint32_t slices;       /* of a microbatch; unit u is slice u % slices of microbatch u / slices */
  uint32_t nmodel;       /* stages of the model; more rows than that are replicas */
  Pipe *pipe; uint32_t npipe;
  PipeStage *stage;      /* [nstage] */
  uint64_t *unit_time; uint32_t nunit_time; /* of PipeProgram (expand) */
  bool forward;          /* there are only F */
  uint32_t *row_of;      /* [nmodel * nmb] row, if a place depends on the microbatch, else NULL */
  struct StageGraph *graph;   /* NULL: every pipe is a chain of rows (graph.h) */
  uint32_t nedge;        /* of it */
  uint32_t ntie, *tie_of, *tie_row0, *tie_row; /* groups of rows that share weights: [nstage] group or
                            NONE, [ntie + 1], rows ascending; tie_of NULL: none */
  bool sized;            /* bytes were given */
  bool timed;            /* times are ns: one was given with a unit, or by a profile */
  const char *profile_lacks; /* keys that neither profile nor schedule gives; NULL: no profile, or none */
  const char *unchecked; /* (resolve) schedules of the file beside this one; NULL: there are none, or it was named */
  const char *layers;    /* how a profile of layers was cut into stages; NULL: none was */
  SendPolicy send;
  uint32_t *rank_stage;  /* [nstage] stages grouped by rank, ascending; rank r from */
  uint32_t *rank_stage0; /* [nrank + 1] */
  const Clause **check; uint32_t ncheck; /* to prove at the end; env still has what they name */
  const Clause **limit; uint32_t nlimit; /* to keep, and to prove at the end */
  struct Limit *limits; uint32_t nlimits, *limit0; /* their rows (limit.h), rank after rank; [nrank + 2] */
  uint32_t over;         /* (check_memory) 1 + the rank over the memory limit that needs the most; 0: none */
  bool limits_hold;      /* (check_user) they are proved, and have their peaks */
  const int64_t *moment; /* while a message on a limit is made: what the rank has, [NCOUNTS * chunks] */
  Op *op;                /* [nop], rank after rank, each in program order */
  uint32_t nop;
  uint32_t *rank_op0;    /* [nrank + 1] */
  Copy *copy;            /* [ncopy], rank after rank, each in the order of its COPY stream */
  uint32_t ncopy, capcopy;
  uint32_t *rank_copy0;  /* [nrank + 1] (offload) */
  uint32_t *at_off, *at_load; /* [nstage * nmb] copy + 1; 0 none; NULL while ncopy is 0 */
  const Clause **offload; uint32_t noffload; /* clauses that add to them (expand) */
  PipeLowering lowering;
  Span lowering_at;
  const Clause **link_clause; uint32_t nlink_clause; /* `exclusive a, b` that count (expand) */
  const struct ProfileLink *profile_link; uint32_t nprofile_link; /* in their place (expand, profile) */
  PipeShare *share; uint32_t nshare, nlink; /* of PipeProgram (links) */
  uint64_t *rank_busy, *link_busy, link_wait; /* of PipeSimOut (check_deadlock) */
  uint32_t *group, ngroup; /* [nrank] 1 + group of ranks whose copies take turns, 0: none; NULL: there are
                            no groups (expand) */
  const Clause **side_decl; uint32_t nside_decl; /* `side` clauses (expand) */
  uint32_t side_site0;   /* rows of site: of them */
  PipeSide *side; uint32_t nside; /* [nside_decl * nstage] */
  SideUse *side_use; uint32_t nside_use; /* rank after rank (sides) */
  uint32_t *side_use0;   /* [nrank + 1] */
  uint32_t ncomm_side;   /* of them in COMM streams */
  SideTurn *side_turn;   /* [nside_use] rank after rank, in the order in which they stand (offload) */
  SideBuffers **side_buffers; uint32_t *nside_buffers; /* [nrank] */
  Span *order_at;        /* [nrank] the order that a rank follows */
  const Clause **order_clause; /* [nrank] the same; NULL of a CSV file */
  uint32_t *at_f, *at_b, *at_w, *at_r; /* [nstage * nmb] op + 1 of F, of B or I, of W, of R; 0 none */
  Round *round;          /* (check_deps) updates, stage after stage, in the order of the stage's rank */
  uint32_t *round0;      /* [nstage + 1] */
  bool weighted;         /* there is a `weights` clause: */
  const WeightLine **wline; uint32_t nwline; /* its lines that count; those of one kind in order */
  uint32_t *staleness;   /* [nrank] (versions) most updates of a stage between the version that an F reads and */
  uint32_t *discrepancy; /* [nrank]   that which its gradient is applied to; between those of F and its B or I */
  uint32_t *delay;       /* [nstage] (versions) staleness of one row */
  PipeWeights *weights;  /* [nop] (versions); slots (version_slots) from 0 for each row, (slots) of the rank.
                            NULL: not weighted */
  uint32_t *maker;       /* [nop] (versions) of an op whose line has `per`, the first of those that read alike; NONE.
                            NULL: no line has */
  uint32_t *last_reader; /* [nop] (version_slots) of such a first op, the last; NULL with maker */
  PipeFormula *formula; PipeRule *rule; PipeThen *then; const char **state; /* (formulas) of PipeProgram */
  uint32_t nformula, nrule, nthen, nstate;
  uint32_t *nversion;    /* [nstage] (version_slots) slots for versions; NULL: not weighted */
  uint32_t *weight_first; /* [nstage] (slots) the first of these slots */
  Span *site; uint32_t nsite, capsite;
  List *lists;           /* [nrank] of a compute_comms file (read_csv), or of the lowering (transfers); NULL */
  bool only_lists;       /* proved as they stand, and no more: there will be no program */
  const Clause *tuned;   /* `tune` clause that was followed, or NULL */
  uint32_t tune_at, ntune; /* the value it has settled for, of so many */
  bool tune_kept; int64_t tune_worth[2]; /* the order is as written: what `by` says of both as emitted, [1] tuned */
  uint32_t tune_tries, tune_idle; /* tries so far, and since the last gain */
  struct Rules *rules;   /* the simulation of `rules` while it runs, else NULL */
  struct RulePlay *play; /* with opt->keep_play what it went through (rules_of_m.h), if there are rules */

  /* order */
  bool ordered;          /* it has passed, */
  StallHop *circle; uint32_t ncircle; /* or ranks that wait for each other, by rows of op; until then NULL */
  Timing ideal;          /* with the schedule's own costs */
  uint64_t *ideal_end;   /* [nop] when what each op made could leave then */
  uint32_t *made;        /* [nop] of OrderRun, with groups */
  Xfer *xfer;            /* [nxfer] transfers between ranks, in the one global order */
  uint32_t nxfer;

  /* comm, check_deadlock */
  Channel *channel;      /* [2 * links] */
  uint32_t **slot_list, *nslot_list; /* [nrank] PipeRank.list; NULL without graph */
  Streams *stream;       /* [nrank] */
  PipeChannel *pipe_channel; uint32_t npipe_channel; /* of PipeProgram, with lowering CHANNELS (channels.c), and: */
  uint32_t *channel_of;  /* [2 * links + nmodel + ntie + nrank] row of pipe_channel, before check_deadlock */
  PipeNeeds *needs;      /* [nrank] */
  uint64_t **compute_start, **comm_start; /* [nrank][n] predicted */
  uint64_t **copy_start;
  uint64_t makespan, busy, own_span; /* own_span: longest window of a single rank */
  uint32_t channel_slots; /* most that any channel needed */
  struct Steady { uint64_t time; uint32_t per; } steady; /* of `per` microbatches in the middle of the step; 0: there are
                             fewer than 4 */

  /* check_channels */
  const MachineList *machine_list; /* [nrank] what was proved */
  uint32_t *comm_of;     /* [nmodel + ntie] number of the communicator of each REDUCE, of each TIE */
  uint64_t least_buffer; /* least --sends=buffered with which it completes; 0: rendezvous is enough */

  /* slots, lower, check_memory */
  PipePool **pool; uint32_t *npool, *nrank_slot; /* [nrank] */
  Peak *peak;            /* [nrank] */
  PipeProgram *prog;     /* the result; its tables are what emit prints */

  Timing bound;          /* (fill_bound) no order at these places and costs, with these stashes, is shorter */

  /* check_user */
  uint64_t *sent_bytes, *sent; /* [nrank + 1] of each rank in a step, then of all; NULL: not counted yet */
  struct Played *played; /* sets of uniform costs already played */
  uint64_t *play_end; uint32_t *play_head; /* room for it */

  /* check_all_m */
  struct AllM_ {
    bool proved, refuted;
    const char *text; Span at; /* else: what stands in the way, and where */
    uint64_t time, per;        /* steady state on an idle network: time for so many microbatches, reduced; per 0, with
                                  from 0: transfers take another time at each M, for what stands at `at`, */
    bool by_mb;                /*   or times differ by microbatch, which that says */
    bool below_one;            /* it may admit values below 1, of which nothing is said */
    uint64_t multiple;         /* proved for the multiples of this; 1: for all */
    uint64_t period;           /* microbatches after which every rank repeats */
    uint64_t step, settled;    /* of one kernel: of M, what the counts of microbatches repeat after; an M at which every rank
                                  has come to what repeats */
    const char *lists;         /* with --dump-after: what each rank does */
    uint64_t from;             /* proved from there on for all at once, below one by one; 0: for all at once */
    uint64_t below;            /* with from: those below this have been compiled one by one; from: all of them */
    bool late, applied;        /* by how many updates gradients are late grows with M; so does how many an update applies */
  } all_m;

  /* make_looped */
  struct Looped *looped;       /* the program for every M, if one was asked for (looped.h) */
} Sched;

/* The number of the pipe that a row is of: of Sched.pipe, which a file that was read does not have. (place.c) */
uint32_t pipe_of(const Sched *s, uint32_t row);
/* The instruction of an op of `rank` in its COMPUTE stream. */
static inline PipeInstr *op_instr(const Sched *s, uint32_t rank, uint32_t op) {
  return &s->stream[rank].compute[op - s->rank_op0[rank]];
}

/* ---- options, main.c ---- */
typedef struct Define {
  const char *name;
  int64_t value;
  uint32_t n, at;       /* --compare: how many values it takes, and the place of `value` among them */
  int64_t lo, step; const int64_t *list; /* they are lo + at * step; or, unless NULL, those of [n] list */
  bool used;
} Define;
typedef enum Emit { EMIT_C, EMIT_CSV, EMIT_COMMS_CSV, EMIT_JSON, EMIT_SVG, EMIT_TRACE, EMIT_HTML, EMIT_NONE } Emit;
typedef enum RankBy {
  BY_WORK, BY_MAKESPAN, BY_SPAN, BY_BUBBLE, BY_MEMORY, BY_VOLUME, BY_VERSIONS, BY_STALENESS
} RankBy;
typedef enum Color { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER } Color;
typedef struct Options {
  const char *input;           /* path */
  const char **format; uint32_t nformat; /* --fmt: the inputs */
  bool format_write;           /* in place */
  const char **compare; uint32_t ncompare; /* --compare, or --emit=html of several: the inputs; a parameter that one lacks is not its */
  RankBy by;                   /* what --compare sorts the rows of a point by */
  char *input_text; uint32_t input_len; /* of standard input, kept by file_read: it can be read once */
  const char *text; size_t text_len; /* non-NULL: compile this text, imports are refused (fuzzing) */
  const char *output;          /* NULL: standard output */
  const char *depfile;
  const char *counterexample;  /* NULL, or where ranks that wait for each other are drawn */
  const char *schedule;        /* NULL: the last of the file */
  bool any_value;              /* what the schedule requires is not asked for (all_m.c) */
  bool keep_play;              /* (all_m_lists.c) */
  enum { TUNE_BETTER, TUNE_FULL, TUNE_NONE } tune; /* (tune.c) BETTER: that of the two which is better as emitted */
  const char *for_all;         /* --for-all: a parameter; prove for all its values */
  int undecided;               /* --undecided: 1 error, 2 ok; 0: not given */
  Work *work;                  /* what that may take: of programs that are compiled for it (all_m.c, looped.c) */
  bool looped;                 /* write the program for all of them */
  const char *symbol;          /* C name of the program */
  const char *profile;
  const char *dump_after;      /* pass name, "all", or NULL */
  Emit emit;
  bool check_only;             /* prove and report, write nothing */
  bool show;                   /* draw the grid in the terminal, write nothing */
  bool critical_path;          /* report, with the critical path and idle time by cause */
  Color color;                 /* of show */
  bool time_passes;
  bool trial;                  /* all_m_trial.c, of what is proved for every M */
  bool verify;                 /* verify.c after every pass (always in debug builds) */
  int lowering;                /* --lowering: 1 + PipeLowering, 0: what the schedule says */
  ChannelModel model;          /* --channels, --sends: what check_channels proves for */
  bool no_contention, own_units; /* no links are shared; schedules side by side are not scaled to equal work */
  int arrows; double figure_px, figure_pt; /* --arrows, --figure: as in SvgOptions */
  bool torch_lax;              /* CSV as PyTorch reads it, with warnings */
  uint32_t torch_unshard;      /* --emit=comms-csv: with UNSHARD of at most so many stages at once; 0: without */
  bool torch_waits;            /* and with WAIT_SEND_x and WAIT_REDUCE_GRAD */
  uint64_t memory_limit_bytes; /* per rank; 0: none */
  bool decimal;                /* it was given in kB, MB, GB or TB: so are the bytes that are said */
  uint64_t host_limit_bytes;   /* what the compiler itself may use; 0: the machine's memory */
  Define *define; uint32_t ndefine;
  const char **include; uint32_t ninclude;
  const char *stdlib;          /* directory */
  FILE *dump_out;              /* dumps and reports: stdout */
} Options;

/* ---- driver.c: the pass list ---- */
bool compile(Sched *s);
bool draws(const Options *o); /* a picture is what is wanted: of what is over the memory limit, too */
bool compile_orders(Sched *s, bool prove); /* as far as expand, or `order`, and with copies in the text `offload`: no side
                                              ops, no transfers, no tables */
bool compile_only(Sched *s);  /* the same without output: what tests, fuzzers and benches call */
bool compare(Sched *s);       /* compare.c: of opt->compare; needs no pass, s stays empty */
bool is_pass(const char *name);
const char *pass_names(Sched *s);

/* ---- files.c ---- */
/* Reads a whole file into the arena; at: where it was asked for. NULL: reported. */
char *file_read(Sched *s, const char *path, Span at, uint32_t *len);
/* Where import "path" in file `from` is found, or NULL. */
const char *file_find(Sched *s, const char *path, const char *from);
/* Output to a temporary file beside `path`, renamed by file_close if nothing failed; NULL path:
 * standard output. Errors are reported by file_close, which is false then and leaves no file. */
typedef struct OutFile {
  FILE *f;
  const char *shown, *path; /* as the user wrote it; symbolic links resolved */
  char *tmp;
} OutFile;
bool file_open(Sched *s, OutFile *o, const char *path);
bool file_close(Sched *s, OutFile *o, bool ok);
/* file_open for a file that was read and keeps its permissions. */
bool file_replace(Sched *s, OutFile *o, const char *path);
void files_catch_signals(void); /* a process that is interrupted leaves no temporary file */

/* ---- resolve.c: requires a parsed tree; ensures that every name has a slot, a definition or a
 * builtin, imports are loaded, s->def is set ---- */
bool resolve(Sched *s);

typedef enum Builtin { /* EX_CALL.builtin */
  BI_FN, BI_MIN, BI_MAX,
  BI_INFLIGHT, BI_HELD, BI_KEPT, BI_WARMUP, BI_MEMORY, BI_STALENESS, BI_DISCREPANCY, /* of a rank */
  BI_HOST, BI_HOST_MEMORY, BI_GUESTS,          /* of a rank */
  BI_VERSIONS, BI_STASHED,                     /* of a rank, or of all */
  BI_VOLUME, BI_MESSAGES,                      /* of a rank, or of all */
  BI_MAKESPAN, BI_SPAN, BI_IDLE, BI_BUBBLE,    /* with named costs */
  BI_LATER                                     /* in no text: row EX_CALL.slot of Ex.later, in a condition of rules */
} Builtin;

/* Quantities that `when` knows in rules. */
static inline bool is_now(int builtin) {
  return (builtin >= BI_INFLIGHT && builtin <= BI_KEPT) || builtin == BI_HOST;
}

/* ---- csv.c: a file of PyTorch's; ensures what expand does, and lists for compute_comms ---- */
bool is_csv(const Options *o);
bool read_csv(Sched *s);

/* ---- read_json.c: what --emit=json has written; ensures what expand does ---- */
bool is_json(const Options *o);
bool read_json(Sched *s);
/* ---- eval.c ---- */
/* Value of e in s->env; false: reported (overflow, division by zero, a rank out of range). */
bool eval(Sched *s, const Expr *e, int64_t *value);
/* The file-level lets of a resolved tree, those of its imports first. */
bool eval_lets(Sched *s, Ast *ast);
bool eval_range(Sched *s, const Range *r, int64_t *lo, int64_t *hi, int64_t *step);
/* "P = 4, r = 0, inflight(r) = 5": what e mentions, for messages; at most ~200 bytes. */
const char *eval_explain(Sched *s, const Expr *e);
/* The help line "its parameters are P, M". */
void help_params(Sched *s, const Schedule *sc);
const char *span_text(Sched *s, Span at); /* the text itself, blanks squeezed, cut at 80 bytes */

/* Says where a schedule that has what stands at `at` is extended; false: it is not. In instance.c. */
bool note_extends(Sched *s, Span at);
/* The same of a check or limit, and how to leave it out. */
bool help_unchecked(Sched *s, Span at);

/* ---- expand.c: schedule + parameters -> ops of each rank; proves indices, placement, uniqueness,
 * sizes of everything ---- */
bool expand(Sched *s);
bool rules_quantity(Sched *s, const Expr *call, int64_t *value); /* order_rules.c: inflight, held, kept, host now */
bool profile_apply(Sched *s, const char *path, Span at, bool *has); /* profile.c; has[NKEYS] */
typedef enum CostKey { /* entries of time { } and bytes { } and of a profile */
  KEY_F, KEY_B, KEY_I, KEY_W, KEY_R, KEY_U, KEY_FB, KEY_SEND, KEY_REDUCE, KEY_OFF, KEY_LOAD,
  KEY_ACT, KEY_GOUT, KEY_BOUNDARY, KEY_WEIGHT, KEY_GRAD, KEY_OPT, KEY_WORK, KEY_EDGE, KEY_TIED,
  NKEYS, NTIMEKEYS = KEY_ACT, NPLAYKEYS = KEY_OFF, /* times; those of makespan(F = 1) */
  KEY_LATENCY = NKEYS, KEY_BANDWIDTH, /* of time { }, too: of the link to the next stage */
  KEY_SUM_LATENCY, KEY_SUM_BANDWIDTH, /* of the ring of those that sum gradients */
  NENTRIES
} CostKey;
extern const char *const cost_key[NENTRIES];
extern const CostKey unit_key[PIPE_UNIT_TIMES]; /* by column of PipeProgram.unit_time */
uint64_t *cost_field(PipeStage *st, CostKey k); /* where it is kept (SEND: SEND_F; SEND_B follows) */
/* Of the transfer of what an F, or a B or I, has made. */
static inline uint64_t send_time(const PipeStage *st, uint8_t kind) {
  return st->time[kind == PIPE_F ? PIPE_SEND_F : PIPE_SEND_B];
}
/* Defaults for what `has` lacks. */
void cost_defaults(PipeStage *st, const bool has[NKEYS]);

/* ---- lowering.c ---- */
void transfers_shape(Sched *s, const Clause *c);
const char *lowering_text(const Sched *s); /* "grouped" */

/* ---- next_w.c ---- */
/* Reports at `at` a W without an index in the text of clock or rules. */
void refuse_bare_w(Sched *s, Span at, const OpRef *w, const Stmt *list);

/* ---- overlap.c: actions of several ops ---- */
void overlap_shape(Sched *s, const Stmt *t, const Stmt *list); /* list: the clock or rules it is in */
void send_shape(Sched *s, const Clause *c);
const char *send_text(const Sched *s); /* "end" */
/* Proves that no op of an action needs another of it. Part of check_deps. */
bool check_overlap(Sched *s);
/* What the action that begins with op `first` takes; cost: as in OrderRun. */
uint64_t action_time(const Sched *s, const PipeStage *cost, bool uniform, uint32_t first);
/* The same of n ops that are to be one action. */
uint64_t together_time(const Sched *s, const PipeStage *cost, bool uniform, const uint32_t *op, uint32_t n);
/* The op with whose end what `op` has made may leave, and what it has read is free. */
static inline uint32_t op_release(const Sched *s, uint32_t op) {
  return s->send == SEND_EAGER ? op : op + s->op[op].group;
}

/* ---- check_deps.c: each (stage, mb) exactly F and B or I+W, perhaps R, in order on its rank; each
 * gradient is applied by one U. Ensures round ---- */
bool check_deps(Sched *s);
/* The update of its stage that op u, a U, is: a row of s->round. */
uint32_t round_of(const Sched *s, uint32_t u);

/* ---- versions.c: requires sides. Proves that the versions of the weights that are read are there;
 * ensures staleness, discrepancy, delay, weights (but for slots and formulas), maker ---- */
bool versions(Sched *s);

/* ---- version_slots.c: requires formulas. Proves that versions that are read have not been overwritten; ensures slots
 * of weights, nversion, last_reader ---- */
bool version_slots(Sched *s);

/* ---- order.c ---- */
/* Plays the compute ops on an idle network, where a tensor reaches another rank `send` after its
 * producer has ended. False: the orders wait for each other, head[r] is the op at which rank r
 * stands. Linear. */
typedef struct OrderRun {
  const PipeStage *stage; /* costs: of each stage, or stage[0] for all when uniform */
  bool uniform;
  uint64_t *end;          /* [nop], required: when what each op made may leave */
  uint32_t *head;         /* [nrank], required: next op of each rank */
  uint32_t *made;         /* NULL, or [nop] filled: transfers there were once the op was played, with its own */
  Xfer *xfer;             /* NULL, or filled with the transfers in an order that respects the data */
  uint32_t nxfer;
  Timing t;
} OrderRun;
bool order_run(Sched *s, OrderRun *run);
/* Of a U that replicas or tied stages hold up: a last gradient op of this update that has not run, given
 * each rank's next op; NONE. */
uint32_t order_late_replica(const Sched *s, uint32_t u, const uint32_t *head);
/* The rows whose gradients an update of `row` adds up, itself among them: *member; *at: 0 at first. */
bool order_member(const Sched *s, uint32_t row, uint32_t *at, uint32_t *member);
/* The k-th op, from 0, whose tensor op reads; that reads a tensor of op's. NONE: there are no more. */
uint32_t order_dep(const Sched *s, uint32_t op, uint32_t k);
uint32_t order_user(const Sched *s, uint32_t op, uint32_t k);
/* The ops of the same stage that wait for op, NONE for none: the next one of its cell; the op of its kind on the slice
 * that comes after it; and where slices are recomputed the next R of the microbatch, or its first backward. */
void order_own_users(const Sched *s, uint32_t op, uint32_t user[3]);
/* Stashes that are there after an F and were not before: its own, less those of its microbatch that nobody reads
 * once the last slice has gone forward. */
int64_t order_makes(const Sched *s, const Op *f);
/* Requires check_deps. Proves that the compute orders agree with the data under any channel model;
 * ensures xfer, one global order of all transfers (by predicted start), and ideal. */
bool order(Sched *s);

/* ---- side.c: side operations; the pass requires check_deps, ensures side_use and their ops ---- */
void side_shape(Sched *s, const Clause *c);
bool sides(Sched *s);
const char *side_text(Sched *s, const SideUse *u); /* "2UNSHARD3" */
uint64_t side_start(const Sched *s, uint32_t rank, const SideUse *u); /* the end of the op before it, on an idle network */
uint32_t side_latest(const Sched *s, const SideUse *u); /* `at` of one that runs as late as possible */
bool side_buffers(Sched *s); /* requires their places; false: reported */
PipeInstr side_instr(const Sched *s, const SideUse *u);
PipeInstr *side_at(const Sched *s, const SideUse *u); /* in Sched.stream */
void side_waits(Sched *s);  /* once all streams are there */
void side_slots(Sched *s, uint32_t rank); /* for slots: their pools come after the others */
static inline PipeTimes sched_times(const Sched *s) {
  return (PipeTimes){s->stage, s->side, s->unit_time, s->nunit_time};
}
/* What op takes; cost: as in OrderRun. Uniform costs know no side ops: they take no time. */
static inline uint64_t op_cost(const Sched *s, const PipeStage *cost, bool uniform, uint32_t op) {
  const Op *o = &s->op[op];
  if (o->kind == PIPE_SIDE)
    return uniform ? 0 : s->side[(o->site - s->side_site0) * s->nstage + o->stage].time;
  if (s->unit_time && !uniform && o->kind <= PIPE_R)
    return pipe_unit_times(sched_times(s), o->stage, o->mb)[o->kind];
  return cost[uniform ? 0 : o->stage].time[o->kind];
}
/* What an OFF or LOAD takes. */
static inline uint64_t copy_cost(const Sched *s, const Copy *c) {
  return s->unit_time ? pipe_unit_times(sched_times(s), c->stage, c->mb)[pipe_unit_column(c->kind)]
                      : s->stage[c->stage].time[c->kind];
}

/* ---- offload.c: requires order. Ensures copy: what the clauses add, its order, free_at. Proves that
 * each stash that leaves comes back in time for its backward ---- */
bool offload(Sched *s);
const char *copy_text(Sched *s, const Copy *c); /* "2OFF3" */
void offload_guests(Sched *s);  /* for slots: slots on other ranks */
uint32_t load_reader(const Sched *s, const Copy *c); /* the op that reads the stash first when it is back */
void offload_streams(Sched *s); /* for comm: the COPY streams, and what compute waits for of them */
/* ---- transfers.c: requires offload. Of a lowering that has transfers at their ops: ensures lists, proves that
 * they are complete and, as check_channels does, that they are carried out to their end; only_lists: but not
 * under the model of the engines ---- */
bool list_transfers(Sched *s);
/* ---- links.c: requires order. Ensures share: of every two ranks that meet the links that they share with others ---- */
bool links(Sched *s);
typedef struct ProfileLink { /* of a profile: transfers from any of these ranks to any of those */
  const uint32_t *from, *to;
  uint32_t nfrom, nto;
} ProfileLink;
/* ---- comm.c: requires transfers; ensures channel and stream: sends, receives, waits ---- */
bool comm(Sched *s);
bool comm_more_slots(Sched *s); /* what the ideal timing needs; false: nothing to add */
/* comm_lists.c: the same from s->lists, after number_slots; raises slot counts where the text needs more */
void lay_lists(Sched *s);
bool more_list_slots(Sched *s);
/* ---- channels.c: lowering CHANNELS ---- */
void find_channels(Sched *s); /* ensures channel_of, comm_of; for comm, the first time */
uint32_t channel_of_link(const Sched *s, uint32_t link, bool forward); /* NONE of another lowering */
uint32_t channel_of_sum(const Sched *s, uint32_t sum); /* as in comm_of */
uint32_t channel_of_sides(const Sched *s, uint32_t rank);
/* c, of COMPUTE or COPY on rank r, starts when instruction number `count` of COMM, from 1, has ended. Of any lowering. */
void keep_need(Sched *s, uint32_t r, uint32_t of, uint32_t count); /* its part with channels; of: of Need */
static inline void need_comm(Sched *s, uint32_t r, PipeInstr *c, uint32_t count) {
  const Streams *t = &s->stream[r];
  bool copy = pipe_op_info[c->op].stream == PIPE_COPY;
  uint32_t *wait = copy ? &c->wait_copy : &c->wait;
  *wait = count > *wait ? count : *wait;
  if (s->lowering == PIPE_CHANNELS && count > 0)
    keep_need(s, r, copy ? t->ncompute + (uint32_t)(c - t->copy) : (uint32_t)(c - t->compute), count);
}
void channel_needs(Sched *s); /* for comm, once all waits are there: ensures needs */
/* Puts COMM streams and xfer into the order in which the machine has started them; turn: PipeSimOut.comm_turn. */
void sort_channels(Sched *s, uint32_t *const *turn);
/* ---- check_deadlock.c: requires comm. Model: rendezvous, untagged FIFO, one comm stream per rank.
 * Proves that the machine of pipe_sim.h completes; adds channel slots where too few close a cycle;
 * ensures compute_start, comm_start, makespan, busy, steady. ---- */
bool check_deadlock(Sched *s);
void find_steady(Sched *s, uint64_t *const *end); /* steady.c; [nrank][n] of the compute streams */
/* ---- slots.c: requires comm. Ensures slot numbers, pools, peak counts (interval colouring: the
 * count of each pool equals its peak) ---- */
bool slots(Sched *s);
/* ---- lower.c: requires slots and predicted times; ensures prog ---- */
bool lower(Sched *s);
/* ---- check_streams.c: requires prog. The events of each rank cover its waits and every access of a slot,
 * and none is too many ---- */
bool check_streams(Sched *s);
/* ---- check_match.c: requires prog. FIFO matching per directed rank pair ---- */
bool check_match(Sched *s);
/* ---- check_channels.c: requires prog, or lists. Proves that the lists complete and match under
 * opt->model; ensures least_buffer. Text of the model for messages ---- */
bool check_channels(Sched *s);
void find_communicators(Sched *s); /* ensures comm_of */
bool prove_lists(Sched *s);  /* the same of s->lists, with find_places the first time */
/* The verdict alone; with opt->verify its certificate, a clock or a circle, is verified. */
bool lists_complete(Sched *s, const MachineList *list, ChannelModel model);
bool is_default_model(const ChannelModel *m); /* the one that check_deadlock and check_match prove */
const char *model_text(Sched *s);
const char *list_text(Sched *s, MachineAt at); /* op notation of an instruction of machine_list */
const char *buffer_text(Sched *s, uint64_t buffer); /* "2 messages", "1024 B" */
/* ---- check_memory.c: requires slots. Bytes per rank against the limit ---- */
bool check_memory(Sched *s);
const char *memory_sum(Sched *s, uint32_t r); /* "0F3: weights 10.0 GiB + ...": the moment, and what is there */
/* Sizes that differ as texts that do. */
void bytes_texts(Sched *s, uint64_t a, uint64_t b, const char *text[2]);
/* ---- check_user.c: the `check` clauses ---- */
bool check_user(Sched *s);
bool quantity(Sched *s, const Expr *call, int64_t *value); /* a builtin of `check` */
bool rank_argument(Sched *s, const Expr *call, int64_t *r); /* its first argument; false: reported, or no rank */

/* ---- all_m.c: with opt->for_all, requires check_user. Proves that the orders agree with the data for
 * every value of that parameter, or says why that is not decided; ensures all_m ---- */
bool check_all_m(Sched *s);
/* The parameter that counts microbatches, if others were given with -D and it was not: then a verdict for the
 * value it has by default says less than what was asked. NULL. */
const char *open_parameter(const Sched *s);

/* ---- bound.c: requires slots; ensures bound ---- */
void fill_bound(Sched *s);
/* The least makespan and span with room[r] stashes on rank r; requires check_deps only. */
Timing bound_of(Sched *s, Arena *a, const int64_t *room);

/* ---- emit_*.c: require prog; write to f ---- */
void emit_c(Sched *s, FILE *f);
bool csv_can(Sched *s); /* emit_csv.c: warns of what the format loses; false: reported */
void emit_csv(Sched *s, FILE *f);
void emit_comms_csv(Sched *s, FILE *f);
void emit_json(Sched *s, FILE *f);
void emit_report(Sched *s, FILE *f);
void emit_critical(Sched *s, FILE *f); /* critical.c */
void count_sends(Sched *s);            /* rank_costs.c: ensures sent, sent_bytes */
extern const char *const peak_class_name[PEAK_NCLASSES];
void peak_sums(const Sched *s, uint64_t v[PEAK_NREPORTED]); /* of all ranks; UINT64_MAX: more than that */
void emit_rank_costs(Sched *s, FILE *f);
void emit_show(Sched *s, FILE *f);     /* show.c */
bool show_wants_colour(const Options *o, FILE *f);
/* COLUMNS, or the columns of the terminal that f is; `none` if it is no terminal. */
uint32_t terminal_width(FILE *f, uint32_t none);
/* A line of text from column `at`, wrapped between words to `width`; further lines begin at `indent`. */
void put_wrapped(FILE *f, const char *text, uint32_t at, uint32_t indent, uint32_t width);
void emit_svg(Sched *s, FILE *f);
void emit_trace(Sched *s, FILE *f);
bool emit_html(Sched *s); /* opens its output; compiles the inputs after the first; false: reported */
/* Predicted start and end of each instruction, as pipe_predict gives them; the caller frees *start. */
const PipeInstr *over_limit(const Sched *s); /* the op at which a rank is over the memory limit, or NULL */
uint64_t **predict(Sched *s, uint64_t ***end); /* emit_timeline.c */
const char *time_text(Sched *s, uint64_t t);   /* report.c: "1.234 ms", or the number of units */
double bubble_percent(const Sched *s, uint64_t makespan);
double above_percent(uint64_t value, uint64_t bound); /* how far above; 0: the bound is 0 */
/* "makespan 27, bound 25 (+8.0 %); span 27, bound 22 (+23 %)". Ensures bound. */
const char *bound_text(Sched *s);

/* ---- explain.c ---- */
/* Letters to change, add, leave out or swap with the next to make b of a; a large number for names of
 * more than 40 letters. */
unsigned name_distance(const char *a, const char *b);
/* Of nth(0), nth(1) ... up to NULL the name that was meant, or NULL: at most a third of its letters are
 * wrong, or it contains what was written. */
const char *name_meant(const char *name, const char *(*nth)(int i));
/* A line for each page of lang/errors.md. */
void explain_list(Sched *s, FILE *f);
/* The page of lang/errors.md for a diagnostic; false: reported. */
bool explain_name(Sched *s, const char *name, FILE *f);
/* Where the text of that page begins, as it is in lang/errors.md; NULL: it has none. */
const char *explain_page(const char *name);

/* ---- library.c: requires opt->stdlib ---- */
const char *library_find(Sched *s, const char *name); /* the path that argument `name` means: spec.md 9.5 */
bool library_list(Sched *s, FILE *f);                 /* a line for each schedule; false: reported */
const char *first_sentence(Sched *s, const char *text); /* of the first paragraph, on one line of about 100 bytes */

/* ---- format_files.c: --fmt of opt->format: prints, or with opt->format_write replaces, or with
 * opt->check_only compares; false: reported ---- */
bool format_files(Sched *s);

/* ---- dump.c: text of what is there after a pass ---- */
void dump_ops(Sched *s, FILE *f);
void dump_streams(Sched *s, FILE *f);
void dump_program(Sched *s, FILE *f);
void dump_all_m(Sched *s, FILE *f); /* lists_dump.c */

/* ---- verify.c: internal consistency; aborts with file:line on our own mistakes. Shares no code
 * with the passes. With opt->verify, the default of debug builds, called after every pass that has
 * something to verify. ---- */
void verify_ops(const Sched *s);
void verify_circle(const Sched *s); /* if order has refuted it */
void verify_program(const Sched *s);
/* The clock of all_m.c, (at[node] + num * period) / by, of a program whose node k of rank r is op first[r] + k
 * counted on from rank to rank: every op of it is later than what it waits for. */
void verify_clock(const Sched *s, int64_t S, uint32_t nnode, const uint32_t *first, const uint32_t *per,
                  const __int128 *at, uint64_t num, uint64_t by);

/* ---- util, in dump.c ---- */
#define OP_TEXT PIPE_OP_TEXT
const char *op_text(Sched *s, uint32_t op);          /* "2F0", arena */
const char *bytes_text(Sched *s, uint64_t bytes);    /* "44.0 GiB", or with Options.decimal "47.2 GB" */
const char *escaped(Sched *s, EscapeFor to, const char *text); /* a name, path or parameter list; arena */
const char *printable(Sched *s, const char *text);             /* for a report */
/* A name or path, for the terminal or in an emitted text; arena. */
const char *escaped(Sched *s, EscapeFor to, const char *text);
static inline const char *shown(Sched *s, const char *text) { return escaped(s, ESCAPE_TERMINAL, text); }
static inline uint32_t op_rank(const Sched *s, uint32_t op) { return s->stage[s->op[op].stage].rank; }
static inline uint64_t round64(uint64_t bytes) { return (bytes + 63) & ~(uint64_t)63; }

#define BUG_IF(cond) \
  do { if (cond) { fprintf(stderr, "pipec: internal error: %s:%d: %s\n", __FILE__, __LINE__, #cond); abort(); } } while (0)

#endif
