/* SPDX-License-Identifier: MIT
 * The program that pipec emits and that every engine carries out: constant tables of plain structs.
 *
 * A program has nrank ranks; each has one list of instructions in issue order. Three streams run
 * it: the COMPUTE stream runs F B I W R U, the COMM stream SEND_x, RECV_x, REDUCE and TIE, the COPY
 * stream OFF and LOAD, and each of them ops of the schedule's own (SIDE, SIDE_COMM, SIDE_COPY),
 * strictly in list order. The streams of a rank meet only through `wait` and `wait_copy`: an
 * instruction starts when so many instructions of this step are completed (0: no wait)
 *
 *   of COMPUTE   wait: of COMM,      wait_copy: of COPY
 *   of COMM      wait: of COMPUTE,   wait_copy: of COPY
 *   of COPY      wait: of COMPUTE,   wait_copy: of COMM
 *
 * These numbers carry every dependence: data that arrived, data that was produced, a slot that
 * is free. In the list a wait refers only to instructions further up, so a host may issue it from
 * the top.
 *
 * The ops of an action (F B I W) follow each other in the list, each with the number of those still
 * to come in `group`. They start together, when the first has its wait, which is that of all
 * (theirs is 0); none needs another, and no slot is of two of them.
 *
 * Transfers are rendezvous: a SEND and its RECV start together and complete together. They pair in
 * FIFO order per directed rank pair; there are no tags; the compiler has proved that order, sizes
 * and identity agree and that the whole cannot stall.
 *
 * Transfers of a COMM stream that follow each other may be one group, each with the number of those
 * still to come in `group`. They start when the first has its waits (those of the others are 0),
 * each as soon as its other end has started, too, and are completed all at once, when the last is:
 * like the calls between ncclGroupStart and ncclGroupEnd. No slot is of two of them.
 *
 * With lowering CHANNELS the COMM stream of a rank is several streams, its channels (PipeChannel):
 * each COMM instruction names its `channel`. Those of one channel start strictly in list order,
 * each when the one before it is completed; those of different channels have nothing to do with
 * each other. SENDs and RECVs pair in FIFO order per channel. What an instruction of COMPUTE or
 * COPY needs of COMM is said by the events of its rank (PipeRank.sync), and its wait for COMM is 1
 * + the place, among all of COMM in the list, of the last that it needs. All of these lists are one
 * global order, too: carried out as one COMM stream per rank, as by the other lowerings, the
 * program completes as well, only later.
 *
 * Everything that moves or stays lives in a slot. The slots of a rank are numbered 0..nslot-1; a
 * pool is a run of slots of one size. Nothing else is allocated during a step.
 *
 * Sizes are bytes. Times are ns, or abstract units when the program gives none (`timed` = 0).
 * Layout is fixed by the ABI version; the static assertions at the end guard it. The header is C11
 * and C++17, so that engines and models may be either; emitted programs are C. What stands between
 * the visibility pragmas of the installed headers is what the shared libraries show. */
#ifndef PIPE_INSTR_H
#define PIPE_INSTR_H

#include <stddef.h>
#include <stdint.h>

#include "pipe_formula.h"

#ifdef __cplusplus
#define PIPE_STATIC_ASSERT static_assert
extern "C" {
#else
#define PIPE_STATIC_ASSERT _Static_assert
#endif
#pragma GCC visibility push(default)

#define PIPE_MAGIC 0x45504950u /* "PIPE", little endian */
#define PIPE_ABI 12u
#define PIPE_NONE UINT32_MAX   /* no slot, no peer, no microbatch */
#define PIPE_MANY (UINT32_MAX - 1) /* PipeStage.prev, next: see PipeGraph */
#define PIPE_GROUP_MOST 64u    /* transfers in one group */

typedef enum PipeOp {
#define X(op, text, stream, act, gout, in, out) PIPE_##op,
#include "pipe_ops.def"
#undef X
  PIPE_NOPS
} PipeOp;

/* The streams of a rank. */
typedef enum PipeOn { PIPE_COMPUTE, PIPE_COMM, PIPE_COPY, PIPE_NSTREAMS } PipeOn;

/* Who puts the transfers of a rank into their order (lang/spec.md 8.4): one global order of all;
 * that order in each channel alone; each at its op, alone or with its neighbours; or the text. */
typedef enum PipeLowering {
  PIPE_GLOBAL,
  PIPE_CHANNELS,
  PIPE_GROUPED,
  PIPE_NLOWERINGS
} PipeLowering;

typedef enum PipePhase { PIPE_WARMUP, PIPE_STEADY, PIPE_FLUSH, PIPE_NPHASES } PipePhase;

/* What the slots of a pool hold: X(enumerator PIPE_<cls>, name). OUT and IN are the two ends of a
 * transfer, LOCAL a boundary tensor between two stages of one rank. */
/* clang-format off */
#define PIPE_CLASSES(X) \
  X(ACT, act)       /* stash of a forward, until its last backward; forward-only, and where R \
                       makes it again: until the last slice of the microbatch has gone forward, \
                       without slices while it runs */ \
  X(GOUT, gout)     /* gradient outputs held from I to W */ \
  X(OUT, out)       /* boundary tensor from its producer until the SEND has completed */ \
  X(IN, in)         /* receive slot, from the RECV until the consumer has completed */ \
  X(LOCAL, local)   /* boundary tensor from its producer to its consumer on the same rank */ \
  X(KEEP, keep)     /* inputs of a forward that is recomputed, until R: one after the other in the \
                       order of its edges, each on a multiple of 64 bytes; no bytes without \
                       inputs */ \
  X(HOST, host)     /* stash in host memory, from OFF to LOAD */ \
  X(GUEST, guest)   /* stash of another rank, from its OFF to its LOAD: only that rank's COPY \
                       stream uses it */ \
  X(BUFFER, buffer) /* what a SIDE takes, until a SIDE gives it back, or the end of the step */ \
  X(WEIGHT, weight) /* a version of the weights of its stage, see PipeWeights; at the start of a \
                       step, and at its end, the newest version is in the first slot of the \
                       pool */ \
  X(GUESS, guess)   /* weights as a formula estimates them, until the last op that reads them has \
                       run; or, while a U runs, a copy of those that it overwrites */
/* clang-format on */
typedef enum PipeClass {
#define X(cls, name) PIPE_##cls,
  PIPE_CLASSES(X)
#undef X
  PIPE_NCLASSES
} PipeClass;

typedef struct PipeInstr {
  uint8_t op;     /* PipeOp */
  uint8_t phase;  /* PipePhase */
  /* further instructions after this one that are one action, or group, with it; 0 */
  uint16_t group;
  uint32_t stage; /* row of PipeProgram.stage: the stage on THIS rank that the op belongs to */
  /* microbatch, or unit (PipeProgram.slices). U: one whose gradient it applies, or PIPE_NONE;
   * REDUCE: PIPE_NONE; SIDE: that of the op that it is attached to, or PIPE_NONE */
  uint32_t mb;
  uint32_t peer;  /* SEND, RECV: the other rank; OFF, LOAD: the rank with slot `away`, if not this
                     one, which takes no part; else PIPE_NONE */
  uint32_t act;   /* F B I W R OFF LOAD: slot of class ACT; else PIPE_NONE */
  union {         /* else PIPE_NONE, by whatever name */
    uint32_t gout;    /* I W: slot of class GOUT */
    /* COPY stream of a rank in a group (PipeRank.group): it starts when all turns before it, from 0
     * on, of whatever rank, have ended */
    uint32_t turn;
    uint32_t channel; /* COMM stream with lowering CHANNELS: row of PipeProgram.channel */
  };
  union {         /* else PIPE_NONE, by whatever name */
    uint32_t keep; /* R, and F of what it recomputes: slot of class KEEP */
    uint32_t away; /* OFF LOAD: slot of class HOST, or of class GUEST on `peer` */
    uint32_t edge; /* SEND RECV: row of PipeProgram.edge, if there is that table */
    uint32_t side; /* SIDE in any stream: row of PipeProgram.side */
  };
  union {         /* what is read; PIPE_NONE: nothing, as at the ends of the chain */
    uint32_t in;      /* slot: x of F, dy of B and I, payload of SEND */
    uint32_t in_list; /* F B I that read several: where their slots begin in PipeRank.list */
    uint32_t given;   /* SIDE: slot of class BUFFER that it gives back */
  };
  union {         /* what is written; PIPE_NONE: nothing */
    uint32_t out;      /* slot: y of F and R, dx of B and I, payload of RECV */
    uint32_t out_list; /* F B I R that write several: where their slots begin in PipeRank.list */
    uint32_t taken;    /* SIDE: slot of class BUFFER that it takes */
  };
  uint32_t wait;  /* instructions of another stream of this rank that must have completed */
  uint32_t wait_copy; /* the same of the third stream */
  uint32_t site;  /* row of PipeProgram.site: where in the .pipe text it comes from */
} PipeInstr;

/* Versions of the weights. Version 0 of a stage is there when a step starts, and its k-th U makes
 * version k from version k-1, the newest until then. A program whose ops do not all use one copy
 * has, for every instruction of every rank, a row of this that says which version it uses. `behind`
 * and `ahead` count updates of the stage. */
typedef struct PipeWeights {
  /* F B I R SIDE: that it reads, or that what it reads is an estimate from; U: that it makes; else
   * PIPE_NONE, and so are the slots */
  uint32_t version;
  /* of class WEIGHT, read: by F B I R SIDE their version, by U the newest. PIPE_NONE: it reads the
   * estimate in `guess`, which an op of its stage above it has made */
  uint32_t slot;
  uint32_t out;     /* of class WEIGHT, written by U; may be `slot`. Else PIPE_NONE */
  /* of class GUESS, if there is one; else PIPE_NONE. With a formula it is written first */
  uint32_t guess;
  uint32_t formula; /* F B I R: row of PipeProgram.formula, what they see in place of their version;
                       U: row of PipeProgram.rule; PIPE_NONE: none */
  /* B I R: the version that it reads less that which the F of its microbatch has read; U: most
   * `ahead` of an F whose gradient it applies; F: 0 */
  int32_t behind;
  /* F B I R: updates from the version that it reads to the one that the gradient of its microbatch
   * is applied to */
  uint32_t ahead;
  uint32_t zero;
} PipeWeights;

typedef struct PipePool {
  uint32_t cls;   /* PipeClass */
  /* WEIGHT: the stage; ACT, GOUT, KEEP, HOST, GUEST, GUESS: a stage whose stashes it holds; OUT,
   * IN, LOCAL: the stage whose output it holds, or the gradient of that output. All users have its
   * size */
  uint32_t stage;
  uint32_t first; /* its slots are first .. first + count - 1 */
  /* > 0; for ACT, GOUT, KEEP, LOCAL, WEIGHT and GUESS exactly the peak of live slots */
  uint32_t count;
  uint64_t bytes; /* of each slot; 0 when the program has no sizes */
  uint32_t skip;  /* OUT, IN, LOCAL: 1 if its tensors pass edges that are not of the chain */
  uint32_t zero;
} PipePool;

/* A row of the stage table: one stage of one pipe. Pipes that are replicas of one another run the
 * same model: their rows have the same `model` stage, on different ranks, each with its own copy of
 * the weights, and share out the microbatches of the step.
 * A stage's sizes in bytes (0 when PipeProgram.sized is 0) and its time per op. */
typedef struct PipeStage {
  uint32_t rank;  /* that holds it */
  uint32_t chunk; /* its index among the stages of that rank, ascending */
  uint32_t prev;  /* row its input comes from, PIPE_NONE: it has none */
  uint32_t next;  /* row its output goes to, PIPE_NONE: it has none. Where there are several, or it
                     depends on the microbatch, PIPE_MANY: the tables of PipeGraph say it */
  uint32_t model;   /* stage of the model that it runs, 0 .. nmodel - 1 */
  uint32_t replica; /* next row with the same model stage, round in a circle; itself if alone */
  /* its microbatches, or units, are mb0 .. mb0 + nmb - 1, or with PipeGraph.row those of them that
   * it says */
  uint32_t mb0, nmb;
  uint32_t nin, nout; /* tensors that its forward reads and writes: its edges */
  /* shares weights with other stages: the first row on its rank that shares them, whose TIE is for
   * all of them; PIPE_NONE: it shares none */
  uint32_t tied;
  uint32_t tie;       /* of such a first row: that of the next rank, round in a circle */
  uint64_t act_bytes, gout_bytes; /* of one microbatch, or unit; and so on */
  uint64_t boundary_bytes;        /* its output, = the input of `next`, = their gradients; one mb */
  uint64_t edge_bytes;            /* the same of each edge to a stage that is not the next */
  /* so much of its gradient, from the start, is of shared weights */
  uint64_t tied_bytes;
  uint64_t weight_bytes, grad_bytes, opt_bytes;
  uint64_t work_bytes;            /* workspace of one op, shared by the stages of a rank */
  /* per op; SEND_x: of the transfer; RECV_x: 0; REDUCE, TIE: of all. With tables SEND_x is in
   * PipeEdge.send */
  uint64_t time[PIPE_NOPS];
  /* of an action of one F, which is of this stage, and one B; 0: the sum of both, as it is for all
   * other actions */
  uint64_t time_fb;
  /* bit j: it keeps state j of PipeProgram.state, of weight_bytes, which is 0 when a run begins */
  uint32_t states;
  uint32_t zero;
} PipeStage;

/* An edge between stages of the model: forward, from -> to passes one tensor for each microbatch;
 * backward, its gradient the other way. `out` of those that leave `from` it is this, `in` of those
 * that reach `to`: the place in the arrays of PrCall. The edge of the chain, to the next stage,
 * comes first, then the others by the number of the other stage. */
typedef struct PipeEdge {
  uint32_t from, to; /* from < to */
  uint32_t out, in;
  uint32_t skip;     /* 0: its tensors are boundary_bytes of `from`; 1: edge_bytes */
  uint32_t zero;
  uint64_t send[2];  /* what the transfer of its tensor takes, and of its gradient */
} PipeEdge;

/* Transfers from rank `from` to rank `to` pass this link, which others pass, too, and one at a time
 * uses. It is about predicted times only. */
typedef struct PipeShare {
  uint32_t from, to;
  uint32_t link; /* 0 .. nlink - 1 */
} PipeShare;

/* A channel of a program with lowering CHANNELS. In the order in which they are first used in a
 * step; an engine that opens them one after the other in this order, on every rank, waits in no
 * circle. */
typedef struct PipeChannel {
  /* SEND_F, SEND_B: of the SENDs of this op, and their RECVs, between two ranks in one pipe;
   * REDUCE: of the REDUCEs and TIEs over one set of ranks; SIDE_COMM: of one rank */
  uint32_t op;
  uint32_t from, to; /* ranks; of a REDUCE the lowest, of a SIDE_COMM the one, and PIPE_NONE */
  uint32_t pipe;     /* of SENDs: its number; else PIPE_NONE */
} PipeChannel;

/* An op that the schedule declares, on one row of the stage table. */
typedef struct PipeSide {
  const char *name;   /* "UNSHARD" */
  uint32_t op;        /* SIDE, SIDE_COMM or SIDE_COPY: its stream */
  uint32_t decl;      /* number of the declaration, from 0: the same for all stages */
  uint32_t stage;     /* row of PipeProgram.stage */
  uint32_t zero;
  uint64_t time;
  /* of the BUFFER that it takes; 0: none. Given even if the program has no sizes */
  uint64_t bytes;
} PipeSide;

/* Who meets whom. Without tables the rows are chains, by prev and next. With them stage m of the
 * model is run, for microbatch mb, by row[m * nmb + mb], and a transfer passes edge[instr.edge]. */
typedef struct PipeGraph {
  const PipeStage *stage;
  const PipeEdge *edge;  /* NULL: chains */
  const uint32_t *row;   /* NULL: chains */
  uint32_t nmb, slices;  /* of PipeProgram */
  const PipeSide *side;  /* of PipeProgram: names */
} PipeGraph;

/* The waits of a rank as events between its streams, for engines whose streams know no counts: once
 * row `after` of PipeRank.instr has been issued its stream records event `event`; before row
 * `before` is issued its stream waits for that event. PIPE_NONE as `after` is the begin of the
 * step, recorded on COMPUTE before all else; ninstr as `before` is its end, where COMPUTE waits for
 * what is not yet over. So a step begins and ends on COMPUTE. Every wait of every instruction is
 * covered, by these and the order of the streams, and none of these can be left out. Events are
 * used again: the last wait for one record stands above the next one in issue order, at the same
 * row at the latest, before which it is. */
typedef struct PipeSync {
  uint32_t after, before;
  uint32_t event; /* 0 .. nevent - 1; the same for all that wait for one record */
} PipeSync;

typedef struct PipeRank {
  const PipeInstr *instr; /* [ninstr], issue order */
  const PipePool *pool;   /* [npool], ascending by `first` */
  uint32_t ninstr, npool, nslot;
  uint32_t inflight;      /* peak of live ACT slots */
  /* proved bound, and what an engine takes: weights, gradients, optimizer state, slots and one
   * workspace (the largest of its stages), each buffer rounded up to a multiple of 64 on its own,
   * then summed. 0 if not sized */
  uint64_t bytes;
  /* the same of its HOST slots, which are in host memory and not in `bytes` */
  uint64_t host;
  const uint32_t *list;   /* [nlist] slots of the ops that read or write several, op after op */
  uint32_t nlist, nevent;
  const PipeSync *sync;   /* [nsync] by `before`, then `after` (PIPE_NONE first) */
  uint32_t nsync;
  /* 1 + number of the group whose COPY streams take turns, 0: it is in none. Each turn of a group
   * is that of one instruction; on a rank they ascend */
  uint32_t group;
  /* [ninstr]; NULL, of all ranks: a stage has one copy of its weights, in no slot, which every op
   * uses as it is then */
  const PipeWeights *weights;
  /* [nrows] the list as it is emitted (pipe_rows.h): instr, list, sync and weights are NULL, and
   * pipe_expand makes them of it. NULL: they are there */
  const uint32_t *rows;
  uint32_t nrows, weighted; /* weighted, with rows: there are weights */
  uint64_t hash; /* with rows: of this rank as it is once they are written out (pipe_rank_hash) */
} PipeRank;

typedef struct PipeSite {
  uint32_t file;          /* row of PipeProgram.file */
  uint32_t line, col;     /* from 1 */
} PipeSite;

typedef struct PipeProgram {
  uint32_t magic, abi;
  uint64_t hash;          /* of everything else here but files, lines and columns */
  const char *name;       /* of the schedule */
  const char *params;     /* "P=4 M=8" */
  uint32_t nrank, nstage, nmb, nsite, nfile;
  uint32_t nmodel;        /* stages of the model: nstage, but for replicas */
  uint32_t sized;         /* 1: all bytes are given and the engine holds the model to them */
  uint32_t timed;         /* 1: times are ns; 0: abstract units */
  /* > 1: each microbatch goes through in so many slices, and everything that counts microbatches
   * here, nmb and mb0 of the stages and mb of the instructions, counts units: unit u is slice u %
   * slices of microbatch u / slices. A slice goes forward after those before it, and reads their
   * stashes; backward after those behind it. R of a slice comes after those before it, and all of a
   * microbatch stand between its last F and its first backward. 0 and 1: there are none */
  uint32_t slices;
  uint32_t forward;       /* 1: there are only F and their transfers; no gradients, no updates */
  uint32_t slots;         /* most receive slots that any channel needed */
  uint64_t makespan;      /* predicted, one step, from the first start to the last end */
  uint64_t ideal;         /* the same with transfers that never wait for a stream or a slot */
  uint64_t busy;          /* sum over ranks of the time of their compute ops */
  const PipeRank *rank;   /* [nrank] */
  const PipeStage *stage; /* [nstage] */
  const PipeSite *site;   /* [nsite] */
  const char *const *file; /* [nfile], without directories */
  const PipeEdge *edge;   /* [nedge] by `from`, then `out`; NULL: chains (PipeGraph) */
  const uint32_t *row;    /* [nmodel * nmb]; NULL: chains */
  uint32_t nedge;
  uint32_t nside;
  const PipeSide *side;   /* [nside] by decl, then stage; NULL: none */
  uint32_t ngroup;
  uint32_t lowering;      /* PipeLowering; only the last two have groups of transfers */
  uint32_t nformula, nrule, nthen, nstate;
  const PipeFormula *formula; /* [nformula] */
  const PipeRule *rule;       /* [nrule] */
  const PipeThen *then;       /* [nthen] */
  const char *const *state;   /* [nstate] names; at most 32 */
  /* [nstage][nunit_time][PIPE_UNIT_TIMES], if the units of a stage differ in time: those of
   * PipeStage are their means. NULL: they do not (pipe_unit_times) */
  const uint64_t *unit_time;
  /* [nshare] by from, to, link, each once; NULL: every two ranks have a link of their own */
  const PipeShare *share;
  uint32_t nshare, nlink;
  const PipeChannel *channel; /* [nchannel]; NULL but with lowering CHANNELS */
  uint32_t nchannel;
  /* slices: units differ by slice alone; or the most units of a stage. 0 without unit_time */
  uint32_t nunit_time;
  /* how many steps of its parameter a program for every M is above its first one (pipe_loop.h);
   * else 0 */
  uint32_t n;
} PipeProgram;

/* Columns of PipeProgram.unit_time: F B I W R by PipeOp, then these; FB is that of the F's unit. */
enum { PIPE_UNIT_OFF = PIPE_R + 1, PIPE_UNIT_LOAD, PIPE_UNIT_FB, PIPE_UNIT_TIMES };

PIPE_STATIC_ASSERT(sizeof(PipeInstr) == 48, "ABI");
PIPE_STATIC_ASSERT(offsetof(PipeInstr, gout) == 20 && offsetof(PipeInstr, channel) == 20, "ABI");
PIPE_STATIC_ASSERT(offsetof(PipeInstr, keep) == 24 && offsetof(PipeInstr, side) == 24, "ABI");
PIPE_STATIC_ASSERT(offsetof(PipeInstr, in) == 28 && offsetof(PipeInstr, out) == 32, "ABI");
PIPE_STATIC_ASSERT(offsetof(PipeInstr, taken) == 32 && offsetof(PipeInstr, wait) == 36, "ABI");
PIPE_STATIC_ASSERT(sizeof(PipePool) == 32, "ABI");
PIPE_STATIC_ASSERT(sizeof(PipeStage) == 48 + 9 * 8 + 8 * PIPE_NOPS + 16, "ABI");
PIPE_STATIC_ASSERT(sizeof(PipeSync) == 12, "ABI");
PIPE_STATIC_ASSERT(sizeof(PipeEdge) == 40, "ABI");
PIPE_STATIC_ASSERT(sizeof(PipeShare) == 12, "ABI");
PIPE_STATIC_ASSERT(sizeof(PipeChannel) == 16, "ABI");
PIPE_STATIC_ASSERT(sizeof(PipeWeights) == 32, "ABI");
PIPE_STATIC_ASSERT(PIPE_NOPS == 17, "a new instruction is a new ABI");

static inline uint32_t pipe_slices(const PipeProgram *p) { return p->slices > 1 ? p->slices : 1; }

/* An instruction that touches no slot, has no peer and waits for nothing. */
static inline PipeInstr pipe_instr(PipeOp op, uint32_t stage, uint32_t mb) {
  PipeInstr c = {(uint8_t)op, PIPE_STEADY, 0,           stage,       mb, PIPE_NONE, PIPE_NONE,
                 {PIPE_NONE}, {PIPE_NONE}, {PIPE_NONE}, {PIPE_NONE}, 0,  0,         0};
  return c;
}

/* Those whose row of PipeWeights is filled in; a SIDE reads the newest. */
static inline int pipe_uses_weights(uint32_t op) {
  return (op <= PIPE_U && op != PIPE_W) || op == PIPE_SIDE;
}

/* The row of an instruction that uses no weights. */
static inline PipeWeights pipe_no_weights(void) {
  PipeWeights w = {PIPE_NONE, PIPE_NONE, PIPE_NONE, PIPE_NONE, PIPE_NONE, 0, 0, 0};
  return w;
}

/* An emitted file states the ABI it was made for; another header refuses it at compile time. Its
 * rows are lists of numbers by column, so the unions of PipeInstr have no braces there, and
 * compilers need not warn. */
#define PIPE_REQUIRE_ABI(v) \
  _Pragma("GCC diagnostic ignored \"-Wmissing-braces\"") \
  PIPE_STATIC_ASSERT((v) == PIPE_ABI, "pipec and pipe_instr.h differ: recompile the .pipe file")

/* Text of an op ("SEND_F"), its stream, its columns. */
typedef enum PipeTensor {
  PIPE_T_NONE,
  PIPE_T_X,
  PIPE_T_Y,
  PIPE_T_DY,
  PIPE_T_DX,
  PIPE_T_SCRATCH
} PipeTensor;
typedef struct PipeOpInfo {
  const char *text;
  uint8_t comm;   /* 1: COMM stream */
  uint8_t stream; /* PipeOn */
  int8_t act, gout;
  uint8_t in, out; /* PipeTensor */
} PipeOpInfo;
extern const PipeOpInfo pipe_op_info[PIPE_NOPS];
extern const char *const pipe_phase_name[PIPE_NPHASES]; /* "warmup" ... */
extern const char *const pipe_class_name[PIPE_NCLASSES]; /* "act" ... */

/* Instructions of stream `on`, which is not its own, that c waits for. */
static inline uint32_t pipe_wait_for(const PipeInstr *c, PipeOn on) {
  return on == PIPE_COPY || (on == PIPE_COMM && pipe_op_info[c->op].stream == PIPE_COPY)
             ? c->wait_copy
             : c->wait;
}

/* Writes "2SEND_F13" (or "0U") with a NUL into buf[PIPE_OP_TEXT]; returns its length. */
#define PIPE_OP_TEXT 48
int pipe_op_text(char *buf, PipeOp op, uint32_t stage, uint32_t mb);
/* The same of unit `mb` of a program with `slices`: "2F3.1" is slice 1 of microbatch 3. */
int pipe_unit_text(char *buf, PipeOp op, uint32_t stage, uint32_t mb, uint32_t slices);
/* The same of a SIDE with that name. */
int pipe_side_text(char *buf, const char *name, uint32_t stage, uint32_t mb, uint32_t slices);

/* The row at the other end of SEND or RECV c; PIPE_NONE if there is none. c->stage, and with tables
 * c->edge and c->mb, must be in range. */
static inline uint32_t pipe_other_end(PipeGraph g, const PipeInstr *c) {
  int down = c->op == PIPE_SEND_F || c->op == PIPE_RECV_B;
  if (!g.edge)
    return down ? g.stage[c->stage].next : g.stage[c->stage].prev;
  return g.row[(size_t)(down ? g.edge[c->edge].to : g.edge[c->edge].from) * g.nmb + c->mb];
}

/* The other side of each transfer: pair[r][i] is its row in the list of the peer of rank r's
 * instruction i, PIPE_NONE for compute; of a REDUCE or TIE that of the next row that takes part.
 * One block, freed by free(pair). NULL on mismatch or no memory. Linear. */
uint32_t **pipe_pair(const PipeProgram *p);

/* The same text of an instruction; of a transfer that another one of its op could be mistaken for
 * it says the other end: "0SEND_F3>4" goes to stage 4, "4RECV_F3<0" comes from stage 0. */
int pipe_instr_text(char *buf, PipeGraph g, const PipeInstr *c);
static inline PipeGraph pipe_graph(const PipeProgram *p) {
  PipeGraph g = {p->stage, p->edge, p->row, p->nmb, p->slices, p->side};
  return g;
}

static inline int pipe_is_send(uint32_t op) { return op == PIPE_SEND_F || op == PIPE_SEND_B; }

/* The number of SEND or RECV c among all of a step, the same at both ends: below twice the rows, or
 * with tables the edges, times nmb. */
static inline uint64_t pipe_transfer_number(const PipeProgram *p, const PipeInstr *c) {
  int back = c->op == PIPE_SEND_B || c->op == PIPE_RECV_B;
  uint64_t from = p->edge               ? c->edge
                  : pipe_is_send(c->op) ? c->stage
                                        : pipe_other_end(pipe_graph(p), c);
  return (2 * from + (uint64_t)back) * p->nmb + c->mb;
}

/* 1 for SIDE in any stream. */
static inline int pipe_is_side(uint32_t op) { return op >= PIPE_SIDE && op <= PIPE_SIDE_COPY; }

/* Slots that field `in`, or `out`, of an instruction of this row stands for; 2 and more are in
 * PipeRank.list. */
static inline uint32_t pipe_fields(const PipeStage *st, uint32_t op, int input) {
  int forward = op == PIPE_F || op == PIPE_R;
  if (pipe_op_info[op].stream != PIPE_COMPUTE || op == PIPE_SIDE)
    return 1;
  return !input == !forward ? st->nin : st->nout;
}

typedef struct PipeTimes { /* as in PipeProgram */
  const PipeStage *stage;
  const PipeSide *side;
  const uint64_t *unit_time;
  uint32_t nunit_time;
} PipeTimes;

/* The columns of a unit of a stage. Requires unit_time. */
static inline const uint64_t *pipe_unit_times(PipeTimes t, uint32_t stage, uint32_t mb) {
  size_t row = (size_t)stage * t.nunit_time + (mb - t.stage[stage].mb0) % t.nunit_time;
  return &t.unit_time[row * PIPE_UNIT_TIMES];
}

/* The column of an op; PIPE_NONE: it takes the same for all units. */
static inline uint32_t pipe_unit_column(uint32_t op) {
  if (op == PIPE_OFF || op == PIPE_LOAD)
    return op - PIPE_OFF + PIPE_UNIT_OFF;
  return op <= PIPE_R ? op : PIPE_NONE;
}

/* What an instruction takes; of a SEND the transfer, of a SIDE what its row says. */
static inline uint64_t pipe_time(PipeTimes t, const PipeInstr *c) {
  if (pipe_is_side(c->op))
    return t.side[c->side].time;
  if (t.unit_time && pipe_unit_column(c->op) != PIPE_NONE)
    return pipe_unit_times(t, c->stage, c->mb)[pipe_unit_column(c->op)];
  return t.stage[c->stage].time[c->op];
}

/* What an action of forward f and one B takes; 0: the sum of both. */
static inline uint64_t pipe_fused_time(PipeTimes t, uint32_t stage, uint32_t mb) {
  return t.unit_time ? pipe_unit_times(t, stage, mb)[PIPE_UNIT_FB] : t.stage[stage].time_fb;
}

/* The time of a transfer: of its SEND. edge: of PipeGraph. */
static inline uint64_t pipe_send_time(const PipeStage *stage, const PipeEdge *edge,
                                      const PipeInstr *send) {
  return edge ? edge[send->edge].send[send->op == PIPE_SEND_B] : stage[send->stage].time[send->op];
}

/* The first row of share[n] from rank `from` to rank `to`; NULL: there is none. */
static inline const PipeShare *pipe_shares(const PipeShare *share, uint32_t n, uint32_t from,
                                           uint32_t to) {
  uint32_t lo = 0, hi = n;
  while (lo < hi) {
    uint32_t mid = lo + (hi - lo) / 2;
    if (share[mid].from < from || (share[mid].from == from && share[mid].to < to))
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo < n && share[lo].from == from && share[lo].to == to ? &share[lo] : NULL;
}

/* 1 for REDUCE and TIE: the rows that take part are a circle. */
static inline int pipe_is_sum(uint32_t op) { return op == PIPE_REDUCE || op == PIPE_TIE; }
static inline uint32_t pipe_sum_next(const PipeStage *stage, uint32_t op, uint32_t row) {
  return op == PIPE_REDUCE ? stage[row].replica : stage[row].tie;
}

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
