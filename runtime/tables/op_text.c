/* SPDX-License-Identifier: MIT
 * The names of pipe_instr.h, and instructions as text. */
#include <stdbool.h>
#include <stdio.h>

#include "fields.h"

const PipeOpInfo pipe_op_info[PIPE_NOPS] = {
#define X(op, text, stream, act, gout, in, out) \
  {text, PIPE_##stream == PIPE_COMM, PIPE_##stream, act, gout, PIPE_T_##in, PIPE_T_##out},
#include "pipe_ops.def"
#undef X
};

const char *const pipe_stream_name[PIPE_NSTREAMS] = {"compute", "comm", "copy"};
const char *const pipe_phase_name[PIPE_NPHASES] = {"warmup", "steady", "flush"};
const char *const pipe_class_name[PIPE_NCLASSES] = {
#define X(cls, name) #name,
    PIPE_CLASSES(X)
#undef X
};

int pipe_op_text(char *buf, PipeOp op, uint32_t stage, uint32_t mb) {
  const char *text = (unsigned)op < PIPE_NOPS ? pipe_op_info[op].text : "?";
  if (mb == PIPE_NONE)
    return snprintf(buf, PIPE_OP_TEXT, "%u%s", stage, text);
  return snprintf(buf, PIPE_OP_TEXT, "%u%s%u", stage, text, mb);
}

int pipe_unit_text(char *buf, PipeOp op, uint32_t stage, uint32_t mb, uint32_t slices) {
  if (slices <= 1 || mb == PIPE_NONE)
    return pipe_op_text(buf, op, stage, mb);
  if (op == PIPE_U) /* of a whole microbatch */
    return pipe_op_text(buf, op, stage, mb / slices);
  return snprintf(buf, PIPE_OP_TEXT, "%u%s%u.%u", stage,
                  (unsigned)op < PIPE_NOPS ? pipe_op_info[op].text : "?", mb / slices, mb % slices);
}

int pipe_side_text(char *buf, const char *name, uint32_t stage, uint32_t mb, uint32_t slices) {
  enum { LONGEST = 16 };
  if (mb == PIPE_NONE)
    return snprintf(buf, PIPE_OP_TEXT, "%u%.*s", stage, LONGEST, name);
  if (slices <= 1)
    return snprintf(buf, PIPE_OP_TEXT, "%u%.*s%u", stage, LONGEST, name, mb);
  return snprintf(buf, PIPE_OP_TEXT, "%u%.*s%u.%u", stage, LONGEST, name, mb / slices, mb % slices);
}

int pipe_instr_text(char *buf, PipeGraph g, const PipeInstr *c) {
  int n = pipe_unit_text(buf, (PipeOp)c->op, c->stage, c->mb, g.slices);
  if (pipe_is_side(c->op) && g.side)
    return pipe_side_text(buf, g.side[c->side].name, c->stage, c->mb, g.slices);
  const PipeStage *s = &g.stage[c->stage];
  bool send = pipe_is_send(c->op);
  bool down = c->op == PIPE_SEND_F || c->op == PIPE_RECV_B;
  if (!g.edge || !pipe_op_info[c->op].comm || c->edge == PIPE_NONE || (down ? s->nout : s->nin) < 2)
    return n;
  return n + snprintf(buf + n, PIPE_OP_TEXT - (size_t)n, "%c%u", send ? '>' : '<',
                      pipe_other_end(g, c));
}
