/* SPDX-License-Identifier: MIT
 * Shared by the parts of the validator (validate.h): the state of the program at the current
 * instruction. */
#ifndef PIPE_VALIDATE_PARTS_H
#define PIPE_VALIDATE_PARTS_H

#include "validate.h"

#define SIZE_LIMIT (UINT64_C(1) << 56) /* sums of 2^6 such sizes cannot wrap */

/* The instructions of a (stage, mb) so far, and the slots with its stashes. */
#define SEEN(op) (1u << PIPE_##op)
typedef struct Seen {
  uint32_t act, gout, keep, host, peer;
  uint32_t ops;      /* set of SEEN(op), without transfers */
  uint32_t moved[4]; /* number of transfers, by op - PIPE_SEND_F */
  uint32_t round;    /* number of the update that applies its gradient, once seen */
  /* version of the weights that F read; the version that its gradient is applied to, as F says */
  uint32_t version, applied;
} Seen;

/* A slot and its contents: a stash, or the output (or its gradient) of stage `owner` for `mb`. */
typedef struct Slot {
  uint32_t pool; /* row of PipeRank.pool */
  bool full, gradient;
  uint32_t owner, mb, edge;        /* edge: PIPE_NONE in a chain */
  uint32_t touched;                /* 1 + row of its last use; 0: none */
  /* WEIGHT: the version in it; GUESS: the version it is made from; PIPE_NONE: none */
  uint32_t version;
  uint32_t guess_stage; /* GUESS: stage of the estimate in it; PIPE_NONE: it is empty */
  uint32_t action;      /* last action that touched it: 1 + row of its first instruction */
  uint32_t by;          /* row of the op of that action */
} Slot;

typedef struct Pool {
  /* live: full slots; most: their peak. Slots that an op of an action gives back stay in `live`
   * until the action has ended: `late` slots of action `action` (1 + row of its first
   * instruction). */
  uint32_t live, most, late, action;
  uint32_t used; /* slots that some instruction has touched: pr_check_left */
} Pool;

/* A slot of class GUEST. It belongs to the rank that first uses it. */
typedef struct Guest {
  const PipePool *pool; /* NULL: the slot is of another class */
  uint32_t owner;       /* rank + 1; 0: none yet */
  bool full;
} Guest;

typedef struct Check {
  const PipeProgram *p;
  char *text; /* [room] reason of the refusal */
  size_t room;
  Seen *seen;     /* [nmodel * nmb] by stage of the model, then microbatch */
  /* Edges: in_edge is sorted by the stage that an edge reaches, in0 indexes it; out0 is the first
   * edge that leaves each stage. */
  uint32_t *in0, *in_edge, *out0;
  uint32_t *mark; /* [2 * nstage] scratch of one function of validate_stages.c */
  /* [nrank] bytes of weights, gradients, optimizer state and states of formulas; bytes of
   * workspace */
  uint64_t *fixed, *work;
  Guest **guest;  /* [nrank][nslot]; NULL for a rank without GUEST slots */
  uint32_t *left;       /* [nstage] microbatches whose last op was not seen yet */
  /* [nstage] 1 + row. graded: of the last gradient that no U has applied yet; reduced, tied: of the
   * REDUCE, TIE for these gradients. 0: none. */
  uint32_t *graded, *reduced, *tied;
  uint32_t *updates;    /* [nstage] updates so far */
  /* [nstage] the last action with an op of the stage: 2 * (1 + row of its first instruction), plus
   * 1 if the op is an update; 0: none */
  uint32_t *acted;
  uint32_t *newest;     /* [nstage] newest version of the weights so far; PIPE_NONE: no versions */
  uint32_t *late;  /* [nstage] most updates by which a gradient is late that no U has applied */
  uint32_t *named; /* [nstage] set of the states that formulas of the stage read */
  uint32_t *sum_channel; /* [2 * nstage] 1 + channel of REDUCE, TIE of a row; 0: not known yet */
  uint32_t *pipe; /* [nmb + 1] with channels: number of pipes that begin before a microbatch */
  uint8_t *channel;     /* [nchannel] 1: some instruction uses it */
  /* The rest belongs to the current rank. */
  const PipeRank *t;
  PrClocks *clocks;
  Slot *slot;
  Pool *pool;
  uint32_t rank, index;         /* of the current instruction */
  uint32_t first;               /* row where the current action of COMPUTE begins */
  uint32_t nlist;               /* entries of PipeRank.list that instructions have used */
} Check;

/* Writes the reason to text[room]; returns st. */
PrStatus pr_refuse(char *text, size_t room, PrStatus st, const char *fmt, ...)
    __attribute__((cold, format(printf, 4, 5)));
#define FAIL(k, ...) return pr_refuse((k)->text, (k)->room, PR_E_ARG, __VA_ARGS__)
#define NO_MEMORY(k) \
  pr_refuse((k)->text, (k)->room, PR_E_MEMORY, "no memory to check the program")

/* As pr_refuse with PR_E_ARG, about instruction c: "program: rank 1 instruction 7 (1SEND_F3):
 * ..." */
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

/* True if the row runs the microbatch. */
static inline bool runs(const PipeProgram *p, uint32_t row, uint32_t mb) {
  const PipeStage *g = &p->stage[row];
  return mb >= g->mb0 && mb - g->mb0 < g->nmb &&
         (!p->row || p->row[(size_t)g->model * p->nmb + mb] == row);
}

/* The tensor that passes between two rows: number i of those between a row and later stages (down)
 * or earlier ones. */
typedef struct Passage {
  uint32_t other; /* the row at the other end */
  uint32_t owner; /* the row whose output it is, or the gradient of whose output */
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

/* True if a row, given as 1 + row, is over when the current one starts. */
static inline bool is_over(const Check *k, uint32_t row) {
  return pr_clocks_over(k->clocks, k->index, row - 1);
}

/* validate_stages.c: checks the stage table and its links. Ensures in0, in_edge, out0, fixed, work,
 * and, if there are edge tables, left. */
PrStatus pr_check_stages(Check *k);

/* validate_slots.c: checks pools and their sizes; finds the slots for guests (ninstr: of all
 * ranks); checks the effect of an instruction on slots; checks what remains in slots after a rank,
 * and in guest slots after all ranks. */
PrStatus pr_check_pools(Check *k);
PrStatus pr_find_guests(Check *k, uint64_t ninstr);
PrStatus pr_check_slots(Check *k, const PipeInstr *c);
PrStatus pr_check_left(Check *k);
PrStatus pr_check_guests_left(Check *k);
/* Checks that no other op of the action of c uses slot `at`. */
PrStatus pr_check_own(Check *k, const PipeInstr *c, uint32_t at);

/* validate_order.c: checks actions, the order of ops of a (stage, mb), and that no op is
 * missing. */
PrStatus pr_check_action(Check *k, const PipeInstr *c);
PrStatus pr_check_order(Check *k, const PipeInstr *c);
PrStatus pr_check_complete(Check *k);

/* validate_streams.c: checks the other end of a transfer, and channels. */
PrStatus pr_check_peer(Check *k, const PipeInstr *c);
PrStatus pr_find_pipes(Check *k);
PrStatus pr_check_channel(Check *k, const PipeInstr *c);
PrStatus pr_check_channels_used(Check *k);

/* validate_weights.c: checks states and tables of formulas; then the versions that the ops of the
 * current rank use. Requires checked instructions and pools of that rank. */
PrStatus pr_check_states(Check *k);
PrStatus pr_check_weights(Check *k);

/* validate_formulas.c: checks formulas and rules, then their use by an op. Requires the tables. */
PrStatus pr_check_tables(Check *k);
PrStatus pr_check_formulas(Check *k, const PipeInstr *c, const PipeWeights *w);

#endif
