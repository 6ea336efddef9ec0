/* SPDX-License-Identifier: MIT
 * The timed machine: carries out a program of pipe_instr.h exactly, with the times of its stages.
 * It proves that a program completes and predicts its makespan (pipe_sim.c, predict.c). It
 * is separate from the machine of machine.h: only the timed machine knows costs, shared links and
 * fused actions, and says when each instruction starts and ends. The other machine has no times; it
 * confirms with a certificate that the emitted lists complete (certify/verify_completes.c).
 *
 * Lemma: the machine completes if and only if the happens-before graph is acyclic (a marked graph;
 * Commoner, Holt, Even, Pnueli 1971). Each stream is a FIFO and each instruction waits for a
 * conjunction of earlier ones. So there is no choice, and the order in which the machine advances
 * does not matter.
 *
 * Cost: linear in instructions, with four exceptions:
 *
 *   a REDUCE or TIE of n rows         looks at up to n - 1 other rows
 *   a rank with channels              looks at all its channels after each instruction
 *   a transfer in a group of n        looks at the n - 1 others
 *   n transfers that wait for links   the first is found in log n
 *
 * A COMM stream with channels (PipeChannel) is several streams, each a FIFO.
 *
 * Shared links (PipeProgram.share) change times and nothing else. A transfer that takes time,
 * between ranks with links, is ready once both sides have come to it. It starts as soon as every
 * earlier transfer has left the links that it passes, and occupies all of them until it ends.
 * Earlier means: ready first, then lower sending rank, then first in its stream. A REDUCE or TIE
 * passes the links of the ring of its rows, in the order of `replica` or `tie`, and counts as sent
 * by the rank of its lowest row. A copy of rank r passes the links from r to r. */
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

typedef struct PipeSimIn {
  uint32_t nrank;
  const PipeStream *compute; /* [nrank] */
  const PipeStream *comm;    /* [nrank] */
  const PipeStage *stage;    /* [nstage] with times */
  uint32_t nstage;           /* needed only with channels */
  const PipeStream *copy;    /* [nrank]; NULL: no COPY streams */
  const PipeEdge *edge;      /* edge, row and nmb: as in PipeGraph */
  const uint32_t *row;
  uint32_t nmb;
  const PipeSide *side;      /* side, unit_time and nunit_time: as in PipeProgram */
  const uint64_t *unit_time;
  uint32_t nunit_time;
  /* share, nshare and nlink: as in PipeProgram; 0 rows: no shared links */
  const PipeShare *share;
  uint32_t nshare, nlink;
  const PipeWait *const *wait; /* [nrank][nwait] of PipeInstr.waits; further ones do not count */
  const uint32_t *nwait;
  uint32_t nchannel;         /* channels of the program; 0: one COMM stream per rank */
} PipeSimIn;

/* The caller owns every array; start, end and order may be NULL. Position i of rank r's stream is
 * at [r][i]. Times are in the unit of the stages. */
typedef struct PipeSimOut {
  uint64_t **compute_start, **compute_end; /* [nrank][n] */
  uint64_t **comm_start, **comm_end;
  uint64_t **copy_start, **copy_end;
  /* [nrank], required: number of instructions done in each stream; COMM with channels: the first
   * that was not carried out */
  uint32_t *compute_done, *comm_done;
  /* [nrank][n] or NULL: its position among all COMM instructions that were carried out */
  uint32_t **comm_turn;
  uint32_t *copy_done;                     /* [nrank], or NULL */
  uint64_t makespan, busy;
  /* [nrank] or NULL: time from the first start to the last end in COMPUTE */
  uint64_t *rank_window;
  uint64_t *rank_busy;                     /* [nrank] or NULL: time in COMPUTE */
  /* [nlink] or NULL: time for which each link was in use */
  uint64_t *link_busy;
  uint64_t link_wait;                      /* time that all transfers together waited for links */
} PipeSimOut;

/* Why the machine stopped, if it did. */
typedef enum PipeSimStatus {
  PIPE_SIM_DONE,     /* every stream ran to its end */
  PIPE_SIM_STUCK,    /* no stream can advance: the instructions at *_done wait for each other */
  PIPE_SIM_MISMATCH  /* a SEND met a RECV of another tensor, at the heads of `rank` and its peer */
} PipeSimStatus;
PipeSimStatus pipe_sim(const PipeSimIn *in, PipeSimOut *out, uint32_t *rank);

/* Runs pipe_sim on a finished program: start[r][i] and end[r][i] of instruction i of rank r's list,
 * in the arena. NULL on stall or mismatch. */
uint64_t **pipe_predict(Arena *a, const PipeProgram *p, uint64_t ***end, uint64_t *makespan);
/* The same for a program that is proved to complete and has its makespan. */
uint64_t **program_times(Arena *a, const PipeProgram *p, uint64_t ***end);

#endif
