/* SPDX-License-Identifier: MIT
 * Sums of replicas and tied stages with gradients of a size that is asked for: the weights after
 * two steps, and the memory that pr_open takes for sums.
 *
 *   sums_test SCHEDULE.pipe M FLOATS     FLOATS: of the weights of a stage; half of them, rounded
 *                                        up, are tied
 *
 * Threads and, compiled with ON_MPI, processes print the same "weights". Then MPI prints the most
 * bytes that a rank took by aligned_alloc in pr_open beyond its tensors, less what the same run
 * with a gradient of no bytes takes. */
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipe_run.h"
#include "program.h"
#include "test_model.h"
#ifdef ON_MPI
#include <mpi.h>

#include "pipe_mpi.h"
#endif

static uint64_t taken;

void *aligned_alloc(size_t align, size_t n) {
  taken += n;
  return memalign(align, n);
}

static int sizes(void *self, uint32_t stage, PrSizes *out) {
  const uint64_t *count = self;
  (void)stage;
  *out = (PrSizes){.act = 64,
                   .boundary = 64,
                   .weight = 4 * *count,
                   .grad = 4 * *count,
                   .tied = 4 * ((*count + 1) / 2)};
  return 0;
}

static int init(void *self, uint32_t stage, void *weight, void *opt) {
  (void)opt, (void)stage;
  for (uint64_t i = 0; i < *(uint64_t *)self; i++)
    ((float *)weight)[i] = 1.0f / (float)(i % 91 + 1);
  return 0;
}

static int forward(void *self, const PrCall *c) {
  (void)self;
  if (c->loss)
    *c->loss = c->mb;
  return 0;
}

/* Sums of such gradients depend on their order. */
static int backward(void *self, const PrCall *c) {
  for (uint64_t i = 0; i < *(uint64_t *)self; i++)
    ((float *)c->grad)[i] += 1.0f / (float)(3 + i % 1021 + 7 * c->mb + 11 * c->stage + c->step);
  return 0;
}

static int update(void *self, const PrCall *c) {
  for (uint64_t i = 0; i < *(uint64_t *)self; i++)
    ((float *)c->weight)[i] -= ((float *)c->grad)[i];
  memset(c->grad, 0, 4 * *(uint64_t *)self);
  return 0;
}

/* Trains; tells the hash of the weights of all rows. Returns the bytes beyond tensors that pr_open
 * took. */
static uint64_t train(const PipeProgram *p, uint64_t count, PrOptions *o, uint64_t *hash) {
  PrModel m = {.self = &count,
               .nstage = p->nmodel,
               WHOLE_OPS(update),
               .reduce = sum_floats,
               .tie = tie_floats};
  PrRun *run;
  uint64_t before = taken;
  PrStatus st = pr_open(&run, p, &m, o);
  uint64_t more = taken - before;
  for (uint32_t r = 0; r < p->nrank; r++)
    more -= pr_rank(run) == PIPE_NONE || pr_rank(run) == r ? pr_bytes(run, r) : 0;
  if (!st)
    st = pr_steps(run, 2);
  unsigned char *w = malloc(4 * count + 1);
  *hash = 0xcbf29ce484222325u;
  for (uint32_t s = 0; w && !st && s < p->nstage; s++) {
    st = pr_copy_weight(run, s, w);
    for (uint64_t i = 0; i < 4 * count; i++)
      *hash = (*hash ^ w[i]) * 0x100000001b3u;
  }
  free(w);
  if (st) {
    fprintf(stderr, "sums_test: %s\n", pr_error(run));
    exit(1);
  }
  pr_close(run);
  return more;
}

int main(int argc, char **argv) {
  if (argc != 4)
    return 2;
  Program program;
  const Define m = {.name = "M", .value = atoi(argv[2])};
  if (!program_open(&program, NULL, argv[1], NULL, &m, 1, NULL))
    return 1;
  PrOptions o = {0};
#ifdef ON_MPI
  MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &(int){0});
  o.engine = &pr_mpi;
#endif
  uint64_t hash, none;
  uint64_t least = train(program.s.prog, 0, &o, &none);
  uint64_t more = train(program.s.prog, strtoull(argv[3], NULL, 10), &o, &hash) - least;
  bool leads = true;
#ifdef ON_MPI
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(MPI_IN_PLACE, &more, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
  leads = rank == 0;
  MPI_Finalize();
#endif
  if (leads)
    printf("weights %016" PRIx64 "\nroom %" PRIu64 "\n", hash, more);
  program_close(&program);
  return 0;
}
