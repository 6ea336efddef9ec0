/* SPDX-License-Identifier: MIT
 * What the two parts of validate.c share: what has been seen of the program so far. */
#ifndef PIPE_VALIDATE_H
#define PIPE_VALIDATE_H

#include "run.h"

#define SIZE_LIMIT (UINT64_C(1) << 56) /* sums of 2^6 such sizes cannot wrap */

/* What has been seen of a (stage, mb), and where its stashes lie. */
#define SEEN(op) (1u << PIPE_##op)
typedef struct Seen {
  uint32_t act, gout, keep, host, peer;
  uint32_t ops;      /* set of SEEN(op) but of transfers */
  uint32_t moved[4]; /* transfers, by op - PIPE_SEND_F */
} Seen;

/* A slot, and what is in it: a stash, or the output (gradient) of stage `owner` for `mb`. touched: for
 * each stream, how many of its instructions are completed with the last one that uses the slot. */
typedef struct Slot {
  const PipePool *pool;
  bool full, gradient;
  uint32_t owner, mb, edge; /* edge: PIPE_NONE in a chain */
  uint32_t touched[PIPE_NSTREAMS];
  uint32_t version; /* of class WEIGHT: what it holds; of GUESS: what that was made from; PIPE_NONE: nothing yet */
  uint32_t guess_stage; /* of class GUESS: the stage of the estimate in it; PIPE_NONE: it holds none */
  uint32_t action; /* the last action that has touched it: 1 + row of its first instruction */
} Slot;

/* A slot of class GUEST, which belongs to the rank that first uses it. */
typedef struct Guest {
  const PipePool *pool;
  uint32_t owner; /* rank + 1; 0: nobody yet */
  bool full;
} Guest;

typedef struct Events Events;

typedef struct Check {
  PrRun *run;
  const PipeProgram *p;
  Guest **guest; /* [nrank][nslot], NULL of a rank without */
  uint8_t *turn; /* [instructions of all ranks] those of group g from turn0[g] on: 1 once seen */
  uint64_t *turn0; /* [ngroup + 1] */
  uint32_t next_turn; /* of the rank at hand: the least that can follow */
  Seen *seen;    /* [nmodel * nmb], by stage of the model, then microbatch */
  uint32_t *in0, *in_edge,
      *out0;      /* edges by the stage that they reach; the first that leaves a stage */
  uint32_t *left; /* [nstage]: microbatches whose last op has not been seen */
  /* [nstage]: COMPUTE instructions up to its last gradient so far that no U has applied yet, COMM ones
   * up to the REDUCE, and the TIE, for it; 0: none. Updates so far. */
  uint32_t *graded, *reduced, *tied, *updates;
  uint32_t *acted; /* [nstage]: the last action with an op of it, as 2 * (1 + row of its first instruction), and 1 if that
                      is an update; 0: none */
  uint32_t *newest; /* [nstage] see pr_check_weights */
  uint32_t *sum_channel; /* [2 * nstage] 1 + that of the REDUCE, of the TIE of a row; 0: not yet */
  /* Of the rank at hand. */
  Events *events; /* with channels, else NULL */
  Slot *slot;
  uint32_t rank, index;         /* of the instruction */
  uint32_t first;               /* of COMPUTE: the row where its action begins */
  uint32_t done[PIPE_NSTREAMS]; /* instructions above it in each stream */
  /* Most that an instruction of a stream has waited for so far, of each stream. */
  uint32_t wait[PIPE_NSTREAMS][PIPE_NSTREAMS];
} Check;

#define FAIL(run, ...) pr_fail(run, PR_E_ARG, __VA_ARGS__)

/* "program: rank 1 instruction 7 (1SEND_F3): ..." */
#define FAIL_AT(k, c, fmt, ...) \
  do { \
    char op_[PIPE_OP_TEXT]; \
    pipe_unit_text(op_, (PipeOp)(c)->op, (c)->stage, (c)->mb, (k)->p->slices); \
    return FAIL((k)->run, "program: rank %u instruction %u (%s): " fmt, (k)->rank, (k)->index, \
                op_, __VA_ARGS__); \
  } while (0)

/* validate_stages.c, once sizes are known: no output has 0 bytes. */
PrStatus pr_check_outputs(PrRun *run);

static inline Seen *seen_of(const Check *k, uint32_t stage, uint32_t mb) {
  return &k->seen[(size_t)k->p->stage[stage].model * k->p->nmb + mb];
}

/* Does the row run the microbatch? */
static inline bool runs(const PipeProgram *p, uint32_t row, uint32_t mb) {
  const PipeStage *g = &p->stage[row];
  return mb >= g->mb0 && mb - g->mb0 < g->nmb &&
         (!p->row || p->row[(size_t)g->model * p->nmb + mb] == row);
}

/* What passes between two rows: tensor number i of those of a row towards later stages (down), or
 * earlier ones. `other`: the row at the other end, `owner`: the row whose output it is or belongs to. */
typedef struct Passage {
  uint32_t other, owner, edge;
} Passage;

static inline Passage passage(const Check *k, uint32_t row, uint32_t mb, bool down, uint32_t i) {
  const PipeProgram *p = k->p;
  const PipeStage *g = &p->stage[row];
  uint32_t edge = PIPE_NONE, other = down ? g->next : g->prev;
  if (p->edge) {
    edge = down ? k->out0[g->model] + i : k->in_edge[k->in0[g->model] + i];
    other = p->row[(size_t)(down ? p->edge[edge].to : p->edge[edge].from) * p->nmb + mb];
  }
  return (Passage){other, down ? row : other, edge};
}

/* Every use of slot `at` by other streams so far is over when c starts, which uses it. */
PrStatus pr_check_turn(Check *k, const PipeInstr *c, uint32_t at, bool reads);

/* validate_streams.c: the events of the rank at hand, row by row: what row waits for, then that it is over. *e is to be
 * given to pr_events_end in any case. */
PrStatus pr_events_begin(Check *k, Events **e);
PrStatus pr_events_row(Events *e, uint32_t row);
PrStatus pr_events_done(Events *e, uint32_t row);
void pr_events_end(Events *e);
/* Does row know, when it starts, that so many instructions of another stream are over? Of COMM with channels: that the last
 * of these is. */
bool pr_events_know(const Events *e, uint32_t row, PipeOn on, uint32_t count);
PrStatus pr_check_channel(Check *k, const PipeInstr *c);

/* Are so many instructions of `on` over when c starts? The same by its waits where there are no channels. */
static inline bool is_over(const Check *k, const PipeInstr *c, PipeOn on, uint32_t count) {
  return k->events ? pr_events_know(k->events, k->index, on, count)
                   : k->wait[pipe_op_info[c->op].stream][on] >= count;
}

/* validate_slices.c: of F R B I and OFF of a slice, what must stand above it. */
PrStatus pr_check_slices(Check *k, const PipeInstr *c);

/* validate_formulas.c: formulas and rules, whose tables are there; and those that an op uses, whose slots are
 * checked. */
PrStatus pr_check_tables(PrRun *run);
PrStatus pr_check_formulas(Check *k, const PipeInstr *c, const PipeWeights *w);

/* validate_weights.c: states, and that the tables of formulas are there; and the versions that the ops of the rank at hand
 * use, whose instructions and pools are checked. newest [nstage]: PIPE_NONE before. */
PrStatus pr_check_states(Check *k);
PrStatus pr_check_weights(Check *k, uint32_t *newest);

/* validate_stages.c: the stage table and what joins its rows. Ensures in0, in_edge, out0. */
PrStatus pr_check_stages(Check *k);

#endif
