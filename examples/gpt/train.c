/* SPDX-License-Identifier: MIT
 * Trains the model of model.h on a text, pipelined by the program it is linked with, and reports
 * what came of it: losses, speed, and how step time, bubble and memory compare with what pipec
 * predicted and proved. With --sequential the same training on one thread and without the engine,
 * for comparison bit by bit (--hash).
 *
 * Progress goes to stderr, results to stdout. Exit status 1: the run failed, or its results could
 * not be written; 2: usage. */
#include "data.h"
#include "model.h"
#include "sequential.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern const PipeProgram pipe_program;

enum { HELD_WINDOWS = 128, REPORT_EVERY = 10, LAST = 10 };

typedef struct Options {
  const char *data, *svg, *perfetto;
  uint32_t trace;
  int sequential, hash;
} Options;

/* What on_step needs, and what it collects. */
typedef struct Progress {
  const GptConfig *config;
  uint64_t tokens; /* of a step */
  double start_s;
  double *loss; /* [config->steps] */
  int tty, quiet;
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
  if (p->quiet || (!p->tty && done % REPORT_EVERY && done != steps && step))
    return;
  double spent = now_s() - p->start_s, left = spent / (double)done * (double)(steps - done);
  fprintf(stderr, "%sstep %" PRIu64 "/%" PRIu64 "  loss %.4f  %.0f tokens/s  %.0f s left%s",
          p->tty ? "\r" : "", done, steps, loss, (double)(done * p->tokens) / spent, left,
          p->tty ? (done == steps ? "   \n" : "   ") : "\n");
  fflush(stderr);
}

/* ---- held-out loss --------------------------------------------------------------------------- */

/* Weights of the stages, from the engine or from the sequential run. */
typedef struct Source {
  PrRun *run;
  Seq *seq;
} Source;
static const void *weights_of(const Source *from, uint32_t stage) {
  return from->run ? pr_weight(from->run, stage) : from->seq->stage[stage].weight;
}

/* Mean loss over the held-out windows, forward only, stage after stage. s: a Seq whose model walks
 * the held-out text. Negative on failure (the reason is in s->error). */
static double held_loss(Seq *s, const Source *from, const GptConfig *g) {
  uint32_t nmb = (HELD_WINDOWS + g->batch - 1) / g->batch;
  double sum = 0, loss = 0;
  for (uint32_t i = 0; i < s->model.nstage; i++)
    memcpy(s->stage[i].weight, weights_of(from, i), s->stage[i].size.weight);
  for (uint32_t mb = 0; mb < nmb; mb++) {
    for (uint32_t i = 0; i < s->model.nstage; i++)
      if (seq_op(s, PIPE_F, i, 0, mb, nmb, &loss))
        return -1;
    sum += loss;
  }
  return sum / nmb;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Every loss and a hash (FNV-1a) of all weights, in the order of the whole model. */
static void print_hash(const Source *from, const GptModel *m, const double *loss) {
  uint64_t h = 0xcbf29ce484222325u;
  for (uint32_t i = 0; i < m->nstage; i++) {
    const uint8_t *w = weights_of(from, i);
    for (uint64_t k = 0; k < gpt_weights(m, i) * sizeof(real); k++)
      h = (h ^ w[k]) * 0x100000001b3u;
  }
  for (uint64_t i = 0; i < m->config.steps; i++)
    printf("loss %" PRIu64 " %a\n", i, loss[i]);
  printf("weights %016" PRIx64 "\n", h);
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

static void print_memory(PrRun *run) {
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
}

/* before, after: held-out losses. */
static void print_results(const Progress *p, double seconds, double before, double after) {
  uint64_t steps = p->config->steps, n = steps < LAST ? steps : LAST;
  double last = 0;
  for (uint64_t i = steps - n; i < steps; i++)
    last += p->loss[i] / (double)n;
  printf("training loss     %.4f in the first step, %.4f over the last %" PRIu64
         " (nats per byte)\n",
         p->loss[0], last, n);
  printf("held-out loss     %.4f before, %.4f after (%u windows that were not trained on)\n",
         before, after, HELD_WINDOWS);
  printf("speed             %.0f tokens/s: %" PRIu64 " steps of %" PRIu64 " tokens in %.1f s\n",
         (double)(steps * p->tokens) / seconds, steps, p->tokens, seconds);
}

/* ---- the two ways to train ------------------------------------------------------------------- */

static int fail(const char *what, const char *why) {
  fprintf(stderr, "gpt: %s%s%s\n", what, *why ? ": " : "", why);
  return 1;
}

/* Microbatches in the order in which the program adds their gradients up, replica after replica: order[nmb],
 * and where each replica ends: end[]. Returns how many there are; 0 if stages do it in different orders. */
static uint32_t gradient_order(const PipeProgram *p, uint32_t *order, uint32_t *end) {
  uint32_t n = 0, nreplica = 0, row = 0;
  do {
    for (uint32_t stage = 0; stage < p->nmodel; stage++) {
      uint32_t at = stage, begin = nreplica ? end[nreplica - 1] : 0;
      for (uint32_t k = 0; k < nreplica; k++)
        at = p->stage[at].replica;
      const PipeRank *r = &p->rank[p->stage[at].rank];
      n = begin;
      for (uint32_t i = 0; i < r->ninstr; i++) {
        const PipeInstr *c = &r->instr[i];
        if (c->stage != at || (c->op != PIPE_B && c->op != PIPE_W))
          continue;
        if (stage == 0)
          order[n] = c->mb;
        if (order[n++] != c->mb)
          return 0;
      }
    }
    end[nreplica++] = n;
  } while ((row = p->stage[row].replica) != 0);
  return nreplica;
}

static int train_sequential(GptModel *m, Progress *p, Seq *held, const Options *o) {
  PrModel model = gpt_model(m);
  Seq s;
  Source from = {NULL, &s};
  const PipeProgram *prog = &pipe_program;
  uint32_t nmb = prog->nmb, nreplica = 0;
  double *loss = calloc(nmb, sizeof *loss), before = 0, after = 0;
  uint32_t *order = calloc(nmb, sizeof *order), *end = calloc(prog->nstage, sizeof *end);
  if (loss && order && end)
    nreplica = gradient_order(prog, order, end);
  if (nreplica == 0) {
    free(loss);
    free(order);
    free(end);
    return fail(loss && order && end ? "--sequential: the stages add gradients in different orders"
                                     : "out of memory",
                "");
  }
  int bad = seq_open(&s, &model, 0);
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
    print_hash(&from, m, p->loss);
  else
    print_results(p, seconds, before, after);
  seq_close(&s);
  free(order);
  free(end);
  free(loss);
  return bad;
}

static int train_pipelined(GptModel *m, Progress *p, Seq *held, const Options *o) {
  PrModel model = gpt_model(m);
  PrRun *run = NULL;
  Source from = {0};
  PrOptions options = {.trace_steps = o->hash ? 0 : o->trace, .on_step = on_step, .arg = p};
  double before = 0, after = 0, seconds = 0;
  int bad = pr_open(&run, &pipe_program, &model, &options) != PR_OK;
  from.run = run;
  if (!bad && !o->hash && (before = held_loss(held, &from, &m->config)) < 0)
    bad = fail("held-out loss", held->error);
  if (!bad) {
    p->start_s = now_s();
    bad = pr_steps(run, m->config.steps) != PR_OK;
    seconds = now_s() - p->start_s;
  }
  if (!bad && !o->hash && (after = held_loss(held, &from, &m->config)) < 0)
    bad = fail("held-out loss", held->error);
  if (!bad && o->hash)
    print_hash(&from, m, p->loss);
  if (!bad && !o->hash) {
    print_results(p, seconds, before, after);
    print_schedule(run);
    print_memory(run);
    if (o->svg && o->trace && !(bad = pr_write_svg(run, o->svg) != PR_OK))
      printf("timeline          %s\n", o->svg);
    if (!bad && o->perfetto && o->trace && !(bad = pr_write_trace(run, o->perfetto) != PR_OK))
      printf("trace             %s\n", o->perfetto);
  }
  if (!run)
    fail("out of memory", "");
  else if (*pr_error(run))
    fail("run", pr_error(run));
  pr_close(run);
  return bad;
}

/* ---- command line ---------------------------------------------------------------------------- */

static int usage(const char *why, const char *what) {
  fprintf(stderr, "gpt: %s%s\n", why, what);
  fprintf(stderr,
          "usage: train --data FILE [options]\n"
          "%s"
          "  --trace N                    keep the times of the last N steps (default 32)\n"
          "  --svg FILE                   draw the last step over the prediction\n"
          "  --perfetto FILE              these steps and the prediction, for ui.perfetto.dev\n"
          "  --sequential                 one thread, no engine: the results to compare with\n"
          "  --hash                       print only every loss and a hash of the final weights\n"
          "examples/gpt/corpus.sh FILE makes a text to train on.\n",
          gpt_options);
  return 2;
}

int main(int argc, char **argv) {
  signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error like a full disk */
  const PipeProgram *prog = &pipe_program;
  GptConfig g = gpt_default;
  Options o = {.trace = 32};
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    int done = gpt_config_option(&g, argv[i], value);
    if (done < 0)
      return usage(gpt_number_error(done), argv[i]);
    if (!strcmp(argv[i], "--sequential") || !strcmp(argv[i], "--hash")) {
      *(argv[i][2] == 's' ? &o.sequential : &o.hash) = 1;
      continue;
    }
    if (!strcmp(argv[i], "--data") || !strcmp(argv[i], "--svg") || !strcmp(argv[i], "--perfetto")) {
      if (!*value)
        return usage("needs a file: ", argv[i]);
      *(argv[i][2] == 'd' ? &o.data : argv[i][2] == 's' ? &o.svg : &o.perfetto) = value;
    } else if (!strcmp(argv[i], "--trace")) {
      uint64_t n;
      if ((done = gpt_number(value, 0, 1u << 20, &n)) < 0)
        return usage(gpt_number_error(done), argv[i]);
      o.trace = (uint32_t)n;
    } else if (!done) {
      return usage("unknown option ", argv[i]);
    }
    i++;
  }
  if (!o.data)
    return usage("--data FILE is needed", "");
  const char *error = gpt_config_error(&g, prog->nmodel);
  if (error)
    return usage(error, "");

  Data data;
  uint32_t held_rows = (HELD_WINDOWS + g.batch - 1) / g.batch * g.batch;
  error = data_open(&data, o.data, g.seq, g.batch, g.seed, held_rows);
  if (error)
    return fail(o.data, error);
  GptModel m = {g, prog->nmodel, text_draw, &data.train};
  GptModel walk = {g, prog->nmodel, text_walk, &data.held};
  PrModel walk_model = gpt_model(&walk);
  uint64_t count = 0;
  for (uint32_t i = 0; i < prog->nmodel; i++)
    count += gpt_weights(&m, i);
  Progress p = {.config = &g,
                .tokens = (uint64_t)prog->nmb * g.batch * g.seq,
                .loss = calloc(g.steps, sizeof(double)),
                .tty = isatty(2),
                .quiet = o.hash};
  Seq held = {0};
  int bad = 1;
  if (!p.loss || (!o.hash && seq_open(&held, &walk_model, 0))) {
    fail("out of memory", "");
  } else {
    if (!o.hash)
      fprintf(
          stderr,
          "gpt: %u layers, d %u, %.2f million weights in %u stages; %s %s, %u ranks on %ld cores\n"
          "     %s: %.2f MB to train on, %.2f MB held out\n",
          g.layers, g.d, (double)count / 1e6, prog->nmodel, prog->name, prog->params, prog->nrank,
          cores(), o.data, (double)data.train.len / 1e6, (double)data.held.len / 1e6);
    bad = (o.sequential ? train_sequential : train_pipelined)(&m, &p, &held, &o);
  }
  seq_close(&held);
  free(p.loss);
  data_close(&data);
  return gpt_finish("gpt") || bad;
}
