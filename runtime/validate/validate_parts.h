/* SPDX-License-Identifier: MIT
 * What the parts of the validator (validate.h) share: what they have seen of the program so far. */
#ifndef PIPE_VALIDATE_PARTS_H
#define PIPE_VALIDATE_PARTS_H

#include "validate.h"

#define SIZE_LIMIT (UINT64_C(1) << 56) /* sums of 2^6 such sizes cannot wrap */

/* What the lists have done with a (stage, mb), and where its stashes lie. */
#define SEEN(op) (1u << PIPE_##op)
typedef struct Seen {
  uint32_t act, gout, keep, host, peer;
  uint32_t ops;      /* set of SEEN(op) but of transfers */
  uint32_t moved[4]; /* transfers, by op - PIPE_SEND_F */
  uint32_t round;    /* number of the update that applies its gradient, once it has one */
} Seen;

/* A slot, and what is in it: a stash, or the output (gradient) of stage `owner` for `mb`. */
typedef struct Slot {
  uint32_t pool; /* row of PipeRank.pool */
  bool full, gradient;
  uint32_t owner, mb, edge;        /* edge: PIPE_NONE in a chain */
  uint32_t touched[PIPE_NSTREAMS]; /* instructions of each stream up to its last use; 0: none */
  uint32_t version; /* WEIGHT: what it holds; GUESS: what that was made from; PIPE_NONE: nothing */
  uint32_t guess_stage; /* GUESS: the stage of the estimate in it; PIPE_NONE: it holds none */
  uint32_t action;      /* the last action that has touched it: 1 + row of its first instruction, */
  uint32_t by;          /* and the row of the op that did */
} Slot;

typedef struct Pool {
  /* Full slots, and the most that there were. What an op of an action gives back counts until the
   * action has ended: `late` slots of action `action` (1 + row of its first instruction). */
  uint32_t live, most, late, action;
  uint32_t used;       /* slots that some instruction has touched */
} Pool;

/* A slot of class GUEST, which belongs to the rank that first uses it. */
typedef struct Guest {
  const PipePool *pool; /* NULL: the slot is of another class */
  uint32_t owner;       /* rank + 1; 0: nobody yet */
  bool full;
} Guest;

typedef struct Check {
  const PipeProgram *p;
  char *text; /* [room] why the program is refused */
  size_t room;
  Seen *seen;     /* [nmodel * nmb], by stage of the model, then microbatch */
  uint32_t *in0, *in_edge, *out0; /* edges by the stage they reach; the first that leaves each */
  uint32_t *mark; /* [2 * nstage] scratch of one function of validate_stages.c */
  uint64_t *fixed, *work; /* [nrank] bytes of weights, gradients, optimizer, states; workspace */
  Guest **guest;  /* [nrank][nslot], NULL of a rank without */
  uint8_t *turn;  /* [instructions of all ranks] those of group g from turn0[g] on: 1 once seen */
  uint64_t *turn0;      /* [ngroup + 1] */
  uint32_t *left;       /* [nstage] microbatches whose last op has not been seen */
  /* [nstage] COMPUTE instructions up to its last gradient so far that no U has applied yet, COMM
   * instructions up to the REDUCE, and the TIE, for it; 0: none. */
  uint32_t *graded, *reduced, *tied;
  uint32_t *updates;    /* [nstage] so far */
  uint32_t *acted;      /* [nstage] the last action with an op of it, as 2 * (1 + row of its first
                           instruction), and 1 if that is an update; 0: none */
  uint32_t *newest;     /* [nstage] version of its weights so far; PIPE_NONE: none */
  uint32_t *sum_channel; /* [2 * nstage] 1 + channel of REDUCE, of TIE of a row; 0: not yet */
  uint32_t *pipe;       /* [nmb + 1] with channels: pipes that begin before this microbatch */
  uint8_t *channel;     /* [nchannel] 1: an instruction is in it */
  /* Of the rank at hand. */
  PrEvents *events; /* with channels, else NULL */
  Slot *slot;
  Pool *pool;
  uint32_t rank, index;         /* of the instruction */
  uint32_t first;               /* of COMPUTE: the row where its action begins */
  uint32_t next_turn;           /* the least that can follow */
  uint32_t nlist;               /* places of PipeRank.list that its instructions have */
  uint32_t done[PIPE_NSTREAMS]; /* instructions above it in each stream */
  uint32_t wait[PIPE_NSTREAMS][PIPE_NSTREAMS]; /* most that each has waited for, of each */
} Check;

/* Writes why; returns st. */
PrStatus pr_refuse(char *text, size_t room, PrStatus st, const char *fmt, ...)
    __attribute__((cold, format(printf, 4, 5)));
#define FAIL(k, ...) return pr_refuse((k)->text, (k)->room, PR_E_ARG, __VA_ARGS__)
#define NO_MEMORY(k) \
  pr_refuse((k)->text, (k)->room, PR_E_MEMORY, "no memory to check the program")

/* The same of instruction c: "program: rank 1 instruction 7 (1SEND_F3): ..." */
typedef struct Place {
  const PipeProgram *p;
  char *text;
  size_t room;
  uint32_t rank, index;
} Place;
PrStatus pr_refuse_at(Place at, const PipeInstr *c, const char *fmt, ...)
    __attribute__((cold, format(printf, 3, 4)));
#define FAIL_AT(k, c, ...) \
  return pr_refuse_at((Place){(k)->p, (k)->text, (k)->room, (k)->rank, (k)->index}, c, __VA_ARGS__)

static inline uint64_t round64(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

static inline Seen *seen_of(const Check *k, uint32_t stage, uint32_t mb) {
  return &k->seen[(size_t)k->p->stage[stage].model * k->p->nmb + mb];
}

/* Does the row run the microbatch? */
static inline bool runs(const PipeProgram *p, uint32_t row, uint32_t mb) {
  const PipeStage *g = &p->stage[row];
  return mb >= g->mb0 && mb - g->mb0 < g->nmb &&
         (!p->row || p->row[(size_t)g->model * p->nmb + mb] == row);
}

/* The tensor that passes between two rows: number i of those of a row towards later stages (down),
 * or earlier ones. */
typedef struct Passage {
  uint32_t other; /* the row at the other end */
  uint32_t owner; /* the row whose output it is, or whose output's gradient */
  uint32_t edge;  /* PIPE_NONE in a chain */
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

/* Has the stream of c, when c starts, waited for so many instructions of `on`? */
static inline bool is_over(const Check *k, const PipeInstr *c, PipeOn on, uint32_t count) {
  return k->events ? pr_events_know(k->events, k->index, on, count)
                   : k->wait[pipe_op_info[c->op].stream][on] >= count;
}

/* validate_stages.c: the stage table and what joins its rows. Ensures in0, in_edge, out0, and
 * left of programs with tables of edges, fixed, work. */
PrStatus pr_check_stages(Check *k);

/* validate_slots.c: pools and their sizes; which slots are for guests (ninstr: of all ranks);
 * what an instruction does to slots; and what is left of them once the rank is done. */
PrStatus pr_check_pools(Check *k);
PrStatus pr_find_guests(Check *k, uint64_t ninstr);
PrStatus pr_check_slots(Check *k, const PipeInstr *c);
PrStatus pr_check_left(Check *k);
PrStatus pr_check_guests_left(Check *k);
/* No other op of the action of c uses slot `at`. */
PrStatus pr_check_own(Check *k, const PipeInstr *c, uint32_t at);

/* validate_order.c: the ops of an action and of a (stage, mb); all of them. */
PrStatus pr_check_action(Check *k, const PipeInstr *c);
PrStatus pr_check_order(Check *k, const PipeInstr *c);
PrStatus pr_check_complete(Check *k);

/* validate_streams.c: the waits of an instruction, its turn, its other end, its channel. */
PrStatus pr_count_turns(Check *k, uint64_t ninstr);
PrStatus pr_check_waits(Check *k, const PipeInstr *c);
PrStatus pr_check_peer(Check *k, const PipeInstr *c);
PrStatus pr_find_pipes(Check *k);
PrStatus pr_check_channel(Check *k, const PipeInstr *c);
PrStatus pr_check_channels_used(Check *k);

/* validate_weights.c: states and tables of formulas; the versions that the ops of the rank at hand
 * use, whose instructions and pools have been checked. */
PrStatus pr_check_states(Check *k);
PrStatus pr_check_weights(Check *k);

/* validate_formulas.c: formulas and rules, whose tables are there; and those that an op uses. */
PrStatus pr_check_tables(Check *k);
PrStatus pr_check_formulas(Check *k, const PipeInstr *c, const PipeWeights *w);

#endif
