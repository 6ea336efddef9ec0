/* SPDX-License-Identifier: MIT
 * The door of lower/: transfers, streams, slots and the emitted tables. */
#ifndef PIPEC_LOWER_H
#define PIPEC_LOWER_H

#include "pipe_sim.h"
#include "pipec.h"

/* A channel: the transfers of one kind over one link, in order. Index: 2 * link + backward. */
typedef struct Channel {
  /* slots at the sender, at the receiver; 0: no transfer uses the channel */
  uint32_t out_slots, in_slots;
  uint32_t out_first, in_first; /* (slots) first slot, as a number on the rank */
} Channel;

/* How many instructions of each stream of its rank an instruction waits for. */
typedef struct Counts { uint32_t on[PIPE_NSTREAMS]; } Counts;

/* With lowering CHANNELS: an instruction waits for an instruction of COMM. `of`: row of
 * Streams.counts. `on`: position in COMM. */
typedef struct Need { uint32_t of, on; } Need;

/* Rows of Streams.wait: all waits of an instruction, also those that follow from others. */
typedef struct WaitRange { uint32_t first, n; } WaitRange;

/* The instructions of a rank, one array per stream, before lower.c merges them. `list` has room for
 * all of them and ends with compute, then comm: the merge writes over them. copy has its own
 * memory. */
typedef struct Streams {
  PipeInstr *list, *compute, *comm, *copy;
  uint32_t ncompute, ncomm, ncopy;
  Counts *counts; /* while comm runs: of COMPUTE, COMM and COPY, one stream after the other */
  Need *need; uint32_t nneed, capneed;
  /* All waits of PipeInstr.waits, also those that follow from others. */
  PipeWait *wait; uint32_t nwait, capwait;
} Streams;

/* The kinds of memory of a rank, in the order of reports. The kinds before `total` add up to it:
 * first what stages have (weight .. work), then slots by PipeClass, then `state`, the memory that
 * policies keep. `host` is host memory and not in the total. */
#define PEAK_CLASSES(X) \
  X(weight) X(grad) X(opt) X(work) X(act) X(gout) X(out) X(in) X(local) X(keep) X(guest) \
  X(buffer) X(guess) X(state) X(total) X(host)
#define X(c) PEAK_##c,
enum { PEAK_CLASSES(X) PEAK_NCLASSES, PEAK_NREPORTED = PEAK_host };
#undef X

/* The worst moment of a rank: counts of slots, and bytes. */
typedef struct Peak {
  uint32_t inflight, held, kept; /* (slots) the most ACT, GOUT and KEEP slots in use at a time */
  uint32_t host;           /* (slots) the most HOST slots in use at a time */
  uint32_t guests;         /* (slots) GUEST slots */
  uint32_t warmup;         /* forwards in the phase warmup */
  uint32_t versions;       /* (slots) the most slots of one stage for its weights */
  /* The op at which act + gout + local + buffer bytes are largest; NONE: no sizes are given. */
  uint32_t op;
  uint64_t bytes[PEAK_NCLASSES]; /* (check_memory) each buffer rounded up to 64 bytes */
} Peak;

/* The instructions of each rank before the merge. Made by comm, settle, slots and lower. */
typedef struct Lowered {
  /* [Ideal.nxfer] the one global order of transfers. It begins as Ideal.xfer; settle may replace it
   * by a faster order. */
  Xfer *xfer;
  PipeLowering lowering; /* (comm) for `auto`: GLOBAL until settle chooses */
  struct LoweringChoice {
    bool open;             /* the schedule asks for `auto` */
    uint64_t other;        /* makespan with the rejected lowering; 0: no other was tried */
    uint32_t communicators; /* with CHANNELS: the most channels of transfers on a rank */
  } choice;
  Channel *channel;      /* [2 * links] */
  uint32_t channel_slots; /* (settle) the most slots that any channel needed */
  uint32_t **slot_list, *nslot_list; /* [nrank] PipeRank.list; NULL without graph */
  Streams *stream;       /* [nrank] */
  uint32_t *side_pos;    /* [Sides.nuse] 1 + position of each side op in its stream */
  /* (lower) [nrank][ninstr] With copies or the lists of a file, whose texts ask for waits that no
   * slot needs; else NULL. */
  WaitRange **all_waits;
  /* With lowering CHANNELS (channels.c): PipeProgram.channel. */
  PipeChannel *pipe_channel; uint32_t npipe_channel;
  /* [2 * links + nmodel + ntie + nrank] row of pipe_channel, numbered before settle sorts. */
  uint32_t *channel_of;
  PipePool **pool; uint32_t *npool, *nrank_slot; /* [nrank] (slots) */
  uint32_t *weight_first; /* [nstage] (slots) first slot of the weight versions of a stage */
  Peak *peak;            /* [nrank] (slots); bytes: (check_memory) */
  /* (lower) [nrank + 1] bytes and messages that each rank sends in a step; the last row: all
   * ranks */
  uint64_t *sent_bytes, *sent;
} Lowered;

/* A steady state: in the middle of the step, `per` microbatches take `time`. Both are 0 if the step
 * has fewer than 4 microbatches. */
typedef struct Steady { uint64_t time; uint32_t per; } Steady;

/* The play of the program in the timed machine. Made by settle. */
typedef struct Times {
  /* [nrank] instructions carried out in each stream; copy_done NULL: there are no copies */
  uint32_t *compute_done, *comm_done, *copy_done;
  uint64_t **compute_start, **comm_start; /* [nrank][n] */
  uint64_t **copy_start; /* NULL: there are no copies */
  uint64_t makespan, busy, span; /* busy: sum over all ranks; span: as in the glossary */
  uint64_t *rank_busy, *link_busy, link_wait; /* as in PipeSimOut */
  Steady steady;
} Times;

/* The COMPUTE instruction of `op`, a row of Orders.op on `rank`. */
static inline PipeInstr *op_instr(const Sched *s, Lowered *lowered, uint32_t rank, uint32_t op) {
  return &lowered->stream[rank].compute[op - s->orders->rank_op0[rank]];
}

static inline size_t instrs_of(const Streams *t) {
  return (size_t)t->ncompute + t->ncomm + t->ncopy;
}
static inline Counts *counts_of(const Streams *t, const PipeInstr *c) {
  const uint32_t on = pipe_stream_of(c->op);
  return on == PIPE_COMPUTE ? &t->counts[c - t->compute]
         : on == PIPE_COMM  ? &t->counts[t->ncompute + (c - t->comm)]
                            : &t->counts[t->ncompute + t->ncomm + (c - t->copy)];
}
void keep_need(Sched *s, Streams *t, const Counts *of, uint32_t count); /* of wait_for */
/* Makes c, an instruction of rank r, wait for `count` instructions of another stream. With lowering
 * CHANNELS it waits for the last of them if they are of COMM. */
static inline void wait_for(Sched *s, Lowered *lowered, uint32_t r, const PipeInstr *c, PipeOn on,
                            uint32_t count) {
  Streams *t = &lowered->stream[r];
  Counts *counts = counts_of(t, c);
  counts->on[on] = count > counts->on[on] ? count : counts->on[on];
  if (on == PIPE_COMM && count > 0 && lowered->lowering == PIPE_CHANNELS)
    keep_need(s, t, counts, count);
}
/* ---- side_streams.c ---- */
PipeInstr side_instr(const Sched *s, const SideUse *u);
void side_waits(Sched *s, Lowered *lowered);  /* requires all streams */
/* For slots: the pools of side ops come last. */
void side_slots(Sched *s, Lowered *lowered, uint32_t rank);
/* ---- offload.c: requires order. Ensures Orders.copy: the copies of the clauses too, their order
 * and free_at. Proves that each stash that leaves comes back in time for its backward ---- */
bool offload(Sched *s, Orders *orders, Sides *sides);
/* For slots: the slots that stashes take on other ranks. */
void offload_guests(Sched *s, Lowered *lowered);
/* For comm: the COPY streams, and the waits of COMPUTE for them. */
void offload_streams(Sched *s, Lowered *lowered);
/* ---- comm.c: requires offload. Ensures channel and stream: sends, receives, waits ---- */
bool comm(Sched *s, Lowered *lowered);
/* The pass: comm with the lowering that the text asks for; for `auto` with GLOBAL. */
bool first_comm(Sched *s, Lowered *lowered);
/* The rows of Lowered.xfer that move tensors, sorted by channel. Those of channel c begin at
 * (*first)[c]. */
uint32_t *xfers_by_channel(const Sched *s, Arena *a, uint32_t **first);
/* Gives channels the slots that the ideal timing needs. False: no channel needed more. */
bool comm_more_slots(Sched *s, Lowered *lowered);
/* reorder_transfers.c: an order of the transfers that is predicted to take less than `makespan`;
 * NULL: none was found. Requires comm, lowering GLOBAL and no side ops in COMM streams. The
 * prediction may be off for copies and side ops: the caller plays the result to check it. */
Xfer *reorder_transfers(Sched *s, uint64_t makespan);
uint64_t transfer_time(const Sched *s, const Xfer *x);
/* comm_lists.c: lays the streams of Orders.lists, after number_slots. Gives a channel more slots
 * where the order of the list needs them. Requires one chain of stages, each on one rank. */
void lay_lists(Sched *s, Lowered *lowered);
bool more_list_slots(const Sched *s, Lowered *lowered);
/* ---- settle.c: requires comm. Chooses the slots of channels, the order of transfers and the
 * lowering of `auto` by playing the program, and runs comm again for them. Ensures Times ---- */
bool settle(Sched *s, Lowered *lowered, Times *times);
bool transfers_take_time(const Sched *s);
/* steady_state.c. end: [nrank][n] ends of COMPUTE. Requires Times.compute_start and
 * Times.rank_busy. */
Steady find_steady(Sched *s, const Times *times, uint64_t *const *end);
/* ---- waits.c ---- */
/* For comm, once all waits are known: ensures Streams.wait. */
void list_waits(Sched *s, Lowered *lowered);
/* For lower: finds the waits of a list that do not follow from others. k->instr is `instr`, with
 * waits in t->wait. Ensures wait, nwait and those of instr; and `range`, if not NULL: [ninstr] of
 * Lowered.all_waits. */
void prune_waits(Sched *s, const Streams *t, PipeRank *k, PipeInstr *instr, WaitRange *range);
/* The instructions of stream `on` that c waits for, in `wait`. */
static inline uint32_t waits_for(const PipeWait *wait, const PipeInstr *c, PipeOn on) {
  for (uint32_t i = c->waits; i < c->waits + c->nwait; i++)
    if (wait[i].queue == on)
      return wait[i].count;
  return 0;
}
/* ---- channels.c: lowering CHANNELS ---- */
void find_channels(Sched *s, Lowered *lowered); /* for comm, once: ensures channel_of */
/* The channel of a link; NONE with another lowering. */
uint32_t channel_of_link(const Sched *s, uint32_t link, bool forward);
uint32_t channel_of_sum(const Sched *s, uint32_t sum); /* sum: index as in find_communicators */
uint32_t channel_of_sides(const Sched *s, uint32_t rank);
/* Sorts COMM streams, xfer and Times.comm_start into the order in which the timed machine started
 * the transfers.
 * turn: PipeSimOut.comm_turn. */
void sort_channels(Sched *s, Lowered *lowered, Times *times, uint32_t *const *turn);
/* ---- slots.c: requires comm. Ensures slot numbers, pools and peaks, by interval colouring: the
 * count of each pool is its peak ---- */
bool slots(Sched *s, Lowered *lowered, struct Versions *versions);
/* The slot of input (or output) k of COMPUTE instruction c. */
uint32_t *slot_at(const Sched *s, Lowered *lowered, PipeInstr *c, bool input, uint32_t k);
/* ---- lower.c: requires slots and the times of settle. Ensures prog ---- */
bool lower(Sched *s, Lowered *lowered);
/* ---- channels.c ---- */
/* The communicator of each sum: [nmodel + ntie] in the arena, stages of the model, then ties. Sums
 * over the same set of ranks share a communicator. */
uint32_t *find_communicators(Sched *s);

#endif
