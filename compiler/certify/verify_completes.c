/* SPDX-License-Identifier: MIT
 * Verifies that the emitted lists complete: the machine of machine.h runs them, and machine_verify
 * checks its certificate. The machine gets what engines get, from the tables alone: streams in
 * order, waits, groups, and the rendezvous of SEND and RECV. Row, edge and microbatch
 * identify the tensor of a transfer. A program with lowering CHANNELS runs twice: as one COMM
 * stream per rank, and as one stream per channel. */
#include "machine.h"
#include "queues.h"
#include "verify.h"

typedef struct Build {
  const PipeProgram *p;
  Arena *a;
  uint32_t *lead; /* [nstage] 1 + the least row of its tie */
  bool channels;  /* true: each channel is a stream; false: COMM of a rank is one */
} Build;

static void find_leads(Build *b) {
  const PipeProgram *p = b->p;
  b->lead = NEW_ARRAY(b->a, uint32_t, p->nstage);
  for (uint32_t s = 0; s < p->nstage; s++)
    for (uint32_t q = s; p->stage[s].tied == s && !b->lead[q]; q = p->stage[q].tie)
      b->lead[q] = s + 1;
}

/* The instruction without its needs. */
static MachineInstr machine_instr(const Build *b, uint32_t rank, const PipeInstr *in) {
  const PipeProgram *p = b->p;
  const PipeOpInfo *o = &pipe_op_info[in->op];
  MachineInstr m = {.kind = o->stream == PIPE_COPY ? MACHINE_COPY : MACHINE_COMPUTE,
                    .need = {NONE, NONE}};
  if (!o->comm)
    return m;
  m.channel = b->channels ? in->gout : 0;
  m.kind = MACHINE_ALL;
  if (in->op == PIPE_SIDE_COMM) /* its communicator has this rank alone */
    m.peer = p->nmodel + p->nstage + rank;
  else if (pipe_is_sum(in->op))
    m.peer = in->op == PIPE_REDUCE ? p->stage[in->stage].model : p->nmodel + b->lead[in->stage];
  m.tensor = m.peer;
  if (in->op >= PIPE_REDUCE)
    return m;
  const bool forward = in->op == PIPE_SEND_F || in->op == PIPE_RECV_F;
  uint32_t to = pipe_is_send(in->op) ? pipe_other_end(pipe_graph(p), in)
                                     : in->stage; /* the receiving row names the tensor */
  m.kind = pipe_is_send(in->op) ? MACHINE_SEND : MACHINE_RECV;
  m.peer = in->peer;
  m.group = in->group;
  m.tensor = ((uint64_t)(p->edge ? in->keep : to) * p->nmb + in->mb) * 2 + forward;
  return m;
}

static MachineList list_of(const Build *b, uint32_t r) {
  const PipeRank *k = &b->p->rank[r];
  MachineInstr *out = arena_alloc(b->a, k->ninstr * sizeof *out + 1);
  const PipeQueues queues = queues_of(b->p, k);
  uint32_t *more = arena_alloc(b->a, k->nwait * sizeof *more + 1);
  for (uint32_t i = 0; i < k->ninstr; i++) {
    const PipeInstr *in = &k->instr[i];
    MachineInstr *m = &out[i];
    *m = machine_instr(b, r, in);
    m->more = more;
    for (uint32_t at = in->waits; at < in->waits + in->nwait; at++)
      if (k->wait[at].count > 0)
        more[m->nmore++] = pipe_after(&queues, k->wait[at]) - 1;
    more += m->nmore;
  }
  end_queues(queues);
  return (MachineList){out, k->ninstr};
}

MachineList *emitted_lists(Arena *a, const PipeProgram *p, bool channels) {
  Build b = {.p = p, .a = a, .channels = channels};
  MachineList *list = NEW_ARRAY(a, MachineList, p->nrank);
  find_leads(&b);
  for (uint32_t r = 0; r < p->nrank; r++)
    list[r] = list_of(&b, r);
  return list;
}

static void carry_out(Arena *a, const PipeProgram *p, bool channels) {
  const ChannelModel model = {.channels = CHANNELS_RANK};
  const MachineList *list = emitted_lists(a, p, channels);
  MachineResult got = machine_run(a, list, p->nrank, model, true);
  const char *wrong = machine_verify(a, list, p->nrank, model, &got);
  if (wrong)
    guard_fail(GUARD_BUG, "the certificate of the emitted lists: %s", wrong);
  BUG_IF(got.status == MACHINE_MISPAIRED);
  BUG_IF(got.status == MACHINE_STUCK);
}

void verify_completes(const PipeProgram *p) {
  for (int channels = 0; channels <= (p->lowering == PIPE_CHANNELS); channels++) {
    Arena a = {0};
    carry_out(&a, p, channels);
    arena_free(&a);
  }
}
