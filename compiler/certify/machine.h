/* SPDX-License-Identifier: MIT
 * The abstract machine that decides whether lists complete: it carries out the instruction lists of
 * ranks under a named channel model, without times. If they do not complete, it shows a shortest
 * wait cycle or the first mispaired transfer. The lists come from pipec's lowering or from a file.
 *
 * A rank is a list of instructions. Its COMPUTE instructions run one after the other. So do its
 * COPY instructions, beside them. A SEND, RECV or ALL (a collective) enters a queue of its rank, in
 * list order; a queue carries out one at a time. An instruction waits for communication only
 * through its needs (`need`, `more`). The model says which queues there are:
 *
 *   RANK    one for each channel of a rank; most ranks have one channel for all communication
 *   PAIR    one per peer
 *   EDGE    one per peer and direction
 *   TAGGED  none: no transfer waits until another transfer is done. The transfers to, or from, one
 *           peer are posted in list order
 *
 * With PAIR, EDGE and TAGGED, a collective enters the queue of its communicator. Without tags, the
 * n-th SEND from rank a to rank b meets the n-th RECV of b from a, whatever their tensors. With
 * tags, the n-th SEND of a tensor meets the n-th RECV of this tensor.
 *
 *   posted   an instruction is posted when it is the head of its queue and all its needs are done.
 *            TAGGED: and when the transfer above it is posted. The members of a group are posted
 *            together, when this holds for all of them; their queues may differ
 *   RECV     is done when it and its SEND are posted
 *   SEND     rendezvous: is done when it and its RECV are posted. Buffered: also as soon as the
 *            buffer of its directed pair has room. The buffer holds `buffer` messages or bytes that
 *            are sent and not yet received; a larger message is sent by rendezvous. A message is
 *            received when its RECV is posted, even if the group of the RECV is not done. TAGGED:
 *            messages of a pair get room in list order, but a SEND whose RECV is posted needs no
 *            room
 *   ALL      is done when every member of the communicator has posted its own; the n-th
 *            instructions of the members belong together
 *   a group  is done when all its members could be done; no member is done before
 *
 * So a larger buffer never makes an instruction wait longer. */
#ifndef PIPEC_MACHINE_H
#define PIPEC_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "channel_model.h"

#define MACHINE_NONE UINT32_MAX

typedef enum MachineKind {
  MACHINE_COMPUTE, MACHINE_SEND, MACHINE_RECV, MACHINE_ALL, MACHINE_COPY
} MachineKind;

typedef struct MachineInstr {
  uint32_t kind;    /* MachineKind */
  uint32_t peer;    /* SEND, RECV: rank of the other end; ALL: index of the communicator */
  uint32_t need[2]; /* positions in this list that must be done before; NONE: no further need */
  uint32_t nmore;
  /* SEND, RECV: number of instructions that follow in the same group, each a SEND or RECV. A group
   * is posted together and is done together. */
  uint32_t group;
  /* RANK: the communication of a rank with one channel number is one queue; transfers of a directed
   * pair meet, and share a buffer, within a channel. Other models: 0. */
  uint32_t channel;
  const uint32_t *more; /* [nmore] further needs */
  uint64_t tensor;  /* SEND, RECV, ALL: the tensor; equal for both ends of a transfer */
  uint64_t bytes;   /* SEND: bytes of the message */
} MachineInstr;

typedef struct MachineList {
  const MachineInstr *instr;
  uint32_t n;
} MachineList;

typedef enum MachineStatus {
  MACHINE_DONE,
  /* hop[0..nhop) is a wait cycle whose last hop waits for the first; or one hop whose other end
   * does not exist */
  MACHINE_STUCK,
  MACHINE_MISPAIRED /* hop[0]: this end meets an end of another tensor */
} MachineStatus;

/* Why an instruction cannot proceed although it, or a member of its group, is the head of its
 * queue. */
typedef enum MachineWhy {
  WAIT_NEED,    /* it needs `on`, or stands below `on` in its queue; `on` is not done */
  WAIT_PARTNER, /* the other end, `on`, is not posted */
  WAIT_ROOM,    /* the buffer has room once `on`, a RECV, is posted, and not before */
  WAIT_ORDER,   /* TAGGED: it is posted after `on`, which is not posted */
  WAIT_NOBODY,  /* the other end does not exist */
  WAIT_OTHER    /* the other end, `on`, is of another tensor */
} MachineWhy;

typedef struct MachineAt { uint32_t rank, index; } MachineAt;
typedef struct MachineHop {
  /* `at` waits for `on`: the `at` of the next hop, or an instruction behind it, or a member of its
   * group */
  MachineAt at, on;
  MachineWhy why;
} MachineHop;

typedef struct MachineResult {
  MachineStatus status;
  uint64_t done;      /* number of instructions carried out */
  MachineHop *hop;    /* arena */
  uint32_t nhop;
  bool shortest;      /* no wait cycle is shorter; false: the search stopped early */
  /* The certificate, if requested: times of each instruction, list after list; NONE: never. Each
   * instruction comes after everything that it waits for (machine_verify). */
  uint32_t *posted, *ended;
} MachineResult;

/* Carries out the lists. Every condition is a conjunction of facts that stay true once they are
 * true. So the order in which the machine proceeds does not matter, and one run decides. Cost:
 * linear in instructions; a collective counts once per member. The result is in the arena. */
MachineResult machine_run(Arena *a, const MachineList *list, uint32_t nrank, ChannelModel model,
                          bool certify);

/* Verifies the verdict and certificate of machine_run by the rules above; shares no code with it
 * (verify_machine.c). Returns NULL, or the broken rule.
 *
 *   MACHINE_DONE  every instruction has a time, later than everything that it waits for
 *   otherwise     this holds for the instructions carried out, and either the hops are waits that
 *                 close a cycle, or the one hop meets a wrong end
 *
 * Does not verify that no cycle is shorter. Cost: n log n. */
const char *machine_verify(Arena *a, const MachineList *list, uint32_t nrank, ChannelModel model,
                           const MachineResult *got);

/* The end of each instruction if an instruction takes one unit of time from the moment at which it
 * can proceed: [nrank][n] in the arena; 0: never. Cost: linear. */
uint32_t **machine_times(Arena *a, const MachineList *list, uint32_t nrank, ChannelModel model);

/* The least buffer, in the unit of the model, with which the lists complete; 0: rendezvous is
 * enough. False: no buffer suffices. Cost: pairs the transfers once, then log(buffer) runs. */
bool machine_least_buffer(const MachineList *list, uint32_t nrank, ChannelModel model,
                          uint64_t *buffer);

#endif
