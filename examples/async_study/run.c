/* SPDX-License-Identifier: MIT
 * One run of the study: compiles a schedule in this process, trains a model with it on the threads
 * engine, and prints what came of it as one JSON object on stdout. study.py makes the runs and
 * draws them.
 *
 * Every run trains on the same samples in the same order, whatever the schedule: sample number i of
 * the run is row i % rows of microbatch i / rows, counted over all steps. An update applies the
 * mean gradient of --round microbatches.
 *
 * With --times 1 nothing is trained: it prints when the loss of each point of the curve is there.
 *
 * Times are predictions of pipec for a device per rank, in units of what one device needs for the
 * forward of one sample through the whole model; a backward takes two of them, transfers none, and
 * all stages take the same time. Bytes are those that pipec proves and the engine takes.
 *
 * Exit status 1: a run that failed; 2: usage. A loss that is no number is a result, not a failure.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "lower.h"
#include "pipe_run.h"
#include "pipe_sim.h"
#include "pipec.h"
#include "study.h"
#include "weights.h"

enum { MOST_DEFINES = 16, CURVE = 100 }; /* CURVE: points of the curve that is printed */

typedef struct Args {
  const char *model, *data, *schedule, *stdlib, *scratch;
  Define define[MOST_DEFINES];
  uint32_t ndefine;
  StudyConfig c;
  bool times;
} Args;

static int usage(const char *why, const char *what) {
  fprintf(stderr, "async_study_run: %s%s\n", why, what);
  fprintf(
      stderr,
      "usage: async_study_run --model digits|gpt --data FILE --schedule FILE.pipe --stdlib DIR --scratch FILE\n"
      "         [-D NAME=VALUE]... [--rows N] [--round N] [--updates N] [--seed N] [--lr X] [--times 1]\n");
  return 2;
}

static bool whole(const char *text, uint64_t *to) {
  char *end;
  *to = strtoull(text, &end, 10);
  return *text >= '0' && *text <= '9' && !*end;
}

/* 0: all read. */
static int read_args(int argc, char **argv, Args *a) {
  for (int i = 1; i < argc; i += 2) {
    const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
    uint64_t n;
    if (!value)
      return usage("no value for ", name);
    const struct {
      const char *name;
      const char **to;
    } texts[] = {{"--model", &a->model},
                 {"--data", &a->data},
                 {"--schedule", &a->schedule},
                 {"--stdlib", &a->stdlib},
                 {"--scratch", &a->scratch}};
    bool done = false;
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
      if (strcmp(name, texts[k].name) == 0)
        *texts[k].to = value, done = true;
    if (done)
      continue;
    if (strcmp(name, "--lr") == 0) {
      a->c.lr = strtod(value, NULL);
    } else if (strcmp(name, "-D") == 0) {
      const char *is = strchr(value, '=');
      if (!is || a->ndefine == MOST_DEFINES || !whole(is + 1, &n))
        return usage("not NAME=VALUE: ", value);
      char *text = strdup(value);
      if (!text)
        return usage("out of memory", "");
      text[is - value] = '\0';
      a->define[a->ndefine++] = (Define){.name = text, .value = (int64_t)n};
    } else if (!whole(value, &n)) {
      return usage("not a number: ", value);
    } else if (strcmp(name, "--times") == 0) {
      a->times = n != 0;
    } else if (strcmp(name, "--rows") == 0) {
      a->c.rows = (uint32_t)n;
    } else if (strcmp(name, "--round") == 0) {
      a->c.round = (uint32_t)n;
    } else if (strcmp(name, "--updates") == 0) {
      a->c.updates = n;
    } else if (strcmp(name, "--seed") == 0) {
      a->c.seed = n;
    } else {
      return usage("unknown option ", name);
    }
  }
  if (!a->model || !a->data || !a->schedule || !a->stdlib || !a->scratch)
    return usage("--model, --data, --schedule, --stdlib and --scratch are needed", "");
  if (a->c.rows == 0 || a->c.round == 0 || a->c.updates == 0)
    return usage("rows, round and updates are at least 1", "");
  return 0;
}

/* A profile with the model's sizes and times; every stage takes the same part of the whole. */
static bool write_profile(const Args *a, const Study *study, uint32_t nstage) {
  FILE *f = fopen(a->scratch, "w");
  if (!f)
    return false;
  uint64_t forward = (uint64_t)a->c.rows * STUDY_UNIT / nstage;
  fprintf(f, "{\"pipe_profile\": 1, \"stages\": [");
  for (uint32_t s = 0; s < nstage; s++) {
    PrSizes z = {0};
    study->model.sizes(study->model.self, s, &z);
    fprintf(f,
            "%s{\"F\": %" PRIu64 ", \"B\": %" PRIu64 ", \"act\": %" PRIu64 ", \"gout\": %" PRIu64
            ", \"boundary\": %" PRIu64 ", \"weight\": %" PRIu64 ", \"grad\": %" PRIu64
            ", \"opt\": %" PRIu64 ", \"work\": %" PRIu64 "}",
            s ? ",\n" : "", forward, 2 * forward, z.act, z.gout, z.boundary, z.weight, z.grad,
            z.opt, z.work);
  }
  fprintf(f, "]}\n");
  return fclose(f) == 0;
}

/* Losses as they come; several ranks do not call at once, since one stage has the loss. */
typedef struct Losses {
  double *loss; /* [microbatches of the run] */
  uint64_t n;
  uint32_t nmb;
} Losses;
static void on_loss(void *arg, uint64_t step, uint32_t mb, double loss) {
  Losses *l = arg;
  uint64_t at = step * l->nmb + mb;
  if (at < l->n)
    l->loss[at] = loss;
}

static void number(const char *name, double v, const char *end) {
  if (isfinite(v))
    printf("\"%s\": %.6g%s", name, v, end);
  else
    printf("\"%s\": null%s", name, end);
}

/* Mean losses of CURVE parts of the run. */
static void print_curve(const Losses *l, uint32_t rows) {
  const char *comma = "";
  printf("\"curve\": [");
  for (uint64_t i = 0; i < CURVE; i++) {
    uint64_t lo = i * l->n / CURVE, hi = (i + 1) * l->n / CURVE;
    double sum = 0;
    for (uint64_t k = lo; k < hi; k++)
      sum += l->loss[k];
    if (hi == lo)
      continue;
    sum /= (double)(hi - lo);
    printf("%s[%" PRIu64 ", ", comma, hi * rows);
    comma = ", ";
    if (isfinite(sum))
      printf("%.5g]", sum);
    else
      printf("null]");
  }
  printf("],\n");
}

/* When the last stage has run the forward of each point's last microbatch. */
static int print_times(const Args *a, Sched *s) {
  const PipeProgram *p = s->prog;
  uint64_t n = a->c.updates * a->c.round, **end;
  program_times(s->arena, s->prog, &end);
  uint64_t *ends = calloc(p->nmb, sizeof *ends);
  const char *comma = "";
  if (!ends)
    return 1;
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
      const PipeInstr *in = &p->rank[r].instr[i];
      if (in->op == PIPE_F && p->stage[in->stage].next == PIPE_NONE)
        ends[in->mb] = end[r][i];
    }
  printf("{\"times\": [");
  for (uint64_t i = 0; i < CURVE; i++) {
    uint64_t last = (i + 1) * n / CURVE;
    if (last == i * n / CURVE)
      continue;
    last--;
    printf("%s[%" PRIu64 ", %.6g]", comma, (last + 1) * a->c.rows,
           (double)(last / p->nmb * p->makespan + ends[last % p->nmb]) / STUDY_UNIT);
    comma = ", ";
  }
  printf("]}\n");
  free(ends);
  return 0;
}

static void print_ranks(const Sched *s) {
  const PipeProgram *p = s->prog;
  const char *names[] = {"bytes", "weight_bytes", "act_bytes", "versions", "delay", "discrepancy"};
  for (int field = 0; field < 6; field++) {
    printf("\"%s\": [", names[field]);
    for (uint32_t r = 0; r < p->nrank; r++) {
      const Peak *k = &s->lowered->peak[r];
      const uint64_t *b = k->bytes;
      uint64_t v[] = {b[PEAK_total],
                      b[PEAK_weight] + b[PEAK_state] + b[PEAK_guess],
                      b[PEAK_act],
                      k->versions,
                      s->versions->staleness[r],
                      s->versions->discrepancy[r]};
      printf("%s%" PRIu64, r ? ", " : "", v[field]);
    }
    printf("],\n");
  }
}

static int train(const Args *a, Study *study, Sched *s) {
  const PipeProgram *p = s->prog;
  Losses l = {.n = a->c.updates * a->c.round, .nmb = p->nmb};
  uint64_t steps = (l.n + p->nmb - 1) / p->nmb;
  PrOptions o = {
      .on_loss = on_loss, .arg = &l, .deadline_s = 3600}; /* however busy the machine is */
  PrRun *run = NULL;
  const void **weight = calloc(p->nmodel, sizeof *weight);
  double held = NAN, right = NAN;
  l.loss = calloc(l.n, sizeof *l.loss);
  int bad = !l.loss || !weight || pr_open(&run, p, &study->model, &o) || pr_steps(run, steps);
  for (uint32_t i = 0; !bad && i < p->nmodel; i++)
    weight[i] = pr_weight(run, i);
  if (!bad)
    bad = study->held(study, weight, &held, &right);
  if (bad) {
    fprintf(stderr, "async_study_run: %s\n",
            run && *pr_error(run) ? pr_error(run) : "out of memory");
  } else {
    printf("{\"schedule\": \"%s\", \"params\": \"%s\", \"model\": \"%s\", \"seed\": %" PRIu64
           ", \"updates\": %" PRIu64 ",\n",
           p->name, p->params, a->model, a->c.seed, a->c.updates);
    printf("\"ranks\": %u, \"rows\": %u, \"round\": %u, ", p->nrank, a->c.rows, a->c.round);
    number("lr", a->c.lr, ",\n");
    number("time", (double)p->makespan * (double)steps / STUDY_UNIT, ", ");
    number("utilisation", (double)p->busy / ((double)p->makespan * p->nrank), ",\n");
    print_ranks(s);
    print_curve(&l, a->c.rows);
    number("held_loss", held, ", ");
    number("held_right", right, "}\n");
  }
  pr_close(run);
  free(l.loss);
  free(weight);
  return bad;
}

int main(int argc, char **argv) {
  Args a = {.c = {.rows = 32, .round = 1, .updates = 1000, .seed = 1, .lr = 0.02}};
  int status = read_args(argc, argv, &a);
  if (status)
    return status;
  uint32_t nstage = 0;
  for (uint32_t i = 0; i < a.ndefine; i++)
    if (strcmp(a.define[i].name, "P") == 0)
      nstage = (uint32_t)a.define[i].value;
  Study study;
  const char *error = strcmp(a.model, "digits") == 0 ? study_digits(&study, &a.c, a.data, nstage)
                      : strcmp(a.model, "gpt") == 0  ? study_gpt(&study, &a.c, a.data, nstage)
                                                     : "no such model";
  if (error) {
    fprintf(stderr, "async_study_run: %s: %s\n", a.model, error);
    return 1;
  }
  Arena arena = {0};
  Diag diag;
  Options opt = {.out = stdout,
                 .emit = EMIT_NONE,
                 .stdlib = a.stdlib,
                 .input = a.schedule,
                 .profile = a.scratch,
                 .define = a.define,
                 .ndefine = a.ndefine};
  Sched s = {.arena = &arena, .diag = &diag, .opt = &opt};
  diag_init(&diag, &arena, stderr);
  if (!write_profile(&a, &study, nstage)) {
    perror(a.scratch);
    status = 1;
  } else if (!compile_only(&s)) {
    status = 1;
  } else {
    study.nmb = s.prog->nmb;
    status = a.times ? print_times(&a, &s) : train(&a, &study, &s);
  }
  study.close(&study);
  arena_free(&arena);
  for (uint32_t i = 0; i < a.ndefine; i++)
    free((char *)(uintptr_t)a.define[i].name);
  if (fflush(stdout) || ferror(stdout))
    status = 1;
  return status;
}
