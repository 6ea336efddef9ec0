/* SPDX-License-Identifier: MIT
 * Opens a run, executes its steps, closes it: the functions of pipe_run.h that need all rooms. */
#include "checkpoint.h"
#include "run.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Gives each rank its rows of the stage table, indexed by `chunk`. */
static PrStatus take_stages(PrRun *run) {
  const PipeProgram *p = run->p;
  uint32_t *row = run->rank_stage = malloc(p->nstage * sizeof *row);
  if (!row)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u stages", p->nstage);
  for (uint32_t s = 0; s < p->nstage; s++)
    run->rank[p->stage[s].rank].nstage++;
  for (uint32_t r = 0; r < p->nrank; row += run->rank[r++].nstage)
    run->rank[r].stage = row;
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    run->rank_stage[run->rank[g->rank].stage - run->rank_stage + g->chunk] = s;
  }
  return PR_OK;
}

/* Numbers the stages of the model without output. Rows 0 .. nmodel - 1 are the first rows of each
 * stage. */
static void find_sinks(PrRun *run) {
  const PipeProgram *p = run->p;
  uint32_t nsource = 0;
  for (uint32_t s = 0; s < p->nstage; s++) {
    const PipeStage *g = &p->stage[s];
    if (g->nout == 0)
      run->loss_rank = g->rank;
    run->stage[s].sink = g->nout > 0     ? PIPE_NONE
                         : s < p->nmodel ? run->nsink++
                                         : run->stage[g->model].sink;
    nsource += s < p->nmodel && g->nin == 0;
  }
  run->free_running = run->o.free_running && run->nsink == 1 && nsource == 1;
}

/* The predicted time of a step on the cores of this machine. */
static uint64_t predicted(const PipeProgram *p) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  uint64_t shared = p->busy / (uint64_t)(cores > 0 ? cores : 1);
  return shared > p->makespan ? shared : p->makespan;
}

/* Reads PIPE_DEADLINE, unless PrOptions.deadline_s is set. */
static PrStatus read_deadline(PrRun *run) {
  const char *asked = run->o.deadline_s == 0 ? getenv("PIPE_DEADLINE") : NULL;
  double *s = &run->o.deadline_s;
  char *end = "";
  if (asked)
    *s = strtod(asked, &end);
  if (asked && (*end || !(*s > 0 && *s <= 1e9)))
    return pr_fail(run, PR_E_ARG,
                   "PIPE_DEADLINE is '%.100s': expected seconds, above 0 and at most 1e9", asked);
  if (!(*s >= 0 && *s <= 1e9))
    return pr_fail(run, PR_E_ARG, "options: deadline_s is %g: expected seconds, 0 to 1e9", *s);
  return PR_OK;
}

uint32_t pr_version(void) { return PIPE_VERSION; }

/* Checks that there are as many processes as ranks. run->p may not be a program yet. */
static PrStatus check_processes(PrRun *run) {
  const PipeProgram *p = run->p;
  if (run->here == PIPE_NONE || !p || p->magic != PIPE_MAGIC || p->abi != PIPE_ABI || !p->name ||
      !p->params || run->nprocess == p->nrank)
    return PR_OK;
  return run->nprocess == 1
             ? pr_fail(run, PR_E_ARG,
                       "program: %s %s has %u ranks, but 1 process runs it; start it with mpirun "
                       "-np %u",
                       p->name, p->params, p->nrank, p->nrank)
             : pr_fail(run, PR_E_ARG, "program: %s %s has %u rank%s, but %u processes run it",
                       p->name, p->params, p->nrank, p->nrank == 1 ? "" : "s", run->nprocess);
}

static PrStatus take_ranks(PrRun *run) {
  const PipeProgram *p = run->p;
  run->rank = aligned_alloc(PR_LINE, p->nrank * sizeof *run->rank);
  if (!run->rank)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u ranks", p->nrank);
  memset(run->rank, 0, p->nrank * sizeof *run->rank);
  for (uint32_t r = 0; r < p->nrank; r++) {
    RankRun *k = &run->rank[r];
    k->run = run;
    k->t = run->own.instr && r == run->here ? &run->own : &p->rank[r];
    k->id = r;
    atomic_init(&k->step_start, UINT64_MAX);
  }
  return PR_OK;
}

/* The checks and allocations that do not depend on the engine. */
static PrStatus open_here(PrRun *run) {
  const PrOptions *o = &run->o;
  PrStatus st;
  if ((st = read_deadline(run)) || (st = check_processes(run)))
    return st;
  if ((st = pr_take_lists(run)) || (st = take_ranks(run)) || (st = pr_check_model(run)) ||
      (st = pr_fault_read(run)))
    return st;
  const PipeProgram *p = run->p;
  run->trace_slots = (uint64_t)o->trace_steps +
                     2; /* free-running ranks are up to two steps apart */
  find_sinks(run);
  run->loss[0] = calloc((size_t)run->nsink * p->nmb, sizeof(double));
  run->loss[1] = calloc((size_t)run->nsink * p->nmb, sizeof(double));
  bool ok = run->loss[0] && run->loss[1];
  for (int i = 0; i < 2 && o->on_loss && ok; i++) {
    run->left[i] = calloc(p->nmb, sizeof *run->left[i]);
    ok = run->left[i] != NULL;
    for (uint32_t m = 0; ok && m < p->nmb / pipe_slices(p); m++)
      atomic_init(&run->left[i][m], run->nsink * pipe_slices(p));
  }
  if (!ok)
    return pr_fail(run, PR_E_MEMORY, "no memory for %u losses", p->nmb);
  if ((st = take_stages(run)) || (st = pr_take_streams(run)) || (st = pr_count_updates(run)))
    return st;
  for (uint32_t r = 0; r < p->nrank; r++)
    if ((st = pr_take_memory(run, &run->rank[r])))
      return st;
  if ((st = pr_take_sums(run)) || (st = pr_take_stashes(run)))
    return st;
  run->epoch_ns = pr_now();
  run->limit_ns = pr_limit(run, predicted(p));
  return PR_OK;
}

static PrStatus agree(PrRun *run, PrStatus st) {
  return run->engine->agree ? run->engine->agree(run, st) : st;
}

static PrStatus open_run(PrRun *run) {
  PrStatus st;
  run->engine = run->o.engine ? run->o.engine : &pr_threads;
  run->here = PIPE_NONE;
  run->nprocess = 1;
  if (run->engine->join && (st = run->engine->join(run)))
    return st;
  if ((st = agree(run, open_here(run))))
    return st;
  run->opened = true;
  return run->engine->open(run);
}

PrStatus pr_open(PrRun **out, const PipeProgram *p, const PrModel *m, const PrOptions *o) {
  PrRun *run = *out = aligned_alloc(PR_LINE, sizeof *run);
  if (!run)
    return PR_E_MEMORY;
  memset(run, 0, sizeof *run);
  pthread_mutex_init(&run->lock, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&run->cond, &attr);
  pthread_condattr_destroy(&attr);
  run->p = p;
  if (m)
    run->m = *m;
  if (o)
    run->o = *o;
  return open_run(run);
}

PrStatus pr_steps(PrRun *run, uint64_t n) {
  if (!run)
    return PR_E_MEMORY;
  PrStatus st = (PrStatus)atomic_load(&run->status);
  if (st || n == 0)
    return st;
  return run->engine->steps(run, n);
}

void *pr_weight(PrRun *run, uint32_t stage) {
  bool fine = run->stage && stage < run->p->nstage && !pr_failed(run);
  return fine ? run->stage[stage].weight : NULL;
}

PrStatus pr_copy_weight(PrRun *run, uint32_t stage, void *to) {
  PrStatus st = (PrStatus)atomic_load(&run->status);
  if (st || !run->stage || stage >= run->p->nstage)
    return st ? st : PR_E_ARG;
  uint64_t bytes = run->stage[stage].size.weight;
  if (run->stage[stage].weight && run->engine->take)
    st = run->engine->fetch(run, to, run->stage[stage].weight, bytes);
  else if (run->stage[stage].weight)
    memcpy(to, run->stage[stage].weight, bytes);
  if (st)
    return st;
  return run->engine->share ? run->engine->share(run, run->p->stage[stage].rank, to, bytes) : PR_OK;
}

void pr_close(PrRun *run) {
  if (!run)
    return;
  if (run->engine->close)
    run->engine->close(run);
  for (uint32_t r = 0; run->rank && r < run->p->nrank; r++) {
    RankRun *k = &run->rank[r];
    pr_give_streams(k);
    pr_give_memory(run, k);
  }
  ck_leave_folders(run);
  free(run->rank);
  free(run->chan);
  free(run->coll);
  free(run->coll_block);
  free(run->act);
  free(run->kept);
  free(run->stage);
  free(run->rank_stage);
  free(run->loss[0]);
  free(run->loss[1]);
  free(run->left[0]);
  free(run->left[1]);
  pthread_cond_destroy(&run->cond);
  pthread_mutex_destroy(&run->lock);
  pr_give_lists(run);
  free(run);
}
