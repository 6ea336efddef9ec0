/* SPDX-License-Identifier: MIT
 * The door of lower/: transfers, streams, slots and the emitted tables. */
#ifndef PIPEC_LOWER_H
#define PIPEC_LOWER_H

#include "pipec.h"

/* A channel: the transfers of one kind over one link, in their order. Index 2*link + (backward). */
typedef struct Channel {
  uint32_t out_slots, in_slots; /* at the sender, at the receiver; 0 if no transfer uses it */
  uint32_t out_first, in_first; /* (slots) first slot number on the rank */
} Channel;

/* With lowering CHANNELS: an instruction of COMPUTE, or number ncompute + i of COPY, needs that at
 * position `on` of COMM. */
typedef struct Need { uint32_t of, on; } Need;

/* The instructions of a rank before they are merged into one list, which takes the place of compute
 * and comm: list[ncopy + ncompute + ncomm], at its end compute and behind it comm. copy is
 * elsewhere. */
typedef struct Streams {
  PipeInstr *list, *compute, *comm, *copy;
  uint32_t ncompute, ncomm, ncopy;
  Need *need; uint32_t nneed, capneed;
} Streams;

/* The kinds of memory of a rank, in the order of reports. Those before `total` add up to it: what
 * stages have, then slots by PipeClass, and `state`, what their policy keeps. `host` lies in host
 * memory, in no total. */
#define PEAK_CLASSES(X) \
  X(weight) X(grad) X(opt) X(work) X(act) X(gout) X(out) X(in) X(local) X(keep) X(guest) \
  X(buffer) X(guess) X(state) X(total) X(host)
#define X(c) PEAK_##c,
enum { PEAK_CLASSES(X) PEAK_NCLASSES, PEAK_NREPORTED = PEAK_host };
#undef X

/* What a rank needs at its worst moment. */
typedef struct Peak {
  uint32_t inflight, held, kept; /* most live ACT, GOUT and KEEP slots (slots) */
  uint32_t host;           /* and HOST slots */
  uint32_t guests;         /* GUEST slots (slots) */
  uint32_t warmup;         /* forwards before the first backward */
  uint32_t versions;       /* most slots that a stage has for its weights (slots) */
  /* op at which act + gout + local + buffer bytes are most; NONE when unsized */
  uint32_t op;
  uint64_t bytes[PEAK_NCLASSES]; /* (check_memory) each buffer rounded up to 64 */
} Peak;

/* The instructions of each rank, before they are a program. Made by comm, slots and lower.
 * check_deadlock runs comm again with more channel slots where too few close a wait cycle. */
typedef struct Lowered {
  /* [Ideal.nxfer] transfers in the one global order in which they are laid: at first Ideal.xfer;
   * check_deadlock looks for a better one */
  Xfer *xfer;
  PipeLowering lowering; /* (transfers); of `auto` GLOBAL until check_deadlock has chosen: */
  struct LoweringChoice {
    bool open;             /* auto is asked for */
    uint64_t other;        /* makespan with the lowering that was not taken; 0: none was tried */
    uint32_t communicators; /* with CHANNELS: most channels of transfers on a rank */
  } choice;
  Channel *channel;      /* [2 * links] */
  uint32_t channel_slots; /* (check_deadlock) most that any channel needed */
  uint32_t **slot_list, *nslot_list; /* [nrank] PipeRank.list; NULL without graph */
  Streams *stream;       /* [nrank] */
  /* of PipeProgram, with lowering CHANNELS (channels.c), and: */
  PipeChannel *pipe_channel; uint32_t npipe_channel;
  /* [2 * links + nmodel + ntie + nrank] row of pipe_channel, before check_deadlock */
  uint32_t *channel_of;
  PipeNeeds *needs;      /* [nrank] */
  PipePool **pool; uint32_t *npool, *nrank_slot; /* [nrank] (slots) */
  uint32_t *weight_first; /* [nstage] (slots) the first slot of its versions */
  Peak *peak;            /* [nrank] (slots); (check_memory) with bytes */
  uint64_t *sent_bytes, *sent; /* (lower) [nrank + 1] what each rank sends in a step, then all */
} Lowered;

/* A steady state: the time that `per` microbatches take in the middle of the step. Both are 0 where
 * there are fewer than 4. */
typedef struct Steady { uint64_t time; uint32_t per; } Steady;

/* The predicted times of the program. Made by check_deadlock. */
typedef struct Times {
  uint64_t **compute_start, **comm_start; /* [nrank][n] */
  uint64_t **copy_start; /* NULL: there are no copies */
  uint64_t makespan, busy, span; /* busy: of all ranks; span: longest window of a single rank */
  uint64_t *rank_busy, *link_busy, link_wait; /* of PipeSimOut */
  Steady steady;
} Times;

/* The instruction of an op of `rank` in its COMPUTE stream. */
static inline PipeInstr *op_instr(const Sched *s, uint32_t rank, uint32_t op) {
  return &s->lowered->stream[rank].compute[op - s->orders->rank_op0[rank]];
}

PipeInstr side_instr(const Sched *s, const SideUse *u);
PipeInstr *side_at(const Sched *s, const SideUse *u); /* in Lowered.stream */
void side_waits(Sched *s);  /* once all streams are there */
void side_slots(Sched *s, uint32_t rank); /* for slots: their pools come after the others */
/* ---- offload.c: requires order. Ensures copy: what the clauses add, its order, free_at. Proves
 * that each stash that leaves comes back in time for its backward ---- */
bool offload(Sched *s, Orders *orders, Sides *sides);
void offload_guests(Sched *s);  /* for slots: slots on other ranks */
/* the op that reads the stash first when it is back */
uint32_t load_reader(const Sched *s, const Copy *c);
void offload_streams(Sched *s); /* for comm: the COPY streams, and what compute waits for of them */
/* ---- transfers.c: requires offload. Of a lowering that has transfers at their ops: ensures lists,
 * proves that they are complete and, as check_channels does, that they are carried out to their
 * end; only_lists: but not under the model of the engines ---- */
bool list_transfers(Sched *s, Orders *orders, Lowered *lowered);
/* ---- comm.c: requires transfers; ensures channel and stream: sends, receives, waits ---- */
bool comm(Sched *s, Lowered *lowered);
bool comm_more_slots(Sched *s); /* what the ideal timing needs; false: nothing to add */
/* list_schedule.c: the transfers in another order, with which the program is predicted to take less
 * than `makespan`; NULL: none was found. Requires comm, lowering GLOBAL, no side ops in COMM
 * streams; the caller plays it. */
Xfer *list_schedule(Sched *s, uint64_t makespan);
uint64_t transfer_time(const Sched *s, const Xfer *x);
/* comm_lists.c: the same from s->orders->lists, after number_slots; raises slot counts where the
 * text needs more */
void lay_lists(Sched *s);
bool more_list_slots(Sched *s);
/* ---- channels.c: lowering CHANNELS ---- */
void find_channels(Sched *s, Lowered *lowered); /* ensures channel_of; for comm, the first time */
/* NONE of another lowering */
uint32_t channel_of_link(const Sched *s, uint32_t link, bool forward);
uint32_t channel_of_sum(const Sched *s, uint32_t sum); /* as in find_communicators */
uint32_t channel_of_sides(const Sched *s, uint32_t rank);
/* c, of COMPUTE or COPY on rank r, starts when instruction number `count` of COMM, from 1, has
 * ended. Of any lowering. */
/* its part with channels; of: of Need */
void keep_need(Sched *s, uint32_t r, uint32_t of, uint32_t count);
static inline void need_comm(Sched *s, uint32_t r, PipeInstr *c, uint32_t count) {
  const Streams *t = &s->lowered->stream[r];
  bool copy = pipe_op_info[c->op].stream == PIPE_COPY;
  uint32_t *wait = copy ? &c->wait_copy : &c->wait;
  *wait = count > *wait ? count : *wait;
  if (s->lowered->lowering == PIPE_CHANNELS && count > 0)
    keep_need(s, r, copy ? t->ncompute + (uint32_t)(c - t->copy) : (uint32_t)(c - t->compute),
              count);
}
/* for comm, once all waits are there: ensures needs */
void channel_needs(Sched *s, Lowered *lowered);
/* Puts COMM streams and xfer into the order in which the machine has started them; turn:
 * PipeSimOut.comm_turn. */
void sort_channels(Sched *s, Lowered *lowered, uint32_t *const *turn);
/* A slot of instruction c of COMPUTE: input k, or output k (slots.c). */
uint32_t *slot_at(const Sched *s, PipeInstr *c, bool input, uint32_t k);
/* ---- slots.c: requires comm. Ensures slot numbers, pools, peak counts (interval colouring: the
 * count of each pool equals its peak) ---- */
bool slots(Sched *s, Lowered *lowered);
/* ---- lower.c: requires slots and predicted times; ensures prog ---- */
bool lower(Sched *s, Lowered *lowered);
/* The communicator of each sum, by stage of the model, then by tie: sums of the same ranks have
 * one. [nmodel + ntie], the arena's. */
uint32_t *find_communicators(Sched *s);

#endif
