/* SPDX-License-Identifier: MIT
 * The timed machine: what a program of pipe_instr.h does, exactly, when each op takes the time its
 * stage says. It proves that a program completes and predicts its makespan (timing/pipe_sim.c,
 * predict.c). A player of its own, beside the machine of machine.h: it alone says when each
 * instruction starts and ends, with costs, shared links and fused actions. The other has no times,
 * and confirms with a certificate that the emitted lists complete (certify/verify_completes.c).
 *
 * Each stream is a FIFO, each instruction waits for a conjunction of earlier ones and there is no
 * choice, so the order in which the machine advances does not matter: it completes iff the
 * happens-before graph is acyclic (a marked graph; Commoner, Holt, Even, Pnueli 1971). Linear in
 * instructions, but that each REDUCE or TIE of n rows looks at up to n - 1 others; that with
 * channels a rank looks at all of its own after each instruction, and an instruction at each that
 * it needs; that each of n transfers of a group looks at the others; and that of n transfers that
 * wait for shared links the first is found in log n.
 *
 * A COMM stream with channels (PipeChannel) is several, each a FIFO of its own.
 *
 * Shared links change times and nothing else. A transfer between ranks with links
 * (PipeProgram.share) that takes time and that both sides have come to is ready from then on. The
 * one that is ready first, of several the one of the lowest sender, of these the first of its
 * stream, starts as soon as every one before it has left the links that it passes, and has them all
 * until it ends. A REDUCE or TIE passes those of the ring of its rows, in the order of `replica` or
 * `tie`, and counts as sent by the rank of its lowest row. */
#ifndef PIPE_SIM_H
#define PIPE_SIM_H

#include <stdbool.h>

#include "arena.h"
#include "pipe_instr.h"

/* One stream of one rank: indices into instr, or all of instr[0..n) when index is NULL. */
typedef struct PipeStream {
  const PipeInstr *instr;
  const uint32_t *index;
  uint32_t n;
} PipeStream;

/* What the COMPUTE and COPY instructions of a rank need of its COMM stream, where that has
 * channels: positions in it. */
typedef struct PipeNeeds {
  /* [n + 1] of COMPUTE, of COPY: where those of each begin in `on`. NULL: there are none */
  const uint32_t *first[2];
  const uint32_t *on;
} PipeNeeds;

typedef struct PipeSimIn {
  uint32_t nrank;
  const PipeStream *compute; /* [nrank] */
  const PipeStream *comm;    /* [nrank] */
  const PipeStage *stage;    /* [nstage] times */
  uint32_t nstage;           /* asked for with channels */
  const PipeStream *copy;    /* [nrank], or NULL: there is none */
  const PipeEdge *edge;      /* these three as in PipeGraph */
  const uint32_t *row;
  uint32_t nmb;
  const PipeSide *side;      /* of PipeProgram, and the next two */
  const uint64_t *unit_time;
  uint32_t nunit_time;
  const uint32_t *group;     /* [nrank] of PipeRank, or NULL: there are none */
  uint32_t ngroup;
  bool groups;               /* COMM streams may have groups */
  const PipeShare *share;    /* of PipeProgram, and the next two; 0 rows: there are none */
  uint32_t nshare, nlink;
  /* [nrank] with lowering CHANNELS, in place of the waits for COMM; NULL */
  const PipeNeeds *needs;
  uint32_t nchannel;         /* of PipeProgram: `gout` of each COMM instruction is less */
} PipeSimIn;

/* Every array is the caller's, any of start/end/order may be NULL. Position i of rank r's stream
 * is at [r][i]. Times in the unit of the stages. */
typedef struct PipeSimOut {
  uint64_t **compute_start, **compute_end; /* [nrank][n] */
  uint64_t **comm_start, **comm_end;
  uint64_t **copy_start, **copy_end;
  /* [nrank], required: how far each stream came; of COMM with channels: the first that was not
   * carried out */
  uint32_t *compute_done, *comm_done;
  /* [nrank][n] or NULL: the how manieth of all COMM instructions it was */
  uint32_t **comm_turn;
  uint32_t *copy_done;                     /* [nrank], or NULL */
  uint64_t makespan, busy;
  /* [nrank] or NULL: from the first start in COMPUTE to the last end there */
  uint64_t *rank_window;
  uint64_t *rank_busy;                     /* [nrank] or NULL: time in COMPUTE */
  uint64_t *link_busy;                     /* [nlink] or NULL: how long each link was in use */
  uint64_t link_wait;                      /* transfers waited for links, all together */
} PipeSimOut;

/* Why the machine stopped, if it did. */
typedef enum PipeSimStatus {
  PIPE_SIM_DONE,     /* every stream ran to its end */
  PIPE_SIM_STUCK,    /* no stream can advance: the heads in *_done wait for each other */
  PIPE_SIM_MISMATCH  /* a SEND met a RECV of another tensor: at the heads of `rank` and its peer */
} PipeSimStatus;
PipeSimStatus pipe_sim(const PipeSimIn *in, PipeSimOut *out, uint32_t *rank);

/* The same for a finished program: start[r][i], end[r][i] for instruction i of rank r's list, in
 * the arena. NULL on stall or mismatch. */
uint64_t **pipe_predict(Arena *a, const PipeProgram *p, uint64_t ***end, uint64_t *makespan);

#endif
