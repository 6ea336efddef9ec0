/* SPDX-License-Identifier: MIT
 * Runs a PipeProgram with a model on an engine. The default engine runs each rank on a thread of
 * this process; PrOptions.engine selects another one (pipe_mpi.h, pipe_transport.h, pipe_cuda.h).
 *
 *   PrRun *run;
 *   if (pr_open(&run, &pipe_program, &model, NULL) || pr_steps(run, 1000))
 *     fprintf(stderr, "%s\n", pr_error(run));
 *   pr_close(run);
 *
 * Ownership: a PrRun owns everything that it hands out; all of it lives until pr_close. pr_open
 * allocates all memory, as the tables of the program say; a step allocates nothing. */
#ifndef PIPE_RUN_H
#define PIPE_RUN_H

#include "pipe_instr.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

uint32_t pr_version(void); /* PIPE_VERSION of the library */

typedef enum PrStatus {
  PR_OK = 0,
  PR_E_ARG,      /* a bad program, model or option; another ABI */
  PR_E_SIZE,     /* the sizes of the model differ from those in the proof */
  PR_E_MEMORY,   /* the operating system refused memory or threads */
  PR_E_MODEL,    /* a callback returned non-zero */
  /* no rank can proceed; the text names the ranks, ops and .pipe lines of the wait cycle */
  PR_E_STALL,
  PR_E_MISMATCH, /* a receiver got another message than the expected one */
  /* A step took longer than its deadline. The text names the instruction that caused it, the peer
   * of that instruction, and the .pipe lines of both. */
  PR_E_DEADLINE,
  PR_E_IO,       /* a file could not be written */
  PR_E_CHECKPOINT, /* a checkpoint is damaged, incomplete or of another model */
  PR_E_LOST,     /* another process of the run, or the connection to it, is gone */
  PR_E_DEVICE    /* the device, or NCCL, refused a call; the text says which */
} PrStatus;

/* The sizes of one stage in bytes.
 * - act: what F keeps for B (or for I and W), in a slot or in memory of the model (holds_stash)
 * - gout: what I keeps for W
 * - boundary: the output of the stage for one microbatch. The input of the next stage and both
 *   gradients have this size too. 0 on the last stage, and only there
 * - edge: each output to a stage other than the next; 0 if there is none
 * - tied: the part of grad, from its start, that belongs to shared weights; 0 if none are shared
 * - work: scratch of one op; its contents are undefined between ops */
typedef struct PrSizes {
  uint64_t act, gout, boundary, weight, grad, opt, work, edge, tied;
} PrSizes;

/* The operands of one op. Pointers are aligned to 64 bytes; a pointer that the op does not use is
 * NULL.
 *
 *           reads               writes
 *   F       x weight            y act   (a stage without outputs: *loss)
 *   B       dy act weight       dx, adds to grad
 *   I       dy act weight       dx gout
 *   W       act gout            adds to grad
 *   R       x weight            act, as F does: R calls `forward` again, with copies of the
 *                               inputs. The run discards y and *loss
 *   U       grad newest         weight opt; must leave grad zero. mb: PIPE_NONE if the text
 *                               names no microbatch
 *   SIDE    weight grad buf     any of them, as the model decides
 *   REDUCE and TIE use the callbacks `reduce` and `tie`, which take no PrCall
 *
 * Inputs and outputs. A stage has nx inputs xs[0 .. nx-1] and ny outputs ys[0 .. ny-1]; dxs and dys
 * are their gradients. A stage in the middle of a chain has one of each, a first stage has no
 * input, a last stage has no output; edges add more. The edge of the chain comes first, the others
 * follow in ascending order of the stage at the other end. x, y, dx and dy are the first element of
 * each array, or NULL. If several outputs are copies of one tensor, the model adds up their
 * gradients, in an order of its choice. If several stages have no output, the loss of a microbatch
 * is the sum of their losses, in ascending order of stage.
 *
 * Lifetime. x is valid only during F, and dy only during B or I: copy to act or gout what a later
 * op needs.
 *
 * Slices. With slices (PipeProgram.slices) an op processes slice `slice` of microbatch mb, and
 * every tensor covers one slice. In F, R, B and I, past[0] .. past[slice - 1] are the stashes of
 * the earlier slices. F reads them (keys and values). B and I may add to them: the backward of an
 * earlier slice runs later and reads the sums. past is NULL for slice 0, in W and in U. If slices
 * are recomputed, F and R see different stashes with the same bits: every R of a microbatch comes
 * after its last F and before its first backward.
 *
 * Stages. `stage` and `nstage` count the stages of the model. Replicas of a stage have the same
 * number and each its own microbatches, weight, grad and opt.
 *
 * Determinism. The bits of a result may depend only on the contents of the operands, never on
 * addresses or time: all engines produce equal bits. */
typedef struct PrCall {
  PipeOp op;
  uint32_t rank, stage, nstage, mb, nmb;
  uint32_t slice, nslice; /* 0 and 1 without slices */
  uint64_t step;
  const void *x, *dy;
  void *y, *dx, *act, *gout, *weight, *grad, *opt, *work;
  void *const *past;
  double *loss; /* of the slice; the loss of a microbatch is the sum over its slices */
  /* 1: the first B or W of the stage in this step or after its last U; 0: any other op */
  int first_grad;
  int recomputed; /* F: 1: R makes the stash for B and W; the stash of this F is lost */
  uint32_t nx, ny;
  const void *const *xs, *const *dys; /* [nx], [ny]; NULL where the op does not use x, dy */
  void *const *ys, *const *dxs;       /* [ny], [nx] */
  /* Only on a device (pipe_cuda.h), else NULL: the cudaStream_t on which the callback must enqueue
   * its work; the callback returns without waiting for it. All tensors, `work` and `loss` are then
   * in device memory. The arrays xs, ys, dxs and dys are in host memory and do not change. */
  void *stream;
  /* Device memory with the number of the step at the time of the work. It differs from `step` if a
   * graph replays the step; the number of updates is then updates + (*step_at - step) * nupdate. */
  const uint64_t *step_at;
  uint32_t nupdate; /* updates of the stage in one step */
  /* SIDE, in any stream: the name of the op. mb is PIPE_NONE if the op belongs to no microbatch.
   * weight, grad and opt are set, too; but if weights have versions, only a SIDE in COMPUTE has a
   * weight (the newest version). */
  const char *side;
  /* SIDE: the buffer that the op takes, at the same address in every step and reserved until a SIDE
   * gives it back; the buffer that the op gives back. NULL: none. */
  void *taken, *given;
  uint64_t taken_bytes, given_bytes;
  /* U: the newest weights, read only. U writes all of a new version to `weight`, which may be the
   * same memory. In other ops `weight` is the version that the op reads (PipeWeights). */
  const void *newest;
  double rate; /* U: factor of the learning rate; 1 if the schedule has none */
  /* version: F, B, I, R: the version that the op reads in this step; U: the version that it makes;
   * 0 if the program has no versions. applied: U: the microbatches, over all replicas, whose
   * gradients grad sums. */
  uint32_t version, applied;
  /* U: earlier updates of the stage, over all steps, also those of other programs before a resume;
   * an optimizer counts with it */
  uint64_t updates;
} PrCall;

/* The type of an element. The names follow safetensors. */
typedef enum PrDtype {
  PR_U8,
  PR_BOOL,
  PR_I8,
  PR_F8_E4M3,
  PR_F8_E5M2,
  PR_I16,
  PR_U16,
  PR_F16,
  PR_BF16,
  PR_I32,
  PR_U32,
  PR_F32,
  PR_I64,
  PR_U64,
  PR_F64,
  PR_C64
} PrDtype;

/* A tensor that the model keeps from step to step. Its shape[0] * .. * shape[ndim - 1] elements lie
 * in the weights or optimizer state of a stage, from byte `at` on, the last dimension innermost. */
enum { PR_NAME = 128, PR_DIMS = 8 };
typedef enum PrTensorOf { PR_WEIGHT, PR_OPT } PrTensorOf;
typedef struct PrTensor {
  char name[PR_NAME]; /* UTF-8; does not depend on the stage that holds the tensor */
  PrTensorOf of;
  PrDtype dtype;
  uint64_t at;
  uint32_t ndim;
  uint64_t shape[PR_DIMS];
} PrTensor;

/* A model: callbacks that return 0, or another number to fail the run (its text contains the
 * number). The threads of the engine call them: at most one call per rank at a time, and at most
 * one per row of the stage table; rows that are replicas run at the same time. `side` is an
 * exception: at most one call per stream of a rank at a time, beside the other callbacks. */
typedef struct PrModel {
  void *self;
  uint32_t nstage; /* must equal the program's nmodel */
  int (*sizes)(void *self, uint32_t stage, PrSizes *out); /* *out arrives zeroed */
  /* Fills in the first weights. weight, opt and the gradients are zeroed before. opt is NULL if the
   * program is forward-only; there are then no gradients either. */
  int (*init)(void *self, uint32_t stage, void *weight, void *opt);
  int (*forward)(void *self, const PrCall *c); /* F and R; R must produce the bits of F */
  int (*backward)(void *self, const PrCall *c);        /* B; may be NULL if the program has no B */
  int (*backward_input)(void *self, const PrCall *c);  /* I; may be NULL if the program has no I */
  int (*backward_weight)(void *self, const PrCall *c); /* W; may be NULL if the program has no W */
  int (*update)(void *self, const PrCall *c);          /* U; may be NULL if forward-only */
  /* REDUCE: adds up the `bytes` bytes at grad[0] .. grad[n-1] of `stage`, in this order, element by
   * element, and writes the sum to each. The bytes are whole gradients or, if processes share the
   * work, one piece of each gradient. Pieces begin at multiples of 64 bytes, and end there or with
   * the gradient. No other op uses the gradients of the stage meanwhile. May be NULL if the program
   * has no replicas. */
  int (*reduce)(void *self, uint32_t stage, void *const *grad, uint32_t n, uint64_t bytes);
  /* TIE: as `reduce`, for the gradients that stages stage[0] < .. < stage[n-1] share: the first
   * PrSizes.tied bytes of each. Replicas have been reduced before and receive the same bits. May be
   * NULL if the program ties no stages. */
  int (*tie)(void *self, const uint32_t *stage, void *const *grad, uint32_t n, uint64_t bytes);
  /* Runs an action: n ops at once, in any order or side by side; c[] has the order of the text. The
   * ops are independent: they share only `work` and, on one stage, weight and grad. No other op of
   * its stage accompanies a U. NULL: the engine calls the ops one after the other. */
  int (*overlap)(void *self, const PrCall *c, uint32_t n);
  uint32_t nslice; /* must equal the slices of the program; 0 and 1: whole microbatches */
  /* SIDE: runs the side op c->side. The ops that it depends on are complete before the call; the
   * ops that depend on it wait until the callback returns. May be NULL if the program has no side
   * ops. */
  int (*side)(void *self, const PrCall *c);
  /* Describes tensor i of a stage, for checkpoints; returns non-zero if the stage has only i
   * tensors. The tensors cover all bytes of `weight` and `opt`. The names of all weights of the
   * model are distinct, as are those of all optimizer states. NULL: `weight` and `opt` of each
   * stage are one tensor of bytes each; a checkpoint then resumes only with the same number of
   * stages, on any ranks. */
  int (*tensor)(void *self, uint32_t stage, uint32_t i, PrTensor *out);
  const char *identity; /* one line that a checkpoint must match besides; NULL: "" */
  /* elem, lr and moment serve schedules with formulas (pipe_formula.h); else 0 and NULL. elem = 4:
   * weight and grad are arrays of float. */
  uint32_t elem;
  /* the learning rate of update number `update`, without PrCall.rate */
  double (*lr)(void *self, uint32_t stage, uint64_t update);
  /* The byte of opt where the optimizer keeps the first (which = 0) or second (1) moment of the
   * weights, an array like the weights; -1: the optimizer has no such moment. */
  int64_t (*moment)(void *self, uint32_t stage, int which);
  /* 1: act and gout lie in memory of the model, from the op that fills them to the last op that
   * reads them. PrCall.act and gout are NULL; the bytes of a rank include them, but the run does
   * not allocate them. After a failed run the model may still hold some. Not with slices, and not
   * if the schedule moves stashes. */
  int holds_stash;
  /* Explains the last callback that failed on this thread; pr_error ends with this text. May be
   * NULL and may return NULL: no explanation. */
  const char *(*why)(void *self);
  /* pr_threads: called on the thread of each rank, with begins = 1 before all other callbacks and
   * with 0 after them, for languages that register threads. May be NULL. */
  void (*thread)(void *self, int begins);
} PrModel;

/* Executes programs. An engine of processes runs one rank in each process; all processes must make
 * the same calls with the same program, in the same order. */
typedef struct PrEngine PrEngine;
extern const PrEngine pr_threads; /* one thread per rank in this process */

/* Options of pr_open. All zero: the defaults. */
typedef struct PrOptions {
  uint32_t trace_steps; /* most recent steps that the trace keeps; 0: no trace */
  /* Seconds that a step may take; a longer step fails with PR_E_DEADLINE. 0: PIPE_DEADLINE of the
   * environment; without it ten times the predicted time (at least 30 s) if times are ns, else
   * 600 s. 1e9: practically no deadline. pr_steps then returns at once, and pr_close waits for
   * callbacks that still run. */
  double deadline_s;
  /* 1: a rank enters the next step without waiting for the others; ignored if several stages have
   * no input, or no output. */
  int free_running;
  /* Called after each step; step counts from 0. May be NULL. Threads: on one thread, while all
   * ranks wait; free-running: on the thread of the rank with the last stage, once that rank is
   * done. Processes: in each process, with the same loss; free-running: only in the process with
   * the last stage. Devices: while the next step runs. */
  void (*on_step)(void *arg, uint64_t step, double loss);
  /* Called once the loss of a microbatch is final, while the step continues, on the thread of the
   * rank that ran its last forward. May be NULL. If several stages have no output, several ranks
   * may call at once, and processes of one rank each do not call it. */
  void (*on_loss)(void *arg, uint64_t step, uint32_t mb, double loss);
  void *arg;
  const PrEngine *engine;     /* NULL: pr_threads */
  const void *engine_options; /* options of the engine, or NULL */
  /* 1: both sides of a transfer compare checksums of the sent and the received bytes; a difference
   * is PR_E_MISMATCH. */
  int checksums;
} PrOptions;

typedef struct PrRun PrRun;

/* Checks program and model, allocates all memory and starts the engine. p must stay valid until
 * pr_close; *m and *o are copied (o NULL: the defaults). On failure *out is still set, for
 * pr_error, and must be closed; only out of memory is *out NULL. */
PrStatus pr_open(PrRun **out, const PipeProgram *p, const PrModel *m, const PrOptions *o);

/* Executes n more steps. Returns when all ranks have finished them or one has failed. After a
 * failure every later call returns the same status. */
PrStatus pr_steps(PrRun *run, uint64_t n);

/* The exit status for a program whose run ended with st: 0; 1; or 75 (EX_TEMPFAIL) if a restart
 * from the last checkpoint may help: PR_E_LOST, PR_E_DEADLINE, PR_E_STALL, PR_E_MISMATCH. */
int pr_exit_status(PrStatus st);

const char *pr_error(const PrRun *run);               /* text of the first error, "" if none */
/* Remarks of pr_open or pr_resume that are not errors; "" if none. */
const char *pr_note(const PrRun *run);
/* Loss of the last finished step, the mean over microbatches; NaN before the first step. */
double pr_loss(const PrRun *run);
/* Loss of microbatch mb in that step; NaN if there is none. */
double pr_loss_mb(const PrRun *run, uint32_t mb);
/* The newest weights of a row of the stage table, between calls of pr_steps. Without replicas the
 * row is the stage. NULL: another process has the row, or the run has failed, perhaps during an
 * update. */
void *pr_weight(PrRun *run, uint32_t stage);

/* Copies the newest weights of a row (weight_bytes bytes) to `to` in every process, whichever
 * process has them. All processes must call it alike. */
PrStatus pr_copy_weight(PrRun *run, uint32_t stage, void *to);
/* The rank of this process; PIPE_NONE: this process has all ranks. */
uint32_t pr_rank(const PrRun *run);
int pr_leads(const PrRun *run); /* 1 in exactly one process, which may print */
/* Bytes that the engine allocated for the rank, and those that the model holds (holds_stash);
 * without host memory. */
uint64_t pr_bytes(const PrRun *run, uint32_t rank);
/* Bytes of host memory that the engine allocated for the rank (slots of class HOST). */
uint64_t pr_host_bytes(const PrRun *run, uint32_t rank);
/* Steps of the whole training, with those before a resume. */
uint64_t pr_steps_done(const PrRun *run);

/* Writes a checkpoint (weights, optimizer state, step) as a new folder in `dir`, which it creates
 * if necessary. Call it between calls of pr_steps, in all processes alike. `keep` is the number of
 * checkpoints to keep; 0: all.
 *
 * A checkpoint counts once it is complete: whatever ends the run earlier leaves the previous one.
 * Only one run at a time writes to a `dir`, under whatever name, from its first checkpoint there to
 * pr_close; the leading process waits 5 s for another run to leave. A `dir` that was moved or
 * removed is created again.
 *
 * Deadline: that of a step, at least 5 s, plus the time that a disk of 50 MB/s needs for weights
 * and optimizer states; 5 s more while it waits for another run. A rank that only waits for other
 * ranks has twice the deadline. PR_E_IO, for example a full disk, leaves the run usable. The new
 * checkpoint then does not exist, or it is complete but the file `latest` could not be written; a
 * resume that finds no `latest` takes it. */
PrStatus pr_checkpoint(PrRun *run, const char *dir, uint32_t keep);

/* Resumes from the checkpoint that the file `latest` in `dir` names, without it from the newest
 * complete one, or, if `dir` is itself a checkpoint, from `dir`. Call it after pr_open and before
 * the first pr_steps, in all processes alike. The deadline is that of pr_checkpoint.
 *
 * *step receives the number of steps done; 0: there is no checkpoint yet, and nothing has changed.
 * The program may differ: other ranks, and, if the model names its tensors, other stages. With
 * another number of microbatches pr_note says so. A checkpoint that is damaged, cut short or of
 * another model fails the run; the text names the newest older checkpoint that is complete, to be
 * passed as `dir`. */
PrStatus pr_resume(PrRun *run, const char *dir, uint64_t *step);

/* Loads weights from a safetensors file, or from all files that an index names (a name that ends in
 * .json). Call it after pr_open and before the first pr_steps, and before pr_resume if you use
 * both. The files must contain the weights of all stages, with their names, dtypes and shapes, and
 * nothing else; otherwise the run fails. Optimizer states stay as PrModel.init left them. */
PrStatus pr_load_weights(PrRun *run, const char *path);

/* The program, with its lists written out, except in a process of one rank whose program has rows
 * (pipe_rows.h). */
const PipeProgram *pr_program(const PrRun *run);
void pr_close(PrRun *run);                            /* run may be NULL */

/* Trace: times in ns on one clock; 0 is the start of the oldest kept step. */
typedef struct PrSpan { uint64_t start_ns, end_ns; } PrSpan;
uint32_t pr_trace_steps(const PrRun *run);            /* kept steps */
/* Spans of the instructions of a rank in kept step `step`, counted from the oldest:
 * [rank[r].ninstr], in list order. NULL: no such step or rank. */
const PrSpan *pr_trace(const PrRun *run, uint32_t step, uint32_t rank);

/* Means over the kept steps: makespan and busy time of COMPUTE of all ranks, in ns; idle share of
 * rank time. */
typedef struct PrMeasure { double makespan_ns, busy_ns, bubble; } PrMeasure;
PrStatus pr_measure(const PrRun *run, PrMeasure *out);

/* Writes the kept steps as tracks for Perfetto and chrome://tracing. `pipec FILE --emit=svg
 * --with=PATH`, with the options of the program, plots them against the prediction. A regular file,
 * or the target of a symbolic link, is replaced only once the new file is complete; a device or a
 * pipe is written directly. PR_E_IO if no step was kept. */
PrStatus pr_write_trace(PrRun *run, const char *path);

/* Writes a profile of the kept steps for `pipec --profile=FILE` (lang/spec.md 6): for each stage
 * the median time of each kind of op in ns, the least time of a transfer (the one that waited
 * least), and the bytes of the model. An op that some stage does not run is left out; B is I + W if
 * all backwards are split. The file is written as by pr_write_trace. */
PrStatus pr_write_profile(PrRun *run, const char *path);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
