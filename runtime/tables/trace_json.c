/* SPDX-License-Identifier: MIT
 * The trace event format (trace_json.h): "X" slices with `ts` and `dur` in us with three decimals,
 * so that ns are exact; "s" and "f" are the two ends of an arrow, bound to the slices in which they
 * start; "M" names groups and tracks. Source: Trace Event Format, Google, 2016, and the importer of
 * Perfetto.
 *
 * Group g is process g + 1. COMPUTE and COMM of rank r are its threads 2r + 1 and 2r + 2; COPY, if
 * the rank has one, is thread 2 * ranks + r + 1. Channel c of rank r is thread 3 * ranks + c *
 * ranks + r + 1, and then there is no COMM thread. The arguments of a slice name its instruction:
 * `rank`, `row` of the list of the rank, and `step`; pipec --with reads them
 * (compiler/import/read_trace.c). */
#include "trace_json.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "escape.h"
#include "fields.h"

static uint64_t to_ns(const TraceGroup *g, uint64_t t) {
  return g->scale == 1 ? t : (uint64_t)((double)t * g->scale + 0.5);
}

static void put_us(FILE *f, const char *key, uint64_t ns) {
  fprintf(f, ",\"%s\":%" PRIu64 ".%03u", key, ns / 1000, (unsigned)(ns % 1000));
}

static uint32_t track_of(const PipeProgram *p, uint32_t r, uint32_t stream) {
  return stream == PIPE_COPY ? 2 * p->nrank + r + 1 : 2 * r + stream + 1;
}

/* The track of an instruction. */
static uint64_t track_at(const PipeProgram *p, uint32_t r, const PipeInstr *in) {
  uint32_t stream = pipe_stream_of(in->op);
  return stream == PIPE_COMM && p->nchannel
             ? 3 * (uint64_t)p->nrank + (uint64_t)in->channel * p->nrank + r + 1
             : track_of(p, r, stream);
}

/* Names the channels of rank r. seen: [nchannel] 1 + the last rank that named it. */
static void put_channels(FILE *f, const PipeProgram *p, int pid, uint32_t r, uint32_t *seen) {
  for (uint32_t i = 0; i < p->rank[r].ninstr; i++) {
    const PipeInstr *in = &p->rank[r].instr[i];
    if (!pipe_op_info[in->op].comm || seen[in->channel] == r + 1)
      continue;
    seen[in->channel] = r + 1;
    const PipeChannel *c = &p->channel[in->channel];
    fprintf(f,
            ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%" PRIu64
            ",\"name\":\"thread_name\",\"args\":{\"name\":\"rank %u %s",
            pid, track_at(p, r, in), r, pipe_op_info[c->op].text);
    if (c->to != PIPE_NONE)
      fprintf(f, " %u to %u", c->from, c->to);
    fprintf(f,
            "\"}},\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%" PRIu64
            ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%u}}",
            pid, track_at(p, r, in), 2 * r + 1);
  }
}

static bool has_copy(const PipeRank *k) {
  for (uint32_t i = 0; i < k->ninstr; i++)
    if (pipe_stream_of(k->instr[i].op) == PIPE_COPY)
      return true;
  return false;
}

static void put_names(FILE *f, const PipeProgram *p, const TraceGroup *g, int pid) {
  fprintf(f, "%s{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"",
          pid > 1 ? ",\n" : "", pid);
  escape_put(f, ESCAPE_JSON, g->name);
  fprintf(
      f,
      "\"}},\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}",
      pid, pid);
  /* without memory channels have no names */
  uint32_t *seen = p->nchannel ? calloc(p->nchannel, sizeof *seen) : NULL;
  for (uint32_t r = 0; r < p->nrank; r++) {
    for (uint32_t stream = 0; stream < (has_copy(&p->rank[r]) ? 3 : 2); stream++) {
      if (stream == PIPE_COMM && p->nchannel)
        continue;
      fprintf(
          f,
          ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%u,\"name\":\"thread_name\",\"args\":{\"name\":\"rank %u %s\"}},\n"
          "{\"ph\":\"M\",\"pid\":%d,\"tid\":%u,\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%u}}",
          pid, track_of(p, r, stream), r, pipe_stream_name[stream], pid, track_of(p, r, stream),
          track_of(p, r, stream) - 1);
    }
    if (seen)
      put_channels(f, p, pid, r, seen);
  }
  free(seen);
}

/* Writes the ops of the action of instruction i if it has several: "0F7;7B3". */
static void put_action(FILE *f, const PipeRank *k, uint32_t i) {
  char op[PIPE_OP_TEXT];
  uint32_t first = i;
  while (first > 0 && k->instr[first - 1].group > 0)
    first--;
  if (k->instr[first].group == 0)
    return;
  for (uint32_t j = first; j <= first + k->instr[first].group && j < k->ninstr; j++) {
    pipe_op_text(op, (PipeOp)k->instr[j].op, k->instr[j].stage, k->instr[j].mb);
    fprintf(f, "%s%s", j == first ? ",\"action\":\"" : ";", op);
  }
  putc('"', f);
}

/* Writes one instruction: its slice, and its end of an arrow if it is a transfer. id: of the first
 * arrow of the step. */
static void put_instr(FILE *f, const PipeProgram *p, const TraceGroup *g, int pid, uint32_t step,
                      uint32_t r, uint32_t i, uint64_t id) {
  const PipeInstr *in = &p->rank[r].instr[i];
  bool comm = pipe_op_info[in->op].comm, send = pipe_is_send(in->op);
  size_t row = (size_t)step * p->nrank + r;
  uint64_t start = to_ns(g, g->start[row][i]), end = to_ns(g, g->end[row][i]);
  uint64_t tid = track_at(p, r, in);
  char op[PIPE_OP_TEXT];
  pipe_instr_text(op, pipe_graph(p), in);
  fprintf(f, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%" PRIu64 ",\"name\":\"%s\",\"cat\":\"%s\"", pid,
          tid, op, pipe_stream_name[pipe_stream_of(in->op)]);
  put_us(f, "ts", start);
  put_us(f, "dur", end > start ? end - start : 0);
  fprintf(f, ",\"args\":{\"rank\":%u,\"row\":%u,\"step\":%u,\"stage\":%u", r, i, step, in->stage);
  if (in->mb != PIPE_NONE)
    fprintf(f, ",\"mb\":%u", in->mb / pipe_slices(p));
  if (in->mb != PIPE_NONE && p->slices > 1 && in->op != PIPE_U)
    fprintf(f, ",\"slice\":%u", in->mb % p->slices);
  if (in->peer != PIPE_NONE)
    fprintf(f, ",\"peer\":%u", in->peer);
  if (p->rank[r].weights && p->rank[r].weights[i].version != PIPE_NONE)
    fprintf(f, ",\"version\":%u", p->rank[r].weights[i].version);
  put_action(f, &p->rank[r], i);
  fprintf(f, ",\"phase\":\"%s\"", pipe_phase_name[in->phase < PIPE_NPHASES ? in->phase : 0]);
  if (in->site < p->nsite && p->site[in->site].file < p->nfile) {
    const PipeSite *at = &p->site[in->site];
    fputs(",\"at\":\"", f);
    escape_put(f, ESCAPE_JSON, p->file[at->file]);
    fprintf(f, ":%u:%u\"", at->line, at->col);
  }
  fputs("}}", f);
  if (!comm || pipe_is_sum(in->op) || in->op == PIPE_SIDE_COMM)
    return;
  fprintf(f,
          ",\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%" PRIu64 ",\"id\":%" PRIu64
          ",\"name\":\"transfer\",\"cat\":\"comm\"%s",
          send ? "s" : "f", pid, tid, id + pipe_transfer_number(p, in),
          send ? "" : ",\"bp\":\"e\"");
  put_us(f, "ts", start);
  putc('}', f);
}

int trace_json(FILE *out, const PipeProgram *p, const TraceGroup *group, int ngroup) {
  uint64_t arrow = 1; /* id of the first arrow of the step */
  fputs("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"schedule\":\"", out);
  escape_put(out, ESCAPE_JSON, p->name);
  fputs("\",\"params\":\"", out);
  escape_put(out, ESCAPE_JSON, p->params);
  fprintf(out, "\",\"hash\":\"%016" PRIx64 "\",\"timed\":\"%u\"},\n\"traceEvents\":[\n", p->hash,
          p->timed);
  for (int g = 0; g < ngroup; g++) {
    put_names(out, p, &group[g], g + 1);
    for (uint32_t n = 0; n < group[g].nstep; n++) {
      for (uint32_t r = 0; r < p->nrank; r++)
        for (uint32_t i = 0; i < p->rank[r].ninstr; i++)
          put_instr(out, p, &group[g], g + 1, n, r, i, arrow);
      arrow += 2 * (uint64_t)(p->edge ? p->nedge : p->nstage) * p->nmb;
    }
  }
  fputs("\n]}\n", out);
  return ferror(out) ? -1 : 0;
}
