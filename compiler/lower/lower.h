/* SPDX-License-Identifier: MIT
 * The door of lower/, what other rooms call: transfers, streams, slots, the emitted tables. */
#ifndef PIPEC_LOWER_H
#define PIPEC_LOWER_H

#include "pipec.h"

PipeInstr side_instr(const Sched *s, const SideUse *u);
PipeInstr *side_at(const Sched *s, const SideUse *u); /* in Sched.stream */
void side_waits(Sched *s);  /* once all streams are there */
void side_slots(Sched *s, uint32_t rank); /* for slots: their pools come after the others */
/* ---- offload.c: requires order. Ensures copy: what the clauses add, its order, free_at. Proves that
 * each stash that leaves comes back in time for its backward ---- */
bool offload(Sched *s);
void offload_guests(Sched *s);  /* for slots: slots on other ranks */
uint32_t load_reader(const Sched *s, const Copy *c); /* the op that reads the stash first when it is back */
void offload_streams(Sched *s); /* for comm: the COPY streams, and what compute waits for of them */
/* ---- transfers.c: requires offload. Of a lowering that has transfers at their ops: ensures lists, proves that
 * they are complete and, as check_channels does, that they are carried out to their end; only_lists: but not
 * under the model of the engines ---- */
bool list_transfers(Sched *s);
/* ---- comm.c: requires transfers; ensures channel and stream: sends, receives, waits ---- */
bool comm(Sched *s);
bool comm_more_slots(Sched *s); /* what the ideal timing needs; false: nothing to add */
/* list_schedule.c: the transfers in another order, with which the program is predicted to take less than `makespan`;
 * NULL: none was found. Requires comm, lowering GLOBAL, no side ops in COMM streams; the caller plays it. */
Xfer *list_schedule(Sched *s, uint64_t makespan);
/* comm_lists.c: the same from s->lists, after number_slots; raises slot counts where the text needs more */
void lay_lists(Sched *s);
bool more_list_slots(Sched *s);
/* ---- channels.c: lowering CHANNELS ---- */
void find_channels(Sched *s); /* ensures channel_of, comm_of; for comm, the first time */
uint32_t channel_of_link(const Sched *s, uint32_t link, bool forward); /* NONE of another lowering */
uint32_t channel_of_sum(const Sched *s, uint32_t sum); /* as in comm_of */
uint32_t channel_of_sides(const Sched *s, uint32_t rank);
/* c, of COMPUTE or COPY on rank r, starts when instruction number `count` of COMM, from 1, has ended. Of any lowering. */
void keep_need(Sched *s, uint32_t r, uint32_t of, uint32_t count); /* its part with channels; of: of Need */
static inline void need_comm(Sched *s, uint32_t r, PipeInstr *c, uint32_t count) {
  const Streams *t = &s->stream[r];
  bool copy = pipe_op_info[c->op].stream == PIPE_COPY;
  uint32_t *wait = copy ? &c->wait_copy : &c->wait;
  *wait = count > *wait ? count : *wait;
  if (s->lowering == PIPE_CHANNELS && count > 0)
    keep_need(s, r, copy ? t->ncompute + (uint32_t)(c - t->copy) : (uint32_t)(c - t->compute), count);
}
void channel_needs(Sched *s); /* for comm, once all waits are there: ensures needs */
/* Puts COMM streams and xfer into the order in which the machine has started them; turn: PipeSimOut.comm_turn. */
void sort_channels(Sched *s, uint32_t *const *turn);
/* ---- slots.c: requires comm. Ensures slot numbers, pools, peak counts (interval colouring: the
 * count of each pool equals its peak) ---- */
bool slots(Sched *s);
/* ---- lower.c: requires slots and predicted times; ensures prog ---- */
bool lower(Sched *s);
void find_communicators(Sched *s); /* ensures comm_of */

#endif
