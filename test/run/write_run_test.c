/* SPDX-License-Identifier: MIT
 * pr_write_trace and pr_write_profile on a real run of a program of two ranks and two microbatches,
 * written out by hand.
 *
 *   write_run_test DIR
 *
 * writes DIR/trace.json and DIR/profile.json (two steps); writes through links, into a fifo and, if
 * there is one, to the device DIR/full; provokes the errors that writing can run into and shows
 * that the run goes on after them. Prints the errors. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "pipe_run.h"
#include "test_model.h"

#define NO PIPE_NONE
#define OP(o, h, s, m, p, a, i, u, w, n) \
  { \
    .op = PIPE_##o, .phase = PIPE_##h, .stage = s, .mb = m, .peer = p, .act = a, .gout = NO, \
    .keep = NO, .in = i, .out = u, .waits = w, .nwait = n \
  }
/* clang-format off */
static const PipeInstr rank0[] = {
    OP(F, WARMUP, 0, 0, NO, 0, NO, 2, 0, 0),      OP(SEND_F, WARMUP, 0, 0, 1, NO, 2, NO, 0, 1),
    OP(F, STEADY, 0, 1, NO, 1, NO, 3, 1, 0),      OP(SEND_F, STEADY, 0, 1, 1, NO, 3, NO, 1, 1),
    OP(RECV_B, STEADY, 0, 0, 1, NO, NO, 4, 2, 0), OP(B, STEADY, 0, 0, NO, 0, 4, NO, 2, 1),
    OP(RECV_B, FLUSH, 0, 1, 1, NO, NO, 5, 3, 0),  OP(B, FLUSH, 0, 1, NO, 1, 5, NO, 3, 1),
    OP(U, STEADY, 0, NO, NO, NO, NO, NO, 4, 0),
};
static const PipeInstr rank1[] = {
    OP(RECV_F, STEADY, 1, 0, 0, NO, NO, 1, 0, 1), OP(F, STEADY, 1, 0, NO, 0, 1, NO, 1, 1),
    OP(RECV_F, STEADY, 1, 1, 0, NO, NO, 2, 2, 0), OP(B, STEADY, 1, 0, NO, 0, NO, 3, 2, 0),
    OP(SEND_B, STEADY, 1, 0, 0, NO, 3, NO, 2, 1), OP(F, STEADY, 1, 1, NO, 0, 2, NO, 3, 1),
    OP(B, STEADY, 1, 1, NO, 0, NO, 4, 4, 0),      OP(SEND_B, STEADY, 1, 1, 0, NO, 4, NO, 4, 1),
    OP(U, STEADY, 1, NO, NO, NO, NO, NO, 5, 0),
};
/* clang-format on */
static const PipeWait wait0[] = {
    {PIPE_COMPUTE, 1}, {PIPE_COMPUTE, 2}, {PIPE_COMM, 3}, {PIPE_COMM, 4}};
static const PipeWait wait1[] = {{PIPE_COMPUTE, 0}, {PIPE_COMM, 1},    {PIPE_COMPUTE, 2},
                                 {PIPE_COMM, 2},    {PIPE_COMPUTE, 4}, {PIPE_COMM, 4}};
static const PipePool pool0[] = {
    {PIPE_ACT, 0, 0, 2, 0, 0, 0}, {PIPE_OUT, 0, 2, 2, 0, 0, 0}, {PIPE_IN, 0, 4, 2, 0, 0, 0}};
static const PipePool pool1[] = {
    {PIPE_ACT, 1, 0, 1, 0, 0, 0}, {PIPE_IN, 0, 1, 2, 0, 0, 0}, {PIPE_OUT, 0, 3, 2, 0, 0, 0}};
static const PipeRank ranks[] = {{.instr = rank0,
                                  .pool = pool0,
                                  .wait = wait0,
                                  .ninstr = 9,
                                  .npool = 3,
                                  .nslot = 6,
                                  .inflight = 2,
                                  .nwait = 4},
                                 {.instr = rank1,
                                  .pool = pool1,
                                  .wait = wait1,
                                  .ninstr = 9,
                                  .npool = 3,
                                  .nslot = 5,
                                  .inflight = 1,
                                  .nwait = 6}};
static const PipeStage stages[] = {
    {.rank = 0,
     .prev = NO,
     .next = 1,
     .nmb = 2,
     .nout = 1,
     .tied = NO,
     .time = {[PIPE_F] = 2, [PIPE_B] = 4}},
    {.rank = 1,
     .prev = 0,
     .next = NO,
     .model = 1,
     .replica = 1,
     .nmb = 2,
     .nin = 1,
     .tied = NO,
     .time = {[PIPE_F] = 2, [PIPE_B] = 4}},
};
static const PipeSite site = {0, 7, 5};
static const char *const file = "two.pipe";
static const PipeProgram program = {.magic = PIPE_MAGIC,
                                    .abi = PIPE_ABI,
                                    .name = "two",
                                    .params = "P=2 M=2",
                                    .nrank = 2,
                                    .nstage = 2,
                                    .nmodel = 2,
                                    .nmb = 2,
                                    .nsite = 1,
                                    .nfile = 1,
                                    .slots = 2,
                                    .makespan = 18,
                                    .ideal = 18,
                                    .busy = 24,
                                    .rank = ranks,
                                    .stage = stages,
                                    .site = &site,
                                    .file = &file};

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  (void)self;
  *out = (PrSizes){.act = 64, .boundary = stage == 0 ? 64 : 0, .weight = 64, .grad = 64};
  return 0;
}
static int init(void *self, uint32_t stage, void *weight, void *opt) {
  (void)self, (void)stage, (void)weight, (void)opt;
  return 0;
}
static int sleep_ms(long ms) { return nanosleep(&(struct timespec){0, ms * 1000000}, NULL); }
static int forward(void *self, const PrCall *c) {
  (void)self;
  if (c->loss)
    *c->loss = 0;
  return sleep_ms(2);
}
static int backward(void *self, const PrCall *c) {
  (void)self, (void)c;
  return sleep_ms(4);
}
static int update(void *self, const PrCall *c) {
  (void)self, (void)c;
  return 0;
}

/* How many bytes come through a fifo. */
static void *read_all(void *path) {
  uintptr_t n = 0;
  FILE *in = fopen(path, "r");
  while (in && getc(in) != EOF)
    n++;
  if (in)
    fclose(in);
  return (void *)n;
}

static void must(int ok, const char *what) {
  if (!ok) {
    printf("write_run_test: %s\n", what);
    exit(1);
  }
}

int main(int argc, char **argv) {
  char path[600];
  const PrModel model = {.nstage = 2, WHOLE_OPS(update)};
  PrRun *run;
  must(argc == 2 && strlen(argv[1]) < 500, "write_run_test DIR");
  must(pr_open(&run, &program, &model, &(PrOptions){.trace_steps = 2}) == PR_OK, "open");
  must(pr_steps(run, 3) == PR_OK, "steps");
  snprintf(path, sizeof path, "%s/trace.json", argv[1]);
  must(pr_write_trace(run, path) == PR_OK, "trace");
  must(pr_write_trace(run, path) == PR_OK, "trace over the same file");
  snprintf(path, sizeof path, "%s/profile.json", argv[1]);
  must(pr_write_profile(run, path) == PR_OK, "profile");
  struct stat st;
  must(stat(path, &st) == 0 && (st.st_mode & 0444) == 0444, "a profile that others may read");

  /* Links stay links, what they lead to is replaced or made; pipes stay pipes. */
  char other[600];
  snprintf(path, sizeof path, "%s/link.json", argv[1]);
  must(symlink("linked.json", path) == 0, "link");
  must(pr_write_trace(run, path) == PR_OK, "write through a link to nothing");
  must(pr_write_trace(run, path) == PR_OK, "write through a link to a file");
  must(lstat(path, &st) == 0 && S_ISLNK(st.st_mode), "the link is there");
  snprintf(other, sizeof other, "%s/linked.json", argv[1]);
  must(lstat(other, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 1000, "the linked trace");
  must(unlink(path) == 0 && unlink(other) == 0, "unlink");
  snprintf(path, sizeof path, "%s/fifo", argv[1]);
  must(mkfifo(path, 0600) == 0, "fifo");
  pthread_t reader;
  void *nread;
  must(pthread_create(&reader, NULL, read_all, path) == 0, "thread");
  must(pr_write_trace(run, path) == PR_OK, "write into a pipe");
  must(pthread_join(reader, &nread) == 0 && (uintptr_t)nread > 1000, "a trace through the pipe");
  must(lstat(path, &st) == 0 && S_ISFIFO(st.st_mode), "the fifo is there");
  must(unlink(path) == 0, "unlink");
  snprintf(path, sizeof path, "%s/full", argv[1]);
  if (lstat(path, &st) == 0) { /* a node like /dev/full, if the test may make one */
    must(pr_write_trace(run, path) == PR_E_IO, "a full device");
    must(lstat(path, &st) == 0 && S_ISCHR(st.st_mode), "the device is there");
    must(unlink(path) == 0, "unlink");
  }
  pr_close(run);

  must(pr_open(&run, &program, &model, &(PrOptions){.trace_steps = 2}) == PR_OK, "open");
  must(pr_steps(run, 3) == PR_OK, "steps");
  snprintf(path, sizeof path, "%s/folder", argv[1]);
  must(pr_write_trace(run, path) == PR_E_IO, "a folder is in the way");
  printf("%s\n", pr_error(run));
  must(pr_steps(run, 1) == PR_OK, "a step after that");
  pr_close(run);

  must(pr_open(&run, &program, &model, &(PrOptions){.trace_steps = 1}) == PR_OK, "open");
  must(pr_steps(run, 1) == PR_OK, "a step");
  snprintf(path, sizeof path, "%s/none/x.json", argv[1]);
  must(pr_write_trace(run, path) == PR_E_IO, "there is no such folder");
  printf("%s\n", pr_error(run));
  pr_close(run);

  must(pr_open(&run, &program, &model, NULL) == PR_OK, "open");
  snprintf(path, sizeof path, "%s/none.json", argv[1]);
  must(pr_write_trace(run, path) == PR_E_IO, "no step was kept");
  printf("%s\n", pr_error(run));
  must(pr_steps(run, 1) == PR_OK, "a step after that");
  pr_close(run);
  return 0;
}
