/* SPDX-License-Identifier: MIT
 * The door of lower/: transfers, streams, slots and the emitted tables. */
#ifndef PIPEC_LOWER_H
#define PIPEC_LOWER_H

#include "pipe_sim.h"
#include "pipec.h"

/* A channel: the transfers of one kind over one link, in order. Index: 2 * link + backward. */
typedef struct Channel {
  /* at the sender, at the receiver; 0: no transfer uses the channel */
  uint32_t out_slots, in_slots;
  uint32_t out_first, in_first; /* (slots) first slot number on the rank */
} Channel;

/* With lowering CHANNELS: instruction `of` of COMPUTE, or ncompute + i of COPY, needs position `on`
 * of COMM. */
typedef struct Need { uint32_t of, on; } Need;

/* The instructions of a rank before they are merged. The merged list takes the memory of compute
 * and comm: list[ncopy + ncompute + ncomm] ends with compute, then comm. copy has memory of its
 * own. */
typedef struct Streams {
  PipeInstr *list, *compute, *comm, *copy;
  uint32_t ncompute, ncomm, ncopy;
  Need *need; uint32_t nneed, capneed;
} Streams;

/* The kinds of memory of a rank, in the order of reports. Kinds before `total` add up to it: what
 * stages have, then slots by PipeClass, then `state`, what their policy keeps. `host` is host
 * memory, outside the total. */
#define PEAK_CLASSES(X) \
  X(weight) X(grad) X(opt) X(work) X(act) X(gout) X(out) X(in) X(local) X(keep) X(guest) \
  X(buffer) X(guess) X(state) X(total) X(host)
#define X(c) PEAK_##c,
enum { PEAK_CLASSES(X) PEAK_NCLASSES, PEAK_NREPORTED = PEAK_host };
#undef X

/* What a rank needs at its worst moment. */
typedef struct Peak {
  uint32_t inflight, held, kept; /* (slots) the most live ACT, GOUT and KEEP slots */
  uint32_t host;           /* (slots) the most live HOST slots */
  uint32_t guests;         /* (slots) GUEST slots */
  uint32_t warmup;         /* forwards before the first backward */
  uint32_t versions;       /* (slots) the most slots of one stage for its weights */
  /* The op at which act + gout + local + buffer bytes are largest; NONE: sizes are unknown. */
  uint32_t op;
  uint64_t bytes[PEAK_NCLASSES]; /* (check_memory) each buffer rounded up to 64 */
} Peak;

/* The instructions of each rank, before they are a program. Made by comm, slots and lower.
 * check_deadlock runs comm again, with more channel slots, where too few close a wait cycle. */
typedef struct Lowered {
  /* [Ideal.nxfer] the one global order of transfers: at first Ideal.xfer; check_deadlock looks for
   * a better one. */
  Xfer *xfer;
  PipeLowering lowering; /* (transfers); of `auto` GLOBAL until check_deadlock has chosen: */
  struct LoweringChoice {
    bool open;             /* auto is asked for */
    uint64_t other;        /* makespan with the lowering that was not taken; 0: none was tried */
    uint32_t communicators; /* with CHANNELS: most channels of transfers on a rank */
  } choice;
  Channel *channel;      /* [2 * links] */
  uint32_t channel_slots; /* (check_deadlock) the most slots that any channel needed */
  uint32_t **slot_list, *nslot_list; /* [nrank] PipeRank.list; NULL without graph */
  Streams *stream;       /* [nrank] */
  /* With lowering CHANNELS (channels.c): the rows of PipeProgram, and */
  PipeChannel *pipe_channel; uint32_t npipe_channel;
  /* [2 * links + nmodel + ntie + nrank] the row of pipe_channel, before check_deadlock. */
  uint32_t *channel_of;
  PipeNeeds *needs;      /* [nrank] */
  PipePool **pool; uint32_t *npool, *nrank_slot; /* [nrank] (slots) */
  uint32_t *weight_first; /* [nstage] (slots) the first slot of its versions */
  Peak *peak;            /* [nrank] (slots); (check_memory) with bytes */
  /* (lower) [nrank + 1] what each rank sends in a step, then the sum */
  uint64_t *sent_bytes, *sent;
} Lowered;

/* A steady state: the time that `per` microbatches take in the middle of the step. Both are 0 if
 * the step has fewer than 4 microbatches. */
typedef struct Steady { uint64_t time; uint32_t per; } Steady;

/* The predicted times of the program. Made by check_deadlock. */
typedef struct Times {
  uint64_t **compute_start, **comm_start; /* [nrank][n] */
  uint64_t **copy_start; /* NULL: there are no copies */
  uint64_t makespan, busy, span; /* busy: of all ranks; span: longest window of a single rank */
  uint64_t *rank_busy, *link_busy, link_wait; /* of PipeSimOut */
  Steady steady;
} Times;

/* The instruction of op of `rank` in its COMPUTE stream. */
static inline PipeInstr *op_instr(const Sched *s, uint32_t rank, uint32_t op) {
  return &s->lowered->stream[rank].compute[op - s->orders->rank_op0[rank]];
}

PipeInstr side_instr(const Sched *s, const SideUse *u);
PipeInstr *side_at(const Sched *s, const SideUse *u); /* in Lowered.stream */
void side_waits(Sched *s);  /* once all streams are there */
void side_slots(Sched *s, uint32_t rank); /* for slots: their pools come after the others */
/* ---- offload.c: requires order. Ensures Orders.copy: what the clauses add, its order, free_at.
 * Proves that each stash that leaves comes back in time for its backward ---- */
bool offload(Sched *s, Orders *orders, Sides *sides);
void offload_guests(Sched *s);  /* for slots: slots on other ranks */
/* The op that reads the stash first after its LOAD. */
uint32_t load_reader(const Sched *s, const Copy *c);
void offload_streams(Sched *s); /* for comm: the COPY streams, and the waits of compute for them */
/* ---- transfers.c: requires offload. For a lowering with transfers at their ops: ensures
 * Orders.lists, and proves that the lists have every transfer and, as check_channels does,
 * complete. only_lists: they do not complete under the model of the engines ---- */
bool list_transfers(Sched *s, Orders *orders, Lowered *lowered);
/* ---- comm.c: requires transfers. Ensures channel and stream: sends, receives, waits ---- */
bool comm(Sched *s, Lowered *lowered);
/* Rows of Lowered.xfer that move tensors, by channel: of channel c from (*first)[c] on. */
uint32_t *xfers_by_channel(const Sched *s, Arena *a, uint32_t **first);
/* gives channels the slots that the ideal timing needs; false: none was added */
bool comm_more_slots(Sched *s);
/* reorder_transfers.c: another order of the transfers, with which the program is predicted to take
 * less than `makespan`; NULL: none was found. Requires comm, lowering GLOBAL and no side ops in
 * COMM streams. The caller plays the result. */
Xfer *reorder_transfers(Sched *s, uint64_t makespan);
uint64_t transfer_time(const Sched *s, const Xfer *x);
/* comm_lists.c: the streams of Orders.lists, after number_slots; adds slots where the text needs
 * more. */
void lay_lists(Sched *s);
bool more_list_slots(Sched *s);
/* ---- channels.c: lowering CHANNELS ---- */
void find_channels(Sched *s, Lowered *lowered); /* ensures channel_of; for comm, the first time */
/* The channel of a link; NONE with another lowering. */
uint32_t channel_of_link(const Sched *s, uint32_t link, bool forward);
uint32_t channel_of_sum(const Sched *s, uint32_t sum); /* as in find_communicators */
uint32_t channel_of_sides(const Sched *s, uint32_t rank);
/* The part of need_comm for channels; of: as in Need. */
void keep_need(Sched *s, uint32_t r, uint32_t of, uint32_t count);
/* Makes c, of COMPUTE or COPY on rank r, wait for instruction number `count` of COMM, from 1. For
 * any lowering. */
static inline void need_comm(Sched *s, uint32_t r, PipeInstr *c, uint32_t count) {
  const Streams *t = &s->lowered->stream[r];
  bool copy = pipe_op_info[c->op].stream == PIPE_COPY;
  uint32_t *wait = copy ? &c->wait_copy : &c->wait;
  *wait = count > *wait ? count : *wait;
  if (s->lowered->lowering == PIPE_CHANNELS && count > 0)
    keep_need(s, r, copy ? t->ncompute + (uint32_t)(c - t->copy) : (uint32_t)(c - t->compute),
              count);
}
/* For comm, after all waits: ensures needs. */
void channel_needs(Sched *s, Lowered *lowered);
/* Sorts COMM streams and xfer into the order in which the timed machine started them; turn:
 * PipeSimOut.comm_turn. */
void sort_channels(Sched *s, Lowered *lowered, uint32_t *const *turn);
/* ---- slots.c: requires comm. Ensures slot numbers, pools and peaks, by interval colouring: the
 * count of each pool is its peak ---- */
bool slots(Sched *s, Lowered *lowered);
/* The slot of input k, or output k, of instruction c of COMPUTE. */
uint32_t *slot_at(const Sched *s, PipeInstr *c, bool input, uint32_t k);
/* ---- lower.c: requires slots and predicted times. Ensures prog ---- */
bool lower(Sched *s, Lowered *lowered);
/* ---- channels.c ---- */
/* The communicator of each sum, by stage of the model, then by tie: [nmodel + ntie] in the arena.
 * Sums over the same ranks have the same communicator. */
uint32_t *find_communicators(Sched *s);

#endif
