/* SPDX-License-Identifier: MIT
 * The predicted times of a finished program, by the timed machine. */
#include "guard.h"
#include "pipe_rows.h"
#include "pipe_sim.h"

/* The rows of each stream of a rank, and their times. */
typedef struct Rows {
  uint32_t *index[PIPE_NSTREAMS], n[PIPE_NSTREAMS];
  uint64_t *start[PIPE_NSTREAMS], *end[PIPE_NSTREAMS];
} Rows;

static Rows rows_of(Arena *a, const PipeRank *k) {
  Rows x = {0};
  for (uint32_t i = 0; i < k->ninstr; i++)
    x.n[pipe_stream_of(k->instr[i].op)]++;
  for (int s = 0; s < PIPE_NSTREAMS; s++) {
    x.index[s] = arena_alloc(a, x.n[s] * sizeof *x.index[s]);
    x.start[s] = arena_alloc(a, x.n[s] * sizeof *x.start[s]);
    x.end[s] = arena_alloc(a, x.n[s] * sizeof *x.end[s]);
    x.n[s] = 0;
  }
  for (uint32_t i = 0; i < k->ninstr; i++)
    x.index[pipe_stream_of(k->instr[i].op)][x.n[pipe_stream_of(k->instr[i].op)]++] = i;
  return x;
}

static uint64_t **predict(Arena *a, const PipeProgram *p, uint64_t ***end, uint64_t *makespan) {
  enum { NS = PIPE_NSTREAMS };
  const size_t n = p->nrank;
  Arena own = {0};
  Rows *x = NEW_ARRAY(&own, Rows, n);
  PipeStream *stream[NS];
  uint64_t **starts[NS], **ends[NS]; /* by stream: [rank][position] */
  const PipeWait **wait = NEW_ARRAY(&own, const PipeWait *, n);
  uint32_t *nwait = NEW_ARRAY(&own, uint32_t, n);
  uint32_t *done = NEW_ARRAY(&own, uint32_t, 2 * n);
  for (int s = 0; s < NS; s++) {
    stream[s] = NEW_ARRAY(&own, PipeStream, n);
    starts[s] = NEW_ARRAY(&own, uint64_t *, n), ends[s] = NEW_ARRAY(&own, uint64_t *, n);
  }
  for (size_t r = 0; r < n; r++) {
    x[r] = rows_of(&own, &p->rank[r]);
    for (int s = 0; s < NS; s++) {
      stream[s][r] = (PipeStream){p->rank[r].instr, x[r].index[s], x[r].n[s]};
      starts[s][r] = x[r].start[s], ends[s][r] = x[r].end[s];
    }
    wait[r] = p->rank[r].wait, nwait[r] = p->rank[r].nwait;
  }
  PipeSimIn in = {.nrank = p->nrank,
                  .compute = stream[PIPE_COMPUTE],
                  .comm = stream[PIPE_COMM],
                  .stage = p->stage,
                  .nstage = p->nstage,
                  .copy = stream[PIPE_COPY],
                  .edge = p->edge,
                  .row = p->row,
                  .nmb = p->nmb,
                  .side = p->side,
                  .unit_time = p->unit_time,
                  .nunit_time = p->nunit_time,
                  .share = p->share,
                  .nshare = p->nshare,
                  .nlink = p->nlink,
                  .wait = wait,
                  .nwait = nwait,
                  .nchannel = p->nchannel};
  PipeSimOut out = {.compute_start = starts[PIPE_COMPUTE],
                    .compute_end = ends[PIPE_COMPUTE],
                    .comm_start = starts[PIPE_COMM],
                    .comm_end = ends[PIPE_COMM],
                    .copy_start = starts[PIPE_COPY],
                    .copy_end = ends[PIPE_COPY],
                    .compute_done = done,
                    .comm_done = done + n};
  const bool complete = pipe_sim(&in, &out, NULL) == PIPE_SIM_DONE;
  uint64_t **start = NEW_ARRAY(a, uint64_t *, n);
  *end = NEW_ARRAY(a, uint64_t *, n);
  for (size_t r = 0; r < n && complete; r++) {
    start[r] = arena_alloc(a, p->rank[r].ninstr * sizeof **start);
    (*end)[r] = arena_alloc(a, p->rank[r].ninstr * sizeof ***end);
    for (int s = 0; s < NS; s++)
      for (uint32_t i = 0; i < x[r].n[s]; i++) {
        start[r][x[r].index[s][i]] = starts[s][r][i];
        (*end)[r][x[r].index[s][i]] = ends[s][r][i];
      }
  }
  arena_free(&own);
  if (makespan)
    *makespan = out.makespan;
  return complete ? start : NULL;
}

uint64_t **pipe_predict(Arena *a, const PipeProgram *p, uint64_t ***end, uint64_t *makespan) {
  char why[PIPE_EXPAND_TEXT];
  if (!pipe_is_rows(p))
    return predict(a, p, end, makespan);
  PipeProgram *lists = pipe_expand(p, why);
  uint64_t **start = lists ? predict(a, lists, end, makespan) : NULL;
  pipe_expand_free(lists);
  return start;
}

uint64_t **program_times(Arena *a, const PipeProgram *p, uint64_t ***end) {
  uint64_t makespan = 0, **start = pipe_predict(a, p, end, &makespan);
  BUG_IF(!start || makespan != p->makespan);
  return start;
}
