/* SPDX-License-Identifier: MIT
 * The engine of processes whose messages the program carries. Here a rank is a thread with a run
 * of its own, and messages meet in a list: a send is over when its receive is.
 *
 *   outside_test STDLIB_DIR FOLDER SECONDS
 *
 * The folder is there, and empty. What hangs has a deadline of so many seconds.
 *
 * Every sample has the losses and weights of the threads engine, or is refused, also where all
 * microbatches of a tensor have one tag. Then one rank goes wrong, and all say so. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "make_program.h"
#include "pipe_rows.h"
#include "pipe_transport.h"
#include "processes.h"
#include "samples.h"
#include "test_model.h"

enum { STEPS = 3, MOST_RANKS = 16, WORDS = 9 };

static double deadline_s; /* of runs in which something hangs */

static uint64_t mix(uint64_t a, uint64_t b) {
  a = (a ^ (b + UINT64_C(0x9e3779b97f4a7c15) + (a << 6))) * UINT64_C(0xff51afd7ed558ccd);
  return a ^ a >> 32;
}

/* The model: what an op leaves depends on all that it reads; sums depend on their order. */

typedef enum Case {
  ALL_WELL,
  FEW_TAGS, /* one for all microbatches of a tensor */
  MODEL_FAILS,
  CARRY_FAILS,
  MODEL_HANGS,
  STUCK,
  INIT_FAILS,
  MEETING_HANGS, /* free-running ranks meet after their last step: rank 1 does not send */
  TRACE_HANGS,   /* nor when the trace is shared */
  SILENCE,       /* rank 1 hangs in a checkpoint, and nobody says where it is */
  DISK_FULL,     /* a checkpoint is not written, by which no run ends; then the model fails */
  CROSSED,       /* a program whose ranks both send first */
  NCASES
} Case;

typedef struct Rank {
  const PipeProgram *p;
  Case what;
  uint32_t id, carried; /* messages */
  const char *folder;
  PrLaunch at;
  bool hangs; /* its carry, from now on */
  PrStatus st;
  uint64_t hash; /* of losses and weights */
  char text[1024];
} Rank;

static uint32_t words(const PipeProgram *p) { return p->sized ? WORDS : WORDS - 1; }

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  const PipeProgram *p = ((Rank *)self)->p;
  uint64_t n = 8 * words(p);
  *out = (PrSizes){
      n, n, p->stage[stage].nout ? n : 0, n, n, n, n, p->sized ? 0 : n, p->sized ? 0 : n};
  return 0;
}

static int init(void *self, uint32_t stage, void *weight, void *opt) {
  const Rank *r = self;
  (void)opt;
  for (uint32_t i = 0; i < 2 * words(r->p); i++)
    ((float *)weight)[i] = (float)(1 + i + stage);
  return r->what == INIT_FAILS && r->id == 1 ? 4 : 0;
}

static uint64_t read_all(uint64_t sum, const void *data, uint32_t n) {
  uint64_t word;
  for (uint32_t i = 0; data && i < n; i++) {
    memcpy(&word, (const char *)data + 8 * i, 8);
    sum = mix(sum, word);
  }
  return sum;
}

static void write_all(uint64_t sum, void *data, uint32_t n) {
  for (uint32_t i = 0; data && i < n; i++)
    ((uint64_t *)data)[i] = mix(sum, i);
}

static int forward(void *self, const PrCall *c) {
  const Rank *r = self;
  const uint32_t n = words(r->p);
  bool here = r->id == 1 && c->step == 1 && c->mb == 2;
  uint64_t sum = read_all(mix(c->nx ? c->stage : c->step, c->mb), c->weight, n);
  for (uint32_t i = 0; i < c->nx; i++)
    sum = read_all(sum, c->xs[i], n);
  write_all(sum, c->act, n);
  for (uint32_t i = 0; i < c->ny; i++)
    write_all(mix(sum, i), c->ys[i], n);
  if (c->loss)
    *c->loss = (double)(sum >> 12) / 1e6;
  if (here && r->what == MODEL_HANGS)
    nanosleep(&(struct timespec){1 + (time_t)(2 * deadline_s), 0}, NULL);
  return here && (r->what == MODEL_FAILS || r->what == STUCK || r->what == DISK_FULL) ? 3 : 0;
}

static uint64_t back(const Rank *r, const PrCall *c) {
  uint64_t sum = read_all(c->stage, c->act, words(r->p));
  for (uint32_t i = 0; i < c->ny; i++)
    sum = read_all(sum, c->dys[i], words(r->p));
  for (uint32_t i = 0; i < c->nx; i++)
    write_all(mix(sum, i), c->dxs[i], words(r->p));
  return sum;
}

static void gradient(const Rank *r, const PrCall *c, uint64_t sum) {
  for (uint32_t i = 0; i < 2 * words(r->p); i++)
    ((float *)c->grad)[i] += 1.0f / (float)(1 + mix(sum, i) % 1000);
}

static int backward(void *self, const PrCall *c) { return gradient(self, c, back(self, c)), 0; }
static int backward_input(void *self, const PrCall *c) {
  const Rank *r = self;
  return write_all(back(r, c), c->gout, words(r->p)), 0;
}
static int backward_weight(void *self, const PrCall *c) {
  const Rank *r = self;
  return gradient(r, c, read_all(1, c->gout, words(r->p))), 0;
}

static int update(void *self, const PrCall *c) {
  const Rank *r = self;
  for (uint32_t i = 0; i < 2 * words(r->p); i++)
    ((float *)c->weight)[i] = ((const float *)c->newest)[i] - ((float *)c->grad)[i];
  memset(c->grad, 0, 8 * words(r->p));
  return 0;
}

static int side(void *self, const PrCall *c) { return (void)self, (void)c, 0; }

/* The messages */

typedef struct Mail {
  const PrMessage *m;
  uint32_t rank;
  bool over;
  struct Mail *next;
} Mail;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static Mail *waiting; /* oldest first */
static bool stopped;  /* what waits gives up */

static void post(Mail *mine) {
  Mail **at = &waiting;
  for (; *at; at = &(*at)->next) {
    Mail *other = *at;
    const PrMessage *to = mine->m->sends ? other->m : mine->m;
    const PrMessage *from = mine->m->sends ? mine->m : other->m;
    if (other->rank != mine->m->peer || other->m->peer != mine->rank ||
        other->m->tag != mine->m->tag || other->m->sends == mine->m->sends)
      continue;
    if (to->bytes == from->bytes)
      memcpy(to->data, from->data, to->bytes);
    mine->over = other->over = true;
    *at = other->next;
    return;
  }
  *at = mine;
}

static void withdraw(const Mail *mine) {
  for (Mail **at = &waiting; *at; at = &(*at)->next)
    if (*at == mine) {
      *at = mine->next;
      return;
    }
}

/* Of the messages by which all ranks meet and share: processes.h. */
enum { OF_ALL = PROC_ALL * PROC_KINDS + PROC_OF_REST };

static int carry(void *arg, const PrMessage *m, uint32_t n) {
  Rank *r = arg;
  Mail *mail = calloc(n, sizeof *mail);
  bool over = false;
  pthread_mutex_lock(&lock);
  r->carried += n;
  while (r->hangs && m->tag == OF_ALL && !stopped)
    pthread_cond_wait(&changed, &lock);
  if (r->what == CARRY_FAILS && r->id == 2 && r->carried > 20) {
    pthread_mutex_unlock(&lock);
    free(mail);
    return 7;
  }
  for (uint32_t i = 0; i < n; i++) {
    mail[i] = (Mail){.m = &m[i], .rank = r->id};
    post(&mail[i]);
  }
  pthread_cond_broadcast(&changed);
  while (!over && !stopped) {
    over = true;
    for (uint32_t i = 0; i < n; i++)
      over = over && mail[i].over;
    if (!over)
      pthread_cond_wait(&changed, &lock);
  }
  for (uint32_t i = 0; i < n; i++)
    withdraw(&mail[i]);
  pthread_mutex_unlock(&lock);
  free(mail);
  return !over;
}

static const char *why(void *arg) { return ((Rank *)arg)->what == CARRY_FAILS ? "no ink" : NULL; }

static void stop(bool all) {
  pthread_mutex_lock(&lock);
  stopped = all;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

/* Runs */

static PrModel model_of(Rank *r) {
  return (PrModel){.self = r,
                   .nstage = r->p->nmodel,
                   .nslice = pipe_slices(r->p),
                   SPLIT_OPS(update),
                   .reduce = sum_floats,
                   .tie = tie_floats,
                   .side = side};
}

static void on_step(void *arg, uint64_t step, double loss) {
  Rank *r = arg;
  (void)loss;
  r->hangs = r->what == TRACE_HANGS && r->id == 1 && step + 1 == STEPS;
}

/* Trains; leaves the status, and the hash or the text. group: NULL: of threads. */
static void train(Rank *r, PrGroup *group) {
  PrModel m = model_of(r);
  PrTransport t = {.group = group, .arg = r, .carry = carry, .why = why};
  const bool late = r->what == SILENCE || r->what == MODEL_HANGS || r->what == MEETING_HANGS ||
                    r->what == TRACE_HANGS || r->what == CROSSED;
  PrOptions o = {.checksums = r->what <= FEW_TAGS,
                 .free_running = r->what == MEETING_HANGS,
                 .on_step = on_step,
                 .arg = r,
                 .trace_steps = r->what <= FEW_TAGS || r->what == TRACE_HANGS};
  char weight[8 * WORDS];
  PrRun *run;
  if (late)
    o.deadline_s = deadline_s;
  else if (r->what == DISK_FULL)
    o.deadline_s = 60;
  if (group)
    o.engine = &pr_transport, o.engine_options = &t;
  r->st = pr_open(&run, r->p, &m, &o);
  if (!r->st && r->what == FEW_TAGS && group)
    ((Proc *)run->of_engine)->units = 1;
  if (!r->st && r->what == SILENCE)
    r->st = pr_checkpoint(run, r->folder, 0);
  if (!r->st && r->what == DISK_FULL && pr_checkpoint(run, "/dev/null/none", 0) != PR_E_IO)
    r->st = PR_E_CHECKPOINT;
  r->hangs = r->what == MEETING_HANGS && r->id == 1;
  const uint32_t each = r->what == MEETING_HANGS ? STEPS : 1;
  for (uint32_t i = 0; !r->st && i < STEPS; i += each) {
    r->st = pr_steps(run, each);
    for (uint32_t mb = 0; !r->st && mb < r->p->nmb / pipe_slices(r->p); mb++)
      r->hash = mix(r->hash, (uint64_t)pr_loss_mb(run, mb));
  }
  for (uint32_t s = 0; !r->st && s < r->p->nstage; s++) {
    r->st = pr_copy_weight(run, s, weight);
    r->hash = read_all(r->hash, weight, words(r->p));
  }
  snprintf(r->text, sizeof r->text, "%s", pr_error(run));
  for (uint32_t i = 0; !r->st && i < r->p->nrank; i++) { /* every process has all of the trace */
    const PrSpan *span = pr_trace(run, 0, i);
    for (uint32_t j = 0; j < r->p->rank[i].ninstr; j++)
      if (span[j].end_ns < span[j].start_ns || span[j].end_ns > UINT64_C(1) << 50)
        r->st = PR_E_MISMATCH;
  }
  if (r->what != STUCK && r->st)
    stop(true); /* as a transport should when the run has failed */
  pr_close(run);
}

/* A group whose store does not answer once a rank is late. */

static _Atomic bool is_late;
static void late(void *arg) { (void)arg, is_late = true; }
static int heard(void *arg, PrStatus *st, char *text, uint64_t n) {
  (void)arg, (void)st, (void)text, (void)n;
  return is_late ? 2 : 0;
}
static _Atomic bool is_extended;
static void extend(void *arg) { (void)arg, is_extended = true; }
static int no_place(void *arg, uint32_t r, char to[PR_GROUP_PLACE]) {
  return (void)arg, (void)r, (void)to, 0;
}

/* Of LeakSanitizer, where it is: what this thread takes from here on may stay. */
void __lsan_disable(void) __attribute__((weak));

static void *rank_thread(void *arg) {
  Rank *r = arg;
  PrGroup *group;
  if (r->what == STUCK && __lsan_disable) /* messages that are stuck stay, by design */
    __lsan_disable();
  r->st = pr_group_open(&group, r->p, &r->at, 60, r->text);
  if (r->st)
    return NULL;
  PrGroup silent = *group;
  silent.late = late, silent.heard = heard, silent.place = no_place, silent.extend = extend;
  train(r, r->what == SILENCE ? &silent : group);
  pr_group_close(group);
  return NULL;
}

/* False: the store cannot be served. */
static bool run_all(const PipeProgram *p, Case what, const char *folder, Rank *rank) {
  pthread_t thread[MOST_RANKS];
  PrLaunch at;
  char text[1024];
  PrGroupServer *server = pr_group_serve(p->nrank, &at, text);
  if (!server || p->nrank > MOST_RANKS) {
    printf("no store: %s\n", text);
    return false;
  }
  stop(false);
  for (uint32_t i = 0; i < p->nrank; i++) {
    rank[i] = (Rank){.p = p, .what = what, .id = i, .folder = folder, .at = at};
    rank[i].at.rank = i;
    pthread_create(&thread[i], NULL, rank_thread, &rank[i]);
  }
  for (uint32_t i = 0; i < p->nrank; i++)
    pthread_join(thread[i], NULL);
  stop(true);
  pr_group_serve_end(server);
  return true;
}

static bool compare(const PipeProgram *p, const char *name, Case what, uint32_t *refused) {
  Rank want = {.p = p, .id = PIPE_NONE}, rank[MOST_RANKS];
  bool same = true;
  train(&want, NULL);
  if (want.st) {
    printf("%s: threads: %s\n", name, want.text);
    return false;
  }
  if (!run_all(p, what, NULL, rank))
    return false;
  for (uint32_t i = 0; i < p->nrank; i++)
    same = same && rank[i].st == rank[0].st && rank[i].hash == rank[0].hash;
  if (same && rank[0].st == PR_E_ARG && strstr(rank[0].text, "does not support")) {
    if (what == ALL_WELL)
      printf("%s: %s\n", name, rank[0].text);
    *refused += what == ALL_WELL;
    return true;
  }
  if (!same || rank[0].st || rank[0].hash != want.hash)
    printf("%s: status %d, hash %" PRIx64 ", not %" PRIx64 ": %s\n", name, rank[0].st, rank[0].hash,
           want.hash, rank[0].text);
  return same && !rank[0].st && rank[0].hash == want.hash;
}

/* How many units tags tell apart, and the largest number of a transfer; by a table. */
static void show_tags(void) {
  static const struct {
    uint32_t nstage, nmb, most_tag;
  } of[] = {{4, 8, 32767},
            {64, 4096, 32767},
            {65, 4096, 32767},
            {256, 4096, (1u << 22) - 1},
            {256, 4096, (1u << 23) - 1},
            {256, 4096, UINT32_MAX >> 1},
            {16384, 2, 32767}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    const PipeProgram p = {.nstage = of[i].nstage, .nmb = of[i].nmb};
    const PipeInstr last = {.op = PIPE_SEND_B, .stage = p.nstage - 1, .mb = p.nmb - 1};
    const uint32_t units = proc_units(&p, of[i].most_tag);
    uint64_t most = 0;
    for (uint32_t mb = 0; units && mb < p.nmb; mb++) {
      PipeInstr c = last;
      c.mb = mb;
      const uint64_t tag = proc_number(&p, units, &c) * PROC_KINDS + PROC_KINDS - 1;
      most = tag > most ? tag : most;
    }
    printf("%u stages, %u microbatches, tags up to %u: %u told apart, the last tag is %" PRIu64
           "\n",
           p.nstage, p.nmb, of[i].most_tag, units, most);
  }
}

int main(int argc, char **argv) {
  static const char *const name[] = {[MODEL_FAILS] = "the model fails",
                                     [CARRY_FAILS] = "a message is not carried",
                                     [MODEL_HANGS] = "the model hangs",
                                     [STUCK] = "messages are stuck",
                                     [INIT_FAILS] = "a rank does not open",
                                     [MEETING_HANGS] = "the last meeting hangs",
                                     [TRACE_HANGS] = "sharing the trace hangs",
                                     [SILENCE] = "a checkpoint hangs",
                                     [DISK_FULL] = "the model fails after a checkpoint",
                                     [CROSSED] = "sends are crossed"};
  static const char *const crossed[] = {"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0U",
                                        "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1U"};
  uint32_t wrong = 0, refused = 0;
  if (argc != 4)
    return 2;
  deadline_s = strtod(argv[3], NULL);
  for (uint32_t i = 0; i < nsamples; i++) {
    Program *c = malloc(sizeof *c);
    if (!sample_compile(c, argv[1], &samples[i]) ||
        !compare(c->s.prog, samples[i].name, ALL_WELL, &refused) ||
        !compare(c->s.prog, samples[i].name, FEW_TAGS, &refused))
      wrong++;
    arena_free(&c->arena);
    free(c);
  }
  printf("%u samples, %u refused, %u wrong\n", nsamples, refused, wrong);
  show_tags();
  Sample sample = {"1f1b", NULL, 4, 6};
  Program *c = malloc(sizeof *c);
  if (!sample_compile(c, argv[1], &sample))
    return 1;
  Made *two = make_text(&(MakeSpec){.nrank = 2, .nmb = 2, .chunks = 1}, crossed);
  for (Case what = MODEL_FAILS; what < NCASES; what++) {
    const PipeProgram *p = what == CROSSED ? &two->p : c->s.prog;
    Rank rank[MOST_RANKS];
    printf("%s\n", name[what]);
    if (what == SILENCE)
      setenv("PIPE_FAULT", "SAVE:1:0:hang", 1);
    else
      unsetenv("PIPE_FAULT");
    if (!run_all(p, what, argv[2], rank))
      return 1;
    if (what == SILENCE && !is_extended)
      printf("  no wait is extended\n");
    for (uint32_t i = 0; i < p->nrank; i++)
      printf("  rank %u, status %d: %s\n", i, rank[i].st, rank[i].text);
  }
  free_made(two);
  arena_free(&c->arena);
  free(c);
  return wrong > 0;
}
