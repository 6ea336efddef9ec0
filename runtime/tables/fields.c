/* SPDX-License-Identifier: MIT
 * Makes the table of fields of fields.def. */
#include "fields.h"

/* Ops as a set, as the columns of fields.def name them. */
enum {
#define X(op, text, stream, act, gout, in, out) op = 1 << PIPE_##op,
#include "pipe_ops.def"
#undef X
  MOVES = SEND_F | RECV_F | SEND_B | RECV_B,
  COPIES = OFF | LOAD,
  SIDES = SIDE | SIDE_COMM | SIDE_COPY,
  COMM = MOVES | REDUCE | TIE | SIDE_COMM,
  COPY = COPIES | SIDE_COPY,
  ANY = (1 << PIPE_NOPS) - 1,
  COMPUTE = ANY & ~(COMM | COPY),
  STASH = F | B | I | W | R,
  WEIGHTS = F | B | I | R | U | SIDE
};

#define WORD(name)  PIPE_WORD_##name
#define SLOT(name)  PIPE_WORD_NEW + PIPE_FIELD_##name
#define NO_WORD     0
#define ROW_instr   PipeInstr
#define ROW_weights PipeWeights
enum { OF_instr, OF_weights };

const Field pipe_field[PIPE_NFIELD + 1] = {
#define X(row, member, ops, kind, word, dump, json) \
  {dump, \
   json, \
   ops, \
   FIELD_##kind >= FIELD_COUNT ? 0 : PIPE_NONE, \
   offsetof(ROW_##row, member), \
   sizeof(((ROW_##row *)0)->member), \
   FIELD_##kind, \
   word, \
   OF_##row},
#include "fields.def"
#undef X
};
