/* SPDX-License-Identifier: MIT
 * The CUDA engine on the device of the shim, with the programs of ../run/samples.h:
 *
 *   shim_test parity STDLIB   a process a rank, and one process for all; plain, ahead, traced and
 *                             from a graph: losses and weights are those of the CPU engine, bit for
 *                             bit, no rule is broken
 *   shim_test library STDLIB  the same for each schedule of the library, with the parameters that
 *                             it has by itself
 *   shim_test channels STDLIB the same with lowering channels
 *   shim_test formulas STDLIB the same for schedules with formulas of weights, and a model of
 *   floats shim_test log STDLIB      what was issued in a step is what the table says, call by call
 *   shim_test events STDLIB   without any one wait something is found: a
 *                             race, or a wrong order
 *   shim_test damage STDLIB   a swapped receive, a slot that is used too early, a first contact
 *                             that the prologue lacks, a pair of sizes that differ: the shim says
 *                             what is wrong
 *   shim_test faults STDLIB   what is refused; a model that fails; how far the host is ahead
 *   shim_test memory STDLIB   a rank gets no memory in some place while it opens the run: all are
 *                             told
 *   shim_test points STDLIB   a fault at an instruction of every kind, on each engine: the report
 *                             names it
 *   shim_test headers STDLIB  transfers that say what they are: a swapped, a lost, a damaged one is
 *                             named
 *   shim_test peer STDLIB     transfers by copy engines: where they are possible, what is refused;
 *                             a number that is not waited for, is lost or comes too early is found;
 *                             no rank counts a step of a run that fails
 *   shim_test kills STDLIB    a rank is killed at some call: the others stop within the deadline,
 *                             and say where
 *
 *   shim_test resume STDLIB FOLDER  a run that goes on from a checkpoint comes to the same results
 *
 * Programs are damaged after pr_open, so that neither compiler nor runtime can find it first. The
 * seed is printed; PIPE_SEED gives another one. Exit status 0 iff all is as it should be. */
#include <stdlib.h>
#include <string.h>

#include "../run/as_rows.h"
#include "shim_job.h"
#include "../run/cut_wait.h"
#include "shim_plan.h"

static uint64_t seed0 = 1;

/* ---- parity ---- */

static bool has_sums(const PipeProgram *p) {
  bool any = false;
  for (uint32_t r = 0; r < p->nrank; r++)
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++)
      any |= pipe_is_sum(p->rank[r].instr[i].op);
  return any;
}

static void parity(const char *stdlib) {
  uint32_t nrun = 0;
  for (uint32_t i = 0; i < nsamples; i++) {
    Program *c = compiled(stdlib, &samples[i]);
    Result *want = malloc(sizeof *want);
    if (!want)
      abort();
    const PipeProgram *p = c->s.prog, *rows = as_rows(&c->arena, p);
    job_reference(p, false, want);
    for (uint32_t k = 0; k < 15; k++) {
      bool graph = k % 5 == 2, traced = k % 5 == 3;
      Job j = {.p = p,
               .processes = k < 5 || k >= 10,
               .by = k < 10   ? BY_NCCL
                     : k < 13 ? BY_PEER
                              : BY_AUTO,
               .threads = k >= 10 && (k + i) % 2,
               .joins = k % 5 == 1 || k % 5 == 4,
               .hasty = k % 2,
               .wanders = k % 3 == 1,
               .at_once = k % 5 == 1   ? STEPS
                          : k % 5 == 4 ? 2
                                       : 1,
               .trace = traced || (graph && i % 3 == 0) ? 3 : 0,
               .checks = k % 10 == 4 || (k % 10 == 2 && i % 2),
               .cuda = {.graph = graph, .ahead = k % 3},
               .seed = seed0 * 1000 + i * 10 + k};
      j.p = j.processes && !j.trace ? rows : p;
      job_run(&j);
      nrun++;
      EXPECT(job_whole(&j), "%s %s %u: %s %s\n", samples[i].name,
             j.processes ? "processes" : "streams", k, j.text, j.error[0]);
      EXPECT(!job_whole(&j) || job_same(&j, want), "%s %s %u: results differ\n", samples[i].name,
             j.processes ? "processes" : "streams", k);
      EXPECT(j.by == BY_NCCL || (j.transfers == 0 && (j.comms > 0) == has_sums(p)),
             "%s %u: %u communicators, %u transfers of NCCL\n", samples[i].name, k, j.comms,
             j.transfers);
    }
    printf("%s: %u ranks, %u microbatches\n", samples[i].name, p->nrank, p->nmb);
    if (i ==
        /* that the comparison can fail: a graph whose ops keep the step they were captured in */
        2) {
      Job j = {.p = p, .processes = true, .no_step = true, .cuda = {.graph = 1}, .seed = seed0};
      job_run(&j);
      EXPECT(job_whole(&j) && !job_same(&j, want), "a wrong model is not found\n");
    }
    arena_free(&c->arena);
    free(c);
    free(want);
  }
  printf("%u runs\n", nrun);
}

/* ---- damage ---- */

typedef struct Broken {
  const PipeProgram *p;
  const char *how;
} Broken;

/* The n-th instruction of this kind on a rank. The tables are the arena's: they can be written. */
static PipeInstr *nth(const PipeProgram *p, uint32_t rank, PipeOp op, uint32_t n) {
  const PipeRank *k = &p->rank[rank];
  for (uint32_t i = 0; i < k->ninstr; i++)
    if (k->instr[i].op == op && n-- == 0)
      return (PipeInstr *)&k->instr[i];
  abort();
}

static void break_it(void *arg) {
  const Broken *b = arg;
  const PipeProgram *p = b->p;
  if (strcmp(b->how, "receives swapped") == 0) {
    PipeInstr *x = nth(p, 1, PIPE_RECV_F, 1), *y = nth(p, 1, PIPE_RECV_F, 2), t = *x;
    *x = *y, *y = t;
  } else if (strcmp(b->how, "slot used too early") == 0) {
    PipeInstr *r = nth(p, 1, PIPE_RECV_F, 1), *f = nth(p, 1, PIPE_F, 1);
    r->out = f->in = nth(p, 1, PIPE_F, 0)->in;
  } else if (strcmp(b->how, "stash used too early") == 0) {
    nth(p, 0, PIPE_F, 1)->act = nth(p, 0, PIPE_F, 0)->act; /* no race: one stream */
  } else if (strcmp(b->how, "sent from another slot") == 0) {
    nth(p, 0, PIPE_SEND_F, 1)->in = nth(p, 0, PIPE_F, 2)->out;
  } else if (strcmp(b->how, "peer unknown to the prologue") == 0) {
    nth(p, 0, PIPE_SEND_F, 0)->peer = 2;
    nth(p, 2, PIPE_RECV_F, 0)->peer = 0;
  } else if (strcmp(b->how, "transfers of a group swapped") == 0) { /* 0SEND_F1 and 2SEND_F0 */
    PipeInstr *x = nth(p, 0, PIPE_SEND_F, 1), t = x[0];
    x[0].stage = x[1].stage, x[0].mb = x[1].mb, x[0].in = x[1].in;
    x[1].stage = t.stage, x[1].mb = t.mb, x[1].in = t.in;
  } else if (strcmp(b->how, "slot of a group used by two") == 0) {
    PipeInstr *x = nth(p, 1, PIPE_RECV_F, 1);
    x[1].out = x[0].out;
  } else if (strcmp(b->how, "receive that nobody sends") == 0) {
    nth(p, 1, PIPE_RECV_B, 0)->op = PIPE_RECV_F;
    nth(p, 1, PIPE_RECV_F, 1)->peer = 2;
  }
}

static void unorder(void *arg) {
  (void)arg;
  shim_unordered();
}

/* The program of `of`, damaged: what the shim says of it. */
static void try_damage(const char *stdlib, const Sample *of, const char *how, uint64_t seed) {
  Program *c = compiled(stdlib, of);
  Result *want = malloc(sizeof *want);
  if (!want)
    abort();
  const PipeProgram *p = c->s.prog;
  job_reference(p, false, want);
  Broken b = {p, how};
  bool contact = strncmp(how, "first", 5) == 0;
  Job j = {.p = p,
           .processes = true,
           .at_once = STEPS,
           .damage = strncmp(how, "launches", 8) == 0 ? unorder : break_it,
           .arg = &b,
           .lose = !contact              ? 0
                   : strstr(how, "both") ? 2
                                         : 1,
           .seed = seed,
           .deadline_s = 600};
  job_run(&j);
  printf("%s%s: %s%s%s\n", p->nchannel ? "channels, " : "", how,
         j.errors ? j.text : "no rule is broken", j.stalled ? "; stalled" : "",
         job_whole(&j) && job_same(&j, want) ? "; the results are right" : "");
  arena_free(&c->arena);
  free(c);
  free(want);
}

static void damage(const char *stdlib) {
  static const char *const how[] = {"nothing",
                                    "receives swapped",
                                    "slot used too early",
                                    "stash used too early",
                                    "sent from another slot",
                                    "peer unknown to the prologue",
                                    "receive that nobody sends",
                                    "transfers of a group swapped",
                                    "slot of a group used by two",
                                    "first contact left out",
                                    "first contact left out at both ends"};
  static const char *const of_channels[] = {"nothing",
                                            "receives swapped",
                                            "slot used too early",
                                            "sent from another slot",
                                            "first contact left out",
                                            "first contact left out at both ends",
                                            "launches in any order"};
  static const Sample onef1b = {"1f1b", NULL, 3, 6};
  const Sample *chunks = sample_named("chunks"), *channels = sample_named("1f1b channels");
  for (size_t i = 0; i < sizeof how / sizeof *how; i++)
    try_damage(stdlib, strstr(how[i], "group") ? chunks : &onef1b, how[i], seed0 + i);
  for (size_t i = 0; i < sizeof of_channels / sizeof *of_channels; i++)
    try_damage(stdlib, channels, of_channels[i], seed0 + i);
}

/* ---- faults ---- */

static void show(const char *what, const Job *j) {
  printf("%s\n", what);
  for (uint32_t r = 0; r < j->nhost; r++)
    printf("  rank %u: %s\n", r, j->status[r] ? j->error[r] : "no error");
}

/* One rank with three stages, whose outputs go to three others in one group. */
static const char star_text[] =
    "0F0,0SEND_F0,2RECV_F0,2F0,0F1,2SEND_F0+0SEND_F1,4RECV_F0+2RECV_F1,4F0,2F1,0F2,"
    "4SEND_F0+2SEND_F1+0SEND_F2,2RECV_F2,2F2,2SEND_F2+4RECV_F1,4F1,4SEND_F1,4RECV_F2,4F2,4SEND_F2,"
    "4RECV_B0,4B0,4SEND_B0,2RECV_B0,2B0,2SEND_B0,0RECV_B0,0B0,"
    "4RECV_B1,4B1,4SEND_B1,2RECV_B1,2B1,2SEND_B1,0RECV_B1,0B1,"
    "4RECV_B2,4B2,4SEND_B2,2RECV_B2,2B2,2SEND_B2,0RECV_B2,0B2\n"
    "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,1RECV_F2,1F2,1SEND_F2,"
    "1RECV_B0,1B0,1SEND_B0,1RECV_B1,1B1,1SEND_B1,1RECV_B2,1B2,1SEND_B2\n"
    "3RECV_F0,3F0,3SEND_F0,3RECV_F1,3F1,3RECV_F2+3SEND_F1,3F2,3SEND_F2,"
    "3RECV_B0,3B0,3SEND_B0,3RECV_B1,3B1,3SEND_B1,3RECV_B2,3B2,3SEND_B2\n"
    "5RECV_F0,5F0,5RECV_F1,5F1,5RECV_F2,5F2,5B0,5SEND_B0,5B1,5SEND_B1,5B2,5SEND_B2\n";

typedef struct Comm {
  uint32_t host, n;
} Comm;

static void break_comm(void *arg) {
  const Comm *c = arg;
  shim_break(c->host, c->n);
}

/* An error of any one communicator of rank 1 stops all ranks, and nothing goes on in any other one.
 * */
static void break_each(const PipeProgram *p) {
  uint32_t n = 2; /* those of all: the one that all are split from, and that of steps */
  for (uint32_t i = 0; i < p->nchannel; i++)
    n += p->channel[i].from == 1 || p->channel[i].to == 1;
  for (uint32_t i = 0; i < n; i++) {
    Comm c = {1, i};
    Job j = {.p = p, .processes = true, .damage = break_comm, .arg = &c, .seed = seed0 + i};
    job_run(&j);
    for (uint32_t r = 0; r < j.nhost; r++)
      EXPECT(strncmp(j.error[r], "rank 1: ", 8) == 0 &&
                 strstr(j.error[r], ": an error of the shim") && j.errors == 0,
             "communicator %u of rank 1: rank %u: %s; %s\n", i, r, j.error[r], j.text);
  }
  printf("channels, %u communicators of rank 1, each broken\n", n);
}

/* How far ahead the host is: many microbatches, one of them ahead; 30 are all of a step, so it can
 * be more. */
static void far_ahead(const char *stdlib, const Sample *of) {
  Program *c = malloc(sizeof *c);
  if (!c || !sample_compile(c, stdlib, of))
    abort();
  for (uint32_t ahead = 1; ahead < 60; ahead += 29) {
    Job j = {.p = c->s.prog,
             .processes = true,
             .lazy = true,
             .seed = seed0,
             .cuda = {.ahead = ahead},
             .at_once = STEPS};
    job_run(&j);
    EXPECT(job_whole(&j), "%s %s\n", j.text, j.error[0]);
    /* Up to three fences of 8 instructions: of each a wait, the op, a record; of one in 8 the
     * fence's. */
    EXPECT(ahead == 1 ? j.most_ahead > 8 && j.most_ahead <= 3 * 8 * 4 : j.most_ahead > 3 * 8 * 4,
           "%s: %llu operations of one stream were issued ahead\n", of->name,
           (unsigned long long)j.most_ahead);
  }
  arena_free(&c->arena);
  free(c);
}

/* A rank with many channels: the last message of each that goes to it lost. */
static void many_channels(const char *stdlib) {
  Program *c = malloc(sizeof *c);
  uint32_t named = 0;
  if (!c || !sample_compile(c, stdlib, sample_named("hub channels")))
    abort();
  for (uint32_t r = 1; r < 8; r++) {
    char fault[32], want[96];
    snprintf(fault, sizeof fault, "%uSEND_B1:%u:1:drop", r, r);
    snprintf(want, sizeof want, "rank 0 waits in 0RECV_B1<%u (hub channels:3:32) for %uSEND_B1", r,
             r);
    named += job_blames(c->s.prog, fault, want, seed0 + r);
  }
  printf("channels, %u of 7 messages to a rank with %u channels named\n", named,
         c->s.prog->nchannel);
  arena_free(&c->arena);
  free(c);
}

/* What channels take of NCCL, and faults of a channel. */
static void faults_of_channels(const char *stdlib) {
  static const char *const fault[] = {"1SEND_F2:1:1:hang", "1RECV_B3:1:1:hang", "1SEND_F2:1:2:drop",
                                      "2SEND_B1:2:0:drop"};
  Program *c = compiled(stdlib, sample_named("1f1b channels"));
  const PipeProgram *p = c->s.prog;
  for (uint32_t i = 0; i < 5; i++) {
    static const char *const order[] = {"0", "", "yes", "0x1", NULL};
    if (order[i])
      setenv("NCCL_LAUNCH_ORDER_IMPLICIT", order[i], 1);
    Job j = {.p = p, .processes = true, .nccl = order[i] ? 0 : 22512, .seed = seed0};
    job_run(&j);
    unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    printf("channels, %s ", order[i] ? "NCCL_LAUNCH_ORDER_IMPLICIT is" : "an old NCCL");
    show(order[i] ? order[i] : "", &j);
  }
  Job one = {.p = p, .nccl = 22512, .seed = seed0};
  job_run(&one);
  show("channels, an old NCCL, one process", &one);
  one = (Job){.p = p, .processes = true, .fails = true, .seed = seed0};
  job_run(&one);
  show("channels, a model that fails", &one);
  EXPECT(one.errors == 0, "  %s\n", one.text);
  break_each(p);
  many_channels(stdlib);
  for (size_t i = 0; i < 3 * sizeof fault / sizeof *fault; i++) {
    bool here = i % 3 == 2;
    Job j = {.p = p,
             .seed = seed0,
             .processes = !here,
             .checks = i % 3 == 1,
             .deadline_s = here ? 600 : JOB_DEADLINE_S,
             .kill = 1,
             .kill_at = here ? 0
                             : 1u << 30}; /* never: but a run that stalls goes on to its deadline */
    setenv("PIPE_FAULT", fault[i / 3], 1);
    job_run(&j);
    unsetenv("PIPE_FAULT");
    printf("channels, %s%s: %s\n", fault[i / 3],
           here         ? ", one process"
           : i % 3 == 1 ? ", with headers"
                        : "",
           j.status[0] ? j.error[0] : "no error");
    for (uint32_t r = 1; r < j.nhost; r++)
      EXPECT(strcmp(j.error[r], j.error[0]) == 0, "  rank %u: %s\n", r, j.error[r]);
  }
  arena_free(&c->arena);
  free(c);
}

/* What is no step is under no step's deadline: the time before a run is closed, and the looks of a
 * capture. */
static void deadlines(const char *stdlib) {
  static const Sample onef1b = {"1f1b", NULL, 3, 6};
  Program *c = compiled(stdlib, &onef1b);
  Job idle = {.p = c->s.prog,
              .processes = true,
              .deadline_s = JOB_DEADLINE_S,
              .idle_ms = (uint32_t)(JOB_DEADLINE_S * 1100),
              .seed = seed0};
  job_run(&idle);
  EXPECT(job_whole(&idle) && idle.aborts == 0, "a run that is closed late is aborted\n");
  for (uint32_t i = 0; i < 8; i++) {
    Job j = {.p = c->s.prog,
             .processes = true,
             .checks = i % 2,
             .deadline_s = 1e-9,
             .cuda = {.graph = true},
             .seed = seed0 + i};
    job_run(&j);
    /* A capture is cut short; and what a late step has sent is looked at while it goes on. */
    bool other = j.errors > 0 && !strstr(j.text, "is not joined") &&
                 strncmp(j.text, "race:", 5) != 0;
    EXPECT(!other, "a capture under a deadline: %s\n", j.text);
  }
  arena_free(&c->arena);
  free(c);
}

/* Sums of what is no whole number of numbers. */
static void odd_sums(const char *stdlib) {
  static const Sample tied = {"tied",
                              "schedule tied(M = 2) { ranks 2\n"
                              "  pipe net stages 2 mbs M place s -> s  tie 0, 1\n"
                              "  order r { do M { F  B }  U } }\n",
                              0, 0};
  const Sample *const of[] = {&tied, sample_named("chimera")};
  for (uint32_t i = 0; i < 2; i++) {
    Program *c = compiled(stdlib, of[i]);
    Job j = {.p = c->s.prog, .processes = true, .odd = 4, .seed = seed0};
    job_run(&j);
    printf("%s, half a number: %s\n", of[i]->name, j.error[0]);
    arena_free(&c->arena);
    free(c);
  }
}

/* NCCL before 2.26 is refused, whatever the program. */
static void old_nccl(const char *stdlib) {
  Program *c = compiled(stdlib, sample_named("1f1b"));
  Job j = {.p = c->s.prog, .processes = true, .nccl = 22512, .seed = seed0};
  job_run(&j);
  printf("1f1b, an old NCCL: %s\n", j.error[0]);
  for (uint32_t r = 1; r < j.nhost; r++)
    EXPECT(strcmp(j.error[r], j.error[0]) == 0, "  rank %u: %s\n", r, j.error[r]);
  arena_free(&c->arena);
  free(c);
}

static void hang_kernel(void *arg) { shim_hang(1, *(const bool *)arg); }

/* A kernel that does not end: a run ends all the same, and leaves what would wait for it, and what
 * is used once the kernel ends after all. */
static void hold_call(void *arg) {
  (void)arg;
  shim_hold_call(1);
}

/* A call of NCCL holds its host in a step, plain or captured: the watchdog ends the run. */
static void held_call(const char *stdlib) {
  static const char *const name[] = {"1f1b", "switched", "1f1b channels"};
  for (uint32_t i = 0; i < 6; i++) {
    Program *c = compiled(stdlib, sample_named(name[i / 2]));
    Job j = {.p = c->s.prog,
             .processes = true,
             .cuda = {.graph = i % 2},
             .damage = hold_call,
             .seed = seed0 + i,
             .deadline_s = JOB_DEADLINE_S,
             .kill = 1,
             .kill_at = 1u << 30}; /* never: but a run that stalls goes on to its deadline */
    job_run(&j);
    for (uint32_t r = 0; r < j.nhost; r++)
      EXPECT(j.status[r] == PR_E_DEADLINE && !strstr(j.text, "communicator") &&
                 strstr(j.error[r], "rank 1 does not begin") && strcmp(j.error[r], j.error[0]) == 0,
             "%s, a call that holds its host, %d: rank %u: %s; %s\n", j.p->name, i % 2, r,
             j.error[r], j.text);
    arena_free(&c->arena);
    free(c);
  }
}

static void hung_device(const char *stdlib) {
  for (uint32_t i = 0; i < 4; i++) {
    bool all = i == 2;
    Program *c = compiled(stdlib, sample_named(i == 1 || all ? "switched" : "1f1b"));
    Job j = {.p = c->s.prog,
             .processes = true,
             .checks = i == 3,
             .damage = hang_kernel,
             .arg = &all,
             .seed = seed0,
             .deadline_s = JOB_DEADLINE_S,
             .kill = 1,
             .kill_at = 1u << 30}; /* never: but a run that stalls goes on to its deadline */
    job_run(&j);
    for (uint32_t r = 0; r < j.nhost; r++)
      EXPECT(j.status[r] == PR_E_DEADLINE && j.aborts == 2 * j.nhost &&
                 strcmp(j.error[r], j.error[0]) == 0,
             "%s, a kernel that hangs: rank %u: %s\n", j.p->name, r, j.error[r]);
    arena_free(&c->arena);
    free(c);
  }
}

static void faults(const char *stdlib) {
  static const Sample onef1b = {"1f1b", NULL, 3, 6}, gpipe = {"gpipe", NULL, 3, 6},
                      pipe2 = {"1f1b", NULL, 2, 6};
  Program *c = malloc(sizeof *c), *d = malloc(sizeof *d), *e = malloc(sizeof *e);
  if (!c || !d || !e || !sample_compile(c, stdlib, &onef1b) || !sample_compile(d, stdlib, &gpipe) ||
      !sample_compile(e, stdlib, &pipe2))
    abort();
  PipeProgram *p = (PipeProgram *)c->s.prog;
  Job j = {.p = p, .other = d->s.prog, .processes = true, .seed = seed0};
  job_run(&j);
  show("another schedule on rank 2", &j);
  j = (Job){.p = p, .other = e->s.prog, .processes = true, .seed = seed0};
  job_run(&j);
  show("another number of ranks on rank 2", &j);
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  j = (Job){.p = p, .seed = seed0};
  job_run(&j);
  show("CUDA_LAUNCH_BLOCKING", &j);
  setenv("CUDA_LAUNCH_BLOCKING", "0", 1);
  j = (Job){.p = p, .seed = seed0, .cuda = {.device = 3}};
  job_run(&j);
  show("a device that is not there", &j);
  static const Sample star = {"star", star_text, 0, 0};
  Program *f = compiled(stdlib, &star);
  for (uint32_t n = 0; n < 4; n += 3) {
    j = (Job){.p = f->s.prog, .processes = true, .seed = seed0, .cuda = {.group_peers = n}};
    job_run(&j);
    show(n ? "the same where three are allowed" : "a group with three ranks", &j);
  }
  arena_free(&f->arena);
  free(f);
  PipeRank *k = (PipeRank *)&p->rank[1];
  const PipeWait first = k->wait[0];
  uint32_t row = 0;
  while (pipe_wait_end(k, row) == 0)
    row++;
  cut_wait(k, 0);
  j = (Job){.p = p, .seed = seed0};
  job_run(&j);
  show("a rank without its first wait", &j);
  put_wait(k, 0, row, first);
  j = (Job){.p = p, .seed = seed0, .processes = true, .fails = true};
  job_run(&j);
  show("a model that fails", &j);
  const Sample *lends[2] = {sample_named("bpipe"), sample_named("switched")};
  for (uint32_t i = 0; i < 6; i++) {
    Program *l = compiled(stdlib, lends[i % 2]);
    bool graph = i >= 4;
    for (uint32_t n = 0; n < (graph ? 8 : 1);
         n++) { /* how far the others are is a matter of the order */
      j = (Job){.p = l->s.prog,
                .seed = seed0 + n,
                .processes = true,
                .apart = i < 2,
                .fails = i >= 2,
                .at_once = graph ? STEPS : 1,
                .cuda = {.graph = graph}};
      job_run(&j);
      if (n == 0)
        printf("%s, %s%s: %s\n", lends[i % 2]->name,
               i < 2 ? "each on a host of its own" : "a model that fails",
               graph ? ", from a graph" : "", j.status[0] ? j.error[0] : "no error");
      EXPECT(j.stuck == 0, "  %u streams wait for ever\n", j.stuck);
    }
    arena_free(&l->arena);
    free(l);
  }
  /* With all ranks in one process the host knows, at once. */
  static const char *const here[] = {"1F3:1:1:hang",      "1SEND_F2:1:1:hang", "2RECV_F2:2:1:hang",
                                     "1SEND_F2:1:2:drop", "2SEND_B1:2:0:drop", "U:1:1:hang"};
  for (size_t i = 0; i < sizeof here / sizeof *here; i++) {
    j = (Job){.p = p, .seed = seed0, .deadline_s = 600};
    setenv("PIPE_FAULT", here[i], 1);
    job_run(&j);
    unsetenv("PIPE_FAULT");
    printf("%s, one process: %s\n", here[i], j.status[0] ? j.error[0] : "no error");
  }
  Result *want = malloc(sizeof *want);
  if (!want)
    abort();
  job_reference(p, false, want);
  for (uint32_t i = 0; i < 2; i++) {
    j = (Job){.p = p, .seed = seed0};
    setenv("PIPE_FAULT", i ? "1SEND_F2:1:1:corrupt" : "1F2:1:1:slow=20", 1);
    job_run(&j);
    printf("%s, one process: %s\n", getenv("PIPE_FAULT"),
           job_same(&j, want) ? "the same" : "other results");
    unsetenv("PIPE_FAULT");
  }
  free(want);
  /* What was first, told alike by all ranks. */
  static const char *const fault[] = {"1F3:1:1:hang", "1SEND_F2:1:1:hang", "1SEND_F2:1:2:drop",
                                      "2SEND_B1:2:0:drop", "U:1:1:hang"};
  for (size_t i = 0; i < 2 * sizeof fault / sizeof *fault; i++) {
    const char *one = fault[i / 2];
    j = (Job){.p = p,
              .seed = seed0,
              .processes = true,
              .checks = i % 2,
              .deadline_s = JOB_DEADLINE_S,
              .kill = 1,
              .kill_at = 1u << 30}; /* never: but a run that stalls goes on to its deadline */
    setenv("PIPE_FAULT", one, 1);
    job_run(&j);
    unsetenv("PIPE_FAULT");
    printf("%s%s: %s\n", one, i % 2 ? ", with headers" : "", j.status[0] ? j.error[0] : "no error");
    for (uint32_t r = 1; r < 3; r++)
      EXPECT(strcmp(j.error[r], j.error[0]) == 0, "  rank %u: %s\n", r, j.error[r]);
  }
  arena_free(&c->arena);
  static const Sample many[] = {{"gpipe", NULL, 2, 30}, {"gpipe channels", NULL, 2, 30}};
  for (uint32_t i = 0; i < 2; i++)
    far_ahead(stdlib, &many[i]);
  arena_free(&d->arena);
  arena_free(&e->arena);
  free(c);
  free(d);
  free(e);
  odd_sums(stdlib);
  old_nccl(stdlib);
  held_call(stdlib);
  hung_device(stdlib);
  faults_of_channels(stdlib);
  deadlines(stdlib);
}

/* ---- headers ---- */

static void headers(const char *stdlib) {
  static const Sample onef1b = {"1f1b", NULL, 3, 6}, gpipe = {"gpipe", NULL, 3, 6};
  static const struct {
    const char *how, *fault;
    bool group, streams, graph, channels, peer;
  } tries[] = {
      {.how = "receives swapped"},
      {.how = "receives swapped", .graph = true},
      {.how = "receives swapped", .streams = true},
      {.how = "a message damaged", .fault = "0SEND_F1:0:1:corrupt"},
      {.how = "a message lost", .fault = "1SEND_F2:1:2:drop"},
      {.how = "transfers of a group swapped", .group = true},
      {.how = "transfers of a group swapped", .group = true, .streams = true},
      {.how = "a message of a group damaged", .group = true, .fault = "2SEND_F1:0:1:corrupt"},
      {.how = "a message of a group lost", .group = true, .fault = "0SEND_F1:0:1:drop"},
      {.how = "receives swapped", .channels = true},
      {.how = "receives swapped", .channels = true, .graph = true},
      {.how = "a message damaged", .channels = true, .fault = "0SEND_F1:0:1:corrupt"},
      {.how = "a message lost", .channels = true, .fault = "1SEND_F2:1:2:drop"},
      {.how = "receives swapped", .peer = true},
      {.how = "receives swapped", .peer = true, .graph = true},
      {.how = "a message damaged", .peer = true, .fault = "0SEND_F1:0:1:corrupt"},
      {.how = "a message lost", .peer = true, .fault = "1SEND_F2:1:2:drop"},
      {.how = "transfers of a group swapped", .peer = true, .group = true},
      {.how = "a message of a group damaged",
       .peer = true,
       .group = true,
       .fault = "2SEND_F1:0:1:corrupt"},
      {.how = "a message of a group lost",
       .peer = true,
       .group = true,
       .fault = "0SEND_F1:0:1:drop"},
      {.how = "a message lost", .peer = true, .channels = true, .fault = "1SEND_F2:1:2:drop"},
  };
  const Sample *chunks = sample_named("chunks"), *channels = sample_named("1f1b channels");
  for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
    Program *c = malloc(sizeof *c);
    bool lost = strstr(tries[i].how, "lost") != NULL;
    if (!c || !sample_compile(c, stdlib,
                              tries[i].channels ? channels
                              : tries[i].group  ? chunks
                              : lost            ? &gpipe
                                                : &onef1b))
      abort();
    Broken b = {c->s.prog, tries[i].how};
    Job j = {.p = c->s.prog,
             .processes = !tries[i].streams,
             .by = tries[i].peer ? BY_PEER : BY_NCCL,
             .checks = true,
             .damage = break_it,
             .arg = &b,
             .cuda = {.graph = tries[i].graph},
             .kill = 1,
             .kill_at = 1u << 30, /* never: but a run that stalls goes on to its deadline */
             .seed = seed0 + i,
             .deadline_s = JOB_DEADLINE_S};
    if (tries[i].fault)
      setenv("PIPE_FAULT", tries[i].fault, 1);
    job_run(&j);
    unsetenv("PIPE_FAULT");
    printf("%s%s%s%s%s\n", b.how, tries[i].channels ? ", channels" : "",
           tries[i].streams ? ", one process" : "", tries[i].graph ? ", a graph" : "",
           tries[i].peer ? ", by peer" : "");
    const char *first = NULL; /* that is not of another rank's */
    for (uint32_t r = 0; r < j.nhost && !first; r++)
      first = j.status[r] && j.status[r] != PR_E_LOST ? j.error[r] : NULL;
    printf("  %s\n", first ? first : "no error");
    for (uint32_t r = 0; r < j.nhost && first; r++)
      EXPECT(strcmp(j.error[r], first) == 0, "  rank %u: %s\n", r, j.error[r]);
    arena_free(&c->arena);
    free(c);
  }
}

/* ---- checkpoints ---- */

static void resume(const char *stdlib, const char *folder) {
  for (uint32_t i = 0; i < nsamples; i++) {
    Program *c = compiled(stdlib, &samples[i]);
    Result *want = malloc(sizeof *want);
    if (!want)
      abort();
    const PipeProgram *p = c->s.prog;
    job_reference(p, false, want);
    for (uint32_t k = 0; k < 2; k++) {
      char dir[4096];
      snprintf(dir, sizeof dir, "%s/%s-%u", folder, samples[i].name, k);
      Job a = {.p = p, .processes = k == 1, .save = dir, .seed = seed0 + i};
      Job b = {.p = p,
               .processes = k == 1,
               .from = dir,
               .seed = seed0 + 50 + i,
               .cuda = {.graph = i % 2}};
      job_run(&a);
      EXPECT(job_whole(&a), "%s %u: %s %s\n", samples[i].name, k, a.text, a.error[0]);
      job_run(&b);
      EXPECT(job_whole(&b), "%s %u: %s %s\n", samples[i].name, k, b.text, b.error[0]);
      EXPECT(!job_whole(&b) || job_same(&b, want), "%s %u: results differ\n", samples[i].name, k);
    }
    arena_free(&c->arena);
    free(c);
    free(want);
  }
  printf("%u programs go on\n", nsamples);
}

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "resume") == 0) {
    shim_pairs = job_pairs;
    resume(argv[2], argv[3]);
    printf("%d wrong\n", job_bad);
    return job_bad != 0;
  }
  if (argc != 3)
    return 2;
  if (getenv("PIPE_SEED"))
    seed0 = strtoull(getenv("PIPE_SEED"), NULL, 10);
  printf("seed %llu\n", (unsigned long long)seed0);
  setvbuf(stdout, NULL, _IOLBF, 0);
  shim_pairs = job_pairs;
  if (strcmp(argv[1], "parity") == 0)
    parity(argv[2]);
  else if (strcmp(argv[1], "log") == 0)
    plan_logs(argv[2], seed0);
  else if (strcmp(argv[1], "events") == 0)
    plan_events(argv[2], seed0);
  else if (strcmp(argv[1], "library") == 0 || strcmp(argv[1], "channels") == 0)
    plan_library(argv[2], argv[1][0] == 'c', seed0);
  else if (strcmp(argv[1], "points") == 0)
    plan_points(argv[2], seed0);
  else if (strcmp(argv[1], "damage") == 0)
    damage(argv[2]);
  else if (strcmp(argv[1], "faults") == 0)
    faults(argv[2]);
  else if (strcmp(argv[1], "formulas") == 0)
    plan_formulas(argv[2], seed0);
  else if (strcmp(argv[1], "memory") == 0)
    plan_memory(argv[2], seed0);
  else if (strcmp(argv[1], "headers") == 0)
    headers(argv[2]);
  else if (strcmp(argv[1], "kills") == 0)
    plan_kills(argv[2], seed0);
  else if (strcmp(argv[1], "peer") == 0)
    plan_peer(argv[2], seed0);
  else if (strcmp(argv[1], "waits") == 0)
    plan_waits(argv[2], seed0);
  else
    return 2;
  printf("%d wrong\n", job_bad);
  return job_bad != 0;
}
