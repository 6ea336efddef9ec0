/* SPDX-License-Identifier: MIT
 * The abstract machine that decides whether lists complete: the instruction lists of ranks under a
 * named channel model, without times. If they do not complete, it shows a shortest wait cycle or
 * the first mispaired transfer. The lists may come from pipec's lowering or from a file.
 *
 * A rank is a list of instructions. COMPUTE instructions run one after the other; so do COPY
 * instructions, beside them. A SEND, RECV or ALL (a collective) enters a queue of its rank, in list
 * order; a queue carries out one at a time. Nothing else in the list waits for communication:
 * `need` says who does. The model says which queues there are:
 *
 *   RANK    one for each channel of a rank, most often one for all its communication
 *   PAIR    one per peer
 *   EDGE    one per peer and direction
 *   TAGGED  none: no transfer waits until another one is done. Transfers with one peer in one
 *           direction are posted in list order
 *
 * With PAIR, EDGE and TAGGED, a collective has the queue of its communicator. Without tags, the
 * n-th SEND from rank a to rank b meets the n-th RECV of b from a, whatever the tensors are. With
 * tags, the n-th SEND of a tensor meets the n-th RECV of this tensor.
 *
 *   posted   an instruction is posted when it is the head of its queue and all its needs are done;
 *            TAGGED: and when the transfer above it is posted. The members of a group, whose queues
 *            may differ, are posted at once, when this holds for all of them
 *   RECV     is done when it and its SEND are posted
 *   SEND     rendezvous: is done when it and its RECV are posted. Buffered: also as soon as the
 *            buffer of its directed pair has room. The buffer holds `buffer` messages or bytes that
 *            are sent and not yet received; a larger message is sent by rendezvous. A message is
 *            received when its RECV is posted, even if the group of the RECV is not done. TAGGED:
 *            messages of a pair get room in list order, but a SEND whose own RECV is posted waits
 *            for no room
 *   ALL      is done when every member of the communicator has posted its own; the n-th
 *            instructions of the members belong together
 *   a group  is done when all members could be done; no member is done before
 *
 * So more room never makes anything wait longer. */
#ifndef PIPEC_MACHINE_H
#define PIPEC_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"

#define MACHINE_NONE UINT32_MAX

typedef enum MachineKind {
  MACHINE_COMPUTE, MACHINE_SEND, MACHINE_RECV, MACHINE_ALL, MACHINE_COPY
} MachineKind;

typedef struct MachineInstr {
  uint32_t kind;    /* MachineKind */
  uint32_t peer;    /* SEND, RECV: rank of the other end; ALL: number of the communicator */
  uint32_t need[2]; /* positions in this list that must be done before; NONE */
  uint32_t nmore;
  /* SEND, RECV: further instructions of the list after it that are one group with it, each a SEND
   * or RECV: posted, and done, together */
  uint32_t group;
  uint32_t channel; /* RANK: communication of a rank with one number is one queue; transfers of a
                       directed pair meet, and share a buffer, within it. Other models: 0 */
  const uint32_t *more; /* [nmore] further ones */
  /* 1 + position in the list of that rank that must be done before; 0: none */
  uint32_t far_rank, far;
  uint64_t tensor;  /* SEND, RECV, ALL: what it is; the ends of a transfer have the same */
  uint64_t bytes;   /* SEND: of the message */
} MachineInstr;

typedef struct MachineList {
  const MachineInstr *instr;
  uint32_t n;
} MachineList;

typedef enum MachineChannels {
  CHANNELS_RANK,
  CHANNELS_PAIR,
  CHANNELS_EDGE,
  CHANNELS_TAGGED
} MachineChannels;

typedef struct ChannelModel {
  MachineChannels channels;
  bool in_bytes;   /* unit of `buffer`: bytes, else messages */
  uint64_t buffer; /* of each directed pair; 0: rendezvous */
} ChannelModel;

typedef enum MachineStatus {
  MACHINE_DONE,
  MACHINE_STUCK,    /* hop[0..nhop): a wait cycle, the last waits for the first; or the one whose
                       other end does not exist */
  MACHINE_MISPAIRED /* hop[0]: this end meets one of another tensor */
} MachineStatus;

/* Why an instruction does not go on that is at the head of its queue, or in a group with one that
 * is. */
typedef enum MachineWhy {
  WAIT_NEED,    /* it needs `on`, or stands below it in its queue; `on` is not done */
  WAIT_PARTNER, /* the other end, `on`, is not posted */
  WAIT_ROOM,    /* the buffer has room once `on`, a RECV, is posted, and not before */
  WAIT_ORDER,   /* TAGGED: it is posted after `on`, which is not posted */
  WAIT_NOBODY,  /* there is no other end */
  WAIT_OTHER    /* the other end, `on`, is another tensor */
} MachineWhy;

typedef struct MachineAt { uint32_t rank, index; } MachineAt;
typedef struct MachineHop {
  /* `at` waits for `on`: the next hop's `at`, or behind it, or a member of its group */
  MachineAt at, on;
  MachineWhy why;
} MachineHop;

typedef struct MachineResult {
  MachineStatus status;
  uint64_t done;      /* instructions that were carried out */
  MachineHop *hop;    /* arena */
  uint32_t nhop;
  bool shortest;      /* no cycle is shorter; false: the search was cut short */
  /* the certificate, if asked for: when each instruction is, of all lists, one after the other;
   * NONE: never. All that it waits for comes before: machine_verify */
  uint32_t *posted, *ended;
} MachineResult;

/* Every condition is a conjunction of things that, once true, stay true; so it does not matter in
 * which order the machine goes on, and one run decides. Linear in instructions (a collective: times
 * its members). Everything it takes is from the arena. */
MachineResult machine_run(Arena *a, const MachineList *list, uint32_t nrank, ChannelModel model,
                          bool certify);

/* Verifies what machine_run says and certifies of these lists, by the rules above; shares nothing
 * with it (verify_machine.c). NULL, or which rule is broken. All are done: each has a time, and
 * all that it waits for is earlier. Else so do those that were carried out, and the hops are
 * waits that close a circle, or what meets at the one hop is not one. Not verified: that no
 * circle is shorter. n log(n). */
const char *machine_verify(Arena *a, const MachineList *list, uint32_t nrank, ChannelModel model,
                           const MachineResult *got);

/* If every instruction takes one unit of time from when it can go on: when those that are carried
 * out end. [nrank][n], 0: never. From the arena; linear. */
uint32_t **machine_times(Arena *a, const MachineList *list, uint32_t nrank, ChannelModel model);

/* The least buffer, in the model's unit, with which the lists complete (0: rendezvous is enough).
 * False: with none. Who meets whom is found once; then log(buffer) runs. */
bool machine_least_buffer(void (*oom)(size_t), const MachineList *list, uint32_t nrank,
                          ChannelModel model, uint64_t *buffer);

#endif
