/* SPDX-License-Identifier: MIT
 * Prints every table of an emitted program, a line per row: what the C compiler made of it, for
 * comparison with the JSON of the same program (tables.py). The names of ops, phases and classes
 * come from the header's list and from here. */
#include <inttypes.h>
#include <stdio.h>

#include <pipe_rows.h>

extern const PipeProgram pipe_program;

static const char *const op_name[] = {
#define X(op, text, stream, act, gout, in, out) text,
#include <pipe_ops.def>
#undef X
};
static const char *const phase_name[] = {"warmup", "steady", "flush"};
static const char *const class_name[] = {"act",  "gout",  "out",    "in",     "local", "keep",
                                         "host", "guest", "buffer", "weight", "guess"};

static void optional(const char *name, uint32_t v) {
  if (v != PIPE_NONE)
    printf(" %s=%" PRIu32, name, v);
}

int main(void) {
  char why[PIPE_EXPAND_TEXT];
  PipeProgram *lists = pipe_is_rows(&pipe_program) ? pipe_expand(&pipe_program, why) : NULL;
  const PipeProgram *p = lists ? lists : &pipe_program;
  if (p->magic != PIPE_MAGIC || p->abi != PIPE_ABI)
    return 1;
  printf("program %s, %s, %016" PRIx64 "\n", p->name, p->params, p->hash);
  printf("%" PRIu32 " ranks %" PRIu32 " mbs sized %" PRIu32 " timed %" PRIu32 " slots %" PRIu32,
         p->nrank, p->nmb, p->sized, p->timed, p->slots);
  printf(" times %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", p->makespan, p->ideal, p->busy);
  for (uint32_t i = 0; i < p->nfile; i++)
    printf("file %s\n", p->file[i]);
  for (uint32_t i = 0; i < p->nstage; i++) {
    const PipeStage *s = &p->stage[i];
    printf("stage %" PRIu32 ":", i);
    optional("rank", s->rank);
    optional("chunk", s->chunk);
    optional("prev", s->prev);
    optional("next", s->next);
    printf(" F=%" PRIu64 " B=%" PRIu64 " I=%" PRIu64 " W=%" PRIu64, s->time[PIPE_F],
           s->time[PIPE_B], s->time[PIPE_I], s->time[PIPE_W]);
    printf(" U=%" PRIu64 " OFF=%" PRIu64 " LOAD=%" PRIu64, s->time[PIPE_U], s->time[PIPE_OFF],
           s->time[PIPE_LOAD]);
    printf(" send=%" PRIu64 " %" PRIu64, s->time[PIPE_SEND_F], s->time[PIPE_SEND_B]);
    if (s->time_fb)
      printf(" FB=%" PRIu64, s->time_fb);
    printf(" act=%" PRIu64 " gout=%" PRIu64 " boundary=%" PRIu64, s->act_bytes, s->gout_bytes,
           s->boundary_bytes);
    printf(" weight=%" PRIu64 " grad=%" PRIu64 " opt=%" PRIu64 " work=%" PRIu64 "\n",
           s->weight_bytes, s->grad_bytes, s->opt_bytes, s->work_bytes);
  }
  for (uint32_t r = 0; r < p->nrank; r++) {
    const PipeRank *k = &p->rank[r];
    printf("rank %" PRIu32 ": inflight=%" PRIu32 " bytes=%" PRIu64 " host=%" PRIu64
           " slots=%" PRIu32 "\n",
           r, k->inflight, k->bytes, k->host, k->nslot);
    for (uint32_t i = 0; i < k->npool; i++)
      printf("pool %s stage=%" PRIu32 " first=%" PRIu32 " count=%" PRIu32 " bytes=%" PRIu64 "\n",
             class_name[k->pool[i].cls], k->pool[i].stage, k->pool[i].first, k->pool[i].count,
             k->pool[i].bytes);
    for (uint32_t i = 0; i < k->ninstr; i++) {
      const PipeInstr *in = &k->instr[i];
      printf("%s %s", op_name[in->op], phase_name[in->phase]);
      optional("stage", in->stage);
      optional("mb", in->mb);
      optional("peer", in->peer);
      if (in->group)
        printf(" group=%" PRIu32, (uint32_t)in->group);
      optional("act", in->act);
      optional("gout", in->gout);
      optional("keep", in->keep);
      optional("in", in->in);
      optional("out", in->out);
      printf(" waits=%" PRIu32, in->nwait);
      const PipeWeights *w = k->weights ? &k->weights[i] : NULL;
      if (w && w->version != PIPE_NONE) {
        optional("version", w->version);
        optional("weight", w->slot);
        optional("into", w->out);
        optional("guess", w->guess);
        optional("formula", w->formula);
        printf(" behind=%" PRId32 " ahead=%" PRIu32, w->behind, w->ahead);
      }
      const PipeSite *at = &p->site[in->site];
      printf(" at %" PRIu32 ":%" PRIu32 ":%" PRIu32 "\n", at->file, at->line, at->col);
    }
    for (uint32_t i = 0; i < k->nwait; i++)
      printf("wait for %" PRIu32 " of queue %" PRIu32 "\n", k->wait[i].count, k->wait[i].queue);
  }
  pipe_expand_free(lists);
  return 0;
}
