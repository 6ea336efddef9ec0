/* SPDX-License-Identifier: MIT
 * The program that pipec emits and every engine executes: constant tables of plain structs.
 *
 * A program has nrank ranks; each has one list of instructions in issue order. Three streams
 * execute the list, each strictly in list order: COMPUTE runs F B I W R U, COMM runs SEND_x,
 * RECV_x, REDUCE and TIE, COPY runs OFF and LOAD. Each stream also runs side ops (SIDE, SIDE_COMM,
 * SIDE_COPY). A stream is a queue of the rank; with channels, so is each channel.
 *
 * Waits. The queues of a rank meet only through waits (PipeWait): an instruction starts once its
 * queue has reached it and each of its waits is met. A wait is met once that many instructions of
 * another queue are over in this step. Hosts compare counts; devices record an event after the last
 * of these instructions. The waits carry every dependence: data that arrived, data that was
 * produced, a slot that is free. The list has no wait that follows from other waits and the order
 * of the queues. A wait refers only to instructions further up in the list, so a host may issue the
 * list from the top.
 *
 * Actions. The ops of an action (F B I W) are consecutive in the list; `group` of each is the
 * number of ops of the action that follow. They start together once the waits of the first op are
 * met; the others have none. No op of an action needs another, and no two of them use the same
 * slot.
 *
 * Transfers are rendezvous: a SEND and its RECV start together and complete together. They pair in
 * FIFO order per directed pair of ranks; there are no tags. The compiler has proved that order,
 * sizes and identities agree, and that the program cannot deadlock.
 *
 * Groups of transfers. Consecutive transfers of a COMM stream may form a group; `group` of each is
 * the number of transfers of the group that follow. They start once the waits of the first are met
 * (the others have none), each as soon as its other end has started too. All complete at once, when
 * the last one does, like the calls between ncclGroupStart and ncclGroupEnd. No two transfers of a
 * group use the same slot.
 *
 * Channels. With lowering CHANNELS the COMM stream of a rank consists of several streams, its
 * channels (PipeChannel); each COMM instruction names its `channel`. Instructions of one channel
 * start strictly in list order, each once the previous one has completed; different channels are
 * independent. SENDs and RECVs pair in FIFO order per channel. The lists also form one global
 * order: executed with one COMM stream per rank, as with lowering GLOBAL, the program completes
 * too, only later.
 *
 * Memory. Boundary tensors, stashes, buffers and weight versions live in slots. The slots of a rank
 * are numbered 0..nslot-1; a pool is a run of slots of one size. A step allocates nothing.
 *
 * Sizes are bytes. Times are ns, or abstract units if the text gives no times in ns (`timed` = 0).
 * The ABI version fixes the layout; static assertions at the end guard it. The header is C11 and
 * C++17, for engines and models; emitted programs are C. The shared libraries export exactly the
 * declarations between the visibility pragmas of the installed headers. */
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

/* The release of the headers. pr_version and pipe_compile_version give the PIPE_VERSION of the
 * library. If MAJOR or MINOR differ, callers must be compiled again (docs/versions.md). */
#define PIPE_VERSION_MAJOR 0
#define PIPE_VERSION_MINOR 2
#define PIPE_VERSION_PATCH 0
#define PIPE_VERSION (10000 * PIPE_VERSION_MAJOR + 100 * PIPE_VERSION_MINOR + PIPE_VERSION_PATCH)

#define PIPE_MAGIC 0x45504950u /* "PIPE", little endian */
#define PIPE_ABI 14u
#define PIPE_NONE UINT32_MAX   /* no slot, no peer, no microbatch */
#define PIPE_MANY (UINT32_MAX - 1) /* PipeStage.prev, next: see PipeGraph */
#define PIPE_GROUP_MOST 64u    /* most transfers of one group */

typedef enum PipeOp {
#define X(op, text, stream, act, gout, in, out) PIPE_##op,
#include "pipe_ops.def"
#undef X
  PIPE_NOPS
} PipeOp;

/* The streams of a rank. */
typedef enum PipeOn { PIPE_COMPUTE, PIPE_COMM, PIPE_COPY, PIPE_NSTREAMS } PipeOn;

/* The COMM streams of a rank (lang/spec.md 8.4). GLOBAL: one stream, in one order of all transfers,
 * or in the order of a file. CHANNELS: a stream for each channel. */
typedef enum PipeLowering { PIPE_GLOBAL, PIPE_CHANNELS, PIPE_NLOWERINGS } PipeLowering;

typedef enum PipePhase { PIPE_WARMUP, PIPE_STEADY, PIPE_FLUSH, PIPE_NPHASES } PipePhase;

/* What the slots of a pool hold: X(enumerator PIPE_<cls>, name). OUT and IN are the two ends of a
 * transfer; LOCAL is a boundary tensor between two stages of one rank. */
/* clang-format off */
#define PIPE_CLASSES(X) \
  X(ACT, act)       /* stash of a forward, until its last backward. Forward-only, and if R makes \
                       the stash again: only while F runs; with slices until the last slice of the \
                       microbatch has gone forward */ \
  X(GOUT, gout)     /* output gradients, from I to W */ \
  X(OUT, out)       /* boundary tensor from its producer until the SEND has completed */ \
  X(IN, in)         /* receive slot, from the RECV until the consumer has completed */ \
  X(LOCAL, local)   /* boundary tensor from its producer to its consumer on the same rank */ \
  X(KEEP, keep)     /* inputs of a recomputed forward, until R: in the order of its edges, each at \
                       a multiple of 64 bytes; 0 bytes without inputs */ \
  X(HOST, host)     /* stash in host memory, from OFF to LOAD */ \
  X(GUEST, guest)   /* stash of another rank, from its OFF to its LOAD; only the COPY stream of \
                       that rank uses it */ \
  X(BUFFER, buffer) /* what a SIDE takes, until a SIDE gives it back or the step ends */ \
  X(WEIGHT, weight) /* a version of the weights of a stage (PipeWeights). At the start and the end \
                       of a step the first slot of the pool has the newest version */ \
  X(GUESS, guess)   /* weights that a formula estimates, until the last op that reads them has \
                       run; or, while a U runs, a copy of the weights that U overwrites */
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
  /* instructions of the same action or group that follow this one; 0: none */
  uint16_t group;
  uint32_t stage; /* row of PipeProgram.stage: a stage of this rank, to which the op belongs */
  /* Microbatch, or unit (PipeProgram.slices). U: a microbatch whose gradient it applies, or
   * PIPE_NONE; REDUCE: PIPE_NONE; SIDE: that of the op it is attached to, or PIPE_NONE. */
  uint32_t mb;
  /* SEND, RECV: the other rank. OFF, LOAD: the rank with slot `away`, if it is another one; that
   * rank takes no part. Else PIPE_NONE. */
  uint32_t peer;
  uint32_t act;   /* F B I W R OFF LOAD: slot of class ACT; else PIPE_NONE */
  union {         /* PIPE_NONE if no member below applies */
    uint32_t gout;    /* I W: slot of class GOUT */
    uint32_t channel; /* COMM stream with lowering CHANNELS: row of PipeProgram.channel */
  };
  union {         /* PIPE_NONE if no member below applies */
    uint32_t keep; /* R, and the F that R recomputes: slot of class KEEP */
    uint32_t away; /* OFF LOAD: slot of class HOST, or of class GUEST on `peer` */
    uint32_t edge; /* SEND RECV: row of PipeProgram.edge, if the table exists */
    uint32_t side; /* SIDE in any stream: row of PipeProgram.side */
  };
  union {         /* what the instruction reads; PIPE_NONE: nothing, as at the ends of the chain */
    uint32_t in;      /* slot: x of F, dy of B and I, payload of SEND */
    uint32_t in_list; /* F B I with several inputs: index of the first in PipeRank.list */
    uint32_t given;   /* SIDE: slot of class BUFFER that the op gives back */
  };
  union {         /* what the instruction writes; PIPE_NONE: nothing */
    uint32_t out;      /* slot: y of F and R, dx of B and I, payload of RECV */
    uint32_t out_list; /* F B I R with several outputs: index of the first in PipeRank.list */
    uint32_t taken;    /* SIDE: slot of class BUFFER that the op takes */
  };
  uint32_t waits, nwait; /* its waits: nwait rows of PipeRank.wait from row `waits` on */
  uint32_t site;  /* row of PipeProgram.site: place in the .pipe text */
} PipeInstr;

/* The version of the weights that an instruction uses. Version 0 of a stage exists when a step
 * starts; the k-th U makes version k from version k-1, the newest one. A program with more than one
 * copy of some weights has one such row per instruction. `behind` and `ahead` count updates of the
 * stage. */
typedef struct PipeWeights {
  /* F B I R SIDE: the version that the op reads, or from which the estimate that it reads is made.
   * U: the version that it makes. Else PIPE_NONE, and so are the slots. */
  uint32_t version;
  /* Slot of class WEIGHT that is read: the version, for F B I R SIDE; the newest version, for U.
   * PIPE_NONE: the op reads the estimate in `guess`, which an earlier op of its stage made. */
  uint32_t slot;
  uint32_t out;     /* slot of class WEIGHT that U writes; may equal `slot`. Else PIPE_NONE */
  /* slot of class GUESS, or PIPE_NONE; with `formula` the op writes the slot before it reads it */
  uint32_t guess;
  /* F B I R: row of PipeProgram.formula: the estimate that the op sees instead of its version. U:
   * row of PipeProgram.rule. PIPE_NONE: none. */
  uint32_t formula;
  /* B I R: discrepancy: the version that the op reads minus the version that the F of its
   * microbatch read. U: the largest `ahead` of the Fs whose gradients it applies. F: 0. */
  int32_t behind;
  /* F B I R: updates between the version that the op reads and the version to which the gradient of
   * its microbatch is applied (staleness) */
  uint32_t ahead;
  uint32_t zero;
} PipeWeights;

typedef struct PipePool {
  /* WEIGHT: the stage. ACT, GOUT, KEEP, HOST, GUEST, GUESS: a stage whose tensors the pool holds.
   * OUT, IN, LOCAL: the stage whose outputs, or their gradients, the pool holds. All users have
   * tensors of this size. */
  uint32_t cls;
  uint32_t stage;
  uint32_t first; /* its slots are first .. first + count - 1 */
  /* > 0; for ACT, GOUT, KEEP, LOCAL, WEIGHT and GUESS exactly the peak of live slots */
  uint32_t count;
  uint64_t bytes; /* of each slot; 0 if the program has no sizes */
  uint32_t skip;  /* OUT, IN, LOCAL: 1 if its tensors pass edges outside the chain */
  uint32_t zero;
} PipePool;

/* A row of the stage table: one stage of one pipe, with its sizes (0 if PipeProgram.sized is 0) and
 * its time per op. Replicas of a pipe run the same model: their rows have the same `model` stage,
 * on different ranks. Each row has its own copy of the weights; together they share the
 * microbatches of the step. */
typedef struct PipeStage {
  uint32_t rank;  /* rank that runs the stage */
  uint32_t chunk; /* its index among the stages of that rank, ascending */
  uint32_t prev;  /* row that its input comes from; PIPE_NONE: no input */
  /* Row that its output goes to; PIPE_NONE: no output. prev and next are PIPE_MANY if there are
   * several or if the row depends on the microbatch; PipeGraph then has the rows. */
  uint32_t next;
  uint32_t model;   /* stage of the model that the row runs, 0 .. nmodel - 1 */
  uint32_t replica; /* next row with the same model stage, cyclically; itself if alone */
  /* Its microbatches, or units, are mb0 .. mb0 + nmb - 1; with PipeGraph.row only those of them
   * that the table assigns to this row. */
  uint32_t mb0, nmb;
  uint32_t nin, nout; /* tensors that its forward reads and writes: one per edge */
  /* Ties: the first row of its rank that shares weights with this stage; the TIE of that row serves
   * all of them. PIPE_NONE: the stage shares no weights. */
  uint32_t tied;
  uint32_t tie;       /* in such a first row: the first row of the next rank, cyclically */
  uint64_t act_bytes, gout_bytes; /* act to edge: of one microbatch, or unit */
  uint64_t boundary_bytes;        /* its output, = the input of `next`, = their gradients */
  uint64_t edge_bytes;            /* its output to each stage other than the next */
  /* part of the gradient, from its start, that belongs to shared weights */
  uint64_t tied_bytes;
  uint64_t weight_bytes, grad_bytes, opt_bytes;
  uint64_t work_bytes;            /* scratch of one op; the stages of a rank share it */
  /* Per op. SEND_x: of the transfer; RECV_x: 0; REDUCE, TIE: of the whole sum. If there is an edge
   * table, PipeEdge.send has the times of transfers. */
  uint64_t time[PIPE_NOPS];
  /* Of an action of one F, of this stage, and one B; 0: the sum of both. Every other action takes
   * the sum of its ops. */
  uint64_t time_fb;
  /* bit j: the stage keeps state j of PipeProgram.state: weight_bytes bytes, zero when a run
   * begins */
  uint32_t states;
  uint32_t zero;
} PipeStage;

/* An edge between stages of the model. Forward, one tensor per microbatch passes from `from` to
 * `to`; backward, its gradient passes the other way. The edge is number `out` of those that leave
 * `from` and number `in` of those that reach `to`: these are the indices of its tensors in PrCall.
 * The edge of the chain, to the next stage, comes first; the others follow in order of the other
 * stage. */
typedef struct PipeEdge {
  uint32_t from, to; /* from < to */
  uint32_t out, in;
  uint32_t skip;     /* 0: its tensors are boundary_bytes of `from`; 1: edge_bytes */
  uint32_t zero;
  uint64_t send[2];  /* time of the transfer of its tensor [0] and of its gradient [1] */
} PipeEdge;

/* Transfers from rank `from` to rank `to`, or copies of rank `from` if it is `to`, pass this link,
 * which other pairs of ranks share; it carries one of them at a time. Only predicted times depend
 * on it. */
typedef struct PipeShare {
  uint32_t from, to;
  uint32_t link; /* 0 .. nlink - 1 */
} PipeShare;

/* A channel of a program with lowering CHANNELS. Rows are in the order of their first use in a
 * step: if every rank opens its channels in this order, opening cannot deadlock. */
typedef struct PipeChannel {
  /* SEND_F, SEND_B: the SENDs of this op and their RECVs, between two ranks in one pipe. REDUCE:
   * the REDUCEs and TIEs over one set of ranks. SIDE_COMM: the side ops of one rank. */
  uint32_t op;
  /* ranks. REDUCE: the lowest and PIPE_NONE; SIDE_COMM: its rank and PIPE_NONE */
  uint32_t from, to;
  uint32_t pipe;     /* SENDs: number of the pipe; else PIPE_NONE */
} PipeChannel;

/* An op that the schedule declares, for one row of the stage table. */
typedef struct PipeSide {
  const char *name;   /* "UNSHARD" */
  uint32_t op;        /* SIDE, SIDE_COMM or SIDE_COPY: its stream */
  uint32_t decl;      /* number of the declaration, from 0; equal for all stages */
  uint32_t stage;     /* row of PipeProgram.stage */
  uint32_t zero;
  uint64_t time;
  /* size of the BUFFER that the op takes; 0: none. Set even if the program has no sizes */
  uint64_t bytes;
} PipeSide;

/* Which rows exchange tensors. Without `edge` and `row` the rows are chains, linked by prev and
 * next. With them row[m * nmb + mb] runs stage m of the model for microbatch mb, and a transfer
 * passes edge[instr.edge]. */
typedef struct PipeGraph {
  const PipeStage *stage;
  const PipeEdge *edge;  /* NULL: chains */
  const uint32_t *row;   /* NULL: chains */
  uint32_t nmb, slices;  /* of PipeProgram */
  const PipeSide *side;  /* of PipeProgram: names */
} PipeGraph;

/* A wait: `count` instructions of a queue of the same rank are over. Queues are COMPUTE, COMM and
 * COPY (PipeOn); with lowering CHANNELS the instructions of COMM are in queues of their channels
 * (pipe_queue) instead. Count 0 of COMPUTE is the start of the step: a host that begins a step has
 * met it. A count never ends inside of a group of transfers. */
typedef struct PipeWait {
  uint32_t queue, count;
} PipeWait;

typedef struct PipeRank {
  const PipeInstr *instr; /* [ninstr], issue order */
  const PipePool *pool;   /* [npool], ascending by `first` */
  uint32_t ninstr, npool, nslot;
  uint32_t inflight;      /* peak of live ACT slots */
  /* Memory of the rank, proved as a bound and allocated by engines: weights, gradients, optimizer
   * states, slots and one workspace (the largest of its stages). Each buffer is rounded up to a
   * multiple of 64 before the sum. 0 if not sized. */
  uint64_t bytes;
  /* memory of its HOST slots, summed alike; it is host memory and not part of `bytes` */
  uint64_t host;
  /* [nlist] slots of the ops that read or write several, op after op */
  const uint32_t *list;
  uint32_t nlist, nwait;
  /* [nwait] The waits of row 0, row 1 and so on (PipeInstr.waits), then those of the end of the
   * step, where COMPUTE waits for whatever still runs. */
  const PipeWait *wait;
  /* [ninstr]. NULL, on all ranks: each stage has one copy of its weights, in no slot, and every op
   * uses its current contents. */
  const PipeWeights *weights;
  /* [nrows] The list in emitted form (pipe_rows.h); instr, list, wait and weights are then NULL,
   * and pipe_expand makes them from the rows. NULL: the list is written out. */
  const uint32_t *rows;
  /* weighted: 1 if the written-out rows have `weights` */
  uint32_t nrows, weighted;
  uint64_t hash; /* with rows: hash of the rank once written out (pipe_rank_hash) */
} PipeRank;

typedef struct PipeSite {
  uint32_t file;          /* row of PipeProgram.file */
  uint32_t line, col;     /* from 1 */
} PipeSite;

typedef struct PipeProgram {
  uint32_t magic, abi;
  uint64_t hash;          /* of all other fields and tables except files, lines and columns */
  const char *name;       /* name of the schedule */
  const char *params;     /* "P=4 M=8" */
  uint32_t nrank, nstage, nmb, nsite, nfile;
  uint32_t nmodel;        /* stages of the model: nstage less the further replicas */
  uint32_t sized;         /* 1: all sizes are given, and pr_open requires them of the model */
  uint32_t timed;         /* 1: times are ns; 0: abstract units */
  /* > 1: each microbatch consists of this many slices, and every microbatch in the tables (nmb and
   * mb0 of the stages, mb of the instructions) is a unit: unit u is slice u % slices of microbatch
   * u / slices. A slice goes forward after the earlier slices of its microbatch and reads their
   * stashes; it goes backward after the later ones. R of a slice comes after R of the earlier
   * slices; all Rs of a microbatch come between its last F and its first backward. 0, 1: no
   * slices. */
  uint32_t slices;
  uint32_t forward; /* 1: the program has only F and their transfers: no gradients, no updates */
  uint32_t slots;         /* most receive slots that any channel needed */
  uint64_t makespan;      /* predicted time of one step, from the first start to the last end */
  uint64_t ideal;         /* makespan if no transfer ever waited for a stream or a slot */
  uint64_t busy;          /* time of all compute ops, summed over ranks */
  const PipeRank *rank;   /* [nrank] */
  const PipeStage *stage; /* [nstage] */
  const PipeSite *site;   /* [nsite] */
  const char *const *file; /* [nfile] names without directories */
  const PipeEdge *edge;   /* [nedge] by `from`, then `out`; NULL: chains (PipeGraph) */
  const uint32_t *row;    /* [nmodel * nmb]; NULL: chains */
  uint32_t nedge;
  uint32_t nside;
  const PipeSide *side;   /* [nside] by decl, then stage; NULL: none */
  uint32_t lowering;      /* PipeLowering; CHANNELS has no groups of transfers */
  uint32_t nformula, nrule, nthen, nstate;
  const PipeFormula *formula; /* [nformula] */
  const PipeRule *rule;       /* [nrule] */
  const PipeThen *then;       /* [nthen] */
  const char *const *state;   /* [nstate] names; at most 32 */
  /* [nstage][nunit_time][PIPE_UNIT_TIMES] if the time of an op depends on the unit; the times of
   * PipeStage are then means. NULL: it does not. */
  const uint64_t *unit_time;
  /* [nshare] by from, to, link, without duplicates; NULL: every pair of ranks has its own link */
  const PipeShare *share;
  uint32_t nshare, nlink;
  const PipeChannel *channel; /* [nchannel]; NULL unless lowering is CHANNELS */
  uint32_t nchannel;
  /* Units with times of their own per stage: `slices` if times depend on the slice alone, else the
   * largest nmb of a stage; 0 without unit_time. */
  uint32_t nunit_time;
  uint32_t zero;
} PipeProgram;

/* Columns of PipeProgram.unit_time: F B I W R by PipeOp, then these. FB belongs to the unit of the
 * F. */
enum { PIPE_UNIT_OFF = PIPE_R + 1, PIPE_UNIT_LOAD, PIPE_UNIT_FB, PIPE_UNIT_TIMES };

PIPE_STATIC_ASSERT(sizeof(PipeInstr) == 48, "ABI");
PIPE_STATIC_ASSERT(offsetof(PipeInstr, gout) == 20 && offsetof(PipeInstr, channel) == 20, "ABI");
PIPE_STATIC_ASSERT(offsetof(PipeInstr, keep) == 24 && offsetof(PipeInstr, side) == 24, "ABI");
PIPE_STATIC_ASSERT(offsetof(PipeInstr, in) == 28 && offsetof(PipeInstr, out) == 32, "ABI");
PIPE_STATIC_ASSERT(offsetof(PipeInstr, taken) == 32 && offsetof(PipeInstr, waits) == 36, "ABI");
PIPE_STATIC_ASSERT(sizeof(PipePool) == 32, "ABI");
PIPE_STATIC_ASSERT(sizeof(PipeStage) == 48 + 9 * 8 + 8 * PIPE_NOPS + 16, "ABI");
PIPE_STATIC_ASSERT(sizeof(PipeWait) == 8, "ABI");
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

/* 1: an instruction with this op has a filled-in row of PipeWeights. A SIDE reads the newest
 * version. */
static inline int pipe_uses_weights(uint32_t op) {
  return (op <= PIPE_U && op != PIPE_W) || op == PIPE_SIDE;
}

/* The row of an instruction that uses no weights. */
static inline PipeWeights pipe_no_weights(void) {
  PipeWeights w = {PIPE_NONE, PIPE_NONE, PIPE_NONE, PIPE_NONE, PIPE_NONE, 0, 0, 0};
  return w;
}

/* An emitted file states the ABI it was made for; a header of another ABI rejects it at compile
 * time. Emitted rows list numbers column by column, without braces around the unions of PipeInstr;
 * the pragma turns off the warning about missing braces. */
#define PIPE_REQUIRE_ABI(v) \
  _Pragma("GCC diagnostic ignored \"-Wmissing-braces\"") \
  PIPE_STATIC_ASSERT((v) == PIPE_ABI, "pipec and pipe_instr.h differ: recompile the .pipe file")

/* Columns of pipe_ops.def: the text of an op ("SEND_F"), its stream, and so on. */
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
/* The stream of this op, below PIPE_NOPS. */
static inline PipeOn pipe_stream_of(uint32_t op) { return (PipeOn)pipe_op_info[op].stream; }
extern const char *const pipe_phase_name[PIPE_NPHASES]; /* "warmup" ... */
extern const char *const pipe_class_name[PIPE_NCLASSES]; /* "act" ... */

/* Writes "2SEND_F13" (or "0U") with a NUL to buf[PIPE_OP_TEXT]; returns its length. */
#define PIPE_OP_TEXT 48
int pipe_op_text(char *buf, PipeOp op, uint32_t stage, uint32_t mb);
/* As pipe_op_text, for unit `mb` of a program with `slices`: "2F3.1" is slice 1 of microbatch 3. */
int pipe_unit_text(char *buf, PipeOp op, uint32_t stage, uint32_t mb, uint32_t slices);
/* As pipe_unit_text, for a SIDE with this name. */
int pipe_side_text(char *buf, const char *name, uint32_t stage, uint32_t mb, uint32_t slices);

/* The row at the other end of SEND or RECV c; PIPE_NONE if there is none. c->stage, and if there
 * are edge tables c->edge and c->mb, must be in range. */
static inline uint32_t pipe_other_end(PipeGraph g, const PipeInstr *c) {
  int down = c->op == PIPE_SEND_F || c->op == PIPE_RECV_B;
  if (!g.edge)
    return down ? g.stage[c->stage].next : g.stage[c->stage].prev;
  return g.row[(size_t)(down ? g.edge[c->edge].to : g.edge[c->edge].from) * g.nmb + c->mb];
}

/* The waits of a row are PipeRank.wait[pipe_wait0 .. pipe_wait_end - 1]; row ninstr: the end of the
 * step. */
static inline uint32_t pipe_wait0(const PipeRank *rank, uint32_t row) {
  const PipeInstr *last = rank->ninstr ? &rank->instr[rank->ninstr - 1] : NULL;
  return row < rank->ninstr ? rank->instr[row].waits : last ? last->waits + last->nwait : 0;
}
static inline uint32_t pipe_wait_end(const PipeRank *rank, uint32_t row) {
  return row < rank->ninstr ? rank->instr[row].waits + rank->instr[row].nwait : rank->nwait;
}

/* The queue that instruction c, of a program with this lowering, stands in. */
static inline uint32_t pipe_queue(uint32_t lowering, const PipeInstr *c) {
  uint32_t on = pipe_stream_of(c->op);
  return on == PIPE_COMM && lowering == PIPE_CHANNELS ? PIPE_NSTREAMS + c->channel : on;
}

/* The rows of each queue of a rank: those of queue q are row[first[q]] .. row[first[q + 1] - 1]. */
typedef struct PipeQueues {
  uint32_t *first, *row;
} PipeQueues;
/* One block, which the caller frees with free(first). first NULL: no memory. Requires ops and
 * channels in range. Linear in instructions and channels. */
PipeQueues pipe_queues(const PipeProgram *p, const PipeRank *rank);
/* 1 + the row that ends a wait; 0: the start of the step. */
static inline uint32_t pipe_after(const PipeQueues *q, PipeWait wait) {
  return wait.count > 0 ? q->row[q->first[wait.queue] + wait.count - 1] + 1 : 0;
}

/* Finds the other side of each transfer: pair[r][i] is the index, in the list of the peer, of the
 * partner of instruction i of rank r; for REDUCE and TIE, of the next row that takes part; for
 * compute ops PIPE_NONE. One block: the caller frees it with free(pair). NULL: mismatch or no
 * memory. Linear. */
uint32_t **pipe_pair(const PipeProgram *p);

/* As pipe_unit_text, for an instruction. If stage and microbatch do not identify a transfer, the
 * text adds the other end: "0SEND_F3>4" goes to stage 4, "4RECV_F3<0" comes from stage 0. */
int pipe_instr_text(char *buf, PipeGraph g, const PipeInstr *c);
static inline PipeGraph pipe_graph(const PipeProgram *p) {
  PipeGraph g = {p->stage, p->edge, p->row, p->nmb, p->slices, p->side};
  return g;
}

/* 1: SEND or RECV. */
static inline int pipe_is_move(uint32_t op) {
  return op >= PIPE_SEND_F && op <= PIPE_RECV_B;
}
static inline int pipe_is_send(uint32_t op) { return op == PIPE_SEND_F || op == PIPE_SEND_B; }

/* The number of SEND or RECV c among the transfers of a step, equal at both ends; less than 2 * nmb
 * * nstage, or with an edge table 2 * nmb * nedge. */
static inline uint64_t pipe_transfer_number(const PipeProgram *p, const PipeInstr *c) {
  int back = c->op == PIPE_SEND_B || c->op == PIPE_RECV_B;
  uint64_t from = p->edge               ? c->edge
                  : pipe_is_send(c->op) ? c->stage
                                        : pipe_other_end(pipe_graph(p), c);
  return (2 * from + (uint64_t)back) * p->nmb + c->mb;
}

/* 1: the op is a SIDE of any stream. */
static inline int pipe_is_side(uint32_t op) { return op >= PIPE_SIDE && op <= PIPE_SIDE_COPY; }

/* Slots in field `in` (input = 1) or `out` (0) of an instruction with this op and row. If there are
 * two or more, they are in PipeRank.list. */
static inline uint32_t pipe_fields(const PipeStage *st, uint32_t op, int input) {
  int forward = op == PIPE_F || op == PIPE_R;
  if (pipe_stream_of(op) != PIPE_COMPUTE || op == PIPE_SIDE)
    return 1;
  return !input == !forward ? st->nin : st->nout;
}

/* 1: REDUCE or TIE. pipe_sum_next is the next row that takes part; the rows form a cycle. */
static inline int pipe_is_sum(uint32_t op) { return op == PIPE_REDUCE || op == PIPE_TIE; }
static inline uint32_t pipe_sum_next(const PipeStage *stage, uint32_t op, uint32_t row) {
  return op == PIPE_REDUCE ? stage[row].replica : stage[row].tie;
}

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
