/* SPDX-License-Identifier: MIT
 * Trains the tiny model under a schedule and prints the loss of every step and the weights, bit by
 * bit: what tests of engines of processes start, kill and start again.
 *
 *   tiny_train SCHEDULE.pipe [-D NAME=VALUE]... [--steps N] [--engine threads|mpi|cuda] [--seed N]
 *              [--deadline SECONDS] [--stages N] [--checkpoint DIR] [--every N] [--keep N]
 *              [--weights FILE] [--resume] [--checksums] [--also DIR] [--late SECONDS]
 *
 * --also: each checkpoint is written there, too, and then asked for again, which changes nothing.
 * --late: rank 1 resumes so much later than the others, and the model names its tensors, which
 * takes 20 ms each time. --stages: of the model, if not those of the schedule. Exit status: that of
 * pr_exit_status; 2 usage. */
#define _DEFAULT_SOURCE /* nanosleep */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "as_rows.h"
#include "driver.h"
#include "pipe_run.h"
#include "seeded.h"
#include "tiny_model.h"
#ifdef ON_MPI
#include "pipe_mpi.h"
#endif
#ifdef ON_SHIM /* a device that the CPU plays, and one rank of a group, to which nothing comes */
#include "pipe_cuda.h"
#include "shim.h"
#endif

typedef struct Asked {
  const char *file;
  Define define[8];
  uint32_t ndefine, nstage;
  uint64_t steps, every; /* of checkpoints */
  uint32_t keep;
  const char *checkpoint, *also, *weights;
  bool resume, names;
  long late_s;
  PrOptions options;
} Asked;

static int usage(const char *what) {
  fprintf(stderr, "tiny_train: what is %s?\n", what);
  return 2;
}

static bool read_option(Asked *a, char *name, char *value) {
  if (!strcmp(name, "-D") && a->ndefine < 8 && strchr(value, '=')) {
    char *at = strchr(value, '=');
    *at = 0;
    a->define[a->ndefine++] = (Define){.name = value, .value = atoi(at + 1)};
  } else if (!strcmp(name, "--steps")) {
    a->steps = strtoull(value, NULL, 10);
  } else if (!strcmp(name, "--stages")) {
    a->nstage = (uint32_t)strtoul(value, NULL, 10);
  } else if (!strcmp(name, "--every")) {
    a->every = strtoull(value, NULL, 10);
  } else if (!strcmp(name, "--keep")) {
    a->keep = (uint32_t)strtoul(value, NULL, 10);
  } else if (!strcmp(name, "--checkpoint")) {
    a->checkpoint = value;
  } else if (!strcmp(name, "--also")) {
    a->also = value;
  } else if (!strcmp(name, "--weights")) {
    a->weights = value;
  } else if (!strcmp(name, "--late")) {
    a->late_s = strtol(value, NULL, 10);
    a->names = true;
  } else if (!strcmp(name, "--seed")) {
    static uint64_t seed;
    seed = strtoull(value, NULL, 10);
    a->options = seeded_or_threads(a->options, &seed);
  } else if (!strcmp(name, "--deadline")) {
    a->options.deadline_s = strtod(value, NULL);
#ifdef ON_MPI
  } else if (!strcmp(name, "--engine") && !strcmp(value, "mpi")) {
    a->options.engine = &pr_mpi;
#endif
#ifdef ON_SHIM
  } else if (!strcmp(name, "--engine") && !strcmp(value, "cuda")) {
    a->options.engine = &pr_cuda;
#endif
  } else {
    return !strcmp(name, "--engine") && !strcmp(value, "threads");
  }
  return true;
}

static void on_step(void *arg, uint64_t step, double loss) {
  PrRun *run = *(PrRun **)arg;
  if (!pr_leads(run))
    return;
  printf("loss %" PRIu64 " %a\n", step, loss);
  fflush(stdout);
}

/* A number that depends on every bit of every row's weights. */
static uint64_t mix_weights(PrRun *run, const PrModel *m) {
  const PipeProgram *p = pr_program(run);
  uint64_t h = 0xcbf29ce484222325u;
  for (uint32_t s = 0; s < p->nstage; s++) {
    PrSizes size;
    m->sizes(m->self, p->stage[s].model, &size);
    uint64_t bytes = size.weight;
    unsigned char *w = malloc(bytes);
    PrStatus st = w ? pr_copy_weight(run, s, w) : PR_E_MEMORY;
    if (st) {
      fprintf(stderr, "tiny_train: %s\n", pr_error(run));
      exit(pr_exit_status(st));
    }
    for (uint64_t i = 0; i < bytes; i++)
      h = (h ^ w[i]) * 0x100000001b3u;
    free(w);
  }
  return h;
}

#ifdef ON_SHIM
/* Trains as one process of a group, as its launcher says. */
static int train(const Asked *a, const PipeProgram *p);
static int train_on_shim(Asked *a, const PipeProgram *p) {
  char why[1024];
  PrGroup *group;
  PrStatus st = pr_group_open(&group, p, NULL, 600, why);
  if (st) {
    fprintf(stderr, "tiny_train: %s\n", why);
    return pr_exit_status(st);
  }
  shim_begin(1, 1, false);
  shim_alone();
  shim_unwatched();
  shim_enter(0);
  const PrCudaOptions cuda = {.group = group};
  a->options.engine_options = &cuda;
  int bad = train(a, p);
  shim_leave();
  shim_end();
  pr_group_close(group);
  return bad;
}
#endif

/* Of PrModel: the weights and the optimizer state of a stage are a tensor each. */
static int name_tensor(void *self, uint32_t stage, uint32_t i, PrTensor *out) {
  const PrModel m = tiny_model(self);
  PrSizes size;
  if (i > 1 || m.sizes(self, stage, &size))
    return 1;
  if (i == 0)
    nanosleep(&(struct timespec){0, 20000000}, NULL);
  *out = (PrTensor){.of = i ? PR_OPT : PR_WEIGHT, .ndim = 1, .shape = {i ? size.opt : size.weight}};
  snprintf(out->name, PR_NAME, "stage %u", stage);
  return 0;
}

/* Writes a checkpoint to both folders; that the first has it already is known. */
static PrStatus save(PrRun *run, const Asked *a) {
  char path[4096];
  struct stat before, after;
  PrStatus st = pr_checkpoint(run, a->checkpoint, a->keep);
  if (st || !a->also)
    return st;
  snprintf(path, sizeof path, "%s/latest", a->checkpoint);
  int bad = stat(path, &before);
  if ((st = pr_checkpoint(run, a->also, a->keep)))
    return st;
  if ((st = pr_checkpoint(run, a->checkpoint, a->keep)))
    return st;
  if (pr_leads(run) && (bad || stat(path, &after) || before.st_ino != after.st_ino))
    fprintf(stderr, "tiny_train: a checkpoint is written twice\n");
  return PR_OK;
}

static int train(const Asked *a, const PipeProgram *p) {
  Tiny *t = tiny_new(a->nstage ? a->nstage : p->nmodel, 0);
  PrModel model = tiny_model(t);
  PrRun *run;
  PrOptions o = a->options;
  if (a->names)
    model.tensor = name_tensor;
  o.on_step = on_step;
  o.arg = &run;
  PrStatus st = pr_open(&run, p, &model, &o);
  uint64_t done = 0;
  if (!st && a->resume && pr_rank(run) == 1)
    nanosleep(&(struct timespec){a->late_s, 0}, NULL);
  if (!st && a->weights)
    st = pr_load_weights(run, a->weights);
  if (!st && a->resume)
    st = pr_resume(run, a->checkpoint, &done);
  if (*pr_note(run) && pr_leads(run))
    fprintf(stderr, "tiny_train: %s\n", pr_note(run));
  while (!st && done < a->steps) {
    uint64_t n = a->checkpoint && a->every < a->steps - done ? a->every : a->steps - done;
    st = pr_steps(run, n);
    if (!st && a->checkpoint)
      st = save(run, a);
    done += n;
  }
  if (!st) {
    uint64_t h = mix_weights(run, &model);
    if (pr_leads(run))
      printf("weights %016" PRIx64 "\n", h);
  }
  if (st)
    fprintf(stderr, "tiny_train: %s\n", pr_error(run));
  const bool over = st && st != PR_E_IO; /* what cannot be written leaves the run usable */
  for (uint32_t row = 0; over && row < p->nstage; row++) { /* perhaps in the middle of an update */
    char weight[256];
    if (pr_weight(run, row) || !pr_copy_weight(run, row, weight) || !pr_checkpoint(run, ".", 1))
      fprintf(stderr, "tiny_train: weights of a run that has failed can be seen\n");
  }
  pr_close(run);
  int broken = (int)atomic_load(&t->broken);
  tiny_free(t);
  return st ? pr_exit_status(st) : broken != 0;
}

int main(int argc, char **argv) {
  Asked a = {.steps = 8, .every = 1};
  signal(SIGXFSZ, SIG_IGN); /* is an error like a full disk */
  for (int i = 1; i < argc; i++) {
    if (argv[i][0] != '-')
      a.file = argv[i];
    else if (!strcmp(argv[i], "--resume"))
      a.resume = true;
    else if (!strcmp(argv[i], "--checksums"))
      a.options.checksums = 1;
    else if (i + 1 == argc || !read_option(&a, argv[i], argv[i + 1]))
      return usage(argv[i]);
    else
      i++;
  }
  if (!a.file)
    return usage("the schedule");
  Arena arena = {0};
  Diag diag;
  Options opt = {.input = a.file, .emit = EMIT_NONE, .define = a.define, .ndefine = a.ndefine};
  Sched s = {.arena = &arena, .diag = &diag, .opt = &opt};
  diag_init(&diag, &arena, stderr);
#ifdef ON_SHIM
  int bad = compile_only(&s) ? train_on_shim(&a, as_rows(&arena, s.prog)) : 1;
#else
  int bad = compile_only(&s) ? train(&a, as_rows(&arena, s.prog)) : 1;
#endif
  arena_free(&arena);
  return bad;
}
