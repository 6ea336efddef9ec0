/* SPDX-License-Identifier: MIT
 * See shim_job.h. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "shim_job.h"

int job_bad;

/* ---- what the processes of a run tell one another ---- */

typedef struct Board {
  struct Word {
    bool there;
    void *data;
  } word[4096];
  bool failed[MOST_RANKS],
      absent[MOST_RANKS]; /* absent: the others have waited long enough for it */
  char text[MOST_RANKS][512];
  PrStatus status[MOST_RANKS];
  pthread_mutex_t lock; /* of what follows */
  uint32_t (*place[MOST_RANKS])(void *of, char to[PR_GROUP_PLACE]);
  void *of[MOST_RANKS];
  bool late; /* all have been asked */
  bool open; /* all have opened; from now on a death is noticed only where it is waited for */
  bool far;  /* what a rank tells of itself is heard late */
  int there[MOST_RANKS];
  char at[MOST_RANKS][PR_GROUP_PLACE];
} Board;
typedef struct Seat {
  Board *board;
  uint32_t rank, size, next, from; /* from: whose word is waited for */
  struct Word *word;
  uint32_t looks; /* since another has failed */
} Seat;

static bool is_there(void *arg) {
  const Seat *s = arg;
  return s->word->there || s->board->absent[s->from];
}

static void late(void *arg);
static int share(void *arg, uint32_t from, void *data, uint64_t bytes) {
  Seat *s = arg;
  struct Word *w = &s->board->word[s->next++];
  if (s->next > sizeof s->board->word / sizeof *s->board->word)
    abort();
  if (from == s->rank) {
    w->data = malloc(bytes + 1);
    if (!w->data)
      abort();
    memcpy(w->data, data, bytes);
    shim_write_down(w);
    w->there = true;
  }
  s->word = w, s->from = from;
  if (!shim_wait(is_there, s)) {
    late(s); /* a process is gone: all are told */
    return 1;
  }
  if (!w->there)
    return 1;
  memcpy(data, w->data, bytes);
  shim_read(w);
  return 0;
}

static uint32_t gather(void *arg, const void *mine, uint64_t bytes, void *all) {
  Seat *s = arg;
  struct Word *w = &s->board->word[s->next];
  if ((s->next += s->size) > sizeof s->board->word / sizeof *s->board->word)
    abort();
  if (shim_was_killed())
    return 1 + s->rank;
  w[s->rank].data = malloc(bytes + 1);
  if (!w[s->rank].data)
    abort();
  memcpy(w[s->rank].data, mine, bytes);
  shim_write_down(&w[s->rank]);
  w[s->rank].there = true;
  for (uint32_t r = 0; s->rank == 0 && r < s->size; r++) {
    s->word = &w[r], s->from = r;
    if (!shim_wait(is_there, s))
      late(s);
    if (!w[r].there)
      return 1 + r;
    memcpy((char *)all + r * bytes, w[r].data, bytes);
    shim_read(&w[r]);
  }
  return 0;
}

static void tell(void *arg, PrStatus st, const char *text) {
  Seat *s = arg;
  if (shim_was_killed())
    return;
  snprintf(s->board->text[s->rank], sizeof *s->board->text, "%s", text);
  s->board->status[s->rank] = st;
  s->board->failed[s->rank] = true;
}

static void watch_place(void *arg, uint32_t (*place)(void *of, char to[PR_GROUP_PLACE]), void *of) {
  Seat *s = arg;
  pthread_mutex_lock(&s->board->lock);
  s->board->place[s->rank] = place;
  s->board->of[s->rank] = of;
  pthread_mutex_unlock(&s->board->lock);
}

/* Asks all at once. */
static void late(void *arg) {
  Board *b = ((Seat *)arg)->board;
  pthread_mutex_lock(&b->lock);
  for (uint32_t r = 0; r < MOST_RANKS && !b->late; r++) {
    bool dead = shim_is_dead(r);
    b->there[r] = dead ? -1 : b->place[r] != NULL;
    if (b->there[r] > 0)
      b->place[r](b->of[r], b->at[r]);
  }
  b->late = true;
  pthread_mutex_unlock(&b->lock);
}

static int place(void *arg, uint32_t r, char to[PR_GROUP_PLACE]) {
  const Board *b = ((Seat *)arg)->board;
  memcpy(to, b->at[r], PR_GROUP_PLACE);
  return b->there[r];
}

static int heard(void *arg, PrStatus *st, char *text, uint64_t n) {
  Seat *s = arg;
  for (uint32_t r = 0; r < s->size && !s->board->open; r++)
    if (shim_is_dead(r))
      late(s);
  pthread_mutex_lock(&s->board->lock);
  bool asked = s->board->late;
  pthread_mutex_unlock(&s->board->lock);
  enum { FAR = 400 };
  for (uint32_t r = 0; r < MOST_RANKS; r++)
    if (r != s->rank && s->board->failed[r] && (!s->board->far || s->looks++ > FAR)) {
      snprintf(text, n, "%s", s->board->text[r]);
      *st = s->board->status[r];
      return 1;
    }
  if (asked)
    snprintf(text, n, "a rank has gone, or takes too long");
  return asked ? 2 : 0;
}

/* ---- runs ---- */

const Sample *sample_named(const char *name) {
  const Sample *s = samples;
  while (strcmp(s->name, name) != 0)
    s++;
  return s;
}

Program *compiled(const char *stdlib, const Sample *s) {
  Program *c = malloc(sizeof *c);
  if (!c || !sample_compile(c, stdlib, s))
    abort();
  return c;
}

typedef struct TestHost {
  Job *job;
  uint32_t id;
  Seat seat;
  PrGroup group;
} TestHost;

static bool all_opened(void *arg) { return ((Job *)arg)->opened == ((Job *)arg)->nhost; }
static bool all_through(void *arg) { return ((Job *)arg)->through == ((Job *)arg)->nhost; }
static bool is_damaged(void *arg) { return ((Job *)arg)->damaged; }

static void take_result(Job *j, PrRun *run, uint32_t step) {
  uint32_t nmb = j->p->nmb / (j->p->slices ? j->p->slices : 1);
  for (uint32_t m = 0; m < nmb && step < STEPS; m++)
    j->result.loss[step][m] = pr_loss_mb(run, m);
}

static void check_trace(Job *j, PrRun *run, uint32_t id) {
  const PipeProgram *p = j->p;
  uint32_t n = pr_trace_steps(run);
  EXPECT(n == (j->trace < STEPS ? j->trace : STEPS), "host %u: %u steps are traced\n", id, n);
  for (uint32_t s = 0; s < n; s++)
    for (uint32_t r = 0; r < p->nrank; r++) {
      const PrSpan *span = pr_trace(run, s, r);
      uint64_t end[PIPE_NSTREAMS + 64] = {0};
      for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
        const PipeInstr *c = &p->rank[r].instr[i];
        bool channel = p->nchannel && pipe_op_info[c->op].comm;
        uint32_t on = channel ? PIPE_NSTREAMS + c->channel : pipe_stream_of(c->op);
        if (i > 0 && pipe_op_info[c->op].comm && c[-1].group > 0) {
          EXPECT(span[i].start_ns == span[i - 1].start_ns && span[i].end_ns == span[i - 1].end_ns,
                 "host %u: step %u, rank %u, row %u: not the times of its group\n", id, s, r, i);
          continue;
        }
        EXPECT(span[i].end_ns >= span[i].start_ns && span[i].start_ns + 1 >= end[on],
               "host %u: step %u, rank %u, row %u: %llu to %llu after %llu\n", id, s, r, i,
               (unsigned long long)span[i].start_ns, (unsigned long long)span[i].end_ns,
               (unsigned long long)end[on]);
        end[on] = span[i].end_ns;
      }
      /* The clocks of other hosts are estimated while threads take turns: late by more than a step.
       * */
      EXPECT(end[PIPE_COMPUTE] > 0 || (j->processes && r > 0), "host %u: rank %u has no times\n",
             id, r);
    }
}

void *job_slots[MOST_RANKS][512];
uint32_t job_first_event[MOST_RANKS], job_events[MOST_RANKS];

/* A model that fails once. */
typedef struct Failing {
  WordModel word; /* first: what the other callbacks get is this */
  PrModel inner;
  uint64_t step;
} Failing;
static int forward_or_fail(void *self, const PrCall *c) {
  const Failing *f = self;
  bool here = c->op == PIPE_F && c->stage == 1 && c->mb == 2 && c->step == f->step;
  return here ? 7 : f->inner.forward(self, c);
}

static _Thread_local const TestHost *this_host;
CudaWhere __real_cuda_where(void);
CudaWhere __wrap_cuda_where(void);
CudaWhere __wrap_cuda_where(void) {
  CudaWhere w = __real_cuda_where();
  w.host += this_host->job->apart ? this_host->id : 0;
  w.process += this_host->job->threads ? 0 : this_host->id;
  return w;
}

static void *host_thread(void *arg) {
  static const PrCudaTransport by[] = {PR_CUDA_NCCL, PR_CUDA_PEER, PR_CUDA_AUTO};
  TestHost *h = arg;
  Job *j = h->job;
  this_host = h;
  bool last = j->processes && h->id + 1 == j->nhost;
  const PipeProgram *p = last && j->other ? j->other : j->p;
  WordModel word = {.joins = j->joins, .no_step = j->no_step, .odd = j->odd};
  FloatModel floats;
  Failing failing;
  PrModel model = j->floats ? float_model(&floats, p) : word_model(&word, p);
  if (j->fails) {
    failing = (Failing){word, model, j->cuda.graph ? 1 : 2}; /* a graph calls it in two steps */
    model.self = &failing, model.forward = forward_or_fail;
  }
  PrCudaOptions cuda = j->cuda;
  PrOptions o = {.engine = &pr_cuda,
                 .engine_options = &cuda,
                 .trace_steps = j->trace,
                 .checksums = j->checks,
                 .free_running = j->free_running,
                 .on_step = j->on_step,
                 .arg = j->told,
                 .deadline_s = j->deadline_s};
  PrRun *run;
  const bool absent = h->id == 1 && j->absent;
  h->seat = (Seat){.board = j->board, .rank = h->id, .size = j->nhost};
  h->group = (PrGroup){h->id,       j->nhost, share, tell,   heard, &h->seat,
                       watch_place, late,     place, gather, NULL};
  cuda.group = j->processes ? &h->group : NULL;
  cuda.nvtx = 1;
  cuda.transport = !j->processes ? PR_CUDA_AUTO : last && j->alone ? PR_CUDA_NCCL : by[j->by];
  cuda.device = j->wanders ? 1 : cuda.device;
  cuda.device = absent && j->absent == ABSENT_DEVICE ? 3 : cuda.device;
  cuda.grad = j->floats ? PR_FLOAT32 : PR_INT64;
  shim_enter(h->id);
  shim_starve(h->id == 1 ? j->starve : 0);
  if (absent && j->absent == ABSENT_OPEN) {
    j->board->absent[1] = true;
    j->opened++, j->through++;
    shim_leave();
    return NULL;
  }
  if (absent && j->absent == ABSENT_DEAD)
    shim_kill(1, j->die_at);
  PrStatus st = pr_open(&run, p, &model, &o);
  uint32_t taken = shim_starve(0);
  j->taken = h->id == 1 ? taken : j->taken;
  j->opened++;
  if (!st) {
    if (j->log) {
      const RankRun *k = &run->rank[h->id];
      memcpy(job_slots[h->id], k->slot, k->t->nslot * sizeof *k->slot);
      job_first_event[h->id] = shim_event_number(cuda_of(run)->rank[0].event[0]);
      job_events[h->id] = cuda_of(run)->rank[0].nevent;
    }
    shim_wait(all_opened, j);
    if (h->id == 0) {
      if (j->damage)
        j->damage(j->arg);
      if (j->kill_at)
        shim_kill(j->kill, j->kill_at);
      shim_log_clear();
      shim_steady(true);
      j->board->open = true;
      j->damaged = 1;
    }
    shim_wait(is_damaged, j);
  }
  uint32_t each = j->at_once ? (uint32_t)j->at_once : 1;
  uint64_t first = 0;
  if (!st && j->from)
    st = pr_resume(run, j->from, &first);
  for (uint32_t s = (uint32_t)first; s < (j->save ? STEPS / 2 : STEPS) && !st; s += each) {
    if (j->wanders)
      cudaSetDevice(0);
    st = pr_steps(run, each);
    if (!st && h->id == 0)
      take_result(j, run, s + each - 1);
  }
  if (!st && j->save)
    st = pr_checkpoint(run, j->save, 0);
  if (absent && j->absent != ABSENT_DEAD)
    j->board->absent[1] = true;
  for (uint32_t row = 0; row < p->nstage && !st && !absent; row++) {
    uint64_t w[WORDS] = {0};
    st = pr_copy_weight(run, row, w);
    if (h->id == 0)
      memcpy(j->result.weight[row], w, sizeof w);
  }
  if (!st && j->trace)
    check_trace(j, run, h->id);
  j->status[h->id] = st;
  j->counted[h->id] = run->rank ? (uint32_t)atomic_load(&run->rank[h->id].step) : 0;
  for (uint32_t m = 0; j->counted[h->id] && m < p->nmb / (p->slices ? p->slices : 1); m++)
    if (!run->free_running || run->loss_rank == h->id)
      j->last[h->id][m] = pr_loss_mb(run, m);
  snprintf(j->error[h->id], sizeof *j->error, "%s", pr_error(run));
  j->through++; /* nobody gives memory back before all are */
  shim_wait(all_through, j);
  shim_steady(false);
  const struct timespec idle = {j->idle_ms / 1000, j->idle_ms % 1000 * 1000000L};
  nanosleep(&idle, NULL);
  pr_close(run);
  shim_leave();
  return NULL;
}

/* One host goes on at a time, so all on one processor: a turn that goes to another one costs
 * several times as much. Which, is chosen for each run, so that tests that go on at once come
 * apart. */
static void on_one_processor(bool one) {
  static cpu_set_t all;
  cpu_set_t here;
  if (one && sched_getaffinity(0, sizeof all, &all) == 0) {
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    sched_setaffinity(0, sizeof here, &here);
  } else if (!one && CPU_COUNT(&all) > 0)
    sched_setaffinity(0, sizeof all, &all);
}

/* No file grows: those of shared memory neither. */
static void fill(bool full) {
  static struct rlimit before;
  if (full)
    getrlimit(RLIMIT_FSIZE, &before);
  const struct rlimit none = {0, before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, full ? &none : &before);
}

void job_run(Job *j) {
  TestHost host[MOST_RANKS];
  pthread_t thread[MOST_RANKS];
  on_one_processor(true);
  j->nhost = j->processes ? j->p->nrank : 1;
  j->opened = j->damaged = j->through = 0;
  j->board = calloc(1, sizeof *j->board);
  if (!j->board)
    abort();
  pthread_mutex_init(&j->board->lock, NULL);
  j->board->far = j->far;
  memset(&j->result, 0, sizeof j->result);
  word_broken = 0;
  shim_begin(j->seed, j->nhost, j->log);
  if (j->lazy)
    shim_lazy();
  if (j->deaf)
    shim_deaf();
  if (j->one_queue)
    shim_one_queue();
  if (j->hasty)
    shim_hasty();
  shim_version(j->nccl);
  if (j->apart || j->closed)
    shim_apart();
  for (uint32_t i = 0; i < j->lose; i++)
    shim_lose(1 - i);
  if (j->full)
    fill(true);
  for (uint32_t i = 0; i < j->nhost; i++) {
    host[i] = (TestHost){.job = j, .id = i};
    if (pthread_create(&thread[i], NULL, host_thread, &host[i]))
      abort();
  }
  for (uint32_t i = 0; i < j->nhost; i++)
    pthread_join(thread[i], NULL);
  if (j->full)
    fill(false);
  on_one_processor(false);
  shim_go_on();
  j->errors = shim_errors();
  snprintf(j->text, sizeof j->text, "%s", shim_error_text());
  j->stalled = shim_stalled();
  j->stuck = shim_stuck();
  j->hung = shim_hung();
  j->aborts = shim_aborts();
  j->comms = shim_comms();
  j->transfers = shim_transfers();
  EXPECT(j->save || j->from || shim_threads() == 0, "%s: %u threads started in steps\n", j->p->name,
         shim_threads()); /* a checkpoint has one */
  EXPECT(j->hung == 0, "%s: %s\n", j->p->name, shim_hung_text());
  j->most_ahead = shim_most_queued();
  j->broken = word_broken;
  uint64_t left = shim_leaks();
  for (uint32_t i = 0; i < j->nhost; i++)
    if (j->status[i]) { /* what others may have open stays */
      left -= shim_lent();
      break;
    }
  EXPECT(left == 0 || j->kill_at || j->die_at, "%s: %llu allocations are not given back\n",
         j->p->name, (unsigned long long)left);
  if (!j->log)
    shim_end();
  for (size_t i = 0; i < sizeof j->board->word / sizeof *j->board->word; i++)
    free(j->board->word[i].data);
  free(j->board);
}

bool job_blames(const PipeProgram *p, const char *fault, const char *want, uint64_t seed) {
  Job j = {.p = p,
           .processes = true,
           .checks = true,
           .seed = seed,
           .deadline_s = JOB_DEADLINE_S,
           .kill = 1,
           .kill_at = 1u << 30}; /* never: but a run that stalls goes on to its deadline */
  setenv("PIPE_FAULT", fault, 1);
  job_run(&j);
  unsetenv("PIPE_FAULT");
  bool is = strstr(j.error[0], want) != NULL;
  EXPECT(is, "%s: %s\n", fault, j.error[0]);
  return is;
}

void job_reference(const PipeProgram *p, bool floats, Result *r) {
  WordModel word = {0};
  FloatModel other;
  PrModel model = floats ? float_model(&other, p) : word_model(&word, p);
  PrOptions o = {SEEDED(1)};
  PrRun *run;
  Job j = {.p = p};
  memset(r, 0, sizeof *r);
  PrStatus st = pr_open(&run, p, &model, &o);
  for (uint32_t s = 0; s < STEPS && !st; s++) {
    st = pr_steps(run, 1);
    take_result(&j, run, s);
  }
  for (uint32_t row = 0; row < p->nstage && !st; row++)
    st = pr_copy_weight(run, row, j.result.weight[row]);
  EXPECT(!st, "%s: %s\n", p->name, pr_error(run));
  *r = j.result;
  pr_close(run);
}

bool job_same(const Job *j, const Result *want) {
  uint32_t each = j->at_once ? (uint32_t)j->at_once : 1;
  bool ok = memcmp(j->result.weight, want->weight, sizeof want->weight) == 0;
  for (uint32_t s = (j->from ? STEPS / 2 : 0) + each - 1; s < STEPS; s += each)
    ok &= memcmp(j->result.loss[s], want->loss[s], sizeof *want->loss) == 0;
  return ok;
}

bool job_whole(const Job *j) {
  bool ok = j->errors == 0 && j->broken == 0 && !j->stalled;
  for (uint32_t i = 0; i < j->nhost; i++)
    ok &= j->status[i] == PR_OK;
  return ok;
}

/* A send and a receive of one tensor: "0SEND_F3" and "1RECV_F3"; with edges the other end is named.
 * */
bool job_pairs(const char *send, const char *recv) {
  unsigned a, b, to, from;
  char dir[2], mb[2][16], rest[2][32];
  if (sscanf(send, "%uSEND_%1[FB]%15[0-9.]%31s", &a, dir, mb[0], rest[0]) < 3)
    return send[0] == 'a'; /* the prologue: no name */
  char other;
  if (sscanf(recv, "%uRECV_%c%15[0-9.]%31s", &b, &other, mb[1], rest[1]) < 3 || other != dir[0] ||
      strcmp(mb[0], mb[1]) != 0)
    return false;
  bool named = sscanf(send, "%*uSEND_%*[FB]%*[0-9.]>%u", &to) == 1 ||
               sscanf(send, "%*uSEND_%*[FB]%*[0-9.]<%u", &to) == 1;
  if (named && to != b)
    return false;
  named = sscanf(recv, "%*uRECV_%*[FB]%*[0-9.]<%u", &from) == 1 ||
          sscanf(recv, "%*uRECV_%*[FB]%*[0-9.]>%u", &from) == 1;
  return !named || from == a;
}
