/* SPDX-License-Identifier: MIT
 * The fields of an instruction as a table (fields.def), for loops over all of them. */
#ifndef PIPE_FIELDS_H
#define PIPE_FIELDS_H

#include <stdbool.h>

#include "pipe_rows.h"

typedef enum FieldKind {
  FIELD_NUMBER,  /* PIPE_NONE: none */
  FIELD_INPUTS,  /* a slot, or with several inputs (pipe_fields) an index of PipeRank.list */
  FIELD_OUTPUTS, /* the same, of outputs */
  FIELD_DECL,    /* row of PipeProgram.side */
  FIELD_COUNT,   /* 0: none */
  FIELD_SIGNED   /* 0: none */
} FieldKind;

typedef struct Field {
  const char *dump, *json; /* its name; NULL: not listed there */
  uint32_t ops;            /* bit op: the op has the field */
  uint32_t none;           /* the number that says that there is none */
  uint16_t at;             /* offset in its row */
  uint8_t bytes;           /* 2 or 4 */
  uint8_t kind;            /* FieldKind */
  uint8_t word;            /* PipeWord; of a slot PIPE_WORD_NEW + PipeField; 0: none */
  bool weights;            /* of PipeWeights, not of PipeInstr */
} Field;
enum { PIPE_NFIELD = 21 };
extern const Field pipe_field[PIPE_NFIELD + 1]; /* ends with a field of no op */

extern const char *const pipe_stream_name[PIPE_NSTREAMS]; /* "compute" ... */

static inline bool field_has(const Field *field, uint32_t op) { return field->ops >> op & 1; }
static inline bool field_is_slot(const Field *field) { return field->word >= PIPE_WORD_NEW; }

/* The address of a field. weights: may be NULL for a field of PipeInstr. */
static inline const void *field_at(const Field *field, const PipeInstr *instr,
                                   const PipeWeights *weights) {
  return (field->weights ? (const char *)weights : (const char *)instr) + field->at;
}

/* The number in a field. */
static inline int64_t field_get(const Field *field, const PipeInstr *instr,
                                const PipeWeights *weights) {
  const void *at = field_at(field, instr, weights);
  if (field->bytes == sizeof(uint16_t))
    return *(const uint16_t *)at;
  if (field->kind == FIELD_SIGNED)
    return *(const int32_t *)at;
  return *(const uint32_t *)at;
}

/* The number of slots in a field of an op of this stage; with more than one they are in
 * PipeRank.list. */
static inline uint32_t field_slots(const Field *field, const PipeStage *stage, uint32_t op) {
  return field->kind == FIELD_INPUTS || field->kind == FIELD_OUTPUTS
             ? pipe_fields(stage, op, field->kind == FIELD_INPUTS)
             : 1;
}

#endif
