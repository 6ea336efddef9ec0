/* SPDX-License-Identifier: MIT
 * Trains the model of model.h on a text, pipelined by the program it is linked with, and reports
 * what came of it: losses, speed, and how step time, bubble and memory compare with what pipec
 * predicted and proved. With --sequential the same training on one thread and without the engine,
 * for comparison bit by bit (--hash).
 *
 * Progress goes to stderr, results to stdout. Exit status 1: the run failed, or its results could
 * not be written; 75: starting it again with --resume may help (pr_exit_status); 2: usage. */
#include "data.h"
#include "model.h"
#include "sequential.h"
#include "pipe_rows.h"
#ifdef GPT_MPI
#include "pipe_mpi.h"
#endif

#include <inttypes.h>
#include <stddef.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern const PipeProgram pipe_program;

enum { HELD_WINDOWS = 128, REPORT_EVERY = 10, LAST = 10, CHECKPOINTS = 2 };

typedef struct Options {
  const char *data, *perfetto, *profile, *weights, *checkpoint,
      *resume_from; /* resume_from: not the latest */
  uint64_t every;   /* steps from one checkpoint to the next */
  int resume;
  uint64_t trace;
  int sequential, hash;
  const PrEngine *engine;
  uint64_t held_bytes, text_bytes; /* of the text: held out, all */
} Options;

static const struct {
  const char *name;
  const PrEngine *engine;
} engines[] = {
#ifdef GPT_MPI
    {"mpi", &pr_mpi},
#endif
    {"threads", &pr_threads},
};

/* What on_step needs, and what it collects. */
typedef struct Progress {
  const GptConfig *config;
  uint64_t tokens; /* of a step */
  double start_s;
  double *loss;   /* [config->steps], from step `first` on */
  uint64_t first; /* step that this run begins with */
  int tty, quiet;
  PrRun *run; /* NULL: without an engine */
} Progress;

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void on_step(void *arg, uint64_t step, double loss) {
  Progress *p = arg;
  uint64_t steps = p->config->steps, done = step + 1;
  p->loss[step] = loss;
  if (p->quiet || (p->run && !pr_leads(p->run)) ||
      (!p->tty && done % REPORT_EVERY && done != steps && step))
    return;
  double spent = now_s() - p->start_s,
         left = spent / (double)(done - p->first) * (double)(steps - done);
  fprintf(stderr, "%sstep %" PRIu64 "/%" PRIu64 "  loss %.4f  %.0f tokens/s  %.0f s left%s",
          p->tty ? "\r" : "", done, steps, loss, (double)((done - p->first) * p->tokens) / spent,
          left, p->tty ? (done == steps ? "   \n" : "   ") : "\n");
  fflush(stderr);
}

/* ---- held-out loss --------------------------------------------------------------------------- */

/* Weights of the stages, from the engine or from the sequential run. */
typedef struct Source {
  PrRun *run;
  Seq *seq;
} Source;

/* Copies the weights of a stage to `to`, which has room for them; all processes do so alike. */
static int copy_weights(const Source *from, uint32_t stage, uint64_t bytes, void *to) {
  if (from->run)
    return pr_copy_weight(from->run, stage, to) != PR_OK;
  memcpy(to, from->seq->stage[stage].weight, bytes);
  return 0;
}

static int leads(const Source *from) { return !from->run || pr_leads(from->run); }

/* Mean loss over the held-out windows, forward only, stage after stage. s: a Seq whose model walks
 * the held-out text. Negative on failure (the reason is in s->error, or the run's). */
static double held_loss(Seq *s, const Source *from, const GptConfig *g) {
  uint32_t nmb = (HELD_WINDOWS + g->batch - 1) / g->batch;
  double sum = 0, loss = 0;
  for (uint32_t i = 0; i < s->model.nstage; i++)
    if (copy_weights(from, i, s->stage[i].size.weight, s->stage[i].weight))
      return -1;
  if (!leads(from))
    return 0; /* nobody asks it */
  for (uint32_t mb = 0; mb < nmb; mb++) {
    for (uint32_t i = 0; i < s->model.nstage; i++)
      if (seq_op(s, PIPE_F, i, 0, mb, nmb, &loss))
        return -1;
    sum += loss;
  }
  return sum / nmb;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Every loss and a hash (FNV-1a) of all weights, in the order of the whole model. 0, or 1 on
 * failure. */
static int print_hash(const Source *from, const GptModel *m, const Progress *p) {
  uint64_t h = 0xcbf29ce484222325u;
  for (uint32_t i = 0; i < m->nstage; i++) {
    uint64_t bytes = gpt_weights(m, i) * sizeof(real);
    uint8_t *w = malloc(bytes);
    if (!w || copy_weights(from, i, bytes, w)) {
      free(w);
      return 1;
    }
    for (uint64_t k = 0; k < bytes; k++)
      h = (h ^ w[k]) * 0x100000001b3u;
    free(w);
  }
  if (!leads(from))
    return 0;
  for (uint64_t i = p->first; i < m->config.steps; i++)
    printf("loss %" PRIu64 " %a\n", i, p->loss[i]);
  printf("weights %016" PRIx64 "\n", h);
  return 0;
}

static long cores(void) {
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? n : 1;
}

/* Step time and bubble, measured against predicted. A prediction is for one core per rank; with
 * fewer cores than ranks, ops share them, and all that holds is that a step takes no less than its
 * compute divided by the cores. */
static void print_schedule(PrRun *run) {
  const PipeProgram *p = &pipe_program;
  PrMeasure got;
  if (pr_measure(run, &got)) {
    printf("step              not measured: no step was traced\n");
    return;
  }
  double ms = got.makespan_ns / 1e6, predicted = (double)p->makespan / 1e6,
         busy = (double)p->busy / 1e6;
  uint32_t kept = pr_trace_steps(run);
  printf("step              %.1f ms measured (mean of the last %u)", ms, kept);
  if (!p->timed) {
    printf("\nbubble            %.1f %% measured\n", 100 * got.bubble);
    printf("                  no prediction: the schedule was compiled without a profile\n");
    return;
  }
  double bubble = 1 - busy / (predicted * p->nrank);
  printf(", %.1f ms predicted with a core per rank\n", predicted);
  printf("bubble            %.1f %% measured, %.1f %% predicted with a core per rank\n",
         100 * got.bubble, 100 * bubble);
  long ncore = cores();
  if (ncore < (long)p->nrank) {
    double least = busy / (double)ncore > predicted ? busy / (double)ncore : predicted;
    printf(
        "                  Here %u ranks share %ld core%s. A step has %.1f ms of compute, so no\n"
        "                  schedule is below max(%.1f, %.1f / %ld) = %.1f ms: this run is at\n"
        "                  %.2f times that. An op that waits for a core counts as busy, so the\n"
        "                  measured bubble says little; a core per rank shows the predicted one.\n",
        p->nrank, ncore, ncore > 1 ? "s" : "", busy, predicted, busy, ncore, least, ms / least);
  }
}

static void print_memory(PrRun *run, const Seq *held, uint64_t text_bytes) {
  const PipeProgram *p = &pipe_program;
  for (uint32_t r = 0; r < p->nrank; r++) {
    uint64_t got = pr_bytes(run, r), bound = p->rank[r].bytes;
    printf("%-17s rank %u: %.2f MiB allocated", r ? "" : "memory", r, (double)got / (1 << 20));
    if (p->sized)
      printf(", %.2f MiB proved%s", (double)bound / (1 << 20),
             got == bound  ? " (equal to the byte)"
             : got < bound ? ""
                           : " (EXCEEDED)");
    printf(", %u in flight\n", p->rank[r].inflight);
  }
  printf(
      "                  besides: %.2f MiB for the held-out loss (weights, one stash, workspace), "
      "%.2f MiB of text\n",
      (double)held->bytes / (1 << 20), (double)text_bytes / (1 << 20));
}

/* before, after: held-out losses. */
static void print_results(const Progress *p, double seconds, double before, double after) {
  uint64_t steps = p->config->steps, done = steps - p->first, n = done < LAST ? done : LAST;
  double last = 0;
  for (uint64_t i = steps - n; i < steps; i++)
    last += p->loss[i] / (double)n;
  if (done > 0)
    printf("training loss     %.4f in the first step, %.4f over the last %" PRIu64
           " (nats per byte)\n",
           p->loss[p->first], last, n);
  printf("held-out loss     %.4f before, %.4f after (%u windows that were not trained on)\n",
         before, after, HELD_WINDOWS);
  printf("speed             %.0f tokens/s: %" PRIu64 " steps of %" PRIu64 " tokens in %.1f s\n",
         (double)(done * p->tokens) / seconds, done, p->tokens, seconds);
}

static void print_start(const GptModel *m, const Options *o) {
  const PipeProgram *p = &pipe_program;
  const GptConfig *g = &m->config;
  const Text *text = m->text;
  uint64_t count = 0;
  for (uint32_t i = 0; i < p->nmodel; i++)
    count += gpt_weights(m, i);
  fprintf(stderr,
          "gpt: %u layers, d %u, %.2f million weights in %u stages; %s %s, %u ranks on %ld cores\n"
          "     %s: %.2f MB to train on, %.2f MB held out\n"
          "     BLAS kernels: %s\n",
          g->layers, g->d, (double)count / 1e6, p->nmodel, p->name, p->params, p->nrank, cores(),
          o->data, (double)text->len / 1e6, (double)o->held_bytes / 1e6, gpt_kernels());
}

/* ---- the two ways to train ------------------------------------------------------------------- */

static int fail(const char *what, const char *why) {
  fprintf(stderr, "gpt: %s%s%s\n", what, *why ? ": " : "", why);
  return 1;
}

/* Microbatches in the order in which the program adds their gradients up, replica after replica:
 * order[nmb], and where each replica ends: end[]. Returns how many there are; 0 if stages do it in
 * different orders, or slices of different microbatches take turns. */
static uint32_t gradient_order(const PipeProgram *p, uint32_t *order, uint32_t *end) {
  uint32_t n = 0, nreplica = 0, row = 0, Q = pipe_slices(p); /* n: units */
  do {
    for (uint32_t stage = 0; stage < p->nmodel; stage++) {
      uint32_t at = stage, begin = nreplica ? Q * end[nreplica - 1] : 0;
      for (uint32_t k = 0; k < nreplica; k++)
        at = p->stage[at].replica;
      const PipeRank *r = &p->rank[p->stage[at].rank];
      n = begin;
      for (uint32_t i = 0; i < r->ninstr; i++) {
        const PipeInstr *c = &r->instr[i];
        if (c->stage != at || (c->op != PIPE_B && c->op != PIPE_W))
          continue;
        if (stage == 0 && n % Q == 0)
          order[n / Q] = c->mb / Q;
        if (order[n / Q] * Q + (Q - 1 - n % Q) != c->mb) /* the last slice first */
          return 0;
        n++;
      }
    }
    end[nreplica++] = n / Q;
  } while ((row = p->stage[row].replica) != 0);
  return nreplica;
}

/* What the run says; the status that a program ends with then. */
static int fail_run(PrRun *run) {
  int code = pr_exit_status(pr_steps(run, 0));
  fail("run", pr_error(run));
  return code ? code : 1; /* a file could not be written */
}

static int train_sequential(GptModel *m, Progress *p, Seq *held, const Options *o) {
  PrModel model = gpt_model(m);
  Seq s;
  Source from = {NULL, &s};
  const PipeProgram *prog = &pipe_program;
  uint32_t nmb = prog->nmb / pipe_slices(prog), nreplica = 0;
  double *loss = calloc(nmb, sizeof *loss), before = 0, after = 0;
  uint32_t *order = calloc(nmb, sizeof *order), *end = calloc(prog->nstage, sizeof *end);
  char why[PIPE_EXPAND_TEXT];
  PipeProgram *lists = pipe_expand(prog, why);
  if (loss && order && end && lists)
    nreplica = gradient_order(lists, order, end);
  pipe_expand_free(lists);
  if (nreplica == 0) {
    free(loss);
    free(order);
    free(end);
    return fail(loss && order && end ? "--sequential: the stages add gradients in different orders"
                                     : "out of memory",
                lists ? "" : why);
  }
  int bad = seq_open(&s, &model, 0);
  if (!bad && !o->hash)
    print_start(m, o);
  if (!bad && !o->hash)
    bad = (before = held_loss(held, &from, &m->config)) < 0;
  p->start_s = now_s();
  for (uint64_t step = 0; !bad && step < m->config.steps; step++) {
    bad = seq_step_ordered(&s, step, order, end, nreplica, 0, loss);
    double sum = 0;
    for (uint32_t mb = 0; mb < nmb; mb++)
      sum += loss[mb];
    if (!bad)
      on_step(p, step, sum / nmb);
  }
  double seconds = now_s() - p->start_s;
  if (!bad && !o->hash)
    bad = (after = held_loss(held, &from, &m->config)) < 0;
  if (bad)
    fail("sequential run", s.error ? s.error : held->error);
  else if (o->hash)
    bad = print_hash(&from, m, p);
  else
    print_results(p, seconds, before, after);
  seq_close(&s);
  free(order);
  free(end);
  free(loss);
  return bad;
}

/* Up to `steps`, with checkpoints on the way and at the end. */
static int train_steps(PrRun *run, uint64_t steps, const Options *o) {
  int bad = 0;
  while (!bad && pr_steps_done(run) < steps) {
    uint64_t done = pr_steps_done(run), n = steps - done;
    if (o->checkpoint && o->every - done % o->every < n)
      n = o->every - done % o->every;
    bad = pr_steps(run, n) != PR_OK ||
          (o->checkpoint && pr_checkpoint(run, o->checkpoint, CHECKPOINTS) != PR_OK);
  }
  return bad;
}

static int train_pipelined(GptModel *m, Progress *p, Seq *held, const Options *o) {
  PrModel model = gpt_model(m);
  PrRun *run = NULL;
  Source from = {0};
  PrOptions options = {.trace_steps = o->hash ? 0 : (uint32_t)o->trace,
                       .on_step = on_step,
                       .arg = p,
                       .engine = o->engine};
  double before = 0, after = 0, seconds = 0;
  int bad = pr_open(&run, &pipe_program, &model, &options) != PR_OK;
  from.run = p->run = run;
  const char *dir = o->resume_from ? o->resume_from : o->checkpoint;
  if (!bad && o->weights)
    bad = pr_load_weights(run, o->weights) != PR_OK;
  if (!bad && o->resume && !(bad = pr_resume(run, dir, &p->first) != PR_OK) && leads(&from)) {
    if (p->first > 0)
      fprintf(stderr, "gpt: goes on after step %" PRIu64 " of %s\n", p->first, dir);
    else
      fprintf(stderr, "gpt: no checkpoint in %s yet: begins at the beginning\n", dir);
    if (*pr_note(run))
      fprintf(stderr, "gpt: %s\n", pr_note(run));
  }
  if (!bad && p->first > m->config.steps)
    bad = fail("--steps", "the checkpoint has more");
  if (!bad && !o->hash && leads(&from))
    print_start(m, o);
  if (!bad && !o->hash && (before = held_loss(held, &from, &m->config)) < 0)
    bad = fail("held-out loss", held->error);
  if (!bad) {
    p->start_s = now_s();
    bad = train_steps(run, m->config.steps, o);
    seconds = now_s() - p->start_s;
  }
  if (!bad && !o->hash && (after = held_loss(held, &from, &m->config)) < 0)
    bad = fail("held-out loss", held->error);
  if (!bad && o->hash)
    bad = print_hash(&from, m, p);
  if (!bad && !o->hash && leads(&from)) {
    print_results(p, seconds, before, after);
    print_schedule(run);
    print_memory(run, held, o->text_bytes);
    if (o->perfetto && o->trace && !(bad = pr_write_trace(run, o->perfetto) != PR_OK))
      printf("trace             %s; pipec, with the options of this program and\n"
             "                  --emit=svg --with=%s, draws it over the prediction\n",
             o->perfetto, o->perfetto);
    if (!bad && o->profile && o->trace && !(bad = pr_write_profile(run, o->profile) != PR_OK))
      printf("profile           %s\n", o->profile);
  }
  if (!run)
    fail("out of memory", "");
  else if (*pr_error(run))
    bad = fail_run(run);
  pr_close(run);
  return bad;
}

/* ---- command line ---------------------------------------------------------------------------- */

typedef enum Takes {
  FLAG,
  NAME,
  NUMBER,
  ENGINE
} Takes; /* int, const char *, uint64_t, PrEngine * */

/* The options beside those of the model (config.c). */
typedef struct Option {
  const char *name, *value, *help;
  Takes takes;
  size_t at;            /* in Options: where the value goes */
  uint64_t least, most; /* of a NUMBER */
} Option;

static const Option option[] = {
    {"--data", "FILE", "the text to train on; examples/gpt/corpus.sh FILE makes one", NAME,
     offsetof(Options, data), 0, 0},
    {"--trace", "N", "keep the times of the last N steps (default 32)", NUMBER,
     offsetof(Options, trace), 0, 1u << 20},
    {"--perfetto", "FILE", "these times, for ui.perfetto.dev and pipec --with=FILE", NAME,
     offsetof(Options, perfetto), 0, 0},
    {"--profile", "FILE", "what they took, for pipec --profile=FILE", NAME,
     offsetof(Options, profile), 0, 0},
    {"--weights", "FILE", "begin with those of a safetensors file, or of the files of its index",
     NAME, offsetof(Options, weights), 0, 0},
    {"--checkpoint", "DIR", "write what is needed to go on, in the end and", NAME,
     offsetof(Options, checkpoint), 0, 0},
    {"--every", "N", "every N steps (default 50)", NUMBER, offsetof(Options, every), 1, UINT32_MAX},
    {"--resume", "", "go on from the latest in DIR", FLAG, offsetof(Options, resume), 0, 0},
    {"--resume-from", "FOLDER", "go on from that one, as DIR/step-100.1", NAME,
     offsetof(Options, resume_from), 0, 0},
    {"--sequential", "", "one thread, no engine: the results to compare with", FLAG,
     offsetof(Options, sequential), 0, 0},
    {"--engine", "threads|mpi", "a thread or a process per rank (mpirun; where built with MPI)",
     ENGINE, offsetof(Options, engine), 0, 0},
    {"--hash", "", "print only every loss and a hash of the final weights", FLAG,
     offsetof(Options, hash), 0, 0},
};

static void print_usage(FILE *f) {
  fprintf(f, "usage: train --data FILE [options]\n%s", gpt_options);
  for (size_t k = 0; k < sizeof option / sizeof *option; k++) {
    int at = fprintf(f, "  %s %s", option[k].name, option[k].value);
    fprintf(f, "%*s%s\n", at < 31 ? 31 - at : 1, "", option[k].help);
  }
}

static int usage(const char *why, const char *what) {
  fprintf(stderr, "gpt: %s%s\n", why, what);
  print_usage(stderr);
  return 2;
}

/* Reads option `name`, one of the table, into *o. 0, or the exit status of a wrong one. */
static int read_option(Options *o, const Option *x, const char *value) {
  void *to = (char *)o + x->at;
  switch (x->takes) {
  case FLAG: *(int *)to = 1; return 0;
  case NAME: *(const char **)to = value; return *value ? 0 : usage("needs a file: ", x->name);
  case NUMBER: {
    int done = gpt_number(value, x->least, x->most, to);
    return done < 0 ? usage(gpt_number_error(done), x->name) : 0;
  }
  case ENGINE:
    for (size_t k = 0; k < sizeof engines / sizeof *engines; k++)
      if (!strcmp(engines[k].name, value)) {
        *(const PrEngine **)to = engines[k].engine;
        return 0;
      }
    return usage("no such engine in this program: ", value);
  }
  return 0;
}

int main(int argc, char **argv) {
  gpt_choose_kernels(argv);
  signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error like a full disk */
  signal(SIGXFSZ, SIG_IGN); /* and so is a limit of file sizes */
  const PipeProgram *prog = &pipe_program;
  GptConfig g = gpt_default;
  Options o = {.trace = 32, .every = 50, .engine = engines[0].engine};
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    int done = gpt_config_option(&g, argv[i], value), status;
    if (done < 0)
      return usage(gpt_number_error(done), argv[i]);
    if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
      print_usage(stdout);
      return gpt_finish("gpt");
    }
    const Option *x = option, *end = option + sizeof option / sizeof *option;
    while (x < end && strcmp(x->name, argv[i]))
      x++;
    if (x == end && !done)
      return usage("unknown option ", argv[i]);
    if (x < end && (status = read_option(&o, x, value)))
      return status;
    i += x == end || x->takes != FLAG;
  }
  o.resume |= o.resume_from != NULL;
  if (!o.data)
    return usage("--data FILE is needed", "");
  if (o.resume && !o.checkpoint && !o.resume_from)
    return usage("--resume needs --checkpoint DIR", "");
  if (o.sequential && (o.checkpoint || o.weights))
    return usage("--checkpoint and --weights are of the engines, not of --sequential", "");
  if (g.slices > 1 && g.slices != pipe_slices(prog))
    return usage("--slices is the number that the schedule has", "");
  g.slices = pipe_slices(prog);
  const char *error = gpt_config_error(&g, prog->nmodel);
  if (error)
    return usage(error, "");

  Data data;
  uint32_t held_rows = (HELD_WINDOWS + g.batch - 1) / g.batch * g.batch;
  error = data_open(&data, o.data, g.seq, g.batch, g.seed, held_rows);
  if (error)
    return fail(o.data, error);
  GptModel m = {.config = g, .nstage = prog->nmodel, .window = text_draw, .text = &data.train};
  GptConfig whole = g; /* rows that are not cut have the same loss */
  whole.slices = 1;
  GptModel walk = {
      .config = whole, .nstage = prog->nmodel, .window = text_walk, .text = &data.held};
  PrModel walk_model = gpt_model(&walk);
  walk_model.update = NULL; /* forward only */
  o.held_bytes = data.held.len, o.text_bytes = data.len;
  Progress p = {.config = &g,
                .tokens = (uint64_t)prog->nmb / g.slices * g.batch * g.seq,
                .loss = calloc(g.steps, sizeof(double)),
                .tty = isatty(2),
                .quiet = o.hash};
  Seq held = {0};
  int bad = 1;
  if (!p.loss || (!o.hash && seq_open(&held, &walk_model, 0))) {
    fail("out of memory", "");
  } else {
    bad = (o.sequential ? train_sequential : train_pipelined)(&m, &p, &held, &o);
  }
  seq_close(&held);
  free(p.loss);
  data_close(&data);
  int finished = gpt_finish("gpt");
  return bad ? bad : finished;
}
