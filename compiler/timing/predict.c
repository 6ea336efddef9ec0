/* SPDX-License-Identifier: MIT
 * The predicted times of a finished program, by the timed machine. */
#include "pipe_rows.h"
#include "pipe_sim.h"

#include <stdlib.h>

/* What COMPUTE and COPY need of COMM, where that has channels: as events say. pos[i]: place of row
 * i, of the rank at hand, in its stream. One block, freed by free(*need); false: no memory. */
static bool take_needs(const PipeProgram *p, PipeNeeds **need) {
  size_t room = 0, rows = 0;
  for (uint32_t r = 0; r < p->nrank; r++) {
    room += p->rank[r].ninstr + (size_t)p->rank[r].nsync + 2;
    rows = p->rank[r].ninstr > rows ? p->rank[r].ninstr : rows;
  }
  *need = calloc(1, p->nrank * sizeof **need + (room + rows) * sizeof(uint32_t));
  if (!*need)
    return false;
  uint32_t *at = (uint32_t *)(void *)(*need + p->nrank), *pos = at + room;
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeRank *k = &p->rank[r];
    uint32_t n[PIPE_NSTREAMS] = {0}, on = 0;
    for (uint32_t i = 0; i < k->ninstr; i++)
      pos[i] = n[pipe_op_info[k->instr[i].op].stream]++;
    uint32_t *first[2] = {at, at + n[PIPE_COMPUTE] + 1};
    uint32_t *list = first[1] + n[PIPE_COPY] + 1;
    for (int copy = 0; copy < 2; copy++) {
      uint32_t j = 0, seen = 0;
      first[copy][0] = on;
      for (uint32_t i = 0; i < k->ninstr; i++) {
        bool mine = pipe_op_info[k->instr[i].op].stream == (copy ? PIPE_COPY : PIPE_COMPUTE);
        for (; j < k->nsync && k->sync[j].before == i; j++)
          if (mine && k->sync[j].after != PIPE_NONE &&
              pipe_op_info[k->instr[k->sync[j].after].op].comm)
            list[on++] = pos[k->sync[j].after];
        if (mine)
          first[copy][++seen] = on;
      }
    }
    for (int copy = 0; copy < 2; copy++)
      (*need)[r].first[copy] = first[copy];
    (*need)[r].on = list;
    at = list + on;
  }
  return true;
}

/* The block starts with the starts of rank 0, as free(*start) asks; the row pointers come last. */
static uint64_t **predict(const PipeProgram *p, uint64_t ***end, uint64_t *makespan) {
  enum { NS = PIPE_NSTREAMS };
  size_t n = p->nrank, total = 0, at[NS + 1] = {0}; /* at: of a stream, where its next one goes */
  for (size_t r = 0; r < n; r++) {
    total += p->rank[r].ninstr;
    for (uint32_t i = 0; i < p->rank[r].ninstr; i++)
      at[pipe_op_info[p->rank[r].instr[i].op].stream + 1]++;
  }
  for (int x = 1; x < NS; x++)
    at[x] += at[x - 1];
  char *block = malloc(2 * total * sizeof(uint64_t) + 2 * (n + 1) * sizeof(uint64_t *));
  uint64_t *times = malloc((2 * total + 1) * sizeof *times);
  uint32_t *index = malloc((total + 1) * sizeof *index);
  PipeStream *streams = calloc(NS * n + 1, sizeof *streams);
  uint64_t **rows = calloc((size_t)2 * NS * n + 1, sizeof *rows);
  uint32_t *done = calloc(3 * n + 1, sizeof *done), *group = NULL;
  uint64_t **start = NULL;
  PipeNeeds *need = NULL;
  if (!block || !times || !index || !streams || !rows || !done ||
      (p->nchannel && !take_needs(p, &need)))
    goto fail;

  uint64_t **begins[NS], **ends[NS]; /* of each stream: [rank][position] */
  for (int x = 0; x < NS; x++) {
    begins[x] = rows + 2 * (size_t)x * n;
    ends[x] = begins[x] + n;
    for (size_t r = 0; r < n; r++) {
      const PipeRank *k = &p->rank[r];
      PipeStream *s = &streams[(size_t)x * n + r];
      *s = (PipeStream){k->instr, index + at[x], 0};
      begins[x][r] = times + at[x];
      ends[x][r] = times + total + at[x];
      for (uint32_t i = 0; i < k->ninstr; i++)
        if (pipe_op_info[k->instr[i].op].stream == x) {
          index[at[x]++] = i;
          s->n++;
        }
    }
  }
  for (uint32_t r = 0; p->ngroup && r < n; r++)
    (group = done + 2 * n)[r] = p->rank[r].group;
  PipeSimIn in = {.nrank = p->nrank,
                  .compute = streams,
                  .comm = streams + n,
                  .stage = p->stage,
                  .copy = streams + 2 * n,
                  .edge = p->edge,
                  .row = p->row,
                  .nmb = p->nmb,
                  .side = p->side,
                  .unit_time = p->unit_time,
                  .nunit_time = p->nunit_time,
                  .group = group,
                  .ngroup = p->ngroup,
                  .share = p->share,
                  .nshare = p->nshare,
                  .nlink = p->nlink,
                  .needs = need,
                  .nchannel = p->nchannel,
                  .groups = p->lowering >= PIPE_GROUPED};
  PipeSimOut out = {.compute_start = begins[PIPE_COMPUTE],
                    .compute_end = ends[PIPE_COMPUTE],
                    .comm_start = begins[PIPE_COMM],
                    .comm_end = ends[PIPE_COMM],
                    .copy_start = begins[PIPE_COPY],
                    .copy_end = ends[PIPE_COPY],
                    .compute_done = done,
                    .comm_done = done + n};
  if (pipe_sim(&in, &out, NULL) != PIPE_SIM_DONE)
    goto fail;

  uint64_t *to = (uint64_t *)block;
  start = (uint64_t **)(to + 2 * total);
  *end = start + n;
  for (size_t r = 0; r < n; r++) {
    start[r] = to;
    to += p->rank[r].ninstr;
  }
  for (size_t r = 0; r < n; r++) {
    (*end)[r] = to;
    to += p->rank[r].ninstr;
    for (int x = 0; x < NS; x++) {
      const PipeStream *s = &streams[(size_t)x * n + r];
      for (uint32_t i = 0; i < s->n; i++) {
        start[r][s->index[i]] = begins[x][r][i];
        (*end)[r][s->index[i]] = ends[x][r][i];
      }
    }
  }
  if (makespan)
    *makespan = out.makespan;
  block = NULL;

fail:
  free(block);
  free(times);
  free(index);
  free(streams);
  free(rows);
  free(done);
  free(need);
  return start;
}

uint64_t **pipe_predict(const PipeProgram *p, uint64_t ***end, uint64_t *makespan) {
  char why[PIPE_EXPAND_TEXT];
  if (!pipe_is_rows(p))
    return predict(p, end, makespan);
  PipeProgram *lists = pipe_expand(p, why);
  uint64_t **start = lists ? predict(lists, end, makespan) : NULL;
  pipe_expand_free(lists);
  return start;
}
