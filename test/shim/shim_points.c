/* SPDX-License-Identifier: MIT
 * See shim_plan.h: faults on request at an instruction of every kind, on engines of one process and
 * of several. */
#include "shim_plan.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim_job.h"

typedef struct Spot { /* an instruction */
  const PipeProgram *p;
  uint32_t rank, row;
  char text[PIPE_OP_TEXT];
} Spot;

typedef enum On { THREADS, STREAMS, PROCESSES, GRAPH, GRAPHS, PEERS, NENGINES } On;
static const char *const on_name[] = {"threads", "streams", "processes",
                                      "a graph", "graphs",  "peers"};

/* What came of a run: of all its processes, which must say the same. */
typedef struct Came {
  PrStatus status;
  char error[PR_TEXT];
  Job j;
} Came;

/* An instruction of this kind that is alone, not the first of its rank; or the first. Of programs
 * with channels, or without. */
static bool find_spot(Program *const *c, uint32_t op, bool channels, Spot *to) {
  bool found = false;
  for (uint32_t i = 0; i < nsamples; i++) {
    const PipeProgram *p = c[i]->s.prog;
    for (uint32_t r = 0; r < p->nrank && !p->nchannel == !channels; r++)
      for (uint32_t k = 0, n = 0; k < p->rank[r].ninstr; k++) {
        const PipeInstr *in = &p->rank[r].instr[k];
        if (in->op != op || in->group || (k > 0 && in[-1].group))
          continue;
        if (!found || n == 1) {
          *to = (Spot){.p = p, .rank = r, .row = k};
          pipe_instr_text(to->text, pipe_graph(p), in);
          found = true;
        }
        if (n++ == 1)
          return true;
      }
  }
  return found;
}

/* Of a transfer. */
static Spot other_end(const Spot *at) {
  uint32_t **pair = pipe_pair(at->p);
  if (!pair)
    abort();
  const uint32_t peer = at->p->rank[at->rank].instr[at->row].peer;
  Spot to = {.p = at->p, .rank = peer, .row = pair[at->rank][at->row]};
  pipe_instr_text(to.text, pipe_graph(at->p), &at->p->rank[peer].instr[to.row]);
  free(pair);
  return to;
}

static void run_threads(Job *j) {
  WordModel word = {0};
  PrModel model = word_model(&word, j->p);
  PrOptions o = {.deadline_s = j->deadline_s, .checksums = j->checks};
  PrRun *run;
  PrStatus st = pr_open(&run, j->p, &model, &o);
  for (uint32_t s = 0; s < STEPS && !st; s++)
    if (!(st = pr_steps(run, 1)))
      for (uint32_t m = 0; m < j->p->nmb / (j->p->slices ? j->p->slices : 1); m++)
        j->result.loss[s][m] = pr_loss_mb(run, m);
  for (uint32_t row = 0; row < j->p->nstage && !st; row++)
    st = pr_copy_weight(run, row, j->result.weight[row]);
  j->nhost = 1;
  j->status[0] = st;
  snprintf(j->error[0], sizeof *j->error, "%s", pr_error(run));
  pr_close(run);
}

static void suffer(const Spot *at, On on, const char *action, double deadline_s, uint64_t seed,
                   Came *to) {
  char fault[128];
  bool graph = on == GRAPH || on == GRAPHS;
  snprintf(fault, sizeof fault, "%s:%u:%d:%s", at->text, at->rank, graph ? 2 : 1, action);
  memset(to, 0, sizeof *to);
  to->j = (Job){.p = at->p, .checks = true, .seed = seed, .deadline_s = deadline_s};
  to->j.cuda.graph = graph;
  if (on == PROCESSES || on == GRAPHS || on == PEERS) {
    to->j.processes = true;
    to->j.by = on == PEERS ? BY_PEER : BY_NCCL;
    to->j.kill = 1;
    to->j.kill_at = 1u << 30; /* never: but a run that stalls goes on to its deadline */
  }
  setenv("PIPE_FAULT", fault, 1);
  on == THREADS ? run_threads(&to->j) : job_run(&to->j);
  unsetenv("PIPE_FAULT");
  to->status = to->j.status[0];
  snprintf(to->error, sizeof to->error, "%s", to->j.error[0]);
  for (uint32_t r = 1; r < to->j.nhost; r++)
    EXPECT(strcmp(to->j.error[r], to->error) == 0, "%s, %s: rank %u: %s\n", fault, on_name[on], r,
           to->j.error[r]);
}

/* Is the instruction what the report names first, and its rank? */
static bool names(const Came *c, const Spot *at) {
  char rank[32], text[PIPE_OP_TEXT + 4];
  const char *first = strstr(c->error, " (");
  snprintf(rank, sizeof rank, "rank %u ", at->rank);
  int n = snprintf(text, sizeof text, " %s", at->text);
  return first && first - c->error > n && strncmp(first - n, text, (size_t)n) == 0 &&
         strstr(c->error, rank) && strstr(c->error, rank) < first;
}

/* Is it anywhere in the report? */
static bool tells(const Came *c, const Spot *at) {
  char text[PIPE_OP_TEXT + 4];
  snprintf(text, sizeof text, " %s ", at->text);
  return strstr(c->error, text);
}

/* Under a deadline that a step before does not miss: threads may have to share the machine. The
 * report tells of the instruction, or of the other end of its transfer. */
static void suffer_in_time(const Spot *at, const Spot *other, On on, const char *action,
                           uint64_t seed, Came *to) {
  double limit = on == THREADS ? 0.06 : JOB_DEADLINE_S;
  do
    suffer(at, on, action, limit, seed, to);
  while (on == THREADS && !tells(to, at) && !tells(to, other) && (limit *= 4) < 60);
}

/* A process that has threads for ranks ends as by kill -9. */
static bool crashes(const Spot *at, uint64_t seed) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    Came c;
    suffer(at, THREADS, "crash", 60, seed, &c);
    _exit(0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static void one_point(const Spot *at, On on, uint64_t seed) {
  const PipeInstr *in = &at->p->rank[at->rank].instr[at->row];
  Came *c = calloc(1, sizeof *c);
  Result *want = malloc(sizeof *want);
  if (!c || !want)
    abort();
  job_reference(at->p, false, want);
  suffer_in_time(at, at, on, "hang", seed, c);
  EXPECT(pr_exit_status(c->status) == 75 && names(c, at), "%s hangs on %s, %s: %d %s\n", at->text,
         at->p->name, on_name[on], c->status, c->error);
  suffer(at, on, "slow=3", 60, seed, c);
  EXPECT(c->status == PR_OK && job_same(&c->j, want), "%s slow on %s, %s: %d %s\n", at->text,
         at->p->name, on_name[on], c->status, c->error);
  if (pipe_is_send(in->op)) {
    const Spot other = other_end(at);
    suffer_in_time(at, &other, on, "drop", seed, c);
    EXPECT(pr_exit_status(c->status) == 75 && (tells(c, at) || tells(c, &other)),
           "%s lost on %s, %s: %d %s\n", at->text, at->p->name, on_name[on], c->status, c->error);
  }
  bool writes = in->op == PIPE_F || in->op == PIPE_B || in->op == PIPE_I;
  if (pipe_is_send(in->op) || (writes && in->out != PIPE_NONE)) {
    suffer(at, on, "corrupt", 60, seed, c);
    bool seen = pipe_is_send(in->op) && on != STREAMS &&
                on != GRAPH; /* who copies it has both ends */
    EXPECT(seen ? pr_exit_status(c->status) == 75 && strstr(c->error, "damaged")
                : c->status == PR_OK && !job_same(&c->j, want),
           "%s corrupt on %s, %s: %d %s\n", at->text, at->p->name, on_name[on], c->status,
           c->error);
  }
  free(want);
  free(c);
}

static void points_of(Program *const *c, bool channels, uint64_t seed) {
  uint32_t kinds = 0;
  for (uint32_t op = 0; op < PIPE_NOPS; op++) {
    Spot at;
    bool comm = pipe_op_info[op].comm; /* what channels are about */
    if ((channels && !comm && op != PIPE_F && op != PIPE_B) || !find_spot(c, op, channels, &at)) {
      if (!channels)
        printf("%s: in none of the programs\n", pipe_op_info[op].text);
      continue;
    }
    printf("%s: %s of rank %u of %s\n", pipe_op_info[op].text, at.text, at.rank, at.p->name);
    for (On on = 0; on < NENGINES;
         on++) /* from a graph, of kinds in turn on one device, and on several */
      if ((on != GRAPH && on != GRAPHS) || (on == GRAPH) == (kinds % 2 == 0))
        one_point(&at, on, seed * 1000 + op * 10 + on);
    if (!channels)
      EXPECT(crashes(&at, seed), "%s: no crash\n", at.text);
    kinds++;
  }
  printf("%u kinds on %d engines%s\n", kinds, NENGINES, channels ? ", with channels" : "");
}

void plan_points(const char *stdlib, uint64_t seed) {
  Program **c = calloc(nsamples, sizeof *c);
  for (uint32_t i = 0; i < nsamples; i++)
    if (!c || !(c[i] = malloc(sizeof *c[i])) || !sample_compile(c[i], stdlib, &samples[i]))
      abort();
  points_of(c, false, seed);
  points_of(c, true, seed + 1);
  for (uint32_t i = 0; i < nsamples; i++) {
    arena_free(&c[i]->arena);
    free(c[i]);
  }
  free(c);
}
