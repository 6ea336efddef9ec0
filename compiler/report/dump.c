/* SPDX-License-Identifier: MIT
 * Prints what a pass left, one line per op: for --dump-after and tests. */
#include <inttypes.h>
#include <string.h>

#include "report.h"
#include "base.h"
#include "fields.h"
#include "graph.h"
#include "limit.h"
#include "lower.h"
#include "orders.h"
#include "weights.h"

void dump_ops(Sched *s, FILE *f) {
  fprintf(f, "schedule %s %s\nranks %u stages %u microbatches %u", printable(s, s->model->name),
          printable(s, s->model->params), s->model->nrank, s->model->nstage,
          s->model->nmb / s->model->slices);
  if (s->model->slices > 1)
    fprintf(f, " slices %u", s->model->slices);
  fputc('\n', f);
  for (uint32_t i = 0; i < s->model->nstage; i++)
    fprintf(f, "stage %u: rank %u chunk %u\n", i, s->model->stage[i].rank,
            s->model->stage[i].chunk);
  uint32_t copy = 0;
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    int phase = -1;
    fprintf(f, "rank %u:", r);
    for (uint32_t i = s->orders->rank_op0[r]; i <= s->orders->rank_op0[r + 1]; i++) {
      for (; copy < s->orders->ncopy && s->orders->copy[copy].at <= i &&
             s->model->stage[s->orders->copy[copy].stage].rank == r;
           copy++) {
        char text[PIPE_OP_TEXT];
        const Copy *c = &s->orders->copy[copy];
        pipe_unit_text(text, (PipeOp)c->kind, c->stage, c->mb, s->model->slices);
        fprintf(f, " %s", c->kind == PIPE_SIDE_COPY ? side_text(s, &s->sides->use[c->use]) : text);
      }
      if (i == s->orders->rank_op0[r + 1])
        break;
      if (s->orders->op[i].phase != phase)
        fprintf(f, " [%s]", pipe_phase_name[phase = s->orders->op[i].phase]);
      bool first = i == s->orders->rank_op0[r] || s->orders->op[i - 1].group == 0;
      fprintf(f, "%s%s",
              s->orders->op[i].group == 0 && first ? " "
              : first                              ? " ("
                                                   : ";",
              op_text(s, i));
      if (s->versions->weights && s->versions->weights[i].version != NONE)
        fprintf(f, "%s%u", s->orders->op[i].kind == PIPE_U ? ">" : "@",
                s->versions->weights[i].version);
      fputs(s->orders->op[i].group == 0 && !first ? ")" : "", f);
    }
    fputc('\n', f);
  }
}

static void dump_waits(FILE *f, const PipeWait *wait, const PipeWait *end) {
  for (; wait < end; wait++) {
    if (wait->queue < PIPE_NSTREAMS)
      fprintf(f, " after %s %u", pipe_stream_name[wait->queue], wait->count);
    else
      fprintf(f, " after channel %u %u", wait->queue - PIPE_NSTREAMS, wait->count);
  }
}

/* list: the slot lists of the rank; weights: or NULL; wait: the waits of the rank. */
static void dump_instr(FILE *f, PipeGraph g, const uint32_t *list, const PipeInstr *instr,
                       const PipeWeights *weights, const PipeWait *wait) {
  char text[PIPE_OP_TEXT];
  pipe_instr_text(text, g, instr); /* with the edge, or the name of the side op */
  fprintf(f, "  %s", text);
  if (weights && weights->version == NONE)
    weights = NULL;
  for (const Field *field = pipe_field; field->ops; field++) {
    if (!field->dump || !field_has(field, instr->op) || (field->weights && !weights))
      continue;
    const int64_t v = field_get(field, instr, weights);
    const uint32_t n = field_slots(field, &g.stage[instr->stage], instr->op);
    if (v == field->none)
      continue;
    fprintf(f, " %s", field->dump);
    for (uint32_t k = 0; k < (n < 2 ? 1 : n); k++)
      fprintf(f, " %" PRId64, n < 2 ? v : list[v + k]);
  }
  dump_waits(f, wait + instr->waits, wait + instr->waits + instr->nwait);
  fputc('\n', f);
}

void dump_streams(Sched *s, FILE *f) {
  for (uint32_t r = 0; r < s->model->nrank; r++) {
    const Streams *t = &s->lowered->stream[r];
    fprintf(f, "rank %u compute:\n", r);
    for (uint32_t i = 0; i < t->ncompute; i++)
      dump_instr(
          f, sched_graph(s), s->model->graph ? s->lowered->slot_list[r] : NULL, &t->compute[i],
          s->lowered->weight_first ? &s->versions->weights[s->orders->rank_op0[r] + i] : NULL,
          t->wait);
    fprintf(f, "rank %u comm:\n", r);
    for (uint32_t i = 0; i < t->ncomm; i++)
      dump_instr(f, sched_graph(s), NULL, &t->comm[i], NULL, t->wait);
    if (t->ncopy)
      fprintf(f, "rank %u copy:\n", r);
    for (uint32_t i = 0; i < t->ncopy; i++)
      dump_instr(f, sched_graph(s), NULL, &t->copy[i], NULL, t->wait);
  }
}

void dump_program(Sched *s, FILE *f) {
  const PipeProgram *p = s->prog;
  fprintf(f,
          "program %s %s hash %016" PRIx64 " makespan %" PRIu64 " ideal %" PRIu64 " busy %" PRIu64
          "\n",
          printable(s, p->name), printable(s, p->params), p->hash, p->makespan, p->ideal, p->busy);
  for (uint32_t i = 0; i < p->nshare; i++)
    fprintf(f, "%s %u -> %u: link %u", i ? "," : "shared", p->share[i].from, p->share[i].to,
            p->share[i].link);
  if (p->nshare)
    fputc('\n', f);
  for (uint32_t i = 0; i < p->nchannel; i++) {
    const PipeChannel *c = &p->channel[i];
    fprintf(f, "channel %u: %s of rank %u", i, pipe_op_info[c->op].text, c->from);
    if (c->to != NONE)
      fprintf(f, " to rank %u in pipe %u", c->to, c->pipe);
    fputc('\n', f);
  }
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeRank *k = &p->rank[r];
    fprintf(f, "rank %u: %u slots, %u in flight, %" PRIu64 " bytes", r, k->nslot, k->inflight,
            k->bytes);
    fprintf(f, k->host ? ", %" PRIu64 " of host memory\n" : "\n", k->host);
    for (uint32_t i = 0; i < k->npool; i++)
      fprintf(f, "  pool %s stage %u%s: %u..%u, %" PRIu64 " bytes\n",
              pipe_class_name[k->pool[i].cls], k->pool[i].stage, k->pool[i].skip ? " skip" : "",
              k->pool[i].first, k->pool[i].first + k->pool[i].count, k->pool[i].bytes);
    uint32_t first, nlimit = limits_of(s, r, &first);
    for (uint32_t i = first; i < first + nlimit; i++)
      fprintf(f, "  limit %s\n", limit_text(s, &s->claims->row[i]));
    for (uint32_t i = 0; i < k->ninstr; i++)
      dump_instr(f, pipe_graph(p), k->list, &k->instr[i], k->weights ? &k->weights[i] : NULL,
                 k->wait);
    fputs("  end", f);
    dump_waits(f, k->wait + pipe_wait0(k, k->ninstr), k->wait + k->nwait);
    fputc('\n', f);
  }
}
