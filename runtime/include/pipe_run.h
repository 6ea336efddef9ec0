/* SPDX-License-Identifier: MIT
 * Runs a PipeProgram with a model on an engine: CPU threads of this process by default, or one
 * process per rank (PrOptions.engine; pipe_mpi.h).
 *
 *   PrRun *run;
 *   if (pr_open(&run, &pipe_program, &model, NULL) || pr_steps(run, 1000))
 *     fprintf(stderr, "%s\n", pr_error(run));
 *   pr_close(run);
 *
 * Ownership: everything a PrRun hands out belongs to it and lives until pr_close. All memory is
 * taken in pr_open, from the program's table; a step allocates nothing. */
#ifndef PIPE_RUN_H
#define PIPE_RUN_H

#include "pipe_instr.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef enum PrStatus {
  PR_OK = 0,
  PR_E_ARG,      /* a bad program, model or option; another ABI */
  PR_E_SIZE,     /* the model's sizes are not those the program was proved with */
  PR_E_MEMORY,   /* the operating system refused memory or threads */
  PR_E_MODEL,    /* a callback returned non-zero */
  PR_E_STALL,    /* no rank can go on; the text names both ranks, ops and .pipe lines */
  PR_E_MISMATCH, /* a message arrived that is not the one the receiver expects */
  PR_E_DEADLINE, /* a step took too long: the text names the instruction that was first, its peer
                    and their .pipe lines */
  PR_E_IO,       /* a file could not be written */
  PR_E_CHECKPOINT, /* a checkpoint is damaged, incomplete or of another model */
  PR_E_LOST,     /* another process of the run has gone, or what connects them */
  PR_E_DEVICE    /* the device, or what connects devices, refused something; the text says what */
} PrStatus;

/* Bytes of one stage. act: what F keeps for B (or I and W), wherever it lies. gout: what I keeps
 * for W. boundary: the stage's output for one microbatch = the next stage's input = their
 * gradients (0 on the last, and only there). work: scratch of one op, contents undefined between
 * ops. edge: each output to a stage that is not the next (0 if there is none). tied: how much of
 * grad, from its start, is of weights that are shared (0 if it shares none). */
typedef struct PrSizes {
  uint64_t act, gout, boundary, weight, grad, opt, work, edge, tied;
} PrSizes;

/* What one op may touch. Pointers are 64-byte aligned; those a kind has no use for are NULL.
 *
 *           reads               writes
 *   F       x weight            y act   (a stage without outputs: *loss)
 *   B       dy act weight       dx, adds to grad
 *   I       dy act weight       dx gout
 *   W       act gout            adds to grad
 *   R       x weight            act, as F has: `forward` again, from copies of its inputs. y
 *                               and *loss are there as in F, and go nowhere
 *   U       grad newest         weight opt; must leave grad zero. mb: PIPE_NONE if the text
 *                               names none
 *   SIDE    weight grad buf     any of them: what the model makes of it
 *   REDUCE, TIE  go through `reduce` and `tie` instead
 *
 * A stage has nx inputs xs[0 .. nx-1] and ny outputs ys[0 .. ny-1], each with its gradient in dxs
 * and dys: one of each in the middle of a chain, no input (and dx) on a first stage, no output (and
 * dy) on a last one, further ones by edges. That of the chain is the first, then they ascend by the
 * stage at the other end. x, y, dx and dy are the first ones, or NULL. Where outputs are copies of
 * one tensor the model adds up their gradients, in an order of its own. If several stages have no
 * output, the loss of a microbatch is the sum of what they write, in ascending order.
 *
 * x is valid only during F and dy only during B or I: keep in act or gout what is needed later.
 * With slices (PipeProgram.slices) an op is of slice `slice` of microbatch mb, and all tensors are
 * of one slice. past[0] .. past[slice - 1] are the stashes of the slices before it, in F, R, B and
 * I: F reads them (keys and values), B and I may add to them what the earlier slice's own backward,
 * which comes later, then reads. past is NULL for slice 0, and in W and U. Where slices are
 * recomputed F and R see other stashes with the same bits: all R of a microbatch come after its
 * last F and before its first backward. `stage` and `nstage` count stages of the model; replicas of
 * a stage see the same number, other microbatches, and their own weight, grad and opt. `weight` is
 * the version of the weights that the op reads (PipeWeights). U makes a new one: from the bytes at
 * `newest`, which it leaves as they are, to `weight`, all of which it writes; they may be one and
 * the same. `version` is the number of that version in this step: of F, B, I and R the one that
 * they read, of U the one that it makes; if the program does not say, 0. U's `rate` is a factor of
 * the learning rate, 1 if the schedule has none; `applied` is how many microbatches, those of
 * replicas too, have added to grad. `updates` is how many the stage has had before, over all steps:
 * what an optimizer counts. `first_grad` is 1 for the first B or W of the stage in this step, or
 * since its last U. Bits of the result may depend only on the contents of what is read, never on
 * addresses or time: parity is bit for bit. */
typedef struct PrCall {
  PipeOp op;
  uint32_t rank, stage, nstage, mb, nmb;
  uint32_t slice, nslice; /* 0 and 1 without slices */
  uint64_t step;
  const void *x, *dy;
  void *y, *dx, *act, *gout, *weight, *grad, *opt, *work;
  void *const *past;
  double *loss; /* of the slice: that of a microbatch is their sum */
  int first_grad;
  int recomputed; /* F: R makes the stash that B and W take; what F keeps is lost */
  uint32_t nx, ny;
  const void *const *xs, *const *dys; /* [nx], [ny]; NULL where x, dy are of no use */
  void *const *ys, *const *dxs;       /* [ny], [nx] */
  /* On a device (pipe_cuda.h) all tensors, `work` and `loss` are in its memory, and the callback
   * puts its work on this stream, in order, and returns without waiting for it; NULL: the callback
   * does the work. The arrays above are the host's and stay as they are. step_at: device memory
   * with the number of the step at the time of the work, which may be another one than `step` if
   * the step is replayed from a graph; `updates` is then (*step_at - step) * nupdate more, nupdate
   * being how many of them the stage has in a step. */
  void *stream;
  const uint64_t *step_at;
  uint32_t nupdate;
  /* SIDE, in any stream: its name; the buffer that it takes, at the same place in every step and
   * its own until it is given back, and that which it gives back; NULL: none. mb is PIPE_NONE if it
   * is of no microbatch. There are weight, grad and opt, too; but where weights have versions only
   * in COMPUTE a weight, the newest. */
  const char *side;
  void *taken, *given;
  uint64_t taken_bytes, given_bytes;
  const void *newest;
  double rate;
  uint32_t version, applied;
  uint64_t updates;
} PrCall;

/* The type of an element, by the name that safetensors has for it. */
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

/* A tensor that the model keeps from step to step: shape[0] * .. * shape[ndim - 1] elements, which
 * lie in a stage's weights or optimizer state from byte `at` on, the last dimension innermost. */
enum { PR_NAME = 128, PR_DIMS = 8 };
typedef enum PrTensorOf { PR_WEIGHT, PR_OPT } PrTensorOf;
typedef struct PrTensor {
  char name[PR_NAME]; /* UTF-8; the same in whatever stage it lies */
  PrTensorOf of;
  PrDtype dtype;
  uint64_t at;
  uint32_t ndim;
  uint64_t shape[PR_DIMS];
} PrTensor;

/* A model: callbacks that return 0, or any other number to fail the run (it is in the text). They
 * are called from the threads of the engine, at most one call per rank at a time, and never twice
 * at once for one row of the stage table; rows that are replicas run at the same time. `side` is
 * called beside them: at most one call per stream of a rank at a time. */
typedef struct PrModel {
  void *self;
  uint32_t nstage; /* must equal the program's nmodel */
  int (*sizes)(void *self, uint32_t stage, PrSizes *out); /* out: all zero */
  int (*init)(void *self, uint32_t stage, void *weight, void *opt); /* grad and opt come zeroed; opt
                            is NULL if the program is forward-only: it has no gradients either */
  int (*forward)(void *self, const PrCall *c); /* F and R: the same bits both times */
  int (*backward)(void *self, const PrCall *c);        /* B; may be NULL if the program has none */
  int (*backward_input)(void *self, const PrCall *c);  /* I; same */
  int (*backward_weight)(void *self, const PrCall *c); /* W; same */
  int (*update)(void *self, const PrCall *c);          /* U; may be NULL if forward-only */
  /* REDUCE: adds up `bytes` bytes at grad[0] .. grad[n-1] of `stage`, in this order, element by
   * element, and leaves the sum in each. These are whole gradients or, where processes share the
   * work, one piece of each; pieces begin at multiples of 64 bytes, and end there or with the
   * gradient. No other op of the stage has the gradients meanwhile. NULL if the program has no
   * replicas. */
  int (*reduce)(void *self, uint32_t stage, void *const *grad, uint32_t n, uint64_t bytes);
  /* TIE: the same of what the stages stage[0] .. stage[n-1], which ascend, share: the first
   * PrSizes.tied bytes of their gradients. Replicas have been reduced before and get the same bits.
   * NULL if the program ties no stages. */
  int (*tie)(void *self, const uint32_t *stage, void *const *grad, uint32_t n, uint64_t bytes);
  /* All ops of an action of several at once, in the order of the text, to be carried out in any
   * order or side by side: none needs what another makes, and they share only `work` and, on one
   * stage, weight and grad, but beside a U there is no other op of its stage. NULL: they are called
   * one after the other. */
  int (*overlap)(void *self, const PrCall *c, uint32_t n);
  uint32_t nslice; /* must equal the program's slices; 0 is 1: whole microbatches */
  /* SIDE: an op that the schedule declares, by c->side its name. What it needs is done when it is
   * called, and what is attached behind it waits for its return; what it does beside that is the
   * model's affair. NULL if the program has none. */
  int (*side)(void *self, const PrCall *c);
  /* What checkpoints call the tensors: tensor i of a stage; non-zero: there are only i. Together
   * they are all bytes of `weight` and `opt`. No two weights of the model have one name, nor two
   * tensors of its optimizer state. NULL: `weight` and `opt` of a stage are a tensor of bytes each,
   * and a checkpoint goes on with as many stages as it was written with, on any ranks. */
  int (*tensor)(void *self, uint32_t stage, uint32_t i, PrTensor *out);
  const char *identity; /* one line that says what else a checkpoint must be of; NULL: "" */
  /* For schedules with formulas (pipe_formula.h), else 0 and NULL. elem: 4 says that weight and
   * grad are arrays of float. lr: the learning rate that update number `update` of the stage uses,
   * without PrCall.rate. moment: the byte of opt at which its optimizer keeps the first (0) or
   * second (1) moment of the weights, an array like them; -1: it has none. */
  uint32_t elem;
  double (*lr)(void *self, uint32_t stage, uint64_t update);
  int64_t (*moment)(void *self, uint32_t stage, int which);
  /* 1: act and gout lie in memory of the model's own, from the op that makes them to the last one
   * that takes them: they are counted in the bytes of a rank, but not allocated, and NULL in
   * PrCall. A run that fails leaves some. Not with slices, and not where the schedule moves
   * stashes. */
  int holds_stash;
  /* What the callback that has just returned another number than 0, on this thread, has to say: it
   * is added to the text of the run. NULL, here or returned: nothing. */
  const char *(*why)(void *self);
  /* pr_threads: on the thread of each rank, begins = 1 before all other callbacks there and 0 after
   * them, for languages that know the threads which call them. NULL: nothing. */
  void (*thread)(void *self, int begins);
} PrModel;

/* What carries a program out. An engine of processes runs one rank in each; every process then
 * makes the same calls with the same program, in the same order. */
typedef struct PrEngine PrEngine;
extern const PrEngine pr_threads; /* one thread per rank in this process */

/* All zero is the default. */
typedef struct PrOptions {
  uint32_t trace_steps;  /* keep start and end of every instruction of the last so many steps */
  /* > 0: a step that takes longer fails with PR_E_DEADLINE. 0: as PIPE_DEADLINE in the environment
   * says, in seconds; else, with times in ns, ten times what is predicted, and 30 s at least; with
   * times in units 600 s. 1e9 is as good as none. pr_steps then returns at once, pr_close waits for
   * callbacks that still run. Not with a seed */
  double deadline_s;
  /* 1: ranks enter the next step without waiting for one another; they do wait where several stages
   * have no input, or no output */
  int free_running;
  /* After each step, counted from 0, on one thread while all ranks wait; free-running: on the
   * thread of the rank that has the last stage, once that rank is done. Or NULL. An engine of
   * processes calls it in each of them, with the same loss; free-running only in that of the last
   * stage. An engine of devices calls it while the next step runs. */
  void (*on_step)(void *arg, uint64_t step, double loss);
  /* As soon as the loss of a microbatch is final, while the step goes on: on the thread of the rank
   * that has run its last forward. Several ranks may call at once if several stages have no output;
   * then processes that have one rank each do not call it. Or NULL. */
  void (*on_loss)(void *arg, uint64_t step, uint32_t mb, double loss);
  void *arg;
  uint64_t seed;         /* not 0: no threads; pr_steps itself carries out one instruction after the
                            other, picked at random among those that can go on. Replays exactly */
  const PrEngine *engine;     /* NULL: pr_threads. Not with a seed */
  const void *engine_options; /* of that engine, or NULL */
  /* 1: both sides of a transfer compare a checksum of what was sent and what has arrived; other
   * bits are PR_E_MISMATCH */
  int checksums;
} PrOptions;

typedef struct PrRun PrRun;

/* Checks program and model, allocates every slot, starts one thread per rank. On failure *out is
 * still set (unless out of memory: NULL) so that pr_error can tell, and must be closed. */
PrStatus pr_open(PrRun **out, const PipeProgram *p, const PrModel *m, const PrOptions *o);

/* Carries out n more steps; returns when all ranks have done them or one has failed. After a
 * failure every later call returns the same status. */
PrStatus pr_steps(PrRun *run, uint64_t n);

/* What a program that fails with st exits with: 0; 1; or 75 (EX_TEMPFAIL) where starting it again,
 * from its last checkpoint, may help: PR_E_LOST, PR_E_DEADLINE, PR_E_STALL, PR_E_MISMATCH. */
int pr_exit_status(PrStatus st);

const char *pr_error(const PrRun *run);               /* text of the first error, "" if none */
/* what pr_open or pr_resume has to say that is no error; "" */
const char *pr_note(const PrRun *run);
double pr_loss(const PrRun *run);                     /* mean over microbatches, last finished step;
                                                         NaN before the first */
double pr_loss_mb(const PrRun *run, uint32_t mb);
/* newest weights of a row of the stage table, between pr_steps calls; row = stage without replicas.
 * NULL: the row is of another process, or the run has failed, perhaps in the middle of an update */
void *pr_weight(PrRun *run, uint32_t stage);

/* Copies the weights of a row to `to`, whichever process has them: all of them call this alike. */
PrStatus pr_copy_weight(PrRun *run, uint32_t stage, void *to);
/* the rank of this process; PIPE_NONE: it has all */
uint32_t pr_rank(const PrRun *run);
int pr_leads(const PrRun *run);                       /* 1 in exactly one process: that may print */
/* what the engine allocated for the rank, and what the model holds */
uint64_t pr_bytes(const PrRun *run, uint32_t rank);
/* and of it in host memory, not in pr_bytes */
uint64_t pr_host_bytes(const PrRun *run, uint32_t rank);
/* of the whole training, with those resumed from */
uint64_t pr_steps_done(const PrRun *run);

/* Writes what the model needs to go on (weights, optimizer state, step) as a new folder in `dir`,
 * which is made if it is not there; between pr_steps calls, in all processes alike. It counts once
 * it is complete: what ends the run before that, whatever it is, leaves the one before. keep: how
 * many to keep, 0: all. One run at a time writes to a `dir`, whatever names lead to it, from its
 * first checkpoint there to pr_close; the process that leads waits 5 s for another to leave it. A
 * `dir` that has been moved away or removed since is made anew. Its deadline: that of a step, 5 s
 * at least, and what a disk of 50 MB/s needs for weights and optimizer states; those 5 s more while
 * it waits for another run, twice that while it waits for other ranks. PR_E_IO, as of a full disk,
 * leaves the run usable and no new checkpoint; but a complete one if only its file `latest` could
 * not be written, which a resume that finds no `latest` takes. */
PrStatus pr_checkpoint(PrRun *run, const char *dir, uint32_t keep);

/* Goes on from the latest checkpoint in `dir` (its file `latest`; without that the newest complete
 * one), or from the one that `dir` is: after pr_open, before the first pr_steps, in all processes
 * alike. The program may be another one, with other ranks, and where the model names its tensors
 * with other stages. It has the deadline of pr_checkpoint. *step: steps done; 0: there is no
 * checkpoint yet, and nothing has changed. One that is damaged, cut short or of another model is
 * refused and fails the run: the text names the newest older one that is complete, which may be
 * given as `dir`. A program with another number of microbatches goes on; pr_note says so. */
PrStatus pr_resume(PrRun *run, const char *dir, uint64_t *step);

/* Begins with weights of a safetensors file, or of all files that an index names (its own name ends
 * in .json): when pr_resume may be called, or before it. The file has the weights of all stages,
 * with their names, dtypes and shapes, and nothing else; another one is refused, and fails the run.
 * Optimizer states stay as PrModel.init left them. */
PrStatus pr_load_weights(PrRun *run, const char *path);

/* with its lists written out, unless they are rows and this process has one rank */
const PipeProgram *pr_program(const PrRun *run);
void pr_close(PrRun *run);                            /* NULL is fine */

/* Trace: ns on one clock, 0 = start of the oldest step kept. */
typedef struct PrSpan { uint64_t start_ns, end_ns; } PrSpan;
uint32_t pr_trace_steps(const PrRun *run);            /* steps kept, oldest first */
const PrSpan *pr_trace(const PrRun *run, uint32_t step, uint32_t rank); /* [rank[r].ninstr] */

/* Measured summary of the kept steps: makespan of the mean step, and idle share of rank-time. */
typedef struct PrMeasure { double makespan_ns, busy_ns, bubble; } PrMeasure;
PrStatus pr_measure(const PrRun *run, PrMeasure *out);

/* Writes the kept steps as tracks that Perfetto and chrome://tracing open. With the options of the
 * program, pipec FILE --emit=svg --with=PATH draws them over the prediction. A regular file is
 * replaced only when the new one is complete, behind a symbolic link the file it leads to; a device
 * or a pipe is written to. PR_E_IO if no step was kept. */
PrStatus pr_write_trace(PrRun *run, const char *path);

/* Writes what the kept steps took as a profile for pipec --profile=FILE (lang/spec.md 6): the
 * median of each kind of op on each stage in ns, of transfers the least, which waited least, and
 * the bytes of the model. A kind that some stage does not run is left out; B is I + W where all
 * backwards are split. The file appears as that of pr_write_trace does. */
PrStatus pr_write_profile(PrRun *run, const char *path);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
